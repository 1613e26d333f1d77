//! How long an array's members took: all their reads and writes since they took their slots here,
//! by buckets, for JSON and for Prometheus.
//!
//! Invariants: buckets are cumulative, each bound is twice the one before, and they never become
//! less while a member serves (a member that comes back begins anew, as counters may). What took
//! longer than the last bound is in the count alone. Deliberately absent: quantiles of what was
//! long ago.

use std::fmt::Write as _;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strake_engine::Distribution;
use strake_engine::event::{LatencyStatus, MemberStatus, Status};
use strake_engine::units::DeviceId;

use crate::api::LatencyJson;
use crate::view;

/// How long the members of an array took.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LatenciesJson {
    pub(crate) name: String,
    pub(crate) members: Vec<MemberLatenciesJson>,
}

/// How long a member took.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MemberLatenciesJson {
    pub(crate) slot: u8,
    pub(crate) device: Option<String>,
    pub(crate) reads: DistributionJson,
    pub(crate) writes: DistributionJson,
}

/// How long all reads took, or all writes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DistributionJson {
    /// How many there were.
    pub(crate) count: u64,
    /// All together.
    pub(crate) sum_ns: u64,
    /// The longest.
    pub(crate) max_ns: u64,
    /// Quantiles of the recent ones; none where there were none.
    pub(crate) recent: Option<LatencyJson>,
    /// How many took less than so long, from 8 µs to 17 s.
    pub(crate) buckets: Vec<BucketJson>,
}

/// A bucket and all below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BucketJson {
    pub(crate) below_ns: u64,
    pub(crate) count: u64,
}

fn distribution(all: &Distribution, recent: Option<LatencyJson>) -> DistributionJson {
    let bucket = |(below_ns, count)| BucketJson { below_ns, count };
    DistributionJson {
        count: all.count(),
        sum_ns: all.sum_ns,
        max_ns: all.max_ns,
        recent,
        buckets: all.below().map(bucket).collect(),
    }
}

/// The members in slots of a running array.
pub(crate) fn of(status: &Status, path: impl Fn(DeviceId) -> Option<PathBuf>) -> LatenciesJson {
    let member = |member: &MemberStatus| {
        let took: &LatencyStatus = &member.latency;
        Some(MemberLatenciesJson {
            slot: member.slot?.0,
            device: member
                .device
                .and_then(&path)
                .map(|p| p.display().to_string()),
            reads: distribution(&took.all_reads, took.read.map(view::latency)),
            writes: distribution(&took.all_writes, took.write.map(view::latency)),
        })
    };
    LatenciesJson {
        name: status.superblock.name.as_str().to_owned(),
        members: status.members.iter().filter_map(member).collect(),
    }
}

/// What a family of histograms is of a member.
type Part = fn(&MemberLatenciesJson) -> &DistributionJson;

/// The families: name, help and part.
const FAMILIES: [(&str, &str, Part); 2] = [
    (
        "strake_member_read_latency_seconds",
        "All reads of the member since it took its slot.",
        |m| &m.reads,
    ),
    (
        "strake_member_write_latency_seconds",
        "All writes of the member since it took its slot.",
        |m| &m.writes,
    ),
];

/// Name, kind and help of each, for the reference.
#[cfg(test)]
pub(crate) fn families() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    FAMILIES
        .iter()
        .map(|(name, help, _)| (*name, "histogram", *help))
}

/// All arrays' histograms in Prometheus' text format, of members that are there. The lines of a
/// family stand together, as the format wants it.
pub(crate) fn metrics(text: &mut String, arrays: &[LatenciesJson]) {
    for (family, help, of) in FAMILIES {
        let mut lines = String::new();
        for array in arrays {
            // The second in a slot is to take the place of the first.
            for member in array
                .members
                .chunk_by(|a, b| a.slot == b.slot)
                .map(|of| &of[0])
            {
                if member.device.is_none() {
                    continue;
                }
                let labels = format!("array=\"{}\",slot=\"{}\"", array.name, member.slot);
                histogram(&mut lines, family, &labels, of(member));
            }
        }
        if !lines.is_empty() {
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "# HELP {family} {help}\n# TYPE {family} histogram\n{lines}"
            );
        }
    }
}

fn histogram(text: &mut String, family: &str, labels: &str, all: &DistributionJson) {
    for BucketJson { below_ns, count } in &all.buckets {
        let le = seconds(*below_ns);
        let _ = writeln!(text, "{family}_bucket{{{labels},le=\"{le}\"}} {count}");
    }
    let (count, sum) = (all.count, seconds(all.sum_ns));
    let _ = writeln!(text, "{family}_bucket{{{labels},le=\"+Inf\"}} {count}");
    let _ = writeln!(text, "{family}_sum{{{labels}}} {sum}");
    let _ = writeln!(text, "{family}_count{{{labels}}} {count}");
}

/// Nanoseconds as seconds, to the last digit.
pub(crate) fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact_and_have_no_more_digits_than_they_need() {
        for (ns, text) in [
            (0, "0"),
            (8192, "0.000008192"),
            (1_500_000_000, "1.5"),
            (20_000_000_000, "20"),
            (1 << 34, "17.179869184"),
        ] {
            assert_eq!(seconds(ns), text);
        }
    }

    #[test]
    fn a_histogram_has_all_its_lines_and_ends_with_all_that_were() {
        let buckets = [(8192, 3), (16384, 5)];
        let of = |count| DistributionJson {
            count,
            sum_ns: 2_000_000_000,
            max_ns: 1_900_000_000,
            recent: None,
            buckets: buckets
                .map(|(below_ns, count)| BucketJson { below_ns, count })
                .to_vec(),
        };
        let member = |slot, device: Option<&str>| MemberLatenciesJson {
            slot,
            device: device.map(str::to_owned),
            reads: of(6),
            writes: of(7),
        };
        let array = LatenciesJson {
            name: "a".to_owned(),
            members: vec![member(0, Some("/d")), member(1, None)],
        };
        let mut text = String::new();
        metrics(&mut text, &[array]);
        let lines: Vec<&str> = text.lines().collect();
        let read = "strake_member_read_latency_seconds";
        assert!(lines[0].starts_with(&format!("# HELP {read} ")));
        assert_eq!(lines[1], format!("# TYPE {read} histogram"));
        let labels = "array=\"a\",slot=\"0\"";
        assert_eq!(
            lines[2..7],
            [
                format!("{read}_bucket{{{labels},le=\"0.000008192\"}} 3"),
                format!("{read}_bucket{{{labels},le=\"0.000016384\"}} 5"),
                format!("{read}_bucket{{{labels},le=\"+Inf\"}} 6"),
                format!("{read}_sum{{{labels}}} 2"),
                format!("{read}_count{{{labels}}} 6"),
            ]
        );
        assert_eq!(lines.len(), 14, "nothing of a member that is not there");
    }
}

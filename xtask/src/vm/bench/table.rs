//! The results as text for people and as one line of JSON.
//!
//! Deliberately absent: figures of its own; everything here comes from `results`.

use super::results::{Results, Row, Sample, median, words};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// What the figures belong to.
pub(super) struct About<'a> {
    pub(super) kernel: &'a str,
    pub(super) cpus: u32,
    pub(super) member_mib: u64,
    /// What each drive was held to; `None`: to nothing.
    pub(super) drive_iops: Option<u64>,
    pub(super) drive_mbps: Option<u64>,
    pub(super) rounds: usize,
}

impl About<'_> {
    /// What the drives were held to, in words.
    fn held_to(&self) -> String {
        let part = |limit: Option<u64>, unit| limit.map(|limit| format!(" of {limit} {unit}"));
        let parts = [
            part(self.drive_iops, "IOPS"),
            part(self.drive_mbps, "MB/s each"),
        ];
        parts.into_iter().flatten().collect()
    }
}

/// In the order of the table; the rest of a row's subjects do not exist.
const SUBJECTS: [&str; 7] = [
    "raw",
    "ublk-alone",
    "md",
    "md+bitmap",
    "md+ppl",
    "strake+resync",
    "strake",
];

fn mid(rounds: &BTreeMap<u64, Sample>, of: impl Fn(&Sample) -> f64) -> f64 {
    median(rounds.values().map(of)).unwrap_or(f64::NAN)
}

/// A share as people read it, or nothing.
fn percent(share: Option<f64>) -> String {
    share.map_or(String::new(), |share| format!("{:.1} %", share * 100.0))
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or(String::new(), |ratio| format!("{ratio:.2} ×"))
}

/// A subject's rate as a share of the ceiling, within rounds.
fn share(results: &Results, row: &Row, subject: &str) -> Option<f64> {
    let ceilings = results.ceilings(row);
    let of = &results.rows[row][subject];
    median(ceilings.iter().map(|(round, c)| of[round].iops / c))
}

/// Everything, for people.
pub(super) fn text(about: &About<'_>, results: &Results) -> String {
    let mut out = format!(
        "\n{} emulated CPUs, Linux {}; members of {} MiB in memory{}; medians of {} rounds\n\
         read, wrote: by the drives, for each byte that was asked for\n\n\
         {:<7} {:<9} {:<22} {:<14} {:>10} {:>9} {:>10} {:>10} {:>5} {:>5} {:>8} {:>8} {:>8}\n",
        about.cpus,
        about.kernel,
        about.member_mib,
        about.held_to(),
        about.rounds,
        "level",
        "state",
        "load",
        "subject",
        "IOPS",
        "MB/s",
        "p50 µs",
        "p99 µs",
        "read",
        "wrote",
        "ceiling",
        "of ublk",
        "of md",
    );
    for (row, subjects) in &results.rows {
        for subject in SUBJECTS {
            let Some(rounds) = subjects.get(subject) else {
                continue;
            };
            let ours = subject.starts_with("strake");
            let array = ours || subject.starts_with("md");
            let to = |of| results.ratio(row, subject, of).filter(|_| ours);
            let _ = writeln!(
                out,
                "RAID {:<2} {:<9} {:<22} {:<14} {:>10.0} {:>9.1} {:>10.1} {:>10.1} \
                 {:>5.2} {:>5.2} {:>8} {:>8} {:>8}",
                row.level,
                if row.degraded { "degraded" } else { "optimal" },
                words(&row.load),
                subject,
                mid(rounds, |s| s.iops),
                mid(rounds, |s| s.bytes_per_s) / 1e6,
                mid(rounds, |s| s.p50),
                mid(rounds, |s| s.p99),
                mid(rounds, |s| s.drives_read),
                mid(rounds, |s| s.drives_wrote),
                percent(share(results, row, subject).filter(|_| array)),
                percent(to("ublk-alone")),
                times(to("md")),
            );
        }
    }
    if !results.rebuilds.is_empty() {
        out.push_str("\nrebuild of one member\n");
    }
    for (row, rounds) in &results.rebuilds {
        let rate = median(rounds.values().map(|r| r.bytes_per_s)).unwrap_or(f64::NAN);
        let p99 = median(rounds.values().filter_map(|r| r.p99));
        let p99 = p99.map_or(String::new(), |p99| format!("p99 beside it {p99:.0} µs"));
        let _ = writeln!(
            out,
            "RAID {:<2} {:<22} {:<8} {:>8.1} MB/s  {p99}",
            row.level,
            words(&row.beside),
            row.subject,
            rate / 1e6
        );
    }
    out.push_str("\nStrake as a multiple of md (strake: closed)\n");
    for beside in results.beside_md() {
        let ratio =
            |(name, ratio): &(String, f64)| format!("{ratio:.2} × {name}").trim_end().to_owned();
        let ratios: Vec<String> = beside.ratios.iter().map(ratio).collect();
        let _ = writeln!(out, "{:<42} {}", beside.label, ratios.join(", "));
    }
    let costs = results.closed_beside_resync();
    if !costs.is_empty() {
        out.push_str("\nclosed beside resync, requests per second\n");
    }
    for (label, ratio) in costs {
        let more = (ratio - 1.0) * 100.0;
        let _ = writeln!(out, "{label:<42} {ratio:.3} ({more:+.1} %)");
    }
    out
}

/// The same in one line.
pub(super) fn json(about: &About<'_>, results: &Results) -> Value {
    let mut rows = Vec::new();
    for (row, subjects) in &results.rows {
        for (subject, rounds) in subjects {
            rows.push(json!({
                "level": row.level, "load": row.load, "subject": subject,
                "state": if row.degraded { "degraded" } else { "optimal" },
                "iops": mid(rounds, |s| s.iops),
                "bytes_per_s": mid(rounds, |s| s.bytes_per_s),
                "p50_us": mid(rounds, |s| s.p50),
                "p99_us": mid(rounds, |s| s.p99),
                "drives_read_per_byte": mid(rounds, |s| s.drives_read),
                "drives_wrote_per_byte": mid(rounds, |s| s.drives_wrote),
                "ceiling_iops": median(results.ceilings(row).into_values()),
                "of_ceiling": share(results, row, subject),
                "of_md": results.ratio(row, subject, "md"),
                "of_resync": results.ratio(row, subject, "strake+resync"),
                "of_ublk_alone": results.ratio(row, subject, "ublk-alone"),
            }));
        }
    }
    let rebuilds = results.rebuilds.iter().map(|(row, rounds)| {
        json!({
            "level": row.level, "beside": row.beside, "subject": row.subject,
            "bytes_per_s": median(rounds.values().map(|r| r.bytes_per_s)),
            "p99_us": median(rounds.values().filter_map(|r| r.p99)),
        })
    });
    json!({
        "kernel": about.kernel, "cpus": about.cpus, "member_mib": about.member_mib,
        "drive_iops": about.drive_iops, "drive_mbps": about.drive_mbps,
        "rounds": about.rounds, "rows": rows, "rebuilds": rebuilds.collect::<Vec<_>>(),
    })
}

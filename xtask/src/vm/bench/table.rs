//! The results as text for people and as one line of JSON.
//!
//! Deliberately absent: figures of its own; everything here comes from `results`.

use super::results::{Beside, Rebuild, RebuildRow, Results, Row, Sample, median, words};
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

/// The lines of the first table.
fn loads(out: &mut String, results: &Results) {
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
                "RAID {:<2} {:<9} {:<22} {:<14} {:>10.0} {:>9.1} {:>10.1} {:>10.1} {:>10.1} \
                 {:>5.2} {:>5.2} {:>8} {:>8} {:>8}",
                row.level,
                if row.degraded { "degraded" } else { "optimal" },
                words(&row.load),
                subject,
                mid(rounds, |s| s.iops),
                mid(rounds, |s| s.bytes_per_s) / 1e6,
                mid(rounds, |s| s.p50),
                mid(rounds, |s| s.p99),
                mid(rounds, |s| s.p999),
                mid(rounds, |s| s.drives_read),
                mid(rounds, |s| s.drives_wrote),
                percent(share(results, row, subject).filter(|_| array)),
                percent(to("ublk-alone")),
                times(to("md")),
            );
        }
    }
}

/// Everything, for people.
pub(super) fn text(about: &About<'_>, results: &Results) -> String {
    let mut out = format!(
        "\n{} emulated CPUs, Linux {}; members of {} MiB in memory{}; medians of {} rounds\n\
         read, wrote: by the drives, for each byte that was asked for\n\n\
         {:<7} {:<9} {:<22} {:<14} {:>10} {:>9} {:>10} {:>10} {:>10} {:>5} {:>5} \
         {:>8} {:>8} {:>8}\n",
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
        "p99.9 µs",
        "read",
        "wrote",
        "ceiling",
        "of ublk",
        "of md",
    );
    loads(&mut out, results);
    if !results.rebuilds.is_empty() {
        out.push_str("\nrebuild of one member\n");
    }
    for (row, rounds) in &results.rebuilds {
        out.push_str(&rebuild(row, &Rebuilds::of(rounds)));
    }
    if !results.idle.is_empty() {
        out.push_str("\nidle: CPU time of the daemon of one open array, of one CPU\n");
    }
    for idle in &results.idle {
        let (share, seconds) = (idle.share * 100.0, idle.seconds);
        let _ = writeln!(out, "RAID {:<2} {share:.3} % in {seconds:.0} s", idle.level);
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

/// Medians over the rounds of one row of rebuilds.
struct Rebuilds {
    bytes_per_s: f64,
    ceiling: f64,
    of_ceiling: f64,
    /// Of the load beside it and of the same load alone: p99 and p99.9, microseconds.
    with: Option<(f64, f64)>,
    alone: Option<(f64, f64)>,
}

impl Rebuilds {
    fn of(rounds: &BTreeMap<u64, Rebuild>) -> Rebuilds {
        let mid = |of: fn(&Rebuild) -> f64| median(rounds.values().map(of)).unwrap_or(f64::NAN);
        let load = |of: fn(&Beside) -> Sample| {
            let all = || rounds.values().filter_map(|r| Some(of(r.beside.as_ref()?)));
            Some((
                median(all().map(|s| s.p99))?,
                median(all().map(|s| s.p999))?,
            ))
        };
        Rebuilds {
            bytes_per_s: mid(|r| r.bytes_per_s),
            ceiling: mid(|r| r.ceiling),
            of_ceiling: mid(|r| r.bytes_per_s / r.ceiling),
            with: load(|beside| beside.with),
            alone: load(|beside| beside.alone),
        }
    }
}

/// A line of the list of rebuilds.
fn rebuild(row: &RebuildRow, mids: &Rebuilds) -> String {
    let load = match (mids.with, mids.alone) {
        (Some((p99, p999)), Some((alone99, alone999))) => format!(
            "  beside it p99 {p99:.0} µs, p99.9 {p999:.0} µs; \
             without it {alone99:.0} µs, {alone999:.0} µs"
        ),
        _ => String::new(),
    };
    format!(
        "RAID {:<2} {:<22} {:<8} {:>8.1} MB/s  one raw drive {:>8.1} MB/s: {:>5.1} %{load}\n",
        row.level,
        words(&row.beside),
        row.subject,
        mids.bytes_per_s / 1e6,
        mids.ceiling / 1e6,
        mids.of_ceiling * 100.0
    )
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
                "p999_us": mid(rounds, |s| s.p999),
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
        let mids = Rebuilds::of(rounds);
        json!({
            "level": row.level, "beside": row.beside, "subject": row.subject,
            "bytes_per_s": mids.bytes_per_s, "one_drive_bytes_per_s": mids.ceiling,
            "of_one_drive": mids.of_ceiling,
            "p99_us": mids.with.map(|of| of.0), "p999_us": mids.with.map(|of| of.1),
            "alone_p99_us": mids.alone.map(|of| of.0), "alone_p999_us": mids.alone.map(|of| of.1),
        })
    });
    let idle = results.idle.iter().map(
        |idle| json!({ "level": idle.level, "seconds": idle.seconds, "of_one_cpu": idle.share }),
    );
    json!({
        "kernel": about.kernel, "cpus": about.cpus, "member_mib": about.member_mib,
        "drive_iops": about.drive_iops, "drive_mbps": about.drive_mbps,
        "rounds": about.rounds, "rows": rows, "rebuilds": rebuilds.collect::<Vec<_>>(),
        "idle": idle.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// fio's report of 100 requests of 1 MB each second, with such a p99 in nanoseconds.
    fn report(side: &str, p99: u64) -> String {
        let p999 = 2 * p99;
        let figures = json!({
            "iops": 100.0, "bw_bytes": 1e8, "io_bytes": 1e8,
            "clat_ns": {"percentile": {
                "50.000000": 1000, "99.000000": p99, "99.900000": p999,
            }},
        });
        let job = json!({"error": 0, side: figures});
        format!("note: a warning\n{:#}", json!({"jobs": [job]}))
    }

    /// What the guest leaves: one read, a rebuild alone and one beside a load, and idleness.
    fn left(share: &std::path::Path) {
        let write = |name: &str, text: &str| fs::write(share.join(name), text).expect("a file");
        fs::create_dir_all(share.join("fio")).expect("a folder");
        let load = "random-read-4K";
        write(
            "rows",
            &format!("5 optimal {load} raw 1 1 0 0\n5 optimal {load} strake 1 2 0 0\n"),
        );
        write("drives", "5 1 3\n");
        write(
            "rebuilds",
            &format!(
                "5 strake idle 1 100000000 2000000000 0 0\n\
                 5 strake {load} 1 100000000 4000000000 5 4\n"
            ),
        );
        write("idle", "5 60000000000 3\n");
        let read = |number: u64| {
            let text = report("read", number * 1_000_000);
            write(&format!("fio/{number}.json"), &text);
        };
        [1, 2, 4, 5].into_iter().for_each(read);
        write("fio/3.json", &report("write", 1));
    }

    #[test]
    fn all_that_the_guest_has_left_is_shown() {
        let share = std::env::temp_dir().join(format!("strake-table-{}", std::process::id()));
        left(&share);
        let results = Results::read(&share).expect("everything is there");
        fs::remove_dir_all(&share).expect("our folder");
        let about = About {
            kernel: "6.12",
            cpus: 2,
            member_mib: 384,
            drive_iops: None,
            drive_mbps: None,
            rounds: results.rounds(),
        };
        let text = text(&about, &results);
        for part in [
            "p99.9 µs",
            "1.0     2000.0     4000.0  0.00  0.00  100.0 %",
            "50.0 MB/s  one raw drive    100.0 MB/s:  50.0 %\n",
            "25.0 %  beside it p99 5000 µs, p99.9 10000 µs; without it 4000 µs, 8000 µs\n",
            "\nidle: CPU time of the daemon of one open array, of one CPU\n",
            "\nRAID 5  0.050 % in 60 s\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        let json = json(&about, &results);
        assert_eq!(json["rows"][0]["p999_us"], 2000.0);
        assert_eq!(json["rebuilds"][1]["of_one_drive"], 0.25);
        assert_eq!(json["rebuilds"][1]["alone_p999_us"], 8000.0);
        assert!(json["rebuilds"][0]["alone_p99_us"].is_null());
        assert_eq!(json["idle"][0]["of_one_cpu"], 0.0005);
    }
}

//! The results as text for people and as one line of JSON.
//!
//! Deliberately absent: figures of its own; everything here comes from `results`.

use super::report::{Latencies, P9999_NEEDS, Sample};
use super::results::{BesideMd, Rebuild, RebuildRow, Results, Row, median, words};
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

/// Of all rounds together: a round by itself has too few requests.
fn latencies(rounds: &BTreeMap<u64, Sample>) -> Latencies {
    Latencies::all(rounds.values().map(|sample| &sample.latencies))
}

/// Of those that were watched.
fn mid_cpu(rounds: &BTreeMap<u64, Sample>) -> (Option<f64>, Option<f64>) {
    (
        median(rounds.values().filter_map(|s| Some(s.cpu?.busy))),
        median(rounds.values().filter_map(Sample::requests_per_core)),
    )
}

/// Without a digit behind the point; a figure that is not there is a dash.
fn whole(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.0}"))
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
            let (busy, per_core) = mid_cpu(rounds);
            let _ = writeln!(
                out,
                "RAID {:<2} {:<9} {:<22} {:<14} {:>10.0} {:>9.1} {:>10.1} {:>10.1} {:>10.1} \
                 {:>10} {:>5.2} {:>9} {:>5.2} {:>5.2} {:>8} {:>8} {:>8}",
                row.level,
                if row.degraded { "degraded" } else { "optimal" },
                words(&row.load),
                subject,
                mid(rounds, |s| s.iops),
                mid(rounds, |s| s.bytes_per_s) / 1e6,
                mid(rounds, |s| s.p50),
                mid(rounds, |s| s.p99),
                mid(rounds, |s| s.p999),
                whole(latencies(rounds).p9999()),
                busy.unwrap_or(f64::NAN),
                whole(per_core),
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
         p99.99: of all rounds together; -: of fewer than {P9999_NEEDS} requests, too few for one\n\
         CPUs: busy in the whole guest, fio's part among them; IOPS/core: requests for each second \
         of that CPU time\n\
         read, wrote: by the drives, for each byte that was asked for\n\n\
         {:<7} {:<9} {:<22} {:<14} {:>10} {:>9} {:>10} {:>10} {:>10} {:>10} {:>5} {:>9} {:>5} \
         {:>5} {:>8} {:>8} {:>8}\n",
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
        "p99.99 µs",
        "CPUs",
        "IOPS/core",
        "read",
        "wrote",
        "ceiling",
        "of ublk",
        "of md",
    );
    loads(&mut out, results);
    rebuilds(&mut out, results);
    if !results.idle.is_empty() {
        out.push_str("\nidle: CPU time of one open array of each side, of one CPU\n");
    }
    for idle in &results.idle {
        let share = |of: f64| format!("{:.3} %", of * 100.0);
        let _ = writeln!(
            out,
            "RAID {:<2} Strake's daemon {}, md's threads {}, the whole guest {} in {:.0} s",
            idle.level,
            share(idle.daemon),
            share(idle.md),
            share(idle.guest),
            idle.seconds
        );
    }
    out.push_str("\nStrake as a multiple of md (strake: closed)\n");
    multiples(&mut out, &results.beside_md());
    out.push_str("\nthe same, requests for each second of CPU time\n");
    multiples(&mut out, &results.per_core_beside_md());
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

fn multiples(out: &mut String, beside_md: &[BesideMd]) {
    for beside in beside_md {
        let ratio =
            |(name, ratio): &(String, f64)| format!("{ratio:.2} × {name}").trim_end().to_owned();
        let ratios: Vec<String> = beside.ratios.iter().map(ratio).collect();
        let _ = writeln!(out, "{:<42} {}", beside.label, ratios.join(", "));
    }
}

/// Latencies of a load: p99 and p99.9 are medians over the rounds, microseconds.
struct Tail {
    p99: f64,
    p999: f64,
    /// Of all rounds together.
    p9999: Option<f64>,
    requests: u64,
}

impl Tail {
    /// `None`: there is no load.
    fn of<'a>(samples: impl Iterator<Item = &'a Sample> + Clone) -> Option<Tail> {
        let all = Latencies::all(samples.clone().map(|sample| &sample.latencies));
        Some(Tail {
            p99: median(samples.clone().map(|sample| sample.p99))?,
            p999: median(samples.map(|sample| sample.p999))?,
            p9999: all.p9999(),
            requests: all.requests(),
        })
    }

    fn shown(tail: Option<&Tail>) -> String {
        let columns = |[a, b, c]: [String; 3]| format!(" {a:>9} {b:>9} {c:>9}");
        columns(tail.map_or_else(Default::default, |tail| {
            [
                whole(Some(tail.p99)),
                whole(Some(tail.p999)),
                whole(tail.p9999),
            ]
        }))
    }
}

/// Medians over the rounds of one row of rebuilds.
struct Rebuilds {
    bytes_per_s: f64,
    ceiling: f64,
    of_ceiling: f64,
    busy: f64,
    /// Of the load beside it.
    iops: Option<f64>,
    per_core: Option<f64>,
    with: Option<Tail>,
    /// Of the same load right before.
    alone: Option<Tail>,
}

impl Rebuilds {
    fn of(rounds: &BTreeMap<u64, Rebuild>) -> Rebuilds {
        let mid = |of: fn(&Rebuild) -> f64| median(rounds.values().map(of)).unwrap_or(f64::NAN);
        let loads = rounds
            .values()
            .filter_map(|rebuild| rebuild.beside.as_ref());
        Rebuilds {
            bytes_per_s: mid(|r| r.bytes_per_s),
            ceiling: mid(|r| r.ceiling),
            of_ceiling: mid(|r| r.bytes_per_s / r.ceiling),
            busy: mid(|r| r.cpu.busy),
            iops: median(loads.clone().map(|beside| beside.with.iops)),
            per_core: median(rounds.values().filter_map(|r| r.cpu.requests_per_core)),
            with: Tail::of(loads.clone().map(|beside| &beside.with)),
            alone: Tail::of(loads.map(|beside| &beside.alone)),
        }
    }
}

/// The list of rebuilds, if there were any.
fn rebuilds(out: &mut String, results: &Results) {
    if results.rebuilds.is_empty() {
        return;
    }
    let head = |of: &str| format!(" {:>9} {:>9} {:>9}", format!("{of}p99"), "p99.9", "p99.99");
    let _ = writeln!(
        out,
        "\nrebuild of one member; of the load beside it: IOPS, IOPS/core (CPU time of the rebuild \
         among it) and latencies (µs) while it lasts, and latencies right before it (alone)\n\
         {:<7} {:<22} {:<8} {:>8} {:>9} {:>8} {:>5} {:>8} {:>9}{}{}",
        "level",
        "load",
        "subject",
        "MB/s",
        "one drive",
        "of it",
        "CPUs",
        "IOPS",
        "IOPS/core",
        head(""),
        head("alone "),
    );
    for (row, rounds) in &results.rebuilds {
        out.push_str(&rebuild(row, &Rebuilds::of(rounds)));
    }
}

/// A line of it.
fn rebuild(row: &RebuildRow, mids: &Rebuilds) -> String {
    let of_load = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.0}"));
    let line = format!(
        "RAID {:<2} {:<22} {:<8} {:>8.1} {:>9.1} {:>8} {:>5.2} {:>8} {:>9}{}{}",
        row.level,
        words(&row.beside),
        row.subject,
        mids.bytes_per_s / 1e6,
        mids.ceiling / 1e6,
        percent(Some(mids.of_ceiling)),
        mids.busy,
        of_load(mids.iops),
        of_load(mids.per_core),
        Tail::shown(mids.with.as_ref()),
        Tail::shown(mids.alone.as_ref()),
    );
    line.trim_end().to_owned() + "\n"
}

/// The same in one line.
pub(super) fn json(about: &About<'_>, results: &Results) -> Value {
    let mut rows = Vec::new();
    for (row, subjects) in &results.rows {
        for (subject, rounds) in subjects {
            let (busy, per_core) = mid_cpu(rounds);
            let latencies = latencies(rounds);
            rows.push(json!({
                "level": row.level, "load": row.load, "subject": subject,
                "state": if row.degraded { "degraded" } else { "optimal" },
                "iops": mid(rounds, |s| s.iops),
                "bytes_per_s": mid(rounds, |s| s.bytes_per_s),
                "p50_us": mid(rounds, |s| s.p50),
                "p99_us": mid(rounds, |s| s.p99),
                "p999_us": mid(rounds, |s| s.p999),
                "p9999_us": latencies.p9999(),
                "requests": latencies.requests(),
                "cpus_busy": busy,
                "iops_per_core": per_core,
                "of_md_per_core": results.ratio_per_core(row, subject, "md"),
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
        let (with, alone) = (mids.with.as_ref(), mids.alone.as_ref());
        json!({
            "level": row.level, "beside": row.beside, "subject": row.subject,
            "bytes_per_s": mids.bytes_per_s, "one_drive_bytes_per_s": mids.ceiling,
            "of_one_drive": mids.of_ceiling,
            "cpus_busy": mids.busy, "iops": mids.iops, "iops_per_core": mids.per_core,
            "p99_us": with.map(|of| of.p99), "p999_us": with.map(|of| of.p999),
            "p9999_us": with.and_then(|of| of.p9999), "requests": with.map(|of| of.requests),
            "alone_p99_us": alone.map(|of| of.p99), "alone_p999_us": alone.map(|of| of.p999),
            "alone_p9999_us": alone.and_then(|of| of.p9999),
            "alone_requests": alone.map(|of| of.requests),
        })
    });
    let idle = results.idle.iter().map(|idle| {
        json!({
            "level": idle.level, "seconds": idle.seconds, "of_one_cpu": idle.daemon,
            "md_of_one_cpu": idle.md, "guest_of_one_cpu": idle.guest,
        })
    });
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
            }, "bins": {"1000": 60_000, p999.to_string(): 20}},
        });
        let job = json!({"error": 0, side: figures});
        format!("note: a warning\n{:#}", json!({"jobs": [job]}))
    }

    /// What the guest leaves: one read, a rebuild alone and one beside a load, and idleness.
    fn left(share: &std::path::Path) {
        let write = |name: &str, text: &str| fs::write(share.join(name), text).expect("a file");
        fs::create_dir_all(share.join("fio")).expect("a folder");
        let load = "random-read-4K";
        // Two CPUs for two seconds, one of them idle, and 400 requests of 1 MB.
        let window = "2000000000 200 781250";
        write(
            "rows",
            &format!(
                "5 optimal {load} raw 1 1 0 0 {window}\n\
                 5 optimal {load} strake 1 2 0 0 {window}\n\
                 5 optimal {load} raw 2 6 0 0 {window}\n\
                 5 optimal {load} strake 2 7 0 0 {window}\n"
            ),
        );
        write("drives", "5 1 3\n");
        write(
            "rebuilds",
            &format!(
                "5 strake idle 1 100000000 2000000000 0 0 0 0\n\
                 5 strake {load} 1 100000000 4000000000 5 4 400 781250\n"
            ),
        );
        write("idle", "5 60000000000 3 6000000 11700\n");
        let read = |number: u64| {
            let text = report("read", number * 1_000_000);
            write(&format!("fio/{number}.json"), &text);
        };
        [1, 2, 4, 5, 6, 7].into_iter().for_each(read);
        write("fio/3.json", &report("write", 1));
    }

    #[test]
    fn all_that_the_guest_has_left_is_shown() {
        let share = std::env::temp_dir().join(format!("strake-table-{}", std::process::id()));
        left(&share);
        let results = Results::read(&share, 2).expect("everything is there");
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
            "p99.99 µs  CPUs IOPS/core",
            "7000.0      12000  1.00       200  0.00  0.00 ",
            "9000.0      14000  1.00       200  0.00  0.00  100.0 %",
            "-: of fewer than 100000 requests",
            "       50.0     100.0   50.0 %  2.00\n",
            "25.0     100.0   25.0 %  1.00      100       100      5000     10000         - ",
            "      4000      8000         -\n",
            "\nidle: CPU time of one open array of each side, of one CPU\n",
            "RAID 5  Strake's daemon 0.050 %, md's threads 0.010 %, the whole guest 5.000 % in ",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        let json = json(&about, &results);
        let row = &json["rows"][0];
        assert_eq!(
            (&row["p999_us"], &row["p9999_us"]),
            (&json!(7000.0), &json!(12000.0))
        );
        assert_eq!(row["requests"], 120_040);
        assert_eq!(
            (&row["cpus_busy"], &row["iops_per_core"]),
            (&json!(1.0), &json!(200.0))
        );
        let rebuild = &json["rebuilds"][1];
        assert_eq!(
            (&rebuild["cpus_busy"], &rebuild["iops_per_core"]),
            (&json!(1.0), &json!(100.0))
        );
        assert_eq!(
            (&rebuild["p9999_us"], &rebuild["requests"]),
            (&Value::Null, &json!(60_020))
        );
        assert_eq!(json["rebuilds"][1]["of_one_drive"], 0.25);
        assert_eq!(json["rebuilds"][1]["alone_p999_us"], 8000.0);
        assert!(json["rebuilds"][0]["alone_p99_us"].is_null());
        assert_eq!(json["idle"][0]["of_one_cpu"], 0.0005);
        assert_eq!(json["idle"][0]["md_of_one_cpu"], 0.0001);
    }
}

//! `strake iostat`: rates of arrays and of their members, as iostat of sysstat prints them.
//!
//! Order: what the daemon has counted → the difference from the sample before → rates → a report.
//!
//! Invariants: a rate is a difference of counts by the time between them, on the daemon's clock,
//! however late a sample is taken. What begins between two samples counts from zero. Deliberately
//! absent: a screen (`top`).

use std::io::IsTerminal;
use std::time::{Duration, Instant, SystemTime};

use ratatui::crossterm::terminal;

use crate::api::{ArrayJson, IostatArrayJson, IostatJson, IostatMemberJson, RatesJson};
use crate::cli::args::IostatArgs;
use crate::cli::client::Client;
use crate::cli::{Context, DONE, Ended, print, url};
use crate::common::errors::{Code, Failure};
use crate::common::shown;
use crate::common::size;
use crate::common::time::rfc3339;
use crate::view::stats::{IoStatsJson, StatsJson};

/// How long the daemon may take for a sample.
const PATIENCE: Duration = Duration::from_secs(30);
const MEGABYTE: f64 = 1e6;

pub(crate) fn run(context: &Context, args: &IostatArgs) -> Ended {
    let client = Client::need(&context.dir)?;
    let only = match &args.array {
        None => None,
        Some(name) => Some(uuid_of(&client, name)?),
    };
    let sample = || -> Result<Vec<StatsJson>, Failure> {
        let mut all: Vec<StatsJson> = client.get_within("/v1/stats", PATIENCE)?;
        all.retain(|one| only.as_ref().is_none_or(|uuid| *uuid == one.uuid));
        Ok(all)
    };
    let mut before = Vec::new();
    let mut reports = 0;
    let mut next = Instant::now();
    let count = match args.interval {
        Some(_) => args.count.unwrap_or(u64::MAX),
        None => 1,
    };
    let mut first = true;
    loop {
        let now = sample()?;
        if !(first && args.omit_first) {
            let report = report(&before, &now, first, args.verbose);
            let silent = match now.is_empty() {
                true => without_answer(&client, only.as_deref())?,
                false => Vec::new(),
            };
            if context.json && !silent.is_empty() {
                context.aside(&no_answer(&silent));
            }
            let written = match context.json {
                true => {
                    let line = serde_json::to_string(&report).expect("the shapes are all JSON");
                    print(format!("{line}\n").as_bytes())
                }
                false => print(text(&report, &silent, reports == 0, columns()).as_bytes()),
            };
            reports += 1;
            if !written || reports >= count {
                return Ok(DONE);
            }
        }
        (before, first) = (now, false);
        next += args.interval.unwrap_or_default();
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// The array that is meant, which must be in service.
fn uuid_of(client: &Client, name: &str) -> Result<String, Failure> {
    let array: ArrayJson = client.get_within(&url(name, "")?, PATIENCE)?;
    match array.state.as_str() {
        "stopped" => {
            let cure = format!("strake start {name}");
            Err(Failure::new(Code::NotServing, format!("{name} is stopped")).cure(cure))
        }
        "unknown" => {
            let found = format!("{name} is not served here: another process holds its members");
            Err(Failure::new(Code::NotServing, found))
        }
        _ => Ok(array.uuid),
    }
}

/// Arrays in service, of which none has told what it counted, each with its state.
fn without_answer(client: &Client, only: Option<&str>) -> Result<Vec<String>, Failure> {
    let mut all: Vec<ArrayJson> = client.get_within("/v1/arrays", PATIENCE)?;
    all.retain(|one| only.is_none_or(|uuid| *uuid == one.uuid));
    all.retain(|one| !["stopped", "unknown"].contains(&one.state.as_str()));
    let one = |array: &ArrayJson| format!("{} ({})", array.name, array.state);
    Ok(all.iter().map(one).collect())
}

/// What is said of them.
fn no_answer(silent: &[String]) -> String {
    let arrays = size::verb(
        silent.len(),
        "an array in service has",
        "arrays in service have",
    );
    format!("{arrays} not answered: {}", silent.join(", "))
}

/// The rates between two samples; from the start of each array on where it has none before.
pub(crate) fn report(
    before: &[StatsJson],
    now: &[StatsJson],
    since_start: bool,
    members: bool,
) -> IostatJson {
    let same = |one: &StatsJson| {
        let mut all = before.iter();
        // One that was stopped and started meanwhile begins anew.
        all.find(|old| old.uuid == one.uuid && old.served_ns <= one.served_ns)
    };
    IostatJson {
        time: rfc3339(SystemTime::now()),
        since_start,
        arrays: now
            .iter()
            .map(|one| rates(same(one), one, members))
            .collect(),
    }
}

fn rates(before: Option<&StatsJson>, now: &StatsJson, members: bool) -> IostatArrayJson {
    let zero = StatsJson::default();
    let old = before.unwrap_or(&zero);
    let seconds = Duration::from_nanos(now.served_ns - old.served_ns).as_secs_f64();
    let per_s = |now: u64, old: u64| per(now.saturating_sub(old) as f64, seconds);
    let member = |one: &crate::view::stats::MemberStatsJson| {
        let same = old.members.iter().find(|old| {
            let not_less =
                old.reads.count <= one.reads.count && old.writes.count <= one.writes.count;
            old.slot == one.slot && old.device == one.device && not_less
        });
        let none = IoStatsJson::default();
        let (reads, writes) = same.map_or((&none, &none), |old| (&old.reads, &old.writes));
        let hedged = same.map_or(0, |old| old.hedged_reads);
        IostatMemberJson {
            slot: one.slot,
            device: one.device.clone(),
            state: one.state.clone(),
            hedged_reads_per_s: per_s(one.hedged_reads, hedged),
            rates: of((reads, &one.reads), (writes, &one.writes), seconds),
        }
    };
    let all: Vec<IostatMemberJson> = now.members.iter().map(member).collect();
    IostatArrayJson {
        name: now.name.clone(),
        uuid: now.uuid.clone(),
        state: now.state.clone(),
        interval_s: seconds,
        rates: of(
            (&old.reads, &now.reads),
            (&old.writes, &now.writes),
            seconds,
        ),
        request_errors_per_s: per_s(now.request_errors, old.request_errors),
        hedged_reads_per_s: all.iter().map(|m| m.hedged_reads_per_s).sum(),
        log_writes_per_s: per_s(now.log_writes, old.log_writes),
        log_written_bytes_per_s: per_s(now.log_written_bytes, old.log_written_bytes),
        members: members.then_some(all),
    }
}

fn per(amount: f64, seconds: f64) -> f64 {
    match seconds > 0.0 {
        true => amount / seconds,
        false => 0.0,
    }
}

/// Two samples of reads, and two of writes.
fn of(
    reads: (&IoStatsJson, &IoStatsJson),
    writes: (&IoStatsJson, &IoStatsJson),
    seconds: f64,
) -> RatesJson {
    let per_s = |(old, now): (u64, u64)| per(now.saturating_sub(old) as f64, seconds);
    let count = |(old, now): (&IoStatsJson, &IoStatsJson)| per_s((old.count, now.count));
    let bytes = |(old, now): (&IoStatsJson, &IoStatsJson)| per_s((old.bytes, now.bytes));
    let (read, write) = (took(reads), took(writes));
    // Little's law: so many were under way on average.
    let queue = |per_s: f64, mean: Option<f64>| per_s * mean.unwrap_or(0.0) / 1e6;
    RatesJson {
        reads_per_s: count(reads),
        writes_per_s: count(writes),
        read_bytes_per_s: bytes(reads),
        written_bytes_per_s: bytes(writes),
        read_mean_us: read.map(|(mean, _)| mean),
        read_p99_us: read.map(|(_, p99)| p99),
        write_mean_us: write.map(|(mean, _)| mean),
        write_p99_us: write.map(|(_, p99)| p99),
        queue: queue(count(reads), read.map(|(mean, _)| mean))
            + queue(count(writes), write.map(|(mean, _)| mean)),
    }
}

/// Mean and p99 of those that were counted between two samples, microseconds; `None` where there
/// were none. Within a bucket of the histogram latencies are taken to be spread evenly.
fn took((old, now): (&IoStatsJson, &IoStatsJson)) -> Option<(f64, f64)> {
    let (old, now) = (&old.latency, &now.latency);
    let count = now.count.checked_sub(old.count).filter(|&n| n > 0)?;
    let mean = now.sum_ns.saturating_sub(old.sum_ns) as f64 / count as f64;
    let wanted = 0.99 * count as f64;
    let (mut low_ns, mut below) = (0.0, 0.0);
    for (at, bucket) in now.buckets.iter().enumerate() {
        let was = old.buckets.get(at).map_or(0, |old| old.count);
        let (high_ns, up_to) = (
            bucket.below_ns as f64,
            bucket.count.saturating_sub(was) as f64,
        );
        if up_to >= wanted {
            let share = (wanted - below) / (up_to - below);
            let p99 = low_ns + share * (high_ns - low_ns);
            return Some((mean / 1e3, p99.min(now.max_ns as f64) / 1e3));
        }
        (low_ns, below) = (high_ns, up_to);
    }
    Some((mean / 1e3, now.max_ns as f64 / 1e3))
}

const COLUMNS: [&str; 12] = [
    "r/s", "w/s", "rMB/s", "wMB/s", "r_us", "r99_us", "w_us", "w99_us", "queue", "hedged/s",
    "log/s", "logMB/s",
];

fn cells(rates: &RatesJson, hedged: f64, log: Option<(f64, f64)>) -> [String; 12] {
    let one = |value: f64| match value >= 100.0 {
        true => format!("{value:.0}"),
        false => format!("{value:.1}"),
    };
    let us = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}"));
    let mb = |bytes: f64| one(bytes / MEGABYTE);
    let log = log.map(|(writes, bytes)| (one(writes), mb(bytes)));
    let (log_writes, log_bytes) = log.unwrap_or_else(|| ("-".to_owned(), "-".to_owned()));
    [
        one(rates.reads_per_s),
        one(rates.writes_per_s),
        mb(rates.read_bytes_per_s),
        mb(rates.written_bytes_per_s),
        us(rates.read_mean_us),
        us(rates.read_p99_us),
        us(rates.write_mean_us),
        us(rates.write_p99_us),
        one(rates.queue),
        one(hedged),
        log_writes,
        log_bytes,
    ]
}

/// Columns that a number has at least.
const CELL: usize = 6;
/// Columns that a name has at least.
const NAME: usize = 12;

/// How wide the terminal is, if standard output is one.
fn columns() -> Option<usize> {
    let size = std::io::stdout().is_terminal().then(terminal::size);
    Some(usize::from(size?.ok()?.0))
}

/// The end of a name, which says more of a device than its beginning.
fn shortened(name: &str, width: usize) -> String {
    let count = name.chars().count();
    if count <= width {
        return name.to_owned();
    }
    let end: String = name.chars().skip(count - (width - 1)).collect();
    format!("…{end}")
}

/// A report: a head, a line for each array, and one for each member below it. On a terminal with
/// so many columns, long names are shortened.
/// `silent`: arrays in service where none has answered.
fn text(report: &IostatJson, silent: &[String], is_first: bool, columns: Option<usize>) -> String {
    let mut rows = Vec::new();
    for array in &report.arrays {
        let log = (array.log_writes_per_s, array.log_written_bytes_per_s);
        let cells = cells(&array.rates, array.hedged_reads_per_s, Some(log));
        rows.push((String::new(), shown(&array.name, ' '), cells));
        for member in array.members.iter().flatten() {
            let device = member.device.as_deref().unwrap_or(&member.state);
            let cells = self::cells(&member.rates, member.hedged_reads_per_s, None);
            rows.push((format!("  {} ", member.slot), shown(device, ' '), cells));
        }
    }
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|at| {
            let cells = rows.iter().map(|(_, _, cells)| cells[at].len());
            cells.max().unwrap_or(0).max(COLUMNS[at].len()).max(CELL)
        })
        .collect();
    let full = |(slot, name, _): &(String, String, _)| slot.len() + name.chars().count();
    let width = rows.iter().map(full).max();
    let numbers: usize = widths.iter().map(|width| width + 1).sum();
    let room = columns.map_or(usize::MAX, |columns| columns.saturating_sub(numbers));
    let width = width.unwrap_or(0).min(room).max(NAME);
    let mut text = if is_first {
        String::new()
    } else {
        "\n".to_owned()
    };
    let mut line = |slot: &str, name: &str, cells: &[String]| {
        let name = shortened(name, width - slot.len());
        text.push_str(&format!("{:width$}", format!("{slot}{name}")));
        for (cell, width) in cells.iter().zip(&widths) {
            text.push_str(&format!(" {cell:>width$}"));
        }
        text.push('\n');
    };
    line("", "ARRAY", &COLUMNS.map(str::to_owned));
    rows.iter()
        .for_each(|(slot, name, cells)| line(slot, name, cells));
    match (report.arrays.is_empty(), silent) {
        (false, _) => {}
        (true, []) => text.push_str("no array is in service\n"),
        (true, silent) => text.push_str(&(shown(&no_answer(silent), ' ') + "\n")),
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::view::latency::{BucketJson, DistributionJson};
    use crate::view::stats::MemberStatsJson;

    use super::*;

    fn counted(count: u64, bytes: u64, sum_ns: u64, buckets: &[(u64, u64)]) -> IoStatsJson {
        let bucket = |&(below_ns, count)| BucketJson { below_ns, count };
        IoStatsJson {
            count,
            bytes,
            latency: DistributionJson {
                count,
                sum_ns,
                max_ns: 900_000,
                recent: None,
                buckets: buckets.iter().map(bucket).collect(),
            },
        }
    }

    fn stats(served_s: u64, reads: IoStatsJson) -> StatsJson {
        let member = MemberStatsJson {
            slot: 3,
            reads: reads.clone(),
            ..MemberStatsJson::default()
        };
        StatsJson {
            name: "data".to_owned(),
            uuid: "u".to_owned(),
            served_ns: served_s * 1_000_000_000,
            reads,
            log_written_bytes: served_s * 10,
            members: vec![member],
            ..StatsJson::default()
        }
    }

    #[test]
    fn rates_are_differences_by_the_time_between_two_samples() {
        let old = [stats(
            100,
            counted(1000, 1 << 20, 1_000_000_000, &[(8192, 500), (16384, 1000)]),
        )];
        // 200 more in two seconds: 100 below 8.192 µs, 100 below 16.384.
        let now = [stats(
            102,
            counted(1200, 3 << 20, 1_002_000_000, &[(8192, 600), (16384, 1200)]),
        )];
        let array = report(&old, &now, false, true).arrays.remove(0);
        assert_eq!(array.interval_s, 2.0);
        assert_eq!(
            (array.rates.reads_per_s, array.rates.writes_per_s),
            (100.0, 0.0)
        );
        assert_eq!(array.rates.read_bytes_per_s, f64::from(1 << 20));
        assert_eq!(array.rates.read_mean_us, Some(10.0));
        let p99 = array.rates.read_p99_us.expect("there were reads");
        assert!((p99 - 16.22).abs() < 0.01, "{p99}");
        // 100 a second that take 10 µs each.
        assert!((array.rates.queue - 0.001).abs() < 1e-9);
        assert_eq!(array.rates.write_p99_us, None);
        assert_eq!(array.log_written_bytes_per_s, 10.0);
        let member = &array.members.expect("they were asked for")[0];
        assert_eq!((member.slot, member.rates.reads_per_s), (3, 100.0));
        assert!(report(&old, &now, false, false).arrays[0].members.is_none());
    }

    #[test]
    fn what_began_between_two_samples_counts_from_its_beginning() {
        let old = [stats(100, counted(1000, 0, 0, &[(8192, 1000)]))];
        let now = [stats(4, counted(400, 0, 0, &[(8192, 400)]))];
        let array = report(&old, &now, false, true).arrays.remove(0);
        assert_eq!((array.interval_s, array.rates.reads_per_s), (4.0, 100.0));
        // A member that took the slot anew, of an array that went on.
        let mut now = stats(110, counted(2000, 0, 0, &[(8192, 2000)]));
        now.members[0].reads = counted(50, 0, 0, &[(8192, 50)]);
        let array = report(&old, &[now], false, true).arrays.remove(0);
        assert_eq!(array.rates.reads_per_s, 100.0);
        assert_eq!(array.members.expect("asked for")[0].rates.reads_per_s, 5.0);
    }

    #[test]
    fn a_report_begins_with_its_head_and_says_when_there_is_nothing() {
        let now = [stats(
            10,
            counted(100, 0, 1_000_000, &[(8192, 0), (16384, 100)]),
        )];
        let first = text(&report(&[], &now, true, true), &[], true, None);
        let lines: Vec<&str> = first.lines().collect();
        assert!(
            lines[0].starts_with("ARRAY") && lines[0].ends_with("logMB/s"),
            "{first}"
        );
        assert!(
            lines[1].starts_with("data ") && lines[2].starts_with("  3 "),
            "{first}"
        );
        assert!(
            lines.iter().all(|line| line.len() == lines[0].len()),
            "{first}"
        );
        let mut long = now.clone();
        long[0].members[0].device = Some(format!("/dev/disk/by-id/{}/d7", "n".repeat(60)));
        let narrow = text(&report(&[], &long, true, true), &[], true, Some(120));
        let lines: Vec<usize> = narrow.lines().map(|line| line.chars().count()).collect();
        assert!(lines.iter().all(|&columns| columns == 120), "{narrow}");
        assert!(
            narrow.contains("nnn/d7 ") && narrow.contains("\n  3 …nnn"),
            "{narrow}"
        );
        let next = text(&report(&now, &[], false, true), &[], false, None);
        assert!(next.starts_with("\nARRAY") && next.ends_with("no array is in service\n"));
    }
}

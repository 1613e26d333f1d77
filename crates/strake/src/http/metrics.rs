//! `/metrics`, in Prometheus' text format.
//!
//! Invariants: counters end in `_total`, and units stand last otherwise; what is not known has no
//! line. Nothing is asked of a drive for it: one that hangs must not hang the monitoring.
//! Deliberately absent: a library. `prometheus-client` (0.26) has no summaries, and writes bounds
//! of buckets as 8.192e-06, which are published as 0.000008192: each would be a new series.

use std::fmt::Write as _;

use crate::api::{AlertsJson, JobJson, MemberJson};
use crate::common::log;
use crate::daemon::service::{DriveTold, Service};
use crate::view::latency::{BucketJson, DistributionJson};

/// The families, in the order of the page: name and help. What ends in `_total` is a counter, what
/// has quantiles a summary, what has buckets a histogram, the rest a gauge.
const FAMILIES: &[(&str, &str)] = &[
    ("strake_event_followers", "Clients that follow events."),
    (
        "strake_log_lines_dropped_total",
        "Lines of the daemon's log that were dropped because the log was not read.",
    ),
    (
        "strake_alert_delivered_total",
        "Messages of the channel that were delivered.",
    ),
    (
        "strake_alert_failures_total",
        "Attempts of the channel that failed.",
    ),
    (
        "strake_alert_dropped_total",
        "Messages of the channel that were dropped.",
    ),
    ("strake_alert_queued", "Messages of the channel that wait."),
    (
        "strake_alert_failing",
        "1 where the last attempt of the channel failed.",
    ),
    (
        "strake_alert_last_success_timestamp_seconds",
        "When a message of the channel was delivered last.",
    ),
    (
        "strake_alert_unwritten_files",
        "Files of the spool of alerts that could not be written yet.",
    ),
    ("strake_reads_total", "Reads of users that were answered."),
    ("strake_read_bytes_total", "Bytes that users read."),
    ("strake_writes_total", "Writes of users that were answered."),
    ("strake_written_bytes_total", "Bytes that users wrote."),
    (
        "strake_request_errors_total",
        "Requests of users that were answered with an error.",
    ),
    ("strake_member_reads_total", "Reads of members."),
    ("strake_member_writes_total", "Writes of members."),
    ("strake_member_read_bytes_total", "Bytes read of members."),
    (
        "strake_member_written_bytes_total",
        "Bytes written to members.",
    ),
    (
        "strake_member_reads_in_place_total",
        "Reads that a member filled in the memory of the request.",
    ),
    ("strake_size_bytes", "Size of the array."),
    (
        "strake_members_not_in_sync",
        "Slots without a member in sync.",
    ),
    ("strake_member_in_sync", "1 where the member is in sync."),
    (
        "strake_member_read_errors_total",
        "Reads that the member answered with an error.",
    ),
    (
        "strake_member_write_errors_total",
        "Writes that the member answered with an error.",
    ),
    (
        "strake_member_mismatches_total",
        "Pieces of strips that scrubs found wrong.",
    ),
    ("strake_member_retries_total", "Tries after the first."),
    (
        "strake_member_retried_ios_total",
        "I/Os that got through after more than one try.",
    ),
    (
        "strake_member_retried_ios_failed_total",
        "I/Os that did not get through.",
    ),
    (
        "strake_member_resets_total",
        "Resets of the drive that cost nothing.",
    ),
    (
        "strake_member_slow",
        "1 where the member is far slower than the others.",
    ),
    (
        "strake_member_hedged_reads_total",
        "Reads that the other members were asked for, too.",
    ),
    (
        "strake_member_hedged_reads_won_total",
        "Hedged reads that the others answered.",
    ),
    (
        "strake_member_hedged_reads_lost_total",
        "Hedged reads that the member answered after all.",
    ),
    (
        "strake_member_hedged_reads_refused_total",
        "Reads that were not hedged: there were too many.",
    ),
    (
        "strake_member_temperature_celsius",
        "Temperature of the drive.",
    ),
    (
        "strake_member_percentage_used",
        "Endurance used, per cent; may exceed 100.",
    ),
    (RECENT_READS, "Recent reads of the member, by quantiles."),
    (RECENT_WRITES, "Recent writes of the member, by quantiles."),
    (
        "strake_member_read_latency_us",
        "The same in microseconds: superseded, kept for programs that read it.",
    ),
    (
        "strake_member_write_latency_us",
        "The same in microseconds: superseded, kept for programs that read it.",
    ),
    (
        "strake_undecided_bytes",
        "Bytes in regions that were rebuilt from strips that do not agree.",
    ),
    ("strake_job_done_bytes", "Bytes that the job has done."),
    ("strake_job_total_bytes", "Bytes that the job has to do."),
    (
        "strake_job_rate_bytes_per_second",
        "Rate of the job since it started.",
    ),
    ("strake_job_paused", "1 where the job is paused."),
    (ALL_READS, "All reads of the member since it took its slot."),
    (
        ALL_WRITES,
        "All writes of the member since it took its slot.",
    ),
];

/// What Prometheus calls it.
fn kind(name: &str) -> &'static str {
    match name {
        RECENT_READS | RECENT_WRITES => "summary",
        ALL_READS | ALL_WRITES => "histogram",
        name if name.ends_with("_total") => "counter",
        _ => "gauge",
    }
}

/// Name, kind and help of each, for the reference.
#[cfg(test)]
pub(crate) fn families() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    FAMILIES
        .iter()
        .map(|(name, help)| (*name, kind(name), *help))
}

const ALL_READS: &str = "strake_member_read_latency_seconds";
const ALL_WRITES: &str = "strake_member_write_latency_seconds";
const RECENT_READS: &str = "strake_member_recent_read_latency_seconds";
const RECENT_WRITES: &str = "strake_member_recent_write_latency_seconds";

/// Lines by family: the lines of one stand together, whichever array they are of, as the format
/// wants it.
#[derive(Debug)]
struct Families(Vec<String>);

impl Families {
    fn new() -> Families {
        Families(vec![String::new(); FAMILIES.len()])
    }

    /// Adds a line.
    fn push(&mut self, family: &str, labels: &str, value: impl std::fmt::Display) {
        self.part(family, "", labels, value);
    }

    /// Adds a line of a part of a family.
    fn part(&mut self, family: &str, part: &str, labels: &str, value: impl std::fmt::Display) {
        let at = FAMILIES.iter().position(|(name, _)| *name == family);
        let lines = &mut self.0[at.expect("every family that is told is in the list")];
        // Writing to a String cannot fail.
        let _ = match labels {
            "" => writeln!(lines, "{family}{part} {value}"),
            labels => writeln!(lines, "{family}{part}{{{labels}}} {value}"),
        };
    }

    /// Adds the lines of a histogram.
    fn histogram(&mut self, family: &str, labels: &str, all: &DistributionJson) {
        let bounds = all.buckets.iter();
        let bounds = bounds.map(|BucketJson { below_ns, count }| (seconds(*below_ns), *count));
        for (le, count) in bounds.chain([("+Inf".to_owned(), all.count)]) {
            self.part(family, "_bucket", &format!("{labels},le=\"{le}\""), count);
        }
        self.part(family, "_sum", labels, seconds(all.sum_ns));
        self.part(family, "_count", labels, all.count);
    }

    /// All of them, each with its help and its type; none without a line.
    fn text(&self) -> String {
        let mut text = String::new();
        for ((name, help), lines) in FAMILIES.iter().zip(&self.0) {
            let kind = kind(name);
            if !lines.is_empty() {
                let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}");
            }
        }
        text
    }
}

/// All of them.
pub(super) fn text(service: &Service) -> String {
    let mut families = Families::new();
    families.push("strake_event_followers", "", service.events().followers());
    families.push("strake_log_lines_dropped_total", "", log::dropped());
    alert_metrics(&mut families, &service.alert_status());
    for running in service.all_running() {
        let (Ok(counters), Ok((array, latencies))) = (running.counters(), running.told()) else {
            continue;
        };
        let name = &array.name;
        let missing = array
            .members
            .iter()
            .filter(|m| m.state != "in_sync")
            .count() as u64;
        for (metric, value) in [
            ("strake_reads_total", counters.reads),
            ("strake_read_bytes_total", counters.read_bytes),
            ("strake_writes_total", counters.writes),
            ("strake_written_bytes_total", counters.written_bytes),
            ("strake_request_errors_total", counters.errors),
            ("strake_member_reads_total", counters.member_reads),
            ("strake_member_writes_total", counters.member_writes),
            ("strake_member_read_bytes_total", counters.member_read_bytes),
            (
                "strake_member_written_bytes_total",
                counters.member_written_bytes,
            ),
            (
                "strake_member_reads_in_place_total",
                counters.member_reads_in_place,
            ),
            ("strake_size_bytes", array.size_bytes),
            ("strake_members_not_in_sync", missing),
            ("strake_undecided_bytes", array.undecided_bytes),
        ] {
            families.push(metric, &format!("array=\"{name}\""), value);
        }
        // The second in a slot is to take the place of the first.
        let same = |a: &MemberJson, b: &MemberJson| a.slot.is_some() && a.slot == b.slot;
        for member in array.members.chunk_by(same).map(|of| &of[0]) {
            let told = member.device.as_ref().and_then(|d| service.told(d));
            member_metrics(&mut families, name, member, told);
        }
        let took = latencies.members.chunk_by(|a, b| a.slot == b.slot);
        for took in took.map(|of| &of[0]).filter(|of| of.device.is_some()) {
            let labels = format!("array=\"{name}\",slot=\"{}\"", took.slot);
            families.histogram(ALL_READS, &labels, &took.reads);
            families.histogram(ALL_WRITES, &labels, &took.writes);
        }
        array
            .jobs
            .iter()
            .for_each(|job| job_metrics(&mut families, name, job));
    }
    families.text()
}

/// Nanoseconds as seconds, to the last digit.
pub(crate) fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What the channels of alerts did.
fn alert_metrics(families: &mut Families, alerts: &AlertsJson) {
    for channel in &alerts.channels {
        let labels = format!("channel=\"{}\"", channel.name);
        for (metric, value) in [
            ("strake_alert_delivered_total", channel.delivered),
            ("strake_alert_failures_total", channel.failures),
            ("strake_alert_dropped_total", channel.dropped),
            ("strake_alert_queued", channel.queued),
            ("strake_alert_failing", u64::from(channel.failing)),
        ] {
            families.push(metric, &labels, value);
        }
        let at = channel.last_success.as_ref().and_then(|at| at.parse().ok());
        if let Some(at) = at.map(jiff::Timestamp::as_second) {
            families.push("strake_alert_last_success_timestamp_seconds", &labels, at);
        }
    }
    if !alerts.channels.is_empty() {
        families.push("strake_alert_unwritten_files", "", alerts.unwritten_files);
    }
}

/// How far a job is.
fn job_metrics(families: &mut Families, array: &str, job: &JobJson) {
    let kind = &job.kind;
    let slot = job.slot.map(|slot| format!(",slot=\"{slot}\""));
    let labels = format!(
        "array=\"{array}\",kind=\"{kind}\"{}",
        slot.unwrap_or_default()
    );
    for (metric, value) in [
        ("strake_job_done_bytes", job.done_bytes),
        ("strake_job_total_bytes", job.total_bytes),
        ("strake_job_rate_bytes_per_second", job.rate_bytes_per_s),
        ("strake_job_paused", u64::from(job.paused)),
    ] {
        families.push(metric, &labels, value);
    }
}

/// What was counted against a member in a slot, how long it takes, what became of reads that it did
/// not answer in time, and what its drive told of itself.
fn member_metrics(
    families: &mut Families,
    array: &str,
    member: &MemberJson,
    told: Option<DriveTold>,
) {
    let Some(slot) = member.slot.filter(|_| member.device.is_some()) else {
        return;
    };
    let labels = format!("array=\"{array}\",slot=\"{slot}\"");
    let hedged = &member.hedged_reads;
    for (metric, value) in [
        (
            "strake_member_in_sync",
            u64::from(member.state == "in_sync"),
        ),
        ("strake_member_read_errors_total", member.read_errors),
        ("strake_member_write_errors_total", member.write_errors),
        ("strake_member_mismatches_total", member.mismatches),
        ("strake_member_retries_total", member.retries.tries),
        (
            "strake_member_retried_ios_total",
            member.retries.got_through,
        ),
        (
            "strake_member_retried_ios_failed_total",
            member.retries.failed,
        ),
        ("strake_member_resets_total", member.retries.resets),
        ("strake_member_slow", u64::from(member.slow)),
        ("strake_member_hedged_reads_total", hedged.issued),
        ("strake_member_hedged_reads_won_total", hedged.won),
        ("strake_member_hedged_reads_lost_total", hedged.lost),
        ("strake_member_hedged_reads_refused_total", hedged.refused),
    ] {
        families.push(metric, &labels, value);
    }
    if let Some(told) = told {
        let (celsius, used) = (told.temperature_c, told.percentage_used);
        families.push("strake_member_temperature_celsius", &labels, celsius);
        families.push("strake_member_percentage_used", &labels, used);
    }
    for (recent, superseded, latency) in [
        (
            RECENT_READS,
            "strake_member_read_latency_us",
            member.read_latency,
        ),
        (
            RECENT_WRITES,
            "strake_member_write_latency_us",
            member.write_latency,
        ),
    ] {
        let Some(latency) = latency else { continue };
        for (quantile, us) in [
            ("0.5", latency.p50_us),
            ("0.99", latency.p99_us),
            ("0.999", latency.p999_us),
        ] {
            let labels = format!("{labels},quantile=\"{quantile}\"");
            families.push(recent, &labels, seconds(us * 1000));
            families.push(superseded, &labels, us);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::api::RetriesJson;

    use super::*;

    #[test]
    fn what_a_drive_told_has_lines_and_what_it_did_not_has_none() {
        let member = MemberJson {
            slot: Some(2),
            device: Some("/d".to_owned()),
            state: "in_sync".to_owned(),
            read_errors: 3,
            retries: RetriesJson {
                tries: 9,
                got_through: 5,
                failed: 2,
                resets: 1,
            },
            ..MemberJson::default()
        };
        let told = DriveTold {
            temperature_c: -4,
            percentage_used: 107,
        };
        let of = |told| {
            let mut families = Families::new();
            member_metrics(&mut families, "a", &member, told);
            families.text()
        };
        let labels = "{array=\"a\",slot=\"2\"}";
        let text = of(Some(told));
        for line in [
            format!("strake_member_read_errors_total{labels} 3\n"),
            format!("strake_member_retries_total{labels} 9\n"),
            format!("strake_member_retried_ios_total{labels} 5\n"),
            format!("strake_member_retried_ios_failed_total{labels} 2\n"),
            format!("strake_member_resets_total{labels} 1\n"),
            format!("strake_member_in_sync{labels} 1\n"),
            format!("strake_member_temperature_celsius{labels} -4\n"),
            format!("strake_member_percentage_used{labels} 107\n"),
        ] {
            assert!(text.contains(&line), "{line} in {text}");
        }
        let text = of(None);
        assert!(
            !text.contains("celsius") && !text.contains("percentage"),
            "{text}"
        );
    }

    #[test]
    fn a_job_tells_how_far_it_is() {
        let job = serde_json::json!({
            "kind": "rebuild", "slot": 1, "done_bytes": 5, "total_bytes": 9, "rate_bytes_per_s": 2,
            "eta_s": null, "paused": true, "inconsistent_stripes": 0, "repaired_stripes": 0,
        });
        let job: JobJson = serde_json::from_value(job).expect("a job");
        let mut families = Families::new();
        job_metrics(&mut families, "a", &job);
        let text = families.text();
        let labels = "{array=\"a\",kind=\"rebuild\",slot=\"1\"}";
        assert!(
            text.contains(&format!("strake_job_done_bytes{labels} 5\n")),
            "{text}"
        );
        assert!(
            text.contains(&format!("strake_job_total_bytes{labels} 9\n")),
            "{text}"
        );
        assert!(
            text.contains(&format!("strake_job_paused{labels} 1\n")),
            "{text}"
        );
    }

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
        let bucket = |(below_ns, count)| BucketJson { below_ns, count };
        let all = DistributionJson {
            count: 6,
            sum_ns: 2_000_000_000,
            max_ns: 1_900_000_000,
            recent: None,
            buckets: [(8192, 3), (16384, 5)].map(bucket).to_vec(),
        };
        let mut families = Families::new();
        let labels = "array=\"a\",slot=\"0\"";
        families.histogram(ALL_READS, labels, &all);
        let text = families.text();
        let lines: Vec<&str> = text.lines().collect();
        let read = ALL_READS;
        assert!(lines[0].starts_with(&format!("# HELP {read} ")));
        assert_eq!(lines[1], format!("# TYPE {read} histogram"));
        assert_eq!(
            lines[2..],
            [
                format!("{read}_bucket{{{labels},le=\"0.000008192\"}} 3"),
                format!("{read}_bucket{{{labels},le=\"0.000016384\"}} 5"),
                format!("{read}_bucket{{{labels},le=\"+Inf\"}} 6"),
                format!("{read}_sum{{{labels}}} 2"),
                format!("{read}_count{{{labels}}} 6"),
            ]
        );
    }
}

//! `/metrics`, in Prometheus' text format.
//!
//! Invariants: counters end in `_total`, and units stand last otherwise; what is not known has no
//! line. Nothing is asked of a drive for it: one that hangs must not hang the monitoring.
//! Deliberately absent: a library. `prometheus-client` (0.26) has no summaries, and writes bounds
//! of buckets as 8.192e-06, which are published as 0.000008192: each would be a new series.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::UNIX_EPOCH;

use jiff::Timestamp;

use crate::api::{AlertsJson, ArrayJson, JobJson, MemberJson, ScrubJson};
use crate::common::log;
use crate::daemon::array::running::{Measured, Running};
use crate::daemon::service::Service;
use crate::daemon::service::watched::health::{DriveTold, DriveWear};
use crate::view::latency::{BucketJson, DistributionJson, distribution};

/// What it is, for HTTP.
pub(super) const MEDIA: &str = "text/plain; version=0.0.4";

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
        "strake_member_doubted",
        "1 where the superblocks of a member speak against it, and the level needs it.",
    ),
    (
        "strake_member_full",
        "1 where there is no space for writes to the member, and they wait.",
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
    ("strake_build_info", "The version of the daemon; always 1."),
    (
        "strake_daemon_start_time_seconds",
        "When the daemon began, seconds since 1970.",
    ),
    (
        "strake_array_info",
        "An array: its uuid, its level, and which writes the stripe log covers; always 1.",
    ),
    (
        "strake_array_state",
        "1 for the state that the array is in, 0 for the others. Stopped arrays have it too.",
    ),
    (
        "strake_array_missing",
        "1 where no member of an array that was served here is found, 0 for the other arrays.",
    ),
    (
        "strake_slots",
        "Slots of the array, with a member or without.",
    ),
    ("strake_spares", "Spares that wait in the array."),
    (
        "strake_regions",
        "Regions of the array by their state; a resync is due where it is need_sync.",
    ),
    (
        "strake_unwritten_bytes",
        "Bytes in regions that were never written.",
    ),
    (
        "strake_unreadable_bytes",
        "Bytes with lost content: they answer an error until they are written.",
    ),
    (
        "strake_unreadable_ranges",
        "Ranges on the list of unreadable blocks.",
    ),
    (
        "strake_unreadable_ranges_max",
        "Ranges that the list of unreadable blocks has room for.",
    ),
    (
        "strake_log_lanes",
        "Lanes of the stripe log on each member.",
    ),
    (
        "strake_log_area_bytes",
        "Size of the area of the stripe log on each member.",
    ),
    (
        "strake_log_writes_total",
        "Writes to areas of the stripe log.",
    ),
    (
        "strake_log_written_bytes_total",
        "Bytes written to areas of the stripe log.",
    ),
    (
        USER_READS,
        "Reads of users that were answered without an error, by how long they took.",
    ),
    (
        USER_WRITES,
        "Writes of users that were answered without an error, by how long they took.",
    ),
    (
        "strake_latency_target_seconds",
        "The setting latency_target of the array; no line where it is off.",
    ),
    (
        "strake_scrub_last_begun_timestamp_seconds",
        "When the last scrub that came to its end began, seconds since 1970.",
    ),
    (
        "strake_scrub_last_ended_timestamp_seconds",
        "When it ended, seconds since 1970.",
    ),
    (
        "strake_scrub_last_inconsistent_stripes",
        "Stripes that it found inconsistent.",
    ),
    (
        "strake_scrub_last_repaired_stripes",
        "Those of them that it made consistent.",
    ),
    (
        "strake_scrub_last_unreadable_stripes",
        "Stripes of which it could read too few strips.",
    ),
    (
        "strake_member_state",
        "1 for the state that the member of a slot is in, 0 for the others. A slot without a \
         device has an empty device.",
    ),
    (
        "strake_member_info",
        "What the drive of a member or spare calls itself; always 1. A spare has an empty slot.",
    ),
    (
        "strake_member_available_spare_ratio",
        "Spare capacity that the drive has left, 1 for all of it.",
    ),
    (
        "strake_member_media_errors_total",
        "Media errors that the drive counts.",
    ),
    (
        "strake_member_drive_warnings",
        "Critical warnings that the drive reports now.",
    ),
    (
        "strake_job_eta_seconds",
        "Until the job is done, at its rate so far; no line where that is not known.",
    ),
];

/// What Prometheus calls it.
fn kind(name: &str) -> &'static str {
    match name {
        RECENT_READS | RECENT_WRITES => "summary",
        ALL_READS | ALL_WRITES | USER_READS | USER_WRITES => "histogram",
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
const USER_READS: &str = "strake_read_latency_seconds";
const USER_WRITES: &str = "strake_write_latency_seconds";
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

    /// Adds the lines of a state set: 1 for the state that holds, 0 for the others.
    fn states(&mut self, family: &str, own: &[(&str, &str)], all: &[&str], holds: &str) {
        let other = (!all.contains(&holds)).then_some(holds);
        for state in all.iter().copied().chain(other) {
            let labels = labels(&[own, &[("state", state)]].concat());
            self.push(family, &labels, u8::from(state == holds));
        }
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

/// The words of an array's state and of a member's: each has a line in its state set.
const ARRAY_STATES: [&str; 7] = [
    "optimal",
    "degraded",
    "failed",
    "unresponsive",
    "stopping",
    "stopped",
    "unknown",
];
const MEMBER_STATES: [&str; 6] = [
    "in_sync",
    "rebuilding",
    "missing",
    "failed",
    "stale",
    "spare",
];

/// Labels as they stand between braces: a path or a drive's name may have any bytes.
fn labels(all: &[(&str, &str)]) -> String {
    let one = |(name, value): &(&str, &str)| {
        let value = value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        format!("{name}=\"{value}\"")
    };
    let all: Vec<String> = all.iter().map(one).collect();
    all.join(",")
}

/// All of them. No drive is asked.
pub(super) fn text(service: &Service) -> String {
    let mut families = Families::new();
    let version = labels(&[("version", env!("CARGO_PKG_VERSION"))]);
    families.push("strake_build_info", &version, 1);
    let since = service.since().duration_since(UNIX_EPOCH);
    let since = since.unwrap_or_default().as_secs();
    families.push("strake_daemon_start_time_seconds", "", since);
    families.push("strake_event_followers", "", service.events().followers());
    families.push("strake_log_lines_dropped_total", "", log::dropped());
    alert_metrics(&mut families, &service.alert_status());
    let mut names = BTreeSet::new();
    for (running, measured) in service.ask_all(Running::measured) {
        names.insert(running.name().to_string());
        match measured {
            Ok(measured) => {
                running_metrics(&mut families, &measured, |device| service.told(device));
            }
            Err(_) => {
                let array = service.unanswered(&running);
                shared_metrics(&mut families, &array.name, &array);
            }
        }
    }
    let missing = service.told_missing().into_iter().map(|one| one.json);
    for stopped in service.not_running().into_iter().chain(missing) {
        // The name of one that is there already says nothing of this one.
        let name = match names.insert(stopped.name.clone()) {
            true => stopped.name.clone(),
            false => stopped.uuid.clone(),
        };
        shared_metrics(&mut families, &name, &stopped);
    }
    families.text()
}

/// What is known of an array whether it is in service or not.
fn shared_metrics(families: &mut Families, name: &str, array: &ArrayJson) {
    let info = labels(&[
        ("array", name),
        ("uuid", &array.uuid),
        ("level", &array.level),
        ("write_hole", &array.write_hole),
    ]);
    families.push("strake_array_info", &info, 1);
    let own = [("array", name)];
    let missing = u8::from(array.not_found);
    families.push("strake_array_missing", &labels(&own), missing);
    families.states("strake_array_state", &own, &ARRAY_STATES, &array.state);
    for member in &array.members {
        let slot = member.slot.map(|slot| slot.to_string()).unwrap_or_default();
        let device = member.device.as_deref().unwrap_or_default();
        let own: [(&str, &str); 3] = [("array", name), ("slot", &slot), ("device", device)];
        families.states("strake_member_state", &own, &MEMBER_STATES, &member.state);
    }
    if let Some(scrub) = &array.last_scrub {
        scrub_metrics(families, &labels(&own), scrub);
    }
}

/// What the last scrub that came to its end found.
fn scrub_metrics(families: &mut Families, array: &str, scrub: &ScrubJson) {
    for (metric, time) in [
        ("strake_scrub_last_begun_timestamp_seconds", &scrub.begun),
        ("strake_scrub_last_ended_timestamp_seconds", &scrub.ended),
    ] {
        if let Ok(time) = time.parse::<Timestamp>() {
            families.push(metric, array, time.as_second());
        }
    }
    for (metric, stripes) in [
        (
            "strake_scrub_last_inconsistent_stripes",
            scrub.inconsistent_stripes,
        ),
        ("strake_scrub_last_repaired_stripes", scrub.repaired_stripes),
        (
            "strake_scrub_last_unreadable_stripes",
            scrub.unreadable_stripes,
        ),
    ] {
        families.push(metric, array, stripes);
    }
}

/// An array in service.
fn running_metrics(
    families: &mut Families,
    measured: &Measured,
    told: impl Fn(&str) -> Option<DriveTold>,
) {
    let array = &measured.array;
    let name = array.name.as_str();
    shared_metrics(families, name, array);
    counter_metrics(families, measured);
    // The second in a slot is to take the place of the first.
    let same = |a: &MemberJson, b: &MemberJson| a.slot.is_some() && a.slot == b.slot;
    for member in array.members.chunk_by(same).map(|of| &of[0]) {
        let told = member.device.as_deref().and_then(&told);
        member_metrics(families, name, member, told);
    }
    for member in array.members_and_spares() {
        let Some(device) = member.device.as_deref() else {
            continue;
        };
        if let Some(told) = told(device) {
            info_metric(families, name, member, device, &told);
        }
    }
    let took = measured.members.chunk_by(|a, b| a.slot == b.slot);
    for took in took.map(|of| &of[0]).filter(|of| of.device.is_some()) {
        let labels = format!("array=\"{name}\",slot=\"{}\"", took.slot);
        families.histogram(ALL_READS, &labels, &took.reads);
        families.histogram(ALL_WRITES, &labels, &took.writes);
    }
    for job in &array.jobs {
        job_metrics(families, name, job);
    }
}

/// What is counted of an array as a whole.
fn counter_metrics(families: &mut Families, measured: &Measured) {
    let (array, counters) = (&measured.array, &measured.counters);
    let own = labels(&[("array", &array.name)]);
    let missing = array.members.iter().filter(|m| m.state != "in_sync");
    let slots = array.members.iter().filter_map(|m| m.slot);
    let slots = slots.collect::<BTreeSet<u8>>().len() as u64;
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
        ("strake_members_not_in_sync", missing.count() as u64),
        ("strake_undecided_bytes", array.undecided_bytes),
        ("strake_slots", slots),
        ("strake_spares", array.spares.len() as u64),
        ("strake_unwritten_bytes", array.unwritten_bytes),
        ("strake_unreadable_bytes", array.unreadable_bytes),
        ("strake_unreadable_ranges", array.unreadable.len() as u64),
        (
            "strake_unreadable_ranges_max",
            measured.unreadable_most as u64,
        ),
    ] {
        families.push(metric, &own, value);
    }
    let regions = measured.regions;
    for (state, count) in [
        ("unwritten", regions.unwritten),
        ("clean", regions.clean),
        ("dirty", regions.dirty),
        ("need_sync", regions.need_sync),
    ] {
        let labels = format!("{own},state=\"{state}\"");
        families.push("strake_regions", &labels, count);
    }
    if let Some((lanes, area_bytes)) = measured.log {
        for (metric, value) in [
            ("strake_log_lanes", u64::from(lanes)),
            ("strake_log_area_bytes", area_bytes),
            ("strake_log_writes_total", counters.log_writes),
            ("strake_log_written_bytes_total", counters.log_written_bytes),
        ] {
            families.push(metric, &own, value);
        }
    }
    if array.latency_target_us > 0 {
        let target = seconds(u64::from(array.latency_target_us) * 1000);
        families.push("strake_latency_target_seconds", &own, target);
    }
    let [reads, writes] =
        [measured.requests.reads, measured.requests.writes].map(|all| distribution(&all, None));
    families.histogram(USER_READS, &own, &reads);
    families.histogram(USER_WRITES, &own, &writes);
}

/// What a drive calls itself.
fn info_metric(
    families: &mut Families,
    array: &str,
    member: &MemberJson,
    device: &str,
    told: &DriveTold,
) {
    let slot = member.slot.map(|slot| slot.to_string()).unwrap_or_default();
    let known = |text: &Option<String>| text.clone().unwrap_or_default();
    let labels = labels(&[
        ("array", array),
        ("slot", &slot),
        ("device", device),
        ("model", &known(&told.model)),
        ("serial", &known(&told.serial)),
        ("firmware", &known(&told.firmware)),
    ]);
    families.push("strake_member_info", &labels, 1);
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
    if let Some(eta) = job.eta_s {
        families.push("strake_job_eta_seconds", &labels, eta);
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
        ("strake_member_doubted", u64::from(member.doubted.is_some())),
        ("strake_member_full", u64::from(member.full_since.is_some())),
        ("strake_member_slow", u64::from(member.slow)),
        ("strake_member_hedged_reads_total", hedged.issued),
        ("strake_member_hedged_reads_won_total", hedged.won),
        ("strake_member_hedged_reads_lost_total", hedged.lost),
        ("strake_member_hedged_reads_refused_total", hedged.refused),
    ] {
        families.push(metric, &labels, value);
    }
    if let Some(wear) = told.and_then(|told| told.wear) {
        wear_metrics(families, &labels, &wear);
    }
    for (recent, latency) in [
        (RECENT_READS, member.read_latency),
        (RECENT_WRITES, member.write_latency),
    ] {
        let Some(latency) = latency else { continue };
        for (quantile, us) in [
            ("0.5", latency.p50_us),
            ("0.99", latency.p99_us),
            ("0.999", latency.p999_us),
        ] {
            let labels = format!("{labels},quantile=\"{quantile}\"");
            families.push(recent, &labels, seconds(us * 1000));
        }
    }
}

/// How a member's drive wears.
fn wear_metrics(families: &mut Families, member: &str, wear: &DriveWear) {
    let spare = f64::from(wear.available_spare_percent) / 100.0;
    families.push(
        "strake_member_temperature_celsius",
        member,
        wear.temperature_c,
    );
    families.push(
        "strake_member_percentage_used",
        member,
        wear.percentage_used,
    );
    families.push("strake_member_available_spare_ratio", member, spare);
    families.push(
        "strake_member_media_errors_total",
        member,
        wear.media_errors,
    );
    families.push("strake_member_drive_warnings", member, wear.warnings);
}

#[cfg(test)]
mod tests {
    use crate::api::RetriesJson;
    use crate::view;

    use super::*;

    #[test]
    fn what_a_drive_told_has_lines_and_what_it_did_not_has_none() {
        let member = MemberJson {
            slot: Some(2),
            device: Some("/d".to_owned()),
            state: "in_sync".to_owned(),
            doubted: Some("emptied".to_owned()),
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
            wear: Some(DriveWear {
                temperature_c: -4,
                percentage_used: 107,
                available_spare_percent: 9,
                media_errors: 3,
                warnings: 2,
            }),
            ..DriveTold::default()
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
            format!("strake_member_doubted{labels} 1\n"),
            format!("strake_member_full{labels} 0\n"),
            format!("strake_member_slow{labels} 0\n"),
            format!("strake_member_temperature_celsius{labels} -4\n"),
            format!("strake_member_percentage_used{labels} 107\n"),
            format!("strake_member_available_spare_ratio{labels} 0.09\n"),
            format!("strake_member_media_errors_total{labels} 3\n"),
            format!("strake_member_drive_warnings{labels} 2\n"),
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
            "eta_s": 7, "paused": true, "inconsistent_stripes": 0, "repaired_stripes": 0,
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
        assert!(
            text.contains(&format!("strake_job_eta_seconds{labels} 7\n")),
            "{text}"
        );
    }

    #[test]
    fn a_state_set_has_one_for_the_state_that_holds_and_a_slot_without_a_device_has_its_lines() {
        let member = |slot, device: Option<&str>, state: &str| MemberJson {
            slot: Some(slot),
            device: device.map(str::to_owned),
            state: state.to_owned(),
            ..MemberJson::default()
        };
        let array = ArrayJson {
            name: "a".to_owned(),
            state: "degraded".to_owned(),
            members: vec![
                member(0, Some("/d\"0\\"), "in_sync"),
                member(1, None, "missing"),
            ],
            ..ArrayJson::default()
        };
        let mut families = Families::new();
        shared_metrics(&mut families, &array.name, &array);
        let text = families.text();
        let ones: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("_state{") && line.ends_with(" 1"))
            .collect();
        assert_eq!(
            ones,
            [
                r#"strake_array_state{array="a",state="degraded"} 1"#,
                r#"strake_member_state{array="a",slot="0",device="/d\"0\\",state="in_sync"} 1"#,
                r#"strake_member_state{array="a",slot="1",device="",state="missing"} 1"#,
            ]
        );
        let zeros = text.lines().filter(|line| line.ends_with(" 0")).count();
        let others = ARRAY_STATES.len() - 1 + 2 * (MEMBER_STATES.len() - 1);
        assert_eq!(zeros, others + 1, "it is not missing either");
    }

    #[test]
    fn every_word_of_a_state_is_in_its_state_set() {
        use strake_engine::event::{ArrayState, MemberState};
        use {ArrayState as A, MemberState as M};
        for state in [A::Optimal, A::Degraded, A::Failed, A::Stopped] {
            let word = view::array_state(state);
            assert!(ARRAY_STATES.contains(&word), "{word}");
        }
        for state in [
            M::InSync,
            M::Rebuilding,
            M::Missing,
            M::Failed,
            M::Stale,
            M::Spare,
        ] {
            let word = view::member_state(state);
            assert!(MEMBER_STATES.contains(&word), "{word}");
        }
    }

    #[test]
    fn what_the_last_scrub_found_has_times_in_seconds() {
        let scrub = ScrubJson {
            repair: true,
            begun: "2026-03-01T00:00:00.000Z".to_owned(),
            ended: "2026-03-01T01:00:00.500Z".to_owned(),
            inconsistent_stripes: 5,
            located_stripes: 4,
            repaired_stripes: 3,
            unreadable_stripes: 2,
        };
        let mut families = Families::new();
        scrub_metrics(&mut families, "array=\"a\"", &scrub);
        let text = families.text();
        for (metric, value) in [
            ("begun_timestamp_seconds", 1_772_323_200_u64),
            ("ended_timestamp_seconds", 1_772_326_800),
            ("inconsistent_stripes", 5),
            ("repaired_stripes", 3),
            ("unreadable_stripes", 2),
        ] {
            let line = format!("strake_scrub_last_{metric}{{array=\"a\"}} {value}\n");
            assert!(text.contains(&line), "{line} in {text}");
        }
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

//! `/metrics`, in Prometheus' text format.
//!
//! Invariants: counters end in `_total`, and units stand last otherwise; what is not known has no line. Nothing is asked of a
//! drive for it: one that hangs must not hang whoever watches. Deliberately absent: a library; the format is lines.

use std::fmt::Write as _;

use crate::api::latency;
use crate::api::types::{JobJson, MemberJson};
use crate::daemon::service::{DriveTold, Service};

/// All of them.
pub(super) fn text(service: &Service) -> String {
    let mut text = format!("strake_event_followers {}\n", service.events.followers());
    let mut all_latencies = Vec::new();
    for running in service.all_running() {
        let (Ok(counters), Ok((array, latencies))) = (running.counters(), running.told()) else {
            continue;
        };
        all_latencies.push(latencies);
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
        ] {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{metric}{{array=\"{name}\"}} {value}");
        }
        // The second in a slot is to take the place of the first.
        let same = |a: &MemberJson, b: &MemberJson| a.slot.is_some() && a.slot == b.slot;
        for member in array.members.chunk_by(same).map(|of| &of[0]) {
            let told = member.device.as_ref().and_then(|d| service.told(d));
            member_metrics(&mut text, name, member, told);
        }
        array
            .jobs
            .iter()
            .for_each(|job| job_metrics(&mut text, name, job));
    }
    latency::metrics(&mut text, &all_latencies);
    text
}

/// How far a job is.
fn job_metrics(text: &mut String, array: &str, job: &JobJson) {
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
        let _ = writeln!(text, "{metric}{{{labels}}} {value}");
    }
}

/// What was counted against a member in a slot, how long it takes, what became of reads that it did not answer in time, and
/// what its drive told of itself.
fn member_metrics(text: &mut String, array: &str, member: &MemberJson, told: Option<DriveTold>) {
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
        let _ = writeln!(text, "{metric}{{{labels}}} {value}");
    }
    if let Some(told) = told {
        let (celsius, used) = (told.temperature_c, told.percentage_used);
        let _ = writeln!(
            text,
            "strake_member_temperature_celsius{{{labels}}} {celsius}"
        );
        let _ = writeln!(text, "strake_member_percentage_used{{{labels}}} {used}");
    }
    for (metric, latency) in [
        ("strake_member_read_latency_us", member.read_latency),
        ("strake_member_write_latency_us", member.write_latency),
    ] {
        let Some(latency) = latency else { continue };
        for (quantile, value) in [
            ("0.5", latency.p50_us),
            ("0.99", latency.p99_us),
            ("0.999", latency.p999_us),
        ] {
            let _ = writeln!(text, "{metric}{{{labels},quantile=\"{quantile}\"}} {value}");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::api::types::RetriesJson;

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
            let mut text = String::new();
            member_metrics(&mut text, "a", &member, told);
            text
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
        let mut text = String::new();
        job_metrics(&mut text, "a", &job);
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
}

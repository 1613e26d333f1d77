//! How drives wear: what they report, asked from time to time, and what became of it since.
//!
//! Order: [`WearLog::note`] takes what a drive reports; a change that an administrator must know
//! becomes an event at once, a sample is kept once an hour, and the file `wear.jsonl` is replaced.
//!
//! Invariants: samples are by serial number, so a drive that changes its slot or array keeps its
//! history; their number is bounded (an hour apart for two days, then a day apart for 400). A drive
//! that says nothing changes nothing. Deliberately absent: acting on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::api::WearMemberJson;
use crate::common::files::{read_file, replace_bytes};
use crate::common::time::{after_1970, rfc3339};
use crate::daemon::events::Happened;
use crate::drives::machine::health::Health;

/// How often drives are asked.
pub(crate) const PERIOD: Duration = Duration::from_secs(600);
/// A drive is worn from here on, per cent of its endurance.
pub(crate) const WORN_PERCENT: u8 = 90;
const HOUR_S: u64 = 3600;
const DAY_S: u64 = 24 * HOUR_S;
/// So long samples are kept an hour apart.
const FINE_S: u64 = 2 * DAY_S;
/// So long they are kept at all.
const KEPT_S: u64 = 400 * DAY_S;

/// What a drive had written at some time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Sample {
    serial: String,
    at_unix_s: u64,
    host_bytes: u64,
    media_bytes: Option<u64>,
}

/// What was told of a drive last.
#[derive(Debug)]
struct Told {
    warnings: Vec<&'static str>,
    worn: bool,
    media_errors: u128,
}

#[derive(Debug, Default)]
struct Inner {
    /// By serial number, oldest first.
    samples: BTreeMap<String, Vec<Sample>>,
    told: BTreeMap<String, Told>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct WearLog {
    path: PathBuf,
    inner: Mutex<Inner>,
}

fn unix_s(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

fn as_u64(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

impl WearLog {
    /// A log that goes on where the file at `path` ends. Lines that cannot be read are left out.
    pub(crate) fn open(path: &Path) -> WearLog {
        let text = read_file(path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let mut inner = Inner::default();
        for sample in text
            .lines()
            .filter_map(|line| serde_json::from_str::<Sample>(line).ok())
        {
            let of = inner.samples.entry(sample.serial.clone()).or_default();
            of.push(sample);
        }
        for samples in inner.samples.values_mut() {
            samples.sort_by_key(|sample| sample.at_unix_s);
        }
        WearLog {
            path: path.to_owned(),
            inner: Mutex::new(inner),
        }
    }

    /// Takes what a drive reports; returns what an administrator must know.
    pub(crate) fn note(&self, time: SystemTime, health: &Health) -> Vec<Happened> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let now = unix_s(time);
        let samples = inner.samples.entry(health.serial.clone()).or_default();
        if samples
            .last()
            .is_none_or(|last| now >= last.at_unix_s + HOUR_S)
        {
            samples.push(Sample {
                serial: health.serial.clone(),
                at_unix_s: now,
                host_bytes: as_u64(health.host_written_bytes),
                media_bytes: health.media_written_bytes.map(as_u64),
            });
            thin(samples, now);
            self.keep(&inner);
        }
        let told = Told {
            warnings: health.warnings.clone(),
            worn: health.percentage_used >= WORN_PERCENT,
            media_errors: health.media_errors,
        };
        let news = news(inner.told.get(&health.serial), &told, health);
        inner.told.insert(health.serial.clone(), told);
        news
    }

    /// Replaces the file. A folder that is full costs history after a restart, nothing else.
    fn keep(&self, inner: &Inner) {
        let lines = inner.samples.values().flatten();
        let lines = lines.filter_map(|sample| serde_json::to_string(sample).ok());
        let text: String = lines.map(|line| line + "\n").collect();
        if let Err(error) = replace_bytes(&self.path, text.as_bytes()) {
            tracing::warn!(%error, path = %self.path.display(), "how drives wear is not kept");
        }
    }

    /// What `show --wear` tells of a member with a drive that reports this: since its oldest
    /// sample, or since the newest that is at least `since` old.
    pub(crate) fn member(
        &self,
        time: SystemTime,
        since: Option<Duration>,
        health: &Health,
    ) -> WearMemberJson {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = inner.samples.get(&health.serial);
        let samples = samples.map(Vec::as_slice).unwrap_or_default();
        let oldest_wanted = since.map(|since| unix_s(time).saturating_sub(since.as_secs()));
        let old_enough = |s: &&Sample| oldest_wanted.is_some_and(|at| s.at_unix_s <= at);
        let base = samples.iter().rfind(old_enough).or(samples.first());
        let host = as_u64(health.host_written_bytes);
        let media = health.media_written_bytes.map(as_u64);
        let host_since = base.map(|base| host.saturating_sub(base.host_bytes));
        let media_since = base.and_then(|base| Some(media?.saturating_sub(base.media_bytes?)));
        let amplification = |media: Option<u64>, host: Option<u64>| {
            let host = host.filter(|&host| host > 0)?;
            Some(media? as f64 / host as f64)
        };
        let at = |sample: &Sample| after_1970(Duration::from_secs(sample.at_unix_s));
        WearMemberJson {
            model: Some(health.model.clone()),
            serial: Some(health.serial.clone()),
            warnings: health.warnings.iter().map(|&w| w.to_owned()).collect(),
            temperature_c: Some(health.temperature_c),
            available_spare_percent: Some(health.available_spare_percent),
            percentage_used: Some(health.percentage_used),
            power_on_hours: Some(as_u64(health.power_on_hours)),
            unsafe_shutdowns: Some(as_u64(health.unsafe_shutdowns)),
            media_errors: Some(as_u64(health.media_errors)),
            host_written_bytes: Some(host),
            media_written_bytes: media,
            media_from: health.media_from.map(str::to_owned),
            write_amplification: amplification(media, Some(host)),
            unaligned_ios: health.unaligned_ios,
            since: base.map(|base| rfc3339(at(base))),
            host_written_bytes_since: host_since,
            media_written_bytes_since: media_since,
            write_amplification_since: amplification(media_since, host_since),
            ..WearMemberJson::default()
        }
    }
}

/// Leaves out what lies too close together for its age, and what is too old.
fn thin(samples: &mut Vec<Sample>, now: u64) {
    let mut last_kept = None;
    samples.retain(|sample| {
        let age = now.saturating_sub(sample.at_unix_s);
        let apart = if age <= FINE_S { HOUR_S } else { DAY_S };
        let far = last_kept.is_none_or(|last| sample.at_unix_s >= last + apart);
        let keep = far && age <= KEPT_S;
        if keep {
            last_kept = Some(sample.at_unix_s);
        }
        keep
    });
}

/// What is new against what was told last. A drive seen for the first time tells of what is wrong
/// now, not of errors of its past.
fn news(last: Option<&Told>, told: &Told, health: &Health) -> Vec<Happened> {
    let event = |event, cause: String, effect: &str| Happened {
        event,
        cause: Some(cause),
        effect: Some(effect.to_owned()),
        ..Happened::default()
    };
    let mut news = Vec::new();
    let known = last.map_or(&[][..], |last| &last.warnings);
    for warning in told.warnings.iter().filter(|w| !known.contains(w)) {
        let cause = format!("the drive warns: {warning}");
        news.push(event("drive_warning", cause, "replace it soon"));
    }
    for warning in known.iter().filter(|w| !told.warnings.contains(w)) {
        let cause = format!("the drive warns no more: {warning}");
        news.push(event("drive_warning_over", cause, "none"));
    }
    if told.worn && !last.is_some_and(|last| last.worn) {
        let cause = format!("{} % of its endurance are used", health.percentage_used);
        news.push(event("drive_worn", cause, "replace it soon"));
    }
    if let Some(more) = last.and_then(|last| told.media_errors.checked_sub(last.media_errors))
        && more > 0
    {
        let cause = format!("{more} media errors more, {} in all", told.media_errors);
        news.push(event("drive_media_errors", cause, "none"));
    }
    news
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(host: u128, media: Option<u128>) -> Health {
        Health {
            serial: "S1".to_owned(),
            host_written_bytes: host,
            media_written_bytes: media,
            ..Health::default()
        }
    }

    fn at(hours: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_000_000_000 + hours * HOUR_S)
    }

    fn log() -> (tempfile::TempDir, WearLog) {
        let dir = tempfile::tempdir().expect("a folder for temporary files");
        let log = WearLog::open(&dir.path().join("wear.jsonl"));
        (dir, log)
    }

    #[test]
    fn write_amplification_is_that_of_the_time_chosen_also_after_a_restart() {
        let (dir, log) = log();
        log.note(at(0), &health(1000, Some(5000)));
        log.note(at(10), &health(2000, Some(6000)));
        drop(log);
        let log = WearLog::open(&dir.path().join("wear.jsonl"));
        let now = health(4000, Some(10_000));
        let waf = |hours: Option<u64>| {
            let since = hours.map(|hours| Duration::from_secs(hours * HOUR_S));
            log.member(at(20), since, &now).write_amplification_since
        };
        assert_eq!(waf(Some(10)), Some(2.0));
        assert_eq!(
            waf(Some(15)),
            Some(5000.0 / 3000.0),
            "from the sample before"
        );
        assert_eq!(waf(None), Some(5000.0 / 3000.0), "from the oldest");
        let member = log.member(at(20), None, &now);
        assert_eq!(member.write_amplification, Some(2.5));
        assert_eq!(member.host_written_bytes_since, Some(3000));
    }

    #[test]
    fn a_drive_that_does_not_tell_of_its_media_has_no_write_amplification() {
        let (_dir, log) = log();
        log.note(at(0), &health(1000, None));
        let member = log.member(at(1), None, &health(3000, None));
        assert_eq!(member.host_written_bytes_since, Some(2000));
        assert_eq!(
            (member.write_amplification, member.write_amplification_since),
            (None, None)
        );
    }

    #[test]
    fn samples_are_an_hour_apart_then_a_day_and_end_after_400_days() {
        let (_dir, log) = log();
        // Each sample that counts is a file made durable: of most days two are enough.
        let (early, all) = (407 * 24 * 4, 410 * 24 * 4);
        let noons = (0..early).step_by(12 * 4);
        for quarter in noons.chain(early..all) {
            let time = at(0) + Duration::from_secs(quarter * 900);
            log.inner.lock().expect("nobody panics").told.clear();
            log.note(time, &health(u128::from(quarter), None));
        }
        let inner = log.inner.lock().expect("nobody panics");
        let samples = &inner.samples["S1"];
        let apart = |pair: &[Sample]| pair[1].at_unix_s - pair[0].at_unix_s;
        assert!(samples.windows(2).all(|pair| apart(pair) >= HOUR_S));
        assert!(
            samples
                .windows(2)
                .rev()
                .take(40)
                .all(|pair| apart(pair) == HOUR_S)
        );
        assert!(samples.len() < 400 + 2 * 48, "{}", samples.len());
        assert!(samples.len() > 390, "{}", samples.len());
    }

    #[test]
    fn each_change_is_told_once() {
        let (_dir, log) = log();
        let mut drive = health(0, None);
        drive.media_errors = 7;
        assert!(log.note(at(0), &drive).is_empty(), "errors of its past");
        drive.warnings = vec!["media read only"];
        drive.percentage_used = 90;
        drive.media_errors = 9;
        let told = |news: Vec<Happened>| news.iter().map(|n| n.event).collect::<Vec<_>>();
        let all = ["drive_warning", "drive_worn", "drive_media_errors"];
        assert_eq!(told(log.note(at(1), &drive)), all);
        assert!(log.note(at(2), &drive).is_empty());
        drive.warnings.clear();
        assert_eq!(told(log.note(at(3), &drive)), ["drive_warning_over"]);
    }

    #[test]
    fn a_broken_file_costs_what_is_broken_and_no_more() {
        let (dir, log) = log();
        log.note(at(0), &health(1, None));
        let path = dir.path().join("wear.jsonl");
        let text = std::fs::read_to_string(&path).expect("it was written");
        std::fs::write(&path, format!("{{\n{text}half of a li")).expect("the folder is there");
        let log = WearLog::open(&path);
        assert_eq!(
            log.inner.lock().expect("nobody panics").samples["S1"].len(),
            1
        );
    }
}

//! What may be set, and what it takes: settings that the members carry, and those of this machine.
//!
//! Invariant: functions of what is wanted alone. Deliberately absent: changing them
//! (`daemon::service`), and what they mean to the engine.

pub(crate) mod degraded;
pub(crate) mod placement;
pub(crate) mod schedule;
pub(crate) mod words;

use strake_engine::event::Setting;
use strake_format::Settings;

use crate::api::SettingsJson;
use crate::common::errors::{Code, Failure};

/// What `pool=` says where an array is to take from none.
pub(crate) const NO_POOL: &str = "none";

/// Below this no device answers, and background work would never be done.
const LATENCY_TARGET_US_MIN: u32 = 50;
/// Of the endurance of a drive, per cent: it warns there at the latest.
const WEAR_MAX: u8 = 100;

/// Every setting, and what it takes, as an error says it.
pub(crate) const TAKES: &[(&str, &str)] = &[
    ("rebuild_priority", "1 to 100"),
    ("resync_priority", "1 to 100"),
    ("scrub_priority", "1 to 100"),
    ("restripe_priority", "1 to 100"),
    ("init_priority", "1 to 100"),
    (
        "latency_target",
        "off, or 50us to 60s with the unit (us, ms, s), in whole microseconds",
    ),
    ("latency_target_us", "0 (off), or 50 to 60000000"),
    ("spare_delay", "off, or a time to 7d, as 45s or 3m"),
    ("spare_delay_ms", "0 (off) to 604800000"),
    (
        "scrub_schedule",
        "off, continuous, daily, weekly or monthly",
    ),
    ("scrub_at", "00:00 to 23:59"),
    ("scrub_policy", "report, repair or halt"),
    ("read_error_threshold", "1 to 4294967295"),
    ("write_hole", "closed, degraded or resync"),
    ("hedged_reads", "on or off"),
    ("cpus", "CPUs of this machine, as 0-3,8, or auto"),
    ("shards", "1 to 64, or auto"),
    ("memory_limit", "a size, as 256M, or auto"),
    ("memory_limit_bytes", "a number of bytes, or 0 (auto)"),
    ("requests", "1 to 4294967295, or auto"),
    ("replace_at_wear", "off, or 1 to 100"),
    ("pool", "the name of a pool, or none"),
    (
        "degraded",
        "allow, never, wait, default, or a time to wait, 1ms to 7d, as 30s",
    ),
];

/// What a setting takes; `None` is no setting.
pub(crate) fn takes(key: &str) -> Option<&'static str> {
    let (_, takes) = TAKES.iter().find(|(name, _)| *name == key)?;
    Some(takes)
}

/// The units that names of settings end in as JSON has them.
const UNITS: [&str; 3] = ["_us", "_ms", "_bytes"];

/// Settings as commands have them, and what each takes: those that end in a unit are JSON's.
pub(crate) fn spoken() -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = TAKES.iter().copied();
    all.filter(|(name, _)| !UNITS.iter().any(|unit| name.ends_with(unit)))
}

/// The name of a setting as commands have it.
pub(crate) fn spoken_name(key: &str) -> String {
    let unit = UNITS.iter().find_map(|unit| key.strip_suffix(unit));
    unit.unwrap_or(key).to_owned()
}

/// There is no such setting: names those that there are.
pub(crate) fn no_setting(key: &str) -> Failure {
    let names: Vec<&str> = spoken().map(|(name, _)| name).collect();
    Failure::new(Code::SettingInvalid, format!("'{key}' is no setting"))
        .cure(format!("use one of {}", names.join(", ")))
}

/// A value that a setting does not take.
pub(crate) fn not_taken(key: &str, value: impl std::fmt::Display) -> Failure {
    match takes(key) {
        Some(takes) => {
            let found = format!("{key}={value} is not taken: {key} takes {takes}");
            Failure::new(Code::SettingInvalid, found).cure(format!("give {takes}"))
        }
        None => no_setting(key),
    }
}

/// A latency target within its range; 0 is none.
pub(crate) fn latency_target(us: u32) -> Result<u32, Failure> {
    match us {
        0 | LATENCY_TARGET_US_MIN..=Settings::LATENCY_TARGET_US_MAX => Ok(us),
        us => Err(not_taken("latency_target_us", us)),
    }
}

/// Numbers within their ranges, by name: the engine knows that one is not, and not which.
fn check_ranges(wanted: &SettingsJson) -> Result<(), Failure> {
    let priorities = [
        ("rebuild_priority", wanted.rebuild_priority),
        ("resync_priority", wanted.resync_priority),
        ("scrub_priority", wanted.scrub_priority),
        ("restripe_priority", wanted.restripe_priority),
        ("init_priority", wanted.init_priority),
    ];
    for (key, value) in priorities {
        if let Some(value) = value.filter(|p| !(1..=100).contains(p)) {
            return Err(not_taken(key, value));
        }
    }
    wanted.latency_target_us.map(latency_target).transpose()?;
    if let Some(ms) = (wanted.spare_delay_ms).filter(|&ms| ms > Settings::SPARE_DELAY_MS_MAX) {
        return Err(not_taken("spare_delay_ms", ms));
    }
    if wanted.read_error_threshold == Some(0) {
        return Err(not_taken("read_error_threshold", 0));
    }
    if let Some(percent) = wanted.replace_at_wear.filter(|&percent| percent > WEAR_MAX) {
        return Err(not_taken("replace_at_wear", percent));
    }
    Ok(())
}

/// What the array carries of these settings, as its engine takes it.
pub(crate) fn engine_settings(wanted: &SettingsJson) -> Result<Vec<Setting>, Failure> {
    check_ranges(wanted)?;
    let policy = wanted.write_hole.as_deref();
    let policy = policy.map(|policy| words::parse_write_hole(Some(policy)));
    let hedged = wanted.hedged_reads.as_deref().map(hedged_reads);
    let mut settings: Vec<Setting> = [
        wanted.rebuild_priority.map(Setting::RebuildPriority),
        wanted.resync_priority.map(Setting::ResyncPriority),
        wanted.scrub_priority.map(Setting::ScrubPriority),
        wanted.restripe_priority.map(Setting::RestripePriority),
        wanted.init_priority.map(Setting::InitPriority),
        wanted.latency_target_us.map(Setting::LatencyTargetUs),
        wanted.spare_delay_ms.map(Setting::SpareDelayMs),
        wanted.read_error_threshold.map(Setting::ReadErrorThreshold),
        policy.transpose()?.map(Setting::WriteHole),
        hedged.transpose()?.map(Setting::HedgedReads),
    ]
    .into_iter()
    .flatten()
    .collect();
    settings.extend(schedule::settings(wanted)?);
    Ok(settings)
}

fn hedged_reads(word: &str) -> Result<bool, Failure> {
    words::parse_on_off(word).ok_or_else(|| not_taken("hedged_reads", word))
}

//! `strake set` and `strake get`: settings as people write them, and as JSON has them.
//!
//! Invariant: a value that a setting does not take is refused before a daemon is asked, and the
//! error says what it takes. Deliberately absent: what settings mean (the daemon's).

use strake_format::{ArrayName, WriteHole};

use crate::api::{OutcomeJson, SettingsJson};
use crate::cli::client::Client;
use crate::cli::{Context, DONE, Ended, url};
use crate::commands::offline;
use crate::common::errors::{Code, Failure};
use crate::common::size;
use crate::settings as ranges;
use crate::settings::degraded::OwnRule;
use crate::settings::schedule;
use crate::settings::words;

/// As people say it, with a unit in the value; and as JSON has it.
const LATENCY_TARGET: &str = "latency_target";
const LATENCY_TARGET_US: &str = "latency_target_us";
const SPARE_DELAY: &str = "spare_delay";
const SPARE_DELAY_MS: &str = "spare_delay_ms";
const MEMORY_LIMIT: &str = "memory_limit";
const MEMORY_LIMIT_BYTES: &str = "memory_limit_bytes";
const REPLACE_AT_WEAR: &str = "replace_at_wear";
/// Left to Strake.
const AUTO: &str = "auto";

fn parse_setting(text: &str, into: &mut SettingsJson) -> Result<(), Failure> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| match ranges::takes(text) {
            Some(takes) => Failure::new(Code::SettingInvalid, format!("'{text}' has no value"))
                .cure(format!("give {text}=VALUE: {takes}")),
            None => ranges::not_taken(text, ""),
        })?;
    let wrong = || ranges::not_taken(key, value);
    match key {
        "rebuild_priority" => into.rebuild_priority = Some(percent(value).ok_or_else(wrong)?),
        "resync_priority" => into.resync_priority = Some(percent(value).ok_or_else(wrong)?),
        "scrub_priority" => into.scrub_priority = Some(percent(value).ok_or_else(wrong)?),
        "restripe_priority" => into.restripe_priority = Some(percent(value).ok_or_else(wrong)?),
        "init_priority" => into.init_priority = Some(percent(value).ok_or_else(wrong)?),
        LATENCY_TARGET | LATENCY_TARGET_US => {
            let us = match value.parse() {
                // The unit is in the name.
                Ok(us) if key == LATENCY_TARGET_US => us,
                _ => size::micros(value).ok_or_else(wrong)?,
            };
            into.latency_target_us = Some(ranges::latency_target(us).map_err(|_| wrong())?);
        }
        "scrub_schedule" => {
            schedule::parse_period(value).ok_or_else(wrong)?;
            into.scrub_schedule = Some(value.to_owned());
        }
        "scrub_at" => {
            let minute = schedule::parse_time(value).ok_or_else(wrong)?;
            into.scrub_at = Some(schedule::time_text(minute));
        }
        "scrub_policy" => {
            schedule::parse_policy(value).ok_or_else(wrong)?;
            into.scrub_policy = Some(value.to_owned());
        }
        SPARE_DELAY => into.spare_delay_ms = Some(size::delay_ms(value).ok_or_else(wrong)?),
        SPARE_DELAY_MS => into.spare_delay_ms = Some(value.parse().map_err(|_| wrong())?),
        "read_error_threshold" => {
            let threshold = value.parse().ok().filter(|t| *t > 0);
            into.read_error_threshold = Some(threshold.ok_or_else(wrong)?);
        }
        "write_hole" => {
            let policy: WriteHole = value.parse().map_err(|_| wrong())?;
            into.write_hole = Some(policy.to_string());
        }
        "hedged_reads" => {
            words::parse_on_off(value).ok_or_else(wrong)?;
            into.hedged_reads = Some(value.to_owned());
        }
        "cpus" => into.cpus = Some(value.to_owned()),
        MEMORY_LIMIT | MEMORY_LIMIT_BYTES => {
            into.memory_limit_bytes = Some(memory_limit(key, value)?);
        }
        "shards" => into.shards = Some(number(value).ok_or_else(wrong)?),
        "requests" => into.requests = Some(number(value).ok_or_else(wrong)?),
        REPLACE_AT_WEAR => {
            into.replace_at_wear = Some(match value {
                "off" => 0,
                worn => percent(worn).ok_or_else(wrong)?,
            });
        }
        "pool" => {
            let name: ArrayName = value.parse().map_err(|_| wrong())?;
            into.pool = Some(name.to_string());
        }
        "degraded" => into.degraded = Some(OwnRule::text(OwnRule::parse(value)?)),
        _ => return Err(wrong()),
    }
    Ok(())
}

/// 1 to 100.
fn percent(text: &str) -> Option<u8> {
    text.parse().ok().filter(|n| (1..=100).contains(n))
}

/// Bytes; `auto` is what 0 stands for, and 0 itself only where the unit is in the name.
pub(super) fn memory_limit(key: &str, text: &str) -> Result<u64, Failure> {
    let wrong = || ranges::not_taken(key, text);
    match text {
        AUTO => return Ok(0),
        "0" if key == MEMORY_LIMIT_BYTES => return Ok(0),
        _ => {}
    }
    match size::parse(text) {
        Ok(0) => Err(wrong()),
        Ok(bytes) => Ok(bytes),
        Err(why) => {
            let found = format!("{}; {}", wrong().found, why.found);
            Err(Failure { found, ..wrong() })
        }
    }
}

/// 1 or more; `auto` is what 0 stands for.
pub(super) fn number<T: std::str::FromStr + PartialOrd + Default>(text: &str) -> Option<T> {
    match text {
        AUTO => Some(T::default()),
        text => text.parse().ok().filter(|n| *n > T::default()),
    }
}

pub(super) fn set(context: &Context, name: &str, texts: &[String], dry_run: bool) -> Ended {
    let mut wanted = SettingsJson {
        dry_run,
        ..SettingsJson::default()
    };
    let mut given: Vec<(String, &str)> = Vec::new();
    for setting in texts {
        parse_setting(setting, &mut wanted)?;
        let key = ranges::spoken_name(setting.split('=').next().unwrap_or_default());
        if let Some((_, first)) = given.iter().find(|(other, _)| *other == key) {
            let found = format!("{key} is given twice: {first} and {setting}");
            return Err(Failure::new(Code::SettingInvalid, found).cure("give it once"));
        }
        given.push((key, setting));
    }
    let done: OutcomeJson = match Client::find(&context.dir)? {
        Some(client) => client.call("PATCH", &url(name, "settings")?, &wanted)?,
        None => offline::set(context, name, &wanted)?,
    };
    if dry_run {
        return context.would(&done.array, &format!("set {}", texts.join(" ")));
    }
    let at_once = SettingsJson {
        replace_at_wear: None,
        pool: None,
        degraded: None,
        ..wanted.clone()
    };
    let later = match at_once.places() {
        true => "; cpus, shards, memory_limit and requests hold from the next start on",
        false => "",
    };
    context.outcome(&OutcomeJson {
        what: format!("set {}{later}", texts.join(" ")),
        ..done
    })
}

pub(super) fn get(context: &Context, name: &str, key: Option<&str>) -> Ended {
    let path = url(name, "settings")?;
    let settings: SettingsJson = match Client::find(&context.dir)? {
        Some(client) => client.get(&path)?,
        None => offline::settings(context, name)?,
    };
    let all = serde_json::to_value(&settings).expect("settings are JSON");
    let Some(key) = key else {
        context.say(&settings, |_| {
            let map = all.as_object().into_iter().flatten();
            map.map(|(key, value)| setting(key, value)).collect()
        });
        return Ok(DONE);
    };
    let key = match key {
        LATENCY_TARGET => LATENCY_TARGET_US,
        SPARE_DELAY => SPARE_DELAY_MS,
        MEMORY_LIMIT => MEMORY_LIMIT_BYTES,
        key => key,
    };
    let value = all.get(key).ok_or_else(|| ranges::no_setting(key))?;
    context.say(&serde_json::json!({ key: value }), |_| {
        let line = setting(key, value);
        line.split_once('=')
            .map_or_else(String::new, |(_, value)| value.to_owned())
    });
    Ok(DONE)
}

/// A setting as `set` takes it.
pub(crate) fn setting(key: &str, value: &serde_json::Value) -> String {
    match (key, value.as_u64()) {
        (LATENCY_TARGET_US, Some(us)) => format!("{LATENCY_TARGET}={}\n", size::latency_target(us)),
        (SPARE_DELAY_MS, Some(ms)) => format!("{SPARE_DELAY}={}\n", size::delay(ms)),
        (MEMORY_LIMIT_BYTES, Some(0)) => format!("{MEMORY_LIMIT}={AUTO}\n"),
        (MEMORY_LIMIT_BYTES, Some(bytes)) => format!("{MEMORY_LIMIT}={}\n", size::exact(bytes)),
        (REPLACE_AT_WEAR, Some(0)) => format!("{key}=off\n"),
        ("shards" | "requests", Some(0)) => format!("{key}={AUTO}\n"),
        // Without the quotes that JSON has.
        _ => format!(
            "{key}={}\n",
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_parse_within_their_ranges() {
        let mut into = SettingsJson::default();
        parse_setting("rebuild_priority=100", &mut into).expect("a setting");
        parse_setting("read_error_threshold=7", &mut into).expect("a setting");
        parse_setting("scrub_priority=1", &mut into).expect("a setting");
        parse_setting("init_priority=3", &mut into).expect("a setting");
        assert_eq!(into.init_priority, Some(3));
        assert_eq!((into.scrub_priority, into.resync_priority), (Some(1), None));
        assert_eq!(
            (into.rebuild_priority, into.read_error_threshold),
            (Some(100), Some(7))
        );
        parse_setting("memory_limit_bytes=0", &mut into).expect("a setting");
        assert_eq!(into.memory_limit_bytes, Some(0));
        parse_setting("write_hole=degraded", &mut into).expect("a setting");
        assert_eq!(into.write_hole.as_deref(), Some("degraded"));
        parse_setting("hedged_reads=off", &mut into).expect("a setting");
        assert_eq!(into.hedged_reads.as_deref(), Some("off"));
    }

    #[test]
    fn times_are_taken_and_shown_with_their_unit() {
        let mut into = SettingsJson::default();
        for (text, us) in [
            ("off", 0),
            ("0", 0),
            ("750us", 750),
            ("500us", 500),
            ("1.5ms", 1500),
            ("1.001ms", 1001),
        ] {
            parse_setting(&format!("latency_target={text}"), &mut into).expect("a setting");
            assert_eq!(into.latency_target_us, Some(us));
        }
        parse_setting("latency_target_us=750", &mut into).expect("a setting");
        assert_eq!(into.latency_target_us, Some(750));
        let told = setting("latency_target_us", &serde_json::json!(1500));
        assert_eq!(told, "latency_target=1500us\n");
        for (text, ms) in [
            ("off", 0),
            ("0", 0),
            ("45s", 45_000),
            ("3m", 180_000),
            ("1h30m", 5_400_000),
            ("7d", 604_800_000),
        ] {
            parse_setting(&format!("spare_delay={text}"), &mut into).expect("a setting");
            assert_eq!(into.spare_delay_ms, Some(ms));
        }
        let told = |ms: u64| setting("spare_delay_ms", &serde_json::json!(ms));
        assert_eq!(told(180_000), "spare_delay=3m\n");
        assert_eq!(told(0), "spare_delay=off\n");
    }

    #[test]
    fn a_value_that_a_setting_does_not_take_is_refused_with_what_it_takes() {
        let mut into = SettingsJson::default();
        for wrong in [
            "",
            "x",
            "rebuild_priority",
            "rebuild_priority=0",
            "rebuild_priority=101",
            "resync_priority=0",
            "init_priority=101",
            "latency_target=",
            "latency_target=61s",
            "latency_target=49us",
            "latency_target=1",
            "latency_target=101",
            "latency_target=2000.0",
            "latency_target_us=49",
            "latency_target_us=1e3",
            "memory_limit=0",
            "replace_at_wear=101",
            "shards=x",
            "nothing=1",
            "latency_target=-1ms",
            "latency_target=1h",
            "latency_target=0.5us",
            "latency_target=50.4us",
            "spare_delay=",
            "scrub_schedule=yearly",
            "scrub_at=24:00",
            "scrub_policy=ask",
            "spare_delay=soon",
            "spare_delay=-1s",
            "spare_delay=8d",
            "write_hole=open",
            "hedged_reads=perhaps",
            "degraded=perhaps",
            "degraded=0",
            "degraded=",
        ] {
            let failure = parse_setting(wrong, &mut into).expect_err(wrong);
            assert_eq!(failure.code, Code::SettingInvalid, "{wrong}");
            // One that is known says what it takes.
            let key = wrong.split('=').next().unwrap_or_default();
            if let Some(takes) = ranges::takes(key) {
                assert!(
                    failure.to_string().contains(takes) || key == "degraded",
                    "{failure}"
                );
            }
        }
        let failure = parse_setting("memory_limit=10P", &mut into).expect_err("no such unit");
        assert!(failure.found.ends_with("it is 10240T"), "{failure}");
        let failure = parse_setting("rebuild_priority=101", &mut into).expect_err("too much");
        let said = "error[setting-invalid]: rebuild_priority=101 is not taken: rebuild_priority \
                    takes 1 to 100; give 1 to 100";
        assert_eq!(failure.to_string(), said);
    }

    #[test]
    fn every_setting_says_what_it_takes() {
        let all = serde_json::to_value(SettingsJson::default()).expect("JSON");
        for key in all
            .as_object()
            .expect("an object")
            .keys()
            .filter(|k| *k != "dry_run")
        {
            assert!(ranges::takes(key).is_some(), "{key}");
        }
    }
}

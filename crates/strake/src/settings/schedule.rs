//! When scrubs begin by themselves.
//!
//! The schedule is a setting of the array, and travels with it; the calendar is the machine's. A
//! scrub is due when the last moment of its schedule lies behind us, and no scrub has begun since
//! then: what a machine that was off has missed is made up for, once. Moments that lie ahead, by
//! more than a clock is put right by in passing, are not believed: they were noted by a clock that
//! was wrong.
//!
//! Invariant: a pure function of the settings, what the array tells of its scrubs, and the time.
//! Deliberately absent: how scrubs go on after a restart (`engine::array::jobs`).

use std::time::Duration;

use jiff::civil::Weekday;
use jiff::{ToSpan, ZonedDateTime};
use strake_engine::event::Setting;
use strake_format::{ScrubMode, ScrubPeriod, Superblock};

use crate::api::SettingsJson;
use crate::common::errors::Failure;
use crate::settings as ranges;

/// How often it is looked whether a scrub is due.
pub(crate) const PERIOD: Duration = Duration::from_secs(10);

/// Scrubs that follow one another begin so far apart at least, seconds: an array in which little is
/// written is through in no time.
const APART_S: u64 = 3600;

/// A time of day from minutes after midnight.
pub(crate) fn time_text(minute: u16) -> String {
    format!("{:02}:{:02}", minute / 60, minute % 60)
}

/// Minutes after midnight from `HH:MM`.
pub(crate) fn parse_time(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str, below: u16| {
        let digits =
            !text.is_empty() && text.len() <= 2 && text.bytes().all(|b| b.is_ascii_digit());
        text.parse().ok().filter(|&n: &u16| digits && n < below)
    };
    Some(number(hour, 24)? * 60 + number(minute, 60)?)
}

/// The word of a policy.
pub(crate) fn policy_word(mode: ScrubMode) -> &'static str {
    match mode {
        ScrubMode::Check => "report",
        ScrubMode::Repair => "repair",
        ScrubMode::Halt => "halt",
    }
}

/// The policy of a word.
pub(crate) fn parse_policy(word: &str) -> Option<ScrubMode> {
    let all = [ScrubMode::Check, ScrubMode::Repair, ScrubMode::Halt];
    all.into_iter().find(|&mode| policy_word(mode) == word)
}

/// The period of a word.
pub(crate) fn parse_period(word: &str) -> Option<ScrubPeriod> {
    let mut all = ScrubPeriod::ALL.into_iter();
    all.find(|period| period.as_str() == word)
}

/// What is to be set, of what is said of scrubs.
///
/// # Errors
/// What is no setting.
pub(crate) fn settings(wanted: &SettingsJson) -> Result<Vec<Setting>, Failure> {
    fn read<T>(
        key: &str,
        said: Option<&String>,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, Failure> {
        let Some(said) = said else { return Ok(None) };
        let wrong = || ranges::not_taken(key, said);
        parse(said).ok_or_else(wrong).map(Some)
    }
    let period = read(
        "scrub_schedule",
        wanted.scrub_schedule.as_ref(),
        parse_period,
    )?;
    let minute = read("scrub_at", wanted.scrub_at.as_ref(), parse_time)?;
    let policy = read("scrub_policy", wanted.scrub_policy.as_ref(), parse_policy)?;
    // When and how before whether: no scrub begins at a time that is about to change.
    let all = [
        minute.map(Setting::ScrubMinute),
        policy.map(Setting::ScrubPolicy),
        period.map(Setting::ScrubPeriod),
    ];
    Ok(all.into_iter().flatten().collect())
}

/// Is a scrub to begin now?
pub(crate) fn due(sb: &Superblock, now: &ZonedDateTime) -> bool {
    let (period, minute) = (sb.settings.scrub_period, sb.settings.scrub_minute);
    sb.scrub.is_none()
        && is_due(
            period,
            minute,
            sb.scrub_begun_unix_s,
            sb.created_unix_s,
            now,
        )
}

/// The same where none is under way: the newest began, and the array was made, at these seconds
/// since 1970.
fn is_due(
    period: ScrubPeriod,
    minute: u16,
    begun_s: u64,
    created_s: u64,
    now: &ZonedDateTime,
) -> bool {
    let now_s = u64::try_from(now.timestamp().as_second()).unwrap_or(0);
    // What lies far ahead was noted by a clock that has been set back since: it says nothing of
    // when.
    let believed = |at_s: u64| {
        if at_s <= now_s.saturating_add(APART_S) {
            at_s
        } else {
            0
        }
    };
    let (begun_s, created_s) = (believed(begun_s), believed(created_s));
    match moment(period, minute, now) {
        Some(moment_s) => begun_s.max(created_s) < moment_s,
        None if period == ScrubPeriod::Continuous => now_s.saturating_sub(begun_s) >= APART_S,
        None => false,
    }
}

/// The last moment of the schedule that is not after `now`, seconds since 1970.
fn moment(period: ScrubPeriod, minute: u16, now: &ZonedDateTime) -> Option<u64> {
    let (hour, minute) = ((minute / 60) as i8, (minute % 60) as i8);
    let today = now.date();
    let (day, before) = match period {
        ScrubPeriod::Off | ScrubPeriod::Continuous => return None,
        ScrubPeriod::Daily => (today, 1.day()),
        ScrubPeriod::Weekly => {
            let since_sunday = today.weekday().since(Weekday::Sunday);
            (
                today.checked_sub(i64::from(since_sunday).days()).ok()?,
                1.week(),
            )
        }
        ScrubPeriod::Monthly => (today.first_of_month(), 1.month()),
    };
    let at = |day: jiff::civil::Date| {
        let at = day
            .at(hour, minute, 0, 0)
            .to_zoned_datetime(now.time_zone().clone());
        at.ok().map(|at| at.timestamp())
    };
    let latest = match at(day)? {
        latest if latest <= now.timestamp() => latest,
        _ => at(day.checked_sub(before).ok()?)?,
    };
    u64::try_from(latest.as_second()).ok()
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    /// 2026-11-22 is a Sunday. The rules of Berlin, without its entry in a database.
    fn at(text: &str) -> ZonedDateTime {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("rules");
        let time: jiff::civil::DateTime = text.parse().expect("a time");
        time.to_zoned_datetime(berlin).expect("in range")
    }

    fn unix_s(text: &str) -> u64 {
        at(text).timestamp().as_second() as u64
    }

    #[test]
    fn each_schedule_has_its_last_moment() {
        use ScrubPeriod::{Daily, Monthly, Weekly};
        for (period, now, last) in [
            (Daily, "2026-11-24T12:00", "2026-11-24T03:00"),
            (Daily, "2026-11-24T02:59", "2026-11-23T03:00"),
            (Weekly, "2026-11-24T12:00", "2026-11-22T03:00"),
            (Weekly, "2026-11-22T03:00", "2026-11-22T03:00"),
            (Weekly, "2026-11-22T02:59", "2026-11-15T03:00"),
            (Monthly, "2026-11-24T12:00", "2026-11-01T03:00"),
            (Monthly, "2026-11-01T02:00", "2026-10-01T03:00"),
        ] {
            let moment_s = moment(period, 180, &at(now));
            assert_eq!(moment_s, Some(unix_s(last)), "{period:?} {now}");
        }
    }

    #[test]
    fn a_time_that_the_clocks_leave_out_comes_an_hour_later() {
        // On 2026-03-29 they go from two to three.
        let moment_s = moment(ScrubPeriod::Daily, 150, &at("2026-03-29T12:00"));
        assert_eq!(moment_s, Some(unix_s("2026-03-29T03:30")));
    }

    #[test]
    fn a_scrub_is_due_once_for_each_moment_however_late() {
        let is_due = |period, begun: &str, now: &str| {
            is_due(
                period,
                180,
                unix_s(begun),
                unix_s("2026-11-01T00:00"),
                &at(now),
            )
        };
        use ScrubPeriod::{Continuous, Off, Weekly};
        assert!(is_due(Weekly, "2026-11-15T03:00", "2026-11-22T03:00"));
        assert!(is_due(Weekly, "2026-11-08T03:00", "2026-11-27T18:00"));
        assert!(!is_due(Weekly, "2026-11-22T03:00", "2026-11-22T03:01"));
        assert!(!is_due(Weekly, "2026-11-23T12:00", "2026-11-24T12:00"));
        assert!(is_due(Weekly, "1970-01-01T12:00", "2026-11-24T12:00"));
        // The clock was set back: no year without a scrub, and no scrub twice for a few minutes.
        assert!(is_due(Weekly, "2027-11-23T12:00", "2026-11-24T12:00"));
        assert!(is_due(Continuous, "2027-11-23T12:00", "2026-11-24T12:00"));
        assert!(!is_due(Weekly, "2026-11-22T03:01", "2026-11-22T02:58"));
        // A clock that was never set dates an array that is made today: once it is right, one scrub
        // is due.
        assert!(!is_due(Weekly, "2026-11-24T12:01", "2026-11-24T12:02"));
        assert!(!is_due(Continuous, "2026-11-24T11:30", "2026-11-24T12:00"));
        assert!(is_due(Continuous, "2026-11-24T11:00", "2026-11-24T12:00"));
        assert!(!is_due(Off, "1970-01-01T12:00", "2026-11-24T12:00"));
    }

    #[test]
    fn times_of_day_parse_and_print() {
        assert_eq!(parse_time("03:00"), Some(180));
        assert_eq!(parse_time("23:59"), Some(1439));
        assert_eq!(time_text(65), "01:05");
        for wrong in ["", "3", "24:00", "12:60", "-1:00", "+1:00", "003:00", "a:b"] {
            assert_eq!(parse_time(wrong), None, "{wrong}");
        }
    }
}

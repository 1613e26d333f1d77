//! Times as answers and events have them.

use std::time::{Duration, SystemTime};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::common::size;

/// RFC 3339 in UTC with milliseconds.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    // A clock that was never set is no reason to panic.
    let time = Timestamp::try_from(time.max(SystemTime::UNIX_EPOCH)).unwrap_or(Timestamp::MAX);
    format!("{time:.3}")
}

/// A moment so long after 1970, as it was read from somewhere: at the latest that of which the
/// calendar knows.
pub(crate) fn after_1970(span: Duration) -> SystemTime {
    let last = Timestamp::MAX.as_millisecond().unsigned_abs();
    SystemTime::UNIX_EPOCH + span.min(Duration::from_millis(last))
}

/// Parses a moment in the past: a time span before now (2h, 7d), a time with its offset from UTC
/// (2026-01-31T12:00:00Z), or one of the machine's time zone (2026-01-31, 2026-01-31 12:00).
pub(crate) fn since(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    if let Ok(local) = text.parse::<DateTime>() {
        let time = local.to_zoned_datetime(TimeZone::system());
        return time.map(|time| time.timestamp()).map_err(|e| e.to_string());
    }
    let span = size::duration(text).map_err(|_| {
        format!("'{text}' is neither a time span (2h, 7d) nor a time (2026-01-31 12:00)")
    })?;
    let span = SignedDuration::try_from(span).map_err(|e| e.to_string())?;
    let time = Timestamp::now().checked_sub(span);
    time.map_err(|_| format!("{text} before now is before the calendar begins"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_calendar_has_them() {
        let at = |s| rfc3339(SystemTime::UNIX_EPOCH + Duration::from_millis(s));
        assert_eq!(at(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(1_735_689_599_999), "2024-12-31T23:59:59.999Z");
        assert_eq!(at(1_772_323_200_000), "2026-03-01T00:00:00.000Z");
    }
    #[test]
    fn a_time_that_no_calendar_knows_is_the_last_that_it_does() {
        let last = "9999-12-30T22:00:00.999Z";
        for seconds in [300_000_000_000, i64::MAX as u64, u64::MAX] {
            assert_eq!(rfc3339(after_1970(Duration::from_secs(seconds))), last);
        }
        assert_eq!(
            rfc3339(after_1970(Duration::ZERO)),
            "1970-01-01T00:00:00.000Z"
        );
    }
    #[test]
    fn a_moment_is_a_span_before_now_or_a_time() {
        let now = Timestamp::now();
        let hours = |text: &str| {
            now.duration_since(since(text).expect("a moment"))
                .as_hours()
        };
        assert!((1..=2).contains(&hours("2h")) && (167..=168).contains(&hours("7d")));
        let at = since("2026-01-31T12:00:00+02:00").expect("a moment");
        assert_eq!(at.to_string(), "2026-01-31T10:00:00Z");
        let local: DateTime = "2026-01-31T12:00".parse().expect("a time");
        let local = local
            .to_zoned_datetime(TimeZone::system())
            .expect("it exists");
        assert_eq!(since("2026-01-31 12:00"), Ok(local.timestamp()));
        assert!(since("2026-01-31").is_ok());
        for wrong in ["", "yesterday", "12", "9999999999d"] {
            assert!(since(wrong).is_err(), "{wrong}");
        }
    }
}

//! Times as answers and events have them.

use std::time::SystemTime;

use jiff::Timestamp;

/// RFC 3339 in UTC with milliseconds.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    // A clock that was never set is no reason to panic.
    let time = Timestamp::try_from(time.max(SystemTime::UNIX_EPOCH)).unwrap_or(Timestamp::MAX);
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_written_as_the_calendar_has_them() {
        let at = |s| rfc3339(SystemTime::UNIX_EPOCH + Duration::from_millis(s));
        assert_eq!(at(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(1_735_689_599_999), "2024-12-31T23:59:59.999Z");
        assert_eq!(at(1_772_323_200_000), "2026-03-01T00:00:00.000Z");
    }
}

//! Sizes and rates as people write and read them.
//!
//! Invariant: `parse` takes every spelling that `bytes` prints. K, M, G, T (and KiB …) are powers
//! of 1024, as mdadm and zpool have them; kB, MB, GB, TB are powers of 1000. A number with a point
//! that is no number of bytes, such as 0.1G, is rounded down: to whole blocks of 4 KiB where there
//! is one.

use std::fmt::Display;
use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};
use strake_format::Settings;

use crate::common::errors::{Code, Failure};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Parses a size in bytes.
pub(crate) fn parse(text: &str) -> Result<u64, Failure> {
    let bad = || Failure::new(Code::SizeInvalid, format!("'{text}' is not a size"));
    let trimmed = text.trim();
    let digits = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "K" | "k" | "KiB" => 1 << 10,
        "M" | "m" | "MiB" => 1 << 20,
        "G" | "g" | "GiB" => 1 << 30,
        "T" | "t" | "TiB" => 1 << 40,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        other => return Err(in_terabytes(text, number, other).unwrap_or_else(bad)),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole
            .checked_mul(factor)
            .ok_or_else(|| too_large(text, MAX));
    }
    let fraction: f64 = number.parse().map_err(|_| bad())?;
    let bytes = fraction * factor as f64;
    if bytes >= 9.0e15 {
        // What a binary fraction holds exactly.
        let most = if number.contains('.') {
            "with a point, 8000T"
        } else {
            MAX
        };
        return Err(too_large(text, most));
    }
    let whole = bytes as u64;
    Ok(match bytes.fract() == 0.0 {
        true => whole,
        // A byte has no parts.
        false if factor == 1 => return Err(bad()),
        false if whole >= BLOCK => whole / BLOCK * BLOCK,
        false => whole,
    })
}

/// Of a size in larger units than there are, the same in the largest.
fn in_terabytes(text: &str, number: &str, unit: &str) -> Option<Failure> {
    let (times, largest) = match unit.trim() {
        "P" | "p" | "PiB" => (1 << 10, "T"),
        "E" | "e" | "EiB" => (1 << 20, "T"),
        "PB" => (1_000, "TB"),
        "EB" => (1_000_000, "TB"),
        _ => return None,
    };
    let factor = if largest == "T" {
        1 << 40
    } else {
        1_000_000_000_000
    };
    let digits = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    let number = number.parse::<u64>().ok();
    let same = number.and_then(|number| number.checked_mul(times));
    let Some(same) = same.filter(|same| same.checked_mul(factor).is_some()) else {
        return digits.then(|| too_large(text, MAX));
    };
    let found = format!("'{text}' is in a unit that is not taken: it is {same}{largest}");
    Some(Failure::new(Code::SizeInvalid, found))
}

/// Of every block size that an array has, a multiple.
const BLOCK: u64 = 4096;

/// Less than 2^64 bytes.
const MAX: &str = "16777215T";

fn too_large(text: &str, most: &str) -> Failure {
    let found = format!("'{text}' is too large: a size is at most {most}");
    Failure::new(Code::SizeInvalid, found).cure("give a smaller one")
}

/// Prints a size: exact multiples whole, others with one decimal.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    while unit + 1 < UNITS.len() && n >= 1 << (10 * (unit + 1)) {
        unit += 1;
    }
    let one = 1u64 << (10 * unit);
    if n.is_multiple_of(one) {
        format!("{} {}", n / one, UNITS[unit])
    } else {
        format!("{:.1} {}", n as f64 / one as f64, UNITS[unit])
    }
}

/// Prints a size as `parse` takes it, without rounding.
pub(crate) fn exact(n: u64) -> String {
    const UNITS: [&str; 5] = ["", "K", "M", "G", "T"];
    let whole = |unit: &usize| n.is_multiple_of(1 << (10 * unit)) && n >= 1 << (10 * unit);
    let unit = (0..UNITS.len()).rev().find(whole).unwrap_or(0);
    format!("{}{}", n >> (10 * unit), UNITS[unit])
}

/// Parses a latency target: `off`, 0, or a number with `us`, `ms` or `s`; to a minute.
pub(crate) fn micros(text: &str) -> Option<u32> {
    if matches!(text, "off" | "0") {
        return Some(0);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let factor = match unit {
        "us" | "µs" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    let exact = number.parse::<f64>().ok()? * factor;
    // 1.001 ms is 1000.9999… in binary.
    let us = exact.round();
    let fits = (exact - us).abs() < 1e-6 && us <= f64::from(Settings::LATENCY_TARGET_US_MAX);
    fits.then_some(us as u32)
}

/// Prints a latency target as `micros` takes it.
pub(crate) fn latency_target(us: u64) -> String {
    match us {
        0 => "off".to_owned(),
        us if us.is_multiple_of(1_000_000) => format!("{}s", us / 1_000_000),
        us if us.is_multiple_of(1000) => format!("{}ms", us / 1000),
        us => format!("{us}us"),
    }
}

/// Parses a time span: 45s, 3m, 1h 30m, 7d. A day has 24 hours.
pub(crate) fn duration(text: &str) -> Result<Duration, jiff::Error> {
    let span: Span = text.parse()?;
    let exact = span.to_duration(SpanRelativeTo::days_are_24_hours())?;
    Duration::try_from(exact)
}

/// Parses a time span, with an error for people.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    duration(text).map_err(|_| format!("'{text}' is no time span, as 30s, 24h or 7d"))
}

/// Parses an interval: seconds, also as 500ms or 1m.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    let parsed = match seconds {
        Some(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        None => duration(text).ok(),
    };
    let parsed = parsed.ok_or_else(|| format!("'{text}' is no number of seconds"))?;
    match (Duration::from_millis(100)..=Duration::from_secs(86_400)).contains(&parsed) {
        true => Ok(parsed),
        false => Err("an interval is 0.1 seconds to a day".to_owned()),
    }
}

/// Parses a delay: `off`, or as 45s, 3m, 1h 30m, 7d; to a week.
pub(crate) fn delay_ms(text: &str) -> Option<u32> {
    if matches!(text, "off" | "0") {
        return Some(0);
    }
    let ms = u32::try_from(duration(text).ok()?.as_millis()).ok()?;
    (ms <= Settings::SPARE_DELAY_MS_MAX).then_some(ms)
}

/// Prints a delay as `delay_ms` takes it.
pub(crate) fn delay(ms: u64) -> String {
    match ms {
        0 => "off".to_owned(),
        ms => {
            let (days, rest) = (ms / DAY_MS, ms % DAY_MS);
            let rest = SignedDuration::from_millis(rest as i64);
            match (days, rest.is_zero()) {
                (0, _) => format!("{rest:#}"),
                (days, true) => format!("{days}d"),
                (days, false) => format!("{days}d {rest:#}"),
            }
        }
    }
}

/// Prints a number of things: `1 device`, `2 devices`.
pub(crate) fn count<N: Display + PartialEq + From<u8>>(n: N, thing: &str) -> String {
    match n == N::from(1) {
        true => format!("1 {thing}"),
        false => format!("{n} {thing}s"),
    }
}

/// The form of a verb that goes with a number of things: `is` or `are`.
pub(crate) fn verb<N: PartialEq + From<u8>>(
    n: N,
    one: &'static str,
    many: &'static str,
) -> &'static str {
    if n == N::from(1) { one } else { many }
}

/// Prints a rate.
pub(crate) fn rate(bytes_per_s: u64) -> String {
    format!("{}/s", bytes(bytes_per_s))
}

/// Prints seconds as people say them.
pub(crate) fn seconds(s: u64) -> String {
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        _ => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_binary_and_decimal_units_parse() {
        for (text, n) in [
            ("4096", 4096),
            ("64K", 65536),
            ("64KiB", 65536),
            ("64k", 65536),
            ("1M", 1 << 20),
            ("1.5G", 3 << 29),
            ("2 TiB", 2 << 40),
            ("1kB", 1000),
            ("3GB", 3_000_000_000),
            // Rounded down, where it is no number of bytes.
            ("0.1G", 107_372_544),
            ("20.6 GiB", 22_119_079_936),
            ("0.3K", 307),
            ("0.1GB", 100_000_000),
        ] {
            assert_eq!(parse(text), Ok(n), "{text}");
        }
    }

    #[test]
    fn a_delay_is_printed_as_it_is_taken() {
        for (text, ms, printed) in [
            ("off", 0, "off"),
            ("45s", 45_000, "45s"),
            ("3min", 180_000, "3m"),
            ("90m", 5_400_000, "1h 30m"),
            ("1h 30m", 5_400_000, "1h 30m"),
            ("500ms", 500, "500ms"),
            ("1day", 86_400_000, "1d"),
            ("25h", 90_000_000, "1d 1h"),
            ("1week", 604_800_000, "7d"),
        ] {
            assert_eq!(delay_ms(text), Some(ms), "{text}");
            assert_eq!(delay(u64::from(ms)), printed, "{text}");
        }
        for text in ["", "5", "-3s", "8d", "3 monkeys", "1.5.5h"] {
            assert_eq!(delay_ms(text), None, "{text}");
        }
    }

    #[test]
    fn nonsense_is_not_a_size() {
        let refused = |text: &str| parse(text).expect_err(text);
        for text in ["", "K", "-1", "1X", "0.3", "1e3", "1.2.3M"] {
            assert_eq!(refused(text).code, Code::SizeInvalid, "{text}");
            assert!(refused(text).found.ends_with("is not a size"), "{text}");
        }
        for (text, same) in [("10P", "10240T"), ("5EiB", "5242880T"), ("2PB", "2000TB")] {
            assert!(refused(text).found.ends_with(same), "{text}");
        }
        for text in [
            "99999999999T",
            "18446744073709551616",
            "16777216T",
            "16E",
            "16777216PiB",
            "19EB",
            "99999999999999999999P",
            "99999999999.5T",
        ] {
            assert_eq!(refused(text).code, Code::SizeInvalid, "{text}");
            assert!(refused(text).found.contains("too large"), "{text}");
        }
    }

    #[test]
    fn one_thing_is_not_several() {
        assert_eq!(
            [0, 1, 2].map(|n| count(n, "device")),
            ["0 devices", "1 device", "2 devices"]
        );
    }

    #[test]
    fn what_is_printed_parses_again() {
        for n in [0, 1, 512, 4096, 65536, 1 << 20, 3 << 29, 5 << 40] {
            assert_eq!(parse(&bytes(n)), Ok(n));
        }
        let printed = bytes(20_600_000_000);
        assert!(parse(&printed).is_ok(), "{printed}");
    }

    #[test]
    fn an_interval_is_seconds_and_has_bounds() {
        assert_eq!(interval("2"), Ok(Duration::from_secs(2)));
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("1m"), Ok(Duration::from_secs(60)));
        for wrong in ["0", "-1", "NaN", "x", "1e99", "100000"] {
            let refused = interval(wrong).expect_err(wrong);
            let ours = ["is no number of seconds", "0.1 seconds to a day"];
            assert!(ours.iter().any(|ours| refused.contains(ours)), "{refused}");
        }
    }
}

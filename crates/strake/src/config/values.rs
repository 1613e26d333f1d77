//! Values of `strake.toml` with a range: times, sizes, whole numbers.
//!
//! Invariant: a value outside of its range is never made; the error says the range. Deliberately
//! absent: ranges that depend on other keys.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::common::size;

/// A time of MIN to MAX milliseconds, written as 500ms, 45s or 3m.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time<const MIN: u64, const MAX: u64>(Duration);

/// A size of MIN to MAX bytes, written as 256M.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes<const MIN: u64, const MAX: u64>(u64);

/// A whole number of MIN to MAX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whole<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Time<MIN, MAX> {
    /// As many seconds.
    ///
    /// # Panics
    /// They are outside of the range: a bug, for they are the code's own.
    pub(crate) fn from_secs(seconds: u64) -> Self {
        assert!((MIN..=MAX).contains(&(seconds * 1000)), "in its range");
        Time(Duration::from_secs(seconds))
    }
    pub(crate) fn get(self) -> Duration {
        self.0
    }
}

impl<const MIN: u64, const MAX: u64> Bytes<MIN, MAX> {
    /// As many bytes.
    ///
    /// # Panics
    /// They are outside of the range: a bug, for they are the code's own.
    pub(crate) fn new(bytes: u64) -> Self {
        assert!((MIN..=MAX).contains(&bytes), "in its range");
        Bytes(bytes)
    }
    pub(crate) fn get(self) -> u64 {
        self.0
    }
}

impl<const MIN: u64, const MAX: u64> Whole<MIN, MAX> {
    /// This number.
    ///
    /// # Panics
    /// It is outside of the range: a bug, for it is the code's own.
    pub(crate) fn new(number: u64) -> Self {
        assert!((MIN..=MAX).contains(&number), "in its range");
        Whole(number)
    }
    pub(crate) fn get(self) -> u64 {
        self.0
    }
}

/// Milliseconds as a file has them.
fn time(ms: u64) -> String {
    match ms {
        0 => "0s".to_owned(),
        ms if ms.is_multiple_of(86_400_000) => format!("{}d", ms / 86_400_000),
        ms if ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
        ms if ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
        ms if ms.is_multiple_of(1000) => format!("{}s", ms / 1000),
        ms => format!("{ms}ms"),
    }
}

/// A value that is written as text.
struct Text<T> {
    takes: String,
    make: fn(&str) -> Option<T>,
}

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.takes)
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        let refused = || E::custom(format!("'{text}' is not {}", self.takes));
        (self.make)(text).ok_or_else(refused)
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Time<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let make = |text: &str| {
            let given = size::duration(text).ok()?;
            let ms = u64::try_from(given.as_millis()).ok()?;
            (MIN..=MAX).contains(&ms).then_some(Time(given))
        };
        let takes = format!("a time of {} to {}, as \"45s\"", time(MIN), time(MAX));
        from.deserialize_str(Text { takes, make })
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Bytes<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let make = |text: &str| {
            let given = size::parse(text).ok()?;
            (MIN..=MAX).contains(&given).then_some(Bytes(given))
        };
        let range = [MIN, MAX].map(size::exact).join(" to ");
        let takes = format!("a size of {range}, as \"256M\"");
        from.deserialize_str(Text { takes, make })
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Whole<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let given = i64::deserialize(from)?;
        let fits = u64::try_from(given).ok();
        let fits = fits.filter(|n| (MIN..=MAX).contains(n)).map(Whole);
        let takes = format!("a whole number of {MIN} to {MAX}");
        fits.ok_or_else(|| D::Error::invalid_value(Unexpected::Signed(given), &takes.as_str()))
    }
}

impl<const MIN: u64, const MAX: u64> Serialize for Time<MIN, MAX> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let ms = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        to.serialize_str(&time(ms))
    }
}

impl<const MIN: u64, const MAX: u64> Serialize for Bytes<MIN, MAX> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&size::exact(self.0))
    }
}

impl<const MIN: u64, const MAX: u64> Serialize for Whole<MIN, MAX> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(self.0)
    }
}

macro_rules! schema {
    ($($of:ident: $kind:literal),*) => {
        $(impl<const MIN: u64, const MAX: u64> JsonSchema for $of<MIN, MAX> {
            fn schema_name() -> Cow<'static, str> {
                format!("{}{MIN}To{MAX}", stringify!($of)).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": $kind })
            }
        })*
    };
}

schema!(Time: "string", Bytes: "string", Whole: "integer");

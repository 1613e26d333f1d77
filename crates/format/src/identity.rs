//! Identities and moments: the names and counters that durable structures carry.
//!
//! Invariants: no two bare integers stand for different things side by side; identities are made by
//! the caller (there is no random source here); an [`ArrayName`] is always fit for a device node
//! and a URL.

use std::fmt;
use std::str::FromStr;

use crate::error::{NameError, ParseError};

/// Writes 16 bytes in the hyphenated form 8-4-4-4-12.
fn write_hyphenated(bytes: &[u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            f.write_str("-")?;
        }
        write!(f, "{byte:02x}")?;
    }
    Ok(())
}

/// Reads the hyphenated form, or 32 hexadecimal digits without hyphens.
fn parse_uuid(text: &str) -> Result<[u8; 16], ParseError> {
    let hyphenated = text.len() == 36;
    if !hyphenated && text.len() != 32 {
        return Err(ParseError::Uuid);
    }
    let mut bytes = [0u8; 16];
    let mut digits = 0;
    for (i, c) in text.bytes().enumerate() {
        if hyphenated && matches!(i, 8 | 13 | 18 | 23) {
            if c != b'-' {
                return Err(ParseError::Uuid);
            }
            continue;
        }
        let digit = char::from(c).to_digit(16).ok_or(ParseError::Uuid)? as u8;
        bytes[digits / 2] = bytes[digits / 2] << 4 | digit;
        digits += 1;
    }
    Ok(bytes)
}

macro_rules! uuid_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 16]);

        impl $name {
            /// No identity: nothing ever has it.
            pub const NIL: Self = Self([0; 16]);

            /// Whether this is no identity.
            pub fn is_nil(self) -> bool {
                self == Self::NIL
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hyphenated(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseError;

            fn from_str(text: &str) -> Result<Self, ParseError> {
                parse_uuid(text).map(Self)
            }
        }
    };
}

uuid_type!(
    /// Names an array. Every durable structure carries it, so that leftovers of another array are
    /// never believed.
    ArrayUuid
);
uuid_type!(
    /// Names a member: the drive as this array knows it, wherever it is plugged in.
    MemberUuid
);
uuid_type!(
    /// Names a volume of an array, whatever its name becomes.
    VolumeUuid
);
uuid_type!(
    /// Names a pool of spares, whatever machine the devices are in.
    PoolUuid
);

/// Grows with every change of membership. A write is acknowledged under an epoch only once every
/// live member durably carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u64);

/// Grows with every superblock write, of all members together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Generation(pub u64);

/// A position in the array, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Slot(pub u8);

macro_rules! counter {
    ($name:ident) => {
        impl $name {
            /// The next one.
            ///
            /// # Panics
            /// After 2^64 - 1 steps.
            pub fn next(self) -> Self {
                Self(
                    self.0
                        .checked_add(1)
                        .expect("a 64-bit counter of events does not wrap"),
                )
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

counter!(Epoch);
counter!(Generation);

impl Slot {
    /// The slot as an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// An array's name: 1 to 32 bytes of `[A-Za-z0-9._-]`, the first a letter or digit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArrayName(String);

impl ArrayName {
    /// The longest name, in bytes.
    pub const BYTES_MAX: usize = 32;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ArrayName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ArrayName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl FromStr for ArrayName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.len() > Self::BYTES_MAX {
            return Err(NameError::TooLong { bytes: text.len() });
        }
        let first = text.chars().next().ok_or(NameError::Empty)?;
        if !first.is_ascii_alphanumeric() {
            return Err(NameError::First { found: first });
        }
        let foreign = |c: &char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
        match text.chars().find(foreign) {
            Some(found) => Err(NameError::Character { found }),
            None => Ok(Self(text.to_owned())),
        }
    }
}

impl TryFrom<&str> for ArrayName {
    type Error = NameError;

    fn try_from(text: &str) -> Result<Self, NameError> {
        text.parse()
    }
}

/// How partial stripes are protected against a power cut together with the loss of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum WriteHole {
    /// Every write of a parity level is logged before it goes in place.
    #[default]
    Closed,
    /// Logged only while members are missing.
    Degraded,
    /// Not logged: dirty regions are resynced after an unclean stop.
    Resync,
}

impl fmt::Display for WriteHole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            WriteHole::Closed => "closed",
            WriteHole::Degraded => "degraded",
            WriteHole::Resync => "resync",
        })
    }
}

impl FromStr for WriteHole {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "closed" => Ok(WriteHole::Closed),
            "degraded" => Ok(WriteHole::Degraded),
            "resync" => Ok(WriteHole::Resync),
            _ => Err(ParseError::WriteHole),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_reads_back_what_it_prints() {
        let uuid = ArrayUuid(std::array::from_fn(|i| (i * 17) as u8));
        assert_eq!(uuid.to_string(), "00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(uuid.to_string().parse(), Ok(uuid));
        assert_eq!("00112233445566778899AABBCCDDEEFF".parse(), Ok(uuid));
        for wrong in [
            "",
            "0",
            "00112233-4455-6677-8899_aabbccddeeff",
            "g0112233445566778899aabbccddeeff",
        ] {
            assert_eq!(
                wrong.parse::<MemberUuid>(),
                Err(ParseError::Uuid),
                "{wrong}"
            );
        }
        assert_eq!("é".repeat(16).parse::<MemberUuid>(), Err(ParseError::Uuid));
    }

    #[test]
    fn a_name_is_refused_with_what_is_wrong_about_it() {
        for good in ["a", "data", "0", "A.b_c-9", &"x".repeat(32)] {
            assert_eq!(
                good.parse::<ArrayName>().map(|n| n.to_string()),
                Ok(good.to_owned())
            );
        }
        assert_eq!("".parse::<ArrayName>(), Err(NameError::Empty));
        assert_eq!(
            "x".repeat(33).parse::<ArrayName>(),
            Err(NameError::TooLong { bytes: 33 })
        );
        assert_eq!(
            ".a".parse::<ArrayName>(),
            Err(NameError::First { found: '.' })
        );
        assert_eq!(
            "a/b".parse::<ArrayName>(),
            Err(NameError::Character { found: '/' })
        );
        assert_eq!(
            "aé".parse::<ArrayName>(),
            Err(NameError::Character { found: 'é' })
        );
    }

    #[test]
    fn a_write_hole_policy_reads_back_what_it_prints() {
        for policy in [WriteHole::Closed, WriteHole::Degraded, WriteHole::Resync] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        assert_eq!("open".parse::<WriteHole>(), Err(ParseError::WriteHole));
    }
}

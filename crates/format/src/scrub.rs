//! Scrubs as superblocks tell of them: the one that is not over, and the last that ended.
//!
//! Invariant: what is not there leaves its bytes zero, so that a superblock of an array that was
//! never scrubbed is as an older program writes it. Deliberately absent: when a scrub is due.

use zerocopy::byteorder::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::Invalid;
use crate::superblock::Superblock;

/// What a scrub does with what it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScrubMode {
    /// Tells it, and changes nothing.
    Check,
    /// Rewrites strips that were named as wrong, from those that agree; and sectors that could not
    /// be read.
    Repair,
    /// Tells it, and pauses at the first: so that a person can look before anything else is done.
    Halt,
}

/// How often scrubs begin by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScrubPeriod {
    /// Never.
    Off,
    /// One after the other.
    Continuous,
    /// Every day.
    Daily,
    /// On Sundays.
    Weekly,
    /// On the first day of the month.
    Monthly,
}

impl ScrubPeriod {
    /// All of them, each at the place of its code.
    pub const ALL: [ScrubPeriod; 5] = [
        ScrubPeriod::Off,
        ScrubPeriod::Continuous,
        ScrubPeriod::Daily,
        ScrubPeriod::Weekly,
        ScrubPeriod::Monthly,
    ];

    pub(crate) fn code(self) -> u8 {
        let at = Self::ALL.iter().position(|&period| period == self);
        at.expect("all of them are there") as u8
    }

    pub(crate) fn of_code(code: u8) -> Result<ScrubPeriod, Invalid> {
        let period = Self::ALL.get(usize::from(code)).copied();
        period.ok_or(Invalid::ScrubCode(code))
    }

    /// In a word.
    pub fn as_str(self) -> &'static str {
        match self {
            ScrubPeriod::Off => "off",
            ScrubPeriod::Continuous => "continuous",
            ScrubPeriod::Daily => "daily",
            ScrubPeriod::Weekly => "weekly",
            ScrubPeriod::Monthly => "monthly",
        }
    }
}

/// What a scrub has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ScrubCounts {
    /// Stripes that are inconsistent.
    pub inconsistent: u64,
    /// Those of them in which it is known everywhere which member was wrong.
    pub located: u64,
    /// Stripes that could not be looked at: too few strips could be read.
    pub unreadable: u64,
}

/// A scrub that is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScrubRecord {
    /// What it does with what it finds.
    pub mode: ScrubMode,
    /// It waits until it is told to go on.
    pub paused: bool,
    /// Bytes of each member, from the first, that it has looked at.
    pub done_bytes: u64,
    /// What it has found there.
    pub found: ScrubCounts,
}

/// The last scrub that came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScrubResult {
    /// What it did with what it found.
    pub mode: ScrubMode,
    /// When it began, seconds since 1970.
    pub begun_unix_s: u64,
    /// When it ended.
    pub ended_unix_s: u64,
    /// What it found.
    pub found: ScrubCounts,
}

impl ScrubCounts {
    /// Stripes that are consistent again.
    pub fn repaired(&self, mode: ScrubMode) -> u64 {
        match mode {
            ScrubMode::Check | ScrubMode::Halt => 0,
            ScrubMode::Repair => self.located,
        }
    }
}

impl ScrubMode {
    pub(crate) fn code(self) -> u8 {
        match self {
            ScrubMode::Check => 1,
            ScrubMode::Repair => 2,
            ScrubMode::Halt => 3,
        }
    }

    /// `None` for 0: there is no scrub.
    pub(crate) fn of_code(code: u8) -> Result<Option<ScrubMode>, Invalid> {
        match code {
            0 => Ok(None),
            1 => Ok(Some(ScrubMode::Check)),
            2 => Ok(Some(ScrubMode::Repair)),
            3 => Ok(Some(ScrubMode::Halt)),
            code => Err(Invalid::ScrubCode(code)),
        }
    }
}

/// Counts of a scrub as they lie on the member.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawCounts {
    inconsistent: U64,
    located: U64,
    unreadable: U64,
}

/// Scrubs as they lie on the member.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawScrubs {
    /// A scrub that begins again from the first byte at every restart, and never ends: 0 none, 1 it
    /// checks, 2 it repairs, 3 it halts.
    mode: u8,
    /// 1: it was told to pause.
    paused: u8,
    /// The last one that ended; 0 none.
    last_mode: u8,
    reserved: u8,
    /// A scrub that was stopped begun again at once by its schedule.
    begun_unix_s: U64,
    done_bytes: U64,
    found: RawCounts,
    last_begun_unix_s: U64,
    last_ended_unix_s: U64,
    last_found: RawCounts,
}

impl From<ScrubCounts> for RawCounts {
    fn from(counts: ScrubCounts) -> RawCounts {
        RawCounts {
            inconsistent: counts.inconsistent.into(),
            located: counts.located.into(),
            unreadable: counts.unreadable.into(),
        }
    }
}

impl From<RawCounts> for ScrubCounts {
    fn from(raw: RawCounts) -> ScrubCounts {
        ScrubCounts {
            inconsistent: raw.inconsistent.get(),
            located: raw.located.get(),
            unreadable: raw.unreadable.get(),
        }
    }
}

impl RawScrubs {
    pub(crate) fn put(&mut self, sb: &Superblock) {
        self.fill(
            sb.scrub_begun_unix_s,
            sb.scrub.as_ref(),
            sb.last_scrub.as_ref(),
        );
    }

    fn fill(&mut self, begun: u64, scrub: Option<&ScrubRecord>, last: Option<&ScrubResult>) {
        self.begun_unix_s = begun.into();
        if let Some(scrub) = scrub {
            (self.mode, self.paused) = (scrub.mode.code(), u8::from(scrub.paused));
            self.done_bytes = scrub.done_bytes.into();
            self.found = scrub.found.into();
        }
        if let Some(last) = last {
            self.last_mode = last.mode.code();
            self.last_begun_unix_s = last.begun_unix_s.into();
            self.last_ended_unix_s = last.ended_unix_s.into();
            self.last_found = last.found.into();
        }
    }

    pub(crate) fn scrub(&self) -> Result<Option<ScrubRecord>, Invalid> {
        let Some(mode) = ScrubMode::of_code(self.mode)? else {
            return Ok(None);
        };
        Ok(Some(ScrubRecord {
            mode,
            paused: match self.paused {
                0 => false,
                1 => true,
                code => return Err(Invalid::ScrubCode(code)),
            },
            done_bytes: self.done_bytes.get(),
            found: self.found.into(),
        }))
    }

    /// When the newest one began, seconds since 1970.
    pub(crate) fn begun_unix_s(&self) -> u64 {
        self.begun_unix_s.get()
    }

    pub(crate) fn last(&self) -> Result<Option<ScrubResult>, Invalid> {
        let mode = ScrubMode::of_code(self.last_mode)?;
        Ok(mode.map(|mode| ScrubResult {
            mode,
            begun_unix_s: self.last_begun_unix_s.get(),
            ended_unix_s: self.last_ended_unix_s.get(),
            found: self.last_found.into(),
        }))
    }

    /// A scrub that is not there leaves its bytes alone.
    pub(crate) fn sound(&self) -> bool {
        let mut kept: RawScrubs = zerocopy::FromZeros::new_zeroed();
        let (scrub, last) = (self.scrub(), self.last());
        let (Ok(scrub), Ok(last)) = (scrub, last) else {
            // Said more exactly elsewhere.
            return true;
        };
        kept.fill(self.begun_unix_s.get(), scrub.as_ref(), last.as_ref());
        kept.as_bytes() == self.as_bytes()
    }
}

//! What a user may set on an array: values and their bounds.
//!
//! Invariant: settings that pass [`Settings::check`] are the only ones that are written.
//! Deliberately absent: how they lie on a member (`superblock`).

use crate::error::Invalid;
use crate::scrub::{ScrubMode, ScrubPeriod};

/// What a user may set on a running array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// 1 to 100: how much of the members' time a rebuild may take.
    pub rebuild_priority: u8,
    /// The same for a resync.
    pub resync_priority: u8,
    /// The same for a scrub.
    pub scrub_priority: u8,
    /// The same for data that moves.
    pub restripe_priority: u8,
    /// The same for the zeroing of what was never written.
    pub init_priority: u8,
    /// Background work gives way where more than one request in a hundred takes longer than this,
    /// microseconds; 0: it is not looked at.
    pub latency_target_us: u32,
    /// A member fails at this read error, counted since the start; at least 1.
    pub read_error_threshold: u32,
    /// Reads that their member does not answer in time are asked of the others, too.
    pub hedged_reads: bool,
    /// So long a spare waits for a member that is missing and may come back, milliseconds.
    pub spare_delay_ms: u32,
    /// When scrubs begin by themselves.
    pub scrub_period: ScrubPeriod,
    /// Minutes after midnight, of the time of day where the array is, at which they do.
    pub scrub_minute: u16,
    /// What these do with what they find.
    pub scrub_policy: ScrubMode,
}

/// The default of a priority; zero on the member.
pub(crate) const PRIORITY: u8 = 50;

/// The same for the delay of spares.
pub(crate) const SPARE_DELAY_MS: u32 = 180_000;

/// The same for scrubs that begin by themselves: three in the morning.
pub(crate) const SCRUB_MINUTE: u16 = 180;

impl Settings {
    /// The longest latency target, microseconds: a minute.
    pub const LATENCY_TARGET_US_MAX: u32 = 60_000_000;

    /// The last minute of a day.
    pub const SCRUB_MINUTE_MAX: u16 = 24 * 60 - 1;

    /// The longest delay of spares, milliseconds: a week.
    pub const SPARE_DELAY_MS_MAX: u32 = 7 * 24 * 3_600_000;

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let bad = |priority: &u8| !(1..=100).contains(priority);
        if bad(&self.rebuild_priority) {
            return Err(Invalid::RebuildPriority(self.rebuild_priority));
        }
        let others = [
            self.resync_priority,
            self.scrub_priority,
            self.restripe_priority,
            self.init_priority,
        ];
        if let Some(&priority) = others.iter().find(|p| bad(p)) {
            return Err(Invalid::JobPriority(priority));
        }
        if self.latency_target_us > Self::LATENCY_TARGET_US_MAX {
            return Err(Invalid::LatencyTarget(self.latency_target_us));
        }
        if self.spare_delay_ms > Self::SPARE_DELAY_MS_MAX {
            return Err(Invalid::SpareDelay(self.spare_delay_ms));
        }
        if self.scrub_minute > Self::SCRUB_MINUTE_MAX {
            return Err(Invalid::ScrubMinute(self.scrub_minute));
        }
        match self.read_error_threshold {
            0 => Err(Invalid::ReadErrorThreshold),
            _ => Ok(()),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rebuild_priority: PRIORITY,
            resync_priority: PRIORITY,
            scrub_priority: PRIORITY,
            restripe_priority: PRIORITY,
            init_priority: PRIORITY,
            latency_target_us: 0,
            read_error_threshold: 3,
            hedged_reads: true,
            spare_delay_ms: SPARE_DELAY_MS,
            scrub_period: ScrubPeriod::Off,
            scrub_minute: SCRUB_MINUTE,
            scrub_policy: ScrubMode::Check,
        }
    }
}

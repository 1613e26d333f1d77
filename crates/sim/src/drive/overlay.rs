//! Faults as an overlay over a device's pristine content.
//!
//! Invariant: a fault changes what a device answers, never what it holds; taking the fault away
//! shows the content again.
//!
//! Deliberately absent: deciding which faults are fair. That is `world::fault::tolerance`.

use std::collections::BTreeSet;
use std::ops::Range;

use strake_engine::event::IoError;
use strake_engine::units::Time;

/// How much longer an I/O takes that meets a hiccup.
pub const HICCUP: u64 = 100;

/// A device that is being reset: nothing gets through to it, or back from it.
#[derive(Clone, Copy, Debug)]
pub struct Reset {
    /// Until then.
    pub until: Time,
    /// It lost its power with it, and what its cache had answered. So it answers nothing more until
    /// it is opened again; unless no failure was reported, and all I/Os were retried.
    pub cache_lost: bool,
    /// Something has failed.
    pub hit: bool,
    /// A failure was reported.
    pub told: bool,
}

impl Reset {
    /// Does what ends now fail?
    pub fn fails(&self, now: Time) -> bool {
        now < self.until || self.cache_lost && (self.told || !self.hit)
    }
}

/// What a device suffers from at this moment.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    /// Blocks that cannot be read until they are written.
    pub latent: BTreeSet<u64>,
    /// The device does not answer any more.
    pub gone: bool,
    /// It is about to vanish: all I/Os fail without a cause.
    pub vanishing: bool,
    /// Its medium has failed an I/O since it was there last: a verdict over it may rest on that.
    pub medium_failed: bool,
    /// So many of the next writes fail.
    pub write_errors: u32,
    /// With this error (`None`: the medium's).
    pub write_error: Option<IoError>,
    /// So many of the next flushes fail.
    pub flush_errors: u32,
    /// So many of the next reads fail, although the blocks are readable.
    pub read_errors: u32,
    /// With this error (`None`: the medium's).
    pub read_error: Option<IoError>,
    /// Only reads that begin here fail so (`None`: all).
    pub read_errors_in: Option<Range<u64>>,
    /// So many of the next I/Os time out; they may land later all the same.
    pub stalls: u32,
    /// Latencies are multiplied by this (0 and 1: as usual).
    pub slowness: u32,
    /// Each I/O in flight makes one that comes take so much longer: a device with one arm.
    pub crowding_ns: u64,
    /// One I/O in so many takes [`HICCUP`] times as long (0: none).
    pub hiccup_one_in: u32,
    /// So many of the next I/Os take [`Overlay::pause_ns`] longer, and succeed.
    pub pauses: u32,
    /// That long, nanoseconds.
    pub pause_ns: u64,
    /// Of these I/Os only writes count.
    pub only_writes_pause: bool,
    /// It is being reset, or was.
    pub reset: Option<Reset>,
    /// There is no space for writes that begin here or behind.
    pub full_from: Option<u64>,
}

impl Overlay {
    /// A reset that is over counts as if it had ended so much later, and not after `resumes`: the
    /// time in which threads stood still is none in which tries got through.
    pub fn keep_peace(&mut self, now: Time, ns: u64, resumes: Time) {
        if let Some(reset) = self.reset.as_mut().filter(|reset| reset.until <= now) {
            reset.until = Time(reset.until.0 + ns).min(resumes);
        }
    }
    /// Does it take longer than others by itself, perhaps longer than the deadline?
    pub fn is_slow(&self) -> bool {
        self.slowness > 1 || self.hiccup_one_in > 0 || self.pauses > 0
    }
    /// May a read that begins here be one of those that fail?
    pub fn may_fail_reads_at(&self, offset: u64) -> bool {
        let within = self.read_errors_in.as_ref();
        within.is_none_or(|within| within.contains(&offset))
    }
    /// Is a block of `first..end` unreadable?
    pub fn unreadable(&self, first: u64, end: u64) -> bool {
        self.latent.range(first..end).next().is_some()
    }
    /// The blocks were written: they can be read again.
    pub fn heal(&mut self, first: u64, end: u64) {
        if !self.latent.is_empty() {
            self.latent.retain(|block| !(first..end).contains(block));
        }
    }
    /// Takes one of `count` that are left.
    pub fn take(count: &mut u32) -> bool {
        let any = *count > 0;
        *count = count.saturating_sub(1);
        any
    }
}

/// Kinds of faults, so that a run can leave some out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// Power cut.
    PowerCut,
    /// SIGKILL of the process.
    Kill,
    /// A device vanishes.
    Gone,
    /// A write fails.
    WriteError,
    /// An I/O times out.
    Stall,
    /// A sector cannot be read.
    Latent,
    /// Blocks of data rot.
    Rot,
    /// A write is reported done and never happens.
    LostWrite,
    /// A write lands elsewhere.
    Misdirected,
    /// A lost member is there again after a restart.
    StaleReturn,
    /// A member is not there at a start.
    MissingAtStart,
    /// An administrator's command: fail, remove, add, replace, stop and start of jobs.
    Command,
    /// A device answers slowly.
    Slow,
    /// More is lost than the level survives.
    Beyond,
    /// Nothing gets through to a device for a while.
    Reset,
    /// The machine, a thread, or what lies behind all devices stands still.
    Standstill,
    /// Devices have no space for writes for a while.
    Full,
    /// An image of a member from before lies where the member was.
    OlderImage,
    /// A member lost its content, and kept a copy of its superblock.
    Emptied,
}

impl FaultKind {
    /// Every kind, in a fixed order, with its name on the command line.
    pub const ALL: [(FaultKind, &str); 19] = [
        (FaultKind::PowerCut, "power-cut"),
        (FaultKind::Kill, "kill"),
        (FaultKind::Gone, "gone"),
        (FaultKind::WriteError, "write-error"),
        (FaultKind::Stall, "stall"),
        (FaultKind::Latent, "latent"),
        (FaultKind::Rot, "rot"),
        (FaultKind::LostWrite, "lost-write"),
        (FaultKind::Misdirected, "misdirected"),
        (FaultKind::StaleReturn, "stale-return"),
        (FaultKind::MissingAtStart, "missing-at-start"),
        (FaultKind::Command, "command"),
        (FaultKind::Slow, "slow"),
        (FaultKind::Beyond, "beyond"),
        (FaultKind::Reset, "reset"),
        (FaultKind::Standstill, "standstill"),
        (FaultKind::Full, "full"),
        (FaultKind::OlderImage, "older-image"),
        (FaultKind::Emptied, "emptied"),
    ];
    /// The kind with this name.
    pub fn parse(name: &str) -> Option<FaultKind> {
        let found = FaultKind::ALL.into_iter().find(|(_, known)| *known == name);
        found.map(|(kind, _)| kind)
    }
}

/// A set of fault kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultSet(u32);

impl FaultSet {
    /// Nothing in it.
    pub const NONE: FaultSet = FaultSet(0);
    /// With `kind` in it.
    #[must_use]
    pub fn with(self, kind: FaultKind) -> FaultSet {
        FaultSet(self.0 | 1 << kind as u32)
    }
    /// Is `kind` in it?
    pub fn has(self, kind: FaultKind) -> bool {
        self.0 & (1 << kind as u32) != 0
    }
    /// Names of what is in it, separated by commas.
    pub fn names(self) -> String {
        let kinds = FaultKind::ALL
            .into_iter()
            .filter(|(kind, _)| self.has(*kind));
        kinds.map(|(_, name)| name).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latent_error_is_healed_by_a_write_over_it_and_by_no_other() {
        let mut overlay = Overlay::default();
        overlay.latent.insert(5);
        overlay.heal(0, 5);
        assert!(overlay.unreadable(4, 6));
        overlay.heal(5, 6);
        assert!(!overlay.unreadable(0, 100));
    }

    #[test]
    fn every_kind_is_found_by_its_name() {
        for (kind, name) in FaultKind::ALL {
            assert_eq!(FaultKind::parse(name), Some(kind));
            assert!(FaultSet::NONE.with(kind).has(kind));
        }
    }
}

//! Zeroing of what was never written, in the background (`create --init zero`, `init NAME start`),
//! so that no first write has to wait for it.
//!
//! One region at a time: its rows are zeroed on every live member, piece by piece, as long as each
//! piece as the pace of jobs says; then members flush and the region becomes Clean. It is `Zeroing`
//! as long, so a first write that comes meanwhile waits for it; all that is left is zeroed at once
//! then, and also when the array stops, changes its shape or is rebuilt, for which regions have to
//! come to rest.
//!
//! Where it stands is in no superblock: what was zeroed is not Unwritten any more. That it is to be
//! done is (`zeroing`), until the last one is Clean, durably.
//!
//! Invariants:
//! * No request reads or writes a region before all of it is zero, durably, on every member that
//!   has it. A region that some member lacks is stale.
//! * No region is begun while data moves, or while a resync or a rebuild is at work.
//!
//! Deliberately absent: regions that are discarded behind it. They stay Unwritten.

use strake_format::RegionState;

use crate::array::regions::Phase;
use crate::array::{Array, Purpose, Stage};
use crate::canary::{self, Canary};
use crate::proto::status::HeldBack;
use crate::proto::*;
use crate::units::*;

/// A piece is as large as so many windows of data that moves, at most.
const PIECES: u64 = 16;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Init {
    /// The next region to look at; of so many regions, of so many rows.
    next: u32,
    of: (u32, u64),
    started: Option<Started>,
    region: Option<Zeroed>,
    /// Regions that are zero and not Clean yet, durably.
    landing: Vec<RegionNo>,
    /// What the last piece took and covered, until the pace knows.
    paced: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Started {
    at: Time,
    /// Bytes of each member that were zeroed since then.
    worked: u64,
}

/// The region at work.
#[derive(Debug)]
struct Zeroed {
    region: RegionNo,
    /// The devices that were there when it was begun.
    devices: Vec<DeviceId>,
    /// Bytes of each member that are zero.
    done: u64,
    /// The piece under way: I/Os left, bytes, since when.
    pending: usize,
    bytes: u64,
    since: Time,
}

impl Array {
    /// Has what was never written zeroed from now on.
    pub(crate) fn start_init(&mut self) -> Changed {
        if self.sb.zeroing {
            return Changed::No;
        }
        (self.sb.zeroing, self.init.next) = (true, 0);
        self.persist.touch();
        Changed::Yes
    }

    /// Zeroes no further region.
    pub(crate) fn stop_init(&mut self) -> Changed {
        if !self.sb.zeroing {
            return Changed::No;
        }
        self.sb.zeroing = false;
        if self.init.started.take().is_some() {
            self.out.event(EventKind::JobStopped {
                kind: JobKind::Init,
                cause: StopCause::Asked,
            });
        }
        self.persist.touch();
        Changed::Yes
    }

    /// Something waits for the region at work.
    fn init_hurries(&self, region: RegionNo) -> bool {
        self.map.awaited(region)
            || self.stage != Stage::Serving
            || self.reshape.is_some()
            || !self.sb.zeroing
            || self.rebuilds()
    }

    /// Zeroes the rest of the region at work at once if something waits for it. Every change of
    /// what may wait for it calls this.
    pub(crate) fn hurry_init(&mut self) {
        let idle = self.init.region.as_ref().filter(|at| at.pending == 0);
        let Some(region) = idle.map(|at| at.region) else {
            return;
        };
        if self.stage == Stage::Failed {
            self.init.region = None;
        } else if self.init_hurries(region) {
            self.zero_piece(u64::MAX);
        }
    }

    /// True if it is at work, or has something to do.
    pub(crate) fn drive_init(&mut self) -> bool {
        if let Some(at) = &self.init.region {
            if at.pending == 0 {
                let strip = self.geometry.strip;
                let most = self.window_bytes.saturating_mul(PIECES);
                let wanted = self.jobs.piece_bytes().min(most);
                self.zero_piece((wanted - wanted % strip).max(strip));
            }
            return true;
        }
        if !self.sb.zeroing {
            return false;
        }
        if self.sb.moving.is_some() {
            // What data has left is Unwritten afterwards.
            self.init.next = 0;
            return false;
        }
        let geometry = &self.geometry;
        let of = (geometry.regions(), geometry.region_rows);
        if self.init.of != of {
            // It is there again, or its shape changed.
            (self.init.of, self.init.next) = (of, 0);
            self.init.landing.clear();
        }
        let map = &self.map;
        let lands = |region: &RegionNo| map.phase(*region).becomes_clean();
        self.init.landing.retain(lands);
        let mut left = (self.init.next..of.0).map(RegionNo);
        match left.find(|&region| self.map.phase(region) == Phase::Unwritten) {
            Some(region) => self.begin_init(region),
            None if !self.init.landing.is_empty() => {}
            None => {
                self.end_init();
                return false;
            }
        }
        true
    }

    fn begin_init(&mut self, region: RegionNo) {
        if self.init.started.is_none() {
            let (done, _) = self.init_bytes();
            let (at, worked) = (self.out.now(), 0);
            self.init.started = Some(Started { at, worked });
            self.out.event(EventKind::JobStarted {
                kind: JobKind::Init,
                from_bytes: done,
            });
        }
        self.init.next = region.0 + 1;
        self.init.region = Some(Zeroed {
            region,
            devices: self.table.live(),
            done: 0,
            pending: 0,
            bytes: 0,
            since: self.out.now(),
        });
        self.begin_zeroing(region);
        self.drive_init();
    }

    fn end_init(&mut self) {
        self.sb.zeroing = false;
        self.init.started = None;
        self.out.event(EventKind::JobFinished {
            kind: JobKind::Init,
            inconsistent: 0,
            repaired: 0,
        });
        self.persist.touch();
    }

    /// Zeroes so many bytes more of the region at work on each member that it was begun on and that
    /// is still there.
    fn zero_piece(&mut self, most: u64) {
        let live = self.table.live();
        let at = self.init.region.as_mut().expect("a region is at work");
        let rows = self.geometry.region_rows(at.region);
        let strip = self.geometry.strip;
        let (start, all) = (rows.start * strip, (rows.end - rows.start) * strip);
        let (from, len) = (start + at.done, (all - at.done).min(most));
        at.devices.retain(|device| live.contains(device));
        debug_assert!(
            !at.devices.is_empty(),
            "who comes later is rebuilt after it"
        );
        let devices = at.devices.clone();
        (at.pending, at.bytes, at.since) = (devices.len(), len, self.out.now());
        for device in devices {
            let offset = self.table[&device].layout.data_offset + from;
            let kind = IoKind::WriteZeroes { offset, len };
            self.out.io(device, Purpose::Init { device }, kind);
        }
    }

    /// A piece is zero on one member more.
    pub(crate) fn init_io_done(&mut self) {
        let at = self.init.region.as_mut().expect("a region is at work");
        at.pending -= 1;
        if at.pending > 0 || self.stage == Stage::Failed {
            return;
        }
        at.done += at.bytes;
        let (region, bytes, took_ns) = (at.region, at.bytes, self.out.now().since(at.since));
        let (done, rows) = (at.done, self.geometry.region_rows(region));
        if let Some(started) = &mut self.init.started {
            started.worked += bytes;
        }
        let all = (rows.end - rows.start) * self.geometry.strip;
        if done == all || canary::hit(Canary::InitCutShort) {
            self.init.region = None;
            self.init.landing.push(region);
            self.region_zeroed(region);
        }
        if !self.jobs.busy() && self.reshape.is_none() && self.stage == Stage::Serving {
            self.init.paced = Some((took_ns, bytes));
            self.ask_beside_init(region);
        }
    }

    /// How long the last piece took, and what it covered.
    pub(crate) fn init_paced(&mut self) -> (u64, u64) {
        self.init.paced.take().unwrap_or((0, 0))
    }

    /// Bytes of each member that are zero or were written, and all of them.
    fn init_bytes(&self) -> (u64, u64) {
        let strip = self.geometry.strip;
        let next = self.init.next;
        let at_work = self.init.region.as_ref();
        let done = (0..self.geometry.regions()).map(RegionNo).map(|region| {
            let rows = self.geometry.region_rows(region);
            match at_work.filter(|at| at.region == region) {
                Some(at) => at.done,
                None if region.0 >= next && self.map.state(region) == RegionState::Unwritten => 0,
                None => (rows.end - rows.start) * strip,
            }
        });
        (done.sum(), self.geometry.rows * strip)
    }

    pub(crate) fn init_status(&self) -> Option<JobStatus> {
        if !self.sb.zeroing {
            return None;
        }
        let (done_bytes, total_bytes) = self.init_bytes();
        let rate = |started: Started| {
            let ns = u128::from(self.out.now().since(started.at).max(1));
            (u128::from(started.worked) * 1_000_000_000 / ns) as u64
        };
        let (held_back, foreground_p99_ns) = match self.init.started {
            Some(_) => self.pace_of(StepKind::Init),
            None => (HeldBack::None, None),
        };
        Some(JobStatus {
            kind: JobKind::Init,
            slot: None,
            partial: false,
            done_bytes,
            total_bytes,
            rate_bytes_per_s: self.init.started.map_or(0, rate),
            // It waits for data that moves.
            paused: self.sb.moving.is_some(),
            held_back,
            foreground_p99_ns,
            inconsistent: 0,
            repaired: 0,
        })
    }
}

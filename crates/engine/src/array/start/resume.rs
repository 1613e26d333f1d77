//! A start that finds a whole copy of a window of data that moved (`log::window_image`) ends the
//! window.
//!
//! Order at a start that finds a whole copy:
//! 1. the missing members are durably recorded;
//! 2. every live member that lacks a part of the copy gets all of it, and all are flushed: the next
//!    crash may come with the loss of the members that had it;
//! 3. the window is *written* in the new shape, whatever lies there, and *flushed*;
//! 4. the frontier goes on with the first superblocks of the start.
//!
//! Invariants:
//! * Nothing is written over before a whole copy is durable on every live member.
//! * Until the superblocks tell of the new frontier, they do not tell of another log base either: a
//!   crash in between finds the copy again.

use crate::array::reshape::migrate::{MoveIo, in_new_shape};
use crate::array::{Array, Purpose, Stage};
use crate::canary::{self, Canary};
use crate::geometry::Geometry;
use crate::log::window_image::Copy;
use crate::mem::buffer::{Buf, Slice};
use crate::proto::*;
use crate::units::DeviceId;

/// A window that is written again.
#[derive(Debug)]
pub(crate) struct Resumed {
    copy: Copy,
    /// Devices that have all of it in their own log.
    had: Vec<DeviceId>,
    /// The devices that still lack it.
    to_copy: Vec<DeviceId>,
    pending: usize,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Copying,
    Writing,
    Flushing,
}

impl Resumed {
    /// `had`: devices that have all of the copy in their own log.
    pub(crate) fn of(copy: Copy, had: Vec<DeviceId>) -> Resumed {
        Resumed {
            copy,
            had,
            to_copy: Vec::new(),
            pending: 0,
            phase: Phase::Waiting,
        }
    }
}

impl Array {
    /// An I/O of it came back.
    pub(crate) fn resumed_io_done(&mut self, device: DeviceId, done: &Completion) {
        if let Err(error) = done.result {
            self.write_failed(device, error);
        }
        if let Some(resumed) = &mut self.resumed {
            resumed.pending -= 1;
        }
    }

    /// Goes on with the window that the crash has cut off.
    pub(crate) fn drive_resumed(&mut self) {
        while self.stage == Stage::Resuming {
            let resumed = self
                .resumed
                .as_ref()
                .expect("that is what the stage is for");
            if resumed.pending > 0 || !self.persist.quiet() || self.persist.view_due {
                return;
            }
            match resumed.phase {
                Phase::Waiting => self.begin_copy_of_resumed(),
                Phase::Copying if !resumed.to_copy.is_empty() => self.copy_resumed(),
                Phase::Copying => self.write_resumed(),
                Phase::Writing => self.flush_resumed(),
                Phase::Flushing => return self.end_resumed(),
            }
        }
    }

    fn resumed_io(&mut self, device: DeviceId, kind: IoKind) {
        self.resumed.as_mut().expect("it is under way").pending += 1;
        let io = MoveIo::Write;
        self.out.io(device, Purpose::Move { device, io }, kind);
    }

    /// A device that has the copy keeps it as it is: a power cut could tear all copies at once.
    fn begin_copy_of_resumed(&mut self) {
        let live = self.table.live();
        let resumed = self.resumed.as_mut().expect("it is under way");
        resumed.phase = Phase::Copying;
        let has = |device: &DeviceId| resumed.had.contains(device);
        let (had, lacks): (Vec<DeviceId>, Vec<DeviceId>) = live.into_iter().partition(has);
        if !canary::hit(Canary::ResumedNotSpread) {
            resumed.to_copy = lacks;
        }
        for device in had {
            if self.table[&device].info.volatile_cache {
                self.resumed_io(device, IoKind::Flush);
            }
        }
    }

    fn copy_resumed(&mut self) {
        let mut resumed = self.resumed.take().expect("it is under way");
        let now = resumed
            .copy
            .at_once(self.window_bytes)
            .min(resumed.to_copy.len());
        let now: Vec<DeviceId> = resumed.to_copy.drain(..now).collect();
        let mut ios = Vec::new();
        for device in now {
            let kinds = self.copies_for(&resumed.copy, device).into_iter();
            ios.extend(kinds.map(|kind| (device, kind)));
        }
        self.resumed = Some(resumed);
        for (device, kind) in ios {
            self.resumed_io(device, kind);
        }
    }

    fn write_resumed(&mut self) {
        let resumed = self.resumed.as_mut().expect("it is under way");
        resumed.phase = Phase::Writing;
        let from = resumed.copy.from;
        let columns = in_new_shape(&self.geometry, from, &resumed.copy.data);
        for (device, offset, bytes) in self.puts(from, &columns) {
            let data = Slice::new(Buf::from_bytes(bytes), 0, bytes.len());
            let kind = IoKind::Write {
                offset,
                data,
                fua: false,
                purpose: WritePurpose::Rebuild,
            };
            self.resumed_io(device, kind);
        }
    }

    fn flush_resumed(&mut self) {
        self.resumed.as_mut().expect("it is under way").phase = Phase::Flushing;
        for device in self.table.volatile() {
            self.resumed_io(device, IoKind::Flush);
        }
    }

    fn end_resumed(&mut self) {
        let resumed = self.resumed.take().expect("it is under way");
        if let Some(moving) = &mut self.sb.moving {
            moving.moved_rows = resumed.copy.to;
        }
        self.geometry = std::sync::Arc::new(Geometry::of(&self.sb));
        self.begin_service();
        // Shards were made when the frontier was another. What lay behind it is forgotten when the
        // superblocks are durable, not before.
        self.resplit = true;
        self.persist.view_due = true;
    }
}

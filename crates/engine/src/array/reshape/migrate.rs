//! Data moves to a shape with more data columns, or with other strips of users, while the array
//! serves.
//!
//! A move begins when the superblocks tell of the new shape, with the old one beside it and a
//! frontier of zero. Then it is a sequence of *windows*, each a change at rest as in `reshape`;
//! between them requests and jobs go on, each row in the shape in which it is ([`Geometry`]):
//! 1. the regions that the window writes are open, so Dirty is durable (`Opening`); users go on;
//! 2. shards hold, the map rests, and the log has a new base, as in any change of shape;
//! 3. the window's rows are *read* in the old shape; what a member cannot read is computed from the
//!    others, what cannot be computed is *listed*, durably. Rows that do not agree stop the move;
//! 4. where rows to be written still count in the old shape, a whole *copy* of the window becomes
//!    durable in the log area of every live member, where after (2) nothing else counts;
//! 5. the rows are *written* in the new shape, with parity, and *flushed*;
//! 6. superblocks with the new frontier; then shards go on with the new geometry.
//!
//! With more data columns new rows end before the old ones that still count begin, except for the
//! first ones: only these are copied. With as many every window is. Where source and target were
//! never written nothing is read or written. When nothing is left in the old shape, what the
//! members hold beyond the moved rows becomes part of the array: unwritten, or zeroed where it
//! shares a region with data.
//!
//! A crash finds a whole copy for the frontier and the log base of the superblocks: then the window
//! is written again from it (`resume`). Or none: the old shape still holds the window.
//!
//! Windows are begun only while every slot has a member in sync. One that is lost before (4) ends
//! the window, which is tried again when the array is whole; from (4) on it goes without that
//! member: a copy that was given up would be older than what is written afterwards.
//!
//! Invariants:
//! * A row that counts in the old shape is not written over unless a whole copy of what it holds
//!   is durable on every live member.
//! * The frontier of the superblocks is never ahead of what is durable in place.
//! * A region in which no row counts is Unwritten as far as shards and jobs know, whatever the map
//!   on the members says of it.
//!
//! Deliberately absent: which row an address lies in (`geometry`); the way back (another move).

use std::collections::BTreeSet;
use std::sync::Arc;

use strake_format::SPARES_MAX;
use strake_parity::Code;

use crate::array::metadata::bad_blocks::ListWaiter;
use crate::array::regions::Phase;
use crate::array::reshape::{Change, Step};
use crate::array::{Array, Purpose, Stage};
use crate::canary::{self, Canary};
use crate::geometry::{Geometry, Shape, StripPart};
use crate::log::window_image::{Copy, copy_rows};
use crate::mem::buffer::{Buf, Slice};
use crate::proto::*;
use crate::stats::histogram::Histogram;
use crate::units::*;

/// A window that found a member unable to answer is tried again after this, milliseconds.
const AGAIN_MS: u64 = 1000;

/// What the superblock does not say of a move.
#[derive(Debug, Default)]
pub(crate) struct Move {
    /// The pause between two windows ends.
    pub(crate) next_at: Option<Time>,
    /// Why it does not go on by itself.
    pub(crate) blocked: Option<StopCause>,
    /// When it went on last, and how much it has moved since, bytes.
    started: Time,
    worked: u64,
    /// That it is at work was told.
    told: bool,
    /// There were requests before the window at work.
    beside: bool,
}

/// The rows that move at once.
#[derive(Debug)]
pub(crate) struct Window {
    /// Rows of the new shape: those from `from` to `to` are written. None: the move ends.
    from: u64,
    to: u64,
    /// They are written over rows that count.
    over: bool,
    /// Nothing there was ever written.
    empty: bool,
    begun: Time,
    phase: Doing,
    pending: usize,
    /// Rows of the old shape that hold it, and what each of its slots has there.
    source: u64,
    columns: Vec<Vec<u8>>,
    /// Blocks that could not be read, by slot, counted from the first of `source`.
    bad: BTreeSet<(usize, usize)>,
    /// A member did not answer, and stays.
    unanswered: bool,
    /// What it holds, in the order of addresses.
    data: Vec<u8>,
    /// The devices that still lack the copy of it.
    to_copy: Vec<DeviceId>,
}

/// How far a window has come once the log has its base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Nothing,
    Reading,
    Listing,
    Copying,
    Writing,
    Flushing,
}

/// What an I/O of a window was for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MoveIo {
    /// Bytes of a slot, from this one of the window's source on.
    Read {
        slot: usize,
        at: usize,
        len: usize,
    },
    Write,
}

impl Window {
    fn of(from: u64, to: u64) -> Window {
        Window {
            from,
            to,
            over: false,
            empty: false,
            begun: Time::default(),
            phase: Doing::Nothing,
            pending: 0,
            source: 0,
            columns: Vec::new(),
            bad: BTreeSet::new(),
            unanswered: false,
            data: Vec::new(),
            to_copy: Vec::new(),
        }
    }

    /// It is the last step: all has moved.
    pub(crate) fn ends(&self) -> bool {
        self.from == self.to
    }

    /// It is being copied, or written over rows that count.
    pub(crate) fn is_copied(&self) -> bool {
        self.over
            && matches!(
                self.phase,
                Doing::Copying | Doing::Writing | Doing::Flushing
            )
    }

    /// Nothing of it may be in place, or in the logs.
    pub(crate) fn may_be_given_up(&self) -> bool {
        matches!(self.phase, Doing::Nothing | Doing::Reading | Doing::Listing) || !self.over
    }
}

impl Array {
    fn window(&mut self) -> Option<&mut Window> {
        match self.reshape.as_mut().map(|reshape| &mut reshape.change) {
            Some(Change::Window(window)) => Some(window),
            _ => None,
        }
    }

    // ---- commands ----------------------------------------------------------------------------

    /// The move goes no further, or goes on.
    pub(crate) fn stop_restripe(&mut self, stop: bool) -> Changed {
        let Some(moving) = &mut self.sb.moving else {
            return Changed::No;
        };
        let before = std::mem::replace(&mut moving.stopped, stop);
        let blocked = self.moving.blocked.take_if(|_| !stop).is_some();
        if before == stop && !blocked {
            return Changed::No;
        }
        if stop {
            let (kind, cause) = (JobKind::Restripe, StopCause::Asked);
            self.moving.told = false;
            self.out.event(EventKind::JobStopped { kind, cause });
        }
        self.persist.touch();
        Changed::Yes
    }

    /// It cannot go on by itself.
    fn block_move(&mut self, cause: StopCause) {
        self.moving.blocked = Some(cause);
        self.moving.told = false;
        let kind = JobKind::Restripe;
        self.out.event(EventKind::JobStopped { kind, cause });
    }

    // ---- windows -----------------------------------------------------------------------------

    /// Begins the next window, if its time has come.
    pub(crate) fn drive_moving(&mut self) {
        self.moving.next_at = self.moving.next_at.filter(|&at| at > self.out.now());
        let waits = self.persist.view_due || self.reshape.is_some();
        let going = self.sb.moving.is_some_and(|moving| !moving.stopped);
        let held = self.moving.next_at.is_some() || self.moving.blocked.is_some();
        if self.stage != Stage::Serving || waits || !going || held || !self.in_order() {
            return;
        }
        if !std::mem::replace(&mut self.moving.told, true) {
            (self.moving.started, self.moving.worked) = (self.out.now(), 0);
            let from_bytes = self.geometry.frontier();
            let kind = JobKind::Restripe;
            self.out.event(EventKind::JobStarted { kind, from_bytes });
        }
        // One window may follow the other at once.
        self.sweep();
        let mut window = self.next_window();
        if window.ends() && self.spares_to_be() > SPARES_MAX {
            return;
        }
        window.begun = self.out.now();
        self.begin_window(window);
    }

    /// What moves next.
    fn next_window(&self) -> Window {
        let geometry = &self.geometry;
        let (from, all) = (geometry.new_rows(), geometry.rows_to_move());
        if from >= all {
            return Window::of(from, from);
        }
        let unwritten = self.unwritten_to(from, all);
        if unwritten > from {
            let empty = true;
            return Window {
                empty,
                ..Window::of(from, unwritten)
            };
        }
        let at_once = geometry.rows_at_once();
        let whole = |rows: u64| rows - rows % at_once;
        let row_bytes = geometry.row_columns() * geometry.strip;
        let wanted = whole(self.window_bytes / row_bytes).max(at_once);
        let free = whole(geometry.first_old_row().0 - from);
        let copied = copy_rows(geometry, self.sb.layout.log_bytes);
        let rows = match free >= wanted.min(copied).max(at_once) {
            true => free.min(wanted),
            false => copied.min(wanted).max(at_once),
        };
        let to = (from + rows).min(all);
        let over = to - from > free;
        Window {
            over,
            ..Window::of(from, to)
        }
    }

    /// Up to which row of the new shape nothing was written, neither there nor where the data is.
    fn unwritten_to(&self, from: u64, all: u64) -> u64 {
        let geometry = &self.geometry;
        let unwritten = |row| self.map.phase(geometry.region(Row(row))) == Phase::Unwritten;
        let end_of = |row| geometry.region_rows(geometry.region(Row(row))).end;
        let at_once = geometry.rows_at_once();
        let old_columns = geometry.old_row_columns().expect("data is moving");
        let mut to = from;
        while to < all && unwritten(to) {
            let source = geometry.sources(to, to + at_once);
            if !source.clone().all(unwritten) {
                break;
            }
            // As far as both regions go.
            let by_source = end_of(source.start) * old_columns / geometry.row_columns();
            let both = by_source.min(end_of(to));
            to = (both - both % at_once).max(to + at_once).min(all);
        }
        to
    }

    /// The regions that a window writes: those of its rows, or the one that is longer when the move
    /// has ended.
    fn targets_of(&self, window: &Window) -> Vec<RegionNo> {
        let region = |row| self.geometry.region(Row(row)).0;
        if window.empty {
            return Vec::new();
        }
        if !window.ends() {
            let regions = region(window.from)..=region(window.to - 1);
            return regions.map(RegionNo).collect();
        }
        self.zeroed_at_end()
            .map(|(region, _)| region)
            .into_iter()
            .collect()
    }

    /// What is left of the last region that data has moved to, if any was written there.
    fn zeroed_at_end(&self) -> Option<(RegionNo, std::ops::Range<u64>)> {
        let moved = self.geometry.new_rows();
        let region = self.geometry.region(Row(moved.checked_sub(1)?));
        let rows = moved..self.geometry.region_rows(region).end;
        let written = self.map.phase(region) != Phase::Unwritten;
        (written && !rows.is_empty()).then_some((region, rows))
    }

    /// Has the regions opened that the window writes; true when they are.
    pub(crate) fn open_targets(&mut self) -> bool {
        let window = self
            .window()
            .map(|window| (window.from, window.to, window.empty));
        let Some((from, to, empty)) = window else {
            return true;
        };
        let window = Window {
            empty,
            ..Window::of(from, to)
        };
        let targets = self.targets_of(&window);
        for &region in &targets {
            match self.map.phase(region) {
                // Whatever will count there is written by windows.
                Phase::Unwritten if self.geometry.is_unmapped(region) => self.open_region(region),
                Phase::Unwritten | Phase::Clean => self.region_needed(region),
                _ => {}
            }
        }
        let open = |region: &RegionNo| self.map.phase(*region) == Phase::Open;
        targets.iter().all(open)
    }

    /// Goes on with a window, now that the log has a new base. `Some`: the next step.
    ///
    /// # Errors
    /// It is given up.
    pub(crate) fn drive_window(&mut self) -> Result<Option<Step>, CommandError> {
        let whole = self.in_order();
        let window = self.window().expect("a window is at work");
        let (phase, over, given_up) = (window.phase, window.over, window.may_be_given_up());
        let (empty, ends, unanswered) = (window.empty, window.ends(), window.unanswered);
        if given_up && (!whole || unanswered) {
            return Err(CommandError::NotOptimal);
        }
        match phase {
            Doing::Nothing if ends => self.write_end(),
            Doing::Nothing if empty => {
                self.shorten_empty()?;
                return Ok(Some(self.take_frontier()));
            }
            Doing::Nothing => self.read_window(),
            Doing::Reading => self.judge_window()?,
            Doing::Listing if over && !canary::hit(Canary::MovedWithoutCopy) => self.begin_copy(),
            Doing::Copying if self.is_to_copy() => self.copy_window(),
            Doing::Listing | Doing::Copying => {
                if !self.unreadable.quiet() || self.persist.view_due || !self.persist.quiet() {
                    return Ok(None);
                }
                self.write_window();
            }
            Doing::Writing if canary::hit(Canary::FrontierBeforeRows) => {
                return Ok(Some(self.take_frontier()));
            }
            Doing::Writing => self.flush_window(),
            // A member that did not take it is durably out with the frontier.
            Doing::Flushing => return Ok(Some(self.take_frontier())),
        }
        Ok(self
            .window()
            .is_some_and(|w| w.pending == 0)
            .then_some(Step::Moving))
    }

    /// Users went on until shards held: what was to move without a copy may have been written.
    fn shorten_empty(&mut self) -> Result<(), CommandError> {
        let window = self.window().expect("a window is at work");
        let (from, to) = (window.from, window.to);
        let unwritten = self.unwritten_to(from, to);
        self.window().expect("a window is at work").to = unwritten;
        match unwritten > from {
            true => Ok(()),
            // It is chosen anew.
            false => Err(CommandError::NotOptimal),
        }
    }

    fn doing(&mut self, phase: Doing) {
        self.window().expect("a window is at work").phase = phase;
    }

    fn move_io(&mut self, device: DeviceId, io: MoveIo, kind: IoKind) {
        self.window().expect("a window is at work").pending += 1;
        self.out.io(device, Purpose::Move { device, io }, kind);
    }

    /// Reads what is to move, every column of it: rows that were never written are zeros.
    fn read_window(&mut self) {
        let geometry = Arc::clone(&self.geometry);
        let window = self.window().expect("a window is at work");
        let rows = geometry.sources(window.from, window.to);
        let old = geometry.old_shape.as_ref().expect("data is moving");
        let width = old.groups as usize * old.width;
        let strip = geometry.strip;
        let bytes = ((rows.end - rows.start) * strip) as usize;
        (window.phase, window.source) = (Doing::Reading, rows.start);
        window.columns = vec![vec![0; bytes]; width];
        let written = |row: &u64| self.map.phase(geometry.region(Row(*row))) != Phase::Unwritten;
        let mut runs: Vec<std::ops::Range<u64>> = Vec::new();
        for row in rows.clone().filter(written) {
            match runs.last_mut() {
                Some(run) if run.end == row => run.end += 1,
                _ => runs.push(row..row + 1),
            }
        }
        for run in runs {
            let at = ((run.start - rows.start) * strip) as usize;
            let len = ((run.end - run.start) * strip) as usize;
            (0..width).for_each(|slot| self.read_source(slot, at, len));
        }
    }

    fn read_source(&mut self, slot: usize, at: usize, len: usize) {
        let Some(device) = self.table.slots()[slot].current() else {
            return;
        };
        let window = self.window().expect("a window is at work");
        let first = window.source;
        let offset = self.table[&device].layout.data_offset;
        let offset = offset + first * self.geometry.strip + at as u64;
        let (buf, start) = (Buf::zeroed(len), 0);
        let kind = IoKind::Read {
            offset,
            buf,
            start,
            len,
        };
        self.move_io(device, MoveIo::Read { slot, at, len }, kind);
    }

    /// An I/O of the window came back.
    pub(crate) fn move_io_done(&mut self, device: DeviceId, io: MoveIo, done: Completion) {
        if let (MoveIo::Write, Err(error)) = (io, done.result) {
            self.write_failed(device, error);
        }
        let block = self.geometry.block as usize;
        let Some(window) = self.window() else { return };
        window.pending -= 1;
        let MoveIo::Read { slot, at, len } = io else {
            return;
        };
        match (done.result, done.buf) {
            (Ok(()), Some(buf)) => {
                window.columns[slot][at..at + len].copy_from_slice(&buf.bytes()[..len]);
            }
            (Err(IoError::Media), _) if len == block => {
                window.bad.insert((slot, at / block));
            }
            (Err(IoError::Media), _) => {
                let offset = self.source_offset(device, at);
                self.member_error(device, IoError::Media, false, offset);
                for at in (at..at + len).step_by(block) {
                    self.read_source(slot, at, block);
                }
            }
            (result, _) => {
                window.unanswered = true;
                let offset = self.source_offset(device, at);
                let error = result.err().unwrap_or(IoError::TimedOut);
                self.member_error(device, error, false, offset);
            }
        }
    }

    fn source_offset(&mut self, device: DeviceId, at: usize) -> u64 {
        let first = self.window().map_or(0, |window| window.source);
        let member = self.table.get(device);
        let data = member.map_or(0, |member| member.layout.data_offset);
        data + first * self.geometry.strip + at as u64
    }

    /// Everything is read that can be: computes the rest, and puts it into the order of addresses.
    fn judge_window(&mut self) -> Result<(), CommandError> {
        let geometry = Arc::clone(&self.geometry);
        let window = self.window().expect("a window is at work");
        let (from, to, first) = (window.from, window.to, window.source);
        let mut columns = std::mem::take(&mut window.columns);
        let bad = std::mem::take(&mut window.bad);
        let lost = solve(&geometry, first, &mut columns, &bad);
        let Ok(lost) = lost else {
            self.block_move(StopCause::Inconsistent);
            return Err(CommandError::NotOptimal);
        };
        let data = in_order_of_addresses(&geometry, first, &columns, from, to);
        let window = self.window().expect("a window is at work");
        (window.data, window.phase) = (data, Doing::Listing);
        let counts = |part: &StripPart| !geometry.blocks(part).is_empty();
        let lost: Vec<StripPart> = lost.into_iter().filter(counts).collect();
        if lost.is_empty() {
            return Ok(());
        }
        if self.list_unreadable(&lost, ListWaiter::Moved).is_err() {
            self.block_move(StopCause::ListFull);
            return Err(CommandError::NotOptimal);
        }
        self.window().expect("a window is at work").pending += 1;
        self.write_list_if_due();
        Ok(())
    }

    /// What the window lost is listed, durably.
    pub(crate) fn window_listed(&mut self) {
        if let Some(window) = self.window() {
            window.pending -= 1;
        }
    }

    fn begin_copy(&mut self) {
        let mut devices = self.table.live();
        if canary::hit(Canary::CopyOnOneMember) {
            devices.truncate(1);
        }
        self.window().expect("a window is at work").to_copy = devices;
        self.doing(Doing::Copying);
        self.copy_window();
    }

    fn is_to_copy(&mut self) -> bool {
        self.window()
            .is_some_and(|window| !window.to_copy.is_empty())
    }

    /// The window as a copy in the log areas of as many members as memory is for.
    fn copy_window(&mut self) {
        let (base, window_bytes) = (self.sb.log_base, self.window_bytes);
        let window = self.window().expect("a window is at work");
        let data = std::mem::take(&mut window.data);
        let copy = Copy {
            from: window.from,
            to: window.to,
            base,
            data,
        };
        let mut devices = std::mem::take(&mut window.to_copy);
        let later = devices.split_off(copy.at_once(window_bytes).min(devices.len()));
        for device in devices {
            for kind in self.copies_for(&copy, device) {
                self.move_io(device, MoveIo::Write, kind);
            }
        }
        let window = self.window().expect("a window is at work");
        (window.data, window.to_copy) = (copy.data, later);
    }

    /// What makes the copy durable on a device; nothing where that has left.
    pub(crate) fn copies_for(&self, copy: &Copy, device: DeviceId) -> Vec<IoKind> {
        if !self.table.live().contains(&device) {
            return Vec::new();
        }
        let member = &self.table[&device];
        let fua = member.info.volatile_cache;
        let (array, uuid, epoch) = (self.sb.array, member.member, self.sb.epoch);
        let batches = copy.encode(&self.geometry, &member.layout, array, uuid, epoch);
        let write = |(offset, bytes): (u64, Vec<u8>)| {
            let data = Slice::new(Buf::from_bytes(&bytes), 0, bytes.len());
            IoKind::Write {
                offset,
                data,
                fua,
                purpose: WritePurpose::Log,
            }
        };
        batches.into_iter().map(write).collect()
    }

    /// The rows of the window in the new shape.
    fn write_window(&mut self) {
        self.doing(Doing::Writing);
        let window = self.window().expect("a window is at work");
        let (from, data) = (window.from, std::mem::take(&mut window.data));
        let columns = in_new_shape(&self.geometry, from, &data);
        for (device, offset, bytes) in self.puts(from, &columns) {
            let data = Slice::new(Buf::from_bytes(bytes), 0, bytes.len());
            let kind = IoKind::Write {
                offset,
                data,
                fua: false,
                purpose: WritePurpose::Rebuild,
            };
            self.move_io(device, MoveIo::Write, kind);
        }
    }

    /// Where each slot's part of rows from `from` on goes.
    pub(crate) fn puts<'c>(
        &self,
        from: u64,
        columns: &'c [Vec<u8>],
    ) -> Vec<(DeviceId, u64, &'c [u8])> {
        let slots = self.table.slots().iter().zip(columns);
        let put = |(slot, bytes): (&crate::array::SlotUse, &'c Vec<u8>)| {
            let device = slot.current()?;
            let offset = self.table[&device].layout.data_offset + from * self.geometry.strip;
            Some((device, offset, &bytes[..]))
        };
        slots.filter_map(put).collect()
    }

    /// I/Os of a window are out.
    pub(crate) fn window_waits(&mut self) -> bool {
        self.window().is_some_and(|window| window.pending > 0)
    }

    /// Zeroes what the array will have behind its last row before shards are quiesced: until
    /// superblocks have the new end nothing else touches these rows. True when that is done. What
    /// is first written from now on is zeroed at rest.
    pub(crate) fn end_zeroed(&mut self) -> bool {
        let waits = |window: &&mut Window| window.ends() && window.phase == Doing::Nothing;
        if self.window().as_ref().is_some_and(waits) && self.zeroed_at_end().is_some() {
            self.write_end();
        }
        !self.window_waits()
    }

    /// Zeroes behind the last row, as far as its region goes.
    fn write_end(&mut self) {
        self.doing(Doing::Writing);
        let Some((_, rows)) = self.zeroed_at_end() else {
            return;
        };
        let strip = self.geometry.strip;
        for device in self.table.live() {
            let offset = self.table[&device].layout.data_offset + rows.start * strip;
            let len = (rows.end - rows.start) * strip;
            self.move_io(device, MoveIo::Write, IoKind::WriteZeroes { offset, len });
        }
    }

    fn flush_window(&mut self) {
        self.doing(Doing::Flushing);
        for device in self.table.volatile() {
            self.move_io(device, MoveIo::Write, IoKind::Flush);
        }
    }

    /// The frontier goes on, in memory and then in superblocks.
    fn take_frontier(&mut self) -> Step {
        let window = self.window().expect("a window is at work");
        let (to, ends) = (window.to, window.ends());
        if ends && let Some(step) = self.all_has_left() {
            return step;
        }
        if ends {
            self.sb.moving = None;
        } else if let Some(moving) = &mut self.sb.moving {
            moving.moved_rows = to;
        }
        self.geometry = Arc::new(Geometry::of(&self.sb));
        self.persist.view_due = true;
        self.persist.touch();
        Step::Telling
    }

    /// Regions that nothing is left in are Unwritten, as far as anyone knows. Their pages say so
    /// some time later.
    pub(crate) fn forget_left(&mut self) {
        let regions = (0..self.geometry.regions()).map(RegionNo);
        let left: Vec<RegionNo> = regions
            .filter(|&region| self.geometry.is_unmapped(region))
            .collect();
        left.into_iter().for_each(|region| self.map.forget(region));
    }

    /// What shards served until they held.
    pub(crate) fn served_beside_move(&mut self, foreground: u64, seen: Option<&Histogram>) {
        if self.sb.moving.is_some() {
            self.moving.beside |= foreground > 0;
            self.pace_beside_move(foreground, seen);
        }
    }

    /// A window is over, or was given up.
    pub(crate) fn window_over(&mut self, window: &Window, done: bool) {
        if !done {
            if self.moving.blocked.is_none() && !window.empty {
                self.moving.next_at = Some(self.out.now().plus_ms(AGAIN_MS));
            }
            return;
        }
        if window.ends() {
            self.moving = Move::default();
            self.out.event(EventKind::JobFinished {
                kind: JobKind::Restripe,
                inconsistent: 0,
                repaired: 0,
            });
            return;
        }
        if !window.empty {
            let row_bytes = self.geometry.row_columns() * self.geometry.strip;
            self.moving.worked += (window.to - window.from) * row_bytes;
            let took_ns = self.out.now().since(window.begun);
            if std::mem::take(&mut self.moving.beside) {
                // Not so long ago as the window took: requests waited for it.
                self.pace_beside_move(1, None);
            }
            let member_bytes = (window.to - window.from) * self.geometry.strip;
            let pause_ns = self.pause_after(took_ns, member_bytes);
            self.moving.next_at = (pause_ns > 0).then(|| Time(self.out.now().0 + pause_ns));
        }
    }

    pub(crate) fn move_status(&self) -> Option<JobStatus> {
        let moving = self.sb.moving?;
        let ns = u128::from(self.out.now().since(self.moving.started).max(1));
        let rate = u128::from(self.moving.worked) * 1_000_000_000 / ns;
        let waits = self.moving.blocked.is_some() || !self.in_order();
        let at_work = self.reshape.is_some();
        Some(self.pace_of_move(JobStatus {
            kind: JobKind::Restripe,
            slot: None,
            partial: false,
            done_bytes: self.geometry.frontier(),
            total_bytes: self.geometry.size(),
            rate_bytes_per_s: rate as u64,
            paused: (moving.stopped || waits) && !at_work,
            held_back: HeldBack::None,
            foreground_p99_ns: None,
            inconsistent: 0,
            repaired: 0,
        }))
    }
}

/// The columns that are there agree with each other.
fn agree(code: &Code, there: &[usize], columns: &[Option<&[u8]>], bytes: usize) -> bool {
    let locator = code.locator(there).expect("enough are there");
    let mut syndromes = vec![vec![0; bytes]; locator.syndromes()];
    let mut outputs: Vec<&mut [u8]> = syndromes.iter_mut().map(Vec::as_mut_slice).collect();
    locator.compute(columns, &mut outputs)
}

/// Computes the blocks that could not be read. Gives those of data that cannot be computed: zeros
/// stand for them.
///
/// # Errors
/// Some row does not agree.
fn solve(
    geometry: &Geometry,
    first: u64,
    slots: &mut [Vec<u8>],
    bad: &BTreeSet<(usize, usize)>,
) -> Result<Vec<StripPart>, ()> {
    let strip = geometry.strip as usize;
    let rows = (slots[0].len() / strip) as u64;
    let Shape { width, k, .. } = geometry.columns(geometry.stripe(0, Row(first)));
    let code = Code::new(k, geometry.m).expect("the array's code");
    let mut lost = Vec::new();
    let stripes = geometry.stripes_of_rows(Row(first), Row(first + rows));
    for stripe in stripes.map(StripeNo).filter(|&s| geometry.exists(s)) {
        let row = (geometry.row(stripe).1.0 - first) as usize;
        let slot = |column: usize| geometry.slot(stripe, column).index();
        let blocks = strip / geometry.block as usize;
        let spoilt =
            |column| (0..blocks).any(|at| bad.contains(&(slot(column), row * blocks + at)));
        // Whole strips, where all could be read.
        let any = (0..width).any(spoilt);
        let block = match any {
            false => strip,
            true => geometry.block as usize,
        };
        for at in (row * strip..(row + 1) * strip).step_by(block) {
            let gone = |column: &usize| any && bad.contains(&(slot(*column), at / block));
            let (missing, there): (Vec<usize>, Vec<usize>) = (0..width).partition(gone);
            let piece = |column: usize| &slots[slot(column)][at..at + block];
            if missing.is_empty() {
                let all: Vec<&[u8]> = (0..width).map(piece).collect();
                let (data, stored) = all.split_at(k);
                if geometry.m > 0 && !code.check(data, stored) {
                    return Err(());
                }
                continue;
            }
            if there.len() > k {
                // Redundancy is left: what is computed from strips that do not agree would be their
                // witness.
                let columns: Vec<Option<&[u8]>> = (0..width)
                    .map(|column| there.contains(&column).then(|| piece(column)))
                    .collect();
                if !agree(&code, &there, &columns, block) {
                    return Err(());
                }
            }
            let mut truth = vec![vec![0; block]; missing.len()];
            if missing.len() <= geometry.m {
                let decoder = code.decoder(&there, &missing).expect("enough are there");
                let inputs: Vec<&[u8]> = decoder.sources().iter().map(|&c| piece(c)).collect();
                let mut outputs: Vec<&mut [u8]> = truth.iter_mut().map(Vec::as_mut_slice).collect();
                decoder.decode(&inputs, &mut outputs);
            } else {
                let lo = (at - row * strip) as u64;
                let hi = lo + block as u64;
                lost.extend(missing.iter().filter(|&&c| c < k).map(|&column| StripPart {
                    stripe,
                    column,
                    lo,
                    hi,
                }));
            }
            for (&column, truth) in missing.iter().zip(&truth) {
                slots[slot(column)][at..at + block].copy_from_slice(truth);
            }
        }
    }
    Ok(lost)
}

/// What rows of the new shape hold, from what the slots hold in the old one from row `first` on.
fn in_order_of_addresses(
    geometry: &Geometry,
    first: u64,
    slots: &[Vec<u8>],
    from: u64,
    to: u64,
) -> Vec<u8> {
    let bytes = geometry.row_columns() * geometry.strip;
    let mut data = vec![0; ((to - from) * bytes) as usize];
    let strip = geometry.strip as usize;
    for (at, piece) in data.chunks_exact_mut(strip).enumerate() {
        let offset = from * bytes + (at * strip) as u64;
        if offset >= geometry.size() {
            break;
        }
        let place = geometry.locate(offset);
        let slot = geometry.slot(place.stripe, place.column).index();
        let row = geometry.row(place.stripe).1.0;
        let start = (row - first) as usize * strip;
        piece.copy_from_slice(&slots[slot][start..start + strip]);
    }
    data
}

/// What each slot gets of rows of the new shape, from `from` on.
pub(crate) fn in_new_shape(geometry: &Geometry, from: u64, data: &[u8]) -> Vec<Vec<u8>> {
    let geometry = geometry.after_move();
    let (strip, k) = (geometry.strip as usize, geometry.k);
    let code = Code::new(k, geometry.m).expect("the array's code");
    let row_bytes = geometry.row_columns() as usize * strip;
    let rows = data.len() / row_bytes;
    let mut slots = vec![vec![0; rows * strip]; geometry.slots()];
    let range = |stripe| {
        let row = (geometry.row(stripe).1.0 - from) as usize;
        row * strip..(row + 1) * strip
    };
    for (at, bytes) in data.chunks_exact(strip).enumerate() {
        let place = geometry.locate(from * row_bytes as u64 + (at * strip) as u64);
        let slot = geometry.slot(place.stripe, place.column).index();
        slots[slot][range(place.stripe)].copy_from_slice(bytes);
    }
    if geometry.m == 0 {
        return slots;
    }
    for stripe in geometry.stripes_of_rows(Row(from), Row(from + rows as u64)) {
        let stripe = StripeNo(stripe);
        let slot = |column| geometry.slot(stripe, column).index();
        let mut parity = vec![vec![0; strip]; geometry.m];
        let columns: Vec<&[u8]> = (0..k)
            .map(|column| &slots[slot(column)][range(stripe)])
            .collect();
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        code.generate(&columns, &mut outputs);
        for (column, bytes) in (k..).zip(&parity) {
            slots[slot(column)][range(stripe)].copy_from_slice(bytes);
        }
    }
    slots
}

//! I/Os of members: from the engine to a drive, and back when they end.
//!
//! Invariant: an I/O that does not fit its device, or goes to one that is closed, fails the world.
//!
//! Deliberately absent: what a drive makes of an I/O (`drive`), and which of them are late
//! (`standstill`).

use strake_engine::event::*;
use strake_engine::units::*;
use strake_engine::{Retried, RetryState, Router};
use strake_format::{Layout, checksum};

use crate::drive::{self, OpNo, Owner, Ssd, Timing};
use crate::prng::TraceHash;
use crate::report::words::io_text;
use crate::world::inspect::Look;
use crate::world::{Drive, Happening, SimResult, World};

impl World {
    pub(crate) fn submit_io(&mut self, owner: Owner, mut io: MemberIo) -> SimResult {
        let Some(&index) = self.devices.get(io.device.0 as usize) else {
            return self.failure(format!("I/O to {:?}, which does not exist", io.device));
        };
        if let Err(text) = check_io(&self.drives[index].ssd, &io) {
            return self.failure(format!("{owner:?} to {:?}: {text}", io.device));
        }
        if self.drives[index].device != Some(io.device) {
            return self.failure(format!(
                "{owner:?}: I/O to {:?}, which is closed",
                io.device
            ));
        }
        if let (IoKind::ReadInPlace { request, .. }, Owner::Shard(shard)) = (&io.kind, owner) {
            self.lend(shard, &io, *request)?;
        }
        if let Err(text) = self.check_purpose(index, owner, &io.kind) {
            let text = format!(
                "{owner:?} to {:?}: {text}: {}",
                io.device,
                io_text(&io.kind)
            );
            return self.failure(text);
        }
        self.trace([12, index as u64, io.io.0, io_word(&io.kind)], || {
            format!(
                "{owner:?}: {:?} {:?} {}",
                io.io,
                io.device,
                io_text(&io.kind)
            )
        });
        match owner {
            Owner::Array => self.evidence_stays(index, &io)?,
            Owner::Shard(_) => self.strike_data_write(index, &mut io),
        }
        self.strike_metadata_write(index, &mut io);
        let mut target = index;
        if let Some(mut planted) = self.planted.take() {
            target = planted.strike(self, index, &mut io);
            self.planted = Some(planted);
        }
        if let Some(strip) = self.overlap(index, &io) {
            return self.failure(format!(
                "{owner:?}: two writes of {:?} in flight overlap at {strip}",
                io.device
            ));
        }
        let latencies = self.plan.latencies;
        let drive = &mut self.drives[target];
        let timing = drive
            .ssd
            .submit(owner, io, &latencies, &mut self.chance.latency);
        self.expect(target, timing);
        Ok(())
    }

    /// What a write is said to be agrees with where it lies on its member.
    fn check_purpose(&mut self, index: usize, owner: Owner, kind: &IoKind) -> Result<(), String> {
        let &IoKind::Write { purpose, .. } = kind else {
            return Ok(());
        };
        let (offset, _) = drive::written(kind).expect("a write");
        let ssd = &self.drives[index].ssd;
        let layout = self.superblock.layout;
        let log = layout.log_offset..layout.log_offset + layout.log_bytes;
        let last = Layout::superblock_offsets(ssd.len())[1];
        let fits = match purpose {
            WritePurpose::Metadata => offset < layout.log_offset || offset >= layout.data_offset,
            WritePurpose::Log => log.contains(&offset),
            WritePurpose::Data | WritePurpose::Parity | WritePurpose::Rebuild => {
                (layout.data_offset..last).contains(&offset)
            }
        };
        if !fits {
            return Err(format!("{purpose:?} does not lie there"));
        }
        if matches!(purpose, WritePurpose::Metadata | WritePurpose::Log) {
            return Ok(());
        }
        let geometry = match owner {
            Owner::Array => (**self.machines().array.geometry()).clone(),
            Owner::Shard(shard) => {
                let shard = &self.machines().shards[usize::from(shard)];
                shard.geometry().clone()
            }
        };
        let looks = self.looks();
        let moves = owner == Owner::Array && geometry.old_shape.is_some();
        if purpose == WritePurpose::Rebuild {
            let in_sync = looks.iter().any(|look| look.in_sync == Some(index));
            return match in_sync && !moves {
                true => Err("nothing is rebuilt there, and nothing moves".to_owned()),
                false => Ok(()),
            };
        }
        let serves = |look: &Look| look.in_sync == Some(index) || look.incoming == Some(index);
        let Some(slot) = looks.iter().position(serves) else {
            // It has just gone.
            return Ok(());
        };
        let slot = Slot(slot as u8);
        let row = Row((offset - layout.data_offset) / geometry.strip);
        let stripe = geometry.stripe_in(slot, row);
        let stripe = stripe.ok_or_else(|| format!("{purpose:?} in no stripe"))?;
        let column = geometry.column(stripe, slot).ok_or("in no column")?;
        let parity = column >= geometry.columns(stripe).k && !geometry.mirrored();
        match parity == (purpose == WritePurpose::Parity) {
            true => Ok(()),
            false => Err(format!("{purpose:?} in column {column} of {stripe}")),
        }
    }

    /// Bytes that the flash of all drives has programmed for writes of this purpose; none where
    /// the plan gives drives no flash.
    pub fn programmed(&self, purpose: WritePurpose) -> u64 {
        let of = |drive: &Drive| drive.ssd.wear.programmed(purpose);
        self.drives.iter().map(of).sum()
    }

    /// Puts the end of an I/O on the queue.
    pub(crate) fn expect(&mut self, drive: usize, timing: Timing) {
        let Some(late_ns) = timing.late_ns else {
            return self
                .clock
                .after(timing.done_ns, Happening::Io(drive, timing.op));
        };
        self.clock.after(late_ns, Happening::Io(drive, timing.op));
        self.watch(drive, timing.op, self.clock.now());
    }

    fn overlap(&self, drive: usize, io: &MemberIo) -> Option<u64> {
        let overlaps = self.drives[drive].ssd.overlapping_write(&io.kind);
        overlaps.then(|| drive::written(&io.kind).map_or(0, |(offset, _)| offset))
    }

    pub(crate) fn io_done(&mut self, drive: usize, op: OpNo) -> SimResult {
        if self.is_put_off(drive, op) {
            return Ok(());
        }
        let again = self.doubted(drive, op) || self.interrupted(drive, op);
        if !again && self.waits_for_space(drive, op) {
            return Ok(());
        }
        let retry = self.drives[drive].ssd.retry_of(op).filter(|_| !again);
        let finished = if again {
            self.untrue(drive, op)
        } else {
            self.ended(drive, op)
        };
        let Some(finished) = finished else {
            // A late I/O landed and let go of its buffer.
            return self.poll_shards();
        };
        self.deliver(drive, finished, retry)
    }

    /// An I/O is answered.
    pub(crate) fn deliver(
        &mut self,
        drive: usize,
        (owner, device, completion): (Owner, DeviceId, Completion),
        retry: Option<RetryState>,
    ) -> SimResult {
        self.trace(
            [
                9,
                drive as u64,
                completion.io.0,
                completion.result.is_ok().into(),
            ],
            || {
                format!(
                    "{owner:?}: {:?} of {device:?} {:?}",
                    completion.io, completion.result
                )
            },
        );
        let now = self.clock.now();
        if let Err(error) = completion.result
            && !matches!(error, IoError::Gone | IoError::Transport(_))
        {
            self.stats.io_errors += 1;
            // Perhaps the error that was one too many.
            self.drives[drive].doomed |= self.tolerance().rules.errors_fail_members;
        }
        if let Some(retry) = retry {
            let got_through = completion.result.is_ok();
            let told = Retried {
                device,
                retry,
                got_through,
                ended: now,
            };
            self.stats.retried_through += u64::from(got_through);
            self.array().retried(told);
        }
        match owner {
            Owner::Array => {
                let machines = self.machines();
                machines.array_ios -= 1;
                machines.array.complete(now, completion);
                self.poll_array()
            }
            Owner::Shard(shard) => {
                let completion = self.filled(shard, completion)?;
                let ran = self.ran(owner);
                self.machines().shards[usize::from(shard)].complete(ran, completion);
                self.poll_shard(shard)
            }
        }
    }

    /// Notes which request's place a read fills.
    fn lend(&mut self, shard: u16, io: &MemberIo, piece: RequestId) -> SimResult {
        let IoKind::ReadInPlace { at, len, .. } = io.kind else {
            unreachable!("only a read in place fills one")
        };
        let queue = usize::from(Router::queue_of(piece));
        let machines = self.machines();
        let Some(request) = machines.routers[queue].request_of(piece) else {
            return self.failure("a read in place of a request that was answered");
        };
        let place = (request, at as usize..at as usize + len);
        machines.in_place.insert((shard, io.io.0), place);
        Ok(())
    }

    /// Puts what a read in place has brought into the place of its request, if it was one. A
    /// request is not answered while a device still fills its place.
    fn filled(&mut self, shard: u16, mut completion: Completion) -> SimResult<Completion> {
        let key = (shard, completion.io.0);
        let Some((request, bytes)) = self.machines().in_place.remove(&key) else {
            return Ok(completion);
        };
        let Some(asked) = self.user.asks.get_mut(&request) else {
            let id = request.0;
            return self.failure(format!(
                "request {id} was answered while it was read in place"
            ));
        };
        if let Some(buf) = completion.buf.take() {
            let len = bytes.len();
            asked.place[bytes].copy_from_slice(&buf.bytes()[..len]);
        }
        Ok(completion)
    }

    pub(crate) fn close(&mut self, device: DeviceId) {
        let drive = self.drive_of(device);
        if self.drives[drive].device == Some(device) {
            self.drives[drive].device = None;
        }
    }
}

fn check_io(ssd: &Ssd, io: &MemberIo) -> Result<(), String> {
    let (offset, len) = match &io.kind {
        IoKind::Read {
            offset,
            buf,
            start,
            len,
        } => {
            if start + len > buf.len() {
                return Err(format!(
                    "a read of {len} at {start} of a buffer of {}",
                    buf.len()
                ));
            }
            (*offset, *len as u64)
        }
        IoKind::ReadInPlace { offset, len, .. } => (*offset, *len as u64),
        IoKind::Flush => return Ok(()),
        kind => drive::written(kind).expect("a write"),
    };
    let aligned = offset.is_multiple_of(ssd.block) && len.is_multiple_of(ssd.block);
    if !aligned || len == 0 || offset + len > ssd.len() {
        return Err(format!(
            "{offset}+{len} does not fit the device: {}",
            io_text(&io.kind)
        ));
    }
    Ok(())
}

/// What an I/O is, with the content that it writes, as one number.
fn io_word(kind: &IoKind) -> u64 {
    let words = match kind {
        IoKind::Read { offset, len, .. } => [1, *offset, *len as u64, 0],
        IoKind::ReadInPlace { offset, len, .. } => [2, *offset, *len as u64, 0],
        IoKind::Write {
            offset, data, fua, ..
        } => {
            let sum = checksum::crc32c(data.bytes());
            let what = 3 + u64::from(*fua);
            [what, *offset, data.len as u64, sum.into()]
        }
        IoKind::WriteZeroes { offset, len } => [5, *offset, *len, 0],
        IoKind::Discard { offset, len } => [6, *offset, *len, 0],
        IoKind::Flush => [7, 0, 0, 0],
    };
    let mut hash = TraceHash::default();
    words.into_iter().for_each(|word| hash.add(word));
    hash.value()
}

//! A modelled drive as a member: what of it is kept, and when its I/Os end.
//!
//! Invariant: what lies outside data and log reads as it was written; data and log read as zeros.
//! What is written there is never zeros: no write leaves a block as it is, which costs less than
//! other writes in places, and more in the log.

use std::collections::BTreeMap;
use std::ops::Range;

use strake_engine::event::{Completion, DeviceInfo, IoKind, MemberIo, WritePurpose};
use strake_flash::{Counters, Drive, Op, Spec};
use strake_format::Layout;

const BLOCK: u64 = 4096;

/// See the module.
pub(crate) struct Member {
    pub(crate) drive: Drive,
    bytes: u64,
    unit_bytes: u64,
    handles: u8,
    /// Blocks that are kept, by their number.
    kept: BTreeMap<u64, Box<[u8]>>,
    /// Where nothing is kept.
    empty: Range<u64>,
    /// Where user data and parity lie.
    pub(crate) data: Range<u64>,
}

impl Member {
    pub(crate) fn new(spec: Spec, seed: u64) -> Member {
        let geometry = spec.geometry;
        Member {
            drive: Drive::new(spec, seed),
            bytes: u64::from(geometry.units) * geometry.unit_bytes,
            unit_bytes: geometry.unit_bytes,
            handles: geometry.handles,
            kept: BTreeMap::new(),
            empty: 0..0,
            data: 0..0,
        }
    }

    /// Writes the whole drive once, in order and without time.
    pub(crate) fn condition(&mut self) {
        let flash = self.drive.flash();
        for at in (0..self.bytes).step_by(1 << 20) {
            flash.write(at, (1 << 20).min(self.bytes - at), 0);
        }
    }

    /// Where data and log lie.
    pub(crate) fn lay_out(&mut self, layout: &Layout) {
        self.data = layout.data_offset..layout.data_offset + layout.data_bytes;
        let log = layout.log_offset..layout.log_offset + layout.log_bytes;
        // They lie side by side.
        self.empty = match layout.log_bytes {
            0 => self.data.clone(),
            _ => log.start.min(self.data.start)..log.end.max(self.data.end),
        };
    }

    pub(crate) fn info(&self) -> DeviceInfo {
        DeviceInfo {
            bytes: self.bytes,
            block_bytes: 4096,
            granularity_bytes: self.unit_bytes as u32,
            volatile_cache: false,
            dma: true,
        }
    }

    pub(crate) fn counters(&self) -> &Counters {
        self.drive.counters()
    }

    fn is_kept(&self, offset: u64) -> bool {
        !self.empty.contains(&offset)
    }

    /// Writes without time: an array is made.
    pub(crate) fn poke(&mut self, offset: u64, bytes: &[u8]) {
        if !self.is_kept(offset) {
            return;
        }
        for (at, block) in (offset / BLOCK..).zip(bytes.chunks(BLOCK as usize)) {
            self.kept.insert(at, block.into());
        }
    }

    /// What lies there.
    pub(crate) fn peek(&self, offset: u64, bytes: &mut [u8]) {
        if !self.is_kept(offset) {
            return;
        }
        for (at, block) in (offset / BLOCK..).zip(bytes.chunks_mut(BLOCK as usize)) {
            match self.kept.get(&at) {
                Some(kept) => block.copy_from_slice(&kept[..block.len()]),
                None => block.fill(0),
            }
        }
    }

    /// Carries an I/O out; answers when it ends.
    pub(crate) fn io(&mut self, now: u64, io: MemberIo) -> (u64, Completion) {
        let (end, buf) = match io.kind {
            IoKind::Read {
                offset,
                mut buf,
                start,
                len,
            } => {
                let bytes = &mut buf.bytes_mut()[start..start + len];
                match self.is_kept(offset) {
                    true => self.peek(offset, bytes),
                    false => bytes.fill(0),
                }
                let end = self.drive.submit(now, Op::Read, offset, len as u64);
                (end, Some(buf))
            }
            IoKind::ReadInPlace { offset, len, .. } => {
                (self.drive.submit(now, Op::Read, offset, len as u64), None)
            }
            IoKind::Write {
                offset,
                data,
                purpose,
                ..
            } => {
                if self.is_kept(offset) {
                    self.poke(offset, data.bytes());
                }
                let handle = handle(purpose, self.handles);
                let write = Op::Write { handle };
                (self.drive.submit(now, write, offset, data.len as u64), None)
            }
            IoKind::WriteZeroes { offset, len } | IoKind::Discard { offset, len } => {
                (self.drive.submit(now, Op::Deallocate, offset, len), None)
            }
            IoKind::Flush => (self.drive.submit(now, Op::Flush, 0, 0), None),
        };
        let completion = Completion {
            io: io.io,
            result: Ok(()),
            buf,
        };
        (end, completion)
    }
}

/// The placement handle of a write, on a drive that has so many: what differs most in how long it
/// lives is kept apart first.
fn handle(purpose: WritePurpose, handles: u8) -> u8 {
    let order = [
        WritePurpose::Data,
        WritePurpose::Rebuild,
        WritePurpose::Log,
        WritePurpose::Parity,
        WritePurpose::Metadata,
    ];
    let at = order.iter().position(|one| *one == purpose).unwrap_or(0) as u8;
    match at < handles {
        true => at,
        false => 0,
    }
}

//! The copy of a window of data that moves, in the log areas of the members.
//!
//! A copy is batches of a lane of its own, from the beginning of the log area on: each begins with
//! a record that says which rows, and has a record with the content for strips of these. All name
//! the log base of their window as their operation and the frontier from which it moves, so that no
//! copy is taken for that of another window.
//!
//! Invariant: a copy is believed only if all of it is there, for the frontier and the log base of
//! the superblock that is believed.
//!
//! Deliberately absent: when a copy is needed (`array::reshape::migrate`), and what a start makes
//! of one (`array::start::resume`).

use std::collections::BTreeMap;

use strake_format::*;

use crate::canary::{self, Canary};
use crate::geometry::Geometry;

/// The lane of copies.
pub(crate) const MOVE_LANE: u16 = u16::MAX - 1;
/// Content in one batch, bytes, where it is more than a strip.
const BATCH_CONTENT: u64 = 4 << 20;
/// Copies for several members are in memory at once, of so many windows of the usual size.
const COPIES_AT_ONCE: u64 = 8;
const BLOCK: u64 = 4096;

/// Rows of the new shape, as they will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    /// The frontier before.
    pub(crate) from: u64,
    /// And after.
    pub(crate) to: u64,
    /// The log base of the window.
    pub(crate) base: u64,
    /// Content in the order of addresses.
    pub(crate) data: Vec<u8>,
}

/// Strips in a batch.
fn strips_in_batch(geometry: &Geometry) -> u64 {
    (BATCH_CONTENT / geometry.strip).max(1)
}

/// Bytes of the log that a copy of so many strips takes.
fn bytes_of(geometry: &Geometry, strips: u64) -> u64 {
    let each = strips_in_batch(geometry);
    let batch = |strips: u64| {
        let records = (1 + strips) * log::RECORD_BYTES as u64;
        (log::HEADER_BYTES as u64 + records).next_multiple_of(BLOCK) + strips * geometry.strip
    };
    let rest = strips % each;
    strips / each * batch(each) + if rest > 0 { batch(rest) } else { 0 }
}

/// Rows of which a copy fits into a log of so many bytes: as many as are moved at once.
pub(crate) fn copy_rows(geometry: &Geometry, log_bytes: u64) -> u64 {
    let (columns, at_once) = (geometry.row_columns(), geometry.rows_at_once());
    let times = log_bytes / (columns * geometry.strip) / at_once;
    let mut rows = times * at_once;
    while rows > 0 && bytes_of(geometry, rows * columns) > log_bytes {
        rows -= at_once;
    }
    rows
}

impl Copy {
    /// Members that get it at once, where windows usually have so many bytes: its content is in
    /// memory for each of them.
    pub(crate) fn at_once(&self, window_bytes: u64) -> usize {
        let bytes = COPIES_AT_ONCE * window_bytes;
        (bytes as usize / self.data.len().max(1)).max(1)
    }

    /// The batches of a member, and where they go.
    pub(crate) fn encode(
        &self,
        geometry: &Geometry,
        layout: &Layout,
        array: ArrayUuid,
        member: MemberUuid,
        epoch: Epoch,
    ) -> Vec<(u64, Vec<u8>)> {
        let (strip, k) = (geometry.strip as usize, geometry.row_columns() as usize);
        let record = |stripe, written, payload| LogRecord {
            stripe,
            operation: self.base,
            start: 0,
            len: strip as u32,
            written,
            checksums: Default::default(),
            settled: true,
            payload,
        };
        let strips: Vec<&[u8]> = self.data.chunks_exact(strip).collect();
        let each = strips_in_batch(geometry) as usize;
        let mut offset = layout.log_offset;
        let mut batches = Vec::new();
        for (at, strips) in strips.chunks(each).enumerate() {
            let mut records = vec![record(self.from, self.to, LogPayload::None)];
            for (i, bytes) in strips.iter().enumerate() {
                let index = at * each + i;
                let (row, column) = (self.from + (index / k) as u64, (index % k) as u8);
                let payload = LogPayload::LostStrip {
                    column,
                    bytes: *bytes,
                };
                records.push(record(row, self.from, payload));
            }
            let head = BatchHead {
                array,
                member,
                lane: MOVE_LANE,
                sequence: at as u64 + 1,
                retired_before: 0,
                epoch,
            };
            let mut bytes = vec![0; BatchSize::of(&records).encoded_bytes(BLOCK as u32)];
            head.encode_into(records.iter(), offset, BLOCK as u32, &mut bytes);
            offset += bytes.len() as u64;
            batches.push((offset - bytes.len() as u64, bytes));
        }
        assert!(
            offset <= layout.log_offset + layout.log_bytes,
            "a window's copy fits into the log"
        );
        batches
    }

    /// The copy that counts for this superblock, if all of it is in these logs.
    pub(crate) fn find<'a>(
        sb: &Superblock,
        geometry: &Geometry,
        batches: impl Iterator<Item = &'a LogBatch>,
    ) -> Option<Copy> {
        let from = sb.moving?.moved_rows;
        let (base, strip, k) = (sb.log_base, geometry.strip as usize, geometry.row_columns());
        let ours = batches.filter(|batch| batch.lane == MOVE_LANE);
        let mut to = None;
        let mut strips: BTreeMap<u64, &[u8]> = BTreeMap::new();
        for batch in ours {
            // What is known of the lane alone has none.
            let Some((head, content)) = batch.records.split_first() else {
                continue;
            };
            let named = head.payload == LogPayload::None && head.stripe == from;
            let any = canary::hit(Canary::CopyOfAnyBase);
            if !named || (head.operation != base && !any) || head.written <= from {
                continue;
            }
            to = Some(head.written);
            for record in content {
                if let LogPayload::LostStrip { column, bytes } = &record.payload
                    && bytes.len() == strip
                {
                    strips.insert(record.stripe * k + u64::from(*column), bytes);
                }
            }
        }
        let to = to.filter(|to| *to <= geometry.rows)?;
        let mut data = Vec::with_capacity(((to - from) * k) as usize * strip);
        for index in from * k..to * k {
            data.extend_from_slice(strips.get(&index)?);
        }
        Some(Copy {
            from,
            to,
            base,
            data,
        })
    }
}

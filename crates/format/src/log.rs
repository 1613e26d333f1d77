//! The stripe log.

use crate::error::LogError;
use crate::identity::{ArrayUuid, Epoch, MemberUuid};

/// Records that became durable by one write of one member's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBatch {
    /// The array.
    pub array: ArrayUuid,
    /// The member.
    pub member: MemberUuid,
    /// Which of the writers of the log wrote this: each lane has its own sequence.
    pub lane: u16,
    /// Grows by one with every batch of the lane.
    pub sequence: u64,
    /// Every batch of this lane with a lower sequence is retired: recovery ignores it.
    pub retired_before: u64,
    /// The epoch in which it was written.
    pub epoch: Epoch,
    /// The records.
    pub records: Vec<LogRecord>,
}

/// What is about to be written to one stripe.
///
/// An operation that needs several payloads is several records of one `operation` in one batch; a
/// batch is believed whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The stripe, counted over the array.
    pub stripe: u64,
    /// Names the write, over all members and lanes: the records of one write bear one number, and a
    /// later write of the same stripe bears a higher one.
    pub operation: u64,
    /// Where the written range begins in each strip of the stripe, in bytes.
    pub start: u32,
    /// Bytes of the range in each strip.
    pub len: u32,
    /// Data columns that are written: bit i is column i.
    pub written: u64,
    /// CRC-32C of every logical block (512 or 4096, as the superblock says) of new content in the
    /// range: the written data columns in order, then the parities in order.
    pub checksums: Vec<u32>,
    /// What recovery could not compute from the members.
    pub payload: LogPayload,
}

/// What recovery could not compute from the members.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum LogPayload {
    /// Nothing: the intent alone.
    #[default]
    None,
    /// The sum of what the untouched columns add to a parity, over the range.
    PartialSyndrome {
        /// Which parity, from 0.
        parity: u8,
        /// `len` bytes.
        bytes: Vec<u8>,
    },
    /// The new content of a data column whose member is lost, over the range.
    LostStrip {
        /// Which data column, from 0.
        column: u8,
        /// `len` bytes.
        bytes: Vec<u8>,
    },
}

impl LogBatch {
    /// Bytes that [`LogBatch::encode`] will make: a multiple of `granularity_bytes`.
    pub fn encoded_bytes(&self, granularity_bytes: u32) -> usize {
        let _ = granularity_bytes;
        todo!()
    }

    /// The batch's bytes for the place at `offset` of the member.
    pub fn encode(&self, offset: u64, granularity_bytes: u32) -> Vec<u8> {
        let _ = (offset, granularity_bytes);
        todo!()
    }

    /// The batch that begins with `bytes`, at `offset` of the member, and how many bytes it takes.
    ///
    /// # Errors
    /// Why these bytes cannot be believed.
    pub fn decode(bytes: &[u8], offset: u64) -> Result<(LogBatch, usize), LogError> {
        let _ = (bytes, offset);
        todo!()
    }
}

/// Every batch in a log area, and what is wrong with those that are not whole.
pub fn scan(area: &[u8], area_offset: u64) -> Vec<Result<LogBatch, LogError>> {
    let _ = (area, area_offset);
    todo!()
}

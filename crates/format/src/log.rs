//! The stripe log: what is about to be written, durable before anything of it goes in place.
//!
//! A log area is made of blocks of 4096 bytes. A batch takes whole blocks, wherever its writer puts
//! it: a header with its records, then payload from the next block on, padded to the write
//! granularity. Lanes are writers; how they share the area is the engine's to know, and nothing
//! here depends on it, because every batch names its own place.
//!
//! Invariants:
//! * A decoded batch is whole: one checksum covers header and records, another all that follows up
//!   to its end.
//! * **No block of a batch but the first begins with the magic.** Content that would is *escaped*:
//!   its first eight bytes are zeroed and a bit in the header says so. So the remains of a torn
//!   batch, whatever a user wrote into it, never look like a batch of their own, and a scan may
//!   look at every block.
//! * `decode` and `scan` survive any bytes, and allocate no more than they are given.
//!
//! Deliberately absent: which record wins, and when one is retired (the engine's `log::recover`).

use std::borrow::Cow;
use std::sync::Arc;

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum;
use crate::error::LogError;
use crate::identity::{ArrayUuid, Epoch, MemberUuid};
use crate::layout::STRIP_BYTES_MAX;
use crate::level::Level;
use crate::superblock::MEMBERS_MAX;

/// The longest batch, padding included.
pub const BATCH_BYTES_MAX: usize = BLOCKS_MAX * BLOCK;
/// Bytes of a batch before its first record.
pub const HEADER_BYTES: usize = size_of::<RawHeader>();
/// Bytes of a record without its checksums and its payload.
pub const RECORD_BYTES: usize = size_of::<RawRecord>();

const BLOCK: usize = 4096;
const BLOCKS_MAX: usize = 2048;
const MAGIC: [u8; 8] = *b"STRKLOG\x1a";
const VERSION: u16 = 1;
const CHECKSUM_AT: usize = 12;
/// Ranges are made of logical blocks, and no logical block is smaller.
const SECTOR: u32 = 512;

/// Records that became durable by one write of one member's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBatch<B = Vec<u8>> {
    /// The array.
    pub array: ArrayUuid,
    /// The member.
    pub member: MemberUuid,
    /// Which of the writers of the log wrote this: each lane has its own sequence.
    pub lane: u16,
    /// Grows by one with every batch of the lane.
    pub sequence: u64,
    /// Every record of an operation with a lower number is retired: recovery ignores it.
    pub retired_before: u64,
    /// The epoch in which it was written.
    pub epoch: Epoch,
    /// The records.
    pub records: Vec<LogRecord<B>>,
}

/// What a batch says of itself: a [`LogBatch`] without its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHead {
    /// As [`LogBatch::array`].
    pub array: ArrayUuid,
    /// As [`LogBatch::member`].
    pub member: MemberUuid,
    /// As [`LogBatch::lane`].
    pub lane: u16,
    /// As [`LogBatch::sequence`].
    pub sequence: u64,
    /// As [`LogBatch::retired_before`].
    pub retired_before: u64,
    /// As [`LogBatch::epoch`].
    pub epoch: Epoch,
}

/// How long a batch of some records is, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchSize {
    records: usize,
    payload: usize,
}

/// What is about to be written to one stripe.
///
/// An operation that needs several payloads is several records of one `operation` in one batch; a
/// batch is believed whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord<B = Vec<u8>> {
    /// The stripe, counted over the array.
    pub stripe: u64,
    /// Names the write, over all members and lanes: the records of one write bear one number, and a
    /// later write of the same stripe bears a higher one.
    pub operation: u64,
    /// Where the written range begins in each strip of the stripe, in bytes; a multiple of 512.
    pub start: u32,
    /// Bytes of the range in each strip; a multiple of 512, at least 512, and `start + len` at most
    /// 1 MiB.
    pub len: u32,
    /// Data columns that are written: bit i is column i. None: `checksums` are not checksums, and
    /// say which units of its operation's range hold before the write what they hold after it
    /// (the engine's `log::recover`).
    pub written: u64,
    /// CRC-32C of every logical block (512 or 4096, as the superblock says) of new content in the
    /// range: the written data columns in order, then the parities in order (0 for the blocks of a
    /// parity without a member). Empty in a record if another record of its operation has them.
    /// Where members have smaller sectors than a block, a second record has those of every 512
    /// bytes, in the same order.
    /// Shared: the same record goes to several members.
    pub checksums: Arc<Vec<u32>>,
    /// A recovery wrote this before it replayed the operation: what lies in place may be the state
    /// before the operation, after it, or what the recovery makes of them.
    pub settled: bool,
    /// What recovery could not compute from the members.
    pub payload: LogPayload<B>,
}

/// What recovery could not compute from the members.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum LogPayload<B = Vec<u8>> {
    /// Nothing: the intent alone.
    #[default]
    None,
    /// The sum of what the untouched columns add to a parity, over the range.
    PartialSyndrome {
        /// Which parity, from 0 to 31.
        parity: u8,
        /// `len` bytes.
        bytes: B,
    },
    /// The new content of a data column that lost its member, over the range.
    LostStrip {
        /// Which data column, from 0 to 63.
        column: u8,
        /// `len` bytes.
        bytes: B,
    },
}

impl<B: AsRef<[u8]>> LogPayload<B> {
    /// Code, index and content as they lie on the member.
    fn parts(&self) -> (u8, u8, &[u8]) {
        match self {
            LogPayload::None => (1, 0, &[]),
            LogPayload::PartialSyndrome { parity, bytes } => (2, *parity, bytes.as_ref()),
            LogPayload::LostStrip { column, bytes } => (3, *column, bytes.as_ref()),
        }
    }
}

/// The head of a batch as it lies on the member. Each field names the failure that it defends
/// against.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    /// Something else lies here.
    magic: [u8; 8],
    /// A format of the future.
    version: U16,
    /// Sequences of two writers compared with each other.
    lane: U16,
    /// A torn header: CRC-32C of header and records with this field zero.
    checksum: U32,
    /// Misdirected writes and reads: the byte offset on the member.
    offset: U64,
    /// A leftover of another array.
    array: [u8; 16],
    /// A batch of another member: a copied or swapped drive.
    member: [u8; 16],
    /// An old batch taken for a newer one.
    sequence: U64,
    /// A batch replayed long after its writes were in place, over newer data.
    retired_before: U64,
    /// A batch of a membership that has gone.
    epoch: U64,
    /// A batch cut short; its length in blocks, padding included.
    blocks: U32,
    /// Payload taken for records: bytes of header and records together.
    header_bytes: U32,
    /// Records taken for padding.
    records: U32,
    /// A torn payload: CRC-32C of all that lies behind header and records, padding included.
    payload_checksum: U32,
    /// Room to grow; zero.
    reserved: [u8; 32],
    /// A user's data taken for a batch: bit i of byte i / 8 says that block i lost eight bytes of
    /// magic.
    escaped: [u8; BLOCKS_MAX / 8],
}

/// A record as it lies on the member, followed by its checksums.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRecord {
    /// A resync of everything, where the stripes under write suffice.
    stripe: U64,
    /// Records of two writes of one stripe mixed.
    operation: U64,
    /// A written block taken for an untouched one.
    written: U64,
    /// More marked unreadable than was under write; so for the length.
    start: U32,
    len: U32,
    checksums: U32,
    /// One payload taken for the next.
    payload_bytes: U32,
    /// 1 none, 2 partial syndrome, 3 lost strip.
    payload: u8,
    /// A syndrome used for another parity, a strip for another column.
    index: u8,
    /// A second recovery that takes what the first one made for the state before the operation: 0
    /// no, 1 settled.
    settled: u8,
    /// Room to grow; zero.
    reserved: [u8; 5],
}

const _: () = {
    assert!(size_of::<RawHeader>() == 384);
    assert!(size_of::<RawRecord>() == 48);
    assert!(std::mem::offset_of!(RawHeader, checksum) == CHECKSUM_AT);
    assert!(std::mem::offset_of!(RawHeader, escaped) == 128);
    assert!(BATCH_BYTES_MAX == 8 << 20);
};

impl<B: AsRef<[u8]>> LogRecord<B> {
    /// Bytes that this record takes in a batch, without its payload.
    pub fn record_bytes(&self) -> usize {
        RECORD_BYTES + 4 * self.checksums.len()
    }

    /// Bytes of its payload.
    pub fn payload_bytes(&self) -> usize {
        self.payload.parts().2.len()
    }

    /// Whether all fields make sense together.
    pub fn is_sensible(&self) -> bool {
        let whole = self.start.is_multiple_of(SECTOR) && self.len.is_multiple_of(SECTOR);
        let end = self.start.checked_add(self.len);
        let inside = self.len > 0 && end.is_some_and(|end| end <= STRIP_BYTES_MAX);
        let payload = match &self.payload {
            LogPayload::None => true,
            LogPayload::PartialSyndrome { parity, bytes } => {
                *parity < Level::PARITIES_MAX && bytes.as_ref().len() == self.len as usize
            }
            LogPayload::LostStrip { column, bytes } => {
                usize::from(*column) < MEMBERS_MAX && bytes.as_ref().len() == self.len as usize
            }
        };
        whole && inside && payload
    }

    /// The fixed part as it lies on the member.
    fn to_raw(&self) -> RawRecord {
        let (payload, index, bytes) = self.payload.parts();
        RawRecord {
            stripe: self.stripe.into(),
            operation: self.operation.into(),
            written: self.written.into(),
            start: self.start.into(),
            len: self.len.into(),
            checksums: (self.checksums.len() as u32).into(),
            payload_bytes: (bytes.len() as u32).into(),
            payload,
            index,
            settled: u8::from(self.settled),
            reserved: [0; 5],
        }
    }
}

impl BatchSize {
    /// Of these records.
    pub fn of<'a, B: AsRef<[u8]> + 'a>(
        records: impl IntoIterator<Item = &'a LogRecord<B>>,
    ) -> BatchSize {
        let one = |record: &LogRecord<B>| BatchSize {
            records: record.record_bytes(),
            payload: record.payload_bytes(),
        };
        records
            .into_iter()
            .fold(BatchSize::default(), |all, record| all.with(one(record)))
    }

    /// Of these records and those.
    pub fn with(self, other: BatchSize) -> BatchSize {
        BatchSize {
            records: self.records + other.records,
            payload: self.payload + other.payload,
        }
    }

    /// Bytes of header and records.
    fn header_bytes(self) -> usize {
        HEADER_BYTES + self.records
    }

    /// Bytes of the encoded batch: a multiple of `granularity_bytes`.
    ///
    /// # Panics
    /// If the granularity is no multiple of 4096, or zero.
    pub fn encoded_bytes(self, granularity_bytes: u32) -> usize {
        let granularity = granularity_bytes as usize;
        assert!(
            granularity > 0 && granularity.is_multiple_of(BLOCK),
            "a granularity of whole blocks"
        );
        (self.header_bytes().next_multiple_of(BLOCK) + self.payload).next_multiple_of(granularity)
    }
}

impl BatchHead {
    /// The batch of these records for the place at `offset` of the member, over the beginning of
    /// `out`, whatever that held; answers how many bytes it takes.
    ///
    /// # Panics
    /// If a record is senseless, the batch longer than [`BATCH_BYTES_MAX`] or than `out`, the place
    /// no whole block, or the granularity no multiple of 4096.
    pub fn encode_into<'a, B: AsRef<[u8]> + 'a>(
        &self,
        records: impl Iterator<Item = &'a LogRecord<B>> + Clone,
        offset: u64,
        granularity_bytes: u32,
        out: &mut [u8],
    ) -> usize {
        let size = BatchSize::of(records.clone());
        let total = size.encoded_bytes(granularity_bytes);
        assert!(total <= BATCH_BYTES_MAX, "a batch of {total} bytes");
        assert!(
            offset.is_multiple_of(BLOCK as u64),
            "a batch begins on a block"
        );
        let out = &mut out[..total];
        let (mut at, mut count) = (HEADER_BYTES, 0u32);
        for record in records.clone() {
            assert!(record.is_sensible(), "a senseless record is not logged");
            at = put(out, at, record.to_raw().as_bytes());
            let sums = out[at..at + 4 * record.checksums.len()].chunks_exact_mut(4);
            for (place, checksum) in sums.zip(record.checksums.iter()) {
                place.copy_from_slice(&checksum.to_le_bytes());
            }
            at += 4 * record.checksums.len();
            count += 1;
        }
        let header_bytes = size.header_bytes();
        assert_eq!(at, header_bytes, "the records are as long as they said");
        at = header_bytes.next_multiple_of(BLOCK);
        out[header_bytes..at].fill(0);
        for record in records {
            at = put(out, at, record.payload.parts().2);
        }
        out[at..].fill(0);
        let mut header = self.raw(offset, total, header_bytes, count);
        escape(out, &mut header.escaped);
        header.payload_checksum = checksum::crc32c(&out[header_bytes..]).into();
        put(out, 0, header.as_bytes());
        header.checksum = checksum::sealed(&out[..header_bytes], CHECKSUM_AT).into();
        put(out, 0, header.as_bytes());
        total
    }

    /// The header as it lies on the member, without checksums and escapes.
    fn raw(&self, offset: u64, total: usize, header_bytes: usize, records: u32) -> RawHeader {
        RawHeader {
            magic: MAGIC,
            version: VERSION.into(),
            lane: self.lane.into(),
            checksum: 0.into(),
            offset: offset.into(),
            array: self.array.0,
            member: self.member.0,
            sequence: self.sequence.into(),
            retired_before: self.retired_before.into(),
            epoch: self.epoch.0.into(),
            blocks: ((total / BLOCK) as u32).into(),
            header_bytes: (header_bytes as u32).into(),
            records: records.into(),
            payload_checksum: 0.into(),
            reserved: [0; 32],
            escaped: [0; BLOCKS_MAX / 8],
        }
    }
}

impl<B: AsRef<[u8]>> LogBatch<B> {
    /// Everything but the records.
    pub fn head(&self) -> BatchHead {
        BatchHead {
            array: self.array,
            member: self.member,
            lane: self.lane,
            sequence: self.sequence,
            retired_before: self.retired_before,
            epoch: self.epoch,
        }
    }

    /// Bytes that [`LogBatch::encode`] will make: a multiple of `granularity_bytes`.
    ///
    /// # Panics
    /// If the granularity is no multiple of 4096, or zero.
    pub fn encoded_bytes(&self, granularity_bytes: u32) -> usize {
        BatchSize::of(&self.records).encoded_bytes(granularity_bytes)
    }

    /// The batch's bytes for the place at `offset` of the member.
    ///
    /// # Panics
    /// As [`BatchHead::encode_into`].
    pub fn encode(&self, offset: u64, granularity_bytes: u32) -> Vec<u8> {
        let mut bytes = vec![0; self.encoded_bytes(granularity_bytes)];
        self.encode_into(offset, granularity_bytes, &mut bytes);
        bytes
    }

    /// As [`LogBatch::encode`], over the first [`LogBatch::encoded_bytes`] of `out`, whatever they
    /// held; answers how many that are.
    ///
    /// # Panics
    /// As [`BatchHead::encode_into`].
    pub fn encode_into(&self, offset: u64, granularity_bytes: u32, out: &mut [u8]) -> usize {
        let records = self.records.iter();
        self.head()
            .encode_into(records, offset, granularity_bytes, out)
    }
}

impl LogBatch {
    /// The batch that begins with `bytes`, at `offset` of the member, and how many bytes it takes.
    ///
    /// # Errors
    /// Why these bytes cannot be believed.
    pub fn decode(bytes: &[u8], offset: u64) -> Result<(LogBatch, usize), LogError> {
        let short = |needed: usize| LogError::Short {
            offset,
            needed: needed as u64,
            bytes: bytes.len() as u64,
        };
        let (header, _) = RawHeader::ref_from_prefix(bytes).map_err(|_| short(HEADER_BYTES))?;
        if header.magic != MAGIC {
            return Err(LogError::NotLog { offset });
        }
        let header_bytes = header.header_bytes.get() as usize;
        if !(HEADER_BYTES..=BATCH_BYTES_MAX).contains(&header_bytes) {
            return Err(LogError::TornHeader { offset });
        }
        let sealed = bytes.get(..header_bytes).ok_or(short(header_bytes))?;
        if checksum::sealed(sealed, CHECKSUM_AT) != header.checksum.get() {
            return Err(LogError::TornHeader { offset });
        }
        if header.version.get() != VERSION {
            return Err(LogError::Version {
                offset,
                version: header.version.get(),
            });
        }
        if header.offset.get() != offset {
            return Err(LogError::Misplaced {
                offset,
                named: header.offset.get(),
            });
        }
        let blocks = header.blocks.get() as usize;
        let invalid = LogError::Invalid {
            offset,
            record: header.records.get(),
        };
        if blocks > BLOCKS_MAX || header_bytes > blocks * BLOCK || header.reserved != [0; 32] {
            return Err(invalid);
        }
        let whole = bytes.get(..blocks * BLOCK).ok_or(short(blocks * BLOCK))?;
        if checksum::crc32c(&whole[header_bytes..]) != header.payload_checksum.get() {
            return Err(LogError::TornPayload { offset });
        }
        let content = unescape(whole, &header.escaped).ok_or(invalid)?;
        let records = header.parse_records(&content, offset)?;
        Ok((header.batch(records), whole.len()))
    }
}

impl RawHeader {
    /// The batch with these records.
    fn batch(&self, records: Vec<LogRecord>) -> LogBatch {
        LogBatch {
            array: ArrayUuid(self.array),
            member: MemberUuid(self.member),
            lane: self.lane.get(),
            sequence: self.sequence.get(),
            retired_before: self.retired_before.get(),
            epoch: Epoch(self.epoch.get()),
            records,
        }
    }

    /// The records of a batch that is whole; they fill the header exactly, and their payloads leave
    /// only padding.
    fn parse_records(&self, content: &[u8], offset: u64) -> Result<Vec<LogRecord>, LogError> {
        let header_bytes = self.header_bytes.get() as usize;
        let mut left = &content[HEADER_BYTES..header_bytes];
        let payload_at = header_bytes.next_multiple_of(BLOCK).min(content.len());
        let (gap, mut payload) = (&content[header_bytes..payload_at], &content[payload_at..]);
        let mut records = Vec::new();
        for record in 0..self.records.get() {
            let parsed = parse_record(&mut left, &mut payload);
            records.push(parsed.ok_or(LogError::Invalid { offset, record })?);
        }
        if left.is_empty() && gap.iter().chain(payload).all(|&byte| byte == 0) {
            return Ok(records);
        }
        Err(LogError::Invalid {
            offset,
            record: self.records.get(),
        })
    }
}

/// Copies `bytes` to `at`; answers where they end.
fn put(out: &mut [u8], at: usize, bytes: &[u8]) -> usize {
    out[at..at + bytes.len()].copy_from_slice(bytes);
    at + bytes.len()
}

/// Cuts `count` bytes off the beginning of `bytes`.
fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = bytes.split_at_checked(count)?;
    *bytes = left;
    Some(taken)
}

/// Cuts a record off the beginning of `left`, and its payload off that of `payload`.
fn parse_record(left: &mut &[u8], payload: &mut &[u8]) -> Option<LogRecord> {
    let raw = RawRecord::read_from_bytes(take(left, RECORD_BYTES)?).ok()?;
    let checksums = take(left, (raw.checksums.get() as usize).checked_mul(4)?)?;
    let bytes = take(payload, raw.payload_bytes.get() as usize)?;
    let record = LogRecord {
        stripe: raw.stripe.get(),
        operation: raw.operation.get(),
        start: raw.start.get(),
        len: raw.len.get(),
        written: raw.written.get(),
        checksums: <[U32]>::ref_from_bytes(checksums)
            .ok()?
            .iter()
            .map(|sum| sum.get())
            .collect::<Vec<u32>>()
            .into(),
        settled: match raw.settled {
            0 => false,
            1 => true,
            _ => return None,
        },
        payload: match (raw.payload, raw.index) {
            (1, 0) if bytes.is_empty() => LogPayload::None,
            (2, parity) => LogPayload::PartialSyndrome {
                parity,
                bytes: bytes.to_vec(),
            },
            (3, column) => LogPayload::LostStrip {
                column,
                bytes: bytes.to_vec(),
            },
            _ => return None,
        },
    };
    (raw.reserved == [0; 5] && record.is_sensible()).then_some(record)
}

/// Zeroes the beginning of every block but the first that begins with the magic, and notes which.
fn escape(batch: &mut [u8], escaped: &mut [u8; BLOCKS_MAX / 8]) {
    for (i, block) in batch.chunks_exact_mut(BLOCK).enumerate().skip(1) {
        if block.starts_with(&MAGIC) {
            block[..MAGIC.len()].fill(0);
            escaped[i / 8] |= 1 << (i % 8);
        }
    }
}

/// Gives back what [`escape`] took. None where a bit is set for a block that cannot have been
/// escaped.
fn unescape<'a>(batch: &'a [u8], escaped: &[u8; BLOCKS_MAX / 8]) -> Option<Cow<'a, [u8]>> {
    if escaped.iter().all(|&bits| bits == 0) {
        return Some(Cow::Borrowed(batch));
    }
    let mut content = batch.to_vec();
    for i in (0..BLOCKS_MAX).filter(|i| escaped[i / 8] >> (i % 8) & 1 == 1) {
        let block = content.get_mut(i * BLOCK..(i + 1) * BLOCK)?;
        if i == 0 || !block.starts_with(&[0; MAGIC.len()]) {
            return None;
        }
        block[..MAGIC.len()].copy_from_slice(&MAGIC);
    }
    Some(Cow::Owned(content))
}

/// Every batch in a log area, and what is wrong with those that are not whole, in the order in
/// which they lie. Blocks without a magic are passed over. Batches of other arrays and members are
/// given too: the caller knows which it wants.
pub fn scan(area: &[u8], area_offset: u64) -> Vec<Result<LogBatch, LogError>> {
    let mut found = Vec::new();
    Scan::new(area_offset).pass(area, true, &mut |batch| found.push(batch));
    found
}

/// A [`scan`] of an area that comes piece by piece: it holds on to no more than a piece and
/// [`BATCH_BYTES_MAX`].
#[derive(Debug)]
pub struct Scan {
    /// Where `held` lies.
    offset: u64,
    /// The beginning of what may be a batch, and whatever came behind it.
    held: Vec<u8>,
}

impl Scan {
    /// Of the area that begins at this byte of the member.
    pub fn new(area_offset: u64) -> Scan {
        Scan {
            offset: area_offset,
            held: Vec::new(),
        }
    }

    /// Takes the bytes that follow; `last` if the area ends with them.
    pub fn feed(
        &mut self,
        piece: &[u8],
        last: bool,
        mut found: impl FnMut(Result<LogBatch, LogError>),
    ) {
        let mut held = std::mem::take(&mut self.held);
        held.extend_from_slice(piece);
        let passed = self.pass(&held, last, &mut found);
        held.drain(..passed);
        self.held = held;
    }

    /// Gives what `bytes` hold as far as it can be told, and answers how many are done with.
    fn pass(
        &mut self,
        bytes: &[u8],
        last: bool,
        found: &mut impl FnMut(Result<LogBatch, LogError>),
    ) -> usize {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| rest.len() >= BLOCK) {
            let offset = self.offset.saturating_add(at as u64);
            at += match LogBatch::decode(rest, offset) {
                Ok((batch, bytes)) => {
                    found(Ok(batch));
                    bytes
                }
                Err(LogError::NotLog { .. }) => BLOCK,
                // Its end is still to come.
                Err(LogError::Short { .. }) if !last => break,
                // The remains of a torn batch may hold an older whole one: look at every block.
                Err(error) => {
                    found(Err(error));
                    BLOCK
                }
            };
        }
        self.offset = self.offset.saturating_add(at as u64);
        at
    }
}

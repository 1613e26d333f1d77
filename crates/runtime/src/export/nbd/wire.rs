//! The NBD protocol as values: what a client sends, decoded; what the server sends, encoded.
//! Written from the protocol document of the NetworkBlockDevice project (doc/proto.md).
//!
//! Invariants: no bytes make a decoder panic or allocate more than they are long; every length is
//! checked against a limit before that much is read. Everything is big-endian. Deliberately absent:
//! sockets, and the order of messages (see `negotiate` and `connection`); TLS, resize, extended
//! headers, oldstyle.

/// Start of the greeting.
pub const MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Start of an option, and of the newstyle greeting.
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Start of an answer to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Start of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Start of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Start of a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flags: fixed newstyle, no zeroes after EXPORT_NAME. The client's flags have the same
/// bits.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1;
/// See [`FLAG_FIXED_NEWSTYLE`].
pub const FLAG_NO_ZEROES: u16 = 2;

/// Longest data of an option that is looked at: an export name and a few queries.
pub const OPTION_BYTES_MAX: u32 = 16384;
/// Longest name or query (the protocol's limit for strings).
pub const STRING_BYTES_MAX: u32 = 4096;
/// Longest payload of a request, and longest read: what clients assume that do not ask.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// Transmission flags of every export.
pub const TRANSMISSION_FLAGS: u16 = 1      // the field has a meaning
    | 1 << 2                               // flush
    | 1 << 3                               // FUA
    | 1 << 5                               // trim
    | 1 << 6                               // write zeroes
    | 1 << 8; // a flush on one connection covers all
/// Offered besides when structured replies were negotiated: reads in one piece.
pub const TRANSMISSION_FLAG_DF: u16 = 1 << 7;

/// Flags of a request.
pub const CMD_FLAG_FUA: u16 = 1;
/// Write zeroes without deallocating.
pub const CMD_FLAG_NO_HOLE: u16 = 2;
/// Do not fragment the answer.
pub const CMD_FLAG_DF: u16 = 4;
/// One extent suffices.
pub const CMD_FLAG_REQ_ONE: u16 = 8;

/// The allocation context, the only one here, and the number that it has on every connection.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// See [`BASE_ALLOCATION`].
pub const BASE_ALLOCATION_ID: u32 = 1;
/// Extent of a region never written: a hole that reads as zeros.
pub const EXTENT_HOLE_ZERO: u32 = 3;
/// Extent that holds data.
pub const EXTENT_DATA: u32 = 0;

/// Options of the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// Take this export, old form.
    ExportName,
    /// End.
    Abort,
    /// Which exports are there?
    List,
    /// Encrypt.
    StartTls,
    /// Describe this export.
    Info,
    /// Take this export.
    Go,
    /// Answer reads in chunks.
    StructuredReply,
    /// Which contexts has this export?
    ListMetaContext,
    /// Select contexts.
    SetMetaContext,
    /// Something else.
    Unknown(u32),
}

impl OptionKind {
    /// The kind with this number.
    pub fn of(number: u32) -> OptionKind {
        match number {
            1 => OptionKind::ExportName,
            2 => OptionKind::Abort,
            3 => OptionKind::List,
            5 => OptionKind::StartTls,
            6 => OptionKind::Info,
            7 => OptionKind::Go,
            8 => OptionKind::StructuredReply,
            9 => OptionKind::ListMetaContext,
            10 => OptionKind::SetMetaContext,
            other => OptionKind::Unknown(other),
        }
    }
}

/// Answers to an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum OptionReply {
    /// Done.
    Ack = 1,
    /// An export.
    Server = 2,
    /// A piece of information.
    Info = 3,
    /// A context.
    MetaContext = 4,
    /// Not known here.
    ErrUnsupported = 1 << 31 | 1,
    /// Senseless.
    ErrInvalid = 1 << 31 | 3,
    /// No such export.
    ErrUnknown = 1 << 31 | 6,
    /// Too long.
    ErrTooBig = 1 << 31 | 9,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Something else stands where the magic should.
    #[error("bad magic")]
    Magic,
    /// Ends too early, or late.
    #[error("a length does not fit")]
    Length,
    /// A name that is not UTF-8.
    #[error("a string is not UTF-8")]
    String,
    /// A number without a meaning.
    #[error("unknown command {0}")]
    Command(u16),
}

/// Takes fields off the front of bytes.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(WireError::Length)?;
        self.0 = rest;
        Ok(taken)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        Ok(self.take(N)?.try_into().expect("as long as asked"))
    }
    fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_be_bytes(self.array()?))
    }
    fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_be_bytes(self.array()?))
    }
    fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_be_bytes(self.array()?))
    }
    fn string(&mut self) -> Result<&'a str, WireError> {
        let len = self.u32()?;
        if len > STRING_BYTES_MAX {
            return Err(WireError::Length);
        }
        std::str::from_utf8(self.take(len as usize)?).map_err(|_| WireError::String)
    }
    fn end(self) -> Result<(), WireError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(WireError::Length)
        }
    }
}

/// Head of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHead {
    /// Its number, to be repeated in answers.
    pub number: u32,
    /// Bytes that follow.
    pub len: u32,
}

impl OptionHead {
    /// Bytes of a head.
    pub const BYTES: usize = 16;

    /// From the wire.
    pub fn decode(bytes: &[u8]) -> Result<OptionHead, WireError> {
        let mut fields = Fields(bytes);
        if fields.u64()? != OPTION_MAGIC {
            return Err(WireError::Magic);
        }
        let head = OptionHead {
            number: fields.u32()?,
            len: fields.u32()?,
        };
        fields.end()?;
        Ok(head)
    }
}

/// Data of INFO and GO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Go<'a> {
    /// The export.
    pub name: &'a str,
    /// What the client wants to know.
    pub wants: Vec<u16>,
}

impl<'a> Go<'a> {
    /// From the wire.
    pub fn decode(bytes: &'a [u8]) -> Result<Go<'a>, WireError> {
        let mut fields = Fields(bytes);
        let name = fields.string()?;
        let count = fields.u16()?;
        if fields.0.len() != usize::from(count) * 2 {
            return Err(WireError::Length);
        }
        let wants = fields
            .0
            .chunks_exact(2)
            .map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
            .collect();
        Ok(Go { name, wants })
    }
}

/// Data of LIST_META_CONTEXT and SET_META_CONTEXT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaContext<'a> {
    /// The export.
    pub name: &'a str,
    /// Contexts asked for.
    pub queries: Vec<&'a str>,
}

impl<'a> MetaContext<'a> {
    /// From the wire.
    pub fn decode(bytes: &'a [u8]) -> Result<MetaContext<'a>, WireError> {
        let mut fields = Fields(bytes);
        let name = fields.string()?;
        let count = fields.u32()?;
        let mut queries = Vec::new();
        for _ in 0..count {
            queries.push(fields.string()?);
        }
        fields.end()?;
        Ok(MetaContext { name, queries })
    }

    /// Does it ask for the allocation context? An empty list, or the bare name space, asks for all
    /// in a listing only.
    pub fn wants_allocation(&self, listing: bool) -> bool {
        let all = listing && (self.queries.is_empty() || self.queries.contains(&"base:"));
        all || self.queries.contains(&BASE_ALLOCATION)
    }
}

/// Commands of the transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// Read.
    Read,
    /// Write; the data follows.
    Write,
    /// End.
    Disconnect,
    /// Make durable.
    Flush,
    /// Deallocate.
    Trim,
    /// Zero.
    WriteZeroes,
    /// What lies where?
    BlockStatus,
    /// Something else.
    Unknown(u16),
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Modifiers.
    pub flags: u16,
    /// What.
    pub kind: CommandKind,
    /// The client's name for it, to be repeated in the answer.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

impl Request {
    /// Bytes of a request without its data.
    pub const BYTES: usize = 28;

    /// From the wire.
    pub fn decode(bytes: &[u8]) -> Result<Request, WireError> {
        let mut fields = Fields(bytes);
        if fields.u32()? != REQUEST_MAGIC {
            return Err(WireError::Magic);
        }
        let flags = fields.u16()?;
        let kind = match fields.u16()? {
            0 => CommandKind::Read,
            1 => CommandKind::Write,
            2 => CommandKind::Disconnect,
            3 => CommandKind::Flush,
            4 => CommandKind::Trim,
            6 => CommandKind::WriteZeroes,
            7 => CommandKind::BlockStatus,
            other => CommandKind::Unknown(other),
        };
        let (cookie, offset, len) = (fields.u64()?, fields.u64()?, fields.u32()?);
        fields.end()?;
        Ok(Request {
            flags,
            kind,
            cookie,
            offset,
            len,
        })
    }

    /// Flags that have a meaning with this command.
    pub fn flags_known(&self) -> bool {
        let known = match self.kind {
            CommandKind::Read => CMD_FLAG_DF | CMD_FLAG_FUA,
            CommandKind::WriteZeroes => CMD_FLAG_FUA | CMD_FLAG_NO_HOLE,
            CommandKind::BlockStatus => CMD_FLAG_REQ_ONE | CMD_FLAG_FUA,
            _ => CMD_FLAG_FUA,
        };
        self.flags & !known == 0
    }
}

/// Errors as NBD numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    /// EIO.
    Io = 5,
    /// EINVAL.
    Invalid = 22,
    /// ENOSPC: a write beyond the end.
    NoSpace = 28,
    /// EOVERFLOW: an answer in one piece would be too long.
    Overflow = 75,
    /// ESHUTDOWN.
    Shutdown = 108,
}

/// The server's first words.
pub fn greeting() -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[0..8].copy_from_slice(&MAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes[16..18].copy_from_slice(&(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
    bytes
}

/// An answer to option `number`.
pub fn option_reply(number: u32, reply: OptionReply, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(20 + data.len());
    bytes.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    bytes.extend(number.to_be_bytes());
    bytes.extend((reply as u32).to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// Data of an `Info` answer: size and flags of the export.
pub fn info_export(size: u64, flags: u16) -> Vec<u8> {
    [
        &0u16.to_be_bytes()[..],
        &size.to_be_bytes(),
        &flags.to_be_bytes(),
    ]
    .concat()
}

/// Data of an `Info` answer: block sizes.
pub fn info_block_size(minimum: u32, preferred: u32, maximum: u32) -> Vec<u8> {
    [
        &3u16.to_be_bytes()[..],
        &minimum.to_be_bytes(),
        &preferred.to_be_bytes(),
        &maximum.to_be_bytes(),
    ]
    .concat()
}

/// Head of a simple reply; the data of a read follows it.
pub fn simple_reply(cookie: u64, error: Option<ErrorCode>) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[0..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.map_or(0, |code| code as u32).to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// Kinds of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Chunk {
    /// No data: the end.
    None = 0,
    /// Offset and data.
    OffsetData = 1,
    /// Context and extents.
    BlockStatus = 5,
    /// Error and message.
    Error = 1 << 15 | 1,
}

/// Head of a chunk of a structured reply, for `len` bytes that follow.
pub fn chunk(cookie: u64, kind: Chunk, done: bool, len: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(28);
    bytes.extend(STRUCTURED_REPLY_MAGIC.to_be_bytes());
    bytes.extend(u16::from(done).to_be_bytes());
    bytes.extend((kind as u16).to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

/// An error chunk, whole.
pub fn error_chunk(cookie: u64, done: bool, error: ErrorCode) -> Vec<u8> {
    let mut bytes = chunk(cookie, Chunk::Error, done, 6);
    bytes.extend((error as u32).to_be_bytes());
    bytes.extend(0u16.to_be_bytes());
    bytes
}

/// A block status chunk, whole: lengths and flags of extents, one after the other.
pub fn block_status_chunk(cookie: u64, extents: &[(u32, u32)]) -> Vec<u8> {
    let mut bytes = chunk(
        cookie,
        Chunk::BlockStatus,
        true,
        4 + 8 * extents.len() as u32,
    );
    bytes.extend(BASE_ALLOCATION_ID.to_be_bytes());
    for (len, flags) in extents {
        bytes.extend(len.to_be_bytes());
        bytes.extend(flags.to_be_bytes());
    }
    bytes
}

/// Everything that decodes, on any bytes: for fuzzing.
pub fn decode_anything(bytes: &[u8]) {
    let _ = OptionHead::decode(bytes);
    let _ = Request::decode(bytes).map(|request| request.flags_known());
    let _ = Go::decode(bytes);
    let _ = MetaContext::decode(bytes).map(|meta| meta.wants_allocation(true));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn go(name: &[u8], wants: &[u16]) -> Vec<u8> {
        let mut bytes = (name.len() as u32).to_be_bytes().to_vec();
        bytes.extend(name);
        bytes.extend((wants.len() as u16).to_be_bytes());
        wants
            .iter()
            .for_each(|want| bytes.extend(want.to_be_bytes()));
        bytes
    }

    #[test]
    fn a_request_is_decoded_and_anything_else_refused() {
        let mut bytes = Vec::new();
        bytes.extend(REQUEST_MAGIC.to_be_bytes());
        bytes.extend([0, 1, 0, 6]);
        bytes.extend(7u64.to_be_bytes());
        bytes.extend(8192u64.to_be_bytes());
        bytes.extend(4096u32.to_be_bytes());
        let request = Request::decode(&bytes).expect("decodes");
        let expected = Request {
            flags: CMD_FLAG_FUA,
            kind: CommandKind::WriteZeroes,
            cookie: 7,
            offset: 8192,
            len: 4096,
        };
        assert_eq!(request, expected);
        assert_eq!(Request::decode(&bytes[1..]), Err(WireError::Magic));
        assert_eq!(Request::decode(&bytes[..27]), Err(WireError::Length));
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        let whole = go(b"data", &[3, 0]);
        assert_eq!(
            Go::decode(&whole),
            Ok(Go {
                name: "data",
                wants: vec![3, 0]
            })
        );
        for cut in 0..whole.len() {
            assert_eq!(
                Go::decode(&whole[..cut]),
                Err(WireError::Length),
                "{cut} bytes"
            );
        }
        assert_eq!(Go::decode(&go(&[0xff], &[])), Err(WireError::String));
        let huge = [0xff; 64];
        assert_eq!(Go::decode(&huge), Err(WireError::Length));
        assert_eq!(MetaContext::decode(&huge), Err(WireError::Length));
        // A count of queries that the bytes cannot hold does not reserve memory for them.
        let mut meta = 0u32.to_be_bytes().to_vec();
        meta.extend(u32::MAX.to_be_bytes());
        assert_eq!(MetaContext::decode(&meta), Err(WireError::Length));
    }

    #[test]
    fn no_bytes_make_a_decoder_panic() {
        let mut state = 1u64;
        let mut bytes = [0u8; 80];
        for round in 0..20_000 {
            for byte in &mut bytes {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                *byte = (state >> 56) as u8;
            }
            match round % 3 {
                0 => bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes()),
                1 => bytes[..8].copy_from_slice(&[0, 0, 0, (round % 80) as u8, 0, 0, 0, 2]),
                _ => {}
            }
            decode_anything(&bytes[..round % 81]);
        }
    }
}

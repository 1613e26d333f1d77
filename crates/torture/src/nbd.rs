//! The users of the array: one NBD connection each, one request at a time.
//!
//! Invariant: every request ends as answered, refused, or cut off; after a cut the connection is
//! not used again. Deliberately absent: several requests in flight on one connection (there are
//! many connections), structured replies.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const GREETING: &[u8; 16] = b"NBDMAGICIHAVEOPT";
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;
const OPT_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const FUA: u16 = 1;
/// An answer that takes longer never comes.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Read,
    Write { fua: bool },
    Flush,
    Trim,
    Zeroes { fua: bool },
}

/// How a request ended without a good answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NbdError {
    /// The array said this errno.
    Refused(u32),
    /// The connection broke: nobody knows what came of the request.
    Cut,
    /// The array neither answers nor goes away.
    Silent,
}

/// See the module.
pub(crate) struct Client {
    stream: UnixStream,
    cookie: u64,
}

fn number<const N: usize>(stream: &mut UnixStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn senseless() -> io::Error {
    io::Error::from(io::ErrorKind::InvalidData)
}

impl Client {
    /// Connects and takes the default export.
    pub(crate) fn open(socket: &Path) -> io::Result<Client> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        if number::<18>(&mut stream)?[..16] != GREETING[..] {
            return Err(senseless());
        }
        let mut go = 3u32.to_be_bytes().to_vec();
        go.extend(b"IHAVEOPT");
        for word in [OPT_GO, 6, 0] {
            go.extend(word.to_be_bytes());
        }
        go.extend([0, 0]);
        stream.write_all(&go)?;
        loop {
            if u64::from_be_bytes(number(&mut stream)?) != OPTION_REPLY {
                return Err(senseless());
            }
            let _option: [u8; 4] = number(&mut stream)?;
            let kind = u32::from_be_bytes(number(&mut stream)?);
            let length = u32::from_be_bytes(number(&mut stream)?);
            let mut data = vec![0; length.min(1 << 16) as usize];
            stream.read_exact(&mut data)?;
            match kind {
                REPLY_ACK => break,
                REPLY_INFO => {}
                _ => return Err(senseless()),
            }
        }
        Ok(Client { stream, cookie: 0 })
    }

    /// Asks and waits for the answer. `bytes` is what is written, or where what is read goes; for
    /// the other requests only its length counts.
    pub(crate) fn ask(&mut self, ask: Ask, offset: u64, bytes: &mut [u8]) -> Result<(), NbdError> {
        match self.exchange(ask, offset, bytes) {
            Ok(0) => Ok(()),
            Ok(errno) => Err(NbdError::Refused(errno)),
            Err(error) => Err(match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => NbdError::Silent,
                _ => NbdError::Cut,
            }),
        }
    }

    fn exchange(&mut self, ask: Ask, offset: u64, bytes: &mut [u8]) -> io::Result<u32> {
        let (code, fua) = match ask {
            Ask::Read => (0u16, false),
            Ask::Write { fua } => (1, fua),
            Ask::Flush => (3, false),
            Ask::Trim => (4, false),
            Ask::Zeroes { fua } => (6, fua),
        };
        self.cookie += 1;
        let length = u32::try_from(bytes.len()).map_err(|_| senseless())?;
        let mut head = Vec::with_capacity(28);
        head.extend(REQUEST.to_be_bytes());
        head.extend(if fua { FUA } else { 0 }.to_be_bytes());
        head.extend(code.to_be_bytes());
        head.extend(self.cookie.to_be_bytes());
        head.extend(offset.to_be_bytes());
        head.extend(length.to_be_bytes());
        self.stream.write_all(&head)?;
        if matches!(ask, Ask::Write { .. }) {
            self.stream.write_all(bytes)?;
        }
        if u32::from_be_bytes(number(&mut self.stream)?) != REPLY {
            return Err(senseless());
        }
        let errno = u32::from_be_bytes(number(&mut self.stream)?);
        if u64::from_be_bytes(number(&mut self.stream)?) != self.cookie {
            return Err(senseless());
        }
        if errno == 0 && ask == Ask::Read {
            self.stream.read_exact(bytes)?;
        }
        Ok(errno)
    }
}

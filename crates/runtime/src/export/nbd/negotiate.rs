//! From a fresh connection to an export chosen: NBD's fixed newstyle negotiation.
//!
//! Invariants: nothing is read beyond the limits of `wire`; an option that is too long or senseless
//! is answered and skipped, never believed; a client that breaks the framing is disconnected.
//! Deliberately absent: TLS (the permissions of the socket's directory decide which users may
//! connect).

use std::io::{self, Read, Write};

use super::wire::{self, Go, MetaContext, OptionHead, OptionKind, OptionReply};
use crate::export::Target;

/// What was agreed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Agreed {
    /// Reads are answered in chunks.
    pub(super) structured: bool,
    /// Block status was selected.
    pub(super) allocation: bool,
}

/// Data of one skipped option, at most: a client that sends more is not negotiating.
const SKIP_BYTES_MAX: u32 = 1 << 20;
/// Options that a client may send.
const OPTIONS_MAX: u32 = 1000;

/// Runs the negotiation, all but its last reply, which begins the transmission. `None`: the client
/// has left in good order.
pub(super) fn negotiate<S: Read + Write>(
    stream: &mut S,
    target: &Target,
) -> io::Result<Option<(Agreed, Vec<u8>)>> {
    stream.write_all(&wire::greeting())?;
    let mut flags = [0; 4];
    stream.read_exact(&mut flags)?;
    let flags = u32::from_be_bytes(flags);
    if flags & !u32::from(wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES) != 0 {
        return Err(broken("unknown client flags"));
    }
    let mut negotiation = Negotiation {
        stream,
        target,
        fixed: flags & u32::from(wire::FLAG_FIXED_NEWSTYLE) != 0,
        no_zeroes: flags & u32::from(wire::FLAG_NO_ZEROES) != 0,
        agreed: Agreed::default(),
    };
    for _ in 0..OPTIONS_MAX {
        match negotiation.option()? {
            Next::Option => {}
            Next::Transmission(last) => return Ok(Some((negotiation.agreed, last))),
            Next::End => return Ok(None),
        }
    }
    Err(broken("too many options"))
}

enum Next {
    Option,
    /// After this reply.
    Transmission(Vec<u8>),
    End,
}

struct Negotiation<'a, S> {
    stream: &'a mut S,
    target: &'a Target,
    fixed: bool,
    no_zeroes: bool,
    agreed: Agreed,
}

impl<S: Read + Write> Negotiation<'_, S> {
    fn option(&mut self) -> io::Result<Next> {
        let mut head = [0; OptionHead::BYTES];
        self.stream.read_exact(&mut head)?;
        let head = OptionHead::decode(&head).map_err(|e| broken(&e.to_string()))?;
        let kind = OptionKind::of(head.number);
        if !self.fixed && kind != OptionKind::ExportName {
            return Err(broken("an option without fixed newstyle"));
        }
        if head.len > wire::OPTION_BYTES_MAX {
            if head.len > SKIP_BYTES_MAX || kind == OptionKind::ExportName {
                return Err(broken("an option that is far too long"));
            }
            skip(self.stream, u64::from(head.len))?;
            self.reply(head, OptionReply::ErrTooBig, b"the option is too long")?;
            return Ok(Next::Option);
        }
        let mut data = vec![0; head.len as usize];
        self.stream.read_exact(&mut data)?;
        match kind {
            OptionKind::ExportName => return self.export_name(&data),
            OptionKind::Abort => {
                // The client may have hung up without waiting.
                let _ = self.reply(head, OptionReply::Ack, &[]);
                return Ok(Next::End);
            }
            OptionKind::Go | OptionKind::Info => {
                return self.go(head, kind == OptionKind::Go, &data);
            }
            OptionKind::List => self.list(head, &data)?,
            OptionKind::StructuredReply => {
                if data.is_empty() {
                    self.agreed.structured = true;
                    self.reply(head, OptionReply::Ack, &[])?;
                } else {
                    self.reply(head, OptionReply::ErrInvalid, b"no data belongs here")?;
                }
            }
            OptionKind::ListMetaContext => self.meta_context(head, true, &data)?,
            OptionKind::SetMetaContext => self.meta_context(head, false, &data)?,
            OptionKind::StartTls => {
                self.reply(
                    head,
                    OptionReply::ErrUnsupported,
                    b"no TLS on a Unix socket",
                )?;
            }
            OptionKind::Unknown(_) => {
                self.reply(head, OptionReply::ErrUnsupported, b"unknown option")?
            }
        }
        Ok(Next::Option)
    }

    fn reply(&mut self, head: OptionHead, reply: OptionReply, data: &[u8]) -> io::Result<()> {
        self.stream
            .write_all(&wire::option_reply(head.number, reply, data))
    }

    /// The array's own name, or none at all.
    fn is_ours(&self, name: &str) -> bool {
        name.is_empty() || name == self.target.name
    }

    fn flags(&self) -> u16 {
        let df = if self.agreed.structured {
            wire::TRANSMISSION_FLAG_DF
        } else {
            0
        };
        wire::TRANSMISSION_FLAGS | df
    }

    fn export_name(&mut self, name: &[u8]) -> io::Result<Next> {
        // This option has no way to say no.
        if !std::str::from_utf8(name).is_ok_and(|name| self.is_ours(name)) {
            return Err(broken("no such export"));
        }
        let mut answer = self.target.size().to_be_bytes().to_vec();
        answer.extend(self.flags().to_be_bytes());
        if !self.no_zeroes {
            answer.extend([0; 124]);
        }
        Ok(Next::Transmission(answer))
    }

    fn go(&mut self, head: OptionHead, go: bool, data: &[u8]) -> io::Result<Next> {
        let asked = match Go::decode(data) {
            Ok(asked) => asked,
            Err(error) => {
                self.reply(head, OptionReply::ErrInvalid, error.to_string().as_bytes())?;
                return Ok(Next::Option);
            }
        };
        if !self.is_ours(asked.name) {
            self.reply(head, OptionReply::ErrUnknown, b"no such export")?;
            return Ok(Next::Option);
        }
        let geometry = &self.target.geometry;
        let export = wire::info_export(self.target.size(), self.flags());
        let sizes = wire::info_block_size(
            geometry.block as u32,
            geometry.strip as u32,
            wire::PAYLOAD_BYTES_MAX,
        );
        self.reply(head, OptionReply::Info, &export)?;
        self.reply(head, OptionReply::Info, &sizes)?;
        if go {
            let last = wire::option_reply(head.number, OptionReply::Ack, &[]);
            return Ok(Next::Transmission(last));
        }
        self.reply(head, OptionReply::Ack, &[])?;
        Ok(Next::Option)
    }

    fn list(&mut self, head: OptionHead, data: &[u8]) -> io::Result<()> {
        if !data.is_empty() {
            return self.reply(head, OptionReply::ErrInvalid, b"no data belongs here");
        }
        let name = self.target.name.as_bytes();
        let entry = [&(name.len() as u32).to_be_bytes()[..], name].concat();
        self.reply(head, OptionReply::Server, &entry)?;
        self.reply(head, OptionReply::Ack, &[])
    }

    fn meta_context(&mut self, head: OptionHead, listing: bool, data: &[u8]) -> io::Result<()> {
        if !listing {
            self.agreed.allocation = false;
        }
        if !self.agreed.structured {
            return self.reply(
                head,
                OptionReply::ErrInvalid,
                b"structured replies come first",
            );
        }
        let asked = match MetaContext::decode(data) {
            Ok(asked) => asked,
            Err(error) => {
                return self.reply(head, OptionReply::ErrInvalid, error.to_string().as_bytes());
            }
        };
        if !self.is_ours(asked.name) {
            return self.reply(head, OptionReply::ErrUnknown, b"no such export");
        }
        if asked.wants_allocation(listing) {
            let id = if listing { 0 } else { wire::BASE_ALLOCATION_ID };
            let context = [&id.to_be_bytes()[..], wire::BASE_ALLOCATION.as_bytes()].concat();
            self.reply(head, OptionReply::MetaContext, &context)?;
            self.agreed.allocation |= !listing;
        }
        self.reply(head, OptionReply::Ack, &[])
    }
}

/// Reads and forgets.
pub(super) fn skip<S: Read>(stream: &mut S, len: u64) -> io::Result<()> {
    let skipped = io::copy(&mut stream.take(len), &mut io::sink())?;
    if skipped == len {
        Ok(())
    } else {
        Err(io::Error::from(io::ErrorKind::UnexpectedEof))
    }
}

/// The client breaks the protocol: hang up.
pub(super) fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

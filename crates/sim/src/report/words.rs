//! What happens, in words, for the story of a world.
//!
//! Invariant: a reader can find the same event again. Deliberately absent: failures.

use strake_engine::event::*;
use strake_engine::units::*;

pub(crate) fn micros(at: Time) -> String {
    format!("{}.{:03}", at.0 / 1000, at.0 % 1000)
}

/// An I/O in words.
pub(crate) fn io_text(kind: &IoKind) -> String {
    match kind {
        IoKind::Read { offset, len, .. } => format!("read {offset:#x}+{len:#x}"),
        IoKind::ReadInPlace {
            offset, len, at, ..
        } => format!("read {offset:#x}+{len:#x} in place at {at:#x}"),
        IoKind::Write {
            offset, data, fua, ..
        } => {
            let fua = if *fua { " fua" } else { "" };
            format!("write {offset:#x}+{:#x}{fua}", data.len)
        }
        IoKind::WriteZeroes { offset, len } => format!("zero {offset:#x}+{len:#x}"),
        IoKind::Discard { offset, len } => format!("discard {offset:#x}+{len:#x}"),
        IoKind::Flush => "flush".to_owned(),
    }
}

pub(crate) fn op_text(request: &Request) -> String {
    let text = match &request.op {
        Op::Read { offset, len } => format!("read {offset:#x}+{len:#x}"),
        Op::ReadInPlace { offset, len, .. } => format!("read {offset:#x}+{len:#x} in place"),
        Op::Write { offset, data, fua } => format!("write {offset:#x}+{:#x} {fua}", data.len),
        Op::Flush => "flush".to_owned(),
        Op::Discard { offset, len } => format!("discard {offset:#x}+{len:#x}"),
        Op::WriteZeroes { offset, len, fua } => format!("zero {offset:#x}+{len:#x} {fua}"),
    };
    format!("piece {:#x} {text}", request.id.0)
}

pub(crate) fn command_text(command: &Command) -> String {
    match command {
        Command::Fail(slot) => format!("fail slot {slot}"),
        Command::Remove(MemberRef::Slot(slot)) => format!("remove slot {slot}"),
        Command::Remove(MemberRef::Device(device)) => format!("remove {device:?}"),
        Command::Add(new) => format!("add {:?}", new.device),
        Command::Return(member) => format!("return {:?}", member.device),
        Command::Restripe(shape) => {
            let devices: Vec<DeviceId> = shape.devices.iter().map(|new| new.device).collect();
            let strip = shape.data.strip_bytes;
            let strip = strip.map_or(String::new(), |strip| format!("strips of {strip}, "));
            match shape.data.group_size {
                Some(size) => format!("{strip}groups of {size}, members on {devices:?}"),
                None => format!("{strip}data columns on {devices:?}"),
            }
        }
        Command::AddParity(new) => {
            let devices: Vec<DeviceId> = new.iter().map(|new| new.device).collect();
            format!("add parities on {devices:?}")
        }
        Command::Replace(slot, new) => format!("replace slot {slot} by {:?}", new.device),
        other => format!("{other:?}"),
    }
}

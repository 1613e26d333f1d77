//! What the rules of udev ask: what a block device carries, and which array a ublk device is of.
//!
//! Order: a rule runs `strake udev` for each block device that comes or changes, and imports the
//! lines `KEY=VALUE` that it prints.
//!
//! Invariants: nothing is written, no daemon is asked, and an answer has a bound ([`answering`]),
//! since events of the machine wait for it. No answer is an answer: such a device is not ours.
//! Deliberately absent: links and properties made of the answer; the rules are in `packaging/udev`.

use std::path::Path;

use crate::cli::args::UdevCommand;
use crate::cli::{Context, DONE, Ended, print};
use crate::common::absolute;
use crate::common::errors::Failure;
use crate::drives::machine::answering;
use crate::drives::signature;
use crate::drives::signature::Signature;

/// What udev has found on the device already.
const FOUND_BY_OTHERS: [&str; 2] = ["ID_FS_TYPE", "ID_PART_TABLE_TYPE"];

pub(crate) fn answer(context: &Context, command: &UdevCommand) -> Ended {
    let lines = match command {
        UdevCommand::Member { device } => member(device)?,
        UdevCommand::Export { device } => export(context, device),
    };
    let text: String = lines
        .iter()
        .map(|(key, value)| format!("{key}={value}\n"))
        .collect();
    print(text.as_bytes());
    Ok(DONE)
}

type Lines = Vec<(&'static str, String)>;

fn member(device: &Path) -> Result<Lines, Failure> {
    let device = absolute(device);
    answering::need(std::slice::from_ref(&device))?;
    let signature = signature::of(&device);
    let signature = signature.map_err(|error| Failure::io(device.display(), &error))?;
    let used = |key: &str| std::env::var_os(key).is_some_and(|value| !value.is_empty());
    let used = FOUND_BY_OTHERS.into_iter().any(used);
    Ok(signature.map_or_else(Vec::new, |signature| about(signature, used)))
}

/// The properties of a device, which others may use by now.
fn about(signature: Signature, used: bool) -> Lines {
    if used && !signature.is_first {
        return Vec::new();
    }
    let mut lines = vec![
        ("ID_FS_USAGE", "raid".to_owned()),
        ("ID_FS_TYPE", signature.kind.to_owned()),
    ];
    if let Some(about) = signature.about {
        let (uuid, own, name) = (about.uuid, about.own, about.name.to_string());
        // Neither a uuid nor a name holds a character that udev would encode.
        lines.extend([
            ("ID_FS_UUID", uuid.clone()),
            ("ID_FS_UUID_ENC", uuid),
            ("ID_FS_UUID_SUB", own.clone()),
            ("ID_FS_UUID_SUB_ENC", own),
            ("ID_FS_LABEL", name.clone()),
            ("ID_FS_LABEL_ENC", name),
        ]);
    }
    lines
}

/// The properties of `/dev/ublkbN`, if it is of a daemon that keeps its state in the usual folder.
fn export(context: &Context, device: &str) -> Lines {
    let number = device.rsplit('/').next().unwrap_or_default();
    let id = number.strip_prefix("ublkb").and_then(|id| id.parse().ok());
    // Only of a ublk device is the folder asked.
    let id = id.filter(|_| context.dir.here_answers().is_ok());
    let Some(known) = id.and_then(|id| context.dir.exported_as(id)) else {
        return Vec::new();
    };
    let (array, uuid) = (known.name.to_string(), known.array.to_string());
    let of_array = [
        ("STRAKE_ARRAY", array.clone()),
        ("STRAKE_ARRAY_UUID", uuid.clone()),
    ];
    let (name, id, link) = match &known.volume {
        Some((uuid, volume)) => (
            format!("{array}:{volume}"),
            uuid.clone(),
            format!("{array}/{volume}"),
        ),
        None => (array.clone(), uuid, array),
    };
    let volume = known.volume.map(|(_, volume)| volume);
    let volume = volume.map(|volume| ("STRAKE_VOLUME", volume.to_string()));
    let own = [
        ("STRAKE_NAME", name),
        ("STRAKE_UUID", id),
        ("STRAKE_LINK", link),
    ];
    of_array.into_iter().chain(volume).chain(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drives::signature::About;

    fn signature(is_first: bool) -> Signature {
        Signature {
            kind: "strake_member",
            is_first,
            about: Some(About {
                uuid: "u".to_owned(),
                own: "m".to_owned(),
                name: "data".parse().expect("a name"),
            }),
        }
    }

    #[test]
    fn the_end_of_a_device_that_others_use_now_marks_nothing() {
        assert_eq!(about(signature(false), true), []);
        let marked = about(signature(false), false);
        assert!(marked.contains(&("ID_FS_LABEL", "data".to_owned())));
        assert_eq!(about(signature(true), true), marked);
    }
}

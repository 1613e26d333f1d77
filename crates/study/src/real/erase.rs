//! Brings a drive into the state of a new one: by the strongest way that concerns it alone.
//!
//! Invariant: nothing beside the drive is erased. A partition is only discarded, and a namespace is
//! not formatted where its controller would erase its other namespaces with it.

use std::fs::File;
use std::path::Path;

use super::Kind;
use super::program::{self, output};

/// How it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// NVMe Format with user data erase.
    Format,
    /// `blkdiscard`.
    Discard,
    /// A file gets holes.
    Holes,
}

/// Bit of OACS: Format NVM is supported.
const OACS_FORMAT: u64 = 1 << 1;
/// Bits of FNA: format, or erase, concerns all namespaces.
const FNA_ALL: u64 = 0b11;

/// What a controller says; `None`: it does not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Controller {
    oacs: Option<u64>,
    fna: Option<u64>,
    namespaces: Option<usize>,
}

pub(super) fn how(kind: Kind, controller: Controller) -> How {
    match (kind, controller.oacs, controller.fna) {
        (Kind::File, ..) => How::Holes,
        (Kind::Nvme, Some(oacs), Some(fna)) if oacs & OACS_FORMAT != 0 => {
            match fna & FNA_ALL == 0 || controller.namespaces == Some(1) {
                true => How::Format,
                false => How::Discard,
            }
        }
        _ => How::Discard,
    }
}

/// What a drive's controller says.
pub(super) fn controller(path: &Path) -> Result<Controller, String> {
    let nvme = program::find("nvme", "nvme-cli")?;
    let ask = |verb: &str, more: &[&str]| {
        let output = output(&nvme, &[&[verb], more].concat(), path).ok()?;
        serde_json::from_slice::<serde_json::Value>(&output).ok()
    };
    let id = ask("id-ctrl", &["--output-format=json"]);
    let number = |key: &str| id.as_ref().and_then(|id| id[key].as_u64());
    let list = ask("list-ns", &["--all", "--output-format=json"]);
    Ok(Controller {
        oacs: number("oacs"),
        fna: number("fna"),
        namespaces: list.and_then(|list| Some(list["nsid_list"].as_array()?.len())),
    })
}

/// Erases a drive; says how.
pub(super) fn erase(path: &Path, kind: Kind) -> Result<String, String> {
    let shown = path.display();
    let controller = match kind {
        Kind::Nvme => controller(path)?,
        _ => Controller::default(),
    };
    match how(kind, controller) {
        How::Holes => {
            let emptied = File::options().write(true).open(path).and_then(|file| {
                let bytes = file.metadata()?.len();
                file.set_len(0)?;
                file.set_len(bytes)?;
                file.sync_all()
            });
            emptied.map_err(|error| format!("{shown}: {error}"))?;
            Ok(format!("{shown}: the file was emptied"))
        }
        How::Format => {
            let nvme = program::find("nvme", "nvme-cli")?;
            output(&nvme, &["format", "--ses=1", "--force"], path)?;
            Ok(format!("{shown}: NVMe Format with user data erase"))
        }
        How::Discard => {
            let blkdiscard = program::find("blkdiscard", "util-linux")?;
            Ok(match output(&blkdiscard, &["--force"], path) {
                Ok(_) => format!("{shown}: all blocks were discarded; no format of its own"),
                Err(why) => format!("{shown} was not erased, it is only written over: {why}"),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_concerns_the_drive_alone() {
        let of = |oacs, fna, namespaces| Controller {
            oacs: Some(oacs),
            fna: Some(fna),
            namespaces,
        };
        assert_eq!(how(Kind::Nvme, of(0b10, 0, None)), How::Format);
        assert_eq!(how(Kind::Nvme, of(0b10, 0b10, Some(1))), How::Format);
        assert_eq!(how(Kind::Nvme, of(0b10, 0b01, Some(2))), How::Discard);
        assert_eq!(how(Kind::Nvme, of(0b10, 0b10, None)), How::Discard);
        assert_eq!(how(Kind::Nvme, of(0b00, 0, Some(1))), How::Discard);
        assert_eq!(how(Kind::Nvme, Controller::default()), How::Discard);
        assert_eq!(how(Kind::Block, of(0b10, 0, Some(1))), How::Discard);
        assert_eq!(how(Kind::File, of(0b10, 0, Some(1))), How::Holes);
    }
}

//! Making an array: checks, the plan, the writes; and unmaking it.
//!
//! Order: names and numbers → devices ([`safety`]) → engine's plan → open every device as a member → (trim or
//! zero the data areas) → every write but the last superblock copy, flush → the last copy, flush. Invariant:
//! after an error nothing half-made is left: the superblocks of every device touched are zeroed.
//!
//! Deliberately absent: starting what was made.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use strake_engine::create::{self, CreatePlan, CreateSpec, Init};
use strake_format::*;
use strake_runtime::{Device, OpenMode};

use crate::api::types::CreateRequest;
use crate::drives::safety::{self, Permit};
use crate::errors::{Code, Failure};

/// What to write over the data areas first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prepare {
    Nothing,
    Trim,
    Zero,
}

/// What was made, or would be.
#[derive(Debug)]
pub(crate) struct Made {
    /// The first member's superblock.
    pub(crate) superblock: Superblock,
    /// Identity and path of members and spares.
    pub(crate) paths: Vec<(MemberUuid, PathBuf)>,
}

/// Told now and then how much of the data areas has been prepared: (done, total), bytes.
pub(crate) type Progress<'a> = &'a dyn Fn(u64, u64);

const ZERO_STEP_BYTES: u64 = 64 << 20;

/// A random array identity.
pub(crate) fn random_uuid() -> [u8; 16] {
    *uuid::Uuid::new_v4().as_bytes()
}

/// Parses an array name.
pub(crate) fn parse_name(text: &str) -> Result<ArrayName, Failure> {
    text.parse::<ArrayName>()
        .map_err(|e| Failure::new(Code::NameInvalid, format!("'{text}': {e}")))
}

fn parse_level(text: &str) -> Result<Level, Failure> {
    text.parse::<Level>()
        .map_err(|e| Failure::new(Code::LevelUnknown, format!("level '{text}' is {e}")))
}

fn parse_init(text: Option<&str>) -> Result<(Init, Prepare), Failure> {
    Ok(match text.unwrap_or("auto") {
        "auto" | "lazy" => (Init::Lazy, Prepare::Nothing),
        "trim" => (Init::Lazy, Prepare::Trim),
        "zero" => (Init::Zeroed, Prepare::Zero),
        "sync" => (Init::Sync, Prepare::Nothing),
        "assume-clean" => (Init::AssumeClean, Prepare::Nothing),
        other => {
            let found = format!("'{other}' is no way to initialise");
            let cure = "use auto, trim, lazy, zero, sync or assume-clean";
            return Err(Failure::new(Code::Usage, found).cure(cure));
        }
    })
}

fn parse_write_hole(text: Option<&str>) -> Result<WriteHole, Failure> {
    let Some(text) = text else {
        return Ok(WriteHole::Closed);
    };
    text.parse().map_err(|e| {
        let found = format!("write-hole policy '{text}' is {e}");
        Failure::new(Code::Usage, found).cure("use closed, degraded or resync")
    })
}

fn parse_strip(bytes: Option<u64>) -> Result<Option<u32>, Failure> {
    let Some(bytes) = bytes else { return Ok(None) };
    if !bytes.is_power_of_two() || !(4096..=1 << 20).contains(&bytes) {
        let found = format!("a strip of {bytes} bytes is not a power of two from 4 KiB to 1 MiB");
        return Err(Failure::new(Code::StripInvalid, found));
    }
    Ok(Some(bytes as u32))
}

/// Makes the array (or, with `dry_run`, only checks that it could be made).
pub(crate) fn make(
    request: &CreateRequest,
    taken: &[String],
    progress: Progress<'_>,
) -> Result<Made, Failure> {
    let name = parse_name(&request.name)?;
    let level = parse_level(&request.level)?;
    let strip_bytes = parse_strip(request.strip_bytes)?;
    let write_hole = parse_write_hole(request.write_hole.as_deref())?;
    let (init, prepare) = parse_init(request.init.as_deref())?;
    if taken.iter().any(|t| t == name.as_str()) {
        return Err(Failure::new(
            Code::NameExists,
            format!("an array {name} exists already"),
        ));
    }
    let paths: Vec<PathBuf> = request
        .devices
        .iter()
        .chain(&request.spares)
        .cloned()
        .collect();
    let permit = Permit {
        force: request.force,
        own: None,
    };
    let wipe = safety::check(&paths, permit)?;
    if !request.dry_run {
        for path in &wipe {
            safety::wipe_foreign(path)?;
        }
    }
    let mode = if request.dry_run {
        OpenMode::ReadOnly
    } else {
        OpenMode::Member
    };
    let devices = paths
        .iter()
        .map(|p| Device::open(p, mode))
        .collect::<Result<Vec<Device>, _>>()?;
    let mut drawn = devices
        .iter()
        .map(|d| (d.info(), MemberUuid(random_uuid())))
        .collect::<Vec<_>>();
    let spares = drawn.split_off(request.devices.len());
    let created = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let plan = create::plan(&CreateSpec {
        array: ArrayUuid(random_uuid()),
        name,
        level,
        strip_bytes,
        group_size: request.group_size,
        block_bytes: request.block_bytes,
        write_hole,
        init,
        created_unix_s: created.map_or(0, |d| d.as_secs()),
        members: drawn,
        spares,
        tiny: None,
    })?;
    if !request.dry_run {
        write_or_wipe(&devices, &plan, prepare, progress)?;
    }
    let found = plan
        .superblocks
        .iter()
        .map(|sb| sb.member)
        .zip(paths)
        .collect();
    let superblock = plan
        .superblocks
        .into_iter()
        .next()
        .expect("a plan has a first member");
    Ok(Made {
        superblock,
        paths: found,
    })
}

fn write_or_wipe(
    devices: &[Device],
    plan: &CreatePlan,
    prepare: Prepare,
    progress: Progress<'_>,
) -> Result<(), Failure> {
    let result = write(devices, plan, prepare, progress);
    if result.is_err() {
        for (device, sb) in devices.iter().zip(&plan.superblocks) {
            if let Err(error) = wipe(device, sb) {
                tracing::warn!(%error, "could not wipe after a failed create");
            }
        }
    }
    result
}

fn write(
    devices: &[Device],
    plan: &CreatePlan,
    prepare: Prepare,
    progress: Progress<'_>,
) -> Result<(), Failure> {
    let members: Vec<(&Device, &Superblock)> = devices.iter().zip(&plan.superblocks).collect();
    let total = members.iter().map(|(_, sb)| sb.layout.data_bytes).sum();
    let mut done = 0;
    for (device, sb) in &members {
        let (start, bytes) = (sb.layout.data_offset, sb.layout.data_bytes);
        match prepare {
            Prepare::Nothing => {}
            // Advice only: the regions are Unwritten whatever the device makes of it.
            Prepare::Trim => {
                if let Err(error) = device.discard(start, bytes) {
                    tracing::info!(%error, "trim not done");
                }
            }
            Prepare::Zero => {
                let mut at = 0;
                while at < bytes {
                    let step = ZERO_STEP_BYTES.min(bytes - at);
                    device.write_zeroes(start + at, step)?;
                    at += step;
                    done += step;
                    progress(done, total);
                }
            }
        }
    }
    for (device, writes) in devices.iter().zip(&plan.writes) {
        for (offset, bytes) in writes.iter().take(writes.len().saturating_sub(1)) {
            device.write_at(*offset, bytes)?;
        }
        device.flush()?;
    }
    for (device, writes) in devices.iter().zip(&plan.writes) {
        if let Some((offset, bytes)) = writes.last() {
            device.write_at(*offset, bytes)?;
        }
        device.flush()?;
    }
    Ok(())
}

/// Zeroes both superblocks of a member.
fn wipe(device: &Device, sb: &Superblock) -> Result<(), Failure> {
    let zeroes = [0u8; SUPERBLOCK_BYTES];
    for offset in Layout::superblock_offsets(sb.layout.device_bytes) {
        device.write_at(offset, &zeroes)?;
    }
    device.flush()?;
    Ok(())
}

/// Takes a member out of its array for ever.
pub(crate) fn unmake(path: &Path, array: ArrayUuid) -> Result<(), Failure> {
    let device = Device::open(path, OpenMode::Member)?;
    let image = device.read_member()?;
    if image.superblock.array != array {
        let found = format!("{} is now a member of another array", path.display());
        return Err(Failure::new(Code::MemberOfArray, found));
    }
    wipe(&device, &image.superblock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_create_parse_and_others_are_named() {
        assert_eq!(parse_init(None).ok(), Some((Init::Lazy, Prepare::Nothing)));
        assert_eq!(
            parse_init(Some("zero")).ok(),
            Some((Init::Zeroed, Prepare::Zero))
        );
        assert_eq!(parse_init(Some("no")).map_err(|f| f.code), Err(Code::Usage));
        for policy in ["closed", "degraded", "resync"] {
            assert!(parse_write_hole(Some(policy)).is_ok());
        }
        assert_eq!(
            parse_write_hole(Some("x")).map_err(|f| f.code),
            Err(Code::Usage)
        );
        assert_eq!(
            parse_level("8").map_err(|f| f.code),
            Err(Code::LevelUnknown)
        );
        for bad in [0, 3, 2048, 65537, 2 << 20, 1 << 40] {
            assert_eq!(
                parse_strip(Some(bad)).map_err(|f| f.code),
                Err(Code::StripInvalid)
            );
        }
        assert_eq!(parse_strip(Some(65536)), Ok(Some(65536)));
        assert_eq!(
            parse_name("a/b").map_err(|f| f.code),
            Err(Code::NameInvalid)
        );
    }
}

//! Is a device free to become a member? Mounts, holders, partitions, foreign signatures, our own
//! members.
//!
//! Order: existence and kind → the same device twice → of each device: mounted → held → partitioned
//! or foreign signature → member of an array of ours that is served → member of any → in a pool of
//! spares. `force` overrides what only means "there is content" (partitions that nobody uses,
//! signatures, members of arrays that do not run), never what means "somebody uses it". The first
//! use found is named; of content, all that lies on any of the devices: it is what `force` would
//! overwrite, and what a user is asked about.
//!
//! Deliberately absent: own knowledge of foreign formats; util-linux's prober has it (`wipefs`,
//! `blkid`).

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use strake_engine::event::DeviceInfo;
use strake_format::{ArrayUuid, Layout, Role};
use strake_runtime::{Device, DeviceError, OpenMode};

use crate::common::errors::{Code, Failure};
use crate::common::partly::{self, Partly};
use crate::common::quoted;
use crate::common::uses;
use crate::drives::alias;
use crate::drives::machine::helper;
use crate::drives::machine::stack::{Shared, Stack};
use crate::drives::machine::sysfs;
use crate::drives::machine::sysfs::Identity;
use crate::drives::pool;

/// What the caller permits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Permit {
    /// Content may be overwritten.
    pub(crate) force: bool,
    /// Members of this array may be taken again (`add`, `replace`).
    pub(crate) own: Option<ArrayUuid>,
    /// Members of this one, too, which a restore that was cut off left half made.
    pub(crate) half_made: Option<ArrayUuid>,
    /// From where to where, in bytes, data lies that stays: signatures there are the data's.
    pub(crate) data: Option<(u64, u64)>,
}

impl Permit {
    fn is_own(&self, array: ArrayUuid) -> bool {
        [self.own, self.half_made].contains(&Some(array))
    }
    fn is_data(&self, signature: &Signature) -> bool {
        match (self.data, signature.offset) {
            (Some((from, to)), Some(offset)) => (from..to).contains(&offset),
            _ => false,
        }
    }
}

/// From where to where members with this layout hold data.
pub(crate) fn data_of(layout: &Layout) -> (u64, u64) {
    (layout.data_offset, layout.data_offset + layout.data_bytes)
}

/// What util-linux finds on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Signature {
    kind: String,
    /// Where, if that was told.
    offset: Option<u64>,
}

/// Content of devices that only a permission overwrites: each refusal, in the order found.
#[derive(Debug, Default)]
pub(crate) struct Content(Vec<Failure>);

impl Content {
    /// Keeps a refusal that `force` overrides; any other is answered at once.
    pub(crate) fn note<T>(&mut self, checked: Result<T, Failure>) -> Result<Option<T>, Failure> {
        let is_content = |code| {
            matches!(
                code,
                Code::DevicePartitioned
                    | Code::ForeignSignature
                    | Code::NoProber
                    | Code::MemberOfArray
                    | Code::DeviceInPool
                    | Code::SplitBrain
            )
        };
        match checked {
            Ok(value) => Ok(Some(value)),
            Err(failure) if is_content(failure.code) => {
                self.0.push(failure);
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    /// One refusal that names all of it.
    fn refuse(self) -> Result<(), Failure> {
        let Some(first) = self.0.first() else {
            return Ok(());
        };
        if self.0.len() == 1 {
            return Err(first.clone());
        }
        let found: Vec<&str> = self.0.iter().map(|one| one.found.as_str()).collect();
        let cure = "choose other devices, or use --force to overwrite all of this";
        Err(Failure::new(first.code, found.join("; ")).cure(cure))
    }
}

/// Checks devices that are to be members. Answers those on which foreign signatures must be wiped
/// first.
pub(crate) fn check(paths: &[PathBuf], permit: Permit) -> Result<Vec<PathBuf>, Failure> {
    check_beside(Content::default(), paths, permit)
}

/// The same, where a caller has found content already.
pub(crate) fn check_beside(
    mut content: Content,
    paths: &[PathBuf],
    permit: Permit,
) -> Result<Vec<PathBuf>, Failure> {
    let mut wipe = Vec::new();
    for (id, path) in distinct(paths)? {
        not_in_use(id, path)?;
        let seen = not_partitioned(id, path, permit).and_then(|()| foreign(path, permit));
        if content.note(seen)? == Some(true) {
            wipe.push(path.to_owned());
        }
        let device = Device::open(path, OpenMode::ReadOnly)?;
        not_serving(&device, permit)?;
        content.note(not_a_member(&device, permit))?;
        content.note(pool::not_in_a_pool(&device, permit))?;
    }
    content.refuse().map(|()| wipe)
}

/// What an array has to know of devices before it takes them; nothing of theirs is touched.
pub(crate) fn infos(paths: &[PathBuf]) -> Result<Vec<DeviceInfo>, Failure> {
    let info = |path: &PathBuf| Ok(Device::open(path, OpenMode::ReadOnly)?.info());
    paths.iter().map(info).collect()
}

/// Whether devices could be held now: what a dry run looks at last.
pub(crate) fn may_hold(paths: &[PathBuf]) -> Result<(), Failure> {
    // All at once: two of them may be the same.
    hold_all(paths.iter().map(PathBuf::as_path)).map(drop)
}

/// Holds all of these devices, or none.
///
/// # Errors
/// One cannot be held; all are named that cannot.
pub(crate) fn hold_all<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<Vec<Device>, Failure> {
    let (mut devices, mut refused) = (Vec::new(), Vec::new());
    for path in paths {
        match Device::open(path, OpenMode::Member) {
            Ok(device) => devices.push(device),
            Err(error) => refused.push(Failure::from(error)),
        }
    }
    let Some(first) = refused.first() else {
        return Ok(devices);
    };
    let found: Vec<&str> = refused
        .iter()
        .map(|failure| failure.found.as_str())
        .collect();
    Err(Failure {
        found: found.join("; "),
        ..first.clone()
    })
}

/// Opens devices that were checked, for a caller that is going to write them: held, without the
/// signatures on those that are `foreign`, and looked at once more, now that no other process can
/// write them: also whether two of them are one.
pub(crate) fn hold(
    paths: &[PathBuf],
    foreign: &[PathBuf],
    permit: Permit,
) -> Result<Vec<Device>, Failure> {
    let open_all = || hold_all(paths.iter().map(PathBuf::as_path));
    let devices = open_all()?;
    if foreign.is_empty() {
        return still_free(devices, permit);
    }
    // Only now is it certain that nobody has one of them; wipefs wants them to itself.
    drop(devices);
    let mut wiped = Partly::default();
    let did = "cleared of foreign signatures";
    for path in foreign {
        wiped.note(path, wipe_foreign(path, permit));
        // Nothing is wiped for what comes to nothing.
        wiped.failure(did).map_or(Ok(()), Err)?;
    }
    let held = open_all();
    held.and_then(|devices| still_free(devices, permit))
        .map_err(|failure| {
            let found = format!("{}; {did}: {}", failure.found, partly::all(foreign));
            Failure { found, ..failure }
        })
}

/// Devices that are held, if they are still what they were at the first look.
fn still_free(devices: Vec<Device>, permit: Permit) -> Result<Vec<Device>, Failure> {
    for device in &devices {
        // A process that had it at the first look may have been at work.
        let path = device.path();
        not_partitioned(sysfs::identity(path)?, path, permit)?;
        if !permit.force {
            self::foreign(path, permit)?;
        }
        not_a_member(device, permit)?;
        pool::not_in_a_pool(device, permit)?;
    }
    alias::none_twice(&devices)?;
    Ok(devices)
}

/// Refuses a device that has partitions, or on which something is that is not ours.
pub(crate) fn nothing_foreign(path: &Path) -> Result<(), Failure> {
    let id = sysfs::identity(path)?;
    not_partitioned(id, path, Permit::default())?;
    foreign(path, Permit::default()).map(|_| ())
}

/// Refuses a device that has partitions, or on which something begins before `end` that is not
/// ours.
pub(crate) fn nothing_foreign_before(path: &Path, end: u64) -> Result<(), Failure> {
    not_partitioned(sysfs::identity(path)?, path, Permit::default())?;
    match end {
        0 => Ok(()),
        _ => nothing_foreign_within(path, 0..end),
    }
}

/// Refuses a device on which something begins in this place that is not ours.
pub(crate) fn nothing_foreign_within(path: &Path, place: Range<u64>) -> Result<(), Failure> {
    let mut signatures = probe(path)?;
    signatures.retain(|signature| signature.offset.is_some_and(|at| place.contains(&at)));
    refuse(path, &kinds(signatures))
}

/// What these paths stand for; none may be there twice, by whatever names: two loop devices over
/// one file, two paths to one drive and a partition beside its drive share bytes.
pub(crate) fn distinct(paths: &[PathBuf]) -> Result<Vec<(Identity, &Path)>, Failure> {
    let mut seen: Vec<(Identity, &Path)> = Vec::new();
    for path in paths {
        let id = sysfs::identity(path)?;
        if let Some((_, first)) = seen.iter().find(|(other, _)| *other == id) {
            return Err(twice(first, path, "one device"));
        }
        seen.push((id, path));
    }
    let stack = Stack::default();
    let grounds: Vec<_> = seen.iter().map(|(id, _)| stack.ground(*id)).collect();
    for (at, (id, path)) in seen.iter().enumerate() {
        for ((other, first), ground) in seen.iter().zip(&grounds).take(at) {
            if Stack::shared_ground(ground, &grounds[at]) == Some(Shared::Bytes) {
                let how = stack.how_shared(*other, *id);
                return Err(twice(first, path, &format!("one device: {how}")));
            }
        }
    }
    Ok(seen)
}

fn twice(first: &Path, second: &Path, what: &str) -> Failure {
    let found = format!("{} and {} are {what}", first.display(), second.display());
    Failure::new(Code::DeviceTwice, found)
}

/// Of these devices those that lie on a drive of one before them, in pairs with that one.
pub(crate) fn on_one_drive(members: &[PathBuf], paths: &[PathBuf]) -> Vec<(PathBuf, PathBuf)> {
    let stack = Stack::default();
    let known = |path: &PathBuf| Some((sysfs::identity(path).ok()?, path.clone()));
    let mut all: Vec<(Identity, PathBuf)> = members.iter().filter_map(known).collect();
    let before = all.len();
    all.extend(paths.iter().filter_map(known));
    let grounds: Vec<_> = all.iter().map(|(id, _)| stack.ground(*id)).collect();
    let mut pairs = Vec::new();
    for (at, (_, path)) in all.iter().enumerate().skip(before) {
        let mut earlier = all.iter().zip(&grounds).take(at);
        let first =
            earlier.find(|(_, ground)| Stack::shared_ground(ground, &grounds[at]).is_some());
        pairs.extend(first.map(|((_, first), _)| (first.clone(), path.clone())));
    }
    pairs
}

/// Refuses a device that is mounted, or that another program holds.
pub(crate) fn not_in_use(id: Identity, path: &Path) -> Result<(), Failure> {
    let stack = Stack::default();
    not_seen_in_use(&stack.loops_over(id), id, path)?;
    // Another path to it is a device of its own for the kernel: held there, it can be opened here.
    for name in stack.other_paths(id) {
        let other = Path::new("/dev").join(name.replace('!', "/"));
        let opened = Device::open_within(&other, OpenMode::Member, Duration::ZERO);
        if matches!(opened, Err(DeviceError::Busy(_))) {
            let (shown, other) = (path.display(), other.display());
            let found = format!("{shown} is another path to {other}, which is in use");
            return Err(Failure::new(Code::DeviceBusy, found));
        }
    }
    Ok(())
}

/// The same, as far as it is known without opening a device; `loops` are those over it.
pub(crate) fn not_seen_in_use(loops: &[String], id: Identity, path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    if let Some(name) = loops.first() {
        let what = match id {
            Identity::File(..) => "is the backing file of",
            Identity::Block(_) => "lies under",
        };
        let found = format!("{shown} {what} /dev/{name}");
        let cure = format!("use /dev/{name}, or losetup -d /dev/{name} first");
        return Err(Failure::new(Code::DeviceBusy, found).cure(cure));
    }
    let Identity::Block(rdev) = id else {
        return Ok(());
    };
    if let Some(point) = uses::mounted(rdev) {
        let failure = |found| Failure::new(Code::DeviceMounted, found);
        return Err(match point.as_str() {
            "swap" => failure(format!("{shown} (or a partition of it) is used as swap"))
                .cure("swapoff it first"),
            _ => failure(format!(
                "{shown} (or a partition of it) is mounted on {point}"
            )),
        });
    }
    let holders = uses::holders(rdev);
    if !holders.is_empty() {
        let found = format!("{shown} is held by {}", holders.join(", "));
        return Err(Failure::new(Code::DeviceBusy, found));
    }
    Ok(())
}

fn not_partitioned(id: Identity, path: &Path, permit: Permit) -> Result<(), Failure> {
    let Identity::Block(rdev) = id else {
        return Ok(());
    };
    let partitions = uses::partitions(rdev);
    if partitions.is_empty() || permit.force {
        return Ok(());
    }
    let names: Vec<&str> = partitions.iter().map(|(name, _)| name.as_str()).collect();
    let found = format!("{} has partitions: {}", path.display(), names.join(", "));
    Err(Failure::new(Code::DevicePartitioned, found))
}

/// Whether there is a foreign signature that is to be wiped.
fn foreign(path: &Path, permit: Permit) -> Result<bool, Failure> {
    let mut signatures = match probe(path) {
        Ok(signatures) => signatures,
        Err(_) if permit.force => return Ok(false),
        Err(failure) => return Err(failure),
    };
    signatures.retain(|signature| !permit.is_data(signature));
    if permit.force {
        return Ok(!signatures.is_empty());
    }
    refuse(path, &kinds(signatures)).map(|()| false)
}

/// Each kind once.
fn kinds(signatures: Vec<Signature>) -> Vec<String> {
    let mut kinds: Vec<String> = Vec::new();
    for Signature { kind, .. } in signatures {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

/// Refuses a device that holds something of these kinds.
fn refuse(path: &Path, signatures: &[String]) -> Result<(), Failure> {
    let Some(first) = signatures.first() else {
        return Ok(());
    };
    let shown = path.display();
    if signatures
        .iter()
        .any(|s| matches!(s.as_str(), "gpt" | "dos" | "PMBR"))
    {
        let found = format!("{shown} has a partition table ({first})");
        return Err(Failure::new(Code::DevicePartitioned, found));
    }
    let found = format!("{shown} holds {}", signatures.join(", "));
    Err(Failure::new(Code::ForeignSignature, found))
}

/// The signatures that util-linux finds.
fn probe(path: &Path) -> Result<Vec<Signature>, Failure> {
    let mut wipefs = helper::tool("wipefs");
    match helper::output(wipefs.args(["--no-act", "--json"]).arg(path)) {
        Ok(output) if output.status.success() => Ok(wipefs_signatures(&output.stdout)),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            if said.contains("Permission denied") {
                return Err(Failure::new(Code::Permission, said));
            }
            Err(Failure::new(
                Code::NoProber,
                format!("wipefs {}: {said}", path.display()),
            ))
        }
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            Err(silent("wipefs", path, &error))
        }
        Err(_) => probe_with_blkid(path),
    }
}

fn wipefs_signatures(json: &[u8]) -> Vec<Signature> {
    let value: serde_json::Value = serde_json::from_slice(json).unwrap_or_default();
    let signature = |found: &serde_json::Value| {
        let offset = found["offset"].as_str()?.strip_prefix("0x");
        offset.and_then(|digits| u64::from_str_radix(digits, 16).ok())
    };
    let found = value["signatures"].as_array().into_iter().flatten();
    found
        .map(|found| Signature {
            kind: found["type"].as_str().unwrap_or("unknown").to_owned(),
            offset: signature(found),
        })
        .collect()
}

/// `blkid -p` answers 2 when it finds nothing, 8 when it finds more than one thing.
fn probe_with_blkid(path: &Path) -> Result<Vec<Signature>, Failure> {
    let none = || {
        let found = format!(
            "neither wipefs nor blkid can be run to look at {}",
            path.display()
        );
        Failure::new(Code::NoProber, found)
    };
    let mut blkid = helper::tool("blkid");
    let output = helper::output(blkid.args(["-p", "-o", "export"]).arg(path));
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => silent("blkid", path, &error),
        _ => none(),
    })?;
    match output.status.code() {
        Some(2) => Ok(Vec::new()),
        Some(0) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let value = |l: &str| {
                l.strip_prefix("TYPE=")
                    .or(l.strip_prefix("PTTYPE="))
                    .map(str::to_owned)
            };
            let kinds = text.lines().filter_map(value);
            Ok(kinds.map(|kind| Signature { kind, offset: None }).collect())
        }
        Some(8) => Ok(vec![Signature {
            kind: "several signatures".to_owned(),
            offset: None,
        }]),
        _ => Err(none()),
    }
}

/// Refuses a member of an array that somebody serves, here or in another process: nothing forces
/// that.
pub(crate) fn not_serving(device: &Device, permit: Permit) -> Result<(), Failure> {
    let sb = match device.read_member() {
        Ok(image) if !permit.is_own(image.superblock.array) => image.superblock,
        _ => return Ok(()),
    };
    // With force it waits for a holder that is just letting go; without force it is refused for one
    // thing or the other.
    let opened = match permit.force {
        true => Device::open(device.path(), OpenMode::Member),
        false => Device::open_within(device.path(), OpenMode::Member, Duration::ZERO),
    };
    if !matches!(opened, Err(DeviceError::Busy(_))) {
        return Ok(());
    }
    let (shown, name) = (device.path().display(), &sb.name);
    let quoted = quoted(device.path());
    let (what, out) = match sb.role {
        Role::Spare => ("spare", format!("strake remove {name} {quoted}")),
        Role::Slot(_) => (
            "member",
            format!("strake replace {name} {quoted} DEV puts another in its place"),
        ),
    };
    let found = format!(
        "{shown} is in use: it is a {what} of array {name} ({})",
        sb.array
    );
    let cure = format!("{out}, or give the array up: strake stop {name}, strake destroy {name}");
    Err(Failure::new(Code::DeviceBusy, found).cure(cure))
}

/// Refuses a member of another array.
pub(crate) fn not_a_member(device: &Device, permit: Permit) -> Result<(), Failure> {
    let shown = device.path().display();
    match device.read_member() {
        Ok(image) if permit.is_own(image.superblock.array) || permit.force => Ok(()),
        Ok(image) => {
            let name = &image.superblock.name;
            let uuid = image.superblock.array;
            let found = format!("{shown} is a member of array {name} ({uuid})");
            Err(Failure::new(Code::MemberOfArray, found))
        }
        Err(DeviceError::Damaged { .. } | DeviceError::Newer { .. }) if permit.force => Ok(()),
        Err(DeviceError::Damaged { .. }) => {
            let found = format!("{shown} was a member of a Strake array and is damaged");
            Err(Failure::new(Code::MemberOfArray, found).cure("use --force to overwrite it"))
        }
        Err(DeviceError::NotStrake(_)) => Ok(()),
        // A device too small to hold superblocks is refused by the plan, with its size.
        Err(DeviceError::Io { .. }) if device.info().bytes < 1 << 20 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Removes foreign signatures, so that no other program takes the member for its own; those in data
/// that stays are the data's.
fn wipe_foreign(path: &Path, permit: Permit) -> Result<(), Failure> {
    let mut wipefs = helper::tool("wipefs");
    // Without it wipefs leaves tables of partitions where it expects none: in files and partitions.
    wipefs.args(["--quiet", "--force"]);
    match permit.data {
        None => {
            wipefs.arg("--all");
        }
        Some(_) => {
            let signatures = probe(path)?;
            let offsets = signatures.iter().filter(|one| !permit.is_data(one));
            let mut offsets = offsets.filter_map(|one| one.offset).peekable();
            if offsets.peek().is_none() {
                return Ok(());
            }
            for offset in offsets {
                wipefs.args(["--offset", &offset.to_string()]);
            }
        }
    }
    let output = helper::output(wipefs.arg(path));
    match output {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(Failure::new(
                Code::DeviceBusy,
                format!("wipefs {}: {said}", path.display()),
            ));
        }
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            return Err(silent("wipefs", path, &error));
        }
        Err(error) => {
            let found = format!("wipefs cannot be run to wipe {}: {error}", path.display());
            return Err(Failure::new(Code::NoProber, found).cure("install util-linux (wipefs)"));
        }
    }
    // What it leaves makes another program, and the next start, take the member for something else.
    let mut left = probe(path)?;
    left.retain(|signature| !permit.is_data(signature));
    refuse(path, &kinds(left)).map_err(|failure| {
        let found = format!("{} after wipefs", failure.found);
        Failure::new(failure.code, found).cure("wipe it by hand: wipefs --all --force DEV")
    })
}

/// Wipes tables of partitions off devices that somebody named as members of this array, and nothing
/// else.
pub(crate) fn wipe_tables(device: &Device, permit: Permit) -> Result<(), Failure> {
    wipe_foreign(device.path(), permit)
}

/// Whether nothing foreign is on this device but tables of partitions, with partitions that hold
/// nothing.
pub(crate) fn only_tables(path: &Path) -> bool {
    let is_table = |s: &Signature| matches!(s.kind.as_str(), "gpt" | "dos" | "PMBR");
    let Ok(Identity::Block(rdev)) = sysfs::identity(path) else {
        return probe(path).is_ok_and(|found| found.iter().all(is_table));
    };
    let parts = uses::partitions(rdev);
    let mut parts = parts.iter().map(|(name, _)| Path::new("/dev").join(name));
    probe(path).is_ok_and(|found| found.iter().all(is_table))
        && parts.all(|part| probe(&part).is_ok_and(|found| found.is_empty()))
}

/// A program that hangs on a device.
fn silent(program: &str, path: &Path, error: &io::Error) -> Failure {
    let found = format!("{program} {}: {error}", path.display());
    Failure::new(Code::DeviceFailed, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wipefs_json_becomes_a_list_of_signatures() {
        let json = br#"{"signatures":[{"device":"a","offset":"0x438","type":"ext4"},
            {"type":"ext4"},{"type":"gpt"}]}"#;
        let found = wipefs_signatures(json);
        let kinds: Vec<&str> = found.iter().map(|s| s.kind.as_str()).collect();
        assert_eq!(kinds, ["ext4", "ext4", "gpt"]);
        assert_eq!((found[0].offset, found[1].offset), (Some(0x438), None));
        assert!(wipefs_signatures(b"").is_empty());
        assert!(wipefs_signatures(br#"{"signatures":[]}"#).is_empty());
    }

    #[test]
    fn a_signature_in_data_that_stays_is_the_data_s() {
        let permit = Permit {
            half_made: None,
            data: Some((0x1000, 0x2000)),
            ..Permit::default()
        };
        let at = |offset| Signature {
            kind: "zfs_member".to_owned(),
            offset,
        };
        let is_data =
            [Some(0xfff), Some(0x1000), Some(0x2000), None].map(|o| permit.is_data(&at(o)));
        assert_eq!(is_data, [false, true, false, false]);
        assert!(!Permit::default().is_data(&at(Some(0x1000))));
    }
}

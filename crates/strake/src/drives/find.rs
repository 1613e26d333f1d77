//! Arrays on drives: which devices carry members, and what they make together.
//!
//! Invariant: looking never writes and never waits for a device that an array of ours exports.
//! Which superblock to believe is the format's word ([`strake_format::select_array`]), not ours.
//!
//! Deliberately absent: opening members for service.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use strake_engine::Geometry;
use strake_format::*;
use strake_runtime::{Device, DeviceError, MemberImage, OpenMode};

use crate::api::types::{ScanDeviceJson, ScanJson};
use crate::api::view;
use crate::drives::looks::Looks;
use crate::drives::pool::Pool;
use crate::drives::sysfs;
use crate::errors::{Code, Failure};

/// A member found.
#[derive(Clone, Debug)]
pub(crate) struct FoundMember {
    /// Where.
    pub(crate) path: PathBuf,
    /// What it carries.
    pub(crate) image: MemberImage,
}

/// The members found of one array.
#[derive(Clone, Debug)]
pub(crate) struct FoundArray {
    /// The array.
    pub(crate) uuid: ArrayUuid,
    /// Its members, in order of path.
    pub(crate) members: Vec<FoundMember>,
    /// What they make together.
    pub(crate) selection: Result<Selection, SelectError>,
}

/// Can it be started?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// Everything that is expected is there.
    Complete,
    /// Members are missing, no more than the level survives.
    Degraded,
    /// Too many are missing.
    Incomplete,
    /// The superblocks contradict each other.
    Conflicting,
}

impl Readiness {
    /// One word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Readiness::Complete => "complete",
            Readiness::Degraded => "degraded",
            Readiness::Incomplete => "incomplete",
            Readiness::Conflicting => "conflicting",
        }
    }
}

impl FoundArray {
    /// The superblock to believe (the newest where they contradict each other).
    pub(crate) fn authority(&self) -> &FoundMember {
        let newest = || {
            let key = |m: &&FoundMember| (m.image.superblock.epoch, m.image.superblock.generation);
            self.members
                .iter()
                .max_by_key(key)
                .expect("an array found has a member")
        };
        match &self.selection {
            Ok(selection) => self.members.get(selection.authority).unwrap_or_else(newest),
            Err(_) => newest(),
        }
    }
    /// Its name.
    pub(crate) fn name(&self) -> &ArrayName {
        &self.authority().image.superblock.name
    }
    /// Where a member was found.
    pub(crate) fn path_of(&self, member: MemberUuid) -> Option<PathBuf> {
        let is = |m: &&FoundMember| m.image.superblock.member == member;
        self.members.iter().find(is).map(|m| m.path.clone())
    }
    /// Can it be started?
    pub(crate) fn readiness(&self) -> Readiness {
        let selection = match &self.selection {
            Ok(selection) => selection,
            Err(SelectError::AuthorityAbsent { .. } | SelectError::NoMembers) => {
                return Readiness::Incomplete;
            }
            Err(_) => return Readiness::Conflicting,
        };
        let sb = &self.authority().image.superblock;
        let mut expected_absent = false;
        let mut lost = vec![false; sb.slots.len()];
        for (slot, record) in sb.slots.iter().enumerate() {
            let here = matches!(selection.slots.get(slot), Some(Finding::Believed(_)));
            expected_absent |= record.state.is_live() && !here;
            if !(here && record.state == SlotState::InSync) {
                lost[slot] = true;
            }
        }
        let geometry = Geometry::of(sb);
        let survives = |group: std::ops::Range<usize>| {
            lost[group].iter().filter(|&&lost| lost).count() <= geometry.m
        };
        match (geometry.neighbours().all(survives), expected_absent) {
            (false, _) => Readiness::Incomplete,
            (true, true) => Readiness::Degraded,
            (true, false) => Readiness::Complete,
        }
    }
    /// As `scan` tells it.
    pub(crate) fn json(&self) -> ScanJson {
        let sb = &self.authority().image.superblock;
        let readiness = self.readiness();
        ScanJson {
            name: sb.name.to_string(),
            uuid: self.uuid.to_string(),
            level: sb.level.to_string(),
            members: sb.members,
            found: self.members.len(),
            state: readiness.word().to_owned(),
            reason: match (&self.selection, readiness) {
                (Err(error), _) => Some(error.to_string()),
                (Ok(_), Readiness::Incomplete) => {
                    Some("more members are missing than the level survives".to_owned())
                }
                _ => None,
            },
            moving: view::moving(sb),
            devices: (0..self.members.len())
                .map(|i| self.device_json(i))
                .collect(),
        }
    }

    fn device_json(&self, index: usize) -> ScanDeviceJson {
        let member = &self.members[index];
        let sb = &member.image.superblock;
        let table = &self.authority().image.superblock;
        let slot = match sb.role {
            Role::Slot(slot) => Some(slot.0),
            Role::Spare => None,
        };
        let finding = self.selection.as_ref().ok().and_then(|selection| {
            let at =
                |f: &Finding| matches!(f, Finding::Believed(i) | Finding::Stale(i) if *i == index);
            selection
                .slots
                .iter()
                .position(at)
                .map(|slot| (slot, selection.slots[slot]))
        });
        let state = match finding {
            Some((slot, Finding::Believed(_))) => view::slot_state(table.slots[slot].state),
            Some(_) => "stale",
            None if self
                .selection
                .as_ref()
                .is_ok_and(|s| s.spares.contains(&index)) =>
            {
                "spare"
            }
            None if self.selection.is_err() => "conflicting",
            None => "stray",
        };
        ScanDeviceJson {
            device: member.path.display().to_string(),
            uuid: sb.member.to_string(),
            slot,
            state: state.to_owned(),
            epoch: sb.epoch.0,
        }
    }

    /// As `show` tells an array that does not run.
    pub(crate) fn stopped_json(&self) -> crate::api::types::ArrayJson {
        let authority = &self.authority().image;
        let lost = authority.lost_bytes().unwrap_or_default();
        let path = |member| self.path_of(member);
        crate::api::types::ArrayJson {
            startable: Some(matches!(
                self.readiness(),
                Readiness::Complete | Readiness::Degraded
            )),
            ..view::stopped(&authority.superblock, &authority.map, &lost, path)
        }
    }
}

/// Files and devices that paths stand for: a folder stands for the regular files in it.
pub(crate) fn expand(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for path in paths {
        match fs::read_dir(path) {
            Ok(entries) => {
                let mut files: Vec<PathBuf> = entries
                    .filter_map(Result::ok)
                    .map(|entry| entry.path())
                    .filter(|p| p.is_file())
                    .collect();
                files.sort();
                all.extend(files);
            }
            Err(_) => all.push(path.clone()),
        }
    }
    all
}

/// What one device carries; `Ok(None)` where that is nothing of ours.
pub(crate) fn look(path: &Path) -> Result<Option<MemberImage>, Failure> {
    let read = Device::open(path, OpenMode::ReadOnly).and_then(|device| device.read_member());
    match read {
        Ok(image) => Ok(Some(image)),
        Err(DeviceError::NotStrake(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Members among these devices; what cannot be read is left out. The same device under two names
/// counts once.
pub(crate) fn members(paths: &[PathBuf]) -> Vec<FoundMember> {
    let each = sysfs::each_once(paths);
    each.filter_map(|path| member_at(path)).collect()
}

/// The same; a device that does not answer is not waited for.
pub(crate) fn members_within(looks: &Looks, paths: &[PathBuf]) -> Vec<FoundMember> {
    let found = looks.each(paths, member_at);
    found.into_iter().flatten().collect()
}

fn member_at(path: &Path) -> Option<FoundMember> {
    match look(path) {
        Ok(Some(image)) => Some(FoundMember {
            path: path.to_owned(),
            image,
        }),
        Ok(None) => None,
        Err(failure) => {
            tracing::debug!(device = %path.display(), %failure, "not read");
            None
        }
    }
}

/// Members grouped into arrays, in order of name.
pub(crate) fn group(members: Vec<FoundMember>) -> Vec<FoundArray> {
    let mut by_array: BTreeMap<ArrayUuid, Vec<FoundMember>> = BTreeMap::new();
    for member in members {
        by_array
            .entry(member.image.superblock.array)
            .or_default()
            .push(member);
    }
    let mut arrays: Vec<FoundArray> = by_array
        .into_iter()
        .map(|(uuid, members)| {
            let superblocks: Vec<Superblock> =
                members.iter().map(|m| m.image.superblock.clone()).collect();
            let selection = select_array(&superblocks);
            FoundArray {
                uuid,
                members,
                selection,
            }
        })
        .collect();
    arrays.sort_by(|a, b| a.name().cmp(b.name()).then(a.uuid.cmp(&b.uuid)));
    arrays
}

/// Arrays, and pools of spares, as `scan` tells them.
pub(crate) fn scan_json(arrays: &[FoundArray], pools: &[Pool]) -> Vec<ScanJson> {
    let mut all: Vec<ScanJson> = arrays.iter().map(FoundArray::json).collect();
    all.extend(pools.iter().map(Pool::scan_json));
    all
}

/// The one array of that name or uuid.
pub(crate) fn pick(arrays: Vec<FoundArray>, name: &str) -> Result<FoundArray, Failure> {
    let matches = |a: &FoundArray| a.name().as_str() == name || a.uuid.to_string() == name;
    let mut found: Vec<FoundArray> = arrays.into_iter().filter(matches).collect();
    match found.len() {
        0 => Err(Failure::new(
            Code::ArrayNotFound,
            format!("no array {name} was found"),
        )),
        1 => Ok(found.remove(0)),
        _ => {
            let uuids: Vec<String> = found.iter().map(|a| a.uuid.to_string()).collect();
            let what = format!("two arrays are called {name}: {}", uuids.join(", "));
            Err(Failure::new(Code::NameAmbiguous, what))
        }
    }
}

//! How far the members of an array had come when this host served it last.
//!
//! Tables of members tell an older image of another member ([`strake_format::select_array`]); where
//! all that is found is older (one half of a mirror, put back from a snapshot, while the other is
//! away) none of them can. So the host notes what each member in sync is known to have: after each
//! start and each stop, and when a member is out or has come in.
//!
//! Invariants: what is noted was durable on the member before; so a member with less is an image
//! from before, whatever crashed. Where any member that is found has what is noted of it, its table
//! judges the others. A folder that cannot be read or written costs this knowledge and nothing
//! else. Deliberately absent: what another host noted.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use strake_format::{ArrayUuid, Role, SlotState, Superblock};
use strake_runtime::{Device, MemberImage};

use crate::api::{ArrayJson, ScanJson};
use crate::common::errors::{Code, Failure};
use crate::common::files::{self, read_file};
use crate::common::quoted;
use crate::daemon::state;
use crate::daemon::state::Dir;
use crate::drives::find::FoundArray;

/// By member in sync: the generation of the last superblock that was durable on it, in both copies.
type Heard = BTreeMap<String, u64>;

/// By so much the time of a file may differ from the clock.
const CLOCKS: Duration = Duration::from_secs(1);

impl Dir {
    fn served_file(&self, array: ArrayUuid) -> PathBuf {
        self.lasting("served").join(format!("{array}.json"))
    }

    /// Notes what the members of an array have that serves here, or did.
    pub(crate) fn was_served(&self, superblock: &Superblock) {
        let in_sync = superblock.slots.iter();
        let in_sync = in_sync.filter(|row| row.state == SlotState::InSync);
        let heard: Heard = in_sync
            .map(|row| (row.member.to_string(), row.known.heard.0))
            .collect();
        // It has failed: its members are judged by what was noted before.
        if heard.is_empty() {
            return;
        }
        if let Err(error) = state::replace(&self.served_file(superblock.array), &heard) {
            tracing::warn!(%error, "it is not noted how far the array has come");
        }
    }

    /// It is no array of this host any more.
    pub(super) fn not_served_any_more(&self, array: ArrayUuid) {
        // It tells of what was, and is harmless.
        let _ = files::remove(&self.served_file(array));
    }

    fn heard(&self, array: ArrayUuid) -> Heard {
        let text = read_file(self.served_file(array)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Why an array found is not what it was when this host served it last, if it is not: all of
    /// its members that can be used are older.
    pub(crate) fn older(&self, found: &FoundArray) -> Option<Failure> {
        // It may have been started, or stopped, since it was looked at.
        let noted = fs::metadata(self.served_file(found.uuid)).and_then(|file| file.modified());
        let looked = found.members.iter().map(|member| member.looked_at).min();
        let looked = looked?.checked_sub(CLOCKS)?;
        noted.ok().filter(|noted| *noted < looked)?;
        let members = found.usable();
        self.older_than_noted(
            found,
            members.map(|one| (one.path.as_path(), &one.image.superblock)),
        )
    }

    /// The same of these members, which are held.
    fn older_than_noted<'a>(
        &self,
        found: &FoundArray,
        members: impl Iterator<Item = (&'a Path, &'a Superblock)>,
    ) -> Option<Failure> {
        let heard = self.heard(found.uuid);
        let newest = heard.values().max()?;
        let older = |(path, own): &(&Path, &Superblock)| {
            let (has, path) = (own.generation.0, path.display());
            match heard.get(&own.member.to_string()) {
                Some(had) if has < *had => {
                    Some(format!("{path} has generation {has}, and had {had}"))
                }
                // A table that calls it out is newer than what the others are known to have.
                None if has <= *newest => Some(format!(
                    "{path} has generation {has}, and was not in sync when others had {newest}"
                )),
                _ => None,
            }
        };
        let in_slots = members.filter(|(_, own)| own.role != Role::Spare);
        let members: Vec<(&Path, &Superblock)> = in_slots.collect();
        let all: Option<Vec<String>> = members.iter().map(older).collect();
        let all = all.filter(|all| !all.is_empty())?;
        let name = found.name();
        let what = format!(
            "what is found of {name} is older than what this host served: {}",
            all.join(", ")
        );
        let devices: Vec<String> = members.iter().map(|(path, _)| quoted(path)).collect();
        let cure = format!(
            "bring the members as they were then; or, if older data is wanted: strake start {name} \
             {}",
            devices.join(" ")
        );
        Some(Failure::new(Code::MembersOlder, what).cure(cure))
    }

    /// Refuses such an array, by its members as they are held.
    pub(crate) fn not_older(
        &self,
        found: &FoundArray,
        held: &[(Device, MemberImage)],
    ) -> Result<(), Failure> {
        let members = held.iter();
        let members = members.map(|(device, image)| (device.path(), &image.superblock));
        self.older_than_noted(found, members).map_or(Ok(()), Err)
    }

    /// Says it of an array that is found and not served: it does not start as it is.
    pub(crate) fn told_older(&self, found: &FoundArray, mut array: ArrayJson) -> ArrayJson {
        if array.state == "stopped"
            && array.startable == Some(true)
            && let Some(why) = self.older(found)
        {
            array.conflict = Some(why.json());
            array.startable = Some(false);
        }
        array
    }

    /// Says it of what is scanned.
    pub(crate) fn with_older(&self, mut all: Vec<ScanJson>, found: &[FoundArray]) -> Vec<ScanJson> {
        for array in found {
            let uuid = array.uuid.to_string();
            let scanned = all.iter_mut().find(|one| one.uuid == uuid);
            if let Some(scanned) = scanned.filter(|one| one.reason.is_none()) {
                scanned.reason = self
                    .older(array)
                    .map(|why| format!("{}; {}", why.found, why.cure));
            }
        }
        all
    }
}

//! Which arrays were destroyed on this machine.
//!
//! A member that was away when its array was destroyed still carries its superblock. When it comes
//! back the array must not: it is not started by itself nor with `--all`, what changes it is
//! refused, and what tells of it says when it was destroyed. Nothing is wiped by itself: what comes
//! back may be the only copy of data that somebody wants after all, or a drive from another
//! machine.
//!
//! Invariant: a folder that cannot be read or written costs this protection and nothing else.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use strake_format::{ArrayName, ArrayUuid, MemberUuid};

use crate::api::{ArrayJson, ScanDeviceJson, ScanJson, ScanOverwrittenJson, ScanUnreadJson};
use crate::common::errors::{Code, Failure};
use crate::common::files::{self, read_file};
use crate::daemon::array::seats::Seat;
use crate::daemon::state;
use crate::daemon::state::Dir;
use crate::drives::aside::advice::{self, Lies};
use crate::drives::destroy::Destroyed;
use crate::drives::find::{FoundArray, FoundMember};
use crate::drives::make::Taken;

/// What is remembered of an array that was destroyed.
#[derive(Serialize, Deserialize)]
struct DestroyedRecord {
    name: String,
    /// RFC 3339; none where it was taken back since: then it is not destroyed.
    #[serde(default)]
    date: Option<String>,
    /// Members that were wiped then, or before.
    #[serde(default)]
    wiped: Vec<String>,
}

impl Dir {
    fn destroyed_file(&self, array: ArrayUuid) -> PathBuf {
        self.lasting("destroyed").join(format!("{array}.json"))
    }

    /// Remembers that an array was destroyed, also when the power goes; a note where that fails.
    fn destroyed(
        &self,
        array: ArrayUuid,
        name: &ArrayName,
        wiped: &[MemberUuid],
    ) -> Option<String> {
        let before = self.destroyed_record(array).into_iter();
        let mut all: Vec<String> = before.flat_map(|record| record.wiped).collect();
        all.extend(wiped.iter().map(MemberUuid::to_string));
        let date = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
        let record = DestroyedRecord {
            name: name.to_string(),
            date: Some(date.to_string()),
            wiped: all,
        };
        let file = self.destroyed_file(array);
        let made = self.make_folder(&self.lasting("destroyed"));
        let kept = made.and_then(|()| {
            state::replace(&file, &record).map_err(|error| Failure::io(file.display(), &error))
        });
        let failure = kept.err()?;
        tracing::warn!(%failure, "it is not remembered that {name} was destroyed");
        Some(format!(
            "not remembered that {name} was destroyed: {}; a member that was away may bring it \
             back",
            failure.found
        ))
    }

    /// Remembers what became of an array that was destroyed, wholly or in part. Files that still
    /// carry a superblock of it stay known: what is left is found, and wiped, by the next try.
    /// Notes of what is not remembered.
    pub(crate) fn was_destroyed(&self, found: &FoundArray, destroyed: &Destroyed) -> Vec<String> {
        self.forget(found.uuid);
        let is_wiped = |m: &&FoundMember| destroyed.wiped.contains(&m.path);
        let wiped = found.members.iter().filter(is_wiped);
        let wiped: Vec<MemberUuid> = wiped.map(|m| m.image.superblock.member).collect();
        let note = self.destroyed(found.uuid, found.name(), &wiped);
        if let Err(error) = self.forget_files(&destroyed.wiped) {
            tracing::warn!(%error, "the members' paths are still remembered");
        }
        note.into_iter().collect()
    }

    /// When an array was destroyed here, if it was.
    pub(crate) fn date_destroyed(&self, array: ArrayUuid) -> Option<String> {
        self.destroyed_record(array)?.date
    }

    fn destroyed_record(&self, array: ArrayUuid) -> Option<DestroyedRecord> {
        let text = read_file(self.destroyed_file(array)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Members of an array that were not found, and of which it is known that they carry no
    /// superblock of it any more: they were wiped before, or what their slots had is there, and is
    /// empty or another's by now.
    pub(crate) fn rid_of(&self, found: &FoundArray) -> BTreeSet<MemberUuid> {
        let record = self.destroyed_record(found.uuid).into_iter();
        let wiped = record.flat_map(|record| record.wiped);
        let wiped = wiped.filter_map(|uuid| uuid.parse().ok());
        let seats = self.seats(found.uuid);
        let away = found.away().into_iter();
        let had: Vec<(MemberUuid, &Seat)> = away
            .filter_map(|(slot, uuid)| Some((uuid, seats.seat(slot?)?)))
            .collect();
        let paths: Vec<PathBuf> = had.iter().map(|(_, seat)| seat.device.clone()).collect();
        let without = advice::without(found.uuid, &paths);
        // What lies on another drive says nothing of the one that was there.
        let is_rid = |seat: &Seat| without.contains(&seat.device) && !seat.is_another();
        let rid = had.iter().filter(|(_, seat)| is_rid(seat));
        wiped.chain(rid.map(|(uuid, _)| *uuid)).collect()
    }

    /// Refuses to start an array that was destroyed here.
    pub(crate) fn not_destroyed(
        &self,
        array: ArrayUuid,
        name: &ArrayName,
        force: bool,
    ) -> Result<(), Failure> {
        match self.date_destroyed(array).filter(|_| !force) {
            None => Ok(()),
            Some(date) => {
                let found = format!("{name} ({array}) was destroyed here on {date}");
                let cure = format!(
                    "strake destroy {array} wipes what is left of it; strake start --force \
                     {array} takes it back"
                );
                Err(Failure::new(Code::Destroyed, found).cure(cure))
            }
        }
    }

    /// It serves again. Which members were wiped stays known: the next time that it is destroyed
    /// these are not said to carry anything.
    pub(crate) fn not_destroyed_any_more(&self, array: ArrayUuid) {
        let Some(record) = self.destroyed_record(array) else {
            // Of most arrays there is none.
            return;
        };
        if record.date.is_none() {
            return;
        }
        let file = self.destroyed_file(array);
        let record = DestroyedRecord {
            date: None,
            ..record
        };
        if let Err(error) = state::replace(&file, &record) {
            tracing::warn!(%error, "which members were wiped is not remembered");
            let _ = files::remove(&file);
        }
    }

    /// Tells of a stopped array when it was destroyed: then it does not start as it is.
    pub(crate) fn told_destroyed(&self, mut array: ArrayJson) -> ArrayJson {
        if array.state == "stopped"
            && let Ok(uuid) = array.uuid.parse::<ArrayUuid>()
            && let Some(date) = self.date_destroyed(uuid)
        {
            array.destroyed = Some(date);
            array.startable = Some(false);
        }
        array
    }

    /// The name that an array found takes, with what keeps it, if it was destroyed.
    pub(crate) fn taken(&self, found: &FoundArray) -> Taken {
        let name = found.name().clone();
        let left = self.not_destroyed(found.uuid, &name, false).err();
        Taken { name, left }
    }

    /// Tells of the arrays that are scanned when they were destroyed, and what lies on devices that
    /// had slots of them, as far as these are meant. `missing`: known arrays of which no member was
    /// found.
    pub(crate) fn with_known(
        &self,
        mut all: Vec<ScanJson>,
        missing: impl IntoIterator<Item = (String, ArrayUuid)>,
        is_meant: impl Fn(&Path) -> bool,
    ) -> Vec<ScanJson> {
        for array in &mut all {
            let Ok(uuid) = array.uuid.parse::<ArrayUuid>() else {
                continue;
            };
            array.destroyed = self.date_destroyed(uuid);
            (array.overwritten, array.unread) = self.lost(uuid, &array.devices, &is_meant);
        }
        for (name, uuid) in missing {
            let (overwritten, unread) = self.lost(uuid, &[], &is_meant);
            if overwritten.is_empty() && unread.is_empty() {
                continue;
            }
            all.push(ScanJson {
                name,
                uuid: uuid.to_string(),
                level: "unknown".to_owned(),
                members: self.seats(uuid).slots().count() as u8,
                found: 0,
                members_found: 0,
                spares: 0,
                spares_found: 0,
                state: "incomplete".to_owned(),
                reason: Some("no member of it is found".to_owned()),
                destroyed: None,
                moving: None,
                devices: Vec::new(),
                overwritten,
                unread,
            });
        }
        all
    }

    /// Devices of members that are not among these, as far as they are there: those that carry
    /// something else, and those that cannot be read.
    fn lost(
        &self,
        array: ArrayUuid,
        found: &[ScanDeviceJson],
        is_meant: impl Fn(&Path) -> bool,
    ) -> (Vec<ScanOverwrittenJson>, Vec<ScanUnreadJson>) {
        let seats = self.seats(array);
        let has = |slot: &u8| found.iter().any(|device| device.slot == Some(*slot));
        let is_found = |path: &Path| {
            let shown = path.display().to_string();
            let mut found = found.iter();
            found.any(|one| one.device == shown || one.also.contains(&shown))
        };
        let absent = seats.slots().filter(|slot| !has(slot));
        let absent: Vec<(u8, &Seat)> = absent
            .filter_map(|slot| Some((slot, seats.seat(slot)?)))
            .filter(|(_, seat)| is_meant(&seat.device) && !is_found(&seat.device))
            .collect();
        let devices = absent.iter().map(|(_, seat)| seat.device.clone());
        let paths: Vec<PathBuf> = devices.collect();
        let lies = advice::lie_at(&paths);
        let (mut overwritten, mut unread) = (Vec::new(), Vec::new());
        for (slot, seat) in absent {
            let device = seat.device.display().to_string();
            let lies = lies.iter().find(|(at, _)| *at == seat.device);
            // What lies on another drive says nothing of the one that was there. One that does not
            // answer is not asked which it is: that may be waited for, too.
            let lies =
                lies.filter(|(_, lies)| matches!(lies, Lies::Silent(_)) || !seat.is_another());
            match lies {
                Some((_, Lies::Holds(holds))) => overwritten.push(ScanOverwrittenJson {
                    slot,
                    holds: holds.clone(),
                    device,
                }),
                Some((_, Lies::Unread(problem) | Lies::Silent(problem))) => {
                    unread.push(ScanUnreadJson {
                        slot,
                        problem: problem.clone(),
                        device,
                    })
                }
                None => {}
            }
        }
        (overwritten, unread)
    }
}

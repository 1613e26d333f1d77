//! Which devices wait as spares of an array, and which of them it lost only because they were not
//! there: when it started, or any more.
//!
//! A spare holds nothing, so an array that starts without one strikes it off its table, and a
//! device that no table lists is no spare. What is kept here names the drive that is not there, and
//! tells it, once it is back, from a spare that failed or that somebody removed.
//!
//! Invariant: only what was not there is called away; without this folder it is added by
//! hand. Deliberately absent: adding it (service).

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use strake_engine::event::OutCause;
use strake_format::{ArrayName, ArrayUuid, MemberUuid};

use crate::common::files::{self, read_file};
use crate::common::quoted;
use crate::daemon::array::seats::Seat;
use crate::daemon::events::{EventLog, Happened, SET_ASIDE};
use crate::daemon::state;
use crate::daemon::state::Dir;
use crate::drives::find::{Aside, FoundArray};

/// A device that waits, or waited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Spare {
    seat: Seat,
    /// A start did not find it, or it vanished.
    away: bool,
}

/// The spares of an array, by the uuids of its members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spares(BTreeMap<String, Spare>);

impl Spares {
    /// This device waits as this member.
    pub(crate) fn wait(&mut self, member: MemberUuid, device: &Path) {
        // It may have been another member when it was here last.
        let uuid = member.to_string();
        self.0
            .retain(|other, spare| *other == uuid || spare.seat.device != device);
        let has = self.0.get(&uuid).filter(|has| has.seat.device == device);
        let seat = has.map_or_else(|| Seat::of(device), |has| has.seat.clone());
        self.0.insert(uuid, Spare { seat, away: false });
    }

    /// None but these wait; what is away stays known.
    pub(crate) fn only(&mut self, members: &[MemberUuid]) {
        let waits = |uuid: &String| members.iter().any(|member| member.to_string() == *uuid);
        self.0.retain(|uuid, spare| spare.away || waits(uuid));
    }

    /// The member that waits on this device.
    pub(crate) fn at(&self, device: &Path) -> Option<MemberUuid> {
        let mut all = self.0.iter();
        let (uuid, _) = all.find(|(_, spare)| spare.seat.device == device)?;
        uuid.parse().ok()
    }

    /// The array goes on without it.
    pub(crate) fn lose(&mut self, member: MemberUuid, cause: OutCause) {
        if let Some(spare) = self.0.get_mut(&member.to_string()) {
            spare.away = matches!(cause, OutCause::NotFound | OutCause::Gone);
        }
    }

    /// Was it lost only because it was not there?
    pub(crate) fn is_away(&self, member: MemberUuid) -> bool {
        let spare = self.0.get(&member.to_string());
        spare.is_some_and(|spare| spare.away)
    }

    /// That an array lost it, with the device that it was. `aside`: what its start set aside.
    pub(crate) fn told(&self, told: Happened, member: MemberUuid, aside: &[Aside]) -> Happened {
        let name = told.array.clone().unwrap_or_default();
        let Some(Spare { seat, away }) = self.0.get(&member.to_string()) else {
            let effect = format!(
                "member {member} is no spare any more; strake add {name} DEV makes its device one \
                 again"
            );
            return Happened {
                effect: Some(effect),
                ..told
            };
        };
        let add = format!("strake add {name} {}", quoted(&seat.device));
        let drive: Vec<&str> = [&seat.model, &seat.serial]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        let drive = match drive.is_empty() {
            true => String::new(),
            false => format!(" ({})", drive.join(", ")),
        };
        let aside = aside.iter().find(|aside| aside.path == seat.device);
        let (cause, why) = match aside {
            Some(aside) => (Some(SET_ASIDE.to_owned()), format!("{}; ", aside.text())),
            None => (told.cause, String::new()),
        };
        let back = match away {
            true => format!("the daemon adds it again when it finds it; by hand: {add}"),
            false => format!("when that is mended: {add}"),
        };
        Happened {
            device: Some(seat.device.display().to_string()),
            cause,
            effect: Some(format!("{why}it is no spare any more{drive}; {back}")),
            ..told
        }
    }
}

impl Dir {
    fn spares_file(&self, array: ArrayUuid) -> std::path::PathBuf {
        self.lasting("spares").join(format!("{array}.json"))
    }

    /// The spares of an array, as far as they are known.
    pub(crate) fn spares(&self, array: ArrayUuid) -> Spares {
        let text = read_file(self.spares_file(array)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Remembers them, also when the power goes; an array that never had one has no file.
    pub(crate) fn keep_spares(&self, array: ArrayUuid, spares: &Spares) {
        let file = self.spares_file(array);
        if spares.0.is_empty() && !file.exists() {
            return;
        }
        let kept = self.make_folder(&self.lasting("spares"));
        let kept = kept
            .map_err(|failure| failure.to_string())
            .and_then(|()| state::replace(&file, spares).map_err(|error| error.to_string()));
        if let Err(error) = kept {
            tracing::warn!(%array, %error, "its spares are not remembered");
        }
    }

    pub(super) fn forget_spares(&self, array: ArrayUuid) {
        // Of most arrays there are none.
        let _ = files::remove(&self.spares_file(array));
    }
}

/// Notes each device that was a spare and is not listed any more, unless it is added by itself.
pub(crate) fn note_unlisted(dir: &Dir, log: &EventLog, name: &ArrayName, found: &FoundArray) {
    let spares = dir.spares(found.uuid);
    for member in found.unlisted_spares() {
        let own = &member.image.superblock;
        if spares.is_away(own.member) {
            continue;
        }
        let path = quoted(&member.path);
        log.note(Happened {
            array: Some(name.to_string()),
            event: "member_returned",
            device: Some(member.path.display().to_string()),
            effect: Some(format!(
                "a spare that the array does not list, not used; strake add {name} {path} makes \
                 it one again"
            )),
            ..Happened::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spare_that_a_start_did_not_find_is_away_until_its_device_waits_again() {
        let temporary = tempfile::tempdir().expect("temporary folder");
        let dir = Dir::at(temporary.path());
        let (array, one, two) = (ArrayUuid([1; 16]), MemberUuid([2; 16]), MemberUuid([3; 16]));
        let mut spares = dir.spares(array);
        spares.wait(one, Path::new("/dev/a"));
        spares.wait(two, Path::new("/dev/b"));
        assert!(!spares.is_away(one));
        spares.lose(one, OutCause::NotFound);
        spares.lose(two, OutCause::Unfit);
        dir.keep_spares(array, &spares);
        let mut spares = dir.spares(array);
        assert!(spares.is_away(one) && !spares.is_away(two));
        spares.only(&[]);
        assert!(spares.is_away(one));
        let told = Happened {
            array: Some("data".to_owned()),
            ..Happened::default()
        };
        let told = spares.told(told, one, &[]);
        assert_eq!(told.device.as_deref(), Some("/dev/a"));
        let effect = told.effect.expect("it is said");
        assert!(effect.ends_with("strake add data /dev/a"), "{effect}");
        // It is another member then.
        spares.wait(two, Path::new("/dev/a"));
        assert!(!spares.is_away(one));
        dir.forget(array);
        assert_eq!(dir.spares(array), Spares::default());
    }
}

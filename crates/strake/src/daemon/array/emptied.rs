//! Members in service that lost their superblocks, or have older ones: another program wrote to the
//! drive, emptied the file, or put an older image in its place, under the array.
//!
//! That the array has a drive exclusively keeps out most programs, not `dd`, `blkdiscard` or
//! `sgdisk`. The array reads superblocks before it writes them (`engine::array::metadata::copies`);
//! the look finds such members while it writes none.
//!
//! Invariants: a look takes a bounded time, and reads what the array has open, whatever lies at the
//! path by now; a device that does not answer has one look under way; members that lack both copies
//! are put out, all at once. Of others the engine decides, by what it reads itself, where two looks
//! say the same (a copy may be on its way to a new place). Under `change`, so that no device is
//! just being given its copies.
//!
//! While the engine doubts a member, each look lets the engine read, so that the doubt ends soon
//! after the copies are back. What a doubted member lacks is noted once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use strake_engine::event::{ArrayState, Command, MemberStatus, Status};
use strake_engine::units::DeviceId;
use strake_format::{Generation, Sessions, Slot};
use strake_runtime::{DeviceError, Look};

use crate::common::errors::{Code, Failure};
use crate::daemon::array::running::{Running, in_service};
use crate::daemon::events::{EventLog, Happened};

/// How often members are looked at.
pub(crate) const PERIOD: Duration = Duration::from_secs(60);
/// How long the members of an array are looked at.
const PATIENCE: Duration = Duration::from_secs(2);
/// After which a copy that is on its way has arrived.
const ARRIVAL: Duration = Duration::from_secs(3);

/// Why a member stays in service.
const NO_MORE: &str = "the level does not survive the loss of all such members; what shows their \
                       state is not written over, and the next start refuses";

/// Devices that are being looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looks(Arc<Mutex<BTreeSet<DeviceId>>>);

impl Looks {
    fn with<T>(&self, act: impl FnOnce(&mut BTreeSet<DeviceId>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Doubted members, and what was wrong with them when that was noted.
#[derive(Debug, Default)]
pub(crate) struct Noted(Mutex<BTreeMap<DeviceId, Wrong>>);

impl Noted {
    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<DeviceId, Wrong>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn insert(&self, member: &Emptied) {
        self.with(|noted| noted.insert(member.device, member.wrong));
    }

    fn has(&self, member: &Emptied) -> bool {
        let same = |before: &Wrong| before.shows_like(member.wrong);
        self.with(|noted| noted.get(&member.device).is_some_and(same))
    }

    /// Forgets members that are not doubted any more.
    fn forget_others(&self, doubted: &BTreeSet<DeviceId>) {
        self.with(|noted| noted.retain(|device, _| doubted.contains(device)));
    }
}

/// What is wrong with the superblocks of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wrong {
    /// It has none.
    Both,
    /// It lacks the one at this offset.
    One(u64),
    /// They are older than what it had.
    Older { has: Generation, had: Generation },
    /// Another session of the array wrote them.
    Branch { has: Generation },
}

impl Wrong {
    /// What a look says of a member that had this generation before the look. The sessions are the
    /// array's.
    fn of(look: Result<Look, DeviceError>, had: Generation, sessions: &Sessions) -> Option<Wrong> {
        match look {
            Err(DeviceError::NotStrake(_)) => Some(Wrong::Both),
            // It cannot be read: the array finds that out by itself.
            Err(_) => None,
            Ok(Look { generation, .. }) if generation < had => {
                let has = generation;
                Some(Wrong::Older { has, had })
            }
            Ok(Look {
                generation: has,
                session: Some(session),
                ..
            }) if sessions.at(has).is_some_and(|wrote| wrote != session) => {
                Some(Wrong::Branch { has })
            }
            Ok(Look { emptied, .. }) => emptied.map(Wrong::One),
        }
    }

    /// The drive shows the same, whatever the array knows of it by now.
    fn shows_like(self, other: Wrong) -> bool {
        match (self, other) {
            (Wrong::Older { has, .. }, Wrong::Older { has: before, .. })
            | (Wrong::Branch { has }, Wrong::Branch { has: before }) => has == before,
            _ => self == other,
        }
    }
}

/// A member with superblocks that are not what the array wrote.
struct Emptied {
    slot: Slot,
    device: DeviceId,
    path: String,
    wrong: Wrong,
}

impl Emptied {
    fn cause(&self) -> String {
        match self.wrong {
            Wrong::Both => "no superblock is left at either of its places".to_owned(),
            Wrong::One(offset) => {
                format!("no superblock is left at byte {offset}: its content may be lost")
            }
            Wrong::Older { has, had } => format!(
                "it is an older image: its superblocks have generation {}, the array wrote {}",
                has.0, had.0
            ),
            Wrong::Branch { has } => format!(
                "it is of a copy of the array that went on apart: another session wrote its \
                 superblocks (generation {})",
                has.0
            ),
        }
    }
}

/// What became of a member that was to be put out.
fn effect(out: &Result<(), Failure>) -> String {
    match out {
        Ok(()) => "put out: what it held may be lost".to_owned(),
        Err(failure) if failure.code == Code::NotServing => {
            "put out, and the array has failed: the level does not survive it".to_owned()
        }
        Err(failure) => format!("still in service: {}", failure.found),
    }
}

/// What became of a member that the array was to look at, by whether it serves after that.
fn became(looked: &Result<(), Failure>, serves: Result<bool, &Failure>) -> String {
    match (looked, serves) {
        (Ok(()), Ok(true)) => effect(&Err(Failure::new(Code::WouldFail, NO_MORE))),
        (Err(failure), Ok(true)) => format!("still in service: {}", failure.found),
        (_, Ok(false)) => effect(&Ok(())),
        (_, Err(failure)) => format!(
            "whether it is still in service is not known: {}",
            failure.found
        ),
    }
}

/// The engine doubts it.
fn is_doubted(member: &MemberStatus) -> bool {
    member.doubted.is_some()
}

/// The devices of members of which this is so.
fn devices(status: &Status, wanted: fn(&MemberStatus) -> bool) -> BTreeSet<DeviceId> {
    let members = status.members.iter().filter(|member| wanted(member));
    members.filter_map(|member| member.device).collect()
}

impl Running {
    /// Puts out members that lost their superblocks while they served.
    pub(crate) fn put_out_emptied(&self, events: &EventLog) {
        // One that has failed writes no superblock as it stops.
        let serves = |status: &Status| status.state != ArrayState::Failed;
        let Some(status) = self.status().ok().filter(serves) else {
            return;
        };
        let (none, some): (Vec<Emptied>, Vec<Emptied>) = self
            .emptied(&status)
            .into_iter()
            .partition(|m| m.wrong == Wrong::Both);
        if !none.is_empty() {
            // All at once: superblocks that say that one is out are written to none of the others.
            let devices = none.iter().map(|member| member.device).collect();
            let out = self.command(Command::Emptied(devices)).map(drop);
            none.iter()
                .for_each(|member| self.note(events, member, effect(&out)));
            if out.is_err() {
                return;
            }
        }
        let doubts = devices(&status, is_doubted);
        self.noted.forget_others(&doubts);
        let some = some.into_iter().filter(|m| !self.noted.has(m)).collect();
        let some = self.still_wrong(&status, some);
        if !(some.is_empty() && doubts.is_empty()) {
            self.let_decide(events, &some);
        }
    }

    /// The engine reads, and decides of these members; a doubt ends where the copies are right.
    fn let_decide(&self, events: &EventLog, members: &[Emptied]) {
        let looked = self.command(Command::LookAtSuperblocks).map(drop);
        let status = self.status();
        let of = |wanted| status.as_ref().map(|status| devices(status, wanted));
        let (serving, doubts) = (of(in_service), of(is_doubted));
        if let Ok(doubts) = &doubts {
            self.noted.forget_others(doubts);
        }
        for member in members {
            let serves = serving.as_ref().map(|all| all.contains(&member.device));
            let became = became(&looked, serves.map_err(|&failure| failure));
            self.note(events, member, became);
            if doubts
                .as_ref()
                .is_ok_and(|all| all.contains(&member.device))
            {
                self.noted.insert(member);
            }
        }
    }

    /// Those of which another look says the same a moment later.
    fn still_wrong(&self, status: &Status, members: Vec<Emptied>) -> Vec<Emptied> {
        if members.is_empty() {
            return members;
        }
        std::thread::sleep(ARRIVAL);
        let first: BTreeSet<_> = members.iter().map(|m| (m.device, m.wrong)).collect();
        let again = self.emptied(status).into_iter();
        again
            .filter(|m| first.contains(&(m.device, m.wrong)))
            .collect()
    }

    fn note(&self, events: &EventLog, member: &Emptied, effect: String) {
        events.note(Happened {
            array: Some(self.name().to_string()),
            slot: Some(member.slot.0),
            event: "member_emptied",
            device: Some(member.path.clone()),
            cause: Some(member.cause()),
            effect: Some(effect),
            ..Happened::default()
        });
    }

    /// Members in service with superblocks that are not what they were, of those that answer.
    fn emptied(&self, status: &Status) -> Vec<Emptied> {
        let (found, all) = channel();
        let sessions = status.superblock.sessions.clone();
        let looked = self.with(|serving| {
            let members = status.members.iter().filter(|m| in_service(m));
            let members = members.filter_map(|m| Some((m.slot?, m.device?, m.heard)));
            for (slot, device, had) in members {
                let path = serving.path(device).unwrap_or_default();
                let path = path.display().to_string();
                let member = move |wrong| Emptied {
                    slot,
                    device,
                    path,
                    wrong,
                };
                if let Some(look) = serving.look_at(device) {
                    let (found, sessions) = (found.clone(), sessions.clone());
                    let look = move || {
                        if let Some(wrong) = Wrong::of(look(), had, &sessions) {
                            // Nobody may wait any more.
                            let _ = found.send(member(wrong));
                        }
                        found
                    };
                    self.begin_look(device, look);
                }
            }
            Ok(())
        });
        drop(found);
        if looked.is_err() {
            return Vec::new();
        }
        let until = Instant::now() + PATIENCE;
        let left = || until.saturating_duration_since(Instant::now());
        std::iter::from_fn(|| all.recv_timeout(left()).ok()).collect()
    }

    /// Looks on a thread of its own: a device that hangs holds up neither a stop nor another look.
    /// What `look` returns is dropped when the device may be looked at again.
    fn begin_look<T>(&self, device: DeviceId, look: impl FnOnce() -> T + Send + 'static) {
        let looks = self.looks.clone();
        if !looks.with(|looks| looks.insert(device)) {
            return;
        }
        let looking = move || {
            let done = look();
            looks.with(|looks| looks.remove(&device));
            drop(done);
        };
        // The next look asks it again.
        if strake_runtime::spawn_thread("look", looking).is_err() {
            self.looks.with(|looks| looks.remove(&device));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use strake_engine::event::{MemberState, OutCause};

    use crate::api::CreateRequest;
    use crate::daemon::array::running::Limits;
    use crate::daemon::service::Service;
    use crate::daemon::sources::Sources;
    use crate::daemon::state::Dir;

    use crate::common::errors::{Code, Failure};

    use super::{Generation, Wrong};

    const BYTES: u64 = 32 << 20;

    /// It was told to be put out.
    #[test]
    fn of_a_member_nothing_is_said_that_the_array_does_not_say() {
        let silent = Failure::new(Code::ArraySilent, "no answer within 10 s");
        let said = super::became(&Ok(()), Err(&silent));
        let expected = "whether it is still in service is not known: no answer within 10 s";
        assert_eq!(said, expected);
        let looked = Err(silent.clone());
        assert!(super::became(&looked, Ok(true)).starts_with("still in service: no answer"));
        assert!(super::became(&looked, Ok(false)).starts_with("put out"));
        assert!(super::became(&Ok(()), Ok(true)).starts_with("still in service: the level"));
        assert!(super::became(&Ok(()), Ok(false)).starts_with("put out"));
    }

    #[test]
    fn what_the_array_knows_of_an_image_makes_it_no_other_one() {
        let older = |has, had| Wrong::Older {
            has: Generation(has),
            had: Generation(had),
        };
        assert!(older(3, 7).shows_like(older(3, 8)));
        assert!(!older(3, 7).shows_like(older(4, 7)));
        assert!(!older(3, 7).shows_like(Wrong::One(0)));
        assert!(Wrong::One(0).shows_like(Wrong::One(0)));
        assert!(!Wrong::One(0).shows_like(Wrong::One(4096)));
    }

    /// An array of RAID 5 that serves, and its three files.
    fn array(folder: &tempfile::TempDir) -> (Arc<Service>, Vec<std::path::PathBuf>) {
        (serving(folder, &["data"]), files(folder, "data"))
    }

    /// The three files of an array.
    fn files(folder: &tempfile::TempDir, name: &str) -> Vec<std::path::PathBuf> {
        let all = ["a", "b", "c"].map(|file| folder.path().join(format!("{name}.{file}")));
        all.to_vec()
    }

    /// Such arrays that serve.
    pub(crate) fn serving(folder: &tempfile::TempDir, names: &[&str]) -> Arc<Service> {
        let dir = Dir::at(&folder.path().join("run"));
        dir.make().expect("folders");
        let limits = Limits {
            shards: 1,
            ..Limits::default()
        };
        let service = Service::new(dir, Sources::default(), limits);
        for name in names {
            let paths = files(folder, name);
            for path in &paths {
                let file = File::create(path).expect("made");
                file.set_len(BYTES).expect("sparse");
            }
            let request = serde_json::json!({
                "name": name, "level": "5", "devices": paths, "export": "none",
            });
            let request: CreateRequest = serde_json::from_value(request).expect("a request");
            service.create(request).expect("made");
        }
        Arc::new(service)
    }

    fn states(service: &Service) -> Vec<MemberState> {
        let running = service.running("data").expect("it serves");
        let members = running.status().expect("it serves").members;
        members.iter().map(|member| member.state).collect()
    }

    fn overwrite(path: &std::path::Path, bytes: u64) {
        let file = File::options().write(true).open(path).expect("there");
        file.write_all_at(&vec![0xa5; bytes as usize], 0)
            .expect("written");
    }

    /// Events of this kind.
    fn count(service: &Service, kind: &str) -> usize {
        let all = service.events().since(0);
        all.iter().filter(|event| event.event == kind).count()
    }

    /// The cause of a doubt about the member in this slot.
    fn doubted(service: &Service, slot: usize) -> Option<OutCause> {
        let running = service.running("data").expect("it serves");
        running.status().expect("it serves").members[slot].doubted
    }

    /// The events of an array arrive a little later than what it does.
    fn until(what: &str, is_so: impl Fn() -> bool) {
        let patience = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < patience, "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn said(service: &Service) -> Vec<(u8, String)> {
        let all = service.events().since(0);
        let own = all.iter().filter(|event| event.event == "member_emptied");
        let said = own.map(|e| {
            (
                e.slot.expect("a slot"),
                e.effect.clone().unwrap_or_default(),
            )
        });
        said.collect()
    }

    /// A drive that `dd` went over passed for one in sync after the next stop: only files were
    /// looked at, and only for both copies.
    #[test]
    fn members_that_lost_superblocks_are_out_as_far_as_the_level_survives_it() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (service, paths) = array(&folder);
        service.put_out_emptied();
        let out = |service: &Service| {
            let states = states(service);
            states
                .iter()
                .filter(|state| **state == MemberState::InSync)
                .count()
        };
        assert_eq!(out(&service), 3, "all is well");
        // What lies at the path is not what the array has.
        let away = folder.path().join("away");
        fs::rename(&paths[2], &away).expect("renamed");
        File::create(&paths[2])
            .and_then(|f| f.set_len(BYTES))
            .expect("another file");
        service.put_out_emptied();
        assert_eq!(out(&service), 3, "it serves the one that was renamed");
        fs::rename(&away, &paths[2]).expect("renamed");
        // Of one the first copy is gone, and the other is left.
        overwrite(&paths[0], 1 << 20);
        service.put_out_emptied();
        assert_ne!(states(&service)[0], MemberState::InSync);
        overwrite(&paths[1], 1 << 20);
        service.put_out_emptied();
        assert_eq!(states(&service)[1], MemberState::InSync);
        let said = said(&service);
        assert_eq!(said[0], (0, "put out: what it held may be lost".to_owned()));
        assert!(
            said[1].0 == 1 && said[1].1.starts_with("still in service"),
            "{said:?}"
        );
        service.stop("data", false).expect("stopped");
    }

    /// It was noted each minute, and jobs of an idle array waited on when the copy was back.
    #[test]
    fn a_doubt_is_noted_once_and_ends_by_itself_when_the_copy_is_back() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (service, paths) = array(&folder);
        overwrite(&paths[0], BYTES);
        service.put_out_emptied();
        assert_ne!(states(&service)[0], MemberState::InSync);
        let file = File::options().read(true).write(true).open(&paths[1]);
        let file = file.expect("there");
        let mut held = vec![0; 1 << 20];
        for times in 1..3 {
            file.read_exact_at(&mut held, 0).expect("read");
            overwrite(&paths[1], 1 << 20);
            (0..3).for_each(|_| service.put_out_emptied());
            assert_eq!(doubted(&service, 1), Some(OutCause::Emptied));
            assert_eq!(doubted(&service, 2), None);
            let own = said(&service).into_iter().filter(|(slot, _)| *slot == 1);
            assert_eq!(own.count(), times, "it is noted once for each doubt");
            assert_eq!(count(&service, "member_no_longer_doubted"), times - 1);
            file.write_all_at(&held, 0).expect("brought back");
            service.put_out_emptied();
            assert_eq!(doubted(&service, 1), None);
            let ended = || count(&service, "member_no_longer_doubted") == times;
            until("the end of the doubt is said", ended);
            service.put_out_emptied();
        }
        assert_eq!(count(&service, "member_doubted"), 2);
        assert_eq!(count(&service, "member_no_longer_doubted"), 2);
        service.stop("data", false).expect("stopped");
    }

    /// One thread looked at all arrays, one after the other.
    #[test]
    fn one_array_that_hangs_keeps_no_emptied_member_of_another_in_service() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let service = serving(&folder, &["x", "y"]);
        let all = service.all_running();
        overwrite(&files(&folder, all[1].name().as_str())[0], BYTES);
        let is_out = || {
            let members = all[1].status().expect("it serves").members;
            members[0].state != MemberState::InSync
        };
        std::thread::scope(|scope| {
            all[0].noted.with(|_| {
                scope.spawn(|| service.put_out_emptied());
                until("the member to be put out", is_out);
            });
        });
        service.stop_all();
    }

    #[test]
    fn a_member_that_was_overwritten_is_out_before_its_array_stops() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (service, paths) = array(&folder);
        overwrite(&paths[1], BYTES);
        service.stop("data", false).expect("stopped");
        assert_eq!(said(&service).len(), 1);
        let found = service.scan(&paths);
        assert_eq!(found[0].members.len(), 2, "nothing of it was written anew");
    }
}

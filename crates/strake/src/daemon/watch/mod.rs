//! Looks for drives as they appear, and starts what can be started.
//!
//! Protocol: when the kernel tells of a block device (`uevents`), two seconds after an event (an
//! array was made or started, a member was added: its members may be files), and every two seconds
//! while there is something to wait for that the kernel does not tell (files; arrays that wait;
//! members that are busy), the names, numbers and sizes of the candidates are compared with the
//! last time (a few reads of /sys; no member is read); only when they changed, or while arrays wait
//! for members, are superblocks read, and running arrays hear how large their devices are now. A
//! complete array is started at once; one that could be started degraded by the rule for that
//! (`degraded`), which may be the array's own: at once, after some time, or not by itself; a start
//! that was refused is tried again when other members are there. A member that was away from an
//! array that runs, and holds what it should but for what was written meanwhile, is taken back by
//! itself; so is one that came back between two looks, for which a loss of a member is cause enough
//! to look again, and a spare that a start did without because it was not there. Of any other an
//! event says that it is there.
//!
//! A member that did not answer in time has not gone anywhere, so nothing tells when it answers
//! again: it is looked for from time to time (`late`). It cannot be opened as long as an old I/O is
//! under way on it, and so is not taken back before the last of them is over.
//!
//! An array that was served here and of which no member is found is told when it was missing for as
//! long as an array waits for its members. While a device cannot be read or gives no answer, it is
//! told instead that its members may be there; all drives are looked at again every half a minute.
//!
//! What asks an array or its drives for more than a look is done beside the looks (`tasks`). A look
//! that panics is told (`rounds`), and what it left half-done is looked at anew by the next.
//!
//! Deliberately absent: taking back by itself what failed, or what an administrator put out.

pub(crate) mod late;
pub(crate) mod uevents;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use strake_engine::Lack;
use strake_engine::event::ArrayState;
use strake_format::{ArrayUuid, MemberUuid, Past, Returns, Role, past, returns};
use strake_runtime::MemberImage;

use crate::common::errors::{Code, Failure};
use crate::common::quoted;
use crate::daemon::array::running::Running;
use crate::daemon::events::{EventLog, Happened};
use crate::daemon::rounds::Rounds;
use crate::daemon::service::Service;
use crate::daemon::service::watched::missing::Missing;
use crate::daemon::tasks::Tasks;
use crate::daemon::watch::late::Late;
use crate::drives::find::{FoundArray, FoundMember, Readiness};
use crate::drives::machine::sysfs;
use crate::drives::machine::sysfs::Identity;
use crate::settings::degraded;
use crate::settings::degraded::{DegradedStart, Rule};

/// How often to compare, where nobody tells of changes.
pub(crate) const PERIOD: Duration = Duration::from_secs(2);
/// And where the kernel does: in case that a message was lost.
const PERIOD_TOLD: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug)]
pub(crate) struct Watcher {
    service: Arc<Service>,
    /// For arrays that have no rule of their own.
    degraded: Rule,
    seen: Vec<(PathBuf, Identity, u64)>,
    /// How much room files took at the last look.
    room: BTreeMap<Identity, u64>,
    waiting: BTreeMap<ArrayUuid, Waiting>,
    starting: Tasks<Tried>,
    /// Whether arrays were told the sizes of their devices.
    sizing: Tasks<bool>,
    returning: Tasks<Returned>,
    /// Devices of arrays may have grown, and the arrays were not told yet.
    resized: bool,
    /// Events from this one on are new to it.
    next_event: u64,
    /// A member that came back could not be opened yet: its last user may still be closing it.
    again: bool,
    tries: u32,
    /// A member did not answer in time.
    late: Late,
    /// Since when arrays are missing.
    missing: BTreeMap<ArrayUuid, Instant>,
    /// Those of them of which it is noted that their members may be on devices that are unread.
    not_read: BTreeSet<ArrayUuid>,
    /// When all drives were looked at last.
    scanned: Option<Instant>,
}

/// What calls for another look.
struct News {
    /// Members went out of service.
    lost: bool,
    /// One of them did not answer in time.
    late: bool,
    /// Names were given or became free.
    names: bool,
    /// Something else was said of an array.
    settings: bool,
    /// An array went into service: devices that were spares of it may be there.
    started: bool,
    /// An array is not in service any more, or not what it was when drives were looked at last.
    stopped: bool,
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    /// How long it is waited for members.
    wait: Duration,
    /// Members with which a start was refused, and why.
    refused_with: Option<(Vec<MemberUuid>, Code)>,
    /// A refusal that may pass is tried again, less and less often.
    again_at: Instant,
    pause: Duration,
}

/// What came of a start.
#[derive(Debug)]
struct Tried {
    name: String,
    /// With these members.
    members: Vec<MemberUuid>,
    result: Result<(), Failure>,
}

/// What came of members of one array that are there again.
#[derive(Debug, Default)]
struct Returned {
    /// One was taken back.
    taken: bool,
    /// One could not be opened yet.
    busy: bool,
}

/// Between two tries of a start that was refused.
const PAUSE_MIN: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A member that came back is tried so often, if it is busy.
const TRIES_MAX: u32 = 15;

/// The members are as they are: nothing but other members will change this.
fn stays(code: Code) -> bool {
    use Code::{
        Damaged, DegradedStart, Destroyed, DirtyDegraded, MemberTwice, MembersEmptied,
        MembersMissing, SplitBrain,
    };
    matches!(
        code,
        Damaged
            | DegradedStart
            | Destroyed
            | DirtyDegraded
            | MemberTwice
            | MembersEmptied
            | MembersMissing
            | SplitBrain
    )
}

/// The name is another's.
fn for_name(code: Code) -> bool {
    use Code::{NameAmbiguous, NameExists, NameOfAnother};
    matches!(code, NameAmbiguous | NameExists | NameOfAnother)
}

/// It is somebody else's by now.
fn is_used(code: Code) -> bool {
    use Code::{DeviceBusy, DeviceMounted, DevicePartitioned, ForeignSignature};
    matches!(
        code,
        DeviceBusy | DeviceMounted | DevicePartitioned | ForeignSignature
    )
}

/// How large it is, and how much room a file takes.
fn size_of(id: Identity, about: &Metadata) -> (u64, u64) {
    match id {
        Identity::File(..) => (about.len(), about.blocks()),
        Identity::Block(rdev) => {
            let size = format!("/sys/dev/block/{}/size", sysfs::dev_text(rdev));
            let text = std::fs::read_to_string(size).unwrap_or_default();
            (text.trim().parse::<u64>().unwrap_or(0) * 512, 0)
        }
    }
}

/// Why a device with a superblock of a running array is not taken back as the member that it was.
fn why_not(running: &Running, image: &MemberImage) -> String {
    let status = running.status().ok();
    let past = status.as_ref().map_or(Past::Last, |status| {
        past(&image.superblock, &status.superblock)
    });
    let lack = status.and_then(|status| {
        let kept = matches!(
            returns(&image.superblock, &status.superblock),
            Returns::Kept(_)
        );
        status.lacks(&image.map).filter(|_| kept)
    });
    match (past, image.emptied) {
        (Past::Older { has, heard }, _) => {
            format!("an older image of a member (generation {has}, it had {heard})")
        }
        (Past::Other { has, first }, _) => format!(
            "of a copy of the array that went on apart (generation {has}, the array went on \
             without it from {first} on)"
        ),
        (Past::Branch { has, at }, _) => format!(
            "of a copy of the array that went on apart (generation {has}, another session wrote \
             generation {at} of it)"
        ),
        (Past::Unclear { has, first }, _) => format!(
            "perhaps of a copy of the array that went on apart (generation {has}, the array went \
             on without it from {first}, or a later one, on)"
        ),
        (Past::Last, Some(offset)) => {
            format!("without its superblock at byte {offset}, and perhaps without its content")
        }
        (Past::Last, None) if image.superblock.role == Role::Spare => {
            "a spare that the array does not list".to_owned()
        }
        (Past::Last, None) => lack.map_or_else(|| "stale".to_owned(), |lack| older(&lack, image)),
    }
}

/// How a device that is not taken back by itself gets into the array.
fn back_by(running: &Running, member: &FoundMember) -> String {
    let (name, path) = (running.name(), quoted(&member.path));
    let status = running.status();
    if matches!(&status, Ok(status) if status.state == ArrayState::Failed) {
        return format!(
            ", not used: the array has failed; strake stop {name}, then strake start {name} takes \
             what can be used"
        );
    }
    let table = status.map(|status| status.superblock);
    match table.map(|table| returns(&member.image.superblock, &table)) {
        Ok(Returns::SplitBrain) => format!(
            ", not used: it may hold writes that the array lacks; strake add --force {name} {path} \
             overwrites them"
        ),
        _ => format!(", not used; strake add {name} {path} puts it back"),
    }
}

/// What a member is if its region map does not show what the member had.
fn older(lack: &Lack, image: &MemberImage) -> String {
    let Lack { page, has, had } = *lack;
    let whole = image.map_whole.get(page as usize) == Some(&true);
    match has.filter(|_| whole) {
        Some(has) => format!(
            "an older image of a member (page {page} of its region map has version {has}, it had \
             {had})"
        ),
        None => format!(
            "not told from an older image of a member (page {page} of its region map is damaged, \
             it had version {had})"
        ),
    }
}

impl Watcher {
    /// A watcher that has seen nothing yet.
    pub(crate) fn new(service: Arc<Service>, degraded: Rule) -> Watcher {
        let events = Arc::clone(service.events());
        Watcher {
            service,
            degraded,
            seen: Vec::new(),
            room: BTreeMap::new(),
            waiting: BTreeMap::new(),
            starting: Tasks::new("start", &events),
            sizing: Tasks::new("size", &events),
            returning: Tasks::new("return", &events),
            resized: false,
            next_event: 0,
            again: false,
            tries: 0,
            late: Late::default(),
            missing: BTreeMap::new(),
            not_read: BTreeSet::new(),
            scanned: None,
        }
    }

    /// Where what happens to arrays is noted.
    pub(crate) fn events(&self) -> Arc<EventLog> {
        Arc::clone(self.service.events())
    }

    /// An array is being started.
    pub(crate) fn starts(&self) -> bool {
        !self.starting.is_empty()
    }

    /// How long until the next look, unless the kernel tells of a device, which it does if `told`.
    pub(crate) fn pause(&self, told: bool) -> Duration {
        let file = |(_, id, _): &(PathBuf, Identity, u64)| matches!(id, Identity::File(..));
        let waits = self.again
            || self.resized
            || !self.starting.is_empty()
            || !self.sizing.is_empty()
            || !self.returning.is_empty()
            || self.late.looks()
            || self.service.looks().waits()
            || !self.service.unread().is_empty()
            || self.missing.len() > self.service.told_missing().len()
            || !self.waiting.is_empty();
        match !told || waits || self.seen.iter().any(file) {
            true => PERIOD,
            false => PERIOD_TOLD,
        }
    }

    /// Looks once.
    pub(crate) fn look(&mut self, now: Instant) {
        self.look_at_drives(now);
        self.look_for_missing(now);
    }

    /// The same as a round: false if it panicked.
    pub(crate) fn look_in(&mut self, rounds: &mut Rounds, now: Instant) -> bool {
        self.look_by(rounds, |watcher| watcher.look(now))
    }

    fn look_by(&mut self, rounds: &mut Rounds, look: impl FnOnce(&mut Watcher)) -> bool {
        let looked = rounds.round(|| look(self)).is_some();
        if !looked {
            // It may have taken news and not followed it.
            (self.again, self.resized) = (true, true);
            self.try_again_after(|_| true);
        }
        looked
    }

    /// Tells of arrays that are missing for long enough, and of those no more that are not.
    fn look_for_missing(&mut self, now: Instant) {
        // It cannot be read which arrays are known: all stays as it is.
        let Ok((mut missing, unread)) = self.service.seems_missing() else {
            return;
        };
        // After a stop a user may take its drives away.
        missing.retain(|one| !self.service.is_stopped(one.uuid));
        self.missing
            .retain(|uuid, _| missing.iter().any(|one| one.uuid == *uuid));
        for one in &missing {
            self.missing.entry(one.uuid).or_insert(now);
        }
        let told = self.service.told_missing();
        let is_told = |one: &Missing| told.iter().any(|told| told.missing == *one);
        missing.retain(|one| {
            let wait = || {
                let own = self.service.dir().placement(one.uuid).degraded;
                self.degraded.with(own).wait
            };
            let since = self.missing.get(&one.uuid);
            is_told(one) || since.is_some_and(|at| now >= *at + wait())
        });
        self.not_read
            .retain(|uuid| missing.iter().any(|one| one.uuid == *uuid));
        if !unread.is_empty() {
            // Their members may be there.
            for one in missing.iter().filter(|one| !is_told(one)) {
                if self.not_read.insert(one.uuid) {
                    self.service.note_unread(one, &unread);
                }
            }
            return;
        }
        if missing.iter().any(|one| !is_told(one)) {
            // One that was made since the last look at all drives is found by another.
            let found = self.service.missing();
            missing.retain(|one| found.contains(one));
        }
        self.service.tell_missing(missing);
    }

    /// The candidates, as far as a look at them reads nothing.
    /// A file that was cut short and made as long again between two looks takes less room; so does
    /// one of which the array gave some back, which costs a look at its superblocks.
    fn fingerprint(&mut self) -> Vec<(PathBuf, Identity, u64)> {
        let mut seen = Vec::new();
        let mut room = BTreeMap::new();
        let paths = self.service.paths();
        let about = sysfs::about_each(&paths);
        for (path, about) in paths.into_iter().zip(about) {
            let (id, size, takes) = match about {
                Ok((id, about)) => {
                    let (size, takes) = size_of(id, &about);
                    (id, size, takes)
                }
                // It is what it was.
                Err(why) if why.code == Code::DeviceSilent => {
                    let before = self.seen.iter().find(|(other, ..)| *other == path);
                    let Some((_, id, size)) = before else {
                        continue;
                    };
                    (*id, *size, self.room.get(id).copied().unwrap_or_default())
                }
                Err(_) => continue,
            };
            room.insert(id, takes);
            seen.push((path, id, size));
        }
        let before = std::mem::replace(&mut self.room, room);
        let shrank = |(id, takes): (&Identity, &u64)| before.get(id).is_some_and(|was| takes < was);
        if self.room.iter().any(shrank) {
            self.doubt();
        }
        seen
    }

    /// Something happened to devices: members in service are looked at.
    pub(crate) fn doubt(&self) {
        self.service.doubts().notify_one();
    }

    fn look_at_drives(&mut self, now: Instant) {
        let fingerprint = self.fingerprint();
        let news = self.news();
        let lost = news.lost;
        if news.names {
            self.try_again_after(for_name);
        }
        if news.settings {
            self.try_again_after(|code| code == Code::DegradedStart);
        }
        self.settle(now);
        let again = std::mem::take(&mut self.again);
        self.resized |= fingerprint != self.seen;
        if self.resized {
            self.doubt();
        }
        if std::mem::take(&mut self.resized) {
            self.follow_sizes();
        }
        let answers = self.service.looks().came_back();
        let changed = fingerprint != self.seen || lost || again || answers;
        let late = self.late.is_due(news.late, now);
        let due = self.waiting.values().any(|w| match w.refused_with {
            None => now >= w.since + w.wait,
            // Nothing tells when what was in the way is gone.
            Some((_, code)) => !stays(code) && !for_name(code) && now >= w.again_at,
        });
        let asked = news.settings && !self.waiting.is_empty();
        // Nothing tells when a device can be read again that gave an error.
        let unread = !self.service.unread().is_empty()
            && self.scanned.is_none_or(|at| now >= at + PERIOD_TOLD);
        let quiet = !changed && !due && !late && !asked && !unread;
        if quiet && !news.stopped && !news.started {
            return;
        }
        self.scanned = Some(now);
        let first = self.seen.is_empty();
        self.seen = fingerprint;
        let found = self.service.scan(&[]);
        self.waiting
            .retain(|uuid, _| found.iter().any(|a| a.uuid == *uuid));
        for array in &found {
            if self.service.is_running(array.uuid) {
                self.waiting.remove(&array.uuid);
                if changed && (lost || !first) {
                    self.take_back(array, take_returned);
                } else if late {
                    self.take_back(array, take_late_back);
                } else if news.started {
                    self.take_back(array, take_spares_back);
                }
            } else if !self.service.is_stopped(array.uuid) {
                self.consider(array, now);
            }
        }
        self.settle(now);
    }

    /// Tells each array how large its devices are; one that is asked already is told later.
    fn follow_sizes(&mut self) {
        for running in self.service.all_running() {
            self.resized |= self.sizing.waits(running.uuid);
            self.sizing.begin(running.uuid, move || {
                running.with(|serving| Ok(serving.follow_sizes()?)).is_ok()
            });
        }
        let ended = self.sizing.ended();
        self.resized |= ended.iter().any(|(_, followed)| !followed);
    }

    /// Takes note of what has come of tasks.
    fn settle(&mut self, now: Instant) {
        for (uuid, tried) in self.starting.ended() {
            self.tried(uuid, tried, now);
        }
        for (_, returned) in self.returning.ended() {
            if returned.taken {
                self.tries = 0;
            }
            if returned.busy {
                (self.again, self.tries) = (true, self.tries + 1);
            }
        }
        let ended = self.sizing.ended();
        self.resized |= ended.iter().any(|(_, followed)| !followed);
    }

    fn consider(&mut self, array: &FoundArray, now: Instant) {
        if self.starting.has(array.uuid) {
            return;
        }
        let own = self.service.dir().try_placement(array.uuid);
        let rule = match &own {
            Ok(own) => self.degraded.with(own.degraded),
            Err(_) => self.degraded,
        };
        let members: Vec<MemberUuid> = array.usable().map(|m| m.image.superblock.member).collect();
        let waiting = self.waiting.entry(array.uuid).or_insert_with(|| Waiting {
            since: now,
            wait: rule.wait,
            refused_with: None,
            again_at: now,
            pause: PAUSE_MIN,
        });
        waiting.wait = rule.wait;
        let same = waiting
            .refused_with
            .as_ref()
            .filter(|(with, _)| *with == members);
        let waits = |code| code == Code::DegradedStart && rule.start == DegradedStart::Wait;
        let stays = |code| stays(code) && !waits(code);
        if same.is_some_and(|(_, code)| stays(*code) || now < waiting.again_at) {
            return;
        }
        if let Err(failure) = own {
            // What was said of it may forbid the start.
            return self.refused(array, members, failure, now);
        }
        let waited = now >= waiting.since + waiting.wait;
        let whole = match rule.start {
            DegradedStart::Allow => false,
            DegradedStart::Wait => !waited,
            DegradedStart::Never => true,
        };
        let (ready, allowed) = match (array.readiness(), rule.start) {
            (Readiness::Complete, _) | (Readiness::Degraded, DegradedStart::Allow) => (true, true),
            (Readiness::Degraded, DegradedStart::Wait) => (waited, true),
            (Readiness::Degraded, DegradedStart::Never) => (waited, false),
            // Said once, so that a person sees in the events why the array is not there.
            (Readiness::Incomplete | Readiness::Conflicting, _) => (waited, true),
        };
        if !ready {
            return;
        }
        let name = array.name().to_string();
        if !allowed {
            return self.refused(array, members, degraded::refused(&name), now);
        }
        let (service, array) = (Arc::clone(&self.service), array.clone());
        self.starting.begin(array.uuid, move || Tried {
            name,
            members,
            result: service.start_by_itself(&array, whole),
        });
    }

    /// It is not started with these members.
    fn refused(&mut self, array: &FoundArray, with: Vec<MemberUuid>, why: Failure, now: Instant) {
        let tried = Tried {
            name: array.name().to_string(),
            members: with,
            result: Err(why),
        };
        self.tried(array.uuid, tried, now);
    }

    /// A start was tried.
    fn tried(&mut self, uuid: ArrayUuid, tried: Tried, now: Instant) {
        let Err(failure) = tried.result else {
            self.waiting.remove(&uuid);
            return;
        };
        // Its members are gone again.
        let Some(waiting) = self.waiting.get_mut(&uuid) else {
            return;
        };
        if failure.code == Code::ChangeUnderWay {
            // The change under way may be about to start it.
            waiting.again_at = now + waiting.pause;
            return;
        }
        let with = (tried.members, failure.code);
        let said = waiting.refused_with.replace(with);
        waiting.again_at = now + waiting.pause;
        waiting.pause = (waiting.pause * 2).min(PAUSE_MAX);
        if said == waiting.refused_with {
            return;
        }
        self.service.events().note(Happened {
            array: Some(tried.name),
            uuid: Some(uuid.to_string()),
            event: "start_refused",
            cause: Some(format!("{}: {}", failure.code.name(), failure.found)),
            effect: Some(failure.cure),
            ..Happened::default()
        });
    }

    /// What has happened since the last time that this was asked.
    fn news(&mut self) -> News {
        let events = self.service.events().since(self.next_event);
        if let Some(last) = events.last() {
            self.next_event = last.sequence + 1;
        }
        let any = |names: &[&str]| events.iter().any(|e| names.contains(&e.event.as_str()));
        News {
            lost: any(&["member_out"]),
            late: events.iter().any(|e| {
                let cause = e.cause.as_deref().unwrap_or_default();
                // Nothing tells when a program lets go of one either.
                e.event == "member_out" && cause == "timed_out"
                    || e.event == "member_set_aside" && cause.starts_with("device-busy")
            }),
            names: any(&["renamed", "imported", "destroyed", "forgotten"]),
            settings: any(&["settings_changed"]),
            started: any(&["started"]),
            stopped: any(&["stopped", "destroyed", "renamed", "cleaned", "forgotten"]),
        }
    }

    /// What was refused for a reason like this may be started now.
    fn try_again_after(&mut self, reason: impl Fn(Code) -> bool) {
        for waiting in self.waiting.values_mut() {
            waiting.refused_with.take_if(|(_, code)| reason(*code));
        }
    }

    /// Takes back members that are there again. Of those that were late all was said when they were
    /// lost.
    fn take_back(&mut self, array: &FoundArray, take: TakeBack) {
        // One that is at it does not know what has come since.
        self.again |= self.returning.waits(array.uuid);
        let (service, array) = (Arc::clone(&self.service), array.clone());
        let patient = self.tries < TRIES_MAX;
        self.returning
            .begin(array.uuid, move || take(&service, &array, patient));
    }
}

/// Takes back what is there again of an array. `patient`: one that is busy is tried again.
type TakeBack = fn(&Service, &FoundArray, bool) -> Returned;

/// The array in service. Of one that does not answer, or stops, it is not known what it serves.
fn answering(service: &Service, array: &FoundArray) -> Option<Arc<Running>> {
    let running = service.running(&array.uuid.to_string()).ok()?;
    running.status().is_ok().then_some(running)
}

/// Adds spares again that the array lost only because they were not there when it started.
fn take_spares_back(service: &Service, array: &FoundArray, patient: bool) -> Returned {
    let spares = service.dir().spares(array.uuid);
    let is_away = |m: &&FoundMember| spares.is_away(m.image.superblock.member);
    match array.unlisted_spares().any(|m| is_away(&m)) {
        true => take(service, array, patient, |m| is_away(&m)),
        false => Returned::default(),
    }
}

/// Takes back what is there again, and says nothing of what is not taken.
fn take_late_back(service: &Service, array: &FoundArray, _patient: bool) -> Returned {
    let Some(running) = answering(service, array) else {
        return Returned::default();
    };
    for member in array.members.iter().filter(|m| !running.serves(&m.path)) {
        if let Err(failure) = service.return_by_itself(&running, member) {
            tracing::debug!(device = %member.path.display(), %failure, "not taken back yet");
        }
    }
    Returned::default()
}

/// The same, and tells of those that are not taken back.
fn take_returned(service: &Service, array: &FoundArray, patient: bool) -> Returned {
    take(service, array, patient, |_| true)
}

fn take(
    service: &Service,
    array: &FoundArray,
    patient: bool,
    is_meant: impl Fn(&FoundMember) -> bool,
) -> Returned {
    let mut returned = Returned::default();
    let Some(running) = answering(service, array) else {
        returned.busy = patient;
        return returned;
    };
    let away = array.members.iter().filter(|m| !running.serves(&m.path));
    for member in away.filter(|m| is_meant(m)) {
        let mut others = None;
        match service.return_by_itself(&running, member) {
            Ok(true) => {
                returned.taken = true;
                continue;
            }
            Ok(false) => {}
            Err(failure)
                if matches!(failure.code, Code::DeviceBusy | Code::ChangeUnderWay) && patient =>
            {
                returned.busy = true;
                continue;
            }
            Err(failure) => {
                tracing::warn!(device = %member.path.display(), %failure, "not taken back");
                others = Some(failure).filter(|failure| is_used(failure.code));
            }
        }
        let twice = running.not_in_service(&member.path, &member.image.superblock);
        let effect = match twice.and(others.map_or(Ok(()), Err)) {
            Ok(()) => why_not(&running, &member.image) + &back_by(&running, member),
            Err(failure) => format!("not used: {}", failure.found),
        };
        service.events().note(Happened {
            array: Some(running.name().to_string()),
            event: "member_returned",
            device: Some(member.path.display().to_string()),
            effect: Some(effect),
            ..Happened::default()
        });
    }
    returned
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::FlockOperation;
    use strake_engine::event::MemberState;

    use super::*;
    use crate::api::{CreateRequest, SettingsJson, StartRequest};
    use crate::daemon::array::running::Limits;
    use crate::daemon::sources::Sources;
    use crate::daemon::state::Dir;

    /// A mirror that serves without its second member, which the watcher knows.
    struct Rig {
        watcher: Watcher,
        service: Arc<Service>,
        second: PathBuf,
        _folder: tempfile::TempDir,
    }

    impl Rig {
        fn new() -> Rig {
            let folder = tempfile::tempdir().expect("temporary folder");
            let paths = ["a", "b"].map(|name| folder.path().join(name));
            for path in &paths {
                let file = File::create(path).expect("made");
                file.set_len(32 << 20).expect("sparse");
            }
            let dir = Dir::at(&folder.path().join("run"));
            dir.make().expect("folders");
            let service = Service::new(dir, Sources::default(), Limits::default());
            let service = Arc::new(service);
            let request = serde_json::json!({
                "name": "data", "level": "1", "devices": paths, "export": "none",
            });
            let request: CreateRequest = serde_json::from_value(request).expect("a request");
            service.create(request).expect("made");
            service.stop("data", false).expect("stopped");
            let [_, second] = paths;
            let away = folder.path().join("away");
            std::fs::rename(&second, &away).expect("unplugged");
            service
                .start("data", StartRequest::default())
                .expect("started without it");
            let rule = Rule {
                start: DegradedStart::Allow,
                wait: Duration::ZERO,
            };
            let mut watcher = Watcher::new(Arc::clone(&service), rule);
            watcher.look(Instant::now());
            std::fs::rename(&away, &second).expect("plugged");
            Rig {
                watcher,
                service,
                second,
                _folder: folder,
            }
        }
        fn is_missing(&self) -> bool {
            let running = self.service.running("data").expect("it serves");
            let status = running.status().expect("it serves");
            status.members[1].state == MemberState::Missing
        }
    }

    /// While an old I/O is under way its device cannot be opened; when that is over, nothing tells
    /// of it.
    #[test]
    fn a_late_member_is_taken_back_by_the_look_that_is_due_and_by_none_before() {
        let mut rig = Rig::new();
        let held = File::open(&rig.second).expect("it is there");
        rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive).expect("held");
        // That it appeared is cause enough to try for a while.
        let begun = Instant::now();
        (0..=TRIES_MAX).for_each(|_| rig.watcher.look(begun));
        assert!(!rig.watcher.again, "it has tried enough");
        rig.service.events().note(Happened {
            array: Some("data".to_owned()),
            slot: Some(1),
            event: "member_out",
            cause: Some("timed_out".to_owned()),
            ..Happened::default()
        });
        rig.watcher.look(begun);
        assert!(rig.is_missing() && !rig.watcher.again);
        let at = |s| begun + Duration::from_secs(s);
        rig.watcher.look(at(15));
        assert!(rig.is_missing(), "it is still held");
        drop(held);
        rig.watcher.look(at(20));
        assert!(rig.is_missing(), "no look was due");
        assert_eq!(rig.watcher.pause(true), PERIOD);
        rig.watcher.look(at(30));
        assert!(!rig.is_missing(), "it is taken back");
        rig.service.stop_all();
    }

    /// The watcher was gone, and with it every start of an array by itself.
    #[test]
    fn a_look_that_panics_costs_that_look_and_the_next_follows_what_it_left() {
        let mut rig = Rig::new();
        let events = Arc::clone(rig.service.events());
        let mut rounds = Rounds::new("the watcher of drives", Arc::clone(&events));
        let looked = rig.watcher.look_by(&mut rounds, |watcher| {
            // The news is taken, as by a look that comes to no end.
            let _ = watcher.news();
            watcher.seen = watcher.fingerprint();
            panic!("a test");
        });
        assert!(!looked && rig.is_missing());
        assert!(rounds.pause() > Duration::ZERO);
        let failed = events.since(0).into_iter().rev();
        let failed = failed.into_iter().find(|e| e.event == "daemon_task_failed");
        let cause = failed.expect("an event").cause;
        assert_eq!(cause.as_deref(), Some("the watcher of drives: a test"));
        assert!(rig.watcher.look_in(&mut rounds, Instant::now()));
        assert!(!rig.is_missing(), "it is taken back");
        assert_eq!(rounds.pause(), Duration::ZERO);
        rig.service.stop_all();
    }

    #[test]
    fn an_array_that_was_renamed_after_it_was_found_is_not_started_by_its_old_name() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("a");
        File::create(&path)
            .and_then(|file| file.set_len(32 << 20))
            .expect("sparse");
        let service = || {
            let dir = Dir::at(&folder.path().join("run"));
            dir.make().expect("folders");
            Service::new(dir, Sources::default(), Limits::default())
        };
        let request = serde_json::json!({
            "name": "data", "level": "0", "devices": [path], "export": "none",
        });
        let request: CreateRequest = serde_json::from_value(request).expect("a request");
        let first = service();
        first.create(request).expect("made");
        first.stop_all();
        let service = service();
        let [found] = &service.scan(&[])[..] else {
            panic!("it is there");
        };
        let rename = serde_json::json!({ "name": "other" });
        let rename = serde_json::from_value(rename).expect("a request");
        service.rename("data", &rename).expect("renamed");
        let refused = service
            .start_by_itself(found, true)
            .expect_err("it changed");
        assert_eq!(refused.code, Code::ChangeUnderWay);
        assert!(
            refused.found.contains("data is called other"),
            "{refused:?}"
        );
        let found = &service.scan(&[])[0];
        service.start_by_itself(found, true).expect("started");
        let running = service.running("other").expect("it serves");
        assert_eq!(running.name().as_str(), "other");
        service.stop_all();
    }

    /// Alerts and metrics look while the watcher starts what came back.
    #[test]
    fn an_array_that_came_back_is_not_missing_before_the_look_that_found_it_ends() {
        let rig = Rig::new();
        rig.service.stop_all();
        let dir = Dir::at(&rig._folder.path().join("run"));
        let service = Arc::new(Service::new(dir, Sources::default(), Limits::default()));
        let rule = Rule {
            start: DegradedStart::Allow,
            wait: Duration::ZERO,
        };
        let mut watcher = Watcher::new(Arc::clone(&service), rule);
        let first = rig.second.with_file_name("a");
        let away = |path: &std::path::Path| path.with_extension("away");
        for path in [&first, &rig.second] {
            std::fs::rename(path, away(path)).expect("unplugged");
        }
        watcher.look(Instant::now());
        assert_eq!(service.told_missing().len(), 1);
        for path in [&first, &rig.second] {
            std::fs::rename(away(path), path).expect("plugged");
        }
        service.scan(&[]);
        assert!(service.told_missing().is_empty());
        assert!(service.seen().iter().all(|seen| !seen.array.not_found));
        watcher.look(Instant::now());
        assert!(service.running("data").is_ok(), "it serves");
        service.stop_all();
    }

    /// It counted as never set: the array was started without its member, and what was set next
    /// took the place of all that was set before.
    #[test]
    fn an_array_of_which_the_settings_cannot_be_read_is_neither_started_nor_set() {
        let rig = Rig::new();
        let asked = |json| -> SettingsJson { serde_json::from_value(json).expect("a request") };
        let (never, allow) = (
            serde_json::json!({ "degraded": "never" }),
            serde_json::json!({ "degraded": "allow" }),
        );
        rig.service.set("data", &asked(never)).expect("set");
        rig.service.stop_all();
        std::fs::rename(&rig.second, rig.second.with_extension("away")).expect("unplugged");
        let run = rig._folder.path().join("run");
        let service = Service::new(Dir::at(&run), Sources::default(), Limits::default());
        let service = Arc::new(service);
        let rule = Rule {
            start: DegradedStart::Allow,
            wait: Duration::ZERO,
        };
        let mut watcher = Watcher::new(Arc::clone(&service), rule);
        let uuid = service.scan(&[])[0].uuid;
        let file = run.join(format!("placement/{uuid}.json"));
        let kept = std::fs::read(&file).expect("it was kept");
        let cut = &kept[..kept.len() - 1];
        std::fs::write(&file, cut).expect("damaged");
        let look = |watcher: &mut Watcher, mut now: Instant| {
            for _ in 0..20 {
                watcher.look(now);
                while !watcher.starting.is_empty() {
                    watcher.settle(now);
                    std::thread::sleep(Duration::from_millis(10));
                }
                now += Duration::from_secs(60);
            }
        };
        let begun = Instant::now();
        look(&mut watcher, begun);
        assert!(!service.is_running(uuid), "what was set may forbid it");
        let refused = || {
            let all = service.events().since(0).into_iter();
            let refused = all.filter(|event| event.event == "start_refused");
            refused.filter_map(|event| event.cause).collect::<Vec<_>>()
        };
        let told = refused();
        assert_eq!(told.len(), 1, "said once: {told:?}");
        assert!(told[0].contains(&file.display().to_string()), "{told:?}");
        let set = service.set("data", &asked(allow.clone()));
        assert_eq!(set.expect_err("refused").code, Code::Io);
        let start = StartRequest {
            by_rule: true,
            ..StartRequest::default()
        };
        let start = service.start("data", start);
        assert_eq!(start.expect_err("refused").code, Code::Io);
        crate::daemon::service::keep_export(service.dir(), uuid, Some("nbd"));
        assert_eq!(std::fs::read(&file).expect("it is there"), cut);
        assert!(service.settings("data").is_err());
        // As the cure has it.
        std::fs::rename(&file, file.with_extension("json.damaged")).expect("ours");
        let set = service.settings("data").expect("read");
        assert_eq!(set.degraded.as_deref(), Some("default"));
        std::fs::write(&file, &kept).expect("mended");
        service.set("data", &asked(allow)).expect("set");
        look(&mut watcher, begun + Duration::from_secs(3600));
        assert!(service.is_running(uuid), "nothing forbids it");
        service.stop_all();
    }
}

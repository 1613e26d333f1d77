//! Arrays on drives: which devices carry members, and what they make together.
//!
//! Invariants: looking never writes and never waits for a device that an array of ours exports.
//! What carries a superblock and cannot be used as it is (it is damaged, it shrank, something
//! foreign lies on it) is *set aside*: it is told with what is wrong with it, and no array is
//! assembled with it. What the engine would not use of the rest is known by the engine's own rule
//! ([`engine::Aside::of_each`]), so that what is said of an array is what its start finds. One
//! drive under several names counts once, by the uppermost. Which superblock to believe is the
//! format's word ([`strake_format::select_array`]), not ours.
//!
//! Deliberately absent: opening members for service.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::io::Errno;
use strake_engine as engine;
use strake_engine::Geometry;
use strake_engine::event::DeviceInfo;
use strake_engine::units::DeviceId;
use strake_format::*;
use strake_runtime::{Device, DeviceError, MemberImage, OpenMode};

use crate::api::{MemberJson, ScanDeviceJson, ScanJson, SetAsideJson};
use crate::common::errors::{Code, Failure};
use crate::common::partly;
use crate::common::{quoted, size};
use crate::drives::aside::{copies, cut_off};
use crate::drives::machine::answering;
use crate::drives::machine::looks::Looks;
use crate::drives::machine::stack::{Loops, Stack};
use crate::drives::machine::{paths, sysfs};
use crate::drives::pool::Pool;
use crate::drives::reused;
use crate::drives::safety;
use crate::view;

/// A member found.
#[derive(Clone, Debug)]
pub(crate) struct FoundMember {
    /// Where.
    pub(crate) path: PathBuf,
    /// What it carries; of one that is damaged nothing but a superblock.
    pub(crate) image: MemberImage,
    pub(crate) info: DeviceInfo,
    /// Why it is set aside, if it is.
    pub(crate) trouble: Option<Failure>,
    /// Other names of the same drive.
    pub(crate) also: Vec<PathBuf>,
    /// How large its device was, where that is shorter now and holds all of its data.
    pub(crate) had_bytes: Option<u64>,
    /// It was not read before.
    pub(crate) looked_at: SystemTime,
    /// The kernel refuses writes to it.
    read_only: bool,
}

impl FoundMember {
    /// The slot that it says it has.
    pub(crate) fn slot(&self) -> Option<u8> {
        match self.image.superblock.role {
            Role::Slot(slot) => Some(slot.0),
            Role::Spare => None,
        }
    }
    /// It is set aside as an older copy of another device that was found.
    pub(crate) fn is_copy(&self) -> bool {
        self.trouble
            .as_ref()
            .is_some_and(|why| why.code == Code::MemberTwice)
    }
    /// Its device is shorter than it was, and holds all of its data.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.had_bytes.is_some()
    }
    /// Why the engine does not use it, in words.
    pub(crate) fn not_used_text(&self, why: &engine::Aside) -> String {
        match (self.had_bytes, why) {
            (Some(had), engine::Aside::Emptied { .. }) => format!(
                "shrank from {had} to {} bytes: what lay behind its end is lost",
                self.info.bytes
            ),
            _ => why.to_string(),
        }
    }
}

/// A device that carries a member and is not used.
#[derive(Clone, Debug)]
pub(crate) struct Aside {
    pub(crate) path: PathBuf,
    pub(crate) slot: Option<u8>,
    pub(crate) why: Failure,
}

impl Aside {
    /// Of one found, for this reason: the array serves without it.
    pub(crate) fn of(member: &FoundMember, why: Failure) -> Aside {
        let why = match is_foreign(&why) {
            // It is no device that is to be chosen: it was a member.
            true => {
                let (name, path) = (&member.image.superblock.name, quoted(&member.path));
                why.cure(format!(
                    "strake add --force {name} {path} takes it as a new device, and rebuilds it \
                     whole"
                ))
            }
            false => cut_off::and_without(member, why),
        };
        Aside {
            path: member.path.clone(),
            slot: member.slot(),
            why,
        }
    }
    /// It is an older copy of another device that was found: nothing is missing without it.
    pub(crate) fn is_copy(&self) -> bool {
        self.why.code == Code::MemberTwice
    }
    /// What is wrong, with the path and the slot.
    pub(crate) fn text(&self) -> String {
        let slot = self
            .slot
            .map_or_else(|| "spare".to_owned(), |slot| format!("slot {slot}"));
        let path = self.path.display().to_string();
        let what = self.why.found.replacen(&path, "", 1);
        let what = what.trim_start_matches([' ', ':']);
        format!("{path} ({slot}): {what}")
    }
    pub(crate) fn json(&self) -> SetAsideJson {
        SetAsideJson {
            device: self.path.display().to_string(),
            slot: self.slot,
            code: self.why.code.name().to_owned(),
            found: self.why.found.clone(),
            cure: self.why.cure.clone(),
        }
    }
}

/// Something that is not ours lies on it.
pub(crate) fn is_foreign(why: &Failure) -> bool {
    matches!(why.code, Code::DevicePartitioned | Code::ForeignSignature)
}

/// Its device is not what it was, and everything that it holds is there.
fn is_unfit(aside: &engine::Aside) -> bool {
    use engine::Aside::{BlockSize, TooSmall};
    matches!(aside, BlockSize { .. } | TooSmall { .. })
}

/// It holds a state from before, of itself or of the array.
fn is_older(aside: &engine::Aside) -> bool {
    use engine::Aside::{OlderMap, Past};
    matches!(aside, Past(_) | OlderMap { .. })
}

/// All of them in one line.
pub(crate) fn aside_text(aside: &[Aside]) -> String {
    let texts: Vec<String> = aside.iter().map(Aside::text).collect();
    texts.join("; ")
}

/// The members found of one array.
#[derive(Clone, Debug)]
pub(crate) struct FoundArray {
    /// The array.
    pub(crate) uuid: ArrayUuid,
    /// Its members; behind those that can be used, those that are set aside.
    pub(crate) members: Vec<FoundMember>,
    /// What those make together that can be used.
    pub(crate) selection: Result<Selection, SelectError>,
    /// Of each member why the engine would not use it, if the selection believes it, or finds it
    /// to be from before.
    not_used: Vec<Option<engine::Aside>>,
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
    pub(crate) fn as_str(self) -> &'static str {
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
            let key = |m: &&FoundMember| {
                let sb = &m.image.superblock;
                (m.trouble.is_none(), sb.epoch, sb.generation)
            };
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
    /// Of the superblock that counts.
    pub(crate) fn generation(&self) -> Generation {
        self.authority().image.superblock.generation
    }
    /// Where a member was found that can be used.
    pub(crate) fn path_of(&self, member: MemberUuid) -> Option<PathBuf> {
        let is = |m: &&FoundMember| m.image.superblock.member == member;
        self.usable().find(is).map(|m| m.path.clone())
    }
    /// Members that can be used.
    pub(crate) fn usable(&self) -> impl Iterator<Item = &FoundMember> {
        self.members.iter().filter(|m| m.trouble.is_none())
    }
    /// Devices that were spares of it and that its table does not list.
    pub(crate) fn unlisted_spares(&self) -> impl Iterator<Item = &FoundMember> {
        let strays = self.selection.iter().flat_map(|all| &all.strays);
        let strays = strays.filter_map(|at| self.members.get(*at));
        strays.filter(|m| m.image.superblock.role == Role::Spare)
    }
    /// Two devices carry one member of it.
    pub(crate) fn is_twice(&self) -> bool {
        matches!(self.selection, Err(SelectError::DuplicateMember { .. }))
    }
    /// Members that are set aside, with what can be done while the array does not serve.
    pub(crate) fn aside(&self) -> Vec<Aside> {
        let troubled = |m: &FoundMember| Some(Aside::of(m, m.trouble.clone()?));
        let mut all: Vec<Aside> = self.members.iter().filter_map(troubled).collect();
        let foreign: Vec<Aside> = all.iter().filter(|a| is_foreign(&a.why)).cloned().collect();
        let cure = match self.readiness() {
            Readiness::Complete | Readiness::Degraded => None,
            Readiness::Incomplete | Readiness::Conflicting => self.to_do(&foreign),
        };
        // As long as it does not start, nothing is to be written over what it may need.
        if !matches!(self.readiness(), Readiness::Complete | Readiness::Degraded) {
            let cut = cut_off::believable(self);
            let way = self.way_on(&[]);
            let troubled = self.members.iter().filter(|m| m.trouble.is_some());
            for (aside, member) in all.iter_mut().zip(troubled) {
                if let Some(why) = member.trouble.as_ref().filter(|_| cut_off::shrank(member)) {
                    let way = way.clone().filter(|_| cut.contains(&member.path.as_path()));
                    aside.why.cure = way.unwrap_or_else(|| why.cure.clone());
                }
            }
        }
        for aside in all.iter_mut().filter(|aside| is_foreign(&aside.why)) {
            let name = self.name();
            let then = || format!("strake start {name} serves it without; {}", aside.why.cure);
            aside.why.cure = cure.clone().unwrap_or_else(then);
        }
        all.extend(self.not_used_where(|_| true).map(|(member, why)| Aside {
            path: member.path.clone(),
            slot: member.slot(),
            why: match is_unfit(&why) {
                true => unfit(&member.path, why),
                false => self.not_believed(member, why),
            },
        }));
        all
    }
    /// The devices that a start with force is to name: those that were cut off are believed only
    /// there.
    pub(crate) fn to_name(&self) -> String {
        match self.usable().any(FoundMember::is_cut_off) {
            true => self
                .usable()
                .map(|m| format!(" {}", quoted(&m.path)))
                .collect(),
            false => String::new(),
        }
    }
    /// Why a member is not used that holds a state from before, or lost a superblock.
    fn not_believed(&self, member: &FoundMember, why: engine::Aside) -> Failure {
        let (name, path) = (self.name(), quoted(&member.path));
        let found = format!("{} {}", member.path.display(), member.not_used_text(&why));
        let starts = matches!(self.readiness(), Readiness::Complete | Readiness::Degraded);
        let cure = match (starts, self.starts_by_force()) {
            (true, _) => format!(
                "strake start {name} serves without it, and strake add {name} {path} rebuilds it \
                 then"
            ),
            (false, true) => format!(
                "bring the other members; or, where members that lost a superblock are believed: \
                 strake start --force {name}{}, and check the data",
                self.to_name()
            ),
            (false, false) => self
                .cure_of_unused()
                .unwrap_or_else(|| "bring the other members".to_owned()),
        };
        Failure::new(Code::NotKept, found).cure(cure)
    }
    /// Members that the selection believes and the engine would not use, for reasons like these.
    fn not_used_where(
        &self,
        wanted: impl Fn(&engine::Aside) -> bool,
    ) -> impl Iterator<Item = (&FoundMember, engine::Aside)> {
        let each = self.members.iter().zip(&self.not_used);
        each.filter_map(move |(member, why)| Some((member, why.filter(|why| wanted(why))?)))
    }
    /// What an administrator can do about members that are found and that the engine does not use;
    /// `None` where nothing but others can help.
    pub(crate) fn cure_of_unused(&self) -> Option<String> {
        let unfit = self.not_used_where(is_unfit).next();
        let unfit = unfit.map(|(member, why)| self::unfit(&member.path, why).cure);
        unfit.or_else(|| self.older_state())
    }
    /// How the state is had that members from before hold together, and what is lost with it.
    fn older_state(&self) -> Option<String> {
        self.not_used_where(is_older).next()?;
        let Ok(selection) = &self.selection else {
            return None;
        };
        let is_used = |index: usize| {
            let believed = selection.slots.contains(&Finding::Believed(index));
            believed && self.not_used[index].is_none()
        };
        let usable = self.usable().enumerate();
        let (newer, older): (Vec<_>, Vec<_>) = usable.partition(|(index, _)| is_used(*index));
        let quoted = |members: &[(usize, &FoundMember)]| -> String {
            let all: Vec<String> = members.iter().map(|(_, m)| quoted(&m.path)).collect();
            all.join(" ")
        };
        let (wiped, paths) = (quoted(&newer), quoted(&older));
        let shown: Vec<String> = newer
            .iter()
            .map(|(_, m)| m.path.display().to_string())
            .collect();
        let know = size::verb(shown.len(), "knows", "know");
        let shown = shown.join(", ");
        let older: Vec<FoundMember> = older.into_iter().map(|(_, m)| m.clone()).collect();
        let name = self.name();
        let alone = group(older).pop()?;
        if !matches!(alone.readiness(), Readiness::Complete | Readiness::Degraded) {
            return Some(format!(
                "{shown} {know} a newer state: bring the other members as they were then"
            ));
        }
        Some(format!(
            "{shown} {know} a newer state: bring the other members as they were then; or, to give \
             that up: strake start {name} {paths} serves the older state, and strake drive clean \
             {wiped} makes it the only one, before the next start: that may take both for one"
        ))
    }

    /// Members that its table calls live, and of those the ones that were found and are believed.
    pub(crate) fn believed(&self) -> (Vec<MemberUuid>, Vec<MemberUuid>) {
        let table = &self.authority().image.superblock.slots;
        let live = |row: &&SlotRecord| row.state.is_live();
        let live: Vec<MemberUuid> = table.iter().filter(live).map(|row| row.member).collect();
        let Ok(selection) = &self.selection else {
            return (live, Vec::new());
        };
        let believed = selection.slots.iter().filter_map(|finding| match finding {
            Finding::Believed(index) => Some(self.members[*index].image.superblock.member),
            _ => None,
        });
        let believed = believed.filter(|member| live.contains(member)).collect();
        (live, believed)
    }
    /// Members and spares that its table lists and that were not found, not even set aside: their
    /// slots and uuids.
    pub(crate) fn away(&self) -> Vec<(Option<u8>, MemberUuid)> {
        let table = &self.authority().image.superblock;
        let slots = table.slots.iter().enumerate();
        let slots = slots.map(|(slot, row)| (Some(slot as u8), row.member));
        let spares = table.spares.iter().map(|spare| (None, *spare));
        let is_here = |uuid: MemberUuid| {
            let mut all = self.members.iter();
            all.any(|m| m.image.superblock.member == uuid)
        };
        slots
            .chain(spares)
            .filter(|(_, uuid)| *uuid != MemberUuid([0; 16]) && !is_here(*uuid))
            .collect()
    }
    /// Can it be started? What its table lacks already is not waited for.
    pub(crate) fn readiness(&self) -> Readiness {
        self.readiness_and_loss().0
    }
    /// The same in one word, as `scan` says it: `complete` has no slot that lacks its data.
    pub(crate) fn as_str(&self) -> &'static str {
        match self.readiness_and_loss() {
            (Readiness::Complete, true) => Readiness::Degraded.as_str(),
            (readiness, _) => readiness.as_str(),
        }
    }
    /// Whether a start with force, which believes members that lost a superblock where too few are
    /// left without them, starts what does not start without it.
    pub(crate) fn starts_by_force(&self) -> bool {
        let is_emptied = |why: &engine::Aside| matches!(why, engine::Aside::Emptied { .. });
        let believed = self.readiness_if(is_emptied).0;
        self.readiness() == Readiness::Incomplete
            && matches!(believed, Readiness::Complete | Readiness::Degraded)
    }
    /// Whether it can be started, and whether a slot of it has no device in sync.
    fn readiness_and_loss(&self) -> (Readiness, bool) {
        self.readiness_if(|_| false)
    }
    /// The same, with members counted that the engine would not use for reasons like these.
    fn readiness_if(&self, counts: impl Fn(&engine::Aside) -> bool) -> (Readiness, bool) {
        let selection = match &self.selection {
            Ok(selection) => selection,
            Err(SelectError::AuthorityAbsent { .. } | SelectError::NoMembers) => {
                return (Readiness::Incomplete, true);
            }
            Err(_) => return (Readiness::Conflicting, true),
        };
        let sb = &self.authority().image.superblock;
        let mut expected_absent = false;
        let mut lost = vec![false; sb.slots.len()];
        for (slot, record) in sb.slots.iter().enumerate() {
            let here = match selection.slots.get(slot) {
                Some(Finding::Believed(index)) => {
                    self.not_used[*index].is_none_or(|why| counts(&why))
                }
                _ => false,
            };
            expected_absent |= record.state.is_live() && !here;
            if !(here && record.state == SlotState::InSync) {
                lost[slot] = true;
            }
        }
        let geometry = Geometry::of(sb);
        let survives = |group: std::ops::Range<usize>| {
            lost[group].iter().filter(|&&lost| lost).count() <= geometry.m
        };
        let readiness = match (geometry.neighbours().all(survives), expected_absent) {
            (false, _) => Readiness::Incomplete,
            (true, true) => Readiness::Degraded,
            (true, false) => Readiness::Complete,
        };
        (readiness, lost.contains(&true))
    }
    /// This member has lost a copy of its superblock, and perhaps all else: it is not used.
    fn is_emptied(&self, index: usize) -> bool {
        self.members
            .get(index)
            .is_some_and(|m| m.image.emptied.is_some())
    }
    /// Members that its table calls live, and spares, that were found and can be used. Where
    /// superblocks contradict each other none of them is known to be the wrong one.
    fn count(&self) -> (usize, usize) {
        let sb = &self.authority().image.superblock;
        let is_used = |index: usize| match &self.selection {
            Ok(all) => {
                let believed = all.slots.contains(&Finding::Believed(index));
                (believed || all.spares.contains(&index)) && self.not_used[index].is_none()
            }
            Err(_) => true,
        };
        let used = self.usable().enumerate().filter(|(at, _)| is_used(*at));
        let used: BTreeSet<MemberUuid> = used.map(|(_, m)| m.image.superblock.member).collect();
        let is_found = |row: &&SlotRecord| row.state.is_live() && used.contains(&row.member);
        let members = sb.slots.iter().filter(is_found).count();
        let spares = sb.spares.iter().filter(|spare| used.contains(spare));
        (members, spares.count())
    }
    /// As `scan` tells it.
    fn json(&self, loops: &Loops) -> ScanJson {
        let sb = &self.authority().image.superblock;
        let readiness = self.readiness();
        let (members_found, spares_found) = self.count();
        let (aside, too_few) = (
            self.aside(),
            "more members are missing than the level survives",
        );
        ScanJson {
            name: sb.name.to_string(),
            uuid: self.uuid.to_string(),
            level: sb.level.to_string(),
            members: sb.members,
            found: members_found + spares_found,
            members_found,
            spares: sb.spares.len(),
            spares_found,
            state: self.as_str().to_owned(),
            reason: match (&self.selection, readiness) {
                _ if readiness == Readiness::Incomplete && !aside.is_empty() => {
                    Some(format!("{too_few}; set aside: {}", aside_text(&aside)))
                }
                (Err(error), _) => {
                    let why = copies::conflict(self).map(|why| why.found);
                    Some(why.unwrap_or_else(|| error.to_string()))
                }
                (Ok(_), Readiness::Incomplete) => Some(too_few.to_owned()),
                _ => None,
            },
            destroyed: None,
            moving: view::moving(sb),
            devices: (0..self.members.len())
                .map(|i| ScanDeviceJson {
                    held: held(&self.members[i].path, loops).map(|why| why.found),
                    ..self.device_json(i)
                })
                .collect(),
            overwritten: Vec::new(),
            unread: Vec::new(),
        }
    }

    fn device_json(&self, index: usize) -> ScanDeviceJson {
        let member = &self.members[index];
        let sb = &member.image.superblock;
        let table = &self.authority().image.superblock;
        let slot = member.slot();
        let finding = self.selection.as_ref().ok().and_then(|selection| {
            let at =
                |f: &Finding| matches!(f, Finding::Believed(i) | Finding::Stale(i) if *i == index);
            selection
                .slots
                .iter()
                .position(at)
                .map(|slot| (slot, selection.slots[slot]))
        });
        let not_used =
            self.not_used[index].filter(|_| matches!(finding, Some((_, Finding::Believed(_)))));
        let state = match finding {
            Some(_) if not_used.as_ref().is_some_and(is_unfit) => "set_aside",
            Some(_) if self.is_emptied(index) || not_used.is_some() => "stale",
            Some((slot, Finding::Believed(_))) => view::slot_state(table.slots[slot].state),
            Some(_) => "stale",
            None if self
                .selection
                .as_ref()
                .is_ok_and(|s| s.spares.contains(&index)) =>
            {
                "spare"
            }
            None if member.trouble.is_some() => "set_aside",
            None if self.selection.is_err() => "conflicting",
            None => "stray",
        };
        ScanDeviceJson {
            device: member.path.display().to_string(),
            uuid: sb.member.to_string(),
            slot,
            state: state.to_owned(),
            epoch: sb.epoch.0,
            problem: match (&member.trouble, not_used.filter(is_unfit)) {
                (Some(why), _) => Some(why.found.clone()),
                (None, Some(why)) => Some(unfit(&member.path, why).found),
                (None, None) => None,
            },
            held: None,
            also: member
                .also
                .iter()
                .map(|p| p.display().to_string())
                .collect(),
        }
    }

    /// As `show` tells an array that does not run here, and a member that another process holds, if
    /// that process may serve the array: then its state is not known. With more than half of its
    /// members free nothing can serve it elsewhere, by the same rule as a start goes by.
    pub(crate) fn not_served_json(&self) -> (crate::api::ArrayJson, Option<Failure>) {
        let (live, believed) = self.believed();
        let mut all = self.members.clone();
        let mut first = None;
        let loops = Stack::default().loops();
        for member in &mut all {
            let Some(why) = held(&member.path, &loops) else {
                continue;
            };
            first.get_or_insert(why.clone());
            member.trouble.get_or_insert(why);
        }
        if first.is_none() {
            return (self.stopped_json(), None);
        }
        let free = self.members.iter().zip(&all).filter(|(was, now)| {
            was.trouble == now.trouble && believed.contains(&was.image.superblock.member)
        });
        if 2 * free.count() <= live.len() {
            let unknown = crate::api::ArrayJson {
                state: "unknown".to_owned(),
                startable: None,
                ..self.stopped_json()
            };
            return (unknown, first);
        }
        // As a start finds it: without them.
        let rest = group(all).pop().expect("it has members");
        (rest.stopped_json(), None)
    }

    /// The same, of an array that nothing serves.
    pub(crate) fn stopped_json(&self) -> crate::api::ArrayJson {
        let authority = &self.authority().image;
        let lost = authority.lost_bytes().unwrap_or_default();
        let path = |member| self.path_of(member);
        let mut told = view::stopped(&authority.superblock, &authority.map, &lost, path);
        // What the table calls in sync may be an older image, or have lost a superblock.
        for index in 0..self.members.len() {
            let found = self.device_json(index);
            let is = |m: &&mut MemberJson| m.slot == found.slot && m.device.is_some();
            let Some(member) = told.members.iter_mut().find(is) else {
                continue;
            };
            match found.state.as_str() {
                // Of two devices that carry one member nobody knows which it is; the others are not
                // in doubt.
                "conflicting" if self.is_twice() => {
                    let own = &self.members[index].image.superblock.member;
                    let same = |m: &&FoundMember| m.image.superblock.member == *own;
                    if self.usable().filter(same).count() > 1 {
                        (member.state, member.device) = (found.state, None);
                    }
                }
                "stale" | "conflicting" => member.state = found.state,
                // As any other that is set aside.
                "set_aside" if member.device.as_ref() == Some(&found.device) => {
                    (member.state, member.device) = ("missing".to_owned(), None);
                }
                _ => {}
            }
        }
        crate::api::ArrayJson {
            startable: Some(matches!(
                self.readiness(),
                Readiness::Complete | Readiness::Degraded
            )),
            set_aside: self.aside().iter().map(Aside::json).collect(),
            conflict: copies::conflict(self).map(|why| why.json()),
            ..told
        }
    }
}

/// What holds a member, where that is another process, or the kernel: a start sets it aside.
fn held(path: &Path, loops: &Loops) -> Option<Failure> {
    if sysfs::is_held(path) {
        return Some(DeviceError::Busy(path.to_owned()).into());
    }
    let id = sysfs::identity(path).ok()?;
    // Files under other loop devices may not answer: none of them is asked.
    safety::not_seen_in_use(&loops.over(path), id, path).err()
}

/// Sets aside what cannot be written, as a start does; but not one of two that carry one member:
/// which of them counts is not for this to say.
fn set_read_only_aside(members: &mut [FoundMember]) {
    let ids: Vec<MemberUuid> = members.iter().map(|m| m.image.superblock.member).collect();
    for member in members.iter_mut().filter(|m| m.trouble.is_none()) {
        let own = member.image.superblock.member;
        let is_twice = ids.iter().filter(|id| **id == own).count() > 1;
        if !is_twice && member.read_only {
            member.trouble = Some(DeviceError::ReadOnly(member.path.clone()).into());
        }
    }
}

/// What is wrong with the device of a member that is not what it was.
fn unfit(path: &Path, aside: engine::Aside) -> Failure {
    let found = format!("{} {aside}", path.display());
    match aside {
        engine::Aside::BlockSize { needs, .. } => {
            Failure::new(Code::MixedBlocks, found).cure(format!(
                "it is no fault of its content: attach it with blocks of {needs} bytes again, as \
                 it had (losetup --sector-size, or its former adapter or enclosure); to format it \
                 would erase it"
            ))
        }
        engine::Aside::TooSmall { needs, .. } => Failure::new(Code::DeviceTooSmall, found)
            .cure(format!("give it its size back: at least {needs} bytes")),
        _ => Failure::new(Code::MembersMissing, found),
    }
}

/// Files and devices that paths stand for: a folder stands for the regular files in it.
pub(crate) fn expand(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for (path, about) in paths.iter().zip(paths::metadata_of_each(paths)) {
        if !about.is_ok_and(|about| about.is_dir()) {
            all.push(path.clone());
            continue;
        }
        // What is in it: what is beside it may answer.
        let inside = path.join("*");
        let files = paths::in_time(&inside, |inside: &Path| {
            let folder = inside.parent().unwrap_or(inside);
            let is_file = |entry: &fs::DirEntry| match entry.file_type() {
                Ok(kind) if kind.is_symlink() => entry.path().is_file(),
                kind => kind.is_ok_and(|kind| kind.is_file()),
            };
            let entries = fs::read_dir(folder)?.filter_map(Result::ok);
            let mut files: Vec<PathBuf> = entries.filter(is_file).map(|e| e.path()).collect();
            files.sort();
            Ok(files)
        });
        match files {
            Ok(files) => all.extend(files),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => all.push(inside),
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
    scan(paths).members
}

/// The same; a device that does not answer is not waited for.
pub(crate) fn members_within(looks: &Looks, paths: &[PathBuf]) -> Vec<FoundMember> {
    scan_within(looks, paths).members
}

/// What devices carry.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) members: Vec<FoundMember>,
    /// Devices that are there and may carry members: they did not answer, or could not be opened or
    /// read.
    pub(crate) unread: Vec<PathBuf>,
}

impl Scan {
    fn of(looked: Vec<Result<Option<FoundMember>, PathBuf>>, silent: Vec<PathBuf>) -> Scan {
        let mut unread = silent;
        let mut members = Vec::new();
        for one in looked {
            match one {
                Ok(member) => members.extend(member),
                Err(path) => unread.push(path),
            }
        }
        Scan {
            members: each_drive_once(members),
            unread,
        }
    }
}

/// Members among these devices, and devices of which that is not known.
pub(crate) fn scan(paths: &[PathBuf]) -> Scan {
    let each = sysfs::each_once(paths);
    let members = each.devices.iter().map(|(path, _)| member_at(path));
    Scan::of(members.collect(), each.unknown)
}

/// Asks devices whether they answer. No look waits for one that was asked and has not answered yet.
pub(crate) fn ask(looks: &Looks, paths: &[PathBuf]) {
    looks.each(paths, |path| drop(look(path)));
}

/// Refuses devices that do not answer: what is to be done with them would wait for them.
pub(crate) fn answering(looks: &Looks, paths: &[PathBuf]) -> Result<(), Failure> {
    let answers = looks.each(paths, |path| drop(look(path))).all_asked()?;
    match answers.silent {
        silent if silent.is_empty() => Ok(()),
        silent => Err(answering::refused(&silent)),
    }
}

/// The same; a device that does not answer is not waited for.
pub(crate) fn scan_within(looks: &Looks, paths: &[PathBuf]) -> Scan {
    let answers = looks.each(paths, member_at);
    Scan::of(answers.found, answers.silent)
}

/// May a device of which this is the error carry what nobody could read? Not one that is gone or
/// has no medium, and not one that answered.
pub(crate) fn is_unread(error: &DeviceError) -> bool {
    match error {
        DeviceError::Io { source, .. } => {
            let gone = [Errno::NXIO, Errno::NODEV, Errno::NOMEDIUM, Errno::NOENT];
            !Errno::from_io_error(source).is_some_and(|errno| gone.contains(&errno))
        }
        DeviceError::Busy(_) | DeviceError::Newer { .. } => true,
        // A container's device that it may not use; of a user's `commands::offline` tells.
        DeviceError::Permission(_)
        | DeviceError::NotFound(_)
        | DeviceError::ReadOnly(_)
        | DeviceError::Kind(_)
        | DeviceError::NoNumber(_)
        | DeviceError::NotStrake(_)
        | DeviceError::Shrunk { .. }
        | DeviceError::Damaged { .. } => false,
    }
}

/// The member that a device is; the path where that is not known.
fn member_at(path: &Path) -> Result<Option<FoundMember>, PathBuf> {
    let looked_at = SystemTime::now();
    let found = |image, info, trouble| FoundMember {
        looked_at,
        path: path.to_owned(),
        image,
        info,
        trouble,
        also: Vec::new(),
        had_bytes: None,
        read_only: sysfs::is_read_only(path),
    };
    let nothing = |error: &DeviceError| match is_unread(error) {
        true => Err(path.to_owned()),
        false => Ok(None),
    };
    let device = match Device::open(path, OpenMode::ReadOnly) {
        Ok(device) => device,
        Err(failure) => {
            tracing::debug!(device = %path.display(), %failure, "not read");
            return nothing(&failure);
        }
    };
    match device.read_member() {
        Ok(image) => {
            let trouble = reused::still_ours(&device).err();
            Ok(Some(found(image, device.info(), trouble)))
        }
        Err(DeviceError::NotStrake(_)) => Ok(None),
        Err(error) => match cut_off::read(&device, &error).or_else(|| one_copy(&device)) {
            Some(image) => {
                let had_bytes = cut_off::had_bytes(&image, &error);
                let why = cut_off::why(&image, error);
                let found = found(image, device.info(), Some(why));
                Ok(Some(FoundMember { had_bytes, ..found }))
            }
            None => {
                tracing::debug!(device = %path.display(), %error, "not read");
                nothing(&error)
            }
        },
    }
}

/// A superblock of a device without a believable copy: it tells which member it was, and nothing
/// else.
pub(crate) fn one_copy(device: &Device) -> Option<MemberImage> {
    let offsets = Layout::superblock_offsets(device.info().bytes);
    let superblock = offsets.iter().find_map(|&offset| {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        device.read_at(offset, &mut bytes).ok()?;
        Superblock::decode(&bytes, offset).ok()
    })?;
    Some(MemberImage {
        map: vec![None; superblock.layout.map_pages as usize],
        map_whole: vec![false; superblock.layout.map_pages as usize],
        superblock,
        copies: offsets.map(|offset| (offset, false)),
        copy_to_replace: 0,
        unreadable: [None, None],
        emptied: None,
    })
}

/// Without those that are another name of one of the others.
fn each_drive_once(found: Vec<FoundMember>) -> Vec<FoundMember> {
    let key = |m: &FoundMember| (m.image.superblock.array, m.image.superblock.member);
    let once = Stack::default().each_drive_once(found, key, |m| &m.path);
    let with_names = once.into_iter().map(|(mut member, others)| {
        member.also = others.into_iter().map(|other| other.path).collect();
        member
    });
    with_names.collect()
}

/// Those of these members that can be used, as the engine has them when it starts.
fn as_started(members: &[FoundMember]) -> Vec<engine::event::Found> {
    let usable = members.iter().filter(|m| m.trouble.is_none());
    let each = (0..).zip(usable);
    each.map(|(id, m)| strake_runtime::found(DeviceId(id), m.info, m.image.clone()))
        .collect()
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
        .map(|(uuid, mut members)| {
            copies::set_older_aside(&mut members);
            set_read_only_aside(&mut members);
            members.sort_by_key(|m| m.trouble.is_some());
            let usable = members.iter().filter(|m| m.trouble.is_none());
            let superblocks: Vec<Superblock> = usable.map(|m| m.image.superblock.clone()).collect();
            let selection = select_array(&superblocks);
            let mut not_used = vec![None; members.len()];
            if let Ok(selection) = &selection {
                let asides = engine::Aside::of_each(&as_started(&members), selection);
                for finding in &selection.slots {
                    match *finding {
                        Finding::Believed(index) => not_used[index] = asides[index],
                        // Of what only missed writes nothing is to be said.
                        Finding::Stale(index) => not_used[index] = asides[index].filter(is_older),
                        Finding::Absent => {}
                    }
                }
            }
            FoundArray {
                uuid,
                members,
                selection,
                not_used,
            }
        })
        .collect();
    arrays.sort_by(|a, b| a.name().cmp(b.name()).then(a.uuid.cmp(&b.uuid)));
    arrays
}

/// Arrays, and pools of spares, as `scan` tells them.
pub(crate) fn scan_json(arrays: &[FoundArray], pools: &[Pool]) -> Vec<ScanJson> {
    let loops = Stack::default().loops();
    let mut all: Vec<ScanJson> = arrays.iter().map(|array| array.json(&loops)).collect();
    all.extend(pools.iter().map(Pool::scan_json));
    all
}

/// The same among what these devices carry, which a user named.
pub(crate) fn pick_of(
    arrays: Vec<FoundArray>,
    name: &str,
    meant: Option<ArrayUuid>,
    devices: &[PathBuf],
) -> Result<FoundArray, Failure> {
    pick(arrays, name, meant).map_err(|failure| match failure.code {
        Code::ArrayNotFound => {
            let found = format!("{} on {}", failure.found, partly::all(devices));
            Failure { found, ..failure }
        }
        _ => failure,
    })
}

/// The one array of that name or uuid; of several of one name the one that it means here.
///
/// # Errors
/// There is none, or it is not known which is meant.
pub(crate) fn pick(
    arrays: Vec<FoundArray>,
    name: &str,
    meant: Option<ArrayUuid>,
) -> Result<FoundArray, Failure> {
    let matches = |a: &FoundArray| a.name().as_str() == name || a.uuid.to_string() == name;
    let mut found: Vec<FoundArray> = arrays.into_iter().filter(matches).collect();
    if found.iter().any(|array| Some(array.uuid) == meant) {
        found.retain(|array| Some(array.uuid) == meant);
    }
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

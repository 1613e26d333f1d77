//! A backup of the configuration, and arrays that are made again by it.
//!
//! Members carry all that an array is, so a backup is for the day on which their superblocks are
//! gone: overwritten by a partition table, an installer, a careless hand. The array is made again
//! over the data that its members hold, under an identity of its own (see
//! [`strake_engine::restore`]).
//!
//! Order of a restore: what the backup says makes sense → the array is really not there → the
//! device of every slot, recognised by what it still carries → none of them missed what the others
//! got → nobody uses them → metadata, as with `create`. Invariant: nothing is written before all of
//! that is known.
//!
//! That a device holds what its metadata says is not known by then: the engine compares all strips
//! while the array serves, and makes nothing agree that should.
//!
//! Deliberately absent: arrays with members missing (parity that may be untrue brings back
//! nothing), spares (they are added again by a command), and pools (`pool_backup`).

mod age;
pub(crate) mod pool_backup;
mod slots;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use strake_engine::create::Definition;
use strake_engine::event::DeviceInfo;
use strake_engine::restore::{self, RestoreSpec, Told};
use strake_format::region_map::REGIONS_PER_PAGE;
use strake_format::{ArrayUuid, MemberUuid, SlotState, Superblock};
use strake_runtime::Device;

use crate::api::config::{
    BackupArrayJson, BackupJson, BackupPoolJson, FORMAT, RestoreRequest, RestoredArrayJson,
    RestoredJson, SlotDevice,
};
use crate::api::{ArrayJson, MemberJson, SettingsJson};
use crate::common::errors::{Code, Failure};
use crate::common::partly;
use crate::common::{absolute, quoted};
use crate::daemon::array::opening;
use crate::daemon::array::running::Running;
use crate::daemon::events::Happened;
use crate::daemon::service::Service;
use crate::daemon::service::backup::age::{is_later, outdated, stale};
use crate::daemon::service::backup::slots::{Members, assign, named_device, not_replaced};
use crate::daemon::state::Dir;
use crate::daemon::state::heirs::{Begun, Heir};
use crate::drives::aside::copies;
use crate::drives::find;
use crate::drives::find::{FoundArray, Readiness};
use crate::drives::lost;
use crate::drives::lost::Remains;
use crate::drives::machine::sysfs;
use crate::drives::make;
use crate::drives::pool::Pool;
use crate::drives::safety;
use crate::drives::safety::Permit;
use crate::view;

/// A backup of these arrays and pools, none of which changes meanwhile.
pub(crate) fn of_found(dir: &Dir, arrays: &[FoundArray], pools: &[Pool]) -> BackupJson {
    let array = |found: &FoundArray| {
        let sb = &found.authority().image.superblock;
        let device = |slot: usize| {
            let path = found.path_of(sb.slots[slot].member)?;
            Some(path.display().to_string())
        };
        entry(dir, sb, device)
    };
    document(arrays.iter().map(array).collect(), pools)
}

fn document(arrays: Vec<BackupArrayJson>, pools: &[Pool]) -> BackupJson {
    BackupJson {
        strake_backup: FORMAT,
        taken: jiff::Timestamp::now().to_string(),
        arrays,
        pools: pool_backup::of_pools(pools),
    }
}

fn entry(dir: &Dir, sb: &Superblock, device: impl Fn(usize) -> Option<String>) -> BackupArrayJson {
    let settings = view::settings(sb, &dir.placement(sb.array));
    let export = dir.record(sb.array).map(|record| record.export);
    let export = export.unwrap_or_else(|| "auto".to_owned());
    BackupArrayJson::of(sb, settings, export, device)
}

/// One array of a backup, which a request asks for.
struct Asked<'a> {
    entry: &'a BackupArrayJson,
    request: &'a RestoreRequest,
    array: ArrayUuid,
    definition: Definition,
}

impl Asked<'_> {
    fn answer(
        &self,
        restored: bool,
        doubt: Option<String>,
        what: &str,
        devices: &[PathBuf],
    ) -> RestoredArrayJson {
        RestoredArrayJson {
            name: self.entry.name.clone(),
            restored,
            what: what.to_owned(),
            doubt,
            devices: devices.iter().map(|d| d.display().to_string()).collect(),
            not_applied: None,
        }
    }
}

/// What became of the array that is asked for.
enum Again {
    /// It serves.
    Serves {
        name: String,
        /// Its new identity.
        made: ArrayUuid,
        /// Why a member may be stale, where that was accepted.
        doubt: Option<String>,
    },
    /// Nothing was written: the answer is complete.
    Nothing(RestoredArrayJson),
}

/// What is to be made again, and of what.
struct Wanted {
    /// Its new identity.
    array: ArrayUuid,
    definition: Definition,
    /// The device of each slot.
    devices: Vec<PathBuf>,
    /// What they tell of regions and lost blocks.
    told: Told,
    /// Why a member may be stale, where that was accepted.
    doubt: Option<String>,
}

/// Why a restore went no further, and what it has made again before.
fn made_before(failure: Failure, before: &[String]) -> Failure {
    match before {
        [] => failure,
        before => Failure {
            found: format!(
                "{}; made again before: {}",
                failure.found,
                before.join(", ")
            ),
            ..failure
        },
    }
}

/// What is said of an array that was made again: it has another identity.
const NEW_BACKUP: &str = "take a new backup (strake config backup FILE): those from before are of \
                          the array that it was, and do not make it again";

/// What is said of an array that cannot have all its settings.
const NOT_AS_THEY_WERE: &str = "but its settings are not all as they were";

impl Service {
    /// A backup of all arrays and pools; of arrays that do not answer, what their drives say.
    /// Refuses where one is on no drive either: it would pass for whole.
    pub(crate) fn backup(&self) -> Result<BackupJson, Failure> {
        let mut arrays = Vec::new();
        let mut silent = Vec::new();
        for (running, answer) in self.ask_all(|array| Ok((array.json()?, array.status()?))) {
            let Ok((json, status)) = answer else {
                silent.push(running);
                continue;
            };
            let slots = &status.superblock.slots;
            let device = |slot: usize| {
                let member = Some(slots.get(slot)?.member.to_string());
                let row = json.members.iter().find(|m| m.uuid == member)?;
                row.device.clone()
            };
            arrays.push(entry(&self.dir, &status.superblock, device));
        }
        let mut others = self.scan(&[]);
        let told = |uuid: String| arrays.iter().any(|entry| entry.uuid == uuid);
        others.retain(|found| !told(found.uuid.to_string()));
        let unread = |array: &&Arc<Running>| !others.iter().any(|found| found.uuid == array.uuid);
        if let Some(array) = silent.iter().find(unread) {
            let name = array.name();
            let found = format!("{name} does not answer, and no drive says what it is");
            let cure = format!("try again when strake show {name} says that it answers");
            return Err(Failure::new(Code::NotServing, found).cure(cure));
        }
        arrays.extend(of_found(&self.dir, &others, &[]).arrays);
        arrays.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(document(arrays, &self.scan_pools()))
    }

    /// Makes the arrays and pools of a backup again that are not there any more.
    pub(crate) fn restore(&self, request: &RestoreRequest) -> Result<RestoredJson, Failure> {
        let (chosen, pools) = chosen(request)?;
        are_devices(request)?;
        // Arrays are told from which of them they take.
        let mut before = Vec::new();
        let mut made = Vec::new();
        for entry in pools {
            let pool = self.restore_pool(entry, request);
            let pool = pool.map_err(|failure| made_before(failure, &before))?;
            if pool.restored && !request.dry_run {
                before.push(format!("pool {}", pool.name));
            }
            made.push(pool);
        }
        let pools = made;
        let mut arrays = Vec::new();
        for entry in chosen {
            let array = self.restore_one(entry, request);
            let array = array.map_err(|failure| made_before(failure, &before))?;
            if array.restored && !request.dry_run {
                before.push(array.name.clone());
            }
            arrays.push(array);
        }
        Ok(RestoredJson {
            dry_run: request.dry_run,
            arrays,
            pools,
        })
    }

    fn restore_one(
        &self,
        entry: &BackupArrayJson,
        request: &RestoreRequest,
    ) -> Result<RestoredArrayJson, Failure> {
        let array = uuid(&entry.uuid)?;
        if entry.moving {
            return Err(moved(entry, "was moving when the backup was taken"));
        }
        let asked = Asked {
            entry,
            request,
            array,
            definition: checked(entry)?,
        };
        match self.serve_again(&asked)? {
            // The change is over: what follows is one of its own.
            Again::Serves { name, made, doubt } => self.finish_restore(&asked, &name, made, doubt),
            Again::Nothing(answer) => Ok(answer),
        }
    }

    /// One change: looks for the array, makes its metadata again where it is not there, and starts
    /// it.
    fn serve_again(&self, asked: &Asked<'_>) -> Result<Again, Failure> {
        let Asked {
            entry,
            request,
            array,
            ..
        } = *asked;
        let names = vec![entry.name.clone(), entry.uuid.clone()];
        let mut paths = self.paths();
        paths.extend(find::expand(&request.devices));
        paths.extend(request.slots.iter().map(|told| absolute(&told.device)));
        // Before the change: a device that hangs would hold up others of the array. Of one that
        // was asked and does not answer, no look below waits.
        find::ask(&self.looks, &paths);
        find::answering(&self.looks, &find::expand(&request.devices))?;
        let _change = self.changes.begin_holding("strake config restore", names)?;
        let found = find::group(find::members_within(&self.looks, &paths));
        let begun = self.dir.begun(array, &found);
        if let Some(begun) = begun.as_ref().filter(|begun| self.is_made(begun)) {
            if request.dry_run {
                let what = "was cut off when it was made again, and would be finished";
                let answer = asked.answer(true, None, what, &begun.heir.devices);
                return Ok(Again::Nothing(answer));
            }
            return Ok(Again::Serves {
                name: self.start_made(entry, array, begun)?,
                made: begun.made,
                doubt: None,
            });
        }
        if let Some(what) = self.is_there(&found, array, entry, &paths, request.force)? {
            self.slots_as_told(&found, array, request)?;
            return Ok(Again::Nothing(asked.answer(false, None, what, &[])));
        }
        let wanted = self.wanted(asked, &found, begun.as_ref(), paths)?;
        let (name, made) = (wanted.definition.name.to_string(), wanted.array);
        if let Some(failure) = self.another(&found, &name, &[array, made]) {
            return Err(failure);
        }
        let permit = Permit {
            force: request.force,
            own: Some(array),
            half_made: Some(made),
            data: Some(safety::data_of(&wanted.definition.layout)),
        };
        if request.dry_run {
            let made = make::again(&wanted.devices, permit, true, |devices| {
                plan(&wanted, devices)
            })?;
            let not_applied = self.would_not_apply(asked, &made.superblock);
            let what = match &not_applied {
                None => "would be made again".to_owned(),
                Some(lacks) => format!("would be made again, {}: {lacks}", NOT_AS_THEY_WERE),
            };
            let answer = asked.answer(true, wanted.doubt, &what, &wanted.devices);
            return Ok(Again::Nothing(RestoredArrayJson {
                not_applied,
                ..answer
            }));
        }
        self.make_again(entry, array, request, &wanted, permit)?;
        let doubt = wanted.doubt;
        Ok(Again::Serves { name, made, doubt })
    }

    /// What is to be made again: what an earlier restore began, or what devices and request say.
    fn wanted(
        &self,
        asked: &Asked<'_>,
        found: &[FoundArray],
        begun: Option<&Begun<'_>>,
        paths: Vec<PathBuf>,
    ) -> Result<Wanted, Failure> {
        let (entry, array) = (asked.entry, asked.array);
        if let Some((begun, half)) = begun.and_then(|begun| Some((begun, begun.found?))) {
            find::answering(&self.looks, &begun.heir.devices)?;
            return Ok(half_made(begun, half, array));
        }
        let request = as_begun(asked.request, begun);
        let wanted = self.recognise(entry, array, asked.definition.clone(), &request, paths);
        // It may have been restored before: then no device carries what it was.
        let mut wanted = wanted.map_err(|failure| match failure.code {
            Code::MembersMissing | Code::DeviceSilent => self
                .another(found, &entry.name, &[array])
                .unwrap_or_else(|| self.unless_later(failure, entry)),
            _ => failure,
        })?;
        // What is remembered is that of one restore.
        if let Some(begun) = begun {
            wanted.told.unreadable.extend(begun.heir.unreadable());
            wanted.array = begun.made;
        }
        Ok(wanted)
    }

    /// Gives an array that serves again what does not lie on its members.
    fn finish_restore(
        &self,
        asked: &Asked<'_>,
        name: &str,
        made: ArrayUuid,
        doubt: Option<String>,
    ) -> Result<RestoredArrayJson, Failure> {
        let devices = self.show_one(name)?.members;
        let devices: Vec<PathBuf> = devices
            .into_iter()
            .filter_map(|member| member.device.map(PathBuf::from))
            .collect();
        let set = |settings: &SettingsJson| self.set(name, settings).map(drop);
        let not_applied = not_applied(&asked.entry.settings, set);
        self.dir.restored(name);
        self.dir.has_inherited(made);
        let what = match &not_applied {
            None => "made again: it serves, and its strips are being compared".to_owned(),
            Some(not_applied) => {
                format!("made again: it serves, {NOT_AS_THEY_WERE}: {not_applied}")
            }
        };
        let what = format!("{what}; {NEW_BACKUP}");
        Ok(RestoredArrayJson {
            not_applied,
            ..asked.answer(true, doubt, &what, &devices)
        })
    }

    /// A refusal for want of members, where the name means an array that took the place of the one
    /// in the backup.
    fn unless_later(&self, failure: Failure, entry: &BackupArrayJson) -> Failure {
        let name = &entry.name;
        let owner = self.dir.meant(name).map(|owner| owner.to_string());
        let Some(owner) = owner.filter(|owner| *owner != entry.uuid) else {
            return failure;
        };
        let found = format!(
            "{}; here {name} is array {owner}, and this backup is of {name} as it was before \
             ({})",
            failure.found, entry.uuid
        );
        let cure = format!("use a backup that was taken since; {}", failure.cure);
        Failure::new(failure.code, found).cure(cure)
    }

    /// A refusal where another array than these has this name.
    fn another(&self, found: &[FoundArray], name: &str, than: &[ArrayUuid]) -> Option<Failure> {
        let mut found = found.iter().filter(|other| other.name().as_str() == name);
        let found = found.find(|other| !than.contains(&other.uuid));
        let other = found.map(|other| other.uuid);
        let other = other.or_else(|| self.find_running(name).map(|running| running.uuid))?;
        let what = format!("there is another array called {name} ({other})");
        let cure = "if it was restored from this backup, nothing is to be done; else rename it, or \
                    restore the others by name";
        Some(Failure::new(Code::NameExists, what).cure(cure))
    }

    /// Is the array that a restore was making whole, or in service?
    fn is_made(&self, begun: &Begun<'_>) -> bool {
        self.is_running(begun.made) || begun.is_whole()
    }

    /// Starts an array that a restore made before it was cut off, unless it serves. Its name.
    fn start_made(
        &self,
        entry: &BackupArrayJson,
        array: ArrayUuid,
        begun: &Begun<'_>,
    ) -> Result<String, Failure> {
        if let Some(running) = self
            .all_running()
            .into_iter()
            .find(|r| r.uuid == begun.made)
        {
            return Ok(running.name().to_string());
        }
        let found = begun.found.expect("it is whole, or it would be running");
        self.start_heir(entry, array, found)
    }

    /// Starts an array that takes the place of another. Its name.
    fn start_heir(
        &self,
        entry: &BackupArrayJson,
        elder: ArrayUuid,
        found: &FoundArray,
    ) -> Result<String, Failure> {
        let mut how = self.how(Some(entry.export.clone()), false);
        (how.name, how.elder) = (Some(found.name().clone()), Some(elder));
        self.start_found(found, &how)?;
        Ok(found.name().to_string())
    }

    /// Makes the metadata again, and starts the array.
    fn make_again(
        &self,
        entry: &BackupArrayJson,
        elder: ArrayUuid,
        request: &RestoreRequest,
        wanted: &Wanted,
        permit: Permit,
    ) -> Result<(), Failure> {
        let name = wanted.definition.name.to_string();
        let cause = || Some(format!("asked, by the backup of {}", request.backup.taken));
        // Whatever becomes of it: which device is in which slot is known from here on, and in a
        // file that stays when the power goes.
        self.dir.restoring(&name, &wanted.devices)?;
        let heir = Heir::new(elder, &wanted.devices, &wanted.told.unreadable);
        self.dir.inherits(wanted.array, &heir)?;
        self.events.note(Happened {
            array: Some(name.clone()),
            event: "restoring",
            cause: cause(),
            effect: Some(slots_text(&wanted.devices)),
            ..Happened::default()
        });
        // A daemon that is killed from here on finds the devices again.
        self.remember(wanted.devices.iter().cloned());
        let made = make::again(&wanted.devices, permit, false, |devices| {
            plan(wanted, devices)
        });
        // It is not cut off: it was refused, and its devices carry nothing of it.
        let made = made.inspect_err(|_| self.dir.has_inherited(wanted.array))?;
        self.events.note(Happened {
            array: Some(name.clone()),
            event: "restored",
            cause: cause(),
            effect: Some(format!("{} superblocks made again", made.paths.len())),
            ..Happened::default()
        });
        let found = find::pick(
            find::group(find::members(&wanted.devices)),
            &name,
            Some(wanted.array),
        )?;
        self.start_heir(entry, elder, &found).map(|_| ())
    }

    /// What of its settings an array could not be given which is to be made again, and why. A pool
    /// that the same restore makes again is there by then.
    fn would_not_apply(&self, asked: &Asked<'_>, made: &Superblock) -> Option<String> {
        let pools = chosen(asked.request).map_or(Vec::new(), |(_, pools)| pools);
        let mut settings = asked.entry.settings.clone();
        settings
            .pool
            .take_if(|name| pools.iter().any(|pool| pool.name == *name));
        not_applied(&settings, |settings| {
            self.may_set(made, &asked.entry.export, settings)
        })
    }

    /// Why the array needs no restoring, if that is so.
    fn is_there(
        &self,
        all: &[FoundArray],
        array: ArrayUuid,
        entry: &BackupArrayJson,
        paths: &[PathBuf],
        force: bool,
    ) -> Result<Option<&'static str>, Failure> {
        if self.is_running(array) {
            return Ok(Some("is serving"));
        }
        let Some(found) = all.iter().find(|found| found.uuid == array) else {
            return Ok(None);
        };
        let sb = &found.authority().image.superblock;
        let outlived = || {
            let remains = lost::look(&self.looks, paths, array, &sb.layout).found;
            sb.epoch.0 < entry.epoch || remains.iter().any(|r| is_later(r, sb.epoch.0))
        };
        match found.readiness() {
            // Its data is whole under a table of partitions: it is started, not made again.
            Readiness::Incomplete if !force => match found.way_on(&found.aside()) {
                Some(_) => Err(opening::none_usable(found, &found.aside())),
                None => Ok(None),
            },
            // A half that was left behind can be started and is not the array that was backed up.
            Readiness::Degraded if outlived() => Ok(None),
            Readiness::Complete | Readiness::Degraded => {
                self.dir.not_destroyed(array, found.name(), false)?;
                self.dir.older(found).map_or(Ok(()), Err)?;
                Ok(Some("is there: strake start serves it"))
            }
            Readiness::Conflicting => {
                let what = format!("the members of {} contradict each other", found.name());
                let why = copies::conflict(found);
                Err(why.unwrap_or_else(|| Failure::new(Code::SplitBrain, what)))
            }
            Readiness::Incomplete => Ok(None),
        }
    }

    /// Refuses a device that `--slot` names for an array that needs no restoring, unless it is the
    /// one that has the slot.
    fn slots_as_told(
        &self,
        all: &[FoundArray],
        array: ArrayUuid,
        request: &RestoreRequest,
    ) -> Result<(), Failure> {
        if request.slots.is_empty() {
            return Ok(());
        }
        let running = self.all_running().into_iter().find(|r| r.uuid == array);
        let json = match (&running, all.iter().find(|found| found.uuid == array)) {
            (Some(running), _) => running.json()?,
            (None, Some(found)) => found.stopped_json(),
            (None, None) => return Ok(()),
        };
        for told in &request.slots {
            is_in_its_slot(&json, running.is_some(), told)?;
        }
        Ok(())
    }

    /// The device of each slot.
    fn recognise(
        &self,
        entry: &BackupArrayJson,
        array: ArrayUuid,
        definition: Definition,
        request: &RestoreRequest,
        mut paths: Vec<PathBuf>,
    ) -> Result<Wanted, Failure> {
        let served = |path: &PathBuf| self.all_running().iter().any(|r| r.serves(path));
        paths.retain(|path| !served(path));
        // Those that were named are looked at for what they are, whatever they carry.
        let slots: Vec<PathBuf> = request.slots.iter().map(|t| absolute(&t.device)).collect();
        find::answering(&self.looks, &slots)?;
        let looked = |layout| lost::look(&self.looks, &paths, array, layout).all_asked();
        let looked_at = looked(&definition.layout)?;
        let (mut remains, mut silent) = (looked_at.found, looked_at.silent);
        let mut named: Vec<MemberUuid> = Vec::new();
        for member in &entry.members {
            named.push(uuid(&member.uuid)?);
        }
        // A superblock that is left knows more than a backup that was taken before it, unless the
        // others went on without its member.
        let newest = remains
            .iter()
            .filter_map(|remains| remains.superblock.clone())
            .filter(|sb| is_current(sb, entry, &named, &remains))
            .max_by_key(|sb| (sb.epoch, sb.generation));
        let mut members: Vec<MemberUuid> = Vec::new();
        let mut doubt = None;
        let definition = match &newest {
            Some(sb) => {
                if sb.moving.is_some() {
                    return Err(moved(entry, "was moving when its superblocks were lost"));
                }
                all_were_in_sync(sb)?;
                members.extend(sb.slots.iter().map(|row| row.member));
                if sb.layout.map_pages != definition.layout.map_pages
                    || sb.layout.map_offset != definition.layout.map_offset
                    || sb.layout.regions() != definition.layout.regions()
                {
                    // The array has grown since: the places are others.
                    let looked_at = looked(&sb.layout)?;
                    (remains, silent) = (looked_at.found, looked_at.silent);
                }
                Definition::of(sb)
            }
            None => {
                members = named;
                doubt = entry.members.iter().position(|member| !member.in_sync);
                definition
            }
        };
        let doubt = doubt.map(|slot| format!("slot {slot} was not in sync when it was backed up"));
        let epoch = newest.as_ref().map_or(entry.epoch, |sb| sb.epoch.0);
        let members = Members {
            array: &entry.name,
            by: newest
                .as_ref()
                .map_or("the backup", |_| "the newest superblock"),
            uuids: &members,
            epoch,
        };
        let (slots, unlike) = assign(&members, &remains, request, |told| {
            named_device(told, array, &definition)
        })
        .map_err(|failure| unless_silent(failure, &silent))?;
        let doubt = doubt.or(unlike);
        let found: Vec<Remains> = slots.into_iter().flatten().collect();
        same_shape(&found, &definition.layout)?;
        not_replaced(&found, &members, &remains, request)?;
        let doubt = doubt.or_else(|| stale(&found));
        let doubt = doubt.or_else(|| outdated(epoch, &found));
        if let Some(why) = doubt.clone().filter(|_| !request.accept_stale) {
            return Err(Failure::new(Code::MembersDisagree, why));
        }
        Ok(Wanted {
            array: ArrayUuid(make::random_uuid()),
            told: told_by(&found),
            definition,
            devices: found.into_iter().map(|remains| remains.path).collect(),
            doubt,
        })
    }
}

/// Gives a restored array its settings by `set`. A pool that is not there keeps none of the others
/// from it. What could not be applied, and why.
fn not_applied(
    settings: &SettingsJson,
    set: impl Fn(&SettingsJson) -> Result<(), Failure>,
) -> Option<String> {
    let failure = set(settings).err()?;
    let without = SettingsJson {
        pool: None,
        ..settings.clone()
    };
    if failure.code == Code::PoolNotFound && set(&without).is_ok() {
        let pool = settings.pool.as_deref().unwrap_or_default();
        return Some(format!("pool={pool}: {}", failure.found));
    }
    Some(format!("none applies: {}", failure.found))
}

/// Whether a superblock that is left tells the array's last members: it is no older than the
/// backup, and no region map is from a later epoch. That of a member which failed and is still
/// plugged in is older than both.
fn is_current(
    sb: &Superblock,
    entry: &BackupArrayJson,
    named: &[MemberUuid],
    remains: &[Remains],
) -> bool {
    let same = || {
        sb.slots
            .iter()
            .map(|row| row.member)
            .eq(named.iter().copied())
    };
    let since_backup = match entry.epoch {
        // An older Strake did not write it down.
        0 => same(),
        epoch if sb.epoch.0 == epoch => same(),
        epoch => sb.epoch.0 > epoch,
    };
    since_backup && !remains.iter().any(|remains| is_later(remains, sb.epoch.0))
}

/// A refusal for want of members, where devices did not answer that may be those.
fn unless_silent(failure: Failure, silent: &[PathBuf]) -> Failure {
    match (failure.code, silent) {
        (Code::MembersMissing, [_, ..]) => {
            let silent = partly::all(silent);
            let found = format!("{}; {silent}: no answer, perhaps a member", failure.found);
            Failure::new(Code::DeviceSilent, found)
        }
        _ => failure,
    }
}

/// Refuses a device that does not have the slot which it is named for in an array that is there.
fn is_in_its_slot(array: &ArrayJson, serves: bool, told: &SlotDevice) -> Result<(), Failure> {
    let (name, slot) = (&array.name, told.slot);
    let path = absolute(&told.device);
    let id = sysfs::identity(&path)?;
    let of = |slot: u8| array.members.iter().filter(move |m| m.slot == Some(slot));
    if of(slot).next().is_none() {
        let found = format!("{name} has no slot {slot}: its slots are 0 to {}", {
            array
                .members
                .iter()
                .filter_map(|m| m.slot)
                .max()
                .unwrap_or(0)
        });
        return Err(Failure::new(Code::MemberNotFound, found));
    }
    let is = |m: &&MemberJson| {
        let device = m.device.as_ref().map(Path::new);
        device.is_some_and(|device| sysfs::identity(device).is_ok_and(|other| other == id))
    };
    if of(slot).any(|m| is(&m)) {
        return Ok(());
    }
    let (path, quoted) = (path.display(), quoted(&path));
    let is_there = match serves {
        true => format!("{name} serves"),
        false => format!("{name} is there, and strake start {name} serves it"),
    };
    let has = of(slot).find_map(|m| m.device.as_ref());
    let has = match has {
        Some(device) => format!("its slot {slot} has {device}, not {path}"),
        None => format!("its slot {slot} has no device, and {path} is not its member"),
    };
    let found = format!("{is_there}: {has}");
    let omit = format!("omit --slot {slot}: nothing is to be restored");
    let start = match serves {
        true => String::new(),
        false => format!("strake start {name}, then "),
    };
    let other = array.members.iter().find(is).and_then(|m| m.slot);
    let cure = match (other, of(slot).any(|m| m.device.is_some())) {
        (Some(other), _) => format!("{omit}, and {path} has slot {other}"),
        (None, true) => format!(
            "{omit}; {start}strake replace {name} {slot} {quoted} puts it there, and rebuilds it"
        ),
        (None, false) => {
            format!("{omit}; {start}strake add {name} {quoted} takes it in, and rebuilds it")
        }
    };
    Err(Failure::new(Code::MembersDisagree, found).cure(cure))
}

/// Refuses members with region maps of another shape than the one that is to be made.
fn same_shape(members: &[Remains], layout: &strake_format::Layout) -> Result<(), Failure> {
    for member in members {
        for page in member.newest().flatten() {
            if page.states.len() != layout.regions_in_page(page.page) {
                let found = format!(
                    "the array had another shape when {} was written last than when it was backed \
                     up",
                    member.path.display()
                );
                return Err(Failure::new(Code::BackupInvalid, found));
            }
        }
    }
    Ok(())
}

/// What these members tell of regions and lost blocks.
fn told_by(members: &[Remains]) -> Told {
    let mut told = Told::default();
    for member in members {
        for (page, places) in (0..).zip(&member.pages) {
            told.take_page(page, places.each_ref().map(Option::as_ref));
        }
        if let Some(list) = &member.list {
            told.unreadable.extend(list.ranges.iter().cloned());
        }
    }
    told
}

/// What a restore that was cut off was making, and made in part: what it was to be is on the
/// devices that it reached.
fn half_made(begun: &Begun<'_>, half: &FoundArray, elder: ArrayUuid) -> Wanted {
    let definition = Definition::of(&half.authority().image.superblock);
    let devices = &begun.heir.devices;
    let remains: Vec<Remains> = devices
        .iter()
        .filter_map(|path| lost::look_at(path, elder, &definition.layout))
        .collect();
    let mut told = told_by(&remains);
    told.unreadable.extend(begun.heir.unreadable());
    Wanted {
        array: begun.made,
        definition,
        devices: devices.clone(),
        told,
        doubt: None,
    }
}

/// The request, with the slots that the devices had when it was carried out and cut off.
fn as_begun(request: &RestoreRequest, begun: Option<&Begun<'_>>) -> RestoreRequest {
    let mut request = request.clone();
    if let Some(begun) = begun.filter(|_| request.slots.is_empty()) {
        let slot = |(slot, device): (u8, &PathBuf)| SlotDevice {
            slot,
            device: device.clone(),
        };
        request.slots = (0..).zip(&begun.heir.devices).map(slot).collect();
    }
    request
}

fn slots_text(devices: &[PathBuf]) -> String {
    let slot = |(slot, path): (usize, &PathBuf)| format!("slot {slot}: {}", path.display());
    let slots: Vec<String> = devices.iter().enumerate().map(slot).collect();
    slots.join(", ")
}

/// Entries of a backup: arrays, and pools.
type Chosen<'a> = (Vec<&'a BackupArrayJson>, Vec<&'a BackupPoolJson>);

/// Refuses paths of a request that stand for no device: nothing is to be judged by them. A folder
/// stands for the files in it, but not in a slot.
fn are_devices(request: &RestoreRequest) -> Result<(), Failure> {
    let mut paths = find::expand(&request.devices);
    paths.extend(request.slots.iter().map(|told| absolute(&told.device)));
    paths
        .iter()
        .try_for_each(|path| sysfs::identity(path).map(drop))
}

/// The arrays and pools that are asked for.
fn chosen(request: &RestoreRequest) -> Result<Chosen<'_>, Failure> {
    request.backup.check()?;
    let (arrays, all_pools) = (&request.backup.arrays, &request.backup.pools);
    let (mut chosen, mut pools) = (Vec::new(), Vec::new());
    for name in &request.names {
        let array = arrays
            .iter()
            .find(|entry| entry.name == *name || entry.uuid == *name);
        let pool = all_pools
            .iter()
            .find(|entry| entry.name == *name || entry.uuid == *name);
        if array.is_none() && pool.is_none() {
            let found = format!("the backup has no array or pool {name}");
            return Err(Failure::new(Code::ArrayNotFound, found));
        }
        chosen.extend(array);
        pools.extend(pool);
    }
    if request.names.is_empty() {
        chosen = arrays.iter().collect();
        pools = all_pools.iter().collect();
    }
    if !request.slots.is_empty() && chosen.len() != 1 {
        let found = "slots are those of one array".to_owned();
        return Err(Failure::new(Code::Usage, found).cure("name that array"));
    }
    Ok((chosen, pools))
}

pub(super) fn uuid<T: std::str::FromStr>(text: &str) -> Result<T, Failure> {
    let wrong = |_| Failure::new(Code::BackupInvalid, format!("'{text}' is no uuid"));
    text.parse().map_err(wrong)
}

/// The definition, if an array can be like that.
fn checked(entry: &BackupArrayJson) -> Result<Definition, Failure> {
    let definition = entry.definition()?;
    let info = DeviceInfo {
        bytes: definition.layout.device_bytes,
        block_bytes: definition.block_bytes,
        granularity_bytes: 0,
        volatile_cache: false,
        dma: false,
    };
    let members = entry.members.iter();
    let trial = RestoreSpec {
        array: ArrayUuid(make::random_uuid()),
        created_unix_s: 0,
        definition,
        members: members
            .map(|_| (info, MemberUuid(make::random_uuid())))
            .collect(),
        told: Told::default(),
    };
    let invalid = |why: String| {
        let found = format!("of {}: {why}", entry.name);
        Failure::new(Code::BackupInvalid, found)
    };
    // A file may say anything: pages of one region each would take gigabytes.
    if usize::from(trial.definition.layout.page_regions) != REGIONS_PER_PAGE {
        return Err(invalid("its region map is like no other".to_owned()));
    }
    restore::superblocks(&trial).map_err(|why| invalid(why.to_string()))?;
    Ok(trial.definition)
}

/// Refuses an array of which a member was out: what it holds is not what it should.
fn all_were_in_sync(sb: &Superblock) -> Result<(), Failure> {
    let out = |row: &strake_format::SlotRecord| row.state != SlotState::InSync;
    match sb.slots.iter().position(out) {
        None => Ok(()),
        Some(slot) => {
            let found = format!("the member in slot {slot} of {} was not in sync", sb.name);
            let cure = "bring back what carries its superblock: members that are missing cannot be \
                        done without";
            Err(Failure::new(Code::MembersMissing, found).cure(cure))
        }
    }
}

fn moved(entry: &BackupArrayJson, when: &str) -> Failure {
    let what = format!("data of {} {when}", entry.name);
    Failure::new(Code::BackupMoving, what)
}

/// What is to be written on these devices, in the order of the slots.
fn plan(wanted: &Wanted, devices: &[Device]) -> Result<strake_engine::create::CreatePlan, Failure> {
    let spec = RestoreSpec {
        array: wanted.array,
        created_unix_s: make::now_unix_s(),
        definition: wanted.definition.clone(),
        members: devices
            .iter()
            .map(|device| (device.info(), MemberUuid(make::random_uuid())))
            .collect(),
        told: wanted.told.clone(),
    };
    restore::plan(&spec).map_err(|why| Failure::new(Code::DeviceTooSmall, why.to_string()))
}

/// The backup that a file holds.
pub(crate) fn read_backup(text: &str, path: &Path) -> Result<BackupJson, Failure> {
    let backup: BackupJson = serde_json::from_str(text).map_err(|why| {
        let found = format!("{} is no backup: {why}", path.display());
        Failure::new(Code::BackupInvalid, found)
    })?;
    backup.check()?;
    Ok(backup)
}

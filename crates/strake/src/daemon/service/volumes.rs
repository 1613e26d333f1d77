//! Volumes of an array in service: carving it, their table and its changes, their devices.
//!
//! Order of a change: what may be refused → a volume that would lose bytes is withdrawn (and, if
//! the change fails, served again) → the steps of the change, up to its acknowledgement → exports →
//! the rest of the steps. At a start: both copies of the table are made to say the same → every
//! volume is served → units that nobody has are discarded, if a crash kept that from being done.
//! A volume that could not be served is tried again from time to time, and by nothing else.
//!
//! Invariants: the array's own block device is taken away before the array is told for good that it
//! is carved, and never comes back; changes are one at a time (service); a table that cannot be
//! believed is not written over, and its volumes are not served. After a change that failed the
//! next takes a generation beyond it. While the end of one is not known (`doubt`), no other begins.
//!
//! Deliberately absent: which volume gets which units, and what makes a change whole (engine).

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use strake_engine::VolumeMap;
use strake_engine::event::{Command, CommandError, RequestError, Setting, Status};
use strake_engine::volumes::{self, Ground, NewVolume, Step, VolumeError};
use strake_format::{
    ArrayName, ArrayUuid, ChosenTable, RegionState, Volume, VolumeTable, VolumeTableError,
    VolumeUuid,
};
use strake_runtime::{
    Export, ExportKind, LocalClient, NotDone, Serving, UblkDevices, VolumeExport,
};

use crate::api::*;
use crate::common::errors::{Code, Failure};
use crate::common::size;
use crate::common::time::{after_1970, rfc3339};
use crate::daemon::array::doubt::{Doubt, Doubted};
use crate::daemon::array::left;
use crate::daemon::array::links;
use crate::daemon::array::running::Running;
use crate::daemon::array::unserved::Unserved;
use crate::daemon::array::users;
use crate::daemon::events::{EventLog, Happened};
use crate::daemon::service::{Service, outcome};
use crate::daemon::state::{ArrayRecord, Dir};
use crate::drives::make;
use crate::settings::words;

/// How often volumes are looked for that are to be tried again.
pub(crate) const PERIOD: Duration = Duration::from_secs(2);
/// How long devices that a killed daemon left may stay busy at a start, those of all volumes
/// together; what takes longer is tried again.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// The volumes of an array as far as they are known.
#[derive(Clone, Debug, Default)]
pub(crate) enum Carved {
    /// It is one block device.
    #[default]
    No,
    /// It has these.
    Table(VolumeTable),
    /// It is carved, and nobody knows how.
    Damaged(VolumeTableError),
}

impl From<VolumeError> for Failure {
    fn from(error: VolumeError) -> Failure {
        let code = match error {
            VolumeError::NoSuchVolume => Code::VolumeNotFound,
            VolumeError::NameTaken => Code::VolumeExists,
            VolumeError::TooMany => Code::TooManyVolumes,
            VolumeError::Size { .. } => Code::SizeInvalid,
            VolumeError::NoSpace { .. } | VolumeError::Scattered => Code::ArrayFull,
            VolumeError::WouldShrink { .. } => Code::WouldShrink,
        };
        let failure = Failure::new(code, error.to_string());
        match error {
            VolumeError::Size { block_bytes, .. } => failure.cure(format!(
                "use a multiple of {block_bytes} bytes, one or more"
            )),
            _ => failure,
        }
    }
}

fn damaged(error: VolumeTableError) -> Failure {
    Failure::new(
        Code::VolumeTableDamaged,
        format!("the table of volumes: {error}"),
    )
}

/// Why a step failed, in words.
pub(crate) fn why(error: RequestError) -> &'static str {
    match error {
        RequestError::Invalid => "the array refused it",
        RequestError::Unreadable => "blocks cannot be read",
        RequestError::Failed => "the array has failed",
        RequestError::Stopping => "the array stops",
    }
}

fn not_written(error: RequestError) -> Failure {
    let found = format!("the table of volumes could not be written: {}", why(error));
    Failure::new(Code::Io, found).cure("see strake show NAME: nothing was changed, or all of it")
}

/// An array in service, with what a change of its volumes needs.
pub(crate) struct Site<'a> {
    pub(crate) running: &'a Running,
    pub(crate) serving: &'a Serving,
    pub(crate) client: LocalClient,
    ground: Ground,
    dir: &'a Dir,
    log: &'a EventLog,
}

impl<'a> Site<'a> {
    fn new(
        running: &'a Running,
        serving: &'a Serving,
        dir: &'a Dir,
        log: &'a EventLog,
    ) -> Site<'a> {
        let client = serving.client();
        let ground = Ground::of(&client.geometry());
        Site {
            running,
            serving,
            client,
            ground,
            dir,
            log,
        }
    }

    pub(crate) fn note(&self, event: &'static str, cause: &str, effect: String) {
        self.log.note(Happened {
            array: Some(self.running.name().to_string()),
            event,
            cause: Some(cause.to_owned()),
            effect: Some(effect),
            ..Happened::default()
        });
    }

    fn table(&self) -> Result<VolumeTable, Failure> {
        match &*self.running.carved() {
            Carved::No => Ok(self.empty()),
            Carved::Table(table) => Ok(table.clone()),
            Carved::Damaged(error) => Err(damaged(*error)),
        }
    }

    fn empty(&self) -> VolumeTable {
        let unit = volumes::unit_bytes(&self.client.geometry());
        VolumeTable::empty(self.running.uuid, unit)
    }

    /// The steps of a change until it is acknowledged; what is left of them.
    fn apply(
        &self,
        before: &VolumeTable,
        mut after: VolumeTable,
    ) -> Result<impl Iterator<Item = Step> + use<>, Failure> {
        let mut steps = volumes::steps(before, &mut after).into_iter();
        for step in steps.by_ref() {
            if step == Step::Acknowledge {
                break;
            }
            match self.client.carry_out(step, before.unit_bytes) {
                Ok(()) => {}
                Err(NotDone::Failed(error)) => {
                    let newest = self.take_back(before, &after);
                    *self.running.carved() = Carved::Table(newest);
                    return Err(not_written(error));
                }
                Err(NotDone::Unfinished(stalled, step)) => {
                    let (before, after) = (before.clone(), after);
                    return Err(self.doubt(stalled, Doubt::Change(before, after, step)));
                }
            }
        }
        *self.running.carved() = Carved::Table(after);
        Ok(steps)
    }

    /// The first copy of a change that failed may lie there: a start must not find it the newest.
    /// Answers the table as it was, with a generation that the next change has to go beyond.
    pub(crate) fn take_back(&self, before: &VolumeTable, after: &VolumeTable) -> VolumeTable {
        let again = VolumeTable {
            generation: after.generation.next(),
            ..before.clone()
        };
        let both = ChosenTable {
            table: Some(again.clone()),
            behind: [true; 2],
        };
        for step in volumes::repair(&both) {
            match self.client.carry_out(step, again.unit_bytes) {
                Ok(()) => {}
                Err(NotDone::Failed(error)) => {
                    let effect = format!(
                        "a start may find it done: change it again, or back: {}",
                        why(error)
                    );
                    self.note("volume_change_in_doubt", "not written", effect);
                    break;
                }
                Err(NotDone::Unfinished(stalled, step)) => {
                    self.doubt(stalled, Doubt::Change(again.clone(), again.clone(), step));
                    break;
                }
            }
        }
        again
    }

    /// What of a change nobody waits for.
    fn tidy(&self, steps: impl Iterator<Item = Step>, unit_bytes: u64) {
        let what = "what was given up is not discarded";
        for step in steps {
            if let Err(not_done) = self.client.carry_out(step, unit_bytes) {
                self.left_undone(not_done, what);
                return;
            }
        }
    }

    fn map(&self, table: &VolumeTable, volume: &Volume) -> VolumeMap {
        VolumeMap::of(table, volume, self.ground.block_bytes)
    }

    /// Serves a volume, or has it tried again from time to time.
    fn export(&self, table: &VolumeTable, volume: &Volume) -> Result<(), Failure> {
        self.export_within(table, volume, Duration::ZERO)
    }

    /// Serves a volume again after its change has failed.
    fn back(&self, table: &VolumeTable, volume: &Volume, failure: Failure) -> Failure {
        let Err(unserved) = self.export(table, volume) else {
            return failure;
        };
        // Where the change has no end yet, that is why it is not served.
        match failure.code {
            Code::CommandUnfinished => failure,
            _ => unserved,
        }
    }

    /// The same; what a killed daemon left of it may stay busy for so long.
    fn export_within(
        &self,
        table: &VolumeTable,
        volume: &Volume,
        patience: Duration,
    ) -> Result<(), Failure> {
        let unserved = &self.running.volumes.unserved;
        match self.try_export(table, volume, patience) {
            Ok(()) => {
                unserved.ended(volume.uuid);
                Ok(())
            }
            Err(failure) => {
                if unserved.failed(volume.uuid, &failure, Instant::now()) {
                    let effect = format!("{}: {}", volume.name, failure.found);
                    self.note("volume_not_served", "it is tried again", effect);
                }
                Err(failure)
            }
        }
    }

    /// Serves a volume and remembers with which device.
    fn try_export(
        &self,
        table: &VolumeTable,
        volume: &Volume,
        patience: Duration,
    ) -> Result<(), Failure> {
        if self.serving.volume_export(volume.uuid).is_none() {
            self.no_doubt(Code::CommandUnfinished)?;
        }
        let key = volume.uuid.to_string();
        let nbd_socket = self.dir.volume_socket(&self.running.name(), &volume.name);
        if let Some(folder) = nbd_socket.parent() {
            self.dir.make_folder(folder)?;
        }
        let export = self.serving.export_volume(VolumeExport {
            uuid: volume.uuid,
            name: volume.name.to_string(),
            map: self.map(table, volume),
            nbd_socket,
            recover_ublk: self.left_for(volume)?,
            patience,
        })?;
        self.running
            .remember(self.dir, |record| match export.ublk() {
                Some(id) => {
                    record
                        .volume_names
                        .insert(key.clone(), volume.name.to_string());
                    record.volumes.insert(key, id);
                }
                None => forget_volume(record, &key),
            });
        if let Some(id) = export.ublk() {
            links::link(&self.link(&volume.name), id);
        }
        Ok(())
    }

    /// The ublk devices that a killed daemon left of a volume which is not served.
    fn left_of(&self, volume: &Volume) -> Result<Vec<u32>, Failure> {
        if self.serving.volume_export(volume.uuid).is_some() {
            return Ok(Vec::new());
        }
        let record = self.running.record();
        let remembered = record.volumes.get(&volume.uuid.to_string()).copied();
        left::of(&volume.uuid.0, remembered)
    }

    /// The one of them that is to be taken over. The others are deleted, unless they are in use: no
    /// users may be left behind a volume that is served elsewhere.
    fn left_for(&self, volume: &Volume) -> Result<Option<u32>, Failure> {
        let mut left = self.left_of(volume)?.into_iter();
        let taken_over = match self.running.export_kind()? {
            ExportKind::Auto | ExportKind::Ublk => left.next(),
            ExportKind::Nbd | ExportKind::None => None,
        };
        left.try_for_each(|id| self.delete_left(volume, id))?;
        Ok(taken_over)
    }

    fn delete_left(&self, volume: &Volume, id: u32) -> Result<(), Failure> {
        left_in_use(volume, id)?;
        left::delete_one(id, UblkDevices::tag(&volume.uuid.0))
    }

    fn link(&self, volume: &ArrayName) -> PathBuf {
        links::of_array(&self.running.name()).join(volume.as_str())
    }

    /// Takes a volume's device away, if nobody uses it.
    fn withdraw(&self, volume: &Volume) -> Result<(), Failure> {
        self.not_in_use(volume)?;
        for id in self.left_of(volume)? {
            links::unlink(&self.link(&volume.name), id);
            self.delete_left(volume, id)?;
        }
        let export = self.serving.volume_export(volume.uuid);
        self.unlink(volume, export.as_ref());
        self.serving.withdraw_volume(volume.uuid)?;
        self.running.volumes.unserved.ended(volume.uuid);
        self.running.remember(self.dir, |record| {
            forget_volume(record, &volume.uuid.to_string());
        });
        Ok(())
    }

    /// Refuses if its device is in use, or one that a killed daemon left of it.
    fn not_in_use(&self, volume: &Volume) -> Result<(), Failure> {
        volume_in_use(self.serving, volume)?;
        let mut left = self.left_of(volume)?.into_iter();
        left.try_for_each(|id| left_in_use(volume, id))
    }

    fn unlink(&self, volume: &Volume, export: Option<&Export>) {
        if let Some(id) = export.and_then(Export::ublk) {
            links::unlink(&self.link(&volume.name), id);
        }
    }

    fn is_empty(&self) -> Result<(), Failure> {
        empty(&self.serving.status_now()?)
    }

    /// Makes the array one that has volumes: its block device goes, for ever.
    fn carve(&self, force: bool) -> Result<(), Failure> {
        self.running.free(self.serving)?;
        if !force {
            empty(&self.serving.status_now()?)?;
        }
        self.running.unlink_array(self.serving);
        self.serving.withdraw()?;
        self.running.remember(self.dir, |record| record.ublk = None);
        // Somebody may have written to it until now.
        let carved = match force {
            true => Ok(()),
            false => self.is_empty(),
        }
        .and_then(|()| self.clear())
        .and_then(|()| self.carve_for_good());
        if let Err(failure) = &carved
            && failure.code != Code::CommandUnfinished
        {
            self.expose();
        }
        carved
    }

    /// Tells the array that it has volumes.
    pub(crate) fn carve_for_good(&self) -> Result<(), Failure> {
        match self.serving.begin(Command::Set(Setting::Carved)) {
            Ok(_) => {}
            Err((CommandError::Unfinished(stalled), Some(step))) => {
                return Err(self.doubt(stalled, Doubt::Carving(step)));
            }
            Err((error, _)) => return Err(error.into()),
        }
        *self.running.carved() = Carved::Table(self.empty());
        let effect = "its block device is gone, volumes take its place".to_owned();
        self.note("carved", "asked", effect);
        Ok(())
    }

    /// The array's own block device comes back, since it is not carved.
    pub(crate) fn expose(&self) {
        if let Err(error) = self.serving.expose() {
            tracing::error!(%error, "the array's block device does not come back");
        }
        self.running.name_device(self.dir, self.serving);
    }

    /// Nothing that was ever written is left, so that what the table takes reads as zeros.
    fn clear(&self) -> Result<(), Failure> {
        let unit = volumes::unit_bytes(&self.client.geometry());
        let whole = self.ground.size_bytes / unit * unit;
        for step in [Step::Zero(0..whole), Step::Flush] {
            match self.client.carry_out(step, unit) {
                Ok(()) => {}
                Err(NotDone::Failed(error)) => return Err(not_written(error)),
                Err(NotDone::Unfinished(stalled, step)) => {
                    return Err(self.doubt(stalled, Doubt::Clearing(step)));
                }
            }
        }
        Ok(())
    }

    /// The table of this array, or that of the one which it was before it was restored: then it is
    /// this one's from now on.
    fn find_table(&self, elder: Option<ArrayUuid>) -> Result<ChosenTable, VolumeTableError> {
        let own = self.client.read_volumes(self.running.uuid);
        let (Err(VolumeTableError::Foreign(of)), Some(elder)) = (&own, elder) else {
            return own;
        };
        if *of != elder {
            return own;
        }
        let table = self.client.read_volumes(elder)?.table;
        let ours = |table| VolumeTable {
            array: self.running.uuid,
            ..table
        };
        Ok(ChosenTable {
            table: table.map(ours),
            behind: [true; 2],
        })
    }

    /// Makes both copies of the table say the same, and serves what it has.
    fn bring_up(&self, elder: Option<ArrayUuid>) -> Carved {
        let chosen = match self.find_table(elder) {
            Ok(chosen) => chosen,
            Err(error) => {
                let effect = format!("no volume is served: {error}");
                self.note("volume_table_damaged", "start", effect);
                return Carved::Damaged(error);
            }
        };
        let table = chosen.table.clone().unwrap_or_else(|| self.empty());
        let mended = volumes::repair(&chosen)
            .into_iter()
            .try_for_each(|step| self.client.carry_out(step, table.unit_bytes));
        let is_mended = mended.is_ok();
        match mended {
            Ok(()) => {}
            Err(NotDone::Failed(error)) => {
                let effect = format!(
                    "a start that finds the other copy may show volumes as they were: {}",
                    why(error)
                );
                self.note("volume_change_in_doubt", "copy not written", effect);
            }
            Err(NotDone::Unfinished(stalled, step)) => {
                self.doubt(stalled, Doubt::Change(table.clone(), table.clone(), step));
            }
        }
        let until = Instant::now() + START_PATIENCE;
        for volume in &table.volumes {
            let patience = until.saturating_duration_since(Instant::now());
            if let Err(failure) = self.export_within(&table, volume, patience) {
                tracing::warn!(volume = %volume.name, %failure, "tried again");
            }
        }
        if is_mended {
            self.discard_leftovers(&table);
        }
        Carved::Table(table)
    }

    /// Discards what nobody has and is written all the same: a crash kept it from being done.
    fn discard_leftovers(&self, table: &VolumeTable) {
        let unit = table.unit_bytes;
        for free in volumes::free_ranges(table, self.ground) {
            let mut at = free.start;
            while at < free.end {
                if self.serving.region_of(at) != Some(RegionState::Unwritten) {
                    let step = Step::Discard(at..at + unit);
                    if let Err(not_done) = self.client.carry_out(step, unit) {
                        self.left_undone(not_done, "what nobody has is not discarded");
                        return;
                    }
                }
                at += unit;
            }
        }
    }

    /// Tries volumes again that could not be served, without a wait.
    fn export_again(&self, due: &[VolumeUuid]) -> Result<(), Failure> {
        let table = self.table()?;
        for uuid in due {
            let Some(volume) = table.volumes.iter().find(|v| v.uuid == *uuid) else {
                self.running.volumes.unserved.ended(*uuid);
                continue;
            };
            match self.export_within(&table, volume, Duration::ZERO) {
                Ok(()) => {
                    let export = self.serving.volume_export(*uuid);
                    let device = export.and_then(|export| export.device());
                    let effect = format!("{}: {}", volume.name, device.unwrap_or_default());
                    self.note("volume_served", "tried again", effect);
                }
                Err(failure) => {
                    tracing::debug!(volume = %volume.name, %failure, "not served yet");
                }
            }
        }
        Ok(())
    }

    fn json(&self, table: &VolumeTable, volume: &Volume) -> VolumeJson {
        self.running.volume_json(self.serving, table, volume)
    }
}

/// Refuses an array with data.
fn empty(status: &Status) -> Result<(), Failure> {
    match status.size_bytes - status.unwritten_bytes {
        0 => Ok(()),
        written => {
            let name = &status.superblock.name;
            let found = format!("{written} bytes of {name} are written");
            Err(Failure::new(Code::ArrayNotEmpty, found))
        }
    }
}

fn volume_in_use(serving: &Serving, volume: &Volume) -> Result<(), Failure> {
    let Some(export) = serving.volume_export(volume.uuid) else {
        return Ok(());
    };
    let user = export.ublk().and_then(users::opener_of_ublk);
    let clients = serving.volume_clients(volume.uuid);
    let clients = (clients > 0).then(|| {
        let are = size::verb(clients, "is", "are");
        format!("{} {are} connected", size::count(clients, "NBD client"))
    });
    match user.or(clients) {
        Some(found) => Err(Failure::new(
            Code::VolumeInUse,
            format!("{}: {found}", volume.name),
        )),
        None => Ok(()),
    }
}

/// Refuses if something uses a device that a killed daemon left of a volume.
fn left_in_use(volume: &Volume, id: u32) -> Result<(), Failure> {
    let Some(user) = left::user(id) else {
        return Ok(());
    };
    let found = format!(
        "{}: {user}, and an earlier daemon left it without a server",
        volume.name
    );
    let cure = format!(
        "to unmount it now would hang; with --export auto or ublk this daemon serves it again by \
         itself (strake volume show says when {} has a device): then unmount or close it",
        volume.name
    );
    Err(Failure::new(Code::VolumeInUse, found).cure(cure))
}

impl Running {
    pub(crate) fn carved(&self) -> MutexGuard<'_, Carved> {
        let carved = self.volumes.carved.lock();
        carved.unwrap_or_else(PoisonError::into_inner)
    }

    fn volume_json(&self, serving: &Serving, table: &VolumeTable, volume: &Volume) -> VolumeJson {
        let export = serving.volume_export(volume.uuid);
        VolumeJson {
            name: volume.name.to_string(),
            uuid: volume.uuid.to_string(),
            size_bytes: volume.size_bytes,
            allocated_bytes: volume.units() * table.unit_bytes,
            extents: volume.extents.len() as u64,
            created: rfc3339(after_1970(Duration::from_secs(volume.created_unix_s))),
            device: export.and_then(|export| export.device()),
            not_served: self.volumes.unserved.why(volume.uuid),
        }
    }

    /// Tries volumes again that could not be served and are due.
    pub(crate) fn serve_volumes(&self, dir: &Dir, log: &EventLog) -> Result<(), Failure> {
        self.site(dir, log, |site| {
            site.settle()?;
            let due = self.volumes.unserved.due(Instant::now());
            match due.is_empty() {
                true => Ok(()),
                false => site.export_again(&due),
            }
        })
    }

    /// The same for a change: only where all threads of the array turn, and where it is known what
    /// its table says.
    fn site_of_change<T>(
        &self,
        dir: &Dir,
        log: &EventLog,
        act: impl FnOnce(&Site<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.site(dir, log, |site| {
            site.no_doubt(Code::ChangeUnderWay)?;
            site.serving.turns()?;
            act(site)
        })
    }

    fn site<T>(
        &self,
        dir: &Dir,
        log: &EventLog,
        act: impl FnOnce(&Site<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.with(|serving| act(&Site::new(self, serving, dir, log)))
    }

    /// Serves the volumes of an array that has just been started.
    pub(crate) fn bring_up_volumes(
        &self,
        dir: &Dir,
        log: &EventLog,
        elder: Option<ArrayUuid>,
    ) -> Result<(), Failure> {
        if !self.status()?.superblock.carved {
            return Ok(());
        }
        self.site(dir, log, |site| {
            let carved = site.bring_up(elder);
            *self.carved() = carved;
            Ok(())
        })
    }

    /// The volumes, as `show` tells them.
    pub(crate) fn volumes_json(&self, serving: &Serving) -> VolumesJson {
        let table = match &*self.carved() {
            Carved::Table(table) => table.clone(),
            Carved::No => return VolumesJson::default(),
            Carved::Damaged(_) => {
                return VolumesJson {
                    carved: true,
                    damaged: true,
                    ..VolumesJson::default()
                };
            }
        };
        let ground = Ground::of(&serving.client().geometry());
        let volumes = table.volumes.iter();
        VolumesJson {
            carved: true,
            damaged: false,
            unit_bytes: Some(table.unit_bytes),
            free_bytes: Some(volumes::free_bytes(&table, ground)),
            volumes: volumes
                .map(|v| self.volume_json(serving, &table, v))
                .collect(),
        }
    }

    /// What keeps a volume's device busy.
    pub(crate) fn volume_user(&self, serving: &Serving) -> Option<String> {
        let table = match &*self.carved() {
            Carved::Table(table) => table.clone(),
            Carved::No | Carved::Damaged(_) => return None,
        };
        let exports = table.volumes.iter();
        let exports = exports.filter_map(|v| serving.volume_export(v.uuid)?.ublk());
        exports.into_iter().find_map(users::opener_of_ublk)
    }

    /// Takes away the names of volumes' devices, before these go.
    pub(crate) fn unlink_volumes(&self, serving: &Serving) {
        let Carved::Table(table) = &*self.carved() else {
            return;
        };
        let folder = links::of_array(&self.name());
        for volume in &table.volumes {
            let export = serving.volume_export(volume.uuid);
            if let Some(id) = export.and_then(|export| export.ublk()) {
                links::unlink(&folder.join(volume.name.as_str()), id);
            }
        }
        // Empty unless somebody else put something there.
        let _ = std::fs::remove_dir(folder);
    }
}

/// It has no block device any more.
fn forget_volume(record: &mut ArrayRecord, uuid: &str) {
    record.volumes.remove(uuid);
    record.volume_names.remove(uuid);
}

impl Service {
    /// Tries volumes again that could not be served.
    pub(crate) fn serve_volumes(self: &Arc<Service>) {
        let due = |running: &Running| {
            let volumes = &running.volumes;
            !volumes.unserved.due(Instant::now()).is_empty() || volumes.is_settled_soon()
        };
        self.each(&self.tasks.volumes, due, |service, running| {
            // A change that is under way may be about the same volume.
            let by = "a volume is served";
            let Ok(_change) = service.change_running(by, running, &[]) else {
                return;
            };
            if let Err(failure) = running.serve_volumes(&service.dir, &service.events) {
                tracing::debug!(array = %running.name(), %failure, "no volume is tried again");
            }
        });
    }

    /// The volumes of an array in service.
    pub(crate) fn volumes(&self, array: &str) -> Result<VolumesJson, Failure> {
        let running = self.running(array)?;
        running.with(|serving| Ok(running.volumes_json(serving)))
    }

    /// Makes a volume, and carves the array if it is not.
    pub(crate) fn volume_create(
        &self,
        array: &str,
        request: VolumeRequest,
    ) -> Result<VolumeCreatedJson, Failure> {
        let _change = self.change("strake volume create", array, request.dry_run)?;
        let name = words::parse_name(&request.name)?;
        let running = self.running(array)?;
        running.not_failed()?;
        running.site_of_change(&self.dir, &self.events, |site| {
            let mut table = site.table()?;
            let free = volumes::free_bytes(&table, site.ground);
            // Of nothing, there is no volume: a block says so by the right name.
            let free = free.max(site.ground.block_bytes);
            let new = NewVolume {
                uuid: VolumeUuid(make::random_uuid()),
                name: name.clone(),
                size_bytes: request.size_bytes.unwrap_or(free),
                created_unix_s: unix_s(),
            };
            // First what may be refused.
            let mut after = volumes::create(&table, site.ground, new)?;
            let carves = !site.serving.status_now()?.superblock.carved;
            if carves && !request.force {
                empty(&site.serving.status_now()?)?;
            }
            let volume = after.volumes.last().expect("it was made").clone();
            let created = VolumeCreatedJson {
                dry_run: request.dry_run,
                carves,
                volume: site.json(&after, &volume),
            };
            if request.dry_run {
                return Ok(created);
            }
            if carves {
                site.carve(request.force)?;
                table = site.table()?;
            }
            after.generation = table.generation;
            let unit = table.unit_bytes;
            let rest = site.apply(&table, after.clone())?;
            site.note("volume_created", "asked", told(&volume));
            site.tidy(rest, unit);
            let served = site.export(&after, &volume);
            served.map_err(|failure| failure.cure(tried_again("the volume was made", array)))?;
            let volume = site.json(&after, &volume);
            Ok(VolumeCreatedJson { volume, ..created })
        })
    }

    /// Deletes a volume.
    pub(crate) fn volume_delete(
        &self,
        array: &str,
        name: &str,
        dry_run: bool,
    ) -> Result<OutcomeJson, Failure> {
        let _change = self.change("strake volume delete", array, dry_run)?;
        let running = self.running(array)?;
        running.not_failed()?;
        running.site_of_change(&self.dir, &self.events, |site| {
            let (table, volume) = site.volume(name)?;
            let after = volumes::delete(&table, name)?;
            if dry_run {
                site.not_in_use(&volume)?;
                return Ok(outcome(array, false, &format!("would delete {name}")));
            }
            site.withdraw(&volume)?;
            match site.apply(&table, after) {
                Ok(rest) => {
                    site.note("volume_deleted", "asked", told(&volume));
                    site.tidy(rest, table.unit_bytes);
                    Ok(outcome(array, true, &format!("{name} deleted")))
                }
                Err(failure) => Err(site.back(&table, &volume, failure)),
            }
        })
    }

    /// Gives a volume another size or another name.
    pub(crate) fn volume_change(
        &self,
        array: &str,
        name: &str,
        request: &VolumeChange,
    ) -> Result<OutcomeJson, Failure> {
        let _change = self.change("a change of a volume", array, request.dry_run)?;
        let running = self.running(array)?;
        running.not_failed()?;
        running.site_of_change(&self.dir, &self.events, |site| match request {
            VolumeChange {
                size_bytes: Some(size_bytes),
                name: None,
                ..
            } => site.resize(name, *size_bytes, request),
            VolumeChange {
                size_bytes: None,
                name: Some(to),
                ..
            } => site.rename(name, &words::parse_name(to)?, request.dry_run),
            _ => {
                let found = "a volume is given another size or another name";
                Err(Failure::new(Code::BadRequest, found).cure("ask for one of the two"))
            }
        })
    }
}

impl Site<'_> {
    /// The table, and a volume of it.
    fn volume(&self, name: &str) -> Result<(VolumeTable, Volume), Failure> {
        let table = self.table()?;
        let none = || format!("{} has no volume {name}", self.running.name());
        let volume = table.volume(name).cloned();
        let volume = volume.ok_or_else(|| Failure::new(Code::VolumeNotFound, none()))?;
        Ok((table, volume))
    }

    fn resize(
        &self,
        name: &str,
        size_bytes: u64,
        request: &VolumeChange,
    ) -> Result<OutcomeJson, Failure> {
        let array_name = self.running.name();
        let array = array_name.as_str();
        let (table, old) = self.volume(name)?;
        let after = volumes::resize(&table, self.ground, name, size_bytes, request.shrink)?;
        let shrinks = size_bytes < old.size_bytes;
        if shrinks {
            self.not_in_use(&old)?;
        }
        if size_bytes == old.size_bytes {
            return Ok(outcome(array, false, "it has this size"));
        }
        if request.dry_run {
            let would = format!("would make {name} {size_bytes} bytes large");
            return Ok(outcome(array, false, &would));
        }
        if shrinks {
            self.withdraw(&old)?;
        }
        let rest = match self.apply(&table, after.clone()) {
            Ok(rest) => rest,
            Err(failure) if shrinks => return Err(self.back(&table, &old, failure)),
            Err(failure) => return Err(failure),
        };
        let volume = after.volume(name).expect("it is there still");
        self.note(
            "volume_resized",
            "asked",
            format!("{} from {} bytes", told(volume), old.size_bytes),
        );
        let mut what = format!("{name} has {size_bytes} bytes");
        if shrinks {
            // What lay behind its end is gone before anybody can see it.
            self.tidy(rest, table.unit_bytes);
            let served = self.export(&after, volume);
            served.map_err(|failure| failure.cure(tried_again(&what, array)))?;
        } else {
            self.tidy(rest, table.unit_bytes);
            let map = self.map(&after, volume);
            if !self.serving.grow_volume(volume.uuid, map)? {
                what.push_str(match self.serving.volume_export(volume.uuid) {
                    Some(Export::Ublk(_)) => {
                        "; this kernel shows it when the array is started again"
                    }
                    _ => "; NBD clients see it when they connect again",
                });
            }
        }
        Ok(outcome(array, true, &what))
    }

    fn rename(&self, name: &str, to: &ArrayName, dry_run: bool) -> Result<OutcomeJson, Failure> {
        let array_name = self.running.name();
        let array = array_name.as_str();
        let (table, old) = self.volume(name)?;
        let after = volumes::rename(&table, name, to.clone())?;
        if to.as_str() == name {
            return Ok(outcome(array, false, "it has this name"));
        }
        let nbd = matches!(
            self.serving.volume_export(old.uuid),
            Some(Export::Nbd { .. })
        );
        if nbd {
            volume_in_use(self.serving, &old)?;
        }
        if dry_run {
            return Ok(outcome(array, false, &format!("would call {name} {to}")));
        }
        if nbd {
            // The name of a socket is where it lies.
            self.withdraw(&old)?;
        }
        let applied = self.apply(&table, after.clone());
        let (table, volume) = match &applied {
            Ok(_) => (&after, after.volume(to.as_str()).expect("it was renamed")),
            Err(_) => (&table, &old),
        };
        if applied.is_ok() && !nbd {
            self.unlink(&old, self.serving.volume_export(old.uuid).as_ref());
        }
        let served = self.export(table, volume);
        self.tidy(applied?, table.unit_bytes);
        self.running.remember(self.dir, |record| {
            let called = record.volume_names.get_mut(&old.uuid.to_string());
            called.into_iter().for_each(|name| *name = to.to_string());
        });
        let what = format!("{name} is called {to}");
        self.note("volume_renamed", "asked", what.clone());
        served.map_err(|failure| failure.cure(tried_again(&what, array)))?;
        Ok(outcome(array, true, &what))
    }
}

/// What to do about a volume that could not be served after a change.
fn tried_again(done: &str, array: &str) -> String {
    format!("{done}; its device is tried again by itself: strake volume show {array}")
}

/// A volume in words.
fn told(volume: &Volume) -> String {
    format!("{}, {} bytes", volume.name, volume.size_bytes)
}

fn unix_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Volumes of a [`Running`].
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    carved: Mutex<Carved>,
    pub(crate) unserved: Unserved,
    pub(crate) doubt: Mutex<Option<Doubted>>,
}

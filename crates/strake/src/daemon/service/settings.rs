//! Settings: those that the members carry, and what an array may take of this machine.
//!
//! Order of a change: all that is wanted is looked at first, then what is this machine's is kept,
//! then the array is told.
//!
//! Invariant: settings are changed together, or, where one is refused, none; what changed is an
//! event. Deliberately absent: what they mean (engine, `placement`, `schedule`).

use strake_engine::event::Command;
use strake_format::Superblock;

use crate::api::{OutcomeJson, SettingsJson};
use crate::common::errors::{Code, Failure};
use crate::daemon::array::running;
use crate::daemon::events::Happened;
use crate::daemon::service::pools;
use crate::daemon::service::{Service, outcome};
use crate::settings;
use crate::settings::engine_settings;
use crate::settings::placement::{PlacementRecord, Wanted};
use crate::view;

/// Settings that members carry are refused for an array that is not started; those of this machine
/// may be what keeps it from starting, and are taken alone.
fn of_stopped(failure: Failure, name: &str, wanted: &SettingsJson) -> Failure {
    let json = |settings: &SettingsJson| serde_json::to_value(settings).unwrap_or_default();
    let (all, carried) = (json(wanted), json(&wanted.carried()));
    let is_said = |value: &serde_json::Value| !value.is_null() && *value != false;
    let names = |wants: &dyn Fn(&str) -> bool| {
        let all = all.as_object().into_iter().flatten();
        let said = all.filter(|(key, value)| is_said(value) && wants(key));
        let names: Vec<String> = said.map(|(key, _)| settings::spoken_name(key)).collect();
        names.join(", ")
    };
    let on_members = names(&|key| is_said(&carried[key]));
    let here = names(&|key| !is_said(&carried[key]));
    if failure.code != Code::NotServing || here.is_empty() {
        return failure;
    }
    let found = format!("{}, and its members carry {on_members}", failure.found);
    let cure = format!(
        "strake set {name} takes {here} alone; then strake start {name}, and set {on_members}"
    );
    Failure::new(failure.code, found).cure(cure)
}

impl Service {
    /// Settings of an array, running or not.
    pub(crate) fn settings(&self, name: &str) -> Result<SettingsJson, Failure> {
        let superblock = self.superblock(name)?;
        let placement = self.dir.try_placement(superblock.array)?;
        Ok(view::settings(&superblock, &placement))
    }

    /// The superblock to believe, of an array in service or not.
    fn superblock(&self, name: &str) -> Result<Superblock, Failure> {
        match self.find_running(name) {
            Some(running) => Ok(running.status()?.superblock),
            None => {
                let found = self.pick(self.scan(&[]), name)?;
                Ok(found.authority().image.superblock.clone())
            }
        }
    }

    /// Changes what the array may take of this machine. One that does not run can be changed, too:
    /// it may be what keeps it from running.
    fn place(&self, name: &str, wanted: Wanted<'_>, dry_run: bool) -> Result<bool, Failure> {
        let superblock = self.superblock(name)?;
        let before = self.dir.try_placement(superblock.array)?;
        let record = before.with(wanted)?;
        let export = match self.find_running(name) {
            Some(running) => running.export_kind()?,
            None => {
                let remembered = self.dir.record(superblock.array);
                running::parse_export(remembered.as_ref().map_or("auto", |r| &r.export))?
            }
        };
        record.check_memory(&superblock, export, self.limits.shards)?;
        if record == before || dry_run {
            return Ok(false);
        }
        self.dir.place(superblock.array, &record)?;
        Ok(true)
    }

    /// Whether an array with this superblock, which is still to be made, would take all that is
    /// wanted.
    pub(super) fn may_set(
        &self,
        superblock: &Superblock,
        export: &str,
        wanted: &SettingsJson,
    ) -> Result<(), Failure> {
        engine_settings(wanted)?;
        pools::check_named(&self.pools(), wanted.pool.as_deref())?;
        let record = PlacementRecord::default().with(Wanted::of_settings(wanted))?;
        let export = running::parse_export(export)?;
        record.check_memory(superblock, export, self.limits.shards)
    }

    /// Changes settings: all that are wanted, or, where one is refused, none.
    pub(crate) fn set(&self, name: &str, request: &SettingsJson) -> Result<OutcomeJson, Failure> {
        let _change = self.change("strake set", name, request.dry_run)?;
        let dry_run = request.dry_run;
        let wanted = &SettingsJson {
            dry_run: false,
            ..request.clone()
        };
        let settings = engine_settings(wanted)?;
        pools::check_named(&self.pools(), wanted.pool.as_deref())?;
        let running = match wanted.only_places() {
            true => None,
            false => Some(
                self.running(name)
                    .map_err(|why| of_stopped(why, name, wanted))?,
            ),
        };
        let commands = || settings.iter().map(|setting| Command::Set(*setting));
        if let Some(running) = &running {
            commands().try_for_each(|command| running.preflight(command))?;
        }
        let superblock = self.superblock(name)?;
        if !self.is_running(superblock.array) {
            self.dir
                .not_destroyed(superblock.array, &superblock.name, false)?;
        }
        let array = superblock.name.to_string();
        let before = self.settings(name)?;
        let places = Wanted::of_settings(wanted);
        let mut changed = wanted.places() && self.place(name, places, dry_run)?;
        if dry_run {
            return Ok(outcome(&array, false, "would set it"));
        }
        if let Some(running) = &running {
            for command in commands() {
                changed |= running.command(command)?;
            }
        }
        let news = Happened::settings_changed(&array, &before, &self.settings(name)?);
        news.into_iter().for_each(|news| self.events.note(news));
        Ok(outcome(&array, changed, "set"))
    }
}

//! Giving an array another name: while it serves, and while it is stopped.
//!
//! Order: the new name is durable on every live member, then what goes by the name follows (socket,
//! link). A crash in between leaves the array with its new name and a leftover that the next start
//! goes over.
//!
//! Invariant: a stopped array is renamed by the engine, too, in a short service that no client can
//! reach: superblocks are never changed beside it. Deliberately absent: which array may have which
//! name (service).

use strake_engine::event::{Changed, Command};
use strake_format::ArrayName;
use strake_runtime::{ExportKind, Placement, ServeConfig};

use crate::api::{OutcomeJson, RenameRequest};
use crate::common::errors::{Code, Failure};
use crate::daemon::array::opening;
use crate::daemon::array::opening::Opened;
use crate::daemon::array::running::{Limits, Start};
use crate::daemon::events::Happened;
use crate::daemon::service::{Service, outcome};
use crate::daemon::state::Dir;
use crate::drives::find::{FoundArray, Readiness};
use crate::settings::words::parse_name;

/// Another array has this name already.
///
/// # Errors
/// Which.
pub(crate) fn check_free(
    name: &ArrayName,
    array: strake_format::ArrayUuid,
    others: &[FoundArray],
) -> Result<(), Failure> {
    match others.iter().find(|a| a.name() == name && a.uuid != array) {
        None => Ok(()),
        Some(other) => {
            let found = format!("{} is called {name} already", other.uuid);
            Err(Failure::new(Code::NameExists, found).cure("choose another name"))
        }
    }
}

/// Renames an array that does not run. All its members have to be there: one that is not would keep
/// the old name, and would be put out for it. Answers what there is to say beside that.
///
/// # Errors
/// Why it was not done; the name is the old one then.
pub(crate) fn rename_stopped(
    dir: &Dir,
    found: &FoundArray,
    name: &ArrayName,
) -> Result<Option<String>, Failure> {
    let (serving, _events) = strake_runtime::serve(short_service(dir, found, name)?)?;
    let renamed = serving.command(Command::Rename(name.clone()));
    let stopped = serving.stop();
    renamed?;
    Ok(stopped.err().map(|error| {
        format!(
            "it was not stopped cleanly after that: {error}; its next start recovers what was \
             under way"
        )
    }))
}

/// Whether it could be renamed so now. Its members are held for a moment, and nothing is written.
pub(crate) fn may_rename_stopped(
    dir: &Dir,
    found: &FoundArray,
    name: &ArrayName,
) -> Result<(), Failure> {
    Ok(strake_runtime::may_serve(short_service(dir, found, name)?)?)
}

/// The service in which a stopped array is renamed, with all its members, which are held.
fn short_service(dir: &Dir, found: &FoundArray, name: &ArrayName) -> Result<ServeConfig, Failure> {
    check_whole(found)?;
    let limits = Limits::default();
    let how = Start::of_daemon(limits);
    let Opened { members, aside, .. } = opening::open(found, &how)?;
    if let Some(aside) = aside.first() {
        return Err(aside.why.clone());
    }
    dir.not_older(found, &members)?;
    Ok(ServeConfig {
        members,
        shards: 1,
        memory_bytes: limits.memory_bytes,
        placement: Placement::default(),
        io_timeout: limits.io_timeout,
        force: false,
        export: ExportKind::None,
        nbd_socket: dir.nbd_socket(name),
        recover_ublk: None,
        client_stock: Vec::new(),
    })
}

/// Refuses if members are missing.
fn check_whole(found: &FoundArray) -> Result<(), Failure> {
    match found.readiness() {
        Readiness::Complete => Ok(()),
        other => {
            let what = format!("{} is {} and does not run", found.name(), other.as_str());
            let cure = "bring the missing members back, or start it and rename it then";
            Err(Failure::new(Code::MembersMissing, what).cure(cure))
        }
    }
}

impl Service {
    /// Gives an array another name.
    pub(crate) fn rename(
        &self,
        name: &str,
        request: &RenameRequest,
    ) -> Result<OutcomeJson, Failure> {
        let new = parse_name(&request.name)?;
        let mut keys = self.keys(name);
        keys.push(new.to_string());
        // The dry run of one that does not run holds its members.
        let holds_none = request.dry_run && self.find_running(name).is_some();
        let _change = self.changes.begin("strake rename", keys, holds_none)?;
        let all = self.scan(&[]);
        let serving = self.find_running(name);
        let (uuid, old, found) = match &serving {
            Some(running) => (running.uuid, running.name(), None),
            None => {
                let found = self.pick(all.clone(), name)?;
                (found.uuid, found.name().clone(), Some(found))
            }
        };
        if old == new {
            return Ok(outcome(
                old.as_str(),
                false,
                &format!("it is called {new} already"),
            ));
        }
        let of_that_name = self.find_running(new.as_str());
        if of_that_name.is_some_and(|other| other.uuid != uuid) {
            let what = format!("another array called {new} is running");
            return Err(Failure::new(Code::NameExists, what).cure("choose another name"));
        }
        if found.is_some() {
            self.dir.not_destroyed(uuid, &old, false)?;
        }
        check_free(&new, uuid, &all)?;
        if request.dry_run {
            let may = |found| may_rename_stopped(&self.dir, found, &new);
            found.as_ref().map_or(Ok(()), may)?;
            return Ok(outcome(
                old.as_str(),
                false,
                &format!("would be called {new}"),
            ));
        }
        let mut notes = Vec::new();
        let changed = match (&serving, &found) {
            (Some(running), _) => running.rename(&self.dir, &new)?,
            (None, Some(found)) => {
                notes.extend(rename_stopped(&self.dir, found, &new)?);
                notes.extend(self.dir.own(&new, found.uuid));
                // The array that serves tells of it by itself.
                self.events.note(Happened::renamed(&old, &new));
                Changed::Yes
            }
            (None, None) => unreachable!("it runs, or it was found"),
        };
        let what = format!("is called {new} now");
        Ok(outcome(old.as_str(), changed == Changed::Yes, &what).noted(&notes))
    }
}

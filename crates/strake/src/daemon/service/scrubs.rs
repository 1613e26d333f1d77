//! What past scrubs found: the last ten of each array, also after restarts.
//!
//! The members tell of the last scrub that came to its end; what it was before is kept beside the
//! daemon (`state`). So nothing depends on the daemon having been there when a scrub ended:
//! whatever the members tell that is not kept yet is added when it is seen next, and whenever the
//! past is asked for.
//!
//! Invariant: looking writes nothing. Deliberately absent: when scrubs begin (`schedule`), and each
//! finding (events). Jobs that a user starts or ends are here, too, and why one is as it was.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strake_engine::Geometry;
use strake_engine::event::{Command, MemberState, MemberStatus, ScrubMode, Status};
use strake_format::{ScrubCounts, ScrubResult, Superblock};

use crate::api::{JobJson, JobRequest, OutcomeJson, ScrubsJson};
use crate::common::errors::{Code, Failure};
use crate::common::size;
use crate::daemon::array::running::Running;
use crate::daemon::service::{Service, outcome};
use crate::daemon::state::Dir;
use crate::settings::schedule::{self, parse_policy, policy_word};
use crate::view;

/// So many are kept.
const KEPT: usize = 10;

/// A scrub that came to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PastScrub {
    /// What it did with what it found, in a word.
    mode: String,
    begun_unix_s: u64,
    ended_unix_s: u64,
    inconsistent: u64,
    located: u64,
    unreadable: u64,
}

impl PastScrub {
    fn of(last: &ScrubResult) -> PastScrub {
        PastScrub {
            mode: policy_word(last.mode).to_owned(),
            begun_unix_s: last.begun_unix_s,
            ended_unix_s: last.ended_unix_s,
            inconsistent: last.found.inconsistent,
            located: last.found.located,
            unreadable: last.found.unreadable,
        }
    }

    /// `None` of a way to scrub that a newer version added.
    fn result(&self) -> Option<ScrubResult> {
        Some(ScrubResult {
            mode: parse_policy(&self.mode)?,
            begun_unix_s: self.begun_unix_s,
            ended_unix_s: self.ended_unix_s,
            found: ScrubCounts {
                inconsistent: self.inconsistent,
                located: self.located,
                unreadable: self.unreadable,
            },
        })
    }
}

/// The past with what the members tell, the newest first. Whether that was new.
fn with_last(mut past: Vec<PastScrub>, last: Option<&ScrubResult>) -> (Vec<PastScrub>, bool) {
    let last = last.map(PastScrub::of);
    let new = last.filter(|last| !past.contains(last));
    let added = new.is_some();
    // Before those that ended in the same second.
    past.splice(0..0, new);
    past.sort_by_key(|scrub| std::cmp::Reverse((scrub.ended_unix_s, scrub.begun_unix_s)));
    past.truncate(KEPT);
    (past, added)
}

/// What is told of an array's scrubs.
pub(crate) fn json(dir: &Dir, sb: &Superblock, jobs: &[JobJson]) -> ScrubsJson {
    let (past, _) = with_last(dir.scrubs(sb.array), sb.last_scrub.as_ref());
    let past = past.iter().filter_map(PastScrub::result);
    ScrubsJson {
        name: sb.name.to_string(),
        now: jobs.iter().find(|job| job.kind == "scrub").cloned(),
        past: past.map(|scrub| view::scrubbed(&scrub)).collect(),
    }
}

/// A job that a user starts and stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Of missing members.
    Rebuild,
    /// Zeroing of what was never written.
    Init,
    /// Check of parity, which may repair.
    Scrub,
}

impl Job {
    /// The command that starts and stops it.
    fn command(self) -> &'static str {
        match self {
            Job::Rebuild => "strake rebuild",
            Job::Init => "strake init",
            Job::Scrub => "strake scrub",
        }
    }
}

impl Service {
    /// Begins the scrubs that are due, and keeps what those found that ended.
    pub(crate) fn begin_scrubs(self: &Arc<Service>) {
        self.each(
            &self.tasks.scrubs,
            |_| true,
            |service, running| {
                if let Err(failure) = service.begin_scrub(running) {
                    tracing::debug!(array = %running.name(), %failure, "no scrub was begun");
                }
            },
        );
    }

    fn begin_scrub(&self, running: &Running) -> Result<(), Failure> {
        let sb = running.status()?.superblock;
        self.keep_scrub(running, &sb);
        if !schedule::due(&sb, &jiff::ZonedDateTime::now()) {
            return Ok(());
        }
        tracing::info!(array = %sb.name, "a scrub is due");
        let command = Command::StartScrub(sb.settings.scrub_policy);
        running.command(command).map(|_| ())
    }

    /// Starts or stops a job.
    pub(crate) fn job(
        &self,
        name: &str,
        kind: Job,
        request: &JobRequest,
    ) -> Result<OutcomeJson, Failure> {
        let action = request.action.as_str();
        let how = request.repair || request.halt;
        if how && (kind != Job::Scrub || action != "start") || request.repair && request.halt {
            let found = "repair or halt goes with the start of a scrub";
            return Err(Failure::new(Code::Usage, found).cure("leave it away"));
        }
        let _change = self.change(kind.command(), name, request.dry_run)?;
        let running = self.running(name)?;
        let name = running.name();
        let name = name.as_str();
        let (command, word) = match (kind, action) {
            (Job::Rebuild, "start") => (Command::StartRebuild, "rebuild"),
            (Job::Rebuild, "stop") => (Command::StopRebuild, "rebuild"),
            (Job::Init, "start") => (Command::StartInit, "zeroing"),
            (Job::Init, "stop") => (Command::StopInit, "zeroing"),
            (Job::Scrub, "start") => {
                let mode = match (request.repair, request.halt) {
                    (true, _) => ScrubMode::Repair,
                    (_, true) => ScrubMode::Halt,
                    _ => ScrubMode::Check,
                };
                (Command::StartScrub(mode), "scrub")
            }
            (Job::Scrub, "pause") => (Command::PauseScrub, "scrub"),
            (Job::Scrub, "stop") => (Command::StopScrub, "scrub"),
            (Job::Scrub, "accept") => return accept(&running, name, request.dry_run),
            _ => {
                let failure = Failure::new(Code::Usage, format!("'{action}' is no action"));
                return Err(failure.cure("use start or stop, for a scrub also pause or accept"));
            }
        };
        if request.dry_run {
            running.preflight(command.clone())?;
            let status = running.status()?;
            let what = match would_change(&command, &status) {
                true => format!("would {action} the {word}"),
                false => nothing_changed(kind, action, &status).to_owned(),
            };
            return Ok(outcome(name, false, &what));
        }
        // Before the next one's findings take its place.
        self.keep_scrub(&running, &running.status()?.superblock);
        let changed = running.command(command)?;
        if !changed {
            let why = nothing_changed(kind, action, &running.status()?);
            return Ok(outcome(name, false, why));
        }
        let done = match action {
            "start" => "started",
            "pause" => "paused",
            _ => "stopped",
        };
        let limits = match (kind, action) {
            (Job::Scrub, "start") => compares_nothing(&running.status()?),
            _ => String::new(),
        };
        Ok(outcome(name, changed, &format!("{word} {done}{limits}")))
    }

    /// Keeps what the last scrub found.
    pub(crate) fn keep_scrub(&self, running: &Running, sb: &Superblock) {
        let (past, new) = with_last(self.dir.scrubs(running.uuid), sb.last_scrub.as_ref());
        if new && let Err(failure) = self.dir.keep_scrubs(running.uuid, &past) {
            tracing::warn!(array = %sb.name, %failure, "what its last scrub found is not kept");
        }
    }

    /// What an array's scrubs found, and what the present one has found so far; it may be stopped.
    pub(crate) fn scrubs(&self, name: &str) -> Result<ScrubsJson, Failure> {
        let Some(running) = self.find_running(name) else {
            let found = self.pick(self.scan(&[]), name)?;
            return Ok(json(&self.dir, &found.authority().image.superblock, &[]));
        };
        let jobs = running.json()?.jobs;
        Ok(json(&self.dir, &running.status()?.superblock, &jobs))
    }
}

/// Where a scrub has nothing to compare strips with, because no redundancy is left there. Empty
/// where it compares all.
pub(crate) fn compares_nothing(status: &Status) -> String {
    let geometry = Geometry::of(&status.superblock);
    let in_sync = |member: &&MemberStatus| member.state == MemberState::InSync;
    let slots = status.members.iter().filter(in_sync).filter_map(|m| m.slot);
    let mut left = vec![0; geometry.groups as usize];
    for slot in slots {
        if let Some(left) = left.get_mut(usize::from(slot.0) / geometry.width) {
            *left += 1;
        }
    }
    let bare = left.iter().filter(|left| **left <= geometry.k).count();
    let where_it_is = match (bare, left.len()) {
        (0, _) => return String::new(),
        (bare, all) if bare < all => format!(" in {bare} of {all} groups"),
        _ => String::new(),
    };
    format!(
        "; no redundancy is left{where_it_is}: there it finds blocks that cannot be read, and \
         compares nothing"
    )
}

/// Takes the data in undecided regions for right.
pub(super) fn accept(running: &Running, name: &str, dry_run: bool) -> Result<OutcomeJson, Failure> {
    let array = running.json()?;
    let may = running.preflight(Command::AcceptData);
    may.map_err(|refused| match refused.code {
        // Nothing is rebuilt where parity is undecided: see `docs/operations.md`.
        Code::NotOptimal if array.state == "degraded" => refused.cure(format!(
            "let rebuilds end; where one is paused (blocks cannot be read): strake stop {name}, \
             strake start {name} --force (what is missing is then what parity makes of it), let \
             it be rebuilt, and accept then"
        )),
        _ => refused,
    })?;
    let regions = size::count(array.undecided_regions as usize, "region");
    let what = format!(
        "what is read in {regions} ({}) for right and compute parity anew",
        size::bytes(array.undecided_bytes)
    );
    if dry_run {
        return Ok(outcome(name, false, &format!("would take {what}")));
    }
    let changed = running.command(Command::AcceptData)?;
    Ok(outcome(name, changed, &format!("begins to take {what}")))
}

/// Whether a job that is to start or to end is not yet as it is to be.
fn would_change(command: &Command, status: &Status) -> bool {
    let (sb, members) = (&status.superblock, &status.members);
    match command {
        Command::StartRebuild => {
            let is_spare = |m: &MemberStatus| m.state == MemberState::Spare;
            let waits = |m: &MemberStatus| m.spare_in_ns.is_some();
            let no_longer = members.iter().any(waits) && members.iter().any(is_spare);
            status.rebuilds_stopped || status.rebuild_blocked || no_longer
        }
        Command::StopRebuild => !status.rebuilds_stopped,
        Command::StartInit => !sb.zeroing,
        Command::StopInit => sb.zeroing,
        Command::StartScrub(mode) => sb.scrub.is_none_or(|one| one.paused || one.mode != *mode),
        Command::PauseScrub => sb.scrub.is_some_and(|one| !one.paused),
        Command::StopScrub => sb.scrub.is_some(),
        _ => true,
    }
}

/// Why a job that was to start or to end is as it was.
pub(super) fn nothing_changed(kind: Job, action: &str, status: &Status) -> &'static str {
    match (kind, action) {
        (Job::Rebuild, "start") => no_rebuild(status),
        (Job::Rebuild, _) => "rebuilds are stopped already",
        (Job::Init, "start") => "zeroing is under way already",
        (Job::Init, _) => "nothing is being zeroed",
        (Job::Scrub, "start") => "a scrub runs already",
        (Job::Scrub, _) => "no scrub is at work",
    }
}

/// Why the start of a rebuild changed nothing.
fn no_rebuild(status: &Status) -> &'static str {
    let state =
        |wanted| move |member: &MemberStatus| member.slot.is_some() && member.state == wanted;
    let members = &status.members;
    match () {
        () if members.iter().any(state(MemberState::Rebuilding)) => "a rebuild runs already",
        () if members
            .iter()
            .filter(|m| m.slot.is_some())
            .all(state(MemberState::InSync)) =>
        {
            "every slot is in sync: nothing is to be rebuilt"
        }
        () => "no slot has a device to rebuild onto: strake add adds one",
    }
}

#[cfg(test)]
mod tests {
    use strake_format::ScrubMode;

    use super::*;

    fn scrub(ended_unix_s: u64) -> ScrubResult {
        ScrubResult {
            mode: ScrubMode::Repair,
            begun_unix_s: ended_unix_s - 5,
            ended_unix_s,
            found: ScrubCounts {
                inconsistent: 3,
                located: 2,
                unreadable: 1,
            },
        }
    }

    #[test]
    fn the_last_ten_are_kept_each_once_and_the_newest_comes_first() {
        let mut past = Vec::new();
        for ended in 10..30 {
            for again in [true, false] {
                let new;
                (past, new) = with_last(past, Some(&scrub(ended)));
                assert_eq!(new, again);
            }
        }
        let ended: Vec<u64> = past.iter().map(|scrub| scrub.ended_unix_s).collect();
        assert_eq!(ended, (20..30).rev().collect::<Vec<u64>>());
        assert_eq!(past[0].result(), Some(scrub(29)));
        let (same, new) = with_last(past.clone(), None);
        assert_eq!((same, new), (past, false));
    }
}

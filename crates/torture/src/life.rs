//! The life of one array: rounds of start, load, loss, kill; and what must be true in each.
//!
//! A round starts a child on the files that are there, lets users work on the array while members
//! are lost, rebuilt, replaced and scrubbed, and ends in a kill at some moment or in a clean stop.
//! Invariants: all choices come from the seed (when exactly a kill strikes does not); an array is
//! never asked for more than its level promises; so every refusal, error or wrong byte is a fault.
//!
//! A killed process loses no page cache. Where no log closes the write hole, a kill under writes
//! and a missing member together are more than is promised: such an array is stopped cleanly
//! before.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use strake_sim::prng::{Prng, Purpose};

use crate::child::{Child, Seen};
use crate::files::Files;
use crate::load::{Field, Load, Mix};
use crate::nbd::Client;
use crate::shape::Shape;
use crate::totals::{Totals, count};

/// An array that takes longer to be whole never is.
const PATIENCE: Duration = Duration::from_secs(90);

/// See the module.
pub(crate) struct Life<'a> {
    rng: Prng,
    shape: Shape,
    files: Files,
    field: Arc<Field>,
    dir: PathBuf,
    totals: &'a Totals,
    /// What was done, for the reader of a failure.
    pub(crate) story: Vec<String>,
    /// Regions may be open or waiting for a resync on the members.
    dirty: bool,
    /// Stripes that a scrub found untrue.
    untrue: u64,
    /// The last round ended in a kill.
    killed: bool,
}

/// How a round ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Kill,
    /// Killed while it stops.
    KillStopping,
    Stop,
}

impl<'a> Life<'a> {
    /// Makes a new array in an empty folder.
    pub(crate) fn new(
        seed: u64,
        level: Option<&str>,
        dir: &Path,
        totals: &'a Totals,
    ) -> Result<Life<'a>> {
        let mut drawn = Prng::new(seed, Purpose::Plan);
        let shape = Shape::draw(&mut drawn, level)?;
        let files = Files::new(dir, shape.members, shape.width(), shape.tolerates())?;
        let (size, block) = shape.create(&mut drawn, &files.members())?;
        let about = format!(
            "level {} of {} members, strip {}, blocks of {block}, {size} bytes, {}",
            shape.level,
            shape.members,
            shape.strip,
            if shape.tiny.is_some() {
                "tiny"
            } else {
                "ordinary layout"
            },
        );
        Ok(Life {
            rng: Prng::new(seed, Purpose::Faults),
            files,
            field: Field::new(size, block),
            dir: dir.to_owned(),
            totals,
            story: vec![about],
            dirty: false,
            untrue: 0,
            killed: false,
            shape,
        })
    }

    fn tell(&mut self, what: impl Into<String>) {
        self.story.push(format!("  {}", what.into()));
    }

    /// One round.
    pub(crate) fn round(&mut self) -> Result<()> {
        self.story.push(format!("round {}", self.totals.round()));
        self.between_rounds()?;
        let mut child = self.spawn()?;
        if self.rng.percent(15) {
            // Not dirtier than before: nobody has written.
            let delay = self.pause(25_000);
            self.tell(format!("killed {delay:?} after its start"));
            self.totals.kill_at(&self.totals.kills_starting);
            self.killed = true;
            return child.kill();
        }
        let seen = self.started(&mut child)?;
        self.killed = false;
        if !seen.synced() {
            count(&self.totals.resyncs);
        }
        if self.rng.percent(40) {
            self.verify("at the start")?;
        }
        let load = self.load();
        let acts = self.acts(&mut child);
        let ended = acts.and_then(|()| self.end(child, load));
        self.check().and(ended)
    }

    /// The last round: everything made whole, read, and scrubbed.
    pub(crate) fn last_round(&mut self) -> Result<()> {
        self.story
            .push(format!("last round {}", self.totals.round()));
        let mut child = self.spawn()?;
        self.started(&mut child)?;
        self.make_whole(&mut child)?;
        self.wait(&mut child, "the end of the move", |seen| {
            seen.shapes.len() == 1 && !seen.has_job("Restripe")
        })?;
        self.look(&mut child)?;
        self.verify("at the end")?;
        self.scrub(&mut child)?;
        self.stop(child)
    }

    /// Adds what the users did and saw to the totals.
    pub(crate) fn count(&self) {
        let add = |to: &AtomicU64, from: &AtomicU64| {
            to.fetch_add(from.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        add(&self.totals.requests, &self.field.requests);
        add(&self.totals.blocks_verified, &self.field.verified);
        add(&self.totals.torn_reads, &self.field.torn);
        let mismatches = self.field.mismatches() + self.untrue;
        self.totals
            .mismatches
            .fetch_add(mismatches, Ordering::Relaxed);
    }

    // ---- while the array is down -------------------------------------------------------------

    fn between_rounds(&mut self) -> Result<()> {
        let may_lose = self.shape.hole_closed() || !self.dirty;
        while may_lose && self.rng.percent(25) {
            let slots = self.files.expendable();
            if slots.is_empty() {
                break;
            }
            let slot = slots[self.rng.index(slots.len())];
            self.files.hide(slot)?;
            self.is_lost(&self.totals.members_hidden);
            self.tell(format!("slot {slot} is missing"));
        }
        self.bring_in_the_past(may_lose)?;
        if self.rng.percent(30)
            && let Some(path) = self.files.return_one(&mut self.rng)?
        {
            count(&self.totals.stale_returns);
            self.tell(format!("{} is back", name(&path)));
        }
        if self.rng.percent(15) && self.files.swap(&mut self.rng)? {
            count(&self.totals.names_swapped);
            self.tell("two members have exchanged their names");
        }
        Ok(())
    }

    /// A copy is taken; one that was taken before takes the place of its member; a member is
    /// emptied.
    fn bring_in_the_past(&mut self, may_lose: bool) -> Result<()> {
        if let Some(slot) = self.files.outdated()
            && may_lose
            && self.rng.percent(50)
        {
            self.files.put_back(slot)?;
            self.is_lost(&self.totals.copies_put_back);
            self.tell(format!("slot {slot} has an older copy of its member"));
        } else if self.rng.percent(25) {
            self.files.copy_one(&mut self.rng)?;
        }
        let sealed = self.files.sealed();
        if may_lose && !sealed.is_empty() && self.rng.percent(10) {
            let slot = sealed[self.rng.index(sealed.len())];
            self.files.empty(slot, &mut self.rng)?;
            self.is_lost(&self.totals.members_emptied);
            self.tell(format!("slot {slot} was emptied"));
        }
        Ok(())
    }

    /// A member was lost between two rounds, in this way.
    fn is_lost(&self, how: &AtomicU64) {
        count(how);
        count(&self.totals.members_lost);
        if self.killed {
            count(&self.totals.lost_after_kill);
            if !self.shape.without_parity() {
                self.field.excuse_cut();
            }
        }
    }

    fn spawn(&mut self) -> Result<Child> {
        let (files, without) = self.files.found(&mut self.rng)?;
        // It may have been in sync when the kill came: then it is lost with the outage.
        if without && self.killed && !self.shape.without_parity() {
            self.field.excuse_cut();
        }
        let (shards, memory) = (self.rng.range(1, 3), self.rng.range(8, 24));
        let names: Vec<String> = files.iter().map(|path| name(path)).collect();
        self.tell(format!(
            "{shards} shards, {memory} MiB: {}",
            names.join(" ")
        ));
        let log = self.dir.join("child.log");
        Child::spawn(&self.socket(), shards, memory, &files, &log)
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("nbd")
    }

    /// Waits until it serves, and checks what it says of itself.
    fn started(&mut self, child: &mut Child) -> Result<Seen> {
        let (_, said) = child.answer()?;
        ensure!(said == "serving", "a start within the tolerance: {said}");
        let seen = self.look(child)?;
        if let Some(path) = self.files.believed(&seen) {
            bail!("{} is believed: {:?}", name(&path), seen.members);
        }
        self.field.recovered();
        self.files.tidy(&seen, 3)?;
        Ok(seen)
    }

    /// What the array says; no member that was certain may be out.
    fn look(&mut self, child: &mut Child) -> Result<Seen> {
        let seen = child.status()?;
        // What moves is written, whether users write or not.
        self.dirty |= seen.has_job("Restripe");
        if let Err(slot) = self.files.learn(&seen) {
            bail!("slot {slot} is out without a reason: {:?}", seen.members);
        }
        let state = if self.files.degraded() {
            "Degraded"
        } else {
            "Optimal"
        };
        ensure!(
            seen.state == state,
            "the array is {}, not {state}",
            seen.state
        );
        Ok(seen)
    }

    // ---- while it serves ---------------------------------------------------------------------

    /// A random time.
    fn pause(&mut self, most_us: u64) -> Duration {
        let delay = Duration::from_micros(self.rng.below(most_us));
        std::thread::sleep(delay);
        delay
    }

    /// Sets users to work.
    fn load(&mut self) -> Load {
        // Rounds without writes may be killed in the middle of a rebuild at every level.
        let writes = self.rng.percent(75);
        let users = self.rng.range(2, 10);
        self.tell(format!("{users} users, writes: {writes}"));
        self.dirty |= writes;
        let seed = self.rng.bits();
        Load::start(&self.field, &self.socket(), seed, Mix { users, writes })
    }

    fn check(&self) -> Result<()> {
        match self.field.fault() {
            Some(fault) => bail!(fault),
            None => Ok(()),
        }
    }

    fn acts(&mut self, child: &mut Child) -> Result<()> {
        if self.shape.moves && self.rng.percent(40) {
            self.restripe(child)?;
            self.look(child)?;
        }
        for _ in 0..self.rng.range(1, 4) {
            self.pause(40_000);
            self.check()?;
            match self.rng.weighted(&[20, 25, 20, 8, 8, 8, 8, 6]) {
                0 => {}
                1 => self.lose(child)?,
                2 => self.add(child)?,
                3 => self.replace(child)?,
                4 => self.scrub(child)?,
                5 => self.wait_whole(child)?,
                6 => self.steer(child)?,
                _ => self.verify("under load")?,
            }
            self.look(child)?;
        }
        Ok(())
    }

    /// Fails a member, deletes its file or cuts it short; or an older copy comes back for it.
    fn lose(&mut self, child: &mut Child) -> Result<()> {
        let slots = self.files.expendable();
        let synced = self.look(child)?.synced();
        if slots.is_empty() || !(synced || self.shape.hole_closed()) {
            return Ok(());
        }
        if let Some(slot) = self.files.outdated()
            && self.rng.percent(60)
        {
            return self.swap_for_older(child, slot);
        }
        let slot = slots[self.rng.index(slots.len())];
        let sealed = self.files.sealed().contains(&slot);
        let files = self.files.doubt(slot);
        count(&self.totals.members_lost);
        if sealed && self.rng.percent(35) {
            return self.shorten(child, slot, &files[0]);
        }
        if self.rng.percent(50) {
            self.tell(format!("slot {slot} is deleted"));
            for path in &files {
                std::fs::remove_file(path)?;
            }
            // Until the array has noticed.
            return self.wait(child, "the loss", |seen| {
                !seen.members.iter().any(|(_, _, path)| files.contains(path))
            });
        }
        self.tell(format!("slot {slot} is failed"));
        let said = child.ask(&["fail", &slot.to_string()])?;
        ensure!(
            said == "done",
            "failing slot {slot} within the tolerance: {said}"
        );
        // What was to replace it takes its place, as far as it has come.
        Ok(())
    }

    /// The file of a member is cut short while the array serves, and is soon as long as it was.
    fn shorten(&mut self, child: &mut Child, slot: usize, path: &Path) -> Result<()> {
        self.tell(format!("slot {slot} is cut short"));
        let len = std::fs::metadata(path)?.len();
        self.wait(child, "the loss of what was cut", |seen| {
            let used = seen.members.iter().any(|(_, _, used)| used == path);
            // The next look sees what comes of it; a file that is there can be cut.
            !used || Files::shorten(path, len).is_err()
        })?;
        // Reads of it may be under way until the array closes the file.
        self.wait(child, "the end of what was cut", |_| Files::is_free(path))?;
        self.files.lengthen(path, len, &mut self.rng)?;
        count(&self.totals.members_emptied);
        count(&self.totals.shortened_serving);
        Ok(())
    }

    /// A member is failed, and an older copy of its file is offered as that member.
    fn swap_for_older(&mut self, child: &mut Child, slot: usize) -> Result<()> {
        let files = self.files.doubt(slot);
        let path = &files[0];
        count(&self.totals.members_lost);
        let said = child.ask(&["fail", &slot.to_string()])?;
        ensure!(said == "done", "failing slot {slot}: {said}");
        self.wait(child, "the end of the member", |seen| {
            !seen.members.iter().any(|(_, _, used)| used == path)
        })?;
        self.files.put_copy(path)?;
        count(&self.totals.older_serving);
        let said = child.ask(&["return", &path.display().to_string()])?;
        self.tell(format!("an older copy returns to slot {slot}: {said}"));
        // It is built anew as a whole: what is read shows whether it was.
        if said == "done" {
            self.files.renew(path);
        }
        Ok(())
    }

    fn uuid(&mut self) -> String {
        u128::from_be_bytes(self.rng.bytes16()).to_string()
    }

    /// A file for a new member: a new one, or one that was a member before.
    fn offer(&mut self, seen: &Seen) -> Result<PathBuf> {
        let mut unused = self.files.others()?;
        unused.retain(|path| !seen.members.iter().any(|(_, _, used)| used == path));
        if !unused.is_empty() && self.rng.percent(50) {
            let path = unused.swap_remove(self.rng.index(unused.len()));
            self.files.renew(&path);
            return Ok(path);
        }
        let path = self.files.name();
        self.shape.empty_file(&path)?;
        Ok(path)
    }

    /// Adds a spare; where a member is missing it is used at once.
    fn add(&mut self, child: &mut Child) -> Result<()> {
        let seen = self.look(child)?;
        let spares = seen.members.iter().filter(|(slot, _, _)| slot.is_none());
        if spares.count() > 1 {
            return Ok(());
        }
        let path = self.offer(&seen)?;
        self.tell(format!("{} is added", name(&path)));
        let uuid = self.uuid();
        let said = child.ask(&["add", &path.display().to_string(), &uuid])?;
        ensure!(said == "done", "adding a spare: {said}");
        count(&self.totals.members_added);
        Ok(())
    }

    fn replace(&mut self, child: &mut Child) -> Result<()> {
        let seen = self.look(child)?;
        let slots = self.files.single();
        if slots.is_empty() {
            return Ok(());
        }
        let slot = slots[self.rng.index(slots.len())];
        let path = self.offer(&seen)?;
        self.tell(format!("slot {slot} is replaced by {}", name(&path)));
        self.files.may_replace(slot, &path);
        let (uuid, text) = (self.uuid(), path.display().to_string());
        let said = child.ask(&["replace", &slot.to_string(), &text, &uuid])?;
        ensure!(said == "done", "replacing slot {slot}: {said}");
        count(&self.totals.members_added);
        Ok(())
    }

    /// Data begins to move to another shape, which takes as long as it takes, over kills and
    /// losses.
    fn restripe(&mut self, child: &mut Child) -> Result<()> {
        // It begins only where nobody is missing.
        self.make_whole(child)?;
        let seen = self.look(child)?;
        let rests = seen.whole() && !seen.has_job("Restripe") && seen.shapes.len() == 1;
        let slots = self.files.slots();
        // Nothing replaces any of them.
        if !rests || self.files.single().len() < slots {
            return Ok(());
        }
        let (_, width) = seen.shapes[0];
        let change = self.shape.change(&mut self.rng, slots, width, seen.strip);
        let Some(change) = change else { return Ok(()) };
        let mut words = vec![
            "restripe".to_owned(),
            change.strip.unwrap_or(0).to_string(),
            change.group.unwrap_or(0).to_string(),
        ];
        for _ in 0..change.more {
            let path = self.files.name();
            self.shape.empty_file(&path)?;
            words.extend([path.display().to_string(), self.uuid()]);
        }
        self.tell(format!("{slots} slots, groups of {width}: {change:?}"));
        // Slowly now and then, so that more happens to it.
        let priority = self.rng.pick(&["1", "10", "100"]);
        let said = child.ask(&["restripe priority", priority])?;
        ensure!(said == "done", "restripe priority {priority}: {said}");
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let said = child.ask(&words)?;
        // Some lengths are not whole in larger strips, and some logs are too small for more
        // members.
        let unfit = ["error strips of", "error the members' log areas"];
        if unfit.iter().any(|unfit| said.starts_with(unfit)) {
            self.tell(said);
            return Ok(());
        }
        ensure!(said == "done", "{change:?}: {said}");
        count(&self.totals.restripes);
        Ok(())
    }

    fn steer(&mut self, child: &mut Child) -> Result<()> {
        let priority = self.rng.range(1, 100).to_string();
        let words: &[&str] = match self.rng.below(5) {
            0 => &["rebuild", "stop"],
            1 => &["rebuild", "start"],
            2 => &["init", "start"],
            3 => &["init", "stop"],
            _ => &["priority", &priority],
        };
        let said = child.ask(words)?;
        ensure!(said == "done", "{}: {said}", words.join(" "));
        self.tell(words.join(" "));
        Ok(())
    }

    /// Parity (or mirrors) must be true wherever no resync has still to make it so. A change of
    /// members may end the scrub without a result.
    fn scrub(&mut self, child: &mut Child) -> Result<()> {
        if !self.look(child)?.synced() {
            return Ok(());
        }
        let said = child.ask(&["scrub"])?;
        ensure!(said == "done", "starting a scrub: {said}");
        // An impatient administrator leaves it to itself.
        if self.rng.percent(30) {
            return Ok(());
        }
        self.wait(child, "the scrub's end", |seen| !seen.has_job("Scrub"))?;
        if let Some(untrue) = child.status()?.scrubbed {
            self.untrue += untrue;
            ensure!(untrue == 0, "a scrub found {untrue} untrue stripes");
            count(&self.totals.scrubs);
            self.tell("scrubbed");
        }
        Ok(())
    }

    /// Waits until all slots are filled that have something to be filled with.
    fn wait_whole(&mut self, child: &mut Child) -> Result<()> {
        child.ask(&["rebuild", "start"])?;
        self.wait(child, "the rebuild's end", |seen| {
            let spare = seen.members.iter().any(|(slot, _, _)| slot.is_none());
            seen.synced() && !seen.has_job("Rebuild") && (seen.whole() || !spare)
        })?;
        self.tell("as whole as it can be");
        Ok(())
    }

    /// Fills every slot.
    fn make_whole(&mut self, child: &mut Child) -> Result<()> {
        for _ in 0..4 * self.files.slots() {
            self.wait_whole(child)?;
            let seen = self.look(child)?;
            if seen.whole() {
                return Ok(());
            }
            let path = self.offer(&seen)?;
            let uuid = self.uuid();
            let said = child.ask(&["add", &path.display().to_string(), &uuid])?;
            ensure!(said == "done", "adding a spare: {said}");
        }
        bail!("the array is not whole in spite of every spare");
    }

    fn wait(&mut self, child: &mut Child, what: &str, done: impl Fn(&Seen) -> bool) -> Result<()> {
        let begun = Instant::now();
        loop {
            let seen = child.status()?;
            if done(&seen) {
                return Ok(());
            }
            self.check()?;
            ensure!(begun.elapsed() < PATIENCE, "in vain for {what}: {seen:?}");
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// Reads everything.
    fn verify(&mut self, when: &str) -> Result<()> {
        let client = Client::open(&self.socket());
        let mut client = client.context("a client of the array that serves")?;
        let read = self.field.verify(&mut client);
        self.check()?;
        ensure!(
            read.is_some(),
            "the array went away while it was read {when}"
        );
        self.tell(format!("all read {when}"));
        Ok(())
    }

    // ---- the end -----------------------------------------------------------------------------

    fn choose_end(&mut self) -> End {
        let may_kill = self.shape.hole_closed() || !self.dirty || !self.files.degraded();
        match self.rng.below(100) {
            0..70 if may_kill => End::Kill,
            70..82 if may_kill => End::KillStopping,
            _ => End::Stop,
        }
    }

    /// A kill strikes while the users are at work.
    fn end(&mut self, mut child: Child, load: Load) -> Result<()> {
        let seen = self.look(&mut child)?;
        match self.choose_end() {
            End::Kill => {
                let delay = self.pause(30_000);
                child.kill()?;
                self.killed = true;
                load.end();
                self.totals.kill(&seen);
                let jobs: Vec<&str> = seen.jobs.iter().map(|(kind, _)| kind.as_str()).collect();
                self.tell(format!("killed, {} {delay:?} before {jobs:?}", seen.state));
                Ok(())
            }
            End::KillStopping => {
                child.tell(&["stop"])?;
                let delay = self.pause(8000);
                child.kill()?;
                self.killed = true;
                load.end();
                self.totals.kill_at(&self.totals.kills_stopping);
                self.tell(format!("killed {delay:?} into its stop"));
                Ok(())
            }
            End::Stop if self.rng.percent(50) => {
                load.end();
                self.stop(child)
            }
            End::Stop => {
                let stopped = self.stop(child);
                load.end();
                stopped
            }
        }
    }

    /// A clean stop.
    fn stop(&mut self, mut child: Child) -> Result<()> {
        // What waits for its resync is as dirty after the stop as before.
        let synced = self.look(&mut child)?.synced();
        let said = child.ask(&["stop"])?;
        ensure!(said == "stopped", "stopping: {said}");
        child.wait()?;
        self.files.stopped();
        self.dirty &= !synced;
        count(&self.totals.stops);
        self.tell("stopped");
        Ok(())
    }
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

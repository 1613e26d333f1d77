//! Power cuts in series: a user-mode kernel is killed under load, again and again, and each boot
//! checks what the cut before it left.
//!
//! Of two lanes one has drives that lose what no flush followed, the other drives without a
//! volatile cache, and one moves data through ublk in the stable series' way, the other in the
//! newest. Each has a RAID 5 and a RAID 6, so every cut hits both.
//!
//! Invariant: a cut counts as passed only when the boot after it has said so; a lane ends with its
//! first failure, and the cuts that it did not come to count as failed. Deliberately absent:
//! drives that fail (the simulator has those).

use super::budget::Budget;
use super::drives::Drives;
use super::guest::{self, End, Spec};
use super::prepare::{self, Machine, Rig, Rigs};
use super::scenarios;
use crate::outcome::Outcome;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

/// What a cut of the power meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Arrays with all their members.
    Healthy,
    /// Arrays with a member failed before.
    Degraded,
    /// Arrays with all their members, some of which are not there at the next boot: the write hole.
    Hole,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Healthy => "healthy",
            Kind::Degraded => "degraded",
            Kind::Hole => "hole",
        }
    }
}

/// One series of cuts on the same drives.
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    loses_cache: bool,
    /// The way to move data through ublk, where it is not to be the kernel's newest.
    ublk_mode: Option<&'static str>,
}

pub(crate) const LANES: [Lane; 2] = [
    Lane {
        name: "cuts-cached",
        about: "RAID 5 with xfs, RAID 6 with ext4: power cuts under fio, caches lost",
        loses_cache: true,
        ublk_mode: Some("user-copy"),
    },
    Lane {
        name: "cuts-through",
        about: "the same with drives without a volatile cache",
        loses_cache: false,
        ublk_mode: None,
    },
];

/// The cuts of a lane, in order.
const KINDS: [(Kind, usize); 3] = [(Kind::Healthy, 6), (Kind::Degraded, 4), (Kind::Hole, 5)];

/// What is cut off the power.
pub(crate) const MACHINE: Machine = Machine::UserMode;

/// What a round takes on a machine that is not slow.
const ROUND_S: u64 = 25;

/// One for each cut.
fn kinds() -> Vec<Kind> {
    KINDS
        .into_iter()
        .flat_map(|(kind, count)| std::iter::repeat_n(kind, count))
        .collect()
}

/// How many cuts the lanes have together.
pub(crate) fn count(lanes: usize) -> u64 {
    (kinds().len() * lanes) as u64
}

/// The drives that are lost in the outage of this round: one of RAID 5, two of RAID 6, others each
/// time.
fn lost(kind: Kind, round: usize) -> Vec<usize> {
    match kind {
        Kind::Hole => vec![round % 4, 4 + round % 5, 4 + (round + 2) % 5],
        Kind::Healthy | Kind::Degraded => Vec::new(),
    }
}

/// Runs a lane, if there is a machine for it.
pub(crate) fn run(rigs: &Rigs, lane: &Lane, binary: &Path, budget: &Budget) -> Result<Outcome> {
    match rigs.of(MACHINE) {
        Ok(rig) => run_lane(rig, lane, binary, budget),
        Err(why) => {
            let mut total = Outcome::default();
            prepare::lacks(&mut total, MACHINE, count(1), lane.name, why);
            Ok(total)
        }
    }
}

/// A lane, once more from its beginning if the guest's kernel ended by itself: that says nothing of
/// the arrays, and nothing could be verified after it. A second time is a failure.
fn run_lane(rig: &Rig, lane: &Lane, binary: &Path, budget: &Budget) -> Result<Outcome> {
    let (outcome, died) = series(rig, lane, binary, budget)?;
    if !died {
        return Ok(outcome);
    }
    println!("  {}: once more from the beginning", lane.name);
    let (mut again, _) = series(rig, lane, binary, budget)?;
    again.notes.extend(outcome.notes);
    Ok(again)
}

/// The cuts of a lane on new drives, and whether the guest's kernel put an end to them.
fn series(rig: &Rig, lane: &Lane, binary: &Path, budget: &Budget) -> Result<(Outcome, bool)> {
    let mut died = false;
    let mut drives = Drives::make(lane.name, 9, 192, 512)?;
    if lane.loses_cache {
        drives.lose_caches();
    }
    let keep = guest::share(&format!("{}.keep", lane.name));
    let _ = fs::remove_dir_all(keep);
    let kinds = kinds();
    let mut outcome = Outcome::default();
    for round in 0..=kinds.len() {
        if let Some(why) = budget.refuses(ROUND_S) {
            // The last cut is not checked any more: it is among those left out.
            let left = kinds.len() as u64 - outcome.counts.passed;
            let what = format!("{left} cuts of {}", lane.name);
            Budget::leave_out(&mut outcome, left, &what, &why);
            break;
        }
        let was = round.checked_sub(1).map(|last| kinds[last]);
        let next = kinds.get(round).copied();
        let absent = was.map_or_else(Vec::new, |kind| lost(kind, round));
        let share = guest::fill_share(lane.name, binary)?;
        fs::write(
            share.join("round.env"),
            env(lane, round, was, next, &absent),
        )?;
        if let Some(mode) = lane.ublk_mode {
            scenarios::use_mode(&share, mode)?;
        }
        let heard = boot(rig, lane, round, was.is_some(), next.is_some(), &drives)?;
        outcome.counts.passed += u64::from(heard.checked);
        died = heard.died;
        if let Some(why) = heard.wrong {
            let left = (kinds.len() as u64 - outcome.counts.passed).max(1);
            outcome.counts.failed += left;
            let note = format!("not ok {}: round {round}: {why}", lane.name);
            println!("  {note}");
            outcome.notes.push(note);
            break;
        }
    }
    Ok((outcome, died))
}

/// What the guest's script is told.
fn env(
    lane: &Lane,
    round: usize,
    was: Option<Kind>,
    next: Option<Kind>,
    absent: &[usize],
) -> String {
    let absent: Vec<String> = absent.iter().map(usize::to_string).collect();
    format!(
        "SET={}\nROUND={round}\nWAS={}\nKIND={}\nCACHE={}\nABSENT=\"{}\"\nCUT_AFTER_S={}\n",
        lane.name,
        was.map_or("", Kind::word),
        next.map_or("", Kind::word),
        if lane.loses_cache { "lost" } else { "kept" },
        absent.join(" "),
        3 + round * 7 % 5,
    )
}

/// What one boot said.
#[derive(Default)]
struct Heard {
    /// What the last cut left is as it must be.
    checked: bool,
    wrong: Option<String>,
    /// The guest ended although nobody wanted that, and found nothing wrong before.
    died: bool,
}

fn boot(
    rig: &Rig,
    lane: &Lane,
    round: usize,
    check: bool,
    cut: bool,
    drives: &Drives,
) -> Result<Heard> {
    let share = guest::share(lane.name);
    let names = [("check", check), ("cut", cut)];
    let names: Vec<&str> = names.iter().filter(|n| n.1).map(|n| n.0).collect();
    let share = share.display();
    let script = format!("bash {share}/cuts.sh {share} {}", names.join(" "));
    let spec = Spec {
        name: lane.name,
        cpus: 1,
        memory_mib: 1536,
        limit_s: 600,
    };
    let path = prepare::folder().join("logs");
    fs::create_dir_all(&path)?;
    let path = path.join(format!("{}.{round}.log", lane.name));
    let mut log = File::create(&path).with_context(|| path.display().to_string())?;
    let start = Instant::now();
    let mut heard = Heard::default();
    let end = guest::run(rig, &spec, drives, &script, |line| {
        let at = start.elapsed().as_secs_f64();
        let _ = writeln!(log, "{at:7.1} {line}");
        if line == "ok check" {
            heard.checked = true;
        } else if let Some(why) = line.strip_prefix("not ok ") {
            heard.wrong.get_or_insert(why.to_owned());
        } else if line.starts_with("# ") || line.starts_with("| ") {
            println!("  {} {line}", lane.name);
        }
    })?;
    println!(
        "  {} {} ended ({end:?}) after {:.1} s",
        lane.name,
        names.join(" "),
        start.elapsed().as_secs_f64()
    );
    let as_wanted = if cut { End::Cut } else { End::Off };
    heard.died = end == End::Died && heard.wrong.is_none() && heard.checked == check;
    if end != as_wanted || heard.checked != check {
        let words = guest::last_words(lane.name, &path);
        heard
            .wrong
            .get_or_insert(format!("the guest ended ({end:?}); {words}"));
    }
    Ok(heard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_outage_takes_more_drives_than_the_levels_survive() {
        for round in 0..40 {
            let mut lost = lost(Kind::Hole, round);
            lost.sort_unstable();
            lost.dedup();
            assert_eq!(lost.iter().filter(|&&drive| drive < 4).count(), 1);
            assert_eq!(lost.iter().filter(|&&drive| drive >= 4).count(), 2);
        }
    }
}

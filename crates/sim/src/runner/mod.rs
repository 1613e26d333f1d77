//! Runs worlds: one, or many on several threads.
//!
//! Invariants: what comes of a seed does not depend on threads or on other seeds; a panic in the
//! engine is the failure of that seed alone.
//!
//! Deliberately absent: output (`main`).

pub mod shrink;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crate::canary::Canary;
use crate::course::Course;
use crate::plan::{Plan, Variation};
use crate::report::panics::catching;
use crate::report::{Failure, Outcome, Stats};
use crate::world::World;
use crate::world::launch;

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The seed.
    pub seed: u64,
    /// Index of [`crate::plan::LEVELS`], or whatever the seed says.
    pub level: Option<usize>,
    /// What to leave out.
    pub variation: Variation,
    /// Only seeds that are this course.
    pub course: Option<Course>,
    /// A planted bug.
    pub canary: Option<Canary>,
    /// Print every event.
    pub tracing: bool,
}

/// Runs one world.
pub fn run(run: &Run) -> Outcome {
    if let Some(course) = Course::of(run.seed).filter(|_| run.level.is_none()) {
        return course.run(run.seed, run.canary, run.tracing);
    }
    let mut plan = Plan::draw(run.seed, run.level);
    plan.vary(&run.variation);
    let words = world_text(&plan);
    let made = match catching(|| launch::make(&plan)) {
        Ok(made) => made,
        Err(panic) => {
            let failure = Failure {
                text: format!("panic: {panic}"),
                story: Vec::new(),
            };
            return Outcome {
                seed: run.seed,
                world: words,
                stats: Stats::default(),
                hash: 0,
                failure: Some(failure),
            };
        }
    };
    let mut world = World::new(plan, made, run.canary);
    world.print_events(run.tracing);
    strake_engine::canary::plant(run.canary.and_then(Canary::inside));
    let ended = catching(|| world.run(run.variation.without));
    strake_engine::canary::plant(None);
    let failure = match ended {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(*failure),
        Err(panic) => Some(world.failed(format!("panic: {panic}"))),
    };
    let padded = world.drives().iter().map(|drive| drive.ssd().wear.padded);
    let (padded_batches, tall) = (padded.sum(), world.plan().strip > 8192);
    let mut outcome = world.outcome(run.seed, words, failure);
    outcome.stats.padded_batches = padded_batches;
    outcome.stats.tall = tall.into();
    outcome
}

fn world_text(plan: &Plan) -> String {
    let group = plan
        .shape
        .group
        .map(|g| format!(" in groups of {g}"))
        .unwrap_or_default();
    let caches = plan.devices.iter().filter(|d| d.volatile_cache).count();
    format!(
        "level {}, {} members{group}, {} spares, strip {}, block {}, {:?}, write hole {:?}, \
         {} shards{}, {} queues, \
         {} of {} devices with a volatile cache",
        plan.shape.level,
        plan.shape.members,
        plan.spares,
        plan.strip,
        plan.block,
        plan.init,
        plan.write_hole,
        plan.shards,
        if plan.reshard { " at first" } else { "" },
        plan.queues,
        caches,
        plan.devices.len()
    )
}

/// What came of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Seeds run.
    pub seeds: u64,
    /// Counts of all.
    pub stats: Stats,
    /// Hash of all, in whatever order they ran.
    pub hash: u64,
    /// The failing ones, by seed.
    pub failures: Vec<Outcome>,
}

/// What ends a series of seeds early.
#[derive(Clone, Copy, Debug)]
pub struct Enough {
    /// So many failures on one thread.
    pub failures: usize,
    /// This time: no seed begins after it.
    pub at: Option<Instant>,
}

impl Enough {
    /// So many failures.
    pub fn failures(failures: usize) -> Enough {
        Enough { failures, at: None }
    }

    fn is_late(&self) -> bool {
        self.at.is_some_and(|end| Instant::now() >= end)
    }
}

/// Runs seeds `first..first + count` on `threads` threads; some of them where that is enough.
pub fn run_many(like: &Run, first: u64, count: u64, threads: usize, until: Enough) -> Summary {
    let next = AtomicU64::new(first);
    let enough = AtomicBool::new(false);
    let work = || {
        let mut summary = Summary::default();
        while !enough.load(Ordering::Relaxed) && !until.is_late() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                break;
            }
            summary.seeds += 1;
            if like.course.is_some() && Course::of(seed) != like.course {
                continue;
            }
            let met = |canary: Canary| canary.may_be_met(&Plan::draw(seed, like.level));
            if like.canary.is_some_and(|canary| !met(canary)) {
                continue;
            }
            let outcome = run(&Run {
                seed,
                ..like.clone()
            });
            summary.stats.add(&outcome.stats);
            summary.hash ^= crate::prng::mix(outcome.hash ^ seed);
            if outcome.failure.is_some() {
                summary.failures.push(outcome);
                if summary.failures.len() >= until.failures {
                    enough.store(true, Ordering::Relaxed);
                }
            }
        }
        summary
    };
    let parts: Vec<Summary> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("panics are caught within"))
            .collect()
    });
    let mut all = Summary::default();
    for part in parts {
        all.seeds += part.seeds;
        all.stats.add(&part.stats);
        all.hash ^= part.hash;
        all.failures.extend(part.failures);
    }
    all.failures.sort_by_key(|outcome| outcome.seed);
    all
}

//! A shard's share of background jobs: a step is a range of rows, worked on a few stripes at a
//! time.
//!
//! Invariant: a rebuilt stripe counts as valid on its target from the moment its strip is written
//! there until the view's `rebuilt` row passes it or the target leaves; in between writes go to the
//! target too (the marks are those of `stripe_map`).

pub(crate) mod write_order;

use crate::proto::*;
use crate::shard::Shard;
use crate::shard::job::write_order::Place;
use crate::shard::op::StripeOp;
use crate::shard::op::kind::StepOp;
use crate::shard::op::work::Work;
use crate::units::*;

/// See the module.
#[derive(Default)]
pub(crate) struct Steps {
    runs: Vec<StepRun>,
}

struct StepRun {
    step: Step,
    /// Next stripe to look at.
    next: u64,
    end: u64,
    at_work: u64,
    outcome: StepOutcome,
}

impl StepRun {
    /// See the module; so many of its stripes are at work or wait.
    fn check(&self, at_work: u64) -> Result<(), String> {
        let step = self.step.step;
        ensure!(
            self.at_work == at_work,
            "step {step} counts {} stripes and has {at_work}",
            self.at_work
        );
        let over = self.at_work == 0 && self.next >= self.end;
        ensure!(!over, "step {step} is over, which the array does not know");
        Ok(())
    }
}

impl Steps {
    /// No step is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// A stripe of a step that this shard has not come to yet.
    pub(crate) fn still_to_begin(&self, (step, stripe): Place) -> bool {
        let mut runs = self.runs.iter();
        runs.any(|run| run.step.step == step && run.next <= stripe.0)
    }

    fn stripe_done(&mut self, step: &StepOp, unreadable: bool, op: &StripeOp) {
        let no = step.asked.step;
        let run = self.runs.iter_mut().find(|run| run.step.step == no);
        let run = run.expect("a step stays until its stripes are done");
        run.at_work -= 1;
        run.outcome.stripes += 1;
        run.outcome.unreadable += u64::from(unreadable);
        run.outcome.partial += u64::from(op.leaves_out());
        run.outcome.inconsistent += u64::from(step.found_inconsistent);
        let clear = op.findings.iter().all(|found| !found.corrupt.is_empty());
        run.outcome.located += u64::from(step.found_inconsistent && clear);
        run.outcome.skipped += u64::from(step.skipped);
    }

    /// See the module; `at_work`: for each stripe that is at work or waits, its step.
    pub(crate) fn check(&self, at_work: &[u64]) -> Result<(), String> {
        for run in &self.runs {
            let count = at_work
                .iter()
                .filter(|&&step| step == run.step.step)
                .count();
            run.check(count as u64)?;
        }
        Ok(())
    }
}

impl Shard {
    pub(crate) fn begin_step(&mut self, step: Step) {
        if self.steps.is_empty() {
            self.requests.forget_stale_latencies(self.out.now());
        }
        let range = self.map.geometry().stripes_of_rows(step.first, step.end);
        if step.kind == StepKind::Rebuild {
            self.write_order.begin(WriteToken {
                step: step.step,
                next: StripeNo(range.start),
                end: StripeNo(range.end),
            });
        }
        self.steps.runs.push(StepRun {
            step,
            next: range.start,
            end: range.end,
            at_work: 0,
            outcome: StepOutcome::default(),
        });
        self.feed_steps();
    }

    /// A stripe of a step is over: the next ones are queued.
    pub(crate) fn step_stripe_done(&mut self, step: &StepOp, unreadable: bool, op: &StripeOp) {
        self.write_order.leave(step.asked.step, op.stripe);
        self.steps.stripe_done(step, unreadable, op);
        self.feed_steps();
    }

    /// Queues stripes of the steps that there are, in order, as many as may be at work, and tells
    /// of steps that are over.
    fn feed_steps(&mut self) {
        let (mut at, mut begun) = (0, true);
        while at < self.steps.runs.len() {
            // Those of a later one may wait for the turn of those before.
            if begun {
                self.feed_step(at);
            }
            let run = &self.steps.runs[at];
            begun &= run.next >= run.end;
            if run.at_work > 0 || run.next < run.end {
                at += 1;
                continue;
            }
            let mut run = self.steps.runs.remove(at);
            let (foreground, seen) = self.requests.take_latencies(self.out.now());
            run.outcome.foreground = foreground;
            self.out.say(FromShard::StepDone {
                step: run.step.step,
                outcome: run.outcome,
                seen: seen.map(Box::new),
            });
        }
    }

    fn feed_step(&mut self, at: usize) {
        let runs = &mut self.steps.runs;
        let depth = u64::from(runs[at].step.depth);
        let mut at_work: u64 = runs.iter().map(|run| run.at_work).sum();
        while at_work < depth && self.steps.runs[at].next < self.steps.runs[at].end {
            let run = &mut self.steps.runs[at];
            let stripe = StripeNo(run.next);
            run.next += 1;
            if !self.map.is_ours(stripe) || !self.map.geometry().exists(stripe) {
                continue;
            }
            let gate = &self.gates[self.map.region(stripe)];
            if gate.unwritten() {
                run.outcome.skipped += 1;
                continue;
            }
            run.at_work += 1;
            at_work += 1;
            if run.step.kind == StepKind::Rebuild {
                self.write_order.enter(run.step.step, stripe);
            }
            let strip = self.map.geometry().strip;
            let work = Work::step(run.step.step, run.step.kind, strip);
            self.queue.enqueue(stripe, work);
        }
    }
}

//! A shard's share of background jobs: a step is a range of rows, worked on a few stripes at a
//! time.
//!
//! Invariant: a rebuilt stripe counts as valid on its target from the moment its strip is written
//! there until the view's `rebuilt` row passes it or the target leaves; in between writes go to the
//! target too.

pub(crate) mod write_order;

use crate::proto::*;
use crate::shard::Shard;
use crate::shard::op::StripeOp;
use crate::shard::op::kind::StepOp;
use crate::shard::op::work::Work;
use crate::units::*;

pub(crate) struct StepRun {
    step: Step,
    /// Next stripe to look at.
    next: u64,
    end: u64,
    at_work: u64,
    outcome: StepOutcome,
}

impl StepRun {
    /// See the module; so many of its stripes are at work or wait.
    pub(crate) fn check(&self, at_work: u64) -> Result<(), String> {
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

    pub(crate) fn step(&self) -> u64 {
        self.step.step
    }
}

impl Shard {
    pub(crate) fn begin_step(&mut self, step: Step) {
        if self.steps.is_empty() {
            self.requests.forget_stale_latencies(self.out.now());
        }
        let range = self.map.geometry().stripes_of_rows(step.first, step.end);
        let (next, end) = (range.start, range.end);
        if step.kind == StepKind::Rebuild {
            self.write_order.begin(WriteToken {
                step: step.step,
                next: StripeNo(next),
                end: StripeNo(end),
            });
        }
        let run = StepRun {
            step,
            next,
            end,
            at_work: 0,
            outcome: StepOutcome::default(),
        };
        self.steps.push(run);
        self.feed_steps();
    }

    /// Begins stripes of the steps that there are, in order, as many as may be at work, and tells
    /// of steps that are over.
    fn feed_steps(&mut self) {
        let (mut at, mut begun) = (0, true);
        while at < self.steps.len() {
            // Those of a later one may wait for the turn of those before.
            if begun {
                self.feed_step(at);
            }
            let run = &self.steps[at];
            begun &= run.next >= run.end;
            if run.at_work > 0 || run.next < run.end {
                at += 1;
                continue;
            }
            let mut run = self.steps.remove(at);
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
        let depth = u64::from(self.steps[at].step.depth);
        let mut at_work: u64 = self.steps.iter().map(|run| run.at_work).sum();
        while at_work < depth && self.steps[at].next < self.steps[at].end {
            let run = &mut self.steps[at];
            let stripe = StripeNo(run.next);
            run.next += 1;
            let ours = self.map.is_ours(stripe);
            if !ours || !self.map.geometry().exists(stripe) {
                continue;
            }
            let gate = &self.gates[self.map.region(stripe).0 as usize];
            // Parity that waits for its resync (or for the discard of its region) is not wrong: a
            // scrub has nothing to say about it.
            let untrusted =
                matches!(self.steps[at].step.kind, StepKind::Scrub(_)) && !gate.trusted();
            if gate.unwritten() || untrusted {
                self.steps[at].outcome.skipped += 1;
                continue;
            }
            let run = &mut self.steps[at];
            run.at_work += 1;
            at_work += 1;
            if run.step.kind == StepKind::Rebuild {
                self.write_order.enter(run.step.step, stripe);
            }
            let work = Work::step(run.step.step, run.step.kind, self.map.geometry().strip);
            self.enqueue(stripe, work);
        }
    }

    /// A stripe of a step that this shard has not come to yet.
    pub(crate) fn still_to_begin(&self, (step, stripe): (u64, StripeNo)) -> bool {
        let mut runs = self.steps.iter();
        runs.any(|run| run.step.step == step && run.next <= stripe.0)
    }

    pub(crate) fn step_stripe_done(&mut self, step: &StepOp, unreadable: bool, op: &StripeOp) {
        let no = step.asked.step;
        self.write_order.leave(no, op.stripe);
        let at = self
            .steps
            .iter()
            .position(|run| run.step.step == no)
            .expect("a step stays until its stripes are done");
        let run = &mut self.steps[at];
        run.at_work -= 1;
        run.outcome.stripes += 1;
        run.outcome.unreadable += u64::from(unreadable);
        run.outcome.inconsistent += u64::from(step.found_inconsistent);
        let clear = op.findings.iter().all(|found| !found.corrupt.is_empty());
        run.outcome.located += u64::from(step.found_inconsistent && clear);
        run.outcome.skipped += u64::from(step.skipped);
        self.feed_steps();
    }
}

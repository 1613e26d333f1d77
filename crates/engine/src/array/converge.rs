//! What follows from an input, in one order.
//!
//! Every input that may lead to something ends with [`Array::converge`]. What the parts of the
//! array wait for is decided here and nowhere else: superblocks, then the view, then what waited
//! for both; the list of unreadable blocks before the superblocks, which may wait for it, and after
//! them, for which it waits.
//!
//! Invariant: this calls the parts, and only inputs call this; commands that a change of shape kept
//! come in again as inputs.

use std::sync::Arc;

use crate::array::metadata::bad_blocks::ListWaiter;
use crate::array::metadata::superblocks::SuperblockWaiter;
use crate::array::reshape::{Kept, Reshape};
use crate::array::{Array, Stage};
use crate::canary::{self, Canary};
use crate::proto::*;
use crate::units::*;

impl Array {
    /// Does what follows from any input: writes superblocks, publishes views, feeds jobs, uses
    /// spares.
    pub(crate) fn converge(&mut self) {
        self.say_failed();
        self.use_spares();
        // Shards return their read lease while superblocks are written.
        self.drive_lease();
        self.drive_checkpoint();
        if self.drive_log_coverage() {
            self.publish();
        }
        self.say_failed();
        self.follow_undecided();
        self.drive_unreadable();
        self.drive_persist();
        self.drive_unreadable();
        for (shard, op) in self.undecided_answered() {
            self.answer_list(shard, op, false);
        }
        self.replay_step();
        self.say_failed();
        self.drive_resumed();
        if self.stage == Stage::Starting && self.sb.moving.is_some() {
            // Nothing else may be under way that would bring the next turn.
            self.drive_persist();
        }
        self.drive_moving();
        let mut kept = Kept::default();
        let again = self.drive_reshape(&mut kept);
        self.go_on_with(kept);
        if again {
            // It wants something of all of them.
            return self.converge();
        }
        self.drive_jobs();
        if self.drive_stop() {
            self.drive_persist();
        }
        self.drive_lease();
        let state = self.state();
        if state != self.shown {
            self.out.event(EventKind::State {
                from: self.shown,
                to: state,
            });
            self.shown = state;
        }
    }

    /// What waited for the end of a change of shape.
    fn go_on_with(&mut self, kept: Kept) {
        for request in kept.unmaps {
            self.unmap_asked(request);
        }
        for (id, command) in kept.commands {
            self.command(self.out.now(), id, command);
        }
    }

    /// Says that the array has failed, and answers what waits for it.
    fn say_failed(&mut self) {
        let Some(cause) = self.failing.take() else {
            return;
        };
        self.out.event(EventKind::Failed { cause });
        self.fail_unmaps();
        self.publish();
        if let Some(id) = self.stop.take() {
            self.out.done(id, Err(CommandError::NotServing));
        }
        for waiter in std::mem::take(&mut self.persist.waiters) {
            match waiter {
                SuperblockWaiter::Done(id, _) | SuperblockWaiter::PutOut(id, _) => {
                    self.out.done(id, Err(CommandError::NotServing));
                }
                SuperblockWaiter::Release(device) | SuperblockWaiter::Replaced(device) => {
                    self.persist.leaving.push((device, self.view.version));
                }
                // The view that says so ends it.
                SuperblockWaiter::Verdict(..) => {}
                SuperblockWaiter::Unmap(_)
                | SuperblockWaiter::Rebuilt(..)
                | SuperblockWaiter::RebuildOver => {}
            }
        }
    }

    /// Publishes a view, with another shape if there is one.
    fn publish(&mut self) {
        let tells = self.reshape.as_ref().is_some_and(Reshape::tells);
        let resplit = std::mem::take(&mut self.resplit);
        if !(tells || resplit) {
            return self.publish_view();
        }
        let view = self.next_view();
        self.forget_left();
        if resplit {
            let geometry = Arc::clone(&self.geometry);
            self.out.push(ArrayOutput::Reshaped(geometry));
        } else {
            self.shape_told(view.version);
        }
        let setup = Box::new(self.setup());
        self.out.message_all(&ToShard::Reshape(setup));
        self.write_pages();
    }

    /// Writes superblocks if something is to become durable; publishes the view, and goes on with
    /// what waited, once all is.
    fn drive_persist(&mut self) {
        if canary::hit(Canary::ViewBeforeDurable) && std::mem::take(&mut self.persist.view_due) {
            self.publish();
        }
        if !self.may_persist() {
            return;
        }
        if !self.persist.nothing_wanted() {
            return self.persist_now();
        }
        if self.persist.looks() {
            self.look_at_copies();
            return self.drive_persist();
        }
        if self.persist.view_due && !self.lease.returned() {
            // A shard with a read lease may still read a member that is out.
            return;
        }
        if std::mem::take(&mut self.persist.view_due) {
            self.publish();
        }
        self.forget_stale();
        for waiter in std::mem::take(&mut self.persist.waiters) {
            match waiter {
                SuperblockWaiter::Done(id, changed) => self.out.done(id, Ok(changed)),
                SuperblockWaiter::PutOut(id, device) => self.put_out(id, device),
                SuperblockWaiter::Release(device) => {
                    self.persist.leaving.push((device, self.view.version));
                }
                SuperblockWaiter::Replaced(device) => self.replaced(device),
                SuperblockWaiter::Rebuilt(slot, device, partial) => {
                    self.rebuilt(slot, device, partial);
                }
                SuperblockWaiter::RebuildOver => self.rebuild_over(),
                SuperblockWaiter::Verdict(shard, op) => self.answer_list(shard, op, false),
                SuperblockWaiter::Unmap(region) => self.unmap_region(region),
            }
        }
        self.persist.release_left(&mut self.out);
        if !self.persist.nothing_wanted() {
            return self.drive_persist();
        }
        self.durable_now();
    }

    /// Everything that the next superblock is to say comes into it, and it is written.
    fn persist_now(&mut self) {
        self.follow_ends();
        self.sb.generation = self.sb.generation.next();
        self.sb.replacements = self.table.note_progress(self.geometry.strip);
        self.note_scrub();
        self.note_cover();
        self.note_whole_at();
        if self.write_superblock() {
            self.write_pages();
        }
    }

    /// A shard works by a view: in an array that closes, it may be the last one.
    pub(crate) fn shard_took_view(&mut self, shard: ShardNo, version: u64) {
        self.view_applied(shard, version);
        if self.stage == Stage::Closing && self.may_persist() && !self.persist.view_due {
            self.durable_now();
        }
    }

    /// Nothing newer than what is durable is wanted: stages that waited for this go on.
    fn durable_now(&mut self) {
        let everywhere = self.persist.applied(self.view.version);
        match self.stage {
            // Not before every shard works by the newest view and knows what was told before it:
            // requests come to shards from elsewhere, and do not wait for what is on its way.
            Stage::Starting if everywhere && self.map.quiet() && self.unreadable.quiet() => {
                if self.map.take_unrecorded() && self.logging() {
                    self.sb.covered = true;
                    self.persist.touch();
                    return self.drive_persist();
                }
                if !self.persist.sealed(self.sb.generation) {
                    self.persist.touch();
                    return self.drive_persist();
                }
                self.stage = Stage::Serving;
                self.arm_sweep();
                self.out.push(ArrayOutput::Started);
                self.out.event(EventKind::Started {
                    unclean: self.unclean,
                });
            }
            // Not before every shard is quiet.
            Stage::Closing if everywhere && !self.persist.sealed(self.sb.generation) => {
                self.persist.touch();
                self.drive_persist();
            }
            Stage::Closing if everywhere => {
                self.stage = Stage::Stopped;
                self.out.event(EventKind::Stopped);
                if let Some(id) = self.stop.take() {
                    self.out.done(id, Ok(Changed::Yes));
                }
                self.out.push(ArrayOutput::Stopped);
            }
            _ => {}
        }
    }

    /// Writes the list of unreadable blocks if it is due, and goes on with what waited for it.
    fn drive_unreadable(&mut self) {
        for waiter in self.list_durable() {
            match waiter {
                ListWaiter::Shard { shard, op } => self.answer_list(shard, op, false),
                ListWaiter::Zeroed(region) => self.region_zeroed(region),
                ListWaiter::Replay => self.replay_listed(),
                ListWaiter::Moved => self.window_listed(),
            }
        }
        self.write_list_if_due();
    }
}

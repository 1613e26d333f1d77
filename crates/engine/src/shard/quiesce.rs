//! A shard's side of a change of the array's shape: requests wait, what was begun ends, and then
//! the shard begins anew with another geometry.
//!
//! Invariants:
//! * Between [`FromShard::Quiesced`] and what ends the wait nothing is under way: no operation, no
//!   member I/O, no record. So nothing that was planned by one shape ever meets another.
//! * A request that waits is answered like any other: once, after the change, when it was taken
//!   back, or when the array fails or stops.
//!
//! Deliberately absent: what changes, and when it is durable (`array::reshape`).

use std::collections::VecDeque;

use crate::proto::*;
use crate::shard::Shard;
use crate::shard::coalesce::Streams;
use crate::shard::log_writer::Logs;
use crate::shard::region_gate::RegionGates;
use crate::shard::zero_tracker::ZeroTracker;

/// Requests that wait while the array changes its shape.
#[derive(Default)]
pub(crate) struct Quiesce {
    asked: bool,
    told: bool,
    requests: VecDeque<Request>,
}

impl Quiesce {
    pub(crate) fn begin(&mut self) {
        (self.asked, self.told) = (true, false);
    }

    /// New requests are deferred.
    pub(crate) fn defers(&self) -> bool {
        self.asked
    }

    pub(crate) fn defer(&mut self, request: Request) {
        self.requests.push_back(request);
    }

    /// True once, if the array waits for the report that nothing is under way.
    pub(crate) fn report_once(&mut self) -> bool {
        self.asked && !std::mem::replace(&mut self.told, true)
    }

    /// The array knows that nothing is under way.
    pub(crate) fn is_held(&self) -> bool {
        self.asked && self.told
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn end(&mut self) -> VecDeque<Request> {
        std::mem::take(self).requests
    }
}

impl Shard {
    /// Reports to the array, once, that nothing is under way in a shard that it quiesces.
    pub(crate) fn report_quiesced(&mut self) -> bool {
        let idle = (self.requests.len() == 0) && self.ops.is_empty() && self.out.none_in_flight();
        let told =
            idle && self.steps.is_empty() && self.logs.is_quiet() && self.quiesce.report_once();
        if told {
            let buffers = self.pool.largest_count();
            let (foreground, seen) = self.requests.take_latencies(self.out.now());
            let seen = seen.map(Box::new);
            self.out.say(FromShard::Quiesced {
                buffers,
                next_number: self.logs.next(),
                foreground,
                seen,
            });
        }
        told
    }

    /// Submits the requests that waited.
    pub(crate) fn resume(&mut self) {
        for request in self.quiesce.end() {
            self.submit(self.out.now(), request);
        }
    }

    /// Begins anew with another shape: nothing is under way.
    pub(crate) fn reshape(&mut self, setup: ShardSetup) {
        assert!(
            self.ops.is_empty() && self.out.none_in_flight(),
            "a quiesced shard has nothing under way"
        );
        if !self.logs.restart(&setup, self.map.count()) {
            self.logs = Logs::new(&setup, self.map.count());
        }
        self.requests.reshape(&setup.geometry, &self.pool);
        self.map.set_geometry(setup.geometry);
        self.zero_tracker = ZeroTracker::default();
        self.gates = RegionGates::new(setup.regions);
        self.map.set_unreadable(setup.lost);
        self.streams = Streams::default();
        self.apply_view(setup.view);
        // A base may begin with it: nothing that began before is under way.
        let log_from = self.map.view().log_from;
        self.out.say(FromShard::Drained { log_from });
        self.resume();
    }
}

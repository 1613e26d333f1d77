//! The modelled cores: each has one shard, and does one thing after the other.
//!
//! ```text
//!   request ─► request + bytes ─► engine ─► io/2 ─► drive ─► io/2 ─► engine ─► reply
//! ```
//!
//! Deliberately absent: what a scrub computes (its reads cost what I/Os cost), and threads that are
//! not the array's.

use strake_engine::event::{IoKind, MemberIo, WritePurpose};

use crate::setup::Cpu;

/// See the module.
pub(crate) struct Cores {
    cost: Option<Cpu>,
    /// When each shard's core is free.
    free: Vec<f64>,
    /// How many cores a shard stands for.
    each: f64,
    /// Drives' bytes that a rebuilt byte takes.
    rebuilt: f64,
    /// Nanoseconds of work since the count began.
    busy: f64,
}

impl Cores {
    pub(crate) fn new(cost: Option<Cpu>, shards: usize, data_strips: f64) -> Cores {
        Cores {
            each: cost.map_or(1.0, |cpu| f64::from(cpu.cores) / shards as f64),
            rebuilt: data_strips + 1.0,
            free: vec![0.0; shards],
            busy: 0.0,
            cost,
        }
    }

    /// When the core of a shard has done this work, which it begins now or when it is free.
    fn work(&mut self, shard: usize, now: u64, ns: f64) -> u64 {
        let time = ns / self.each;
        let free = &mut self.free[shard];
        *free = free.max(now as f64) + time;
        self.busy += time;
        *free as u64
    }

    /// When a request has come to the engine.
    pub(crate) fn request(&mut self, id: u64, written: u64, now: u64) -> u64 {
        let Some(cost) = self.cost else {
            return now;
        };
        let shard = (id % self.free.len() as u64) as usize;
        self.work(shard, now, cost.request_ns + cost.byte_ns * written as f64)
    }

    /// When an I/O of a shard is sent to its drive.
    pub(crate) fn send(&mut self, shard: usize, io: &MemberIo, now: u64) -> u64 {
        let Some(cost) = self.cost else {
            return now;
        };
        let checked = match &io.kind {
            IoKind::Write { data, purpose, .. } if *purpose == WritePurpose::Rebuild => {
                cost.check_ns * data.len as f64 * self.rebuilt
            }
            _ => 0.0,
        };
        self.work(shard, now, cost.io_ns / 2.0 + checked)
    }

    /// When a shard has handled the completion of an I/O.
    pub(crate) fn handle(&mut self, shard: usize, now: u64) -> u64 {
        match self.cost {
            Some(cost) => self.work(shard, now, cost.io_ns / 2.0),
            None => now,
        }
    }

    /// The count begins anew.
    pub(crate) fn count(&mut self) {
        self.busy = 0.0;
    }

    /// Share of the cores' time that work took in so many nanoseconds; `None` where no cores are
    /// modelled.
    pub(crate) fn busy(&self, ns: f64) -> Option<f64> {
        self.cost?;
        Some((self.busy / ns.max(1.0) / self.free.len() as f64).min(1.0))
    }
}

//! What one request costs: time, instructions, allocations.
//!
//! Invariant: all three are of the same run, and of this thread alone. Many virtual machines have
//! no counter of instructions: then there is none, and [`Meter::without_instructions`] says why.

use std::time::Instant;

use perf_event::events::Hardware;
use perf_event::{Builder, Counter};

/// See the module.
pub(crate) struct Meter {
    counter: std::io::Result<Counter>,
}

/// Of one request, on average.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) ns: f64,
    pub(crate) instructions: Option<f64>,
    pub(crate) allocations: f64,
}

impl Cost {
    /// Instructions, or a dash.
    pub(crate) fn instructions(&self) -> String {
        self.instructions.map_or("-".into(), |n| format!("{n:.0}"))
    }
}

/// The cost in the middle of an odd number of them, by time.
pub(crate) fn middle(mut costs: Vec<Cost>) -> Cost {
    costs.sort_by(|a, b| a.ns.total_cmp(&b.ns));
    costs[costs.len() / 2]
}

/// The one in the middle of an odd number.
pub(crate) fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

impl Meter {
    pub(crate) fn new() -> Meter {
        Meter {
            counter: Builder::new(Hardware::INSTRUCTIONS).build(),
        }
    }

    /// Why instructions are not counted, if they are not.
    pub(crate) fn without_instructions(&self) -> Option<&std::io::Error> {
        self.counter.as_ref().err()
    }

    /// The cost of one of `requests`, all of which `work` carries out.
    pub(crate) fn of(&mut self, requests: u64, work: impl FnOnce()) -> Cost {
        let mut ns = 0.0;
        let mut instructions = None;
        let allocations = allocation_counter::measure(|| {
            if let Ok(counter) = &mut self.counter {
                counter.reset().expect("a counter of our own");
                counter.enable().expect("a counter of our own");
            }
            let begun = Instant::now();
            work();
            ns = begun.elapsed().as_secs_f64() * 1e9;
            if let Ok(counter) = &mut self.counter {
                counter.disable().expect("a counter of our own");
                instructions = Some(counter.read().expect("a counter of our own") as f64);
            }
        });
        let each = |all: f64| all / requests as f64;
        Cost {
            ns: each(ns),
            instructions: instructions.map(each),
            allocations: each(allocations.count_total as f64),
        }
    }
}

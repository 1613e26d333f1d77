//! A drive: its flash and its time together.

use crate::counters::Counters;
use crate::flash::{Flash, Geometry};
use crate::timing::{Queues, Timing};

/// What a drive is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Its flash.
    pub geometry: Geometry,
    /// Its time.
    pub timing: Timing,
}

/// What the host asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Bytes of a range.
    Read,
    /// New bytes for a range, with a placement handle.
    Write {
        /// The handle.
        handle: u8,
    },
    /// The range holds nothing that is needed.
    Deallocate,
    /// Everything written is durable. The buffer of a drive with power-loss protection is, so this
    /// takes no longer than a write.
    Flush,
}

/// See the module.
pub struct Drive {
    flash: Flash,
    queues: Queues,
    debt: Debt,
}

/// Bytes that collections have moved and that writes have not waited for yet. A collection moves a
/// whole block at once here; a drive spreads it over the writes that the block makes room for.
#[derive(Clone, Copy, Debug, Default)]
struct Debt {
    bytes: f64,
    /// Paid with each byte that a write programs.
    rate: f64,
}

impl Debt {
    /// What a write waits for that programmed `own` bytes, with which `moved` were moved and
    /// `erased` became free.
    fn pay(&mut self, own: u64, moved: u64, erased: u64) -> u64 {
        self.bytes += moved as f64;
        if erased > moved {
            self.rate = self.bytes / (erased - moved) as f64;
        }
        let paid = (own as f64 * self.rate).min(self.bytes);
        self.bytes -= paid;
        own + paid as u64
    }
}

impl Drive {
    /// A new drive. `seed` decides the order of its latencies, and nothing else.
    ///
    /// # Panics
    /// As [`Flash::new`].
    pub fn new(spec: Spec, seed: u64) -> Drive {
        Drive {
            flash: Flash::new(spec.geometry),
            queues: Queues::new(spec.timing, seed),
            debt: Debt::default(),
        }
    }

    /// Its flash: to write without time, as a preparation does.
    pub fn flash(&mut self) -> &mut Flash {
        &mut self.flash
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        self.flash.counters()
    }

    /// Takes a command at `now`, nanoseconds; answers when it completes. Calls come in the order of
    /// their times.
    ///
    /// # Panics
    /// Where a write ends beyond the capacity.
    pub fn submit(&mut self, now: u64, op: Op, offset: u64, len: u64) -> u64 {
        let at = now as f64;
        let done = match op {
            Op::Read => {
                self.flash.read(offset, len);
                self.queues.read(at, len)
            }
            Op::Write { handle } => {
                let block = self.flash.geometry().unit_bytes
                    * u64::from(self.flash.geometry().units_per_block);
                let of = |flash: &Flash| (flash.counters().moved, flash.counters().erased);
                let (moved, erased) = of(&self.flash);
                let programmed = self.flash.write(offset, len, handle);
                let (moved_now, erased_now) = of(&self.flash);
                let moved = moved_now - moved;
                let erased = (erased_now - erased) * block;
                let paid = self.debt.pay(programmed - moved, moved, erased);
                self.queues.write(at, len, paid)
            }
            Op::Deallocate => {
                self.flash.deallocate(offset, len);
                self.queues.write(at, 0, 0)
            }
            Op::Flush => self.queues.write(at, 0, 0),
        };
        (done.ceil() as u64).max(now + 1)
    }
}

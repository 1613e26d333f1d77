//! What an experiment needs of the machine it runs on: drives, an array over them, loads.
//!
//! Two things are rigs: the engine on modelled drives, in virtual time, and real drives with fio.
//! Every step reports what it measured; a step that fails names the step and the cause.

use std::collections::BTreeMap;
use std::time::Duration;

use strake_foresight::load::Load;

/// Options of fio for a step, by their names.
pub type FioOptions = BTreeMap<String, String>;

/// What the loads of a step run on, and how long. On drives, each gets all of the loads, and what
/// is reached is the sum over them: the ceiling.
pub use strake_lab::{Target, Until};

/// What one load of a step reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Reached {
    /// The load.
    pub load: Load,
    /// Bytes read a second.
    pub read_bytes_per_s: f64,
    /// Bytes written a second.
    pub write_bytes_per_s: f64,
    /// Reads a second.
    pub read_iops: f64,
    /// Writes a second.
    pub write_iops: f64,
    /// Bytes that it wrote in all, where they were counted.
    pub wrote: Option<f64>,
    /// Latency: p50, p99, p99.9, p99.99, microseconds.
    pub latency_us: [f64; 4],
}

/// What a drive counted, as in its SMART log; `None` where it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wear {
    /// Bytes that the host has read.
    pub host_read: Option<f64>,
    /// Bytes that the host has written.
    pub host_written: Option<f64>,
    /// In units of so many; 0: exact.
    pub host_unit: f64,
    /// Bytes that were written to the flash.
    pub media_written: Option<f64>,
    /// In units of so many; 0: exact.
    pub media_unit: f64,
}

/// What a rebuild or a scrub took.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// How long, seconds, scaled to the size of the drives that the experiment names.
    pub seconds: f64,
    /// Bytes that were read or written for it, each second, on the drive it concerns.
    pub bytes_per_s: f64,
    /// What the loads beside it reached.
    pub beside: Vec<Reached>,
}

/// See the module. Slots count from 0.
pub trait Rig {
    /// A step begins: its case, its name, and what it gives fio. Modelled drives need none of it.
    fn begin(&mut self, _case: &str, _step: &str, _fio: &FioOptions) {}
    /// Brings each drive into the state of a new one. Modelled drives are new.
    fn erase(&mut self) -> Result<(), RigError> {
        Ok(())
    }
    /// What a reader of the step that has just ended should know; each is given once.
    fn notes(&mut self) -> Vec<String> {
        Vec::new()
    }
    /// The last step of a case is done: its array is not needed any more.
    fn end(&mut self) -> Result<(), RigError> {
        Ok(())
    }
    /// Makes the array; seconds until it can be used.
    fn create(&mut self) -> Result<f64, RigError>;
    /// Runs loads side by side.
    fn run(
        &mut self,
        target: Target,
        loads: &[Load],
        until: Until,
    ) -> Result<Vec<Reached>, RigError>;
    /// Does nothing for so long.
    fn idle(&mut self, _time: Duration) -> Result<(), RigError> {
        Ok(())
    }
    /// Cores that were busy, on average, while the last load or job ran or nothing did; `None`
    /// where that is not known.
    fn cores(&mut self) -> Option<f64> {
        None
    }
    /// What each drive has counted until now.
    fn wear(&mut self) -> Result<Vec<Wear>, RigError>;
    /// Takes the member of a slot out of service.
    fn fail(&mut self, slot: usize) -> Result<(), RigError>;
    /// Puts a new drive into the slot and waits for the rebuild, loads beside it.
    fn rebuild(&mut self, slot: usize, beside: &[Load]) -> Result<Job, RigError>;
    /// Reads and checks all that is written.
    fn scrub(&mut self, beside: &[Load]) -> Result<Job, RigError>;
}

/// Why a step of an experiment could not be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{step}: {cause}")]
pub struct RigError {
    /// Which step.
    pub step: String,
    /// What was found, and the way on.
    pub cause: String,
}

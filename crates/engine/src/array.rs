//! The array's control: membership, superblocks, region map, jobs.

use std::sync::Arc;

use strake_format::{ArrayUuid, RegionState, SelectError};

use crate::event::*;
use crate::geometry::Geometry;
use crate::units::*;

/// How to start.
#[derive(Clone, Copy, Debug)]
pub struct StartOptions {
    /// Number of shards that will be made.
    pub shards: u16,
    /// Start although it is not certain that nothing is lost ([`StartError::DirtyDegraded`]).
    pub force: bool,
    /// An open region without writes for this long becomes clean, milliseconds.
    pub clean_after_ms: u64,
}

/// Why an array cannot be started. Nothing has been written then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The superblocks do not make one array.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// More members are missing than the level survives.
    #[error("{missing} members are missing, the level survives {tolerated} in each group")]
    TooFewMembers {
        /// Missing.
        missing: usize,
        /// Tolerated.
        tolerated: usize,
    },
    /// Writes were under way when it stopped, and members are missing: parity cannot be trusted.
    #[error("it was not stopped cleanly and members are missing: blocks of the missing members may be lost")]
    DirtyDegraded,
    /// No member has a valid version of this region map page.
    #[error("page {0} of the region map is damaged on every member")]
    MapDamaged(u32),
    /// Superblocks of one array that describe different geometry.
    #[error("the members of {0} describe different arrays")]
    Geometry(ArrayUuid),
}

/// What a shard needs at start.
#[derive(Clone, Debug)]
pub struct ShardSetup {
    /// The arithmetic.
    pub geometry: Arc<Geometry>,
    /// The membership.
    pub view: Arc<View>,
    /// Access to each region.
    pub regions: Vec<RegionAccess>,
}

/// The control machine of one array.
#[derive(Debug)]
pub struct Array {}

#[expect(unused_variables, reason = "signatures first")]
impl Array {
    /// Chooses among the members found and gets ready to start. Devices that are not believed come out as
    /// [`ArrayOutput::Release`].
    pub fn assemble(found: Vec<Found>, options: &StartOptions) -> Result<Array, StartError> {
        todo!()
    }
    /// What the shards need.
    pub fn setup(&self) -> ShardSetup {
        todo!()
    }
    /// Begins: writes the superblocks; [`ArrayOutput::Started`] follows when they are durable.
    pub fn start(&mut self, now: Time) {
        todo!()
    }
    /// A member I/O of the array has finished.
    pub fn complete(&mut self, now: Time, completion: Completion) {
        todo!()
    }
    /// A message from a shard.
    pub fn message(&mut self, now: Time, from: ShardNo, message: FromShard) {
        todo!()
    }
    /// A user request that the router sends to the array (whole regions of discard or write-zeroes).
    pub fn submit(&mut self, now: Time, request: Request) {
        todo!()
    }
    /// An administrator's command; answered by [`ArrayOutput::Done`].
    pub fn command(&mut self, now: Time, id: CommandId, command: Command) {
        todo!()
    }
    /// The runtime saw a device vanish.
    pub fn device_gone(&mut self, now: Time, device: DeviceId) {
        todo!()
    }
    /// Time has passed (call at [`Array::deadline`] or later).
    pub fn tick(&mut self, now: Time) {
        todo!()
    }
    /// When `tick` wants to be called.
    pub fn deadline(&self) -> Option<Time> {
        todo!()
    }
    /// The next effect.
    pub fn poll(&mut self) -> Option<ArrayOutput> {
        todo!()
    }
    /// Everything that `show` tells.
    pub fn status(&self) -> Status {
        todo!()
    }
    /// State of a region.
    pub fn region(&self, region: RegionNo) -> RegionState {
        todo!()
    }
}

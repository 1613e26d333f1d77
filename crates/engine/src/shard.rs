//! One shard: the stripes that one thread owns.

use crate::array::ShardSetup;
use crate::buffers::Pool;
use crate::event::*;
use crate::units::*;

/// The data machine of one thread.
#[derive(Debug)]
pub struct Shard {}

#[expect(unused_variables, reason = "signatures first")]
impl Shard {
    /// Shard `index` of `count`; `pool` is what [`crate::limits::stock`] asks for, not shared with requests' data.
    pub fn new(index: ShardNo, count: u16, setup: ShardSetup, pool: Pool) -> Shard {
        todo!()
    }
    /// A user request, as the router split it: only stripes of this shard.
    pub fn submit(&mut self, now: Time, request: Request) {
        todo!()
    }
    /// A member I/O of this shard has finished.
    pub fn complete(&mut self, now: Time, completion: Completion) {
        todo!()
    }
    /// A message from the array.
    pub fn message(&mut self, now: Time, message: ToShard) {
        todo!()
    }
    /// The next effect. Call until `None` after every input, and when buffers were dropped elsewhere.
    pub fn poll(&mut self) -> Option<ShardOutput> {
        todo!()
    }
    /// Requests accepted and not yet answered.
    pub fn in_flight(&self) -> usize {
        todo!()
    }
}

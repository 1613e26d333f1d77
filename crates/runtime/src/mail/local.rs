//! An array's user in the same process: requests without a kernel or a socket between, and memory
//! for them that is registered with the shards' rings. Benchmarks measure an array through it, and
//! the daemon keeps the table of volumes through it.
//!
//! Invariants: a request is answered once, on the thread of the shard that it was given to, or,
//! where that thread has ended, dropped with its answer uncalled; an answer may give the next
//! request and must not block.
//!
//! Deliberately absent: limits, since code in the process bounds its own requests; waits for an
//! answer (`serve::asking`).

use std::sync::Arc;

use strake_engine::event::Op;
use strake_engine::units::ShardNo;
use strake_engine::{Geometry, SharedPool};

use crate::mail::shape::Shape;
use crate::mail::{Answer, Mail, Peers};

/// See the module. Clones are the same user.
#[derive(Clone, Debug)]
pub struct LocalClient {
    peers: Peers,
    shape: Shape,
    memory: Arc<[SharedPool]>,
}

impl LocalClient {
    pub(crate) fn new(peers: Peers, shape: Shape, memory: Arc<[SharedPool]>) -> LocalClient {
        LocalClient {
            peers,
            shape,
            memory,
        }
    }

    /// The array's arithmetic.
    pub fn geometry(&self) -> Arc<Geometry> {
        self.shape.now()
    }

    /// How many shards there are to give requests to.
    pub fn shards(&self) -> u16 {
        self.peers.count()
    }

    /// Memory for the data of requests given to a shard, of the sizes asked for in
    /// [`crate::ServeConfig::client_stock`]; registered with its ring where the kernel allows it.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn memory(&self, shard: u16) -> &SharedPool {
        &self.memory[usize::from(shard)]
    }

    /// The threads of the array.
    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Gives a request to a shard's thread: any shard takes any request. A read is of
    /// [`strake_engine::limits::REQUEST_BYTES_MAX`] at most. False: the thread has ended.
    pub fn submit(&self, shard: u16, op: Op, answer: Answer) -> bool {
        self.peers
            .shard(ShardNo(shard))
            .post(Mail::Submit(op, answer, None))
    }
}

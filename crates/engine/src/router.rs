//! Splits user requests among shards and joins the answers.
//!
//! One router for each export queue, on that queue's thread. Invariant: every request is answered exactly
//! once, with the first error of its pieces if any failed.

use crate::event::*;
use crate::geometry::Geometry;
use crate::units::*;
use std::sync::Arc;

/// Where a piece of a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To this shard.
    Shard(ShardNo),
    /// To the array: whole regions.
    Array,
}

/// See the module.
#[derive(Debug)]
pub struct Router {}

#[expect(unused_variables, reason = "signatures first")]
impl Router {
    /// A router whose piece ids are unique if `queue` is: ids of pieces carry it in their top 16 bits.
    pub fn new(geometry: Arc<Geometry>, shards: u16, queue: u16) -> Router {
        todo!()
    }
    /// The queue that a piece's id belongs to: how the runtime brings its reply home.
    pub fn queue_of(piece: RequestId) -> u16 {
        (piece.0 >> 48) as u16
    }
    /// Splits `request` into pieces. Invalid requests are answered at once.
    pub fn route(&mut self, request: Request, pieces: &mut Vec<(Target, Request)>) -> Option<Reply> {
        todo!()
    }
    /// A piece was answered; the whole answer when it was the last.
    pub fn join(&mut self, piece: Reply) -> Option<Reply> {
        todo!()
    }
    /// Requests not yet answered.
    pub fn in_flight(&self) -> usize {
        todo!()
    }
}

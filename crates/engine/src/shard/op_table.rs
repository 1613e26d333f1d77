//! The stripe operations at work, by number.
//!
//! An operation is large, and has memory of its own, in which the next one begins when it is over:
//! it is not copied from place to place, and nothing is allocated for it.
//!
//! Invariant: what is over holds no buffer.

use std::ops::{Index, IndexMut};

use slab::Slab;

use crate::shard::op::StripeOp;
use crate::shard::op::work::Work;
use crate::shard::stripe_map::StripeMap;
use crate::units::StripeNo;

/// See the module.
#[derive(Default)]
pub(crate) struct Ops {
    at_work: Slab<Box<StripeOp>>,
    #[expect(
        clippy::vec_box,
        reason = "they change places with those at work and stay where they are"
    )]
    idle: Vec<Box<StripeOp>>,
}

impl Ops {
    pub(crate) fn insert(&mut self, stripe: StripeNo, map: &StripeMap, work: Work) -> usize {
        let mut op = self.idle();
        op.begin(stripe, map, work);
        self.at_work.insert(op)
    }

    /// Takes an operation out for good.
    pub(crate) fn remove(&mut self, key: usize) -> Box<StripeOp> {
        self.at_work.remove(key)
    }

    /// An operation that was removed is over.
    pub(crate) fn over(&mut self, mut op: Box<StripeOp>) {
        op.end();
        self.idle.push(op);
    }

    /// Takes an operation out to work on it, until [`Ops::put_back`]; an idle one stands in its
    /// place.
    pub(crate) fn take(&mut self, key: usize) -> Box<StripeOp> {
        let idle = self.idle();
        std::mem::replace(&mut self.at_work[key], idle)
    }

    pub(crate) fn put_back(&mut self, key: usize, op: Box<StripeOp>) {
        let idle = std::mem::replace(&mut self.at_work[key], op);
        self.idle.push(idle);
    }

    pub(crate) fn contains(&self, key: usize) -> bool {
        self.at_work.contains(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &StripeOp)> {
        self.at_work.iter().map(|(key, op)| (key, op.as_ref()))
    }

    pub(crate) fn len(&self) -> usize {
        self.at_work.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at_work.is_empty()
    }

    /// No key is as high as this.
    pub(crate) fn keys(&self) -> usize {
        self.at_work.capacity()
    }

    /// See the module.
    pub(crate) fn check(&self) -> Result<(), String> {
        let full = self.idle.iter().filter(|op| op.holds_buffers()).count();
        ensure!(full == 0, "{full} operations that are over hold buffers");
        Ok(())
    }

    fn idle(&mut self) -> Box<StripeOp> {
        let new = || Box::new(StripeOp::idle());
        self.idle.pop().unwrap_or_else(new)
    }
}

impl Index<usize> for Ops {
    type Output = StripeOp;

    fn index(&self, key: usize) -> &StripeOp {
        &self.at_work[key]
    }
}

impl IndexMut<usize> for Ops {
    fn index_mut(&mut self, key: usize) -> &mut StripeOp {
        &mut self.at_work[key]
    }
}

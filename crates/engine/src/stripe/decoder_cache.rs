//! How lost columns come from those that are left: worked out once for each case.
//!
//! While a member is missing, everything that it held is computed with the same few matrices: which
//! column of a stripe is lost is a matter of how the level rotates them, so there are about as many
//! as a stripe has columns. To invert one for each read would cost more than the read.
//!
//! Invariant: what is kept follows from the code, the columns that are lost and those that are
//! wanted, and from nothing else; with another code nothing of it is kept.
//!
//! Deliberately absent: which columns are lost, and arithmetic on strips.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use strake_parity::{Code, Decoder};

use crate::geometry::column_set::Columns;
use crate::stripe::write_plan::available;

/// Cases that are kept: those of two lost members of 30 and more.
const KEPT: usize = 1024;

/// Of the old code or not, which columns are lost, and which are wanted.
type Case = (bool, u64, u64);

/// See the module.
#[derive(Default)]
pub(crate) struct Decoders(RefCell<BTreeMap<Case, Arc<Decoder>>>);

impl Decoders {
    /// The arithmetic is another from now on.
    pub(crate) fn forget(&mut self) {
        self.0.get_mut().clear();
    }

    /// How the `wanted` columns of a stripe of this width come from those that are not `lost`, by
    /// this code, which is the old one or not; `None` where too few are left.
    pub(crate) fn get(
        &self,
        (code, old): (&Code, bool),
        width: usize,
        lost: Columns,
        wanted: Columns,
    ) -> Option<Arc<Decoder>> {
        let case = (old, lost.0, wanted.0);
        let mut known = self.0.borrow_mut();
        if let Some(decoder) = known.get(&case) {
            return Some(Arc::clone(decoder));
        }
        let there = available(width, lost);
        let wanted: Vec<usize> = wanted.each().collect();
        let decoder = code.decoder(&there, &wanted).ok()?;
        let decoder = Arc::new(decoder);
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(case, Arc::clone(&decoder));
        Some(decoder)
    }
}

//! Members that were found and that an array is not made of: shorter than they were, or older
//! copies of others; and what an administrator can do about these and others.
//!
//! Invariant: nothing is written here. Deliberately absent: other reasons (`find`, `reused`).

pub(crate) mod advice;
pub(crate) mod copies;
pub(crate) mod cut_off;

//! The start of an array: from the members that are found to one that serves.
//!
//! Order: `assemble` decides which members to believe, `replay` closes the write hole, `resume`
//! ends the window of a move that a crash has cut off, `service` writes the first superblocks.

pub(crate) mod assemble;
pub(crate) mod older_images;
#[cfg(test)]
mod recovery_table;
pub(crate) mod replay;
pub(crate) mod resume;
mod service;

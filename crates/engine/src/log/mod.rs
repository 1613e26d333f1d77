//! The stripe log as it lies on the members: its lanes and batches, what a start finds there, and what
//! its records make of the stripes.

pub(crate) mod checksum_pool;
pub mod layout;
pub(crate) mod recover;
pub(crate) mod ring;
pub mod scan;
pub(crate) mod sequence;
pub(crate) mod window_image;

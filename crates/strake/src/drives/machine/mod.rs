//! What the machine says of its drives: what they are, what they are stacked on, how they are.
//!
//! Invariant: nothing in this room writes to a device. Deliberately absent: Strake's own formats.

pub(crate) mod answering;
pub(crate) mod health;
pub(crate) mod helper;
pub(crate) mod locate;
pub(crate) mod looks;
pub(crate) mod paths;
pub(crate) mod stack;
pub(crate) mod sysfs;
pub(crate) mod traits;

//! Drives and files before they are members: what they are, what uses them, what lies on them.
//!
//! Invariant: nothing in this room writes to a device except [`make`], and that only after
//! [`safety`] has found nothing in the way; [`alias`] gives back what it marks. Deliberately
//! absent: members in service (runtime).

pub(crate) mod alias;
pub(crate) mod aside;
pub(crate) mod clean;
pub(crate) mod destroy;
pub(crate) mod find;
pub(crate) mod lost;
pub(crate) mod machine;
pub(crate) mod make;
pub(crate) mod notes;
pub(crate) mod pool;
pub(crate) mod reused;
pub(crate) mod safety;
pub(crate) mod signature;

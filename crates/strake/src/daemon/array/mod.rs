//! An array in service: what opens it, what it tells, which device sits in which slot.

pub(crate) mod doubt;
pub(crate) mod emptied;
pub(crate) mod left;
pub(crate) mod links;
pub(crate) mod meant;
pub(crate) mod opening;
pub(crate) mod running;
pub(crate) mod seats;
pub(crate) mod unserved;
pub(crate) mod users;
mod waits;

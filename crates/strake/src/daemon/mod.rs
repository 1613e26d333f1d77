//! The arrays of one STRAKE_DIR: what a daemon knows and decides, and what it keeps.
//!
//! Invariant: what may block is called from `spawn_blocking`. Deliberately absent: HTTP (`http`),
//! the process (`serve`).

pub(crate) mod alerts;
pub(crate) mod array;
pub(crate) mod changes;
pub(crate) mod events;
pub(crate) mod home;
pub(crate) mod manager;
pub(crate) mod rounds;
pub(crate) mod service;
pub(crate) mod sources;
pub(crate) mod state;
pub(crate) mod tasks;
pub(crate) mod watch;

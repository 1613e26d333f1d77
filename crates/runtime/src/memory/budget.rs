//! Descriptors: how many this process may have open, and how many an array needs.
//!
//! Invariant: an array is refused before anything is written if too few descriptors would be left
//! to administer the arrays that serve already, and a client of an array where it would take the
//! last of them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::ServeError;

/// Descriptors that are left to the API, to clients and to devices that are looked at.
const SPARE: u64 = 24;
/// Those of them that clients of arrays leave to the API and to devices that are looked at.
const NOT_FOR_CLIENTS: u64 = 16;
/// Of each thread: its two rings, and an eventfd for each.
const OF_THREAD: u64 = 4;
/// Of an array besides: the watch, and what its export opens.
const OF_ARRAY: u64 = 4;

/// Raises the soft limit of descriptors to the hard one.
pub fn raise_descriptor_limit() {
    let now = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: now.maximum,
        maximum: now.maximum,
    };
    if now.current != now.maximum
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::warn!(%error, "the limit of descriptors stays as it is");
    }
}

/// Refuses a client of an array, which takes one descriptor more than it has.
pub(crate) fn check_descriptors_for_client() -> Result<(), ServeError> {
    check_beside(1, NOT_FOR_CLIENTS)
}

/// Refuses to begin where so few descriptors are left that no array could be served.
pub fn check_descriptors_left() -> Result<(), ServeError> {
    check(OF_ARRAY + OF_THREAD)
}

/// Refuses an array of so many threads, and of so many devices that are still to be opened, if too
/// few descriptors are left.
pub(crate) fn check_descriptors(threads: u16, devices: usize) -> Result<(), ServeError> {
    check(OF_ARRAY + OF_THREAD * u64::from(threads) + devices as u64)
}

fn check(needs: u64) -> Result<(), ServeError> {
    check_beside(needs, SPARE)
}

fn check_beside(needs: u64, spare: u64) -> Result<(), ServeError> {
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return Ok(());
    };
    let open = match std::fs::read_dir("/proc/self/fd") {
        Ok(open) => open.count() as u64,
        Err(error)
            if rustix::io::Errno::from_io_error(&error) == Some(rustix::io::Errno::MFILE) =>
        {
            limit
        }
        Err(_) => return Ok(()),
    };
    match open + needs + spare > limit {
        false => Ok(()),
        true => Err(ServeError::Descriptors { open, needs, limit }),
    }
}

//! How an array is given to its users: a block device, a socket, or nothing.
//!
//! Invariant: an export is chosen before the array is started, so that an array that cannot be
//! exported as asked is not touched. Deliberately absent: stable names (`/dev/strake/NAME` is the
//! daemon's).

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use strake_engine::{Geometry, VolumeMap};

use crate::error::ServeError;
use crate::mail::shape::Shape;
use crate::mail::{Peers, VolumeView};

pub mod nbd;
pub mod ublk;

/// What a panic left half-done is for its own thread to answer for; the others must go on.
pub(crate) fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How to serve the block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportKind {
    /// ublk where the kernel has it and the user may, else NBD.
    Auto,
    /// /dev/ublkbN.
    Ublk,
    /// A Unix socket that speaks NBD.
    Nbd,
    /// Nothing.
    None,
}

/// A block device of the kernel's ublk driver, as it was set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UblkExport {
    /// N of /dev/ublkbN.
    pub id: u32,
    /// How data travels, in words: `auto-buffer`, `user-copy`, `copy`, with `batch-` before it
    /// where requests come in batches.
    pub mode: &'static str,
    /// Queues.
    pub queues: u16,
    /// Requests that each queue has in flight at most.
    pub depth: u16,
    /// What the kernel's driver can do, by the header's names in lower case.
    pub kernel_features: Vec<&'static str>,
}

/// What serves the array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Export {
    /// A block device.
    Ublk(UblkExport),
    /// An NBD URI, `nbd+unix:///?socket=…`.
    Nbd {
        /// The socket.
        socket: PathBuf,
    },
    /// Nothing.
    None,
}

impl Export {
    /// `/dev/ublkbN`, an NBD URI that libnbd's tools accept, or nothing.
    pub fn device(&self) -> Option<String> {
        match self {
            Export::Ublk(ublk) => Some(format!("/dev/ublkb{}", ublk.id)),
            Export::Nbd { socket } => Some(format!("nbd+unix:///?socket={}", socket.display())),
            Export::None => None,
        }
    }

    /// N of /dev/ublkbN.
    pub fn ublk(&self) -> Option<u32> {
        match self {
            Export::Ublk(ublk) => Some(ublk.id),
            Export::Nbd { .. } | Export::None => None,
        }
    }
}

/// A ublk device that an earlier process left behind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    /// N of /dev/ublkbN.
    pub(crate) id: u32,
    /// How long it may stay busy until it can be taken over.
    pub(crate) patience: Duration,
}

impl Left {
    /// The device of an array: its start waits for it.
    pub(crate) fn of_array(id: u32) -> Left {
        Left {
            id,
            patience: ublk::RECOVERY_PATIENCE,
        }
    }
}

/// The array, or a volume of it, as an export sees it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Its name.
    pub(crate) name: String,
    /// Half of its uuid: what a block device left behind is known by.
    pub(crate) tag: u64,
    /// The array's arithmetic, as it was when this export, or this connection, began.
    pub(crate) geometry: Arc<Geometry>,
    /// And as it is.
    pub(crate) shape: Shape,
    /// The volume, if it is one.
    pub(crate) volume: Option<Arc<VolumeView>>,
    /// Largest write granularity of its members, bytes; 0 if none is known.
    pub(crate) granularity: u32,
    /// Its shards.
    pub(crate) peers: Peers,
    /// What bounds its requests, where something is to.
    pub(crate) in_flight: Option<Arc<InFlight>>,
}

impl Target {
    /// Where the bytes of its requests lie, if not where they say.
    pub(crate) fn map(&self) -> Option<Arc<VolumeMap>> {
        self.volume.as_ref().map(|volume| volume.map())
    }

    /// Size of the block device, bytes.
    pub(crate) fn size(&self) -> u64 {
        self.map()
            .map_or(self.geometry.size(), |volume| volume.size())
    }

    /// Is this request inside, aligned, and longer than nothing?
    pub(crate) fn valid(&self, offset: u64, len: u64) -> bool {
        match self.map() {
            None => self.geometry.valid(offset, len),
            Some(volume) => volume.valid(offset, len),
        }
    }
}

/// A bound for requests in flight, for exports with clients that have none of their own.
#[derive(Debug)]
pub(crate) struct InFlight {
    free: Mutex<u32>,
    freed: Condvar,
}

impl InFlight {
    /// So many at most.
    pub(crate) fn new(requests: NonZeroU32) -> Arc<InFlight> {
        Arc::new(InFlight {
            free: Mutex::new(requests.get()),
            freed: Condvar::new(),
        })
    }

    fn free(&self) -> MutexGuard<'_, u32> {
        locked(&self.free)
    }

    /// Waits for a place; it is given back when what is returned is dropped.
    pub(crate) fn enter(self: &Arc<InFlight>) -> Place {
        let mut free = self
            .freed
            .wait_while(self.free(), |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Place(Arc::clone(self))
    }
}

/// A place among the requests under way.
#[derive(Debug)]
pub(crate) struct Place(Arc<InFlight>);

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.free() += 1;
        self.0.freed.notify_one();
    }
}

/// What was chosen, before the array starts.
#[derive(Debug)]
pub(crate) enum Plan {
    /// The kernel's driver, found working.
    Ublk(ublk::Driver),
    /// A socket.
    Nbd,
    /// Nothing.
    None,
}

impl Plan {
    /// Chooses by what was asked and what the kernel has; `requests` at most are to be under way.
    /// `left`: a ublk device that waits, with its users, for the next process that serves the
    /// array.
    pub(crate) fn choose(
        kind: ExportKind,
        requests: Option<NonZeroU32>,
        left: Option<u32>,
    ) -> Result<Plan, ServeError> {
        let open = || ublk::Driver::open(requests);
        let kind = match (kind, left) {
            // Only ublk can answer its requests.
            (ExportKind::Auto, Some(_)) => ExportKind::Ublk,
            (kind, _) => kind,
        };
        match kind {
            ExportKind::None => Ok(Plan::None),
            ExportKind::Nbd => Ok(Plan::Nbd),
            ExportKind::Ublk => open().map(Plan::Ublk).map_err(ServeError::NoUblk),
            ExportKind::Auto => Ok(match open() {
                Ok(driver) => Plan::Ublk(driver),
                Err(why) => {
                    tracing::info!(why, "no ublk: served over NBD");
                    Plan::Nbd
                }
            }),
        }
    }
}

impl Plan {
    /// Memory that each shard needs for its ublk queue.
    pub(crate) fn stock(&self) -> Option<ublk::Stock> {
        match self {
            Plan::Ublk(driver) => Some(driver.stock()),
            Plan::Nbd | Plan::None => None,
        }
    }

    /// Places that each shard's ring needs for the pages of its ublk queue's requests.
    pub(crate) fn pages(&self) -> u16 {
        match self {
            Plan::Ublk(driver) => driver.pages(),
            Plan::Nbd | Plan::None => 0,
        }
    }

    /// Carries the plan out, once the array serves.
    pub(crate) fn serve(
        self,
        target: Target,
        socket: &Path,
        left: Option<Left>,
    ) -> Result<Running, ServeError> {
        match self {
            Plan::Ublk(driver) => driver.serve(&target, left).map(Running::Ublk),
            Plan::Nbd => nbd::Server::start(socket, target)
                .map(Running::Nbd)
                .map_err(|e| ServeError::io("open the NBD socket", e)),
            Plan::None => Ok(Running::None),
        }
    }
}

/// What serves, while it does.
#[derive(Debug)]
pub(crate) enum Running {
    /// A block device.
    Ublk(ublk::Device),
    /// A socket.
    Nbd(nbd::Server),
    /// Nothing.
    None,
}

impl Running {
    /// What announces to the users that the block device has grown; false where they see it only
    /// when it is served anew. It may have to wait: to be called without a lock.
    pub(crate) fn grown(&self, size: u64) -> impl FnOnce() -> Result<bool, ServeError> + use<> {
        let (announce, otherwise) = match self {
            Running::Ublk(device) => (Some(device.grown(size)), true),
            // The protocol cannot announce it; new connections see it.
            Running::Nbd(_) => (None, false),
            Running::None => (None, true),
        };
        move || announce.map_or(Ok(otherwise), |announce| announce())
    }

    /// Clients that are connected; of a block device only the kernel knows.
    pub(crate) fn clients(&self) -> usize {
        match self {
            Running::Nbd(server) => server.clients(),
            Running::Ublk(_) | Running::None => 0,
        }
    }

    /// The socket's file. A block device has none.
    pub(crate) fn socket_file(&self) -> Option<nbd::SocketFile> {
        match self {
            Running::Nbd(server) => Some(server.socket_file()),
            Running::Ublk(_) | Running::None => None,
        }
    }

    /// Lets go as a kill would: sockets close, a block device stays.
    pub(crate) fn abandon(self) {
        if let Running::Nbd(server) = self {
            server.abandon();
        }
    }

    /// What it is to the outside.
    pub(crate) fn export(&self) -> Export {
        match self {
            Running::Ublk(device) => Export::Ublk(device.export()),
            Running::Nbd(server) => Export::Nbd {
                socket: server.socket(),
            },
            Running::None => Export::None,
        }
    }

    /// Takes no more requests, has those in flight answered, and takes the export away.
    pub(crate) fn stop(self) -> Result<(), ServeError> {
        match self {
            Running::Ublk(device) => device.stop(),
            Running::Nbd(server) => {
                server.stop();
                Ok(())
            }
            Running::None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_requests_are_under_way_than_there_are_places() {
        use std::sync::atomic::{AtomicU32, Ordering};
        let bound = InFlight::new(NonZeroU32::new(3).expect("three"));
        let (now, most) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _place = bound.enter();
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!((1..=3).contains(&most.into_inner()));
        assert_eq!(*bound.free(), 3, "every place was given back");
    }
}

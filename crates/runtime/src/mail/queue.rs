//! What a shard needs to serve a queue of a block device.
//!
//! Deliberately absent: the queue itself (`export::ublk`).

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use arc_swap::ArcSwap;
use strake_engine::VolumeMap;

/// A volume as its exports see it: they go on while it grows. Readers never wait.
#[derive(Debug)]
pub(crate) struct VolumeView(ArcSwap<VolumeMap>);

impl VolumeView {
    /// A volume that lies there.
    pub(crate) fn new(map: VolumeMap) -> Arc<VolumeView> {
        Arc::new(VolumeView(ArcSwap::from_pointee(map)))
    }

    /// Where its bytes lie now.
    pub(crate) fn map(&self) -> Arc<VolumeMap> {
        self.0.load_full()
    }

    /// It has grown: no byte that it had lies elsewhere.
    pub(crate) fn grow(&self, map: VolumeMap) {
        self.0.store(Arc::new(map));
    }
}

/// How data travels between driver and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// The server reads and writes /dev/ublkcN.
    UserCopy,
    /// The driver copies to and from the server's buffers.
    Copy,
    /// As user copy; besides, the pages of a request are registered with the queue's ring, so that
    /// members can fill them by themselves.
    AutoBuffer,
}

/// How driver and server talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    pub(crate) data: Data,
    /// Many requests and answers in one command.
    pub(crate) batch: bool,
}

impl Mode {
    /// Every mode, the best first. What copies for each request gains nothing from batches.
    pub(crate) const ALL: [Mode; 5] = [
        Mode::new(Data::AutoBuffer, true),
        Mode::new(Data::UserCopy, true),
        Mode::new(Data::AutoBuffer, false),
        Mode::new(Data::UserCopy, false),
        Mode::new(Data::Copy, false),
    ];

    pub(crate) const fn new(data: Data, batch: bool) -> Mode {
        Mode { data, batch }
    }

    /// As `STRAKE_UBLK_MODE` and `strake show` call it.
    pub(crate) fn as_str(self) -> &'static str {
        match (self.data, self.batch) {
            (Data::UserCopy, false) => "user-copy",
            (Data::UserCopy, true) => "batch-user-copy",
            (Data::AutoBuffer, false) => "auto-buffer",
            (Data::AutoBuffer, true) => "batch-auto-buffer",
            (Data::Copy, _) => "copy",
        }
    }
}

/// What a shard needs to serve a queue.
pub(crate) struct QueueStart {
    pub(crate) device: Arc<File>,
    pub(crate) queue: u16,
    pub(crate) depth: u16,
    pub(crate) max_io_bytes: u32,
    pub(crate) mode: Mode,
    pub(crate) volume: Option<Arc<VolumeView>>,
    pub(crate) started: Sender<io::Result<()>>,
    /// Dropped at the end.
    pub(crate) ended: Sender<()>,
}

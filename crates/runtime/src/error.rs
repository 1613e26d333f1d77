//! Why an array is not served.
//!
//! Invariant: each error says what was found, with its values. Deliberately absent: what to do
//! about it (the program around it knows), and errors of requests (engine).

use std::fmt::Write;
use std::io;
use std::path::PathBuf;

use strake_engine::event::{CommandError, FailCause, Stalled};

use crate::device::DeviceError;

/// Why an array cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The engine refused.
    #[error(transparent)]
    Start(#[from] strake_engine::StartError),
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The kernel has no ublk driver, or the user may not use it.
    #[error("no ublk: {0}")]
    NoUblk(String),
    /// Another process serves the ublk device.
    #[error("process {pid} serves /dev/ublkb{id}")]
    UblkServed {
        /// N of /dev/ublkbN.
        id: u32,
        /// The process.
        pid: i32,
    },
    /// The ublk device that was left behind moves data in a way that this process cannot.
    #[error("/dev/ublkb{id} was left behind in the ublk mode {left}, and this process has {now}")]
    UblkMode {
        /// N of /dev/ublkbN.
        id: u32,
        /// The mode of the device.
        left: &'static str,
        /// The mode of this process.
        now: &'static str,
    },
    /// The ublk device that was left behind is larger than what it is to serve.
    #[error("/dev/ublkb{id} was left behind with {left_bytes} bytes, and there are {bytes} now")]
    UblkSize {
        /// N of /dev/ublkbN.
        id: u32,
        /// Bytes that its users see.
        left_bytes: u64,
        /// Bytes that there are.
        bytes: u64,
    },
    /// A syscall failed.
    #[error("{action}: {source}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// The errno.
        source: io::Error,
    },
    /// Members failed while the array was starting, and too few are left.
    #[error("members failed while the array was starting{}", each_out(.0))]
    MembersFailed(Vec<(PathBuf, Option<i32>)>),
    /// Members had no space for what the start writes.
    #[error("there is no space for what the start has to write{}", each_out(.0))]
    NoSpaceToStart(Vec<(PathBuf, Option<i32>)>),
    /// The array cannot go on within its memory limit.
    #[error("{shards} threads need {least_bytes} bytes of buffers at least, not {limit_bytes}")]
    MemoryLimit {
        /// What they may take.
        limit_bytes: u64,
        /// What they need.
        least_bytes: u64,
        /// Threads.
        shards: u16,
    },
    /// This process cannot have the memory.
    #[error("{needs} bytes are needed beside {others} of other arrays, and there are {has} ({of})")]
    NoMemory {
        /// Bytes that the array, or the client, needs.
        needs: u64,
        /// Bytes that other arrays and clients of this process have.
        others: u64,
        /// Bytes that there are.
        has: u64,
        /// What says so.
        of: String,
    },
    /// This process cannot have the descriptors.
    #[error(
        "{open} descriptors are open, the array needs {needs} more, some must be left to \
         administer it, and {limit} is the limit (RLIMIT_NOFILE)"
    )]
    Descriptors {
        /// Descriptors that are open.
        open: u64,
        /// Descriptors that the array needs.
        needs: u64,
        /// The limit.
        limit: u64,
    },
    /// The process may not use io_uring.
    #[error("no io_uring: {0}")]
    NoIoUring(String),
    /// A thread of the array does not answer.
    #[error("{0}")]
    Silent(Stalled),
    /// The array's own export is being made.
    #[error("its block device or socket is being made already")]
    ExportUnderWay,
    /// It was stopped meanwhile.
    #[error("the array was stopped meanwhile")]
    Ended,
    /// The array failed while it was being stopped: as after a kill, not all that it had to write
    /// is written.
    #[error("the array failed while it was being stopped: {}", why_failed(*.0))]
    FailedAtStop(FailCause),
    /// Members had no space for writes while the array was being stopped: as after a kill.
    #[error("writes wait for space on members{}", each_out(.0))]
    NoSpaceToStop(Vec<(PathBuf, Option<i32>)>),
    /// The array refused to stop.
    #[error("the array did not stop: {0}")]
    NotStopped(CommandError),
    /// A power cut left more blocks undecided than the list of unreadable blocks has room for.
    #[error("more blocks were left undecided than the list of unreadable blocks has room for")]
    ListFull,
    /// The stripe log has used up its numbers.
    #[error("the numbers of operations in the stripe log are used up")]
    NumbersExhausted,
}

impl ServeError {
    /// Names what was being done when a syscall failed.
    pub(crate) fn io(action: &'static str, source: impl Into<io::Error>) -> ServeError {
        ServeError::Io {
            action,
            source: source.into(),
        }
    }
}

fn why_failed(cause: FailCause) -> &'static str {
    match cause {
        FailCause::MembersLost => "more members are lost than the level survives",
        FailCause::ListFull => "the list of unreadable blocks has no room",
        FailCause::NumbersExhausted => "the numbers of operations in the stripe log are used up",
        FailCause::NoSpace => "members had no space for what the start writes",
    }
}

/// Devices, and what an I/O of each answered.
fn each_out(members: &[(PathBuf, Option<i32>)]) -> String {
    let mut text = String::new();
    for (at, (path, errno)) in members.iter().enumerate() {
        let before = if at == 0 { ": " } else { ", " };
        let why = errno.map(|errno| format!(" ({})", io::Error::from_raw_os_error(errno)));
        let _infallible = write!(
            text,
            "{before}{}{}",
            path.display(),
            why.unwrap_or_default()
        );
    }
    text
}

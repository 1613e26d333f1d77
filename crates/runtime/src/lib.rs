//! The data path's syscalls: members, shards (one thread and one io_uring each), exports (ublk,
//! NBD).
//!
//! ```text
//!   ublk queue ─┐                                      ┌─► ring ─► members
//!   NBD socket ─┴─► worker (thread): router ─► engine ─┤
//!                     ▲   mail: pieces, messages       └─► answers
//!                     └──────► other workers; worker 0 also has the array's control
//! ```
//!
//! **Architecture invariant:** no decision about the array is taken here; what to do is the
//! engine's word, how to have it done is the runtime's.
//!
//! **Architecture invariant:** an array that serves nothing sleeps: no thread polls, and no timer
//! is armed while nothing is in flight.

// What tests of this crate share with those beside it names it so.
#[cfg(test)]
extern crate self as strake_runtime;

mod clock;
pub mod device;
mod error;
pub mod export;
mod mail;
mod member_io;
mod memory;
mod ring;
mod serve;
mod spawn;
mod thread;

pub use device::{Device, DeviceError, Look, MemberImage, OpenMode, lock_holders};
pub use error::ServeError;
pub use export::ublk::UblkDevices;
pub use export::{Export, ExportKind, UblkExport};
pub use mail::Answer;
pub use mail::local::LocalClient;
pub use member_io::raw::RawMembers;
pub use memory::budget::{check_descriptors_left, raise_descriptor_limit};
pub use memory::resident::bound_heaps;
pub use memory::{Promise, check_memory_left, may_have};
pub use ring::check_io_uring;
pub use serve::asking::{NotDone, UnderWay};
pub use serve::ending::Stopped;
pub use serve::placement::{
    Placed, Placement, cpus_text, least_memory_bytes, parse_cpus, usable_cpus,
};
pub use serve::volumes::VolumeExport;
pub use serve::{NotTold, ServeConfig, Serving, found, may_make, may_serve, serve};
pub use spawn::{
    check_threads_left, explained as explained_thread, is_short as is_short_of_threads,
    spawn as spawn_thread, spawn_scoped as spawn_scoped_thread,
};
pub use thread::control::EventRecord;
pub use thread::counters::{Counters, RequestLatencies};
pub use thread::device_counts::DeviceCounts;
pub use thread::heartbeat::{Heartbeat, Silent};

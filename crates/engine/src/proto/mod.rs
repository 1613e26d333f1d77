//! What goes into the engine and comes out of it, as data: requests and replies, member I/Os,
//! views, messages between the array and its shards, commands, events, statuses.
//!
//! Invariant: the array and its shards know each other by these types alone.
//!
//! Deliberately absent: how any of this is carried out.

mod aside;
mod command;
mod device;
mod event;
mod io;
mod message;
mod output;
mod request;
pub mod status;
mod view;

pub use strake_format::{ScrubMode, ScrubPeriod};

pub use aside::*;
pub use command::*;
pub use device::*;
pub use event::*;
pub use io::*;
pub use message::*;
pub use output::*;
pub use request::*;
pub use status::*;
pub use view::*;

//! What the machines say to each other and to who drives them, as data: requests and replies, member
//! I/Os, views, messages, commands, events and statuses.

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

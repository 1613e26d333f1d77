//! What the machines say to each other and to who drives them, as data: requests and replies, member
//! I/Os, views, messages, commands, events and statuses.

mod command;
mod device;
mod event;
pub mod status;

pub use event::*;

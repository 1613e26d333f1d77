//! The format from outside: golden images, any bytes, every flipped bit, selection, and a walk
//! through crashes.

mod battery;
mod golden;
mod lists;
mod logs;
mod pools;
mod samples;
mod selection;
mod volumes;
mod walk;

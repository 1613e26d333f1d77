//! Experiments as data: on modelled drives and on real ones.
#![forbid(unsafe_code)]

pub mod definition;
pub mod figure;
pub mod picture;
pub mod real;
pub mod report;
pub mod result;
pub mod rig;
pub mod run;
pub mod simulated;
pub mod studies;
pub mod table;

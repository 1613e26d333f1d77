//! Experiments as data: on modelled drives and on real ones.
#![forbid(unsafe_code)]

pub mod rig;

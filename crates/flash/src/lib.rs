//! A model of an NVMe drive of flash.
#![forbid(unsafe_code)]

//! The engine on modelled drives, in virtual time.
#![forbid(unsafe_code)]

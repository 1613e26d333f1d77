//! The real binary, driven as users drive it: one test program, so that helpers are compiled once.
//!
//! Invariant: no test needs the network, another test, or a block device of the machine that it did
//! not make.

mod alerts;
mod answers;
mod api;
mod aside;
mod bad_input;
mod client;
mod completions;
mod config;
mod configuration;
mod console;
mod damaged;
mod degraded;
mod demo;
mod devices;
mod dry_run;
mod edges;
mod events;
mod folder;
mod foreign;
mod full;
mod groups;
mod guides;
mod hung;
mod hung_folder;
mod init;
mod latency;
mod layers;
mod life;
mod limits;
mod looking;
mod manager;
mod metrics;
mod missing;
mod names;
mod notes;
mod numbers;
mod older;
mod past;
mod plan;
mod pools;
mod refusals;
mod reshape;
mod rig;
mod scale;
mod standstill;
mod study;
mod top;
mod udev;
mod undecided;
mod upkeep;
mod volumes;
mod waiting;

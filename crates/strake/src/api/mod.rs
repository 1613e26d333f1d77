//! The JSON shapes of the API and of `--json`, as cli.md has them, by subject.
//!
//! Invariants: units stand last in every name; what is not known is `null`, never 0 or an empty
//! text; new fields are only ever added. Deliberately absent: types of the engine (see `view`).

mod array;
mod changes;
pub(crate) mod config;
mod daemon;
mod drives;
mod jobs;
mod looking;
mod members;
mod pools;
mod settings;
mod volumes;

pub(crate) use array::*;
pub(crate) use changes::*;
pub(crate) use daemon::*;
pub(crate) use drives::*;
pub(crate) use jobs::*;
pub(crate) use looking::*;
pub(crate) use members::*;
pub(crate) use pools::*;
pub(crate) use settings::*;
pub(crate) use volumes::*;

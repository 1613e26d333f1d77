//! HTTP/JSON over a Unix socket: the shapes, the routes, their OpenAPI document.
//!
//! Invariants: the shapes are those of cli.md, in one place; every route stands in the OpenAPI
//! document (a test walks both). Deliberately absent: decisions about arrays (daemon).

pub(crate) mod config;
pub(crate) mod latency;
pub(crate) mod listen;
pub(crate) mod metrics;
pub(crate) mod openapi;
mod pools;
pub(crate) mod routes;
pub(crate) mod types;
pub(crate) mod view;
mod volumes;

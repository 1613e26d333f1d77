//! HTTP/JSON over a Unix socket: the routes, their OpenAPI document, metrics.
//!
//! Invariants: every route stands in the OpenAPI document (a test walks both). Deliberately absent: the shapes (`api`),
//! and decisions about arrays (`daemon`).

mod config;
pub(crate) mod listen;
pub(crate) mod metrics;
pub(crate) mod openapi;
mod pools;
pub(crate) mod routes;
mod volumes;

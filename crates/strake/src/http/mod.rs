//! HTTP/JSON over a Unix socket: the routes, their OpenAPI document, metrics. Metrics also
//! over TCP and in a file.
//!
//! Invariants: router and document are made of one table (`routes`). Deliberately absent: the
//! shapes (`api`), and decisions about arrays (`daemon`).

#[cfg(test)]
mod compatible;
mod events;
pub(crate) mod listen;
pub(crate) mod metrics;
pub(crate) mod openapi;
mod route;
pub(crate) mod routes;
pub(crate) mod scrape;
mod stream;
pub(crate) mod textfile;

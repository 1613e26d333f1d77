//! The routes of a backup of the configuration.
//!
//! Invariant: as in `routes`: handlers only translate. Deliberately absent: a list of routes of their own; they stand in
//! that of all.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::{get, post};

use crate::api::config::RestoreRequest;
use crate::daemon::service::Service;
use crate::http::routes::{Answer, In, Shared, blocking};

/// The routes below `/v1/config`.
pub(super) fn router() -> Router<Arc<Service>> {
    Router::new()
        .route("/v1/config/backup", get(backup))
        .route("/v1/config/restore", post(restore))
}

async fn backup(State(service): Shared) -> Answer {
    blocking(move || Ok(service.backup())).await
}

async fn restore(State(service): Shared, In(request): In<RestoreRequest>) -> Answer {
    blocking(move || service.restore(&request)).await
}

//! The routes of pools of spares.
//!
//! Invariant: as in `routes`: handlers only translate. Deliberately absent: a list of routes of their own; they stand in
//! that of all.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::{get, post};

use crate::api::PoolRequest;
use crate::daemon::service::Service;
use crate::http::routes::{Answer, In, Shared, blocking};

/// The routes below `/v1/pools`.
pub(super) fn router() -> Router<Arc<Service>> {
    Router::new()
        .route("/v1/pools", get(show))
        .route("/v1/pools/{name}", get(show_one).post(create))
        .route("/v1/pools/{name}/add", post(add))
        .route("/v1/pools/{name}/remove", post(remove))
}

async fn show(State(service): Shared) -> Answer {
    blocking(move || Ok(service.pools().show())).await
}

async fn show_one(State(service): Shared, Path(name): Path<String>) -> Answer {
    blocking(move || service.pools().show_one(&name)).await
}

async fn create(
    State(service): Shared,
    Path(name): Path<String>,
    In(request): In<PoolRequest>,
) -> Answer {
    blocking(move || service.pool_change(|pools| pools.create(&name, &request))).await
}

async fn add(
    State(service): Shared,
    Path(name): Path<String>,
    In(request): In<PoolRequest>,
) -> Answer {
    blocking(move || service.pool_change(|pools| pools.add(&name, &request))).await
}

async fn remove(
    State(service): Shared,
    Path(name): Path<String>,
    In(request): In<PoolRequest>,
) -> Answer {
    blocking(move || service.pool_change(|pools| pools.remove(&name, &request))).await
}

//! The routes of volumes.
//!
//! Invariant: as in `routes`: handlers only translate. Deliberately absent: a list of routes of
//! their own; they stand in that of all.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, patch};

use crate::api::*;
use crate::daemon::service::Service;
use crate::http::routes::{Answer, In, Shared, blocking};

/// The routes below an array's.
pub(super) fn router() -> Router<Arc<Service>> {
    Router::new()
        .route("/v1/arrays/{name}/volumes", get(show).post(create))
        .route(
            "/v1/arrays/{name}/volumes/{volume}",
            patch(change).delete(delete),
        )
}

async fn show(State(service): Shared, Path(name): Path<String>) -> Answer {
    blocking(move || service.volumes(&name)).await
}

async fn create(
    State(service): Shared,
    Path(name): Path<String>,
    In(request): In<VolumeRequest>,
) -> Answer {
    let made = !request.dry_run;
    let mut answer = blocking(move || service.volume_create(&name, request)).await?;
    if made {
        *answer.status_mut() = StatusCode::CREATED;
    }
    Ok(answer)
}

async fn change(
    State(service): Shared,
    Path((name, volume)): Path<(String, String)>,
    In(request): In<VolumeChange>,
) -> Answer {
    blocking(move || service.volume_change(&name, &volume, &request)).await
}

async fn delete(
    State(service): Shared,
    Path((name, volume)): Path<(String, String)>,
    In(request): In<VolumeDeletion>,
) -> Answer {
    blocking(move || service.volume_delete(&name, &volume, request.dry_run)).await
}

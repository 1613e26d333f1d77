//! The routes of the API.
//!
//! Invariants: a handler only translates: the daemon's [`Service`] decides; whatever may block runs
//! under `spawn_blocking`; every error is the catalogue's JSON. [`ROUTES`] is the one list of
//! routes, from which the OpenAPI document is made.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper::body::Frame;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::api::*;
use crate::common::errors::{Code, Failure};
use crate::daemon::array::running::Limits;
use crate::daemon::service::{Job, Service};
use crate::daemon::sources::Sources;
use crate::daemon::state::Dir;
use crate::http::config;
use crate::http::listen;
use crate::http::metrics;
use crate::http::openapi;
use crate::http::pools;
use crate::http::volumes;

pub(super) type Shared = State<Arc<Service>>;
pub(super) type Answer = Result<Response, Failure>;

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, axum::Json(self.json())).into_response()
    }
}

impl From<JsonRejection> for Failure {
    fn from(rejection: JsonRejection) -> Failure {
        Failure::new(Code::BadRequest, rejection.body_text())
    }
}

impl From<QueryRejection> for Failure {
    fn from(rejection: QueryRejection) -> Failure {
        Failure::new(Code::BadRequest, rejection.body_text())
    }
}

/// A JSON body whose rejection is one of the catalogue's errors.
pub(super) struct In<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for In<T> {
    type Rejection = Failure;
    async fn from_request(request: Request, state: &S) -> Result<In<T>, Failure> {
        let axum::Json(value) = axum::Json::from_request(request, state).await?;
        Ok(In(value))
    }
}

/// The same for a body that may be left away, for all that it would say by default.
struct Perhaps<T>(T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for Perhaps<T> {
    type Rejection = Failure;
    async fn from_request(request: Request, state: &S) -> Result<Perhaps<T>, Failure> {
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|e| Failure::new(Code::BadRequest, e.body_text()))?;
        if body.is_empty() {
            return Ok(Perhaps(T::default()));
        }
        let value: Option<T> = serde_json::from_slice(&body)
            .map_err(|e| Failure::new(Code::BadRequest, e.to_string()))?;
        Ok(Perhaps(value.unwrap_or_default()))
    }
}

/// The same for query strings.
struct Asked<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Asked<T>, Failure> {
        let Query(value) = Query::from_request_parts(parts, state).await?;
        Ok(Asked(value))
    }
}

/// The routes: method, path, what it does, request and answer in the OpenAPI document.
pub(crate) const ROUTES: &[(&str, &str, &str, Option<&str>, &str)] = &[
    ("get", "/v1/version", "The daemon", None, "Version"),
    (
        "get",
        "/v1/arrays",
        "All arrays, running or not",
        None,
        "Arrays",
    ),
    (
        "post",
        "/v1/arrays",
        "Make an array and start it",
        Some("CreateRequest"),
        "Created",
    ),
    ("get", "/v1/arrays/{name}", "One array", None, "Array"),
    (
        "delete",
        "/v1/arrays/{name}",
        "Wipe a stopped array's superblocks",
        Some("DryRequest"),
        "Outcome",
    ),
    (
        "post",
        "/v1/arrays/{name}/start",
        "Assemble and serve",
        Some("StartRequest"),
        "Array",
    ),
    (
        "post",
        "/v1/arrays/{name}/import",
        "Serve an array of another host, perhaps by another name",
        Some("ImportRequest"),
        "Array",
    ),
    (
        "post",
        "/v1/arrays/{name}/stop",
        "Stop cleanly",
        Some("DryRequest"),
        "Outcome",
    ),
    (
        "post",
        "/v1/arrays/{name}/fail",
        "Take out a member",
        Some("MemberRequest"),
        "Outcome",
    ),
    (
        "post",
        "/v1/arrays/{name}/remove",
        "Forget a member",
        Some("MemberRequest"),
        "Outcome",
    ),
    (
        "post",
        "/v1/arrays/{name}/add",
        "Add a spare",
        Some("DeviceRequest"),
        "Outcome",
    ),
    (
        "post",
        "/v1/arrays/{name}/replace",
        "Replace a member",
        Some("DeviceRequest"),
        "Outcome",
    ),
    (
        "post",
        "/v1/arrays/{name}/locate",
        "Switch the light of a member's drive",
        Some("LocateRequest"),
        "Outcome",
    ),
    (
        "post",
        "/v1/arrays/{name}/reset",
        "Count errors, mismatches and retries from zero again",
        Some("ResetRequest"),
        "Outcome",
    ),
    (
        "post",
        "/v1/arrays/{name}/grow",
        "Use all that the members have room for",
        Some("GrowRequest"),
        "Outcome",
    ),
    (
        "post",
        "/v1/arrays/{name}/rename",
        "Give it another name",
        Some("RenameRequest"),
        "Outcome",
    ),
    (
        "post",
        "/v1/arrays/{name}/restripe",
        "Raise the level, or move data to more data columns",
        Some("RestripeRequest"),
        "Outcome",
    ),
    (
        "post",
        "/v1/arrays/{name}/rebuild",
        "Start or stop",
        Some("JobRequest"),
        "Outcome",
    ),
    (
        "post",
        "/v1/arrays/{name}/init",
        "Start or stop the zeroing of what was never written",
        Some("JobRequest"),
        "Outcome",
    ),
    (
        "post",
        "/v1/arrays/{name}/scrub",
        "Start or stop",
        Some("JobRequest"),
        "Outcome",
    ),
    (
        "get",
        "/v1/arrays/{name}/scrub",
        "What past scrubs found, and the present one",
        None,
        "Scrubs",
    ),
    (
        "get",
        "/v1/arrays/{name}/settings",
        "Settings",
        None,
        "Settings",
    ),
    (
        "patch",
        "/v1/arrays/{name}/settings",
        "Change settings",
        Some("Settings"),
        "Outcome",
    ),
    (
        "get",
        "/v1/arrays/{name}/explain",
        "Where a block lies",
        None,
        "Explain",
    ),
    (
        "get",
        "/v1/arrays/{name}/wear",
        "How the drives wear",
        None,
        "Wear",
    ),
    (
        "get",
        "/v1/arrays/{name}/latency",
        "How long the members took",
        None,
        "Latencies",
    ),
    (
        "get",
        "/v1/arrays/{name}/volumes",
        "Its volumes",
        None,
        "Volumes",
    ),
    (
        "post",
        "/v1/arrays/{name}/volumes",
        "Make a volume",
        Some("VolumeRequest"),
        "VolumeCreated",
    ),
    (
        "patch",
        "/v1/arrays/{name}/volumes/{volume}",
        "Another size or another name for a volume",
        Some("VolumeChange"),
        "Outcome",
    ),
    (
        "delete",
        "/v1/arrays/{name}/volumes/{volume}",
        "Delete a volume",
        Some("VolumeDeletion"),
        "Outcome",
    ),
    (
        "post",
        "/v1/drives/clean",
        "Wipe what Strake left on devices",
        Some("CleanRequest"),
        "Cleaned",
    ),
    (
        "post",
        "/v1/drives/locate",
        "Switch the light of a drive, whatever it is used for",
        Some("DriveLocateRequest"),
        "DriveDone",
    ),
    (
        "get",
        "/v1/config/backup",
        "The configuration of all arrays",
        None,
        "Backup",
    ),
    (
        "post",
        "/v1/config/restore",
        "Make arrays of a backup again whose superblocks are lost",
        Some("RestoreRequest"),
        "Restored",
    ),
    ("get", "/v1/pools", "Pools of spares", None, "Pools"),
    ("get", "/v1/pools/{name}", "One pool", None, "Pool"),
    (
        "post",
        "/v1/pools/{name}",
        "Make a pool of devices",
        Some("PoolRequest"),
        "PoolDone",
    ),
    (
        "post",
        "/v1/pools/{name}/add",
        "Add devices",
        Some("PoolRequest"),
        "PoolDone",
    ),
    (
        "post",
        "/v1/pools/{name}/remove",
        "Take devices out, all unless some are named",
        Some("PoolRequest"),
        "PoolDone",
    ),
    (
        "get",
        "/v1/events",
        "What happened, one JSON object a line",
        None,
        "Event",
    ),
    ("get", "/v1/scan", "Arrays found on drives", None, "Scan"),
    ("get", "/metrics", "Prometheus metrics", None, "Text"),
    ("get", "/openapi.json", "This document", None, "Any"),
];

/// The service behind its routes.
pub(crate) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/v1/version", get(version))
        .route("/v1/arrays", get(show_all).post(create))
        .route("/v1/arrays/{name}", get(show_one).delete(destroy))
        .route("/v1/arrays/{name}/start", post(start))
        .route("/v1/arrays/{name}/import", post(import))
        .route("/v1/arrays/{name}/stop", post(stop))
        .route("/v1/arrays/{name}/fail", post(fail))
        .route("/v1/arrays/{name}/remove", post(remove))
        .route("/v1/arrays/{name}/add", post(add))
        .route("/v1/arrays/{name}/replace", post(replace))
        .route("/v1/arrays/{name}/locate", post(locate))
        .route("/v1/arrays/{name}/reset", post(reset))
        .route("/v1/arrays/{name}/rename", post(rename))
        .route("/v1/arrays/{name}/grow", post(grow))
        .route("/v1/arrays/{name}/restripe", post(restripe))
        .route("/v1/arrays/{name}/rebuild", post(rebuild))
        .route("/v1/arrays/{name}/init", post(init))
        .route("/v1/arrays/{name}/scrub", get(scrubs).post(scrub))
        .route("/v1/arrays/{name}/settings", get(settings).patch(set))
        .route("/v1/arrays/{name}/explain", get(explain))
        .route("/v1/arrays/{name}/wear", get(wear))
        .route("/v1/arrays/{name}/latency", get(latency))
        .merge(volumes::router())
        .merge(pools::router())
        .merge(config::router())
        .route("/v1/drives/clean", post(clean))
        .route("/v1/drives/locate", post(locate_drive))
        .route("/v1/events", get(events))
        .route("/v1/scan", get(scan))
        .route("/metrics", get(metrics))
        .route(
            "/openapi.json",
            get(|| async { axum::Json(openapi::document()) }),
        )
        .fallback(|| async { Failure::new(Code::NoRoute, "no such route") })
        .with_state(service)
}

/// The routes of a daemon of its own in `dir` that is stopping: every request is read, routed and
/// decoded, and what would change something is refused then, as a stopping daemon does. It knows no
/// devices. For fuzzing, which must not reach the machine's drives.
pub fn without_changes(dir: &std::path::Path) -> Router {
    let service = Service::new(Dir::at(dir), Sources::default(), Limits::default());
    service.stop_all();
    router(Arc::new(service))
}

/// Runs what may block, and answers its value as JSON.
pub(super) async fn blocking<T, F>(act: F) -> Answer
where
    T: Serialize + Send + 'static,
    F: FnOnce() -> Result<T, Failure> + Send + 'static,
{
    let done = tokio::task::spawn_blocking(act).await;
    match done {
        Ok(result) => Ok(axum::Json(result?).into_response()),
        Err(error) => Err(Failure::new(
            Code::Internal,
            format!("the request ended: {error}"),
        )),
    }
}

async fn version(State(service): Shared) -> Answer {
    let version = VersionJson {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        dir: service.dir().path().to_owned(),
    };
    Ok(axum::Json(version).into_response())
}

async fn show_all(State(service): Shared) -> Answer {
    blocking(move || Ok(service.show())).await
}

async fn show_one(State(service): Shared, Path(name): Path<String>) -> Answer {
    blocking(move || service.show_one(&name)).await
}

async fn create(State(service): Shared, In(request): In<CreateRequest>) -> Answer {
    let made = !request.dry_run;
    let mut answer = blocking(move || service.create(request)).await?;
    if made {
        *answer.status_mut() = StatusCode::CREATED;
    }
    Ok(answer)
}

async fn destroy(
    State(service): Shared,
    Path(name): Path<String>,
    Perhaps(request): Perhaps<DryRequest>,
) -> Answer {
    blocking(move || service.destroy(&name, request.dry_run)).await
}

async fn start(
    State(service): Shared,
    Path(name): Path<String>,
    In(request): In<StartRequest>,
) -> Answer {
    blocking(move || service.start(&name, request)).await
}

async fn import(
    State(service): Shared,
    Path(name): Path<String>,
    In(request): In<ImportRequest>,
) -> Answer {
    blocking(move || service.import(&name, request)).await
}

async fn stop(
    State(service): Shared,
    Path(name): Path<String>,
    Perhaps(request): Perhaps<DryRequest>,
) -> Answer {
    blocking(move || service.stop(&name, request.dry_run)).await
}

async fn fail(
    State(service): Shared,
    Path(name): Path<String>,
    In(request): In<MemberRequest>,
) -> Answer {
    blocking(move || service.fail(&name, &request)).await
}

async fn remove(
    State(service): Shared,
    Path(name): Path<String>,
    In(request): In<MemberRequest>,
) -> Answer {
    blocking(move || service.remove(&name, &request)).await
}

async fn add(
    State(service): Shared,
    Path(name): Path<String>,
    In(request): In<DeviceRequest>,
) -> Answer {
    if request.member.is_some() {
        return Err(Failure::new(
            Code::BadRequest,
            "add takes no member; replace does",
        ));
    }
    blocking(move || service.add(&name, request)).await
}

async fn replace(
    State(service): Shared,
    Path(name): Path<String>,
    In(request): In<DeviceRequest>,
) -> Answer {
    if request.member.is_none() {
        return Err(Failure::new(Code::BadRequest, "replace needs a member"));
    }
    if let (Some(member), None) = (request.member.clone(), &request.device) {
        return blocking(move || service.replace_by_spare(&name, &member, request.dry_run)).await;
    }
    blocking(move || service.add(&name, request)).await
}

async fn clean(State(service): Shared, In(request): In<CleanRequest>) -> Answer {
    blocking(move || service.clean(&request)).await
}

async fn locate_drive(State(service): Shared, In(request): In<DriveLocateRequest>) -> Answer {
    blocking(move || service.locate_drive(&request)).await
}

async fn locate(
    State(service): Shared,
    Path(name): Path<String>,
    In(request): In<LocateRequest>,
) -> Answer {
    blocking(move || service.locate(&name, &request)).await
}

async fn reset(
    State(service): Shared,
    Path(name): Path<String>,
    In(request): In<ResetRequest>,
) -> Answer {
    blocking(move || service.reset(&name, &request)).await
}

async fn rename(
    State(service): Shared,
    Path(name): Path<String>,
    In(request): In<RenameRequest>,
) -> Answer {
    blocking(move || service.rename(&name, &request)).await
}

async fn grow(
    State(service): Shared,
    Path(name): Path<String>,
    In(request): In<GrowRequest>,
) -> Answer {
    blocking(move || service.grow(&name, &request)).await
}

async fn restripe(
    State(service): Shared,
    Path(name): Path<String>,
    In(request): In<RestripeRequest>,
) -> Answer {
    blocking(move || service.restripe(&name, &request)).await
}

async fn rebuild(
    State(service): Shared,
    Path(name): Path<String>,
    In(request): In<JobRequest>,
) -> Answer {
    blocking(move || service.job(&name, Job::Rebuild, &request)).await
}

async fn init(
    State(service): Shared,
    Path(name): Path<String>,
    In(request): In<JobRequest>,
) -> Answer {
    blocking(move || service.job(&name, Job::Init, &request)).await
}

async fn scrub(
    State(service): Shared,
    Path(name): Path<String>,
    In(request): In<JobRequest>,
) -> Answer {
    blocking(move || service.job(&name, Job::Scrub, &request)).await
}

async fn scrubs(State(service): Shared, Path(name): Path<String>) -> Answer {
    blocking(move || service.scrubs(&name)).await
}

async fn settings(State(service): Shared, Path(name): Path<String>) -> Answer {
    blocking(move || service.settings(&name)).await
}

async fn set(
    State(service): Shared,
    Path(name): Path<String>,
    In(request): In<SettingsJson>,
) -> Answer {
    blocking(move || service.set(&name, &request)).await
}

/// Query of `explain`.
#[derive(Deserialize)]
struct Block {
    lba: u64,
}

async fn explain(
    State(service): Shared,
    Path(name): Path<String>,
    Asked(block): Asked<Block>,
) -> Answer {
    blocking(move || service.explain(&name, block.lba)).await
}

/// Query of `wear`.
#[derive(Deserialize)]
struct Over {
    since_s: Option<u64>,
}

async fn wear(
    State(service): Shared,
    Path(name): Path<String>,
    Asked(over): Asked<Over>,
) -> Answer {
    let since = over.since_s.map(Duration::from_secs);
    blocking(move || service.wear(&name, since)).await
}

async fn latency(State(service): Shared, Path(name): Path<String>) -> Answer {
    blocking(move || Ok(service.running(&name)?.told()?.1)).await
}

/// Query of `events`.
#[derive(Deserialize)]
struct Follow {
    #[serde(default)]
    follow: bool,
    #[serde(default)]
    since: u64,
}

async fn events(State(service): Shared, Asked(query): Asked<Follow>) -> Answer {
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    if !query.follow {
        let lines = event_lines(&service.events().since(query.since));
        return Ok((kind, lines).into_response());
    }
    let followers = service.events().followers();
    if followers >= listen::FOLLOWERS_MAX {
        let found = format!("{followers} clients follow events already, and no more may");
        return Err(Failure::new(Code::TooManyFollowers, found));
    }
    let body = Body::new(Followed::new(service, query.since));
    Ok((kind, body).into_response())
}

fn event_lines(events: &[EventJson]) -> String {
    let mut lines = String::new();
    for event in events {
        if let Ok(line) = serde_json::to_string(event) {
            lines.push_str(&line);
            lines.push('\n');
        }
    }
    lines
}

/// The events from a number on, and each that follows. It belongs to its connection and nothing
/// else works for it, so it ends when the client hangs up, whether anything happens then or not.
struct Followed {
    service: Arc<Service>,
    next: u64,
    news: Pin<Box<dyn Future<Output = Option<watch::Receiver<u64>>> + Send>>,
}

impl Followed {
    fn new(service: Arc<Service>, next: u64) -> Followed {
        let newest = service.events().follow();
        Followed {
            service,
            next,
            news: Box::pin(std::future::ready(Some(newest))),
        }
    }
}

/// Waits for the next event; `None` where there will be none.
async fn changed(mut newest: watch::Receiver<u64>) -> Option<watch::Receiver<u64>> {
    newest.changed().await.ok()?;
    Some(newest)
}

impl hyper::body::Body for Followed {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            let Some(mut newest) = ready!(self.news.as_mut().poll(context)) else {
                return Poll::Ready(None);
            };
            // Before looking: what is noted meanwhile is news again.
            newest.mark_unchanged();
            let events = self.service.events().since(self.next);
            self.news = Box::pin(changed(newest));
            if let Some(last) = events.last() {
                self.next = last.sequence + 1;
                let lines = Bytes::from(event_lines(&events));
                return Poll::Ready(Some(Ok(Frame::data(lines))));
            }
        }
    }
}

async fn scan(State(service): Shared) -> Answer {
    blocking(move || Ok(service.scan_json())).await
}

async fn metrics(State(service): Shared) -> Answer {
    let text = tokio::task::spawn_blocking(move || metrics::text(&service)).await;
    let text = text.map_err(|e| Failure::new(Code::Internal, e.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}

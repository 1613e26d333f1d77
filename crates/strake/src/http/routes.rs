//! The routes of the API: one table, of which the router and the OpenAPI document are made.
//!
//! Invariants: a route only translates: the daemon's [`Service`] decides. What may block does so
//! off the async thread; whether the daemon lives (`/v1/version`) waits for nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{Method, header};
use axum::response::IntoResponse;
use axum::{Json, Router};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::api::*;
use crate::common::errors::{Code, Failure};
use crate::daemon::array::running::{Limits, Running};
use crate::daemon::service::Service;
use crate::daemon::service::scrubs::Job;
use crate::daemon::sources::Sources;
use crate::daemon::state::Dir;
use crate::http::route::{
    Answer, Input as _, JsonBody, OptionalJson, QueryParams, Route, Shared, blocking, making, own,
    route,
};
use crate::http::{events, metrics, openapi, stream};
use crate::view::stats::StatsJson;

const JSON: &str = "application/json";

/// All of them.
pub(crate) fn all() -> Vec<Route> {
    let subjects = [
        arrays(),
        members(),
        jobs(),
        views(),
        volumes(),
        drives(),
        pools(),
        alerts(),
        daemon(),
    ];
    subjects.into_iter().flatten().collect()
}

/// An array as a whole.
fn arrays() -> Vec<Route> {
    vec![
        route(
            Method::GET,
            "/v1/arrays",
            "All arrays, running or not",
            |s, (), ()| Ok(s.show()),
        ),
        making(
            "/v1/arrays",
            "Make an array and start it",
            |s, (), JsonBody(asked)| s.create(asked),
        ),
        route(
            Method::GET,
            "/v1/arrays/{name}",
            "One array",
            |s, name: String, ()| s.show_one(&name),
        ),
        route(
            Method::DELETE,
            "/v1/arrays/{name}",
            "Wipe a stopped array's superblocks",
            |s, name: String, OptionalJson(asked): OptionalJson<DryRequest>| {
                s.destroy(&name, asked.dry_run)
            },
        ),
        route(
            Method::POST,
            "/v1/arrays/{name}/start",
            "Assemble and serve",
            |s, name: String, JsonBody(asked)| s.start(&name, asked),
        ),
        route(
            Method::POST,
            "/v1/arrays/{name}/import",
            "Serve an array of another host, perhaps by another name",
            |s, name: String, JsonBody(asked)| s.import(&name, asked),
        ),
        route(
            Method::POST,
            "/v1/arrays/{name}/stop",
            "Stop cleanly",
            |s, name: String, OptionalJson(asked): OptionalJson<DryRequest>| {
                s.stop(&name, asked.dry_run)
            },
        ),
        route(
            Method::POST,
            "/v1/arrays/{name}/forget",
            "Forget an array of which no member is found",
            |s, name: String, OptionalJson(asked): OptionalJson<DryRequest>| {
                s.forget(&name, &asked)
            },
        ),
        route(
            Method::POST,
            "/v1/arrays/{name}/rename",
            "Give it another name",
            |s, name: String, JsonBody(asked)| s.rename(&name, &asked),
        ),
    ]
}

/// Members of an array.
fn members() -> Vec<Route> {
    vec![
        route(
            Method::POST,
            "/v1/arrays/{name}/fail",
            "Take out a member",
            |s, name: String, JsonBody(asked)| s.fail(&name, &asked),
        ),
        route(
            Method::POST,
            "/v1/arrays/{name}/remove",
            "Forget a member",
            |s, name: String, JsonBody(asked)| s.remove(&name, &asked),
        ),
        route(Method::POST, "/v1/arrays/{name}/add", "Add a spare", add),
        route(
            Method::POST,
            "/v1/arrays/{name}/replace",
            "Replace a member",
            replace,
        ),
        route(
            Method::POST,
            "/v1/arrays/{name}/locate",
            "Switch the light of a member's drive",
            |s, name: String, JsonBody(asked)| s.locate(&name, &asked),
        ),
        route(
            Method::POST,
            "/v1/arrays/{name}/reset",
            "Count errors, mismatches and retries from zero again",
            |s, name: String, JsonBody(asked)| s.reset(&name, &asked),
        ),
    ]
}

/// What runs in the background: other shapes, rebuilds, scrubs.
fn jobs() -> Vec<Route> {
    vec![
        route(
            Method::POST,
            "/v1/arrays/{name}/grow",
            "Use all that the members have room for",
            |s, name: String, JsonBody(asked)| s.grow(&name, &asked),
        ),
        route(
            Method::POST,
            "/v1/arrays/{name}/restripe",
            "Raise the level, or move data to more data columns",
            |s, name: String, JsonBody(asked)| s.restripe(&name, &asked),
        ),
        route(
            Method::POST,
            "/v1/arrays/{name}/rebuild",
            "Start or stop",
            |s, name: String, JsonBody(asked)| s.job(&name, Job::Rebuild, &asked),
        ),
        route(
            Method::POST,
            "/v1/arrays/{name}/init",
            "Start or stop the zeroing of what was never written",
            |s, name: String, JsonBody(asked)| s.job(&name, Job::Init, &asked),
        ),
        route(
            Method::POST,
            "/v1/arrays/{name}/scrub",
            "Start or stop",
            |s, name: String, JsonBody(asked)| s.job(&name, Job::Scrub, &asked),
        ),
        route(
            Method::GET,
            "/v1/arrays/{name}/scrub",
            "What past scrubs found, and the present one",
            |s, name: String, ()| s.scrubs(&name),
        ),
    ]
}

/// What is set, and what is known, of an array.
fn views() -> Vec<Route> {
    vec![
        route(
            Method::GET,
            "/v1/arrays/{name}/settings",
            "Settings",
            |s, name: String, ()| s.settings(&name),
        ),
        route(
            Method::PATCH,
            "/v1/arrays/{name}/settings",
            "Change settings",
            |s, name: String, JsonBody(asked)| s.set(&name, &asked),
        ),
        route(
            Method::GET,
            "/v1/arrays/{name}/explain",
            "Where a block lies",
            |s, name: String, QueryParams(block): QueryParams<Block>| s.explain(&name, block.lba),
        ),
        route(
            Method::GET,
            "/v1/arrays/{name}/wear",
            "How the drives wear",
            |s, name: String, QueryParams(over): QueryParams<Over>| {
                s.wear(&name, over.since_s.map(Duration::from_secs))
            },
        ),
        route(
            Method::GET,
            "/v1/arrays/{name}/latency",
            "How long the members took",
            |s, name: String, ()| Ok(s.running(&name)?.told()?.1),
        ),
    ]
}

/// Volumes of an array.
fn volumes() -> Vec<Route> {
    vec![
        route(
            Method::GET,
            "/v1/arrays/{name}/volumes",
            "Its volumes",
            |s, name: String, ()| s.volumes(&name),
        ),
        making(
            "/v1/arrays/{name}/volumes",
            "Make a volume",
            |s, name: String, JsonBody(asked)| s.volume_create(&name, asked),
        ),
        route(
            Method::PATCH,
            "/v1/arrays/{name}/volumes/{volume}",
            "Another size or another name for a volume",
            |s, (name, volume): (String, String), JsonBody(asked)| {
                s.volume_change(&name, &volume, &asked)
            },
        ),
        route(
            Method::DELETE,
            "/v1/arrays/{name}/volumes/{volume}",
            "Delete a volume",
            |s, (name, volume): (String, String), JsonBody(asked): JsonBody<VolumeDeletion>| {
                s.volume_delete(&name, &volume, asked.dry_run)
            },
        ),
    ]
}

/// Drives of any use, and the configuration of all arrays.
fn drives() -> Vec<Route> {
    vec![
        route(
            Method::GET,
            "/v1/drives",
            "Drives that the daemon sees, and what each is used for",
            |s, (), ()| Ok(s.drives()),
        ),
        route(
            Method::POST,
            "/v1/drives/clean",
            "Wipe what Strake left on devices",
            |s, (), JsonBody(asked)| s.clean(&asked),
        ),
        route(
            Method::POST,
            "/v1/drives/locate",
            "Switch the light of a drive, whatever it is used for",
            |s, (), JsonBody(asked)| s.locate_drive(&asked),
        ),
        route(
            Method::GET,
            "/v1/config/backup",
            "The configuration of all arrays",
            |s, (), ()| s.backup(),
        ),
        route(
            Method::POST,
            "/v1/config/restore",
            "Make arrays of a backup again that lost their superblocks",
            |s, (), JsonBody(asked)| s.restore(&asked),
        ),
    ]
}

/// Pools of spares.
fn pools() -> Vec<Route> {
    vec![
        route(Method::GET, "/v1/pools", "Pools of spares", |s, (), ()| {
            Ok(s.pools().show())
        }),
        route(
            Method::GET,
            "/v1/pools/{name}",
            "One pool",
            |s, name: String, ()| s.pools().show_one(&name),
        ),
        route(
            Method::POST,
            "/v1/pools/{name}",
            "Make a pool of devices",
            |s, name: String, JsonBody(asked)| {
                s.pool_change(
                    "strake pool create",
                    &name,
                    false,
                    &asked,
                    |pools, asked| pools.create(&name, asked),
                )
            },
        ),
        route(
            Method::POST,
            "/v1/pools/{name}/add",
            "Add devices",
            |s, name: String, JsonBody(asked)| {
                s.pool_change("strake pool add", &name, false, &asked, |pools, asked| {
                    pools.add(&name, asked)
                })
            },
        ),
        route(
            Method::POST,
            "/v1/pools/{name}/remove",
            "Take devices out, all unless some are named",
            |s, name: String, JsonBody(asked): JsonBody<PoolRequest>| {
                let looks_only = asked.dry_run;
                s.pool_change(
                    "strake pool remove",
                    &name,
                    looks_only,
                    &asked,
                    |pools, asked| pools.remove(&name, asked),
                )
            },
        ),
    ]
}

/// Channels of alerts.
fn alerts() -> Vec<Route> {
    vec![
        route(
            Method::GET,
            "/v1/alerts",
            "What the channels of alerts did",
            |s, (), ()| Ok(s.alert_status()),
        ),
        route(
            Method::POST,
            "/v1/alerts/test",
            "Send a test by a channel, or by all, and wait for what comes of it",
            |s, (), OptionalJson(asked): OptionalJson<AlertTestRequest>| s.alert_test(&asked),
        ),
    ]
}

/// The daemon itself: what it is, what it sees and what happened.
fn daemon() -> Vec<Route> {
    vec![
        own::<VersionJson, _, _>(Method::GET, "/v1/version", "The daemon", JSON, version),
        Route {
            takes: QueryParams::<events::Follow>::TAKES,
            ..own::<EventJson, _, _>(
                Method::GET,
                "/v1/events",
                "What happened, one JSON object a line",
                events::MEDIA,
                events::events,
            )
        },
        Route {
            takes: QueryParams::<stream::Resume>::TAKES,
            headers: stream::HEADERS,
            ..own::<StreamedJson, _, _>(
                Method::GET,
                "/v1/events/stream",
                "What happens, as Server-Sent Events",
                stream::MEDIA,
                stream::stream,
            )
        },
        route(
            Method::GET,
            "/v1/scan",
            "Arrays found on drives",
            |s, (), ()| Ok(s.scan_json()),
        ),
        route(
            Method::GET,
            "/v1/scan/unread",
            "Devices that gave no answer to the last look at all drives or could not be read: they \
             may carry members",
            |s, (), ()| Ok(s.unread()),
        ),
        route(
            Method::GET,
            "/v1/stats",
            "What arrays in service have counted, for rates",
            |s, (), ()| Ok(stats(s)),
        ),
        own::<String, _, _>(
            Method::GET,
            "/metrics",
            "Prometheus metrics",
            "text/plain",
            metrics,
        ),
        own::<Value, _, _>(
            Method::GET,
            "/openapi.json",
            "This document",
            JSON,
            document,
        ),
    ]
}

/// The service behind its routes.
pub(crate) fn router(service: Arc<Service>) -> Router {
    let add = |router: Router<_>, route: Route| router.route(route.path, route.handler);
    let router = all().into_iter().fold(Router::new(), add);
    router
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

async fn version(State(service): Shared) -> Answer {
    let version = VersionJson {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        dir: service.dir().path().to_owned(),
    };
    Ok(Json(version).into_response())
}

async fn metrics(State(service): Shared) -> Answer {
    let text = blocking(move || metrics::text(&service)).await?;
    Ok(([(header::CONTENT_TYPE, metrics::MEDIA)], text).into_response())
}

async fn document() -> Json<Value> {
    Json(openapi::document())
}

/// An array that does not answer is left out.
fn stats(service: &Service) -> Vec<StatsJson> {
    let told = service.ask_all(Running::stats).into_iter();
    told.filter_map(|(_, stats)| stats.ok()).collect()
}

fn add(
    service: &Service,
    name: String,
    JsonBody(asked): JsonBody<DeviceRequest>,
) -> Result<OutcomeJson, Failure> {
    if asked.member.is_some() {
        let found = "add takes no member; replace does";
        return Err(Failure::new(Code::BadRequest, found));
    }
    service.add(&name, asked)
}

fn replace(
    service: &Service,
    name: String,
    JsonBody(asked): JsonBody<DeviceRequest>,
) -> Result<OutcomeJson, Failure> {
    match (&asked.member, &asked.device) {
        (None, _) => Err(Failure::new(Code::BadRequest, "replace needs a member")),
        (Some(member), None) => service.replace_by_spare(&name, member, asked.dry_run),
        (Some(_), Some(_)) => service.add(&name, asked),
    }
}

/// Query of `explain`.
#[derive(Deserialize, JsonSchema)]
struct Block {
    lba: u64,
}

/// Query of `wear`.
#[derive(Deserialize, JsonSchema)]
struct Over {
    since_s: Option<u64>,
}

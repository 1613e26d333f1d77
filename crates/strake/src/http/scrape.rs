//! The listener for Prometheus: `/metrics` over TCP, and nothing else.
//!
//! Invariants: no more than [`CONNECTIONS_MAX`] connections at once, each for one request that has
//! to come within [`HEAD_PATIENCE`] and to be over within [`LIFE`]; the metrics are put together
//! for one connection at a time. An address that cannot be had costs one event and is tried again;
//! the arrays serve all the same. Deliberately absent: the router of the API, so that nothing of it
//! can be reached from here; TLS and login, which a proxy in front of it has.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};

use crate::daemon::events::Happened;
use crate::daemon::service::Service;
use crate::http::metrics;
use crate::http::route::blocking;

/// Connections at once. A client beyond these waits until one ends.
const CONNECTIONS_MAX: usize = 16;
/// How long a client may take for the head of its request.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
/// How long a connection lasts at most: Prometheus gives up after 10 s unless it is told otherwise.
const LIFE: Duration = Duration::from_secs(30);
/// An address that cannot be had is tried again after so long.
const AGAIN: Duration = Duration::from_secs(5);
/// How long nothing is accepted after that failed: no descriptor is left, most likely.
const PAUSE: Duration = Duration::from_millis(200);

/// Serves metrics at this address until it is dropped.
pub(crate) async fn serve(service: Arc<Service>, address: SocketAddr) {
    let mut said = false;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => {
                tracing::info!(%address, "metrics are served");
                if said {
                    service.events().note(Happened {
                        event: "metrics_served_again",
                        cause: Some(format!("the daemon listens at {address}")),
                        ..Happened::default()
                    });
                }
                accept(&service, &listener).await;
            }
            Err(error) if !said => {
                said = true;
                service.events().note(Happened {
                    event: "metrics_not_served",
                    cause: Some(format!("{address}: {error}")),
                    effect: Some(format!(
                        "arrays serve all the same; it is tried again every {} s",
                        AGAIN.as_secs()
                    )),
                    ..Happened::default()
                });
            }
            Err(error) => tracing::debug!(%address, %error, "metrics are still not served"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn accept(service: &Arc<Service>, listener: &TcpListener) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let turn = Arc::new(Mutex::new(()));
    let mut told = false;
    loop {
        let place = Arc::clone(&places).acquire_owned().await;
        let place = place.expect("nobody closes it");
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(%error, "no connection for metrics is accepted for a while");
                }
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        told = false;
        let (service, turn) = (Arc::clone(service), Arc::clone(&turn));
        tokio::spawn(async move {
            // What it ends for concerns its client alone.
            let _ = tokio::time::timeout(LIFE, one(service, turn, stream)).await;
            drop(place);
        });
    }
}

/// One connection, which has one request.
async fn one(service: Arc<Service>, turn: Arc<Mutex<()>>, stream: TcpStream) {
    let answers = service_fn(|request: Request<Incoming>| {
        let (service, turn) = (Arc::clone(&service), Arc::clone(&turn));
        async move { Ok::<_, Infallible>(answer(service, &turn, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answers);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection for metrics ended");
    }
}

async fn answer(
    service: Arc<Service>,
    turn: &Mutex<()>,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        return said(StatusCode::NOT_FOUND, "only /metrics is served here\n");
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut refused = said(StatusCode::METHOD_NOT_ALLOWED, "use GET or HEAD\n");
        let allowed = hyper::header::HeaderValue::from_static("GET, HEAD");
        refused.headers_mut().insert(ALLOW, allowed);
        return refused;
    }
    let _turn = turn.lock().await;
    match blocking(move || metrics::text(&service)).await {
        Ok(text) => with_type(Response::new(Full::from(text)), metrics::MEDIA),
        Err(failure) => {
            tracing::error!(%failure, "no metrics");
            let found = "the metrics could not be put together; the daemon's log says why\n";
            said(StatusCode::INTERNAL_SERVER_ERROR, found)
        }
    }
}

fn said(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::from(text));
    *answer.status_mut() = status;
    with_type(answer, "text/plain; charset=utf-8")
}

fn with_type(mut answer: Response<Full<Bytes>>, media: &'static str) -> Response<Full<Bytes>> {
    let media = hyper::header::HeaderValue::from_static(media);
    answer.headers_mut().insert(CONTENT_TYPE, media);
    answer
}

//! Connections of the API: accepted, bounded, and given a time to say what they want.
//!
//! Invariants: no more than [`CONNECTIONS_MAX`] at once, so that clients cannot take the
//! descriptors that arrays need; one that does not send its request's head in time is closed, one
//! that does not send the body in time is answered 408 and closed. Where all places are taken, the
//! connection that has gone longest without a whole request is closed for the next client. Streams
//! of events have half of the places ([`FOLLOWERS_MAX`]), so that answers find one. A failure to
//! accept ends nothing. Deliberately absent: a bound for answers; a stream of events lasts as long
//! as its client wants.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::UnixListener;
use tokio::sync::{Notify, Semaphore};

use crate::common::errors::{Code, Failure};
use crate::common::places::{self, Busy, Idle};

/// Connections at once. A client beyond these waits until one ends.
const CONNECTIONS_MAX: usize = 128;
/// Of these, clients that follow events, for as long as they want: the rest is for requests that
/// are answered.
pub(crate) const FOLLOWERS_MAX: usize = CONNECTIONS_MAX / 2;
/// How long a client may take for the head of a request.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
/// And for its body.
const BODY_PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a body: what the routes take.
const BODY_BYTES_MAX: usize = 2 << 20;
/// How long nothing is accepted after that failed: no descriptor is left, most likely.
const PAUSE: Duration = Duration::from_millis(200);

/// Serves until it is dropped.
pub(crate) async fn serve(listener: UnixListener, app: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let idle = Idle::default();
    let mut told = false;
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(%error, "the API accepts nobody for a while");
                }
                idle.close_one();
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        told = false;
        let place = places::place(&places, &idle).await;
        let (app, idle) = (app.clone(), idle.clone());
        tokio::spawn(async move {
            let end = Arc::new(Notify::new());
            idle.insert(&end);
            let service = service_fn(|request| {
                let (app, idle, end) = (app.clone(), idle.clone(), Arc::clone(&end));
                async move { Ok::<_, Infallible>(answer(app, &idle, &end, request).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_PATIENCE)
                .serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                ended = connection => if let Err(error) = ended {
                    tracing::debug!(%error, "a connection of the API ended");
                },
                () = end.notified() => {
                    tracing::debug!("an idle connection of the API was closed for another");
                }
            }
            idle.remove(&end);
            drop(place);
        });
    }
}

/// Answers a request when all of it is there.
async fn answer(
    app: Router,
    idle: &Idle,
    connection: &Arc<Notify>,
    request: Request<Incoming>,
) -> Response {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect();
    let body = match tokio::time::timeout(BODY_PATIENCE, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let found = format!("the body of the request is longer than {BODY_BYTES_MAX} bytes");
            return refused(StatusCode::PAYLOAD_TOO_LARGE, found);
        }
        Ok(Err(error)) => {
            let found = format!("the body of the request is not whole: {error}");
            return refused(StatusCode::BAD_REQUEST, found);
        }
        Err(_) => {
            let found = format!(
                "the body of the request did not come within {} s",
                BODY_PATIENCE.as_secs()
            );
            return refused(StatusCode::REQUEST_TIMEOUT, found);
        }
    };
    let busy = Busy::new(idle, connection);
    let request = Request::from_parts(head, Body::from(body));
    let answer = match TowerToHyperService::new(app).call(request).await {
        Ok(answer) => answer,
        Err(never) => match never {},
    };
    answer.map(|body| busy.until_sent(body))
}

/// What is left of the body is not read.
fn refused(status: StatusCode, found: String) -> Response {
    let mut answer = Failure::new(Code::BadRequest, found).into_response();
    *answer.status_mut() = status;
    let close = HeaderValue::from_static("close");
    answer.headers_mut().insert(header::CONNECTION, close);
    answer
}

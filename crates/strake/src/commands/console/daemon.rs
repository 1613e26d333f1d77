//! Requests of the page that go on to the daemon's socket, and the answers back.
//!
//! Invariants: status and body of an answer arrive as the daemon sent them, piece by piece, so that
//! a stream of events flows; a request is whole before the daemon hears of it, and bounded as the
//! daemon bounds its own; no cookie goes to the daemon. Where no daemon answers, the failure says
//! so, and the console stays. Deliberately absent: retries.

use std::io;
use std::path::Path;
use std::time::Duration;

use axum::body::Body;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HOST, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;

use crate::cli::client;
use crate::commands::console::page;
use crate::common::errors::{Code, Failure};

/// Bytes of a body: what the daemon takes.
const BODY_BYTES_MAX: usize = 2 << 20;
/// How long a body may take.
const BODY_PATIENCE: Duration = Duration::from_secs(5);

/// What the daemon reads of a request's head.
const TO_DAEMON: [HeaderName; 3] = [
    ACCEPT,
    CONTENT_TYPE,
    HeaderName::from_static("last-event-id"),
];
/// What a page reads of an answer's head.
const TO_PAGE: [HeaderName; 3] = [ALLOW, CONTENT_TYPE, RETRY_AFTER];

/// The status of an answer that is not the daemon's, and why.
type Refusal = (StatusCode, Failure);

/// Asks the daemon what a request asks for, `path` with its query.
pub(super) async fn pass_on(
    socket: &Path,
    path: &str,
    request: Request<Incoming>,
) -> Response<Body> {
    match passed_on(socket, path, request).await {
        Ok(answer) => answer,
        Err((status, failure)) => page::said(status, &failure),
    }
}

async fn passed_on(
    socket: &Path,
    path: &str,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let (head, body) = request.into_parts();
    let mut passed = Request::builder()
        .method(&head.method)
        .uri(path)
        .header(HOST, "strake");
    for name in TO_DAEMON {
        if let Some(value) = head.headers.get(&name) {
            passed = passed.header(name, value);
        }
    }
    let passed = passed
        .body(Full::new(whole(body).await?))
        .map_err(|error| {
            let found = format!("'{path}' cannot be asked: {error}");
            (
                StatusCode::BAD_REQUEST,
                Failure::new(Code::BadRequest, found),
            )
        })?;
    let answer = tokio::select! {
        answer = ask(socket, passed) => answer?,
        silent = client::until_silent(socket) => return Err((StatusCode::GATEWAY_TIMEOUT, silent)),
    };
    let (head, body) = answer.into_parts();
    let mut answer = Response::new(Body::new(body));
    *answer.status_mut() = head.status;
    for name in TO_PAGE {
        if let Some(value) = head.headers.get(&name) {
            answer.headers_mut().insert(name, HeaderValue::clone(value));
        }
    }
    Ok(answer)
}

/// The body of a request.
async fn whole(body: Incoming) -> Result<Bytes, Refusal> {
    let bad = |status, found: String| Err((status, Failure::new(Code::BadRequest, found)));
    let body = Limited::new(body, BODY_BYTES_MAX).collect();
    match tokio::time::timeout(BODY_PATIENCE, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let found = format!("the body of the request is longer than {BODY_BYTES_MAX} bytes");
            bad(StatusCode::PAYLOAD_TOO_LARGE, found)
        }
        Ok(Err(error)) => {
            let found = format!("the body of the request is not whole: {error}");
            bad(StatusCode::BAD_REQUEST, found)
        }
        Err(_) => {
            let seconds = BODY_PATIENCE.as_secs();
            let found = format!("the body of the request did not come within {seconds} s");
            bad(StatusCode::REQUEST_TIMEOUT, found)
        }
    }
}

async fn ask(socket: &Path, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Refusal> {
    let connected = tokio::time::timeout(client::CONNECT_PATIENCE, client::connect(socket));
    let connected = connected.await.map_err(|_| {
        let silent = client::silent("accept a connection", client::CONNECT_PATIENCE);
        (StatusCode::GATEWAY_TIMEOUT, silent)
    })?;
    let stream = connected.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            let found = format!("no daemon listens at {}", socket.display());
            let failure = Failure::new(Code::NoDaemon, found).cure("start it with strake daemon");
            (StatusCode::SERVICE_UNAVAILABLE, failure)
        }
        io::ErrorKind::PermissionDenied => {
            let failure = Failure::io(socket.display(), &error);
            (StatusCode::FORBIDDEN, failure)
        }
        _ => lost(&error),
    })?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| lost(&error))?;
    // It ends with the answer's body: a page that hangs up ends what it followed.
    tokio::spawn(connection);
    let answer = sender.send_request(request).await;
    answer.map_err(|error| lost(&error))
}

fn lost(error: &dyn std::fmt::Display) -> Refusal {
    (StatusCode::BAD_GATEWAY, client::lost(error))
}

//! Connections of the API: accepted, bounded, and given a time to say what they want.
//!
//! Invariants: no more than [`CONNECTIONS_MAX`] at once, so that clients cannot take the
//! descriptors that arrays need; one that does not send its request's head in time is closed, one
//! that does not send the body in time is answered 408 and closed. Where all places are taken, the
//! connection that has gone longest without a whole request is closed for the next client. Streams
//! of events have half of the places ([`FOLLOWERS_MAX`]), so that answers find one. A failure to
//! accept ends nothing.
//!
//! A client for which there is no place, since all are busy, or no descriptor is told so: one
//! descriptor is kept for that. Deliberately absent: a bound for answers; a stream of events lasts
//! as long as its client wants.

use std::convert::Infallible;
use std::fs::File;
use std::io;
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
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use tokio::net::{UnixListener, UnixStream};
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
/// How long nothing is accepted after that failed.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a client waits for a place where all are busy: short of what a command waits for.
const PLACE_PATIENCE: Duration = Duration::from_secs(3);
/// The same while others were turned away.
const NEXT_PATIENCE: Duration = Duration::from_millis(100);
/// How long the request of one that is turned away may take to begin, and, when it is answered, to
/// end: others wait for their turn meanwhile.
const REQUEST_PATIENCE: Duration = Duration::from_millis(500);
const LAST_PATIENCE: Duration = Duration::from_millis(100);

/// A descriptor that is kept.
fn kept() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Nobody could be accepted. Where no descriptor is left, that of an idle connection is taken for
/// the next client, or the one that is kept for telling it.
async fn not_accepted(
    listener: &UnixListener,
    error: &io::Error,
    idle: &Idle,
    kept_back: &mut Option<File>,
) {
    if idle.close_one() {
        // It lets go at once.
        return tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let errno = Errno::from_io_error(error);
    let none_left = [Errno::MFILE, Errno::NFILE].map(Some).contains(&errno);
    if none_left && kept_back.take().is_some() {
        let next = tokio::time::timeout(PAUSE, listener.accept()).await;
        if let Ok(Ok((stream, _))) = next {
            turn_away(stream, no_descriptor(error)).await;
        }
    } else {
        tokio::time::sleep(PAUSE).await;
    }
    if kept_back.is_none() {
        *kept_back = kept();
    }
}

fn no_descriptor(error: &io::Error) -> Failure {
    let limit = getrlimit(Resource::Nofile).current;
    let limit = limit.map_or_else(|| "no limit".to_owned(), |limit| format!("limit {limit}"));
    let found =
        format!("the daemon has no file descriptor left for a connection ({limit}): {error}");
    Failure::new(Code::DescriptorsShort, found)
}

fn no_place() -> Failure {
    let seconds = PLACE_PATIENCE.as_secs();
    let found = format!(
        "all {CONNECTIONS_MAX} connections of the API are busy, and none has ended for {seconds} s"
    );
    Failure::new(Code::TooManyClients, found)
}

/// Tells a client why it is not answered, if its request comes soon.
async fn turn_away(stream: UnixStream, failure: Failure) {
    let body = serde_json::to_vec(&failure.json()).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {} \r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        failure.code.http(),
        body.len()
    );
    let said = [head.into_bytes(), body].concat();
    let begun = tokio::time::timeout(REQUEST_PATIENCE, stream.readable()).await;
    if !matches!(begun, Ok(Ok(()))) {
        return;
    }
    let answered = async {
        stream.try_write(&said)?;
        // A client that still sends its request may not read what it was told before that is over.
        let mut request = [0; 4096];
        loop {
            stream.readable().await?;
            match stream.try_read(&mut request) {
                Ok(0) => return Ok(()),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
    };
    let _: Result<io::Result<()>, _> = tokio::time::timeout(LAST_PATIENCE, answered).await;
}

/// Serves until it is dropped.
pub(crate) async fn serve(listener: UnixListener, app: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let idle = Idle::default();
    let (mut told, mut kept_back) = (false, kept());
    let mut patience = PLACE_PATIENCE;
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(%error, "the API accepts nobody for a while");
                }
                not_accepted(&listener, &error, &idle, &mut kept_back).await;
                continue;
            }
        };
        let place = tokio::time::timeout(patience, places::place(&places, &idle)).await;
        let Ok(place) = place else {
            patience = NEXT_PATIENCE;
            turn_away(stream, no_place()).await;
            continue;
        };
        (told, patience) = (false, PLACE_PATIENCE);
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const REQUEST: &[u8] = b"GET /quick HTTP/1.1\r\nhost: s\r\nconnection: close\r\n\r\n";

    async fn answer_to(socket: &std::path::Path, request: &[u8]) -> String {
        let mut stream = UnixStream::connect(socket).await.expect("connects");
        stream.write_all(request).await.expect("written");
        let mut text = Vec::new();
        let read = stream.read_to_end(&mut text);
        let read = tokio::time::timeout(Duration::from_secs(60), read).await;
        read.expect("in time").expect("reads");
        String::from_utf8_lossy(&text).into_owned()
    }

    /// They waited for as long as the others took, and their daemon was said to be silent.
    #[test]
    fn where_all_places_are_busy_the_next_client_is_told_so_and_served_when_one_is_free() {
        let runtime = crate::common::process::runtime().expect("runtime");
        let temporary = tempfile::tempdir().expect("temporary folder");
        let socket = temporary.path().join("api.sock");
        runtime.block_on(async {
            let listener = UnixListener::bind(&socket).expect("bound");
            let app = Router::new()
                .route("/quick", axum::routing::get(async || "quick"))
                .route("/never", axum::routing::get(std::future::pending::<&str>));
            tokio::spawn(serve(listener, app));
            let never = b"GET /never HTTP/1.1\r\nhost: s\r\n\r\n";
            let mut busy = Vec::new();
            for _ in 0..CONNECTIONS_MAX {
                let mut stream = UnixStream::connect(&socket).await.expect("connects");
                stream.write_all(never).await.expect("written");
                busy.push(stream);
            }
            for _ in 0..3 {
                let answer = answer_to(&socket, REQUEST).await;
                assert!(answer.starts_with("HTTP/1.1 409"), "{answer}");
                assert!(answer.contains("too-many-clients"), "{answer}");
                assert!(answer.contains("all 128 connections"), "{answer}");
            }
            drop(busy.pop());
            // A busy machine may see only later that one has gone.
            let mut answer = String::new();
            for _ in 0..20 {
                answer = answer_to(&socket, REQUEST).await;
                if answer.ends_with("quick") {
                    break;
                }
            }
            assert!(answer.ends_with("quick"), "{answer}");
        });
    }
}

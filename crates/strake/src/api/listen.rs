//! Connections of the API: accepted, bounded, and given a time to say what they want.
//!
//! Invariants: no more than [`CONNECTIONS_MAX`] at once, so that clients cannot take the descriptors
//! that arrays need; one that does not send its request's head in time is closed; a failure to accept
//! ends nothing. Deliberately absent: a bound for answers; a stream of events lasts as long as its
//! client wants.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::UnixListener;
use tokio::sync::Semaphore;

/// Connections at once. Who comes when there are as many waits until one ends.
const CONNECTIONS_MAX: usize = 128;
/// How long a client may take for the head of a request.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
/// How long nothing is accepted after that failed: no descriptor is left, most likely.
const PAUSE: Duration = Duration::from_millis(200);

/// Serves until it is dropped.
pub(crate) async fn serve(listener: UnixListener, app: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut told = false;
    loop {
        let place = Arc::clone(&places).acquire_owned().await;
        let place = place.expect("nobody closes it");
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(%error, "the API accepts nobody for a while");
                }
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        told = false;
        let service = TowerToHyperService::new(app.clone());
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_PATIENCE)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection of the API ended");
            }
            drop(place);
        });
    }
}

//! Places of a server for connections, and which of these have nothing to do.
//!
//! Invariant: where all places are taken, the connection that has gone longest without a whole
//! request is closed for the next client. Deliberately absent: what is asked and answered.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use hyper::body::{Bytes, Frame, SizeHint};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Connections of which no whole request is being answered, the longest such first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Idle(Arc<Mutex<Vec<Arc<Notify>>>>);

impl Idle {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Notify>>> {
        self.0.lock().expect("no holder of the list panics")
    }
    /// This one is idle from now on.
    pub(crate) fn insert(&self, connection: &Arc<Notify>) {
        self.lock().push(Arc::clone(connection));
    }
    /// This one is not.
    pub(crate) fn remove(&self, connection: &Arc<Notify>) {
        self.lock().retain(|other| !Arc::ptr_eq(other, connection));
    }
    /// Closes the one that has been idle longest; false where none is idle.
    pub(crate) fn close_one(&self) -> bool {
        let mut idle = self.lock();
        let any = !idle.is_empty();
        if any {
            idle.remove(0).notify_one();
        }
        any
    }
}

/// A request of a connection is being answered as long as this lives.
#[derive(Debug)]
pub(crate) struct Busy {
    idle: Idle,
    connection: Arc<Notify>,
}

impl Busy {
    pub(crate) fn new(idle: &Idle, connection: &Arc<Notify>) -> Busy {
        idle.remove(connection);
        Busy {
            idle: idle.clone(),
            connection: Arc::clone(connection),
        }
    }
    /// The body of an answer: the connection is busy until all of it is sent.
    pub(crate) fn until_sent(self, body: Body) -> Body {
        Body::new(Sending { body, _busy: self })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.idle.insert(&self.connection);
    }
}

/// A place for one more connection: idle ones are closed for it.
pub(crate) async fn place(places: &Arc<Semaphore>, idle: &Idle) -> OwnedSemaphorePermit {
    if let Ok(place) = Arc::clone(places).try_acquire_owned() {
        return place;
    }
    loop {
        idle.close_one();
        // One that is closed lets go at once; where all are busy, one may become idle.
        let free = Arc::clone(places).acquire_owned();
        if let Ok(place) = tokio::time::timeout(Duration::from_millis(10), free).await {
            return place.expect("nobody closes it");
        }
    }
}

/// See [`Busy::until_sent`].
#[derive(Debug)]
struct Sending {
    body: Body,
    _busy: Busy,
}

impl hyper::body::Body for Sending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

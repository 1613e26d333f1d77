//! What happened, one JSON object a line, as long as a client wants to follow.
//!
//! Invariant: what a client follows belongs to its connection, and ends with it. Deliberately
//! absent: the events themselves (`daemon::events`).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use hyper::body::Frame;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::watch;

use crate::api::EventJson;
use crate::common::errors::{Code, Failure};
use crate::daemon::service::Service;
use crate::http::listen;
use crate::http::route::{Answer, QueryParams, Shared};

pub(super) const MEDIA: &str = "application/x-ndjson";

/// Query of `events`.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Follow {
    #[serde(default)]
    follow: bool,
    #[serde(default)]
    since: u64,
}

pub(super) async fn events(
    State(service): Shared,
    QueryParams(query): QueryParams<Follow>,
) -> Answer {
    let kind = [(header::CONTENT_TYPE, MEDIA)];
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

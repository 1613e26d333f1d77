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

use crate::api::{EventFilter, EventJson};
use crate::common::errors::{Code, Failure};
use crate::common::events::Severity;
use crate::daemon::service::Service;
use crate::http::listen;
use crate::http::route::{Answer, QueryParams, Shared};

pub(super) const MEDIA: &str = "application/x-ndjson";

/// Query of `events`.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Follow {
    #[serde(default)]
    follow: bool,
    /// Events from this number on.
    #[serde(default)]
    since: u64,
    /// RFC 3339: events not before this.
    #[serde(default)]
    since_time: Option<String>,
    /// Events of the array that was called so then.
    #[serde(default)]
    array: Option<String>,
    /// `info`, `warning` or `critical`: events as serious as this, or more.
    #[serde(default)]
    #[schemars(with = "String")]
    severity: Severity,
}

/// What these parameters ask for.
pub(super) fn filter(
    array: Option<String>,
    severity: Severity,
    since_time: Option<String>,
) -> Result<EventFilter, Failure> {
    let time = |text: String| {
        text.parse().map_err(|error| {
            let found = format!("since_time={text} is no time: {error}");
            let cure = "give it as 2026-01-31T12:00:00Z";
            Failure::new(Code::BadRequest, found).cure(cure)
        })
    };
    Ok(EventFilter {
        array,
        severity,
        since: since_time.map(time).transpose()?,
    })
}

/// Refuses one more client that follows, where there is no place for it.
pub(super) fn check_place(service: &Service) -> Result<(), Failure> {
    let followers = service.events().followers();
    if followers >= listen::FOLLOWERS_MAX {
        let found = format!("{followers} clients follow events already, and no more may");
        return Err(Failure::new(Code::TooManyFollowers, found));
    }
    Ok(())
}

pub(super) async fn events(
    State(service): Shared,
    QueryParams(query): QueryParams<Follow>,
) -> Answer {
    let kind = [(header::CONTENT_TYPE, MEDIA)];
    let filter = filter(query.array, query.severity, query.since_time)?;
    if !query.follow {
        let lines = event_lines(&service.events().since(query.since), &filter);
        return Ok((kind, lines).into_response());
    }
    check_place(&service)?;
    let body = Body::new(Followed::new(service, query.since, filter));
    Ok((kind, body).into_response())
}

fn event_lines(events: &[EventJson], filter: &EventFilter) -> String {
    let mut lines = String::new();
    for event in events.iter().filter(|event| filter.takes(event)) {
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
    filter: EventFilter,
    news: Pin<Box<dyn Future<Output = Option<watch::Receiver<u64>>> + Send>>,
}

impl Followed {
    fn new(service: Arc<Service>, next: u64, filter: EventFilter) -> Followed {
        let newest = service.events().follow();
        Followed {
            service,
            next,
            filter,
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
                let lines = event_lines(&events, &self.filter);
                if !lines.is_empty() {
                    return Poll::Ready(Some(Ok(Frame::data(Bytes::from(lines)))));
                }
            }
        }
    }
}

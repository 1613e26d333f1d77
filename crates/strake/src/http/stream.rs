//! What happens, as Server-Sent Events: a browser's `EventSource` reads them and resumes by itself.
//!
//! The id of an event is its number. The data is one line of JSON. Where events that the client has
//! not seen are not kept any more, an event named `gap` says which; all others have no name, so
//! that `onmessage` gets them. Where the filter leaves events out, an id without data says how far
//! the stream is, so that a client that resumes hears of no gap there.
//!
//! Invariants: a stream holds at most [`PAGE`] events, and reads on only when these are sent: a
//! client that does not read costs a place and that memory. A comment is sent at least every
//! [`HEARTBEAT`], so that both ends notice a connection that is gone. Deliberately absent: the
//! events themselves (`daemon::events`).

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::unfold;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::watch;

use crate::api::{EventFilter, GapJson, StreamedJson};
use crate::common::errors::{Code, Failure};
use crate::common::events::Severity;
use crate::daemon::events::Page;
use crate::daemon::service::Service;
use crate::http::events;
use crate::http::route::{Answer, QueryParams, Shared};

pub(super) const MEDIA: &str = "text/event-stream";
/// The header by which a client resumes.
const LAST_ID: &str = "last-event-id";
pub(super) const HEADERS: &[(&str, &str)] = &[(
    "Last-Event-ID",
    "The id of the last event that the client has. The stream goes on after it, whatever `since` \
     says.",
)];

/// Events that a stream holds at once.
const PAGE: usize = 64;
/// A comment is sent where nothing else was for so long.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Query of `events/stream`.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Resume {
    /// Events from this number on; all that are kept, unless given.
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

pub(super) async fn stream(
    State(service): Shared,
    headers: HeaderMap,
    QueryParams(query): QueryParams<Resume>,
) -> Answer {
    let filter = events::filter(query.array, query.severity, query.since_time)?;
    let next = match headers.get(LAST_ID) {
        None => query.since,
        Some(id) => after(id.as_bytes())?,
    };
    events::check_place(&service)?;
    Ok(streamed(service, next, filter, HEARTBEAT).into_response())
}

/// The number after the one that a client has.
fn after(id: &[u8]) -> Result<u64, Failure> {
    let id = String::from_utf8_lossy(id);
    let last: Option<u64> = id.trim().parse().ok();
    last.and_then(|last| last.checked_add(1)).ok_or_else(|| {
        let found = format!("Last-Event-ID: '{id}' is not the number of an event");
        let cure = "give the id that the last event of the stream had, or omit the header";
        Failure::new(Code::BadRequest, found).cure(cure)
    })
}

fn streamed(
    service: Arc<Service>,
    next: u64,
    filter: EventFilter,
    heartbeat: Duration,
) -> impl IntoResponse {
    let newest = service.events().follow();
    let source = Source {
        service,
        newest,
        filter,
        next,
        told: next,
        ready: VecDeque::new(),
    };
    let keep_alive = KeepAlive::new().interval(heartbeat).text("alive");
    Sse::new(unfold(source, one)).keep_alive(keep_alive)
}

/// Where a stream is. It belongs to its connection and ends with it.
struct Source {
    service: Arc<Service>,
    newest: watch::Receiver<u64>,
    filter: EventFilter,
    /// The number of the event that is looked at next; 0 where the client has none.
    next: u64,
    /// All before this number is sent, or named in an id.
    told: u64,
    /// What is sent next.
    ready: VecDeque<Event>,
}

type Sent = Result<Event, Infallible>;

/// The next event of the stream, when there is one.
async fn one(mut source: Source) -> Option<(Sent, Source)> {
    loop {
        if let Some(event) = source.ready.pop_front() {
            return Some((Ok(event), source));
        }
        // Before looking: what is noted meanwhile is news again.
        source.newest.mark_unchanged();
        let page = source.service.events().page(source.next, PAGE);
        if !source.take(page) {
            source.newest.changed().await.ok()?;
        }
    }
}

impl Source {
    /// Makes ready what a page has; answers whether there was anything.
    fn take(&mut self, page: Page) -> bool {
        if self.next > page.next {
            // The page is empty: it begins where the client believes to be.
            self.gap(page.oldest, "numbered_anew");
            return true;
        }
        let news = !page.events.is_empty();
        for event in page.events {
            if self.next > 0 && event.sequence > self.next {
                self.gap(event.sequence, "not_kept");
            }
            self.next = event.sequence + 1;
            if self.filter.takes(&event) {
                let id = event.sequence;
                self.push(Event::default(), id, &StreamedJson::Event(event));
            }
        }
        if news && self.told < self.next {
            let id = (self.next - 1).to_string();
            self.ready.push_back(Event::default().id(id));
            self.told = self.next;
        }
        news
    }

    /// Says that the stream goes on with another number than the client expects.
    fn gap(&mut self, next: u64, reason: &str) {
        let gap = GapJson {
            after_sequence: self.next - 1,
            next_sequence: next,
            reason: reason.to_owned(),
        };
        self.next = next;
        self.push(
            Event::default().event("gap"),
            next.saturating_sub(1),
            &StreamedJson::Gap(gap),
        );
    }

    fn push(&mut self, event: Event, id: u64, data: &StreamedJson) {
        // JSON on one line; the shapes are all JSON.
        if let Ok(data) = serde_json::to_string(data) {
            self.ready.push_back(event.id(id.to_string()).data(data));
            self.told = id + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{UnixListener, UnixStream};

    use super::*;
    use crate::daemon::array::running::Limits;
    use crate::daemon::events::Happened;
    use crate::daemon::sources::Sources;
    use crate::daemon::state::Dir;
    use crate::http::{listen, routes};

    /// A daemon's service in a folder of its own, which has noted so many events.
    fn service(events: usize) -> (tempfile::TempDir, Arc<Service>) {
        let temporary = tempfile::tempdir().expect("temporary folder");
        let dir = Dir::at(temporary.path());
        dir.make().expect("folders");
        let service = Arc::new(Service::new(dir, Sources::default(), Limits::default()));
        note(&service, events);
        (temporary, service)
    }

    fn note(service: &Service, events: usize) {
        for n in 0..events {
            service.events().note(Happened {
                array: Some(["even", "odd"][n % 2].to_owned()),
                event: "settings_changed",
                effect: Some("x".repeat(200)),
                ..Happened::default()
            });
        }
    }

    fn run<T>(act: impl Future<Output = T>) -> T {
        let runtime = crate::common::process::runtime().expect("runtime");
        let act = async { tokio::time::timeout(Duration::from_secs(60), act).await };
        runtime.block_on(act).expect("in time")
    }

    fn only(array: &str) -> EventFilter {
        EventFilter {
            array: Some(array.to_owned()),
            ..EventFilter::default()
        }
    }

    /// The text of a stream up to the first of these words.
    async fn up_to(
        service: &Arc<Service>,
        next: u64,
        filter: EventFilter,
        heartbeat: Duration,
        word: &str,
    ) -> String {
        let answer = streamed(Arc::clone(service), next, filter, heartbeat).into_response();
        let mut body = answer.into_body();
        let mut text = String::new();
        while !text.contains(word) {
            let frame = body.frame().await.expect("goes on").expect("works");
            text += &String::from_utf8_lossy(&frame.into_data().expect("data"));
        }
        text
    }

    #[test]
    fn a_stream_goes_on_after_what_the_client_has_and_names_what_is_gone() {
        let (_folder, service) = service(5000);
        let first = |next, word| {
            run(up_to(
                &service,
                next,
                EventFilter::default(),
                HEARTBEAT,
                word,
            ))
        };
        // The ring keeps 4096 of 5000.
        assert!(first(0, "\n\n").starts_with("id: 905\ndata: {\"sequence\":905,"));
        assert!(first(4000, "\n\n").starts_with("id: 4000\ndata: {\"sequence\":4000,"));
        let text = first(4, "id: 906");
        let gap = "event: gap\nid: 904\n\
                   data: {\"after_sequence\":3,\"next_sequence\":905,\"reason\":\"not_kept\"}\n\n\
                   id: 905\n";
        assert!(text.starts_with(gap), "{text}");
        // A client of a daemon that has lost its journal.
        let text = first(9001, "id: 905\n");
        let gap = "event: gap\nid: 904\n\
                   data: {\"after_sequence\":9000,\"next_sequence\":905,\
                   \"reason\":\"numbered_anew\"}\n\n\
                   id: 905\n";
        assert!(text.starts_with(gap), "{text}");
    }

    #[test]
    fn what_the_filter_leaves_out_moves_the_id_on() {
        let (_folder, service) = service(9);
        let text = run(up_to(&service, 1, only("odd"), HEARTBEAT, "id: 9\n\n"));
        let ids: Vec<&str> = text.lines().filter(|l| l.starts_with("id: ")).collect();
        assert_eq!(ids, ["id: 2", "id: 4", "id: 6", "id: 8", "id: 9"], "{text}");
        assert_eq!(text.matches("data: ").count(), 4, "{text}");
    }

    #[test]
    fn a_quiet_stream_has_a_heartbeat() {
        let (_folder, service) = service(1);
        let soon = Duration::from_millis(30);
        let text = run(up_to(&service, 2, EventFilter::default(), soon, "alive"));
        assert_eq!(text, ": alive\n\n");
    }

    #[test]
    fn a_last_event_id_that_is_no_number_is_refused() {
        for id in ["x", "-1", "", "1 2", "18446744073709551615"] {
            let failure = after(id.as_bytes()).expect_err("no number");
            assert_eq!(failure.code, Code::BadRequest, "{id}");
        }
        assert_eq!(after(b"41"), Ok(42));
    }

    #[test]
    fn a_client_that_does_not_read_costs_a_page_and_hears_what_it_missed() {
        let (folder, service) = service(10);
        run(async {
            let socket = folder.path().join("test.sock");
            let listener = UnixListener::bind(&socket).expect("listens");
            tokio::spawn(listen::serve(
                listener,
                routes::router(Arc::clone(&service)),
            ));
            let mut lazy = UnixStream::connect(&socket).await.expect("connects");
            let asks = b"GET /v1/events/stream?since=1 HTTP/1.1\r\nhost: strake\r\n\r\n";
            lazy.write_all(asks).await.expect("asks");
            while service.events().followers() == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            for _ in 0..200 {
                note(&service, 100);
                tokio::task::yield_now().await;
            }
            // Others are answered.
            let mut other = UnixStream::connect(&socket).await.expect("connects");
            let asks = b"GET /v1/version HTTP/1.1\r\nhost: strake\r\nconnection: close\r\n\r\n";
            other.write_all(asks).await.expect("asks");
            let mut answer = String::new();
            other.read_to_string(&mut answer).await.expect("answers");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            // What it reads now is what was sent, a gap, and the newest events.
            let mut text = Vec::new();
            let mut part = vec![0; 1 << 16];
            while !String::from_utf8_lossy(&text).contains("id: 20010\n") {
                let len = lazy.read(&mut part).await.expect("reads");
                assert!(len > 0, "the stream ended");
                text.extend_from_slice(&part[..len]);
            }
            let text = String::from_utf8_lossy(&text);
            assert_eq!(text.matches("event: gap").count(), 1);
            // 20010 events have 7 MB; the ring has 1.4 MB, and the socket holds some more.
            assert!(text.len() < 4 << 20, "{} bytes", text.len());
        });
    }
}

//! One channel's messages, delivered in their order, and what came of it.
//!
//! Order: the oldest message → an attempt with a bound → delivered, or after a pause again. The
//! pause doubles from one second to a quarter of an hour; a server that says when to come back is
//! heeded.
//!
//! Invariants: a channel waits for no other; the number and the bytes of messages that wait are
//! bounded: the oldest are dropped, and each is counted and noted as an event; a message is given
//! up after five days. Deliberately absent: what a message says.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Notify;

use crate::common::time::rfc3339;
use crate::config::alerts::Channel;
use crate::daemon::alerts::board::Board;
use crate::daemon::alerts::exec::{self, Program};
use crate::daemon::alerts::mail::Mailer;
use crate::daemon::alerts::message::Message;
use crate::daemon::alerts::spool::{Spool, Spooled};
use crate::daemon::alerts::webhook::Hook;
use crate::daemon::events::{EventLog, Happened};

/// Messages of a channel that wait, and their bytes.
const MESSAGES_MAX: usize = 500;
const BYTES_MAX: usize = 8 << 20;
/// Pauses between attempts.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(900);
/// A message that was not delivered in this time is given up.
const LIFE: Duration = Duration::from_secs(5 * 86_400);
/// A channel fails when it was refused for good, or for so long.
const FAILING_AFTER: Duration = Duration::from_secs(300);

/// It got there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Delivered {
    Wholly,
    /// Some addresses will never take it: why.
    Partly(String),
}

/// It did not get there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) why: String,
    /// The same attempt would fail again until somebody mends something.
    pub(super) for_good: bool,
    /// The server asks for this pause.
    pub(super) pause: Option<Duration>,
}

impl Refused {
    pub(super) fn for_good(why: String) -> Refused {
        Refused {
            why,
            for_good: true,
            pause: None,
        }
    }
    pub(super) fn for_now(why: String) -> Refused {
        Refused {
            why,
            for_good: false,
            pause: None,
        }
    }
}

/// The way of a channel.
#[derive(Debug)]
enum Way {
    Mail(Mailer),
    Webhook(Hook),
    Exec(Program),
}

/// Sends messages of a channel.
#[derive(Debug)]
pub(super) struct Courier {
    way: Way,
    patience: Duration,
}

impl Courier {
    pub(super) fn new(channel: &Channel) -> Courier {
        let way = match (&channel.mail, &channel.webhook, &channel.exec) {
            (Some(mail), _, _) => Way::Mail(Mailer::new(Arc::new(mail.clone()))),
            (_, Some(webhook), _) => Way::Webhook(Hook::new(Arc::new(webhook.clone()))),
            (_, _, exec) => {
                let command = exec.as_ref().map(|exec| exec.command.clone());
                Way::Exec(Program::new(command.unwrap_or_default()))
            }
        };
        Courier {
            way,
            patience: channel.timeout.get(),
        }
    }

    /// One attempt.
    pub(super) async fn send(
        &mut self,
        message: &Message,
        done: &mut BTreeSet<String>,
    ) -> Result<Delivered, Refused> {
        let patience = self.patience;
        // A program is killed, and what it said is told.
        let more = match &self.way {
            Way::Exec(_) => Duration::from_secs(1),
            Way::Mail(_) | Way::Webhook(_) => Duration::ZERO,
        };
        let attempt = async {
            match &mut self.way {
                Way::Mail(mailer) => mailer.send(message, done, patience).await,
                Way::Webhook(hook) => hook.send(message).await,
                Way::Exec(program) => {
                    let json = serde_json::to_vec(message).unwrap_or_default();
                    let environment = exec::environment(message);
                    program.run(&[], environment, &json, patience).await
                }
            }
        };
        tokio::time::timeout(patience + more, attempt)
            .await
            .unwrap_or_else(|_| {
                let seconds = patience.as_secs();
                Err(Refused::for_now(format!("no end within {seconds} s")))
            })
    }
}

/// A message that waits.
#[derive(Debug)]
struct Waiting {
    number: u64,
    bytes: usize,
    since: Instant,
    spooled: Spooled,
}

/// Messages of a channel that wait, the oldest first.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    next: u64,
    /// Since the last one that was delivered.
    dropped: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Line {
    channel: Channel,
    queue: std::sync::Mutex<Queue>,
    news: Notify,
    spool: Spool,
    board: Arc<Board>,
    events: Arc<EventLog>,
}

impl Line {
    /// A channel with what a former daemon left.
    pub(super) fn new(
        channel: Channel,
        left: Vec<(u64, Spooled)>,
        spool: Spool,
        board: Arc<Board>,
        events: Arc<EventLog>,
    ) -> Line {
        let line = Line {
            channel,
            queue: std::sync::Mutex::default(),
            news: Notify::new(),
            spool,
            board,
            events,
        };
        for (number, spooled) in left {
            line.append(Some(number), spooled);
        }
        line
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().expect("no holder of the queue panics")
    }

    pub(super) fn name(&self) -> &str {
        &self.channel.name
    }

    /// Messages that were dropped since one was delivered; they are told of in the next.
    pub(super) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.queue().dropped)
    }

    /// A message to be delivered.
    pub(super) fn push(&self, message: Message) {
        let spooled = Spooled {
            message,
            done: BTreeSet::new(),
        };
        self.append(None, spooled);
        self.news.notify_one();
    }

    fn append(&self, number: Option<u64>, spooled: Spooled) {
        let bytes = serde_json::to_vec(&spooled).map_or(0, |bytes| bytes.len());
        let mut queue = self.queue();
        let is_new = number.is_none();
        let number = number.unwrap_or(queue.next);
        queue.next = queue.next.max(number + 1);
        if is_new {
            self.spool.put(self.name(), number, &spooled);
        }
        queue.bytes += bytes;
        queue.waiting.push_back(Waiting {
            number,
            bytes,
            since: Instant::now(),
            spooled,
        });
        let mut dropped = 0;
        while queue.waiting.len() > MESSAGES_MAX
            || queue.bytes > BYTES_MAX && queue.waiting.len() > 1
        {
            let Some(oldest) = queue.waiting.pop_front() else {
                break;
            };
            queue.bytes -= oldest.bytes;
            self.spool.remove(self.name(), oldest.number);
            dropped += 1;
        }
        queue.dropped += dropped;
        let queued = queue.waiting.len() as u64;
        drop(queue);
        self.board
            .with(self.name(), |channel| channel.queued = queued);
        if dropped > 0 {
            self.was_dropped(dropped, "too many wait");
        }
    }

    fn was_dropped(&self, messages: u64, why: &str) {
        self.board
            .with(self.name(), |channel| channel.dropped += messages);
        self.events.note(Happened {
            event: "alert_dropped",
            cause: Some(self.name().to_owned()),
            effect: Some(format!("{messages} of its messages: {why}")),
            ..Happened::default()
        });
    }

    fn front(&self) -> Option<(u64, Instant, Spooled)> {
        let queue = self.queue();
        let front = queue.waiting.front()?;
        Some((front.number, front.since, front.spooled.clone()))
    }

    /// It is delivered or given up; it may have been dropped meanwhile.
    fn remove(&self, number: u64) {
        let mut queue = self.queue();
        if queue
            .waiting
            .front()
            .is_some_and(|front| front.number == number)
        {
            let bytes = queue.waiting.pop_front().map_or(0, |front| front.bytes);
            queue.bytes -= bytes;
        }
        let queued = queue.waiting.len() as u64;
        drop(queue);
        self.spool.remove(self.name(), number);
        self.board
            .with(self.name(), |channel| channel.queued = queued);
    }

    /// Some have it, the others are still to get it.
    fn progress(&self, number: u64, spooled: Spooled) {
        let mut queue = self.queue();
        if let Some(front) = queue
            .waiting
            .front_mut()
            .filter(|front| front.number == number)
        {
            self.spool.put(self.name(), number, &spooled);
            front.spooled = spooled;
        }
    }

    /// Delivers, as long as the daemon lives.
    pub(super) async fn run(self: Arc<Line>) {
        let mut courier = Courier::new(&self.channel);
        let mut pause = PAUSE_MIN;
        let mut failing_since: Option<Instant> = None;
        let mut told = false;
        loop {
            let Some((number, since, mut spooled)) = self.front() else {
                self.news.notified().await;
                continue;
            };
            let before = spooled.done.len();
            let result = courier.send(&spooled.message, &mut spooled.done).await;
            let result = result.map(|delivered| match delivered {
                Delivered::Wholly => None,
                Delivered::Partly(why) => Some(why),
            });
            match result {
                Ok(partly) => {
                    self.remove(number);
                    self.delivered(partly.as_deref());
                    if std::mem::take(&mut told) {
                        self.note("alert_delivering", "messages are delivered again");
                    }
                    if let Some(why) = partly {
                        self.note("alert_failing", &why);
                    }
                    (pause, failing_since) = (PAUSE_MIN, None);
                }
                Err(refused) => {
                    if spooled.done.len() > before {
                        self.progress(number, spooled);
                    }
                    let wait = refused.pause.map_or(pause, |asked| asked.max(pause));
                    pause = (pause * 2).min(PAUSE_MAX);
                    self.failed(&refused.why);
                    let since_when = *failing_since.get_or_insert_with(Instant::now);
                    let fails = refused.for_good || since_when.elapsed() >= FAILING_AFTER;
                    if fails && !std::mem::replace(&mut told, true) {
                        self.note("alert_failing", &refused.why);
                    }
                    if since.elapsed() > LIFE {
                        self.remove(number);
                        self.queue().dropped += 1;
                        self.was_dropped(1, "not delivered within five days");
                    }
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    fn note(&self, event: &'static str, effect: &str) {
        self.events.note(Happened {
            event,
            cause: Some(self.name().to_owned()),
            effect: Some(effect.to_owned()),
            ..Happened::default()
        });
    }

    fn delivered(&self, partly: Option<&str>) {
        let now = SystemTime::now();
        self.board.with(self.name(), |channel| {
            channel.delivered += 1;
            channel.failing = false;
            channel.failing_since = None;
            channel.last_success = Some(rfc3339(now));
            if let Some(why) = partly {
                channel.failures += 1;
                channel.last_error = Some(why.to_owned());
                channel.last_error_at = Some(rfc3339(now));
            }
        });
    }

    fn failed(&self, why: &str) {
        let time = rfc3339(SystemTime::now());
        self.board.with(self.name(), |channel| {
            channel.failures += 1;
            channel.failing = true;
            channel.failing_since.get_or_insert_with(|| time.clone());
            channel.last_error = Some(why.to_owned());
            channel.last_error_at = Some(time);
        });
        tracing::warn!(
            channel = self.name(),
            error = why,
            "an alert is not delivered"
        );
    }
}

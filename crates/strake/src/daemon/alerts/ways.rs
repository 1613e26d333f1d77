//! One channel's messages, delivered in their order, and what came of it.
//!
//! Order: the oldest message → an attempt with a bound → delivered, or after a pause again. The
//! pause doubles from one second to a quarter of an hour; a server that says when to come back is
//! heeded.
//!
//! A message that is refused for good three times goes behind the others; where one of these is
//! delivered, it has one attempt more, and is dropped when it is refused again.
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
use crate::daemon::alerts::message::{Message, moment};
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
/// After so many refusals for good of a message the next one is tried.
const REFUSALS: u32 = 3;
/// A channel fails when it was refused for good, or for so long.
const FAILING_AFTER: Duration = Duration::from_secs(300);

/// It got there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Delivered {
    Wholly,
    /// These addresses will never take it, and why.
    Partly(BTreeSet<String>, String),
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
        let runs_a_program = match &self.way {
            Way::Exec(_) => true,
            Way::Mail(mailer) => mailer.runs_a_program(),
            Way::Webhook(_) => false,
        };
        let more = Duration::from_secs(u64::from(runs_a_program));
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
    /// How old it was when it began to wait here.
    age: Duration,
    since: Instant,
    /// How often it was refused for good.
    refused: u32,
    /// Others were delivered since: what is refused is this message.
    alone: bool,
    spooled: Spooled,
}

impl Waiting {
    fn is_too_old(&self) -> bool {
        self.age + self.since.elapsed() > LIFE
    }
}

/// The age of a message that a former daemon made, by its clock.
fn age_of(message: &Message, now: SystemTime) -> Duration {
    let time: Option<jiff::Timestamp> = message.time.parse().ok();
    let age = time.and_then(|time| now.duration_since(moment(time)).ok());
    age.unwrap_or_default()
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

/// What comes of a message that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It, or another, is tried after a pause.
    Again,
    TooOld,
    /// The channel takes others, and not this one.
    Undeliverable,
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
    /// A channel with what a former daemon left; the next message has a number from `next` on.
    pub(super) fn new(
        channel: Channel,
        left: Vec<(u64, Spooled)>,
        next: u64,
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
        line.queue().next = next;
        for (number, spooled) in left {
            line.append(Some(number), spooled);
        }
        line
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        let queue = self.queue.lock();
        queue.unwrap_or_else(std::sync::PoisonError::into_inner)
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
            age: match is_new {
                true => Duration::ZERO,
                false => age_of(&spooled.message, SystemTime::now()),
            },
            since: Instant::now(),
            refused: 0,
            alone: false,
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

    fn front(&self) -> Option<(u64, Spooled)> {
        let queue = self.queue();
        let front = queue.waiting.front()?;
        Some((front.number, front.spooled.clone()))
    }

    /// What comes of the first message, which was refused.
    fn refused(&self, number: u64, for_good: bool) -> Fate {
        let mut queue = self.queue();
        let front = queue.waiting.front_mut();
        let Some(front) = front.filter(|front| front.number == number) else {
            return Fate::Again;
        };
        front.refused += u32::from(for_good);
        if front.is_too_old() {
            return Fate::TooOld;
        }
        if for_good && front.alone {
            return Fate::Undeliverable;
        }
        // Perhaps the others are taken.
        if for_good && front.refused.is_multiple_of(REFUSALS) {
            queue.waiting.rotate_left(1);
        }
        Fate::Again
    }

    /// One is delivered: those that were refused for good have one attempt more.
    fn others_are_taken(&self) {
        for waiting in &mut self.queue().waiting {
            waiting.alone = waiting.refused >= REFUSALS;
        }
    }

    fn give_up(&self, number: u64, why: &str) {
        self.remove(number);
        self.queue().dropped += 1;
        self.was_dropped(1, why);
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
        // Addresses that are refused for good, of which that is noted.
        let mut never = BTreeSet::new();
        loop {
            let Some((number, mut spooled)) = self.front() else {
                self.news.notified().await;
                continue;
            };
            let before = spooled.done.len();
            let result = courier.send(&spooled.message, &mut spooled.done).await;
            match result {
                Ok(delivered) => {
                    self.remove(number);
                    self.others_are_taken();
                    let why = match &delivered {
                        Delivered::Wholly => None,
                        Delivered::Partly(_, why) => Some(why.as_str()),
                    };
                    self.delivered(why);
                    if std::mem::take(&mut told) {
                        self.note("alert_delivering", "messages are delivered again");
                    }
                    match delivered {
                        Delivered::Wholly => never.clear(),
                        // The other channels tell of it: two of them would go on for ever.
                        Delivered::Partly(addresses, why) => {
                            let known = never.len();
                            never.extend(addresses);
                            if never.len() > known {
                                self.note("alert_failing", &why);
                            }
                        }
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
                    let fate = self.refused(number, refused.for_good);
                    if fate == Fate::Undeliverable {
                        let why = format!("refused, while others are taken: {}", refused.why);
                        self.give_up(number, &why);
                        pause = PAUSE_MIN;
                        continue;
                    }
                    let fails = refused.for_good || since_when.elapsed() >= FAILING_AFTER;
                    if fails && !std::mem::replace(&mut told, true) {
                        self.note("alert_failing", &refused.why);
                    }
                    if fate == Fate::TooOld {
                        self.give_up(number, "not delivered within five days");
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

    /// It delivers nothing, for now.
    pub(super) fn failed(&self, why: &str) {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::common::events::Severity;

    use super::*;

    fn message(id: &str) -> Message {
        Message {
            id: id.to_owned(),
            version: 1,
            host: "h".to_owned(),
            time: "2026-01-01T00:00:00Z".to_owned(),
            severity: Severity::Warning,
            subject: "s".to_owned(),
            text: "t".to_owned(),
            items: Vec::new(),
            arrays: Vec::new(),
            left_out: BTreeMap::new(),
            dropped: 0,
        }
    }

    #[test]
    fn a_message_that_is_refused_for_good_does_not_keep_the_others() {
        let dir = tempfile::tempdir().expect("a folder");
        let (spool, _) = Spool::open(&[dir.path().join("alerts")]);
        let channel = "name = 'c'\nexec = { command = ['/bin/true'] }";
        let line = Line::new(
            toml::from_str(channel).expect("a channel"),
            Vec::new(),
            7,
            spool,
            Arc::default(),
            Arc::new(EventLog::open(&[dir.path().join("events")])),
        );
        for id in ["too large", "next", "last"] {
            line.push(message(id));
        }
        let front = || line.front().expect("one waits");
        for _ in 0..REFUSALS {
            let (number, spooled) = front();
            assert_eq!((number, spooled.message.id.as_str()), (7, "too large"));
            assert_eq!(line.refused(number, true), Fate::Again);
        }
        for id in ["next", "last"] {
            let (number, spooled) = front();
            assert_eq!(spooled.message.id, id);
            // One that may pass keeps its place.
            assert_eq!(line.refused(number, false), Fate::Again);
            assert_eq!(front().0, number);
            line.remove(number);
            line.others_are_taken();
        }
        let (number, _) = front();
        assert_eq!(number, 7);
        assert_eq!(line.refused(number, true), Fate::Undeliverable);
    }

    #[test]
    fn the_age_of_a_message_is_that_of_its_making() {
        let made: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let day = Duration::from_secs(86_400);
        assert_eq!(age_of(&message("m"), moment(made) + 6 * day), 6 * day);
        // The clock was wrong when it was made.
        assert_eq!(age_of(&message("m"), moment(made) - day), Duration::ZERO);
    }
}

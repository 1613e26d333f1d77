//! Alerts: what is wrong, told by mail, by webhooks and by programs.
//!
//! Order: events and looks at the arrays → items (`message`, `conditions`) → a group a channel
//! (`group`) → a message → the spool on disk (`spool`), and the channel's line (`ways`) →
//! delivered.
//!
//! Invariants: all of it is on threads of its own: arrays, events and commands wait for nothing
//! here. Events up to the one that a channel was told of last are kept with the spool, so a daemon
//! that is killed tells what it had not told yet. Conditions are told when they begin, while they
//! last, at the start of the daemon, and when they end; a look that panicked tells nothing.
//! Deliberately absent: another transport of events than the log of the daemon (`events`).

pub(crate) mod board;
mod conditions;
mod exec;
mod group;
mod mail;
pub(crate) mod message;
mod secret;
mod spool;
mod ways;
mod webhook;

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::api::{AlertChannelJson, AlertTestJson, EventJson};
use crate::common::events;
use crate::common::process::runtime_for_names;
use crate::common::time::rfc3339;
use crate::config::alerts::{Channel, Target};
use crate::daemon::alerts::board::Test;
use crate::daemon::alerts::conditions::{Conditions, Open};
use crate::daemon::alerts::group::Group;
use crate::daemon::alerts::message::{Draft, Item, Message, Seen};
use crate::daemon::alerts::spool::{Found, Kept, Spool};
use crate::daemon::alerts::ways::{Courier, Delivered, Line};
use crate::daemon::events::{EventLog, Happened};
use crate::daemon::rounds::{self, Rounds};
use crate::daemon::service::Service;

/// How often arrays are looked at without an event.
const LOOK_PERIOD: Duration = Duration::from_secs(10);
/// How often events that nobody wanted are kept as looked at.
const KEEP_PERIOD: Duration = Duration::from_secs(60);
/// The disk gets so long to say what is not delivered, before channels are said to wait for it.
const OPEN_PATIENCE: Duration = Duration::from_secs(10);
/// The disk gets so long to keep what is not delivered, when the daemon ends.
const END_PATIENCE: Duration = Duration::from_secs(3);

/// See `over`.
const NONE: &str = "there are no alerts until the daemon is restarted";

/// Nothing of them goes on.
fn over(service: &Service, why: &str) {
    rounds::note(service.events(), "alerts", why, NONE);
    service.alerts().ended(&format!("{why}; {NONE}"));
}

/// The alerts of a daemon, until they are ended.
#[derive(Debug)]
pub(crate) struct Alerts {
    end: Option<oneshot::Sender<()>>,
    ended: Receiver<()>,
}

impl Alerts {
    /// Begins, if there is a channel.
    pub(crate) fn begin(service: &Arc<Service>, channels: &[Channel]) -> Option<Alerts> {
        if channels.is_empty() {
            return None;
        }
        // What happens from here on is told to a channel that is new.
        let newest = service.events().newest();
        // Before anybody can ask for them.
        let tests = service.alerts().begin(channels.iter().map(fresh).collect());
        let (end, asked) = oneshot::channel();
        let (tell, ended) = channel();
        let (alerts, channels) = (Arc::clone(service), channels.to_vec());
        let spawned = strake_runtime::spawn_thread("alerts", move || {
            match runtime_for_names() {
                Ok(runtime) => {
                    let service = Arc::clone(&alerts);
                    let run = Teller::run(service, channels, newest, tests, asked);
                    if let Err(why) = rounds::caught(|| runtime.block_on(run)) {
                        over(&alerts, &why);
                    }
                    // A program or a look that hangs keeps no daemon from its end.
                    runtime.shutdown_background();
                }
                Err(failure) => over(&alerts, &failure.found),
            }
            // Nobody may wait.
            let _ = tell.send(());
        });
        if let Err(error) = spawned {
            over(service, &error.to_string());
            return None;
        }
        Some(Alerts {
            end: Some(end),
            ended,
        })
    }

    /// Keeps what is not delivered, and ends.
    pub(crate) fn end(mut self) {
        // It may have ended by itself.
        let _ = self.end.take().map(|end| end.send(()));
        let _ = self.ended.recv_timeout(END_PATIENCE * 2);
    }
}

/// A look at the arrays in service; what its panic says where it is none.
type Looked = rounds::Came<Vec<Seen>>;

/// The task that follows what happens.
struct Teller {
    service: Arc<Service>,
    spool: Spool,
    groups: Vec<Group>,
    lines: Vec<Arc<Line>>,
    conditions: Conditions,
    /// The arrays in service, when they were looked at last.
    arrays: Vec<Seen>,
    /// The next event.
    next: u64,
    looking: Option<Looked>,
    looks: Rounds,
    /// No look begins before, after one that panicked.
    look_from: Instant,
    /// When what was told was kept last, and up to which event.
    kept_at: Instant,
    kept_to: u64,
    /// Something happened since the last look began.
    look_again: bool,
    /// What is not delivered is in memory alone, and that was told.
    unkept: bool,
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}

fn now() -> String {
    rfc3339(SystemTime::now())
}

/// A channel that did nothing yet.
fn fresh(channel: &Channel) -> AlertChannelJson {
    let (way, to) = match (&channel.mail, &channel.webhook, &channel.exec) {
        (Some(mail), _, _) => ("mail", mail.to.join(", ")),
        (_, Some(webhook), _) => {
            // Its path may be a secret.
            let target = webhook.url.as_ref().map(|url| Target::of(url));
            let host = target.and_then(Result::ok).map(|target| target.authority);
            (
                "webhook",
                host.unwrap_or_else(|| "a URL that is kept secret".to_owned()),
            )
        }
        (_, _, exec) => {
            let program = exec.as_ref().and_then(|exec| exec.command.first());
            ("exec", program.cloned().unwrap_or_default())
        }
    };
    AlertChannelJson {
        name: channel.name.clone(),
        way: way.to_owned(),
        to,
        severity: channel.severity.as_str().to_owned(),
        arrays: channel.arrays.clone(),
        ..AlertChannelJson::default()
    }
}

fn item_of(event: &EventJson) -> Item {
    // One that is not in the catalogue is of another version of the daemon.
    let severity = events::severity(&event.event, event.effect.as_deref());
    Item::Event(event.clone(), severity.unwrap_or_default())
}

impl Teller {
    async fn run(
        service: Arc<Service>,
        channels: Vec<Channel>,
        newest: u64,
        mut tests: mpsc::UnboundedReceiver<Test>,
        mut asked: oneshot::Receiver<()>,
    ) {
        let mut work = JoinSet::new();
        let folders = service.dir().alerts();
        let shown = service.dir().alerts()[0].display().to_string();
        let mut open = pin!(rounds::done_by_itself(move || Spool::open(&folders)));
        let mut late = pin!(tokio::time::sleep(OPEN_PATIENCE));
        let mut is_late = false;
        // A disk that hangs keeps no test.
        let opened = loop {
            tokio::select! {
                opened = &mut open => break opened,
                _ = &mut asked => return,
                () = &mut late, if !is_late => {
                    is_late = true;
                    let why = format!("{shown} gives no answer; nothing is delivered before");
                    tracing::warn!(why, "alerts wait");
                    service.alerts().ended(&why);
                }
                Some(test) = tests.recv() => {
                    work.spawn(answer(channels.clone(), test));
                }
                Some(_) = work.join_next() => {}
            }
        };
        if is_late {
            service.alerts().go_on();
        }
        let (spool, found) = match opened {
            Ok(opened) => opened,
            Err(failure) => return over(&service, &failure.found),
        };
        let mut teller = Teller::new(service, channels.clone(), newest, spool, found);
        teller.keep();
        let events = Arc::clone(teller.service.events());
        for line in &teller.lines {
            work.spawn(deliver(Arc::clone(line), Arc::clone(&events)));
        }
        let mut newest = events.follow_within();
        let mut period = tokio::time::interval(LOOK_PERIOD);
        let mut rounds = Rounds::new("alerts", Arc::clone(&events));
        loop {
            let Some(due) = rounds.round(|| teller.turn()) else {
                tokio::select! {
                    _ = &mut asked => break,
                    () = tokio::time::sleep(rounds.pause()) => continue,
                }
            };
            let due = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = &mut asked => break,
                _ = newest.changed() => {}
                _ = period.tick() => teller.look_again = true,
                () = due => {}
                looked = looked(&mut teller.looking) => {
                    rounds.round(|| teller.looked(looked));
                }
                Some(test) = tests.recv() => {
                    work.spawn(answer(channels.clone(), test));
                }
                Some(_) = work.join_next() => {}
            }
        }
        teller.follow();
        teller.send_due(true);
        let spool = teller.spool.clone();
        // Nothing is delivered from here on: what is kept is what is left.
        work.shutdown().await;
        spool.flush(END_PATIENCE);
    }

    fn new(
        service: Arc<Service>,
        channels: Vec<Channel>,
        newest: u64,
        spool: Spool,
        mut found: Found,
    ) -> Teller {
        let events = service.events();
        let kept = found.kept.unwrap_or_default();
        let now = Instant::now();
        let mut groups = Vec::new();
        let mut lines = Vec::new();
        for channel in channels {
            // A new channel is not told of what was; a new journal begins anew.
            let told = kept.told.get(&channel.name).copied();
            let told = told.unwrap_or(newest).min(newest);
            groups.push(Group::new(now, channel.clone(), told));
            let left = found.messages.remove(&channel.name).unwrap_or_default();
            let (board, events) = (Arc::clone(service.alerts()), Arc::clone(events));
            let next = found.next.get(&channel.name).copied().unwrap_or_default();
            let line = Line::new(channel, left, next, spool.clone(), board, events);
            lines.push(Arc::new(line));
        }
        for (channel, messages) in found.messages {
            if !messages.is_empty() {
                let left = messages.len();
                tracing::warn!(
                    channel,
                    left,
                    "messages of a channel that is gone are dropped"
                );
            }
            for (number, _) in messages {
                spool.remove(&channel, number);
            }
        }
        for (channel, why) in std::mem::take(&mut found.lost) {
            events.note(lost(channel, why));
        }
        let next = groups.iter().map(Group::done).min().unwrap_or(newest) + 1;
        let events = Arc::clone(events);
        Teller {
            service,
            spool,
            groups,
            lines,
            conditions: Conditions::new(kept.open),
            arrays: Vec::new(),
            next,
            looking: None,
            looks: Rounds::new("looks of alerts at the arrays", events),
            look_from: now,
            kept_at: now,
            kept_to: newest,
            look_again: true,
            unkept: false,
        }
    }

    /// One turn of the loop. When the next message is due.
    fn turn(&mut self) -> Option<Instant> {
        self.follow();
        self.send_due(false);
        self.look();
        self.due()
    }

    fn push(&mut self, item: &Item) {
        let now = Instant::now();
        for group in &mut self.groups {
            group.push(now, item);
        }
    }

    /// Takes what has happened.
    fn follow(&mut self) {
        let events = self.service.events().since(self.next);
        let Some(last) = events.last() else { return };
        self.next = last.sequence + 1;
        for event in &events {
            self.push(&item_of(event));
            for item in self.conditions.follow(event) {
                self.push(&item);
            }
            self.look_again |= event.array.is_some();
        }
    }

    /// Looks at the arrays, one look at a time.
    fn look(&mut self) {
        let may = self.looking.is_none() && Instant::now() >= self.look_from;
        if may && std::mem::take(&mut self.look_again) {
            let service = Arc::clone(&self.service);
            self.begin_look(move || service.seen());
        }
    }

    fn begin_look(&mut self, look: impl FnOnce() -> Vec<Seen> + Send + 'static) {
        match rounds::blocking(look) {
            Ok(looking) => self.looking = Some(looking),
            Err(error) => self.looked(Err(error.to_string())),
        }
    }

    /// The end of a look. Of one that panicked nothing is known: all is as the last one saw it.
    fn looked(&mut self, looked: Result<Vec<Seen>, String>) {
        match self.looks.came(looked) {
            Some(seen) => self.take(seen),
            None => {
                self.look_again = true;
                self.look_from = Instant::now() + self.looks.pause();
            }
        }
    }

    fn take(&mut self, seen: Vec<Seen>) {
        self.arrays = seen;
        let time = now();
        let arrays: Vec<_> = self.arrays.iter().map(|seen| seen.array.clone()).collect();
        for item in self.conditions.look(&arrays, &time) {
            self.push(&item);
        }
        let open: Vec<Open> = self.conditions.open().cloned().collect();
        let now = Instant::now();
        for group in &mut self.groups {
            group.remind(now, &open, &time);
        }
        let unwritten = self.spool.unwritten();
        self.service.alerts().set_unwritten(unwritten);
        self.tell_unkept(unwritten);
        let done = self.groups.iter().map(Group::done).max();
        if done > Some(self.kept_to) && self.kept_at.elapsed() > KEEP_PERIOD {
            self.kept_to = done.unwrap_or_default();
            self.keep();
        }
    }

    /// Notes that messages cannot be kept on disk, and when they can again.
    fn tell_unkept(&mut self, unwritten: u64) {
        let unkept = unwritten > 0;
        if std::mem::replace(&mut self.unkept, unkept) == unkept {
            return;
        }
        let (event, cause, effect) = match unkept {
            true => (
                "alert_not_kept",
                Some(self.spool.why()),
                "what is not delivered is in memory alone: a restart of the daemon loses it",
            ),
            false => ("alert_kept", None, "what is not delivered is on disk again"),
        };
        self.service.events().note(Happened {
            event,
            cause,
            effect: Some(effect.to_owned()),
            ..Happened::default()
        });
    }

    fn due(&mut self) -> Option<Instant> {
        let now = Instant::now();
        self.groups
            .iter_mut()
            .filter_map(|group| group.due(now))
            .min()
    }

    /// Makes messages of the groups that are due, or of all.
    fn send_due(&mut self, all: bool) {
        let now = Instant::now();
        let mut sent = all;
        for (group, line) in self.groups.iter_mut().zip(&self.lines) {
            let Some((items, left_out)) = group.take(now, all) else {
                continue;
            };
            let draft = Draft {
                host: &host(),
                items: &items,
                left_out: &left_out,
                dropped: line.take_dropped(),
                arrays: &self.arrays,
            };
            line.push(draft.message());
            sent = true;
        }
        if sent {
            self.keep();
        }
    }

    /// Keeps what was told so far.
    fn keep(&mut self) {
        let told = self
            .groups
            .iter()
            .map(|group| (group.name().to_owned(), group.done()));
        self.spool.keep(&Kept {
            told: told.collect(),
            open: self.conditions.open().cloned().collect(),
        });
        self.kept_at = Instant::now();
    }
}

/// What a spool lost of a channel, or of what was so before.
fn lost(channel: Option<String>, why: String) -> Happened {
    match channel {
        Some(_) => Happened {
            event: "alert_dropped",
            cause: channel,
            effect: Some(why),
            ..Happened::default()
        },
        None => Happened {
            event: "alert_not_kept",
            cause: Some(why),
            effect: Some("what began or ended without a daemon is not told".to_owned()),
            ..Happened::default()
        },
    }
}

/// The end of a look; it never comes where none is under way.
async fn looked(looking: &mut Option<Looked>) -> Result<Vec<Seen>, String> {
    let Some(look) = looking else {
        return std::future::pending().await;
    };
    let seen = look.await;
    *looking = None;
    seen.unwrap_or_else(|ended| Err(ended.to_string()))
}

/// Delivers the messages of a channel, for as long as this is not dropped.
async fn deliver(line: Arc<Line>, events: Arc<EventLog>) {
    let mut rounds = Rounds::new("delivery of alerts", events);
    loop {
        let ended = rounds::caught_task(Arc::clone(&line).run()).await;
        if let Err(why) = &ended {
            line.failed(why);
        }
        if rounds.came(ended).is_some() {
            return;
        }
        tokio::time::sleep(rounds.pause()).await;
    }
}

/// Sends a test by each of these channels, all at once.
async fn answer(channels: Vec<Channel>, test: Test) {
    let mut work = JoinSet::new();
    for (at, name) in test.channels.iter().enumerate() {
        let Some(channel) = channels.iter().find(|channel| channel.name == *name) else {
            continue;
        };
        let channel = channel.clone();
        work.spawn(async move {
            let item = Item::Test { time: now() };
            let draft = Draft {
                host: &host(),
                items: &[item],
                left_out: &std::collections::BTreeMap::new(),
                dropped: 0,
                arrays: &[],
            };
            let message: Message = draft.message();
            let sent = Courier::new(&channel)
                .send(&message, &mut BTreeSet::new())
                .await;
            let error = match sent {
                Ok(Delivered::Wholly) => None,
                Ok(Delivered::Partly(_, why)) => Some(why),
                Err(refused) => Some(refused.why),
            };
            let result = AlertTestJson {
                channel: channel.name,
                delivered: error.is_none(),
                error,
                dry_run: false,
            };
            (at, result)
        });
    }
    let mut results = work.join_all().await;
    results.sort_by_key(|(at, _)| *at);
    // The client may have gone.
    let results = results.into_iter().map(|(_, result)| result);
    let _ = test.answer.send(results.collect());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ArrayJson;
    use crate::daemon::array::running::Limits;
    use crate::daemon::sources::Sources;
    use crate::daemon::state::Dir;

    fn missing() -> Seen {
        let array = ArrayJson {
            name: "data".to_owned(),
            uuid: "u".to_owned(),
            state: "stopped".to_owned(),
            not_found: true,
            ..ArrayJson::default()
        };
        Seen {
            array,
            ..Seen::default()
        }
    }

    /// It was taken for one that saw no array: an array that was missing was told to be there.
    #[test]
    fn a_look_that_panics_begins_and_ends_no_condition_and_is_told() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let dir = Dir::at(folder.path());
        dir.make().expect("folders");
        let service = Service::new(dir, Sources::default(), Limits::default());
        let service = Arc::new(service);
        let (spool, found) = Spool::open(&service.dir().alerts());
        let channel = "name = 'c'\nexec = { command = ['/bin/true'] }";
        let channel: Channel = toml::from_str(channel).expect("a channel");
        let mut teller = Teller::new(Arc::clone(&service), vec![channel], 0, spool, found);
        let runtime = crate::common::process::runtime().expect("a runtime");
        let _within = runtime.enter();
        let mut look = |look: fn() -> Vec<Seen>| {
            teller.begin_look(look);
            let came = runtime.block_on(looked(&mut teller.looking));
            teller.looked(came);
            let open = teller.conditions.open();
            (open.count(), teller.arrays.len(), teller.look_again)
        };
        assert_eq!(look(|| vec![missing()]), (1, 1, true));
        assert_eq!(look(|| panic!("a test")), (1, 1, true));
        let noted = service.events().since(0);
        let noted = noted.last().expect("an event");
        assert_eq!(noted.event, "daemon_task_failed");
        let cause = noted.cause.as_deref().unwrap_or_default();
        assert_eq!(cause, "looks of alerts at the arrays: a test");
        assert_eq!(look(Vec::new), (0, 0, true), "a look that saw none");
    }
}

//! What happened, when, why: a ring in memory, the same in a file (`journal`), and followers.
//!
//! Invariants: sequences grow by one; a follower that keeps up misses nothing, one that does not
//! misses the oldest; nothing is logged and no file is written under the lock. Deliberately absent:
//! mail and the like (`alerts`).

pub(crate) mod journal;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use strake_engine::Decision;
use strake_engine::event::{ErrorCounts, EventKind, FailCause, Instead, OutCause, StopCause};
use strake_format::{ArrayName, Level, Slot};
use strake_runtime::{EventRecord, NotTold};
use tokio::sync::{Notify, watch};

use crate::api::{ArrayJson, EventJson, SettingsJson};
use crate::common::events::Severity;
use crate::common::size;
use crate::common::time::rfc3339;
use crate::daemon::events::journal::Journal;
use crate::drives::find::Aside;
use crate::view::{self, out_cause};

const RING: usize = 4096;
/// So long the end of a process waits for its last events.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(crate) struct EventLog {
    inner: Mutex<Inner>,
    newest: watch::Sender<u64>,
    /// The same for the daemon itself, which is none of the clients that are counted.
    newest_within: watch::Sender<u64>,
    /// For the watcher of drives.
    news: Notify,
    /// Threads that may note more: one for each array.
    telling: AtomicUsize,
}

/// A thread that notes what an array tells, as long as this lives.
#[derive(Debug)]
pub(crate) struct Telling<'a>(&'a EventLog);

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        self.0.telling.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Inner {
    ring: VecDeque<EventJson>,
    next: u64,
    journal: Journal,
}

/// Some events that are kept, from a number on, and which numbers there are.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) events: Vec<EventJson>,
    /// The number of the oldest event that is kept; `next` where none is.
    pub(crate) oldest: u64,
    /// The number of the next event that is noted.
    pub(crate) next: u64,
}

/// An event before it has a number and a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Happened {
    pub(crate) array: Option<String>,
    /// The array's, where its name may mean another.
    pub(crate) uuid: Option<String>,
    pub(crate) event: &'static str,
    pub(crate) slot: Option<u8>,
    pub(crate) device: Option<String>,
    pub(crate) cause: Option<String>,
    pub(crate) effect: Option<String>,
    pub(crate) errno: Option<i32>,
    pub(crate) inconsistent_stripes: Option<u64>,
    pub(crate) repaired_stripes: Option<u64>,
}

impl Happened {
    /// The block device has grown, and its users cannot be told.
    pub(crate) fn size_not_told(array: &str, who: NotTold) -> Happened {
        let (device, cause, effect) = match who {
            NotTold::Ublk(id) => (
                Some(format!("/dev/ublkb{id}")),
                "the kernel's ublk did not take the new size (Linux has a way from 6.16 on)",
                format!("it keeps its old size until strake stop {array} and strake start {array}"),
            ),
            NotTold::Nbd(clients) => (
                None,
                "NBD has no word for a new size",
                format!(
                    "{} will see the new size after connecting anew",
                    size::count(clients, "client")
                ),
            ),
        };
        Happened {
            array: Some(array.to_owned()),
            event: "size_not_told",
            device,
            cause: text(cause),
            effect: Some(effect),
            ..Happened::default()
        }
    }
    /// Somebody changed settings; `None` where they are what they were.
    pub(crate) fn settings_changed(
        array: &str,
        before: &SettingsJson,
        after: &SettingsJson,
    ) -> Option<Happened> {
        let [before, after] = [before, after].map(|s| serde_json::to_value(s).unwrap_or_default());
        let all = after.as_object()?.iter();
        let other = all.filter(|(key, value)| before.get(key) != Some(value));
        let told = other.map(|(key, value)| {
            let was = before.get(key).map_or_else(String::new, unquoted);
            format!("{key}={} (was {was})", unquoted(value))
        });
        let told: Vec<String> = told.collect();
        (!told.is_empty()).then(|| Happened {
            array: Some(array.to_owned()),
            event: "settings_changed",
            cause: text("asked"),
            effect: Some(told.join(", ")),
            ..Happened::default()
        })
    }
    /// An array that does not run was given another name.
    pub(crate) fn renamed(from: &ArrayName, to: &ArrayName) -> Happened {
        Happened {
            array: Some(from.to_string()),
            event: "renamed",
            cause: text("asked"),
            effect: Some(called(to)),
            ..Happened::default()
        }
    }
}

impl EventLog {
    /// A log that goes on where the journal ends: the first of these files that can be written.
    pub(crate) fn open(paths: &[PathBuf]) -> EventLog {
        let (journal, before) = Journal::open(paths);
        let mut ring = VecDeque::from(before);
        while ring.len() > RING {
            ring.pop_front();
        }
        let next = ring.back().map_or(1, |last| last.sequence + 1);
        EventLog {
            inner: Mutex::new(Inner {
                ring,
                next,
                journal,
            }),
            newest: watch::Sender::new(next),
            newest_within: watch::Sender::new(next),
            news: Notify::new(),
            telling: AtomicUsize::new(0),
        }
    }

    /// Something was noted since this was asked last.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// From now on until this is dropped, a thread may note events.
    pub(crate) fn telling(&self) -> Telling<'_> {
        self.telling.fetch_add(1, Ordering::Relaxed);
        Telling(self)
    }

    /// Before the process ends: waits, not for ever, until all that arrays told is noted and
    /// durable.
    pub(crate) fn finish(&self) {
        let give_up = Instant::now() + END_PATIENCE;
        while self.telling.load(Ordering::Relaxed) > 0 && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(5));
        }
        let flushed = self.lock().journal.flush();
        if let Some(flushed) = flushed {
            // The journal's disk may have failed; the process ends all the same.
            let _ = flushed.recv_timeout(give_up.saturating_duration_since(Instant::now()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic under it leaves a number that is missing, at most.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an event now.
    pub(crate) fn note(&self, happened: Happened) {
        self.note_at(SystemTime::now(), happened);
    }

    /// Notes an event.
    pub(crate) fn note_at(&self, time: SystemTime, happened: Happened) {
        let mut inner = self.lock();
        let event = EventJson {
            sequence: inner.next,
            time: rfc3339(time),
            array: happened.array,
            uuid: happened.uuid,
            event: happened.event.to_owned(),
            severity: Severity::default(),
            slot: happened.slot,
            device: happened.device,
            cause: happened.cause,
            effect: happened.effect,
            errno: happened.errno,
            inconsistent_stripes: happened.inconsistent_stripes,
            repaired_stripes: happened.repaired_stripes,
        }
        .graded();
        inner.next += 1;
        let left_out = inner.journal.left_out();
        inner.journal.append(&event);
        let left_out = (inner.journal.left_out() > left_out).then_some(left_out + 1);
        if inner.ring.len() == RING {
            inner.ring.pop_front();
        }
        inner.ring.push_back(event.clone());
        let next = inner.next;
        drop(inner);
        self.newest.send_replace(next);
        self.newest_within.send_replace(next);
        self.news.notify_one();
        tracing::info!(
            array = event.array.as_deref(),
            slot = event.slot,
            device = event.device.as_deref(),
            cause = event.cause.as_deref(),
            errno = event.errno,
            effect = event.effect.as_deref(),
            "{}",
            event.event
        );
        if let Some(events) = left_out {
            tracing::warn!(
                events,
                "the journal of events does not keep up: events are not in it"
            );
        }
    }

    /// Events from `sequence` on, as far as they are still in memory.
    pub(crate) fn since(&self, sequence: u64) -> Vec<EventJson> {
        self.lock()
            .ring
            .iter()
            .filter(|e| e.sequence >= sequence)
            .cloned()
            .collect()
    }

    /// The same, no more than `most` of them at once.
    pub(crate) fn page(&self, sequence: u64, most: usize) -> Page {
        let inner = self.lock();
        // Numbers only grow, but some may be missing: what the journal could not keep.
        let begin = inner.ring.partition_point(|e| e.sequence < sequence);
        Page {
            events: inner.ring.iter().skip(begin).take(most).cloned().collect(),
            oldest: inner.ring.front().map_or(inner.next, |e| e.sequence),
            next: inner.next,
        }
    }

    /// Says why jobs of an array are paused: by what holds them now, else by the event of their
    /// stop.
    pub(crate) fn explain_pauses(&self, array: &mut ArrayJson) {
        let failed = array.state == "failed";
        let all_in_sync = array.members.iter().all(|m| m.state == "in_sync");
        let resyncs = array.jobs.iter().any(|job| job.kind == "resync");
        let stopped = array.moving.as_ref().is_some_and(|m| m.stopped);
        for job in array.jobs.iter_mut().filter(|job| job.paused) {
            let is = |e: &&EventJson| {
                let of = e.event == "job_stopped" && e.effect.as_ref() == Some(&job.kind);
                of && e.array.as_ref() == Some(&array.name)
            };
            job.paused_by = match job.kind.as_str() {
                _ if failed => text("array_failed"),
                "restripe" if stopped => text("asked"),
                "restripe" if !all_in_sync => text("members_missing"),
                "restripe" | "init" if resyncs => text("resync"),
                "init" if array.moving.is_some() => text("restripe"),
                _ => self
                    .lock()
                    .ring
                    .iter()
                    .rev()
                    .find(is)
                    .and_then(|e| e.cause.clone()),
            };
        }
    }

    /// Changes whenever an event is noted.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// The same, for the daemon itself.
    pub(crate) fn follow_within(&self) -> watch::Receiver<u64> {
        self.newest_within.subscribe()
    }

    /// The number of the last event; 0 where there was none.
    pub(crate) fn newest(&self) -> u64 {
        self.lock().next - 1
    }

    /// How many follow.
    pub(crate) fn followers(&self) -> usize {
        self.newest.receiver_count()
    }
}

/// It was found at the start and set aside: the engine, which was not given it, calls it not found.
pub(crate) const SET_ASIDE: &str = "set_aside";

/// Why a member left its slot, in a word, where these were found at the start and set aside.
pub(crate) fn out_cause_of(kind: &EventKind, aside: &[Aside]) -> Option<String> {
    match kind {
        EventKind::MemberOut { .. } if is_aside(kind, aside).is_some() => text(SET_ASIDE),
        EventKind::MemberOut { cause, .. } => text(out_cause(*cause)),
        _ => None,
    }
}

/// The device that was set aside, of a member that the engine was not given.
fn is_aside<'a>(kind: &EventKind, aside: &'a [Aside]) -> Option<&'a Aside> {
    let EventKind::MemberOut {
        cause: OutCause::NotFound,
        slot,
        ..
    } = kind
    else {
        return None;
    };
    aside.iter().find(|aside| aside.slot == Some(slot.0))
}

/// The same as [`describe`], where these were found at the start and set aside.
pub(crate) fn describe_with(array: &str, record: &EventRecord, aside: &[Aside]) -> Happened {
    let told = describe(array, record);
    match is_aside(&record.kind, aside) {
        None => told,
        Some(aside) => Happened {
            device: Some(aside.path.display().to_string()),
            cause: text(SET_ASIDE),
            effect: Some(format!(
                "{}; {}",
                aside.text(),
                told.effect.unwrap_or_default()
            )),
            ..told
        },
    }
}

fn stop_cause(cause: StopCause) -> &'static str {
    match cause {
        StopCause::Asked => "asked",
        StopCause::Membership => "membership",
        StopCause::Doubted => "member_doubted",
        StopCause::Unreadable => "unreadable",
        StopCause::ListFull => "unreadable_list_full",
        StopCause::Inconsistent => "inconsistent",
    }
}

/// What the runtime tells, in words.
pub(crate) fn describe(array: &str, record: &EventRecord) -> Happened {
    let (event, slot, cause, effect) = words(&record.kind);
    let (inconsistent_stripes, repaired_stripes) = match record.kind {
        EventKind::JobFinished {
            inconsistent,
            repaired,
            ..
        } => (Some(inconsistent), Some(repaired)),
        _ => (None, None),
    };
    Happened {
        array: Some(array.to_owned()),
        uuid: None,
        event,
        slot: slot.map(|s| s.0),
        device: record.device.as_ref().map(|p| p.display().to_string()),
        cause,
        effect,
        errno: record.errno,
        inconsistent_stripes,
        repaired_stripes,
    }
}

/// Name, slot, cause and effect of an event.
type Words = (&'static str, Option<Slot>, Option<String>, Option<String>);

fn words(kind: &EventKind) -> Words {
    match kind {
        EventKind::Started { .. }
        | EventKind::Forced { .. }
        | EventKind::Failed { .. }
        | EventKind::Renamed { .. }
        | EventKind::State { .. }
        | EventKind::Grown { .. }
        | EventKind::LevelRaised { .. }
        | EventKind::LevelLowered { .. }
        | EventKind::Stopped => array_words(kind),
        EventKind::MemberOut { .. }
        | EventKind::CountersReset { .. }
        | EventKind::MemberFailing { .. }
        | EventKind::MemberDoubted { .. }
        | EventKind::MemberNoLongerDoubted { .. }
        | EventKind::MemberFull { .. }
        | EventKind::MemberNoLongerFull { .. }
        | EventKind::SpareUsed { .. }
        | EventKind::Returned { .. }
        | EventKind::Rebuilt { .. }
        | EventKind::SpareAdded { .. }
        | EventKind::SpareGone { .. }
        | EventKind::MemberSlow { .. }
        | EventKind::MemberNoLongerSlow { .. }
        | EventKind::Removed { .. } => member_words(kind),
        EventKind::ReadError { .. }
        | EventKind::Repaired { .. }
        | EventKind::Unreadable { .. }
        | EventKind::GivenUp { .. }
        | EventKind::Rewritten { .. }
        | EventKind::LogReplayed { .. } => block_words(kind),
        EventKind::Mismatch { .. }
        | EventKind::Inconsistent { .. }
        | EventKind::Undecided { .. }
        | EventKind::Decided { .. } => found_words(kind),
        EventKind::JobStarted { .. }
        | EventKind::JobStopped { .. }
        | EventKind::JobFinished { .. } => job_words(kind),
    }
}

/// Without the quotes that JSON has.
fn unquoted(value: &serde_json::Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn called(name: &ArrayName) -> String {
    format!("called {name} from now on")
}

fn text(words: &str) -> Option<String> {
    Some(words.to_owned())
}

/// What befell the array as a whole, in words.
fn array_words(kind: &EventKind) -> Words {
    if let EventKind::Renamed { to, .. } = kind {
        return ("renamed", None, text("asked"), Some(called(to)));
    }
    match *kind {
        EventKind::Started { unclean } => {
            let cause = unclean.then(|| "unclean_stop_before".to_owned());
            ("started", None, cause, None)
        }
        EventKind::State { from, to } => {
            let cause = Some(format!("was {}", view::array_state(from)));
            ("state", None, cause, text(view::array_state(to)))
        }
        EventKind::Forced { bytes_max } => {
            let effect = format!("{bytes_max} bytes of missing members at most may be wrong");
            (
                "forced",
                None,
                text("unclean stop, members missing"),
                Some(effect),
            )
        }
        EventKind::Failed { cause } => {
            let cause = match cause {
                FailCause::MembersLost => "members_lost",
                FailCause::ListFull => "unreadable_list_full",
                FailCause::NumbersExhausted => "log_numbers_exhausted",
                FailCause::NoSpace => "no_space",
            };
            let effect = text("requests answer an error, nothing is written");
            ("failed", None, text(cause), effect)
        }
        EventKind::Grown {
            from_bytes,
            to_bytes,
        } => {
            let cause = Some(format!("was {from_bytes} bytes"));
            let effect = Some(format!("{to_bytes} bytes; what is new was never written"));
            ("grown", None, cause, effect)
        }
        EventKind::LevelRaised { from, to } => {
            let cause = Some(format!("was {from}"));
            // The copies of a mirror are its parity; of all else it has to be built.
            let effect = Some(match from {
                Level::Raid1 => format!("{to} from now on; its data moves to the new members"),
                _ => format!("{to}, once the parity is built"),
            });
            ("level_raised", None, cause, effect)
        }
        EventKind::LevelLowered { from, to } => {
            let cause = Some(format!("was {from}"));
            let effect = Some(match to {
                Level::Raid1 => format!("{to}; its parities are its copies"),
                _ => format!("{to}; what held the parity is a spare"),
            });
            ("level_lowered", None, cause, effect)
        }
        EventKind::Stopped => ("stopped", None, None, text("clean")),
        _ => unreachable!("only for the array"),
    }
}

/// Members that came and went, in words.
fn member_words(kind: &EventKind) -> Words {
    match *kind {
        EventKind::MemberOut {
            slot,
            cause,
            instead,
            ..
        } => {
            let effect = match instead {
                Instead::Others => "reads are answered from the others",
                Instead::SameSlot => "the member that has its slot now serves instead",
                Instead::Nothing => "no redundancy is left to do without it",
            };
            (
                "member_out",
                Some(slot),
                text(out_cause(cause)),
                text(effect),
            )
        }
        EventKind::MemberFailing { slot, .. } => {
            let effect = text("it serves until a spare has taken its place");
            ("member_failing", Some(slot), text("read_errors"), effect)
        }
        EventKind::MemberDoubted { slot, cause, .. } => {
            let effect = text(
                "it stays in service, as the level does not survive its loss: what is read from \
                 it may be wrong. Nothing is computed from it: rebuilds, resyncs and repairs wait. \
                 Stop the array and bring back what it held; the next start sets it aside",
            );
            ("member_doubted", Some(slot), text(out_cause(cause)), effect)
        }
        EventKind::MemberNoLongerDoubted { slot, .. } => {
            let effect = text(
                "jobs go on. A drive that was restored from an image lacks what was written \
                 meanwhile: strake scrub compares the members",
            );
            ("member_no_longer_doubted", Some(slot), None, effect)
        }
        EventKind::MemberFull { slot, .. } => {
            let effect = text(
                "its writes wait, since the level does not survive the loss of all members that \
                 have no space; they are tried again every second, and nothing is lost. Make room \
                 in the file system of the file, or extend the pool",
            );
            ("member_full", Some(slot), text("no_space"), effect)
        }
        EventKind::MemberNoLongerFull { slot, .. } => {
            ("member_no_longer_full", Some(slot), None, None)
        }
        EventKind::SpareUsed { slot, .. } => {
            ("spare_used", Some(slot), None, text("rebuild onto it"))
        }
        EventKind::Returned {
            slot, behind_bytes, ..
        } => {
            let effect = format!("{behind_bytes} bytes to be rebuilt, the rest used as it is");
            ("member_kept", Some(slot), None, Some(effect))
        }
        EventKind::Rebuilt { slot, partial, .. } => {
            let cause = if partial {
                "partial_rebuild"
            } else {
                "rebuild"
            };
            ("member_in_sync", Some(slot), text(cause), None)
        }
        EventKind::SpareAdded { .. } => ("spare_added", None, None, None),
        EventKind::SpareGone { cause, .. } => ("spare_gone", None, text(out_cause(cause)), None),
        EventKind::CountersReset { slot, before, .. } => {
            let effect = text("counted from zero again");
            ("counters_reset", slot, Some(had(before)), effect)
        }
        EventKind::MemberSlow {
            slot,
            write,
            usual_ns,
            peers_ns,
            ..
        } => {
            let what = if write { "writes" } else { "reads" };
            let (usual_us, peers_us) = (usual_ns.div_ceil(1000), peers_ns.div_ceil(1000));
            let cause = format!(
                "95 of 100 {what} take up to {usual_us} us, of the others up to {peers_us} us"
            );
            ("member_slow", Some(slot), Some(cause), None)
        }
        EventKind::MemberNoLongerSlow { slot, .. } => {
            ("member_no_longer_slow", Some(slot), None, None)
        }
        EventKind::Removed { slot, cause, .. } => (
            "removed",
            slot,
            cause.and_then(|c| text(out_cause(c))),
            None,
        ),
        _ => unreachable!("only for members"),
    }
}

/// What a member or an array had counted, in words.
fn had(counts: ErrorCounts) -> String {
    let ErrorCounts {
        reads,
        writes,
        mismatches,
        retries,
    } = counts;
    let tries = retries.tries;
    format!(
        "had {reads} read errors, {writes} write errors, {mismatches} mismatches, {tries} retries"
    )
}

/// What became of blocks, in words.
fn block_words(kind: &EventKind) -> Words {
    let at = |offset: u64| Some(format!("offset_bytes {offset}"));
    match *kind {
        EventKind::ReadError {
            slot,
            offset,
            instead,
            ..
        } => {
            let effect = match instead {
                Instead::Others => "answered from the others",
                Instead::SameSlot => "answered from the member that has its slot now",
                Instead::Nothing => "no redundancy is left: what cannot be read answers an error",
            };
            ("read_error", Some(slot), at(offset), text(effect))
        }
        EventKind::Repaired {
            slot, offset, len, ..
        } => {
            let effect = format!("{len} bytes rewritten");
            ("repaired", Some(slot), at(offset), Some(effect))
        }
        EventKind::Unreadable { offset, len } => {
            let effect = format!("{len} bytes answer an error until they are written");
            ("unreadable", None, at(offset), Some(effect))
        }
        EventKind::GivenUp { offset, len } => {
            let effect = format!("{len} bytes are lost and read as zeros: the list is full");
            ("given_up", None, at(offset), Some(effect))
        }
        EventKind::Rewritten { offset, len } => {
            let effect = format!("{len} bytes can be read again");
            ("rewritten", None, at(offset), Some(effect))
        }
        EventKind::LogReplayed {
            stripes,
            unreadable,
            ..
        } => {
            let effect = format!(
                "{} mended, {} unreadable",
                size::count(stripes, "stripe"),
                size::count(unreadable, "block")
            );
            ("log_replayed", None, text("unclean stop"), Some(effect))
        }
        _ => unreachable!("only for blocks"),
    }
}

/// How jobs go, in words.
fn job_words(kind: &EventKind) -> Words {
    match *kind {
        EventKind::JobStarted { kind, from_bytes } => {
            let effect = Some(format!("from byte {from_bytes}"));
            ("job_started", None, text(view::job_kind(kind)), effect)
        }
        EventKind::JobStopped { kind, cause } => {
            let effect = text(view::job_kind(kind));
            ("job_stopped", None, text(stop_cause(cause)), effect)
        }
        EventKind::JobFinished {
            kind,
            inconsistent,
            repaired,
        } => {
            let found = format!(
                "{} inconsistent, {repaired} repaired",
                size::count(inconsistent, "stripe")
            );
            let cause = text(view::job_kind(kind));
            ("job_finished", None, cause, Some(found))
        }
        _ => unreachable!("only for jobs"),
    }
}

/// What a scrub or a rebuild found, in words.
fn found_words(kind: &EventKind) -> Words {
    match *kind {
        EventKind::Mismatch {
            slot,
            offset,
            len,
            repaired,
            ..
        } => {
            let done = if repaired { "rewritten" } else { "left" };
            let cause = format!("offset_bytes {offset}");
            let effect = format!("{len} bytes that contradict the others, {done}");
            ("mismatch", Some(slot), Some(cause), Some(effect))
        }
        EventKind::Inconsistent {
            stripe,
            offset,
            from,
            len,
        } => {
            let cause = format!("{stripe}, with data from byte {offset} on");
            let effect = format!("bytes {from} to {} of each strip, left", from + len);
            ("inconsistent", None, Some(cause), Some(effect))
        }
        EventKind::Undecided { offset, len, built } => {
            let cause = text(match built {
                true => "rebuilt from strips that do not agree",
                false => "its strips do not agree, and the resync left them as they are",
            });
            let effect =
                format!("nothing is repaired in {len} bytes from offset_bytes {offset} on");
            ("undecided", None, cause, Some(effect))
        }
        EventKind::Decided { offset, len, cause } => {
            let cause = text(match cause {
                Decision::Agreed => "its strips agree",
                Decision::Accepted => "its data were taken for right",
                Decision::GivenBack => "it was discarded",
            });
            let effect = format!("{len} bytes from offset_bytes {offset} on");
            ("decided", None, cause, Some(effect))
        }
        _ => unreachable!("only for what is found"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_goes_on_where_the_file_ends() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let path = dir.path().join("events.jsonl");
        let log = EventLog::open(std::slice::from_ref(&path));
        log.note(Happened {
            event: "one",
            ..Happened::default()
        });
        log.note(Happened {
            event: "two",
            ..Happened::default()
        });
        drop(log);
        let log = EventLog::open(std::slice::from_ref(&path));
        log.note(Happened {
            event: "three",
            ..Happened::default()
        });
        let events: Vec<(u64, String)> = log
            .since(2)
            .into_iter()
            .map(|e| (e.sequence, e.event))
            .collect();
        assert_eq!(events, [(2, "two".to_owned()), (3, "three".to_owned())]);
    }
}

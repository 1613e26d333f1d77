//! What an array is asked, and how long its answer is waited for.
//!
//! A thread that waits for members takes its mail, so one that does not is lost or held by the
//! kernel (`thread::heartbeat`), and what it is to do may take for ever. A command is not begun
//! while one stands still; where one comes to stand still under it, the caller is told soon.
//!
//! Invariants:
//! * Every wait has a bound, and what is told names the thread.
//! * Waits are counted in steps. However long the whole process stood still (SIGSTOP) costs one
//!   step: when it goes on, the threads have time to answer before anything is said of them.
//!
//! Deliberately absent: what is done about a thread that stands still.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use strake_engine::event::{
    Changed, Command, CommandError, Op, RequestError, Slices, Stalled, Status,
};
use strake_engine::units::DeviceId;

use crate::error::ServeError;
use crate::mail::local::LocalClient;
use crate::mail::{Mail, Peers};
use crate::serve::Serving;
use crate::thread::heartbeat::{Heartbeat, STEP};

/// How long the array may take to become quiet, or to make a command durable: longer than members
/// that do not answer are waited for (three deadlines and what belongs to them), tries included,
/// with the deadline that the daemon gives them.
pub(super) const QUIET_PATIENCE: Duration = Duration::from_secs(320);
/// How long a question that the array answers at once may take: its thread waits for nothing.
pub(super) const ASK_PATIENCE: Duration = Duration::from_secs(10);
/// How long a thread may take to say which I/Os are late.
const LATE_PATIENCE: Duration = Duration::from_secs(1);
/// How long a thread may stand still under what has begun.
const STILL_PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// The thread that was asked has ended.
    Ended,
    /// What does not come to an end.
    Stalled(Stalled),
    /// The caller waits no longer, although all threads turn.
    GivenUp,
}

impl From<Unanswered> for ServeError {
    fn from(unanswered: Unanswered) -> ServeError {
        match unanswered {
            Unanswered::Ended => ServeError::Ended,
            Unanswered::Stalled(stalled) => ServeError::Silent(stalled),
            Unanswered::GivenUp => ServeError::Ended,
        }
    }
}

/// Waits for what threads of an array do, for as long as all of them turn and `left` lasts, of
/// which the wait takes what it needs.
pub(super) fn answer_of<T>(
    peers: &Peers,
    answer: &Receiver<T>,
    left: &mut Duration,
) -> Result<T, Unanswered> {
    answer_unless(peers, answer, left, |_| false)
}

/// The same, unless `gives_up` says after some time, while all threads turn, that it is in vain.
pub(super) fn answer_unless<T>(
    peers: &Peers,
    answer: &Receiver<T>,
    left: &mut Duration,
    mut gives_up: impl FnMut(Duration) -> bool,
) -> Result<T, Unanswered> {
    let all = *left;
    // Threads are asked where the answer is not there at once.
    let (mut beats, mut still_for) = (None::<Heartbeat>, Duration::ZERO);
    loop {
        let step = STEP.min(*left);
        match answer.recv_timeout(step) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Disconnected) => return Err(Unanswered::Ended),
            Err(RecvTimeoutError::Timeout) => *left -= step,
        }
        let still = beats
            .as_mut()
            .and_then(|beats| beats.silent().first().copied());
        match still {
            Some(_) => still_for += step,
            None => (beats, still_for) = (Some(Heartbeat::ask(peers)), Duration::ZERO),
        }
        if still.is_none() && gives_up(all - *left) {
            return Err(Unanswered::GivenUp);
        }
        if still_for >= STILL_PATIENCE || left.is_zero() {
            let waited = if still.is_some() { still_for } else { all };
            return Err(Unanswered::Stalled(Stalled {
                thread: still.map(|one| one.thread),
                in_kernel: still.is_some_and(|one| one.in_kernel),
                seconds: waited.as_secs(),
            }));
        }
    }
}

/// A command that was not begun, since the array was not to be heard.
pub(super) fn not_begun(error: &ServeError) -> CommandError {
    match error {
        ServeError::Silent(stalled) => CommandError::Silent(*stalled),
        _ => CommandError::NotServing,
    }
}

/// Whether a command may be carried out yet, although its caller has an error.
pub(super) fn is_under_way(error: &CommandError) -> bool {
    matches!(error, CommandError::Unfinished(_))
}

/// A request or a command that has begun; its end is not known.
#[derive(Debug)]
pub struct UnderWay(Awaited);

#[derive(Debug)]
enum Awaited {
    Request(Receiver<Result<Slices, RequestError>>),
    Command(Receiver<Result<Changed, CommandError>>),
}

impl UnderWay {
    /// Whether it has come to an end since, in whatever way: then the array does nothing of it any
    /// more.
    pub fn has_ended(&self) -> bool {
        let empty = Err(TryRecvError::Empty);
        match &self.0 {
            Awaited::Request(answer) => answer.try_recv().map(drop) != empty,
            Awaited::Command(answer) => answer.try_recv().map(drop) != empty,
        }
    }
}

/// Why a request of a caller that waits is not done.
#[derive(Debug)]
pub enum NotDone {
    /// It was refused, or failed.
    Failed(RequestError),
    /// The array does not answer it: it may be carried out yet.
    Unfinished(Stalled, UnderWay),
}

impl LocalClient {
    /// Gives a request to a shard's thread and waits for the answer, for as long as the array's
    /// threads turn and its members may take. Call it on no shard's thread.
    ///
    /// # Errors
    /// What the array answered; that it does not.
    pub fn ask(&self, op: Op) -> Result<Slices, NotDone> {
        let (sender, answer) = channel();
        let give = move |result| {
            // The receiver is gone only if its caller does not wait any more.
            let _ = sender.send(result);
        };
        self.submit(0, op, Box::new(give));
        let mut left = QUIET_PATIENCE;
        match answer_of(self.peers(), &answer, &mut left) {
            Ok(result) => result.map_err(NotDone::Failed),
            // A thread that has ended drops the request with its answer.
            Err(Unanswered::Ended | Unanswered::GivenUp) => {
                Err(NotDone::Failed(RequestError::Stopping))
            }
            Err(Unanswered::Stalled(stalled)) => {
                let request = UnderWay(Awaited::Request(answer));
                Err(NotDone::Unfinished(stalled, request))
            }
        }
    }
}

impl Serving {
    /// A question to the array's thread.
    pub(super) fn post<T>(&self, question: impl FnOnce(Sender<T>) -> Mail) -> Receiver<T> {
        let (sender, receiver) = channel();
        self.threads.peers.array().post(question(sender));
        receiver
    }

    /// What the array's thread answers at once, if it has not ended and turns.
    pub(super) fn ask<T>(
        &self,
        mut patience: Duration,
        question: impl FnOnce(Sender<T>) -> Mail,
    ) -> Result<T, ServeError> {
        let answer = self.post(question);
        Ok(answer_of(&self.threads.peers, &answer, &mut patience)?)
    }

    /// Asks every thread for a sign that it still takes its mail.
    pub fn heartbeat(&self) -> Heartbeat {
        Heartbeat::ask(&self.threads.peers)
    }

    /// Whether all its threads turn.
    ///
    /// # Errors
    /// One does not, and nothing was asked of it.
    pub fn turns(&self) -> Result<(), CommandError> {
        let still = self.heartbeat().still_after(ASK_PATIENCE);
        still.map_or(Ok(()), |stalled| Err(CommandError::Silent(stalled)))
    }

    /// Devices with an I/O that has taken longer than this and is waited for, and how long the
    /// oldest of each has, by threads that answer at once.
    pub fn late(&self, than: Duration) -> Vec<(DeviceId, Duration)> {
        let (answer, answers) = channel();
        for peer in self.threads.peers.iter() {
            peer.post(Mail::Late(than, answer.clone()));
        }
        drop(answer);
        let mut late = BTreeMap::new();
        let told = std::iter::from_fn(|| answers.recv_timeout(LATE_PATIENCE).ok());
        for (device, took) in told.flatten() {
            let oldest = late.entry(device).or_insert(took);
            *oldest = took.max(*oldest);
        }
        late.into_iter().collect()
    }

    /// Everything that `show` tells.
    ///
    /// # Panics
    /// If the array has been stopped meanwhile: see [`Serving::status_now`].
    pub fn status(&self) -> Status {
        self.status_now()
            .expect("shard 0 answers for as long as its array is served")
    }

    /// The same for an array that another thread may stop meanwhile.
    ///
    /// # Errors
    /// Its thread has ended, or does not answer.
    pub fn status_now(&self) -> Result<Status, ServeError> {
        self.status_within(ASK_PATIENCE)
    }

    /// The same, for a caller that waits no longer than this.
    ///
    /// # Errors
    /// As of [`Serving::status_now`].
    pub fn status_within(&self, patience: Duration) -> Result<Status, ServeError> {
        self.ask(patience, Mail::Status)
    }

    /// The same, where every thread answers: what the array's own thread says of an array is not
    /// all of it while another thread of it stands still.
    ///
    /// # Errors
    /// As of [`Serving::status_now`]; also where any other thread does not answer.
    pub fn status_of_all_within(&self, patience: Duration) -> Result<Status, ServeError> {
        match self.heartbeat().still_after(patience) {
            Some(stalled) => Err(ServeError::Silent(stalled)),
            None => self.status_within(patience),
        }
    }

    /// Carries out a command.
    ///
    /// # Errors
    /// Why it was refused, or failed; also that a thread stands still.
    pub fn command(&self, command: Command) -> Result<Changed, CommandError> {
        self.begin(command).map_err(|(error, _)| error)
    }

    /// The same, for a caller that is to know when a command ends that was begun and took too long.
    ///
    /// # Errors
    /// As of [`Serving::command`].
    pub fn begin(&self, command: Command) -> Result<Changed, (CommandError, Option<UnderWay>)> {
        self.turns().map_err(|error| (error, None))?;
        let answer = self.post(|answer| Mail::Command(command, answer));
        let mut left = QUIET_PATIENCE;
        match answer_of(&self.threads.peers, &answer, &mut left) {
            Ok(done) => done.map_err(|error| (error, None)),
            Err(Unanswered::Stalled(stalled)) => {
                let command = UnderWay(Awaited::Command(answer));
                Err((CommandError::Unfinished(stalled), Some(command)))
            }
            Err(Unanswered::Ended | Unanswered::GivenUp) => Err((CommandError::NotServing, None)),
        }
    }

    /// Whether it would carry out this command as things stand; nothing is done.
    ///
    /// # Errors
    /// Why it would refuse.
    pub fn preflight(&self, command: Command) -> Result<(), CommandError> {
        self.turns()?;
        self.ask(ASK_PATIENCE, |answer| Mail::Preflight(command, answer))
            .unwrap_or_else(|error| Err(not_begun(&error)))
    }
}

//! What is known of the channels, for `strake alert status` and metrics; and questions to them.
//!
//! Invariant: the lock is never held over I/O, so looking waits for no channel.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::{mpsc, oneshot};

use crate::api::{AlertChannelJson, AlertFailingJson, AlertTestJson};
use crate::common::errors::{Code, Failure};
use crate::common::time::rfc3339;

/// A channel is given its time, and a little more.
const TEST_PATIENCE: Duration = Duration::from_secs(310);

/// What helps where the file of the configuration is not used.
const CHECK: &str = "correct it until strake config check finds nothing, and start the daemon anew";

/// A test of these channels, and where its result goes.
#[derive(Debug)]
pub(super) struct Test {
    pub(super) channels: Vec<String>,
    pub(super) answer: oneshot::Sender<Vec<AlertTestJson>>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Board {
    channels: Mutex<Vec<AlertChannelJson>>,
    unwritten: AtomicU64,
    /// Why the file of the configuration is not used, and what holds instead.
    not_used: Mutex<Option<String>>,
    /// Why no channel delivers.
    over: Mutex<Option<String>>,
    tests: Mutex<Option<mpsc::UnboundedSender<Test>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board {
    /// The configuration has these channels. Tests of them wait in what is given back.
    pub(super) fn begin(&self, channels: Vec<AlertChannelJson>) -> mpsc::UnboundedReceiver<Test> {
        let (tests, asked) = mpsc::unbounded_channel();
        *locked(&self.channels) = channels;
        *locked(&self.tests) = Some(tests);
        asked
    }

    /// No channel delivers, until the daemon is restarted or [`Board::go_on`].
    pub(super) fn ended(&self, why: &str) {
        let now = rfc3339(SystemTime::now());
        *locked(&self.over) = Some(why.to_owned());
        for channel in locked(&self.channels).iter_mut() {
            channel.failing = true;
            channel.failing_since.get_or_insert_with(|| now.clone());
            channel.last_error = Some(why.to_owned());
            channel.last_error_at = Some(now.clone());
        }
    }

    /// The spool is open: what is wrong with a channel is found out anew.
    pub(super) fn go_on(&self) {
        *locked(&self.over) = None;
        for channel in locked(&self.channels).iter_mut() {
            channel.failing = false;
            channel.failing_since = None;
        }
    }

    /// The channels are not those of the file.
    pub(crate) fn set_configuration_not_used(&self, why: String) {
        *locked(&self.not_used) = Some(why);
    }
    pub(crate) fn configuration_not_used(&self) -> Option<String> {
        locked(&self.not_used).clone()
    }

    /// Something of a channel is changed.
    pub(super) fn with(&self, name: &str, change: impl FnOnce(&mut AlertChannelJson)) {
        let mut channels = locked(&self.channels);
        if let Some(channel) = channels.iter_mut().find(|channel| channel.name == name) {
            change(channel);
        }
    }

    /// Files of the spool that could not be written yet.
    pub(super) fn set_unwritten(&self, files: u64) {
        self.unwritten.store(files, Ordering::Relaxed);
    }
    pub(crate) fn unwritten(&self) -> u64 {
        self.unwritten.load(Ordering::Relaxed)
    }

    /// The channels.
    pub(crate) fn channels(&self) -> Vec<AlertChannelJson> {
        locked(&self.channels).clone()
    }

    /// Channels that are to tell of this array and do not deliver.
    pub(crate) fn failing(&self, array: &str) -> Vec<AlertFailingJson> {
        let channels = locked(&self.channels);
        let tells = |channel: &&AlertChannelJson| {
            channel.arrays.is_empty() || channel.arrays.iter().any(|name| name == array)
        };
        let failing = channels.iter().filter(|channel| channel.failing);
        let failing = failing.filter(tells).map(|channel| AlertFailingJson {
            channel: channel.name.clone(),
            since: channel.failing_since.clone(),
            error: channel.last_error.clone(),
        });
        failing.collect()
    }

    /// Sends a test by a channel, or by all, and answers what came of it. Blocks.
    ///
    /// # Errors
    /// There is no such channel, or none at all.
    pub(crate) fn test(
        &self,
        name: Option<&str>,
        dry_run: bool,
    ) -> Result<Vec<AlertTestJson>, Failure> {
        let mut names: Vec<String> = self.channels().into_iter().map(|c| c.name).collect();
        if names.is_empty() {
            return Err(match self.configuration_not_used() {
                Some(why) => Failure::new(Code::ConfigInvalid, why).cure(CHECK),
                None => {
                    let found = "the configuration of the daemon has no [[alerts]]";
                    Failure::new(Code::ChannelNotFound, found)
                }
            });
        }
        if let Some(name) = name {
            let found = format!(
                "no channel has the name '{name}': there are {}",
                names.join(", ")
            );
            names.retain(|channel| channel == name);
            if names.is_empty() {
                return Err(Failure::new(Code::ChannelNotFound, found));
            }
        }
        if dry_run {
            let would = |channel| AlertTestJson {
                channel,
                delivered: false,
                error: None,
                dry_run,
            };
            return Ok(names.into_iter().map(would).collect());
        }
        let (answer, answered) = oneshot::channel();
        let test = Test {
            channels: names,
            answer,
        };
        let sent = locked(&self.tests).as_ref().map(|tests| tests.send(test));
        sent.and_then(Result::ok).ok_or_else(|| self.gone())?;
        let wait = async { tokio::time::timeout(TEST_PATIENCE, answered).await };
        let done = tokio::runtime::Handle::current().block_on(wait);
        let late = |_| {
            let bound = TEST_PATIENCE.as_secs();
            Failure::new(
                Code::Internal,
                format!("the alerts gave no answer for {bound} s"),
            )
        };
        done.map_err(late)?.map_err(|_| self.gone())
    }

    fn gone(&self) -> Failure {
        let over = locked(&self.over);
        let why = over.as_deref().unwrap_or("the daemon ends");
        Failure::new(Code::Internal, format!("no alert is delivered: {why}"))
    }
}

//! What the service manager is told: when the daemon is ready, that it is well, that it ends.
//!
//! Ready: the first look at the drives is over, and so are the starts of it: every array that was
//! complete serves. Arrays that wait for members do not hold up the start of the machine. Well:
//! every thread of every array has taken its mail lately; the manager kills and restarts a daemon
//! that says nothing for `WatchdogSec`, and the kernel keeps the block devices for the next one. A
//! thread that the kernel holds in uninterruptible sleep (a drive that hangs) counts as well: to
//! kill the daemon would not end that sleep, and would take the other arrays from their users.
//!
//! Invariants: this runs on the daemon's own thread, so it also shows that that thread turns. It
//! waits for nothing but a manager that does not read its socket; what hangs elsewhere never keeps
//! the message back. Without a manager nothing is asked and nothing is sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use strake_format::ArrayUuid;
use strake_runtime::{Heartbeat, Silent};
use tokio::sync::oneshot;

use crate::daemon::array::running::Running;
use crate::daemon::service::Service;

/// The first look may take this long before the daemon says that it is ready all the same: units
/// that are ordered behind it may need other arrays.
const FIRST_LOOK: Duration = Duration::from_secs(60);
/// So often within the manager's patience are threads asked.
const BEATS: u32 = 4;

/// Tells the manager, if there is one.
fn tell(state: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager is not told");
    }
}

/// The daemon ends.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Tells that the daemon is ready after its first look and what that starts, and from then on, for
/// ever, that it is well.
pub(crate) async fn keep_informed(service: Arc<Service>, looked: oneshot::Receiver<()>) {
    match tokio::time::timeout(FIRST_LOOK, looked).await {
        Ok(Ok(())) => {}
        Ok(Err(_)) => tracing::warn!("drives are not looked at any more: ready all the same"),
        Err(_) => {
            let seconds = FIRST_LOOK.as_secs();
            tracing::warn!(
                "drives are still being looked at, or arrays started, after {seconds} s: ready all \
                 the same"
            );
        }
    }
    tell(&[NotifyState::Ready]);
    let Some(patience) = sd_notify::watchdog_enabled() else {
        return;
    };
    let mut beats = Beats::default();
    loop {
        beats.ask(&service.all_running());
        tokio::time::sleep(patience / BEATS).await;
        if beats.all_well() {
            tell(&[NotifyState::Watchdog]);
        }
    }
}

/// What the threads of all arrays were asked.
#[derive(Default)]
struct Beats {
    asked: BTreeMap<ArrayUuid, Asked>,
}

struct Asked {
    name: String,
    heartbeat: Heartbeat,
    /// Threads that were silent at the last look: the log has them.
    silent: Vec<Silent>,
}

impl Beats {
    /// Asks the threads of these arrays. One with a thread that has not answered is not asked again
    /// until it has.
    fn ask(&mut self, running: &[Arc<Running>]) {
        let serves = |uuid: ArrayUuid| {
            let mut running = running.iter();
            running.any(|array| array.uuid == uuid && !array.is_stopping())
        };
        // The threads of one that is being stopped end.
        self.asked.retain(|uuid, _| serves(*uuid));
        for array in running {
            let waits = |asked: &Asked| !asked.silent.is_empty();
            if self.asked.get(&array.uuid).is_some_and(waits) {
                continue;
            }
            let Some(heartbeat) = array.heartbeat() else {
                continue;
            };
            let asked = Asked {
                name: array.name().to_string(),
                heartbeat,
                silent: Vec::new(),
            };
            self.asked.insert(array.uuid, asked);
        }
    }

    /// Whether no thread is silent but those that the kernel holds. The log says which are.
    fn all_well(&mut self) -> bool {
        let mut well = true;
        for asked in self.asked.values_mut() {
            let silent = asked.heartbeat.silent();
            for one in silent.iter().filter(|one| !asked.silent.contains(one)) {
                let (array, thread) = (&asked.name, one.thread);
                match one.in_kernel {
                    true => tracing::warn!(
                        %array,
                        thread,
                        "the kernel holds the thread: a drive may hang"
                    ),
                    false => tracing::error!(%array, thread, "the thread does not turn"),
                }
            }
            well &= silent.iter().all(|one| one.in_kernel);
            asked.silent = silent;
        }
        well
    }
}

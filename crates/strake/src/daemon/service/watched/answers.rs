//! What arrays are shown as: those in service by what they answer, others by what their drives say.
//!
//! Invariants: arrays in service are asked at the same time, so that those that do not answer cost
//! a look one patience, however many they are; an array in service is never shown as stopped: it is
//! `unresponsive` while its threads do not answer, and `stopping` until its stop has ended. Drives
//! are looked at first and arrays asked then, so that one that goes into service meanwhile is seen.
//!
//! Deliberately absent: asking drives while arrays are only counted (`unanswered` goes by the last
//! look at all drives).

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use crate::api::ArrayJson;
use crate::common::errors::{Code, Failure};
use crate::daemon::array::running::Running;
use crate::daemon::service::{Service, locked};
use crate::drives::find;
use crate::drives::find::FoundArray;
use crate::view;

/// What one look at all drives finds.
pub(crate) struct Look {
    pub(crate) found: Vec<FoundArray>,
    /// Devices that did not answer it, or could not be read.
    pub(crate) unread: Vec<PathBuf>,
}

/// What is kept of it: the arrays as if none were in service.
#[derive(Debug, Default)]
pub(in crate::daemon::service) struct LastLook {
    pub(in crate::daemon::service) found: Vec<ArrayJson>,
    pub(in crate::daemon::service) unread: Vec<PathBuf>,
}

impl Service {
    /// Looks at all drives.
    pub(crate) fn look(&self) -> Look {
        let find::Scan { members, unread } = find::scan_within(&self.looks, &self.paths());
        let found = find::group(members);
        let told = |array: &FoundArray| self.dir.told_destroyed(self.not_served(array));
        let last = LastLook {
            found: found.iter().map(told).collect(),
            unread: unread.clone(),
        };
        *locked(&self.last_look) = last;
        Look { found, unread }
    }

    /// Asks each array in service the same, all at once.
    pub(crate) fn ask_all<T: Send>(
        &self,
        ask: impl Fn(&Running) -> Result<T, Failure> + Sync,
    ) -> Vec<(Arc<Running>, Result<T, Failure>)> {
        let all = self.all_running();
        thread::scope(|scope| {
            let ask = &ask;
            let asked = all.into_iter().map(|running| {
                let asked = Arc::clone(&running);
                let asks = move || ask(&asked);
                let name = format!("ask {}", running.name());
                (
                    running,
                    strake_runtime::spawn_scoped_thread(scope, name, asks),
                )
            });
            let asked: Vec<_> = asked.collect();
            let answer = |(running, thread): (Arc<Running>, _)| {
                let answer = match thread {
                    Ok(thread) => thread::ScopedJoinHandle::join(thread)
                        .unwrap_or_else(|_| Err(panicked(&running))),
                    // It has to wait for its turn.
                    Err(_) => ask(&running),
                };
                (running, answer)
            };
            asked.into_iter().map(answer).collect()
        })
    }

    /// All arrays, running or not.
    pub(crate) fn show(&self) -> Vec<ArrayJson> {
        let Look { found, unread } = self.look();
        let answers = self.ask_all(Running::json);
        let mut all: Vec<ArrayJson> = Vec::new();
        for (running, answer) in answers {
            let array = answer.unwrap_or_else(|_| self.unanswered(&running));
            all.push(self.placed(array));
        }
        let known: Vec<String> = all.iter().map(|a| a.uuid.clone()).collect();
        all.extend(
            found
                .iter()
                .filter(|a| !known.contains(&a.uuid.to_string()))
                .map(|found| self.placed(self.as_it_is(found))),
        );
        let may_be_on: Vec<String> = unread.iter().map(|p| p.display().to_string()).collect();
        let missing = self.missing_beside(&found).into_iter();
        all.extend(missing.map(|one| ArrayJson {
            may_be_on: may_be_on.clone(),
            ..self.with_alerts(self.of_missing(&one))
        }));
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// One array, running or not.
    pub(crate) fn show_one(&self, name: &str) -> Result<ArrayJson, Failure> {
        let found = match self.running_or(name, || self.scan(&[])) {
            Ok(running) => return Ok(self.placed(self.answer(&running))),
            Err(found) => found,
        };
        match find::pick(found, name, self.dir().meant(name)) {
            Ok(found) => Ok(self.placed(self.as_it_is(&found))),
            Err(failure) if failure.code == Code::ArrayNotFound => self.show_missing(name, failure),
            Err(failure) => Err(failure),
        }
    }

    /// The array in service of that name or uuid, or what a look finds: none that goes into service
    /// during the look is taken for one that does not serve.
    pub(crate) fn running_or<T>(
        &self,
        name: &str,
        look: impl FnOnce() -> T,
    ) -> Result<Arc<Running>, T> {
        if let Some(running) = self.find_running(name) {
            return Ok(running);
        }
        let found = look();
        self.find_running(name).ok_or(found)
    }

    /// What an array in service answers.
    fn answer(&self, running: &Running) -> ArrayJson {
        running.json().unwrap_or_else(|_| self.unanswered(running))
    }

    /// An array found, which may have gone into service since.
    fn as_it_is(&self, found: &FoundArray) -> ArrayJson {
        let mut running = self.all_running().into_iter();
        match running.find(|one| one.uuid == found.uuid) {
            Some(running) => self.answer(&running),
            None => self.not_served(found),
        }
    }

    /// An array in service that does not answer, or stops: by what its drives said at the last look
    /// at all drives. No drive is asked.
    pub(crate) fn unanswered(&self, running: &Running) -> ArrayJson {
        let uuid = running.uuid.to_string();
        let found = self.last_found().into_iter().find(|a| a.uuid == uuid);
        let state = match running.is_stopping() {
            true => "stopping",
            false => "unresponsive",
        };
        let device = running.record().ublk;
        ArrayJson {
            name: running.name().to_string(),
            uuid,
            state: state.to_owned(),
            startable: None,
            not_found: false,
            device: device.map(|id| format!("/dev/ublkb{id}")),
            ..found.unwrap_or_default()
        }
    }

    /// An array found that is not in service here: another process may serve it.
    pub(crate) fn not_served(&self, found: &FoundArray) -> ArrayJson {
        match self.is_running(found.uuid) {
            true => found.stopped_json(),
            false => self.dir.told_older(found, found.not_served_json().0),
        }
    }

    /// An array with the channels of alerts that are to tell of it and do not.
    pub(crate) fn with_alerts(&self, array: ArrayJson) -> ArrayJson {
        ArrayJson {
            alerts_failing: self.alerts.failing(&array.name),
            ..array
        }
    }

    /// An array with what was said of it here.
    pub(crate) fn placed(&self, array: ArrayJson) -> ArrayJson {
        let mut array = self.dir.told_destroyed(self.with_alerts(array));
        self.events.explain_pauses(&mut array);
        array.daemon = true;
        match array.uuid.parse() {
            Ok(uuid) => {
                let array = self.dir.seats(uuid).shown(array);
                view::with_placement(array, &self.dir.placement(uuid))
            }
            Err(_) => array,
        }
    }
}

/// What is said of an array that could not be asked for a fault of this program.
fn panicked(running: &Running) -> Failure {
    let found = format!(
        "looking at {} ended with a panic: see the log",
        running.name()
    );
    Failure::new(Code::NotServing, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{CreateRequest, StartRequest};
    use crate::daemon::array::running::Limits;
    use crate::daemon::sources::Sources;
    use crate::daemon::state::Dir;

    /// It was shown as stopped, and to be started first.
    #[test]
    fn an_array_that_goes_into_service_during_a_look_is_shown_as_it_is() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("a");
        let file = std::fs::File::create(&path).expect("made");
        file.set_len(32 << 20).expect("sparse");
        let dir = Dir::at(&folder.path().join("run"));
        dir.make().expect("folders");
        let service = Service::new(dir, Sources::default(), Limits::default());
        let request = serde_json::json!({
            "name": "data", "level": "0", "devices": [path], "export": "none",
        });
        let request: CreateRequest = serde_json::from_value(request).expect("a request");
        service.create(request).expect("made");
        service.stop("data", false).expect("stopped");
        let starts = || {
            let found = service.scan(&[]);
            let started = service.start("data", StartRequest::default());
            started.expect("it is whole");
            found
        };
        let running = service.running_or("data", starts);
        assert!(running.is_ok(), "it serves");
        service.stop("data", false).expect("stopped");
        let found = starts().remove(0);
        assert_eq!(service.as_it_is(&found).state, "optimal");
        service.stop("data", false).expect("stopped");
        assert_eq!(service.as_it_is(&found).state, "stopped");
        service.stop_all();
    }
}

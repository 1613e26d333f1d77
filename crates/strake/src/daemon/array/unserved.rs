//! Volumes of an array in service that could not be served: why, and when each is tried again.
//!
//! Invariants: a volume is here or it is served; the pause between two tries grows. Deliberately
//! absent: the tries (`service::volumes`).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use strake_format::VolumeUuid;

use crate::common::errors::Failure;

/// Between two tries.
const PAUSE_MIN: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Unserved(Mutex<BTreeMap<VolumeUuid, Try>>);

#[derive(Debug)]
struct Try {
    why: String,
    again_at: Instant,
    pause: Duration,
}

impl Unserved {
    fn all(&self) -> MutexGuard<'_, BTreeMap<VolumeUuid, Try>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A try has failed. Whether it was the first.
    pub(crate) fn failed(&self, volume: VolumeUuid, why: &Failure, now: Instant) -> bool {
        let mut all = self.all();
        let before = all.get(&volume).map(|last| last.pause);
        let pause = before.map_or(PAUSE_MIN, |pause| (pause * 2).min(PAUSE_MAX));
        let failed = Try {
            why: why.found.clone(),
            again_at: now + pause,
            pause,
        };
        all.insert(volume, failed);
        before.is_none()
    }

    /// It is served, or there is no such volume any more.
    pub(crate) fn ended(&self, volume: VolumeUuid) {
        self.all().remove(&volume);
    }

    /// Why it is not served.
    pub(crate) fn why(&self, volume: VolumeUuid) -> Option<String> {
        Some(self.all().get(&volume)?.why.clone())
    }

    /// Those that are to be tried now.
    pub(crate) fn due(&self, now: Instant) -> Vec<VolumeUuid> {
        let all = self.all();
        let due = all.iter().filter(|(_, last)| now >= last.again_at);
        due.map(|(volume, _)| *volume).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::errors::Code;
    use crate::daemon::array::emptied::tests::serving;

    #[test]
    fn the_pause_between_two_tries_grows_up_to_a_minute() {
        let unserved = Unserved::default();
        let volume = VolumeUuid([1; 16]);
        let why = Failure::new(Code::Io, "the device is busy");
        let mut now = Instant::now();
        assert!(unserved.failed(volume, &why, now), "the first failure");
        let mut pauses = Vec::new();
        for _ in 0..7 {
            let begun = now;
            while unserved.due(now).is_empty() {
                now += Duration::from_secs(1);
            }
            pauses.push((now - begun).as_secs());
            assert!(!unserved.failed(volume, &why, now));
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(unserved.why(volume).as_deref(), Some("the device is busy"));
        unserved.ended(volume);
        assert_eq!(unserved.why(volume), None);
        assert!(unserved.due(now + PAUSE_MAX).is_empty());
    }

    /// One thread had them all: those of arrays behind one that hangs waited for up to five
    /// minutes a volume, and so did what used the devices that a killed daemon had left.
    #[test]
    fn volumes_of_one_array_that_hangs_hold_up_those_of_no_other() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let service = serving(&folder, &["a", "b"]);
        let volume = VolumeUuid([1; 16]);
        let why = Failure::new(Code::Io, "the device is busy");
        let all = service.all_running();
        for running in &all {
            let long_ago = Instant::now() - PAUSE_MIN;
            running.volumes.unserved.failed(volume, &why, long_ago);
        }
        let is_tried = |n: usize| all[n].volumes.unserved.why(volume).is_none();
        let until = |what: &str, is_so: &dyn Fn() -> bool| {
            let patience = Instant::now() + Duration::from_secs(60);
            while !is_so() {
                assert!(Instant::now() < patience, "{what}");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        std::thread::scope(|scope| {
            let hangs = all[0].carved();
            scope.spawn(|| service.serve_volumes());
            until("the other to be tried", &|| is_tried(1));
            assert!(!is_tried(0));
            drop(hangs);
        });
        until("it to be tried, too", &|| is_tried(0));
        service.stop_all();
    }
}

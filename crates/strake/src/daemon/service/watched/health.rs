//! What drives tell of themselves: asked from time to time, kept for all that look.
//!
//! Invariants: what is kept is of drives in use now; [`Service::told`] asks no drive, so that one
//! that hangs holds up no monitoring. Deliberately absent: what the bytes of a drive mean
//! (`drives::machine::health`), and history (`daemon::state::wear`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::api::{MemberJson, WearJson, WearMemberJson};
use crate::common::errors::Failure;
use crate::daemon::array::running::Running;
use crate::daemon::events::Happened;
use crate::daemon::service::{Service, locked};
use crate::drives::machine::health;
use crate::drives::machine::health::Health;
use crate::drives::machine::sysfs;

/// How often drives are looked for that were not asked yet.
pub(crate) const PERIOD_NEW: Duration = Duration::from_secs(10);

/// What a drive told when it was asked last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DriveTold {
    pub(crate) model: Option<String>,
    pub(crate) serial: Option<String>,
    pub(crate) firmware: Option<String>,
    /// NVMe drives alone have it.
    pub(crate) wear: Option<DriveWear>,
}

/// How a drive wears.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DriveWear {
    pub(crate) temperature_c: i32,
    /// Of its endurance; may exceed 100.
    pub(crate) percentage_used: u8,
    pub(crate) available_spare_percent: u8,
    pub(crate) media_errors: u128,
    /// Critical warnings that hold now.
    pub(crate) warnings: usize,
}

impl DriveTold {
    fn of(health: &Health) -> DriveTold {
        let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        DriveTold {
            model: known(&health.model),
            serial: known(&health.serial),
            firmware: known(&health.firmware),
            wear: Some(DriveWear {
                temperature_c: health.temperature_c,
                percentage_used: health.percentage_used,
                available_spare_percent: health.available_spare_percent,
                media_errors: health.media_errors,
                warnings: health.warnings.len(),
            }),
        }
    }

    /// Of a device without such logs: what the kernel knows.
    fn of_kernel(device: &Path) -> DriveTold {
        let (model, serial) = sysfs::model_and_serial(device);
        DriveTold {
            model,
            serial,
            ..DriveTold::default()
        }
    }
}

impl Service {
    /// Asks the drives of all arrays in service how they are; what is new becomes events.
    pub(crate) fn ask_drives(&self) {
        self.ask(true);
    }

    /// The same for those that were not asked yet.
    pub(crate) fn ask_new_drives(&self) {
        self.ask(false);
    }

    fn ask(&self, all: bool) {
        let answers = self.ask_all(Running::json).into_iter();
        let arrays: Vec<_> = answers
            .filter_map(|(running, array)| Some((running, array.ok()?)))
            .collect();
        let in_use: BTreeSet<String> = arrays
            .iter()
            .flat_map(|(_, array)| array.members_and_spares())
            .filter_map(|member| member.device.clone())
            .collect();
        let asked = in_use
            .iter()
            .filter(|device| all || self.told(device).is_none());
        let answers = self.health_of(asked.map(PathBuf::from).collect());
        for (running, array) in &arrays {
            let mut worn = Vec::new();
            for member in array.members_and_spares() {
                let Some(device) = &member.device else {
                    continue;
                };
                let Some(answer) = answers.get(Path::new(device)) else {
                    continue;
                };
                let Ok(health) = answer else {
                    let told = DriveTold::of_kernel(Path::new(device));
                    locked(&self.told).insert(device.clone(), told);
                    continue;
                };
                locked(&self.told).insert(device.clone(), DriveTold::of(health));
                worn.push((device.clone(), health.percentage_used));
                for news in self.wear.note(SystemTime::now(), health) {
                    self.events.note(Happened {
                        array: Some(array.name.clone()),
                        slot: member.slot,
                        device: Some(device.clone()),
                        ..news
                    });
                }
            }
            if all {
                self.relieve_worn(running, &worn);
            }
        }
        // Another drive may come to have the path of one that is gone.
        locked(&self.told).retain(|device, _| in_use.contains(device));
    }

    /// Asks these drives, all at once: what each says, or why it says nothing. A drive that hangs
    /// holds up none of the others.
    fn health_of(&self, devices: Vec<PathBuf>) -> BTreeMap<PathBuf, Result<Health, String>> {
        let look = |path: &Path| (path.to_owned(), health::of(path));
        let answers = self.health_looks.each(&devices, look);
        let because = |why: &str, path| (path, Err(why.to_owned()));
        let silent = answers.silent.into_iter();
        let mut all: BTreeMap<_, _> = devices
            .into_iter()
            .map(|path| because("not there", path))
            .collect();
        all.extend(silent.map(|path| because("no answer", path)));
        all.extend(answers.found);
        all
    }

    /// What the drive at this path told when it was asked last.
    pub(crate) fn told(&self, device: &str) -> Option<DriveTold> {
        locked(&self.told).get(device).cloned()
    }

    /// How the drives of an array in service wear, over the time `since` (all that is known where
    /// there is none).
    pub(crate) fn wear(&self, name: &str, since: Option<Duration>) -> Result<WearJson, Failure> {
        let array = self.running(name)?.json()?;
        let devices = array
            .members_and_spares()
            .filter_map(|member| member.device.as_ref());
        let answers = self.health_of(devices.map(PathBuf::from).collect());
        let of = |member: &MemberJson| {
            let device = member.device.as_ref().map(Path::new);
            let health = device.and_then(|device| answers.get(device).cloned());
            let health = health.unwrap_or_else(|| Err("no device".to_owned()));
            let (wear, reason) = match health {
                Ok(health) => (self.wear.member(SystemTime::now(), since, &health), None),
                Err(reason) => (WearMemberJson::default(), Some(reason)),
            };
            WearMemberJson {
                slot: member.slot,
                device: member.device.clone(),
                reason,
                ..wear
            }
        };
        let members = array.members_and_spares().map(of).collect();
        Ok(WearJson {
            name: array.name,
            members,
        })
    }
}

//! What drives tell of themselves: asked from time to time, kept for all that look.
//!
//! Invariants: what is kept is of drives in use now; [`Service::told`] asks no drive, so that one
//! that hangs holds up no monitoring. Deliberately absent: what the bytes of a drive mean
//! (`drives::machine::health`), and history (`daemon::state::wear`).

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::api::{MemberJson, WearJson, WearMemberJson};
use crate::common::errors::Failure;
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
        let mut in_use = BTreeSet::new();
        for running in self.all_running() {
            let Ok(array) = running.json() else { continue };
            let mut worn = Vec::new();
            for member in array.members.iter().chain(&array.spares) {
                let Some(device) = &member.device else {
                    continue;
                };
                in_use.insert(device.clone());
                if !all && locked(&self.told).contains_key(device) {
                    continue;
                }
                let Ok(health) = health::of(Path::new(device)) else {
                    let told = DriveTold::of_kernel(Path::new(device));
                    locked(&self.told).insert(device.clone(), told);
                    continue;
                };
                locked(&self.told).insert(device.clone(), DriveTold::of(&health));
                worn.push((device.clone(), health.percentage_used));
                for news in self.wear.note(SystemTime::now(), &health) {
                    self.events.note(Happened {
                        array: Some(array.name.clone()),
                        slot: member.slot,
                        device: Some(device.clone()),
                        ..news
                    });
                }
            }
            if all {
                self.relieve_worn(&running, &worn);
            }
        }
        // Another drive may come to have the path of one that is gone.
        locked(&self.told).retain(|device, _| in_use.contains(device));
    }

    /// What the drive at this path told when it was asked last.
    pub(crate) fn told(&self, device: &str) -> Option<DriveTold> {
        locked(&self.told).get(device).cloned()
    }

    /// How the drives of an array in service wear, over the time `since` (all that is known where
    /// there is none).
    pub(crate) fn wear(&self, name: &str, since: Option<Duration>) -> Result<WearJson, Failure> {
        let array = self.running(name)?.json()?;
        let of = |member: &MemberJson| {
            let health = match &member.device {
                Some(device) => health::of(Path::new(device)),
                None => Err("no device".to_owned()),
            };
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
        let members = array.members.iter().chain(&array.spares).map(of).collect();
        Ok(WearJson {
            name: array.name,
            members,
        })
    }
}

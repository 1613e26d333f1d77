//! What a study needs of this machine where Strake serves its array: the daemon; and, whatever
//! serves it, what its drives are and count.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use strake_format::Level;
use strake_study::definition::Shape;
use strake_study::real::{ArraySeen, Host, JobSeen, Kind, Way};
use strake_study::rig::Wear;

use crate::api::*;
use crate::cli::client::Client;
use crate::cli::url;
use crate::commands::study::consent;
use crate::common::errors::{Code, Failure};
use crate::drives::machine::health;
use crate::drives::machine::sysfs::{self, Identity};

/// How long an array may be in use after a load has ended.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) client: Client,
}

/// One line for the step that failed.
fn told(failure: Failure) -> String {
    format!("{}; {}", failure.found, failure.cure)
}

impl Machine {
    fn post(&self, name: &str, verb: &str, body: &impl serde::Serialize) -> Result<(), Failure> {
        self.client
            .post::<OutcomeJson>(&url(name, verb)?, body)
            .map(|_| ())
    }

    fn member(&self, name: &str, verb: &str, slot: usize) -> Result<(), Failure> {
        let request = MemberRequest {
            member: slot.to_string(),
            dry_run: false,
        };
        self.post(name, verb, &request)
    }

    fn make(&self, name: &str, shape: &Shape, devices: &[PathBuf]) -> Result<(), Failure> {
        let request = CreateRequest {
            name: name.to_owned(),
            level: shape.level.to_string(),
            strip_bytes: shape.strip,
            group_size: shape.group_size,
            write_hole: match shape.level {
                // Without parity there is nothing to protect.
                Level::Raid0 | Level::Raid1 | Level::Raid10 => None,
                _ => Some(shape.write_hole.to_string()),
            },
            latency_target_us: None,
            cpus: None,
            shards: None,
            memory_limit_bytes: None,
            requests: None,
            pool: None,
            degraded: None,
            init: shape.zeroed.then(|| "zero".to_owned()),
            block_bytes: None,
            devices: devices.to_vec(),
            spares: Vec::new(),
            export: None,
            force: true,
            dry_run: false,
        };
        self.client.post::<CreatedJson>("/v1/arrays", &request)?;
        if let Some(priority) = shape.rebuild_priority {
            let settings = SettingsJson {
                rebuild_priority: Some(priority),
                ..SettingsJson::default()
            };
            let path = url(name, "settings")?;
            self.client.call::<OutcomeJson>("PATCH", &path, &settings)?;
        }
        Ok(())
    }

    pub(super) fn show(&self, name: &str) -> Result<Option<ArrayJson>, Failure> {
        match self.client.get::<ArrayJson>(&url(name, "")?) {
            Ok(array) => Ok(Some(array)),
            Err(failure) if failure.code == Code::ArrayNotFound => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// The member's device is wiped before it comes back, so that it comes as a new one.
    fn give(&self, name: &str, slot: usize, device: &Path) -> Result<(), Failure> {
        match self.member(name, "remove", slot) {
            // A step that was cut off has done it.
            Err(failure) if failure.code == Code::MemberNotFound => {}
            removed => removed?,
        }
        let devices = vec![device.to_owned()];
        let clean = CleanRequest {
            devices,
            dry_run: false,
        };
        match self.client.post::<CleanedJson>("/v1/drives/clean", &clean) {
            // Taking it out may have wiped it.
            Err(failure) if failure.code == Code::NotAMember => {}
            cleaned => drop(cleaned?),
        }
        let request = DeviceRequest {
            member: None,
            device: Some(device.to_owned()),
            force: true,
            dry_run: false,
        };
        self.post(name, "add", &request)
    }

    fn forget(&self, name: &str) -> Result<(), Failure> {
        let give_up = Instant::now() + PATIENCE;
        if self
            .show(name)?
            .is_some_and(|array| array.state != "stopped")
        {
            loop {
                match self.post(name, "stop", &DryRequest::default()) {
                    // A client of it is just letting go.
                    Err(failure)
                        if failure.code == Code::ArrayInUse && Instant::now() < give_up =>
                    {
                        std::thread::sleep(Duration::from_millis(100));
                    }
                    stopped => break stopped?,
                }
            }
        }
        let path = url(name, "")?;
        let gone = self
            .client
            .call::<OutcomeJson>("DELETE", &path, &DryRequest::default());
        gone.map(|_| ())
    }
}

/// Whatever serves the array.
pub(super) fn free(devices: &[PathBuf]) -> Result<(), String> {
    consent::free(devices).map_err(told)
}

/// The same.
pub(super) fn kind(device: &Path) -> Result<Kind, String> {
    let Identity::Block(rdev) = sysfs::identity(device).map_err(told)? else {
        return Ok(Kind::File);
    };
    let folder = Path::new("/sys/dev/block").join(sysfs::dev_text(rdev));
    let is_nvme = sysfs::name_of(rdev).is_some_and(|name| name.starts_with("nvme"));
    Ok(
        match is_nvme && folder.exists() && !folder.join("partition").exists() {
            true => Kind::Nvme,
            false => Kind::Block,
        },
    )
}

/// The same.
pub(super) fn wear_of(device: &Path) -> Result<Wear, String> {
    let health = health::of(device)?;
    Ok(wear(&health))
}

impl Host for Machine {
    fn way(&self, way: Way, name: &str) -> String {
        match way {
            Way::Find => "strake scan".to_owned(),
            Way::Show => format!("strake show {name}"),
            Way::Start => format!("strake start {name}"),
            Way::Destroy => format!("strake destroy {name}"),
        }
    }

    fn free(&self, devices: &[PathBuf]) -> Result<(), String> {
        free(devices)
    }

    fn kind(&self, device: &Path) -> Result<Kind, String> {
        kind(device)
    }

    fn create(
        &self,
        name: &str,
        shape: &Shape,
        devices: &[PathBuf],
    ) -> Result<Vec<String>, String> {
        self.make(name, shape, devices).map_err(told)?;
        Ok(Vec::new())
    }

    fn array(&self, name: &str) -> Result<Option<ArraySeen>, String> {
        let array = self.show(name).map_err(told)?;
        Ok(array.map(|array| ArraySeen {
            device: array.device.filter(|_| array.state != "stopped"),
            bytes: array.size_bytes,
            members: array
                .members
                .into_iter()
                .map(|member| (member.device.map(PathBuf::from), member.state))
                .collect(),
            jobs: array
                .jobs
                .into_iter()
                .map(|job| JobSeen {
                    kind: job.kind,
                    done_bytes: job.done_bytes,
                    total_bytes: job.total_bytes,
                    paused_by: job.paused_by,
                })
                .collect(),
        }))
    }

    fn fail(&self, name: &str, slot: usize) -> Result<(), String> {
        self.member(name, "fail", slot).map_err(told)
    }

    fn renew(&self, name: &str, slot: usize, device: &Path) -> Result<(), String> {
        self.give(name, slot, device).map_err(told)
    }

    fn scrub(&self, name: &str) -> Result<(), String> {
        let request = JobRequest {
            action: "start".to_owned(),
            repair: false,
            halt: false,
            dry_run: false,
        };
        self.post(name, "scrub", &request).map_err(told)
    }

    fn destroy(&self, name: &str) -> Result<(), String> {
        self.forget(name).map_err(told)
    }

    fn wear(&self, device: &Path) -> Result<Wear, String> {
        wear_of(device)
    }
}

fn wear(health: &health::Health) -> Wear {
    let media = health.media_counter();
    Wear {
        host_read: Some(health.host_read_bytes as f64),
        host_written: Some(health.host_written_bytes as f64),
        host_unit: health::SMART_UNIT as f64,
        media_written: media.map(|(bytes, _)| bytes as f64),
        media_unit: media.map_or(0.0, |(_, unit)| unit as f64),
    }
}

#[cfg(test)]
mod tests {
    use strake_study::definition::Figure;
    use strake_study::result::StepResult;

    use super::*;
    use crate::drives::machine::health::{Pages, decode};

    /// Log pages as a drive gives them: so many units to it, so many bytes to its flash.
    fn pages(units: u128, ocp: Option<u128>, solidigm: Option<u32>) -> Pages {
        let page = |values: &[(usize, &[u8])]| {
            let mut page = vec![0; 512];
            for (at, bytes) in values {
                page[*at..at + bytes.len()].copy_from_slice(bytes);
            }
            page
        };
        let guid = [
            0xc5, 0xaf, 0x10, 0x28, 0xea, 0xbf, 0xf2, 0xa4, 0x9c, 0x4f, 0x6f, 0x7c, 0xc9, 0x14,
            0xd5, 0xaf,
        ];
        Pages {
            controller: vec![0; 4096],
            smart: page(&[(32, &7u128.to_le_bytes()), (48, &units.to_le_bytes())]),
            endurance_group: None,
            fdp: None,
            ocp: ocp.map(|bytes| page(&[(0, &bytes.to_le_bytes()), (496, &guid)])),
            solidigm: solidigm.map(|n| page(&[(0, &[0xf4]), (5, &n.to_le_bytes())])),
        }
    }

    #[test]
    fn write_amplification_of_a_load_comes_from_log_pages_before_and_after_it() {
        let wear = |pages: &Pages| wear(&decode(pages));
        let waf = |before: Pages, after: Pages| {
            let mut step = StepResult::default();
            step.wear(&[wear(&before)], &[wear(&after)], None, None);
            (step.figures.get(&Figure::Waf).copied(), step.missing)
        };
        // 1000 units are 512 MB; the flash took 1.21 times as much.
        let ocp = |units, bytes| pages(units, Some(bytes), None);
        let (found, _) = waf(ocp(5000, 9_000_000_000), ocp(6000, 9_619_520_000));
        assert!(
            found.is_some_and(|waf| (waf - 1.21).abs() < 1e-9),
            "{found:?}"
        );
        // The vendor's log counts 32 MiB each.
        let (found, _) = waf(pages(0, None, Some(10)), pages(65_536, None, Some(1_210)));
        assert!(
            found.is_some_and(|waf| (waf - 1.2).abs() < 1e-9),
            "{found:?}"
        );
        // As QEMU's drive: what was written to it, and nothing of its flash.
        let (found, missing) = waf(pages(0, None, None), pages(1000, None, None));
        assert_eq!(found, None);
        assert!(missing[&Figure::Waf].contains("flash"), "{missing:?}");
        assert_eq!(wear(&pages(0, None, None)).host_read, Some(7.0 * 512_000.0));
    }
}

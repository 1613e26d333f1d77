//! How worn and how well an NVMe drive is: what its logs say, as values.
//!
//! Sources: NVM Express Base Specification (SMART / Health log 02h, Endurance Group log 09h; both
//! little endian; FDP Statistics log 22h), OCP Datacenter NVMe SSD Specification (log C0h),
//! Solidigm's additional SMART log (CAh: items of 12 bytes, a key first, a raw value of six bytes
//! at 5).
//!
//! Invariants: a page is believed only where it says itself what it is (the OCP page by its GUID)
//! or the drive's vendor is known for it; what a drive does not report is `None`, never zero.
//! Deliberately absent: asking the drive (`runtime::device::nvme`), and history
//! (`daemon::state::wear`).

use std::fs::File;
use std::path::Path;

use strake_runtime::device::nvme;

use crate::drives::machine::sysfs;

/// Bytes of each of the log pages.
const PAGE_BYTES: usize = 512;
const SMART: u8 = 0x02;
const ENDURANCE_GROUP: u8 = 0x09;
const FDP_STATISTICS: u8 = 0x22;
/// Bytes of that page.
const FDP_BYTES: usize = 64;
/// Of a controller's identify data: its attributes, and the one of placement handles.
const CTRATT: usize = 96;
const CTRATT_FDP: u128 = 1 << 19;
const OCP: u8 = 0xc0;
const SOLIDIGM: u8 = 0xca;
/// Bytes of a data unit of the SMART log: a thousand blocks of 512.
pub(crate) const SMART_UNIT: u64 = 512_000;
/// Bytes of a unit of Solidigm's log, and of the endurance group's.
const SOLIDIGM_UNIT: u64 = 32 << 20;
const GROUP_UNIT: u64 = 1_000_000_000;
/// PCI vendors with the log CAh that is read here: Intel and Solidigm.
const SOLIDIGM_VENDORS: [u16; 2] = [0x8086, 0x025e];
/// Of a controller's identify data: the temperature that it warns of.
const WCTEMP: usize = 266;
/// 0 °C, as drives count.
const KELVIN: i32 = 273;
/// At the end of the OCP page, as it lies there.
const OCP_GUID: [u8; 16] = [
    0xc5, 0xaf, 0x10, 0x28, 0xea, 0xbf, 0xf2, 0xa4, 0x9c, 0x4f, 0x6f, 0x7c, 0xc9, 0x14, 0xd5, 0xaf,
];

/// What a drive reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) model: String,
    pub(crate) serial: String,
    /// Its revision.
    pub(crate) firmware: String,
    /// What is wrong, in words; empty where nothing is.
    pub(crate) warnings: Vec<&'static str>,
    pub(crate) temperature_c: i32,
    pub(crate) available_spare_percent: u8,
    /// The drive warns below this.
    pub(crate) spare_threshold_percent: u8,
    /// From here on the drive takes its temperature for too high, where it says so.
    pub(crate) warm_from_c: Option<i32>,
    /// The drive's own estimate; may exceed 100.
    pub(crate) percentage_used: u8,
    pub(crate) power_on_hours: u128,
    pub(crate) unsafe_shutdowns: u128,
    pub(crate) media_errors: u128,
    /// Read by hosts since the drive was made.
    pub(crate) host_read_bytes: u128,
    /// Written by hosts since the drive was made.
    pub(crate) host_written_bytes: u128,
    /// Written to its media since then, where it tells.
    pub(crate) media_written_bytes: Option<u128>,
    /// Which log told of the media.
    pub(crate) media_from: Option<&'static str>,
    /// Written to its media, in bytes, since it has had placement handles: only what is added to
    /// it means something beside what hosts wrote.
    pub(crate) fdp_media_bytes: Option<u128>,
    /// Writes below its write granularity, where it tells (OCP).
    pub(crate) unaligned_ios: Option<u64>,
}

/// The bytes that a drive gave; a page that it does not have is `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    pub(crate) controller: Vec<u8>,
    pub(crate) smart: Vec<u8>,
    pub(crate) endurance_group: Option<Vec<u8>>,
    pub(crate) fdp: Option<Vec<u8>>,
    pub(crate) ocp: Option<Vec<u8>>,
    pub(crate) solidigm: Option<Vec<u8>>,
}

/// Asks a drive. The error says why there is no answer.
pub(crate) fn of(path: &Path) -> Result<Health, String> {
    let told = |error: std::io::Error| error.to_string();
    let identity = sysfs::identity(path).map_err(|failure| failure.found)?;
    let name = match identity {
        sysfs::Identity::Block(rdev) => sysfs::name_of(rdev),
        sysfs::Identity::File(..) => None,
    };
    if !name.is_some_and(|name| name.starts_with("nvme")) {
        return Err("not an NVMe drive".to_owned());
    }
    let file = File::open(path).map_err(told)?;
    let controller = nvme::identify_controller(&file).map_err(told)?;
    let vendor = u16_at(&controller, 0);
    let page = |id, specific| nvme::log_page(&file, id, specific, PAGE_BYTES).ok();
    let attributes = number(&controller, CTRATT, 4);
    let group = nvme::identify_namespace(&file).map_or(0, |namespace| u16_at(&namespace, 102));
    let pages = Pages {
        smart: nvme::log_page(&file, SMART, 0, PAGE_BYTES).map_err(told)?,
        // Zero: the namespace belongs to no endurance group.
        endurance_group: (group != 0).then(|| page(ENDURANCE_GROUP, group)).flatten(),
        // A drive on which placement is off refuses.
        fdp: (group != 0 && attributes & CTRATT_FDP != 0)
            .then(|| nvme::log_page(&file, FDP_STATISTICS, group, FDP_BYTES).ok())
            .flatten(),
        ocp: page(OCP, 0),
        solidigm: SOLIDIGM_VENDORS
            .contains(&vendor)
            .then(|| page(SOLIDIGM, 0))
            .flatten(),
        controller,
    };
    Ok(decode(&pages))
}

impl Health {
    /// Bytes written to the media, in the finest unit that the drive has, and that unit. Not since
    /// the drive was made: for what is added to it between two looks.
    pub(crate) fn media_counter(&self) -> Option<(u128, u64)> {
        let unit = match self.media_from {
            Some("ocp") => 1,
            Some("solidigm") => SOLIDIGM_UNIT,
            _ => GROUP_UNIT,
        };
        let of_life = self.media_written_bytes.map(|bytes| (bytes, unit));
        let fdp = self.fdp_media_bytes.map(|bytes| (bytes, 1));
        of_life.into_iter().chain(fdp).min_by_key(|(_, unit)| *unit)
    }
}

/// Little-endian bytes from `at`, as many as are asked for.
fn number(page: &[u8], at: usize, bytes: usize) -> u128 {
    let value = page.get(at..at + bytes).unwrap_or_default();
    let digit = |all: u128, &byte: &u8| all << 8 | u128::from(byte);
    value.iter().rev().fold(0, digit)
}

fn u16_at(page: &[u8], at: usize) -> u16 {
    number(page, at, 2) as u16
}

fn text(page: &[u8], at: usize, bytes: usize) -> String {
    let bytes = page.get(at..at + bytes).unwrap_or_default();
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Critical warnings of the SMART log, by bit.
const WARNINGS: [&str; 6] = [
    "available spare below threshold",
    "temperature beyond threshold",
    "reliability degraded",
    "media read only",
    "volatile memory backup failed",
    "persistent memory region unreliable",
];

/// What the pages say.
pub(crate) fn decode(pages: &Pages) -> Health {
    let smart = &pages.smart;
    let warned = |bit: &usize| smart.first().is_some_and(|w| w >> bit & 1 == 1);
    let media = media(pages);
    let ocp = pages.ocp.as_deref().filter(|page| is_ocp(page));
    // Zero: not reported.
    let warm = Some(u16_at(&pages.controller, WCTEMP)).filter(|&kelvin| kelvin != 0);
    Health {
        serial: text(&pages.controller, 4, 20),
        model: text(&pages.controller, 24, 40),
        firmware: text(&pages.controller, 64, 8),
        warnings: (0..WARNINGS.len())
            .filter(warned)
            .map(|bit| WARNINGS[bit])
            .collect(),
        temperature_c: i32::from(u16_at(smart, 1)) - KELVIN,
        available_spare_percent: number(smart, 3, 1) as u8,
        spare_threshold_percent: number(smart, 4, 1) as u8,
        warm_from_c: warm.map(|kelvin| i32::from(kelvin) - KELVIN),
        percentage_used: number(smart, 5, 1) as u8,
        power_on_hours: number(smart, 128, 16),
        unsafe_shutdowns: number(smart, 144, 16),
        media_errors: number(smart, 160, 16),
        host_read_bytes: number(smart, 32, 16).saturating_mul(u128::from(SMART_UNIT)),
        host_written_bytes: number(smart, 48, 16).saturating_mul(u128::from(SMART_UNIT)),
        media_written_bytes: media.map(|(bytes, _)| bytes),
        media_from: media.map(|(_, from)| from),
        fdp_media_bytes: pages.fdp.as_deref().map(|page| number(page, 16, 16)),
        unaligned_ios: ocp.map(|page| number(page, 136, 8) as u64),
    }
}

fn is_ocp(page: &[u8]) -> bool {
    page.get(496..512) == Some(&OCP_GUID)
}

/// Bytes written to the media, by the finest unit that the drive has: bytes, 32 MiB, 10^9 bytes.
fn media(pages: &Pages) -> Option<(u128, &'static str)> {
    if let Some(page) = pages.ocp.as_deref().filter(|page| is_ocp(page)) {
        return Some((number(page, 0, 16), "ocp"));
    }
    let items = pages
        .solidigm
        .as_deref()
        .unwrap_or_default()
        .chunks_exact(12);
    let nand = |item: &&[u8]| item[0] == 0xf4;
    if let Some(item) = items.clone().find(nand) {
        return Some((number(item, 5, 6) * u128::from(SOLIDIGM_UNIT), "solidigm"));
    }
    let page = pages.endurance_group.as_deref()?;
    // Zero: not reported.
    let units = Some(number(page, 80, 16)).filter(|&units| units != 0)?;
    Some((
        units.saturating_mul(u128::from(GROUP_UNIT)),
        "endurance_group",
    ))
}

#[cfg(test)]
mod recorded;

#[cfg(test)]
mod tests {
    use super::*;

    fn page(values: &[(usize, &[u8])]) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        for (at, bytes) in values {
            page[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        page
    }

    /// As a drive at 41 °C with a worn spare gives it.
    fn smart() -> Vec<u8> {
        page(&[
            (0, &[0b1001]),
            (1, &314u16.to_le_bytes()),
            (3, &[9, 10, 93]),
            (32, &3_000_000u128.to_le_bytes()),
            (48, &2_000_000u128.to_le_bytes()),
            (128, &8760u128.to_le_bytes()),
            (144, &12u128.to_le_bytes()),
            (160, &3u128.to_le_bytes()),
        ])
    }

    fn controller() -> Vec<u8> {
        let mut page = vec![b' '; IDENTIFY];
        page[0..2].copy_from_slice(&0x025eu16.to_le_bytes());
        page[4..10].copy_from_slice(b"PHAX01");
        page[24..33].copy_from_slice(b"D5-P5336 ");
        page[64..70].copy_from_slice(b"5CV102");
        page[266..268].copy_from_slice(&343u16.to_le_bytes());
        page
    }
    const IDENTIFY: usize = 4096;

    #[test]
    fn the_smart_log_is_read_by_the_specification_s_offsets() {
        let health = decode(&Pages {
            controller: controller(),
            smart: smart(),
            ..Pages::default()
        });
        assert_eq!((&*health.model, &*health.serial), ("D5-P5336", "PHAX01"));
        assert_eq!(health.firmware, "5CV102");
        assert_eq!(
            health.warnings,
            ["available spare below threshold", "media read only"]
        );
        assert_eq!(health.temperature_c, 41);
        assert_eq!(health.available_spare_percent, 9);
        assert_eq!(health.spare_threshold_percent, 10);
        assert_eq!(health.warm_from_c, Some(70));
        assert_eq!(health.percentage_used, 93);
        assert_eq!(health.power_on_hours, 8760);
        assert_eq!((health.unsafe_shutdowns, health.media_errors), (12, 3));
        assert_eq!(health.host_read_bytes, 1_536_000_000_000);
        assert_eq!(health.host_written_bytes, 1_024_000_000_000);
        assert_eq!(
            health.media_written_bytes, None,
            "what is not told is not zero"
        );
    }

    #[test]
    fn media_writes_come_from_the_finest_log_that_names_itself() {
        let group = page(&[(80, &7u128.to_le_bytes())]);
        let mut solidigm = page(&[(0, &[0xf5]), (5, &[1, 0, 0, 0, 0, 0])]);
        solidigm[12] = 0xf4;
        solidigm[17..23].copy_from_slice(&[0, 1, 0, 0, 0, 0]);
        let ocp = page(&[
            (0, &123_456_789u128.to_le_bytes()),
            (136, &42u64.to_le_bytes()),
            (496, &OCP_GUID),
        ]);
        let mut pages = Pages {
            smart: smart(),
            endurance_group: Some(group),
            ..Pages::default()
        };
        let told = |pages: &Pages| {
            let health = decode(pages);
            (
                health.media_written_bytes,
                health.media_from,
                health.unaligned_ios,
            )
        };
        assert_eq!(
            told(&pages),
            (Some(7_000_000_000), Some("endurance_group"), None)
        );
        pages.solidigm = Some(solidigm);
        assert_eq!(
            told(&pages),
            (Some(256 * (32 << 20)), Some("solidigm"), None)
        );
        // Another vendor's page C0h.
        pages.ocp = Some(page(&[(0, &1u128.to_le_bytes())]));
        assert_eq!(told(&pages).1, Some("solidigm"));
        pages.ocp = Some(ocp);
        assert_eq!(told(&pages), (Some(123_456_789), Some("ocp"), Some(42)));
    }

    #[test]
    fn media_writes_of_placement_stand_beside_those_of_all_of_the_drive_s_life() {
        let fdp = page(&[(0, &5u128.to_le_bytes()), (16, &6u128.to_le_bytes())]);
        let pages = Pages {
            smart: smart(),
            endurance_group: Some(page(&[(80, &7u128.to_le_bytes())])),
            fdp: Some(fdp[..FDP_BYTES].to_vec()),
            ..Pages::default()
        };
        let health = decode(&pages);
        assert_eq!(health.fdp_media_bytes, Some(6));
        assert_eq!(health.media_counter(), Some((6, 1)));
        assert_eq!(health.media_from, Some("endurance_group"));
        let health = decode(&Pages { fdp: None, ..pages });
        assert_eq!(health.fdp_media_bytes, None);
        assert_eq!(health.media_counter(), Some((7_000_000_000, GROUP_UNIT)));
        assert_eq!(decode(&Pages::default()).media_counter(), None);
    }

    #[test]
    fn pages_of_any_length_are_survived() {
        for bytes in [0, 1, 5, 13, 100, 511] {
            let short = vec![0xff; bytes];
            decode(&Pages {
                controller: short.clone(),
                smart: short.clone(),
                endurance_group: Some(short.clone()),
                fdp: Some(short.clone()),
                ocp: Some(short.clone()),
                solidigm: Some(short),
            });
        }
    }

    #[test]
    fn a_file_is_no_nvme_drive() {
        let file = tempfile::NamedTempFile::new().expect("a folder for temporary files");
        assert_eq!(of(file.path()), Err("not an NVMe drive".to_owned()));
        assert!(of(Path::new("/does/not/exist")).is_err());
    }
}

//! What stands for figures that are unknown: ranges, by what the data lies on.
//!
//! The bounds cover the drives of the catalogue of which the figure is known, and for failures,
//! unreadable sectors and prices what is published of such drives; `docs/explanation/foresight.md`
//! has the list.

use crate::drive::{Drive, Media};
use crate::value::{Figure, Source};
use crate::wear::{greedy, spare_of};

/// Drive writes a day are rated for so many days.
const WARRANTY_DAYS: f64 = 5.0 * 365.0;
/// What a page of flash costs beside data in a sequential stream.
const SEQUENTIAL: f64 = 1.02;

/// What is known of a drive.
#[derive(Default)]
pub(super) struct Known {
    pub(super) unit: Option<Figure>,
    pub(super) read: Option<Figure>,
    pub(super) write: Option<Figure>,
    pub(super) read_iops: Option<Figure>,
    pub(super) write_iops: Option<Figure>,
    pub(super) write_iops_size: Option<Figure>,
    pub(super) link: Option<Figure>,
    pub(super) over_provisioning: Option<Figure>,
    pub(super) mix: Option<Figure>,
    pub(super) read_latency: Option<Figure>,
    pub(super) write_latency: Option<Figure>,
    pub(super) endurance_sequential: Option<Figure>,
    pub(super) endurance_random: Option<Figure>,
    pub(super) dwpd: Option<Figure>,
    pub(super) watts_active: Option<Figure>,
    pub(super) watts_idle: Option<Figure>,
    pub(super) afr: Option<Figure>,
    pub(super) uber: Option<Figure>,
    pub(super) price_gb: Option<Figure>,
}

/// Bounds of figures that are unknown.
struct Bounds {
    unit: (f64, f64),
    read: (f64, f64),
    write: (f64, f64),
    read_iops: (f64, f64),
    spare: (f64, f64),
    /// Programs and erases of a cell.
    cycles: (f64, f64),
    read_latency: (f64, f64),
    write_latency: (f64, f64),
    afr: (f64, f64),
    uber: (f64, f64),
    price_gb: (f64, f64),
}

fn bounds(media: Media) -> Bounds {
    let flash = Bounds {
        unit: (4096.0, 4096.0 * 4.0),
        read: (3e9, 14e9),
        write: (2e9, 8e9),
        read_iops: (0.7e6, 2.5e6),
        spare: (0.07, 0.28),
        cycles: (3e3, 1e4),
        read_latency: (60e-6, 150e-6),
        write_latency: (10e-6, 30e-6),
        afr: (0.0044, 0.0125),
        uber: (1e-18, 1e-17),
        price_gb: (0.07, 0.25),
    };
    match media {
        Media::Tlc => flash,
        Media::Slc => Bounds {
            unit: (4096.0, 4096.0),
            cycles: (5e4, 1e5),
            price_gb: (0.5, 2.0),
            ..flash
        },
        Media::Qlc => Bounds {
            unit: (16384.0, 65536.0),
            read: (7e9, 14.6e9),
            write: (2e9, 3.6e9),
            read_iops: (0.8e6, 3e6),
            spare: (0.10, 0.14),
            cycles: (1e3, 3e3),
            read_latency: (80e-6, 200e-6),
            ..flash
        },
        Media::Hdd => Bounds {
            unit: (4096.0, 4096.0),
            read: (120e6, 290e6),
            write: (120e6, 290e6),
            read_iops: (80.0, 200.0),
            spare: (0.07, 0.28),
            // A disk does not wear by writes; its workload is rated in hundreds of TB a year.
            cycles: (1e3, 1e5),
            read_latency: (5e-3, 13e-3),
            write_latency: (1e-3, 13e-3),
            afr: (0.008, 0.02),
            uber: (1e-16, 1e-14),
            price_gb: (0.012, 0.025),
        },
    }
}

fn assume((low, high): (f64, f64)) -> Figure {
    Figure::range(low, high, Source::Assumed)
}

/// The drive, with a range for all that is not known.
pub(super) fn fill(name: &str, media: Media, capacity: u64, known: Known) -> Drive {
    let bounds = bounds(media);
    let unit = known.unit.unwrap_or(assume(bounds.unit));
    let read = known.read.unwrap_or(assume(bounds.read));
    let write = known.write.unwrap_or(assume(bounds.write));
    // Pages that give no size mean writes of the drive's unit, or of 4 KiB: the least of them.
    let random_write_bytes = known.write_iops_size.map_or(unit.low, |size| size.low) as u64;
    let flash = media != Media::Hdd;
    let implied = match (known.write, known.write_iops, known.write_iops_size) {
        (Some(write), Some(iops), Some(size)) if flash && known.unit.is_some() => {
            let bytes = size.low.max(unit.low);
            let spare = write.with(iops, Source::Formula, |w, i| spare_of(w / (i * bytes)));
            (0.03..2.0).contains(&spare.low).then_some(spare)
        }
        _ => None,
    };
    let over_provisioning = known
        .over_provisioning
        .or(implied)
        .unwrap_or(assume(bounds.spare));
    let collected = over_provisioning.map(Source::Formula, greedy);
    let write_iops = known.write_iops.unwrap_or_else(|| match flash {
        true => write.with(collected, Source::Formula, |w, c| w / c).with(
            unit,
            Source::Formula,
            |w, u| w / u,
        ),
        false => assume(bounds.read_iops),
    });
    let size = capacity as f64;
    let endurance = known
        .endurance_sequential
        .map(|host| host.map(Source::Formula, |bytes| bytes * SEQUENTIAL))
        .or_else(|| {
            let random = known
                .dwpd
                .map(|d| d.map(Source::Formula, |d| d * size * WARRANTY_DAYS));
            let random = known.endurance_random.or(random)?;
            Some(random.with(collected, Source::Formula, |bytes, waf| bytes * waf))
        })
        .unwrap_or_else(|| {
            let flash = over_provisioning.map(Source::Assumed, |spare| (1.0 + spare) * size);
            flash.with(assume(bounds.cycles), Source::Assumed, |bytes, n| bytes * n)
        });
    let link = if flash {
        (7.88e9, 15.75e9)
    } else {
        (0.55e9, 1.2e9)
    };
    Drive {
        name: name.to_owned(),
        media,
        capacity,
        unit,
        read,
        write,
        read_iops: known.read_iops.unwrap_or(assume(bounds.read_iops)),
        write_iops,
        random_write_bytes,
        link: known.link.unwrap_or(assume(link)),
        over_provisioning,
        mix: known.mix.unwrap_or(assume((0.97, 1.35))),
        read_latency: known.read_latency.unwrap_or(assume(bounds.read_latency)),
        write_latency: known.write_latency.unwrap_or(assume(bounds.write_latency)),
        endurance,
        watts_active: known.watts_active.unwrap_or(assume((14.0, 25.0))),
        watts_idle: known.watts_idle.unwrap_or(assume((4.0, 8.0))),
        afr: known.afr.unwrap_or(assume(bounds.afr)),
        uber: known.uber.unwrap_or(assume(bounds.uber)),
        price_gb: known.price_gb.unwrap_or(assume(bounds.price_gb)),
        origins: Vec::new(),
    }
}

//! Time to build a lost member anew, to scrub, to fill a new array with zeros.

use schemars::JsonSchema;
use serde::Serialize;

use crate::drive::{Drive, End};
use crate::engine::Engine;
use crate::host::Host;
use crate::load::Load;
use crate::shape::Shape;
use crate::speed::{Limit, busy};
use crate::value::{Figure, Source};

/// How fast a member is rebuilt, and what holds it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Rebuild {
    /// Seconds where nothing else asks.
    pub idle_s: Figure,
    /// Bytes a second of the new member, idle.
    pub idle_bytes_per_s: Figure,
    /// What holds it, idle.
    pub limit: Limit,
    /// Seconds beside the loads; none without loads.
    pub loaded_s: Option<Figure>,
    /// Bytes a second beside the loads.
    pub loaded_bytes_per_s: Option<Figure>,
}

/// What a rebuild is told.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Of all bytes, so many are written: the others are not rebuilt and not scrubbed.
    pub written: f64,
    /// Share of the drives' time that it has beside requests that would take all.
    pub share: Figure,
    /// Which engine.
    pub engine: Engine,
}

/// Bytes a second of the new member where requests leave these shares of reads and writes.
fn rate(
    drive: &Drive,
    shape: &Shape,
    host: &Host,
    end: End,
    left: (f64, f64),
    engine: Engine,
) -> (f64, Limit) {
    let at = drive.at(end);
    let survivors = f64::from(shape.group_size) - 1.0;
    // Each survivor is read for k of g-1 of what the new member gets.
    let each = shape.data() / survivors;
    let cores = end.more(host.cores) / end.less(host.check) / (shape.data() + 1.0);
    let uplink = host
        .uplink
        .map_or(f64::INFINITY, |up| end.more(up) / shape.data());
    let parts = [
        (at.write * left.1, Limit::Drives),
        (at.read * left.0 / each, Limit::Drives),
        (at.link.min(at.link / each).min(uplink), Limit::Links),
        (cores, Limit::Cpu),
        (engine.cap().unwrap_or(f64::INFINITY), Limit::Asked),
    ];
    let least = parts.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
    least.expect("five parts")
}

/// Of a member of this shape; `None` where it has no redundancy.
pub fn rebuild(
    drive: &Drive,
    shape: &Shape,
    host: &Host,
    loads: &[Load],
    terms: &Terms,
) -> Option<Rebuild> {
    if shape.tolerance() == 0 {
        return None;
    }
    let bytes = drive.capacity as f64 * terms.written;
    let engine = terms.engine;
    let idle = |end| rate(drive, shape, host, end, (1.0, 1.0), engine);
    let (slow, limit) = idle(End::Worst);
    let (fast, _) = idle(End::Best);
    let used = [drive.write, drive.read, drive.link, host.check, host.cores];
    let source = match limit {
        Limit::Drives => drive.write.source,
        _ => used
            .iter()
            .map(|f| f.source)
            .fold(Source::Formula, Source::max),
    };
    let figure = |a, b, source: Source| Figure::range(a, b, source.max(Source::Formula));
    let time = |rate: Figure| rate.map(Source::Formula, |rate| bytes / rate);
    let idle_rate = figure(slow, fast, source);
    let loaded = (!loads.is_empty())
        .then(|| {
            let at = |end: End| {
                let (reads, writes) = busy(drive, shape, host, loads, end)?;
                let mix = end.more(drive.mix);
                let least = match end {
                    End::Worst => terms.share.low,
                    End::Best => terms.share.high,
                };
                // What requests leave, and at least the share that the engine takes for it.
                let left = (mix - reads - writes).clamp(0.0, 1.0).max(least);
                let new = (1.0 - writes).max(least);
                let (by_parts, _) = rate(drive, shape, host, end, (left, new), engine);
                Some(by_parts.min(engine.loaded_cap(end)))
            };
            Some((at(End::Worst)?, at(End::Best)?))
        })
        .flatten();
    let weakest = source.max(terms.share.source).max(drive.mix.source);
    let loaded_rate = loaded.map(|(slow, fast)| figure(slow, fast, weakest));
    Some(Rebuild {
        idle_s: time(idle_rate),
        idle_bytes_per_s: idle_rate,
        limit,
        loaded_s: loaded_rate.map(time),
        loaded_bytes_per_s: loaded_rate,
    })
}

/// Seconds of a rebuild onto space that all drives keep free, of `drives` drives with stripes of
/// `data` data strips: what each does is a share of the lost one (declustered parity).
pub fn distributed(capacity: f64, drives: f64, data: f64, read: f64, write: f64, mix: f64) -> f64 {
    capacity / (drives - 1.0) * (data / read + 1.0 / write) / mix
}

/// Seconds to check every written stripe once, where nothing else asks: all members at once.
pub fn scrub(drive: &Drive, shape: &Shape, host: &Host, written: f64) -> Option<Figure> {
    if shape.tolerance() == 0 {
        return None;
    }
    let members = f64::from(shape.members);
    let bytes = drive.capacity as f64 * written;
    let at = |end: End| {
        let drive = drive.at(end);
        let uplink = host.uplink.map_or(f64::INFINITY, |up| end.more(up));
        let cores = end.more(host.cores) / end.less(host.check);
        let all = cores.min(uplink);
        bytes / drive.read.min(drive.link).min(all / members)
    };
    let source = drive.read.source.max(Source::Formula);
    Some(Figure::range(at(End::Worst), at(End::Best), source))
}

/// Seconds to write all of every member once, all at once: what a background zeroing takes where
/// drives do not read as zeros after a discard.
pub fn zeroing(drive: &Drive) -> Figure {
    let bytes = drive.capacity as f64;
    drive.write.map(Source::Formula, |rate| bytes / rate)
}

#[cfg(test)]
mod tests {
    use strake_format::Level;

    use super::*;
    use crate::catalogue;

    fn nine() -> (Drive, Shape) {
        let drive = catalogue::builtin().find("D5-P5336-61.44").expect("there");
        let shape = Shape::new(Level::Raid5, 9, None, Some(131_072), 16384).expect("a shape");
        (drive, shape)
    }

    fn terms() -> Terms {
        Terms {
            written: 1.0,
            share: Figure::range(0.045, 0.5, Source::Assumed),
            engine: Engine::Strake,
        }
    }

    #[test]
    fn an_idle_rebuild_is_as_fast_as_the_new_drive_writes() {
        let (drive, shape) = nine();
        let host = Host::default();
        let idle = rebuild(&drive, &shape, &host, &[], &terms()).expect("redundant");
        // 61.44 TB at 3.3 GB/s: 5.17 h.
        assert!((idle.idle_s.low / 3600.0 - 5.17).abs() < 0.01, "{idle:?}");
        assert_eq!((idle.limit, idle.loaded_s), (Limit::Drives, None));
        let half = Terms {
            written: 0.3,
            ..terms()
        };
        let part = rebuild(&drive, &shape, &host, &[], &half).expect("redundant");
        assert!((part.idle_s.low / idle.idle_s.low - 0.3).abs() < 1e-9);
        let md = Terms {
            engine: Engine::Md,
            ..terms()
        };
        let md = rebuild(&drive, &shape, &host, &[], &md).expect("redundant");
        assert!((md.idle_s.low / 3600.0 - 83.3).abs() < 0.1);
        assert_eq!(md.limit, Limit::Asked);
    }

    #[test]
    fn the_load_of_the_fourth_study_leaves_it_what_was_measured() {
        // 44 and 13 GB/s at 1 MiB; 316 MB/s were measured, at 1.34 of the mix of a survivor.
        let (drive, shape) = nine();
        let loads: Vec<Load> = ["seq-read:1M:90:44GB", "seq-write:1M:38:13GB"]
            .iter()
            .map(|l| l.parse().expect("a load"))
            .collect();
        let host = Host {
            cores: Figure::point(64.0, Source::Given),
            ..Host::default()
        };
        let loaded = rebuild(&drive, &shape, &host, &loads, &terms()).expect("redundant");
        let rate = loaded.loaded_bytes_per_s.expect("loads");
        assert!(rate.low <= 316e6 && rate.high > 316e6, "{rate:?}");
        let time = loaded.loaded_s.expect("loads");
        assert!(time.high > loaded.idle_s.high);
        let light: Load = "seq-read:1M:90:1GB".parse().expect("a load");
        let light = rebuild(&drive, &shape, &host, &[light], &terms()).expect("redundant");
        assert!(light.loaded_s.expect("loads").high < time.high);
    }

    #[test]
    fn spread_spare_space_is_faster_with_more_drives() {
        let at = |n| distributed(61.44e12, n, 8.0, 7e9, 3.18e9, 1.0) / 3600.0;
        assert!((at(24.0) - 1.08).abs() < 0.01, "{}", at(24.0));
        assert!(at(48.0) < at(24.0) / 2.0);
    }

    #[test]
    fn a_scrub_reads_all_members_at_once_and_an_array_without_parity_has_none() {
        let (drive, shape) = nine();
        let host = Host {
            cores: Figure::point(1000.0, Source::Given),
            ..Host::default()
        };
        let time = scrub(&drive, &shape, &host, 1.0).expect("redundant");
        assert!((time.low - 61.44e12 / 7e9).abs() < 1.0, "{time:?}");
        let one_core = Host {
            cores: Figure::point(1.0, Source::Given),
            ..Host::default()
        };
        assert!(
            scrub(&drive, &shape, &one_core, 1.0)
                .expect("redundant")
                .low
                > time.low
        );
        let none = Shape::new(Level::Raid0, 9, None, None, 16384).expect("a shape");
        assert_eq!(scrub(&drive, &none, &host, 1.0), None);
        assert_eq!(rebuild(&drive, &none, &host, &[], &terms()), None);
    }
}

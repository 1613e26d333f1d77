//! The joining: each model with what the others give.

use super::{Asked, LoadPlan, Machine, Plan, Preset, Times};
use crate::cost::{self, Cost, Priced};
use crate::drive::{Drive, Media};
use crate::durability::{Durability, Inputs, durability};
use crate::engine::Engine;
use crate::load::Load;
use crate::rebuild::{self, Rebuild};
use crate::speed::{Limit, Rate, State, busy, rates};
use crate::value::{Figure, Source};
use crate::wear::{aligned, of_load, strip_cost};

/// Loads of which every plan has the rates.
const COMMON: [&str; 4] = [
    "seq-read:1M:256",
    "seq-write:1M:256",
    "rand-read:4K:4096",
    "rand-write:4K:4096",
];
/// What the array keeps for itself of a drive, at most.
const RESERVED: f64 = 0.001;
/// Until a new array serves: superblocks, map and log of all members, seconds.
const CREATE_S: (f64, f64) = (0.0, 10.0);
/// Until a spare takes the place of a member that failed, or vanished (spare_delay), hours.
const SPARE_H: (f64, f64) = (0.0, 0.05);
const YEAR_S: f64 = 365.25 * 86400.0;

/// The plan of what is asked.
pub fn plan(asked: &Asked) -> Plan {
    let Asked { drive, shape, .. } = asked;
    let common: Vec<Load> = COMMON.iter().filter_map(|text| text.parse().ok()).collect();
    let alone: Vec<LoadPlan> = common
        .iter()
        .flat_map(|load| of_loads(asked, std::slice::from_ref(load)))
        .collect();
    let loads = of_loads(asked, &asked.loads);
    let usable = drive.capacity as f64 * f64::from(shape.members) * shape.efficiency();
    let usable = Figure::range(usable * (1.0 - RESERVED), usable, Source::Formula);
    let terms = rebuild::Terms {
        written: asked.written,
        share: asked.share,
        engine: asked.host.engine,
    };
    let rebuild = rebuild::rebuild(drive, shape, &asked.host, &asked.loads, &terms);
    let durability = of_durability(asked, rebuild.as_ref());
    let shown = if loads.is_empty() { &alone } else { &loads };
    let mut limits: Vec<Limit> = Vec::new();
    for limit in shown.iter().flat_map(|l| &l.optimal.limits) {
        if !limits.contains(limit) {
            limits.push(*limit);
        }
    }
    let life_years = life(asked, &loads);
    let cost = of_cost(asked, usable);
    let notes = notes(asked, &durability, life_years);
    Plan {
        drive: drive.name.clone(),
        shape: shape.describe(),
        level: shape.level.to_string(),
        members: shape.members,
        group_size: shape.group_size,
        strip_bytes: shape.strip,
        spares: shape.spares,
        tolerance: shape.tolerance(),
        engine: asked.host.engine,
        machine: Machine::of(&asked.host),
        usable_bytes: usable,
        rates: alone,
        loads,
        limits,
        life_years,
        times: times(asked, rebuild),
        durability,
        cost,
        sources: drive.origins.clone(),
        simulated: None,
        assumed: assumed(drive),
        notes,
    }
}

fn of_loads(asked: &Asked, loads: &[Load]) -> Vec<LoadPlan> {
    let of = |state| {
        rates(
            &asked.drive,
            &asked.shape,
            &asked.host,
            loads,
            state,
            asked.share,
        )
    };
    if loads.is_empty() {
        return Vec::new();
    }
    let optimal = of(State::Optimal).expect("a state of every shape");
    let (degraded, rebuilding) = (of(State::Degraded), of(State::Rebuilding));
    let nth = |of: &Option<Vec<Rate>>, n: usize| of.as_ref().and_then(|r| r.get(n).cloned());
    loads
        .iter()
        .zip(optimal)
        .enumerate()
        .map(|(n, (load, optimal))| LoadPlan {
            load: load.to_string(),
            optimal,
            degraded: nth(&degraded, n),
            rebuilding: nth(&rebuilding, n),
            waf: of_load(&asked.drive, &asked.shape, load, asked.written),
        })
        .collect()
}

fn times(asked: &Asked, rebuild: Option<Rebuild>) -> Times {
    let Asked {
        drive, shape, host, ..
    } = asked;
    let scrub_s = rebuild::scrub(drive, shape, host, asked.written);
    let scrub_loaded_s = scrub_s
        .filter(|_| !asked.loads.is_empty())
        .and_then(|idle| {
            let left = |end| {
                let (reads, writes) = busy(drive, shape, host, &asked.loads, end)?;
                Some((1.0 - reads - writes).clamp(0.0, 1.0))
            };
            let low = left(crate::drive::End::Worst)?.max(asked.share.low);
            let high = left(crate::drive::End::Best)?.max(asked.share.high);
            let left = Figure::range(low, high, asked.share.source);
            Some(idle.with(left, Source::Formula, |time, left| time / left))
        });
    Times {
        create_s: Figure::range(CREATE_S.0, CREATE_S.1, Source::Assumed),
        zero_s: rebuild::zeroing(drive),
        rebuild,
        scrub_s,
        scrub_loaded_s,
    }
}

fn of_durability(asked: &Asked, rebuild: Option<&Rebuild>) -> Durability {
    let hours = rebuild.map_or(Figure::point(0.0, Source::Formula), |r| {
        let longest = r.loaded_s.unwrap_or(r.idle_s);
        let source = r.idle_s.source.max(longest.source);
        Figure::range(
            r.idle_s.low / 3600.0,
            longest.high.max(r.idle_s.high) / 3600.0,
            source,
        )
    });
    let before_h = match asked.shape.spares {
        0 => asked.replace_h,
        _ => Figure::range(SPARE_H.0, SPARE_H.1, Source::Formula),
    };
    let own = Inputs {
        afr: asked.drive.afr,
        uber: asked.drive.uber,
        correlation: asked.correlation,
        scrub_h: Some(asked.scrub_h),
        before_h,
        rebuild_h: hours,
        member_bytes: asked.drive.capacity as f64 * asked.written,
    };
    let inputs = match asked.preset {
        Preset::Own => own,
        Preset::SeedGraid => Inputs {
            uber: Figure::point(5e-18, Source::Given),
            correlation: Figure::point(5.0, Source::Given),
            scrub_h: None,
            before_h: Figure::point(0.0, Source::Given),
            ..own
        },
    };
    durability(&asked.shape, &inputs)
}

fn of_cost(asked: &Asked, usable: Figure) -> Cost {
    let Asked {
        drive,
        shape,
        terms,
        ..
    } = asked;
    let priced = Priced {
        capacity: drive.capacity as f64,
        price_gb: drive.price_gb,
        afr: drive.afr,
        active: drive.watts_active,
        idle: drive.watts_idle,
    };
    let each = u64::from(shape.members) + u64::from(shape.spares);
    match asked.hold {
        None => cost::cost(each, usable.middle(), &priced, terms),
        Some(data) => {
            let stored = 1.0 / shape.efficiency();
            let data_drives = cost::drives_for(data, stored, terms.fill, priced.capacity);
            let arrays = data_drives.div_ceil(u64::from(shape.members));
            let drives = data_drives + arrays * u64::from(shape.spares);
            cost::cost(drives, data, &priced, terms)
        }
    }
}

/// Years until the flash is used up, if the loads never pause.
fn life(asked: &Asked, loads: &[LoadPlan]) -> Option<Figure> {
    let wear: Vec<Figure> = loads
        .iter()
        .zip(&asked.loads)
        .filter_map(|(of, load)| {
            let written = 1.0 - f64::from(load.read_percent) / 100.0;
            let waf = of.waf.as_ref()?.total;
            let rate = of.optimal.bytes_per_s;
            Some(rate.with(waf, Source::Formula, |rate, waf| rate * written * waf))
        })
        .collect();
    let all = wear
        .into_iter()
        .reduce(|a, b| a.with(b, Source::Formula, |a, b| a + b))?;
    let members = f64::from(asked.shape.members);
    let life = asked
        .drive
        .endurance
        .with(all, Source::Formula, |endurance, rate| {
            endurance * members / rate / YEAR_S
        });
    life.low.is_finite().then_some(life)
}

/// Figures of the drive of which nothing is known.
fn assumed(drive: &Drive) -> Vec<String> {
    let figures = [
        ("unit", drive.unit),
        ("read", drive.read),
        ("write", drive.write),
        ("read_iops", drive.read_iops),
        ("write_iops", drive.write_iops),
        ("link", drive.link),
        ("over_provisioning", drive.over_provisioning),
        ("mix", drive.mix),
        ("read_latency", drive.read_latency),
        ("write_latency", drive.write_latency),
        ("endurance", drive.endurance),
        ("watts_active", drive.watts_active),
        ("watts_idle", drive.watts_idle),
        ("afr", drive.afr),
        ("uber", drive.uber),
        ("price_gb", drive.price_gb),
    ];
    let unknown = figures
        .into_iter()
        .filter(|(_, f)| f.source == Source::Assumed);
    unknown.map(|(name, _)| name.to_owned()).collect()
}

fn notes(asked: &Asked, durability: &Durability, life: Option<Figure>) -> Vec<String> {
    let Asked { drive, shape, .. } = asked;
    let mut notes = Vec::new();
    if asked.host.engine == Engine::Md {
        notes.push(
            "md as it is installed, by published measurements of it: one thread and 256 \
             stripe-cache entries a parity group, no log (the write hole is open), rebuilds at \
             200 000 KiB/s"
                .to_owned(),
        );
    }
    let unit = drive.unit.high;
    let strip = strip_cost(shape.strip, unit as u64);
    if strip.high > 1.0 {
        notes.push(format!(
            "strips of {} KiB are no multiple of the indirection unit ({} KiB at most): whole \
             stripes cost {:.0} to {:.2} times their bytes of flash",
            shape.strip >> 10,
            unit / 1024.0,
            strip.low,
            strip.high
        ));
    }
    let small = asked.loads.iter().find(|l| {
        let written = l.read_percent < 100 && !l.sequential;
        written && aligned((l.bytes as f64).min(shape.strip as f64), drive.unit.low) > 1.0
    });
    if let Some(load) = small {
        notes.push(format!(
            "writes of {load} are below the indirection unit ({} KiB): each costs a whole unit on \
             every drive that it touches",
            drive.unit.low / 1024.0
        ));
    }
    if shape.tolerance() == 1 && drive.media != Media::Hdd {
        notes.push(
            "with one parity, unreadable sectors rule: a faster rebuild hardly helps, a second \
             parity does"
                .to_owned(),
        );
    }
    if shape.tolerance() > 0 && shape.spares == 0 {
        let hours = durability.inputs.exposed_h;
        notes.push(format!(
            "without a spare a failed member is missing for {:.0} to {:.0} hours in all",
            hours.low, hours.high
        ));
    }
    if let Some(life) = life.filter(|life| life.low < asked.terms.years) {
        notes.push(format!(
            "the loads, if they never pause, use the flash up in {:.1} to {:.1} years",
            life.low, life.high
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use strake_format::Level;

    use super::*;
    use crate::catalogue;
    use crate::plan::Asked;
    use crate::shape::Shape;

    fn asked(drive: &str, level: Level, members: u8, group: Option<u8>) -> Asked {
        let drive = catalogue::builtin().find(drive).expect("there");
        let unit = drive.unit.high as u64;
        let shape = Shape::new(level, members, group, None, unit).expect("a shape");
        Asked::new(drive, shape)
    }

    fn with(mut asked: Asked, loads: &[&str]) -> Asked {
        asked.loads = loads.iter().map(|l| l.parse().expect("a load")).collect();
        asked
    }

    #[test]
    fn the_ten_shapes_of_the_studies_are_planned_at_once() {
        let nm = |n, m| Level::Nm { n, m };
        let shapes = [
            ("D5-P5336-61.44", Level::Raid5, 5, None),
            ("D5-P5316-15.36", Level::Raid5, 11, None),
            ("D5-P5316-15.36", Level::Raid6, 12, None),
            ("D5-P5316-15.36", Level::Raid0, 12, None),
            ("PM1733-1.92", Level::Raid50, 24, Some(8)),
            ("D5-P5336-61.44", Level::Raid5, 9, None),
            ("D5-P5336-61.44", Level::Raid10, 24, Some(2)),
            ("HDD-30", Level::Raid10, 12, Some(3)),
            ("D5-P5336-61.44", Level::Raid6, 10, None),
            ("D5-P5336-61.44", nm(16, 3), 19, None),
        ];
        for (drive, level, members, group) in shapes {
            let asked = asked(drive, level, members, group);
            let asked = with(asked, &["seq-write:1M:38", "rand-read:4K:90"]);
            let began = Instant::now();
            let plan = plan(&asked);
            assert!(began.elapsed() < Duration::from_secs(10), "{drive} {level}");
            assert_eq!(plan.rates.len(), 4);
            assert_eq!(plan.loads.len(), 2);
            assert_eq!(plan.times.rebuild.is_some(), level != Level::Raid0);
            assert!(plan.durability.nines.low >= 0.0);
            for rate in plan.rates.iter().chain(&plan.loads) {
                let bytes = rate.optimal.bytes_per_s;
                assert!(
                    bytes.low > 0.0 && bytes.low <= bytes.high,
                    "{drive} {rate:?}"
                );
                assert!(rate.optimal.latency_s.low > 0.0);
                let hurt = rate.degraded.as_ref().map(|d| d.bytes_per_s.high);
                assert!(
                    hurt.is_none_or(|hurt| hurt <= bytes.high * 1.0001),
                    "{rate:?}"
                );
            }
        }
    }

    #[test]
    fn what_is_assumed_is_named_and_what_is_known_has_its_source() {
        let plan = plan(&asked("LC9-245.76", Level::Raid6, 10, None));
        for name in ["unit", "read_iops", "afr", "price_gb"] {
            assert!(plan.assumed.iter().any(|a| a == name), "{name}");
        }
        assert!(!plan.assumed.iter().any(|a| a == "read"));
        let read = plan.sources.iter().find(|o| o.figure == "read");
        assert!(read.is_some_and(|o| o.source.contains("LC9") && o.date.starts_with("2025")));
    }

    #[test]
    fn a_strip_below_the_unit_is_noted_with_its_cost() {
        let drive = catalogue::builtin().find("D5-P5316-30.72").expect("there");
        let shape = Shape::new(Level::Raid5, 5, None, Some(16384), 65536).expect("a shape");
        let notes = plan(&Asked::new(drive, shape)).notes.join("\n");
        assert!(notes.contains("1 to 4.00 times"), "{notes}");
    }

    #[test]
    fn a_load_that_wears_a_drive_out_is_noted_and_life_is_bytes_over_rate() {
        let base = asked("D5-P5336-61.44", Level::Raid5, 5, None);
        let random = plan(&with(base.clone(), &["rand-write:4K:1024"]));
        assert!(random.notes.iter().any(|n| n.contains("use the flash up")));
        let slow = plan(&with(base.clone(), &["rand-write:16K:64:1MB"]));
        let faster = plan(&with(base.clone(), &["rand-write:16K:64:2MB"]));
        let (slow, faster) = (
            slow.life_years.expect("writes"),
            faster.life_years.expect("writes"),
        );
        assert!((slow.low / faster.low - 2.0).abs() < 1e-6);
        assert_eq!(plan(&with(base, &["rand-read:4K:8"])).life_years, None);
    }

    #[test]
    fn spares_and_scrubs_and_unwritten_space_help() {
        let base = asked("D5-P5336-61.44", Level::Raid6, 10, None);
        let spare = Asked {
            shape: base.shape.with_spares(1).expect("few"),
            ..base.clone()
        };
        let part = Asked {
            written: 0.3,
            ..base.clone()
        };
        let nines = |asked: &Asked| plan(asked).durability.nines.low;
        assert!(nines(&spare) > nines(&base));
        assert!(nines(&part) > nines(&base));
        let weekly = Asked {
            scrub_h: Figure::point(168.0, Source::Given),
            ..base.clone()
        };
        assert!(nines(&weekly) > nines(&base));
    }

    #[test]
    fn ten_petabytes_cost_what_was_published() {
        let mut base = asked("D5-P5336-61.44", Level::Raid10, 24, Some(2));
        base.drive.price_gb = Figure::point(0.0733, Source::Given);
        base.drive.watts_active = Figure::point(16.0, Source::Given);
        base.hold = Some(10e15);
        let cost = plan(&base).cost;
        assert_eq!((cost.drives, cost.servers, cost.racks), (343, 15, 1));
        assert!(
            (cost.total_usd.low / 2.06e6 - 1.0).abs() < 0.001,
            "{cost:?}"
        );
    }
}

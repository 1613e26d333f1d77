//! The formulas of the planner beside the engine on modelled drives: random shapes, drives and
//! loads.

use strake_foresight::catalogue;
use strake_foresight::drive::Drive;
use strake_foresight::engine::Engine;
use strake_foresight::host::Host;
use strake_foresight::load::Load;
use strake_foresight::plan::predict;
use strake_foresight::shape::Shape;
use strake_foresight::value::{Figure, Source};
use strake_format::{Level, WriteHole};
use strake_lab::{Lab, Setup, Target, Until};

/// How far they may be apart.
const WITHIN: f64 = 0.15;
const SHAPES: usize = 30;

struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    fn of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }
}

/// The drive with the middle of each range: both models are given the same.
fn fixed(drive: &Drive) -> Drive {
    let point = |figure: Figure| Figure::point(figure.middle(), Source::Given);
    let d = drive.clone();
    Drive {
        unit: Figure::point(d.unit.low, Source::Given),
        read: point(d.read),
        write: point(d.write),
        read_iops: point(d.read_iops),
        write_iops: point(d.write_iops),
        link: point(d.link),
        over_provisioning: point(d.over_provisioning),
        mix: point(d.mix),
        read_latency: point(d.read_latency),
        write_latency: point(d.write_latency),
        ..d
    }
}

/// With the over-provisioning that the lab takes.
fn settled(drive: &Drive) -> Drive {
    let fixed = fixed(drive);
    let setup = Setup::new(fixed.clone(), 4, Level::Raid5);
    Drive {
        over_provisioning: Figure::point(setup.over_provisioning(), Source::Given),
        ..fixed
    }
}

/// A machine that is never the limit.
fn host() -> Host {
    let none = Figure::point(0.0, Source::Given);
    Host {
        cores: Figure::point(1e6, Source::Given),
        request: none,
        io: none,
        byte: none,
        check: none,
        device_iops: None,
        uplink: None,
        engine: Engine::Strake,
        origins: Vec::new(),
    }
}

fn shape(draw: &mut Draw) -> (Level, u8, Option<u8>) {
    match draw.below(8) {
        0 => (Level::Raid5, draw.of(&[3, 5, 9, 12]), None),
        1 => (Level::Raid6, draw.of(&[4, 6, 10, 12]), None),
        2 => (Level::Raid7_3, draw.of(&[8, 11]), None),
        3 => (Level::Raid10, draw.of(&[4, 8]), None),
        4 => (Level::Raid50, draw.of(&[10, 15]), Some(5)),
        5 => (Level::Raid60, 12, Some(6)),
        6 => (Level::Raid0, draw.of(&[4, 8]), None),
        _ => (Level::Nm { n: 6, m: 4 }, 10, None),
    }
}

#[test]
fn formulas_and_the_engine_agree_on_thirty_random_shapes() {
    let drives: Vec<Drive> = catalogue::builtin().drives().iter().map(settled).collect();
    let mut draw = Draw(20_261_128);
    let mut apart = Vec::new();
    for nth in 0..SHAPES {
        let drive = draw.of(&drives);
        let (level, members, group) = shape(&mut draw);
        let strip = draw.of(&[64u64, 128]) << 10;
        let mut formula = Shape::new(level, members, group, Some(strip), 4096).expect("a shape");
        let closed = formula.log && draw.below(2) == 0;
        formula.log = closed;
        let depth = u32::from(members) * 200;
        let load = match draw.below(4) {
            0 => format!("rand-read:4K:{depth}"),
            1 => format!("rand-write:4K:{depth}"),
            2 => format!("seq-read:1M:{}x16", members),
            // The engine follows eight streams at once; stripes of more are written in parts.
            _ => format!("seq-write:1M:{}x16", members.min(6)),
        };
        let load: Load = load.parse().expect("a load");
        let said = predict(&drive, &formula, &load, &host());
        let setup = Setup {
            strip: Some(strip as u32),
            group_size: group,
            write_hole: match closed {
                true => WriteHole::Closed,
                false => WriteHole::Resync,
            },
            // The formulas have the log apart.
            handles: if closed { 3 } else { 1 },
            ..Setup::new(drive.clone(), members, level)
        };
        let mut lab = Lab::new(setup).expect("a lab");
        lab.fill(1.0).expect("filled");
        let random = !load.sequential && load.read_percent == 0;
        if random {
            lab.condition_at_random(1.0);
        }
        if load.sequential && load.read_percent == 0 {
            // The order of the fill is another one.
            lab.run(Target::Array, &[load], Until::Passes(1.0))
                .expect("runs");
        }
        // Long beside what is still under way of the fill, which a small drive ends in no time.
        let passes = match (load.sequential, random) {
            (true, _) => 1.0,
            (false, true) => 0.1,
            (false, false) => 0.5,
        };
        let before = lab.wear();
        let reached = lab.run(Target::Array, &[load], Until::Passes(passes));
        let reached = reached.expect("runs").remove(0);
        let ours = reached.read_iops + reached.write_iops;
        let formula_rate = said.optimal.requests_per_s.middle();
        let deviation = ours / formula_rate - 1.0;
        let waf = said.waf.map(|waf| {
            let of = |count: fn(&strake_flash::Counters) -> u64| {
                let pairs = lab.wear();
                let each = pairs.iter().zip(&before).map(|(b, a)| count(b) - count(a));
                each.sum::<u64>() as f64
            };
            let media = of(|c| c.media_written);
            let asked = reached.write_bytes_per_s() / ours.max(1.0) / load.bytes as f64;
            let host = passes * lab.size() as f64 * asked;
            (media / host, waf.total.middle())
        });
        let line = format!(
            "{nth:2} {} {} closed {closed} {load}: {ours:.0} a second, by formula \
             {formula_rate:.0}, {deviation:+.3} ({}); WAF {waf:.2?}",
            drive.name,
            formula.describe(),
            said.optimal.limits[0].as_str()
        );
        println!("{line}");
        let waf_apart = waf.map_or(0.0, |(ours, formula)| (ours / formula - 1.0).abs());
        if deviation.abs() > WITHIN || waf_apart > WITHIN {
            apart.push(line);
        }
    }
    assert!(
        apart.is_empty(),
        "{} are apart:\n{}",
        apart.len(),
        apart.join("\n")
    );
}

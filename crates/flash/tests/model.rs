//! The model against closed formulas and against figures that other models and drives gave.

use strake_flash::{Counters, Drive, Flash, Geometry, Latency, Op, Spec, Timing, collection_waf};

const UNIT: u64 = 64 << 10;

fn geometry(units: u32, over_provisioning: f64) -> Geometry {
    Geometry {
        unit_bytes: UNIT,
        units,
        over_provisioning,
        units_per_block: 512,
        handles: 1,
        buffer_units: 64,
    }
}

/// Chance of the tests.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn fill(flash: &mut Flash) {
    let capacity = flash.capacity();
    for at in (0..capacity).step_by(1 << 20) {
        flash.write(at, (1 << 20).min(capacity - at), 0);
    }
}

fn write_at_random(flash: &mut Flash, draw: &mut Draw, passes: f64) {
    let units = u64::from(flash.geometry().units);
    for _ in 0..(units as f64 * passes) as u64 {
        flash.write(draw.below(units) * UNIT, UNIT, 0);
    }
}

#[test]
fn random_writes_wear_as_the_closed_formula_says() {
    for over_provisioning in [0.07, 0.10, 0.125, 0.167, 0.28] {
        let mut flash = Flash::new(geometry(64_000, over_provisioning));
        let mut draw = Draw(1);
        fill(&mut flash);
        write_at_random(&mut flash, &mut draw, 2.0);
        let before = flash.counters().clone();
        write_at_random(&mut flash, &mut draw, 2.0);
        let waf = flash.counters().waf_since(&before).expect("written");
        let formula = collection_waf(over_provisioning);
        let deviation = waf / formula - 1.0;
        println!("{over_provisioning}: {waf:.3} against {formula:.3}, {deviation:+.3}");
        assert!(
            deviation.abs() < 0.03,
            "{over_provisioning}: {waf} against {formula}"
        );
    }
}

#[test]
fn sequential_writes_wear_once_however_often_the_drive_is_filled() {
    let mut flash = Flash::new(geometry(64_000, 0.07));
    for _ in 0..5 {
        fill(&mut flash);
    }
    let counters = flash.counters();
    assert_eq!(counters.media_written, counters.host_written);
    assert_eq!((counters.moved, counters.unaligned), (0, 0));
}

#[test]
fn writes_below_the_unit_wear_by_whole_units_and_those_that_merge_do_not() {
    let mut flash = Flash::new(geometry(16_000, 10.0));
    fill(&mut flash);
    let before = flash.counters().clone();
    let mut draw = Draw(2);
    for _ in 0..20_000 {
        flash.write(draw.below(16_000 * 16) * 4096, 4096, 0);
    }
    let waf = flash.counters().waf_since(&before).expect("written");
    // 16 blocks of 4 KiB in a unit; few of the 64 units in the buffer are met twice.
    assert!((15.2..=16.0).contains(&waf), "{waf}");
    let before = flash.counters().clone();
    for at in 0..16_000 {
        flash.write(at * 4096, 4096, 0);
    }
    let waf = flash.counters().waf_since(&before).expect("written");
    assert!((0.99..=1.01).contains(&waf), "{waf}");
    assert_eq!(flash.counters().unaligned - before.unaligned, 16_000);
}

#[test]
fn what_is_deallocated_is_not_moved() {
    let mut flash = Flash::new(geometry(64_000, 0.07));
    let mut draw = Draw(3);
    fill(&mut flash);
    // Half of the drive is free: over-provisioning of 2 × 1.07 − 1.
    let half = u64::from(flash.geometry().units) / 2;
    flash.deallocate(half * UNIT, half * UNIT);
    for _ in 0..4 * half {
        flash.write(draw.below(half) * UNIT, UNIT, 0);
    }
    let before = flash.counters().clone();
    for _ in 0..4 * half {
        flash.write(draw.below(half) * UNIT, UNIT, 0);
    }
    let waf = flash.counters().waf_since(&before).expect("written");
    let formula = collection_waf(1.14);
    assert!(
        (waf / formula - 1.0).abs() < 0.03,
        "{waf} against {formula}"
    );
}

/// 38 sequential streams that overwrite their own parts, and a rebuild that fills the rest: the
/// wear of a drive that is being rebuilt under a load.
fn rebuild_beside_streams(share: f64, handles: u8) -> f64 {
    const STREAMS: u64 = 38;
    let mut flash = Flash::new(Geometry {
        handles,
        ..geometry(64_000, 0.13)
    });
    let units = u64::from(flash.geometry().units);
    let part = units / 2 / STREAMS;
    let mut heads: Vec<u64> = (0..STREAMS).map(|s| s * part).collect();
    let rebuilt = units / 2;
    let mut next = rebuilt;
    let mut draw = Draw(4);
    let mut before: Option<Counters> = None;
    // Two passes of the streams' part first: the drive is in use.
    for at in 0..4 * units {
        let is_rebuild = draw.below(10_000) < (share * 10_000.0) as u64;
        if is_rebuild {
            flash.write(next * UNIT, UNIT, handles - 1);
            next += 1;
            if next == units {
                next = rebuilt;
            }
        } else {
            let stream = draw.below(STREAMS);
            let head = &mut heads[stream as usize];
            flash.write(*head * UNIT, UNIT, 0);
            *head += 1;
            if *head == (stream + 1) * part {
                *head = stream * part;
            }
        }
        if at == 2 * units {
            before = Some(flash.counters().clone());
        }
    }
    let before = before.expect("counted half-way");
    flash.counters().waf_since(&before).expect("written")
}

#[test]
fn a_handle_of_its_own_takes_the_wear_from_a_rebuild_under_load() {
    let together = rebuild_beside_streams(0.163, 1);
    let apart = rebuild_beside_streams(0.163, 2);
    println!("one handle {together:.3}, two {apart:.3}");
    assert!(together > 1.1, "{together}");
    assert!(apart < 1.03, "{apart}");
}

fn timing() -> Timing {
    Timing {
        read_bytes: 7e9,
        read_ops: 1e6,
        program_bytes: 3.3e9,
        write_ops: 1e6,
        link_bytes: 7.4e9,
        mix: 1.3,
        buffer_bytes: 4e6,
        read_latency: Latency {
            p50: 80e3,
            p99: 120e3,
            p9999: 400e3,
        },
        write_latency: Latency::fixed(12e3),
    }
}

/// Keeps `depth` commands in flight for so many of them; answers commands of each kind a second.
fn run(reads: u64, len: u64, sequential: bool, depth: usize, ops: usize) -> (f64, f64) {
    let mut drive = Drive::new(
        Spec {
            geometry: geometry(32_000, 0.125),
            timing: timing(),
        },
        7,
    );
    fill(drive.flash());
    let mut draw = Draw(5);
    write_at_random(drive.flash(), &mut draw, if sequential { 0.0 } else { 2.0 });
    let mut flight: std::collections::BTreeSet<(u64, u64)> =
        (0..depth as u64).map(|id| (0, id)).collect();
    let (mut done, mut now) = ([0u64; 2], 0);
    let places = drive.flash().capacity() / len;
    for _ in 0..ops {
        let (time, id) = flight.pop_first().expect("in flight");
        now = time;
        let is_read = draw.below(100) < reads;
        let kind = usize::from(!is_read);
        let place = match sequential {
            true => done[kind] % places,
            false => draw.below(places),
        };
        let op = if is_read {
            Op::Read
        } else {
            Op::Write { handle: 0 }
        };
        let end = drive.submit(now, op, place * len, len);
        done[kind] += 1;
        flight.insert((end, id));
    }
    let seconds = now as f64 / 1e9;
    (done[0] as f64 / seconds, done[1] as f64 / seconds)
}

#[test]
fn a_drive_reaches_the_rates_it_was_given_and_not_more() {
    let near = |what: &str, ours: f64, rate: f64| {
        assert!(
            (ours / rate - 1.0).abs() < 0.03,
            "{what}: {ours} for {rate}"
        );
    };
    near("reads of 4 KiB", run(100, 4096, false, 512, 400_000).0, 1e6);
    let (read, _) = run(100, 1 << 20, true, 32, 20_000);
    near("sequential read", read * (1 << 20) as f64, 7e9);
    let (_, write) = run(0, 1 << 20, true, 32, 20_000);
    near("sequential write", write * (1 << 20) as f64, 3.3e9);
    // Random units: the flash is shared with collections.
    let (_, write) = run(0, UNIT, false, 32, 200_000);
    near(
        "random write",
        write * UNIT as f64,
        3.3e9 / collection_waf(0.125),
    );
    let (read, write) = run(70, 1 << 20, true, 64, 20_000);
    let bytes = (1 << 20) as f64;
    near("both", read * bytes / 7e9 + write * bytes / 3.3e9, 1.3);
}

#[test]
fn one_read_at_a_time_takes_its_latency() {
    let (reads, _) = run(100, 4096, false, 1, 20_000);
    let mean = 1e9 / reads;
    assert!((80e3..100e3).contains(&mean), "{mean} ns");
}

#[test]
fn the_same_calls_give_the_same_figures() {
    let one = run(50, 8192, false, 16, 20_000);
    assert_eq!(one, run(50, 8192, false, 16, 20_000));
}

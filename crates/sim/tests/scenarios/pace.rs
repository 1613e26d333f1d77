//! Stories about background work beside a load: how much it takes, and that it ends.
//!
//! The members here have one arm: each I/O in flight makes the next one wait, so that a rebuild in
//! full swing makes every request late.

use std::collections::BTreeSet;

use strake_engine::create::Init;
use strake_engine::event::{
    ArrayState, Command, HeldBack, IoKind, JobKind, ScrubMode, Setting, WritePurpose,
};
use strake_engine::units::{RegionNo, RequestId, Time};
use strake_format::Settings;
use strake_sim::scenario::{Draft, Scenario};
use strake_sim::workload::{Ask, AskKind};

const MS: u64 = 1_000_000;
/// An I/O takes this much longer for each one before it.
const CROWDING_NS: u64 = 500_000;

/// A load that keeps so many reads in flight and measures each.
struct Load {
    depth: usize,
    under_way: Vec<(RequestId, Time)>,
    next: u64,
    /// Of the first so many blocks.
    among: u64,
    latencies_ns: Vec<u64>,
}

impl Load {
    fn new(depth: usize) -> Load {
        Load {
            depth,
            under_way: Vec::new(),
            next: 0,
            among: u64::MAX,
            latencies_ns: Vec::new(),
        }
    }

    /// One event, and new requests for those that were answered by it.
    fn step(&mut self, array: &mut Scenario) {
        array.steps(1);
        let now = array.world.now();
        let latencies_ns = &mut self.latencies_ns;
        self.under_way.retain(|(id, since)| {
            let waits = array.world.is_under_way(*id);
            if !waits {
                latencies_ns.push(now.since(*since));
            }
            waits
        });
        while self.under_way.len() < self.depth {
            // A stride that meets every block in the end.
            self.next = (self.next + 7919) % array.world.blocks().min(self.among);
            let ask = Ask::new(AskKind::Read, self.next, 1);
            assert!(array.world.submit(ask).is_ok(), "a request is taken");
            let id = array.world.asked_last().expect("just asked");
            self.under_way.push((id, now));
        }
    }

    /// Goes on for so long.
    fn work(&mut self, array: &mut Scenario, ms: u64) {
        let until = Time(array.world.now().0 + ms * MS);
        while array.world.now() < until {
            self.step(array);
        }
    }

    fn p99_ns(&mut self) -> u64 {
        self.latencies_ns.sort_unstable();
        self.latencies_ns[self.latencies_ns.len() * 99 / 100]
    }
}

/// An array with every block written that lacks a member; all reads of it wait for each other.
fn degraded(draft: Draft, settings: Settings) -> Scenario {
    let draft = draft.message_ns(100).no_caches();
    let mut array = draft.settings(settings).start();
    array.fill().rest().lose(2).rest();
    array.crowd(CROWDING_NS);
    array
}

/// A rebuild of it takes two thousand stripes.
fn large() -> Draft {
    Scenario::new("5", 4).large()
}

fn with(rebuild_priority: u8, latency_target_us: u32) -> Settings {
    Settings {
        rebuild_priority,
        latency_target_us,
        spare_delay_ms: 0,
        ..Settings::default()
    }
}

/// Bytes that a job has done, and what holds it back.
fn rebuild(array: &mut Scenario) -> (u64, HeldBack) {
    let status = array.status();
    let job = status.jobs.iter().find(|job| job.kind == JobKind::Rebuild);
    job.map_or((u64::MAX, HeldBack::None), |job| {
        (job.done_bytes, job.held_back)
    })
}

/// Bytes that a rebuild does in so many milliseconds beside a load.
fn done_in(array: &mut Scenario, load: &mut Load, ms: u64) -> u64 {
    let before = rebuild(array).0;
    load.work(array, ms);
    rebuild(array).0 - before
}

#[test]
fn requests_keep_to_the_latency_target_while_the_rebuild_goes_on_and_ends() {
    let mut array = degraded(large(), with(100, 0));
    let mut load = Load::new(2);
    load.work(&mut array, 500);
    let target_us = u32::try_from(2 * load.p99_ns() / 1000).expect("some milliseconds");
    let target = Command::Set(Setting::LatencyTargetUs(target_us));
    array.command(target).expect("a target");
    array.add();
    let began = array.world.now();
    // It finds out what the target bears.
    load.work(&mut array, 300);
    load.latencies_ns.clear();
    while array.state() != ArrayState::Optimal {
        load.work(&mut array, 10);
        let (took, p99) = (array.world.now().since(began), load.p99_ns());
        let watched = load.latencies_ns.len() > 1000;
        assert!(
            !watched || p99 <= u64::from(target_us) * 1000,
            "{p99}, {target_us} µs"
        );
        assert!(took < 60_000 * MS, "it goes on");
    }
    assert!(load.latencies_ns.len() > 1000, "it was watched for a while");
    array.verify();
}

#[test]
fn without_a_target_the_same_rebuild_makes_requests_late() {
    let mut array = degraded(large(), with(100, 0));
    let mut load = Load::new(2);
    load.work(&mut array, 500);
    let alone = load.p99_ns();
    array.add();
    load.latencies_ns.clear();
    load.work(&mut array, 200);
    let (done, held_back) = rebuild(&mut array);
    assert!(done < u64::MAX, "it is at work");
    assert_eq!(held_back, HeldBack::None);
    assert!(load.p99_ns() > 3 * alone, "{} and {alone}", load.p99_ns());
}

#[test]
fn what_holds_a_rebuild_back_is_told() {
    let mut array = degraded(large(), with(50, 0));
    let mut load = Load::new(4);
    array.add();
    load.work(&mut array, 200);
    assert_eq!(rebuild(&mut array).1, HeldBack::Priority);
    array
        .command(Command::Set(Setting::LatencyTargetUs(1)))
        .expect("a target");
    load.work(&mut array, 200);
    assert_eq!(rebuild(&mut array).1, HeldBack::Latency);
    let seen = array.status().jobs[0].foreground_p99_ns;
    assert!(seen.is_some_and(|ns| ns > 1000), "{seen:?}");
}

/// Of one shard: where a step takes these drives longer, the longest pause is not 99 times as long.
#[test]
fn a_priority_of_one_is_almost_nothing_and_one_of_a_hundred_does_not_pause() {
    let mut array = degraded(large().shards(1), with(100, 0));
    let mut load = Load::new(2);
    array.add();
    load.work(&mut array, 20);
    let all = done_in(&mut array, &mut load, 200);
    array
        .command(Command::Set(Setting::RebuildPriority(1)))
        .expect("a priority");
    load.work(&mut array, 50);
    // Long enough for several steps.
    let few = done_in(&mut array, &mut load, 8000) / 40;
    assert!(few > 0, "not nothing");
    assert!(few * 20 < all, "{few} of {all}");
    array
        .command(Command::Set(Setting::RebuildPriority(100)))
        .expect("a priority");
    let again = done_in(&mut array, &mut load, 200);
    assert!(again * 2 > all, "{again} of {all}");
}

#[test]
fn a_rebuild_beside_a_load_that_never_keeps_to_the_target_ends() {
    let mut array = degraded(Scenario::new("5", 4), with(1, 1));
    let mut load = Load::new(4);
    array.add();
    let began = array.world.now();
    while array.state() != ArrayState::Optimal {
        load.work(&mut array, 100);
        let now = array.world.now();
        assert!(now.since(began) < 3_600_000 * MS, "an hour is too long");
    }
    array.verify();
}

#[test]
fn a_scrub_and_a_resync_keep_to_priorities_of_their_own() {
    let settings = Settings {
        scrub_priority: 1,
        resync_priority: 100,
        spare_delay_ms: 0,
        ..Settings::default()
    };
    let draft = Scenario::new("6", 5).large().message_ns(100);
    let mut array = draft.settings(settings).start();
    array.fill().rest().crowd(CROWDING_NS);
    let mut load = Load::new(4);
    array
        .command(Command::StartScrub(ScrubMode::Check))
        .expect("a scrub");
    load.work(&mut array, 200);
    let status = array.status();
    assert_eq!(status.jobs[0].kind, JobKind::Scrub);
    assert_eq!(status.jobs[0].held_back, HeldBack::Priority);
    array
        .command(Command::Set(Setting::ScrubPriority(100)))
        .expect("a priority");
    load.work(&mut array, 200);
    let status = array.status();
    assert!(
        status
            .jobs
            .iter()
            .all(|job| job.held_back == HeldBack::None)
    );
}

#[test]
fn a_rebuild_writes_its_target_from_the_first_strip_to_the_last() {
    // Reads come back in any order.
    let draft = Scenario::new("5", 4).large().shards(1).no_caches();
    let mut array = draft.start();
    array.fill().rest().lose(2).rest().add();
    array.wait("the rebuild begins", |world| {
        world.looks().iter().any(|look| look.incoming.is_some())
    });
    let target = array.drive(2);
    let layout = &array.world.superblock().layout;
    let data = layout.data_offset..layout.data_offset + layout.data_bytes;
    let mut order: Vec<u64> = Vec::new();
    while array.state() != ArrayState::Optimal {
        array.steps(1);
        for kind in array.world.ssd(target).kinds() {
            match kind {
                IoKind::Write { offset, .. } if data.contains(offset) => order.push(*offset),
                _ => {}
            }
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    order.retain(|offset| seen.insert(*offset));
    assert!(order.len() > 1000, "{} strips were seen", order.len());
    assert!(order.is_sorted());
}

/// An array that is zeroed a row at a time.
fn to_be_zeroed(init_priority: u8, latency_target_us: u32) -> Scenario {
    let settings = Settings {
        init_priority,
        latency_target_us,
        spare_delay_ms: 0,
        ..Settings::default()
    };
    let draft = large()
        .init(Init::Zero)
        .window_bytes(1)
        .shards(1)
        .no_caches();
    let mut array = draft.settings(settings).message_ns(100).start();
    array.crowd(CROWDING_NS);
    array
}

/// Bytes of each member that are zero.
fn zeroed(array: &mut Scenario) -> u64 {
    let status = array.status();
    let job = status.jobs.iter().find(|job| job.kind == JobKind::Init);
    job.expect("it takes longer").done_bytes
}

/// So much beside a load in so many milliseconds, after as many in which it finds its pace.
fn zeroed_in(init_priority: u8, latency_target_us: u32, ms: u64) -> u64 {
    let mut array = to_be_zeroed(init_priority, latency_target_us);
    // What was never written is answered without a member.
    let mut load = Load::new(2);
    load.among = 64;
    array.write_at(0, load.among);
    load.work(&mut array, ms);
    let before = zeroed(&mut array);
    load.work(&mut array, ms);
    zeroed(&mut array) - before
}

#[test]
fn background_zeroing_keeps_to_its_priority_and_to_the_latency_target() {
    let (all, half) = (zeroed_in(100, 0, 200), zeroed_in(50, 0, 200));
    let (few, late) = (zeroed_in(1, 0, 4000) / 20, zeroed_in(100, 1, 4000) / 20);
    assert!(few > 0 && late > 0, "not nothing: {few}, {late}");
    assert!(few * 20 < all, "{few} of {all}");
    assert!(late * 20 < all, "{late} of {all}");
    assert!(half < all && half * 3 > all, "{half} of {all}");
}

/// Reads of what was never written, which no member sees, until zeroing is in a pause in its first
/// region.
fn in_the_first_region(array: &mut Scenario, load: &mut Load) {
    let region = array.world.geometry().region_rows * array.world.geometry().strip;
    for _ in 0..1000 {
        load.work(array, 1);
        let done = zeroed(array);
        assert!(done < region, "the first region is at work");
        let mut drives = array.world.drives().iter();
        if done > 0 && drives.all(|drive| drive.ssd().in_flight() == 0) {
            return;
        }
    }
    panic!("nothing is zeroed");
}

#[test]
fn who_gives_back_what_is_being_zeroed_does_not_wait_for_its_pace() {
    let mut array = to_be_zeroed(1, 0);
    let mut load = Load::new(2);
    in_the_first_region(&mut array, &mut load);
    let begun = array.world.now();
    array.begin_to_discard();
    let id = array.world.asked_last().expect("just asked");
    while array.world.is_under_way(id) {
        load.step(&mut array);
    }
    let ms = array.world.now().since(begun) / MS;
    assert!(ms < 300, "answered after {ms} ms");
}

#[test]
fn a_rebuild_that_meets_what_is_being_zeroed_in_a_pause_does_not_wait_for_ever() {
    let mut array = to_be_zeroed(1, 0);
    let mut load = Load::new(2);
    in_the_first_region(&mut array, &mut load);
    array.lose(2).add();
    array.sleep();
    assert_eq!(array.state(), ArrayState::Optimal);
    array.verify();
}

/// Where a rebuild writes its target, in the order in which the target is asked to. Each write says
/// that it is one of a rebuild.
fn order_on_the_target(array: &mut Scenario) -> Vec<u64> {
    array.lose(1).add();
    let mut asked = Vec::new();
    let mut before = BTreeSet::new();
    while array.state() != ArrayState::Optimal {
        let target = array.world.looks()[1].incoming;
        let now = target.map_or(Vec::new(), |target| {
            let ssd = array.world.ssd(target);
            let data = |kind: &IoKind| match kind {
                IoKind::Write {
                    offset, purpose, ..
                } if ssd.data.contains(offset) => {
                    assert_eq!(*purpose, WritePurpose::Rebuild);
                    Some(*offset)
                }
                _ => None,
            };
            ssd.kinds().filter_map(data).collect()
        });
        asked.extend(now.iter().filter(|at| !before.contains(*at)));
        before = now.into_iter().collect::<BTreeSet<u64>>();
        array.steps(1);
    }
    asked
}

#[test]
fn a_rebuild_writes_its_target_in_order_whatever_the_number_of_shards() {
    for (level, members) in [("5", 4), ("6", 6), ("60", 8), ("10", 4)] {
        for shards in [1, 2, 3, 5] {
            let mut array = Scenario::new(level, members).large().shards(shards).start();
            array.fill().rest();
            let region = array.world.geometry().region_bytes(RegionNo(2));
            let blocks = |bytes: u64| bytes / array.world.geometry().block;
            let hole = (blocks(region.start), blocks(region.end - region.start));
            array.ask(AskKind::Discard, hole.0, hole.1).rest();
            let asked = order_on_the_target(&mut array);
            assert!(asked.len() > 500, "{} strips", asked.len());
            assert!(asked.is_sorted(), "{level} on {shards} shards");
            array.verify();
        }
    }
}

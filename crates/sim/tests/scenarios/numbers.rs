//! Numbers of operations in the stripe log, and other counters on the members: how many are taken,
//! and what happens where they end.

use std::sync::Arc;

use strake_engine::StartError;
use strake_engine::event::*;
use strake_engine::units::RegionNo;
use strake_format::*;
use strake_sim::beyond::Demand;
use strake_sim::scenario::Scenario;
use strake_sim::ssd::Ssd;
use strake_sim::workload::AskKind;

use crate::beyond::writes_data;

/// What older programs took for every base.
const STRIDE: u64 = 1 << 36;

/// No base of the log is higher.
const NUMBERS_END: u64 = u64::MAX - (1 << 33);
/// A start after an unclean stop passes over so many numbers.
const UNDER_WAY: u64 = 1 << 26;
/// What recoveries write, as the format numbers it.
const RECOVERY_LANE: u16 = u16::MAX;

/// Every drive with a superblock.
fn each_member(array: &mut Scenario, mut change: impl FnMut(&Superblock, &mut Ssd)) {
    for drive in 0..array.world.drives().len() {
        if let Some(own) = array.world.table_of(drive) {
            change(&own, array.world.ssd_mut(drive));
        }
    }
}

/// Writes every superblock anew with what `change` makes of it.
fn rewrite(array: &mut Scenario, change: impl Fn(&mut Superblock)) {
    each_member(array, |own, ssd| {
        for offset in Layout::superblock_offsets(own.layout.device_bytes) {
            let bytes = ssd.peek(offset, 4096).expect("readable").to_vec();
            let Ok(mut superblock) = Superblock::decode(&bytes, offset) else {
                continue;
            };
            change(&mut superblock);
            ssd.poke(offset, &superblock.encode(offset)[..]);
        }
    });
}

/// An array of which an older program has left so many bases.
fn old(left: u64) -> Scenario {
    let mut array = Scenario::new("5", 4)
        .roomy_log()
        .window_bytes(32768)
        .start();
    array.fill().rest();
    array.stop();
    rewrite(&mut array, |superblock| {
        superblock.log_base = u64::MAX - left * STRIDE;
        superblock.numbers_noted = false;
    });
    array.start();
    array
}

fn base(array: &mut Scenario) -> u64 {
    array.status().superblock.log_base
}

#[test]
fn discards_rebuilds_and_restarts_go_on_where_an_older_program_left_one_base() {
    let mut array = old(1);
    let all = array.world.blocks();
    for round in 0..12 {
        array.ask(AskKind::Discard, 0, all);
        array.write_at(0, 4).rest();
        let away = array.drive(3);
        array.lose(3).steps(300);
        array.write_at(3, 1);
        array.offer(away).expect("it is kept");
        array.made_whole();
        match round % 3 {
            0 => array.stop(),
            1 => array.power_cut(),
            _ => array.rest(),
        };
        if round % 3 < 2 {
            array.start();
        }
    }
    array.verify();
}

#[test]
fn a_move_goes_on_where_an_older_program_left_one_base() {
    let mut array = old(1);
    let id = array.begin_to_restripe(1);
    array.answer(id).expect("it can have more columns");
    array.write(20).rest().verify();
}

#[test]
fn a_window_of_a_move_takes_as_many_numbers_as_were_used() {
    let mut array = Scenario::new("5", 4)
        .roomy_log()
        .window_bytes(32768)
        .start();
    array.fill().rest();
    let before = base(&mut array);
    let windows = array.world.geometry().size() / 32768;
    let id = array.begin_to_restripe(1);
    array.answer(id).expect("it can have more columns");
    array.rest();
    let taken = base(&mut array) - before;
    // Those of the writes before it, and one for each window.
    let written = array.world.blocks();
    assert!(taken <= written + 2 * windows + 16, "{taken} numbers");
    array.verify();
}

#[test]
fn a_restart_after_a_clean_stop_takes_one_number() {
    let mut array = Scenario::new("6", 5).start();
    array.write(40).rest();
    array.stop().start();
    let before = base(&mut array);
    for round in 1..=5 {
        array.stop().start();
        assert_eq!(base(&mut array), before + round);
    }
    array.verify();
}

#[test]
fn a_base_is_above_numbers_that_a_shard_gave_out_and_had_not_spoken_of() {
    let mut array = Scenario::new("5", 4).shards(1).start();
    array.fill().rest();
    array.stop().start();
    let before = base(&mut array);
    let geometry = array.world.geometry().clone();
    let region = geometry.region_bytes(RegionNo(1));
    // One after the other: each has a number of its own, and its region stays open.
    for _ in 0..20 {
        array.ask(AskKind::Write, 0, 1);
    }
    let (first, end) = (region.start / geometry.block, region.end / geometry.block);
    array.ask(AskKind::Discard, first, end - first).rest();
    let taken = base(&mut array) - before;
    assert!(taken > 20, "{taken} numbers");
    array.verify();
}

#[test]
fn records_from_before_a_clean_stop_count_no_more_where_numbers_go_on_behind_them() {
    for seed in 0..40 {
        let mut array = Scenario::new("5", 4).shards(1).seed(seed).start();
        array.fill().rest();
        array.stop().start();
        // Few numbers: what lies in the logs from before has higher ones, but for the base.
        array.write_at(seed % 16, 1);
        array.steps(seed).power_cut().start();
        array.verify();
    }
}

#[test]
fn an_array_whose_numbers_are_used_up_is_refused_by_name_and_goes_on_by_force_without_a_log() {
    let mut array = Scenario::new("6", 5).start();
    array.fill().rest();
    array.stop();
    rewrite(&mut array, |superblock| superblock.log_base = u64::MAX);
    let ended = StartError::NumbersExhausted { base: u64::MAX };
    assert_eq!(array.refused(false), ended);
    array.start_by_force();
    let superblock = array.status().superblock;
    assert_eq!(superblock.write_hole, WriteHole::Resync);
    let closed = Command::Set(Setting::WriteHole(WriteHole::Closed));
    let refused = array.command(closed);
    assert_eq!(refused, Err(CommandError::NumbersExhausted));
    array.write(40).rest().verify();
    let all = array.world.blocks();
    array.ask(AskKind::Discard, 0, all).rest();
    array.stop().start().verify();
}

#[test]
fn an_array_that_uses_up_its_numbers_fails_by_name_and_loses_nothing_that_was_acknowledged() {
    let mut array = Scenario::new("5", 4).start();
    array.fill().rest();
    array.stop();
    rewrite(&mut array, |superblock| {
        superblock.log_base = u64::MAX - (1 << 33) - 20;
    });
    array.start();
    array.world.demand(Demand::NothingWrong);
    let all = array.world.blocks();
    for _ in 0..30 {
        array.ask(AskKind::Discard, 0, all);
        array.ask(AskKind::Write, 0, 4).steps(400);
    }
    assert_eq!(array.state(), ArrayState::Failed);
    array.power_cut();
    let refused = array.refused(false);
    assert!(matches!(refused, StartError::NumbersExhausted { .. }));
}

/// A counter on the members, and what sets it.
struct Counter {
    /// What a refusal says of it.
    name: &'static str,
    /// The last value with which an array starts.
    last: u64,
    set: fn(&mut Scenario, u64),
}

/// A session adds less than 2^48.
const LAST: u64 = u64::MAX - (1 << 48);

const COUNTERS: [Counter; 6] = [
    Counter {
        name: "the epoch",
        last: LAST,
        set: |array, value| {
            rewrite(array, |superblock| {
                superblock.epoch = Epoch(value);
                superblock.editions[0] = superblock.own_edition();
            });
        },
    },
    Counter {
        name: "the generation of the superblocks",
        last: Known::HEARD_MAX - (1 << 36),
        set: |array, value| {
            rewrite(array, |superblock| {
                superblock.generation = Generation(value);
            });
        },
    },
    Counter {
        name: "the generation of the superblocks",
        last: Known::HEARD_MAX - (1 << 36),
        set: |array, value| {
            rewrite(array, |superblock| {
                if superblock.role == Role::Spare {
                    superblock.generation = Generation(value);
                }
            });
        },
    },
    Counter {
        name: "the sequence of the region map",
        last: LAST,
        set: set_map,
    },
    Counter {
        name: "the sequence of the list of unreadable blocks",
        last: LAST,
        set: set_lists,
    },
    Counter {
        name: "the sequence of recoveries of the stripe log",
        last: LAST,
        set: |array, value| poke_batch(array, RECOVERY_LANE, value, 1),
    },
];

/// The newest version of the only page of the map has this number, the other the one before.
fn set_map(array: &mut Scenario, newest: u64) {
    each_member(array, |own, ssd| {
        let read = |sequence| {
            let at = region_map::place(&own.layout, 0, sequence);
            MapPage::decode(ssd.peek(at, region_map::PAGE_BYTES).expect("readable"), at)
        };
        let page = region_map::newest(read(0), read(1)).expect("it has a map");
        for sequence in [newest - 1, newest] {
            let at = region_map::place(&own.layout, 0, sequence);
            let page = MapPage {
                sequence,
                ..page.clone()
            };
            ssd.poke(at, &page.encode(at)[..]);
        }
    });
}

fn set_lists(array: &mut Scenario, newest: u64) {
    each_member(array, |own, ssd| {
        let bytes = own.layout.unreadable_bytes;
        let places = unreadable::places(&own.layout);
        let read = |at| {
            let bytes = ssd.peek(at, bytes as usize).expect("readable");
            UnreadableList::decode(bytes, at).ok()
        };
        let lists = places.map(read);
        let newest_list = unreadable::newest(&lists, own.array, own.member);
        let list = newest_list.expect("it has a list").1;
        for (at, sequence) in places.into_iter().zip([newest - 1, newest]) {
            let list = UnreadableList {
                sequence,
                ..list.clone()
            };
            ssd.poke(at, &list.encode(bytes, at));
        }
    });
}

/// A batch in the log of each member, of a write to the last stripe, whose region is closed: so
/// many numbers above the base.
fn poke_batch(array: &mut Scenario, lane: u16, sequence: u64, above: u64) {
    let stripe = array.world.geometry().stripes() - 1;
    each_member(array, |own, ssd| {
        let record: LogRecord = LogRecord {
            stripe,
            operation: own.log_base.saturating_add(above),
            start: 0,
            len: 512,
            written: 1,
            checksums: Arc::default(),
            settled: lane == RECOVERY_LANE,
            payload: LogPayload::None,
        };
        let batch = LogBatch {
            array: own.array,
            member: own.member,
            lane,
            sequence,
            retired_before: 0,
            epoch: own.epoch,
            records: vec![record],
        };
        let at = own.layout.log_offset + own.layout.log_bytes - 4096;
        ssd.poke(at, &batch.encode(at, 4096));
    });
}

/// An array with a spare that was cut off while it wrote, with regions that are closed.
fn cut_off() -> Scenario {
    let mut array = Scenario::new("5", 4).shards(1).spares(1).start();
    array.fill().rest();
    let regions = array.world.geometry().regions();
    assert!(regions > 1);
    array.wait("the last region is closed", move |world| {
        world.array().region(RegionNo(regions - 1)) == RegionState::Clean
    });
    for block in 0..8 {
        array.begin_to_write_blocks(block, 1);
    }
    while !writes_data(&array) {
        array.steps(1);
    }
    array.power_cut();
    array
}

#[test]
fn counters_that_are_about_to_wrap_are_refused_by_name() {
    for counter in &COUNTERS {
        let name = counter.name;
        let mut array = cut_off();
        for value in [counter.last + 1, u64::MAX] {
            (counter.set)(&mut array, value);
            let wraps = StartError::CounterExhausted {
                counter: name,
                value,
            };
            for force in [false, true] {
                assert_eq!(array.refused(force), wraps, "{name} at {value}");
            }
        }
        (counter.set)(&mut array, counter.last);
        array.start().verify();
        let nothing = |line: &str| line.contains("LogReplayed { records: 0,");
        assert_eq!(array.world.notes(nothing), 0, "{name}");
        array.write(40).lose(1).write(20).made_whole().verify();
        array.stop();
    }
}

#[test]
fn numbers_in_logs_that_are_about_to_wrap_are_refused_by_name() {
    // The first base of a start is above all numbers that were used, and what may be under way.
    let last = NUMBERS_END - UNDER_WAY - 2;
    for (operation, refused) in [(last, false), (last + 1, true), (u64::MAX, true)] {
        let mut array = cut_off();
        let own = array.world.table_of(0).expect("it is a member");
        poke_batch(&mut array, 0, 9, operation - own.log_base);
        if refused {
            let base = operation.saturating_add(1 + UNDER_WAY);
            let ended = StartError::NumbersExhausted { base };
            assert_eq!(array.refused(false), ended);
            array.start_by_force();
            assert_eq!(array.status().superblock.write_hole, WriteHole::Resync);
        } else {
            array.start();
        }
        array.fill().rest().verify();
        array.begin_to_scrub().rest();
        array.kill().start_by_force().verify();
    }
}

#[test]
fn a_log_base_that_is_about_to_wrap_is_refused_by_name() {
    for (base, refused) in [(NUMBERS_END - 2, false), (NUMBERS_END - 1, true)] {
        let mut array = Scenario::new("5", 4).start();
        array.fill().rest();
        array.stop();
        rewrite(&mut array, |superblock| superblock.log_base = base);
        if refused {
            let ended = StartError::NumbersExhausted { base: base + 1 };
            assert_eq!(array.refused(false), ended);
            array.start_by_force();
        } else {
            array.start();
        }
        array.fill().rest().verify();
    }
}

#[test]
fn a_table_of_volumes_that_is_about_to_wrap_is_refused_by_name() {
    let mut table = VolumeTable::empty(ArrayUuid([9; 16]), 1 << 20);
    table.generation = Generation(LAST);
    assert_eq!(table.check(), Ok(()));
    for value in [LAST + 1, u64::MAX] {
        table.generation = Generation(value);
        assert_eq!(table.check(), Err(VolumeTableError::Generation(value)));
    }
}

/// What a scrub has found goes on with the next start.
#[test]
fn what_a_scrub_has_found_stops_at_its_end() {
    let mut array = Scenario::new("6", 5).forgiving().start();
    array.fill().rest();
    array.rot(4, 0).rot(9, 1).stop();
    rewrite(&mut array, |superblock| {
        superblock.scrub = Some(ScrubRecord {
            mode: ScrubMode::Check,
            paused: false,
            done_bytes: 0,
            found: ScrubCounts {
                inconsistent: u64::MAX - 1,
                located: u64::MAX,
                unreadable: 0,
            },
        });
    });
    array.start().rest();
    let found = array
        .status()
        .superblock
        .last_scrub
        .expect("it is over")
        .found;
    assert_eq!((found.inconsistent, found.located), (u64::MAX, u64::MAX));
}

/// Its row cannot say how much newer the superblocks are that it got when it came back, before it
/// was lost once more. It was taken for a member that had served on apart.
#[test]
fn a_member_that_is_lost_while_it_comes_back_after_long_is_no_split_brain() {
    let mut unclear = 0;
    for steps in 1..32 {
        let mut array = Scenario::new("5", 4).start();
        array.fill().rest();
        let away = array.drive(3);
        array.lose(3).steps(300);
        for round in 0..270 {
            let minute = Setting::ScrubMinute(round);
            array.command(Command::Set(minute)).expect("it can be set");
        }
        let id = array.world.offer(away).expect("it holds a member");
        array.steps(steps);
        if array.serves(away) {
            array.lose(3).steps(300);
        }
        array.answer(id).expect("it is kept");
        array.bring_back(away);
        let (own, table) = (array.world.table_of(away), array.status().superblock);
        let own = own.expect("it is a member");
        if matches!(past(&own, &table), Past::Unclear { .. }) {
            unclear += 1;
            assert_eq!(array.offer(away), Err(CommandError::NotKept));
        }
        array.rest().verify();
    }
    assert!(unclear > 0);
}

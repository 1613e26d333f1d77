//! Numbers of operations in the stripe log: how many are taken, and what happens where they end.

use strake_engine::StartError;
use strake_engine::event::*;
use strake_engine::units::RegionNo;
use strake_format::{Layout, Superblock, WriteHole};
use strake_sim::beyond::Demand;
use strake_sim::scenario::Scenario;
use strake_sim::workload::AskKind;

/// What older programs took for every base.
const STRIDE: u64 = 1 << 36;

/// Writes every superblock anew with what `change` makes of it.
fn rewrite(array: &mut Scenario, change: impl Fn(&mut Superblock)) {
    for drive in 0..array.world.drives().len() {
        let Some(own) = array.world.table_of(drive) else {
            continue;
        };
        let ssd = array.world.ssd_mut(drive);
        for offset in Layout::superblock_offsets(own.layout.device_bytes) {
            let bytes = ssd.peek(offset, 4096).expect("readable").to_vec();
            let Ok(mut superblock) = Superblock::decode(&bytes, offset) else {
                continue;
            };
            change(&mut superblock);
            ssd.poke(offset, &superblock.encode(offset)[..]);
        }
    }
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

#[test]
fn counters_that_are_about_to_wrap_are_refused_by_name() {
    let mut array = Scenario::new("5", 4).start();
    array.fill().rest();
    array.stop();
    rewrite(&mut array, |superblock| {
        superblock.generation.0 = u64::MAX - 3
    });
    let counter = "the generation of the superblocks";
    let value = u64::MAX - 3;
    let wraps = StartError::CounterExhausted { counter, value };
    assert_eq!(array.refused(false), wraps);
}

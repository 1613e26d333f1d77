//! Reads of other shards' stripes: by the shard that was asked, where nothing is to be known but
//! where the bytes lie.

use strake_sim::scenario::Scenario;

/// Three shards, and what is read there was written.
fn shards(level: &str, members: u8) -> Scenario {
    let mut array = Scenario::new(level, members).shards(3).start();
    array.fill().rest().steps(20_000);
    array
}

/// Reads everything: how many of other shards' stripes were begun, and went to their owner.
fn visits(array: &mut Scenario) -> (u64, u64) {
    let told = |array: &Scenario| {
        (
            array.world.stats().visits,
            array.world.stats().visits_passed,
        )
    };
    let before = told(array);
    array.verify();
    let after = told(array);
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn a_healthy_read_is_done_by_the_shard_that_was_asked() {
    for (level, members) in [("0", 3), ("1", 2), ("5", 4), ("6", 5), ("50", 6)] {
        let (begun, passed) = visits(&mut shards(level, members));
        assert!(begun > 0 && passed == 0, "level {level}: {begun}, {passed}");
    }
}

#[test]
fn without_a_member_what_it_held_goes_to_the_owner_and_the_rest_is_read_as_before() {
    for (level, members) in [("5", 4), ("6", 5), ("50", 6)] {
        let mut array = shards(level, members);
        array.lose(1).fill().rest();
        let (begun, passed) = visits(&mut array);
        assert!(begun > 0 && passed > 0, "level {level}: {begun}, {passed}");
        array.add().made_whole().steps(20_000);
        let (begun, passed) = visits(&mut array);
        assert!(begun > 4 * passed, "level {level}: {begun}, {passed}");
    }
}

#[test]
fn while_data_moves_the_owner_reads_and_afterwards_whoever_was_asked() {
    let mut raid5 = shards("5", 4);
    let moving = raid5.begin_to_restripe(1);
    raid5.answer(moving).expect("there is a device for it");
    let (begun, passed) = visits(&mut raid5);
    assert!(raid5.world.geometry().old_shape.is_some(), "it still moves");
    assert!(begun == 0 && passed > 0, "{begun}, {passed}");
    raid5.rest().steps(20_000);
    let (begun, passed) = visits(&mut raid5);
    // What the array has more by now was never written.
    assert!(begun > 2 * passed, "{begun}, {passed}");
}

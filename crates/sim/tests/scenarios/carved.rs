//! Stories about arrays that are carved: once acknowledged, the carving must survive anything, for
//! an array that forgets it gives its users the table of volumes as data; and its volumes hold what
//! they held.

use strake_engine::event::{Command, Setting};
use strake_sim::course::Course;
use strake_sim::plan::Plan;
use strake_sim::report::Stats;
use strake_sim::runner::{Run, run};
use strake_sim::scenario::Scenario;

fn is_carved(array: &mut Scenario) -> bool {
    array.status().superblock.carved
}

#[test]
fn an_array_that_is_carved_stays_so_through_power_cuts_losses_and_returns() {
    for (level, members) in [("1", 3), ("5", 4), ("6", 5), ("10", 4)] {
        for cut in [true, false] {
            let mut array = Scenario::new(level, members).start();
            array.write(20);
            assert!(!is_carved(&mut array));
            // An absent member does not record it.
            let lost = array.drive(1);
            array.pull(1).write(10).rest();
            array
                .command(Command::Set(Setting::Carved))
                .expect("it can be carved");
            // The answer is all that there is to go by.
            let array = if cut { array.power_cut() } else { array.kill() };
            array.bring_back(lost).start();
            assert!(is_carved(array), "level {level}");
            array.made_whole().verify();
            assert!(is_carved(array), "level {level}");
            array.stop().start();
            assert!(is_carved(array), "level {level}");
        }
    }
}

/// Not by a script: what changes, and what goes wrong meanwhile, is drawn.
#[test]
fn volumes_hold_what_they_held_whatever_is_made_resized_or_deleted_while_power_and_members_go() {
    let carved = |seed: &u64| Plan::draw(*seed, None).volumes && Course::of(*seed).is_none();
    let mut all = Stats::default();
    for seed in (1..).filter(carved).take(60) {
        let outcome = run(&Run {
            seed,
            ..Run::default()
        });
        if let Some(failure) = outcome.failure {
            let story = failure.story.join("\n");
            panic!("seed {seed}: {}\n{story}", failure.text);
        }
        all.add(&outcome.stats);
    }
    // Or it would say nothing.
    assert!(all.volume_changes > 100, "{all:?}");
    assert!(all.volume_changes_found > 0, "{all:?}");
    assert!(all.volume_asks_split > 0, "{all:?}");
    assert!(all.volume_asks_refused > 0, "{all:?}");
    assert!(
        all.losses > 0 && all.power_cuts > 0 && all.kills > 0,
        "{all:?}"
    );
}

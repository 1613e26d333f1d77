//! Stories about the word that an array is carved: whoever was told that it holds must find it
//! after anything, for an array that forgets it gives its users the table of volumes as data.

use strake_engine::event::{Command, Setting};
use strake_sim::scenario::Scenario;

fn is_carved(array: &mut Scenario) -> bool {
    array.world.machines().array.status().superblock.carved
}

#[test]
fn an_array_that_is_carved_stays_so_through_power_cuts_losses_and_returns() {
    for (level, members) in [("1", 3), ("5", 4), ("6", 5), ("10", 4)] {
        for cut in [true, false] {
            let mut array = Scenario::new(level, members).start();
            array.write(20);
            assert!(!is_carved(&mut array));
            // One that is away does not hear of it.
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

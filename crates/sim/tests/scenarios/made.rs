//! The power goes while an array is being made: what there is then is an array that answers right,
//! or none, and either way the next one can be made on the same devices.

use strake_engine::create::Init;
use strake_engine::event::ArrayState;
use strake_engine::{Aside, StartError};
use strake_format::SelectError;
use strake_sim::launch::Half;
use strake_sim::scenario::{Draft, Scenario};

const LEVELS: [(&str, u8); 8] = [
    ("0", 3),
    ("1", 2),
    ("1", 3),
    ("5", 4),
    ("6", 5),
    ("10", 4),
    ("50", 6),
    ("n+m", 6),
];

/// After every step, each time with another fate of what was not durable.
fn halves(draft: &Draft) -> impl Iterator<Item = Half> + use<> {
    let steps = draft.steps_to_make();
    (0..=steps).map(|steps| Half {
        steps,
        seed: steps as u64,
    })
}

/// Whether it starts; if not, the reason is that too little of it is there.
fn starts(array: &mut Scenario) -> bool {
    if array.world.assemble(false).is_ok() {
        return true;
    }
    for force in [false, true] {
        let refusal = array.refused(force);
        let absent = |select: &SelectError| {
            matches!(
                select,
                SelectError::NoMembers | SelectError::AuthorityAbsent { .. }
            )
        };
        let too_little = match &refusal {
            StartError::TooFewMembers { .. } => true,
            StartError::Select(select) => absent(select),
            _ => false,
        };
        assert!(too_little, "force {force}: {refusal}");
    }
    false
}

/// Everything reads as zeros, and what is written is kept, also without a member.
fn serves_as_new(mut array: Scenario) {
    let survives = array.world.geometry().m > 0;
    array.start().verify().write(20).rest().verify();
    assert_eq!(array.state(), ArrayState::Optimal);
    if survives {
        array.lose(1).write(10).verify();
    }
}

#[test]
fn an_array_that_was_half_made_is_too_little_or_answers_right_and_is_made_again() {
    for (level, members) in LEVELS {
        let (mut started, mut degraded, mut refused) = (0, 0, 0);
        for init in [Init::Zero, Init::AssumeClean] {
            let draft = || {
                let draft = Scenario::new(level, members).shards(1);
                draft.small_blocks().init(init)
            };
            for half in halves(&draft()) {
                let mut array = draft().make_half(half);
                if starts(&mut array) {
                    array.start().verify().write(20).rest().verify();
                    started += 1;
                    degraded += u32::from(array.state() == ArrayState::Degraded);
                    array.power_cut();
                } else {
                    refused += 1;
                }
                serves_as_new(array.make_anew(None));
            }
        }
        assert!(
            started > 0 && refused > started,
            "{level}: {started} {refused}"
        );
        // All that is missing is what it survives without.
        assert_eq!(degraded > 0, level != "0", "{level}: {degraded}");
    }
}

/// Members are missing to it that carry all but a copy of their superblock.
fn may_be_whole(why: &StartError) -> bool {
    let emptied = |aside: &Aside| matches!(aside, Aside::Emptied { .. });
    match why {
        StartError::TooFewMembers { aside, .. } => aside.iter().any(|(_, why)| emptied(why)),
        _ => false,
    }
}

/// The old array's data is not given up before the newer one is there: what is left of it may be
/// too little, or without its maps, but is never taken for something else.
#[test]
fn an_array_over_which_another_was_half_made_answers_nothing_wrong() {
    for (level, members) in LEVELS {
        let (mut started, mut refused) = (0, 0);
        let draft = || Scenario::new(level, members).shards(1).small_blocks();
        for half in halves(&draft()) {
            let mut array = draft().seed(half.seed).start();
            array.write(40).rest();
            match half.steps % 2 {
                0 => drop(array.stop()),
                _ => drop(array.power_cut()),
            }
            array.world.make_over(half);
            match array.world.assemble(false) {
                Ok(_) => {
                    array.start().rest().verify();
                    started += 1;
                    array.power_cut();
                }
                Err(why) => {
                    array.world.note(format!("refused: {why}"));
                    refused += 1;
                    // Of members that have lost a superblock, and nothing else yet, a person may
                    // say so.
                    match may_be_whole(&why) && array.world.assemble(true).is_ok() {
                        true => {
                            array.world.close_all();
                            array.start_by_force().rest().verify();
                            array.power_cut();
                        }
                        false => drop(array.refused(true)),
                    }
                }
            }
            serves_as_new(array.make_anew(None));
        }
        assert!(started > 0 && refused > 0, "{level}: {started} {refused}");
    }
}

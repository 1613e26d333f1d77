//! One mechanism for what must come out well wherever it is struck: a story is begun again and
//! again, each time something happens to it a few events later, until that comes after its end.
//!
//! Invariant: between two rounds nothing differs but the moment, so that the rounds together go
//! through one life step by step.

use strake_engine::units::CommandId;
use strake_sim::scenario::Scenario;

/// Requests that are under way beside a story.
pub(crate) const ASKS: u64 = 25;

/// Makes an array, begins a story, lets so many events happen, and strikes, until the story is
/// `over` before the blow. What `begin` knows of the story is shown to the others. How many blows
/// met the story under way.
pub(crate) fn everywhere<T>(
    stride: usize,
    make: impl Fn() -> Scenario,
    begin: impl Fn(&mut Scenario) -> T,
    over: impl Fn(&mut Scenario, &T) -> bool,
    mut strike: impl FnMut(&mut Scenario, &T, usize),
) -> usize {
    for nth in 0.. {
        let mut array = make();
        let story = begin(&mut array);
        array.steps((nth * stride) as u64);
        let over = over(&mut array, &story);
        array
            .world
            .note(format!("struck after {} events", nth * stride));
        strike(&mut array, &story, nth);
        if over {
            return nth;
        }
    }
    unreachable!("there is no last number")
}

/// The power goes, or the process dies, by turns.
pub(crate) fn cut(array: &mut Scenario, nth: usize) {
    match nth.is_multiple_of(2) {
        true => array.power_cut(),
        false => array.kill(),
    };
}

/// While nothing runs: the member of this slot is absent at the next start.
pub(crate) fn hide(array: &mut Scenario, slot: u8) {
    let drives = array.world.condition_on_media().0;
    if let Some(&Some(drive)) = drives.get(usize::from(slot)) {
        array.world.hide(drive);
    }
}

/// The size of the array.
pub(crate) fn size(array: &mut Scenario) -> u64 {
    array.status().size_bytes
}

/// Data is in two shapes.
pub(crate) fn moves(array: &mut Scenario) -> bool {
    let sb = array.status().superblock;
    sb.moving.is_some()
}

/// The superblock of the member in slot 0 says so: another start finds it.
pub(crate) fn moves_on_media(array: &mut Scenario) -> bool {
    let drive = array.drive(0);
    let own = array.world.table_of(drive).expect("a superblock");
    own.moving.is_some()
}

/// A move of data, and the size that the array has when it is over.
pub(crate) struct Move {
    /// Its command.
    pub(crate) id: CommandId,
    /// Bytes.
    pub(crate) to_be: u64,
}

/// The power goes (or the process dies) after every so many events of a move, and with it perhaps a
/// member: nothing is lost, and the move goes on. Windows that were written again from their
/// copies.
pub(crate) fn cut_a_move(
    stride: usize,
    make: impl Fn() -> Scenario,
    begin: impl Fn(&mut Scenario) -> Move,
    lose: Option<u8>,
) -> u64 {
    let (mut moving, mut resumed) = (0, 0);
    let begin = |array: &mut Scenario| {
        let it = begin(array);
        array.begin_to_write(ASKS, 0);
        it
    };
    let over =
        |array: &mut Scenario, it: &Move| array.world.answer_to(it.id).is_some() && !moves(array);
    everywhere(stride, make, begin, over, |array, it, nth| {
        cut(array, nth);
        lose.into_iter().for_each(|slot| hide(array, slot));
        array.start();
        let moves = moves(array);
        moving += u64::from(moves);
        array.rest().verify().write(20).rest().verify();
        if lose.is_none() && moves {
            assert_eq!(size(array), it.to_be, "after blow {nth}");
        }
        resumed += array.world.stats().resumed;
    });
    assert!(moving > 10, "{moving}");
    resumed
}

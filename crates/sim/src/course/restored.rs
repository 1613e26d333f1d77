//! An array that is made again over strips that do not agree.
//!
//! Invariant: what rots is a parity, or a copy of a mirror that answers no read while its region is
//! undecided; so data are right, however it is decided. Deliberately absent: devices in the wrong
//! slots.

use strake_engine::event::Command;
use strake_engine::units::StripeNo;
use strake_format::ScrubMode;

use crate::prng::Prng;
use crate::scenario::Scenario;

/// A parity rots, superblocks and maps are lost and made again, and the power goes at any time.
/// Nothing is made to agree before an administrator says so; then redundancy is true.
pub(crate) fn restored(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest().sleep();
    let geometry = array.world.geometry().clone();
    let stripe = rng.below(geometry.stripes());
    let column = geometry.k + rng.index(geometry.m);
    array.rot(stripe, column);
    let known = array.world.superblock().clone();
    array.stop();
    array.restore(&known);
    let drive = array.world.in_slots()[geometry.slot(StripeNo(stripe), column).index()];
    let row = geometry.row(StripeNo(stripe)).1;
    let at = known.layout.data_offset + geometry.row_offset(row);
    let held = |array: &Scenario| {
        let ssd = array.world.ssd(drive);
        ssd.held(at, geometry.strip as usize).to_vec()
    };
    let before = held(array);
    array.start();
    if rng.percent(50) {
        // Before and while the strips are compared.
        array.begin_to_read();
    }
    if rng.percent(50) {
        array.steps(rng.below(400)).power_cut().start();
    }
    array.rest();
    let undecided = |array: &mut Scenario| array.status().undecided.len();
    assert!(undecided(array) == 1, "what does not agree is not said");
    assert!(before == held(array), "a resync decided");
    if rng.percent(50) {
        array.verify();
        array.world.command(Command::StartScrub(ScrubMode::Repair));
        array.rest();
        assert!(undecided(array) == 1, "a read or a scrub decided");
        assert!(before == held(array), "a read or a scrub changed a copy");
    }
    if rng.percent(50) {
        // Stripes that are written anew as a whole agree.
        array.begin_to_overwrite().steps(rng.below(400));
        array.power_cut().start();
        array.rest();
    }
    array.world.command(Command::AcceptData);
    if rng.percent(50) {
        array.steps(rng.below(200)).power_cut().start();
        array.rest();
        array.world.command(Command::AcceptData);
    }
    array.rest();
    assert!(undecided(array) == 0, "it is decided");
    array.verify();
    let survives = match geometry.mirrored() {
        true => geometry.m,
        false => geometry.level.parity_count().into(),
    };
    for slot in 0..survives {
        array.lose(slot as u8);
    }
    array.rest().verify();
}

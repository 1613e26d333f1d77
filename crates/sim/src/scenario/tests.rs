//! Stories of starts that were not fair: what the world must not do to an array.
//!
//! Invariant: each of these once failed a seed in which the array was right.

use super::*;
use strake_format::Epoch;

/// Seeds, and for each the steps after which the power fails while a member is being put out.
fn moments() -> impl Iterator<Item = (u64, u64)> {
    (0..20).flat_map(|seed| (0..32).map(move |steps| (seed, steps)))
}

/// A member is being put out, and the power fails: checks each world in which only a spare records
/// it. Returns the number of these worlds, and of the others in which a member records it.
fn only_a_spare_knows(check: impl Fn(&Scenario, u64)) -> (u32, u32) {
    let (mut alone, mut others) = (0, 0);
    for (seed, steps) in moments() {
        let mut raid1 = Scenario::new("1", 2)
            .spares(1)
            .no_caches()
            .seed(seed)
            .start();
        let (out, on) = (raid1.drive(0), raid1.drive(1));
        raid1.world.command(Command::Fail(Slot(0)));
        raid1.steps(steps).power_cut();
        let present = raid1.world.present().into_iter();
        let knowing = present.filter(|(_, sb)| sb.epoch > Epoch(1));
        let knowing: Vec<usize> = knowing.map(|(index, _)| index).collect();
        if !knowing.is_empty() && !knowing.contains(&out) && !knowing.contains(&on) {
            alone += 1;
            check(&raid1, seed);
        } else {
            others += u32::from(!knowing.is_empty());
        }
    }
    (alone, others)
}

/// Engines told spares when they told members in sync: the member that went on did not know of it
/// yet. The member that was out counted as intact, and the other one was taken away.
#[test]
fn a_member_that_only_a_spare_knows_to_be_out_is_not_intact() {
    use strake_engine::canary::{Canary, plant};
    plant(Some(Canary::NewcomerHearsEarly));
    let (told, _) = only_a_spare_knows(|raid1, seed| {
        let (_, situation) = raid1.world.condition_on_media();
        assert!(!situation.slots[0].intact, "seed {seed}");
    });
    plant(None);
    assert!(told > 5, "{told}");
}

#[test]
fn a_spare_never_knows_alone_that_a_member_is_out() {
    let (alone, others) = only_a_spare_knows(|_, _| {});
    assert!(alone == 0 && others > 5, "{alone} {others}");
}

/// A table that puts a member out reached one mirror before the power failed; that mirror was
/// away when the others went on. With the last of those that it calls in sync taken away, the
/// array refused to start beside it: nothing there tells that it did not go on alone.
#[test]
fn a_leftover_is_taken_away_when_its_last_witness_is() {
    let mut told = 0;
    for (seed, steps) in moments() {
        let mut raid1 = Scenario::new("1", 4).no_caches().seed(seed).start();
        let [first, second, third, fourth] = [0, 1, 2, 3].map(|slot| raid1.drive(slot));
        raid1.world.command(Command::Fail(Slot(0)));
        raid1.steps(steps).power_cut();
        let present = raid1.world.present().into_iter();
        let knowing = present.filter(|(_, sb)| sb.epoch > Epoch(1));
        let knowing: Vec<usize> = knowing.map(|(index, _)| index).collect();
        if !knowing.contains(&third) || knowing.contains(&first) || knowing.contains(&fourth) {
            continue;
        }
        told += 1;
        for away in [second, third] {
            raid1.world.hide(away);
        }
        raid1.start().write(20).rest().stop().bring_back(third);
        assert!(raid1.world.unwitnessed().is_empty(), "seed {seed}");
        raid1.world.hide(fourth);
        assert_eq!(raid1.world.unwitnessed(), [third], "seed {seed}");
        raid1.world.take_leftovers_away();
        raid1.start().verify();
    }
    assert!(told > 3, "{told}");
}

/// A mirror lost its power, and with it what its cache had answered, while another member was
/// being put out. The survivor that knew of the one and not of the other believed the mirror
/// when it came back.
#[test]
fn a_device_that_lost_its_power_returns_only_where_it_is_known_to_be_out() {
    let (mut kept_away, mut returned) = (0, 0);
    for seed in 0..160 {
        let mut raid1 = Scenario::new("1", 4).seed(seed).start();
        let pulled = raid1.drive(0);
        raid1.world.command(Command::Fail(Slot(3)));
        raid1.pull(0).write(3).steps(seed % 50).kill();
        let mut known = raid1.world.present();
        known.retain(|(index, sb)| *index != pulled && sb.epoch > Epoch(1));
        let out = known.iter().filter(|(_, sb)| !sb.slots[0].state.is_live());
        let out = !known.is_empty() && out.count() == known.len();
        raid1.world.bring_back(100);
        let back = !raid1.world.ssd(pulled).faults.gone;
        assert!(!back || out, "seed {seed}");
        kept_away += u32::from(!back && !known.is_empty());
        returned += u32::from(back);
    }
    assert!(kept_away > 0 && returned > 0, "{kept_away} {returned}");
}

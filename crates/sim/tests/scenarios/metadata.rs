//! Writes of metadata that are lost or land elsewhere, and what cuts leave of the others.

use strake_engine::event::{Command, Setting};
use strake_engine::units::Slot;
use strake_format::{Layout, MapPage, SlotState, region_map};
use strake_sim::scenario::Scenario;
use strake_sim::silent::WriteFault;
use strake_sim::ssd::written;
use strake_sim::tally::{Area, Damage};
use strake_sim::world::{Drive, World};

const LEVELS: [(&str, u8); 6] = [
    ("1", 3),
    ("5", 4),
    ("6", 5),
    ("10", 4),
    ("60", 8),
    ("n+m", 7),
];

/// Takes away as many other members of the group of `slot` as may be lost while it counts as lost,
/// too.
fn hide_others(array: &mut Scenario, slot: u8, drives: &[usize]) {
    let (width, m) = (array.world.geometry().width, array.world.geometry().m);
    let first = usize::from(slot) / width * width;
    let others = (first..first + width).filter(|&other| other != usize::from(slot));
    for other in others.take(m - 1) {
        array.world.hide(drives[other]);
    }
}

/// The names that the members found carry.
fn names(array: &Scenario) -> Vec<String> {
    let found = array.world.present();
    let mut names: Vec<String> = found.iter().map(|(_, sb)| sb.name.to_string()).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn an_array_that_is_renamed_has_one_name_whenever_the_power_fails() {
    let (mut old, mut new, mut answered, mut mixed) = (0, 0, 0, 0);
    for seed in 0..80 {
        let (level, members) = LEVELS[seed as usize % LEVELS.len()];
        let mut array = Scenario::new(level, members).seed(seed).start();
        array.write_all().rest();
        let before = names(&array);
        let asked = Command::Rename("other".parse().expect("a name"));
        let id = array.world.command(asked);
        array.begin_to_write(20, seed);
        let told = array.world.answer_to(id).is_some();
        array.power_cut();
        mixed += u64::from(names(&array).len() > 1);
        array.start();
        let after = names(&array);
        assert!(after == before || after == ["other"], "{after:?}");
        assert!(!told || after == ["other"], "the answer was too early");
        match after == before {
            true => old += 1,
            false => new += 1,
        }
        answered += u64::from(told);
        array.verify();
    }
    assert!(
        old > 5 && new > 5 && answered > 5 && mixed > 5,
        "{old} {new} {answered} {mixed}"
    );
}

#[test]
fn a_member_that_was_away_when_its_array_was_renamed_takes_the_new_name() {
    let mut raid6 = Scenario::new("6", 5).start();
    raid6.write_all().rest();
    let away = raid6.drive(3);
    raid6.lose(3).write(20).rest();
    let rename = |name: &str| Command::Rename(name.parse().expect("a name"));
    raid6.command(rename("other")).expect("it serves");
    raid6.stop();
    raid6.bring_back(away);
    assert_eq!(names(&raid6).len(), 2);
    raid6.start().made_whole().verify();
    assert_eq!(names(&raid6), ["other"]);
    assert!(raid6.serves(away));
}

fn all_drives(array: &mut Scenario) -> Vec<usize> {
    let slots = array.world.geometry().slots() as u8;
    (0..slots).map(|slot| array.drive(slot)).collect()
}

/// What a start writes on one member went wrong: the version before is all that it has, or less.
#[test]
fn a_start_whose_writes_go_wrong_on_one_member_is_mended_by_the_next() {
    for area in [Area::Superblock, Area::Map, Area::List] {
        for (fault, kind) in [
            (WriteFault::Lost, Damage::Lost),
            (WriteFault::Misdirected, Damage::Misdirected),
        ] {
            let mut placed = 0;
            for seed in 0..18 {
                let (level, members) = LEVELS[seed as usize % LEVELS.len()];
                let mut array = Scenario::new(level, members).pages_of(4).seed(seed).start();
                array.write_all().rest();
                let drives = all_drives(&mut array);
                array.begin_to_write(20, 30 * seed).power_cut();
                // Superblocks are written twice, and every page of the map.
                let slot = (seed % u64::from(members)) as u8;
                array.misdirect(drives[usize::from(slot)], area, fault, seed / 6 % 2);
                array.start().begin_to_write(20, 20 * seed).power_cut();
                placed += array.world.stats().metadata.of(kind, area);
                hide_others(&mut array, slot, &drives);
                array.start().verify();
            }
            assert!(placed >= 10, "{area:?} {fault:?}: {placed}");
        }
    }
}

/// The second copy of a superblock that put a member out was lost on another; the next one was
/// being written when the power failed. That member then knew only of the time before.
#[test]
fn a_member_that_knows_of_no_loss_is_told_by_the_others() {
    let mut old = 0;
    for seed in 0..40 {
        let draft = Scenario::new("6", 5).small_blocks().no_caches();
        let mut raid6 = draft.seed(seed).start();
        raid6.write_all().rest();
        let drives = all_drives(&mut raid6);
        // The second copy of the flight that tells of the failure: the look before it writes none.
        raid6.misdirect(drives[0], Area::Superblock, WriteFault::Lost, 1);
        raid6.begin_to_write(20, 0);
        raid6.world.command(Command::Fail(Slot(3)));
        while raid6.status().members[3].device.is_some() {
            raid6.steps(1);
        }
        let priority = Setting::RebuildPriority(10);
        raid6.world.command(Command::Set(priority));
        let lost = |world: &World| world.stats().metadata.of(Damage::Lost, Area::Superblock);
        while lost(&raid6.world) == 0 {
            raid6.steps(1);
        }
        // Of the next flight the first copy is on its way.
        let writes = |world: &World| {
            let [first, last] = Layout::superblock_offsets(world.ssd(drives[0]).len());
            let mut writes = world.ssd(drives[0]).kinds().filter_map(written);
            writes.any(|(offset, _)| offset == first || offset == last)
        };
        while !writes(&raid6.world) {
            raid6.steps(1);
        }
        raid6.power_cut();
        let present = raid6.world.present();
        let epoch = |drive: usize| {
            present
                .iter()
                .find(|(d, _)| *d == drive)
                .map(|(_, sb)| sb.epoch)
        };
        old += u64::from(epoch(drives[0]) < epoch(drives[1]));
        raid6.start().verify();
        // It has less than it is known to have had: an older image of it has no less.
        if !raid6.serves(drives[0]) {
            raid6.add();
        }
        raid6.add().made_whole().verify();
    }
    assert!(old > 5, "{old}");
}

/// Records of a write lay on one member less than the engine believed.
#[test]
fn a_batch_of_the_log_that_one_member_lacks_costs_nothing_while_that_member_may_be_lost() {
    for (fault, kind) in [
        (WriteFault::Lost, Damage::Lost),
        (WriteFault::Misdirected, Damage::Misdirected),
    ] {
        let mut replayed = 0;
        for seed in 0..60 {
            let (level, members) = [("5", 4), ("6", 5), ("7.3", 6), ("n+m", 7)][seed as usize % 4];
            let mut array = Scenario::new(level, members).seed(seed).start();
            array.write_all().rest();
            let drives = all_drives(&mut array);
            let slot = (seed / 4 % u64::from(members)) as u8;
            let drive = drives[usize::from(slot)];
            array.misdirect(drive, Area::Log, fault, seed % 6);
            array.begin_to_write(60, 100 + 25 * (seed % 16)).power_cut();
            if array.world.stats().metadata.of(kind, Area::Log) == 0 {
                continue;
            }
            hide_others(&mut array, slot, &drives);
            array.start().verify();
            replayed += u64::from(array.world.stats().log_replays > 0);
        }
        assert!(replayed > 15, "{fault:?}: {replayed}");
    }
}

/// Pages of the map that a cut left half old and half new, on every member at once.
#[test]
fn map_pages_torn_within_a_block_on_every_member_are_noticed() {
    let mut torn = 0;
    for seed in 0..150 {
        let (level, members) = [("5", 4), ("1", 2), ("6", 5)][seed as usize % 3];
        let draft = Scenario::new(level, members).pages_of(4).no_caches();
        let mut array = draft.seed(seed).start();
        array.begin_to_overwrite();
        array.wait("a page is on its way to every member", |world| {
            let layout = world.superblock().layout;
            let map = layout.map_offset..layout.log_offset;
            let members = world.geometry().slots();
            let drives = world.drives()[..members].iter();
            let writes = |drive: &Drive| {
                let mut writes = drive.ssd().kinds().filter_map(written);
                writes.any(|(offset, _)| map.contains(&offset))
            };
            drives.map(writes).filter(|on_its_way| *on_its_way).count() > 1
        });
        array.power_cut();
        torn += array.world.stats().metadata.of(Damage::Torn, Area::Map);
        array.start().rest().verify().begin_to_scrub().rest();
    }
    assert!(torn > 15, "{torn}");
}

/// A member was lost, a region was opened without it, and the process died before it was durable
/// that the member was out. At the next start it was there again, and believed; and the other's
/// page that said Dirty could not be read, so its older one held: nothing was resynced.
#[test]
fn a_region_is_written_only_when_it_is_durable_who_did_not_hear_of_that() {
    let mut not_durable = 0;
    for events in 0..120 {
        let draft = Scenario::new("1", 2).no_caches();
        let mut raid1 = draft.seed(events + 1).start();
        raid1.fill().rest().sleep();
        let epoch = |array: &Scenario, drive: usize| {
            let own = array.world.table_of(drive);
            own.expect("it is a member").epoch
        };
        let (kept, lost) = (raid1.drive(0), raid1.drive(1));
        raid1.world.ssd_mut(lost).faults.gone = true;
        raid1.begin_to_overwrite().steps(events).kill();
        raid1.bring_back(lost);
        if epoch(&raid1, kept) != epoch(&raid1, lost) {
            continue;
        }
        not_durable += 1;
        let (layout, block) = (
            raid1.world.superblock().layout,
            raid1.world.geometry().block,
        );
        let ssd = raid1.world.ssd(kept);
        let newest = [0, 1].map(|sequence| {
            let at = region_map::place(&layout, 0, sequence);
            let page = ssd
                .peek(at, region_map::PAGE_BYTES)
                .expect("it can be read");
            let page = MapPage::decode(page, at);
            page.map_or((0, at), |page| (page.sequence, at))
        });
        let (_, at) = newest.into_iter().max().expect("two places");
        let latent = &mut raid1.world.ssd_mut(kept).faults.latent;
        latent.insert(at / block);
        raid1.start();
        raid1.rest().verify().begin_to_scrub().rest();
    }
    assert!(not_durable > 10, "{not_durable}");
}

/// Goes on until this is so.
fn step_until(array: &mut Scenario, until: impl Fn(&mut World) -> bool) {
    for _ in 0..5000 {
        if until(&mut array.world) {
            return;
        }
        array.steps(1);
    }
    panic!("it does not come to this");
}

/// What lies on this drive calls that one in sync.
fn calls_in_sync(world: &World, drive: usize, other: usize) -> bool {
    let (table, other) = (world.table_of(drive), world.table_of(other));
    let (table, other) = (table.expect("a member"), other.expect("a member"));
    let row = table.slot_of(other.member).and_then(|at| table.slot(at));
    row.is_some_and(|row| row.state == SlotState::InSync)
}

/// The table with the replacement is durable, but a shard does not yet return its read lease, so
/// the replaced member still gets every write. It takes its slot back when the replacement is lost.
/// The table that says so reaches it together with the device that joins another slot, after the
/// member that was in sync all the time.
#[test]
fn a_replaced_member_that_takes_its_slot_back_hears_of_it_with_the_newcomers() {
    let mut ahead = 0;
    for seed in 0..60 {
        let mut raid1 = Scenario::new("1", 3).shards(2).seed(seed).start();
        raid1.fill().rest();
        let drives = all_drives(&mut raid1);
        let [replaced, stays, joins] = drives[..] else {
            panic!("there are three members");
        };
        raid1.lose(2).write(10).rest();
        let new = raid1.world.fresh().expect("there are devices left");
        let replacement = raid1.world.drive_of(new.device);
        raid1.world.command(Command::Replace(Slot(0), new));
        step_until(&mut raid1, |world| {
            world.looks()[0].in_sync == Some(replacement)
        });
        raid1.thread_stands_still(Some(0), 1_000_000);
        step_until(&mut raid1, |world| {
            let drives = world.drives();
            let idle = drives.iter().all(|drive| !drive.ssd().waiting());
            idle && calls_in_sync(world, stays, replacement)
        });
        raid1.world.offer(joins).expect("the drive holds a member");
        step_until(&mut raid1, |world| {
            let drives = world.drives();
            let idle = drives.iter().all(|drive| !drive.ssd().waiting());
            let table = world.table_of(joins).expect("a member");
            let row = table.slot_of(table.member).and_then(|at| table.slot(at));
            idle && row.is_some_and(|row| row.state.is_live())
                && calls_in_sync(world, joins, replacement)
        });
        assert!(calls_in_sync(&raid1.world, replaced, replaced));
        assert!(!calls_in_sync(&raid1.world, stays, replaced));
        raid1.lose(0);
        let setting = Setting::RebuildPriority(7);
        raid1.world.command(Command::Set(setting));
        step_until(&mut raid1, |world| calls_in_sync(world, stays, replaced));
        let epoch = |array: &Scenario, drive| array.world.table_of(drive).map(|table| table.epoch);
        raid1.steps(seed % 8).power_cut();
        if epoch(&raid1, joins) > epoch(&raid1, replaced) {
            ahead += 1;
        }
        // By the table of the device that joins the replaced member is enough.
        if epoch(&raid1, joins) == epoch(&raid1, stays) && seed % 2 == 0 {
            raid1.world.hide(stays);
        }
        raid1.start().rest().verify();
    }
    assert!(ahead > 2, "{ahead}");
}

/// Two changes of membership follow each other; of three members in sync one leaves between them.
/// The first copy of the second table tears the first one on A, which falls back to the table
/// before both. B has the second table, in vain, and is missing at the start: A goes on alone. When
/// B is there again, A has a lower epoch and a generation as high.
#[test]
fn a_table_that_never_took_effect_is_void_however_long_the_array_went_on_without_it() {
    let mut in_vain = 0;
    for seed in 0..300 {
        let mut raid1 = Scenario::new("1", 4).no_caches().seed(seed).start();
        raid1.fill().rest();
        let drives = all_drives(&mut raid1);
        let (stays, misses, leaves) = (drives[0], drives[1], drives[2]);
        raid1.lose(3).write(10).rest();
        let epoch = |world: &World, drive| world.table_of(drive).map(|table| table.epoch);
        let before = epoch(&raid1.world, stays);
        let new = raid1.world.fresh().expect("there are devices left");
        raid1.world.command(Command::Add(new));
        step_until(&mut raid1, |world| {
            epoch(world, stays) > before && epoch(world, misses) > before
        });
        if epoch(&raid1.world, leaves) > before {
            continue;
        }
        raid1.lose(2);
        let first = epoch(&raid1.world, stays);
        step_until(&mut raid1, |world| {
            epoch(world, stays) > first || epoch(world, misses) > first
        });
        raid1.power_cut();
        if epoch(&raid1.world, stays) > before || epoch(&raid1.world, misses) <= first {
            continue;
        }
        in_vain += 1;
        raid1.world.hide(misses);
        raid1.start().write(10).rest().power_cut();
        let table = |drive| raid1.world.table_of(drive).expect("a member");
        let (here, there) = (table(stays), table(misses));
        assert!(here.epoch < there.epoch && here.generation >= there.generation);
        raid1.world.set_hidden(misses, false);
        raid1.start();
        assert!(!raid1.serves(misses));
        raid1.rest().verify();
    }
    assert!(in_vain > 1, "{in_vain}");
}

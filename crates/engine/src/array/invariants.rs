//! What is true of the array whenever it has given all its outputs.
//!
//! Tests and the simulator call [`Array::invariants`] after they have polled the array to its end.
//! Each check is a sentence under "Invariants" of the file that it looks at, or follows from some.
//! This file says how the view that shards have agrees with the membership table.
//!
//! Deliberately absent: what is durable on the members (the simulator looks at their bytes), and
//! what only a sequence of states shows.

use crate::array::read_lease::LeaseState;
use crate::array::regions::Phase;
use crate::array::{Array, Purpose, Stage};
use crate::units::*;

/// I/Os of the array in flight.
#[derive(Default)]
struct InFlight {
    superblocks: usize,
    lists: usize,
    flushes: usize,
    pages: Vec<u32>,
}

impl Array {
    /// Checks what must be true whenever [`Array::poll`] has returned `None`; names what is
    /// violated, with its values. For tests and the simulator: it looks at every member and region.
    pub fn invariants(&self) -> Result<(), String> {
        let in_flight = self.in_flight();
        ensure!(
            self.persist.pending() == in_flight.superblocks,
            "{} reads or writes of superblocks are waited for, and {} are in flight",
            self.persist.pending(),
            in_flight.superblocks
        );
        self.unreadable.check(in_flight.lists)?;
        let goes_on = matches!(self.stage, Stage::Serving | Stage::Stopping);
        self.map.check(&in_flight.pages, goes_on)?;
        if !goes_on {
            return Ok(());
        }
        let settles = |phase| matches!(phase, Phase::Flushing { .. });
        let regions = (0..self.map.regions.len() as u32).map(RegionNo);
        let settling = regions.filter(|&region| settles(self.map.phase(region)));
        self.map
            .flush_barrier
            .check(in_flight.flushes, settling.collect())?;
        self.table.check(&self.geometry)?;
        self.check_edition()?;
        self.check_view()?;
        let built_on = self.persist.view_due || !self.unreadable.agreed();
        ensure!(
            !(self.lease == LeaseState::Granted && built_on),
            "shards have a read lease, and something changes (view {}, \
             blocks {})",
            self.persist.view_due,
            !self.unreadable.agreed()
        );
        Ok(())
    }

    /// Shards may write in the region: a page says so durably.
    pub fn is_written(&self, region: RegionNo) -> bool {
        self.map.is_written(region)
    }

    fn in_flight(&self) -> InFlight {
        let mut all = InFlight {
            pages: vec![0; self.map.pages.len()],
            ..InFlight::default()
        };
        for purpose in self.out.in_flight() {
            match purpose {
                Purpose::Superblock { .. } | Purpose::SuperblockRead { .. } => {
                    all.superblocks += 1;
                }
                Purpose::Unreadable { .. } => all.lists += 1,
                Purpose::FlushBarrier { .. } => all.flushes += 1,
                Purpose::MapPage { page, .. } => all.pages[*page as usize] += 1,
                _ => {}
            }
        }
        all
    }

    /// The newest edition has the number of the table that it is: two halves of an array that went
    /// on without each other are told apart by it.
    fn check_edition(&self) -> Result<(), String> {
        let sb = self.superblock();
        let own = sb.own_edition();
        ensure!(
            self.persist.view_due || sb.editions[0] == own,
            "edition {:?} has the number {}, and its table makes {own}",
            sb.epoch,
            sb.editions[0]
        );
        Ok(())
    }

    /// No view is published that is not durable: a member that view and slots call in sync is so by
    /// the last durable table, and one that is out by both is out by that.
    fn check_view(&self) -> Result<(), String> {
        for (at, (slot, shown)) in self.table.slots().iter().zip(&self.view.slots).enumerate() {
            let shown = shown.current.map(|shown| shown.device);
            if shown != slot.current() {
                ensure!(
                    self.persist.view_due,
                    "shards take {shown:?} for slot {at}, which has {:?}",
                    slot.current()
                );
                continue;
            }
            // (A replaced member keeps its slot where the new one was lost: that view is due.)
            ensure!(
                shown.is_none()
                    || self.persist.view_due
                    || self.persist.durably_in_sync(&self.table, at),
                "shards take {shown:?} for slot {at}, which no durable table calls in sync"
            );
            // (Lost before the view that would have shown it in sync: that view is due.)
            ensure!(
                shown.is_some() || self.persist.view_due || !self.persist.has_in_sync(at),
                "shards do without slot {at}, which the durable table calls in sync"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use strake_format::*;

    use super::*;
    use crate::array::StartOptions;
    use crate::proto::*;
    use crate::provision::create::{CreatePlan, CreateSpec, Init, plan};
    use crate::stats::device_latency::HedgeRules;

    /// Three members and a spare.
    pub(crate) fn created() -> CreatePlan {
        let info = DeviceInfo {
            bytes: 64 << 20,
            block_bytes: 512,
            granularity_bytes: 0,
            volatile_cache: true,
            dma: false,
        };
        let member = |n| (info, MemberUuid([n; 16]));
        let spec = CreateSpec {
            array: ArrayUuid([7; 16]),
            name: "checked".parse().expect("a name"),
            level: Level::Raid5,
            strip_bytes: Some(16 << 10),
            group_size: None,
            block_bytes: None,
            write_hole: WriteHole::Closed,
            settings: Settings::default(),
            init: Init::Lazy,
            created_unix_s: 0,
            members: (1..4).map(member).collect(),
            spares: vec![member(4)],
            tiny: None,
        };
        plan(&spec).expect("the definition is valid")
    }

    pub(crate) fn found(plan: &CreatePlan, at: usize) -> Found {
        let superblock = plan.superblocks[at].clone();
        let read = |offset: u64| {
            let mut writes = plan.writes[at].iter();
            writes
                .find(|write| write.0 == offset)
                .map(|write| &write.1[..])
        };
        let page = |no, sequence| {
            let offset = region_map::place(&superblock.layout, no, sequence);
            MapPage::decode(read(offset).unwrap_or_default(), offset)
        };
        let pages = 0..superblock.layout.map_pages;
        let list = |offset| read(offset).and_then(|b| UnreadableList::decode(b, offset).ok());
        Found {
            log: Vec::new(),
            device: DeviceId(at as u32),
            info: DeviceInfo {
                bytes: 64 << 20,
                block_bytes: 512,
                granularity_bytes: 0,
                volatile_cache: true,
                dma: false,
            },
            map: pages
                .map(|no| region_map::newest(page(no, 0), page(no, 1)))
                .collect(),
            map_whole: Vec::new(),
            unreadable: unreadable::places(&superblock.layout).map(list),
            superblock,
            copy_to_replace: 0,
            emptied: None,
        }
    }

    /// Carries out what the array asks for; members answer at once, except those with an I/O that
    /// `stays`.
    fn rest(array: &mut Array, stays: impl Fn(&IoKind) -> bool) {
        while let Some(output) = array.poll() {
            match output {
                ArrayOutput::Io(MemberIo { io, kind, .. }) if !stays(&kind) => {
                    let (result, buf) = (Ok(()), None);
                    array.complete(Time(1), Completion { io, result, buf });
                }
                ArrayOutput::Message(shard, ToShard::View(view)) => {
                    let version = view.version;
                    array.message(Time(1), shard, FromShard::ViewApplied { version });
                }
                _ => {}
            }
        }
    }

    pub(crate) fn options() -> StartOptions {
        StartOptions {
            fold: true,
            shards: 1,
            force: false,
            clean_after_ms: 5000,
            hedging: HedgeRules::default(),
            window_bytes: 4 << 20,
            session: 1,
            unix_s: 0,
        }
    }

    /// It serves, and a region is open.
    fn serving() -> Array {
        let plan = created();
        let found = (0..4).map(|at| found(&plan, at)).collect();
        let mut array = Array::assemble(found, &options()).expect("a new array starts");
        array.start(Time(0));
        rest(&mut array, |_| false);
        let region = RegionNo(0);
        array.message(Time(1), ShardNo(0), FromShard::NeedRegion { region });
        rest(&mut array, |_| false);
        assert_eq!((array.stage, array.invariants()), (Stage::Serving, Ok(())));
        assert!(array.is_written(region));
        array
    }

    /// What is said of an array that was broken so.
    fn broken(how: impl FnOnce(&mut Array)) -> String {
        let mut array = serving();
        how(&mut array);
        array.invariants().expect_err("it is broken")
    }

    #[test]
    fn tables_of_the_membership_that_differ_are_named() {
        for how in 0..5 {
            let mut expected = "";
            let text = broken(|array| expected = array.table.broken(how));
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn an_edition_that_is_of_another_table_is_named() {
        let text = broken(|array| array.sb.advance());
        assert!(text.contains("and its table makes"), "{text}");
    }

    #[test]
    fn a_member_that_no_durable_table_knows_is_named() {
        let text = broken(|array| {
            let mut view = View::clone(&array.view);
            view.slots[1].current = None;
            array.view = std::sync::Arc::new(view);
        });
        assert!(text.contains("shards take None for slot 1"), "{text}");
    }

    #[test]
    fn a_region_that_is_written_and_not_dirty_is_named() {
        let text = broken(|array| array.map.regions[0].disk = RegionState::Clean);
        assert!(
            text.contains("region 0 is Open, and its page says Clean"),
            "{text}"
        );
        let text = broken(|array| array.map.pages[0].pending = 1);
        assert!(
            text.contains("page 0 of the map waits for 1 writes, and 0"),
            "{text}"
        );
        let text = broken(|array| array.set_phase(RegionNo(0), Phase::Flushing { open: true }));
        assert!(
            text.contains("wait for flushes") || text.contains("page says"),
            "{text}"
        );
        let text = broken(|array| array.set_phase(RegionNo(0), Phase::Opening));
        assert!(text.contains("no page brings it on"), "{text}");
    }

    #[test]
    fn a_superblock_that_is_waited_for_and_not_written_is_named() {
        let mut array = serving();
        let fail = Command::Fail(Slot(1));
        array.command(Time(2), CommandId(1), fail);
        rest(&mut array, |kind| matches!(kind, IoKind::Write { .. }));
        assert_eq!(array.invariants(), Ok(()));
        array.out = crate::array::Outbox::new(1, 0);
        let text = array.invariants().expect_err("nothing is in flight");
        assert!(
            text.contains("writes of superblocks are waited for, and 0"),
            "{text}"
        );
    }
}

//! An array that lost its metadata is made again from what was known of it.
//!
//! Invariant: the drives keep their data areas; everything else that the array had written is gone,
//! except logs, which may be left as they are: a start must ignore them. Deliberately absent:
//! finding out which drive was in which slot (the administrator knows).

use strake_engine::create::{CreatePlan, Definition};
use strake_engine::restore::{self, RestoreError, RestoreSpec, Told};
use strake_format::region_map::{PAGE_BYTES, place};
use strake_format::unreadable::{newest, places};
use strake_format::{
    ArrayUuid, Layout, MapPage, MemberUuid, Role, SUPERBLOCK_BYTES, Superblock, UnreadableList,
};

use crate::prng::{Prng, Purpose};
use crate::world::World;
use crate::world::launch::{Half, lay};

impl World {
    /// What maps and lists of these drives tell before they are gone.
    fn told(&self, drives: &[usize], known: &Superblock) -> Told {
        let (mut told, layout) = (Told::default(), &known.layout);
        for (&index, record) in drives.iter().zip(&known.slots) {
            let member = record.member;
            let bytes = self.drives[index].ssd.bytes();
            for page in 0..layout.map_pages {
                let read = |sequence| {
                    let offset = place(layout, page, sequence);
                    let raw = &bytes[offset as usize..][..PAGE_BYTES];
                    let found = MapPage::decode(raw, offset).ok();
                    found.filter(|found| (found.array, found.member) == (known.array, member))
                };
                let found = [read(0), read(1)];
                told.take_page(page, found.each_ref().map(Option::as_ref));
            }
            let lists = places(layout).map(|offset| {
                let raw = &bytes[offset as usize..][..layout.unreadable_bytes as usize];
                UnreadableList::decode(raw, offset).ok()
            });
            let list = newest(&lists, known.array, member);
            told.unreadable
                .extend(list.into_iter().flat_map(|(_, list)| list.ranges.clone()));
        }
        told
    }

    /// While nothing runs: the drives that carry the slots, in their order.
    pub fn in_slots(&self) -> Vec<usize> {
        let present = self.present().into_iter();
        let mut drives: Vec<(u8, usize)> = present
            .filter_map(|(index, sb)| match sb.role {
                Role::Slot(slot) => Some((slot.0, index)),
                Role::Spare => None,
            })
            .collect();
        drives.sort_unstable();
        drives.into_iter().map(|(_, index)| index).collect()
    }

    /// While nothing runs: superblocks of these drives are overwritten.
    pub fn lose_superblocks(&mut self, drives: &[usize]) {
        for &index in drives {
            self.metadata.forget(index);
            let ssd = &mut self.drives[index].ssd;
            for at in Layout::superblock_offsets(ssd.len()) {
                ssd.poke(at, &[0xa5; SUPERBLOCK_BYTES]);
            }
        }
    }

    /// While nothing runs: superblocks, maps and lists of all drives are overwritten, and then made
    /// again from `known`, what is known of the array, for the drives that carried its slots.
    ///
    /// # Errors
    /// Why it is not done; nothing has changed then.
    pub fn restore(&mut self, known: &Superblock) -> Result<(), RestoreError> {
        let drives = self.in_slots();
        let plan = self.plan_again(known, &drives)?;
        self.lose_superblocks(&drives);
        let layout = known.layout;
        let lost = (layout.log_offset - layout.map_offset) as usize;
        for &index in &drives {
            let ssd = &mut self.drives[index].ssd;
            ssd.poke(layout.map_offset, &vec![0xa5; lost]);
        }
        self.lay_again(&plan, &drives, None);
        Ok(())
    }

    /// The same for drives without superblocks, in the order of the slots, until the power goes.
    /// Returns how many steps there are to the end.
    ///
    /// # Errors
    /// Why it is not done; nothing has changed then.
    pub fn restore_until(
        &mut self,
        known: &Superblock,
        drives: &[usize],
        until: Option<Half>,
    ) -> Result<usize, RestoreError> {
        let plan = self.plan_again(known, drives)?;
        self.lay_again(&plan, drives, until);
        Ok(plan.steps().len())
    }

    fn plan_again(&self, known: &Superblock, drives: &[usize]) -> Result<CreatePlan, RestoreError> {
        // An array that is made again has a new identity, also if it is made several times.
        let [a, b, c, d, ..] = self.superblock.array.0;
        let last = u64::from(u32::from_le_bytes([a, b, c, d]));
        let mut identity = Prng::new(self.plan.seed ^ self.starts ^ last, Purpose::Identity);
        let array = ArrayUuid(identity.bytes16());
        let member = |&index: &usize| (self.info(index), MemberUuid(identity.bytes16()));
        restore::plan(&RestoreSpec {
            array,
            created_unix_s: 1_800_000_000,
            definition: Definition::of(known),
            members: drives.iter().map(member).collect(),
            told: self.told(drives, known),
        })
    }

    fn lay_again(&mut self, plan: &CreatePlan, drives: &[usize], until: Option<Half>) {
        let (block, all) = (self.plan.block, &mut self.drives);
        lay(&plan.steps(), block, until, |at, offset, bytes| {
            all[drives[at]].ssd.poke(offset, bytes);
        });
        self.superblock = plan.superblocks[0].clone();
        self.expected.clean = false;
        self.note(format!(
            "the metadata of the array is made again, until {until:?}"
        ));
    }
}

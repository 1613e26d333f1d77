//! An array whose metadata is lost, and is made again from what was known of it.
//!
//! Invariant: the drives keep their data areas; everything else that the array had written is gone, but logs, which may
//! lie about as they are: nothing of them may count. Deliberately absent: finding out which drive was in which slot
//! (whoever restores an array knows).

use strake_engine::create::Definition;
use strake_engine::restore::{self, RestoreError, RestoreSpec, Told};
use strake_format::region_map::{PAGE_BYTES, place};
use strake_format::unreadable::{newest, places};
use strake_format::{
    ArrayUuid, Layout, MapPage, MemberUuid, Role, SUPERBLOCK_BYTES, Superblock, UnreadableList,
};

use crate::prng::{Prng, Purpose};
use crate::world::World;

impl World {
    /// What maps and lists of these drives tell before they are gone.
    fn told(&self, drives: &[(u8, usize)], known: &Superblock) -> Told {
        let (mut told, layout) = (Told::default(), &known.layout);
        for &(slot, index) in drives {
            let member = known.slots[usize::from(slot)].member;
            let bytes = self.drives[index].ssd.bytes();
            for page in 0..layout.map_pages {
                let read = |sequence| {
                    let offset = place(layout, page, sequence);
                    let raw = &bytes[offset as usize..][..PAGE_BYTES];
                    let found = MapPage::decode(raw, offset).ok();
                    found.filter(|found| (found.array, found.member) == (self.array, member))
                };
                let found = [read(0), read(1)];
                told.take_page(page, found.each_ref().map(Option::as_ref));
            }
            let lists = places(layout).map(|offset| {
                let raw = &bytes[offset as usize..][..layout.unreadable_bytes as usize];
                UnreadableList::decode(raw, offset).ok()
            });
            let list = newest(&lists, self.array, member);
            told.unreadable
                .extend(list.into_iter().flat_map(|(_, list)| list.ranges.clone()));
        }
        told
    }

    /// While nothing runs: superblocks, maps and lists of all drives are overwritten, and then made again by `known`,
    /// what somebody knew of the array, for the drives that carried its slots.
    ///
    /// # Errors
    /// Why it is not done; nothing has changed then.
    pub fn restore(&mut self, known: &Superblock) -> Result<(), RestoreError> {
        let mut drives: Vec<(u8, usize)> = Vec::new();
        for (index, sb) in self.present() {
            if let Role::Slot(slot) = sb.role {
                drives.push((slot.0, index));
            }
        }
        drives.sort_unstable();
        let mut identity = Prng::new(self.plan.seed ^ self.starts, Purpose::Identity);
        let array = ArrayUuid(identity.bytes16());
        let member = |&(_, index): &(u8, usize)| (self.info(index), MemberUuid(identity.bytes16()));
        let spec = RestoreSpec {
            array,
            created_unix_s: 1_800_000_000,
            definition: Definition::of(known),
            members: drives.iter().map(member).collect(),
            told: self.told(&drives, known),
        };
        let plan = restore::plan(&spec)?;
        let layout = known.layout;
        for &(_, index) in &drives {
            self.metadata.forget(index);
            let ssd = &mut self.drives[index].ssd;
            for at in Layout::superblock_offsets(ssd.len()) {
                ssd.poke(at, &[0xa5; SUPERBLOCK_BYTES]);
            }
            let lost = (layout.log_offset - layout.map_offset) as usize;
            ssd.poke(layout.map_offset, &vec![0xa5; lost]);
        }
        for (&(_, index), writes) in drives.iter().zip(&plan.writes) {
            for (offset, bytes) in writes {
                self.drives[index].ssd.poke(*offset, bytes);
            }
        }
        self.array = array;
        self.superblock = plan.superblocks[0].clone();
        self.note("the metadata of the array is made again".to_owned());
        Ok(())
    }
}

//! Faults in what is not data: superblock copies, pages of the region map, lists of unreadable
//! blocks, the stripe log.
//!
//! Before a start one place of one member may be unreadable or have rotted. It is a member that the
//! array could do without: the newest version may lie there, and what was cut off may have left it
//! nowhere else on that member. Until the place is written again the member counts as damaged, so
//! that the next fault does not take what is left; a log counts until it was replayed.
//!
//! Invariant: once the array serves, every rotten copy of a superblock, page or list on a member in
//! sync has been written again; of a page or list both versions of which were damaged there, one has.
//!
//! Deliberately absent: lost and misdirected writes of metadata. Of two copies that are both lost on
//! every member nothing could tell.

use strake_format::{Layout, region_map, unreadable};

use crate::look::Look;
use crate::world::{Going, World};

/// What a place holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Area {
    Superblock,
    Map,
    List,
    Log,
}

/// A block that rotted.
#[derive(Clone, Debug)]
pub struct Rotten {
    drive: usize,
    area: Area,
    offset: u64,
    bytes: Vec<u8>,
    /// The version that takes turns with it was damaged, too: one of them is written again.
    both: bool,
}

/// Bytes of a block of metadata.
const BLOCK: usize = 4096;

impl World {
    /// One place of a member that the array could do without becomes unreadable, or rots.
    pub(crate) fn spoil_metadata(&mut self) {
        let (drives, situation) = self.condition_on_media();
        let atlas = self.atlas();
        let fair: Vec<usize> = (0..drives.len())
            .filter(|&slot| atlas.may_lose(&situation, slot))
            .collect();
        let Some(slot) = self.choose(&fair) else {
            return;
        };
        let Some(index) = drives[slot].filter(|&index| !self.drives[index].hidden) else {
            return;
        };
        let layout = self.superblock.layout;
        let [first, last] = Layout::superblock_offsets(self.drives[index].ssd.len());
        let [even, odd] = [0, 1].map(|sequence| region_map::place(&layout, 0, sequence));
        let [list, other] = unreadable::places(&layout);
        let blocks = layout.log_bytes / BLOCK as u64;
        let log = layout.log_offset + self.chance.faults.below(blocks) * BLOCK as u64;
        let places = [
            (Area::Superblock, first),
            (Area::Superblock, last),
            (Area::Map, even),
            (Area::Map, odd),
            (Area::List, list),
            (Area::List, other),
            (Area::Log, log),
        ];
        let most = if blocks == 0 { 6 } else { 7 };
        let (area, offset) = self.chance.faults.pick(&places[..most]);
        let turns = [(even, odd), (odd, even), (list, other), (other, list)];
        let twin = turns.into_iter().find(|&(one, _)| one == offset);
        let both = twin.is_some_and(|(_, twin)| self.damaged(index, twin));
        for rotten in &mut self.rotten {
            let is_twin = twin.is_some_and(|(_, twin)| twin == rotten.offset);
            rotten.both |= rotten.drive == index && is_twin;
        }
        if self.chance.faults.percent(50) {
            return self.rot_metadata(index, (area, offset), both);
        }
        self.note(format!(
            "drive {index} (slot {slot}): {area:?} at {offset:#x} is unreadable"
        ));
        let block = offset / self.geometry.block;
        self.drives[index].ssd.faults.latent.insert(block);
        self.stats.latent_errors += 1;
    }

    /// This block of metadata cannot be read, or rotted.
    fn damaged(&self, drive: usize, offset: u64) -> bool {
        let size = self.geometry.block;
        let latent = &self.drives[drive].ssd.faults.latent;
        let mut sectors = offset / size..(offset + BLOCK as u64).div_ceil(size);
        let mut own = self.rotten.iter().filter(|rotten| rotten.drive == drive);
        sectors.any(|sector| latent.contains(&sector))
            || own.any(|rotten| rotten.offset == offset && self.lies_still(rotten))
    }

    fn rot_metadata(&mut self, drive: usize, (area, offset): (Area, u64), both: bool) {
        let at = self.chance.faults.below(BLOCK as u64) as usize;
        let bit = 1 << self.chance.faults.below(8);
        let mut bytes = self.drives[drive].ssd.bytes()[offset as usize..][..BLOCK].to_vec();
        bytes[at] ^= bit;
        self.note(format!("drive {drive}: {area:?} rots at {offset:#x}+{at}"));
        self.drives[drive].ssd.rot(offset, &bytes);
        let stats = &mut self.stats;
        match area {
            Area::Superblock => stats.rot_superblocks += 1,
            Area::Map => stats.rot_map_pages += 1,
            Area::List => stats.rot_lists += 1,
            Area::Log => stats.rot_log_blocks += 1,
        }
        self.rotten.push(Rotten {
            drive,
            area,
            offset,
            bytes,
            both,
        });
    }

    fn lies_still(&self, rotten: &Rotten) -> bool {
        let bytes = self.drives[rotten.drive].ssd.bytes();
        bytes[rotten.offset as usize..][..BLOCK] == rotten.bytes
    }

    /// Something of this drive's metadata rotted and was not written since.
    pub(crate) fn is_rotten(&self, drive: usize) -> bool {
        let mut own = self.rotten.iter().filter(|rotten| rotten.drive == drive);
        own.any(|rotten| self.lies_still(rotten))
    }

    /// The array serves: what rotted was seen, and written again where it is in use.
    pub(crate) fn metadata_is_mended(&mut self) -> Going {
        let looks = self.looks();
        let serves = |rotten: &Rotten| {
            let here = |look: &Look| look.in_sync == Some(rotten.drive);
            rotten.area != Area::Log && !rotten.both && looks.iter().any(here)
        };
        let left = self.rotten.iter().find(|r| serves(r) && self.lies_still(r));
        if let Some(Rotten {
            drive,
            area,
            offset,
            ..
        }) = left
        {
            let text = format!("drive {drive}: {area:?} at {offset:#x} is rotten still");
            return self.failure(text);
        }
        self.rotten.retain(|rotten| rotten.area != Area::Log);
        Ok(())
    }
}

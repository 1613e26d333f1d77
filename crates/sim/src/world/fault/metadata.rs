//! Faults in what is not data: superblock copies, pages of the region map, lists of unreadable
//! blocks, the stripe log.
//!
//! What is placed, each on a member in sync that the array could do without at that moment:
//! * *rot*, and *unreadable* blocks, before a start: either copy of the superblock, either version
//!   of any page of the map or of the list, any block of the log;
//! * *lost* and *misdirected* writes of all of these, at any time (`misdirected`);
//! * writes *torn* within a logical block, at power cuts and kills, on every member at once
//!   (`drive`): what takes turns, or has its checksum, must survive that without any other member.
//!
//! A place that missed a write holds what it held before: whole, but old. So damage is not only
//! what cannot be read. Until the place is written again its member counts as lost to whatever else
//! is about to go wrong: the newest version may have lain there, and what was cut off may have left
//! it nowhere else on that member. That is also what the format needs: an old version is outvoted
//! by newer ones, and those lie on more members than may still be lost. A batch of the log that is
//! missing on one member is as that member missing, to the log. Blocks of the log count until they
//! are written over (then what they told was retired), or until the log was replayed.
//!
//! Invariant: a member that still has a whole superblock and part of one in the other place, and
//! has a region map that missed no write, is taken as in sync, as it would be without the damage;
//! and once the array serves, every place on an in-sync member that was damaged before the start is
//! whole; if both versions of a list were damaged, one of them is.
//!
//! Deliberately absent, because nothing could tell: damage of the same version on more members than
//! may be lost (all of RAID 0's, therefore). Spares, and members that are being rebuilt, are left
//! alone: nothing rests on them.

use strake_format::{
    Layout, MapPage, Past, Superblock, UnreadableList, past, region_map, unreadable,
};

use crate::report::tally::{Area, Damage};
use crate::world::fault::misdirected::Armed;
use crate::world::inspect::{self, Look, calls_live};
use crate::world::{SimResult, World};

/// Bytes of a block of metadata.
pub(crate) const BLOCK: usize = 4096;

/// What of the metadata is damaged, and what is about to be.
#[derive(Debug, Default)]
pub struct Metadata {
    spoiled: Vec<Spoiled>,
    /// Damaged drives with members that the start under way must take as in sync.
    expected: Vec<usize>,
    /// The next write of metadata that goes wrong.
    pub armed: Option<Armed>,
    /// None does any more.
    spared: bool,
}

/// A damaged block.
#[derive(Clone, Debug)]
struct Spoiled {
    drive: usize,
    area: Area,
    offset: u64,
    /// What lies there instead of what should; nothing where it cannot be read.
    bytes: Option<Vec<u8>>,
    /// It was damaged before the array was started.
    seen: bool,
    /// The other version of the list was damaged as well: one of them is written again.
    both: bool,
}

impl Metadata {
    /// More is about to be lost than may be: no write goes wrong beside that.
    pub(crate) fn spare(&mut self) {
        (self.armed, self.spared) = (None, true);
    }

    /// The next such write goes wrong.
    pub(crate) fn arm(&mut self, armed: Armed) {
        if !self.spared {
            self.armed = Some(armed);
        }
    }

    /// The drive becomes another member: what was wrong with it means nothing.
    pub(crate) fn forget(&mut self, drive: usize) {
        self.spoiled.retain(|spoiled| spoiled.drive != drive);
    }

    /// Blocks from `offset` on are damaged: this lies there. A block that was damaged before is so
    /// anew.
    pub(crate) fn spoil(&mut self, drive: usize, area: Area, offset: u64, bytes: Option<Vec<u8>>) {
        let here = |spoiled: &Spoiled| spoiled.drive == drive && spoiled.offset == offset;
        self.spoiled.retain(|spoiled| !here(spoiled));
        self.spoiled.push(Spoiled {
            drive,
            area,
            offset,
            bytes,
            seen: false,
            both: false,
        });
    }
}

impl World {
    /// All places of metadata on a drive but the log's.
    pub(crate) fn metadata_places(&self, drive: usize) -> Vec<(Area, u64)> {
        let layout = &self.superblock.layout;
        // A device that has grown has them where it ended, until the array has served since.
        let drive = &self.drives[drive];
        let own = drive.superblock(self.superblock.array);
        let ended = own.map_or(drive.ssd.len(), |own| own.layout.device_bytes);
        let copies = Layout::superblock_offsets(ended);
        let pages = (0..layout.map_pages)
            .flat_map(|page| [0, 1].map(|sequence| region_map::place(layout, page, sequence)));
        let copies = copies.map(|at| (Area::Superblock, at)).into_iter();
        let lists = unreadable::places(layout).map(|at| (Area::List, at));
        let pages = pages.map(|at| (Area::Map, at));
        copies.chain(pages).chain(lists).collect()
    }

    /// Some block of the log.
    pub(crate) fn log_place(&mut self) -> Option<(Area, u64)> {
        let layout = &self.superblock.layout;
        let blocks = layout.log_bytes / BLOCK as u64;
        let at = |block: u64| (Area::Log, layout.log_offset + block * BLOCK as u64);
        (blocks > 0).then(|| at(self.chance.faults.below(blocks)))
    }

    /// What lies at this place of a drive, unless that is data or nothing.
    pub(crate) fn area_at(&self, drive: usize, offset: u64) -> Option<Area> {
        let layout = &self.superblock.layout;
        if (layout.log_offset..layout.log_offset + layout.log_bytes).contains(&offset) {
            return Some(Area::Log);
        }
        let places = self.metadata_places(drive).into_iter();
        let mut here = places.filter(|&(_, at)| at == offset);
        here.next().map(|(area, _)| area)
    }

    /// One place of a member that the array could do without becomes unreadable, or rots.
    pub(crate) fn spoil_metadata(&mut self) {
        let (drives, situation) = self.condition_on_media();
        let tolerance = self.tolerance();
        let fair: Vec<usize> = (0..drives.len())
            .filter(|&slot| tolerance.may_lose(&situation, slot))
            .collect();
        let Some(slot) = self.choose(&fair) else {
            return;
        };
        let Some(index) = drives[slot].filter(|&index| !self.drives[index].hidden) else {
            return;
        };
        let areas = [Area::Superblock, Area::Map, Area::List, Area::Log];
        let area = self.chance.faults.pick(&areas);
        let mut places = self.metadata_places(index);
        places.retain(|&(here, _)| here == area);
        places.extend(self.log_place().filter(|_| area == Area::Log));
        if places.is_empty() {
            return;
        }
        let (area, offset) = self.chance.faults.pick(&places);
        if self.chance.faults.percent(50) {
            return self.rot_metadata(index, area, offset);
        }
        self.note(format!(
            "drive {index} (slot {slot}): {area:?} at {offset:#x} is unreadable"
        ));
        let block = offset / self.geometry.block;
        self.drives[index].ssd.faults.latent.insert(block);
        self.stats.latent_errors += 1;
        self.count_damage(Damage::Unreadable, area, offset);
        self.metadata.spoil(index, area, offset, None);
    }

    fn rot_metadata(&mut self, drive: usize, area: Area, offset: u64) {
        let at = self.chance.faults.below(BLOCK as u64) as usize;
        let bit = 1 << self.chance.faults.below(8);
        let mut bytes = self.metadata_block(drive, offset).to_vec();
        bytes[at] ^= bit;
        self.note(format!("drive {drive}: {area:?} rots at {offset:#x}+{at}"));
        self.drives[drive].ssd.rot(offset, &bytes);
        self.count_damage(Damage::Rot, area, offset);
        self.metadata.spoil(drive, area, offset, Some(bytes));
    }

    /// Counts what happened at a place of the metadata.
    pub(crate) fn count_damage(&mut self, damage: Damage, area: Area, offset: u64) {
        let layout = &self.superblock.layout;
        let first = [0, 1].map(|sequence| region_map::place(layout, 0, sequence));
        if area == Area::Map && !first.contains(&offset) && damage != Damage::Mended {
            self.stats.metadata.count_later_page();
        }
        self.stats.metadata.count(damage, area);
    }

    /// Writes of metadata that a crash tore within a logical block, for each drive.
    pub(crate) fn count_torn(&mut self, torn: &[Vec<u64>]) {
        for (drive, torn) in torn.iter().enumerate() {
            for &offset in torn {
                if let Some(area) = self.area_at(drive, offset) {
                    self.count_damage(Damage::Torn, area, offset);
                }
            }
        }
    }

    fn metadata_block(&self, drive: usize, offset: u64) -> &[u8] {
        self.drives[drive].ssd.held(offset, BLOCK)
    }

    /// It was not written since; or not wholly: a write over it that was cut off leaves it damaged.
    fn lies_still(&self, spoiled: &Spoiled) -> bool {
        let &Spoiled { drive, offset, .. } = spoiled;
        let Some(bytes) = &spoiled.bytes else {
            let faults = &self.drives[drive].ssd.faults;
            return faults.latent.contains(&(offset / self.geometry.block));
        };
        let here = self.metadata_block(drive, offset);
        let whole = || match spoiled.area {
            Area::Superblock => Superblock::decode(here, offset).is_ok(),
            Area::Map => MapPage::decode(here, offset).is_ok(),
            Area::List => UnreadableList::decode(here, offset).is_ok(),
            Area::Log => true,
        };
        here == bytes.as_slice() || !whole()
    }

    /// Places of the metadata may be others now: what is damaged is damage of what lies there now.
    pub(crate) fn sort_damage(&mut self) {
        for mut spoiled in std::mem::take(&mut self.metadata.spoiled) {
            if let Some(area) = self.area_at(spoiled.drive, spoiled.offset) {
                spoiled.area = area;
                self.metadata.spoiled.push(spoiled);
            }
        }
    }

    /// Something of this drive's metadata is damaged.
    pub(crate) fn is_damaged(&self, drive: usize) -> bool {
        let spoiled = self.metadata.spoiled.iter();
        let mut own = spoiled.filter(|spoiled| spoiled.drive == drive);
        own.any(|spoiled| self.lies_still(spoiled))
    }

    /// Forgets what was written again, and counts it.
    fn forget_mended(&mut self) {
        for spoiled in std::mem::take(&mut self.metadata.spoiled) {
            if self.lies_still(&spoiled) {
                self.metadata.spoiled.push(spoiled);
            } else {
                self.count_damage(Damage::Mended, spoiled.area, spoiled.offset);
            }
        }
    }

    /// The array is about to be started: what is damaged now it is to mend.
    pub(crate) fn look_at_damage(&mut self) {
        self.forget_mended();
        let damaged: Vec<(usize, Area)> = (self.metadata.spoiled.iter())
            .map(|spoiled| (spoiled.drive, spoiled.area))
            .collect();
        let places = unreadable::places(&self.superblock.layout);
        for spoiled in &mut self.metadata.spoiled {
            let here = (spoiled.drive, spoiled.area);
            let same = damaged.iter().filter(|&&place| place == here);
            // A cut may have torn the other version.
            let ssd = &self.drives[spoiled.drive].ssd;
            let torn = places.into_iter().any(|at| {
                let bytes = ssd.held(at, BLOCK);
                at != spoiled.offset && UnreadableList::decode(bytes, at).is_err()
            });
            spoiled.seen = true;
            spoiled.both = spoiled.area == Area::List && (torn || same.count() > 1);
        }
        self.metadata.expected.clear();
        if !damaged.is_empty() {
            let mut members: Vec<usize> =
                self.condition_on_media().0.into_iter().flatten().collect();
            members.retain(|&drive| damaged.iter().any(|&(damaged, _)| damaged == drive));
            // A drive that has lost its content otherwise may have a newer table yet, by which this
            // one is out. Where nothing is left that tells of a superblock, the member may have
            // lost all else. One of which a copy was lost, and the other torn by a crash, looks
            // like an older image.
            let present = self.present();
            let newest = inspect::newest(&present);
            members.retain(|&drive| {
                let own = self.table_of(drive);
                own.is_some_and(|own| {
                    let last = newest.is_some_and(|newest| past(&own, newest) == Past::Last);
                    let live = newest.is_some_and(|newest| calls_live(newest, own.member));
                    last && live
                        && self.drives[drive].emptied(&own).is_none()
                        && !self.missed_page(drive)
                })
            });
            self.metadata.expected = members;
        }
    }

    /// A place of this drive's region map has missed a write that was acknowledged: with the next
    /// one cut off, it looks like an older image.
    fn missed_page(&self, drive: usize) -> bool {
        let of_drive = |spoiled: &&Spoiled| spoiled.drive == drive && spoiled.area == Area::Map;
        let is_whole = |spoiled: &Spoiled| {
            let bytes = spoiled.bytes.as_ref();
            bytes.is_some_and(|bytes| MapPage::decode(bytes, spoiled.offset).is_ok())
        };
        self.metadata.spoiled.iter().filter(of_drive).any(is_whole)
    }

    /// The array serves: what was damaged was seen, and written again where it is in use.
    pub(crate) fn metadata_is_mended(&mut self) -> SimResult {
        self.sort_damage();
        self.forget_mended();
        let looks = self.looks();
        let serves = |drive| looks.iter().any(|look: &Look| look.in_sync == Some(drive));
        let mut expected = std::mem::take(&mut self.metadata.expected).into_iter();
        let is_there = |drive: usize| !self.drives[drive].ssd.faults.gone;
        // A write that landed elsewhere since it was started may have hit a superblock: what lies
        // there is not what the array wrote, so the member is out.
        let is_hit = |drive: usize| {
            let own = self.table_of(drive);
            own.is_none_or(|own| self.drives[drive].emptied(&own).is_some())
        };
        let is_out = |drive| is_there(drive) && !serves(drive) && !is_hit(drive);
        if let Some(drive) = expected.find(|&drive| is_out(drive)) {
            let text =
                format!("drive {drive} was given up for damage that another copy makes good");
            return self.failure(text);
        }
        let seen = |s: &Spoiled| s.seen && s.area != Area::Log && serves(s.drive);
        let mut seen = self.metadata.spoiled.iter().filter(|&s| seen(s));
        if let Some(left) = seen.find(|spoiled| !spoiled.both) {
            let (drive, area, offset) = (left.drive, left.area, left.offset);
            let text = format!("drive {drive}: {area:?} at {offset:#x} is damaged still");
            return self.failure(text);
        }
        // Of two damaged lists the one that is left is the next to be written over. Nothing in the
        // log counts any more.
        let left = |s: &Spoiled| !(s.area == Area::Log || s.both && serves(s.drive));
        self.metadata.spoiled.retain(left);
        Ok(())
    }
}

//! Members that lose what they hold while the array serves: another program empties a drive, or
//! puts an older image of it in its place.
//!
//! What is placed, between two flights of superblocks, on a member in sync that the array could do
//! without:
//! * *emptied*: one copy of its superblock is zeros, or both are;
//! * *aged*: both copies are those of an image from before the array began to serve, or stopped,
//!   with the member.
//!
//! Data of the member follows when the array has released it: until then it is read, and nothing
//! can say that it is wrong.
//!
//! Invariant: the array writes no superblock over what shows that a member lost its content, and
//! has put the member out before it stops, or serves again.
//!
//! Deliberately absent: members that the level cannot do without (scenarios have them).

use std::collections::BTreeMap;

use strake_engine::event::{Command, IoKind, MemberIo};
use strake_format::{Layout, SUPERBLOCK_BYTES, Superblock};

use crate::drive::overlay::{FaultKind, FaultSet};
use crate::prng::{Prng, Purpose};
use crate::world::{SimResult, World};

/// See the module.
#[derive(Debug)]
pub struct Ruined {
    chance: Prng,
    /// The array can do without each of them.
    is_fair: bool,
    /// Drives, with the offsets of copies that show it, and what the whole drive is to hold once it
    /// is released; nothing: zeros.
    drives: BTreeMap<usize, (Vec<u64>, Option<Vec<u8>>)>,
}

impl Ruined {
    pub(crate) fn new(seed: u64) -> Ruined {
        Ruined {
            chance: Prng::new(seed ^ 2, Purpose::Past),
            is_fair: false,
            drives: BTreeMap::new(),
        }
    }

    /// The drive becomes another member.
    pub(crate) fn forget(&mut self, drive: usize) {
        self.drives.remove(&drive);
    }
}

impl World {
    /// Now and then a member loses what it holds.
    pub(crate) fn ruin_a_member(&mut self, without: FaultSet) {
        let corrupt = !self.decay.is_empty() || self.is_corrupt() || self.plan.decays;
        if corrupt || !self.ruined.chance.percent(4) || self.machines().array_ios > 0 {
            return;
        }
        let situation = self.situation();
        let tolerance = self.tolerance();
        let serving = self.shown_in_sync().into_iter();
        let fair = serving.filter(|&(slot, drive)| {
            let sound = !self.is_damaged(drive) && !self.pasts.is_strange(drive);
            sound && tolerance.may_lose(&situation, slot)
        });
        let fair: Vec<usize> = fair.map(|(_, drive)| drive).collect();
        if fair.is_empty() {
            return;
        }
        let drive = self.ruined.chance.pick(&fair);
        self.ruined.is_fair = true;
        let aged = self.ruined.chance.percent(50) && !without.has(FaultKind::OlderImage);
        let copies = self.ruined.chance.pick(&[[0, 0], [1, 1], [0, 1]]);
        match aged {
            true if self.has_old_image(drive) => self.age_superblocks(drive),
            _ if without.has(FaultKind::Emptied) => return,
            _ => self.empty_superblocks(drive, &copies),
        }
        if self.ruined.chance.percent(30) {
            self.command(Command::LookAtSuperblocks);
        }
    }

    /// While the array serves: these copies of the superblock are zeros from now on, and all of the
    /// drive is, once the array has released it.
    pub fn empty_superblocks(&mut self, drive: usize, copies: &[usize]) {
        let all = self.superblock_places(drive);
        let mut offsets: Vec<u64> = copies.iter().map(|&copy| all[copy]).collect();
        offsets.dedup();
        for &offset in &offsets {
            let zeros = [0; SUPERBLOCK_BYTES];
            self.drives[drive].ssd.rot(offset, &zeros);
        }
        self.note(format!(
            "drive {drive} lost its superblocks at {offsets:x?}"
        ));
        self.pasts.is_hollow_now(drive);
        self.ruin(drive, offsets, None);
    }

    /// While the array serves: the superblocks of the newest image of this drive take the place of
    /// its own, and all of the image does, once the array has released the drive.
    ///
    /// # Panics
    /// Where there is no image.
    pub fn age_superblocks(&mut self, drive: usize) {
        let image = self.pasts.take_newest(drive).expect("an image was taken");
        let offsets = self.superblock_places(drive);
        for offset in offsets {
            let at = offset as usize;
            let copy = &image[at..at + SUPERBLOCK_BYTES];
            self.drives[drive].ssd.rot(offset, copy);
        }
        self.note(format!("drive {drive} has the superblocks of an image"));
        self.pasts.is_older_now(drive);
        self.ruin(drive, offsets.to_vec(), Some(image));
    }

    fn superblock_places(&self, drive: usize) -> [u64; 2] {
        let own = self.drives[drive].superblock(self.superblock.array);
        Layout::superblock_offsets(own.expect("it serves").layout.device_bytes)
    }

    fn ruin(&mut self, drive: usize, offsets: Vec<u64>, becomes: Option<Vec<u8>>) {
        self.drives[drive].doomed = true;
        self.metadata.forget(drive);
        self.stats.ruined += 1;
        self.ruined.drives.insert(drive, (offsets, becomes));
    }

    /// The array has released the drive: its data follows.
    pub(crate) fn ruin_released(&mut self, drive: usize) {
        let ssd = &self.drives[drive].ssd;
        if ssd.faults.gone || ssd.in_flight() > 0 {
            return;
        }
        let layout = self.superblock.layout;
        match self.ruined.drives.remove(&drive) {
            None => {}
            Some((_, Some(image))) => {
                self.drives[drive].ssd.rot(0, &image);
                self.drives[drive].ssd.faults.latent.clear();
            }
            Some((_, None)) => {
                let end = layout.data_offset + layout.data_bytes;
                self.empty(drive, layout.data_offset, end);
            }
        }
    }

    /// The array has stopped.
    pub(crate) fn ruined_are_out(&mut self) -> SimResult {
        match self.ruined.is_fair {
            true => self.strangers_are_out(),
            false => Ok(()),
        }
    }

    /// What shows that the drive lost its content is not written over.
    pub(crate) fn evidence_stays(&mut self, drive: usize, io: &MemberIo) -> SimResult {
        let IoKind::Write { offset, data, .. } = &io.kind else {
            return Ok(());
        };
        let of_drive = self.ruined.drives.get(&drive);
        let shows = of_drive.is_some_and(|(offsets, _)| offsets.contains(offset));
        match shows && Superblock::decode(data.bytes(), *offset).is_ok() {
            true => self.failure(format!(
                "drive {drive} lost its content, and gets a superblock at {offset:#x}"
            )),
            false => Ok(()),
        }
    }
}

//! Members of another past: an image of one from before lies where the member was, or what lies
//! there has lost its content and kept one copy of its superblock.
//!
//! What is placed while nothing runs, on a member that the array could do without at that moment,
//! or on one that is out already:
//! * *older images*: all bytes that the drive had at a moment before, taken between lives or while
//!   the array served. Only those count as such which the array can tell: since then it began to
//!   serve with the member, or stopped with it. Of an image of the very same life nothing that is
//!   durable says that it lacks something;
//! * *live images*: the same, taken at any moment while the array serves, and given to the array
//!   after their member has left it: to the one that serves, or to a later start. The array takes
//!   one back in part where it lacks nothing outside the regions that are rebuilt; the oracle
//!   judges that by what is read. A power cut between the image and the leave takes the image away:
//!   the array cannot tell it then;
//! * *emptied* drives: cut short and made as long again, or wiped from the beginning. One copy of
//!   the superblock is whole, the other is zeros, and so is what lies between;
//! * drives that are *found empty* while the array serves: the array hears of it, and once it has
//!   released the drive, all of it is zeros, or all of its data.
//!
//! * members that went on *apart*: the array is started from older images of the others, while what
//!   was acknowledged last lies on these alone (`life::comeback`). Each is refused by that name.
//!
//! * members of another *branch*: the array is started twice from the same images, and a member of
//!   the first time is put beside those of the second (`life::comeback`).
//!
//! Such a drive counts as lost until it is another member. The oracle judges: whatever is read from
//! it, and redundancy that rests on it, is wrong. What is more, it is never taken back as the
//! member that was away.
//!
//! Invariant: chance of its own, so that worlds without this are what they would be without it.
//!
//! Deliberately absent: images of all members together, which are an array of their own.

use std::collections::BTreeSet;

use strake_engine::event::{Changed, Command, CommandError};
use strake_engine::units::*;
use strake_format::{Layout, MemberUuid, SUPERBLOCK_BYTES, Superblock};

use crate::drive::overlay::{FaultKind, FaultSet};
use crate::prng::{Prng, Purpose};
use crate::world::inspect::Look;
use crate::world::{SimResult, World};

/// Images that are kept at the same time.
const IMAGES_MOST: usize = 3;

/// All that a drive held.
#[derive(Debug)]
struct Image {
    drive: usize,
    member: MemberUuid,
    /// How often the array had begun to serve, or stopped, with its member.
    sealed: u64,
    bytes: Vec<u8>,
}

/// See the module.
#[derive(Debug)]
pub struct Pasts {
    chance: Prng,
    /// Images are taken by chance.
    by_chance: bool,
    images: Vec<Image>,
    /// Of each drive how often the array began to serve, or stopped, with it.
    sealed: Vec<u64>,
    /// Drives that hold something of another past.
    strange: BTreeSet<usize>,
    /// Those of them that have lost what they held, but perhaps a superblock.
    hollow: BTreeSet<usize>,
    live: Live,
    found_empty: FoundEmpty,
    /// Drives that alone hold what was acknowledged last.
    apart: BTreeSet<usize>,
    branch_chance: Prng,
}

/// Images that were taken while the array serves.
#[derive(Debug)]
struct Live {
    chance: Prng,
    /// Each with whether its member has left since.
    images: Vec<(Image, bool)>,
}

/// Drives that lose what they hold while the array serves.
#[derive(Debug)]
struct FoundEmpty {
    chance: Prng,
    devices: BTreeSet<DeviceId>,
}

impl Live {
    fn forget(&mut self, drive: usize) {
        self.images.retain(|(image, _)| image.drive != drive);
    }
}

impl Pasts {
    /// Before anything happened.
    pub(crate) fn new(seed: u64, drives: usize) -> Pasts {
        Pasts {
            chance: Prng::new(seed, Purpose::Past),
            by_chance: false,
            images: Vec::new(),
            sealed: vec![0; drives],
            strange: BTreeSet::new(),
            hollow: BTreeSet::new(),
            live: Live {
                chance: Prng::new(seed, Purpose::LiveImage),
                images: Vec::new(),
            },
            found_empty: FoundEmpty {
                chance: Prng::new(seed ^ 1, Purpose::Past),
                devices: BTreeSet::new(),
            },
            apart: BTreeSet::new(),
            branch_chance: Prng::new(seed, Purpose::Branch),
        }
    }

    /// By chance: two parts are parted by images of one of them.
    pub(crate) fn parts_by_images(&mut self) -> bool {
        self.chance.percent(50)
    }

    /// By chance: the array is started twice from one past, so many times in a row each.
    pub(crate) fn branches(&mut self) -> Option<[u64; 2]> {
        let chance = &mut self.branch_chance;
        let lives = [(); 2].map(|()| chance.range(1, 2));
        let lives = if chance.percent(70) { [1; 2] } else { lives };
        chance.percent(60).then_some(lives)
    }

    /// By chance: some of these, not all of them.
    pub(crate) fn some_of_a_branch(&mut self, mut drives: Vec<usize>, most: usize) -> Vec<usize> {
        self.branch_chance.shuffle(&mut drives);
        let count = self.branch_chance.range(1, most as u64) as usize;
        drives.truncate(count);
        drives
    }

    /// The drive holds something that is not what its member held last.
    pub(crate) fn is_strange(&self, drive: usize) -> bool {
        self.strange.contains(&drive)
    }

    /// The drive holds what its member held some time ago.
    pub(crate) fn is_older(&self, drive: usize) -> bool {
        self.is_strange(drive) && !self.hollow.contains(&drive)
    }

    /// The newest image of this drive, which is an image no more.
    pub(crate) fn take_newest(&mut self, drive: usize) -> Option<Vec<u8>> {
        let of_drive = |image: &Image| image.drive == drive;
        let at = self.images.iter().rposition(of_drive)?;
        Some(self.images.remove(at).bytes)
    }

    /// The drive has lost what it held, but perhaps a superblock.
    pub(crate) fn is_hollow_now(&mut self, drive: usize) {
        self.strange.insert(drive);
        self.hollow.insert(drive);
    }

    /// The drive holds what its member held some time ago.
    pub(crate) fn is_older_now(&mut self, drive: usize) {
        self.strange.insert(drive);
        self.hollow.remove(&drive);
    }

    /// The drive becomes another member.
    pub(crate) fn forget(&mut self, drive: usize) {
        self.images.retain(|image| image.drive != drive);
        self.live.forget(drive);
        self.strange.remove(&drive);
        self.hollow.remove(&drive);
    }

    /// The member of this drive has left: what was noted of it before is of a member that is out.
    pub(crate) fn member_left(&mut self, drive: usize) {
        let of_drive = self
            .live
            .images
            .iter_mut()
            .filter(|(image, _)| image.drive == drive);
        of_drive.for_each(|(_, left)| *left = true);
    }

    /// The member of this drive serves again. That it had left is known only to members that have
    /// missed what came after: to these, an image from before is what it was last.
    fn member_is_back(&mut self, drive: usize) {
        let images = self.live.images.iter_mut();
        let of_drive = images.filter(|(image, _)| image.drive == drive);
        of_drive.for_each(|(_, left)| *left = false);
    }
}

impl World {
    /// The array serves, or has stopped: what its members were before is told from them by now.
    pub(crate) fn members_are_sealed(&mut self) {
        for look in self.looks() {
            for drive in [look.in_sync, look.incoming].into_iter().flatten() {
                self.pasts.sealed[drive] += 1;
                self.pasts.member_is_back(drive);
            }
        }
        if self.pasts.by_chance && self.pasts.chance.percent(8) {
            let serving: Vec<usize> = self.shown_in_sync().iter().map(|&(_, d)| d).collect();
            if !serving.is_empty() {
                let drive = self.pasts.chance.pick(&serving);
                self.take_image(drive);
            }
        }
    }

    /// Notes all that a drive holds.
    pub fn take_image(&mut self, drive: usize) {
        let Some(image) = self.image_of(drive) else {
            return;
        };
        if self.pasts.images.len() == IMAGES_MOST {
            self.pasts.images.remove(0);
        }
        self.note(format!("an image of drive {drive} is taken"));
        self.pasts.images.push(image);
    }

    fn image_of(&self, drive: usize) -> Option<Image> {
        let member = self.drives[drive].named(self.superblock.array)?;
        (!self.pasts.is_strange(drive)).then(|| Image {
            drive,
            member,
            sealed: self.pasts.sealed[drive],
            bytes: self.drives[drive].ssd.bytes().to_vec(),
        })
    }

    /// While nothing runs: these drives are what they were in older images, and all that was
    /// acknowledged since lies on the others alone.
    pub(crate) fn go_apart(&mut self, images: Vec<(usize, Vec<u8>)>, others: &[usize]) {
        self.stats.older_images += images.len() as u64;
        self.put_contents(images);
        self.pasts.apart.extend(others);
        self.note(format!(
            "what was acknowledged last lies on {others:?} alone"
        ));
    }

    /// While nothing runs: all that each of these drives holds.
    pub(crate) fn contents(&self, drives: &[usize]) -> Vec<(usize, Vec<u8>)> {
        let content = |&drive: &usize| (drive, self.drives[drive].ssd.bytes().to_vec());
        drives.iter().map(content).collect()
    }

    /// While nothing runs: these drives hold this.
    pub(crate) fn put_contents(&mut self, contents: Vec<(usize, Vec<u8>)>) {
        for (drive, bytes) in contents {
            self.drives[drive].ssd.rot(0, &bytes);
            self.drives[drive].ssd.faults.latent.clear();
            self.metadata.forget(drive);
            // Images that were taken since are of another branch, which is refused as that.
            self.pasts.forget(drive);
        }
    }

    /// They are given up.
    pub(crate) fn are_given_up(&mut self) {
        self.pasts.apart.clear();
    }

    /// While the array serves: now and then all that a member holds is noted.
    pub(crate) fn take_live_image(&mut self) {
        let corrupt = !self.decay.is_empty() || self.is_corrupt();
        if corrupt || !self.pasts.live.chance.percent(25) {
            return;
        }
        let drives: Vec<usize> = self.shown_in_sync().iter().map(|&(_, d)| d).collect();
        if drives.is_empty() {
            return;
        }
        let drive = self.pasts.live.chance.pick(&drives);
        let Some(image) = self.image_of(drive) else {
            return;
        };
        self.note(format!("a live image of drive {drive} is taken"));
        self.pasts.live.forget(drive);
        self.pasts.live.images.push((image, false));
        if self.pasts.live.images.len() > IMAGES_MOST {
            self.pasts.live.images.remove(0);
        }
    }

    /// The member of this drive is out, and the drive is not used: it may get back the content from
    /// before its member left.
    pub(crate) fn swap_for_live_image(&mut self, drive: usize) {
        let of_drive = |(image, left): &(Image, bool)| *left && image.drive == drive;
        let at = self.pasts.live.images.iter().position(of_drive);
        let Some(at) = at.filter(|_| self.pasts.live.chance.percent(70)) else {
            return;
        };
        let (image, _) = self.pasts.live.images.remove(at);
        let ssd = &self.drives[drive].ssd;
        let same = self.drives[drive].named(self.superblock.array) == Some(image.member);
        let corrupt = !self.decay.is_empty() || self.is_corrupt();
        if corrupt || !same || ssd.len() != image.bytes.len() as u64 || self.pasts.is_strange(drive)
        {
            return;
        }
        self.drives[drive].ssd.rot(0, &image.bytes);
        self.drives[drive].ssd.faults.latent.clear();
        self.metadata.forget(drive);
        if self.pasts.sealed[drive] > image.sealed {
            self.pasts.strange.insert(drive);
        }
        self.stats.live_images += 1;
        self.note(format!("drive {drive} is what it was in a live image"));
    }

    /// Between two lives: images of members that have not left are told by superblocks, or not at
    /// all. Some of the others take the place of their members.
    fn keep_live_images(&mut self, without: FaultSet) {
        let images = std::mem::take(&mut self.pasts.live.images);
        let out = |(image, left): &(Image, bool)| *left && self.is_out(image.drive);
        self.pasts.live.images = images.into_iter().filter(out).collect();
        let of_image = |(image, _): &(Image, bool)| image.drive;
        let drives: Vec<usize> = self.pasts.live.images.iter().map(of_image).collect();
        for drive in drives {
            let own = &self.drives[drive];
            let idle = own.device.is_none() && own.used && !own.pulled;
            if idle && !without.has(FaultKind::OlderImage) && self.pasts.live.chance.percent(40) {
                self.swap_for_live_image(drive);
            }
        }
    }

    /// While nothing runs: the newest image of this drive takes its place.
    ///
    /// # Panics
    /// Where there is none.
    pub fn put_image_back(&mut self, drive: usize) {
        let of_drive = |image: &Image| image.drive == drive;
        let at = self.pasts.images.iter().rposition(of_drive);
        let image = self.pasts.images.remove(at.expect("an image was taken"));
        self.drives[drive].ssd.rot(0, &image.bytes);
        self.drives[drive].ssd.faults.latent.clear();
        self.metadata.forget(drive);
        self.pasts.strange.insert(drive);
        self.pasts.hollow.remove(&drive);
        self.stats.older_images += 1;
        self.note(format!("drive {drive} is what it was in an image"));
    }

    /// While nothing uses it: these bytes of the drive are zeros from now on.
    pub fn empty(&mut self, drive: usize, from: u64, to: u64) {
        self.drives[drive]
            .ssd
            .rot(from, &vec![0; (to - from) as usize]);
        let block = self.geometry.block;
        let blocks = from / block..to / block;
        self.drives[drive].ssd.faults.heal(blocks.start, blocks.end);
        self.metadata.forget(drive);
        self.pasts.strange.insert(drive);
        self.pasts.hollow.insert(drive);
        self.stats.hollowed += 1;
        self.note(format!(
            "drive {drive} is emptied from {from:#x} to {to:#x}"
        ));
    }

    /// An administrator's wish to put the member of this drive out becomes, at times, what the
    /// array is told of a drive that is empty. Draws of its own.
    pub(crate) fn found_empty_instead(&mut self, drive: usize) -> Option<Command> {
        let device = self.drives[drive].device?;
        let found = &mut self.pasts.found_empty;
        found.chance.percent(40).then(|| {
            found.devices.insert(device);
            Command::Emptied(vec![device])
        })
    }

    /// The array has released a device: nothing reads or writes it any more.
    pub(crate) fn empty_released(&mut self, device: DeviceId) {
        self.ruin_released(self.drive_of(device));
        if !self.pasts.found_empty.devices.remove(&device) {
            return;
        }
        let drive = self.drive_of(device);
        let ssd = &self.drives[drive].ssd;
        if ssd.faults.gone || ssd.in_flight() > 0 {
            return;
        }
        let len = ssd.len() / 4096 * 4096;
        let layout = self.drives[drive]
            .carried()
            .map(|(superblock, _)| superblock.layout);
        match layout.filter(|_| self.pasts.found_empty.chance.percent(50)) {
            Some(layout) => self.empty(
                drive,
                layout.data_offset,
                layout.data_offset + layout.data_bytes,
            ),
            None => self.empty(drive, 0, len),
        }
    }

    /// What this drive holds is what its member held last after all.
    pub fn pasts_are_right(&mut self, drive: usize) {
        self.pasts.strange.remove(&drive);
        self.ruined.forget(drive);
    }

    /// Between two lives. `spared`: no member may be missing at the start.
    pub(crate) fn change_pasts(&mut self, spared: bool, without: FaultSet) {
        self.pasts.by_chance = true;
        self.keep_live_images(without);
        if self.pasts.chance.percent(25) {
            let used: Vec<usize> = (0..self.drives.len())
                .filter(|&drive| self.drives[drive].used && !self.drives[drive].ssd.faults.gone)
                .collect();
            if !used.is_empty() {
                let drive = self.pasts.chance.pick(&used);
                self.take_image(drive);
            }
        }
        if !without.has(FaultKind::OlderImage) && self.pasts.chance.percent(30) {
            let drives: Vec<usize> = (0..self.drives.len()).collect();
            let old: Vec<usize> = drives
                .into_iter()
                .filter(|&d| self.has_old_image(d))
                .collect();
            if let Some(drive) = self.one_to_lose(&old, spared) {
                self.put_image_back(drive);
            }
        }
        if !without.has(FaultKind::Emptied) && self.pasts.chance.percent(6) {
            let all: Vec<usize> = (0..self.drives.len()).collect();
            if let Some(drive) = self.one_to_lose(&all, spared) {
                // A drive that has grown has its last copy where the first copy says that it ends.
                // Beyond that there may be a newer one, but nothing that the array ever served
                // from. Where the first copy is not whole, the last one of before it grew is all
                // that is left, and is enough.
                let len = self.drives[drive].ssd.len();
                let [first, _] = Layout::superblock_offsets(len);
                let copy = self.drives[drive].ssd.peek(first, SUPERBLOCK_BYTES);
                let copy = copy.and_then(|bytes| Superblock::decode(bytes, first).ok());
                let whole = copy.is_some();
                let ended = copy.map_or(len, |copy| copy.layout.device_bytes);
                let [first, last] = Layout::superblock_offsets(ended);
                let cut = self.pasts.chance.range(first + 4096, last);
                let cut = cut / 4096 * 4096;
                let (from, to) = match self.pasts.chance.percent(60) {
                    true => (cut, len / 4096 * 4096),
                    false => (0, cut),
                };
                if whole {
                    self.empty(drive, from, to);
                }
            }
        }
    }

    /// The newest image of it can be told from what it was last.
    pub(crate) fn has_old_image(&self, drive: usize) -> bool {
        let of_drive = |image: &&Image| image.drive == drive;
        let newest = self.pasts.images.iter().rfind(of_drive);
        let ssd = &self.drives[drive].ssd;
        newest.is_some_and(|image| {
            self.pasts.sealed[drive] > image.sealed
                && image.bytes.len() as u64 == ssd.len()
                && self.drives[drive].named(self.superblock.array) == Some(image.member)
        })
    }

    /// One of these drives that may lose its content now: the array could do without it, or already
    /// does.
    fn one_to_lose(&mut self, drives: &[usize], spared: bool) -> Option<usize> {
        let (serving, situation) = self.condition_on_media();
        let tolerance = self.tolerance();
        let fair = |&drive: &usize| {
            let own = &self.drives[drive];
            let carries = own.named(self.superblock.array).is_some();
            let idle = own.device.is_none() && own.used && !own.pulled && !own.hidden;
            let served = self.pasts.sealed[drive] > 0;
            if !idle || !carries || !served || self.pasts.is_strange(drive) {
                return false;
            }
            match serving.iter().position(|&serves| serves == Some(drive)) {
                Some(slot) => !spared && tolerance.may_lose(&situation, slot),
                None => self.is_out(drive),
            }
        };
        let fair: Vec<usize> = drives.iter().copied().filter(|drive| fair(drive)).collect();
        (!fair.is_empty()).then(|| self.pasts.chance.pick(&fair))
    }

    /// All other members that are there, and of the past that counts, say that the member of this
    /// drive is out.
    pub(crate) fn is_out(&self, drive: usize) -> bool {
        let Some(own) = self.drives[drive].named(self.superblock.array) else {
            return false;
        };
        let present = self.present();
        let another = |index: usize| index != drive && !self.pasts.is_strange(index);
        let others = present.iter().filter(|(index, _)| another(*index));
        let mut others = others.map(|(_, sb)| sb).peekable();
        others.peek().is_some()
            && others.all(|sb| {
                let row = sb.slot_of(own).and_then(|slot| sb.slot(slot));
                row.is_some_and(|row| !row.state.is_live())
            })
    }

    /// What is not what it was last is never taken back in part.
    pub(crate) fn judge_return(
        &mut self,
        device: DeviceId,
        result: &Result<Changed, CommandError>,
    ) -> SimResult {
        let drive = self.drive_of(device);
        if self.pasts.apart.contains(&drive) && *result != Err(CommandError::SplitBrain) {
            return self.failure(format!(
                "drive {drive} alone holds what was acknowledged last, and that is not said: \
                 {result:?}"
            ));
        }
        match result {
            Ok(_) if self.pasts.is_strange(drive) => self.failure(format!(
                "drive {drive} is of another past, and is taken back"
            )),
            Ok(_) => {
                self.pasts.member_is_back(drive);
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }

    /// None that is not what it was last serves.
    pub(crate) fn strangers_are_out(&mut self) -> SimResult {
        let looks = self.looks();
        let strange = |look: &Look| {
            let serving = look.in_sync.or(look.incoming);
            serving.filter(|&drive| self.pasts.is_strange(drive))
        };
        match looks.iter().find_map(strange) {
            Some(drive) => self.failure(format!("drive {drive} is of another past, and serves")),
            None => Ok(()),
        }
    }
}

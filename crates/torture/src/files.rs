//! The files of one array, and what is certain of them.
//!
//! Invariants: a slot is *sure* only while the files that it names are certainly whole, whatever
//! came of commands that a kill cut off; the others count as lost. So what is asked of an array is
//! never more than its level promises, and what is refused within it is a fault.
//!
//! What lies in a file may be *past*: an older copy of the member, or a member that lost its
//! content and kept a superblock. The array can tell once it has stopped with the member since; so
//! only then is it made so. A file is cut short under an array that serves only behind its data,
//! and loses data when the array has let go of it: of a file that is shorter for a moment and then
//! long again, nothing tells a reader that its holes were data.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use strake_format::Layout;
use strake_sim::prng::Prng;

use crate::child::Seen;

/// See the module.
#[derive(Debug)]
pub(crate) struct Files {
    /// Where the files are that a start may find.
    here: PathBuf,
    /// Where those are that it may not.
    away: PathBuf,
    /// For each slot the files of which one certainly is its member in sync: two while one is
    /// being replaced by the other, none where the slot counts as lost.
    sure: Vec<Vec<PathBuf>>,
    /// Slots and width of the shapes that count: two while data moves from one to the other.
    shapes: Vec<(usize, usize)>,
    tolerated: usize,
    made: u64,
    /// How often the array has stopped with the member of a file in sync.
    stops: BTreeMap<PathBuf, u64>,
    /// The copy of a member's file, and how often the array had stopped with it then.
    copy: Option<(PathBuf, u64)>,
    /// Files with outdated content, until they are given to the array as new ones.
    past: BTreeSet<PathBuf>,
}

impl Files {
    /// Names for the files of a new array.
    pub(crate) fn new(dir: &Path, slots: usize, width: usize, tolerated: usize) -> Result<Files> {
        let (here, away) = (dir.join("here"), dir.join("away"));
        fs::create_dir_all(&here).with_context(|| here.display().to_string())?;
        fs::create_dir_all(&away)?;
        let mut files = Files {
            here,
            away,
            sure: Vec::new(),
            shapes: vec![(slots, width)],
            tolerated,
            made: 0,
            stops: BTreeMap::new(),
            copy: None,
            past: BTreeSet::new(),
        };
        files.sure = (0..slots).map(|_| vec![files.name()]).collect();
        Ok(files)
    }

    /// A name that no file had before.
    pub(crate) fn name(&mut self) -> PathBuf {
        self.made += 1;
        self.here.join(format!("m{}", self.made))
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> usize {
        self.sure.len()
    }

    /// The files of the slots, in their order.
    pub(crate) fn members(&self) -> Vec<PathBuf> {
        self.sure.concat()
    }

    fn listed(folder: &Path) -> Result<Vec<PathBuf>> {
        let mut paths: Vec<PathBuf> = fs::read_dir(folder)?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<_>>()?;
        paths.sort();
        Ok(paths)
    }

    /// Files of which nothing is certain: spares, half rebuilt, failed, stale.
    pub(crate) fn others(&self) -> Result<Vec<PathBuf>> {
        let mut paths = Self::listed(&self.here)?;
        paths.retain(|path| !self.sure.iter().flatten().any(|sure| sure == path));
        Ok(paths)
    }

    /// What a start finds, in any order: everything certain, some of the rest; and whether
    /// something is left out that may have become a slot's member in sync since anybody was told of
    /// it.
    pub(crate) fn found(&self, rng: &mut Prng) -> Result<(Vec<PathBuf>, bool)> {
        let mut paths = self.members();
        let mut without = false;
        for path in self.others()? {
            if rng.percent(80) {
                paths.push(path);
            } else {
                without |= self.degraded();
            }
        }
        rng.shuffle(&mut paths);
        Ok((paths, without))
    }

    /// Some slot counts as lost.
    pub(crate) fn degraded(&self) -> bool {
        self.sure.iter().any(Vec::is_empty)
    }

    /// Slots that may be lost now: in every shape that counts.
    pub(crate) fn expendable(&self) -> Vec<usize> {
        let lost = |group: std::ops::Range<usize>| {
            let of = self.sure.get(group).unwrap_or_default();
            of.iter().filter(|files| files.is_empty()).count()
        };
        let spared = |slot: usize, (slots, width): (usize, usize)| {
            let first = slot / width * width;
            slot >= slots || lost(first..first + width) < self.tolerated
        };
        let sure = (0..self.sure.len()).filter(|&slot| !self.sure[slot].is_empty());
        sure.filter(|&slot| self.shapes.iter().all(|&shape| spared(slot, shape)))
            .collect()
    }

    /// The slot counts as lost from now on.
    pub(crate) fn doubt(&mut self, slot: usize) -> Vec<PathBuf> {
        std::mem::take(&mut self.sure[slot])
    }

    /// Another file may take the slot; one of both is its member.
    pub(crate) fn may_replace(&mut self, slot: usize, path: &Path) {
        self.sure[slot].push(path.to_owned());
    }

    /// Slots that have a certain member and no replacement.
    pub(crate) fn single(&self) -> Vec<usize> {
        let slots = 0..self.sure.len();
        slots.filter(|&at| self.sure[at].len() == 1).collect()
    }

    /// Takes the files of a slot where no start finds them.
    pub(crate) fn hide(&mut self, slot: usize) -> Result<()> {
        for path in self.doubt(slot) {
            let name = path.file_name().context("a file has a name")?;
            fs::rename(&path, self.away.join(name))?;
        }
        Ok(())
    }

    /// Brings one back that was hidden; it is stale now, if the array ran without it.
    pub(crate) fn return_one(&self, rng: &mut Prng) -> Result<Option<PathBuf>> {
        let hidden = Self::listed(&self.away)?;
        if hidden.is_empty() {
            return Ok(None);
        }
        let path = &hidden[rng.index(hidden.len())];
        let back = self
            .here
            .join(path.file_name().context("a file has a name")?);
        fs::rename(path, &back)?;
        Ok(Some(back))
    }

    /// Exchanges the names of two members' files.
    pub(crate) fn swap(&mut self, rng: &mut Prng) -> Result<bool> {
        let single = self.single();
        if single.len() < 2 {
            return Ok(false);
        }
        let first = single[rng.index(single.len())];
        let second = single[rng.index(single.len())];
        if first == second {
            return Ok(false);
        }
        let spare = self.away.join("swapping");
        fs::rename(&self.sure[first][0], &spare)?;
        fs::rename(&self.sure[second][0], &self.sure[first][0])?;
        fs::rename(&spare, &self.sure[second][0])?;
        self.sure.swap(first, second);
        // What is noted of a name is noted of another member.
        self.copy = None;
        self.stops.clear();
        Ok(true)
    }

    // ---- what is past ------------------------------------------------------------------------

    /// The array has stopped with those that are certain.
    pub(crate) fn stopped(&mut self) {
        for slot in self.single() {
            *self.stops.entry(self.sure[slot][0].clone()).or_default() += 1;
        }
    }

    /// The file is given to the array as something new.
    pub(crate) fn renew(&mut self, path: &Path) {
        self.past.remove(path);
        self.stops.remove(path);
        self.copy = self.copy.take().filter(|(of, _)| of != path);
    }

    fn stops_of(&self, path: &Path) -> u64 {
        self.stops.get(path).copied().unwrap_or_default()
    }

    /// Where the copy lies.
    fn copied(&self) -> PathBuf {
        self.here.with_file_name("copy")
    }

    /// Copies the file of a member, while nothing has it open.
    pub(crate) fn copy_one(&mut self, rng: &mut Prng) -> Result<()> {
        let single = self.single();
        if single.is_empty() {
            return Ok(());
        }
        let path = self.sure[single[rng.index(single.len())]][0].clone();
        fs::copy(&path, self.copied())?;
        self.copy = Some((path.clone(), self.stops_of(&path)));
        Ok(())
    }

    /// A slot that may be lost, for which the array can tell the copy of the member from the member
    /// as it was last.
    pub(crate) fn outdated(&self) -> Option<usize> {
        let (path, then) = self.copy.as_ref()?;
        let slots = self.expendable();
        let of_copy = |slot: &usize| self.sure[*slot] == [path.clone()];
        let slot = slots.into_iter().find(of_copy)?;
        (self.stops_of(path) > *then).then_some(slot)
    }

    /// Puts the copy in the place of the member in this slot.
    pub(crate) fn put_back(&mut self, slot: usize) -> Result<()> {
        for path in self.doubt(slot) {
            fs::rename(self.copied(), &path)?;
            self.past.insert(path);
        }
        self.copy = None;
        Ok(())
    }

    /// Slots that may be lost and that have a member with both superblocks.
    pub(crate) fn sealed(&self) -> Vec<usize> {
        let mut slots = self.expendable();
        slots.retain(|&slot| self.sure[slot].len() == 1 && self.stops_of(&self.sure[slot][0]) > 0);
        slots
    }

    /// Cuts the file of the member in this slot short, and makes it as long again.
    pub(crate) fn empty(&mut self, slot: usize, rng: &mut Prng) -> Result<()> {
        for path in self.doubt(slot) {
            let file = File::options().write(true).open(&path)?;
            let len = file.metadata()?.len();
            // Behind the last superblock there is nothing to lose.
            let [_, last] = Layout::superblock_offsets(len);
            file.set_len(rng.range(8192, last) / 4096 * 4096)?;
            file.set_len(len)?;
            self.past.insert(path);
        }
        Ok(())
    }

    /// Cuts the file behind its data, under the array that uses it; again at each call, since a
    /// write may make the file longer. Touches the file, as an array without I/O hears of nothing
    /// else.
    pub(crate) fn shorten(path: &Path, len: u64) -> Result<()> {
        let file = File::options().write(true).open(path)?;
        let [_, last] = Layout::superblock_offsets(len);
        file.set_len(last)?;
        let permissions = file.metadata()?.permissions();
        Ok(file.set_permissions(permissions)?)
    }

    /// No array holds the file.
    pub(crate) fn is_free(path: &Path) -> bool {
        File::open(path).is_ok_and(|file| file.try_lock().is_ok())
    }

    /// The array has let go of the file, which was cut: it loses content, and is long again.
    pub(crate) fn lengthen(&mut self, path: &Path, len: u64, rng: &mut Prng) -> Result<()> {
        let file = File::options().write(true).open(path)?;
        let [_, last] = Layout::superblock_offsets(len);
        file.set_len(rng.range(8192, last) / 4096 * 4096)?;
        file.set_len(len)?;
        self.past.insert(path.to_owned());
        Ok(())
    }

    /// Puts the copy in the place of its member, which the array has let go.
    pub(crate) fn put_copy(&mut self, path: &Path) -> Result<()> {
        fs::rename(self.copied(), path)?;
        self.past.insert(path.to_owned());
        self.copy = None;
        Ok(())
    }

    /// A file with outdated content that the array uses.
    pub(crate) fn believed(&self, seen: &Seen) -> Option<PathBuf> {
        let mut used = seen.members.iter().map(|(_, _, path)| path);
        used.find(|path| self.past.contains(*path)).cloned()
    }

    /// Deletes files that are no member of anything any more, so that their number stays small.
    pub(crate) fn tidy(&self, seen: &Seen, keep: usize) -> Result<()> {
        let used = |path: &PathBuf| seen.members.iter().any(|(_, _, used)| used == path);
        let mut unused: Vec<PathBuf> = self.others()?;
        unused.retain(|path| !used(path));
        for path in unused.iter().skip(keep) {
            fs::remove_file(path)?;
        }
        Ok(())
    }

    /// Takes over what the array itself says, at a moment when no command is under way. The first
    /// slot that was sure and is not in sync is a fault.
    pub(crate) fn learn(&mut self, seen: &Seen) -> std::result::Result<(), usize> {
        let mut lost = None;
        self.shapes.clone_from(&seen.shapes);
        let slots = seen.shapes.iter().map(|&(slots, _)| slots).max();
        let slots = slots.unwrap_or(0).max(self.sure.len());
        // Of those that came with a shape nothing is certain before the array says it.
        self.sure.resize(slots, Vec::new());
        for (slot, sure) in self.sure.iter_mut().enumerate() {
            let of_slot = |state: &'static str| {
                let members = seen.members.iter();
                members
                    .filter(move |(at, is, _)| *at == Some(slot) && is == state)
                    .map(|(_, _, path)| path.clone())
            };
            let in_sync = of_slot("InSync").next();
            if in_sync.is_none() && !sure.is_empty() && lost.is_none() {
                lost = Some(slot);
            }
            *sure = match in_sync {
                Some(path) => std::iter::once(path).chain(of_slot("Rebuilding")).collect(),
                None => Vec::new(),
            };
        }
        lost.map_or(Ok(()), Err)
    }
}

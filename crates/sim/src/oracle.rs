//! What every logical block may read as.
//!
//! For each block the oracle keeps the versions that were written to it and that can still be seen.
//! A newer version *supersedes* an older one if its write was submitted after the older write was
//! answered; it does so when it is answered. A reader may see every version that was not superseded
//! before the read was submitted. After a power cut a block may hold every version that was not
//! superseded by a *durable* one.
//!
//! A block that could not be computed at some moment is in *doubt* from then on: it may answer an
//! error instead, until a write that was submitted later is answered.
//!
//! Invariants: a block always has at least one version; what a reader saw of a settled block (none
//! in flight) stays, until it is written again.
//!
//! Deliberately absent: stripes, members and parity. The oracle knows only what the block device's
//! user knows.

use std::collections::{BTreeMap, BTreeSet};

use crate::prng;

/// What was written: the number of a write, or one of the special versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Version {
    /// All zeros.
    pub const ZEROS: Version = Version(0);
    /// Whatever the devices held when the array was made over them.
    pub const UNDEFINED: Version = Version(u64::MAX);
}

/// Puts the content of `version` of `block` into `bytes`.
pub fn content(version: Version, block: u64, bytes: &mut [u8]) {
    if version == Version::ZEROS {
        bytes.fill(0);
        return;
    }
    let base = prng::mix(version.0 ^ block.rotate_left(40));
    let (words, _) = bytes.as_chunks_mut::<8>();
    for (index, word) in (0u64..).zip(words.iter_mut()) {
        *word = word_of(base, version, block, index).to_le_bytes();
    }
}

/// A word of a block as this version has it.
fn word_in(version: Version, block: u64, index: u64) -> [u8; 8] {
    if version == Version::ZEROS {
        return [0; 8];
    }
    let base = prng::mix(version.0 ^ block.rotate_left(40));
    word_of(base, version, block, index).to_le_bytes()
}

fn word_of(base: u64, version: Version, block: u64, index: u64) -> u64 {
    match index {
        0 => version.0,
        1 => block,
        _ => (base ^ index).wrapping_mul(0xd6e8_feb8_6659_fd93),
    }
}

/// Whether bytes that begin `from` bytes into a block are what this version has there.
fn matches_from(version: Version, block: u64, from: usize, bytes: &[u8]) -> bool {
    let (words, _) = bytes.as_chunks::<8>();
    let mut words = (from as u64 / 8..).zip(words);
    version == Version::UNDEFINED || words.all(|(at, word)| word_in(version, block, at) == *word)
}

fn matches(version: Version, block: u64, bytes: &[u8]) -> bool {
    let (words, _) = bytes.as_chunks::<8>();
    if version == Version::UNDEFINED {
        return true;
    }
    if version == Version::ZEROS {
        return words.iter().all(|word| *word == [0; 8]);
    }
    let base = prng::mix(version.0 ^ block.rotate_left(40));
    (0u64..)
        .zip(words)
        .all(|(index, word)| u64::from_le_bytes(*word) == word_of(base, version, block, index))
}

/// A moment of the oracle: grows with everything that it is told.
pub type Moment = u64;
/// Numbers of versions from here on stand for blocks with sectors of several versions.
const MIXTURES: u64 = 1 << 62;
const NEVER: Moment = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    version: Version,
    /// Submitted (or pinned by a reader).
    start: Moment,
    /// Answered, or settled by a crash; `NEVER` while in flight.
    end: Moment,
    /// No reader that asks after this sees it.
    hidden: Moment,
    /// It surely took place, so it supersedes others.
    certain: bool,
    /// A power cut does not undo it.
    durable: bool,
    /// A durable version superseded it.
    buried: bool,
    /// A crash left it beside others: sectors of a block may be of one, others of another.
    mixes: bool,
}

/// What a reader sees of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saw {
    /// Its content: each reader from now on sees the same.
    Content,
    /// One of copies that may differ, which the array leaves as they are: what a crash left open
    /// stays open.
    OneCopy,
    /// Nothing is demanded.
    Anything,
}

/// A write that was announced and not yet settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// First block.
    pub first: u64,
    /// Blocks.
    pub count: u64,
    start: Moment,
    version: Version,
    certain: bool,
}

impl Ticket {
    /// What it writes.
    pub fn version(&self) -> Version {
        self.version
    }
}

/// Since when a block may answer an error, and until when.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    since: Moment,
    until: Moment,
    /// Since when the array answers an error for it, until it is rewritten: a write that was
    /// submitted before may have been in place when the block was lost, and be answered after.
    listed: Option<Moment>,
}

impl Doubt {
    fn new(since: Moment) -> Doubt {
        Doubt {
            since,
            until: NEVER,
            listed: None,
        }
    }

    /// Does the answer to a write that was submitted at `start` end it?
    fn ends_with(&self, start: Moment) -> bool {
        self.since < start && self.listed.is_none_or(|listed| listed < start)
    }
}

/// A mismatch: what was read, and what might have been.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// The block.
    pub block: u64,
    /// What was expected and found, in words.
    pub text: String,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Oracle {
    blocks: Vec<Vec<Entry>>,
    /// Bytes of a block.
    block_bytes: usize,
    /// Bytes that a crash leaves whole, on the member with the smallest.
    sector_bytes: usize,
    /// Blocks that were read when their sectors were of several versions: these, sector by sector.
    mixtures: Vec<Vec<Version>>,
    now: Moment,
    versions: u64,
    readers: BTreeSet<Moment>,
    /// Blocks with answered versions that are not durable.
    loose: BTreeSet<u64>,
    /// Blocks with a version in flight.
    open: BTreeSet<u64>,
    /// Blocks that may answer, or might have answered, an error.
    doubts: BTreeMap<u64, Doubt>,
    /// Members lose nothing that they answered.
    no_caches: bool,
}

impl Entry {
    /// What a block holds for certain, and durably, since this moment.
    fn settled(version: Version, since: Moment) -> Entry {
        Entry {
            version,
            start: since,
            end: since,
            hidden: NEVER,
            certain: true,
            durable: true,
            buried: false,
            mixes: false,
        }
    }
}

impl Oracle {
    /// An array of `blocks` blocks that all hold `first`.
    pub fn new(blocks: u64, block_bytes: usize, first: Version, no_caches: bool) -> Oracle {
        let entry = Entry::settled(first, 0);
        Oracle {
            blocks: vec![vec![entry]; blocks as usize],
            block_bytes,
            sector_bytes: block_bytes,
            mixtures: Vec::new(),
            now: 1,
            versions: 0,
            readers: BTreeSet::new(),
            loose: BTreeSet::new(),
            open: BTreeSet::new(),
            doubts: BTreeMap::new(),
            no_caches,
        }
    }

    /// Some members leave no more than so many bytes whole.
    pub fn with_sectors(self, sector_bytes: usize) -> Oracle {
        Oracle {
            sector_bytes,
            ..self
        }
    }

    /// The array has grown to so many blocks: those that are new were never written.
    pub fn grow(&mut self, blocks: u64) {
        let now = self.tick();
        let entry = Entry::settled(Version::ZEROS, now);
        assert!(blocks >= self.blocks(), "an array does not shrink");
        self.blocks.resize(blocks as usize, vec![entry]);
    }

    /// Blocks of the array.
    pub fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }
    /// Does any block of the range have a write in flight?
    pub fn busy(&self, first: u64, count: u64) -> bool {
        self.open.range(first..first + count).next().is_some()
    }

    /// The block cannot be computed at this moment: it is in doubt.
    pub fn doubt(&mut self, block: u64) {
        let since = self.tick();
        let doubt = self.doubts.entry(block).or_insert(Doubt::new(since));
        if doubt.until != NEVER {
            *doubt = Doubt::new(since);
        }
    }
    /// The array gave up a block that is in doubt: it answers an error until it is rewritten.
    pub fn given_up(&mut self, block: u64) {
        let listed = Some(self.tick());
        if let Some(doubt) = self.doubts.get_mut(&block) {
            doubt.listed = listed;
        }
    }
    /// The array no longer answers an error for a block that it gave up.
    pub fn rewritten(&mut self, block: u64) {
        if let Some(doubt) = self.doubts.get_mut(&block) {
            doubt.listed = None;
        }
    }
    /// The present moment.
    pub fn moment(&self) -> Moment {
        self.now
    }
    /// Blocks that are being written, by writes that were submitted before `moment`.
    pub fn in_flight(&self, moment: Moment) -> impl Iterator<Item = u64> {
        let blocks = &self.blocks;
        let since = move |block: &u64| {
            let entries = &blocks[*block as usize];
            entries.iter().any(|e| e.end == NEVER && e.start <= moment)
        };
        self.open.iter().copied().filter(since)
    }
    /// May a reader that asked at `moment` be answered an error for this block?
    pub fn may_fail(&self, moment: Moment, block: u64) -> bool {
        self.doubts.get(&block).is_some_and(|d| d.until > moment)
    }
    /// Is the block in doubt now?
    pub fn doubtful(&self, block: u64) -> bool {
        self.may_fail(self.now, block)
    }

    fn tick(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    /// Nothing is demanded of these blocks until they are written again.
    pub fn undefine(&mut self, first: u64, count: u64) {
        let now = self.tick();
        for block in first..first + count {
            self.blocks[block as usize] = vec![Entry::settled(Version::UNDEFINED, now)];
            self.open.remove(&block);
            self.loose.remove(&block);
        }
    }

    /// Announces a write of new content.
    pub fn write(&mut self, first: u64, count: u64) -> (Ticket, Version) {
        self.versions += 1;
        let version = Version(self.versions);
        (self.announce(first, count, version, true), version)
    }
    /// Announces a write of what has a number from elsewhere.
    pub fn write_as(&mut self, version: Version, first: u64, count: u64) -> Ticket {
        self.announce(first, count, version, true)
    }
    /// Announces a write of zeros.
    pub fn zero(&mut self, first: u64, count: u64) -> Ticket {
        self.announce(first, count, Version::ZEROS, true)
    }
    /// Announces a discard: afterwards each block reads as before or as zeros.
    pub fn discard(&mut self, first: u64, count: u64) -> Ticket {
        self.announce(first, count, Version::ZEROS, false)
    }

    fn announce(&mut self, first: u64, count: u64, version: Version, certain: bool) -> Ticket {
        let start = self.tick();
        for block in first..first + count {
            self.blocks[block as usize].push(Entry {
                version,
                start,
                end: NEVER,
                hidden: NEVER,
                certain: false,
                durable: false,
                buried: false,
                mixes: false,
            });
            self.open.insert(block);
        }
        Ticket {
            first,
            count,
            start,
            version,
            certain,
        }
    }

    /// The write was answered; with `durable` (FUA) it survives a power cut.
    pub fn answered(&mut self, ticket: &Ticket, durable: bool) {
        let durable = durable || self.no_caches;
        let certain = ticket.certain;
        self.settle(ticket, certain, durable);
    }
    /// The write was answered with an error, or never: the block is old or new.
    pub fn unanswered(&mut self, ticket: &Ticket) {
        let durable = self.no_caches;
        self.settle(ticket, false, durable);
        // A member that vanished may have torn it between sectors.
        for block in ticket.first..ticket.first + ticket.count {
            let entries = &mut self.blocks[block as usize];
            let visible = |e: &&mut Entry| e.hidden == NEVER;
            entries
                .iter_mut()
                .filter(visible)
                .for_each(|e| e.mixes = true);
        }
    }

    fn settle(&mut self, ticket: &Ticket, certain: bool, durable: bool) {
        let now = self.tick();
        let keep = self.oldest_reader();
        for block in ticket.first..ticket.first + ticket.count {
            let entries = &mut self.blocks[block as usize];
            let own = entries
                .iter_mut()
                .find(|e| e.start == ticket.start && e.version == ticket.version && e.end == NEVER)
                .expect("a ticket's entry is there until it is settled");
            own.end = now;
            own.certain = certain;
            own.durable = durable;
            supersede(entries, now, keep);
            if certain
                && let Some(doubt) = self.doubts.get_mut(&block)
                && doubt.ends_with(ticket.start)
            {
                doubt.until = doubt.until.min(now);
            }
            if !durable {
                self.loose.insert(block);
            }
            if entries.iter().all(|e| e.end != NEVER) {
                self.open.remove(&block);
            }
        }
    }

    fn oldest_reader(&self) -> Moment {
        self.readers.first().copied().unwrap_or(NEVER)
    }

    /// The moment of a flush's submission.
    pub fn flush(&mut self) -> Moment {
        self.tick()
    }
    /// The flush was answered: what was answered before its submission is durable.
    pub fn flushed(&mut self, submitted: Moment) {
        let (now, keep) = (self.tick(), self.oldest_reader());
        for block in std::mem::take(&mut self.loose) {
            let entries = &mut self.blocks[block as usize];
            for entry in entries.iter_mut().filter(|e| e.end < submitted) {
                entry.durable = true;
            }
            supersede(entries, now, keep);
            if entries
                .iter()
                .any(|e| e.end != NEVER && !e.durable && !e.buried)
            {
                self.loose.insert(block);
            }
        }
    }
    /// Everything answered is durable (a clean stop).
    pub fn all_durable(&mut self) {
        let now = self.tick();
        self.flushed(now);
    }

    /// A reader asks: its moment, to be given back with what it saw.
    pub fn read(&mut self) -> Moment {
        let moment = self.tick();
        self.readers.insert(moment);
        moment
    }

    /// The reader that asked at `moment` saw `bytes` from block `first` on.
    ///
    /// # Errors
    /// The first block that holds what it cannot.
    pub fn seen(&mut self, moment: Moment, first: u64, bytes: &[u8]) -> Result<(), Mismatch> {
        self.seen_but(moment, first, bytes, |_| Saw::Content)
    }
    /// The same, where a block may show less than its content.
    ///
    /// # Errors
    /// The first other block that holds what it cannot.
    pub fn seen_but(
        &mut self,
        moment: Moment,
        first: u64,
        bytes: &[u8],
        saw: impl Fn(u64) -> Saw,
    ) -> Result<(), Mismatch> {
        self.readers.remove(&moment);
        for (block, bytes) in (first..).zip(bytes.chunks(self.block_bytes)) {
            match saw(block) {
                Saw::Anything => {}
                Saw::OneCopy if self.is_possible(block, moment, bytes) => {}
                Saw::Content | Saw::OneCopy => self.check(block, moment, bytes)?,
            }
        }
        Ok(())
    }
    /// Whether a block that was not as it must be is made of words of versions that the reader may
    /// see, one of which was under way while it read. Devices that read and write whole blocks
    /// never show this; files in memory copy pages word by word, even while another thread copies
    /// the same page.
    pub fn torn(&self, moment: Moment, block: u64, bytes: &[u8]) -> bool {
        let entries = &self.blocks[block as usize];
        let seen = |e: &&Entry| e.hidden > moment && e.version != Version::UNDEFINED;
        let (words, _) = bytes.as_chunks::<8>();
        let known = |(at, word): (usize, &[u8; 8])| {
            let held = |e: &Entry| word_in(e.version, block, at as u64) == *word;
            entries.iter().filter(seen).any(held)
        };
        let under_way = entries.iter().filter(seen).any(|e| e.end > moment);
        under_way && words.iter().enumerate().all(known)
    }

    /// Would a reader that asks now be right to see this?
    pub fn allows(&self, block: u64, bytes: &[u8]) -> bool {
        self.is_possible(block, self.now, bytes)
    }

    /// Whether bytes that begin so many bytes into a block are what this version has there.
    fn fits(&self, version: Version, block: u64, from: usize, bytes: &[u8]) -> bool {
        let Some(mixture) = version
            .0
            .checked_sub(MIXTURES)
            .filter(|_| version.0 < u64::MAX)
        else {
            return matches_from(version, block, from, bytes);
        };
        let sectors = &self.mixtures[mixture as usize][from / self.sector_bytes..];
        let parts = (from..).step_by(self.sector_bytes);
        let parts = parts.zip(bytes.chunks(self.sector_bytes)).zip(sectors);
        let fits = |((from, part), version): ((usize, &[u8]), &Version)| {
            matches_from(*version, block, from, part)
        };
        parts.into_iter().all(fits)
    }

    /// Of a block that a crash left with sectors of several versions: the entries that they are of,
    /// or `None` if some sector is of none.
    fn mixture(&self, moment: Moment, block: u64, bytes: &[u8]) -> Option<Vec<usize>> {
        if self.sector_bytes >= self.block_bytes {
            return None;
        }
        let entries = &self.blocks[block as usize];
        let parts = bytes.chunks(self.sector_bytes).enumerate();
        let of = |(sector, part): (usize, &[u8])| {
            let from = sector * self.sector_bytes;
            let fits = |e: &Entry| self.fits(e.version, block, from, part);
            entries
                .iter()
                .position(|e| e.mixes && e.hidden > moment && fits(e))
        };
        parts.map(of).collect()
    }

    /// The version of each sector of a block that a reader saw, if all are known.
    pub fn versions_in(&self, block: u64, bytes: &[u8]) -> Option<Vec<Version>> {
        let entries = || {
            // What a block held before its first write fits anything: it comes last.
            let all = || self.blocks[block as usize].iter();
            let known = all().filter(|e| e.version != Version::UNDEFINED);
            known.chain(all().filter(|e| e.version == Version::UNDEFINED))
        };
        let sector = |sector: usize, entry: &Entry| self.version_in(entry, sector);
        let parts = || bytes.chunks(self.sector_bytes).enumerate();
        if let Some(one) = entries().find(|e| self.fits(e.version, block, 0, bytes)) {
            return Some(parts().map(|(at, _)| sector(at, one)).collect());
        }
        let of = |(at, part): (usize, &[u8])| {
            let from = at * self.sector_bytes;
            let mut fitting = entries().filter(|e| self.fits(e.version, block, from, part));
            fitting.next().map(|entry| sector(at, entry))
        };
        parts().map(of).collect()
    }

    /// What this entry has in a sector.
    fn version_in(&self, entry: &Entry, sector: usize) -> Version {
        let mixture = entry.version.0.checked_sub(MIXTURES);
        match mixture.filter(|_| entry.version != Version::UNDEFINED) {
            Some(mixture) => self.mixtures[mixture as usize][sector],
            None => entry.version,
        }
    }

    /// A reader saw such a block: it stays so, if nothing else is under way.
    fn settle_mixture(&mut self, moment: Moment, block: u64, parts: &[usize]) {
        let (now, keep) = (self.tick(), self.oldest_reader());
        let entries = &self.blocks[block as usize];
        let settled = entries.iter().all(|e| e.end < moment || e.hidden != NEVER);
        let lasting = parts.iter().all(|&at| entries[at].hidden == NEVER);
        if !settled || !lasting {
            return;
        }
        let durable = parts.iter().all(|&at| entries[at].durable);
        let versions = parts.iter().enumerate();
        let versions = versions.map(|(sector, &at)| self.version_in(&entries[at], sector));
        let versions = versions.collect();
        let version = Version(MIXTURES + self.mixtures.len() as u64);
        self.mixtures.push(versions);
        if !durable {
            self.loose.insert(block);
        }
        let entries = &mut self.blocks[block as usize];
        entries.push(Entry {
            durable,
            mixes: true,
            ..Entry::settled(version, now)
        });
        supersede(entries, now, keep);
    }

    /// The reader got no answer.
    pub fn unread(&mut self, moment: Moment) {
        self.readers.remove(&moment);
    }

    /// Might a reader since this moment be right to see this?
    fn is_possible(&self, block: u64, moment: Moment, bytes: &[u8]) -> bool {
        let entries = &self.blocks[block as usize];
        let mut seen = entries.iter().filter(|e| e.hidden > moment);
        seen.any(|e| self.fits(e.version, block, 0, bytes))
            || self.mixture(moment, block, bytes).is_some()
    }

    fn check(&mut self, block: u64, moment: Moment, bytes: &[u8]) -> Result<(), Mismatch> {
        let now = self.tick();
        let keep = self.oldest_reader();
        let entries = &self.blocks[block as usize];
        // Of several versions with this content, one that a power cut could undo stands for all.
        let fitting = entries
            .iter()
            .enumerate()
            .filter(|(_, e)| e.hidden > moment && self.fits(e.version, block, 0, bytes));
        let Some((seen, _)) = fitting.min_by_key(|(_, e)| e.durable) else {
            let Some(parts) = self.mixture(moment, block, bytes) else {
                let text = explain(entries, moment, block, bytes);
                return Err(Mismatch { block, text });
            };
            self.settle_mixture(moment, block, &parts);
            return Ok(());
        };
        let entries = &mut self.blocks[block as usize];
        let visible = entries.iter().filter(|e| e.hidden == NEVER).count();
        let settled = entries.iter().all(|e| e.end < moment || e.hidden != NEVER);
        let seen = &mut entries[seen];
        let lasting = seen.hidden == NEVER && seen.version != Version::UNDEFINED;
        // Readers settle what a crash left open.
        if visible > 1 && settled && lasting {
            seen.start = now;
            seen.end = now;
            seen.certain = true;
            if !seen.durable {
                self.loose.insert(block);
            }
            supersede(entries, now, keep);
        } else if entries.len() > 4 {
            supersede(entries, now, keep);
        }
        Ok(())
    }

    /// The process was killed or (`power`) the power went: what was in flight is old or new, and
    /// with volatile caches what was not durable may be gone. Readers are forgotten.
    pub fn crash(&mut self, power: bool) {
        let now = self.tick();
        self.readers.clear();
        let mut touched = std::mem::take(&mut self.open);
        if power {
            touched.extend(std::mem::take(&mut self.loose));
        }
        for &block in &touched {
            let entries = &mut self.blocks[block as usize];
            if power {
                entries.retain(|e| !e.buried);
            } else {
                entries.retain(|e| !e.buried || e.hidden == NEVER);
            }
            let visible = |e: &&Entry| power || e.hidden == NEVER;
            let several = entries.iter().filter(visible).count() > 1;
            let doubtful = !power && several;
            for entry in entries.iter_mut() {
                entry.mixes |= several;
                if entry.end == NEVER {
                    entry.end = now;
                    entry.durable = self.no_caches;
                }
                if power {
                    entry.durable = true;
                    entry.hidden = NEVER;
                    entry.certain = false;
                    entry.end = now;
                }
            }
            if let [only] = entries.as_mut_slice() {
                only.certain = true;
            }
            if doubtful && !self.no_caches {
                self.loose.insert(block);
            }
        }
    }
}

/// Hides what is superseded, buries what is superseded durably, forgets what no reader can see.
fn supersede(entries: &mut Vec<Entry>, now: Moment, oldest_reader: Moment) {
    if entries.len() < 2 {
        return;
    }
    let start_of = |durable: bool, entries: &[Entry]| {
        let sure = entries
            .iter()
            .filter(|e| e.certain && e.end != NEVER && (e.durable || !durable));
        sure.map(|e| e.start).max().unwrap_or(0)
    };
    let (any, durable) = (start_of(false, entries), start_of(true, entries));
    for entry in entries.iter_mut() {
        if entry.end < any && entry.hidden == NEVER {
            entry.hidden = now;
        }
        entry.buried |= entry.end < durable;
    }
    entries.retain(|e| !(e.buried && e.hidden < oldest_reader));
}

fn explain(entries: &[Entry], moment: Moment, block: u64, bytes: &[u8]) -> String {
    let name = |version: Version| match version {
        Version::ZEROS => "zeros".to_owned(),
        Version::UNDEFINED => "anything".to_owned(),
        Version(MIXTURES..) => "sectors of several writes".to_owned(),
        Version(n) => format!("write {n}"),
    };
    let may: Vec<String> = entries
        .iter()
        .filter(|e| e.hidden > moment)
        .map(|e| name(e.version))
        .collect();
    format!(
        "block {block}: may hold {}, holds {}",
        may.join(" or "),
        describe(block, bytes)
    )
}

/// What the bytes look like, in words.
pub fn describe(block: u64, bytes: &[u8]) -> String {
    if matches(Version::ZEROS, block, bytes) {
        return "zeros".to_owned();
    }
    let word = |at: usize| {
        bytes[at..at + 8]
            .try_into()
            .map(u64::from_le_bytes)
            .expect("a block has 16 bytes")
    };
    let (version, named) = (Version(word(0)), word(1));
    if matches(version, block, bytes) {
        return format!("write {}", version.0);
    }
    if matches(version, named, bytes) {
        return format!("write {} of block {named}", version.0);
    }
    let half = bytes.len() / 2;
    if matches(version, block, &bytes[..half]) {
        return format!("write {} at first, then something else", version.0);
    }
    "bytes that nobody wrote".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 512;

    fn bytes(version: Version, block: u64) -> Vec<u8> {
        let mut bytes = vec![0; SIZE];
        content(version, block, &mut bytes);
        bytes
    }
    fn reads(oracle: &mut Oracle, block: u64, version: Version) -> bool {
        let moment = oracle.read();
        oracle.seen(moment, block, &bytes(version, block)).is_ok()
    }
    fn oracle(no_caches: bool) -> Oracle {
        Oracle::new(8, SIZE, Version::ZEROS, no_caches)
    }

    #[test]
    fn an_answered_write_is_the_only_thing_that_may_be_read() {
        let mut oracle = oracle(true);
        let (ticket, new) = oracle.write(2, 2);
        assert!(reads(&mut oracle, 2, Version::ZEROS));
        assert!(reads(&mut oracle, 2, new));
        oracle.answered(&ticket, false);
        assert!(reads(&mut oracle, 3, new));
        assert!(!reads(&mut oracle, 3, Version::ZEROS));
        assert!(reads(&mut oracle, 4, Version::ZEROS));
    }

    #[test]
    fn a_reader_that_asked_before_the_answer_may_see_the_old_version() {
        let mut oracle = oracle(true);
        let (ticket, _) = oracle.write(0, 1);
        let moment = oracle.read();
        oracle.answered(&ticket, false);
        assert!(oracle.seen(moment, 0, &bytes(Version::ZEROS, 0)).is_ok());
        assert!(!reads(&mut oracle, 0, Version::ZEROS));
    }

    #[test]
    fn only_what_was_written_while_it_was_read_may_be_torn() {
        let mut oracle = oracle(true);
        let (first, old) = oracle.write(0, 1);
        oracle.answered(&first, false);
        let (second, new) = oracle.write(0, 1);
        let mut both = bytes(new, 0);
        both[SIZE / 2 + 8..].copy_from_slice(&bytes(old, 0)[SIZE / 2 + 8..]);
        let mut foreign = both.clone();
        foreign[100] ^= 1;
        let during = oracle.read();
        assert!(
            oracle.seen(during, 0, &both).is_err(),
            "no device does that"
        );
        assert!(oracle.torn(during, 0, &both));
        assert!(!oracle.torn(during, 0, &foreign));
        oracle.answered(&second, false);
        let after = oracle.read();
        assert!(!oracle.torn(after, 0, &both));
    }

    #[test]
    fn a_power_cut_undoes_what_was_not_flushed_and_nothing_else() {
        let mut oracle = oracle(false);
        let (a, old) = oracle.write(0, 1);
        oracle.answered(&a, false);
        let flush = oracle.flush();
        let (b, new) = oracle.write(0, 1);
        oracle.answered(&b, false);
        oracle.flushed(flush);
        assert!(!reads(&mut oracle, 0, old));
        oracle.crash(true);
        assert!(!reads(&mut oracle, 0, Version::ZEROS));
        assert!(reads(&mut oracle, 0, old));
        assert!(!reads(&mut oracle, 0, new), "what was read stays");
        oracle.crash(true);
        assert!(!reads(&mut oracle, 0, new), "also over a second power cut");
    }

    #[test]
    fn a_kill_undoes_nothing_that_was_answered() {
        let mut oracle = oracle(false);
        let (a, one) = oracle.write(0, 1);
        oracle.answered(&a, false);
        let (_b, two) = oracle.write(0, 1);
        oracle.crash(false);
        assert!(!reads(&mut oracle, 0, Version::ZEROS));
        assert!(reads(&mut oracle, 0, two));
        assert!(!reads(&mut oracle, 0, one));
        oracle.crash(true);
        assert!(
            reads(&mut oracle, 0, Version::ZEROS),
            "it was never flushed"
        );
    }

    #[test]
    fn a_fua_write_survives_a_power_cut() {
        let mut oracle = oracle(false);
        let (a, one) = oracle.write(0, 1);
        oracle.answered(&a, true);
        oracle.crash(true);
        assert!(!reads(&mut oracle, 0, Version::ZEROS));
        assert!(reads(&mut oracle, 0, one));
    }

    #[test]
    fn a_discarded_block_is_as_before_or_zeros_and_then_stays() {
        let mut oracle = oracle(true);
        let (a, one) = oracle.write(0, 2);
        oracle.answered(&a, false);
        let b = oracle.discard(0, 2);
        oracle.answered(&b, false);
        assert!(reads(&mut oracle, 0, one));
        assert!(!reads(&mut oracle, 0, Version::ZEROS));
        assert!(reads(&mut oracle, 1, Version::ZEROS));
        assert!(!reads(&mut oracle, 1, one));
    }

    #[test]
    fn a_block_in_doubt_may_fail_until_a_later_write_is_answered() {
        let mut oracle = oracle(true);
        let (earlier, _) = oracle.write(0, 2);
        oracle.doubt(0);
        assert!(oracle.doubtful(0) && !oracle.doubtful(1));
        oracle.answered(&earlier, false);
        assert!(oracle.doubtful(0), "it may have been lost after that write");
        let (later, new) = oracle.write(0, 1);
        let reader = oracle.read();
        oracle.answered(&later, false);
        assert!(!oracle.doubtful(0) && oracle.may_fail(reader, 0));
        assert!(reads(&mut oracle, 0, new));
        oracle.doubt(0);
        assert!(oracle.doubtful(0));
    }

    #[test]
    fn a_write_in_place_that_is_lost_before_its_answer_leaves_the_doubt_until_the_next() {
        let mut oracle = oracle(true);
        oracle.doubt(0);
        let (first, _) = oracle.write(0, 1);
        oracle.doubt(0);
        oracle.given_up(0);
        oracle.answered(&first, false);
        assert!(oracle.doubtful(0), "it was lost after that write");
        let (second, _) = oracle.write(0, 1);
        oracle.answered(&second, false);
        assert!(!oracle.doubtful(0));
    }

    #[test]
    fn a_block_that_was_given_up_is_expected_again_when_the_write_that_comes_rewrites_it() {
        let mut oracle = oracle(true);
        oracle.doubt(0);
        let (write, new) = oracle.write(0, 1);
        oracle.given_up(0);
        oracle.rewritten(0);
        oracle.answered(&write, false);
        assert!(!oracle.doubtful(0));
        assert!(reads(&mut oracle, 0, new));
    }

    #[test]
    fn of_two_overlapping_writes_either_may_win() {
        let mut oracle = oracle(true);
        let (a, one) = oracle.write(0, 1);
        let (b, two) = oracle.write(0, 1);
        oracle.answered(&b, false);
        oracle.answered(&a, false);
        assert!(!reads(&mut oracle, 0, Version::ZEROS));
        assert!(reads(&mut oracle, 0, one));
        assert!(!reads(&mut oracle, 0, two));
    }
}

//! What a cut of the power, or the end of the process, leaves of what was under way: all of it,
//! nothing, or some of it.
//!
//! Invariant: data is torn between sectors alone; metadata may be torn anywhere, since its
//! checksums promise more than drives do.

use crate::drive::{Fate, Ssd, put, written};
use crate::prng::Prng;
use strake_engine::event::IoKind;

/// What a power cut did.
#[derive(Clone, Debug, Default)]
pub struct CutReport {
    /// Writes of which some blocks survived and some did not.
    pub torn: u64,
    /// Writes lost whole.
    pub lost: u64,
    /// Where writes of metadata were torn within a logical block, so that neither the old nor the
    /// new is there.
    pub torn_inside: Vec<u64>,
    /// Where only some sectors of a block are new.
    pub torn_blocks: Vec<u64>,
}

impl Ssd {
    /// The power goes: what was not durable survives, is lost or is torn.
    pub fn power_cut(&mut self, rng: &mut Prng) -> CutReport {
        let mut report = CutReport::default();
        self.lose_cache(&mut report, rng);
        self.end_flights(rng, &mut report);
        // What landed of the flights has landed on the medium.
        if let Some(durable) = &mut self.durable {
            durable.copy_from_slice(&self.current);
            self.cached.clear();
        }
        report
    }

    /// What the cache had answered survives, is lost or is torn.
    pub fn lose_cache(&mut self, report: &mut CutReport, rng: &mut Prng) {
        if let Some(mut durable) = self.durable.take() {
            let size = self.block as usize;
            let cached = std::mem::take(&mut self.cached);
            for group in cached.chunk_by(|a, b| a.group == b.group) {
                let (mut kept, mut lost) = (false, false);
                let outcome = rng.below(3);
                for block in group {
                    let at = block.block as usize * size;
                    let held = &mut durable[at..at + size];
                    if outcome == 1 && self.block > self.sector && rng.percent(50) {
                        let mut new = held.to_vec();
                        put(&mut new, &block.data);
                        tear_block(held, &new, self.sector, rng);
                        (kept, lost) = (true, true);
                        continue;
                    }
                    let survives = outcome == 0 || outcome == 1 && rng.percent(50);
                    kept |= survives;
                    lost |= !survives;
                    if survives {
                        put(held, &block.data);
                    }
                }
                report.torn += u64::from(kept && lost);
                report.lost += u64::from(!kept);
            }
            self.current.copy_from_slice(&durable);
            self.durable = Some(durable);
        }
    }

    /// The process is killed: nothing in the cache is lost, I/Os in flight may land.
    pub fn kill(&mut self, rng: &mut Prng) -> CutReport {
        let mut report = CutReport::default();
        self.end_flights(rng, &mut report);
        report
    }

    pub(super) fn end_flights(&mut self, rng: &mut Prng, report: &mut CutReport) {
        for (_, flight) in std::mem::take(&mut self.flights) {
            let lands = match flight.fate {
                Fate::Normal | Fate::TimesOut => !self.faults.gone,
                Fate::Fails(_) => false,
            };
            let Some((offset, len)) = written(&flight.kind).filter(|_| lands) else {
                continue;
            };
            match rng.below(3) {
                0 => report.lost += 1,
                1 => drop(self.apply(flight, rng)),
                2 if !self.data.contains(&offset) && rng.percent(50) => {
                    if self.tear(&flight.kind, rng) {
                        report.torn += 1;
                        report.torn_inside.push(offset);
                    }
                }
                _ => {
                    report.torn += u64::from(len > self.sector);
                    for block in self.blocks(offset, len) {
                        if self.end_block(&flight.kind, block, rng) {
                            report.torn_blocks.push(block * self.block);
                        }
                    }
                }
            }
        }
    }

    /// Only the first bytes of a write land, or only the last; false if nothing did, because
    /// neither can be told from the whole.
    fn tear(&mut self, kind: &IoKind, rng: &mut Prng) -> bool {
        let IoKind::Write {
            offset, data, fua, ..
        } = kind
        else {
            return false;
        };
        let new = data.bytes();
        let old = self.current[*offset as usize..][..new.len()].to_vec();
        // Where both are the same, a cut leaves no trace.
        let differs = |at: &usize| new[*at] != old[*at];
        let first = (0..new.len()).find(differs);
        let last = (0..new.len()).rfind(differs);
        let Some((first, last)) = first.zip(last).filter(|(first, last)| first < last) else {
            return false;
        };
        let cut = rng.range(first as u64 + 1, last as u64) as usize;
        let torn = match rng.percent(50) {
            true => [&new[..cut], &old[cut..]],
            false => [&old[..cut], &new[cut..]],
        };
        self.moment += 1;
        self.write(*offset, &torn.concat(), *fua);
        true
    }

    /// What is left of one block of a write that was torn: the new content or the old, or, where
    /// sectors are smaller, some of each, which is true.
    fn end_block(&mut self, kind: &IoKind, block: u64, rng: &mut Prng) -> bool {
        // What cannot be read stays so until every sector of it is written.
        let readable = !self.faults.unreadable(block, block + 1);
        let written = !matches!(kind, IoKind::Discard { .. });
        let within = self.block > self.sector && readable && written;
        if !within || rng.percent(50) {
            if rng.percent(50) {
                self.apply_block(kind, block, rng);
            }
            return false;
        }
        let new = match kind {
            IoKind::Write { offset, data, .. } => {
                let from = (block * self.block - offset) as usize;
                data.bytes()[from..from + self.block as usize].to_vec()
            }
            _ => vec![0; self.block as usize],
        };
        let fua = matches!(kind, IoKind::Write { fua: true, .. });
        let at = block * self.block;
        let mut torn = self.current[at as usize..][..new.len()].to_vec();
        tear_block(&mut torn, &new, self.sector, rng);
        self.moment += 1;
        self.write(at, &torn, fua);
        true
    }
}

/// Some sectors of a block become new.
fn tear_block(held: &mut [u8], new: &[u8], sector: u64, rng: &mut Prng) {
    let sectors = held.chunks_mut(sector as usize);
    for (held, new) in sectors.zip(new.chunks(sector as usize)) {
        if rng.percent(50) {
            held.copy_from_slice(new);
        }
    }
}

//! How a write to a run of a stripe is carried out: pure arithmetic, no state.
//!
//! A *run* is the byte range `lo..hi` of the strips (the same on every column) that one operation
//! covers. Columns are numbered as in strake-parity: 0..k data, k..k+m parity.
//!
//! Invariant: a plan that trusts parity is never chosen where parity is untrusted, and no plan
//! reads a column that is lost.

use crate::geometry::Geometry;
use crate::geometry::column_set::Columns;
use crate::mem::list::{List, listed};

/// What a write brings for one data column, within the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Coverage {
    /// First byte written.
    pub(crate) lo: u64,
    /// Byte after the last.
    pub(crate) hi: u64,
    /// Every byte between is written.
    pub(crate) solid: bool,
}

/// How to get from the old stripe to the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WritePlan {
    /// All data of the run is new, or there is no parity to keep: read only columns that the write
    /// covers with holes.
    Full,
    /// Read the old data of the written columns and the old parity; add the difference to the
    /// parity.
    ReadModifyWrite,
    /// Read the data that is not written; compute the parity anew.
    ReconstructWrite,
    /// Read k columns, compute the lost data, then as reconstruct-write.
    Decode,
}

/// Facts for the choice.
pub(crate) struct Facts<'a> {
    pub(crate) geometry: &'a Geometry,
    /// The run.
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    /// For each data column what is written.
    pub(crate) coverage: &'a [Option<Coverage>],
    /// Columns that cannot be read.
    pub(crate) lost: Columns,
    /// Parity columns that have a member: they must be true after the write.
    pub(crate) parity: Columns,
    /// Parity agrees with the data here.
    pub(crate) trusted: bool,
    /// It does so without the word of a forced start.
    pub(crate) synced: bool,
}

impl Facts<'_> {
    fn covers(&self, column: usize) -> bool {
        self.coverage[column].is_some_and(|c| c.solid && c.lo == self.lo && c.hi == self.hi)
    }

    /// Chooses what reads least; `None` where the level cannot carry the write out.
    pub(crate) fn choose(&self) -> Option<WritePlan> {
        let (k, m) = (self.coverage.len(), self.geometry.m);
        let len = self.hi - self.lo;
        let live_parity = self.parity.count() as u64;
        let parity_readable = self.parity.0 & self.lost.0 == 0;
        let uncovered = |c: &usize| !self.covers(*c);
        if (0..k).all(|c| self.covers(c)) {
            return Some(WritePlan::Full);
        }
        let touched_lost = (0..k).any(|c| self.coverage[c].is_some() && self.lost.has(c));
        if self.parity.is_empty() && !touched_lost {
            return Some(WritePlan::Full);
        }
        let delta = self.trusted && !touched_lost && parity_readable && !self.geometry.mirrored();
        let rmw = delta.then(|| {
            let old: u64 = self.coverage.iter().flatten().map(|c| c.hi - c.lo).sum();
            old + live_parity * len
        });
        let rcw = (0..k)
            .filter(uncovered)
            .all(|c| !self.lost.has(c))
            .then(|| (0..k).filter(uncovered).count() as u64 * len);
        // As many columns as hold data, whichever they are.
        let readable = (0..k + m).filter(|&c| !self.lost.has(c)).count();
        // Where a start was forced, a further column that cannot be read is lost with what it tells
        // of the others: there none is read that need not be.
        let decodes = self.trusted && readable >= k && (self.synced || rmw.is_none());
        let decode = decodes.then_some(k as u64 * len);
        // Of those that read as much, the one that computes least.
        let plans = [
            (rcw, WritePlan::ReconstructWrite),
            (rmw, WritePlan::ReadModifyWrite),
            (decode, WritePlan::Decode),
        ];
        let possible = plans
            .into_iter()
            .filter_map(|(bytes, plan)| Some((bytes?, plan)));
        let least = possible.min_by_key(|&(bytes, _)| bytes);
        least.map(|(_, plan)| plan)
    }

    /// The columns that `plan` must read over the whole run (read-modify-write reads data columns
    /// over their coverage only).
    pub(crate) fn reads(&self, plan: WritePlan) -> Columns {
        let k = self.coverage.len();
        let mut columns = Columns::default();
        for c in 0..k {
            let wanted = match plan {
                WritePlan::Full => self.coverage[c].is_some_and(|v| !v.solid),
                WritePlan::ReadModifyWrite => self.coverage[c].is_some(),
                WritePlan::ReconstructWrite => !self.covers(c),
                WritePlan::Decode => !self.lost.has(c),
            };
            if wanted {
                columns.add(c);
            }
        }
        if plan == WritePlan::ReadModifyWrite {
            columns = columns.with(self.parity);
        }
        columns
    }
}

/// What an operation reads: column, first byte within the strip and byte after the last.
pub(crate) type Reads = List<(usize, u64, u64), 4>;

listed!((usize, u64, u64));

/// Buffers of one length.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extra {
    pub(crate) bytes: usize,
    pub(crate) count: usize,
}

/// How an operation is carried out, what it reads, and buffers wanted beyond those of the reads.
pub(crate) type Planned = (WritePlan, Reads, Extra);

pub(crate) fn available(width: usize, lost: Columns) -> List<usize, 16> {
    (0..width).filter(|&c| !lost.has(c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_format::Level;

    fn geometry(level: Level, width: usize, m: usize) -> Geometry {
        Geometry {
            level,
            groups: 1,
            per_row: 1,
            width,
            k: width - m,
            m,
            fixed: 0,
            strip: 4096,
            block: 512,
            band: 1,
            rows: 16,
            region_rows: 4,
            old_shape: None,
        }
    }

    /// All of a strip.
    const WHOLE: Coverage = Coverage {
        lo: 0,
        hi: 4096,
        solid: true,
    };

    fn one(k: usize, column: usize, lo: u64, hi: u64) -> Vec<Option<Coverage>> {
        let mut coverage = vec![None; k];
        coverage[column] = Some(Coverage {
            lo,
            hi,
            solid: true,
        });
        coverage
    }

    fn choose(
        g: &Geometry,
        coverage: &[Option<Coverage>],
        lost: u64,
        trusted: bool,
    ) -> Option<WritePlan> {
        let lo = coverage
            .iter()
            .flatten()
            .map(|c| c.lo)
            .min()
            .expect("written");
        let hi = coverage
            .iter()
            .flatten()
            .map(|c| c.hi)
            .max()
            .expect("written");
        let parity = Columns(((1 << g.width) - (1 << g.k)) & !lost);
        Facts {
            geometry: g,
            lo,
            hi,
            coverage,
            lost: Columns(lost),
            parity,
            trusted,
            synced: trusted,
        }
        .choose()
    }

    #[test]
    fn a_small_write_reads_what_is_least() {
        let wide = geometry(Level::Raid5, 9, 1);
        let narrow = geometry(Level::Raid5, 3, 1);
        assert_eq!(
            choose(&wide, &one(8, 2, 0, 512), 0, true),
            Some(WritePlan::ReadModifyWrite)
        );
        assert_eq!(
            choose(&narrow, &one(2, 1, 0, 512), 0, true),
            Some(WritePlan::ReconstructWrite)
        );
    }

    /// Bytes that a plan reads; a lost column is computed from as many as hold data.
    fn reads(facts: &Facts, plan: WritePlan) -> u64 {
        let len = facts.hi - facts.lo;
        let k = facts.coverage.len();
        let old = |c: usize| facts.coverage[c].map_or(0, |v| v.hi - v.lo);
        match plan {
            WritePlan::Decode => k as u64 * len,
            WritePlan::ReadModifyWrite | WritePlan::Full => {
                let columns = facts.reads(plan);
                let each = columns.each().map(|c| if c < k { old(c) } else { len });
                each.sum()
            }
            WritePlan::ReconstructWrite => facts.reads(plan).count() as u64 * len,
        }
    }

    /// Whether a plan gets by without the columns that are lost.
    fn possible(facts: &Facts, plan: WritePlan) -> bool {
        let all = facts.geometry.width - facts.lost.count();
        match plan {
            WritePlan::Decode => all >= facts.coverage.len(),
            _ => facts.reads(plan).each().all(|c| !facts.lost.has(c)),
        }
    }

    #[test]
    fn no_other_plan_reads_less_whatever_is_lost() {
        let shapes = [
            (Level::Raid5, 5, 1),
            (Level::Raid6, 6, 2),
            (Level::Raid7_3, 7, 3),
        ];
        for (level, width, m) in shapes {
            let g = geometry(level, width, m);
            let k = width - m;
            for (written, lost) in
                (1..1u64 << k).flat_map(|w| (0..1u64 << width).map(move |l| (w, l)))
            {
                // Whole columns, and a small piece of one of them.
                let smalls = (0..k).filter(|c| written >> c & 1 == 1).map(Some);
                for small in smalls.chain([None]) {
                    let cover = |c: usize| {
                        let (lo, hi) = (0, if small == Some(c) { 512 } else { 4096 });
                        let solid = true;
                        (written >> c & 1 == 1).then_some(Coverage { lo, hi, solid })
                    };
                    let coverage: Vec<Option<Coverage>> = (0..k).map(cover).collect();
                    // Of lost parities some have members: those that cannot be read only.
                    let parities = ((1 << width) - 1) ^ ((1 << k) - 1);
                    for (parity, trusted) in [
                        (parities & !lost, true),
                        (parities, true),
                        (parities & !lost, false),
                    ] {
                        holds_least(&Facts {
                            geometry: &g,
                            lo: 0,
                            hi: 4096,
                            coverage: &coverage,
                            lost: Columns(lost),
                            parity: Columns(parity),
                            trusted,
                            synced: trusted,
                        });
                    }
                }
            }
        }
    }

    /// No plan that is possible reads less than the one chosen, which is possible.
    fn holds_least(facts: &Facts) {
        let written = |c: usize| facts.coverage[c].is_some();
        let k = facts.coverage.len();
        let touched = (0..k).any(|c| written(c) && facts.lost.has(c));
        let plans = [
            WritePlan::ReconstructWrite,
            WritePlan::ReadModifyWrite,
            WritePlan::Decode,
        ];
        let fits = |plan: WritePlan| match plan {
            WritePlan::ReadModifyWrite => facts.trusted && !touched && possible(facts, plan),
            WritePlan::Decode => facts.trusted && possible(facts, plan),
            _ => possible(facts, plan),
        };
        let (lost, trusted) = (facts.lost.0, facts.trusted);
        let least = plans
            .into_iter()
            .filter(|&plan| fits(plan))
            .map(|plan| reads(facts, plan))
            .min();
        match facts.choose() {
            Some(plan) => {
                assert!(fits(plan), "{lost:b} {trusted}: {plan:?}");
                assert!(
                    reads(facts, plan) <= least.unwrap_or(0),
                    "{lost:b}: {plan:?}"
                );
            }
            None => assert_eq!(least, None, "{lost:b} {trusted}"),
        }
    }

    #[test]
    fn a_lost_column_that_is_not_written_is_computed_where_that_reads_less() {
        // Seven of eight data columns are written whole: old data of seven and three parities are
        // ten columns, any eight tell the lost one.
        let g = geometry(Level::Raid7_3, 11, 3);
        let mut coverage = vec![Some(WHOLE); 8];
        coverage[5] = None;
        assert_eq!(choose(&g, &coverage, 1 << 5, true), Some(WritePlan::Decode));
        coverage[1..5].fill(None);
        let small = choose(&g, &coverage, 1 << 5, true);
        assert_eq!(small, Some(WritePlan::ReadModifyWrite));
    }

    #[test]
    fn where_only_a_forced_start_vouches_for_parity_no_further_column_is_read() {
        let g = geometry(Level::Raid7_3, 11, 3);
        let mut coverage = vec![Some(WHOLE); 8];
        (coverage[5], coverage[6]) = (None, None);
        let plan = |synced, lost| {
            let facts = Facts {
                geometry: &g,
                lo: 0,
                hi: 4096,
                coverage: &coverage,
                lost: Columns(lost),
                parity: Columns(0b111 << 8),
                trusted: true,
                synced,
            };
            facts.choose()
        };
        // Six written and three parities, or any eight, among them column 6.
        assert_eq!(plan(true, 1 << 5), Some(WritePlan::Decode));
        assert_eq!(plan(false, 1 << 5), Some(WritePlan::ReadModifyWrite));
        // What is written is lost: there is no other way.
        assert_eq!(plan(false, 0b110_0000 | 1), Some(WritePlan::Decode));
    }

    #[test]
    fn untrusted_parity_is_never_built_on() {
        let g = geometry(Level::Raid5, 9, 1);
        assert_eq!(
            choose(&g, &one(8, 2, 0, 512), 0, false),
            Some(WritePlan::ReconstructWrite)
        );
        // Another data column is lost: only parity could tell it, and parity is not to be trusted.
        assert_eq!(choose(&g, &one(8, 2, 0, 512), 1 << 5, false), None);
    }

    #[test]
    fn a_lost_column_under_a_write_needs_the_others() {
        let g = geometry(Level::Raid6, 8, 2);
        assert_eq!(
            choose(&g, &one(6, 2, 0, 512), 1 << 2, true),
            Some(WritePlan::ReconstructWrite)
        );
        assert_eq!(
            choose(&g, &one(6, 2, 0, 512), 1 << 2 | 1 << 3, true),
            Some(WritePlan::Decode)
        );
        assert_eq!(
            choose(&g, &one(6, 2, 0, 512), (1 << 3) | (1 << 4), true),
            Some(WritePlan::ReadModifyWrite)
        );
        assert_eq!(choose(&g, &one(6, 2, 0, 512), 0b11100, true), None);
    }
}

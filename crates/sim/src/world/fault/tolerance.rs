//! Which faults are fair: what the level must survive at this stage of the project.
//!
//! Rules:
//! * In every group at most m members are lost, being rebuilt, damaged in their metadata (see
//!   `metadata`), or unreadable in the same stripe;
//!   unless blocks may be lost ([`Rules::lose_blocks`]): then unreadable sectors do not count, and
//!   the oracle is told which blocks may answer an error.
//! * Where the stripe log does not tell of every write under way ([`Rules::write_hole_closed`]), an
//!   unclean stop of a parity level must not coincide with a loss: neither may the array be
//!   degraded when it comes (unless nothing is being written), nor may a member be lost until the
//!   resync after it is done. Regions that wait for a resync have no redundancy in any case.
//! * Mirrors may be cut off while degraded. Whether they may lose a member while they resync is the
//!   plan's choice; if they may, readers settle nothing meanwhile.
//!
//! Deliberately absent: what the engine ought to do about a fault.

use std::ops::Range;

/// What is demanded beyond the level's tolerance.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The stripe log is there: unclean stops may come together with losses.
    pub write_hole_closed: bool,
    /// Mirrors may lose members while they resync.
    pub lose_in_resync: bool,
    /// Sectors may become unreadable beyond the level's tolerance: what they held is lost.
    pub lose_blocks: bool,
    /// Read errors fail a member, so unreadable sectors of two members count together even in
    /// different stripes.
    pub errors_fail_members: bool,
}

/// What the tolerance rules need of a slot.
#[derive(Clone, Debug, Default)]
pub struct Condition {
    /// Its member is in sync, there, and not doomed.
    pub intact: bool,
    /// Rows in which it has unreadable sectors.
    pub spoiled_rows: Vec<u64>,
    /// Something of its metadata is damaged: as far as what else may be lost goes, it is lost.
    pub damaged: bool,
}

/// The array as far as faults go.
#[derive(Clone, Debug, Default)]
pub struct Situation {
    /// One for each slot.
    pub slots: Vec<Condition>,
    /// Redundancy is not yet true everywhere after an unclean stop.
    pub resyncing: bool,
    /// Writes may be under way.
    pub writing: bool,
}

/// The level's tolerance.
#[derive(Clone, Debug)]
pub struct Tolerance {
    /// Slots of each group; of both shapes, and of one that may come, while data moves.
    pub groups: Vec<Range<usize>>,
    /// Members of a group that may be lost.
    pub tolerated: usize,
    /// Copies, no parity.
    pub mirrored: bool,
    /// The rules.
    pub rules: Rules,
}

impl Tolerance {
    /// Does the array have parity that an unclean stop can leave untrue?
    fn has_parity(&self) -> bool {
        !self.mirrored && self.tolerated > 0
    }

    /// The groups that a slot is in.
    fn groups_of(&self, slot: usize) -> impl Iterator<Item = Range<usize>> {
        let groups = self.groups.iter().cloned();
        groups.filter(move |group| group.contains(&slot))
    }

    /// Losses in the worst group of `slot` if `slot` were lost too, in the worst stripe.
    fn losses_with(&self, situation: &Situation, slot: usize) -> usize {
        let losses = |group| self.losses_in(situation, slot, group);
        self.groups_of(slot).map(losses).max().unwrap_or(1)
    }

    fn losses_in(&self, situation: &Situation, slot: usize, group: Range<usize>) -> usize {
        // Of a shape that may come there may be slots that are not there yet.
        let others = group.filter(|&other| other != slot && other < situation.slots.len());
        let (mut lost, mut spoiled) = (1, Vec::new());
        let mut spoiled_members = 0;
        for condition in others.map(|other| &situation.slots[other]) {
            if !condition.intact || condition.damaged {
                lost += 1;
            } else if !condition.spoiled_rows.is_empty() {
                spoiled_members += 1;
                spoiled.extend_from_slice(&condition.spoiled_rows);
            }
        }
        if self.rules.errors_fail_members {
            return lost + spoiled_members;
        }
        if self.rules.lose_blocks {
            return lost;
        }
        spoiled.sort_unstable();
        let worst = spoiled
            .chunk_by(|a, b| a == b)
            .map(<[u64]>::len)
            .max()
            .unwrap_or(0);
        lost + worst
    }

    fn resync_permits_loss(&self, situation: &Situation) -> bool {
        match (situation.resyncing, self.mirrored) {
            (false, _) => true,
            (true, true) => self.rules.lose_in_resync,
            (true, false) => false,
        }
    }

    /// May the member in `slot` be lost now?
    pub fn may_lose(&self, situation: &Situation, slot: usize) -> bool {
        situation.slots[slot].intact
            && self.resync_permits_loss(situation)
            && self.losses_with(situation, slot) <= self.tolerated
    }

    /// May sectors of `slot` become unreadable in `rows`?
    pub fn may_spoil(&self, situation: &Situation, slot: usize, rows: &[u64]) -> bool {
        if self.rules.lose_blocks && !self.rules.errors_fail_members {
            return situation.slots[slot].intact;
        }
        if !situation.slots[slot].intact || !self.resync_permits_loss(situation) {
            return false;
        }
        if self.rules.errors_fail_members {
            return self.losses_with(situation, slot) <= self.tolerated;
        }
        self.groups_of(slot).all(|group| {
            let others = group.filter(|&other| other != slot);
            let others = || {
                others
                    .clone()
                    .filter_map(|other| situation.slots.get(other))
            };
            let lost = others().filter(|other| !other.intact || other.damaged);
            let lost = lost.count();
            rows.iter().all(|row| {
                let spoiled =
                    |c: &&Condition| c.intact && !c.damaged && c.spoiled_rows.contains(row);
                1 + lost + others().filter(spoiled).count() <= self.tolerated
            })
        })
    }

    /// May the process die now, by a power cut or a kill?
    pub fn may_crash(&self, situation: &Situation) -> bool {
        let readable = |c: &Condition| self.rules.lose_blocks || c.spoiled_rows.is_empty();
        let whole = |c: &Condition| c.intact && !c.damaged && readable(c);
        let whole = situation.slots.iter().all(whole);
        let open = situation.resyncing || (situation.writing && !self.rules.write_hole_closed);
        !self.has_parity() || whole || !open
    }

    /// After an unclean stop (`calm` if redundancy is true, or the log makes it so): may members be
    /// missing at the next start?
    pub fn may_start_without(&self, calm: bool) -> bool {
        match (calm, self.mirrored) {
            (true, _) => true,
            (false, true) => self.rules.lose_in_resync,
            (false, false) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules {
        write_hole_closed: false,
        lose_in_resync: false,
        lose_blocks: false,
        errors_fail_members: false,
    };

    /// Of four.
    fn one_group() -> Vec<Range<usize>> {
        std::iter::once(0..4).collect()
    }

    fn whole(slots: usize) -> Situation {
        let intact = Condition {
            intact: true,
            ..Condition::default()
        };
        Situation {
            slots: vec![intact; slots],
            resyncing: false,
            writing: true,
        }
    }

    #[test]
    fn each_group_may_lose_what_the_level_tolerates_and_no_more() {
        let tolerance = Tolerance {
            groups: vec![0..3, 3..6],
            tolerated: 1,
            mirrored: false,
            rules: RULES,
        };
        let mut situation = whole(6);
        assert!(tolerance.may_lose(&situation, 0));
        situation.slots[1].intact = false;
        assert!(!tolerance.may_lose(&situation, 0));
        assert!(tolerance.may_lose(&situation, 3));
    }

    #[test]
    fn while_data_moves_to_other_groups_both_shapes_must_survive() {
        let tolerance = Tolerance {
            groups: vec![0..3, 3..6, 0..5],
            tolerated: 1,
            mirrored: false,
            rules: RULES,
        };
        let mut situation = whole(6);
        situation.slots[1].intact = false;
        // Another group of the new shape, and the same one of the old.
        assert!(!tolerance.may_lose(&situation, 4) && !tolerance.may_spoil(&situation, 4, &[1]));
        assert!(tolerance.may_lose(&situation, 5) && tolerance.may_spoil(&situation, 5, &[1]));
    }

    #[test]
    fn unreadable_sectors_count_in_their_row_only() {
        let tolerance = Tolerance {
            groups: one_group(),
            tolerated: 1,
            mirrored: false,
            rules: RULES,
        };
        let mut situation = whole(4);
        situation.slots[2].spoiled_rows = vec![7];
        assert!(!tolerance.may_spoil(&situation, 0, &[7]));
        assert!(tolerance.may_spoil(&situation, 0, &[8]));
        assert!(!tolerance.may_lose(&situation, 0));
    }

    #[test]
    fn a_member_with_damaged_metadata_counts_as_lost_to_the_others() {
        let rules = Rules {
            lose_blocks: true,
            ..RULES
        };
        let mut tolerance = Tolerance {
            groups: one_group(),
            tolerated: 1,
            mirrored: false,
            rules,
        };
        let mut situation = whole(4);
        situation.slots[2].damaged = true;
        assert!(!tolerance.may_lose(&situation, 0) && tolerance.may_lose(&situation, 2));
        assert!(tolerance.may_crash(&whole(4)) && !tolerance.may_crash(&situation));
        tolerance.rules.write_hole_closed = true;
        assert!(tolerance.may_crash(&situation));
        tolerance.rules.lose_blocks = false;
        assert!(
            !tolerance.may_spoil(&situation, 0, &[3]) && tolerance.may_spoil(&situation, 2, &[3])
        );
    }

    #[test]
    fn where_blocks_may_be_lost_unreadable_sectors_do_not_count() {
        let rules = Rules {
            lose_blocks: true,
            ..RULES
        };
        let mut tolerance = Tolerance {
            groups: one_group(),
            tolerated: 1,
            mirrored: false,
            rules,
        };
        let mut situation = whole(4);
        situation.slots[2].spoiled_rows = vec![7];
        assert!(tolerance.may_spoil(&situation, 0, &[7]));
        assert!(tolerance.may_lose(&situation, 0));
        // Unless its read errors may take the member out.
        tolerance.rules.errors_fail_members = true;
        assert!(!tolerance.may_lose(&situation, 0) && !tolerance.may_spoil(&situation, 0, &[8]));
    }

    #[test]
    fn a_degraded_parity_array_is_not_cut_off_while_it_writes() {
        let mut tolerance = Tolerance {
            groups: one_group(),
            tolerated: 2,
            mirrored: false,
            rules: RULES,
        };
        let mut situation = whole(4);
        assert!(tolerance.may_crash(&situation));
        situation.slots[0].intact = false;
        assert!(!tolerance.may_crash(&situation));
        situation.writing = false;
        assert!(tolerance.may_crash(&situation));
        situation.writing = true;
        tolerance.rules.write_hole_closed = true;
        assert!(tolerance.may_crash(&situation));
    }
}

//! What a seed ends with, if it goes beyond the tolerance.
//!
//! Invariant: a chance of its own, so that what else a seed stands for stays.
//!
//! Deliberately absent: how it strikes (`world::life::beyond_tolerance`).

use crate::prng::{Prng, Purpose};

/// What goes beyond the tolerance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disaster {
    /// Too many members vanish at once.
    AtOnce,
    /// One after another.
    OneByOne,
    /// In the same instant as the power.
    WithPower,
    /// While a member is being rebuilt or replaced.
    Rebuilding,
    /// While the stripe log is being replayed.
    Replaying,
    /// Sectors of more members than parity covers, in the same rows.
    Sectors,
    /// Superblocks, maps or lists of too many members are destroyed.
    Metadata,
    /// Log areas are destroyed.
    Logs,
    /// Two parts of the array are started apart.
    Parted,
    /// It was writing without a log, the power goes, and with it members.
    Unlogged,
}

impl Disaster {
    const ALL: [Disaster; 10] = [
        Disaster::AtOnce,
        Disaster::OneByOne,
        Disaster::WithPower,
        Disaster::Rebuilding,
        Disaster::Replaying,
        Disaster::Sectors,
        Disaster::Metadata,
        Disaster::Logs,
        Disaster::Parted,
        Disaster::Unlogged,
    ];
    const WEIGHTS: [u32; 10] = [3, 3, 3, 3, 4, 3, 2, 2, 3, 4];

    /// What a seed ends with, if it goes beyond the tolerance.
    pub(crate) fn draw(seed: u64) -> Option<Disaster> {
        let mut rng = Prng::new(seed, Purpose::Beyond);
        let drawn = Disaster::ALL[rng.weighted(&Disaster::WEIGHTS)];
        rng.one_in(8).then_some(drawn)
    }
}

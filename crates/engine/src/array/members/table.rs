//! The membership: one table of what fills each slot, what waits as a spare, and what the
//! superblock says of them.
//!
//! The superblock's rows and spares are derived from it when one is written or shown
//! ([`Table::fill`]): between that the array's superblock has none.
//!
//! Invariants (checked by [`Array::invariants`](crate::array::Array::invariants)):
//! * A device has one place, and every device that has one is known.
//! * The row of a slot says what serves it.

use std::collections::BTreeMap;

use strake_format::*;

use crate::array::{Member, SlotUse};
use crate::geometry::Geometry;
use crate::units::*;

/// See the module.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) devices: BTreeMap<DeviceId, Member>,
    pub(crate) slots: Vec<SlotUse>,
    /// What the superblock says of each slot.
    pub(crate) records: Vec<SlotRecord>,
    /// Spares that wait.
    pub(crate) spares: Vec<DeviceId>,
    /// What the superblock lists as spares: these, and what is being filled for a member that is
    /// still in sync.
    pub(crate) listed: Vec<MemberUuid>,
    /// Devices that have no slot yet and get the map and the list.
    pub(crate) entering: Vec<DeviceId>,
}

impl Table {
    /// Takes the rows and the spares out of a superblock.
    pub(crate) fn of(
        sb: &mut Superblock,
        devices: BTreeMap<DeviceId, Member>,
        slots: Vec<SlotUse>,
        spares: Vec<DeviceId>,
    ) -> Table {
        Table {
            devices,
            slots,
            records: std::mem::take(&mut sb.slots),
            spares,
            listed: std::mem::take(&mut sb.spares),
            entering: Vec::new(),
        }
    }

    /// The superblock with the rows and the spares.
    pub(crate) fn fill(&self, sb: &Superblock) -> Superblock {
        Superblock {
            slots: self.records.clone(),
            spares: self.listed.clone(),
            ..sb.clone()
        }
    }

    /// The rows and the spares are those of this superblock from now on, which keeps none.
    pub(crate) fn take(&mut self, sb: &mut Superblock) {
        self.records = std::mem::take(&mut sb.slots);
        self.listed = std::mem::take(&mut sb.spares);
    }

    /// Devices that carry data and metadata of the array: in sync, being rebuilt, and replaced but
    /// not durably so.
    pub(crate) fn live(&self) -> Vec<DeviceId> {
        self.slots
            .iter()
            .flat_map(|s| [s.current, s.incoming, s.outgoing])
            .flatten()
            .chain(self.entering.iter().copied())
            .collect()
    }

    pub(crate) fn slot_of(&self, device: DeviceId) -> Option<Slot> {
        let holds = |s: &SlotUse| s.current == Some(device) || s.incoming == Some(device);
        self.slots.iter().position(holds).map(|at| Slot(at as u8))
    }

    /// The slot that this device held until another took it, which is not durable yet.
    pub(crate) fn outgoing_in(&self, device: DeviceId) -> Option<usize> {
        let goes = |slot: &SlotUse| slot.outgoing == Some(device);
        self.slots.iter().position(goes)
    }

    /// Every slot has a member in sync.
    pub(crate) fn whole(&self) -> bool {
        self.slots.iter().all(|slot| slot.current.is_some())
    }

    /// Slots of the group of `slot` that have no member in sync: of the worse one while data moves
    /// to other groups.
    pub(crate) fn lost_in_group(&self, geometry: &Geometry, slot: Slot) -> usize {
        let groups = geometry.neighbours();
        let groups = groups.filter(|group| group.contains(&slot.index()));
        let lost = |group: std::ops::Range<usize>| {
            let slots = &self.slots[group];
            slots.iter().filter(|s| s.current.is_none()).count()
        };
        groups.map(lost).max().unwrap_or(0)
    }
}

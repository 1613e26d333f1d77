//! The mapping from units to places in erase blocks, and greedy collection.
//!
//! Invariants: a unit has one place or none; `valid` of a block counts the units that are there; a
//! block is free, open (an append point of a handle fills it) or closed, and every closed block is
//! in the list of its stale places; at least `RESERVE` blocks are free between two writes.
//!
//! The first block is shorter than the others where the room is no whole number of blocks, so that
//! the over-provisioning is exact.

/// A unit without a place, and a place without a unit.
const NONE: u32 = u32::MAX;
/// Free blocks that a write (one) and a collection (two, if the first is the short one) need.
const RESERVE: usize = 3;

/// An open block, and how far it is filled.
#[derive(Clone, Copy)]
struct Open {
    block: u32,
    used: u32,
}

/// Where a handle appends: what the host writes, and what collections move.
#[derive(Clone, Copy, Default)]
struct Append {
    host: Option<Open>,
    moved: Option<Open>,
}

/// Closed blocks with the same number of stale places, as a list through `next` and `before`.
struct Lists {
    heads: Vec<u32>,
    next: Vec<u32>,
    before: Vec<u32>,
}

impl Lists {
    fn insert(&mut self, block: u32, stale: u32) {
        let head = self.heads[stale as usize];
        self.next[block as usize] = head;
        self.before[block as usize] = NONE;
        if head != NONE {
            self.before[head as usize] = block;
        }
        self.heads[stale as usize] = block;
    }

    fn remove(&mut self, block: u32, stale: u32) {
        let (next, before) = (self.next[block as usize], self.before[block as usize]);
        match before {
            NONE => self.heads[stale as usize] = next,
            before => self.next[before as usize] = next,
        }
        if next != NONE {
            self.before[next as usize] = before;
        }
    }
}

/// See the module.
pub(crate) struct Mapping {
    per_block: u32,
    /// Places that the first block lacks.
    short: u32,
    /// Unit → place.
    place: Vec<u32>,
    /// Place → unit.
    unit: Vec<u32>,
    valid: Vec<u32>,
    /// The handle that filled the block.
    owner: Vec<u8>,
    closed: Vec<bool>,
    lists: Lists,
    free: Vec<u32>,
    appends: Vec<Append>,
}

/// What a write of a unit made necessary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Units that were moved.
    pub(crate) moved: u64,
    /// Blocks that were erased.
    pub(crate) erased: u64,
}

impl Mapping {
    /// `spare` units beyond `units`; blocks for append points and collections come on top.
    pub(crate) fn new(units: u32, spare: u64, per_block: u32, handles: u8) -> Mapping {
        let size = u64::from(per_block);
        // When a collection begins, one reserved block has just become the host's open one, and of
        // each other open block half is empty on average.
        let open = (u64::from(handles) * 2 - 1) * size / 2;
        let physical = u64::from(units) + spare + open;
        let blocks = physical.div_ceil(size) as usize + RESERVE;
        let places = blocks * per_block as usize;
        Mapping {
            per_block,
            short: (physical.next_multiple_of(size) - physical) as u32,
            place: vec![NONE; units as usize],
            unit: vec![NONE; places],
            valid: vec![0; blocks],
            owner: vec![0; blocks],
            closed: vec![false; blocks],
            lists: Lists {
                heads: vec![NONE; per_block as usize + 1],
                next: vec![NONE; blocks],
                before: vec![NONE; blocks],
            },
            free: (0..blocks as u32).rev().collect(),
            appends: vec![Append::default(); usize::from(handles)],
        }
    }

    pub(crate) fn units(&self) -> u32 {
        self.place.len() as u32
    }

    fn size(&self, block: u32) -> u32 {
        match block {
            0 => self.per_block - self.short,
            _ => self.per_block,
        }
    }

    fn stale(&self, block: u32) -> u32 {
        self.size(block) - self.valid[block as usize]
    }

    /// Whether a unit holds something.
    pub(crate) fn has(&self, unit: u32) -> bool {
        self.place[unit as usize] != NONE
    }

    /// Programs a unit by a handle's append point, and collects until enough blocks are free.
    /// Calls `moved` with the handle of each unit that a collection moves.
    pub(crate) fn program(&mut self, unit: u32, handle: u8, mut moved: impl FnMut(u8)) -> Cost {
        self.unmap(unit);
        self.put(unit, handle, false);
        let mut cost = Cost::default();
        while self.free.len() < RESERVE {
            self.collect(&mut cost, &mut moved);
        }
        cost
    }

    /// The unit holds nothing any more.
    pub(crate) fn unmap(&mut self, unit: u32) {
        let place = std::mem::replace(&mut self.place[unit as usize], NONE);
        if place == NONE {
            return;
        }
        self.unit[place as usize] = NONE;
        let block = place / self.per_block;
        let stale = self.stale(block);
        self.valid[block as usize] -= 1;
        if self.closed[block as usize] {
            self.lists.remove(block, stale);
            self.lists.insert(block, stale + 1);
        }
    }

    fn put(&mut self, unit: u32, handle: u8, is_move: bool) {
        let append = &mut self.appends[usize::from(handle)];
        let slot = match is_move {
            true => &mut append.moved,
            false => &mut append.host,
        };
        let open = slot.get_or_insert_with(|| {
            let block = self.free.pop().expect("a collection keeps blocks free");
            self.owner[block as usize] = handle;
            Open { block, used: 0 }
        });
        let place = open.block * self.per_block + open.used;
        open.used += 1;
        self.place[unit as usize] = place;
        self.unit[place as usize] = unit;
        self.valid[open.block as usize] += 1;
        let Open { block, used } = *open;
        let short = if block == 0 { self.short } else { 0 };
        if used == self.per_block - short {
            *slot = None;
            self.closed[block as usize] = true;
            let stale = self.stale(block);
            self.lists.insert(block, stale);
        }
    }

    /// Moves what is valid in the closed block that has most stale places, and erases it.
    fn collect(&mut self, cost: &mut Cost, moved: &mut impl FnMut(u8)) {
        let most = self.lists.heads.iter().rposition(|head| *head != NONE);
        let stale = most.expect("some block is closed where none is free") as u32;
        assert!(stale > 0, "the drive has room beyond its units");
        let block = self.lists.heads[stale as usize];
        self.lists.remove(block, stale);
        self.closed[block as usize] = false;
        let handle = self.owner[block as usize];
        let first = block * self.per_block;
        for place in first..first + self.per_block {
            let unit = self.unit[place as usize];
            if unit == NONE {
                continue;
            }
            self.unit[place as usize] = NONE;
            self.valid[block as usize] -= 1;
            self.put(unit, handle, true);
            cost.moved += 1;
            moved(handle);
        }
        self.free.push(block);
        cost.erased += 1;
    }

    /// Every invariant of the module, counted anew.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        for (unit, place) in self.place.iter().enumerate() {
            if *place != NONE {
                assert_eq!(self.unit[*place as usize] as usize, unit);
            }
        }
        for (block, places) in self.unit.chunks(self.per_block as usize).enumerate() {
            let valid = places.iter().filter(|unit| **unit != NONE).count();
            assert_eq!(valid, self.valid[block] as usize);
        }
        for (stale, head) in self.lists.heads.iter().enumerate() {
            let mut at = *head;
            while at != NONE {
                assert!(self.closed[at as usize]);
                assert_eq!(self.stale(at) as usize, stale);
                at = self.lists.next[at as usize];
            }
        }
        assert!(self.free.len() >= RESERVE);
    }
}

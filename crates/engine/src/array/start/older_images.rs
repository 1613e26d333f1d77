//! Members that are found and not used: why, in words and as a cause for events.
//!
//! Invariant: what is an image from before is told from what a member was last by superblocks
//! (`past`) and, where these are the same, by the region map (RFD 19).
//!
//! Deliberately absent: what becomes of the slot (`assemble`).

use strake_format::*;

use crate::array::metadata::superblocks::in_sync;
use crate::array::regions::last_whole;
use crate::array::start::assemble::heard;
use crate::canary::{self, Canary};
use crate::proto::*;
use crate::provision::limits;

impl Aside {
    /// Why each of these would not be used if all of them are found when the array starts; of what
    /// is not believed anyway it says nothing that counts.
    pub fn of_each(found: &[Found], selection: &Selection) -> Vec<Option<Aside>> {
        let table = &found[selection.authority].superblock;
        let had = map_had(found, selection);
        let each = found.iter();
        each.map(|one| Aside::of(one, table, &had, true)).collect()
    }

    /// Why a member that carries this, or would be believed (`serves`), is not used.
    pub(crate) fn of(found: &Found, table: &Superblock, had: &Had, serves: bool) -> Option<Aside> {
        let own = &found.superblock;
        match past(own, table) {
            _ if canary::hit(Canary::PastIgnored) => {}
            Past::Last => {}
            past => return Some(Aside::Past(past)),
        }
        let older = older_map(found, table, &had.in_sync);
        if let Some(aside) = older.filter(|_| !canary::hit(Canary::PastIgnored)) {
            return Some(aside);
        }
        let older = older_kept(found, table, &had.whole);
        if let Some(aside) = older.filter(|_| !canary::hit(Canary::OlderMapReturns)) {
            return Some(aside);
        }
        // Of one that never had both copies nothing counts yet.
        let had_both = heard(table, own.member) > Generation(0);
        let emptied = found.emptied.filter(|_| had_both);
        if let Some(offset) = emptied.filter(|_| !canary::hit(Canary::EmptiedBelieved)) {
            return Some(Aside::Emptied { offset });
        }
        match limits::layout_on(table, &found.info) {
            Err(CommandError::BlockSize { has, needs }) => Some(Aside::BlockSize { has, needs }),
            Err(CommandError::TooSmall { has, needs }) => Some(Aside::TooSmall { has, needs }),
            _ if serves => None,
            _ => Some(Aside::Missed { epoch: own.epoch }),
        }
    }
}

/// Of each page of the region map versions that members had, as others show.
#[derive(Debug, Default)]
pub(crate) struct Had {
    /// That every member in sync had: no version is written before every member that is in sync has
    /// the one before.
    in_sync: Vec<u64>,
    /// That every member had when the array was last whole: see `regions::last_whole`.
    whole: Vec<u64>,
}

pub(crate) fn map_had(found: &[Found], selection: &Selection) -> Had {
    let table = &found[selection.authority].superblock;
    let believed = selection.slots.iter().filter_map(|finding| match finding {
        Finding::Believed(index) => Some(&found[*index]),
        _ => None,
    });
    let of_now =
        |f: &&Found| is_in_sync(&f.superblock, table) && past(&f.superblock, table) == Past::Last;
    let mut newest: Vec<Option<&MapPage>> = vec![None; table.layout.map_pages as usize];
    for found in believed.filter(of_now) {
        for (newest, page) in newest.iter_mut().zip(&found.map) {
            let both = newest.iter().copied().chain(page);
            *newest = both.max_by_key(|page| page.sequence);
        }
    }
    let before = |page: &Option<&MapPage>| page.map_or(0, |page| page.sequence.saturating_sub(1));
    let whole = |page: &Option<&MapPage>| page.map_or(0, |page| last_whole::whole_at(page, table));
    Had {
        in_sync: newest.iter().map(before).collect(),
        whole: newest.iter().map(whole).collect(),
    }
}

/// A member that was away, and would come back by what it missed, is older than the member was.
fn older_kept(found: &Found, table: &Superblock, had: &[u64]) -> Option<Aside> {
    let slot = table.slot_of(found.superblock.member)?;
    let row = table.slot(slot)?;
    if !row.kept {
        return None;
    }
    let whole = |lack: &Lack| found.map_whole.get(lack.page as usize) == Some(&true);
    let mut all = lacks(&found.map, had);
    let shown = lacks(&found.map, had).find(|lack| whole(lack));
    if let Some(Lack { page, has, had }) = shown {
        let has = has.unwrap_or(0);
        return Some(Aside::OlderMap { page, has, had });
    }
    // One that was on its way back has pages that a power cut may have torn.
    let out = !row.state.is_live();
    let damaged = all.next().filter(|_| out);
    damaged.map(|Lack { page, had, .. }| Aside::MapDamaged { page, had })
}

/// The table calls this member in sync, and it knows of no other.
fn is_in_sync(own: &Superblock, table: &Superblock) -> bool {
    own.epoch == table.epoch && in_sync(table).any(|member| member == Some(own.member))
}

/// The region map of a member in sync is older than what it had.
fn older_map(found: &Found, table: &Superblock, had: &[u64]) -> Option<Aside> {
    if !is_in_sync(&found.superblock, table) {
        return None;
    }
    let pages = found.map.iter().zip(&found.map_whole).zip(had);
    (0..)
        .zip(pages)
        .find_map(|(page, ((newest, whole), &had))| {
            let has = newest.as_ref()?.sequence;
            (*whole && has < had).then_some(Aside::OlderMap { page, has, had })
        })
}

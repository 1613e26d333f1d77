//! Which version of each page of the region map every member had when the array was last whole:
//! what a member that was away must show, lest it be an older image of the member (RFD 19).
//!
//! Regions that are not quiet when a member leaves are stale from then on, so of what it holds only
//! regions that are Clean then are believed when it comes back. Such a region became Clean by a
//! version of its page that every member had. An image from before lacks what was written in the
//! region after it was taken only if it lacks that version, too.
//!
//! Nothing is written for it while the array is whole: no version of a page is written before every
//! member has the one before. What is written while a slot has no member in sync says which version
//! that was, as of the leave. A page that was not written since the leave was quiet then: its
//! newest version is the one.
//!
//! Invariants:
//! * The version that counts is frozen from the leave of the first member until every slot has one
//!   in sync.
//! * A page with a version in flight when a member left is written again at once: nothing else
//!   would record that the member may lack that version.
//! * Pages that say it are written only when superblocks that announce them are durable, and these
//!   do until no newest page says it: a program that does not know such pages would take them for
//!   damaged.
//!
//! Deliberately absent: members that are in sync to the end (`start::older_images`: a power cut
//! leaves them what it does).

use strake_format::{MapPage, SlotState, Superblock};

use crate::array::Array;
use crate::array::regions::{Map, Page};

/// Which version of a page every member had when the array was last whole, by the newest version
/// that is found, and the table that is believed; 0 if that is not known.
pub(crate) fn whole_at(page: &MapPage, table: &Superblock) -> u64 {
    if page.whole_at > 0 {
        return page.whole_at;
    }
    let out = table.slots.iter().filter(|r| r.state != SlotState::InSync);
    match out.map(|row| row.since).min() {
        // A power cut may have come before every member had it.
        None => page.sequence.saturating_sub(1),
        Some(left) if page.epoch < left => page.sequence,
        // By a program that does not say it.
        Some(_) => 0,
    }
}

impl Page {
    /// What the next version says: nothing while the array is whole.
    pub(crate) fn says(&self, whole: bool) -> u64 {
        if whole { 0 } else { self.whole_at }
    }
}

impl Map {
    /// The version of each page that every member had when the array was last whole.
    pub(crate) fn whole_at(&self) -> Vec<u64> {
        self.pages.iter().map(|page| page.whole_at).collect()
    }

    /// No page's newest version says what every member had, and none is on its way that does.
    fn says_no_whole_at(&self) -> bool {
        self.pages
            .iter()
            .all(|page| page.pending == 0 && !page.says_whole_at)
    }

    /// A member leaves: what is on its way it may lack.
    fn note_on_the_way(&mut self) {
        let on_the_way = |page: &&mut Page| page.pending > 0 && !page.says_whole_at;
        for page in self.pages.iter_mut().filter(on_the_way) {
            page.dirty = true;
        }
    }
}

impl Array {
    /// A member leaves, or slots come that have none: what every member had is said from now on.
    pub(crate) fn freeze_whole_at(&mut self) {
        if self.maps_are_found() {
            self.map.note_on_the_way();
        }
        self.sb.map_whole_at = true;
    }

    /// Every member in sync has the newest version of a page, and one that leaves now is found with
    /// it. While the map moves to its new places, superblocks tell of the old ones, and so of the
    /// version before.
    pub(crate) fn has_everywhere(&self, page: &Page) -> bool {
        self.table.whole() && page.lagging.is_empty() && self.maps_are_found()
    }

    /// Pages are written where superblocks say.
    fn maps_are_found(&self) -> bool {
        let mut members = self.table.devices().map(|(_, member)| member);
        members.all(|member| member.places == member.layout)
    }

    /// What superblocks announce follows what pages say.
    pub(crate) fn note_whole_at(&mut self) {
        let settled = self.table.whole() && !self.persist.view_due;
        if self.sb.map_whole_at && settled && self.map.says_no_whole_at() {
            self.sb.map_whole_at = false;
        }
    }
}

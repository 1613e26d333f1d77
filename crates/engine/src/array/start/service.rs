//! An array goes into service: its first superblocks.

use crate::array::{Array, Stage};

impl Array {
    /// Nothing is left to be replayed: the first superblocks.
    pub(crate) fn begin_service(&mut self) {
        self.stage = Stage::Starting;
        self.sb.clean = false;
        self.sb.covered = self.logging() && !self.map.unrecorded();
        self.sb.log_base = self.log_coverage.log_from;
        self.sb.numbers_noted = false;
        // Writes may be under way from now on.
        self.sb.accepted = 0;
        self.sb.undecided |= self.map.undecided().next().is_some();
        self.persist.seal(self.sb.generation);
        // Regions may be unmapped by the believed frontier that counted by another: the map keeps
        // them until no superblock has that other frontier.
        self.persist.view_due |= self.sb.moving.is_some();
        self.rewrite_map();
        self.unreadable.rewrite();
        self.persist.touch();
    }
}

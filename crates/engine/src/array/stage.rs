//! How far the array has come, and what follows from that for everything else.
//!
//! What stands here is asked by all of the array, and asks its parts but calls none of its other
//! methods.

use std::ops::Range;

use strake_format::Superblock;

use crate::array::{Array, SlotUse};
use crate::proto::*;

/// How far the array has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A window of data that was moving is written again.
    Resuming,
    /// The stripe log is being replayed.
    Recovering,
    /// The first superblocks are being written.
    Starting,
    Serving,
    /// Asked to stop: closing regions.
    Stopping,
    /// The last superblocks are being written.
    Closing,
    Stopped,
    /// More members lost than the level survives.
    Failed,
}

impl Array {
    /// The superblock as it shall be on the members.
    pub(crate) fn superblock(&self) -> Superblock {
        self.table.fill(&self.sb)
    }

    /// The array cannot go on: nothing is written any more, and everything is left as it is. The
    /// next turn of [`Array::converge`] says so.
    pub(crate) fn fail(&mut self, cause: FailCause) {
        self.stage = Stage::Failed;
        self.failing = Some(cause);
    }

    /// The membership changed: new epoch, durable first, then a new view.
    pub(crate) fn membership_changed(&mut self) {
        self.table.advance(&mut self.sb);
        self.persist.view_due = true;
        self.jobs.retry_blocked();
        self.persist.touch();
    }

    pub(crate) fn state(&self) -> ArrayState {
        match self.stage {
            Stage::Failed => ArrayState::Failed,
            Stage::Stopped => ArrayState::Stopped,
            _ if (0..self.table.slots().len())
                .all(|at| self.persist.durably_in_sync(&self.table, at)) =>
            {
                ArrayState::Optimal
            }
            _ => ArrayState::Degraded,
        }
    }

    /// Slots that data has left, and that are about to go. Not while the move is told to stop.
    pub(crate) fn going(&self) -> Range<usize> {
        let all = self.table.slots().len();
        match self.sb.moving {
            Some(moving) if !moving.stopped => self.geometry.gone(),
            _ => all..all,
        }
    }

    /// Spares that there will be when a move is over.
    pub(crate) fn spares_to_be(&self) -> usize {
        let fewer = self.geometry.to_go().unwrap_or(0);
        let going = self.table.records().iter().rev().take(fewer);
        self.table.listed() + going.filter(|slot| !slot.member.is_nil()).count()
    }

    /// Every slot that data is in has a member in sync and nothing else, and parity is trusted
    /// everywhere.
    pub(crate) fn in_order(&self) -> bool {
        self.in_place() && !self.map.syncing()
    }

    /// Every slot that data is in has a member in sync and nothing else.
    pub(crate) fn in_place(&self) -> bool {
        let alone = |s: &SlotUse| s.incoming().is_none() && s.outgoing().is_none();
        // Data may have left some slots: the array does not wait for members of these.
        let going = self.going();
        let whole =
            |(at, s): (usize, &SlotUse)| (s.current().is_some() || going.contains(&at)) && alone(s);
        self.table.slots().iter().enumerate().all(whole)
    }
}

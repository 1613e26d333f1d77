//! Where the bytes of an array lie, as one shard knows: the geometry, the members in the present
//! view, the codes, what is unreadable, and which strips of incoming members are valid.
//!
//! Everything else in a shard asks this and changes none of it; only messages of the array do, and
//! rebuilds that mark what they have written.
//!
//! Invariants:
//! * `whole` is what the view says of itself.
//! * A strip counts as rebuilt only on a device that the view calls incoming.
//!
//! Deliberately absent: whether a region is open (`region_gate`), and so whether parity is trusted.

use std::collections::BTreeSet;
use std::sync::Arc;

use strake_parity::{Code, Decoder};

use crate::geometry::block_set::BadBlocks;
use crate::geometry::column_set::Columns;
use crate::geometry::extent::{Piece, Pieces, pieces};
use crate::geometry::{Geometry, Shape, StripPart};
use crate::proto::*;
use crate::stripe::codes::{code_of, old_code_of};
use crate::stripe::decoder_cache::Decoders;
use crate::units::*;

/// See the module.
pub(crate) struct StripeMap {
    index: ShardNo,
    count: u16,
    geometry: Arc<Geometry>,
    code: Code,
    /// That of the shape from which data moves.
    old_code: Option<Code>,
    decoders: Decoders,
    /// Data moves, or has moved, or bands became rows, of several shards: what was split by the
    /// geometry of another moment may come at any time.
    moves: bool,
    view: Arc<View>,
    /// Every slot has a member in sync, and none is being rebuilt: the case of every request of an
    /// array in order, for which nothing need be looked up.
    whole: bool,
    /// Blocks that answer an error.
    unreadable: Arc<BadBlocks>,
    /// For each incoming device, stripes rebuilt above the view's `rebuilt` row.
    rebuilt: Vec<(DeviceId, BTreeSet<StripeNo>)>,
}

impl StripeMap {
    /// Of shard `index` of `count`.
    pub(crate) fn new(
        (index, count): (ShardNo, u16),
        geometry: Arc<Geometry>,
        view: Arc<View>,
        unreadable: Arc<BadBlocks>,
    ) -> StripeMap {
        StripeMap {
            index,
            count,
            code: code_of(&geometry),
            old_code: old_code_of(&geometry),
            decoders: Decoders::default(),
            moves: count > 1 && geometry.old_shape.is_some(),
            geometry,
            whole: view.whole(),
            view,
            unreadable,
            rebuilt: Vec::new(),
        }
    }

    // ---- what the array says -----------------------------------------------------------------

    /// The members are others from now on.
    pub(crate) fn set_view(&mut self, view: Arc<View>) {
        (self.whole, self.view) = (view.whole(), view);
        self.forget_rebuilt();
    }

    /// The arithmetic is another from now on.
    pub(crate) fn set_geometry(&mut self, geometry: Arc<Geometry>) {
        (self.code, self.old_code) = (code_of(&geometry), old_code_of(&geometry));
        self.decoders.forget();
        let others = geometry.old_shape.is_some() || geometry.band != self.geometry.band;
        self.moves |= self.count > 1 && others;
        self.geometry = geometry;
        // What was written there since may lie elsewhere.
        self.rebuilt.clear();
    }

    pub(crate) fn set_unreadable(&mut self, unreadable: Arc<BadBlocks>) {
        self.unreadable = unreadable;
    }

    /// Notes that a stripe's strip on an incoming member is valid now. One that left meanwhile has
    /// none.
    pub(crate) fn mark_rebuilt(&mut self, stripe: StripeNo, device: DeviceId) {
        let mut incoming = self.view.slots.iter().filter_map(|s| s.incoming.as_ref());
        if !incoming.any(|incoming| incoming.target.device == device) {
            return;
        }
        self.count_as_rebuilt(stripe, device);
    }

    pub(super) fn count_as_rebuilt(&mut self, stripe: StripeNo, device: DeviceId) {
        match self.rebuilt.iter_mut().find(|(d, _)| *d == device) {
            Some((_, set)) => {
                set.insert(stripe);
            }
            None => self.rebuilt.push((device, BTreeSet::from([stripe]))),
        }
    }

    /// Drops marks that the view has made superfluous.
    fn forget_rebuilt(&mut self) {
        let per_row = self.geometry.per_row;
        let view = &self.view;
        self.rebuilt.retain_mut(|(device, set)| {
            let incoming = view
                .slots
                .iter()
                .filter_map(|slot| slot.incoming.as_ref())
                .find(|incoming| incoming.target.device == *device);
            let Some(incoming) = incoming else {
                return false;
            };
            *set = set.split_off(&StripeNo(incoming.rebuilt.0 * per_row));
            true
        });
    }

    // ---- the array ---------------------------------------------------------------------------

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    pub(crate) fn whole(&self) -> bool {
        self.whole
    }

    /// This shard.
    pub(crate) fn index(&self) -> ShardNo {
        self.index
    }

    /// Shards of the array.
    pub(crate) fn count(&self) -> u16 {
        self.count
    }

    /// Why nothing is served any more, if so.
    pub(crate) fn closed(&self) -> Option<RequestError> {
        match (self.view.failed, self.view.stopping) {
            (true, _) => Some(RequestError::Failed),
            (_, true) => Some(RequestError::Stopping),
            _ => None,
        }
    }

    /// The device serves a slot in the present view.
    pub(crate) fn in_view(&self, device: DeviceId) -> bool {
        self.view.has(device)
    }

    /// Members that may hold what they have answered in a cache.
    pub(crate) fn flushable(&self) -> impl Iterator<Item = DeviceView> {
        let both = |s: &SlotView| [s.current, s.incoming.as_ref().map(|i| i.target)];
        let members = self.view.slots.iter().flat_map(both).flatten();
        members.filter(|d| d.volatile_cache)
    }

    // ---- requests ----------------------------------------------------------------------------

    /// The stripe belongs to this shard.
    pub(crate) fn is_ours(&self, stripe: StripeNo) -> bool {
        self.geometry.shard(stripe, self.count) == self.index
    }

    /// Some of the request lies in stripes of other shards: what was split by the geometry of
    /// another moment may.
    pub(crate) fn is_split_otherwise(&self, op: &Op) -> bool {
        if !self.moves {
            return false;
        }
        let (offset, len) = match op {
            Op::Read { offset, len }
            | Op::ReadInPlace { offset, len, .. }
            | Op::Discard { offset, len }
            | Op::WriteZeroes { offset, len, .. } => (*offset, *len),
            Op::Write { offset, data, .. } => (*offset, data.len as u64),
            Op::Flush => return false,
        };
        if !self.geometry.valid(offset, len) {
            return false;
        }
        let stripe = self.geometry.locate(offset).stripe;
        let whole = self.geometry.band_range(stripe);
        !self.is_ours(stripe) || offset + len > whole.end
    }

    /// The pieces of a request, none longer than `unit`.
    pub(crate) fn pieces(&self, offset: u64, len: u64, unit: u64) -> Pieces {
        let mut all = pieces(&self.geometry, offset, len, unit);
        let first = all.next().expect("a request is longer than nothing");
        let mut pieces = Pieces::of(first);
        // Most requests are one piece.
        if first.hi - first.lo < len {
            pieces.extend(all);
        }
        pieces
    }

    // ---- stripes -----------------------------------------------------------------------------

    pub(crate) fn region(&self, stripe: StripeNo) -> RegionNo {
        self.geometry.region(self.geometry.row(stripe).1)
    }

    /// What a stripe is made of.
    pub(crate) fn shape(&self, stripe: StripeNo) -> Shape {
        self.geometry.columns(stripe)
    }

    pub(crate) fn width(&self, stripe: StripeNo) -> usize {
        self.shape(stripe).width
    }

    pub(crate) fn code(&self, stripe: StripeNo) -> &Code {
        let old = self.old_code.as_ref();
        old.filter(|_| self.has_old_shape(stripe))
            .unwrap_or(&self.code)
    }

    /// It is of the shape from which data moves, which has a code of its own.
    fn has_old_shape(&self, stripe: StripeNo) -> bool {
        self.old_code.is_some() && self.geometry.row(stripe).1.0 >= self.geometry.new_rows()
    }

    /// How the `wanted` columns of a stripe come from those that are not `lost`; `None` where too
    /// few are left.
    pub(crate) fn decoder(
        &self,
        stripe: StripeNo,
        lost: Columns,
        wanted: Columns,
    ) -> Option<Arc<Decoder>> {
        let code = (self.code(stripe), self.has_old_shape(stripe));
        self.decoders.get(code, self.width(stripe), lost, wanted)
    }

    /// All data of a run of a stripe.
    pub(crate) fn run(
        &self,
        stripe: StripeNo,
        lo: u64,
        hi: u64,
    ) -> impl Iterator<Item = StripPart> + use<> {
        (0..self.shape(stripe).k).map(move |column| StripPart {
            stripe,
            column,
            lo,
            hi,
        })
    }

    /// More columns of this stripe have no member than there are parities.
    pub(crate) fn lost_beyond(&self, stripe: StripeNo) -> bool {
        if self.whole {
            return false;
        }
        let lost = (0..self.width(stripe))
            .filter(|&c| self.source(stripe, c).is_none())
            .count();
        lost > self.geometry.m
    }

    /// Columns that some member holds.
    pub(crate) fn held(&self, stripe: StripeNo) -> Columns {
        let width = self.width(stripe);
        match self.whole {
            true => Columns::first(width),
            false => (0..width).filter(|&c| self.has_target(stripe, c)).collect(),
        }
    }

    /// Parity columns that some member holds.
    pub(crate) fn live_parity(&self, stripe: StripeNo) -> Columns {
        let Shape { width, k, .. } = self.shape(stripe);
        (k..width).filter(|&c| self.has_target(stripe, c)).collect()
    }

    /// The incoming members that do not hold a valid strip of this stripe yet.
    pub(crate) fn unbuilt(&self, stripe: StripeNo) -> Vec<(usize, DeviceView)> {
        if self.whole {
            return Vec::new();
        }
        (0..self.width(stripe))
            .filter_map(|c| {
                self.incoming(stripe, c)
                    .map(|(target, done)| (c, target, done))
            })
            .filter(|&(_, _, done)| !done)
            .map(|(c, target, _)| (c, target))
            .collect()
    }

    // ---- strips ------------------------------------------------------------------------------

    pub(crate) fn member_offset(&self, device: DeviceView, stripe: StripeNo) -> u64 {
        device.data_offset + self.geometry.row_offset(self.geometry.row(stripe).1)
    }

    pub(crate) fn slot_view(&self, stripe: StripeNo, column: usize) -> &SlotView {
        &self.view.slots[usize::from(self.geometry.slot(stripe, column).0)]
    }

    /// The incoming member of a column, and whether its strip of this stripe is valid.
    fn incoming(&self, stripe: StripeNo, column: usize) -> Option<(DeviceView, bool)> {
        if self.whole {
            return None;
        }
        let incoming = self.slot_view(stripe, column).incoming.as_ref()?;
        let row = self.geometry.row(stripe).1;
        let target = incoming.target;
        let rebuilt = incoming.holds(row, self.geometry.region(row))
            || self
                .rebuilt
                .iter()
                .any(|(d, set)| *d == target.device && set.contains(&stripe));
        Some((target, rebuilt))
    }

    /// The member that a column can be read from.
    pub(crate) fn source(&self, stripe: StripeNo, column: usize) -> Option<DeviceView> {
        let valid = |(target, rebuilt): (DeviceView, bool)| rebuilt.then_some(target);
        let current = self.slot_view(stripe, column).current;
        current.or_else(|| self.incoming(stripe, column).and_then(valid))
    }

    /// Some member can answer this piece alone.
    pub(crate) fn readable(&self, piece: &Piece) -> bool {
        if self.whole {
            return true;
        }
        let there = |column| self.source(piece.stripe, column).is_some();
        match self.geometry.mirrored() {
            true => (0..self.width(piece.stripe)).any(there),
            false => there(piece.column),
        }
    }

    /// The members that a column must be written to.
    pub(crate) fn targets(&self, stripe: StripeNo, column: usize) -> [Option<DeviceView>; 2] {
        let valid = |(target, rebuilt): (DeviceView, bool)| rebuilt.then_some(target);
        [
            self.slot_view(stripe, column).current,
            self.incoming(stripe, column).and_then(valid),
        ]
    }

    /// Some member holds this column.
    pub(crate) fn has_target(&self, stripe: StripeNo, column: usize) -> bool {
        self.whole
            || self.slot_view(stripe, column).current.is_some()
            || self
                .incoming(stripe, column)
                .is_some_and(|(_, rebuilt)| rebuilt)
    }

    // ---- the list of unreadable blocks -------------------------------------------------------

    /// Does any of these bytes answer an error?
    pub(crate) fn touches_lost(&self, part: &StripPart) -> bool {
        self.unreadable.touches(&self.geometry, part)
    }

    /// The same of a piece of a request.
    pub(crate) fn piece_lost(&self, piece: &Piece) -> bool {
        self.touches_lost(&StripPart {
            stripe: piece.stripe,
            column: piece.column,
            lo: piece.lo,
            hi: piece.hi,
        })
    }

    /// All of these bytes answer an error.
    pub(crate) fn is_listed(&self, part: &StripPart) -> bool {
        self.unreadable.covers(&self.geometry, part)
    }

    /// See the module.
    pub(crate) fn check(&self) -> Result<(), String> {
        ensure!(
            self.whole == self.view.whole(),
            "whole is {}, and the view says {}",
            self.whole,
            self.view.whole()
        );
        for (device, stripes) in &self.rebuilt {
            let mut incoming = self
                .view
                .slots
                .iter()
                .filter_map(|slot| slot.incoming.as_ref());
            ensure!(
                incoming.any(|incoming| incoming.target.device == *device),
                "{} stripes count as rebuilt on device {}, which is not being rebuilt",
                stripes.len(),
                device.0
            );
        }
        Ok(())
    }
}

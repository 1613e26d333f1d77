//! Requests cut along strips.

use crate::geometry::Geometry;
use crate::mem::list::{List, listed};
use crate::units::*;

/// A part of a request within one strip.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) stripe: StripeNo,
    pub(crate) column: usize,
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    /// Byte of the request where it starts.
    pub(crate) at: usize,
}

/// Mostly one.
pub(crate) type Pieces = List<Piece>;

listed!(Piece);

/// The parts of a request, none of which crosses a multiple of `unit` within its strip.
pub(crate) fn pieces(
    geometry: &Geometry,
    offset: u64,
    len: u64,
    unit: u64,
) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let place = geometry.locate(offset + done);
        let room = match unit == geometry.strip {
            true => unit - place.offset,
            false => unit - place.offset % unit,
        };
        let here = room.min(len - done);
        let (lo, at) = (place.offset, done as usize);
        done += here;
        Some(Piece {
            stripe: place.stripe,
            column: place.column,
            lo,
            hi: lo + here,
            at,
        })
    })
}

//! The codes by which the stripes of an array have their parity.
//!
//! Invariant: a geometry that came from a superblock has one.

use strake_parity::Code;

use crate::geometry::Geometry;

pub(crate) fn code_of(geometry: &Geometry) -> Code {
    let code = match geometry.mirrored() {
        true => Code::mirror(geometry.width),
        false => Code::new(geometry.k, geometry.m),
    };
    code.expect("the superblock's geometry has a code")
}

pub(crate) fn elder_code_of(geometry: &Geometry) -> Option<Code> {
    let elder = geometry.elder.as_ref()?;
    let code = Code::new(elder.width - geometry.m, geometry.m);
    Some(code.expect("the superblock's elder shape has a code"))
}

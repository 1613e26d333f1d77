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

pub(crate) fn old_code_of(geometry: &Geometry) -> Option<Code> {
    let old = geometry.old_shape.as_ref()?;
    let code = Code::new(old.width - geometry.m, geometry.m);
    Some(code.expect("the superblock's old shape has a code"))
}

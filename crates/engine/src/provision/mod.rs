//! What an array is made of before it serves: superblocks of new and restored arrays, tables of
//! volumes, buffers, and what may become of its shape.

pub mod create;
pub mod limits;
pub mod restore;
pub mod volumes;

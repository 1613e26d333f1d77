//! From the members that are found to an array that serves.

pub(crate) mod assemble;
pub(crate) mod older_images;
#[cfg(test)]
mod recovery_table;
pub(crate) mod replay;
pub(crate) mod resume;

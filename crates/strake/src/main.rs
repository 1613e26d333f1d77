//! The strake command.
fn main() {}

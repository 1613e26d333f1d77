//! Habits as code: ci, test, tidy, bench, vm, sim.
fn main() {}

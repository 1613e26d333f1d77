//! Which instruction set computes: the fastest that this CPU has, or one chosen by name.
//!
//! The order is fixed (widest first), not measured at start: two starts on one machine behave
//! alike. The environment variable [`VARIABLE`] overrides the choice at first use, [`select`] at
//! any time. Besides the kernels' names both take `"cycle"`: every operation goes to the next
//! kernel in turn, so a test of anything above this crate exercises all of them.
//!
//! Invariants: a kernel is in the list only if detection found its CPU features; all kernels give
//! the same bytes, so a change of choice in the middle of other threads' work is harmless.

use std::error::Error;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ops::Ops;
use crate::scalar::Scalar;

/// The environment variable that names the kernel to use.
pub const VARIABLE: &str = "STRAKE_PARITY";

/// The name that rotates through all available kernels.
pub const CYCLE: &str = "cycle";

/// The index of the chosen kernel, or one of the two values below.
static CHOICE: AtomicUsize = AtomicUsize::new(UNDECIDED);
const UNDECIDED: usize = usize::MAX;
const ROTATE: usize = usize::MAX - 1;

/// Operations done while rotating.
static TURN: AtomicUsize = AtomicUsize::new(0);

/// No kernel of that name runs on this CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKernel {
    /// The name that was asked for.
    pub name: String,
}

impl fmt::Display for UnknownKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = available().join(", ");
        write!(
            f,
            "no parity kernel `{}` on this CPU; there are {known} and {CYCLE}",
            self.name
        )
    }
}

impl Error for UnknownKernel {}

/// The name of the kernel in use, or `"cycle"`.
///
/// # Panics
/// As every first use does, where [`VARIABLE`] names no kernel; see [`from_environment`].
#[must_use]
pub fn active() -> &'static str {
    match choice() {
        ROTATE => CYCLE,
        index => kernels()[index].name(),
    }
}

/// The names of the kernels that this CPU can run, fastest first. The last is `"scalar"`.
#[must_use]
pub fn available() -> Vec<&'static str> {
    kernels().iter().map(|kernel| kernel.name()).collect()
}

/// Makes the kernel of that name, or `"cycle"`, compute for all threads from now on.
///
/// # Errors
/// [`UnknownKernel`] where this CPU has none of that name; the choice is left as it was.
pub fn select(name: &str) -> Result<(), UnknownKernel> {
    CHOICE.store(find(name)?, Ordering::Relaxed);
    Ok(())
}

/// Applies [`VARIABLE`] where it is set and not empty; otherwise chooses the fastest kernel.
///
/// Called implicitly at first use, where a wrong name is a panic: an override that is silently not
/// obeyed would be worse. A program that wants to report the mistake calls this first.
///
/// # Errors
/// [`UnknownKernel`] where the variable names a kernel that this CPU has not.
pub fn from_environment() -> Result<&'static str, UnknownKernel> {
    CHOICE.store(index_from_environment()?, Ordering::Relaxed);
    Ok(active())
}

/// The kernel that computes the next operation.
pub(crate) fn ops() -> &'static dyn Ops {
    let kernels = kernels();
    match choice() {
        ROTATE => kernels[TURN.fetch_add(1, Ordering::Relaxed) % kernels.len()],
        index => kernels[index],
    }
}

#[inline]
fn choice() -> usize {
    match CHOICE.load(Ordering::Relaxed) {
        UNDECIDED => decide(),
        decided => decided,
    }
}

#[cold]
fn decide() -> usize {
    let index = index_from_environment()
        .unwrap_or_else(|unknown| panic!("environment variable {VARIABLE}: {unknown}"));
    // A `select` of another thread in the meantime wins.
    match CHOICE.compare_exchange(UNDECIDED, index, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => index,
        Err(selected) => selected,
    }
}

fn index_from_environment() -> Result<usize, UnknownKernel> {
    match std::env::var_os(VARIABLE) {
        Some(name) if !name.is_empty() => find(&name.to_string_lossy()),
        _ => Ok(0),
    }
}

fn find(name: &str) -> Result<usize, UnknownKernel> {
    if name == CYCLE {
        return Ok(ROTATE);
    }
    let found = kernels().iter().position(|kernel| kernel.name() == name);
    found.ok_or_else(|| UnknownKernel {
        name: name.to_owned(),
    })
}

/// The kernels that this CPU can run, fastest first.
fn kernels() -> &'static [&'static dyn Ops] {
    static KERNELS: OnceLock<Vec<&'static dyn Ops>> = OnceLock::new();
    KERNELS.get_or_init(|| {
        let mut kernels: Vec<&'static dyn Ops> = Vec::new();
        #[cfg(target_arch = "x86_64")]
        kernels.extend(crate::x86::detect());
        #[cfg(target_arch = "aarch64")]
        kernels.extend(crate::aarch64::detect());
        kernels.push(&Scalar);
        kernels
    })
}

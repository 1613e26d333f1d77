//! Panics in words, for the report of the seed that they belong to.
//!
//! Invariant: a panic outside of [`catching`] is printed as ever.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the words of a panic for the seed's report instead of printing them.
fn listen_for_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if WATCHED.with(|watched| *watched.borrow()) {
                PANIC.with(|panic| *panic.borrow_mut() = info.to_string());
            } else {
                usual(info);
            }
        }));
    });
}

thread_local! {
    static WATCHED: RefCell<bool> = const { RefCell::new(false) };
}

/// Runs `what`; the words of its panic if it panicked.
pub fn catching<T>(what: impl FnOnce() -> T) -> Result<T, String> {
    listen_for_panics();
    WATCHED.with(|watched| *watched.borrow_mut() = true);
    let result = catch_unwind(AssertUnwindSafe(what));
    WATCHED.with(|watched| *watched.borrow_mut() = false);
    result.map_err(|_| PANIC.with(|panic| panic.borrow().replace('\n', ": ")))
}

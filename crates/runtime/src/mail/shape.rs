//! The present shape of an array, for code that does not run on a shard's thread.
//!
//! Deliberately absent: the data path, which gets a new shape in order with all other messages.

use std::sync::{Arc, Mutex, MutexGuard};

use strake_engine::Geometry;

/// See the module. Clones tell of the same array.
#[derive(Clone, Debug)]
pub(crate) struct Shape(Arc<Mutex<Arc<Geometry>>>);

impl Shape {
    pub(crate) fn new(geometry: Arc<Geometry>) -> Shape {
        Shape(Arc::new(Mutex::new(geometry)))
    }

    fn place(&self) -> MutexGuard<'_, Arc<Geometry>> {
        self.0.lock().expect("no thread panics with the shape")
    }

    /// The array's arithmetic, as of now.
    pub(crate) fn now(&self) -> Arc<Geometry> {
        Arc::clone(&self.place())
    }

    /// The array has another.
    pub(crate) fn set(&self, geometry: Arc<Geometry>) {
        *self.place() = geometry;
    }
}

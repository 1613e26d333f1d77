//! Lists that reuse their memory: nothing is allocated for a request, however many parts it has.
//!
//! A short list holds its things in line. What a longer one took is kept by the thread on which the
//! list ends, for the next one there that grows.
//!
//! Invariants:
//! * What a list held is gone when the list is: memory that is kept holds nothing.
//! * A thread keeps no more than [`KEPT_MOST`] memories of a kind, none longer than
//!   [`LENGTH_MOST`].
//!
//! Deliberately absent: order among threads. Lists that all begin on one thread and all end on
//! another are allocated on the one and freed on the other.

use std::ops::{Deref, DerefMut};

use smallvec::SmallVec;

/// Memories of a kind that a thread keeps.
const KEPT_MOST: usize = 256;
/// Things that a memory has room for which is kept.
const LENGTH_MOST: usize = 4096;

/// What can be in a list.
pub trait Listed: Sized {
    /// Gives `what` the memory of lists that have ended on this thread; `None` if the thread is
    /// ending.
    fn kept<R>(what: impl FnOnce(&mut Vec<Vec<Self>>) -> R) -> Option<R>;
}

/// Keeps memory of lists of these types.
macro_rules! listed {
    ($($type:ty),* $(,)?) => {$(
        impl $crate::mem::list::Listed for $type {
            fn kept<R>(what: impl FnOnce(&mut Vec<Vec<Self>>) -> R) -> Option<R> {
                thread_local!(
                    static KEPT: std::cell::RefCell<Vec<Vec<$type>>> =
                        const { std::cell::RefCell::new(Vec::new()) }
                );
                KEPT.try_with(|kept| what(&mut kept.borrow_mut())).ok()
            }
        }
    )*};
}
pub(crate) use listed;

listed!(usize, u64, (u64, u64), (u64, u64, bool));

/// Things of a kind that last for one call, such as slices of bytes: so many are in line.
pub(crate) type Brief<T> = SmallVec<[T; 64]>;

/// See the module.
/// `N` things are in line.
pub struct List<T: Listed, const N: usize = 1>(SmallVec<[T; N]>);

impl<T: Listed> List<T> {
    /// Of one thing.
    pub fn of(one: T) -> List<T> {
        List(SmallVec::from_buf([one]))
    }
}

impl<T: Listed, const N: usize> List<T, N> {
    /// An empty one.
    pub fn new() -> List<T, N> {
        List(SmallVec::new())
    }

    /// Adds a thing at the end.
    pub fn push(&mut self, thing: T) {
        self.make_room(1);
        self.0.push(thing);
    }

    /// Empties it; all memory stays with it.
    pub fn drain(&mut self) -> impl DoubleEndedIterator<Item = T> + ExactSizeIterator {
        self.0.drain(..)
    }

    /// Makes it so long by what `with` makes.
    pub fn resize_with(&mut self, len: usize, with: impl FnMut() -> T) {
        self.make_room(len.saturating_sub(self.len()));
        self.0.resize_with(len, with);
    }

    /// Keeps so many at most.
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// Takes out what equals the thing before it.
    pub fn dedup_by(&mut self, same: impl FnMut(&mut T, &mut T) -> bool) {
        self.0.dedup_by(same);
    }

    /// Keeps what passes, in order.
    pub fn retain(&mut self, mut passes: impl FnMut(&T) -> bool) {
        self.0.retain(|thing| passes(thing));
    }

    fn make_room(&mut self, more: usize) {
        let len = self.0.len() + more;
        if len > self.0.capacity() {
            self.grow(len);
        }
    }

    fn grow(&mut self, len: usize) {
        let kept = match self.0.spilled() {
            true => None,
            false => T::kept(Vec::pop).flatten(),
        };
        match kept {
            Some(mut memory) => {
                // At least so long that it is not taken for one in line.
                memory.reserve(len.max(2 * N));
                memory.extend(self.0.drain(..));
                self.0 = SmallVec::from_vec(memory);
            }
            None => self.0.reserve(len - self.0.len()),
        }
    }

    #[cold]
    fn keep(&mut self) {
        let mut memory = std::mem::take(&mut self.0).into_vec();
        memory.clear();
        if memory.capacity() > LENGTH_MOST {
            return;
        }
        T::kept(|kept| {
            if kept.len() < KEPT_MOST {
                kept.push(memory);
            }
        });
    }
}

impl<T: Listed, const N: usize> Drop for List<T, N> {
    fn drop(&mut self) {
        if self.0.spilled() {
            self.keep();
        }
    }
}

impl<T: Listed, const N: usize> Default for List<T, N> {
    fn default() -> List<T, N> {
        List::new()
    }
}

impl<T: Listed + Clone, const N: usize> Clone for List<T, N> {
    fn clone(&self) -> List<T, N> {
        self.iter().cloned().collect()
    }
}

impl<T: Listed + std::fmt::Debug, const N: usize> std::fmt::Debug for List<T, N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: Listed, const N: usize> Deref for List<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Listed, const N: usize> DerefMut for List<T, N> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T: Listed, const N: usize> Extend<T> for List<T, N> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, things: I) {
        let things = things.into_iter();
        self.make_room(things.size_hint().0);
        things.for_each(|thing| self.push(thing));
    }
}

impl<T: Listed, const N: usize> FromIterator<T> for List<T, N> {
    fn from_iter<I: IntoIterator<Item = T>>(things: I) -> List<T, N> {
        let mut list = List::new();
        list.extend(things);
        list
    }
}

impl<'a, T: Listed, const N: usize> IntoIterator for &'a List<T, N> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    listed!(Rc<u8>);

    #[test]
    fn the_next_list_gets_the_memory_of_one_that_ended_and_nothing_that_it_held() {
        let thing = Rc::new(7);
        let long: List<Rc<u8>> = (0..20).map(|_| Rc::clone(&thing)).collect();
        let at = long.as_ptr();
        assert_eq!((long.len(), Rc::strong_count(&thing)), (20, 21));
        drop(long);
        assert_eq!(Rc::strong_count(&thing), 1);
        let mut next = List::of(Rc::clone(&thing));
        assert_ne!(next.as_ptr(), at, "one is in line");
        next.push(Rc::clone(&thing));
        assert_eq!((next.as_ptr(), next.len()), (at, 2));
        drop(next.drain());
        assert_eq!(Rc::strong_count(&thing), 1);
        let other: List<Rc<u8>> = (0..2).map(|_| Rc::clone(&thing)).collect();
        assert_ne!(other.as_ptr(), at, "a list that is empty keeps its own");
    }

    #[test]
    fn no_more_is_kept_than_said() {
        let lists: Vec<List<u64>> = (0..KEPT_MOST + 3).map(|_| (0..9).collect()).collect();
        drop(lists);
        assert_eq!(u64::kept(|kept| kept.len()), Some(KEPT_MOST));
        drop((0..1 + LENGTH_MOST as u64).collect::<List<u64>>());
        let longest = u64::kept(|kept| kept.iter().map(Vec::capacity).max());
        assert!(longest.flatten() <= Some(LENGTH_MOST));
    }
}

//! Where buffers meet the ring: which are registered, and how many a connection may hold.
//!
//! Invariants:
//! * A buffer counts as registered only if its address says so: indices of other pools do not fit.
//! * Request memory is not the engine's pool: a client that does not read its answers holds its
//!   own share and nothing that a stripe waits for.
//!
//! Deliberately absent: growth. A request that finds no buffer waits.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use strake_engine::buffers::{Buf, Pool};

/// The registered buffers of one ring: the shard's own pool first, then the pool of its export
/// queue.
#[derive(Debug, Default)]
pub(crate) struct Registered {
    addresses: Vec<(usize, usize)>,
    /// Where each pool's indices start.
    starts: Vec<usize>,
}

impl Registered {
    /// Lists the buffers of pools, one after the other, by their addresses ([`Pool::addresses`]).
    pub(crate) fn of(pools: &[&[(usize, usize)]]) -> Registered {
        let mut all = Registered::default();
        for addresses in pools {
            all.starts.push(all.addresses.len());
            all.addresses.extend_from_slice(addresses);
        }
        all
    }

    /// For registration.
    pub(crate) fn addresses(&self) -> &[(usize, usize)] {
        &self.addresses
    }

    /// Index of a buffer in the ring's table, if it is there.
    pub(crate) fn index(&self, buf: &Buf) -> Option<u16> {
        let own = buf.index()? as usize;
        let address = buf.bytes().as_ptr() as usize;
        self.starts
            .iter()
            .map(|start| start + own)
            .find(|&at| {
                self.addresses
                    .get(at)
                    .is_some_and(|known| known.0 == address)
            })
            .and_then(|at| u16::try_from(at).ok())
    }
}

/// The request memory of one connection: takes block until there is a buffer again.
#[derive(Debug)]
pub(crate) struct Share {
    /// Bytes of its largest buffers.
    largest: usize,
    /// Signalled when a request was answered; a buffer may come back a little later than that, so
    /// waiting also looks again by itself.
    returned: Condvar,
    /// `None` once it is closed.
    pool: Mutex<Option<Pool>>,
}

/// How soon a waiting take looks again: the engine may let go of a write's data after its answer.
/// Twice as late each time that nothing was answered, as where a client reads no answers.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// And how late at most.
const LOOK_AGAIN_MOST: Duration = Duration::from_millis(500);

impl Share {
    /// A share with its own memory; `None` where there is none.
    pub(crate) fn new(stock: &[(usize, usize)]) -> Option<Share> {
        let pool = Pool::try_new(stock)?;
        Some(Share {
            largest: pool.largest(),
            returned: Condvar::new(),
            pool: Mutex::new(Some(pool)),
        })
    }

    /// A buffer of at least `bytes`, as soon as there is one; `None` once the share is closed (or
    /// for a size that it does not have).
    pub(crate) fn take(&self, bytes: usize) -> Option<Buf> {
        if bytes > self.largest {
            return None;
        }
        let mut pool = self.pool.lock().expect("no thread panics with the share");
        let mut wait = LOOK_AGAIN;
        loop {
            if let Some(buf) = pool.as_mut()?.take(bytes) {
                return Some(buf);
            }
            let waited = self.returned.wait_timeout(pool, wait);
            let (held, timeout) = waited.expect("no thread panics with the share");
            pool = held;
            wait = match timeout.timed_out() {
                true => (2 * wait).min(LOOK_AGAIN_MOST),
                false => LOOK_AGAIN,
            };
        }
    }

    /// A request was answered: a buffer may be free.
    pub(crate) fn returned(&self) {
        self.returned.notify_one();
    }

    /// No request waits from now on.
    pub(crate) fn close(&self) {
        *self.pool.lock().expect("no thread panics with the share") = None;
        self.returned.notify_all();
    }
}

/// Things in numbered places; a place is used again when what it held was taken out.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: VecDeque<u32>,
    count: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab {
            places: Vec::new(),
            free: VecDeque::new(),
            count: 0,
        }
    }
}

impl<T> Slab<T> {
    /// Puts a thing somewhere and says where.
    pub(crate) fn insert(&mut self, thing: T) -> u32 {
        self.count += 1;
        if let Some(place) = self.free.pop_front() {
            self.places[place as usize] = Some(thing);
            return place;
        }
        self.places.push(Some(thing));
        u32::try_from(self.places.len() - 1).expect("fewer than 2^32 things at once")
    }

    /// Looks at a thing.
    pub(crate) fn get(&self, place: u32) -> Option<&T> {
        self.places.get(place as usize)?.as_ref()
    }

    /// The same, to change it.
    pub(crate) fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        self.places.get_mut(place as usize)?.as_mut()
    }

    /// Takes a thing out.
    pub(crate) fn remove(&mut self, place: u32) -> Option<T> {
        let thing = self.places.get_mut(place as usize)?.take()?;
        self.free.push_back(place);
        self.count -= 1;
        Some(thing)
    }

    /// How many are there.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// All of them, with their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.places
            .iter()
            .enumerate()
            .filter_map(|(place, thing)| Some((place as u32, thing.as_ref()?)))
    }

    /// The same, to change them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.places
            .iter_mut()
            .enumerate()
            .filter_map(|(place, thing)| Some((place as u32, thing.as_mut()?)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn only_buffers_of_the_pools_listed_count_as_registered() {
        let (mut own, mut other) = (Pool::new(&[(4096, 2), (8192, 1)]), Pool::new(&[(4096, 2)]));
        let registered = Registered::of(&[own.addresses(), other.addresses()]);
        let stranger = Pool::new(&[(4096, 1)]).take(4096).expect("free");
        let (a, b) = (
            own.take(8192).expect("free"),
            other.take(4096).expect("free"),
        );
        assert_eq!(registered.index(&a), Some(2));
        assert!(matches!(registered.index(&b), Some(3 | 4)));
        assert_eq!(registered.index(&stranger), None);
        assert_eq!(registered.index(&Buf::zeroed(1)), None);
    }

    #[test]
    fn a_take_waits_for_what_comes_back() {
        let share = Arc::new(Share::new(&[(4096, 1)]).expect("small"));
        let held = share.take(100).expect("free");
        assert!(share.take(5000).is_none(), "no such size");
        let waiting = {
            let share = Arc::clone(&share);
            std::thread::spawn(move || share.take(1).is_some())
        };
        std::thread::sleep(Duration::from_millis(20));
        drop(held);
        assert!(waiting.join().expect("no panic"), "it got the buffer");
        let held = share.take(1).expect("free");
        let waiting = {
            let share = Arc::clone(&share);
            std::thread::spawn(move || share.take(1).is_none())
        };
        share.close();
        assert!(waiting.join().expect("no panic"), "closing ends the wait");
        drop(held);
    }

    #[test]
    fn places_of_a_slab_are_used_again() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!(
            (slab.remove(a), slab.remove(a), slab.len()),
            (Some('a'), None, 1)
        );
        assert_eq!(slab.insert('c'), a);
        assert_eq!(slab.get_mut(b), Some(&mut 'b'));
        assert_eq!(slab.iter_mut().count(), 2);
    }
}

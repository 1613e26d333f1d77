//! Memory of the data path: page-aligned buffers, allocated at start, handed around by ownership.
//!
//! A pool is one allocation, cut into its buffers: the allocator maps it by itself, and unmaps it
//! when the last buffer is gone, so that an array that ends gives its memory back.
//!
//! Invariants:
//! * A [`Buf`] is written only by its single owner; once shared (cloned) it is read-only.
//! * When the last clone drops, the memory goes back to the pool that it came from, from any
//!   thread.
//! * The pool never grows: an operation that finds no buffer waits, so memory is bounded.
//! * Taking and giving back allocate nothing, and lock nothing: a buffer keeps its count of holders
//!   for life, what is given back lies in a queue without a lock, and one owner takes from that.
//!
//! Deliberately absent: pointers. A caller that needs an address (io_uring) takes it from `bytes()`
//! and keeps the `Buf` alive while the kernel uses it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use crossbeam_queue::ArrayQueue;
use triomphe::UniqueArc;
use zerocopy::FromZeros;

/// Alignment and unit of every buffer, bytes.
pub const PAGE: usize = 4096;

/// What was given back is taken in after so many bytes were taken: seldom enough to cost little,
/// and often enough for a thread to go on with the few buffers that caches hold and not through the
/// whole pool in turn.
const COLLECT_BYTES: usize = 64 << 10;

struct Memory {
    /// Whole pages, aligned to one.
    bytes: BytesMut,
    /// Position in the pool's list of memories: the index of a registered buffer.
    index: Option<u32>,
    /// Where it goes back to; `None` while it lies there.
    home: Option<Arc<Home>>,
    /// Its place in the pool was given to another memory: it does not go back.
    orphan: AtomicBool,
}

impl Memory {
    /// Outside any pool.
    fn new(bytes: usize) -> UniqueArc<Memory> {
        let bytes = whole_pages(bytes);
        let memory = Arena::new(bytes).map(|mut arena| arena.cut(bytes));
        Memory::of(memory.expect("memory for a buffer is there"), None)
    }

    fn of(bytes: BytesMut, index: Option<u32>) -> UniqueArc<Memory> {
        UniqueArc::new(Memory {
            bytes,
            index,
            home: None,
            orphan: AtomicBool::new(false),
        })
    }
}

struct Home {
    /// What was given back. It has room for all that there is.
    returned: ArrayQueue<UniqueArc<Memory>>,
}

impl Home {
    fn put(&self, memory: UniqueArc<Memory>) {
        let room = self.returned.push(memory).is_ok();
        debug_assert!(room, "it has room for all that there is");
    }
}

/// What can be taken.
struct Shelf {
    /// Free memories per size class, smallest class first.
    classes: Vec<Class>,
    /// Bytes taken since what was given back was taken in.
    taken: usize,
}

struct Class {
    bytes: usize,
    free: Vec<UniqueArc<Memory>>,
}

impl Shelf {
    fn put(&mut self, memory: UniqueArc<Memory>) {
        let bytes = memory.bytes.len();
        let class = self
            .classes
            .iter_mut()
            .find(|class| class.bytes == bytes)
            .expect("a memory goes back to the class it was made for");
        class.free.push(memory);
    }

    /// Everything that was given back is where it is taken from.
    fn collect(&mut self, returned: &ArrayQueue<UniqueArc<Memory>>) {
        self.taken = 0;
        // Not more than there can be: others may give back as fast as this takes in.
        for _ in 0..returned.capacity() {
            let Some(memory) = returned.pop() else { break };
            self.put(memory);
        }
    }
}

/// A page-aligned buffer. Cloning shares it; the last clone to drop gives it back.
#[derive(Clone)]
pub struct Buf(
    /// `None` only while it is being dropped.
    Option<triomphe::Arc<Memory>>,
);

impl Drop for Buf {
    fn drop(&mut self) {
        let last = self.0.take().and_then(triomphe::Arc::into_unique);
        if let Some(mut memory) = last
            && let Some(home) = memory.home.take()
            && !*memory.orphan.get_mut()
        {
            home.put(memory);
        }
    }
}

impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buf({} bytes)", self.len())
    }
}

impl Buf {
    /// A zeroed buffer outside any pool, for control-path use (superblocks, tests). `bytes` is
    /// rounded up to whole pages.
    pub fn zeroed(bytes: usize) -> Buf {
        Buf(Some(Memory::new(bytes).shareable()))
    }

    /// A buffer of no bytes: stands in slices that have their bytes elsewhere.
    pub(crate) fn nowhere() -> Buf {
        Buf(Some(Memory::of(BytesMut::new(), None).shareable()))
    }

    /// As [`Buf::zeroed`], filled from `content`.
    pub fn from_bytes(content: &[u8]) -> Buf {
        let mut buf = Buf::zeroed(content.len());
        buf.bytes_mut()[..content.len()].copy_from_slice(content);
        buf
    }

    fn memory(&self) -> &Memory {
        self.0.as_ref().expect("it is not being dropped")
    }

    /// For a buffer that a device may hold for ever: its pool gets a new memory in its place (not
    /// registered), and this one is freed when its last holder lets go. So a device that hangs
    /// costs memory once, and never the pool's ability to go on.
    pub fn orphan(&self) {
        let memory = self.memory();
        let Some(home) = &memory.home else { return };
        if !memory.orphan.swap(true, Ordering::AcqRel) {
            home.put(Memory::new(self.len()));
        }
    }

    /// This buffer if it has no other owner, or a new one of its size outside any pool: a device
    /// that hangs may hold it for ever.
    pub(crate) fn sole_or_new(mut self) -> Buf {
        match self.sole() {
            Some(_) => self,
            None => Buf::zeroed(self.len()),
        }
    }

    fn sole(&mut self) -> Option<&mut Memory> {
        triomphe::Arc::get_mut(self.0.as_mut().expect("it is not being dropped"))
    }

    /// The whole buffer.
    pub fn bytes(&self) -> &[u8] {
        &self.memory().bytes
    }

    /// The whole buffer, for writing.
    ///
    /// # Panics
    /// If the buffer is shared: only a single owner may write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let memory = self.sole();
        let memory = memory.expect("a buffer is written by its single owner");
        &mut memory.bytes
    }

    /// Capacity in bytes, a multiple of [`PAGE`].
    pub fn len(&self) -> usize {
        self.memory().bytes.len()
    }

    /// True only of the buffer that stands for bytes which are elsewhere: any other has at least
    /// one page.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Index of this buffer among [`Pool::addresses`], if it came from a pool.
    pub fn index(&self) -> Option<u32> {
        self.memory().index
    }
}

fn whole_pages(bytes: usize) -> usize {
    bytes.div_ceil(PAGE).max(1) * PAGE
}

/// One zeroed allocation, from which buffers are cut.
struct Arena(BytesMut);

impl Arena {
    /// Room for so many bytes of buffers; `None` where there is no such memory.
    fn new(bytes: usize) -> Option<Arena> {
        let room = bytes.checked_add(PAGE)?;
        let zeroed = u8::new_vec_zeroed(room).ok()?;
        // Both steps keep the allocation as it is.
        let mut arena = BytesMut::from(Bytes::from(zeroed));
        let beyond = arena.as_ptr().addr() % PAGE;
        if beyond > 0 {
            let _ = arena.split_to(PAGE - beyond);
        }
        Some(Arena(arena))
    }

    fn cut(&mut self, bytes: usize) -> BytesMut {
        self.0.split_to(bytes)
    }
}

/// A part of a shared buffer: `buf.bytes()[start .. start + len]`, both in bytes.
#[derive(Clone, Debug)]
pub struct Slice {
    /// The buffer that holds the bytes.
    pub buf: Buf,
    /// First byte within `buf`.
    pub start: usize,
    /// Length in bytes.
    pub len: usize,
}

impl Slice {
    /// `buf[..len]`.
    pub fn new(buf: Buf, start: usize, len: usize) -> Slice {
        assert!(start + len <= buf.len(), "a slice lies within its buffer");
        Slice { buf, start, len }
    }
    /// So many bytes that are in their requester's place already; `nowhere` is an empty buffer.
    pub(crate) fn placed(nowhere: Buf, len: usize) -> Slice {
        assert!(nowhere.is_empty(), "its bytes are elsewhere");
        Slice {
            buf: nowhere,
            start: 0,
            len,
        }
    }
    /// The bytes are in their requester's place, not here.
    pub fn in_place(&self) -> bool {
        self.buf.is_empty()
    }
    /// The bytes.
    ///
    /// # Panics
    /// If they are in place elsewhere.
    pub fn bytes(&self) -> &[u8] {
        &self.buf.bytes()[self.start..self.start + self.len]
    }
    /// A part of this slice, `start` relative to it.
    pub fn part(&self, start: usize, len: usize) -> Slice {
        assert!(start + len <= self.len, "a part lies within its slice");
        Slice {
            buf: self.buf.clone(),
            start: self.start + start,
            len,
        }
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

/// A fixed stock of buffers in a few size classes, for the one that takes them.
pub struct Pool {
    shelf: Shelf,
    home: Arc<Home>,
    addresses: Vec<(usize, usize)>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} buffers)", self.addresses.len())
    }
}

impl Pool {
    /// A pool of `count` buffers of `bytes` (rounded up to pages) for every `(bytes, count)` given.
    ///
    /// # Panics
    /// If there is no such memory.
    pub fn new(stock: &[(usize, usize)]) -> Pool {
        Pool::try_new(stock).expect("memory for buffers is there at start")
    }

    /// As [`Pool::new`]; `None` where there is no such memory.
    pub fn try_new(stock: &[(usize, usize)]) -> Option<Pool> {
        let total = stock.iter().try_fold(0usize, |sum, &(bytes, count)| {
            sum.checked_add(whole_pages(bytes).checked_mul(count)?)
        })?;
        let mut arena = Arena::new(total)?;
        // Every page is taken from the machine now: the data path must never wait for one.
        arena.0.fill(0);
        let mut addresses = Vec::new();
        let mut classes: Vec<Class> = Vec::new();
        let mut sorted = stock.to_vec();
        sorted.sort_unstable();
        for (bytes, count) in sorted {
            let bytes = whole_pages(bytes);
            if classes.last().is_none_or(|class| class.bytes != bytes) {
                classes.push(Class {
                    bytes,
                    free: Vec::new(),
                });
            }
            let class = classes.last_mut().expect("pushed above");
            for _ in 0..count {
                let index = u32::try_from(addresses.len()).expect("fewer than 2^32 buffers");
                let memory = Memory::of(arena.cut(bytes), Some(index));
                addresses.push((memory.bytes.as_ptr() as usize, bytes));
                class.free.push(memory);
            }
        }
        let returned = ArrayQueue::new(addresses.len().max(1));
        Some(Pool {
            shelf: Shelf { classes, taken: 0 },
            home: Arc::new(Home { returned }),
            addresses,
        })
    }

    /// Takes a buffer of at least `bytes`, from the smallest class that has one. Its content is
    /// whatever it held before.
    pub fn take(&mut self, bytes: usize) -> Option<Buf> {
        self.take_leaving(bytes, 0)
    }

    /// As [`Pool::take`], but leaves `keep` buffers of the largest class to others.
    pub fn take_leaving(&mut self, bytes: usize, keep: usize) -> Option<Buf> {
        let largest = self.largest();
        let shelf = &mut self.shelf;
        shelf.taken += bytes;
        // Before a buffer that is larger than need be, or none, or one that left the caches long
        // ago is taken.
        let fits = shelf.classes.iter().find(|class| class.bytes >= bytes);
        if shelf.taken >= COLLECT_BYTES || fits.is_some_and(|class| class.free.len() <= keep) {
            shelf.collect(&self.home.returned);
        }
        let mut memory = shelf
            .classes
            .iter_mut()
            .filter(|class| class.bytes >= bytes)
            .filter(|class| class.bytes < largest || class.free.len() > keep)
            .find_map(|class| class.free.pop())?;
        memory.home = Some(Arc::clone(&self.home));
        Some(Buf(Some(memory.shareable())))
    }

    /// As [`Pool::take`], but none that is larger than need be.
    pub fn take_fitting(&mut self, bytes: usize) -> Option<Buf> {
        let fits = |class: &Class| class.bytes >= bytes;
        let class = self.shelf.classes.iter().position(fits)?;
        if self.shelf.classes[class].free.is_empty() {
            self.shelf.collect(&self.home.returned);
        }
        match self.shelf.classes[class].free.is_empty() {
            true => None,
            false => self.take(bytes),
        }
    }

    /// Takes one buffer for each length in `wanted`, or none at all; false if they are not all
    /// there. `taken` is empty before.
    pub fn take_all(
        &mut self,
        wanted: impl IntoIterator<Item = usize>,
        taken: &mut Vec<Buf>,
    ) -> bool {
        let all = wanted.into_iter().all(|bytes| {
            let buf = self.take(bytes);
            let there = buf.is_some();
            taken.extend(buf);
            there
        });
        if !all {
            taken.clear();
        }
        all
    }

    /// Address and length of every buffer, in the order of [`Buf::index`], for registration.
    pub fn addresses(&self) -> &[(usize, usize)] {
        &self.addresses
    }

    /// Bytes of the largest class.
    pub fn largest(&self) -> usize {
        self.shelf.classes.last().map_or(0, |class| class.bytes)
    }

    /// Buffers of the largest class, free or not.
    pub fn largest_count(&self) -> usize {
        let largest = |entry: &&(usize, usize)| entry.1 == self.largest();
        self.addresses.iter().filter(largest).count()
    }

    /// Free buffers at this moment, all classes together.
    pub fn free(&self) -> usize {
        let classes = self.shelf.classes.iter();
        classes.map(|class| class.free.len()).sum::<usize>() + self.home.returned.len()
    }
}

/// A pool from which any thread takes, one after the other: for requests of the same process.
#[derive(Clone, Debug)]
pub struct SharedPool {
    pool: Arc<Mutex<Pool>>,
    addresses: Arc<[(usize, usize)]>,
}

impl SharedPool {
    /// As [`Pool::new`].
    pub fn new(stock: &[(usize, usize)]) -> SharedPool {
        SharedPool::of(Pool::new(stock))
    }

    /// As [`Pool::try_new`].
    pub fn try_new(stock: &[(usize, usize)]) -> Option<SharedPool> {
        Pool::try_new(stock).map(SharedPool::of)
    }

    fn of(pool: Pool) -> SharedPool {
        SharedPool {
            addresses: pool.addresses().into(),
            pool: Arc::new(Mutex::new(pool)),
        }
    }

    /// As [`Pool::take`].
    pub fn take(&self, bytes: usize) -> Option<Buf> {
        let pool = self.pool.lock();
        pool.expect("no thread panics while it holds the pool")
            .take(bytes)
    }

    /// As [`Pool::addresses`].
    pub fn addresses(&self) -> &[(usize, usize)] {
        &self.addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_last_clone_drops() {
        let mut pool = Pool::new(&[(4096, 2)]);
        let one = pool.take(100).expect("two are there");
        let clone = one.clone();
        drop(one);
        assert_eq!(pool.free(), 1);
        drop(clone);
        assert_eq!(pool.free(), 2);
    }

    #[test]
    fn what_other_threads_give_back_is_taken_before_a_larger_one() {
        let mut pool = Pool::new(&[(4096, 2), (16384, 1)]);
        for _ in 0..3 {
            let small = [pool.take(1), pool.take(1)].map(|buf| buf.expect("two are there"));
            let elsewhere = std::thread::spawn(move || drop(small));
            elsewhere.join().expect("dropping does not panic");
            assert_eq!(pool.take(1).map(|buf| buf.len()), Some(4096));
        }
        assert_eq!(pool.free(), 3);
    }

    #[test]
    fn buffers_of_a_pool_lie_apart_in_one_aligned_allocation_and_hold_zeros() {
        let mut pool = Pool::new(&[(4096, 3), (16384, 2)]);
        let mut at: Vec<(usize, usize)> = pool.addresses().to_vec();
        at.sort_unstable();
        assert!(at.iter().all(|(address, _)| address % PAGE == 0));
        assert!(at.windows(2).all(|two| two[0].0 + two[0].1 == two[1].0));
        let mut bufs: Vec<Buf> = std::iter::from_fn(|| pool.take(1)).collect();
        assert!(bufs.iter().all(|buf| buf.bytes().iter().all(|&b| b == 0)));
        for (n, buf) in (1..).zip(&mut bufs) {
            buf.bytes_mut().fill(n);
        }
        for (n, buf) in (1..).zip(&bufs) {
            assert!(buf.bytes().iter().all(|&b| b == n));
        }
    }

    #[test]
    fn a_pool_that_no_machine_has_memory_for_is_refused() {
        assert!(Pool::try_new(&[(1 << 20, usize::MAX >> 21)]).is_none());
        assert!(Pool::try_new(&[(4096, usize::MAX)]).is_none());
    }

    #[test]
    fn all_or_none_are_taken() {
        let mut pool = Pool::new(&[(4096, 1), (16384, 1)]);
        let mut taken = Vec::new();
        assert!(!pool.take_all([4096, 16384, 1], &mut taken));
        assert_eq!((pool.free(), taken.len()), (2, 0));
        assert!(pool.take_all([1, 1], &mut taken), "the larger serves, too");
        assert_eq!((taken[0].len(), taken[1].len()), (4096, 16384));
    }

    /// A drive that never answered kept every buffer of the pool, and the array stood still.
    #[test]
    fn an_orphan_is_replaced_at_once_and_does_not_come_back() {
        let mut pool = Pool::new(&[(4096, 1)]);
        let held = pool.take(1).expect("one is there");
        assert!(pool.take(1).is_none());
        held.orphan();
        held.clone().orphan();
        assert_eq!(pool.free(), 1, "once, however often it is said");
        let fresh = pool.take(1).expect("the one in its place");
        assert_eq!(fresh.index(), None, "it is not registered");
        drop(fresh);
        drop(held);
        assert_eq!(pool.free(), 1);
    }
}

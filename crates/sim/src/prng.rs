//! The only source of chance in the simulator.
//!
//! Invariants:
//! * Everything random comes from the seed: the same seed and purpose give the same numbers.
//! * Each purpose has a stream of its own, so that leaving out faults (as shrinking does) does not
//!   change the geometry or the requests.
//!
//! Deliberately absent: any other source of randomness, and hashing with random state.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// What a stream of numbers is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Geometry, swarm weights, number of lives.
    Plan = 1,
    /// Requests.
    Workload = 2,
    /// Latencies of devices and messages.
    Latency = 3,
    /// Which faults when.
    Faults = 4,
    /// What survives a power cut; what a discarded block holds.
    Fate = 5,
    /// Identities of arrays and members, first content of devices.
    Identity = 6,
    /// When a planted bug strikes.
    Canary = 7,
    /// What a seed is after.
    Focus = 8,
    /// How many shards a start has.
    Shards = 9,
    /// When devices have latency faults, and what the engine does about them.
    LatencyFault = 10,
    /// What is trimmed.
    Trim = 11,
    /// To which strips data moves.
    Strip = 12,
    /// To which groups data moves.
    Groups = 13,
    /// When the machine, or a thread, stands still.
    Standstill = 31,
    /// Which devices have no space, and when.
    Full = 35,
    /// What goes beyond the tolerance.
    Beyond = 16,
    /// Which seeds are courses, and what happens in them.
    Course = 23,
    /// Which images of members are taken, and put back.
    Past = 24,
    /// Which images of members are taken while the array serves, and given to it when their members
    /// have left.
    LiveImage = 32,
    /// What rots in the midst of everything.
    Decay = 27,
    /// Whether an array that is parted is started twice from one past.
    Branch = 33,
    /// Which numbers starts draw.
    Session = 34,
    /// When devices are reset, and when those that were out for it are there again.
    Reset = 21,
    /// When devices that are about to vanish fail all for a moment before.
    Removal = 22,
}

/// A seeded stream of numbers.
#[derive(Clone, Debug)]
pub struct Prng(ChaCha8Rng);

impl Prng {
    /// The stream of `seed` for `purpose`.
    pub fn new(seed: u64, purpose: Purpose) -> Prng {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(purpose as u64);
        Prng(rng)
    }
    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }
    /// A number in `0..n`; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(n)) >> 64) as u64
    }
    /// A number in `low..=high`.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
    /// An index in `0..n`.
    pub fn index(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }
    /// True in `percent` of a hundred cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    /// One of the items.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.index(items.len())]
    }
    /// An index, each as likely as its weight says.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let total: u64 = weights.iter().map(|&w| u64::from(w)).sum();
        let mut at = self.below(total);
        for (index, &weight) in weights.iter().enumerate() {
            if at < u64::from(weight) {
                return index;
            }
            at -= u64::from(weight);
        }
        weights.len() - 1
    }
    /// Sixteen random bytes, for an identity.
    pub fn bytes16(&mut self) -> [u8; 16] {
        let mut bytes = [0; 16];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
    /// Puts the items in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}

/// One step of SplitMix64: scatters `x` over all 64 bits.
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Fills `bytes` with words that follow from `seed`: fast, for arbitrary content.
pub fn fill(seed: u64, bytes: &mut [u8]) {
    let (words, rest) = bytes.as_chunks_mut::<8>();
    let mut state = mix(seed) | 1;
    for word in words {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(seed | 1);
        *word = (state ^ (state >> 29)).to_le_bytes();
    }
    rest.fill(0xa5);
}

/// A running hash of everything that happened: equal traces have equal hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceHash(u64);

impl Default for TraceHash {
    fn default() -> Self {
        TraceHash(0xcbf2_9ce4_8422_2325)
    }
}

impl TraceHash {
    /// Takes one word in.
    pub fn add(&mut self, word: u64) {
        self.0 = mix(self.0 ^ word);
    }
    /// The hash so far.
    pub fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_and_purpose_give_the_same_numbers_and_others_do_not() {
        let draw = |seed, purpose| {
            let mut rng = Prng::new(seed, purpose);
            (0..8).map(|_| rng.bits()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7, Purpose::Plan), draw(7, Purpose::Plan));
        assert_ne!(draw(7, Purpose::Plan), draw(8, Purpose::Plan));
        assert_ne!(draw(7, Purpose::Plan), draw(7, Purpose::Faults));
    }

    #[test]
    fn weights_of_zero_are_never_drawn() {
        let mut rng = Prng::new(1, Purpose::Plan);
        assert!((0..1000).all(|_| rng.weighted(&[0, 3, 0, 1]) % 2 == 1));
    }
}

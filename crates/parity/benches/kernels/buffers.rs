//! Buffers as an engine has them, their content, and its hash.

pub(crate) const PAGE: usize = 4096;

/// Bytes that begin at a page boundary.
pub(crate) struct Pages {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Pages {
    /// Every byte is written, so that memory is really there.
    pub(crate) fn new(length: usize) -> Pages {
        let bytes = vec![0xee; length + PAGE];
        let start = bytes.as_ptr().align_offset(PAGE);
        Pages {
            bytes,
            start,
            length,
        }
    }

    pub(crate) fn get(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    pub(crate) fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

/// xorshift64* words from a fixed seed.
pub(crate) fn fill(bytes: &mut [u8], seed: u64) {
    let mut state = seed | 1;
    for chunk in bytes.chunks_mut(8) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let word = state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// FNV-1a.
pub(crate) fn hash<'a>(slices: impl Iterator<Item = &'a [u8]>) -> u64 {
    slices.flatten().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// The columns cut into strips: one list of slices per stripe.
pub(crate) fn strips(columns: &[Pages], strip: usize) -> Vec<Vec<&[u8]>> {
    let stripes = 0..columns[0].length / strip;
    let of = |stripe: usize| {
        columns
            .iter()
            .map(move |c| &c.get()[stripe * strip..][..strip])
    };
    stripes.map(|stripe| of(stripe).collect()).collect()
}

pub(crate) fn strips_mut(columns: &mut [Pages], strip: usize) -> Vec<Vec<&mut [u8]>> {
    let mut stripes: Vec<Vec<&mut [u8]>> = Vec::new();
    stripes.resize_with(columns[0].length / strip, Vec::new);
    for column in columns {
        for (stripe, bytes) in stripes
            .iter_mut()
            .zip(column.get_mut().chunks_exact_mut(strip))
        {
            stripe.push(bytes);
        }
    }
    stripes
}

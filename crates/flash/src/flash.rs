//! A drive's flash without time: buffer, mapping, counters.

use crate::buffer::{Buffer, Leaving};
use crate::counters::{Counters, HandleCounters};
use crate::mapping::Mapping;

/// The shape of a drive's flash. A drive of a smaller capacity with the same unit, blocks and
/// over-provisioning wears as the whole one does, so models are scaled down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geometry {
    /// Indirection unit, bytes: a power of two, 512 bytes to 64 KiB.
    pub unit_bytes: u64,
    /// Units that a user can write.
    pub units: u32,
    /// Effective over-provisioning: room beyond the units, as a fraction of them. At least a block
    /// for each handle, or the room may all lie in blocks that are open.
    pub over_provisioning: f64,
    /// Units of an erase block.
    pub units_per_block: u32,
    /// Placement handles: append points of the host.
    pub handles: u8,
    /// Units of which parts wait in the write buffer.
    pub buffer_units: u32,
}

/// See the module.
pub struct Flash {
    geometry: Geometry,
    buffer: Buffer,
    mapping: Mapping,
    counters: Counters,
}

impl Flash {
    /// A new drive: nothing is mapped.
    ///
    /// # Panics
    /// Where the geometry is none: see [`Geometry`].
    pub fn new(geometry: Geometry) -> Flash {
        let Geometry {
            unit_bytes,
            units,
            over_provisioning,
            units_per_block,
            handles,
            buffer_units,
        } = geometry;
        assert!(unit_bytes.is_power_of_two() && (512..=64 << 10).contains(&unit_bytes));
        assert!(units > 0 && units_per_block > 0 && handles > 0);
        assert!(over_provisioning.is_finite() && over_provisioning > 0.0);
        let spare = (f64::from(units) * over_provisioning).round() as u64;
        assert!(
            spare >= u64::from(units_per_block) * u64::from(handles),
            "{spare} units beyond {units} are less than a block of {units_per_block} for each of \
             {handles} handles"
        );
        Flash {
            geometry,
            buffer: Buffer::new(unit_bytes, buffer_units),
            mapping: Mapping::new(units, spare, units_per_block, handles),
            counters: Counters {
                handles: vec![HandleCounters::default(); usize::from(handles)],
                ..Counters::default()
            },
        }
    }

    /// Its shape.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Bytes that a user can write.
    pub fn capacity(&self) -> u64 {
        u64::from(self.geometry.units) * self.geometry.unit_bytes
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The host reads.
    pub fn read(&mut self, _offset: u64, len: u64) {
        self.counters.host_read += len;
    }

    /// The host writes `len` bytes at `offset` with a placement handle; answers the bytes that were
    /// programmed for it until now. A handle that the drive does not have counts as handle 0.
    ///
    /// # Panics
    /// Where the range ends beyond the capacity.
    pub fn write(&mut self, offset: u64, len: u64, handle: u8) -> u64 {
        assert!(
            offset + len <= self.capacity(),
            "the write ends beyond the drive"
        );
        if len == 0 {
            return 0;
        }
        let handle = match handle < self.geometry.handles {
            true => handle,
            false => 0,
        };
        let unit_bytes = self.geometry.unit_bytes;
        let end = offset + len;
        self.counters.host_written += len;
        self.counters.handles[usize::from(handle)].host_written += len;
        if !offset.is_multiple_of(unit_bytes) || !end.is_multiple_of(unit_bytes) {
            self.counters.unaligned += 1;
        }
        let before = self.counters.media_written;
        let mut at = offset;
        while at < end {
            let unit = (at / unit_bytes) as u32;
            let first = u64::from(unit) * unit_bytes;
            let to = end.min(first + unit_bytes);
            let Flash {
                buffer,
                mapping,
                counters,
                ..
            } = self;
            buffer.take(unit, at - first, to - first, handle, |leaving| {
                leave(mapping, counters, unit_bytes, leaving);
            });
            at = to;
        }
        self.counters.media_written - before
    }

    /// The host deallocates: whole units of the range hold nothing afterwards.
    pub fn deallocate(&mut self, offset: u64, len: u64) {
        let unit_bytes = self.geometry.unit_bytes;
        let first = offset.div_ceil(unit_bytes);
        let end = ((offset + len) / unit_bytes).min(u64::from(self.mapping.units()));
        for unit in first..end {
            self.buffer.forget(unit as u32);
            self.mapping.unmap(unit as u32);
        }
        self.counters.deallocated += end.saturating_sub(first) * unit_bytes;
    }
}

/// Programs a unit that leaves the buffer.
fn leave(mapping: &mut Mapping, counters: &mut Counters, unit_bytes: u64, leaving: Leaving) {
    if !leaving.whole && mapping.has(leaving.unit) {
        counters.completed += unit_bytes;
    }
    let mut moved_by = |handle: u8| {
        counters.handles[usize::from(handle)].media_written += unit_bytes;
    };
    let cost = mapping.program(leaving.unit, leaving.handle, &mut moved_by);
    counters.handles[usize::from(leaving.handle)].media_written += unit_bytes;
    counters.moved += cost.moved * unit_bytes;
    counters.erased += cost.erased;
    counters.media_written += (1 + cost.moved) * unit_bytes;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small drives of odd shapes under writes of any place and length, deallocations and handles:
    /// every invariant holds after each, and no byte is programmed without a cause.
    #[test]
    fn every_invariant_holds_whatever_the_host_does() {
        for seed in 0..200 {
            let mut rng = crate::rng::Rng::new(seed);
            let handles = 1 + (rng.next() % 4) as u8;
            let units = 50 + (rng.next() % 500) as u32;
            let units_per_block = 1 + (rng.next() % 40) as u32;
            let least = f64::from(units_per_block * u32::from(handles)) / f64::from(units);
            let mut flash = Flash::new(Geometry {
                unit_bytes: 512 << (rng.next() % 8),
                units,
                over_provisioning: least + 0.01 + rng.fraction() / 2.0,
                units_per_block,
                handles,
                buffer_units: (rng.next() % 9) as u32,
            });
            let sectors = flash.capacity() / 512;
            for _ in 0..2_000 {
                let first = rng.next() % sectors;
                let len = 1 + rng.next() % (sectors - first).min(300);
                let (offset, len) = (first * 512, len * 512);
                if rng.next().is_multiple_of(50) {
                    flash.deallocate(offset, len);
                } else {
                    flash.write(offset, len, (rng.next() % 5) as u8);
                }
            }
            flash.mapping.check();
            let counters = flash.counters();
            let by_handle: u64 = counters.handles.iter().map(|h| h.media_written).sum();
            assert_eq!(by_handle, counters.media_written, "seed {seed}");
            let hosts: u64 = counters.handles.iter().map(|h| h.host_written).sum();
            assert_eq!(hosts, counters.host_written, "seed {seed}");
            assert!(counters.moved <= counters.media_written);
        }
    }
}

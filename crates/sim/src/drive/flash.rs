//! What the I/Os of a drive do to its flash, where the plan gives it one.
//!
//! Deliberately absent: time. When an I/O of the simulator ends is chance's, so that any order of
//! ends is met; how long drives take is the lab's (`strake-lab`).

use std::ops::Range;

use strake_engine::event::{IoKind, WritePurpose};
use strake_flash::{Flash, Geometry};

use crate::drive::written;

/// Units of which parts wait in the buffer of a drive: few, as these drives are small. On a whole
/// drive next to no random write meets another of its unit there.
const BUFFER_UNITS: u32 = 16;
const UNITS_PER_BLOCK: u32 = 64;
/// Room beyond what is written, as a fraction: collections move next to nothing, so that what is
/// counted is units.
const ROOM: f64 = 4.0;
/// Placement handles: one for each purpose.
const HANDLES: u8 = 5;

/// See the module.
#[derive(Default)]
pub struct Wear {
    flash: Option<Flash>,
    /// Batches of the stripe log that were padded to more than a block of it.
    pub padded: u64,
}

fn handle_of(purpose: WritePurpose) -> u8 {
    match purpose {
        WritePurpose::Data => 0,
        WritePurpose::Parity => 1,
        WritePurpose::Log => 2,
        WritePurpose::Metadata => 3,
        WritePurpose::Rebuild => 4,
    }
}

impl Wear {
    /// The flash of a drive of `bytes` that maps units of so many bytes.
    pub fn of(bytes: u64, unit_bytes: u32) -> Wear {
        let unit_bytes = u64::from(unit_bytes);
        let flash = Flash::new(Geometry {
            unit_bytes,
            units: bytes.div_ceil(unit_bytes) as u32,
            over_provisioning: ROOM,
            units_per_block: UNITS_PER_BLOCK,
            handles: HANDLES,
            buffer_units: BUFFER_UNITS,
        });
        Wear {
            flash: Some(flash),
            padded: 0,
        }
    }

    /// An I/O comes to the drive.
    pub(crate) fn see(&mut self, kind: &IoKind, granularity: u32, log: &Range<u64>) {
        if let Some((offset, len)) = written(kind).filter(|_| granularity > 4096) {
            let padded = len.is_multiple_of(u64::from(granularity));
            self.padded += u64::from(padded && log.contains(&offset));
        }
        let Some(flash) = &mut self.flash else {
            return;
        };
        match *kind {
            IoKind::Write { purpose, .. } => {
                let (offset, len) = written(kind).expect("a write");
                flash.write(offset, len, handle_of(purpose));
            }
            IoKind::Discard { offset, len, .. } => flash.deallocate(offset, len),
            _ => {}
        }
    }

    /// Bytes that the flash has programmed for writes of this purpose; 0 without a flash.
    pub fn programmed(&self, purpose: WritePurpose) -> u64 {
        let handle = usize::from(handle_of(purpose));
        let counters = self.flash.as_ref().map(Flash::counters);
        counters.map_or(0, |counters| counters.handles[handle].media_written)
    }
}

//! Redundancy, checked on the media while nothing runs.
//!
//! Invariant: in every region that was ever written, parity is that of the data and copies agree,
//! as far as blocks can be read. (One that cannot may hold what was there before its content was
//! given up: no read returns it.) In regions that wait for an administrator copies may differ until
//! then.
//!
//! Deliberately absent: the content itself, which is the oracle's to judge.

use strake_engine::units::{RegionNo, StripeNo};
use strake_format::RegionState;
use strake_parity::Code;

use crate::world::inspect::Look;
use crate::world::{Drive, World};

/// Checks every stripe that has all members in sync, but for regions `left` to an administrator.
///
/// # Errors
/// The first stripe with untrue redundancy, as text.
pub(super) fn check(
    world: &World,
    states: &[RegionState],
    looks: &[Look],
    left: &[RegionNo],
) -> Result<(), String> {
    let geometry = &world.geometry;
    if geometry.m == 0 {
        return Ok(());
    }
    for stripe in (0..geometry.stripes()).map(StripeNo) {
        let (_, row) = geometry.row(stripe);
        if !geometry.exists(stripe) {
            continue;
        }
        // What rotted before it began to move, and has not been written anew.
        if world.is_carried(stripe) {
            continue;
        }
        let k = geometry.columns(stripe).k;
        let code = Code::new(k, if geometry.mirrored() { 1 } else { geometry.m })
            .map_err(|error| error.to_string())?;
        let region = geometry.region(row);
        if states[region.0 as usize] == RegionState::Unwritten || left.contains(&region) {
            continue;
        }
        let Some(columns) = columns(world, looks, stripe) else {
            continue;
        };
        let block = geometry.block as usize;
        let whole = columns.iter().all(Column::whole);
        let step = if whole { columns[0].bytes.len() } else { block };
        let agrees = (0..columns[0].bytes.len()).step_by(step).all(|at| {
            let readable = columns.iter().enumerate();
            let readable = readable.filter(|(_, column)| column.readable(at, step));
            let parts = readable.map(|(index, column)| (index, &column.bytes[at..at + step]));
            let parts: Vec<(usize, &[u8])> = parts.collect();
            match geometry.mirrored() {
                true => parts.windows(2).all(|pair| pair[0].1 == pair[1].1),
                false if whole => {
                    let all: Vec<&[u8]> = parts.iter().map(|&(_, bytes)| bytes).collect();
                    code.check(&all[..k], &all[k..])
                }
                false => computed(&code, k, &parts),
            }
        });
        if !agrees {
            let state = states[region.0 as usize];
            return Err(format!(
                "on the media, {stripe} (row {}, region {}, {state:?}): redundancy is untrue",
                row.0, region.0
            ));
        }
    }
    Ok(())
}

/// Every part is what the first `k` say that it is.
fn computed(code: &Code, k: usize, parts: &[(usize, &[u8])]) -> bool {
    let Some((first, rest)) = parts.split_at_checked(k) else {
        return true;
    };
    let sources: Vec<usize> = first.iter().map(|&(index, _)| index).collect();
    let inputs: Vec<&[u8]> = first.iter().map(|&(_, bytes)| bytes).collect();
    rest.iter().all(|&(index, bytes)| {
        let decoder = code.decoder(&sources, &[index]).expect("k are enough");
        let mut out = vec![0; bytes.len()];
        decoder.decode(&inputs, &mut [&mut out]);
        out == bytes
    })
}

/// A strip on its drive.
struct Column<'w> {
    bytes: &'w [u8],
    drive: &'w Drive,
    /// First byte of the drive.
    first: usize,
}

impl Column<'_> {
    fn readable(&self, from: usize, len: usize) -> bool {
        let block = |at: usize| (self.first + at) as u64 / self.drive.ssd.block;
        !self
            .drive
            .ssd
            .faults
            .unreadable(block(from), block(from + len))
    }

    fn whole(&self) -> bool {
        self.readable(0, self.bytes.len())
    }
}

fn columns<'w>(world: &'w World, looks: &[Look], stripe: StripeNo) -> Option<Vec<Column<'w>>> {
    let geometry = &world.geometry;
    let (_, row) = geometry.row(stripe);
    let offset = (world.superblock.layout.data_offset + geometry.row_offset(row)) as usize;
    let strip = geometry.strip as usize;
    let column = |column: usize| {
        let slot = geometry.slot(stripe, column);
        let drive = &world.drives[looks[slot.index()].in_sync?];
        Some(Column {
            bytes: &drive.ssd.bytes()[offset..offset + strip],
            drive,
            first: offset,
        })
    };
    let width = geometry.columns(stripe).width;
    (0..width).map(column).collect()
}

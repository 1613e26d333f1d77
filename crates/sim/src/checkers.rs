//! Redundancy, checked on the media while nothing runs.
//!
//! Invariant: in every region that was ever written, parity is that of the data and copies agree.
//!
//! Deliberately absent: the content itself, which is the oracle's to judge.

use strake_engine::units::StripeNo;
use strake_format::RegionState;
use strake_parity::Code;

use crate::look::Look;
use crate::world::World;

/// Checks every stripe whose members are all in sync.
///
/// # Errors
/// The first stripe whose redundancy is untrue, in words.
pub fn redundancy(world: &World, states: &[RegionState], looks: &[Look]) -> Result<(), String> {
    let geometry = &world.geometry;
    if geometry.m == 0 {
        return Ok(());
    }
    for stripe in (0..geometry.stripes()).map(StripeNo) {
        let (_, row) = geometry.row(stripe);
        if !geometry.counts(row) {
            continue;
        }
        let k = geometry.columns(stripe).k;
        let code = Code::new(k, if geometry.mirrored() { 1 } else { geometry.m })
            .map_err(|error| error.to_string())?;
        let region = geometry.region(row);
        if states[region.0 as usize] == RegionState::Unwritten {
            continue;
        }
        let Some(columns) = columns(world, looks, stripe) else {
            continue;
        };
        let (data, stored) = columns.split_at(k);
        let agrees = if geometry.mirrored() {
            stored.iter().all(|copy| *copy == data[0])
        } else {
            code.check(data, stored)
        };
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

fn columns<'w>(world: &'w World, looks: &[Look], stripe: StripeNo) -> Option<Vec<&'w [u8]>> {
    let geometry = &world.geometry;
    let (_, row) = geometry.row(stripe);
    let offset = (world.superblock.layout.data_offset + geometry.row_offset(row)) as usize;
    let strip = geometry.strip as usize;
    let column = |column: usize| {
        let slot = geometry.slot(stripe, column);
        let drive = looks[slot.index()].in_sync?;
        Some(&world.drives[drive].ssd.bytes()[offset..offset + strip])
    };
    let width = geometry.columns(stripe).width;
    (0..width).map(column).collect()
}

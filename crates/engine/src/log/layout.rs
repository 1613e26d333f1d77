//! How a log area is divided into lanes, and what lies there.
//!
//! Invariant: the batch of any one operation fits twice into the ring of a lane.
//!
//! Deliberately absent: when a place of the ring may be written over (`shard::log_writer`).

use strake_format::LogRecord;

use crate::geometry::Geometry;
use crate::mem::buffer::Slice;
use crate::mem::list::{List, listed};
use crate::proto::DeviceInfo;

const BLOCK: u64 = 4096;
/// The smallest sector of a member, bytes: no cut tears what is as short.
pub(crate) const SECTOR: u64 = 512;

pub(crate) type Record = LogRecord<Slice>;

/// The records of one operation for one member: an intent and a partial syndrome, as a rule.
pub(crate) type Records = List<Record, 2>;

listed!(Record);

/// What a batch is padded to on this member. A drive without a volatile cache keeps parts of its
/// units in memory that survives a power cut, and writes a unit when it is whole: batches that lie
/// side by side share units there. One with a volatile cache writes each batch before it answers,
/// so that a batch in a unit of another would write that unit again.
pub(crate) fn granularity(device: &DeviceInfo) -> u32 {
    match device.granularity_bytes {
        _ if !device.volatile_cache => BLOCK as u32,
        bytes @ 4097..=65536 if bytes.is_multiple_of(BLOCK as u32) => bytes,
        _ => BLOCK as u32,
    }
}

/// How a log area is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPlan {
    /// Bytes of a lane.
    pub lane_bytes: u64,
    /// Bytes at the end that recoveries use.
    pub recovery_bytes: u64,
    /// The longest run of a strip that one operation covers, bytes.
    pub run_bytes: u64,
    /// The most that a batch is padded to, bytes.
    pub(crate) granule: u64,
}

/// The largest batch of one operation over `run` bytes of each strip: its records, a partial
/// syndrome, and the strips that may be lost, or partial syndromes in place of some of these.
/// `unit`: see [`sums_bytes`].
pub(crate) fn batch_of_run(geometry: &Geometry, run: u64, unit: u64) -> u64 {
    let blocks = run / geometry.block;
    let m = geometry.m as u64;
    let k = geometry.width_most() as u64 - m;
    let of_block = (2 + m) * strake_format::log::RECORD_BYTES as u64 + 4 * (k + m);
    let records = blocks * (of_block + sums_bytes(geometry, unit));
    let header = (strake_format::log::HEADER_BYTES as u64 + records).next_multiple_of(BLOCK);
    header + (1 + m) * run.next_multiple_of(BLOCK)
}

/// What checksums of units of a block take, beside those of the block: a record, and one for each
/// unit of each column. Members with such small sectors need them: see `log::recover`.
pub(crate) fn sums_bytes(geometry: &Geometry, unit: u64) -> u64 {
    match geometry.block / unit {
        1 => 0,
        units => {
            let columns = geometry.width_most() as u64;
            strake_format::log::RECORD_BYTES as u64 + 4 * units * columns
        }
    }
}

/// The longest run of a strip, within that of the plan, of which records fit with checksums of
/// units; `None` if they fit with none.
pub(crate) fn run_with_sums(geometry: &Geometry, plan: &LogPlan, unit: u64) -> Option<u64> {
    let ring = plan.lane_bytes.saturating_sub(2 * plan.granule);
    let fits = |run: &u64| {
        let batch = batch_of_run(geometry, *run, unit) + plan.granule;
        2 * batch <= ring && batch <= strake_format::log::BATCH_BYTES_MAX as u64
    };
    let halves = std::iter::successors(Some(plan.run_bytes), |run| Some(run / 2));
    let mut halves = halves.take_while(|run| *run >= geometry.block);
    halves.find(fits)
}

/// The least that a recovery needs: two places for what one block of a row needs.
fn recovery_least(geometry: &Geometry) -> u64 {
    2 * (2 * BLOCK + 2 * geometry.m as u64 * geometry.block.max(BLOCK))
}

/// Divides a log of `bytes` among `shards`; `None` if it is too small for as many.
pub fn divide(geometry: &Geometry, bytes: u64, shards: u16) -> Option<LogPlan> {
    let whole = |bytes: u64| bytes / BLOCK * BLOCK;
    let recovery = (bytes / 8).max(recovery_least(geometry)).min(8 << 20);
    let recovery_bytes = recovery / (2 * BLOCK) * (2 * BLOCK);
    let lane_bytes = whole(bytes.checked_sub(recovery_bytes)? / u64::from(shards));
    // Two places that publish, and twice the largest batch with room to pad it.
    let granule = 65536.min(lane_bytes / 8 / BLOCK * BLOCK).max(BLOCK);
    let of_lanes = |lane_bytes: u64| {
        let ring = lane_bytes.checked_sub(2 * granule)?;
        let fits = |run: &u64| {
            let batch = batch_of_run(geometry, *run, geometry.block) + granule;
            2 * batch <= ring && batch <= strake_format::log::BATCH_BYTES_MAX as u64
        };
        let mut run = Some(geometry.strip);
        while let Some(bytes) = run.filter(|bytes| !fits(bytes)) {
            run = (bytes / 2 >= geometry.block).then_some(bytes / 2);
        }
        run.map(|run_bytes| LogPlan {
            lane_bytes,
            recovery_bytes,
            run_bytes,
            granule,
        })
    };
    // What is padded begins where devices write whole pieces, in every lane, unless that costs room
    // that an operation needs.
    let aligned = of_lanes(lane_bytes - lane_bytes % (1 << granule.ilog2()));
    let plain = of_lanes(lane_bytes);
    let run = |plan: &Option<LogPlan>| plan.as_ref().map(|plan| plan.run_bytes);
    if run(&aligned) == run(&plain) {
        aligned
    } else {
        plain
    }
}

/// The smallest log that `shards` can share; with `whole`, so that an operation may cover whole
/// strips.
pub fn least_bytes(geometry: &Geometry, shards: u16, whole: bool) -> u64 {
    let enough = |bytes: u64| {
        let run = divide(geometry, bytes, shards).map(|plan| plan.run_bytes);
        run.is_some_and(|run| !whole || run == geometry.strip)
    };
    let mut high = BLOCK;
    while !enough(high) {
        high *= 2;
    }
    let mut low = high / 2;
    while high - low > BLOCK {
        let middle = (low + high) / 2 / BLOCK * BLOCK;
        match enough(middle) {
            true => high = middle,
            false => low = middle,
        }
    }
    high
}

/// The most shards that the log of this array has room for; `wanted` where it needs none.
pub fn shards_for(superblock: &strake_format::Superblock, wanted: u16) -> u16 {
    let geometry = Geometry::of(superblock);
    let needs = geometry.m > 0
        && !geometry.mirrored()
        && superblock.write_hole != strake_format::WriteHole::Resync;
    let fits =
        |shards: &u16| !needs || divide(&geometry, superblock.layout.log_bytes, *shards).is_some();
    (1..=wanted.max(1)).rev().find(fits).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(k: usize, m: usize) -> Geometry {
        Geometry {
            level: strake_format::Level::Nm {
                n: k as u8,
                m: m as u8,
            },
            groups: 1,
            per_row: 1,
            width: k + m,
            k,
            m,
            fixed: 0,
            strip: 65536,
            block: 4096,
            band: 1,
            rows: 1,
            region_rows: 1,
            old_shape: None,
        }
    }

    /// A batch that is padded to 16 KiB and begins 4 KiB behind a multiple of it makes the device
    /// read back two pieces, and the padding is in vain.
    #[test]
    fn every_lane_begins_where_devices_write_whole_pieces() {
        for bytes in [6 << 20, 7 << 20, 64 << 20] {
            for shards in 1..=6 {
                let plan = divide(&geometry(4, 2), bytes, shards).expect("there is room");
                for wanted in [8192, 16384, 32768, 65536] {
                    let padded = wanted <= plan.granule;
                    let whole = plan.lane_bytes.is_multiple_of(wanted);
                    assert!(
                        !padded || whole,
                        "{bytes} for {shards}: {wanted} and lanes of {}",
                        plan.lane_bytes
                    );
                }
            }
        }
    }

    /// A log that was just large enough for an older Strake is large enough: no array is refused
    /// for the sake of whole pieces.
    #[test]
    fn a_log_without_room_for_whole_pieces_is_divided_all_the_same() {
        for shards in 1..=16 {
            for (k, m) in [(2, 1), (4, 2), (8, 3), (20, 4)] {
                let geometry = geometry(k, m);
                let least = least_bytes(&geometry, shards, false);
                let plan = divide(&geometry, least, shards);
                assert!(plan.is_some(), "{k}+{m}, {shards} shards, {least}");
            }
        }
    }
}

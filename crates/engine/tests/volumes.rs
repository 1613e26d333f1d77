//! Volumes: which volume gets which units, where their bytes lie, and a power cut at every moment
//! of every change of the table: after any step, and within each write at any sector.
//!
//! The device here is as unkind as an array that loses power may be: of what was written since the
//! last flush any sectors may be missing.

use std::ops::Range;

use proptest::prelude::*;
use strake_engine::Geometry;
use strake_engine::buffers::{Pool, Slice};
use strake_engine::event::{Op, Reply, Request};
use strake_engine::units::RequestId;
use strake_engine::volumes::*;
use strake_engine::{Router, VolumeMap};
use strake_format::volumes::{VOLUME_AREA_BYTES, VOLUME_TABLE_BYTES, VOLUME_TABLE_OFFSETS};
use strake_format::{
    ArrayName, ArrayUuid, ChosenTable, Level, Volume, VolumeTable, VolumeTableError, VolumeUuid,
    select_table,
};

const UNIT: u64 = 64 << 10;
/// The first that is not the table's.
const FIRST: u32 = (VOLUME_AREA_BYTES / UNIT) as u32;
const SECTOR: usize = 512;
const ARRAY: ArrayUuid = ArrayUuid([9; 16]);
/// Ten units for volumes behind the table, and half a one that cannot be given out.
const GROUND: Ground = Ground {
    block_bytes: 4096,
    size_bytes: VOLUME_AREA_BYTES + 10 * UNIT + UNIT / 2,
};

fn name(text: &str) -> ArrayName {
    text.parse().expect("a name")
}

fn empty() -> VolumeTable {
    VolumeTable::empty(ARRAY, UNIT)
}

fn new(id: u8, text: &str, size_bytes: u64) -> NewVolume {
    NewVolume {
        uuid: VolumeUuid([id; 16]),
        name: name(text),
        size_bytes,
        created_unix_s: 1,
    }
}

fn made(table: &VolumeTable, id: u8, text: &str, size_bytes: u64) -> VolumeTable {
    create(table, GROUND, new(id, text, size_bytes)).expect("there is room")
}

fn pieces(volume: &Volume) -> Vec<(u32, u32)> {
    volume
        .extents
        .iter()
        .map(|e| (e.first - FIRST, e.units))
        .collect()
}

#[test]
fn volumes_get_room_while_there_is_any_and_errors_have_names() {
    let a = made(&empty(), 1, "a", 3 * UNIT - 4096);
    assert_eq!(pieces(&a.volumes[0]), [(0, 3)]);
    let ab = made(&a, 2, "b", UNIT);
    let abc = made(&ab, 3, "c", 2 * UNIT);
    assert_eq!(free_bytes(&abc, GROUND), 4 * UNIT);
    let refused = |id, text: &str, bytes| create(&abc, GROUND, new(id, text, bytes)).err();
    assert_eq!(
        refused(4, "d", 4 * UNIT + 4096),
        Some(VolumeError::NoSpace {
            free_bytes: 4 * UNIT,
            needed_bytes: 5 * UNIT
        })
    );
    assert_eq!(refused(4, "a", UNIT), Some(VolumeError::NameTaken));
    for size_bytes in [0, UNIT + 512] {
        let odd = VolumeError::Size {
            size_bytes,
            block_bytes: 4096,
        };
        assert_eq!(refused(4, "d", size_bytes), Some(odd));
    }
    assert_eq!(delete(&abc, "d").err(), Some(VolumeError::NoSuchVolume));
    assert_eq!(
        rename(&abc, "b", name("c")).err(),
        Some(VolumeError::NameTaken)
    );
    let same = rename(&abc, "b", name("b")).expect("it has it");
    assert_eq!(same, abc);
    // What fits goes where it fits best; what fits nowhere as a whole takes several pieces.
    let holes = delete(&abc, "b").expect("it is there");
    assert_eq!(pieces(&made(&holes, 4, "d", UNIT).volumes[2]), [(3, 1)]);
    let scattered = made(&holes, 4, "d", 5 * UNIT);
    assert_eq!(pieces(&scattered.volumes[2]), [(3, 1), (6, 4)]);
    assert_eq!(free_bytes(&scattered, GROUND), 0);
    assert_eq!(scattered.check(), Ok(()));
}

#[test]
fn growing_moves_nothing_and_shrinking_gives_back_the_end() {
    let table = made(&made(&empty(), 1, "a", 2 * UNIT), 2, "b", UNIT);
    let grown = resize(&table, GROUND, "b", 3 * UNIT, false).expect("there is room");
    assert_eq!(
        pieces(&grown.volumes[1]),
        [(2, 3)],
        "one piece behind its own"
    );
    let grown = resize(&grown, GROUND, "a", 4 * UNIT + 4096, false).expect("there is room");
    assert_eq!(pieces(&grown.volumes[0]), [(0, 2), (5, 3)]);
    let refused = resize(&grown, GROUND, "a", UNIT, false).err();
    let shrinks = VolumeError::WouldShrink {
        has_bytes: 4 * UNIT + 4096,
        gets_bytes: UNIT,
    };
    assert_eq!(refused, Some(shrinks));
    let small = resize(&grown, GROUND, "a", UNIT + 4096, true).expect("it was said");
    assert_eq!(pieces(&small.volumes[0]), [(0, 2)]);
    let mut after = small.clone();
    let steps = steps(&grown, &mut after);
    let given_up = |step: &Step| matches!(step, Step::Discard(_) | Step::Zero(_));
    let last: Vec<&Step> = steps.iter().filter(|step| given_up(step)).collect();
    let at = |units: u64| VOLUME_AREA_BYTES + units * UNIT;
    let tail = at(1) + 4096..at(2);
    assert_eq!(last, [&Step::Discard(at(5)..at(8)), &Step::Zero(tail)]);
    let acknowledged = steps.iter().position(|step| *step == Step::Acknowledge);
    let first = steps.iter().position(given_up);
    assert!(acknowledged < first, "what is given up is kept until then");
}

/// An array that loses power. What was written and not flushed may be there or not, sector by
/// sector.
#[derive(Clone)]
struct Disk {
    durable: Vec<u8>,
    now: Vec<u8>,
}

impl Disk {
    fn new(fill: u8) -> Disk {
        let mut bytes = vec![fill; GROUND.size_bytes as usize];
        bytes[..VOLUME_AREA_BYTES as usize].fill(0);
        Disk {
            durable: bytes.clone(),
            now: bytes,
        }
    }

    fn put(&mut self, range: Range<u64>, bytes: &[u8]) {
        self.now[range.start as usize..range.end as usize].copy_from_slice(bytes);
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Flush => self.durable.clone_from(&self.now),
            Step::Write(at, bytes) => self.put(*at..at + bytes.len() as u64, bytes),
            Step::Zero(range) | Step::Discard(range) => {
                let zeros = vec![0; (range.end - range.start) as usize];
                self.put(range.clone(), &zeros);
            }
            Step::Acknowledge => {}
        }
    }

    /// What is there after a power cut: of the sectors that changed, those that `kept` names.
    fn cut(&self, kept: impl Fn(usize) -> bool) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        let sectors = self
            .now
            .chunks_exact(SECTOR)
            .zip(bytes.chunks_exact_mut(SECTOR));
        let mut changed = 0;
        for (now, then) in sectors {
            if now != then {
                if kept(changed) {
                    then.copy_from_slice(now);
                }
                changed += 1;
            }
        }
        bytes
    }
}

fn copies(bytes: &[u8]) -> [Result<Option<VolumeTable>, VolumeTableError>; 2] {
    VOLUME_TABLE_OFFSETS.map(|at| {
        let copy = &bytes[at as usize..(at + VOLUME_TABLE_BYTES) as usize];
        VolumeTable::decode(copy, at, ARRAY)
    })
}

/// The table that a start finds, once it has mended the copies; and with a copy lost after that.
fn found(bytes: &[u8]) -> VolumeTable {
    let whole = copies(bytes);
    for unread in 0..2 {
        let mut left = whole.clone();
        left[unread] = Err(VolumeTableError::Unreadable);
        if let Ok(chosen) = select_table(&left) {
            // A later start can read the copy again: it finds no other table.
            let later = copies(&repaired(bytes, &chosen));
            assert_eq!(select_table(&later).map(|it| it.table), Ok(chosen.table));
        }
    }
    let chosen = select_table(&whole).expect("one copy is whole, or none was ever written");
    let now = repaired(bytes, &chosen);
    let table = chosen.table.clone().unwrap_or_else(empty);
    if chosen.table.is_some() {
        for lost in 0..2 {
            let mut left = copies(&now);
            left[lost] = Err(VolumeTableError::Unreadable);
            let again = select_table(&left).expect("the other copy is whole");
            assert_eq!(again.table.as_ref(), Some(&table));
        }
    }
    table
}

/// What lies there once a start has mended the copies.
fn repaired(bytes: &[u8], chosen: &ChosenTable) -> Vec<u8> {
    let mut disk = Disk {
        durable: bytes.to_vec(),
        now: bytes.to_vec(),
    };
    for step in repair(chosen) {
        disk.step(&step);
    }
    disk.now
}

/// What users have of their volumes.
fn content(bytes: &[u8], table: &VolumeTable, name: &str) -> Option<Vec<u8>> {
    let volume = table.volume(name)?;
    let map = VolumeMap::of(table, volume, GROUND.block_bytes);
    let ranges = map.ranges(0, map.size());
    Some(
        ranges
            .flat_map(|range| {
                bytes[range.start as usize..range.end as usize]
                    .iter()
                    .copied()
            })
            .collect(),
    )
}

/// Carries a change out with a power cut at every moment; every start finds the table before or
/// after, never after it was acknowledged the one before; and what volumes hold that are in both
/// is what it was.
fn survives(disk: &mut Disk, before: &VolumeTable, mut after: VolumeTable) -> VolumeTable {
    let mut acknowledged = false;
    let check = |disk: &Disk, acknowledged: bool, after: &VolumeTable| {
        let most = disk.cut(|_| true);
        let sectors = disk
            .cut(|_| false)
            .iter()
            .zip(&most)
            .filter(|(a, b)| a != b)
            .count();
        let torn = [0, 1, 7, 8, 100, usize::MAX];
        for upto in torn
            .into_iter()
            .take(if sectors == 0 { 1 } else { torn.len() })
        {
            for bytes in [
                disk.cut(|n| n < upto),
                disk.cut(|n| n >= upto),
                disk.cut(|n| n != upto),
            ] {
                let table = found(&bytes);
                assert!(
                    table == *after || (table == *before && !acknowledged),
                    "{upto}"
                );
                for volume in &table.volumes {
                    let name = volume.name.as_str();
                    let is = content(&bytes, &table, name).expect("it is there");
                    match content(&disk.durable, before, name) {
                        Some(was) => {
                            let both = was.len().min(is.len());
                            assert_eq!(is[..both], was[..both], "{name}");
                            assert!(is[both..].iter().all(|&byte| byte == 0), "{name} has grown");
                        }
                        None => assert!(is.iter().all(|&byte| byte == 0), "{name} is new"),
                    }
                }
            }
        }
    };
    for step in steps(before, &mut after) {
        disk.step(&step);
        acknowledged |= step == Step::Acknowledge;
        check(disk, acknowledged, &after);
    }
    disk.step(&Step::Flush);
    after
}

fn fill(disk: &mut Disk, table: &VolumeTable, name: &str, byte: u8) {
    let volume = table.volume(name).expect("it is there");
    let map = VolumeMap::of(table, volume, GROUND.block_bytes);
    for range in map.ranges(0, map.size()) {
        let bytes = vec![byte; (range.end - range.start) as usize];
        disk.put(range, &bytes);
    }
    disk.step(&Step::Flush);
}

#[test]
fn a_power_cut_at_any_moment_of_any_change_leaves_the_table_before_or_after() {
    // What was there before the array was carved by force, say.
    let mut disk = Disk::new(0xee);
    let none = empty();
    let a = survives(&mut disk, &none, made(&none, 1, "a", 2 * UNIT));
    fill(&mut disk, &a, "a", 0xa1);
    let ab = survives(&mut disk, &a, made(&a, 2, "b", UNIT + 4096));
    fill(&mut disk, &ab, "b", 0xb1);
    let bigger = resize(&ab, GROUND, "a", 4 * UNIT, false).expect("there is room");
    let bigger = survives(&mut disk, &ab, bigger);
    fill(&mut disk, &bigger, "a", 0xa2);
    let smaller = resize(&bigger, GROUND, "a", 2 * UNIT + 4096, true).expect("it was said");
    let smaller = survives(&mut disk, &bigger, smaller);
    // What lay behind its end does not show again.
    let again = resize(&smaller, GROUND, "a", 5 * UNIT, false).expect("there is room");
    let again = survives(&mut disk, &smaller, again);
    let gone = delete(&again, "b").expect("it is there");
    let gone = survives(&mut disk, &again, gone);
    let c = survives(
        &mut disk,
        &gone,
        made(&gone, 3, "c", free_bytes(&gone, GROUND)),
    );
    assert_eq!(free_bytes(&c, GROUND), 0);
    assert_eq!(c.generation.0, 7);
}

#[test]
fn what_a_crash_kept_from_being_discarded_is_found() {
    let table = made(&made(&empty(), 1, "a", 2 * UNIT), 2, "b", UNIT);
    let holes = delete(&table, "a").expect("it is there");
    let free: Vec<Range<u64>> = free_ranges(&holes, GROUND).collect();
    let at = |units: u64| VOLUME_AREA_BYTES + units * UNIT;
    assert_eq!(free, [at(0)..at(2), at(3)..at(10)]);
}

fn geometry() -> Geometry {
    Geometry {
        level: Level::Raid5,
        groups: 1,
        per_row: 1,
        width: 3,
        k: 2,
        m: 1,
        fixed: 0,
        strip: 16384,
        block: 4096,
        band: 1,
        rows: 200,
        region_rows: 2,
        old_shape: None,
    }
}

#[test]
fn the_unit_of_an_array_is_a_region() {
    assert_eq!(unit_bytes(&geometry()), UNIT);
}

prop_compose! {
    fn any_extents()(
        lens in proptest::collection::vec(1..3u32, 1..4),
        turn in 0..4usize,
    ) -> Vec<strake_format::Extent> {
        let mut at = FIRST;
        let mut extents: Vec<_> = lens.into_iter().map(|units| {
            let first = at;
            at += units + 1;
            strake_format::Extent { first, units }
        }).collect();
        let turn = turn % extents.len();
        extents.rotate_left(turn);
        extents
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A request of a volume's user reaches every byte of it, in order, and no other byte.
    #[test]
    fn a_request_of_a_volume_goes_to_its_own_bytes(
        extents in any_extents(),
        shards in 1..4u16,
        (from, blocks) in (0..100u64, 1..100u64),
        kind in 0..4u8,
    ) {
        let units: u64 = extents.iter().map(|e| u64::from(e.units)).sum();
        let volume = Volume {
            uuid: VolumeUuid([1; 16]),
            name: name("v"),
            size_bytes: units * UNIT - 4096,
            created_unix_s: 0,
            extents: extents.clone(),
        };
        let map = VolumeMap::of(&empty(), &volume, 4096);
        let (offset, len) = (from * 4096, blocks * 4096);
        let bytes: Vec<u8> = (0..len).map(|at| (at / 4096) as u8).collect();
        let mut pool = Pool::new(&[(len as usize, 1)]);
        let mut buf = pool.take(len as usize).expect("there is one");
        buf.bytes_mut()[..len as usize].copy_from_slice(&bytes);
        let op = match kind {
            0 => Op::Read { offset, len },
            1 => Op::Write { offset, data: Slice::new(buf, 0, len as usize), fua: true },
            2 => Op::Discard { offset, len },
            _ => Op::ReadInPlace { offset, len, at: 0 },
        };
        let mut router = Router::new(geometry().into(), shards, 0);
        let mut pieces = Vec::new();
        let request = Request { id: RequestId(7), op };
        let refused = router.route_in(Some(&map), request, &mut pieces);
        if offset + len > volume.size_bytes {
            prop_assert!(refused.is_some_and(|reply| reply.result.is_err()));
            prop_assert!(pieces.is_empty());
            return Ok(());
        }
        prop_assert!(refused.is_none());
        // Where each block of the volume lies, told without the map.
        let mut places = Vec::new();
        for extent in &extents {
            let first = u64::from(extent.first) * UNIT / 4096;
            places.extend(first..first + u64::from(extent.units) * UNIT / 4096);
        }
        let mut wanted = places[from as usize..(from + blocks) as usize].iter();
        let mut at_byte = 0;
        let mut reply = None;
        for (_, piece) in pieces {
            let (at, len) = match &piece.op {
                Op::Read { offset, len } | Op::Discard { offset, len } => (*offset, *len),
                Op::ReadInPlace { offset, len, at } => {
                    prop_assert_eq!(*at, at_byte);
                    (*offset, *len)
                }
                Op::Write { offset, data, fua } => {
                    prop_assert!(*fua);
                    let own = &bytes[at_byte as usize..at_byte as usize + data.len];
                    prop_assert_eq!(data.bytes(), own);
                    (*offset, data.len as u64)
                }
                other => panic!("{other:?}"),
            };
            for block in at / 4096..(at + len) / 4096 {
                prop_assert_eq!(wanted.next(), Some(&block));
            }
            at_byte += len;
            prop_assert!(reply.is_none());
            reply = router.join(Reply { id: piece.id, result: Ok(Default::default()) });
        }
        prop_assert_eq!(wanted.next(), None);
        prop_assert_eq!(reply.map(|reply| reply.id), Some(RequestId(7)));
    }
}

//! Arrays that a block device could not have as many bytes as: refused by name, whatever asks for
//! them.

use strake_engine::create::{CreateError, CreateSpec, Definition, Init, plan};
use strake_engine::event::*;
use strake_engine::limits::{self, Joining, Shards};
use strake_engine::restore::{self, RestoreError, RestoreSpec, Told};
use strake_engine::volumes::{self, Ground, VolumeError};
use strake_format::*;

fn info(bytes: u64) -> DeviceInfo {
    DeviceInfo {
        bytes,
        block_bytes: 4096,
        granularity_bytes: 0,
        volatile_cache: false,
        dma: false,
    }
}

fn spec(level: Level, group_size: Option<u8>, members: u8, bytes: u64) -> CreateSpec {
    CreateSpec {
        array: ArrayUuid([9; 16]),
        name: "data".parse().expect("a name"),
        level,
        strip_bytes: None,
        group_size,
        block_bytes: None,
        write_hole: WriteHole::Closed,
        settings: Settings::default(),
        init: Init::Lazy,
        created_unix_s: 0,
        members: (1..=members)
            .map(|n| (info(bytes), MemberUuid([n; 16])))
            .collect(),
        spares: Vec::new(),
        tiny: None,
    }
}

#[test]
fn members_that_make_more_than_a_block_device_can_have_are_refused_whatever_the_level() {
    const HUGE: u64 = (1 << 63) - 4096;
    for (level, group, least, most) in [
        (Level::Raid0, None, 2, 8),
        (Level::Raid5, None, 3, 9),
        (Level::Raid6, None, 4, 10),
        (Level::Raid10, None, 4, 64),
        (Level::Raid50, Some(3), 6, 63),
        (Level::Nm { n: 6, m: 2 }, None, 8, 8),
    ] {
        for members in least..=most {
            if group.is_some_and(|group| members % group != 0)
                || level == Level::Raid10 && members % 2 != 0
            {
                continue;
            }
            let made = plan(&spec(level, group, members, HUGE));
            let refused = matches!(made, Err(CreateError::TooLarge { .. }));
            assert!(refused, "{members} members of level {level}");
        }
    }
    // One column of it is as large as a device can be.
    let mirror = plan(&spec(Level::Raid1, None, 3, HUGE)).expect("it has one column");
    assert!(mirror.size_bytes <= i64::MAX as u64);
}

#[test]
fn what_is_just_small_enough_is_made_and_one_column_more_is_refused() {
    // Three data columns of 2^61 bytes: below 2^63.
    let made = plan(&spec(Level::Raid5, None, 4, 1 << 61)).expect("it fits");
    let superblock = &made.superblocks[0];
    assert_eq!(superblock.size_bytes(), Some(made.size_bytes));
    assert!(made.size_bytes < 1 << 63);
    let size = limits::size_with(superblock, 2, DataShape::default());
    let refused = matches!(size, Err(CommandError::ArrayTooLarge { .. }));
    assert!(refused, "five columns: {size:?}");
    let shards = Shards {
        count: 1,
        strips: usize::MAX,
        granularity_bytes: 0,
    };
    let devices = vec![info(1 << 61); 2];
    let joining = Joining::Data(DataShape::default());
    let joins = limits::may_join(superblock, &devices, joining, shards);
    let refused = matches!(joins, Err(CommandError::ArrayTooLarge { .. }));
    assert!(refused, "{joins:?}");
}

#[test]
fn a_backup_that_tells_of_a_larger_array_is_refused() {
    let made = plan(&spec(Level::Raid0, None, 2, 1 << 61)).expect("it fits");
    let superblock = &made.superblocks[0];
    let wide = Superblock {
        members: 8,
        group_size: 8,
        ..superblock.clone()
    };
    let senseless = Invalid::Size(superblock.layout.data_bytes);
    assert_eq!(wide.check(), Err(senseless));
    let member = |n| (info(1 << 61), MemberUuid([n; 16]));
    let again = RestoreSpec {
        array: ArrayUuid([7; 16]),
        created_unix_s: 0,
        definition: Definition::of(&wide),
        members: (1..=8).map(member).collect(),
        told: Told::default(),
    };
    let refused = restore::superblocks(&again).err();
    assert_eq!(refused, Some(RestoreError::Definition(senseless)));
}

#[test]
fn a_volume_of_all_the_bytes_that_there_are_numbers_for_finds_no_room() {
    let ground = Ground {
        block_bytes: 4096,
        size_bytes: 1 << 40,
    };
    let table = VolumeTable::empty(ArrayUuid([9; 16]), 64 << 20);
    let new = volumes::NewVolume {
        uuid: VolumeUuid([1; 16]),
        name: "all".parse().expect("a name"),
        size_bytes: u64::MAX - 4095,
        created_unix_s: 0,
    };
    let refused = volumes::create(&table, ground, new).err();
    let full = |needed_bytes| needed_bytes == u64::MAX;
    assert!(
        matches!(refused, Some(VolumeError::NoSpace { needed_bytes, .. }) if full(needed_bytes))
    );
}

#[test]
fn a_table_of_volumes_with_extents_behind_the_largest_array_is_refused() {
    let mut table = VolumeTable::empty(ArrayUuid([9; 16]), 1 << 42);
    table.volumes.push(Volume {
        uuid: VolumeUuid([1; 16]),
        name: "far".parse().expect("a name"),
        size_bytes: 1 << 42,
        created_unix_s: 0,
        extents: vec![Extent {
            first: 1 << 22,
            units: 1,
        }],
    });
    assert_eq!(table.check(), Err(VolumeTableError::Extent(0)));
}

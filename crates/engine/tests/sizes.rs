//! Arrays that a block device could not have as many bytes as: refused by name, whatever asks for
//! them.

use std::sync::Arc;

use strake_engine::create::{CreateError, CreatePlan, CreateSpec, Definition, Init, plan};
use strake_engine::event::*;
use strake_engine::limits::{self, Joining, Shards};
use strake_engine::restore::{self, RestoreError, RestoreSpec, Told};
use strake_engine::units::{CommandId, DeviceId, ShardNo, Time};
use strake_engine::volumes::{self, Ground, VolumeError};
use strake_engine::{Array, HedgeRules, Pool, Shard, StartOptions};
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

/// A new array, and its only shard, over members that keep nothing.
struct Served {
    array: Array,
    shard: Shard,
}

fn found(made: &CreatePlan, at: usize, info: DeviceInfo) -> Found {
    let superblock = made.superblocks[at].clone();
    let written = |offset: u64| {
        let mut writes = made.writes[at].iter();
        let write = writes.find(|(first, _)| *first == offset);
        write.map(|(_, bytes)| &bytes[..]).unwrap_or_default()
    };
    let page = |page| {
        let read = |sequence| {
            let offset = region_map::place(&superblock.layout, page, sequence);
            MapPage::decode(written(offset), offset)
        };
        region_map::newest(read(0), read(1))
    };
    let lists = unreadable::places(&superblock.layout);
    Found {
        device: DeviceId(at as u32),
        info,
        copy_to_replace: 0,
        emptied: None,
        map: (0..superblock.layout.map_pages).map(page).collect(),
        map_whole: Vec::new(),
        unreadable: lists.map(|at| UnreadableList::decode(written(at), at).ok()),
        log: Vec::new(),
        superblock,
    }
}

impl Served {
    fn new(spec: &CreateSpec) -> Served {
        let made = plan(spec).expect("it fits");
        let members = spec.members.iter().enumerate();
        let found = members.map(|(at, (info, _))| found(&made, at, *info));
        let options = StartOptions {
            fold: true,
            shards: 1,
            force: false,
            clean_after_ms: 5000,
            hedging: HedgeRules::default(),
            window_bytes: 4 << 20,
            session: 1,
            unix_s: 0,
        };
        let mut array = Array::assemble(found.collect(), &options).expect("it starts");
        let setup = array.setup();
        let pool = Pool::new(&limits::stock(&Arc::clone(&setup.geometry), 64 << 20));
        let shard = Shard::new(ShardNo(0), 1, setup, pool);
        array.start(Time(0));
        let mut served = Served { array, shard };
        served.rest();
        served
    }

    /// Carries out effects until there are none; the answers to commands.
    fn rest(&mut self) -> Vec<Result<Changed, CommandError>> {
        let mut answers = Vec::new();
        let done = |io: MemberIo| Completion {
            io: io.io,
            result: Ok(()),
            buf: None,
        };
        loop {
            match (self.array.poll(), self.shard.poll()) {
                (None, None) => return answers,
                (array, shard) => {
                    match array {
                        Some(ArrayOutput::Io(io)) => self.array.complete(Time(0), done(io)),
                        Some(ArrayOutput::Message(_, message)) => {
                            self.shard.message(Time(0), message);
                        }
                        Some(ArrayOutput::Done { result, .. }) => answers.push(result),
                        _ => {}
                    }
                    match shard {
                        Some(ShardOutput::Io(io)) => self.shard.complete(Time(0), done(io)),
                        Some(ShardOutput::Message(message)) => {
                            self.array.message(Time(0), ShardNo(0), message);
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}

#[test]
fn growth_beyond_what_a_block_device_can_have_is_refused_and_changes_nothing() {
    let mut served = Served::new(&spec(Level::Raid5, None, 3, 1 << 61));
    let before = served.array.geometry().size();
    let grow = |bytes| Command::Grow((0..3).map(|at| (DeviceId(at), bytes)).collect());
    // Two data columns: what superblocks and logs take leaves these below 2^63.
    let fits = served.array.preflight(&grow(1 << 62));
    assert_eq!(fits, Ok(()));
    for bytes in [(1 << 62) + (1 << 40), (1 << 63) - 4096, u64::MAX - 4095] {
        let refused = served.array.preflight(&grow(bytes));
        let large = matches!(refused, Err(CommandError::ArrayTooLarge { .. }));
        assert!(large, "{bytes} bytes: {refused:?}");
        served.array.command(Time(0), CommandId(bytes), grow(bytes));
        let answers = served.rest();
        assert!(
            matches!(answers[..], [Err(CommandError::ArrayTooLarge { .. })]),
            "{bytes} bytes: {answers:?}"
        );
        assert_eq!(served.array.geometry().size(), before);
    }
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

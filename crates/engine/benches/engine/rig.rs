//! Members in memory that answer at once, and the machines of one array over them.

use std::sync::Arc;

use strake_engine::create::{CreateSpec, Init, plan};
use strake_engine::event::*;
use strake_engine::units::*;
use strake_engine::{Array, HedgeRules, Pool, Router, Shard, StartOptions, Target, limits};
use strake_format::{
    ArrayUuid, Layout, Level, MapPage, MemberUuid, Settings, Superblock, UnreadableList, WriteHole,
    region_map, unreadable,
};

pub(crate) const MEMBER_BYTES: u64 = 64 << 20;

/// Level, members, size of a group.
pub(crate) type Shape = (Level, usize, Option<u8>);

/// Members, the two machines and a router, driven to rest after every batch.
pub(crate) struct Rig {
    pub(crate) array: Array,
    pub(crate) shard: Shard,
    pub(crate) router: Router,
    pub(crate) disks: Vec<Vec<u8>>,
    /// Writes to logs and data are kept (otherwise only superblocks and tables are).
    pub(crate) keep: bool,
    pub(crate) kept_below: u64,
    pub(crate) replies: Vec<Reply>,
    pub(crate) pieces: Vec<(Target, Request)>,
    pub(crate) next: u64,
}

/// An array of empty members that is ready to start, what lies on them, and where data and records
/// begin there.
pub(crate) fn assembled(
    shape: Shape,
    strip: u32,
    write_hole: WriteHole,
    shards: u16,
) -> (Array, Vec<Vec<u8>>, u64) {
    let (level, members, group) = shape;
    let info = DeviceInfo {
        bytes: MEMBER_BYTES,
        block_bytes: 512,
        granularity_bytes: 0,
        volatile_cache: false,
        dma: false,
    };
    let spec = CreateSpec {
        array: ArrayUuid([7; 16]),
        name: "bench".parse().expect("a name"),
        level,
        strip_bytes: Some(strip),
        group_size: group,
        block_bytes: None,
        write_hole,
        settings: Settings::default(),
        init: Init::Lazy,
        created_unix_s: 0,
        members: (0..members)
            .map(|i| (info, MemberUuid([i as u8 + 1; 16])))
            .collect(),
        spares: Vec::new(),
        tiny: None,
    };
    let plan = plan(&spec).expect("the bench's geometry is valid");
    let mut disks = vec![vec![0; MEMBER_BYTES as usize]; members];
    for (disk, writes) in disks.iter_mut().zip(&plan.writes) {
        for (offset, bytes) in writes {
            disk[*offset as usize..*offset as usize + bytes.len()].copy_from_slice(bytes);
        }
    }
    let found = (0..members)
        .map(|at| Found {
            log: Vec::new(),
            device: DeviceId(at as u32),
            info,
            superblock: plan.superblocks[at].clone(),
            copy_to_replace: 0,
            emptied: None,
            map: pages(&disks[at], &plan.superblocks[at]),
            map_whole: Vec::new(),
            unreadable: lists(&disks[at], &plan.superblocks[at]),
        })
        .collect();
    let options = StartOptions {
        fold: true,
        shards,
        force: false,
        clean_after_ms: 5000,
        hedging: HedgeRules::default(),
        window_bytes: 4 << 20,
        session: 1,
        unix_s: 0,
    };
    let array = Array::assemble(found, &options).expect("a new array starts");
    let layout = &plan.superblocks[0].layout;
    let kept_below = layout.log_offset.min(layout.data_offset);
    (array, disks, kept_below)
}

impl Rig {
    pub(crate) fn new(shape: Shape, strip: u32, keep: bool, write_hole: WriteHole) -> Rig {
        let (mut array, disks, kept_below) = assembled(shape, strip, write_hole, 1);
        let setup = array.setup();
        let geometry = Arc::clone(&setup.geometry);
        let pool = Pool::new(&limits::stock(&geometry, 64 << 20));
        let shard = Shard::new(ShardNo(0), 1, setup, pool);
        let router = Router::new(geometry, 1, 0);
        array.start(Time(0));
        let replies = Vec::new();
        let mut rig = Rig {
            array,
            shard,
            router,
            disks,
            keep,
            kept_below,
            replies,
            pieces: Vec::new(),
            next: 0,
        };
        rig.rest();
        rig
    }

    pub(crate) fn io(&mut self, io: MemberIo) -> Completion {
        let disk = &mut self.disks[io.device.0 as usize];
        let kept = if self.keep { u64::MAX } else { self.kept_below };
        at_once(disk, kept, io)
    }

    /// Carries out effects until there are none.
    pub(crate) fn rest(&mut self) {
        loop {
            let mut quiet = true;
            while let Some(output) = self.array.poll() {
                quiet = false;
                match output {
                    ArrayOutput::Io(io) => {
                        let completion = self.io(io);
                        self.array.complete(Time(0), completion);
                    }
                    ArrayOutput::Message(_, message) => self.shard.message(Time(0), message),
                    ArrayOutput::Reply(reply) => self.replies.extend(self.router.join(reply)),
                    _ => {}
                }
            }
            while let Some(output) = self.shard.poll() {
                quiet = false;
                match output {
                    ShardOutput::Io(io) => {
                        let completion = self.io(io);
                        self.shard.complete(Time(0), completion);
                    }
                    ShardOutput::Message(message) => {
                        self.array.message(Time(0), ShardNo(0), message);
                    }
                    ShardOutput::Reply(reply) => self.replies.extend(self.router.join(reply)),
                    ShardOutput::Again(_) | ShardOutput::Pass(..) | ShardOutput::WriteToken(..) => {
                        unreachable!("one shard, and no data moves")
                    }
                }
            }
            if quiet {
                return;
            }
        }
    }

    pub(crate) fn submit(&mut self, op: Op) {
        self.next += 1;
        let request = Request {
            id: RequestId(self.next),
            op,
        };
        self.replies
            .extend(self.router.route(request, &mut self.pieces));
        for (target, piece) in self.pieces.drain(..) {
            match target {
                Target::Shard(_) => self.shard.submit(Time(0), piece),
                Target::Array => self.array.submit(Time(0), piece),
            }
        }
    }

    pub(crate) fn fail(&mut self, slot: u8) {
        self.array
            .command(Time(0), CommandId(1), Command::Fail(Slot(slot)));
        self.rest();
    }

    pub(crate) fn size(&self) -> u64 {
        self.array.geometry().size()
    }
}

/// Carries out a member's I/O; what it does from `kept_below` on leaves nothing behind, but for the
/// last superblock.
pub(crate) fn at_once(disk: &mut [u8], kept_below: u64, io: MemberIo) -> Completion {
    let last = Layout::superblock_offsets(disk.len() as u64)[1];
    let kept = |offset: u64| offset < kept_below || !disk.is_empty() && offset >= last;
    let buf = match io.kind {
        IoKind::Read {
            offset,
            mut buf,
            start,
            len,
        } => {
            if kept(offset) {
                let at = offset as usize;
                buf.bytes_mut()[start..start + len].copy_from_slice(&disk[at..at + len]);
            }
            Some(buf)
        }
        IoKind::ReadInPlace { .. } => unreachable!("no request here has a place"),
        IoKind::Write { offset, data, .. } => {
            if kept(offset) {
                let at = offset as usize;
                disk[at..at + data.len].copy_from_slice(data.bytes());
            }
            None
        }
        IoKind::WriteZeroes { offset, len } => {
            if kept(offset) {
                disk[offset as usize..(offset + len) as usize].fill(0);
            }
            None
        }
        IoKind::Discard { .. } | IoKind::Flush => None,
    };
    Completion {
        io: io.io,
        result: Ok(()),
        buf,
    }
}

pub(crate) fn pages(disk: &[u8], sb: &Superblock) -> Vec<Option<MapPage>> {
    let version = |page: u32, sequence: u64| {
        let offset = region_map::place(&sb.layout, page, sequence);
        MapPage::decode(
            &disk[offset as usize..offset as usize + region_map::PAGE_BYTES],
            offset,
        )
    };
    (0..sb.layout.map_pages)
        .map(|p| region_map::newest(version(p, 0), version(p, 1)))
        .collect()
}

pub(crate) fn lists(disk: &[u8], sb: &Superblock) -> [Option<UnreadableList>; 2] {
    unreadable::places(&sb.layout).map(|offset| {
        let at = offset as usize..offset as usize + sb.layout.unreadable_bytes as usize;
        UnreadableList::decode(&disk[at], offset).ok()
    })
}

/// A reproducible sequence of numbers (splitmix64).
pub(crate) struct Sequence(pub(crate) u64);

impl Sequence {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

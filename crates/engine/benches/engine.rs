//! The engine over members that answer at once: what one core makes of requests when drives cost
//! nothing.
//!
//! Every figure stands beside a ceiling of the same run: a copy of the same bytes (memcpy), or for
//! requests per second the same number of requests answered by the router alone. `--smoke` runs
//! small, over members that keep what is written, reads everything back and compares; `--closed`
//! shows only what the stripe log costs.
//!
//! Deliberately absent: thresholds. These are figures.

use std::sync::Arc;
use std::time::Instant;

use strake_engine::create::{CreateSpec, Init, plan};
use strake_engine::event::*;
use strake_engine::units::*;
use strake_engine::{Array, Buf, Pool, Router, Shard, Slice, StartOptions, Target, limits};
use strake_format::{
    ArrayUuid, Level, MapPage, MemberUuid, Settings, Superblock, UnreadableList, WriteHole,
    region_map, unreadable,
};

const MEMBER_BYTES: u64 = 64 << 20;

/// Level, members, size of a group.
type Shape = (Level, usize, Option<u8>);

/// Members, the two machines and a router, driven to rest after every batch.
struct Rig {
    array: Array,
    shard: Shard,
    router: Router,
    disks: Vec<Vec<u8>>,
    /// Data writes are kept (otherwise only metadata is).
    keep: bool,
    data_offset: u64,
    replies: Vec<Reply>,
    next: u64,
}

impl Rig {
    fn new(shape: Shape, strip: u32, keep: bool, write_hole: WriteHole) -> Rig {
        let (level, members, group) = shape;
        let info = DeviceInfo {
            bytes: MEMBER_BYTES,
            block_bytes: 512,
            granularity_bytes: 0,
            volatile_cache: false,
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
                map: pages(&disks[at], &plan.superblocks[at]),
                unreadable: lists(&disks[at], &plan.superblocks[at]),
            })
            .collect();
        let options = StartOptions {
            shards: 1,
            force: false,
            clean_after_ms: 5000,
        };
        let mut array = Array::assemble(found, &options).expect("a new array starts");
        let setup = array.setup();
        let geometry = Arc::clone(&setup.geometry);
        let pool = Pool::new(&limits::stock(&geometry, 64 << 20));
        let data_offset = plan.superblocks[0].layout.data_offset;
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
            data_offset,
            replies,
            next: 0,
        };
        rig.rest();
        rig
    }

    fn io(&mut self, io: MemberIo) -> Completion {
        let disk = &mut self.disks[io.device.0 as usize];
        let data_offset = self.data_offset;
        let kept = |offset: u64| self.keep || offset < data_offset;
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

    /// Carries out effects until there are none.
    fn rest(&mut self) {
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
                }
            }
            if quiet {
                return;
            }
        }
    }

    fn submit(&mut self, op: Op) {
        self.next += 1;
        let mut pieces = Vec::new();
        let request = Request {
            id: RequestId(self.next),
            op,
        };
        self.replies.extend(self.router.route(request, &mut pieces));
        for (target, piece) in pieces {
            match target {
                Target::Shard(_) => self.shard.submit(Time(0), piece),
                Target::Array => self.array.submit(Time(0), piece),
            }
        }
    }

    fn fail(&mut self, slot: u8) {
        self.array
            .command(Time(0), CommandId(1), Command::Fail(Slot(slot)));
        self.rest();
    }

    fn size(&self) -> u64 {
        self.array.geometry().size()
    }
}

fn pages(disk: &[u8], sb: &Superblock) -> Vec<Option<MapPage>> {
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

fn lists(disk: &[u8], sb: &Superblock) -> [Option<UnreadableList>; 2] {
    unreadable::places(&sb.layout).map(|offset| {
        let at = offset as usize..offset as usize + sb.layout.unreadable_bytes as usize;
        UnreadableList::decode(&disk[at], offset).ok()
    })
}

/// A reproducible sequence of numbers (splitmix64).
struct Sequence(u64);

impl Sequence {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    write: bool,
    bytes: u64,
    random: bool,
    depth: usize,
    /// Members taken out first.
    lost: u8,
}

const LOADS: &[Load] = &[
    Load {
        name: "write 1M",
        write: true,
        bytes: 1 << 20,
        random: false,
        depth: 4,
        lost: 0,
    },
    Load {
        name: "write 128K",
        write: true,
        bytes: 128 << 10,
        random: false,
        depth: 16,
        lost: 0,
    },
    Load {
        name: "random write 4K",
        write: true,
        bytes: 4096,
        random: true,
        depth: 32,
        lost: 0,
    },
    Load {
        name: "read 1M",
        write: false,
        bytes: 1 << 20,
        random: false,
        depth: 4,
        lost: 0,
    },
    Load {
        name: "random read 4K",
        write: false,
        bytes: 4096,
        random: true,
        depth: 32,
        lost: 0,
    },
    Load {
        name: "degraded random read 4K",
        write: false,
        bytes: 4096,
        random: true,
        depth: 32,
        lost: 1,
    },
    Load {
        name: "degraded random write 4K",
        write: true,
        bytes: 4096,
        random: true,
        depth: 32,
        lost: 1,
    },
];

fn measure(rig: &mut Rig, load: Load, total: u64) -> f64 {
    let payload = Buf::from_bytes(&vec![0xa5; load.bytes as usize]);
    let mut sequence = Sequence(load.bytes);
    let slots = rig.size() / load.bytes;
    let begun = Instant::now();
    let (mut done, mut at) = (0, 0);
    while done < total {
        for _ in 0..load.depth {
            let slot = if load.random {
                sequence.next() % slots
            } else {
                at % slots
            };
            at += 1;
            let offset = slot * load.bytes;
            rig.submit(if load.write {
                let data = Slice::new(payload.clone(), 0, load.bytes as usize);
                Op::Write {
                    offset,
                    data,
                    fua: false,
                }
            } else {
                Op::Read {
                    offset,
                    len: load.bytes,
                }
            });
            done += load.bytes;
        }
        rig.rest();
        let failed = rig.replies.drain(..).filter(|r| r.result.is_err()).count();
        assert_eq!(failed, 0, "{}: requests failed", load.name);
    }
    done as f64 / begun.elapsed().as_secs_f64()
}

fn memcpy_ceiling(bytes: usize) -> f64 {
    let (from, mut to) = (vec![1u8; bytes], vec![0u8; bytes]);
    let rounds = (256 << 20) / bytes;
    let begun = Instant::now();
    for _ in 0..rounds {
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
    }
    (rounds * bytes) as f64 / begun.elapsed().as_secs_f64()
}

fn figures() {
    let shapes = [
        ("5 of 5", Level::Raid5, 5, None),
        ("6 of 8", Level::Raid6, 8, None),
        ("7.3 of 9", Level::Raid7_3, 9, None),
        ("50 of 10", Level::Raid50, 10, Some(5)),
        ("10 of 4", Level::Raid10, 4, None),
    ];
    println!(
        "{:<10} {:<26} {:>10} {:>12} {:>14}",
        "array", "load", "MiB/s", "requests/s", "of memcpy"
    );
    for (name, level, members, group) in shapes {
        let shape = (level, members, group);
        let mut rig = Rig::new(shape, 64 << 10, false, WriteHole::Resync);
        let mut lost = 0;
        for &load in LOADS {
            while lost < load.lost {
                rig.fail(lost);
                lost += 1;
            }
            let total = if load.bytes > 4096 {
                2 << 30
            } else {
                512 << 20
            };
            let rate = measure(&mut rig, load, total);
            let ceiling = memcpy_ceiling(load.bytes as usize);
            println!(
                "{name:<10} {:<26} {:>10.0} {:>12.0} {:>13.1}%",
                load.name,
                rate / 1048576.0,
                rate / load.bytes as f64,
                100.0 * rate / ceiling
            );
        }
    }
}

/// What the stripe log costs: the policies `closed` and `resync` side by side, round by round.
fn cost_of_closed() {
    const ROUNDS: usize = 7;
    let load = |name, bytes, random, depth| Load {
        name,
        write: true,
        bytes,
        random,
        depth,
        lost: 0,
    };
    let shapes = [
        ("5 of 5", (Level::Raid5, 5, None), 256 << 10),
        ("6 of 8", (Level::Raid6, 8, None), 384 << 10),
    ];
    println!(
        "\n{:<10} {:<26} {:>12} {:>12} {:>14}",
        "array", "load", "resync r/s", "closed r/s", "closed costs"
    );
    for (name, shape, stripe) in shapes {
        let loads = [
            load("random write 4K", 4096, true, 64),
            load("full-stripe write", stripe, false, 8),
        ];
        for load in loads {
            let policies = [WriteHole::Resync, WriteHole::Closed];
            let mut rigs = policies.map(|policy| Rig::new(shape, 64 << 10, false, policy));
            let total = if load.random { 128 << 20 } else { 1 << 30 };
            let mut rates = [Vec::new(), Vec::new()];
            for _ in 0..ROUNDS {
                for (rig, rates) in rigs.iter_mut().zip(&mut rates) {
                    rates.push(measure(rig, load, total) / load.bytes as f64);
                }
            }
            let [resync, closed] = rates.map(|mut all| {
                all.sort_by(f64::total_cmp);
                all[ROUNDS / 2]
            });
            println!(
                "{name:<10} {:<26} {resync:>12.0} {closed:>12.0} {:>13.1}%",
                load.name,
                100.0 * (1.0 - closed / resync)
            );
        }
    }
}

/// Writes a known pattern by requests of all sizes, takes members out, reads it back.
fn smoke() {
    let shapes = [
        (Level::Raid0, 3, None, 0),
        (Level::Raid1, 3, None, 2),
        (Level::Raid5, 5, None, 1),
        (Level::Raid6, 6, None, 2),
        (Level::Raid7_3, 7, None, 3),
        (Level::Raid10, 4, None, 1),
        (Level::Raid50, 6, Some(3), 1),
        (Level::Raid60, 8, Some(4), 2),
        (Level::Raid70, 10, Some(5), 3),
        (Level::Nm { n: 6, m: 4 }, 10, None, 4),
    ];
    for (level, members, group, tolerated) in shapes {
        let shape = (level, members, group);
        let mut rig = Rig::new(shape, 16 << 10, true, WriteHole::Closed);
        let size = (8 << 20).min(rig.size());
        let mut image = vec![0u8; size as usize];
        let mut sequence = Sequence(1);
        let mut write_some = |rig: &mut Rig, image: &mut Vec<u8>| {
            for _ in 0..300 {
                for _ in 0..8 {
                    let len = 512 << (sequence.next() % 9);
                    let offset = (sequence.next() % (size - len)) & !511;
                    let bytes: Vec<u8> = (0..len).map(|_| sequence.next() as u8).collect();
                    image[offset as usize..(offset + len) as usize].copy_from_slice(&bytes);
                    let data = Slice::new(Buf::from_bytes(&bytes), 0, len as usize);
                    rig.submit(Op::Write {
                        offset,
                        data,
                        fua: false,
                    });
                }
                rig.rest();
            }
        };
        let check = |rig: &mut Rig, image: &[u8], when: &str| {
            rig.replies.clear();
            for at in (0..size).step_by(1 << 20) {
                rig.submit(Op::Read {
                    offset: at,
                    len: 1 << 20,
                });
                rig.rest();
                let reply = rig.replies.pop().expect("a read is answered");
                let slices = reply.result.expect("a read within the tolerance succeeds");
                let bytes: Vec<u8> = slices.iter().flat_map(|s| s.bytes().to_vec()).collect();
                assert!(
                    bytes == image[at as usize..(at + (1 << 20)) as usize],
                    "{level} {when}: wrong bytes"
                );
            }
        };
        write_some(&mut rig, &mut image);
        check(&mut rig, &image, "healthy");
        for lost in 0..tolerated {
            rig.fail(lost);
            check(&mut rig, &image, "degraded");
            write_some(&mut rig, &mut image);
            check(&mut rig, &image, "degraded and written");
        }
        println!("level {level}: {members} members, {tolerated} lost, read back what was written");
    }
}

fn main() {
    let asked = |name: &str| std::env::args().any(|arg| arg == name);
    if asked("--smoke") {
        return smoke();
    }
    if !asked("--closed") {
        figures();
    }
    cost_of_closed();
}

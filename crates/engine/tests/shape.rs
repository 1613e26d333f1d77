//! Geometry, creation and routing: pure arithmetic, held against its own inverse and against md's
//! tables.

use std::sync::Arc;

use strake_engine::create::{CreateError, CreateSpec, Init, plan};
use strake_engine::event::*;
use strake_engine::geometry::{OldShape, StripPart};
use strake_engine::units::*;
use strake_engine::{Buf, Geometry, Router, Slice, Target};
use strake_format::unreadable::UNREADABLE_BYTES;
use strake_format::{ArrayUuid, Level, MemberUuid, Settings, Superblock, WriteHole};
use strake_parity::Code;

fn info(bytes: u64) -> DeviceInfo {
    DeviceInfo {
        bytes,
        block_bytes: 512,
        granularity_bytes: 0,
        volatile_cache: true,
        dma: false,
    }
}

fn spec(level: Level, members: usize, group: Option<u8>) -> CreateSpec {
    CreateSpec {
        array: ArrayUuid([1; 16]),
        name: "data".parse().expect("a name"),
        level,
        strip_bytes: Some(64 << 10),
        group_size: group,
        block_bytes: None,
        write_hole: WriteHole::Resync,
        settings: Settings::default(),
        init: Init::Lazy,
        created_unix_s: 0,
        members: (0..members)
            .map(|i| (info(64 << 20), MemberUuid([i as u8 + 1; 16])))
            .collect(),
        spares: Vec::new(),
        tiny: None,
    }
}

const SHAPES: &[(Level, usize, Option<u8>)] = &[
    (Level::Raid0, 3, None),
    (Level::Raid1, 4, None),
    (Level::Raid5, 5, None),
    (Level::Raid6, 6, None),
    (Level::Raid7_3, 7, None),
    (Level::Raid10, 6, None),
    (Level::Raid10, 8, Some(4)),
    (Level::Raid50, 9, Some(3)),
    (Level::Raid60, 8, Some(4)),
    (Level::Raid70, 10, Some(5)),
    (Level::Nm { n: 6, m: 4 }, 10, None),
];

fn geometry(level: Level, members: usize, group: Option<u8>) -> Geometry {
    Geometry::of(
        &plan(&spec(level, members, group))
            .expect("a valid shape")
            .superblocks[0],
    )
}

#[test]
fn every_strip_of_every_member_is_one_column_of_one_stripe() {
    for &(level, members, group) in SHAPES {
        let g = geometry(level, members, group);
        for row in 0..3 * g.width as u64 {
            let mut seen = vec![false; members];
            for group in 0..g.groups {
                let stripe = g.stripe(group, Row(row));
                assert_eq!(g.row(stripe), (group, Row(row)));
                for column in 0..g.width {
                    let slot = g.slot(stripe, column);
                    assert_eq!(g.column(stripe, slot), Some(column), "{level}");
                    assert!(!std::mem::replace(&mut seen[slot.index()], true), "{level}");
                }
            }
            assert!(
                seen.into_iter().all(|s| s),
                "{level}: a slot without a column"
            );
        }
    }
}

#[test]
fn bytes_of_the_array_follow_one_another_through_strips_and_stripes() {
    for &(level, members, group) in SHAPES {
        let g = geometry(level, members, group);
        let step = g.strip / 2;
        for at in (0..4 * g.stripe_bytes() * g.groups).step_by(step as usize) {
            let place = g.locate(at);
            let back =
                place.stripe.0 * g.stripe_bytes() + place.column as u64 * g.strip + place.offset;
            assert_eq!(back, at, "{level}");
        }
        let region = g.region_bytes(RegionNo(g.regions() - 1));
        assert_eq!(
            region.end,
            g.size(),
            "{level}: the last region ends with the array"
        );
    }
}

/// The first rows of md's left-symmetric layout, as its documentation draws them: members across,
/// rows down.
#[test]
fn raid5_and_raid6_lie_as_mds_left_symmetric_arrays_do() {
    let draw = |g: &Geometry, rows: u64| -> Vec<String> {
        let name = |stripe: StripeNo, slot: usize| {
            let column = g.column(stripe, Slot(slot as u8)).expect("one group");
            match column.checked_sub(g.k) {
                Some(parity) => ["P", "Q"][parity].to_owned(),
                None => (stripe.0 * g.k as u64 + column as u64).to_string(),
            }
        };
        (0..rows)
            .map(|r| {
                (0..g.width)
                    .map(|s| name(StripeNo(r), s))
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect()
    };
    let five = [
        "0 1 2 3 P",
        "5 6 7 P 4",
        "10 11 P 8 9",
        "15 P 12 13 14",
        "P 16 17 18 19",
        "20 21 22 23 P",
    ];
    assert_eq!(draw(&geometry(Level::Raid5, 5, None), 6), five);
    let six = [
        "Q 0 1 2 P",
        "3 4 5 P Q",
        "7 8 P Q 6",
        "11 P Q 9 10",
        "P Q 12 13 14",
        "Q 15 16 17 P",
    ];
    assert_eq!(draw(&geometry(Level::Raid6, 5, None), 6), six);
}

#[test]
fn the_default_strip_keeps_a_full_stripe_within_a_mebibyte() {
    let strip = |members, granularity: u32| {
        let mut spec = CreateSpec {
            strip_bytes: None,
            ..spec(Level::Raid5, members, None)
        };
        spec.members
            .iter_mut()
            .for_each(|(info, _)| info.granularity_bytes = granularity);
        plan(&spec).expect("valid").superblocks[0].strip_bytes
    };
    assert_eq!(strip(5, 0), 256 << 10);
    assert_eq!(strip(9, 0), 128 << 10);
    assert_eq!(strip(10, 0), 64 << 10);
    assert_eq!(strip(64, 0), 16 << 10);
    assert_eq!(strip(64, 65536), 64 << 10);
}

#[test]
fn impossible_arrays_are_refused_by_name() {
    type Change = fn(&mut CreateSpec);
    type Expected = fn(&CreateError) -> bool;
    let cases: &[(Change, Expected)] = &[
        (
            |s| s.members.truncate(2),
            |e| {
                matches!(
                    e,
                    CreateError::TooFew {
                        needs: 3,
                        has: 2,
                        ..
                    }
                )
            },
        ),
        (
            |s| s.level = Level::Nm { n: 3, m: 1 },
            |e| matches!(e, CreateError::TooMany { max: 4, has: 5, .. }),
        ),
        (
            |s| {
                s.members = (0..65)
                    .map(|i| (info(64 << 20), MemberUuid([i + 1; 16])))
                    .collect()
            },
            |e| {
                matches!(
                    e,
                    CreateError::TooMany {
                        max: 64,
                        has: 65,
                        ..
                    }
                )
            },
        ),
        (
            |s| s.strip_bytes = Some(48 << 10),
            |e| matches!(e, CreateError::Strip(49152)),
        ),
        (
            |s| s.strip_bytes = Some(2 << 20),
            |e| matches!(e, CreateError::Strip(_)),
        ),
        (
            |s| s.members[1].0.granularity_bytes = 128 << 10,
            |e| {
                matches!(
                    e,
                    CreateError::StripGranularity {
                        granularity: 131072,
                        ..
                    }
                )
            },
        ),
        (
            |s| s.group_size = Some(5),
            |e| matches!(e, CreateError::NoGroups(Level::Raid5)),
        ),
        (
            |s| s.level = Level::Raid50,
            |e| matches!(e, CreateError::TooFew { needs: 6, .. }),
        ),
        (
            |s| s.block_bytes = Some(1024),
            |e| matches!(e, CreateError::Block(1024)),
        ),
        (
            |s| s.members[2].0.block_bytes = 4096,
            |e| matches!(e, CreateError::MixedBlocks(512, 4096)),
        ),
        (
            |s| {
                s.members
                    .iter_mut()
                    .for_each(|(info, _)| info.block_bytes = 4096);
                s.block_bytes = Some(512);
            },
            |e| {
                matches!(
                    e,
                    CreateError::BlockTooSmall {
                        asked: 512,
                        has: 4096
                    }
                )
            },
        ),
        (
            |s| s.members[3].0.bytes = 1 << 20,
            |e| matches!(e, CreateError::Layout { .. }),
        ),
        (
            |s| {
                s.spares = (0..17)
                    .map(|i| (info(64 << 20), MemberUuid([i + 80; 16])))
                    .collect()
            },
            |e| matches!(e, CreateError::TooManySpares(17)),
        ),
    ];
    for (at, (change, expected)) in cases.iter().enumerate() {
        let mut spec = spec(Level::Raid5, 5, None);
        change(&mut spec);
        let error = plan(&spec).expect_err("this array is impossible");
        assert!(expected(&error), "case {at}: {error}");
    }
    let uneven = spec(Level::Raid50, 8, Some(3));
    assert!(matches!(
        plan(&uneven),
        Err(CreateError::GroupSize {
            group: 3,
            members: 8,
            ..
        })
    ));
    let none = spec(Level::Raid60, 8, None);
    assert!(matches!(
        plan(&none),
        Err(CreateError::GroupSizeMissing(Level::Raid60))
    ));
}

#[test]
fn what_create_writes_is_what_start_reads() {
    let plan = plan(&spec(Level::Raid6, 6, None)).expect("valid");
    for (sb, writes) in plan.superblocks.iter().zip(&plan.writes) {
        let copies: Vec<Superblock> = writes
            .iter()
            .filter_map(|(at, bytes)| Superblock::decode(bytes, *at).ok())
            .collect();
        assert_eq!(copies, [sb.clone(), sb.clone()]);
        let (last, _) = writes.last().expect("there are writes");
        assert_eq!(
            *last,
            strake_format::Layout::superblock_offsets(sb.layout.device_bytes)[1]
        );
    }
}

/// Routes a request, checks that the pieces make it up, answers them all, and returns their
/// targets.
fn route(router: &mut Router, g: &Geometry, shards: u16, op: Op) -> Vec<Target> {
    let (start, len) = match &op {
        Op::Read { offset, len } | Op::Discard { offset, len } => (*offset, *len),
        Op::Write { offset, data, .. } => (*offset, data.len as u64),
        _ => unreachable!("not routed here"),
    };
    let mut pieces = Vec::new();
    let id = RequestId(7);
    assert!(router.route(Request { id, op }, &mut pieces).is_none());
    let mut at = start;
    let mut targets = Vec::new();
    let mut answer = None;
    for (target, piece) in pieces {
        let len = match &piece.op {
            // A long discard is a write-zeroes.
            Op::Read { offset, len }
            | Op::Discard { offset, len }
            | Op::WriteZeroes { offset, len, .. } => {
                assert_eq!(*offset, at);
                *len
            }
            Op::Write { offset, data, .. } => {
                assert_eq!(*offset, at);
                assert_eq!(data.start as u64, at - start);
                data.len as u64
            }
            _ => unreachable!("pieces are of their request's kind"),
        };
        if let Target::Shard(shard) = target
            && shards > 1
        {
            let (first, last) = (g.locate(at).stripe, g.locate(at + len - 1).stripe);
            assert_eq!((first, g.shard(first, shards)), (last, shard));
        }
        at += len;
        targets.push(target);
        assert!(answer.is_none(), "answered before the last piece");
        answer = router.join(Reply {
            id: piece.id,
            result: Ok(Slices::new()),
        });
    }
    assert_eq!(at, start + len);
    assert_eq!(answer.expect("answered with the last piece").id, id);
    assert_eq!(router.in_flight(), 0);
    targets
}

#[test]
fn requests_are_split_along_stripes_and_answered_once() {
    let g = geometry(Level::Raid5, 5, None);
    for shards in 1..=3 {
        let mut router = Router::new(Arc::new(g.clone()), shards, 3);
        for (offset, len) in [
            (0, 512),
            (g.stripe_bytes() - 512, 1024),
            (4096, 3 * g.stripe_bytes()),
        ] {
            route(&mut router, &g, shards, Op::Read { offset, len });
            let data = Slice::new(Buf::zeroed(len as usize), 0, len as usize);
            route(
                &mut router,
                &g,
                shards,
                Op::Write {
                    offset,
                    data,
                    fua: false,
                },
            );
        }
        let region = g.region_bytes(RegionNo(1));
        let op = Op::Discard {
            offset: region.start - 512,
            len: region.end - region.start + 1024,
        };
        let targets = route(&mut router, &g, shards, op);
        assert_eq!(targets.iter().filter(|t| **t == Target::Array).count(), 1);
    }
}

#[test]
fn a_piece_may_come_back_as_often_as_it_will() {
    let [old, younger] = [5, 3].map(|width| geometry(Level::Raid5, width, None));
    let mut router = Router::new(Arc::new(old.clone()), 2, 3);
    let (id, offset, len) = (RequestId(9), 0, old.stripe_bytes());
    let mut pieces = Vec::new();
    let op = Op::Read { offset, len };
    assert!(router.route(Request { id, op }, &mut pieces).is_none());
    let (_, mut piece) = pieces.pop().expect("one piece");
    // The shards have another shape, of which this router has not heard.
    for _ in 0..100_000 {
        router.again(piece, &mut pieces);
        (_, piece) = pieces.pop().expect("it stays whole");
        assert!(pieces.is_empty());
    }
    assert_eq!(router.in_flight(), 1);
    // Now it has, and the piece becomes several.
    router.reshape(Arc::new(younger));
    router.again(piece, &mut pieces);
    assert!(pieces.len() > 1);
    let mut answers = pieces.into_iter().filter_map(|(_, piece)| {
        let result = Ok(Default::default());
        router.join(Reply {
            id: piece.id,
            result,
        })
    });
    assert_eq!(answers.next().map(|reply| reply.id), Some(id));
    assert_eq!(answers.count(), 0);
    assert_eq!(router.in_flight(), 0);
}

#[test]
fn requests_beyond_the_end_empty_or_unaligned_are_refused() {
    let g = geometry(Level::Raid5, 5, None);
    let mut router = Router::new(Arc::new(g.clone()), 1, 0);
    let size = g.size();
    for (offset, len) in [
        (size, 512),
        (size - 512, 1024),
        (0, 0),
        (1, 512),
        (0, 513),
        (u64::MAX - 511, 512),
    ] {
        let mut pieces = Vec::new();
        let request = Request {
            id: RequestId(1),
            op: Op::Read { offset, len },
        };
        let reply = router.route(request, &mut pieces).expect("refused at once");
        assert_eq!(
            reply.result.err(),
            Some(RequestError::Invalid),
            "{offset} {len}"
        );
        assert!(pieces.is_empty());
    }
}

#[test]
fn to_make_an_array_costs_the_same_whatever_its_size() {
    let written = |bytes: u64| {
        let mut spec = spec(Level::Raid6, 6, None);
        for (info, _) in &mut spec.members {
            info.bytes = bytes;
        }
        let made = plan(&spec).expect("a valid shape");
        let writes = made.writes.iter().flatten();
        (
            made.size_bytes,
            writes.map(|(_, bytes)| bytes.len()).sum::<usize>(),
        )
    };
    // Head, two superblocks, at most five pages of the region map and one list of unreadable blocks
    // for each member.
    const MOST: usize = 6 * (8 * 4096 + UNREADABLE_BYTES as usize);
    for bytes in [1 << 30, 1 << 40, 61 << 40, 1 << 55] {
        let (size, written) = written(bytes);
        assert!(size > bytes && written <= MOST, "{bytes}: {written}");
    }
}

/// Between which data moves: level, group, members before and after, parities that do not rotate,
/// rows of a band before and after.
#[derive(Clone, Copy, Debug)]
struct Move {
    level: Level,
    group: Option<u8>,
    /// Of the old shape, where it is another.
    from_group: Option<u8>,
    members: (usize, usize),
    fixed: usize,
    from_fixed: usize,
    bands: (u64, u64),
}

const fn to(level: Level, from: usize, to: usize) -> Move {
    Move {
        level,
        group: None,
        from_group: None,
        members: (from, to),
        fixed: 0,
        from_fixed: 0,
        bands: (1, 1),
    }
}

impl Move {
    const fn fixed(self, fixed: usize) -> Move {
        Move {
            fixed,
            from_fixed: fixed,
            ..self
        }
    }
    const fn out_of_fixed(self, from_fixed: usize) -> Move {
        Move { from_fixed, ..self }
    }
    const fn bands(self, from: u64, to: u64) -> Move {
        let bands = (from, to);
        Move { bands, ..self }
    }
    const fn groups_of(self, members: u8) -> Move {
        let group = Some(members);
        Move {
            group,
            from_group: group,
            ..self
        }
    }
    const fn out_of_groups(self, members: usize) -> Move {
        let from_group = Some(members as u8);
        Move { from_group, ..self }
    }
}

const MOVES: &[Move] = &[
    to(Level::Raid0, 1, 2),
    to(Level::Raid0, 3, 4),
    to(Level::Raid5, 3, 4),
    to(Level::Raid5, 4, 8),
    // From mirrors.
    to(Level::Raid5, 2, 3),
    to(Level::Raid6, 3, 5),
    to(Level::Raid7_3, 4, 5),
    to(Level::Raid6, 5, 6),
    to(Level::Raid6, 5, 7).fixed(1),
    to(Level::Raid7_3, 6, 7),
    to(Level::Nm { n: 6, m: 4 }, 8, 10),
    // To other strips.
    to(Level::Raid0, 3, 3).bands(1, 2),
    to(Level::Raid5, 4, 4).bands(1, 4),
    to(Level::Raid5, 4, 4).bands(4, 1),
    to(Level::Raid6, 5, 5).bands(2, 4).fixed(1),
    to(Level::Raid5, 3, 4).bands(2, 1),
    to(Level::Raid5, 3, 4).bands(1, 2),
    to(Level::Raid6, 6, 7).bands(4, 2),
    to(Level::Raid5, 7, 8).bands(4, 1),
    to(Level::Raid5, 2, 3).bands(1, 4),
    to(Level::Raid50, 6, 6).groups_of(3).bands(1, 2),
    to(Level::Raid60, 8, 8).groups_of(4).bands(4, 1),
    // To parities that rotate.
    to(Level::Raid6, 5, 5).out_of_fixed(1),
    to(Level::Raid5, 4, 4).out_of_fixed(1),
    to(Level::Raid7_3, 6, 7).out_of_fixed(2),
    to(Level::Raid7_3, 6, 6).out_of_fixed(1).bands(2, 1),
    to(Level::Raid60, 4, 8)
        .groups_of(4)
        .out_of_groups(4)
        .out_of_fixed(1),
    // To where parities can go.
    to(Level::Raid6, 5, 5).fixed(1).out_of_fixed(0),
    to(Level::Raid6, 5, 5).fixed(2).out_of_fixed(0),
    to(Level::Raid7_3, 6, 6).fixed(2).out_of_fixed(1),
    to(Level::Raid5, 3, 3).fixed(1).out_of_fixed(0),
    to(Level::Raid5, 4, 4).bands(2, 2).fixed(1).out_of_fixed(0),
    to(Level::Nm { n: 3, m: 4 }, 7, 7).fixed(2).out_of_fixed(0),
    // To groups, from them, and to others.
    to(Level::Raid50, 4, 8).groups_of(4).out_of_groups(4),
    to(Level::Raid50, 5, 6).groups_of(3).out_of_groups(5),
    to(Level::Raid50, 5, 9).groups_of(3).out_of_groups(5),
    to(Level::Raid60, 4, 12).groups_of(4).out_of_groups(4),
    to(Level::Raid70, 7, 10).groups_of(5).out_of_groups(7),
    to(Level::Raid5, 6, 6).out_of_groups(3),
    to(Level::Raid5, 9, 10).out_of_groups(3),
    to(Level::Raid6, 8, 8).out_of_groups(4),
    to(Level::Raid50, 6, 9).groups_of(3),
    to(Level::Raid50, 6, 8).groups_of(4).out_of_groups(3),
    to(Level::Raid50, 12, 12).groups_of(6).out_of_groups(3),
    to(Level::Raid50, 10, 12).groups_of(3).out_of_groups(5),
    to(Level::Raid50, 5, 9)
        .groups_of(3)
        .out_of_groups(5)
        .bands(1, 2),
    to(Level::Raid5, 6, 6).out_of_groups(3).bands(4, 2),
    to(Level::Raid60, 8, 12).groups_of(4).bands(2, 4),
];

/// A small array at the beginning of a move of its data.
fn moving(of: &Move) -> Geometry {
    let mut g = geometry(of.level, of.members.1, of.group);
    g.strip = 4096;
    (g.rows, g.region_rows, g.fixed) = (23, 4, of.fixed);
    if of.bands != (1, 1) {
        g.rows = 24;
    }
    g.band = of.bands.1;
    let width = of.from_group.map_or(of.members.0, usize::from);
    let groups = (of.members.0 / width) as u64;
    g.per_row = g.groups.max(groups);
    g.old_shape = Some(OldShape {
        groups,
        width,
        fixed: of.from_fixed,
        band: of.bands.0,
        moved: 0,
    });
    g
}

/// The shape at every moment of the move.
fn moments(start: &Geometry) -> impl Iterator<Item = (u64, Geometry)> {
    let ends = (0..=start.rows_to_move()).step_by(start.rows_at_once() as usize);
    ends.map(|moved| (moved, start.moved_to(moved)))
}

#[test]
fn while_data_moves_every_byte_is_in_one_place_and_no_row_has_two_shapes() {
    for of in MOVES {
        let start = moving(of);
        let blocks = start.size() / start.block;
        for (moved, g) in moments(&start) {
            assert_eq!(g.size(), start.size());
            let first = g.first_old_row().0;
            assert!(moved <= first, "{of:?}: {moved} rows, {first} on");
            let mut seen = vec![false; blocks as usize];
            let counted = (0..g.rows).filter(|&row| g.counts(Row(row)));
            for stripe in counted.flat_map(|row| g.stripes_of_rows(Row(row), Row(row + 1))) {
                let stripe = StripeNo(stripe);
                let shape = g.columns(stripe);
                let (from, to) = of.members;
                let (group, row) = g.row(stripe);
                let members = if row.0 < moved { to } else { from };
                assert_eq!(shape.width * shape.groups as usize, members);
                assert_eq!(g.exists(stripe), group < shape.groups, "{of:?}");
                assert_eq!(g.stripe(group, row), stripe);
                if !g.exists(stripe) {
                    continue;
                }
                for column in 0..shape.width {
                    let slot = g.slot(stripe, column);
                    assert_eq!(g.column(stripe, slot), Some(column), "{of:?}");
                    assert_eq!(g.stripe_in(slot, row), Some(stripe), "{of:?}");
                    assert!(column >= shape.k || !g.only_parity(slot), "{of:?}");
                }
                for column in 0..shape.k {
                    let (lo, hi) = (0, g.strip);
                    let part = StripPart {
                        stripe,
                        column,
                        lo,
                        hi,
                    };
                    for block in g.blocks(&part).filter(|&block| block < blocks) {
                        assert!(!std::mem::replace(&mut seen[block as usize], true));
                        let place = g.locate(block * g.block);
                        assert_eq!((place.stripe, place.column), (stripe, column), "{of:?}");
                    }
                }
            }
            assert!(seen.into_iter().all(|seen| seen), "{of:?}: {moved}");
        }
        assert!(start.moved_to(start.rows_to_move()).first_old_row().0 == start.rows);
    }
}

#[test]
fn slots_that_are_to_go_hold_nothing_but_parity_when_all_has_moved_and_not_before() {
    let mut seen = 0;
    for of in MOVES.iter().filter(|of| of.fixed > of.from_fixed) {
        let start = moving(of);
        let first = Slot((start.slots() - of.fixed) as u8);
        for (moved, g) in moments(&start) {
            let all = moved == start.rows_to_move();
            assert_eq!(g.only_parity(first), all, "{of:?}: {moved}");
            let gone = if all { of.fixed } else { 0 };
            assert_eq!(g.gone(), g.slots() - gone..g.slots(), "{of:?}: {moved}");
            seen += usize::from(all);
        }
        let stripes = (0..start.stripes()).map(StripeNo);
        let settled = start.after_move();
        for (stripe, column) in stripes.flat_map(|s| (0..start.k).map(move |c| (s, c))) {
            let slot = settled.slot(stripe, column).index();
            assert!(slot < start.slots() - of.fixed, "{of:?}");
        }
    }
    assert_eq!(seen, 6);
    let others = MOVES.iter().filter(|of| of.fixed <= of.from_fixed);
    assert!(others.map(moving).all(|g| g.to_go().is_none()));
}

/// What is left when parities go has to be what the level with fewer of them computes; and parities
/// of one data column have to be copies, or an array would be no mirror.
#[test]
fn parities_that_stay_are_those_of_the_level_without_the_others() {
    let levels = [Level::Raid5, Level::Raid6, Level::Raid7_3];
    let codes = (1..=12).flat_map(|m| [1, 2, 5].map(|n| Level::Nm { n, m }));
    let parities = |k: usize, m: usize, data: &[Vec<u8>]| {
        let code = Code::new(k, m).expect("a code");
        let mut parities = vec![vec![0; 64]; m];
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut outputs: Vec<&mut [u8]> = parities.iter_mut().map(Vec::as_mut_slice).collect();
        code.generate(&data, &mut outputs);
        parities
    };
    let mut compared = 0;
    for level in levels.into_iter().chain(codes) {
        let m = usize::from(level.parity_count());
        let k = match level {
            Level::Nm { n, .. } => usize::from(n),
            _ => 4,
        };
        let byte = |column: usize, at: usize| (column * 89 + at * 7 + 3) as u8;
        let column = |column| (0..64).map(|at| byte(column, at)).collect();
        let data: Vec<Vec<u8>> = (0..k).map(column).collect();
        let all = parities(k, m, &data);
        for fewer in 1..=m {
            let Some(left) = level.without_parities(fewer) else {
                // The third of three is another than the third of more.
                assert!(m > 3 && m - fewer == 3, "{level} {fewer}");
                continue;
            };
            let stay = usize::from(left.parity_count());
            assert_eq!(stay, m - fewer);
            assert_eq!(
                left.data_count((k + stay) as u8),
                k as u8,
                "{level} {fewer}"
            );
            if stay > 0 {
                assert_eq!(parities(k, stay, &data), all[..stay], "{level} {fewer}");
                compared += 1;
            }
        }
        assert_eq!(
            k == 1,
            all.iter().all(|parity| *parity == data[0]),
            "{level}"
        );
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn while_data_moves_regions_share_the_addresses_out() {
    for of in MOVES {
        let start = moving(of);
        for (moved, g) in moments(&start) {
            let regions = (0..g.regions()).map(RegionNo);
            let mut parts: Vec<_> = regions.clone().flat_map(|r| g.region_parts(r)).collect();
            parts.retain(|part| !part.is_empty());
            parts.sort_by_key(|part| part.start);
            let mut at = 0;
            for part in parts {
                assert_eq!(part.start, at, "{of:?}: {moved}");
                at = part.end;
            }
            assert_eq!(at, g.size());
            for offset in (0..g.size()).step_by(g.strip as usize) {
                let (region, part, alone) = g.region_at(offset);
                assert_eq!(region, g.region(g.row(g.locate(offset).stripe).1));
                assert!(part.contains(&offset));
                let [new, old] = g.region_parts(region);
                assert_eq!(alone, new.is_empty() || old.is_empty());
                let stripe = g.locate(offset).stripe;
                assert!(g.band_range(stripe).contains(&offset));
                assert!(g.band_stripes(stripe).any(|s| s == stripe), "{of:?}");
                assert_eq!(
                    g.shard(stripe, 3),
                    g.shard(g.band_stripes(stripe).next().expect("one"), 3)
                );
            }
        }
    }
}

#[test]
fn what_is_copied_nowhere_else_is_not_written_over_before_it_has_moved() {
    for of in MOVES {
        let start = moving(of);
        for (moved, g) in moments(&start) {
            // As far as a window can go without a copy.
            let end = g.first_old_row().0.min(start.rows_to_move());
            for row in moved..end {
                assert!(!g.counts(Row(row)), "{of:?}: {moved} {row}");
            }
        }
    }
}

#[test]
fn the_slots_of_every_stripe_are_neighbours_and_logs_tell_of_each_other_there() {
    for of in MOVES {
        let start = moving(of);
        for (_, g) in moments(&start) {
            let groups: Vec<_> = g.neighbours().collect();
            for stripe in (0..g.stripes()).map(StripeNo).filter(|&s| g.exists(s)) {
                let shape = g.columns(stripe);
                let slot = |column| g.slot(stripe, column);
                let slots: Vec<usize> = (0..shape.width).map(|c| slot(c).index()).collect();
                let all = |group: &std::ops::Range<usize>| slots.iter().all(|s| group.contains(s));
                let mut its = groups.iter().filter(|group| all(group));
                assert!(its.any(|group| group.len() == shape.width), "{of:?}");
                let logs = g.log_group(slot(0));
                assert!(all(&logs), "{of:?}");
                assert!(slots.iter().all(|&s| g.log_group(Slot(s as u8)) == logs));
            }
            for group in groups {
                // As many as may be lost of what is there, of each new group that the logs are of.
                let logs = g.log_group(Slot(group.start as u8));
                let most = logs.len() / g.width * g.m;
                assert_eq!(g.log_spare(&logs, logs.len()), most, "{of:?}");
                assert_eq!(g.log_spare(&logs, logs.len() - most), 0);
            }
        }
    }
}

#[test]
fn bands_that_become_rows_leave_every_byte_where_it_is() {
    for of in MOVES.iter().filter(|of| of.bands.1 > 1) {
        let banded = moving(of).after_move();
        let folded = banded.folded();
        assert_eq!(folded.size(), banded.size());
        assert_eq!(folded.regions(), banded.regions());
        for offset in (0..banded.size()).step_by(4096) {
            let at = |g: &Geometry| {
                let place = g.locate(offset);
                let (_, row) = g.row(place.stripe);
                let slot = g.slot(place.stripe, place.column);
                (slot, g.row_offset(row) + place.offset, g.region(row))
            };
            assert_eq!(at(&folded), at(&banded), "{of:?}: {offset}");
        }
        for row in 0..folded.rows {
            let stripe = folded.stripe(folded.groups - 1, Row(row));
            let below = banded.stripe(banded.groups - 1, Row(row * banded.band));
            for column in 0..folded.width {
                assert_eq!(folded.slot(stripe, column), banded.slot(below, column));
            }
        }
    }
}

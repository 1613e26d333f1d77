//! Fixed values, and strategies for arbitrary valid ones.

use proptest::prelude::*;
use strake_format::region_map::REGIONS_PER_PAGE;
use strake_format::*;

/// An array uuid of one repeated byte.
pub(crate) fn array(byte: u8) -> ArrayUuid {
    ArrayUuid([byte; 16])
}

/// A member uuid of one repeated byte.
pub(crate) fn member(byte: u8) -> MemberUuid {
    MemberUuid([byte; 16])
}

/// A small layout for a device of 16 MiB.
pub(crate) fn layout(strip_bytes: u32, device_bytes: u64) -> Layout {
    let params = LayoutParams {
        device_bytes,
        usable_bytes: 16 << 20,
        strip_bytes,
        align_bytes: 1 << 20,
        log_bytes: 1 << 20,
        region_bytes: Some(u64::from(strip_bytes)),
        page_regions: None,
        tiny: true,
    };
    Layout::plan(&params).expect("a layout")
}

/// A layout with several pages in its map.
pub(crate) fn wide_layout() -> Layout {
    let params = LayoutParams {
        device_bytes: 256 << 20,
        usable_bytes: 256 << 20,
        strip_bytes: 4096,
        align_bytes: 1 << 20,
        log_bytes: 1 << 20,
        region_bytes: Some(8192),
        page_regions: None,
        tiny: false,
    };
    Layout::plan(&params).expect("a layout")
}

/// A superblock of slot `slot` of an array of `level` in which all is well.
pub(crate) fn superblock(level: Level, members: u8, group_size: u8, slot: u8) -> Superblock {
    let record = |i| SlotRecord {
        member: member(i + 1),
        state: SlotState::InSync,
        since: Epoch(1),
        kept: false,
        known: Known::default(),
    };
    let slots: Vec<SlotRecord> = (0..members).map(record).collect();
    Superblock {
        editions: superblock::first_edition(Epoch(1), &slots),
        array: array(0xa5),
        name: "data".parse().expect("a name"),
        level,
        strip_bytes: 65536,
        band_rows: 1,
        group_size,
        members,
        fixed_parities: 0,
        block_bytes: 4096,
        layout: layout(65536, 16 << 20),
        shape_since: Epoch(0),
        moving: None,
        created_unix_s: 1_800_000_000,
        write_hole: WriteHole::Closed,
        carved: false,
        undecided: false,
        witnessed: false,
        map_whole_at: false,
        clean: false,
        covered: true,
        log_base: 0x1_0000_0000,
        accepted: 0b10,
        epoch: Epoch(1),
        generation: Generation(1),
        sessions: Sessions::default(),
        whole_since: Epoch(1),
        member: member(slot + 1),
        role: Role::Slot(Slot(slot)),
        slots,
        spares: vec![],
        replacements: vec![],
        settings: Settings::default(),
        zeroing: false,
        numbers_noted: false,
        scrub: None,
        scrub_begun_unix_s: 0,
        last_scrub: None,
    }
}

/// Every level with a shape.
pub(crate) fn shapes() -> Vec<(Level, u8, u8)> {
    let mut shapes = vec![
        (Level::Raid0, 2, 2),
        (Level::Raid1, 3, 3),
        (Level::Raid5, 3, 3),
        (Level::Raid6, 6, 6),
        (Level::Raid7_3, 8, 8),
        (Level::Raid10, 4, 2),
        (Level::Raid50, 6, 3),
        (Level::Raid60, 64, 8),
        (Level::Raid70, 10, 5),
    ];
    shapes.extend([(6u8, 4u8), (1, 1), (32, 32)].map(|(n, m)| (Level::Nm { n, m }, n + m, n + m)));
    shapes
}

prop_compose! {
    fn state()(kind in 0..4, rebuilt_bytes in 0..=1u64 << 20) -> SlotState {
        match kind {
            0 => SlotState::InSync,
            1 => SlotState::Rebuilding { rebuilt_bytes },
            2 => SlotState::Missing,
            _ => SlotState::Failed,
        }
    }
}

/// Sessions up to this generation, none at times.
fn sessions(generation: u64, number: u8) -> Sessions {
    let last = generation.clamp(1, Known::HEARD_MAX);
    let each = (0..u64::from(number) % 17).map(|at| Session {
        first: Generation(last.saturating_sub(at * 3)),
        number: match at % 4 {
            2 => 0,
            _ => u32::from(number) + 1,
        },
    });
    let sound = each.take_while(|session| session.first.0 > 0);
    let mut sessions: Vec<Session> = sound.collect();
    sessions.dedup_by_key(|session| session.first);
    Sessions::new(sessions).expect("sessions")
}

prop_compose! {
    /// Any valid superblock.
    pub(crate) fn any_superblock()(
        (level, members, group_size) in proptest::sample::select(shapes()),
        strip in 12u32..=20,
        grown in 0u64..1 << 40,
        name in "[A-Za-z0-9][A-Za-z0-9._-]{0,31}",
        (block, hole, clean) in (any::<bool>(), 0..3usize, any::<bool>()),
        (covered, log_base, accepted) in (any::<bool>(), any::<u64>(), any::<u64>()),
        (epoch, generation, created_unix_s) in (any::<u64>(), any::<u64>(), any::<u64>()),
        states in proptest::collection::vec((state(), any::<u64>(), any::<bool>()), 64),
        spare_count in 0..=16u8,
        me in any::<proptest::sample::Index>(),
        (priority, threshold) in (1..=100u8, 1..=u32::MAX),
        (resync_priority, scrub_priority) in (1..=100u8, 1..=100u8),
        (restripe_priority, init_priority) in (1..=100u8, 1..=100u8),
        latency_target_us in 0..=Settings::LATENCY_TARGET_US_MAX,
        spare_delay_ms in 0..=Settings::SPARE_DELAY_MS_MAX,
    ) -> Superblock {
        let user_strip: u32 = 1 << strip;
        let mirrored = matches!(level, Level::Raid1 | Level::Raid10);
        let halved = if mirrored { 0 } else { (threshold >> 8) % 3 };
        let band_rows = 1 << halved.min(strip - 12);
        let strip_bytes = user_strip / u32::from(band_rows);
        let modes = [ScrubMode::Check, ScrubMode::Repair, ScrubMode::Halt];
        let found = ScrubCounts {
            inconsistent: epoch,
            located: generation,
            unreadable: log_base,
        };
        let role_at = me.index(usize::from(members + spare_count));
        let row = |i: u8| {
            let (state, since, removed) = states[usize::from(i)];
            let nil = removed && usize::from(i) != role_at;
            let member = if nil { MemberUuid::NIL } else { member(i + 1) };
            let state = if nil { SlotState::Missing } else { state };
            let kept = !nil && state != SlotState::InSync && since % 2 == 0;
            let heard = Known::heard(Generation(log_base >> 25));
            let known = match nil || state.is_live() {
                true => heard,
                false => heard.until(Generation((log_base >> 25) + since % 400)),
            };
            SlotRecord { member, state, since: Epoch(since.min(epoch)), kept, known }
        };
        let role = match role_at < usize::from(members) {
            true => Role::Slot(Slot(role_at as u8)),
            false => Role::Spare,
        };
        let spare =
            |i: usize| member(i as u8 + if i < usize::from(members) { 1 } else { 101 });
        let slots: Vec<SlotRecord> = (0..members).map(row).collect();
        let row = |i: &u8| slots.get(usize::from(*i));
        let fills = |i: &u8| row(i).is_some_and(|r| r.state == SlotState::InSync);
        let replacements = (0..spare_count)
            .filter(fills)
            .map(|i| Replacement {
                member: spare(usize::from(members + i)),
                slot: Slot(i),
                rebuilt_bytes: created_unix_s % (1 << 20),
                known: Known::heard(Generation(created_unix_s >> 25)),
            })
            .collect();
        let fixed = match level.is_grouped() {
            true => 0,
            false => level.parity_count().min(hole as u8),
        };
        Superblock {
            name: name.parse().expect("a name"),
            strip_bytes,
            band_rows,
            block_bytes: if block { 512 } else { 4096 },
            layout: layout(user_strip, (16 << 20) + grown),
            fixed_parities: fixed,
            shape_since: Epoch(generation.min(epoch) / 2),
            moving: moving((level, members, group_size), band_rows, fixed, threshold),
            created_unix_s,
            write_hole: [WriteHole::Closed, WriteHole::Degraded, WriteHole::Resync][hole],
            carved: threshold % 2 == 0,
            undecided: threshold % 3 == 0,
            witnessed: threshold % 6 == 0,
            map_whole_at: threshold % 5 == 0,
            clean,
            covered,
            log_base,
            accepted: accepted & (u64::MAX >> (64 - u32::from(members))),
            epoch: Epoch(epoch),
            generation: Generation(generation),
            sessions: sessions(generation, priority),
            editions: std::array::from_fn(|at| (at as u32 ^ priority as u32) << 8 | 1),
            whole_since: Epoch(generation.min(epoch)),
            member: spare(role_at),
            role,
            slots,
            replacements,
            spares: (0..spare_count).map(|i| spare(usize::from(members + i))).collect(),
            settings: Settings {
                rebuild_priority: priority,
                resync_priority,
                scrub_priority,
                restripe_priority,
                init_priority,
                latency_target_us,
                read_error_threshold: threshold,
                hedged_reads: clean,
                spare_delay_ms: if covered { 180_000 } else { spare_delay_ms },
                scrub_period: ScrubPeriod::ALL[usize::from(priority) % 5],
                scrub_minute: u16::from(priority) * 7,
                scrub_policy: modes[hole],
            },
            zeroing: !clean && covered,
            numbers_noted: clean && covered,
            scrub: block.then_some(ScrubRecord {
                mode: modes[usize::from(scrub_priority) % 3],
                paused: clean,
                done_bytes: created_unix_s % (1 << 20),
                found,
            }),
            scrub_begun_unix_s: log_base,
            last_scrub: clean.then_some(ScrubResult {
                mode: modes[hole],
                begun_unix_s: log_base,
                ended_unix_s: created_unix_s,
                found,
            }),
            ..superblock(level, members, group_size, 0)
        }
    }
}

prop_compose! {
    /// Any page.
    pub(crate) fn any_page()(
        (a, m) in (any::<[u8; 16]>(), any::<[u8; 16]>()),
        (page, epoch, sequence) in (any::<u32>(), any::<u64>(), any::<u64>()),
        whole_at in prop_oneof![Just(0), any::<u64>()],
        codes in proptest::collection::vec(0..8u8, 0..=REGIONS_PER_PAGE),
    ) -> MapPage {
        let state = |code: u8| RegionState::try_from(code % 4).expect("a state");
        let behind = (0..).zip(&codes).filter(|(_, code)| **code > 3).map(|(at, _)| at).collect();
        MapPage {
            array: ArrayUuid(a),
            member: MemberUuid(m),
            page,
            epoch: Epoch(epoch),
            sequence,
            states: codes.into_iter().map(state).collect(),
            behind,
            undecided: Vec::new(),
            whole_at,
        }
    }
}

prop_compose! {
    /// Any sensible record. Its content is now and then the magic of a batch, where a block may
    /// begin.
    pub(crate) fn any_record()(
        (stripe, operation, written) in (any::<u64>(), any::<u64>(), any::<u64>()),
        (start, len) in (0..8u32, 1..24u32),
        checksums in proptest::collection::vec(any::<u32>(), 0..900),
        (kind, index, forged, settled) in (0..3, 0..32u8, any::<bool>(), any::<bool>()),
        fill in any::<u8>(),
    ) -> LogRecord {
        let mut bytes = vec![fill; len as usize * 512];
        if forged {
            bytes.chunks_mut(512).for_each(|sector| sector[..8].copy_from_slice(b"STRKLOG\x1a"));
        }
        LogRecord {
            stripe,
            operation,
            start: start * 512,
            len: len * 512,
            written,
            checksums: checksums.into(),
            settled,
            payload: match kind {
                0 => LogPayload::None,
                1 => LogPayload::PartialSyndrome { parity: index, bytes },
                _ => LogPayload::LostStrip { column: index * 2, bytes },
            },
        }
    }
}

prop_compose! {
    /// Any batch of up to six records.
    pub(crate) fn any_batch()(
        (a, m, lane) in (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<u16>()),
        (sequence, retired_before, epoch) in (any::<u64>(), any::<u64>(), any::<u64>()),
        records in proptest::collection::vec(any_record(), 0..6),
    ) -> LogBatch {
        LogBatch {
            array: ArrayUuid(a),
            member: MemberUuid(m),
            lane,
            sequence,
            retired_before,
            epoch: Epoch(epoch),
            records,
        }
    }
}

/// A move to this shape, every other time, where there can be one.
fn moving(
    (level, members, group_size): (Level, u8, u8),
    band: u16,
    fixed: u8,
    seed: u32,
) -> Option<Moving> {
    let least = level.group_min() + u8::from(matches!(level, Level::Raid0));
    let moves = matches!(
        level,
        Level::Raid0 | Level::Raid5 | Level::Raid6 | Level::Raid7_3
    );
    let more = members > least && members > fixed + 1;
    let band_rows = match seed >> 10 & 1 {
        1 => band,
        _ => 1,
    };
    let mirrored = matches!(level, Level::Raid1 | Level::Raid10);
    let other = band_rows != band && !mirrored;
    // From one group, and from two.
    let old = match (level.with_groups(false), level.is_grouped()) {
        (Some(one), true) => Some((one.group_min() + 1, one.group_min() + 1)),
        (Some(one), false) if fixed == 0 && members / 2 >= one.group_min() => {
            Some((members / 2 * 2, members / 2))
        }
        _ => None,
    };
    let old = old.filter(|_| seed >> 11 & 1 == 1);
    let group_size = if level.is_grouped() {
        group_size
    } else {
        members
    };
    // To where one more parity can go.
    let lowers = old.is_none() && fixed > 0 && seed >> 12 & 1 == 1;
    let (from, from_group) = match (old, other || lowers) {
        (Some(old), _) => old,
        (None, true) => (members, group_size),
        (None, false) => (members.saturating_sub(1), members.saturating_sub(1)),
    };
    ((old.is_some() || other || lowers || moves && more) && seed % 4 < 2).then_some(Moving {
        members: from,
        group_size: from_group,
        // Of one group some may lie on members of their own.
        fixed_parities: match (fixed, from == from_group && seed >> 13 & 1 == 1) {
            (0, true) => level.parity_count().min(1),
            _ if lowers => fixed - 1,
            _ => fixed,
        },
        band_rows: if lowers { band } else { band_rows },
        moved_rows: u64::from(seed % 8 * u32::from(band)),
        stopped: seed % 4 == 1,
    })
}

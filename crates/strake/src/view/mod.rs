//! From the engine's and the format's values to the JSON shapes.
//!
//! Invariant: the words of cli.md (states, jobs) are written here and nowhere else. Deliberately
//! absent: I/O.

pub(crate) mod backup;
pub(crate) mod latency;
pub(crate) mod stats;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use strake_engine::Geometry;
use strake_engine::event::*;
use strake_engine::meters::HedgeCounts;
use strake_engine::units::{DeviceId, RegionNo};
use strake_format::*;
use strake_runtime::{Export, MemberImage, Placed, cpus_text};

use crate::api::*;
use crate::common::absolute;
use crate::common::errors::{Code, Failure};
use crate::common::time::{after_1970, rfc3339};
use crate::settings::NO_POOL;
use crate::settings::degraded::OwnRule;
use crate::settings::placement::PlacementRecord;
use crate::settings::schedule;

/// Settings that an array carries, and what it may take of this machine.
pub(crate) fn settings(sb: &Superblock, placement: &PlacementRecord) -> SettingsJson {
    SettingsJson {
        rebuild_priority: Some(sb.settings.rebuild_priority),
        resync_priority: Some(sb.settings.resync_priority),
        scrub_priority: Some(sb.settings.scrub_priority),
        restripe_priority: Some(sb.settings.restripe_priority),
        init_priority: Some(sb.settings.init_priority),
        latency_target_us: Some(sb.settings.latency_target_us),
        spare_delay_ms: Some(sb.settings.spare_delay_ms),
        scrub_schedule: Some(sb.settings.scrub_period.as_str().to_owned()),
        scrub_at: Some(schedule::time_text(sb.settings.scrub_minute)),
        scrub_policy: Some(schedule::policy_word(sb.settings.scrub_policy).to_owned()),
        read_error_threshold: Some(sb.settings.read_error_threshold),
        write_hole: Some(sb.write_hole.to_string()),
        cpus: Some(placement.cpus_text()),
        shards: Some(placement.shards.unwrap_or(0)),
        memory_limit_bytes: Some(placement.memory_limit_bytes.unwrap_or(0)),
        requests: Some(placement.requests.unwrap_or(0)),
        replace_at_wear: Some(placement.replace_at_wear().unwrap_or(0)),
        pool: Some(placement.pool.clone().unwrap_or_else(|| NO_POOL.to_owned())),
        hedged_reads: Some(on_off(sb.settings.hedged_reads).to_owned()),
        degraded: Some(OwnRule::text(placement.degraded)),
        dry_run: false,
    }
}

/// An array with what was said of it on this machine.
pub(crate) fn with_placement(array: ArrayJson, placement: &PlacementRecord) -> ArrayJson {
    ArrayJson {
        degraded_start: OwnRule::text(placement.degraded),
        ..array
    }
}

/// What an array in service has of the machine.
pub(crate) fn placed(placed: &Placed, requests: Option<u32>) -> PlacedJson {
    let cpus: BTreeSet<usize> = placed.cpus.iter().flatten().copied().collect();
    let cpus: Vec<usize> = cpus.into_iter().collect();
    PlacedJson {
        shards: placed.shards,
        cpus: (!cpus.is_empty()).then(|| cpus_text(&cpus)),
        numa_nodes: placed.nodes.iter().copied().collect(),
        memory_bytes: placed.memory_bytes,
        requests,
    }
}

/// A switch in a word.
pub(crate) fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

pub(crate) fn latency(quantiles: Quantiles) -> LatencyJson {
    LatencyJson {
        p50_us: quantiles.p50_ns.div_ceil(1000),
        p99_us: quantiles.p99_ns.div_ceil(1000),
        p999_us: quantiles.p999_ns.div_ceil(1000),
    }
}

fn retries(counts: &RetryCounts) -> RetriesJson {
    RetriesJson {
        tries: counts.tries,
        got_through: counts.got_through,
        failed: counts.failed,
        resets: counts.resets,
    }
}

fn hedged(counts: &HedgeCounts) -> HedgedJson {
    HedgedJson {
        issued: counts.issued,
        won: counts.won,
        lost: counts.lost,
        refused: counts.refused,
    }
}

/// One word for the array's state.
pub(crate) fn array_state(state: ArrayState) -> &'static str {
    match state {
        ArrayState::Optimal => "optimal",
        ArrayState::Degraded => "degraded",
        ArrayState::Failed => "failed",
        ArrayState::Stopped => "stopped",
    }
}

/// One word for a member's state.
pub(crate) fn member_state(state: MemberState) -> &'static str {
    match state {
        MemberState::InSync => "in_sync",
        MemberState::Rebuilding => "rebuilding",
        MemberState::Missing => "missing",
        MemberState::Failed => "failed",
        MemberState::Stale => "stale",
        MemberState::Spare => "spare",
    }
}

/// One word for why a member is out, or would be.
pub(crate) fn out_cause(cause: OutCause) -> &'static str {
    match cause {
        OutCause::NotFound => "not_found",
        OutCause::Stale => "stale",
        OutCause::OlderImage => "older_image",
        OutCause::Emptied => "emptied",
        OutCause::Unfit => "unfit",
        OutCause::Shrunk => "shrunk",
        OutCause::Gone => "gone",
        OutCause::WriteError => "write_error",
        OutCause::TimedOut => "timed_out",
        OutCause::ReadErrors => "read_errors",
        OutCause::Asked => "asked",
        OutCause::Replaced => "replaced",
    }
}

/// One word for what the table of a superblock says of a slot.
pub(crate) fn slot_state(state: SlotState) -> &'static str {
    match state {
        SlotState::InSync => "in_sync",
        SlotState::Rebuilding { .. } => "rebuilding",
        SlotState::Missing => "missing",
        SlotState::Failed => "failed",
    }
}

/// One word for a job.
pub(crate) fn job_kind(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Rebuild => "rebuild",
        JobKind::Resync => "resync",
        JobKind::Scrub => "scrub",
        JobKind::Restripe => "restripe",
        JobKind::Init => "init",
        JobKind::Accept => "accept",
    }
}

/// One word for what makes a job slower than it could be.
fn held_back(by: HeldBack) -> &'static str {
    match by {
        HeldBack::None => "none",
        HeldBack::Priority => "priority",
        HeldBack::Latency => "latency",
    }
}

/// One word for a region's state.
pub(crate) fn region_state(state: RegionState) -> &'static str {
    match state {
        RegionState::Unwritten => "unwritten",
        RegionState::Clean => "clean",
        RegionState::Dirty => "dirty",
        RegionState::NeedSync => "need_sync",
    }
}

fn group_size(sb: &Superblock) -> Option<u8> {
    sb.level.is_grouped().then_some(sb.group_size)
}

fn uuid_text(member: MemberUuid) -> Option<String> {
    (!member.is_nil()).then(|| member.to_string())
}

/// A running array.
pub(crate) fn running(
    status: &Status,
    export: &Export,
    placement: PlacedJson,
    path: impl Fn(DeviceId) -> Option<PathBuf>,
) -> ArrayJson {
    let sb = &status.superblock;
    let member = |m: &MemberStatus| MemberJson {
        slot: m.slot.map(|s| s.0),
        device: m.device.and_then(&path).map(|p| p.display().to_string()),
        uuid: uuid_text(m.member),
        state: member_state(m.state).to_owned(),
        read_errors: m.read_errors,
        write_errors: m.write_errors,
        mismatches: m.mismatches,
        retries: retries(&m.retries),
        doubted: m.doubted.map(|cause| out_cause(cause).to_owned()),
        full_since: m
            .full_since_unix_s
            .map(|s| rfc3339(after_1970(Duration::from_secs(s)))),
        slow: m.latency.slow,
        read_latency: m.latency.read.map(latency),
        write_latency: m.latency.write.map(latency),
        hedged_reads: hedged(&m.latency.hedges),
        spare_in_s: m.spare_in_ns.map(|ns| ns.div_ceil(1_000_000_000)),
        was: None,
    };
    let (slots, spares): (Vec<_>, Vec<_>) = status.members.iter().partition(|m| m.slot.is_some());
    ArrayJson {
        state: array_state(status.state).to_owned(),
        size_bytes: status.size_bytes,
        device: export.device(),
        export: Some(self::export(export)),
        placement: Some(placement),
        unwritten_bytes: status.unwritten_bytes,
        unreadable_bytes: status.unreadable.iter().map(|r| r.end - r.start).sum(),
        unreadable: status.unreadable.iter().map(range).collect(),
        members: slots.into_iter().map(member).collect(),
        spares: spares.into_iter().map(member).collect(),
        set_aside: Vec::new(),
        jobs: status.jobs.iter().map(job).collect(),
        ..undecided(sb, &status.undecided)
    }
}

/// What a superblock tells of an array in which these regions are undecided.
fn undecided(sb: &Superblock, regions: &[RegionNo]) -> ArrayJson {
    let geometry = Geometry::of(sb);
    let parts = regions.iter().flat_map(|&r| geometry.region_parts(r));
    let mut places: Vec<Range<u64>> = parts.filter(|part| !part.is_empty()).collect();
    places.sort_by_key(|part| part.start);
    let bytes = places.iter().map(|part| part.end - part.start).sum();
    places.dedup_by(|next, last| {
        let joins = next.start == last.end;
        last.end = if joins { next.end } else { last.end };
        joins
    });
    ArrayJson {
        undecided_regions: regions.len() as u64,
        undecided_bytes: bytes,
        undecided: places.iter().map(range).collect(),
        ..blank(sb)
    }
}

/// What serves the block device, and how.
fn export(export: &Export) -> ExportJson {
    let kind = |kind: &str| ExportJson {
        kind: kind.to_owned(),
        mode: None,
        queues: None,
        depth: None,
        kernel_features: None,
    };
    match export {
        Export::Nbd { .. } => kind("nbd"),
        Export::None => kind("none"),
        Export::Ublk(ublk) => ExportJson {
            mode: Some(ublk.mode.to_owned()),
            queues: Some(ublk.queues),
            depth: Some(ublk.depth),
            kernel_features: Some(ublk.kernel_features.iter().map(|&f| f.to_owned()).collect()),
            ..kind("ublk")
        },
    }
}

fn range(bytes: &Range<u64>) -> RangeJson {
    RangeJson {
        offset_bytes: bytes.start,
        len_bytes: bytes.end - bytes.start,
    }
}

/// What a scrub found.
pub(crate) fn scrubbed(last: &ScrubResult) -> ScrubJson {
    let at = |unix_s| rfc3339(after_1970(Duration::from_secs(unix_s)));
    ScrubJson {
        repair: last.mode == ScrubMode::Repair,
        begun: at(last.begun_unix_s),
        ended: at(last.ended_unix_s),
        inconsistent_stripes: last.found.inconsistent,
        located_stripes: last.found.located,
        repaired_stripes: last.found.repaired(last.mode),
        unreadable_stripes: last.found.unreadable,
    }
}

/// A job of a running array.
pub(crate) fn job(job: &JobStatus) -> JobJson {
    let left = job.total_bytes.saturating_sub(job.done_bytes);
    JobJson {
        kind: job_kind(job.kind).to_owned(),
        slot: job.slot.map(|s| s.0),
        partial: job.partial,
        done_bytes: job.done_bytes,
        total_bytes: job.total_bytes,
        rate_bytes_per_s: job.rate_bytes_per_s,
        eta_s: (!job.paused && job.rate_bytes_per_s > 0).then(|| left / job.rate_bytes_per_s),
        paused: job.paused,
        paused_by: None,
        held_back_by: held_back(job.held_back).to_owned(),
        foreground_p99_us: job.foreground_p99_ns.map(|ns| ns / 1000),
        inconsistent_stripes: job.inconsistent,
        repaired_stripes: job.repaired,
    }
}

/// What a superblock alone tells of an array that does not run.
fn blank(sb: &Superblock) -> ArrayJson {
    ArrayJson {
        conflict: None,
        not_found: false,
        may_be_on: Vec::new(),
        alerts_failing: Vec::new(),
        name: sb.name.to_string(),
        uuid: sb.array.to_string(),
        level: sb.level.to_string(),
        state: array_state(ArrayState::Stopped).to_owned(),
        daemon: false,
        startable: None,
        destroyed: None,
        would_wipe: Vec::new(),
        size_bytes: Geometry::of(sb).size(),
        strip_bytes: u64::from(sb.user_strip_bytes()),
        group_size: group_size(sb),
        fixed_parities: sb.fixed_parities,
        block_bytes: sb.block_bytes,
        device: None,
        export: None,
        placement: None,
        moving: moving(sb),
        write_hole: sb.write_hole.to_string(),
        latency_target_us: sb.settings.latency_target_us,
        degraded_start: OwnRule::text(None),
        epoch: sb.epoch.0,
        unwritten_bytes: 0,
        unreadable_bytes: 0,
        unreadable: Vec::new(),
        undecided_regions: 0,
        undecided_bytes: 0,
        undecided: Vec::new(),
        members: Vec::new(),
        spares: Vec::new(),
        set_aside: Vec::new(),
        jobs: Vec::new(),
        last_scrub: sb.last_scrub.as_ref().map(scrubbed),
        volumes: VolumesJson {
            carved: sb.carved,
            ..VolumesJson::default()
        },
    }
}

/// How far data is that moves to another shape.
pub(crate) fn moving(sb: &Superblock) -> Option<MovingJson> {
    let moving = sb.moving?;
    let geometry = Geometry::of(sb);
    let from_columns = geometry.old_row_columns()?;
    let strip = |band_rows: u16| u64::from(sb.strip_bytes) * u64::from(band_rows);
    Some(MovingJson {
        from_columns,
        to_columns: geometry.row_columns(),
        from_group_size: (moving.group_size != moving.members).then_some(moving.group_size),
        to_group_size: group_size(sb),
        from_fixed_parities: moving.fixed_parities,
        to_fixed_parities: sb.fixed_parities,
        from_strip_bytes: strip(moving.band_rows),
        to_strip_bytes: strip(sb.band_rows),
        moved_bytes: geometry.frontier(),
        total_bytes: geometry.size(),
        stopped: moving.stopped,
    })
}

/// An array that does not run, from the superblock to believe, what else that member says, and
/// where each member was found.
pub(crate) fn stopped(
    sb: &Superblock,
    map: &[Option<MapPage>],
    lost: &[Range<u64>],
    path: impl Fn(MemberUuid) -> Option<PathBuf>,
) -> ArrayJson {
    let shown = |member: MemberUuid| path(member).map(|p| p.display().to_string());
    let member = |(index, record): (usize, &SlotRecord)| {
        let device = shown(record.member);
        let state = match device {
            None if record.state.is_live() => "missing",
            _ => slot_state(record.state),
        };
        MemberJson {
            slot: Some(index as u8),
            device,
            uuid: uuid_text(record.member),
            state: state.to_owned(),
            ..MemberJson::default()
        }
    };
    let spare = |uuid: &MemberUuid| MemberJson {
        slot: None,
        device: shown(*uuid),
        uuid: uuid_text(*uuid),
        state: member_state(MemberState::Spare).to_owned(),
        ..MemberJson::default()
    };
    ArrayJson {
        members: sb.slots.iter().enumerate().map(member).collect(),
        spares: sb.spares.iter().map(spare).collect(),
        set_aside: Vec::new(),
        unwritten_bytes: unwritten(sb, map),
        unreadable_bytes: lost.iter().map(|r| r.end - r.start).sum(),
        unreadable: lost.iter().map(range).collect(),
        ..undecided(sb, &undecided_in(sb, map))
    }
}

/// Regions that a member's map calls undecided.
pub(crate) fn undecided_in(sb: &Superblock, map: &[Option<MapPage>]) -> Vec<RegionNo> {
    let regions = Geometry::of(sb).regions();
    let pages = map.iter().flatten().flat_map(|page| {
        let first = page.page * u32::from(sb.layout.page_regions);
        let places = page.undecided.iter();
        places.map(move |&at| RegionNo(first + u32::from(at)))
    });
    pages.filter(|region| region.0 < regions).collect()
}

fn unwritten(sb: &Superblock, map: &[Option<MapPage>]) -> u64 {
    let geometry = Geometry::of(sb);
    (0..geometry.regions())
        .filter(|&r| region_in(sb, map, r) == Some(RegionState::Unwritten))
        .flat_map(|r| geometry.region_parts(RegionNo(r)))
        .map(|range| range.end - range.start)
        .sum()
}

/// State of a region in a member's map.
pub(crate) fn region_in(
    sb: &Superblock,
    map: &[Option<MapPage>],
    region: u32,
) -> Option<RegionState> {
    let per_page = usize::from(sb.layout.page_regions);
    let page = map.get(region as usize / per_page)?.as_ref()?;
    page.states.get(region as usize % per_page).copied()
}

/// Its sessions, the newest first.
fn sessions(sb: &Superblock) -> Vec<SessionJson> {
    let mut last = sb.generation.0;
    let told = |session: &Session| SessionJson {
        session: (session.number != 0).then(|| format!("{:08x}", session.number)),
        first_generation: session.first.0,
        last_generation: std::mem::replace(&mut last, session.first.0 - 1),
    };
    sb.sessions.iter().map(told).collect()
}

/// One member, offline.
pub(crate) fn examine(image: &MemberImage) -> ExamineJson {
    let sb = &image.superblock;
    let slot = |(index, record): (usize, &SlotRecord)| SlotJson {
        slot: index as u8,
        uuid: uuid_text(record.member),
        state: slot_state(record.state).to_owned(),
        since_epoch: record.since.0,
    };
    let mut regions = RegionsJson::default();
    for page in &image.map {
        let Some(page) = page else {
            regions.damaged_pages += 1;
            continue;
        };
        for state in &page.states {
            *match state {
                RegionState::Unwritten => &mut regions.unwritten,
                RegionState::Clean => &mut regions.clean,
                RegionState::Dirty => &mut regions.dirty,
                RegionState::NeedSync => &mut regions.need_sync,
            } += 1;
        }
    }
    ExamineJson {
        array: ExamineArrayJson {
            name: sb.name.to_string(),
            uuid: sb.array.to_string(),
            level: sb.level.to_string(),
            members: sb.members,
            strip_bytes: sb.user_strip_bytes(),
            group_size: group_size(sb),
            block_bytes: sb.block_bytes,
            write_hole: sb.write_hole.to_string(),
            created_unix_s: sb.created_unix_s,
            moving: moving(sb),
        },
        member_uuid: sb.member.to_string(),
        slot: match sb.role {
            Role::Slot(slot) => Some(slot.0),
            Role::Spare => None,
        },
        data_offset_bytes: sb.layout.data_offset,
        data_bytes: sb.layout.data_bytes,
        epoch: sb.epoch.0,
        generation: sb.generation.0,
        sessions: sessions(sb),
        clean: sb.clean,
        copies: image
            .copies
            .iter()
            .map(|&(offset_bytes, valid)| CopyJson {
                offset_bytes,
                valid,
            })
            .collect(),
        slots: sb.slots.iter().enumerate().map(slot).collect(),
        regions,
        unreadable: image
            .lost_bytes()
            .map(|lost| lost.iter().map(range).collect()),
    }
}

/// Where a logical block lies; `members` as `show` tells them, `unreadable` the bytes that are
/// lost, `undecided` the regions that are, `state_at` the region's state by byte offset.
pub(crate) fn explain(
    sb: &Superblock,
    members: &[MemberJson],
    lba: u64,
    unreadable: &[Range<u64>],
    undecided: &[RegionNo],
    state_at: impl Fn(u64, u32) -> Option<RegionState>,
) -> Result<ExplainJson, Failure> {
    let geometry = Geometry::of(sb);
    let offset = lba
        .checked_mul(geometry.block)
        .filter(|&o| o < geometry.size());
    let Some(offset) = offset else {
        let found = format!(
            "block {lba} of an array of {}",
            geometry.size() / geometry.block
        );
        return Err(Failure::new(Code::LbaInvalid, found));
    };
    let place = geometry.locate(offset);
    let (group, row) = geometry.row(place.stripe);
    let region = geometry.region(row);
    let at = |kind: String, column: usize| {
        let slot = geometry.slot(place.stripe, column);
        let member = members.iter().find(|m| m.slot == Some(slot.0));
        PlaceJson {
            kind,
            slot: slot.0,
            device: member.and_then(|m| m.device.clone()),
            member_state: member.map_or("missing".to_owned(), |m| m.state.clone()),
            member_offset_bytes: sb.layout.data_offset + geometry.row_offset(row) + place.offset,
        }
    };
    let name = |parity: usize| match (geometry.mirrored(), parity) {
        (true, _) => "copy".to_owned(),
        (false, 0..3) => ["P", "Q", "R"][parity].to_owned(),
        (false, _) => format!("P{parity}"),
    };
    Ok(ExplainJson {
        name: sb.name.to_string(),
        lba,
        block_bytes: geometry.block,
        offset_bytes: offset,
        stripe: place.stripe.0,
        group,
        row: row.0,
        column: place.column as u64,
        region: region.0,
        region_state: state_at(offset, region.0).map(|s| region_state(s).to_owned()),
        unreadable: unreadable.iter().any(|r| r.contains(&offset)),
        undecided: undecided.contains(&region),
        data: at("D".to_owned(), place.column),
        redundancy: (0..geometry.m)
            .map(|j| at(name(j), geometry.columns(place.stripe).k + j))
            .collect(),
    })
}

/// The member that a user means, as `show` tells it.
pub(crate) fn shown_member(array: &ArrayJson, text: &str) -> Result<MemberJson, Failure> {
    let path = absolute(Path::new(text)).display().to_string();
    let is = |m: &&MemberJson| match text.parse::<u8>() {
        Ok(slot) => m.slot == Some(slot),
        Err(_) => m.device.as_ref() == Some(&path),
    };
    match array.members_and_spares().find(is) {
        Some(member) => Ok(member.clone()),
        None => departed(array, text),
    }
}

/// The slot that had a device last, which no member has now.
pub(crate) fn departed(array: &ArrayJson, text: &str) -> Result<MemberJson, Failure> {
    let path = absolute(Path::new(text)).display().to_string();
    let had = |m: &&MemberJson| m.was.as_ref().is_some_and(|was| was.device == path);
    let slots: Vec<&MemberJson> = array.members.iter().filter(had).collect();
    let name = &array.name;
    let text = if text.is_empty() { "''" } else { text };
    let failure = |found| Failure::new(Code::MemberNotFound, found);
    match slots.as_slice() {
        [slot] => Ok((*slot).clone()),
        [] => Err(failure(format!("{text} is no slot or device of {name}"))
            .cure(format!("strake show {name} lists slots and devices"))),
        slots => {
            let slots: Vec<String> = slots.iter().map(|m| slot_text(m)).collect();
            let found = format!("{text} was in slots {} of {name}", slots.join(", "));
            Err(failure(found).cure("name the slot"))
        }
    }
}

fn slot_text(member: &MemberJson) -> String {
    member
        .slot
        .map_or_else(|| "?".to_owned(), |s| s.to_string())
}

/// What keeps an array from being in order: slots without a member in sync, and a resync.
pub(crate) fn amiss(array: &ArrayJson) -> String {
    let members = array.members.iter().filter(|m| m.state != "in_sync");
    let slots = members.map(|m| format!("slot {} is {}", slot_text(m), m.state));
    let resync = array.jobs.iter().filter(|job| job.kind == "resync");
    let all: Vec<String> = slots
        .chain(resync.map(|_| "a resync is under way".to_owned()))
        .collect();
    all.join(", ")
}

/// What an array that has failed answers to commands, with the way back.
pub(crate) fn failed(array: &ArrayJson) -> Failure {
    let name = &array.name;
    let out = array.members.iter().filter_map(|member| {
        // The last one keeps its slot: without it there is no array.
        let last =
            |was: &&WasJson| member.device.is_none() || member.device == Some(was.device.clone());
        let was = member.was.as_ref().filter(last);
        if member.state == "in_sync" && was.is_none() {
            return None;
        }
        let device = was.map(|was| &was.device).or(member.device.as_ref());
        let device = device
            .map(|device| format!("{device}: "))
            .unwrap_or_default();
        let cause = was.and_then(|was| was.cause.as_ref());
        let why = cause.unwrap_or(&member.state);
        Some(format!("slot {} ({device}{why})", slot_text(member)))
    });
    let out: Vec<String> = out.collect();
    let start = format!("strake stop {name}, then strake start {name}");
    let (found, cure) = match out.as_slice() {
        [] => (
            format!("{name} has failed"),
            format!("strake events says why; {start}"),
        ),
        out => (
            format!("{name} has failed; out of service: {}", out.join(", ")),
            format!("bring these members back, {start}"),
        ),
    };
    Failure::new(Code::NotServing, found).cure(cure)
}

#[cfg(test)]
pub(crate) mod tests {
    use strake_engine::create::{self, CreateSpec, Init};

    use super::*;

    const STRIP: u64 = 64 << 10;

    #[test]
    fn what_was_counted_of_a_member_is_told() {
        let retries = RetryCounts {
            tries: 9,
            got_through: 5,
            failed: 2,
            resets: 1,
        };
        let member = MemberStatus {
            slot: Some(Slot(0)),
            device: None,
            member: MemberUuid([1; 16]),
            state: MemberState::InSync,
            heard: Generation(0),
            doubted: Some(OutCause::Emptied),
            full_since_unix_s: None,
            read_errors: 3,
            write_errors: 4,
            mismatches: 6,
            retries,
            latency: LatencyStatus::default(),
            spare_in_ns: None,
            wants_spare: false,
            aside: None,
        };
        let status = Status {
            superblock: half_way(),
            state: ArrayState::Optimal,
            size_bytes: 0,
            unwritten_bytes: 0,
            regions: RegionCounts::default(),
            unreadable: Vec::new(),
            map_had: Vec::new(),
            undecided: Vec::new(),
            members: vec![member],
            jobs: Vec::new(),
            rebuilds_stopped: false,
            rebuild_blocked: false,
            spares_elsewhere: false,
        };
        let placed = PlacedJson {
            shards: 1,
            cpus: None,
            numa_nodes: Vec::new(),
            memory_bytes: 0,
            requests: None,
        };
        let told = running(&status, &Export::None, placed, |_| None);
        let member = &told.members[0];
        let errors = (member.read_errors, member.write_errors, member.mismatches);
        assert_eq!(errors, (3, 4, 6));
        assert_eq!(member.doubted.as_deref(), Some("emptied"));
        let told = &member.retries;
        let counts = (told.tries, told.got_through, told.failed, told.resets);
        assert_eq!(counts, (9, 5, 2, 1));
    }

    /// RAID 5 of three, with data that moves to a fourth: two rows lie in the new shape, and the
    /// third row of the old shape is the first that counts. Both are in the first region.
    pub(crate) fn half_way() -> Superblock {
        let info = DeviceInfo {
            bytes: 64 << 20,
            block_bytes: 4096,
            granularity_bytes: 0,
            volatile_cache: false,
            dma: false,
        };
        let spec = CreateSpec {
            array: ArrayUuid([9; 16]),
            name: "data".parse().expect("a name"),
            level: Level::Raid5,
            strip_bytes: Some(STRIP as u32),
            group_size: None,
            block_bytes: None,
            write_hole: WriteHole::Closed,
            settings: Settings::default(),
            init: Init::Lazy,
            created_unix_s: 0,
            members: (1..=4).map(|n| (info, MemberUuid([n; 16]))).collect(),
            spares: Vec::new(),
            tiny: None,
        };
        let plan = create::plan(&spec).expect("it can be made");
        let mut sb = plan.superblocks[0].clone();
        sb.moving = Some(Moving {
            members: 3,
            group_size: 3,
            fixed_parities: 0,
            band_rows: 1,
            moved_rows: 2,
            stopped: true,
        });
        sb
    }

    #[test]
    fn what_was_never_written_is_counted_in_both_shapes_of_a_move() {
        let sb = half_way();
        let count = sb.layout.regions() as usize;
        assert!(count <= usize::from(sb.layout.page_regions));
        let size = Geometry::of(&sb).size();
        let page = |first: RegionState| {
            let mut states = vec![RegionState::Unwritten; count];
            states[0] = first;
            [Some(MapPage {
                array: sb.array,
                member: sb.member,
                page: 0,
                epoch: sb.epoch,
                sequence: 1,
                states,
                behind: Vec::new(),
                undecided: Vec::new(),
                whole_at: 0,
            })]
        };
        assert_eq!(unwritten(&sb, &page(RegionState::Unwritten)), size);
        // Two rows of three strips; of the elder shape the rows 3 to 15, of two strips.
        let first = 2 * 3 * STRIP + 13 * 2 * STRIP;
        assert_eq!(unwritten(&sb, &page(RegionState::Dirty)), size - first);
    }

    #[test]
    fn a_move_is_told_by_columns_and_bytes() {
        let sb = half_way();
        let told = moving(&sb).expect("its data moves");
        let size = Geometry::of(&sb).size();
        let wanted = MovingJson {
            from_columns: 2,
            to_columns: 3,
            from_group_size: None,
            to_group_size: None,
            from_fixed_parities: 0,
            to_fixed_parities: 0,
            from_strip_bytes: STRIP,
            to_strip_bytes: STRIP,
            moved_bytes: 2 * 3 * STRIP,
            total_bytes: size,
            stopped: true,
        };
        assert_eq!(told, wanted);
        let still = Superblock { moving: None, ..sb };
        assert_eq!(moving(&still), None);
    }

    #[test]
    fn blocks_on_either_side_of_the_frontier_are_explained_in_their_shape() {
        let sb = half_way();
        let block = u64::from(sb.block_bytes);
        let explained = |offset: u64| {
            let told = explain(&sb, &[], offset / block, &[], &[], |_, _| None);
            told.expect("a block of the array")
        };
        let slots = |from: u64, columns: u64| {
            let all = (0..columns).map(|column| explained(from + column * STRIP));
            let all = all.flat_map(|e| [e.data.slot, e.redundancy[0].slot]);
            all.collect::<BTreeSet<u8>>()
        };
        let frontier = 2 * 3 * STRIP;
        let last = explained(frontier - block);
        assert_eq!((last.stripe, last.row, last.column), (1, 1, 2));
        let at = sb.layout.data_offset + 2 * STRIP - block;
        assert_eq!(last.data.member_offset_bytes, at);
        let first = explained(frontier);
        assert_eq!((first.stripe, first.row, first.column), (3, 3, 0));
        let at = sb.layout.data_offset + 3 * STRIP;
        assert_eq!(first.data.member_offset_bytes, at);
        // The new shape has all four members, the elder one the first three.
        assert_eq!(slots(frontier - 3 * STRIP, 3), BTreeSet::from([0, 1, 2, 3]));
        assert_eq!(slots(frontier, 2), BTreeSet::from([0, 1, 2]));
        assert_eq!((last.region, first.region), (0, 0));
    }
}

//! Making an array: what a new array is, checked, and the bytes to write on each member.
//!
//! Pure: the caller does what [`CreatePlan::clearing`] and [`CreatePlan::steps`] say, in that
//! order. A superblock is written when all that it speaks for is durable on every device, and no
//! member has its second copy before all have their first: whatever a crash leaves undone, what is
//! there either is the whole array, is too little to be one, or lacks members that it survives
//! without. Deliberately absent: looking at what is on the devices (mounts, signatures); the caller
//! does that first.

use std::ops::Range;

use strake_format::*;

use crate::geometry::Geometry;

use crate::proto::DeviceInfo;

/// What to make.
#[derive(Clone, Debug)]
pub struct CreateSpec {
    /// Random identity of the array, drawn by the caller.
    pub array: ArrayUuid,
    /// Its name.
    pub name: ArrayName,
    /// Its level.
    pub level: Level,
    /// Bytes of a strip; `None`: the largest that keeps a full data stripe at or under 1 MiB, at
    /// least 16 KiB and the members' write granularity.
    pub strip_bytes: Option<u32>,
    /// Members of a group, for the grouped levels (10 defaults to 2).
    pub group_size: Option<u8>,
    /// Logical block: 512 or 4096; `None`: the members' largest.
    pub block_bytes: Option<u32>,
    /// Write-hole policy.
    pub write_hole: WriteHole,
    /// What else is set.
    pub settings: Settings,
    /// What the members hold at first.
    pub init: Init,
    /// Seconds since the Unix epoch.
    pub created_unix_s: u64,
    /// Members, one for each slot in order, with identities drawn by the caller.
    pub members: Vec<(DeviceInfo, MemberUuid)>,
    /// Spares.
    pub spares: Vec<(DeviceInfo, MemberUuid)>,
    /// Layout of the simulator: small alignment, log and regions.
    pub tiny: Option<Tiny>,
}

/// Small layout for small members.
#[derive(Clone, Copy, Debug)]
pub struct Tiny {
    /// Alignment of the data area, bytes.
    pub align_bytes: u64,
    /// Bytes of the log area, at least.
    pub log_bytes: u64,
    /// Shards that it must have room for.
    pub log_shards: u16,
    /// Bytes of a region on each member.
    pub region_bytes: u64,
    /// Regions that a page of the map covers; as many as fit if not given.
    pub page_regions: Option<u16>,
}

/// State of the regions of a new array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Init {
    /// Unwritten; each region is zeroed on every member before its first write.
    Lazy,
    /// The same, and the array zeroes them in the background from its start on.
    Zero,
    /// Parity unknown: a resync makes it true while the array serves.
    Sync,
    /// The administrator swears that parity is true.
    AssumeClean,
}

/// The bytes of a new array.
#[derive(Clone, Debug)]
pub struct CreatePlan {
    /// Superblock of every member, then of every spare.
    pub superblocks: Vec<Superblock>,
    /// Writes for the same, in the same order: (offset on the device, bytes), as `steps` order
    /// them.
    pub writes: Vec<Vec<(u64, Vec<u8>)>>,
    /// Size of the block device, bytes.
    pub size_bytes: u64,
}

/// One thing to do on a device, by its place in the plan: members, then spares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Make these bytes zero.
    Zero {
        /// Which device.
        at: usize,
        /// From here on.
        offset: u64,
        /// So many.
        len: u64,
    },
    /// Write these.
    Write {
        /// Which device.
        at: usize,
        /// Where.
        offset: u64,
        /// Bytes.
        bytes: &'a [u8],
    },
    /// Make durable what was written.
    Flush {
        /// Which device.
        at: usize,
    },
}

/// Why an array cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// Fewer members than the level needs.
    #[error("level {level} needs at least {needs} members, not {has}")]
    TooFew {
        /// The level.
        level: Level,
        /// At least.
        needs: usize,
        /// Given.
        has: usize,
    },
    /// More members than the level or the format allows.
    #[error("level {level} takes at most {max} members, not {has}")]
    TooMany {
        /// The level.
        level: Level,
        /// At most.
        max: usize,
        /// Given.
        has: usize,
    },
    /// More than sixteen spares.
    #[error("at most 16 spares, {0} were given")]
    TooManySpares(usize),
    /// Strip not a power of two within 4 KiB and 1 MiB.
    #[error("a strip is a power of two from 4096 to 1048576 bytes, {0} is not")]
    Strip(u64),
    /// Strip smaller than the logical block.
    #[error(
        "the strip of {strip} bytes is not a multiple of the members' write granularity, \
         {granularity}"
    )]
    StripGranularity {
        /// The strip.
        strip: u32,
        /// The members' granularity.
        granularity: u32,
    },
    /// A group size for a level without groups.
    #[error("level {0} has no groups")]
    NoGroups(Level),
    /// A grouped level without a group size.
    #[error("level {0} needs a group size")]
    GroupSizeMissing(Level),
    /// The group size does not divide the number of members, or is too small for the level.
    #[error(
        "a group of {group} does not fit {members} members of level {level} \
         (at least {needs} a group)"
    )]
    GroupSize {
        /// The level.
        level: Level,
        /// Asked for.
        group: u8,
        /// Members given.
        members: usize,
        /// Smallest group of the level.
        needs: usize,
    },
    /// Logical block other than 512 or 4096.
    #[error("a logical block has 512 or 4096 bytes, not {0}")]
    Block(u32),
    /// Members of different logical block size.
    #[error("members have different logical block sizes: {0} and {1} bytes")]
    MixedBlocks(u32, u32),
    /// Logical block smaller than a member's.
    #[error("a logical block of {asked} bytes is smaller than the members' {has}")]
    BlockTooSmall {
        /// Asked for.
        asked: u32,
        /// The members'.
        has: u32,
    },
    /// More bytes than a block device can have.
    #[error(
        "{data_bytes} bytes of data on each of {members} members are more than the 2^63 - 1 bytes \
         that a block device can have"
    )]
    TooLarge {
        /// On each member.
        data_bytes: u64,
        /// Members.
        members: usize,
    },
    /// A member too small for any data.
    #[error("member {index} is too small: {source}")]
    Layout {
        /// Position in the list, members then spares.
        index: usize,
        /// What does not fit.
        source: LayoutError,
    },
}

/// The arithmetic of an array of one row.
fn shape_of(
    level: Level,
    members: usize,
    width: usize,
    k: usize,
    (strip, block): (u32, u32),
) -> Geometry {
    let groups = (members / width) as u64;
    Geometry {
        level,
        groups,
        per_row: groups,
        width,
        k,
        m: width - k,
        fixed: 0,
        strip: u64::from(strip),
        block: u64::from(block),
        band: 1,
        rows: 1,
        region_rows: 1,
        old_shape: None,
    }
}

/// Checks `spec` and lays the array out.
///
/// # Errors
/// The first thing that does not fit.
pub fn plan(spec: &CreateSpec) -> Result<CreatePlan, CreateError> {
    let members = spec.members.len();
    let group = group_size(spec, members)?;
    let width = usize::from(group);
    let k = match spec.level {
        Level::Raid1 | Level::Raid10 => 1,
        level => width - usize::from(level.parity_count()),
    };
    let all: Vec<&(DeviceInfo, MemberUuid)> = spec.members.iter().chain(&spec.spares).collect();
    let block = block_bytes(spec, &all)?;
    let granularity = all
        .iter()
        .map(|(info, _)| info.granularity_bytes)
        .max()
        .unwrap_or(0);
    let strip = strip_bytes(spec, k, granularity, block)?;
    let usable = spec
        .members
        .iter()
        .map(|(info, _)| info.bytes)
        .min()
        .unwrap_or(0);
    let shape = shape_of(spec.level, members, width, k, (strip, block));
    let mut layouts = Vec::new();
    for (index, (info, _)) in all.iter().enumerate() {
        let log_bytes = log_bytes(spec, usable, &shape);
        let layout = layout(spec, info, usable, strip, granularity, log_bytes);
        layouts.push(layout.map_err(|source| CreateError::Layout { index, source })?);
    }
    let definition = Definition {
        name: spec.name.clone(),
        level: spec.level,
        strip_bytes: strip,
        band_rows: 1,
        group_size: group,
        members: members as u8,
        fixed_parities: 0,
        block_bytes: block,
        write_hole: spec.write_hole,
        settings: spec.settings,
        carved: false,
        layout: layouts[0],
    };
    let ids: Vec<MemberUuid> = all.iter().map(|(_, member)| *member).collect();
    let mut superblocks = superblocks(spec.array, spec.created_unix_s, &definition, &ids, &layouts);
    if superblocks[0].size_bytes().is_none() {
        let data_bytes = layouts[0].data_bytes;
        return Err(CreateError::TooLarge {
            data_bytes,
            members,
        });
    }
    for sb in &mut superblocks {
        sb.zeroing = spec.init == Init::Zero;
    }
    let state = match spec.init {
        Init::Lazy | Init::Zero => RegionState::Unwritten,
        Init::AssumeClean => RegionState::Clean,
        Init::Sync => RegionState::NeedSync,
    };
    let states = |layout: &Layout, page| vec![(state, false); layout.regions_in_page(page)];
    Ok(CreatePlan::of(superblocks, states, &[]))
}

impl CreatePlan {
    /// What is to be written for these superblocks.
    /// `states` tells those of the regions of a page, and which of them are undecided.
    pub(crate) fn of(
        superblocks: Vec<Superblock>,
        states: impl Fn(&Layout, u32) -> Vec<(RegionState, bool)>,
        unreadable: &[Range<u64>],
    ) -> CreatePlan {
        CreatePlan {
            size_bytes: Geometry::of(&superblocks[0]).size(),
            writes: superblocks
                .iter()
                .map(|sb| member_writes(sb, &states, unreadable))
                .collect(),
            superblocks,
        }
    }

    /// What is to be done before anything else, data areas included: an array that was here before
    /// loses its superblocks on all devices, and only then anything that they speak for. Until then
    /// it answers right, without the devices that have none any more, or not at all. Maps and lists
    /// go after them, so that no page of an array that was here looks newer than ours.
    #[must_use]
    pub fn clearing(&self) -> Vec<Step<'_>> {
        let mut steps = Vec::new();
        for (at, sb) in self.superblocks.iter().enumerate() {
            let offsets = Layout::superblock_offsets(sb.layout.device_bytes);
            steps.extend(offsets.map(|offset| Step::Zero {
                at,
                offset,
                len: SUPERBLOCK_BYTES as u64,
            }));
            steps.push(Step::Flush { at });
        }
        for (at, sb) in self.superblocks.iter().enumerate() {
            let (offset, end) = (sb.layout.map_offset, sb.layout.log_offset);
            let len = end - offset;
            steps.push(Step::Zero { at, offset, len });
        }
        steps
    }

    /// What makes the array: on each device what its superblock speaks for, then everywhere the
    /// first superblocks, then the last.
    #[must_use]
    pub fn steps(&self) -> Vec<Step<'_>> {
        let mut rounds = [Vec::new(), Vec::new(), Vec::new()];
        for (at, writes) in self.writes.iter().enumerate() {
            let before = writes.len() - 2;
            for (nth, (offset, bytes)) in writes.iter().enumerate() {
                let step = Step::Write {
                    at,
                    offset: *offset,
                    bytes,
                };
                rounds[(nth + 1).saturating_sub(before)].push(step);
            }
            let flush = |round: &mut Vec<Step<'_>>| round.push(Step::Flush { at });
            rounds.iter_mut().for_each(flush);
        }
        rounds.concat()
    }
}

/// The definition of an array, independent of its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its name.
    pub name: ArrayName,
    /// Its level.
    pub level: Level,
    /// Bytes of a strip.
    pub strip_bytes: u32,
    /// Rows of a band: so many strips are one of users.
    pub band_rows: u16,
    /// Members of a group; of the array where the level has no groups.
    pub group_size: u8,
    /// Slots.
    pub members: u8,
    /// Parities on members of their own.
    pub fixed_parities: u8,
    /// Logical block.
    pub block_bytes: u32,
    /// Write-hole policy.
    pub write_hole: WriteHole,
    /// What else is set.
    pub settings: Settings,
    /// Its data begins with a table of volumes.
    pub carved: bool,
    /// Where things lie on each member; of the device's size only this member's is meant.
    pub layout: Layout,
}

impl Definition {
    /// What this superblock says of its array.
    pub fn of(sb: &Superblock) -> Definition {
        Definition {
            name: sb.name.clone(),
            level: sb.level,
            strip_bytes: sb.strip_bytes,
            band_rows: sb.band_rows,
            group_size: sb.group_size,
            members: sb.members,
            fixed_parities: sb.fixed_parities,
            block_bytes: sb.block_bytes,
            write_hole: sb.write_hole,
            settings: sb.settings,
            carved: sb.carved,
            layout: sb.layout,
        }
    }
}

/// The superblocks of an array that has none yet: of every member, then of every spare.
pub(crate) fn superblocks(
    array: ArrayUuid,
    created_unix_s: u64,
    definition: &Definition,
    ids: &[MemberUuid],
    layouts: &[Layout],
) -> Vec<Superblock> {
    let (members, spares) = ids.split_at(usize::from(definition.members));
    let epoch = Epoch(1);
    let record = |member: &MemberUuid| SlotRecord {
        member: *member,
        state: SlotState::InSync,
        since: epoch,
        kept: false,
        known: Known::default(),
    };
    let slots: Vec<SlotRecord> = members.iter().map(record).collect();
    let first = Superblock {
        editions: superblock::first_edition(epoch, &slots),
        array,
        name: definition.name.clone(),
        level: definition.level,
        strip_bytes: definition.strip_bytes,
        band_rows: definition.band_rows,
        group_size: definition.group_size,
        members: definition.members,
        fixed_parities: definition.fixed_parities,
        block_bytes: definition.block_bytes,
        layout: definition.layout,
        shape_since: Epoch(0),
        moving: None,
        created_unix_s,
        write_hole: definition.write_hole,
        carved: definition.carved,
        clean: true,
        covered: false,
        log_base: 0,
        accepted: 0,
        epoch,
        generation: Generation(1),
        sessions: Sessions::default(),
        whole_since: epoch,
        member: ids[0],
        role: Role::Slot(Slot(0)),
        slots,
        spares: spares.to_vec(),
        replacements: Vec::new(),
        settings: definition.settings,
        zeroing: false,
        undecided: false,
        witnessed: false,
        map_whole_at: false,
        numbers_noted: true,
        scrub: None,
        scrub_begun_unix_s: 0,
        last_scrub: None,
    };
    ids.iter()
        .zip(layouts)
        .enumerate()
        .map(|(index, (&member, &layout))| Superblock {
            member,
            role: match index < members.len() {
                true => Role::Slot(Slot(index as u8)),
                false => Role::Spare,
            },
            layout,
            ..first.clone()
        })
        .collect()
}

fn group_size(spec: &CreateSpec, members: usize) -> Result<u8, CreateError> {
    let level = spec.level;
    let nm = match level {
        Level::Nm { n, m } => Some(usize::from(n) + usize::from(m)),
        _ => None,
    };
    let group_min = usize::from(level.group_min());
    let needs = nm.unwrap_or(if level.is_grouped() {
        2 * group_min
    } else {
        group_min
    });
    if members < needs {
        return Err(CreateError::TooFew {
            level,
            needs,
            has: members,
        });
    }
    let max = nm.unwrap_or(MEMBERS_MAX);
    if members > max {
        return Err(CreateError::TooMany {
            level,
            max,
            has: members,
        });
    }
    if spec.spares.len() > SPARES_MAX {
        return Err(CreateError::TooManySpares(spec.spares.len()));
    }
    if !level.is_grouped() {
        return match spec.group_size {
            Some(_) => Err(CreateError::NoGroups(level)),
            None => Ok(members as u8),
        };
    }
    let group = match (spec.group_size, level) {
        (Some(group), _) => group,
        (None, Level::Raid10) => 2,
        (None, _) => return Err(CreateError::GroupSizeMissing(level)),
    };
    level
        .check_shape(members as u8, group)
        .map(|()| group)
        .map_err(|_| CreateError::GroupSize {
            level,
            group,
            members,
            needs: group_min,
        })
}

fn block_bytes(spec: &CreateSpec, all: &[&(DeviceInfo, MemberUuid)]) -> Result<u32, CreateError> {
    let blocks = || all.iter().map(|(info, _)| info.block_bytes);
    let has = blocks().max().unwrap_or(512);
    // Without an explicit size the administrator may not have noticed that they differ.
    if let Some(other) = blocks().find(|other| *other != has && spec.block_bytes.is_none()) {
        return Err(CreateError::MixedBlocks(other, has));
    }
    let asked = spec.block_bytes.unwrap_or(has);
    if !matches!(asked, 512 | 4096) {
        return Err(CreateError::Block(asked));
    }
    if asked < has {
        return Err(CreateError::BlockTooSmall { asked, has });
    }
    Ok(asked)
}

/// Largest power of two for which `k` strips stay at or under 1 MiB, within 16 KiB (or the write
/// granularity) and 1 MiB; or what was asked for.
fn strip_bytes(
    spec: &CreateSpec,
    k: usize,
    granularity: u32,
    block: u32,
) -> Result<u32, CreateError> {
    let granularity = granularity.max(block);
    let Some(strip) = spec.strip_bytes else {
        let fit = (1u32 << 20) / k.max(1) as u32;
        let fit = 1u32 << fit.max(1).ilog2();
        let least = granularity.next_power_of_two().max(16 << 10);
        return Ok(fit.max(least).min(1 << 20));
    };
    if !strip.is_power_of_two() || !(4096..=1 << 20).contains(&strip) {
        return Err(CreateError::Strip(u64::from(strip)));
    }
    if strip % granularity != 0 {
        return Err(CreateError::StripGranularity { strip, granularity });
    }
    Ok(strip)
}

/// Shards that a log is made for.
const LOG_SHARDS: u16 = 16;

/// Bytes of the log area of a member: 1/256 of it, within 4 MiB and 64 MiB; more, up to 1/64 of the
/// member, where [`LOG_SHARDS`] lanes for whole strips want it. Never too little for one shard.
fn log_bytes(spec: &CreateSpec, usable: u64, shape: &Geometry) -> u64 {
    const MIB: u64 = 1 << 20;
    let parity = shape.m > 0 && !shape.mirrored();
    if let Some(tiny) = spec.tiny {
        let least = crate::log::layout::least_bytes(shape, tiny.log_shards, false);
        return if parity {
            tiny.log_bytes.max(least)
        } else {
            tiny.log_bytes
        };
    }
    let usual = (usable / 256 / MIB * MIB).clamp(4 * MIB, 64 * MIB);
    if !parity {
        return usual;
    }
    let wanted = crate::log::layout::least_bytes(shape, LOG_SHARDS, true).next_multiple_of(MIB);
    let least = crate::log::layout::least_bytes(shape, 1, false).next_multiple_of(MIB);
    usual.max(wanted.min(usable / 64 / MIB * MIB)).max(least)
}

fn layout(
    spec: &CreateSpec,
    info: &DeviceInfo,
    usable: u64,
    strip: u32,
    granularity: u32,
    log_bytes: u64,
) -> Result<Layout, LayoutError> {
    let tiny = spec.tiny;
    Layout::plan(&LayoutParams {
        device_bytes: info.bytes,
        usable_bytes: usable,
        strip_bytes: strip,
        align_bytes: tiny.map_or_else(
            || u64::from(granularity.next_power_of_two()).max(1 << 20),
            |t| t.align_bytes,
        ),
        log_bytes,
        region_bytes: tiny.map(|t| t.region_bytes),
        page_regions: tiny.and_then(|t| t.page_regions),
        tiny: tiny.is_some(),
    })
}

/// Region map and list of unreadable blocks first, then the superblock's first copy, then its last:
/// a member without a whole superblock is no member.
fn member_writes(
    sb: &Superblock,
    states: &impl Fn(&Layout, u32) -> Vec<(RegionState, bool)>,
    unreadable: &[Range<u64>],
) -> Vec<(u64, Vec<u8>)> {
    // What lay at the head (a boot sector, a partition table, a file system) is no more.
    let mut writes = vec![(0, vec![0; 4096])];
    for page in 0..sb.layout.map_pages {
        // The other place may hold a page of an array that was here before; it names that array.
        let sequence = 1;
        let offset = region_map::place(&sb.layout, page, sequence);
        let states = states(&sb.layout, page);
        let undecided = (0..).zip(&states).filter(|(_, (_, undecided))| *undecided);
        let image = MapPage {
            array: sb.array,
            member: sb.member,
            page,
            epoch: sb.epoch,
            sequence,
            undecided: undecided.map(|(at, _)| at).collect(),
            states: states.into_iter().map(|(state, _)| state).collect(),
            behind: Vec::new(),
            whole_at: 0,
        };
        writes.push((offset, image.encode(offset).to_vec()));
    }
    let offset = strake_format::unreadable::places(&sb.layout)[0];
    let list = UnreadableList {
        array: sb.array,
        member: sb.member,
        epoch: sb.epoch,
        sequence: 1,
        ranges: unreadable.to_vec(),
    };
    writes.push((offset, list.encode(sb.layout.unreadable_bytes, offset)));
    for offset in Layout::superblock_offsets(sb.layout.device_bytes) {
        writes.push((offset, sb.encode(offset).to_vec()));
    }
    writes
}

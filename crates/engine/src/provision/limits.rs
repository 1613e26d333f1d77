//! How much memory a shard needs, and why; what an array needs of devices that are to join it.

use strake_format::layout::{STRIP_BYTES_MAX, STRIP_BYTES_MIN};
use strake_format::{Layout, Level, Moving, SPARES_MAX, Superblock, WriteHole};

use crate::geometry::Geometry;
use crate::proto::{CommandError, DataShape, DeviceInfo, Fewer};

/// The longest read that a shard takes as one request, bytes.
pub const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// The most strip-sized buffers that one operation asks for. Read-modify-write of k written
/// columns: old data, parity, and two buffers for each column (put together, difference): 3k + m.
/// Decoding writes: k + m reads at most, k put together, m parities, m decoded. Both m more for the
/// partial syndromes of the log. Check of a stripe: all columns, and 2m.
pub fn widest(geometry: &Geometry) -> usize {
    let m = geometry.m;
    let k = geometry.width_most() - m;
    (3 * k + 2 * m).max(2 * k + 4 * m)
}

/// The fewest strip-sized buffers with which a shard can always go on: one of the widest
/// operations, and one of the longest reads, fit at once.
pub fn strips_least(geometry: &Geometry) -> usize {
    let widest = widest(geometry);
    let longest = (REQUEST_BYTES_MAX / geometry.strip) as usize + 2;
    widest + widest.max(longest)
}

/// Size classes and counts for [`crate::mem::buffer::Pool::new`], so that a shard of this geometry
/// can always go on: one of the widest operations, and one of the longest reads, fit at once.
/// `budget_bytes` beyond that minimum is filled with small and strip-sized buffers.
pub fn stock(geometry: &Geometry, budget_bytes: usize) -> Vec<(usize, usize)> {
    let strip = geometry.strip as usize;
    let strips = strips_least(geometry).max(budget_bytes * 3 / 4 / strip);
    let small = 16384.min(strip);
    vec![(small, (budget_bytes / 4 / small).max(8)), (strip, strips)]
}

/// The buffers of the largest size in a stock.
pub fn largest_in(stock: &[(usize, usize)]) -> usize {
    let largest = stock.iter().map(|(bytes, _)| *bytes).max();
    let of_that = stock.iter().filter(|(bytes, _)| Some(*bytes) == largest);
    of_that.map(|(_, count)| count).sum()
}

// ---- devices that are to join ------------------------------------------------------------------

/// What devices are to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joining {
    /// A spare, or a member in a slot that there is.
    Spares,
    /// Further parities, over data that stays.
    Parities,
    /// Further data columns, for data that is to move. None need join for other strips, or groups.
    Data(DataShape),
}

/// What the array's shards have, and its members.
#[derive(Clone, Copy, Debug)]
pub struct Shards {
    /// So many of them.
    pub count: u16,
    /// Buffers of a strip that each has.
    pub strips: usize,
    /// The coarsest write granularity of the array's devices, bytes; 0 if not known.
    pub granularity_bytes: u32,
}

/// The places on a device like this, if it can be a member of the array.
pub(crate) fn layout_on(sb: &Superblock, info: &DeviceInfo) -> Result<Layout, CommandError> {
    if info.block_bytes > sb.block_bytes {
        let (has, needs) = (info.block_bytes, sb.block_bytes);
        return Err(CommandError::BlockSize { has, needs });
    }
    let has = info.bytes;
    let needs = sb.layout.data_offset + sb.layout.data_bytes + (64 << 10) * 2;
    let layout = sb.layout.for_device(has, sb.strip_bytes);
    layout.map_err(|_| CommandError::TooSmall { has, needs })
}

/// Whether an array of this superblock would take these devices, as far as their sizes and its
/// shape say; callers check it before anything on them is overwritten. The array checks for itself
/// when it takes them.
///
/// # Errors
/// Why it would refuse.
pub fn may_join(
    sb: &Superblock,
    devices: &[DeviceInfo],
    joining: Joining,
    shards: Shards,
) -> Result<(), CommandError> {
    if !matches!(joining, Joining::Parities) && sb.spares.len() + devices.len() > SPARES_MAX {
        return Err(CommandError::TooManySpares);
    }
    for info in devices {
        layout_on(sb, info)?;
    }
    // A strip that is chosen, as when an array is made. Devices that join are taken as they are:
    // what is at hand when one has failed may be coarser than the others.
    let granularity = shards.granularity_bytes;
    if let Joining::Data(DataShape {
        strip_bytes: Some(strip),
        ..
    }) = joining
        && granularity > 0
        && !strip.is_multiple_of(granularity)
        && strip.is_power_of_two()
        && (STRIP_BYTES_MIN..=STRIP_BYTES_MAX).contains(&strip)
    {
        return Err(CommandError::StripGranularity { strip, granularity });
    }
    let geometry = match joining {
        Joining::Spares => return Ok(()),
        Joining::Parities | Joining::Data(_) => Geometry::of(&wider(sb, devices.len(), joining)?),
    };
    let bytes = sb.layout.log_bytes;
    let logs = geometry.m > 0 && sb.write_hole != WriteHole::Resync;
    let divided = !logs || crate::log::layout::divide(&geometry, bytes, shards.count).is_some();
    let moves = matches!(joining, Joining::Data(_));
    let copied = !moves || crate::log::window_image::copy_rows(&geometry, bytes) > 0;
    if !divided || !copied {
        return Err(CommandError::LogTooSmall);
    }
    match (shards.strips, strips_least(&geometry)) {
        (has, needs) if has < needs => Err(CommandError::BuffersTooFew { has, needs }),
        _ => Ok(()),
    }
}

/// The superblock of the shape with so many devices more, which it does not name yet: it shows what
/// such an array would be like.
///
/// # Errors
/// That it cannot be.
pub fn shape_with(
    sb: &Superblock,
    more: usize,
    joining: Joining,
) -> Result<Superblock, CommandError> {
    match joining {
        Joining::Spares => Ok(sb.clone()),
        Joining::Parities | Joining::Data(_) => wider(sb, more, joining),
    }
}

/// Size of an array of this superblock with so many members more and in this shape, once its data
/// has moved.
///
/// # Errors
/// That it cannot be.
pub fn size_with(sb: &Superblock, more: usize, shape: DataShape) -> Result<u64, CommandError> {
    let wide = wider(sb, more, Joining::Data(shape))?;
    Ok(Geometry::of(&wide).after_move().size())
}

/// The level and the group size to which data moves, in an array of so many members.
fn grouped(sb: &Superblock, members: u8, wanted: Option<u8>) -> Result<(Level, u8), CommandError> {
    let level = sb.level;
    let more = usize::from(members - sb.members);
    let refused = CommandError::NoSuchShape { level, more };
    let mirrored = matches!(level, Level::Raid1 | Level::Raid10);
    let grouped = sb.group_size != sb.members;
    let group_size = wanted.unwrap_or(if grouped { sb.group_size } else { members });
    let one = !grouped && group_size == members;
    let to_be = match more {
        0 if group_size == sb.group_size => Some(level).filter(|_| !mirrored),
        _ if one => level.with_data(sb.members, more),
        _ => level.with_groups(group_size != members),
    };
    let to_be = to_be.ok_or(refused)?;
    match to_be.check_shape(members, group_size) {
        Ok(()) => {}
        Err(_) if one || mirrored => return Err(refused),
        Err(_) => {
            return Err(CommandError::NoSuchGroups {
                level: to_be,
                members,
                group_size,
            });
        }
    }
    let columns = |level: Level, members: u8, group_size: u8| {
        u16::from(members / group_size) * u16::from(level.data_count(group_size))
    };
    let (has, gets) = (
        columns(level, sb.members, sb.group_size),
        columns(to_be, members, group_size),
    );
    if gets < has {
        let m = u16::from(to_be.parity_count());
        let needs = match to_be.is_grouped() {
            true => {
                let each = u16::from(to_be.data_count(group_size));
                has.div_ceil(each) * u16::from(group_size)
            }
            false => has + m,
        };
        return Err(CommandError::WouldShrink { has, gets, needs });
    }
    Ok((to_be, group_size))
}

/// The superblock of the shape to which data is to move: with so many members more, which it does
/// not name yet.
fn restriped(sb: &Superblock, more: usize, shape: DataShape) -> Result<Superblock, CommandError> {
    if shape.fewer.parities > 0 {
        return leaving(sb, more, shape);
    }
    let level = sb.level;
    let before = sb.user_strip_bytes();
    let strip = shape.strip_bytes.unwrap_or(before);
    let members = u8::try_from(more).ok();
    let members = members.and_then(|added| sb.members.checked_add(added));
    let members = members.ok_or(CommandError::NoSuchShape { level, more })?;
    let (to_be, group_size) = grouped(sb, members, shape.group_size)?;
    let rotates = sb.fixed_parities > 0 && (shape.rotate || to_be.is_grouped());
    if more == 0 && strip == before && group_size == sb.group_size && !rotates {
        return Err(CommandError::SameShape);
    }
    let whole = |bytes: u64| bytes.is_multiple_of(u64::from(strip));
    let sizes = STRIP_BYTES_MIN..=STRIP_BYTES_MAX;
    if !strip.is_power_of_two() || !sizes.contains(&strip) || strip < sb.block_bytes {
        return Err(CommandError::NoSuchStrip { strip });
    }
    if !whole(sb.layout.data_bytes) || !whole(sb.layout.region_bytes) {
        let data_bytes = sb.layout.data_bytes;
        return Err(CommandError::StripUnfit { strip, data_bytes });
    }
    let mut wide = sb.clone();
    (wide.level, wide.members, wide.group_size) = (to_be, members, group_size);
    wide.strip_bytes = sb.strip_bytes.min(strip);
    if rotates {
        wide.fixed_parities = 0;
    }
    let rows = |strip: u32| (strip / wide.strip_bytes) as u16;
    let band_rows = rows(before);
    wide.band_rows = rows(strip);
    wide.moving = Some(Moving {
        members: sb.members,
        group_size: sb.group_size,
        fixed_parities: sb.fixed_parities,
        band_rows,
        moved_rows: 0,
        stopped: false,
    });
    may_be_as_large(&wide)?;
    Ok(wide)
}

/// Whether a block device can have as many bytes.
pub(crate) fn may_be_as_large(sb: &Superblock) -> Result<(), CommandError> {
    let data_bytes = sb.layout.data_bytes;
    let size = sb.size_bytes();
    size.map(|_| ())
        .ok_or(CommandError::ArrayTooLarge { data_bytes })
}

/// The superblock of the shape with so many members more, which it does not name yet.
pub(crate) fn wider(
    sb: &Superblock,
    more: usize,
    joining: Joining,
) -> Result<Superblock, CommandError> {
    if let Joining::Data(shape) = joining {
        return restriped(sb, more, shape);
    }
    let level = sb.level;
    let (to_be, refused) = (
        level.with_parities(more),
        CommandError::NoSuchLevel { level, more },
    );
    let added = u8::try_from(more).ok().filter(|&added| added > 0);
    let members = added.and_then(|added| sb.members.checked_add(added));
    let (Some(added), Some(members), Some(to_be)) = (added, members, to_be) else {
        return Err(refused);
    };
    if to_be.check_shape(members, members).is_err() {
        return Err(refused);
    }
    let mut wide = sb.clone();
    (wide.level, wide.members, wide.group_size) = (to_be, members, members);
    wide.fixed_parities += added;
    Ok(wide)
}

/// The superblock of the shape from which so many parities can go: they lie on members of their
/// own.
fn leaving(sb: &Superblock, more: usize, shape: DataShape) -> Result<Superblock, CommandError> {
    let fewer = shape.fewer;
    let alone = DataShape {
        fewer,
        ..DataShape::default()
    };
    if more > 0 || shape != alone {
        return Err(CommandError::NotTogether);
    }
    level_without(sb, fewer)?;
    may_have_spares(sb, fewer)?;
    let gone = u8::try_from(fewer.parities).expect("the level has as many");
    if gone <= sb.fixed_parities {
        return Err(CommandError::SameShape);
    }
    let mut wide = sb.clone();
    wide.fixed_parities = gone;
    wide.moving = Some(Moving {
        members: sb.members,
        group_size: sb.group_size,
        fixed_parities: sb.fixed_parities,
        band_rows: sb.band_rows,
        moved_rows: 0,
        stopped: false,
    });
    Ok(wide)
}

/// The level without so many parities.
fn level_without(sb: &Superblock, fewer: Fewer) -> Result<Level, CommandError> {
    let (level, gone) = (sb.level, fewer.parities);
    let left = |level: &Level| {
        let members = usize::from(sb.members) - gone;
        level.check_shape(members as u8, members as u8).is_ok()
    };
    let to_be = level.without_parities(gone).filter(|_| gone > 0);
    match to_be.filter(left) {
        None => Err(CommandError::ParitiesStay { level, fewer: gone }),
        Some(to_be) if to_be.parity_count() == 0 && !fewer.last => {
            Err(CommandError::LastParity { level })
        }
        Some(to_be) => Ok(to_be),
    }
}

/// The members of parities that go become spares.
fn may_have_spares(sb: &Superblock, fewer: Fewer) -> Result<(), CommandError> {
    match sb.spares.len() + fewer.parities > SPARES_MAX {
        true => Err(CommandError::TooManySpares),
        false => Ok(()),
    }
}

/// Whether an array of this superblock can do without so many of its parities at once, as far as
/// its shape says: they were added to it.
///
/// # Errors
/// Why it cannot.
pub fn may_drop(sb: &Superblock, fewer: Fewer) -> Result<(), CommandError> {
    narrower(sb, fewer)?;
    may_have_spares(sb, fewer)
}

/// The superblock of the shape without so many of the parities that lie on members of their own,
/// which it names still.
pub(crate) fn narrower(sb: &Superblock, fewer: Fewer) -> Result<Superblock, CommandError> {
    let to_be = level_without(sb, fewer)?;
    let gone = u8::try_from(fewer.parities).ok();
    let Some(gone) = gone.filter(|gone| *gone <= sb.fixed_parities) else {
        return Err(CommandError::ParitiesStay {
            level: sb.level,
            fewer: fewer.parities,
        });
    };
    let mut narrow = sb.clone();
    narrow.level = to_be;
    narrow.members -= gone;
    narrow.group_size = narrow.members;
    narrow.fixed_parities -= gone;
    narrow.slots.truncate(usize::from(narrow.members));
    Ok(narrow)
}

/// The superblock of the mirror that this array is, if it has one data column: its parities are
/// copies.
///
/// # Errors
/// Why it is none.
pub fn mirror(sb: &Superblock) -> Result<Superblock, CommandError> {
    let level = sb.level;
    let groups = sb.members / sb.group_size;
    match u16::from(level.data_count(sb.group_size)) * u16::from(groups) {
        _ if !level.has_parity() => Err(CommandError::NoMirror { level }),
        1 => {
            let mut copies = sb.clone();
            (copies.level, copies.fixed_parities) = (Level::Raid1, 0);
            copies.band_rows = 1;
            Ok(copies)
        }
        has => Err(CommandError::MirrorTooSmall { level, has }),
    }
}

#[cfg(test)]
mod tests {
    use strake_format::{ArrayUuid, MemberUuid, Settings};

    use super::*;
    use crate::provision::create::{self, CreateSpec, Init};

    fn device(bytes: u64) -> DeviceInfo {
        DeviceInfo {
            bytes,
            block_bytes: 512,
            granularity_bytes: 0,
            volatile_cache: false,
            dma: false,
        }
    }

    fn raid_5() -> Superblock {
        let member = |n| (device(64 << 20), MemberUuid([n; 16]));
        let spec = CreateSpec {
            array: ArrayUuid([9; 16]),
            name: "data".parse().expect("a name"),
            level: strake_format::Level::Raid5,
            strip_bytes: None,
            group_size: None,
            block_bytes: None,
            write_hole: WriteHole::Closed,
            settings: Settings::default(),
            init: Init::Lazy,
            created_unix_s: 0,
            members: (1..=3).map(member).collect(),
            spares: Vec::new(),
            tiny: None,
        };
        let made = create::plan(&spec).expect("it can be made");
        made.superblocks[0].clone()
    }

    #[test]
    fn who_may_not_join_is_told_why() {
        let sb = raid_5();
        let ample = Shards {
            count: 1,
            strips: 1000,
            granularity_bytes: 0,
        };
        let large = device(64 << 20);
        let data = Joining::Data(DataShape::default());
        let joins = [Joining::Spares, Joining::Parities, data];
        for joining in joins {
            assert_eq!(may_join(&sb, &[large], joining, ample), Ok(()));
            let (small, coarse) = (
                device(16 << 20),
                DeviceInfo {
                    block_bytes: 2 * sb.block_bytes,
                    ..large
                },
            );
            let refused = may_join(&sb, &[large, small], joining, ample);
            assert!(matches!(refused, Err(CommandError::TooSmall { .. })));
            let refused = may_join(&sb, &[coarse], joining, ample);
            assert!(matches!(refused, Err(CommandError::BlockSize { .. })));
        }
        for joining in [Joining::Parities, data] {
            let few = Shards { strips: 3, ..ample };
            let refused = may_join(&sb, &[large], joining, few);
            assert!(matches!(refused, Err(CommandError::BuffersTooFew { .. })));
            let many = Shards {
                count: 10_000,
                ..ample
            };
            let refused = may_join(&sb, &[large], joining, many);
            assert_eq!(refused, Err(CommandError::LogTooSmall));
        }
        let refused = may_join(&sb, &[large; 3], Joining::Parities, ample);
        assert!(matches!(refused, Err(CommandError::NoSuchLevel { .. })));
        let refused = may_join(&sb, &[large; 17], Joining::Spares, ample);
        assert_eq!(refused, Err(CommandError::TooManySpares));
    }

    /// `create` refused such strips, and `restripe` took them.
    #[test]
    fn a_strip_below_the_members_write_granularity_is_refused_and_a_coarser_device_is_not() {
        let sb = raid_5();
        let shards = Shards {
            count: 1,
            strips: 1000,
            granularity_bytes: 16 << 10,
        };
        let strip = |strip| {
            Joining::Data(DataShape {
                strip_bytes: Some(strip),
                group_size: None,
                ..DataShape::default()
            })
        };
        let refused = Err(CommandError::StripGranularity {
            strip: 8 << 10,
            granularity: 16 << 10,
        });
        assert_eq!(may_join(&sb, &[], strip(8 << 10), shards), refused);
        assert_ne!(may_join(&sb, &[], strip(16 << 10), shards), refused);
        let unknown = Shards {
            granularity_bytes: 0,
            ..shards
        };
        assert_ne!(may_join(&sb, &[], strip(8 << 10), unknown), refused);
        let nonsense = may_join(&sb, &[], strip(3 << 10), shards);
        assert!(matches!(nonsense, Err(CommandError::NoSuchStrip { .. })));
        let coarse = DeviceInfo {
            granularity_bytes: 1 << 20,
            ..device(64 << 20)
        };
        for joining in [
            Joining::Spares,
            Joining::Parities,
            Joining::Data(DataShape::default()),
        ] {
            assert_eq!(may_join(&sb, &[coarse], joining, shards), Ok(()));
        }
    }

    #[test]
    fn buffers_of_the_largest_size_are_counted() {
        assert_eq!(largest_in(&[(4096, 8), (65536, 20)]), 20);
        assert_eq!(largest_in(&[(4096, 8), (4096, 20)]), 28);
        assert_eq!(largest_in(&[]), 0);
    }
}

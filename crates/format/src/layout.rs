//! Where things lie on a member.
//!
//! Order on the member, all of it in blocks of 4096 bytes: head (foreign boot sectors) · first
//! superblock · map places A · list place A · … · list place B · map places B · log · data · last
//! superblock.
//!
//! Invariants: areas are ordered, disjoint and inside the device; every member of an array has the
//! same places (only `device_bytes`, and with it the last superblock, differs); the A and B places
//! of the map and of the list lie as far apart as their area allows, so that one bad spot of the
//! medium does not take both.
//!
//! Deliberately absent: what the bytes mean (`superblock`, `region_map`, `unreadable`, `log`) and
//! where a strip lies (engine).

use crate::BLOCK_BYTES;
use crate::error::{Area, LayoutError};
use crate::region_map::REGIONS_PER_PAGE;
use crate::unreadable::UNREADABLE_BYTES;

/// The smallest strip.
pub const STRIP_BYTES_MIN: u32 = 4096;
/// The largest strip.
pub const STRIP_BYTES_MAX: u32 = 1 << 20;
/// The least alignment of data in the product.
pub const ALIGN_BYTES_MIN: u64 = 1 << 20;
/// The smallest log in the product, where there is one.
pub const LOG_BYTES_MIN: u64 = 1 << 20;
/// The most regions that [`Layout::plan`] chooses by itself: one byte each in memory and five map
/// pages.
pub const REGIONS_CHOSEN_MAX: u64 = 16384;
/// The most regions that a map may have: 261 pages, one MiB of memory.
pub const REGIONS_MAX: u64 = 1 << 20;

/// From so much room on, data ends where strips of any size do: less than half a percent is left.
const ANY_STRIP_FROM: u64 = 256 << 20;
/// The longest list of unreadable blocks that is believed: a reader takes it into memory.
const UNREADABLE_BYTES_MAX: u64 = 16 << 20;
const FIRST_SUPERBLOCK: u64 = BLOCK_BYTES;
const TAIL_BYTES: u64 = 64 << 10;
/// Room behind the first superblock, so that a later format may grow it: the product's map begins
/// here.
const HEAD_BYTES: u64 = 64 << 10;

/// Where things lie on this member: byte offsets and sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Size of the device when this was written. Tells where the last superblock lies.
    pub device_bytes: u64,
    /// Where the A places of the region map begin.
    pub map_offset: u64,
    /// Pages of the region map; every page has two places.
    pub map_pages: u32,
    /// Regions that one page covers: as many as fit in the product.
    pub page_regions: u16,
    /// Size of one of the two places of the list of unreadable blocks, which lie between the A and
    /// the B places of the map.
    pub unreadable_bytes: u32,
    /// Where the stripe log begins; the B places of the region map end here.
    pub log_offset: u64,
    /// Size of the stripe log; 0 where the array has none.
    pub log_bytes: u64,
    /// Where data begins.
    pub data_offset: u64,
    /// Data of this member, a multiple of the strip; the same on every member.
    pub data_bytes: u64,
    /// Data of this member that one region covers, a multiple of the strip.
    pub region_bytes: u64,
}

/// What [`Layout::plan`] needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayoutParams {
    /// Size of this member's device.
    pub device_bytes: u64,
    /// Size of the smallest member's device, so that all members agree.
    pub usable_bytes: u64,
    /// The strip.
    pub strip_bytes: u32,
    /// Data alignment, a power of two: 1 MiB, or the write granularity where that is larger.
    pub align_bytes: u64,
    /// Size of the stripe log; 0 for none.
    pub log_bytes: u64,
    /// Data that one region covers; None: a power of two, at least 1 MiB and a strip, with at most
    /// 16384 regions.
    pub region_bytes: Option<u64>,
    /// Regions that one page of the map covers; None: as many as fit.
    pub page_regions: Option<u16>,
    /// For the simulator: permits a log and an alignment below the product's least, leaves no room
    /// to grow, and has a short list of unreadable blocks.
    pub tiny: bool,
}

/// Whether a strip is a power of two from 4 KiB to 1 MiB.
pub(crate) fn check_strip(bytes: u32) -> Result<(), LayoutError> {
    let fits = bytes.is_power_of_two() && (STRIP_BYTES_MIN..=STRIP_BYTES_MAX).contains(&bytes);
    if fits {
        Ok(())
    } else {
        Err(LayoutError::Strip { bytes })
    }
}

/// The data that is made of so much room: of whole strips, and where there is much of whole ones of
/// any size, so that the array can get other strips.
fn whole_strips(room: u64, strip: u64) -> u64 {
    match room < ANY_STRIP_FROM {
        true => room - room % strip,
        false => room - room % u64::from(STRIP_BYTES_MAX),
    }
}

/// Whether so many regions fit into a page.
fn check_page(regions: u16) -> Result<(), LayoutError> {
    match (1..=REGIONS_PER_PAGE).contains(&usize::from(regions)) {
        true => Ok(()),
        false => Err(LayoutError::PageRegions { regions }),
    }
}

/// Map pages for so many regions. The caller has bounded them by [`REGIONS_MAX`].
fn pages_for(regions: u64, page_regions: u16) -> u32 {
    u32::try_from(regions.div_ceil(u64::from(page_regions))).expect("regions are bounded")
}

/// Regions of so many bytes in so much data.
fn count_regions(data_bytes: u64, region_bytes: u64) -> Result<u64, LayoutError> {
    match data_bytes.div_ceil(region_bytes) {
        regions if regions > REGIONS_MAX => Err(LayoutError::TooManyRegions { regions }),
        regions => Ok(regions),
    }
}

impl Layout {
    /// Where the two superblocks lie on a device of this size: at 4096, and on the highest multiple
    /// of 64 KiB that leaves 64 KiB behind it. Devices under 256 KiB are too small to be members.
    pub fn superblock_offsets(device_bytes: u64) -> [u64; 2] {
        let last = device_bytes.saturating_sub(TAIL_BYTES);
        [FIRST_SUPERBLOCK, last - last % TAIL_BYTES]
    }

    /// Chooses the places.
    ///
    /// # Errors
    /// Which parameter makes no sense, or that the device is too small.
    pub fn plan(p: &LayoutParams) -> Result<Layout, LayoutError> {
        check_params(p)?;
        let too_small = LayoutError::TooSmall {
            device_bytes: p.usable_bytes,
        };
        // The map is sized for all of the smallest member first: what data it leaves never needs
        // more.
        let region_bytes = p.region_bytes.unwrap_or_else(|| choose_region(p));
        let page_regions = p.page_regions.unwrap_or(REGIONS_PER_PAGE as u16);
        let pages_most = pages_for(count_regions(p.usable_bytes, region_bytes)?, page_regions);
        let map_offset = if p.tiny {
            FIRST_SUPERBLOCK + BLOCK_BYTES
        } else {
            HEAD_BYTES
        };
        let unreadable_bytes = if p.tiny {
            BLOCK_BYTES as u32
        } else {
            UNREADABLE_BYTES
        };
        let align = |at: u64, to: u64| at.checked_next_multiple_of(to).ok_or(too_small);
        let log_offset = align(
            map_offset + 2 * (u64::from(pages_most) * BLOCK_BYTES + u64::from(unreadable_bytes)),
            p.align_bytes,
        )?;
        let log_end = log_offset.checked_add(p.log_bytes).ok_or(too_small)?;
        let data_offset = align(log_end, p.align_bytes)?;
        let data_end = Self::superblock_offsets(p.usable_bytes)[1];
        let strip = u64::from(p.strip_bytes);
        let room = data_end.checked_sub(data_offset).ok_or(too_small)?;
        let data_bytes = whole_strips(room, strip);
        if data_bytes == 0 {
            return Err(too_small);
        }
        let layout = Layout {
            device_bytes: p.device_bytes,
            map_offset,
            map_pages: pages_for(count_regions(data_bytes, region_bytes)?, page_regions),
            page_regions,
            unreadable_bytes,
            log_offset,
            log_bytes: p.log_bytes,
            data_offset,
            data_bytes,
            region_bytes,
        };
        layout.check(p.strip_bytes)?;
        Ok(layout)
    }

    /// The same places on a device of another size: for a member that joins later.
    ///
    /// # Errors
    /// [`LayoutError::Overlap`] of the data where the device is too small.
    pub fn for_device(&self, device_bytes: u64, strip_bytes: u32) -> Result<Layout, LayoutError> {
        let layout = Layout {
            device_bytes,
            ..*self
        };
        layout.check(strip_bytes)?;
        Ok(layout)
    }

    /// Data that a member of this size has room for, in whole strips; of any size, where that is a
    /// small part of it.
    pub fn room(&self, device_bytes: u64, strip_bytes: u32) -> u64 {
        let end = Self::superblock_offsets(device_bytes)[1];
        whole_strips(end.saturating_sub(self.data_offset), u64::from(strip_bytes))
    }

    /// The same beginnings with more data, on a device of this size; the map grows with the data.
    ///
    /// What becomes the map's and the list's A places does not touch what their B places are now:
    /// so the one can be written while the other still counts.
    ///
    /// # Errors
    /// What does not fit.
    pub fn grown(
        &self,
        data_bytes: u64,
        device_bytes: u64,
        strip_bytes: u32,
    ) -> Result<Layout, LayoutError> {
        let regions = count_regions(data_bytes, self.region_bytes)?;
        let layout = Layout {
            device_bytes,
            data_bytes,
            map_pages: pages_for(regions, self.page_regions),
            ..*self
        };
        layout.check(strip_bytes)?;
        let half = |layout: &Layout| {
            u64::from(layout.map_pages) * BLOCK_BYTES + u64::from(layout.unreadable_bytes)
        };
        if self.map_offset + half(&layout) > self.log_offset - half(self) {
            return Err(LayoutError::Overlap { area: Area::Map });
        }
        Ok(layout)
    }

    /// Regions of this member.
    ///
    /// # Panics
    /// If the layout never passed [`Layout::check`].
    pub fn regions(&self) -> u32 {
        let regions = count_regions(self.data_bytes, self.region_bytes);
        regions
            .map(|n| n as u32)
            .expect("a checked layout has a bounded number of regions")
    }

    /// Regions that page `page` of the map covers.
    pub fn regions_in_page(&self, page: u32) -> usize {
        let page_regions = u64::from(self.page_regions);
        let before = u64::from(page) * page_regions;
        let left = u64::from(self.regions()).saturating_sub(before);
        left.min(page_regions) as usize
    }

    /// Whether the places are ordered, disjoint, aligned and inside the device.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn check(&self, strip_bytes: u32) -> Result<(), LayoutError> {
        check_strip(strip_bytes)?;
        let strip = u64::from(strip_bytes);
        let starts = [
            (Area::Map, self.map_offset),
            (Area::Log, self.log_offset),
            (Area::Data, self.data_offset),
        ];
        for (area, offset) in starts {
            if !offset.is_multiple_of(BLOCK_BYTES) {
                return Err(LayoutError::Unaligned { area, offset });
            }
        }
        if !self.log_bytes.is_multiple_of(BLOCK_BYTES) {
            return Err(LayoutError::LogBytes {
                bytes: self.log_bytes,
            });
        }
        let list = u64::from(self.unreadable_bytes);
        if list == 0 || list > UNREADABLE_BYTES_MAX || !list.is_multiple_of(BLOCK_BYTES) {
            return Err(LayoutError::UnreadableBytes {
                bytes: self.unreadable_bytes,
            });
        }
        if self.data_bytes == 0 || !self.data_bytes.is_multiple_of(strip) {
            return Err(LayoutError::DataBytes {
                bytes: self.data_bytes,
            });
        }
        if self.region_bytes == 0 || !self.region_bytes.is_multiple_of(strip) {
            return Err(LayoutError::Region {
                bytes: self.region_bytes,
            });
        }
        check_page(self.page_regions)?;
        let regions = count_regions(self.data_bytes, self.region_bytes)?;
        let needed = pages_for(regions, self.page_regions);
        if self.map_pages != needed {
            return Err(LayoutError::MapPages {
                found: self.map_pages,
                needed,
            });
        }
        self.check_order()
    }

    /// Whether each area begins behind the end of the one before it.
    fn check_order(&self) -> Result<(), LayoutError> {
        let last = Self::superblock_offsets(self.device_bytes)[1];
        let map_bytes =
            2 * (u64::from(self.map_pages) * BLOCK_BYTES + u64::from(self.unreadable_bytes));
        let areas = [
            (Area::Map, self.map_offset, map_bytes, self.log_offset),
            (Area::Log, self.log_offset, self.log_bytes, self.data_offset),
            (Area::Data, self.data_offset, self.data_bytes, last),
        ];
        if self.map_offset < FIRST_SUPERBLOCK + BLOCK_BYTES {
            return Err(LayoutError::Overlap { area: Area::Map });
        }
        for (area, offset, bytes, next) in areas {
            if offset.checked_add(bytes).is_none_or(|end| end > next) {
                return Err(LayoutError::Overlap { area });
            }
        }
        Ok(())
    }
}

/// Whether the parameters make sense by themselves.
fn check_params(p: &LayoutParams) -> Result<(), LayoutError> {
    check_strip(p.strip_bytes)?;
    let align_min = if p.tiny { BLOCK_BYTES } else { ALIGN_BYTES_MIN };
    if !p.align_bytes.is_power_of_two() || p.align_bytes < align_min {
        return Err(LayoutError::Align {
            bytes: p.align_bytes,
        });
    }
    let log_min = if p.tiny { 0 } else { LOG_BYTES_MIN };
    if !p.log_bytes.is_multiple_of(BLOCK_BYTES) || (p.log_bytes != 0 && p.log_bytes < log_min) {
        return Err(LayoutError::LogBytes { bytes: p.log_bytes });
    }
    if let Some(bytes) = p.region_bytes
        && (bytes == 0 || !bytes.is_multiple_of(u64::from(p.strip_bytes)))
    {
        return Err(LayoutError::Region { bytes });
    }
    check_page(p.page_regions.unwrap_or(1))?;
    if p.usable_bytes > p.device_bytes {
        let (usable_bytes, device_bytes) = (p.usable_bytes, p.device_bytes);
        return Err(LayoutError::Usable {
            usable_bytes,
            device_bytes,
        });
    }
    Ok(())
}

/// The smallest power of two of at least 1 MiB (no strip is larger) that leaves at most 16384
/// regions.
fn choose_region(p: &LayoutParams) -> u64 {
    let least = (1u64 << 20).max(u64::from(p.strip_bytes));
    // 2^64 / 16384 = 2^50: the power of two exists.
    least.max(
        p.usable_bytes
            .div_ceil(REGIONS_CHOSEN_MAX)
            .next_power_of_two(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(device_bytes: u64) -> LayoutParams {
        LayoutParams {
            device_bytes,
            usable_bytes: device_bytes,
            strip_bytes: 64 << 10,
            align_bytes: 1 << 20,
            log_bytes: 64 << 20,
            region_bytes: None,
            page_regions: None,
            tiny: false,
        }
    }

    #[test]
    fn the_last_superblock_lies_in_the_last_128_kib_on_a_multiple_of_64_kib() {
        for device in
            (256 << 10..512 << 10)
                .step_by(512)
                .chain([u64::MAX, 1 << 44, (1 << 44) + 512])
        {
            let [first, last] = Layout::superblock_offsets(device);
            assert_eq!(first, 4096);
            assert_eq!(last % (64 << 10), 0);
            assert!(
                device - last <= 128 << 10 && device - last >= 64 << 10,
                "{device}"
            );
        }
    }

    #[test]
    fn a_small_and_a_huge_drive_both_get_at_most_16384_regions_and_little_overhead() {
        for bits in 28..60 {
            let device = (1u64 << bits) + 12345 * 512;
            let layout = Layout::plan(&product(device)).expect("large enough");
            assert!(layout.regions() <= 16384);
            assert!(layout.region_bytes == 1 << 20 || layout.regions() > 4096);
            assert!(
                device - layout.data_bytes <= (64 << 20) + (3 << 20),
                "{layout:?}"
            );
            assert_eq!(layout.data_offset % (1 << 20), 0);
        }
    }

    #[test]
    fn members_of_unequal_size_agree_on_everything_but_their_own_size() {
        let small = Layout::plan(&product(1 << 30)).expect("plan");
        let large = LayoutParams {
            device_bytes: 3 << 30,
            ..product(1 << 30)
        };
        let large = Layout::plan(&large).expect("plan");
        assert_eq!(
            Layout {
                device_bytes: 1 << 30,
                ..large
            },
            small
        );
        assert_eq!(small.for_device(3 << 30, 64 << 10), Ok(large));
        let too_small = small.for_device((1 << 30) - (1 << 20), 64 << 10);
        assert_eq!(too_small, Err(LayoutError::Overlap { area: Area::Data }));
    }

    #[test]
    fn a_tiny_layout_for_the_simulator_fits_into_512_kib() {
        let tiny = LayoutParams {
            strip_bytes: 4096,
            align_bytes: 4096,
            log_bytes: 64 << 10,
            region_bytes: Some(16 << 10),
            tiny: true,
            ..product(512 << 10)
        };
        let layout = Layout::plan(&tiny).expect("plan");
        assert_eq!(
            (layout.map_offset, layout.map_pages, layout.log_offset),
            (8192, 1, 24576)
        );
        assert_eq!(layout.data_offset, 88 << 10);
        assert_eq!(layout.data_bytes, (448 - 88) << 10);
        assert_eq!(layout.regions(), 23);
        assert_eq!(
            (layout.regions_in_page(0), layout.regions_in_page(1)),
            (23, 0)
        );
        let short = Layout::plan(&LayoutParams {
            page_regions: Some(10),
            ..tiny
        });
        let short = short.expect("plan");
        assert_eq!((short.map_pages, short.regions_in_page(2)), (3, 1));
        assert_eq!(short.log_offset, layout.log_offset + 6 * 4096);
    }

    #[test]
    fn a_page_covers_one_region_at_least_and_no_more_than_fit() {
        for regions in [0, 3993] {
            let page = LayoutParams {
                page_regions: Some(regions),
                ..product(1 << 30)
            };
            assert_eq!(
                Layout::plan(&page),
                Err(LayoutError::PageRegions { regions })
            );
        }
    }

    #[test]
    fn senseless_parameters_are_named() {
        let p = product(1 << 30);
        let plan = |p: LayoutParams| Layout::plan(&p).expect_err("senseless");
        assert_eq!(
            plan(LayoutParams {
                strip_bytes: 12288,
                ..p
            }),
            LayoutError::Strip { bytes: 12288 }
        );
        assert_eq!(
            plan(LayoutParams {
                align_bytes: 4096,
                ..p
            }),
            LayoutError::Align { bytes: 4096 }
        );
        assert_eq!(
            plan(LayoutParams {
                log_bytes: 4096,
                ..p
            }),
            LayoutError::LogBytes { bytes: 4096 }
        );
        let region = LayoutParams {
            region_bytes: Some(4096),
            ..p
        };
        assert_eq!(plan(region), LayoutError::Region { bytes: 4096 });
        let many = LayoutParams {
            strip_bytes: 4096,
            region_bytes: Some(4096),
            ..product(1 << 33)
        };
        assert_eq!(plan(many), LayoutError::TooManyRegions { regions: 1 << 21 });
        let small = LayoutParams {
            usable_bytes: 1 << 20,
            ..p
        };
        assert_eq!(
            plan(small),
            LayoutError::TooSmall {
                device_bytes: 1 << 20
            }
        );
        let usable = LayoutParams {
            usable_bytes: 2 << 30,
            ..p
        };
        assert!(matches!(plan(usable), LayoutError::Usable { .. }));
        assert!(
            Layout::plan(&LayoutParams {
                align_bytes: 1 << 63,
                ..p
            })
            .is_err()
        );
        assert!(
            Layout::plan(&LayoutParams {
                log_bytes: u64::MAX - 4095,
                ..p
            })
            .is_err()
        );
    }
}

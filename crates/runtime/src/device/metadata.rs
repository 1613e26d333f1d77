//! What a member says of itself: both superblock copies, the region map, the list of unreadable
//! blocks; and, asked for apart from these, the stripe log where it may have to be replayed.
//!
//! Invariant: nothing is believed here that `strake_format` did not decode; a page of another
//! array or member counts as no page. Deliberately absent: which member of an array to believe
//! (the engine).

use std::ops::Range;

use strake_engine::buffers::PAGE;
use strake_engine::gather::Gather;
use strake_format::log::Scan;
use strake_format::region_map::{is_whole, place};
use strake_format::superblock::SUPERBLOCK_BYTES;
use strake_format::{
    CopyStatus, Generation, Layout, LogBatch, MapPage, SelectError, Superblock, SuperblockError,
    UnreadableList, copy_to_replace, lost_copy, select_member, unreadable,
};

use super::{Device, DeviceError};

/// How much of a log is read at once, bytes.
const LOG_PIECE: usize = 1 << 20;

/// What reading a member's metadata found.
#[derive(Clone, Debug)]
pub struct MemberImage {
    /// The newer valid copy.
    pub superblock: Superblock,
    /// Offset and validity of both copies.
    pub copies: [(u64, bool); 2],
    /// Which of them is written over first.
    pub copy_to_replace: usize,
    /// Where a copy should lie and nothing does: see [`lost_copy`].
    pub emptied: Option<u64>,
    /// Newest valid version of each region map page.
    pub map: Vec<Option<MapPage>>,
    /// Of each page whether neither place lacks a version: see [`is_whole`].
    pub map_whole: Vec<bool>,
    /// What the two places of the list of unreadable blocks hold, where it is valid.
    pub unreadable: [Option<UnreadableList>; 2],
}

/// What the superblocks of a device in service show.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Where a copy should lie and none does: another program wrote there.
    pub emptied: Option<u64>,
    /// The generation of the newer valid copy.
    pub generation: Generation,
    /// The session that wrote it.
    pub session: Option<u32>,
}

/// Whole, and of a version, or with features, that only a newer program knows.
fn is_newer(error: &SuperblockError) -> bool {
    matches!(
        error,
        SuperblockError::Version { .. } | SuperblockError::Features { .. }
    )
}

impl MemberImage {
    /// Bytes of the block device that lost their content, in order; `None` where the member has no
    /// valid list of them.
    pub fn lost_bytes(&self) -> Option<Vec<Range<u64>>> {
        let sb = &self.superblock;
        let (_, list) = unreadable::newest(&self.unreadable, sb.array, sb.member)?;
        let block = u64::from(sb.block_bytes);
        let bytes = |r: &Range<u64>| r.start.saturating_mul(block)..r.end.saturating_mul(block);
        Some(list.ranges.iter().map(bytes).collect())
    }
}

/// A superblock, what is said of both copies, and where one was lost.
type Copies = (Superblock, [CopyStatus; 2], Option<u64>);

impl Device {
    /// The superblock, what is said of both copies, and where one should lie and none does.
    fn read_superblock(&self) -> Result<Copies, DeviceError> {
        let bytes = self.info().bytes;
        if bytes < 2 * SUPERBLOCK_BYTES as u64 {
            return Err(DeviceError::NotStrake(self.path().to_owned()));
        }
        let mut failed = None;
        let read = |offset| {
            let mut copy = Box::new([0; SUPERBLOCK_BYTES]);
            match self.read_at(offset, &mut copy[..]) {
                Ok(()) => Some(copy),
                Err(error) => {
                    failed.get_or_insert(error);
                    None
                }
            }
        };
        let (superblock, statuses) = match select_member(bytes, read) {
            Ok(chosen) => chosen,
            Err(error) => return Err(self.no_member(error, failed)),
        };
        let emptied = lost_copy(&superblock, |offset| {
            let mut copy = Box::new([0; SUPERBLOCK_BYTES]);
            self.read_at(offset, &mut copy[..]).ok().map(|()| copy)
        });
        Ok((superblock, statuses, emptied))
    }

    /// What its superblocks show now.
    ///
    /// # Errors
    /// [`DeviceError::NotStrake`]: neither is left; or the device cannot be read.
    pub fn look(&self) -> Result<Look, DeviceError> {
        let (superblock, _, emptied) = self.read_superblock()?;
        let generation = superblock.generation;
        Ok(Look {
            emptied,
            generation,
            session: superblock.sessions.newest(),
        })
    }

    /// Superblock copies, region map and lists of unreadable blocks.
    pub fn read_member(&self) -> Result<MemberImage, DeviceError> {
        let (superblock, statuses, emptied) = self.read_superblock()?;
        let offsets = Layout::superblock_offsets(self.info().bytes);
        let copies = [
            (offsets[0], statuses[0].is_valid()),
            (offsets[1], statuses[1].is_valid()),
        ];
        let (map, map_whole) = self.read_map(&superblock).into_iter().unzip();
        let unreadable = self.read_lists(&superblock.layout);
        Ok(MemberImage {
            superblock,
            copies,
            copy_to_replace: copy_to_replace(statuses),
            emptied,
            map,
            map_whole,
            unreadable,
        })
    }

    /// What a member holds on a device that is shorter than it was, where all of its data lies
    /// before the new end: the last copy of its superblock counts as lost. `None` of all others.
    ///
    /// # Errors
    /// The device cannot be read.
    pub fn read_cut_off(&self) -> Result<Option<MemberImage>, DeviceError> {
        let bytes = self.info().bytes;
        if bytes < 2 * SUPERBLOCK_BYTES as u64 {
            return Ok(None);
        }
        let [first, last] = Layout::superblock_offsets(bytes);
        let mut copy = Box::new([0; SUPERBLOCK_BYTES]);
        self.read_at(first, &mut copy[..])?;
        let Ok(mut superblock) = Superblock::decode(&copy[..], first) else {
            return Ok(None);
        };
        let was = superblock.layout.device_bytes;
        let [_, place] = Layout::superblock_offsets(was);
        // Where less than 64 KiB went, the last copy is still where it was.
        if self.read_at(place, &mut copy[..]).is_ok()
            && let Ok(other) = Superblock::decode(&copy[..], place)
            && (other.array, other.member) == (superblock.array, superblock.member)
            && other.generation > superblock.generation
        {
            superblock = other;
        }
        // Data that moves lies in two shapes, of which the layout describes one.
        if was <= bytes || superblock.moving.is_some() {
            return Ok(None);
        }
        let Ok(layout) = superblock.layout.for_device(bytes, superblock.strip_bytes) else {
            return Ok(None);
        };
        superblock.layout = layout;
        let (map, map_whole) = self.read_map(&superblock).into_iter().unzip();
        let unreadable = self.read_lists(&superblock.layout);
        Ok(Some(MemberImage {
            superblock,
            copies: [(first, true), (last, false)],
            copy_to_replace: 1,
            emptied: Some(place),
            map,
            map_whole,
            unreadable,
        }))
    }

    fn no_member(&self, error: SelectError, read: Option<DeviceError>) -> DeviceError {
        match (error, read) {
            (_, Some(read)) => read,
            (SelectError::NotStrake, None) => DeviceError::NotStrake(self.path().to_owned()),
            (SelectError::NoValidCopy { first, .. }, None) if is_newer(&first) => {
                DeviceError::Newer {
                    path: self.path().to_owned(),
                    what: first.to_string(),
                }
            }
            (SelectError::NoValidCopy { last, .. }, None) if is_newer(&last) => {
                DeviceError::Newer {
                    path: self.path().to_owned(),
                    what: last.to_string(),
                }
            }
            (
                SelectError::Shrunk {
                    recorded_bytes,
                    device_bytes,
                },
                None,
            ) => DeviceError::Shrunk {
                path: self.path().to_owned(),
                recorded_bytes,
                device_bytes,
            },
            (error, None) => DeviceError::Damaged {
                path: self.path().to_owned(),
                what: error.to_string(),
            },
        }
    }

    /// A list that cannot be read is one that is not valid. Whether it is this array's and member's
    /// is looked at where it is used.
    fn read_lists(&self, layout: &Layout) -> [Option<UnreadableList>; 2] {
        unreadable::places(layout).map(|offset| {
            let mut image = vec![0; layout.unreadable_bytes as usize];
            self.read_at(offset, &mut image).ok()?;
            UnreadableList::decode(&image, offset).ok()
        })
    }

    /// What counts of the log of this member, where everything below `base` is retired. What cannot
    /// be read counts as torn: other members have the records too.
    pub(crate) fn read_log(&self, superblock: &Superblock, base: u64) -> Vec<LogBatch> {
        let layout = &superblock.layout;
        let mut gather = Gather::new(superblock, base);
        let mut scan = Scan::new(layout.log_offset);
        let mut piece = vec![0; LOG_PIECE.min(layout.log_bytes as usize)];
        let mut done = 0;
        while done < layout.log_bytes {
            let len = (layout.log_bytes - done).min(piece.len() as u64);
            let (from, piece) = (layout.log_offset + done, &mut piece[..len as usize]);
            done += len;
            self.read_what_can_be(from, piece);
            scan.feed(piece, done == layout.log_bytes, |batch| {
                if let Ok(batch) = batch {
                    gather.take(batch);
                }
            });
        }
        gather.finish()
    }

    /// Reads, with zeros for pages that cannot be read.
    fn read_what_can_be(&self, from: u64, bytes: &mut [u8]) {
        if self.read_at(from, bytes).is_ok() {
            return;
        }
        for (at, page) in bytes.chunks_mut(PAGE).enumerate() {
            if self.read_at(from + (at * PAGE) as u64, page).is_err() {
                page.fill(0);
            }
        }
    }

    /// A page that cannot be read is a page that is not valid: other members have it too.
    /// With each page whether it is whole.
    fn read_map(&self, superblock: &Superblock) -> Vec<(Option<MapPage>, bool)> {
        let layout = &superblock.layout;
        let pages = layout.map_pages;
        let areas = [place(layout, 0, 0), place(layout, 0, 1)].map(|start| {
            let mut area = vec![0; pages as usize * PAGE];
            self.read_what_can_be(start, &mut area);
            area
        });
        let decode = |side: usize, page: u32| {
            let from = page as usize * PAGE;
            let offset = place(layout, page, side as u64);
            MapPage::decode(&areas[side][from..from + PAGE], offset)
        };
        // A page of an array that was here before may be newer: it is no version of this array's
        // page.
        let ours = |page: u32| {
            move |found: &MapPage| {
                (found.array, found.member, found.page)
                    == (superblock.array, superblock.member, page)
            }
        };
        (0..pages)
            .map(|page| {
                let [a, b] = [0, 1].map(|side| decode(side, page).ok().filter(ours(page)));
                let whole = is_whole(a.as_ref(), b.as_ref());
                let newest = a.into_iter().chain(b).max_by_key(|found| found.sequence);
                (newest, whole)
            })
            .collect()
    }
}

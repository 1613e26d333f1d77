//! Members whose superblocks are lost, recognised by what else they carry: the pages of the region map name array and
//! member.
//!
//! Invariants: nothing is written; a device without a whole page or superblock of the array is never taken for one of
//! its members. Deliberately absent: guessing by path, size or serial number.

use std::path::{Path, PathBuf};

use strake_format::region_map::{self, PAGE_BYTES};
use strake_format::{ArrayUuid, Layout, MapPage, MemberUuid, Superblock};
use strake_runtime::{Device, OpenMode};

use crate::drives::sysfs;

/// What a device carries of an array.
#[derive(Clone, Debug)]
pub(crate) struct Remains {
    pub(crate) path: PathBuf,
    /// Which member it is, where it still tells.
    pub(crate) member: Option<MemberUuid>,
    /// Its superblock, if that is left.
    pub(crate) superblock: Option<Superblock>,
    /// The version of each page of its region map; None where none is whole. Members that were in sync to the end have
    /// the same.
    pub(crate) versions: Vec<Option<u64>>,
}

/// What these devices carry of the array; the same device under two names counts once.
pub(crate) fn look(paths: &[PathBuf], array: ArrayUuid, layout: &Layout) -> Vec<Remains> {
    sysfs::each_once(paths)
        .filter_map(|path| look_at(path, array, layout))
        .filter(|remains| remains.member.is_some())
        .collect()
}

/// What one device carries of the array, which may be nothing; None where it cannot be read.
pub(crate) fn look_at(path: &Path, array: ArrayUuid, layout: &Layout) -> Option<Remains> {
    let device = Device::open(path, OpenMode::ReadOnly).ok()?;
    let superblock = device.read_member().ok().map(|image| image.superblock);
    let superblock = superblock.filter(|sb| sb.array == array);
    let places = superblock.as_ref().map_or(layout, |sb| &sb.layout);
    let pages: Vec<Option<MapPage>> = (0..places.map_pages)
        .map(|page| {
            let [a, b] = [0, 1].map(|sequence| {
                let offset = region_map::place(places, page, sequence);
                let mut bytes = vec![0; PAGE_BYTES];
                // What cannot be read is no page.
                let _ = device.read_at(offset, &mut bytes);
                MapPage::decode(&bytes, offset)
            });
            region_map::newest(a, b).filter(|page| page.array == array)
        })
        .collect();
    let named = pages.iter().flatten().map(|page| page.member).next();
    Some(Remains {
        path: path.to_owned(),
        member: superblock.as_ref().map(|sb| sb.member).or(named),
        superblock,
        versions: pages
            .iter()
            .map(|page| page.as_ref().map(|page| page.sequence))
            .collect(),
    })
}

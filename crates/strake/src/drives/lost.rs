//! Members that lost their superblocks, recognised by what else they carry: the pages of the region
//! map name array and member.
//!
//! Invariants: nothing is written; a device without a whole page or superblock of the array is
//! never taken for one of its members. Deliberately absent: guessing by path, size or serial
//! number.

use std::path::{Path, PathBuf};

use strake_format::region_map::{self, PAGE_BYTES};
use strake_format::unreadable;
use strake_format::{ArrayUuid, Layout, MapPage, MemberUuid, Superblock, UnreadableList};
use strake_runtime::{Device, OpenMode};

use crate::drives::machine::looks::{Answers, Looks};
use crate::drives::machine::stack::Stack;
use crate::drives::pool;

/// What a device carries of an array.
#[derive(Clone, Debug)]
pub(crate) struct Remains {
    pub(crate) path: PathBuf,
    /// Which member it is, where it still tells.
    pub(crate) member: Option<MemberUuid>,
    /// Its superblock, if that is left.
    pub(crate) superblock: Option<Superblock>,
    /// What the two places of each page of its region map hold, if it is of this array and this
    /// member.
    pub(crate) pages: Vec<[Option<MapPage>; 2]>,
    /// Its newest list of unreadable blocks.
    pub(crate) list: Option<UnreadableList>,
}

impl Remains {
    /// A device that tells nothing.
    pub(crate) fn nothing(path: &Path) -> Remains {
        Remains {
            path: path.to_owned(),
            member: None,
            superblock: None,
            pages: Vec::new(),
            list: None,
        }
    }

    /// The newest version of each page of its region map; None where none is whole. Members that
    /// were in sync to the end have the same.
    pub(crate) fn newest(&self) -> impl Iterator<Item = Option<&MapPage>> {
        let pages = self.pages.iter();
        pages.map(|places| places.iter().flatten().max_by_key(|page| page.sequence))
    }
}

/// What these devices carry of the array; the same device under two names counts once. One that
/// does not answer is not waited for.
pub(crate) fn look(
    looks: &Looks,
    paths: &[PathBuf],
    array: ArrayUuid,
    layout: &Layout,
) -> Answers<Remains> {
    let layout = *layout;
    let answers = looks.each(paths, move |path| look_at(path, array, &layout));
    let found = answers.found.into_iter().flatten();
    let found = found.filter(|remains| remains.member.is_some()).collect();
    let once = Stack::default().each_drive_once(found, |r| r.member, |r| &r.path);
    Answers {
        found: once.into_iter().map(|(remains, _)| remains).collect(),
        silent: answers.silent,
        no_thread: answers.no_thread,
    }
}

/// What one device carries of the array, which may be nothing; None where it cannot be read. A
/// member of another array, or a device in a pool, carries nothing, whatever is left on it from
/// before.
pub(crate) fn look_at(path: &Path, array: ArrayUuid, layout: &Layout) -> Option<Remains> {
    let device = Device::open(path, OpenMode::ReadOnly).ok()?;
    let superblock = device.read_member().ok().map(|image| image.superblock);
    let strange = superblock.as_ref().is_some_and(|sb| sb.array != array);
    if strange || matches!(pool::label_of(&device), Ok(Some(_))) {
        return Some(Remains::nothing(path));
    }
    let mut remains = Remains {
        member: superblock.as_ref().map(|sb| sb.member),
        superblock,
        ..Remains::nothing(path)
    };
    for page in 0..layout.map_pages {
        let places = [0, 1].map(|sequence| {
            let offset = region_map::place(layout, page, sequence);
            let mut bytes = vec![0; PAGE_BYTES];
            device.read_at(offset, &mut bytes).ok()?;
            let found = MapPage::decode(&bytes, offset).ok();
            found.filter(|found| (found.array, found.page) == (array, page))
        });
        remains.pages.push(places);
    }
    let named = remains.newest().flatten().map(|page| page.member).next();
    remains.member = remains.member.or(named);
    for page in remains.pages.iter_mut().flatten() {
        page.take_if(|page| Some(page.member) != remains.member);
    }
    let lists = unreadable::places(layout).map(|offset| {
        let mut image = vec![0; layout.unreadable_bytes as usize];
        device.read_at(offset, &mut image).ok()?;
        UnreadableList::decode(&image, offset).ok()
    });
    remains.list = remains
        .member
        .and_then(|member| unreadable::newest(&lists, array, member))
        .map(|(_, list)| list.clone());
    Some(remains)
}

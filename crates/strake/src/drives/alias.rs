//! Devices that are one although the kernel does not say so: a file by a file system that shows it
//! once more (FUSE, an overlay and its upper layer), a disk that a hypervisor attaches twice.
//!
//! Whether they are one is tried out: a mark that is written to one must not be read from another.
//! Invariants: only held devices are tried, and of these only such as hold the same bytes in the
//! place of the first superblock; these bytes are there again afterwards. The caller is about to
//! write that place. What a cache between keeps from a reader is tried in both directions.
//! Deliberately absent: devices that share only some of their bytes, or at other offsets.

use std::path::Path;

use strake_format::Layout;
use strake_runtime::{Device, DeviceError};

use crate::common::errors::{Code, Failure};
use crate::drives::make;

/// Bytes that are compared and marked: a page, the least that a device writes.
const MARK_BYTES: usize = 4096;

type Page = [u8; MARK_BYTES];

/// Refuses devices of which two are one.
pub(crate) fn none_twice(devices: &[Device]) -> Result<(), Failure> {
    let mut pages = Vec::new();
    for device in devices {
        // One that is too small for a superblock is refused by the plan.
        if let Some(page) = first_page(device)? {
            pages.push((device, page));
        }
    }
    while let Some((first, page)) = pages.pop() {
        let (alike, others): (Vec<_>, Vec<_>) = pages.into_iter().partition(|(_, p)| *p == page);
        pages = others;
        let mut alike: Vec<&Device> = alike.into_iter().map(|(device, _)| device).collect();
        alike.push(first);
        if alike.len() > 1 {
            try_out(&alike, &page)?;
        }
    }
    Ok(())
}

fn place_of(device: &Device) -> u64 {
    Layout::superblock_offsets(device.info().bytes)[0]
}

fn first_page(device: &Device) -> Result<Option<Box<Page>>, DeviceError> {
    let at = place_of(device);
    if at + MARK_BYTES as u64 > device.info().bytes {
        return Ok(None);
    }
    let mut page = Box::new([0; MARK_BYTES]);
    device.read_at(at, &mut page[..])?;
    Ok(Some(page))
}

/// Marks devices that hold the same page, each in its own way, in one order and in the other, and
/// gives them their page back.
fn try_out(devices: &[&Device], page: &Page) -> Result<(), Failure> {
    let run = make::random_uuid();
    let forward: Vec<usize> = (0..devices.len()).collect();
    let backward: Vec<usize> = forward.iter().rev().copied().collect();
    for (order, nth) in [forward, backward].into_iter().zip(0..) {
        let mark = |index: usize| mark(&run, nth, index);
        let seen = marked(devices, &order, &mark);
        let mut given_back = Ok(());
        for device in devices {
            // One that refuses keeps none of the others from its page.
            given_back = given_back.and(device.write_at(place_of(device), page));
        }
        given_back?;
        if let Some((one, other)) = seen? {
            return Err(twice(devices[one].path(), devices[other].path()));
        }
    }
    Ok(())
}

fn mark(run: &[u8; 16], nth: u8, index: usize) -> Box<Page> {
    let mut page = Box::new([nth; MARK_BYTES]);
    page[..16].copy_from_slice(run);
    page[16..24].copy_from_slice(&(index as u64).to_le_bytes());
    page
}

/// Two of the devices of which one shows the mark of the other.
fn marked(
    devices: &[&Device],
    order: &[usize],
    mark: &impl Fn(usize) -> Box<Page>,
) -> Result<Option<(usize, usize)>, DeviceError> {
    for &index in order {
        let device = devices[index];
        device.write_at(place_of(device), &mark(index)[..])?;
        device.flush()?;
    }
    for &index in order {
        let Some(page) = first_page(devices[index])? else {
            continue;
        };
        let other = order.iter().find(|&&other| page == mark(other));
        if let Some(&other) = other.filter(|&&other| other != index) {
            return Ok(Some((index.min(other), index.max(other))));
        }
    }
    Ok(None)
}

fn twice(first: &Path, second: &Path) -> Failure {
    let (first, second) = (first.display(), second.display());
    let found =
        format!("{first} and {second} are one device: what is written to one is on the other");
    Failure::new(Code::DeviceTwice, found)
}

#[cfg(test)]
mod tests {
    use strake_runtime::OpenMode;

    use super::*;

    fn file(dir: &Path, name: &str, bytes: &[u8]) -> Device {
        let path = dir.join(name);
        std::fs::write(&path, bytes).expect("written");
        Device::open(&path, OpenMode::ReadOnly).expect("opens");
        Device::open(&path, OpenMode::Member).expect("opens")
    }

    #[test]
    fn devices_that_hold_the_same_keep_it_and_are_not_one() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let (blank, other) = (vec![0; 1 << 20], vec![7; 1 << 20]);
        let devices = [
            file(dir.path(), "a", &blank),
            file(dir.path(), "b", &other),
            file(dir.path(), "c", &blank),
            file(dir.path(), "d", &other),
            file(dir.path(), "tiny", &[0; 512]),
        ];
        none_twice(&devices).expect("five devices");
        let now = |name| std::fs::read(dir.path().join(name)).expect("reads");
        assert!(now("a") == blank && now("c") == blank);
        assert!(now("b") == other && now("d") == other);
    }

    #[test]
    fn one_device_is_found_by_its_mark_and_keeps_its_page() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let blank = vec![0; 1 << 20];
        let (a, b) = (file(dir.path(), "a", &blank), file(dir.path(), "b", &blank));
        let page = [0; MARK_BYTES];
        let refused = try_out(&[&b, &a, &a], &page).expect_err("twice the same");
        assert_eq!(refused.code, Code::DeviceTwice);
        assert!(!refused.found.contains("/b "), "{}", refused.found);
        assert!(std::fs::read(a.path()).expect("reads") == blank);
        assert!(std::fs::read(b.path()).expect("reads") == blank);
    }
}

//! Properties of block devices and files, asked of the kernel.
//!
//! Invariant: what the kernel does not tell is assumed for the worst (a volatile cache, no
//! granularity). Deliberately absent: NVMe identify data; `minimum_io_size` carries NPWG on
//! kernels that serve us.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags};
use strake_engine::buffers::PAGE;
use strake_engine::event::DeviceInfo;

use super::Kind;

/// `_IOR(0x12, 114, size_t)` of linux/fs.h.
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272_u32 as libc::Ioctl;
/// `_IO(0x12, 119)` of linux/fs.h.
const BLKDISCARD: libc::Ioctl = 0x1277;

/// Size of a block device, bytes; zero once a drive was pulled.
pub(super) fn block_bytes(file: &File) -> io::Result<u64> {
    let mut bytes = 0u64;
    // SAFETY: BLKGETSIZE64 writes one u64 to the address given, which is that of `bytes`.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &raw mut bytes) };
    if status == 0 {
        Ok(bytes)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Discards a range of a block device.
pub(super) fn block_discard(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let range = [offset, len];
    // SAFETY: BLKDISCARD reads two u64 from the address given, which is that of `range`.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Where sysfs describes a block device.
pub(super) fn sysfs(number: u64) -> PathBuf {
    PathBuf::from(format!(
        "/sys/dev/block/{}:{}",
        libc::major(number),
        libc::minor(number)
    ))
}

/// The file under a loop device, or under one that it is a partition of. One that has lost its name
/// cannot be another member either.
pub(super) fn backing(number: u64) -> Option<File> {
    let sysfs = sysfs(number);
    let mut names = ["loop", "../loop"].iter().map(|folder| sysfs.join(folder));
    let name =
        names.find_map(|folder| std::fs::read_to_string(folder.join("backing_file")).ok())?;
    File::open(name.trim_end_matches('\n')).ok()
}

/// Does the kernel refuse writes to this block device?
pub(super) fn is_read_only(number: u64) -> bool {
    let value = std::fs::read_to_string(sysfs(number).join("ro"));
    value.is_ok_and(|value| value.trim() == "1")
}

/// A value of the device's queue; a partition has its parent's.
fn queue(sysfs: &Path, name: &str) -> Option<String> {
    ["queue", "../queue"]
        .iter()
        .find_map(|queue| std::fs::read_to_string(sysfs.join(queue).join(name)).ok())
        .map(|value| value.trim().to_owned())
}

/// Bytes that one request to a block device can carry wherever they lie, in memory and on the
/// device; 0 where that is not known, or depends on where on the device. The kernel splits what is
/// longer, which it does not do without waiting.
pub(super) fn at_once(number: u64) -> usize {
    at_once_of(&sysfs(number)).unwrap_or(0)
}

/// Bytes that an I/O may have so that the kernel carries it as one request, wherever it begins
/// within a page of memory; whole pages, so that the next part begins on a block again. 0 where
/// that is not known.
pub(super) fn refuses(number: u64) -> usize {
    refuses_of(&sysfs(number)).unwrap_or(0)
}

fn refuses_of(sysfs: &Path) -> Option<usize> {
    let segments: usize = queue(sysfs, "max_segments")?.parse().ok()?;
    let bytes = at_once_of(sysfs)?.min(segments.saturating_sub(1).saturating_mul(PAGE));
    Some(bytes - bytes % PAGE)
}

/// A drive, or a path to one: not one that the kernel makes of memory, files or other devices
/// (loop, brd, zram, nbd, device mapper, md), since there the CPU copies the data or has read it.
fn is_hardware(sysfs: &Path) -> bool {
    let place = sysfs.canonicalize();
    place.is_ok_and(|place| !place.to_string_lossy().contains("/devices/virtual/block/"))
}

fn at_once_of(sysfs: &Path) -> Option<usize> {
    let value = |name| queue(sysfs, name)?.parse::<usize>().ok();
    let (kib, segments) = (value("max_sectors_kb")?, value("max_segments")?);
    let anywhere = value("chunk_sectors")? == 0;
    // Each page of memory may be a segment.
    let bytes = kib.saturating_mul(1024).min(segments.saturating_mul(PAGE));
    anywhere.then_some(bytes)
}

/// What a block device is.
pub(super) fn block(file: &File) -> io::Result<(Kind, DeviceInfo)> {
    let number = file.metadata()?.rdev();
    let sysfs = sysfs(number);
    let block_bytes_logical = rustix::fs::ioctl_blksszget(file)?;
    let granularity = queue(&sysfs, "minimum_io_size").and_then(|value| value.parse().ok());
    let write_cache = queue(&sysfs, "write_cache");
    let info = DeviceInfo {
        bytes: block_bytes(file)?,
        block_bytes: block_bytes_logical,
        granularity_bytes: granularity.unwrap_or(0),
        volatile_cache: write_cache.as_deref() != Some("write through"),
        dma: is_hardware(&sysfs),
    };
    Ok((
        Kind::Block {
            number,
            in_sysfs: sysfs.exists(),
        },
        info,
    ))
}

/// What a file is, and whether O_DIRECT can be used on it: the engine aligns offsets to the
/// logical block and memory to the same within pages.
pub(super) fn file(file: &File, direct: bool) -> io::Result<(DeviceInfo, bool)> {
    let mut block_bytes = 512;
    let (mut usable, mut dma) = (true, false);
    if direct {
        let asked = StatxFlags::DIOALIGN;
        let stat = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, asked);
        if let Ok(stat) = stat
            && stat.stx_mask & asked.bits() != 0
        {
            let align = stat.stx_dio_offset_align.max(stat.stx_dio_mem_align);
            // Zero: no direct I/O on this file after all.
            usable = stat.stx_dio_offset_align != 0 && align <= 4096;
            // A file system that says nothing of it may take the flag and copy all the same
            // (tmpfs).
            dma = usable;
            if usable && align > 512 {
                block_bytes = align;
            }
        }
    }
    let bytes = file.metadata()?.len();
    Ok((
        DeviceInfo {
            bytes,
            block_bytes,
            granularity_bytes: 0,
            volatile_cache: true,
            dma,
        },
        usable,
    ))
}

/// The processes that have locked a file as members are, as far as the kernel shows them here: a
/// device number may be another in `stat` (overlayfs, btrfs), and processes of other namespaces
/// have none. One may have ended, and another have its descriptor.
pub fn lock_holders(path: &Path) -> Vec<u32> {
    let Ok(about) = std::fs::metadata(path) else {
        return Vec::new();
    };
    let (major, minor) = (
        rustix::fs::major(about.dev()),
        rustix::fs::minor(about.dev()),
    );
    let file = format!("{major:02x}:{minor:02x}:{}", about.ino());
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let holders = locks.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let kind = words.next()?;
        let process = words.nth(2)?.parse().ok()?;
        (kind == "FLOCK" && words.next()? == file && process != 0).then_some(process)
    });
    holders.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_makes_of_something_else_is_no_hardware() {
        let dir = tempfile::tempdir().expect("folder");
        let links = dir.path().join("dev/block");
        std::fs::create_dir_all(&links).expect("folder");
        for (number, place, hardware) in [
            (
                "259:0",
                "devices/pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1",
                true,
            ),
            (
                "259:1",
                "devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1",
                true,
            ),
            ("7:0", "devices/virtual/block/loop0", false),
            ("253:1", "devices/virtual/block/dm-1", false),
        ] {
            let place = dir.path().join(place);
            std::fs::create_dir_all(&place).expect("folder");
            let link = links.join(number);
            std::os::unix::fs::symlink(&place, &link).expect("link");
            assert_eq!(is_hardware(&link), hardware, "{number}");
        }
        assert!(!is_hardware(&links.join("1:1")), "nothing is known of it");
    }

    #[test]
    fn a_request_carries_what_the_queue_says_and_nothing_is_assumed() {
        let dir = tempfile::tempdir().expect("folder");
        let tell = |name: &str, value: &str| {
            std::fs::write(dir.path().join("queue").join(name), value).expect("written");
        };
        std::fs::create_dir(dir.path().join("queue")).expect("made");
        assert_eq!(at_once_of(dir.path()), None);
        tell("max_sectors_kb", "1280\n");
        tell("max_segments", "127\n");
        assert_eq!(at_once_of(dir.path()), None, "it may depend on the place");
        tell("chunk_sectors", "0\n");
        assert_eq!(at_once_of(dir.path()), Some(127 * 4096));
        assert_eq!(refuses_of(dir.path()), Some(126 * 4096));
        tell("max_sectors_kb", "128\n");
        assert_eq!(at_once_of(dir.path()), Some(128 << 10));
        assert_eq!(refuses_of(dir.path()), Some(128 << 10));
        tell("max_sectors_kb", "127\n");
        assert_eq!(
            refuses_of(dir.path()),
            Some(124 << 10),
            "parts of whole pages"
        );
        tell("max_segments", "1\n");
        assert_eq!(refuses_of(dir.path()), Some(0));
        tell("chunk_sectors", "256\n");
        assert_eq!(
            (at_once_of(dir.path()), refuses_of(dir.path())),
            (None, None)
        );
    }
}

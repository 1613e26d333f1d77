//! What a drive is and how it is plugged in, as the kernel has it: model, firmware, NUMA node, PCIe
//! link, write cache, write granularity, discards.
//!
//! Invariants: what cannot be read is `None`, never a value; drives are asked nothing but Identify.
//! A partition has its drive's traits. Deliberately absent: what is good and what is not
//! (`commands::doctor`).

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use strake_runtime::device::nvme;

use crate::drives::machine::sysfs::{self, Identity};

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Traits {
    /// `nvme0n1`.
    pub(crate) name: String,
    pub(crate) model: Option<String>,
    pub(crate) firmware: Option<String>,
    pub(crate) numa_node: Option<u32>,
    /// Of each controller: a drive may have two ports.
    pub(crate) links: Vec<Link>,
    /// What the kernel takes the cache for: `write back` or `write through`.
    pub(crate) write_cache: Option<String>,
    /// The drive says that it has a volatile cache; `None` where it was not asked.
    pub(crate) has_volatile_cache: Option<bool>,
    /// Its unit of writes (`minimum_io_size`), which is the indirection unit where the drive tells.
    pub(crate) granularity_bytes: Option<u64>,
    pub(crate) discards: Option<bool>,
    /// Placement handles (NVMe FDP) of its namespace that the kernel offers; `None` for an older
    /// kernel.
    pub(crate) placement_handles: Option<u64>,
    /// It is a part of the drive.
    pub(crate) is_partition: bool,
}

/// A PCIe link: what it runs at, what the drive can do, and what the other end can do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Link {
    /// As the kernel names the function: `0000:01:00.0`.
    pub(crate) address: String,
    pub(crate) now: Lanes,
    pub(crate) drive: Lanes,
    /// `None` where the kernel does not tell.
    pub(crate) port: Option<Lanes>,
}

/// Speed and width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lanes {
    pub(crate) gt_per_s: f64,
    pub(crate) width: u32,
}

impl std::fmt::Display for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} GT/s x{}", self.gt_per_s, self.width)
    }
}

/// The byte of a controller's identify data with the bit (the lowest) for a volatile write cache.
const VWC: usize = 525;

/// Looks at a drive; `None` for files.
pub(crate) fn of(path: &Path) -> Option<Traits> {
    let id = sysfs::identity(path).ok()?;
    let mut traits = in_sys(Path::new("/sys"), id)?;
    if traits.name.starts_with("nvme") {
        let page = File::open(path).and_then(|file| nvme::identify_controller(&file));
        let byte = page.ok().and_then(|page| page.get(VWC).copied());
        traits.has_volatile_cache = byte.map(|byte| byte & 1 == 1);
    }
    Some(traits)
}

fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    text(path)?.parse().ok()
}

/// What a /sys says of a block device.
pub(crate) fn in_sys(sys: &Path, id: Identity) -> Option<Traits> {
    let Identity::Block(rdev) = id else {
        return None;
    };
    let link = sys.join("dev/block").join(sysfs::dev_text(rdev));
    let mut folder = fs::canonicalize(link).ok()?;
    let is_partition = folder.join("partition").exists();
    if is_partition {
        folder.pop();
    }
    let queue = folder.join("queue");
    let controllers = controllers(&folder);
    let node = |folder: &PathBuf| {
        let places = ["numa_node", "device/numa_node"];
        places.iter().find_map(|file| number(&folder.join(file)))
    };
    let discard_max: Option<u64> = number(&queue.join("discard_max_bytes"));
    Some(Traits {
        name: folder.file_name()?.to_str()?.to_owned(),
        model: text(&folder.join("device/model")),
        firmware: text(&folder.join("device/firmware_rev"))
            .or_else(|| text(&folder.join("device/rev"))),
        numa_node: controllers.iter().find_map(node),
        links: controllers.iter().filter_map(|c| link_of(c)).collect(),
        write_cache: text(&queue.join("write_cache")),
        has_volatile_cache: None,
        granularity_bytes: number(&queue.join("minimum_io_size")),
        discards: discard_max.map(|most| most > 0),
        placement_handles: number(&queue.join("max_write_streams")),
        is_partition,
    })
}

/// The controllers of a drive: with native multipath, those of its subsystem; of what is no NVMe
/// drive the device itself.
fn controllers(block: &Path) -> Vec<PathBuf> {
    let device = block.join("device");
    let entries = fs::read_dir(&device).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    found.retain(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        let rest = name.and_then(|name| name.strip_prefix("nvme"));
        rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    });
    found.sort();
    match found.is_empty() {
        true => vec![device],
        false => found,
    }
}

fn lanes(pci: &Path, which: &str) -> Option<Lanes> {
    // `16.0 GT/s PCIe`, or `Unknown`.
    let speed = text(&pci.join(format!("{which}_link_speed")))?;
    let gt_per_s = speed.split(' ').next()?.parse().ok()?;
    let width = number(&pci.join(format!("{which}_link_width")))?;
    // Nothing is plugged in, or it does not answer.
    let known = width > 0 && width < 255;
    known.then_some(Lanes { gt_per_s, width })
}

/// The link of a controller that is a PCIe function.
fn link_of(controller: &Path) -> Option<Link> {
    let pci = fs::canonicalize(controller.join("device")).ok()?;
    Some(Link {
        address: pci.file_name()?.to_str()?.to_owned(),
        now: lanes(&pci, "current")?,
        drive: lanes(&pci, "max")?,
        port: pci.parent().and_then(|port| lanes(port, "max")),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A /sys with a drive behind a port.
    fn tree(multipath: bool) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("temporary folder");
        let sys = folder.path();
        let write = |file: String, text: &str| {
            let file = sys.join(file);
            fs::create_dir_all(file.parent().expect("a folder")).expect("made");
            fs::write(file, text).expect("written");
        };
        let port = "devices/pci0000:00/0000:00:01.0";
        let pci = format!("{port}/0000:01:00.0");
        for (file, text) in [
            ("current_link_speed", "8.0 GT/s PCIe\n"),
            ("current_link_width", "2\n"),
            ("max_link_speed", "16.0 GT/s PCIe\n"),
            ("max_link_width", "4\n"),
            ("numa_node", "1\n"),
        ] {
            write(format!("{pci}/{file}"), text);
        }
        write(format!("{port}/max_link_speed"), "32.0 GT/s PCIe\n");
        write(format!("{port}/max_link_width"), "16\n");
        let controller = format!("{pci}/nvme/nvme0");
        write(format!("{controller}/numa_node"), "1\n");
        symlink(sys.join(&pci), sys.join(&controller).join("device")).expect("a link");
        let (block, device) = match multipath {
            true => {
                let subsystem = "devices/virtual/nvme-subsystem/nvme-subsys0";
                write(format!("{subsystem}/nvme0n1/size"), "8\n");
                symlink(sys.join(&controller), sys.join(subsystem).join("nvme0")).expect("a link");
                (format!("{subsystem}/nvme0n1"), subsystem.to_owned())
            }
            false => (format!("{controller}/nvme0n1"), controller),
        };
        write(format!("{device}/model"), "D5-P5336   \n");
        write(format!("{device}/firmware_rev"), "5CV10302\n");
        for (file, text) in [
            ("write_cache", "write through\n"),
            ("minimum_io_size", "16384\n"),
            ("discard_max_bytes", "0\n"),
            ("max_write_streams", "8\n"),
        ] {
            write(format!("{block}/queue/{file}"), text);
        }
        symlink(sys.join(&device), sys.join(&block).join("device")).expect("a link");
        write(format!("{block}/nvme0n1p1/partition"), "1\n");
        fs::create_dir_all(sys.join("dev/block")).expect("made");
        for (number, place) in [("259:0", ""), ("259:1", "/nvme0n1p1")] {
            let place = sys.join(format!("{block}{place}"));
            symlink(place, sys.join("dev/block").join(number)).expect("a link");
        }
        folder
    }

    #[test]
    fn a_drive_is_described_by_its_controller_its_port_and_its_queue() {
        for multipath in [false, true] {
            let tree = tree(multipath);
            for minor in [0, 1] {
                let id = Identity::Block(rustix::fs::makedev(259, minor));
                let traits = in_sys(tree.path(), id).expect("it is there");
                assert_eq!(traits.name, "nvme0n1");
                assert_eq!(traits.model.as_deref(), Some("D5-P5336"));
                assert_eq!(traits.firmware.as_deref(), Some("5CV10302"));
                assert_eq!(traits.numa_node, Some(1), "multipath {multipath}");
                assert_eq!(traits.granularity_bytes, Some(16384));
                assert_eq!(traits.placement_handles, Some(8));
                assert_eq!(traits.is_partition, minor == 1);
                assert_eq!(traits.write_cache.as_deref(), Some("write through"));
                assert_eq!(
                    (traits.discards, traits.has_volatile_cache),
                    (Some(false), None)
                );
                let [link] = &traits.links[..] else {
                    panic!("{traits:?}")
                };
                assert_eq!(link.address, "0000:01:00.0");
                assert_eq!(link.now.to_string(), "8 GT/s x2");
                assert_eq!(link.drive.to_string(), "16 GT/s x4");
                assert_eq!(
                    link.port.map(|port| port.to_string()),
                    Some("32 GT/s x16".into())
                );
            }
        }
    }

    #[test]
    fn what_is_not_told_is_not_known() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let id = Identity::Block(rustix::fs::makedev(259, 0));
        assert_eq!(in_sys(folder.path(), id), None);
        assert_eq!(in_sys(folder.path(), Identity::File(1, 1)), None);
        let block = folder.path().join("devices/virtual/block/loop0");
        fs::create_dir_all(&block).expect("made");
        fs::create_dir_all(folder.path().join("dev/block")).expect("made");
        symlink(&block, folder.path().join("dev/block/259:0")).expect("a link");
        let only_named = Traits {
            name: "loop0".to_owned(),
            ..Traits::default()
        };
        assert_eq!(in_sys(folder.path(), id), Some(only_named));
        // A link that does not answer, and a function without one.
        let tree = tree(false);
        let pci = tree
            .path()
            .join("devices/pci0000:00/0000:00:01.0/0000:01:00.0");
        fs::write(pci.join("current_link_speed"), "Unknown\n").expect("written");
        assert_eq!(in_sys(tree.path(), id).expect("it is there").links, []);
    }
}

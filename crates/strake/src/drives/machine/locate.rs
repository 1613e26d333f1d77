//! The light by which a person finds a drive: which file of the kernel's switches it.
//!
//! Order: an enclosure that has the drive (`/sys/class/enclosure/*/*/locate`) → an indicator of the
//! drive or of a port above it (NPEM: `leds/*:enclosure:locate`) → the hot-plug slot with the
//! drive's PCI address (`/sys/bus/pci/slots/*/attention`) → `ledctl`, where it is installed.
//!
//! Invariant: where nothing is found, nothing is written. Deliberately absent: remembering what is
//! lit; the hardware does.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::errors::{Code, Failure};
use crate::drives::machine::helper;
use crate::drives::machine::sysfs;
use crate::drives::machine::sysfs::Identity;

/// What switches a light.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Light {
    /// A file that takes 1 and 0.
    File(PathBuf),
    /// The program.
    Ledctl,
}

/// The file that switches the light of a drive, if the kernel has one.
pub(crate) fn light_of(device: &Path) -> Option<PathBuf> {
    let Identity::Block(rdev) = sysfs::identity(device).ok()? else {
        return None;
    };
    find(Path::new("/sys"), &sysfs::dev_text(rdev)).ok()
}

/// Switches the light of the place where a drive was plugged in that is gone.
pub(crate) fn switch_place(
    shown: &str,
    file: &Path,
    on: bool,
    dry_run: bool,
) -> Result<String, Failure> {
    let (word, by) = (if on { "on" } else { "off" }, file.display());
    if dry_run {
        return Ok(format!(
            "would switch the light where {shown} was {word} ({by})"
        ));
    }
    fs::write(file, if on { "1" } else { "0" }).map_err(|error| Failure::io(&by, &error))?;
    Ok(format!("the light where {shown} was is {word} ({by})"))
}

/// Switches the light of a drive, or says what would be done.
pub(crate) fn switch(device: &Path, on: bool, dry_run: bool) -> Result<String, Failure> {
    let shown = device.display();
    let Identity::Block(rdev) = sysfs::identity(device)? else {
        let found = format!("{shown} is a file: it has no light");
        return Err(Failure::new(Code::NoLight, found).cure("name a drive"));
    };
    let dev = sysfs::dev_text(rdev);
    let light = match find(Path::new("/sys"), &dev) {
        Ok(file) => Light::File(file),
        Err(_) if has_ledctl() => Light::Ledctl,
        Err(looked_for) => {
            let found = format!("no light of {shown}: {looked_for}, and ledctl is not installed");
            return Err(Failure::new(Code::NoLight, found));
        }
    };
    let word = if on { "on" } else { "off" };
    let by = match &light {
        Light::File(file) => file.display().to_string(),
        Light::Ledctl => "ledctl".to_owned(),
    };
    if dry_run {
        return Ok(format!("would switch the light of {shown} {word} ({by})"));
    }
    match light {
        Light::File(file) => {
            let value = if on { "1" } else { "0" };
            fs::write(&file, value).map_err(|error| Failure::io(file.display(), &error))?;
        }
        Light::Ledctl => ledctl(device, on)?,
    }
    Ok(format!("the light of {shown} is {word} ({by})"))
}

fn has_ledctl() -> bool {
    helper::find("ledctl").is_some()
}

fn ledctl(device: &Path, on: bool) -> Result<(), Failure> {
    let verb = if on { "locate" } else { "locate_off" };
    let argument = format!("{verb}={}", device.display());
    let output = helper::output(helper::tool("ledctl").arg(argument))
        .map_err(|error| Failure::io("ledctl", &error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Failure::new(
        Code::NoLight,
        format!("ledctl {}: {said}", device.display()),
    ))
}

/// The file that switches the light of the block device with this number; else what was looked for.
fn find(sys: &Path, dev: &str) -> Result<PathBuf, String> {
    let places = places(sys, dev);
    let light = in_enclosure(sys, &places)
        .or_else(|| indicator(sys, &places))
        .or_else(|| slot(sys, &places));
    light.ok_or_else(|| {
        let addresses: Vec<String> = places
            .iter()
            .filter_map(|place| pci_address(place))
            .collect();
        let slot = match addresses.first() {
            Some(address) => format!("no indicator or hot-plug slot at PCI address {address}"),
            None => "it is behind no PCI device".to_owned(),
        };
        format!("no enclosure has it, {slot}")
    })
}

/// Where the device is in the kernel's tree: itself, and the controllers behind it, which is where
/// the hardware is if several share it (NVMe multipath).
fn places(sys: &Path, dev: &str) -> Vec<PathBuf> {
    let Ok(mut block) = fs::canonicalize(sys.join("dev/block").join(dev)) else {
        return Vec::new();
    };
    if block.join("partition").exists() {
        block.pop();
    }
    let subsystem = block.join("device");
    let mut places = vec![block];
    for name in entries(&subsystem) {
        let is_controller = name.to_str().is_some_and(|name| {
            let number = name.strip_prefix("nvme");
            number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        });
        if is_controller && let Ok(place) = fs::canonicalize(subsystem.join(name)) {
            places.push(place);
        }
    }
    places
}

fn entries(dir: &Path) -> Vec<std::ffi::OsString> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut names: Vec<_> = entries
        .filter_map(Result::ok)
        .map(|e| e.file_name())
        .collect();
    names.sort();
    names
}

/// `locate` of the enclosure's component that has the drive as its device.
fn in_enclosure(sys: &Path, places: &[PathBuf]) -> Option<PathBuf> {
    let class = sys.join("class/enclosure");
    for enclosure in entries(&class) {
        let enclosure = class.join(enclosure);
        for component in entries(&enclosure) {
            let component = enclosure.join(component);
            let file = component.join("locate");
            let Ok(has) = fs::canonicalize(component.join("device")) else {
                continue;
            };
            if file.exists() && places.iter().any(|place| place.starts_with(&has)) {
                return Some(file);
            }
        }
    }
    None
}

/// The indicator of the drive, or of the port that it is plugged into.
fn indicator(sys: &Path, places: &[PathBuf]) -> Option<PathBuf> {
    let functions = |place: &'_ PathBuf| -> Vec<PathBuf> {
        let above = place.ancestors().take_while(|above| *above != sys);
        let functions = above.filter(|above| address_of(above).is_some());
        functions.take(2).map(Path::to_owned).collect()
    };
    places.iter().flat_map(functions).find_map(|function| {
        let leds = function.join("leds");
        let mut names = entries(&leds).into_iter();
        let led = names.find(|name| {
            name.to_str()
                .is_some_and(|n| n.ends_with(":enclosure:locate"))
        })?;
        Some(leds.join(led).join("brightness"))
    })
}

/// Domain, bus and device of the PCI function nearest to the device, as slots name it:
/// `0000:01:00`.
fn pci_address(place: &Path) -> Option<String> {
    place.ancestors().find_map(address_of)
}

/// The same of a folder, if it is that of a PCI function.
fn address_of(folder: &Path) -> Option<String> {
    let (address, function) = folder.file_name()?.to_str()?.rsplit_once('.')?;
    let parts: Vec<&str> = address.split(':').collect();
    let hex = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    (parts.len() == 3 && parts.iter().all(hex) && hex(&function)).then(|| address.to_owned())
}

/// `attention` of the hot-plug slot that the drive is in.
fn slot(sys: &Path, places: &[PathBuf]) -> Option<PathBuf> {
    let slots = sys.join("bus/pci/slots");
    let addresses: Vec<String> = places
        .iter()
        .filter_map(|place| pci_address(place))
        .collect();
    entries(&slots).into_iter().find_map(|name| {
        let slot = slots.join(name);
        let at = fs::read_to_string(slot.join("address")).ok()?;
        let file = slot.join("attention");
        (addresses.iter().any(|address| address == at.trim()) && file.exists()).then_some(file)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const DRIVE: &str = "devices/pci0000:00/0000:00:06.0/0000:01:00.0";

    /// A tree like the kernel's, with one NVMe drive (259:0) and a partition of it (259:1).
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Tree {
            let tree = Tree(tempfile::tempdir().expect("temporary folder"));
            let block = format!("{DRIVE}/nvme/nvme0/nvme0n1");
            tree.file(&format!("{block}/nvme0n1p1/partition"), "1");
            tree.link("dev/block/259:0", &block);
            tree.link("dev/block/259:1", &format!("{block}/nvme0n1p1"));
            tree
        }
        fn root(&self) -> PathBuf {
            fs::canonicalize(self.0.path()).expect("it is there")
        }
        fn file(&self, path: &str, text: &str) {
            let path = self.root().join(path);
            fs::create_dir_all(path.parent().expect("below the root")).expect("folder");
            fs::write(path, text).expect("file");
        }
        fn link(&self, from: &str, to: &str) {
            let from = self.root().join(from);
            fs::create_dir_all(from.parent().expect("below the root")).expect("folder");
            fs::create_dir_all(self.root().join(to)).expect("folder");
            symlink(self.root().join(to), from).expect("link");
        }
        fn found(&self, dev: &str) -> Result<String, String> {
            let root = self.root();
            let file = find(&root, dev)?;
            let below = file.strip_prefix(&root).expect("it is in the tree");
            Ok(below.display().to_string())
        }
    }

    #[test]
    fn without_a_light_it_is_told_what_was_looked_for() {
        let tree = Tree::new();
        tree.file("bus/pci/slots/7/address", "0000:02:00\n");
        tree.file("bus/pci/slots/7/attention", "0");
        let why = tree.found("259:0").expect_err("another drive's slot");
        assert!(
            why.contains("no enclosure") && why.contains("0000:01:00"),
            "{why}"
        );
        let why = tree.found("8:0").expect_err("no such device");
        assert!(why.contains("no PCI device"), "{why}");
    }

    #[test]
    fn a_hot_plug_slot_is_found_by_its_address_also_for_a_partition_and_behind_multipath() {
        let tree = Tree::new();
        tree.file("bus/pci/slots/3/address", "0000:01:00\n");
        tree.file("bus/pci/slots/3/attention", "0");
        let slot = Ok("bus/pci/slots/3/attention".to_owned());
        assert_eq!(tree.found("259:0"), slot);
        assert_eq!(tree.found("259:1"), slot);
        let subsystem = "devices/virtual/nvme-subsystem/nvme-subsys0";
        let head = format!("{subsystem}/nvme0n1");
        tree.link(
            &format!("{subsystem}/nvme0"),
            &format!("{DRIVE}/nvme/nvme0"),
        );
        tree.link("dev/block/259:2", &head);
        assert!(tree.found("259:2").is_err());
        tree.link(&format!("{head}/device"), subsystem);
        assert_eq!(tree.found("259:2"), slot);
    }

    #[test]
    fn an_indicator_of_the_port_comes_before_the_slot_and_an_enclosure_before_both() {
        let tree = Tree::new();
        tree.file("bus/pci/slots/3/address", "0000:01:00\n");
        tree.file("bus/pci/slots/3/attention", "0");
        let led = "devices/pci0000:00/0000:00:06.0/leds/0000:00:06.0:enclosure";
        tree.file(&format!("{led}:fail/brightness"), "0");
        tree.file(&format!("{led}:locate/brightness"), "0");
        assert_eq!(tree.found("259:0"), Ok(format!("{led}:locate/brightness")));
        let component = "devices/enclosure/0:0:0:0/slot 4";
        tree.file(&format!("{component}/locate"), "0");
        tree.link(&format!("{component}/device"), DRIVE);
        tree.file("devices/enclosure/0:0:0:0/slot 5/locate", "0");
        tree.link("class/enclosure/0:0:0:0", "devices/enclosure/0:0:0:0");
        let locate = "class/enclosure/0:0:0:0/slot 4/locate".to_owned();
        assert_eq!(tree.found("259:1"), Ok(locate));
    }
}

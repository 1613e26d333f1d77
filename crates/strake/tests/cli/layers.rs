//! Members on files of other layers: overlays, FUSE, loop devices over such. What a file system
//! shows once more is the same file, though the kernel has two numbers for it.
//!
//! Deliberately absent: device mapper (LUKS, LVM), which needs a virtual machine.

use std::os::unix::fs::MetadataExt;

use crate::devices::{Loop, Mount, run_ok};
use crate::rig::{self, Rig, Run, skipped};

const BYTES: u64 = 64 << 20;

/// A folder of files, and another that shows the same files.
struct Twice {
    /// Undone before the folder is removed that it lies in.
    _mount: Mount,
    rig: Rig,
    /// The folder's names.
    names: [&'static str; 2],
}

impl Twice {
    /// The file of this number, by the first name and by the second.
    fn file(&self, folder: usize, number: usize) -> String {
        self.rig.path(&format!("{}/d{number}", self.names[folder]))
    }
    fn files(&self, folder: usize, numbers: &[usize]) -> Vec<String> {
        numbers.iter().map(|&n| self.file(folder, n)).collect()
    }
}

fn folders(rig: &Rig, names: &[&str]) {
    for name in names {
        std::fs::create_dir_all(rig.path(name)).expect("made");
    }
}

/// An overlay whose files have been copied up, and its upper layer.
fn overlay(files: usize) -> Option<Twice> {
    let rig = Rig::new();
    if !rig::is_root() {
        skipped("an overlay needs root");
        return None;
    }
    folders(&rig, &["low", "up", "work", "over"]);
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        rig.path("low"),
        rig.path("up"),
        rig.path("work")
    );
    let over = rig.path("over");
    let mount = Mount::of(&["-t", "overlay", "-o", &options], "overlay", &over)?;
    for n in 0..files {
        rig.file(&format!("over/d{n}"), BYTES);
    }
    let numbers = |path: String| {
        let about = std::fs::metadata(path).expect("there");
        (about.dev(), about.ino())
    };
    assert_ne!(numbers(rig.path("over/d0")), numbers(rig.path("up/d0")));
    let names = ["over", "up"];
    Some(Twice {
        rig,
        names,
        _mount: mount,
    })
}

/// A folder that FUSE shows once more.
fn bind(files: usize) -> Option<Twice> {
    let rig = Rig::new();
    folders(&rig, &["low", "fuse"]);
    for n in 0..files {
        rig.file(&format!("low/d{n}"), BYTES);
    }
    let (low, fuse) = (rig.path("low"), rig.path("fuse"));
    let mount = Mount::by("bindfs", &[&low, &fuse], &fuse)?;
    let names = ["fuse", "low"];
    Some(Twice {
        rig,
        names,
        _mount: mount,
    })
}

/// It names both, and says that nothing was made.
fn refused_as_one(run: Run, devices: [&String; 2]) {
    for device in devices {
        assert!(run.err.contains(device.as_str()), "{run:?}");
    }
    run.refused(2, "device-given-twice");
}

/// `create` made an array of one file under two names, and said that it was optimal.
fn one_file_is_one_device(twice: &Twice) {
    let rig = &twice.rig;
    let devices = [twice.file(0, 0), twice.file(0, 1), twice.file(1, 0)];
    let before: Vec<Vec<u8>> = devices.iter().map(|path| rig::bytes(path)).collect();
    let pair = [&devices[0], &devices[2]];
    for options in [&["--export", "none"][..], &["--force"]] {
        refused_as_one(rig.create("a", "5", options, &devices), pair);
    }
    let mut args = vec!["pool", "create", "shelf"];
    args.extend(devices.iter().map(String::as_str));
    refused_as_one(rig.run(&args), pair);
    let after: Vec<Vec<u8>> = devices.iter().map(|path| rig::bytes(path)).collect();
    assert!(before == after, "something was written");
    for device in &devices {
        rig.run(&["examine", device]).refused(3, "not-a-member");
    }
}

#[test]
fn a_file_of_an_overlay_and_of_its_upper_layer_are_one_device() {
    let Some(mut twice) = overlay(2) else {
        return;
    };
    one_file_is_one_device(&twice);
    twice.rig.start_daemon();
    one_file_is_one_device(&twice);
}

#[test]
fn a_file_and_the_same_through_fuse_are_one_device_also_under_loop_devices() {
    let Some(mut twice) = bind(2) else {
        return;
    };
    twice.rig.start_daemon();
    one_file_is_one_device(&twice);
    let over = |folder| Loop::over(&twice.file(folder, 0), &[]);
    let (Some(fuse), Some(low)) = (over(0), over(1)) else {
        return;
    };
    let devices = [fuse.device.clone(), low.device.clone()];
    let run = twice.rig.create("a", "1", &["--export", "none"], &devices);
    refused_as_one(run, [&devices[0], &devices[1]]);
}

/// With `--force` a member in service became a member of another array, and a spare of a pool; its
/// own array grew onto itself, and said that it was optimal.
fn another_name_of_a_member_is_refused(twice: &mut Twice) {
    twice.rig.start_daemon();
    let members = twice.files(0, &[0, 1, 2]);
    let rig = &twice.rig;
    rig.create("data", "5", &["--export", "nbd"], &members).ok();
    rig.qemu_io("data", &["write -P 3 0 8M", "flush"]);
    let free = rig.file("free", BYTES);
    let other = twice.file(1, 1);
    let commands: [&[&str]; 9] = [
        &[
            "create", "x", "--level", "1", "--export", "none", &other, &free,
        ],
        &[
            "create", "x", "--level", "1", "--export", "none", "--force", &other, &free,
        ],
        &["add", "data", &other],
        &["add", "data", &other, "--force"],
        &["replace", "data", "0", &other, "--force"],
        &["restripe", "data", "--add", &other, "--force"],
        &["pool", "create", "shelf", "--force", &other],
        &["drive", "clean", &other],
        &[
            "create",
            "x",
            "--level",
            "1",
            "--dry-run",
            "--force",
            &other,
            &free,
        ],
    ];
    for args in commands {
        let refused = rig.run(args);
        for path in [&other, &members[1]] {
            assert!(refused.err.contains(path.as_str()), "{args:?}: {refused:?}");
        }
        let json = refused.refused(4, "member-found-twice").json_error();
        assert!(
            json["cure"].to_string().contains("strake stop data"),
            "{json}"
        );
    }
    assert_eq!(rig.show("data")["state"], "optimal");
    rig.qemu_io("data", &["read -P 3 0 8M"]);
    rig.run(&["stop", "data"]).ok();
}

#[test]
fn another_name_of_a_member_on_an_overlay_is_refused_whatever_is_forced() {
    if let Some(mut twice) = overlay(3) {
        another_name_of_a_member_is_refused(&mut twice);
    }
}

#[test]
fn another_name_of_a_member_on_fuse_is_refused_whatever_is_forced() {
    if let Some(mut twice) = bind(3) {
        another_name_of_a_member_is_refused(&mut twice);
    }
}

/// Written, killed, started anew, read.
fn lives_and_comes_back(rig: &mut Rig, devices: &[String], scan: &str) {
    let scanned: Vec<&str> = devices
        .iter()
        .filter(|device| device.starts_with("/dev/"))
        .flat_map(|device| ["--scan", device.as_str()])
        .chain(["--scan", scan])
        .collect();
    rig.start_daemon_with(&scanned);
    rig.create("layers", "5", &["--export", "nbd"], devices)
        .ok();
    rig.qemu_io("layers", &["write -P 3 0 8M", "write -P 4 9M 4k", "flush"]);
    rig.kill_daemon();
    rig.start_daemon_with(&scanned);
    rig.until_state("layers", "optimal");
    rig.qemu_io("layers", &["read -P 3 0 8M", "read -P 4 9M 4k"]);
    rig.run(&["scrub", "layers", "start", "--wait"]).ok();
    rig.stop_daemon();
    rig.start_daemon_with(&scanned);
    rig.until_state("layers", "optimal");
    rig.qemu_io("layers", &["read -P 3 0 8M"]);
    rig.run(&["stop", "layers"]).ok();
    rig.run(&["destroy", "layers", "--yes"]).ok();
}

#[test]
fn an_array_on_files_of_an_overlay_lives_and_comes_back() {
    let Some(mut twice) = overlay(3) else {
        return;
    };
    let (devices, scan) = (twice.files(0, &[0, 1, 2]), twice.rig.path("over"));
    lives_and_comes_back(&mut twice.rig, &devices, &scan);
}

/// One of its members is a loop device over a file there, which has a cache of its own.
#[test]
fn an_array_on_files_of_fuse_lives_and_comes_back() {
    let mut rig = Rig::new();
    let (image, point) = (rig.file("image", 400 << 20), rig.path("fuse"));
    if !run_ok("mkfs.ext4", &["-q", &image]) {
        return;
    }
    let args = [image.as_str(), &point, "-o", "fakeroot"];
    let Some(_mount) = Mount::by("fuse2fs", &args, &point) else {
        return;
    };
    let mut devices: Vec<String> = (0..4)
        .map(|n| rig.file(&format!("fuse/d{n}"), BYTES))
        .collect();
    let file = devices.pop().expect("four");
    let Some(over) = Loop::over(&file, &[]) else {
        return;
    };
    devices.push(over.device.clone());
    lives_and_comes_back(&mut rig, &devices, &point);
}

//! Block devices in use by others, and file systems that run full: loop devices and small mounts,
//! as root.
//!
//! Invariant: an array on loop devices has a name that no other test uses. A command without a
//! daemon looks at all block devices of the machine, and refuses a name that an array on them has.

use std::path::Path;
use std::process::Command;

use crate::rig::{self, Rig, skipped};

/// A loop device over a file, detached at the end.
pub(crate) struct Loop {
    pub(crate) device: String,
}

impl Loop {
    /// A device of this number, which no request for any device takes meanwhile.
    fn numbered(number: usize, file: &str) -> Option<Loop> {
        let device = format!("/dev/loop{number}");
        let made = rig::is_root() && run_ok("losetup", &[&device, file]);
        made.then_some(Loop { device })
    }

    pub(crate) fn over(file: &str, options: &[&str]) -> Option<Loop> {
        if !rig::is_root() {
            skipped("loop devices need root");
            return None;
        }
        let output = Command::new("losetup")
            .args(["--find", "--show"])
            .args(options)
            .arg(file)
            .output();
        match output {
            Ok(output) if output.status.success() => {
                let device = String::from_utf8_lossy(&output.stdout).trim().to_owned();
                Some(Loop { device })
            }
            _ => {
                skipped("no loop device can be had here");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}

/// A mount, undone at the end.
pub(crate) struct Mount {
    pub(crate) point: String,
}

impl Mount {
    pub(crate) fn of(options: &[&str], source: &str, point: &str) -> Option<Mount> {
        let args: Vec<&str> = options.iter().copied().chain([source, point]).collect();
        Mount::by("mount", &args, point)
    }

    /// A program that mounts something there, and ends or goes on in the background.
    pub(crate) fn by(program: &str, args: &[&str], point: &str) -> Option<Mount> {
        std::fs::create_dir_all(point).expect("a mount point");
        let mounted = Command::new(program).args(args).status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Mount {
                point: point.to_owned(),
            });
        }
        skipped(&format!(
            "{program} is not there, or can mount nothing here"
        ));
        None
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmount = |options: &[&str]| {
            let done = Command::new("umount")
                .args(options)
                .arg(&self.point)
                .status();
            done.is_ok_and(|status| status.success())
        };
        // What a failed test has left open is not to keep its folder.
        let _ = unmount(&[]) || unmount(&["--lazy"]);
    }
}

pub(crate) fn run_ok(program: &str, args: &[&str]) -> bool {
    let done = Command::new(program).args(args).output();
    let good = done.is_ok_and(|output| output.status.success());
    if !good {
        skipped(&format!("{program} is not there, or cannot do this here"));
    }
    good
}

#[test]
fn an_array_on_loop_devices_lives_and_comes_back() {
    let mut rig = Rig::new();
    let files = rig.files(3);
    let loops: Vec<Loop> = files.iter().filter_map(|f| Loop::over(f, &[])).collect();
    if loops.len() < 3 {
        return;
    }
    let devices: Vec<String> = loops.iter().map(|l| l.device.clone()).collect();
    rig.start_daemon();
    rig.create("looped", "5", &["--export", "nbd"], &devices)
        .ok();
    rig.qemu_io("looped", &["write -P 3 0 4M", "read -P 3 0 4M"]);
    rig.kill_daemon();
    rig.start_daemon();
    rig.until_state("looped", "optimal");
    rig.qemu_io("looped", &["read -P 3 0 4M"]);
    // A file under a loop device is not to be had behind its back.
    let more = [files[0].clone(), rig.file("x", 64 << 20)];
    rig.create("b", "1", &["--force"], &more)
        .refused(4, "device-busy");
    rig.run(&["stop", "looped"]).ok();
}

#[test]
fn two_loop_devices_over_one_file_are_one_device() {
    let mut rig = Rig::new();
    let files = rig.files(3);
    let twice: Vec<Loop> = (0..2).filter_map(|_| Loop::over(&files[0], &[])).collect();
    if twice.len() < 2 {
        return;
    }
    let devices = [&twice[0].device, &twice[1].device, &files[1]].map(String::clone);
    let before = rig::bytes(&files[0]);
    for options in [&["--dry-run"][..], &[], &["--force"]] {
        let refused = rig.create("a", "5", options, &devices);
        for device in &devices[..2] {
            assert!(refused.err.contains(device), "{refused:?}");
        }
        refused.refused(2, "device-given-twice");
    }
    assert!(rig::bytes(&files[0]) == before, "something was written");
    // One of them in service keeps the other from every array, whatever is forced.
    rig.start_daemon();
    let mirror = [devices[0].clone(), files[1].clone()];
    rig.create("twice", "1", &["--export", "none"], &mirror)
        .ok();
    let other = [devices[1].clone(), files[2].clone()];
    let refused = rig.create("b", "1", &["--force"], &other);
    assert!(refused.err.contains(&devices[0]), "{refused:?}");
    refused.refused(4, "device-busy");
    rig.run(&["add", "twice", &devices[1], "--force"])
        .refused(4, "device-busy");
    assert_eq!(rig.show("twice")["state"], "optimal");
}

#[test]
fn an_array_on_loop_devices_over_drives_comes_back_by_the_uppermost_and_can_be_destroyed() {
    let mut rig = Rig::new();
    let files = rig.files(3);
    let drives: Vec<Loop> = files.iter().filter_map(|f| Loop::over(f, &[])).collect();
    let upper: Vec<Loop> = drives
        .iter()
        .filter_map(|drive| Loop::over(&drive.device, &[]))
        .collect();
    if upper.len() < 3 {
        return;
    }
    let devices: Vec<String> = upper.iter().map(|l| l.device.clone()).collect();
    // All of them are looked at, as a daemon does that looks at all block devices; and the files
    // under them.
    let all: Vec<&String> = drives
        .iter()
        .chain(&upper)
        .map(|l| &l.device)
        .chain(&files)
        .collect();
    let scanned: Vec<&str> = all
        .iter()
        .flat_map(|path| ["--scan", path.as_str()])
        .collect();
    rig.start_daemon_with(&scanned);
    rig.create("over-drives", "5", &["--export", "nbd"], &devices)
        .ok();
    rig.qemu_io("over-drives", &["write -P 3 0 4M"]);
    rig.stop_daemon();
    rig.start_daemon_with(&scanned);
    rig.until_state("over-drives", "optimal");
    rig.qemu_io("over-drives", &["read -P 3 0 4M"]);
    assert_eq!(
        rig.show("over-drives")["members"][0]["device"],
        devices[0].as_str()
    );
    rig.run(&["stop", "over-drives"]).ok();
    let scan = rig.run(&["scan"]).ok().json();
    assert_eq!(scan[0]["state"], "complete", "{scan}");
    let also = scan[0]["devices"][0]["also"].as_array().map(Vec::len);
    assert_eq!(also, Some(2), "{scan}");
    rig.run(&["destroy", "over-drives", "--yes"]).ok();
    assert_eq!(rig.run(&["scan"]).ok().json(), serde_json::json!([]));
}

/// Where nothing but block devices is looked for the daemon looks by itself every 30 s.
#[test]
fn a_drive_that_appears_starts_its_array_when_the_kernel_tells_of_it() {
    let mut rig = Rig::new();
    let files = rig.files(3);
    let first = 200 + std::process::id() as usize % 500;
    let attach = || -> Vec<Loop> {
        let files = files.iter().zip(first..);
        files
            .filter_map(|(file, n)| Loop::numbered(n, file))
            .collect()
    };
    let loops = attach();
    if loops.len() < 3 {
        return;
    }
    let devices: Vec<String> = loops.iter().map(|l| l.device.clone()).collect();
    rig.start_daemon();
    rig.create("plugged", "5", &["--export", "nbd"], &devices)
        .ok();
    rig.stop_daemon();
    drop(loops);
    rig.start_daemon();
    // The first look is over, and found nothing that it would wait for.
    std::thread::sleep(std::time::Duration::from_secs(1));
    let since = std::time::Instant::now();
    let mut loops = attach();
    // A number is free again when the last one that looks at the device has closed it.
    while loops.len() < 3 && since.elapsed().as_secs() < 10 {
        drop(std::mem::take(&mut loops));
        std::thread::sleep(std::time::Duration::from_millis(200));
        loops = attach();
    }
    if loops.len() < 3 {
        return;
    }
    rig.until_state("plugged", "optimal");
    let took = since.elapsed();
    assert!(took.as_secs() < 27, "{took:?}: it was looked for");
    rig.stop_daemon();
}

#[test]
fn a_mounted_device_is_refused_even_with_force() {
    let rig = Rig::new();
    let files = rig.files(2);
    let Some(device) = Loop::over(&files[0], &[]) else {
        return;
    };
    if !run_ok("mkfs.ext4", &["-q", &device.device]) {
        return;
    }
    let Some(_mount) = Mount::of(&[], &device.device, &rig.path("mnt")) else {
        return;
    };
    let devices = [device.device.clone(), files[1].clone()];
    let run = rig
        .create("a", "1", &["--force"], &devices)
        .refused(4, "device-mounted");
    assert!(run.err.contains("mnt"), "{run:?}");
}

/// It was "in use by another program", and a user had to find out by which.
#[test]
fn a_device_that_somebody_holds_exclusively_is_refused_and_the_process_named() {
    let rig = Rig::new();
    let files = rig.files(2);
    let Some(device) = Loop::over(&files[0], &[]) else {
        return;
    };
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::EXCL;
    let held = rustix::fs::open(Path::new(&device.device), flags, rustix::fs::Mode::empty());
    let _held = held.expect("opened");
    let devices = [device.device.clone(), files[1].clone()];
    let refused = rig.create("a", "1", &["--force"], &devices);
    let holder = format!("({})", std::process::id());
    assert!(refused.err.contains("open in"), "{refused:?}");
    assert!(refused.err.contains(&holder), "{refused:?}");
    refused.refused(4, "device-busy");
}

#[test]
fn a_device_that_is_mounted_where_nobody_else_sees_it_is_refused_and_the_mount_named() {
    let rig = Rig::new();
    let files = rig.files(2);
    let Some(device) = Loop::over(&files[0], &[]) else {
        return;
    };
    if !run_ok("mkfs.ext4", &["-q", &device.device]) {
        return;
    }
    let (point, there) = (rig.path("mnt"), rig.path("mounted"));
    std::fs::create_dir(&point).expect("made");
    let script = format!(
        "mount {} {point} && touch {there} && exec sleep 600",
        device.device
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    let mut child = command.spawn().expect("unshare runs");
    let since = std::time::Instant::now();
    while !Path::new(&there).exists() && child.try_wait().expect("asked").is_none() {
        assert!(since.elapsed().as_secs() < 60, "it does not mount");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let devices = [device.device.clone(), files[1].clone()];
    let refused = Path::new(&there)
        .exists()
        .then(|| rig.create("a", "1", &["--force"], &devices));
    child.kill().expect("killed");
    child.wait().expect("gone");
    let Some(refused) = refused else {
        return skipped("no mounts of its own can be had here");
    };
    let names = format!("mounted on {point}, as the process sleep ({})", child.id());
    assert!(refused.err.contains(&names), "{refused:?}");
    refused.refused(4, "device-busy");
}

#[test]
fn a_partitioned_device_is_refused() {
    let rig = Rig::new();
    let files = rig.files(2);
    let script = rig.path("script");
    std::fs::write(&script, "label: gpt\n,16M\n").expect("written");
    let shell = format!("sfdisk -q {} < {script}", files[0]);
    if !run_ok("sh", &["-c", &shell]) {
        return;
    }
    // As a file: only the table is seen.
    let run = rig
        .create("a", "1", &[], &files)
        .refused(4, "device-partitioned");
    assert!(run.err.contains("--force"), "{run:?}");
    let Some(device) = Loop::over(&files[0], &["--partscan"]) else {
        return;
    };
    let devices = [device.device.clone(), files[1].clone()];
    rig.create("a", "1", &[], &devices)
        .refused(4, "device-partitioned");
}

#[test]
fn members_of_different_sector_size_are_refused() {
    let mut rig = Rig::new();
    let files = rig.files(2);
    let Some(small) = Loop::over(&files[0], &["--sector-size", "512"]) else {
        return;
    };
    let Some(large) = Loop::over(&files[1], &["--sector-size", "4096"]) else {
        return;
    };
    let devices = [small.device.clone(), large.device.clone()];
    let refused = rig.create("mixed", "1", &["--export", "nbd"], &devices);
    let refused = refused.refused(2, "mixed-sector-sizes").json_error();
    // What it advises was refused by the same words.
    let advised = "--block-size 4096";
    assert!(refused["cure"].to_string().contains(advised), "{refused}");
    let options = ["--export", "nbd", "--block-size", "4096"];
    rig.create("mixed", "1", &options, &devices).ok();
    rig.start_daemon_with(&["--scan", &small.device, "--scan", &large.device]);
    rig.until_state("mixed", "optimal");
    if rig
        .qemu_io("mixed", &["write -P 5 0 8M", "flush"])
        .is_some()
    {
        rig.run(&["fail", "mixed", "0"]).ok();
        rig.qemu_io("mixed", &["read -P 5 0 8M"]);
    }
}

/// `add` said that a read-only device was added; it was none a moment later, and the array had no
/// spare.
#[test]
fn a_device_that_cannot_be_written_is_refused_by_name_wherever_it_is_offered() {
    let mut rig = Rig::new();
    let files = rig.files(4);
    let Some(read_only) = Loop::over(&files[3], &["--read-only"]) else {
        return;
    };
    let device = read_only.device.as_str();
    rig.start_daemon();
    let with = [files[0].clone(), files[1].clone(), device.to_owned()];
    rig.create("read-only", "5", &["--export", "none"], &with)
        .refused(4, "device-read-only");
    rig.create("read-only", "5", &["--export", "none"], &files[..3])
        .ok();
    let offered: [&[&str]; 5] = [
        &["add", "read-only", device],
        &["add", "read-only", device, "--dry-run"],
        &["replace", "read-only", "0", device],
        &["restripe", "read-only", "--add", device],
        &["pool", "create", "p", device],
    ];
    for args in offered {
        rig.run(args).refused(4, "device-read-only");
    }
    rig.run(&["stop", "read-only"]).ok();
    drop(read_only);
    // A member that became read-only is set aside, and named; a scan says so before.
    let Some(read_only) = Loop::over(&files[2], &["--read-only"]) else {
        return;
    };
    let scan = |last: &str| {
        let found = rig.run(&["scan", &files[0], &files[1], last]).ok().json()[0].clone();
        let mut devices = found["devices"].as_array().expect("a list").iter();
        let device = devices.find(|device| device["device"] == last).cloned();
        (found, device.expect("it is found"))
    };
    let (found, device) = scan(&read_only.device);
    assert_eq!(device["state"], "set_aside", "{found}");
    let problem = device["problem"].to_string();
    assert!(problem.contains("is read-only"), "{found}");
    assert_eq!(found["state"], "degraded", "{found}");
    // So is a file under a loop device, which a start finds busy.
    let (found, device) = scan(&files[2]);
    let held = device["held"].to_string();
    let under = format!("is the backing file of {}", read_only.device);
    assert!(held.contains(&under), "{found}");
    if let Some(another) = Loop::over(&files[1], &["--read-only"]) {
        let both = [&files[0], &another.device, &read_only.device];
        let refused = rig.run(&[&["start", "read-only"], &both.map(String::as_str)[..]].concat());
        let cure = refused.json_error()["cure"].to_string();
        assert!(cure.contains("blockdev --setrw"), "{refused:?}");
        assert!(cure.contains(&read_only.device), "{refused:?}");
        refused.refused(4, "members-missing");
    }
    let args = [
        "start",
        "read-only",
        &files[0],
        &files[1],
        &read_only.device,
    ];
    assert_eq!(rig.run(&args).code, 5);
    let shown = rig.show("read-only");
    let aside = &shown["set_aside"][0];
    assert_eq!(aside["code"], "device-read-only", "{shown}");
    assert_eq!(aside["device"], read_only.device.as_str(), "{shown}");
}

#[test]
fn a_full_disk_under_the_members_leaves_nothing_half_made() {
    if !rig::is_root() {
        return skipped("a small file system needs root");
    }
    let rig = Rig::new();
    let options = ["-t", "tmpfs", "-o", "size=2M"];
    let Some(mount) = Mount::of(&options, "tmpfs", &rig.path("small")) else {
        return;
    };
    // Something else has filled it but for a few pages.
    std::fs::write(
        format!("{}/ballast", mount.point),
        vec![1; (2 << 20) - 16384],
    )
    .expect("fits");
    let devices: Vec<String> = (0..3)
        .map(|i| rig.file(&format!("small/d{i}"), 64 << 20))
        .collect();
    rig.create("a", "5", &[], &devices).refused(1, "no-space");
    std::fs::remove_file(format!("{}/ballast", mount.point)).expect("removed");
    for device in &devices {
        rig.run(&["examine", device]).refused(3, "not-a-member");
    }
}

#[test]
fn without_root_other_peoples_devices_are_refused_and_own_files_work() {
    if !rig::is_root() {
        return skipped("already without root: every other test shows it");
    }
    if !rig::has("setpriv") {
        return skipped("setpriv is not installed");
    }
    let rig = Rig::new();
    let files = rig.files(2);
    let as_nobody = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(rig::STRAKE);
        command
            .env("STRAKE_DIR", rig.path("nobody"))
            .arg("--json")
            .args(args);
        rig.run_command(&mut command)
    };
    let open = |path: &Path, mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
    };
    open(rig.folder.path(), 0o777);
    let probe = as_nobody(&["show"]);
    if probe.code != 0 {
        return skipped("the binary cannot be run by another user from where it lies");
    }
    for file in &files {
        open(Path::new(file), 0o600);
    }
    as_nobody(&["create", "a", "--level", "1", &files[0], &files[1]])
        .refused(1, "permission-denied");
    for file in &files {
        open(Path::new(file), 0o666);
    }
    let made = as_nobody(&["create", "a", "--level", "1", &files[0], &files[1]]);
    assert_eq!(made.code, 0, "{made:?}");
}

/// What has no serial number was the same as anything else that has none.
#[test]
fn another_drive_that_has_the_name_of_one_that_failed_is_not_located_for_it() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(4);
    let Some(first) = Loop::over(&files[2], &[]) else {
        return;
    };
    let number = first.device.trim_start_matches("/dev/loop").to_owned();
    let devices = [files[0].clone(), files[1].clone(), first.device.clone()];
    rig.create("reused", "5", &["--export", "none"], &devices)
        .ok();
    rig.run(&["fail", "reused", "2"]).ok();
    let locate = |member: &str| {
        let run = rig.run(&["locate", "reused", member, "on", "--dry-run"]);
        let run = run.refused(1, "no-locate-light");
        run.json_error()["found"].to_string()
    };
    let unknown = "nothing proves that";
    // It is still there, as its superblock says.
    for member in ["2", &devices[2]] {
        let found = locate(member);
        assert!(!found.contains(unknown), "{found}");
    }
    drop(first);
    let number = number.parse().expect("a number");
    let Some(_other) = Loop::numbered(number, &files[3]) else {
        return skipped("the loop device was taken meanwhile");
    };
    for member in ["2", &devices[2]] {
        let found = locate(member);
        assert!(
            found.contains(unknown) && found.contains("slot 2"),
            "{found}"
        );
    }
}

/// Partitions of a loop device are told apart by the kernel, and lie on one drive.
#[test]
fn two_members_on_partitions_of_one_drive_are_noted() {
    let rig = Rig::new();
    let file = rig.file("drive", 192 << 20);
    let Some(drive) = Loop::over(&file, &[]) else {
        return;
    };
    let name = drive.device.trim_start_matches("/dev/");
    let mut parts = Vec::new();
    for (number, start) in [("1", "2048"), ("2", "184320")] {
        let part = rig.path(&format!("part{number}"));
        let numbers = std::fs::read_to_string(format!("/sys/block/{name}/{name}p{number}/dev"));
        let numbers = numbers.or_else(|_| {
            run_ok("addpart", &[&drive.device, number, start, "163840"]);
            std::fs::read_to_string(format!("/sys/block/{name}/{name}p{number}/dev"))
        });
        let Ok(numbers) = numbers else {
            return skipped("this kernel gives loop devices no partitions");
        };
        let (major, minor) = numbers.trim().split_once(':').expect("a device number");
        assert!(run_ok("mknod", &[&part, "b", major, minor]));
        parts.push(part);
    }
    let create = [
        "create",
        "parts",
        "--level",
        "1",
        "--dry-run",
        &parts[0],
        &parts[1],
    ];
    let made = rig.run(&create).ok().json();
    let note = format!("{} and {} lie on one drive", parts[0], parts[1]);
    assert!(made["notes"].to_string().contains(&note), "{made}");
    run_ok("delpart", &[&drive.device, "1"]);
    run_ok("delpart", &[&drive.device, "2"]);
}

//! What a study needs of this machine where Linux md serves its array: `mdadm` changes it, the
//! kernel's files (`/sys/block/md*/md`) say how it is.
//!
//! Invariants: an array is known by its name, whatever number the kernel gave it; a program that
//! does not end is given up after [`PATIENCE`]. Deliberately absent: levels that md does not have,
//! and protection against the write hole where md has none: a note says what takes its place.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use strake_format::{Level, WriteHole};
use strake_study::definition::Shape;
use strake_study::real::{ArraySeen, Host, JobSeen, Kind, Way, program};
use strake_study::rig::Wear;

use crate::commands::study::host;
use crate::common::process;

/// How long `mdadm` may take, and how long an array may be in use after a load has ended.
const PATIENCE: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_millis(100);
/// Bytes of the sectors that the kernel counts in.
const SECTOR: u64 = 512;
/// Rows of the stripe cache: 32 MiB for each member. The kernel's own 256 are too few for NVMe.
const STRIPE_CACHE: u32 = 8192;
/// Threads for each NUMA node that work beside the array's own, at most.
const THREADS: usize = 8;
/// KiB a second: none of today's drives gets there.
const NO_LIMIT: u32 = 10_000_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Md {
    mdadm: PathBuf,
}

/// Where the kernel shows an array.
struct Found {
    /// As `md127`.
    device: String,
    /// `/sys/block/md127/md`.
    folder: PathBuf,
}

impl Found {
    fn new(device: String) -> Option<Found> {
        let folder = Path::new("/sys/block").join(&device).join("md");
        folder.is_dir().then_some(Found { device, folder })
    }
    fn path(&self) -> String {
        format!("/dev/{}", self.device)
    }
    fn read(&self, file: &str) -> String {
        let text = fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        text.trim().to_owned()
    }
    fn write(&self, file: &str, value: &str) -> Result<(), String> {
        let path = self.folder.join(file);
        fs::write(&path, value).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The devices that it has, with slot and state.
    fn devices(&self) -> Vec<(Option<usize>, String, PathBuf)> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let of = |entry: fs::DirEntry| {
            entry.file_name().to_str()?.strip_prefix("dev-")?;
            let folder = entry.path();
            let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default();
            let block = fs::canonicalize(folder.join("block")).ok()?;
            let path = Path::new("/dev").join(block.file_name()?);
            Some((read("slot").trim().parse().ok(), read("state"), path))
        };
        entries.filter_map(of).collect()
    }

    fn seen(&self) -> ArraySeen {
        let slots = self.read("raid_disks");
        let slots = slots.split(' ').next().and_then(|n| n.parse().ok());
        let slots = slots.unwrap_or_default();
        let members = members(self.devices(), slots);
        let sectors = fs::read_to_string(format!("/sys/block/{}/size", self.device));
        let sectors = sectors
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok());
        let job = job(&self.read("sync_action"), &self.read("sync_completed"));
        ArraySeen {
            device: Some(self.path()),
            bytes: sectors.unwrap_or_default() * SECTOR,
            members,
            jobs: job.into_iter().collect(),
        }
    }
}

/// By slot. A device that failed has lost its slot and is held still: it gets one that is empty.
fn members(
    devices: Vec<(Option<usize>, String, PathBuf)>,
    slots: usize,
) -> Vec<(Option<PathBuf>, String)> {
    let mut members = vec![(None, "missing".to_owned()); slots];
    let (seated, others): (Vec<_>, Vec<_>) = devices.into_iter().partition(|(s, ..)| s.is_some());
    for (slot, state, path) in seated {
        if let Some(member) = slot.and_then(|slot| members.get_mut(slot)) {
            *member = (Some(path), member_state(&state).to_owned());
        }
    }
    for (_, state, path) in others {
        if let Some(member) = members.iter_mut().find(|(device, _)| device.is_none()) {
            *member = (Some(path), member_state(&state).to_owned());
        }
    }
    members
}

/// In the words of a study, which are Strake's.
fn member_state(state: &str) -> &'static str {
    let has = |word: &str| state.trim().split(',').any(|one| one == word);
    match () {
        () if has("faulty") => "failed",
        () if has("in_sync") => "in_sync",
        () => "rebuilding",
    }
}

/// The job that goes on, from `sync_action` and `sync_completed`.
fn job(action: &str, completed: &str) -> Option<JobSeen> {
    let kind = match action {
        "resync" => "init",
        "recover" => "rebuild",
        "check" | "repair" => "scrub",
        _ => return None,
    };
    let mut sectors = completed.split(" / ").map(|text| text.parse::<u64>().ok());
    let mut next = || sectors.next().flatten().unwrap_or_default() * SECTOR;
    Some(JobSeen {
        kind: kind.to_owned(),
        done_bytes: next(),
        total_bytes: next(),
        paused_by: None,
    })
}

/// How md keeps parity true over a crash, and what a reader should know of it.
fn consistency(shape: &Shape) -> (&'static str, Option<String>) {
    match (shape.level, shape.write_hole) {
        (Level::Raid0, _) => ("", None),
        (Level::Raid5, WriteHole::Closed | WriteHole::Degraded) => {
            ("--consistency-policy=ppl", None)
        }
        (Level::Raid6, WriteHole::Closed | WriteHole::Degraded) => (
            "--bitmap=internal",
            Some(
                "md closes the write hole of RAID 6 only with a journal device; a bitmap takes \
                  its place, so it stays open"
                    .to_owned(),
            ),
        ),
        _ => ("--bitmap=internal", None),
    }
}

/// What `mdadm --create` is given beside the name and the devices.
pub(super) fn arguments(shape: &Shape) -> Result<Vec<String>, String> {
    let level = match shape.level {
        Level::Raid0 | Level::Raid1 | Level::Raid5 | Level::Raid6 => shape.level.to_string(),
        Level::Raid10 if shape.group_size.is_none_or(|copies| copies == 2) => "10".to_owned(),
        Level::Raid10 => {
            let copies = shape.group_size.unwrap_or_default();
            return Err(format!(
                "a study of md has two copies in level 10, and the case wants {copies}: give its \
                 array group_size = 2"
            ));
        }
        other => {
            return Err(format!(
                "md has no level {other}: give the case level 0, 1, 5, 6 or 10"
            ));
        }
    };
    let mut all = vec![
        "--run".to_owned(),
        "--metadata=1.2".to_owned(),
        format!("--level={level}"),
        format!("--raid-devices={}", shape.drives),
    ];
    if shape.level != Level::Raid1
        && let Some(strip) = shape.strip
    {
        all.push(format!("--chunk={}K", strip / 1024));
    }
    let (consistency, _) = consistency(shape);
    if !consistency.is_empty() {
        all.push(consistency.to_owned());
    }
    if shape.level != Level::Raid0 {
        // Forced: all of them members from the first moment on, none a spare that is rebuilt.
        let init = if shape.zeroed {
            "--force"
        } else {
            "--assume-clean"
        };
        all.push(init.to_owned());
    }
    Ok(all)
}

impl Md {
    pub(super) fn new() -> Result<Md, String> {
        program::find("mdadm", "mdadm").map(|mdadm| Md { mdadm })
    }

    /// What `mdadm` prints.
    fn mdadm(&self, args: &[&str]) -> Result<String, String> {
        let runtime = process::runtime().map_err(|failure| failure.found)?;
        let shown = format!("mdadm {}", args.join(" "));
        let output = runtime.block_on(async {
            let mut command = tokio::process::Command::new(&self.mdadm);
            command.args(args).kill_on_drop(true);
            command.stdin(std::process::Stdio::null());
            tokio::time::timeout(PATIENCE, command.output()).await
        });
        let output = output
            .map_err(|_| format!("{shown} does not end within {} s", PATIENCE.as_secs()))?
            .map_err(|error| format!("{shown}: {error}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.trim().lines().last().unwrap_or_default().to_owned();
            return Err(format!("{shown}: {said} ({})", output.status));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The same, again while something holds the array for a moment.
    fn patiently(&self, args: &[&str]) -> Result<(), String> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            match self.mdadm(args) {
                Ok(_) => return Ok(()),
                Err(why) if Instant::now() > give_up => return Err(why),
                Err(_) => std::thread::sleep(AGAIN),
            }
        }
    }

    fn find(&self, name: &str) -> Option<Found> {
        if let Ok(device) = fs::canonicalize(format!("/dev/md/{name}"))
            && let Some(found) = device.file_name().and_then(|name| name.to_str())
            && let Some(found) = Found::new(found.to_owned())
        {
            return Some(found);
        }
        let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        let mut devices = devices.filter_map(|entry| entry.file_name().into_string().ok());
        devices.find_map(|device| {
            let found = Found::new(device)?;
            let about = self.mdadm(&["--detail", "--export", &found.path()]).ok()?;
            let is_it = |line: &str| {
                let known = line.strip_prefix("MD_NAME=").unwrap_or_default();
                // With the name of the machine before it, where both are short.
                known.rsplit(':').next() == Some(name)
            };
            about.lines().any(is_it).then_some(found)
        })
    }

    fn need(&self, name: &str) -> Result<Found, String> {
        self.find(name)
            .ok_or_else(|| format!("md serves no array {name}: cat /proc/mdstat shows which"))
    }

    fn member(&self, found: &Found, slot: usize) -> Option<PathBuf> {
        let mut devices = found.devices().into_iter();
        devices.find_map(|(has, _, path)| (has == Some(slot)).then_some(path))
    }
}

impl Host for Md {
    fn way(&self, way: Way, name: &str) -> String {
        match way {
            Way::Find => "mdadm --examine --scan".to_owned(),
            Way::Show => format!("mdadm --detail /dev/md/{name}"),
            Way::Start => "mdadm --assemble --scan".to_owned(),
            Way::Destroy => format!("mdadm --stop /dev/md/{name}"),
        }
    }

    fn free(&self, devices: &[PathBuf]) -> Result<(), String> {
        host::free(devices)
    }

    fn kind(&self, device: &Path) -> Result<Kind, String> {
        host::kind(device)
    }

    fn create(
        &self,
        name: &str,
        shape: &Shape,
        devices: &[PathBuf],
    ) -> Result<Vec<String>, String> {
        let named = format!("--name={name}");
        let device = format!("/dev/md/{name}");
        let given = arguments(shape)?;
        let mut args = vec!["--create", &device, &named];
        args.extend(given.iter().map(String::as_str));
        let paths: Vec<String> = devices.iter().map(|d| d.display().to_string()).collect();
        args.extend(paths.iter().map(String::as_str));
        self.mdadm(&args)?;
        let found = self.need(name)?;
        let mut notes: Vec<String> = consistency(shape).1.into_iter().collect();
        if matches!(shape.level, Level::Raid5 | Level::Raid6) {
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            let threads = threads.min(THREADS);
            found.write("group_thread_cnt", &threads.to_string())?;
            found.write("stripe_cache_size", &STRIPE_CACHE.to_string())?;
            found.write("sync_speed_max", &NO_LIMIT.to_string())?;
            notes.push(format!(
                "md with group_thread_cnt {threads}, stripe_cache_size {STRIPE_CACHE}, \
                 sync_speed_max {NO_LIMIT}, and {}",
                given.join(" ")
            ));
        }
        if !shape.zeroed && shape.level != Level::Raid0 {
            notes.push(
                "md was made with --assume-clean: without it md writes all of a member first, as \
                 in a rebuild"
                    .to_owned(),
            );
        }
        Ok(notes)
    }

    fn array(&self, name: &str) -> Result<Option<ArraySeen>, String> {
        Ok(self.find(name).map(|found| found.seen()))
    }

    fn fail(&self, name: &str, slot: usize) -> Result<(), String> {
        let found = self.need(name)?;
        let member = self.member(&found, slot);
        let member = member.ok_or_else(|| format!("slot {slot} of {name} has no member"))?;
        let member = member.display().to_string();
        self.mdadm(&[&found.path(), "--fail", &member]).map(drop)
    }

    fn renew(&self, name: &str, slot: usize, device: &Path) -> Result<(), String> {
        let found = self.need(name)?;
        let real = fs::canonicalize(device);
        let real = real.map_err(|error| format!("{}: {error}", device.display()))?;
        let path = real.display().to_string();
        if found.devices().iter().any(|(_, _, known)| *known == real) {
            self.patiently(&[&found.path(), "--remove", &path])?;
        }
        if let Some(other) = self.member(&found, slot) {
            let other = other.display();
            return Err(format!("slot {slot} of {name} has a member still: {other}"));
        }
        self.mdadm(&["--zero-superblock", "--force", &path])?;
        self.mdadm(&[&found.path(), "--add", &path]).map(drop)
    }

    fn scrub(&self, name: &str) -> Result<(), String> {
        self.need(name)?.write("sync_action", "check")
    }

    fn destroy(&self, name: &str) -> Result<(), String> {
        let found = self.need(name)?;
        let devices = found.devices();
        self.patiently(&["--stop", &found.path()])?;
        for (_, _, device) in devices {
            let device = device.display().to_string();
            self.mdadm(&["--zero-superblock", "--force", &device])?;
        }
        Ok(())
    }

    fn wear(&self, device: &Path) -> Result<Wear, String> {
        host::wear_of(device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(level: &str) -> Shape {
        Shape {
            drives: 4,
            level: level.parse().expect("a level"),
            strip: Some(128 << 10),
            group_size: None,
            write_hole: WriteHole::Closed,
            rebuild_priority: None,
            zeroed: false,
        }
    }

    #[test]
    fn a_case_becomes_an_array_of_md_or_an_error_that_names_what_md_has() {
        let five = arguments(&shape("5")).expect("md has it");
        let wanted = "--run --metadata=1.2 --level=5 --raid-devices=4 --chunk=128K \
                      --consistency-policy=ppl --assume-clean";
        assert_eq!(five.join(" "), wanted);
        let zeroed = Shape {
            zeroed: true,
            ..shape("6")
        };
        let six = arguments(&zeroed).expect("md has it").join(" ");
        assert!(six.ends_with("--bitmap=internal --force"), "{six}");
        assert!(
            consistency(&zeroed)
                .1
                .is_some_and(|note| note.contains("stays open"))
        );
        let mirror = arguments(&shape("1")).expect("md has it").join(" ");
        assert!(!mirror.contains("chunk"), "{mirror}");
        let three = arguments(&shape("7.3")).expect_err("md has it not");
        assert!(three.contains("7.3") && three.contains("10"), "{three}");
        let copies = Shape {
            group_size: Some(3),
            ..shape("10")
        };
        assert!(arguments(&copies).is_err_and(|why| why.contains('3')));
    }

    #[test]
    fn a_device_that_failed_is_a_member_still() {
        let device = |slot, state: &str, path: &str| (slot, state.to_owned(), PathBuf::from(path));
        let devices = vec![
            device(None, "faulty", "/dev/b"),
            device(Some(2), "in_sync", "/dev/c"),
            device(Some(0), "in_sync", "/dev/a"),
        ];
        let seen = members(devices, 4);
        let seen: Vec<_> = seen.iter().map(|(_, state)| state.as_str()).collect();
        assert_eq!(seen, ["in_sync", "failed", "in_sync", "missing"]);
    }

    #[test]
    fn the_kernels_words_become_those_of_a_study() {
        for (theirs, ours) in [
            ("in_sync\n", "in_sync"),
            ("in_sync,write_mostly\n", "in_sync"),
            ("spare\n", "rebuilding"),
            ("blocked,faulty\n", "failed"),
        ] {
            assert_eq!(member_state(theirs), ours);
        }
        let half = job("recover", "1024 / 2048").expect("a job");
        assert_eq!(
            (half.kind.as_str(), half.done_bytes),
            ("rebuild", 1024 * SECTOR)
        );
        assert_eq!(half.total_bytes, 2048 * SECTOR);
        let none = job("check", "none").expect("a job");
        assert_eq!((none.kind.as_str(), none.total_bytes), ("scrub", 0));
        assert_eq!(job("idle", "none"), None);
    }
}

//! The scenarios: which there are, which boot runs them, and how a boot's output becomes counts.
//!
//! A boot under emulation costs about 20 s, so scenarios share boots. Each makes its own array on
//! wiped drives and can run alone; only those that span two boots need an earlier one, and say so
//! here.
//!
//! Emulated machines have two CPUs and run one after the other. User-mode ones have one, and run
//! beside them, as many as there are workers.

use super::budget::Budget;
use super::drives::Drives;
use super::guest::{self, End, Spec};
use super::prepare::{self, Machine, Rig, Rigs, Series};
use super::system;
use crate::outcome::Outcome;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The guest's side, one file for each boot and one that all source; and the rules that udev gets
/// there.
pub(crate) const SCRIPTS: [(&str, &str); 16] = [
    ("lib.sh", include_str!("../../../tests/vm/lib.sh")),
    ("bench.sh", include_str!("../../../tests/vm/bench.sh")),
    ("care.sh", include_str!("../../../tests/vm/care.sh")),
    ("cuts.sh", include_str!("../../../tests/vm/cuts.sh")),
    ("drives.sh", include_str!("../../../tests/vm/drives.sh")),
    ("hours.sh", include_str!("../../../tests/vm/hours.sh")),
    ("life.sh", include_str!("../../../tests/vm/life.sh")),
    ("losses.sh", include_str!("../../../tests/vm/losses.sh")),
    ("moving.sh", include_str!("../../../tests/vm/moving.sh")),
    (
        "placement.sh",
        include_str!("../../../tests/vm/placement.sh"),
    ),
    ("root.sh", include_str!("../../../tests/vm/root.sh")),
    ("system.sh", include_str!("../../../tests/vm/system.sh")),
    ("volumes.sh", include_str!("../../../tests/vm/volumes.sh")),
    ("usermode.sh", include_str!("../../../tests/vm/usermode.sh")),
    (
        "usermode-init.sh",
        include_str!("../../../tests/vm/usermode-init.sh"),
    ),
    (
        "62-strake.rules",
        include_str!("../../../packaging/udev/62-strake.rules"),
    ),
];

/// One thing to prove.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// A scenario of an earlier boot on the same drives, without which this one has nothing to look
    /// at.
    after: Option<&'static str>,
}

/// One boot of the guest.
pub(crate) struct Boot {
    name: &'static str,
    script: &'static str,
    pub(crate) machine: Machine,
    /// Boots of one set see the same drives, one after the other.
    set: &'static str,
    drives: usize,
    size_mib: u64,
    block_bytes: u64,
    /// What all its scenarios take on a machine that is not slow.
    usual_s: u64,
    /// A guest that lives longer hangs, also on a slow machine.
    limit_s: u64,
    /// The way to move data through ublk, where it is not to be the kernel's newest.
    ublk_mode: Option<&'static str>,
    pub(crate) scenarios: &'static [Scenario],
}

const fn scenario(name: &'static str, about: &'static str) -> Scenario {
    Scenario {
        name,
        about,
        after: None,
    }
}

/// What ublk offers since 6.10, and the newest way of the stable series.
const USER_COPY: &str = "user-copy";

/// The newest way without batches. Where requests of a killed daemon's batch are handed out once
/// more, the kernel copies them to a process that is gone: nothing on a PC, the end of a user-mode
/// kernel (`raw_copy_to_user` without an address space, 7.2). So a user-mode guest that kills its
/// daemon uses no batches.
const AUTO_BUFFER: &str = "auto-buffer";

pub(crate) const BOOTS: [Boot; 17] = [
    Boot {
        name: "life",
        script: "life.sh",
        machine: Machine::Emulated(Series::Stable),
        set: "life",
        drives: 6,
        size_mib: 512,
        block_bytes: 512,
        usual_s: 230,
        limit_s: 1800,
        ublk_mode: None,
        scenarios: &[
            scenario(
                "hot-unplug",
                "a drive is pulled under fio; the spare is rebuilt by itself",
            ),
            scenario(
                "thin-multipath",
                "members on dm-thin and dm-multipath come back, and destroy wipes them",
            ),
            scenario(
                "swap",
                "swap on the array, next to no memory free: a drive is pulled",
            ),
            scenario(
                "udev",
                "the package's rules: links of arrays, volumes and file systems; marks of members",
            ),
        ],
    },
    Boot {
        name: "stops",
        script: "life.sh",
        machine: Machine::UserMode,
        set: "stops",
        drives: 6,
        size_mib: 512,
        block_bytes: 512,
        usual_s: 110,
        limit_s: 1800,
        ublk_mode: Some(USER_COPY),
        scenarios: &[
            scenario(
                "filesystems",
                "RAID 5: xfs and ext4 see the stripe; fio, remount, verify",
            ),
            scenario(
                "daemon-kill",
                "SIGKILL under a mounted filesystem; no I/O error comes of it",
            ),
            scenario(
                "copy-mode",
                "the same in ublk's copy mode, as older kernels need it",
            ),
            scenario(
                "restripe",
                "RAID 5 becomes RAID 6 under fio, with a SIGKILL; then two drives are pulled",
            ),
            scenario("clean-stop", "an array with data is stopped cleanly"),
        ],
    },
    Boot {
        name: "again",
        script: "life.sh",
        machine: Machine::UserMode,
        set: "stops",
        drives: 6,
        size_mib: 512,
        block_bytes: 512,
        usual_s: 20,
        limit_s: 900,
        ublk_mode: Some(USER_COPY),
        scenarios: &[
            Scenario {
                name: "fresh-boot",
                about: "the array assembles itself after a boot, with its data",
                after: Some("clean-stop"),
            },
            scenario("power-cut", "the power goes while fio writes"),
        ],
    },
    Boot {
        name: "after-cut",
        script: "life.sh",
        machine: Machine::UserMode,
        set: "stops",
        drives: 6,
        size_mib: 512,
        block_bytes: 512,
        usual_s: 20,
        limit_s: 900,
        ublk_mode: Some(USER_COPY),
        scenarios: &[Scenario {
            name: "after-cut",
            about: "what was synced before the cut is there, with a drive pulled too",
            after: Some("power-cut"),
        }],
    },
    Boot {
        name: "newer",
        script: "life.sh",
        machine: Machine::Emulated(Series::New),
        set: "newer",
        drives: 6,
        size_mib: 512,
        block_bytes: 512,
        usual_s: 140,
        limit_s: 1800,
        ublk_mode: None,
        scenarios: &[
            scenario(
                "reads-in-place",
                "a newer kernel's ublk mode, in batches, under fio: SIGKILL, then a drive is \
                 pulled",
            ),
            scenario(
                "grow",
                "members, the array and the xfs mounted on it grow under fio, with a SIGKILL",
            ),
        ],
    },
    Boot {
        name: "volumes",
        script: "volumes.sh",
        machine: Machine::UserMode,
        set: "volumes",
        drives: 5,
        size_mib: 512,
        block_bytes: 512,
        usual_s: 160,
        limit_s: 1800,
        ublk_mode: Some(AUTO_BUFFER),
        scenarios: &[
            scenario(
                "volumes",
                "xfs on one volume, fio on the other: SIGKILL, growth while mounted, a drive is \
                 pulled",
            ),
            scenario(
                "left-behind",
                "a killed daemon's device of a mounted volume cannot be taken over at first",
            ),
            scenario(
                "left-array",
                "the same for an array without volumes, whose number was not noted",
            ),
            scenario(
                "left-unused",
                "devices that a killed daemon left go with destroy, forget and a start without \
                 ublk",
            ),
        ],
    },
    Boot {
        name: "care",
        script: "care.sh",
        machine: Machine::UserMode,
        set: "care",
        drives: 6,
        size_mib: 512,
        block_bytes: 512,
        usual_s: 140,
        limit_s: 1800,
        ublk_mode: Some(USER_COPY),
        scenarios: &[
            scenario(
                "pool",
                "two arrays share a pool; the one that loses a drive gets its device",
            ),
            scenario(
                "drop-and-return",
                "a drive is away for a moment: it gets what was written meanwhile",
            ),
            scenario(
                "hung-drive",
                "a drive does not answer: others are cared for, and it is taken back when it does",
            ),
            scenario(
                "layers",
                "members on dm-linear, md with its superblock at the end and loop come back, and \
                 destroy wipes them",
            ),
            scenario(
                "rot",
                "bits are flipped behind the array; a scrub names the drive and repairs",
            ),
            scenario(
                "trim",
                "fstrim makes space Unwritten; a rebuild copies only what is left",
            ),
            scenario(
                "zeroing",
                "what was never written is zeroed under fio: SIGKILL, a drive is away meanwhile",
            ),
            scenario(
                "read-errors",
                "a drive with unreadable sectors is replaced under fio",
            ),
        ],
    },
    Boot {
        name: "hours",
        script: "hours.sh",
        machine: Machine::UserMode,
        set: "hours",
        drives: 5,
        size_mib: 512,
        block_bytes: 512,
        usual_s: 280,
        limit_s: 1800,
        ublk_mode: Some(USER_COPY),
        scenarios: &[
            scenario(
                "stopped",
                "the daemon is stopped for longer than the default deadline under fio: no member \
                 goes out",
            ),
            scenario("frozen", "the same in a frozen control group"),
            scenario("suspended", "the same in a machine that sleeps"),
            scenario(
                "clock",
                "the clock is corrected by 40 days, and goes back: no scrub is repeated",
            ),
        ],
    },
    Boot {
        name: "placement",
        script: "placement.sh",
        machine: Machine::Placing,
        set: "placement",
        drives: 5,
        size_mib: 192,
        block_bytes: 512,
        usual_s: 90,
        limit_s: 1800,
        ublk_mode: None,
        scenarios: &[
            scenario(
                "placement",
                "NVMe FDP: data, parity, log and rebuild go to handles of their own",
            ),
            scenario(
                "placed-study",
                "a study takes write amplification from the drives' FDP statistics",
            ),
        ],
    },
    Boot {
        name: "drives",
        script: "drives.sh",
        machine: Machine::Emulated(Series::Stable),
        set: "drives",
        drives: 5,
        size_mib: 192,
        block_bytes: 512,
        usual_s: 140,
        limit_s: 1800,
        ublk_mode: None,
        scenarios: &[
            scenario(
                "reset",
                "controllers are reset under fio, one by one and two at once",
            ),
            scenario(
                "path-errors",
                "the way to drives fails under fio, commands are lost; with a volatile cache and \
                 without",
            ),
            scenario(
                "silence",
                "a device does not answer: for less than the deadline, and for longer",
            ),
            scenario(
                "drive-logs",
                "what drives say of themselves, beside what nvme-cli reads",
            ),
            scenario(
                "granularity",
                "drives that write in units of 16 KiB: strip, offset and notes go by it",
            ),
            scenario(
                "study",
                "a study: SMART logs around loads; a drive dies, comes back, and the study goes on",
            ),
        ],
    },
    Boot {
        name: "moving",
        script: "moving.sh",
        machine: Machine::UserMode,
        set: "moving",
        drives: 8,
        size_mib: 256,
        block_bytes: 512,
        usual_s: 110,
        limit_s: 1800,
        ublk_mode: Some(AUTO_BUFFER),
        scenarios: &[
            scenario(
                "move",
                "data moves to a drive more under fio: stop, SIGKILL, growth while mounted, a \
                 drive is pulled",
            ),
            scenario(
                "groups",
                "RAID 5 becomes RAID 50 under fio, with a SIGKILL; a drive of each group is \
                 pulled; RAID 5 again",
            ),
            scenario(
                "lower",
                "RAID 6 becomes RAID 5 under fio, with a SIGKILL, and rebuilds a lost drive onto \
                 its spare",
            ),
            scenario("move-cut", "the power goes while data moves"),
        ],
    },
    Boot {
        name: "after-move",
        script: "moving.sh",
        machine: Machine::UserMode,
        set: "moving",
        drives: 8,
        size_mib: 256,
        block_bytes: 512,
        usual_s: 20,
        limit_s: 900,
        ublk_mode: None,
        scenarios: &[Scenario {
            name: "after-move",
            about: "all is there after the cut, and the rest of the data moves",
            after: Some("move-cut"),
        }],
    },
    Boot {
        name: "losses",
        script: "losses.sh",
        machine: Machine::UserMode,
        set: "losses",
        drives: 10,
        size_mib: 128,
        block_bytes: 4096,
        usual_s: 60,
        limit_s: 1800,
        ublk_mode: Some(USER_COPY),
        scenarios: &[
            scenario(
                "raid6-two",
                "RAID 6 loses two drives, is rebuilt, loses two others",
            ),
            scenario(
                "raid73-three",
                "RAID 7.3 loses three drives, is rebuilt, loses three others",
            ),
            scenario(
                "raid50-one-each",
                "RAID 50 loses one drive of each group, is rebuilt",
            ),
            scenario(
                "md-raid5",
                "Linux md reads the members of a RAID 5, whole and degraded",
            ),
            scenario(
                "md-raid6",
                "Linux md reads the members of a RAID 6, whole and degraded",
            ),
            scenario(
                "md-study",
                "a study of Linux md: degraded, rebuilt, checked; killed and gone on with",
            ),
        ],
    },
    Boot {
        name: "system",
        script: "system.sh",
        machine: Machine::System,
        set: "system",
        drives: 3,
        size_mib: 256,
        block_bytes: 512,
        usual_s: 120,
        limit_s: 1800,
        ublk_mode: Some(AUTO_BUFFER),
        scenarios: &[
            scenario(
                "install",
                "a package under systemd: installed, array made, members marked, links by UUID",
            ),
            scenario("fstab", "after a reboot a line by UUID in fstab is mounted"),
            scenario("kill", "a daemon that is killed under load: no I/O error"),
            scenario("restart", "systemctl restart under load: no I/O error"),
            scenario(
                "upgrade",
                "an upgrade of the package under load: no I/O error",
            ),
            scenario(
                "late",
                "members come while the machine starts: a line by UUID in fstab is mounted then",
            ),
            scenario(
                "late-missing",
                "the same with a member that never comes: mounted degraded after a wait",
            ),
            scenario(
                "missing-member",
                "the power goes, a member is gone: the file system is mounted, an alert delivered",
            ),
            scenario("purge", "a purge leaves the array alone"),
        ],
    },
    Boot {
        name: ROOT_MADE,
        script: "root.sh",
        machine: Machine::System,
        set: "root",
        drives: 3,
        size_mib: 640,
        block_bytes: 512,
        usual_s: 90,
        limit_s: 900,
        ublk_mode: Some(AUTO_BUFFER),
        scenarios: &[scenario(
            ROOT_MADE,
            "a root file system is copied to an array; initramfs-tools and dracut take Strake in",
        )],
    },
    Boot {
        name: "root-dracut",
        script: "root.sh",
        machine: Machine::OnArray("initrd.dracut"),
        set: "root",
        drives: 3,
        size_mib: 640,
        block_bytes: 512,
        usual_s: 30,
        limit_s: 900,
        ublk_mode: Some(AUTO_BUFFER),
        scenarios: &[Scenario {
            name: "root-dracut",
            about: "/ is on an array: boot with dracut's initramfs, where systemd runs",
            after: Some(ROOT_MADE),
        }],
    },
    Boot {
        name: "root",
        script: "root.sh",
        machine: Machine::OnArray("initrd"),
        set: "root",
        drives: 3,
        size_mib: 640,
        block_bytes: 512,
        usual_s: 60,
        limit_s: 900,
        ublk_mode: Some(AUTO_BUFFER),
        scenarios: &[
            Scenario {
                name: "root",
                about: "/ is on an array: boot, then restart and SIGKILL of the daemon under load",
                after: Some(ROOT_MADE),
            },
            Scenario {
                name: "root-reboot",
                about: "a reboot from / on an array",
                after: Some(ROOT_MADE),
            },
            Scenario {
                name: "root-degraded",
                about: "the power goes, a member is gone, and / is mounted",
                after: Some(ROOT_MADE),
            },
        ],
    },
];

/// The boot that makes what boots from an array start from.
const ROOT_MADE: &str = "root-made";

/// Scenarios that end with a cut of the power.
const CUT: [&str; 2] = ["power-cut", "move-cut"];

/// The names to run: those asked for (all where none is) and what they come after.
fn wanted(asked: &[String]) -> Result<BTreeSet<&'static str>> {
    let all = || BOOTS.iter().flat_map(|boot| boot.scenarios);
    let unknown = asked
        .iter()
        .find(|name| !all().any(|scenario| scenario.name == *name));
    if let Some(unknown) = unknown {
        bail!("no scenario {unknown}; `cargo xtask vm list` shows them");
    }
    let mut wanted = BTreeSet::new();
    for scenario in all().filter(|s| asked.is_empty() || asked.iter().any(|name| name == s.name)) {
        wanted.insert(scenario.name);
        wanted.extend(scenario.after);
    }
    // What comes after a cut needs that, which needs nothing: one round finds all.
    Ok(wanted)
}

/// The names of a boot's scenarios that are wanted.
fn chosen(boot: &Boot, wanted: &BTreeSet<&'static str>) -> Vec<&'static str> {
    let names = boot.scenarios.iter().map(|scenario| scenario.name);
    names.filter(|name| wanted.contains(name)).collect()
}

/// The boots of one set of drives that have something to do, in order.
pub(crate) struct Set {
    boots: Vec<(&'static Boot, Vec<&'static str>)>,
}

impl Set {
    pub(crate) fn is_emulated(&self) -> bool {
        let mut boots = self.boots.iter();
        boots.any(|(boot, _)| boot.machine.is_emulated())
    }
}

/// The sets of boots that the scenarios need that were asked for.
pub(crate) fn sets(asked: &[String]) -> Result<Vec<Set>> {
    let wanted = wanted(asked)?;
    let mut sets: Vec<Set> = Vec::new();
    for boot in &BOOTS {
        let names = chosen(boot, &wanted);
        if names.is_empty() {
            continue;
        }
        match sets.iter_mut().find(|set| set.boots[0].0.set == boot.set) {
            Some(set) => set.boots.push((boot, names)),
            None => sets.push(Set {
                boots: vec![(boot, names)],
            }),
        }
    }
    Ok(sets)
}

/// Runs the boots of a set, one after the other, and prints each result as it comes. Where the rig
/// of an emulated machine cannot be had, its scenarios are skipped, each counted; a user-mode
/// kernel is built here, so where there is none they have failed.
pub(crate) fn run(rigs: &Rigs, set: &Set, binary: &Path, budget: &Budget) -> Result<Outcome> {
    let mut total = Outcome::default();
    let mut drives: Option<Drives> = None;
    let mut left_out: Vec<&str> = Vec::new();
    for (boot, names) in &set.boots {
        let count = names.len() as u64;
        let why = comes_after(boot, &left_out).or_else(|| budget.refuses(boot.usual_s));
        if let Some(why) = why {
            Budget::leave_out(&mut total, count, &names.join(", "), &why);
            left_out.extend(names);
            continue;
        }
        let rig = match rigs.of(boot.machine) {
            Ok(rig) => rig,
            Err(why) => {
                prepare::lacks(&mut total, boot.machine, count, &names.join(", "), why);
                continue;
            }
        };
        if drives.is_none() {
            let mut made = Drives::make(boot.set, boot.drives, boot.size_mib, boot.block_bytes)?;
            if boot.machine == Machine::Placing {
                made.have_handles();
            }
            drives = Some(made);
        }
        let drives = drives.as_ref().expect("made just above");
        total += run_boot(rig, boot, names, drives, binary)?;
        if set.is_emulated() {
            budget.spent(boot.usual_s);
        }
    }
    Ok(total)
}

/// Why a boot cannot run, if it comes after one that was left out.
fn comes_after(boot: &Boot, left_out: &[&str]) -> Option<String> {
    let mut before = boot.scenarios.iter().filter_map(|one| one.after);
    let missing = before.find(|name| left_out.contains(name))?;
    Some(format!("it comes after {missing}, which was left out"))
}

/// What a boot has said so far of its scenarios.
struct Heard {
    boot: &'static str,
    outcome: Outcome,
    open: BTreeSet<&'static str>,
    log: File,
    since: Instant,
}

/// A boot, once more if the guest's kernel ended by itself: that says nothing of the arrays. A
/// second time is a failure, and so is one with drives that hold what came before.
fn run_boot(
    rig: &Rig,
    boot: &'static Boot,
    names: &[&'static str],
    drives: &Drives,
    binary: &Path,
) -> Result<Outcome> {
    let (outcome, died) = run_once(rig, boot, names, drives, binary)?;
    if !died || boot.scenarios.iter().any(|one| one.after.is_some()) {
        return Ok(outcome);
    }
    // The boot that follows lays its folder anew.
    println!(
        "boot {}: once more; {}",
        boot.name,
        guest::last_words(boot.name, &log_path(boot.name)?)
    );
    let (mut again, _) = run_once(rig, boot, names, drives, binary)?;
    again.notes.extend(outcome.notes);
    Ok(again)
}

/// What a boot said, and whether the guest ended although nobody wanted that, with nothing wrong
/// before.
fn run_once(
    rig: &Rig,
    boot: &'static Boot,
    names: &[&'static str],
    drives: &Drives,
    binary: &Path,
) -> Result<(Outcome, bool)> {
    let share = guest::fill_share(boot.name, binary)?;
    let log_path = log_path(boot.name)?;
    let script = format!(
        "bash {}/{} {} {}",
        share.display(),
        boot.script,
        share.display(),
        names.join(" ")
    );
    if let Some(mode) = boot.ublk_mode {
        use_mode(&share, mode)?;
    }
    if boot.machine == Machine::System {
        // Without it the first scenario fails, which shows why.
        match crate::package::deb() {
            Ok(deb) => drop(fs::copy(deb, share.join("strake.deb"))?),
            Err(why) => println!("  {}: there is no package: {why:#}", boot.name),
        }
    }
    if let Machine::OnArray(initramfs) = boot.machine {
        let made = guest::share(ROOT_MADE).join(initramfs);
        let copied = fs::copy(&made, share.join(system::INITRAMFS));
        copied.with_context(|| made.display().to_string())?;
    }
    let spec = Spec {
        name: boot.name,
        cpus: 2,
        memory_mib: 4096,
        limit_s: boot.limit_s,
    };
    let start = Instant::now();
    println!(
        "boot {} ({}, Linux {}): {}",
        boot.name,
        boot.machine.word(),
        rig.version(),
        names.join(" ")
    );
    let mut heard = Heard {
        boot: boot.name,
        outcome: Outcome::default(),
        open: names.iter().copied().collect(),
        log: File::create(&log_path).with_context(|| log_path.display().to_string())?,
        since: start,
    };
    let end = guest::run(rig, &spec, drives, &script, |line| heard.line(line))?;
    println!(
        "boot {} ended ({end:?}) after {:.1} s",
        boot.name,
        start.elapsed().as_secs_f64()
    );
    let died = end == End::Died && heard.outcome.counts.failed == 0;
    heard.close(end, boot.name, &log_path);
    Ok((heard.outcome, died))
}

/// Has the guest's daemon move data through ublk in this way.
pub(crate) fn use_mode(share: &Path, mode: &str) -> Result<()> {
    let line = format!("export STRAKE_UBLK_MODE={mode}\n");
    Ok(fs::write(share.join("boot.env"), line)?)
}

fn log_path(boot: &str) -> Result<PathBuf> {
    let folder = prepare::folder().join("logs");
    fs::create_dir_all(&folder)?;
    Ok(folder.join(format!("{boot}.log")))
}

impl Heard {
    /// Takes one line of the guest: `ok NAME`, `not ok NAME: why`, `| log` of a failure, or
    /// anything.
    fn line(&mut self, line: &str) {
        let at = self.since.elapsed().as_secs_f64();
        let _ = writeln!(self.log, "{at:7.1} {line}");
        if let Some(name) = line.strip_prefix("ok ") {
            if self.open.remove(name) {
                self.outcome.counts.passed += 1;
                println!("  {at:6.1} s  {}: ok {name}", self.boot);
            }
        } else if let Some(rest) = line.strip_prefix("not ok ") {
            let name = rest.split(':').next().unwrap_or(rest);
            if self.open.remove(name) {
                self.outcome.counts.failed += 1;
                self.outcome.notes.push(format!("not ok {rest}"));
                println!("  {at:6.1} s  {}: not ok {rest}", self.boot);
            }
        } else if line.starts_with("| ") || line.starts_with("# ") {
            println!("            {}: {line}", self.boot);
        }
    }

    /// Settles what was never spoken of. A cut of the power is the last word of the scenario that
    /// asks for it, and its success.
    fn close(&mut self, end: End, name: &str, log: &Path) {
        let cut = CUT.iter().find(|name| self.open.contains(*name));
        if let Some(name) = cut.filter(|_| end == End::Cut) {
            self.open.remove(name);
            self.outcome.counts.passed += 1;
            println!("            {}: ok {name}", self.boot);
        }
        let silent = !self.open.is_empty();
        for name in std::mem::take(&mut self.open) {
            self.outcome.counts.failed += 1;
            self.outcome
                .notes
                .push(format!("not ok {name}: the guest ended first ({end:?})"));
        }
        if silent {
            // A scenario that failed has shown its own logs; this one never came so far.
            let note = guest::last_words(name, log);
            self.outcome.notes.push(note);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_brings_the_one_it_comes_after() {
        let names = wanted(&["fresh-boot".to_owned()]).expect("a known scenario");
        assert_eq!(
            names.into_iter().collect::<Vec<_>>(),
            ["clean-stop", "fresh-boot"]
        );
        assert!(wanted(&["no-such".to_owned()]).is_err());
    }

    #[test]
    fn what_comes_after_a_boot_that_was_left_out_is_left_out() {
        let after = |left_out: &[&str]| {
            let boots = BOOTS
                .iter()
                .filter(|boot| comes_after(boot, left_out).is_some());
            boots.map(|boot| boot.name).collect::<Vec<_>>()
        };
        assert_eq!(after(&[ROOT_MADE]), ["root-dracut", "root"]);
        assert_eq!(after(&[]), [""; 0]);
    }

    #[test]
    fn names_are_unique_and_come_after_something_that_exists_earlier() {
        let mut seen = BTreeSet::new();
        for scenario in BOOTS.iter().flat_map(|boot| boot.scenarios) {
            assert!(
                scenario.after.is_none_or(|name| seen.contains(name)),
                "{}",
                scenario.name
            );
            assert!(seen.insert(scenario.name), "{} twice", scenario.name);
        }
    }
}

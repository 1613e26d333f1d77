//! Findings about the machine: kernel, ublk, clock, and limits of the daemon's process.

use std::fs;
use std::path::PathBuf;

use crate::api::{ArrayJson, DoctorJson, FindingJson, UncheckedJson};
use crate::commands::doctor::Seat;
use crate::common::errors::RAISE_FILE_LIMIT;
use crate::common::events::Severity;
use crate::drives::machine::helper;

/// The kernel's needs, when it has lost an NVMe command: two of its `io_timeout`, and a reset.
const RESET_S: u64 = 15;
/// What the daemon waits unless told otherwise, seconds.
const DAEMON_WAITS_S: u64 = 75;
/// Clocks that cost microseconds to read.
const SLOW_CLOCKS: [&str; 5] = ["hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"];

/// Where the kernel tells of itself, and which process is the daemon.
#[derive(Debug)]
pub(super) struct Host {
    sys: PathBuf,
    proc: PathBuf,
    dev: PathBuf,
    daemon: Option<u32>,
    /// Whether the clock is set by others: what `timedatectl` says, or why it does not.
    synchronized: Result<bool, String>,
}

impl Host {
    pub(super) fn here(daemon: Option<u32>) -> Host {
        Host {
            sys: PathBuf::from("/sys"),
            proc: PathBuf::from("/proc"),
            dev: PathBuf::from("/dev"),
            daemon,
            synchronized: synchronized(),
        }
    }
    fn sys(&self, file: &str) -> Option<String> {
        text(self.sys.join(file))
    }
    /// A file of the daemon's folder in /proc.
    fn process(&self, file: &str) -> Option<PathBuf> {
        Some(self.proc.join(self.daemon?.to_string()).join(file))
    }
}

fn text(path: PathBuf) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn synchronized() -> Result<bool, String> {
    let mut command = helper::tool("timedatectl");
    command.args(["show", "--property=NTPSynchronized", "--value"]);
    let output = helper::output(&mut command).map_err(|e| format!("timedatectl: {e}"))?;
    match output.stdout.trim_ascii() {
        b"yes" => Ok(true),
        b"no" => Ok(false),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("timedatectl: {}", said.trim()))
        }
    }
}

pub(super) fn check(host: &Host, arrays: &[ArrayJson], seats: &[Seat], report: &mut DoctorJson) {
    ublk(host, arrays, report);
    kernel(host, seats, report);
    clock(host, report);
    process(host, report);
}

fn say(report: &mut DoctorJson, check: &str, severity: Severity, found: &str, cure: &str) {
    report.findings.push(FindingJson {
        check: check.to_owned(),
        severity,
        found: found.to_owned(),
        cure: cure.to_owned(),
        ..FindingJson::default()
    });
}

fn unchecked(report: &mut DoctorJson, check: &str, why: &str) {
    report.unchecked.push(UncheckedJson {
        check: check.to_owned(),
        device: None,
        why: why.to_owned(),
    });
}

/// What the kernel's driver of block devices cannot do, and what that costs.
const WANTED: [(&str, Severity, &str, &str); 3] = [
    (
        "user_recovery",
        Severity::Warning,
        "a daemon that ends or is killed takes its block devices with it",
        "use Linux 6.1 or newer",
    ),
    (
        "auto_buf_reg",
        Severity::Info,
        "data of reads is copied once more than it must be",
        "use Linux 6.16 or newer",
    ),
    (
        "update_size",
        Severity::Info,
        "a block device that grows shows its new size only after strake stop and strake start",
        "use Linux 6.16 or newer",
    ),
];

fn ublk(host: &Host, arrays: &[ArrayJson], report: &mut DoctorJson) {
    if !host.dev.join("ublk-control").exists() {
        say(
            report,
            "ublk",
            Severity::Info,
            "the kernel has no ublk (/dev/ublk-control is not there): arrays are served by NBD",
            "modprobe ublk_drv, on Linux 6.0 or newer with CONFIG_BLK_DEV_UBLK",
        );
        return;
    }
    let mut exports = arrays.iter().filter_map(|array| array.export.as_ref());
    // The driver is the same for all of them.
    let Some(features) = exports.find_map(|export| export.kernel_features.as_ref()) else {
        return;
    };
    for (feature, severity, costs, cure) in WANTED {
        if !features.iter().any(|one| one == feature) {
            let found = format!("the kernel's ublk has no {feature}: {costs}");
            say(report, "ublk", severity, &found, cure);
        }
    }
}

fn kernel(host: &Host, seats: &[Seat], report: &mut DoctorJson) {
    let disabled = text(host.proc.join("sys/kernel/io_uring_disabled"));
    if let Some(value) = disabled.filter(|value| value != "0") {
        say(
            report,
            "kernel",
            Severity::Warning,
            &format!(
                "kernel.io_uring_disabled is {value}: io_uring is refused to some processes or to \
                 all"
            ),
            "sysctl kernel.io_uring_disabled=0, also in /etc/sysctl.d",
        );
    }
    if !seats
        .iter()
        .any(|seat| seat.traits.name.starts_with("nvme"))
    {
        return;
    }
    let parameter = |name: &str| {
        let text = host.sys(&format!("module/nvme_core/parameters/{name}"))?;
        text.parse::<u64>().ok()
    };
    if parameter("max_retries") == Some(0) {
        say(
            report,
            "kernel",
            Severity::Warning,
            "nvme_core.max_retries is 0: a reset of a drive fails its I/O, and the member goes out",
            "echo 5 > /sys/module/nvme_core/parameters/max_retries, and remove \
             nvme_core.max_retries from the kernel's command line",
        );
    }
    let needs = parameter("io_timeout").map(|s| (s, s.saturating_mul(2).saturating_add(RESET_S)));
    if let Some((timeout, needs)) = needs.filter(|(_, needs)| *needs > DAEMON_WAITS_S) {
        say(
            report,
            "kernel",
            Severity::Warning,
            &format!(
                "nvme_core.io_timeout is {timeout} s: the kernel may take {needs} s for a command, \
                 and the daemon puts a member out after {DAEMON_WAITS_S} s unless it is told \
                 otherwise"
            ),
            &format!("strake daemon --io-timeout {needs}, or nvme_core.io_timeout=30"),
        );
    }
}

fn clock(host: &Host, report: &mut DoctorJson) {
    match &host.synchronized {
        Ok(true) => {}
        Ok(false) => say(
            report,
            "clock",
            Severity::Warning,
            "the clock is not synchronized: times of events and of scheduled scrubs are those of \
             it",
            "run chrony or systemd-timesyncd",
        ),
        Err(why) => unchecked(report, "clock", why),
    }
    let file = "devices/system/clocksource/clocksource0/current_clocksource";
    if let Some(source) = host.sys(file).filter(|name| SLOW_CLOCKS.contains(&&**name)) {
        say(
            report,
            "clock",
            Severity::Warning,
            &format!(
                "the kernel reads its time from {source}, which takes microseconds at each I/O"
            ),
            "look in the kernel's log why it does not trust the TSC (dmesg | grep -i tsc); often \
             the firmware of the machine needs an update",
        );
    }
}

/// The number behind a name in a file of /proc, of a column of it.
fn limit(text: &str, name: &str, column: usize) -> Option<String> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(rest.split_whitespace().nth(column)?.to_owned())
}

fn process(host: &Host, report: &mut DoctorJson) {
    let Some(pid) = host.daemon else { return };
    let read = |file: &str| host.process(file).and_then(text);
    match read("status").and_then(|status| limit(&status, "VmLck:", 0)) {
        Some(kib) if kib == "0" => say(
            report,
            "memory-lock",
            Severity::Warning,
            &format!(
                "the memory of the daemon (process {pid}) is not locked: where memory is short it \
                 may wait for pages that its own arrays are to bring"
            ),
            "LimitMEMLOCK=infinity in the service's unit (or CAP_IPC_LOCK), and start the daemon \
             anew",
        ),
        Some(_) => {}
        None => unchecked(
            report,
            "memory-lock",
            &format!("/proc/{pid}/status cannot be read"),
        ),
    }
    let limits = read("limits");
    let most = limits
        .as_ref()
        .and_then(|limits| limit(limits, "Max open files", 0));
    let open = host
        .process("fd")
        .and_then(|folder| fs::read_dir(folder).ok());
    let (Some(most), Some(open)) = (most, open) else {
        let why = format!("/proc/{pid}/limits or /proc/{pid}/fd cannot be read");
        return unchecked(report, "limits", &why);
    };
    let open = open.count() as u64;
    if let Some(most) = most
        .parse::<u64>()
        .ok()
        .filter(|most| open * 10 >= most * 8)
    {
        say(
            report,
            "limits",
            Severity::Warning,
            &format!("the daemon has {open} descriptors open, and {most} is its limit"),
            "LimitNOFILE=65536 in the service's unit, and start the daemon anew",
        );
    }
    let size = limits.and_then(|limits| limit(&limits, "Max file size", 0));
    if let Some(size) = size.filter(|size| size != "unlimited") {
        say(
            report,
            "limits",
            Severity::Warning,
            &format!(
                "the daemon may write files up to {size} bytes only: members that are files fail \
                 beyond"
            ),
            RAISE_FILE_LIMIT,
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::api::ExportJson;
    use crate::drives::machine::traits::Traits;

    use super::*;

    /// A machine on which all is well, of which some files are others.
    fn machine(other: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
        let folder = tempfile::tempdir().expect("temporary folder");
        let root = folder.path();
        let limits = "Limit  Soft Limit  Hard Limit  Units\n\
                      Max file size             unlimited unlimited bytes\n\
                      Max open files            20        20        files\n";
        let good = [
            ("dev/ublk-control", ""),
            ("proc/sys/kernel/io_uring_disabled", "0\n"),
            ("proc/7/status", "Name:\tstrake\nVmLck:\t    4096 kB\n"),
            ("proc/7/limits", limits),
            ("proc/7/fd/0", ""),
            ("sys/module/nvme_core/parameters/max_retries", "5\n"),
            ("sys/module/nvme_core/parameters/io_timeout", "30\n"),
            (
                "sys/devices/system/clocksource/clocksource0/current_clocksource",
                "tsc\n",
            ),
        ];
        for (file, text) in good.iter().chain(other) {
            let file = root.join(file);
            fs::create_dir_all(file.parent().expect("a folder")).expect("made");
            fs::write(file, text).expect("written");
        }
        let host = Host {
            sys: root.join("sys"),
            proc: root.join("proc"),
            dev: root.join("dev"),
            daemon: Some(7),
            synchronized: Ok(true),
        };
        (folder, host)
    }

    fn array(features: &[&str]) -> ArrayJson {
        let features = features.iter().map(|f| (*f).to_owned()).collect();
        ArrayJson {
            export: Some(ExportJson {
                kind: "ublk".to_owned(),
                mode: None,
                queues: None,
                depth: None,
                kernel_features: Some(features),
            }),
            ..ArrayJson::default()
        }
    }

    const ALL: [&str; 3] = ["user_recovery", "auto_buf_reg", "update_size"];

    fn of(host: &Host, features: &[&str]) -> DoctorJson {
        let seat = Seat {
            array: "data".to_owned(),
            strip_bytes: 65536,
            slot: Some(0),
            device: "/dev/nvme0n1".to_owned(),
            traits: Traits {
                name: "nvme0n1".to_owned(),
                ..Traits::default()
            },
            health: None,
        };
        let mut report = DoctorJson::default();
        check(host, &[array(features)], &[seat], &mut report);
        report
    }

    #[test]
    fn a_machine_on_which_all_is_well_has_no_findings() {
        let (_folder, host) = machine(&[]);
        let report = of(&host, &ALL);
        assert_eq!(
            (report.findings, report.unchecked),
            (Vec::new(), Vec::new())
        );
    }

    #[test]
    fn each_thing_that_is_not_well_is_found_with_its_value() {
        let many: Vec<String> = (1..16).map(|n| format!("proc/7/fd/{n}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|file| (&**file, "")).collect();
        let clock = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        let short = "Max file size 1024 1024 bytes\nMax open files 20 20 files\n";
        for (other, check, value) in [
            (
                &[("proc/7/status", "VmLck:\t0 kB\n")][..],
                "memory-lock",
                "process 7",
            ),
            (&[("proc/7/limits", short)], "limits", "1024"),
            (&many, "limits", "16 descriptors"),
            (
                &[("proc/sys/kernel/io_uring_disabled", "2\n")],
                "kernel",
                "is 2",
            ),
            (
                &[("sys/module/nvme_core/parameters/max_retries", "0\n")],
                "kernel",
                "is 0",
            ),
            (
                &[("sys/module/nvme_core/parameters/io_timeout", "60\n")],
                "kernel",
                "135 s",
            ),
            (&[(clock, "hpet\n")], "clock", "hpet"),
        ] {
            let (_folder, host) = machine(other);
            let report = of(&host, &ALL);
            assert_eq!(report.findings.len(), 1, "{report:?}");
            let finding = &report.findings[0];
            assert_eq!(finding.check, check);
            assert!(finding.found.contains(value), "{finding:?}");
            assert_eq!(report.unchecked, []);
        }
    }

    #[test]
    fn what_ublk_lacks_and_what_cannot_be_read_is_said() {
        let (folder, mut host) = machine(&[]);
        let report = of(&host, &["user_recovery"]);
        let severities: Vec<Severity> = report.findings.iter().map(|f| f.severity).collect();
        assert_eq!(severities, [Severity::Info, Severity::Info]);
        fs::remove_file(folder.path().join("dev/ublk-control")).expect("removed");
        assert_eq!(of(&host, &ALL).findings[0].check, "ublk");
        host.daemon = Some(8);
        host.synchronized = Err("no bus".to_owned());
        let unread: Vec<String> = of(&host, &ALL)
            .unchecked
            .into_iter()
            .map(|u| u.check)
            .collect();
        assert_eq!(unread, ["clock", "memory-lock", "limits"]);
        host.synchronized = Ok(false);
        assert!(of(&host, &ALL).findings.iter().any(|f| f.check == "clock"));
    }
}

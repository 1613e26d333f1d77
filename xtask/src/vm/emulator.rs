//! The emulator's command line.
//!
//! The guest is a PC with two CPUs, emulated in software: its speed means nothing, its behaviour
//! everything. It runs over the host's own file tree (virtme-ng).

use super::drives::Drives;
use super::guest::{self, Spec};
use super::prepare::Emulator;
use crate::host;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What makes an emulated machine quicker. The emulator translates code once for each address that
/// it runs at, so programs stay at theirs; what a real processor needs against its own faults, an
/// emulated one only pays for; and nobody here uses a watchdog, a mouse or a CD.
const QUICK: [&str; 5] = [
    "norandmaps",
    "mitigations=off",
    "init_on_alloc=0",
    "rcupdate.rcu_expedited=1",
    "modprobe.blacklist=ahci,sr_mod,sg,i6300esb,iTCO_wdt,lpc_ich,i2c_i801,psmouse,pcspkr,kvm_amd,\
     aesni_intel,ghash_clmulni_intel,sha512_ssse3,sha256_ssse3,sha1_ssse3,powernow_k8,acpi_cpufreq,\
     button,evdev",
];

/// The same of the processor: it does not offer what checksums are quick with on a real one, and
/// which the emulator works out bit by bit. Kernel and programs then use their tables, which is
/// quicker here.
const PROCESSOR: &str = "-cpu max,pclmulqdq=off,sse4.2=off";

/// The call of virtme-ng that boots the rig's kernel over the host's file tree.
/// Without a script it is a shell for the person at this terminal.
pub(crate) fn command(
    rig: &Emulator,
    spec: &Spec<'_>,
    drives: &Drives,
    script: Option<&str>,
) -> Command {
    let share = guest::share(spec.name);
    let mut options = drives.options();
    options.push(PROCESSOR.to_owned());
    options.push(format!(
        "-qmp unix:{},server=on,wait=off",
        socket(&share).display()
    ));
    options.push(format!("-pidfile {}", share.join("pid").display()));
    if script.is_some() {
        // A kernel has one console of a kind, and virtme-ng's is the serial one.
        let console = guest::console(spec.name);
        options.push(format!(
            "-chardev file,id=kernel,path={} -device virtio-serial-pci \
             -device virtconsole,chardev=kernel",
            console.display()
        ));
    }
    if let Some(root) = &rig.qemu {
        // Its own files, and firmware that packages of other names hold.
        let own = root.join("usr/share/qemu");
        let own = own.display();
        options.push(format!("-L {own} -L /usr/share/qemu -L /usr/share/seabios"));
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = host::mortal();
    if script.is_none() {
        command.arg("--foreground"); // a shell must be able to read the terminal
    }
    command.args(["--kill-after=10", &spec.limit_s.to_string()]);
    command.arg(rig.bin.join("vng")).arg("--disable-kvm");
    if let Some(root) = &rig.qemu {
        command.arg("--qemu").arg(Emulator::program(root));
    }
    command.arg("--run").arg(&rig.vmlinuz);
    command.args([
        "--cpus",
        &spec.cpus.to_string(),
        "--memory",
        &format!("{}M", spec.memory_mib),
        "--user",
        "root",
    ]);
    command
        .arg("--rwdir")
        .arg(share.parent().expect("a share lies in a folder"))
        .arg(format!("--qemu-opts={}", options.join(" ")));
    command
        .env("PATH", format!("{}:{path}", rig.bin.display()))
        .current_dir(&share);
    command.args(["--append", &QUICK.join(" ")]);
    if let Some(script) = script {
        command.args(["--append", "console=hvc0 loglevel=5", "--", script]);
    }
    command
}

/// A Unix socket's path may have 107 bytes; a deep checkout has more, so it goes to /tmp.
pub(crate) fn socket(share: &Path) -> PathBuf {
    let name = share
        .file_name()
        .expect("a share has a name")
        .to_string_lossy()
        .into_owned();
    std::env::temp_dir().join(format!("strake-qmp-{}-{name}", std::process::id()))
}

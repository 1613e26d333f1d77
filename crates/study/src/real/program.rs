//! Programs of the system that a study on real drives needs: fio, nvme, blkdiscard.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where Debian keeps root's programs, beside PATH.
const USUAL: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Where a program is; the error names the package that brings it.
pub fn find(program: &str, package: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(USUAL.iter().map(PathBuf::from));
    let mut files = folders.map(|folder| folder.join(program));
    files
        .find(|file| file.is_file())
        .ok_or_else(|| format!("{program} is not installed: install the package {package}"))
}

/// Runs a program about a device, and answers what it printed.
pub(super) fn output(program: &Path, args: &[&str], device: &Path) -> Result<Vec<u8>, String> {
    let shown = program.display();
    let output = Command::new(program)
        .args(args)
        .arg(device)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{shown}: {error}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said
                .trim()
                .lines()
                .next()
                .unwrap_or("it said nothing")
                .to_owned();
            let (args, device) = (args.join(" "), device.display());
            Err(format!(
                "{shown} {args} {device}: {said} ({})",
                output.status
            ))
        }
    }
}

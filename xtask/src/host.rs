//! The machine xtask runs on: where the workspace and its target folder lie, and how a command is
//! run.
//!
//! Commands never read from the terminal, and each has a limit on its time, held by coreutils'
//! `timeout`, so that a hung child fails a step instead of hanging the whole run.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The root of the workspace. xtask is always built inside the tree that it works on.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the workspace")
        .to_path_buf()
}

/// Cargo's target folder: that of the environment, else the workspace's own.
pub(crate) fn target() -> PathBuf {
    let dir = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    if dir.is_absolute() {
        dir
    } else {
        root().join(dir)
    }
}

/// The release build of the product's binary, whether it is there yet or not.
pub(crate) fn strake_binary() -> PathBuf {
    target().join("release").join("strake")
}

/// Cargo as the toolchain file picks it, run from the workspace root.
pub(crate) fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// What a finished command left behind.
pub(crate) struct Finished {
    pub(crate) ok: bool,
    /// Ran past its limit and was ended.
    pub(crate) timed_out: bool,
    /// Standard output and standard error, in the order in which they were written.
    pub(crate) text: String,
}

impl Finished {
    /// The last `count` lines, which show why a step failed.
    pub(crate) fn tail(&self, count: usize) -> String {
        tail(&self.text, count)
    }
}

/// The last `count` lines of a text.
pub(crate) fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// `timeout`, to be given a limit and a command. It ends what it started when its time is over, and
/// also when xtask itself is ended: an emulator must not live on for minutes after a Ctrl-C.
pub(crate) fn mortal() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "--", "timeout"]);
    command
}

/// Runs a command from the workspace root with both its streams in one log file, and returns the
/// log.
pub(crate) fn logged(name: &str, limit_s: u64, argv: &[&str]) -> Result<Finished> {
    logged_with(name, limit_s, argv, &[])
}

/// As [`logged`], with variables added to the environment.
pub(crate) fn logged_with(
    name: &str,
    limit_s: u64,
    argv: &[&str],
    env: &[(&str, &str)],
) -> Result<Finished> {
    let folder = target().join("xtask-logs");
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{}.log", name.replace(['/', ' '], "-")));
    let log = File::create(&path).with_context(|| path.display().to_string())?;
    let status = mortal()
        .args(["--kill-after=15", &limit_s.to_string()])
        .args(argv)
        .envs(env.iter().copied())
        .current_dir(root())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()
        .with_context(|| format!("run {}", argv.join(" ")))?;
    let text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
    // 124: ended by SIGTERM at the limit; 137: that did not help, and SIGKILL followed.
    let timed_out = matches!(status.code(), Some(124 | 137));
    Ok(Finished {
        ok: status.success(),
        timed_out,
        text,
    })
}

/// Runs a command in the open: its streams are the caller's. Returns whether it succeeded.
pub(crate) fn open(argv: &[&str], env: &[(&str, &str)]) -> Result<bool> {
    let (program, args) = argv.split_first().expect("a command has a program");
    let status = Command::new(program)
        .args(args)
        .envs(env.iter().copied())
        .current_dir(root())
        .status()
        .with_context(|| format!("run {program}"))?;
    Ok(status.success())
}

/// Runs a short command and returns its standard output.
pub(crate) fn output(argv: &[&str]) -> Result<String> {
    let (program, args) = argv.split_first().expect("a command has a program");
    let output = Command::new(program)
        .args(args)
        .current_dir(root())
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("run {program}"))?;
    if !output.status.success() {
        bail!(
            "{}: {}",
            argv.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What cargo knows of the workspace's own packages.
pub(crate) fn metadata() -> Result<Value> {
    let cargo = cargo();
    let text = output(&[
        &cargo,
        "metadata",
        "--no-deps",
        "--offline",
        "--format-version",
        "1",
    ])
    .or_else(|_| output(&[&cargo, "metadata", "--no-deps", "--format-version", "1"]))?;
    serde_json::from_str(&text).context("cargo metadata is JSON")
}

/// The packages of the workspace.
pub(crate) fn packages(metadata: &Value) -> &[Value] {
    metadata["packages"].as_array().map_or(&[], Vec::as_slice)
}

/// The names of the targets of one kind (`bin`, `bench`, `lib`, …) of one package.
pub(crate) fn targets(metadata: &Value, package: &str, kind: &str) -> Vec<String> {
    let of_package = packages(metadata).iter().filter(|p| p["name"] == package);
    of_package
        .flat_map(|p| p["targets"].as_array().cloned().unwrap_or_default())
        .filter(|t| {
            t["kind"]
                .as_array()
                .is_some_and(|kinds| kinds.iter().any(|k| k == kind))
        })
        .filter_map(|t| t["name"].as_str().map(str::to_owned))
        .collect()
}

//! `cargo xtask package`: a .deb and an .rpm of the release build.
//!
//! Order: the release binary writes its manual pages and completions → licences of the libraries in
//! it → cargo-deb and cargo-generate-rpm pack them with what lies in `packaging/`. Which file goes
//! where stands in `crates/strake/Cargo.toml`.
//!
//! The step of the whole run packs the binary that is there already, looks at what came out, and
//! installs and purges the .deb in a copy of the machine's own root that is thrown away.

mod check;
mod licences;

use crate::host;
use crate::need;
use crate::outcome::Outcome;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::OnceLock;

#[derive(Args)]
pub(crate) struct Options {
    /// Pack the release build that is there
    #[arg(long)]
    no_build: bool,
}

/// zsh reads the file when it completes `strake` for the first time, as the body of `_strake`: that
/// time the function is called here.
const ZSH_LOADS: &str = "[[ $funcstack[1] != _strake ]] || _clap_dynamic_completer_strake \"$@\"\n";

/// Where the packages are.
struct Packages {
    deb: PathBuf,
    rpm: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if !options.no_build {
        let cargo = host::cargo();
        if !host::open(&[&cargo, "build", "--release", "-p", "strake"], &[])? {
            return Ok(ExitCode::FAILURE);
        }
    }
    let made = make()?;
    println!("{}\n{}", made.deb.display(), made.rpm.display());
    Ok(ExitCode::SUCCESS)
}

/// Packs the binary that was built before, and checks the packages.
pub(crate) fn step() -> Result<Outcome> {
    if !host::strake_binary().exists() {
        return Ok(Outcome::skipped("no release build of strake"));
    }
    check::all(made()?)
}

/// The .deb of the release build that is there.
pub(crate) fn deb() -> Result<&'static Path> {
    Ok(&made()?.deb)
}

/// The packages of this run: what asks first makes them.
fn made() -> Result<&'static Packages> {
    static MADE: OnceLock<Result<Packages, String>> = OnceLock::new();
    let made = MADE.get_or_init(|| make().map_err(|why| format!("{why:#}")));
    made.as_ref().map_err(|why| anyhow!("{why}"))
}

fn make() -> Result<Packages> {
    let binary = host::strake_binary();
    if !binary.exists() {
        bail!("{} is not there: omit --no-build", binary.display());
    }
    let folder = host::target().join("release/package");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    for below in ["man", "completions"] {
        fs::create_dir_all(folder.join(below))?;
    }
    strip(&binary, &folder.join("strake"))?;
    manual(&binary, &folder.join("man"))?;
    completions(&binary, &folder.join("completions"))?;
    let licences = folder.join("third-party-licences");
    fs::write(&licences, licences::text()?)?;
    let log = folder.join("changelog.Debian");
    fs::write(&log, changelog()?)?;
    compress(&[licences, log])?;
    let out = host::target().join("package");
    fs::create_dir_all(&out)?;
    let out = out.display().to_string();
    let deb = [
        "deb",
        "--package",
        "strake",
        "--no-build",
        "--strip",
        "--compress-system",
        "--output",
        &out,
    ];
    let rpm = [
        "generate-rpm",
        "--package",
        "crates/strake",
        "--auto-req",
        "builtin",
        "--output",
        &out,
    ];
    Ok(Packages {
        deb: packed("cargo-deb", &deb, "deb")?,
        rpm: packed("cargo-generate-rpm", &rpm, "rpm")?,
    })
}

/// Runs a cargo command that packs; the newest file with such a name is what it made.
fn packed(tool: &str, args: &[&str], extension: &str) -> Result<PathBuf> {
    let path = need::cargo_tool(tool)?;
    let cargo = host::cargo();
    let argv = [&["env", &path, &cargo][..], args].concat();
    let finished = host::logged(tool, 300, &argv)?;
    if !finished.ok {
        bail!("{tool} fails:\n{}", finished.tail(30));
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(host::target().join("package"))? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|is| is == extension) {
            found.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    let (_, newest) = found.into_iter().max().context("it made no package")?;
    Ok(newest)
}

/// The program without what only debuggers read; cargo-deb does the same by itself.
fn strip(binary: &Path, into: &Path) -> Result<()> {
    let (program, into) = (binary.display().to_string(), into.display().to_string());
    host::output(&["strip", "-o", &into, &program])?;
    Ok(())
}

fn manual(binary: &Path, folder: &Path) -> Result<()> {
    let (program, into) = (binary.display().to_string(), folder.display().to_string());
    host::output(&[&program, "man", &into])?;
    let pages = fs::read_dir(folder)?.map(|page| Ok(page?.path()));
    compress(&pages.collect::<Result<Vec<_>>>()?)
}

/// Compresses files as packages have them: the same input gives the same bytes.
fn compress(files: &[PathBuf]) -> Result<()> {
    let files: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    host::output(&[&["gzip", "-9nf"], &files[..]].concat())?;
    Ok(())
}

/// Shells run `strake` by the name under which it is installed.
fn completions(binary: &Path, folder: &Path) -> Result<()> {
    for shell in ["bash", "zsh", "fish"] {
        let output = Command::new(binary)
            .arg0("strake")
            .args(["completions", shell])
            .stdin(Stdio::null())
            .output()?;
        if !output.status.success() {
            bail!("strake completions {shell} fails");
        }
        let mut script = output.stdout;
        if shell == "zsh" {
            script.extend(ZSH_LOADS.bytes());
        }
        fs::write(folder.join(format!("strake.{shell}")), script)?;
    }
    Ok(())
}

/// The changelog in Debian's form: it points to that of the project.
fn changelog() -> Result<String> {
    let metadata = host::metadata()?;
    let packages = metadata["packages"].as_array();
    let mut packages = packages.into_iter().flatten();
    let strake = packages.find(|package| package["name"] == "strake");
    let strake = strake.context("the workspace has a package strake")?;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let (version, maintainer) = (
        text(&strake["version"]),
        text(&strake["metadata"]["deb"]["maintainer"]),
    );
    let date = host::output(&["git", "log", "-1", "--format=%cD"])?;
    Ok(format!(
        "strake ({version}-1) unstable; urgency=medium\n\n  * See {}.\n\n -- {maintainer}  {}\n",
        text(&strake["repository"]),
        date.trim()
    ))
}

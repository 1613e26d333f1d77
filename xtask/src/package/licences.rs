//! The licences of the libraries that are linked into the binary.
//!
//! Deliberately absent: a judgement about them.

use crate::host;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// How names of files with a licence, or with what belongs to one, begin.
const FILES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];

/// Name, version, licence and the text of each licence of every library.
pub(super) fn text() -> Result<String> {
    let (cargo, target) = (host::cargo(), target()?);
    let argv = [
        &cargo,
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--filter-platform",
        &target,
    ];
    let metadata: Value = serde_json::from_str(&host::output(&argv)?)?;
    let linked = linked(&metadata).context("cargo metadata has packages that depend on others")?;
    let mut text = String::from("Libraries of others in the program strake.\n");
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let id = package["id"].as_str().unwrap_or_default();
        if !linked.contains(id) || package["source"].is_null() {
            continue;
        }
        let say = |key: &str| package[key].as_str().unwrap_or("(none named)").to_owned();
        let line = "=".repeat(79);
        text += &format!(
            "\n{line}\n{} {}\nLicence: {}\nSource: {}\n",
            say("name"),
            say("version"),
            say("license"),
            say("repository")
        );
        let manifest = say("manifest_path");
        let folder = Path::new(&manifest).parent().context("it is in a folder")?;
        for (name, licence) in files(folder)? {
            text += &format!("\n{name}:\n\n{}\n", licence.trim_end());
        }
    }
    Ok(text)
}

/// What the compiler builds for.
fn target() -> Result<String> {
    let said = host::output(&["rustc", "-vV"])?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc names its host")?.to_owned())
}

/// The packages that `strake` is linked from: not those that only build or test it.
fn linked(metadata: &Value) -> Option<BTreeSet<&str>> {
    let nodes = metadata["resolve"]["nodes"].as_array()?;
    let of: BTreeMap<&str, &Value> = nodes
        .iter()
        .filter_map(|node| Some((node["id"].as_str()?, node)))
        .collect();
    let packages = metadata["packages"].as_array()?;
    let root = packages
        .iter()
        .find(|package| package["name"] == "strake")?;
    let mut found = BTreeSet::new();
    let mut next = vec![root["id"].as_str()?];
    while let Some(id) = next.pop() {
        if !found.insert(id) {
            continue;
        }
        for dependency in of.get(id)?["deps"].as_array()? {
            let kinds = dependency["dep_kinds"].as_array()?;
            if kinds.iter().any(|kind| kind["kind"].is_null()) {
                next.push(dependency["pkg"].as_str()?);
            }
        }
    }
    Some(found)
}

/// The files of a package with a licence, in order of name.
fn files(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let upper = name.to_uppercase();
        if FILES.iter().any(|begin| upper.starts_with(begin)) && entry.file_type()?.is_file() {
            let bytes = fs::read(entry.path())?;
            found.insert(name, String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    Ok(found)
}

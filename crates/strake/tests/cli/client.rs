//! A client of another language: openapi-python-client makes one from the daemon's document, and a
//! program uses it against that daemon.
//!
//! Deliberately absent: the generated client from the repository; it is made anew in each run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::rig::{Rig, has, skipped};

const VERSIONS: &str = include_str!("client.txt");

/// Runs a program to its end: what it printed, else what it said of its failure.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| e.to_string())?;
    let [out, err] =
        [output.stdout, output.stderr].map(|o| String::from_utf8_lossy(&o).into_owned());
    match output.status.success() {
        true => Ok(out),
        false => Err(format!("{command:?}: {out}{err}")),
    }
}

/// The folder of a Python with the generator, beside what Cargo builds: it is made once for each
/// list of versions.
fn python() -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("api-client");
    let stamp = folder.join("versions");
    if fs::read_to_string(&stamp).is_ok_and(|made| made == VERSIONS) {
        return Ok(folder);
    }
    if !has("python3") {
        return Err("python3 is not installed".to_owned());
    }
    // One that was left half made is made anew.
    let _ = fs::remove_dir_all(&folder);
    run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    let versions = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/client.txt");
    let mut pip = Command::new(folder.join("bin/pip"));
    pip.args([
        "install",
        "--quiet",
        "--no-deps",
        "--disable-pip-version-check",
        "-r",
    ]);
    run(pip.arg(versions))?;
    fs::write(&stamp, VERSIONS).map_err(|e| e.to_string())?;
    Ok(folder)
}

#[test]
fn a_python_client_made_from_the_document_runs_an_array() {
    let python = match python() {
        Ok(folder) => folder.join("bin"),
        Err(why) => return skipped(&format!("no Python with openapi-python-client: {why}")),
    };
    let mut rig = Rig::new();
    rig.start_daemon();
    let answer = rig.ask("GET", "/openapi.json");
    let (_, document) = answer.split_once("\r\n\r\n").expect("a head");
    fs::write(rig.path("openapi.json"), document).expect("written");
    let mut generate = Command::new(python.join("openapi-python-client"));
    generate.args(["generate", "--meta", "none", "--path"]);
    generate.arg(rig.path("openapi.json")).arg("--output-path");
    generate.arg(rig.path("client/strake_client"));
    let said = run(&mut generate).expect("a client");
    // It knows no streams, and says so. Of all else it makes something.
    let unknown = ["application/x-ndjson", "text/event-stream"];
    for line in said.lines().filter(|line| line.contains("Cannot parse")) {
        assert!(unknown.iter().any(|media| line.contains(media)), "{said}");
    }
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/client.py");
    let mut uses = Command::new(python.join("python"));
    uses.arg(program).arg(rig.path("client"));
    uses.arg(rig.dir().join("api.sock")).args(rig.files(2));
    let said = run(&mut uses).expect("it runs an array");
    let did: Vec<&str> = said.lines().skip(1).collect();
    let all = [
        "refused level-unknown",
        "made data",
        "scrubbed data",
        "deleted data",
    ];
    assert_eq!(did, all, "{said}");
}

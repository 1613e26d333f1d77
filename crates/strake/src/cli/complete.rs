//! What the shell offers for names: of arrays, their members and volumes, pools, settings.
//!
//! Order: the shell runs `strake` with STRAKE_COMPLETE and the words of the line; clap's engine
//! finds the argument that is completed, and asks here for names; they go to standard output, a
//! name a line.
//!
//! Invariants: nothing is changed, nothing is printed but names, and no key is waited for longer
//! than [`PATIENCE`]. A daemon that does not answer has no names. Deliberately absent: looking at
//! drives; that takes long, and needs root.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use clap::{Arg, Command, CommandFactory};
use clap_complete::env::{EnvCompleter, Shells};
use clap_complete::{ArgValueCompleter, CompleteEnv, CompletionCandidate, Shell};
use serde::de::DeserializeOwned;

use crate::api::{ArrayJson, PoolJson, VolumeJson};
use crate::cli::args::Cli;
use crate::cli::client::Client;
use crate::common::absolute;
use crate::daemon::state::Dir;
use crate::settings as ranges;

/// With it in its environment, the program completes a line.
const VARIABLE: &str = "STRAKE_COMPLETE";
/// So long the daemon may take for names.
const PATIENCE: Duration = Duration::from_secs(2);

/// Completes a line and ends, if the shell asks for that.
pub(crate) fn answer_shell() {
    CompleteEnv::with_factory(|| with_names(Cli::command()))
        .var(VARIABLE)
        .complete();
}

/// What a shell has to run once, so that it asks.
pub(crate) fn script(shell: Shell) -> io::Result<Vec<u8>> {
    let shells = Shells::builtins();
    let shell = shells.completer(&shell.to_string());
    let shell: &dyn EnvCompleter = shell.expect("clap's shells are all in the list");
    let program = std::env::args_os().next().unwrap_or_default();
    let program = match PathBuf::from(&program) {
        path if path.components().count() > 1 => absolute(&path),
        path => path,
    };
    let mut script = Vec::new();
    let program = program.to_string_lossy();
    shell.write_registration(VARIABLE, "strake", "strake", &program, &mut script)?;
    Ok(script)
}

/// The command with what its arguments may be.
fn with_names(command: Command) -> Command {
    let makes = command.get_name() == "create";
    let named = |arg: Arg| {
        let offers = match arg.get_id().as_str() {
            // What is to be made has no name yet.
            "name" | "pool" | "volume" if makes && arg.is_positional() => return arg,
            "name" | "array" => ArgValueCompleter::new(arrays),
            "member" => ArgValueCompleter::new(members),
            "pool" => ArgValueCompleter::new(pools),
            "volume" => ArgValueCompleter::new(volumes),
            "settings" => ArgValueCompleter::new(|current: &OsStr| settings(current, "=")),
            "key" => ArgValueCompleter::new(|current: &OsStr| settings(current, "")),
            _ => return arg,
        };
        arg.add(offers)
    };
    command.mut_args(named).mut_subcommands(with_names)
}

/// What the daemon answers; nothing where it does not, or not soon.
fn asked<T: DeserializeOwned + Default + Send + 'static>(path: &'static str) -> T {
    let (told, tells) = mpsc::channel();
    let ask = move || {
        let client = Client::listening(&Dir::from_env()).ok().flatten();
        // Nothing hears an answer that comes too late.
        let _ = told.send(client.and_then(|client| client.get(path).ok()));
    };
    if strake_runtime::spawn_thread("completion", ask).is_err() {
        return T::default();
    }
    let told = tells.recv_timeout(PATIENCE).ok().flatten();
    told.unwrap_or_default()
}

fn all_arrays() -> Vec<ArrayJson> {
    asked("/v1/arrays")
}

/// Those that begin with what stands there, each with what is said of it.
fn offered(
    current: &OsStr,
    all: impl IntoIterator<Item = (String, String)>,
) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let fits = |(name, _): &(String, String)| name.starts_with(&*current);
    all.into_iter()
        .filter(fits)
        .map(|(name, about)| CompletionCandidate::new(name).help(Some(about.into())))
        .collect()
}

fn arrays(current: &OsStr) -> Vec<CompletionCandidate> {
    let about = |array: ArrayJson| {
        (
            array.name,
            format!("level {}, {}", array.level, array.state),
        )
    };
    offered(current, all_arrays().into_iter().map(about))
}

fn pools(current: &OsStr) -> Vec<CompletionCandidate> {
    let about = |pool: PoolJson| (pool.name, format!("{} devices", pool.devices.len()));
    let all: Vec<PoolJson> = asked("/v1/pools");
    offered(current, all.into_iter().map(about))
}

/// The array that a word of the line names.
fn array_of_the_line() -> Option<ArrayJson> {
    let words: Vec<OsString> = std::env::args_os()
        .skip_while(|word| word != "--")
        .collect();
    let is_named = |array: &ArrayJson| {
        let mut words = words.iter();
        words.any(|word| *word == *array.name || *word == *array.uuid)
    };
    all_arrays().into_iter().find(is_named)
}

/// Slots, and devices.
fn members(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(array) = array_of_the_line() else {
        return Vec::new();
    };
    let all = array.members.into_iter().chain(array.spares);
    let names = all.flat_map(|member| {
        let device = member.device.clone().unwrap_or_default();
        let slot = member.slot.map(|slot| slot.to_string());
        let slot = slot.map(|slot| (slot, format!("{} {device}", member.state)));
        let device = member.device.map(|device| (device, member.state));
        slot.into_iter().chain(device)
    });
    offered(current, names)
}

fn volumes(current: &OsStr) -> Vec<CompletionCandidate> {
    let all = array_of_the_line().map(|array| array.volumes.volumes);
    let about = |volume: VolumeJson| (volume.name, volume.uuid);
    offered(current, all.unwrap_or_default().into_iter().map(about))
}

/// Settings as commands have them.
fn settings(current: &OsStr, behind: &str) -> Vec<CompletionCandidate> {
    let all = ranges::spoken().map(|(key, takes)| (format!("{key}{behind}"), takes.to_owned()));
    offered(current, all)
}

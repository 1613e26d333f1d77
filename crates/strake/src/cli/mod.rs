//! The command line: its arguments, where it works, how it asks the daemon and answers.
//!
//! Invariants: exit codes and error lines are those of cli.md; nothing prompts without a terminal;
//! a dry run changes nothing. Deliberately absent: the commands themselves (`commands`).

#[cfg(test)]
mod advised;
pub(crate) mod args;
pub(crate) mod client;
pub(crate) mod complete;
pub(crate) mod latency;
pub(crate) mod output;
pub(crate) mod paint;
pub(crate) mod stopped;
pub(crate) mod stopping;
pub(crate) mod wait;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::OnceLock;

use serde::Serialize;
use strake_format::ArrayUuid;

use crate::api::{ArrayJson, OutcomeJson};
use crate::cli::client::Client;
use crate::cli::paint::Paint;
use crate::common::errors::{Code, Exit, Failure};
use crate::common::shown;
use crate::daemon::service::outcome;
use crate::daemon::state::Dir;
use crate::settings::words::parse_name;
use crate::view;

/// How it ended: 0, or 5 for "done, but the array is degraded".
pub(crate) type Ended = Result<u8, Failure>;

pub(crate) const DONE: u8 = 0;

/// Why an answer could not be written to standard output.
static UNWRITTEN: OnceLock<Failure> = OnceLock::new();

/// Writes to standard output. Answers false if that is not possible: the reader has gone away
/// (head, less) and does not want the rest, or it failed otherwise, which [`unwritten`] has then.
pub(crate) fn print(bytes: &[u8]) -> bool {
    let mut out = std::io::stdout().lock();
    printed(out.write_all(bytes).and_then(|()| out.flush()))
}

/// The same of something that was written already.
pub(crate) fn printed(written: std::io::Result<()>) -> bool {
    let Err(error) = written else { return true };
    if error.kind() != std::io::ErrorKind::BrokenPipe {
        let found = format!("the answer cannot be written to standard output: {error}");
        let cure = "what was asked for is done, but its answer is not whole: make room where it \
                    goes, or send it elsewhere";
        // The first one says it.
        let _ = UNWRITTEN.set(Failure::new(Code::Io, found).cure(cure));
    }
    false
}

/// Why standard output lacks some of the answer, unless its reader has gone away.
pub(crate) fn unwritten() -> Option<Failure> {
    UNWRITTEN.get().cloned()
}

/// Where the CLI works and how it answers.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) dir: Dir,
    pub(crate) json: bool,
}

impl Context {
    /// Prints an answer.
    pub(crate) fn say<T: Serialize>(&self, value: &T, human: impl FnOnce(&T) -> String) {
        let text = if self.json {
            let json = serde_json::to_string(value).expect("the shapes are all JSON");
            format!("{json}\n")
        } else {
            // Names of devices may hold anything, also what a terminal takes for a command.
            shown(&human(value), '\n')
        };
        print(text.as_bytes());
    }
    /// The same with colour, where standard output has it. The text is safe for a terminal.
    pub(crate) fn say_painted<T: Serialize>(
        &self,
        value: &T,
        human: impl FnOnce(&T, Paint) -> String,
    ) {
        match self.json {
            true => self.say(value, |_| String::new()),
            false => {
                print(human(value, Paint::of_stdout()).as_bytes());
            }
        }
    }
    /// Tells what is good to know; in JSON the answer has it.
    pub(crate) fn notes(&self, notes: &[String]) {
        if !self.json {
            notes
                .iter()
                .for_each(|note| tell!("note: {}", shown(note, ' ')));
        }
    }
    /// Says on standard error what the answer is worth, also with `--json`: where the answer has no
    /// place for it.
    pub(crate) fn aside(&self, note: &str) {
        // A reader that has gone away does not want it.
        let _ = match self.json {
            true => writeln!(std::io::stderr(), "{}", serde_json::json!({ "note": note })),
            false => writeln!(std::io::stderr(), "note: {}", shown(note, ' ')),
        };
    }
    pub(crate) fn outcome(&self, outcome: &OutcomeJson) -> Ended {
        self.notes(&outcome.notes);
        self.say(outcome, |o| {
            let unchanged = if o.changed { "" } else { " (nothing changed)" };
            format!("{}: {}{unchanged}\n", o.array, o.what)
        });
        Ok(DONE)
    }
    pub(crate) fn would(&self, array: &str, what: &str) -> Ended {
        let planned = Planned {
            dry_run: true,
            array: array.to_owned(),
            would: what.to_owned(),
        };
        self.say(&planned, |p| format!("{}: would {}\n", p.array, p.would));
        Ok(DONE)
    }
    /// What the daemon says that it would do; what else it says is why there is nothing to do.
    pub(crate) fn planned(&self, outcome: &OutcomeJson) -> Ended {
        match outcome.what.strip_prefix("would ") {
            Some(what) => self.would(&outcome.array, what),
            None => self.would(&outcome.array, &format!("change nothing: {}", outcome.what)),
        }
    }
    pub(crate) fn array(&self, array: &ArrayJson) -> Ended {
        self.say_painted(array, output::array);
        if array.state == "failed" {
            // What is asked for does not come of starting it once more.
            let failed = view::failed(array);
            self.aside(&format!("{}; {}", failed.found, failed.cure));
        }
        Ok(state_exit(array))
    }
}

/// What a dry run answers.
#[derive(Debug, Serialize)]
struct Planned {
    dry_run: bool,
    array: String,
    would: String,
}

/// 5 when degraded, 6 when failed.
pub(crate) fn state_exit(array: &ArrayJson) -> u8 {
    match array.state.as_str() {
        "degraded" => Exit::Degraded as u8,
        "failed" => Exit::ArrayFailed as u8,
        _ => DONE,
    }
}

/// Nothing here serves it, but perhaps another process.
pub(crate) fn is_not_served(array: &ArrayJson) -> bool {
    matches!(array.state.as_str(), "stopped" | "unknown")
}

/// Says which devices are not looked at because the array runs.
pub(crate) fn note_ignored(
    context: &Context,
    client: &Client,
    name: &str,
    devices: &[PathBuf],
) -> Result<(), Failure> {
    if devices.is_empty() {
        return Ok(());
    }
    // An array that is not found is for the command itself to refuse.
    let array = client.get::<ArrayJson>(&url(name, "")?);
    if array.is_ok_and(|array| !is_not_served(&array)) {
        let shown: Vec<String> = devices.iter().map(|d| d.display().to_string()).collect();
        let shown = shown.join(", ");
        let are = if devices.len() == 1 { "is" } else { "are" };
        context.aside(&format!("{name} runs already: {shown} {are} not looked at"));
    }
    Ok(())
}

/// A name or uuid that is fit for a URL.
pub(crate) fn checked(name: &str) -> Result<&str, Failure> {
    if name.parse::<ArrayUuid>().is_err() {
        parse_name(name)?;
    }
    Ok(name)
}

pub(crate) fn url(name: &str, verb: &str) -> Result<String, Failure> {
    let name = checked(name)?;
    Ok(if verb.is_empty() {
        format!("/v1/arrays/{name}")
    } else {
        format!("/v1/arrays/{name}/{verb}")
    })
}

/// The one rule for all that destroys data: it is asked about on a terminal, and without one
/// `--yes` must say it.
pub(crate) fn confirm(yes: bool, what: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::new(Code::NotConfirmed, what));
    }
    // Without a terminal there is no answer.
    let _ = write!(std::io::stderr(), "{}. Go on? [y/N] ", shown(what, ' '));
    let mut line = String::new();
    // Nothing read means no.
    let _ = std::io::stdin().read_line(&mut line);
    match line.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::new(Code::NotConfirmed, what)),
    }
}

/// The same for what is asked for with `--force` (or `--shrink`): all that this overrides is what
/// would be destroyed, and `what` says by which command. `check` asks for a dry run, with the
/// option or without: the refusal of the latter names all of it. Where nothing has to be overridden
/// there is no question, and what is refused all the same is refused before it.
pub(crate) fn confirm_force<T>(
    yes: bool,
    what: &str,
    check: impl Fn(bool) -> Result<T, Failure>,
) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    check(true)?;
    match check(false) {
        // Redundancy goes, and no data.
        Err(failure) if failure.code != Code::LastParity => {
            confirm(false, &format!("{what}: {}", failure.found))
        }
        _ => Ok(()),
    }
}

/// The same for a start that wipes what lies over members, or takes in members that may have lost
/// their content, because too few are left without them. `check` rehearses the start, with
/// `--force` or without, and answers what would be wiped.
pub(crate) fn confirm_start(
    yes: bool,
    name: &str,
    check: impl Fn(bool) -> Result<Vec<String>, Failure>,
) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    // What is refused with it is refused by the start itself.
    let Ok(wiped) = check(true) else {
        return Ok(());
    };
    if !wiped.is_empty() {
        let what = format!("strake start --force {name} {}", would_wipe(&wiped));
        confirm(false, &what)?;
    }
    match would_believe(check) {
        Some(believed) => confirm(
            false,
            &format!("strake start --force {name} would {believed}"),
        ),
        None => Ok(()),
    }
}

/// What a start by `--force` would believe, in words: without it, it is refused for that. `check`
/// as of [`confirm_start`].
pub(crate) fn would_believe(
    check: impl Fn(bool) -> Result<Vec<String>, Failure>,
) -> Option<String> {
    let failure = check(false).err()?;
    let is = failure.code == Code::MembersEmptied;
    is.then(|| {
        format!(
            "believe members that may have lost their content: {}",
            failure.found
        )
    })
}

/// What a start would wipe off members, in words.
pub(crate) fn would_wipe(wiped: &[String]) -> String {
    format!("would wipe partition tables: {}", wiped.join("; "))
}

/// What a dry run answers of a start, and of all else that is said of it.
pub(crate) fn would_start(what: &str, wiped: &[String], believed: Option<&str>) -> String {
    let wiped = (!wiped.is_empty()).then(|| would_wipe(wiped));
    let believed = believed.map(|believed| format!("would {believed}"));
    let all = [Some(what.to_owned()), wiped, believed];
    let all: Vec<String> = all.into_iter().flatten().collect();
    all.join(", and ")
}

/// The outcome of something done without a daemon.
pub(crate) fn done(array: &str, what: &str) -> OutcomeJson {
    outcome(array, true, what)
}

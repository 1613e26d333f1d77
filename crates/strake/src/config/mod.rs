//! `strake.toml`: what an administrator says for the daemon of this machine.
//!
//! A section is a struct; its fields are the keys, their documentation is what the commented
//! `packaging/strake.toml` says of them, their `Default` is what holds where nothing is said.
//!
//! Invariants: no file is needed, and no array is named in one (members carry what arrays are); a
//! key that is not known is an error; what TOML or a range refuses is named by file, line and key.
//! A file that others could write is not used. Deliberately absent: settings of arrays
//! (`strake set`).

pub(crate) mod alerts;
#[cfg(test)]
pub(crate) mod example;
pub(crate) mod metrics;
pub(crate) mod values;

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::errors::{Code, Failure};
use crate::common::files::{self, replace_bytes};
use crate::config::metrics::Metrics;
use crate::config::values::{Bytes, Time, Whole};
use crate::settings::degraded::DegradedStart;

/// Where it lies, unless STRAKE_DIR or `--config` say otherwise.
pub(crate) const PATH: &str = "/etc/strake/strake.toml";

/// No such file is as large.
const BYTES_MAX: u64 = 1 << 20;

/// All sections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Configuration {
    /// What the daemon looks at and how it serves. Options of `strake daemon` outweigh it.
    pub(crate) daemon: Daemon,
    /// Metrics for Prometheus, beside `/metrics` on the daemon's socket.
    pub(crate) metrics: Metrics,
    /// The channels by which the daemon tells of what is wrong; any number of them.
    pub(crate) alerts: Vec<alerts::Channel>,
}

/// What the daemon looks at and how it serves. Options of `strake daemon` outweigh it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Daemon {
    /// Devices, files, or folders of files that are looked at, too. Absolute paths.
    pub(crate) scan: Vec<PathBuf>,
    /// Whether the machine's block devices are looked at: true or false.
    pub(crate) devices: bool,
    /// How long an array may wait for missing members: 0s to 7d.
    pub(crate) wait: Time<0, 604_800_000>,
    /// What becomes of an array that could start without its missing members, unless it has a
    /// setting of its own: "allow" (it starts at once), "wait" (it starts when it has waited) or
    /// "never" (it waits for `strake start NAME`).
    pub(crate) degraded: DegradedStart,
    /// Threads for each array: 1 to 64. Unless set: one for each CPU, 4 at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 4)]
    pub(crate) shards: Option<Whole<1, 64>>,
    /// Buffer memory of each thread, a size: 1M to 1T.
    pub(crate) memory: Bytes<0x10_0000, 0x100_0000_0000>,
    /// A member I/O that takes longer counts as timed out; one that fails on its way is tried again
    /// for as long: 100ms to 1h.
    pub(crate) io_timeout: Time<100, 3_600_000>,
}

impl Default for Daemon {
    fn default() -> Daemon {
        Daemon {
            scan: Vec::new(),
            devices: true,
            wait: Time::from_secs(10),
            degraded: DegradedStart::Wait,
            shards: None,
            memory: Bytes::new(64 << 20),
            io_timeout: Time::from_secs(75),
        }
    }
}

/// A configuration, and why it is not what the file says.
#[derive(Clone, Debug)]
pub(crate) struct InUse {
    pub(crate) configuration: Configuration,
    /// What the file says, if there is one that can be used.
    text: Option<String>,
    /// What is wrong with the file, and what holds instead.
    pub(crate) instead: Option<(Failure, &'static str)>,
}

impl InUse {
    /// What a file says; the defaults where there is none.
    ///
    /// # Errors
    /// It cannot be read, others could write it, or it says what is not known or not possible.
    pub(crate) fn read(path: &Path) -> Result<InUse, Failure> {
        let text = text_of(path)?;
        let configuration = text.as_ref().map(|text| parse(path, text)).transpose()?;
        Ok(InUse {
            configuration: configuration.unwrap_or_default(),
            text,
            instead: None,
        })
    }

    /// The same of a file that must be there.
    ///
    /// # Errors
    /// As above, and that it is not there.
    pub(crate) fn read_named(path: &Path) -> Result<InUse, Failure> {
        let read = InUse::read(path)?;
        match read.exists() {
            true => Ok(read),
            false => {
                let found = format!("{} does not exist", path.display());
                Err(Failure::new(Code::FileNotFound, found))
            }
        }
    }

    /// What the daemon goes on with: what the file says; what it said when it could be used last,
    /// if that was kept; or the defaults. A mistake in it keeps no array from being served.
    pub(crate) fn read_or_last(path: &Path, last: &Path) -> InUse {
        InUse::read(path).unwrap_or_else(|failure| {
            let kept = InUse::read(last).ok().filter(InUse::exists);
            let effect = match &kept {
                Some(_) => "the daemon goes on with what it was before",
                None => "the defaults hold",
            };
            InUse {
                configuration: kept.map(|kept| kept.configuration).unwrap_or_default(),
                text: None,
                instead: Some((failure, effect)),
            }
        })
    }

    /// Is there a file?
    pub(crate) fn exists(&self) -> bool {
        self.text.is_some()
    }

    /// Keeps it for a start with a file that cannot be used.
    ///
    /// # Errors
    /// It could not be written.
    pub(crate) fn keep(&self, last: &Path) -> io::Result<()> {
        match &self.text {
            Some(text) => replace_bytes(last, text.as_bytes()),
            None => match files::remove(last) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        }
    }
}

/// What the text of a file says.
///
/// # Errors
/// It says what is not known or not possible.
fn parse(path: &Path, text: &str) -> Result<Configuration, Failure> {
    let read: Configuration =
        toml::from_str(text).map_err(|error| not_taken(path, text, &error))?;
    if let Some(relative) = read.daemon.scan.iter().find(|path| path.is_relative()) {
        let found = format!(
            "{}: scan in [daemon] names {}, which is no absolute path",
            path.display(),
            relative.display()
        );
        return Err(Failure::new(Code::ConfigInvalid, found));
    }
    if let Some((found, cure)) = read.metrics.refused() {
        let found = format!("{}: {found}", path.display());
        return Err(Failure::new(Code::ConfigInvalid, found).cure(cure));
    }
    if let Err((number, why)) = alerts::check(&read.alerts) {
        let at = alerts::place(text, number).unwrap_or(0);
        let line = text.get(..at).unwrap_or_default().matches('\n').count() + 1;
        let found = format!("{}, line {line} in [[alerts]]: {why}", path.display());
        return Err(Failure::new(Code::ConfigInvalid, found));
    }
    Ok(read)
}

/// The text of the file, if there is one.
fn text_of(path: &Path) -> Result<Option<String>, Failure> {
    let shown = path.display();
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let opened = File::options().read(true).custom_flags(nonblock).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::io(shown, &error)),
    };
    let failed = |error: io::Error| Failure::io(&shown, &error);
    let about = file.metadata().map_err(failed)?;
    let invalid = |why: String| {
        let found = format!("{shown} is not used: {why}");
        Failure::new(Code::ConfigInvalid, found)
    };
    if !about.is_file() {
        return Err(invalid("it is no regular file".to_owned()));
    }
    let us = rustix::process::geteuid().as_raw();
    if about.uid() != 0 && about.uid() != us {
        let why = format!(
            "it belongs to user {}, not to root or user {us}",
            about.uid()
        );
        return Err(invalid(why).cure(format!("chown {us} {shown}")));
    }
    if about.mode() & 0o022 != 0 {
        let why = format!("others can write it (mode {:04o})", about.mode() & 0o7777);
        return Err(invalid(why).cure(format!("chmod go-w {shown}")));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(invalid(format!("it holds more than {BYTES_MAX} bytes")));
    }
    let text = String::from_utf8(bytes);
    text.map(Some).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        invalid(format!("byte {at} is part of no text"))
    })
}

/// Where it lies, and what is wrong.
fn not_taken(path: &Path, text: &str, error: &toml::de::Error) -> Failure {
    let at = error.span().map_or(0, |span| span.start).min(text.len());
    let before = text.get(..at).unwrap_or_default();
    let number = before.matches('\n').count() + 1;
    let line = text.lines().nth(number - 1).unwrap_or_default().trim();
    let mut headers = [line]
        .into_iter()
        .chain(before.lines().rev().map(str::trim));
    let section = headers.find(|line| line.starts_with('['));
    let section = section.map_or_else(String::new, |name| format!(" in {name}"));
    let key = match line.split_once('=') {
        Some((key, _)) if !line.starts_with('#') => format!(", {}{section}", key.trim()),
        _ => section,
    };
    let why = error.message().trim_end().replace('\n', " ");
    let found = format!("{}, line {number}{key}: {why}", path.display());
    Failure::new(Code::ConfigInvalid, found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn refused(text: &str) -> String {
        parse(Path::new("strake.toml"), text)
            .expect_err("not taken")
            .found
    }

    #[test]
    fn nothing_said_is_the_default() {
        let empty = parse(Path::new("f"), "").expect("taken");
        assert_eq!(empty, Configuration::default());
    }

    #[test]
    fn what_is_said_holds() {
        let text = "[daemon]\nwait = \"1m 30s\"\ndegraded = \"never\"\nshards = 2\nmemory = \
                    \"256M\"\nscan = [\"/srv/members\"]\ndevices = false\nio_timeout = \"5s\"\n";
        let daemon = parse(Path::new("f"), text).expect("taken").daemon;
        assert_eq!(daemon.wait.get().as_secs(), 90);
        assert_eq!(daemon.degraded, DegradedStart::Never);
        assert_eq!(daemon.shards.map(|n| n.get()), Some(2));
        assert_eq!(daemon.memory.get(), 256 << 20);
        assert_eq!(daemon.scan, [PathBuf::from("/srv/members")]);
        assert!(!daemon.devices);
        assert_eq!(daemon.io_timeout.get().as_secs(), 5);
    }

    #[test]
    fn an_error_names_line_and_key() {
        for (text, parts) in [
            (
                "[daemon]\n\nwiat = \"3s\"\n",
                &["line 3, wiat in [daemon]: unknown field `wiat`", "`wait`"][..],
            ),
            (
                "[daemon]\nwait = \"10x\"\n",
                &["line 2, wait in [daemon]: '10x' is not a time", "0s to 7d"],
            ),
            (
                "[daemon]\nwait = \"8d\"\n",
                &["line 2, wait in [daemon]: '8d'", "0s to 7d"],
            ),
            (
                "[daemon]\nwait = 10\n",
                &["line 2, wait in [daemon]: ", "a time"],
            ),
            (
                "[daemon]\nshards = 65\n",
                &["line 2, shards in [daemon]: ", "`65`", "1 to 64"],
            ),
            (
                "[daemon]\nshards = -1\n",
                &["line 2, shards in [daemon]: ", "`-1`", "1 to 64"],
            ),
            (
                "[daemon]\nmemory = \"1K\"\n",
                &["line 2, memory in [daemon]: '1K'", "1M to 1T"],
            ),
            (
                "[daemon]\nio_timeout = \"99ms\"\n",
                &["line 2, io_timeout", "100ms to 1h"],
            ),
            (
                "[daemon]\ndegraded = \"no\"\n",
                &["line 2, degraded", "`allow`", "`never`"],
            ),
            (
                "[daemon]\nscan = [\"members\"]\n",
                &["scan in [daemon] names members"],
            ),
            (
                "[daemon]\n[deamon]\n",
                &["line 2 in [deamon]", "unknown field `deamon`", "`daemon`"],
            ),
            (
                "[[alerts]]\nname = \"a\"\nsevrity = \"info\"\n",
                &["line 3, sevrity in [[alerts]]: unknown field"],
            ),
            (
                "[[alerts]]\nname = \"a\"\n[alerts.mail]\nto = [\"a@b.c\"]\nform = \"a@b.c\"\n",
                &["line 5, form in [alerts.mail]: unknown field `form`"],
            ),
            (
                "[[alerts]]\nname = \"a\"\nexec.command = [\"sh\"]\n",
                &["line 1 in [[alerts]]: exec.command: sh is no absolute path"],
            ),
            (
                "[[alerts]]\nname = \"a\"\nexec.command = [\"/a\"]\n\n[[alerts]]\nname = \"b\"\n",
                &["line 5 in [[alerts]]: 'b': give one of mail, webhook and exec"],
            ),
            ("[daemon\nwait = 3\n", &["line 1", "[daemon"]),
            ("wait = \"3s\"\n", &["line 1, wait: unknown field `wait`"]),
            (
                "[daemon]\nwait = \"3s\"\nwait = \"4s\"\n",
                &["line 3, wait in [daemon]: duplicate key"],
            ),
        ] {
            let found = refused(text);
            for part in parts {
                assert!(found.contains(part), "{text:?}: {found:?} lacks {part:?}");
            }
        }
    }

    #[test]
    fn metrics_are_served_and_written_where_that_can_be() {
        for (text, parts) in [
            (
                "[metrics]\nlisten = \"localhost\"\n",
                &["line 2, listen in [metrics]: invalid socket address"][..],
            ),
            (
                "[metrics]\nlisten = \"0.0.0.0:9987\"\n",
                &["listen in [metrics] is 0.0.0.0:9987, which is no loopback"],
            ),
            (
                "[metrics]\ntextfile = \"/tmp/strake\"\n",
                &["textfile in [metrics] is /tmp/strake, which does not end with .prom"],
            ),
            (
                "[metrics]\ntextfile_interval = \"0s\"\n",
                &["line 2, textfile_interval in [metrics]: '0s'", "1s to 1h"],
            ),
        ] {
            let found = refused(text);
            for part in parts {
                assert!(found.contains(part), "{text:?}: {found:?} lacks {part:?}");
            }
        }
    }

    #[test]
    fn a_file_that_cannot_be_used_leaves_what_was_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let [path, last] = ["now", "last"].map(|name| folder.path().join(name));
        fs::write(&path, "[daemon\n").expect("written");
        let (_, effect) = InUse::read_or_last(&path, &last).instead.expect("wrong");
        assert_eq!(effect, "the defaults hold");
        fs::write(&path, "[daemon]\nwait = \"3s\"\n").expect("written");
        let used = InUse::read_or_last(&path, &last);
        assert!(used.instead.is_none());
        used.keep(&last).expect("kept");
        fs::write(&path, "[daemon]\nwait = \"3x\"\n").expect("written");
        let used = InUse::read_or_last(&path, &last);
        assert_eq!(used.configuration.daemon.wait.get().as_secs(), 3);
        assert!(used.instead.is_some());
        // Without a file nothing is said, and nothing is kept.
        fs::remove_file(&path).expect("removed");
        let used = InUse::read_or_last(&path, &last);
        assert_eq!(used.configuration, Configuration::default());
        used.keep(&last).expect("kept");
        assert!(!last.exists());
    }

    #[test]
    fn a_file_that_others_can_write_is_not_used() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("strake.toml");
        let absent = InUse::read(&path).expect("the defaults");
        assert!(!absent.exists());
        std::fs::write(&path, "[daemon]\ndevices = false\n").expect("written");
        let mode = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("set");
        };
        mode(0o644);
        let taken = InUse::read_named(&path).expect("taken");
        assert!(!taken.configuration.daemon.devices);
        for wrong in [0o664, 0o646] {
            mode(wrong);
            let failure = InUse::read(&path).expect_err("not used");
            assert_eq!(failure.code, Code::ConfigInvalid);
            assert!(failure.found.contains("others can write it"), "{failure:?}");
        }
        assert!(InUse::read(folder.path()).is_err());
    }
}

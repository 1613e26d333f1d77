//! The emulator's control socket, as much of it as pulling and plugging drives needs.
//!
//! One command at a time; events that arrive meanwhile are kept until somebody asks for them.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// An open session in command mode.
pub(crate) struct Qmp {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    events: Vec<Value>,
}

/// Longest silence before a call gives up; an emulated guest on a busy machine is slow, not this
/// slow.
const PATIENCE: Duration = Duration::from_secs(60);

impl Qmp {
    /// Connects to the socket of a running emulator.
    pub(crate) fn connect(path: &Path) -> Result<Self> {
        let writer = UnixStream::connect(path).with_context(|| path.display().to_string())?;
        writer.set_read_timeout(Some(PATIENCE))?;
        let reader = BufReader::new(writer.try_clone()?);
        let mut qmp = Self {
            reader,
            writer,
            events: Vec::new(),
        };
        qmp.next().context("greeting")?;
        qmp.call("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Runs one command.
    pub(crate) fn call(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let line = json!({"execute": command, "arguments": arguments});
        writeln!(self.writer, "{line}").context(command.to_owned())?;
        loop {
            let answer = self.next().context(command.to_owned())?;
            if answer.get("event").is_some() {
                self.events.push(answer);
            } else if let Some(error) = answer.get("error") {
                bail!("{command}: {error}");
            } else {
                return Ok(answer["return"].clone());
            }
        }
    }

    /// Waits until the guest has let go of a device.
    pub(crate) fn wait_deleted(&mut self, device: &str) -> Result<()> {
        let start = Instant::now();
        let is_it = |e: &Value| e["event"] == "DEVICE_DELETED" && e["data"]["device"] == device;
        loop {
            if let Some(at) = self.events.iter().position(is_it) {
                self.events.remove(at);
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                bail!("the guest does not let go of {device}");
            }
            let event = self
                .next()
                .with_context(|| format!("waiting for {device} to go"))?;
            self.events.push(event);
        }
    }

    fn next(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            bail!("the emulator closed its control socket");
        }
        serde_json::from_str(&line).context("the emulator speaks JSON")
    }
}

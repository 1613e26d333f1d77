//! The array's administrator: the commands under way, and what their answers must be.
//!
//! Invariant: each command is answered once.
//!
//! Deliberately absent: which commands come when (`life`).

use std::collections::BTreeMap;
use std::ops::Range;

use strake_engine::event::{Changed, Command, CommandError, Setting};
use strake_engine::units::{CommandId, DeviceId};

use crate::report::words::command_text;
use crate::world::clock::Place;
use crate::world::{Happening, SimResult, World};

/// See the module.
#[derive(Default)]
pub(crate) struct Admin {
    /// Commands under way, in words.
    pub(super) commands: BTreeMap<CommandId, String>,
    /// Members offered to the array again, by command.
    pub(super) offered: BTreeMap<CommandId, Vec<DeviceId>>,
    /// Commands that were answered.
    pub(super) done: BTreeMap<CommandId, Result<Changed, CommandError>>,
    next_command: u64,
    /// Commands that must be refused, because data would be lost.
    pub(super) refusals: Vec<CommandId>,
    /// The array was told to forgive any number of read errors.
    pub(super) errors_forgiven: bool,
    /// The last command that changed the policy of the write hole.
    pub(super) new_policy: Option<CommandId>,
    /// A change of shape was asked for in this life.
    pub(super) reshaping: bool,
    /// When the array told of another shape in this life, in events.
    pub(super) reshaped_at: Option<u64>,
    /// Groups of a shape that was asked for, until the next start serves.
    pub(super) wary: Vec<Range<usize>>,
}

impl Admin {
    /// The process is gone, and so are the commands that it had.
    pub(super) fn forget(&mut self) {
        self.commands.clear();
        self.offered.clear();
        self.done.clear();
        self.refusals.clear();
    }
}

impl World {
    /// Sends a command to the array.
    pub fn command(&mut self, command: Command) -> CommandId {
        let id = CommandId(self.admin.next_command);
        self.admin.next_command += 1;
        let text = command_text(&command);
        self.admin.reshaping |= matches!(
            command,
            Command::Grow(_)
                | Command::AddParity(_)
                | Command::DropParity(_)
                | Command::Mirror
                | Command::Restripe(_)
        );
        if matches!(command, Command::Set(Setting::WriteHole(_))) {
            self.admin.new_policy = Some(id);
        }
        self.note(format!("command {}: {text}", id.0));
        self.admin.commands.insert(id, text);
        self.send(
            Place::Queue(7),
            Place::Array,
            Happening::Command(id, command),
        );
        id
    }

    /// The answer to a command, if it has come.
    pub fn answer_to(&self, id: CommandId) -> Option<Result<(), CommandError>> {
        self.admin.done.get(&id).map(|result| result.map(|_| ()))
    }

    pub(crate) fn command_done(
        &mut self,
        id: CommandId,
        result: Result<Changed, CommandError>,
    ) -> SimResult {
        self.trace.add(id.0 << 8 | u64::from(result.is_ok()));
        let Some(text) = self.admin.commands.remove(&id) else {
            return self.failure(format!("command {} was answered twice", id.0));
        };
        self.note(format!("command {} ({text}): {result:?}", id.0));
        for device in self.admin.offered.remove(&id).unwrap_or_default() {
            self.judge_return(device, &result)?;
            if result.is_err() {
                self.close(device);
            }
        }
        self.admin.done.insert(id, result);
        if self.admin.refusals.contains(&id) && result != Err(CommandError::WouldFail) {
            return self.failure(format!("command {} had to be refused: it loses data", id.0));
        }
        Ok(())
    }
}

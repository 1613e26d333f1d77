//! What shard 0's thread does besides: the array's control machine, and the queries and commands
//! for it.
//!
//! Invariant: every command is answered, at the latest by its sender being dropped when the thread
//! ends. Deliberately absent: waiting for anything.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender};
use std::time::SystemTime;

use strake_engine::Array;
use strake_engine::event::*;
use strake_engine::units::*;

use crate::clock::Clock;
use crate::device::set::Devices;
use crate::device::watch::Watch;
use crate::mail::Mail;
use crate::mail::shape::Shape;

/// An event with wall-clock time.
#[derive(Clone, Debug)]
pub struct EventRecord {
    /// When.
    pub time: SystemTime,
    /// What.
    pub kind: EventKind,
    /// Path of the device that the event names, if any.
    pub device: Option<PathBuf>,
    /// Of a member that is out because an I/O failed: its errno.
    pub errno: Option<i32>,
}

/// The members that are out by these events, with what an I/O of each answered.
pub(crate) fn out(events: &Receiver<EventRecord>) -> Vec<(PathBuf, Option<i32>)> {
    let out = |record: EventRecord| match record.kind {
        EventKind::MemberOut { .. } | EventKind::MemberFull { .. } => {
            Some((record.device?, record.errno))
        }
        _ => None,
    };
    events.try_iter().filter_map(out).collect()
}

/// A change in the life cycle of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifecycle {
    /// It serves.
    Started,
    /// It cannot go on.
    Failed(FailCause),
    /// Everything is durable and quiet.
    Stopped,
}

/// See the module.
pub(crate) struct Control {
    pub(crate) array: Array,
    pub(crate) watch: Watch,
    commands: BTreeMap<CommandId, Sender<Result<Changed, CommandError>>>,
    next_command: u64,
    events: Sender<EventRecord>,
    lifecycle: Sender<Lifecycle>,
    /// What others know of its shape.
    shape: Shape,
}

impl Control {
    /// Control of an array that is not started yet.
    pub(crate) fn new(
        array: Array,
        watch: Watch,
        events: Sender<EventRecord>,
        lifecycle: Sender<Lifecycle>,
        shape: Shape,
    ) -> Control {
        Control {
            array,
            shape,
            watch,
            commands: BTreeMap::new(),
            next_command: 0,
            events,
            lifecycle,
        }
    }

    /// Takes in mail that concerns the array.
    pub(crate) fn receive(&mut self, now: Time, mail: Mail, devices: &Devices) {
        // A caller that no longer waits does not get the answer.
        match mail {
            Mail::Start => self.array.start(now),
            Mail::FromShard(shard, message) => self.array.message(now, shard, message),
            Mail::ArrayPiece(request) => self.array.submit(now, request),
            Mail::Retried(told) => self.array.retried(told),
            Mail::Watch(id) => {
                if let Some(device) = devices.get(id) {
                    self.watch.add(id, device);
                }
            }
            Mail::Command(command, answer) => {
                let id = CommandId(self.next_command);
                self.next_command += 1;
                self.commands.insert(id, answer);
                self.array.command(now, id, command);
            }
            Mail::Preflight(command, answer) => {
                let _ = answer.send(self.array.preflight(&command));
            }
            Mail::Status(answer) => {
                let _ = answer.send(self.array.status_at(now));
            }
            Mail::Regions(first, count, answer) => {
                let states = (first.0..first.0.saturating_add(count))
                    .map(|region| self.array.region(RegionNo(region)))
                    .collect();
                let _ = answer.send(states);
            }
            Mail::ToShard(_)
            | Mail::Piece(_)
            | Mail::Passed(..)
            | Mail::WriteToken(_)
            | Mail::InPlace(..)
            | Mail::InPlaceDone(_)
            | Mail::PieceAgain(_)
            | Mail::PieceReply(_)
            | Mail::Submit(..)
            | Mail::Release(_)
            | Mail::Overdue(..)
            | Mail::Judged(..)
            | Mail::Ublk(_)
            | Mail::Beat(_)
            | Mail::Late(..)
            | Mail::Exit => unreachable!("every shard takes such mail by itself"),
        }
    }

    /// Carries out what concerns neither rings nor shards.
    pub(crate) fn carry_out(&mut self, clock: &Clock, output: ArrayOutput, devices: &Devices) {
        match output {
            ArrayOutput::Done { id, result } => {
                if let Some(answer) = self.commands.remove(&id) {
                    let _ = answer.send(result);
                }
            }
            ArrayOutput::Event(event) => self.tell(clock, event, devices),
            ArrayOutput::Reshaped(geometry) => self.shape.set(geometry),
            ArrayOutput::Started => self.report_lifecycle(Lifecycle::Started),
            ArrayOutput::Stopped => self.report_lifecycle(Lifecycle::Stopped),
            ArrayOutput::Io(_)
            | ArrayOutput::Reply(_)
            | ArrayOutput::Again(_)
            | ArrayOutput::Message(..)
            | ArrayOutput::Overdue(..)
            | ArrayOutput::Release(_) => unreachable!("the worker carries these out"),
        }
    }

    fn report_lifecycle(&self, lifecycle: Lifecycle) {
        // Between start and stop the receiver is not read.
        let _ = self.lifecycle.send(lifecycle);
    }

    fn tell(&self, clock: &Clock, event: Event, devices: &Devices) {
        tracing::info!(event = ?event.kind, "array");
        if let EventKind::Failed { cause } = event.kind {
            self.report_lifecycle(Lifecycle::Failed(cause));
        }
        let device = match event.kind {
            EventKind::MemberOut { device, .. }
            | EventKind::CountersReset { device, .. }
            | EventKind::Removed { device, .. } => device,
            EventKind::ReadError { device, .. }
            | EventKind::Repaired { device, .. }
            | EventKind::Mismatch { device, .. }
            | EventKind::MemberFailing { device, .. }
            | EventKind::MemberDoubted { device, .. }
            | EventKind::MemberNoLongerDoubted { device, .. }
            | EventKind::MemberFull { device, .. }
            | EventKind::MemberNoLongerFull { device, .. }
            | EventKind::SpareUsed { device, .. }
            | EventKind::Returned { device, .. }
            | EventKind::Rebuilt { device, .. }
            | EventKind::MemberSlow { device, .. }
            | EventKind::MemberNoLongerSlow { device, .. }
            | EventKind::SpareAdded { device } => Some(device),
            _ => None,
        };
        let by_io = |cause| {
            let errors = [OutCause::WriteError, OutCause::ReadErrors];
            errors.contains(&cause) || matches!(cause, OutCause::Gone | OutCause::TimedOut)
        };
        let errno = match event.kind {
            EventKind::MemberOut {
                device: Some(id),
                cause,
                ..
            } if by_io(cause) => devices.recent_errno(id),
            EventKind::ReadError { device, .. }
            | EventKind::MemberFailing { device, .. }
            | EventKind::MemberFull { device, .. } => devices.recent_errno(device),
            _ => None,
        };
        let device = device.and_then(|id| devices.path(id));
        let time = clock.wall(event.time);
        // The receiver may have lost interest.
        let _ = self.events.send(EventRecord {
            time,
            kind: event.kind,
            device,
            errno,
        });
    }
}

//! What threads tell each other: a channel and an eventfd for each shard.
//!
//! Invariants:
//! * Mail of one sender to one receiver arrives in order (the engine relies on it).
//! * A shard that sleeps is woken once for any amount of mail, and one that is awake not at all: it
//!   says that it is about to sleep *before* it looks into the channel for the last time, so that
//!   mail is either found there or its sender finds a sleeper. No wake-up is lost.
//!
//! Deliberately absent: bounds. What is in the channels is bounded by requests and I/O in flight,
//! which are.

pub(crate) mod local;
mod queue;
pub(crate) mod shape;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::event::EventfdFlags;
use strake_engine::event::*;
use strake_engine::units::*;
use strake_engine::{Late, Retried, Verdict, VolumeMap};
use strake_format::RegionState;

pub(crate) use queue::{Data, Mode, QueueStart, VolumeView};

/// How a request is answered: called once, on the shard's thread, and must not block.
pub type Answer = Box<dyn FnOnce(Result<Slices, RequestError>) + Send>;

/// A letter to a shard's thread.
pub(crate) enum Mail {
    /// From the array to the shard.
    ToShard(ToShard),
    /// From a shard to the array (shard 0's thread only).
    FromShard(ShardNo, FromShard),
    /// A piece of a request for this shard.
    Piece(Request),
    /// A read that another shard began, and the member that is late with it, if one is.
    Passed(Request, Option<DeviceId>),
    /// The write token of a rebuild comes to this shard.
    WriteToken(WriteToken),
    /// A piece of a request for the array (shard 0's thread only).
    ArrayPiece(Request),
    /// I/Os of this device are not answered, and why (shard 0's thread only).
    Overdue(DeviceId, Late),
    /// The array has decided about I/Os of this device that are overdue.
    Judged(DeviceId, Verdict),
    /// An I/O that was tried again is over (shard 0's thread only).
    Retried(Retried),
    /// A piece is to be split anew; its router lives here.
    PieceAgain(Request),
    /// A piece was answered; its router lives here.
    PieceReply(Reply),
    /// A read of another shard's that fills pages which are registered with this one's ring.
    InPlace(ShardNo, MemberIo),
    /// What came of such a read.
    InPlaceDone(Completion),
    /// A request of an export that has no thread of ours; of a volume's, where the volume lies.
    Submit(Op, Answer, Option<Arc<VolumeMap>>),
    /// The device is not used any more.
    Release(DeviceId),
    /// A device was attached: watch it (shard 0's thread only).
    Watch(DeviceId),
    /// An administrator's command (shard 0's thread only).
    Command(Command, Sender<Result<Changed, CommandError>>),
    /// Whether it would be carried out (shard 0's thread only).
    Preflight(Command, Sender<Result<(), CommandError>>),
    /// Everything that `show` tells (shard 0's thread only).
    Status(Sender<Status>),
    /// States of so many regions from this one on (shard 0's thread only).
    Regions(RegionNo, u32, Sender<Vec<RegionState>>),
    /// Serve a queue of a ublk device.
    Ublk(Box<QueueStart>),
    /// Answer at once: it shows that the thread still takes its mail.
    Beat(Sender<()>),
    /// Devices with an I/O that has taken longer than this, and how long the oldest of each has.
    Late(Duration, Sender<Vec<(DeviceId, Duration)>>),
    /// Begin: write the superblocks (shard 0's thread only).
    Start,
    /// Stop working and end the thread, however things stand.
    Exit,
}

/// The way to one shard.
#[derive(Debug)]
pub(crate) struct Mailbox {
    sender: Sender<Mail>,
    wake: OwnedFd,
    /// The shard looks into its channel before it sleeps, or another thread has written the
    /// eventfd.
    awake: AtomicBool,
    /// The shard has requests under way, which may wait for buffers.
    hungry: AtomicBool,
    /// Where /proc has the thread, once it runs.
    thread: OnceLock<PathBuf>,
}

impl Mailbox {
    /// A mailbox and its receiving end.
    pub(crate) fn new() -> std::io::Result<(Mailbox, Receiver<Mail>)> {
        let wake = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let (sender, receiver) = channel();
        // A shard's thread looks before it sleeps for the first time.
        let (awake, hungry) = (AtomicBool::new(true), AtomicBool::new(false));
        Ok((
            Mailbox {
                sender,
                wake,
                awake,
                hungry,
                thread: OnceLock::new(),
            },
            receiver,
        ))
    }

    /// Posts a letter. False: the shard has ended.
    pub(crate) fn post(&self, mail: Mail) -> bool {
        let sent = self.leave(mail);
        self.wake();
        sent
    }

    /// Leaves a letter without waking the shard; the sender does that once it has left all that it
    /// has. False: the shard has ended.
    pub(crate) fn leave(&self, mail: Mail) -> bool {
        self.sender.send(mail).is_ok()
    }

    /// Wakes the shard if it sleeps.
    pub(crate) fn wake(&self) {
        if !self.awake.swap(true, Ordering::SeqCst) {
            // It can only fail when 2^64 - 2 wake-ups were not read: then the shard is awake.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    /// The shard says that it may sleep after it has looked into its channel once more.
    pub(crate) fn about_to_sleep(&self) {
        self.awake.store(false, Ordering::SeqCst);
    }

    /// The shard does not sleep (any more).
    pub(crate) fn awake(&self) {
        self.awake.store(true, Ordering::SeqCst);
    }

    /// Empties the eventfd: a poll that is to be armed anew would find it readable for ever. One
    /// that stays armed tells of every write by itself.
    pub(crate) fn empty(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }

    /// The calling thread is the one that takes this mail.
    pub(crate) fn is_of_this_thread(&self) {
        if let Ok(thread) = std::fs::read_link("/proc/thread-self") {
            let _ = self.thread.set(Path::new("/proc").join(thread));
        }
    }

    /// Where /proc has the thread that takes this mail.
    pub(crate) fn thread(&self) -> Option<&Path> {
        self.thread.get().map(PathBuf::as_path)
    }

    /// The eventfd, for the ring.
    pub(crate) fn wake_fd(&self) -> &OwnedFd {
        &self.wake
    }

    /// The shard says whether buffers that come back elsewhere are worth a wake-up. It polls its
    /// engine once more after saying so and that it may sleep, before it sleeps.
    pub(crate) fn set_hungry(&self, hungry: bool) {
        self.hungry.store(hungry, Ordering::SeqCst);
    }
}

/// The ways to all shards of an array.
#[derive(Clone, Debug)]
pub(crate) struct Peers(Arc<[Mailbox]>);

impl Peers {
    /// One mailbox for each shard, in order.
    pub(crate) fn new(mailboxes: Vec<Mailbox>) -> Peers {
        assert!(!mailboxes.is_empty(), "an array has a shard");
        Peers(mailboxes.into())
    }

    /// How many shards.
    pub(crate) fn count(&self) -> u16 {
        u16::try_from(self.0.len()).expect("made from a u16")
    }

    /// One of them.
    pub(crate) fn shard(&self, shard: ShardNo) -> &Mailbox {
        &self.0[usize::from(shard.0)]
    }

    /// The mailbox of the thread that has the array.
    pub(crate) fn array(&self) -> &Mailbox {
        &self.0[0]
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Mailbox> {
        self.0.iter()
    }

    /// Buffers came back on a thread that is not their owner's.
    pub(crate) fn buffers_came_back(&self) {
        self.0
            .iter()
            .filter(|peer| peer.hungry.load(Ordering::SeqCst))
            .for_each(Mailbox::wake);
    }
}

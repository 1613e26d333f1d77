//! From members to an array that serves, and back.
//!
//! An array that is carved is started without an export; its volumes have theirs (`volumes`).
//!
//! Order of a start: export chosen and devices numbered → engine assembled → threads and rings
//! ready, before anything is written → superblocks written → `Started` → export. Order of a stop:
//! export gone → engine stopped (all durable) → threads ended → devices closed.
//!
//! Invariant: dropping a [`Serving`] without `stop` is like a kill: nothing is written any more,
//! and a ublk device stays for the next daemon. Deliberately absent: choosing members (the caller
//! scans) and time limits of commands.

pub(crate) mod asking;
pub(crate) mod counts;
pub(crate) mod ending;
pub(crate) mod placement;
pub(crate) mod volumes;

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use strake_engine::event::{
    ArrayState, Changed, Command, CommandError, DeviceInfo, FailCause, Found, JobKind, JobStatus,
    NewDevice, NewShape, Status,
};
use strake_engine::gather;
use strake_engine::limits::{self, Joining, Shards};
use strake_engine::logs::shards_for;
use strake_engine::units::{DeviceId, ShardNo};
use strake_engine::{
    Array, Geometry, HedgeRules, Pool, Pulse, Router, Shard, ShardSetup, SharedPool, StartOptions,
};
use strake_format::{ArrayName, RegionState, Superblock, VolumeUuid};

use crate::clock::Clock;
use crate::device::set::Devices;
use crate::device::watch::Watch;
use crate::device::{Device, DeviceError, Look, MemberImage};
use crate::error::ServeError;
use crate::export::{self, Export, ExportKind, InFlight, Left, Plan, Running, locked, ublk};
use crate::mail::local::LocalClient;
use crate::mail::shape::Shape;
use crate::mail::{Mail, Mailbox, Peers};
use crate::member_io::MemberIos;
use crate::memory::budget;
use crate::memory::buffers::Registered;
use crate::memory::resident::{declare_io_flusher, have_stack_and_heap, lock_memory};
use crate::memory::{self, Promise, Reserved};
use crate::ring::{Ring, check_io_uring, no_io_uring};
use crate::serve::asking::{ASK_PATIENCE, QUIET_PATIENCE, Unanswered, is_under_way, not_begun};
use crate::serve::placement::{
    Pinning, Placed, Placement, bytes_of, memory_bytes, memory_for_strips, pin, stock_of_shard,
};
use crate::serve::volumes::{Own, Served};
use crate::spawn::{check_threads, spawn};
use crate::thread::control::{Control, EventRecord, Lifecycle};
use crate::thread::counters::Tally;
use crate::thread::worker::{Worker, log_of};
use crate::thread::{Threads, thread_name};

/// A region without writes for this long is made clean.
const CLEAN_AFTER_MS: u64 = 2000;
/// Data that moves to another shape: requests wait about as long as members take for so much.
const WINDOW_BYTES: u64 = 4 << 20;
/// How long a process that ends for a panic lets its log be written.
const LAST_LINE: Duration = Duration::from_millis(50);
/// How long a member that was replaced may take to be let go of.
const RELEASE_PATIENCE: Duration = Duration::from_secs(5);

/// What is needed to serve an array.
#[derive(Debug)]
pub struct ServeConfig {
    /// Members and spares found, opened with [`crate::OpenMode::Member`].
    pub members: Vec<(Device, MemberImage)>,
    /// Threads; 1 or more.
    pub shards: u16,
    /// Buffer memory of each shard, bytes, where no limit for the array is placed.
    pub memory_bytes: usize,
    /// What of the machine the array may take.
    pub placement: Placement,
    /// A member I/O that takes longer counts as timed out.
    pub io_timeout: Duration,
    /// Start a dirty degraded array all the same.
    pub force: bool,
    /// How to serve it.
    pub export: ExportKind,
    /// Where the NBD socket goes.
    pub nbd_socket: PathBuf,
    /// Number of a ublk device that a daemon killed before left behind, to be recovered.
    pub recover_ublk: Option<u32>,
    /// Memory on each shard for the data of a [`LocalClient`]: bytes of a buffer, and how many of
    /// them.
    pub client_stock: Vec<(usize, usize)>,
}

/// Users of a grown block device that still see its old size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTold {
    /// Those of `/dev/ublkbN`, until the array is stopped and started.
    Ublk(u32),
    /// So many NBD clients, until they connect anew.
    Nbd(usize),
}

/// An array being served. All methods may be called from any thread; they block until answered.
#[derive(Debug)]
pub struct Serving {
    threads: Threads,
    /// The array's own export, unless it is carved.
    own: Mutex<Own>,
    pub(crate) volumes: Mutex<BTreeMap<VolumeUuid, Served>>,
    /// What an export of the array is made from.
    target: export::Target,
    pub(crate) export_kind: ExportKind,
    pub(crate) requests: Option<NonZeroU32>,
    called: Mutex<Called>,
    devices: Arc<Devices>,
    tallies: Arc<[Tally]>,
    client_memory: Arc<[SharedPool]>,
    shape: Shape,
    placed: Placed,
    /// Buffers of a strip that each thread has.
    strips: usize,
    lifecycle: Mutex<Receiver<Lifecycle>>,
    /// Given back when the threads have ended.
    memory: Option<Reserved>,
}

/// An array that was assembled, and what its threads are to be given.
struct Prepared {
    memory: Reserved,
    /// Without its members.
    config: ServeConfig,
    plan: Plan,
    devices: Arc<Devices>,
    shards: u16,
    array: Array,
    setup: ShardSetup,
    /// Buffers of each shard.
    stock: Vec<(usize, usize)>,
    queue_stock: Option<ublk::Stock>,
    carved: bool,
    name: String,
    tag: u64,
    granularity: u32,
}

/// Assembles: all that may be refused before a thread starts, or anything is written.
fn prepare(mut config: ServeConfig) -> Result<Prepared, ServeError> {
    let placement = &config.placement;
    let plan = Plan::choose(config.export, placement.requests, config.recover_ublk)?;
    let devices = Arc::new(Devices::default());
    let mut name = String::new();
    let mut tag = 0;
    let mut granularity = 0;
    let mut all = Vec::new();
    for (device, image) in std::mem::take(&mut config.members) {
        granularity = granularity.max(device.info().granularity_bytes);
        image.superblock.name.as_str().clone_into(&mut name);
        tag = ublk::UblkDevices::tag(&image.superblock.array.0);
        let info = device.info();
        all.push(found(devices.add(device)?, info, image));
    }
    read_logs(&devices, &mut all);
    // A member that was away may tell of another policy.
    let wanted = config.shards.max(1);
    let authority = gather::authority(&all);
    let shards = authority.map_or(wanted, |sb| shards_for(sb, wanted));
    // What lies at the start of one that is carved is no user's.
    let carved = authority.is_some_and(|sb| sb.carved);
    let limit = config.placement.memory_limit_bytes;
    let queue_stock = plan.stock();
    let queue = queue_stock.as_deref().unwrap_or_default();
    // Higher rows need larger buffers.
    let folded = authority.and_then(Superblock::folded);
    let fold = folded.is_some_and(|sb| {
        let geometry = Geometry::of(&sb);
        stock_of_shard(&geometry, config.memory_bytes, limit, shards, queue).is_ok()
    });
    let options = StartOptions {
        fold,
        shards,
        force: config.force,
        clean_after_ms: CLEAN_AFTER_MS,
        hedging: HedgeRules::default(),
        window_bytes: WINDOW_BYTES,
        session: crate::clock::random_number(),
        unix_s: crate::clock::unix_s(),
    };
    let array = Array::assemble(all, &options)?;
    let setup = array.setup();
    let stock = stock_of_shard(&setup.geometry, config.memory_bytes, limit, shards, queue)?;
    check_io_uring(shards)?;
    budget::check_descriptors(shards, 0)?;
    // Before threads are tried: one that begins where nothing is left ends the process.
    let promised = config.placement.promised.take();
    let bytes = memory_bytes(&stock, shards, queue);
    let memory = memory::reserve(bytes, shards, promised.as_deref())?;
    check_threads(shards).map_err(no_thread)?;
    Ok(Prepared {
        memory,
        config,
        plan,
        devices,
        shards,
        array,
        setup,
        stock,
        queue_stock,
        carved,
        name,
        tag,
        granularity,
    })
}

/// Whether an array would be served, as far as that can be told before anything is written.
///
/// # Errors
/// Why it would not.
pub fn may_serve(config: ServeConfig) -> Result<(), ServeError> {
    prepare(config).map(|_| ())
}

/// Whether an array that is to be made of so many devices, which are not open yet, could be served
/// as `config` says. The memory that it needs is kept for it.
///
/// # Errors
/// What this process may not have.
pub fn may_make(
    superblock: &Superblock,
    devices: usize,
    config: &ServeConfig,
) -> Result<Promise, ServeError> {
    let plan = Plan::choose(config.export, config.placement.requests, None)?;
    let queue = plan.stock().unwrap_or_default();
    let shards = shards_for(superblock, config.shards.max(1));
    let limit = config.placement.memory_limit_bytes;
    let geometry = Geometry::of(superblock);
    let stock = stock_of_shard(&geometry, config.memory_bytes, limit, shards, &queue)?;
    check_io_uring(shards)?;
    budget::check_descriptors(shards, devices)?;
    let promise = memory::promise(memory_bytes(&stock, shards, &queue), shards)?;
    check_threads(shards).map_err(no_thread)?;
    Ok(promise)
}

/// Assembles, starts shards and the export, and returns when the array serves.
pub fn serve(config: ServeConfig) -> Result<(Serving, Receiver<EventRecord>), ServeError> {
    let prepared = prepare(config)?;
    let Prepared {
        config,
        plan,
        devices,
        shards,
        carved,
        memory,
        ..
    } = prepared;
    let placement = config.placement;
    let queue = prepared.queue_stock.as_deref().unwrap_or_default();
    let pinning = Pinning::choose(&placement, &devices, shards);
    let placed = pinning.placed(shards, memory_bytes(&prepared.stock, shards, queue));
    declare_io_flusher();
    lock_memory();
    let start = ThreadStart {
        name: prepared.name.clone(),
        clock: Clock::start(),
        shape: Shape::new(Arc::clone(prepared.array.geometry())),
        setup: prepared.setup,
        stock: prepared.stock,
        pinning,
        placed,
        io_timeout: config.io_timeout,
        devices,
        tallies: (0..shards).map(|_| Tally::default()).collect(),
        client_memory: (0..shards)
            .map(|_| SharedPool::try_new(&config.client_stock))
            .collect::<Option<_>>()
            .ok_or_else(|| memory::ran_out(bytes_of(&config.client_stock)))?,
        queue_stock: prepared.queue_stock,
        pages: plan.pages(),
    };
    let exports = Exports {
        name: prepared.name,
        tag: prepared.tag,
        granularity: prepared.granularity,
        kind: config.export,
        requests: placement.requests,
        nbd_socket: config.nbd_socket,
    };
    let (mut serving, events) = start.array(shards, prepared.array, exports, &memory)?;
    serving.memory = Some(memory);
    if carved {
        return Ok((serving, events));
    }
    let left = config.recover_ublk.map(Left::of_array);
    match plan.serve(serving.target(), &serving.socket(), left) {
        Ok(running) => {
            serving.own().running = Some(running);
            Ok((serving, events))
        }
        Err(error) => {
            // The array was started for nothing: leave it clean.
            if let Err(error) = serving.stop() {
                tracing::warn!(%error, "the array did not stop cleanly");
            }
            Err(error)
        }
    }
}

/// What exports of the array that begin from now on go by.
#[derive(Debug)]
struct Called {
    name: String,
    nbd_socket: PathBuf,
}

/// How an array is exported.
struct Exports {
    name: String,
    tag: u64,
    granularity: u32,
    kind: ExportKind,
    requests: Option<NonZeroU32>,
    nbd_socket: PathBuf,
}

/// Reads what counts of the logs, where they may have to be replayed.
fn read_logs(devices: &Devices, all: &mut [Found]) {
    let Some(base) = gather::log_base(all) else {
        return;
    };
    for (id, device) in devices.all() {
        for found in all.iter_mut().filter(|f| f.device == id) {
            found.log = device.read_log(&found.superblock, base);
        }
    }
}

impl Serving {
    /// A look for the superblocks of a member, by what the array has open: see [`Device::look`].
    pub fn look_at(
        &self,
        device: DeviceId,
    ) -> Option<impl FnOnce() -> Result<Look, DeviceError> + Send + use<>> {
        let device = self.devices.get(device)?;
        Some(move || device.look())
    }

    /// Path of a device.
    pub fn path(&self, device: DeviceId) -> Option<PathBuf> {
        self.devices.path(device)
    }

    /// Numbers a device and hands it over, for use in a [`Command::Add`] or [`Command::Replace`].
    /// If the command is refused, hand it back with [`Serving::detach`]; one of which the end is
    /// not known ([`CommandError::Unfinished`]) may use it yet.
    ///
    /// # Errors
    /// No number is left.
    pub fn attach(&self, device: Device) -> Result<DeviceId, DeviceError> {
        let id = self.devices.add(device)?;
        self.threads.peers.array().post(Mail::Watch(id));
        Ok(id)
    }

    /// Closes a device that was attached and that the array does not use.
    pub fn detach(&self, device: DeviceId) {
        for peer in self.threads.peers.iter() {
            peer.post(Mail::Release(device));
        }
    }

    /// Whether it would grow now.
    ///
    /// # Errors
    /// Why it would not.
    pub fn may_grow(&self) -> Result<(), CommandError> {
        self.preflight(Command::Grow(self.device_sizes()))
    }

    /// Sizes of the devices now, which may have grown since they were opened. One that does not
    /// tell is as it was.
    fn device_sizes(&self) -> Vec<(DeviceId, u64)> {
        let all = self.devices.all().into_iter();
        all.map(|(id, device)| (id, device.bytes_now())).collect()
    }

    /// Looks how large the devices are now: superblocks follow the ends of those that grew.
    ///
    /// # Errors
    /// It is to be tried again.
    pub fn follow_sizes(&self) -> Result<Changed, CommandError> {
        self.command(Command::Sizes(self.device_sizes()))
    }

    /// Waits a moment for members that were replaced to be let go of, which happens when it is
    /// durable that they were. What the array is made of is known then.
    pub fn await_releases(&self) {
        let known = || {
            let status = self.status_now();
            let members = status.map_or_else(|_| Vec::new(), |status| status.members);
            members.iter().filter(|m| m.device.is_some()).count()
        };
        let since = Instant::now();
        while self.devices.all().len() > known() && since.elapsed() < RELEASE_PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Bytes of the smallest device.
    pub fn smallest_device(&self) -> u64 {
        let sizes = self.device_sizes().into_iter();
        sizes.map(|(_, bytes)| bytes).min().unwrap_or(0)
    }

    /// Uses all that the members have room for, and announces the new size to the block device's
    /// users; false: users that have it open see the old size until they open it anew, or until the
    /// array's next start.
    ///
    /// # Errors
    /// Why it does not grow.
    pub fn grow(&self) -> Result<(Changed, bool), CommandError> {
        let changed = self.command(Command::Grow(self.device_sizes()))?;
        Ok((changed, self.tell_size()))
    }

    /// Tells the block device's users of the size that the array has; false as for growth.
    fn tell_size(&self) -> bool {
        let size = self.shape.now().size();
        let announce = self.own().running.as_ref().map(|own| own.grown(size));
        let told = announce.map_or(Ok(true), |announce| announce());
        told.unwrap_or_else(|error| {
            tracing::warn!(%error, "the block device keeps its old size");
            false
        })
    }

    /// The same for an array that reported its new size, once every thread works by it. Returns the
    /// users that could not be told; `None` if all were.
    pub fn has_grown(&self, size: u64) -> Option<NotTold> {
        let since = Instant::now();
        while self.shape.now().size() < size && since.elapsed() < RELEASE_PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.tell_size() {
            return None;
        }
        let own = self.own();
        match (own.running.as_ref()?, own.running.as_ref()?.export()) {
            (_, Export::Ublk(ublk)) => Some(NotTold::Ublk(ublk.id)),
            (running, Export::Nbd { .. }) => Some(running.clients())
                .filter(|&clients| clients > 0)
                .map(NotTold::Nbd),
            (_, Export::None) => None,
        }
    }

    /// Whether it would take devices like these: callers check it before anything on them is
    /// overwritten.
    ///
    /// # Errors
    /// Why it would refuse them.
    pub fn may_join(&self, devices: &[DeviceInfo], joining: Joining) -> Result<(), CommandError> {
        let status = self.status_now().map_err(|error| not_begun(&error))?;
        if matches!(status.state, ArrayState::Failed | ArrayState::Stopped) {
            return Err(CommandError::NotServing);
        }
        if joining != Joining::Spares {
            in_order(&status)?;
        }
        let shards = Shards {
            count: self.placed.shards,
            strips: self.strips,
            granularity_bytes: self.granularity_bytes(),
        };
        limits::may_join(&status.superblock, devices, joining, shards)
    }

    /// The coarsest write granularity of its devices, bytes; 0 if not known.
    pub fn granularity_bytes(&self) -> u32 {
        let devices = self.devices.all();
        let granularities = devices.iter().map(|(_, d)| d.info().granularity_bytes);
        granularities.max().unwrap_or(0)
    }

    /// The memory limit with which each thread would have so many buffers of a strip, bytes.
    pub fn memory_for(&self, strips: usize) -> u64 {
        let strip = self.shape.now().strip;
        memory_for_strips(strip, strips, self.export_kind, self.placed.shards)
    }

    /// Adds parities on devices that were attached; they are detached again if it is refused.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn add_parity(&self, devices: Vec<NewDevice>) -> Result<Changed, CommandError> {
        self.widen(devices, Command::AddParity)
    }

    /// Begins to move data to a shape with members on these devices, too, with other groups, or
    /// with other strips.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn restripe(&self, shape: NewShape) -> Result<Changed, CommandError> {
        let data = shape.data;
        let command = |devices| Command::Restripe(NewShape { devices, data });
        self.widen(shape.devices, command)
    }

    fn widen(
        &self,
        devices: Vec<NewDevice>,
        command: impl FnOnce(Vec<NewDevice>) -> Command,
    ) -> Result<Changed, CommandError> {
        let attached: Vec<DeviceId> = devices.iter().map(|new| new.device).collect();
        let done = self.command(command(devices));
        if done.as_ref().is_err_and(|error| !is_under_way(error)) {
            attached.into_iter().for_each(|device| self.detach(device));
        }
        done
    }

    /// What it has of the machine.
    pub fn placed(&self) -> &Placed {
        &self.placed
    }

    /// What an export that begins now is made from.
    pub(crate) fn target(&self) -> export::Target {
        export::Target {
            name: locked(&self.called).name.clone(),
            geometry: self.shape.now(),
            ..self.target.clone()
        }
    }

    /// Where an export that begins now listens, if it is served by NBD.
    fn socket(&self) -> PathBuf {
        locked(&self.called).nbd_socket.clone()
    }

    /// Not held while a driver is waited for: every look at the array takes it.
    fn own(&self) -> MutexGuard<'_, Own> {
        locked(&self.own)
    }

    /// What serves it.
    pub fn export(&self) -> Export {
        let own = self.own();
        own.running.as_ref().map_or(Export::None, Running::export)
    }

    /// New connections know the array by this name, and find it at `nbd_socket` if it is served
    /// there. Block devices have numbers, not names.
    ///
    /// # Errors
    /// The socket cannot be moved: it stays where it is until the array is served anew.
    pub fn rename_export(&self, name: &ArrayName, nbd_socket: &Path) -> io::Result<()> {
        *locked(&self.called) = Called {
            name: name.as_str().to_owned(),
            nbd_socket: nbd_socket.to_owned(),
        };
        let file = self.own().running.as_ref().and_then(Running::socket_file);
        file.map_or(Ok(()), |file| file.rename(name.as_str(), nbd_socket))
    }

    /// A way to give requests from within this process.
    pub fn client(&self) -> LocalClient {
        LocalClient::new(
            self.threads.peers.clone(),
            self.shape.clone(),
            Arc::clone(&self.client_memory),
        )
    }

    /// State of the region that holds a byte of the array; `None` beyond its end. An array that has
    /// just grown may tell of its new size (`status`) a moment before what is new can be asked for.
    pub fn region_of(&self, offset: u64) -> Option<RegionState> {
        let geometry = self.shape.now();
        if offset >= geometry.size() {
            return None;
        }
        let place = geometry.locate(offset);
        let region = geometry.region(geometry.row(place.stripe).1);
        let states = self
            .ask(ASK_PATIENCE, |answer| Mail::Regions(region, 1, answer))
            .ok()?;
        states.first().copied()
    }
}

/// What every thread of an array starts from.
struct ThreadStart {
    name: String,
    clock: Clock,
    setup: ShardSetup,
    stock: Vec<(usize, usize)>,
    pinning: Pinning,
    placed: Placed,
    io_timeout: Duration,
    devices: Arc<Devices>,
    tallies: Arc<[Tally]>,
    client_memory: Arc<[SharedPool]>,
    queue_stock: Option<ublk::Stock>,
    /// Places for pages of ublk requests.
    pages: u16,
    shape: Shape,
}

impl ThreadStart {
    /// Starts the array, without an export yet.
    fn array(
        self,
        shards: u16,
        array: Array,
        exports: Exports,
        memory: &Reserved,
    ) -> Result<(Serving, Receiver<EventRecord>), ServeError> {
        let (events, event_receiver) = channel();
        let (lifecycle, lifecycle_receiver) = channel();
        let devices = Arc::clone(&self.devices);
        let (tallies, client_memory) = (Arc::clone(&self.tallies), Arc::clone(&self.client_memory));
        let shape = self.shape.clone();
        let placed = self.placed.clone();
        let strips = limits::largest_in(&self.stock);
        let threads = self.threads(shards, array, events, lifecycle)?;
        memory.is_allocated();
        threads.peers.array().post(Mail::Start);
        // Member I/O has deadlines, so the array comes to an end of its start.
        let mut patience = QUIET_PATIENCE;
        match asking::answer_of(&threads.peers, &lifecycle_receiver, &mut patience) {
            Ok(Lifecycle::Started) => {}
            Ok(Lifecycle::Failed(FailCause::ListFull)) => return Err(ServeError::ListFull),
            Ok(Lifecycle::Failed(FailCause::NumbersExhausted)) => {
                return Err(ServeError::NumbersExhausted);
            }
            Ok(Lifecycle::Failed(FailCause::NoSpace)) => {
                return Err(ServeError::NoSpaceToStart(crate::thread::control::out(
                    &event_receiver,
                )));
            }
            Err(Unanswered::Stalled(stalled)) => return Err(ServeError::Silent(stalled)),
            Ok(Lifecycle::Failed(FailCause::MembersLost) | Lifecycle::Stopped) | Err(_) => {
                return Err(ServeError::MembersFailed(crate::thread::control::out(
                    &event_receiver,
                )));
            }
        }
        let lifecycle = Mutex::new(lifecycle_receiver);
        let called = Called {
            name: exports.name.clone(),
            nbd_socket: exports.nbd_socket,
        };
        let target = export::Target {
            name: exports.name,
            tag: exports.tag,
            geometry: shape.now(),
            shape: shape.clone(),
            volume: None,
            granularity: exports.granularity,
            peers: threads.peers.clone(),
            in_flight: exports.requests.map(InFlight::new),
        };
        let serving = Serving {
            threads,
            own: Mutex::default(),
            volumes: Mutex::default(),
            target,
            export_kind: exports.kind,
            requests: exports.requests,
            called: Mutex::new(called),
            devices,
            tallies,
            client_memory,
            shape,
            placed,
            strips,
            lifecycle,
            memory: None,
        };
        Ok((serving, event_receiver))
    }

    /// Starts all threads, and returns when each has its ring.
    fn threads(
        self,
        shards: u16,
        array: Array,
        events: Sender<EventRecord>,
        lifecycle: Sender<Lifecycle>,
    ) -> Result<Threads, ServeError> {
        let mut watch = Watch::new();
        for (id, device) in self.devices.all() {
            watch.add(id, device);
        }
        let mut control = Some(Control::new(
            array,
            watch,
            events,
            lifecycle,
            self.shape.clone(),
        ));
        let (mailboxes, receivers): (Vec<_>, Vec<_>) = (0..shards)
            .map(|_| Mailbox::new())
            .collect::<io::Result<Vec<_>>>()
            .map_err(|e| ServeError::io("make an eventfd", e))?
            .into_iter()
            .unzip();
        let threads = Threads::new(Peers::new(mailboxes));
        let (ready, readiness) = channel();
        let start = Arc::new(self);
        for (index, mail) in (0..shards).zip(receivers) {
            let (start, peers, ready) = (Arc::clone(&start), threads.peers.clone(), ready.clone());
            let control = control.take();
            let ended = threads.ended();
            let name = thread_name(&start.name, index);
            let work = move || {
                let _guard = EndProcessOnPanic;
                pin(start.pinning.cpus(index));
                declare_io_flusher();
                match start.worker(ShardNo(index), peers, control, mail) {
                    Ok(worker) => {
                        have_stack_and_heap();
                        let _ = ready.send(Ok(()));
                        drop((start, ready));
                        let busy = worker.run();
                        let _ = ended.send((index, busy));
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                        let _ = ended.send((index, Vec::new()));
                    }
                }
            };
            threads.add(spawn(name, work).map_err(no_thread)?);
        }
        drop(ready);
        for result in readiness {
            result?;
        }
        Ok(threads)
    }

    /// Makes what one thread is made of; on that thread.
    fn worker(
        &self,
        index: ShardNo,
        peers: Peers,
        control: Option<Control>,
        mail: Receiver<Mail>,
    ) -> Result<Worker, ServeError> {
        let geometry = &self.setup.geometry;
        let short = |stock: &[(usize, usize)]| memory::ran_out(bytes_of(stock));
        let pool = Pool::try_new(&self.stock).ok_or_else(|| short(&self.stock))?;
        let of_queue = |stock| ublk::QueueMemory::new(stock).ok_or_else(|| short(stock));
        let queue_memory = self.queue_stock.as_ref().map(of_queue).transpose()?;
        let client_memory = self.client_memory[usize::from(index.0)].clone();
        let ring = Ring::made_soon().and_then(Ring::with_requests);
        let ring = ring.map_err(|error| no_io_uring(&error))?.with_calls();
        let pools: Vec<&[(usize, usize)]> = [
            Some(pool.addresses()),
            queue_memory.as_ref().map(ublk::QueueMemory::addresses),
            Some(client_memory.addresses()),
        ]
        .into_iter()
        .flatten()
        .collect();
        let listed = Registered::of(&pools);
        // SAFETY: the pools live in the worker, in fields that are dropped after the ring; memory
        // of theirs that is elsewhere still (answers on their way) stays where it is until it is
        // dropped there, and the kernel pins the pages of a registration by itself.
        let registered = unsafe { ring.register_buffers(listed.addresses(), self.pages) };
        let listed = if registered {
            listed
        } else {
            Registered::default()
        };
        // SAFETY: it names no memory.
        let places = registered || unsafe { ring.register_buffers(&[], self.pages) };
        let pages_at = listed.addresses().len() as u16;
        // Without places for pages, reads are copied to their users.
        let pages = pages_at..pages_at + if places { self.pages } else { 0 };
        let count = peers.count();
        Ok(Worker {
            index,
            clock: self.clock,
            pulse: Pulse::new(crate::thread::worker::SLACK_NS, self.clock.now()),
            ring,
            ios: MemberIos::new(listed, self.io_timeout)
                .merging()
                .under_an_array(),
            engine: Shard::new(index, count, self.setup.clone(), pool),
            control,
            router: Router::new(Arc::clone(geometry), count, index.0),
            peers,
            mail,
            devices: Arc::clone(&self.devices),
            tallies: Arc::clone(&self.tallies),
            queue_memory,
            pages,
            log: log_of(&self.setup),
            _client_memory: client_memory,
            work: Default::default(),
        })
    }
}

/// The array has a thread too few.
fn no_thread(error: io::Error) -> ServeError {
    ServeError::io("start the array's threads", error)
}

/// Whether the array may change its shape, as far as its members go.
fn in_order(status: &Status) -> Result<(), CommandError> {
    let quiet = |job: &JobStatus| !matches!(job.kind, JobKind::Rebuild | JobKind::Resync);
    let whole = status.state == ArrayState::Optimal && status.jobs.iter().all(quiet);
    match status.state {
        ArrayState::Failed | ArrayState::Stopped => Err(CommandError::NotServing),
        _ if status.superblock.moving.is_some() => Err(CommandError::Moving),
        _ if whole => Ok(()),
        _ => Err(CommandError::NotOptimal),
    }
}

/// Ends the process when the thread that holds it panics.
struct EndProcessOnPanic;

impl Drop for EndProcessOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(
                "a shard has panicked: the process ends, the array is found as after a kill"
            );
            // The thread that writes the log, if there is one, has a moment; nothing waits for
            // longer.
            std::thread::sleep(LAST_LINE);
            std::process::abort();
        }
    }
}

/// The engine's description of a member found, but for its log.
pub fn found(device: DeviceId, info: DeviceInfo, image: MemberImage) -> Found {
    Found {
        device,
        info,
        superblock: image.superblock,
        copy_to_replace: image.copy_to_replace,
        emptied: image.emptied,
        map: image.map,
        map_whole: image.map_whole,
        unreadable: image.unreadable,
        log: Vec::new(),
    }
}

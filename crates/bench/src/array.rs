//! An array on files, served in this process, and jobs that give it requests from its own shards'
//! threads: the way of a ublk queue, without the kernel's part of it.
//!
//! Invariants: each job is at home on one shard; its next request is given when one is answered,
//! so that as many are in flight as the load says; a write's outcome is known when it is answered,
//! so everything can be read back and compared.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use strake_engine::Slice;
use strake_engine::create::{CreateSpec, Init, plan};
use strake_engine::event::{ArrayState, Command, NewDevice, Op, RequestError, Setting, Slices};
use strake_engine::units::Slot;
use strake_format::{ArrayName, ArrayUuid, Level, MemberUuid, Settings, WriteHole};
use strake_runtime::{
    Device, ExportKind, LocalClient, OpenMode, Placement, ServeConfig, Serving, serve,
};

use crate::load::{Job, Limit, Load, Space, Tally};
use crate::meter::{Sample, Subject, Watch};
use crate::raw::{STOCK, payload, prepare};
use crate::stamp::Patterns;

/// Bytes of a strip, as in the goals.
pub(crate) const STRIP: u32 = 128 << 10;
/// Buffer memory of each shard.
const SHARD_MEMORY: usize = 64 << 20;
/// A command or a rebuild that takes longer never ends.
const PATIENCE: Duration = Duration::from_secs(120);

/// Level and widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) level: Level,
    /// Data strips of a stripe.
    pub(crate) k: u64,
    /// Parity strips of a stripe.
    pub(crate) m: u64,
}

impl Shape {
    pub(crate) fn members(self) -> u64 {
        self.k + self.m
    }
}

/// See the module.
pub(crate) struct Subjected {
    pub(crate) shape: Shape,
    serving: Serving,
    lanes: Vec<Arc<Lane>>,
    done: Receiver<()>,
    dir: PathBuf,
    files: Vec<PathBuf>,
    member_bytes: u64,
    made: u64,
    /// Bytes that the jobs have filled.
    filled: u64,
    policy: WriteHole,
}

/// A job and its way to the array.
struct Lane {
    client: LocalClient,
    shard: u16,
    job: Mutex<Job>,
    patterns: Arc<Patterns>,
    done: Mutex<Sender<()>>,
}

fn member_uuid(number: u64) -> MemberUuid {
    MemberUuid((u128::from(number) + 1).to_be_bytes())
}

/// A new file of a member's size, opened.
fn new_file(path: &Path, bytes: u64) -> Result<Device> {
    let file = std::fs::File::create(path).with_context(|| path.display().to_string())?;
    file.set_len(bytes)?;
    Ok(Device::open(path, OpenMode::Member)?)
}

impl Subjected {
    /// A new array on files in `dir`, served by as many shards as there are jobs, and filled.
    pub(crate) fn new(
        dir: &Path,
        shape: Shape,
        member_bytes: u64,
        jobs: u16,
        patterns: &Arc<Patterns>,
    ) -> Result<Subjected> {
        let files: Vec<PathBuf> = (0..shape.members())
            .map(|at| dir.join(format!("member{at}")))
            .collect();
        create(&files, shape, member_bytes)?;
        let serving = open(&files, jobs)?;
        let size = serving.status().size_bytes;
        let client = serving.client();
        ensure!(client.shards() == jobs, "one shard for each job");
        let row = shape.k * u64::from(STRIP);
        // Whole rows and whole mebibytes, so that every load fits.
        let unit = row * (1 << 20) / gcd(row, 1 << 20);
        let share = size / u64::from(jobs) / unit * unit;
        let (sender, done) = channel();
        let lanes = (0..jobs)
            .map(|shard| {
                prepare(client.memory(shard), patterns);
                let space = Space {
                    lanes: 1,
                    stride: 0,
                    first: u64::from(shard) * share,
                    bytes: share,
                };
                Arc::new(Lane {
                    client: client.clone(),
                    shard,
                    job: Mutex::new(Job::new(space, Arc::clone(patterns))),
                    patterns: Arc::clone(patterns),
                    done: Mutex::new(sender.clone()),
                })
            })
            .collect();
        let mut array = Subjected {
            shape,
            serving,
            lanes,
            done,
            dir: dir.to_owned(),
            made: shape.members(),
            files,
            member_bytes,
            filled: share * u64::from(jobs),
            policy: WriteHole::Closed,
        };
        array.fill()?;
        Ok(array)
    }

    /// Sets the policy of the write hole.
    pub(crate) fn set_policy(&mut self, policy: WriteHole) -> Result<()> {
        if self.policy != policy {
            self.command(Command::Set(Setting::WriteHole(policy)))?;
            self.policy = policy;
        }
        Ok(())
    }

    /// Sets the latency target of background work; none is 0.
    pub(crate) fn set_target(&self, us: u32) -> Result<()> {
        self.command(Command::Set(Setting::LatencyTargetUs(us)))
    }

    fn command(&self, command: Command) -> Result<()> {
        let what = format!("{command:?}");
        let said = self.serving.command(command);
        said.map(|_| ()).context(what)
    }

    /// Takes a member out of service.
    pub(crate) fn fail(&mut self, slot: u64) -> Result<()> {
        let slot = Slot(u8::try_from(slot)?);
        self.command(Command::Fail(slot))?;
        let old = &self.files[usize::from(slot.0)];
        std::fs::remove_file(old).with_context(|| old.display().to_string())?;
        self.wait_for(ArrayState::Degraded)
    }

    fn wait_for(&self, state: ArrayState) -> Result<()> {
        let begun = Instant::now();
        while self.serving.status().state != state {
            ensure!(begun.elapsed() < PATIENCE, "in vain for {state:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Gives the array a new member for the slot that has none, and waits for the rebuild; a load
    /// runs beside it if one is given. Answers the target's bytes per second and the load's sample.
    pub(crate) fn rebuild(
        &mut self,
        slot: u64,
        beside: Option<(Load, bool)>,
    ) -> Result<(Rebuilt, Option<Sample>)> {
        let told = Arc::new(AtomicBool::new(false));
        let limit = Limit::Told(Arc::clone(&told));
        let path = self.dir.join(format!("member{}", self.made));
        let device = new_file(&path, self.member_bytes)?;
        // A drive has all its blocks: that the file system finds memory for a file is no rebuild's.
        let old = vec![0xa5; 1 << 20];
        for offset in (0..self.member_bytes).step_by(old.len()) {
            device.write_at(offset, &old)?;
        }
        let info = device.info();
        let new = NewDevice {
            device: self.serving.attach(device)?,
            info,
            member: member_uuid(self.made),
        };
        self.made += 1;
        self.files[usize::try_from(slot)?] = path;
        let before = self.serving.counters();
        let watch = Watch::start();
        if let Some((load, check)) = beside {
            self.begin(load, &limit, check);
        }
        self.command(Command::Add(new))?;
        let whole = self.wait_for(ArrayState::Optimal);
        let (time, cpu) = (watch.begun.elapsed(), watch.cpu_since());
        told.store(true, Ordering::Relaxed);
        let sample = match beside {
            Some((load, _)) => {
                let tallies = self.wait_jobs()?;
                let after = self.serving.counters();
                Some(watch.stop(load, &tallies, Some((before, after)))?)
            }
            None => None,
        };
        whole?;
        let bytes = self.filled / self.shape.k;
        let after = self.serving.counters();
        let written = after.member_written_bytes - before.member_written_bytes;
        ensure!(
            written >= bytes,
            "a rebuild of {bytes} bytes wrote {written} only"
        );
        Ok((
            Rebuilt {
                bytes_per_s: bytes as f64 / time.as_secs_f64(),
                cpu_ns_per_mib: cpu.as_nanos() as f64 / (bytes as f64 / 1_048_576.0),
            },
            sample,
        ))
    }

    fn begin(&self, load: Load, limit: &Limit, check: bool) {
        for lane in &self.lanes {
            lane.begin(load, limit, check);
        }
    }

    fn wait_jobs(&self) -> Result<Vec<Tally>> {
        for _ in &self.lanes {
            let said = self.done.recv_timeout(PATIENCE);
            said.context("the array does not answer a request")?;
        }
        Ok(self
            .lanes
            .iter()
            .map(|lane| lane.job().tally().clone())
            .collect())
    }

    /// Waits until everything is durable, so that one load does not pay for another.
    fn settle(&self) -> Result<()> {
        let (sender, flushed) = channel();
        let answer = move |result: Result<Slices, RequestError>| {
            // Nobody listens where waiting was given up.
            let _ = sender.send(result.map(drop));
        };
        let lane = &self.lanes[0];
        lane.client.submit(lane.shard, Op::Flush, Box::new(answer));
        match flushed.recv_timeout(PATIENCE) {
            Ok(Ok(())) => Ok(()),
            other => bail!("flush: {other:?}"),
        }
    }

    /// Stops cleanly.
    pub(crate) fn close(self) -> Result<()> {
        drop(self.lanes);
        Ok(self.serving.stop()?)
    }
}

/// What a rebuild took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rebuilt {
    pub(crate) bytes_per_s: f64,
    /// CPU time of the whole process for each mebibyte of the target.
    pub(crate) cpu_ns_per_mib: f64,
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Serves the array on these files.
fn open(files: &[PathBuf], shards: u16) -> Result<Serving> {
    let members = files
        .iter()
        .map(|path| {
            let device = Device::open(path, OpenMode::Member)?;
            let image = device.read_member()?;
            Ok((device, image))
        })
        .collect::<Result<Vec<_>>>()?;
    let (serving, events) = serve(ServeConfig {
        members,
        shards,
        memory_bytes: SHARD_MEMORY,
        placement: Placement::default(),
        io_timeout: Duration::from_secs(60),
        force: false,
        export: ExportKind::None,
        nbd_socket: PathBuf::new(),
        recover_ublk: None,
        client_stock: STOCK.to_vec(),
    })?;
    // Somebody must take the events.
    std::thread::spawn(move || events.into_iter().for_each(drop));
    Ok(serving)
}

/// Writes a new array.
fn create(files: &[PathBuf], shape: Shape, member_bytes: u64) -> Result<()> {
    let devices = files
        .iter()
        .map(|path| new_file(path, member_bytes))
        .collect::<Result<Vec<_>>>()?;
    let members = devices.iter().zip(0..);
    let created = plan(&CreateSpec {
        array: ArrayUuid(*b"strake benchmark"),
        name: "bench".parse::<ArrayName>().context("a name")?,
        level: shape.level,
        strip_bytes: Some(STRIP),
        group_size: None,
        block_bytes: Some(4096),
        write_hole: WriteHole::Closed,
        settings: Settings::default(),
        init: Init::Lazy,
        created_unix_s: 0,
        members: members
            .map(|(device, at)| (device.info(), member_uuid(at)))
            .collect(),
        spares: Vec::new(),
        tiny: None,
    })?;
    for (device, writes) in devices.iter().zip(&created.writes) {
        for (offset, bytes) in writes {
            device.write_at(*offset, bytes)?;
        }
        device.flush()?;
    }
    Ok(())
}

impl Subject for Subjected {
    fn run(&mut self, load: Load, limit: &Limit, check: bool) -> Result<Sample> {
        let before = self.serving.counters();
        let watch = Watch::start();
        self.begin(load, limit, check);
        let tallies = self.wait_jobs()?;
        let after = self.serving.counters();
        let sample = watch.stop(load, &tallies, Some((before, after)));
        self.settle()?;
        sample
    }
}

impl Lane {
    fn job(&self) -> MutexGuard<'_, Job> {
        self.job.lock().expect("no thread panics with a job")
    }

    fn begin(self: &Arc<Lane>, load: Load, limit: &Limit, check: bool) {
        self.job().begin(load, limit, check);
        for slot in 0..load.depth {
            let mut job = self.job();
            self.give(&mut job, slot, Instant::now());
        }
    }

    fn give(self: &Arc<Lane>, job: &mut Job, slot: usize, now: Instant) {
        let load = job.load();
        let Some(place) = job.next(slot, now) else {
            return;
        };
        let offset = place.offset;
        let op = if load.write {
            let memory = self.client.memory(self.shard);
            let mut buf = payload(memory, &self.patterns, load.bytes);
            job.stamp(place, &mut buf.bytes_mut()[..load.bytes]);
            Op::Write {
                offset,
                data: Slice::new(buf, 0, load.bytes),
                fua: false,
            }
        } else {
            Op::Read {
                offset,
                len: load.bytes as u64,
            }
        };
        let lane = Arc::clone(self);
        let answer = move |result| lane.answered(slot, result);
        self.client.submit(self.shard, op, Box::new(answer));
    }

    fn answered(self: &Arc<Lane>, slot: usize, result: Result<Slices, RequestError>) {
        let now = Instant::now();
        let mut job = self.job();
        let parts = result
            .as_ref()
            .map(|slices| slices.iter().map(Slice::bytes));
        job.answered(slot, now, parts.map_err(|error| format!("{error:?}")));
        drop(result);
        self.give(&mut job, slot, now);
        if job.at_rest() {
            let done = self.done.lock().expect("no thread panics with the sender");
            // Nobody listens where waiting was given up.
            let _ = done.send(());
        }
    }
}

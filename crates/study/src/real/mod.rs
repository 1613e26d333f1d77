//! A rig on real drives: an array that Strake's daemon serves, loads by fio, logs of the drives.
//!
//! Safety: whatever is written or erased was named by the user ([`Consent`]), and is looked at once
//! more right before ([`Host::free`]): nothing that is mounted or held is touched. Arrays are made
//! under a name of the study's own.
//!
//! Invariants: the job file and the answer of each run of fio are kept; a member that is lost
//! without a step that asked for it ends the step; what a drive does not report is unknown.
//! Deliberately absent: how an array is made and what holds a device (the host's).

mod cores;
mod erase;
mod fio;
pub mod program;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use strake_foresight::load::Load;
use strake_lab::steady;

use crate::definition::{Case, Shape, Step, Study, What};
use crate::real::cores::Count;
use crate::real::fio::{Length, Place};
use crate::result::{DriveSeen, RAW};
use crate::rig::{FioOptions, Job, Reached, Rig, RigError, Target, Until, Wear};
use crate::run::Rigs;

/// A round of a load that is to become steady (SNIA PTS).
const ROUND: Duration = Duration::from_secs(60);
/// How often an array or a child is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// A load beside a job runs until the job ends, and at most this long.
const BESIDE_MAX: Duration = Duration::from_secs(400 * 86_400);
/// A load beside a job begins so long before it.
const LEAD: Duration = Duration::from_secs(1);
/// How long fio may take to end.
const END_MAX: Duration = Duration::from_secs(120);
/// How long an array may take to be served: one that was just made, or of a daemon that was just
/// started.
const SERVED_MAX: Duration = Duration::from_secs(60);

/// What kind of a device it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A whole namespace of an NVMe drive.
    Nvme,
    /// Any other block device, a partition too.
    Block,
}

/// An array as the daemon shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArraySeen {
    /// Block device or NBD URI; `None` while it is not served.
    pub device: Option<String>,
    /// Its size.
    pub bytes: u64,
    /// By slot: what is there, and in what state (`in_sync`, `failed`, …).
    pub members: Vec<(Option<PathBuf>, String)>,
    /// Jobs that are not over.
    pub jobs: Vec<JobSeen>,
}

/// A job as the daemon shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobSeen {
    /// `rebuild`, `scrub`, `init`, …
    pub kind: String,
    /// Bytes of it that are done.
    pub done_bytes: u64,
    /// Bytes of all of it.
    pub total_bytes: u64,
    /// Why it waits; `None`: it does not.
    pub paused_by: Option<String>,
}

/// What a message sends a person to do with an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To find out which arrays the drives carry.
    Find,
    /// To see what state it is in.
    Show,
    /// To have it served.
    Start,
    /// To be rid of it.
    Destroy,
}

/// What the machine does for a study, with an engine that serves its arrays. Errors say what was
/// found and a way on.
pub trait Host {
    /// The command for it.
    fn way(&self, way: Way, name: &str) -> String;
    /// Refuses a device that somebody uses: mounted, held, a member of an array that runs.
    fn free(&self, devices: &[PathBuf]) -> Result<(), String>;
    /// What kind of device it is.
    fn kind(&self, device: &Path) -> Result<Kind, String>;
    /// Makes an array and serves it; what is on the devices is lost. What a reader should know.
    fn create(&self, name: &str, shape: &Shape, devices: &[PathBuf])
    -> Result<Vec<String>, String>;
    /// The array, if there is one of that name.
    fn array(&self, name: &str) -> Result<Option<ArraySeen>, String>;
    /// Takes the member of a slot out.
    fn fail(&self, name: &str, slot: usize) -> Result<(), String>;
    /// Gives a slot without a member this device as a new one; all of it is rebuilt.
    fn renew(&self, name: &str, slot: usize, device: &Path) -> Result<(), String>;
    /// Starts a scrub.
    fn scrub(&self, name: &str) -> Result<(), String>;
    /// Stops the array and forgets it.
    fn destroy(&self, name: &str) -> Result<(), String>;
    /// What the drive counts, as its logs say.
    fn wear(&self, device: &Path) -> Result<Wear, String>;
}

/// Devices that the user named as those that may be overwritten.
#[derive(Clone, Debug)]
pub struct Consent(BTreeSet<PathBuf>);

impl Consent {
    /// The user named them, each by its own name.
    pub fn given(devices: impl IntoIterator<Item = PathBuf>) -> Consent {
        Consent(devices.into_iter().collect())
    }
    fn covers(&self, devices: &[PathBuf]) -> bool {
        devices.iter().all(|device| self.0.contains(device))
    }
}

/// How far a step is: its share that is done, and how long it takes on.
pub type Ticker<'a> = Rc<RefCell<dyn FnMut(f64, Option<Duration>) + 'a>>;

/// Makes rigs on these drives.
pub struct Real<'a> {
    /// The machine.
    pub host: &'a dyn Host,
    /// By slot.
    pub drives: Vec<DriveSeen>,
    /// See [`Consent`].
    pub consent: Consent,
    /// Folder of the study.
    pub folder: PathBuf,
    /// Is told how far a step is.
    pub ticker: Ticker<'a>,
}

/// Name of a study's array: a case has one at a time.
pub fn array_name(study: &Study, case: &Case) -> String {
    // At most 32 letters; the case is what tells arrays of one study apart.
    let name = format!("study-{}-{}", study.name, case.name);
    name.chars().take(32).collect()
}

fn failed(step: &str) -> impl Fn(String) -> RigError {
    move |cause| RigError {
        step: step.to_owned(),
        cause,
    }
}

impl Rigs for Real<'_> {
    fn keeps(&self) -> bool {
        true
    }

    fn rig(
        &mut self,
        study: &Study,
        case: &Case,
        done: &[&Step],
    ) -> Result<Box<dyn Rig + '_>, RigError> {
        let error = failed("the drives");
        let needs = case.shape.drives;
        let have = self.drives.len();
        let Some(drives) = self.drives.get(..needs) else {
            return Err(error(format!(
                "the case needs {needs} drives, and {have} were given"
            )));
        };
        let devices: Vec<PathBuf> = drives.iter().map(|drive| drive.path.clone()).collect();
        if !self.consent.covers(&devices) {
            return Err(error(
                "not all of them were named as those to overwrite".to_owned(),
            ));
        }
        let fio = program::find("fio", "fio").map_err(failed("fio"))?;
        let raw = self.folder.join(RAW);
        fs::create_dir_all(&raw).map_err(|e| error(format!("{}: {e}", raw.display())))?;
        let mut out = BTreeSet::new();
        for step in done {
            match step.what {
                What::Fail { slot } => {
                    out.insert(slot);
                }
                What::Rebuild { slot, .. } => {
                    out.remove(&slot);
                }
                _ => {}
            }
        }
        let rig = RealRig {
            host: self.host,
            name: array_name(study, case),
            shape: case.shape.clone(),
            sizes: drives.iter().map(|drive| drive.bytes).collect(),
            devices,
            fio,
            raw,
            out,
            step: String::new(),
            runs: 0,
            options: FioOptions::new(),
            notes: Vec::new(),
            cores: None,
            ticker: Rc::clone(&self.ticker),
        };
        if done.iter().any(|step| step.what == What::Create) {
            rig.array().map_err(failed("the array of the study"))?;
        }
        Ok(Box::new(rig))
    }
}

/// See the module.
struct RealRig<'a> {
    host: &'a dyn Host,
    name: String,
    shape: Shape,
    devices: Vec<PathBuf>,
    sizes: Vec<u64>,
    fio: PathBuf,
    raw: PathBuf,
    /// Slots of members that a step took out.
    out: BTreeSet<usize>,
    /// Files of this step begin so.
    step: String,
    /// Runs of fio in it.
    runs: usize,
    options: FioOptions,
    notes: Vec<String>,
    /// Cores that were busy when fio ran, a job did, or nothing.
    cores: Option<f64>,
    ticker: Ticker<'a>,
}

/// A fio that is ended with what started it.
struct Running {
    child: Child,
    output: PathBuf,
    errors: PathBuf,
}

impl Running {
    /// Has it end before its time; it still says what it reached. fio does not heed a signal that
    /// comes while it begins, so that it gets more than one.
    fn interrupt(&mut self) -> Result<(), String> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let began = Instant::now();
        let mut next = began;
        while self
            .child
            .try_wait()
            .map_err(|error| error.to_string())?
            .is_none()
        {
            if began.elapsed() > END_MAX {
                return Err(format!("fio does not end within {} s", END_MAX.as_secs()));
            }
            if let Some(pid) = pid
                && Instant::now() >= next
            {
                next = Instant::now() + Duration::from_secs(2);
                // It may have ended by itself.
                let _ = kill_process(pid, Signal::INT);
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn end(mut self, loads: &[Load]) -> Result<Vec<Reached>, String> {
        let status = self.child.wait().map_err(|error| error.to_string())?;
        let output = fs::read(&self.output).unwrap_or_default();
        let said = fs::read_to_string(&self.errors).unwrap_or_default();
        let said = said.trim().lines().last().unwrap_or_default().to_owned();
        let answer = fio::reached(&output, loads);
        answer.map_err(|why| match said.is_empty() {
            true => format!("{why} ({status}; {})", self.output.display()),
            false => format!("{why}; it said: {said} ({status})"),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl RealRig<'_> {
    fn tick(&self, share: f64, left: Option<Duration>) {
        (self.ticker.borrow_mut())(share, left);
    }

    fn array(&self) -> Result<ArraySeen, String> {
        let array = self.host.array(&self.name)?;
        array.ok_or_else(|| {
            let (name, find) = (&self.name, self.host.way(Way::Find, &self.name));
            format!(
                "the array {name} is not here: {find} says which arrays the drives carry; without \
                 it the study begins anew"
            )
        })
    }

    /// The array, if all members are there that are to be.
    fn whole(&self) -> Result<ArraySeen, String> {
        let array = self.array()?;
        for (slot, (device, state)) in array.members.iter().enumerate() {
            if state != "in_sync" && !self.out.contains(&slot) {
                let device = device
                    .as_deref()
                    .or(self.devices.get(slot).map(PathBuf::as_path));
                let device = device.map_or_else(String::new, |d| format!(" ({})", d.display()));
                return Err(format!(
                    "the member in slot {slot}{device} is {state}, and no step of the study took \
                     it out: see {}",
                    self.host.way(Way::Show, &self.name)
                ));
            }
        }
        Ok(array)
    }

    /// The array, and what it is served as. A daemon that was just started is still at it.
    fn served(&self) -> Result<(ArraySeen, String), String> {
        let began = Instant::now();
        loop {
            let array = self.whole()?;
            if let Some(device) = array.device.clone() {
                return Ok((array, device));
            }
            if began.elapsed() > SERVED_MAX {
                let (name, start) = (&self.name, self.host.way(Way::Start, &self.name));
                return Err(format!(
                    "the array {name} is not served after {SERVED_MAX:?}: {start}"
                ));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn places(&self, target: Target) -> Result<Vec<Place>, String> {
        match target {
            Target::Drives => {
                self.host.free(&self.devices)?;
                let all = self.devices.iter().zip(&self.sizes);
                Ok(all
                    .map(|(path, bytes)| Place::Path(path.clone(), *bytes))
                    .collect())
            }
            Target::Array => {
                let (array, device) = self.served()?;
                Ok(vec![match device.starts_with("nbd") {
                    true => Place::Nbd(device, array.bytes),
                    false => Place::Path(device.into(), array.bytes),
                }])
            }
        }
    }

    fn start(
        &mut self,
        places: &[Place],
        loads: &[Load],
        length: Length,
    ) -> Result<Running, String> {
        self.runs += 1;
        let named = |ext: &str| {
            let name = match self.runs {
                1 => format!("{}.{ext}", self.step),
                n => format!("{}-{n}.{ext}", self.step),
            };
            self.raw.join(name)
        };
        let (job, output, errors) = (named("fio"), named("json"), named("stderr"));
        let text = fio::jobs(places, loads, length, &self.options);
        let about = |path: &Path| {
            let path = path.display().to_string();
            move |error: std::io::Error| format!("{path}: {error}")
        };
        fs::write(&job, text).map_err(about(&job))?;
        // An answer of a run that was interrupted is not this one's.
        let _ = fs::remove_file(&output);
        let child = Command::new(&self.fio)
            .args(["--output-format=json", "--eta=never"])
            .arg(format!("--output={}", output.display()))
            .arg(&job)
            // fio may leave files of its own where it runs.
            .current_dir(&self.raw)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&errors).map_err(about(&errors))?)
            .spawn()
            .map_err(about(&self.fio))?;
        Ok(Running {
            child,
            output,
            errors,
        })
    }

    /// Runs loads to their end.
    fn run_for(
        &mut self,
        places: &[Place],
        loads: &[Load],
        length: Length,
    ) -> Result<Vec<Reached>, String> {
        let cores = Count::begin();
        let mut running = self.start(places, loads, length)?;
        let began = Instant::now();
        while running
            .child
            .try_wait()
            .map_err(|e| e.to_string())?
            .is_none()
        {
            if let Length::Time(time) = length {
                let gone = began.elapsed();
                let share = gone.as_secs_f64() / time.as_secs_f64().max(1e-9);
                self.tick(share.min(1.0), Some(time.saturating_sub(gone)));
            }
            std::thread::sleep(LOOK);
        }
        self.cores = cores.end();
        running.end(loads)
    }

    /// Runs rounds until they are steady.
    fn run_steady(
        &mut self,
        places: &[Place],
        loads: &[Load],
        passes: f64,
    ) -> Result<Vec<Reached>, String> {
        let enough = passes * places.iter().map(Place::bytes).sum::<u64>() as f64;
        let mut moved = 0.0;
        let mut rounds: Vec<Vec<Reached>> = Vec::new();
        let mut cores = Vec::new();
        let rate = |round: &[Reached]| -> f64 {
            round
                .iter()
                .map(|r| r.read_bytes_per_s + r.write_bytes_per_s)
                .sum()
        };
        loop {
            let round = self.run_for(places, loads, Length::Time(ROUND))?;
            moved += rate(&round) * ROUND.as_secs_f64();
            rounds.push(round);
            cores.push(self.cores);
            let rates: Vec<f64> = rounds.iter().map(|round| rate(round)).collect();
            let steady = steady::is_steady(&rates);
            if steady || moved >= enough {
                let count = rounds.len();
                self.notes.push(match steady {
                    true => format!("steady after {count} rounds of {} s", ROUND.as_secs()),
                    false => format!(
                        "not steady (SNIA PTS) after {passes} passes, {count} rounds of {} s",
                        ROUND.as_secs()
                    ),
                });
                let from = count.saturating_sub(steady::WINDOW);
                let sum: Option<f64> = cores[from..].iter().copied().sum();
                self.cores = sum.map(|sum| sum / (count - from) as f64);
                let mut mean = mean(&rounds[from..]);
                for (one, wrote) in mean.iter_mut().zip(wrote_in_all(&rounds)) {
                    one.wrote = wrote;
                }
                return Ok(mean);
            }
        }
    }

    /// Waits until a job of the array is over, loads beside it; answers its size, too.
    fn wait_for(
        &mut self,
        kind: &str,
        beside: &[Load],
        begin: impl FnOnce(&Self) -> Result<(), String>,
        is_over: impl Fn(&ArraySeen) -> bool,
    ) -> Result<Job, String> {
        let mut running = match beside {
            [] => None,
            loads => {
                let places = self.places(Target::Array)?;
                let running = self.start(&places, loads, Length::Time(BESIDE_MAX))?;
                std::thread::sleep(LEAD);
                Some(running)
            }
        };
        let (began, cores) = (Instant::now(), Count::begin());
        begin(self)?;
        let mut total = 0;
        loop {
            let array = self.array()?;
            if let Some(running) = &mut running
                && let Ok(Some(status)) = running.child.try_wait()
            {
                return Err(format!("fio ended before the {kind} did ({status})"));
            }
            let mut jobs = array.jobs.iter();
            match jobs.find(|job| job.kind == kind) {
                Some(job) => {
                    total = job.total_bytes.max(total);
                    if let Some(why) = job.paused_by.as_deref().filter(|why| *why != "asked") {
                        return Err(format!("the {kind} waits: {why}"));
                    }
                    let share = job.done_bytes as f64 / job.total_bytes.max(1) as f64;
                    let gone = began.elapsed().as_secs_f64();
                    let left = (share > 0.0).then(|| gone / share - gone);
                    let left = left.and_then(|left| Duration::try_from_secs_f64(left).ok());
                    self.tick(share, left);
                }
                None if is_over(&array) => break,
                None => {
                    self.whole()?;
                }
            }
            std::thread::sleep(LOOK);
        }
        let seconds = began.elapsed().as_secs_f64();
        self.cores = cores.end();
        let beside = match running {
            Some(mut running) => {
                running.interrupt()?;
                running.end(beside)?
            }
            None => Vec::new(),
        };
        Ok(Job {
            seconds,
            bytes_per_s: total as f64 / seconds,
            beside,
        })
    }
}

/// What all of these rounds wrote, load by load.
fn wrote_in_all(rounds: &[Vec<Reached>]) -> Vec<Option<f64>> {
    let loads = rounds.first().map_or(0, Vec::len);
    let of = |at: usize| rounds.iter().map(|round| round.get(at)?.wrote).sum();
    (0..loads).map(of).collect()
}

/// The mean of rounds, load by load; of latencies the longest.
fn mean(rounds: &[Vec<Reached>]) -> Vec<Reached> {
    let count = rounds.len() as f64;
    let mut all = rounds.iter();
    let mut sum = all.next().cloned().unwrap_or_default();
    for round in all {
        for (sum, one) in sum.iter_mut().zip(round) {
            sum.read_bytes_per_s += one.read_bytes_per_s;
            sum.write_bytes_per_s += one.write_bytes_per_s;
            sum.read_iops += one.read_iops;
            sum.write_iops += one.write_iops;
            for (longest, us) in sum.latency_us.iter_mut().zip(one.latency_us) {
                *longest = longest.max(us);
            }
        }
    }
    for one in &mut sum {
        one.read_bytes_per_s /= count;
        one.write_bytes_per_s /= count;
        one.read_iops /= count;
        one.write_iops /= count;
    }
    sum
}

impl Rig for RealRig<'_> {
    fn begin(&mut self, case: &str, step: &str, fio: &FioOptions) {
        self.step = format!("{case}-{step}");
        self.runs = 0;
        self.options = fio.clone();
    }

    fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn erase(&mut self) -> Result<(), RigError> {
        let error = failed("erase");
        self.host.free(&self.devices).map_err(&error)?;
        for (at, device) in self.devices.iter().enumerate() {
            let kind = self.host.kind(device).map_err(&error)?;
            let how = erase::erase(device, kind).map_err(&error)?;
            self.notes.push(how);
            self.tick((at + 1) as f64 / self.devices.len() as f64, None);
        }
        Ok(())
    }

    fn create(&mut self) -> Result<f64, RigError> {
        let error = failed("create");
        // A run that was cut off may have left it.
        if let Some(left) = self.host.array(&self.name).map_err(&error)? {
            let ours = |(device, _): &(Option<PathBuf>, String)| {
                device
                    .as_ref()
                    .is_none_or(|device| self.devices.contains(device))
            };
            if !left.members.iter().all(ours) {
                let (name, destroy) = (&self.name, self.host.way(Way::Destroy, &self.name));
                return Err(error(format!(
                    "an array {name} is there already, on other drives: {destroy}"
                )));
            }
            self.host.destroy(&self.name).map_err(&error)?;
        }
        self.host.free(&self.devices).map_err(&error)?;
        let began = Instant::now();
        let made = self
            .host
            .create(&self.name, &self.shape, &self.devices)
            .map_err(&error)?;
        self.notes.extend(made);
        loop {
            let array = self.array().map_err(&error)?;
            let zeroing = array.jobs.iter().any(|job| job.kind == "init");
            if array.device.is_some() && !(self.shape.zeroed && zeroing) {
                return Ok(began.elapsed().as_secs_f64());
            }
            if array.device.is_none() && began.elapsed() > SERVED_MAX {
                let why = format!("the array {} is not served after {SERVED_MAX:?}", self.name);
                return Err(error(why));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn run(
        &mut self,
        target: Target,
        loads: &[Load],
        until: Until,
    ) -> Result<Vec<Reached>, RigError> {
        let error = failed("load");
        let places = self.places(target).map_err(&error)?;
        let reached = match until {
            Until::Time { ramp, run } => {
                if !ramp.is_zero() {
                    self.run_for(&places, loads, Length::Time(ramp))
                        .map_err(&error)?;
                }
                self.run_for(&places, loads, Length::Time(run))
            }
            Until::Passes(passes) => self.run_for(&places, loads, Length::Passes(passes)),
            Until::Steady { passes } => self.run_steady(&places, loads, passes),
        };
        // The member that is lost says more than the load that failed for it.
        if target == Target::Array {
            self.whole().map_err(&error)?;
        }
        reached.map_err(error)
    }

    fn idle(&mut self, time: Duration) -> Result<(), RigError> {
        let (began, cores) = (Instant::now(), Count::begin());
        loop {
            let gone = began.elapsed();
            let left = time.saturating_sub(gone);
            if left.is_zero() {
                break;
            }
            self.tick(gone.as_secs_f64() / time.as_secs_f64(), Some(left));
            std::thread::sleep(left.min(Duration::from_secs(1)));
        }
        self.cores = cores.end();
        Ok(())
    }

    fn cores(&mut self) -> Option<f64> {
        self.cores
    }

    fn wear(&mut self) -> Result<Vec<Wear>, RigError> {
        // What a drive does not say is unknown; the result says so.
        let wear = |device: &PathBuf| self.host.wear(device).unwrap_or_default();
        Ok(self.devices.iter().map(wear).collect())
    }

    fn fail(&mut self, slot: usize) -> Result<(), RigError> {
        let error = failed("fail");
        let array = self.array().map_err(&error)?;
        let state = array.members.get(slot).map(|(_, state)| state.as_str());
        if matches!(state, Some("in_sync" | "rebuilding")) {
            self.host.fail(&self.name, slot).map_err(&error)?;
        }
        self.out.insert(slot);
        Ok(())
    }

    fn rebuild(&mut self, slot: usize, beside: &[Load]) -> Result<Job, RigError> {
        let error = failed("rebuild");
        // One that was cut off begins anew: what it took cannot be known.
        self.fail(slot)?;
        let device = self.devices[slot].clone();
        let begin = |rig: &Self| rig.host.renew(&rig.name, slot, &device);
        let over = |array: &ArraySeen| {
            array
                .members
                .get(slot)
                .is_some_and(|(_, state)| state == "in_sync")
        };
        let job = self
            .wait_for("rebuild", beside, begin, over)
            .map_err(&error)?;
        self.out.remove(&slot);
        self.whole().map_err(&error)?;
        Ok(job)
    }

    fn scrub(&mut self, beside: &[Load]) -> Result<Job, RigError> {
        let error = failed("scrub");
        let begin = |rig: &Self| rig.host.scrub(&rig.name);
        let job = self
            .wait_for("scrub", beside, begin, |_| true)
            .map_err(&error)?;
        self.whole().map_err(&error)?;
        Ok(job)
    }

    fn end(&mut self) -> Result<(), RigError> {
        let error = failed("end");
        match self.host.array(&self.name).map_err(&error)? {
            Some(_) => self.host.destroy(&self.name).map_err(error),
            None => Ok(()),
        }
    }
}

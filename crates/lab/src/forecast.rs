//! A plan's shape and loads, run by the engine on modelled drives: all members, one lost, one that
//! is rebuilt.
//!
//! Order: fill in order → random places, where the loads write at random → the loads optimal →
//! degraded → beside a rebuild → a rebuild alone. Each state runs so long that a number of requests
//! is answered by the formula's rate.
//!
//! Invariant: the same plan and seed give the same figures. Deliberately absent: anything that the
//! drive's model has not, such as hard disks; and bytes that are not written: the modelled drives
//! are full.

use std::time::Duration;

use strake_foresight::drive::Media;
use strake_foresight::load::Load;
use strake_foresight::plan::simulation::{
    SimulatedLoad, SimulatedRebuild, SimulatedState, SimulatedWaf, Simulation, simulated,
};
use strake_foresight::plan::{Asked, LoadPlan, Plan};
use strake_foresight::speed::Rate;
use strake_foresight::value::Source;
use strake_format::WriteHole;

use crate::bench::{Job, Lab, LabError, Reached, Target, Until, Wear};
use crate::machine::Written;
use crate::setup::{Host, Setup};

/// The seed unless another is given.
pub const SEED: u64 = 1;
/// Units of a modelled drive: half of what a study has, since a plan is to take seconds.
const UNITS: u32 = 32 << 10;
/// Requests of a state, by the formula's rates.
const REQUESTS: f64 = 60_000.0;
/// A state takes so many seconds of virtual time, at least and at most.
const SECONDS: (f64, f64) = (0.005, 600.0);
/// Above a quantile lie so many requests, or it is not said.
const ABOVE: f64 = 10.0;
/// Passes of the writers in order, before what they reach counts.
const WARM_PASSES: f64 = 0.5;

/// Steps of a simulation, for its progress.
pub fn steps(asked: &Asked) -> usize {
    match asked.shape.tolerance() {
        0 => 2,
        _ => 5,
    }
}

/// Runs it. `done` is called after each step.
pub fn simulate(
    asked: &Asked,
    plan: &Plan,
    seed: u64,
    done: &mut dyn FnMut(),
) -> Result<Simulation, LabError> {
    let setup = setup(asked, seed)?;
    let cpu = setup.host.cpu.is_some();
    let mut run = Run {
        lab: Lab::new(setup)?,
        asked,
        plan,
    };
    run.prepare()?;
    done();
    let mut simulation = Simulation {
        seed,
        scale: run.lab.scale(),
        cpu,
        states: vec![run.state("optimal", |load| Some(&load.optimal))?],
        rebuild_idle: None,
        rebuild_loaded: None,
    };
    done();
    if asked.shape.tolerance() == 0 {
        return Ok(simulation);
    }
    run.lab.fail(0)?;
    let degraded = run.state("degraded", |load| load.degraded.as_ref())?;
    simulation.states.push(degraded);
    done();
    let (state, job) = run.rebuilding()?;
    simulation.states.push(state);
    simulation.rebuild_loaded = Some(rebuild(&job));
    done();
    run.lab.fail(0)?;
    let job = run.lab.rebuild(0, &[])?;
    simulation.rebuild_idle = Some(rebuild(&job));
    done();
    Ok(simulation)
}

/// The modelled array; an error where there is no model of it.
fn setup(asked: &Asked, seed: u64) -> Result<Setup, LabError> {
    let (drive, shape) = (&asked.drive, &asked.shape);
    if drive.media == Media::Hdd {
        let why = format!(
            "{} is a hard disk, and only drives of flash are modelled",
            drive.name
        );
        return Err(LabError::Shape(why));
    }
    if asked.loads.is_empty() {
        return Err(LabError::Shape("there is no load to run".to_owned()));
    }
    let host = match asked.host.cores.source {
        Source::Assumed => Host::unlimited(),
        _ => Host::of(&asked.host),
    };
    Ok(Setup {
        group_size: shape.level.is_grouped().then_some(shape.group_size),
        strip: Some(shape.strip as u32),
        write_hole: match shape.log {
            true => WriteHole::Closed,
            false => WriteHole::Resync,
        },
        host,
        units: UNITS,
        seed,
        ..Setup::new(drive.clone(), shape.members, shape.level)
    })
}

struct Run<'a> {
    lab: Lab,
    asked: &'a Asked,
    plan: &'a Plan,
}

/// What was counted before a step.
struct Before {
    wear: Wear,
    written: Written,
}

impl Run<'_> {
    fn prepare(&mut self) -> Result<(), LabError> {
        self.lab.fill(1.0)?;
        let writes = |sequential: bool| {
            let writers = self.asked.loads.iter().copied();
            let writers = writers.filter(move |l| l.read_percent < 100);
            writers.filter(move |l| l.sequential == sequential)
        };
        let (in_order, at_random): (Vec<Load>, Vec<Load>) =
            (writes(true).collect(), writes(false).collect());
        if !at_random.is_empty() {
            self.lab.condition_at_random(1.0);
        }
        if !in_order.is_empty() {
            let until = Until::Passes(WARM_PASSES);
            self.lab.run(Target::Array, &in_order, until)?;
        }
        Ok(())
    }

    fn before(&self) -> Before {
        Before {
            wear: self.lab.wear(),
            written: self.lab.written(),
        }
    }

    fn state(
        &mut self,
        name: &str,
        of: impl Fn(&LoadPlan) -> Option<&Rate>,
    ) -> Result<SimulatedState, LabError> {
        let rates = self.plan.loads.iter().filter_map(of);
        let all: f64 = rates.map(|rate| rate.requests_per_s.middle()).sum();
        let seconds = (REQUESTS / all.max(1e-9)).clamp(SECONDS.0, SECONDS.1);
        let until = Until::Time {
            ramp: Duration::from_secs_f64(seconds / 4.0),
            run: Duration::from_secs_f64(seconds),
        };
        let before = self.before();
        let (reached, asked) = self.counted(|lab, loads| lab.run(Target::Array, loads, until))?;
        // What ended in the ramp was written, too: the bytes of the engine are of both.
        let waf = self.waf(&before, asked, false);
        Ok(self.of_state(name, &reached, seconds, waf))
    }

    /// Runs a step, and says how many bytes the loads have written in all of it.
    fn counted<T>(
        &mut self,
        step: impl FnOnce(&mut Lab, &[Load]) -> Result<T, LabError>,
    ) -> Result<(T, f64), LabError> {
        let before = self.lab.asked_to_write();
        let done = step(&mut self.lab, &self.asked.loads)?;
        Ok((done, (self.lab.asked_to_write() - before) as f64))
    }

    fn rebuilding(&mut self) -> Result<(SimulatedState, Job), LabError> {
        let before = self.before();
        let (job, asked) = self.counted(|lab, loads| lab.rebuild(0, loads))?;
        let seconds = job.seconds / self.lab.scale();
        // The new drive counts from zero.
        let waf = self.waf(&before, asked, true);
        Ok((self.of_state("rebuilding", &job.beside, seconds, waf), job))
    }

    /// Write amplification since then, where the loads have written `asked` bytes. `new`: the drive
    /// in slot 0 is a new one.
    fn waf(&self, before: &Before, asked: f64, new: bool) -> Option<SimulatedWaf> {
        if asked <= 0.0 {
            return None;
        }
        let (mut host, mut media) = (0u64, 0u64);
        for (slot, (now, then)) in self.lab.wear().iter().zip(&before.wear).enumerate() {
            let fresh = slot == 0 && new;
            let (h, m) = match fresh {
                true => (0, 0),
                false => (then.host_written, then.media_written),
            };
            host += now.host_written - h;
            media += now.media_written - m;
        }
        let written = self.lab.written().since(&before.written);
        let each = |bytes: u64| simulated(bytes as f64 / asked);
        Some(SimulatedWaf {
            data: each(written.data),
            parity: each(written.parity),
            log: each(written.log),
            metadata: each(written.metadata),
            rebuild: each(written.rebuild),
            drive: simulated(media as f64 / (host as f64).max(1.0)),
            total: each(media),
        })
    }

    fn of_state(
        &self,
        name: &str,
        reached: &[Reached],
        seconds: f64,
        waf: Option<SimulatedWaf>,
    ) -> SimulatedState {
        let load = |(plan, reached): (&LoadPlan, &Reached)| {
            let rate = reached.read_iops + reached.write_iops;
            let requests = rate * seconds;
            let quantile = |at: usize, share: f64| {
                let said = requests * (1.0 - share) >= ABOVE;
                said.then(|| simulated(reached.latency_us[at] / 1e6))
            };
            SimulatedLoad {
                load: plan.load.clone(),
                requests: requests.round() as u64,
                requests_per_s: simulated(rate),
                bytes_per_s: simulated(rate * reached.load.bytes as f64),
                p50_s: quantile(0, 0.5),
                p99_s: quantile(1, 0.99),
                p999_s: quantile(2, 0.999),
            }
        };
        SimulatedState {
            state: name.to_owned(),
            loads: self.plan.loads.iter().zip(reached).map(load).collect(),
            waf,
            cpu_busy: self.lab.cpu_busy(),
        }
    }
}

fn rebuild(job: &Job) -> SimulatedRebuild {
    SimulatedRebuild {
        seconds: simulated(job.seconds),
        bytes_per_s: simulated(job.bytes_per_s),
        waf: job.waf.map(simulated),
    }
}

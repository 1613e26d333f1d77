//! A rig on modelled drives: the engine in virtual time, as `strake_lab` runs it.
//!
//! Invariant: nothing is kept over the end of the process; the same study gives the same figures.

use std::time::Duration;

use strake_foresight::catalogue::Catalogue;
use strake_foresight::load::Load;
use strake_format::Settings;
use strake_lab::{Host, Lab, LabError, Setup};

use crate::definition::{Case, Step, Study};
use crate::rig::{Job, Reached, Rig, RigError, Target, Until, Wear};
use crate::run::Rigs;

/// Makes rigs on modelled drives.
pub struct Simulated {
    /// Where the drives of studies are looked up.
    pub catalogue: Catalogue,
}

impl Rigs for Simulated {
    fn keeps(&self) -> bool {
        false
    }

    fn rig(
        &mut self,
        study: &Study,
        case: &Case,
        _: &[&Step],
    ) -> Result<Box<dyn Rig + '_>, RigError> {
        let drive = self
            .catalogue
            .find(&study.drive)
            .map_err(|error| RigError {
                step: "the modelled drives".to_owned(),
                cause: error.to_string(),
            })?;
        let shape = &case.shape;
        let mut settings = Settings::default();
        if let Some(priority) = shape.rebuild_priority {
            settings.rebuild_priority = priority;
        }
        let host = Host {
            device_iops: study.device_iops,
            cpu: study.cpu,
        };
        let setup = Setup {
            host,
            group_size: shape.group_size,
            strip: shape.strip.map(|bytes| bytes as u32),
            write_hole: shape.write_hole,
            settings,
            ..Setup::new(drive, shape.drives as u8, shape.level)
        };
        let lab = Lab::new(setup).map_err(failed("the modelled array"))?;
        Ok(Box::new(SimulatedRig {
            counted: vec![Wear::default(); shape.drives],
            zeroed: shape.zeroed,
            at_random: false,
            notes: Vec::new(),
            cores: None,
            all_cores: study.cpu.map_or(0.0, |cpu| f64::from(cpu.cores)),
            lab,
        }))
    }
}

fn failed(step: &str) -> impl Fn(LabError) -> RigError {
    move |error| RigError {
        step: step.to_owned(),
        cause: error.to_string(),
    }
}

struct SimulatedRig {
    lab: Lab,
    zeroed: bool,
    /// The drives were written at random before the array was made.
    at_random: bool,
    /// What drives had counted that are not in their slots any more.
    counted: Vec<Wear>,
    notes: Vec<String>,
    /// Cores that were busy when a load or a job ran last.
    cores: Option<f64>,
    /// The modelled ones.
    all_cores: f64,
}

fn sum(a: Option<f64>, b: f64) -> Option<f64> {
    Some(a.unwrap_or(0.0) + b)
}

fn reached(all: Vec<strake_lab::Reached>) -> Vec<Reached> {
    let one = |one: strake_lab::Reached| Reached {
        read_bytes_per_s: one.read_bytes_per_s(),
        write_bytes_per_s: one.write_bytes_per_s(),
        read_iops: one.read_iops,
        write_iops: one.write_iops,
        wrote: None,
        latency_us: one.latency_us,
        load: one.load,
    };
    all.into_iter().map(one).collect()
}

fn job(job: strake_lab::Job) -> Job {
    Job {
        seconds: job.seconds,
        bytes_per_s: job.bytes_per_s,
        beside: reached(job.beside),
    }
}

impl SimulatedRig {
    /// A load on drives is one on each: the lab takes one for all of them.
    fn of_all(&self, load: &Load) -> Load {
        let drives = self.counted.len() as u32;
        Load {
            depth: load.depth * drives,
            jobs: load.jobs * drives,
            limit: load.limit.map(|limit| limit * f64::from(drives)),
            ..*load
        }
    }

    fn count_cores(&mut self) {
        self.cores = self.lab.cpu_busy().map(|busy| busy * self.all_cores);
    }

    fn wear_now(&self) -> Vec<Wear> {
        let of = |(counted, now): (&Wear, &strake_flash::Counters)| Wear {
            host_read: sum(counted.host_read, now.host_read as f64),
            host_written: sum(counted.host_written, now.host_written as f64),
            media_written: sum(counted.media_written, now.media_written as f64),
            ..Wear::default()
        };
        self.counted.iter().zip(&self.lab.wear()).map(of).collect()
    }
}

impl Rig for SimulatedRig {
    fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn create(&mut self) -> Result<f64, RigError> {
        let seconds = self.lab.created_after();
        if self.zeroed {
            self.lab.fill(1.0).map_err(failed("create"))?;
            if self.at_random {
                self.lab.condition_at_random(1.0);
            }
            let note = "all of the modelled array was written once, in place of zeroing it";
            self.notes.push(note.to_owned());
        }
        let scale = self.lab.scale();
        self.notes.push(format!(
            "modelled drives have 1/{scale:.0} of the capacity; times of jobs are scaled to all of \
             it"
        ));
        Ok(seconds)
    }

    fn run(
        &mut self,
        target: Target,
        loads: &[Load],
        until: Until,
    ) -> Result<Vec<Reached>, RigError> {
        let loads = match target {
            Target::Array => loads.to_vec(),
            Target::Drives => {
                let random = |load: &Load| !load.sequential && load.read_percent < 100;
                self.at_random |= loads.iter().any(random);
                loads.iter().map(|load| self.of_all(load)).collect()
            }
        };
        let all = self.lab.run(target, &loads, until);
        self.count_cores();
        if let Some(busy) = self.lab.cpu_busy() {
            let limit = if busy > 0.95 {
                ": the CPU is the limit"
            } else {
                ""
            };
            let note = format!(
                "the modelled cores were busy {:.0} % of the time{limit}",
                100.0 * busy
            );
            self.notes.push(note);
        }
        all.map(reached).map_err(failed("load"))
    }

    fn idle(&mut self, _: Duration) -> Result<(), RigError> {
        self.cores = None;
        let note = "modelled cores have nothing to do where there is no load: run it on drives";
        if !self.notes.iter().any(|known| known == note) {
            self.notes.push(note.to_owned());
        }
        Ok(())
    }

    fn cores(&mut self) -> Option<f64> {
        self.cores
    }

    fn wear(&mut self) -> Result<Vec<Wear>, RigError> {
        Ok(self.wear_now())
    }

    fn fail(&mut self, slot: usize) -> Result<(), RigError> {
        self.lab.fail(slot).map_err(failed("fail"))
    }

    fn rebuild(&mut self, slot: usize, beside: &[Load]) -> Result<Job, RigError> {
        let before = self.wear_now()[slot];
        let done = self.lab.rebuild(slot, beside).map_err(failed("rebuild"))?;
        self.count_cores();
        // The new drive counts from zero; what its slot has counted goes on.
        self.counted[slot] = before;
        Ok(job(done))
    }

    fn scrub(&mut self, beside: &[Load]) -> Result<Job, RigError> {
        let done = self.lab.scrub(beside).map_err(failed("scrub"))?;
        self.count_cores();
        Ok(job(done))
    }
}

//! Carries out a study on a rig, step by step, and goes on with one that was interrupted.
//!
//! Order of a step: it is said to begin → the drives' counters → the ramp → the step → the
//! counters again → its result is on disk → the next. What is on disk is never done again, unless
//! the rig keeps nothing over the end of the process: then the case begins anew.
//!
//! Invariants: a folder belongs to one study and to one process at a time; a step that fails leaves
//! the results of those before it as they were.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use strake_foresight::engine::Engine;
use strake_foresight::load::Load;

use crate::definition::{Case, DefinitionError, Figure, Step, Study, What};
use crate::result::{
    CaseResult, DriveSeen, FORMAT, Machine, On, RESULT, Results, STUDY, StepResult, replace,
};
use crate::rig::{Reached, Rig, RigError, Target, Until};

/// Held as long as a process works in the folder.
const LOCK: &str = "lock";

/// Makes the rig of each case.
pub trait Rigs {
    /// Whether an array is still there when the process has ended.
    fn keeps(&self) -> bool;
    /// The rig of a case of which these steps are done.
    fn rig(
        &mut self,
        study: &Study,
        case: &Case,
        done: &[&Step],
    ) -> Result<Box<dyn Rig + '_>, RigError>;
}

/// Is told what goes on.
pub trait Watch {
    /// A step begins.
    fn begins(&mut self, progress: &Progress<'_>);
    /// A step is done.
    fn done(&mut self, progress: &Progress<'_>, result: &StepResult);
}

/// How far it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress<'a> {
    /// Of the study, from 1.
    pub step: usize,
    /// Of the study.
    pub steps: usize,
    /// Its case.
    pub case: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Until the end of the study, as far as it can be said.
    pub left: Option<Duration>,
}

/// Why a study did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Something is there already.
    #[error("{0} is there already")]
    Exists(PathBuf),
    /// No study was begun there.
    #[error("{0} holds no study: it has no result.json")]
    NoStudy(PathBuf),
    /// Another process.
    #[error("another process works in {0}")]
    Busy(PathBuf),
    /// A file of the folder.
    #[error("{path}: {error}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// `study.toml` of the folder.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// A drive that the study began on is not among those that are there.
    #[error("{}", .0)]
    Drives(String),
    /// A step failed; those before it are kept.
    #[error("step {step} of case {case}: {error}")]
    Step {
        /// Its case.
        case: String,
        /// Its name.
        step: String,
        /// Why.
        error: RigError,
    },
}

/// A study in its folder.
#[derive(Debug)]
pub struct Running {
    folder: PathBuf,
    study: Study,
    results: Results,
    _lock: File,
}

fn of(path: &Path) -> impl Fn(io::Error) -> RunError {
    move |error| RunError::Io {
        path: path.to_owned(),
        error,
    }
}

fn now_unix_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn lock(folder: &Path) -> Result<File, RunError> {
    let path = folder.join(LOCK);
    let file = File::options().create(true).append(true).open(&path);
    let file = file.map_err(of(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(RunError::Busy(folder.to_owned())),
        Err(TryLockError::Error(error)) => Err(of(&path)(error)),
    }
}

impl Running {
    /// Begins a study in a folder that is not there yet.
    ///
    /// # Errors
    /// The folder is there, or cannot be made.
    pub fn begin(study: Study, folder: &Path, program: &str, on: On) -> Result<Running, RunError> {
        if let Some(parent) = folder.parent() {
            fs::create_dir_all(parent).map_err(of(parent))?;
        }
        fs::create_dir(folder).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => RunError::Exists(folder.to_owned()),
            _ => of(folder)(error),
        })?;
        let lock = lock(folder)?;
        let path = folder.join(STUDY);
        replace(&path, study.text.as_bytes()).map_err(of(&path))?;
        let now = now_unix_s();
        let results = Results {
            format: FORMAT,
            study: study.name.clone(),
            program: program.to_owned(),
            engine: Engine::default(),
            on,
            machine: Machine::here(),
            started_unix_s: now,
            ended_unix_s: now,
            cases: Vec::new(),
        };
        results.write(folder).map_err(of(&folder.join(RESULT)))?;
        Ok(Running {
            folder: folder.to_owned(),
            study,
            results,
            _lock: lock,
        })
    }

    /// Its arrays are served by this engine.
    ///
    /// # Errors
    /// That cannot be written.
    pub fn by(mut self, engine: Engine) -> Result<Running, RunError> {
        self.results.engine = engine;
        self.write()?;
        Ok(self)
    }

    /// Opens the folder of a study that was begun.
    ///
    /// # Errors
    /// There is none, or another process is at work.
    pub fn open(folder: &Path) -> Result<Running, RunError> {
        if !folder.join(RESULT).exists() {
            return Err(RunError::NoStudy(folder.to_owned()));
        }
        let lock = lock(folder)?;
        let (study, results) = read(folder)?;
        Ok(Running {
            folder: folder.to_owned(),
            study,
            results,
            _lock: lock,
        })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
    /// What it is.
    pub fn study(&self) -> &Study {
        &self.study
    }
    /// What it has measured.
    pub fn results(&self) -> &Results {
        &self.results
    }
    /// Whether all is done.
    pub fn is_complete(&self) -> bool {
        let complete = |case: &Case| {
            let mut known = self.results.cases.iter();
            known.any(|known| known.name == case.name && known.complete)
        };
        self.study.cases.iter().all(complete)
    }

    /// The drives of the study among those that are here, in the order of their slots; one that was
    /// given another name meanwhile is found by its serial number.
    ///
    /// # Errors
    /// One is not here.
    pub fn drives(&self, here: &[DriveSeen]) -> Result<Vec<DriveSeen>, RunError> {
        let On::Real(drives) = &self.results.on else {
            return Ok(Vec::new());
        };
        let found = |drive: &DriveSeen| {
            let now = here.iter().find(|now| now.is(drive)).cloned();
            now.ok_or_else(|| {
                let what = drive.shown();
                RunError::Drives(format!(
                    "{what}, on which the study began, is not here: a study does not go on on \
                     another drive"
                ))
            })
        };
        drives.iter().map(found).collect()
    }

    /// Does all that is not done.
    ///
    /// # Errors
    /// A step failed, or its result could not be written.
    pub fn go_on(&mut self, rigs: &mut dyn Rigs, watch: &mut dyn Watch) -> Result<(), RunError> {
        let simulated = self.results.on.is_simulated();
        let study = self.study.clone();
        let steps = study.steps(simulated);
        let began = Instant::now();
        let mut here = 0;
        for case in &study.cases {
            let at = self.case(&case.name);
            if self.results.cases[at].complete {
                continue;
            }
            if !rigs.keeps() {
                self.results.cases[at].steps.clear();
            }
            let done = self.results.cases[at].steps.len();
            let of_case: Vec<&Step> = case.steps_for(simulated).collect();
            let done = done.min(of_case.len());
            let failed = |step: &str, error: RigError| RunError::Step {
                case: case.name.clone(),
                step: step.to_owned(),
                error,
            };
            let first = of_case.get(done).map_or("end", |step| &step.name);
            let rig = rigs.rig(&study, case, &of_case[..done]);
            let mut rig = rig.map_err(|error| failed(first, error))?;
            for step in of_case.into_iter().skip(done) {
                let mut progress = Progress {
                    step: self.results.done() + 1,
                    steps,
                    case: &case.name,
                    name: &step.name,
                    left: left(&study, &self.results, began.elapsed(), here),
                };
                watch.begins(&progress);
                let began_step = Instant::now();
                let result = carry_out(rig.as_mut(), case, step, simulated);
                let mut result = result.map_err(|error| failed(&step.name, error))?;
                result.took_s = began_step.elapsed().as_secs_f64();
                self.results.cases[at].steps.push(result);
                here += 1;
                self.write()?;
                progress.left = left(&study, &self.results, began.elapsed(), here);
                let steps = &self.results.cases[at].steps;
                watch.done(&progress, steps.last().expect("one was pushed"));
            }
            rig.end().map_err(|error| failed("end", error))?;
            self.results.cases[at].complete = true;
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), RunError> {
        self.results.ended_unix_s = now_unix_s();
        let written = self.results.write(&self.folder);
        written.map_err(of(&self.folder.join(RESULT)))
    }

    /// Where the results of a case are.
    fn case(&mut self, name: &str) -> usize {
        let known = self.results.cases.iter().position(|case| case.name == name);
        known.unwrap_or_else(|| {
            self.results.cases.push(CaseResult {
                name: name.to_owned(),
                steps: Vec::new(),
                complete: false,
            });
            self.results.cases.len() - 1
        })
    }
}

/// The study and the results of a folder.
///
/// # Errors
/// It holds none, or they cannot be read.
pub fn read(folder: &Path) -> Result<(Study, Results), RunError> {
    let path = folder.join(RESULT);
    if !path.exists() {
        return Err(RunError::NoStudy(folder.to_owned()));
    }
    let results = Results::read(folder).map_err(of(&path))?;
    let path = folder.join(STUDY);
    let text = fs::read_to_string(&path).map_err(of(&path))?;
    let study = Study::parse(&path.display().to_string(), &text)?;
    Ok((study, results))
}

/// How long the steps take that are not done: those with a fixed time take that, others as long as
/// those of the same kind did. `None`: nothing is known of one of them.
fn left(study: &Study, results: &Results, elapsed: Duration, here: usize) -> Option<Duration> {
    let simulated = results.on.is_simulated();
    if simulated {
        let remaining = study.steps(true).saturating_sub(results.done());
        let here = u32::try_from(here).ok().filter(|here| *here > 0)?;
        return Some(elapsed / here * u32::try_from(remaining).ok()?);
    }
    let all: Vec<&StepResult> = results.cases.iter().flat_map(|case| &case.steps).collect();
    let mut left = Duration::ZERO;
    for case in &study.cases {
        for step in case.steps_for(false) {
            if results.step(&case.name, &step.name).is_some() {
                continue;
            }
            left += match &step.what {
                What::Load {
                    until: Until::Time { ramp, run },
                    ..
                }
                | What::Idle { ramp, run } => *ramp + *run,
                what => {
                    let same = all.iter().rev().find(|done| done.what == what.name());
                    Duration::try_from_secs_f64(same?.took_s).ok()?
                }
            };
        }
    }
    Some(left)
}

/// One step.
fn carry_out(
    rig: &mut dyn Rig,
    case: &Case,
    step: &Step,
    simulated: bool,
) -> Result<StepResult, RigError> {
    rig.begin(&case.name, &step.name, &step.fio);
    let mut result = StepResult {
        name: step.name.clone(),
        what: step.what.name().to_owned(),
        ..StepResult::default()
    };
    match &step.what {
        What::Erase => rig.erase()?,
        What::Create => {
            let seconds = rig.create()?;
            result.figures.insert(Figure::Seconds, seconds);
        }
        What::Fail { slot } => rig.fail(*slot)?,
        What::Load {
            on,
            loads,
            until,
            simulated: other,
        } => {
            let until = if simulated { *other } else { *until };
            let until = after_ramp(rig, *on, loads, until)?;
            let before = rig.wear()?;
            let reached = rig.run(*on, loads, until)?;
            let after = rig.wear()?;
            result.reached(&reached);
            result.busy(rig.cores());
            result.wear(&before, &after, written(*on, &reached, until), None);
            if !simulated {
                result.counted(&before, &after, &reached);
            }
        }
        What::Idle { ramp, run } => {
            rig.idle(*ramp)?;
            rig.idle(*run)?;
            result.busy(rig.cores());
        }
        What::Rebuild { slot, beside } => {
            let before = rig.wear()?;
            let job = rig.rebuild(*slot, beside)?;
            let after = rig.wear()?;
            job_done(&mut result, job.seconds, job.bytes_per_s, &job.beside);
            result.busy(rig.cores());
            result.wear(&before, &after, None, Some(*slot));
            if !simulated {
                result.counted(&before, &after, &job.beside);
            }
        }
        What::Scrub { beside } => {
            let before = rig.wear()?;
            let job = rig.scrub(beside)?;
            let after = rig.wear()?;
            job_done(&mut result, job.seconds, job.bytes_per_s, &job.beside);
            result.busy(rig.cores());
            if !beside.is_empty() {
                result.wear(&before, &after, None, None);
                if !simulated {
                    result.counted(&before, &after, &job.beside);
                }
            }
        }
    }
    result.notes = rig.notes();
    Ok(result)
}

/// Runs the ramp of a load; what is left of it.
fn after_ramp(
    rig: &mut dyn Rig,
    on: Target,
    loads: &[Load],
    until: Until,
) -> Result<Until, RigError> {
    let none = Duration::ZERO;
    match until {
        Until::Time { ramp, run } if !ramp.is_zero() => {
            let only = |run| Until::Time { ramp: none, run };
            rig.run(on, loads, only(ramp))?;
            Ok(only(run))
        }
        other => Ok(other),
    }
}

fn job_done(result: &mut StepResult, seconds: f64, bytes_per_s: f64, beside: &[Reached]) {
    result.figures.insert(Figure::Seconds, seconds);
    if bytes_per_s > 0.0 {
        result.figures.insert(Figure::JobBytes, bytes_per_s);
    } else {
        let why = "the job was over before its size could be seen";
        result.missing.insert(Figure::JobBytes, why.to_owned());
    }
    result.reached(beside);
}

/// Bytes that the array was given in a step: as its loads counted them, else by their rate.
fn written(on: Target, reached: &[Reached], until: Until) -> Option<f64> {
    let counted: Option<f64> = reached.iter().map(|one| one.wrote).sum();
    if counted.is_some() && !reached.is_empty() {
        return counted.filter(|_| on == Target::Array);
    }
    let Until::Time { run, .. } = until else {
        return None;
    };
    let rate: f64 = reached.iter().map(|one| one.write_bytes_per_s).sum();
    (on == Target::Array).then_some(rate * run.as_secs_f64())
}

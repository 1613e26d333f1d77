//! Runs studies on modelled drives and on real ones, and goes on with one that was interrupted.
//!
//! Order: the drives are looked at (is one in use?) → the user names each → the folder is made →
//! the steps. A study that goes on looks for its drives by serial number, and asks again about one
//! that holds something that the study did not put there.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use strake_foresight::catalogue;
use strake_foresight::engine::Engine;
use strake_format::ArrayUuid;
use strake_study::definition::Study;
use strake_study::real::{Consent, Host, Real, Ticker, array_name, program};
use strake_study::result::{DriveSeen, On, StepResult};
use strake_study::run::{Progress, Rigs, RunError, Running, Watch};
use strake_study::simulated::Simulated;
use strake_study::studies;

use crate::cli::args::study::StudyRunArgs;
use crate::cli::client::Client;
use crate::cli::output::Bar;
use crate::cli::{Context, DONE, Ended};
use crate::commands::study::consent::{self, Asked};
use crate::commands::study::host::Machine;
use crate::commands::study::md::{self, Md};
use crate::commands::study::{find, report_of};
use crate::common::errors::{Code, Failure};
use crate::common::{absolutes, size};
use crate::drives::machine::sysfs;

/// What a bar counts to.
const WHOLE: u64 = 1000;

/// What `--dry-run` prints.
#[derive(Debug, Serialize)]
struct Planned {
    dry_run: bool,
    studies: Vec<String>,
    steps: usize,
    would_overwrite: Vec<DriveSeen>,
    folders: Vec<PathBuf>,
}

impl Planned {
    fn new(
        studies: &[Study],
        simulated: bool,
        would_overwrite: Vec<DriveSeen>,
        folders: Vec<PathBuf>,
    ) -> Planned {
        Planned {
            dry_run: true,
            studies: studies.iter().map(|study| study.name.clone()).collect(),
            steps: studies.iter().map(|study| study.steps(simulated)).sum(),
            would_overwrite,
            folders,
        }
    }

    fn text(&self) -> String {
        let steps = size::count(self.steps as u64, "step");
        let mut text = format!("would run {}: {steps}\n", self.studies.join(", "));
        for drive in &self.would_overwrite {
            let bytes = size::bytes(drive.bytes);
            text += &format!("would overwrite {} ({bytes})\n", drive.shown());
        }
        text
    }
}

pub(super) fn run(context: &Context, args: &StudyRunArgs) -> Ended {
    let mut studies = Vec::new();
    for name in &args.names {
        match name.as_str() {
            "all" => studies.extend(studies::all()),
            name => studies.push(find(name)?),
        }
    }
    for (at, study) in studies.iter().enumerate() {
        if studies[..at].iter().any(|other| other.name == study.name) {
            let found = format!("two of the studies are called '{}'", study.name);
            return Err(Failure::new(Code::Usage, found).cure("run one after the other"));
        }
    }
    let folders: Vec<PathBuf> = studies.iter().map(|s| args.out.join(&s.name)).collect();
    if let Some(there) = folders.iter().find(|folder| folder.exists()) {
        return Err(RunError::Exists(there.clone()).into());
    }
    if args.simulated {
        return on_modelled_drives(context, args, studies, folders);
    }
    let given = drives_given(args, &studies)?;
    consent::free(&given)?;
    let seen = given.iter().map(|path| consent::seen(path));
    let drives = seen.collect::<Result<Vec<DriveSeen>, Failure>>()?;
    programs()?;
    let engine = match args.engine.as_str() {
        "md" => Engine::Md,
        _ => Engine::Strake,
    };
    if engine == Engine::Md {
        md_can(&studies)?;
    }
    if args.dry_run {
        let planned = Planned::new(&studies, false, drives, folders);
        context.say(&planned, Planned::text);
        return Ok(DONE);
    }
    let host = host(context, engine)?;
    let consent = consent::ask(&drives, &args.yes_erase, Asked::OfAll)?;
    for (study, folder) in studies.into_iter().zip(folders) {
        let on = On::Real(drives.clone());
        let running = Running::begin(study, &folder, &this_program(), on)?.by(engine)?;
        go_on(context, &*host, running, drives.clone(), consent.clone())?;
    }
    Ok(DONE)
}

/// What serves the arrays.
fn host(context: &Context, engine: Engine) -> Result<Box<dyn Host>, Failure> {
    Ok(match engine {
        Engine::Strake => Box::new(Machine {
            client: Client::need(&context.dir)?,
        }),
        Engine::Md => {
            Box::new(Md::new().map_err(|found| Failure::new(Code::ProgramMissing, found))?)
        }
    })
}

/// Refuses studies with an array that md does not have, before anything is lost.
fn md_can(studies: &[Study]) -> Result<(), Failure> {
    for (study, case) in studies
        .iter()
        .flat_map(|s| s.cases.iter().map(move |c| (s, c)))
    {
        if let Err(why) = md::arguments(&case.shape) {
            let found = format!("case {} of {}: {why}", case.name, study.name);
            let cure = "change the case, or run the study with --engine strake";
            return Err(Failure::new(Code::Usage, found).cure(cure));
        }
    }
    Ok(())
}

/// The drives that `--on` names, if they are as many as the studies need.
fn drives_given(args: &StudyRunArgs, studies: &[Study]) -> Result<Vec<PathBuf>, Failure> {
    let needs = studies.iter().map(Study::drives).max().unwrap_or_default();
    let given = absolutes(&args.on);
    if given.len() != needs {
        let found = format!(
            "--on names {}, and {} needed",
            size::count(given.len() as u64, "drive"),
            match needs {
                1 => "1 is".to_owned(),
                n => format!("{n} are"),
            }
        );
        let cure = "strake study show NAME says what a study needs";
        return Err(Failure::new(Code::Usage, found).cure(cure));
    }
    Ok(given)
}

fn on_modelled_drives(
    context: &Context,
    args: &StudyRunArgs,
    studies: Vec<Study>,
    folders: Vec<PathBuf>,
) -> Ended {
    if args.dry_run {
        let planned = Planned::new(&studies, true, Vec::new(), folders);
        context.say(&planned, Planned::text);
        return Ok(DONE);
    }
    for (study, folder) in studies.into_iter().zip(folders) {
        let running = Running::begin(study, &folder, &this_program(), On::Simulated)?;
        simulate(context, running)?;
    }
    Ok(DONE)
}

fn simulate(context: &Context, running: Running) -> Ended {
    let mut rigs = Simulated {
        catalogue: catalogue::builtin(),
    };
    carry_out(context, running, &mut rigs, Rc::default())
}

fn this_program() -> String {
    format!("strake {}", env!("CARGO_PKG_VERSION"))
}

fn programs() -> Result<(), Failure> {
    let fio = program::find("fio", "fio");
    fio.map(drop)
        .map_err(|found| Failure::new(Code::ProgramMissing, found))
}

pub(super) fn resume(context: &Context, folder: &Path, yes_erase: &[String]) -> Ended {
    let running = Running::open(folder)?;
    if running.is_complete() {
        return report_of(context, folder);
    }
    let On::Real(begun) = running.results().on.clone() else {
        return simulate(context, running);
    };
    programs()?;
    let engine = running.results().engine;
    let host = host(context, engine)?;
    let mut paths: Vec<PathBuf> = sysfs::candidates();
    paths.extend(begun.into_iter().map(|drive| drive.path));
    let each = sysfs::each_once(&paths).devices;
    // One that cannot be looked at is not here.
    let here = each.iter().filter_map(|(path, _)| consent::seen(path).ok());
    let here: Vec<DriveSeen> = here.collect();
    let drives = running.drives(&here)?;
    let own = own_members(&*host, &running)?;
    let mut others = drives.clone();
    others.retain(|drive| !own.contains(&real(&drive.path)));
    consent::free(
        &others
            .iter()
            .map(|drive| drive.path.clone())
            .collect::<Vec<_>>(),
    )?;
    let own = match engine {
        Engine::Strake => own_uuid(context, &running)?,
        Engine::Md => None,
    };
    consent::ask(&others, yes_erase, Asked::OfForeign { own })?;
    let consent = Consent::given(drives.iter().map(|drive| drive.path.clone()));
    go_on(context, &*host, running, drives, consent)
}

/// Without links on the way.
fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Members of the array of the study that is there: a case has one at a time.
fn own_members(host: &dyn Host, running: &Running) -> Result<Vec<PathBuf>, Failure> {
    for case in &running.study().cases {
        let name = array_name(running.study(), case);
        let found = host.array(&name);
        let found = found.map_err(|why| Failure::new(Code::StudyFailed, why))?;
        if let Some(array) = found {
            let members = array.members.into_iter().filter_map(|(device, _)| device);
            return Ok(members.map(|device| real(&device)).collect());
        }
    }
    Ok(Vec::new())
}

/// The uuid of that array, which members carry that are not in it at the moment.
fn own_uuid(context: &Context, running: &Running) -> Result<Option<ArrayUuid>, Failure> {
    let machine = Machine {
        client: Client::need(&context.dir)?,
    };
    for case in &running.study().cases {
        if let Some(array) = machine.show(&array_name(running.study(), case))? {
            return Ok(array.uuid.parse().ok());
        }
    }
    Ok(None)
}

fn go_on(
    context: &Context,
    host: &dyn Host,
    running: Running,
    drives: Vec<DriveSeen>,
    consent: Consent,
) -> Ended {
    let folder = running.folder().to_owned();
    let bar: Rc<RefCell<Option<Bar>>> = Rc::default();
    let ticker: Ticker<'_> = Rc::new(RefCell::new({
        let bar = Rc::clone(&bar);
        move |share: f64, _: Option<Duration>| {
            if let Some(bar) = bar.borrow_mut().as_mut() {
                bar.at((share * WHOLE as f64) as u64, WHOLE);
            }
        }
    }));
    let raw = std::fs::canonicalize(&folder);
    let raw = raw.map_err(|error| Failure::io(folder.display(), &error))?;
    let mut rigs = Real {
        host,
        drives,
        consent,
        folder: raw,
        ticker,
    };
    carry_out(context, running, &mut rigs, bar)
}

/// Does what is not done, and reports.
fn carry_out(
    context: &Context,
    mut running: Running,
    rigs: &mut dyn Rigs,
    bar: Rc<RefCell<Option<Bar>>>,
) -> Ended {
    let folder = running.folder().to_owned();
    let mut steps = Steps {
        study: running.study().name.clone(),
        bar,
        quiet: context.json,
    };
    let ended = running.go_on(rigs, &mut steps);
    steps.end();
    if let Err(error) = ended {
        let cure = format!(
            "mend what it names, then strake study resume {}: what is measured is kept",
            folder.display()
        );
        return Err(match error {
            RunError::Step { .. } => Failure::from(error).cure(cure),
            error => error.into(),
        });
    }
    drop(running);
    report_of(context, &folder)
}

/// Says what goes on.
struct Steps {
    study: String,
    bar: Rc<RefCell<Option<Bar>>>,
    quiet: bool,
}

impl Steps {
    fn end(&self) {
        if let Some(bar) = self.bar.borrow_mut().take() {
            bar.end();
        }
    }
}

impl Watch for Steps {
    fn begins(&mut self, progress: &Progress<'_>) {
        if self.quiet {
            return;
        }
        let Progress {
            step,
            steps,
            case,
            name,
            left,
        } = progress;
        let left = left.map_or_else(String::new, |left| {
            format!(", about {} left", size::seconds(left.as_secs()))
        });
        tell!("{} {step}/{steps}: {case}, {name}{left}", self.study);
        *self.bar.borrow_mut() = Some(Bar::new(name, WHOLE, self.quiet));
    }

    fn done(&mut self, _: &Progress<'_>, result: &StepResult) {
        self.end();
        if !self.quiet {
            for note in &result.notes {
                tell!("  {}", crate::common::shown(note, ' '));
            }
        }
    }
}

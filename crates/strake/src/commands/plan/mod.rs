//! `strake plan`: what drives, a level and loads will do, before buying and before creating.
//!
//! Order: words → what is asked (`input`) → the models (`strake-foresight`) → a table, JSON, a
//! page. Deliberately absent: the models themselves, and any change to any array.

mod input;
mod text;

use strake_foresight::engine::Engine;
use strake_foresight::plan::search::{Goal, best};
use strake_foresight::plan::simulation::Simulation;
use strake_foresight::plan::{Asked, Plan, plan};
use strake_lab::forecast;

use crate::api::{ArrayJson, KnownDriveJson, PlansJson};
use crate::cli::args::plan::{Best, PlanArgs};
use crate::cli::client::Client;
use crate::cli::output::Bar;
use crate::cli::{Context, DONE, Ended, url};
use crate::commands::offline;
use crate::commands::plan::input::Like;
use crate::common::errors::{Code, Failure};
use crate::drives::machine::sysfs;

/// Said of a plan of md where others are simulated.
const MD_BY_FORMULA: &str = "Linux md is not simulated: its figures are those of the formulas";

pub(crate) fn run(context: &Context, args: &PlanArgs) -> Ended {
    let all = input::catalogue(args)?;
    if args.drives {
        let known: Vec<KnownDriveJson> = all.drives().iter().map(text::known).collect();
        context.say(&known, |known| text::drives(known));
        return Ok(DONE);
    }
    let like = match &args.like {
        Some(name) => like(context, name)?,
        None => Like::default(),
    };
    let drive = input::drive(args, &all, &like)?;
    let shape = input::shape(args, &like, drive.unit)?;
    let first = input::asked(args, drive, shape)?;
    let mut why = Vec::new();
    let planned = match args.best_for {
        Some(goal) => {
            let goal = match goal {
                Best::Cost => Goal::Cost,
                Best::Speed => Goal::Speed,
                Best::Durability => Goal::Durability,
            };
            let least = input::at_least(&args.at_least)?;
            let found = best(&first, goal, &least).map_err(|none| {
                let cure = "ask for less, or give more or other drives";
                Failure::new(Code::NoShape, none.to_string()).cure(cure)
            })?;
            why = found.why;
            let shape = found.shape;
            vec![(Asked { shape, ..first }, found.winner)]
        }
        None => {
            let mut all_asked = vec![first.clone()];
            for text in &args.compare {
                all_asked.push(input::other(text, &first, &all, args)?);
            }
            let both = |asked: Asked| {
                let plan = plan(&asked);
                (asked, plan)
            };
            all_asked.into_iter().map(both).collect()
        }
    };
    let mut planned = planned;
    if args.simulate {
        for (asked, plan) in &mut planned {
            match asked.host.engine {
                Engine::Strake => {
                    plan.simulated = Some(simulated(context, asked, plan, args.seed)?);
                }
                Engine::Md => plan.notes.push(MD_BY_FORMULA.to_owned()),
            }
        }
    }
    if let Some(path) = &args.html {
        let page = strake_foresight::page::page(&planned, &why);
        std::fs::write(path, page).map_err(|error| Failure::io(path.display(), &error))?;
    }
    let plans: Vec<Plan> = planned.into_iter().map(|(_, plan)| plan).collect();
    let answer = PlansJson {
        plans,
        why,
        html: args.html.as_ref().map(|path| path.display().to_string()),
    };
    context.say(&answer, text::plans);
    Ok(DONE)
}

/// The shape and the loads of a plan, run by the engine on modelled drives.
fn simulated(
    context: &Context,
    asked: &Asked,
    plan: &Plan,
    seed: u64,
) -> Result<Simulation, Failure> {
    let steps = forecast::steps(asked) as u64;
    let mut bar = Bar::new("simulating", steps, context.json);
    let mut done = 0;
    let simulation = forecast::simulate(asked, plan, seed, &mut || {
        done += 1;
        bar.at(done, steps);
    });
    bar.end();
    simulation.map_err(|error| {
        let found = format!("{} of {} is not simulated: {error}", plan.shape, plan.drive);
        Failure::new(Code::NotSimulated, found)
    })
}

/// What an array of this machine is like.
fn like(context: &Context, name: &str) -> Result<Like, Failure> {
    let array: ArrayJson = match Client::find(&context.dir)? {
        Some(client) => client.get(&url(name, "")?)?,
        None => offline::one(context, name)?,
    };
    let devices = || array.members.iter().filter_map(|m| m.device.as_deref());
    let model = devices().find_map(|d| sysfs::model_and_serial(d.as_ref()).0);
    let looked: Vec<_> = devices()
        .filter_map(|d| {
            let mode = strake_runtime::OpenMode::ReadOnly;
            strake_runtime::Device::open(d.as_ref(), mode).ok()
        })
        .collect();
    let capacity = looked.iter().map(|d| d.info().bytes).min();
    let unit = looked.iter().map(|d| d.info().granularity_bytes).max();
    Ok(Like {
        level: Some(array.level.clone()),
        members: u8::try_from(array.members.len()).ok(),
        group_size: array.group_size,
        strip: Some(array.strip_bytes),
        model,
        capacity,
        granularity: unit.map(u64::from),
    })
}

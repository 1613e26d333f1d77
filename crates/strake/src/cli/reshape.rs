//! `strake grow` and `strake restripe`.

use std::thread;
use std::time::Duration;

use crate::api::types::{ArrayJson, GrowRequest, OutcomeJson, RestripeRequest};
use crate::cli::args::{GrowArgs, RestripeArgs};
use crate::cli::client::Client;
use crate::cli::output::Bar;
use crate::cli::{Context, Ended, absolutes, size, url};
use crate::errors::Failure;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(250);
/// So long data may stand still before whoever waits for it is told.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn grow(context: &Context, args: &GrowArgs) -> Ended {
    let client = Client::need(&context.dir)?;
    let request = GrowRequest {
        dry_run: args.dry_run,
    };
    let mut outcome: OutcomeJson = client.post(&url(&args.name, "grow")?, &request)?;
    if args.wait && !args.dry_run {
        wait_for_shape(context, &client, &args.name, &mut outcome)?;
    }
    context.outcome(&outcome)
}

pub(super) fn restripe(context: &Context, args: &RestripeArgs) -> Ended {
    let client = Client::need(&context.dir)?;
    let words = [
        (args.stop, "stop"),
        (args.go_on, "continue"),
        (!args.add.is_empty(), "add"),
    ];
    let action = words.into_iter().find(|(asked, _)| *asked);
    let devices = match args.add.is_empty() {
        true => &args.devices,
        false => &args.add,
    };
    let request = RestripeRequest {
        level: args.level.clone(),
        action: action.map(|(_, word)| word.to_owned()),
        devices: absolutes(devices),
        strip_bytes: args.strip.as_deref().map(size::parse).transpose()?,
        group_size: args.group_size,
        rotate: args.rotate,
        force: args.force,
        dry_run: args.dry_run,
    };
    let mut outcome: OutcomeJson = client.post(&url(&args.name, "restripe")?, &request)?;
    if args.wait && !args.dry_run {
        wait_for_shape(context, &client, &args.name, &mut outcome)?;
    }
    context.outcome(&outcome)
}

/// Waits until the array has the shape that it is to get: data moves no more, and what was added is rebuilt. What waits
/// itself, for a member or a word, is not waited for without end.
fn wait_for_shape(
    context: &Context,
    client: &Client,
    name: &str,
    outcome: &mut OutcomeJson,
) -> Result<(), Failure> {
    const KINDS: [&str; 3] = ["restripe", "rebuild", "resync"];
    let mut bar = Bar::new("restripe", 0, context.json);
    let mut idle = Duration::ZERO;
    let stands = loop {
        let array: ArrayJson = client.get(&url(name, "")?)?;
        let mut jobs = array.jobs.iter();
        let job = jobs.find(|job| KINDS.contains(&job.kind.as_str()) && !job.paused);
        match (job, array.moving) {
            (Some(job), _) => {
                idle = Duration::ZERO;
                bar.at(job.done_bytes, job.total_bytes);
            }
            (None, None) => break false,
            (None, Some(moving)) if moving.stopped || idle >= PATIENCE => break true,
            (None, Some(_)) => idle += PAUSE,
        }
        thread::sleep(PAUSE);
    };
    bar.end();
    match stands {
        true => outcome.notes.push(format!(
            "data stands half-way: strake show {name} and strake events tell why"
        )),
        false => outcome.what.push_str("; it is done"),
    }
    Ok(())
}

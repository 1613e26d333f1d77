//! `strake grow` and `strake restripe`.

use crate::api::{GrowRequest, OutcomeJson, RestripeRequest};
use crate::cli::args::{GrowArgs, RestripeArgs};
use crate::cli::client::Client;
use crate::cli::wait::Wait;
use crate::cli::{Context, Ended, confirm_force, url};
use crate::common::absolutes;
use crate::common::size;

pub(super) fn grow(context: &Context, args: &GrowArgs) -> Ended {
    let client = Client::need(&context.dir)?;
    let request = GrowRequest {
        dry_run: args.dry_run,
    };
    let wait = (args.wait && !args.dry_run).then(|| Wait::new(context, &client, &args.name));
    let wait = wait.transpose()?;
    let outcome: OutcomeJson = client.post(&url(&args.name, "grow")?, &request)?;
    match wait {
        Some(wait) => wait.until_shaped()?.answer(context, &outcome),
        None => context.outcome(&outcome),
    }
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
    let follows = (args.wait || args.go_on) && !args.dry_run;
    let wait = follows.then(|| Wait::new(context, &client, &args.name));
    let wait = wait.transpose()?;
    let path = url(&args.name, "restripe")?;
    if request.force && !request.dry_run {
        let what = format!("strake restripe --force {} would overwrite", args.name);
        confirm_force(args.yes, &what, |force| {
            let rehearsal = RestripeRequest {
                force,
                dry_run: true,
                ..request.clone()
            };
            client.post::<OutcomeJson>(&path, &rehearsal)
        })?;
    }
    let outcome: OutcomeJson = client.post(&path, &request)?;
    match wait {
        Some(wait) if args.wait => wait.until_shaped()?.answer(context, &outcome),
        Some(wait) => {
            let mut outcome = outcome;
            if let Some(why) = wait.until_moving()? {
                outcome.what = format!("data moves no further: {why}");
            }
            context.outcome(&outcome)
        }
        None => context.outcome(&outcome),
    }
}

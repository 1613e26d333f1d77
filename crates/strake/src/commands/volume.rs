//! `strake volume`: an array carved into volumes, each with a block device of its own.
//!
//! Invariant: as for all commands: the daemon does it, nothing prompts without a terminal.
//! Deliberately absent: anything without a daemon; the table of volumes lies in the array's data.

use crate::api::*;
use crate::cli::args::volume::{CreateVolume, ResizeVolume, VolumeCommand};
use crate::cli::client::Client;
use crate::cli::output;
use crate::cli::{Context, DONE, Ended, checked, confirm, confirm_force, url};
use crate::common::errors::{Code, Failure};
use crate::common::size;
use crate::settings::words::parse_name;

/// Carries out a command.
pub(crate) fn run(context: &Context, command: &VolumeCommand) -> Ended {
    match command {
        VolumeCommand::Create(args) => create(context, args),
        VolumeCommand::Delete {
            array,
            volume,
            yes,
            dry_run,
        } => {
            let path = of(array, volume)?;
            let client = Client::need(&context.dir)?;
            let ask = |dry_run| client.call("DELETE", &path, &VolumeDeletion { dry_run });
            // Looked at first, so that it is known what the answer is about.
            let planned: OutcomeJson = ask(true)?;
            if *dry_run {
                return context.outcome(&planned);
            }
            confirm(*yes, &format!("all that is on {volume} of {array} is lost"))?;
            context.outcome(&ask(false)?)
        }
        VolumeCommand::Resize(args) => resize(context, args),
        VolumeCommand::Rename {
            array,
            volume,
            to,
            dry_run,
        } => {
            parse_name(to)?;
            let change = VolumeChange {
                name: Some(to.clone()),
                dry_run: *dry_run,
                ..VolumeChange::default()
            };
            let client = Client::need(&context.dir)?;
            context.outcome(&client.call("PATCH", &of(array, volume)?, &change)?)
        }
        VolumeCommand::Show { array, volume } => show(context, array, volume.as_deref()),
    }
}

/// Where the API has a volume.
fn of(array: &str, volume: &str) -> Result<String, Failure> {
    Ok(format!(
        "{}/{}",
        url(array, "volumes")?,
        parse_name(volume)?
    ))
}

fn create(context: &Context, args: &CreateVolume) -> Ended {
    parse_name(&args.volume)?;
    let request = VolumeRequest {
        name: args.volume.clone(),
        size_bytes: match args.size.as_str() {
            "max" => None,
            size => Some(size::parse(size)?),
        },
        force: args.force,
        dry_run: args.dry_run,
    };
    let path = url(&args.array, "volumes")?;
    let client = Client::need(&context.dir)?;
    if request.force && !request.dry_run {
        let (array, volume) = (&args.array, &args.volume);
        let what =
            format!("strake volume create --force {array} {volume} would give up what is written");
        confirm_force(args.yes, &what, |force| {
            let rehearsal = VolumeRequest {
                force,
                dry_run: true,
                ..request.clone()
            };
            client.post::<VolumeCreatedJson>(&path, &rehearsal)
        })?;
    }
    let created: VolumeCreatedJson = client.post(&path, &request)?;
    context.say(&created, |created| {
        let mut text = output::volume_table(std::slice::from_ref(&created.volume));
        if created.carves {
            text.push_str(&format!(
                "{} is carved: it has no block device of its own\n",
                args.array
            ));
        }
        if created.dry_run {
            text.push_str("nothing was written (--dry-run)\n");
        }
        text
    });
    Ok(DONE)
}

fn resize(context: &Context, args: &ResizeVolume) -> Ended {
    let size_bytes = size::parse(&args.size)?;
    let path = of(&args.array, &args.volume)?;
    let change = VolumeChange {
        size_bytes: Some(size_bytes),
        shrink: args.shrink,
        dry_run: args.dry_run,
        ..VolumeChange::default()
    };
    let client = Client::need(&context.dir)?;
    if args.shrink && !args.dry_run {
        let (array, volume, size) = (&args.array, &args.volume, &args.size);
        let what = format!(
            "strake volume resize --shrink {array} {volume} --size {size} would give up what lies \
             behind the new end"
        );
        confirm_force(args.yes, &what, |shrink| {
            let rehearsal = VolumeChange {
                shrink,
                dry_run: true,
                ..change.clone()
            };
            client.call::<OutcomeJson>("PATCH", &path, &rehearsal)
        })?;
    }
    context.outcome(&client.call("PATCH", &path, &change)?)
}

fn show(context: &Context, array: &str, volume: Option<&str>) -> Ended {
    checked(array)?;
    let client = Client::need(&context.dir)?;
    let mut volumes: VolumesJson = client.get(&url(array, "volumes")?)?;
    if let Some(name) = volume {
        volumes.volumes.retain(|v| v.name == name);
        let Some(volume) = volumes.volumes.first() else {
            let found = format!("{array} has no volume {name}");
            return Err(Failure::new(Code::VolumeNotFound, found));
        };
        context.say(volume, |volume| {
            output::volume_table(std::slice::from_ref(volume))
        });
        return Ok(DONE);
    }
    context.say(&volumes, |volumes| {
        let text = output::volumes(volumes);
        match text.is_empty() {
            true => format!("{array} is one block device: it has no volumes\n"),
            false => text,
        }
    });
    Ok(DONE)
}

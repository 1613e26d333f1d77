//! `strake volume`: an array carved into volumes, each with a block device of its own.
//!
//! Invariant: as for all commands: the daemon does it, nothing prompts without a terminal.
//! Deliberately absent: anything without a daemon; the table of volumes lies in the array's data.

use clap::{Args, Subcommand};

use crate::api::types::*;
use crate::cli::client::Client;
use crate::cli::output::{Table, or_dash};
use crate::cli::{Context, DONE, Ended, checked, confirm, confirm_force, size, url};
use crate::drives::make::parse_name;
use crate::errors::{Code, Failure};

/// What to do with volumes.
#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// Make a volume; the first one takes the place of the array's own block device
    Create(CreateVolume),
    /// Delete a volume and all that is on it
    Delete {
        array: String,
        volume: String,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Give a volume another size, while it is in use if it grows
    Resize(ResizeVolume),
    /// Give a volume another name
    Rename {
        array: String,
        volume: String,
        to: String,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Show the volumes of an array
    Show {
        array: String,
        /// Only this one
        volume: Option<String>,
    },
}

/// Arguments of `volume create`.
#[derive(Debug, Args)]
pub(crate) struct CreateVolume {
    pub(crate) array: String,
    pub(crate) volume: String,
    /// Its size: 100G, or max for all that is free
    #[arg(long, short)]
    pub(crate) size: String,
    /// Although the array has data, all of which is given up
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Only check, and say what would be made
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Arguments of `volume resize`.
#[derive(Debug, Args)]
pub(crate) struct ResizeVolume {
    pub(crate) array: String,
    pub(crate) volume: String,
    /// Its new size
    #[arg(long, short)]
    pub(crate) size: String,
    /// Although what lies behind the new end is lost
    #[arg(long)]
    pub(crate) shrink: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
}

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
            if !dry_run {
                confirm(*yes, &format!("all that is on {volume} is lost"))?;
            }
            let deletion = VolumeDeletion { dry_run: *dry_run };
            context.outcome(&client.call("DELETE", &path, &deletion)?)
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
        confirm_force(args.yes, |force| {
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
        let mut text = table(std::slice::from_ref(&created.volume));
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
        confirm_force(args.yes, |shrink| {
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
        context.say(volume, |volume| table(std::slice::from_ref(volume)));
        return Ok(DONE);
    }
    context.say(&volumes, |volumes| {
        let text = text(volumes);
        match text.is_empty() {
            true => format!("{array} is one block device: it has no volumes\n"),
            false => text,
        }
    });
    Ok(DONE)
}

/// The volumes of an array; nothing where it is not carved.
pub(crate) fn text(volumes: &VolumesJson) -> String {
    if volumes.damaged {
        return "  the table of volumes is damaged: no volume is served\n".to_owned();
    }
    let (Some(free), Some(unit)) = (volumes.free_bytes, volumes.unit_bytes) else {
        return match volumes.carved {
            true => "  carved into volumes\n".to_owned(),
            false => String::new(),
        };
    };
    let told = format!(
        "  {}, {} free in units of {}\n",
        size::count(volumes.volumes.len(), "volume"),
        size::bytes(free),
        size::bytes(unit)
    );
    match volumes.volumes.is_empty() {
        true => told,
        false => table(&volumes.volumes) + &told,
    }
}

fn table(volumes: &[VolumeJson]) -> String {
    let mut table = Table::new(&["VOLUME", "SIZE", "ALLOCATED", "EXTENTS", "DEVICE"]);
    for volume in volumes {
        table.row(vec![
            volume.name.clone(),
            size::bytes(volume.size_bytes),
            size::bytes(volume.allocated_bytes),
            volume.extents.to_string(),
            or_dash(volume.device.as_ref()),
        ]);
    }
    table.text(2)
}

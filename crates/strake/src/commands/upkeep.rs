//! Commands for what an administrator asks of an array now and then.
//!
//! Invariants: those of the command line (`cli`). Deliberately absent: deciding (the daemon's).

use std::path::Path;

use crate::api::*;
use crate::cli::args::*;
use crate::cli::client::Client;
use crate::cli::{
    Context, DONE, Ended, confirm, confirm_start, done, note_ignored, url, would_believe,
    would_start,
};
use crate::commands::offline;
use crate::common::{absolute, absolutes};
use crate::daemon::service::upkeep::{clean_devices, light, switch_light};
use crate::drives::machine::answering;

/// A member as the daemon is told: a slot number, or a device with its whole path.
pub(crate) fn whole(member: &str) -> String {
    match member.parse::<u8>() {
        Ok(slot) => slot.to_string(),
        Err(_) => absolute(Path::new(member)).display().to_string(),
    }
}

/// Wipes what Strake left on devices.
pub(crate) fn clean(context: &Context, args: &CleanArgs) -> Ended {
    let client = Client::find(&context.dir)?;
    let devices = absolutes(&args.devices);
    if client.is_none() {
        answering::need(&devices)?;
    }
    let ask = |dry_run| match &client {
        Some(client) => {
            let devices = devices.clone();
            client.post("/v1/drives/clean", &CleanRequest { devices, dry_run })
        }
        None => {
            let not_expected = |arrays: &_| offline::not_expected(context, arrays);
            let cleaned = clean_devices(&context.dir, &devices, &[], not_expected, dry_run);
            cleaned.and_then(|(cleaned, failure)| failure.map_or(Ok(cleaned), Err))
        }
    };
    // Looked at first, so that it is known what the answer is about.
    let mut cleaned: CleanedJson = ask(true)?;
    if !args.dry_run {
        let what: Vec<String> = cleaned.devices.iter().map(device_text).collect();
        let what = format!("strake drive clean would wipe {}", what.join(", "));
        confirm(args.yes, &what)?;
        cleaned = ask(false)?;
    }
    context.say(&cleaned, |cleaned| {
        let word = if cleaned.dry_run { "would be" } else { "is" };
        let line = |device: &CleanedDeviceJson| {
            format!("{} {word} clean: was {}\n", device.device, device.was)
        };
        cleaned.devices.iter().map(line).collect()
    });
    Ok(DONE)
}

fn device_text(device: &CleanedDeviceJson) -> String {
    format!("{} ({})", device.device, device.was)
}

/// Switches the light of a member's drive.
pub(crate) fn locate(context: &Context, args: &LocateArgs) -> Ended {
    let path = url(&args.name, "locate")?;
    let request = LocateRequest {
        member: whole(&args.member),
        on: args.light == OnOff::On,
        dry_run: args.dry_run,
    };
    let outcome: OutcomeJson = match Client::find(&context.dir)? {
        Some(client) => client.post(&path, &request)?,
        None => {
            let array = offline::shown(context, &offline::found(context, &args.name)?);
            switch_light(&context.dir, &array, &request)?
        }
    };
    context.outcome(&outcome)
}

/// Switches the light of a drive: of a member, or of any device.
pub(crate) fn locate_drive(context: &Context, args: &DriveLocateArgs) -> Ended {
    let device = match args.drive.as_slice() {
        [name, member] => {
            return locate(
                context,
                &LocateArgs {
                    name: name.clone(),
                    member: member.clone(),
                    light: args.light,
                    dry_run: args.dry_run,
                },
            );
        }
        drive => absolute(Path::new(drive.first().map_or("", String::as_str))),
    };
    let request = DriveLocateRequest {
        device,
        on: args.light == OnOff::On,
        dry_run: args.dry_run,
    };
    let done: DriveDone = match Client::find(&context.dir)? {
        Some(client) => client.post("/v1/drives/locate", &request)?,
        None => light(&request.device, request.on, request.dry_run)?,
    };
    context.say(&done, |done| {
        let unchanged = if done.changed {
            ""
        } else {
            " (nothing changed)"
        };
        format!("{}{unchanged}\n", done.what)
    });
    Ok(DONE)
}

/// Counts errors from zero again.
pub(crate) fn reset(context: &Context, args: &ResetArgs) -> Ended {
    let client = Client::need(&context.dir)?;
    let request = ResetRequest {
        member: args.member.as_deref().map(whole),
        dry_run: args.dry_run,
    };
    let outcome: OutcomeJson = client.post(&url(&args.name, "reset")?, &request)?;
    match args.dry_run {
        true => context.planned(&outcome),
        false => context.outcome(&outcome),
    }
}

/// Gives an array another name.
pub(crate) fn rename(context: &Context, name: &str, new: String, dry_run: bool) -> Ended {
    let path = url(name, "rename")?;
    let request = RenameRequest { name: new, dry_run };
    let outcome: OutcomeJson = match Client::find(&context.dir)? {
        Some(client) => client.post(&path, &request)?,
        None => offline::rename(context, name, &request)?,
    };
    context.outcome(&outcome)
}

/// Forgets an array of which no member is found.
pub(crate) fn forget(context: &Context, name: &str, dry_run: bool) -> Ended {
    let path = url(name, "forget")?;
    let outcome: OutcomeJson = match Client::find(&context.dir)? {
        Some(client) => client.post(&path, &DryRequest { dry_run })?,
        None => offline::forget(context, name, dry_run)?,
    };
    match dry_run {
        true => context.planned(&outcome),
        false => context.outcome(&outcome),
    }
}

/// Adopts an array.
pub(crate) fn import(context: &Context, args: ImportArgs) -> Ended {
    let path = url(&args.array, "import")?;
    let request = ImportRequest {
        name: args.name,
        export: args.export,
        force: args.force,
        devices: absolutes(&args.devices),
        dry_run: args.dry_run,
    };
    let client = Client::find(&context.dir)?;
    if let Some(client) = &client {
        note_ignored(context, client, &args.array, &request.devices)?;
    }
    let mut believed = None;
    if let Some(client) = client.as_ref().filter(|_| request.force) {
        let rehearse = |force| {
            let rehearsal = ImportRequest {
                force,
                dry_run: true,
                ..request.clone()
            };
            let array: ArrayJson = client.post(&path, &rehearsal)?;
            Ok(array.would_wipe)
        };
        match request.dry_run {
            true => believed = would_believe(rehearse),
            false => confirm_start(args.yes, &args.array, rehearse)?,
        }
    }
    let array: ArrayJson = match &client {
        Some(client) => client.post(&path, &request)?,
        None => offline::import(context, &args.array, &request)?,
    };
    match (request.dry_run, client) {
        (true, _) => {
            let what = format!("import array {}", array.uuid);
            context.would(
                &array.name,
                &would_start(&what, &array.would_wipe, believed.as_deref()),
            )
        }
        (false, Some(_)) => context.array(&array),
        (false, None) => {
            let what = match array.state.as_str() {
                "unknown" => {
                    "adopted; another process holds its members, and may serve it: a daemon here \
                     serves it when they are free"
                }
                _ => "adopted; nothing serves it yet",
            };
            context.outcome(&done(&array.name, what))
        }
    }
}

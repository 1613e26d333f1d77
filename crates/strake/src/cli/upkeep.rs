//! Commands for what an administrator asks of an array now and then.
//!
//! Invariants: those of the command line (`cli`). Deliberately absent: deciding (the daemon's).

use std::path::Path;

use crate::api::types::*;
use crate::cli::args::*;
use crate::cli::client::Client;
use crate::cli::{Context, Ended, absolute, absolutes, done, offline, shown_member, url};

/// A member as the daemon is told: a slot number, or a device with its whole path.
fn whole(member: &str) -> String {
    match member.parse::<u8>() {
        Ok(slot) => slot.to_string(),
        Err(_) => absolute(Path::new(member)).display().to_string(),
    }
}

/// Counts errors from zero again.
pub(crate) fn reset(context: &Context, args: &ResetArgs) -> Ended {
    let client = Client::need(&context.dir)?;
    if args.dry_run {
        let array: ArrayJson = client.get(&url(&args.name, "")?)?;
        let members = match &args.member {
            Some(member) => vec![shown_member(&array, member)?],
            None => array.members.iter().chain(&array.spares).cloned().collect(),
        };
        let sum = |of: fn(&MemberJson) -> u64| members.iter().map(of).sum::<u64>();
        let what = format!(
            "forget {} read errors, {} write errors and {} mismatches",
            sum(|m| m.read_errors),
            sum(|m| m.write_errors),
            sum(|m| m.mismatches)
        );
        return context.would(&array.name, &what);
    }
    let request = ResetRequest {
        member: args.member.as_deref().map(whole),
    };
    let outcome: OutcomeJson = client.post(&url(&args.name, "reset")?, &request)?;
    context.outcome(&outcome)
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
    let array: ArrayJson = match &client {
        Some(client) => client.post(&path, &request)?,
        None => offline::import(context, &args.array, &request)?,
    };
    match (request.dry_run, client) {
        (true, _) => context.would(&array.name, &format!("import array {}", array.uuid)),
        (false, Some(_)) => context.array(&array),
        (false, None) => context.outcome(&done(&array.name, "adopted; nothing serves it yet")),
    }
}

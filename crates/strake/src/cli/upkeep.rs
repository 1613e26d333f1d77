//! Commands for what an administrator asks of an array now and then.
//!
//! Invariants: those of the command line (`cli`). Deliberately absent: deciding (the daemon's).

use std::path::Path;

use crate::api::types::*;
use crate::cli::args::*;
use crate::cli::client::Client;
use crate::cli::{Context, Ended, absolute, offline, shown_member, url};

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

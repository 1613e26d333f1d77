//! `strake pool`: devices that wait for whichever array needs a spare first.
//!
//! Invariants: those of the command line (`cli`); without a daemon the same is done here.
//! Deliberately absent: deciding which array gets a device (the daemon's).

use crate::api::*;
use crate::cli::args::pool::{PoolCommand, PoolDevices};
use crate::cli::client::Client;
use crate::cli::output::Table;
use crate::cli::{Context, DONE, Ended, confirm, confirm_force};
use crate::commands::{self, offline};
use crate::common::absolutes;
use crate::common::errors::Failure;
use crate::common::size;
use crate::daemon::service::pools::{Changed, Pools};
use crate::drives::machine::answering;
use crate::settings::words::parse_name;

impl PoolDevices {
    fn request(&self) -> PoolRequest {
        PoolRequest {
            devices: absolutes(&self.devices),
            force: self.force,
            dry_run: self.dry_run,
            ..PoolRequest::default()
        }
    }
}

/// Carries out a command.
pub(crate) fn run(context: &Context, command: &PoolCommand) -> Ended {
    match command {
        PoolCommand::Create(args) => {
            let path = url(&args.pool, "")?;
            take(context, ("create", &path), args, |pools, name, request| {
                pools.create(name, request)
            })
        }
        PoolCommand::Add(args) => {
            let path = url(&args.pool, "/add")?;
            take(context, ("add", &path), args, |pools, name, request| {
                pools.add(name, request)
            })
        }
        PoolCommand::Remove {
            pool,
            devices,
            dry_run,
        } => {
            let request = PoolRequest {
                devices: absolutes(devices),
                dry_run: *dry_run,
                ..PoolRequest::default()
            };
            remove(context, pool, &request)
        }
        PoolCommand::Delete { pool, yes, dry_run } => {
            let request = PoolRequest {
                all: true,
                dry_run: *dry_run,
                ..PoolRequest::default()
            };
            if !dry_run {
                let rehearsal = PoolRequest {
                    dry_run: true,
                    ..request.clone()
                };
                // Looked at first, so that it is known what the answer is about.
                ask(context, &url(pool, "/remove")?, &rehearsal, |pools| {
                    pools.remove(pool, &rehearsal)
                })?;
                let what =
                    format!("strake pool delete {pool} would take all its devices out of it");
                confirm(*yes, &what)?;
            }
            remove(context, pool, &request)
        }
        PoolCommand::Show { pool } => show(context, pool.as_deref()),
    }
}

/// Gives devices to a pool. What `--force` overwrites on them is asked about.
fn take(
    context: &Context,
    (verb, path): (&str, &str),
    args: &PoolDevices,
    here: fn(&Pools<'_>, &str, &PoolRequest) -> Result<Changed, Failure>,
) -> Ended {
    let request = args.request();
    if request.force && !request.dry_run {
        let pool = &args.pool;
        let what = format!("strake pool {verb} --force {pool} would overwrite");
        confirm_force(args.yes, &what, |force| {
            let rehearsal = PoolRequest {
                force,
                dry_run: true,
                ..request.clone()
            };
            ask(context, path, &rehearsal, |pools| {
                here(pools, &args.pool, &rehearsal)
            })
        })?;
    }
    change(context, path, &request, |pools| {
        here(pools, &args.pool, &request)
    })
}

fn remove(context: &Context, pool: &str, request: &PoolRequest) -> Ended {
    change(context, &url(pool, "/remove")?, request, |pools| {
        pools.remove(pool, request)
    })
}

fn url(pool: &str, verb: &str) -> Result<String, Failure> {
    if pool.parse::<strake_format::PoolUuid>().is_err() {
        parse_name(pool)?;
    }
    Ok(format!("/v1/pools/{pool}{verb}"))
}

/// Asks the daemon, or does it here where there is none.
fn ask(
    context: &Context,
    path: &str,
    request: &PoolRequest,
    here: impl FnOnce(&Pools<'_>) -> Result<Changed, Failure>,
) -> Result<PoolDone, Failure> {
    match Client::find(&context.dir)? {
        Some(client) => client.post(path, request),
        None => {
            answering::need(&request.devices)?;
            here(&offline::pools(context))?.answer()
        }
    }
}

/// The same, and says what was done.
fn change(
    context: &Context,
    path: &str,
    request: &PoolRequest,
    here: impl FnOnce(&Pools<'_>) -> Result<Changed, Failure>,
) -> Ended {
    let done = ask(context, path, request, here)?;
    context.say(&done, |done| {
        let unchanged = if done.changed {
            ""
        } else {
            " (nothing changed)"
        };
        format!("pool {}: {}{unchanged}\n", done.pool, done.what)
    });
    Ok(DONE)
}

fn show(context: &Context, pool: Option<&str>) -> Ended {
    let client = Client::find(&context.dir)?;
    if let Some(pool) = pool {
        let found: PoolJson = match client {
            Some(client) => client.get(&url(pool, "")?)?,
            None => offline::pools(context).show_one(pool)?,
        };
        context.say(&found, |found| text(std::slice::from_ref(found)));
        return Ok(DONE);
    }
    let mut unread = Vec::new();
    let all: Vec<PoolJson> = match client {
        Some(client) => {
            let all: Vec<PoolJson> = client.get("/v1/pools")?;
            if all.is_empty() {
                unread = commands::unread(&client, commands::LOOKED)?;
            }
            all
        }
        None => offline::pools(context).show(),
    };
    commands::say_unread(context, &unread);
    context.say(&all, |all| text(all));
    Ok(DONE)
}

fn text(pools: &[PoolJson]) -> String {
    if pools.is_empty() {
        return "no pools found\n".to_owned();
    }
    let mut text = String::new();
    for pool in pools {
        let uuid = pool.uuid.as_deref().unwrap_or("no device");
        text.push_str(&format!("{}  {uuid}\n", pool.name));
        let mut table = Table::new(&["DEVICE", "SIZE", "BLOCK"]);
        for device in &pool.devices {
            table.row(vec![
                device.device.clone(),
                size::bytes(device.size_bytes),
                device.block_bytes.to_string(),
            ]);
        }
        if !pool.devices.is_empty() {
            text.push_str(&table.text(2));
        }
        for problem in pool.devices.iter().filter_map(|d| d.problem.as_ref()) {
            text.push_str(&format!("  not used: {problem}\n"));
        }
        if !pool.silent.is_empty() {
            let silent = pool.silent.join(", ");
            text.push_str(&format!("  no answer, perhaps in it: {silent}\n"));
        }
        for array in &pool.arrays {
            let fit = size::verb(array.fitting, "fits", "fit");
            text.push_str(&format!(
                "  array {}: {} of them {fit}\n",
                array.name, array.fitting
            ));
        }
    }
    text
}

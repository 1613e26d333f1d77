//! `strake config`: what all arrays are, in a file, and arrays made again from it; the check of the
//! daemon's own configuration.
//!
//! Invariants: those of the command line (`cli`); a backup needs no daemon, a file is replaced as a
//! whole or not at all. Deliberately absent: deciding what may be restored (the daemon's).

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::Serialize;

use crate::api::ArrayJson;
use crate::api::config::{
    BackupJson, RestoreRequest, RestoredArrayJson, RestoredJson, RestoredPoolJson, SlotDevice,
};
use crate::cli::args::config::{ConfigCommand, RestoreArgs};
use crate::cli::client::Client;
use crate::cli::{Context, DONE, Ended, confirm};
use crate::commands::{LOOKED, offline, say_unread, unread};
use crate::common::errors::{Code, Exit, Failure};
use crate::common::files::replace_patiently;
use crate::common::size;
use crate::common::{absolute, absolutes};
use crate::config::{Configuration, InUse};
use crate::daemon::service::backup;

/// Bytes of a backup at most; what the daemon takes as one request is less.
const BACKUP_BYTES_MAX: u64 = 64 << 20;

/// Carries it out.
pub(crate) fn run(context: &Context, command: &ConfigCommand) -> Ended {
    match command {
        ConfigCommand::Backup { file } => write(context, file.as_deref()),
        ConfigCommand::Restore(args) => restore(context, args),
        ConfigCommand::Check { file } => check(context, file.as_deref()),
    }
}

/// What `config check` found; a file that is not right is an error.
#[derive(Serialize)]
struct CheckedJson {
    file: PathBuf,
    exists: bool,
    configuration: Configuration,
}

fn check(context: &Context, file: Option<&Path>) -> Ended {
    let path = file.map_or_else(|| context.dir.config(), absolute);
    let read = match file {
        Some(_) => InUse::read_named(&path)?,
        None => InUse::read(&path)?,
    };
    let checked = CheckedJson {
        file: path,
        exists: read.exists(),
        configuration: read.configuration,
    };
    context.say(&checked, |checked| match checked.exists {
        true => format!("{} is right\n", checked.file.display()),
        false => format!("{} does not exist: defaults hold\n", checked.file.display()),
    });
    Ok(DONE)
}

fn write(context: &Context, file: Option<&Path>) -> Ended {
    let (backup, arrays): (BackupJson, Vec<ArrayJson>) = match Client::find(&context.dir)? {
        Some(client) => {
            let both = (client.get("/v1/config/backup")?, client.get("/v1/arrays")?);
            // Arrays and pools of theirs are not in it.
            say_unread(context, &unread(&client, LOOKED)?);
            both
        }
        None => {
            offline::say_no_daemon(context);
            let backup = backup::of_found(
                &context.dir,
                &offline::scan(context, &[]),
                &offline::found_pools(context),
            );
            (backup, offline::all(context))
        }
    };
    let mut text = serde_json::to_string_pretty(&backup).expect("the shapes are all JSON");
    text.push('\n');
    let Some(file) = file else {
        context.say(&backup, |_| text.clone());
        say_left_out(context, &arrays);
        return Ok(DONE);
    };
    replace_patiently(&absolute(file), text.as_bytes())
        .map_err(|e| Failure::io(file.display(), &e))?;
    if context.dir.lasting_answers().is_ok() {
        context.dir.was_backed_up(&backup, &absolute(file));
    }
    context.say(&backup, |backup| {
        let pools = match backup.pools.len() {
            0 => String::new(),
            n => format!(" and {}", size::count(n, "pool")),
        };
        format!(
            "{}{pools} in {}\n",
            size::count(backup.arrays.len(), "array"),
            file.display()
        )
    });
    say_left_out(context, &arrays);
    Ok(DONE)
}

/// Says which arrays are known here, and not in a backup.
fn say_left_out(context: &Context, arrays: &[ArrayJson]) {
    for array in arrays.iter().filter(|array| array.not_found) {
        let name = &array.name;
        context.aside(&format!(
            "{name} is not in this backup: no member of it is found; keep an earlier one"
        ));
    }
}

fn restore(context: &Context, args: &RestoreArgs) -> Ended {
    let client = Client::need(&context.dir)?;
    let text = read(&args.file)?;
    let slots = args.slots.iter().map(|told| slot(told));
    let slots = slots.collect::<Result<Vec<_>, _>>()?;
    for (at, one) in slots.iter().enumerate() {
        if let Some(first) = slots[..at].iter().find(|other| other.slot == one.slot) {
            let (first, second) = (first.device.display(), one.device.display());
            let found = format!("slot {} is given twice: {first} and {second}", one.slot);
            return Err(Failure::new(Code::Usage, found).cure("give --slot once for each slot"));
        }
    }
    let mut request = RestoreRequest {
        backup: backup::read_backup(&text, &args.file)?,
        names: args.names.clone(),
        devices: absolutes(&args.devices),
        slots,
        force: args.force,
        accept_stale: args.accept_stale,
        dry_run: true,
    };
    // Looked at first, so that it is known what the answer is about.
    let mut restored: RestoredJson = client.post("/v1/config/restore", &request)?;
    let writes = to_be_written(&restored);
    if !args.dry_run && !writes.is_empty() {
        confirm(args.yes, &writes.join("; "))?;
        request.dry_run = false;
        restored = client.post("/v1/config/restore", &request)?;
    }
    restored.dry_run = args.dry_run;
    context.say(&restored, |restored| {
        let line = |array: &RestoredArrayJson| {
            let doubt = array.doubt.as_ref().map(|why| format!("; in doubt: {why}"));
            let doubt = doubt.unwrap_or_default();
            format!("{}: {}{doubt}\n", array.name, array.what)
        };
        let pool = |pool: &RestoredPoolJson| format!("pool {}: {}\n", pool.name, pool.what);
        let arrays = restored.arrays.iter().map(line);
        arrays.chain(restored.pools.iter().map(pool)).collect()
    });
    let lacks = |array: &RestoredArrayJson| array.not_applied.is_some();
    Ok(match restored.arrays.iter().any(lacks) {
        true => Exit::Degraded as u8,
        false => DONE,
    })
}

/// What a restore would write, and what that may cost: the question before it.
fn to_be_written(planned: &RestoredJson) -> Vec<String> {
    let arrays = planned.arrays.iter().filter(|array| array.restored);
    let names: Vec<String> = arrays
        .map(|array| {
            let doubt = array.doubt.as_ref().map(|why| format!(" ({why})"));
            let (name, devices) = (&array.name, array.devices.join(", "));
            format!("{name} on {devices}{}", doubt.unwrap_or_default())
        })
        .collect();
    let mut what = Vec::new();
    if !names.is_empty() {
        what.push(format!(
            "new superblocks for {}; the order of slots must be right and no member stale, or \
             data is lost",
            names.join("; ")
        ));
    }
    let pools = planned.pools.iter().filter(|pool| pool.restored);
    what.extend(pools.map(|pool| {
        let devices = pool.devices.join(", ");
        format!(
            "{devices} for the pool {}: what lies there is lost",
            pool.name
        )
    }));
    what
}

/// Magic number of the file system of pipes that have no name, in `linux/magic.h`.
const PIPEFS_MAGIC: u64 = 0x5049_5045;

/// Opens what a backup is read from: a regular file, or a pipe without a name, which a shell or
/// /dev/stdin gives. Nothing else: to open a FIFO waits for a writer, and a device may have no end.
/// Answers what it is where that is neither.
fn opened(file: &Path) -> io::Result<Result<File, &'static str>> {
    let nonblock = OFlags::NONBLOCK.bits() as i32;
    let opened = File::options().read(true).custom_flags(nonblock).open(file);
    let kind = match &opened {
        Ok(opened) => opened.metadata()?.file_type(),
        // A socket cannot be opened.
        Err(_) => std::fs::metadata(file)?.file_type(),
    };
    let is_nameless = |pipe: &File| {
        let system = rustix::fs::fstatfs(pipe);
        system.is_ok_and(|system| u64::try_from(system.f_type) == Ok(PIPEFS_MAGIC))
    };
    match opened {
        Ok(opened) if kind.is_file() => Ok(Ok(opened)),
        Ok(pipe) if kind.is_fifo() && is_nameless(&pipe) => {
            // Its writer may be slow.
            rustix::fs::fcntl_setfl(&pipe, rustix::fs::fcntl_getfl(&pipe)? - OFlags::NONBLOCK)?;
            Ok(Ok(pipe))
        }
        Err(error) if kind.is_file() => Err(error),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(error),
        _ if kind.is_dir() => Ok(Err("a folder")),
        _ if kind.is_fifo() => Ok(Err("a FIFO")),
        _ if kind.is_char_device() => Ok(Err("a character device")),
        _ if kind.is_block_device() => Ok(Err("a block device")),
        _ => Ok(Err("a socket")),
    }
}

/// The text of a backup. No more is read than a backup can have.
fn read(file: &Path) -> Result<String, Failure> {
    let shown = file.display();
    let failed = |error: io::Error| match error.kind() {
        ErrorKind::NotFound => Failure::new(Code::FileNotFound, format!("{shown} does not exist")),
        _ => Failure::io(&shown, &error),
    };
    let no_backup = |why: String| {
        let found = format!("{shown} is no backup: {why}");
        Failure::new(Code::BackupInvalid, found)
    };
    let mut bytes = Vec::new();
    let opened = opened(file).map_err(failed)?;
    let opened = opened.map_err(|what| no_backup(format!("it is {what}, no regular file")))?;
    let read = opened.take(BACKUP_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(failed)?;
    if bytes.len() as u64 > BACKUP_BYTES_MAX {
        let most = size::bytes(BACKUP_BYTES_MAX);
        return Err(no_backup(format!("it holds more than {most}")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        no_backup(format!("byte {at} is part of no text"))
    })
}

/// `N=DEV`.
fn slot(told: &str) -> Result<SlotDevice, Failure> {
    let wrong = || {
        let failure = Failure::new(Code::Usage, format!("'{told}' names no slot"));
        failure.cure("use --slot N=DEV, as --slot 0=/dev/nvme0n1")
    };
    let (number, device) = told.split_once('=').ok_or_else(wrong)?;
    Ok(SlotDevice {
        slot: number.parse().map_err(|_| wrong())?,
        device: absolute(Path::new(device)),
    })
}

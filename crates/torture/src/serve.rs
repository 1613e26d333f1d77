//! The process that is killed: serves an array on files through the real runtime, and does what it
//! is told, line by line, on standard input.
//!
//! Every line is answered by lines of which the last begins with `.`; the first answer, without a
//! question, says whether the array serves. Invariant: the end of standard input ends the process
//! as a kill does, so nothing outlives the process that tells it what to do. Deliberately absent:
//! every decision; the process that survives takes them.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use strake_engine::event::{
    Command, CommandError, DataShape, EventKind, JobKind, NewDevice, NewShape, Returning,
    ScrubMode, Setting,
};
use strake_engine::units::Slot;
use strake_format::{MemberUuid, RegionState};
use strake_runtime::{Device, ExportKind, OpenMode, Placement, ServeConfig, Serving, serve};

/// How long the kernel may take to close the rings of the process that was killed before this one:
/// on a machine with more to do than processors, seconds.
const PREDECESSOR: Duration = Duration::from_secs(30);

/// What to serve, and how.
#[derive(clap::Args)]
pub(crate) struct Options {
    #[arg(long)]
    socket: PathBuf,
    #[arg(long)]
    shards: u16,
    #[arg(long)]
    memory_mib: usize,
    /// Files that may be members
    members: Vec<PathBuf>,
}

/// Serves until told to stop.
pub(crate) fn run(options: &Options) -> Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let mut members = Vec::new();
    for path in &options.members {
        let device = Device::open_within(path, OpenMode::Member, PREDECESSOR)?;
        // A spare is no member if the write of its first superblock was cut off.
        match device.read_member() {
            Ok(image) => members.push((device, image)),
            Err(error) => eprintln!("{}: {error}", path.display()),
        }
    }
    let config = ServeConfig {
        members,
        shards: options.shards,
        memory_bytes: options.memory_mib << 20,
        placement: Placement::default(),
        io_timeout: Duration::from_secs(30),
        force: false,
        export: ExportKind::Nbd,
        nbd_socket: options.socket.clone(),
        recover_ublk: None,
        client_stock: Vec::new(),
    };
    let (serving, events) = match serve(config) {
        Ok(started) => started,
        Err(error) => return say(&[], &format!("refused {error}")),
    };
    // The number of the last scrub's untrue stripes, plus one; zero while there is none.
    let scrubbed = Arc::new(AtomicU64::new(0));
    let heard = Arc::clone(&scrubbed);
    std::thread::spawn(move || {
        for event in events {
            if let EventKind::JobFinished {
                kind, inconsistent, ..
            } = event.kind
                && kind == JobKind::Scrub
            {
                heard.store(inconsistent + 1, Ordering::SeqCst);
            }
        }
    });
    say(&[], "serving")?;
    for line in std::io::stdin().lock().lines() {
        let line = line.context("standard input")?;
        let words: Vec<&str> = line.split('\t').collect();
        match words.as_slice() {
            ["status"] => say(&status(&serving, scrubbed.load(Ordering::SeqCst)), "status")?,
            ["stop"] => {
                serving.stop()?;
                return say(&[], "stopped");
            }
            words => say(&[], &obey(&serving, words, &scrubbed)?)?,
        }
    }
    // The process that told us what to do is gone.
    std::process::exit(1);
}

fn say(lines: &[String], last: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    writeln!(out, ".{last}")?;
    Ok(out.flush()?)
}

/// Carries out a command and answers what came of it.
fn obey(serving: &Serving, words: &[&str], scrubbed: &AtomicU64) -> Result<String> {
    let mut attached = Vec::new();
    let mut attach = |path: &str, uuid: &str| -> Result<NewDevice> {
        let device = Device::open(Path::new(path), OpenMode::Member)?;
        let info = device.info();
        let member = MemberUuid(uuid.parse::<u128>()?.to_be_bytes());
        let device = serving.attach(device)?;
        attached.push(device);
        Ok(NewDevice {
            device,
            info,
            member,
        })
    };
    let slot = |text: &str| -> Result<Slot> { Ok(Slot(text.parse()?)) };
    let command = match words {
        ["fail", at] => Command::Fail(slot(at)?),
        ["add", path, uuid] => Command::Add(attach(path, uuid)?),
        ["replace", at, path, uuid] => Command::Replace(slot(at)?, attach(path, uuid)?),
        ["return", path] => {
            let device = Device::open_within(Path::new(path), OpenMode::Member, PREDECESSOR)?;
            match returning(serving, device) {
                Ok(back) => {
                    attached.push(back.device);
                    Command::Return(back)
                }
                Err(error) => return Ok(format!("error {error}")),
            }
        }
        ["restripe", strip, group, devices @ ..] => {
            let (strip, group) = (strip.parse::<u32>()?, group.parse::<u8>()?);
            let mut new = Vec::new();
            for device in devices.chunks(2) {
                let [path, uuid] = device else {
                    bail!("a device without an identity: {device:?}");
                };
                new.push(attach(path, uuid)?);
            }
            Command::Restripe(NewShape {
                devices: new,
                data: DataShape {
                    strip_bytes: (strip > 0).then_some(strip),
                    group_size: (group > 0).then_some(group),
                    ..DataShape::default()
                },
            })
        }
        ["rebuild", "start"] => Command::StartRebuild,
        ["rebuild", "stop"] => Command::StopRebuild,
        ["init", "start"] => Command::StartInit,
        ["init", "stop"] => Command::StopInit,
        ["scrub"] => {
            scrubbed.store(0, Ordering::SeqCst);
            Command::StartScrub(ScrubMode::Check)
        }
        ["priority", value] => Command::Set(Setting::RebuildPriority(value.parse()?)),
        ["restripe priority", value] => Command::Set(Setting::RestripePriority(value.parse()?)),
        other => bail!("unknown command {other:?}"),
    };
    Ok(match serving.command(command) {
        Ok(_) => "done".to_owned(),
        Err(error) => {
            let unknown = matches!(error, CommandError::Unfinished(_));
            for device in attached.into_iter().filter(|_| !unknown) {
                serving.detach(device);
            }
            format!("error {error}")
        }
    })
}

/// The device as the member that it was, by what it says of itself.
fn returning(serving: &Serving, device: Device) -> Result<Returning> {
    let (info, image) = (device.info(), device.read_member()?);
    Ok(Returning {
        device: serving.attach(device)?,
        info,
        copy_to_replace: image.copy_to_replace,
        emptied: image.emptied,
        map: image.map,
        superblock: Box::new(image.superblock),
    })
}

/// Lines `state`, `unsynced`, `scrubbed`, `strip`, `shape`, `job`, `member`, their words parted by
/// tabs.
fn status(serving: &Serving, scrubbed: u64) -> Vec<String> {
    let status = serving.status();
    let layout = status.superblock.layout;
    // A region covers the same rows on every member: so many bytes of the array.
    let strips = layout.data_bytes / u64::from(status.superblock.strip_bytes);
    let height = strips * u64::from(status.superblock.strip_bytes);
    let step = layout.region_bytes * (status.size_bytes / height).max(1);
    let unsynced = (0..status.size_bytes)
        .step_by(usize::try_from(step).expect("a region fits into memory's addresses"))
        .any(|at| serving.region_of(at) == Some(RegionState::NeedSync));
    let mut lines = vec![
        format!("state\t{:?}", status.state),
        format!("unsynced\t{unsynced}"),
        format!("scrubbed\t{scrubbed}"),
        format!("strip\t{}", status.superblock.user_strip_bytes()),
    ];
    let sb = &status.superblock;
    let elder = sb.moving.as_ref().map(|it| (it.members, it.group_size));
    for (slots, width) in std::iter::once((sb.members, sb.group_size)).chain(elder) {
        lines.push(format!("shape\t{slots}\t{width}"));
    }
    for job in &status.jobs {
        lines.push(format!("job\t{:?}\t{}", job.kind, job.paused));
    }
    for member in &status.members {
        let slot = member.slot.map_or(-1, |slot| i32::from(slot.0));
        let path = member.device.and_then(|device| serving.path(device));
        let path = path.unwrap_or_default();
        lines.push(format!(
            "member\t{slot}\t{:?}\t{}",
            member.state,
            path.display()
        ));
    }
    lines
}

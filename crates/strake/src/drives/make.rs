//! Making an array: checks, the plan, the writes; and unmaking it.
//!
//! Order: names and numbers → devices ([`safety`]) → engine's plan → open every device as a member
//! → (trim the data areas) → every write but the last superblock copy, flush → the last
//! copy, flush. Invariant: after an error nothing half-made is left: the superblocks of every
//! device touched are zeroed.
//!
//! An array that is restored is made the same way, over data that stays; after an error only the
//! devices that were written to lose their superblocks.
//!
//! Deliberately absent: starting what was made.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Resource, getrlimit};
use strake_engine::Geometry;
use strake_engine::create::{self, CreateError, CreatePlan, CreateSpec, Init, Step};
use strake_engine::event::DeviceInfo;
use strake_format::*;
use strake_runtime::{Device, DeviceError, OpenMode};

use crate::api::CreateRequest;
use crate::common::errors::{Code, Failure, RAISE_FILE_LIMIT};
use crate::common::partly::Partly;
use crate::common::size;
use crate::drives::machine::paths;
use crate::drives::notes;
use crate::drives::reused;
use crate::drives::safety;
use crate::drives::safety::Permit;
use crate::settings::words;

/// What to write over the data areas first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prepare {
    Nothing,
    /// It holds the data of an array that was, and so do the places of its metadata until they are
    /// written over: they tell which member was which.
    Keep,
    Trim,
}

/// A name that an array has.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) name: ArrayName,
    /// Of an array that was destroyed: the refusal of its name, and how the rest of it goes.
    pub(crate) left: Option<Failure>,
}

/// What was made, or would be.
#[derive(Debug)]
pub(crate) struct Made {
    /// The first member's superblock.
    pub(crate) superblock: Superblock,
    /// Identity and path of members and spares.
    pub(crate) paths: Vec<(MemberUuid, PathBuf)>,
    /// Nothing is written yet: all of it reads as zeros.
    pub(crate) unwritten: bool,
    /// What its shape costs on these devices.
    pub(crate) notes: Vec<String>,
}

/// How long an array may take to let go of a device that it refused.
const RELEASE_PATIENCE: Duration = Duration::from_secs(5);

/// A random array identity.
pub(crate) fn random_uuid() -> [u8; 16] {
    *uuid::Uuid::new_v4().as_bytes()
}

fn parse_init(text: Option<&str>) -> Result<(Init, Prepare), Failure> {
    Ok(match text.unwrap_or("auto") {
        "auto" | "lazy" => (Init::Lazy, Prepare::Nothing),
        "trim" => (Init::Lazy, Prepare::Trim),
        "zero" => (Init::Zero, Prepare::Nothing),
        "sync" => (Init::Sync, Prepare::Nothing),
        "assume-clean" => (Init::AssumeClean, Prepare::Nothing),
        other => {
            let found = format!("'{other}' is no way to initialise");
            let cure = "use auto, trim, lazy, zero, sync or assume-clean";
            return Err(Failure::new(Code::Usage, found).cure(cure));
        }
    })
}

pub(crate) fn parse_strip(bytes: Option<u64>) -> Result<Option<u32>, Failure> {
    let Some(bytes) = bytes else { return Ok(None) };
    if !bytes.is_power_of_two() || !(4096..=1 << 20).contains(&bytes) {
        let found = format!("a strip of {bytes} bytes is not a power of two from 4 KiB to 1 MiB");
        return Err(Failure::new(Code::StripInvalid, found));
    }
    Ok(Some(bytes as u32))
}

/// Refuses a name that an array has, or what is left of one that was destroyed.
fn check_name(name: &ArrayName, taken: &[Taken]) -> Result<(), Failure> {
    let mut same = taken.iter().filter(|t| t.name == *name);
    let Some(first) = same.next() else {
        return Ok(());
    };
    match &first.left {
        Some(left) if same.all(|t| t.left.is_some()) => {
            let cure = format!("choose another name, or: {}", left.cure);
            Err(Failure::new(Code::NameExists, left.found.clone()).cure(cure))
        }
        _ => {
            let found = format!("an array {name} exists already");
            Err(Failure::new(Code::NameExists, found))
        }
    }
}

/// Makes the array (or, with `dry_run`, only checks that it could be made). `may` refuses one of
/// such a superblock and so many devices before anything is written.
pub(crate) fn make(
    request: &CreateRequest,
    taken: &[Taken],
    may: impl Fn(&Superblock, usize) -> Result<(), Failure>,
) -> Result<Made, Failure> {
    let (mut spec, prepare) = spec_of(request)?;
    check_name(&spec.name, taken)?;
    let paths = request.all_devices();
    let permit = Permit {
        force: request.force,
        own: None,
        half_made: None,
        data: None,
    };
    let mut granularity = 0;
    let mut sizes = Vec::new();
    let plan = lay(&paths, permit, request.dry_run, prepare, |devices| {
        within_file_limit(devices)?;
        let granularities = devices.iter().map(|d| d.info().granularity_bytes);
        granularity = granularities.max().unwrap_or(0);
        let draw = |d: &Device| (d.info(), MemberUuid(random_uuid()));
        let (members, spares) = devices.split_at(request.devices.len());
        spec.members = members.iter().map(draw).collect();
        spec.spares = spares.iter().map(draw).collect();
        sizes.extend(devices.iter().map(|d| d.info().bytes));
        let plan = create::plan(&spec).map_err(|error| match error {
            CreateError::Layout { .. } => too_small(&mut spec, &paths, error),
            error => error.into(),
        })?;
        may(&plan.superblocks[0], devices.len()).map(|()| plan)
    })?;
    let mut notes = of_devices(&[], &paths);
    let members = request.devices.iter().zip(sizes);
    let uneven = notes::of_sizes(&members.collect::<Vec<_>>());
    let made = Made::of(plan, paths, matches!(spec.init, Init::Lazy | Init::Zero));
    let strip = u64::from(made.superblock.strip_bytes);
    notes.extend(notes::of_shape(
        &Geometry::of(&made.superblock),
        strip,
        granularity,
    ));
    notes.extend(uneven);
    Ok(Made { notes, ..made })
}

/// Refuses files of which this process may not write the end.
fn within_file_limit(devices: &[Device]) -> Result<(), Failure> {
    let Some(limit) = getrlimit(Resource::Fsize).current else {
        return Ok(());
    };
    let is_file = |d: &&Device| fs::metadata(d.path()).is_ok_and(|there| there.is_file());
    let beyond = |d: &&Device| d.info().bytes > limit;
    match devices.iter().filter(is_file).find(beyond) {
        None => Ok(()),
        Some(device) => {
            let (path, bytes) = (device.path().display(), device.info().bytes);
            let found = format!(
                "{path} has {bytes} bytes, and this process may write files up to {limit} bytes \
                 only (RLIMIT_FSIZE)"
            );
            Err(Failure::new(Code::NoSpace, found).cure(RAISE_FILE_LIMIT))
        }
    }
}

/// Refuses a device that could be a member of no array.
pub(crate) fn may_be_member(path: &Path, info: DeviceInfo) -> Result<(), Failure> {
    let member = || (info, MemberUuid(random_uuid()));
    let mut spec = CreateSpec {
        array: ArrayUuid(random_uuid()),
        name: "pool".parse().expect("a name"),
        level: Level::Raid1,
        strip_bytes: None,
        group_size: None,
        block_bytes: None,
        write_hole: WriteHole::Closed,
        settings: Settings::default(),
        init: Init::Lazy,
        created_unix_s: now_unix_s(),
        members: vec![member(), member()],
        spares: Vec::new(),
        tiny: None,
    };
    match create::plan(&spec) {
        Ok(_) => Ok(()),
        Err(error @ CreateError::Layout { .. }) => {
            Err(match enough(&mut spec, &[info.bytes, info.bytes]) {
                Some(bytes) => too_few_bytes(path, "any array", info.bytes, bytes),
                None => error.into(),
            })
        }
        Err(error) => Err(Failure::from(error).about(path.display())),
    }
}

/// The bytes that would suffice where devices that have these are too small.
fn enough(spec: &mut CreateSpec, has: &[u64]) -> Option<u64> {
    const PAGE: u64 = 4096;
    // The smallest says how much of each is used, so all are to be as large.
    let mut suffice = |pages: u64| {
        let all = spec.members.iter_mut().chain(&mut spec.spares);
        for ((info, _), has) in all.zip(has) {
            info.bytes = (*has).max(pages * PAGE);
        }
        create::plan(spec).is_ok()
    };
    let mut enough = (1..=48)
        .map(|bits| 1 << bits)
        .find(|&pages| suffice(pages))?;
    let mut less = enough / 2;
    while enough - less > 1 {
        let middle = less + (enough - less) / 2;
        match suffice(middle) {
            true => enough = middle,
            false => less = middle,
        }
    }
    Some(enough * PAGE)
}

fn too_few_bytes(path: &Path, what: &str, has: u64, enough: u64) -> Failure {
    let found = format!(
        "{}, for {what}, is too small: it has {has} bytes, and at least {enough} ({}) are needed",
        path.display(),
        size::bytes(enough)
    );
    Failure::new(Code::DeviceTooSmall, found)
}

/// A device is too small for the array: which, and what would suffice. What does not fit is found
/// first where as much is laid out as the smallest has, which may be any of them: it is the
/// smallest that is meant.
fn too_small(spec: &mut CreateSpec, paths: &[PathBuf], error: CreateError) -> Failure {
    let members = spec.members.len();
    let all = spec.members.iter().chain(&spec.spares);
    let has: Vec<u64> = all.map(|(info, _)| info.bytes).collect();
    let smallest = (0..has.len()).min_by_key(|&at| has[at]);
    let Some((index, path)) = smallest.and_then(|at| Some((at, paths.get(at)?))) else {
        return error.into();
    };
    let Some(enough) = enough(spec, &has) else {
        return error.into();
    };
    let what = match index < members {
        true => format!("slot {index}"),
        false => "a spare".to_owned(),
    };
    too_few_bytes(path, &what, has[index], enough)
}

/// What these devices have that members had better not have, beside those that are members already.
pub(crate) fn of_devices(members: &[PathBuf], paths: &[PathBuf]) -> Vec<String> {
    let pairs = safety::on_one_drive(members, paths);
    let mut notes: Vec<String> = pairs
        .iter()
        .map(|(first, second)| notes::of_one_drive(first, second))
        .collect();
    let readable = |path: &PathBuf| {
        let meta = paths::metadata(path).ok().filter(|meta| meta.is_file())?;
        notes::of_readable(path, meta.permissions().mode())
    };
    notes.extend(paths.iter().filter_map(readable));
    notes
}

/// Makes the metadata of an array again over the data that these devices hold, one for each slot
/// (or, with `dry_run`, only checks that it could be made).
pub(crate) fn again(
    paths: &[PathBuf],
    permit: Permit,
    dry_run: bool,
    plan: impl FnOnce(&[Device]) -> Result<CreatePlan, Failure>,
) -> Result<Made, Failure> {
    let plan = lay(paths, permit, dry_run, Prepare::Keep, plan)?;
    Ok(Made::of(plan, paths.to_vec(), false))
}

/// Lays on these devices what `plan` says, unless somebody uses one or something foreign is in the
/// way.
fn lay(
    paths: &[PathBuf],
    permit: Permit,
    dry_run: bool,
    prepare: Prepare,
    plan: impl FnOnce(&[Device]) -> Result<CreatePlan, Failure>,
) -> Result<CreatePlan, Failure> {
    let foreign = safety::check(paths, permit)?;
    let open = |path: &PathBuf| Device::open(path, OpenMode::ReadOnly);
    let plan = plan(&paths.iter().map(open).collect::<Result<Vec<_>, _>>()?)?;
    if dry_run {
        safety::may_hold(paths)?;
        return Ok(plan);
    }
    let devices = safety::hold(paths, &foreign, permit)?;
    write_or_wipe(&devices, &plan, prepare)?;
    Ok(plan)
}

impl Made {
    fn of(plan: CreatePlan, paths: Vec<PathBuf>, unwritten: bool) -> Made {
        let ids = plan.superblocks.iter().map(|sb| sb.member);
        let paths = ids.zip(paths).collect();
        let first = plan.superblocks.into_iter().next();
        Made {
            superblock: first.expect("a plan has a first member"),
            paths,
            unwritten,
            notes: Vec::new(),
        }
    }
}

/// Seconds since 1970.
pub(crate) fn now_unix_s() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// What is to be made, as far as words and numbers say; the devices are still to come.
fn spec_of(request: &CreateRequest) -> Result<(CreateSpec, Prepare), Failure> {
    let (init, prepare) = parse_init(request.init.as_deref())?;
    let spec = CreateSpec {
        array: ArrayUuid(random_uuid()),
        name: words::parse_name(&request.name)?,
        level: words::parse_level(&request.level)?,
        strip_bytes: parse_strip(request.strip_bytes)?,
        group_size: request.group_size,
        block_bytes: request.block_bytes,
        write_hole: words::parse_write_hole(request.write_hole.as_deref())?,
        settings: Settings {
            latency_target_us: latency_target(request.latency_target_us)?,
            ..Settings::default()
        },
        init,
        created_unix_s: now_unix_s(),
        members: Vec::new(),
        spares: Vec::new(),
        tiny: None,
    };
    Ok((spec, prepare))
}

/// The latency target that is asked for, in microseconds; none is 0.
fn latency_target(us: Option<u32>) -> Result<u32, Failure> {
    crate::settings::latency_target(us.unwrap_or(0))
}

fn write_or_wipe(devices: &[Device], plan: &CreatePlan, prepare: Prepare) -> Result<(), Failure> {
    let mut reached = 0;
    let Err(failure) = write(devices, plan, prepare, &mut reached) else {
        return Ok(());
    };
    let touched = match prepare {
        Prepare::Keep => reached,
        _ => devices.len(),
    };
    let mut left = Partly::default();
    for (device, sb) in devices[..touched].iter().zip(&plan.superblocks) {
        left.note(device.path(), wipe(device, sb));
    }
    Err(match left.failure("wiped again") {
        None => failure,
        Some(left) => {
            let found = format!(
                "{}; superblocks of the array that was not made may be left: {}",
                failure.found, left.found
            );
            let cure = "mend that, and strake drive clean DEV wipes what is left on a device";
            Failure { found, ..failure }.cure(cure)
        }
    })
}

/// `reached`: so many of the devices were written to.
fn write(
    devices: &[Device],
    plan: &CreatePlan,
    prepare: Prepare,
    reached: &mut usize,
) -> Result<(), Failure> {
    if prepare != Prepare::Keep {
        do_steps(devices, &plan.clearing(), reached)?;
    }
    if prepare == Prepare::Trim {
        for (device, sb) in devices.iter().zip(&plan.superblocks) {
            // Advice only: the regions are Unwritten whatever the device makes of it.
            if let Err(error) = device.discard(sb.layout.data_offset, sb.layout.data_bytes) {
                tracing::info!(%error, "trim not done");
            }
        }
    }
    do_steps(devices, &plan.steps(), reached)
}

fn do_steps(devices: &[Device], steps: &[Step<'_>], reached: &mut usize) -> Result<(), Failure> {
    for step in steps {
        match *step {
            Step::Zero { at, offset, len } => devices[at].write_zeroes(offset, len)?,
            Step::Write { at, offset, bytes } => {
                *reached = (at + 1).max(*reached);
                devices[at].write_at(offset, bytes)?;
            }
            Step::Flush { at } => devices[at].flush()?,
        }
    }
    Ok(())
}

/// Zeroes both superblocks of a member.
fn wipe(device: &Device, sb: &Superblock) -> Result<(), Failure> {
    let zeroes = [0u8; SUPERBLOCK_BYTES];
    for offset in Layout::superblock_offsets(sb.layout.device_bytes) {
        device.write_at(offset, &zeroes)?;
    }
    device.flush()?;
    Ok(())
}

/// Takes a member out of its array for ever.
pub(crate) fn unmake(device: &Device, array: ArrayUuid) -> Result<(), Failure> {
    let image = device.read_member()?;
    if image.superblock.array != array {
        let shown = device.path().display();
        let found = format!("{shown} is now a member of another array");
        return Err(Failure::new(Code::MemberOfArray, found));
    }
    // The last copy of a device that grew lies where the device ended before.
    let sizes = [device.info().bytes, image.superblock.layout.device_bytes];
    reused::wipe(device, &sizes.map(Layout::superblock_offsets).concat())
}

/// Takes the superblock of an array off a device that the array refused after all, as soon as the
/// array has let go of it; not if the array `lists` that member, or cannot say.
pub(crate) fn leave_no_stray(
    path: &Path,
    array: ArrayUuid,
    lists: impl Fn(MemberUuid) -> Option<bool>,
) {
    let since = Instant::now();
    let opened = loop {
        match Device::open(path, OpenMode::Member) {
            Err(DeviceError::Busy(_)) if since.elapsed() < RELEASE_PATIENCE => {
                std::thread::sleep(Duration::from_millis(20));
            }
            opened => break opened,
        }
    };
    let wiped = opened.map_err(Failure::from).and_then(|device| {
        match device.read_member() {
            // It came to nothing before a superblock was written, or another array has it by now.
            Err(DeviceError::NotStrake(_)) => Ok(()),
            Ok(image) if image.superblock.array != array => Ok(()),
            Ok(image) if lists(image.superblock.member) != Some(false) => Ok(()),
            _ => unmake(&device, array),
        }
    });
    if let Err(failure) = wiped {
        let device = path.display();
        tracing::warn!(%device, %failure, "it may keep a superblock of an array that refused it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_create_parse_and_others_are_named() {
        assert_eq!(parse_init(None).ok(), Some((Init::Lazy, Prepare::Nothing)));
        assert_eq!(
            parse_init(Some("zero")).ok(),
            Some((Init::Zero, Prepare::Nothing))
        );
        assert_eq!(parse_init(Some("no")).map_err(|f| f.code), Err(Code::Usage));
        assert_eq!(words::parse_write_hole(None).ok(), Some(WriteHole::Closed));
        for policy in ["closed", "degraded", "resync"] {
            let parsed = words::parse_write_hole(Some(policy)).ok();
            assert_eq!(parsed, policy.parse().ok());
        }
        assert_eq!(
            words::parse_write_hole(Some("x")).map_err(|f| f.code),
            Err(Code::Usage)
        );
        assert_eq!(
            words::parse_level("8").map_err(|f| f.code),
            Err(Code::LevelUnknown)
        );
        for bad in [0, 3, 2048, 65537, 2 << 20, 1 << 40] {
            assert_eq!(
                parse_strip(Some(bad)).map_err(|f| f.code),
                Err(Code::StripInvalid)
            );
        }
        assert_eq!(parse_strip(Some(65536)), Ok(Some(65536)));
        assert_eq!(
            words::parse_name("a/b").map_err(|f| f.code),
            Err(Code::NameInvalid)
        );
    }
}

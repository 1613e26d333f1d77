//! Changes of an array's shape that a user asks for: growth onto larger members, more parities,
//! data that moves to more data columns, to other groups or to other strips; and parities that go.
//!
//! Deliberately absent: how any of them is done (engine).

use std::path::PathBuf;

use strake_engine::Geometry;
use strake_engine::event::{
    Changed, Command, CommandError, DataShape, DeviceInfo, Fewer, NewDevice, NewShape,
};
use strake_engine::limits::{self, Joining};
use strake_format::{Level, MemberUuid, Superblock, returns};
use strake_runtime::Device;

use crate::api::{GrowRequest, OutcomeJson, RestripeRequest};
use crate::common::absolute;
use crate::common::errors::{Code, Failure};
use crate::common::size;
use crate::daemon::array::links;
use crate::daemon::array::running::Running;
use crate::daemon::service::{
    Service, carry_out, joining_notes, not_apart, outcome, own_superblock,
};
use crate::drives::find;
use crate::drives::make;
use crate::drives::notes;
use crate::drives::safety;
use crate::drives::safety::{Content, Permit};
use crate::settings::words;

/// Size that an array would have with so much data on each member.
fn size_with(superblock: &Superblock, data_bytes: u64) -> u64 {
    let mut superblock = superblock.clone();
    superblock.layout.data_bytes = data_bytes;
    Geometry::of(&superblock).size()
}

/// The level that so many devices more make of this one, which is to be `wanted`.
fn level_with(
    name: &str,
    superblock: &Superblock,
    devices: usize,
    wanted: Level,
) -> Result<Level, Failure> {
    let now = superblock.level;
    match now.with_parities(devices).filter(|_| devices > 0) {
        Some(level) if level == wanted => Ok(level),
        _ if wanted == now => {
            let found = format!("the array has level {now} already");
            let cure = format!("strake restripe {name} --add DEV… adds data columns");
            Err(Failure::new(Code::LevelUnreachable, found).cure(cure))
        }
        _ => {
            let more = size::count(devices, "device");
            let found = format!("level {now} does not become {wanted} with {more} more");
            Err(Failure::new(Code::LevelUnreachable, found))
        }
    }
}

/// How many parities fewer make this level of the array's.
fn parities_fewer(superblock: &Superblock, wanted: Level) -> Result<usize, Failure> {
    let now = superblock.level;
    let all = usize::from(now.parity_count());
    let fewer = (1..=all).find(|&fewer| now.without_parities(fewer) == Some(wanted));
    fewer.ok_or_else(|| {
        let one = now.with_groups(false).filter(|_| now.is_grouped());
        let found = match (1..=2).find(|&more| now.with_parities(more) == Some(wanted)) {
            _ if wanted == now => format!("the array has level {now} already"),
            Some(more) => {
                let more = size::count(more, "device");
                format!("level {now} does not become {wanted} without {more} more")
            }
            None => format!("level {now} does not become {wanted}"),
        };
        let failure = Failure::new(Code::LevelUnreachable, found);
        match one {
            Some(one) => failure.cure(format!("parities of groups stay: --level {one} first")),
            None => failure,
        }
    })
}

/// The members of each group, if it is to other groups that data moves: where this level, or no
/// other than now, is asked for.
fn regrouped(
    superblock: &Superblock,
    devices: usize,
    wanted: Option<Level>,
    group_size: Option<u8>,
) -> Result<Option<u8>, Failure> {
    let now = superblock.level;
    let wanted = wanted.unwrap_or(now);
    let one_kind = now.with_groups(false) == wanted.with_groups(false);
    let groups = now.is_grouped() || wanted.is_grouped();
    if !one_kind || !groups || now.with_groups(false).is_none() {
        return match group_size {
            None => Ok(None),
            Some(_) => {
                let found = format!("level {now} does not become {wanted} in groups");
                let cure = "5, 6 and 7.3 get groups as 50, 60 and 70, and lose them again";
                Err(Failure::new(Code::ShapeUnreachable, found).cure(cure))
            }
        };
    }
    let members = usize::from(superblock.members) + devices;
    match (wanted.is_grouped(), group_size) {
        (true, Some(size)) => Ok(Some(size)),
        (true, None) if now == wanted => Ok(None),
        (true, None) => {
            let found = format!("level {wanted} needs to know how large its groups are to be");
            Err(Failure::new(Code::GroupSize, found).cure("give --group-size"))
        }
        (false, Some(size)) => {
            let found = format!("level {wanted} has no groups of {size}");
            Err(Failure::new(Code::GroupSize, found).cure("leave --group-size away"))
        }
        (false, None) => match u8::try_from(members) {
            Ok(members) => Ok(Some(members)),
            Err(_) => {
                let found = format!("{members} members");
                Err(Failure::new(Code::TooManyMembers, found))
            }
        },
    }
}

/// The level that a mirror has once it has data columns on so many devices more.
fn mirror_with(superblock: &Superblock, devices: usize) -> Option<Level> {
    let level = superblock.level;
    (level == Level::Raid1).then(|| level.with_data(superblock.members, devices))?
}

impl Service {
    /// Uses all that the members have room for.
    pub(crate) fn grow(&self, name: &str, request: &GrowRequest) -> Result<OutcomeJson, Failure> {
        let _change = self.change("strake grow", name, request.dry_run)?;
        let running = self.running(name)?;
        let name = running.name();
        let name = name.as_str();
        running.with(|s| {
            s.await_releases();
            Ok(())
        })?;
        let before = running.status()?.size_bytes;
        if request.dry_run {
            running.with(|s| Ok(s.may_grow()?))?;
            let superblock = running.status()?.superblock;
            let (layout, strip) = (superblock.layout, superblock.user_strip_bytes());
            let smallest = running.with(|s| Ok(s.smallest_device()))?;
            let data_bytes = layout.room(smallest, strip).max(layout.data_bytes);
            let after = size_with(&superblock, data_bytes);
            let what = format!("would grow from {before} to {after} bytes");
            return Ok(outcome(name, false, &what));
        }
        let (changed, told) = running.with(|s| Ok(s.grow()?))?;
        let after = running.status()?.size_bytes;
        let mut what = format!("grew from {before} to {after} bytes");
        if !told {
            what += "; a program that has the device open sees the old size until it opens it \
                     anew, or until strake stop and start where the kernel's ublk cannot tell it";
        }
        Ok(outcome(name, changed == Changed::Yes, &what))
    }

    /// Raises the level by parities on these devices, lowers it where there are none (the last
    /// parity only by force), moves data to another shape, or does what it is told with data that
    /// moves.
    pub(crate) fn restripe(
        &self,
        name: &str,
        request: &RestripeRequest,
    ) -> Result<OutcomeJson, Failure> {
        let paths: Vec<PathBuf> = request.devices.iter().map(|path| absolute(path)).collect();
        // Before the change: a device that hangs would hold up others of the array.
        find::answering(&self.looks, &paths)?;
        let _change = self.change_holding("strake restripe", name)?;
        let running = self.running(name)?;
        let name = running.name();
        let name = name.as_str();
        let now = running.status()?.superblock;
        let change = match restripe_action(name, &now, request)? {
            RestripeAction::Change(change) => change,
            RestripeAction::Mirror => return mirror(&running, request.dry_run),
            RestripeAction::Lower(fewer) => return lower(&running, fewer, request.dry_run),
            RestripeAction::Halt(stop) => {
                return halt_move(&running, stop, request.dry_run);
            }
        };
        let mut content = Content::default();
        for path in &paths {
            running.not_joined(path)?;
            if let Ok(Some(own)) = own_superblock(path, running.uuid) {
                content.note(not_apart(returns(&own, &now), path, request.force))?;
            }
        }
        let permit = Permit {
            force: request.force,
            own: Some(running.uuid),
            half_made: None,
            data: None,
        };
        self.none_in_service(&paths)?;
        let wipe = safety::check_beside(content, &paths, permit)?;
        // The array would say so, but after devices have been wiped.
        let infos = safety::infos(&paths)?;
        may_join(&running, &paths, &infos, change.joining())?;
        let mut notes = shape_notes(&running, &now, &paths, change.joining())?;
        if request.dry_run {
            safety::may_hold(&paths)?;
            let what = match change {
                Change::Level(wanted) => format!("would become level {wanted} from {}", now.level),
                Change::Data { size, .. } => {
                    format!("would have {size} bytes once its data has moved")
                }
            };
            return Ok(outcome(name, false, &what).noted(&notes));
        }
        let devices = safety::hold(&paths, &wipe, permit)?;
        // One that was a member of it before stays what it was.
        let was_ours = |path: &PathBuf| !matches!(own_superblock(path, running.uuid), Ok(None));
        let strangers: Vec<PathBuf> = paths.iter().filter(|p| !was_ours(p)).cloned().collect();
        // Before they are members: one that is remembered in vain does no harm.
        notes.extend(self.dir.not_remembered(name, &paths));
        let lists = |member: MemberUuid| {
            let now = running.status().ok()?.superblock;
            Some(now.slot_of(member).is_some() || now.spares.contains(&member))
        };
        let stray = |path: &PathBuf| make::leave_no_stray(path, running.uuid, lists);
        let changed = widen(&running, devices, &change).inspect_err(|why| {
            // An array that stopped in the middle may have them as members.
            if why.code != Code::NotServing {
                strangers.iter().for_each(stray);
            }
        })?;
        let what = change.told(&now, request.devices.len());
        Ok(outcome(name, changed, &what).noted(&notes))
    }
}

/// Data moves no further, or goes on.
fn halt_move(running: &Running, stop: bool, dry_run: bool) -> Result<OutcomeJson, Failure> {
    let (command, what) = match stop {
        true => (
            Command::StopRestripe,
            "data moves no further until it is continued",
        ),
        // What keeps it from that is told by its job.
        false => (Command::ContinueRestripe, "data is to go on moving"),
    };
    let would = || Ok(format!("would do so: {what}"));
    carry_out(running, command, dry_run, would, what)
}

/// Whether the array would take devices like these; where its buffers are too few, with what limit
/// they would not be.
fn may_join(
    running: &Running,
    paths: &[PathBuf],
    infos: &[DeviceInfo],
    joining: Joining,
) -> Result<(), Failure> {
    running.with(|s| {
        // One by one, it is known which device it is about.
        for (path, info) in paths.iter().zip(infos) {
            let alone = s.may_join(std::slice::from_ref(info), Joining::Spares);
            if let Err(error @ (CommandError::TooSmall { .. } | CommandError::BlockSize { .. })) =
                alone
            {
                return Err(Failure::from(error).about(path.display()));
            }
        }
        s.may_join(infos, joining).map_err(|error| match error {
            CommandError::BuffersTooFew { needs, .. } => {
                let mib = s.memory_for(needs).div_ceil(1 << 20) << 20;
                let (limit, name) = (size::exact(mib), running.name());
                let found = format!("{error}; a memory_limit of {limit} suffices");
                let cure = format!(
                    "strake set {name} memory_limit={limit}, then strake stop {name} and strake \
                     start {name}"
                );
                Failure::new(Code::MemoryLimit, found).cure(cure)
            }
            error => error.into(),
        })
    })
}

/// What the shape that the array is to get costs, and what these devices pay in it.
fn shape_notes(
    running: &Running,
    now: &Superblock,
    paths: &[PathBuf],
    joining: Joining,
) -> Result<Vec<String>, Failure> {
    let wide = limits::shape_with(now, paths.len(), joining)?;
    let strip = u64::from(wide.user_strip_bytes());
    let members = running.with(|s| Ok(s.granularity_bytes()))?;
    let mut all = match joining {
        Joining::Data(_) => notes::of_shape(&Geometry::of(&wide).after_move(), strip, members),
        _ => Vec::new(),
    };
    all.extend(joining_notes(running, paths)?);
    Ok(all)
}

/// Lets parities go: at once, or when data has moved to where it lies without them.
fn lower(running: &Running, fewer: Fewer, dry_run: bool) -> Result<OutcomeJson, Failure> {
    let now = running.status()?.superblock;
    let spares = match fewer.parities {
        1 => "a spare".to_owned(),
        _ => format!("{} spares", fewer.parities),
    };
    let (was, wanted) = (now.level, now.level.without_parities(fewer.parities));
    let wanted = wanted.expect("it was looked for");
    let moves = fewer.parities > usize::from(now.fixed_parities);
    let command = Command::DropParity(fewer);
    let first = match moves {
        true => ", once its data has moved",
        false => "",
    };
    let would = || {
        Ok(format!(
            "would become level {wanted} from {was}, with {spares} more{first}"
        ))
    };
    let done = match moves {
        true => format!(
            "data moves to where it lies at level {wanted}; then it has that level from {was}, \
             with {spares} more"
        ),
        false => format!("level {wanted} from {was}, with {spares} more"),
    };
    carry_out(running, command, dry_run, would, &done)
}

/// Calls an array the mirror that it is.
fn mirror(running: &Running, dry_run: bool) -> Result<OutcomeJson, Failure> {
    let was = running.status()?.superblock.level;
    let would = || Ok(format!("would become level 1 from {was}"));
    let done = format!("level 1 from {was}: its parities were copies");
    carry_out(running, Command::Mirror, dry_run, would, &done)
}

/// What a request wants.
enum RestripeAction {
    /// Another shape.
    Change(Change),
    /// So many parities fewer.
    Lower(Fewer),
    /// A mirror, of an array with parities that are copies.
    Mirror,
    /// Data moves no further (true), or goes on.
    Halt(bool),
}

/// What is wanted of an array that is like this now.
fn restripe_action(
    name: &str,
    now: &Superblock,
    request: &RestripeRequest,
) -> Result<RestripeAction, Failure> {
    let (count, strip) = (
        request.devices.len(),
        make::parse_strip(request.strip_bytes)?,
    );
    let level = request.level.as_deref().map(words::parse_level);
    let (level, action) = (level.transpose()?, request.action.as_deref());
    let group_size = match action {
        Some("stop" | "continue") => None,
        _ => regrouped(now, count, level, request.group_size)?,
    };
    let shape = DataShape {
        strip_bytes: strip,
        group_size,
        rotate: request.rotate,
        ..DataShape::default()
    };
    let data = || -> Result<RestripeAction, Failure> {
        let size = limits::size_with(now, count, shape)?;
        Ok(RestripeAction::Change(Change::Data { size, shape }))
    };
    let unreachable = |found: &str, cure: &str| {
        let failure = Failure::new(Code::ShapeUnreachable, found);
        Err(failure.cure(cure))
    };
    match (level, action) {
        (_, None | Some("add")) if group_size.is_some() => data(),
        (Some(_), None) if request.rotate => unreachable(
            "parities are added first, and rotate when they are built; those that go do so alone",
            "ask for --rotate when that is done",
        ),
        (Some(level), None) if mirror_with(now, count) == Some(level) => data(),
        (Some(_), None) if strip.is_some() => unreachable(
            "parities come and go without any other strip",
            "ask for the other strip when that is done",
        ),
        (Some(Level::Raid1), None) if request.devices.is_empty() && now.level.has_parity() => {
            Ok(RestripeAction::Mirror)
        }
        (Some(level), None) if request.devices.is_empty() => Ok(RestripeAction::Lower(Fewer {
            parities: parities_fewer(now, level)?,
            last: request.force,
        })),
        (Some(level), None) => {
            let wanted = level_with(name, now, count, level)?;
            Ok(RestripeAction::Change(Change::Level(wanted)))
        }
        (None, Some("add")) if now.level == Level::Raid1 => unreachable(
            "a mirror has no data columns to which others could be added",
            &format!("strake restripe {name} --level LEVEL DEV… makes it one with parity"),
        ),
        (None, Some("add")) => data(),
        (None, None) if strip.is_some() || request.rotate => data(),
        (None, Some("stop")) => Ok(RestripeAction::Halt(true)),
        (None, Some("continue")) => Ok(RestripeAction::Halt(false)),
        _ => {
            let found = "neither a level, nor a strip, nor one of add, rotate, stop and continue";
            Err(Failure::new(Code::LevelUnreachable, found))
        }
    }
}

/// What is to be.
enum Change {
    /// This level.
    Level(Level),
    /// So many bytes once data has moved to this shape.
    Data { size: u64, shape: DataShape },
}

impl Change {
    /// What has begun, of an array that was like this, with so many devices more.
    fn told(&self, was: &Superblock, devices: usize) -> String {
        match self {
            Change::Level(wanted) => format!(
                "level {wanted} from {}: its new parity is being built, data stays where it is",
                was.level
            ),
            Change::Data { size, .. } if devices > 0 => {
                format!("data moves to the new devices; {size} bytes when all of it has moved")
            }
            Change::Data { shape, .. } if shape.group_size.is_some() => {
                "data moves to the other groups".to_owned()
            }
            Change::Data { shape, .. } if shape.rotate && shape.strip_bytes.is_none() => {
                "data moves to where it lies when all parities rotate".to_owned()
            }
            Change::Data { .. } => "data moves to the other strips".to_owned(),
        }
    }

    fn joining(&self) -> Joining {
        match self {
            Change::Level(_) => Joining::Parities,
            Change::Data { shape, .. } => Joining::Data(*shape),
        }
    }
}

fn widen(running: &Running, devices: Vec<Device>, change: &Change) -> Result<bool, Failure> {
    let paths: Vec<PathBuf> = devices.iter().map(|d| d.path().to_owned()).collect();
    let changed = running.with(|s| {
        let mut new = Vec::new();
        for device in devices {
            let info = device.info();
            let device = s.attach(device).inspect_err(|_| {
                let before = new.iter();
                before.for_each(|new: &NewDevice| s.detach(new.device));
            })?;
            let member = MemberUuid(make::random_uuid());
            new.push(NewDevice {
                device,
                info,
                member,
            });
        }
        let devices = new;
        let changed = match change {
            Change::Level(_) => s.add_parity(devices)?,
            &Change::Data { shape: data, .. } => s.restripe(NewShape { devices, data })?,
        };
        Ok(changed == Changed::Yes)
    })?;
    paths.iter().for_each(|path| links::announce(path));
    Ok(changed)
}

//! Cleaning devices: what Strake left on them is wiped, of members of arrays that do not run and of
//! devices in pools.
//!
//! Order: checks of all devices → all are held, so that nobody can start their arrays → the two
//! places of superblocks and labels, flush → map, lists and log. Invariant: nothing is written
//! where nothing of ours was found, where somebody uses the device, or before all devices are held;
//! over what somebody else put there, nothing but what is certainly ours. Deliberately absent:
//! data; it is what it was.

use std::path::PathBuf;

use strake_format::{ArrayUuid, Layout, Role, Superblock};
use strake_runtime::{Device, DeviceError, OpenMode};

use crate::common::errors::{Code, Failure};
use crate::common::partly::Partly;
use crate::drives::find;
use crate::drives::pool;
use crate::drives::reused;
use crate::drives::safety;

/// What was found on a device.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    /// In words.
    pub(crate) was: String,
    /// Of a member with a superblock that can be believed.
    superblock: Option<Box<Superblock>>,
}

impl Found {
    /// The array that it is a member of, if that can be told.
    pub(crate) fn array(&self) -> Option<ArrayUuid> {
        Some(self.superblock.as_ref()?.array)
    }
}

/// Looks at devices that are to be cleaned.
pub(crate) fn look(paths: &[PathBuf]) -> Result<Vec<Found>, Failure> {
    safety::distinct(paths)?
        .into_iter()
        .map(|(id, path)| {
            safety::not_in_use(id, path)?;
            look_at(&Device::open(path, OpenMode::ReadOnly)?)
        })
        .collect()
}

fn look_at(device: &Device) -> Result<Found, Failure> {
    let shown = device.path().display();
    let (was, superblock) = match device.read_member() {
        Ok(image) => (
            member_text(&image.superblock),
            Some(Box::new(image.superblock)),
        ),
        // It is no device of a pool: a copy of its superblock is whole.
        Err(DeviceError::Shrunk { .. }) => {
            let superblock = find::one_copy(device).map(|image| Box::new(image.superblock));
            let was = superblock.as_deref().map(member_text);
            let was = was.unwrap_or_else(|| "a member".to_owned());
            (format!("{was}, on a device that shrank"), superblock)
        }
        Err(error) => match (error, pool::label_of(device)?) {
            (_, Some(label)) => (format!("in the pool {}", label.name), None),
            (DeviceError::Damaged { .. }, None) => {
                ("a member with damaged superblocks".to_owned(), None)
            }
            (DeviceError::NotStrake(_), None) => {
                let found = format!("{shown} carries nothing of Strake's");
                return Err(Failure::new(Code::NotAMember, found).cure("leave it away"));
            }
            (error, None) => return Err(error.into()),
        },
    };
    let was = match reused::still_ours(device) {
        Ok(()) => was,
        // What lies there now keeps what it has.
        Err(now) => format!("{was}, and used for something else since ({})", now.found),
    };
    Ok(Found {
        path: device.path().to_owned(),
        was,
        superblock,
    })
}

fn member_text(sb: &Superblock) -> String {
    let (name, uuid) = (&sb.name, sb.array);
    match sb.role {
        Role::Slot(slot) => format!("slot {slot} of array {name} ({uuid})"),
        Role::Spare => format!("a spare of array {name} ({uuid})"),
    }
}

/// Wipes what Strake left on these devices. Answers what was found on those that are wiped, and why
/// not all are.
///
/// # Errors
/// No device was written.
pub(crate) fn clean(paths: &[PathBuf]) -> Result<(Vec<Found>, Option<Failure>), Failure> {
    look(paths)?;
    let devices = safety::hold_all(paths.iter().map(PathBuf::as_path))?;
    // Again, now that nobody else can write them.
    let found: Vec<Found> = devices.iter().map(look_at).collect::<Result<_, _>>()?;
    let mut partly = Partly::default();
    for (device, found) in devices.iter().zip(&found) {
        partly.note(device.path(), wipe(device, found.superblock.as_deref()));
    }
    let wiped = found.into_iter();
    let wiped = wiped.filter(|found| partly.done().contains(&found.path));
    let failure = partly.failure("wiped").map(|failure| {
        failure.cure("mend that, and strake drive clean DEV wipes those that are not")
    });
    Ok((wiped.collect(), failure))
}

fn wipe(device: &Device, superblock: Option<&Superblock>) -> Result<(), Failure> {
    let mut places = Layout::superblock_offsets(device.info().bytes).to_vec();
    // On a device that grew the last copy lies where it ended before; of one that shrank that place
    // is gone.
    let ended = superblock.map(|sb| Layout::superblock_offsets(sb.layout.device_bytes)[1]);
    places.extend(ended.filter(|at| *at < device.info().bytes));
    // Asked before the first copy is gone.
    let all = reused::still_ours(device).is_ok();
    reused::wipe(device, &places)?;
    let is_there = |sb: &&Superblock| sb.layout.data_offset <= device.info().bytes;
    if let Some(sb) = superblock.filter(|_| all).filter(is_there) {
        let from = sb.layout.map_offset;
        device.write_zeroes(from, sb.layout.data_offset - from)?;
        device.flush()?;
    }
    Ok(())
}

//! The member that a user means, and what an array that has failed answers.
//!
//! Invariant: a device is taken for the slot that it was in only where it was in one slot alone,
//! which has no device now: what is asked of one device is never done to another.

use std::path::PathBuf;

use strake_engine::event::{ArrayState, CommandError, MemberRef, MemberStatus};
use strake_format::Slot;
use strake_runtime::Serving;

use crate::common::errors::{Code, Failure};
use crate::daemon::array::running::{LOOK_PATIENCE, Running, in_service};
use crate::drives::machine::sysfs;
use crate::drives::machine::sysfs::Identity;
use crate::view;

impl Running {
    /// The member in a slot, or with a device.
    pub(crate) fn present(&self, text: &str) -> Result<Option<MemberStatus>, Failure> {
        let wanted = std::path::absolute(text).unwrap_or_else(|_| PathBuf::from(text));
        let wanted_id = sysfs::identity(&wanted).ok();
        self.with(|s| {
            let is = |m: &&MemberStatus| match text.parse::<u8>() {
                Ok(slot) => m.slot == Some(Slot(slot)),
                Err(_) => m.device.and_then(|id| s.path(id)).is_some_and(|path| {
                    path == wanted
                        || (wanted_id.is_some() && sysfs::identity(&path).ok() == wanted_id)
                }),
            };
            Ok(s.status_now()?.members.iter().find(is).cloned())
        })
    }

    /// The first of these devices that is in service here, as far as the array says so soon: it is
    /// asked once, however many there are.
    pub(crate) fn serves_one_of<'a>(&self, paths: &'a [PathBuf]) -> Option<&'a PathBuf> {
        let identity = |path: &PathBuf| sysfs::identity(path).ok();
        let own = self.with(|s| {
            let status = s.status_within(LOOK_PATIENCE)?;
            let members = status.members.iter().filter(|m| in_service(m));
            let own = members.filter_map(|m| s.path(m.device?));
            Ok(own.map(|path| (identity(&path), path)).collect::<Vec<_>>())
        });
        let own = own.unwrap_or_default();
        paths.iter().find(|path| {
            let wanted = identity(path);
            let same = |id: &Option<Identity>| wanted.is_some() && *id == wanted;
            own.iter().any(|(id, at)| at == *path || same(id))
        })
    }

    /// The member that a user means by a slot number, a device, or the device that was in a slot.
    pub(crate) fn member(&self, text: &str) -> Result<MemberStatus, Failure> {
        if let Some(member) = self.present(text)? {
            return Ok(member);
        }
        let array = self.dir.seats(self.uuid).shown(self.json()?);
        let had = view::departed(&array, text)?;
        let (name, slot) = (&array.name, had.slot.unwrap_or_default());
        if let Some(device) = had.device {
            let found = format!("{text} was in slot {slot} of {name}, which has {device} now");
            let cure = format!("strake show {name} lists slots and devices");
            return Err(Failure::new(Code::MemberNotFound, found).cure(cure));
        }
        let member = self.present(&slot.to_string())?;
        member
            .ok_or_else(|| Failure::new(Code::MemberNotFound, format!("{name} has no slot {slot}")))
    }

    /// How commands name that member.
    pub(crate) fn reference(member: &MemberStatus) -> Result<MemberRef, Failure> {
        match (member.slot, member.device) {
            (Some(slot), _) => Ok(MemberRef::Slot(slot)),
            (None, Some(device)) => Ok(MemberRef::Device(device)),
            (None, None) => Err(Failure::new(Code::MemberNotFound, "the spare is not there")),
        }
    }

    /// The same, where a device means that very device: in a slot that is being replaced there are
    /// two.
    pub(crate) fn exact_reference(member: &MemberStatus, text: &str) -> Result<MemberRef, Failure> {
        match (text.parse::<u8>(), member.device) {
            (Err(_), Some(device)) => Ok(MemberRef::Device(device)),
            _ => Running::reference(member),
        }
    }

    /// Refuses an array that has failed, before anything else is said against what is asked.
    pub(crate) fn not_failed(&self) -> Result<(), Failure> {
        self.with(|s| match s.status_now()?.state {
            ArrayState::Failed => Err(CommandError::NotServing.into()),
            _ => Ok(()),
        })
    }

    /// A refusal because nothing is served any more, of an array that has failed: the start that
    /// the catalogue advises does nothing to one that is in service. And one because the array is
    /// not in order, with what is not.
    pub(super) fn explained(&self, serving: &Serving, failure: Failure) -> Failure {
        if !matches!(failure.code, Code::NotServing | Code::NotOptimal) {
            return failure;
        }
        match serving.status_now() {
            Ok(status) if status.state == ArrayState::Failed => {
                let array = self.shown(serving, &status);
                view::failed(&self.dir.seats(self.uuid).shown(array))
            }
            Ok(status) if failure.code == Code::NotOptimal => {
                let amiss = view::amiss(&self.shown(serving, &status));
                match amiss.is_empty() {
                    true => failure,
                    false => Failure {
                        found: format!("{}: {amiss}", failure.found),
                        ..failure
                    },
                }
            }
            _ => failure,
        }
    }
}

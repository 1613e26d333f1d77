//! Spares that take the place of members which still serve: by word, or because a drive is worn.
//!
//! Invariants: one member of an array at a time, and by itself only while the array is optimal, so
//! that a spare is never taken from a slot that has nobody; a drive that does not tell how worn it
//! is, is left alone. Deliberately absent: asking drives (`wear`), and the rebuild (the engine's).

use std::path::Path;

use strake_engine::event::{Command, MemberState, MemberStatus};
use strake_format::Slot;

use crate::api::{ArrayJson, OutcomeJson};
use crate::common::errors::{Code, Failure};
use crate::daemon::array::running::Running;
use crate::daemon::events::Happened;
use crate::daemon::service::{Service, may_take, outcome, slot_of};

/// A worn member, the spare of the array that is to take its place, if it has one that is not, and
/// how worn the member is, per cent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Relief {
    slot: u8,
    device: String,
    spare: Option<String>,
    percent: u8,
}

/// The most worn of the members that are worn, if one may be replaced now.
fn choose(array: &ArrayJson, worn_from: u8, drives: &[(String, u8)]) -> Option<Relief> {
    let percent_of = |device: &str| {
        let asked = drives.iter().find(|(asked, _)| asked == device);
        asked.map(|(_, percent)| *percent)
    };
    let settled = array.members.iter().all(|m| m.state == "in_sync");
    if array.state != "optimal" || !settled {
        return None;
    }
    let worn = array.members.iter().filter_map(|member| {
        let device = member.device.as_ref()?;
        let percent = percent_of(device).filter(|percent| *percent >= worn_from)?;
        Some((percent, member.slot?, device))
    });
    let (percent, slot, device) = worn.max_by_key(|(percent, slot, _)| (*percent, !slot))?;
    let spares = array.spares.iter().filter_map(|spare| spare.device.clone());
    let fresh = |device: &String| percent_of(device).is_none_or(|percent| percent < worn_from);
    Some(Relief {
        slot,
        device: device.clone(),
        spare: spares.into_iter().find(fresh),
        percent,
    })
}

impl Service {
    /// Rebuilds a slot onto a spare while its member stays in service.
    pub(crate) fn replace_by_spare(
        &self,
        name: &str,
        member: &str,
        dry_run: bool,
    ) -> Result<OutcomeJson, Failure> {
        let mut keys = self.keys(name);
        let running = self.find_running(name);
        keys.extend(
            running
                .iter()
                .flat_map(|running| self.own_pool_keys(running)),
        );
        let _change = self.changes.begin("strake replace", keys, dry_run)?;
        let running = self.running(name)?;
        let name = running.name();
        let name = name.as_str();
        let slot = slot_of(&running, member)?;
        let waits = |m: &&MemberStatus| m.state == MemberState::Spare && m.device.is_some();
        let status = running.status()?;
        let spare = status.members.iter().find(waits).and_then(|m| m.device);
        let shown = match spare {
            Some(spare) => Some(running.path(spare)?),
            None => self.pool_device(&running)?,
        };
        let none = || Failure::new(Code::NoSpare, format!("no spare of {name} waits"));
        let shown = shown.ok_or_else(none)?;
        if dry_run {
            match spare {
                Some(spare) => running.preflight(Command::ReplaceBySpare(slot, spare))?,
                None => may_take(&running, Path::new(&shown), Some(slot))?,
            }
            let what = format!("would rebuild slot {slot} onto the spare {shown}");
            return Ok(outcome(name, false, &what));
        }
        let (changed, shown) = match spare {
            Some(spare) => (
                running.command(Command::ReplaceBySpare(slot, spare))?,
                shown,
            ),
            None => (
                true,
                self.take_from_pool(&running, Some(slot), None)?
                    .ok_or_else(none)?,
            ),
        };
        let what = format!("slot {slot} is being rebuilt onto the spare {shown}");
        Ok(outcome(name, changed, &what))
    }

    /// Has a spare take the place of a worn member, where that is wanted. `drives` tells how worn
    /// the drives are that were asked just now, per cent.
    pub(crate) fn relieve_worn(&self, running: &Running, drives: &[(String, u8)]) {
        let Some(worn_from) = self.dir.placement(running.uuid).replace_at_wear() else {
            return;
        };
        if drives.iter().all(|(_, percent)| *percent < worn_from) {
            return;
        }
        match self.relieve(running, worn_from, drives) {
            Ok(None) => {}
            Ok(Some(relief)) => self.events.note(Happened {
                array: Some(running.name().to_string()),
                event: "worn_member_relieved",
                slot: Some(relief.slot),
                device: Some(relief.device),
                cause: Some(format!(
                    "{} % of its endurance are used, replace_at_wear is {worn_from}",
                    relief.percent
                )),
                effect: relief
                    .spare
                    .map(|spare| format!("the spare {spare} takes its place")),
                ..Happened::default()
            }),
            Err(failure) => tracing::warn!(%failure, "a worn member was not relieved"),
        }
    }

    /// The relief that was begun, if there was cause for one.
    fn relieve(
        &self,
        running: &Running,
        worn_from: u8,
        drives: &[(String, u8)],
    ) -> Result<Option<Relief>, Failure> {
        let _change = self.change_running(
            "the relief of a worn member",
            running,
            &self.own_pool_keys(running),
        )?;
        // Looked at now: to ask the drives takes a while.
        let Some(mut relief) = choose(&running.json()?, worn_from, drives) else {
            return Ok(None);
        };
        let slot = Slot(relief.slot);
        let Some(spare) = &relief.spare else {
            relief.spare = self.take_from_pool(running, Some(slot), Some(worn_from))?;
            return Ok(Some(relief).filter(|relief| relief.spare.is_some()));
        };
        let spare = running.present(spare)?;
        let spare = spare.filter(|spare| spare.state == MemberState::Spare);
        let Some(device) = spare.and_then(|spare| spare.device) else {
            return Ok(None);
        };
        let begun = running.command(Command::ReplaceBySpare(slot, device))?;
        Ok(begun.then_some(relief))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::MemberJson;

    fn member(slot: Option<u8>, device: &str, state: &str) -> MemberJson {
        MemberJson {
            slot,
            device: Some(device.to_owned()),
            state: state.to_owned(),
            ..MemberJson::default()
        }
    }

    fn array(spares: &[&str]) -> ArrayJson {
        let slots = [(0, "/a"), (1, "/b"), (2, "/c")];
        let members = slots.map(|(slot, device)| member(Some(slot), device, "in_sync"));
        ArrayJson {
            state: "optimal".to_owned(),
            members: members.to_vec(),
            spares: spares.iter().map(|d| member(None, d, "spare")).collect(),
            ..ArrayJson::default()
        }
    }

    fn drives(percents: &[(&str, u8)]) -> Vec<(String, u8)> {
        percents
            .iter()
            .map(|(d, p)| ((*d).to_owned(), *p))
            .collect()
    }

    #[test]
    fn the_most_worn_member_is_relieved_by_a_spare_that_is_not_worn() {
        let worn = drives(&[("/a", 95), ("/b", 97), ("/c", 10), ("/s", 91), ("/t", 3)]);
        let relief = choose(&array(&["/s", "/t"]), 90, &worn);
        let relief = relief.expect("one is worn, and one spare is not");
        assert_eq!((relief.slot, relief.device.as_str()), (1, "/b"));
        assert_eq!((relief.spare.as_deref(), relief.percent), (Some("/t"), 97));
        for spares in [&["/s"][..], &[]] {
            let relief = choose(&array(spares), 90, &worn).expect("one is worn");
            assert_eq!(
                relief.spare, None,
                "none that is not worn: the pool is asked"
            );
        }
        assert_eq!(choose(&array(&["/t"]), 98, &worn), None, "none is so worn");
    }

    #[test]
    fn drives_that_tell_nothing_and_arrays_that_are_not_whole_are_left_alone() {
        let worn = drives(&[("/a", 95)]);
        assert_eq!(choose(&array(&["/s"]), 90, &[]), None);
        assert!(
            choose(&array(&["/s"]), 90, &worn).is_some(),
            "spares need not tell"
        );
        let degraded = ArrayJson {
            state: "degraded".to_owned(),
            ..array(&["/s"])
        };
        assert_eq!(choose(&degraded, 90, &worn), None);
        let mut replacing = array(&["/s"]);
        replacing.members.push(member(Some(2), "/r", "rebuilding"));
        assert_eq!(choose(&replacing, 90, &worn), None);
    }
}

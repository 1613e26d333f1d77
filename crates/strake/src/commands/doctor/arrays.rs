//! Findings about arrays: their state, spares, scrubs, lists.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::api::UncheckedJson;
use crate::api::{ArrayJson, FindingJson, MemberJson, PoolJson, PoolUserJson, SettingsJson};
use crate::cli::output;
use crate::cli::stopped;
use crate::commands::doctor::Facts;
use crate::commands::shown_exit;
use crate::common::errors::Exit;
use crate::common::events::Severity;
use crate::common::quoted;
use crate::common::size;
use crate::view::stats::StatsJson;

pub(super) fn check(facts: &Facts) -> Vec<FindingJson> {
    let mut found = Vec::new();
    for array in &facts.arrays {
        let mut say = |check: &str, severity, what: String, cure: String| {
            found.push(FindingJson {
                check: check.to_owned(),
                severity,
                array: Some(array.name.clone()),
                found: what,
                cure,
                ..FindingJson::default()
            });
        };
        state(array, &mut say);
        let settings = facts.settings.iter().find(|(uuid, _)| *uuid == array.uuid);
        // One that has failed takes no spare and no setting.
        let takes = array.level != "0" && array.state != "failed";
        if let Some((_, settings)) = settings.filter(|_| takes) {
            spare(array, settings, facts, &mut say);
            if settings.scrub_schedule.as_deref() == Some("off") {
                let last = array.last_scrub.as_ref();
                let last = last.map_or("none is known of".to_owned(), |s| {
                    format!("the last one ended at {}", s.ended)
                });
                say(
                    "scrub-schedule",
                    Severity::Warning,
                    format!(
                        "no scrub starts by itself, and {last}: what rots is found when it is \
                         needed"
                    ),
                    format!("strake set {} scrub_schedule=monthly", array.name),
                );
            }
        }
        if let Some(stats) = facts.stats.iter().find(|stats| stats.uuid == array.uuid) {
            list(array, stats, &mut say);
        }
    }
    found.extend(facts.pools.iter().filter_map(empty_pool));
    found.extend(facts.arrays.iter().flat_map(readable));
    found
}

/// Members that are files which other users of the machine may read.
fn readable(array: &ArrayJson) -> Vec<FindingJson> {
    let finding = |member: &MemberJson| {
        let device = member.device.as_ref()?;
        let path = Path::new(device);
        let meta = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        let mode = meta.permissions().mode();
        (mode & 0o044 != 0).then(|| FindingJson {
            check: "readable".to_owned(),
            severity: Severity::Warning,
            array: Some(array.name.clone()),
            slot: member.slot,
            device: Some(device.clone()),
            found: format!(
                "it has mode {:04o}: other users of this machine can read the array's data",
                mode & 0o7777
            ),
            cure: format!("chmod 600 {}", quoted(path)),
        })
    };
    let members = array.members.iter().chain(&array.spares);
    members.filter_map(finding).collect()
}

/// Pools that seem to have nothing for an array, while devices that may be in them give no answer.
pub(super) fn unchecked(facts: &Facts) -> Vec<UncheckedJson> {
    let lacks = |pool: &&PoolJson| {
        let is_none = |user: &PoolUserJson| user.fitting == 0;
        !pool.silent.is_empty() && pool.arrays.iter().any(is_none)
    };
    let pools = facts.pools.iter().filter(lacks);
    let unchecked = pools.map(|pool| UncheckedJson {
        check: "pool".to_owned(),
        device: None,
        why: format!(
            "whether the pool {} has spares for its arrays is not known; no answer, perhaps in \
             it: {}",
            pool.name,
            pool.silent.join(", ")
        ),
    });
    unchecked.collect()
}

/// A pool that arrays count on and that has nothing to give.
fn empty_pool(pool: &PoolJson) -> Option<FindingJson> {
    if !pool.devices.is_empty() || pool.arrays.is_empty() || !pool.silent.is_empty() {
        return None;
    }
    let name = &pool.name;
    let arrays: Vec<&str> = pool.arrays.iter().map(|user| user.name.as_str()).collect();
    Some(FindingJson {
        check: "pool".to_owned(),
        severity: Severity::Warning,
        found: format!(
            "the pool {name} has no device, and these arrays count on it: {}",
            arrays.join(", ")
        ),
        cure: format!("strake pool create {name} DEV gives it devices again"),
        ..FindingJson::default()
    })
}

type Say<'a> = &'a mut dyn FnMut(&str, Severity, String, String);

/// The slots of members like this.
fn slots(array: &ArrayJson, wanted: impl Fn(&MemberJson) -> bool) -> String {
    let members = array.members.iter().filter(|m| wanted(m));
    let slots = members.filter_map(|m| m.slot);
    let slots: Vec<String> = slots.map(|slot| slot.to_string()).collect();
    slots.join(", ")
}

fn state(array: &ArrayJson, say: Say<'_>) {
    let name = &array.name;
    let look = format!("strake show {name} says what each slot has and had");
    match array.state.as_str() {
        "degraded" => say(
            "state",
            Severity::Warning,
            format!(
                "it is degraded: slots not in sync: {}",
                slots(array, |m| m.state != "in_sync")
            ),
            look,
        ),
        "failed" => {
            let what = "it has failed, and answers requests with errors".to_owned();
            let look = format!("strake events --array {name} says why; {look}");
            say("state", Severity::Critical, what, look);
        }
        "unresponsive" => {
            let what = "its threads do not answer".to_owned();
            let cure = "the log of the daemon says which thread hangs, and whether the kernel \
                        holds it: look at the drives then"
                .to_owned();
            say("state", Severity::Critical, what, cure);
        }
        _ if array.not_found => lost(array, say),
        _ if array.destroyed.is_some() => {
            let date = array.destroyed.as_deref().unwrap_or_default();
            let what = format!("it was destroyed here on {date}, and members of it are found");
            say(
                "state",
                Severity::Info,
                what,
                output::destroyed_cure(&array.uuid, array.startable != Some(false)),
            );
        }
        _ if shown_exit(array) == Exit::TooFew as u8 => {
            let what = format!("it is stopped, {}", stopped::too_few(array));
            let what = match &array.conflict {
                Some(why) => format!("{what}: {}", why.found),
                None => what,
            };
            let cure = match array.set_aside.is_empty() {
                _ if array.conflict.is_some() => {
                    let why = array.conflict.as_ref();
                    why.map_or_else(String::new, |why| why.cure.clone())
                }
                true => "strake scan says which were found; plug in the others".to_owned(),
                false => format!("strake start {name} says what keeps them from use"),
            };
            say("state", Severity::Critical, what, cure);
        }
        _ => {}
    }
    blocks(array, say);
    members(array, say);
}

/// No member of it is found.
fn lost(array: &ArrayJson, say: Say<'_>) {
    let name = &array.name;
    let had = array.members.iter().filter_map(|m| m.was.as_ref());
    let had: Vec<&str> = had.map(|was| was.device.as_str()).collect();
    let had = match had.is_empty() {
        true => String::new(),
        false => format!("; it had {}", had.join(", ")),
    };
    let what = format!("it was served here, and none of its members is found{had}");
    let look = "look at power, cables and controllers of its drives";
    let (what, cure) = match array.may_be_on.as_slice() {
        [] => (
            what,
            format!("{look}; strake forget {name}, where they are not to come back"),
        ),
        devices => (
            format!("{what}; they may be on {}", stopped::unread(devices)),
            format!("look at the kernel log and mend these devices, and {look}"),
        ),
    };
    say("state", Severity::Critical, what, cure);
}

/// Members that are doubted, full or slow, and devices that are not used.
fn members(array: &ArrayJson, say: Say<'_>) {
    let name = &array.name;
    if let Some((slots, since)) = output::without_space(array) {
        say(
            "full",
            Severity::Critical,
            format!(
                "slots that have no space for writes since {since}: {slots}; the writes wait, and \
                 nothing is lost"
            ),
            format!(
                "make room in the file systems of these files (strake show {name} names them), or \
                 extend the pool: the writes go on by themselves"
            ),
        );
    }
    let doubted = slots(array, |m| m.doubted.is_some());
    if !doubted.is_empty() {
        say(
            "doubted",
            Severity::Critical,
            format!(
                "slots with members that were emptied or are older images, and that the level \
                 needs: {doubted}; what is read from them may be wrong, and jobs wait"
            ),
            format!(
                "strake stop {name}; bring back what these drives held, and strake start {name}; \
                 or strake start {name} --force, which says what may be wrong"
            ),
        );
    }
    let slow = slots(array, |m| m.slow);
    if !slow.is_empty() {
        say(
            "slow",
            Severity::Warning,
            format!("slots that are far slower than the others: {slow}"),
            format!("strake show {name} --latency; strake replace {name} SLOT, with a spare"),
        );
    }
    for aside in &array.set_aside {
        say(
            "set-aside",
            Severity::Warning,
            aside.found.clone(),
            aside.cure.clone(),
        );
    }
}

/// What is lost, or not known to be right.
fn blocks(array: &ArrayJson, say: Say<'_>) {
    let name = &array.name;
    if array.unreadable_bytes > 0 {
        let bytes = size::bytes(array.unreadable_bytes);
        say(
            "unreadable",
            Severity::Critical,
            format!("{bytes} have lost their content and answer an error"),
            format!("strake show {name} says where; write them anew from a backup"),
        );
    }
    if array.undecided_bytes > 0 {
        let bytes = size::bytes(array.undecided_bytes);
        say(
            "undecided",
            Severity::Critical,
            format!("{bytes} have strips that do not agree"),
            format!("strake explain {name} LBA says what to do about one of these blocks"),
        );
    }
}

fn spare(array: &ArrayJson, settings: &SettingsJson, facts: &Facts, say: Say<'_>) {
    if !array.spares.is_empty() {
        return;
    }
    let name = &array.name;
    let pool = settings.pool.as_deref().filter(|pool| *pool != "none");
    let known = |pool: &str| facts.pools.iter().find(|one| one.name == pool);
    let is_empty = |pool: &str| known(pool).is_none_or(|pool| pool.devices.is_empty());
    let fitting = pool.and_then(|pool| {
        let pool = known(pool)?;
        let of = pool.arrays.iter().find(|user| user.name == *name)?;
        Some(of.fitting)
    });
    let silent = |pool: &str| known(pool).is_some_and(|pool| !pool.silent.is_empty());
    let (found, cure) = match (pool, fitting) {
        (_, Some(1..)) => return,
        (Some(pool), _) if silent(pool) => return,
        (Some(pool), _) => (
            format!("it has no spare, and its pool {pool} has no device that fits"),
            format!(
                "strake pool {} {pool} DEV",
                if is_empty(pool) { "create" } else { "add" }
            ),
        ),
        (None, _) => (
            "it has no spare and no pool: a member that is lost is not replaced until a user does \
             it"
            .to_owned(),
            format!("strake add {name} DEV, or strake set {name} pool=POOL"),
        ),
    };
    say("spare", Severity::Warning, found, cure);
}

fn list(array: &ArrayJson, stats: &StatsJson, say: Say<'_>) {
    let (used, most) = (stats.unreadable_ranges, stats.unreadable_ranges_max);
    if most == 0 || used * 10 < most * 8 {
        return;
    }
    say(
        "unreadable-list",
        Severity::Critical,
        format!(
            "the list of unreadable blocks has {used} of {most} places in use: where it is full, \
             the array fails"
        ),
        format!(
            "write these blocks anew from a backup (strake show {} --json has all of them)",
            array.name
        ),
    );
}

#[cfg(test)]
mod tests {
    use crate::api::{MemberJson, PoolDeviceJson, RangeJson};

    use super::*;

    fn facts(pool: &str, schedule: &str) -> Facts {
        let array = ArrayJson {
            name: "data".to_owned(),
            uuid: "u".to_owned(),
            level: "5".to_owned(),
            state: "optimal".to_owned(),
            ..ArrayJson::default()
        };
        let settings = SettingsJson {
            pool: Some(pool.to_owned()),
            scrub_schedule: Some(schedule.to_owned()),
            ..SettingsJson::default()
        };
        Facts {
            arrays: vec![array],
            settings: vec![("u".to_owned(), settings)],
            ..Facts::default()
        }
    }

    fn checks(facts: &Facts) -> Vec<String> {
        check(facts)
            .into_iter()
            .map(|finding| finding.check)
            .collect()
    }

    #[test]
    fn an_array_that_has_all_it_needs_has_no_findings() {
        let mut good = facts("none", "weekly");
        good.arrays[0].spares.push(MemberJson::default());
        assert_eq!(checks(&good), [""; 0]);
        let mut pooled = facts("p", "weekly");
        let user = |fitting| PoolUserJson {
            name: "data".to_owned(),
            fitting,
        };
        pooled.pools.push(PoolJson {
            name: "p".to_owned(),
            uuid: None,
            devices: vec![PoolDeviceJson {
                device: "/dev/q".to_owned(),
                uuid: "q".to_owned(),
                size_bytes: 1 << 30,
                block_bytes: 512,
                problem: None,
            }],
            arrays: vec![user(1)],
            silent: Vec::new(),
        });
        assert_eq!(checks(&pooled), [""; 0]);
        pooled.pools[0].arrays = vec![user(0)];
        assert_eq!(checks(&pooled), ["spare"], "its device does not fit");
        assert!(check(&pooled)[0].cure.contains("strake pool add p"));
        pooled.pools[0].devices.clear();
        assert_eq!(checks(&pooled), ["spare", "pool"]);
        assert!(check(&pooled)[0].cure.contains("strake pool create p"));
        assert!(unchecked(&pooled).is_empty());
        pooled.pools[0].silent = vec!["/dev/hangs".to_owned()];
        assert_eq!(checks(&pooled), [""; 0], "its devices may be there");
        assert!(unchecked(&pooled)[0].why.contains("/dev/hangs"));
        assert_eq!(checks(&facts("none", "off")), ["spare", "scrub-schedule"]);
        let mut stripe = facts("none", "off");
        stripe.arrays[0].level = "0".to_owned();
        assert_eq!(
            checks(&stripe),
            [""; 0],
            "there is nothing to compare or rebuild"
        );
    }

    #[test]
    fn what_is_lost_or_late_is_said_with_its_severity() {
        let mut facts = facts("none", "weekly");
        let array = &mut facts.arrays[0];
        array.spares.push(MemberJson::default());
        array.state = "degraded".to_owned();
        array.members = vec![MemberJson {
            slot: Some(4),
            state: "missing".to_owned(),
            ..MemberJson::default()
        }];
        array.unreadable_bytes = 4096;
        array.unreadable = vec![RangeJson {
            offset_bytes: 0,
            len_bytes: 4096,
        }];
        let stats = |used| StatsJson {
            uuid: "u".to_owned(),
            unreadable_ranges: used,
            unreadable_ranges_max: 10,
            ..StatsJson::default()
        };
        facts.stats = vec![stats(7)];
        assert_eq!(checks(&facts), ["state", "unreadable"]);
        facts.arrays[0].members[0].doubted = Some("emptied".to_owned());
        assert_eq!(checks(&facts), ["state", "unreadable", "doubted"]);
        assert_eq!(check(&facts)[2].severity, Severity::Critical);
        facts.arrays[0].members[0].doubted = None;
        assert!(check(&facts)[0].found.contains('4'));
        facts.stats = vec![stats(8)];
        assert_eq!(checks(&facts), ["state", "unreadable", "unreadable-list"]);
        assert_eq!(check(&facts)[2].severity, Severity::Critical);
    }
}

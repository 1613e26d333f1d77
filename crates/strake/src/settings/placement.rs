//! What an array may take of this machine: CPUs, threads, memory, requests under way; and what its
//! administrator wants done with worn drives, where spares come from, and whether it starts without
//! some members, here.
//!
//! It is the machine's, not the array's: kept beside the daemon (`state`), not on the members, and
//! it holds from the next start on, because threads and their memory are made then.
//!
//! Invariants: what is kept was valid here when it was said; an array starts all the same where its
//! CPUs are gone. Deliberately absent: binding threads and dividing memory (the runtime's).

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use strake_engine::Geometry;
use strake_engine::logs::shards_for;
use strake_format::Superblock;
use strake_runtime::{
    ExportKind, Placement, cpus_text, least_memory_bytes, parse_cpus, usable_cpus,
};

use crate::api::{CreateRequest, SettingsJson};
use crate::common::errors::too_little;
use crate::common::errors::{Code, Failure};
use crate::settings as ranges;
use crate::settings::NO_POOL;
use crate::settings::degraded::OwnRule;

/// More threads than this serve no array better.
pub(crate) const SHARDS_MAX: u16 = 64;
/// Threads of an array with configured CPUs, unless their number was configured, too.
const SHARDS_USUAL: usize = 4;
/// Per cent of the endurance at which drives are replaced unless it is said; there an event warns
/// of them, too.
const REPLACE_AT_WEAR: u8 = 90;

/// What an administrator said; the default says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PlacementRecord {
    /// CPUs; empty: chosen by where the drives are.
    pub(crate) cpus: Vec<usize>,
    /// Threads; `None`: by the number of CPUs.
    pub(crate) shards: Option<u16>,
    /// Buffer memory of all threads; `None`: as much for each as the daemon was told.
    pub(crate) memory_limit_bytes: Option<u64>,
    /// Requests under way at most.
    pub(crate) requests: Option<u32>,
    /// Per cent of its endurance at which a spare takes the place of a drive, 0: never; holds at
    /// once. `None`: as is usual.
    pub(crate) replace_at_wear: Option<u8>,
    /// `auto`, `ublk`, `nbd` or `none`, as was said last; holds at the next start.
    pub(crate) export: Option<String>,
    /// The pool that a spare is taken from where the array has none; holds at once.
    pub(crate) pool: Option<String>,
    /// Whether it is started by itself without missing members; `None`: by the daemon's rule.
    pub(crate) degraded: Option<OwnRule>,
}

/// What `create` or `set` says; zero and `auto` take back what was said.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted<'a> {
    cpus: Option<&'a str>,
    shards: Option<u16>,
    memory_limit_bytes: Option<u64>,
    requests: Option<u32>,
    replace_at_wear: Option<u8>,
    pool: Option<&'a str>,
    degraded: Option<&'a str>,
}

impl<'a> Wanted<'a> {
    /// What `create` asks for.
    pub(crate) fn of_create(request: &'a CreateRequest) -> Wanted<'a> {
        Wanted {
            cpus: request.cpus.as_deref(),
            shards: request.shards,
            memory_limit_bytes: request.memory_limit_bytes,
            requests: request.requests,
            replace_at_wear: None,
            pool: request.pool.as_deref(),
            degraded: request.degraded.as_deref(),
        }
    }

    /// What `set` asks for.
    pub(crate) fn of_settings(settings: &'a SettingsJson) -> Wanted<'a> {
        Wanted {
            cpus: settings.cpus.as_deref(),
            shards: settings.shards,
            memory_limit_bytes: settings.memory_limit_bytes,
            requests: settings.requests,
            replace_at_wear: settings.replace_at_wear,
            pool: settings.pool.as_deref(),
            degraded: settings.degraded.as_deref(),
        }
    }
}

impl PlacementRecord {
    /// The same with what is wanted.
    ///
    /// # Errors
    /// It cannot be had on this machine.
    pub(crate) fn with(&self, wanted: Wanted<'_>) -> Result<PlacementRecord, Failure> {
        let mut record = self.clone();
        if let Some(text) = wanted.cpus {
            record.cpus = cpus(text, &usable_cpus())?;
        }
        if let Some(shards) = wanted.shards {
            if shards > SHARDS_MAX {
                return Err(ranges::not_taken("shards", shards));
            }
            record.shards = Some(shards).filter(|&shards| shards > 0);
        }
        if let Some(bytes) = wanted.memory_limit_bytes {
            record.memory_limit_bytes = Some(bytes).filter(|&bytes| bytes > 0);
        }
        if let Some(requests) = wanted.requests {
            record.requests = Some(requests).filter(|&requests| requests > 0);
        }
        if let Some(percent) = wanted.replace_at_wear {
            record.replace_at_wear = Some(percent).filter(|&percent| percent != REPLACE_AT_WEAR);
        }
        if let Some(pool) = wanted.pool {
            record.pool = Some(pool)
                .filter(|&pool| pool != NO_POOL)
                .map(str::to_owned);
        }
        if let Some(text) = wanted.degraded {
            record.degraded = OwnRule::parse(text)?;
        }
        Ok(record)
    }

    /// Per cent of its endurance at which a spare takes the place of a drive; `None`: never.
    pub(crate) fn replace_at_wear(&self) -> Option<u8> {
        let percent = self.replace_at_wear.unwrap_or(REPLACE_AT_WEAR);
        Some(percent).filter(|&percent| percent > 0)
    }

    /// `auto`, or a list.
    pub(crate) fn cpus_text(&self) -> String {
        match self.cpus.is_empty() {
            true => "auto".to_owned(),
            false => cpus_text(&self.cpus),
        }
    }

    /// Threads, where `usual` are usual.
    pub(crate) fn shards(&self, usual: u16) -> u16 {
        let by_cpus = match self.cpus.len() {
            0 => usual,
            cpus => cpus.min(SHARDS_USUAL) as u16,
        };
        self.shards.unwrap_or(by_cpus)
    }

    /// As the runtime takes it.
    pub(crate) fn for_runtime(&self) -> Placement {
        Placement {
            cpus: self.cpus.clone(),
            memory_limit_bytes: self.memory_limit_bytes,
            requests: self.requests.and_then(NonZeroU32::new),
            promised: None,
        }
    }

    /// Is the memory enough for this array, and may this process have as much?
    ///
    /// # Errors
    /// It is not, or may not; how much would be.
    pub(crate) fn check_memory(
        &self,
        superblock: &Superblock,
        export: ExportKind,
        usual_shards: u16,
    ) -> Result<(), Failure> {
        let Some(limit_bytes) = self.memory_limit_bytes else {
            return Ok(());
        };
        let shards = shards_for(superblock, self.shards(usual_shards));
        let least_bytes = least_memory_bytes(&Geometry::of(superblock), export, shards);
        if limit_bytes < least_bytes {
            return Err(too_little(limit_bytes, least_bytes, shards));
        }
        Ok(strake_runtime::may_have(limit_bytes)?)
    }
}

fn cpus(text: &str, usable: &[usize]) -> Result<Vec<usize>, Failure> {
    if text == "auto" {
        return Ok(Vec::new());
    }
    let wrong = |found| Failure::new(Code::SettingInvalid, found);
    let cpus = parse_cpus(text).filter(|cpus| !cpus.is_empty());
    let cpus = cpus.ok_or_else(|| {
        wrong(format!("'{text}' is no list of CPUs")).cure("give a list like 0-3,8, or auto")
    })?;
    match cpus.iter().find(|cpu| !usable.contains(cpu)) {
        None => Ok(cpus),
        Some(cpu) => {
            let here = cpus_text(usable);
            let found = format!("CPU {cpu} is none of those that may be used here: {here}");
            Err(wrong(found).cure(format!("give some of {here}, or auto")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cpus_that_are_here_are_taken() {
        let here = [0, 1, 4];
        let of = |text| cpus(text, &here).map_err(|failure| failure.code);
        assert_eq!(of("auto"), Ok(vec![]));
        assert_eq!(of("0-1,4"), Ok(vec![0, 1, 4]));
        for wrong in ["", "x", "0-4", "7"] {
            assert_eq!(of(wrong), Err(Code::SettingInvalid), "{wrong}");
        }
    }

    #[test]
    fn what_was_said_is_kept_until_it_is_taken_back() {
        let first = PlacementRecord::default()
            .with(Wanted {
                shards: Some(3),
                requests: Some(9),
                ..Wanted::default()
            })
            .expect("it can be had");
        assert_eq!((first.shards(1), first.requests), (3, Some(9)));
        let second = first
            .with(Wanted {
                shards: Some(0),
                memory_limit_bytes: Some(1 << 30),
                ..Wanted::default()
            })
            .expect("it can be had");
        assert_eq!((second.shards(1), second.requests), (1, Some(9)));
        assert_eq!(second.for_runtime().memory_limit_bytes, Some(1 << 30));
        let many = Wanted {
            shards: Some(SHARDS_MAX + 1),
            ..Wanted::default()
        };
        assert!(second.with(many).is_err());
    }

    #[test]
    fn threads_are_as_many_as_the_cpus_that_were_given() {
        let of = |cpus: usize| {
            let record = PlacementRecord {
                cpus: (0..cpus).collect(),
                ..PlacementRecord::default()
            };
            record.shards(2)
        };
        assert_eq!((of(0), of(1), of(3), of(9)), (2, 1, 3, 4));
    }
}

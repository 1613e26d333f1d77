//! What arrays in service have counted, for programs that make rates of it.
//!
//! Invariants: all counts begin with the array's service, those of a member with its slot, and
//! never become less before one of these ends; `served_ns` is of a clock that does not jump, so
//! differences of counts by differences of it are rates. Counts are of this moment; how long
//! members took is as of the last second. Deliberately absent: rates (`commands::iostat`).

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strake_engine::Distribution;
use strake_engine::event::{MemberState, MemberStatus, Status};
use strake_engine::units::DeviceId;
use strake_format::unreadable;
use strake_runtime::{Counters, DeviceCounts, RequestLatencies};

use crate::api::JobJson;
use crate::view;
use crate::view::latency::{DistributionJson, distribution};

/// What an array in service has counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct StatsJson {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) state: String,
    /// How long it has been in service.
    pub(crate) served_ns: u64,
    /// Of its users' requests.
    pub(crate) reads: IoStatsJson,
    pub(crate) writes: IoStatsJson,
    /// Requests that were answered with an error.
    pub(crate) request_errors: u64,
    /// Writes to the stripe log, on all members.
    pub(crate) log_writes: u64,
    pub(crate) log_written_bytes: u64,
    /// Places of the list of unreadable blocks that are in use, and those that there are.
    pub(crate) unreadable_ranges: u64,
    pub(crate) unreadable_ranges_max: u64,
    pub(crate) members: Vec<MemberStatsJson>,
    /// How far its background jobs are.
    #[serde(default)]
    pub(crate) jobs: Vec<JobJson>,
}

/// What was counted of reads, or of writes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct IoStatsJson {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    pub(crate) latency: DistributionJson,
}

/// What was counted of the member in a slot: its I/Os for requests, jobs, log and metadata.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MemberStatsJson {
    pub(crate) slot: u8,
    pub(crate) device: Option<String>,
    pub(crate) state: String,
    pub(crate) reads: IoStatsJson,
    pub(crate) writes: IoStatsJson,
    /// Reads that the other members were asked for, too.
    pub(crate) hedged_reads: u64,
}

impl StatsJson {
    /// Calls members `failed` that the array lost and that keep their slots, as it has failed.
    pub(crate) fn mark_lost(&mut self, is_lost: impl Fn(u8, &str) -> bool) {
        for member in &mut self.members {
            let mut device = member.device.iter();
            if device.any(|device| is_lost(member.slot, device)) {
                member.state = view::member_state(MemberState::Failed).to_owned();
            }
        }
    }
}

/// An array in service.
pub(crate) fn of(
    status: &Status,
    served: Duration,
    counters: &Counters,
    requests: &RequestLatencies,
    device: impl Fn(DeviceId) -> (Option<PathBuf>, DeviceCounts),
) -> StatsJson {
    let io = |count, bytes, latency: &Distribution| IoStatsJson {
        count,
        bytes,
        latency: distribution(latency, None),
    };
    let member = |member: &MemberStatus| {
        let (path, counts) = member.device.map(&device).unwrap_or_default();
        let took = &member.latency;
        Some(MemberStatsJson {
            slot: member.slot?.0,
            device: path.map(|path| path.display().to_string()),
            state: view::member_state(member.state).to_owned(),
            reads: io(counts.reads, counts.read_bytes, &took.all_reads),
            writes: io(counts.writes, counts.written_bytes, &took.all_writes),
            hedged_reads: took.hedges.issued,
        })
    };
    let sb = &status.superblock;
    StatsJson {
        name: sb.name.as_str().to_owned(),
        uuid: sb.array.to_string(),
        state: view::array_state(status.state).to_owned(),
        served_ns: served.as_nanos() as u64,
        reads: io(counters.reads, counters.read_bytes, &requests.reads),
        writes: io(counters.writes, counters.written_bytes, &requests.writes),
        request_errors: counters.errors,
        log_writes: counters.log_writes,
        log_written_bytes: counters.log_written_bytes,
        unreadable_ranges: status.unreadable.len() as u64,
        unreadable_ranges_max: unreadable::capacity(sb.layout.unreadable_bytes) as u64,
        members: status.members.iter().filter_map(member).collect(),
        jobs: status.jobs.iter().map(view::job).collect(),
    }
}

//! How long an array's members took: all their reads and writes since they took their slots here,
//! by buckets.
//!
//! Invariants: buckets are cumulative, each bound is twice the one before, and they never become
//! less while a member serves (a member that comes back begins anew, as counters may). What took
//! longer than the last bound is in the count alone. Deliberately absent: quantiles of what was
//! long ago.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strake_engine::Distribution;
use strake_engine::event::{LatencyStatus, MemberStatus, Status};
use strake_engine::units::DeviceId;

use crate::api::LatencyJson;
use crate::view;

/// How long the members of an array took.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LatenciesJson {
    pub(crate) name: String,
    pub(crate) members: Vec<MemberLatenciesJson>,
}

/// How long a member took.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MemberLatenciesJson {
    pub(crate) slot: u8,
    pub(crate) device: Option<String>,
    pub(crate) reads: DistributionJson,
    pub(crate) writes: DistributionJson,
}

/// How long all reads took, or all writes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DistributionJson {
    /// How many there were.
    pub(crate) count: u64,
    /// All together.
    pub(crate) sum_ns: u64,
    /// The longest.
    pub(crate) max_ns: u64,
    /// Quantiles of the recent ones; none where there were none.
    pub(crate) recent: Option<LatencyJson>,
    /// How many took less than so long, from 8 µs to 17 s.
    pub(crate) buckets: Vec<BucketJson>,
}

/// A bucket and all below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BucketJson {
    pub(crate) below_ns: u64,
    pub(crate) count: u64,
}

pub(crate) fn distribution(all: &Distribution, recent: Option<LatencyJson>) -> DistributionJson {
    let bucket = |(below_ns, count)| BucketJson { below_ns, count };
    DistributionJson {
        count: all.count(),
        sum_ns: all.sum_ns,
        max_ns: all.max_ns,
        recent,
        buckets: all.below().map(bucket).collect(),
    }
}

/// The members in slots of a running array.
pub(crate) fn of(status: &Status, path: impl Fn(DeviceId) -> Option<PathBuf>) -> LatenciesJson {
    let member = |member: &MemberStatus| {
        let took: &LatencyStatus = &member.latency;
        Some(MemberLatenciesJson {
            slot: member.slot?.0,
            device: member
                .device
                .and_then(&path)
                .map(|p| p.display().to_string()),
            reads: distribution(&took.all_reads, took.read.map(view::latency)),
            writes: distribution(&took.all_writes, took.write.map(view::latency)),
        })
    };
    LatenciesJson {
        name: status.superblock.name.as_str().to_owned(),
        members: status.members.iter().filter_map(member).collect(),
    }
}

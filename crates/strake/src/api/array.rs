//! An array as it is shown: its shape, its members, where a block lies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::{AlertFailingJson, JobJson, MemberJson, ScrubJson, VolumesJson};
use crate::common::errors::FailureJson;

/// An array, as `show` tells it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ArrayJson {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) level: String,
    /// optimal, degraded, failed; unresponsive: in service, and its threads do not answer;
    /// stopping; stopped; unknown: another process holds members. Of the last four, all else is
    /// what the drives say.
    pub(crate) state: String,
    /// A daemon says so. False: none answers, and this is what the drives say.
    #[serde(default)]
    pub(crate) daemon: bool,
    /// Of a stopped array: whether enough members were found to start it; `null` of others.
    #[serde(default)]
    pub(crate) startable: Option<bool>,
    /// Of a stopped array: when it was destroyed on this machine, while members were away that are
    /// found now. It is not started but with force, whatever else is said of it.
    #[serde(default)]
    pub(crate) destroyed: Option<String>,
    /// Of the dry run of a start with force: what the start would wipe off members, each with its
    /// device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) would_wipe: Vec<String>,
    /// Of a stopped array that was served here: no member of it is found, so its level and size are
    /// not known.
    #[serde(default)]
    pub(crate) not_found: bool,
    /// Of such an array: devices that gave no answer or could not be read when it was looked for.
    /// Its members may be on them, so it is not known whether they are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) may_be_on: Vec<String>,
    /// Channels of alerts that are to tell of this array and do not deliver now.
    #[serde(default)]
    pub(crate) alerts_failing: Vec<AlertFailingJson>,
    pub(crate) size_bytes: u64,
    pub(crate) strip_bytes: u64,
    pub(crate) group_size: Option<u8>,
    /// Parities that were added to the array, each on a member of its own.
    #[serde(default)]
    pub(crate) fixed_parities: u8,
    pub(crate) block_bytes: u32,
    pub(crate) device: Option<String>,
    /// What serves it; `null` while it is stopped.
    #[serde(default)]
    pub(crate) export: Option<ExportJson>,
    /// What it has of the machine; `null` while it is stopped.
    #[serde(default)]
    pub(crate) placement: Option<PlacedJson>,
    /// Its data moves to another shape, or stands half-way; `null` where it does not.
    #[serde(default)]
    pub(crate) moving: Option<MovingJson>,
    pub(crate) write_hole: String,
    /// What background work gives way to; 0 for none.
    #[serde(default)]
    pub(crate) latency_target_us: u32,
    /// Whether it is started by itself without missing members: its setting `degraded`.
    #[serde(default)]
    pub(crate) degraded_start: String,
    pub(crate) epoch: u64,
    pub(crate) unwritten_bytes: u64,
    /// Bytes with lost content: they answer an error until they are written.
    pub(crate) unreadable_bytes: u64,
    /// Where, in order.
    pub(crate) unreadable: Vec<RangeJson>,
    /// Regions with strips that do not agree: nothing is repaired there.
    #[serde(default)]
    pub(crate) undecided_regions: u64,
    #[serde(default)]
    pub(crate) undecided_bytes: u64,
    /// Where, in order.
    #[serde(default)]
    pub(crate) undecided: Vec<RangeJson>,
    pub(crate) members: Vec<MemberJson>,
    pub(crate) spares: Vec<MemberJson>,
    /// Devices that carry members of it and are not used.
    #[serde(default)]
    pub(crate) set_aside: Vec<SetAsideJson>,
    /// Of a stopped array: how its members contradict each other (two devices carry one member, two
    /// parts were started apart), and what starts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) conflict: Option<FailureJson>,
    pub(crate) jobs: Vec<JobJson>,
    /// What the last scrub that came to its end found.
    pub(crate) last_scrub: Option<ScrubJson>,
    /// Its volumes, if it is carved.
    #[serde(flatten)]
    pub(crate) volumes: VolumesJson,
}

impl ArrayJson {
    /// All that have a device of the array, or had one.
    pub(crate) fn members_and_spares(&self) -> impl Iterator<Item = &MemberJson> {
        self.members.iter().chain(&self.spares)
    }
}

/// Data that moves to another shape, by a superblock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MovingJson {
    /// Data columns of a row, all groups, that it moves from, and to.
    pub(crate) from_columns: u64,
    pub(crate) to_columns: u64,
    /// Members of a group likewise, where it has groups.
    #[serde(default)]
    pub(crate) from_group_size: Option<u8>,
    #[serde(default)]
    pub(crate) to_group_size: Option<u8>,
    /// Parities on members of their own likewise.
    #[serde(default)]
    pub(crate) from_fixed_parities: u8,
    #[serde(default)]
    pub(crate) to_fixed_parities: u8,
    /// Strips likewise.
    pub(crate) from_strip_bytes: u64,
    pub(crate) to_strip_bytes: u64,
    /// What of the block device lies in the new shape.
    pub(crate) moved_bytes: u64,
    pub(crate) total_bytes: u64,
    /// By `restripe --stop`, until `restripe --continue`.
    pub(crate) stopped: bool,
}

/// What serves the block device, and how.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ExportJson {
    /// `ublk`, `nbd` or `none`.
    pub(crate) kind: String,
    /// Of ublk: how data travels, `auto-buffer`, `user-copy` or `copy`, with `batch-` before it
    /// where requests come in batches.
    pub(crate) mode: Option<String>,
    /// Of ublk.
    pub(crate) queues: Option<u16>,
    /// Of ublk: requests that each queue has in flight at most.
    pub(crate) depth: Option<u16>,
    /// Of ublk: what the kernel's driver can do.
    pub(crate) kernel_features: Option<Vec<String>>,
}

/// What an array in service has of the machine.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PlacedJson {
    pub(crate) shards: u16,
    /// CPUs that its threads are bound to, as `0-3,8`; `null` where they are not.
    pub(crate) cpus: Option<String>,
    /// NUMA nodes of the members; empty where the machine does not tell.
    pub(crate) numa_nodes: Vec<u32>,
    /// Of buffers.
    pub(crate) memory_bytes: u64,
    /// Under way at most; `null` where the export alone bounds them.
    pub(crate) requests: Option<u32>,
}

/// Bytes of the block device.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RangeJson {
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u64,
}

/// A device that carries a member of an array and is not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SetAsideJson {
    pub(crate) device: String,
    pub(crate) slot: Option<u8>,
    /// The code of the error that says why, or the cause of an event.
    pub(crate) code: String,
    pub(crate) found: String,
    /// What to do.
    #[serde(default)]
    pub(crate) cure: String,
}

/// Where a block lies.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ExplainJson {
    pub(crate) name: String,
    pub(crate) lba: u64,
    pub(crate) block_bytes: u64,
    pub(crate) offset_bytes: u64,
    pub(crate) stripe: u64,
    pub(crate) group: u64,
    pub(crate) row: u64,
    pub(crate) column: u64,
    pub(crate) region: u32,
    /// `unwritten`, `clean`, `dirty`, `need_sync`, or `null` where no member tells.
    pub(crate) region_state: Option<String>,
    /// Its content is lost: it answers an error until it is written.
    pub(crate) unreadable: bool,
    /// Its region was rebuilt from strips that do not agree: nothing is repaired there.
    #[serde(default)]
    pub(crate) undecided: bool,
    pub(crate) data: PlaceJson,
    /// P, Q, R …, or the copies of a mirror.
    pub(crate) redundancy: Vec<PlaceJson>,
}

/// A place on a member.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PlaceJson {
    /// `D`, `P`, `Q`, `R`, `P3` …, or `copy`.
    pub(crate) kind: String,
    pub(crate) slot: u8,
    pub(crate) device: Option<String>,
    pub(crate) member_state: String,
    pub(crate) member_offset_bytes: u64,
}

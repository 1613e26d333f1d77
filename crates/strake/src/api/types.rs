//! The JSON shapes of the API and of `--json`, as cli.md has them.
//!
//! Invariants: units stand last in every name; what is not known is `null`, never 0 or an empty
//! text; new fields are only ever added. Deliberately absent: types of the engine (see `view`).

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// An array, as `show` tells it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ArrayJson {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) level: String,
    pub(crate) state: String,
    /// A daemon says so. False: none answers, and this is what the drives say.
    #[serde(default)]
    pub(crate) daemon: bool,
    /// Of a stopped array: whether enough members were found to start it; `null` of others.
    #[serde(default)]
    pub(crate) startable: Option<bool>,
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
    /// Bytes whose content is lost: they answer an error until they are written.
    pub(crate) unreadable_bytes: u64,
    /// Where, in order.
    pub(crate) unreadable: Vec<RangeJson>,
    /// Regions that were rebuilt from strips that do not agree: nothing is repaired there.
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
    pub(crate) jobs: Vec<JobJson>,
    /// What the last scrub that came to its end found.
    pub(crate) last_scrub: Option<ScrubJson>,
    /// Its volumes, if it is carved.
    #[serde(flatten)]
    pub(crate) volumes: VolumesJson,
}

/// Data that moves to another shape, by a superblock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// The volumes of an array.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct VolumesJson {
    /// It has volumes, or is to have, and no block device of its own.
    #[serde(default)]
    pub(crate) carved: bool,
    /// Neither copy of their table can be believed.
    #[serde(default, rename = "volume_table_damaged")]
    pub(crate) damaged: bool,
    /// What volumes are given room in; `null` while it is stopped.
    #[serde(default, rename = "volume_unit_bytes")]
    pub(crate) unit_bytes: Option<u64>,
    /// What volumes can still be given; `null` while it is stopped.
    #[serde(default, rename = "volume_free_bytes")]
    pub(crate) free_bytes: Option<u64>,
    /// Empty while it is stopped.
    #[serde(default)]
    pub(crate) volumes: Vec<VolumeJson>,
}

/// A volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct VolumeJson {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) size_bytes: u64,
    /// What it has of the array: whole units.
    pub(crate) allocated_bytes: u64,
    /// Pieces that it lies in.
    pub(crate) extents: u64,
    /// RFC 3339.
    pub(crate) created: String,
    pub(crate) device: Option<String>,
}

/// Body of the request that makes a volume.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeRequest {
    pub(crate) name: String,
    /// All that is free, where there is none.
    #[serde(default)]
    pub(crate) size_bytes: Option<u64>,
    /// Although the array has data.
    #[serde(default)]
    pub(crate) force: bool,
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// A volume that was made, or would be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct VolumeCreatedJson {
    pub(crate) dry_run: bool,
    /// The array was one block device until now.
    pub(crate) carves: bool,
    #[serde(flatten)]
    pub(crate) volume: VolumeJson,
}

/// Body of the request that changes a volume: its size or its name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeChange {
    #[serde(default)]
    pub(crate) size_bytes: Option<u64>,
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// What lies behind a new end is given up.
    #[serde(default)]
    pub(crate) shrink: bool,
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// Body of the request that deletes a volume.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeDeletion {
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// A pool of spares.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PoolJson {
    pub(crate) name: String,
    /// `null` where no device of it was found.
    pub(crate) uuid: Option<String>,
    pub(crate) devices: Vec<PoolDeviceJson>,
    /// Those that may take from it.
    pub(crate) arrays: Vec<PoolUserJson>,
}

/// A device in a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PoolDeviceJson {
    pub(crate) device: String,
    pub(crate) uuid: String,
    pub(crate) size_bytes: u64,
    pub(crate) block_bytes: u32,
}

/// An array that may take from a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PoolUserJson {
    pub(crate) name: String,
    /// Devices of the pool that can be a spare of it.
    pub(crate) fitting: usize,
}

/// Body of the requests that change a pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PoolRequest {
    #[serde(default)]
    pub(crate) devices: Vec<PathBuf>,
    /// All that the pool has (`remove`): the pool itself.
    #[serde(default)]
    pub(crate) all: bool,
    #[serde(default)]
    pub(crate) force: bool,
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// What was done to a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PoolDone {
    pub(crate) pool: String,
    pub(crate) changed: bool,
    pub(crate) what: String,
}

/// What serves the block device, and how.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ExportJson {
    /// `ublk`, `nbd` or `none`.
    pub(crate) kind: String,
    /// Of ublk: how data travels, `auto-buffer`, `user-copy` or `copy`, with `batch-` before it where
    /// requests come in batches.
    pub(crate) mode: Option<String>,
    /// Of ublk.
    pub(crate) queues: Option<u16>,
    /// Of ublk: requests that each queue has in flight at most.
    pub(crate) depth: Option<u16>,
    /// Of ublk: what the kernel's driver can do.
    pub(crate) kernel_features: Option<Vec<String>>,
}

/// What an array in service has of the machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
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

/// What a scrub found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ScrubJson {
    /// It rewrote what was named as wrong.
    pub(crate) repair: bool,
    /// When it began and ended, RFC 3339.
    pub(crate) begun: String,
    pub(crate) ended: String,
    pub(crate) inconsistent_stripes: u64,
    /// Those of them in which it is known which member was wrong.
    pub(crate) located_stripes: u64,
    /// Those of them that are consistent again.
    pub(crate) repaired_stripes: u64,
    /// Stripes of which too few strips could be read.
    pub(crate) unreadable_stripes: u64,
}

/// Bytes of the block device.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct RangeJson {
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u64,
}

/// A member or spare.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct MemberJson {
    pub(crate) slot: Option<u8>,
    pub(crate) device: Option<String>,
    pub(crate) uuid: Option<String>,
    pub(crate) state: String,
    pub(crate) read_errors: u64,
    pub(crate) write_errors: u64,
    /// Pieces of its strips that scrubs found wrong.
    pub(crate) mismatches: u64,
    #[serde(default)]
    pub(crate) retries: RetriesJson,
    /// It has been far slower than the others for a while.
    #[serde(default)]
    pub(crate) slow: bool,
    /// Of its recent reads; none where it was not read from.
    #[serde(default)]
    pub(crate) read_latency: Option<LatencyJson>,
    #[serde(default)]
    pub(crate) write_latency: Option<LatencyJson>,
    #[serde(default)]
    pub(crate) hedged_reads: HedgedJson,
    /// It is missing, and a spare takes its place after so many seconds.
    #[serde(default)]
    pub(crate) spare_in_s: Option<u64>,
    /// The device that left the slot last; `null` where none did, or it is back.
    #[serde(default)]
    pub(crate) was: Option<WasJson>,
}

/// A device that was in a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WasJson {
    pub(crate) device: String,
    pub(crate) model: Option<String>,
    pub(crate) serial: Option<String>,
    /// RFC 3339; `null` where nothing saw it leave.
    pub(crate) until: Option<String>,
    /// Why it left, as the event says.
    pub(crate) cause: Option<String>,
    /// What the kernel answered to the I/O that failed.
    pub(crate) errno: Option<i32>,
}

/// What became of a member's I/Os that did not get through at once, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RetriesJson {
    /// Tries after the first.
    pub(crate) tries: u64,
    /// I/Os that succeeded in the end.
    pub(crate) got_through: u64,
    /// I/Os that did not.
    pub(crate) failed: u64,
    /// Resets of the drive, or of what it hangs on, that cost nothing.
    pub(crate) resets: u64,
}

/// Quantiles of a member's recent latencies, microseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct LatencyJson {
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) p999_us: u64,
}

/// What became of reads that a member did not answer in time, since the start.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct HedgedJson {
    /// Asked of the others, too.
    pub(crate) issued: u64,
    /// Answered by the others.
    pub(crate) won: u64,
    /// Answered by the member after all.
    pub(crate) lost: u64,
    /// Left waiting, because too many had been hedged.
    pub(crate) refused: u64,
}

/// A background job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JobJson {
    pub(crate) kind: String,
    pub(crate) slot: Option<u8>,
    /// Only what was written while members were away is rebuilt.
    #[serde(default)]
    pub(crate) partial: bool,
    pub(crate) done_bytes: u64,
    pub(crate) total_bytes: u64,
    pub(crate) rate_bytes_per_s: u64,
    pub(crate) eta_s: Option<u64>,
    pub(crate) paused: bool,
    /// Why it is paused: `asked`, `members_missing`, `resync`, `membership`, `unreadable`,
    /// `unreadable_list_full` or `inconsistent`; `null` where it is not, or that is not known.
    #[serde(default)]
    pub(crate) paused_by: Option<String>,
    /// `none`, `priority` or `latency`: what makes it slower than it could be.
    #[serde(default)]
    pub(crate) held_back_by: String,
    /// The p99 of reads and writes beside it in the last seconds.
    #[serde(default)]
    pub(crate) foreground_p99_us: Option<u64>,
    pub(crate) inconsistent_stripes: u64,
    pub(crate) repaired_stripes: u64,
}

/// How an array's drives wear.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WearJson {
    pub(crate) name: String,
    pub(crate) members: Vec<WearMemberJson>,
}

/// How a drive wears, as it reports; `null` is what it does not tell.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct WearMemberJson {
    pub(crate) slot: Option<u8>,
    pub(crate) device: Option<String>,
    /// Why nothing is told.
    pub(crate) reason: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) serial: Option<String>,
    pub(crate) warnings: Vec<String>,
    pub(crate) temperature_c: Option<i32>,
    pub(crate) available_spare_percent: Option<u8>,
    /// Of its endurance; may exceed 100.
    pub(crate) percentage_used: Option<u8>,
    pub(crate) power_on_hours: Option<u64>,
    pub(crate) unsafe_shutdowns: Option<u64>,
    pub(crate) media_errors: Option<u64>,
    /// Since the drive was made.
    pub(crate) host_written_bytes: Option<u64>,
    pub(crate) media_written_bytes: Option<u64>,
    /// The log that told: `ocp`, `solidigm` or `endurance_group`.
    pub(crate) media_from: Option<String>,
    /// Media bytes for each host byte, since the drive was made.
    pub(crate) write_amplification: Option<f64>,
    /// I/Os below the drive's write granularity, since it was made.
    pub(crate) unaligned_ios: Option<u64>,
    /// RFC 3339: where what follows begins.
    pub(crate) since: Option<String>,
    pub(crate) host_written_bytes_since: Option<u64>,
    pub(crate) media_written_bytes_since: Option<u64>,
    pub(crate) write_amplification_since: Option<f64>,
}

/// What `create` asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateRequest {
    pub(crate) name: String,
    pub(crate) level: String,
    #[serde(default)]
    pub(crate) strip_bytes: Option<u64>,
    #[serde(default)]
    pub(crate) group_size: Option<u8>,
    #[serde(default)]
    pub(crate) write_hole: Option<String>,
    #[serde(default)]
    pub(crate) latency_target_us: Option<u32>,
    /// As `0-3,8`, or `auto`.
    #[serde(default)]
    pub(crate) cpus: Option<String>,
    /// 0: by the number of CPUs.
    #[serde(default)]
    pub(crate) shards: Option<u16>,
    /// 0: none.
    #[serde(default)]
    pub(crate) memory_limit_bytes: Option<u64>,
    /// 0: no limit.
    #[serde(default)]
    pub(crate) requests: Option<u32>,
    /// Where spares are taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pool: Option<String>,
    /// `allow`, `never`, `wait`, a time like `30s`, or `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) degraded: Option<String>,
    #[serde(default)]
    pub(crate) init: Option<String>,
    #[serde(default)]
    pub(crate) block_bytes: Option<u32>,
    pub(crate) devices: Vec<PathBuf>,
    #[serde(default)]
    pub(crate) spares: Vec<PathBuf>,
    #[serde(default)]
    pub(crate) export: Option<String>,
    #[serde(default)]
    pub(crate) force: bool,
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// What `start` asks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StartRequest {
    pub(crate) export: Option<String>,
    pub(crate) force: bool,
    /// Only these devices; empty: all that are found.
    pub(crate) devices: Vec<PathBuf>,
    pub(crate) dry_run: bool,
    /// Not without missing members, if its setting `degraded` is `never`: it is not asked for by name.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) by_rule: bool,
}

/// What `stop` and the request that destroys an array may ask; nothing at all says the same as the default.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DryRequest {
    pub(crate) dry_run: bool,
}

/// What `import` asks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ImportRequest {
    /// The name that it is to have here; its own unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    pub(crate) export: Option<String>,
    pub(crate) force: bool,
    /// Only these devices; empty: all that are found.
    pub(crate) devices: Vec<PathBuf>,
    pub(crate) dry_run: bool,
}

/// What `fail` and `remove` ask.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemberRequest {
    /// A slot number or a device.
    pub(crate) member: String,
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// The scrubs of an array.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ScrubsJson {
    pub(crate) name: String,
    /// The one that is not over.
    pub(crate) now: Option<JobJson>,
    /// The last ten that came to their end, the newest first.
    pub(crate) past: Vec<ScrubJson>,
}

/// Body of the request that cleans devices.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CleanRequest {
    pub(crate) devices: Vec<PathBuf>,
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// Devices that were cleaned, or would be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CleanedJson {
    pub(crate) dry_run: bool,
    pub(crate) devices: Vec<CleanedDeviceJson>,
}

/// One of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CleanedDeviceJson {
    pub(crate) device: String,
    /// What it was, in words.
    pub(crate) was: String,
}

/// Body of `locate`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LocateRequest {
    /// A slot number or a device.
    pub(crate) member: String,
    pub(crate) on: bool,
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// Body of the request that switches the light of a drive, whatever it is used for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DriveLocateRequest {
    pub(crate) device: PathBuf,
    pub(crate) on: bool,
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// What was done to a drive.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DriveDone {
    pub(crate) device: String,
    pub(crate) changed: bool,
    pub(crate) what: String,
}

/// What `reset` asks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ResetRequest {
    /// A slot number or a device; absent for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) member: Option<String>,
    pub(crate) dry_run: bool,
}

/// What `rename` asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenameRequest {
    /// The new name.
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// What `add` and `replace` ask.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeviceRequest {
    /// The member to replace: a slot number or a device. Absent for `add`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) member: Option<String>,
    /// Absent: a spare, of `replace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<PathBuf>,
    #[serde(default)]
    pub(crate) force: bool,
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// What `grow` asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrowRequest {
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// What `restripe` asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RestripeRequest {
    /// The level to become.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) level: Option<String>,
    /// Instead of that: `add` data columns, `stop` the data that moves, or `continue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) action: Option<String>,
    /// One for each parity, or data column, more.
    #[serde(default)]
    pub(crate) devices: Vec<PathBuf>,
    /// Another strip: with `add`, a mirror's level, other groups, or alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) strip_bytes: Option<u64>,
    /// Members of a group, of a level with groups: of an array that gets groups, or others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) group_size: Option<u8>,
    /// Parities that were added rotate from now on.
    #[serde(default)]
    pub(crate) rotate: bool,
    #[serde(default)]
    pub(crate) force: bool,
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// What `rebuild`, `init` and `scrub` ask.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobRequest {
    /// `start` or `stop`; of a scrub also `pause` and `accept` (what is read in undecided regions is right).
    pub(crate) action: String,
    /// Of a scrub that starts: rewrite strips that are named as wrong.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) repair: bool,
    /// Of a scrub that starts: pause at the first stripe that is inconsistent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) halt: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) dry_run: bool,
}

/// Settings: as read, and (each optional) as changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SettingsJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rebuild_priority: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resync_priority: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scrub_priority: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) restripe_priority: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) init_priority: Option<u8>,
    /// 0: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) latency_target_us: Option<u32>,
    /// 0: spares wait for nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) spare_delay_ms: Option<u32>,
    /// `off`, `continuous`, `daily`, `weekly` or `monthly`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scrub_schedule: Option<String>,
    /// When on such a day: `HH:MM`, in the machine's time zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scrub_at: Option<String>,
    /// What these scrubs do with what they find: `report`, `repair` or `halt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scrub_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) read_error_threshold: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) write_hole: Option<String>,
    /// `on` or `off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hedged_reads: Option<String>,
    /// As `0-3,8`, or `auto`. This and what follows hold from the next start on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpus: Option<String>,
    /// 0: by the number of CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shards: Option<u16>,
    /// 0: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory_limit_bytes: Option<u64>,
    /// 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) requests: Option<u32>,
    /// Per cent of its endurance at which a drive is replaced by a spare; 0: not for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replace_at_wear: Option<u8>,
    /// The pool that spares are taken from; `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pool: Option<String>,
    /// Whether it is started by itself without missing members: `allow`, `never`, `wait`, a time like
    /// `30s`, or `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) degraded: Option<String>,
    /// Of a change: only check.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) dry_run: bool,
}

impl SettingsJson {
    /// What the members carry of it.
    fn carried(&self) -> SettingsJson {
        SettingsJson {
            cpus: None,
            shards: None,
            memory_limit_bytes: None,
            requests: None,
            replace_at_wear: None,
            pool: None,
            degraded: None,
            ..self.clone()
        }
    }
    /// Is anything said of what the array may take of the machine?
    pub(crate) fn places(&self) -> bool {
        *self != self.carried()
    }
    /// Is nothing else said?
    pub(crate) fn only_places(&self) -> bool {
        self.places() && self.carried() == SettingsJson::default()
    }
}

/// What a verb changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OutcomeJson {
    pub(crate) array: String,
    pub(crate) changed: bool,
    pub(crate) what: String,
    /// What is good to know, though nothing is wrong.
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    /// With `--wait`, how the job ended: `done`, `paused`, `stopped` or `not_begun`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<String>,
    /// With `--wait`, what the scrub found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scrub: Option<ScrubJson>,
}

impl OutcomeJson {
    /// The same with these notes.
    pub(crate) fn noted(self, notes: &[String]) -> OutcomeJson {
        OutcomeJson {
            notes: notes.to_vec(),
            ..self
        }
    }
}

/// What `create` made, or would make.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CreatedJson {
    pub(crate) dry_run: bool,
    /// True when a daemon serves it now.
    pub(crate) serving: bool,
    /// What such a shape costs, where it costs more than it need.
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    #[serde(flatten)]
    pub(crate) array: ArrayJson,
}

/// An array found on drives.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ScanJson {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) level: String,
    pub(crate) members: u8,
    /// Members and spares that were found, and can be used.
    pub(crate) found: usize,
    /// Members of them.
    #[serde(default)]
    pub(crate) members_found: usize,
    /// Spares that it has.
    #[serde(default)]
    pub(crate) spares: usize,
    #[serde(default)]
    pub(crate) spares_found: usize,
    /// `complete`, `degraded` (startable), `incomplete` or `conflicting`.
    pub(crate) state: String,
    /// Why it cannot be started.
    pub(crate) reason: Option<String>,
    /// When it was destroyed on this machine, while this member was away.
    #[serde(default)]
    pub(crate) destroyed: Option<String>,
    /// Its data moves to another shape, or stands half-way; `null` where it does not.
    #[serde(default)]
    pub(crate) moving: Option<MovingJson>,
    pub(crate) devices: Vec<ScanDeviceJson>,
}

/// A device of an array found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ScanDeviceJson {
    pub(crate) device: String,
    pub(crate) uuid: String,
    pub(crate) slot: Option<u8>,
    /// `in_sync`, `rebuilding`, `stale`, `spare`, `stray`, or `set_aside` where it cannot be used as it is.
    pub(crate) state: String,
    pub(crate) epoch: u64,
    /// Why it is set aside.
    #[serde(default)]
    pub(crate) problem: Option<String>,
    /// Other names of the same drive.
    #[serde(default)]
    pub(crate) also: Vec<String>,
}

/// A device that carries a member of an array and is not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// One member, offline.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ExamineJson {
    pub(crate) array: ExamineArrayJson,
    pub(crate) member_uuid: String,
    pub(crate) slot: Option<u8>,
    pub(crate) data_offset_bytes: u64,
    pub(crate) data_bytes: u64,
    pub(crate) epoch: u64,
    pub(crate) generation: u64,
    pub(crate) clean: bool,
    pub(crate) copies: Vec<CopyJson>,
    pub(crate) slots: Vec<SlotJson>,
    pub(crate) regions: RegionsJson,
    /// Bytes of the block device whose content is lost; `null` where the member has no valid list.
    pub(crate) unreadable: Option<Vec<RangeJson>>,
}

/// What a member says of its array.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ExamineArrayJson {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) level: String,
    pub(crate) members: u8,
    pub(crate) strip_bytes: u32,
    pub(crate) group_size: Option<u8>,
    pub(crate) block_bytes: u32,
    pub(crate) write_hole: String,
    pub(crate) created_unix_s: u64,
    /// Its data moves to another shape, or stands half-way; `null` where it does not.
    #[serde(default)]
    pub(crate) moving: Option<MovingJson>,
}

/// A superblock copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CopyJson {
    pub(crate) offset_bytes: u64,
    pub(crate) valid: bool,
}

/// A row of the member's table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SlotJson {
    pub(crate) slot: u8,
    pub(crate) uuid: Option<String>,
    pub(crate) state: String,
    pub(crate) since_epoch: u64,
}

/// Regions of the member's map, counted by state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RegionsJson {
    pub(crate) unwritten: u64,
    pub(crate) clean: u64,
    pub(crate) dirty: u64,
    pub(crate) need_sync: u64,
    pub(crate) damaged_pages: u64,
}

/// Where a block lies.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PlaceJson {
    /// `D`, `P`, `Q`, `R`, `P3` …, or `copy`.
    pub(crate) kind: String,
    pub(crate) slot: u8,
    pub(crate) device: Option<String>,
    pub(crate) member_state: String,
    pub(crate) member_offset_bytes: u64,
}

/// Something that happened.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct EventJson {
    /// Grows by one with each event of this daemon.
    pub(crate) sequence: u64,
    /// RFC 3339, UTC.
    pub(crate) time: String,
    pub(crate) array: Option<String>,
    /// What happened, in snake_case.
    pub(crate) event: String,
    pub(crate) slot: Option<u8>,
    pub(crate) device: Option<String>,
    /// Why.
    pub(crate) cause: Option<String>,
    /// What came of it.
    pub(crate) effect: Option<String>,
    /// Of an I/O that failed: what the kernel answered.
    #[serde(default)]
    pub(crate) errno: Option<i32>,
    /// Of a finished resync or scrub.
    pub(crate) inconsistent_stripes: Option<u64>,
    /// Of a finished resync or scrub: those that are consistent again.
    #[serde(default)]
    pub(crate) repaired_stripes: Option<u64>,
}

/// The daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct VersionJson {
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) dir: PathBuf,
}

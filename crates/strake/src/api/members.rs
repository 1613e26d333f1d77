//! Members: what is counted of them, and how their drives wear.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A member or spare.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
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
    /// Why it would be out, of a member that the level needs: its superblocks speak against it, and
    /// what is read from it may be wrong.
    #[serde(default)]
    pub(crate) doubted: Option<String>,
    /// There is no space for writes to it (a full file system or pool), and they have waited since
    /// then (RFC 3339); `null` where none waits.
    #[serde(default)]
    pub(crate) full_since: Option<String>,
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// Of a stopped array: what lies now on the device at that path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) holds: Option<String>,
}

/// What became of a member's I/Os that did not get through at once, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LatencyJson {
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) p999_us: u64,
}

/// What became of reads that a member did not answer in time, since the start.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "HedgedReads")]
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

/// How an array's drives wear.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct WearJson {
    pub(crate) name: String,
    pub(crate) members: Vec<WearMemberJson>,
}

/// How a drive wears, as it reports; `null` is what it does not tell.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
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

//! Background jobs and what scrubs found.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a scrub found.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
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

/// A background job.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
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
    /// `unreadable_list_full`, `inconsistent` or `member_doubted`; `null` where it is not, or that
    /// is not known.
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

/// The scrubs of an array.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ScrubsJson {
    pub(crate) name: String,
    /// The one that is not over.
    pub(crate) now: Option<JobJson>,
    /// The last ten that came to their end, the newest first.
    pub(crate) past: Vec<ScrubJson>,
}

//! What changes an array, and what comes of it.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::{ArrayJson, ScrubJson};

/// What `create` asks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
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

impl CreateRequest {
    /// Members, then spares.
    pub(crate) fn all_devices(&self) -> Vec<PathBuf> {
        self.devices.iter().chain(&self.spares).cloned().collect()
    }
}

/// What `start` asks.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StartRequest {
    pub(crate) export: Option<String>,
    pub(crate) force: bool,
    /// Only these devices; empty: all that are found.
    pub(crate) devices: Vec<PathBuf>,
    pub(crate) dry_run: bool,
    /// Not without missing members, if its setting `degraded` is `never`: it is not asked for by
    /// name.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) by_rule: bool,
}

/// What `stop` and the request that destroys an array may ask; nothing at all says the same as the
/// default.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DryRequest {
    pub(crate) dry_run: bool,
}

/// What `import` asks.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemberRequest {
    /// A slot number or a device.
    pub(crate) member: String,
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// What `reset` asks.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ResetRequest {
    /// A slot number or a device; absent for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) member: Option<String>,
    pub(crate) dry_run: bool,
}

/// What `rename` asks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenameRequest {
    /// The new name.
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// What `add` and `replace` ask.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrowRequest {
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// What `restripe` asks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobRequest {
    /// `start` or `stop`; of a scrub also `pause` and `accept` (what is read in undecided regions
    /// is right).
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

/// What a verb changed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OutcomeJson {
    pub(crate) array: String,
    pub(crate) changed: bool,
    pub(crate) what: String,
    /// What is good to know, though nothing is wrong.
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    /// With `--wait`, how the job ended: `done`, `paused`, `stopped`, `not_begun` or `unknown`.
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
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
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

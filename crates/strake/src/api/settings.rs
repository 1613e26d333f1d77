//! Settings of an array.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings: as read, and (each optional) as changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// Whether it is started by itself without missing members: `allow`, `never`, `wait`, a time
    /// like `30s`, or `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) degraded: Option<String>,
    /// Of a change: only check.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) dry_run: bool,
}

impl SettingsJson {
    /// What the members carry of it.
    pub(crate) fn carried(&self) -> SettingsJson {
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

//! What commands that look print: the state of arrays in a line, rates, findings.
//!
//! Deliberately absent: routes; the commands make these from what the daemon answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::JobJson;
use strake_foresight::drive::Origin;
use strake_foresight::value::Figure;

use crate::common::events::Severity;

/// An array, as `status` prints it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct StatusJson {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) state: String,
    pub(crate) level: String,
    /// As `show` tells it.
    #[serde(default)]
    pub(crate) not_found: bool,
    /// As `show` tells it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) may_be_on: Vec<String>,
    pub(crate) size_bytes: u64,
    pub(crate) members: u64,
    pub(crate) in_sync: u64,
    pub(crate) spares: u64,
    pub(crate) jobs: Vec<JobJson>,
    /// What is wrong or under way, in words.
    pub(crate) remarks: Vec<String>,
    /// The exit status of `strake status NAME`.
    pub(crate) exit: u8,
}

/// A report of `iostat`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct IostatJson {
    /// RFC 3339.
    pub(crate) time: String,
    /// The rates are those since each array was started; else since the report before.
    pub(crate) since_start: bool,
    pub(crate) arrays: Vec<IostatArrayJson>,
}

/// Rates of reads and writes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RatesJson {
    pub(crate) reads_per_s: f64,
    pub(crate) writes_per_s: f64,
    pub(crate) read_bytes_per_s: f64,
    pub(crate) written_bytes_per_s: f64,
    /// `null` where there were none.
    pub(crate) read_mean_us: Option<f64>,
    pub(crate) read_p99_us: Option<f64>,
    pub(crate) write_mean_us: Option<f64>,
    pub(crate) write_p99_us: Option<f64>,
    /// How many were under way on average.
    pub(crate) queue: f64,
}

/// Rates of an array.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct IostatArrayJson {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) state: String,
    pub(crate) interval_s: f64,
    /// Of its users' requests.
    #[serde(flatten)]
    pub(crate) rates: RatesJson,
    pub(crate) request_errors_per_s: f64,
    pub(crate) hedged_reads_per_s: f64,
    /// Of the stripe log, on all members.
    pub(crate) log_writes_per_s: f64,
    pub(crate) log_written_bytes_per_s: f64,
    /// With `-v`.
    pub(crate) members: Option<Vec<IostatMemberJson>>,
}

/// Rates of the member in a slot: its I/Os for requests, jobs, log and metadata.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct IostatMemberJson {
    pub(crate) slot: u8,
    pub(crate) device: Option<String>,
    pub(crate) state: String,
    #[serde(flatten)]
    pub(crate) rates: RatesJson,
    pub(crate) hedged_reads_per_s: f64,
}

/// What `doctor` found.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DoctorJson {
    /// A daemon answered. False: what runs is not known, and the drives alone were looked at.
    pub(crate) daemon: bool,
    /// The worst first.
    pub(crate) findings: Vec<FindingJson>,
    /// What could not be looked at, and why.
    pub(crate) unchecked: Vec<UncheckedJson>,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FindingJson {
    /// Which check found it.
    pub(crate) check: String,
    /// `info`, `warning` or `critical`.
    #[schemars(with = "String")]
    pub(crate) severity: Severity,
    pub(crate) array: Option<String>,
    pub(crate) slot: Option<u8>,
    pub(crate) device: Option<String>,
    pub(crate) found: String,
    /// What to do.
    pub(crate) cure: String,
}

/// A check that could not be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct UncheckedJson {
    pub(crate) check: String,
    pub(crate) device: Option<String>,
    pub(crate) why: String,
}

/// What `plan` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PlansJson {
    /// The shapes, the first one first; of a search the winner alone.
    pub(crate) plans: Vec<strake_foresight::plan::Plan>,
    /// Why the winner of a search wins.
    pub(crate) why: Vec<String>,
    /// The page that was written.
    pub(crate) html: Option<String>,
}

/// A drive of the catalogue, as `plan --drives` prints it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct KnownDriveJson {
    pub(crate) name: String,
    pub(crate) capacity_bytes: u64,
    pub(crate) unit_bytes: Figure,
    pub(crate) read_bytes_per_s: Figure,
    pub(crate) write_bytes_per_s: Figure,
    pub(crate) read_iops: Figure,
    pub(crate) write_iops: Figure,
    /// The size for which `write_iops` holds.
    pub(crate) write_iops_bytes: u64,
    /// Where its figures come from.
    pub(crate) sources: Vec<Origin>,
}

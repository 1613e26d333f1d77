//! What a simulation of a plan's shape and loads reached: filled by a lab, shown beside the
//! formulas.

use schemars::JsonSchema;
use serde::Serialize;

use crate::value::{Figure, Source};

/// The engine on modelled drives, with the loads of the plan.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Simulation {
    /// Decides the order of latencies and of random places: the same seed gives the same figures.
    pub seed: u64,
    /// How many times larger the whole drive is than the modelled one.
    pub scale: f64,
    /// Whether CPU time is modelled; else drives and links are the only limits.
    pub cpu: bool,
    /// Optimal, degraded and rebuilding, as far as the shape has them.
    pub states: Vec<SimulatedState>,
    /// A rebuild where nothing else asks; `None` without redundancy.
    pub rebuild_idle: Option<SimulatedRebuild>,
    /// A rebuild beside the loads.
    pub rebuild_loaded: Option<SimulatedRebuild>,
}

/// The loads, all at once, in one state.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SimulatedState {
    /// `optimal`, `degraded` or `rebuilding`.
    pub state: String,
    /// Each load.
    pub loads: Vec<SimulatedLoad>,
    /// What writes cost; `None` where none were asked for.
    pub waf: Option<SimulatedWaf>,
    /// Share of the cores' time that was used.
    pub cpu_busy: Option<f64>,
}

/// What one load reached.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SimulatedLoad {
    /// As it is given: `rand-read:4K:90`.
    pub load: String,
    /// Requests that were counted.
    pub requests: u64,
    /// Requests a second.
    pub requests_per_s: Figure,
    /// Bytes a second.
    pub bytes_per_s: Figure,
    /// Median time of a request, seconds.
    pub p50_s: Option<Figure>,
    /// 99 of 100 requests take no longer; `None` of too few requests to say.
    pub p99_s: Option<Figure>,
    /// 999 of 1000 requests take no longer.
    pub p999_s: Option<Figure>,
}

/// Write amplification by cause: bytes that drives were given for each byte of the loads, and what
/// the drives made of them.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SimulatedWaf {
    /// Data in place.
    pub data: Figure,
    /// Parity in place.
    pub parity: Figure,
    /// The stripe log.
    pub log: Figure,
    /// Superblocks and the region map.
    pub metadata: Figure,
    /// The rebuild.
    pub rebuild: Figure,
    /// Bytes of flash for each byte that a drive was given: indirection unit and collection.
    pub drive: Figure,
    /// All together: bytes of flash for each byte of the loads.
    pub total: Figure,
}

/// What a rebuild took, scaled to the whole drive.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SimulatedRebuild {
    /// Seconds of the whole drive.
    pub seconds: Figure,
    /// Bytes a second of the new drive.
    pub bytes_per_s: Figure,
    /// Flash bytes for each byte that the new drive was given.
    pub waf: Option<Figure>,
}

/// A simulated figure.
pub fn simulated(value: f64) -> Figure {
    Figure::point(value, Source::Simulated)
}

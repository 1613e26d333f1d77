//! All models joined: what drives, shape, loads and machine give.
//!
//! Invariant: every figure of a plan has its source, and figures of a drive that are unknown are
//! listed.

mod join;
pub mod search;
pub mod simulation;

use schemars::JsonSchema;
use serde::Serialize;

pub use join::plan;

use crate::cost::{self, Cost};
use crate::drive::{Drive, Origin};
use crate::durability::Durability;
use crate::engine::Engine;
use crate::host::Host;
use crate::load::Load;
use crate::rebuild::Rebuild;
use crate::shape::Shape;
use crate::speed::{Limit, Rate, State, rates};
use crate::value::{Figure, Source};
use crate::wear::{Waf, of_load};

/// What one load does alone, for a comparison with a simulation or a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// All members serve.
    pub optimal: Rate,
    /// One is lost; `None` without redundancy.
    pub degraded: Option<Rate>,
    /// Write amplification; `None` of a load that only reads.
    pub waf: Option<Waf>,
}

/// What one load does alone on a drive and a shape.
pub fn predict(drive: &Drive, shape: &Shape, load: &Load, host: &Host) -> Prediction {
    let none = Figure::point(0.0, Source::Given);
    let of = |state| {
        let rates = rates(drive, shape, host, &[*load], state, none);
        rates.and_then(|mut rates| rates.pop())
    };
    Prediction {
        optimal: of(State::Optimal).expect("a state of every shape"),
        degraded: of(State::Degraded),
        waf: of_load(drive, shape, load, 1.0),
    }
}

/// Settings of durability that reproduce a published table, or are the product's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Preset {
    /// Drive's figures; correlation and scrub interval as given, or ranges.
    #[default]
    Own,
    /// UBER 5e-18, correlation 5, no latent errors: fitted to the four numbers that S2 prints for
    /// 10+1 and 10+2. The formula behind them is not known.
    SeedGraid,
}

/// What a plan is made for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The drive.
    pub drive: Drive,
    /// The shape.
    pub shape: Shape,
    /// Loads that run at once.
    pub loads: Vec<Load>,
    /// The machine.
    pub host: Host,
    /// How much more likely a drive fails while another of its group has failed.
    pub correlation: Figure,
    /// Hours between two scrubs.
    pub scrub_h: Figure,
    /// Hours until a failed drive is replaced, where there is no spare.
    pub replace_h: Figure,
    /// Share of the bytes that are written.
    pub written: f64,
    /// Share of the drives' time that a rebuild has beside requests that would take all.
    pub share: Figure,
    /// Settings of durability.
    pub preset: Preset,
    /// Money.
    pub terms: cost::Terms,
    /// Bytes of data to hold, in as many arrays of this shape as that takes: for the cost alone.
    pub hold: Option<f64>,
}

impl Asked {
    /// A plan for a drive and a shape, with ranges for all else.
    pub fn new(drive: Drive, shape: Shape) -> Asked {
        let assumed = |low, high| Figure::range(low, high, Source::Assumed);
        Asked {
            drive,
            shape,
            loads: Vec::new(),
            host: Host::default(),
            correlation: assumed(1.0, 5.0),
            // A week to a year.
            scrub_h: assumed(168.0, 8760.0),
            replace_h: assumed(4.0, 72.0),
            written: 1.0,
            // What was measured of another engine at priority 80 (0.316 of 7.0 GB/s: 4.5 %), and
            // this one's default priority (50 of 100).
            share: assumed(0.045, 0.5),
            preset: Preset::Own,
            terms: cost::Terms::default(),
            hold: None,
        }
    }
}

/// One load: its rates in each state, and what its writes cost.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LoadPlan {
    /// As it is given: `rand-read:4K:90`.
    pub load: String,
    /// All members serve.
    pub optimal: Rate,
    /// One is lost.
    pub degraded: Option<Rate>,
    /// One is being rebuilt.
    pub rebuilding: Option<Rate>,
    /// Write amplification.
    pub waf: Option<Waf>,
}

/// Times of background work, seconds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Times {
    /// Until a new array serves: nothing passes over the drives.
    pub create_s: Figure,
    /// To zero it in the background, where drives do not read as zeros after a discard.
    pub zero_s: Figure,
    /// To rebuild a member.
    pub rebuild: Option<Rebuild>,
    /// To check all stripes, idle.
    pub scrub_s: Option<Figure>,
    /// The same beside the loads.
    pub scrub_loaded_s: Option<Figure>,
}

/// The machine as it is planned with: CPU times are seconds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Machine {
    /// Cores that serve the array.
    pub cores: Figure,
    /// CPU time of a request beside its drives' I/Os.
    pub request_s: Figure,
    /// CPU time of a read or a write of a drive.
    pub io_s: Figure,
    /// CPU time of a byte that is written to the array.
    pub byte_s: Figure,
    /// CPU time of a byte of a drive in a rebuild or a scrub.
    pub check_s: Figure,
    /// Where measured figures come from.
    pub sources: Vec<Origin>,
}

impl Machine {
    /// Of a host.
    pub fn of(host: &Host) -> Machine {
        Machine {
            cores: host.cores,
            request_s: host.request,
            io_s: host.io,
            byte_s: host.byte,
            check_s: host.check,
            sources: host.origins.clone(),
        }
    }
}

/// What drives, shape and loads give.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Plan {
    /// The drive's name.
    pub drive: String,
    /// The shape as text.
    pub shape: String,
    /// The level.
    pub level: String,
    /// Members, without spares.
    pub members: u8,
    /// Members of a group.
    pub group_size: u8,
    /// Bytes of a strip.
    pub strip_bytes: u64,
    /// Drives that wait.
    pub spares: u8,
    /// Members of a group that may be lost.
    pub tolerance: u8,
    /// The engine that serves.
    pub engine: Engine,
    /// The machine.
    pub machine: Machine,
    /// Bytes for data.
    pub usable_bytes: Figure,
    /// Four common loads, each alone.
    pub rates: Vec<LoadPlan>,
    /// The loads that were asked about, all at once.
    pub loads: Vec<LoadPlan>,
    /// What holds the loads, or the common ones, in words.
    pub limits: Vec<Limit>,
    /// Years until the flash of the drives is used up by the loads, if they never pause.
    pub life_years: Option<Figure>,
    /// Times of background work.
    pub times: Times,
    /// How likely data is lost in a year.
    pub durability: Durability,
    /// What is bought and what it costs.
    pub cost: Cost,
    /// Where figures of the drive come from.
    pub sources: Vec<Origin>,
    /// The same shape and loads, simulated; only where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<simulation::Simulation>,
    /// Figures of the drive that nothing is known of: ranges.
    pub assumed: Vec<String>,
    /// What to know of it.
    pub notes: Vec<String>,
}

//! Engines: what one limits beside drives, links and cores.
//!
//! Linux md serves a parity group with one thread (`raid5d`) and 256 stripe-cache entries, each a
//! row of 4 KiB strips. All writes go through it, and all reads of a group that lacks a member
//! (`raid5_make_request` reads past the cache only where `mddev->degraded` is 0).
//!
//! **Rows a second of the thread**, from published measurements:
//! * S3, 24 drives in three groups: 200 k random 4K writes a second, one row each: 66.7 k a group.
//! * S4, idle rebuild with the speed limit raised: 322 MB/s, a row for 4 KiB: 78.6 k.
//! * S4, loads of 8192 requests of 1 MiB beside a rebuild: 100 + 45 + 10.5 MB/s: 38 k.
//!
//! What the first two predict: S3's degraded random reads, 200 k (3 x 66.7 to 78.6 k).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::drive::End;
use crate::load::Load;
use crate::shape::{Shape, State};

/// Bytes of a row on one member.
const ROW: f64 = 4096.0;
/// Rows a second of one thread: at least and at most.
const ROWS_PER_S: (f64, f64) = (200e3 / 3.0, 322e6 / ROW);
/// The same where requests by far exceed the stripe cache, beside a rebuild.
const ROWS_THRASHING: f64 = (100e6 + 45e6 + 10.5e6) / ROW;
/// Random reads of an optimal array of 24 drives (S3); on other machines perhaps more.
const READS_PER_S: f64 = 1.9e6;
/// `speed_limit_max` as it is installed: 200 000 KiB/s.
const SPEED_LIMIT: f64 = 200_000.0 * 1024.0;
/// A rebuild beside full loads (S4), bytes a second.
const REBUILD_LOADED: f64 = 10.5e6;

/// Which engine serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// This one: drives, links and cores are the limits.
    #[default]
    Strake,
    /// Linux md as it is installed.
    Md,
}

impl Engine {
    /// As text.
    pub fn as_str(self) -> &'static str {
        match self {
            Engine::Strake => "strake",
            Engine::Md => "md",
        }
    }

    /// Bytes a second that it rebuilds at most, whatever the drives can.
    pub fn cap(self) -> Option<f64> {
        match self {
            Engine::Strake => None,
            Engine::Md => Some(SPEED_LIMIT),
        }
    }

    /// The same beside loads.
    pub(crate) fn loaded_cap(self, end: End) -> f64 {
        match (self, end) {
            (Engine::Strake, _) => f64::INFINITY,
            (Engine::Md, End::Worst) => REBUILD_LOADED,
            (Engine::Md, End::Best) => SPEED_LIMIT,
        }
    }

    /// Seconds that a request takes of what the engine itself limits.
    pub(crate) fn busy(self, shape: &Shape, load: &Load, state: State, end: End) -> f64 {
        if self == Engine::Strake {
            return 0.0;
        }
        let reads = f64::from(load.read_percent) / 100.0;
        let past_cache = match end {
            End::Worst => reads / READS_PER_S,
            End::Best => 0.0,
        };
        if !shape.level.has_parity() {
            return past_cache;
        }
        let rows_per_s = match (end, state) {
            (End::Best, _) => ROWS_PER_S.1,
            (End::Worst, State::Rebuilding) => ROWS_THRASHING,
            (End::Worst, _) => ROWS_PER_S.0,
        };
        // Bytes of neighbouring strips share a row, where the cache holds them long enough.
        let wide = match (end, load.sequential) {
            (End::Worst, _) => 1.0,
            (End::Best, true) => shape.data(),
            (End::Best, false) => (load.bytes as f64 / shape.strip as f64).clamp(1.0, shape.data()),
        };
        let rows = (load.bytes as f64 / ROW).max(1.0) / wide;
        let through = match state {
            State::Optimal => 1.0 - reads,
            _ => 1.0,
        };
        past_cache.max(through * rows / (rows_per_s * shape.groups()))
    }
}

#[cfg(test)]
mod tests {
    use strake_format::Level;

    use super::*;
    #[test]
    fn this_engine_limits_nothing_and_whole_rows_are_fewer() {
        let shape = Shape::new(Level::Raid5, 9, None, Some(131_072), 16384).expect("a shape");
        let load: Load = "seq-write:1M:38".parse().expect("a load");
        let of = |engine: Engine, end| engine.busy(&shape, &load, State::Optimal, end);
        assert_eq!(of(Engine::Strake, End::Worst), 0.0);
        let rows = of(Engine::Md, End::Best) * ROWS_PER_S.1;
        assert!((rows - 32.0).abs() < 1e-9, "{rows}");
        let rows = of(Engine::Md, End::Worst) * ROWS_PER_S.0;
        assert!((rows - 256.0).abs() < 1e-9, "{rows}");
    }
}

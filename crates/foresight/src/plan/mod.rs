//! All models joined: what drives, shape, loads and machine give.

use crate::drive::Drive;
use crate::host::Host;
use crate::load::Load;
use crate::shape::Shape;
use crate::speed::{Rate, State, rates};
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

//! Cost over a term: drives with those that replace failed ones, servers, racks, energy.
//!
//! The arithmetic and the default figures are those of a published comparison for 10 PB (S4 in
//! `docs/explanation/foresight.md`); prices of drives are the user's or a range.

use schemars::JsonSchema;
use serde::Serialize;

use crate::durability::YEAR_H;
use crate::value::{Figure, Source};

/// What money is computed from.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// Years.
    pub years: f64,
    /// US dollars for each kilowatt-hour.
    pub kwh: f64,
    /// Watts of the building for each watt of the machines.
    pub pue: f64,
    /// Drives of a server.
    pub drives_per_server: f64,
    /// Rack units of a server.
    pub server_units: f64,
    /// Rack units that a rack gives.
    pub rack_units: f64,
    /// US dollars of a server without drives.
    pub server_price: f64,
    /// Watts of a server without drives.
    pub server_watts: f64,
    /// US dollars of a rack.
    pub rack_price: f64,
    /// Share of the time that drives work.
    pub duty: f64,
    /// Share of the usable bytes that may be filled.
    pub fill: f64,
    /// Where these come from.
    pub source: Source,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            years: 5.0,
            kwh: 0.25,
            pue: 1.35,
            drives_per_server: 24.0,
            server_units: 2.0,
            rack_units: 36.0,
            server_price: 14_222.0,
            server_watts: 1080.0,
            rack_price: 1100.0,
            duty: 0.03,
            fill: 0.95,
            source: Source::DataSheet,
        }
    }
}

/// What is bought and what it costs, US dollars.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Cost {
    /// Drives in service, spares too.
    pub drives: u64,
    /// Servers.
    pub servers: u64,
    /// Racks.
    pub racks: u64,
    /// Drives, and what replaces failed ones over the term.
    pub drives_usd: Figure,
    /// Servers and racks.
    pub servers_usd: f64,
    /// Energy over the term.
    pub energy_usd: Figure,
    /// All.
    pub total_usd: Figure,
    /// All, for each usable TB (10^12 bytes).
    pub usd_per_tb: Figure,
    /// Watts of drives and servers, without the building.
    pub watts: Figure,
    /// Raw TB (10^12 bytes) of a drive for each watt that it takes.
    pub tb_per_watt: Figure,
}

/// A drive as money sees it.
#[derive(Clone, Copy, Debug)]
pub struct Priced {
    /// Bytes.
    pub capacity: f64,
    /// US dollars for each GB.
    pub price_gb: Figure,
    /// Failures a year.
    pub afr: Figure,
    /// Watts at work.
    pub active: Figure,
    /// Watts at rest.
    pub idle: Figure,
}

/// Drives that so many bytes of data need: `stored` bytes are written for each byte of data.
pub fn drives_for(data: f64, stored: f64, fill: f64, capacity: f64) -> u64 {
    (data * stored / fill / capacity).ceil() as u64
}

/// What so many drives cost over the term; `usable` bytes are theirs.
pub fn cost(drives: u64, usable: f64, drive: &Priced, terms: &Terms) -> Cost {
    let number = drives as f64;
    let servers = (number / terms.drives_per_server).ceil();
    let racks = (servers / (terms.rack_units / terms.server_units).floor()).ceil();
    let watts_each = drive.active.with(drive.idle, terms.source, |active, idle| {
        terms.duty * active + (1.0 - terms.duty) * idle
    });
    let watts = watts_each.map(Source::Formula, |w| {
        number * w + servers * terms.server_watts
    });
    let energy_usd = watts.map(Source::Formula, |watts| {
        watts / 1000.0 * YEAR_H * terms.years * terms.kwh * terms.pue
    });
    let drives_usd = drive
        .price_gb
        .with(drive.afr, Source::Formula, |price, afr| {
            number * (1.0 + afr * terms.years) * drive.capacity / 1e9 * price
        });
    let servers_usd = servers * terms.server_price + racks * terms.rack_price;
    let total_usd = drives_usd
        .with(energy_usd, terms.source, |drives, energy| drives + energy)
        .map(Source::Formula, |sum| sum + servers_usd);
    Cost {
        drives,
        servers: servers as u64,
        racks: racks as u64,
        drives_usd,
        servers_usd,
        energy_usd,
        total_usd,
        usd_per_tb: total_usd.map(Source::Formula, |usd| usd / (usable / 1e12)),
        watts,
        tb_per_watt: watts_each.map(Source::Formula, |w| drive.capacity / 1e12 / w),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(value: f64) -> Figure {
        Figure::point(value, Source::Given)
    }

    fn ssd(price: f64) -> Priced {
        Priced {
            capacity: 61.44e12,
            price_gb: point(price),
            afr: point(0.0044),
            active: point(16.0),
            idle: point(5.0),
        }
    }

    #[test]
    fn the_published_comparison_comes_out() {
        let drives = drives_for(10e15, 2.0, 0.95, 61.44e12);
        let cost = cost(drives, 10e15, &ssd(0.0733), &Terms::default());
        assert_eq!((cost.drives, cost.servers, cost.racks), (343, 15, 1));
        assert!(
            (cost.energy_usd.low / 266_502.0 - 1.0).abs() < 1e-4,
            "{cost:?}"
        );
        assert!((cost.tb_per_watt.low - 11.527).abs() < 0.001);
        assert!((cost.total_usd.low / 2.0596e6 - 1.0).abs() < 1e-3);
        assert!((cost.watts.low - 18_028.0).abs() < 1.0);
    }

    #[test]
    fn parity_is_cheaper_than_two_copies() {
        let of = |n: f64, k: f64| {
            let drives = drives_for(10e15, n / k, 0.95, 61.44e12);
            (
                drives,
                cost(drives, 10e15, &ssd(0.0733), &Terms::default())
                    .total_usd
                    .low,
            )
        };
        let table = [
            ((10.0, 8.0), 215, 1.28),
            ((12.0, 10.0), 206, 1.24),
            ((18.0, 16.0), 193, 1.18),
        ];
        for ((n, k), drives, total) in table {
            let (got, usd) = of(n, k);
            assert_eq!(got, drives, "{n} of {k}");
            assert!((usd / 1e6 - total).abs() < 0.01, "{usd}");
        }
        assert!(of(2.0, 1.0).1 > of(10.0, 8.0).1);
    }

    #[test]
    fn a_price_that_is_a_range_makes_the_total_one() {
        let priced = Priced {
            price_gb: Figure::range(0.07, 0.25, Source::Assumed),
            ..ssd(0.0)
        };
        let cost = cost(24, 1e15, &priced, &Terms::default());
        assert!(cost.total_usd.low < cost.total_usd.high);
        assert_eq!(cost.total_usd.source, Source::Assumed);
        assert!(cost.energy_usd.is_point());
    }
}

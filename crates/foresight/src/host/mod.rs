//! The machine: CPU time of a request, and what its links carry.
//!
//! CPU times are those of `cargo xtask bench` (`benchmarks/record/`), with ranges that cover both
//! machines that were measured, and what is published of one core's rate over NVMe. A host file has
//! those of another machine.

mod file;

use crate::catalogue::CatalogueError;
use crate::drive::Origin;
use crate::engine::Engine;
use crate::value::{Figure, Source};

/// The machine and the engine's share of its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Cores that serve the array.
    pub cores: Figure,
    /// CPU seconds of one request beside its drives' I/Os.
    pub request: Figure,
    /// CPU seconds of one read or write of a drive.
    pub io: Figure,
    /// CPU seconds of one byte that is written to the array: copy and parity.
    pub byte: Figure,
    /// CPU seconds of one byte of a drive that a rebuild or a scrub works through.
    pub check: Figure,
    /// I/Os of drives that the machine carries a second, whatever its cores; where that is known.
    pub device_iops: Option<Figure>,
    /// What all links of the drives together carry in one direction, bytes a second, where less
    /// than the sum (a switch, a network).
    pub uplink: Option<Figure>,
    /// The engine that serves.
    pub engine: Engine,
    /// Where figures that were measured come from.
    pub origins: Vec<Origin>,
}

impl Host {
    /// The same with the figures of a host file: TOML as `cargo xtask bench system --host FILE`
    /// writes it.
    ///
    /// # Errors
    /// Where the text is wrong: line, key and what.
    pub fn with_file(self, text: &str) -> Result<Host, CatalogueError> {
        file::read(self, text)
    }
}

impl Default for Host {
    fn default() -> Host {
        let measured = |low, high| Figure::range(low, high, Source::DataSheet);
        Host {
            cores: Figure::range(16.0, 64.0, Source::Assumed),
            // The engine alone, healthy read: 272 ns; with an export of ublk at 0.7 million
            // requests a second of one CPU: 1.4 µs.
            request: measured(0.3e-6, 1.7e-6),
            // A raw 4K read: 1.57 to 2.16 µs of io_uring, kernel included; 270 k a second of a
            // Zen 2 core with fio: 3.7 µs.
            io: measured(1.5e-6, 3.7e-6),
            // Copy at 20 GB/s and parity at 26 to 38 GB/s of a core; the whole way of a
            // sequential write: 221 µs a MiB beside 118 of the raw drives in memory.
            byte: measured(0.07e-9, 0.12e-9),
            check: measured(0.03e-9, 0.07e-9),
            device_iops: None,
            uplink: None,
            engine: Engine::Strake,
            origins: Vec::new(),
        }
    }
}

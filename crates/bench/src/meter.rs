//! One measurement: a load run once, and what it took.
//!
//! Invariant: a measurement without requests, time, CPU time or latencies is an error, never a row.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use strake_runtime::Counters;

use crate::load::{Limit, Load, Tally};

/// Whatever carries out loads.
pub(crate) trait Subject {
    /// Runs a load with all jobs; with `check`, every block read is compared with what was
    /// written.
    fn run(&mut self, load: Load, limit: &Limit, check: bool) -> Result<Sample>;

    /// Reads everything back.
    fn verify(&mut self) -> Result<()> {
        let whole = Load::new(false, false, 1 << 20);
        self.run(whole, &Limit::Once, true).map(|_| ())
    }

    /// Writes everything.
    fn fill(&mut self) -> Result<()> {
        let whole = Load::new(true, false, 1 << 20);
        self.run(whole, &Limit::Once, false).map(|_| ())
    }
}

/// What a load took, all jobs together.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) requests_per_s: f64,
    /// CPU time of the whole process, kernel included, for each request.
    pub(crate) cpu_ns: f64,
    pub(crate) latencies_ns: Histogram<u64>,
    /// What the members did meanwhile; `None` for raw ones.
    pub(crate) members: Option<MemberShare>,
}

/// What members did for each request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemberShare {
    pub(crate) reads: f64,
    pub(crate) writes: f64,
    /// Bytes given to member writes, for each byte asked to be written; `None` for reads.
    pub(crate) written: Option<f64>,
}

/// A stopwatch of wall-clock and CPU time.
pub(crate) struct Watch {
    pub(crate) begun: Instant,
    cpu: Duration,
}

/// CPU time of all threads of this process, those of the kernel's io_uring workers too.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Watch {
    pub(crate) fn start() -> Watch {
        Watch {
            begun: Instant::now(),
            cpu: cpu(),
        }
    }

    pub(crate) fn cpu_since(&self) -> Duration {
        cpu().saturating_sub(self.cpu)
    }

    /// Puts together what the jobs have to show, and what the array counted before and after.
    pub(crate) fn stop(
        self,
        load: Load,
        tallies: &[Tally],
        counted: Option<(Counters, Counters)>,
    ) -> Result<Sample> {
        let cpu = self.cpu_since();
        let name = load.name();
        if let Some(wrong) = tallies.iter().find_map(|tally| tally.wrong.as_ref()) {
            anyhow::bail!("{wrong}");
        }
        let mut latencies_ns = tallies[0].latencies_ns.clone();
        for tally in &tallies[1..] {
            latencies_ns.add(&tally.latencies_ns)?;
        }
        let requests: u64 = tallies.iter().map(|tally| tally.requests).sum();
        let last = tallies.iter().map(|tally| tally.last).max();
        let time = last.unwrap_or(self.begun).duration_since(self.begun);
        ensure!(
            tallies.iter().all(|tally| tally.requests > 0),
            "{name}: a job had no request answered"
        );
        ensure!(latencies_ns.len() == requests, "{name}: lost latencies");
        ensure!(!time.is_zero() && !cpu.is_zero(), "{name}: took no time");
        let user = requests * load.bytes as u64;
        let members = counted.map(|(before, after)| {
            let written = after.member_written_bytes - before.member_written_bytes;
            let each = |count: u64| count as f64 / requests as f64;
            MemberShare {
                reads: each(after.member_reads - before.member_reads),
                writes: each(after.member_writes - before.member_writes),
                written: load.write.then_some(written as f64 / user as f64),
            }
        });
        let written = members.and_then(|members| members.written);
        ensure!(
            written.is_none_or(|share| share >= 1.0),
            "{name}: members were given fewer bytes than were written: {written:?}"
        );
        Ok(Sample {
            requests_per_s: requests as f64 / time.as_secs_f64(),
            cpu_ns: cpu.as_nanos() as f64 / requests as f64,
            latencies_ns,
            members,
        })
    }
}

/// The middle one.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    assert!(!values.is_empty(), "a median is of something");
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 {
        values[half]
    } else {
        f64::midpoint(values[half - 1], values[half])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn a_measurement_of_nothing_is_an_error() {
        let load = Load::new(true, true, 4096);
        let none = Tally {
            requests: 0,
            latencies_ns: Histogram::new(3).expect("a histogram"),
            last: Instant::now(),
            wrong: None,
        };
        let stopped = Watch::start().stop(load, std::slice::from_ref(&none), None);
        assert!(stopped.is_err());
        let mut few = none.clone();
        few.requests = 1;
        few.latencies_ns.record(5).expect("in bounds");
        let watch = Watch::start();
        std::thread::sleep(Duration::from_millis(1));
        few.last = Instant::now();
        let wrote = |bytes| {
            let after = Counters {
                member_written_bytes: bytes,
                ..Counters::default()
            };
            Some((Counters::default(), after))
        };
        assert!(watch.stop(load, &[few.clone()], wrote(4095)).is_err());
        let both = Watch::start().stop(load, &[few, none], wrote(1 << 20));
        assert!(both.is_err());
    }
}

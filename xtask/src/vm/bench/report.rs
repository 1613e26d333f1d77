//! One measurement: what fio reports of a load, and what the guest's kernel counted meanwhile.
//!
//! **CPU time** is that of the whole guest: md and ublk work in threads of the kernel, which no
//! account of fio or of a daemon has. It is the time in which a CPU was not idle, of a window
//! within the load, beside the bytes that the subject's device moved in the same window; what fio
//! does before its first request is in neither.
//!
//! Invariant: no figure without a measurement: a report with an error or without requests, and a
//! window in which nothing was done, are errors. A p99.99 of which fewer than [`SLOWER_MIN`]
//! requests are slower is none.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    /// Requests per second.
    pub(super) iops: f64,
    /// Bytes per second.
    pub(super) bytes_per_s: f64,
    /// Microseconds.
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    pub(super) latencies: Latencies,
    /// What was asked for, bytes.
    pub(super) asked: f64,
    /// What the drives read and wrote for each byte that was asked for.
    pub(super) drives_read: f64,
    pub(super) drives_wrote: f64,
    /// Of a load that was watched.
    pub(super) cpu: Option<Cpu>,
}

/// How many requests took how long, nanoseconds: fio's histogram, 64 steps for each doubling.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Latencies(BTreeMap<u64, u64>);

/// Requests that are slower than a p99.99, at least: with fewer, one more or less of them moves it.
const SLOWER_MIN: u64 = 10;
/// One request in so many is slower than the p99.99.
const ONE_IN: u64 = 10_000;
/// Requests that a p99.99 needs.
pub(super) const P9999_NEEDS: u64 = SLOWER_MIN * ONE_IN;

impl Latencies {
    /// Those of several measurements together.
    pub(super) fn all<'a>(of: impl IntoIterator<Item = &'a Latencies>) -> Latencies {
        let mut all = Latencies::default();
        for (ns, count) in of.into_iter().flat_map(|latencies| &latencies.0) {
            *all.0.entry(*ns).or_default() += count;
        }
        all
    }

    /// How many there are.
    pub(super) fn requests(&self) -> u64 {
        self.0.values().sum()
    }

    /// The p99.99, microseconds; `None`: there are too few.
    pub(super) fn p9999(&self) -> Option<f64> {
        let requests = self.requests();
        if requests < P9999_NEEDS {
            return None;
        }
        let within = requests - requests / ONE_IN;
        let mut seen = 0;
        let mut steps = self.0.iter();
        let found = steps.find(|(_, count)| {
            seen += **count;
            seen >= within
        });
        found.map(|(ns, _)| *ns as f64 / 1000.0)
    }
}

/// CPU time of the whole guest beside a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cpu {
    /// How many CPUs were busy, on the mean.
    pub(super) busy: f64,
    /// Requests for each second of CPU time; `None`: there was no load, or none was seen.
    pub(super) requests_per_core: Option<f64>,
}

/// Bytes of a sector, as the kernel counts what its devices did.
pub(super) const SECTOR: f64 = 512.0;

/// So short a window may lie between two requests, on a machine that does much else: seconds.
const SHORT_S: f64 = 5.0;

/// The kernel tells CPU time in hundredths of a second.
pub(super) const TICKS_PER_S: f64 = 100.0;

/// A window in the life of the guest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// CPUs that the guest has.
    pub(super) cpus: u32,
    pub(super) seconds: f64,
    /// CPU time in which all CPUs together were idle, seconds.
    pub(super) idle_s: f64,
    /// What the subject's device read and wrote.
    pub(super) bytes: f64,
}

impl Window {
    /// From nanoseconds, ticks of idleness, and sectors.
    pub(super) fn parse(cpus: u32, words: [&str; 3]) -> Result<Window> {
        let [ns, ticks, sectors] = words.map(str::parse::<u64>);
        let window = Window {
            cpus,
            seconds: ns? as f64 / 1e9,
            idle_s: ticks? as f64 / TICKS_PER_S,
            bytes: sectors? as f64 * SECTOR,
        };
        if window.seconds <= 0.0 {
            bail!("no time passed in a window: {words:?}");
        }
        Ok(window)
    }

    /// CPU time in which the CPUs were not idle, seconds.
    pub(super) fn busy_s(self) -> f64 {
        // Ticks are rounded, so that an idle guest may have been idle for longer than the time.
        (f64::from(self.cpus) * self.seconds - self.idle_s).max(0.0)
    }

    /// Beside a load of requests of this size; `None`: no load.
    pub(super) fn cpu(self, request_bytes: Option<f64>) -> Result<Cpu> {
        let busy_s = self.busy_s();
        if busy_s <= 0.0 {
            bail!("no CPU was busy in a window of {} s", self.seconds);
        }
        let moved = self.bytes > 0.0;
        if request_bytes.is_some() && !moved && self.seconds > SHORT_S {
            bail!("no byte was moved in a window of {} s", self.seconds);
        }
        let requests = request_bytes.filter(|_| moved);
        Ok(Cpu {
            busy: busy_s / self.seconds,
            requests_per_core: requests.map(|bytes| self.bytes / bytes / busy_s),
        })
    }
}

impl Sample {
    /// Bytes of a request.
    pub(super) fn request_bytes(&self) -> f64 {
        self.bytes_per_s / self.iops
    }

    /// Of a load that was watched.
    pub(super) fn requests_per_core(&self) -> Option<f64> {
        self.cpu?.requests_per_core
    }

    /// The figures in a report of fio, which must tell of requests and of no error.
    pub(super) fn parse(report: &str) -> Result<Sample> {
        // Warnings of fio stand before its JSON.
        let json = report.find("{\n").map_or("", |at| &report[at..]);
        let report: Value = serde_json::from_str(json).context("not a report of fio")?;
        let job = &report["jobs"][0];
        if job["error"].as_i64() != Some(0) {
            bail!("fio met error {}", job["error"]);
        }
        let sum = |key: &str| -> f64 {
            let of = |side: &str| job[side][key].as_f64().unwrap_or(0.0);
            of("read") + of("write")
        };
        let side = if job["read"]["iops"].as_f64() > Some(0.0) {
            "read"
        } else {
            "write"
        };
        let latency = &job[side]["clat_ns"];
        let percentile = |name: &str| -> Result<f64> {
            let ns = latency["percentile"][name].as_f64();
            ns.map(|ns| ns / 1000.0).context("no percentiles")
        };
        let sample = Sample {
            iops: sum("iops"),
            bytes_per_s: sum("bw_bytes"),
            p50: percentile("50.000000")?,
            p99: percentile("99.000000")?,
            p999: percentile("99.900000")?,
            latencies: latencies(&latency["bins"])?,
            asked: sum("io_bytes"),
            drives_read: 0.0,
            drives_wrote: 0.0,
            cpu: None,
        };
        if sample.iops <= 0.0 {
            bail!("fio had no request answered");
        }
        Ok(sample)
    }
}

fn latencies(bins: &Value) -> Result<Latencies> {
    let bins = bins.as_object().context("no histogram of latencies")?;
    let one = |(ns, count): (&String, &Value)| {
        let count = count.as_u64().context("not a number of requests")?;
        Ok((ns.parse()?, count))
    };
    bins.iter().map(one).collect::<Result<_>>().map(Latencies)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    pub(in super::super) fn sample_of(iops: f64) -> Sample {
        Sample {
            iops,
            bytes_per_s: iops * 4096.0,
            p50: 1.0,
            p99: 2.0,
            p999: 3.0,
            latencies: Latencies::default(),
            asked: 4096.0,
            drives_read: 0.0,
            drives_wrote: 0.0,
            cpu: None,
        }
    }

    #[test]
    fn a_report_with_an_error_or_without_requests_is_no_measurement() {
        let report = |error: i64, iops: f64| {
            let write = json!({
                "iops": iops, "bw_bytes": 8192, "io_bytes": 4096,
                "clat_ns": {
                    "percentile": {"50.000000": 1000, "99.000000": 3000, "99.900000": 7000},
                    "bins": {"1000": 3, "7000": 1},
                },
            });
            let job = json!({"error": error, "read": {"iops": 0, "bw_bytes": 0}, "write": write});
            format!("note: latency may be high\n{:#}", json!({"jobs": [job]}))
        };
        let read = Sample::parse(&report(0, 2.0)).expect("a good report");
        assert_eq!(
            (read.iops, read.p50, read.request_bytes()),
            (2.0, 1.0, 4096.0)
        );
        assert_eq!((read.p99, read.p999), (3.0, 7.0));
        assert_eq!(read.latencies.requests(), 4);
        assert!(Sample::parse(&report(5, 2.0)).is_err());
        assert!(Sample::parse(&report(0, 0.0)).is_err());
        assert!(Sample::parse("").is_err());
        let without = report(0, 2.0).replace("bins", "others");
        assert!(Sample::parse(&without).is_err());
    }

    #[test]
    fn a_p9999_is_of_all_rounds_together_and_of_enough_requests() {
        let of = |steps: &[(u64, u64)]| Latencies(steps.iter().copied().collect());
        let (one, other) = (
            of(&[(1000, 59_994), (9000, 6)]),
            of(&[(1000, 39_995), (8000, 5)]),
        );
        assert_eq!(one.p9999(), None, "six of them are slower");
        let both = Latencies::all([&one, &other]);
        assert_eq!(both.requests(), 100_000);
        // Ten of the eleven slow ones may be slower.
        assert_eq!(both.p9999(), Some(8.0));
        assert_eq!(of(&[(1000, 99_990), (9000, 10)]).p9999(), Some(1.0));
        assert_eq!(of(&[(1000, 99_989), (9000, 11)]).p9999(), Some(9.0));
        assert_eq!(Latencies::default().p9999(), None);
    }

    #[test]
    fn requests_per_core_are_those_of_the_window_and_of_all_its_cpus() {
        // Two CPUs for two seconds, idle for one of the four: 3 s for 6000 requests of 4 KiB.
        let window = Window::parse(2, ["2000000000", "100", "48000"]).expect("a window");
        let cpu = window.cpu(Some(4096.0)).expect("a load");
        assert_eq!((cpu.busy, cpu.requests_per_core), (1.5, Some(2000.0)));
        assert_eq!(window.cpu(None).expect("no load").requests_per_core, None);
        let still = Window::parse(2, ["2000000000", "100", "0"]).expect("a window");
        let cpu = still.cpu(Some(4096.0)).expect("it is short");
        assert_eq!(cpu.requests_per_core, None);
        let still = Window::parse(2, ["20000000000", "100", "0"]).expect("a window");
        assert!(still.cpu(Some(4096.0)).is_err());
        let idle = Window::parse(2, ["2000000000", "401", "0"]).expect("a window");
        assert_eq!(idle.busy_s(), 0.0);
        assert!(idle.cpu(None).is_err());
        assert!(Window::parse(2, ["0", "0", "0"]).is_err());
        assert!(Window::parse(2, ["1", "-1", "0"]).is_err());
    }
}

//! Rows, as a table for people and as JSON for programs.
//!
//! Invariant: a row shows medians over rounds, and its share of the ceiling is the median of the
//! shares within rounds: what disturbs a whole round disturbs both sides of the fraction.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::load::Load;
use crate::meter::{MemberShare, Sample, median};

/// What was measured where.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) setup: Setup,
    pub(crate) rows: Vec<Row>,
    pub(crate) closed: Vec<Closed>,
    pub(crate) rebuilds: Vec<RebuildRow>,
}

/// The machine, without its name.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    pub(crate) kernel: String,
    pub(crate) in_memory: bool,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Setup {
    pub(crate) jobs: u16,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    pub(crate) member_bytes: u64,
    pub(crate) strip_bytes: u32,
    pub(crate) smoke: bool,
}

/// Figures of one load, raw or of an array.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// `raw of 5`, `RAID 5 4+1`.
    pub(crate) subject: String,
    pub(crate) state: &'static str,
    pub(crate) load: String,
    /// Policy of the write hole; none for reads and for raw members.
    pub(crate) policy: Option<&'static str>,
    pub(crate) depth: usize,
    requests_per_s: f64,
    bytes_per_s: f64,
    pub(crate) cpu_us_per_request: f64,
    /// As many requests as a core carries in a second of its time, the kernel's work included.
    requests_per_core_s: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    p9999_us: f64,
    ceiling_requests_per_s: Option<f64>,
    of_ceiling: Option<f64>,
    /// CPU time of that least member I/O, raw, as a share of the CPU time of the request.
    cpu_needed: Option<f64>,
    pub(crate) member_reads_per_request: Option<f64>,
    pub(crate) member_writes_per_request: Option<f64>,
    pub(crate) written_bytes_per_user_byte: Option<f64>,
    #[serde(skip)]
    random: bool,
}

/// The policies side by side.
#[derive(Debug, Serialize)]
pub(crate) struct Closed {
    pub(crate) subject: String,
    pub(crate) state: &'static str,
    pub(crate) load: String,
    pub(crate) resync_requests_per_s: f64,
    pub(crate) closed_requests_per_s: f64,
    pub(crate) closed_of_resync: f64,
}

/// A rebuild, idle or beside a load (that load has a row of its own, with the state `rebuilding`).
#[derive(Debug, Serialize)]
pub(crate) struct RebuildRow {
    pub(crate) subject: String,
    pub(crate) beside: String,
    /// Data strips of a stripe: the reads of a rebuilt strip.
    pub(crate) data_strips: u64,
    pub(crate) bytes_per_s: f64,
    pub(crate) cpu_us_per_mib: f64,
    /// k reads and one write of members, by the raw rates.
    pub(crate) ceiling_bytes_per_s: f64,
    pub(crate) of_ceiling: f64,
    /// One member's raw sequential writes.
    pub(crate) one_member_bytes_per_s: f64,
    pub(crate) of_one_member: f64,
    /// The p99 of the load beside it: without the rebuild, with it, and what it was to be.
    pub(crate) alone_p99_us: Option<f64>,
    pub(crate) beside_p99_us: Option<f64>,
    pub(crate) target_us: Option<f64>,
    pub(crate) of_target: Option<f64>,
}

/// The samples of one row, one of each round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    pub(crate) samples: Vec<Sample>,
    /// Ceilings of the same rounds; none for raw members.
    pub(crate) ceilings: Vec<Ceiling>,
}

/// What the raw members would make of the least member I/O of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ceiling {
    pub(crate) requests_per_s: f64,
    pub(crate) cpu_ns: f64,
}

impl Series {
    pub(crate) fn rates(&self) -> impl Iterator<Item = f64> {
        self.samples.iter().map(|sample| sample.requests_per_s)
    }

    /// The row of this series.
    pub(crate) fn row(
        &self,
        (subject, state): (&str, &'static str),
        load: Load,
        policy: Option<&'static str>,
    ) -> Row {
        let mut all: Histogram<u64> = self.samples[0].latencies_ns.clone();
        for sample in &self.samples[1..] {
            all.add(&sample.latencies_ns).expect("bounds are the same");
        }
        let us = |share: f64| all.value_at_quantile(share) as f64 / 1e3;
        let requests_per_s = median(self.rates());
        let with = self.samples.iter().zip(&self.ceilings);
        let rates = with
            .clone()
            .map(|(s, c)| s.requests_per_s / c.requests_per_s);
        let cpu = with.map(|(s, c)| c.cpu_ns / s.cpu_ns);
        let ceilings = self.ceilings.iter().map(|c| c.requests_per_s);
        let with_ceiling = !self.ceilings.is_empty();
        let members: Option<Vec<MemberShare>> = self.samples.iter().map(|s| s.members).collect();
        let middle = |value: fn(&MemberShare) -> Option<f64>| {
            let values: Option<Vec<f64>> = members.as_ref()?.iter().map(value).collect();
            values.map(median)
        };
        Row {
            subject: subject.to_owned(),
            state,
            load: load.name(),
            policy,
            depth: load.depth,
            requests_per_s,
            bytes_per_s: requests_per_s * load.bytes as f64,
            cpu_us_per_request: median(self.samples.iter().map(|s| s.cpu_ns / 1e3)),
            requests_per_core_s: median(self.samples.iter().map(|s| 1e9 / s.cpu_ns)),
            p50_us: us(0.5),
            p99_us: us(0.99),
            p999_us: us(0.999),
            p9999_us: us(0.9999),
            ceiling_requests_per_s: with_ceiling.then(|| median(ceilings)),
            of_ceiling: with_ceiling.then(|| median(rates)),
            cpu_needed: with_ceiling.then(|| median(cpu)),
            member_reads_per_request: middle(|members| Some(members.reads)),
            member_writes_per_request: middle(|members| Some(members.writes)),
            written_bytes_per_user_byte: middle(|members| members.written),
            random: load.random,
        }
    }
}

impl Machine {
    pub(crate) fn look(in_memory: bool) -> Machine {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let cpu = model.map_or("unknown", |(_, name)| name).to_owned();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let uname = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        Machine {
            cpu,
            cpus,
            kernel: format!("{} {}", text(uname.sysname()), text(uname.release())),
            in_memory,
        }
    }

    /// Where the members' files are.
    pub(crate) fn place(&self) -> &'static str {
        match self.in_memory {
            true => "in memory",
            false => "on a disk's file system",
        }
    }
}

impl Report {
    pub(crate) fn print(&self) {
        let (machine, setup) = (&self.machine, &self.setup);
        println!(
            "{} × {}, {}; members of {} MiB {}; {} jobs, {} rounds of {} s",
            machine.cpus,
            machine.cpu,
            machine.kernel,
            setup.member_bytes >> 20,
            machine.place(),
            setup.jobs,
            setup.rounds,
            setup.seconds
        );
        println!(
            "\n{:<11} {:<14} {:<21} {:<7} {:>4} {:>10} \
             {:>8} {:>9} {:>8} {:>8} {:>8} {:>8} {:>9} {:>7} {:>7} {:>6} {:>6} {:>7}",
            "subject",
            "state",
            "load",
            "policy",
            "qd",
            "IOPS|MB/s",
            "cpu µs",
            "IOPS/core",
            "p50 µs",
            "p99 µs",
            "p99.9",
            "p99.99",
            "ceiling",
            "of it",
            "cpu",
            "reads",
            "writes",
            "written"
        );
        self.rows.iter().for_each(Row::print);
        println!("\nrebuild of one member");
        for row in &self.rebuilds {
            row.print();
        }
        println!("\nclosed beside resync, requests per second");
        for row in &self.closed {
            println!(
                "{:<11} {:<14} {:<21} resync {:>8.0}  closed {:>8.0}  \
                 closed/resync {:.3} ({:+.1} %)",
                row.subject,
                row.state,
                row.load,
                row.resync_requests_per_s,
                row.closed_requests_per_s,
                row.closed_of_resync,
                (row.closed_of_resync - 1.0) * 100.0
            );
        }
    }
}

impl RebuildRow {
    fn print(&self) {
        print!(
            "{:<11} {:<28} {:>6.0} MB/s  ceiling {:>6.0} MB/s: {:>5.1} %   \
             one raw member {:>6.0} MB/s: {:>5.1} %   cpu {:>5.0} µs/MiB",
            self.subject,
            self.beside,
            self.bytes_per_s / 1e6,
            self.ceiling_bytes_per_s / 1e6,
            self.of_ceiling * 100.0,
            self.one_member_bytes_per_s / 1e6,
            self.of_one_member * 100.0,
            self.cpu_us_per_mib
        );
        if let (Some(alone), Some(beside)) = (self.alone_p99_us, self.beside_p99_us) {
            print!("   p99 {beside:>6.0} µs, without it {alone:>6.0} µs");
        }
        if let (Some(target), Some(share)) = (self.target_us, self.of_target) {
            print!(", target {target:>6.0} µs: {:>5.1} %", share * 100.0);
        }
        println!();
    }
}

impl Row {
    fn print(&self) {
        let unit = |rate: f64| {
            if self.random {
                rate
            } else {
                rate / self.requests_per_s * self.bytes_per_s / 1e6
            }
        };
        let maybe = |value: Option<f64>, digits: usize| {
            value.map_or_else(String::new, |value| format!("{value:.digits$}"))
        };
        let percent = |share: Option<f64>| {
            maybe(share.map(|s| s * 100.0), 1) + if share.is_some() { " %" } else { "" }
        };
        println!(
            "{:<11} {:<14} {:<21} {:<7} {:>4} {:>10.0} \
             {:>8.2} {:>9.0} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>9} {:>7} {:>7} {:>6} {:>6} {:>7}",
            self.subject,
            self.state,
            self.load,
            self.policy.unwrap_or_default(),
            self.depth,
            unit(self.requests_per_s),
            self.cpu_us_per_request,
            self.requests_per_core_s,
            self.p50_us,
            self.p99_us,
            self.p999_us,
            self.p9999_us,
            maybe(self.ceiling_requests_per_s.map(unit), 0),
            percent(self.of_ceiling),
            percent(self.cpu_needed),
            maybe(self.member_reads_per_request, 2),
            maybe(self.member_writes_per_request, 2),
            maybe(self.written_bytes_per_user_byte, 3)
        );
    }
}

#[cfg(test)]
impl Row {
    /// A row without figures.
    pub(crate) fn of(subject: &str, state: &'static str, load: &str) -> Row {
        Row {
            subject: subject.to_owned(),
            state,
            load: load.to_owned(),
            policy: None,
            depth: 32,
            requests_per_s: 1.0,
            bytes_per_s: 1.0,
            cpu_us_per_request: 1.0,
            requests_per_core_s: 1.0,
            p50_us: 1.0,
            p99_us: 1.0,
            p999_us: 1.0,
            p9999_us: 1.0,
            ceiling_requests_per_s: None,
            of_ceiling: None,
            cpu_needed: None,
            member_reads_per_request: None,
            member_writes_per_request: None,
            written_bytes_per_user_byte: None,
            random: false,
        }
    }
}

#[cfg(test)]
impl RebuildRow {
    /// A row without figures.
    pub(crate) fn of(subject: &str, beside: &str) -> RebuildRow {
        RebuildRow {
            subject: subject.to_owned(),
            beside: beside.to_owned(),
            data_strips: 1,
            bytes_per_s: 1.0,
            cpu_us_per_mib: 1.0,
            ceiling_bytes_per_s: 1.0,
            of_ceiling: 1.0,
            one_member_bytes_per_s: 1.0,
            of_one_member: 1.0,
            alone_p99_us: None,
            beside_p99_us: None,
            target_us: None,
            of_target: None,
        }
    }
}

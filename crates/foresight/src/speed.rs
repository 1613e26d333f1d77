//! Rates and latencies of loads: the least of what drives, links and CPU carry, and of what the
//! requests in flight allow.
//!
//! Bounds as in the analysis of closed queues (Denning and Buzen 1978; Lazowska et al. 1984): with
//! N requests in flight and a service of D without waiting, at most N/D a second, and at most what
//! the busiest part carries. A drive that reads and writes is busy for
//! `reads/READ + writes/WRITE <= mix`.

use schemars::JsonSchema;
use serde::Serialize;

use crate::drive::{At, Drive, End};
use crate::host::Host;
use crate::load::Load;
pub use crate::shape::State;
use crate::shape::{Shape, Work};
use crate::value::{Figure, Source};

/// What keeps a load from being faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The drives, or the drives of the group that lacks one.
    Drives,
    /// A drive's link, or all links together.
    Links,
    /// The cores.
    Cpu,
    /// The engine, whatever drives and cores could do.
    Engine,
    /// Too few requests are in flight for more.
    Depth,
    /// The load asks for no more.
    Asked,
}

impl Limit {
    /// As text.
    pub fn as_str(self) -> &'static str {
        match self {
            Limit::Drives => "drives",
            Limit::Links => "links",
            Limit::Cpu => "CPU",
            Limit::Engine => "engine",
            Limit::Depth => "requests in flight",
            Limit::Asked => "asks for no more",
        }
    }
}

/// How fast a load is.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Rate {
    /// Requests a second.
    pub requests_per_s: Figure,
    /// Bytes a second.
    pub bytes_per_s: Figure,
    /// Mean time of a request, seconds.
    pub latency_s: Figure,
    /// What it is held by, where figures are as bad as they may be and as good.
    pub limits: Vec<Limit>,
}

/// What one request takes of the parts that limit, seconds for each.
#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    /// Of the busiest drive: reads, writes.
    reads: f64,
    writes: f64,
    /// Of its link: in, out.
    link_in: f64,
    link_out: f64,
    /// Of all links.
    uplink: f64,
    /// Of all cores.
    cpu: f64,
    /// Of the machine's way to drives.
    device: f64,
    /// Of what the engine itself limits.
    engine: f64,
}

impl Demand {
    fn times(self, rate: f64) -> Demand {
        Demand {
            reads: self.reads * rate,
            writes: self.writes * rate,
            link_in: self.link_in * rate,
            link_out: self.link_out * rate,
            uplink: self.uplink * rate,
            cpu: self.cpu * rate,
            device: self.device * rate,
            engine: self.engine * rate,
        }
    }

    fn plus(self, other: Demand) -> Demand {
        Demand {
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
            link_in: self.link_in + other.link_in,
            link_out: self.link_out + other.link_out,
            uplink: self.uplink + other.uplink,
            cpu: self.cpu + other.cpu,
            device: self.device + other.device,
            engine: self.engine + other.engine,
        }
    }

    /// The busiest part, and how busy it is where `free` is what drives have for requests.
    fn busiest(self, mix: f64, free: f64) -> (f64, Limit) {
        let mixed = match self.reads > 0.0 && self.writes > 0.0 {
            true => (self.reads + self.writes) / mix,
            false => 0.0,
        };
        let drives = self.reads.max(self.writes).max(mixed) / free;
        let parts = [
            (drives, Limit::Drives),
            (
                self.link_in.max(self.link_out).max(self.uplink),
                Limit::Links,
            ),
            (self.cpu.max(self.device), Limit::Cpu),
            (self.engine, Limit::Engine),
        ];
        parts
            .into_iter()
            .fold((0.0, Limit::Drives), |most, part| match part.0 > most.0 {
                true => part,
                false => most,
            })
    }
}

/// A case: drives and machine with all figures at one end.
struct Case<'a> {
    shape: &'a Shape,
    drive: At,
    host: &'a Host,
    end: End,
    state: State,
    /// Share of the drives' time that requests have.
    free: f64,
}

impl Case<'_> {
    fn work(&self, load: &Load) -> Option<Work> {
        match self.state {
            State::Optimal => Some(Work::optimal(self.shape, load)),
            _ => Work::degraded(self.shape, load),
        }
    }

    /// Of the busiest drive: one of a healthy group, or a survivor of the group that lacks one.
    fn demand(&self, load: &Load) -> Option<Demand> {
        let healthy = Work::optimal(self.shape, load);
        let work = self.work(load)?;
        let g = f64::from(self.shape.group_size);
        let groups = self.shape.groups();
        let whole = self.on_drive(load, &healthy, 1.0 / (groups * g));
        let here = match self.state {
            State::Optimal => whole,
            _ => {
                let hurt = self.on_drive(load, &work, 1.0 / (groups * (g - 1.0)));
                let more = hurt.reads + hurt.writes > whole.reads + whole.writes;
                if more || groups == 1.0 { hurt } else { whole }
            }
        };
        // All drives together: the group that lacks one has its share of the requests.
        let mean = |of: fn(&Work) -> f64| (of(&healthy) * (groups - 1.0) + of(&work)) / groups;
        let ios = mean(|w| w.reads) + mean(|w| w.writes);
        let moved =
            mean(|w| w.reads * w.read_each).max(mean(|w| w.writes * w.write_each + w.log_bytes));
        let written = load.bytes as f64 * (1.0 - f64::from(load.read_percent) / 100.0);
        let host = self.host;
        let cpu = self.end.less(host.request)
            + ios * self.end.less(host.io)
            + written * self.end.less(host.byte);
        Some(Demand {
            uplink: host.uplink.map_or(0.0, |up| moved / self.end.more(up)),
            cpu: cpu / self.end.more(host.cores),
            device: host
                .device_iops
                .map_or(0.0, |most| ios / self.end.more(most)),
            engine: host.engine.busy(self.shape, load, self.state, self.end),
            ..here
        })
    }

    fn on_drive(&self, load: &Load, work: &Work, share: f64) -> Demand {
        let drive = &self.drive;
        let log = drive.write_time(work.log_bytes, true);
        let reads = work.reads * drive.read_time(work.read_each, load.sequential);
        let writes = work.writes * drive.write_time(work.write_each, load.sequential) + log;
        Demand {
            reads: reads * share,
            writes: writes * share,
            link_in: work.reads * work.read_each * share / drive.link,
            link_out: (work.writes * work.write_each + work.log_bytes) * share / drive.link,
            ..Demand::default()
        }
    }

    /// Seconds of one request that nothing waits for.
    fn service(&self, load: &Load) -> f64 {
        let drive = &self.drive;
        let Some(work) = self.work(load) else {
            return 0.0;
        };
        let read = drive.read_latency + work.read_each / drive.read;
        let write = drive.write_latency + work.write_each / drive.link;
        let share = f64::from(load.read_percent) / 100.0;
        let reads = Work::optimal(
            self.shape,
            &Load {
                read_percent: 0,
                ..*load
            },
        )
        .reads
            > 0.0;
        let log = if self.shape.log { write } else { 0.0 };
        let written = if reads { read } else { 0.0 } + log + write;
        let cpu = self.end.less(self.host.request)
            + self.end.less(self.host.io) * (work.reads + work.writes)
            + load.bytes as f64 * (1.0 - share) * self.end.less(self.host.byte);
        share * read + (1.0 - share) * written + cpu
    }

    /// Requests a second of each load, all of them at once, and what each is held by.
    fn rates(&self, loads: &[Load]) -> Option<Vec<(f64, Limit)>> {
        let demands: Option<Vec<Demand>> = loads.iter().map(|load| self.demand(load)).collect();
        let demands = demands?;
        let mut alone: Vec<(f64, Limit)> = Vec::new();
        for (load, demand) in loads.iter().zip(&demands) {
            let (busy, limit) = demand.busiest(self.drive.mix, self.free);
            let depth = f64::from(load.depth) / self.service(load);
            let asked = load
                .limit
                .map_or(f64::INFINITY, |most| most / load.bytes as f64);
            let least = [
                (1.0 / busy, limit),
                (depth, Limit::Depth),
                (asked, Limit::Asked),
            ];
            let least = least
                .into_iter()
                .min_by(|a, b| a.0.total_cmp(&b.0))
                .expect("three");
            alone.push(least);
        }
        let all = demands
            .iter()
            .zip(&alone)
            .fold(Demand::default(), |all, (demand, (rate, _))| {
                all.plus(demand.times(*rate))
            });
        let (busy, limit) = all.busiest(self.drive.mix, self.free);
        if busy > 1.0 + 1e-9 {
            // Together they share in proportion to what each has alone.
            for (rate, by) in &mut alone {
                *rate /= busy;
                *by = limit;
            }
        }
        Some(alone)
    }

    /// How busy a survivor is with these loads: reads/READ + writes/WRITE.
    fn busy(&self, loads: &[Load]) -> Option<(f64, f64)> {
        let rates = self.rates(loads)?;
        let mut all = Demand::default();
        for (load, (rate, _)) in loads.iter().zip(rates) {
            all = all.plus(self.demand(load)?.times(rate));
        }
        Some((all.reads, all.writes))
    }
}

/// How fast loads are that run at once; `None` where the state cannot be (a member lost without
/// redundancy). `share`: what a rebuild takes of the drives' time.
pub fn rates(
    drive: &Drive,
    shape: &Shape,
    host: &Host,
    loads: &[Load],
    state: State,
    share: Figure,
) -> Option<Vec<Rate>> {
    let at = |end: End| {
        let taken = match state {
            State::Rebuilding => end.less(share),
            _ => 0.0,
        };
        let case = Case {
            shape,
            drive: drive.at(end),
            host,
            end,
            state,
            free: (1.0 - taken).max(0.01),
        };
        let rates = case.rates(loads)?;
        let service: Vec<f64> = loads.iter().map(|load| case.service(load)).collect();
        Some((rates, service))
    };
    let (worst, best) = (at(End::Worst)?, at(End::Best)?);
    let rate = |n: usize| {
        let load = &loads[n];
        let ((low, slow), (high, fast)) = (worst.0[n], best.0[n]);
        let mut limits = vec![slow];
        if fast != slow {
            limits.push(fast);
        }
        let mut source = source_of(drive, host, loads, load, &limits);
        if state == State::Rebuilding && limits.contains(&Limit::Drives) {
            source = source.max(share.source);
        }
        let requests = Figure::range(low, high, source);
        // Little's law where requests wait, and never below a request that waits for nothing.
        let latency = |rate: f64, service: f64, limit: Limit| match limit {
            Limit::Asked | Limit::Depth => service,
            _ => (f64::from(load.depth) / rate).max(service),
        };
        Rate {
            requests_per_s: requests,
            bytes_per_s: requests.map(Source::Formula, |r| r * load.bytes as f64),
            latency_s: Figure::range(
                latency(low, worst.1[n], slow),
                latency(high, best.1[n], fast),
                source,
            ),
            limits,
        }
    };
    Some((0..loads.len()).map(rate).collect())
}

/// How busy drives of a group that lacks a member are with loads: reads, and writes, as shares.
pub(crate) fn busy(
    drive: &Drive,
    shape: &Shape,
    host: &Host,
    loads: &[Load],
    end: End,
) -> Option<(f64, f64)> {
    let case = Case {
        shape,
        drive: drive.at(end),
        host,
        end,
        state: State::Degraded,
        free: 1.0,
    };
    case.busy(loads)
}

/// The weakest source of what a load's rate is made of: of what limits it, and of nothing else.
fn source_of(drive: &Drive, host: &Host, loads: &[Load], load: &Load, limits: &[Limit]) -> Source {
    let of = |limit: &Limit| -> Vec<Source> {
        match limit {
            // Loads that run at once share the drives.
            Limit::Drives => loads.iter().flat_map(|l| of_drive(drive, l)).collect(),
            Limit::Links => {
                let uplink = host.uplink.map(|up| up.source);
                uplink.into_iter().chain([drive.link.source]).collect()
            }
            Limit::Cpu => {
                let device = host.device_iops.map(|most| most.source);
                let cpu = [host.cores, host.request, host.io].map(|f| f.source);
                let byte = (load.read_percent < 100).then_some(host.byte.source);
                cpu.into_iter().chain(byte).chain(device).collect()
            }
            Limit::Depth => {
                let reads = Some(drive.read_latency.source);
                let writes = (load.read_percent < 100).then_some(drive.write_latency.source);
                reads.into_iter().chain(writes).collect()
            }
            Limit::Engine => vec![Source::DataSheet],
            Limit::Asked => vec![Source::Given],
        }
    };
    let used = limits.iter().flat_map(of);
    used.fold(Source::Formula, Source::max)
}

/// Sources of the figures of a drive that hold a load.
fn of_drive(drive: &Drive, load: &Load) -> Vec<Source> {
    let (reads, writes) = (load.read_percent > 0, load.read_percent < 100);
    let mut used = Vec::new();
    if reads {
        used.push(if load.sequential {
            drive.read
        } else {
            drive.read_iops
        });
    }
    if writes {
        used.push(if load.sequential {
            drive.write
        } else {
            drive.write_iops
        });
    }
    if reads && writes {
        used.push(drive.mix);
    }
    used.into_iter().map(|figure| figure.source).collect()
}

#[cfg(test)]
mod tests {
    use strake_format::Level;

    use super::*;
    use crate::catalogue;
    use crate::engine::Engine;

    const NONE: Figure = Figure {
        low: 0.0,
        high: 0.0,
        source: Source::Given,
    };

    fn one(drive: &Drive, shape: &Shape, text: &str, state: State) -> Rate {
        let host = Host {
            cores: Figure::point(64.0, Source::Given),
            ..Host::default()
        };
        let loads = [text.parse().expect("a load")];
        let rates = rates(drive, shape, &host, &loads, state, NONE).expect("a state");
        rates.into_iter().next().expect("one")
    }

    fn p5336() -> Drive {
        catalogue::builtin().find("D5-P5336-61.44").expect("there")
    }

    fn five(strip: u64) -> Shape {
        Shape::new(Level::Raid5, 5, None, Some(strip), 16384).expect("a shape")
    }

    #[test]
    fn five_drives_of_the_first_study_do_what_five_drives_can() {
        let (drive, shape) = (p5336(), five(131_072));
        let read = one(&drive, &shape, "seq-read:512K:1024", State::Optimal);
        assert!(
            (read.bytes_per_s.high / 35e9 - 1.0).abs() < 0.01,
            "{read:?}"
        );
        let write = one(&drive, &shape, "seq-write:512K:1024", State::Optimal);
        assert!(
            (write.bytes_per_s.high / 13.2e9 - 1.0).abs() < 0.01,
            "{write:?}"
        );
        let random = one(&drive, &shape, "rand-read:4K:4096", State::Optimal);
        assert!(
            (random.requests_per_s.high / 5.025e6 - 1.0).abs() < 0.01,
            "{random:?}"
        );
        // 43 k writes of units a drive, two for each write; without a log 107.5 k.
        let bare = Shape {
            log: false,
            ..shape
        };
        let random = one(&drive, &bare, "rand-write:4K:4096", State::Optimal);
        assert!((random.requests_per_s.high / 107_500.0 - 1.0).abs() < 0.01);
        assert!((random.requests_per_s.low / 95_000.0 - 1.0).abs() < 0.01);
        let logged = one(&drive, &shape, "rand-write:4K:4096", State::Optimal);
        let costs = 1.0 - logged.requests_per_s.high / random.requests_per_s.high;
        assert!((0.01..0.15).contains(&costs), "{costs}");
    }

    #[test]
    fn a_rate_has_the_source_of_what_limits_it() {
        let (drive, shape, host) = (p5336(), five(131_072), Host::default());
        let of = |text: &str| {
            let loads = [text.parse().expect("a load")];
            let rates = rates(&drive, &shape, &host, &loads, State::Optimal, NONE);
            rates.expect("a state")[0].clone()
        };
        // Cores are assumed: that matters only where they are the limit.
        let read = of("seq-read:1M:256");
        assert_eq!(
            (&read.limits[..], read.bytes_per_s.source),
            (&[Limit::Drives][..], Source::Formula)
        );
        let deep = of("rand-read:4K:65536");
        assert!(deep.limits.contains(&Limit::Cpu));
        assert_eq!(deep.bytes_per_s.source, Source::Assumed);
        // The latency of this drive is in no data sheet of the catalogue.
        assert_eq!(of("rand-read:4K:1").bytes_per_s.source, Source::Assumed);
    }

    #[test]
    fn a_survivor_of_the_hurt_group_reads_twice() {
        // A drive that is limited by its reads: half the rate, whatever the number of groups.
        let drive = p5336();
        for (members, group) in [(24u8, 8u8), (16, 8), (40, 8)] {
            let shape = Shape::new(Level::Raid50, members, Some(group), Some(65536), 16384);
            let shape = shape.expect("a shape");
            let host = Host {
                cores: Figure::point(1e6, Source::Given),
                ..Host::default()
            };
            let loads = ["rand-read:4K:65536".parse().expect("a load")];
            let of = |state| {
                let rates = rates(&drive, &shape, &host, &loads, state, NONE).expect("a state");
                rates[0].requests_per_s.high
            };
            let ratio = of(State::Degraded) / of(State::Optimal);
            assert!((ratio - 0.5).abs() < 0.01, "{members}: {ratio}");
        }
    }

    #[test]
    fn few_requests_in_flight_are_the_limit_and_then_latency_is_the_drives() {
        let (drive, shape) = (p5336(), five(131_072));
        let read = one(&drive, &shape, "rand-read:4K:1", State::Optimal);
        assert_eq!(read.limits, [Limit::Depth]);
        assert!(read.latency_s.low >= drive.read_latency.low);
        assert!((read.requests_per_s.high * read.latency_s.low - 1.0).abs() < 1e-6);
        let asked = one(&drive, &shape, "seq-read:1M:64:1GB", State::Optimal);
        assert_eq!(asked.limits, [Limit::Asked]);
        assert!((asked.bytes_per_s.high - 1e9).abs() < 1.0);
    }

    #[test]
    fn cores_and_links_limit_what_drives_could() {
        let (drive, shape) = (p5336(), five(131_072));
        let loads = ["rand-read:4K:4096".parse().expect("a load")];
        let with = |host: Host| {
            let state = State::Optimal;
            let rates = rates(&drive, &shape, &host, &loads, state, NONE).expect("a state");
            rates[0].clone()
        };
        let one_core = Host {
            cores: Figure::point(1.0, Source::Given),
            ..Host::default()
        };
        let slow = with(one_core);
        assert_eq!(slow.limits, [Limit::Cpu]);
        // 270 k to 700 k of one core.
        assert!(slow.requests_per_s.low > 1.0 / 5.5e-6 && slow.requests_per_s.high < 1.0 / 1.7e-6);
        let narrow = Host {
            cores: Figure::point(1e6, Source::Given),
            uplink: Some(Figure::point(1e9, Source::Given)),
            ..Host::default()
        };
        let narrow = with(narrow);
        assert_eq!(narrow.limits, [Limit::Links]);
        assert!((narrow.bytes_per_s.high / 1e9 - 1.0).abs() < 1e-6);
    }

    #[test]
    fn more_of_anything_is_never_slower() {
        let shape = five(131_072);
        for text in [
            "rand-read:4K:256",
            "rand-write:4K:256",
            "rand-mixed70:16K:64",
            "seq-write:1M:8",
        ] {
            let of = |drive: &Drive| one(drive, &shape, text, State::Optimal).requests_per_s;
            let plain = of(&p5336());
            assert!(plain.low <= plain.high);
            let mut faster = p5336();
            for figure in [
                &mut faster.read,
                &mut faster.write,
                &mut faster.read_iops,
                &mut faster.write_iops,
            ] {
                *figure = figure.map(Source::Given, |v| v * 1.5);
            }
            assert!(
                of(&faster).low >= plain.low && of(&faster).high >= plain.high,
                "{text}"
            );
        }
        let deeper = |n: u32| {
            let load = format!("rand-mixed50:4K:{n}");
            one(&p5336(), &shape, &load, State::Optimal)
                .requests_per_s
                .low
        };
        assert!(deeper(1) < deeper(8) && deeper(8) <= deeper(1024));
    }

    #[test]
    fn a_rebuild_takes_its_share() {
        let (drive, shape) = (p5336(), five(131_072));
        let loads = ["seq-read:1M:256".parse().expect("a load")];
        let host = Host::default();
        let share = Figure::point(0.25, Source::Given);
        let of = |state| {
            let rates = rates(&drive, &shape, &host, &loads, state, share).expect("a state");
            rates[0].bytes_per_s.high
        };
        let ratio = of(State::Rebuilding) / of(State::Degraded);
        assert!((ratio - 0.75).abs() < 0.01, "{ratio}");
    }

    fn md(members: u8, group: u8, load: &str, state: State) -> Rate {
        let drive = catalogue::builtin().find("PM1733-1.92").expect("there");
        let shape = Shape::new(Level::Raid50, members, Some(group), Some(65_536), 4096);
        let host = Host {
            engine: Engine::Md,
            cores: Figure::point(64.0, Source::Given),
            ..Host::default()
        };
        let share = Figure::point(0.05, Source::Given);
        let loads = [load.parse().expect("a load")];
        let all = rates(
            &drive,
            &shape.expect("a shape"),
            &host,
            &loads,
            state,
            share,
        );
        all.expect("a state").remove(0)
    }

    #[test]
    fn two_measurements_of_md_predict_its_degraded_reads() {
        // S3: 200 k random writes, from which the rows are; 200 k degraded reads, which are not.
        let write = md(24, 8, "rand-write:4K:4608", State::Optimal).requests_per_s;
        assert!((write.low / 200e3 - 1.0).abs() < 0.01, "{write:?}");
        let hurt = md(24, 8, "rand-read:4K:4608", State::Degraded);
        let rate = hurt.requests_per_s;
        assert!(
            rate.low <= 200.1e3 && (200e3..240e3).contains(&rate.high),
            "{rate:?}"
        );
        assert_eq!(hurt.limits, [Limit::Engine]);
        let read = md(24, 8, "rand-read:4K:4608", State::Optimal).requests_per_s;
        assert!((read.low / 1.9e6 - 1.0).abs() < 0.01, "{read:?}");
        // Two groups have two threads.
        let one = md(16, 8, "rand-write:4K:4608", State::Optimal).requests_per_s;
        assert!((one.low / write.low - 2.0 / 3.0).abs() < 0.01, "{one:?}");
    }
}

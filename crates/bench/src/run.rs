//! The order of a run: each level in the states optimal, degraded, rebuilding, and, where two
//! members may be lost, degraded twice; in each state, rounds of raw members and the array in
//! turns.
//!
//! Invariant: raw members and array are measured right after one another, load by load, so that
//! both sides of a fraction see the same machine.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use strake_format::{Level, Settings, WriteHole};

use crate::Options;
use crate::array::{Rebuilt, STRIP, Shape, Subjected};
use crate::ceiling::Need;
use crate::load::{self, Limit, Load};
use crate::meter::{Sample, Subject, median};
use crate::raw::Raw;
use crate::report::{Ceiling, Closed, Machine, RebuildRow, Report, Series, Setup};
use crate::room::{self, Room};
use crate::stamp::Patterns;

const SHAPES: [(&str, Shape); 2] = [
    (
        "5",
        Shape {
            level: Level::Raid5,
            k: 4,
            m: 1,
        },
    ),
    (
        "6",
        Shape {
            level: Level::Raid6,
            k: 4,
            m: 2,
        },
    ),
];
const POLICIES: [(&str, WriteHole); 2] =
    [("resync", WriteHole::Resync), ("closed", WriteHole::Closed)];
/// The rate of members' own reads and writes in a rebuild.
const WHOLE: usize = 1 << 20;
/// A target is so many times the p99 of the same load on the same array with no rebuild beside it.
const TARGET_OF_ALONE: f64 = 2.0;
/// The same in a smoke run, in which rebuilds must end soon whatever the machine does.
const TARGET_OF_ALONE_IN_SMOKE: f64 = 1000.0;

type Foreground = (Load, WriteHole, Option<&'static str>, bool);

/// What one run is made of.
struct Run<'a> {
    options: &'a Options,
    loads: Vec<Load>,
    rounds: usize,
    limit: Limit,
    check: bool,
    report: Report,
}

/// Runs everything that was asked for.
pub(crate) fn all(options: &Options) -> Result<Report> {
    let room = Room::open(&options.dir)?;
    let shapes: Vec<Shape> = SHAPES
        .iter()
        .filter(|(name, _)| options.level.is_empty() || options.level.iter().any(|l| l == name))
        .map(|&(_, shape)| shape)
        .collect();
    let widest = shapes.iter().map(|shape| shape.members()).max();
    let widest = widest.context("a level to measure")?;
    let (rounds, seconds, mib) = match options.smoke {
        true => (1, 0.03, 64),
        false => (5, 0.2, 256),
    };
    let rounds = options.rounds.unwrap_or(rounds).max(1);
    let seconds = options.seconds.unwrap_or(seconds);
    ensure!(seconds > 0.0, "a measurement takes some time");
    let wanted = room::sound(options.member_mib.unwrap_or(mib) << 20)?;
    // Raw members, the array's, and the one that a rebuild writes.
    let member_bytes = room.member_bytes(wanted, 2 * widest + 1)?;
    if !room.in_memory {
        eprintln!("note: {} is not in memory", options.dir.display());
    }
    let only = options.only.as_deref().unwrap_or_default();
    let mut run = Run {
        options,
        loads: load::all()
            .into_iter()
            .filter(|load| load.name().contains(only))
            .collect(),
        rounds,
        limit: Limit::Time(Duration::from_secs_f64(seconds)),
        check: options.smoke,
        report: Report {
            machine: Machine::look(room.in_memory),
            setup: Setup {
                jobs: options.jobs,
                rounds,
                seconds,
                member_bytes,
                strip_bytes: STRIP,
                smoke: options.smoke,
            },
            rows: Vec::new(),
            closed: Vec::new(),
            rebuilds: Vec::new(),
        },
    };
    ensure!(!run.loads.is_empty(), "no load's name contains {only:?}");
    for shape in shapes {
        let place = room.folder.path().join(shape.level.to_string());
        std::fs::create_dir(&place)?;
        run.shape(shape, &place, member_bytes)?;
        std::fs::remove_dir_all(&place)?;
    }
    ensure!(
        !(run.report.rows.is_empty() && run.report.rebuilds.is_empty()),
        "nothing was measured: the levels have no such load in such a state"
    );
    Ok(run.report)
}

/// The measurements of one load in one state.
struct Measured {
    load: Load,
    raw: Series,
    /// One for reads; for writes one of each policy, in order.
    array: Vec<Series>,
}

impl Run<'_> {
    fn wants(&self, state: &str) -> bool {
        self.options.state.is_empty() || self.options.state.iter().any(|s| s == state)
    }

    fn shape(&mut self, shape: Shape, place: &std::path::Path, member_bytes: u64) -> Result<()> {
        let (patterns, jobs) = (Arc::new(Patterns::new()), self.options.jobs);
        let mut raw = Raw::new(place, shape.members(), member_bytes, jobs, &patterns)?;
        let mut array = Subjected::new(place, shape, member_bytes, jobs, &patterns)?;
        array.verify().context("after the first writes")?;
        if self.wants("optimal") {
            self.state(&mut raw, &mut array, 0)?;
        }
        let mut lost = 0;
        if self.wants("degraded") || self.wants("rebuilding") {
            array.fail(0)?;
            lost = 1;
            array.verify().context("after a member was lost")?;
        }
        if self.wants("degraded") {
            self.state(&mut raw, &mut array, 1)?;
        }
        if self.wants("rebuilding") {
            self.rebuilding(&mut raw, &mut array)?;
            lost = 0;
        }
        if self.wants("degraded twice") && shape.m >= 2 {
            (lost..2).try_for_each(|slot| array.fail(slot))?;
            array.verify().context("after two members were lost")?;
            self.state(&mut raw, &mut array, 2)?;
        }
        raw.verify().context("of the raw members")?;
        raw.close()?;
        array.close()
    }

    /// All loads of one state.
    fn state(&mut self, raw: &mut Raw, array: &mut Subjected, lost: u64) -> Result<()> {
        let state = ["optimal", "degraded", "degraded twice"][usize::try_from(lost)?];
        let twice = load::twice();
        let mut all: Vec<Measured> = self
            .loads
            .iter()
            .filter(|load| lost < 2 || twice.contains(load))
            .map(|&load| Measured {
                load,
                raw: Series::default(),
                array: vec![Series::default(); if load.write { POLICIES.len() } else { 1 }],
            })
            .collect();
        for round in 0..self.rounds {
            eprintln!("{} {state}: round {}", array.shape.level, round + 1);
            for one in &mut all {
                self.measure(raw, array, lost, one)?;
            }
        }
        array
            .verify()
            .with_context(|| format!("{state}, at the end"))?;
        let subject = name(array.shape);
        let raw_name = format!("raw of {}", array.shape.members());
        for one in &all {
            let row = one.raw.row((&raw_name, state), one.load, None);
            self.report.rows.push(row);
        }
        for one in &all {
            for (series, (policy, _)) in one.array.iter().zip(POLICIES) {
                let policy = one.load.write.then_some(policy);
                let row = series.row((&subject, state), one.load, policy);
                self.report.rows.push(row);
            }
            if let [resync, closed] = &one.array[..] {
                let side_by_side = beside(&subject, state, one.load, resync, closed);
                self.report.closed.push(side_by_side);
            }
        }
        Ok(())
    }

    /// One load once: raw, then the array, with each policy where that matters.
    fn measure(
        &self,
        raw: &mut Raw,
        array: &mut Subjected,
        lost: u64,
        one: &mut Measured,
    ) -> Result<()> {
        let load = one.load;
        let (ground, ceiling) = self.ground(raw, array.shape, lost, load)?;
        one.raw.samples.push(ground);
        for (series, (_, policy)) in one.array.iter_mut().zip(POLICIES) {
            if load.write {
                array.set_policy(policy)?;
            }
            series
                .samples
                .push(array.run(load, &self.limit, self.check)?);
            series.ceilings.push(ceiling);
        }
        Ok(())
    }

    /// What raw members make of a load, and the ceiling of an array that misses so many members.
    fn ground(
        &self,
        raw: &mut Raw,
        shape: Shape,
        lost: u64,
        load: Load,
    ) -> Result<(Sample, Ceiling)> {
        let need = Need::of(shape, lost, load);
        let ground = raw.run(load, &self.limit, self.check)?;
        let mut read = (ground.requests_per_s, ground.cpu_ns);
        if load.write && need.reads > 0.0 {
            let load = Load::new(false, load.random, load.bytes);
            let sample = raw.run(load, &self.limit, self.check)?;
            read = (sample.requests_per_s, sample.cpu_ns);
        }
        let ceiling = Ceiling {
            requests_per_s: need.ceiling(read.0, ground.requests_per_s),
            cpu_ns: need.cpu(read.1, ground.cpu_ns),
        };
        Ok((ground, ceiling))
    }

    /// Rebuilds, idle and beside loads; the array misses slot 0 before, and another slot after.
    fn rebuilding(&mut self, raw: &mut Raw, array: &mut Subjected) -> Result<()> {
        let foreground = self.foreground();
        let mut idle = Rebuilds::default();
        let mut beside = vec![(Rebuilds::default(), Series::default()); foreground.len()];
        let (shape, subject) = (array.shape, name(array.shape));
        let mut slot = 0;
        for round in 0..self.rounds {
            eprintln!("{} rebuilding: round {}", shape.level, round + 1);
            let ceiling = self.rebuild_ceiling(raw, shape)?;
            let (rebuilt, _) = array.rebuild(slot, None)?;
            idle.push(rebuilt, ceiling);
            let mut grounds: Vec<(Load, Ceiling)> = Vec::new();
            for ((load, policy, _, aims), (rebuilds, series)) in foreground.iter().zip(&mut beside)
            {
                slot = (slot + 1) % shape.members();
                if grounds.last().is_none_or(|(of, _)| of != load) {
                    grounds.push((*load, self.ground(raw, shape, 1, *load)?.1));
                }
                array.set_policy(*policy)?;
                array.fail(slot)?;
                // The first run after it still feels the member that goes: its file is given back.
                array.run(*load, &self.limit, self.check)?;
                let alone = array.run(*load, &self.limit, self.check)?;
                let alone_us = p99_us(&alone);
                let most_us = f64::from(Settings::LATENCY_TARGET_US_MAX);
                let wanted_us = alone_us * self.target_of_alone();
                let target_us = aims.then(|| wanted_us.ceil().min(most_us));
                array.set_target(target_us.map_or(0, |us| us as u32))?;
                let (rebuilt, sample) = array.rebuild(slot, Some((*load, self.check)))?;
                rebuilds.push(rebuilt, ceiling);
                if let Some(sample) = sample {
                    rebuilds.beside.push(Beside {
                        alone_us,
                        p99_us: p99_us(&sample),
                        target_us,
                    });
                    series.samples.push(sample);
                    series.ceilings.extend(grounds.last().map(|(_, of)| *of));
                }
            }
            array.set_target(0)?;
            array.verify().context("after rebuilds")?;
            if round + 1 < self.rounds {
                slot = (slot + 1) % shape.members();
                array.fail(slot)?;
            }
        }
        self.report
            .rebuilds
            .push(idle.row(&subject, shape.k, "idle".to_owned()));
        for ((load, _, policy, aims), (rebuilds, series)) in foreground.iter().zip(&beside) {
            let state = if *aims { "throttled" } else { "rebuilding" };
            let row = series.row((&subject, state), *load, *policy);
            self.report.rows.push(row);
            let aim = if *aims { "target" } else { "" };
            let what = [load.name().as_str(), policy.unwrap_or_default(), aim].join(" ");
            let row = rebuilds.row(&subject, shape.k, what.trim_end().to_owned());
            self.report.rebuilds.push(row);
        }
        Ok(())
    }

    /// What runs beside rebuilds: a load, the policy, its name where it matters, and whether the
    /// rebuild aims at a latency. What is of the same load stands together.
    fn foreground(&self) -> Vec<Foreground> {
        let random = |write| Load::new(write, true, 4 << 10);
        let sequential = |write| Load::new(write, false, 512 << 10);
        let (resync, closed) = (Some("resync"), Some("closed"));
        let all = [
            (random(false), WriteHole::Closed, None, false),
            (random(false), WriteHole::Closed, None, true),
            (random(true), WriteHole::Resync, resync, false),
            (random(true), WriteHole::Closed, closed, false),
            (random(true), WriteHole::Closed, closed, true),
            (sequential(false), WriteHole::Closed, None, false),
            (sequential(true), WriteHole::Resync, resync, false),
            (sequential(true), WriteHole::Closed, closed, false),
        ];
        let wanted = all
            .into_iter()
            .filter(|(load, ..)| self.loads.contains(load));
        wanted.collect()
    }

    fn target_of_alone(&self) -> f64 {
        match self.options.smoke {
            true => TARGET_OF_ALONE_IN_SMOKE,
            false => TARGET_OF_ALONE,
        }
    }

    fn rebuild_ceiling(&self, raw: &mut Raw, shape: Shape) -> Result<RebuildCeiling> {
        let mut rate = |write, one_lane| -> Result<f64> {
            let mut load = Load::new(write, false, WHOLE);
            load.one_lane = one_lane;
            let sample: Sample = raw.run(load, &self.limit, self.check)?;
            Ok(sample.requests_per_s * WHOLE as f64)
        };
        let (reads, writes) = (rate(false, false)?, rate(true, false)?);
        let need = Need {
            reads: shape.k as f64,
            writes: 1.0,
        };
        Ok(RebuildCeiling {
            all: need.ceiling(reads, writes),
            one_member: rate(true, true)?,
        })
    }
}

fn name(shape: Shape) -> String {
    format!("RAID {} {}+{}", shape.level, shape.k, shape.m)
}

fn beside(
    subject: &str,
    state: &'static str,
    load: Load,
    resync: &Series,
    closed: &Series,
) -> Closed {
    let shares = resync.rates().zip(closed.rates()).map(|(r, c)| c / r);
    Closed {
        subject: subject.to_owned(),
        state,
        load: load.name(),
        resync_requests_per_s: median(resync.rates()),
        closed_requests_per_s: median(closed.rates()),
        closed_of_resync: median(shares),
    }
}

/// What a rebuild could reach, bytes per second.
#[derive(Clone, Copy)]
struct RebuildCeiling {
    /// By its k reads and one write.
    all: f64,
    /// By one member's sequential writes.
    one_member: f64,
}

/// What a load beside a rebuild saw: its p99 without the rebuild and with it, and the target.
#[derive(Clone, Copy)]
struct Beside {
    alone_us: f64,
    p99_us: f64,
    target_us: Option<f64>,
}

fn p99_us(sample: &Sample) -> f64 {
    sample.latencies_ns.value_at_quantile(0.99) as f64 / 1e3
}

/// The rebuilds of one kind, one of each round, with their ceilings, and what the loads saw.
#[derive(Clone, Default)]
struct Rebuilds {
    all: Vec<(Rebuilt, RebuildCeiling)>,
    beside: Vec<Beside>,
}

impl Rebuilds {
    fn push(&mut self, rebuilt: Rebuilt, ceiling: RebuildCeiling) {
        self.all.push((rebuilt, ceiling));
    }

    fn row(&self, subject: &str, data_strips: u64, beside: String) -> RebuildRow {
        let rates = || self.all.iter().map(|(rebuilt, _)| rebuilt.bytes_per_s);
        let cpu = self.all.iter().map(|(rebuilt, _)| rebuilt.cpu_ns_per_mib);
        let all = || self.all.iter().map(|(_, ceiling)| ceiling.all);
        let one = || self.all.iter().map(|(_, ceiling)| ceiling.one_member);
        let middle = |value: fn(&Beside) -> Option<f64>| {
            let values: Option<Vec<f64>> = self.beside.iter().map(value).collect();
            values.filter(|values| !values.is_empty()).map(median)
        };
        RebuildRow {
            subject: subject.to_owned(),
            beside,
            data_strips,
            bytes_per_s: median(rates()),
            cpu_us_per_mib: median(cpu) / 1e3,
            ceiling_bytes_per_s: median(all()),
            of_ceiling: median(rates().zip(all()).map(|(rate, all)| rate / all)),
            one_member_bytes_per_s: median(one()),
            of_one_member: median(rates().zip(one()).map(|(rate, one)| rate / one)),
            alone_p99_us: middle(|beside| Some(beside.alone_us)),
            beside_p99_us: middle(|beside| Some(beside.p99_us)),
            target_us: middle(|beside| beside.target_us),
            of_target: middle(|beside| beside.target_us.map(|us| beside.p99_us / us)),
        }
    }
}

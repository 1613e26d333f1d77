//! What the guest has left in the shared folder, as figures: medians over rounds, ceilings, ratios.
//!
//! **Ceilings** are those of `docs/benchmarks.md`: what the raw drives of the same round would make
//! of the least drive I/O that the request needs. They are worked out here anew because xtask
//! depends on no crate of the product.
//!
//! Invariant: ratios and ceilings are taken within a round, and only then is the median taken.

use super::report::{Cpu, SECTOR, Sample, TICKS_PER_S, Window};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What is measured, in the order of the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    pub(super) level: String,
    /// `optimal`, then `degraded`: the alphabet has it the other way round.
    pub(super) degraded: bool,
    /// Place of the load in the order of measurement.
    order: usize,
    pub(super) load: String,
}

impl Row {
    /// For people.
    fn label(&self) -> String {
        let state = if self.degraded { "degraded" } else { "optimal" };
        format!("RAID {} {state} {}", self.level, words(&self.load))
    }
}

/// One rebuild.
#[derive(Clone, Debug)]
pub(super) struct Rebuild {
    pub(super) bytes_per_s: f64,
    /// Of the whole guest, from the word that begins the rebuild until it is done.
    pub(super) cpu: Cpu,
    /// Sequential writes to one raw drive, of the same round: a rebuild writes as much, and reads
    /// besides.
    pub(super) ceiling: f64,
    /// The load beside it, if there was one.
    pub(super) beside: Option<Beside>,
}

/// A load with a rebuild beside it, and the same load right before that.
#[derive(Clone, Debug)]
pub(super) struct Beside {
    pub(super) with: Sample,
    pub(super) alone: Sample,
}

/// An open array of each side with nothing to do: CPU time as a share of one CPU.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Idle {
    pub(super) level: String,
    pub(super) seconds: f64,
    /// Of Strake's daemon, all threads.
    pub(super) daemon: f64,
    /// Of the threads that md has for its array.
    pub(super) md: f64,
    /// Of the whole guest: both, and what a machine does anyway.
    pub(super) guest: f64,
}

/// A line of the list: level, nanoseconds, ticks of the daemon, nanoseconds of md's threads, ticks
/// in which the CPUs were idle.
fn idle(line: &str, cpus: u32) -> Result<Idle> {
    let words: Vec<&str> = line.split(' ').collect();
    let &[level, nanoseconds, daemon, md, idle] = &words[..] else {
        bail!("not an idle array: {line}");
    };
    let window = Window::parse(cpus, [nanoseconds, idle, "0"]).context(line.to_owned())?;
    let number = |word: &str| -> Result<f64> { Ok(word.parse::<u64>()? as f64) };
    Ok(Idle {
        level: level.to_owned(),
        seconds: window.seconds,
        daemon: number(daemon)? / TICKS_PER_S / window.seconds,
        md: number(md)? / 1e9 / window.seconds,
        guest: window.busy_s() / window.seconds,
    })
}

/// A subject's rebuilds beside one load.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RebuildRow {
    pub(super) level: String,
    order: usize,
    pub(super) beside: String,
    pub(super) subject: String,
}

/// By round.
type Rounds<T> = BTreeMap<u64, T>;

/// See the module.
#[derive(Default)]
pub(super) struct Results {
    pub(super) rows: BTreeMap<Row, BTreeMap<String, Rounds<Sample>>>,
    pub(super) rebuilds: BTreeMap<RebuildRow, Rounds<Rebuild>>,
    pub(super) idle: Vec<Idle>,
    /// Drives are held to a rate: each that is lost takes its part of the raw rates with it.
    pub(super) held: bool,
}

/// The middle one, or the mean of the two in the middle.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

impl Results {
    /// Reads the lists of measurements, and fio's report for each.
    pub(super) fn read(share: &Path, cpus: u32) -> Result<Results> {
        let list = |name: &str| {
            let path = share.join(name);
            fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        let report = |number: &str| -> Result<Sample> {
            let path = share.join("fio").join(format!("{number}.json"));
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            Sample::parse(&text).with_context(|| path.display().to_string())
        };
        let mut results = Results::default();
        for line in list("rows")?.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let &[
                level,
                state,
                load,
                subject,
                round,
                number,
                read,
                wrote,
                ref window @ ..,
            ] = &words[..]
            else {
                bail!("not a measurement: {line}");
            };
            let mut sample = report(number)?;
            let window = Window::parse(cpus, three(window).context(line.to_owned())?)?;
            let cpu = window.cpu(Some(sample.request_bytes()));
            sample.cpu = Some(cpu.with_context(|| line.to_owned())?);
            let each = SECTOR / sample.asked;
            sample.drives_read = read.parse::<f64>()? * each;
            sample.drives_wrote = wrote.parse::<f64>()? * each;
            results.add(level, state, load, subject, round.parse()?, sample);
        }
        let mut drives = BTreeMap::new();
        for line in list("drives")?.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let &[level, round, number] = &words[..] else {
                bail!("not a measurement of one drive: {line}");
            };
            let rate = report(number)?.bytes_per_s;
            drives.insert((level.to_owned(), round.parse()?), rate);
        }
        for line in list("rebuilds")?.lines() {
            results.add_rebuild(line, cpus, &drives, report)?;
        }
        let idle = |line| idle(line, cpus);
        results.idle = list("idle")?.lines().map(idle).collect::<Result<_>>()?;
        results.check()?;
        Ok(results)
    }

    fn add(&mut self, level: &str, state: &str, load: &str, subject: &str, round: u64, s: Sample) {
        let known = self.rows.keys().find(|row| row.load == load);
        let row = Row {
            level: level.to_owned(),
            degraded: state == "degraded",
            order: known.map_or(self.rows.len(), |row| row.order),
            load: load.to_owned(),
        };
        let subjects = self.rows.entry(row).or_default();
        let rounds = subjects.entry(subject.to_owned()).or_default();
        rounds.insert(round, s);
    }

    /// A line of the list of rebuilds; `drives` has what one raw drive made in each round.
    fn add_rebuild(
        &mut self,
        line: &str,
        cpus: u32,
        drives: &BTreeMap<(String, u64), f64>,
        report: impl Fn(&str) -> Result<Sample>,
    ) -> Result<()> {
        let words: Vec<&str> = line.split(' ').collect();
        let &[
            level,
            subject,
            beside,
            round,
            bytes,
            nanoseconds,
            with,
            alone,
            idle,
            sectors,
        ] = &words[..]
        else {
            bail!("not a rebuild: {line}");
        };
        let round = round.parse()?;
        let ceiling = drives.get(&(level.to_owned(), round));
        let load = || -> Result<Beside> {
            let (with, alone) = (report(with)?, report(alone)?);
            Ok(Beside { with, alone })
        };
        let beside_it = (with != "0").then(load).transpose()?;
        let window = Window::parse(cpus, [nanoseconds, idle, sectors])?;
        let request_bytes = beside_it.as_ref().map(|it| it.with.request_bytes());
        let cpu = window.cpu(request_bytes);
        let rebuild = Rebuild {
            bytes_per_s: bytes.parse::<f64>()? / window.seconds,
            cpu: cpu.with_context(|| line.to_owned())?,
            ceiling: *ceiling.with_context(|| format!("no raw drive beside it: {line}"))?,
            beside: beside_it,
        };
        let row = RebuildRow {
            level: level.to_owned(),
            order: self.rebuilds.len(),
            beside: beside.to_owned(),
            subject: subject.to_owned(),
        };
        let same = |known: &&RebuildRow| {
            (&known.level, &known.beside, &known.subject) == (&row.level, &row.beside, &row.subject)
        };
        let row = self.rebuilds.keys().find(same).cloned().unwrap_or(row);
        self.rebuilds.entry(row).or_default().insert(round, rebuild);
        Ok(())
    }

    /// All subjects of a row were measured in the same rounds, the raw drives among them; and each
    /// level's array has been idle.
    fn check(&self) -> Result<()> {
        if self.rows.is_empty() {
            bail!("nothing was measured");
        }
        for (row, subjects) in &self.rows {
            let Some(raw) = subjects.get("raw") else {
                bail!("{} was not measured on raw drives", row.load);
            };
            let rounds = |of: &Rounds<Sample>| of.keys().copied().collect::<Vec<_>>();
            for (subject, of) in subjects {
                if rounds(of) != rounds(raw) {
                    bail!("{subject} misses rounds of {}", row.load);
                }
            }
            if !self.idle.iter().any(|idle| idle.level == row.level) {
                bail!("RAID {} was not measured idle", row.level);
            }
        }
        Ok(())
    }

    pub(super) fn rounds(&self) -> usize {
        let subjects = self.rows.values().flat_map(BTreeMap::values);
        subjects.map(BTreeMap::len).max().unwrap_or(0)
    }

    /// The ceiling of a row in each round, requests per second.
    pub(super) fn ceilings(&self, row: &Row) -> Rounds<f64> {
        let need = Need::of(row);
        let raw = |load: &str| {
            let same = |of: &&Row| {
                (&of.level, of.degraded, of.load.as_str()) == (&row.level, row.degraded, load)
            };
            let found = self.rows.keys().find(same);
            found.and_then(|of| self.rows[of].get("raw"))
        };
        let (reads, writes) = (
            raw(&row.load.replace("write", "read")),
            raw(&row.load.replace("read", "write")),
        );
        // Raw rates are those of all drives. Where CPUs are the limit, fewer would give no less.
        let there = match self.held && row.degraded {
            true => 1.0 - 1.0 / Need::drives(row),
            false => 1.0,
        };
        let rate = |of: Option<&Rounds<Sample>>, round: u64| Some(of?.get(&round)?.iops * there);
        let ceiling = |round: u64| {
            let part = |need: f64, of| match need {
                0.0 => Some(0.0),
                _ => Some(need / rate(of, round)?),
            };
            Some(1.0 / (part(need.reads, reads)? + part(need.writes, writes)?))
        };
        let rounds = self.rows[row]["raw"].keys();
        rounds.filter_map(|r| Some((*r, ceiling(*r)?))).collect()
    }

    /// The median of the quotients of rates within rounds.
    pub(super) fn ratio(&self, row: &Row, subject: &str, of: &str) -> Option<f64> {
        self.ratio_by(row, subject, of, |sample| Some(sample.iops))
    }

    /// The same of requests for each second of CPU time.
    pub(super) fn ratio_per_core(&self, row: &Row, subject: &str, of: &str) -> Option<f64> {
        self.ratio_by(row, subject, of, Sample::requests_per_core)
    }

    fn ratio_by(
        &self,
        row: &Row,
        subject: &str,
        of: &str,
        by: fn(&Sample) -> Option<f64>,
    ) -> Option<f64> {
        let subjects = &self.rows[row];
        let (one, other) = (subjects.get(subject)?, subjects.get(of)?);
        let quotient = |(round, s): (&u64, &Sample)| Some(by(s)? / by(&other[round])?);
        median(one.iter().filter_map(quotient))
    }

    /// Strake's requests for each second of CPU time as a multiple of md's, for each row.
    pub(super) fn per_core_beside_md(&self) -> Vec<BesideMd> {
        let beside = |row| self.row_beside_md(row, Self::ratio_per_core);
        self.rows.keys().filter_map(beside).collect()
    }

    /// Strake's rate as a multiple of md's, for each row and each rebuild.
    pub(super) fn beside_md(&self) -> Vec<BesideMd> {
        let beside = |row| self.row_beside_md(row, Self::ratio);
        let rows = self.rows.keys().filter_map(beside);
        let rebuilds = self.rebuilds.keys().filter(|row| row.subject == "strake");
        rows.chain(rebuilds.filter_map(|row| self.rebuild_beside_md(row)))
            .collect()
    }

    /// What closing the write hole leaves of the rate, for each row of writes.
    pub(super) fn closed_beside_resync(&self) -> Vec<(String, f64)> {
        let ratio = |row: &Row| Some((row.label(), self.ratio(row, "strake", "strake+resync")?));
        self.rows.keys().filter_map(ratio).collect()
    }

    fn row_beside_md(
        &self,
        row: &Row,
        ratio: fn(&Results, &Row, &str, &str) -> Option<f64>,
    ) -> Option<BesideMd> {
        let ratios = PAIRS.iter().filter_map(|&(ours, theirs)| {
            let plain = !row.load.contains("write");
            let name = if plain {
                String::new()
            } else {
                format!("{ours} / {theirs}")
            };
            Some((name, ratio(self, row, ours, theirs)?))
        });
        let ratios: Vec<_> = ratios.collect();
        (!ratios.is_empty()).then(|| BesideMd {
            label: row.label(),
            ratios,
        })
    }

    fn rebuild_beside_md(&self, row: &RebuildRow) -> Option<BesideMd> {
        let md = |known: &&RebuildRow| {
            known.subject == "md" && (&known.level, &known.beside) == (&row.level, &row.beside)
        };
        let md = &self.rebuilds[self.rebuilds.keys().find(md)?];
        let quotient =
            |(round, r): (&u64, &Rebuild)| md.get(round).map(|md| r.bytes_per_s / md.bytes_per_s);
        let ratio = median(self.rebuilds[row].iter().filter_map(quotient))?;
        Some(BesideMd {
            label: format!("RAID {} rebuild, {}", row.level, words(&row.beside)),
            ratios: vec![(String::new(), ratio)],
        })
    }
}

/// One line of what Strake is beside md.
pub(super) struct BesideMd {
    pub(super) label: String,
    /// Of which to which (nothing where there is but one), and the ratio.
    pub(super) ratios: Vec<(String, f64)>,
}

/// What is comparable: without a bitmap md resyncs everything after a crash, with one the regions
/// that were written, as Strake with the policy `resync` does; its partial parity log closes the
/// write hole of RAID 5, as Strake does on every level with `closed` (`strake`).
const PAIRS: [(&str, &str); 4] = [
    ("strake", "md"),
    ("strake+resync", "md"),
    ("strake+resync", "md+bitmap"),
    ("strake", "md+ppl"),
];

/// The words of a window at the end of a line.
fn three<'a>(words: &[&'a str]) -> Result<[&'a str; 3]> {
    words.try_into().context("a window has three words")
}

/// A load's name for people.
pub(super) fn words(load: &str) -> String {
    load.replace('-', " ")
}

/// Drive I/O that one request needs at least, each of the request's size: see `docs/benchmarks.md`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Need {
    reads: f64,
    writes: f64,
}

impl Need {
    fn drives(row: &Row) -> f64 {
        if row.level == "6" { 6.0 } else { 5.0 }
    }

    fn of(row: &Row) -> Need {
        let (k, n) = (4.0, Need::drives(row));
        let m = n - k;
        let (write, random) = (row.load.contains("write"), row.load.contains("random"));
        // A stripe is 512 KiB: sequential reads of 512K are whole ones.
        let (reads, writes) = match (write, random, row.degraded) {
            (false, true, true) => ((n - 1.0) / n + k / n, 0.0),
            (false, _, _) => (1.0, 0.0),
            (true, false, lost) => (0.0, (n - f64::from(u8::from(lost))) / k),
            (true, true, false) => ((1.0 + m).min(k - 1.0), 1.0 + m),
            (true, true, true) => {
                let fewer = if m == 1.0 { 0.0 } else { m.min(k - 1.0) };
                let reads = (k - 1.0) + m * fewer + (k - 1.0) * (1.0 + m);
                let writes = m + m * m + (k - 1.0) * (1.0 + m);
                (reads / n, writes / n)
            }
        };
        Need { reads, writes }
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::sample_of;
    use super::*;

    fn results(samples: &[(&str, &str, u64, f64)]) -> Results {
        let mut results = Results::default();
        for &(load, subject, round, iops) in samples {
            results.add("5", "optimal", load, subject, round, sample_of(iops));
        }
        results
    }

    #[test]
    fn a_ceiling_is_taken_from_the_raw_rates_of_its_own_round() {
        let results = results(&[
            ("random-read-4K", "raw", 1, 100.0),
            ("random-write-4K", "raw", 1, 50.0),
            ("random-read-4K", "raw", 2, 200.0),
            ("random-write-4K", "raw", 2, 100.0),
        ]);
        let row = results.rows.keys().find(|row| row.load.contains("write"));
        let ceilings = results.ceilings(row.expect("it is there"));
        // Two reads and two writes: 2/100 + 2/50 of a second.
        assert!((ceilings[&1] - 100.0 / 6.0).abs() < 1e-9);
        assert!((ceilings[&2] - 200.0 / 6.0).abs() < 1e-9);
    }

    #[test]
    fn a_drive_that_is_lost_takes_its_part_of_the_rate_with_it_where_drives_are_the_limit() {
        let mut results = Results::default();
        let load = "sequential-write-512K";
        results.add("5", "degraded", load, "raw", 1, sample_of(500.0));
        let row = results.rows.keys().next().expect("it is there").clone();
        // Four strips for each stripe, to as many drives.
        assert!((results.ceilings(&row)[&1] - 500.0).abs() < 1e-9);
        results.held = true;
        assert!((results.ceilings(&row)[&1] - 400.0).abs() < 1e-9);
    }

    #[test]
    fn ratios_are_medians_of_quotients_within_rounds() {
        let load = "random-read-4K";
        let results = results(&[
            (load, "raw", 1, 1.0),
            (load, "md", 1, 10.0),
            (load, "strake", 1, 20.0),
            (load, "md", 2, 100.0),
            (load, "strake", 2, 300.0),
            (load, "md", 3, 1.0),
            (load, "strake", 3, 5.0),
        ]);
        assert_eq!(results.beside_md()[0].ratios, [(String::new(), 3.0)]);
        assert!(results.check().is_err(), "raw misses rounds");
    }

    #[test]
    fn a_level_that_was_never_idle_is_no_result() {
        let mut results = results(&[("random-read-4K", "raw", 1, 1.0)]);
        assert!(results.check().is_err());
        results.idle.extend(idle("5 1000000000 0 0 200", 2));
        assert!(results.check().is_ok());
    }

    #[test]
    fn a_rebuild_stands_beside_one_raw_drive_of_its_own_round() {
        let drives = BTreeMap::from([(("5".to_owned(), 1), 1e8), (("5".to_owned(), 2), 2e8)]);
        let report = |number: &str| Ok(sample_of(number.parse()?));
        let mut results = Results::default();
        for line in [
            "5 strake idle 1 100000000 2000000000 0 0 100 0",
            "5 strake random-read-4K 1 100000000 4000000000 7 6 0 64000",
            "5 strake idle 2 100000000 1000000000 0 0 100 0",
        ] {
            let added = results.add_rebuild(line, 2, &drives, report);
            added.expect("a rebuild");
        }
        let all: Vec<_> = results.rebuilds.values().collect();
        let idle = all[0].values().map(|r| (r.bytes_per_s, r.ceiling));
        assert_eq!(idle.collect::<Vec<_>>(), [(5e7, 1e8), (1e8, 2e8)]);
        assert!(all[0][&1].beside.is_none());
        let beside = all[1][&1].beside.as_ref().expect("a load");
        assert_eq!((beside.with.iops, beside.alone.iops), (7.0, 6.0));
        // Two CPUs for four seconds, for 8000 requests.
        let cpu = all[1][&1].cpu;
        assert_eq!((cpu.busy, cpu.requests_per_core), (2.0, Some(1000.0)));
        let cpu = all[0][&1].cpu;
        assert_eq!((cpu.busy, cpu.requests_per_core), (1.5, None));
        for line in [
            "5 md idle 3 1 1 0 0 0 0",
            "6 md idle 1 1 1 0 0 0 0",
            "5 md idle 1 1 1 0 0 0",
            "5 md random-read-4K 1 1 6000000000 7 6 0 0",
        ] {
            assert!(
                results.add_rebuild(line, 2, &drives, report).is_err(),
                "{line}"
            );
        }
    }

    #[test]
    fn cpu_time_while_idle_is_a_share_of_one_cpu() {
        let found = idle("5 60000000000 6 3000000 11940", 2).expect("a measurement");
        assert_eq!((found.level.as_str(), found.seconds), ("5", 60.0));
        assert!((found.daemon - 0.001).abs() < 1e-12);
        assert!((found.md - 0.00005).abs() < 1e-12);
        assert!((found.guest - 0.01).abs() < 1e-12);
        for line in [
            "5 60000000000 6 0",
            "5 0 6 0 0",
            "5 60000000000 -6 0 0",
            "5 60000000000 6 -1 0",
            "",
        ] {
            assert!(idle(line, 2).is_err(), "{line}");
        }
    }

    #[test]
    fn requests_per_core_stand_beside_md_within_rounds() {
        let load = "random-read-4K";
        let mut results = results(&[(load, "md", 1, 10.0), (load, "strake", 1, 5.0)]);
        let of = |requests| Cpu {
            busy: 2.0,
            requests_per_core: Some(requests),
        };
        for subjects in results.rows.values_mut() {
            for (subject, rounds) in subjects.iter_mut() {
                let cpu = of(if subject == "md" { 100.0 } else { 300.0 });
                rounds.get_mut(&1).expect("a round").cpu = Some(cpu);
            }
        }
        let found = results.per_core_beside_md();
        assert_eq!(found[0].ratios, [(String::new(), 3.0)]);
        assert_eq!(results.beside_md()[0].ratios, [(String::new(), 0.5)]);
    }

    #[test]
    fn needs_are_those_of_the_documentation() {
        let need = |level: &str, degraded, load: &str| {
            Need::of(&Row {
                level: level.to_owned(),
                degraded,
                order: 0,
                load: load.to_owned(),
            })
        };
        let of = |reads, writes| Need { reads, writes };
        assert_eq!(need("5", false, "random-write-4K"), of(2.0, 2.0));
        assert_eq!(need("6", false, "random-write-4K-qd1"), of(3.0, 3.0));
        assert_eq!(need("5", false, "sequential-write-128K"), of(0.0, 1.25));
        assert_eq!(need("6", true, "sequential-write-512K"), of(0.0, 1.25));
        assert_eq!(need("5", true, "random-read-4K"), of(1.6, 0.0));
        assert_eq!(need("5", true, "sequential-read-512K"), of(1.0, 0.0));
        let lost = need("5", true, "random-write-4K");
        assert!((lost.reads - 1.8).abs() < 1e-9 && (lost.writes - 1.6).abs() < 1e-9);
    }
}

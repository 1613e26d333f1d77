//! The host file of this machine, which `strake plan --host-file` reads: CPU time of a request, of
//! a member I/O and of a byte, from the rows of a run.
//!
//! ```text
//!   io        raw 4K reads and writes
//!   request   array - its member I/Os, raw
//!   byte      1M writes - the raw writes of their bytes
//!   check     rebuild - its raw reads and writes
//! ```
//!
//! Invariants: a figure that several rows give is the range of them; one that no row gives, or that
//! is lost in the noise (not above 0), is left out with a note, and stays a range of the planner.
//! Deliberately absent: what an export costs (ublk, NBD), which is in no row.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::report::{Report, Row};

const MIB: f64 = 1_048_576.0;
/// Seconds of a microsecond and of a nanosecond.
const US: f64 = 1e-6;
const NS: f64 = 1e-9;

/// A figure of the file: its key, what rows give, how it comes about.
struct Figure {
    key: &'static str,
    seconds: Vec<f64>,
    about: &'static str,
}

/// What `cargo xtask bench engine --json` printed: the engine's own time.
struct Engine {
    read_4k_s: f64,
    write_4k_s: f64,
    write_byte_s: f64,
}

/// Writes the host file. `engine`: what `cargo xtask bench engine --json` printed.
pub(crate) fn write(report: &Report, engine: Option<&Path>, into: &Path) -> Result<()> {
    let engine = engine
        .map(|path| {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            engine_of(&text).with_context(|| path.display().to_string())
        })
        .transpose()?;
    let today = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
    let text = text(report, engine.as_ref(), &today)?;
    std::fs::write(into, text).with_context(|| into.display().to_string())?;
    eprintln!("written: {}", into.display());
    Ok(())
}

/// The rows of the engine's benchmark: the line of JSON with which it ends.
fn engine_of(text: &str) -> Result<Engine> {
    let line = text.lines().rev().find(|line| line.starts_with('{'));
    let line = line.context("no line of JSON: cargo xtask bench engine --json prints one")?;
    let lists: Value = serde_json::from_str(line)?;
    let ns = |load: &str| {
        let rows = lists["rows"].as_array().context("no list 'rows'")?;
        let row = rows
            .iter()
            .find(|row| row["array"] == "5 of 5" && row["load"] == load);
        let ns = row.and_then(|row| row["ns"].as_f64());
        ns.with_context(|| format!("no row of '5 of 5' with the load '{load}'"))
    };
    Ok(Engine {
        read_4k_s: ns("random read 4K")? * NS,
        write_4k_s: ns("random write 4K")? * NS,
        write_byte_s: ns("write 1M")? * NS / MIB,
    })
}

/// The rows of the first level of a run, whole.
struct Rows<'a> {
    report: &'a Report,
    subject: &'a str,
}

impl Rows<'_> {
    fn find(&self, raw: bool, load: &str) -> Option<&Row> {
        let mut rows = self.report.rows.iter().filter(|row| {
            row.state == "optimal" && row.load == load && row.policy != Some("resync")
        });
        match raw {
            true => rows.find(|row| row.subject.starts_with("raw")),
            false => rows.find(|row| row.subject == self.subject),
        }
    }

    fn raw(&self, load: &str) -> Option<f64> {
        Some(self.find(true, load)?.cpu_us_per_request * US)
    }

    /// CPU time of a request of the array beside its member I/Os.
    fn above_raw(&self, load: &str) -> Option<f64> {
        let row = self.find(false, load)?;
        let reads = row.member_reads_per_request? * self.raw("random read 4K")?;
        let writes = match row.member_writes_per_request? {
            0.0 => 0.0,
            writes => writes * self.raw("random write 4K")?,
        };
        Some(row.cpu_us_per_request * US - reads - writes)
    }

    fn byte(&self) -> Option<f64> {
        let load = "sequential write 1M";
        let row = self.find(false, load)?;
        let members = row.written_bytes_per_user_byte? * self.raw(load)?;
        Some((row.cpu_us_per_request * US - members) / MIB)
    }

    fn check(&self) -> Option<f64> {
        let mut rebuilds = self.report.rebuilds.iter();
        let idle = rebuilds.find(|row| row.subject == self.subject && row.beside == "idle")?;
        let k = idle.data_strips as f64;
        let reads = k * self.raw("sequential read 1M")?;
        let members = reads + self.raw("sequential write 1M")?;
        Some((idle.cpu_us_per_mib * US - members) / MIB / (k + 1.0))
    }

    fn figures(&self, engine: Option<&Engine>) -> [Figure; 4] {
        let list = |all: &[Option<f64>]| all.iter().copied().flatten().collect();
        let own = |of: fn(&Engine) -> f64| engine.map(of);
        [
            Figure {
                key: "request",
                seconds: list(&[
                    self.above_raw("random read 4K"),
                    self.above_raw("random write 4K"),
                    own(|e| e.read_4k_s),
                    own(|e| e.write_4k_s),
                ]),
                about: "a 4K read and write of the array, less its member I/Os",
            },
            Figure {
                key: "io",
                seconds: list(&[self.raw("random read 4K"), self.raw("random write 4K")]),
                about: "a raw 4K read and write, kernel included",
            },
            Figure {
                key: "byte",
                seconds: list(&[self.byte(), own(|e| e.write_byte_s)]),
                about: "a byte of 1M writes, less the raw writes of the members",
            },
            Figure {
                key: "check",
                seconds: list(&[self.check()]),
                about: "a member's byte of a rebuild, less the raw reads and writes",
            },
        ]
    }
}

fn text(report: &Report, engine: Option<&Engine>, date: &str) -> Result<String> {
    let arrays = report.rows.iter().map(|row| &row.subject);
    let rebuilt = report.rebuilds.iter().map(|row| &row.subject);
    let mut subjects = arrays.chain(rebuilt);
    let subject = subjects.find(|subject| !subject.starts_with("raw"));
    let subject = subject.context("the run has no row of an array")?;
    let rows = Rows { report, subject };
    let machine = &report.machine;
    let with = if engine.is_some() { " and engine" } else { "" };
    let title = format!(
        "cargo xtask bench system{with}: {subject} on files {}, {} x {}, {}",
        machine.place(),
        machine.cpus,
        machine.cpu,
        machine.kernel
    );
    let mut text = format!(
        "# CPU time in seconds; strake plan --host-file reads it.\n\n[source]\nbench = {{ title = \
         {title:?}, date = \"{date}\" }}\n\n[host]\ncores = {{ is = {}, source = \"bench\" }}\n",
        machine.cpus
    );
    let mut known = 0;
    for figure in rows.figures(engine) {
        let above = figure.seconds.iter().copied().filter(|s| *s > 0.0);
        let (low, high) = above.fold((f64::INFINITY, 0.0f64), |(low, high), s| {
            (low.min(s), high.max(s))
        });
        let Figure { key, about, .. } = figure;
        if high == 0.0 {
            let why = match figure.seconds.is_empty() {
                true => "its rows were not measured",
                false => "not above 0 within the noise",
            };
            eprintln!("note: {key} ({about}) is left out: {why}");
            continue;
        }
        known += 1;
        let value = match low == high {
            true => format!("is = {low:.3e}"),
            false => format!("from = {low:.3e}, to = {high:.3e}"),
        };
        let _ = writeln!(text, "# {about}\n{key} = {{ {value}, source = \"bench\" }}");
    }
    if known == 0 {
        bail!("no figure of the host was measured: leave out --only, --state and --level");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use strake_foresight::host::Host;
    use strake_foresight::value::Source;

    use super::*;
    use crate::report::{Machine, RebuildRow, Setup};

    fn row(subject: &str, load: &str, cpu_us: f64, members: Option<(f64, f64, f64)>) -> Row {
        let mut row = Row::of(subject, "optimal", load);
        row.cpu_us_per_request = cpu_us;
        row.member_reads_per_request = members.map(|m| m.0);
        row.member_writes_per_request = members.map(|m| m.1);
        row.written_bytes_per_user_byte = members.map(|m| m.2);
        row
    }

    fn report() -> Report {
        let array = "RAID 5 4+1";
        Report {
            machine: Machine::look(true),
            setup: Setup::default(),
            rows: vec![
                row("raw of 5", "random read 4K", 2.0, None),
                row("raw of 5", "random write 4K", 3.0, None),
                row("raw of 5", "sequential read 1M", 100.0, None),
                row("raw of 5", "sequential write 1M", 120.0, None),
                row(array, "random read 4K", 3.0, Some((1.0, 0.0, 0.0))),
                row(array, "random write 4K", 15.0, Some((2.0, 2.0, 3.0))),
                row(array, "sequential write 1M", 250.0, Some((0.0, 10.0, 1.25))),
            ],
            closed: Vec::new(),
            rebuilds: vec![RebuildRow {
                cpu_us_per_mib: 1020.0,
                data_strips: 4,
                ..RebuildRow::of(array, "idle")
            }],
        }
    }

    #[test]
    fn the_planner_reads_what_was_measured() {
        let text = text(&report(), None, "2026-11-28").expect("rows");
        let host = Host::default().with_file(&text).expect(&text);
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-3;
        // 3 - 2 and 15 - 4 - 6 µs.
        assert!(near(host.request.low, 1e-6) && near(host.request.high, 5e-6));
        assert!(near(host.io.low, 2e-6) && near(host.io.high, 3e-6));
        // 250 - 1.25 × 120, and (1020 - 4 × 100 - 120) / 5, µs a MiB.
        assert!(near(host.byte.low, 100e-6 / MIB), "{text}");
        assert!(near(host.check.low, 100e-6 / MIB), "{text}");
        assert_eq!(host.check.source, Source::Measured);
        assert_eq!(host.origins.len(), 5);
        assert!(host.origins[0].source.contains("RAID 5 4+1"));
    }

    #[test]
    fn the_engine_alone_widens_the_range_and_what_is_missing_is_left_out() {
        let line = "table\n{\"rows\":[{\"array\":\"5 of 5\",\"load\":\"random read \
                    4K\",\"ns\":250.0},{\"array\":\"5 of 5\",\"load\":\"random write \
                    4K\",\"ns\":900.0},{\"array\":\"5 of 5\",\"load\":\"write \
                    1M\",\"ns\":60000.0}]}\n";
        let engine = engine_of(line).expect("a line");
        let mut few = report();
        few.rows.retain(|row| row.load != "sequential write 1M");
        let text = text(&few, Some(&engine), "2026-11-28").expect("rows");
        let host = Host::default().with_file(&text).expect(&text);
        assert!((host.request.low / 250e-9 - 1.0).abs() < 1e-3, "{text}");
        assert!(
            (host.byte.high / (60e-6 / MIB) - 1.0).abs() < 1e-3,
            "{text}"
        );
        assert_eq!(host.check, Host::default().check);
        assert!(engine_of("no json").is_err());
        assert!(engine_of("{\"rows\":[]}").is_err());
        few.rows
            .retain(|row| row.subject == "raw of 5" && row.load == "sequential read 1M");
        assert!(super::text(&few, None, "x").is_err());
    }
}

//! Figures of a plan as people read them, in sections: for terminals and for pages.

use super::simulated;
use crate::plan::{LoadPlan, Plan};
use crate::speed::Rate;
use crate::value::{Figure, Source};

/// A heading and its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The heading.
    pub title: &'static str,
    /// Its lines.
    pub lines: Vec<Line>,
}

/// A figure with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What it is.
    pub name: String,
    /// The figure with its unit.
    pub value: String,
    /// Where it comes from; empty for what is given.
    pub source: &'static str,
}

impl Source {
    /// As a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Source::Given => "given",
            Source::Measured => "measured here",
            Source::DataSheet => "data sheet",
            Source::Formula => "formula",
            Source::Simulated => "simulated",
            Source::Assumed => "assumed range",
        }
    }
}

/// Three digits, without zeros at the end of a fraction.
fn digits(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let power = value.abs().log10().floor() as i32;
    if !(-4..7).contains(&power) {
        return format!("{value:.1e}");
    }
    let places = (2 - power).max(0) as usize;
    let text = format!("{value:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// `low–high unit`, or one number where both read the same.
pub fn range(figure: Figure, scale: f64, unit: &str) -> String {
    let (low, high) = (digits(figure.low / scale), digits(figure.high / scale));
    let gap = if unit.is_empty() { "" } else { " " };
    match low == high {
        true => format!("{low}{gap}{unit}"),
        false => format!("{low} to {high}{gap}{unit}"),
    }
}

/// The largest of these units in which the figure's middle is at least 1.
fn scaled(figure: Figure, units: &[(f64, &str)]) -> String {
    let size = figure.high.abs();
    let fit = units.iter().rfind(|(scale, _)| size >= *scale);
    let (scale, unit) = fit.or(units.first()).copied().unwrap_or((1.0, ""));
    range(figure, scale, unit)
}

/// Bytes in powers of 1000.
pub fn bytes(figure: Figure) -> String {
    scaled(
        figure,
        &[
            (1.0, "B"),
            (1e3, "kB"),
            (1e6, "MB"),
            (1e9, "GB"),
            (1e12, "TB"),
            (1e15, "PB"),
        ],
    )
}

/// Bytes a second.
pub fn rate(figure: Figure) -> String {
    scaled(
        figure,
        &[(1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s")],
    )
}

/// Requests a second.
pub fn requests(figure: Figure) -> String {
    scaled(figure, &[(1.0, "IOPS"), (1e3, "kIOPS"), (1e6, "MIOPS")])
}

/// Seconds; from two days on, days.
pub fn time(figure: Figure) -> String {
    const DAY: f64 = 86400.0;
    if figure.high >= 2.0 * DAY {
        return range(figure, DAY, "d");
    }
    scaled(
        figure,
        &[
            (1e-9, "ns"),
            (1e-6, "µs"),
            (1e-3, "ms"),
            (1.0, "s"),
            (60.0, "min"),
            (3600.0, "h"),
        ],
    )
}

/// A probability.
pub fn probability(figure: Figure) -> String {
    let one = |p: f64| match p {
        0.0 => "0".to_owned(),
        p if p < 1e-3 => format!("{p:.1e}"),
        p => format!("{} %", digits(100.0 * p)),
    };
    let (low, high) = (one(figure.low), one(figure.high));
    match low == high {
        true => low,
        false => format!("{low} to {high}"),
    }
}

/// US dollars.
pub fn money(figure: Figure) -> String {
    scaled(figure, &[(1.0, "$"), (1e3, "k$"), (1e6, "M$")])
}

pub(super) fn line(name: impl Into<String>, value: String, source: Source) -> Line {
    Line {
        name: name.into(),
        value,
        source: source.as_str(),
    }
}

fn given(name: &str, value: String) -> Line {
    Line {
        name: name.to_owned(),
        value,
        source: "",
    }
}

/// The sections of a plan.
pub fn sections(plan: &Plan) -> Vec<Section> {
    let mut all = vec![
        shape(plan),
        machine(plan),
        rates("Rates, each load alone", &plan.rates),
        Section {
            title: "Write amplification: RAID × indirection unit × collection + log",
            lines: plan
                .rates
                .iter()
                .chain(&plan.loads)
                .filter_map(wear)
                .collect(),
        },
        times(plan),
        durability(plan),
        cost(plan),
    ];
    if !plan.loads.is_empty() {
        let mut asked = rates("The loads, all at once", &plan.loads);
        if let Some(life) = plan.life_years {
            let value = range(life, 1.0, "years without a pause");
            asked
                .lines
                .push(line("flash is used up in", value, life.source));
        }
        all.insert(3, asked);
    }
    all.extend(
        plan.simulated
            .iter()
            .flat_map(|of| simulated::sections(of, plan)),
    );
    all
}

fn shape(plan: &Plan) -> Section {
    Section {
        title: "Shape",
        lines: vec![
            given("drive", plan.drive.clone()),
            given("array", plan.shape.clone()),
            given("engine", plan.engine.as_str().to_owned()),
            line("usable", bytes(plan.usable_bytes), plan.usable_bytes.source),
            given(
                "may be lost",
                match plan.tolerance {
                    0 => "no member".to_owned(),
                    1 => "1 member of each group".to_owned(),
                    n => format!("{n} members of each group"),
                },
            ),
        ],
    }
}

fn machine(plan: &Plan) -> Section {
    let of = &plan.machine;
    let each = |name: &str, f: Figure| line(name, time(f), f.source);
    let rate_of = |name: &str, f: Figure| {
        let per_s = f.map(f.source, |seconds| 1.0 / seconds);
        line(name, rate(per_s), f.source)
    };
    Section {
        title: "Machine: CPU time",
        lines: vec![
            line("cores", range(of.cores, 1.0, ""), of.cores.source),
            each("a request", of.request_s),
            each("an I/O of a drive", of.io_s),
            rate_of("copy and parity of a core", of.byte_s),
            rate_of("rebuild and scrub of a core", of.check_s),
        ],
    }
}

fn rates(title: &'static str, loads: &[LoadPlan]) -> Section {
    let mut lines = Vec::new();
    for load in loads {
        let states = [
            ("optimal", Some(&load.optimal)),
            ("degraded", load.degraded.as_ref()),
            ("rebuilding", load.rebuilding.as_ref()),
        ];
        for (state, rate) in states {
            if let Some(rate) = rate {
                let name = format!("{} {state}", load.load);
                lines.push(line(name, one_rate(rate), rate.bytes_per_s.source));
            }
        }
    }
    Section { title, lines }
}

fn one_rate(of: &Rate) -> String {
    let limits: Vec<&str> = of.limits.iter().map(|l| l.as_str()).collect();
    format!(
        "{}, {}, {} (limit: {})",
        rate(of.bytes_per_s),
        requests(of.requests_per_s),
        time(of.latency_s),
        limits.join(" or ")
    )
}

fn wear(load: &LoadPlan) -> Option<Line> {
    let waf = load.waf.as_ref()?;
    let factor = |f: Figure| range(f, 1.0, "");
    let value = format!(
        "({}) × ({}) × ({}) + {} = {}",
        factor(waf.raid),
        factor(waf.unit),
        factor(waf.gc),
        factor(waf.log),
        factor(waf.total)
    );
    Some(line(load.load.clone(), value, waf.total.source))
}

fn times(plan: &Plan) -> Section {
    let times = &plan.times;
    let mut lines = vec![
        line("create", time(times.create_s), times.create_s.source),
        line(
            "zero in the background, where drives need it",
            time(times.zero_s),
            times.zero_s.source,
        ),
    ];
    if let Some(rebuild) = &times.rebuild {
        let value = format!(
            "{}, {} (limit: {})",
            time(rebuild.idle_s),
            rate(rebuild.idle_bytes_per_s),
            rebuild.limit.as_str()
        );
        lines.push(line("rebuild, idle", value, rebuild.idle_s.source));
        if let (Some(s), Some(r)) = (rebuild.loaded_s, rebuild.loaded_bytes_per_s) {
            let value = format!("{}, {}", time(s), rate(r));
            lines.push(line("rebuild beside the loads", value, s.source));
        }
    }
    let scrubs = [
        ("scrub, idle", times.scrub_s),
        ("scrub beside the loads", times.scrub_loaded_s),
    ];
    for (name, scrub) in scrubs {
        lines.extend(scrub.map(|s| line(name, time(s), s.source)));
    }
    Section {
        title: "Times",
        lines,
    }
}

fn durability(plan: &Plan) -> Section {
    let of = &plan.durability;
    let inputs = &of.inputs;
    let probability_of = |name: &str, f: Figure| line(name, probability(f), f.source);
    let mut lines = vec![
        probability_of("array lost", of.array_lost),
        probability_of("any sector lost", of.sector_lost),
        line(
            "nines of the second",
            range(of.nines, 1.0, ""),
            of.nines.source,
        ),
        line(
            "bytes lost, expected",
            bytes(of.bytes_lost),
            of.bytes_lost.source,
        ),
        probability_of("with AFR", inputs.afr),
        line(
            "with UBER",
            range(inputs.uber, 1.0, "a bit"),
            inputs.uber.source,
        ),
        line(
            "with correlation of failures",
            range(inputs.correlation, 1.0, ""),
            inputs.correlation.source,
        ),
        line(
            "with time exposed",
            range(inputs.exposed_h, 1.0, "h"),
            inputs.exposed_h.source,
        ),
    ];
    let scrub = inputs.scrub_interval_h;
    lines.extend(scrub.map(|s| line("with a scrub every", range(s, 24.0, "d"), s.source)));
    Section {
        title: "Durability, a year",
        lines,
    }
}

fn cost(plan: &Plan) -> Section {
    let of = &plan.cost;
    let count = |n: u64, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
    let counts = [
        (of.drives, "drive"),
        (of.servers, "server"),
        (of.racks, "rack"),
    ];
    let counts = counts.map(|(n, one)| count(n, one)).join(", ");
    let servers = Figure::point(of.servers_usd, Source::Formula);
    let money_of = |name: &str, f: Figure| line(name, money(f), f.source);
    Section {
        title: "Power and cost of the term",
        lines: vec![
            given("buys", counts),
            line(
                "power of drives and servers",
                range(of.watts, 1.0, "W"),
                of.watts.source,
            ),
            line(
                "TB a watt, of drives",
                range(of.tb_per_watt, 1.0, ""),
                of.tb_per_watt.source,
            ),
            money_of("drives, with replacements", of.drives_usd),
            money_of("servers and racks", servers),
            money_of("energy", of.energy_usd),
            money_of("total", of.total_usd),
            money_of("for each usable TB", of.usd_per_tb),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(low: f64, high: f64) -> Figure {
        Figure::range(low, high, Source::Formula)
    }

    #[test]
    fn figures_read_as_people_write_them() {
        assert_eq!(rate(figure(6.96e9, 7e9)), "6.96 to 7 GB/s");
        assert_eq!(rate(figure(7e9, 7e9)), "7 GB/s");
        assert_eq!(requests(figure(95e3, 107.5e3)), "95 to 108 kIOPS");
        assert_eq!(time(figure(18618.0, 18618.0)), "5.17 h");
        assert_eq!(time(figure(80e-6, 200e-6)), "80 to 200 µs");
        assert_eq!(time(figure(86400.0 * 67.0, 86400.0 * 68.0)), "67 to 68 d");
        assert_eq!(probability(figure(1e-9, 0.002)), "1.0e-9 to 0.2 %");
        assert_eq!(money(figure(2.06e6, 2.06e6)), "2.06 M$");
        assert_eq!(bytes(figure(1.2288e15, 1.23e15)), "1.23 PB");
        assert_eq!(bytes(figure(0.0, 0.0)), "0 B");
    }
}

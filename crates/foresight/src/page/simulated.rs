//! A simulation as people read it, beside the formulas.

use super::words::{Line, Section, line, range, rate, requests, time};
use crate::plan::simulation::{SimulatedLoad, SimulatedRebuild, SimulatedState, Simulation};
use crate::plan::{LoadPlan, Plan};
use crate::speed::Rate;
use crate::value::{Figure, Source};

/// Its sections.
pub(super) fn sections(of: &Simulation, plan: &Plan) -> Vec<Section> {
    let mut rates = vec![how(of)];
    for state in &of.states {
        let with_formula = state.loads.iter().zip(&plan.loads);
        rates.extend(with_formula.map(|(load, formula)| one(state, load, formula)));
    }
    let mut wear: Vec<Line> = of.states.iter().filter_map(waf).collect();
    let rebuilds = [
        ("rebuild, idle", &of.rebuild_idle),
        ("rebuild beside the loads", &of.rebuild_loaded),
    ];
    for (name, of) in rebuilds {
        wear.extend(of.as_ref().map(|of| rebuild(name, of)));
    }
    vec![
        Section {
            title: "Simulated: the engine on modelled drives, the loads all at once",
            lines: rates,
        },
        Section {
            title: "Simulated: write amplification by cause, and rebuilds",
            lines: wear,
        },
    ]
}

fn how(of: &Simulation) -> Line {
    let cores = match of.cpu {
        true => "CPU time modelled",
        false => "CPU time not modelled: --cores or --host-file",
    };
    let value = format!("seed {}, drives of 1/{:.0}, {cores}", of.seed, of.scale);
    line("made with", value, Source::Simulated)
}

/// What the formula has of a load in a state.
fn formula<'a>(state: &str, load: &'a LoadPlan) -> Option<&'a Rate> {
    match state {
        "optimal" => Some(&load.optimal),
        "degraded" => load.degraded.as_ref(),
        _ => load.rebuilding.as_ref(),
    }
}

fn one(state: &SimulatedState, load: &SimulatedLoad, beside: &LoadPlan) -> Line {
    let beside = formula(&state.state, beside);
    let mut value = format!(
        "{}, {}",
        rate(load.bytes_per_s),
        requests(load.requests_per_s)
    );
    let quantiles = [
        ("p50", load.p50_s),
        ("p99", load.p99_s),
        ("p99.9", load.p999_s),
    ];
    for (name, of) in quantiles {
        value += &match of {
            Some(of) => format!(", {name} {}", time(of)),
            None => format!(", {name} -"),
        };
    }
    if load.p50_s.is_none() {
        value += &beside.map_or(String::new(), |rate| {
            format!(", mean by formula {}", time(rate.latency_s))
        });
    }
    if let Some(busy) = state.cpu_busy {
        value += &format!(", cores {:.0} % busy", 100.0 * busy);
        if busy > CPU_LIMIT {
            value += " (limit: CPU)";
        }
    }
    if let Some(beside) = beside {
        value += &format!("; by formula {}", rate(beside.bytes_per_s));
    }
    line(
        format!("{} {}", load.load, state.state),
        value,
        Source::Simulated,
    )
}

/// Cores that are busier are what limits.
const CPU_LIMIT: f64 = 0.95;

fn waf(state: &SimulatedState) -> Option<Line> {
    let of = state.waf.as_ref()?;
    let causes = [
        ("data", of.data),
        ("parity", of.parity),
        ("log", of.log),
        ("metadata", of.metadata),
        ("rebuild", of.rebuild),
    ];
    let named = causes.iter().filter(|(_, f)| f.high > 0.0);
    let named: Vec<String> = named
        .map(|(name, f)| format!("{} {name}", factor(*f)))
        .collect();
    let value = format!(
        "({}) × {} in the drives = {}",
        named.join(" + "),
        factor(of.drive),
        factor(of.total)
    );
    Some(line(
        format!("writes {}", state.state),
        value,
        Source::Simulated,
    ))
}

fn rebuild(name: &str, of: &SimulatedRebuild) -> Line {
    let waf = of.waf.map_or(String::new(), |waf| {
        format!(", {} times its bytes of flash", factor(waf))
    });
    let value = format!("{}, {}{waf}", time(of.seconds), rate(of.bytes_per_s));
    line(name, value, Source::Simulated)
}

fn factor(figure: Figure) -> String {
    range(figure, 1.0, "")
}

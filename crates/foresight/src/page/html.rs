//! Plans as one HTML file: tables, charts, sources. It asks nothing of the network, and a browser
//! runs nothing of it.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::chart::{Axis, Bars, Chart, Group, Kind, Series, bars, chart};
use super::words::{Line, sections};
use crate::durability::{Inputs, durability};
use crate::plan::{Asked, LoadPlan, Plan};
use crate::value::{Figure, Source};

const STYLE: &str = ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;\
max-width:72rem;margin:2rem auto;padding:0 1rem}table{border-collapse:collapse;margin:.5rem 0 2rem}\
td,th{text-align:left;vertical-align:top;padding:.2rem .9rem .2rem 0;border-bottom:1px solid \
color-mix(in srgb,currentColor 20%,transparent)}th[scope=row]{font-weight:400}\
.source{opacity:.75}svg{max-width:100%;height:auto}.wide{overflow-x:auto}";

/// The page of one plan, or of several side by side. `why`: what a search says of its winner.
pub fn page(plans: &[(Asked, Plan)], why: &[String]) -> String {
    let title = match plans {
        [(_, plan)] => format!("Plan: {} on {}", plan.shape, plan.drive),
        _ => format!("{} plans", plans.len()),
    };
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { (title) }
                    p {
                        "Made by strake plan. A figure is a range where an input is a range; the \
                         source beside it is the weakest of its inputs. The models: \
                         docs/explanation/foresight.md."
                    }
                    @if !why.is_empty() {
                        h2 { "Why this one" }
                        ul { @for line in why { li { (line) } } }
                    }
                    @for (name, svg) in charts(plans) {
                        h2 { (name) }
                        figure { (PreEscaped(svg)) }
                    }
                    (tables(plans))
                    (remarks(plans))
                }
            }
        }
    };
    markup.into_string()
}

/// One table for each section, one column for each plan.
fn tables(plans: &[(Asked, Plan)]) -> Markup {
    let all: Vec<_> = plans.iter().map(|(_, plan)| sections(plan)).collect();
    let first = all.first().cloned().unwrap_or_default();
    let find = |n: usize, title: &str, name: &str| -> Option<Line> {
        let section = all.get(n)?.iter().find(|s| s.title == title)?;
        section.lines.iter().find(|l| l.name == name).cloned()
    };
    html! {
        @for section in &first {
            h2 { (section.title) }
            div class="wide" {
                table {
                    @if plans.len() > 1 {
                        thead { tr {
                            th scope="col" { "figure" }
                            @for (_, plan) in plans {
                                th scope="col" { (plan.shape) ", " (plan.drive) }
                            }
                        } }
                    }
                    tbody {
                        @for line in &section.lines {
                            tr {
                                th scope="row" { (line.name) }
                                @for n in 0..plans.len() {
                                    @match find(n, section.title, &line.name) {
                                        Some(line) => td {
                                            (line.value) " "
                                            span class="source" { (line.source) }
                                        },
                                        None => td { "–" },
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Notes, what is assumed, and where the drives' figures come from.
fn remarks(plans: &[(Asked, Plan)]) -> Markup {
    html! {
        @for (_, plan) in plans {
            h2 { "To know: " (plan.shape) ", " (plan.drive) }
            ul {
                @for note in &plan.notes { li { (note) } }
                @if !plan.assumed.is_empty() {
                    li { "ranges are assumed for: " (plan.assumed.join(", ")) }
                }
            }
            table {
                thead { tr {
                    th scope="col" { "figure of the drive or the machine" }
                    th scope="col" { "source" }
                    th scope="col" { "date" }
                } }
                tbody {
                    @for origin in plan.sources.iter().chain(&plan.machine.sources) {
                        tr {
                            th scope="row" { (origin.figure) }
                            td { (origin.source) }
                            td { (origin.date) }
                        }
                    }
                }
            }
        }
    }
}

fn charts(plans: &[(Asked, Plan)]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (_, plan) in plans {
        let of = |suffix: &str| match plans.len() {
            1 => suffix.to_owned(),
            _ => format!("{suffix}: {}, {}", plan.shape, plan.drive),
        };
        let title = of("Rates, each load alone");
        all.push((title.clone(), rate_bars(&title, &plan.rates)));
        if !plan.loads.is_empty() {
            let title = of("The loads, all at once");
            all.push((title.clone(), rate_bars(&title, &plan.loads)));
        }
    }
    all.push(("Write amplification".to_owned(), wear_bars(plans)));
    all.push((
        "Nines of durability by the time of a rebuild".to_owned(),
        nines(plans),
    ));
    all.push(("Cost of the term".to_owned(), costs(plans)));
    all
}

fn gigabytes(figure: Figure) -> (f64, f64) {
    (figure.low / 1e9, figure.high / 1e9)
}

fn rate_bars(title: &str, loads: &[LoadPlan]) -> String {
    let group = |load: &LoadPlan| Group {
        label: load.load.clone(),
        bars: [
            Some(&load.optimal),
            load.degraded.as_ref(),
            load.rebuilding.as_ref(),
        ]
        .into_iter()
        .map(|rate| rate.map(|r| gigabytes(r.bytes_per_s)))
        .collect(),
    };
    bars(&Bars {
        title: title.to_owned(),
        y: "GB/s".to_owned(),
        series: ["optimal", "degraded", "rebuilding"]
            .map(str::to_owned)
            .to_vec(),
        groups: loads.iter().map(group).collect(),
    })
}

fn wear_bars(plans: &[(Asked, Plan)]) -> String {
    let (_, first) = &plans[0];
    let loads = |plan: &Plan| -> Vec<LoadPlan> {
        let all = plan.rates.iter().chain(&plan.loads);
        all.filter(|l| l.waf.is_some()).cloned().collect()
    };
    let group = |load: &LoadPlan| Group {
        label: load.load.clone(),
        bars: plans
            .iter()
            .map(|(_, plan)| {
                let same = loads(plan).into_iter().find(|l| l.load == load.load)?;
                same.waf.map(|waf| (waf.total.low, waf.total.high))
            })
            .collect(),
    };
    bars(&Bars {
        title: "Bytes of flash for each byte written".to_owned(),
        y: "flash bytes a byte".to_owned(),
        series: plans.iter().map(|(_, plan)| plan.shape.clone()).collect(),
        groups: loads(first).iter().map(group).collect(),
    })
}

/// Over times from minutes to months, at the worse and at the better end of the other inputs.
fn nines(plans: &[(Asked, Plan)]) -> String {
    let hours: Vec<f64> = (0..=60)
        .map(|n| 0.1 * 10f64.powf(f64::from(n) / 15.0))
        .collect();
    let mut series = Vec::new();
    for (asked, plan) in plans.iter().take(3) {
        let named = &plan.durability.inputs;
        let at = |h: f64| {
            let inputs = Inputs {
                afr: named.afr,
                uber: named.uber,
                correlation: named.correlation,
                scrub_h: named.scrub_interval_h,
                before_h: Figure::point(0.0, Source::Formula),
                rebuild_h: Figure::point(h, Source::Formula),
                member_bytes: asked.drive.capacity as f64 * asked.written,
            };
            durability(&asked.shape, &inputs).nines
        };
        for (end, of) in [
            ("at least", (|f: Figure| f.low) as fn(Figure) -> f64),
            ("at most", |f: Figure| f.high),
        ] {
            series.push(Series {
                label: match plans.len() {
                    1 => end.to_owned(),
                    _ => format!("RAID {} of {}, {end}", plan.level, plan.group_size),
                },
                kind: Kind::Line,
                points: hours.iter().map(|h| (*h, of(at(*h)))).collect(),
            });
        }
    }
    chart(&Chart {
        title: "Nines of durability by the time of a rebuild".to_owned(),
        x: Axis::log("hours without full redundancy"),
        y: Axis::linear("nines a year"),
        series,
    })
}

fn costs(plans: &[(Asked, Plan)]) -> String {
    let kilo = |f: Figure| Some((f.low / 1e3, f.high / 1e3));
    let group = |(_, plan): &(Asked, Plan)| Group {
        label: format!("RAID {} of {}", plan.level, plan.group_size),
        bars: vec![
            kilo(plan.cost.drives_usd),
            kilo(Figure::point(plan.cost.servers_usd, Source::Formula)),
            kilo(plan.cost.energy_usd),
        ],
    };
    bars(&Bars {
        title: "Cost of the term".to_owned(),
        y: "k$".to_owned(),
        series: ["drives with replacements", "servers and racks", "energy"]
            .map(str::to_owned)
            .to_vec(),
        groups: plans.iter().map(group).collect(),
    })
}

#[cfg(test)]
mod tests {
    use strake_format::Level;

    use super::*;
    use crate::catalogue;
    use crate::plan::plan;
    use crate::shape::Shape;

    fn planned(level: Level) -> (Asked, Plan) {
        let mut drive = catalogue::builtin().find("D5-P5336-61.44").expect("there");
        drive.name = "<b>mine</b>".to_owned();
        let shape = Shape::new(level, 12, None, None, 16384).expect("a shape");
        let mut asked = Asked::new(drive, shape);
        asked.loads = vec!["seq-write:1M:38".parse().expect("a load")];
        let plan = plan(&asked);
        (asked, plan)
    }

    #[test]
    fn a_page_stands_alone_and_shows_figures_sources_and_charts() {
        let one = page(&[planned(Level::Raid6)], &["because".to_owned()]);
        for part in [
            "<!DOCTYPE html>",
            "&lt;b&gt;mine",
            "seq-write:1M:38 degraded",
            "assumed range",
            "any sector lost",
            "Solidigm D5-P5336 product brief",
            "<li>because</li>",
        ] {
            assert!(one.contains(part), "{part}");
        }
        assert_eq!(one.matches("<svg role=\"img\"").count(), 5);
        for outside in ["http:", "https:", "<script", "src=", "<b>mine", "url("] {
            let found = one.replace("http://www.w3.org/2000/svg", "");
            assert!(!found.contains(outside), "{outside}");
        }
    }

    #[test]
    fn several_plans_stand_side_by_side() {
        let two = page(&[planned(Level::Raid5), planned(Level::Raid0)], &[]);
        assert!(two.contains("2 plans"));
        // What striping has not is a dash.
        assert!(two.contains("<td>–</td>"), "{two}");
        assert!(two.contains("RAID 5, 12 drives") && two.contains("RAID 0, 12 drives"));
    }
}

//! What a study found, for readers: Markdown, and one HTML page that needs nothing beside it.
//!
//! Both say the same: what it ran on, published figures beside ours, every figure of every step,
//! and what was not measured, with the reason.

use std::fmt::Write as _;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::definition::{Figure, Study};
use crate::picture;
use crate::result::{On, Results};
use crate::table::{self, Row, Verdict, percent, shown, shown_in};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;\
padding:0 1rem;color-scheme:light dark}table{border-collapse:collapse;margin:1rem 0}\
th,td{padding:.25rem .75rem;border-bottom:1px solid #8886;text-align:left}\
td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\
.outside{font-weight:bold}footer,.why{color:GrayText}";

/// A table: what its head says, and cells; a cell that is a number stands on the right.
struct Cells {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// From this column to that one cells are numbers.
    numbers: (usize, usize),
}

fn expectations(rows: &[Row]) -> Cells {
    let cells = |row: &Row| {
        let value = |value: Option<f64>| value.map_or("–".to_owned(), |v| shown_in(row, v));
        let verdict = match &row.why {
            Some(why) => format!("{}: {why}", row.verdict.shown()),
            None => row.verdict.shown().to_owned(),
        };
        vec![
            row.case.clone(),
            row.name.clone(),
            row.kind.to_string(),
            value(row.published),
            value(row.ours),
            row.deviation.map_or("–".to_owned(), percent),
            verdict,
        ]
    };
    Cells {
        head: vec![
            "Case",
            "Figure",
            "Kind",
            "Published",
            "Ours",
            "Deviation",
            "Verdict",
        ],
        rows: rows.iter().map(cells).collect(),
        numbers: (3, 5),
    }
}

/// Columns of the table of steps.
const COLUMNS: [(&str, Figure); 15] = [
    ("Read", Figure::ReadBytes),
    ("Write", Figure::WriteBytes),
    ("Requests", Figure::Iops),
    ("p99", Figure::P99),
    ("p99.99", Figure::P9999),
    ("Cores busy", Figure::Cores),
    ("Requests/s a core", Figure::IopsPerCore),
    ("Time", Figure::Seconds),
    ("Job", Figure::JobBytes),
    ("WAF", Figure::Waf),
    ("WAF of new drive", Figure::WafSlot),
    ("Drive bytes a byte", Figure::WafRaid),
    ("Written, by fio", Figure::LoadsWrote),
    ("Written to drives, by SMART", Figure::DrivesWritten),
    ("Written to flash, by logs", Figure::FlashWritten),
];

fn steps(results: &Results) -> Cells {
    // Modelled drives have no logs, and many real ones no counter of their flash.
    let all = || results.cases.iter().flat_map(|case| &case.steps);
    let has = |figure: Figure| all().any(|step| step.figures.get(&figure) > Some(&0.0));
    let columns: Vec<_> = COLUMNS.into_iter().filter(|(_, of)| has(*of)).collect();
    let mut head = vec!["Case", "Step"];
    head.extend(columns.iter().map(|(name, _)| *name));
    let mut rows = Vec::new();
    for case in &results.cases {
        for step in &case.steps {
            let mut row = vec![case.name.clone(), step.name.clone()];
            row.extend(columns.iter().map(|(_, figure)| {
                let value = step.figures.get(figure).filter(|value| **value > 0.0);
                value.map_or_else(String::new, |value| shown(*figure, *value))
            }));
            rows.push(row);
        }
    }
    Cells {
        head,
        rows,
        numbers: (2, columns.len() + 1),
    }
}

/// What is not measured, and what steps say.
fn notes(results: &Results) -> Vec<String> {
    let mut notes = Vec::new();
    for case in &results.cases {
        for step in &case.steps {
            let missing = step.missing.iter();
            let missing = missing.map(|(figure, why)| format!("{figure} is not known: {why}"));
            for note in step.notes.iter().cloned().chain(missing) {
                notes.push(format!("{}, {}: {note}", case.name, step.name));
            }
        }
    }
    notes
}

/// On what, when, by which program.
fn about(study: &Study, results: &Results) -> Vec<(&'static str, String)> {
    let mut about = vec![("Source", study.source.clone())];
    match &results.on {
        On::Simulated => {
            let what = format!(
                "the engine on modelled drives ({}), virtual time",
                study.drive
            );
            about.push(("Ran on", what));
        }
        On::Real(drives) => {
            about.push(("Served by", results.engine.as_str().to_owned()));
            for drive in drives {
                let of = |text: &Option<String>| text.clone().unwrap_or_else(|| "–".to_owned());
                let what = format!(
                    "{}: model {}, firmware {}, {} bytes",
                    drive.shown(),
                    of(&drive.model),
                    of(&drive.firmware),
                    drive.bytes
                );
                about.push(("Drive", what));
            }
            let machine = &results.machine;
            let cpu = machine.cpu.as_deref().unwrap_or("processor not known");
            let kernel = machine.kernel.as_deref().unwrap_or("not known");
            let memory = machine.memory_bytes.map_or("unknown".to_owned(), |bytes| {
                format!("{:.0} GiB", bytes as f64 / (1u64 << 30) as f64)
            });
            let what = format!(
                "{cpu}, {} logical processors, memory {memory}, kernel {kernel}",
                machine.cpus
            );
            about.push(("Machine", what));
        }
    }
    about.push(("Program", results.program.clone()));
    let (done, all) = (results.done(), study.steps(results.on.is_simulated()));
    if done < all {
        about.push(("Not complete", format!("{done} of {all} steps are done")));
    }
    about
}

/// The report in Markdown; its pictures are files beside it, NAME.svg.
pub fn markdown(study: &Study, results: &Results) -> String {
    let mut text = format!(
        "# {}: {}\n\n{}\n\n",
        study.name,
        study.title,
        study.about.trim()
    );
    for (name, what) in about(study, results) {
        let _ = writeln!(text, "* {name}: {what}");
    }
    text.push_str("\n## Published and ours\n\n");
    table_md(&mut text, &expectations(&table::rows(study, results)));
    for picture in picture::all(study, results) {
        let _ = writeln!(text, "\n![{0}]({0}.svg)", picture.name);
    }
    text.push_str("\n## All figures\n\n");
    table_md(&mut text, &steps(results));
    let notes = notes(results);
    if !notes.is_empty() {
        text.push_str("\n## Notes\n\n");
        for note in notes {
            let _ = writeln!(text, "* {note}");
        }
    }
    text
}

fn table_md(text: &mut String, cells: &Cells) {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = cells.head.iter().map(|head| (*head).to_owned()).collect();
    text.push_str(&line(&head));
    let (from, to) = cells.numbers;
    let rule = |at: usize| {
        if (from..=to).contains(&at) {
            "---:"
        } else {
            "---"
        }
        .to_owned()
    };
    text.push_str(&line(&(0..head.len()).map(rule).collect::<Vec<_>>()));
    for row in &cells.rows {
        let safe = row
            .iter()
            .map(|cell| cell.replace('|', "\\|").replace('\n', " "));
        text.push_str(&line(&safe.collect::<Vec<_>>()));
    }
}

/// The report as one page of HTML, with its pictures.
pub fn html(study: &Study, results: &Results) -> String {
    let rows = table::rows(study, results);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { (study.name) ": " (study.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (study.title) }
                p { (study.about.trim()) }
                ul {
                    @for (name, what) in about(study, results) { li { b { (name) } ": " (what) } }
                }
                h2 { "Published and ours" }
                (table_html(&expectations(&rows), |at| rows[at].verdict == Verdict::Outside))
                @for picture in picture::all(study, results) {
                    figure { (PreEscaped(picture.svg)) }
                }
                h2 { "All figures" }
                (table_html(&steps(results), |_| false))
                @let notes = notes(results);
                @if !notes.is_empty() {
                    h2 { "Notes" }
                    ul { @for note in &notes { li { (note) } } }
                }
                footer { "Kind: P predicted from published inputs, F a parameter was fitted to "
                    "the published figure, I both follow from the same numbers." }
            }
        }
    };
    page.into_string()
}

fn table_html(cells: &Cells, is_bold: impl Fn(usize) -> bool) -> Markup {
    let (from, to) = cells.numbers;
    html! {
        table {
            thead { tr { @for head in &cells.head { th { (head) } } } }
            tbody {
                @for (at, row) in cells.rows.iter().enumerate() {
                    tr class=[is_bold(at).then_some("outside")] {
                        @for (column, cell) in row.iter().enumerate() {
                            td class=[(from..=to).contains(&column).then_some("n")] { (cell) }
                        }
                    }
                }
            }
        }
    }
}

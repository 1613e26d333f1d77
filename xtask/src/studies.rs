//! `cargo xtask studies`: the published studies on modelled drives, beside what is published.
//!
//! The release build runs all of them, and the table is compared with the one in the
//! documentation: a row that is gone or new, a verdict that has changed, a figure that has moved
//! by more than [`MOVED`]. `--write` writes the table anew. A figure that is further than 10 % from
//! the published one, without a reason that its study gives, is a failure either way.

use crate::host;
use crate::outcome::Outcome;
use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;
use std::fmt::Write as _;
use std::process::ExitCode;

const PAGE: &str = "docs/reference/studies.md";
/// A figure may move by so much before the page is to be written anew.
const MOVED: f64 = 0.05;
/// All studies together take a minute or two, and ten where all else runs on a slow machine.
const LIMIT_S: u64 = 1200;

#[derive(Args)]
pub(crate) struct Options {
    /// Write the page anew
    #[arg(long)]
    write: bool,
}

/// A row of the table.
struct Row {
    /// What it is of: study, case and figure.
    name: String,
    ours: Option<f64>,
    line: String,
    outside: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let rows = measure()?;
    if options.write {
        std::fs::write(host::root().join(PAGE), page(&rows))?;
        println!("{PAGE} is written: {} rows", rows.len());
        return Ok(ExitCode::SUCCESS);
    }
    let wrong = differences(&rows)?;
    wrong.iter().for_each(|line| println!("{line}"));
    println!("{} rows, {} wrong", rows.len(), wrong.len());
    Ok(match wrong.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The step of the whole run.
pub(crate) fn step() -> Result<Outcome> {
    let rows = measure()?;
    let wrong = differences(&rows)?;
    Ok(match wrong.is_empty() {
        true => Outcome::passed().note(format!("{} published figures beside ours", rows.len())),
        false => Outcome::failed(wrong.join("\n")),
    })
}

fn measure() -> Result<Vec<Row>> {
    let binary = host::strake_binary();
    let binary = binary.to_str().context("a path that is text")?;
    let folder = host::target().join("studies");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    let folder = folder.to_str().context("a path that is text")?;
    let argv = [
        binary,
        "--json",
        "study",
        "run",
        "all",
        "--simulated",
        "--out",
        folder,
    ];
    let ran = host::logged("studies", LIMIT_S, &argv)?;
    if !ran.ok {
        bail!("strake study run all --simulated failed:\n{}", ran.tail(20));
    }
    let begins = ran.text.find('{').context("no JSON was printed")?;
    let mut rows = Vec::new();
    for reported in serde_json::Deserializer::from_str(&ran.text[begins..]).into_iter::<Value>() {
        let reported = reported?;
        let study = reported["study"].as_str().context("a study has a name")?;
        for row in reported["rows"].as_array().into_iter().flatten() {
            rows.push(read(study, row)?);
        }
    }
    Ok(rows)
}

fn read(study: &str, row: &Value) -> Result<Row> {
    let text = |key: &str| row[key].as_str().unwrap_or_default();
    let number = |key: &str| row[key].as_f64();
    let none = || "–".to_owned();
    let shown = |value: Option<f64>| value.map_or_else(none, |value| format!("{value:.4e}"));
    let name = format!("{study} | {} | {}", text("case"), text("name"));
    let deviation = number("deviation");
    let mut line = format!("| {name} | {} |", text("kind"));
    let of =
        |value: Option<f64>| value.map_or("–".to_owned(), |v| format!("{:+.1} %", v * 100.0));
    write!(
        line,
        " {} | {} | {} | {} |",
        shown(number("published")),
        shown(number("ours")),
        of(deviation),
        row["why"].as_str().unwrap_or_default()
    )?;
    Ok(Row {
        name,
        ours: number("ours"),
        outside: text("verdict") == "outside",
        line,
    })
}

fn page(rows: &[Row]) -> String {
    let mut text = String::from(
        "<!-- Written by: cargo xtask studies --write -->\n\n\
         # The published studies on modelled drives\n\n\
         `strake study run all --simulated` runs the engine on modelled drives, in virtual time,\n\
         and puts its figures beside the published ones. P: predicted from published inputs. F: a\n\
         parameter was fitted. I: both follow from the same numbers. Times are seconds, rates are\n\
         bytes or requests a second, latencies are microseconds.\n\
         [How to](../how-to/study.md) has the command, and\n\
         [published figures by formula](acceptance.md) the same without the engine.\n\n\
         | Study | Case | Figure | Kind | Published | Ours | Off | Why |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        text += &row.line;
        text.push('\n');
    }
    text
}

fn differences(rows: &[Row]) -> Result<Vec<String>> {
    let page = std::fs::read_to_string(host::root().join(PAGE)).unwrap_or_default();
    let written: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| s"))
        .collect();
    let mut wrong = Vec::new();
    for row in rows {
        if row.outside {
            wrong.push(format!("{}: further than 10 %, without a reason", row.line));
        }
        let begins = format!("| {} |", row.name);
        let Some(line) = written.iter().find(|line| line.starts_with(&begins)) else {
            wrong.push(format!("{PAGE} has no row of {}", row.name));
            continue;
        };
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let was = cells.get(6).and_then(|cell| cell.parse::<f64>().ok());
        let moved = match (was, row.ours) {
            (Some(was), Some(now)) => (now / was - 1.0).abs() > MOVED,
            (was, now) => was.is_some() != now.is_some(),
        };
        if moved {
            wrong.push(format!("{line} is now {}", row.line));
        }
    }
    if written.len() != rows.len() {
        let (has, gets) = (written.len(), rows.len());
        wrong.push(format!(
            "{PAGE} has {has} rows, not {gets}: cargo xtask studies --write"
        ));
    }
    Ok(wrong)
}

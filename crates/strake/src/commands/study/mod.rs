//! `strake study`: experiments on real drives, and what they found.
//!
//! What a study is and how it is carried out is `strake_study`'s; here is what it needs of the
//! machine (`host`), which drives it may overwrite (`consent`), and what is printed.

mod consent;
mod host;
mod md;
mod run;

use std::path::{Path, PathBuf};

use serde::Serialize;
use strake_study::definition::{Study, What};
use strake_study::result::{Results, replace};
use strake_study::run::RunError;
use strake_study::table::{self, Pair, Row};
use strake_study::{picture, report, studies};

use crate::cli::args::study::StudyCommand;
use crate::cli::output::Table;
use crate::cli::{Context, DONE, Ended};
use crate::common::errors::{Code, Failure};
use crate::common::size;

pub(crate) fn run(context: &Context, command: StudyCommand) -> Ended {
    match command {
        StudyCommand::List => list(context),
        StudyCommand::Show { name, toml } => show(context, &name, toml),
        StudyCommand::Run(args) => run::run(context, &args),
        StudyCommand::Resume { folder, yes_erase } => run::resume(context, &folder, &yes_erase),
        StudyCommand::Compare { a, b } => compare(context, &a, &b),
        StudyCommand::Report { folder } => report_of(context, &folder),
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Failure {
        let found = error.to_string();
        match error {
            RunError::Exists(folder) => {
                let shown = folder.display();
                let cure = format!(
                    "strake study resume {shown} goes on with it; or give another --out, or remove \
                     it"
                );
                Failure::new(Code::StudyExists, found).cure(cure)
            }
            RunError::NoStudy(_) => Failure::new(Code::StudyNotFound, found)
                .cure("give the folder that strake study run has made: DIR/NAME of its --out"),
            RunError::Busy(_) => Failure::new(Code::StudyBusy, found),
            RunError::Io { path, error } => Failure::io(path.display(), &error),
            RunError::Definition(_) => Failure::new(Code::StudyInvalid, found),
            RunError::Drives(_) => Failure::new(Code::DeviceNotFound, found)
                .cure("plug it in again, and strake study resume; or run the study anew"),
            RunError::Step { .. } => Failure::new(Code::StudyFailed, found),
        }
    }
}

/// A study by its name, or a file.
fn find(name: &str) -> Result<Study, Failure> {
    let all = studies::all();
    let path = Path::new(name);
    let is_path = name.contains('/') || path.extension().is_some_and(|ext| ext == "toml");
    if is_path {
        let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Failure::new(Code::FileNotFound, format!("{name}: not found"))
            }
            _ => Failure::io(name, &error),
        })?;
        let study = Study::parse(name, &text);
        return study.map_err(|error| Failure::new(Code::StudyInvalid, error.to_string()));
    }
    let found = all.into_iter().find(|study| study.name == name);
    found.ok_or_else(|| {
        let found = format!("no study is called '{name}'");
        Failure::new(Code::StudyNotFound, found)
    })
}

/// A line of `study list`.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    title: String,
    source: String,
    drive: String,
    drives: usize,
    cases: usize,
}

fn list(context: &Context) -> Ended {
    let of = |study: Study| Listed {
        drives: study.drives(),
        cases: study.cases.len(),
        name: study.name,
        title: study.title,
        source: study.source,
        drive: study.drive,
    };
    let all: Vec<Listed> = studies::all().into_iter().map(of).collect();
    context.say(&all, |all| {
        let mut table = Table::new(&["NAME", "DRIVES", "TITLE"]);
        for one in all {
            let drives = format!("{} x {}", one.drives, one.drive);
            table.row(vec![one.name.clone(), drives, one.title.clone()]);
        }
        table.text(0)
    });
    Ok(DONE)
}

/// What `study show` prints.
#[derive(Debug, Serialize)]
struct Shown {
    name: String,
    title: String,
    source: String,
    about: String,
    drive: String,
    drives: usize,
    cases: Vec<ShownCase>,
    toml: String,
}

#[derive(Debug, Serialize)]
struct ShownCase {
    name: String,
    drives: usize,
    level: String,
    steps: Vec<ShownStep>,
    expect: Vec<ShownExpect>,
}

#[derive(Debug, Serialize)]
struct ShownStep {
    name: String,
    #[serde(rename = "do")]
    what: &'static str,
    loads: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ShownExpect {
    name: String,
    step: String,
    figure: &'static str,
    kind: String,
    published: Option<f64>,
    shown: String,
}

fn show(context: &Context, name: &str, toml: bool) -> Ended {
    let study = find(name)?;
    if toml && !context.json {
        crate::cli::print(study.text.as_bytes());
        return Ok(DONE);
    }
    let shown = shown(&study);
    context.say(&shown, |shown| {
        let about = shown.about.trim();
        let mut text = format!(
            "{}: {}\n{}\n\n{about}\n",
            shown.name, shown.title, shown.source
        );
        for case in &shown.cases {
            text += &format!(
                "\ncase {}: level {} of {}\n",
                case.name,
                case.level,
                size::count(case.drives as u64, "drive")
            );
            let mut table = Table::without_head();
            for step in &case.steps {
                let loads = step.loads.join(" + ");
                table.row(vec![step.name.clone(), step.what.to_owned(), loads]);
            }
            text += &table.text(2);
            if !case.expect.is_empty() {
                let mut table = Table::new(&["PUBLISHED", "", "KIND"]);
                for one in &case.expect {
                    table.row(vec![one.name.clone(), one.shown.clone(), one.kind.clone()]);
                }
                text += "\n";
                text += &table.text(2);
            }
        }
        text
    });
    Ok(DONE)
}

fn shown(study: &Study) -> Shown {
    let cases = study.cases.iter().map(|case| ShownCase {
        name: case.name.clone(),
        drives: case.shape.drives,
        level: case.shape.level.to_string(),
        steps: case
            .steps
            .iter()
            .map(|step| ShownStep {
                name: step.name.clone(),
                what: step.what.name(),
                loads: match &step.what {
                    What::Load { loads, .. } => loads.iter().map(ToString::to_string).collect(),
                    What::Rebuild { beside, .. } | What::Scrub { beside } => {
                        beside.iter().map(ToString::to_string).collect()
                    }
                    _ => Vec::new(),
                },
            })
            .collect(),
        expect: case
            .expect
            .iter()
            .map(|one| ShownExpect {
                name: one.name.clone(),
                step: one.step.clone(),
                figure: one.figure.name(),
                kind: one.kind.to_string(),
                published: one.published,
                shown: match (one.published, &one.share_of) {
                    (None, _) => "–".to_owned(),
                    (Some(share), Some(_)) => format!("{:.0} %", share * 100.0),
                    (Some(value), None) => table::shown(one.figure, value),
                },
            })
            .collect(),
    });
    Shown {
        name: study.name.clone(),
        title: study.title.clone(),
        source: study.source.clone(),
        about: study.about.trim().to_owned(),
        drive: study.drive.clone(),
        drives: study.drives(),
        cases: cases.collect(),
        toml: study.text.clone(),
    }
}

/// What `study run`, `resume` and `report` print.
#[derive(Debug, Serialize)]
struct Reported {
    study: String,
    folder: String,
    report: String,
    steps_done: usize,
    steps: usize,
    rows: Vec<Row>,
}

/// Writes the report of a folder, and prints its table.
fn report_of(context: &Context, folder: &Path) -> Ended {
    let (study, results) = strake_study::run::read(folder)?;
    let page = folder.join("report.html");
    let pictures = picture::all(&study, &results).into_iter();
    let pictures = pictures.map(|one| (folder.join(one.name).with_extension("svg"), one.svg));
    let mut files: Vec<(PathBuf, String)> = pictures.collect();
    files.push((folder.join("report.md"), report::markdown(&study, &results)));
    files.push((page.clone(), report::html(&study, &results)));
    for (path, text) in files {
        let written = replace(&path, text.as_bytes());
        written.map_err(|error| Failure::io(path.display(), &error))?;
    }
    let reported = Reported {
        study: study.name.clone(),
        folder: folder.display().to_string(),
        report: page.display().to_string(),
        steps_done: results.done(),
        steps: study.steps(results.on.is_simulated()),
        rows: table::rows(&study, &results),
    };
    context.say(&reported, |reported| {
        let head = [
            "CASE",
            "FIGURE",
            "KIND",
            "PUBLISHED",
            "OURS",
            "DEVIATION",
            "VERDICT",
        ];
        let mut table = Table::new(&head);
        for row in &reported.rows {
            let value = |value: Option<f64>| {
                value.map_or("–".to_owned(), |value| table::shown_in(row, value))
            };
            let why = row
                .why
                .as_ref()
                .map_or_else(String::new, |why| format!(": {why}"));
            table.row(vec![
                row.case.clone(),
                row.name.clone(),
                row.kind.to_string(),
                value(row.published),
                value(row.ours),
                row.deviation.map_or("–".to_owned(), table::percent),
                format!("{}{why}", row.verdict.shown()),
            ]);
        }
        let mut text = table.text(0);
        if reported.steps_done < reported.steps {
            let (done, all) = (reported.steps_done, reported.steps);
            text += &format!("{done} of {all} steps are done\n");
        }
        text + &format!("report: {}\n", reported.report)
    });
    Ok(DONE)
}

fn compare(context: &Context, a: &Path, b: &Path) -> Ended {
    let results = |folder: &Path| -> Result<Results, Failure> {
        Ok(strake_study::run::read(folder).map(|(_, results)| results)?)
    };
    let pairs = table::pairs(&results(a)?, &results(b)?);
    if pairs.is_empty() {
        let found = format!(
            "{} and {} have no step of the same case and name that both measured",
            a.display(),
            b.display()
        );
        let cure = "compare two runs of one study";
        return Err(Failure::new(Code::StudyNotFound, found).cure(cure));
    }
    context.say(&pairs, |pairs| {
        let mut table = Table::new(&["CASE", "STEP", "FIGURE", "A", "B", "CHANGE"]);
        for pair in pairs {
            let Pair { figure, .. } = pair;
            let value = |value: Option<f64>| {
                value.map_or("–".to_owned(), |value| table::shown(*figure, value))
            };
            table.row(vec![
                pair.case.clone(),
                pair.step.clone(),
                figure.to_string(),
                value(pair.a),
                value(pair.b),
                pair.change.map_or("–".to_owned(), table::percent),
            ]);
        }
        table.text(0)
    });
    Ok(DONE)
}

//! A study as data: which drives, which array, which steps, and what was published about it.
//!
//! A study is a TOML file. Its cases run one after another, each on an array of its own; its steps
//! are carried out in their order. What a step measures is a set of figures ([`Figure`]); `expect`
//! puts a published value beside one of them.
//!
//! Invariants: an error names the line and the key; there is a case, each case has steps with names
//! of their own, and each expectation names one. Options for fio are a closed list
//! ([`FIO_OPTIONS`]): none of them names a file or a program.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

pub use crate::figure::Figure;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use strake_foresight::load::{Load, size};
use strake_format::Level;
use strake_lab::Cpu;
use toml::Spanned;

use crate::rig::{Target, Until};

/// Options of fio that a step may set for real drives.
pub const FIO_OPTIONS: [&str; 7] = [
    "iodepth",
    "ioengine",
    "norandommap",
    "numa_cpu_nodes",
    "numa_mem_policy",
    "numjobs",
    "offset_increment",
];
/// Engines that read and write the file that they are given.
const FIO_ENGINES: [&str; 3] = ["io_uring", "libaio", "psync"];
/// Members of an array, at most.
const DRIVES_MAX: usize = 64;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Study {
    /// Letters, digits and dashes.
    pub name: String,
    /// One line.
    pub title: String,
    /// Where the published figures come from.
    pub source: String,
    /// What it shows, in some sentences.
    pub about: String,
    /// Name of the drive in the catalogue.
    pub drive: String,
    /// I/Os of drives that the machine of the study carried a second, where the published figures
    /// show such a limit: that of the modelled machine.
    pub device_iops: Option<f64>,
    /// CPU time of the modelled machine; none is never the limit.
    pub cpu: Option<Cpu>,
    /// In order.
    pub cases: Vec<Case>,
    /// The file as it was read.
    pub text: String,
}

/// One array and what is done to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Of its own within the study.
    pub name: String,
    /// The array.
    pub shape: Shape,
    /// In order.
    pub steps: Vec<Step>,
    /// What is published about them.
    pub expect: Vec<Expect>,
}

/// What the array of a case is.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Drives, all of them members.
    pub drives: usize,
    /// As `strake create --level` takes it.
    pub level: Level,
    /// Bytes of a strip; `None`: what `strake create` chooses.
    pub strip: Option<u64>,
    /// Members of a group (10, 50, 60, 70).
    pub group_size: Option<u8>,
    /// `closed`, `degraded` or `resync`.
    pub write_hole: strake_format::WriteHole,
    /// 1 to 100; `None`: what `strake create` chooses.
    pub rebuild_priority: Option<u8>,
    /// Zero what was never written before the first step (`--init zero`).
    pub zeroed: bool,
}

/// One step of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Of its own within the case.
    pub name: String,
    /// What is done.
    pub what: What,
    /// Where it is done.
    pub only: Option<Only>,
    /// What fio gets beside what the loads say, on real drives.
    pub fio: BTreeMap<String, String>,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// Brings every drive into the state of a new one.
    Erase,
    /// Makes the array.
    Create,
    /// Runs loads.
    Load {
        /// On what.
        on: Target,
        /// Side by side.
        loads: Vec<Load>,
        /// How long, on real drives.
        until: Until,
        /// How long, on modelled drives.
        simulated: Until,
    },
    /// Does nothing, and measures what that costs.
    Idle {
        /// What went before comes to rest.
        ramp: Duration,
        /// So long.
        run: Duration,
    },
    /// Takes the member of a slot out of service.
    Fail {
        /// From 0.
        slot: usize,
    },
    /// Rebuilds a slot onto a new drive.
    Rebuild {
        /// From 0.
        slot: usize,
        /// Loads meanwhile.
        beside: Vec<Load>,
    },
    /// Reads and checks all that is written.
    Scrub {
        /// Loads meanwhile.
        beside: Vec<Load>,
    },
}

impl What {
    /// As `do` has it.
    pub fn name(&self) -> &'static str {
        match self {
            What::Erase => "erase",
            What::Create => "create",
            What::Load { .. } => "load",
            What::Idle { .. } => "idle",
            What::Fail { .. } => "fail",
            What::Rebuild { .. } => "rebuild",
            What::Scrub { .. } => "scrub",
        }
    }
}

/// Where a step is done, if not everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Only {
    /// On modelled drives.
    Simulated,
    /// On real drives.
    Real,
}

/// How a published figure and ours are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Kind {
    /// Ours is predicted from published inputs.
    P,
    /// A parameter was fitted to the published figure.
    F,
    /// Both follow from the same numbers.
    I,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::P => "P",
            Kind::F => "F",
            Kind::I => "I",
        })
    }
}

/// A published figure, or one to look at.
#[derive(Clone, Debug, PartialEq)]
pub struct Expect {
    /// What it is called in tables.
    pub name: String,
    /// Step of this case.
    pub step: String,
    /// Which of its figures.
    pub figure: Figure,
    /// The figure is divided by the same figure of this step.
    pub share_of: Option<String>,
    /// What was published; `None`: no number was.
    pub published: Option<f64>,
    /// See [`Kind`].
    pub kind: Kind,
    /// Why ours is not within 10 % of it, and is not meant to be.
    pub outside: Option<String>,
}

/// Why a file is no study: where, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}{key}: {why}")]
pub struct DefinitionError {
    file: String,
    line: usize,
    /// `, KEY in [TABLE]`, as far as there are such.
    key: String,
    why: String,
}

// ---- the file as it is written -----------------------------------------------------------------

/// A text that `FromStr` reads.
#[derive(Clone, Debug, PartialEq)]
struct Text<T>(T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text<T>, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Text).map_err(D::Error::custom)
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Bytes(u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        let bytes = size(text).filter(|b| *b >= 4096.0 && *b <= 1_048_576.0);
        let bytes = bytes.filter(|b| b.fract() == 0.0 && (*b as u64).is_power_of_two());
        let why = || format!("'{text}' is not a power of two from 4K to 1M");
        bytes.map(|b| Bytes(b as u64)).ok_or_else(why)
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Span(Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let span = text.parse::<jiff::SignedDuration>().ok();
        let span = span.and_then(|span| Duration::try_from(span).ok());
        let why = || format!("'{text}' is not a time such as 200ms, 75m or 1h 15m");
        span.map(Span).ok_or_else(why)
    }
}

/// A number or a text: what fio takes as the value of an option.
struct Value(String);

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a number or a text")]
        enum Either {
            Number(i64),
            Text(String),
        }
        Ok(Value(match Either::deserialize(deserializer)? {
            Either::Number(number) => number.to_string(),
            Either::Text(text) => text,
        }))
    }
}

/// CPU time in seconds, as in a host file of `plan`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CpuFile {
    cores: u32,
    request: f64,
    io: f64,
    byte: f64,
    check: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StudyFile {
    name: Spanned<String>,
    title: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    about: String,
    drive: String,
    device_iops: Option<Spanned<f64>>,
    cpu: Option<Spanned<CpuFile>>,
    #[serde(default)]
    case: Vec<Spanned<CaseFile>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile {
    name: Spanned<String>,
    array: ArrayFile,
    #[serde(default)]
    step: Vec<Spanned<StepFile>>,
    #[serde(default)]
    expect: Vec<ExpectFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ArrayFile {
    drives: Spanned<usize>,
    level: Text<Level>,
    strip: Option<Text<Bytes>>,
    group_size: Option<u8>,
    write_hole: Option<Text<strake_format::WriteHole>>,
    rebuild_priority: Option<Spanned<u8>>,
    #[serde(default)]
    zeroed: bool,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Do {
    Erase,
    Create,
    Load,
    Idle,
    Fail,
    Rebuild,
    Scrub,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum On {
    Array,
    Drives,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepFile {
    name: Spanned<String>,
    r#do: Do,
    on: Option<On>,
    loads: Option<Vec<Text<Load>>>,
    beside: Option<Vec<Text<Load>>>,
    until: Option<Spanned<UntilFile>>,
    simulated: Option<Spanned<UntilFile>>,
    slot: Option<Spanned<usize>>,
    only: Option<Only>,
    #[serde(default)]
    fio: BTreeMap<Spanned<String>, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UntilFile {
    ramp: Option<Text<Span>>,
    run: Option<Text<Span>>,
    passes: Option<f64>,
    steady: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectFile {
    name: String,
    step: Spanned<String>,
    figure: Figure,
    share_of: Option<Spanned<String>>,
    published: Option<Spanned<f64>>,
    kind: Kind,
    outside: Option<String>,
}

// ---- from the file to the study ----------------------------------------------------------------

/// Where it is wrong, and why.
struct Wrong(Range<usize>, String);

fn wrong<T>(at: &Range<usize>, why: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong(at.clone(), why.into()))
}

impl Study {
    /// Reads a study; `file` is what errors call it.
    ///
    /// # Errors
    /// It is no study; the error names line and key.
    pub fn parse(file: &str, text: &str) -> Result<Study, DefinitionError> {
        let read = toml::from_str::<StudyFile>(text).map_err(|error| {
            let at = error.span().unwrap_or(0..0);
            place(file, text, at.start, error.message())
        })?;
        let study = study(read, text);
        study.map_err(|Wrong(at, why)| place(file, text, at.start, &why))
    }

    /// How many steps it has where it runs.
    pub fn steps(&self, simulated: bool) -> usize {
        let of = |case: &Case| case.steps_for(simulated).count();
        self.cases.iter().map(of).sum()
    }

    /// Drives that it needs at most.
    pub fn drives(&self) -> usize {
        let most = self.cases.iter().map(|case| case.shape.drives).max();
        most.unwrap_or_default()
    }
}

impl Case {
    /// The steps that are carried out there.
    pub fn steps_for(&self, simulated: bool) -> impl Iterator<Item = &Step> {
        let not = match simulated {
            true => Only::Real,
            false => Only::Simulated,
        };
        self.steps.iter().filter(move |step| step.only != Some(not))
    }
}

/// Line and key of a place in the text.
fn place(file: &str, text: &str, at: usize, why: &str) -> DefinitionError {
    let before = text.get(..at.min(text.len())).unwrap_or_default();
    let number = before.matches('\n').count() + 1;
    let line = text.lines().nth(number - 1).unwrap_or_default().trim();
    let mut headers = [line]
        .into_iter()
        .chain(before.lines().rev().map(str::trim));
    let section = headers.find(|line| line.starts_with('['));
    let section = section.map_or_else(String::new, |name| format!(" in {name}"));
    let key = match line.split_once('=') {
        Some((key, _)) if !line.starts_with('#') => format!(", {}{section}", key.trim()),
        _ => section,
    };
    DefinitionError {
        file: file.to_owned(),
        line: number,
        key,
        why: why.trim_end().replace('\n', " "),
    }
}

/// Letters, digits and dashes: a name is also that of a folder.
fn plain(name: Spanned<String>) -> Result<String, Wrong> {
    let text = name.get_ref();
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    match text.len() {
        1..=40 if text.chars().all(allowed) && !text.starts_with('-') => Ok(name.into_inner()),
        _ => wrong(
            &name.span(),
            format!("'{text}' is not 1 to 40 small letters, digits and dashes"),
        ),
    }
}

fn study(read: StudyFile, text: &str) -> Result<Study, Wrong> {
    let name_at = read.name.span();
    let mut cases: Vec<Case> = Vec::new();
    for file in read.case {
        let at = file.get_ref().name.span();
        let case = case(file)?;
        if cases.iter().any(|other| other.name == case.name) {
            return wrong(&at, format!("two cases are called '{}'", case.name));
        }
        cases.push(case);
    }
    if cases.is_empty() {
        return wrong(&name_at, "the study has no [[case]]");
    }
    let device_iops = read.device_iops.map(|iops| {
        let (at, iops) = (iops.span(), iops.into_inner());
        match (1.0..1e12).contains(&iops) {
            true => Ok(iops),
            false => wrong(&at, format!("{iops} is not a number of I/Os a second")),
        }
    });
    Ok(Study {
        device_iops: device_iops.transpose()?,
        cpu: read.cpu.map(cpu).transpose()?,
        name: plain(read.name)?,
        title: read.title,
        source: read.source,
        about: read.about,
        drive: read.drive,
        cases,
        text: text.to_owned(),
    })
}

fn cpu(file: Spanned<CpuFile>) -> Result<Cpu, Wrong> {
    let (at, file) = (file.span(), file.into_inner());
    if !(1..=4096).contains(&file.cores) {
        return wrong(&at, format!("{} is not 1 to 4096 cores", file.cores));
    }
    let times = [file.request, file.io, file.byte, file.check];
    if let Some(time) = times.iter().find(|time| !(0.0..=1e-3).contains(*time)) {
        return wrong(&at, format!("{time} is not 0 to 1e-3 seconds"));
    }
    let [request_ns, io_ns, byte_ns, check_ns] = times.map(|time| time * 1e9);
    Ok(Cpu {
        cores: file.cores,
        request_ns,
        io_ns,
        byte_ns,
        check_ns,
    })
}

fn case(file: Spanned<CaseFile>) -> Result<Case, Wrong> {
    let file = file.into_inner();
    let name_at = file.name.span();
    let shape = shape(file.array)?;
    let mut steps: Vec<Step> = Vec::new();
    for file in file.step {
        let at = file.get_ref().name.span();
        let step = step(file, &shape, &steps)?;
        if steps.iter().any(|other| other.name == step.name) {
            return wrong(
                &at,
                format!("two steps of the case are called '{}'", step.name),
            );
        }
        steps.push(step);
    }
    if steps.is_empty() {
        return wrong(&name_at, "the case has no [[case.step]]");
    }
    let mut expect = Vec::new();
    for file in file.expect {
        for step in [Some(&file.step), file.share_of.as_ref()]
            .into_iter()
            .flatten()
        {
            if !steps.iter().any(|known| known.name == *step.get_ref()) {
                let why = format!("the case has no step '{}' before it", step.get_ref());
                return wrong(&step.span(), why);
            }
        }
        if let Some(published) = &file.published
            && !(published.get_ref().is_finite() && *published.get_ref() > 0.0)
        {
            let why = format!("{} is not a number above 0", published.get_ref());
            return wrong(&published.span(), why);
        }
        expect.push(Expect {
            name: file.name,
            step: file.step.into_inner(),
            figure: file.figure,
            share_of: file.share_of.map(Spanned::into_inner),
            published: file.published.map(Spanned::into_inner),
            kind: file.kind,
            outside: file.outside,
        });
    }
    Ok(Case {
        name: plain(file.name)?,
        shape,
        steps,
        expect,
    })
}

fn shape(file: ArrayFile) -> Result<Shape, Wrong> {
    let at = file.drives.span();
    let drives = file.drives.into_inner();
    if !(1..=DRIVES_MAX).contains(&drives) {
        return wrong(&at, format!("{drives} is not 1 to {DRIVES_MAX} drives"));
    }
    if let Some(priority) = &file.rebuild_priority
        && !(1..=100).contains(priority.get_ref())
    {
        let why = format!("{} is not a priority from 1 to 100", priority.get_ref());
        return wrong(&priority.span(), why);
    }
    Ok(Shape {
        drives,
        level: file.level.0,
        strip: file.strip.map(|strip| strip.0.0),
        group_size: file.group_size,
        write_hole: file
            .write_hole
            .map_or(strake_format::WriteHole::Closed, |policy| policy.0),
        rebuild_priority: file.rebuild_priority.map(Spanned::into_inner),
        zeroed: file.zeroed,
    })
}

fn until(file: &Spanned<UntilFile>) -> Result<Until, Wrong> {
    let at = file.span();
    let file = file.get_ref();
    let given = [
        file.run.is_some(),
        file.passes.is_some(),
        file.steady.is_some(),
    ];
    if given.iter().filter(|given| **given).count() != 1 {
        return wrong(&at, "give one of run, passes, steady");
    }
    if file.ramp.is_some() && file.run.is_none() {
        return wrong(&at, "ramp goes with run");
    }
    let good = |passes: f64| passes.is_finite() && passes > 0.0 && passes <= 1000.0;
    for passes in [file.passes, file.steady].into_iter().flatten() {
        if !good(passes) {
            return wrong(
                &at,
                format!("{passes} passes are not above 0 and up to 1000"),
            );
        }
    }
    Ok(match (&file.run, file.passes, file.steady) {
        (Some(run), ..) => Until::Time {
            ramp: file.ramp.as_ref().map_or(Duration::ZERO, |ramp| ramp.0.0),
            run: run.0.0,
        },
        (_, Some(passes), _) => Until::Passes(passes),
        (_, _, steady) => Until::Steady {
            passes: steady.unwrap_or_default(),
        },
    })
}

fn step(file: Spanned<StepFile>, shape: &Shape, before: &[Step]) -> Result<Step, Wrong> {
    let file = file.into_inner();
    let at = file.name.span();
    let given = [
        ("on", file.on.is_some()),
        ("loads", file.loads.is_some()),
        ("beside", file.beside.is_some()),
        ("until", file.until.is_some()),
        ("simulated", file.simulated.is_some()),
        ("slot", file.slot.is_some()),
        ("fio", !file.fio.is_empty()),
    ];
    let (what, takes): (&str, &[&str]) = match file.r#do {
        Do::Erase => ("erase", &[]),
        Do::Create => ("create", &[]),
        Do::Load => ("load", &["on", "loads", "until", "simulated", "fio"]),
        Do::Idle => ("idle", &["until"]),
        Do::Fail => ("fail", &["slot"]),
        Do::Rebuild => ("rebuild", &["slot", "beside", "fio"]),
        Do::Scrub => ("scrub", &["beside", "fio"]),
    };
    if let Some((key, _)) = given
        .iter()
        .find(|(key, given)| *given && !takes.contains(key))
    {
        return wrong(&at, format!("do = \"{what}\" takes no {key}"));
    }
    let slot = || match &file.slot {
        Some(slot) if *slot.get_ref() < shape.drives => Ok(*slot.get_ref()),
        Some(slot) => {
            let why = format!("the array has slots 0 to {}", shape.drives - 1);
            wrong(&slot.span(), why)
        }
        None => wrong(&at, format!("do = \"{what}\" needs slot")),
    };
    let all = |loads: Option<Vec<Text<Load>>>| -> Vec<Load> {
        loads.into_iter().flatten().map(|load| load.0).collect()
    };
    let made = before.iter().any(|step| step.what == What::Create);
    let needs_array = match file.r#do {
        Do::Erase | Do::Create => false,
        Do::Load => !matches!(file.on, Some(On::Drives)),
        // Before there is an array it says what the machine takes without one.
        Do::Idle => made,
        Do::Fail | Do::Rebuild | Do::Scrub => true,
    };
    if needs_array && !made {
        return wrong(&at, "no step before it makes the array: do = \"create\"");
    }
    if made && !needs_array {
        return wrong(
            &at,
            format!("do = \"{what}\" here would overwrite the array of the case"),
        );
    }
    let what = match file.r#do {
        Do::Erase => What::Erase,
        Do::Create => What::Create,
        Do::Fail => What::Fail { slot: slot()? },
        Do::Rebuild => What::Rebuild {
            slot: slot()?,
            beside: all(file.beside),
        },
        Do::Scrub => What::Scrub {
            beside: all(file.beside),
        },
        Do::Idle => match file.until.as_ref().map(until).transpose()? {
            Some(Until::Time { ramp, run }) => What::Idle { ramp, run },
            _ => {
                return wrong(
                    &at,
                    "do = \"idle\" needs until with run, such as { run = \"60s\" }",
                );
            }
        },
        Do::Load => {
            let Some(on) = file.on else {
                return wrong(&at, "do = \"load\" needs on: \"array\" or \"drives\"");
            };
            let loads = all(file.loads);
            if loads.is_empty() {
                return wrong(
                    &at,
                    "do = \"load\" needs loads, such as [\"rand-read:4K:64\"]",
                );
            }
            let Some(time) = &file.until else {
                return wrong(&at, "do = \"load\" needs until, such as { run = \"60s\" }");
            };
            let time = until(time)?;
            What::Load {
                on: match on {
                    On::Array => Target::Array,
                    On::Drives => Target::Drives,
                },
                loads,
                until: time,
                simulated: file.simulated.as_ref().map_or(Ok(time), until)?,
            }
        }
    };
    Ok(Step {
        name: plain(file.name)?,
        what,
        only: file.only,
        fio: options(file.fio)?,
    })
}

fn options(given: BTreeMap<Spanned<String>, Value>) -> Result<BTreeMap<String, String>, Wrong> {
    let mut options = BTreeMap::new();
    for (key, Value(value)) in given {
        let at = key.span();
        let name = key.into_inner();
        if !FIO_OPTIONS.contains(&name.as_str()) {
            let known = FIO_OPTIONS.join(", ");
            return wrong(
                &at,
                format!("'{name}' is not an option that a study sets: {known}"),
            );
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || "%,:-._".contains(c);
        if value.is_empty() || !value.chars().all(allowed) {
            return wrong(&at, format!("'{value}' is not a value of {name}"));
        }
        if name == "ioengine" && !FIO_ENGINES.contains(&value.as_str()) {
            let known = FIO_ENGINES.join(", ");
            return wrong(
                &at,
                format!("'{value}' is not an engine that a study uses: {known}"),
            );
        }
        let number = value
            .parse::<u32>()
            .ok()
            .filter(|n| (1..=65_536).contains(n));
        if ["iodepth", "numjobs"].contains(&name.as_str()) && number.is_none() {
            return wrong(&at, format!("'{value}' is not a number from 1 to 65536"));
        }
        options.insert(name, value);
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"name = "small"
title = "A small one"
drive = "d"

[[case]]
name = "only"
array = { drives = 3, level = "5", strip = "64K" }

[[case.step]]
name = "make"
do = "create"

[[case.step]]
name = "write"
do = "load"
on = "array"
loads = ["seq-write:1M:2"]
until = { ramp = "1s", run = "1m 30s" }
simulated = { run = "20ms" }
fio = { iodepth = 64, offset_increment = "1%" }

[[case.expect]]
name = "writes"
step = "write"
figure = "write_bytes_per_s"
published = 12.3e9
kind = "P"
"#;

    #[test]
    fn a_study_is_read_whole() {
        let study = Study::parse("f", SMALL).expect("a study");
        let case = &study.cases[0];
        assert_eq!((study.drives(), study.steps(true)), (3, 2));
        assert_eq!(case.shape.strip, Some(65_536));
        let What::Load {
            until, simulated, ..
        } = &case.steps[1].what
        else {
            panic!("{:?}", case.steps);
        };
        let (ramp, run) = (Duration::from_secs(1), Duration::from_secs(90));
        assert_eq!(*until, Until::Time { ramp, run });
        let (ramp, run) = (Duration::ZERO, Duration::from_millis(20));
        assert_eq!(*simulated, Until::Time { ramp, run });
        assert_eq!(case.steps[1].fio["iodepth"], "64");
        assert_eq!(case.expect[0].published, Some(12.3e9));
    }

    #[test]
    fn a_study_may_have_cores() {
        let with = |cpu: &str| SMALL.replacen("drive =", &format!("cpu = {cpu}\ndrive ="), 1);
        let right = with("{ cores = 8, request = 1e-6, io = 2e-6, byte = 1e-10, check = 5e-11 }");
        let cpu = Study::parse("f", &right)
            .expect("a study")
            .cpu
            .expect("given");
        assert_eq!((cpu.cores, cpu.io_ns.round()), (8, 2000.0));
        let none = "{ cores = 0, request = 1e-6, io = 2e-6, byte = 1e-10, check = 5e-11 }";
        let said = Study::parse("f", &with(none))
            .expect_err("no core")
            .to_string();
        assert!(
            said.contains("line 3") && said.contains("4096 cores"),
            "{said}"
        );
        let slow = "{ cores = 1, request = 1, io = 2e-6, byte = 1e-10, check = 5e-11 }";
        let said = Study::parse("f", &with(slow))
            .expect_err("slow")
            .to_string();
        assert!(said.contains("seconds"), "{said}");
    }

    #[test]
    fn a_step_may_do_nothing_before_the_array_is_made_and_after_it() {
        let idle = "[[case.step]]\nname = \"rest\"\ndo = \"idle\"\nuntil = { run = \"20s\" }\n\n";
        let first = SMALL.find("[[case.step]]").expect("a step");
        let mut text = SMALL.to_owned();
        text.insert_str(first, &idle.replace("rest", "bare"));
        let last = text.find("[[case.expect]]").expect("an expectation");
        text.insert_str(last, idle);
        let study = Study::parse("f", &text).expect("right");
        let run = Duration::from_secs(20);
        let idle = What::Idle {
            ramp: Duration::ZERO,
            run,
        };
        let steps = study.cases[0].steps.iter();
        let names: Vec<&str> = steps.filter(|s| s.what == idle).map(|s| &*s.name).collect();
        assert_eq!(names, ["bare", "rest"]);
        let passes = text.replacen("until = { run = \"20s\" }", "until = { passes = 1 }", 1);
        let why = Study::parse("f", &passes).expect_err("wrong").to_string();
        assert!(why.contains("needs until with run"), "{why}");
    }

    #[test]
    fn a_mistake_is_named_by_its_line_and_key() {
        let error = |from: &str, to: &str| {
            assert!(SMALL.contains(from), "{from}");
            let text = SMALL.replacen(from, to, 1);
            Study::parse("f.toml", &text).expect_err(to).to_string()
        };
        for (from, to, parts) in [
            ("title =", "tilte =", &["line 2, tilte", "`tilte`"][..]),
            (
                "level = \"5\"",
                "level = \"8\"",
                &["line 7, array in [[case]]"],
            ),
            (
                "strip = \"64K\"",
                "strip = \"3K\"",
                &["line 7", "'3K'", "power of two"],
            ),
            ("drives = 3", "drives = 65", &["line 7", "65", "1 to 64"]),
            (
                "seq-write:1M:2",
                "seq-wirte:1M:2",
                &["line 17, loads in [[case.step]]"],
            ),
            (
                "run = \"1m 30s\"",
                "run = \"soon\"",
                &["line 18, until", "'soon'", "200ms"],
            ),
            (
                "run = \"1m 30s\"",
                "passes = 0.0",
                &["line 18, until", "ramp goes with run"],
            ),
            (
                "{ run = \"20ms\" }",
                "{ steady = -1 }",
                &["line 19, simulated", "-1 passes"],
            ),
            (
                "iodepth",
                "filename",
                &["line 20, fio", "'filename'", "offset_increment"],
            ),
            (
                "iodepth = 64",
                "iodepth = \"many\"",
                &["line 20, fio", "'many'"],
            ),
            ("\"1%\"", "\"1;exec\"", &["line 20", "'1;exec'"]),
            (
                "step = \"write\"",
                "step = \"wrote\"",
                &["line 24, step", "'wrote'"],
            ),
            (
                "\"write_bytes_per_s\"",
                "\"speed\"",
                &["line 25, figure", "`speed`"],
            ),
            ("12.3e9", "-1", &["line 26, published", "-1"]),
            (
                "do = \"load\"",
                "do = \"fail\"",
                &["line 14, name", "takes no on"],
            ),
            (
                "name = \"write\"",
                "name = \"make\"",
                &["line 14, name", "'make'"],
            ),
            (
                "name = \"small\"",
                "name = \"../s\"",
                &["line 1, name", "'../s'"],
            ),
            (
                "do = \"create\"",
                "do = \"erase\"",
                &["line 14", "makes the array"],
            ),
            (
                "on = \"array\"",
                "on = \"drives\"",
                &["line 14", "overwrite the array"],
            ),
        ] {
            let said = error(from, to);
            assert!(said.starts_with("f.toml, line "), "{said}");
            for part in parts {
                assert!(said.contains(part), "{to}: {said} lacks {part}");
            }
        }
        let none = SMALL.split("[[case]]").next().expect("a head");
        let said = Study::parse("f", none).expect_err("no case").to_string();
        assert!(said.contains("no [[case]]"), "{said}");
    }
}

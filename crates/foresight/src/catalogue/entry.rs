//! A catalogue as TOML has it, read and checked.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::CatalogueError;
use super::assumed::{Known, fill};
use crate::drive::{Drive, Media, Origin};
use crate::load::size;
use crate::value::{Figure, Source};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    source: BTreeMap<String, Title>,
    #[serde(default)]
    drive: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Title {
    title: String,
    date: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    /// For the reader of the file.
    #[serde(default)]
    maker: String,
    media: Media,
    #[serde(default)]
    models: Vec<String>,
    capacity: Spanned<Sourced>,
    unit: Option<Spanned<Sourced>>,
    read: Option<Spanned<Sourced>>,
    write: Option<Spanned<Sourced>>,
    read_iops: Option<Spanned<Sourced>>,
    write_iops: Option<Spanned<Sourced>>,
    write_iops_size: Option<Spanned<Sourced>>,
    link: Option<Spanned<Sourced>>,
    over_provisioning: Option<Spanned<Sourced>>,
    mix: Option<Spanned<Sourced>>,
    read_latency: Option<Spanned<Sourced>>,
    write_latency: Option<Spanned<Sourced>>,
    /// Bytes that the host may write, in order.
    endurance_sequential: Option<Spanned<Sourced>>,
    /// Bytes that the host may write, at random in units.
    endurance_random: Option<Spanned<Sourced>>,
    /// Random writes of the whole capacity a day, for five years.
    dwpd: Option<Spanned<Sourced>>,
    watts_active: Option<Spanned<Sourced>>,
    watts_idle: Option<Spanned<Sourced>>,
    afr: Option<Spanned<Sourced>>,
    uber: Option<Spanned<Sourced>>,
    price_gb: Option<Spanned<Sourced>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sourced {
    is: Option<Value>,
    from: Option<Value>,
    to: Option<Value>,
    source: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Number(f64),
    Text(String),
}

/// Between which bounds a figure makes sense, for mistakes of units above all.
const BOUNDS: &[(&str, f64, f64)] = &[
    ("capacity", 1e9, 1e16),
    ("unit", 512.0, 1_048_576.0),
    ("read", 1e6, 1e12),
    ("write", 1e6, 1e12),
    ("read_iops", 10.0, 1e9),
    ("write_iops", 10.0, 1e9),
    ("write_iops_size", 512.0, 1_048_576.0),
    ("link", 1e7, 1e12),
    ("over_provisioning", 0.01, 10.0),
    ("mix", 0.5, 2.0),
    ("read_latency", 1e-7, 1.0),
    ("write_latency", 1e-7, 1.0),
    ("endurance_sequential", 1e10, 1e21),
    ("endurance_random", 1e10, 1e21),
    ("dwpd", 0.001, 1000.0),
    ("watts_active", 0.1, 1000.0),
    ("watts_idle", 0.01, 1000.0),
    ("afr", 1e-6, 1.0),
    ("uber", 1e-25, 1e-10),
    ("price_gb", 1e-4, 1000.0),
];

/// Drives of a text, each with its model strings.
pub(super) fn read(text: &str) -> Result<Vec<(Drive, Vec<String>)>, CatalogueError> {
    let line = |at: usize| text.get(..at).unwrap_or(text).matches('\n').count() + 1;
    let file: File = toml::from_str(text).map_err(|error| CatalogueError::Syntax {
        line: error.span().map_or(1, |span| line(span.start)),
        what: error.message().replace('\n', " "),
    })?;
    let mut drives = Vec::new();
    for entry in file.drive {
        let mut reader = Reader {
            sources: &file.source,
            drive: entry.name.clone(),
            line: &line,
            origins: Vec::new(),
        };
        let models = entry.models.clone();
        let mut drive = reader.drive(entry)?;
        drive.origins = reader.origins;
        drives.push((drive, models));
    }
    Ok(drives)
}

struct Reader<'a> {
    sources: &'a BTreeMap<String, Title>,
    drive: String,
    line: &'a dyn Fn(usize) -> usize,
    origins: Vec<Origin>,
}

impl Reader<'_> {
    fn drive(&mut self, entry: Entry) -> Result<Drive, CatalogueError> {
        let capacity = self.figure("capacity", &entry.capacity)?;
        let mut known = |key: &str, of: &Option<Spanned<Sourced>>| {
            of.as_ref().map(|of| self.figure(key, of)).transpose()
        };
        let known = Known {
            unit: known("unit", &entry.unit)?,
            read: known("read", &entry.read)?,
            write: known("write", &entry.write)?,
            read_iops: known("read_iops", &entry.read_iops)?,
            write_iops: known("write_iops", &entry.write_iops)?,
            write_iops_size: known("write_iops_size", &entry.write_iops_size)?,
            link: known("link", &entry.link)?,
            over_provisioning: known("over_provisioning", &entry.over_provisioning)?,
            mix: known("mix", &entry.mix)?,
            read_latency: known("read_latency", &entry.read_latency)?,
            write_latency: known("write_latency", &entry.write_latency)?,
            endurance_sequential: known("endurance_sequential", &entry.endurance_sequential)?,
            endurance_random: known("endurance_random", &entry.endurance_random)?,
            dwpd: known("dwpd", &entry.dwpd)?,
            watts_active: known("watts_active", &entry.watts_active)?,
            watts_idle: known("watts_idle", &entry.watts_idle)?,
            afr: known("afr", &entry.afr)?,
            uber: known("uber", &entry.uber)?,
            price_gb: known("price_gb", &entry.price_gb)?,
        };
        let _ = entry.maker;
        Ok(fill(&entry.name, entry.media, capacity.low as u64, known))
    }

    fn figure(&mut self, key: &str, of: &Spanned<Sourced>) -> Result<Figure, CatalogueError> {
        let wrong = |what: String| CatalogueError::Value {
            line: (self.line)(of.span().start),
            key: key.to_owned(),
            drive: self.drive.clone(),
            what,
        };
        let has = of.get_ref();
        let (_, least, most) = BOUNDS
            .iter()
            .find(|(name, ..)| *name == key)
            .expect("each key has bounds");
        let number = |value: &Value| {
            let (number, shown) = match value {
                Value::Number(number) => (Some(*number), number.to_string()),
                Value::Text(text) => {
                    let plain = || text.parse::<f64>().ok();
                    (size(text).or_else(plain), text.clone())
                }
            };
            let number = number.filter(|n| (*least..=*most).contains(n));
            number.ok_or_else(|| wrong(format!("'{shown}' is not from {least:e} to {most:e}")))
        };
        let (low, high) = match (&has.is, &has.from, &has.to) {
            (Some(is), None, None) => (number(is)?, number(is)?),
            (None, Some(from), Some(to)) => (number(from)?, number(to)?),
            _ => return Err(wrong("give is, or from and to".to_owned())),
        };
        let source = self
            .sources
            .get(&has.source)
            .ok_or_else(|| wrong(format!("source '{}' has no line in [source]", has.source)))?;
        self.origins.push(Origin {
            figure: key.to_owned(),
            source: source.title.clone(),
            date: source.date.clone(),
        });
        Ok(Figure::range(low, high, Source::DataSheet))
    }
}

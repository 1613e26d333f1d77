//! A catalogue as TOML has it, read and checked.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::CatalogueError;
use super::assumed::{Known, fill};
use super::sourced::{self, Bounds, Reader, Sourced, Title};
use crate::drive::{Drive, Media};
use crate::value::Source;

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

/// Between which bounds a figure makes sense, for mistakes of units above all.
const BOUNDS: &[Bounds] = &[
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
    let file: File = sourced::parse(text)?;
    let mut drives = Vec::new();
    for entry in file.drive {
        let of = format!("drive {}", entry.name);
        let mut reader = Reader::new(text, &file.source, of, BOUNDS, Source::DataSheet);
        let models = entry.models.clone();
        let mut drive = drive(&mut reader, entry)?;
        drive.origins = reader.origins;
        drives.push((drive, models));
    }
    Ok(drives)
}

fn drive(reader: &mut Reader<'_>, entry: Entry) -> Result<Drive, CatalogueError> {
    let capacity = reader.figure("capacity", &entry.capacity)?;
    let mut known = |key: &str, of: &Option<Spanned<Sourced>>| {
        of.as_ref().map(|of| reader.figure(key, of)).transpose()
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

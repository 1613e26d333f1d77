//! What a study measured, as its folder keeps it: `study.toml`, `result.json`, `raw`.
//!
//! `result.json` is written anew after each step, whole or not at all; the steps that it has are
//! done, and a study that was interrupted goes on behind them.
//!
//! Invariants: a figure that could not be measured is absent, and `missing` says why; it is never
//! zero. Fields are only added to this format.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use strake_foresight::engine::Engine;

use crate::definition::Figure;
use crate::rig::{Reached, Wear};
use crate::table::shown;

/// Of this format.
pub const FORMAT: u32 = 1;
/// The study, in its folder.
pub const STUDY: &str = "study.toml";
/// The results, in its folder.
pub const RESULT: &str = "result.json";
/// What fio was given and what it said, in its folder.
pub const RAW: &str = "raw";

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`FORMAT`].
    pub format: u32,
    /// Its name.
    pub study: String,
    /// Program and version.
    pub program: String,
    /// What served the arrays; before there was a choice, this one.
    #[serde(default)]
    pub engine: Engine,
    /// Where it ran.
    pub on: On,
    /// The machine that it ran on.
    pub machine: Machine,
    /// Seconds since 1970.
    pub started_unix_s: u64,
    /// The same, of the last step.
    pub ended_unix_s: u64,
    /// In the order of the study.
    pub cases: Vec<CaseResult>,
}

/// What it ran on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum On {
    /// The engine on modelled drives, in virtual time.
    Simulated,
    /// These drives, in the order of the slots.
    Real(Vec<DriveSeen>),
}

impl On {
    /// Whether it is.
    pub fn is_simulated(&self) -> bool {
        matches!(self, On::Simulated)
    }
}

/// A drive, by what stays the same over a reboot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveSeen {
    /// As it was given.
    pub path: PathBuf,
    /// A file is known by its path alone.
    pub is_file: bool,
    /// World-wide name of the namespace.
    pub wwid: Option<String>,
    /// Of the drive.
    pub serial: Option<String>,
    /// Of the drive.
    pub model: Option<String>,
    /// Its revision.
    pub firmware: Option<String>,
    /// Its size.
    pub bytes: u64,
}

impl DriveSeen {
    /// Whether both are one drive.
    pub fn is(&self, other: &DriveSeen) -> bool {
        let one = |a: &Option<String>, b: &Option<String>| a.is_some() && a == b;
        let named = |d: &DriveSeen| d.wwid.is_some() || d.serial.is_some();
        match named(self) && named(other) {
            // The serial number is that of all namespaces of a drive.
            true if self.wwid.is_some() && other.wwid.is_some() => one(&self.wwid, &other.wwid),
            true => one(&self.serial, &other.serial) && self.bytes == other.bytes,
            false => self.path == other.path && self.bytes == other.bytes,
        }
    }

    /// Name for a reader.
    pub fn shown(&self) -> String {
        let path = self.path.display();
        match self.serial.as_ref().or(self.wwid.as_ref()) {
            Some(serial) => format!("{path} ({serial})"),
            None => path.to_string(),
        }
    }
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// `uname -r`.
    pub kernel: Option<String>,
    /// As /proc/cpuinfo names it.
    pub cpu: Option<String>,
    /// Logical ones.
    pub cpus: usize,
    /// Main memory.
    pub memory_bytes: Option<u64>,
}

impl Machine {
    /// This one.
    pub fn here() -> Machine {
        let text = |path: &str| fs::read_to_string(path).ok();
        let field = |path: &str, key: &str| {
            let all = text(path)?;
            let line = all.lines().find(|line| line.starts_with(key))?;
            line.split_once(':')
                .map(|(_, value)| value.trim().to_owned())
        };
        let kib = field("/proc/meminfo", "MemTotal");
        let kib = kib.and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok());
        Machine {
            kernel: text("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()),
            cpu: field("/proc/cpuinfo", "model name"),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kib.map(|kib| kib * 1024),
        }
    }
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// Of the study.
    pub name: String,
    /// Those that are done.
    pub steps: Vec<StepResult>,
    /// All of them are.
    pub complete: bool,
}

/// What a step measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepResult {
    /// Of the case.
    pub name: String,
    /// `do` of the study.
    pub what: String,
    /// On the clock of this machine.
    pub took_s: f64,
    /// In bytes, seconds, or microseconds, as their names say.
    pub figures: BTreeMap<Figure, f64>,
    /// Why a figure is not among them.
    pub missing: BTreeMap<Figure, String>,
    /// Each load by itself.
    pub loads: Vec<LoadResult>,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// What one load reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// As the study has it.
    pub load: String,
    /// Bytes read a second.
    pub read_bytes_per_s: f64,
    /// Bytes written a second.
    pub write_bytes_per_s: f64,
    /// Reads a second.
    pub read_iops: f64,
    /// Writes a second.
    pub write_iops: f64,
    /// p50, p99, p99.9, p99.99.
    pub latency_us: [f64; 4],
}

impl From<&Reached> for LoadResult {
    fn from(reached: &Reached) -> LoadResult {
        LoadResult {
            load: reached.load.to_string(),
            read_bytes_per_s: reached.read_bytes_per_s,
            write_bytes_per_s: reached.write_bytes_per_s,
            read_iops: reached.read_iops,
            write_iops: reached.write_iops,
            latency_us: reached.latency_us,
        }
    }
}

impl StepResult {
    /// What the loads reached together.
    pub fn reached(&mut self, loads: &[Reached]) {
        if loads.is_empty() {
            return;
        }
        let sum = |of: fn(&Reached) -> f64| loads.iter().map(of).sum::<f64>();
        let (reads, writes) = (sum(|r| r.read_iops), sum(|r| r.write_iops));
        let worst = |at: usize| loads.iter().map(|r| r.latency_us[at]).fold(0.0, f64::max);
        self.figures.extend([
            (Figure::ReadBytes, sum(|r| r.read_bytes_per_s)),
            (Figure::WriteBytes, sum(|r| r.write_bytes_per_s)),
            (Figure::ReadIops, reads),
            (Figure::WriteIops, writes),
            (Figure::Iops, reads + writes),
            (Figure::P50, worst(0)),
            (Figure::P99, worst(1)),
            (Figure::P999, worst(2)),
            (Figure::P9999, worst(3)),
        ]);
        self.loads = loads.iter().map(LoadResult::from).collect();
    }

    /// Cores that were busy meanwhile, if that is known.
    pub fn busy(&mut self, cores: Option<f64>) {
        let Some(cores) = cores else { return };
        self.figures.insert(Figure::Cores, cores);
        let iops = self.figures.get(&Figure::Iops);
        if let Some(iops) = iops.filter(|iops| **iops > 0.0 && cores > 0.0) {
            self.figures.insert(Figure::IopsPerCore, iops / cores);
        }
    }

    /// What the drives counted meanwhile. `written`: bytes that the array was given, if they are
    /// known; `slot`: the drive that a rebuild wrote.
    pub fn wear(
        &mut self,
        before: &[Wear],
        after: &[Wear],
        written: Option<f64>,
        slot: Option<usize>,
    ) {
        let pairs: Vec<(Wear, Wear)> = match before.len() == after.len() {
            true => before.iter().copied().zip(after.iter().copied()).collect(),
            false => Vec::new(),
        };
        self.set(Figure::Waf, waf(&pairs));
        if let Some(pair) = slot.and_then(|slot| pairs.get(slot)) {
            self.set(Figure::WafSlot, waf(&[*pair]));
        }
        if let (Some(host), Some(written)) = (host(&pairs), written.filter(|bytes| *bytes > 0.0)) {
            let figure = host.is_fine_for(host.bytes, TO_DRIVES);
            self.set(Figure::WafRaid, figure.map(|()| host.bytes / written));
        }
    }

    /// What real drives counted meanwhile, in bytes, beside what the loads say that they wrote.
    pub fn counted(&mut self, before: &[Wear], after: &[Wear], loads: &[Reached]) {
        let pairs: Vec<(Wear, Wear)> = before.iter().copied().zip(after.iter().copied()).collect();
        let written = host(&pairs).map_or(0.0, |grown| grown.bytes);
        let is_fine = |flash: &Grown| flash.is_fine_for(written, TO_FLASH).is_ok();
        let flash = media(&pairs).filter(is_fine);
        let wrote: Option<f64> = loads.iter().map(|load| load.wrote).sum();
        let figures = [
            (Figure::LoadsWrote, wrote.filter(|_| !loads.is_empty())),
            (Figure::DrivesWritten, host(&pairs).map(|grown| grown.bytes)),
            (Figure::FlashWritten, flash.map(|grown| grown.bytes)),
        ];
        let known = figures
            .into_iter()
            .filter_map(|(figure, bytes)| Some((figure, bytes?)));
        self.figures.extend(known);
    }

    fn set(&mut self, figure: Figure, found: Result<f64, String>) {
        match found {
            Ok(value) => drop(self.figures.insert(figure, value)),
            Err(why) => drop(self.missing.insert(figure, why)),
        }
    }
}

/// By how much a counter of some drives grew, all together.
#[derive(Clone, Copy, Debug)]
struct Grown {
    bytes: f64,
    /// A drive counts in units of so many; 0: exactly.
    unit: f64,
    /// It may be off by so many: one unit of each drive.
    off: f64,
}

/// How far counters may be off, as a share of what was written, for a figure to mean something.
const OFF_MAX: f64 = 0.05;
const TO_DRIVES: &str = "what is written to them";
const TO_FLASH: &str = "what they write to their flash";

impl Grown {
    /// `None`: one drive does not have the counter, or there is no drive.
    fn of(
        pairs: &[(Wear, Wear)],
        counter: fn(&Wear) -> Option<f64>,
        unit: fn(&Wear) -> f64,
    ) -> Option<Grown> {
        let grown = |(before, after): &(Wear, Wear)| {
            // A counter that went back is another drive's.
            let by = Some(counter(after)? - counter(before)?);
            by.filter(|by| *by >= 0.0)
        };
        let units = pairs.iter().map(|(_, after)| unit(after));
        let bytes = pairs.iter().map(grown).sum::<Option<f64>>()?;
        (!pairs.is_empty()).then(|| Grown {
            bytes,
            unit: units.clone().fold(0.0, f64::max),
            off: units.sum(),
        })
    }

    /// Whether so many bytes are enough for these units.
    fn is_fine_for(self, bytes: f64, what: &str) -> Result<(), String> {
        if self.off <= OFF_MAX * bytes {
            return Ok(());
        }
        let shown = |bytes| shown(Figure::DrivesWritten, bytes);
        let (unit, bytes) = (shown(self.unit), shown(bytes));
        Err(format!(
            "the drives count {what} in units of {unit}, which is too coarse for the {bytes} that \
             were written"
        ))
    }
}

fn host(pairs: &[(Wear, Wear)]) -> Option<Grown> {
    Grown::of(pairs, |wear| wear.host_written, |wear| wear.host_unit)
}

fn media(pairs: &[(Wear, Wear)]) -> Option<Grown> {
    Grown::of(pairs, |wear| wear.media_written, |wear| wear.media_unit)
}

/// Bytes of flash for each byte that was written to the drives; or why it is not known.
fn waf(pairs: &[(Wear, Wear)]) -> Result<f64, String> {
    let host = host(pairs).ok_or("a drive does not say what was written to it (SMART log)")?;
    let no_media = "a drive does not say what it wrote to its flash (vendor's log)";
    let media = media(pairs).ok_or(no_media)?;
    if host.bytes <= 0.0 {
        return Err("the counters of the drives did not grow meanwhile".to_owned());
    }
    host.is_fine_for(host.bytes, TO_DRIVES)?;
    media.is_fine_for(host.bytes, TO_FLASH)?;
    Ok(media.bytes / host.bytes)
}

impl Results {
    /// Reads the results of a folder.
    ///
    /// # Errors
    /// There are none, or they cannot be read.
    pub fn read(folder: &Path) -> io::Result<Results> {
        let bytes = fs::read(folder.join(RESULT))?;
        let results: Results = serde_json::from_slice(&bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        match results.format {
            FORMAT => Ok(results),
            other => {
                let why = format!("its format is {other}, and this program reads {FORMAT}");
                Err(io::Error::new(io::ErrorKind::InvalidData, why))
            }
        }
    }

    /// Writes them, whole or not at all.
    ///
    /// # Errors
    /// They could not be written.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self).expect("the shapes are all JSON");
        replace(&folder.join(RESULT), (text + "\n").as_bytes())
    }

    /// What a case measured in a step.
    pub fn step(&self, case: &str, step: &str) -> Option<&StepResult> {
        let case = self.cases.iter().find(|known| known.name == case)?;
        case.steps.iter().find(|known| known.name == step)
    }

    /// Steps that are done.
    pub fn done(&self) -> usize {
        self.cases.iter().map(|case| case.steps.len()).sum()
    }
}

/// Puts a file in the place of another; after a crash one of both is there.
///
/// # Errors
/// It could not be written.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wear(host: f64, media: Option<f64>) -> Wear {
        Wear {
            host_written: Some(host),
            media_written: media,
            ..Wear::default()
        }
    }

    #[test]
    fn counters_that_are_too_coarse_for_what_was_written_give_no_figure() {
        let coarse = |host: f64, media: f64| Wear {
            host_unit: 5e5,
            media_unit: 1e9,
            ..wear(host, Some(media))
        };
        let of = |host: f64, media: f64| {
            let mut step = StepResult::default();
            step.wear(
                &[coarse(0.0, 1e9)],
                &[coarse(host, 1e9 + media)],
                Some(1e7),
                None,
            );
            step
        };
        // 30 MB: the flash took none of them, or a thousand million, as the counter has it.
        let short = of(3e7, 0.0);
        assert!(!short.figures.contains_key(&Figure::Waf), "{short:?}");
        let why = &short.missing[&Figure::Waf];
        assert!(
            why.contains("units of 1.00 GB") && why.contains("30.0 MB"),
            "{why}"
        );
        assert_eq!(short.figures[&Figure::WafRaid], 3.0);
        let least = of(1e6, 0.0);
        assert!(
            least.missing[&Figure::WafRaid].contains("500 kB"),
            "{least:?}"
        );
        assert_eq!(of(1e11, 1.2e11).figures[&Figure::Waf], 1.2);
    }

    #[test]
    fn what_drives_counted_stands_beside_what_loads_wrote() {
        let load = |wrote| Reached {
            load: "seq-write:1M:1".parse().expect("a load"),
            read_bytes_per_s: 0.0,
            write_bytes_per_s: 0.0,
            read_iops: 0.0,
            write_iops: 0.0,
            wrote,
            latency_us: [0.0; 4],
        };
        let mut step = StepResult::default();
        let (before, after) = ([wear(10.0, None)], [wear(25.0, None)]);
        step.counted(&before, &after, &[load(Some(4.0)), load(Some(6.0))]);
        assert_eq!(step.figures[&Figure::LoadsWrote], 10.0);
        assert_eq!(step.figures[&Figure::DrivesWritten], 15.0);
        assert!(!step.figures.contains_key(&Figure::FlashWritten));
        let mut step = StepResult::default();
        step.counted(&[Wear::default()], &after, &[load(None)]);
        assert!(step.figures.is_empty(), "{step:?}");
    }

    #[test]
    fn write_amplification_is_taken_around_the_step_and_of_the_slot() {
        let before = [wear(100.0, Some(500.0)), wear(50.0, Some(60.0))];
        let after = [wear(200.0, Some(700.0)), wear(100.0, Some(160.0))];
        let mut step = StepResult::default();
        step.wear(&before, &after, Some(120.0), Some(1));
        assert_eq!(step.figures[&Figure::Waf], 2.0);
        assert_eq!(step.figures[&Figure::WafSlot], 2.0);
        assert_eq!(step.figures[&Figure::WafRaid], 1.25);
        assert!(step.missing.is_empty());
    }

    #[test]
    fn what_a_drive_does_not_say_is_missing_and_not_zero() {
        let mut step = StepResult::default();
        let before = [wear(0.0, Some(0.0)), wear(0.0, None)];
        let after = [wear(9.0, Some(9.0)), wear(9.0, None)];
        step.wear(&before, &after, Some(9.0), None);
        assert!(!step.figures.contains_key(&Figure::Waf));
        assert!(step.missing[&Figure::Waf].contains("flash"));
        assert_eq!(step.figures[&Figure::WafRaid], 2.0);
        let mut step = StepResult::default();
        step.wear(&[Wear::default()], &[Wear::default()], None, None);
        assert!(step.missing[&Figure::Waf].contains("SMART"));
        let mut step = StepResult::default();
        step.wear(&[wear(9.0, Some(9.0))], &[wear(9.0, Some(9.0))], None, None);
        assert!(step.missing[&Figure::Waf].contains("did not grow"));
        // Another drive has come meanwhile.
        let mut step = StepResult::default();
        step.wear(&[wear(9.0, Some(9.0))], &[wear(1.0, Some(1.0))], None, None);
        assert!(step.figures.is_empty(), "{step:?}");
    }

    #[test]
    fn a_drive_is_known_by_its_names_and_not_by_its_path() {
        let drive = |path: &str, wwid: Option<&str>, serial: Option<&str>| DriveSeen {
            path: path.into(),
            wwid: wwid.map(str::to_owned),
            serial: serial.map(str::to_owned),
            bytes: 1,
            ..DriveSeen::default()
        };
        let one = drive("/dev/nvme0n1", Some("eui.1"), Some("S1"));
        assert!(one.is(&drive("/dev/nvme3n1", Some("eui.1"), Some("S1"))));
        assert!(!one.is(&drive("/dev/nvme0n1", Some("eui.2"), Some("S1"))));
        assert!(drive("a", None, Some("S1")).is(&drive("b", None, Some("S1"))));
        assert!(!drive("a", None, None).is(&drive("b", None, None)));
        assert!(drive("a", None, None).is(&drive("a", None, None)));
    }
}

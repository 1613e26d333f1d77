//! From words to what the models take: numbers, ranges, shapes, drives.
//!
//! Invariant: a figure that makes no sense is refused with its option and the bounds. Deliberately
//! absent: guesses; what is not given stays a range of the models.

use strake_foresight::catalogue::{Catalogue, CatalogueError, builtin, unknown};
use strake_foresight::cost;
use strake_foresight::drive::{Drive, Media, Origin};
use strake_foresight::engine::Engine;
use strake_foresight::host::Host;
use strake_foresight::load::{Load, size};
use strake_foresight::plan::search::AtLeast;
use strake_foresight::plan::{Asked, Preset};
use strake_foresight::shape::{Impossible, Shape};
use strake_foresight::value::{Figure, Source};
use strake_format::{Level, ShapeError};

use crate::cli::args::plan::{FigureArgs, MediaArg, PlanArgs, TermArgs};
use crate::common::errors::{Code, Failure};

/// What an array that is there has.
#[derive(Debug, Default)]
pub(super) struct Like {
    pub(super) level: Option<String>,
    pub(super) members: Option<u8>,
    pub(super) group_size: Option<u8>,
    pub(super) strip: Option<u64>,
    pub(super) model: Option<String>,
    pub(super) capacity: Option<u64>,
    pub(super) granularity: Option<u64>,
}

/// Level, members, group and strip, as far as they are given.
#[derive(Clone, Debug, Default)]
struct ShapeWords {
    level: Option<String>,
    count: Option<u8>,
    group: Option<u8>,
    strip: Option<u64>,
}

fn wrong(option: &str, text: &str, takes: &str) -> Failure {
    let found = format!("{option} {text}: that is not {takes}");
    Failure::new(Code::FigureInvalid, found).cure(format!("give {takes}, or a range of it as A..B"))
}

/// A number with a unit of bytes, a percentage, or a plain number, within bounds.
fn one(text: &str, percent: bool) -> Option<f64> {
    let text = text.trim();
    match text.strip_suffix('%') {
        Some(number) if percent => number.trim().parse::<f64>().ok().map(|n| n / 100.0),
        Some(_) => None,
        None => text.parse::<f64>().ok().or_else(|| size(text)),
    }
}

/// What an option takes.
#[derive(Clone, Copy)]
struct Takes {
    option: &'static str,
    what: &'static str,
    least: f64,
    most: f64,
    percent: bool,
}

impl Takes {
    const fn new(option: &'static str, what: &'static str, least: f64, most: f64) -> Takes {
        Takes {
            option,
            what,
            least,
            most,
            percent: false,
        }
    }

    const fn share(option: &'static str, what: &'static str, least: f64) -> Takes {
        Takes {
            option,
            what,
            least,
            most: 1.0,
            percent: true,
        }
    }

    fn figure(self, text: &str) -> Result<Figure, Failure> {
        let number = |part: &str| {
            let number = one(part, self.percent);
            let number = number.filter(|n| (self.least..=self.most).contains(n));
            number.ok_or_else(|| wrong(self.option, text, self.what))
        };
        let (low, high) = match text.split_once("..") {
            Some((low, high)) => (number(low)?, number(high)?),
            None => (number(text)?, number(text)?),
        };
        Ok(Figure::range(low, high, Source::Given))
    }

    fn point(self, text: &str) -> Result<f64, Failure> {
        let figure = self.figure(text)?;
        match figure.is_point() {
            true => Ok(figure.low),
            false => Err(wrong(self.option, text, "one number")),
        }
    }
}

/// The catalogue with the user's files.
pub(super) fn catalogue(args: &PlanArgs) -> Result<Catalogue, Failure> {
    args.drive_file.iter().try_fold(builtin(), |all, path| {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::io(path.display(), &e))?;
        all.with(&text).map_err(|error| {
            Failure::new(
                Code::CatalogueInvalid,
                format!("{}: {error}", path.display()),
            )
        })
    })
}

/// The machine: ranges, with the figures of the user's files.
fn host(args: &PlanArgs) -> Result<Host, Failure> {
    args.host_file
        .iter()
        .try_fold(Host::default(), |host, path| {
            let text =
                std::fs::read_to_string(path).map_err(|e| Failure::io(path.display(), &e))?;
            host.with_file(&text).map_err(|error| {
                let found = format!("{}: {error}", path.display());
                Failure::new(Code::HostFileInvalid, found)
            })
        })
}

fn find(all: &Catalogue, name: &str) -> Result<Drive, Failure> {
    all.find(name).map_err(|error| {
        let failure = Failure::new(Code::DriveUnknown, error.to_string());
        match &error {
            CatalogueError::Unknown { near, .. } if !near.is_empty() => {
                let cure = "give one of these, or see strake plan --drives; figures do as well: \
                            --capacity 61.44TB --media qlc";
                failure.cure(cure)
            }
            _ => failure,
        }
    })
}

/// The drive: of the catalogue, of the array, or of figures alone, with the figures that are given.
pub(super) fn drive(args: &PlanArgs, all: &Catalogue, like: &Like) -> Result<Drive, Failure> {
    let given = &args.figures;
    let media = given.media.map(|media| match media {
        MediaArg::Slc => Media::Slc,
        MediaArg::Tlc => Media::Tlc,
        MediaArg::Qlc => Media::Qlc,
        MediaArg::Hdd => Media::Hdd,
    });
    let capacity = Takes::new(
        "--capacity",
        "bytes of a drive, from 1GB to 10PB",
        1e9,
        1e16,
    );
    let capacity = given.capacity.as_deref().map(|text| capacity.point(text));
    let capacity = capacity.transpose()?.map(|bytes| bytes as u64);
    let known = like
        .model
        .as_deref()
        .and_then(|model| all.of_model(model, like.capacity.unwrap_or(0)));
    let mut drive = match (&args.drive, known) {
        (Some(name), _) => find(all, name)?,
        (None, Some(drive)) => drive,
        (None, None) => {
            let Some(bytes) = capacity.or(like.capacity) else {
                let found = "no drive is named, and no --capacity is given";
                let cure = "give --drive NAME (strake plan --drives lists them), --like ARRAY, or \
                            figures: --capacity 61.44TB --media qlc";
                return Err(Failure::new(Code::DriveUnknown, found).cure(cure));
            };
            let name = like
                .model
                .clone()
                .unwrap_or("a drive of figures".to_owned());
            unknown(&name, bytes, media.unwrap_or(Media::Tlc))
        }
    };
    if let (Some(media), true) = (media, args.drive.is_some()) {
        drive.media = media;
    }
    // A drive that is named outweighs those of the array.
    let like = if args.drive.is_some() {
        &Like::default()
    } else {
        like
    };
    if let Some(bytes) = capacity.or(like.capacity) {
        drive.capacity = bytes;
    }
    if let Some(unit) = like.granularity.filter(|unit| *unit >= 512) {
        measured(&mut drive.unit, unit as f64);
        said(
            &mut drive.origins,
            "unit",
            "write granularity of the array's members",
        );
    }
    overwrite(&mut drive, given)?;
    Ok(drive)
}

fn measured(figure: &mut Figure, value: f64) {
    *figure = Figure::point(value, Source::Measured);
}

/// Notes where a figure comes from, instead of what the catalogue says.
fn said(origins: &mut Vec<Origin>, figure: &str, source: &str) {
    origins.retain(|o| o.figure != figure);
    origins.push(Origin {
        figure: figure.to_owned(),
        source: source.to_owned(),
        date: "now".to_owned(),
    });
}

/// Figures of the command line outweigh all others.
fn overwrite(drive: &mut Drive, given: &FigureArgs) -> Result<(), Failure> {
    let rate = |option| Takes::new(option, "bytes a second, from 1MB to 1000GB", 1e6, 1e12);
    let watts = "watts, from 0.1 to 1000";
    let bytes = |option| Takes::new(option, "bytes from 512 to 1M", 512.0, 1_048_576.0);
    let iops = "a rate from 10 to 1000000000";
    let fields = [
        (&given.unit, "unit", bytes("--unit"), &mut drive.unit),
        (&given.read, "read", rate("--read"), &mut drive.read),
        (&given.write, "write", rate("--write"), &mut drive.write),
        (
            &given.read_iops,
            "read_iops",
            Takes::new("--read-iops", iops, 10.0, 1e9),
            &mut drive.read_iops,
        ),
        (
            &given.write_iops,
            "write_iops",
            Takes::new("--write-iops", iops, 10.0, 1e9),
            &mut drive.write_iops,
        ),
        (
            &given.afr,
            "afr",
            Takes::share("--afr", "a share from 0.0001% to 100%", 1e-6),
            &mut drive.afr,
        ),
        (
            &given.uber,
            "uber",
            Takes::new("--uber", "a rate from 1e-25 to 1e-10", 1e-25, 1e-10),
            &mut drive.uber,
        ),
        (
            &given.price_gb,
            "price_gb",
            Takes::new("--price-gb", "dollars from 0.0001 to 1000", 1e-4, 1e3),
            &mut drive.price_gb,
        ),
        (
            &given.watts_active,
            "watts_active",
            Takes::new("--watts-active", watts, 0.1, 1e3),
            &mut drive.watts_active,
        ),
        (
            &given.watts_idle,
            "watts_idle",
            Takes::new("--watts-idle", watts, 0.1, 1e3),
            &mut drive.watts_idle,
        ),
    ];
    for (text, name, takes, figure) in fields {
        if let Some(text) = text {
            *figure = takes.figure(text)?;
            said(&mut drive.origins, name, "given");
        }
    }
    if given.write_iops.is_some() {
        let text = given.write_size.as_deref().unwrap_or("4K");
        drive.random_write_bytes = bytes("--write-size").point(text)? as u64;
    }
    Ok(())
}

/// The shape that is planned first.
pub(super) fn shape(args: &PlanArgs, like: &Like, unit: Figure) -> Result<Shape, Failure> {
    let strip = args.strip.as_deref().map(crate::common::size::parse);
    let words = ShapeWords {
        level: args.level.clone().or(like.level.clone()),
        count: args.count.or(like.members),
        group: args.group_size.or(like.group_size),
        strip: strip.transpose()?.or(like.strip),
    };
    // A search needs members alone.
    let words = match (&words.level, args.best_for) {
        (None, Some(_)) => ShapeWords {
            level: Some("0".to_owned()),
            group: None,
            ..words
        },
        _ => words,
    };
    made(&words, args.spares, unit)
}

fn made(words: &ShapeWords, spares: u8, unit: Figure) -> Result<Shape, Failure> {
    let missing = |what: &str| Failure::new(Code::Usage, format!("plan needs {what}"));
    let level = words
        .level
        .as_deref()
        .ok_or_else(|| missing("--level, or --like ARRAY"))?;
    let level: Level = level.parse().map_err(|e: strake_format::LevelError| {
        Failure::new(Code::LevelUnknown, format!("level '{level}' is {e}"))
    })?;
    let count = match (level, words.count) {
        (_, Some(count)) => count,
        (Level::Nm { n, m }, None) => n + m,
        _ => return Err(missing("--count, or --like ARRAY")),
    };
    let level = match words.group {
        Some(group) if group < count && !level.is_grouped() => {
            level.with_groups(true).unwrap_or(level)
        }
        _ => level,
    };
    let shape = Shape::new(level, count, words.group, words.strip, unit.high as u64);
    shape
        .and_then(|shape| shape.with_spares(spares))
        .map_err(|error| impossible(level, count, &error))
}

fn impossible(level: Level, count: u8, error: &Impossible) -> Failure {
    let code = match error {
        Impossible::Strip(_) => Code::StripInvalid,
        Impossible::Spares(_) => Code::TooManySpares,
        Impossible::NoGroup(_) => Code::GroupSize,
        Impossible::Shape(ShapeError::TooFewMembers { .. }) => Code::TooFewMembers,
        Impossible::Shape(ShapeError::TooManyMembers { .. } | ShapeError::MembersNotNm { .. }) => {
            Code::TooManyMembers
        }
        Impossible::Shape(ShapeError::Level(_)) => Code::LevelUnknown,
        Impossible::Shape(_) => Code::GroupSize,
    };
    let failure = Failure::new(code, format!("level {level} of {count} drives: {error}"));
    match error {
        Impossible::Shape(ShapeError::TooFewMembers { .. }) => {
            failure.cure("give a larger --count or another --level")
        }
        Impossible::Shape(ShapeError::TooManyMembers { .. } | ShapeError::MembersNotNm { .. }) => {
            failure.cure("give the --count of the level, or another --level")
        }
        Impossible::NoGroup(_) => failure.cure("give --group-size"),
        _ => failure,
    }
}

/// The same served by Linux md, which has no stripe log, and no level of more than two parities.
fn md(mut asked: Asked) -> Result<Asked, Failure> {
    if asked.shape.tolerance() > 2 && asked.shape.level.has_parity() {
        let found = format!(
            "md has no level {}: it has two parities at most",
            asked.shape.level
        );
        return Err(
            Failure::new(Code::LevelUnknown, found).cure("give --level 0, 1, 5, 6, 10, 50 or 60")
        );
    }
    asked.host.engine = Engine::Md;
    asked.shape.log = false;
    Ok(asked)
}

/// A shape of `--compare`, with what it does not say as in the first one.
pub(super) fn other(
    text: &str,
    first: &Asked,
    all: &Catalogue,
    args: &PlanArgs,
) -> Result<Asked, Failure> {
    let bad = || {
        let found =
            format!("--compare {text}: that is not LEVEL[:COUNT[:GROUP[:STRIP]]][@DRIVE] or md");
        Failure::new(Code::Usage, found)
            .cure("give a shape as 6:24 or 60:24:12:128K@D5-P5336-61.44")
    };
    if text == "md" {
        return md(first.clone());
    }
    let (shape, name) = match text.split_once('@') {
        Some((shape, name)) => (shape, Some(name)),
        None => (text, None),
    };
    let mut drive = first.drive.clone();
    if let Some(name) = name {
        drive = find(all, name)?;
        overwrite(&mut drive, &args.figures)?;
    }
    let parts: Vec<&str> = shape.split(':').collect();
    if parts.len() > 4 || parts[0].is_empty() {
        return Err(bad());
    }
    let number = |n: usize| match parts.get(n) {
        None => Ok(None),
        Some(text) => text.parse::<u8>().map(Some).map_err(|_| bad()),
    };
    let strip = parts.get(3).map(|text| crate::common::size::parse(text));
    let words = ShapeWords {
        level: Some(parts[0].to_owned()),
        count: match number(1)? {
            Some(count) => Some(count),
            None if parts[0].contains('+') => None,
            None => Some(first.shape.members),
        },
        group: number(2)?,
        strip: strip.transpose()?,
    };
    let shape = made(&words, first.shape.spares, drive.unit)?;
    Ok(Asked {
        drive,
        shape,
        ..first.clone()
    })
}

/// All that is asked about one shape.
pub(super) fn asked(args: &PlanArgs, drive: Drive, shape: Shape) -> Result<Asked, Failure> {
    let mut asked = Asked::new(drive, shape);
    asked.host = host(args)?;
    for text in &args.loads {
        let load: Load = text
            .parse()
            .map_err(|e: strake_foresight::load::LoadError| {
                Failure::new(Code::LoadInvalid, format!("--load {text}: {e}"))
            })?;
        asked.loads.push(load);
    }
    let given = &args.terms;
    let figure = |text: &Option<String>, takes: Takes, into: &mut Figure| {
        if let Some(text) = text {
            *into = takes.figure(text)?;
        }
        Ok::<(), Failure>(())
    };
    figure(
        &given.cores,
        Takes::new("--cores", "cores from 1 to 4096", 1.0, 4096.0),
        &mut asked.host.cores,
    )?;
    figure(
        &given.rebuild_share,
        Takes::share("--rebuild-share", "a share from 0.1% to 100%", 0.001),
        &mut asked.share,
    )?;
    figure(
        &given.correlation,
        Takes::new("--correlation", "a factor from 1 to 1000", 1.0, 1000.0),
        &mut asked.correlation,
    )?;
    let days = Takes::new("--scrub-days", "days from 0.1 to 3650", 0.1, 3650.0);
    if let Some(text) = &given.scrub_days {
        asked.scrub_h = days.figure(text)?.map(Source::Given, |days| days * 24.0);
    }
    figure(
        &given.replace_hours,
        Takes::new("--replace-hours", "hours from 0 to 8760", 0.0, 8760.0),
        &mut asked.replace_h,
    )?;
    if let Some(text) = &given.uplink {
        let takes = Takes::new("--uplink", "bytes a second, from 10MB to 10TB", 1e7, 1e13);
        asked.host.uplink = Some(takes.figure(text)?);
    }
    if let Some(text) = &given.written {
        asked.written = Takes::share("--written", "a share from 1% to 100%", 0.01).point(text)?;
    }
    if let Some(text) = &given.hold {
        let takes = Takes::new("--hold", "bytes from 1TB to 1000PB", 1e12, 1e18);
        asked.hold = Some(takes.point(text)?);
    }
    if given.engine == "md" {
        asked = md(asked)?;
    }
    if given.preset.is_some() {
        asked.preset = Preset::SeedGraid;
    }
    money(given, &mut asked.terms)?;
    Ok(asked)
}

fn money(given: &TermArgs, terms: &mut cost::Terms) -> Result<(), Failure> {
    let usd = "dollars from 0 to 1000000";
    let fields = [
        (
            &given.years,
            Takes::new("--years", "years from 0.1 to 50", 0.1, 50.0),
            &mut terms.years,
        ),
        (
            &given.kwh,
            Takes::new("--kwh", "dollars from 0 to 10", 0.0, 10.0),
            &mut terms.kwh,
        ),
        (
            &given.pue,
            Takes::new("--pue", "a factor from 1 to 5", 1.0, 5.0),
            &mut terms.pue,
        ),
        (
            &given.duty,
            Takes::share("--duty", "a share from 0% to 100%", 0.0),
            &mut terms.duty,
        ),
        (
            &given.drives_per_server,
            Takes::new("--drives-per-server", "drives from 1 to 200", 1.0, 200.0),
            &mut terms.drives_per_server,
        ),
        (
            &given.server_price,
            Takes::new("--server-price", usd, 0.0, 1e6),
            &mut terms.server_price,
        ),
    ];
    for (text, takes, into) in fields {
        if let Some(text) = text {
            *into = takes.point(text)?;
        }
    }
    Ok(())
}

/// What the best must reach.
pub(super) fn at_least(words: &[String]) -> Result<AtLeast, Failure> {
    let mut least = AtLeast::default();
    for word in words {
        let bad = || {
            let found = format!("--at-least {word}: that is not a bound");
            let cure = "give usable=500TB, tolerance=2, nines=6, rate=20GB or life=5 (years)";
            Failure::new(Code::FigureInvalid, found).cure(cure)
        };
        let (key, text) = word.split_once('=').ok_or_else(bad)?;
        let value = one(text, false)
            .filter(|v| *v >= 0.0 && v.is_finite())
            .ok_or_else(bad)?;
        match key {
            "usable" => least.usable = Some(value),
            "tolerance" if value <= 32.0 && value.fract() == 0.0 => {
                least.tolerance = Some(value as u8);
            }
            "nines" if value <= 100.0 => least.nines = Some(value),
            "rate" => least.rate = Some(value),
            "life" => least.life = Some(value),
            _ => return Err(bad()),
        }
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_numbers_sizes_shares_and_ranges() {
        let share = Takes::share("--afr", "a share", 1e-6);
        assert_eq!(share.figure("0.44%").expect("right").low, 0.0044);
        assert_eq!(share.figure("0.0044").expect("right").low, 0.0044);
        let range = share.figure("0.4%..1%").expect("right");
        assert_eq!(
            (range.low, range.high, range.source),
            (0.004, 0.01, Source::Given)
        );
        let unit = Takes::new("--unit", "bytes", 512.0, 1_048_576.0);
        assert_eq!(unit.point("16K").expect("right"), 16384.0);
        for text in ["-1", "", "fast", "nan", "inf", "1..x", "5%", "2M", "1.."] {
            let error = unit.figure(text).expect_err(text);
            assert_eq!(error.code, Code::FigureInvalid);
            assert!(error.found.contains("--unit"), "{}", error.found);
        }
    }

    #[test]
    fn bounds_are_read_and_others_refused() {
        let words = |all: &[&str]| all.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let least = at_least(&words(&["usable=1PB", "tolerance=2", "nines=6"])).expect("right");
        assert_eq!((least.usable, least.tolerance), (Some(1e15), Some(2)));
        for word in ["usable", "speed=1", "nines=-1", "tolerance=1.5", "usable=x"] {
            assert!(at_least(&words(&[word])).is_err(), "{word}");
        }
    }

    #[test]
    fn a_level_with_smaller_groups_is_the_level_of_groups() {
        let unit = Figure::point(16384.0, Source::Given);
        let words = |level: &str, count, group| ShapeWords {
            level: Some(level.to_owned()),
            count,
            group,
            strip: None,
        };
        let shape = made(&words("6", Some(24), Some(12)), 1, unit).expect("a shape");
        assert_eq!(
            (shape.level, shape.group_size, shape.spares),
            (Level::Raid60, 12, 1)
        );
        let shape = made(&words("16+3", None, None), 0, unit).expect("a shape");
        assert_eq!(shape.members, 19);
        let code = |level: &str, count, group| {
            made(&words(level, count, group), 0, unit)
                .expect_err("none")
                .code
        };
        assert_eq!(code("6", Some(3), None), Code::TooFewMembers);
        assert_eq!(code("6", Some(24), Some(7)), Code::GroupSize);
        assert_eq!(code("60", Some(24), None), Code::GroupSize);
        assert_eq!(code("9", Some(24), None), Code::LevelUnknown);
        assert_eq!(code("6", None, None), Code::Usage);
        assert_eq!(code("5", Some(65), None), Code::TooManyMembers);
    }
}

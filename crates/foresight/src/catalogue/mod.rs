//! The catalogue of drives: TOML, each figure with its source and date.
//!
//! Invariants: a figure that the catalogue lacks becomes a range with
//! [`Source::Assumed`], by what the drive's data lies on, or is computed from figures that are
//! there; it is never a guess of one point. A mistake is named with its line and key.

mod assumed;
mod entry;
pub(crate) mod sourced;

use crate::drive::Drive;

/// The drives that come with the product.
const BUILTIN: &str = include_str!("../../catalogue.toml");
/// Names that are offered instead of one that is not found.
const NEAR: usize = 3;

/// Drives by name.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Catalogue {
    drives: Vec<Drive>,
    /// Model strings, as `nvme list` prints them, and which drive has each.
    models: Vec<(String, usize)>,
}

/// Why a catalogue or a drive cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// Not TOML, or a key that is unknown or missing.
    #[error("line {line}: {what}")]
    Syntax {
        /// Line of the file, from 1.
        line: usize,
        /// What TOML says of it.
        what: String,
    },
    /// A value that is none.
    #[error("line {line}: {key} of {of}: {what}")]
    Value {
        /// Line of the file, from 1.
        line: usize,
        /// Key of the table.
        key: String,
        /// What it is of: a drive by its name, or the host.
        of: String,
        /// What is wrong with the value, and what is taken.
        what: String,
    },
    /// No such drive.
    #[error("no drive is called '{name}'{}", near_names(near))]
    Unknown {
        /// What was looked for.
        name: String,
        /// Names that look like it.
        near: Vec<String>,
    },
}

fn near_names(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!("; near: {}", near.join(", ")),
    }
}

/// The catalogue that comes with the product.
///
/// # Panics
/// Never: a test reads it.
pub fn builtin() -> Catalogue {
    Catalogue::default()
        .with(BUILTIN)
        .expect("the built-in catalogue is read by a test")
}

impl Catalogue {
    /// The same with the drives of a TOML text, which take the place of those of the same names.
    ///
    /// # Errors
    /// Where the text is wrong: line, key and what.
    pub fn with(mut self, text: &str) -> Result<Catalogue, CatalogueError> {
        for (drive, models) in entry::read(text)? {
            let at = self.drives.iter().position(|d| d.name == drive.name);
            let at = match at {
                Some(at) => {
                    self.models.retain(|(_, of)| *of != at);
                    self.drives[at] = drive;
                    at
                }
                None => {
                    self.drives.push(drive);
                    self.drives.len() - 1
                }
            };
            self.models.extend(models.into_iter().map(|m| (m, at)));
        }
        Ok(self)
    }

    /// The drive of a name; case does not matter.
    ///
    /// # Errors
    /// There is none: with names that are near.
    pub fn find(&self, name: &str) -> Result<Drive, CatalogueError> {
        let found = self
            .drives
            .iter()
            .find(|d| d.name.eq_ignore_ascii_case(name));
        found.cloned().ok_or_else(|| CatalogueError::Unknown {
            name: name.to_owned(),
            near: self.near(name),
        })
    }

    /// The drive of a model string, as the drive itself reports it, and of a capacity: one that
    /// lists the model, or else one of the series that the model names (`D5-P5336`), of this size.
    pub fn of_model(&self, model: &str, capacity: u64) -> Option<Drive> {
        let model = model.trim();
        if let Some((_, at)) = self.models.iter().find(|(of, _)| model.starts_with(of)) {
            return self.drives.get(*at).cloned();
        }
        let model = model.to_lowercase();
        let same = |drive: &&Drive| {
            let name = drive.name.to_lowercase();
            let series = name.rsplit_once('-').map_or("", |(series, _)| series);
            series.len() > 4
                && model.contains(series)
                && drive.capacity.abs_diff(capacity) < capacity / 50
        };
        self.drives.iter().find(same).cloned()
    }

    /// All drives.
    pub fn drives(&self) -> &[Drive] {
        &self.drives
    }

    /// Names that begin alike, or that differ in few letters, the nearest first.
    fn near(&self, name: &str) -> Vec<String> {
        let wanted = name.to_lowercase();
        let mut scored: Vec<(f64, &str)> = self
            .drives
            .iter()
            .map(|drive| {
                let has = drive.name.to_lowercase();
                let part = has.contains(&wanted) && wanted.len() >= 3;
                let alike = strsim::jaro_winkler(&wanted, &has);
                (if part { 2.0 } else { alike }, drive.name.as_str())
            })
            .filter(|(score, _)| *score > 0.7)
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        let names = scored.into_iter().take(NEAR);
        names.map(|(_, name)| name.to_owned()).collect()
    }
}

/// A drive of which only the capacity is known: all else is a range.
pub fn unknown(name: &str, capacity: u64, media: crate::drive::Media) -> Drive {
    assumed::fill(name, media, capacity, assumed::Known::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::Media;
    use crate::value::Source;

    #[test]
    fn the_built_in_catalogue_has_all_drives_of_the_studies_with_sources() {
        let all = builtin();
        assert!(all.drives().len() >= 15);
        for name in [
            "D5-P5336-61.44",
            "D5-P5316-15.36",
            "D5-P5316-30.72",
            "PM1733-1.92",
            "HDD-30",
        ] {
            let drive = all.find(name).expect(name);
            assert!(drive.origins.iter().all(|o| !o.source.is_empty()), "{name}");
        }
        for drive in all.drives() {
            let pairs = [drive.unit, drive.read, drive.write, drive.read_iops];
            for figure in pairs.into_iter().chain([drive.write_iops, drive.uber]) {
                assert!(figure.low > 0.0 && figure.low <= figure.high, "{drive:?}");
            }
            let known: Vec<_> = drive.origins.iter().map(|o| &o.figure).collect();
            assert!(known.len() >= 4, "{}", drive.name);
        }
    }

    #[test]
    fn what_is_unknown_is_a_range_and_what_follows_is_computed() {
        let drive = builtin().find("d5-p5336-61.44").expect("any case");
        assert_eq!(drive.unit.source, Source::DataSheet);
        assert!(!drive.price_gb.is_point());
        assert_eq!(drive.price_gb.source, Source::Assumed);
        // 3.3 GB/s beside 38 to 43 k writes of 16 KiB: 10.8 to 13 % of spare flash.
        let spare = drive.over_provisioning;
        assert_eq!(spare.source, Source::Formula);
        assert!(
            (0.10..0.14).contains(&spare.low) && spare.high < 0.14,
            "{spare:?}"
        );
        let lc9 = builtin().find("LC9-245.76").expect("there");
        assert_eq!(lc9.unit.source, Source::Assumed);
        assert!(lc9.write_iops.low < lc9.write_iops.high);
        let bare = unknown("x", 1 << 40, Media::Tlc);
        assert!(!bare.read.is_point() && bare.origins.is_empty());
    }

    #[test]
    fn an_unknown_name_is_answered_with_near_ones() {
        let near = |name: &str| match builtin().find(name) {
            Err(CatalogueError::Unknown { near, .. }) => near,
            other => panic!("{other:?}"),
        };
        assert!(near("P5336").contains(&"D5-P5336-61.44".to_owned()));
        assert_eq!(near("D5-P5366-61.44")[0], "D5-P5336-61.44");
        assert!(near("zzz").is_empty());
    }

    #[test]
    fn a_user_adds_and_replaces_drives_and_mistakes_have_a_line() {
        let text = |figure: &str| {
            format!(
                "[source]\nmine = {{ title = \"bench\", date = \"2026-11\" }}\n\n[[drive]]\nname = \
                 \"HDD-30\"\nmedia = \"qlc\"\nmodels = [\"ACME 1\"]\ncapacity = {{ is = \"1TB\", \
                 source = \"mine\" }}\n{figure}\n"
            )
        };
        let with = builtin().with(&text("afr = { is = 0.01, source = \"mine\" }"));
        let with = with.expect("right");
        assert_eq!(with.drives().len(), builtin().drives().len());
        assert_eq!(
            with.find("hdd-30").expect("there").capacity,
            1_000_000_000_000
        );
        assert_eq!(with.of_model("ACME 1T ", 5).expect("there").name, "HDD-30");
        assert_eq!(with.of_model("ACME 2", 1_000_000_000_000), None);
        let series = |bytes| with.of_model("SOLIDIGM D5-P5336", bytes).map(|d| d.name);
        assert_eq!(
            series(61_400_000_000_000).as_deref(),
            Some("D5-P5336-61.44")
        );
        assert_eq!(series(30_000_000_000_000), None);
        let error = |figure: &str| {
            let with = builtin().with(&text(figure));
            with.expect_err(figure).to_string()
        };
        for (figure, parts) in [
            (
                "afr = { is = -1, source = \"mine\" }",
                &["line 9", "afr", "HDD-30", "-1"][..],
            ),
            (
                "afr = { is = 2, source = \"mine\" }",
                &["line 9", "afr", "2"],
            ),
            (
                "unit = { is = \"fast\", source = \"mine\" }",
                &["line 9", "unit", "fast"],
            ),
            (
                "read = { is = \"1e300\", source = \"mine\" }",
                &["line 9", "read"],
            ),
            (
                "read = { is = \"1GB\", source = \"other\" }",
                &["line 9", "read", "other"],
            ),
            (
                "read = { from = \"1GB\", source = \"mine\" }",
                &["line 9", "read", "to"],
            ),
            ("speed = 1", &["line 9", "speed"]),
            ("[", &["line 9"]),
        ] {
            let error = error(figure);
            assert!(parts.iter().all(|p| error.contains(p)), "{figure}: {error}");
        }
    }
}

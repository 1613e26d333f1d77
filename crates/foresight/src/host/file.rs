//! A host file: what the benchmarks measured of a machine, as TOML with the source and date of each
//! figure.
//!
//! Invariant: what the file lacks stays as it was; a mistake is named with its line and key.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::Host;
use crate::catalogue::CatalogueError;
use crate::catalogue::sourced::{self, Bounds, Reader, Sourced, Title};
use crate::value::Source;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    source: BTreeMap<String, Title>,
    host: Entry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    cores: Option<Spanned<Sourced>>,
    request: Option<Spanned<Sourced>>,
    io: Option<Spanned<Sourced>>,
    byte: Option<Spanned<Sourced>>,
    check: Option<Spanned<Sourced>>,
    device_iops: Option<Spanned<Sourced>>,
    uplink: Option<Spanned<Sourced>>,
}

/// Mistakes of units above all: times are seconds.
const BOUNDS: &[Bounds] = &[
    ("cores", 1.0, 4096.0),
    ("request", 1e-9, 1e-3),
    ("io", 1e-8, 1e-3),
    ("byte", 1e-13, 1e-7),
    ("check", 1e-13, 1e-7),
    ("device_iops", 1e3, 1e12),
    ("uplink", 1e7, 1e13),
];

/// The host with the figures of a text in place of its own.
pub(super) fn read(mut host: Host, text: &str) -> Result<Host, CatalogueError> {
    let file: File = sourced::parse(text)?;
    let of = "the host".to_owned();
    let mut reader = Reader::new(text, &file.source, of, BOUNDS, Source::Measured);
    let entry = &file.host;
    let figures = [
        ("cores", &entry.cores, &mut host.cores),
        ("request", &entry.request, &mut host.request),
        ("io", &entry.io, &mut host.io),
        ("byte", &entry.byte, &mut host.byte),
        ("check", &entry.check, &mut host.check),
    ];
    for (key, of, into) in figures {
        if let Some(of) = of {
            *into = reader.figure(key, of)?;
        }
    }
    let limits = [
        ("device_iops", &entry.device_iops, &mut host.device_iops),
        ("uplink", &entry.uplink, &mut host.uplink),
    ];
    for (key, of, into) in limits {
        if let Some(of) = of {
            *into = Some(reader.figure(key, of)?);
        }
    }
    for origin in reader.origins {
        host.origins.retain(|other| other.figure != origin.figure);
        host.origins.push(origin);
    }
    Ok(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str =
        "[source]\nbench = { title = \"bench system\", date = \"2026-11-28\" }\n\n";

    #[test]
    fn figures_of_a_file_are_measured_and_the_others_stay_ranges() {
        let text = format!(
            "{SOURCE}[host]\ncores = {{ is = 2, source = \"bench\" }}\nio = {{ from = 1e-6, to = \
             2e-6, source = \"bench\" }}\nuplink = {{ is = \"8GB\", source = \"bench\" }}\n"
        );
        let host = Host::default().with_file(&text).expect("right");
        assert_eq!((host.cores.low, host.cores.source), (2.0, Source::Measured));
        assert_eq!((host.io.low, host.io.high), (1e-6, 2e-6));
        assert_eq!(host.uplink.expect("given").low, 8e9);
        assert_eq!(host.request, Host::default().request);
        assert_eq!(host.origins.len(), 3);
        assert_eq!(host.origins[0].source, "bench system");
        // Of two files the later one counts.
        let more = "[source]\nb = { title = \"more\", date = \"2026\" }\n[host]\ncores = { is = 4, \
                    source = \"b\" }\n";
        let host = host.with_file(more).expect("right");
        assert_eq!((host.cores.low, host.origins.len()), (4.0, 3));
    }

    #[test]
    fn a_mistake_has_a_line_and_a_key() {
        for (line, parts) in [
            (
                "io = { is = 2, source = \"bench\" }",
                &["line 5", "io of the host", "'2'", "1e-8"][..],
            ),
            (
                "cores = { is = 0, source = \"bench\" }",
                &["line 5", "cores", "'0'"],
            ),
            (
                "byte = { is = 1e-10, source = \"x\" }",
                &["line 5", "byte", "'x'"],
            ),
            (
                "check = { from = 1e-10, source = \"bench\" }",
                &["line 5", "check", "to"],
            ),
            ("speed = 1", &["line 5", "speed"]),
            ("cores = 2", &["line 5"]),
        ] {
            let text = format!("{SOURCE}[host]\n{line}\n");
            let error = Host::default().with_file(&text).expect_err(line);
            let error = error.to_string();
            assert!(parts.iter().all(|p| error.contains(p)), "{line}: {error}");
        }
        let none = Host::default().with_file(SOURCE).expect_err("no [host]");
        assert!(none.to_string().contains("host"), "{none}");
    }
}

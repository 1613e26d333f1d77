//! The rooms of a crate: which folder may use which, and where the owner types have their methods.
//!
//! A room is a folder of a crate's `src`, or a file beside `lib.rs`. Imports go only down: a row of
//! the table may name only rows above it. What is used is read from the paths of the code
//! (`crate::…`, `super::…`), so a path in a body counts like an import.
//!
//! The table is closed: a file that no row names is an error, and so is an arrow that no row has.
//!
//! Deliberately absent: paths that a macro makes, and names that come by way of a type of another
//! room.

use super::paths::{Path, impls, open_fields, paths};
use super::source::Source;
use super::{Finding, Weight};
use std::collections::BTreeMap;

/// Files of one folder, at most; folders in it count for themselves.
const FILES: usize = 12;
/// The page that shows the rooms.
const PAGE: &str = "docs/ARCHITECTURE.md";

/// A room, and the rooms that it may use.
struct Room {
    name: &'static str,
    uses: &'static [&'static str],
}

/// An owner type has its methods in its own room alone, and its fields, too.
struct Owner {
    name: &'static str,
    /// A room, or a folder in one.
    room: &'static str,
}

struct Crate {
    /// The folder of its sources.
    src: &'static str,
    /// From the lowest room to the highest.
    rooms: &'static [Room],
    owners: &'static [Owner],
}

const CRATES: [Crate; 5] = [ENGINE, RUNTIME, SIM, FORESIGHT, STRAKE];

const ENGINE: Crate = Crate {
    src: "crates/engine/src/",
    rooms: &[
        Room {
            name: "units",
            uses: &[],
        },
        Room {
            name: "canary",
            uses: &[],
        },
        Room {
            name: "mem",
            uses: &[],
        },
        Room {
            name: "stats",
            uses: &["units"],
        },
        Room {
            name: "geometry",
            uses: &["units", "canary", "mem"],
        },
        Room {
            name: "proto",
            uses: &["units", "mem", "stats", "geometry"],
        },
        Room {
            name: "retry",
            uses: &["units", "canary", "proto"],
        },
        Room {
            name: "log",
            uses: &["units", "canary", "mem", "geometry", "proto"],
        },
        Room {
            name: "stripe",
            uses: &["mem", "geometry"],
        },
        Room {
            name: "provision",
            uses: &["units", "canary", "geometry", "proto", "log"],
        },
        Room {
            name: "shard",
            uses: &[
                "units",
                "canary",
                "mem",
                "stats",
                "geometry",
                "proto",
                "log",
                "stripe",
                "provision",
            ],
        },
        Room {
            name: "array",
            uses: &[
                "units",
                "canary",
                "mem",
                "stats",
                "geometry",
                "proto",
                "retry",
                "log",
                "provision",
            ],
        },
        Room {
            name: "router",
            uses: &["units", "mem", "geometry", "proto", "provision"],
        },
    ],
    owners: &[
        Owner {
            name: "Shard",
            room: "shard",
        },
        Owner {
            name: "Array",
            room: "array",
        },
    ],
};

const RUNTIME: Crate = Crate {
    src: "crates/runtime/src/",
    rooms: &[
        Room {
            name: "clock",
            uses: &[],
        },
        Room {
            name: "device",
            uses: &[],
        },
        Room {
            name: "mail",
            uses: &[],
        },
        Room {
            name: "error",
            uses: &["device"],
        },
        Room {
            name: "memory",
            uses: &["error"],
        },
        Room {
            name: "spawn",
            uses: &["memory"],
        },
        Room {
            name: "ring",
            uses: &["error", "spawn"],
        },
        Room {
            name: "member_io",
            uses: &["clock", "device", "memory", "ring"],
        },
        Room {
            name: "export",
            uses: &["mail", "error", "memory", "ring", "spawn"],
        },
        Room {
            name: "thread",
            uses: &[
                "clock",
                "device",
                "mail",
                "memory",
                "ring",
                "member_io",
                "export",
            ],
        },
        Room {
            name: "serve",
            uses: &[
                "clock",
                "device",
                "mail",
                "error",
                "memory",
                "ring",
                "spawn",
                "member_io",
                "export",
                "thread",
            ],
        },
    ],
    owners: &[],
};

const SIM: Crate = Crate {
    src: "crates/sim/src/",
    rooms: &[
        Room {
            name: "prng",
            uses: &[],
        },
        Room {
            name: "report",
            uses: &[],
        },
        Room {
            name: "canary",
            uses: &[],
        },
        Room {
            name: "oracle",
            uses: &["prng"],
        },
        Room {
            name: "drive",
            uses: &["prng"],
        },
        Room {
            name: "plan",
            uses: &["prng", "drive"],
        },
        Room {
            name: "world",
            uses: &["prng", "report", "canary", "oracle", "drive", "plan"],
        },
        Room {
            name: "scenario",
            uses: &["report", "canary", "drive", "plan", "world"],
        },
        Room {
            name: "course",
            uses: &["prng", "report", "canary", "plan", "world", "scenario"],
        },
        Room {
            name: "runner",
            uses: &[
                "prng", "report", "canary", "drive", "plan", "world", "course",
            ],
        },
        Room {
            name: "hunt",
            uses: &["report", "canary", "runner"],
        },
    ],
    owners: &[Owner {
        name: "World",
        room: "world",
    }],
};

const FORESIGHT: Crate = Crate {
    src: "crates/foresight/src/",
    rooms: &[
        Room {
            name: "value",
            uses: &[],
        },
        Room {
            name: "load",
            uses: &[],
        },
        Room {
            name: "drive",
            uses: &["value"],
        },
        Room {
            name: "shape",
            uses: &["load"],
        },
        Room {
            name: "wear",
            uses: &["value", "load", "drive", "shape"],
        },
        Room {
            name: "catalogue",
            uses: &["value", "load", "drive", "wear"],
        },
        Room {
            name: "engine",
            uses: &["load", "drive", "shape"],
        },
        Room {
            name: "host",
            uses: &["value", "drive", "catalogue", "engine"],
        },
        Room {
            name: "speed",
            uses: &[
                "value",
                "load",
                "drive",
                "shape",
                "catalogue",
                "engine",
                "host",
            ],
        },
        Room {
            name: "rebuild",
            uses: &[
                "value",
                "load",
                "drive",
                "shape",
                "catalogue",
                "engine",
                "host",
                "speed",
            ],
        },
        Room {
            name: "durability",
            uses: &["value", "drive", "shape"],
        },
        Room {
            name: "cost",
            uses: &["value", "durability"],
        },
        Room {
            name: "plan",
            uses: &[
                "value",
                "load",
                "drive",
                "shape",
                "wear",
                "catalogue",
                "engine",
                "host",
                "speed",
                "rebuild",
                "durability",
                "cost",
            ],
        },
        Room {
            name: "page",
            uses: &["value", "shape", "catalogue", "speed", "durability", "plan"],
        },
        Room {
            name: "acceptance",
            uses: &[
                "value",
                "drive",
                "shape",
                "wear",
                "catalogue",
                "engine",
                "host",
                "rebuild",
                "durability",
                "cost",
                "plan",
            ],
        },
    ],
    owners: &[],
};

const STRAKE: Crate = Crate {
    src: "crates/strake/src/",
    rooms: &[
        Room {
            name: "common",
            uses: &[],
        },
        Room {
            name: "api",
            uses: &["common"],
        },
        Room {
            name: "settings",
            uses: &["common", "api"],
        },
        Room {
            name: "config",
            uses: &["common", "settings"],
        },
        Room {
            name: "view",
            uses: &["common", "api", "settings"],
        },
        Room {
            name: "drives",
            uses: &["common", "api", "settings", "view"],
        },
        Room {
            name: "daemon",
            uses: &["common", "api", "settings", "config", "view", "drives"],
        },
        Room {
            name: "http",
            uses: &["common", "api", "view", "daemon"],
        },
        Room {
            name: "serve",
            uses: &["common", "settings", "config", "daemon", "http"],
        },
        Room {
            name: "cli",
            uses: &["common", "api", "settings", "view", "daemon"],
        },
        Room {
            name: "demo",
            uses: &["common", "api", "daemon", "cli"],
        },
        Room {
            name: "commands",
            uses: &[
                "common", "api", "settings", "config", "view", "drives", "daemon", "serve", "cli",
                "demo",
            ],
        },
        Room {
            name: "reference",
            uses: &[
                "common", "settings", "config", "view", "http", "cli", "commands",
            ],
        },
    ],
    owners: &[Owner {
        name: "Service",
        room: "daemon/service",
    }],
};

fn error(path: &str, line: usize, text: String) -> Finding {
    Finding {
        weight: Weight::Error,
        path: path.to_owned(),
        line,
        text,
    }
}

/// Checks the files of every crate that has rooms, and the page that shows them.
pub(super) fn check(files: &[String], read: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for of in &CRATES {
        let ours = files
            .iter()
            .filter(|path| path.starts_with(of.src) && path.ends_with(".rs"));
        let sources: Vec<(&String, Source)> = ours
            .filter_map(|path| Some((path, Source::read(&read(path)?))))
            .collect();
        findings.extend(full(of, files));
        for (path, source) in &sources {
            findings.extend(arrows(of, path, source));
            findings.extend(owners(of, path, source));
        }
        findings.extend(shown(of, &read(PAGE).unwrap_or_default()));
    }
    for of in [&ENGINE, &STRAKE] {
        findings.extend(drawn(of, &read(PAGE).unwrap_or_default()));
    }
    findings
}

/// The room of a file: its folder, or itself.
fn room_of<'a>(of: &Crate, path: &'a str) -> Option<&'a str> {
    let within = path.strip_prefix(of.src)?.strip_suffix(".rs")?;
    Some(within.split('/').next().unwrap_or(within))
}

/// The faces of a crate: they join all rooms.
fn is_face(room: &str) -> bool {
    room == "lib" || room == "main"
}

/// The module that a file is, from the root of its crate.
fn module_of(of: &Crate, path: &str) -> Vec<String> {
    let within = path.strip_prefix(of.src).unwrap_or(path);
    let within = within.strip_suffix(".rs").unwrap_or(within);
    let mut module: Vec<String> = within.split('/').map(str::to_owned).collect();
    if module
        .last()
        .is_some_and(|last| last == "mod" || is_face(last))
    {
        module.pop();
    }
    module
}

/// What a path of a file begins with, seen from the root of its crate.
fn first_of<'a>(module: &'a [String], path: &'a Path) -> &'a str {
    let mut at: Vec<&String> = match path.from_root {
        true => Vec::new(),
        false => module.iter().chain(&path.within).collect(),
    };
    at.truncate(at.len().saturating_sub(path.supers));
    at.first().copied().unwrap_or(&path.name)
}

/// The rooms that a file uses beside its own, and where.
fn uses(of: &Crate, path: &str, source: &Source) -> Vec<(usize, String)> {
    let own = room_of(of, path).unwrap_or_default();
    let module = module_of(of, path);
    let mut found: Vec<(usize, String)> = paths(source)
        .iter()
        .map(|p| (p.line, first_of(&module, p).to_owned()))
        .filter(|(_, first)| first != own)
        .collect();
    found.dedup();
    found
}

/// Whether the room of a file may use another.
fn may_use(of: &Crate, path: &str, used: &str) -> bool {
    let own = room_of(of, path).unwrap_or_default();
    let row = of.rooms.iter().find(|room| room.name == own);
    row.is_some_and(|room| room.uses.contains(&used))
}

fn arrows(of: &Crate, path: &str, source: &Source) -> Vec<Finding> {
    let own = room_of(of, path).unwrap_or_default();
    if is_face(own) {
        return Vec::new();
    }
    if !of.rooms.iter().any(|room| room.name == own) {
        let what =
            format!("{own} has no row in the table of rooms; add one in xtask/src/tidy/rooms.rs");
        return vec![error(path, 1, what)];
    }
    let wrong = uses(of, path, source)
        .into_iter()
        .filter(|(_, used)| !may_use(of, path, used));
    wrong
        .map(|(line, used)| {
            let known = of.rooms.iter().any(|room| room.name == used);
            let what = match known {
                true => format!(
                    "{own} uses {used}, which it may not: move what it needs to a lower room"
                ),
                false => format!("crate::{used} goes by the crate's face; name the room"),
            };
            error(path, line + 1, what)
        })
        .collect()
}

/// Folders with too many files.
fn full(of: &Crate, files: &[String]) -> Vec<Finding> {
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    for path in files.iter().filter(|path| path.starts_with(of.src)) {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        *folders.entry(folder).or_default() += 1;
    }
    let full = folders.into_iter().filter(|(_, count)| *count > FILES);
    full.map(|(folder, count)| {
        let what =
            format!("{count} files, more than {FILES}; give a part of them a room of its own");
        error(folder, 0, what)
    })
    .collect()
}

/// Owner types have their methods in their rooms, and their fields to themselves.
fn owners(of: &Crate, path: &str, source: &Source) -> Vec<Finding> {
    let within = path.strip_prefix(of.src).unwrap_or_default();
    let is_in = |owner: &Owner| {
        let below = within.strip_prefix(owner.room);
        below.is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
    };
    let mut findings = Vec::new();
    for (line, name) in impls(source) {
        let owner = of.owners.iter().find(|owner| owner.name == name);
        if let Some(owner) = owner.filter(|owner| !is_in(owner)) {
            let what = format!(
                "impl {name} outside {}{}/; make it a function of what it needs, or move it there",
                of.src, owner.room
            );
            findings.push(error(path, line + 1, what));
        }
    }
    for owner in of.owners.iter().filter(|owner| is_in(owner)) {
        for line in open_fields(source, owner.name).unwrap_or_default() {
            let what = format!(
                "others see a field of {}; make it private, its room sees it anyway",
                owner.name
            );
            findings.push(error(path, line + 1, what));
        }
    }
    findings
}

/// How a row stands on the page.
fn shown_row(room: &Room) -> String {
    let names: Vec<String> = room.uses.iter().map(|name| format!("`{name}`")).collect();
    let names = match names.is_empty() {
        true => "–".to_owned(),
        false => names.join(", "),
    };
    format!("| `{}` | {names} |", room.name)
}

/// The page shows every row of the table.
fn shown(of: &Crate, page: &str) -> Vec<Finding> {
    let rows = of.rooms.iter().map(shown_row);
    let lacking = rows.filter(|row| !page.lines().any(|line| line.starts_with(row)));
    lacking
        .map(|row| error(PAGE, 0, format!("lacks the row of a room: {row}")))
        .collect()
}

/// The arrows of a crate's picture: that with the most of its rooms.
fn picture<'a>(of: &Crate, page: &'a str) -> Vec<(&'a str, &'a str)> {
    let pictures = page.split("flowchart TD").skip(1).map(|rest| {
        let picture = rest.split("```").next().unwrap_or_default();
        let arrows = picture
            .lines()
            .filter_map(|line| line.trim().split_once(" --> "));
        arrows.collect::<Vec<_>>()
    });
    let is_room = |name: &&str| of.rooms.iter().any(|room| room.name == *name);
    let own = |arrows: &Vec<(&str, &str)>| arrows.iter().filter(|(from, _)| is_room(from)).count();
    pictures.max_by_key(own).unwrap_or_default()
}

/// The picture of the page has every room, and no arrow that the table lacks. It leaves out arrows
/// that follow from others.
fn drawn(of: &Crate, page: &str) -> Vec<Finding> {
    let arrows = picture(of, page);
    let has = |room: &str| arrows.iter().any(|(from, to)| *from == room || *to == room);
    let lacking = of.rooms.iter().filter(|room| !has(room.name));
    let lacking = lacking.map(|room| format!("lacks {} in the picture of the rooms", room.name));
    let may = |from: &str, to: &str| {
        let mut rooms = of.rooms.iter().filter(|room| room.name == from);
        rooms.any(|room| room.uses.contains(&to))
    };
    let wrong = arrows.iter().filter(|(from, to)| !may(from, to));
    let wrong = wrong.map(|(from, to)| format!("draws {from} --> {to}, which the table lacks"));
    lacking
        .chain(wrong)
        .map(|what| error(PAGE, 0, what))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGINE: &Crate = &super::ENGINE;

    fn found(path: &str, text: &str) -> Vec<String> {
        let path = format!("{}{path}", ENGINE.src);
        let source = Source::read(text);
        let arrows = arrows(ENGINE, &path, &source).into_iter();
        let all = arrows.chain(owners(ENGINE, &path, &source));
        all.map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn the_tables_go_down_only() {
        for of in &CRATES {
            for (at, room) in of.rooms.iter().enumerate() {
                let below = |used: &str| of.rooms[..at].iter().any(|low| low.name == used);
                assert!(room.uses.iter().all(|used| below(used)), "{}", room.name);
            }
        }
    }

    #[test]
    fn a_shard_that_names_the_array_is_found_however_it_does_it() {
        for text in [
            "use crate::array::Array;\n",
            "use crate::{units::Time, array};\n",
            "use super::super::super::array::Array;\n",
            "fn f() { crate::array::g(); }\n",
            "fn f(a: &super::super::super::array::Array) {}\n",
            "mod inner {\n    use super::super::super::super::array::Array;\n}\n",
        ] {
            assert_eq!(found("shard/op/read.rs", text).len(), 1, "{text}");
            assert_eq!(found("array/jobs/pace.rs", text).len(), 0, "{text}");
        }
        assert_eq!(
            found("shard/op/mod.rs", "use super::super::array;\n").len(),
            1
        );
    }

    #[test]
    fn what_stays_in_its_room_or_goes_down_is_right() {
        let text = "use super::Op;\nuse crate::shard::Shard;\nuse crate::{mem, units::Time};\n\
                    // crate::array\nmod tests {\n    use super::*;\n}\n";
        assert!(found("shard/op/read.rs", text).is_empty());
        assert!(found("units.rs", "mod tests {\n    use super::*;\n}\n").is_empty());
    }

    #[test]
    fn a_name_of_the_face_and_a_file_without_a_room_are_found() {
        assert_eq!(
            found("shard/mod.rs", "fn f(a: crate::Verdict) {}\n").len(),
            1
        );
        assert_eq!(found("misc.rs", "fn f() {}\n").len(), 1);
        assert!(found("lib.rs", "pub use array::Array;\n").is_empty());
    }

    #[test]
    fn an_owner_has_its_methods_in_its_room_and_its_fields_to_itself() {
        let text = "impl Shard {}\nimpl<T> fmt::Debug for crate::shard::Shard {}\nimpl Shards {}\n";
        assert_eq!(found("stripe/codes.rs", text).len(), 2 + 1, "and the path");
        assert!(found("shard/op/read.rs", text).is_empty());
        let text = "pub struct Shard {\n    pub(crate) now: Time,\n    pub id: u8,\n\
                    \x20   out: u8,\n}\n\
                    struct Other {\n    pub(crate) a: u8,\n}\n";
        assert_eq!(found("shard/mod.rs", text).len(), 2);
        assert!(found("shard/mod.rs", "pub struct Shard {\n    now: Time,\n}\n").is_empty());
    }

    #[test]
    fn every_owner_has_its_fields_to_itself() {
        for of in &CRATES {
            for Owner { name, room } in of.owners {
                let path = format!("{}{room}/mod.rs", of.src);
                let found = |field: &str| {
                    let text = format!("pub struct {name} {{\n    a: u8,\n    {field}: u8,\n}}\n");
                    owners(of, &path, &Source::read(&text))
                };
                for field in ["pub b", "pub(crate) b", "pub(super) b"] {
                    let found = found(field);
                    assert_eq!(found.len(), 1, "{name}: {field}");
                    assert!(found[0].line == 3 && found[0].weight == Weight::Error);
                }
                assert!(found("b").is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn an_owner_may_have_a_folder_of_a_room() {
        let found = |path: &str, text: &str| {
            let path = format!("{}{path}", STRAKE.src);
            owners(&STRAKE, &path, &Source::read(text)).len()
        };
        let text = "impl Service {\n}\n";
        assert_eq!(found("daemon/service/names.rs", text), 0);
        assert_eq!(found("daemon/watch/mod.rs", text), 1);
        assert_eq!(found("daemon/services.rs", text), 1);
        let text = "pub(crate) struct Service {\n    pub(super) dir: Dir,\n}\n";
        assert_eq!(found("daemon/service/mod.rs", text), 1);
    }

    #[test]
    fn a_room_is_full_with_so_many_files() {
        let files = |count| -> Vec<String> {
            let file = |at| format!("{}shard/op/f{at}.rs", ENGINE.src);
            (0..count).map(file).collect()
        };
        assert!(full(ENGINE, &files(FILES)).is_empty());
        assert_eq!(full(ENGINE, &files(FILES + 1)).len(), 1);
    }

    #[test]
    fn the_page_lacks_a_row_that_says_something_else() {
        let page: String = ENGINE
            .rooms
            .iter()
            .map(|r| shown_row(r) + " holds |\n")
            .collect();
        assert!(shown(ENGINE, &page).is_empty());
        assert_eq!(
            shown(ENGINE, &page.replace("`mem`, `stats`, `geometry` |", "")).len(),
            1
        );
    }

    #[test]
    fn the_picture_has_every_room_and_no_other_arrow() {
        let rooms = ENGINE.rooms.iter();
        let arrows: String = rooms
            .flat_map(|room| room.uses.iter().map(move |used| (room.name, used)))
            .map(|(from, to)| format!("    {from} --> {to}\n"))
            .collect();
        let page = |arrows: &str| format!("```mermaid\nflowchart TD\n{arrows}```\n");
        assert_eq!(drawn(ENGINE, &page(&arrows)).len(), 0);
        let wrong = format!("{arrows}    shard --> array\n");
        assert_eq!(drawn(ENGINE, &page(&wrong)).len(), 1);
        assert_eq!(drawn(ENGINE, &page("")).len(), ENGINE.rooms.len());
    }
}

//! The pages of `docs/reference`, and `packaging/strake.toml`, made from the code that they
//! describe.
//!
//! Invariant: a page is what [`PAGES`] makes, byte for byte. With `STRAKE_REFERENCE=write` the test
//! writes the pages instead of comparing them. Deliberately absent: an interface; only the test
//! uses this file.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Arg, Command, CommandFactory};
use serde_json::Value;

use crate::cli::args::Cli;
use crate::commands::settings;
use crate::common::errors::{Code, Exit};
use crate::common::events::{self as catalogue, Grade};
use crate::config::{self, example};
use crate::http::metrics;
use crate::http::openapi;
use crate::settings as ranges;
use crate::settings::placement::PlacementRecord;
use crate::view;

const COLUMNS: usize = 99;
const MADE: &str =
    "<!-- Made from the code by: STRAKE_REFERENCE=write cargo test -p strake --lib reference -->";

/// File name and maker.
type Page = (&'static str, fn() -> String);

const PAGES: &[Page] = &[
    ("commands.md", commands),
    ("settings.md", all_settings),
    ("configuration.md", configuration),
    ("events.md", events),
    ("errors.md", errors),
    ("metrics.md", all_metrics),
    ("json.md", json),
    ("acceptance.md", acceptance),
];

/// What each setting is for. Its range is [`ranges::TAKES`], its default that of a new array.
const SETTINGS: &[(&str, &str)] = &[
    (
        "rebuild_priority",
        "Share of the time that a rebuild works beside requests, in hundredths. 100 never pauses.",
    ),
    ("resync_priority", "The same for a resync."),
    ("scrub_priority", "The same for a scrub."),
    (
        "restripe_priority",
        "The same for data that moves to another shape.",
    ),
    ("init_priority", "The same for zeroing in the background."),
    (
        "latency_target",
        "Background work does less where more than one request in a hundred takes longer.",
    ),
    (
        "spare_delay",
        "How long a spare waits for a member that vanished. It replaces one that failed at once.",
    ),
    (
        "scrub_schedule",
        "When a scrub starts by itself. Weekly is Sunday, monthly the first.",
    ),
    (
        "scrub_at",
        "The time of day at which it starts, in the time zone of the machine.",
    ),
    (
        "scrub_policy",
        "What a scheduled scrub does at a stripe that is inconsistent.",
    ),
    (
        "read_error_threshold",
        "At so many read errors a member is failed, if that costs no data.",
    ),
    (
        "write_hole",
        "Which writes the stripe log covers: all, those of a degraded array, none.",
    ),
    (
        "hedged_reads",
        "Whether a read that a member does not answer in time is asked of the others too.",
    ),
    (
        "cpus",
        "CPUs that the threads of the array may use. From the next start on.",
    ),
    ("shards", "Threads of the array. From the next start on."),
    (
        "memory_limit",
        "Buffers of all threads of the array. From the next start on.",
    ),
    (
        "requests",
        "How many requests may be under way. From the next start on.",
    ),
    (
        "replace_at_wear",
        "A spare takes the place of a drive that has used so much of its endurance, in per cent.",
    ),
    (
        "pool",
        "The pool that gives a spare where the array has none.",
    ),
    (
        "degraded",
        "Whether the daemon starts the array without missing members, and how long it waits for \
         them.",
    ),
];

/// Breaks a text into lines; the first begins with `first`, the others with blanks below it.
fn wrap(first: &str, text: &str) -> String {
    let indent: String = first.chars().map(|_| ' ').collect();
    let mut out = first.to_owned();
    let mut at = first.chars().count();
    for word in text.split_whitespace() {
        let len = word.chars().count();
        if at > indent.len() && at + 1 + len > COLUMNS {
            let _ = write!(out, "\n{indent}{word}");
            at = indent.len() + len;
        } else {
            let gap = if at > indent.len() { " " } else { "" };
            let _ = write!(out, "{gap}{word}");
            at += gap.len() + len;
        }
    }
    out.push('\n');
    out
}

/// Text of the code as Markdown shows it.
fn plain(text: &str) -> String {
    text.replace('<', "\\<").replace('*', "\\*")
}

fn page(title: &str, about: &str) -> String {
    format!("{MADE}\n\n# {title}\n\n{}", wrap("", about))
}

fn commands() -> String {
    let mut root = Cli::command();
    root.build();
    let mut text = page(
        "Commands",
        "Every command takes `--json`; whatever changes something takes `--dry-run`. MEMBER is a \
         slot number or a device. What exit statuses mean stands under [errors](errors.md).",
    );
    for command in root.get_subcommands() {
        one_command(&mut text, "strake", command);
    }
    text
}

fn one_command(text: &mut String, parent: &str, command: &Command) {
    if command.get_name() == "help" || command.is_hide_set() {
        return;
    }
    let path = format!("{parent} {}", command.get_name());
    let inner: Vec<&Command> = command.get_subcommands().collect();
    if !inner.is_empty() {
        for command in inner {
            one_command(text, &path, command);
        }
        return;
    }
    let _ = write!(text, "\n## {path}\n\n");
    let about = command.get_long_about().or(command.get_about());
    for paragraph in about
        .map(ToString::to_string)
        .iter()
        .flat_map(|t| t.split("\n\n"))
    {
        let _ = writeln!(text, "{}", wrap("", &plain(paragraph)));
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.replace("Usage: ", "");
    text.push_str("```text\n");
    for line in usage.lines() {
        text.push_str(&wrap("", line));
    }
    text.push_str("```\n");
    let mut options = command
        .get_arguments()
        .filter(|arg| is_told(arg))
        .peekable();
    if options.peek().is_some() {
        text.push('\n');
    }
    for arg in options {
        text.push_str(&wrap("* ", &option(arg)));
    }
}

fn is_told(arg: &Arg) -> bool {
    !arg.is_hide_set() && !["help", "json", "version"].contains(&arg.get_id().as_str())
}

/// An argument: how it is written, what it is for, what it takes.
fn option(arg: &Arg) -> String {
    let short = arg.get_short().map(|c| format!("-{c}, "));
    let mut text = format!("`{}{arg}`", short.unwrap_or_default());
    if let Some(help) = arg.get_long_help().or(arg.get_help()) {
        let _ = write!(text, ": {}", plain(&help.to_string()));
    }
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|_| arg.get_action().takes_values())
        .map(|value| value.get_name().to_owned())
        .collect();
    if !values.is_empty() {
        let _ = write!(text, " ({})", values.join(", "));
    }
    let default: Vec<_> = arg
        .get_default_values()
        .iter()
        .map(|v| v.to_string_lossy())
        .collect();
    if !default.is_empty() && arg.get_action().takes_values() {
        let _ = write!(text, " [default: {}]", default.join(" "));
    }
    text
}

fn all_settings() -> String {
    let mut text = page(
        "Settings",
        "`strake set NAME KEY=VALUE…` changes settings, `strake get NAME` shows them. The first \
         twelve and `hedged_reads` lie on the members; the others are kept on the machine. In \
         JSON, times and sizes are numbers with the unit in the name (`latency_target_us`, \
         `spare_delay_ms`, `memory_limit_bytes`).",
    );
    let fresh = view::settings(&view::tests::half_way(), &PlacementRecord::default());
    let fresh = serde_json::to_value(&fresh).expect("settings are JSON");
    let fresh = fresh.as_object().expect("an object");
    let fresh: Vec<String> = fresh
        .iter()
        .map(|(key, v)| settings::setting(key, v))
        .collect();
    for (key, meaning) in SETTINGS {
        let takes = ranges::takes(key).expect("it is a setting");
        let line = fresh
            .iter()
            .find_map(|line| line.strip_prefix(&format!("{key}=")));
        let default = line.expect("each has a default").trim();
        let _ = write!(text, "\n## {key}\n\n{}\n", wrap("", meaning));
        let _ = write!(text, "* Takes: {takes}\n* Default: `{default}`\n");
    }
    text
}

fn events() -> String {
    let mut text = page(
        "Events",
        "`strake events` prints time, event, array, slot and device, then `because:` the cause and \
         `so:` the effect. With `--json` each is an object with these fields \
         ([Event](json.md#event)). Names are stable. The word in brackets is the severity: \
         `strake events --severity warning` prints events with that one and with worse ones.",
    );
    for (group, events) in catalogue::GROUPS {
        let _ = write!(text, "\n## {group}\n\n");
        for (name, grade, meaning) in *events {
            let severity = match grade {
                Grade::Info => "info",
                Grade::Warning => "warning",
                Grade::Critical => "critical",
                Grade::OfState => "info; of degraded: warning, of failed: critical",
            };
            text.push_str(&wrap("* ", &format!("`{name}` ({severity}): {meaning}")));
        }
    }
    text
}

/// What an exit status says.
fn meaning(exit: Exit) -> &'static str {
    match exit {
        Exit::Failed => "it was tried and failed",
        Exit::Usage => "the command line or request makes no sense",
        Exit::NotFound => "no such array, member or device",
        Exit::Refused => "refused: in use, or not safe",
        Exit::Degraded => "done, but the array is degraded",
        Exit::ArrayFailed => "the array has failed",
        Exit::Stopped => "the array is stopped and can be started",
        Exit::TooFew => "the array is stopped: too few members, or some that contradict others",
        Exit::Unknown => "no daemon answers, and another process holds members",
        Exit::Found => {
            "`--wait`: a scrub left what it found, or halted there; `doctor`: it found something \
             to do"
        }
        Exit::Unfinished => "`--wait`: the job did not come to its end",
    }
}

fn errors() -> String {
    let mut text = page(
        "Errors and exit statuses",
        "An error is one line on standard error, `error[code]: what was found; what to do`; with \
         `--json` an object with `code`, `found` and `cure`. Codes are stable. The cure below is \
         what is said where the place that found it knows nothing better.",
    );
    text.push_str("\n## Exit statuses\n\n* 0: done\n");
    let all = [
        Exit::Failed,
        Exit::Usage,
        Exit::NotFound,
        Exit::Refused,
        Exit::Degraded,
        Exit::ArrayFailed,
        Exit::Stopped,
        Exit::TooFew,
        Exit::Unknown,
        Exit::Found,
        Exit::Unfinished,
    ];
    for exit in all {
        let _ = writeln!(text, "* {}: {}", exit as u8, meaning(exit));
    }
    for exit in all {
        let codes: Vec<&Code> = Code::ALL
            .iter()
            .filter(|code| code.exit() == exit)
            .collect();
        if codes.is_empty() {
            continue;
        }
        let _ = write!(
            text,
            "\n## Errors with status {}: {}\n\n",
            exit as u8,
            meaning(exit)
        );
        for code in codes {
            let about = code.about().trim();
            text.push_str(&wrap(
                "* ",
                &format!("`{}`: {about} To do: {}.", code.name(), plain(code.cure())),
            ));
        }
    }
    text
}

fn all_metrics() -> String {
    let mut text = page(
        "Metrics",
        "`GET /metrics` on the daemon's socket, in Prometheus' text format; by `[metrics]` of \
         strake.toml also over TCP and in a file. Metrics of an array have the label `array`, \
         those of a member `slot` too, those of a job `kind` and `slot`; a summary has `quantile`, \
         a state set `state`. What is not known has no line. Of arrays that are not in service \
         there are `strake_array_info`, `strake_array_state`, `strake_member_state` and what the \
         last scrub found; one that has the name of another array goes by its uuid.",
    );
    text.push('\n');
    for (name, kind, help) in metrics::families() {
        text.push_str(&wrap("* ", &format!("`{name}` ({kind}): {}", plain(help))));
    }
    text
}

/// What a schema of the OpenAPI document is, as `string`, `Range[]` or `integer?`.
fn kind_of(schema: &Value) -> String {
    let is_null = |kind: &Value| kind == "null" || kind["type"] == "null";
    if let Some(many) = schema["anyOf"].as_array() {
        let kinds = many.iter().filter(|one| !is_null(one)).map(kind_of);
        let kinds = kinds.collect::<Vec<_>>().join(" or ");
        return kinds + if many.iter().any(is_null) { "?" } else { "" };
    }
    // Names of variants, each with its meaning.
    if schema["oneOf"]
        .as_array()
        .is_some_and(|all| all.iter().all(|one| one["const"].is_string()))
    {
        return "string".to_owned();
    }
    if let Some(to) = schema["$ref"].as_str() {
        return to.rsplit('/').next().unwrap_or_default().to_owned();
    }
    let (kind, may_be_null) = match &schema["type"] {
        Value::Array(kinds) => {
            let kind = kinds.iter().find(|kind| !is_null(kind));
            (kind.and_then(Value::as_str), kinds.iter().any(is_null))
        }
        kind => (kind.as_str(), false),
    };
    let kind = match kind {
        Some("array") => kind_of(&schema["items"]) + "[]",
        kind => kind.unwrap_or("any").to_owned(),
    };
    kind + if may_be_null { "?" } else { "" }
}

/// A section for each of these schemas.
fn shapes(text: &mut String, schemas: &serde_json::Map<String, Value>) {
    for (name, schema) in schemas {
        let _ = write!(text, "\n### {name}\n\n");
        if schema["properties"].is_null() {
            text.push_str(&wrap("", &kind_of(schema)));
            continue;
        }
        let required = schema["required"].as_array();
        let field = |(name, schema): (&String, &Value)| {
            let is_required = required.is_some_and(|all| all.iter().any(|r| r == name));
            let mut kind = kind_of(schema);
            if !is_required && !kind.ends_with('?') {
                kind.push('?');
            }
            format!("`{name}: {kind}`")
        };
        let properties = schema["properties"].as_object().expect("an object");
        let fields: Vec<String> = properties.iter().map(field).collect();
        text.push_str(&wrap("", &fields.join(", ")));
    }
}

fn json() -> String {
    let mut text = page(
        "HTTP and JSON",
        "The daemon speaks HTTP on `$STRAKE_DIR/api.sock`. What commands print with `--json` are \
         the same shapes. `GET /openapi.json` is the document for programs. A type with `?` may be \
         null or absent, `[]` is a list; further fields may be added. [The API for \
         programs](api.md) says what stays, how events are followed, and how a client is made.",
    );
    let document = openapi::document();
    let objects = |of: &Value| of.as_object().expect("an object").clone();
    text.push_str("\n## Routes\n\n");
    for (path, methods) in objects(&document["paths"]) {
        for (method, route) in objects(&methods) {
            let body = &route["requestBody"]["content"]["application/json"]["schema"];
            let body = match body {
                Value::Null => String::new(),
                schema => format!(" takes {};", kind_of(schema)),
            };
            let answers = objects(&route["responses"]["200"]["content"]);
            let answer = answers.values().next().expect("one kind of answer");
            let (method, answer) = (method.to_uppercase(), kind_of(&answer["schema"]));
            let about = route["summary"].as_str().unwrap_or_default();
            let line = format!("`{method} {path}`: {about};{body} answers {answer}");
            text.push_str(&wrap("* ", &line));
        }
    }
    text.push_str("\n## Shapes\n");
    shapes(&mut text, &objects(&document["components"]["schemas"]));
    text.push_str("\n## Shapes that commands alone print\n\n");
    let which = "`status` prints Status[]; `iostat` an Iostat a line; `doctor` a Doctor; `plan` \
                 Plans, with `--drives` KnownDrive[].";
    text.push_str(&wrap("", which));
    shapes(&mut text, &openapi::printed());
    text
}

fn acceptance() -> String {
    use strake_foresight::acceptance::{rows, table};
    let mut text = page(
        "Published figures beside ours",
        "What studies of RAID on large flash drives have published, and what the models of `strake \
         plan` give for it. P: predicted from inputs that the study prints. F: a parameter was \
         fitted to this figure or to others of its table. I: a check of units. [How \
         foresight works](../explanation/foresight.md) has the formulas and names the studies.",
    );
    let _ = write!(text, "\n{}", table());
    text.push_str("\nOff by more than a tenth:\n\n");
    for row in rows() {
        if let Some(why) = row.off {
            text.push_str(&wrap("* ", &format!("{} {}: {why}.", row.study, row.what)));
        }
    }
    text
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference")
}

fn configuration() -> String {
    let about = format!(
        "The daemon of a machine may have a configuration, `{}` (where STRAKE_DIR is set: \
         `strake.toml` there; `strake daemon --config FILE` names another). No file is needed. \
         Options of `strake daemon` outweigh it. `strake config check` names file, line and key of \
         a mistake. A daemon that finds a mistake when it starts serves all the same, with the \
         configuration that it used last or with the defaults, and notes `config_not_used`; one \
         that was given `--config` does not start.",
        config::PATH
    );
    format!(
        "{}\n```toml\n{}```\n",
        page("Configuration", &about),
        example::file()
    )
}

/// Compares a file with what the code makes, or writes it.
fn compare(path: &Path, made: &str) {
    let name = path.file_name().unwrap_or_default().display();
    if std::env::var_os("STRAKE_REFERENCE").is_some_and(|how| how == "write") {
        fs::write(path, made).expect("written");
    }
    let there = fs::read_to_string(path).unwrap_or_default();
    let other = made.lines().zip(there.lines()).find(|(a, b)| a != b);
    assert!(
        made == there,
        "{name} is not what the code makes: {other:?}; \
         STRAKE_REFERENCE=write cargo test -p strake --lib reference writes it"
    );
    let wide = made
        .lines()
        .find(|line| line.chars().count() > 100 && !line.starts_with('|'));
    assert_eq!(wide, None, "{name}");
}

#[test]
fn the_reference_is_what_the_code_makes() {
    for (name, make) in PAGES {
        compare(&folder().join(name), &make());
    }
}

#[test]
fn the_packaged_configuration_is_what_the_code_makes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/strake.toml");
    compare(&path, &example::file());
}

#[test]
fn every_setting_has_a_meaning() {
    let all: BTreeSet<&str> = ranges::spoken().map(|(key, _)| key).collect();
    let told: BTreeSet<&str> = SETTINGS.iter().map(|(key, _)| *key).collect();
    assert_eq!(all, told);
}

/// The names of events in a source: `event: "…"`, and the first words of what `events.rs` says.
fn event_names(path: &Path, into: &mut BTreeSet<String>) {
    let text = fs::read_to_string(path).expect("it is there");
    let code = text
        .split("#[cfg(test)]\nmod tests")
        .next()
        .unwrap_or_default();
    let dense: String = code.split_whitespace().collect();
    let mut parts = vec![("event:\"", "")];
    if path.ends_with("daemon/events/mod.rs") {
        parts.extend([
            ("(\"", "\",None,"),
            ("(\"", "\",Some("),
            ("(\"", "\",slot,"),
        ]);
    }
    for (before, after) in parts {
        for rest in dense.split(before).skip(1) {
            let Some((name, _)) = rest.split_once('"') else {
                continue;
            };
            let word = name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            if word && !name.is_empty() && rest[name.len()..].starts_with(after) {
                into.insert(name.to_owned());
            }
        }
    }
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => sources(&path, into),
            false => into.push(path),
        }
    }
}

#[test]
fn every_event_has_a_meaning() {
    let mut all = BTreeSet::new();
    let mut files = Vec::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut files,
    );
    files.retain(|file| !file.ends_with("reference.rs") && !file.ends_with("common/events.rs"));
    for file in &files {
        event_names(file, &mut all);
    }
    let kinds = catalogue::GROUPS.iter().flat_map(|(_, kinds)| *kinds);
    let names: Vec<String> = kinds.map(|(name, ..)| (*name).to_owned()).collect();
    let told: BTreeSet<String> = names.iter().cloned().collect();
    assert_eq!(
        told.len(),
        names.len(),
        "an event stands in the catalogue once"
    );
    let missing: Vec<_> = all.difference(&told).collect();
    assert_eq!(missing, Vec::<&String>::new(), "events without a meaning");
    let text: String = files
        .iter()
        .map(|file| fs::read_to_string(file).expect("it is there"))
        .collect();
    let gone: Vec<_> = told
        .iter()
        .filter(|name| !text.contains(&format!("\"{name}\"")))
        .collect();
    assert_eq!(gone, Vec::<&String>::new(), "no source has these events");
}

/// Arguments that a usage shows behind an option that would take them for its values.
fn swallowed(command: &Command, into: &mut Vec<String>) {
    for inner in command.get_subcommands() {
        swallowed(inner, into);
    }
    let usage = command.clone().render_usage().to_string();
    let several = |arg: &&Arg| arg.get_num_args().is_some_and(|n| n.max_values() > 1);
    for option in command.get_opts().filter(several) {
        let option = option.to_string();
        for (_, behind) in usage.lines().filter_map(|l| l.split_once(&option)) {
            let names = command.get_positionals().map(ToString::to_string);
            let taken = names.filter(|name| behind.contains(name));
            into.extend(taken.map(|name| format!("{}: {name}", command.get_name())));
        }
    }
}

#[test]
fn no_usage_has_an_argument_behind_an_option_with_several_values() {
    let mut root = Cli::command();
    root.build();
    let mut found = Vec::new();
    swallowed(&root, &mut found);
    assert_eq!(found, Vec::<String>::new(), "the option takes them");
}

//! `packaging/strake.toml`: every key with what it takes and its default, as comments.
//!
//! Invariant: made of the sections' own documentation and defaults, byte for byte (`reference`
//! compares and writes it). Deliberately absent: what the keys mean to the daemon.

use std::fmt::Write as _;

use schemars::schema_for;
use serde_json::Value;

use crate::config::{Configuration, PATH};

const COLUMNS: usize = 97;

/// The file.
pub(crate) fn file() -> String {
    let mut text = String::new();
    let title = format!("Configuration of the Strake daemon of this machine: {PATH}");
    comment(&mut text, "", &title);
    comment(
        &mut text,
        "#\n",
        "Every key is shown with its default. No file is needed, and none names an array: members \
         carry what arrays are. The daemon reads the file when it starts; `strake config check` \
         says before whether it is right.",
    );
    let schema = serde_json::to_value(schema_for!(Configuration)).expect("JSON");
    let defaults = serde_json::to_value(Configuration::default()).expect("JSON");
    for (section, of) in schema["properties"].as_object().expect("sections") {
        if of["type"] == "array" {
            channels(&mut text, &schema, section, of);
            continue;
        }
        let shape = resolved(&schema, of);
        comment(
            &mut text,
            "\n",
            about(of).unwrap_or_else(|| about(shape).unwrap_or_default()),
        );
        let _ = writeln!(text, "[{section}]");
        for (key, of) in shape["properties"].as_object().expect("keys") {
            comment(&mut text, "\n", about(of).expect("each key is documented"));
            let default = &defaults[section][key];
            let shown = match default {
                Value::Null => &of["examples"][0],
                value => value,
            };
            let _ = writeln!(text, "#{key} = {shown}");
        }
    }
    text
}

/// A section that may be there any number of times, as an example: its keys, then its tables.
fn channels(text: &mut String, schema: &Value, section: &str, of: &Value) {
    comment(text, "\n", about(of).expect("each section is documented"));
    let _ = writeln!(text, "#\n#   [[{section}]]");
    let keys = resolved(schema, &of["items"])["properties"].as_object();
    let (tables, keys): (Vec<_>, Vec<_>) = keys.expect("keys").iter().partition(|(_, of)| {
        let of = of["anyOf"].as_array().map_or(*of, |any| &any[0]);
        !resolved(schema, of)["properties"].is_null()
    });
    for (key, of) in keys {
        example(text, key, of);
    }
    for (table, of) in tables {
        comment(text, "#\n", about(of).expect("each table is documented"));
        let _ = writeln!(text, "#\n#   [{section}.{table}]");
        let shape = resolved(schema, &of["anyOf"][0]);
        for (key, of) in shape["properties"].as_object().expect("keys") {
            example(text, key, of);
        }
    }
}

/// A key with an example; one that excludes another has none.
fn example(text: &mut String, key: &str, of: &Value) {
    let about = about(of).expect("each key is documented");
    match &of["examples"][0] {
        Value::Null => comment(text, "#\n", &format!("{key}: {about}")),
        shown => {
            comment(text, "#\n", about);
            let _ = writeln!(text, "#   {key} = {shown}");
        }
    }
}

fn resolved<'a>(schema: &'a Value, of: &'a Value) -> &'a Value {
    let name = of["$ref"].as_str().and_then(|path| path.rsplit('/').next());
    name.map_or(of, |name| &schema["$defs"][name])
}

fn about(of: &Value) -> Option<&str> {
    of["description"].as_str()
}

fn comment(text: &mut String, before: &str, about: &str) {
    text.push_str(before);
    let mut line = String::new();
    for word in about.split_whitespace() {
        if !line.is_empty() && line.len() + 1 + word.len() > COLUMNS {
            let _ = writeln!(text, "# {line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(text, "# {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_channel_that_it_shows_is_taken() {
        let file = file();
        let lines = file.lines().filter_map(|line| line.strip_prefix("#   "));
        let lines: Vec<&str> = lines.collect();
        let tables: Vec<Vec<&str>> = lines
            .chunk_by(|_, next| !next.starts_with("[alerts."))
            .map(<[&str]>::to_vec)
            .collect();
        let [keys, ways @ ..] = &tables[..] else {
            panic!("{file}");
        };
        assert_eq!(ways.len(), 3, "{file}");
        for way in ways {
            let text = [&keys[..], way].concat().join("\n");
            let read: Configuration = toml::from_str(&text).expect("it is taken");
            assert_eq!(read.alerts.len(), 1);
        }
    }

    #[test]
    fn what_it_shows_is_taken_and_is_the_default() {
        let uncommented: String = file()
            .lines()
            .filter_map(|line| match line.strip_prefix('#') {
                Some(key) if !key.starts_with(' ') && key.contains(" = ") => Some(key),
                Some(_) => None,
                None => Some(line),
            })
            .flat_map(|line| [line, "\n"])
            .collect();
        let mut read: Configuration = toml::from_str(&uncommented).expect("all is taken");
        // Where nothing is said the machine decides; an example stands there.
        read.daemon.shards = None;
        (read.metrics.listen, read.metrics.textfile) = (None, None);
        assert_eq!(read, Configuration::default());
    }
}

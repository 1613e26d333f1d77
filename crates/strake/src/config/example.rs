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
        assert_eq!(read, Configuration::default());
    }
}

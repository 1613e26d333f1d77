//! Paths that leave their module, `impl` blocks and fields, as far as the table of rooms needs
//! them.
//!
//! Invariant: each path of the code that begins with `crate` or `super` is found once for every
//! entry of its groups.

use super::source::{Source, is_word, item_end, line_of};
use std::ops::Range;

/// A path that begins at the root of the crate or at the module above: `crate::a::b`, `super::c`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Path {
    /// Counted from 0.
    pub(super) line: usize,
    /// It begins with `crate`.
    pub(super) from_root: bool,
    /// So often `super`.
    pub(super) supers: usize,
    /// The modules within the file in which it stands.
    pub(super) within: Vec<String>,
    /// What it names behind that; `*` is everything.
    pub(super) name: String,
}

/// Every path that leaves its module.
pub(super) fn paths(source: &Source) -> Vec<Path> {
    let text = source.code.join("\n");
    let modules = modules(&text);
    let mut found = Vec::new();
    for word in ["crate", "super"] {
        for (at, _) in text.match_indices(word) {
            let inside = text[..at].bytes().next_back().is_some_and(is_word)
                || text[..at].ends_with("super::")
                || !text[at + word.len()..].starts_with("::");
            if inside {
                continue;
            }
            let mut rest = &text[at..];
            let mut supers = 0;
            while let Some(behind) = rest.strip_prefix("super::") {
                (rest, supers) = (behind, supers + 1);
            }
            rest = rest.strip_prefix("crate::").unwrap_or(rest);
            let within = modules.iter().filter(|(_, body)| body.contains(&at));
            let within: Vec<String> = within.map(|(name, _)| name.clone()).collect();
            found.extend(heads(rest).into_iter().map(|name| Path {
                line: line_of(&text, at),
                from_root: supers == 0,
                supers,
                within: within.clone(),
                name,
            }));
        }
    }
    found.sort_by_key(|path| path.line);
    found
}

/// The first name of a path, or of each entry of the group that it begins with.
fn heads(rest: &str) -> Vec<String> {
    let Some(group) = rest.strip_prefix('{') else {
        return vec![head(rest)];
    };
    let mut depth = 1;
    let mut from = 0;
    let mut found = Vec::new();
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || depth == 1 && c == ',' {
            let entry = group[from..at].trim();
            if !entry.is_empty() {
                found.push(head(entry));
            }
            from = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    found
}

fn head(path: &str) -> String {
    let name: String = path
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    if name.is_empty() || name == "self" {
        "*".to_owned()
    } else {
        name
    }
}

/// The modules that have their body in the text, from the outer to the inner ones.
fn modules(text: &str) -> Vec<(String, Range<usize>)> {
    let mut found = Vec::new();
    for (at, word) in text.match_indices("mod ") {
        let starts = !text[..at].bytes().next_back().is_some_and(is_word);
        let behind = &text[at + word.len()..];
        let name = head(behind);
        let has_body = behind[name.len().min(behind.len())..].trim_start();
        if starts && name != "*" && has_body.starts_with('{') {
            found.push((name, at + word.len()..item_end(text, at)));
        }
    }
    found
}

/// The types that `impl` blocks are for, with their lines.
pub(super) fn impls(source: &Source) -> Vec<(usize, String)> {
    let text = source.code.join("\n");
    let mut found = Vec::new();
    for (at, word) in text.match_indices("impl") {
        let line = text[..at].rsplit('\n').next().unwrap_or_default();
        let behind = &text[at + word.len()..];
        let starts = line.trim().is_empty() || line.trim() == "unsafe";
        if !starts || behind.bytes().next().is_some_and(is_word) {
            continue;
        }
        let of = behind.split('{').next().unwrap_or_default();
        let of = without_generics(of);
        let of = of.rsplit_once(" for ").map_or(of, |(_, of)| of);
        let path = of.split('<').next().unwrap_or_default();
        let path = path.split_whitespace().next().unwrap_or_default();
        let name = path.rsplit("::").next().unwrap_or_default();
        found.push((line_of(&text, at), name.to_owned()));
    }
    found
}

/// The text behind the `<…>` that it begins with.
fn without_generics(text: &str) -> &str {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if !text[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return text[at..].trim_start_matches('>');
        }
    }
    text
}

/// The lines of the fields of a struct that others see; `None` where the struct is not declared.
pub(super) fn open_fields(source: &Source, name: &str) -> Option<Vec<usize>> {
    let text = source.code.join("\n");
    let starts = text
        .match_indices("struct ")
        .map(|(at, word)| at + word.len());
    let at = starts.into_iter().find(|at| {
        let behind = text[*at..].strip_prefix(name);
        behind.is_some_and(|behind| !behind.bytes().next().is_some_and(is_word))
    })?;
    let (first, last) = (line_of(&text, at), line_of(&text, item_end(&text, at)));
    let is_open = |line: &usize| source.code[*line].trim_start().starts_with("pub");
    Some((first + 1..last).filter(is_open).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<(usize, String)> {
        let found = paths(&Source::read(text));
        found.into_iter().map(|p| (p.supers, p.name)).collect()
    }

    #[test]
    fn a_path_is_found_wherever_it_stands_and_a_visibility_is_none() {
        let text = "pub(crate) fn f(a: crate::one::A) { super::super::two::g(); }\n\
                    use crate::{three::{B, C}, four, self};\nuse super::*; // crate::five\n";
        let expected = [
            (0, "one"),
            (2, "two"),
            (0, "three"),
            (0, "four"),
            (0, "*"),
            (1, "*"),
        ];
        assert_eq!(names(text), expected.map(|(n, name)| (n, name.to_owned())));
    }

    #[test]
    fn a_path_knows_the_modules_of_its_file_around_it() {
        let text = "mod a {\n    mod b {\n        use super::c;\n    }\n}\nuse super::d;\n";
        let found = paths(&Source::read(text));
        assert_eq!(found[0].within, ["a", "b"]);
        assert!(found[1].within.is_empty());
    }

    #[test]
    fn an_impl_is_for_the_last_type_of_its_head() {
        let text = "impl A {}\nimpl<T: Into<B>> fmt::Debug for x::C<T> {}\nfn f() -> impl D {}\n\
                    impl<'a, F: Fn() -> u8> E<'a, F>\nwhere\n    F: Fn(),\n{\n}\n";
        let found: Vec<String> = impls(&Source::read(text))
            .into_iter()
            .map(|i| i.1)
            .collect();
        assert_eq!(found, ["A", "C", "E"]);
    }
}

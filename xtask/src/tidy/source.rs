//! Just enough of Rust's grammar for the rules: which bytes are code, which lines are tests, where
//! each function begins and ends.
//!
//! Invariant: the masked text has the lines and columns of the source; comments, strings and
//! characters are blanks in it. Deliberately absent: a parser. A rule that needs types belongs to
//! clippy.

/// A source file, read once for all rules.
pub(super) struct Source {
    /// The code alone, line by line.
    pub(super) code: Vec<String>,
    /// Whether the line belongs to an item under `#[cfg(test)]` or `#[test]`.
    pub(super) test: Vec<bool>,
    /// Each function: its name, its first and last line, counted from 0.
    pub(super) functions: Vec<(String, usize, usize)>,
}

impl Source {
    pub(super) fn read(text: &str) -> Self {
        let masked = mask(text);
        let code: Vec<String> = masked.lines().map(str::to_owned).collect();
        let mut test = vec![false; code.len()];
        for attribute in ["#[cfg(test)]", "#[test]"] {
            for (at, _) in masked.match_indices(attribute) {
                let (first, last) = (
                    line_of(&masked, at),
                    line_of(&masked, item_end(&masked, at)),
                );
                let end = (last + 1).min(test.len());
                test[first..end].fill(true);
            }
        }
        Self {
            functions: functions(&masked),
            code,
            test,
        }
    }
}

pub(super) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())]
        .iter()
        .filter(|&&byte| byte == b'\n')
        .count()
}

/// Replaces comments, strings and character literals by blanks.
fn mask(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        if end > at {
            for byte in &mut out[at..end] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
            at = end;
        } else {
            at += 1;
        }
    }
    // Blanking whole literals at once never leaves a part of a character behind.
    String::from_utf8_lossy(&out).into_owned()
}

/// Where the comment or literal that starts here ends; `at` itself where none starts.
fn literal_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let after_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if rest.starts_with(b"//") {
        return at + rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
    }
    if rest.starts_with(b"/*") {
        return at + comment_len(rest);
    }
    if !after_word {
        let prefix = [&b"br"[..], b"cr", b"r"]
            .into_iter()
            .find(|p| rest.starts_with(p));
        if let Some(len) = prefix.and_then(|p| raw_len(&rest[p.len()..]).map(|n| n + p.len())) {
            return at + len;
        }
    }
    match rest[0] {
        b'"' => at + string_len(rest),
        b'\'' => at + char_len(rest),
        _ => at,
    }
}

/// The length of a block comment; they nest.
fn comment_len(rest: &[u8]) -> usize {
    let (mut depth, mut i) = (0_usize, 0);
    while i < rest.len() {
        if rest[i..].starts_with(b"/*") {
            (depth, i) = (depth + 1, i + 2);
        } else if rest[i..].starts_with(b"*/") {
            (depth, i) = (depth - 1, i + 2);
            if depth == 0 {
                return i;
            }
        } else {
            i += 1;
        }
    }
    i
}

/// The length of `#…"…"#…`, if that is what follows the `r`.
fn raw_len(rest: &[u8]) -> Option<usize> {
    let hashes = rest.iter().take_while(|&&b| b == b'#').count();
    if rest.get(hashes) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"')
        .chain(std::iter::repeat_n(b'#', hashes))
        .collect();
    let body = &rest[hashes + 1..];
    let end = body.windows(close.len()).position(|window| window == close);
    Some(hashes + 1 + end.map_or(body.len(), |end| end + close.len()))
}

fn string_len(rest: &[u8]) -> usize {
    let mut i = 1;
    while i < rest.len() {
        match rest[i] {
            b'\\' => i += 2,
            b'"' => return i + 1,
            _ => i += 1,
        }
    }
    rest.len()
}

/// The length of a character literal; 0 for a lifetime.
fn char_len(rest: &[u8]) -> usize {
    let close = |from: usize| rest[from..].iter().take(12).position(|&b| b == b'\'');
    match rest.get(1) {
        Some(b'\\') => close(3).map_or(0, |n| 3 + n + 1),
        Some(&b) if b < 0x80 => 3 * usize::from(rest.get(2) == Some(&b'\'')),
        Some(_) => close(1).map_or(0, |n| 1 + n + 1),
        None => 0,
    }
}

/// The byte after the item that starts at `at`: its closing brace, or the semicolon of one without.
pub(super) fn item_end(masked: &str, at: usize) -> usize {
    let mut depth = 0_i32;
    for (i, byte) in masked.bytes().enumerate().skip(at) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return i,
            b'}' => depth -= 1,
            b';' if depth == 0 => return i,
            _ => {}
        }
    }
    masked.len()
}

/// Every `fn name` with a body.
fn functions(masked: &str) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for (at, _) in masked.match_indices("fn ") {
        let starts_word = at == 0 || !is_word(masked.as_bytes()[at - 1]);
        let name: String = masked[at + 3..]
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        if starts_word && !name.is_empty() {
            let (first, last) = (line_of(masked, at), line_of(masked, item_end(masked, at)));
            found.push((name, first, last));
        }
    }
    found
}

pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether a line of code holds this word or path, not as a part of a longer one.
pub(super) fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code.as_bytes()[..at].last().copied();
        let after = code.as_bytes().get(at + word.len()).copied();
        let open_start = !word.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let open_end = !word.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        (open_start || !before.is_some_and(is_word)) && (open_end || !after.is_some_and(is_word))
    })
}

/// The first names inside `std::{…}` groups, with their lines, so that `use std::{fs, io}` hides
/// nothing.
pub(super) fn grouped_std(code: &[String]) -> Vec<(usize, String)> {
    let text = code.join("\n");
    let mut found = Vec::new();
    for (at, open) in text.match_indices("std::{") {
        let mut depth = 1;
        let mut word = String::new();
        for (i, c) in text
            .char_indices()
            .skip_while(|(i, _)| *i < at + open.len())
        {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 1 && is_word(c as u8) && c.is_ascii() {
                word.push(c);
            } else if !word.is_empty() {
                found.push((
                    line_of(&text, i.saturating_sub(1)),
                    std::mem::take(&mut word),
                ));
            }
            if depth == 0 {
                break;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_comments_strings_and_characters_are_no_code() {
        let source = Source::read(
            "let a = \"unsafe\"; // unsafe\nlet b = r#\"unsafe \" \"#; /* unsafe /* unsafe */ */\n\
             let c = 'u'; let d: &'static str = b\"unsafe\\\"unsafe\"; let e = '\\'';\n\
             unsafe {}\n",
        );
        let lines: Vec<usize> = (0..source.code.len())
            .filter(|&i| has_word(&source.code[i], "unsafe"))
            .collect();
        assert_eq!(lines, [3]);
        assert!(source.code[2].contains("&'static str"));
    }

    #[test]
    fn a_test_module_is_told_from_the_code_around_it() {
        let source = Source::read("fn a() {}\n#[cfg(test)]\nmod tests {\n    x();\n}\nfn b() {}\n");
        assert_eq!(source.test, [false, true, true, true, true, false]);
    }

    #[test]
    fn a_function_is_measured_from_its_name_to_its_closing_brace() {
        let source = Source::read("pub fn one(\n  a: u8,\n) {\n  if a {}\n}\nfn two();\n");
        assert_eq!(
            source.functions,
            [("one".to_owned(), 0, 4), ("two".to_owned(), 5, 5)]
        );
    }

    #[test]
    fn a_part_of_a_longer_word_is_not_the_word() {
        assert!(has_word("x(HashMap::new())", "HashMap"));
        assert!(!has_word("MyHashMaps", "HashMap"));
        assert!(has_word("a.unwrap()", ".unwrap()"));
    }

    #[test]
    fn a_grouped_import_shows_its_first_names_only() {
        let code = vec![
            "use std::{fs,".to_owned(),
            "  io::{self, time}, vec};".to_owned(),
        ];
        let names: Vec<String> = grouped_std(&code)
            .into_iter()
            .map(|(_, word)| word)
            .collect();
        assert_eq!(names, ["fs", "io", "vec"]);
    }
}

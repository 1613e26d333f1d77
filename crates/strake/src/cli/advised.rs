//! Commands that errors, events, findings and alerts advise: each is one that `strake` takes.
//!
//! What is read is the source: every string of the crate, the texts of the console, the rules of
//! the monitoring, and docs. A place for a value is `{name}`, `NAME` or `{{ $labels.array }}`.
//! Deliberately absent: whether the command helps; that is what the tests of refusals are for.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory as _};
use proc_macro2::{TokenStream, TokenTree};

use crate::cli::args::Cli;

/// What a place may stand for; 1 is a name, a slot, a file and a number.
const VALUES: &[&str] = &["1", "1=1", "", "add", "--yes"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files below it with one of these endings.
fn files(below: &Path, endings: &[&str], all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(below).expect("a folder") {
        let path = entry.expect("an entry").path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if path.is_dir() {
            files(&path, endings, all);
        } else if ending.is_some_and(|ending| endings.contains(&ending)) {
            all.push(path);
        }
    }
}

/// The strings of Rust code, comments left out.
fn strings(code: TokenStream, all: &mut Vec<String>) {
    let mut attribute = false;
    for token in code {
        match token {
            TokenTree::Group(group) if !attribute => strings(group.stream(), all),
            TokenTree::Literal(literal) => {
                if let syn::Lit::Str(text) = syn::Lit::new(literal) {
                    all.push(text.value());
                }
            }
            TokenTree::Punct(punct) => {
                attribute = punct.as_char() == '#';
                continue;
            }
            _ => {}
        }
        attribute = false;
    }
}

/// `text` with each place for a value as one `{}`.
fn places(text: &str) -> String {
    let (mut out, mut depth) = (String::new(), 0);
    for letter in text.chars() {
        match letter {
            '{' => {
                depth += 1;
                if depth == 1 {
                    out.push_str("{}");
                }
            }
            '}' => depth = i32::max(depth - 1, 0),
            _ if depth == 0 => out.push(letter),
            _ => {}
        }
    }
    out
}

/// What stands behind each `strake` in a text, as far as it may be one command.
fn commands(text: &str) -> Vec<Vec<String>> {
    let text = places(text);
    let mut all = Vec::new();
    for (at, _) in text.match_indices("strake ") {
        if text[..at].ends_with(|letter: char| letter.is_alphanumeric() || "/_-.@".contains(letter))
        {
            continue;
        }
        let rest = &text[at..];
        let end = rest.find(|letter: char| ";,:#()`\n'\"&|<>“”\\".contains(letter));
        let rest = &rest[..end.unwrap_or(rest.len())];
        let mut tokens: Vec<String> = Vec::new();
        for token in rest.split_whitespace().skip(1) {
            match token {
                "and" | "…" => break,
                // A question before a command, and no advice.
                "would" => {
                    tokens.clear();
                    break;
                }
                _ => {}
            }
            let end = token.ends_with('.');
            tokens.push(token.trim_end_matches(['.', '…']).to_owned());
            if end {
                break;
            }
        }
        all.push(tokens);
    }
    all
}

/// A place for a value.
fn place(token: &str) -> bool {
    let capital = |l: char| l.is_ascii_uppercase() || l.is_ascii_digit() || "=-_".contains(l);
    token.contains("{}") || (!token.starts_with('-') && token.chars().all(capital))
}

/// `strake` takes these arguments, whatever stands in the places.
fn taken(cli: &Command, tokens: &[String]) -> Result<(), ErrorKind> {
    let places = tokens.iter().filter(|token| place(token)).count();
    let mut why = ErrorKind::InvalidSubcommand;
    for number in 0..VALUES.len().pow(u32::try_from(places).expect("few")) {
        let mut left = number;
        let given = tokens.iter().map(|token| match place(token) {
            false => token.clone(),
            true => {
                let value = VALUES[left % VALUES.len()];
                left /= VALUES.len();
                match token.contains("{}") {
                    true => token.replace("{}", value),
                    false => value.to_owned(),
                }
            }
        });
        let given = given.filter(|token| !token.is_empty());
        let given = std::iter::once("strake".to_owned()).chain(given);
        match cli
            .clone()
            .try_get_matches_from(given)
            .map_err(|error| error.kind())
        {
            Ok(_) | Err(ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => return Ok(()),
            Err(kind) if number == 0 => why = kind,
            Err(_) => {}
        }
    }
    Err(why)
}

/// Why these tokens do not begin with a command that takes all that is no word of a sentence.
fn wrong(cli: &Command, tokens: &[String]) -> Option<String> {
    use ErrorKind::{DisplayHelpOnMissingArgumentOrSubcommand as Help, MissingRequiredArgument};
    let belongs = |token: &String| place(token) || token.starts_with('-');
    let last = tokens.iter().rposition(belongs);
    let least = last.map_or(1, |last| last + 1);
    let mut why = None;
    for upto in (least..=tokens.len()).rev() {
        match taken(cli, &tokens[..upto]) {
            Ok(()) => return None,
            // Only its name, or that of an option of it.
            Err(MissingRequiredArgument | Help) if !tokens.iter().any(|t| place(t)) => return None,
            // Only the name of an option.
            Err(ErrorKind::InvalidValue) if tokens[upto - 1].starts_with("--") => return None,
            Err(kind) => why = Some(kind),
        }
    }
    Some(format!("strake {}: {why:?}", tokens.join(" ")))
}

#[test]
fn each_command_that_is_advised_is_one_that_strake_takes() {
    let cli = Cli::command();
    let known = |tokens: &[String]| {
        let first = tokens.first().map(String::as_str).unwrap_or_default();
        first.starts_with(|letter: char| letter.is_ascii_lowercase())
    };
    let mut texts = Vec::new();
    let mut code = Vec::new();
    files(&root().join("crates/strake/src"), &["rs"], &mut code);
    for path in code {
        let text = fs::read_to_string(&path).expect("readable");
        let mut found = Vec::new();
        strings(TokenStream::from_str(&text).expect("Rust"), &mut found);
        texts.extend(found.into_iter().map(|text| (path.clone(), text)));
    }
    let mut others = Vec::new();
    files(&root().join("console/strings"), &["json"], &mut others);
    files(&root().join("monitoring"), &["yml"], &mut others);
    files(&root().join("docs"), &["md"], &mut others);
    for path in others {
        let text = fs::read_to_string(&path).expect("readable");
        let lines = text
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'));
        texts.extend(lines.map(|line| (path.clone(), line.to_owned())));
    }
    let (mut seen, mut bad) = (0, Vec::new());
    for (path, text) in texts {
        for tokens in commands(&text) {
            if !known(&tokens) {
                continue;
            }
            seen += 1;
            if let Some(why) = wrong(&cli, &tokens) {
                bad.push(format!("{}: {why}", path.display()));
            }
        }
    }
    assert!(seen > 200, "only {seen} commands were found");
    assert!(
        bad.is_empty(),
        "{} of {seen}:\n{}",
        bad.len(),
        bad.join("\n")
    );
}

//! Figures of a TOML file, each with its source: how they are written, read and checked.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;

use super::CatalogueError;
use crate::drive::Origin;
use crate::load::size;
use crate::value::{Figure, Source};

/// A source of figures.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Title {
    title: String,
    date: String,
}

/// A figure: `{ is = 5, source = "x" }` or `{ from = 4, to = 5, source = "x" }`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sourced {
    is: Option<Value>,
    from: Option<Value>,
    to: Option<Value>,
    source: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Number(f64),
    Text(String),
}

/// A key, and between which bounds its figure makes sense.
pub(crate) type Bounds = (&'static str, f64, f64);

fn line(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or(text).matches('\n').count() + 1
}

/// A file of this form.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, CatalogueError> {
    toml::from_str(text).map_err(|error| CatalogueError::Syntax {
        line: error.span().map_or(1, |span| line(text, span.start)),
        what: error.message().replace('\n', " "),
    })
}

/// Reads the figures of one thing, and keeps where each comes from.
pub(crate) struct Reader<'a> {
    text: &'a str,
    sources: &'a BTreeMap<String, Title>,
    /// What the figures are of, for mistakes.
    of: String,
    bounds: &'a [Bounds],
    /// How strong the figures are.
    source: Source,
    pub(crate) origins: Vec<Origin>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(
        text: &'a str,
        sources: &'a BTreeMap<String, Title>,
        of: String,
        bounds: &'a [Bounds],
        source: Source,
    ) -> Reader<'a> {
        Reader {
            text,
            sources,
            of,
            bounds,
            source,
            origins: Vec::new(),
        }
    }

    pub(crate) fn figure(
        &mut self,
        key: &str,
        of: &Spanned<Sourced>,
    ) -> Result<Figure, CatalogueError> {
        let wrong = |what: String| CatalogueError::Value {
            line: line(self.text, of.span().start),
            key: key.to_owned(),
            of: self.of.clone(),
            what,
        };
        let has = of.get_ref();
        let (_, least, most) = self
            .bounds
            .iter()
            .find(|(name, ..)| *name == key)
            .expect("each key has bounds");
        let number = |value: &Value| {
            let (number, shown) = match value {
                Value::Number(number) => (Some(*number), number.to_string()),
                Value::Text(text) => {
                    let plain = || text.parse::<f64>().ok();
                    (size(text).or_else(plain), text.clone())
                }
            };
            let number = number.filter(|n| (*least..=*most).contains(n));
            number.ok_or_else(|| wrong(format!("'{shown}' is not from {least:e} to {most:e}")))
        };
        let (low, high) = match (&has.is, &has.from, &has.to) {
            (Some(is), None, None) => (number(is)?, number(is)?),
            (None, Some(from), Some(to)) => (number(from)?, number(to)?),
            _ => return Err(wrong("give is, or from and to".to_owned())),
        };
        let source = self
            .sources
            .get(&has.source)
            .ok_or_else(|| wrong(format!("source '{}' has no line in [source]", has.source)))?;
        self.origins.push(Origin {
            figure: key.to_owned(),
            source: source.title.clone(),
            date: source.date.clone(),
        });
        Ok(Figure::range(low, high, self.source))
    }
}

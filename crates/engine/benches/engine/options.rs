//! What the command line asks for.
//!
//! Invariant: nothing that was said is ignored: an argument that is not known ends the run before
//! anything is measured.

/// The options, for an error about an unknown one.
pub(crate) const KNOWN: &str = "--smoke, --json, --only TEXT, --closed, --hedged and --shards";

/// A list of figures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    Figures,
    Hedged,
    Shards,
    Closed,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Options {
    /// Small, over members that keep what is written: all is read back and compared.
    pub(crate) smoke: bool,
    /// Ends with one line of JSON.
    pub(crate) json: bool,
    /// Loads with this in their name.
    pub(crate) only: String,
    /// None: all of them.
    lists: Vec<List>,
}

impl Options {
    pub(crate) fn wants(&self, list: List) -> bool {
        self.lists.is_empty() && !self.smoke || self.lists.contains(&list)
    }
}

/// Reads the arguments.
pub(crate) fn read(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--smoke" => options.smoke = true,
            "--json" => options.json = true,
            "--only" => {
                let text = arguments.next();
                options.only = text.ok_or("--only needs a value")?;
            }
            "--closed" => options.lists.push(List::Closed),
            "--hedged" => options.lists.push(List::Hedged),
            "--shards" => options.lists.push(List::Shards),
            // What cargo adds by itself.
            "--bench" => {}
            _ => return Err(format!("unknown argument {argument}")),
        }
    }
    if options.smoke && !options.lists.is_empty() {
        return Err("a smoke run has no lists".to_owned());
    }
    if !options.only.is_empty() {
        let named = |list: &List| matches!(list, List::Figures | List::Closed);
        if options.smoke || !options.lists.iter().all(named) {
            return Err("--only is about the main list and --closed".to_owned());
        }
        if options.lists.is_empty() {
            options.lists = vec![List::Figures, List::Closed];
        }
    }
    Ok(options)
}

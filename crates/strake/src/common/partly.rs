//! The same done to several devices, one after the other, of which some may fail.
//!
//! Invariant: what has failed keeps none of the others from it, and the error says of every device
//! whether it was done. Deliberately absent: undoing what was done.

use std::path::{Path, PathBuf};

use crate::common::errors::Failure;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Partly {
    done: Vec<PathBuf>,
    failed: Vec<(PathBuf, Failure)>,
}

impl Partly {
    /// What came of one of the devices.
    pub(crate) fn note(&mut self, device: &Path, came: Result<(), Failure>) {
        match came {
            Ok(()) => self.done.push(device.to_owned()),
            Err(failure) => self.failed.push((device.to_owned(), failure)),
        }
    }

    /// Those that were done.
    pub(crate) fn done(&self) -> &[PathBuf] {
        &self.done
    }

    /// The error of the first that failed, those of the others, and, after `did`, the devices that
    /// were done; `None` where none failed.
    pub(crate) fn failure(&self, did: &str) -> Option<Failure> {
        let mut failed = self.failed.iter().map(|(device, failure)| {
            let shown = device.display().to_string();
            match failure.found.contains(&shown) {
                true => failure.clone(),
                false => failure.clone().about(shown),
            }
        });
        let mut first = failed.next()?;
        for other in failed {
            first.found.push_str(&format!("; {}", other.found));
        }
        first.found.push_str(&match self.done.is_empty() {
            true => format!("; no device was {did}"),
            false => format!("; {did}: {}", all(&self.done)),
        });
        Some(first)
    }
}

/// Paths in one line.
pub(crate) fn all(paths: &[PathBuf]) -> String {
    let shown: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::errors::Code;

    #[test]
    fn an_error_names_every_device_and_what_became_of_it() {
        let mut partly = Partly::default();
        let path = |name: &str| PathBuf::from(format!("/dev/{name}"));
        let failure = |found: &str| Failure::new(Code::Io, found);
        partly.note(&path("a"), Ok(()));
        assert_eq!(partly.failure("wiped"), None);
        partly.note(&path("b"), Err(failure("/dev/b: write: EIO")));
        partly.note(&path("c"), Ok(()));
        partly.note(&path("d"), Err(failure("no answer")));
        let failure = partly.failure("wiped").expect("two have failed");
        assert_eq!(failure.code, Code::Io);
        assert_eq!(
            failure.found,
            "/dev/b: write: EIO; /dev/d: no answer; wiped: /dev/a, /dev/c"
        );
        assert_eq!(partly.done(), [path("a"), path("c")]);
    }
}

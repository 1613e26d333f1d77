//! Of what the newest backup was that was written to a file here.
//!
//! Invariant: a folder that cannot be read or written costs the reminder and nothing else.
//! Deliberately absent: the backup, and where it lies now.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::api::config::BackupJson;
use crate::common::files::read_file;
use crate::daemon::state;
use crate::daemon::state::Dir;

/// What is remembered of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackedUp {
    /// RFC 3339.
    pub(crate) taken: String,
    /// Where it was written.
    pub(crate) file: PathBuf,
    /// The epoch of each array in it, by its uuid: it rises with every change of members or shape.
    pub(crate) arrays: BTreeMap<String, u64>,
}

impl Dir {
    fn backed_up_file(&self) -> PathBuf {
        self.lasting("backed-up.json")
    }

    /// Remembers a backup that was written to a file.
    pub(crate) fn was_backed_up(&self, backup: &BackupJson, file: &Path) {
        let epochs = backup.arrays.iter().map(|a| (a.uuid.clone(), a.epoch));
        let record = BackedUp {
            taken: backup.taken.clone(),
            file: file.to_owned(),
            arrays: epochs.collect(),
        };
        if let Err(error) = state::replace(&self.backed_up_file(), &record) {
            tracing::warn!(%error, "doctor does not know of this backup");
        }
    }

    /// The newest backup that was written to a file here, if one was.
    pub(crate) fn backed_up(&self) -> Option<BackedUp> {
        let text = read_file(self.backed_up_file()).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

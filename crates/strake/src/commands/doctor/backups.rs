//! Findings about arrays that the newest backup of the configuration does not know as they are.
//!
//! Deliberately absent: machines on which no backup was ever written, and what a backup holds.

use crate::api::{ArrayJson, FindingJson};
use crate::common::events::Severity;
use crate::common::quoted;
use crate::daemon::state::Dir;
use crate::daemon::state::backed_up::BackedUp;

const CHECK: &str = "backup-old";

pub(super) fn check(dir: &Dir, arrays: &[ArrayJson]) -> Vec<FindingJson> {
    // What cannot be asked is said of the folder (`folders`).
    if dir.lasting_answers().is_err() {
        return Vec::new();
    }
    let backup = dir.backed_up();
    let backup = backup.iter();
    backup.flat_map(|backup| findings(backup, arrays)).collect()
}

fn findings(backup: &BackedUp, arrays: &[ArrayJson]) -> Vec<FindingJson> {
    let (taken, file) = (&backup.taken, backup.file.display());
    // Of an array of which nothing is found, its backup is not to be replaced.
    let known = |array: &&ArrayJson| !array.not_found && array.destroyed.is_none();
    let finding = |array: &ArrayJson| {
        let name = &array.name;
        let found = match backup.arrays.get(&array.uuid) {
            Some(&epoch) if epoch >= array.epoch => return None,
            Some(&epoch) => format!(
                "members or shape of {name} have changed since the newest backup: its epoch is {}, \
                 and {epoch} in {file} of {taken}",
                array.epoch
            ),
            None => format!(
                "{name} ({}) was made, imported or restored since the newest backup, {file} of \
                 {taken}",
                array.uuid
            ),
        };
        Some(FindingJson {
            check: CHECK.to_owned(),
            severity: Severity::Warning,
            array: Some(name.clone()),
            found,
            cure: format!("strake config backup {}", quoted(&backup.file)),
            ..FindingJson::default()
        })
    };
    arrays.iter().filter(known).filter_map(finding).collect()
}

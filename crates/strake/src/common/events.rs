//! The catalogue of events: a stable name, how serious it is, what it says.
//!
//! Invariants: every event that the daemon notes stands here once (a test looks through the
//! sources); a name once published keeps its meaning. Deliberately absent: the events themselves
//! (`daemon::events`).

use serde::{Deserialize, Serialize};

use Grade::{Critical, Info, OfState, Warning};

/// How serious an event is, the least first.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    #[default]
    Info,
    Warning,
    Critical,
}

impl Severity {
    /// As JSON and the command line have it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// What the severity of a kind of event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grade {
    Info,
    Warning,
    Critical,
    /// By the state that its effect names.
    OfState,
}

impl Grade {
    fn severity(self, effect: Option<&str>) -> Severity {
        match (self, effect) {
            (Warning, _) | (OfState, Some("degraded")) => Severity::Warning,
            (Critical, _) | (OfState, Some("failed")) => Severity::Critical,
            (Info | OfState, _) => Severity::Info,
        }
    }
}

/// Name, grade and meaning.
pub(crate) type Kind = (&'static str, Grade, &'static str);

/// All kinds of events, by subject.
pub(crate) const GROUPS: &[(&str, &[Kind])] = &[
    (
        "Arrays",
        &[
            ("created", Info, "An array was made."),
            (
                "started",
                Info,
                "It serves. The cause tells an unclean stop before.",
            ),
            (
                "stop_waits",
                Warning,
                "A stop waits for a member that does not answer. The cause says since when, the \
                 effect how long at most.",
            ),
            (
                "stopped",
                Info,
                "It was stopped. The effect says whether cleanly.",
            ),
            (
                "state",
                OfState,
                "Its state changed; the cause has the state before, the effect the new one.",
            ),
            (
                "failed",
                Critical,
                "More members are out than the level survives. Requests get errors, nothing is \
                 written.",
            ),
            (
                "forced",
                Warning,
                "A start with --force accepted that so many bytes may be wrong.",
            ),
            (
                "start_refused",
                Critical,
                "The daemon did not start it by itself; the cause has the error.",
            ),
            (
                "log_replayed",
                Info,
                "The stripe log was replayed after an unclean stop.",
            ),
            (
                "settings_changed",
                Info,
                "Settings were changed; the effect has old and new values.",
            ),
            ("renamed", Info, "It has another name."),
            ("imported", Info, "It was adopted from another host."),
            ("destroyed", Info, "Its superblocks were wiped."),
            (
                "array_not_found",
                Critical,
                "No member of an array that was served here is found; the cause has what its slots \
                 had.",
            ),
            (
                "array_not_read",
                Critical,
                "No member of an array that was served here is found, and devices that may hold \
                 them cannot be read or give no answer; the cause names these.",
            ),
            (
                "forgotten",
                Info,
                "An array of which no member is found is not expected any more.",
            ),
            ("grown", Info, "It has more room."),
            (
                "level_raised",
                Info,
                "It has a level with more redundancy, or gets it.",
            ),
            (
                "level_lowered",
                Info,
                "It has a level with less redundancy.",
            ),
            (
                "size_not_told",
                Warning,
                "The block device has grown, and its users do not see that yet.",
            ),
            (
                "restoring",
                Info,
                "A backup is being restored; the cause has devices and slots.",
            ),
            ("restored", Info, "A backup was restored."),
            (
                "state_damaged",
                Warning,
                "A file of the daemon's state cannot be read, or lies where a folder is to be; the \
                 effect says what holds instead.",
            ),
            (
                "daemon_task_failed",
                Warning,
                "A part of the daemon has panicked, or could not begin for want of a thread: the \
                 cause says which and why, the effect whether it goes on.",
            ),
            (
                "config_not_used",
                Warning,
                "The configuration file is wrong: the cause says where, the effect what holds.",
            ),
            (
                "folder_restored",
                Warning,
                "The daemon's folder, lock or socket was removed; the daemon made it again.",
            ),
            (
                "metrics_not_served",
                Warning,
                "The address or file of the metrics cannot be had; the cause says why.",
            ),
            (
                "metrics_served_again",
                Info,
                "The address or file of the metrics can be had again.",
            ),
        ],
    ),
    (
        "Members",
        &[
            (
                "member_out",
                Warning,
                "A member left service; the cause says why, the effect what answers instead.",
            ),
            ("member_in_sync", Info, "A member is whole and serves."),
            (
                "member_kept",
                Info,
                "A member came back; only what it missed is rebuilt.",
            ),
            (
                "member_returned",
                Warning,
                "A device of the array is seen again and is not used; the effect says why.",
            ),
            (
                "member_set_aside",
                Warning,
                "A device was found that cannot be used as it is.",
            ),
            (
                "member_believed",
                Warning,
                "A start with --force used a member that lost a superblock.",
            ),
            (
                "member_emptied",
                Warning,
                "A member in service lacks a superblock, or both, or has an older one: another \
                 program wrote to it.",
            ),
            (
                "member_doubted",
                Critical,
                "A member would be out as emptied or an older image; the level needs it.",
            ),
            (
                "member_no_longer_doubted",
                Warning,
                "Its superblocks are right again; its data may lack what was written meanwhile.",
            ),
            (
                "member_full",
                Critical,
                "There is no space for writes to a member (a full file system or pool): they wait.",
            ),
            (
                "member_no_longer_full",
                Info,
                "Its writes do not wait for space any more.",
            ),
            (
                "member_failing",
                Warning,
                "A member has too many read errors and serves until a spare replaces it.",
            ),
            (
                "member_slow",
                Warning,
                "A member takes much longer than the others.",
            ),
            ("member_no_longer_slow", Info, "It does not any more."),
            (
                "worn_member_relieved",
                Info,
                "A spare takes the place of a worn member.",
            ),
            ("spare_added", Info, "A spare was added."),
            (
                "spare_gone",
                Warning,
                "A spare was not there at a start, or of no use, and is none any more; the effect \
                 says how it is added again.",
            ),
            ("spare_used", Info, "A spare takes a slot."),
            ("removed", Info, "A member or spare was forgotten."),
            (
                "counters_reset",
                Info,
                "Error counters begin at zero again; the cause has what they were.",
            ),
            ("located", Info, "The light of a drive was switched."),
            ("cleaned", Info, "What Strake left on a device was wiped."),
        ],
    ),
    (
        "Drives",
        &[
            (
                "drive_warning",
                Warning,
                "A drive reports a critical warning.",
            ),
            ("drive_warning_over", Info, "It does not any more."),
            (
                "drive_worn",
                Warning,
                "A drive has used 90 % of its endurance.",
            ),
            (
                "drive_media_errors",
                Warning,
                "A drive has more media errors than before.",
            ),
        ],
    ),
    (
        "Blocks",
        &[
            (
                "read_error",
                Warning,
                "A member could not read; the effect says what answered.",
            ),
            (
                "repaired",
                Info,
                "What could not be read was rewritten from the others.",
            ),
            (
                "unreadable",
                Critical,
                "Blocks cannot be computed and answer an error until they are written.",
            ),
            ("rewritten", Info, "They can be read again."),
            (
                "given_up",
                Critical,
                "A start with --force gave blocks up that found no room in the list.",
            ),
            (
                "mismatch",
                Warning,
                "A scrub found a strip that contradicts the others.",
            ),
            (
                "inconsistent",
                Warning,
                "A scrub found a stripe with strips that do not agree, and not which is wrong.",
            ),
            (
                "undecided",
                Critical,
                "Strips of a region do not agree; nothing is repaired there.",
            ),
            (
                "decided",
                Info,
                "An undecided region is decided; the cause says how.",
            ),
        ],
    ),
    (
        "Jobs",
        &[
            (
                "job_started",
                Info,
                "A rebuild, resync, scrub, restripe or zeroing began or went on.",
            ),
            (
                "job_stopped",
                Info,
                "It was paused or ended; the cause says why, the effect which job it is.",
            ),
            ("job_finished", Info, "It is done, with what it found."),
        ],
    ),
    (
        "Alerts",
        &[
            (
                "alert_failing",
                Warning,
                "Messages of a channel are not delivered; the cause is the channel, the effect \
                 the error.",
            ),
            ("alert_delivering", Info, "They are delivered again."),
            (
                "alert_dropped",
                Warning,
                "Messages of a channel were dropped; the effect says how many and why.",
            ),
            (
                "alert_not_kept",
                Warning,
                "Messages that are not delivered cannot be written to disk; the cause is the \
                 error.",
            ),
            ("alert_kept", Info, "They can be written again."),
        ],
    ),
    (
        "Pools and volumes",
        &[
            ("pool_changed", Info, "A pool was made, changed or deleted."),
            (
                "pool_spare_taken",
                Info,
                "An array took a spare from its pool.",
            ),
            (
                "pool_empty",
                Warning,
                "An array took the last device of a pool; the cause is the pool.",
            ),
            (
                "pool_has_no_spare",
                Warning,
                "An array needs a spare, and its pool has none that fits.",
            ),
            ("volume_created", Info, "A volume was made."),
            ("volume_resized", Info, "A volume has another size."),
            ("volume_renamed", Info, "A volume has another name."),
            ("volume_deleted", Info, "A volume was deleted."),
            (
                "volume_not_served",
                Warning,
                "A volume has no device: the effect says which, and why. It is tried again by \
                 itself, less and less often.",
            ),
            (
                "volume_served",
                Info,
                "It is served after all; the effect is the volume and its device.",
            ),
            (
                "volume_change_in_doubt",
                Warning,
                "A change of volumes failed, or the array does not answer it, and it may be found \
                 done at the next start; or a start could not write one copy of their table. Or \
                 that is over: the effect says how.",
            ),
            (
                "volume_table_damaged",
                Critical,
                "Neither copy of the table of volumes can be believed.",
            ),
        ],
    ),
];

/// How serious an event of this name and with this effect is; `None` where the name is not known.
pub(crate) fn severity(event: &str, effect: Option<&str>) -> Option<Severity> {
    let mut all = GROUPS.iter().flat_map(|(_, kinds)| *kinds);
    let (_, grade, _) = all.find(|(name, ..)| *name == event)?;
    Some(grade.severity(effect))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_severity_of_a_state_is_that_of_the_state_which_it_names() {
        let of = |effect| severity("state", Some(effect));
        assert_eq!(of("optimal"), Some(Severity::Info));
        assert_eq!(of("degraded"), Some(Severity::Warning));
        assert_eq!(of("failed"), Some(Severity::Critical));
        assert_eq!(severity("state", None), Some(Severity::Info));
        assert_eq!(severity("failed", Some("x")), Some(Severity::Critical));
        assert_eq!(severity("of_a_later_version", None), None);
        assert!(Severity::Info < Severity::Warning && Severity::Warning < Severity::Critical);
    }
}

//! Whether an array is started without members that it expects: the daemon's rule, and those of
//! arrays.
//!
//! Invariants: an array's own rule outweighs the daemon's; it is kept on this machine
//! (`placement`), and one that is not known is none. Deliberately absent: what an administrator
//! starts by name, which no rule is about.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::errors::{Code, Failure};
use crate::common::size;
use crate::settings as ranges;

/// The daemon's word for arrays.
pub(crate) const DEFAULT: &str = "default";

/// What becomes of an array that is found without members that it expects, if it can be started
/// without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DegradedStart {
    /// It is started at once.
    Allow,
    /// It is started when it has been waited for them.
    Wait,
    /// It is started when they are there, or when an administrator says so.
    Never,
}

/// The rule that holds for an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) start: DegradedStart,
    /// How long it is waited for members, where it is.
    pub(crate) wait: Duration,
}

/// What was said of one array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) enum OwnRule {
    Allow,
    /// As long as the daemon waits for any.
    Wait,
    /// So long, milliseconds.
    WaitMs(u32),
    Never,
}

impl OwnRule {
    /// What is to be said of an array; `None`: nothing, so that the daemon's rule holds.
    ///
    /// # Errors
    /// It is none of the words, and no time.
    pub(crate) fn parse(text: &str) -> Result<Option<OwnRule>, Failure> {
        Ok(Some(match text {
            DEFAULT => return Ok(None),
            "allow" => OwnRule::Allow,
            "wait" => OwnRule::Wait,
            "never" => OwnRule::Never,
            text => match size::delay_ms(text).filter(|&ms| ms > 0) {
                Some(ms) => OwnRule::WaitMs(ms),
                None => return Err(ranges::not_taken("degraded", text)),
            },
        }))
    }

    /// As `parse` takes it.
    pub(crate) fn text(own: Option<OwnRule>) -> String {
        own.map_or_else(|| DEFAULT.to_owned(), |own| own.to_string())
    }
}

impl fmt::Display for OwnRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OwnRule::Allow => "allow",
            OwnRule::Wait => "wait",
            OwnRule::WaitMs(ms) => return f.write_str(&size::delay(u64::from(*ms))),
            OwnRule::Never => "never",
        })
    }
}

impl From<OwnRule> for String {
    fn from(own: OwnRule) -> String {
        own.to_string()
    }
}

impl TryFrom<String> for OwnRule {
    type Error = String;

    fn try_from(text: String) -> Result<OwnRule, String> {
        let parsed = OwnRule::parse(&text).map_err(|failure| failure.found)?;
        parsed.ok_or_else(|| format!("'{DEFAULT}' is not kept"))
    }
}

impl Rule {
    /// The one that holds for an array of which this was said.
    pub(crate) fn with(self, own: Option<OwnRule>) -> Rule {
        let start = |start| Rule { start, ..self };
        match own {
            None => self,
            Some(OwnRule::Allow) => start(DegradedStart::Allow),
            Some(OwnRule::Wait) => start(DegradedStart::Wait),
            Some(OwnRule::Never) => start(DegradedStart::Never),
            Some(OwnRule::WaitMs(ms)) => Rule {
                start: DegradedStart::Wait,
                wait: Duration::from_millis(u64::from(ms)),
            },
        }
    }
}

/// A start without members that the rule does not want.
pub(crate) fn refused(name: &str) -> Failure {
    let found = format!("{name} misses members, and is not to start degraded by itself");
    let cure = format!("bring them back, or strake start {name} starts it without them");
    Failure::new(Code::DegradedStart, found).cure(cure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_told_and_kept_in_the_same_words() {
        for (said, own, told) in [
            ("allow", OwnRule::Allow, "allow"),
            ("wait", OwnRule::Wait, "wait"),
            ("never", OwnRule::Never, "never"),
            ("30s", OwnRule::WaitMs(30_000), "30s"),
            ("90s", OwnRule::WaitMs(90_000), "1m 30s"),
        ] {
            assert_eq!(OwnRule::parse(said), Ok(Some(own)));
            assert_eq!(OwnRule::text(Some(own)), told);
            assert_eq!(OwnRule::parse(told), Ok(Some(own)), "{told}");
            let kept = serde_json::to_string(&own).expect("JSON");
            assert_eq!(serde_json::from_str::<OwnRule>(&kept).ok(), Some(own));
        }
        assert_eq!(OwnRule::parse("default"), Ok(None));
        assert_eq!(OwnRule::text(None), "default");
        for wrong in ["", "no", "0", "off", "0s", "-3s", "8d", "30", "Never"] {
            let parsed = OwnRule::parse(wrong).map_err(|failure| failure.code);
            assert_eq!(parsed, Err(Code::SettingInvalid), "{wrong}");
        }
    }

    #[test]
    fn an_array_s_own_rule_outweighs_the_daemon_s() {
        let daemon = Rule {
            start: DegradedStart::Never,
            wait: Duration::from_secs(10),
        };
        assert_eq!(daemon.with(None), daemon);
        let own = daemon.with(Some(OwnRule::Wait));
        assert_eq!((own.start, own.wait), (DegradedStart::Wait, daemon.wait));
        let own = daemon.with(Some(OwnRule::WaitMs(2500)));
        let waits = (DegradedStart::Wait, Duration::from_millis(2500));
        assert_eq!((own.start, own.wait), waits);
        assert_eq!(
            daemon.with(Some(OwnRule::Allow)).start,
            DegradedStart::Allow
        );
    }
}

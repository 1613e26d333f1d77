//! Findings about alerts: no channel, channels that do not deliver, messages that were dropped.

use crate::api::{AlertChannelJson, AlertsJson, FindingJson};
use crate::common::events::Severity;
use crate::common::size;

pub(super) fn check(alerts: Option<&AlertsJson>) -> Vec<FindingJson> {
    let Some(alerts) = alerts else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut say = |check: &str, what: String, cure: String| {
        found.push(FindingJson {
            check: check.to_owned(),
            severity: Severity::Warning,
            found: what,
            cure,
            ..FindingJson::default()
        });
    };
    if let Some(why) = &alerts.configuration_not_used {
        let cure = "correct it until strake config check finds nothing, and start the daemon anew";
        say("configuration", why.clone(), cure.to_owned());
    } else if alerts.channels.is_empty() {
        say(
            "alert-channel",
            "there is no channel of alerts: the daemon tells nobody that an array is degraded"
                .to_owned(),
            "add [[alerts]] to the configuration (docs/how-to/alerts.md), start the daemon anew, \
             and strake alert test"
                .to_owned(),
        );
    }
    for channel in &alerts.channels {
        delivery(channel, &mut say);
    }
    if alerts.unwritten_files > 0 {
        say(
            "alert-spool",
            format!(
                "{} of the spool of alerts could not be written: a restart of the daemon loses \
                 what is not delivered",
                size::count(alerts.unwritten_files as usize, "file")
            ),
            "make room in the file system of /var/lib/strake (or STRAKE_DIR); it is written again \
             by itself"
                .to_owned(),
        );
    }
    found
}

/// Whether a channel delivers.
fn delivery(channel: &AlertChannelJson, say: &mut dyn FnMut(&str, String, String)) {
    let name = &channel.name;
    if channel.failing {
        let since = channel
            .failing_since
            .as_deref()
            .unwrap_or("its last attempt");
        let error = channel.last_error.as_deref().unwrap_or("no error is known");
        say(
            "alert-failing",
            format!(
                "channel {name} ({} to {}) does not deliver since {since} ({} in its queue): \
                 {error}",
                channel.way,
                channel.to,
                size::count(channel.queued as usize, "message"),
            ),
            format!("mend what the error names, and strake alert test {name}"),
        );
    }
    if channel.dropped > 0 {
        say(
            "alert-dropped",
            format!(
                "{} of channel {name} were dropped since the daemon began",
                size::count(channel.dropped as usize, "message")
            ),
            "strake events says which happened; mend the channel (strake alert status)".to_owned(),
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::api::AlertChannelJson;

    use super::*;

    fn checks(alerts: &AlertsJson) -> Vec<String> {
        let found = check(Some(alerts)).into_iter();
        found.map(|finding| finding.check).collect()
    }

    #[test]
    fn alerts_that_nobody_gets_are_found_with_the_reason() {
        assert_eq!(check(None), [], "it is not known");
        let mut alerts = AlertsJson::default();
        assert_eq!(checks(&alerts), ["alert-channel"]);
        alerts.channels.push(AlertChannelJson {
            name: "ops".to_owned(),
            ..AlertChannelJson::default()
        });
        assert_eq!(checks(&alerts), [""; 0]);
        let channel = &mut alerts.channels[0];
        channel.failing = true;
        channel.failing_since = Some("2026-01-31T12:00:00Z".to_owned());
        channel.last_error = Some("451 later".to_owned());
        channel.dropped = 2;
        alerts.unwritten_files = 1;
        assert_eq!(
            checks(&alerts),
            ["alert-failing", "alert-dropped", "alert-spool"]
        );
        let found = &check(Some(&alerts))[0].found;
        assert!(
            found.contains("2026-01-31") && found.contains("451 later"),
            "{found}"
        );
    }
}

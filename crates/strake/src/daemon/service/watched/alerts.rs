//! What alerts ask of the arrays, and what is asked of alerts.
//!
//! Invariant: looking waits for no change. Deliberately absent: what is told (`alerts`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::{AlertTestRequest, AlertTestsJson, AlertsJson};
use crate::common::errors::Failure;
use crate::daemon::alerts::board::Board;
use crate::daemon::alerts::message::Seen;
use crate::daemon::array::running::Running;
use crate::daemon::array::seats::Seat;
use crate::daemon::service::Service;

/// What a drive calls itself.
fn called(seat: &Seat) -> Option<String> {
    let parts = [("model", &seat.model), ("serial", &seat.serial)];
    let parts = parts.map(|(what, value)| value.as_ref().map(|value| format!("{what} {value}")));
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

impl Service {
    /// The channels of alerts.
    pub(crate) fn alerts(&self) -> &Arc<Board> {
        &self.alerts
    }

    /// The arrays, as alerts tell of them; those that are not in service as of the last look at all
    /// drives.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        let running = self.ask_all(Running::json);
        let missing = self.told_missing().into_iter().map(|one| one.json);
        let others = self.not_running().into_iter().chain(missing);
        let others = others.map(|array| Seen {
            array,
            ..Seen::default()
        });
        let seen = running.into_iter().map(|(running, answer)| {
            let array = self.placed(answer.unwrap_or_else(|_| self.unanswered(&running)));
            let seats = self.dir.seats(running.uuid);
            let slots = array.members.iter().filter_map(|member| member.slot);
            let drives = slots.filter_map(|slot| Some((slot, called(seats.seat(slot)?)?)));
            let drives: BTreeMap<u8, String> = drives.collect();
            Seen { array, drives }
        });
        seen.chain(others).collect()
    }

    /// What the channels did.
    pub(crate) fn alert_status(&self) -> AlertsJson {
        AlertsJson {
            channels: self.alerts.channels(),
            unwritten_files: self.alerts.unwritten(),
            configuration_not_used: self.alerts.configuration_not_used(),
        }
    }

    /// Sends a test by a channel, or by all.
    pub(crate) fn alert_test(&self, asked: &AlertTestRequest) -> Result<AlertTestsJson, Failure> {
        let channels = self.alerts.test(asked.channel.as_deref(), asked.dry_run)?;
        Ok(AlertTestsJson { channels })
    }
}

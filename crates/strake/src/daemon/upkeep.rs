//! What an administrator asks of an array now and then, beside its service.
//!
//! Invariant: as in `service`: one change at a time, verbs are idempotent and say whether they
//! changed something. Deliberately absent: what an array does by itself.

use strake_engine::event::Command;

use crate::api::types::{OutcomeJson, ResetRequest};
use crate::daemon::running::Running;
use crate::daemon::service::{Service, outcome};
use crate::errors::Failure;

impl Service {
    /// Counts errors and mismatches from zero again, of one member or of all.
    pub(crate) fn reset(&self, name: &str, request: &ResetRequest) -> Result<OutcomeJson, Failure> {
        let _admin = self.change()?;
        let running = self.running(name)?;
        let (meant, whose) = match &request.member {
            None => (None, "all members".to_owned()),
            Some(member) => {
                let reference = Running::exact_reference(&running.member(member)?, member)?;
                (Some(reference), member.clone())
            }
        };
        let changed = running.command(Command::ResetCounters(meant))?;
        let what = format!("errors and mismatches of {whose} are counted from zero again");
        Ok(outcome(name, changed, &what))
    }
}

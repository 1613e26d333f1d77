//! `strake alert`: what became of alerts, and tests of their channels.
//!
//! Invariants: those of the command line (`cli`); a daemon sends, so one is needed. Deliberately
//! absent: channels (they are in the configuration of the daemon).

use crate::api::{AlertTestRequest, AlertTestsJson, AlertsJson};
use crate::cli::args::alert::AlertCommand;
use crate::cli::client::Client;
use crate::cli::output::{Table, or_dash};
use crate::cli::{Context, DONE, Ended};
use crate::common::errors::{Exit, Failure};
use crate::common::shown;

/// Carries out a command.
pub(crate) fn run(context: &Context, command: &AlertCommand) -> Ended {
    match command {
        AlertCommand::Status => status(context),
        AlertCommand::Test { channel, dry_run } => test(context, channel.as_ref(), *dry_run),
    }
}

fn status(context: &Context) -> Ended {
    let alerts: AlertsJson = Client::need(&context.dir)?.get("/v1/alerts")?;
    context.say(&alerts, text);
    Ok(
        match alerts.channels.iter().any(|channel| channel.failing) {
            true => Exit::Failed as u8,
            false => DONE,
        },
    )
}

fn text(alerts: &AlertsJson) -> String {
    let mut text = match &alerts.configuration_not_used {
        Some(why) => format!("{}\n", shown(why, ' ')),
        None => String::new(),
    };
    if alerts.channels.is_empty() {
        text.push_str(match alerts.configuration_not_used {
            Some(_) => "no channels\n",
            None => "no channels: the configuration of the daemon has no [[alerts]]\n",
        });
        return text;
    }
    let mut table = Table::new(&[
        "CHANNEL",
        "WAY",
        "TO",
        "SEVERITY",
        "STATE",
        "DELIVERED",
        "QUEUED",
        "DROPPED",
        "LAST SUCCESS",
    ]);
    for channel in &alerts.channels {
        let state = match (channel.failing, &channel.last_success) {
            (true, _) => "failing",
            (false, Some(_)) => "ok",
            (false, None) => "unused",
        };
        table.row(vec![
            channel.name.clone(),
            channel.way.clone(),
            channel.to.clone(),
            channel.severity.clone(),
            state.to_owned(),
            channel.delivered.to_string(),
            channel.queued.to_string(),
            channel.dropped.to_string(),
            or_dash(channel.last_success.as_ref()),
        ]);
    }
    text.push_str(&table.text(0));
    for channel in &alerts.channels {
        if let (Some(error), Some(at)) = (&channel.last_error, &channel.last_error_at) {
            let error = shown(error, ' ');
            text.push_str(&format!("{}: last error at {at}: {error}\n", channel.name));
        }
    }
    if alerts.unwritten_files > 0 {
        text.push_str(&format!(
            "{} files of the spool could not be written: a restart of the daemon would lose what \
             they hold\n",
            alerts.unwritten_files
        ));
    }
    text
}

fn test(context: &Context, channel: Option<&String>, dry_run: bool) -> Ended {
    let request = AlertTestRequest {
        channel: channel.cloned(),
        dry_run,
    };
    let client = Client::need(&context.dir)?;
    let tests: Result<AlertTestsJson, Failure> = client.post("/v1/alerts/test", &request);
    let tests = tests?;
    context.say(&tests, |tests| {
        let each = tests.channels.iter().map(|test| {
            let what = match (&test.error, test.dry_run) {
                (_, true) => "would send a test".to_owned(),
                (None, false) => "delivered".to_owned(),
                (Some(error), false) => format!("not delivered: {}", shown(error, ' ')),
            };
            format!("{}: {what}\n", test.channel)
        });
        each.collect()
    });
    Ok(
        match tests.channels.iter().any(|test| test.error.is_some()) {
            true => Exit::Failed as u8,
            false => DONE,
        },
    )
}

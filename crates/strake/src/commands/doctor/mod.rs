//! `strake doctor`: what is not as it should be on this machine, and what to do about it.
//!
//! Order: facts (the daemon's answers, /sys, /proc, the drives) → checks, which are functions of
//! facts → findings, the worst first.
//!
//! Invariants: nothing is changed, and nothing is waited for without a bound; a fact that is not
//! known makes no finding, and is listed as not checked where a user could help. Deliberately
//! absent: drives of no array.

mod alerts;
mod arrays;
mod backups;
mod folders;
mod health;
mod host;
mod members;

use std::path::PathBuf;
use std::time::Duration;

use crate::api::{AlertsJson, ArrayJson, DoctorJson, FindingJson, MemberJson, PoolJson};
use crate::api::{SettingsJson, UncheckedJson, VersionJson};
use crate::cli::client::Client;
use crate::cli::paint::{Mood, Paint};
use crate::cli::{Context, DONE, Ended, print, url};
use crate::commands::{self, offline};
use crate::common::errors::{Exit, Failure};
use crate::common::events::Severity;
use crate::common::{shown, size};
use crate::drives::machine;
use crate::drives::machine::answering;
use crate::drives::machine::health::Health;
use crate::drives::machine::looks::Looks;
use crate::drives::machine::traits;
use crate::view::stats::StatsJson;

/// How long the daemon may take for each answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the arrays are.
#[derive(Debug, Default)]
struct Facts {
    arrays: Vec<ArrayJson>,
    /// By the uuid of the array.
    settings: Vec<(String, SettingsJson)>,
    stats: Vec<StatsJson>,
    pools: Vec<PoolJson>,
    /// `None` where no daemon answers.
    alerts: Option<AlertsJson>,
}

/// A member and where it is.
#[derive(Clone, Debug)]
struct Seat {
    array: String,
    strip_bytes: u64,
    slot: Option<u8>,
    device: String,
    traits: traits::Traits,
    /// Of an NVMe drive that answers.
    health: Option<Health>,
}

pub(crate) fn run(context: &Context) -> Ended {
    let client = Client::find(&context.dir)?;
    let mut report = DoctorJson {
        daemon: client.is_some(),
        ..DoctorJson::default()
    };
    let (facts, daemon) = match &client {
        Some(client) => {
            let version: VersionJson = client.get_within("/v1/version", PATIENCE)?;
            (asked(client, &mut report)?, Some(version.pid))
        }
        None => {
            offline::say_no_daemon(context);
            report.unchecked.push(UncheckedJson {
                check: "daemon".to_owned(),
                device: None,
                why: format!(
                    "no daemon listens in {}: settings, counts, and limits of its process are not \
                     known",
                    context.dir.path().display()
                ),
            });
            let arrays = offline::all(context);
            let facts = Facts {
                arrays,
                ..Facts::default()
            };
            (facts, None)
        }
    };
    let seats = seats(&facts.arrays, &mut report);
    report.findings.extend(arrays::check(&facts));
    report.unchecked.extend(arrays::unchecked(&facts));
    report.findings.extend(alerts::check(facts.alerts.as_ref()));
    report.findings.extend(members::check(&seats));
    report.findings.extend(health::check(&seats));
    host::check(
        &host::Host::here(daemon),
        &facts.arrays,
        &seats,
        &mut report,
    );
    let old = backups::check(&context.dir, &facts.arrays);
    report.findings.extend(old);
    folders::check(&context.dir, &mut report);
    report
        .findings
        .sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    match context.json {
        true => context.say(&report, |_| String::new()),
        false => {
            print(text(&report, Paint::of_stdout()).as_bytes());
        }
    }
    let bad = report.findings.iter().any(|f| f.severity > Severity::Info);
    Ok(if bad { Exit::Found as u8 } else { DONE })
}

/// What the daemon knows.
fn asked(client: &Client, report: &mut DoctorJson) -> Result<Facts, Failure> {
    let arrays: Vec<ArrayJson> = client.get_within("/v1/arrays", PATIENCE)?;
    let unread = commands::unread(client, PATIENCE)?;
    report
        .unchecked
        .extend(unread.into_iter().map(|device| UncheckedJson {
            check: "members".to_owned(),
            device: Some(device),
            why: "it gives no answer or cannot be read, so what it carries is not known".to_owned(),
        }));
    let mut settings = Vec::new();
    for array in arrays.iter().filter(|array| array.state != "stopped") {
        let path = url(&array.uuid, "settings")?;
        match client.get_within(&path, PATIENCE) {
            Ok(one) => settings.push((array.uuid.clone(), one)),
            Err(failure) => report.unchecked.push(UncheckedJson {
                check: "settings".to_owned(),
                device: None,
                why: format!("{}: {}", array.name, failure.found),
            }),
        }
    }
    Ok(Facts {
        settings,
        stats: client.get_within("/v1/stats", PATIENCE)?,
        pools: client.get_within("/v1/pools", PATIENCE)?,
        alerts: Some(client.get_within("/v1/alerts", PATIENCE)?),
        arrays,
    })
}

/// Looks at the drives of all members.
fn seats(arrays: &[ArrayJson], report: &mut DoctorJson) -> Vec<Seat> {
    let members = |array: &ArrayJson| -> Vec<MemberJson> {
        array.members.iter().chain(&array.spares).cloned().collect()
    };
    let devices: Vec<PathBuf> = arrays
        .iter()
        .flat_map(members)
        .filter_map(|member| member.device.map(PathBuf::from))
        .collect();
    let devices = answering::of(&devices).found;
    let looks = Looks::default();
    let looked = looks.each(&devices, |path| {
        (path.to_owned(), traits::of(path), machine::health::of(path))
    });
    let mut seats = Vec::new();
    for array in arrays {
        for member in members(array) {
            let Some(device) = member.device else {
                continue;
            };
            let found = looked
                .found
                .iter()
                .find(|(path, ..)| path.as_os_str() == device.as_str());
            let unchecked = |why: &str| UncheckedJson {
                check: "drive".to_owned(),
                device: Some(device.clone()),
                why: why.to_owned(),
            };
            match found {
                Some((_, Some(traits), health)) => {
                    let is_nvme = traits.name.starts_with("nvme");
                    if is_nvme && traits.has_volatile_cache.is_none() {
                        let why = "it does not answer Identify, which needs CAP_SYS_ADMIN";
                        report.unchecked.push(unchecked(why));
                    } else if let Some(why) = health.as_ref().err().filter(|_| is_nvme) {
                        let why = format!("its health is not known: {why}");
                        report.unchecked.push(unchecked(&why));
                    }
                    seats.push(Seat {
                        array: array.name.clone(),
                        strip_bytes: array.strip_bytes,
                        slot: member.slot,
                        device,
                        traits: traits.clone(),
                        health: health.as_ref().ok().cloned(),
                    });
                }
                // A file.
                Some((_, None, _)) => {}
                None => report
                    .unchecked
                    .push(unchecked("it is not there, or does not answer within 10 s")),
            }
        }
    }
    seats
}

fn text(report: &DoctorJson, paint: Paint) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        let slot = finding.slot.map(|slot| format!("slot {slot}"));
        let place = [finding.array.clone(), slot, finding.device.clone()];
        let place = place.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let place = match place.is_empty() {
            true => String::new(),
            false => shown(&place, ' ') + ": ",
        };
        let mood = Mood::of_severity(finding.severity);
        let severity = paint.text(mood, finding.severity.as_str());
        text.push_str(&format!(
            "{severity}: {place}{} [{}]\n  to do: {}\n",
            shown(&finding.found, ' '),
            finding.check,
            shown(&finding.cure, ' ')
        ));
    }
    for unchecked in &report.unchecked {
        let device = unchecked
            .device
            .as_ref()
            .map(|d| format!("{}: ", shown(d, ' ')));
        text.push_str(&format!(
            "not checked: {}{} [{}]\n",
            device.unwrap_or_default(),
            shown(&unchecked.why, ' '),
            unchecked.check
        ));
    }
    let count = |severity| {
        report
            .findings
            .iter()
            .filter(|f| f.severity == severity)
            .count()
    };
    let counts = [Severity::Critical, Severity::Warning, Severity::Info];
    let [critical, warning, info] = counts.map(count);
    text.push_str(&match report.findings.len() + report.unchecked.len() {
        0 => "nothing found\n".to_owned(),
        _ => format!(
            "{critical} critical, {}, {info} info; {} not made\n",
            size::count(warning, "warning"),
            size::count(report.unchecked.len(), "check")
        ),
    });
    text
}

/// A finding about a member.
fn about(seat: &Seat, check: &str, severity: Severity, found: String, cure: String) -> FindingJson {
    FindingJson {
        check: check.to_owned(),
        severity,
        array: Some(seat.array.clone()),
        slot: seat.slot,
        device: Some(seat.device.clone()),
        found,
        cure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_what_was_found_what_to_do_and_what_was_not_checked() {
        let mut report = DoctorJson::default();
        assert_eq!(text(&report, Paint::none()), "nothing found\n");
        report.findings.push(FindingJson {
            check: "spare".to_owned(),
            severity: Severity::Warning,
            array: Some("data".to_owned()),
            slot: Some(2),
            device: Some("/dev/a\u{1b}b".to_owned()),
            found: "it is so".to_owned(),
            cure: "do that".to_owned(),
        });
        report.unchecked.push(UncheckedJson {
            check: "clock".to_owned(),
            device: None,
            why: "nobody says".to_owned(),
        });
        assert_eq!(
            text(&report, Paint::none()),
            "warning: data slot 2 /dev/a\\u{1b}b: it is so [spare]\n  to do: do that\n\
             not checked: nobody says [clock]\n\
             0 critical, 1 warning, 0 info; 1 check not made\n"
        );
        assert!(text(&report, Paint::always()).starts_with("\u{1b}[33mwarning\u{1b}[0m: data"));
    }
}

//! `strake status`: one line an array, for scripts and login banners.
//!
//! Invariants: the daemon is waited for only [`PATIENCE`], so that no login hangs with it; a line
//! is one line, whatever names hold. Deliberately absent: what a line has no room for (`show`).

use std::time::Duration;

use crate::api::{ArrayJson, StatusJson};
use crate::cli::client::Client;
use crate::cli::output::{self, Table};
use crate::cli::paint::{Mood, Paint};
use crate::cli::stopped;
use crate::cli::{Context, Ended, print, url};
use crate::commands::{self, offline, say_unread, shown_exit, worst_exit};
use crate::common::errors::Exit;
use crate::common::size;

/// How long the daemon may take.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn run(context: &Context, name: Option<&str>) -> Ended {
    let client = Client::find(&context.dir)?;
    let here = client.is_none();
    let mut unread = Vec::new();
    let arrays: Vec<ArrayJson> = match (client, name) {
        (Some(client), Some(name)) => vec![client.get_within(&url(name, "")?, PATIENCE)?],
        (Some(client), None) => {
            let arrays = client.get_within("/v1/arrays", PATIENCE)?;
            unread = commands::unread(&client, PATIENCE)?;
            arrays
        }
        (None, Some(name)) => vec![offline::one(context, name)?],
        (None, None) => offline::all(context),
    };
    if here {
        offline::say_no_daemon(context);
    }
    say_unread(context, &unread);
    let lines: Vec<StatusJson> = arrays.iter().map(line).collect();
    match context.json {
        true => context.say(&lines, |_| String::new()),
        false => {
            print(text(&lines, Paint::of_stdout()).as_bytes());
        }
    }
    Ok(match name {
        Some(_) => lines[0].exit,
        None => worst_exit(&arrays),
    })
}

fn line(array: &ArrayJson) -> StatusJson {
    let in_sync = |m: &&crate::api::MemberJson| m.state == "in_sync";
    StatusJson {
        name: array.name.clone(),
        uuid: array.uuid.clone(),
        state: array.state.clone(),
        level: array.level.clone(),
        not_found: array.not_found,
        may_be_on: array.may_be_on.clone(),
        size_bytes: array.size_bytes,
        members: array.members.len() as u64,
        in_sync: array.members.iter().filter(in_sync).count() as u64,
        spares: array.spares.len() as u64,
        jobs: array.jobs.clone(),
        remarks: remarks(array),
        exit: shown_exit(array),
    }
}

/// What is wrong or under way.
fn remarks(array: &ArrayJson) -> Vec<String> {
    let mut all = Vec::new();
    if array.not_found {
        all.push("none of its members is found".to_owned());
        if !array.may_be_on.is_empty() {
            all.push(format!("may be on {}", stopped::unread(&array.may_be_on)));
        }
    } else if let Some(date) = &array.destroyed {
        all.push(format!("destroyed here on {date}"));
    } else if shown_exit(array) == Exit::TooFew as u8 {
        all.push(stopped::too_few(array).to_owned());
    }
    for failing in &array.alerts_failing {
        all.push(format!("alerts by {} are not delivered", failing.channel));
    }
    if array.state == "unknown" {
        all.push("another process holds members".to_owned());
    }
    if array.state == "unresponsive" {
        all.push("its threads do not answer".to_owned());
    }
    if let Some((slots, _)) = output::without_space(array) {
        all.push(format!("writes wait for space on slots {slots}"));
    }
    for member in &array.members {
        let Some(slot) = member.slot else { continue };
        if member.state != "in_sync" {
            let was = member.was.as_ref();
            let was = was.map_or_else(String::new, |was| format!(" (was {})", was.device));
            all.push(format!("slot {slot} {}{was}", member.state));
        }
        if let Some(cause) = &member.doubted {
            all.push(format!("slot {slot} is doubted ({cause})"));
        }
        if member.slow {
            all.push(format!("slot {slot} is slow"));
        }
    }
    all.extend(array.jobs.iter().map(|job| {
        let left = job.eta_s.map(|s| format!(", {} left", size::seconds(s)));
        output::job_short(job) + &left.unwrap_or_default()
    }));
    if array.unreadable_bytes > 0 {
        all.push(format!(
            "unreadable {}",
            size::bytes(array.unreadable_bytes)
        ));
    }
    if array.undecided_bytes > 0 {
        all.push(format!("undecided {}", size::bytes(array.undecided_bytes)));
    }
    if !array.set_aside.is_empty() {
        let devices = size::count(array.set_aside.len(), "device");
        all.push(format!("{devices} set aside"));
    }
    all
}

fn text(lines: &[StatusJson], paint: Paint) -> String {
    if lines.is_empty() {
        return "no arrays\n".to_owned();
    }
    let mut table = Table::without_head();
    for line in lines {
        let mood = match line.state.as_str() {
            _ if line.exit == Exit::TooFew as u8 => Mood::Worst,
            "optimal" if !line.remarks.is_empty() && line.jobs.is_empty() => Mood::Bad,
            state => Mood::of_state(state),
        };
        let cells = vec![
            line.name.clone(),
            match line.not_found {
                true => stopped::lost(&line.may_be_on).to_owned(),
                false => line.state.clone(),
            },
            match line.not_found {
                true => "-".to_owned(),
                false => format!("level {}", line.level),
            },
            format!("{}/{} in sync", line.in_sync, line.members),
            match line.not_found {
                true => "-".to_owned(),
                false => size::bytes(line.size_bytes),
            },
            line.remarks.join("; "),
        ];
        table.painted(cells, 1, mood);
    }
    table.text_in(0, paint)
}

#[cfg(test)]
mod tests {
    use crate::api::{MemberJson, WasJson};

    use super::*;

    #[test]
    fn a_line_says_what_is_wrong_and_stays_a_line() {
        let member = |slot, state: &str| MemberJson {
            slot: Some(slot),
            state: state.to_owned(),
            ..MemberJson::default()
        };
        let mut lost = member(1, "missing");
        lost.was = Some(WasJson {
            device: "/dev/a\nb".to_owned(),
            ..WasJson::default()
        });
        let mut slow = member(2, "in_sync");
        slow.slow = true;
        let mut doubted = member(3, "in_sync");
        doubted.doubted = Some("older_image".to_owned());
        let array = ArrayJson {
            name: "data".to_owned(),
            state: "degraded".to_owned(),
            level: "5".to_owned(),
            size_bytes: 1 << 30,
            unreadable_bytes: 4096,
            members: vec![member(0, "in_sync"), lost, slow, doubted],
            ..ArrayJson::default()
        };
        let lines = [line(&array)];
        assert_eq!(lines[0].exit, Exit::Degraded as u8);
        let plain = text(&lines, Paint::none());
        assert_eq!(
            plain,
            "data  degraded  level 5  3/4 in sync  1 GiB  slot 1 missing (was /dev/a\\nb); \
             slot 2 is slow; slot 3 is doubted (older_image); unreadable 4 KiB\n"
        );
        let painted = text(&lines, Paint::always());
        assert!(
            painted.contains("\u{1b}[33mdegraded\u{1b}[0m  level"),
            "{painted:?}"
        );
    }
}

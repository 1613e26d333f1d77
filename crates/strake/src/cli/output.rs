//! What people see: tables and sentences. With `--json` nothing of this is used.
//!
//! Invariant: standard output carries the answer and nothing else; progress and errors go to
//! standard error.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::api::*;
use crate::cli::paint::{Mood, Paint};
use crate::cli::{latency, stopped};
use crate::common::errors::errno_text;
use crate::common::{shown, size};

/// Columns, as wide as they must be.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// Which row has which of its cells in colour.
    moods: Vec<(usize, usize, Mood)>,
}

impl Table {
    /// A table with a head.
    pub(crate) fn new(head: &[&str]) -> Table {
        Table {
            rows: vec![head.iter().map(|h| (*h).to_owned()).collect()],
            moods: Vec::new(),
        }
    }
    /// One without.
    pub(crate) fn without_head() -> Table {
        Table::default()
    }
    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        // A line of a table is one line.
        let cells = cells.iter().map(|cell| shown(cell, ' '));
        self.rows.push(cells.collect());
    }
    /// Adds a row with one of its cells in colour.
    pub(crate) fn painted(&mut self, cells: Vec<String>, cell: usize, mood: Mood) {
        self.moods.push((self.rows.len(), cell, mood));
        self.row(cells);
    }
    /// The lines, indented.
    pub(crate) fn text(&self, indent: usize) -> String {
        self.text_in(indent, Paint::none())
    }
    /// The same in colour, where there is colour.
    pub(crate) fn text_in(&self, indent: usize, paint: Paint) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| {
            self.rows
                .iter()
                .filter_map(|r| r.get(c))
                .map(|t| t.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for (r, row) in self.rows.iter().enumerate() {
            let mut line = " ".repeat(indent);
            for (c, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let mood = self
                    .moods
                    .iter()
                    .find(|(row, cell, _)| (*row, *cell) == (r, c));
                line.push_str(&paint.text(mood.map_or(Mood::Plain, |(.., mood)| *mood), cell));
                line.push_str(&" ".repeat(width + 2 - cell.chars().count()));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

pub(crate) fn or_dash(text: Option<&String>) -> String {
    text.map_or_else(|| "-".to_owned(), Clone::clone)
}

pub(crate) fn slot_text(slot: Option<u8>) -> String {
    slot.map_or_else(|| "-".to_owned(), |s| s.to_string())
}

/// How good the state of an array is.
fn mood(array: &ArrayJson) -> Mood {
    match array.startable {
        Some(false) if array.destroyed.is_none() => Mood::Worst,
        _ => Mood::of_state(&array.state),
    }
}

/// What is not known of a missing array.
fn unless_missing(array: &ArrayJson, text: String) -> String {
    match array.not_found {
        true => "-".to_owned(),
        false => text,
    }
}

/// Channels of alerts that do not deliver, a line each and each once.
fn alerts_failing<'a>(arrays: impl Iterator<Item = &'a ArrayJson>, paint: Paint) -> String {
    let failing = arrays.flat_map(|array| &array.alerts_failing);
    let failing: BTreeMap<&str, &AlertFailingJson> =
        failing.map(|one| (one.channel.as_str(), one)).collect();
    let line = |one: &AlertFailingJson| {
        let since = one.since.as_ref();
        let since = since.map_or_else(String::new, |since| format!(" since {since}"));
        let error = one.error.as_deref().unwrap_or("no error is known");
        let head = paint.text(Mood::Bad, "alerts");
        format!(
            "{head} by {} are not delivered{since}: {} (strake alert status)\n",
            shown(&one.channel, ' '),
            shown(error, ' ')
        )
    };
    failing.into_values().map(line).collect()
}

/// All arrays, one line each.
pub(crate) fn arrays(all: &[ArrayJson], paint: Paint) -> String {
    if all.is_empty() {
        return "no arrays\n".to_owned();
    }
    let mut table = Table::new(&[
        "NAME", "LEVEL", "STATE", "SIZE", "MEMBERS", "DEVICE", "JOBS",
    ]);
    for array in all {
        let in_sync = array
            .members
            .iter()
            .filter(|m| m.state == "in_sync")
            .count();
        let state = match (array.not_found, &array.destroyed) {
            (true, _) => stopped::lost(&array.may_be_on).to_owned(),
            (false, Some(_)) => "destroyed".to_owned(),
            (false, None) => array.state.clone(),
        };
        let cells = vec![
            array.name.clone(),
            unless_missing(array, array.level.clone()),
            state,
            unless_missing(array, size::bytes(array.size_bytes)),
            format!("{in_sync}/{}", array.members.len()),
            or_dash(array.device.as_ref()),
            array
                .jobs
                .iter()
                .map(job_short)
                .collect::<Vec<_>>()
                .join(", "),
        ];
        table.painted(cells, 2, mood(array));
    }
    let mut text = table.text_in(0, paint);
    for array in all.iter().filter(|array| array.not_found) {
        text.push_str(&shown(&missing(array), '\n'));
    }
    for array in all {
        text.push_str(&shown(&destroyed(array), '\n'));
    }
    text + &alerts_failing(all.iter(), paint)
}

/// What a user can do about an array of which no member is found.
fn missing(array: &ArrayJson) -> String {
    let name = &array.name;
    let found = format!("{name}: none of its members is found");
    match array.may_be_on.as_slice() {
        [] => format!("{found}; strake forget {name}, if they are not to come back\n"),
        devices => format!("{found}; they may be on {}\n", stopped::unread(devices)),
    }
}

/// What a user can do about what is left of a destroyed array; nothing of others.
fn destroyed(array: &ArrayJson) -> String {
    match &array.destroyed {
        None => String::new(),
        Some(date) => format!(
            "{}: destroyed here on {date}: {}\n",
            array.name,
            destroyed_cure(&array.uuid, array.startable != Some(false))
        ),
    }
}

/// `startable`: enough members are there.
pub(crate) fn destroyed_cure(uuid: &str, startable: bool) -> String {
    let first = match startable {
        true => "",
        false => "with the members that are missing, ",
    };
    format!(
        "strake destroy {uuid} wipes what is left; {first}strake start --force {uuid} takes it back"
    )
}

/// How an array's drives wear.
pub(crate) fn wear(wear: &WearJson) -> String {
    fn or_dash<T: std::fmt::Display>(value: Option<T>) -> String {
        value.map_or_else(|| "-".to_owned(), |value| value.to_string())
    }
    let mut table = Table::new(&[
        "SLOT", "DEVICE", "MODEL", "USED", "SPARE", "TEMP", "ERRORS", "HOST", "MEDIA", "WAF",
        "SINCE", "HOST", "WAF",
    ]);
    let percent = |value: Option<u8>| or_dash(value.map(|percent| format!("{percent} %")));
    let times = |value: Option<f64>| or_dash(value.map(|times| format!("{times:.2}")));
    let mut told = String::new();
    for m in &wear.members {
        table.row(vec![
            slot_text(m.slot),
            or_dash(m.device.as_ref()),
            or_dash(m.model.as_ref().or(m.reason.as_ref())),
            percent(m.percentage_used),
            percent(m.available_spare_percent),
            or_dash(m.temperature_c.map(|celsius| format!("{celsius} °C"))),
            or_dash(m.media_errors),
            or_dash(m.host_written_bytes.map(size::bytes)),
            or_dash(m.media_written_bytes.map(size::bytes)),
            times(m.write_amplification),
            or_dash(m.since.as_ref()),
            or_dash(m.host_written_bytes_since.map(size::bytes)),
            times(m.write_amplification_since),
        ]);
        for warning in &m.warnings {
            told.push_str(&format!(
                "  {} warns: {warning}\n",
                or_dash(m.device.as_ref())
            ));
        }
    }
    format!("{}\n{}{told}", wear.name, table.text(2))
}

fn percent(done: u64, total: u64) -> u64 {
    if total == 0 {
        100
    } else {
        (u128::from(done) * 100 / u128::from(total)) as u64
    }
}

pub(crate) fn job_short(job: &JobJson) -> String {
    let paused = match (job.paused, job.paused_by.as_deref()) {
        (false, _) => String::new(),
        (true, None) => " paused".to_owned(),
        (true, Some(by)) => format!(" paused ({})", paused_by(by)),
    };
    let partial = if job.partial { "partial " } else { "" };
    format!(
        "{partial}{} {} %{paused}",
        job.kind,
        percent(job.done_bytes, job.total_bytes)
    )
}

/// Why a job is paused, in a sentence.
pub(crate) fn paused_by(word: &str) -> String {
    match word {
        "asked" => "a user stopped it",
        "array_failed" => "the array has failed",
        "members_missing" => "a slot has no member in sync",
        "resync" => "it waits for the resync",
        "restripe" => "it waits for the data that moves",
        "membership" => "the members changed",
        "unreadable" => "blocks cannot be read",
        "unreadable_list_full" => "the list of unreadable blocks is full",
        "inconsistent" => "a stripe is inconsistent",
        "member_doubted" => "a member that is needed was emptied or is outdated",
        other => other,
    }
    .to_owned()
}

/// What a scrub found, in a sentence.
pub(crate) fn found(scrub: &ScrubJson) -> String {
    format!(
        "{} inconsistent, wrong member known in {}, {} repaired; {} unreadable",
        size::count(scrub.inconsistent_stripes, "stripe"),
        scrub.located_stripes,
        scrub.repaired_stripes,
        scrub.unreadable_stripes
    )
}

fn job_long(job: &JobJson) -> String {
    let slot = job
        .slot
        .map_or_else(String::new, |s| format!(" of slot {s}"));
    let eta = job
        .eta_s
        .map_or_else(String::new, |s| format!(", {} left", size::seconds(s)));
    let p99 = job
        .foreground_p99_us
        .map_or_else(String::new, |us| format!(", requests' p99 {us} us"));
    let held = match job.held_back_by.as_str() {
        "priority" => ", held back by its priority",
        "latency" => ", held back by the latency target",
        _ => "",
    };
    format!(
        "{}{slot}: {} of {}, {}{eta}{held}{p99}",
        job_short(job),
        size::bytes(job.done_bytes),
        size::bytes(job.total_bytes),
        size::rate(job.rate_bytes_per_s)
    )
}

/// The first of these places, and how many more there are.
fn places(ranges: &[RangeJson]) -> String {
    const SHOWN: usize = 4;
    let place = |r: &RangeJson| format!("{}+{}", r.offset_bytes, r.len_bytes);
    let mut places: Vec<String> = ranges.iter().take(SHOWN).map(place).collect();
    if ranges.len() > SHOWN {
        places.push(format!("{} more", ranges.len() - SHOWN));
    }
    places.join(", ")
}

/// What is lost, if anything is: how much, and the first places.
fn unreadable(a: &ArrayJson) -> String {
    if a.unreadable.is_empty() {
        return String::new();
    }
    format!(
        "  unreadable  {} until written again, at byte {}\n",
        size::bytes(a.unreadable_bytes),
        places(&a.unreadable)
    )
}

/// What no scrub repairs, if there is any.
fn undecided(a: &ArrayJson) -> String {
    if a.undecided_regions == 0 {
        return String::new();
    }
    format!(
        "  undecided   {} ({}) with strips that do not agree: nothing is repaired there, at \
         byte {}\n",
        size::count(a.undecided_regions as usize, "region"),
        size::bytes(a.undecided_bytes),
        places(&a.undecided)
    )
}

/// How far data is that moves to another shape.
fn moving(m: &MovingJson) -> String {
    let stopped = match m.stopped {
        true => ", stopped until restripe --continue",
        false => "",
    };
    let mut shapes = Vec::new();
    if m.from_columns != m.to_columns {
        let (from, to) = (m.from_columns, m.to_columns);
        shapes.push(format!("from {from} to {to} data columns"));
    }
    let groups = |size: Option<u8>| match size {
        Some(size) => format!("groups of {size}"),
        None => "one group".to_owned(),
    };
    if m.from_group_size != m.to_group_size {
        let [from, to] = [m.from_group_size, m.to_group_size].map(groups);
        shapes.push(format!("from {from} to {to}"));
    }
    if m.from_fixed_parities < m.to_fixed_parities {
        shapes.push(match m.to_fixed_parities {
            1 => "to where a parity can go".to_owned(),
            many => format!("to where {many} parities can go"),
        });
    } else if m.from_fixed_parities != m.to_fixed_parities {
        shapes.push("to parities that rotate".to_owned());
    }
    if m.from_strip_bytes != m.to_strip_bytes {
        let [from, to] = [m.from_strip_bytes, m.to_strip_bytes].map(size::bytes);
        shapes.push(format!("from strips of {from} to {to}"));
    }
    let (moved, total) = (size::bytes(m.moved_bytes), size::bytes(m.total_bytes));
    format!("{moved} of {total} {}{stopped}", shapes.join(", "))
}

/// What serves it, and how.
fn export(e: &ExportJson) -> String {
    let mut words = vec![e.kind.clone()];
    words.extend(e.mode.clone());
    if let (Some(queues), Some(depth)) = (e.queues, e.depth) {
        words.push(format!("queues {queues} of {depth} requests"));
    }
    let mut text = format!("  export      {}\n", words.join(", "));
    if let Some(features) = &e.kernel_features {
        text.push_str(&format!("  ublk has    {}\n", features.join(" ")));
    }
    text
}

fn placement(p: &PlacedJson) -> String {
    let mut words = vec![format!("threads {}", p.shards)];
    words.extend(p.cpus.as_ref().map(|cpus| format!("CPUs {cpus}")));
    let nodes: Vec<String> = p.numa_nodes.iter().map(u32::to_string).collect();
    if !nodes.is_empty() {
        words.push(format!("drives on NUMA node {}", nodes.join(" and ")));
    }
    words.push(format!("buffers {}", size::bytes(p.memory_bytes)));
    words.extend(p.requests.map(|most| format!("at most {most} requests")));
    format!("  placement   {}\n", words.join(", "))
}

/// What an array is, without its members.
fn summary(a: &ArrayJson, paint: Paint) -> String {
    let groups = a
        .group_size
        .map_or_else(String::new, |g| format!(" in groups of {g}"));
    let fixed = match a.fixed_parities {
        0 => String::new(),
        1 => ", the last for an added parity alone".to_owned(),
        n => format!(", the last {n} for added parities alone"),
    };
    let stopped = format!("stopped, {}", stopped::too_few(a));
    let state = match (a.state.as_str(), a.startable) {
        ("stopped", _) if a.destroyed.is_some() => "stopped, destroyed",
        ("stopped", Some(false)) => &stopped,
        ("unknown", _) => "unknown: another process holds members",
        ("unresponsive", _) => {
            "unresponsive: its threads do not answer; below, what its drives say"
        }
        ("stopping", _) => "stopping; below, what its drives say",
        (state, _) => state,
    };
    let head = format!("{}  {}\n", shown(&a.name, ' '), paint.text(mood(a), state));
    let text = format!(
        "  level       {} of {}{groups}{fixed}, strip {}, blocks of {}\n  \
         size        {} ({} never written)\n  device      {}\n{}{}  \
         write hole  {}\n  latency     target {}\n  degraded    start {}\n  \
         uuid        {}, epoch {}\n",
        a.level,
        a.members.len(),
        size::bytes(a.strip_bytes),
        a.block_bytes,
        size::bytes(a.size_bytes),
        size::bytes(a.unwritten_bytes),
        or_dash(a.device.as_ref()),
        a.export.as_ref().map_or_else(String::new, export),
        a.placement.as_ref().map_or_else(String::new, placement),
        a.write_hole,
        size::latency_target(u64::from(a.latency_target_us)),
        a.degraded_start,
        a.uuid,
        a.epoch,
    );
    head + &shown(&text, '\n')
}

/// Members and spares, a row each.
fn members(a: &ArrayJson, paint: Paint) -> String {
    let mut table = Table::new(&[
        "SLOT",
        "STATE",
        "DEVICE",
        "READ ERRORS",
        "WRITE ERRORS",
        "MISMATCHES",
    ]);
    for member in a.members_and_spares() {
        let cells = vec![
            slot_text(member.slot),
            member.state.clone(),
            or_dash(member.device.as_ref()),
            member.read_errors.to_string(),
            member.write_errors.to_string(),
            member.mismatches.to_string(),
        ];
        let mood = match member.doubted {
            Some(_) => Mood::Worst,
            None => Mood::of_state(&member.state),
        };
        table.painted(cells, 1, mood);
    }
    table.text_in(2, paint)
}

/// One array, with its members and jobs; safe for a terminal.
pub(crate) fn array(a: &ArrayJson, paint: Paint) -> String {
    let failing = alerts_failing(std::iter::once(a), paint);
    if a.not_found {
        let state = paint.text(Mood::Worst, stopped::lost(&a.may_be_on));
        let head = format!(
            "{}  {state}\n  uuid        {}\n",
            shown(&a.name, ' '),
            a.uuid
        );
        let text = had(a) + &missing(a);
        return head + &shown(&text, '\n') + &failing;
    }
    let known = shown(&extent(a), '\n');
    let rest = shown(&(behind_members(a) + &destroyed(a)), '\n');
    [summary(a, paint), known, members(a, paint), rest, failing].concat()
}

/// What an array has of data and room.
fn extent(a: &ArrayJson) -> String {
    let mut text = String::new();
    if let Some(m) = &a.moving {
        text.push_str(&format!("  moved       {}\n", moving(m)));
    }
    text.push_str(&unreadable(a));
    text.push_str(&undecided(a));
    text.push_str(&volumes(&a.volumes));
    text
}

/// What its slots had.
fn had(a: &ArrayJson) -> String {
    let was = a.members.iter().filter_map(|member| {
        let was = self::was(member.slot?, member.was.as_ref()?);
        Some(format!("  {was}\n"))
    });
    was.collect()
}

/// Which slots have no space for writes, as a list, and since when.
pub(crate) fn without_space(a: &ArrayJson) -> Option<(String, &str)> {
    let full = a.members.iter().filter(|m| m.full_since.is_some());
    let slots = full.clone().filter_map(|m| m.slot).map(|s| s.to_string());
    let slots: Vec<String> = slots.collect();
    let since = full.filter_map(|m| m.full_since.as_deref()).min()?;
    Some((slots.join(", "), since))
}

/// That writes wait for space, and what helps.
fn full(a: &ArrayJson) -> String {
    let Some((slots, since)) = without_space(a) else {
        return String::new();
    };
    format!(
        "  writes wait since {since}: there is no space for them on slots {slots}; make room in \
         the file systems of these files, or extend the pool; nothing is lost, and they go on by \
         themselves\n"
    )
}

/// What is said of members and jobs below the table of members.
fn behind_members(a: &ArrayJson) -> String {
    let mut text = String::new();
    for aside in &a.set_aside {
        let slot = slot_text(aside.slot);
        text.push_str(&format!(
            "  slot {slot}: set aside: {}; {}\n",
            aside.found, aside.cure
        ));
    }
    text.push_str(&stopped::conflict(a));
    text.push_str(&retries(a));
    text.push_str(&full(a));
    for member in &a.members {
        if let (Some(slot), Some(cause)) = (member.slot, &member.doubted) {
            text.push_str(&format!(
                "  slot {slot} is doubted ({cause}): the level needs it, and what is read from it \
                 may be wrong\n"
            ));
        }
        if let (Some(slot), Some(s)) = (member.slot, member.spare_in_s) {
            text.push_str(&format!(
                "  slot {slot} is missing; a spare takes its place in {}\n",
                size::seconds(s)
            ));
        }
    }
    text.push_str(&had(a));
    text.push_str(&latency::recent(a));
    for job in &a.jobs {
        text.push_str(&format!("  {}\n", job_long(job)));
    }
    if let Some(scrub) = &a.last_scrub {
        text.push_str(&format!(
            "  last scrub ({} to {}): {}\n",
            scrub.begun,
            scrub.ended,
            found(scrub)
        ));
    }
    text
}

/// What a slot had.
fn was(slot: u8, was: &WasJson) -> String {
    let mut text = format!("slot {slot} had {}", was.device);
    let serial = was.serial.as_ref().map(|serial| format!("serial {serial}"));
    let known: Vec<String> = was.model.iter().cloned().chain(serial).collect();
    if !known.is_empty() {
        text.push_str(&format!(" ({})", known.join(", ")));
    }
    if let Some(until) = &was.until {
        text.push_str(&format!(" until {until}"));
    }
    let why: Vec<String> = (was.cause.iter().cloned())
        .chain(was.errno.map(errno_text))
        .chain(was.holds.iter().map(|now| format!("now {now}")))
        .collect();
    if !why.is_empty() {
        text.push_str(&format!(": {}", why.join(", ")));
    }
    text
}

/// The scrubs of an array.
pub(crate) fn scrubs(scrubs: &ScrubsJson) -> String {
    let mut text = String::new();
    match &scrubs.now {
        Some(job) => text.push_str(&format!("{}: {}\n", scrubs.name, job_long(job))),
        None => text.push_str(&format!("{}: no scrub is under way\n", scrubs.name)),
    }
    if scrubs.past.is_empty() {
        text.push_str("  none has come to its end so far\n");
        return text;
    }
    let mut table = Table::new(&[
        "BEGUN",
        "ENDED",
        "REPAIRS",
        "INCONSISTENT",
        "LOCATED",
        "REPAIRED",
        "UNREADABLE",
    ]);
    for scrub in &scrubs.past {
        table.row(vec![
            scrub.begun.clone(),
            scrub.ended.clone(),
            if scrub.repair { "yes" } else { "no" }.to_owned(),
            scrub.inconsistent_stripes.to_string(),
            scrub.located_stripes.to_string(),
            scrub.repaired_stripes.to_string(),
            scrub.unreadable_stripes.to_string(),
        ]);
    }
    text.push_str(&table.text(2));
    text
}

/// What did not get through to members at once, where anything did not.
fn retries(a: &ArrayJson) -> String {
    let mut table = Table::new(&["SLOT", "TRIED AGAIN", "GOT THROUGH", "FAILED", "RESETS"]);
    let mut any = false;
    let retried = |m: &&MemberJson| m.retries != RetriesJson::default();
    for member in a.members_and_spares().filter(retried) {
        any = true;
        let RetriesJson {
            tries,
            got_through,
            failed,
            resets,
        } = member.retries;
        let counts = [tries, got_through, failed, resets].map(|n| n.to_string());
        table.row([vec![slot_text(member.slot)], counts.to_vec()].concat());
    }
    if any { table.text(2) } else { String::new() }
}

/// Arrays found on drives.
pub(crate) fn scan(all: &[ScanJson]) -> String {
    if all.is_empty() {
        return "no arrays found\n".to_owned();
    }
    let mut text = String::new();
    for array in all {
        text.push_str(&format!(
            "{}  level {}  {} ({})  {}\n",
            array.name,
            array.level,
            array.state,
            found_text(array),
            array.uuid
        ));
        if let Some(date) = &array.destroyed {
            let startable = matches!(array.state.as_str(), "complete" | "degraded");
            text.push_str(&format!(
                "  destroyed on {date}: {}\n",
                destroyed_cure(&array.uuid, startable)
            ));
        }
        if let Some(reason) = &array.reason {
            text.push_str(&format!("  {reason}\n"));
        }
        if let Some(m) = &array.moving {
            text.push_str(&format!("  data moved: {}\n", moving(m)));
        }
        let mut table = Table::new(&["SLOT", "STATE", "DEVICE", "EPOCH"]);
        for device in &array.devices {
            table.row(vec![
                slot_text(device.slot),
                device.state.clone(),
                device.device.clone(),
                device.epoch.to_string(),
            ]);
        }
        if !array.devices.is_empty() {
            text.push_str(&table.text(2));
        }
        text.push_str(&stopped::beside(array));
    }
    text
}

/// How many of an array's members and spares, or of a pool's devices, are there.
fn found_text(array: &ScanJson) -> String {
    if array.state == "pool" {
        return format!("{} found", size::count(array.found, "device"));
    }
    let spares = match array.spares {
        0 => String::new(),
        spares => format!(", {} of {spares} spares", array.spares_found),
    };
    format!(
        "{} of {} members{spares} found",
        array.members_found, array.members
    )
}

/// Which sessions wrote which generations, a line each.
fn sessions(all: &[SessionJson]) -> String {
    let labels = std::iter::once("  sessions  ").chain(std::iter::repeat("            "));
    let lines = labels.zip(all).map(|(label, session)| {
        let by = session.session.as_deref().unwrap_or("sessions not known");
        let (first, last) = (session.first_generation, session.last_generation);
        format!("{label}generation {first}..{last} by {by}\n")
    });
    lines.collect()
}

/// One member.
pub(crate) fn examine(e: &ExamineJson) -> String {
    let role = e
        .slot
        .map_or_else(|| "spare".to_owned(), |s| format!("slot {s}"));
    let a = &e.array;
    let mut text = format!(
        "{role} of array {}  level {} of {}, strip {}, blocks of {}, write hole {}\n  \
         array     {}\n  member    {}\n  data      {} at byte {}\n  \
         epoch     {}, generation {}, stopped {}\n  \
         regions   {} unwritten, {} clean, {} dirty, {} need sync, {} damaged map pages\n",
        a.name,
        a.level,
        a.members,
        size::bytes(u64::from(a.strip_bytes)),
        a.block_bytes,
        a.write_hole,
        a.uuid,
        e.member_uuid,
        size::bytes(e.data_bytes),
        e.data_offset_bytes,
        e.epoch,
        e.generation,
        if e.clean {
            "cleanly"
        } else {
            "uncleanly, or in use"
        },
        e.regions.unwritten,
        e.regions.clean,
        e.regions.dirty,
        e.regions.need_sync,
        e.regions.damaged_pages,
    );
    text.push_str(&sessions(&e.sessions));
    if let Some(m) = &a.moving {
        text.push_str(&format!("  moved     {}\n", moving(m)));
    }
    text.push_str(&match &e.unreadable {
        None => "  unreadable: no valid list\n".to_owned(),
        Some(ranges) if ranges.is_empty() => String::new(),
        Some(ranges) => {
            let bytes = ranges.iter().map(|r| r.len_bytes).sum();
            let places = ranges.len();
            format!("  unreadable: {} in {places} places\n", size::bytes(bytes))
        }
    });
    for copy in &e.copies {
        let valid = if copy.valid { "valid" } else { "damaged" };
        text.push_str(&format!(
            "  superblock at byte {}: {valid}\n",
            copy.offset_bytes
        ));
    }
    let mut table = Table::new(&["SLOT", "STATE", "SINCE EPOCH", "MEMBER"]);
    for slot in &e.slots {
        table.row(vec![
            slot.slot.to_string(),
            slot.state.clone(),
            slot.since_epoch.to_string(),
            or_dash(slot.uuid.as_ref()),
        ]);
    }
    text.push_str(&table.text(2));
    text
}

/// Where a block lies.
pub(crate) fn explain(e: &ExplainJson) -> String {
    let region = e
        .region_state
        .clone()
        .unwrap_or_else(|| "unknown".to_owned());
    let mut text = format!(
        "block {} of {} (byte {}): stripe {}, group {}, row {}, column {}, region {} ({region})\n",
        e.lba, e.name, e.offset_bytes, e.stripe, e.group, e.row, e.column, e.region
    );
    if e.unreadable {
        text.push_str(
            "  its content is lost: it answers an error until it is written, \
             though what lies there may be readable\n",
        );
    }
    if e.undecided {
        text.push_str(
            "  its region is undecided: strips of it do not agree, or were rebuilt from such \
             strips, and no scrub repairs anything there\n  strake scrub NAME says at which bytes; \
             write these stripes anew as a whole (from a backup) and scrub again; where what is \
             read is right, or a member was rebuilt since, strake scrub NAME accept\n",
        );
    }
    let mut table = Table::new(&["KIND", "SLOT", "STATE", "DEVICE", "BYTE ON DEVICE"]);
    for place in std::iter::once(&e.data).chain(&e.redundancy) {
        table.row(vec![
            place.kind.clone(),
            place.slot.to_string(),
            place.member_state.clone(),
            or_dash(place.device.as_ref()),
            place.member_offset_bytes.to_string(),
        ]);
    }
    text.push_str(&table.text(2));
    text
}

/// One event.
pub(crate) fn event(e: &EventJson) -> String {
    let mut text = format!("{} {}", e.time, e.event);
    if let Some(array) = &e.array {
        text.push_str(&format!(" {array}"));
    }
    if let Some(slot) = e.slot {
        text.push_str(&format!(" slot {slot}"));
    }
    for (word, part) in [
        ("", &e.device),
        ("because: ", &e.cause),
        ("so: ", &e.effect),
    ] {
        if let Some(part) = part {
            text.push_str(&format!(" {word}{part}"));
        }
        if let (Some(errno), "because: ") = (e.errno, word) {
            text.push_str(&format!(" ({})", errno_text(errno)));
        }
    }
    text
}

/// A bar on a terminal, a line now and then elsewhere, nothing with `--json`.
#[derive(Debug)]
pub(crate) struct Bar {
    bar: ProgressBar,
    what: String,
    plain: bool,
    told: u64,
}

impl Bar {
    /// A bar for `total` bytes.
    pub(crate) fn new(what: &str, total: u64, quiet: bool) -> Bar {
        use std::io::IsTerminal;
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal && !quiet {
            ProgressBar::new(total)
        } else {
            ProgressBar::hidden()
        };
        let style = ProgressStyle::with_template(
            "{msg:<28} {bar:32} {percent:>3} %  {binary_bytes_per_sec}  {eta} left",
        );
        bar.set_style(style.expect("the template is constant"));
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        Bar {
            bar,
            what: what.to_owned(),
            plain: !terminal && !quiet,
            told: 0,
        }
    }
    /// How far it is.
    pub(crate) fn at(&mut self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
        let tenth = percent(done, total) / 10;
        if self.plain && tenth > self.told {
            self.told = tenth;
            tell!("{}: {} %", self.what, tenth * 10);
        }
    }
    /// Takes it away.
    pub(crate) fn end(self) {
        self.bar.finish_and_clear();
    }
}

/// The volumes of an array; nothing where it is not carved.
pub(crate) fn volumes(volumes: &VolumesJson) -> String {
    if volumes.damaged {
        return "  the table of volumes is damaged: no volume is served\n".to_owned();
    }
    let (Some(free), Some(unit)) = (volumes.free_bytes, volumes.unit_bytes) else {
        return match volumes.carved {
            true => "  carved into volumes\n".to_owned(),
            false => String::new(),
        };
    };
    let told = format!(
        "  {}, {} free in units of {}\n",
        size::count(volumes.volumes.len(), "volume"),
        size::bytes(free),
        size::bytes(unit)
    );
    match volumes.volumes.is_empty() {
        true => told,
        false => volume_table(&volumes.volumes) + &told,
    }
}

pub(crate) fn volume_table(volumes: &[VolumeJson]) -> String {
    let mut table = Table::new(&["VOLUME", "SIZE", "ALLOCATED", "EXTENTS", "DEVICE"]);
    for volume in volumes {
        table.row(vec![
            volume.name.clone(),
            size::bytes(volume.size_bytes),
            size::bytes(volume.allocated_bytes),
            volume.extents.to_string(),
            or_dash(volume.device.as_ref()),
        ]);
    }
    let unserved = volumes.iter().filter_map(|volume| {
        let why = volume.not_served.as_ref()?;
        let name = &volume.name;
        Some(format!(
            "  {name} is not served: {why}; it is tried again by itself\n"
        ))
    });
    table.text(2) + &unserved.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_blanks() {
        let mut table = Table::new(&["A", "LONG"]);
        table.row(vec!["xyz".into(), "1".into()]);
        table.row(vec!["x".into(), "".into()]);
        assert_eq!(table.text(2), "  A    LONG\n  xyz  1\n  x\n");
    }

    #[test]
    fn a_job_without_work_is_done() {
        assert_eq!(percent(0, 0), 100);
        assert_eq!(percent(1, 3), 33);
        assert_eq!(percent(u64::MAX, u64::MAX), 100);
    }
}

//! The picture: arrays and members, jobs, latencies, events, keys.
//!
//! Invariants: it fits any size; columns and parts that have no room are left out, the last ones
//! first. Names are made safe before they are drawn. Deliberately absent: state.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, Table, TableState};

use crate::api::{ArrayJson, EventJson, IostatArrayJson, RatesJson};
use crate::cli::output;
use crate::cli::paint::Mood;
use crate::commands::top::model::Model;
use crate::common::{shown, size};

/// Name and width of each column behind the name.
const COLUMNS: [(&str, u16); 8] = [
    ("STATE", 10),
    ("r/s", 8),
    ("w/s", 8),
    ("rMB/s", 8),
    ("wMB/s", 8),
    ("r99_us", 8),
    ("w99_us", 8),
    ("queue", 7),
];
const NAME_LEAST: u16 = 9;
const NAME_MOST: u16 = 28;
/// Lines of jobs, and of latencies.
const JOBS_MOST: usize = 4;
const PAST_LINES: u16 = 4;
/// Below so many free lines there are no latencies.
const PAST_FROM: u16 = 8;
/// From so many columns on events have a time, and a date.
const TIME_FROM: u16 = 40;
const DATE_FROM: u16 = 80;

const HELP: [&str; 9] = [
    "F1 h ?     these keys",
    "F5 t       members or none",
    "F6 >       sort by the next column",
    "I          sort the other way",
    "Z          hold the numbers",
    "arrows     choose an array",
    "PgUp PgDn  ten further",
    "Home End   the first, the last",
    "F10 q      end",
];

/// A style for news of this kind.
fn style(model: &Model, mood: Mood) -> Style {
    let style = Style::new();
    match (mood, model.paint.has_colour()) {
        (Mood::Plain, _) => style,
        (Mood::Good, true) => style.fg(Color::Green),
        (Mood::Bad, true) => style.fg(Color::Yellow),
        (Mood::Worst, true) => style.fg(Color::Red),
        (Mood::Good, false) => style,
        (Mood::Bad | Mood::Worst, false) => style.add_modifier(Modifier::BOLD),
    }
}

pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let area = frame.area();
    if model.help {
        let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::raw(*line)).collect();
        return frame.render_widget(Paragraph::new(lines), area);
    }
    let (rows, chosen) = rows(model, area.width);
    let jobs = jobs(model);
    let last = area.height.min(1);
    let mut free = area.height - last;
    let table = (rows.len() as u16 + 1).min(free).min((free / 2).max(4));
    free -= table.min(free);
    let job_lines = (jobs.len().min(JOBS_MOST) as u16).min(free);
    free -= job_lines;
    let past = if free >= PAST_FROM { PAST_LINES } else { 0 };
    let parts = Layout::vertical([
        Constraint::Length(table),
        Constraint::Length(job_lines),
        Constraint::Length(past),
        Constraint::Min(0),
        Constraint::Length(last),
    ]);
    let [arrays, job_area, past_area, event_area, keys] = parts.areas(area);
    draw_arrays(frame, model, arrays, rows, chosen);
    frame.render_widget(Paragraph::new(jobs), job_area);
    if past > 0 {
        draw_past(frame, model, past_area);
    }
    draw_events(frame, model, event_area);
    frame.render_widget(foot(model), keys);
}

/// How wide the column of names is, and how many columns have room behind it.
fn columns(width: u16) -> (u16, usize) {
    let mut used = NAME_LEAST;
    let mut fit = 0;
    for (_, column) in COLUMNS {
        if used + 1 + column > width {
            break;
        }
        used += 1 + column;
        fit += 1;
    }
    let free = width.saturating_sub(used);
    let name = (NAME_LEAST + free).min(if fit == 0 { width } else { NAME_MOST });
    (name, fit)
}

fn cells(rates: Option<&RatesJson>) -> Vec<String> {
    let Some(r) = rates else {
        return vec!["-".to_owned(); COLUMNS.len() - 1];
    };
    let us = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}"));
    let mb = |bytes: f64| format!("{:.1}", bytes / 1e6);
    vec![
        format!("{:.0}", r.reads_per_s),
        format!("{:.0}", r.writes_per_s),
        mb(r.read_bytes_per_s),
        mb(r.written_bytes_per_s),
        us(r.read_p99_us),
        us(r.write_p99_us),
        format!("{:.1}", r.queue),
    ]
}

fn row(
    model: &Model,
    width: u16,
    name: &str,
    state: &str,
    rates: Option<&RatesJson>,
) -> Row<'static> {
    let (_, fit) = columns(width);
    let mood = Mood::of_state(state);
    let mut all = vec![Cell::new(shown(name, ' '))];
    let mut behind = vec![Cell::new(Span::styled(
        state.to_owned(),
        style(model, mood),
    ))];
    let number = |(text, (_, width)): (String, &(&str, u16))| {
        let width = usize::from(*width);
        Cell::new(format!("{text:>width$}"))
    };
    behind.extend(cells(rates).into_iter().zip(&COLUMNS[1..]).map(number));
    all.extend(behind.into_iter().take(fit));
    Row::new(all)
}

/// The rows of arrays and members, and which of them is chosen.
fn rows(model: &Model, width: u16) -> (Vec<Row<'static>>, Option<usize>) {
    let mut rows = Vec::new();
    let mut chosen = None;
    let at = model.at();
    for (n, (array, rates)) in model.arrays().into_iter().enumerate() {
        if n == at {
            chosen = Some(rows.len());
        }
        rows.push(row(
            model,
            width,
            &array.name,
            &array.state,
            rates.map(|r| &r.rates),
        ));
        if model.members && n == at {
            rows.extend(members(model, width, array, rates));
        }
    }
    (rows, chosen)
}

fn members(
    model: &Model,
    width: u16,
    array: &ArrayJson,
    rates: Option<&IostatArrayJson>,
) -> Vec<Row<'static>> {
    let of = rates.and_then(|r| r.members.as_ref());
    let each = array.members.iter().map(|member| {
        let same = |m: &&crate::api::IostatMemberJson| {
            Some(m.slot) == member.slot && m.device == member.device
        };
        let rates = of.and_then(|of| of.iter().find(same));
        let slot = member
            .slot
            .map_or_else(|| "-".to_owned(), |slot| slot.to_string());
        let device = member.device.as_deref().unwrap_or("-");
        let device = device.strip_prefix("/dev/").unwrap_or(device);
        let name = format!(" {slot} {device}");
        row(model, width, &name, &member.state, rates.map(|r| &r.rates))
    });
    each.collect()
}

fn draw_arrays(
    frame: &mut Frame<'_>,
    model: &Model,
    area: Rect,
    rows: Vec<Row<'static>>,
    chosen: Option<usize>,
) {
    if rows.is_empty() && model.lost.is_none() {
        return frame.render_widget(Paragraph::new("no arrays"), area);
    }
    let (name, fit) = columns(area.width);
    let widths = COLUMNS[..fit]
        .iter()
        .map(|(_, width)| Constraint::Length(*width));
    let widths: Vec<Constraint> = [Constraint::Length(name)]
        .into_iter()
        .chain(widths)
        .collect();
    let head = COLUMNS[..fit].iter().enumerate().map(|(n, (name, width))| {
        let width = usize::from(*width);
        match n {
            0 => Cell::new(*name),
            _ => Cell::new(format!("{name:>width$}")),
        }
    });
    let head: Vec<Cell<'_>> = [Cell::new("ARRAY")].into_iter().chain(head).collect();
    let head = Row::new(head).style(Style::new().add_modifier(Modifier::BOLD));
    let table = Table::new(rows, widths)
        .header(head)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(chosen);
    frame.render_stateful_widget(table, area, &mut state);
}

fn jobs(model: &Model) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for (array, _) in model.arrays() {
        for job in &array.jobs {
            let left = job.eta_s.map(|s| format!(", {} left", size::seconds(s)));
            lines.push(Line::raw(format!(
                "{}: {}, {}{}",
                shown(&array.name, ' '),
                output::job_short(job),
                size::rate(job.rate_bytes_per_s),
                left.unwrap_or_default()
            )));
        }
    }
    lines
}

fn draw_past(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let Some((name, past)) = model.past() else {
        return;
    };
    let fits = usize::from(area.width);
    let past = &past[past.len().saturating_sub(fits)..];
    let most = past.iter().max().copied().unwrap_or(0);
    let title = format!("{} p99: {} us at most", shown(name, ' '), most);
    let [above, below] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(title), above);
    frame.render_widget(Sparkline::default().data(past), below);
}

/// An event, where there is no room with the time of day or with no time.
fn event_line(model: &Model, event: &EventJson, width: u16) -> Line<'static> {
    let text = shown(&output::event(event), ' ');
    let text = match (text.split_once(' '), width) {
        (Some((_, what)), ..TIME_FROM) => what.to_owned(),
        (Some((time, what)), TIME_FROM..DATE_FROM) => {
            format!("{} {what}", time.get(11..19).unwrap_or(time))
        }
        _ => text,
    };
    Line::styled(text, style(model, Mood::of_severity(event.severity)))
}

fn draw_events(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let newest = model.events().rev().take(usize::from(area.height));
    let mut lines: Vec<Line<'_>> = newest
        .map(|event| event_line(model, event, area.width))
        .collect();
    lines.reverse();
    frame.render_widget(Paragraph::new(lines), area);
}

/// The last line: what is wrong with the daemon, or the keys.
fn foot(model: &Model) -> Line<'static> {
    if let Some(why) = &model.lost {
        return Line::styled(shown(why, ' '), style(model, Mood::Worst));
    }
    if let Some(silent) = model.silent_for() {
        let text = format!("the daemon has not answered for {} s", silent.as_secs());
        return Line::styled(text, style(model, Mood::Bad));
    }
    let held = if model.held { "held (Z)  " } else { "" };
    let sort = model.sort.as_str();
    let text = format!("{held}F1 help  F5 members  F6 sort: {sort}  F10 end");
    Line::styled(text, Style::new().add_modifier(Modifier::REVERSED))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use crate::api::{JobJson, MemberJson};
    use crate::cli::paint::Paint;
    use crate::commands::top::asker::{News, Told};
    use crate::common::events::Severity;
    use crate::view::stats::{MemberStatsJson, StatsJson};

    use super::*;

    fn told(served_s: u64) -> News {
        let member = |slot, state: &str| MemberJson {
            slot: Some(slot),
            device: Some(format!("/dev/nvme{slot}\u{1b}n1")),
            state: state.to_owned(),
            ..MemberJson::default()
        };
        let job = JobJson {
            kind: "rebuild".to_owned(),
            done_bytes: 1,
            total_bytes: 4,
            ..serde_json::from_value(serde_json::json!({
                "kind": "", "slot": null, "done_bytes": 0, "total_bytes": 0,
                "rate_bytes_per_s": 1024, "eta_s": 70, "paused": false,
                "inconsistent_stripes": 0, "repaired_stripes": 0,
            }))
            .expect("a job")
        };
        let array = ArrayJson {
            name: "data".to_owned(),
            uuid: "u".to_owned(),
            state: "degraded".to_owned(),
            members: vec![member(0, "in_sync"), member(1, "rebuilding")],
            jobs: vec![job],
            ..ArrayJson::default()
        };
        let mut stats = StatsJson {
            uuid: "u".to_owned(),
            served_ns: served_s * 1_000_000_000,
            members: vec![MemberStatsJson {
                device: array.members[0].device.clone(),
                ..MemberStatsJson::default()
            }],
            ..StatsJson::default()
        };
        stats.reads.count = 100 * served_s;
        stats.reads.latency.count = 100 * served_s;
        stats.reads.latency.max_ns = 250_000;
        let event = EventJson {
            event: "member_out".to_owned(),
            severity: Severity::Warning,
            time: "2026-01-31T12:00:00.000Z".to_owned(),
            ..EventJson::default()
        };
        News::Told(Box::new(Told {
            arrays: vec![array],
            stats: vec![stats],
            events: vec![event],
        }))
    }

    fn picture(model: &Model, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| draw(frame, model)).expect("drawn");
        let buffer = terminal.backend().buffer();
        let line = |y| {
            (0..width)
                .map(|x| buffer[(x, y)].symbol())
                .collect::<String>()
        };
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    fn model() -> Model {
        let mut model = Model::new(Duration::from_secs(1), Paint::none());
        model.hear(told(10));
        model.hear(told(12));
        model
    }

    #[test]
    fn a_wide_terminal_has_all_parts() {
        let lines = picture(&model(), 120, 24);
        assert!(
            lines[0].starts_with("ARRAY") && lines[0].ends_with("queue"),
            "{lines:#?}"
        );
        assert!(
            lines[1].starts_with("data") && lines[1].contains("degraded"),
            "{lines:#?}"
        );
        assert!(lines[1].contains("     100 "), "{lines:#?}");
        assert!(lines[2].starts_with(" 0 nvme0\\u{1b}n1"), "{lines:#?}");
        assert!(lines[3].contains("rebuilding"), "{lines:#?}");
        assert_eq!(lines[4], "data: rebuild 25 %, 1 KiB/s, 1 min 10 s left");
        assert_eq!(lines[5], "data p99: 250 us at most");
        assert!(lines[8].ends_with('█'), "{lines:#?}");
        let event = "2026-01-31T12:00:00.000Z member_out";
        assert_eq!(
            lines.iter().filter(|line| *line == event).count(),
            2,
            "{lines:#?}"
        );
        assert!(lines[23].ends_with("F10 end"), "{lines:#?}");
    }

    #[test]
    fn any_size_has_a_picture_and_a_narrow_one_begins_with_names_and_states() {
        let lines = picture(&model(), 20, 10);
        assert_eq!(lines[0], "ARRAY     STATE");
        assert_eq!(lines[1], "data      degraded");
        assert_eq!(lines[5..7], ["member_out", "member_out"], "{lines:#?}");
        let lines = picture(&model(), 50, 10);
        assert!(
            lines.contains(&"12:00:00 member_out".to_owned()),
            "{lines:#?}"
        );
        for (width, height) in [(1, 1), (2, 50), (200, 1), (20, 2), (9, 3), (300, 100)] {
            picture(&model(), width, height);
        }
    }

    #[test]
    fn a_daemon_that_is_gone_is_named_over_what_was_seen_last() {
        let mut model = model();
        model.hear(News::Lost("no daemon listens in /run/strake".to_owned()));
        let lines = picture(&model, 80, 24);
        assert!(lines[1].starts_with("data"), "{lines:#?}");
        assert_eq!(lines[23], "no daemon listens in /run/strake");
        model.hear(told(1));
        assert!(picture(&model, 80, 24)[23].starts_with("F1 help"));
    }

    #[test]
    fn without_members_there_is_a_line_for_each_array_and_help_has_every_key() {
        let mut model = model();
        model.key(KeyEvent::new(KeyCode::F(5), KeyModifiers::NONE));
        let lines = picture(&model, 80, 24);
        assert!(lines[2].starts_with("data: rebuild"), "{lines:#?}");
        model.key(KeyEvent::new(KeyCode::F(1), KeyModifiers::NONE));
        assert_eq!(picture(&model, 80, 24)[8], "F10 q      end");
    }
}

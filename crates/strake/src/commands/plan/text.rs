//! Plans and drives as a terminal shows them.

use std::fmt::Write as _;

use strake_foresight::drive::Drive;
use strake_foresight::page::words::{self, Section, sections};
use strake_foresight::plan::Plan;

use crate::api::{KnownDriveJson, PlansJson};

/// A drive of the catalogue in a line.
pub(super) fn known(drive: &Drive) -> KnownDriveJson {
    KnownDriveJson {
        name: drive.name.clone(),
        capacity_bytes: drive.capacity,
        unit_bytes: drive.unit,
        read_bytes_per_s: drive.read,
        write_bytes_per_s: drive.write,
        read_iops: drive.read_iops,
        write_iops: drive.write_iops,
        write_iops_bytes: drive.random_write_bytes,
        sources: drive.origins.clone(),
    }
}

/// The catalogue. A figure in brackets is an assumed range.
pub(super) fn drives(known: &[KnownDriveJson]) -> String {
    use strake_foresight::value::{Figure, Source};
    let cell = |figure: Figure, text: String| match figure.source {
        Source::Assumed => format!("({text})"),
        _ => text,
    };
    let head = [
        "drive",
        "unit",
        "read",
        "write",
        "4K reads",
        "random writes",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for drive in known {
        let kib = words::range(drive.unit_bytes, 1024.0, "KiB");
        let writes = format!(
            "{} of {} KiB",
            words::requests(drive.write_iops),
            drive.write_iops_bytes >> 10
        );
        rows.push(vec![
            drive.name.clone(),
            cell(drive.unit_bytes, kib),
            cell(drive.read_bytes_per_s, words::rate(drive.read_bytes_per_s)),
            cell(
                drive.write_bytes_per_s,
                words::rate(drive.write_bytes_per_s),
            ),
            cell(drive.read_iops, words::requests(drive.read_iops)),
            cell(drive.write_iops, writes),
        ]);
    }
    let mut text = columns(&rows);
    text.push_str("(in brackets: unknown, an assumed range; --json names the source of each)\n");
    text
}

/// One plan in sections, several side by side.
pub(super) fn plans(answer: &PlansJson) -> String {
    let mut text = String::new();
    for line in &answer.why {
        let _ = writeln!(text, "{line}");
    }
    if !answer.why.is_empty() {
        text.push('\n');
    }
    let all: Vec<Vec<Section>> = answer.plans.iter().map(sections).collect();
    let Some(first) = all.first() else {
        return text;
    };
    for section in first {
        let _ = writeln!(text, "{}", section.title);
        let mut rows = Vec::new();
        for line in &section.lines {
            let mut row = vec![format!("  {}", line.name)];
            for other in &all {
                let same = other.iter().find(|s| s.title == section.title);
                let same = same.and_then(|s| s.lines.iter().find(|l| l.name == line.name));
                row.push(same.map_or("-".to_owned(), |l| l.value.clone()));
            }
            if all.len() == 1 {
                row.push(line.source.to_owned());
            }
            rows.push(row);
        }
        text.push_str(&columns(&rows));
        text.push('\n');
    }
    for plan in &answer.plans {
        notes(&mut text, plan, answer.plans.len() > 1);
    }
    if let Some(path) = &answer.html {
        let _ = writeln!(text, "written: {path}");
    }
    text
}

fn notes(text: &mut String, plan: &Plan, several: bool) {
    let mut say = |note: &str| {
        let _ = match several {
            true => writeln!(text, "note: {}: {note}", plan.shape),
            false => writeln!(text, "note: {note}"),
        };
    };
    plan.notes.iter().for_each(|note| say(note));
    if !plan.assumed.is_empty() {
        let unknown = plan.assumed.join(", ");
        say(&format!("unknown of {}, so ranges: {unknown}", plan.drive));
    }
}

/// Columns of the width of their longest cell, two blanks between them.
fn columns(rows: &[Vec<String>]) -> String {
    let width = |n: usize| {
        let cells = rows.iter().filter_map(|row| row.get(n));
        cells.map(|c| c.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

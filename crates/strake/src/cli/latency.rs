//! How long members take, as text.
//!
//! Deliberately absent: what is counted of it (`view::latency`).

use crate::api::{ArrayJson, LatencyJson, MemberJson};
use crate::cli::output::{Table, slot_text};
use crate::view::latency::LatenciesJson;

/// How long members take, where anything was read or written.
pub(crate) fn recent(a: &ArrayJson) -> String {
    let mut table = Table::new(&[
        "SLOT",
        "READ p50/p99/p99.9",
        "WRITE p50/p99/p99.9",
        "HEDGED",
        "WON",
        "LOST",
        "REFUSED",
        "",
    ]);
    let known = |m: &&MemberJson| m.read_latency.is_some() || m.write_latency.is_some();
    let mut any = false;
    for member in a.members.iter().filter(known) {
        any = true;
        let hedged = &member.hedged_reads;
        table.row(vec![
            slot_text(member.slot),
            quantiles(member.read_latency),
            quantiles(member.write_latency),
            hedged.issued.to_string(),
            hedged.won.to_string(),
            hedged.lost.to_string(),
            hedged.refused.to_string(),
            if member.slow { "slow" } else { "" }.to_owned(),
        ]);
    }
    if any { table.text(2) } else { String::new() }
}

/// How long members took, all in all.
pub(crate) fn all(of: &LatenciesJson) -> String {
    let mut table = Table::new(&[
        "SLOT",
        "DEVICE",
        "",
        "COUNT",
        "MEAN",
        "RECENT p50/p99/p99.9",
        "LONGEST",
    ]);
    for member in &of.members {
        for (what, took) in [("reads", &member.reads), ("writes", &member.writes)] {
            let mean = took.sum_ns.checked_div(took.count);
            table.row(vec![
                slot_text(Some(member.slot)),
                member.device.clone().unwrap_or_else(|| "-".to_owned()),
                what.to_owned(),
                took.count.to_string(),
                mean.map_or_else(|| "-".to_owned(), |ns| format!("{} µs", ns.div_ceil(1000))),
                quantiles(took.recent),
                format!("{} µs", took.max_ns.div_ceil(1000)),
            ]);
        }
    }
    format!("{}\n{}", of.name, table.text(2))
}

fn quantiles(latency: Option<LatencyJson>) -> String {
    latency.map_or_else(
        || "-".to_owned(),
        |l| format!("{}/{}/{} µs", l.p50_us, l.p99_us, l.p999_us),
    )
}

//! How long members took: the same in `/metrics` and in `show --latency`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::rig::Rig;

const MIB: u64 = 1 << 20;

/// A histogram as Prometheus reads it: bounds with their counts, sum and count.
#[derive(Debug, Default, PartialEq)]
struct Histogram {
    buckets: Vec<(f64, u64)>,
    sum: f64,
    count: u64,
}

/// Histograms of one family, by slot.
type Histograms = BTreeMap<u64, Histogram>;

fn histograms(text: &str, family: &str) -> Histograms {
    let mut all = Histograms::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some(rest) = line.strip_prefix(family) else {
            continue;
        };
        let (kind, rest) = rest.split_once('{').expect("labels");
        let (labels, value) = rest.split_once("} ").expect("a value");
        let label = |name: &str| {
            let start = format!("{name}=\"");
            let found = labels.split(',').find_map(|l| l.strip_prefix(&start));
            found.map(|value| value.trim_end_matches('"').to_owned())
        };
        assert_eq!(label("array").as_deref(), Some("data"), "{line}");
        let slot = label("slot").expect("a slot").parse().expect("a number");
        let one = all.entry(slot).or_default();
        let number = || value.parse::<u64>().expect("a number");
        match kind {
            "_bucket" => {
                let le = label("le").expect("a bound").replace("+Inf", "inf");
                one.buckets.push((le.parse().expect("a bound"), number()));
            }
            "_sum" => one.sum = value.parse().expect("seconds"),
            "_count" => one.count = number(),
            other => panic!("{other} in {line}"),
        }
    }
    all
}

/// What holds of every histogram.
fn sound(all: &Histograms, members: usize) {
    assert_eq!(all.len(), members, "{all:?}");
    for (slot, one) in all {
        let (bounds, counts): (Vec<f64>, Vec<u64>) = one.buckets.iter().copied().unzip();
        assert!(bounds.is_sorted_by(|a, b| a < b), "slot {slot}: {bounds:?}");
        assert!(counts.is_sorted(), "slot {slot}: {counts:?}");
        assert_eq!(bounds.last(), Some(&f64::INFINITY), "slot {slot}");
        assert_eq!(counts.last(), Some(&one.count), "slot {slot}");
        assert!(bounds[0] < 1e-5 && bounds[bounds.len() - 2] > 10.0);
        assert_eq!(one.count == 0, one.sum == 0.0, "slot {slot}: {one:?}");
        // No sum is below what the buckets say at least.
        let before = [(0.0, 0)].into_iter().chain(one.buckets.iter().copied());
        let least: f64 = before
            .zip(&one.buckets)
            .map(|((low, fewer), (_, more))| low * (more - fewer) as f64)
            .sum();
        assert!(
            one.sum >= least,
            "slot {slot}: {one:?} is less than {least}"
        );
    }
}

/// Those of reads and of writes.
fn both(rig: &Rig) -> [Histograms; 2] {
    let text = rig.ask("GET", "/metrics");
    ["read", "write"].map(|what| {
        let family = format!("strake_member_{what}_latency_seconds");
        let line = format!("# TYPE {family} histogram\n");
        assert_eq!(text.matches(&line).count(), 1, "{text}");
        histograms(&text, &family)
    })
}

/// What JSON has of a member's reads or writes begins where the metrics are; it may have later
/// ones, too.
fn goes_on_from(json: &Value, metric: &Histogram) {
    let number = |value: &Value| value.as_u64().expect("a number");
    let count = number(&json["count"]);
    assert!(count >= metric.count, "{json} {metric:?}");
    assert!(number(&json["max_ns"]) <= number(&json["sum_ns"]), "{json}");
    assert!(json["recent"]["p50_us"].is_u64(), "{json}");
    let buckets = json["buckets"].as_array().expect("buckets");
    assert_eq!(buckets.len() + 1, metric.buckets.len());
    for (bucket, (le, least)) in buckets.iter().zip(&metric.buckets) {
        let seconds = number(&bucket["below_ns"]) as f64 / 1e9;
        assert!((seconds - le).abs() < 1e-12, "{bucket} {le}");
        let below = number(&bucket["count"]);
        assert!((*least..=count).contains(&below), "{bucket} {least}");
    }
}

#[test]
fn each_member_has_histograms_that_real_reads_and_writes_raise() {
    let mut rig = Rig::new();
    rig.run(&["show", "data", "--latency"])
        .refused(1, "no-daemon");
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", &["--export", "nbd"], &devices).ok();
    let commands: Vec<String> = (0..64)
        .flat_map(|n| {
            let at = n * MIB / 4;
            [
                format!("write -P 7 {at} 64k"),
                format!("read -P 7 {at} 64k"),
            ]
        })
        .collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let before = both(&rig);
    before.iter().for_each(|all| sound(all, 3));
    if rig.qemu_io("data", &commands).is_none() {
        return;
    }
    // Shards tell once in a second.
    let mut after = both(&rig);
    rig.until("every member to tell of reads and writes", || {
        after = both(&rig);
        let rose = |what: usize, slot: u64| after[what][&slot].count > before[what][&slot].count;
        (0..3).all(|slot| rose(0, slot) && rose(1, slot))
    });
    after.iter().for_each(|all| sound(all, 3));

    let told = rig.run(&["show", "data", "--latency"]).ok().json();
    let members = told["members"].as_array().expect("members");
    assert_eq!((told["name"].as_str(), members.len()), (Some("data"), 3));
    for (member, slot) in members.iter().zip(0..) {
        assert_eq!(member["slot"], slot);
        assert_eq!(member["device"], devices[slot as usize]);
        goes_on_from(&member["reads"], &after[0][&slot]);
        goes_on_from(&member["writes"], &after[1][&slot]);
    }
    let text = rig.run_command(rig.command().args(["show", "data", "--latency"]));
    let out = text.ok().out;
    for word in ["reads", "writes", "LONGEST", &devices[2]] {
        assert!(out.contains(word), "{word} in {out}");
    }
    for wrong in [
        &["show", "--latency"][..],
        &["show", "data", "--latency", "--wear"],
    ] {
        assert_eq!(rig.run(wrong).code, 2, "{wrong:?}");
    }
    rig.run(&["show", "other", "--latency"])
        .refused(3, "array-not-found");
}

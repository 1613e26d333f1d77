//! Findings about drives: how they are plugged in, and how they go together.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::FindingJson;
use crate::commands::doctor::{Seat, about};
use crate::common::events::Severity;
use crate::common::size;
use crate::drives::machine::traits::{Lanes, Link};

pub(super) fn check(seats: &[Seat]) -> Vec<FindingJson> {
    let mut found = Vec::new();
    for seat in seats {
        found.extend(seat.traits.links.iter().filter_map(|one| link(seat, one)));
        found.extend(cache(seat));
        found.extend(unit(seat));
        found.extend(placement(seat));
        if seat.traits.discards == Some(false) {
            let what = "it takes no discards: what is trimmed on the array is not freed on it";
            let cure = "replace it with a drive that takes them, or count on its write \
                        amplification (strake show NAME --wear)";
            found.push(about(
                seat,
                "deallocate",
                Severity::Info,
                what.to_owned(),
                cure.to_owned(),
            ));
        }
    }
    let mut arrays: BTreeMap<&str, Vec<&Seat>> = BTreeMap::new();
    for seat in seats {
        arrays.entry(&seat.array).or_default().push(seat);
    }
    for (array, seats) in arrays {
        found.extend(nodes(array, &seats));
        found.extend(firmware(array, &seats));
    }
    found
}

/// Slower than its two ends can be, or than the drive can be.
fn link(seat: &Seat, link: &Link) -> Option<FindingJson> {
    let below = |now: Lanes, most: Lanes| now.gt_per_s < most.gt_per_s || now.width < most.width;
    let both = link.port.map_or(link.drive, |port| Lanes {
        gt_per_s: link.drive.gt_per_s.min(port.gt_per_s),
        width: link.drive.width.min(port.width),
    });
    let Link {
        address,
        now,
        drive,
        ..
    } = link;
    if below(*now, both) {
        let what = format!("its PCIe link ({address}) runs at {now}, and both ends can do {both}");
        let cure = "plug the drive in anew, then look at its connector, cable or riser; the \
                    kernel's log may have errors of the link (dmesg, AER)";
        return Some(about(
            seat,
            "pcie-link",
            Severity::Warning,
            what,
            cure.to_owned(),
        ));
    }
    below(*now, *drive).then(|| {
        let what = format!(
            "its PCIe link ({address}) runs at {now}, which is all that its slot can do; the drive \
             can do {drive}"
        );
        let cure = "put it in a faster slot, if its speed matters";
        about(seat, "pcie-link", Severity::Info, what, cure.to_owned())
    })
}

fn cache(seat: &Seat) -> Option<FindingJson> {
    let name = &seat.traits.name;
    let kernel = seat.traits.write_cache.as_deref()?;
    match (kernel, seat.traits.has_volatile_cache) {
        ("write through", Some(true)) => Some(about(
            seat,
            "volatile-cache",
            Severity::Critical,
            "the drive says that it has a volatile write cache, and the kernel takes it for one \
             without: nothing is flushed, and a power cut may take what was acknowledged"
                .to_owned(),
            format!(
                "echo 'write back' > /sys/block/{name}/queue/write_cache, and start the array \
                 anew; unless the cache is switched off in the drive"
            ),
        )),
        ("write back", _) => Some(about(
            seat,
            "volatile-cache",
            Severity::Info,
            "it has a volatile write cache: what must be durable waits for its flash, and after a \
             reset it is out of the array until a partial rebuild is over"
                .to_owned(),
            "use drives with power-loss protection where latency matters".to_owned(),
        )),
        _ => None,
    }
}

/// Writes of whole strips that are no whole units.
fn unit(seat: &Seat) -> Option<FindingJson> {
    let (unit, strip) = (seat.traits.granularity_bytes?, seat.strip_bytes);
    if unit <= 4096 || strip == 0 || strip.is_multiple_of(unit) {
        return None;
    }
    let what = format!(
        "it writes in units of {}, and strips have {}: each write of a strip rewrites a whole unit",
        size::bytes(unit),
        size::bytes(strip)
    );
    let array = &seat.array;
    let cure = match unit <= 1 << 20 {
        true => format!("strake restripe {array} --strip {}", size::exact(unit)),
        false => "use drives with units of 1 MiB or less: strips are no larger".to_owned(),
    };
    Some(about(
        seat,
        "indirection-unit",
        Severity::Warning,
        what,
        cure,
    ))
}

/// What of an array's writes its placement handles keep apart.
fn placement(seat: &Seat) -> Option<FindingJson> {
    let handles = seat.traits.placement_handles?;
    let (apart, cure) = match (seat.traits.is_partition, handles) {
        (_, 0) => return None,
        (true, _) => (
            "none is used, because the kernel offers none for a partition",
            "make the whole drive a member (strake replace)",
        ),
        (false, 1) => (
            "nothing is kept apart",
            "make its namespace anew, with 4 placement handles",
        ),
        (false, 2) => (
            "what a rebuild writes is kept apart from all else",
            "for the log and parity, too, make its namespace anew, with 4 placement handles",
        ),
        (false, 3) => (
            "what a rebuild writes and the log are kept apart from data and parity",
            "for parity, too, make its namespace anew, with 4 placement handles",
        ),
        (false, _) => (
            "data, parity, the log and what a rebuild writes are kept apart",
            "nothing is to be done",
        ),
    };
    let what = format!("placement handles: {handles}; {apart}");
    Some(about(
        seat,
        "placement-handles",
        Severity::Info,
        what,
        cure.to_owned(),
    ))
}

/// A finding about an array.
fn of_array(
    array: &str,
    check: &str,
    severity: Severity,
    found: String,
    cure: &str,
) -> FindingJson {
    FindingJson {
        check: check.to_owned(),
        severity,
        array: Some(array.to_owned()),
        found,
        cure: cure.to_owned(),
        ..FindingJson::default()
    }
}

fn nodes(array: &str, seats: &[&Seat]) -> Option<FindingJson> {
    let nodes: BTreeSet<u32> = seats.iter().filter_map(|s| s.traits.numa_node).collect();
    if nodes.len() < 2 {
        return None;
    }
    let on = |node: &u32| {
        let on = seats.iter().filter(|s| s.traits.numa_node == Some(*node));
        let on: Vec<&str> = on.map(|seat| seat.device.as_str()).collect();
        format!("node {node}: {}", on.join(", "))
    };
    let on: Vec<String> = nodes.iter().map(on).collect();
    let what = format!(
        "its drives are on {} NUMA nodes ({})",
        nodes.len(),
        on.join("; ")
    );
    let cure = "put the drives of one array on one node, where the slots allow it: data of the \
                others crosses the link between the processors";
    Some(of_array(array, "numa", Severity::Info, what, cure))
}

fn firmware(array: &str, seats: &[&Seat]) -> Vec<FindingJson> {
    let mut models: BTreeMap<&str, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for seat in seats {
        let traits = &seat.traits;
        if let (Some(model), Some(firmware)) = (&traits.model, &traits.firmware) {
            let of = models
                .entry(model)
                .or_default()
                .entry(firmware)
                .or_default();
            of.push(&seat.device);
        }
    }
    let mixed = models.into_iter().filter(|(_, all)| all.len() > 1);
    let one = |(model, all): (&str, BTreeMap<&str, Vec<&str>>)| {
        let each = all
            .iter()
            .map(|(firmware, on)| format!("{firmware}: {}", on.join(", ")));
        let each = each.collect::<Vec<_>>().join("; ");
        let what = format!("drives of the model {model} have different firmware ({each})");
        let cure = "bring all of them to the newest of their maker, a drive at a time (nvme \
                    fw-download, nvme fw-commit)";
        of_array(array, "firmware", Severity::Warning, what, cure)
    };
    mixed.map(one).collect()
}

#[cfg(test)]
mod tests {
    use crate::drives::machine::traits::Traits;

    use super::*;

    fn lanes(gt_per_s: f64, width: u32) -> Lanes {
        Lanes { gt_per_s, width }
    }

    fn seat(slot: u8, traits: Traits) -> Seat {
        Seat {
            array: "data".to_owned(),
            strip_bytes: 65536,
            slot: Some(slot),
            device: format!("/dev/nvme{slot}n1"),
            traits,
            health: None,
        }
    }

    fn good() -> Traits {
        Traits {
            name: "nvme0n1".to_owned(),
            model: Some("M".to_owned()),
            firmware: Some("1".to_owned()),
            numa_node: Some(0),
            links: vec![Link {
                address: "0000:01:00.0".to_owned(),
                now: lanes(16.0, 4),
                drive: lanes(16.0, 4),
                port: Some(lanes(32.0, 16)),
            }],
            write_cache: Some("write through".to_owned()),
            has_volatile_cache: Some(false),
            granularity_bytes: Some(16384),
            discards: Some(true),
            placement_handles: Some(0),
            is_partition: false,
        }
    }

    fn checks(change: impl Fn(&mut Traits)) -> Vec<(String, Severity)> {
        let mut other = good();
        change(&mut other);
        let found = check(&[seat(0, good()), seat(1, other)]);
        found.into_iter().map(|f| (f.check, f.severity)).collect()
    }

    fn one(check: &str, severity: Severity) -> Vec<(String, Severity)> {
        vec![(check.to_owned(), severity)]
    }

    #[test]
    fn drives_that_go_together_have_no_findings_and_each_difference_has_one() {
        use Severity::{Critical, Info, Warning};
        assert_eq!(checks(|_| {}), []);
        assert_eq!(
            checks(|t| t.links[0].now.width = 2),
            one("pcie-link", Warning)
        );
        assert_eq!(
            checks(|t| t.links[0].now.gt_per_s = 8.0),
            one("pcie-link", Warning)
        );
        let slow_slot = |t: &mut Traits| {
            t.links[0].port = Some(lanes(8.0, 16));
            t.links[0].now.gt_per_s = 8.0;
        };
        assert_eq!(checks(slow_slot), one("pcie-link", Info));
        assert_eq!(checks(|t| t.numa_node = Some(1)), one("numa", Info));
        assert_eq!(
            checks(|t| t.firmware = Some("2".to_owned())),
            one("firmware", Warning)
        );
        let other_model = |t: &mut Traits| {
            (t.model, t.firmware) = (Some("N".to_owned()), Some("2".to_owned()));
        };
        assert_eq!(checks(other_model), []);
        assert_eq!(
            checks(|t| t.discards = Some(false)),
            one("deallocate", Info)
        );
        assert_eq!(
            checks(|t| t.granularity_bytes = Some(1 << 17)),
            one("indirection-unit", Warning)
        );
        for handles in [1, 2, 3, 4, 8] {
            let has = |t: &mut Traits| t.placement_handles = Some(handles);
            assert_eq!(checks(has), one("placement-handles", Info));
        }
        let back = |t: &mut Traits| t.write_cache = Some("write back".to_owned());
        assert_eq!(checks(back), one("volatile-cache", Info));
        assert_eq!(
            checks(|t| t.has_volatile_cache = Some(true)),
            one("volatile-cache", Critical)
        );
        // What is not known is no finding.
        assert_eq!(checks(|t| *t = Traits::default()), []);
    }

    #[test]
    fn placement_handles_are_told_with_what_they_keep_apart() {
        for (handles, is_partition, apart) in [
            (1, false, "1; nothing is kept apart"),
            (2, false, "2; what a rebuild writes is kept apart"),
            (
                4,
                false,
                "4; data, parity, the log and what a rebuild writes",
            ),
            (8, true, "8; none is used"),
        ] {
            let placed = Traits {
                placement_handles: Some(handles),
                is_partition,
                ..good()
            };
            let found = check(&[seat(1, placed)]).remove(0).found;
            assert!(
                found.contains(&format!("placement handles: {apart}")),
                "{found}"
            );
        }
    }

    #[test]
    fn a_finding_names_the_drive_and_both_speeds() {
        let mut slow = good();
        slow.links[0].now = lanes(2.5, 1);
        let found = check(&[seat(7, slow)]).remove(0);
        assert_eq!(
            (found.slot, found.device.as_deref()),
            (Some(7), Some("/dev/nvme7n1"))
        );
        assert!(found.found.contains("2.5 GT/s x1") && found.found.contains("16 GT/s x4"));
    }
}

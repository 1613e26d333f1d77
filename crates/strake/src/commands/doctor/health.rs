//! Findings about the health of drives: what their SMART logs say.

use crate::api::FindingJson;
use crate::commands::doctor::{Seat, about};
use crate::common::events::Severity;
use crate::common::size;
use crate::daemon::state::wear::WORN_PERCENT;

/// Where a drive does not say itself from where on it is too warm, °C.
const WARM_C: i32 = 75;
/// The spare capacity is nearly used so far above the threshold of the drive, per cent.
const SPARE_MARGIN_PERCENT: u8 = 10;

pub(super) fn check(seats: &[Seat]) -> Vec<FindingJson> {
    seats.iter().flat_map(of).collect()
}

fn of(seat: &Seat) -> Vec<FindingJson> {
    let Some(health) = &seat.health else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut say = |check: &str, severity, what: String, cure: String| {
        found.push(about(seat, check, severity, what, cure));
    };
    let array = &seat.array;
    let replace = match seat.slot {
        Some(slot) => format!("strake replace {array} {slot} DEV, and take the drive out"),
        None => format!("put another spare in its place: strake add {array} DEV"),
    };
    if !health.warnings.is_empty() {
        say(
            "drive-warning",
            Severity::Critical,
            format!("the drive warns: {}", health.warnings.join(", ")),
            replace.clone(),
        );
    }
    let used = health.percentage_used;
    if used >= WORN_PERCENT {
        let what = format!("the drive has used {used} % of its endurance");
        say("drive-worn", Severity::Warning, what, replace.clone());
    }
    let (spare, threshold) = (
        health.available_spare_percent,
        health.spare_threshold_percent,
    );
    // Below the threshold the drive warns itself.
    let near = threshold > 0 && spare >= threshold;
    if near && spare < threshold.saturating_add(SPARE_MARGIN_PERCENT) {
        let what = format!(
            "the drive has {spare} % of its spare capacity left, and warns below {threshold} %"
        );
        say("drive-spare", Severity::Warning, what, replace.clone());
    }
    let warm = health.warm_from_c.unwrap_or(WARM_C);
    if health.temperature_c >= warm {
        let what = format!(
            "the drive has {} °C; from {warm} °C on it is too warm",
            health.temperature_c
        );
        let cure = "look at fans, dust and air flow of the machine".to_owned();
        say("drive-warm", Severity::Warning, what, cure);
    }
    if health.media_errors > 0 {
        let errors = usize::try_from(health.media_errors).unwrap_or(usize::MAX);
        let what = format!(
            "the drive counts {} of its media since it was made",
            size::count(errors, "error")
        );
        let cure = format!(
            "strake scrub {array} finds what it cannot read; replace the drive where the count \
             grows (strake show {array} --wear)"
        );
        say("drive-media", Severity::Info, what, cure);
    }
    found
}

#[cfg(test)]
mod tests {
    use crate::drives::machine::health::Health;
    use crate::drives::machine::traits::Traits;

    use super::*;

    fn seat(health: Option<Health>) -> Seat {
        Seat {
            array: "data".to_owned(),
            strip_bytes: 65536,
            slot: Some(3),
            device: "/dev/nvme3n1".to_owned(),
            traits: Traits::default(),
            health,
        }
    }

    fn good() -> Health {
        Health {
            temperature_c: 40,
            available_spare_percent: 100,
            spare_threshold_percent: 10,
            percentage_used: 5,
            ..Health::default()
        }
    }

    #[test]
    fn a_drive_that_is_well_has_no_findings_and_each_ill_has_one_with_its_value() {
        use Severity::{Critical, Info, Warning};
        assert_eq!(check(&[seat(None), seat(Some(good()))]), []);
        let one = |change: fn(&mut Health)| {
            let mut health = good();
            change(&mut health);
            let found = check(&[seat(Some(health))]);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(
                (found[0].slot, found[0].array.as_deref()),
                (Some(3), Some("data"))
            );
            let finding = found.into_iter().next().expect("one");
            (finding.check, finding.severity, finding.found)
        };
        for (found, check, severity, value) in [
            (
                one(|h| h.warnings = vec!["media read only"]),
                "drive-warning",
                Critical,
                "media read only",
            ),
            (
                one(|h| h.percentage_used = 90),
                "drive-worn",
                Warning,
                "90 %",
            ),
            (
                one(|h| h.available_spare_percent = 19),
                "drive-spare",
                Warning,
                "19 %",
            ),
            (
                one(|h| h.temperature_c = 75),
                "drive-warm",
                Warning,
                "75 °C",
            ),
            (
                one(|h| (h.temperature_c, h.warm_from_c) = (60, Some(60))),
                "drive-warm",
                Warning,
                "from 60 °C",
            ),
            (one(|h| h.media_errors = 2), "drive-media", Info, "2 errors"),
        ] {
            assert_eq!((found.0.as_str(), found.1), (check, severity));
            assert!(found.2.contains(value), "{found:?}");
        }
        let mut below = good();
        (below.available_spare_percent, below.warnings) = (9, vec!["available spare below"]);
        assert_eq!(
            check(&[seat(Some(below))]).len(),
            1,
            "the drive says it itself"
        );
    }
}

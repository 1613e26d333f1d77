//! What an array of some shape pays for each write on such devices, in words: advice, never a
//! refusal.
//!
//! Two things cost: writes below a member's write granularity, which the drive makes whole by
//! reading and writing the rest of the unit again (parity pays it, too), and writes that are no
//! whole stripes, for which old data and old parity are read.
//!
//! Invariant: nothing is said of what is not known (a granularity of 0). Deliberately absent:
//! deciding (`create`, `limits`).

use std::path::Path;

use strake_engine::Geometry;
use strake_foresight::wear::strip_cost;

use crate::common::size;

/// What sequential writers ask for at most in one request, as kernels and databases are set.
const REQUEST_BYTES: u64 = 1 << 20;

/// What an array of this shape, with strips of so many bytes, pays on members that write in units
/// of `granularity_bytes`.
pub(crate) fn of_shape(
    geometry: &Geometry,
    strip_bytes: u64,
    granularity_bytes: u32,
) -> Vec<String> {
    let unit = u64::from(granularity_bytes);
    let parity = geometry.m > 0 && !geometry.mirrored();
    let mut notes = Vec::new();
    if unit > geometry.block {
        let paid = match parity {
            true => "on the member with the data and on each with parity",
            false => "on each member that has them",
        };
        notes.push(format!(
            "blocks of {} on members that write in units of {}: random writes below that cost \
             up to {} times their bytes, {paid}",
            size::bytes(geometry.block),
            size::bytes(unit),
            unit.div_ceil(geometry.block)
        ));
    }
    if unit > 0 && !strip_bytes.is_multiple_of(unit) {
        notes.push(format!(
            "strips of {} are no multiple of the members' write granularity, {}: also whole \
             stripes cost up to {} times their bytes: a write amplification of {:.0} where a drive \
             joins neighbouring strips to {:.2} where it does not, before its own collection",
            size::bytes(strip_bytes),
            size::bytes(unit),
            times(unit, strip_bytes),
            strip_cost(strip_bytes, unit).low,
            strip_cost(strip_bytes, unit).high
        ));
    }
    let stripe = geometry.k as u64 * strip_bytes;
    let why = match stripe {
        _ if !parity => None,
        more if more > REQUEST_BYTES => Some(format!("more than {}", size::bytes(REQUEST_BYTES))),
        odd if !odd.is_power_of_two() => Some("no power of two".to_owned()),
        _ => None,
    };
    if let Some(why) = why {
        notes.push(format!(
            "a full stripe is {} of data ({} columns of {}), {why}: the requests of most \
             sequential writers do not end with a stripe, and its rest costs a read-modify-write",
            size::bytes(stripe),
            geometry.k,
            size::bytes(strip_bytes)
        ));
    }
    notes
}

/// What members of different sizes leave unused: of each only as much as the smallest has.
pub(crate) fn of_sizes(members: &[(&std::path::PathBuf, u64)]) -> Option<String> {
    let (small, least) = members.iter().min_by_key(|(_, bytes)| *bytes)?;
    let larger = members.iter().filter(|(_, bytes)| *bytes / 4 * 3 > *least);
    let larger: Vec<String> = larger
        .map(|(path, bytes)| format!("{} ({})", path.display(), size::bytes(*bytes)))
        .collect();
    if larger.is_empty() {
        return None;
    }
    Some(format!(
        "of each member as much is used as the smallest has, {} with {}: the rest of {} is not",
        small.display(),
        size::bytes(*least),
        larger.join(", ")
    ))
}

/// What it means that two of an array's devices lie on one drive.
pub(crate) fn of_one_drive(first: &Path, second: &Path) -> String {
    format!(
        "{} and {} lie on one drive: both members are lost when it fails",
        first.display(),
        second.display()
    )
}

/// What it means that anybody may read a member that is a file; `mode` is the file's.
pub(crate) fn of_readable(path: &Path, mode: u32) -> Option<String> {
    (mode & 0o044 != 0).then(|| {
        let path = path.display();
        format!(
            "{path} has mode {:04o}: other users of this machine can read the array's data \
             (chmod 600 {path})",
            mode & 0o7777
        )
    })
}

/// What a device pays that joins an array with strips of so many bytes and members that write in
/// units of `members_bytes`.
pub(crate) fn of_joining(
    device: &str,
    granularity_bytes: u32,
    members_bytes: u32,
    strip_bytes: u64,
) -> Option<String> {
    let unit = u64::from(granularity_bytes);
    if unit == 0 {
        return None;
    }
    let units = size::bytes(unit);
    if !strip_bytes.is_multiple_of(unit) {
        return Some(format!(
            "{device} writes in units of {units}, strips are {}: all that is written to it costs \
             up to {} times its bytes",
            size::bytes(strip_bytes),
            times(unit, strip_bytes)
        ));
    }
    let coarser = members_bytes > 0 && granularity_bytes > members_bytes;
    coarser.then(|| {
        format!(
            "{device} writes in units of {units}, the members in units of {}: random writes below \
             {units} cost it up to {} times what they cost these",
            size::bytes(u64::from(members_bytes)),
            granularity_bytes.div_ceil(members_bytes)
        )
    })
}

/// Units that a strip touches at most, in strips: what is written for each byte.
fn times(unit: u64, strip: u64) -> u64 {
    match strip < unit {
        true => unit.div_ceil(strip),
        false => 2,
    }
}

#[cfg(test)]
mod tests {
    use strake_format::Level;

    use super::*;

    const KIB: u32 = 1 << 10;

    fn shape(level: Level, k: usize, m: usize, block: u64) -> Geometry {
        Geometry {
            level,
            groups: 1,
            per_row: 1,
            width: k + m,
            k,
            m,
            fixed: 0,
            strip: 64 << 10,
            block,
            band: 1,
            rows: 1,
            region_rows: 1,
            old_shape: None,
        }
    }

    fn told(geometry: &Geometry, strip: u32, unit: u32) -> String {
        of_shape(geometry, u64::from(strip), unit).join("\n")
    }

    #[test]
    fn blocks_below_the_write_granularity_are_told_with_what_they_cost() {
        let raid_5 = |block| shape(Level::Raid5, 4, 1, block);
        let said = told(&raid_5(4096), 64 * KIB, 16 * KIB);
        assert!(
            said.contains("up to 4 times") && said.contains("with parity"),
            "{said}"
        );
        let said = told(&raid_5(512), 64 * KIB, 64 * KIB);
        assert!(said.contains("up to 128 times"), "{said}");
        let mirror = shape(Level::Raid1, 1, 1, 4096);
        let said = told(&mirror, 64 * KIB, 16 * KIB);
        assert!(said.contains("each member that has them"), "{said}");
        for unit in [0, 512, 4096] {
            assert_eq!(told(&raid_5(4096), 64 * KIB, unit), "");
        }
    }

    #[test]
    fn a_strip_that_is_no_multiple_of_the_granularity_is_told_with_its_amplification() {
        let five = shape(Level::Raid5, 4, 1, 4096);
        let said = told(&five, 16 * KIB, 64 * KIB);
        assert!(
            said.contains("amplification of 1 ") && said.contains("to 4.00"),
            "{said}"
        );
        // A granularity that is no power of two: 64 KiB on units of 48 KiB that begin on 16 KiB.
        let said = told(&five, 64 * KIB, 48 * KIB);
        assert!(said.contains("to 1.50"), "{said}");
        assert!(!told(&five, 64 * KIB, 16 * KIB).contains("amplification"));
    }

    #[test]
    fn stripes_that_requests_do_not_fill_are_told_where_there_is_parity() {
        let of = |level, k, m, strip| told(&shape(level, k, m, 4096), strip, 0);
        let odd = of(Level::Raid5, 3, 1, 64 * KIB);
        assert!(
            odd.contains("192 KiB") && odd.contains("no power of two"),
            "{odd}"
        );
        let large = of(Level::Raid6, 16, 2, 128 * KIB);
        assert!(large.contains("more than 1 MiB"), "{large}");
        assert_eq!(of(Level::Raid5, 4, 1, 256 * KIB), "");
        assert_eq!(of(Level::Raid0, 3, 0, 64 * KIB), "");
        assert_eq!(of(Level::Raid10, 1, 2, 64 * KIB), "");
    }

    #[test]
    fn a_device_that_is_coarser_than_strips_or_members_is_told() {
        let of = |unit, members, strip: u32| {
            of_joining("/d", unit, members, u64::from(strip)).unwrap_or_default()
        };
        let said = of(64 * KIB, 16 * KIB, 16 * KIB);
        assert!(
            said.contains("all that is written") && said.contains("up to 4 times"),
            "{said}"
        );
        let said = of(64 * KIB, 16 * KIB, 64 * KIB);
        assert!(
            said.contains("random writes") && said.contains("up to 4 times"),
            "{said}"
        );
        for (unit, members) in [(0, 16 * KIB), (16 * KIB, 16 * KIB), (512, 0), (64 * KIB, 0)] {
            assert_eq!(of(unit, members, 64 * KIB), "");
        }
    }
}

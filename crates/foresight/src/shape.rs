//! A level over drives: columns and groups, and what each request asks of the drives.
//!
//! A mirror is the code with one data column. Requests are aligned to their size. What one lost
//! member changes is counted over all places that it may have in a stripe, each equally likely.

use strake_format::{Level, ShapeError};

use crate::load::Load;

/// The block that is read and written at least, bytes.
const BLOCK: f64 = 4096.0;
/// Bytes of a record of the stripe log beside the partial syndrome, on each member that has one:
/// measured with groups of records as they form at 32 requests in flight
/// (`benchmarks/record/2026-11-24-epyc-2cpu-vm-system.md`).
const RECORD: f64 = 819.0;
/// Smallest and largest strip, bytes.
const STRIPS: (u64, u64) = (4096, 1 << 20);

/// What members serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All.
    Optimal,
    /// One is missing.
    Degraded,
    /// One is being rebuilt, which takes this share of the time of the drives: at least, at most.
    Rebuilding,
}

/// Level, members, group and strip, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The level.
    pub level: Level,
    /// Members, without spares.
    pub members: u8,
    /// Members of one group.
    pub group_size: u8,
    /// Bytes of a strip.
    pub strip: u64,
    /// Drives that wait.
    pub spares: u8,
    /// Whether the stripe log closes the write hole (the policy `closed`).
    pub log: bool,
}

/// Why there is no such shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// Members and groups.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A strip.
    #[error("a strip of {0} bytes is not a power of two from 4 KiB to 1 MiB")]
    Strip(u64),
    /// More spares than an array has.
    #[error("{0} spares: an array keeps at most 16")]
    Spares(u8),
    /// A group size is missing.
    #[error("level {0} is made of groups: give the members of one")]
    NoGroup(Level),
}

impl Shape {
    /// A shape; the strip is the product's default unless given: the largest that keeps the data of
    /// a stripe at 1 MiB, not below the drives' unit, not below 16 KiB.
    ///
    /// # Errors
    /// There is no such shape.
    pub fn new(
        level: Level,
        members: u8,
        group_size: Option<u8>,
        strip: Option<u64>,
        unit: u64,
    ) -> Result<Shape, Impossible> {
        let group_size = match (level, group_size) {
            (_, Some(group)) => group,
            (Level::Raid10, None) => 2,
            (level, None) if level.is_grouped() => return Err(Impossible::NoGroup(level)),
            (_, None) => members,
        };
        level.check_shape(members, group_size)?;
        let k = u64::from(level.data_count(group_size));
        let strip = strip.unwrap_or_else(|| default_strip(k, unit));
        if !strip.is_power_of_two() || !(STRIPS.0..=STRIPS.1).contains(&strip) {
            return Err(Impossible::Strip(strip));
        }
        Ok(Shape {
            level,
            members,
            group_size,
            strip,
            spares: 0,
            log: level.has_parity(),
        })
    }

    /// The same with so many spares.
    ///
    /// # Errors
    /// More than an array keeps.
    pub fn with_spares(self, spares: u8) -> Result<Shape, Impossible> {
        if spares > 16 {
            return Err(Impossible::Spares(spares));
        }
        Ok(Shape { spares, ..self })
    }

    /// Data columns of a group.
    pub fn data(&self) -> f64 {
        f64::from(self.level.data_count(self.group_size))
    }

    /// Parity columns of a group; of a mirror the further copies.
    pub fn parities(&self) -> f64 {
        f64::from(self.group_size) - self.data()
    }

    /// Members of a group that may be lost.
    pub fn tolerance(&self) -> u8 {
        self.level.tolerance(self.group_size)
    }

    /// Groups.
    pub fn groups(&self) -> f64 {
        f64::from(self.members) / f64::from(self.group_size)
    }

    /// Bytes of data of a whole stripe of one group.
    pub fn stripe(&self) -> f64 {
        self.data() * self.strip as f64
    }

    /// Data of all bytes.
    pub fn efficiency(&self) -> f64 {
        self.data() / f64::from(self.group_size)
    }

    /// As `RAID 60, 24 drives in groups of 12 (10+2), strips of 128 KiB`.
    pub fn describe(&self) -> String {
        let groups = match self.level.is_grouped() {
            true => format!(" in groups of {}", self.group_size),
            false => String::new(),
        };
        let code = match self.level.has_parity() {
            true => format!(" ({}+{})", self.data(), self.parities()),
            false => String::new(),
        };
        let spares = match self.spares {
            0 => String::new(),
            1 => ", 1 spare".to_owned(),
            n => format!(", {n} spares"),
        };
        format!(
            "RAID {}, {} drives{groups}{code}, strips of {} KiB{spares}",
            self.level,
            self.members,
            self.strip >> 10
        )
    }
}

/// The strip that the product takes.
fn default_strip(data: u64, unit: u64) -> u64 {
    let largest = (STRIPS.1 / data.max(1)).max(1);
    let largest = 1 << largest.ilog2();
    largest.clamp(unit.next_power_of_two().max(16384), STRIPS.1)
}

/// What one request asks of the drives of its group, all together.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Work {
    /// Reads.
    pub reads: f64,
    /// Bytes of one read.
    pub read_each: f64,
    /// Writes in place.
    pub writes: f64,
    /// Bytes of one write.
    pub write_each: f64,
    /// Bytes of the stripe log, written in order.
    pub log_bytes: f64,
}

/// How a request divides into whole stripes and a rest.
struct Cut {
    /// Whole stripes.
    whole: f64,
    /// Strips that the rest touches, 0 where there is none.
    touched: f64,
    /// Bytes of one piece of the rest.
    piece: f64,
}

fn cut(shape: &Shape, bytes: f64) -> Cut {
    let strip = shape.strip as f64;
    let whole = (bytes / shape.stripe()).floor();
    let rest = bytes - whole * shape.stripe();
    let touched = (rest / strip).ceil();
    Cut {
        whole,
        touched,
        piece: if touched > 0.0 { rest / touched } else { 0.0 },
    }
}

impl Work {
    /// All members serve.
    pub fn optimal(shape: &Shape, load: &Load) -> Work {
        let share = f64::from(load.read_percent) / 100.0;
        Work::read(shape, load).scaled(share) + Work::write(shape, load).scaled(1.0 - share)
    }

    /// A member of the request's group is lost. Without redundancy there is no such state.
    pub fn degraded(shape: &Shape, load: &Load) -> Option<Work> {
        if shape.tolerance() == 0 {
            return None;
        }
        let share = f64::from(load.read_percent) / 100.0;
        let read = Work::read_degraded(shape, load).scaled(share);
        Some(read + Work::write_degraded(shape, load).scaled(1.0 - share))
    }

    fn read(shape: &Shape, load: &Load) -> Work {
        let bytes = load.bytes as f64;
        let pieces = (bytes / shape.strip as f64).ceil();
        Work {
            reads: pieces,
            read_each: bytes / pieces,
            ..Work::default()
        }
    }

    /// The lost strip is made of `k` others; those that the request reads anyway count once.
    fn read_degraded(shape: &Shape, load: &Load) -> Work {
        let (k, g) = (shape.data(), f64::from(shape.group_size));
        let healthy = Work::read(shape, load);
        if load.sequential {
            // Whole stripes: k strips are read, whichever is lost.
            return healthy;
        }
        let cut = cut(shape, load.bytes as f64);
        let of = |touched: f64| touched * (1.0 - touched / g) + touched / g * k;
        let reads = cut.whole * of(k) + of(cut.touched);
        Work { reads, ..healthy }
    }

    fn write(shape: &Shape, load: &Load) -> Work {
        let (k, m) = (shape.data(), shape.parities());
        let bytes = load.bytes as f64;
        if load.sequential {
            // The array gathers what follows each other into whole stripes.
            return Work::whole_stripes(shape, bytes / shape.stripe());
        }
        let cut = cut(shape, bytes);
        let mut work = Work::whole_stripes(shape, cut.whole);
        if cut.touched == 0.0 {
            return work;
        }
        let d = cut.touched;
        if shape.level.has_parity() {
            // Read-modify-write or reconstruct-write, whichever reads less.
            work = work + Work::reads_of((d + m).min(k - d), cut.piece);
            work.log_bytes += shape.log_of_partial(cut.piece);
        }
        work + Work::writes_of(d * (1.0 + if k == 1.0 { m } else { 0.0 }), cut.piece)
            + match shape.level.has_parity() {
                true => Work::writes_of(m, cut.piece),
                false => Work::default(),
            }
    }

    fn write_degraded(shape: &Shape, load: &Load) -> Work {
        let (k, m) = (shape.data(), shape.parities());
        let g = k + m;
        let bytes = load.bytes as f64;
        let survivors = (g - 1.0) / g;
        let stripes = |whole: f64| {
            let work = Work::whole_stripes(shape, whole);
            Work {
                writes: work.writes * survivors,
                ..work
            }
        };
        if load.sequential {
            return stripes(bytes / shape.stripe());
        }
        let cut = cut(shape, bytes);
        let (d, mut work) = (cut.touched, stripes(cut.whole));
        if d == 0.0 {
            return work;
        }
        if !shape.level.has_parity() {
            return work + Work::writes_of((d * g) * survivors, cut.piece);
        }
        // The lost strip is one that is written, one that is not, or parity: without any parity
        // left nothing is read.
        let without = match m {
            1.0 => 0.0,
            _ => (d + m - 1.0).min(k - d),
        };
        let reads = d / g * (k - d) + (k - d) / g * (d + m) + m / g * without;
        work = work + Work::reads_of(reads, cut.piece);
        work = work + Work::writes_of((d + m) * survivors, cut.piece);
        // What a lost strip was to become lies in the log as well.
        work.log_bytes += shape.log_of_partial(cut.piece);
        if shape.log {
            work.log_bytes += d / g * cut.piece * (m + 1.0);
        }
        work
    }

    fn whole_stripes(shape: &Shape, stripes: f64) -> Work {
        let g = f64::from(shape.group_size);
        let records = if shape.log {
            shape.parities() + 1.0
        } else {
            0.0
        };
        // A record names the stripe and a checksum of 4 bytes for each block of 4 KiB.
        let record = 64.0 + g * shape.strip as f64 / BLOCK * 4.0;
        Work {
            writes: stripes * g,
            write_each: if stripes > 0.0 {
                shape.strip as f64
            } else {
                0.0
            },
            log_bytes: stripes * records * record,
            ..Work::default()
        }
    }

    fn reads_of(reads: f64, each: f64) -> Work {
        Work {
            reads,
            read_each: each,
            ..Work::default()
        }
    }

    fn writes_of(writes: f64, each: f64) -> Work {
        Work {
            writes,
            write_each: each,
            ..Work::default()
        }
    }

    fn scaled(self, by: f64) -> Work {
        Work {
            reads: self.reads * by,
            writes: self.writes * by,
            log_bytes: self.log_bytes * by,
            ..self
        }
    }
}

impl Shape {
    fn log_of_partial(&self, piece: f64) -> f64 {
        match self.log {
            true => self.parities() * piece + (self.parities() + 1.0) * RECORD,
            false => 0.0,
        }
    }
}

impl std::ops::Add for Work {
    type Output = Work;

    /// Counts add up, and so do bytes.
    fn add(self, other: Work) -> Work {
        let each = |n: f64, each: f64, more: f64, other: f64| match n + more {
            none if none <= 0.0 => 0.0,
            all => (n * each + more * other) / all,
        };
        Work {
            reads: self.reads + other.reads,
            read_each: each(self.reads, self.read_each, other.reads, other.read_each),
            writes: self.writes + other.writes,
            write_each: each(self.writes, self.write_each, other.writes, other.write_each),
            log_bytes: self.log_bytes + other.log_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(level: Level, members: u8, group: Option<u8>) -> Shape {
        Shape::new(level, members, group, Some(131_072), 16384).expect("a shape")
    }

    fn load(text: &str) -> Load {
        text.parse().expect("a load")
    }

    #[test]
    fn a_small_write_reads_and_writes_data_and_every_parity() {
        for (level, members, m) in [
            (Level::Raid5, 9, 1.0),
            (Level::Raid6, 12, 2.0),
            (Level::Raid7_3, 13, 3.0),
        ] {
            let work = Work::optimal(&shape(level, members, None), &load("rand-write:4K:1"));
            assert_eq!((work.reads, work.writes), (1.0 + m, 1.0 + m));
            assert_eq!(work.write_each, 4096.0);
        }
        // Two of three data strips: the third is read instead of three old ones.
        let narrow = shape(Level::Raid5, 4, None);
        let work = Work::optimal(&narrow, &load("rand-write:256K:1"));
        assert_eq!((work.reads, work.writes), (1.0, 3.0));
    }

    #[test]
    fn whole_stripes_read_nothing() {
        let raid5 = shape(Level::Raid5, 5, None);
        for text in ["rand-write:512K:1", "seq-write:512K:1", "seq-write:4K:1"] {
            let load = load(text);
            let work = Work::optimal(&raid5, &load);
            let amplified = work.writes * work.write_each / load.bytes as f64;
            assert_eq!(work.reads, 0.0, "{text}");
            assert!((amplified - 1.25).abs() < 1e-12, "{text}: {amplified}");
        }
    }

    #[test]
    fn a_mirror_writes_all_copies_and_reads_one() {
        let ten = shape(Level::Raid10, 6, Some(3));
        let write = Work::optimal(&ten, &load("rand-write:4K:1"));
        assert_eq!((write.reads, write.writes), (0.0, 3.0));
        let read = Work::degraded(&ten, &load("rand-read:4K:1")).expect("redundant");
        assert_eq!(read.reads, 1.0);
        let write = Work::degraded(&ten, &load("rand-write:4K:1")).expect("redundant");
        assert!((write.writes - 2.0).abs() < 1e-12);
        let none = shape(Level::Raid0, 4, None);
        assert_eq!(Work::degraded(&none, &load("rand-read:4K:1")), None);
    }

    /// Degraded reads and writes counted place by place.
    #[test]
    fn degraded_work_is_the_mean_over_every_place_of_the_lost_member() {
        for (level, members) in [(Level::Raid5, 8), (Level::Raid6, 12), (Level::Raid7_3, 9)] {
            let shape = super::tests::shape(level, members, None);
            let (k, m) = (shape.data() as usize, shape.parities() as usize);
            let g = k + m;
            let read = Work::degraded(&shape, &load("rand-read:4K:1")).expect("redundant");
            let reads: usize = (0..g).map(|lost| if lost == 0 { k } else { 1 }).sum();
            assert!((read.reads - reads as f64 / g as f64).abs() < 1e-12);
            let write = Work::degraded(&shape, &load("rand-write:4K:1")).expect("redundant");
            let writes: usize = (0..g)
                .map(|lost| 1 + m - usize::from(lost == 0 || lost >= k))
                .sum();
            assert!((write.writes - writes as f64 / g as f64).abs() < 1e-12);
            let reads: usize = (0..g)
                .map(|lost| match lost {
                    0 => k - 1,
                    lost if lost >= k && m == 1 => 0,
                    lost if lost >= k => m.min(k - 1),
                    _ => 1 + m,
                })
                .sum();
            assert!((write.reads - reads as f64 / g as f64).abs() < 1e-12);
        }
        // As measured, 4+1: 1.80 reads and 1.60 writes of a degraded random write, 1.60 reads of a
        // degraded random read (benchmarks/record/2026-11-24-epyc-2cpu-vm-system.md).
        let small = shape(Level::Raid5, 5, None);
        let write = Work::degraded(&small, &load("rand-write:4K:1")).expect("redundant");
        assert!((write.reads - 1.8).abs() < 1e-12 && (write.writes - 1.6).abs() < 1e-12);
        let read = Work::degraded(&small, &load("rand-read:4K:1")).expect("redundant");
        assert!((read.reads - 1.6).abs() < 1e-12);
        // RAID 5: a survivor writes what it wrote before.
        let five = shape(Level::Raid5, 8, None);
        let load = load("rand-write:4K:1");
        let healthy = Work::optimal(&five, &load).writes / 8.0;
        let hurt = Work::degraded(&five, &load).expect("redundant").writes / 7.0;
        assert!((healthy - hurt).abs() < 1e-12);
    }

    #[test]
    fn the_log_is_near_what_was_measured() {
        // 4+1, 4 KiB: 3.381 - 2.000 times 4 KiB; 64 KiB: 3.026 - 1.998 times 64 KiB.
        let five = shape(Level::Raid5, 5, None);
        for (text, measured) in [
            ("rand-write:4K:32", 1.381 * 4096.0),
            ("rand-write:64K:32", 1.028 * 65536.0),
        ] {
            let log = Work::optimal(&five, &load(text)).log_bytes;
            assert!(
                (log / measured - 1.0).abs() < 0.03,
                "{text}: {log} {measured}"
            );
        }
        let whole = Work::optimal(&five, &load("seq-write:512K:16"));
        assert!(whole.log_bytes / 524_288.0 < 0.01);
    }

    #[test]
    fn impossible_shapes_are_refused_and_the_default_strip_is_the_products() {
        let new = |level, members, group| Shape::new(level, members, group, None, 16384);
        assert!(matches!(
            new(Level::Raid6, 3, None),
            Err(Impossible::Shape(_))
        ));
        assert!(matches!(
            new(Level::Raid60, 24, None),
            Err(Impossible::NoGroup(_))
        ));
        assert!(matches!(
            new(Level::Raid60, 24, Some(7)),
            Err(Impossible::Shape(_))
        ));
        let strip = |level, members, unit| {
            let shape = Shape::new(level, members, None, None, unit);
            shape.expect("a shape").strip
        };
        assert_eq!(strip(Level::Raid5, 5, 4096), 262_144);
        assert_eq!(strip(Level::Raid5, 9, 4096), 131_072);
        assert_eq!(strip(Level::Raid6, 64, 65536), 65536);
        assert_eq!(strip(Level::Raid6, 64, 4096), 16384);
        let bad = Shape::new(Level::Raid5, 5, None, Some(3000), 4096);
        assert_eq!(bad, Err(Impossible::Strip(3000)));
        assert!(strip(Level::Raid1, 2, 4096) == 1 << 20);
    }
}

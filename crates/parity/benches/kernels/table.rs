//! Rates, their ceilings, and the table of them.

use crate::buffers::{Pages, strips, strips_mut};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// How much of each column there is, and how much of it one operation takes.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) name: &'static str,
    pub(crate) column_bytes: usize,
    pub(crate) strip_bytes: usize,
    /// Whether kernels run in their form for cold data, too.
    pub(crate) cold: bool,
}

/// Gigabytes per second, in the best round.
pub(crate) fn rate(bytes: usize, rounds: &[f64]) -> f64 {
    let best = rounds.iter().copied().fold(f64::INFINITY, f64::min);
    bytes as f64 / best / 1e9
}

/// How long `repeats` times `work` take.
pub(crate) fn timed(repeats: u32, mut work: impl FnMut()) -> Duration {
    let started = Instant::now();
    for _ in 0..repeats {
        work();
    }
    started.elapsed()
}

/// Seconds of one turn in each of several rounds, for each contender. Each has `budget` for all
/// rounds together. They take turns in every round, so that what else the machine does meets all.
pub(crate) fn rounds(
    budget: Duration,
    contenders: usize,
    mut time: impl FnMut(usize, u32) -> Duration,
) -> Vec<Vec<f64>> {
    const ROUNDS: u32 = 15;
    let mut repeats_for = |contender| {
        time(contender, 1);
        let once = time(contender, 1).max(Duration::from_nanos(20));
        let repeats = budget.as_secs_f64() / f64::from(ROUNDS) / once.as_secs_f64();
        repeats.ceil().max(1.0) as u32
    };
    let repeats: Vec<u32> = (0..contenders).map(&mut repeats_for).collect();
    let mut seconds = vec![Vec::new(); contenders];
    for _ in 0..ROUNDS {
        for (contender, seconds) in seconds.iter_mut().enumerate() {
            let repeats = repeats[contender];
            seconds.push(time(contender, repeats).as_secs_f64() / f64::from(repeats));
        }
    }
    seconds
}

/// GB/s that the same buffers give without arithmetic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ceilings {
    pub(crate) read: f64,
    pub(crate) memcpy: f64,
}

/// The XOR of all words, in as many lanes as keep a baseline CPU's vectors busy.
fn read(bytes: &[u8]) -> u64 {
    const LANES: usize = 16;
    let mut sums = [0u64; LANES];
    for words in bytes.as_chunks::<8>().0.as_chunks::<LANES>().0 {
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum ^= u64::from_ne_bytes(*word);
        }
    }
    sums.into_iter().fold(0, |sum, word| sum ^ word)
}

/// Zeros where nothing is measured.
pub(crate) fn ceilings(data: &[Pages], size: Size, budget: Option<Duration>) -> Ceilings {
    let Some(budget) = budget else {
        return Ceilings {
            read: 0.0,
            memcpy: 0.0,
        };
    };
    let bytes = data.len() * size.column_bytes;
    let sources = strips(data, size.strip_bytes);
    let all_read = rounds(budget, 1, |_, repeats| {
        timed(repeats, || {
            for source in sources.iter().flatten() {
                black_box(read(black_box(source)));
            }
        })
    });
    let mut copies: Vec<Pages> = data.iter().map(|_| Pages::new(size.column_bytes)).collect();
    let mut targets = strips_mut(&mut copies, size.strip_bytes);
    let memcpy = rounds(budget, 1, |_, repeats| {
        timed(repeats, || {
            for (source, target) in sources.iter().flatten().zip(targets.iter_mut().flatten()) {
                target.copy_from_slice(black_box(source));
                black_box(target);
            }
        })
    });
    Ceilings {
        read: rate(bytes, &all_read[0]),
        memcpy: rate(bytes, &memcpy[0]),
    }
}

/// One line of the table.
pub(crate) struct Row {
    pub(crate) code: &'static str,
    pub(crate) operation: String,
    pub(crate) strip: &'static str,
    pub(crate) kernel: String,
    pub(crate) isal: bool,
    pub(crate) rate: f64,
    /// Seconds of a turn in each round.
    pub(crate) rounds: Vec<f64>,
    pub(crate) ceilings: Ceilings,
}

impl Row {
    /// The two stand in the same place of the table.
    fn beside(&self, other: &Row) -> bool {
        let place = |row: &Row| (row.code, row.operation.clone(), row.strip);
        place(self) == place(other)
    }
}

/// Lines that are printed as they come.
#[derive(Default)]
pub(crate) struct Table {
    rows: Vec<Row>,
}

impl Table {
    pub(crate) fn add(&mut self, row: Row) {
        if self.rows.is_empty() {
            println!(
                "{:<11} {:<11} {:<5} {:<16} {:>7}  of read  of memcpy  of ISA-L",
                "code", "operation", "strip", "kernel", "GB/s"
            );
        }
        let Ceilings { read, memcpy } = row.ceilings;
        self.rows.push(row);
        let row = &self.rows[self.rows.len() - 1];
        let isal = match self.of_isal(row) {
            Some(share) => format!("{share:.2} x"),
            None => String::new(),
        };
        println!(
            "{:<11} {:<11} {:<5} {:<16} {:>7.1} {:>6.0} %  {:>7.0} %  {isal:>8}",
            row.code,
            row.operation,
            row.strip,
            row.kernel,
            row.rate,
            100.0 * row.rate / read,
            100.0 * row.rate / memcpy,
        );
    }

    /// The rate as a multiple of the best that ISA-L has in the same place: the median over rounds.
    fn of_isal(&self, row: &Row) -> Option<f64> {
        let beside = self
            .rows
            .iter()
            .filter(|other| other.isal && other.beside(row));
        let best = beside.max_by(|a, b| a.rate.total_cmp(&b.rate))?;
        let pairs = best.rounds.iter().zip(&row.rounds);
        let mut multiples: Vec<f64> = pairs.map(|(theirs, ours)| theirs / ours).collect();
        multiples.sort_by(f64::total_cmp);
        (!row.isal).then(|| multiples[multiples.len() / 2])
    }

    /// All of it, rates in GB/s.
    pub(crate) fn json(&self) -> serde_json::Value {
        let row = |row: &Row| {
            serde_json::json!({
                "code": row.code, "operation": row.operation, "strip": row.strip,
                "kernel": row.kernel, "gb_s": row.rate, "read_gb_s": row.ceilings.read,
                "memcpy_gb_s": row.ceilings.memcpy, "of_isal": self.of_isal(row),
            })
        };
        serde_json::json!({ "rows": self.rows.iter().map(row).collect::<Vec<_>>() })
    }
}

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

/// Gigabytes per second of the best of several rounds of `work`, which reads `bytes`.
pub(crate) fn rate(bytes: usize, budget: Duration, mut work: impl FnMut()) -> f64 {
    work();
    let started = Instant::now();
    work();
    let once = started.elapsed().max(Duration::from_nanos(20));
    let rounds = 8;
    let repeats = (budget.as_secs_f64() / rounds as f64 / once.as_secs_f64())
        .ceil()
        .max(1.0) as u32;
    let mut best = f64::INFINITY;
    for _ in 0..rounds {
        let started = Instant::now();
        for _ in 0..repeats {
            work();
        }
        best = best.min(started.elapsed().as_secs_f64() / f64::from(repeats));
    }
    bytes as f64 / best / 1e9
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
    let all_read = rate(bytes, budget, || {
        for source in sources.iter().flatten() {
            black_box(read(black_box(source)));
        }
    });
    let mut copies: Vec<Pages> = data.iter().map(|_| Pages::new(size.column_bytes)).collect();
    let mut targets = strips_mut(&mut copies, size.strip_bytes);
    let memcpy = rate(bytes, budget, || {
        for (source, target) in sources.iter().flatten().zip(targets.iter_mut().flatten()) {
            target.copy_from_slice(black_box(source));
            black_box(target);
        }
    });
    Ceilings {
        read: all_read,
        memcpy,
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

    /// The rate as a multiple of the best that ISA-L has in the same place.
    fn of_isal(&self, row: &Row) -> Option<f64> {
        let beside = self
            .rows
            .iter()
            .filter(|other| other.isal && other.beside(row));
        let best = beside.map(|other| other.rate).reduce(f64::max)?;
        (!row.isal).then(|| row.rate / best)
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

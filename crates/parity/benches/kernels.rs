//! GB/s of data in for every kernel that this CPU has, each beside its ceiling: a plain read and a
//! memcpy of the same buffers.
//!
//! `cargo bench -p strake-parity` measures; with `-- --smoke` everything runs once on tiny buffers.
//! `-- --kernel NAME` keeps to one kernel, `-- --only TEXT` to rows whose name contains TEXT.
//! Every benchmark is a test: all outputs are hashed, and in smoke size the hash of each row is one
//! that stands below, the same for all kernels. There is no absolute threshold on speed.
//!
//! "Data in" is the bytes of the k columns read, whether generating, checking or reconstructing.
//! Columns begin at page boundaries, as an engine's buffers do. The read ceiling is a loop that
//! XORs words, with the vectors every CPU of the target has. Absent: threads (one core is
//! measured), statistics beyond the best of several rounds, non-temporal stores.

#![expect(
    clippy::print_stdout,
    reason = "a table on standard output is the product"
)]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use strake_parity::{Code, dispatch};

const PAGE: usize = 4096;

/// Bytes of each column in smoke size: two pages and a bit, to take the ends of loops along.
const SMOKE_STRIP: usize = 2 * PAGE + 100;

/// Bytes of all data columns together for the row that measures memory: well above any cache.
const DRAM_BYTES: usize = 512 << 20;

/// Bytes per column handed over at once when measuring memory, as an engine hands over strips.
const DRAM_STRIP: usize = 64 << 10;

/// k, m, name, and for the smoke size the hashes of what generate and reconstruct put out.
const CODES: &[(usize, usize, &str, u64, u64)] = &[
    (
        8,
        1,
        "xor 8+1",
        0x968c_fb24_64f2_9237,
        0x3548_bde5_bd7c_f5a8,
    ),
    (
        8,
        2,
        "p+q 8+2",
        0xae48_46b8_964f_a6d4,
        0x4765_d61f_83b0_64d5,
    ),
    (
        8,
        3,
        "p+q+r 8+3",
        0xb3ff_27a1_1e39_f949,
        0x70ac_91ea_eb15_ca90,
    ),
    (
        6,
        4,
        "cauchy 6+4",
        0xb52c_7edd_d1ba_1e32,
        0x59f6_66bf_092f_d982,
    ),
];

/// How much of each column there is, and how much of it one operation takes.
#[derive(Clone, Copy)]
struct Size {
    name: &'static str,
    column_bytes: usize,
    strip_bytes: usize,
}

/// Bytes that begin at a page boundary.
struct Pages {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Pages {
    /// Every byte is written, so that memory is really there.
    fn new(length: usize) -> Pages {
        let bytes = vec![0xee; length + PAGE];
        let start = bytes.as_ptr().align_offset(PAGE);
        Pages {
            bytes,
            start,
            length,
        }
    }

    fn get(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

/// xorshift64* words from a fixed seed.
fn fill(bytes: &mut [u8], seed: u64) {
    let mut state = seed | 1;
    for chunk in bytes.chunks_mut(8) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let word = state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// FNV-1a.
fn hash(columns: &[Pages]) -> u64 {
    let bytes = columns.iter().flat_map(|column| column.get());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Gigabytes per second of the best of several rounds of `work`, which reads `bytes`.
fn rate(bytes: usize, budget: Option<Duration>, mut work: impl FnMut()) -> f64 {
    let Some(budget) = budget else {
        work();
        return 0.0;
    };
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

/// The columns cut into strips: one list of slices per stripe.
fn strips(columns: &[Pages], strip: usize) -> Vec<Vec<&[u8]>> {
    let stripes = 0..columns[0].length / strip;
    let of = |stripe: usize| {
        columns
            .iter()
            .map(move |c| &c.get()[stripe * strip..][..strip])
    };
    stripes.map(|stripe| of(stripe).collect()).collect()
}

fn strips_mut(columns: &mut [Pages], strip: usize) -> Vec<Vec<&mut [u8]>> {
    let mut stripes: Vec<Vec<&mut [u8]>> = Vec::new();
    stripes.resize_with(columns[0].length / strip, Vec::new);
    for column in columns {
        for (stripe, bytes) in stripes
            .iter_mut()
            .zip(column.get_mut().chunks_exact_mut(strip))
        {
            stripe.push(bytes);
        }
    }
    stripes
}

/// One line of the table.
#[derive(Clone, Copy)]
struct Row<'a> {
    code: &'a str,
    operation: &'a str,
    size: Size,
    kernel: &'a str,
}

impl Row<'_> {
    fn print(&self, rate: f64, ceilings: &Ceilings) {
        println!(
            "{:<11} {:<11} {:<5} {:<12} {:>7.1}  {:>6.0} %  {:>6.0} %",
            self.code,
            self.operation,
            self.size.name,
            self.kernel,
            rate,
            100.0 * rate / ceilings.read,
            100.0 * rate / ceilings.memcpy,
        );
    }
}

/// GB/s that the same buffers give without arithmetic.
struct Ceilings {
    read: f64,
    memcpy: f64,
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

fn ceilings(data: &[Pages], size: Size, budget: Option<Duration>) -> Ceilings {
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

struct Options {
    smoke: bool,
    kernel: Option<String>,
    only: Option<String>,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        smoke: false,
        kernel: None,
        only: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .ok_or_else(|| format!("{argument} needs a value"))
        };
        match argument.as_str() {
            "--smoke" => options.smoke = true,
            "--kernel" => options.kernel = Some(value()?),
            "--only" => options.only = Some(value()?),
            // What cargo adds by itself.
            "--bench" => {}
            _ => return Err(format!("unknown argument {argument}")),
        }
    }
    Ok(options)
}

/// What to measure, and with what.
struct Plan<'a> {
    options: &'a Options,
    kernels: Vec<&'static str>,
    /// Per row of the table; `None` runs everything once.
    budget: Option<Duration>,
}

impl Plan<'_> {
    /// Measures `work` and prints its line, unless the options leave it out.
    fn line(&self, row: &Row<'_>, bytes: usize, ceilings: &Ceilings, work: impl FnMut()) {
        let text = format!("{} {} {}", row.code, row.operation, row.size.name);
        if self
            .options
            .only
            .as_ref()
            .is_some_and(|only| !text.contains(only.as_str()))
        {
            return;
        }
        let rate = rate(bytes, self.budget, work);
        if self.budget.is_some() {
            row.print(rate, ceilings);
        }
    }

    /// Generate, check and reconstruct for one code at one size, with each kernel.
    /// Returns the hashes of generated and reconstructed bytes, the same for all kernels.
    fn measure(&self, code: &Code, name: &str, size: Size) -> (u64, u64) {
        let mut data: Vec<Pages> = (0..code.k())
            .map(|_| Pages::new(size.column_bytes))
            .collect();
        for (seed, column) in data.iter_mut().enumerate() {
            fill(column.get_mut(), 0x9e37_79b9 * (seed as u64 + 1));
        }
        let ceilings = ceilings(&data, size, self.budget);
        if self.budget.is_some() {
            let Ceilings { read, memcpy } = ceilings;
            println!(
                "{name:<11} ceilings    {:<5} read {read:.1}, memcpy {memcpy:.1}",
                size.name
            );
        }
        let mut hashes = None;
        for &kernel in &self.kernels {
            dispatch::select(kernel).expect("an available kernel can be selected");
            let row = Row {
                code: name,
                operation: "generate",
                size,
                kernel,
            };
            let found = self.measure_kernel(code, row, &data, &ceilings);
            assert_eq!(*hashes.get_or_insert(found), found, "{kernel} differs");
        }
        hashes.expect("there is at least one kernel")
    }

    fn measure_kernel(
        &self,
        code: &Code,
        row: Row<'_>,
        data: &[Pages],
        ceilings: &Ceilings,
    ) -> (u64, u64) {
        let (k, m, size) = (code.k(), code.m(), row.size);
        let bytes = k * size.column_bytes;
        let mut parity: Vec<Pages> = (0..m).map(|_| Pages::new(size.column_bytes)).collect();
        let sources = strips(data, size.strip_bytes);
        let mut targets = strips_mut(&mut parity, size.strip_bytes);
        let mut generate = || {
            for (data, parity) in sources.iter().zip(&mut targets) {
                code.generate(black_box(data), parity);
            }
        };
        generate();
        self.line(&row, bytes, ceilings, generate);
        let stored = strips(&parity, size.strip_bytes);
        self.line(
            &Row {
                operation: "check",
                ..row
            },
            bytes,
            ceilings,
            || {
                for (data, parity) in sources.iter().zip(&stored) {
                    assert!(code.check(black_box(data), parity));
                }
            },
        );
        let columns: Vec<&Pages> = data.iter().chain(&parity).collect();
        let mut rebuilt: Vec<Pages> = (0..m).map(|_| Pages::new(size.column_bytes)).collect();
        for lost in 1..=m.min(k) {
            let left: Vec<usize> = (lost..k + m).collect();
            let wanted: Vec<usize> = (0..lost).collect();
            let decoder = code
                .decoder(&left, &wanted)
                .expect("no more is lost than m");
            let of = |at: usize, source: &usize| &columns[*source].get()[at..][..size.strip_bytes];
            let inputs: Vec<Vec<&[u8]>> = (0..size.column_bytes)
                .step_by(size.strip_bytes)
                .map(|at| {
                    decoder
                        .sources()
                        .iter()
                        .map(|source| of(at, source))
                        .collect()
                })
                .collect();
            let mut targets = strips_mut(&mut rebuilt[..lost], size.strip_bytes);
            let mut decode = || {
                for (inputs, outputs) in inputs.iter().zip(&mut targets) {
                    decoder.decode(black_box(inputs), outputs);
                }
            };
            decode();
            let operation = format!("rebuild {lost}");
            self.line(
                &Row {
                    operation: &operation,
                    ..row
                },
                bytes,
                ceilings,
                decode,
            );
            for (column, rebuilt) in columns.iter().zip(&rebuilt[..lost]) {
                assert!(rebuilt.get() == column.get(), "{}: {operation}", row.kernel);
            }
        }
        (hash(&parity), hash(&rebuilt))
    }
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("kernels: {error}; known are --smoke, --kernel NAME and --only TEXT");
            return ExitCode::FAILURE;
        }
    };
    let mut kernels = dispatch::available();
    if let Some(name) = &options.kernel {
        kernels.retain(|kernel| kernel == name);
        if kernels.is_empty() {
            eprintln!("kernels: this CPU has no kernel {name}");
            return ExitCode::FAILURE;
        }
    }
    if !options.smoke {
        println!("code        operation   strip kernel          GB/s    of read  of memcpy");
    }
    let budget = (!options.smoke).then_some(Duration::from_millis(120));
    let plan = Plan {
        options: &options,
        kernels,
        budget,
    };
    let mut wrong = 0;
    for &(k, m, name, generated, rebuilt) in CODES {
        let code = Code::new(k, m).expect("the benchmark's codes exist");
        let whole = |name, strip_bytes| Size {
            name,
            column_bytes: strip_bytes,
            strip_bytes,
        };
        if options.smoke {
            let found = plan.measure(&code, name, whole("smoke", SMOKE_STRIP));
            let right = found == (generated, rebuilt);
            wrong += u32::from(!right);
            let verdict = if right { "ok" } else { "WRONG" };
            println!(
                "{name:<11} generated {:#018x} rebuilt {:#018x} {verdict}",
                found.0, found.1
            );
            continue;
        }
        let column_bytes = DRAM_BYTES / k / DRAM_STRIP * DRAM_STRIP;
        let dram = Size {
            name: "DRAM",
            column_bytes,
            strip_bytes: DRAM_STRIP,
        };
        for size in [whole("4K", 4 << 10), whole("64K", 64 << 10), dram] {
            plan.measure(&code, name, size);
        }
    }
    if wrong > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

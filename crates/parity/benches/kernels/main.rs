//! GB/s of data in for every kernel that this CPU has, each beside its ceilings, a plain read and a
//! memcpy of the same buffers, and beside ISA-L, where this machine has it, and the crate
//! `rusty_erasure`. From memory each kernel has a second line, `cold`: what it makes of data that
//! its caller says is not in the caches.
//!
//! `cargo bench -p strake-parity` measures; with `-- --smoke` everything runs once on tiny buffers.
//! `-- --kernel NAME` keeps to one kernel, `-- --only TEXT` to rows with TEXT in their name,
//! `-- --json` ends with one line of JSON.
//! Every benchmark is a test: all outputs are hashed, the hash of each row is the same for all that
//! compute it, and in smoke size one that stands below. There is no absolute threshold on speed.
//!
//! "Data in" is the bytes of the k columns read when generating, checking or reconstructing, and of
//! the one changed column (old XOR new) when updating all parities, or copies of them: those of
//! ISA-L are copied first.
//! Columns begin at page boundaries, as an engine's buffers do. The read ceiling is a loop that
//! XORs words, with the vectors every CPU of the target has. Absent: threads (one core is
//! measured), statistics beyond the best of several rounds
//! and, beside ISA-L, the median of what each round gives, a ceiling for reads and stores past the
//! caches together (a core does both at once, so that the sum of their times is no limit).

#![expect(
    clippy::print_stdout,
    reason = "a table on standard output is the product"
)]

mod buffers;
mod isal;
mod table;

use buffers::{PAGE, Pages, fill, hash, strips, strips_mut};
use isal::{Isal, Own, Tables};
use rusty_erasure::{Coder, Matrix};
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;
use strake_parity::{Code, Heat, dispatch};
use table::{Ceilings, Row, Size, Table, ceilings, rate, rounds, timed};

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
        20,
        4,
        "cauchy 20+4",
        0x4aef_572a_3d34_ae1c,
        0x59f6_66bf_092f_d982,
    ),
];

struct Options {
    smoke: bool,
    json: bool,
    kernel: Option<String>,
    only: Option<String>,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        smoke: false,
        json: false,
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
            "--json" => options.json = true,
            "--kernel" => options.kernel = Some(value()?),
            "--only" => options.only = Some(value()?),
            // What cargo adds by itself.
            "--bench" => {}
            _ => return Err(format!("unknown argument {argument}")),
        }
    }
    Ok(options)
}

/// The code that computes.
#[derive(Clone, Copy)]
enum Contender<'a> {
    /// ISA-L with its own functions for this code.
    IsalOwn(&'a Isal, Own),
    /// ISA-L with its functions for any matrix.
    IsalMatrix(&'a Isal),
    /// The crate with its fastest kernels, which takes any matrix.
    Rusty,
    Kernel(&'static str, Heat),
}

impl Contender<'_> {
    fn name(&self) -> String {
        match self {
            Contender::IsalOwn(_, Own::Xor) => "isal xor".to_owned(),
            Contender::IsalOwn(_, Own::PQ) => "isal pq".to_owned(),
            Contender::IsalMatrix(_) => "isal matrix".to_owned(),
            Contender::Rusty => "rusty_erasure".to_owned(),
            Contender::Kernel(name, Heat::Warm) => (*name).to_owned(),
            Contender::Kernel(name, Heat::Cold) => format!("{name} cold"),
        }
    }

    /// Makes the process use the kernel.
    fn choose(&self) {
        if let Contender::Kernel(name, _) = self {
            dispatch::select(name).expect("an available kernel can be selected");
        }
    }
}

/// Which functions of ISA-L do an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Theirs {
    Own,
    Matrix,
    Both,
}

/// Forms that an operation of ours has.
const ONE_FORM: &[Heat] = &[Heat::Warm];
const BOTH_FORMS: &[Heat] = &[Heat::Warm, Heat::Cold];

/// Buffers cut into stripes.
type Inputs<'a> = Vec<Vec<&'a [u8]>>;
type Outputs<'a> = Vec<Vec<&'a mut [u8]>>;

/// What to measure, and with what.
struct Plan<'a> {
    options: &'a Options,
    isal: Option<Isal>,
    kernels: Vec<&'static str>,
    /// Per row of the table; `None` runs everything once.
    budget: Option<Duration>,
}

/// A code with buffers of one size.
struct Arena<'a> {
    plan: &'a Plan<'a>,
    code: &'a Code,
    name: &'static str,
    size: Size,
    ceilings: Ceilings,
}

impl Arena<'_> {
    /// Lets each contender run once from outputs that hold zeros, which must give the same hash for
    /// all, and measures them in turn. Returns the hash.
    fn contest(
        &self,
        table: &mut Table,
        operation: &str,
        (bytes, theirs, forms): (usize, Theirs, &[Heat]),
        outputs: &mut Outputs<'_>,
        mut work: impl FnMut(Contender<'_>, &mut Outputs<'_>),
    ) -> u64 {
        let text = format!("{} {operation} {}", self.name, self.size.name);
        let only = self.plan.options.only.as_ref();
        let measured = only.is_none_or(|only| text.contains(only.as_str()));
        let mut hashes = None;
        let contenders = self.contenders(theirs, forms);
        for &contender in &contenders {
            contender.choose();
            outputs.iter_mut().flatten().for_each(|slice| slice.fill(0));
            work(contender, outputs);
            let found = hash(outputs.iter().flatten().map(|slice| &**slice));
            let name = contender.name();
            assert_eq!(
                *hashes.get_or_insert(found),
                found,
                "{name} differs: {text}"
            );
        }
        if let (true, Some(budget)) = (measured, self.plan.budget) {
            let found = rounds(budget, contenders.len(), |index, repeats| {
                contenders[index].choose();
                timed(repeats, || work(contenders[index], outputs))
            });
            for (contender, rounds) in contenders.iter().zip(found) {
                table.add(Row {
                    code: self.name,
                    operation: operation.to_owned(),
                    strip: self.size.name,
                    kernel: contender.name(),
                    isal: matches!(contender, Contender::IsalOwn(..) | Contender::IsalMatrix(_)),
                    rate: rate(bytes, &rounds),
                    rounds,
                    ceilings: self.ceilings,
                });
            }
        }
        hashes.expect("there is at least one kernel")
    }

    /// ISA-L first, so that the kernels can stand beside it. Cold forms are there only where data
    /// is in memory, or where nothing is measured.
    fn contenders(&self, theirs: Theirs, forms: &[Heat]) -> Vec<Contender<'_>> {
        let mut all = Vec::new();
        if let Some(isal) = &self.plan.isal {
            let whole = self.size.strip_bytes.is_multiple_of(Own::GRAIN);
            let own = Own::of(self.code).filter(|_| whole && theirs != Theirs::Matrix);
            all.extend(own.map(|own| Contender::IsalOwn(isal, own)));
            all.extend((theirs != Theirs::Own).then_some(Contender::IsalMatrix(isal)));
        }
        all.extend((theirs != Theirs::Own).then_some(Contender::Rusty));
        let of_size = |heat: &&Heat| **heat == Heat::Warm || self.size.cold;
        for &name in &self.plan.kernels {
            let forms = forms.iter().filter(of_size);
            all.extend(forms.map(|&heat| Contender::Kernel(name, heat)));
        }
        all
    }

    /// Generates, checks and updates parity, with everything there is; returns the hash of it.
    fn parity(&self, table: &mut Table, data: &[Pages], parity: &mut [Pages]) -> u64 {
        let (code, size) = (self.code, self.size);
        let (k, m) = (code.k(), code.m());
        let matrix = (0..m).flat_map(|row| (0..k).map(move |c| code.coefficient(row, c)));
        let isal = self.plan.isal.as_ref();
        let matrix: Vec<u8> = matrix.collect();
        let rusty = rusty(k, &matrix);
        let tables = isal.map(|isal| isal.tables(k, matrix));
        let sources = strips(data, size.strip_bytes);
        let bytes = k * size.column_bytes;
        let mut targets = strips_mut(parity, size.strip_bytes);
        let rows: Vec<usize> = (0..m).collect();
        let column = k / 2;
        self.contest(
            table,
            "update",
            (size.column_bytes, Theirs::Matrix, ONE_FORM),
            &mut targets,
            |who, targets| {
                for (data, parity) in sources.iter().zip(targets) {
                    let delta = black_box(data[column]);
                    match who {
                        Contender::Kernel(..) => code.update_rows(&rows, column, delta, parity),
                        Contender::IsalOwn(isal, _) | Contender::IsalMatrix(isal) => {
                            isal.update(of(&tables), column, delta, parity);
                        }
                        Contender::Rusty => {
                            let done = rusty.update(column, delta, parity);
                            done.expect("as many outputs as it has rows, of one length");
                        }
                    }
                }
            },
        );
        self.contest(
            table,
            "copy+update",
            (size.column_bytes, Theirs::Matrix, ONE_FORM),
            &mut targets,
            |who, targets| {
                for (data, copies) in sources.iter().zip(targets) {
                    let delta = black_box(data[column]);
                    // Any columns serve as what is copied.
                    let held = &data[..m];
                    match who {
                        Contender::Kernel(..) => {
                            code.update_copies(&rows, column, delta, held, copies);
                        }
                        Contender::IsalOwn(isal, _) | Contender::IsalMatrix(isal) => {
                            copy_all(held, copies);
                            isal.update(of(&tables), column, delta, copies);
                        }
                        Contender::Rusty => {
                            copy_all(held, copies);
                            let done = rusty.update(column, delta, copies);
                            done.expect("as many outputs as it has rows, of one length");
                        }
                    }
                }
            },
        );
        let generated = self.contest(
            table,
            "generate",
            (bytes, Theirs::Both, BOTH_FORMS),
            &mut targets,
            |who, targets| {
                for (data, parity) in sources.iter().zip(targets) {
                    let data = black_box(data);
                    match who {
                        Contender::Kernel(_, heat) => code.generate_with(heat, data, parity),
                        Contender::IsalOwn(isal, own) => isal.generate_own(own, data, parity),
                        Contender::IsalMatrix(isal) => isal.encode(of(&tables), data, parity),
                        Contender::Rusty => {
                            let done = rusty.encode(data, parity);
                            done.expect("as many slices as it has columns, of one length");
                        }
                    }
                }
            },
        );
        self.check(table, &sources, &strips(parity, size.strip_bytes));
        generated
    }

    fn check(&self, table: &mut Table, sources: &Inputs<'_>, stored: &Inputs<'_>) {
        let code = self.code;
        let bytes = code.k() * self.size.column_bytes;
        self.contest(
            table,
            "check",
            (bytes, Theirs::Own, BOTH_FORMS),
            &mut Vec::new(),
            |who, _| {
                for (data, parity) in sources.iter().zip(stored) {
                    let data = black_box(data);
                    match who {
                        Contender::Kernel(_, heat) => assert!(code.check_with(heat, data, parity)),
                        Contender::IsalOwn(isal, own) => assert!(isal.check_own(own, data, parity)),
                        Contender::IsalMatrix(_) | Contender::Rusty => {
                            unreachable!("no contender where only own functions are asked for")
                        }
                    }
                }
            },
        );
    }

    /// Computes the first `lost` columns from those left; returns the hash of them.
    fn rebuild(&self, table: &mut Table, columns: &[&Pages], lost: usize) -> u64 {
        let (code, size) = (self.code, self.size);
        let left: Vec<usize> = (lost..code.k() + code.m()).collect();
        let wanted: Vec<usize> = (0..lost).collect();
        let decoder = code.decoder(&left, &wanted);
        let decoder = decoder.expect("no more is lost than m");
        let count = decoder.sources().len();
        let coefficients = (0..lost).flat_map(|output| (0..count).map(move |n| (output, n)));
        let matrix = coefficients.map(|(output, n)| decoder.coefficient(output, n));
        let isal = self.plan.isal.as_ref();
        let matrix: Vec<u8> = matrix.collect();
        let rusty = rusty(count, &matrix);
        let tables = isal.map(|isal| isal.tables(count, matrix));
        let of_stripe = |at: usize| {
            let sources = decoder.sources().iter();
            sources
                .map(|&source| &columns[source].get()[at..][..size.strip_bytes])
                .collect()
        };
        let stripes = (0..size.column_bytes).step_by(size.strip_bytes);
        let inputs: Inputs<'_> = stripes.map(of_stripe).collect();
        let mut rebuilt: Vec<Pages> = (0..lost).map(|_| Pages::new(size.column_bytes)).collect();
        let mut targets = strips_mut(&mut rebuilt, size.strip_bytes);
        let bytes = code.k() * size.column_bytes;
        let operation = format!("rebuild {lost}");
        let found = self.contest(
            table,
            &operation,
            (bytes, Theirs::Matrix, BOTH_FORMS),
            &mut targets,
            |who, targets| {
                for (inputs, outputs) in inputs.iter().zip(targets) {
                    let inputs = black_box(inputs);
                    match who {
                        Contender::Kernel(_, heat) => decoder.decode_with(heat, inputs, outputs),
                        Contender::IsalOwn(isal, _) | Contender::IsalMatrix(isal) => {
                            isal.encode(of(&tables), inputs, outputs);
                        }
                        Contender::Rusty => {
                            let done = rusty.encode(inputs, outputs);
                            done.expect("as many slices as it has columns, of one length");
                        }
                    }
                }
            },
        );
        // The last contender's are there still, and all had the same.
        for (column, rebuilt) in columns.iter().zip(&rebuilt) {
            assert!(rebuilt.get() == column.get(), "{operation}");
        }
        found
    }
}

/// The crate's coder for a matrix row by row, `k` coefficients each.
fn rusty(k: usize, matrix: &[u8]) -> Coder {
    let mut bytes = vec![0; k * k];
    bytes.iter_mut().step_by(k + 1).for_each(|one| *one = 1);
    bytes.extend(matrix);
    let matrix = Matrix::from_bytes(bytes.len() / k, k, bytes);
    let coder = matrix.and_then(rusty_erasure::coder);
    coder.expect("a matrix below an identity makes a coder")
}

fn copy_all(from: &[&[u8]], to: &mut [&mut [u8]]) {
    for (copy, base) in to.iter_mut().zip(from) {
        copy.copy_from_slice(base);
    }
}

/// The tables that there are where a contender is ISA-L.
fn of(tables: &Option<Tables>) -> &Tables {
    tables.as_ref().expect("made where the library is")
}

impl Plan<'_> {
    /// Everything for one code at one size. Returns the hashes of what was generated, and of the
    /// most columns that were rebuilt.
    fn measure(
        &self,
        table: &mut Table,
        code: &Code,
        name: &'static str,
        size: Size,
    ) -> (u64, u64) {
        let mut data: Vec<Pages> = (0..code.k())
            .map(|_| Pages::new(size.column_bytes))
            .collect();
        for (seed, column) in data.iter_mut().enumerate() {
            fill(column.get_mut(), 0x9e37_79b9 * (seed as u64 + 1));
        }
        let arena = Arena {
            plan: self,
            code,
            name,
            size,
            ceilings: ceilings(&data, size, self.budget),
        };
        let mut parity: Vec<Pages> = (0..code.m())
            .map(|_| Pages::new(size.column_bytes))
            .collect();
        let generated = arena.parity(table, &data, &mut parity);
        let columns: Vec<&Pages> = data.iter().chain(&parity).collect();
        let most = code.m().min(code.k());
        let rebuilt = (1..=most).map(|lost| arena.rebuild(table, &columns, lost));
        (generated, rebuilt.last().expect("a code has parity"))
    }
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("kernels: {error}; known are --smoke, --json, --kernel NAME and --only TEXT");
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
    let isal = Isal::load();
    if isal.is_none() {
        println!("no ISA-L here (Debian: libisal2): our kernels alone");
    }
    let budget = (!options.smoke).then_some(Duration::from_millis(120));
    let plan = Plan {
        options: &options,
        isal,
        kernels,
        budget,
    };
    let mut table = Table::default();
    let mut wrong = 0;
    for &(k, m, name, generated, rebuilt) in CODES {
        let code = Code::new(k, m).expect("the benchmark's codes exist");
        let whole = |name, strip_bytes| Size {
            name,
            column_bytes: strip_bytes,
            strip_bytes,
            cold: options.smoke,
        };
        if options.smoke {
            let found = plan.measure(&mut table, &code, name, whole("smoke", SMOKE_STRIP));
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
            cold: true,
        };
        for size in [whole("4K", 4 << 10), whole("64K", 64 << 10), dram] {
            plan.measure(&mut table, &code, name, size);
        }
    }
    if options.json {
        println!("{}", table.json());
    }
    if wrong > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

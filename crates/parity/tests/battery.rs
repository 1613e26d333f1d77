//! The battery: every kernel that this CPU has goes through the same tests, against the reference
//! that works byte by byte, and the matrices are shown to survive every loss that they promise to.
//!
//! The choice of kernel is one per process, so tests that choose hold a lock. Kernels that the CPU
//! lacks are named as SKIPPED. Every output starts poisoned, lies between guard bytes and at
//! whatever alignment comes up. What has a form for cold data goes
//! through it as well. Random numbers come from fixed seeds: a failure repeats.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::process::Command;
use std::sync::Mutex;

use strake_parity::{Code, CodeError, Heat, dispatch, is_zero, reference, xor, xor_into};

#[cfg(target_arch = "x86_64")]
const ALL_KERNELS: &[&str] = &["avx512-gfni", "avx2-gfni", "avx2", "ssse3", "scalar"];
#[cfg(target_arch = "aarch64")]
const ALL_KERNELS: &[&str] = &["neon", "scalar"];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ALL_KERNELS: &[&str] = &["scalar"];

const HEATS: [Heat; 2] = [Heat::Warm, Heat::Cold];

/// Bytes of the widest vector of any kernel.
const WIDEST: usize = 64;

static CHOOSING: Mutex<()> = Mutex::new(());

/// Runs `test` once with each kernel chosen.
fn for_each_kernel(mut test: impl FnMut(&str)) {
    let _lock = CHOOSING
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let available = dispatch::available();
    for &name in ALL_KERNELS {
        if !available.contains(&name) {
            println!("SKIPPED: kernel {name}: this CPU does not have its instructions");
            continue;
        }
        dispatch::select(name).unwrap();
        assert_eq!(dispatch::active(), name);
        test(name);
    }
    dispatch::select(available[0]).unwrap();
}

/// SplitMix64 (G. Steele, D. Lea, C. Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }

    /// An offset from alignment: none half of the time, since stores past the caches want none.
    fn misalignment(&mut self) -> usize {
        self.below(2) * self.below(WIDEST)
    }

    /// `count` different numbers below `bound`, ascending.
    fn subset(&mut self, bound: usize, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..bound).collect();
        for n in 0..count {
            let other = n + self.below(bound - n);
            all.swap(n, other);
        }
        all.truncate(count);
        all.sort_unstable();
        all
    }
}

/// A slice at a chosen misalignment between guard bytes.
struct Guarded {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

const GUARD: usize = WIDEST;
const GUARD_BYTE: u8 = 0xa5;

impl Guarded {
    fn new(content: &[u8], misalignment: usize) -> Guarded {
        let mut bytes = vec![GUARD_BYTE; content.len() + 3 * GUARD];
        let aligned = bytes.as_ptr().align_offset(GUARD);
        let start = GUARD + aligned % GUARD + misalignment % GUARD;
        let start = start.min(bytes.len() - content.len() - 1);
        bytes[start..start + content.len()].copy_from_slice(content);
        Guarded {
            bytes,
            start,
            length: content.len(),
        }
    }

    fn poisoned(length: usize, misalignment: usize, random: &mut Random) -> Guarded {
        Guarded::new(&random.bytes(length), misalignment)
    }

    fn get(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }

    fn assert_guards(&self) {
        let (before, rest) = self.bytes.split_at(self.start);
        let after = &rest[self.length..];
        assert!(
            before.iter().chain(after).all(|&byte| byte == GUARD_BYTE),
            "wrote outside"
        );
    }
}

fn slices<T: AsRef<[u8]>>(of: &[T]) -> Vec<&[u8]> {
    of.iter().map(AsRef::as_ref).collect()
}

fn guarded(of: &[Guarded]) -> Vec<&[u8]> {
    of.iter().map(Guarded::get).collect()
}

fn guarded_mut(of: &mut [Guarded]) -> Vec<&mut [u8]> {
    of.iter_mut().map(Guarded::get_mut).collect()
}

/// Lengths from nothing to three of the widest vectors and a bit, and lengths around tiles.
fn lengths() -> Vec<usize> {
    let around = [512, 1024, 4096].into_iter().flat_map(|n| n - 1..=n + 1);
    (0..=3 * WIDEST + 1).chain(around).collect()
}

fn all_codes_up_to(members: usize) -> Vec<Code> {
    let shapes = (1..=members).flat_map(|n| (0..n).map(move |m| (n - m, m)));
    shapes.map(|(k, m)| Code::new(k, m).unwrap()).collect()
}

fn wide_codes() -> Vec<Code> {
    let shapes = [
        (63, 1),
        (13, 1),
        (24, 2),
        (62, 2),
        (61, 3),
        (17, 3),
        (60, 4),
        (12, 4),
        (10, 5),
        (20, 6),
    ];
    let wider = [
        (16, 8),
        (55, 9),
        (20, 12),
        (40, 17),
        (33, 31),
        (32, 32),
        (1, 32),
        (2, 32),
    ];
    let codes = shapes
        .into_iter()
        .chain(wider)
        .map(|(k, m)| Code::new(k, m).unwrap());
    codes
        .chain([2, 3, 17, 64].map(|copies| Code::mirror(copies).unwrap()))
        .collect()
}

fn random_data(code: &Code, length: usize, random: &mut Random) -> Vec<Vec<u8>> {
    (0..code.k()).map(|_| random.bytes(length)).collect()
}

fn reference_parities(code: &Code, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    (0..code.m())
        .map(|row| reference::parity_row(code, row, &slices(data)))
        .collect()
}

/// Generates through guarded, misaligned, poisoned buffers and compares with the reference; then
/// checks.
fn generate_and_check(kernel: &str, code: &Code, length: usize, random: &mut Random) {
    let (k, m) = (code.k(), code.m());
    let data = random_data(code, length, random);
    let expected = reference_parities(code, &data);
    let data: Vec<Guarded> = data
        .iter()
        .map(|bytes| Guarded::new(bytes, random.below(WIDEST)))
        .collect();
    for heat in HEATS {
        let mut outputs: Vec<Guarded> = (0..m)
            .map(|_| Guarded::poisoned(length, random.misalignment(), random))
            .collect();
        code.generate_with(heat, &guarded(&data), &mut guarded_mut(&mut outputs));
        for (row, (output, expected)) in outputs.iter().zip(&expected).enumerate() {
            assert_eq!(
                output.get(),
                expected,
                "{kernel} {heat:?} {k}+{m} row {row} length {length}"
            );
            output.assert_guards();
        }
        assert!(
            code.check_with(heat, &guarded(&data), &guarded(&outputs)),
            "{kernel} {heat:?} {k}+{m} length {length}"
        );
    }
    data.iter().for_each(Guarded::assert_guards);
}

#[test]
fn generate_equals_the_reference_at_every_length_and_alignment() {
    for_each_kernel(|kernel| {
        let mut random = Random(1);
        let shapes = [
            (8, 1),
            (1, 1),
            (2, 2),
            (9, 2),
            (8, 3),
            (1, 3),
            (6, 4),
            (5, 5),
            (7, 9),
        ];
        for (k, m) in shapes {
            let code = Code::new(k, m).unwrap();
            for length in lengths() {
                generate_and_check(kernel, &code, length, &mut random);
            }
        }
    });
}

#[test]
fn generate_equals_the_reference_for_every_code_of_few_members_and_wide_ones() {
    for_each_kernel(|kernel| {
        let mut random = Random(2);
        for code in all_codes_up_to(12).iter().chain(&wide_codes()) {
            for length in [1, 2 * WIDEST, 3 * WIDEST - 5] {
                generate_and_check(kernel, code, length, &mut random);
            }
        }
    });
}

#[test]
fn generate_equals_the_reference_over_many_tiles() {
    for_each_kernel(|kernel| {
        let mut random = Random(3);
        for (k, m) in [(8, 1), (8, 2), (6, 3), (6, 4), (10, 6), (20, 9)] {
            let code = Code::new(k, m).unwrap();
            generate_and_check(kernel, &code, 40_000 + random.below(9_000), &mut random);
        }
        let mirror = Code::mirror(3).unwrap();
        generate_and_check(kernel, &mirror, 100_001, &mut random);
    });
}

#[test]
fn generate_rows_makes_any_choice_of_rows_in_any_order() {
    for_each_kernel(|kernel| {
        let mut random = Random(4);
        for code in all_codes_up_to(9).iter().chain(&wide_codes()) {
            let length = 1 + random.below(3 * WIDEST);
            let data = random_data(code, length, &mut random);
            let expected = reference_parities(code, &data);
            for _ in 0..6 {
                let count = random.below(code.m() + 1);
                let mut rows = random.subset(code.m(), count);
                if random.below(2) == 0 {
                    rows.reverse();
                }
                let heat = HEATS[random.below(2)];
                let data = slices(&data);
                let mut outputs: Vec<Guarded> = (0..count)
                    .map(|_| Guarded::poisoned(length, random.misalignment(), &mut random))
                    .collect();
                code.generate_rows_with(heat, &rows, &data, &mut guarded_mut(&mut outputs));
                for (output, &row) in outputs.iter().zip(&rows) {
                    assert_eq!(output.get(), expected[row], "{kernel} {heat:?} {rows:?}");
                    output.assert_guards();
                }
                assert!(code.check_rows_with(heat, &rows, &data, &guarded(&outputs)));
            }
        }
    });
}

#[test]
fn update_equals_generating_anew() {
    for_each_kernel(|kernel| {
        let mut random = Random(5);
        for code in all_codes_up_to(8).iter().chain(&wide_codes()) {
            let length = random.below(4 * WIDEST);
            let data = random_data(code, length, &mut random);
            let column = random.below(code.k());
            let mut changed = data.clone();
            changed[column] = random.bytes(length);
            let mut delta = vec![0x77; length];
            xor(&mut delta, &data[column], &changed[column]);
            let (old, new) = (
                reference_parities(code, &data),
                reference_parities(code, &changed),
            );

            let count = random.below(code.m() + 1);
            let rows = random.subset(code.m(), count);
            let mut outputs: Vec<Guarded> = rows
                .iter()
                .map(|&row| Guarded::new(&old[row], random.below(WIDEST)))
                .collect();
            code.update_rows(&rows, column, &delta, &mut guarded_mut(&mut outputs));
            for (output, &row) in outputs.iter().zip(&rows) {
                assert_eq!(
                    output.get(),
                    new[row],
                    "{kernel} column {column} rows {rows:?}"
                );
                output.assert_guards();
            }
            let bases: Vec<Guarded> = rows
                .iter()
                .map(|&row| Guarded::new(&old[row], random.below(WIDEST)))
                .collect();
            let mut outputs: Vec<Guarded> = rows
                .iter()
                .map(|_| Guarded::poisoned(length, random.misalignment(), &mut random))
                .collect();
            let bases = guarded(&bases);
            code.update_copies(
                &rows,
                column,
                &delta,
                &bases,
                &mut guarded_mut(&mut outputs),
            );
            for (output, &row) in outputs.iter().zip(&rows) {
                assert_eq!(
                    output.get(),
                    new[row],
                    "{kernel} column {column} copies of rows {rows:?}"
                );
                output.assert_guards();
            }
            for row in 0..code.m() {
                let mut output = old[row].clone();
                code.update(row, column, &delta, &mut output);
                assert_eq!(output, new[row], "{kernel} column {column} row {row}");
            }
        }
    });
}

#[test]
fn check_notices_a_flipped_bit_wherever_it_is() {
    for_each_kernel(|kernel| {
        let mut random = Random(6);
        let shapes = [(3, 1), (1, 1), (4, 2), (4, 3), (3, 4), (2, 7)];
        for (k, m) in shapes {
            let code = Code::new(k, m).unwrap();
            for length in [1, 31, WIDEST, 2 * WIDEST + 3, 3 * WIDEST - 1] {
                let data = random_data(&code, length, &mut random);
                let mut columns = [data.clone(), reference_parities(&code, &data)].concat();
                for column in 0..k + m {
                    for at in 0..length {
                        let flip = 1 << random.below(8);
                        columns[column][at] ^= flip;
                        let (data, parity) = columns.split_at(k);
                        for heat in HEATS {
                            let found = !code.check_with(heat, &slices(data), &slices(parity));
                            assert!(found, "{kernel} {heat:?} {k}+{m} {column} byte {at}");
                        }
                        columns[column][at] ^= flip;
                    }
                }
                let (data, parity) = columns.split_at(k);
                assert!(code.check(&slices(data), &slices(parity)));
            }
        }
    });
}

#[test]
fn check_notices_a_flipped_bit_in_any_tile() {
    for_each_kernel(|kernel| {
        let mut random = Random(7);
        for (k, m) in [(8, 1), (8, 2), (8, 3), (9, 6)] {
            let code = Code::new(k, m).unwrap();
            let length = 70_001;
            let mut data = random_data(&code, length, &mut random);
            let mut outputs = vec![vec![0x5a; length]; m];
            let mut parity: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
            code.generate(&slices(&data), &mut parity);
            for at in [0, 511, 4096, 32_768, 65_536, length - 1] {
                let column = random.below(k);
                data[column][at] ^= 0x10;
                for heat in HEATS {
                    assert!(
                        !code.check_with(heat, &slices(&data), &slices(&outputs)),
                        "{kernel} {heat:?} {k}+{m} {at}"
                    );
                }
                data[column][at] ^= 0x10;
            }
            for heat in HEATS {
                assert!(code.check_with(heat, &slices(&data), &slices(&outputs)));
            }
        }
    });
}

/// Loses the columns of `lost` and reads them back with the kernel chosen.
fn lose_and_decode(kernel: &str, code: &Code, columns: &[Vec<u8>], lost: &[usize], skew: usize) {
    let length = columns[0].len();
    let left: Vec<usize> = (0..columns.len())
        .filter(|column| !lost.contains(column))
        .collect();
    let decoder = code.decoder(&left, lost).unwrap();
    assert!(decoder.sources().len() <= code.k());
    assert!(decoder.sources().iter().all(|source| left.contains(source)));
    assert_eq!(decoder.wanted(), lost);
    let inputs: Vec<&[u8]> = decoder
        .sources()
        .iter()
        .map(|&c| columns[c].as_slice())
        .collect();
    let mut random = Random(skew as u64);
    for heat in HEATS {
        let mut outputs: Vec<Guarded> = lost
            .iter()
            .map(|_| Guarded::poisoned(length, random.below(2) * skew, &mut random))
            .collect();
        decoder.decode_with(heat, &inputs, &mut guarded_mut(&mut outputs));
        for (output, &column) in outputs.iter().zip(lost) {
            let (k, m) = (code.k(), code.m());
            assert!(
                output.get() == columns[column],
                "{kernel} {heat:?} {k}+{m} lost {lost:?}: {column}"
            );
            output.assert_guards();
        }
    }
}

#[test]
fn every_loss_set_of_up_to_twelve_members_comes_back() {
    for_each_kernel(|kernel| {
        let mut random = Random(8);
        let mut sets = 0;
        for code in all_codes_up_to(12) {
            let members = code.k() + code.m();
            let length = 1 + random.below(2 * WIDEST + 40);
            let data = random_data(&code, length, &mut random);
            let columns = [data.clone(), reference_parities(&code, &data)].concat();
            for set in 1u32..1 << members {
                if set.count_ones() as usize <= code.m() {
                    let lost: Vec<usize> = (0..members).filter(|c| set >> c & 1 == 1).collect();
                    lose_and_decode(kernel, &code, &columns, &lost, set as usize);
                    sets += 1;
                }
            }
        }
        println!("{kernel}: {sets} loss sets");
    });
}

/// As long as strips are: several tiles, sources that are prefetched, and a last vector that is
/// partial.
#[test]
fn columns_of_the_length_of_strips_come_back() {
    for_each_kernel(|kernel| {
        let mut random = Random(10);
        for (k, m) in [(4, 1), (8, 2), (8, 3), (10, 4), (9, 6)] {
            let code = Code::new(k, m).expect("such a code exists");
            for length in [16_384, 70_001] {
                let data = random_data(&code, length, &mut random);
                let columns = [data.clone(), reference_parities(&code, &data)].concat();
                for count in 1..=m {
                    let lost = random.subset(k + m, count);
                    lose_and_decode(kernel, &code, &columns, &lost, count);
                }
            }
        }
    });
}

#[test]
fn sampled_loss_sets_of_wide_codes_come_back() {
    for_each_kernel(|kernel| {
        let mut random = Random(9);
        for code in wide_codes() {
            let members = code.k() + code.m();
            let length = 1 + random.below(3 * WIDEST);
            let data = random_data(&code, length, &mut random);
            let columns = [data.clone(), reference_parities(&code, &data)].concat();
            for sample in 0..40 {
                // Half of the samples lose all that may be lost.
                let count = if sample % 2 == 0 {
                    code.m()
                } else {
                    1 + random.below(code.m())
                };
                let lost = random.subset(members, count);
                lose_and_decode(kernel, &code, &columns, &lost, sample);
            }
        }
    });
}

#[test]
fn any_wanted_columns_come_from_any_sufficient_ones() {
    for_each_kernel(|kernel| {
        let mut random = Random(10);
        let codes = all_codes_up_to(10);
        for code in codes.iter().chain(&wide_codes()) {
            let members = code.k() + code.m();
            let data = random_data(code, 77, &mut random);
            let columns = [data.clone(), reference_parities(code, &data)].concat();
            for _ in 0..8 {
                let count = code.k() + random.below(code.m() + 1);
                let mut available = random.subset(members, count);
                available.reverse();
                let count = random.below(members + 1);
                let mut wanted = random.subset(members, count);
                wanted.reverse();
                let decoder = code.decoder(&available, &wanted).unwrap();
                let inputs: Vec<&[u8]> = decoder
                    .sources()
                    .iter()
                    .map(|&c| columns[c].as_slice())
                    .collect();
                let mut outputs = vec![vec![0xcc; 77]; wanted.len()];
                for heat in HEATS {
                    outputs.iter_mut().for_each(|output| output.fill(0xcc));
                    let mut slots: Vec<&mut [u8]> =
                        outputs.iter_mut().map(Vec::as_mut_slice).collect();
                    decoder.decode_with(heat, &inputs, &mut slots);
                    for (output, &column) in outputs.iter().zip(&wanted) {
                        assert_eq!(
                            output, &columns[column],
                            "{kernel} {heat:?} {available:?} {wanted:?}"
                        );
                    }
                }
            }
        }
    });
}

#[test]
fn the_decoder_agrees_with_the_references_own_solver() {
    let mut random = Random(11);
    for code in all_codes_up_to(8).iter().chain(&wide_codes()) {
        let members = code.k() + code.m();
        // Columns that fit no stripe show that the decoder uses exactly the columns it names:
        // the reference must find the same answer from those alone.
        let count = random.below(code.m() + 1);
        let lost = random.subset(members, count);
        let left: Vec<usize> = (0..members)
            .filter(|column| !lost.contains(column))
            .collect();
        let all: Vec<usize> = (0..members).collect();
        let decoder = code.decoder(&left, &all).unwrap();
        assert_eq!(
            decoder.sources(),
            &left[..code.k()],
            "data first, then low parities"
        );
        let inputs: Vec<Vec<u8>> = (0..code.k()).map(|_| random.bytes(19)).collect();
        let mut present: Vec<Option<&[u8]>> = vec![None; members];
        for (&source, input) in decoder.sources().iter().zip(&inputs) {
            present[source] = Some(input);
        }
        let expected = reference::reconstruct(code, &present).unwrap();
        let mut outputs = vec![vec![0xee; 19]; members];
        let mut slots: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        decoder.decode(&slices(&inputs), &mut slots);
        assert_eq!(outputs, expected);
    }
}

#[test]
fn one_lost_data_column_with_p_alive_is_plain_xor() {
    for code in all_codes_up_to(12).iter().filter(|code| code.m() > 0) {
        let members = code.k() + code.m();
        for lost in 0..code.k() {
            let left: Vec<usize> = (0..members).filter(|&column| column != lost).collect();
            let decoder = code.decoder(&left, &[lost]).unwrap();
            let expected: Vec<usize> = (0..=code.k()).filter(|&column| column != lost).collect();
            assert_eq!(decoder.sources(), expected);
            assert!((0..code.k()).all(|source| decoder.coefficient(0, source) == 1));
        }
    }
}

#[test]
fn a_decoder_reads_no_column_that_it_does_not_need() {
    let code = Code::new(6, 3).unwrap();
    let all: Vec<usize> = (0..9).collect();
    assert_eq!(code.decoder(&all, &[4, 1]).unwrap().sources(), [1, 4]);
    assert_eq!(code.decoder(&all, &[]).unwrap().sources(), []);
    let mirror = Code::mirror(4).unwrap();
    assert_eq!(mirror.decoder(&[3, 2, 2], &[0, 1]).unwrap().sources(), [2]);
}

#[test]
fn impossible_codes_and_decoders_are_refused_by_name() {
    assert_eq!(Code::new(0, 2).unwrap_err(), CodeError::NoData);
    assert_eq!(
        Code::new(4, 33).unwrap_err(),
        CodeError::TooManyParities { m: 33 }
    );
    assert_eq!(
        Code::new(63, 2).unwrap_err(),
        CodeError::TooManyColumns { columns: 65 }
    );
    assert!(Code::new(usize::MAX, 2).is_err());
    assert_eq!(
        Code::mirror(1).unwrap_err(),
        CodeError::Copies { copies: 1 }
    );
    assert_eq!(
        Code::mirror(65).unwrap_err(),
        CodeError::Copies { copies: 65 }
    );
    let code = Code::new(4, 2).unwrap();
    let few = CodeError::TooFewAvailable {
        needed: 4,
        available: 3,
    };
    assert_eq!(code.decoder(&[0, 1, 1, 5], &[2]).unwrap_err(), few);
    assert_eq!(
        code.decoder(&[0, 1, 2, 6], &[3]).unwrap_err(),
        CodeError::NoSuchColumn { column: 6 }
    );
    assert_eq!(
        code.decoder(&[0, 1, 2, 4], &[7]).unwrap_err(),
        CodeError::NoSuchColumn { column: 7 }
    );
    let twice = CodeError::WantedTwice { column: 3 };
    assert_eq!(code.decoder(&[0, 1, 2, 4], &[3, 3]).unwrap_err(), twice);
    let none = Code::new(5, 0).unwrap();
    none.generate(&[&[1], &[2], &[3], &[4], &[5]], &mut []);
    assert!(none.check(&[&[1], &[2], &[3], &[4], &[5]], &[]));
    assert!(none.decoder(&[0, 1, 2, 3], &[4]).is_err());
}

#[test]
fn xor_and_is_zero_hold_at_every_length_and_alignment() {
    for_each_kernel(|kernel| {
        let mut random = Random(12);
        for length in lengths() {
            let (a, b) = (random.bytes(length), random.bytes(length));
            let expected: Vec<u8> = a.iter().zip(&b).map(|(a, b)| a ^ b).collect();
            let a = Guarded::new(&a, random.below(WIDEST));
            let mut out = Guarded::poisoned(length, random.below(WIDEST), &mut random);
            xor(out.get_mut(), a.get(), &b);
            assert_eq!(out.get(), expected, "{kernel} {length}");
            xor_into(out.get_mut(), a.get());
            assert_eq!(out.get(), b, "{kernel} {length}");
            out.assert_guards();

            let mut zeros = Guarded::new(&vec![0; length], random.below(WIDEST));
            assert!(is_zero(zeros.get()), "{kernel} {length}");
            for at in 0..length.min(4 * WIDEST) {
                zeros.get_mut()[at] = 1 << random.below(8);
                assert!(!is_zero(zeros.get()), "{kernel} {length} {at}");
                zeros.get_mut()[at] = 0;
            }
        }
    });
}

#[test]
#[should_panic(expected = "sources as long as outputs")]
fn unequal_lengths_are_a_programmers_error() {
    let code = Code::new(2, 1).unwrap();
    code.generate(&[&[0; 64], &[0; 63]], &mut [&mut [0; 64]]);
}

#[test]
#[should_panic(expected = "as many outputs as rows")]
fn too_few_outputs_are_a_programmers_error() {
    let code = Code::new(2, 2).unwrap();
    code.generate(&[&[0; 64], &[0; 64]], &mut [&mut [0; 64]]);
}

#[test]
fn cycle_rotates_and_unknown_names_are_refused() {
    let _lock = CHOOSING
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let available = dispatch::available();
    assert_eq!(available.last(), Some(&"scalar"));
    assert!(available.iter().all(|name| ALL_KERNELS.contains(name)));
    dispatch::select("cycle").unwrap();
    assert_eq!(dispatch::active(), "cycle");
    let code = Code::new(5, 4).unwrap();
    let mut random = Random(13);
    for _ in 0..4 * available.len() {
        generate_and_check("cycle", &code, 200, &mut random);
    }
    let error = dispatch::select("abacus").unwrap_err();
    assert_eq!(error.name, "abacus");
    assert!(error.to_string().contains("scalar"), "{error}");
    assert_eq!(
        dispatch::active(),
        "cycle",
        "a refused choice changes nothing"
    );
    dispatch::select(available[0]).unwrap();
}

/// Also the child of the next test, which reads what this one prints.
#[test]
fn the_active_kernel_has_a_name() {
    println!("active={}", dispatch::active());
}

#[test]
fn the_environment_chooses_by_name() {
    let child = |value: Option<&str>| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "the_active_kernel_has_a_name", "--nocapture"]);
        command.env_remove(dispatch::VARIABLE);
        command.envs(value.map(|value| (dispatch::VARIABLE, value)));
        command.output()
    };
    let runs = child(None).is_ok_and(|output| output.status.success());
    if !runs {
        println!("SKIPPED: the test binary cannot run itself here (an emulated CPU?)");
        return;
    }
    for name in dispatch::available().into_iter().chain(["cycle"]) {
        let output = child(Some(name)).unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(&format!("active={name}\n")), "{name}: {text}");
    }
    for unset in [None, Some("")] {
        let output = child(unset).unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            text.contains(&format!("active={}\n", dispatch::available()[0])),
            "{text}"
        );
    }
    let output = child(Some("abacus")).unwrap();
    assert!(!output.status.success());
    let text = [output.stdout, output.stderr].concat();
    assert!(String::from_utf8_lossy(&text).contains("no parity kernel `abacus`"));
}

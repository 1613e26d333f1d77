//! Corrupt columns: the test changes columns, and the locator must name exactly those, or none.

use strake_parity::{Code, Verdict, reference};

/// A small generator, so that a failure is the same every time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1);
        self.0 >> 33
    }
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

const LEN: usize = 96;

/// All columns of a random stripe, by the reference.
fn stripe(code: &Code, numbers: &mut Numbers) -> Vec<Vec<u8>> {
    let data: Vec<Vec<u8>> = (0..code.k()).map(|_| numbers.bytes(LEN)).collect();
    let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let parities = (0..code.m()).map(|row| reference::parity_row(code, row, &slices));
    data.iter().cloned().chain(parities).collect()
}

fn codes() -> Vec<Code> {
    let mut codes: Vec<Code> = [(2, 1), (3, 2), (8, 2), (4, 3), (9, 3), (3, 4), (6, 5)]
        .map(|(k, m)| Code::new(k, m).expect("a code"))
        .into();
    codes.extend([2, 3, 4, 5].map(|copies| Code::mirror(copies).expect("a mirror")));
    codes
}

/// What the locator says of the columns, with `lost` missing.
fn verdict(code: &Code, columns: &[Vec<u8>], lost: &[usize]) -> Verdict {
    let present: Vec<Option<&[u8]>> = (0..columns.len())
        .map(|c| (!lost.contains(&c)).then_some(columns[c].as_slice()))
        .collect();
    let available: Vec<usize> = (0..columns.len()).filter(|c| !lost.contains(c)).collect();
    let locator = code.locator(&available).expect("k columns are there");
    let mut syndromes = vec![vec![0xa5; LEN]; locator.syndromes()];
    let mut slices: Vec<&mut [u8]> = syndromes.iter_mut().map(Vec::as_mut_slice).collect();
    let zero = locator.compute(&present, &mut slices);
    let slices: Vec<&[u8]> = syndromes.iter().map(Vec::as_slice).collect();
    let verdict = locator.locate(&slices);
    assert_eq!(zero, verdict == Verdict::Consistent);
    verdict
}

/// Every set of up to `most` columns.
fn sets(columns: usize, most: usize) -> Vec<Vec<usize>> {
    let of_set = |set: u32| (0..columns).filter(|c| set >> c & 1 == 1).collect();
    (0..1u32 << columns)
        .filter(|set| set.count_ones() as usize <= most)
        .map(of_set)
        .collect()
}

/// Changes a piece of the column: a byte, a few, or all of it.
fn spoil(column: &mut [u8], numbers: &mut Numbers) {
    let from = numbers.below(LEN);
    let len = [1, 7, LEN][numbers.below(3)].min(LEN - from);
    for byte in &mut column[from..from + len] {
        *byte ^= 1 + numbers.below(255) as u8;
    }
}

#[test]
fn as_many_liars_are_named_as_the_redundancy_left_can_name() {
    let mut numbers = Numbers(1);
    for code in codes() {
        let width = code.k() + code.m();
        for lost in sets(width, code.m()) {
            let checks = code.m() - lost.len();
            let whole = stripe(&code, &mut numbers);
            assert_eq!(verdict(&code, &whole, &lost), Verdict::Consistent);
            for column in (0..width).filter(|c| !lost.contains(c)) {
                let mut lying = whole.clone();
                spoil(&mut lying[column], &mut numbers);
                let expected = match checks {
                    0 => Verdict::Consistent,
                    1 => Verdict::Unclear,
                    _ => Verdict::Lies(1 << column),
                };
                let found = verdict(&code, &lying, &lost);
                assert_eq!(found, expected, "{code:?} without {lost:?}");
            }
        }
    }
}

#[test]
fn two_liars_are_named_where_three_checks_are_left() {
    let mut numbers = Numbers(2);
    for code in codes() {
        let width = code.k() + code.m();
        for pair in sets(width, 2).into_iter().filter(|set| set.len() == 2) {
            let mut lying = stripe(&code, &mut numbers);
            // Whole strips of random bytes: errors that are independent of each other.
            lying[pair[0]] = numbers.bytes(LEN);
            lying[pair[1]] = numbers.bytes(LEN);
            let expected = match code.m() {
                0..=2 => Verdict::Unclear,
                _ => Verdict::Lies(1 << pair[0] | 1 << pair[1]),
            };
            let found = verdict(&code, &lying, &[]);
            assert_eq!(found, expected, "{code:?}, {pair:?}");
        }
    }
}

#[test]
fn from_four_checks_on_two_liars_are_named_whatever_they_tell() {
    let mut numbers = Numbers(3);
    for (k, m) in [(3, 4), (5, 4), (4, 5)] {
        let code = Code::new(k, m).expect("a code");
        for _ in 0..400 {
            let mut lying = stripe(&code, &mut numbers);
            let (a, b) = (numbers.below(k + m), numbers.below(k + m));
            // The same error in both: as dependent as can be.
            let at = numbers.below(LEN);
            let error = 1 + numbers.below(255) as u8;
            lying[a][at] ^= error;
            lying[b][at] ^= error;
            let expected = match a == b {
                true => Verdict::Consistent,
                false => Verdict::Lies(1 << a | 1 << b),
            };
            assert_eq!(verdict(&code, &lying, &[]), expected);
        }
    }
}

#[test]
fn nobody_is_named_where_two_stories_fit() {
    let mut numbers = Numbers(4);
    // Two of four copies agree with each other, and so do the other two.
    let mirror = Code::mirror(4).expect("a mirror");
    let mut copies = stripe(&mirror, &mut numbers);
    let other = numbers.bytes(LEN);
    (copies[1], copies[2]) = (other.clone(), other);
    assert_eq!(verdict(&mirror, &copies, &[]), Verdict::Unclear);
    // One byte in each of four columns with three parities: a codeword of the least weight cut in
    // half, so that either half may be the lie.
    let code = Code::new(4, 3).expect("a code");
    let mut lying = stripe(&code, &mut numbers);
    let word: Vec<u8> = (0..3).map(|row| code.coefficient(row, 2)).collect();
    lying[2][5] ^= 1;
    lying[4][5] ^= word[0];
    assert_eq!(verdict(&code, &lying, &[]), Verdict::Unclear);
}

#[test]
fn a_majority_of_copies_names_the_liar() {
    let mut numbers = Numbers(5);
    for copies in 3..=6 {
        let mirror = Code::mirror(copies).expect("a mirror");
        for liar in 0..copies {
            let mut columns = stripe(&mirror, &mut numbers);
            spoil(&mut columns[liar], &mut numbers);
            assert_eq!(verdict(&mirror, &columns, &[]), Verdict::Lies(1 << liar));
        }
    }
}

//! The matrices: that they are the ones that drives will carry for ever, and that any m columns may
//! be lost. A systematic code survives any loss of m columns exactly if every square minor of its
//! matrix is invertible; that is shown here by trying minors (all of them up to the sizes named
//! below, a large sample elsewhere) and, for every size, by the form of the matrix.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use strake_parity::{Code, gf};

/// All products, so that elimination is a look-up.
struct Field {
    products: Vec<u8>,
    inverses: Vec<u8>,
}

impl Field {
    fn new() -> Field {
        let products = (0..=255u8)
            .flat_map(|a| (0..=255u8).map(move |b| gf::mul(a, b)))
            .collect();
        let inverses = (0..=255u8)
            .map(|a| if a == 0 { 0 } else { gf::inverse(a) })
            .collect();
        Field { products, inverses }
    }

    fn mul(&self, a: u8, b: u8) -> u8 {
        self.products[usize::from(a) << 8 | usize::from(b)]
    }

    /// Whether the minor of these rows and columns (as many of each) is invertible.
    fn invertible(&self, matrix: &[Vec<u8>], rows: &[usize], columns: &[usize]) -> bool {
        let order = rows.len();
        let mut minor = [[0u8; 32]; 32];
        for (entries, &row) in minor.iter_mut().zip(rows) {
            for (entry, &column) in entries.iter_mut().zip(columns) {
                *entry = matrix[row][column];
            }
        }
        for pivot in 0..order {
            let Some(found) = (pivot..order).find(|&row| minor[row][pivot] != 0) else {
                return false;
            };
            minor.swap(pivot, found);
            let above = minor[pivot];
            let scale = self.inverses[usize::from(above[pivot])];
            for entries in &mut minor[pivot + 1..order] {
                let factor = self.mul(entries[pivot], scale);
                for (entry, above) in entries[..order].iter_mut().zip(above).skip(pivot) {
                    *entry ^= self.mul(factor, above);
                }
            }
        }
        true
    }
}

fn matrix(k: usize, m: usize) -> Vec<Vec<u8>> {
    let code = Code::new(k, m).unwrap();
    (0..m)
        .map(|row| (0..k).map(|column| code.coefficient(row, column)).collect())
        .collect()
}

/// Steps to the next ascending choice of numbers below `bound`; false after the last.
fn next_choice(choice: &mut [usize], bound: usize) -> bool {
    let count = choice.len();
    for n in (0..count).rev() {
        if choice[n] < bound - (count - n) {
            choice[n] += 1;
            for later in n + 1..count {
                choice[later] = choice[later - 1] + 1;
            }
            return true;
        }
    }
    false
}

/// Tries every square minor of up to `order` rows; returns how many there were.
fn try_all_minors(field: &Field, matrix: &[Vec<u8>], order: usize) -> usize {
    let (m, k) = (matrix.len(), matrix[0].len());
    let mut tried = 0;
    for order in 1..=order.min(m).min(k) {
        let mut rows: Vec<usize> = (0..order).collect();
        loop {
            let mut columns: Vec<usize> = (0..order).collect();
            loop {
                assert!(
                    field.invertible(matrix, &rows, &columns),
                    "{rows:?} {columns:?}"
                );
                tried += 1;
                if !next_choice(&mut columns, k) {
                    break;
                }
            }
            if !next_choice(&mut rows, m) {
                break;
            }
        }
    }
    tried
}

#[test]
fn coefficients_do_not_depend_on_the_width_of_the_array() {
    for (m, widest) in [(1, 63), (2, 62), (3, 61), (4, 60), (9, 55), (32, 32)] {
        let wide = matrix(widest, m);
        for k in 1..=widest {
            for (narrow, wide) in matrix(k, m).iter().zip(&wide) {
                assert_eq!(narrow[..], wide[..k]);
            }
        }
    }
    let most = matrix(32, 32);
    for m in 4..=32 {
        assert_eq!(matrix(32, m)[..], most[..m]);
    }
}

#[test]
fn the_first_rows_are_those_of_md_and_raid_z() {
    for m in 1..=32 {
        let rows = matrix(64 - m, m);
        let powers = |base: u8| (0..64 - m).map(move |column| gf::pow(base, column));
        assert!(rows[0].iter().copied().eq(powers(1)));
        assert!(m < 2 || rows[1].iter().copied().eq(powers(2)));
        assert!(m != 3 || rows[2].iter().copied().eq(powers(4)));
        assert!(
            rows.iter().all(|row| row[0] == 1),
            "a code of one data column is a mirror"
        );
    }
}

#[test]
fn every_minor_of_pq_and_pqr_is_invertible_at_full_width() {
    let field = Field::new();
    assert_eq!(try_all_minors(&field, &matrix(62, 2), 2), 64 * 63 / 2 - 1);
    assert_eq!(
        try_all_minors(&field, &matrix(61, 3), 3),
        64 * 63 * 62 / 6 - 1
    );
}

/// As coefficients do not depend on the width, each of these covers all codes within it.
#[test]
fn every_minor_of_extended_cauchy_is_invertible_where_all_can_be_tried() {
    let field = Field::new();
    // Every square minor of an m×k matrix: C(m+k, m) − 1 of them.
    assert_eq!(try_all_minors(&field, &matrix(60, 4), 4), 635_375);
    assert_eq!(try_all_minors(&field, &matrix(59, 5), 5), 7_624_511);
    assert_eq!(try_all_minors(&field, &matrix(12, 12), 12), 2_704_155);
    assert_eq!(try_all_minors(&field, &matrix(4, 32), 4), 58_904);
    assert_eq!(
        try_all_minors(&field, &matrix(32, 32), 2),
        32 * 32 + 496 * 496
    );
}

#[test]
fn sampled_minors_of_extended_cauchy_are_invertible_everywhere() {
    let field = Field::new();
    let mut state = 0x5741_4b45u64;
    let mut below = |bound: usize| {
        // Knuth's MMIX generator; its upper bits are good.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % bound as u64) as usize
    };
    let matrices: Vec<Vec<Vec<u8>>> = (4..=32).map(|m| matrix(64 - m, m)).collect();
    for sample in 0..300_000 {
        let matrix = &matrices[sample % matrices.len()];
        let (m, k) = (matrix.len(), matrix[0].len());
        let order = 1 + below(m.min(k));
        let mut choose = |bound: usize| {
            let mut all: Vec<usize> = (0..bound).collect();
            for n in 0..order {
                all.swap(n, n + below(bound - n));
            }
            all.truncate(order);
            all
        };
        let (rows, columns) = (choose(m), choose(k));
        assert!(
            field.invertible(matrix, &rows, &columns),
            "{m} {rows:?} {columns:?}"
        );
    }
}

/// The proof for every size: from row 1 on, c_ji·(x_j + y_i) is the same for all i, with x_1 = 0,
/// x_j = 2^(j−1), y_i = 2^−i all distinct. So those rows are a Cauchy matrix with scaled rows, and
/// row 0 is the row of x = ∞. By Cauchy's determinant no minor is zero.
#[test]
fn the_matrix_is_a_cauchy_matrix_with_a_row_at_infinity() {
    for m in 4..=32 {
        let k = 64 - m;
        let rows = matrix(k, m);
        let x: Vec<u8> = (1..m)
            .map(|j| if j == 1 { 0 } else { gf::pow(2, j - 1) })
            .collect();
        let y: Vec<u8> = (0..k).map(|i| gf::inverse(gf::pow(2, i))).collect();
        let mut all = [x.clone(), y.clone()].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), m - 1 + k, "the points are distinct");
        assert!(rows[0].iter().all(|&entry| entry == 1));
        for (row, x) in rows[1..].iter().zip(&x) {
            let scale = gf::mul(row[0], x ^ y[0]);
            assert_ne!(scale, 0);
            for (entry, y) in row.iter().zip(&y) {
                assert_eq!(gf::mul(*entry, x ^ y), scale);
            }
        }
    }
}

/// Parity on drives depends on these numbers: a change of any is a change of the format.
#[test]
fn the_coefficients_are_the_ones_on_drives() {
    assert_eq!(matrix(10, 2)[1], [1, 2, 4, 8, 16, 32, 64, 128, 29, 58]);
    assert_eq!(matrix(10, 3)[2], [1, 4, 16, 64, 29, 116, 205, 19, 76, 45]);
    assert_eq!(matrix(6, 4)[2], [1, 245, 210, 196, 154, 113]);
    assert_eq!(matrix(6, 4)[3], [1, 187, 166, 215, 199, 7]);
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for m in 1..=32 {
        for entry in matrix(64 - m, m).concat() {
            // FNV-1a.
            hash = (hash ^ u64::from(entry)).wrapping_mul(0x100_0000_01b3);
        }
    }
    assert_eq!(hash, 0x6097_e5ec_7d91_b9f5);
}

/// What lets a mirror become an array with parity: nothing has to be written for that.
#[test]
fn up_to_three_parities_of_one_column_are_copies_of_it() {
    for m in 1..=3 {
        assert_eq!(matrix(1, m), vec![vec![1]; m]);
    }
}

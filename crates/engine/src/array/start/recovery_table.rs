//! The decision table of recovery, enumerated: every state that a crash can leave of one block of a
//! row, for small codes, with every set of lost members that the level survives; and then the same
//! after a second crash in the middle of the replay, with further losses.
//!
//! What must hold: a block that was not being written is what it was; one that was is old or new;
//! one may be unreadable only if its member was lost with the crash, in a write of several columns
//! of which some blocks were old and some new; and parity is true.

use strake_format::checksum;
use strake_parity::Code;

use crate::array::start::replay::{Job, decide};
use crate::geometry::column_set::Columns;
use crate::log::recover::{Piece, Unchanged, Verdict, mend};
use crate::units::StripeNo;

const BYTES: usize = 16;

type Row = Vec<Vec<u8>>;

/// A write of one block of a row.
struct Case {
    code: Code,
    written: Columns,
    old: Row,
    new: Row,
    /// Lost before the write.
    before: Columns,
    /// The column of the member that holds the partial syndrome of the only parity.
    holder: usize,
}

fn whole_row(code: &Code, data: &[Vec<u8>]) -> Row {
    let mut parity = vec![vec![0; BYTES]; code.m()];
    let inputs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    code.generate(&inputs, &mut outputs);
    data.iter().cloned().chain(parity).collect()
}

impl Case {
    fn new(code: &Code, written: Columns, before: Columns, holder: usize) -> Case {
        let k = code.k();
        let content = |c: usize, salt: u8| -> Vec<u8> {
            // A parity that happens to be the same before and after would tell nothing.
            let seed = u32::from(salt) << 8 | c as u32;
            let word = |i: u32| (seed * 64 + i).wrapping_mul(0x9e37_79b1).rotate_left(15);
            (0..BYTES as u32)
                .map(|i| (word(i).wrapping_mul(0x85eb_ca6b) >> 24) as u8)
                .collect()
        };
        let old: Vec<Vec<u8>> = (0..k).map(|c| content(c, 0x11)).collect();
        let new = |c: usize| match written.has(c) {
            true => content(c, 0xa7),
            false => old[c].clone(),
        };
        let new: Vec<Vec<u8>> = (0..k).map(new).collect();
        Case {
            code: code.clone(),
            written,
            old: whole_row(code, &old),
            new: whole_row(code, &new),
            before,
            holder,
        }
    }

    fn width(&self) -> usize {
        self.code.k() + self.code.m()
    }

    /// The same write, but that these columns of it hold already what it writes.
    fn repeating(self, same: Columns) -> Case {
        let k = self.code.k();
        let content = |c: usize| match same.has(c) {
            true => self.old[c].clone(),
            false => self.new[c].clone(),
        };
        let new: Vec<Vec<u8>> = (0..k).map(content).collect();
        Case {
            new: whole_row(&self.code, &new),
            ..self
        }
    }

    /// The same write, but that it changes two columns by as much: the first parity stays as it is.
    fn balanced(self) -> Option<Case> {
        let mut two = self.written.each();
        let (one, other) = (two.next()?, two.next()?);
        let changes = self.old[one].iter().zip(&self.new[one]);
        let changes = changes.map(|(old, new)| old ^ new);
        let content = self.old[other].iter().zip(changes);
        let mut new = self.old[..self.code.k()].to_vec();
        new[one].clone_from(&self.new[one]);
        new[other] = content.map(|(old, change)| old ^ change).collect();
        Some(Case {
            written: Columns(1 << one | 1 << other),
            new: whole_row(&self.code, &new),
            ..self
        })
    }

    /// What the record says of that.
    fn unchanged(&self) -> Option<Unchanged> {
        let same = |c: usize| self.old[c] == self.new[c];
        let columns = self.written.each().chain([self.code.k()]);
        let mut record = Vec::new();
        let unit = BYTES as u64;
        Unchanged::encode(unit, columns.map(same), &mut record);
        Unchanged::decode(&record, unit, self.written.count(), unit)
    }

    /// What the logs of the members that are not in `lost` tell.
    fn piece(&self, lost: Columns) -> Piece {
        let (k, m) = (self.code.k(), self.code.m());
        let zeros = vec![0; BYTES];
        let untouched: Vec<Vec<u8>> = (0..k)
            .map(|c| {
                if self.written.has(c) {
                    zeros.clone()
                } else {
                    self.old[c].clone()
                }
            })
            .collect();
        let syndromes = whole_row(&self.code, &untouched).split_off(k);
        let sums = |c: usize| match (self.before.has(c) && c >= k, self.written.has(c) || c >= k) {
            (true, _) => vec![0],
            (_, true) => vec![checksum::crc32c(&self.new[c])],
            _ => Vec::new(),
        };
        let holder = |j: usize| if m == 1 { self.holder } else { k + j };
        let there = |j: usize| !lost.has(holder(j)) && !self.before.has(k + j);
        let partial = self.written.count() < k;
        Piece {
            stripe: StripeNo(0),
            operation: 7,
            lo: 0,
            hi: BYTES as u64,
            written: self.written,
            unit: BYTES as u64,
            sums: (0..k + m).map(sums).collect(),
            syndromes: (0..m)
                .map(|j| (partial && there(j)).then(|| syndromes[j].clone()))
                .collect(),
            known: (0..k)
                .map(|c| {
                    let logged = self.written.has(c) && self.before.has(c);
                    logged.then(|| self.new[c].clone())
                })
                .collect(),
            unchanged: self.unchanged(),
            settled: false,
        }
    }

    /// The same with checksums of sectors.
    fn piece_of_sectors(&self, lost: Columns, sector: usize) -> Piece {
        let mut piece = self.piece(lost);
        piece.unit = sector as u64;
        for (c, sums) in piece.sums.iter_mut().enumerate() {
            match sums[..] {
                [] => {}
                [0] => *sums = vec![0; BYTES / sector],
                _ => *sums = self.new[c].chunks(sector).map(checksum::crc32c).collect(),
            }
        }
        piece
    }

    /// The columns that a write puts in place: of W and the parities, those that have a member.
    fn changing(&self) -> Vec<usize> {
        let k = self.code.k();
        (0..self.width())
            .filter(|&c| (c >= k || self.written.has(c)) && !self.before.has(c))
            .collect()
    }

    /// Everything that must hold of an outcome.
    fn check(&self, state: &str, columns: &[Option<Vec<u8>>], verdict: Verdict, lost: Columns) {
        let k = self.code.k();
        let Some(unreadable) = given_up(verdict) else {
            return;
        };
        let row: Row = columns
            .iter()
            .map(|c| c.clone().expect("all are there"))
            .collect();
        for (c, content) in row.iter().enumerate().take(k) {
            let (old, new) = (*content == self.old[c], *content == self.new[c]);
            if unreadable.has(c) {
                let fair = self.written.has(c)
                    && lost.has(c)
                    && !self.before.has(c)
                    && self.written.count() > 1;
                assert!(fair, "{state}: column {c} is given up");
            } else {
                assert!(old || new, "{state}: column {c} is neither old nor new");
            }
        }
        assert_eq!(
            whole_row(&self.code, &row[..k]),
            row,
            "{state}: parity is not true"
        );
    }
}

/// What a verdict gives up; `None` where it leaves the row as it is.
fn given_up(verdict: Verdict) -> Option<Columns> {
    match verdict {
        Verdict::Leave => None,
        Verdict::InPlace => Some(Columns::default()),
        Verdict::Mended { unreadable } => Some(unreadable),
    }
}

fn sets(width: usize, most: usize) -> impl Iterator<Item = Columns> {
    (0..1u64 << width)
        .map(Columns)
        .filter(move |set| set.count() <= most)
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (k, m) in [(1, 1), (2, 1), (3, 1), (2, 2), (3, 2), (2, 3)] {
        let code = Code::new(k, m).expect("a code");
        for written in (1..1u64 << k).map(Columns) {
            for before in sets(k + m, m) {
                cases.push(Case::new(&code, written, before, k));
                // One parity and a whole group: a member that is written may hold its syndrome.
                let others = (0..k).filter(|&c| m == 1 && before.is_empty() && written.has(c));
                cases.extend(others.map(|c| Case::new(&code, written, before, c)));
                let several = || Case::new(&code, written, before, k);
                let repeated = (1..1u64 << k).filter(|same| *same & !written.0 == 0);
                cases.extend(repeated.map(|same| several().repeating(Columns(same))));
                cases.extend(several().balanced());
            }
        }
    }
    cases
}

/// Every mixture of old and new over the columns that the write changes: bit i is the i-th of them.
fn states(case: &Case) -> impl Iterator<Item = (u64, Row)> {
    let changing = case.changing();
    (0..1u64 << changing.len()).map(move |mixture| {
        let mut row = case.old.clone();
        for (i, &c) in changing.iter().enumerate() {
            if mixture >> i & 1 == 1 {
                row[c].clone_from(&case.new[c]);
            }
        }
        (mixture, row)
    })
}

fn without(row: &Row, lost: Columns) -> Vec<Option<Vec<u8>>> {
    let there = |(c, content): (usize, &Vec<u8>)| (!lost.has(c)).then(|| content.clone());
    row.iter().enumerate().map(there).collect()
}

#[test]
fn after_one_crash_every_block_is_what_it_was_or_old_or_new() {
    let mut seen = 0;
    for case in cases() {
        let all = (1u64 << case.changing().len()) - 1;
        for lost in sets(case.width(), case.code.m()).filter(|l| case.before.0 & !l.0 == 0) {
            for (mixture, row) in states(&case) {
                let piece = case.piece(lost);
                let mut columns = without(&row, lost);
                let verdict = mend(&case.code, &piece, 0, &mut columns, false);
                let (k, m) = (case.code.k(), case.code.m());
                let state = format!(
                    "{k}+{m}, written {:b}, lost before {:b}, lost {:b}, in place {mixture:b}",
                    case.written.0, case.before.0, lost.0
                );
                assert_ne!(
                    verdict,
                    Verdict::Leave,
                    "{state}: the records are all there"
                );
                case.check(&state, &columns, verdict, lost);
                if mixture == 0 || mixture == all {
                    assert_eq!(
                        given_up(verdict),
                        Some(Columns::default()),
                        "{state}: no mixture"
                    );
                    assert!(
                        !lost.is_empty() || verdict == Verdict::InPlace,
                        "{state}: there is nothing to do"
                    );
                }
                seen += 1;
            }
        }
    }
    assert!(seen > 9_000, "{seen} states");
}

/// Records that are durable on some of their members only: nothing is in place yet.
#[test]
fn a_write_that_never_began_changes_nothing_that_it_leaves_alone() {
    for case in cases() {
        for lost in sets(case.width(), case.code.m()).filter(|l| case.before.0 & !l.0 == 0) {
            let m = case.code.m();
            for torn in 0..1u64 << (m + 1) {
                let mut piece = case.piece(lost);
                (0..m)
                    .filter(|j| torn >> j & 1 == 1)
                    .for_each(|j| piece.syndromes[j] = None);
                if torn >> m & 1 == 1 {
                    piece.known.fill(None);
                }
                let mut columns = without(&case.old, lost);
                let verdict = mend(&case.code, &piece, 0, &mut columns, false);
                let state = format!("written {:b}, lost {:b}", case.written.0, lost.0);
                case.check(&state, &columns, verdict, lost);
                if verdict == Verdict::Leave {
                    let untouched = (0..case.code.k())
                        .filter(|&c| lost.has(c) && !case.written.has(c))
                        .count();
                    assert!(untouched > 0, "{state}: left as it is for no reason");
                }
            }
        }
    }
}

/// Logs have lost the partial syndromes, and members are missing: more than the level survives.
#[test]
fn what_a_write_leaves_alone_is_never_computed_from_half_of_it() {
    let (mut computed, mut lost_blocks) = (0, 0);
    for case in cases().into_iter().filter(|case| case.before.is_empty()) {
        let (k, m) = (case.code.k(), case.code.m());
        let untouched = |lost: &Columns| (0..k).any(|c| lost.has(c) && !case.written.has(c));
        for lost in sets(k + m, m).filter(untouched) {
            for (mixture, row) in states(&case) {
                let mut piece = case.piece(lost);
                piece.syndromes.fill(None);
                let mut columns = without(&row, lost);
                let verdict = mend(&case.code, &piece, 0, &mut columns, false);
                let state = format!(
                    "{k}+{m}, written {:b}, lost {:b}, in place {mixture:b}",
                    case.written.0, lost.0
                );
                if let Verdict::Mended { unreadable } = verdict {
                    let row: Row = columns.into_iter().map(|c| c.expect("mended")).collect();
                    assert_eq!(whole_row(&case.code, &row[..k]), row, "{state}: parity");
                    for c in (0..k).filter(|&c| !unreadable.has(c)) {
                        let known = row[c] == case.old[c] || row[c] == case.new[c];
                        assert!(known, "{state}: column {c}");
                    }
                    lost_blocks += unreadable.count();
                    continue;
                }
                assert_eq!(verdict, Verdict::Leave, "{state}");
                let there = |c: usize| columns[c].as_deref();
                let row: Vec<Option<&[u8]>> = (0..k + m).map(there).collect();
                let gone: Vec<usize> = (0..k).filter(|&c| lost.has(c)).collect();
                let available: Vec<usize> = (0..k + m).filter(|&c| row[c].is_some()).collect();
                let decoder = case
                    .code
                    .decoder(&available, &gone)
                    .expect("enough is there");
                let sources = decoder.sources().iter();
                let inputs: Vec<&[u8]> = sources.map(|&c| row[c].expect("there")).collect();
                let mut outputs = vec![vec![0; BYTES]; gone.len()];
                let mut slices: Vec<&mut [u8]> =
                    outputs.iter_mut().map(Vec::as_mut_slice).collect();
                decoder.decode(&inputs, &mut slices);
                for (&c, content) in gone.iter().zip(&outputs) {
                    let known = *content == case.old[c] || *content == case.new[c];
                    assert!(known, "{state}: column {c} reads as what nobody wrote");
                }
                computed += 1;
            }
        }
    }
    assert!(computed > 0 && lost_blocks > 0, "{computed}, {lost_blocks}");
}

/// A record that is found although its write is long in place, and what was lost then is rebuilt.
#[test]
fn a_write_that_is_done_loses_nothing_to_its_record() {
    for case in cases() {
        for lost in sets(case.width(), case.code.m()) {
            let piece = case.piece(lost);
            let mut columns = without(&case.new, lost);
            let verdict = mend(&case.code, &piece, 0, &mut columns, false);
            let state = format!(
                "{}+{}, written {:b}, lost before {:b}, lost {:b}",
                case.code.k(),
                case.code.m(),
                case.written.0,
                case.before.0,
                lost.0
            );
            let nothing_lost = [None, Some(Columns::default())];
            assert!(
                nothing_lost.contains(&given_up(verdict)),
                "{state}: {verdict:?}"
            );
            if verdict != Verdict::Leave {
                let row: Row = columns.into_iter().map(|c| c.expect("mended")).collect();
                assert_eq!(row, case.new, "{state}");
            }
        }
    }
}

/// The write is long in place, no member is lost, and one column has gone bad since.
#[test]
fn a_column_that_went_bad_beside_a_record_is_not_covered_up() {
    for case in cases().into_iter().filter(|case| case.before.is_empty()) {
        let (k, m) = (case.code.k(), case.code.m());
        for bad in 0..k + m {
            let mut row = case.new.clone();
            row[bad].iter_mut().for_each(|byte| *byte ^= 0x5a);
            let mut columns = without(&row, Columns::default());
            let piece = case.piece(Columns::default());
            let verdict = mend(&case.code, &piece, 0, &mut columns, false);
            let after: Row = columns.into_iter().map(|c| c.expect("all there")).collect();
            let state = format!("{k}+{m}, written {:b}, bad {bad}", case.written.0);
            match bad < k && !case.written.has(bad) {
                // Parity goes on to tell of it.
                true => assert_eq!((verdict, after), (Verdict::InPlace, row), "{state}"),
                false => assert_eq!(after, case.new, "{state}"),
            }
        }
    }
}

/// One block of a write that is long in place has gone bad, and parities were rebuilt from it
/// before the record was replayed.
#[test]
fn a_parity_that_was_built_from_a_block_that_went_bad_does_not_vouch_for_it() {
    for case in cases().into_iter().filter(|case| case.before.is_empty()) {
        let (k, m) = (case.code.k(), case.code.m());
        for bad in (0..k).filter(|&c| case.written.has(c)) {
            for built in sets(m, m - 1) {
                let mut row = case.new.clone();
                row[bad].iter_mut().for_each(|byte| *byte ^= 0x5a);
                let data: Vec<&[u8]> = row[..k].iter().map(Vec::as_slice).collect();
                let mut parities = vec![vec![0; BYTES]; m];
                let mut outputs: Vec<&mut [u8]> =
                    parities.iter_mut().map(Vec::as_mut_slice).collect();
                case.code.generate(&data, &mut outputs);
                for j in built.each() {
                    row[k + j] = parities[j].clone();
                }
                let mut columns = without(&row, Columns::default());
                mend(
                    &case.code,
                    &case.piece(Columns::default()),
                    0,
                    &mut columns,
                    false,
                );
                let after: Row = columns.into_iter().map(|c| c.expect("all there")).collect();
                let state = format!("{k}+{m}, bad {bad}, built {:b}", built.0);
                assert_eq!(after, case.new, "{state}");
            }
        }
    }
}

/// Of a write that was acknowledged one block is lost, and another one has gone bad.
#[test]
fn a_lost_block_of_a_write_is_computed_beside_one_that_went_bad() {
    for case in cases().into_iter().filter(|case| case.before.is_empty()) {
        let (k, m) = (case.code.k(), case.code.m());
        let written = |c: &usize| case.written.has(*c);
        for (lost, bad) in (0..k).flat_map(|lost| (0..k).map(move |bad| (lost, bad))) {
            if lost == bad || m < 2 || !written(&lost) || !written(&bad) {
                continue;
            }
            let mut row = case.new.clone();
            row[bad].fill(0x5a);
            let gone = Columns(1 << lost);
            let mut columns = without(&row, gone);
            mend(&case.code, &case.piece(gone), 0, &mut columns, false);
            let after: Row = columns.into_iter().map(|c| c.expect("all there")).collect();
            assert_eq!(after, case.new, "{k}+{m}, lost {lost}, bad {bad}");
        }
    }
}

#[test]
fn a_second_crash_in_the_replay_loses_nothing_more_than_the_first_might() {
    for case in cases() {
        let (k, m) = (case.code.k(), case.code.m());
        for lost in sets(case.width(), m).filter(|l| case.before.0 & !l.0 == 0) {
            for (mixture, row) in states(&case) {
                // Otherwise nothing is written, and the first record still tells of the row.
                let Some(first) = settle(&case, &row, lost) else {
                    continue;
                };
                let differs = |c: &usize| !lost.has(*c) && row[*c] != first.columns[*c];
                let changes: Vec<usize> = (0..k + m).filter(differs).collect();
                for more in sets(case.width(), m).filter(|l| lost.0 & !l.0 == 0) {
                    // Each column may be as it was found, or as the replay makes it.
                    for replayed in 0..1u64 << changes.len() {
                        let mut then = row.clone();
                        let done = changes.iter().enumerate();
                        for (_, &c) in done.filter(|(i, _)| replayed >> i & 1 == 1) {
                            then[c].clone_from(&first.columns[c]);
                        }
                        let mut columns = without(&then, more);
                        let verdict = mend(&case.code, &first.piece, 0, &mut columns, false);
                        let state = format!(
                            "{k}+{m}, written {:b}, lost {:b} then {:b}, in place {mixture:b}, \
                             replayed {replayed:b}",
                            case.written.0, lost.0, more.0
                        );
                        assert_ne!(verdict, Verdict::Leave, "{state}");
                        check_again(
                            &case,
                            &state,
                            &columns,
                            verdict,
                            (lost, more),
                            &first.columns,
                        );
                    }
                }
            }
        }
    }
}

/// A block of two sectors, each of which a crash left in a state of its own.
#[test]
fn of_a_torn_block_every_sector_is_old_or_new() {
    const SECTOR: usize = BYTES / 2;
    let halves = [0..SECTOR, SECTOR..BYTES];
    let (mut given_up, mut torn) = (0, 0);
    for case in cases() {
        let (k, m) = (case.code.k(), case.code.m());
        for lost in sets(k + m, m).filter(|l| case.before.0 & !l.0 == 0) {
            let piece = case.piece_of_sectors(lost, SECTOR);
            let all: Vec<(u64, Row)> = states(&case).collect();
            for ((first, one), (second, other)) in
                all.iter().flat_map(|a| all.iter().map(move |b| (a, b)))
            {
                let row: Row = one
                    .iter()
                    .zip(other)
                    .map(|(one, other)| [&one[..SECTOR], &other[SECTOR..]].concat())
                    .collect();
                let state = format!(
                    "{k}+{m}, written {:b}, lost before {:b}, lost {:b}, in place {first:b} and \
                     {second:b}",
                    case.written.0, case.before.0, lost.0
                );
                let mut job = Job::new(piece.clone(), k + m);
                job.columns = without(&row, lost);
                let outcome = decide(&case.code, &mut job, BYTES as u64, SECTOR as u64).pop();
                let (row, lost_parts) = match outcome {
                    Some(outcome) => (outcome.columns, outcome.lost),
                    None => (row, Vec::new()),
                };
                assert_eq!(
                    whole_row(&case.code, &row[..k]),
                    row,
                    "{state}: parity is not true"
                );
                for (c, column) in row.iter().enumerate().take(k) {
                    if lost_parts.iter().any(|part| part.column == c) {
                        let fair = case.written.has(c) && lost.has(c) && !case.before.has(c);
                        assert!(fair && case.written.count() > 1, "{state}: {c} is given up");
                        given_up += 1;
                        continue;
                    }
                    for half in &halves {
                        let content = &column[half.clone()];
                        let known = [&case.old[c], &case.new[c]].map(|all| &all[half.clone()]);
                        assert!(known.contains(&content), "{state}: column {c}");
                    }
                    torn += usize::from(*column != case.old[c] && *column != case.new[c]);
                }
            }
        }
    }
    assert!(given_up > 0 && torn > 0, "{given_up} given up, {torn} torn");
}

struct First {
    piece: Piece,
    columns: Row,
}

/// What a first recovery makes of this state and logs before it writes in place.
fn settle(case: &Case, row: &Row, lost: Columns) -> Option<First> {
    let piece = case.piece(lost);
    let mut job = Job::new(piece, case.width());
    job.columns = without(row, lost);
    let outcome = decide(&case.code, &mut job, BYTES as u64, BYTES as u64).pop()?;
    Some(First {
        piece: outcome.piece,
        columns: outcome.columns,
    })
}

fn check_again(
    case: &Case,
    state: &str,
    columns: &[Option<Vec<u8>>],
    verdict: Verdict,
    (lost, more): (Columns, Columns),
    first: &Row,
) {
    let k = case.code.k();
    let Some(unreadable) = given_up(verdict) else {
        return;
    };
    let row: Row = columns
        .iter()
        .map(|c| c.clone().expect("all are there"))
        .collect();
    for c in 0..k {
        if unreadable.has(c) {
            let fair = case.written.has(c) && more.has(c) && case.written.count() > 1;
            assert!(fair && !lost.has(c), "{state}: column {c} is given up");
            continue;
        }
        let known = [&case.old[c], &case.new[c], &first[c]];
        assert!(known.contains(&&row[c]), "{state}: column {c}");
        if !case.written.has(c) {
            assert_eq!(row[c], case.old[c], "{state}: column {c} was not written");
        }
    }
    assert_eq!(
        whole_row(&case.code, &row[..k]),
        row,
        "{state}: parity is not true"
    );
}

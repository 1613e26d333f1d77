//! I/Os of one batch that lie side by side on a device go to it as one.
//!
//! A long request takes whole strips of neighbouring rows, and a rebuild reads row after row: of
//! each member that is one run of bytes, in buffers of several operations. What each I/O costs by
//! itself (its way through the kernel, a command, an interrupt) is paid once for all of them ([RFD
//! 17]).
//!
//! Invariants:
//! * Only what the kernel does not have yet is merged, so nothing waits for a neighbour.
//! * Each I/O keeps its flight, with buffer, deadline and answer of its own; the memory of all of
//!   them stays in the table until the kernel has answered the one entry that they share.
//! * Writes are merged only where they are alike: both durable or neither, and of one write stream.
//! * An error says nothing of most of what was merged. Where it is of the medium, reads are
//!   repeated one by one, so that the engine learns which bytes it is about; writes have all
//!   failed. Where it is of the way to the device, each has met it, and `strake_engine::retry`
//!   rules for each.
//!
//! Deliberately absent: merging of what is repeated or continued, of reads in place, and of what
//! lies apart.
//!
//! [RFD 17]: ../../../../docs/rfd/0017-merged-member-io.md

use io_uring::opcode;
use strake_engine::buffers::PAGE;

use super::*;
use crate::ring::{PIECES_MOST, Pushed};

/// Bytes that go as one, at most (and no more than a request to the device can carry): drives are
/// at their full speed with less, and a reader waits for all of it.
const BYTES_MOST: usize = 256 << 10;

/// The newest read or write that a device was given, which a neighbour may join.
#[derive(Debug)]
pub(super) struct Newest {
    pushed: Pushed,
    place: u32,
    way: Way,
    end: u64,
    bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Read,
    Write { fua: bool, stream: u8 },
}

/// What goes as one: the flight that has the entry first.
#[derive(Debug, Default)]
pub(super) struct Merged {
    places: Vec<u32>,
    memory: Vec<Memory>,
}

/// As the kernel's `struct iovec`.
#[repr(C)]
#[derive(Debug)]
struct Memory {
    base: usize,
    len: usize,
}

/// What an I/O that could be merged is about.
struct Span {
    way: Way,
    offset: u64,
    memory: Memory,
}

impl Work {
    fn span(&mut self) -> Option<Span> {
        let (way, offset, base, len) = match self {
            Work::Read {
                offset,
                buf,
                start,
                len,
                done: 0,
            } => {
                let base = buf.bytes_mut()[*start..].as_mut_ptr() as usize;
                (Way::Read, *offset, base, *len)
            }
            Work::Write {
                offset,
                data,
                fua,
                stream,
                done: 0,
            } => {
                let base = data.bytes().as_ptr() as usize;
                let (fua, stream) = (*fua, *stream);
                (Way::Write { fua, stream }, *offset, base, data.len)
            }
            _ => return None,
        };
        // Drives may take no list of pieces that begin or end within a page.
        let whole = (base | len).is_multiple_of(PAGE) && len > 0 && len < BYTES_MOST;
        let memory = Memory { base, len };
        whole.then_some(Span {
            way,
            offset,
            memory,
        })
    }
}

impl MemberIos {
    /// Whatever lies side by side in one batch is merged from now on.
    pub(crate) fn merging(mut self) -> MemberIos {
        self.merges = true;
        self
    }

    /// Lets a flight that begins join the newest of its device. False if it has to go by itself.
    pub(super) fn join(&mut self, ring: &mut Ring, place: u32, now: Time) -> bool {
        if !self.merges {
            return false;
        }
        let flight = self.flights.get_mut(place).expect("it is in the table");
        let Some(span) = flight.work.span() else {
            return false;
        };
        let attached = self.attached.get_mut(&flight.id);
        let Some((file, most, newest)) = attached.and_then(|attached| {
            let most = attached.device.at_once().min(BYTES_MOST);
            Some((attached.file, most, attached.newest.as_mut()?))
        }) else {
            return false;
        };
        let bytes = newest.bytes + span.memory.len;
        let side_by_side = newest.way == span.way && newest.end == span.offset;
        if !side_by_side || bytes > most || !ring.waits(newest.pushed) {
            return false;
        }
        let head = (self.flights.get_mut(newest.place)).expect("what waits is in the table");
        let offset = span.offset - newest.bytes as u64;
        if head.merged.is_none() {
            let first = head.work.span().expect("it was looked at when it began");
            let mut merged = self.spare.pop().unwrap_or_default();
            merged.places.push(newest.place);
            merged.memory.push(first.memory);
            head.merged = Some(merged);
        }
        let flag = head.room.flag();
        let merged = head.merged.as_mut().expect("it was just put there");
        if merged.places.len() == PIECES_MOST {
            return false;
        }
        (newest.end, newest.bytes) = (span.offset + span.memory.len as u64, bytes);
        merged.places.push(place);
        merged.memory.push(span.memory);
        let memory = merged.memory.as_ptr().cast::<libc::iovec>();
        let (fd, count) = (file.fd(), merged.memory.len() as u32);
        let entry = match span.way {
            Way::Read => opcode::Readv::new(fd, memory, count)
                .offset(offset)
                .rw_flags(flag)
                .build(),
            Way::Write { fua, stream } => opcode::Writev::new(fd, memory, count)
                .offset(offset)
                .rw_flags(write_flags(fua) | flag)
                .write_stream(stream)
                .build(),
        };
        // SAFETY: the memory named is that of flights, which stay in the table until this entry is
        // reaped (`MemberIos::part`); the list of it is the head's, and read while it is submitted.
        let amended = unsafe { ring.amend(newest.pushed, file.mark(entry)) };
        assert!(amended, "it was seen to wait");
        self.due(place, now);
        true
    }

    /// A flight went by itself, and others may join it.
    pub(super) fn may_be_joined(&mut self, place: u32, pushed: Pushed) {
        if !self.merges {
            return;
        }
        let flight = self.flights.get_mut(place).expect("it is in the table");
        let newest = flight.work.span().map(|span| Newest {
            pushed,
            place,
            way: span.way,
            end: span.offset + span.memory.len as u64,
            bytes: span.memory.len,
        });
        if let Some(attached) = self.attached.get_mut(&flight.id)
            && newest.is_some()
        {
            attached.newest = newest;
        }
    }

    /// The kernel has answered what several share: each is told, or goes on by itself.
    pub(super) fn part(
        &mut self,
        ring: &mut Ring,
        mut merged: Box<Merged>,
        result: i32,
        now: Time,
        finished: &mut Vec<Finished>,
    ) {
        let mut moved = usize::try_from(result).unwrap_or(0);
        let alone = result >= 0 || self.asks_again(&merged, -result);
        for (place, memory) in merged.places.drain(..).zip(merged.memory.drain(..)) {
            if moved >= memory.len {
                moved -= memory.len;
                finished.extend(self.conclude(ring, place, Ok(()), now));
                continue;
            }
            moved = 0;
            let flight = self.flights.get_mut(place).expect("it is in the table");
            let file = flight.file;
            if !alone || flight.abandoned {
                let result = if result < 0 { result } else { -libc::EIO };
                finished.extend(self.finish_one(ring, place, result, now));
            } else if result < 0 {
                // Another try, for which there is as much time as for the first.
                self.begin(ring, place, file, now);
            } else {
                self.submit(ring, place, file);
            }
        }
        self.spare.push(merged);
    }

    /// True for reads that are to be repeated one by one: the failure may concern only one of them.
    /// A member that was put out gets no more reads.
    fn asks_again(&mut self, merged: &Merged, errno: i32) -> bool {
        let head = self.flights.get_mut(merged.places[0]);
        let head = head.expect("it is in the table");
        let read = matches!(head.work, Work::Read { .. }) && self.attached.contains_key(&head.id);
        let of_medium = |error| matches!(error, IoError::Media | IoError::Unclear);
        read && of_medium(head.device.classify(errno))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::tests::{Bench, member};
    use super::*;

    const PART: usize = 65536;

    fn bench(path: &Path, timeout: Duration) -> Bench {
        let mut bench = Bench::new(path, timeout);
        bench.ios = bench.ios.merging();
        bench
    }

    fn write(bench: &mut Bench, io: u64, at: usize, fua: bool) {
        write_as(bench, io, at, fua, WritePurpose::Data);
    }

    fn write_as(bench: &mut Bench, io: u64, at: usize, fua: bool, purpose: WritePurpose) {
        let mut buf = bench.pool.take(PART).expect("free");
        buf.bytes_mut().fill(at as u8 + 1);
        let kind = IoKind::Write {
            offset: (at * PART) as u64,
            data: Slice::new(buf, 0, PART),
            fua,
            purpose,
        };
        assert!(bench.start(io, kind).is_none());
    }

    fn read(bench: &mut Bench, io: u64, at: usize) {
        let buf = bench.pool.take(PART).expect("free");
        let (offset, start, len) = ((at * PART) as u64, 0, PART);
        let kind = IoKind::Read {
            offset,
            buf,
            start,
            len,
        };
        assert!(bench.start(io, kind).is_none());
    }

    /// Everything that the kernel answers until nothing is in flight, taken in: what each answer
    /// ends.
    fn answers(bench: &mut Bench) -> Vec<Vec<Completion>> {
        answers_with(bench, |result| result)
    }

    /// The same, with the kernel's answers replaced.
    fn answers_with(bench: &mut Bench, mut as_if: impl FnMut(i32) -> i32) -> Vec<Vec<Completion>> {
        let (mut answers, mut reaped) = (Vec::new(), Vec::new());
        while bench.ios.in_flight() > 0 {
            let patience = Some(Duration::from_millis(100));
            bench.ring.wait(patience).expect("wait");
            bench.ring.reap(&mut reaped);
            for done in reaped.drain(..) {
                let Token::Member(place) = done.token else {
                    panic!("{done:?}")
                };
                answers.push(bench.finish(place, as_if(done.result)));
            }
        }
        answers
    }

    fn ios(over: &[Completion]) -> Vec<u64> {
        assert!(over.iter().all(|one| one.result == Ok(())), "{over:?}");
        over.iter().map(|one| one.io.0).collect()
    }

    fn lengths(answers: &[Vec<Completion>]) -> Vec<usize> {
        let mut lengths: Vec<usize> = answers.iter().map(Vec::len).collect();
        lengths.sort_unstable();
        lengths
    }

    fn all_of(answers: &[Vec<Completion>]) -> Vec<u64> {
        let mut all: Vec<u64> = answers.iter().flat_map(|over| ios(over)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn what_lies_side_by_side_goes_as_one_and_each_is_told() {
        let file = member(2 << 20);
        let mut bench = bench(file.path(), Duration::from_secs(60));
        (3..7).for_each(|at| write(&mut bench, at as u64, at, false));
        assert_eq!(
            answers(&mut bench)
                .iter()
                .map(|o| ios(o))
                .collect::<Vec<_>>(),
            [[3, 4, 5, 6]]
        );
        (3..7).for_each(|at| read(&mut bench, at as u64, at));
        let read = answers(&mut bench);
        assert_eq!(read.len(), 1);
        for (over, at) in read[0].iter().zip(3..) {
            let bytes = over.buf.as_ref().expect("it was read into one").bytes();
            assert!(over.io.0 == at && bytes.iter().all(|&b| u64::from(b) == at + 1));
        }
        let content = std::fs::read(file.path()).expect("reads");
        let there = |(at, &byte): (usize, &u8)| {
            let part = at / PART;
            byte == if (3..7).contains(&part) {
                part as u8 + 1
            } else {
                0
            }
        };
        assert!(content.iter().enumerate().all(there));
    }

    #[test]
    fn what_is_not_alike_or_too_much_goes_apart() {
        let file = member(2 << 20);
        let mut bench = bench(file.path(), Duration::from_secs(60));
        let free = bench.pool.free();
        write(&mut bench, 0, 0, false);
        write(&mut bench, 1, 2, false); // a gap
        write(&mut bench, 2, 3, true); // to be durable
        read(&mut bench, 3, 4);
        read(&mut bench, 4, 3); // backwards
        assert_eq!(answers(&mut bench).len(), 5);
        (0..9).for_each(|at| write(&mut bench, at as u64, at, false));
        assert_eq!(lengths(&answers(&mut bench)), [1, 4, BYTES_MOST / PART]);
        for io in 0..9 {
            let kind = IoKind::Write {
                offset: io * PAGE as u64,
                data: Slice::new(bench.pool.take(PART).expect("free"), 0, PAGE),
                fua: false,
                purpose: WritePurpose::Data,
            };
            assert!(bench.start(io, kind).is_none());
        }
        assert_eq!(lengths(&answers(&mut bench)), [1, PIECES_MOST]);
        write(&mut bench, 0, 0, false);
        bench
            .ring
            .wait(Some(Duration::ZERO))
            .expect("the kernel has it");
        write(&mut bench, 1, 1, false);
        assert_eq!(answers(&mut bench).len(), 2);
        bench.ios.merges = false;
        (0..2).for_each(|at| write(&mut bench, at as u64, at, false));
        assert_eq!(answers(&mut bench).len(), 2);
        assert_eq!(bench.pool.free(), free);
    }

    #[test]
    fn writes_of_other_streams_go_apart_and_one_that_is_refused_goes_without() {
        let file = member(1 << 20);
        let mut bench = bench(file.path(), Duration::from_secs(60));
        let all = [
            WritePurpose::Data,
            WritePurpose::Data,
            WritePurpose::Rebuild,
            WritePurpose::Rebuild,
            WritePurpose::Log,
        ];
        let write_all = |bench: &mut Bench| {
            for (at, &purpose) in all.iter().enumerate() {
                write_as(bench, at as u64, at, false, purpose);
            }
        };
        write_all(&mut bench);
        // As many as go as one, and the one that is too many.
        assert_eq!(
            lengths(&answers(&mut bench)),
            [1, 4],
            "there are no streams"
        );
        let streams = |bench: &mut Bench| {
            let of = |(_, flight): (u32, &mut Flight)| match flight.work {
                Work::Write { stream, .. } => stream,
                _ => unreachable!("only writes are under way"),
            };
            bench.ios.flights.iter_mut().map(of).collect::<Vec<u8>>()
        };
        let device = Arc::clone(&bench.ios.attached[&super::super::tests::ID].device);
        device.streams().pretend(3);
        write_all(&mut bench);
        let mut passed_on = streams(&mut bench);
        passed_on.sort_unstable();
        assert_eq!(passed_on, [0, 0, 2, 2, 3]);
        // The device refuses both of the rebuild, which went as one, and takes them without.
        let (mut told, mut reaped, mut refused) = (Vec::new(), Vec::new(), 0);
        while bench.ios.in_flight() > 0 {
            bench.ring.wait(None).expect("wait");
            bench.ring.reap(&mut reaped);
            for done in reaped.drain(..) {
                let Token::Member(place) = done.token else {
                    panic!("{done:?}")
                };
                let flight = bench.ios.flights.get_mut(place);
                let work = &flight.expect("it is in the table").work;
                let rebuilds = matches!(work, Work::Write { stream: 2, .. });
                refused += u32::from(rebuilds);
                let result = if rebuilds { -libc::EINVAL } else { done.result };
                told.push(bench.finish(place, result));
            }
        }
        assert_eq!((refused, lengths(&told)), (1, vec![0, 1, 1, 1, 2]));
        assert_eq!(all_of(&told), [0, 1, 2, 3, 4]);
        write_all(&mut bench);
        assert_eq!(streams(&mut bench), [0; 5], "no more are tried");
        assert_eq!(lengths(&answers(&mut bench)), [1, 4]);
        let content = std::fs::read(file.path()).expect("reads");
        let there = |(at, &byte): (usize, &u8)| {
            byte == if at / PART < 5 {
                (at / PART) as u8 + 1
            } else {
                0
            }
        };
        assert!(content.iter().enumerate().all(there));
    }

    #[test]
    fn what_came_short_is_told_and_the_rest_goes_on_by_itself() {
        let file = member(1 << 20);
        let mut bench = bench(file.path(), Duration::from_secs(60));
        (0..4).for_each(|at| write(&mut bench, at as u64, at, false));
        let (place, _) = bench.reap();
        let over = bench.finish(place, (PART + 4096) as i32);
        assert_eq!(ios(&over), [0]);
        std::fs::write(file.path(), vec![0; 1 << 20]).expect("as if nothing had come");
        assert_eq!(all_of(&answers(&mut bench)), [1, 2, 3]);
        let content = std::fs::read(file.path()).expect("reads");
        for at in 1..4 {
            let part = &content[at * PART..][..PART];
            assert!(part.iter().all(|&byte| byte == at as u8 + 1));
        }
    }

    #[test]
    fn an_error_of_the_medium_is_asked_for_one_by_one_and_one_of_a_write_is_everybodys() {
        let file = member(1 << 20);
        let mut bench = bench(file.path(), Duration::from_secs(60));
        (0..4).for_each(|at| read(&mut bench, at as u64, at));
        let (place, _) = bench.reap();
        assert!(bench.finish(place, -libc::ENODATA).is_empty());
        let mut blamed = 0;
        let told = answers_with(&mut bench, |result| {
            blamed += 1;
            if blamed == 1 { -libc::ENODATA } else { result }
        });
        let told: Vec<Completion> = told.into_iter().flatten().collect();
        let failed = told.iter().filter(|one| one.result == Err(IoError::Media));
        assert_eq!((failed.count(), told.len()), (1, 4));

        (0..4).for_each(|at| write(&mut bench, at as u64, at, false));
        let (place, _) = bench.reap();
        let told = bench.finish(place, -libc::ENOSPC);
        assert_eq!(told.len(), 4);
        assert!(told.iter().all(|one| one.result == Err(IoError::NoSpace)));
        assert_eq!(bench.ios.in_flight(), 0);
    }

    #[test]
    fn what_did_not_get_through_waits_and_is_tried_again_one_by_one() {
        let file = member(1 << 20);
        let mut bench = bench(file.path(), Duration::from_secs(60));
        (0..3).for_each(|at| write(&mut bench, at as u64, at, false));
        for (_, flight) in bench.ios.flights.iter_mut() {
            flight.repeats = Repeats::All;
        }
        let (place, _) = bench.reap();
        assert!(bench.finish(place, -libc::ENOLINK).is_empty());
        assert_eq!((bench.ios.pausing, bench.ios.in_flight()), (3, 0));
        let (mut over, later) = (Vec::new(), bench.clock.now().plus_ms(10_000));
        bench.ios.expire(&mut bench.ring, later, &mut over);
        assert_eq!((over.len(), bench.ios.in_flight()), (0, 3));
        assert_eq!(all_of(&answers(&mut bench)), [0, 1, 2]);
        let told = std::iter::from_fn(|| bench.ios.retried());
        assert!(told.filter(|told| told.got_through).count() == 3);
    }

    #[test]
    fn all_that_went_as_one_outlasts_its_deadline_and_keeps_its_memory() {
        let file = member(1 << 20);
        let mut bench = bench(file.path(), Duration::ZERO);
        let free = bench.pool.free();
        (0..4).for_each(|at| read(&mut bench, at as u64, at));
        let (mut over, later) = (Vec::new(), bench.clock.now().plus_ms(1));
        bench.ios.expire(&mut bench.ring, later, &mut over);
        let late = |(_, one): &Finished| one.result == Err(IoError::TimedOut);
        assert!(over.len() == 4 && over.iter().all(late));
        assert_eq!((bench.pool.free(), bench.ios.in_flight()), (free, 4));
        let (place, _) = bench.reap();
        assert!(bench.finish(place, -libc::ENODATA).is_empty());
        assert_eq!((bench.pool.free(), bench.ios.in_flight()), (free, 0));
    }
}

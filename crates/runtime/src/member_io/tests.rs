//! What becomes of member I/O: on real files, with the kernel's answers replaced where it has to
//! fail.
//!
//! Invariant: each test has a ring and a device of its own.
//! Deliberately absent: devices other than files, which a machine that builds this may lack.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::Instant;

use super::*;
use crate::clock::Clock;
use crate::device::{DeviceError, OpenMode};
use crate::ring::Reaped;
use strake_engine::buffers::Pool;

#[path = "../../tests/common/mod.rs"]
pub(crate) mod common;

pub(super) const ID: DeviceId = DeviceId(7);

/// A member of which the first answers of the kernel to each thread are replaced by an error.
struct Faulty {
    member: PathBuf,
    given: HashMap<ThreadId, u64>,
}

static FAULTY: Mutex<Option<Faulty>> = Mutex::new(None);
const FAULTS_OF_EACH: u64 = 3;

/// The kernel's answer, or what takes its place.
pub(super) fn or_fault(path: &Path, result: i32) -> i32 {
    let mut faulty = FAULTY.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(faulty) = faulty.as_mut().filter(|faulty| faulty.member == path) else {
        return result;
    };
    let thread = std::thread::current().id();
    let given = faulty.given.entry(thread).or_default();
    if *given == FAULTS_OF_EACH {
        return result;
    }
    *given += 1;
    -libc::ENOMEM
}

#[test]
fn what_shards_tried_again_is_counted_for_its_member_in_the_array() {
    let mut spec = common::Spec::new(strake_format::Level::Raid5, 3);
    (spec.shards, spec.export) = (2, strake_runtime::ExportKind::None);
    let rig = common::Rig::create(spec);
    let mut config = rig.config();
    config.client_stock = vec![(65536, 4)];
    let (serving, _events) = strake_runtime::serve(config).expect("serves");
    *FAULTY.lock().expect("no test panics with it") = Some(Faulty {
        member: rig.paths[1].clone(),
        given: HashMap::new(),
    });
    let client = serving.client();
    for block in 0..16 {
        let mut buf = client.memory(0).take(65536).expect("free");
        buf.bytes_mut().fill(7);
        let op = Op::Write {
            offset: block * 65536,
            data: Slice::new(buf, 0, 65536),
            fua: false,
        };
        let (told, answer) = channel();
        let done = move |result: Result<Slices, _>| {
            told.send(result.is_ok()).expect("the test waits");
        };
        assert!(client.submit(0, op, Box::new(done)));
        assert_eq!(answer.recv(), Ok(true));
    }
    let faulty = FAULTY.lock().expect("no test panics with it").take();
    let given = faulty.expect("it was put there").given;
    assert_eq!(given.len(), 2, "both shards were hit");
    let all: u64 = given.values().sum();
    let counted = |status: &Status| status.members[1].retries.tries == all;
    let status = common::wait_for(&serving, "retries counted", counted);
    let counts = status.members[1].retries;
    assert!(counts.got_through > 0 && counts.got_through <= all);
    assert_eq!((counts.failed, counts.resets), (0, 0), "it was never sent");
    let others = [0, 2].map(|slot| status.members[slot].retries);
    assert_eq!(others, [RetryCounts::default(); 2]);
    serving.stop().expect("stops");
}

pub(super) struct Bench {
    pub(super) ring: Ring,
    pub(super) ios: MemberIos,
    pub(super) pool: Pool,
    pub(super) clock: Clock,
    /// What the kernel answered and `reap` has not returned.
    reaped: Vec<Reaped>,
}

impl Bench {
    pub(super) fn new(path: &std::path::Path, timeout: Duration) -> Bench {
        let mut ring = Ring::new().expect("io_uring").with_calls();
        let pool = Pool::new(&[(4096, 4), (65536, 16)]);
        let registered = Registered::of(&[pool.addresses()]);
        // SAFETY: the pool is moved into the bench and dropped after the ring.
        assert!(unsafe { ring.register_buffers(registered.addresses(), 0) });
        let mut ios = MemberIos::new(registered, timeout);
        let device = Device::open(path, OpenMode::Member).expect("opens");
        ios.attach(&mut ring, ID, Arc::new(device));
        Bench {
            ring,
            ios,
            pool,
            clock: Clock::start(),
            reaped: Vec::new(),
        }
    }

    pub(super) fn start(&mut self, io: u64, kind: IoKind) -> Option<Finished> {
        let io = MemberIo {
            io: IoId(io),
            device: ID,
            kind,
        };
        self.ios
            .start(&mut self.ring, Owner::Shard, io, None, self.clock.now())
    }

    /// The kernel's next answer: to which flight, and what.
    pub(super) fn reap(&mut self) -> (u32, i32) {
        let give_up = Instant::now() + Duration::from_secs(60);
        while self.reaped.is_empty() {
            assert!(Instant::now() < give_up, "nothing came back");
            self.ring.wait(Some(Duration::from_secs(1))).expect("wait");
            self.ring.reap(&mut self.reaped);
        }
        let first = self.reaped.remove(0);
        match first.token {
            Token::Member(place) => (place, first.result),
            _ => panic!("{first:?}"),
        }
    }

    pub(super) fn wait(&mut self) -> Completion {
        let mut reaped: Vec<Reaped> = Vec::new();
        for _ in 0..600 {
            self.ring
                .wait(Some(Duration::from_millis(100)))
                .expect("wait");
            self.ring.reap(&mut reaped);
            for done in reaped.drain(..) {
                let Token::Member(place) = done.token else {
                    panic!("{done:?}")
                };
                if let Some(completion) = self.finish(place, done.result).pop() {
                    return completion;
                }
            }
        }
        panic!("nothing came back")
    }

    /// The kernel's answer is taken in: what is over.
    pub(super) fn finish(&mut self, place: u32, result: i32) -> Vec<Completion> {
        let (mut over, now) = (Vec::new(), self.clock.now());
        self.ios
            .finish(&mut self.ring, place, result, now, &mut over);
        assert!(over.iter().all(|(owner, _)| *owner == Owner::Shard));
        over.into_iter().map(|(_, completion)| completion).collect()
    }

    fn read(&mut self, offset: u64, len: usize, buf: Buf) -> Completion {
        assert!(
            self.start(
                1,
                IoKind::Read {
                    offset,
                    buf,
                    start: 0,
                    len
                }
            )
            .is_none()
        );
        self.wait()
    }
}

pub(super) fn member(bytes: u64) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("temporary file");
    file.as_file().set_len(bytes).expect("size");
    file
}

#[test]
fn what_is_written_is_read_with_and_without_registered_buffers() {
    let file = member(1 << 20);
    let mut bench = Bench::new(file.path(), Duration::from_secs(5));
    for registered in [true, false] {
        let buf = |bench: &mut Bench| match registered {
            true => bench.pool.take(65536).expect("free"),
            false => Buf::zeroed(65536),
        };
        let mut data = buf(&mut bench);
        data.bytes_mut().fill(if registered { 0xa5 } else { 0x5a });
        let data = Slice::new(data, 0, 65536);
        for (io, fua) in [(10, false), (11, true)] {
            let write = IoKind::Write {
                offset: 8192,
                data: data.part(4096, 8192),
                fua,
                purpose: WritePurpose::Data,
            };
            assert!(bench.start(io, write).is_none());
            let done = bench.wait();
            assert_eq!((done.io, done.result), (IoId(io), Ok(())));
        }
        assert!(bench.start(2, IoKind::Flush).is_none());
        assert_eq!(bench.wait().result, Ok(()));
        let target = buf(&mut bench);
        let done = bench.read(4096, 16384, target);
        assert_eq!(done.result, Ok(()));
        let read = done.buf.expect("comes back");
        assert!(read.bytes()[..4096].iter().all(|&b| b == 0));
        assert_eq!(&read.bytes()[4096..12288], &data.bytes()[..8192]);
        assert!(read.bytes()[12288..16384].iter().all(|&b| b == 0));
    }
}

#[test]
fn ranges_are_zeroed_and_discarded() {
    let file = member(1 << 20);
    let mut bench = Bench::new(file.path(), Duration::from_secs(5));
    let mut ones = Buf::zeroed(1 << 20);
    ones.bytes_mut().fill(1);
    let data = Slice::new(ones, 0, 1 << 20);
    assert!(
        bench
            .start(
                1,
                IoKind::Write {
                    offset: 0,
                    data,
                    fua: false,
                    purpose: WritePurpose::Data,
                }
            )
            .is_none()
    );
    assert_eq!(bench.wait().result, Ok(()));
    assert!(
        bench
            .start(
                2,
                IoKind::WriteZeroes {
                    offset: 4096,
                    len: 500_000 / 512 * 512
                }
            )
            .is_none()
    );
    assert_eq!(bench.wait().result, Ok(()));
    assert!(
        bench
            .start(
                3,
                IoKind::Discard {
                    offset: 0,
                    len: 4096
                }
            )
            .is_none()
    );
    assert_eq!(bench.wait().result, Ok(()));
    let content = std::fs::read(file.path()).expect("reads");
    let end = 4096 + 500_000 / 512 * 512;
    assert!(content[..end].iter().all(|&b| b == 0));
    assert!(content[end..].iter().all(|&b| b == 1));
}

#[test]
fn zeros_written_the_hard_way_cover_the_range() {
    let file = member(2 << 20);
    std::fs::write(file.path(), vec![9; 2 << 20]).expect("fills");
    let mut bench = Bench::new(file.path(), Duration::from_secs(5));
    let kind = IoKind::WriteZeroes {
        offset: 4096,
        len: 1 << 20,
    };
    assert!(bench.start(2, kind).is_none());
    // The kernel's answer is replaced by that of one that cannot punch holes.
    let (place, _) = bench.reap();
    std::fs::write(file.path(), vec![9; 2 << 20]).expect("fills again");
    assert!(bench.finish(place, -libc::EOPNOTSUPP).is_empty());
    assert_eq!(bench.wait().result, Ok(()));
    let content = std::fs::read(file.path()).expect("reads");
    assert!(content.iter().enumerate().all(|(at, &b)| {
        b == if (4096..4096 + (1 << 20)).contains(&at) {
            0
        } else {
            9
        }
    }));
}

#[test]
fn a_file_cut_short_has_shrunk_and_an_unknown_device_is_gone() {
    let file = member(1 << 20);
    let mut bench = Bench::new(file.path(), Duration::from_secs(5));
    file.as_file().set_len(8192).expect("cut");
    let done = bench.read(4096, 8192, Buf::zeroed(8192));
    assert_eq!(done.result, Err(IoError::Shrunk));
    assert!(done.buf.is_some(), "the buffer comes back with the error");
    let (ring, ios) = (&mut bench.ring, &mut bench.ios);
    ios.release(ring, ID);
    let (_, done) = bench.start(9, IoKind::Flush).expect("at once");
    assert_eq!((done.io, done.result), (IoId(9), Err(IoError::Gone)));
}

#[test]
fn an_io_that_outlasts_its_deadline_is_answered_and_keeps_its_buffer() {
    let file = member(1 << 20);
    let mut bench = Bench::new(file.path(), Duration::ZERO);
    let free = bench.pool.free();
    let buf = bench.pool.take(4096).expect("free");
    assert!(
        bench
            .start(
                5,
                IoKind::Read {
                    offset: 0,
                    buf,
                    start: 0,
                    len: 4096
                }
            )
            .is_none()
    );
    let mut expired = Vec::new();
    bench
        .ios
        .expire(&mut bench.ring, bench.clock.now(), &mut expired);
    assert_eq!(expired.len(), 1);
    assert_eq!(expired[0].1.result, Err(IoError::TimedOut));
    assert!(expired[0].1.buf.is_none());
    // The kernel still has it; the pool has another in its place.
    assert_eq!(bench.pool.free(), free);
    bench
        .ios
        .expire(&mut bench.ring, bench.clock.now(), &mut expired);
    assert_eq!(expired.len(), 1, "answered once");
    let (place, result) = bench.reap();
    assert!(bench.finish(place, result).is_empty());
    assert_eq!((bench.pool.free(), bench.ios.in_flight()), (free, 0));
}

/// Starts an I/O, and has the kernel's answer replaced by an error.
pub(super) fn fail_once(
    bench: &mut Bench,
    kind: IoKind,
    repeats: Repeats,
    errno: i32,
) -> Option<Completion> {
    let now = bench.clock.now();
    fail_at(bench, kind, repeats, errno, now)
}

fn fail_at(
    bench: &mut Bench,
    kind: IoKind,
    repeats: Repeats,
    errno: i32,
    now: Time,
) -> Option<Completion> {
    assert!(bench.start(1, kind).is_none());
    // Files have volatile caches: the page cache.
    for (_, flight) in bench.ios.flights.iter_mut() {
        flight.repeats = repeats;
    }
    let (place, _) = bench.reap();
    let mut over = Vec::new();
    (bench.ios).finish(&mut bench.ring, place, -errno, now, &mut over);
    over.pop().map(|(_, completion)| completion)
}

pub(super) fn write_of(byte: u8) -> IoKind {
    let mut data = Buf::zeroed(8192);
    data.bytes_mut().fill(byte);
    let data = Slice::new(data, 0, 8192);
    IoKind::Write {
        offset: 4096,
        data,
        fua: false,
        purpose: WritePurpose::Data,
    }
}

#[test]
fn what_did_not_get_through_is_tried_again_as_it_was_and_answered_once() {
    let file = member(1 << 20);
    let mut bench = Bench::new(file.path(), Duration::from_secs(5));
    for errno in [
        libc::ENOLINK,
        libc::EBUSY,
        libc::ETIMEDOUT,
        libc::EREMOTEIO,
        libc::ENOMEM,
        libc::ECANCELED,
    ] {
        std::fs::write(file.path(), vec![9; 1 << 20]).expect("fills");
        // A slow machine may take longer than the pause to look at it.
        let before = bench.clock.now();
        let told = fail_once(&mut bench, write_of(errno as u8), Repeats::All, errno);
        assert!(told.is_none() && bench.ios.in_flight() == 0);
        let (mut finished, later) = (Vec::new(), bench.clock.now().plus_ms(500));
        bench.ios.expire(&mut bench.ring, before, &mut finished);
        assert_eq!(bench.ios.in_flight(), 0, "it pauses");
        bench.ios.expire(&mut bench.ring, later, &mut finished);
        assert_eq!((finished.len(), bench.ios.in_flight()), (0, 1));
        assert_eq!(bench.ios.retried(), None, "it is not over");
        assert_eq!(bench.wait().result, Ok(()));
        let content = std::fs::read(file.path()).expect("reads");
        let written = content.iter().filter(|&&b| b == errno as u8);
        assert_eq!(written.count(), 8192);
        let told = bench.ios.retried().expect("the array counts it");
        assert_eq!((told.device, told.retry.tries), (ID, 1));
        assert!(told.got_through && told.ended > told.retry.since);
        let unsent = [libc::ENOMEM, libc::ECANCELED];
        assert_eq!(told.retry.on_its_way, !unsent.contains(&errno));
        assert_eq!(bench.ios.retried(), None);
    }
    assert_eq!(bench.ios.pausing, 0);
}

#[test]
fn what_cannot_be_mended_or_trusted_is_told_at_once() {
    let file = member(1 << 20);
    let mut bench = Bench::new(file.path(), Duration::from_secs(5));
    for (repeats, errno, error) in [
        (Repeats::All, libc::ENODATA, IoError::Media),
        (Repeats::All, libc::ENOSPC, IoError::NoSpace),
        (
            Repeats::Unsent,
            libc::ENOLINK,
            IoError::Transport(libc::ENOLINK),
        ),
    ] {
        let told = fail_once(&mut bench, write_of(1), repeats, errno);
        assert_eq!(told.expect("its owner hears of it").result, Err(error));
        assert_eq!(bench.ios.retried(), None, "it was not tried again");
    }
    assert!(bench.start(2, IoKind::Flush).is_none());
    let volatile = bench
        .ios
        .flights
        .iter_mut()
        .all(|(_, f)| f.repeats == Repeats::Unsent);
    assert!(volatile, "a file has the page cache");
    assert_eq!(bench.wait().result, Ok(()));
}

#[test]
fn what_failed_for_no_reason_that_is_known_is_told_when_the_device_was_looked_at_again() {
    let file = member(1 << 20);
    let mut bench = Bench::new(file.path(), Duration::from_secs(64));
    let begun = bench.clock.now();
    let after = |ms| begun.plus_ms(ms);
    let fails =
        |bench: &mut Bench, ms| fail_at(bench, write_of(1), Repeats::All, libc::EIO, after(ms));
    let mut finished = Vec::new();
    let mut verdict = |bench: &mut Bench, ms| {
        bench.ios.expire(&mut bench.ring, after(ms), &mut finished);
        finished.pop().map(|(_, done): Finished| done.result)
    };
    assert!(fails(&mut bench, 0).is_none());
    // A 64th of the deadline.
    assert_eq!(verdict(&mut bench, 999), None);
    assert_eq!(verdict(&mut bench, 1000), Some(Err(IoError::Media)));
    assert_eq!((bench.ios.pausing, bench.ios.retried()), (0, None));
    // It is there to stay, for a while; and then not any more.
    let told = fails(&mut bench, 2000).expect("told at once");
    assert_eq!(told.result, Err(IoError::Media));
    assert!(fails(&mut bench, 8000).is_none());
    std::fs::remove_file(file.path()).expect("its only name");
    assert_eq!(verdict(&mut bench, 8000), Some(Err(IoError::Gone)));
    assert_eq!((bench.ios.pausing, bench.ios.in_flight()), (0, 0));
}

#[test]
fn what_is_not_answered_when_it_is_tried_again_counts_as_failed() {
    let file = member(1 << 20);
    let mut bench = Bench::new(file.path(), Duration::from_secs(5));
    assert!(fail_once(&mut bench, write_of(7), Repeats::All, libc::ENOLINK).is_none());
    let (mut finished, now) = (Vec::new(), bench.clock.now());
    let later = now.plus_ms(500);
    bench.ios.expire(&mut bench.ring, later, &mut finished);
    assert_eq!((finished.len(), bench.ios.in_flight()), (0, 1));
    bench
        .ios
        .expire(&mut bench.ring, now.plus_ms(60_000), &mut finished);
    assert_eq!(finished[0].1.result, Err(IoError::TimedOut));
    let told = bench.ios.retried().expect("the array counts it");
    assert_eq!((told.got_through, told.retry.tries), (false, 1));
    // That the kernel answers after all makes no second one of it.
    let (place, result) = bench.reap();
    let late = bench.finish(place, result);
    assert!(late.is_empty() && bench.ios.retried().is_none());
}

#[test]
fn nothing_is_tried_again_on_a_device_that_was_let_go() {
    let file = member(1 << 20);
    let mut bench = Bench::new(file.path(), Duration::from_secs(5));
    let told = fail_once(&mut bench, write_of(7), Repeats::All, libc::ENOLINK);
    assert!(told.is_none());
    std::fs::write(file.path(), vec![9; 1 << 20]).expect("fills");
    bench.ios.release(&mut bench.ring, ID);
    let (mut finished, now) = (Vec::new(), bench.clock.now());
    bench.ios.expire(&mut bench.ring, now, &mut finished);
    assert_eq!(finished.len(), 1, "its owner hears of it");
    let result = finished[0].1.result;
    assert_eq!(result, Err(IoError::Transport(libc::ENOLINK)));
    assert_eq!((bench.ios.flights.len(), bench.ios.pausing), (0, 0));
    let told = bench.ios.retried().expect("the array counts it");
    assert_eq!((told.got_through, told.retry.tries), (false, 0));
    let content = std::fs::read(file.path()).expect("reads");
    assert!(content.iter().all(|&b| b == 9));
    // Nothing holds it any more.
    finished.clear();
    Device::open(file.path(), OpenMode::Member).expect("it is free");
}

/// A write that the drive carries out late would undo what was written since: no process may open
/// the device again before the kernel has completed that write.
#[test]
fn a_device_is_not_opened_again_while_an_abandoned_io_is_under_way() {
    let file = member(1 << 20);
    let mut bench = Bench::new(file.path(), Duration::ZERO);
    assert!(bench.start(1, write_of(7)).is_none());
    let (mut finished, now) = (Vec::new(), bench.clock.now());
    bench.ios.expire(&mut bench.ring, now, &mut finished);
    assert_eq!(finished[0].1.result, Err(IoError::TimedOut));
    bench.ios.release(&mut bench.ring, ID);
    let again = Device::open(file.path(), OpenMode::Member);
    assert!(matches!(again, Err(DeviceError::Busy(_))), "{again:?}");
    let (place, result) = bench.reap();
    assert!(bench.finish(place, result).is_empty());
    Device::open(file.path(), OpenMode::Member).expect("it is free");
}

#[test]
fn calls_that_block_take_turns_and_wait_no_longer_than_those_before_them() {
    let file = member(1 << 20);
    let mut bench = Bench::new(file.path(), Duration::from_secs(5));
    let range = |at: u64| IoKind::Discard {
        offset: at * 4096,
        len: 4096,
    };
    for io in 0..2 * limiter::AT_ONCE as u64 {
        let kind = if io % 2 == 0 {
            IoKind::Flush
        } else {
            range(io)
        };
        assert!(bench.start(io, kind).is_none());
    }
    let (mut over, mut reaped) = (Vec::new(), Vec::new());
    while bench.ios.in_flight() > 0 {
        bench.ring.wait(None).expect("wait");
        bench.ring.reap(&mut reaped);
        for done in reaped.drain(..) {
            let Token::Member(place) = done.token else {
                panic!("{done:?}")
            };
            let finished = bench.finish(place, done.result);
            over.extend(finished.into_iter().map(|completion| completion.io.0));
        }
    }
    over.sort_unstable();
    assert_eq!(over, (0..2 * limiter::AT_ONCE as u64).collect::<Vec<u64>>());
    drop(bench);

    let mut bench = Bench::new(file.path(), Duration::ZERO);
    for io in 0..=limiter::AT_ONCE as u64 {
        assert!(bench.start(io, IoKind::Flush).is_none());
    }
    let mut expired = Vec::new();
    bench
        .ios
        .expire(&mut bench.ring, bench.clock.now(), &mut expired);
    assert_eq!(expired.len(), limiter::AT_ONCE + 1, "who waits, too");
    assert_eq!(
        bench.ios.in_flight(),
        limiter::AT_ONCE,
        "it was never begun"
    );
}

#[test]
fn what_never_comes_back_does_not_keep_its_device_open() {
    let file = member(1 << 20);
    let mut bench = Bench::new(file.path(), Duration::from_secs(5));
    // Its completion has no owner.
    assert!(bench.start(1, IoKind::Flush).is_none());
    drop(bench);
    Device::open(file.path(), OpenMode::Member).expect("nobody has it");
}

fn begin_read(bench: &mut Bench) {
    let buf = bench.pool.take(4096).expect("free");
    let read = IoKind::Read {
        offset: 0,
        buf,
        start: 0,
        len: 4096,
    };
    assert!(bench.start(5, read).is_none());
}

#[test]
fn time_in_which_the_thread_stood_still_counts_for_no_deadline() {
    let file = member(1 << 20);
    let mut bench = Bench::new(file.path(), Duration::from_secs(64));
    let begun = bench.clock.now();
    bench.ios.wakes(begun);
    begin_read(&mut bench);
    let mut over = Vec::new();
    let mut look = |bench: &mut Bench, ms| {
        bench.ios.wakes(begun.plus_ms(ms));
        bench
            .ios
            .expire(&mut bench.ring, begun.plus_ms(ms), &mut over);
        bench.ios.sleeps(Some(Duration::from_secs(1)));
        over.pop().map(|(_, done): Finished| done.result)
    };
    assert_eq!(look(&mut bench, 0), None);
    // It asked for a second and got ten minutes.
    assert_eq!(look(&mut bench, 600_000), None);
    // From then on it runs: 62 turns of a second each are not the deadline, with the two that it
    // had.
    for second in 1..=60 {
        assert_eq!(look(&mut bench, 600_000 + 1000 * second), None, "{second}");
    }
    let late: Vec<_> = (61..=64)
        .filter_map(|second| look(&mut bench, 600_000 + 1000 * second))
        .collect();
    assert_eq!(late, [Err(IoError::TimedOut)]);
    let (place, result) = bench.reap();
    assert!(bench.finish(place, result).is_empty());
}

#[test]
fn an_io_of_an_array_is_given_up_when_the_array_says_so_and_not_before() {
    let file = member(1 << 20);
    // From here to the beginning of the read a busy machine may take a while.
    let mut bench = Bench::new(file.path(), Duration::from_secs(50));
    bench.ios = std::mem::replace(
        &mut bench.ios,
        MemberIos::new(Registered::default(), Duration::ZERO),
    )
    .under_an_array();
    let begun = bench.clock.now();
    begin_read(&mut bench);
    let mut over = Vec::new();
    let mut look = |bench: &mut Bench, ms| {
        bench
            .ios
            .expire(&mut bench.ring, begun.plus_ms(ms), &mut over);
        assert!(over.is_empty(), "the array decides");
        bench.ios.overdue()
    };
    assert_eq!(look(&mut bench, 40_000), None);
    assert_eq!(look(&mut bench, 60_000), Some((ID, Late::Overdue(0))));
    assert_eq!(look(&mut bench, 70_000), None, "reported once");
    let at = begun.plus_ms(70_000);
    bench
        .ios
        .judged(&mut bench.ring, ID, Verdict::WaitOn, at, &mut Vec::new());
    assert_eq!(look(&mut bench, 110_000), None);
    assert_eq!(look(&mut bench, 130_000), Some((ID, Late::Overdue(1))));
    let mut over = Vec::new();
    let at = begun.plus_ms(130_000);
    bench.ios.judged(
        &mut bench.ring,
        DeviceId(77),
        Verdict::GiveUp,
        at,
        &mut over,
    );
    assert!(over.is_empty());
    bench
        .ios
        .judged(&mut bench.ring, ID, Verdict::GiveUp, at, &mut over);
    assert_eq!(over.len(), 1);
    assert_eq!(over[0].1.result, Err(IoError::TimedOut));
    let (place, result) = bench.reap();
    assert!(bench.finish(place, result).is_empty(), "answered once");
}

#[test]
fn the_kernel_is_told_the_stream_of_each_write() {
    /// Where `struct io_uring_sqe` has it.
    const AT: usize = 44;
    let told = |work: &mut Work| {
        let zeros = Slice::new(Buf::zeroed(4096), 0, 4096);
        let entry = entry(
            work,
            File::Plain(0),
            (0, TRANSFER_MAX),
            &Registered::default(),
            &zeros,
        );
        let entry: *const io_uring::squeue::Entry = &raw const entry;
        // SAFETY: an entry is a submission entry of the kernel, 64 bytes.
        unsafe { entry.cast::<u8>().add(AT).read() }
    };
    let mut write = Work::Write {
        offset: 0,
        data: Slice::new(Buf::zeroed(4096), 0, 4096),
        fua: true,
        stream: 3,
        done: 0,
    };
    assert_eq!(told(&mut write), 3);
    let (offset, len, done) = (0, 4096, 0);
    assert_eq!(told(&mut Work::Zeros { offset, len, done }), 0);
}

//! Requests from within the process: an array without an export, and raw members.

mod common;

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use strake_engine::event::{IoKind, Op, Slices, WritePurpose};
use strake_engine::{Buf, SharedPool, Slice};
use strake_format::Level;
use strake_runtime::{Device, ExportKind, LocalClient, OpenMode, RawMembers, Serving, serve};

use common::{Rig, Spec};

/// Writes blocks one after the other, each from the answer of the one before.
fn write_from_answers(client: LocalClient, block: u64, count: u64, done: Sender<u64>) {
    if block == count {
        done.send(block).expect("the test waits");
        return;
    }
    let shard = (block % u64::from(client.shards())) as u16;
    let mut buf = client.memory(shard).take(4096).expect("free");
    buf.bytes_mut().fill((block % 255) as u8 + 1);
    let op = Op::Write {
        offset: block * 4096,
        data: Slice::new(buf, 0, 4096),
        fua: false,
    };
    let next = client.clone();
    let answer = move |result: Result<Slices, _>| {
        result.expect("a write succeeds");
        write_from_answers(next, block + 1, count, done);
    };
    assert!(client.submit(shard, op, Box::new(answer)));
}

/// An array on two shards that only this process uses.
fn two_shards() -> (Rig, Serving) {
    let mut spec = Spec::new(Level::Raid5, 3);
    (spec.shards, spec.export) = (2, ExportKind::None);
    let rig = Rig::create(spec);
    let mut config = rig.config();
    config.client_stock = vec![(4096, 4)];
    let (serving, _events) = serve(config).expect("serves");
    (rig, serving)
}

#[test]
fn a_user_in_the_process_reads_what_it_wrote_from_its_answers_on_both_shards() {
    let (_rig, serving) = two_shards();
    let client = serving.client();
    assert_eq!(client.shards(), 2);
    let (done, written) = channel();
    write_from_answers(client.clone(), 0, 64, done);
    assert_eq!(written.recv(), Ok(64));
    let (done, read) = channel();
    let op = Op::Read {
        offset: 0,
        len: 64 * 4096,
    };
    let answer = move |result: Result<Slices, _>| {
        let slices = result.expect("a read succeeds");
        let bytes: Vec<u8> = slices.iter().flat_map(|s| s.bytes().to_vec()).collect();
        done.send(bytes).expect("the test waits");
    };
    assert!(client.submit(1, op, Box::new(answer)));
    let bytes = read.recv().expect("answered");
    assert_eq!(bytes.len(), 64 * 4096);
    let right = |(at, &byte): (usize, &u8)| byte == (at / 4096) as u8 + 1;
    assert!(bytes.iter().enumerate().all(right));
    let counters = serving.counters();
    assert_eq!((counters.writes, counters.written_bytes), (64, 64 * 4096));
    assert!(
        counters.member_written_bytes >= 2 * 64 * 4096,
        "parity, too"
    );
    serving.stop().expect("stops");
    let late = client.submit(0, Op::Flush, Box::new(|_| panic!("nobody answers")));
    assert!(!late, "the array is gone");
}

/// Asks until these threads, and no others, are silent.
fn await_silence(serving: &Serving, silent: &[u16]) {
    let give_up = Instant::now() + Duration::from_secs(60);
    let mut heartbeat = serving.heartbeat();
    loop {
        let found = heartbeat.silent();
        if found.iter().map(|s| s.thread).eq(silent.iter().copied()) {
            return;
        }
        assert!(Instant::now() < give_up, "silent: {found:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_thread_that_takes_no_mail_is_silent_until_it_does_and_one_that_has_ended_is_not() {
    let (_rig, serving) = two_shards();
    await_silence(&serving, &[]);
    let (go_on, held) = channel::<()>();
    let (holds, is_held) = channel();
    let answer = move |_| {
        holds.send(()).expect("the test waits");
        let _ = held.recv();
    };
    assert!(serving.client().submit(1, Op::Flush, Box::new(answer)));
    is_held.recv().expect("thread 1 stands still");
    await_silence(&serving, &[1]);
    // The others are asked again, and answer while it stands still.
    let mut heartbeat = serving.heartbeat();
    await_silence(&serving, &[1]);
    let silent = heartbeat.silent();
    assert!(
        silent.iter().all(|s| s.thread == 1 && !s.in_kernel),
        "{silent:?}"
    );
    drop(go_on);
    await_silence(&serving, &[]);
    let mut late = serving.heartbeat();
    serving.stop().expect("stops");
    assert_eq!(late.silent(), [], "its threads have ended");
}

/// Reads one block after the other, each from the answer of the one before, so that with a single
/// one of them under way every shard sleeps between its turns.
fn read_from_answers(client: LocalClient, left: u64, done: Sender<()>) {
    if left == 0 {
        done.send(()).expect("the test waits");
        return;
    }
    // The shard that is asked and the stripe's own change independently.
    let (shard, stripe) = ((left % 2) as u16, left / 2 % 8);
    let op = Op::Read {
        offset: stripe * client.geometry().stripe_bytes(),
        len: 4096,
    };
    let next = client.clone();
    let answer = move |result: Result<Slices, _>| {
        result.expect("a read succeeds");
        read_from_answers(next, left - 1, done);
    };
    assert!(client.submit(shard, op, Box::new(answer)));
}

#[test]
fn no_wake_up_is_lost_between_shards_that_fall_asleep_all_the_time() {
    let (_rig, serving) = two_shards();
    let (done, written) = channel();
    write_from_answers(serving.client(), 0, 512, done);
    assert_eq!(written.recv(), Ok(512));
    for streams in [1, 3] {
        let (done, over) = channel();
        for _ in 0..streams {
            read_from_answers(serving.client(), 10_000, done.clone());
        }
        for _ in 0..streams {
            // With nothing in flight no timer would end the sleep of a shard that was not woken.
            let ended = over.recv_timeout(Duration::from_secs(300));
            assert_eq!(ended, Ok(()), "a shard sleeps in spite of its mail");
        }
    }
    serving.stop().expect("stops");
}

#[test]
fn raw_members_read_what_was_written_on_each() {
    let dir = tempfile::tempdir().expect("folder");
    let members: Vec<Arc<Device>> = (0..3)
        .map(|at| {
            let path = dir.path().join(format!("raw{at}"));
            let file = std::fs::File::create(&path).expect("file");
            file.set_len(1 << 20).expect("size");
            Arc::new(Device::open(&path, OpenMode::Member).expect("opens"))
        })
        .collect();
    let pool = SharedPool::new(&[(8192, 3)]);
    let mut raw = RawMembers::new(&members, &[&pool]).expect("io_uring");
    let mut finished = Vec::new();
    for round in 0..2 {
        for member in 0..3u32 {
            let mut buf = match round {
                0 => pool.take(8192).expect("free"),
                _ => Buf::zeroed(8192),
            };
            let kind = if round == 0 {
                buf.bytes_mut().fill(member as u8 + 7);
                let data = Slice::new(buf, 0, 8192);
                IoKind::Write {
                    offset: 16384,
                    data,
                    fua: false,
                    purpose: WritePurpose::Data,
                }
            } else {
                IoKind::Read {
                    offset: 16384,
                    buf,
                    start: 0,
                    len: 8192,
                }
            };
            raw.start(member, u64::from(member), kind);
        }
        while raw.in_flight() > 0 {
            raw.wait(&mut finished).expect("waits");
        }
        for completion in finished.drain(..) {
            assert_eq!(completion.result, Ok(()));
            let byte = completion.io.0 as u8 + 7;
            let same = |buf: Buf| buf.bytes().iter().all(|&b| b == byte);
            assert_eq!(completion.buf.map(same), (round == 1).then_some(true));
        }
    }
}

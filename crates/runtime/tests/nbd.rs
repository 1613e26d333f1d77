//! The NBD server, spoken to byte by byte: what is right works, what is wrong is refused, and
//! garbage does no harm.

mod common;

use std::io::{Read, Write};

use common::*;
use strake_format::Level;

const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const EOVERFLOW: u32 = 75;

#[test]
fn what_is_written_is_read_in_every_size_with_both_kinds_of_replies() {
    for shards in [1, 3] {
        let rig = Rig::create(Spec {
            shards,
            ..Spec::new(Level::Raid5, 4)
        });
        let (serving, _) = rig.serve();
        for structured in [false, true] {
            let mut client = Client::connect(&rig.socket(), structured);
            assert_eq!(client.size, rig.size);
            for (version, len) in [4096, 65536, 200_704, 1 << 20, (5 << 20) + 4096]
                .into_iter()
                .enumerate()
            {
                let offset = 12288 + version as u64 * (6 << 20);
                let data = pattern(offset, len, version as u64);
                client.write(offset, &data).expect("writes");
                assert_eq!(
                    client.read(offset, len).expect("reads"),
                    data,
                    "{len} bytes"
                );
            }
            assert_eq!(
                client.read(60 << 20, 65536).expect("reads"),
                vec![0; 65536],
                "never written"
            );
            assert_eq!(client.ask(0, FLUSH, 0, 0), 0);
        }
        let counters = serving.counters();
        assert!(
            counters.reads > 10 && counters.writes > 10 && counters.errors == 0,
            "{counters:?}"
        );
        serving.stop().expect("stops");
        assert!(!rig.socket().exists());
    }
}

#[test]
fn requests_are_pipelined_and_each_is_answered_once() {
    let rig = Rig::create(Spec {
        shards: 2,
        ..Spec::new(Level::Raid6, 5)
    });
    let (serving, _) = rig.serve();
    let mut client = rig.client();
    let mut expected = std::collections::BTreeSet::new();
    for i in 0..200u64 {
        let offset = (i * 7 % 200) * 16384;
        let data = pattern(offset, 16384, 1);
        expected.insert(client.send(
            if i % 10 == 0 { FUA } else { 0 },
            WRITE,
            offset,
            16384,
            &data,
        ));
    }
    while !expected.is_empty() {
        let (cookie, error, _) = client.receive(0, 0);
        assert_eq!(error, 0);
        assert!(expected.remove(&cookie), "{cookie} answered twice");
    }
    assert_eq!(
        client.read(0, 200 * 16384).expect("reads"),
        pattern_blocks(200)
    );
    serving.stop().expect("stops");
}

/// Parts of one long answer arrived while another's were being sent: the second connection hung for
/// ever.
#[test]
fn long_reads_one_behind_the_other_are_answered_with_simple_replies() {
    let rig = Rig::create(Spec::new(Level::Raid5, 4));
    let (serving, _) = rig.serve();
    let mut client = Client::connect(&rig.socket(), false);
    let len = (3 << 20) + 4096;
    let offsets: Vec<u64> = (0..6).map(|i| i * (8 << 20)).collect();
    for &offset in &offsets {
        client
            .write(offset, &pattern(offset, len, 3))
            .expect("writes");
    }
    for _ in 0..10 {
        let mut asked = std::collections::BTreeMap::new();
        for &offset in &offsets {
            asked.insert(client.send(0, READ, offset, len as u32, &[]), offset);
        }
        while !asked.is_empty() {
            let (cookie, error, data) = client.receive(0, len);
            let offset = asked.remove(&cookie).expect("answered once");
            assert_eq!(error, 0);
            assert!(data == pattern(offset, len, 3), "at {offset}");
        }
    }
    serving.stop().expect("stops");
}

fn pattern_blocks(count: u64) -> Vec<u8> {
    (0..count)
        .flat_map(|i| pattern(i * 16384, 16384, 1))
        .collect()
}

#[test]
fn bad_requests_are_refused_and_the_connection_lives() {
    let rig = Rig::create(Spec::new(Level::Raid5, 3));
    let (serving, _) = rig.serve();
    for structured in [false, true] {
        let mut client = Client::connect(&rig.socket(), structured);
        let end = rig.size;
        let data = vec![7; 4096];
        for command in [READ, TRIM, WRITE_ZEROES] {
            assert_eq!(
                client.ask(0, command, 512, 4096),
                EINVAL,
                "unaligned offset, command {command}"
            );
            assert_eq!(
                client.ask(0, command, 4096, 100),
                EINVAL,
                "unaligned length"
            );
            assert_eq!(client.ask(0, command, 4096, 0), EINVAL, "length zero");
        }
        for (command, error) in [(READ, EINVAL), (TRIM, EINVAL), (WRITE_ZEROES, ENOSPC)] {
            assert_eq!(
                client.ask(0, command, end, 4096),
                error,
                "behind the end, command {command}"
            );
            assert_eq!(
                client.ask(0, command, end - 4096, 8192),
                error,
                "across the end"
            );
            assert_eq!(
                client.ask(0, command, u64::MAX - 4095, 4096),
                error,
                "wrapping around"
            );
        }
        for (offset, len) in [(end, 4096), (end - 4096, 8192), (u64::MAX - 4095, 4096)] {
            client.send(0, WRITE, offset, len, &vec![7; len as usize]);
            assert_eq!(client.receive(0, 0).1, ENOSPC, "a write beyond the end");
        }
        for (offset, len) in [(512, 4096u32), (4096, 100), (4096, 0)] {
            client.send(0, WRITE, offset, len, &vec![7; len as usize]);
            assert_eq!(
                client.receive(0, 0).1,
                EINVAL,
                "an unaligned or empty write"
            );
        }
        client.write(0, &data).expect("the connection lives");
        assert_eq!(client.read(0, 4096).expect("reads"), data);
    }
    serving.stop().expect("stops");
}

#[test]
fn requests_that_were_not_offered_are_refused() {
    let rig = Rig::create(Spec::new(Level::Raid5, 3));
    let (serving, _) = rig.serve();
    for structured in [false, true] {
        let mut client = Client::connect(&rig.socket(), structured);
        let data = vec![7; 4096];
        assert_eq!(
            client.ask(0, READ, 0, u32::MAX - 4095),
            EINVAL,
            "a huge read"
        );
        assert_eq!(client.ask(0x8000, FLUSH, 0, 0), EINVAL, "unknown flags");
        assert_eq!(client.ask(0, 99, 0, 0), EINVAL, "unknown command");
        assert_eq!(client.ask(0, 5, 0, 4096), EINVAL, "cache was not offered");
        assert_eq!(client.ask(0, BLOCK_STATUS, 0, 0), EINVAL);
        if structured {
            assert_eq!(
                client.ask(4, READ, 0, 2 << 20),
                EOVERFLOW,
                "in one piece, but too long"
            );
        } else {
            assert_eq!(
                client.ask(0, BLOCK_STATUS, 0, 4096),
                EINVAL,
                "not negotiated"
            );
        }
        client.write(0, &data).expect("the connection lives");
        assert_eq!(client.read(0, 4096).expect("reads"), data);
    }
    serving.stop().expect("stops");
}

#[test]
fn garbage_ends_its_connection_and_nothing_else() {
    let rig = Rig::create(Spec::new(Level::Raid1, 2));
    let (serving, _) = rig.serve();
    let mut good = rig.client();
    let mut state = 12345u64;
    for round in 0..60 {
        let mut client = match round % 3 {
            0 => Client::greet(&rig.socket()),
            _ => Client::connect(&rig.socket(), round % 2 == 0),
        };
        let mut bytes = vec![0u8; 200];
        for byte in &mut bytes {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            *byte = (state >> 56) as u8;
        }
        // The server may hang up at any byte.
        let _ = client.stream.write_all(&bytes);
        let _ = client.stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = client.stream.read_to_end(&mut rest);
        good.write(4096 * round, &pattern(4096 * round, 4096, round))
            .expect("others live");
    }
    // A write that announces more than a client may send.
    let mut client = rig.client();
    client.send(0, WRITE, 0, u32::MAX, &[]);
    assert_eq!(client.stream.read(&mut [0]).expect("hung up"), 0);
    // A client that leaves in the middle of its data.
    let mut client = rig.client();
    client.send(0, WRITE, 0, 1 << 20, &[1; 5000]);
    drop(client);
    for round in 0..60 {
        assert_eq!(
            good.read(4096 * round, 4096).expect("reads"),
            pattern(4096 * round, 4096, round)
        );
    }
    serving.stop().expect("stops");
}

#[test]
fn options_are_answered_in_every_order() {
    let rig = Rig::create(Spec::new(Level::Raid1, 2));
    let (serving, _) = rig.serve();
    let mut client = Client::greet(&rig.socket());
    const UNSUPPORTED: u32 = 0x8000_0001;
    const INVALID: u32 = 0x8000_0003;
    const UNKNOWN: u32 = 0x8000_0006;
    const TOO_BIG: u32 = 0x8000_0009;
    assert_eq!(client.option(77, b"what").0, UNSUPPORTED);
    assert_eq!(client.option(5, &[]).0, UNSUPPORTED, "TLS");
    assert_eq!(
        client.option(10, &[0; 8]).0,
        INVALID,
        "before structured replies"
    );
    assert_eq!(client.option(8, &[1]).0, INVALID, "data where none belongs");
    assert_eq!(
        client.option(7, b"\0\0\0\x03abc\0\0").0,
        UNKNOWN,
        "no such export"
    );
    assert_eq!(
        client.option(7, b"\xff\xff\xff\xff").0,
        INVALID,
        "a length that does not fit"
    );
    assert_eq!(client.option(6, &vec![0; 100_000]).0, TOO_BIG);
    assert_eq!(client.option(3, &[]), (2, b"\0\0\0\x03rig".to_vec()));
    assert_eq!(client.option_reply(3).0, 1);
    assert_eq!(client.option(8, &[]).0, 1);
    let mut all = b"\0\0\0\x03rig".to_vec();
    all.extend([0; 4]);
    assert_eq!(
        client.option(9, &all).0,
        4,
        "a listing without queries lists all"
    );
    assert_eq!(client.option_reply(9).0, 1);
    assert_eq!(
        client.option(10, &all).0,
        1,
        "selecting nothing selects nothing"
    );
    assert_eq!(client.option(6, b"\0\0\0\x03rig\0\0").0, 3, "information");
    while client.option_reply(6).0 != 1 {}
    assert_eq!(client.option(2, &[]).0, 1, "abort");
    assert_eq!(client.stream.read(&mut [0]).expect("the end"), 0);
    // The old way in, with and without the zeroes.
    for no_zeroes in [true, false] {
        let mut stream = std::os::unix::net::UnixStream::connect(rig.socket()).expect("connects");
        stream.read_exact(&mut [0; 18]).expect("greeting");
        stream
            .write_all(&u32::to_be_bytes(if no_zeroes { 3 } else { 1 }))
            .expect("flags");
        let mut client = Client::over(stream);
        client.send_option(1, b"rig");
        let mut answer = vec![0; if no_zeroes { 10 } else { 134 }];
        client
            .stream
            .read_exact(&mut answer)
            .expect("size and flags");
        assert_eq!(answer[..8], rig.size.to_be_bytes());
        assert_eq!(client.read(0, 4096).expect("reads"), vec![0; 4096]);
    }
    serving.stop().expect("stops");
}

#[test]
fn zeroes_trims_and_holes() {
    let rig = Rig::create(Spec::new(Level::Raid5, 4));
    let (serving, _) = rig.serve();
    let mut client = rig.client();
    let whole = rig.size.min(1 << 30) as u32;
    let holes = |extents: &[(u32, u32)]| {
        extents
            .iter()
            .filter(|e| e.1 == 3)
            .map(|e| u64::from(e.0))
            .sum::<u64>()
    };
    assert_eq!(
        client.extents(0, whole),
        [(whole, 3)],
        "nothing was ever written"
    );
    let data = pattern(0, 3 << 20, 5);
    client.write(0, &data).expect("writes");
    let extents = client.extents(0, whole);
    assert!(
        holes(&extents) < u64::from(whole) && extents[0].1 == 0,
        "{extents:?}"
    );
    assert_eq!(
        extents.iter().map(|e| u64::from(e.0)).sum::<u64>(),
        u64::from(whole)
    );
    assert_eq!(client.ask(FUA, WRITE_ZEROES, 65536, 200 * 4096), 0);
    assert_eq!(
        client.read(65536, 200 * 4096).expect("reads"),
        vec![0; 200 * 4096]
    );
    assert_eq!(client.read(0, 65536).expect("reads"), data[..65536]);
    assert_eq!(client.ask(FUA, TRIM, 2 << 20, 1 << 20), 0);
    let after = client.read(2 << 20, 1 << 20).expect("reads");
    for (at, block) in after.chunks(4096).enumerate() {
        let old = &data[(2 << 20) + at * 4096..][..4096];
        assert!(
            block == old || block.iter().all(|&b| b == 0),
            "block {at} is neither old nor zero"
        );
    }
    assert_eq!(
        client.ask(2, WRITE_ZEROES, 0, whole),
        0,
        "all of it, without holes"
    );
    assert_eq!(holes(&client.extents(0, whole)), 0);
    let some = client.read(0, 3 << 20).expect("reads");
    assert_eq!(some, vec![0; 3 << 20]);
    assert_eq!(client.ask(0, WRITE_ZEROES, 0, whole), 0, "and with them");
    assert_eq!(client.extents(0, whole), [(whole, 3)]);
    assert_eq!(client.read(0, 3 << 20).expect("reads"), vec![0; 3 << 20]);
    serving.stop().expect("stops");
}

#[test]
fn a_client_that_does_not_read_stops_itself_only_and_a_stop_ends_it() {
    let rig = Rig::create(Spec::new(Level::Raid5, 3));
    let (serving, _) = rig.serve();
    let mut lazy = rig.client();
    for i in 0..64 {
        lazy.send(0, READ, (i % 8) << 20, 1 << 20, &[]);
    }
    let mut good = rig.client();
    for i in 0..50u64 {
        let data = pattern(i * 65536, 65536, i);
        good.write(i * 65536, &data).expect("writes");
        assert_eq!(good.read(i * 65536, 65536).expect("reads"), data);
    }
    let begun = std::time::Instant::now();
    serving.stop().expect("stops");
    assert!(begun.elapsed() < std::time::Duration::from_secs(60));
}

#[test]
fn requests_without_data_wait_in_the_socket_of_a_client_that_does_not_read() {
    let rig = Rig::create(Spec::new(Level::Raid5, 3));
    let (serving, _) = rig.serve();
    for (command, len) in [(FLUSH, 0), (READ, 1), (BLOCK_STATUS, 4096)] {
        let mut lazy = rig.client();
        let patience = Some(std::time::Duration::from_millis(500));
        lazy.stream.set_write_timeout(patience).expect("timeout");
        // Far more than two sockets and the requests under way have room for.
        let all = 50_000;
        let request = |cookie: u64| {
            let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
            bytes.extend([0, 0]);
            bytes.extend(command.to_be_bytes());
            bytes.extend(cookie.to_be_bytes());
            bytes.extend([0; 8]);
            bytes.extend(u32::to_be_bytes(len));
            bytes
        };
        let mut cookies = 0..all;
        let refused = cookies.find(|&cookie| lazy.stream.write_all(&request(cookie)).is_err());
        let taken = refused.expect("not all are taken");
        assert!(taken < all / 2, "{command}: {taken} requests were taken");
        let mut good = rig.client();
        good.write(0, &pattern(0, 4096, 1)).expect("writes");
    }
    let begun = std::time::Instant::now();
    serving.stop().expect("stops");
    assert!(begun.elapsed() < std::time::Duration::from_secs(60));
}

#[test]
fn clients_that_connect_and_say_nothing_keep_no_other_out() {
    let rig = Rig::create(Spec::new(Level::Raid5, 3));
    let (serving, _) = rig.serve();
    let connect = || std::os::unix::net::UnixStream::connect(rig.socket()).expect("connects");
    let mut first = rig.client();
    let silent: Vec<_> = (0..100).map(|_| connect()).collect();
    let mut late = rig.client();
    late.write(0, &pattern(0, 4096, 1)).expect("writes");
    first.read(0, 4096).expect("who serves stays");
    // Whoever has negotiated gives way to no other.
    let serves: Vec<_> = (0..30).map(|_| rig.client()).collect();
    let refused = std::io::Read::read(&mut connect(), &mut [0; 1]).expect("it is hung up");
    assert_eq!(
        refused, 0,
        "32 connections are served, and one more was accepted"
    );
    late.read(0, 4096).expect("reads");
    drop((silent, serves));
    serving.stop().expect("stops");
}

#[test]
fn a_stale_socket_is_replaced_and_a_living_one_is_not() {
    let rig = Rig::create(Spec::new(Level::Raid1, 2));
    drop(std::os::unix::net::UnixListener::bind(rig.socket()).expect("binds"));
    assert!(rig.socket().exists(), "left behind");
    let (serving, _) = rig.serve();
    rig.client().read(0, 4096).expect("reads");
    let other = Rig::create(Spec::new(Level::Raid1, 2));
    let mut config = other.config();
    config.nbd_socket = rig.socket();
    let refused = strake_runtime::serve(config).map(drop);
    assert!(refused.is_err(), "the socket is in use");
    rig.client().read(0, 4096).expect("still ours");
    serving.stop().expect("stops");
    // The array was left clean although its export failed.
    let (serving, _) = other.serve();
    serving.stop().expect("stops");
}

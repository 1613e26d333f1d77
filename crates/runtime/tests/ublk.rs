//! The array as a Linux block device, on a kernel that has ublk (`cargo xtask vm` boots one where
//! this kernel has not).

mod common;

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::*;
use strake_engine::Buf;
use strake_engine::event::ArrayState;
use strake_format::Level;
use strake_runtime::*;

const MIB: u64 = 1 << 20;

/// Is there a driver? Says so where there is none.
fn ublk() -> bool {
    let _ = Command::new("modprobe").args(["-q", "ublk_drv"]).status();
    let there = Path::new("/dev/ublk-control").exists();
    if !there {
        println!("SKIPPED: this kernel has no ublk");
    }
    there
}

fn spec() -> Spec {
    Spec {
        export: ExportKind::Ublk,
        shards: 2,
        ..Spec::new(Level::Raid5, 5)
    }
}

struct Block(File);

impl Block {
    fn open(serving: &Serving) -> Block {
        Block::at(Path::new(&serving.export().device().expect("an export")))
    }

    fn at(path: &Path) -> Block {
        let open = || {
            File::options()
                .read(true)
                .write(true)
                .custom_flags(libc::O_DIRECT)
                .open(path)
        };
        for _ in 0..6000 {
            if let Ok(file) = open() {
                return Block(file);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Block(open().expect("the block device opens"))
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        let buf = Buf::from_bytes(bytes);
        self.0
            .write_all_at(&buf.bytes()[..bytes.len()], offset)
            .expect("no error reaches the user");
    }

    fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut buf = Buf::zeroed(len);
        self.0
            .read_exact_at(&mut buf.bytes_mut()[..len], offset)
            .expect("no error reaches the user");
        buf.bytes()[..len].to_vec()
    }
}

/// Zeroes or discards a range with util-linux.
fn blkdiscard(serving: &Serving, args: &[&str]) {
    let device = serving.export().device().expect("an export");
    let status = Command::new("blkdiscard").args(args).arg(device).status();
    assert!(status.expect("util-linux").success(), "blkdiscard {args:?}");
}

fn queue(serving: &Serving, name: &str) -> u64 {
    let id = serving.export().ublk().expect("a block device");
    let path = format!("/sys/block/ublkb{id}/queue/{name}");
    std::fs::read_to_string(&path)
        .expect("sysfs")
        .trim()
        .parse()
        .expect("a number")
}

#[test]
fn a_block_device_reads_writes_zeroes_and_discards() {
    if !ublk() {
        return;
    }
    let rig = Rig::create(spec());
    let (serving, _) = rig.serve();
    let block = Block::open(&serving);
    assert_eq!(queue(&serving, "logical_block_size"), 4096);
    assert_eq!(queue(&serving, "minimum_io_size"), 65536);
    assert_eq!(queue(&serving, "optimal_io_size"), 4 * 65536);
    assert!(queue(&serving, "discard_max_bytes") > 0);
    for (round, len) in [4096, 65536, 262_144, 1 << 20, 3 << 20, 4096 * 77]
        .into_iter()
        .enumerate()
    {
        let offset = round as u64 * 4 * MIB + 8192;
        let data = pattern(offset, len, round as u64);
        block.write(offset, &data);
        assert!(block.read(offset, len) == data, "{len} bytes at {offset}");
    }
    block.0.sync_all().expect("flush");
    assert_eq!(
        block.read(40 * MIB, 1 << 20),
        vec![0; 1 << 20],
        "never written"
    );
    blkdiscard(&serving, &["-f", "--zeroout", "-o", "12288", "-l", "4096"]);
    block.write(8192 + 65536, &pattern(1, 4096, 9));
    blkdiscard(&serving, &["-f", "-o", "20971520", "-l", "1048576"]);
    assert_eq!(block.read(8192 + 4096, 4096), vec![0; 4096]);
    assert!(block.read(8192, 4096) == pattern(8192, 4096, 0));
    std::fs::remove_file(&rig.paths[3]).expect("removes");
    wait_for(&serving, "loss", |status| {
        status.state == ArrayState::Degraded
    });
    let offset = 4 * MIB * 4 + 8192;
    assert!(
        block.read(offset, 3 << 20) == pattern(offset, 3 << 20, 4),
        "degraded"
    );
    drop(block);
    let device = serving.export().device().expect("an export");
    serving.stop().expect("stops");
    assert!(!Path::new(&device).exists(), "the device is removed");
}

#[test]
fn fio_verifies_a_block_device() {
    if !ublk() {
        return;
    }
    let rig = Rig::create(spec());
    let (serving, _) = rig.serve();
    let device = serving.export().device().expect("an export");
    let status = Command::new("fio")
        .args([
            "--name=v",
            "--ioengine=io_uring",
            "--direct=1",
            "--rw=randwrite",
            "--iodepth=32",
            "--size=48m",
        ])
        .args([
            "--bssplit=4k/40:16k/20:64k/20:256k/10:1m/10",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
        ])
        .args(["--output-format=terse", "--randrepeat=0"])
        .arg(format!("--filename={device}"))
        .stdout(Stdio::null())
        .status();
    match status {
        Ok(status) => assert!(status.success(), "fio"),
        Err(_) => println!("SKIPPED: fio is not installed"),
    }
    assert_eq!(serving.counters().errors, 0);
    serving.stop().expect("stops");
}

/// Serves the files in STRAKE_TEST_MEMBERS until it is killed; the other half of the next test.
#[test]
fn child_that_serves_until_it_is_killed() {
    let Ok(members) = std::env::var("STRAKE_TEST_MEMBERS") else {
        return;
    };
    let paths: Vec<PathBuf> = members.split(':').map(PathBuf::from).collect();
    let number = |name| std::env::var(name).ok().and_then(|id| id.parse().ok());
    let (serving, _events) = serve(ServeConfig {
        members: open_members(&paths),
        shards: 2,
        memory_bytes: 16 << 20,
        placement: Placement::default(),
        io_timeout: Duration::from_secs(10),
        force: false,
        export: ExportKind::Ublk,
        nbd_socket: PathBuf::new(),
        recover_ublk: number("STRAKE_TEST_RECOVER"),
        client_stock: Vec::new(),
    })
    .expect("serves");
    let device = serving.export().device().expect("an export");
    std::fs::write(paths[0].with_extension("device"), device).expect("tells");
    std::thread::sleep(Duration::from_secs(600));
}

fn start_child(rig: &Rig, recover: Option<&str>) -> (Child, PathBuf) {
    let members: Vec<_> = rig
        .paths
        .iter()
        .map(|p| p.to_str().expect("UTF-8"))
        .collect();
    let told = rig.paths[0].with_extension("device");
    let _ = std::fs::remove_file(&told);
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command
        .args([
            "--exact",
            "child_that_serves_until_it_is_killed",
            "--nocapture",
        ])
        .env("STRAKE_TEST_MEMBERS", members.join(":"));
    if let Some(id) = recover {
        command.env("STRAKE_TEST_RECOVER", id);
    }
    let mut child = command.spawn().expect("starts");
    for _ in 0..6000 {
        if let Ok(device) = std::fs::read_to_string(&told)
            && !device.is_empty()
        {
            return (child, PathBuf::from(device));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().expect("kills");
    child.wait().expect("ends");
    panic!("the child does not serve");
}

#[test]
fn a_killed_server_is_succeeded_without_an_error() {
    if !ublk() {
        return;
    }
    let rig = Rig::create(spec());
    let (mut child, path) = start_child(&rig, None);
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (block, stop) = (Block::at(&path), Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut versions = vec![0u64; 256];
            let mut turn = 0u64;
            while !stop.load(Ordering::Relaxed) {
                turn += 1;
                let at = (turn * 7 % 256) as usize;
                block.write(at as u64 * 16384, &pattern(at as u64 * 16384, 16384, turn));
                versions[at] = turn;
            }
            for (at, &version) in versions.iter().enumerate().filter(|(_, v)| **v > 0) {
                let offset = at as u64 * 16384;
                assert!(
                    block.read(offset, 16384) == pattern(offset, 16384, version),
                    "block {at}"
                );
            }
            turn
        })
    };
    for round in 0..3 {
        std::thread::sleep(Duration::from_millis(700));
        child.kill().expect("kills");
        child.wait().expect("ends");
        let id = path
            .to_str()
            .and_then(|p| p.strip_prefix("/dev/ublkb"))
            .expect("a number")
            .to_owned();
        let (next, again) = start_child(&rig, Some(&id));
        assert_eq!(again, path, "round {round}: the same device");
        child = next;
    }
    std::thread::sleep(Duration::from_millis(500));
    stop.store(true, Ordering::Relaxed);
    assert!(writer.join().expect("no error reaches the user") > 10);
    // The last one is taken over by this process, which stops it in good order.
    child.kill().expect("kills");
    child.wait().expect("ends");
    let id = path
        .to_str()
        .and_then(|p| p.strip_prefix("/dev/ublkb"))
        .and_then(|n| n.parse().ok());
    let mut config = rig.config();
    config.recover_ublk = id;
    let (serving, _) = serve(config).expect("serves");
    serving.stop().expect("stops");
    assert!(!path.exists());
}

//! The NBD server with clients that are not ours: libnbd's tools, QEMU's, and fio. What is not
//! installed is skipped, aloud.

mod common;

use std::process::{Command, Output};

use common::*;
use strake_format::Level;

/// Runs a program; `None` where it is not installed.
fn run(program: &str, args: &[&str]) -> Option<Output> {
    // Where the distribution's Python keeps the modules of these packages; the Python in PATH may
    // be another.
    match Command::new("timeout")
        .env("PYTHONPATH", "/usr/lib/python3/dist-packages")
        .arg("120")
        .arg(program)
        .args(args)
        .output()
    {
        Ok(output) if output.status.code() == Some(127) => {
            println!("SKIPPED: {program} is not installed");
            None
        }
        Ok(output) => Some(output),
        Err(error) => panic!("timeout: {error}"),
    }
}

fn succeeds(program: &str, args: &[&str]) -> Option<String> {
    let output = run(program, args)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {args:?}\n{text}\n{errors}"
    );
    Some(text)
}

fn rig() -> Rig {
    Rig::create(Spec {
        shards: 2,
        ..Spec::new(Level::Raid5, 4)
    })
}

#[test]
fn nbdinfo_understands_what_is_offered() {
    let rig = rig();
    let (serving, _) = rig.serve();
    let uri = serving.export().device().expect("an export");
    rig.client()
        .write(0, &pattern(0, 65536, 1))
        .expect("writes");
    if let Some(info) = succeeds("nbdinfo", &["--json", &uri]) {
        for wanted in [
            format!("\"export-size\": {}", rig.size),
            "\"can_multi_conn\": true".into(),
            "\"can_fua\": true".into(),
            "\"can_trim\": true".into(),
            "\"can_zero\": true".into(),
            "\"block_size_minimum\": 4096".into(),
            "\"block_size_preferred\": 65536".into(),
            "base:allocation".into(),
        ] {
            assert!(info.contains(&wanted), "{wanted} is not in {info}");
        }
    }
    if let Some(map) = succeeds("nbdinfo", &["--map", &uri]) {
        assert!(map.contains("data") && map.contains("hole,zero"), "{map}");
    }
    if let Some(list) = succeeds("nbdinfo", &["--list", &uri]) {
        assert!(list.contains("export=\"rig\""), "{list}");
    }
    serving.stop().expect("stops");
}

#[test]
fn nbdcopy_brings_in_and_takes_out_the_same_bytes() {
    let rig = rig();
    let (serving, _) = rig.serve();
    let uri = serving.export().device().expect("an export");
    let (source, target) = (rig.dir.path().join("in"), rig.dir.path().join("out"));
    // Holes too: half of it was never written.
    let mut content = pattern(0, rig.size as usize / 2, 3);
    content.resize(rig.size as usize, 0);
    std::fs::write(&source, &content).expect("writes");
    let (source, target) = (
        source.to_str().expect("UTF-8"),
        target.to_str().expect("UTF-8"),
    );
    if succeeds("nbdcopy", &["--connections=4", source, &uri]).is_some() {
        succeeds("nbdcopy", &["--connections=4", &uri, target]);
        assert!(
            std::fs::read(target).expect("reads") == content,
            "what came out is not what went in"
        );
    }
    serving.stop().expect("stops");
}

#[test]
fn nbdsh_does_everything_that_the_protocol_offers() {
    let rig = rig();
    let (serving, _) = rig.serve();
    let script = format!(
        r#"
h.add_meta_context("base:allocation")
h.connect_unix("{}")
size = h.get_size()
data = bytes(range(256)) * 1024
h.pwrite(data, 65536, nbd.CMD_FLAG_FUA)
assert h.pread(len(data), 65536) == data
assert h.pread_structured(len(data), 65536, lambda *a: 0, nbd.CMD_FLAG_DF) == data
h.zero(65536, 65536, nbd.CMD_FLAG_NO_HOLE)
assert h.pread(131072, 65536) == bytes(65536) + data[65536:131072]
h.trim(4096, 131072, nbd.CMD_FLAG_FUA)
h.flush()
extents = []
h.block_status(size, 0, lambda c, o, e, err: extents.extend(e))
assert sum(extents[0::2]) == size, extents
big = bytes(33554432)
h.pwrite(big, 0)
assert h.pread(33554432, 0) == big
# 64 requests in flight
h.set_strict_mode(0)
piece = nbd.Buffer.from_bytearray(bytearray(b"x" * 16384))
cookies = [h.aio_pwrite(piece, i * 16384) for i in range(64)]
while h.aio_in_flight() > 0:
    h.poll(-1)
assert h.pread(64 * 16384, 0) == b"x" * (64 * 16384)
for bad in [(512, 1), (4096, size), (100, 0)]:
    try:
        h.pread(*bad)
        raise SystemExit("served " + str(bad))
    except nbd.Error as e:
        assert e.errnum == errno.EINVAL, e
h.shutdown()
"#,
        rig.socket().display()
    );
    succeeds("nbdsh", &["-c", "import errno", "-c", &script]);
    serving.stop().expect("stops");
}

#[test]
fn qemu_io_reads_what_it_wrote() {
    let rig = rig();
    let (serving, _) = rig.serve();
    let target = format!("nbd+unix:///?socket={}", rig.socket().display());
    let done = succeeds(
        "qemu-io",
        &[
            "-f",
            "raw",
            "-c",
            "write -P 0x5a 0 8M",
            "-c",
            "write -f -P 0xa5 8M 64k",
            "-c",
            "write -z 1M 1M",
            "-c",
            "discard 4M 1M",
            "-c",
            "flush",
            "-c",
            "read -P 0x5a 0 1M",
            "-c",
            "read -P 0 1M 1M",
            "-c",
            "read -P 0xa5 8M 64k",
            "-c",
            "aio_write -P 0x33 12M 3M",
            "-c",
            "aio_flush",
            "-c",
            "read -P 0x33 12M 3M",
            &target,
        ],
    );
    if let Some(text) = done {
        assert!(
            !text.contains("failed") && !text.contains("verification"),
            "{text}"
        );
    }
    serving.stop().expect("stops");
}

#[test]
fn fio_verifies_random_writes() {
    let rig = rig();
    let (serving, _) = rig.serve();
    let uri = format!("--uri=nbd+unix:///?socket={}", rig.socket().display());
    let args = [
        "--name=v",
        "--ioengine=nbd",
        &uri,
        "--rw=randwrite",
        "--bssplit=4k/40:16k/20:64k/20:256k/10:1m/10",
        "--iodepth=32",
        "--size=96m",
        "--verify=crc32c",
        "--do_verify=1",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--output-format=terse",
        "--randrepeat=0",
    ];
    if let Some(output) = run("fio", &args) {
        let errors = String::from_utf8_lossy(&output.stderr);
        if errors.contains("engine nbd not loadable") {
            println!("SKIPPED: fio has no nbd engine");
        } else {
            assert!(output.status.success(), "{errors}");
        }
    }
    assert_eq!(serving.counters().errors, 0);
    serving.stop().expect("stops");
}

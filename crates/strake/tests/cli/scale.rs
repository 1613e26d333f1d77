//! Large arrays cost no more time to look after than small ones, and a rebuild moves what was
//! written.

use std::time::{Duration, Instant};

use crate::rig::{self, Rig};

const MIB: u64 = 1 << 20;
const MEMBERS: usize = 24;
const MEMBER_BYTES: u64 = 2_000_000_000_000;
const MOST: Duration = Duration::from_secs(2);
/// Where a busy machine takes longer: so many times what as many small members take on it. One that
/// looks through members of this size takes thousands of times as much.
const MOST_TIMES: u32 = 4;
/// On the slowest machine.
const MOST_EVER: Duration = Duration::from_secs(30);
/// The machine may have been busy with something else.
const TRIES: usize = 3;

/// The life of the array, timed.
fn times(rig: &Rig, devices: &[String]) -> Vec<(&'static str, Duration)> {
    let mut all = Vec::new();
    let mut timed = |what, act: &dyn Fn()| {
        let since = Instant::now();
        act();
        all.push((what, since.elapsed()));
    };
    timed("create", &|| {
        rig.create("large", "6", &["--export", "nbd"], devices).ok();
    });
    timed("scan", &|| {
        let scan = rig.run(&["scan"]).ok().json();
        assert_eq!(scan[0]["found"], MEMBERS);
    });
    timed("show", &|| {
        assert_eq!(rig.show("large")["state"], "optimal");
    });
    timed("stop", &|| {
        rig.run(&["stop", "large"]).ok();
    });
    timed("start", &|| {
        rig.run(&["start", "large", "--export", "nbd"]).ok();
    });
    rig.run(&["stop", "large"]).ok();
    rig.run(&["destroy", "large", "--yes"]).ok();
    all
}

#[test]
fn two_dozen_members_of_two_terabytes_are_looked_after_in_two_seconds_each_time() {
    let mut rig = Rig::new();
    let probe = std::fs::File::create(rig.path("probe")).expect("works");
    if probe.set_len(MEMBER_BYTES).is_err() {
        return rig::skipped("the file system has no sparse files of 2 TB");
    }
    let devices: Vec<String> = (0..MEMBERS)
        .map(|i| rig.file(&format!("m{i}"), MEMBER_BYTES))
        .collect();
    rig.start_daemon();
    let small = rig.files_called("s", MEMBERS);
    let mut best: Vec<(&str, Duration)> = Vec::new();
    let mut most: Vec<Duration> = Vec::new();
    for _ in 0..TRIES {
        let tried = times(&rig, &devices);
        println!("24 members of 2 TB: {tried:?}");
        best = match best.is_empty() {
            true => tried,
            false => {
                let both = best.iter().zip(&tried);
                both.map(|(one, other)| (one.0, one.1.min(other.1)))
                    .collect()
            }
        };
        if best.iter().all(|(_, took)| *took < MOST) {
            return;
        }
        let of_small = times(&rig, &small);
        println!("24 members of 64 MiB: {of_small:?}");
        let allowed = of_small.iter().map(|(_, took)| *took * MOST_TIMES);
        most = allowed.map(|one| one.clamp(MOST, MOST_EVER)).collect();
        if best.iter().zip(&most).all(|((_, took), most)| took < most) {
            return;
        }
    }
    panic!("more than {most:?} at best: {best:?}");
}

/// A sum over all that `/metrics` says under this name.
fn metric(rig: &Rig, name: &str) -> u64 {
    let text = rig.ask("GET", "/metrics");
    let lines = text.lines().filter_map(|line| {
        let (metric, value) = line.split_once(' ')?;
        let is = metric == name || metric.strip_prefix(name)?.starts_with('{');
        is.then(|| value.parse::<u64>().expect("a number"))
    });
    lines.sum()
}

#[test]
fn a_rebuild_moves_about_as_much_as_was_written() {
    let mut rig = Rig::new();
    let devices: Vec<String> = (0..5)
        .map(|i| rig.file(&format!("d{i}"), 1024 * MIB))
        .collect();
    rig.start_daemon();
    rig.create("data", "5", &["--export", "nbd"], &devices[..4])
        .ok();
    let size = rig.show("data")["size_bytes"].as_u64().expect("a size");
    let tenth = size / 10 / MIB;
    let commands: Vec<String> = (0..tenth.div_ceil(64))
        .map(|i| {
            let at = i * 64;
            format!("write -P 0x5a {at}M {}M", (tenth - at).min(64))
        })
        .chain(["flush".to_owned()])
        .collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    if rig.qemu_io("data", &commands).is_none() {
        return;
    }
    rig.run(&["fail", "data", "2"]).ok();
    let written = metric(&rig, "strake_member_written_bytes_total");
    let read = metric(&rig, "strake_member_read_bytes_total");
    rig.run(&["add", "data", &devices[4]]).ok();
    rig.until_state("data", "optimal");
    let written = metric(&rig, "strake_member_written_bytes_total") - written;
    let read = metric(&rig, "strake_member_read_bytes_total") - read;
    let each = size / 3;
    let percent = |bytes: u64| bytes as f64 * 100.0 / each as f64;
    println!(
        "a tenth of {size} bytes was written: the rebuild wrote {:.1} % of a member and read {:.1} \
         % of each of three",
        percent(written),
        percent(read / 3)
    );
    for bytes in [written, read / 3] {
        assert!((8.0..15.0).contains(&percent(bytes)), "{bytes} of {each}");
    }
    rig.qemu_io("data", &[&format!("read -P 0x5a 0 {tenth}M")]);
}

//! What the lab says of arrays whose figures are known in closed form.

use strake_foresight::catalogue;
use strake_foresight::load::Load;
use strake_format::{Level, WriteHole};
use strake_lab::{Cpu, Host, Lab, Reached, Setup, Target, Until};

fn setup(members: u8, level: Level) -> Setup {
    let drive = catalogue::builtin().find("D5-P5336-61.44");
    Setup {
        strip: Some(128 << 10),
        write_hole: WriteHole::Resync,
        ..Setup::new(drive.expect("in the catalogue"), members, level)
    }
}

fn run_on(lab: &mut Lab, target: Target, load: &str, passes: f64) -> Reached {
    let load: Load = load.parse().expect(load);
    let reached = lab.run(target, &[load], Until::Passes(passes));
    let reached = reached.expect("the load runs").remove(0);
    println!(
        "{load}: {:.1} k reads, {:.1} k writes, {:.2} + {:.2} GB/s, {:.0?} us",
        reached.read_iops / 1e3,
        reached.write_iops / 1e3,
        reached.read_bytes_per_s() / 1e9,
        reached.write_bytes_per_s() / 1e9,
        reached.latency_us,
    );
    reached
}

fn run(lab: &mut Lab, load: &str, passes: f64) -> Reached {
    run_on(lab, Target::Array, load, passes)
}

fn near(what: &str, ours: f64, model: f64, within: f64) {
    let deviation = ours / model - 1.0;
    println!("{what}: {ours:.4e}, by formula {model:.4e}, {deviation:+.3}");
    assert!(deviation.abs() <= within, "{what}: {ours} against {model}");
}

/// Write amplification of all drives between two counts.
fn waf(lab: &Lab, before: &strake_lab::Wear) -> f64 {
    let (mut host, mut media) = (0, 0);
    for (now, then) in lab.wear().iter().zip(before) {
        host += now.host_written - then.host_written;
        media += now.media_written - then.media_written;
    }
    media as f64 / host as f64
}

#[test]
fn raid_5_of_five_reaches_what_its_drives_allow() {
    let setup = setup(5, Level::Raid5);
    let drive = setup.drive.clone();
    let (read, write) = (drive.read.middle(), drive.write.middle());
    let over_provisioning = setup.over_provisioning();
    let mut lab = Lab::new(setup).expect("a lab");
    lab.fill(1.0).expect("filled");
    let before = lab.wear();
    let reached = run(&mut lab, "seq-write:512K:16x64", 4.0);
    near("write", reached.write_bytes_per_s(), 4.0 * write, 0.03);
    near("wear of a stream", waf(&lab, &before), 1.0, 0.03);
    let reached = run(&mut lab, "seq-read:512K:16x64", 8.0);
    near("read", reached.read_bytes_per_s(), 5.0 * read, 0.03);
    let iops = drive.read_iops.middle();
    let reached = run(&mut lab, "rand-read:4K:1024", 0.5);
    near("random read", reached.read_iops, 5.0 * iops, 0.03);
    let raw = run_on(&mut lab, Target::Drives, "rand-read:4K:1280", 0.2);
    near("raw random read", raw.read_iops, 5.0 * iops, 0.03);
    lab.condition_at_random(1.0);
    let before = lab.wear();
    let reached = run(&mut lab, "rand-write:4K:1024", 0.2);
    // Data and parity: two units of flash for each request, and collection.
    near(
        "random write",
        reached.write_iops,
        drive.write_iops.middle() * 5.0 / 2.0,
        0.10,
    );
    let collected = strake_flash::collection_waf(over_provisioning);
    near("wear of 4K", waf(&lab, &before), 4.0 * collected, 0.05);

    lab.fail(1).expect("degraded");
    // Of five reads one is of the lost strip and costs four: 1.6 reads of four drives each.
    let reached = run(&mut lab, "rand-read:4K:1024", 0.5);
    near("degraded read", reached.read_iops, 4.0 * iops / 1.6, 0.03);
    let job = lab.rebuild(1, &[]).expect("rebuilt");
    near("rebuild", job.bytes_per_s, write, 0.05);
    assert!(job.waf.is_some_and(|waf| waf < 1.03), "{job:?}");
    let job = lab.scrub(&[]).expect("checked");
    near("scrub", job.bytes_per_s, read, 0.12);
}

#[test]
fn small_writes_in_order_become_whole_stripes() {
    let mut lab = Lab::new(setup(5, Level::Raid5)).expect("a lab");
    lab.fill(1.0).expect("filled");
    let written = |lab: &Lab| lab.wear().iter().map(|c| c.host_written).sum::<u64>() as f64;
    let before = written(&lab);
    run(&mut lab, "seq-write:128K:1x64", 1.0);
    let per_byte = (written(&lab) - before) / lab.size() as f64;
    near("bytes of drives for each", per_byte, 1.25, 0.03);
}

/// Copies take turns, in every group: no member rests while others read.
#[test]
fn all_members_of_mirrors_answer_reads() {
    for (members, strip) in [(4, 64 << 10), (8, 64 << 10), (6, 16 << 10), (4, 1 << 20)] {
        let mut setup = setup(members, Level::Raid10);
        setup.strip = Some(strip);
        let mut lab = Lab::new(setup).expect("a lab");
        lab.fill(1.0).expect("filled");
        for load in ["rand-read:4K:256", "seq-read:64K:4x64"] {
            let before = lab.wear();
            run(&mut lab, load, 0.2);
            let pairs = lab.wear();
            let read = pairs
                .iter()
                .zip(&before)
                .map(|(b, a)| b.host_read - a.host_read);
            let read: Vec<u64> = read.collect();
            let (least, most) = (read.iter().min(), read.iter().max());
            let fair = least
                .zip(most)
                .is_some_and(|(least, most)| most * 8 <= least * 10);
            assert!(
                fair,
                "{members} members, strips of {strip}, {load}: {read:?}"
            );
        }
    }
}

/// The wear of a drive that is rebuilt under a load, with all in one placement handle and with
/// handles for what lives shorter or longer; and that neither costs the load or the rebuild.
#[test]
fn handles_of_their_own_take_the_wear_from_a_rebuild_under_load() {
    let rebuilt = |handles: u8| {
        let mut setup = setup(9, Level::Raid5);
        setup.handles = handles;
        setup.settings.rebuild_priority = 100;
        let mut lab = Lab::new(setup).expect("a lab");
        lab.fill(1.0).expect("filled");
        let loads = ["seq-write:1M:38:13GB", "seq-read:1M:90:44GB"];
        let loads = loads.map(|load| load.parse().expect("a load"));
        lab.run(Target::Array, &loads, Until::Passes(4.0))
            .expect("runs");
        lab.fail(3).expect("degraded");
        let job = lab.rebuild(3, &loads).expect("rebuilt");
        println!(
            "{handles} handles: {:.1} h, {:.0} MB/s, WAF {:.3?}, beside {:.1} and {:.1} GB/s",
            job.seconds / 3600.0,
            job.bytes_per_s / 1e6,
            job.waf,
            job.beside[0].write_bytes_per_s() / 1e9,
            job.beside[1].read_bytes_per_s() / 1e9
        );
        job
    };
    let (together, apart) = (rebuilt(1), rebuilt(3));
    let waf = |job: &strake_lab::Job| job.waf.expect("it was written");
    assert!((1.10..1.35).contains(&waf(&together)), "{together:?}");
    assert!(waf(&apart) < 1.025, "{apart:?}");
    assert!(apart.seconds < together.seconds * 1.1, "{apart:?}");
}

/// The stripe log's part of the wear under random writes of 4 KiB: its records are gathered.
#[test]
fn the_log_wears_at_most_a_twentieth_of_what_the_data_does() {
    let media = |hole: WriteHole, handles: u8| {
        let mut setup = setup(5, Level::Raid5);
        setup.write_hole = hole;
        setup.handles = handles;
        let mut lab = Lab::new(setup).expect("a lab");
        lab.fill(1.0).expect("filled");
        lab.condition_at_random(1.0);
        let before = lab.wear();
        run(&mut lab, "rand-write:4K:1024", 0.2);
        let pairs = lab.wear();
        let each = pairs.iter().zip(&before);
        let mut of = vec![0; usize::from(handles)];
        for (now, then) in each {
            for (handle, sum) in of.iter_mut().enumerate() {
                *sum += now.handles[handle].media_written - then.handles[handle].media_written;
            }
        }
        of
    };
    let plain = media(WriteHole::Resync, 1)[0] as f64;
    let mixed = media(WriteHole::Closed, 1)[0] as f64 / plain;
    let apart = media(WriteHole::Closed, 3);
    let (data, log) = (apart[0] as f64, apart[2] as f64);
    println!(
        "log {:.4} of the data, all {:.3}, in one handle {mixed:.3}",
        log / data,
        (data + log) / plain
    );
    assert!(log / data < 0.05, "{apart:?}");
    assert!((data + log) / plain < 1.06, "{apart:?}");
    // Without a handle of its own it shares erase blocks with what lives longer.
    assert!(mixed < 1.25, "{mixed}");
}

#[test]
fn the_same_setup_gives_the_same_figures() {
    let once = || {
        let mut lab = Lab::new(setup(5, Level::Raid5)).expect("a lab");
        lab.fill(1.0).expect("filled");
        run(&mut lab, "rand-mixed70:4K:64", 0.02)
    };
    assert_eq!(once(), once());
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let error = |setup: Setup| Lab::new(setup).err().expect("refused").to_string();
    assert!(error(setup(2, Level::Raid5)).contains("at least 3"));
    assert!(error(setup(0, Level::Raid5)).contains("without members"));
    let odd = Setup {
        strip: Some(100_000),
        ..setup(5, Level::Raid5)
    };
    let said = error(odd);
    assert!(said.contains("100000"), "{said}");
}

/// Cores that are the limit: a read costs a request and an I/O, and the same seed gives the same.
#[test]
fn cores_limit_what_drives_could_and_say_so() {
    let cpu = Cpu {
        cores: 2,
        request_ns: 1000.0,
        io_ns: 1000.0,
        byte_ns: 0.1,
        check_ns: 0.05,
    };
    let with = |cores: Option<u32>| Setup {
        host: Host {
            cpu: cores.map(|cores| Cpu { cores, ..cpu }),
            device_iops: None,
        },
        units: 16 << 10,
        ..setup(5, Level::Raid5)
    };
    let reads = |cores: Option<u32>| {
        let mut lab = Lab::new(with(cores)).expect("a lab");
        lab.fill(1.0).expect("filled");
        let reached = run(&mut lab, "rand-read:4K:512", 0.2);
        (reached, lab.cpu_busy())
    };
    // 2 cores, 2 us a read.
    let (two, busy) = reads(Some(2));
    near("two cores", two.read_iops, 1e6, 0.05);
    assert!(busy.is_some_and(|busy| busy > 0.95), "{busy:?}");
    assert_eq!(reads(Some(2)), (two, busy));
    let (four, _) = reads(Some(4));
    near("four cores", four.read_iops, 2e6, 0.05);
    // More cores than shards: drives and requests in flight are the limit, as without cores.
    let (many, busy) = reads(Some(64));
    let (none, unknown) = reads(None);
    near("64 cores", many.read_iops, none.read_iops, 0.05);
    assert!(busy.is_some_and(|busy| busy < 0.3), "{busy:?}");
    assert_eq!(unknown, None);
}

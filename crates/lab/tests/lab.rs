//! What the lab says of arrays whose figures are known in closed form.

use strake_foresight::catalogue;
use strake_foresight::load::Load;
use strake_format::{Level, WriteHole};
use strake_lab::{Lab, Reached, Setup, Target, Until};

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
    let mut lab = Lab::new(setup).expect("a lab");
    lab.fill(1.0).expect("filled");
    let before = lab.wear();
    let reached = run(&mut lab, "seq-write:512K:16x64", 4.0);
    near("write", reached.write_bytes_per_s(), 4.0 * write, 0.05);
    near("wear of a stream", waf(&lab, &before), 1.0, 0.03);
    let reached = run(&mut lab, "seq-read:512K:16x64", 8.0);
    near("read", reached.read_bytes_per_s(), 5.0 * read, 0.10);
    let iops = drive.read_iops.middle();
    let reached = run(&mut lab, "rand-read:4K:1024", 0.5);
    near("random read", reached.read_iops, 5.0 * iops, 0.05);
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
    let collected = strake_flash::collection_waf(drive.over_provisioning.middle());
    near("wear of 4K", waf(&lab, &before), 4.0 * collected, 0.05);

    lab.fail(1).expect("degraded");
    // Of five reads one is of the lost strip and costs four: 1.6 reads of four drives each.
    let reached = run(&mut lab, "rand-read:4K:1024", 0.5);
    near("degraded read", reached.read_iops, 4.0 * iops / 1.6, 0.10);
    let job = lab.rebuild(1, &[]).expect("rebuilt");
    near("rebuild", job.bytes_per_s, write, 0.12);
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

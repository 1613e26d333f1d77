//! What the lab says of arrays whose figures are known in closed form.

use strake_flash::collection_waf;
use strake_foresight::drive::Drive;
use strake_foresight::load::Load;
use strake_foresight::value::{Figure, Source};
use strake_format::{Level, WriteHole};
use strake_lab::{Lab, Reached, Setup, Target, Until};

/// A drive with the figures of a large QLC drive.
fn drive() -> Drive {
    let sheet = |value: f64| Figure::point(value, Source::DataSheet);
    Drive {
        name: "of the tests".to_owned(),
        capacity: 61_440_000_000_000,
        unit: sheet(16384.0),
        read: sheet(7.0e9),
        write: sheet(3.3e9),
        read_iops: sheet(1.005e6),
        write_iops: sheet(43e3),
        random_write_bytes: 16384,
        over_provisioning: sheet(0.125),
        mix: sheet(1.3),
        read_latency: sheet(100e-6),
        write_latency: sheet(15e-6),
        endurance: sheet(65.2e15),
        watts_active: sheet(25.0),
        watts_idle: sheet(5.0),
        afr: sheet(0.0044),
        uber: sheet(1e-17),
        price_gb: sheet(0.07),
    }
}

fn setup(members: u8, level: Level) -> Setup {
    Setup {
        strip: Some(128 << 10),
        write_hole: WriteHole::Resync,
        ..Setup::new(drive(), members, level)
    }
}

fn run(lab: &mut Lab, load: &str, until: Until) -> Reached {
    let load: Load = load.parse().expect(load);
    let began = std::time::Instant::now();
    let reached = lab.run(Target::Array, &[load], until);
    let reached = reached.expect("the load runs").remove(0);
    eprintln!(
        "{load}: {:.1} k reads, {:.1} k writes, {:.2} + {:.2} GB/s, {:?} us, took {:?}",
        reached.read_iops / 1e3,
        reached.write_iops / 1e3,
        reached.read_bytes_per_s() / 1e9,
        reached.write_bytes_per_s() / 1e9,
        reached.latency_us,
        began.elapsed()
    );
    reached
}

#[test]
fn look() {
    let t = std::time::Instant::now();
    let mut s = setup(5, Level::Raid5);
    if let Ok(u) = std::env::var("UNITS") {
        s.units = u.parse().unwrap();
    }
    if std::env::var("CLOSED").is_ok() {
        s.write_hole = WriteHole::Closed;
    }
    let mut lab = Lab::new(s).expect("a lab");
    let big = std::env::var("UNITS").is_ok();
    let _ = big;
    eprintln!(
        "size {} strip {} scale {} created {} {:?}",
        lab.size(),
        lab.strip(),
        lab.scale(),
        lab.created_after(),
        t.elapsed()
    );
    lab.fill(1.0).expect("filled");
    eprintln!(
        "filled {:?} {:?}",
        t.elapsed(),
        lab.wear()
            .iter()
            .map(|c| c.waf_since(&Default::default()))
            .collect::<Vec<_>>()
    );
    let a = lab.wear();
    run(&mut lab, "seq-write:512K:16x64", Until::Passes(1.0));
    let b = lab.wear();
    eprintln!(
        "{:?}",
        b.iter()
            .zip(&a)
            .map(|(b, a)| (b.waf_since(a), b.host_written - a.host_written))
            .collect::<Vec<_>>()
    );
    run(&mut lab, "seq-read:512K:16x64", Until::Passes(1.0));
    run(&mut lab, "seq-write:128K:1x64", Until::Passes(1.0));
    run(&mut lab, "seq-write:128K:16", Until::Passes(1.0));
    run(&mut lab, "rand-read:4K:1024", Until::Passes(0.5));
    lab.condition_at_random(1.0);
    run(&mut lab, "rand-write:4K:1024", Until::Passes(0.2));
    run(&mut lab, "rand-mixed70:4K:1024", Until::Passes(0.2));
    let _ = collection_waf(0.1);
    let t = std::time::Instant::now();
    lab.fail(1).expect("fails");
    run(&mut lab, "rand-read:4K:1024", Until::Passes(0.5));
    let j = lab.rebuild(1, &[]);
    eprintln!("rebuild {j:?} {:?}", t.elapsed());
    let j = lab.scrub(&[]);
    eprintln!("scrub {j:?} {:?}", t.elapsed());
}

//! The runner on a small rig of numbers: what it measures around a step, what it keeps, and where
//! it goes on.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use strake_foresight::load::Load;
use strake_study::definition::{Case, Figure, Step, Study};
use strake_study::result::{DriveSeen, On, Results, StepResult};
use strake_study::rig::{Job, Reached, Rig, RigError, Target, Until, Wear};
use strake_study::run::{Progress, Rigs, RunError, Running, Watch};
use strake_study::table::{Verdict, rows};
use strake_study::{report, table};

const TEXT: &str = r#"name = "model"
title = "A model"
drive = "d"

[[case]]
name = "a"
array = { drives = 3, level = "5" }

[[case.step]]
name = "create"
do = "create"

[[case.step]]
name = "write"
do = "load"
on = "array"
loads = ["rand-write:4K:8", "seq-read:1M:1"]
until = { ramp = "10s", run = "100s" }

[[case.step]]
name = "fail"
do = "fail"
slot = 1

[[case.step]]
name = "rebuild"
do = "rebuild"
slot = 1

[[case.expect]]
name = "writes"
step = "write"
figure = "write_bytes_per_s"
published = 1.05e6
kind = "P"

[[case.expect]]
name = "drives"
step = "write"
figure = "waf_raid"
published = 3.0
kind = "F"
outside = "a <reason>"

[[case.expect]]
name = "new drive"
step = "rebuild"
figure = "waf_slot"
published = 2.5
kind = "P"

[[case]]
name = "b"
array = { drives = 3, level = "5" }

[[case.step]]
name = "create"
do = "create"

[[case.step]]
name = "only-here"
do = "load"
on = "array"
loads = ["rand-read:4K:8"]
until = { run = "1s" }
only = "simulated"

[[case.step]]
name = "check"
do = "scrub"

[[case.step]]
name = "rest"
do = "idle"
until = { ramp = "1s", run = "4s" }
"#;

/// What rigs were asked for, in order; they fail at this call.
#[derive(Default)]
struct Model {
    calls: Rc<RefCell<Vec<String>>>,
    fails_at: Option<usize>,
    keeps: bool,
}

struct ModelRig {
    calls: Rc<RefCell<Vec<String>>>,
    fails_at: Option<usize>,
    /// Bytes to each drive, and to its flash: the drive of slot 1 writes twice as much.
    written: [f64; 3],
}

impl ModelRig {
    fn call(&self, what: &str) -> Result<(), RigError> {
        let mut calls = self.calls.borrow_mut();
        calls.push(what.to_owned());
        match self.fails_at == Some(calls.len()) {
            true => Err(RigError {
                step: what.to_owned(),
                cause: "the model fails".to_owned(),
            }),
            false => Ok(()),
        }
    }
}

impl Rig for ModelRig {
    fn create(&mut self) -> Result<f64, RigError> {
        self.call("create").map(|()| 0.5)
    }
    fn run(&mut self, _: Target, loads: &[Load], until: Until) -> Result<Vec<Reached>, RigError> {
        let Until::Time { ramp, run } = until else {
            panic!("{until:?}");
        };
        self.call(&format!("run {}", run.as_secs()))?;
        assert!(ramp.is_zero(), "a ramp is a run of its own");
        for written in &mut self.written {
            *written += 1e6 * run.as_secs_f64();
        }
        let reached = |load: &Load| {
            let writes = f64::from(100 - load.read_percent) / 100.0;
            Reached {
                load: *load,
                read_bytes_per_s: 1e6 * (1.0 - writes),
                write_bytes_per_s: 1e6 * writes,
                read_iops: 10.0,
                write_iops: 20.0,
                wrote: None,
                latency_us: [f64::from(load.depth); 4],
            }
        };
        Ok(loads.iter().map(reached).collect())
    }
    fn wear(&mut self) -> Result<Vec<Wear>, RigError> {
        let wear = |(slot, written): (usize, &f64)| Wear {
            host_written: Some(*written),
            media_written: Some(written * if slot == 1 { 2.0 } else { 1.0 }),
            ..Wear::default()
        };
        Ok(self.written.iter().enumerate().map(wear).collect())
    }
    fn idle(&mut self, time: Duration) -> Result<(), RigError> {
        self.call(&format!("idle {}", time.as_secs()))
    }
    fn cores(&mut self) -> Option<f64> {
        Some(1.5)
    }
    fn fail(&mut self, _: usize) -> Result<(), RigError> {
        self.call("fail")
    }
    fn rebuild(&mut self, slot: usize, _: &[Load]) -> Result<Job, RigError> {
        self.call("rebuild")?;
        self.written[slot] += 5e6;
        Ok(Job {
            seconds: 5.0,
            bytes_per_s: 1e6,
            beside: Vec::new(),
        })
    }
    fn scrub(&mut self, _: &[Load]) -> Result<Job, RigError> {
        self.call("scrub")?;
        Ok(Job {
            seconds: 2.0,
            bytes_per_s: 0.0,
            beside: Vec::new(),
        })
    }
}

impl Rigs for Model {
    fn keeps(&self) -> bool {
        self.keeps
    }
    fn rig(
        &mut self,
        _: &Study,
        case: &Case,
        done: &[&Step],
    ) -> Result<Box<dyn Rig + '_>, RigError> {
        let calls = Rc::clone(&self.calls);
        calls
            .borrow_mut()
            .push(format!("rig {} {}", case.name, done.len()));
        Ok(Box::new(ModelRig {
            calls,
            fails_at: self.fails_at,
            written: [0.0; 3],
        }))
    }
}

#[derive(Default)]
struct Seen(Vec<(usize, usize, Option<u64>)>);

impl Watch for Seen {
    fn begins(&mut self, progress: &Progress<'_>) {
        let left = progress.left.map(|left| left.as_secs());
        self.0.push((progress.step, progress.steps, left));
    }
    fn done(&mut self, _: &Progress<'_>, _: &StepResult) {}
}

fn real() -> On {
    On::Real(vec![DriveSeen::default(); 3])
}

fn begin(folder: &Path, on: On) -> Running {
    let study = Study::parse("model", TEXT).expect("a study");
    Running::begin(study, folder, "test", on).expect("a new folder")
}

#[test]
fn a_study_is_carried_out_in_its_order_and_each_figure_is_taken_around_its_step() {
    let parent = tempfile::tempdir().expect("works");
    let folder = parent.path().join("m");
    let (mut model, mut seen) = (Model::default(), Seen::default());
    let mut running = begin(&folder, On::Simulated);
    running.go_on(&mut model, &mut seen).expect("all steps");
    assert!(running.is_complete());
    let calls = model.calls.borrow();
    let expected = [
        "rig a 0", "create", "run 10", "run 100", "fail", "rebuild", "rig b 0", "create", "run 1",
        "scrub", "idle 1", "idle 4",
    ];
    assert_eq!(*calls, expected);
    let (study, results) = strake_study::run::read(&folder).expect("they were written");
    assert_eq!(results, *running.results());
    let write = results.step("a", "write").expect("it is done");
    // 3 drives took 1 MB/s each of 1 MB/s to the array; 1, 2 and 1 bytes of flash.
    assert_eq!(write.figures[&Figure::WafRaid], 3.0);
    assert!((write.figures[&Figure::Waf] - 4.0 / 3.0).abs() < 1e-9);
    assert_eq!(write.figures[&Figure::Iops], 60.0);
    assert_eq!(write.figures[&Figure::P99], 8.0);
    assert_eq!(write.figures[&Figure::Cores], 1.5);
    assert_eq!(write.figures[&Figure::IopsPerCore], 40.0);
    let rest = results.step("b", "rest").expect("it is done");
    assert_eq!(rest.figures.len(), 1, "{rest:?}");
    assert_eq!(rest.figures[&Figure::Cores], 1.5);
    let rebuild = results.step("a", "rebuild").expect("it is done");
    assert_eq!(rebuild.figures[&Figure::WafSlot], 2.0);
    let check = results.step("b", "check").expect("it is done");
    assert!(check.missing.contains_key(&Figure::JobBytes), "{check:?}");
    let verdicts: Vec<Verdict> = rows(&study, &results)
        .iter()
        .map(|row| row.verdict)
        .collect();
    assert_eq!(
        verdicts,
        [Verdict::Within, Verdict::Within, Verdict::Outside]
    );
    let page = report::html(&study, &results);
    assert!(page.contains("<svg") && page.contains("-20.0 %"), "{page}");
    let text = report::markdown(&study, &results);
    assert!(
        text.contains("| a | new drive | P | 2.50 | 2.00 | -20.0 % | outside 10 % |"),
        "{text}"
    );
}

#[test]
fn a_figure_that_misses_says_why_and_one_that_is_not_there_says_so() {
    let parent = tempfile::tempdir().expect("works");
    let folder = parent.path().join("m");
    let mut running = begin(&folder, On::Simulated);
    // The seventh call is the rebuild's.
    let mut model = Model {
        fails_at: Some(6),
        ..Model::default()
    };
    let error = running
        .go_on(&mut model, &mut Seen::default())
        .expect_err("it fails");
    let said = error.to_string();
    assert_eq!(said, "step rebuild of case a: rebuild: the model fails");
    let (study, mut results) = strake_study::run::read(&folder).expect("it was written");
    results.cases[0].steps[1]
        .figures
        .insert(Figure::WafRaid, 4.0);
    let rows = rows(&study, &results);
    assert_eq!(rows[1].verdict, Verdict::Explained);
    assert_eq!(rows[2].verdict, Verdict::NotMeasured);
    assert_eq!(rows[2].why.as_deref(), Some("step rebuild is not done"));
    let page = report::html(&study, &results);
    assert!(
        page.contains("a &lt;reason&gt;") && page.contains("3 of 8 steps"),
        "{page}"
    );
}

#[test]
fn after_a_failure_nothing_is_done_twice_where_the_array_is_still_there() {
    let parent = tempfile::tempdir().expect("works");
    let folder = parent.path().join("m");
    let mut model = Model {
        fails_at: Some(6),
        keeps: true,
        ..Model::default()
    };
    let mut running = begin(&folder, real());
    running
        .go_on(&mut model, &mut Seen::default())
        .expect_err("it fails");
    drop(running);
    let kept = Results::read(&folder).expect("kept");
    assert_eq!(kept.done(), 3);
    model.fails_at = None;
    model.calls.borrow_mut().clear();
    let mut seen = Seen::default();
    let mut running = Running::open(&folder).expect("it was begun");
    running.go_on(&mut model, &mut seen).expect("the rest");
    assert_eq!(
        *model.calls.borrow(),
        [
            "rig a 3", "rebuild", "rig b 0", "create", "scrub", "idle 1", "idle 4"
        ]
    );
    assert_eq!(
        running.results().cases[0].steps[..3],
        kept.cases[0].steps[..]
    );
    let numbers: Vec<(usize, usize)> = seen.0.iter().map(|(step, of, _)| (*step, *of)).collect();
    assert_eq!(numbers, [(4, 7), (5, 7), (6, 7), (7, 7)]);
}

#[test]
fn a_case_begins_anew_where_its_array_went_with_the_process() {
    let parent = tempfile::tempdir().expect("works");
    let folder = parent.path().join("m");
    let mut model = Model {
        fails_at: Some(6),
        ..Model::default()
    };
    let mut running = begin(&folder, On::Simulated);
    running
        .go_on(&mut model, &mut Seen::default())
        .expect_err("it fails");
    drop(running);
    model.fails_at = None;
    model.calls.borrow_mut().clear();
    let mut running = Running::open(&folder).expect("it was begun");
    running
        .go_on(&mut model, &mut Seen::default())
        .expect("all of it");
    assert_eq!(model.calls.borrow()[..2], ["rig a 0", "create"]);
    assert_eq!(running.results().done(), 8);
}

#[test]
fn a_folder_is_of_one_study_and_one_process_and_its_drives_are_those_that_it_began_on() {
    let parent = tempfile::tempdir().expect("works");
    let folder = parent.path().join("m");
    let drive = |path: &str, serial: &str| DriveSeen {
        path: path.into(),
        serial: Some(serial.to_owned()),
        ..DriveSeen::default()
    };
    let on = On::Real(vec![
        drive("/dev/nvme0n1", "S1"),
        drive("/dev/nvme1n1", "S2"),
    ]);
    let running = begin(&folder, on);
    let busy = Running::open(&folder).expect_err("at work");
    assert!(matches!(busy, RunError::Busy(_)), "{busy}");
    // They changed their names.
    let here = [drive("/dev/nvme0n1", "S2"), drive("/dev/nvme1n1", "S1")];
    let drives = running.drives(&here).expect("both are here");
    let paths: Vec<&Path> = drives.iter().map(|drive| drive.path.as_path()).collect();
    assert_eq!(
        paths,
        [Path::new("/dev/nvme1n1"), Path::new("/dev/nvme0n1")]
    );
    let gone = running
        .drives(&here[..1])
        .expect_err("S1 is not here")
        .to_string();
    assert!(gone.contains("/dev/nvme0n1 (S1)"), "{gone}");
    let study = Study::parse("model", TEXT).expect("a study");
    let there = Running::begin(study, &folder, "test", real()).expect_err("there");
    assert!(matches!(there, RunError::Exists(_)), "{there}");
    drop(running);
    let path = folder.join("study.toml");
    std::fs::write(&path, TEXT.replace("do = \"scrub\"", "do = \"scrubs\"")).expect("works");
    let wrong = Running::open(&folder).expect_err("a mistake").to_string();
    assert!(
        wrong.contains("study.toml, line 70, do in [[case.step]]"),
        "{wrong}"
    );
    assert!(table::percent(0.0321) == "+3.2 %");
}

#[test]
fn a_study_runs_on_modelled_drives_and_its_rebuild_wears_the_new_drive_alone() {
    use strake_foresight::catalogue;
    use strake_study::simulated::Simulated;
    let text = r#"name = "lab"
title = "Five modelled drives"
drive = "D5-P5336-61.44"
[[case]]
name = "a"
array = { drives = 5, level = "5", strip = "128K", write_hole = "resync" }
[[case.step]]
name = "create"
do = "create"
[[case.step]]
name = "fill"
do = "load"
on = "array"
loads = ["seq-write:512K:4x64"]
until = { passes = 0.2 }
[[case.step]]
name = "fail"
do = "fail"
slot = 1
[[case.step]]
name = "rebuild"
do = "rebuild"
slot = 1
"#;
    let parent = tempfile::tempdir().expect("works");
    let study = Study::parse("lab", text).expect("a study");
    let folder = parent.path().join("m");
    let mut running = Running::begin(study, &folder, "test", On::Simulated).expect("new");
    let mut rigs = Simulated {
        catalogue: catalogue::builtin(),
    };
    running
        .go_on(&mut rigs, &mut Seen::default())
        .expect("all steps");
    let rebuild = running.results().step("a", "rebuild").expect("done");
    let waf = rebuild.figures[&Figure::WafSlot];
    assert!((0.99..1.1).contains(&waf), "{rebuild:?}");
    // All of 61.44 TB at 3.2 GB/s is 19200 s, a fifth 3840 s; regions are whole, which are large
    // on a small drive.
    let seconds = rebuild.figures[&Figure::Seconds];
    assert!((3000.0..9600.0).contains(&seconds), "{rebuild:?}");
}

//! `strake plan`: its table, its JSON, its page, and the catalogue.
//!
//! Invariant: it changes nothing but FILE of `--html`. Deliberately absent: whether figures are
//! right, which the tests of the models say.

use std::fs;

use serde_json::Value;

use crate::rig::Rig;

const DRIVE: [&str; 3] = ["plan", "--drive", "D5-P5336-61.44"];

fn low(figure: &Value) -> f64 {
    figure["low"].as_f64().unwrap_or_else(|| panic!("{figure}"))
}

#[test]
fn the_shape_loads_and_spare_that_are_asked_about_are_planned() {
    let rig = Rig::new();
    let shape = [
        "--count",
        "24",
        "--level",
        "6",
        "--group-size",
        "12",
        "--spares",
        "1",
    ];
    let loads = ["--load", "seq-write:1M:38", "--load", "rand-read:4K:90"];
    let args = [&DRIVE[..], &shape, &loads].concat();
    let answer = rig.run(&args).ok().json();
    let plan = &answer["plans"][0];
    assert_eq!(
        (&plan["level"], &plan["members"]),
        (&"60".into(), &24.into())
    );
    // 24 drives of 61.44 TB, 10 of 12 for data.
    assert!((plan["usable_bytes"]["high"].as_f64().expect("there") / 1.2288e15 - 1.0).abs() < 1e-6);
    assert_eq!(plan["loads"][1]["load"], "rand-read:4K:90");
    for state in ["optimal", "degraded", "rebuilding"] {
        let rate = &plan["loads"][0][state];
        assert!(low(&rate["bytes_per_s"]) > 1e9, "{rate}");
        assert!(low(&rate["latency_s"]) > 0.0);
        assert!(rate["limits"][0].is_string());
    }
    assert!((low(&plan["rates"][1]["waf"]["raid"]) - 1.2).abs() < 1e-9);
    for number in ["array_lost", "sector_lost", "bytes_lost"] {
        assert!(low(&plan["durability"][number]) > 0.0, "{number}");
    }
    assert_eq!(plan["durability"]["inputs"]["afr"]["source"], "data-sheet");
    assert_eq!(plan["cost"]["drives"], 25);
    let assumed = plan["assumed"].as_array().expect("a list");
    assert!(assumed.contains(&"price_gb".into()), "{plan}");
    let mut command = rig.command();
    let text = rig.run_command(command.args(&args)).ok().out;
    for part in [
        "RAID 60, 24 drives in groups of 12 (10+2)",
        "rand-read:4K:90 degraded",
        "array lost",
        "any sector lost",
        "assumed range",
        "(limit: ",
        "note: unknown of D5-P5336-61.44, so ranges: ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn shapes_stand_side_by_side_and_a_page_has_them() {
    let rig = Rig::new();
    let path = rig.path("plan.html");
    let shapes = [
        "--level",
        "5",
        "--count",
        "9",
        "--compare",
        "6:10",
        "--compare",
        "16+3",
    ];
    let page = [
        "--html",
        path.as_str(),
        "--afr",
        "0.5%..1%",
        "--price-gb",
        "0.1",
    ];
    let args = [&DRIVE[..], &shapes, &page].concat();
    let answer = rig.run(&args).ok().json();
    let plans = answer["plans"].as_array().expect("a list");
    let levels: Vec<&Value> = plans.iter().map(|p| &p["level"]).collect();
    assert_eq!(levels, ["5", "6", "16+3"]);
    let nines = |n: usize| low(&plans[n]["durability"]["nines"]);
    assert!(nines(0) < nines(1) && nines(1) < nines(2), "{answer}");
    assert_eq!(low(&plans[2]["durability"]["inputs"]["afr"]), 0.005);
    let html = fs::read_to_string(&path).expect("written");
    assert!(html.contains("RAID 16+3, 19 drives") && html.contains("<svg"));
    assert_eq!(answer["html"], path);
}

#[test]
fn the_best_shape_is_named_with_the_reason() {
    let rig = Rig::new();
    let search = [
        "--count",
        "24",
        "--best-for",
        "cost",
        "--at-least",
        "tolerance=2",
    ];
    let args = [&DRIVE[..], &search, &["--price-gb", "0.1"]].concat();
    let answer = rig.run(&args).ok().json();
    assert_eq!(answer["plans"][0]["level"], "6");
    let why = answer["why"].as_array().expect("a list");
    assert!(
        why[0].as_str().expect("text").contains("best of"),
        "{answer}"
    );
    assert!(why.len() >= 3, "{answer}");
}

#[test]
fn an_array_of_this_machine_is_planned_as_it_is_and_figures_do_without_a_name() {
    let mut rig = Rig::new();
    let devices = rig.files(5);
    let strip = ["--export", "none", "--strip", "64K"];
    rig.start_daemon();
    rig.create("a", "5", &strip, &devices).ok();
    let plan = rig.run(&["plan", "--like", "a"]).ok().json();
    let plan = &plan["plans"][0];
    assert_eq!((&plan["level"], &plan["members"]), (&"5".into(), &5.into()));
    assert_eq!(plan["strip_bytes"], 65536);
    let with = [
        "plan",
        "--like",
        "a",
        "--drive",
        "D5-P5316-30.72",
        "--level",
        "6",
    ];
    let plan = rig.run(&with).ok().json();
    let plan = &plan["plans"][0];
    assert_eq!(
        (&plan["level"], &plan["drive"]),
        (&"6".into(), &"D5-P5316-30.72".into())
    );
    let figures = [
        "plan",
        "--level",
        "5",
        "--count",
        "4",
        "--capacity",
        "8TB",
        "--media",
        "qlc",
    ];
    let plan = rig
        .run(&[&figures[..], &["--write", "2GB..3GB"]].concat())
        .ok()
        .json();
    let plan = &plan["plans"][0];
    // The write rate is given, the read rate is not.
    let source = |n: usize| &plan["rates"][n]["optimal"]["bytes_per_s"]["source"];
    assert_eq!(
        (source(0), source(1)),
        (&"assumed".into(), &"formula".into())
    );
    assert!(
        !plan["assumed"]
            .as_array()
            .expect("a list")
            .contains(&"write".into())
    );
}

#[test]
fn the_catalogue_is_listed_and_users_add_to_it() {
    let rig = Rig::new();
    let all = rig.run(&["plan", "--drives"]).ok().json();
    let all = all.as_array().expect("a list");
    assert!(all.len() >= 15);
    assert!(
        all.iter()
            .all(|d| d["sources"].as_array().is_some_and(|s| !s.is_empty()))
    );
    let path = rig.path("drives.toml");
    let own = "[source]\nbench = { title = \"our bench\", date = \"2026-11\" }\n[[drive]]\nname = \
               \"OURS-8\"\nmedia = \"tlc\"\ncapacity = { is = \"8TB\", source = \"bench\" }\n";
    fs::write(&path, own).expect("written");
    let more = rig
        .run(&["plan", "--drives", "--drive-file", &path])
        .ok()
        .json();
    assert_eq!(more.as_array().expect("a list").len(), all.len() + 1);
    let plan = [
        "plan",
        "--drive-file",
        &path,
        "--drive",
        "ours-8",
        "--level",
        "1",
        "--count",
        "2",
    ];
    let plan = rig.run(&plan).ok().json();
    assert_eq!(plan["plans"][0]["sources"][0]["source"], "our bench");
}

/// Shapes that cannot be, unknown drives, figures that make no sense, files that are none.
#[test]
fn plans_of_what_cannot_be_are_refused() {
    let rig = Rig::new();
    let five = "--level 5 --count 5";
    let best = "--count 9 --best-for cost";
    let refused = |more: &str, code: i32, error: &str| {
        let words = ["plan", "--drive", "D5-P5336-61.44"];
        let args: Vec<&str> = words.into_iter().chain(more.split(' ')).collect();
        rig.run(&args).refused(code, error)
    };
    for (more, code, error) in [
        ("--level 6 --count 3", 2, "too-few-members"),
        ("--level 6 --count 65", 2, "too-many-members"),
        ("--level 6+4 --count 11", 2, "too-many-members"),
        ("--level 2 --count 5", 2, "level-unknown"),
        ("--level 60 --count 24", 2, "group-size-invalid"),
        (
            "--level 60 --count 24 --group-size 7",
            2,
            "group-size-invalid",
        ),
        ("--level 5", 2, "usage"),
        ("--count 5", 2, "usage"),
        (
            "--count 9 --best-for cost --at-least x=1",
            2,
            "figure-invalid",
        ),
    ] {
        refused(more, code, error);
    }
    for (more, code, error) in [
        ("--strip 3K", 2, "strip-invalid"),
        ("--spares 17", 2, "too-many-spares"),
        ("--load fast", 2, "load-invalid"),
        ("--load rand-read:4K:0", 2, "load-invalid"),
        ("--afr -1", 2, "figure-invalid"),
        ("--afr 200%", 2, "figure-invalid"),
        ("--uber nan", 2, "figure-invalid"),
        ("--read 7..x", 2, "figure-invalid"),
        ("--years 1e9", 2, "figure-invalid"),
        ("--capacity 1TB..2TB", 2, "figure-invalid"),
        ("--compare 6:x", 2, "usage"),
        ("--compare 6:3", 2, "too-few-members"),
        ("--compare 6:8@P5335", 3, "drive-unknown"),
        ("--drive-file /nowhere", 1, "io-error"),
        ("--html /nowhere/a", 1, "io-error"),
        ("--host-file /nowhere", 1, "io-error"),
        ("--at-least nines=5", 2, "usage"),
    ] {
        refused(&format!("{five} {more}"), code, error);
    }
    refused(&format!("{best} --at-least usable=9PB"), 1, "no-shape");
    let run = rig.run(&["plan", "--drive", "D5-P5366", "--level", "5"]);
    let run = run.refused(3, "drive-unknown");
    assert!(run.err.contains("D5-P5336-61.44"), "{run:?}");
    rig.run(&["plan", "--level", "5", "--count", "5"])
        .refused(3, "drive-unknown");
    rig.run(&["plan", "--like", "nothing"])
        .refused(3, "array-not-found");
    let path = rig.path("drives.toml");
    let text = "[[drive]]\nname = \"a\"\nmedia = \"qlc\"\nspeed = 1\n";
    fs::write(&path, text).expect("written");
    let run = rig.run(&["plan", "--drives", "--drive-file", &path]);
    let run = run.refused(2, "catalogue-invalid");
    assert!(
        run.err.contains("line 4") && run.err.contains("speed"),
        "{run:?}"
    );
}

/// Figures of a host file are measured, and the CPU can be what limits.
#[test]
fn a_host_file_makes_the_machine_what_was_measured() {
    let rig = Rig::new();
    let path = rig.path("host.toml");
    let text = |io: &str| {
        format!(
            "[source]\nbench = {{ title = \"bench system\", date = \"2026-11-28\" }}\n\n\
             [host]\ncores = {{ is = 2, source = \"bench\" }}\n\
             request = {{ is = 1e-6, source = \"bench\" }}\n\
             io = {{ is = {io}, source = \"bench\" }}\n"
        )
    };
    fs::write(&path, text("1e-6")).expect("written");
    let more = ["--level", "5", "--count", "5", "--host-file", &path];
    let args = [&DRIVE[..], &more].concat();
    let answer = rig.run(&args).ok().json();
    let plan = &answer["plans"][0];
    assert_eq!(plan["machine"]["io_s"]["source"], "measured");
    assert_eq!(plan["machine"]["byte_s"]["source"], "data-sheet");
    assert_eq!(plan["machine"]["sources"][0]["source"], "bench system");
    // Two cores at 2 µs a read: a million a second, of five that the drives do.
    let read = &plan["rates"][2]["optimal"];
    assert_eq!(read["limits"], serde_json::json!(["cpu"]));
    assert!(
        (low(&read["requests_per_s"]) / 1e6 - 1.0).abs() < 1e-6,
        "{read}"
    );
    assert_eq!(read["requests_per_s"]["source"], "formula");
    let cores = [&args[..], &["--cores", "64"]].concat();
    let answer = rig.run(&cores).ok().json();
    let read = &answer["plans"][0]["rates"][2]["optimal"];
    assert_eq!(read["limits"], serde_json::json!(["drives"]));
    fs::write(&path, text("1")).expect("written");
    let run = rig.run(&args).refused(2, "host-file-invalid");
    for part in [path.as_str(), "line 7", "io of the host"] {
        assert!(run.err.contains(part), "{part}: {run:?}");
    }
}

/// The engine on modelled drives stands beside the formulas: all states, the same each time.
#[test]
fn a_plan_is_simulated_beside_its_formulas() {
    let rig = Rig::new();
    let html = rig.path("simulated.html");
    let shape = ["--level", "5", "--count", "3", "--simulate"];
    let loads = [
        "--load",
        "rand-write:16K:8:20MB",
        "--load",
        "rand-read:4K:8",
    ];
    let args = [&DRIVE[..], &shape, &loads].concat();
    let run = |more: &[&str]| rig.run(&[&args[..], more].concat()).ok().json();
    let answer = run(&["--html", &html]);
    let of = &answer["plans"][0]["simulated"];
    assert_eq!(of["seed"], 1);
    let names: Vec<&Value> = of["states"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|s| &s["state"])
        .collect();
    assert_eq!(names, ["optimal", "degraded", "rebuilding"]);
    let optimal = &of["states"][0];
    // The limit of the load is what it reaches.
    let writes = low(&optimal["loads"][0]["bytes_per_s"]);
    assert!((writes / 20e6 - 1.0).abs() < 0.05, "{optimal}");
    let read = &optimal["loads"][1];
    assert!(low(&read["p50_s"]) <= low(&read["p99_s"]), "{read}");
    assert_eq!(read["p99_s"]["source"], "simulated");
    // 2+1 by read-modify-write or reconstruct-write: data once, parity once, and the log.
    let waf = &optimal["waf"];
    assert!((low(&waf["data"]) - 1.0).abs() < 0.05, "{waf}");
    assert!((low(&waf["parity"]) - 1.0).abs() < 0.05, "{waf}");
    assert!(low(&waf["log"]) > 0.0 && low(&waf["drive"]) > 1.0, "{waf}");
    assert!(low(&of["states"][2]["waf"]["rebuild"]) > 0.0, "{of}");
    assert!(low(&of["rebuild_loaded"]["seconds"]) >= low(&of["rebuild_idle"]["seconds"]));
    assert_eq!(of["cpu"], false);
    let page = fs::read_to_string(&html).expect("written");
    assert!(page.contains("Simulated: the engine on modelled drives"));
    assert_eq!(run(&[])["plans"][0]["simulated"], *of);
    let one_core = run(&["--cores", "1"]);
    let one_core = &one_core["plans"][0]["simulated"];
    assert!(
        one_core["states"][0]["cpu_busy"]
            .as_f64()
            .expect("modelled")
            > 0.0
    );
    let mut command = rig.command();
    let text = rig.run_command(command.args(&args)).ok().out;
    for part in [
        "rand-read:4K:8 degraded",
        "seed 1",
        "p99.9",
        "by formula",
        "in the drives",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let disk = [
        "plan",
        "--drive",
        "HDD-30",
        "--level",
        "5",
        "--count",
        "5",
        "--simulate",
    ];
    let disk = [&disk[..], &["--load", "rand-read:4K:8"]].concat();
    let run = rig.run(&disk).refused(2, "not-simulated");
    assert!(run.err.contains("hard disk"), "{run:?}");
    rig.run(&[&DRIVE[..], &["--level", "5", "--count", "5", "--simulate"]].concat())
        .refused(2, "usage");
}

/// Linux md stands beside: slower writes, slower degraded reads, and no level that it has not.
#[test]
fn the_same_shape_is_compared_with_md() {
    let rig = Rig::new();
    let shape = ["--level", "6", "--count", "9", "--compare", "md"];
    let args = [&DRIVE[..], &shape].concat();
    let answer = rig.run(&args).ok().json();
    let plans = answer["plans"].as_array().expect("a list");
    let engines: Vec<&Value> = plans.iter().map(|p| &p["engine"]).collect();
    assert_eq!(engines, ["strake", "md"]);
    let of = |n: usize, state: &str| plans[n]["rates"][2][state]["requests_per_s"]["high"].as_f64();
    assert!(
        of(1, "degraded") < of(0, "degraded").map(|rate| rate / 10.0),
        "{answer}"
    );
    assert_eq!(
        plans[1]["rates"][2]["degraded"]["limits"],
        serde_json::json!(["engine"])
    );
    let triple = ["--level", "7.3", "--count", "9", "--engine", "md"];
    let run = rig.run(&[&DRIVE[..], &triple].concat());
    let run = run.refused(2, "level-unknown");
    assert!(run.err.contains("7.3"), "{run:?}");
}

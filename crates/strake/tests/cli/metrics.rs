//! Metrics over TCP and in a file; alert rules and dashboard against a real Prometheus.
//!
//! Invariants: no query of `monitoring/` names a metric that the daemon does not have; each returns
//! data here, or stands in a list with the reason why it does not.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::rig::{Rig, has, skipped};

const MIB: u64 = 1 << 20;

/// Alerts that rightly have no data in the test, and why.
const NO_ALERT: &[(&str, &str)] = &[
    ("StrakeArrayFailed", "no array has failed"),
    ("StrakeArrayUnresponsive", "no thread hangs"),
    ("StrakeArrayMissing", "members of all arrays are found"),
    ("StrakeAlertsDropped", "few messages wait"),
    ("StrakeAlertsUnwritten", "the disk is not full"),
    (
        "StrakeRequestErrors",
        "no request is answered with an error",
    ),
    ("StrakeUnreadableBlocks", "no block has lost its content"),
    (
        "StrakeUnreadableListFilling",
        "no block has lost its content",
    ),
    ("StrakeUndecided", "all strips agree"),
    (
        "StrakeLatencyTargetMissed",
        "writes may be quicker than the least target",
    ),
    ("StrakeMemberErrors", "no member has errors"),
    ("StrakeMemberResets", "files are not reset"),
    ("StrakeMemberDoubted", "no member is doubted"),
    ("StrakeMemberFull", "no member lacks space"),
    ("StrakeMemberSlow", "no member is slow"),
    ("StrakeDriveWarning", NVME),
    ("StrakeDriveWorn", NVME),
    ("StrakeDriveHot", NVME),
    ("StrakeJobStalled", "the scrub goes on"),
    ("StrakeRebuildPaused", "no rebuild is paused"),
    ("StrakeScrubOverdue", "the only scrub ended just now"),
    ("StrakeScrubFound", "the scrub found nothing"),
    ("StrakeDaemonDown", "the daemon answers"),
    ("StrakeTextfileStale", "a metric of the node exporter"),
    ("StrakeLogDropped", "the log is read"),
];
/// Metrics that the daemon of the test cannot have: a query of nothing else has no data.
const NO_METRIC: &[&str] = &[
    "strake_member_percentage_used",
    "strake_member_temperature_celsius",
    "strake_member_drive_warnings",
    "strake_member_media_errors_total",
];
const NVME: &str = "needs NVMe drives, the members of the test are files";

fn monitoring(file: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../../monitoring").join(file)
}

/// A port of the loopback address that is free now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it has an address").port()
}

/// Starts the daemon with this section of its configuration.
fn start(rig: &mut Rig, metrics: &str) {
    let path = rig.path("strake.toml");
    fs::write(&path, format!("[metrics]\n{metrics}\n")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
    rig.start_daemon_with(&["--config", &path]);
}

/// What is answered at a port: head and body. The connection is closed behind it.
fn ask(port: u16, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let patience = Some(Duration::from_secs(60));
    stream.set_read_timeout(patience).expect("set");
    let request = format!("{request} HTTP/1.0\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("asked");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answered");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

fn listens(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

fn count(events: &[Value], name: &str) -> usize {
    events.iter().filter(|e| e["event"] == name).count()
}

#[test]
fn the_port_has_metrics_and_nothing_else_and_silent_clients_do_not_keep_it() {
    let mut rig = Rig::new();
    let port = free_port();
    start(&mut rig, &format!("listen = \"127.0.0.1:{port}\""));
    rig.until("the port", || listens(port));
    let (head, body) = ask(port, "GET /metrics");
    assert!(
        head.contains(" 200 ") && head.contains("version=0.0.4"),
        "{head}"
    );
    assert!(body.contains("strake_build_info{version=\""), "{body}");
    let (head, body) = ask(port, "HEAD /metrics");
    assert!(head.contains(" 200 ") && body.is_empty(), "{head} {body}");
    for (request, status) in [
        ("GET /v1/arrays", "404"),
        ("GET /v1/version", "404"),
        ("GET /openapi.json", "404"),
        ("POST /v1/arrays", "404"),
        ("GET /metrics/", "404"),
        ("POST /metrics", "405"),
        ("DELETE /metrics", "405"),
    ] {
        let (head, _) = ask(port, request);
        assert!(head.contains(&format!(" {status} ")), "{request}: {head}");
    }
    // More than it has places for.
    let begun = Instant::now();
    let mut silent: Vec<TcpStream> = (0..24)
        .map(|_| TcpStream::connect(("127.0.0.1", port)).expect("it listens"))
        .collect();
    let (head, _) = ask(port, "GET /metrics");
    assert!(head.contains(" 200 "), "{head}");
    assert!(begun.elapsed() < Duration::from_secs(60), "{begun:?}");
    // Those that it had before were closed.
    let patience = Some(Duration::from_secs(60));
    silent[0].set_read_timeout(patience).expect("set");
    let mut rest = Vec::new();
    silent[0].read_to_end(&mut rest).expect("closed");
    rig.stop_daemon();
    assert!(!listens(port));
}

#[test]
fn a_port_that_is_taken_costs_an_event_and_is_tried_again() {
    let mut rig = Rig::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("it has an address").port();
    start(&mut rig, &format!("listen = \"127.0.0.1:{port}\""));
    let files = rig.files(3);
    rig.create("data", "5", &["--export", "none"], &files).ok();
    assert_eq!(rig.show("data")["state"], "optimal");
    rig.until("the event", || {
        count(&rig.events(), "metrics_not_served") > 0
    });
    let events = rig.events();
    let event = events.iter().find(|e| e["event"] == "metrics_not_served");
    let cause = event.expect("it was seen")["cause"]
        .as_str()
        .expect("a cause");
    assert!(cause.contains(&format!("127.0.0.1:{port}: ")), "{cause}");
    drop(taken);
    rig.until("the port", || listens(port));
    rig.until("the event", || {
        count(&rig.events(), "metrics_served_again") > 0
    });
    let events = rig.events();
    assert_eq!(count(&events, "metrics_not_served"), 1, "{events:?}");
    assert_eq!(count(&events, "metrics_served_again"), 1, "{events:?}");
}

/// The value of a line of metrics, by all before the value.
fn value<'a>(text: &'a str, series: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    lines.find(|(at, _)| *at == series).map(|(_, value)| value)
}

#[test]
fn the_file_has_what_the_api_has_and_is_gone_when_the_daemon_has_ended() {
    let mut rig = Rig::new();
    let folder = rig.path("collector");
    let file = format!("{folder}/strake.prom");
    start(
        &mut rig,
        &format!("textfile = \"{file}\"\ntextfile_interval = \"1s\""),
    );
    rig.until("the event", || {
        count(&rig.events(), "metrics_not_served") > 0
    });
    let files = rig.files(3);
    rig.create("data", "5", &["--export", "none"], &files).ok();
    fs::create_dir(&folder).expect("made");
    let optimal = "strake_array_state{array=\"data\",state=\"optimal\"}";
    let read = || fs::read_to_string(&file).unwrap_or_default();
    rig.until("the file", || value(&read(), optimal) == Some("1"));
    let mode = fs::metadata(&file)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o644);
    let entries: Vec<_> = fs::read_dir(&folder).expect("it is there").collect();
    assert!(entries.len() <= 2, "{entries:?}");
    let families = |text: &str| -> Vec<String> {
        let types = text.lines().filter_map(|l| l.strip_prefix("# TYPE "));
        types.map(str::to_owned).collect()
    };
    // The file is of a moment before, and what is recent is forgotten where the machine is slow.
    rig.until("the file to have what the API has", || {
        families(&read()) == families(&rig.ask("GET", "/metrics"))
    });
    rig.until("the event", || {
        count(&rig.events(), "metrics_served_again") > 0
    });
    assert_eq!(count(&rig.events(), "metrics_not_served"), 1);
    rig.stop_daemon();
    assert_eq!(fs::read_dir(&folder).expect("it is there").count(), 0);
}

#[test]
fn each_slot_has_its_state_and_a_stopped_array_its_own() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(4);
    rig.create("data", "6", &["--export", "none"], &files).ok();
    let metrics = || rig.ask("GET", "/metrics");
    let array = |state: &str| format!("strake_array_state{{array=\"data\",state=\"{state}\"}}");
    let member = |slot: usize, device: &str, state: &str| {
        format!(
            "strake_member_state{{array=\"data\",slot=\"{slot}\",device=\"{device}\",\
             state=\"{state}\"}}"
        )
    };
    rig.until("the optimal state", || {
        value(&metrics(), &array("optimal")) == Some("1")
    });
    let text = metrics();
    assert_eq!(value(&text, &array("stopped")), Some("0"));
    for (slot, file) in files.iter().enumerate() {
        assert_eq!(value(&text, &member(slot, file, "in_sync")), Some("1"));
        assert_eq!(value(&text, &member(slot, file, "failed")), Some("0"));
    }
    let regions = |text: &str, state: &str| -> u64 {
        let series = format!("strake_regions{{array=\"data\",state=\"{state}\"}}");
        value(text, &series).expect("a count").parse().expect("one")
    };
    assert!(regions(&text, "unwritten") > 0, "{text}");
    assert_eq!(regions(&text, "need_sync"), 0);
    rig.run(&["fail", "data", "1"]);
    rig.until("the degraded state", || {
        value(&metrics(), &array("degraded")) == Some("1")
    });
    let text = metrics();
    assert_eq!(value(&text, &array("optimal")), Some("0"));
    assert_eq!(value(&text, &member(1, "", "failed")), Some("1"), "{text}");
    rig.run(&["remove", "data", "1"]);
    rig.until("the vacant slot", || {
        value(&metrics(), &member(1, "", "missing")) == Some("1")
    });
    rig.run(&["stop", "data"]).ok();
    rig.until("the stopped state", || {
        value(&metrics(), &array("stopped")) == Some("1")
    });
    let text = metrics();
    assert_eq!(value(&text, &array("degraded")), Some("0"));
    assert_eq!(value(&text, &member(0, &files[0], "in_sync")), Some("1"));
    assert_eq!(value(&text, &member(1, "", "missing")), Some("1"), "{text}");
    assert_eq!(value(&text, "strake_size_bytes{array=\"data\"}"), None);
    rig.run(&["destroy", "data", "--yes"]).ok();
    rig.until("no state", || {
        value(&metrics(), &array("stopped")).is_none()
    });
}

/// Requests of users are counted once each, with how long they took.
#[test]
fn reads_and_writes_of_users_have_histograms_that_count_each_once() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(3);
    rig.create("data", "5", &["--export", "nbd"], &files).ok();
    let commands: Vec<String> = (0..32)
        .flat_map(|n| {
            let at = n * MIB / 4;
            [
                format!("write -P 7 {at} 64k"),
                format!("read -P 7 {at} 64k"),
            ]
        })
        .collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    if rig.qemu_io("data", &commands).is_none() {
        return;
    }
    // Threads of an array tell once in a while.
    let mut text = String::new();
    rig.until("all to be told of", || {
        text = rig.ask("GET", "/metrics");
        let told = |series: &str| value(&text, series)?.parse::<f64>().ok();
        let of = |what: &str| {
            told(&format!(
                "strake_{what}_latency_seconds_count{{array=\"data\"}}"
            ))
        };
        of("read") >= Some(32.0) && of("write") >= Some(32.0)
    });
    for (what, total) in [
        ("read", "strake_reads_total"),
        ("write", "strake_writes_total"),
    ] {
        let number = |series: &str| -> f64 {
            let found = value(&text, series);
            let found = found.unwrap_or_else(|| panic!("{series} in {text}"));
            found.parse().expect("a number")
        };
        let family = format!("strake_{what}_latency_seconds");
        let all = number(&format!("{family}_count{{array=\"data\"}}"));
        assert!(all >= 32.0, "{family}: {all}");
        assert_eq!(all, number(&format!("{total}{{array=\"data\"}}")));
        let most = format!("{family}_bucket{{array=\"data\",le=\"+Inf\"}}");
        assert_eq!(number(&most), all);
        let sum = number(&format!("{family}_sum{{array=\"data\"}}"));
        assert!(sum > 0.0 && sum < 60.0 * all, "{family}: {sum}");
        let quick = format!("{family}_bucket{{array=\"data\",le=\"17.179869184\"}}");
        assert_eq!(number(&quick), all, "none took so long");
    }
    let logged = value(&text, "strake_log_written_bytes_total{array=\"data\"}");
    let logged: u64 = logged.expect("it has a log").parse().expect("a number");
    assert!(logged > 0, "partial stripes are logged");
}

#[test]
fn the_alert_rules_fire_when_they_should_and_not_when_they_should_not() {
    if !has("promtool") {
        return skipped("promtool is not installed");
    }
    for (verb, files) in [
        ("check", &["strake.rules.yml"][..]),
        (
            "test",
            &["strake.rules.test.yml", "strake.rules.days.test.yml"],
        ),
    ] {
        let mut promtool = Command::new("promtool");
        promtool.args([verb, "rules"]);
        promtool.args(files.iter().map(|file| monitoring(file)));
        let output = promtool.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
}

/// Names of metrics of ours in a query.
fn metrics_of(query: &str) -> Vec<&str> {
    let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = query.split(|c| !name(c));
    words.filter(|w| w.starts_with("strake_")).collect()
}

/// The queries of the dashboard, as Grafana would send them, and the titles of their panels.
fn dashboard() -> Vec<(String, String)> {
    let text = fs::read_to_string(monitoring("strake-dashboard.json")).expect("it is there");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let panels = json["panels"].as_array().expect("panels");
    let mut queries = Vec::new();
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().expect("a query");
            let query = query
                .replace("$instance", ".*")
                .replace("$array", ".*")
                .replace("$__rate_interval", "1m");
            assert!(!query.contains('$'), "{title}: {query}");
            queries.push((title.to_owned(), query));
        }
    }
    queries
}

#[test]
fn the_dashboard_is_one_that_grafana_takes_and_has_no_metric_that_the_daemon_has_not() {
    let text = fs::read_to_string(monitoring("strake-dashboard.json")).expect("it is there");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    assert!(
        json["schemaVersion"].as_u64() >= Some(36),
        "of Grafana 9 on"
    );
    assert!(json["uid"].is_string() && json["id"].is_null());
    let panels = json["panels"].as_array().expect("panels");
    let mut ids = std::collections::BTreeSet::new();
    let mut taken = std::collections::BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{panel}");
        let at = |key: &str| panel["gridPos"][key].as_u64().expect("a place");
        assert!(at("x") + at("w") <= 24, "{panel}");
        for (x, y) in (0..at("w")).flat_map(|x| (0..at("h")).map(move |y| (x, y))) {
            assert!(taken.insert((at("x") + x, at("y") + y)), "{panel}");
        }
        if panel["type"] == "row" {
            continue;
        }
        let source = &panel["datasource"]["uid"];
        assert_eq!(source, "${datasource}", "{panel}");
        assert!(panel["description"].is_string(), "{panel}");
        let mut names = std::collections::BTreeSet::new();
        for target in panel["targets"].as_array().expect("targets") {
            assert!(names.insert(target["refId"].as_str().expect("a name")));
            assert_eq!(&target["datasource"]["uid"], source);
        }
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let known = here.join("../../docs/reference/metrics.md");
    let known = fs::read_to_string(known).expect("it is there");
    let rules = fs::read_to_string(monitoring("strake.rules.yml")).expect("it is there");
    let queries = dashboard();
    assert!(queries.len() > 40, "{queries:?}");
    let variables = json["templating"]["list"].to_string();
    let all = queries.iter().map(|(_, query)| query.as_str());
    for query in all.chain([rules.as_str(), &variables]) {
        for metric in metrics_of(query) {
            let family = metric.trim_end_matches("_bucket");
            assert!(
                known.contains(&format!("* `{family}` (")),
                "{metric}: {query}"
            );
        }
    }
}

/// A Prometheus of its own that scrapes once in two seconds.
struct Prometheus {
    child: Child,
    port: u16,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It keeps nothing that is worth an orderly end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    fn start(rig: &Rig, scraped: u16) -> Prometheus {
        let port = free_port();
        let rules = monitoring("strake.rules.yml");
        let rules = rules.canonicalize().expect("it is there");
        let config = format!(
            "global:\n  scrape_interval: 2s\n  scrape_timeout: 2s\n  evaluation_interval: 1s\n\
             rule_files:\n  - {}\n\
             scrape_configs:\n  - job_name: strake\n    static_configs:\n      \
             - targets: ['127.0.0.1:{scraped}']\n",
            rules.display()
        );
        let path = rig.path("prometheus.yml");
        fs::write(&path, config).expect("written");
        let log = fs::File::create(rig.path("prometheus.log")).expect("made");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={path}"))
            .arg(format!("--storage.tsdb.path={}", rig.path("prometheus")))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("it runs");
        Prometheus { child, port }
    }

    fn get(&self, path: &str) -> Value {
        let (head, body) = ask(self.port, &format!("GET {path}"));
        assert!(head.contains(" 200 "), "{path}: {head} {body}");
        serde_json::from_str(&body).expect("JSON")
    }

    /// The values that a query has now.
    fn query(&self, query: &str) -> Vec<f64> {
        let plain = |b: u8| b.is_ascii_alphanumeric();
        let encoded = query.bytes().map(|b| match plain(b) {
            true => char::from(b).to_string(),
            false => format!("%{b:02X}"),
        });
        let query: String = encoded.collect();
        let json = self.get(&format!("/api/v1/query?query={query}"));
        let found = json["data"]["result"].as_array().expect("a vector").iter();
        let value = |one: &Value| one["value"][1].as_str().expect("a value").parse();
        found.map(|one| value(one).expect("a number")).collect()
    }
}

/// An array under load, a degraded one, one with a scrub that takes long.
fn arrays(rig: &Rig) -> bool {
    let files = rig.files_called("data", 4);
    rig.create("data", "5", &["--export", "nbd"], &files).ok();
    rig.run(&["set", "data", "latency_target=50us"]).ok();
    if !load(rig) {
        return false;
    }
    rig.run(&["scrub", "data", "start", "--wait"]).ok();
    let files = rig.files_called("weak", 3);
    rig.create("weak", "5", &["--export", "none"], &files).ok();
    rig.run(&["fail", "weak", "1"]);
    let files: Vec<String> = (0..3)
        .map(|n| rig.file(&format!("busy{n}"), 256 << 30))
        .collect();
    let options = ["--export", "none", "--init", "assume-clean"];
    rig.create("busy", "5", &options, &files).ok();
    rig.run(&["set", "busy", "scrub_priority=50"]).ok();
    rig.run(&["scrub", "busy", "start"]).ok();
    true
}

/// Some reads and writes.
fn load(rig: &Rig) -> bool {
    let commands: Vec<String> = (0..16)
        .flat_map(|n| {
            let at = n * MIB / 4;
            [
                format!("write -P 7 {at} 16k"),
                format!("read -P 7 {at} 16k"),
            ]
        })
        .collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    rig.qemu_io("data", &commands).is_some()
}

#[test]
fn each_query_of_dashboard_and_alerts_returns_data_of_a_prometheus_that_scrapes_a_daemon() {
    if !has("prometheus") {
        return skipped("prometheus is not installed");
    }
    let mut rig = Rig::new();
    let port = free_port();
    let channel = "[[alerts]]\nname = \"ops\"\ngroup = \"1s\"\nexec.command = [\"/bin/false\"]";
    start(
        &mut rig,
        &format!("listen = \"127.0.0.1:{port}\"\n{channel}"),
    );
    if !arrays(&rig) {
        return;
    }
    let prometheus = Prometheus::start(&rig, port);
    // It listens before it answers queries.
    rig.until("Prometheus", || {
        listens(prometheus.port) && ask(prometheus.port, "GET /-/ready").0.contains(" 200 ")
    });
    rig.until("some scrapes under load", || {
        assert!(load(&rig), "it ran before");
        let scrapes = "count_over_time(strake_build_info[1m]) >= 4";
        !prometheus.query(scrapes).is_empty()
    });
    rig.until("the daemon to be scraped", || {
        prometheus.query("up{job=\"strake\"}") == [1.0]
    });
    for (panel, query) in dashboard() {
        let of = metrics_of(&query);
        if !of.is_empty() && of.iter().all(|metric| NO_METRIC.contains(metric)) {
            let found = prometheus.query(&query);
            assert!(found.is_empty(), "{query}: {NVME}");
            continue;
        }
        rig.until(&format!("data of {panel}: {query}"), || {
            let found = prometheus.query(&query);
            found.iter().any(|value| value.is_finite())
        });
    }
    let groups = prometheus.get("/api/v1/rules");
    let groups = groups["data"]["groups"].as_array().expect("groups");
    let rules = groups
        .iter()
        .flat_map(|g| g["rules"].as_array().expect("rules"));
    let mut seen = 0;
    for rule in rules {
        let (name, query) = (&rule["name"], rule["query"].as_str().expect("a query"));
        assert!(rule["lastError"].is_null(), "{rule}");
        let reason = NO_ALERT.iter().find(|(alert, _)| name == alert);
        match reason {
            Some((_, _why)) => drop(prometheus.query(query)),
            None => rig.until(&format!("data of {name}"), || {
                !prometheus.query(query).is_empty()
            }),
        }
        seen += 1;
    }
    assert!(seen > 20, "{groups:?}");
    for (alert, why) in NO_ALERT {
        let there = groups.iter().any(|g| g.to_string().contains(alert));
        assert!(there, "{alert} is no alert any more ({why})");
    }
}

//! `strake console`, asked over real HTTP as a browser asks, and as others than its page would.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::rig::{self, Rig};

const PAGE: &[&str] = &["accept: text/html"];

/// A running console.
struct Console {
    child: Child,
    out: BufReader<ChildStdout>,
    port: u16,
    /// The path below which all is served, without the last `/`.
    root: String,
    token: String,
}

impl Drop for Console {
    fn drop(&mut self) {
        // One that has ended takes no signal.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Console {
    fn start(rig: &Rig, options: &[&str]) -> Console {
        let mut command = rig.command();
        command.args(["--json", "console"]).args(options);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("runs");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        out.read_line(&mut line).expect("it says where it is");
        let said: Value = serde_json::from_str(&line).expect("JSON");
        let url = said["url"].as_str().expect("a link");
        let rest = url.strip_prefix("http://127.0.0.1:").expect("the loopback");
        let (place, token) = rest.split_once("/?token=").expect("a token");
        assert_eq!(token.len(), 64);
        let (port, root) = place.split_once('/').expect("a path");
        assert_eq!(root.len(), 32, "{url}");
        Console {
            child,
            out,
            port: port.parse().expect("a port"),
            root: format!("/{root}"),
            token: token.to_owned(),
        }
    }

    /// A connection with a request, below the path of the page, whose answer was not read.
    fn asks(&self, method: &str, path: &str, headers: &[&str], body: &str) -> TcpStream {
        self.asks_at(&self.root, method, path, headers, body)
    }

    fn asks_at(
        &self,
        root: &str,
        method: &str,
        path: &str,
        headers: &[&str],
        body: &str,
    ) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        let patience = Some(Duration::from_secs(60));
        stream.set_read_timeout(patience).expect("works");
        let mut head = format!("{method} {root}{path} HTTP/1.1\r\nconnection: close\r\n");
        if !headers.iter().any(|header| header.starts_with("host:")) {
            head += &format!("host: 127.0.0.1:{}\r\n", self.port);
        }
        for header in headers {
            head += &format!("{header}\r\n");
        }
        let length = body.len();
        let request = format!("{head}content-length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).expect("asks");
        stream
    }

    /// Head and body of an answer.
    fn ask(&self, method: &str, path: &str, headers: &[&str], body: &str) -> (String, String) {
        Console::answer(self.asks(method, path, headers, body))
    }

    fn answer(mut stream: TcpStream) -> (String, String) {
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("answers");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        (head.to_ascii_lowercase(), body.to_owned())
    }

    fn get(&self, path: &str, headers: &[&str]) -> (String, String) {
        self.ask("GET", path, headers, "")
    }

    /// Opens the link: the header with the cookie of its session.
    fn enter(&self) -> String {
        let (head, _) = self.get(&format!("/?token={}", self.token), PAGE);
        assert!(head.starts_with("http/1.1 303"), "{head}");
        let location = format!("\nlocation: {}/\r", self.root);
        assert!(head.contains(&location), "{head}");
        assert!(!head.contains(&self.token), "{head}");
        let cookie = head.lines().find_map(|l| l.strip_prefix("set-cookie: "));
        let cookie = cookie.expect("a cookie");
        // Servers of other users at other ports of this host do not get it.
        let path = format!("path={}/;", self.root);
        for part in ["httponly", "samesite=strict", &path] {
            assert!(cookie.contains(part), "{cookie}");
        }
        format!("cookie: {}", cookie.split(';').next().expect("a value"))
    }

    fn origin(&self) -> String {
        format!("origin: http://127.0.0.1:{}", self.port)
    }
}

/// Asserts the status and the code of a failure in the daemon's shape.
fn refused(answer: &(String, String), status: u16, code: &str) {
    let (head, body) = answer;
    assert!(
        head.starts_with(&format!("http/1.1 {status}")),
        "{answer:?}"
    );
    let failure: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(failure["code"], code, "{answer:?}");
    for field in ["found", "cure"] {
        let text = failure[field].as_str().unwrap_or_default();
        assert!(text.len() > 3, "{answer:?}");
    }
}

#[test]
fn a_link_opens_the_page_in_one_browser_once() {
    let rig = Rig::new();
    let console = Console::start(&rig, &[]);
    let link = format!("/?token={}", console.token);
    // Without it there is neither page nor API.
    for path in ["/", "/index.html", "/v1/arrays", "/nothing"] {
        refused(&console.get(path, &[]), 401, "no-session");
    }
    let wrong = console.token.replace(&console.token[..1], "-");
    let answer = console.get(&format!("/?token={wrong}"), &[]);
    refused(&answer, 401, "link-not-valid");
    // Looking at where it leads does not use it.
    let (head, body) = console.ask("HEAD", &link, &[], "");
    assert!(head.starts_with("http/1.1 401"), "{head}");
    assert_eq!(body, "");
    let cookie = console.enter();
    let (head, body) = console.get("/", &[&cookie]);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(body.contains("<title>"), "{body}");
    for header in [
        "content-type: text/html; charset=utf-8",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "cache-control: no-store",
        "frame-ancestors 'none'",
        "default-src 'self'",
    ] {
        assert!(head.contains(header), "{header}: {head}");
    }
    refused(
        &console.get("/../Cargo.toml", &[&cookie]),
        404,
        "no-such-route",
    );
    refused(
        &console.ask("POST", "/", &[&cookie], ""),
        405,
        "bad-request",
    );
    // The same browser may open the link again, another not.
    let (head, _) = console.get(&link, &[&cookie]);
    assert!(head.starts_with("http/1.1 303"), "{head}");
    let answer = console.get(&link, &[]);
    refused(&answer, 401, "link-not-valid");
    assert!(answer.1.contains("used already"), "{answer:?}");
    let (head, body) = console.get(&link, PAGE);
    assert!(head.starts_with("http/1.1 401"), "{head}");
    assert!(head.contains("content-type: text/html"), "{head}");
    assert!(body.contains("strake console again"), "{body}");
    // The cookie is of no use elsewhere: a server that got it would have to know the path as well.
    for path in ["/", "/v1/arrays", &link] {
        let answer = Console::answer(console.asks_at("", "GET", path, &[&cookie], ""));
        refused(&answer, 401, "no-session");
    }
    let forged = cookie.replacen('=', "=0", 1);
    refused(&console.get("/", &[&forged]), 401, "no-session");
    // A second console has a session of its own.
    let other = Console::start(&rig, &[]);
    other.enter();
    refused(&other.get("/", &[&cookie]), 401, "no-session");
}

#[test]
fn a_link_that_is_too_old_says_so() {
    let rig = Rig::new();
    let console = Console::start(&rig, &["--expires", "1s"]);
    std::thread::sleep(Duration::from_millis(1100));
    let answer = console.get(&format!("/?token={}", console.token), &[]);
    refused(&answer, 401, "link-not-valid");
    assert!(answer.1.contains("could be used for 1 s"), "{answer:?}");
}

#[test]
fn requests_of_other_pages_and_for_other_names_are_refused() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let console = Console::start(&rig, &[]);
    let (cookie, origin) = (console.enter(), console.origin());
    let with = |more: &str| console.get("/v1/version", &[&cookie, more]);
    // DNS that a page of another name points at 127.0.0.1.
    for host in [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "",
    ] {
        let answer = with(&format!("host: {host}"));
        refused(&answer, 403, "foreign-request");
    }
    refused(&with("sec-fetch-site: cross-site"), 403, "foreign-request");
    // Pages of other ports of this host are of the same site.
    refused(&with("sec-fetch-site: same-site"), 403, "foreign-request");
    refused(&with("origin: http://127.0.0.1:1"), 403, "foreign-request");
    refused(&with("origin: null"), 403, "foreign-request");
    for fine in [
        "host: localhost:9090",
        "sec-fetch-site: same-origin",
        &origin,
    ] {
        let (head, body) = with(fine);
        assert!(head.starts_with("http/1.1 200"), "{fine}: {head} {body}");
    }
    // A change has to prove where it comes from.
    let json = "content-type: application/json";
    let post = |more: &[&str]| {
        let headers = [&[cookie.as_str(), json][..], more].concat();
        console.ask(
            "POST",
            "/v1/pools/nothing/add",
            &headers,
            "{\"devices\":[]}",
        )
    };
    refused(&post(&[]), 403, "foreign-request");
    refused(&post(&["sec-fetch-site: none"]), 403, "foreign-request");
    refused(
        &post(&["origin: http://evil.example"]),
        403,
        "foreign-request",
    );
    // The daemon's own answer, whole.
    refused(&post(&[&origin]), 404, "pool-not-found");
}

#[test]
fn what_the_page_asks_goes_to_the_daemon_and_back() {
    let mut rig = Rig::new();
    let console = Console::start(&rig, &[]);
    let (cookie, origin) = (console.enter(), console.origin());
    let json = "content-type: application/json";
    refused(&console.get("/v1/arrays", &[&cookie]), 503, "no-daemon");
    rig.start_daemon();
    let devices = serde_json::to_string(&rig.files(2)).expect("JSON");
    let asked =
        format!("{{\"name\":\"data\",\"level\":\"1\",\"export\":\"none\",\"devices\":{devices}}}");
    let headers = [cookie.as_str(), &origin, json];
    let (head, body) = console.ask("POST", "/v1/arrays", &headers, &asked);
    assert!(head.starts_with("http/1.1 201"), "{head} {body}");
    let again = console.ask("POST", "/v1/arrays", &headers, &asked);
    refused(&again, 409, "name-exists");
    let (head, _) = console.ask("PUT", "/v1/arrays", &headers, "");
    assert!(head.starts_with("http/1.1 405"), "{head}");
    assert!(head.contains("\nallow: "), "{head}");
    let long = "x".repeat((2 << 20) + 1);
    let answer = console.ask("POST", "/v1/arrays", &headers, &long);
    refused(&answer, 413, "bad-request");
    // Events flow while the answer goes on.
    let stream = console.asks("GET", "/v1/events/stream?array=data", &[&cookie], "");
    let mut lines = BufReader::new(stream).lines();
    let mut until = |word: &str| {
        let found = lines
            .by_ref()
            .find(|l| l.as_ref().expect("goes on").contains(word));
        found.expect("it comes").expect("it is read")
    };
    until("text/event-stream");
    until("\"event\":\"created\"");
    rig.run(&["set", "data", "rebuild_priority=7"]).ok();
    until("\"event\":\"settings_changed\"");
    drop(lines);
    let followers = || {
        let metrics = rig.ask("GET", "/metrics");
        let line = |l: &str| l.strip_prefix("strake_event_followers ").map(str::to_owned);
        metrics.lines().find_map(line)
    };
    rig.until("the page that hung up to follow no longer", || {
        followers().as_deref() == Some("0")
    });
    // A daemon that goes takes no console with it.
    rig.stop_daemon();
    refused(&console.get("/v1/arrays", &[&cookie]), 503, "no-daemon");
    rig.start_daemon();
    let (head, _) = console.get("/v1/arrays", &[&cookie]);
    assert!(head.starts_with("http/1.1 200"), "{head}");
}

#[test]
fn a_daemon_that_hangs_is_noticed() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let console = Console::start(&rig, &[]);
    let cookie = console.enter();
    let daemon = i32::try_from(rig.daemon_pid()).expect("a pid");
    let daemon = rustix::process::Pid::from_raw(daemon).expect("a pid");
    let signal = |signal| rustix::process::kill_process(daemon, signal).expect("sent");
    signal(rustix::process::Signal::STOP);
    // Within the read timeout of this client, 60 s.
    let answer = console.get("/v1/arrays", &[&cookie]);
    signal(rustix::process::Signal::CONT);
    refused(&answer, 504, "daemon-silent");
}

#[test]
fn a_port_that_is_taken_is_named_with_a_way_on() {
    let rig = Rig::new();
    let taken = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = taken.local_addr().expect("works").port().to_string();
    let run = rig.run(&["console", "--port", &port]);
    assert!(
        run.err.contains(&format!("port {port} of 127.0.0.1")),
        "{run:?}"
    );
    assert!(run.err.contains("--port"), "{run:?}");
    run.refused(4, "port-in-use");
    drop(taken);
    let console = Console::start(&rig, &["--port", &port]);
    assert_eq!(console.port.to_string(), port);
}

#[test]
fn clients_that_say_nothing_keep_no_page_out() {
    let rig = Rig::new();
    let console = Console::start(&rig, &[]);
    let cookie = console.enter();
    let connect = |_| TcpStream::connect(("127.0.0.1", console.port)).expect("it listens");
    // A busy machine may be late once.
    let soon = (0..3).any(|_| {
        let silent: Vec<TcpStream> = (0..80).map(connect).collect();
        let begun = Instant::now();
        let (head, _) = console.get("/", &[&cookie]);
        assert!(head.starts_with("http/1.1 200"), "{head}");
        let took = begun.elapsed();
        drop(silent);
        // Less than they may take for the head of a request, 15 s.
        took < Duration::from_secs(12)
    });
    assert!(soon, "it waits for them");
}

#[test]
fn an_interrupt_ends_the_console_at_once_also_while_a_page_follows() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let mut console = Console::start(&rig, &[]);
    let cookie = console.enter();
    let mut stream = console.asks("GET", "/v1/events/stream", &[&cookie], "");
    let mut answer = [0; 15];
    stream.read_exact(&mut answer).expect("answers");
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    let begun = Instant::now();
    let pid = rustix::process::Pid::from_child(&console.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("sent");
    let ended = console.child.wait().expect("it ends");
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{begun:?}");
    // It said the link, and nothing else.
    let mut rest = String::new();
    console.out.read_to_string(&mut rest).expect("read");
    assert_eq!(rest, "");
}

#[test]
fn the_console_listens_on_the_loopback_alone() {
    let rig = Rig::new();
    let console = Console::start(&rig, &[]);
    let table = std::fs::read_to_string(format!("/proc/{}/net/tcp", console.child.id()));
    let Ok(table) = table else {
        rig::skipped("no /proc/net/tcp");
        return;
    };
    let port = format!(":{:04X} ", console.port);
    let ours: Vec<&str> = table.lines().filter(|l| l.contains(&port)).collect();
    let listening = ours.iter().filter(|l| l.contains(" 0A "));
    let listening: Vec<_> = listening.collect();
    assert_eq!(listening.len(), 1, "{ours:?}");
    assert!(
        listening[0].contains(&format!("0100007F{port}")),
        "{ours:?}"
    );
}

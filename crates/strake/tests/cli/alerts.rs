//! Alerts against real servers and programs that fail in every way: a mail server that demands TLS
//! and a login, an HTTP server, programs; and what outlives a daemon that is killed.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::hung::{Freezer, within};
use crate::rig::{Rig, is_root, skipped};

const NBD: &[&str] = &["--export", "nbd"];

impl Rig {
    /// Writes the daemon's configuration.
    fn configure(&self, text: &str) {
        fs::create_dir_all(self.dir()).expect("made");
        let file = self.dir().join("strake.toml");
        fs::write(&file, text).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("ours");
    }
    /// A file with these bits.
    fn file_of(&self, name: &str, text: &str, mode: u32) -> String {
        let path = self.path(name);
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
        path
    }
    /// The only channel.
    fn channel(&self) -> Value {
        let status = self.run(&["alert", "status"]);
        status.json()["channels"][0].clone()
    }
    /// The error of a test of the only channel.
    fn test_fails(&self) -> String {
        self.fails(&["alert", "test"])
    }

    fn fails(&self, args: &[&str]) -> String {
        let run = self.run(args);
        assert_eq!(run.code, 1, "{run:?}");
        let error = run.json()["channels"][0]["error"].clone();
        error
            .as_str()
            .unwrap_or_else(|| panic!("{run:?}"))
            .to_owned()
    }
}

/// A process that ends with its test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Debian's own, which has the packages of Debian.
const PYTHON: &str = "/usr/bin/python3";

/// The mail server, and its folder; `None` where it cannot be had.
fn mail_server(rig: &Rig, tls: &str) -> Option<(Server, PathBuf)> {
    let has = Command::new(PYTHON)
        .args(["-c", "import aiosmtpd"])
        .output();
    if !has.is_ok_and(|output| output.status.success()) {
        skipped("python3-aiosmtpd is not installed");
        return None;
    }
    let folder = PathBuf::from(rig.path("mail"));
    fs::create_dir(&folder).expect("made");
    certificate(&folder);
    fs::write(folder.join("smtp.py"), include_str!("smtp.py")).expect("written");
    let child = Command::new(PYTHON)
        .arg(folder.join("smtp.py"))
        .arg(&folder)
        .arg(tls)
        .stdin(Stdio::null())
        .spawn()
        .expect("it is there");
    let server = Server(child);
    rig.until("the mail server", || folder.join("port").exists());
    Some((server, folder))
}

/// `cert.pem` and `key.pem` of localhost.
fn certificate(folder: &Path) {
    let config = "[req]\ndistinguished_name=dn\nx509_extensions=v3\nprompt=no\n[dn]\n\
                  CN=localhost\n[v3]\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n\
                  basicConstraints=critical,CA:FALSE\n";
    fs::write(folder.join("openssl.cnf"), config).expect("written");
    let made = Command::new("openssl")
        .current_dir(folder)
        .args([
            "req",
            "-x509",
            "-config",
            "openssl.cnf",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .output()
        .expect("openssl runs");
    assert!(made.status.success(), "{made:?}");
}

fn mails(folder: &Path) -> Vec<String> {
    let read = |n| fs::read_to_string(folder.join(format!("mail-{n}.eml"))).ok();
    (1..).map_while(read).collect()
}

/// The value of a header, on one line.
fn header(mail: &str, name: &str) -> String {
    let unfolded = mail.replace("\r\n ", " ");
    let mut lines = unfolded.lines();
    let found = lines.find_map(|line| line.strip_prefix(&format!("{name}: ")));
    found
        .unwrap_or_else(|| panic!("no {name} in {mail}"))
        .to_owned()
}

fn mail_channel(rig: &Rig, folder: &Path, tls: &str, more: &str) -> String {
    let port = fs::read_to_string(folder.join("port")).expect("it listens");
    let ca = folder.join("cert.pem");
    format!(
        "[[alerts]]\nname = \"ops\"\ngroup = \"2s\"\ntimeout = \"30s\"\n[alerts.mail]\n\
         to = [\"ops@example.org\"]\nfrom = \"strake@example.org\"\n\
         server = \"localhost:{port}\"\ntls = \"{tls}\"\nca_file = \"{}\"\nuser = \"strake\"\n\
         password_file = \"{}\"\n{more}",
        ca.display(),
        rig.path("password")
    )
}

const PASSWORD: &str = "pa55 wörd\n";

/// The whole way: a test, what is refused and comes later, a degraded array, and its recovery.
#[test]
fn mail_goes_over_tls_with_a_login_and_tells_what_began_and_what_ended() {
    let mut rig = Rig::new();
    let Some((_server, folder)) = mail_server(&rig, "starttls") else {
        return;
    };
    rig.file_of("password", PASSWORD, 0o600);
    rig.configure(&mail_channel(&rig, &folder, "starttls", ""));
    rig.start_daemon();
    let tested = rig.run(&["alert", "test", "ops"]).ok().json();
    assert_eq!(tested["channels"][0]["delivered"], true, "{tested}");
    let mail = mails(&folder).remove(0);
    assert!(
        header(&mail, "Subject").contains("test of an alert channel"),
        "{mail}"
    );
    assert_eq!(header(&mail, "Auto-Submitted"), "auto-generated");
    assert_eq!(header(&mail, "X-Test-To"), "ops@example.org");
    assert_eq!(header(&mail, "X-Test-From"), "strake@example.org");

    let devices = rig.files(4);
    rig.create("data", "5", NBD, &devices[..3]).ok();
    let mode = |mode: &str| fs::write(folder.join("mode"), mode).expect("written");
    mode("4xx");
    rig.run(&["fail", "data", "1"]).ok();
    rig.until("a refusal", || rig.channel()["failing"] == true);
    let channel = rig.channel();
    assert!(channel["queued"].as_u64() > Some(0), "{channel}");
    let error = channel["last_error"].as_str().unwrap_or_default();
    assert!(
        error.contains("451") && error.contains("come back later"),
        "{channel}"
    );
    mode("");
    rig.until("the mail", || mails(&folder).len() >= 2);
    let mail = &mails(&folder)[1];
    let subject = header(mail, "Subject");
    assert!(subject.starts_with("[strake] "), "{subject}");
    assert!(subject.contains("data"), "{subject}");
    for part in [
        "data is degraded",
        "member_out data slot 1",
        "strake add data DEV",
        "slot 1: ",
    ] {
        assert!(mail.contains(part), "{part} in {mail}");
    }
    rig.run(&["add", "data", &devices[3]]).ok();
    rig.until("the end of it", || {
        mails(&folder)
            .iter()
            .any(|mail| mail.contains("data is optimal again"))
    });
    // What is delivered leaves the queue a moment before that is told.
    rig.until("an empty queue, and that it is told", || {
        let channel = rig.channel();
        channel["queued"] == 0 && channel["failing"] == false
    });
    let channel = rig.channel();
    assert!(channel["last_success"].is_string(), "{channel}");
    let metrics = rig.ask("GET", "/metrics");
    assert!(
        metrics.contains("strake_alert_failing{channel=\"ops\"} 0\n"),
        "{metrics}"
    );
    assert!(!metrics.contains("pa55") && !rig.log().contains("pa55"));
}

#[test]
fn each_failure_of_a_mail_server_is_named_and_bounded() {
    let mut rig = Rig::new();
    let Some((_server, folder)) = mail_server(&rig, "tls") else {
        return;
    };
    let password = rig.file_of("password", PASSWORD, 0o600);
    // A loaded machine needs its time for what does not hang.
    let channel = mail_channel(&rig, &folder, "tls", "");
    let hasty = channel.replace("\"ops\"", "\"hasty\"").replace("30s", "2s");
    rig.configure(&(channel + &hasty));
    rig.start_daemon();
    rig.run(&["alert", "test", "ops"]).ok();
    for (channel, mode, parts) in [
        ("ops", "4xx", &["451", "come back later"][..]),
        ("ops", "5xx", &["554", "not wanted"]),
        ("hasty", "hang", &["no end within 2 s"]),
        ("ops", "close", &["localhost port "]),
    ] {
        fs::write(folder.join("mode"), mode).expect("written");
        let begun = Instant::now();
        let error = rig.fails(&["alert", "test", channel]);
        assert!(begun.elapsed() < Duration::from_secs(60), "{mode}");
        for part in parts {
            assert!(error.contains(part), "{mode}: {error}");
        }
    }
    fs::write(folder.join("mode"), "").expect("written");
    rig.file_of("password", "another\n", 0o600);
    let error = rig.test_fails();
    assert!(
        error.contains("535") && !error.contains("another"),
        "{error}"
    );
    rig.file_of("password", PASSWORD, 0o644);
    let error = rig.test_fails();
    assert!(error.contains(&format!("chmod 600 {password}")), "{error}");
    fs::remove_file(&password).expect("removed");
    assert!(rig.test_fails().contains(&password));
    // A certificate that nobody believes.
    rig.stop_daemon();
    let own = folder.join("own");
    fs::create_dir(&own).expect("made");
    certificate(&own);
    rig.file_of("password", PASSWORD, 0o600);
    let believed = folder.join("cert.pem").display().to_string();
    let other = own.join("cert.pem").display().to_string();
    rig.configure(&mail_channel(&rig, &folder, "tls", "").replace(&believed, &other));
    rig.start_daemon();
    let error = rig.test_fails();
    assert!(error.to_lowercase().contains("certificate"), "{error}");
    assert_eq!(mails(&folder).len(), 1);
}

/// One address that is gone kept all others from the mail, for days.
#[test]
fn an_address_that_is_refused_for_ever_keeps_no_other_from_the_mail() {
    let mut rig = Rig::new();
    let Some((_server, folder)) = mail_server(&rig, "starttls") else {
        return;
    };
    let credentials = rig.path("credentials");
    fs::create_dir(&credentials).expect("made");
    fs::write(format!("{credentials}/mail"), PASSWORD).expect("written");
    let channel = mail_channel(&rig, &folder, "starttls", "").replace(
        "[\"ops@example.org\"]",
        "[\"gone@example.org\", \"ops@example.org\"]",
    );
    let file = format!("password_file = \"{}\"", rig.path("password"));
    rig.configure(&channel.replace(&file, "password_credential = \"mail\""));
    let environment = format!("CREDENTIALS_DIRECTORY={credentials}");
    rig.start_daemon_by(&["env", &environment], &[]);
    rig.create("data", "1", NBD, &rig.files(2)).ok();
    rig.run(&["fail", "data", "1"]).ok();
    rig.until("the mail", || !mails(&folder).is_empty());
    rig.until("an empty queue", || rig.channel()["queued"] == 0);
    assert_eq!(header(&mails(&folder)[0], "X-Test-To"), "ops@example.org");
    let failing = rig.event("the failure", |e| e["event"] == "alert_failing");
    assert_eq!(failing["cause"], "ops", "{failing}");
    let channel = rig.channel();
    let error = channel["last_error"].as_str().unwrap_or_default();
    assert!(
        error.contains("gone@example.org") && error.contains("550"),
        "{channel}"
    );
}

/// What an HTTP server does with one request.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Text(&'static str),
    Close,
    Hang,
}

const TAKEN: Answer = Answer::Text("HTTP/1.1 204 No Content\r\n\r\n");

/// Requests as they came, head and body, and when.
type Requests = Arc<Mutex<Vec<(Instant, String, String)>>>;

/// A server that does these things in turn, and takes all that comes then.
fn http_server(answers: Vec<Answer>) -> (u16, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let requests = Requests::default();
    let seen = Arc::clone(&requests);
    std::thread::spawn(move || {
        let mut hanging = Vec::new();
        let answers = answers.into_iter().chain(std::iter::repeat(TAKEN));
        for (stream, answer) in listener.incoming().zip(answers) {
            let Ok(mut stream) = stream else { return };
            let Some((head, body)) = request(&mut stream) else {
                continue;
            };
            seen.lock()
                .expect("whole")
                .push((Instant::now(), head, body));
            match answer {
                // The client may have gone.
                Answer::Text(text) => drop(stream.write_all(text.as_bytes())),
                Answer::Close => {}
                Answer::Hang => hanging.push(stream),
            }
        }
    });
    (port, requests)
}

fn request(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 65536];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_lowercase();
            let mut lines = head.lines();
            let length = lines.find_map(|line| line.strip_prefix("content-length: "));
            if length?.parse::<usize>().ok()? <= body.len() {
                return Some((head, body.to_owned()));
            }
        }
        match stream.read(&mut buffer).ok()? {
            0 => return None,
            n => bytes.extend_from_slice(&buffer[..n]),
        }
    }
}

#[test]
fn a_webhook_is_signed_and_each_failure_of_its_server_is_named() {
    let mut rig = Rig::new();
    let redirect = "HTTP/1.1 302 Found\r\nlocation: https://other.example/x?secret\r\n\
                    content-length: 0\r\n\r\n";
    let busy = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 3\r\ncontent-length: 4\r\n\r\nbusy";
    let broken = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 4\r\n\r\nso\u{7}l";
    let (port, requests) = http_server(vec![
        TAKEN,
        Answer::Text(broken),
        Answer::Text(busy),
        Answer::Close,
        Answer::Hang,
        Answer::Text(redirect),
        Answer::Text("this is no HTTP at all\r\n\r\n"),
        // Of a message that waits.
        Answer::Text(busy),
    ]);
    let key = rig.file_of("key", "a key\n", 0o600);
    rig.configure(&format!(
        "[[alerts]]\nname = \"hook\"\ngroup = \"2s\"\ntimeout = \"15s\"\n[alerts.webhook]\n\
         url = \"http://127.0.0.1:{port}/path-that-is-secret?a=b\"\nkey_file = \"{key}\"\n"
    ));
    rig.start_daemon();
    rig.run(&["alert", "test"]).ok();
    let (_, head, body) = requests.lock().expect("whole")[0].clone();
    assert!(
        head.starts_with("post /path-that-is-secret?a=b http/1.1"),
        "{head}"
    );
    let of = |name: &str| {
        let mut lines = head.lines();
        let found = lines.find_map(|line| line.strip_prefix(&format!("{name}: ")));
        found
            .unwrap_or_else(|| panic!("no {name} in {head}"))
            .to_owned()
    };
    let json: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(json["id"], of("x-strake-id").as_str());
    assert_eq!(json["items"][0]["kind"], "test");
    let signed = rig.file_of(
        "signed",
        &format!("{}.{body}", of("x-strake-timestamp")),
        0o600,
    );
    let digest = Command::new("openssl")
        .args(["dgst", "-sha256", "-hmac", "a key", &signed])
        .output()
        .expect("openssl runs");
    let digest = String::from_utf8_lossy(&digest.stdout).into_owned();
    let digest = digest
        .trim()
        .rsplit(' ')
        .next()
        .unwrap_or_default()
        .to_owned();
    assert_eq!(of("x-strake-signature"), format!("sha256={digest}"));

    for parts in [
        &["500", "so\\u{7}l"][..],
        &["429", "busy"],
        &["HTTP"],
        &["no end within 15 s"],
        &["302", "to other.example: redirects are not followed"],
        &["HTTP"],
    ] {
        let error = rig.test_fails();
        for part in parts {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(!error.contains("secret"), "{error}");
    }
    let shown = rig.run_command(rig.command().args(["alert", "status"]));
    assert!(!shown.out.contains("secret"), "{shown:?}");

    // The pause that the server asks for is heeded.
    rig.create("data", "1", NBD, &rig.files(2)).ok();
    rig.run(&["fail", "data", "0"]).ok();
    rig.until("it is taken", || {
        rig.channel()["delivered"].as_u64() > Some(0)
    });
    let requests = requests.lock().expect("whole");
    let [(first, _, refused), (second, _, taken), ..] = &requests[7..] else {
        panic!("{requests:?}");
    };
    assert!(*second - *first >= Duration::from_secs(3));
    assert_eq!(refused, taken);
    let json: Value = serde_json::from_str(taken).expect("JSON");
    assert_eq!(json["arrays"][0]["state"], "degraded", "{json}");
    let items = json["items"].as_array().expect("items");
    assert!(
        items
            .iter()
            .any(|i| i["condition"] == "degraded" && i["change"] == "began")
    );
}

/// A certificate authority, `ca.pem`, and the certificate of localhost that it has signed.
fn authority(folder: &Path) {
    let text = "[req]\ndistinguished_name=dn\nprompt=no\n[dn]\nCN=test\n[ca]\n\
                basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n[leaf]\n\
                basicConstraints=critical,CA:FALSE\nsubjectAltName=DNS:localhost\n";
    fs::write(folder.join("ca.cnf"), text).expect("written");
    for (name, more) in [
        ("ca", &["-extensions", "ca"][..]),
        (
            "leaf",
            &["-extensions", "leaf", "-CA", "ca.pem", "-CAkey", "ca.key"],
        ),
    ] {
        let made = Command::new("openssl")
            .current_dir(folder)
            .args(["req", "-x509", "-config", "ca.cnf", "-nodes", "-days", "2"])
            .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args([
                "-keyout",
                &format!("{name}.key"),
                "-out",
                &format!("{name}.pem"),
            ])
            .args(more)
            .output()
            .expect("openssl runs");
        assert!(made.status.success(), "{made:?}");
    }
}

/// Takes each POST and appends its path and its body to `requests`.
const HTTPS_SERVER: &str = r#"
import http.server, pathlib, ssl, sys
folder = pathlib.Path(sys.argv[1])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        with open(folder / "requests", "ab") as file:
            file.write(self.path.encode() + b" " + body + b"\n")
        self.send_response(204)
        self.end_headers()
    def log_message(self, *args):
        pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder / "leaf.pem", folder / "leaf.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"#;

#[test]
fn a_webhook_over_tls_is_delivered_once_when_its_server_is_back() {
    let mut rig = Rig::new();
    if !Path::new(PYTHON).exists() {
        skipped("python3 is not installed");
        return;
    }
    let folder = PathBuf::from(rig.path("https"));
    fs::create_dir(&folder).expect("made");
    authority(&folder);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    drop(listener);
    let serve = || {
        let child = Command::new(PYTHON)
            .args(["-c", HTTPS_SERVER])
            .arg(&folder)
            .arg(port.to_string())
            .stdin(Stdio::null())
            .spawn();
        Server(child.expect("it is there"))
    };
    let url = format!("https://localhost:{port}/a-secret-path\n");
    let url_file = rig.file_of("url", &url, 0o600);
    let channel = |ca: &str| {
        let ca = folder.join(ca);
        format!(
            "[[alerts]]\nname = \"hook\"\ngroup = \"1s\"\ntimeout = \"30s\"\n[alerts.webhook]\n\
             url_file = \"{url_file}\"\nca_file = \"{}\"\n",
            ca.display()
        )
    };
    rig.configure(&channel("ca.pem"));
    rig.start_daemon();
    rig.create("data", "1", NBD, &rig.files(2)).ok();
    rig.run(&["fail", "data", "1"]).ok();
    rig.until("a refusal", || rig.channel()["failing"] == true);
    let channel_now = rig.channel();
    let error = channel_now["last_error"].as_str().unwrap_or_default();
    assert!(
        error.contains("localhost") && error.contains("refused"),
        "{channel_now}"
    );
    assert!(
        !channel_now.to_string().contains("a-secret-path"),
        "{channel_now}"
    );
    // It is seen where users look, with the time since when.
    let since = channel_now["failing_since"].as_str().expect("a time");
    let shown = rig.show("data");
    assert_eq!(shown["alerts_failing"][0]["channel"], "hook", "{shown}");
    assert_eq!(shown["alerts_failing"][0]["since"], since, "{shown}");
    for args in [&["show"][..], &["show", "data"]] {
        let text = rig.run_command(rig.command().args(args)).out;
        let line = format!("alerts by hook are not delivered since {since}: ");
        assert!(text.contains(&line), "{text}");
    }
    let status = rig.run_command(rig.command().arg("status")).out;
    assert!(
        status.contains("alerts by hook are not delivered"),
        "{status}"
    );
    let doctor = rig.run(&["doctor"]).out;
    assert!(
        doctor.contains("alert-failing") && doctor.contains(since),
        "{doctor}"
    );

    let server = serve();
    rig.until("an empty queue", || {
        let channel = rig.channel();
        channel["queued"] == 0 && channel["delivered"].as_u64() > Some(0)
    });
    let requests = fs::read_to_string(folder.join("requests")).expect("some came");
    let mut ids = std::collections::BTreeSet::new();
    let mut began = 0;
    for line in requests.lines() {
        let body = line.strip_prefix("/a-secret-path ").expect("the path");
        let message: Value = serde_json::from_str(body).expect("JSON");
        assert!(ids.insert(message["id"].to_string()), "twice: {requests}");
        let degraded = |i: &Value| i["condition"] == "degraded" && i["change"] == "began";
        began += usize::from(has_item(&message, degraded));
    }
    assert_eq!(began, 1, "{requests}");
    assert_eq!(rig.show("data")["alerts_failing"], serde_json::json!([]));
    assert_eq!(rig.channel()["failing_since"], Value::Null);
    // Another authority is not believed; nor is a URL in a file that others may read.
    rig.stop_daemon();
    let other = folder.join("other");
    fs::create_dir(&other).expect("made");
    authority(&other);
    rig.configure(&channel("other/ca.pem"));
    rig.start_daemon();
    let error = rig.test_fails();
    assert!(
        error.contains("TLS") && error.to_lowercase().contains("certificate"),
        "{error}"
    );
    rig.file_of("url", &url, 0o644);
    let error = rig.test_fails();
    assert!(error.contains(&format!("chmod 600 {url_file}")), "{error}");
    drop(server);
}

#[test]
fn the_url_and_the_key_of_a_webhook_may_be_credentials_of_systemd() {
    let mut rig = Rig::new();
    let (port, requests) = http_server(vec![TAKEN]);
    let credentials = rig.path("credentials");
    fs::create_dir(&credentials).expect("made");
    let url = format!("http://127.0.0.1:{port}/hidden\n");
    fs::write(format!("{credentials}/url"), url).expect("written");
    fs::write(format!("{credentials}/key"), "a key\n").expect("written");
    rig.configure(
        "[[alerts]]\nname = \"hook\"\n[alerts.webhook]\nurl_credential = \"url\"\n\
         key_credential = \"key\"\n",
    );
    // Without systemd there are none.
    rig.start_daemon();
    let error = rig.test_fails();
    assert!(error.contains("LoadCredential="), "{error}");
    rig.stop_daemon();
    let environment = format!("CREDENTIALS_DIRECTORY={credentials}");
    rig.start_daemon_by(&["env", &environment], &[]);
    rig.run(&["alert", "test"]).ok();
    let requests = requests.lock().expect("whole");
    let (_, head, _) = &requests[0];
    assert!(head.starts_with("post /hidden "), "{head}");
    assert!(head.contains("x-strake-signature: sha256="), "{head}");
    fs::remove_file(format!("{credentials}/url")).expect("removed");
    let error = rig.test_fails();
    assert!(error.contains("url"), "{error}");
}

#[test]
fn mail_by_sendmail_has_its_arguments_and_its_failures_are_named() {
    let mut rig = Rig::new();
    let out = rig.path("out");
    let script = |text: &str| format!("#!/bin/sh\n{text}\n");
    let takes = script(&format!("printf '%s\\n' \"$@\" > {out}.args; cat > {out}"));
    let program = rig.file_of("sendmail", &takes, 0o755);
    // A loaded machine needs its time for a program that ends.
    let channel = |name: &str, timeout: &str| {
        format!(
            "[[alerts]]\nname = \"{name}\"\ntimeout = \"{timeout}\"\n[alerts.mail]\n\
             to = [\"a@example.org\", \"b@example.org\"]\nfrom = \"strake@example.org\"\n\
             sendmail = \"{program}\"\n"
        )
    };
    rig.configure(&(channel("ops", "30s") + &channel("hasty", "2s")));
    rig.start_daemon();
    rig.run(&["alert", "test", "ops"]).ok();
    let args = fs::read_to_string(format!("{out}.args")).expect("it ran");
    let wanted = "-i\n-f\nstrake@example.org\n--\na@example.org\nb@example.org\n";
    assert_eq!(args, wanted);
    let mail = fs::read_to_string(&out).expect("it ran");
    assert!(header(&mail, "To").contains("b@example.org"), "{mail}");
    assert!(
        header(&mail, "Subject").contains("test of an alert channel"),
        "{mail}"
    );
    for (channel, text, part) in [
        (
            "ops",
            "cat > /dev/null; echo 'queue is full' >&2; exit 75",
            "exit status: 75: queue is full",
        ),
        ("hasty", "sleep 100", "did not end within 2 s"),
    ] {
        rig.file_of("sendmail", &script(text), 0o755);
        let error = rig.fails(&["alert", "test", channel]);
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_program_gets_the_message_and_cannot_hang_the_daemon() {
    let mut rig = Rig::new();
    let out = rig.path("out");
    let script = |text: &str| format!("#!/bin/sh\n{text}\n");
    let program = rig.file_of(
        "alert",
        &script(&format!("cat > {out}; env >> {out}")),
        0o755,
    );
    // A loaded machine needs its time for a program that ends.
    let channel = |name: &str, timeout: &str| {
        format!(
            "[[alerts]]\nname = \"{name}\"\ngroup = \"1s\"\ntimeout = \"{timeout}\"\n\
             exec.command = [\"{program}\", \"an argument\"]\n"
        )
    };
    rig.configure(&(channel("run", "60s") + &channel("hasty", "5s")));
    rig.start_daemon();
    rig.run(&["alert", "test", "run"]).ok();
    let got = fs::read_to_string(&out).expect("it ran");
    let json: Value = serde_json::Deserializer::from_str(&got)
        .into_iter()
        .next()
        .expect("some")
        .expect("JSON");
    assert_eq!(json["items"][0]["kind"], "test", "{got}");
    assert!(got.contains("STRAKE_ALERT_SEVERITY=info\n"), "{got}");
    assert!(!got.contains("STRAKE_DIR="), "{got}");

    let pid = rig.path("pid");
    let hangs = format!("echo begun; sleep 1000 & echo $! > {pid}; wait");
    for (channel, text, parts) in [
        (
            "hasty",
            hangs.as_str(),
            &["did not end within 5 s and was killed: begun"][..],
        ),
        (
            "run",
            "echo out; echo err >&2; exit 3",
            &["exit status: 3: err\\nout"],
        ),
        (
            "run",
            "head -c 100000000 /dev/zero | tr '\\0' x; exit 4",
            &["exit status: 4: xxx"],
        ),
        ("run", "exec < /dev/null; kill -9 $$", &["signal: 9"]),
    ] {
        rig.file_of("alert", &script(text), 0o755);
        let begun = Instant::now();
        let error = rig.fails(&["alert", "test", channel]);
        assert!(
            begun.elapsed() < Duration::from_secs(90) && error.len() < 1000,
            "{error}"
        );
        for part in parts {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    // What it had started is gone with it.
    let pid = fs::read_to_string(pid).expect("written");
    let process = PathBuf::from(format!("/proc/{}/stat", pid.trim()));
    rig.until("the end of its child", || {
        let stat = fs::read_to_string(&process);
        stat.map_or(true, |stat| stat.contains(") Z "))
    });
    rig.file_of("alert", &script("exit 0"), 0o777);
    assert!(rig.test_fails().contains(&format!("chmod go-w {program}")));
    fs::remove_file(&program).expect("removed");
    assert!(rig.test_fails().contains(&program));
    // Nothing that it did kept the daemon from its work.
    rig.create("data", "1", NBD, &rig.files(2)).ok();
}

/// A channel whose program takes messages once there is a file, and appends them to another.
fn held_back(rig: &Rig, group: &str) -> String {
    let (open, out) = (rig.path("open"), rig.path("out"));
    let text = format!("#!/bin/sh\n[ -e {open} ] || exit 1\ncat >> {out}\n");
    let program = rig.file_of("alert", &text, 0o755);
    format!("[[alerts]]\nname = \"run\"\ngroup = \"{group}\"\nexec.command = [\"{program}\"]\n")
}

fn messages(rig: &Rig) -> Vec<Value> {
    let text = fs::read_to_string(rig.path("out")).unwrap_or_default();
    let all = serde_json::Deserializer::from_str(&text).into_iter();
    all.map_while(Result::ok).collect()
}

fn has_item(message: &Value, of: impl Fn(&Value) -> bool) -> bool {
    message["items"]
        .as_array()
        .is_some_and(|items| items.iter().any(of))
}

#[test]
fn what_a_killed_daemon_had_not_delivered_is_delivered_by_the_next() {
    let mut rig = Rig::new();
    rig.configure(&held_back(&rig, "1s"));
    rig.start_daemon();
    rig.create("data", "5", NBD, &rig.files(3)).ok();
    rig.run(&["fail", "data", "1"]).ok();
    let spooled = rig.dir().join("alerts/run");
    // What was told is written last.
    let state = rig.dir().join("alerts/state.json");
    rig.until("it waits on disk", || {
        fs::read_to_string(&state).is_ok_and(|text| text.contains("degraded"))
    });
    rig.kill_daemon();
    fs::write(rig.path("open"), "").expect("written");
    rig.start_daemon();
    // What lasts is told again by the new daemon, and what was told is not.
    let lasts = |i: &Value| i["condition"] == "degraded" && i["change"] == "lasts";
    rig.until("what lasts to be told again", || {
        messages(&rig).iter().any(|all| has_item(all, lasts))
    });
    let all = messages(&rig);
    let subject = all[0]["subject"].as_str().unwrap_or_default();
    assert!(subject.contains("data"), "{subject}");
    assert!(
        has_item(&all[0], |i| i["event"]["event"] == "member_out"),
        "{all:?}"
    );
    let out = |i: &Value| {
        let event = &i["event"];
        event["event"] == "member_out" && event["slot"] == 1 && event["cause"] == "asked"
    };
    assert!(!all[1..].iter().any(|all| has_item(all, out)), "{all:?}");
    rig.until("an empty spool", || {
        fs::read_dir(&spooled).is_ok_and(|files| files.count() == 0)
    });
}

#[test]
fn what_a_killed_daemon_had_not_made_a_message_of_is_told_by_the_next() {
    let mut rig = Rig::new();
    fs::write(rig.path("open"), "").expect("written");
    rig.configure(&held_back(&rig, "10m"));
    rig.start_daemon();
    rig.create("data", "5", NBD, &rig.files(3)).ok();
    rig.until("what was told is kept", || {
        rig.dir().join("alerts/state.json").exists()
    });
    rig.run(&["fail", "data", "1"]).ok();
    rig.until("it happened", || {
        rig.events().iter().any(|e| e["event"] == "member_out")
    });
    rig.kill_daemon();
    assert!(messages(&rig).is_empty());
    rig.configure(&held_back(&rig, "1s"));
    rig.start_daemon();
    let out = |i: &Value| i["event"]["event"] == "member_out" && i["event"]["cause"] == "asked";
    rig.until("it is told", || {
        messages(&rig).iter().any(|message| has_item(message, out))
    });
}

/// A mount that ends with its test.
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_delays_no_alert_and_is_said() {
    let mut rig = Rig::new();
    if !is_root() {
        skipped("only root can mount a tmpfs");
        return;
    }
    let spool = rig.dir().join("alerts");
    fs::create_dir_all(&spool).expect("made");
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(&spool)
        .status();
    if !mount.is_ok_and(|status| status.success()) {
        skipped("a tmpfs cannot be mounted");
        return;
    }
    let _mount = Mount(spool.clone());
    rig.configure(&held_back(&rig, "1s"));
    rig.start_daemon();
    rig.until("it is begun", || spool.join("state.json").exists());
    let filler = spool.join("filler");
    let mut file = fs::File::create(&filler).expect("made");
    while file.write_all(&[1; 4096]).is_ok() {}
    rig.create("data", "5", NBD, &rig.files(3)).ok();
    rig.run(&["fail", "data", "1"]).ok();
    let unwritten = || {
        let status = rig.run(&["alert", "status"]).json();
        status["unwritten_files"].as_u64().expect("a number")
    };
    rig.until("it is said", || unwritten() > 0);
    let noted = |name: &str| {
        let events = rig.events();
        events.into_iter().find(|event| event["event"] == name)
    };
    rig.until("it is noted", || noted("alert_not_kept").is_some());
    let event = noted("alert_not_kept").expect("noted");
    let cause = event["cause"].as_str().unwrap_or_default();
    assert!(cause.contains("No space left"), "{event}");
    let doctor = rig.run(&["doctor"]).out;
    assert!(doctor.contains("alert-spool"), "{doctor}");
    fs::write(rig.path("open"), "").expect("written");
    rig.until("it is delivered all the same", || {
        !messages(&rig).is_empty()
    });
    drop(file);
    fs::remove_file(filler).expect("removed");
    rig.until("all is written", || unwritten() == 0);
    rig.until("that is noted, too", || noted("alert_kept").is_some());
}

#[test]
fn a_test_of_no_channel_is_refused() {
    let mut rig = Rig::new();
    rig.run(&["alert", "status"]).refused(1, "no-daemon");
    rig.start_daemon();
    rig.run(&["alert", "test"]).refused(3, "channel-not-found");
    rig.stop_daemon();
    rig.configure("[[alerts]]\nname = \"a\"\nexec.command = [\"/bin/true\"]\n");
    rig.start_daemon();
    let refused = rig
        .run(&["alert", "test", "b"])
        .refused(3, "channel-not-found");
    assert!(refused.err.contains("there are a"), "{refused:?}");
    let would = rig.run(&["alert", "test", "--dry-run"]).ok().json();
    assert_eq!(would["channels"][0]["dry_run"], true, "{would}");
    assert_eq!(rig.channel()["delivered"], 0);
}

#[test]
fn channels_are_known_and_tested_while_the_disk_of_the_spool_hangs() {
    if !is_root() {
        return skipped("only root can freeze a file system");
    }
    let mut rig = Rig::new();
    fs::create_dir_all(rig.dir()).expect("made");
    let Some(mut freezer) = Freezer::at(&rig, rig.dir().join("alerts")) else {
        return;
    };
    freezer.freeze();
    let (port, requests) = http_server(Vec::new());
    rig.configure(&format!(
        "[[alerts]]\nname = \"hook\"\ngroup = \"1s\"\n[alerts.webhook]\n\
         url = \"http://127.0.0.1:{port}/\"\n"
    ));
    rig.start_daemon();
    let status = rig.run(&["alert", "status"]).json();
    assert_eq!(status["channels"][0]["name"], "hook", "{status}");
    within(&rig, 60, &["alert", "test"]).ok();
    rig.create("data", "5", NBD, &rig.files(3)).ok();
    rig.run(&["fail", "data", "1"]).ok();
    rig.until("it is said", || rig.channel()["failing"] == true);
    let why = rig.channel()["last_error"].to_string();
    assert!(why.contains("alerts gives no answer"), "{why}");
    // What happened meanwhile is told when the disk goes on.
    freezer.thaw();
    rig.until("it goes on", || rig.channel()["failing"] == false);
    let told = || {
        let requests = requests.lock().expect("whole");
        requests
            .iter()
            .any(|(_, _, body)| body.contains("member_out"))
    };
    rig.until("it is told", told);
    rig.stop_daemon();
}

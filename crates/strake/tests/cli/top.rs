//! `strake top` on a terminal of its own: what it shows, and what it leaves behind.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::rig::{Rig, STRAKE, has, skipped};

const NBD: &[&str] = &["--export", "nbd"];

/// A terminal in which the program runs, and the screen that it draws.
struct Terminal {
    master: File,
    /// Kept open, so that what is left of it can be looked at.
    slave: File,
    screen: Arc<Mutex<vt100::Parser>>,
    child: Child,
    reader: Option<JoinHandle<()>>,
    closing: Arc<AtomicBool>,
}

impl Terminal {
    /// None where no program can be given a terminal.
    fn start(rig: &Rig, columns: u16, rows: u16) -> Option<Terminal> {
        if !has("setsid") {
            skipped("setsid (util-linux) is not installed");
            return None;
        }
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a terminal");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let name = ptsname(&master, Vec::new()).expect("a name");
        let slave = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(rustix::fs::OFlags::NOCTTY.bits() as i32)
            .open(name.to_str().expect("text"))
            .expect("opened");
        tcsetwinsize(&master, size(columns, rows)).expect("a size");
        let end = |slave: &File| Stdio::from(OwnedFd::from(slave.try_clone().expect("a copy")));
        let child = Command::new("setsid")
            .args(["--ctty", STRAKE, "top", "--delay", "0.2"])
            .env("STRAKE_DIR", rig.dir())
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .stdin(end(&slave))
            .stdout(end(&slave))
            .stderr(end(&slave))
            .spawn()
            .expect("it starts");
        let screen = Arc::new(Mutex::new(vt100::Parser::new(
            cells(rows),
            cells(columns),
            0,
        )));
        let mut reader = File::from(master.try_clone().expect("a copy"));
        let parser = Arc::clone(&screen);
        let closing = Arc::new(AtomicBool::new(false));
        let closes = Arc::clone(&closing);
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while !closes.load(Relaxed) {
                let wait = Timespec {
                    tv_sec: 0,
                    tv_nsec: 50_000_000,
                };
                let mut wanted = [PollFd::new(&reader, PollFlags::IN)];
                if poll(&mut wanted, Some(&wait)) == Ok(0) {
                    continue;
                }
                let Ok(n @ 1..) = reader.read(&mut bytes) else {
                    return;
                };
                parser.lock().expect("no panic").process(&bytes[..n]);
            }
        });
        let master = File::from(master);
        Some(Terminal {
            master,
            slave,
            screen,
            child,
            reader: Some(reader),
            closing,
        })
    }
    /// Nobody has the terminal any more, as when a connection breaks: the program ends.
    fn breaks(mut self) {
        self.closing.store(true, Relaxed);
        let reader = self.reader.take().expect("it reads");
        reader.join().expect("no panic");
        for end in [&mut self.master, &mut self.slave] {
            *end = File::open("/dev/null").expect("opened");
        }
        let give_up = Instant::now() + Duration::from_secs(60);
        while self.child.try_wait().expect("works").is_none() {
            assert!(Instant::now() < give_up, "it stays without its terminal");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    fn contents(&self) -> String {
        self.screen.lock().expect("no panic").screen().contents()
    }
    fn until(&self, what: &str, shown: impl Fn(&str) -> bool) {
        let give_up = Instant::now() + Duration::from_secs(60);
        while !shown(&self.contents()) {
            let contents = self.contents();
            assert!(
                Instant::now() < give_up,
                "waited too long for {what}:\n{contents}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("pressed");
    }
    fn resize(&self, columns: u16, rows: u16) {
        let mut screen = self.screen.lock().expect("no panic");
        screen.screen_mut().set_size(cells(rows), cells(columns));
        tcsetwinsize(&self.master, size(columns, rows)).expect("a size");
    }
    fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([name, &self.child.id().to_string()])
            .status();
        assert!(sent.expect("kill runs").success());
    }
    /// It ends with this status, and the terminal is as it was before.
    fn ends(mut self, with: i32) {
        let give_up = Instant::now() + Duration::from_secs(60);
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("works") {
                break status;
            }
            assert!(
                Instant::now() < give_up,
                "it does not end:\n{}",
                self.contents()
            );
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(status.code(), Some(with), "{}", self.contents());
        let modes = tcgetattr(&self.slave).expect("modes").local_modes;
        assert!(
            modes.contains(LocalModes::ICANON | LocalModes::ECHO),
            "{modes:?}"
        );
        self.until("the screen of before", |_| {
            let parser = self.screen.lock().expect("no panic");
            let screen = parser.screen();
            !screen.alternate_screen() && !screen.hide_cursor()
        });
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn cells(n: u16) -> NonZero<u16> {
    NonZero::new(n).expect("a terminal has cells")
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize {
        ws_col: columns,
        ws_row: rows,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

#[test]
fn top_follows_sizes_keys_and_a_daemon_that_goes_and_comes_back() {
    let mut rig = Rig::new();
    rig.start_daemon();
    rig.create("data", "5", NBD, &rig.files(3)).ok();
    let Some(mut top) = Terminal::start(&rig, 100, 24) else {
        return;
    };
    top.until("the array and its members", |screen| {
        let lines: Vec<&str> = screen.lines().map(str::trim_end).collect();
        lines.first().is_some_and(|line| line.starts_with("ARRAY"))
            && lines.get(1).is_some_and(|line| line.starts_with("data"))
            && screen.contains("in_sync")
            && screen.contains("started data")
    });
    rig.run(&["fail", "data", "1"]).ok();
    top.until("the event and the state", |screen| {
        screen.contains("member_out data slot 1") && screen.contains("degraded")
    });
    top.press("t");
    top.until("no members", |screen| !screen.contains("in_sync"));
    top.press("?");
    top.until("the keys", |screen| screen.contains("F10 q      end"));
    top.press("x");
    top.until("the picture again", |screen| screen.contains("ARRAY"));
    top.resize(20, 8);
    top.until("a narrow picture", |screen| {
        let lines: Vec<&str> = screen.lines().map(str::trim_end).collect();
        lines.first() == Some(&"ARRAY     STATE") && lines.get(1) == Some(&"data      degraded")
    });
    top.resize(100, 24);
    top.until("a wide one", |screen| screen.contains("queue"));
    rig.stop_daemon();
    top.until("that no daemon is there", |screen| {
        screen.contains("no daemon listens in")
    });
    rig.start_daemon_with(&["--scan", &rig.folder.path().display().to_string()]);
    top.until("the next daemon", |screen| {
        screen.contains("F10 end") && screen.contains("data")
    });
    top.press("q");
    top.ends(0);
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let mut rig = Rig::new();
    rig.start_daemon();
    for signal in ["-TERM", "-INT", "-HUP"] {
        let Some(top) = Terminal::start(&rig, 60, 10) else {
            return;
        };
        top.until("a picture", |screen| screen.contains("F10 end"));
        top.signal(signal);
        top.ends(0);
    }
}

#[test]
fn it_ends_with_its_terminal() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let Some(top) = Terminal::start(&rig, 60, 10) else {
        return;
    };
    top.until("a picture", |screen| screen.contains("F10 end"));
    top.breaks();
}

#[test]
fn top_needs_a_terminal_and_says_what_does_not() {
    let rig = Rig::new();
    let run = rig.run(&["top"]).refused(2, "usage");
    assert!(run.err.contains("strake iostat --json"), "{run:?}");
    let run = rig.run_command(rig.command().arg("top"));
    assert!(
        run.code == 2 && run.err.contains("standard output is none"),
        "{run:?}"
    );
}

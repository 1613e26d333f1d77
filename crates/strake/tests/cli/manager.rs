//! What a service manager hears of the daemon: a socket of the test takes its place.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::hung::Freezer;
use crate::rig::{Rig, has, is_root, skipped};

/// The watchdog's patience in these tests.
const PATIENCE: Duration = Duration::from_millis(800);

/// The manager's end.
struct Manager {
    socket: UnixDatagram,
}

impl Manager {
    /// Starts the daemon of the rig under it.
    fn start(rig: &mut Rig) -> Manager {
        let path = rig.path("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        let notify = format!("NOTIFY_SOCKET={path}");
        let watchdog = format!("WATCHDOG_USEC={}", PATIENCE.as_micros());
        rig.start_daemon_by(&["env", &notify, &watchdog], &[]);
        Manager { socket }
    }
    /// The next message; None if none comes in this time.
    fn hears(&self, within: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(within)).expect("works");
        let mut bytes = [0; 512];
        let read = self.socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..read]).trim().to_owned())
    }
    /// Waits for this message.
    fn until(&self, message: &str) {
        let give_up = Instant::now() + Duration::from_secs(60);
        while Instant::now() < give_up {
            if self.hears(Duration::from_secs(1)).as_deref() == Some(message) {
                return;
            }
        }
        panic!("{message} does not come");
    }
    /// Waits until nothing has come for longer than the watchdog's patience.
    fn until_silent(&self) {
        let give_up = Instant::now() + Duration::from_secs(60);
        while self.hears(PATIENCE + PATIENCE / 2).is_some() {
            assert!(Instant::now() < give_up, "messages come on and on");
        }
    }
}

fn mirror(rig: &Rig) {
    rig.create("data", "1", &["--export", "none"], &rig.files(2))
        .ok();
}

#[test]
fn the_daemon_is_ready_when_its_arrays_serve_then_well_and_says_when_it_stops() {
    let mut rig = Rig::new();
    rig.start_daemon();
    mirror(&rig);
    rig.stop_daemon();
    let manager = Manager::start(&mut rig);
    let first = manager.hears(Duration::from_secs(60));
    assert_eq!(first.as_deref(), Some("READY=1"));
    assert_eq!(rig.show("data")["state"], "optimal", "{}", rig.log());
    manager.until("WATCHDOG=1");
    manager.until("WATCHDOG=1");
    rig.stop_daemon();
    manager.until("STOPPING=1");
    assert_eq!(manager.hears(PATIENCE), None, "nothing after its end");
}

/// It was called ready ten seconds after the start of an array had begun, whatever became of it.
#[test]
fn the_daemon_is_not_ready_while_an_array_is_being_started() {
    if !is_root() {
        return skipped("only root can freeze a file system");
    }
    let mut rig = Rig::new();
    let Some(mut freezer) = Freezer::new(&rig) else {
        return;
    };
    rig.start_daemon();
    let members = [freezer.file("0"), freezer.file("1")];
    rig.create("data", "1", &["--export", "none"], &members)
        .ok();
    rig.stop_daemon();
    freezer.freeze();
    let manager = Manager::start(&mut rig);
    assert_eq!(manager.hears(Duration::from_secs(16)), None);
    freezer.thaw();
    let first = manager.hears(Duration::from_secs(44));
    assert_eq!(first.as_deref(), Some("READY=1"));
    assert_eq!(rig.show("data")["state"], "optimal", "{}", rig.log());
    rig.stop_daemon();
}

/// Stops one thread of a process as a debugger does, until its standard input ends.
const HOLD: &str = r#"
import ctypes, sys
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
SEIZE, INTERRUPT = 0x4206, 0x4207
thread = int(sys.argv[1])
held = ptrace(SEIZE, thread, None, None) == 0 and ptrace(INTERRUPT, thread, None, None) == 0
print("held" if held else "not permitted", flush=True)
sys.stdin.read()
"#;

/// A thread of the daemon, by its name.
pub(crate) fn thread(rig: &Rig, name: &str) -> u32 {
    let tasks = format!("/proc/{}/task", rig.daemon_pid());
    let is_it = |task: &std::fs::DirEntry| {
        let comm = std::fs::read_to_string(task.path().join("comm"));
        comm.is_ok_and(|comm| comm.trim() == name)
    };
    let mut task = None;
    // A thread gives itself its name.
    rig.until("the thread", || {
        let tasks = std::fs::read_dir(&tasks).expect("it runs");
        task = tasks.flatten().find(is_it);
        task.is_some()
    });
    let task = task.expect("it was waited for");
    let number = task.file_name().into_string().expect("digits");
    number.parse().expect("a number")
}

/// Holds a thread until the standard input of what holds it ends; None where that is not permitted.
pub(crate) fn hold(thread: u32) -> Option<Child> {
    let mut holder = Command::new("python3")
        .args(["-c", HOLD, &thread.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    let mut said = String::new();
    let out = holder.stdout.take().expect("piped");
    BufReader::new(out).read_line(&mut said).expect("it speaks");
    if said.trim() == "held" {
        return Some(holder);
    }
    let _ = holder.wait();
    None
}

#[test]
fn a_daemon_with_a_thread_that_does_not_turn_is_not_called_well() {
    if !has("python3") {
        return skipped("python3 is not installed");
    }
    let mut rig = Rig::new();
    let manager = Manager::start(&mut rig);
    mirror(&rig);
    manager.until("WATCHDOG=1");
    let Some(mut holder) = hold(thread(&rig, "strake-data-0")) else {
        return skipped("no thread may be traced here");
    };
    manager.until_silent();
    rig.until("the log to say which", || {
        rig.log().contains("the thread does not turn")
    });
    // It goes on when the one that traces it ends.
    let mut input = holder.stdin.take().expect("piped");
    input.flush().expect("works");
    drop(input);
    holder.wait().expect("it ends");
    manager.until("WATCHDOG=1");
    rig.stop_daemon();
}

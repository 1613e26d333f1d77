//! The log: lines go through a bounded queue to one thread, which writes them to standard error.
//!
//! A log that cannot be written, or that nobody reads, stops nothing: a thread that logs copies its
//! line into memory that was allocated at the start, and goes on. When the queue is full, or the
//! line cannot be written, it is dropped and counted. The writer logs the count as soon as it can
//! write again; `/metrics` has it as `strake_log_lines_dropped_total`.
//!
//! Invariants:
//! * Logging takes no lock, writes no file and never panics. A shard's thread may log at any
//!   moment, also where the log lies on what its array serves, or on memory that is swapped to it.
//! * Only the writer writes to standard error while there is one: it alone waits for it.
//! * SIGPIPE is ignored (Rust's start-up does so): a reader that has gone away is an error of the
//!   write.
//!
//! Why not `tracing-appender`: its queue holds lines that are allocated by the thread that logs,
//! each anew, and has no bound in bytes. Deliberately absent: files, rotation, levels (`RUST_LOG`).

use std::io;
use std::os::fd::AsFd as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use tracing_subscriber::EnvFilter;

/// Lines that wait to be written.
const LINES: usize = 1024;
/// Longer lines are cut.
const LINE_BYTES: usize = 1022;
/// How long an ending process waits for its last lines.
const LAST_LINES: Duration = Duration::from_millis(500);
/// How soon the writer tries again where standard error does not block and is full.
const RETRY: Duration = Duration::from_millis(20);

/// One line, newline included.
struct Line {
    len: u16,
    bytes: [u8; LINE_BYTES],
}

impl Line {
    fn of(text: &[u8]) -> Line {
        let mut bytes = [0; LINE_BYTES];
        let len = text.len().min(LINE_BYTES);
        bytes[..len].copy_from_slice(&text[..len]);
        if text.len() > LINE_BYTES {
            bytes[LINE_BYTES - 4..].copy_from_slice(b"...\n");
        }
        let len = len as u16;
        Line { len, bytes }
    }

    fn text(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The queue and what is counted of it.
struct Log {
    queue: ArrayQueue<Line>,
    writer: OnceLock<Thread>,
    /// Lines that entered the queue, and those of them that the writer is done with.
    entered: AtomicU64,
    left: AtomicU64,
    dropped: AtomicU64,
}

impl Log {
    fn new(lines: usize) -> Log {
        Log {
            queue: ArrayQueue::new(lines),
            writer: OnceLock::new(),
            entered: AtomicU64::new(0),
            left: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Hands a line to the writer, or drops it.
    fn hand_over(&self, text: &[u8]) {
        match self.queue.push(Line::of(text)) {
            Ok(()) => self.entered.fetch_add(1, Ordering::SeqCst),
            Err(_) => self.dropped.fetch_add(1, Ordering::SeqCst),
        };
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    /// Writes all lines that wait. `told`: how many were dropped that the log knows of.
    fn write_waiting(&self, write: &mut impl FnMut(&[u8]) -> io::Result<()>, told: &mut u64) {
        while let Some(line) = self.queue.pop() {
            if write(line.text()).is_err() {
                self.dropped.fetch_add(1, Ordering::SeqCst);
            } else {
                let dropped = self.dropped.load(Ordering::SeqCst);
                if dropped > *told && write(dropped_line(dropped - *told).as_bytes()).is_ok() {
                    *told = dropped;
                }
            }
            self.left.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Waits until what has been logged is written, or for `most`.
    fn flush(&self, most: Duration) {
        let (entered, until) = (self.entered.load(Ordering::SeqCst), Instant::now() + most);
        while self.left.load(Ordering::SeqCst) < entered && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn dropped_line(count: u64) -> String {
    let time = jiff::Timestamp::now();
    format!(
        "{time:.6}  WARN strake: {count} lines of the log were dropped: it could not be written\n"
    )
}

static LOG: OnceLock<Log> = OnceLock::new();

/// Stands where a line is formatted to.
struct ToQueue;

impl io::Write for ToQueue {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if let Some(log) = LOG.get() {
            log.hand_over(text);
        }
        Ok(text.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a line to standard error, however long that takes.
fn to_descriptor(mut text: &[u8]) -> io::Result<()> {
    let stderr = io::stderr();
    while !text.is_empty() {
        match rustix::io::write(stderr.as_fd(), text) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => text = &text[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => std::thread::sleep(RETRY),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Logs to standard error from now on; `RUST_LOG` says how much (`default`).
pub(crate) fn to_stderr(default: &str) {
    // A second call (a test in the same process) keeps the first logger.
    if LOG.set(Log::new(LINES)).is_err() {
        return;
    }
    let log = LOG.get().expect("it was just set");
    let started = strake_runtime::spawn_thread("strake-log", || {
        let mut told = 0;
        loop {
            log.write_waiting(&mut to_descriptor, &mut told);
            std::thread::park();
        }
    });
    // Without a thread every line is dropped, and counted.
    if let Ok(handle) = started {
        let _ = log.writer.set(handle.thread().clone());
        handle.thread().unpark();
    }
    std::panic::set_hook(Box::new(|panic| tell_panic(log, panic)));
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let logger = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .log_internal_errors(false)
        .with_writer(|| ToQueue);
    let _ = logger.try_init();
}

/// What a panic says goes the way of all lines: it may end the process, and must not wait for that.
fn tell_panic(log: &Log, panic: &std::panic::PanicHookInfo<'_>) {
    let current = std::thread::current();
    let thread = current.name().unwrap_or("without a name");
    let trace = std::backtrace::Backtrace::capture();
    let mut text = format!("thread '{thread}' {panic}");
    if trace.status() == std::backtrace::BacktraceStatus::Captured {
        text += &format!("\n{trace}");
    }
    for line in text.lines() {
        log.hand_over(format!("{line}\n").as_bytes());
    }
    log.flush(LAST_LINES);
}

/// The process ends: its last lines have a moment to be written.
pub(crate) fn flush() {
    if let Some(log) = LOG.get() {
        log.flush(LAST_LINES);
    }
}

/// Lines that were dropped since the start.
pub(crate) fn dropped() -> u64 {
    LOG.get()
        .map_or(0, |log| log.dropped.load(Ordering::SeqCst))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_stands_still_drops_lines_and_tells_how_many_when_it_goes_on() {
        let log = Log::new(4);
        for n in 0..10 {
            log.hand_over(format!("line {n}\n").as_bytes());
        }
        let (mut written, mut told) = (Vec::new(), 0);
        let mut write = |text: &[u8]| {
            written.push(String::from_utf8_lossy(text).into_owned());
            Ok(())
        };
        log.write_waiting(&mut write, &mut told);
        assert_eq!(written[0], "line 0\n");
        assert!(written[1].ends_with("6 lines of the log were dropped: it could not be written\n"));
        assert_eq!(written[2..], ["line 1\n", "line 2\n", "line 3\n"]);
        log.flush(Duration::ZERO);
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let log = Log::new(4);
        let (mut broken, mut written, mut told) = (true, Vec::new(), 0);
        for n in 0..3 {
            log.hand_over(format!("line {n}\n").as_bytes());
            let mut write = |text: &[u8]| match broken {
                true => Err(io::ErrorKind::BrokenPipe.into()),
                false => {
                    written.push(String::from_utf8_lossy(text).into_owned());
                    Ok(())
                }
            };
            log.write_waiting(&mut write, &mut told);
            broken = n == 0;
        }
        assert_eq!(log.dropped.load(Ordering::SeqCst), 2);
        assert_eq!(told, 2);
        assert_eq!(written[0], "line 2\n");
        assert!(written[1].contains("2 lines of the log were dropped"));
    }

    #[test]
    fn a_long_line_is_cut_and_stays_a_line() {
        let line = Line::of(&[b'x'; 5000]);
        assert_eq!(line.text().len(), LINE_BYTES);
        assert!(line.text().ends_with(b"x...\n"));
    }
}

//! How much memory this process may have, and how much of it arrays have.
//!
//! What bounds it: the machine's memory, the cgroups of the process from its own up to the root (v2
//! `memory.max`, v1 `memory.limit_in_bytes`), and `RLIMIT_AS` and `RLIMIT_DATA`.
//!
//! Invariant: an array is refused before anything is written if its buffers, with those of the
//! arrays that are served already, exceed a bound. A bound that the system does not tell bounds
//! nothing. A client of an array is refused where it would take what the rest of the process needs.
//! `RLIMIT_AS` and `RLIMIT_DATA` bound all memory, and an allocation beyond them ends the process:
//! a part of what they have left is held back for stacks, heaps and administration.
//! Deliberately absent: overcommitting on purpose; buffers are used in full sooner or later.

pub(crate) mod budget;
pub(crate) mod buffers;
pub(crate) mod resident;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Resource, getrlimit};

use crate::error::ServeError;

/// Bytes that arrays of this process, and their clients, have reserved.
static RESERVED: AtomicU64 = AtomicU64::new(0);

/// Bytes of those that are not allocated yet, with what the threads of their arrays need.
static PENDING: AtomicU64 = AtomicU64::new(0);
/// Bytes of those that are promised to arrays which have not started yet.
static PROMISED: AtomicU64 = AtomicU64::new(0);
/// One array is decided on at a time: two that start at once, of which one has room, are not both
/// refused for the other.
static DECIDES: Mutex<()> = Mutex::new(());

/// The part of `RLIMIT_AS` and `RLIMIT_DATA` that arrays leave to all else that the process does,
/// bytes: its own heap and what a scan of devices reads (a few MiB), and some eight threads that
/// answer requests, each with its stack. An allocation that finds nothing ends the process.
const FOR_DAEMON: u64 = 24 << 20;
/// Of that, clients leave so much to administration.
const FOR_ADMINISTRATION: u64 = FOR_DAEMON / 2;
/// And threads that begin leave so much, beside their own stacks, to those that run.
const FOR_THREADS: u64 = 8 << 20;
/// The stack of a thread, with its guard and the stack of its signals, bytes.
const OF_THREAD: u64 = (2 << 20) + (64 << 10);

/// Stacks of threads that have ended, of which the C library keeps so many bytes.
const STACKS_KEPT: u64 = 40 << 20;
/// What may be allocated while an array is made, before it starts: devices are read, and requests
/// are answered.
const FOR_MAKING: u64 = 8 << 20;

/// Threads that are left to the API and to looks at devices.
const SPARE_THREADS: usize = 4;
/// Of an array beside those of its shards: events, and clients of its export.
const THREADS_OF_ARRAY: usize = 2;
/// Of a shard: its own, the one that submits calls that block, and one of the kernel's for those.
const THREADS_OF_SHARD: usize = 3;

/// Threads that are tried before an array of so many shards is started.
pub(crate) fn tried_for(shards: u16) -> usize {
    THREADS_OF_SHARD * usize::from(shards) + THREADS_OF_ARRAY + SPARE_THREADS
}

/// Stacks of an array of so many shards: the kernel's own threads have none here.
fn stacks_of(shards: u16) -> u64 {
    (THREADS_OF_SHARD - 1) as u64 * u64::from(shards) + THREADS_OF_ARRAY as u64
}

/// A reservation; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Reserved {
    bytes: u64,
    pending: AtomicU64,
}

impl Reserved {
    fn new(bytes: u64, pending: u64) -> Reserved {
        let pending = AtomicU64::new(pending);
        Reserved { bytes, pending }
    }

    /// It is allocated: what is left of a limit does not have it any more.
    pub(crate) fn is_allocated(&self) {
        let pending = self.pending.swap(0, Ordering::Relaxed);
        PENDING.fetch_sub(pending, Ordering::Relaxed);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.is_allocated();
        RESERVED.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Memory for an array that is being made: no other array gets it until this one starts, or is
/// given up and this is dropped.
#[derive(Debug)]
pub struct Promise(Mutex<Option<Reserved>>);

impl Promise {
    /// Takes it, or gives it back where it is not enough.
    fn redeem(&self, bytes: u64) -> Option<Reserved> {
        self.take().filter(|reserved| reserved.bytes >= bytes)
    }

    fn take(&self) -> Option<Reserved> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let bytes = kept.as_ref().map_or(0, |reserved| reserved.bytes);
        PROMISED.fetch_sub(bytes, Ordering::Relaxed);
        kept
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// A bound: so many bytes, and what says so.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bound {
    bytes: u64,
    of: String,
}

/// Refuses so much memory for one array where this process may never have as much: whatever others
/// use now, and whichever arrays it serves.
///
/// # Errors
/// What bounds it.
pub fn may_have(bytes: u64) -> Result<(), ServeError> {
    fits(bytes, 0, &bounds())
}

/// What the threads of an array of so many shards need beside its buffers.
fn of_threads(shards: u16) -> u64 {
    stacks_of(shards) * OF_THREAD + u64::from(shards) * resident::OF_SHARD
}

/// Refuses an array that is to be made if it could not be started then: by that time the allocator
/// keeps the stacks of the threads that were tried. What it starts with is kept for it.
pub(crate) fn promise(bytes: u64, shards: u16) -> Result<Promise, ServeError> {
    let tried = (tried_for(shards) as u64 * OF_THREAD).min(STACKS_KEPT);
    let reserved = reserve_beside(bytes, shards, FOR_MAKING + tried)?;
    PROMISED.fetch_add(bytes, Ordering::Relaxed);
    Ok(Promise(Mutex::new(Some(reserved))))
}

/// Reserves memory for an array of so many shards, or takes what was promised to it. What was
/// promised is not decided on once more: while another array allocates, its memory counts twice.
pub(crate) fn reserve(
    bytes: u64,
    shards: u16,
    promised: Option<&Promise>,
) -> Result<Reserved, ServeError> {
    match promised.and_then(|promise| promise.redeem(bytes)) {
        Some(reserved) => Ok(reserved),
        None => reserve_beside(bytes, shards, 0),
    }
}

fn reserve_beside(bytes: u64, shards: u16, beside: u64) -> Result<Reserved, ServeError> {
    // Until after what is refused was given back.
    let _decides = DECIDES.lock().unwrap_or_else(PoisonError::into_inner);
    let others = RESERVED.fetch_add(bytes, Ordering::Relaxed);
    let threads = of_threads(shards) + beside;
    let needs = bytes.saturating_add(threads);
    let pending = PENDING.fetch_add(needs, Ordering::Relaxed);
    let reserved = Reserved::new(bytes, needs);
    fits(bytes, others, &bounds())?;
    // What others have reserved and use is not in there any more; what is promised is.
    let promised = PROMISED.load(Ordering::Relaxed);
    fits(bytes, promised, available().as_slice())?;
    let held = (FOR_DAEMON + threads).saturating_add(pending);
    fits(bytes, 0, &left_beside(held))?;
    Ok(reserved)
}

/// Refuses to begin where so little memory is left that no array could be served.
///
/// # Errors
/// What bounds it, as [`io::ErrorKind::OutOfMemory`].
pub fn check_memory_left() -> io::Result<()> {
    fits(of_threads(1), 0, &left_beside(FOR_DAEMON)).map_err(out_of_memory)
}

/// Refuses a thread if its stack would take the last of the memory.
pub(crate) fn check_for_thread() -> io::Result<()> {
    fits(OF_THREAD, 0, &left_beside(FOR_THREADS)).map_err(out_of_memory)
}

fn out_of_memory(error: ServeError) -> io::Error {
    io::Error::new(io::ErrorKind::OutOfMemory, error)
}

/// Buffers could not be allocated: what has the least left.
pub(crate) fn ran_out(needs: u64) -> ServeError {
    let all = left().into_iter().map(|(bound, _)| bound);
    let tightest = all.chain(available()).min_by_key(|bound| bound.bytes);
    match tightest {
        None => ServeError::io("allocate buffers", io::ErrorKind::OutOfMemory),
        Some(bound) => ServeError::NoMemory {
            needs,
            others: 0,
            has: bound.bytes,
            of: bound.of,
        },
    }
}

/// The part of what bounds this process that clients leave to all else that it does.
const NOT_FOR_CLIENTS: u64 = 4;

/// Reserves memory for a client that connects. Arrays, and what commands need, come first.
pub(crate) fn reserve_for_client(bytes: u64) -> Result<Reserved, ServeError> {
    let left = |bound: Bound| Bound {
        bytes: bound.bytes - bound.bytes / NOT_FOR_CLIENTS,
        of: format!("{}, less a quarter that clients leave", bound.of),
    };
    let others = RESERVED.fetch_add(bytes, Ordering::Relaxed);
    let reserved = Reserved::new(bytes, 0);
    let bounds: Vec<Bound> = bounds().into_iter().map(left).collect();
    fits(bytes, others, &bounds)?;
    let held = FOR_ADMINISTRATION + 2 * OF_THREAD + PENDING.load(Ordering::Relaxed);
    fits(bytes, 0, &left_beside(held))?;
    Ok(reserved)
}

fn fits(bytes: u64, others: u64, bounds: &[Bound]) -> Result<(), ServeError> {
    let exceeded = |bound: &&Bound| bytes.saturating_add(others) > bound.bytes;
    match bounds
        .iter()
        .filter(exceeded)
        .min_by_key(|bound| bound.bytes)
    {
        None => Ok(()),
        Some(bound) => Err(ServeError::NoMemory {
            needs: bytes,
            others,
            has: bound.bytes,
            of: bound.of.clone(),
        }),
    }
}

/// The part of the machine's, or a cgroup's, memory that buffers leave to all else: the kernel ends
/// the process, with all arrays, where there is nothing left.
const NOT_FOR_BUFFERS: u64 = 8;

/// What bounds the buffers of this process for good.
fn bounds() -> Vec<Bound> {
    let mut all: Vec<Bound> = meminfo("MemTotal").into_iter().collect();
    all.extend(cgroups(Path::new("/"), Path::new("/proc/self/cgroup")));
    for bound in &mut all {
        bound.bytes -= bound.bytes / NOT_FOR_BUFFERS;
        bound.of = format!("seven eighths of {}", bound.of);
    }
    for (resource, name, _) in LIMITS {
        if let Some(limit) = getrlimit(resource).current {
            let of = format!("{name} of the process, {limit} bytes, less what the daemon needs");
            let bytes = limit.saturating_sub(FOR_DAEMON);
            all.push(Bound { bytes, of });
        }
    }
    all
}

/// Of the machine's memory, as the kernel counts it.
fn meminfo(field: &str) -> Option<Bound> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    Some(Bound {
        bytes: field_bytes(&text, field)?,
        of: format!("{field} of this machine"),
    })
}

fn available() -> Option<Bound> {
    meminfo("MemAvailable")
}

/// Limits of the process's own memory, and what of `/proc/self/status` counts against each. Private
/// mappings that can be written are data.
const LIMITS: [(Resource, &str, &str); 2] = [
    (Resource::As, "RLIMIT_AS", "VmSize"),
    (Resource::Data, "RLIMIT_DATA", "VmData"),
];

/// The tightest limit of the process's own memory.
pub(crate) fn tightest_limit() -> Option<u64> {
    let limits = LIMITS.iter().map(|&(resource, ..)| getrlimit(resource));
    limits.filter_map(|limit| limit.current).min()
}

/// What is left of the limits of the process's own memory, and the name and value of each.
fn left() -> Vec<(Bound, String)> {
    if tightest_limit().is_none() {
        return Vec::new();
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let left = |&(resource, name, field): &(Resource, &str, &str)| {
        let limit = getrlimit(resource).current?;
        let named = format!("{name}, {limit} bytes");
        let bytes = limit.saturating_sub(field_bytes(&status, field)?);
        let of = format!("what is left of {named}");
        Some((Bound { bytes, of }, named))
    };
    LIMITS.iter().filter_map(left).collect()
}

/// The same, less what is held back.
fn left_beside(held: u64) -> Vec<Bound> {
    let less = |(bound, named): (Bound, String)| Bound {
        bytes: bound.bytes.saturating_sub(held),
        of: format!(
            "what is left of {named}, less {held} bytes for the daemon, and for stacks and heaps \
             of threads"
        ),
    };
    left().into_iter().map(less).collect()
}

/// Of a text as the kernel writes it: `Field:   4 kB`.
fn field_bytes(text: &str, field: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(field));
    let value = lines.find_map(|rest| rest.strip_prefix(':'))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Limits of the cgroups that the process is in, from its own up to the root.
fn cgroups(root: &Path, own: &Path) -> Vec<Bound> {
    let mut bounds = Vec::new();
    for folder in cgroup_folders(root, own, "memory") {
        for file in ["memory.max", "memory.limit_in_bytes"] {
            let file = folder.join(file);
            // `max`, or no file at all: no limit here.
            let limit = fs::read_to_string(&file).ok();
            if let Some(bytes) = limit.and_then(|text| text.trim().parse().ok()) {
                let of = file.display().to_string();
                bounds.push(Bound { bytes, of });
            }
        }
    }
    bounds
}

/// Folders of the cgroups (v2, and v1 of this controller) that the process is in, from its own up
/// to the root.
pub(crate) fn cgroup_folders(root: &Path, own: &Path, controller: &str) -> Vec<PathBuf> {
    let text = fs::read_to_string(own).unwrap_or_default();
    let mut all = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let top = root.join("sys/fs/cgroup");
        let top = match controllers {
            "" => top,
            list if list.split(',').any(|c| c == controller) => top.join(controller),
            _ => continue,
        };
        let place: PathBuf = top.join(path.trim_start_matches('/'));
        let above = place.ancestors().map(Path::to_owned);
        all.extend(above.take_while(|folder| folder.starts_with(&top)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_every_cgroup_up_to_the_root_bounds() {
        let root = tempfile::tempdir().expect("a folder for temporary files");
        let write = |path: &str, text: &str| {
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().expect("it has one")).expect("writable");
            fs::write(file, text).expect("writable");
        };
        write("own", "4:cpu,memory:/a/b\n0::/x/y\n");
        write("sys/fs/cgroup/x/y/memory.max", "max\n");
        write("sys/fs/cgroup/x/memory.max", "1000\n");
        write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "70\n");
        write(
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        let found = cgroups(root.path(), &root.path().join("own"));
        let bytes: Vec<u64> = found.iter().map(|bound| bound.bytes).collect();
        assert_eq!(bytes, [70, 9_223_372_036_854_771_712, 1000]);
        let error = fits(60, 11, &found).expect_err("71 of 70");
        assert!(
            error.to_string().contains("memory.limit_in_bytes"),
            "{error}"
        );
        assert!(fits(60, 10, &found).is_ok());
    }

    #[test]
    fn no_machine_has_as_much_as_this() {
        let error = may_have(u64::MAX / 2).expect_err("too much");
        assert!(matches!(error, ServeError::NoMemory { .. }), "{error}");
        assert!(reserve(u64::MAX / 2, 1, None).is_err());
        drop(reserve(1 << 20, 1, None).expect("a MiB is there"));
    }

    #[test]
    fn what_is_promised_is_nobody_elses_and_is_taken_once() {
        let promise = promise(5 << 20, 1).expect("5 MiB are there");
        let kept = |promise: &Promise| {
            let kept = promise.0.lock().expect("no thread panics");
            kept.as_ref().map(|reserved| reserved.bytes)
        };
        assert_eq!(kept(&promise), Some(5 << 20));
        // Beside it, and in its place.
        drop(reserve(1 << 20, 1, None).expect("a MiB is there"));
        assert_eq!(kept(&promise), Some(5 << 20));
        let reserved = reserve(5 << 20, 1, Some(&promise)).expect("what was promised");
        assert_eq!((kept(&promise), reserved.bytes), (None, 5 << 20));
        let more = reserve(6 << 20, 1, Some(&promise)).expect("6 MiB are there");
        assert_eq!(more.bytes, 6 << 20);
    }

    #[test]
    fn what_an_array_is_about_to_allocate_counts_until_it_is_allocated() {
        let reserved = Reserved::new(0, 7 << 40);
        PENDING.fetch_add(7 << 40, Ordering::Relaxed);
        assert!(PENDING.load(Ordering::Relaxed) >= 7 << 40);
        reserved.is_allocated();
        assert!(PENDING.load(Ordering::Relaxed) < 7 << 40);
        // Not twice.
        drop(reserved);
        assert!(PENDING.load(Ordering::Relaxed) < 7 << 40);
    }

    #[test]
    fn data_is_told_from_the_address_space_in_what_the_kernel_says() {
        let status = "Name:\tx\nVmSize:\t  791156 kB\nVmData:\t   25812 kB\n";
        assert_eq!(field_bytes(status, "VmData"), Some(25812 << 10));
        assert_eq!(field_bytes(status, "VmSize"), Some(791_156 << 10));
        assert_eq!(field_bytes(status, "Vm"), None);
        let own = fs::read_to_string("/proc/self/status").expect("it runs");
        let bytes = |field| field_bytes(&own, field).expect("the kernel counts it");
        assert!(bytes("VmData") < bytes("VmSize"), "{own}");
    }
}

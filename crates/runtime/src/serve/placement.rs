//! What an array may take of this machine, and where on it its threads run.
//!
//! Order of the choice of CPUs: those that were given, else those of the NUMA nodes of the drives,
//! else all that the process may use.
//!
//! Invariants: no CPU outside those that the process may use is ever asked for; a machine that
//! tells nothing of NUMA, or has one node, is one on which nothing is near or far.
//!
//! Deliberately absent: moving an array that serves; memory policies (a shard's thread touches its
//! memory first, so it lies on the node that the thread is bound to).

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::thread::CpuSet;
use strake_engine::{Geometry, limits};

use crate::device::set::Devices;
use crate::error::ServeError;
use crate::export::{ExportKind, Plan};
use crate::memory::Promise;

/// What was asked for; the default leaves everything to the runtime.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// CPUs that the array's threads may use; empty: chosen by where the drives are.
    pub cpus: Vec<usize>,
    /// Buffer memory of all shards together, with that of ublk queues, bytes.
    pub memory_limit_bytes: Option<u64>,
    /// Requests under way at most.
    pub requests: Option<NonZeroU32>,
    /// Memory that is kept for it already, since [`crate::may_make`].
    pub promised: Option<Arc<Promise>>,
}

/// What an array has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Threads.
    pub shards: u16,
    /// For each thread the CPUs that it is bound to; empty where it is not.
    pub cpus: Vec<Vec<usize>>,
    /// NUMA nodes of the members, as far as the kernel tells.
    pub nodes: BTreeSet<u32>,
    /// Buffer memory of all shards together, with that of ublk queues, bytes.
    pub memory_bytes: u64,
}

/// CPUs that this process may use, in order.
pub fn usable_cpus() -> Vec<usize> {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else {
        return Vec::new();
    };
    let all = 0..CpuSet::MAX_CPU;
    all.filter(|&cpu| allowed.is_set(cpu)).collect()
}

/// Reads a list as the kernel writes it: `0-3,8`.
pub fn parse_cpus(text: &str) -> Option<Vec<usize>> {
    let mut cpus = BTreeSet::new();
    for range in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= CpuSet::MAX_CPU {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus.into_iter().collect())
}

/// Writes such a list; `cpus` in ascending order.
pub fn cpus_text(cpus: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let text = |(first, last): (usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(",")
}

/// The NUMA nodes of the devices, and the CPUs of these nodes, a CPU of each node in turn. None
/// where the machine does not tell for every device.
fn near(devices: &Devices) -> (BTreeSet<u32>, Vec<usize>) {
    let sys = Path::new("/sys");
    let nodes: Option<BTreeSet<u32>> = devices
        .all()
        .iter()
        .map(|(_, device)| node_of(sys, device.number()))
        .collect();
    let nodes = nodes.unwrap_or_default();
    let cpus = cpus_of(sys, &nodes);
    (nodes, cpus)
}

/// The node of the device `number`: told by the first of its ancestors in sysfs that has one.
fn node_of(sys: &Path, number: u64) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let link = sys.join(format!("dev/block/{major}:{minor}"));
    let place: PathBuf = fs::canonicalize(link).ok()?;
    let node = |dir: &Path| fs::read_to_string(dir.join("numa_node")).ok();
    // -1: on no node.
    place.ancestors().find_map(node)?.trim().parse().ok()
}

fn cpus_of(sys: &Path, nodes: &BTreeSet<u32>) -> Vec<usize> {
    let lists: Vec<Vec<usize>> = nodes
        .iter()
        .filter_map(|node| {
            let list = sys.join(format!("devices/system/node/node{node}/cpulist"));
            parse_cpus(&fs::read_to_string(list).ok()?)
        })
        .collect();
    let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
    let nth = |n: usize| lists.iter().filter_map(move |list| list.get(n).copied());
    (0..longest).flat_map(nth).collect()
}

/// Which CPUs threads are bound to.
#[derive(Debug, Default)]
pub(crate) struct Pinning {
    by_shard: Vec<Vec<usize>>,
    nodes: BTreeSet<u32>,
}

impl Pinning {
    /// Chooses for an array on these devices. Arrays take turns around the CPUs.
    pub(crate) fn choose(placement: &Placement, devices: &Devices, shards: u16) -> Pinning {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let usable = usable_cpus();
        let (nodes, near) = near(devices);
        let first = NEXT.fetch_add(usize::from(shards), Ordering::Relaxed);
        let given = placement.cpus.iter().any(|cpu| usable.contains(cpu));
        if !given && !placement.cpus.is_empty() {
            let wanted = cpus_text(&placement.cpus);
            tracing::warn!(wanted, "none of the array's CPUs is here: others are used");
        }
        Pinning {
            by_shard: by_shard(&usable, &placement.cpus, &near, usize::from(shards), first),
            nodes,
        }
    }

    /// The CPUs of a shard; empty: it is not bound.
    pub(crate) fn cpus(&self, shard: u16) -> &[usize] {
        self.by_shard.get(usize::from(shard)).map_or(&[], |c| c)
    }

    /// What an array of these threads has.
    pub(crate) fn placed(&self, shards: u16, memory_bytes: u64) -> Placed {
        Placed {
            shards,
            cpus: self.by_shard.clone(),
            nodes: self.nodes.clone(),
            memory_bytes,
        }
    }
}

/// For each shard the CPUs that it is bound to; none: shards are not bound.
///
/// A CPU each where there are as many as shards. Of CPUs that were not configured there must be
/// twice as many, and four at least: then users of the array keep as many. Fewer are shared by all
/// shards.
fn by_shard(
    usable: &[usize],
    given: &[usize],
    near: &[usize],
    shards: usize,
    first: usize,
) -> Vec<Vec<usize>> {
    let among = |wanted: &[usize]| -> Vec<usize> {
        let here = |cpu: &&usize| usable.contains(cpu);
        wanted.iter().filter(here).copied().collect()
    };
    let given = among(given);
    if !given.is_empty() {
        return match given.len() >= shards {
            true => given[..shards].iter().map(|&cpu| vec![cpu]).collect(),
            false => vec![given; shards],
        };
    }
    let near = among(near);
    let pool = if near.is_empty() { usable } else { &near };
    if pool.len() >= 4.max(2 * shards) {
        let cpu = |shard: usize| vec![pool[(first + shard) % pool.len()]];
        return (0..shards).map(cpu).collect();
    }
    match pool.len() < usable.len() {
        true => vec![pool.to_vec(); shards],
        false => Vec::new(),
    }
}

/// Binds the calling thread; to nothing where there is nothing.
pub(crate) fn pin(cpus: &[usize]) {
    if cpus.is_empty() {
        return;
    }
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu);
    }
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!(%error, cpus = cpus_text(cpus), "a thread is not bound to its CPUs");
    }
}

/// Sizes and counts of buffers, as `Pool::new` takes them.
type Stock = Vec<(usize, usize)>;

pub(super) fn bytes_of(stock: &[(usize, usize)]) -> u64 {
    stock
        .iter()
        .map(|&(size, count)| (size as u64).saturating_mul(count as u64))
        .fold(0, u64::saturating_add)
}

/// The buffers of each shard: of `each_bytes`, or what the limit leaves beside its ublk queue.
///
/// # Errors
/// The limit is less than the array needs to go on at all.
pub(crate) fn stock_of_shard(
    geometry: &Geometry,
    each_bytes: usize,
    limit_bytes: Option<u64>,
    shards: u16,
    queue: &[(usize, usize)],
) -> Result<Stock, ServeError> {
    let Some(limit_bytes) = limit_bytes else {
        return Ok(limits::stock(geometry, each_bytes));
    };
    let least = limits::stock(geometry, 0);
    let share = limit_bytes / u64::from(shards);
    if share < memory_bytes(&least, 1, queue) {
        let least_bytes = memory_bytes(&least, shards, queue);
        return Err(ServeError::MemoryLimit {
            limit_bytes,
            least_bytes,
            shards,
        });
    }
    let budget = usize::try_from(share - bytes_of(queue)).unwrap_or(usize::MAX / 4);
    let stock = limits::stock(geometry, budget);
    // Strips that are needed in any case take more than their part of a small budget.
    Ok(match bytes_of(&stock) <= budget as u64 {
        true => stock,
        false => least,
    })
}

/// The least buffer memory with which so many shards can serve such an array, bytes.
pub fn least_memory_bytes(geometry: &Geometry, export: ExportKind, shards: u16) -> u64 {
    // Where the export cannot be had, its start says so.
    let queue = Plan::choose(export, None, None)
        .ok()
        .and_then(|plan| plan.stock());
    let least = limits::stock(geometry, 0);
    memory_bytes(&least, shards, &queue.unwrap_or_default())
}

/// The limit with which each of so many shards has as many buffers of a strip, bytes: three
/// quarters of what it has are such buffers ([`limits::stock`]).
pub(crate) fn memory_for_strips(strip: u64, strips: usize, export: ExportKind, shards: u16) -> u64 {
    let queue = Plan::choose(export, None, None)
        .ok()
        .and_then(|plan| plan.stock());
    let budget = (strips as u64 * strip).div_ceil(3) * 4;
    (budget + bytes_of(&queue.unwrap_or_default())) * u64::from(shards)
}

/// Buffer memory of all shards, bytes.
pub(crate) fn memory_bytes(stock: &[(usize, usize)], shards: u16, queue: &[(usize, usize)]) -> u64 {
    let each = bytes_of(stock).saturating_add(bytes_of(queue));
    each.saturating_mul(u64::from(shards))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read_and_written_as_the_kernel_does() {
        assert_eq!(parse_cpus("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse_cpus("8,0-1,1"), Some(vec![0, 1, 8]));
        assert_eq!(parse_cpus(""), Some(vec![]));
        for wrong in ["a", "3-1", "1-", "-1", "1,,2", "0-99999", "1 2"] {
            assert_eq!(parse_cpus(wrong), None, "{wrong}");
        }
        assert_eq!(cpus_text(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
    }

    #[test]
    fn cpus_that_are_given_are_used_and_no_others() {
        let usable: Vec<usize> = (0..8).collect();
        let near = [4, 5, 6, 7];
        assert_eq!(by_shard(&usable, &[1, 2, 3], &near, 2, 5), [[1], [2]]);
        assert_eq!(
            by_shard(&usable, &[1], &near, 2, 5),
            [[1], [1]],
            "fewer than shards are shared"
        );
        assert_eq!(
            by_shard(&usable, &[7, 20], &near, 2, 0),
            [[7], [7]],
            "those that are not here do not count"
        );
        assert_eq!(
            by_shard(&usable, &[20], &[], 2, 0),
            [[0], [1]],
            "an array from another machine starts all the same"
        );
    }

    #[test]
    fn threads_run_beside_their_drives_where_that_is_told() {
        let usable: Vec<usize> = (0..16).collect();
        let node_1: Vec<usize> = (8..16).collect();
        assert_eq!(by_shard(&usable, &[], &node_1, 2, 0), [[8], [9]]);
        assert_eq!(
            by_shard(&usable, &[], &node_1, 2, 7),
            [[15], [8]],
            "arrays take turns"
        );
        assert_eq!(
            by_shard(&usable, &[], &node_1[..3], 2, 0),
            [[8, 9, 10], [8, 9, 10]],
            "too few for one each: the node's are shared"
        );
    }

    #[test]
    fn few_cpus_are_left_to_the_kernel() {
        let none: [[usize; 0]; 0] = [];
        assert_eq!(by_shard(&[0, 1], &[], &[], 2, 0), none);
        assert_eq!(by_shard(&[0, 1, 2, 3], &[], &[], 2, 0), [[0], [1]]);
        assert_eq!(by_shard(&[0, 1, 2, 3], &[], &[], 3, 0), none);
    }

    /// A tree like /sys: an NVMe namespace below a PCI function on node 1, and two nodes.
    fn machine() -> tempfile::TempDir {
        let sys = tempfile::tempdir().expect("a folder for temporary files");
        let at = |path: &str| sys.path().join(path);
        let write = |path: &str, text: &str| {
            let file = at(path);
            fs::create_dir_all(file.parent().expect("it has one")).expect("writable");
            fs::write(file, text).expect("writable");
        };
        write("devices/pci0/nvme/nvme0/nvme0n1/size", "8\n");
        write("devices/pci0/numa_node", "1\n");
        write("devices/pci1/nvme/nvme1/nvme1n1/size", "8\n");
        write("devices/pci1/numa_node", "-1\n");
        write("devices/system/node/node0/cpulist", "0-2\n");
        write("devices/system/node/node1/cpulist", "3-4,7\n");
        fs::create_dir_all(at("dev/block")).expect("writable");
        let links = [
            ("259:0", "pci0/nvme/nvme0/nvme0n1"),
            ("259:1", "pci1/nvme/nvme1/nvme1n1"),
        ];
        for (number, place) in links {
            let target = at("devices").join(place);
            std::os::unix::fs::symlink(target, at("dev/block").join(number)).expect("writable");
        }
        sys
    }

    #[test]
    fn a_drive_s_node_is_that_of_its_controller() {
        let sys = machine();
        let node = |minor| node_of(sys.path(), rustix::fs::makedev(259, minor));
        assert_eq!(node(0), Some(1));
        assert_eq!(node(1), None, "the kernel says that it is on none");
        assert_eq!(node(2), None, "a device that is not there");
    }

    #[test]
    fn drives_on_several_nodes_have_threads_on_each() {
        let sys = machine();
        let cpus = |nodes: &[u32]| cpus_of(sys.path(), &nodes.iter().copied().collect());
        assert_eq!(cpus(&[1]), [3, 4, 7]);
        assert_eq!(cpus(&[0, 1]), [0, 3, 1, 4, 2, 7]);
        assert_eq!(cpus(&[]), [0; 0]);
        assert_eq!(cpus(&[5]), [0; 0]);
    }
}

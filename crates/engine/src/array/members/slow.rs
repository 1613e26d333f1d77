//! Members that are far slower than the others, and what `show` tells of latencies.
//!
//! A member is *slow* when what 95 of 100 of its reads (or of its writes) stayed below is more than
//! four times what it is on the others (their median), and that for [`HedgeRules::slow_after_ns`]
//! in use; no longer so when it was less than twice that for as long. Differences below the floor
//! of hedged reads count for nothing.
//!
//! Invariants:
//! * Being slow changes nothing but what is told: a member is failed by errors and silence alone.
//! * Verdicts come with the shards' reports, so none on an array that is idle.
//!
//! Deliberately absent: hedged reads themselves (`shard::read::hedge`), which need no verdict.

use crate::array::Array;
use crate::proto::status::{LatencyStatus, Quantiles};
use crate::proto::*;
use crate::stats::device_latency::{HedgeCounts, HedgeRules, Latencies, USUAL, median};
use crate::stats::histogram::{Distribution, Histogram};
use crate::units::*;

/// More than so many times the others' is slow.
const SLOW_FACTOR: u64 = 4;
/// Less than so many times is not.
const QUICK_FACTOR: u64 = 2;

/// What the array knows of a member's latencies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    /// What each shard told last.
    shards: Vec<Option<Box<Latencies>>>,
    slow: bool,
    /// Since when it looks other than `slow` says, and when that was seen last.
    since: Option<(Time, Time)>,
}

impl Watch {
    fn told(&mut self, shard: ShardNo, latencies: Box<Latencies>) {
        let at = usize::from(shard.0);
        if self.shards.len() <= at {
            self.shards.resize(at + 1, None);
        }
        self.shards[at] = Some(latencies);
    }

    /// Of all shards together.
    fn histogram(&self, write: bool) -> Histogram {
        let mut all = Histogram::default();
        for latencies in self.shards.iter().flatten() {
            all.add(match write {
                true => &latencies.write.recent,
                false => &latencies.read.recent,
            });
        }
        all
    }

    /// All since it came, of all shards together.
    fn distribution(&self, write: bool) -> Distribution {
        let mut all = Distribution::default();
        for latencies in self.shards.iter().flatten() {
            all.add(&match write {
                true => latencies.write.all(),
                false => latencies.read.all(),
            });
        }
        all
    }

    pub(crate) fn status(&self) -> LatencyStatus {
        let mut hedges = HedgeCounts::default();
        for latencies in self.shards.iter().flatten() {
            hedges.add(&latencies.hedges);
        }
        let quantiles = |write| {
            let histogram = self.histogram(write);
            Some(Quantiles {
                p50_ns: histogram.quantile_ns(500)?,
                p99_ns: histogram.quantile_ns(990)?,
                p999_ns: histogram.quantile_ns(999)?,
            })
        };
        LatencyStatus {
            read: quantiles(false),
            write: quantiles(true),
            all_reads: self.distribution(false),
            all_writes: self.distribution(true),
            hedges,
            slow: self.slow,
        }
    }
}

/// How a member stands beside the others.
#[derive(Clone, Copy, Debug)]
struct Beside {
    write: bool,
    usual_ns: u64,
    peers_ns: u64,
}

impl Beside {
    fn is_slow(&self, floor_ns: u64) -> bool {
        self.usual_ns > floor_ns && self.usual_ns > self.peers_ns.saturating_mul(SLOW_FACTOR)
    }

    fn is_quick(&self, floor_ns: u64) -> bool {
        self.usual_ns <= floor_ns || self.usual_ns < self.peers_ns.saturating_mul(QUICK_FACTOR)
    }
}

impl Array {
    /// A shard tells how long members take.
    pub(crate) fn latencies_told(
        &mut self,
        from: ShardNo,
        report: Vec<(DeviceId, Box<Latencies>)>,
    ) {
        for (device, latencies) in report {
            if let Some(member) = self.table.get_mut(device) {
                member.watch.told(from, latencies);
            }
        }
        self.judge();
    }

    /// Each member in sync beside the others.
    fn judge(&mut self) {
        let HedgeRules {
            samples_min,
            floor_ns,
            slow_after_ns,
            ..
        } = self.hedging;
        let usual = |device: DeviceId, write: bool| {
            let histogram = self.table[&device].watch.histogram(write);
            let known = histogram.count() >= u64::from(samples_min);
            histogram.quantile_ns(USUAL).filter(|_| known)
        };
        let devices: Vec<(Slot, DeviceId)> = (0..)
            .map(Slot)
            .zip(self.table.slots())
            .filter_map(|(slot, place)| Some((slot, place.current()?)))
            .collect();
        let mut beside: Vec<Vec<Beside>> = vec![Vec::new(); devices.len()];
        for write in [false, true] {
            let known: Vec<Option<u64>> = devices.iter().map(|&(_, d)| usual(d, write)).collect();
            let mut all: Vec<u64> = known.iter().flatten().copied().collect();
            let peers = median(&mut all).filter(|_| all.len() > 1);
            for (beside, usual_ns) in beside.iter_mut().zip(known) {
                beside.extend(usual_ns.zip(peers).map(|(usual_ns, peers_ns)| Beside {
                    write,
                    usual_ns,
                    peers_ns,
                }));
            }
        }
        for ((slot, device), beside) in devices.into_iter().zip(beside) {
            let now = self.out.now();
            let watch = &mut self.table.get_mut(device).expect("it serves").watch;
            let slowest = beside.iter().find(|one| one.is_slow(floor_ns)).copied();
            let other = match watch.slow {
                false => slowest.is_some(),
                true => !beside.is_empty() && beside.iter().all(|one| one.is_quick(floor_ns)),
            };
            if !other {
                watch.since = None;
                continue;
            }
            // While nothing was read or written nothing was slow; a pause that one read alone may
            // take is not that.
            let going_on = |(_, seen): &(Time, Time)| now.since(*seen) <= slow_after_ns / 2;
            let (first, _) = watch.since.filter(going_on).unwrap_or((now, now));
            watch.since = Some((first, now));
            if now.since(first) < slow_after_ns {
                continue;
            }
            (watch.slow, watch.since) = (!watch.slow, None);
            self.out.event(match slowest {
                Some(one) => EventKind::MemberSlow {
                    slot,
                    device,
                    write: one.write,
                    usual_ns: one.usual_ns,
                    peers_ns: one.peers_ns,
                },
                None => EventKind::MemberNoLongerSlow { slot, device },
            });
        }
    }
}

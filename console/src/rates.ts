// Rates of arrays and members: differences of what the daemon has counted, by the time between.
//
// The same arithmetic as `strake iostat`: what began anew meanwhile counts from zero; within a
// bucket of the histogram latencies are taken to be spread evenly.

import type { IoStats, Stats } from "./api";

export interface Io {
  perSecond: number;
  bytesPerSecond: number;
  /** Absent where there were none. */
  meanUs?: number;
  p99Us?: number;
}

export interface Rates {
  read: Io;
  write: Io;
}

export interface Sample extends Rates {
  members: Map<number, Rates>;
}

function io(before: IoStats | undefined, now: IoStats, seconds: number): Io {
  const old = before && before.count <= now.count ? before : undefined;
  const per = (value: number) => (seconds > 0 ? value / seconds : 0);
  const done: Io = {
    perSecond: per(now.count - (old?.count ?? 0)),
    bytesPerSecond: per(now.bytes - (old?.bytes ?? 0)),
  };
  const count = now.latency.count - (old?.latency.count ?? 0);
  if (count <= 0) return done;
  const sum = now.latency.sum_ns - (old?.latency.sum_ns ?? 0);
  return { ...done, meanUs: sum / count / 1e3, p99Us: p99(old, now, count) / 1e3 };
}

function p99(old: IoStats | undefined, now: IoStats, count: number): number {
  const wanted = 0.99 * count;
  let low = 0;
  let below = 0;
  for (const [at, bucket] of now.latency.buckets.entries()) {
    const upTo = bucket.count - (old?.latency.buckets[at]?.count ?? 0);
    if (upTo >= wanted) {
      const share = (wanted - below) / (upTo - below);
      return Math.min(low + share * (bucket.below_ns - low), now.latency.max_ns);
    }
    [low, below] = [bucket.below_ns, upTo];
  }
  return now.latency.max_ns;
}

/** What happened between two samples; undefined where the array was started meanwhile. */
export function rates(before: Stats | undefined, now: Stats): Sample | undefined {
  if (!before || before.served_ns >= now.served_ns) return undefined;
  const seconds = (now.served_ns - before.served_ns) / 1e9;
  const members = new Map<number, Rates>();
  for (const member of now.members) {
    const old = before.members.find(
      (one) => one.slot === member.slot && one.device === member.device,
    );
    members.set(member.slot, {
      read: io(old?.reads, member.reads, seconds),
      write: io(old?.writes, member.writes, seconds),
    });
  }
  return {
    read: io(before.reads, now.reads, seconds),
    write: io(before.writes, now.writes, seconds),
    members,
  };
}

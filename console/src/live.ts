// What the page knows of the daemon, kept up to date.
//
// Order: the daemon says which it is → the stream of events opens, and everything is read once →
// each event says what to read again. Counts, and how far jobs are, are read every two seconds while
// the page is visible and an array serves. A hidden page reads nothing and follows nothing: browsers
// have six connections for a server, and each stream takes one. Two reads of the same thing never
// overlap; one that failed is shown as failed, and tried again, ever more rarely.

import { useEffect, useSyncExternalStore } from "react";

import type {
  Alerts,
  Array as ArrayInfo,
  Drive,
  Event as DaemonEvent,
  Job,
  Pool,
  Stats,
  Version,
} from "./api";
import { ApiFailure, door } from "./door";
import { rates, type Sample } from "./rates";

export const SAMPLE_MS = 2000;
/** Samples that are drawn: two minutes. */
const SAMPLES = 60;
const EVENTS = 1000;
const RETRY_MS = [1000, 2000, 5000, 10000];
/** Events come in crowds; one look is enough for a crowd. */
const SETTLE_MS = 250;
/** How often the daemon is asked whether it is still that whose events are followed. */
const ALIVE_MS = 30_000;
/** A stream that lasted so long was a good one. */
const LASTED_MS = 10_000;

const pause = (tries: number): number => RETRY_MS[Math.min(tries, RETRY_MS.length) - 1] ?? 0;
const isVisible = (): boolean => document.visibilityState === "visible";

export interface Live {
  link: "connecting" | "open" | "lost" | "over";
  /** What could not be read, and is tried again; or why the session is over. */
  failure?: ApiFailure;
  version?: Version;
  arrays?: ArrayInfo[];
  pools?: Pool[];
  alerts?: Alerts;
  drives?: Drive[];
  /** The oldest first. */
  events: DaemonEvent[];
  /** By uuid of the array. */
  samples: Map<string, Sample[]>;
  jobs: Map<string, Job[]>;
}

let live: Live = { link: "connecting", events: [], samples: new Map(), jobs: new Map() };
const listeners = new Set<() => void>();

function set(change: Partial<Live>): void {
  live = { ...live, ...change };
  for (const listener of listeners) listener();
}

export function useLive(): Live {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => live,
  );
}

/** What failed last, by what was read. */
const failures = new Map<object, ApiFailure>();

/** Keeps what is wrong with a read, or that nothing is. */
function note(what: object, failure?: ApiFailure): void {
  if (live.link === "over") return;
  if (failure) failures.set(what, failure);
  else if (!failures.delete(what)) return;
  set({ failure: failures.values().next().value });
}

function fail(what: object, error: unknown): void {
  if (!(error instanceof ApiFailure)) throw error;
  if (error.isOver) over(error);
  else note(what, error);
}

/** A thing that is read again when something happened to it, or when reading it failed. */
class Kept {
  private timer: number | undefined;
  private due = 0;
  private busy = false;
  private again = false;
  private tries = 0;
  constructor(private readonly read: () => Promise<void>) {}
  soon(after = SETTLE_MS): void {
    const due = Date.now() + after;
    if (this.timer !== undefined && this.due <= due) return;
    window.clearTimeout(this.timer);
    this.due = due;
    this.timer = window.setTimeout(() => void this.now(), after);
  }
  async now(): Promise<void> {
    window.clearTimeout(this.timer);
    this.timer = undefined;
    if (this.busy) {
      this.again = true;
      return;
    }
    this.busy = true;
    await this.read().then(
      () => {
        this.tries = 0;
        note(this);
      },
      (error: unknown) => {
        this.tries += 1;
        fail(this, error);
        // Where there is no link, all is read when there is one.
        if (live.link === "open" && isVisible()) this.soon(pause(this.tries));
      },
    );
    this.busy = false;
    if (this.again) {
      this.again = false;
      this.soon();
    }
  }
}

const get = <T>(path: string): Promise<T> => door.request<T>("GET", path);

const arrays = new Kept(async () => set({ arrays: await get<ArrayInfo[]>("v1/arrays") }));
const pools = new Kept(async () => set({ pools: await get<Pool[]>("v1/pools") }));
const alerts = new Kept(async () => set({ alerts: await get<Alerts>("v1/alerts") }));
/** Views that show drives; every drive is looked at for each read, so others cause none. */
let driveViews = 0;
const drives = new Kept(async () => {
  if (driveViews > 0) set({ drives: await get<Drive[]>("v1/drives") });
});

/** All that an action of this page, or an event, may have changed. */
export function refresh(): void {
  arrays.soon();
  pools.soon();
  if (driveViews > 0) drives.soon();
}

export function refreshAlerts(): void {
  alerts.soon(0);
}

/** The drives, read while something shows them. */
export function useDrives(): Drive[] | undefined {
  const { drives: known } = useLive();
  useEffect(() => {
    driveViews += 1;
    drives.soon(0);
    return () => {
      driveViews -= 1;
    };
  }, []);
  return known;
}

// ---- events -----------------------------------------------------------------------------------

let next = 0;
let heard: DaemonEvent[] = [];
let flush: number | undefined;
/** The link, among what may fail. */
const LINK = {};
/** Which attempt to follow counts: what is left of those before does nothing. */
let turn = 0;
let tries = 0;
let retry: number | undefined;
let alive: number | undefined;
let end: (() => void) | undefined;

function hear(event: DaemonEvent): void {
  if (event.sequence < next) return;
  next = event.sequence + 1;
  heard.push(event);
  // The first read brings hundreds at once.
  flush ??= window.setTimeout(() => {
    flush = undefined;
    set({ events: [...live.events, ...heard].slice(-EVENTS) });
    if (heard.some((one) => one.event.startsWith("alert_"))) alerts.soon();
    heard = [];
    refresh();
  }, 50);
}

/** What was heard is not of this daemon: it may number its events anew. */
function forgetEvents(): void {
  next = 0;
  heard = [];
  set({ events: [] });
}

/** Ends what is followed. */
function leave(): void {
  turn += 1;
  window.clearTimeout(retry);
  window.clearInterval(alive);
  end?.();
  end = undefined;
}

function follow(): void {
  leave();
  const mine = turn;
  let since = Number.POSITIVE_INFINITY;
  const again = (failure?: ApiFailure) => {
    if (mine !== turn || live.link === "over") return;
    if (failure?.isOver) return over(failure);
    leave();
    if (Date.now() - since > LASTED_MS) tries = 0;
    // One that ends without a reason says nothing of the daemon: that is asked next.
    note(LINK, failure);
    set({ link: failure ? "lost" : "connecting" });
    retry = window.setTimeout(follow, failure ? pause(tries + 1) : pause(tries));
    tries += 1;
  };
  /** Whether the daemon is still that of the events that are known. */
  const ask = async (): Promise<boolean> => {
    const version = await get<Version>("v1/version");
    if (mine !== turn) return false;
    const same = live.version === undefined || live.version.pid === version.pid;
    if (!same) forgetEvents();
    set({ version });
    return same;
  };
  const failed = (error: unknown) => {
    if (!(error instanceof ApiFailure)) throw error;
    again(error);
  };
  const check = () => void ask().then((same) => same || again(), failed);
  const open = () => {
    if (mine !== turn) return;
    // What is between may keep a stream's head until its first event, which may never come.
    since = Date.now();
    set({ link: "open" });
    note(LINK);
    void alerts.now();
    refresh();
    alive = window.setInterval(check, ALIVE_MS);
    end = door.follow(next, {
      // The daemon may be another one since it was asked.
      onOpen: check,
      onEvent: (event) => mine === turn && hear(event),
      onGap(sequence) {
        if (mine !== turn) return;
        if (sequence < next) forgetEvents();
        next = sequence;
      },
      onEnd: again,
    });
  };
  ask().then(open, failed);
}

/** The session is over: nothing is asked any more. */
export function over(failure: ApiFailure): void {
  set({ link: "over", failure });
  window.clearTimeout(sampling);
  leave();
}

// ---- counts -----------------------------------------------------------------------------------

/** The counts, among what may fail. */
const COUNTS = {};
let before = new Map<string, Stats>();
let sampling: number | undefined;

async function sample(): Promise<void> {
  const now = await get<Stats[]>("v1/stats");
  const samples = new Map<string, Sample[]>();
  const jobs = new Map<string, Job[]>();
  for (const stats of now) {
    const one = rates(before.get(stats.uuid), stats);
    const all = live.samples.get(stats.uuid) ?? [];
    samples.set(stats.uuid, one ? [...all, one].slice(-SAMPLES) : all);
    jobs.set(stats.uuid, stats.jobs);
  }
  before = new Map(now.map((stats) => [stats.uuid, stats]));
  set({ samples, jobs });
}

async function sampleOn(): Promise<void> {
  const serves = live.arrays?.some((array) => array.state !== "stopped");
  if (isVisible() && live.link === "open" && serves) {
    await sample().then(
      () => note(COUNTS),
      (error: unknown) => fail(COUNTS, error),
    );
  } else {
    note(COUNTS);
  }
  if (live.link !== "over") sampling = window.setTimeout(() => void sampleOn(), SAMPLE_MS);
}

export function begin(): void {
  if (isVisible()) follow();
  void sampleOn();
  document.addEventListener("visibilitychange", () => {
    if (live.link === "over") return;
    if (!isVisible()) return leave();
    tries = 0;
    follow();
  });
}

/** The jobs of an array: what `show` has of them, with how far they are now. */
export function jobsOf(array: ArrayInfo, { jobs }: Live): Job[] {
  const now = jobs.get(array.uuid);
  return array.jobs.map((job) => {
    const same = now?.find((one) => one.kind === job.kind && one.slot === job.slot);
    if (!same || same.paused !== job.paused) return job;
    return { ...same, paused_by: job.paused_by };
  });
}

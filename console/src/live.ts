// What the page knows of the daemon, kept up to date.
//
// Order: the stream of events opens → everything is read once → each event says what to read
// again. Counts, and how far jobs are, are read every two seconds while the page is visible and an
// array serves; nothing is read while it is hidden. Two reads of the same thing never overlap.

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

export interface Live {
  link: "connecting" | "open" | "lost" | "over";
  /** Why there is no link. */
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

function fail(error: unknown): void {
  if (!(error instanceof ApiFailure)) throw error;
  if (error.isOver) over(error);
  else if (error.status === 0) set({ failure: error });
}

/** An answer came: what was wrong with the link is over. */
function answered(): void {
  if (live.link === "open" && live.failure) set({ failure: undefined });
}

/** A thing that is read again when something happened to it. */
class Kept {
  private timer: number | undefined;
  private busy = false;
  private again = false;
  constructor(private readonly read: () => Promise<void>) {}
  soon(after = SETTLE_MS): void {
    this.timer ??= window.setTimeout(() => void this.now(), after);
  }
  async now(): Promise<void> {
    window.clearTimeout(this.timer);
    this.timer = undefined;
    if (this.busy) {
      this.again = true;
      return;
    }
    this.busy = true;
    await this.read().then(answered, fail);
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
const drives = new Kept(async () => set({ drives: await get<Drive[]>("v1/drives") }));
/** Views that show drives; every drive is looked at for each read, so others cause none. */
let driveViews = 0;

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
let tries = 0;
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

function opened(): void {
  tries = 0;
  if (live.link === "open" || live.link === "over") return;
  set({ link: "open", failure: undefined });
  void alerts.now();
  refresh();
}

function follow(): void {
  // What is between may keep a stream's head until its first event, which may never come.
  get<Version>("v1/version").then((version) => {
    set({ version });
    opened();
  }, fail);
  end = door.follow(next, {
    onOpen: opened,
    onEvent: hear,
    onGap: (sequence) => {
      next = sequence;
    },
    onEnd(failure) {
      if (live.link === "over") return;
      if (failure?.isOver) return over(failure);
      set({ link: "lost", ...(failure && { failure }) });
      const wait = RETRY_MS[Math.min(tries, RETRY_MS.length - 1)];
      tries += 1;
      window.setTimeout(follow, wait);
    },
  });
}

/** The session is over: nothing is asked any more. */
function over(failure: ApiFailure): void {
  set({ link: "over", failure });
  window.clearTimeout(sampling);
  end?.();
}

// ---- counts -----------------------------------------------------------------------------------

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
  if (document.visibilityState === "visible" && live.link === "open" && serves) {
    await sample().then(answered, fail);
  }
  if (live.link !== "over") sampling = window.setTimeout(() => void sampleOn(), SAMPLE_MS);
}

export function begin(): void {
  follow();
  void sampleOn();
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

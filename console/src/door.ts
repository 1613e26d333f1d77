// The way to the daemon: through the server of `strake console`, or through Cockpit's bridge.
//
// Both speak the daemon's API. An answer that is no success is an ApiFailure with what was found
// and what to do, as the daemon gives it, or as this file does where no daemon answered.

import type { CockpitHttp } from "./cockpit";
import type { Error as FailureBody, Event as DaemonEvent } from "./api";
import { t } from "./i18n";

export class ApiFailure extends Error {
  constructor(
    readonly code: string,
    readonly found: string,
    readonly cure: string,
    /** 0 where no answer came. */
    readonly status: number,
  ) {
    super(`${code}: ${found}; ${cure}`);
  }
  /** No daemon answered. */
  get isSilence(): boolean {
    return ["no-daemon", "daemon-silent", "daemon-lost", "daemon-gone"].includes(this.code);
  }
  /** The session with the server of `strake console` is over. */
  get isOver(): boolean {
    return this.status === 401;
  }
}

export interface Following {
  onOpen(): void;
  onEvent(event: DaemonEvent): void;
  /** The daemon numbers its events anew, or keeps those between no more: this one is next. */
  onGap(next: number): void;
  /** It ended, for this reason or none. */
  onEnd(failure?: ApiFailure): void;
}

export interface Door {
  readonly name: "cockpit" | "console";
  request<T>(method: string, path: string, body?: object): Promise<T>;
  /** Events with numbers from `since` on; the answer ends it. */
  follow(since: number, following: Following): () => void;
}

const SOCKET = "/run/strake/api.sock";
/** How long a read may take. A change may take as long as it needs. */
const READ_MS = 30_000;

function silent(): ApiFailure {
  const found = t("failure.silent", { seconds: READ_MS / 1000 });
  return new ApiFailure("daemon-silent", found, t("failure.silent.cure"), 0);
}

function asFailure(error: unknown, otherwise: () => ApiFailure): ApiFailure {
  return error instanceof ApiFailure ? error : otherwise();
}

/** The failure that a body tells, which a proxy between may have replaced. */
function failureOf(status: number, text: string): ApiFailure {
  try {
    const body = JSON.parse(text) as Partial<FailureBody> & { error?: Partial<FailureBody> };
    const told = body.error ?? body;
    if (told.code && told.found) {
      return new ApiFailure(told.code, told.found, told.cure ?? "", status);
    }
  } catch {
    // It is no JSON: told below.
  }
  if (status === 401) {
    return new ApiFailure("session-over", t("failure.over"), t("failure.over.cure"), status);
  }
  const found = t("failure.odd", { status, text: text.slice(0, 200) });
  return new ApiFailure("unexpected-answer", found, t("failure.odd.cure"), status);
}

/** Cuts a stream of JSON lines. */
function lines(onEvent: (event: DaemonEvent) => void): (part: string) => void {
  let rest = "";
  return (part) => {
    const all = (rest + part).split("\n");
    rest = all.pop() ?? "";
    for (const line of all) if (line) onEvent(JSON.parse(line) as DaemonEvent);
  };
}

class ConsoleDoor implements Door {
  readonly name = "console";
  private hasStream = true;

  private unreachable(): ApiFailure {
    return new ApiFailure("server-gone", t("failure.gone"), t("failure.gone.cure"), 0);
  }

  async request<T>(method: string, path: string, body?: object): Promise<T> {
    const signal = method === "GET" ? AbortSignal.timeout(READ_MS) : undefined;
    const failed = () => {
      throw signal?.aborted ? silent() : this.unreachable();
    };
    const answer = await fetch(path, {
      method,
      cache: "no-store",
      signal,
      ...(body && {
        body: JSON.stringify(body),
        headers: { "content-type": "application/json" },
      }),
    }).catch(failed);
    const text = await answer.text().catch(failed);
    if (!answer.ok) throw failureOf(answer.status, text);
    return JSON.parse(text) as T;
  }

  follow(since: number, following: Following): () => void {
    return this.hasStream ? this.bySse(since, following) : this.byLines(since, following);
  }

  /** Server-Sent Events. A server that has none is asked for lines from then on. */
  private bySse(since: number, following: Following): () => void {
    const source = new EventSource(`v1/events/stream?since=${since}`);
    let end = () => source.close();
    let opened = false;
    source.onopen = () => {
      opened = true;
      following.onOpen();
    };
    source.onmessage = (message: MessageEvent<string>) =>
      following.onEvent(JSON.parse(message.data) as DaemonEvent);
    source.addEventListener("gap", (message: MessageEvent<string>) =>
      following.onGap((JSON.parse(message.data) as { next_sequence: number }).next_sequence),
    );
    source.onerror = () => {
      // The page reconnects by itself, so that it can say that the daemon does not answer.
      source.close();
      // Which of the two ends it was is not known: the next request shows that.
      if (opened) return following.onEnd();
      end = this.byLines(since, {
        ...following,
        onOpen: () => {
          this.hasStream = false;
          following.onOpen();
        },
      });
    };
    return () => end();
  }

  private byLines(since: number, following: Following): () => void {
    const abort = new AbortController();
    const read = async () => {
      const answer = await fetch(`v1/events?follow=true&since=${since}`, {
        signal: abort.signal,
        cache: "no-store",
      });
      if (!answer.ok) throw failureOf(answer.status, await answer.text());
      following.onOpen();
      const cut = lines((event) => following.onEvent(event));
      const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        cut(value);
      }
    };
    read().then(
      () => following.onEnd(),
      (error: unknown) => {
        if (!abort.signal.aborted) following.onEnd(asFailure(error, () => this.unreachable()));
      },
    );
    return () => abort.abort();
  }
}

class CockpitDoor implements Door {
  readonly name = "cockpit";
  private readonly http: CockpitHttp;

  constructor(cockpit: NonNullable<Window["cockpit"]>) {
    this.http = cockpit.http(SOCKET, { superuser: "try" });
    // A connection keeps the rights that it began with.
    const internal = cockpit.dbus(null, { bus: "internal" });
    const superuser = internal.proxy("cockpit.Superuser", "/superuser");
    let known: string | undefined;
    superuser.addEventListener("changed", () => {
      const { Current: now } = superuser;
      if (!now || now === "init") return;
      if (known !== undefined && known !== now) location.reload();
      known = now;
    });
  }

  /** What Cockpit says where no answer came, or one that is no success. */
  private failure(error: unknown, body: string): ApiFailure {
    const { problem, status, message } = error as {
      problem?: string;
      status?: number;
      message?: string;
    };
    if (status) return failureOf(status, body);
    const code = problem ?? "unknown";
    const closed = code === "access-denied" || code === "not-authorized";
    return new ApiFailure(
      closed ? "access-denied" : "daemon-gone",
      closed ? t("failure.denied") : t("failure.daemon", { why: message || code }),
      closed ? t("failure.denied.cure") : t("failure.daemon.cure"),
      0,
    );
  }

  async request<T>(method: string, path: string, body?: object): Promise<T> {
    let told = "";
    const request = this.http.request({
      method,
      path: `/${path}`,
      body: body ? JSON.stringify(body) : "",
      ...(body && { headers: { "Content-Type": "application/json" } }),
    });
    let late = false;
    const close = () => {
      late = true;
      request.close("timeout");
    };
    const timer = method === "GET" ? window.setTimeout(close, READ_MS) : undefined;
    // A second argument of the rejection has the body of an answer that is no success.
    const text = await new Promise<string>((resolve, reject) =>
      request.then(resolve, (...why: unknown[]) => {
        told = typeof why[1] === "string" ? why[1] : "";
        reject(why[0]);
      }),
    )
      .catch((error: unknown) => {
        throw late ? silent() : this.failure(error, told);
      })
      .finally(() => window.clearTimeout(timer));
    return JSON.parse(text) as T;
  }

  follow(since: number, following: Following): () => void {
    const request = this.http.request({
      method: "GET",
      path: `/v1/events?follow=true&since=${since}`,
      body: "",
    });
    let over = false;
    let told = "";
    let good = false;
    const cut = lines((event) => following.onEvent(event));
    request
      .response((status) => {
        good = status === 200;
        if (good) following.onOpen();
      })
      .stream((data) => {
        if (good) cut(data);
        else told += data;
      });
    request.then(
      () => over || following.onEnd(),
      (error: unknown) => over || following.onEnd(this.failure(error, told)),
    );
    return () => {
      over = true;
      request.close("cancelled");
    };
  }
}

export const door: Door = window.cockpit ? new CockpitDoor(window.cockpit) : new ConsoleDoor();

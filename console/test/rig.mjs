// A daemon with member files in a folder of its own, its console, and a browser.
//
// What is started here is ended here.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { mkdir, mkdtemp, open, rm } from "node:fs/promises";
import { request as ask } from "node:http";
import { createServer as serve } from "node:net";
import { existsSync, statSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const here = path.dirname(fileURLToPath(import.meta.url));
export const root = path.resolve(here, "../..");
const target = process.env.CARGO_TARGET_DIR ?? path.join(root, "target");
export const screenshots = path.join(target, "console-screenshots");

const MIB = 1 << 20;

function program() {
  const named = process.env.STRAKE_BINARY;
  if (named) return named;
  const built = ["debug", "release"]
    .map((kind) => path.join(target, kind, "strake"))
    .filter((file) => existsSync(file))
    .sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs);
  assert(built.length > 0, "no strake is built: cargo build -p strake");
  return built[0];
}

/** A port of the loopback address that nothing uses now. */
function unused() {
  return new Promise((resolve, reject) => {
    const server = serve();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

export class Rig {
  static async start({ files, bytes = 64 * MIB }) {
    const rig = new this();
    rig.binary = program();
    rig.folder = await mkdtemp(path.join(os.tmpdir(), "strake-console-"));
    rig.dir = path.join(rig.folder, "run");
    rig.drives = path.join(rig.folder, "drives");
    await mkdir(rig.dir);
    await mkdir(rig.drives);
    for (let at = 0; at < files; at += 1) await rig.file(`d${at}`, bytes);
    await rig.prepare();
    await rig.daemon();
    return rig;
  }

  /** What there must be before the daemon. */
  async prepare() {}

  /** A program, and what stands before it on its command line. */
  command(program, args) {
    return [program, args];
  }

  /** A sparse file that its owner alone may read. */
  async file(name, bytes) {
    const file = path.join(this.drives, name);
    const handle = await open(file, "w", 0o600);
    await handle.truncate(bytes);
    await handle.close();
    return file;
  }

  drive(at) {
    return path.join(this.drives, `d${at}`);
  }

  get socket() {
    return path.join(this.dir, "api.sock");
  }

  get environment() {
    return { ...process.env, STRAKE_DIR: this.dir };
  }

  async daemon() {
    const log = await open(path.join(this.folder, "daemon.log"), "a");
    const options = ["daemon", "--no-devices", "--wait", "1", "--scan", this.drives];
    this.child = spawn(...this.command(this.binary, options), {
      env: this.environment,
      stdio: ["ignore", "ignore", log.fd],
    });
    await log.close();
    await until("the daemon to answer", () => this.api("GET", "/v1/version").catch(() => null));
  }

  async kill(signal = "SIGKILL") {
    const child = this.child;
    this.child = undefined;
    if (!child || child.exitCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill(signal);
    await ended;
  }

  /** Straight to the daemon, past the console. */
  async api(method, target, body) {
    const got = await this.text(method, target, body);
    return got === "" ? undefined : JSON.parse(got);
  }

  /** The same, as it comes. */
  text(method, target, body) {
    return new Promise((resolve, reject) => {
      const text = body && JSON.stringify(body);
      const headers = text ? { "content-type": "application/json" } : {};
      const socketPath = this.socket;
      const request = ask({ socketPath, method, path: target, headers }, (answer) => {
        let got = "";
        answer.on("data", (part) => (got += part));
        answer.on("end", () => {
          if (answer.statusCode < 300) resolve(got);
          else reject(new Error(`${method} ${target}: ${got}`));
        });
      });
      request.on("error", reject);
      request.end(text);
    });
  }

  /** The command line, which must succeed. */
  strake(...args) {
    const run = spawnSync(...this.command(this.binary, args), { env: this.environment, encoding: "utf8" });
    assert.equal(run.status, 0, `strake ${args.join(" ")}: ${run.stderr}`);
    return run.stdout;
  }

  async browser() {
    this.chromium ??= await chromium.launch({
      executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
      args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
    });
    return this.chromium;
  }

  /** The link of a console of its own: it opens one browser. */
  async link() {
    const child = spawn(this.binary, ["console"], {
      env: this.environment,
      stdio: ["ignore", "pipe", "inherit"],
    });
    (this.consoles ??= []).push(child);
    let said = "";
    child.stdout.setEncoding("utf8").on("data", (part) => (said += part));
    const link = /http:\/\/127\.0\.0\.1:\d+\/\w+\/\?token=\w+/;
    return until("the link of strake console", () => said.match(link)?.[0]);
  }

  async end() {
    await this.chromium?.close();
    for (const child of this.consoles ?? []) child.kill("SIGINT");
    await this.kill("SIGTERM");
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** As the rig above, below /run/strake, with Cockpit and its users: see cockpit.sh. */
export class CockpitRig extends Rig {
  static users = ["keeper", "second", "guest"];

  /** Why it cannot be had here, or nothing. */
  static missing() {
    if (process.getuid() !== 0) return "a mount namespace with users of its own needs root";
    const files = ["/usr/lib/cockpit/cockpit-ws", "/usr/share/cockpit/shell", "/usr/bin/sudo"];
    const lacks = files.filter((file) => !existsSync(file));
    return lacks.length > 0 ? `${lacks.join(", ")}: not installed` : undefined;
  }

  async prepare() {
    const port = await unused();
    this.origin = `http://127.0.0.1:${port}`;
    this.dir = "/run/strake";
    const script = path.join(here, "cockpit.sh");
    const page = path.join(root, "console/dist");
    const args = [script, this.folder, this.binary, page, String(port), ...CockpitRig.users];
    const log = await open(path.join(this.folder, "cockpit.log"), "a");
    this.cockpit = spawn("unshare", ["--mount", ...args], {
      stdio: ["ignore", log.fd, log.fd],
    });
    await log.close();
    const answers = () => fetch(this.origin).then(({ ok }) => ok, () => false);
    await until("Cockpit to answer", () => {
      assert.equal(this.cockpit.exitCode, null, "cockpit.sh has ended");
      return answers();
    });
  }

  command(program, args) {
    return ["nsenter", ["--mount", `--target=${this.cockpit.pid}`, program, ...args]];
  }

  get socket() {
    return `/proc/${this.cockpit.pid}/root/run/strake/api.sock`;
  }

  async end() {
    await this.chromium?.close();
    await this.kill("SIGTERM");
    this.cockpit?.kill();
    await super.end();
  }
}

/** Waits until what `look` answers is something. */
export async function until(what, look, seconds = 20) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const found = await look();
    if (found) return found;
    assert(Date.now() < end, `waited ${seconds} s for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

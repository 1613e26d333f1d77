// A daemon with member files in a folder of its own, its console, and a browser.
//
// What is started here is ended here.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { mkdir, mkdtemp, open, rm } from "node:fs/promises";
import { request as ask } from "node:http";
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

export class Rig {
  static async start({ files, bytes = 64 * MIB }) {
    const rig = new Rig();
    rig.binary = program();
    rig.folder = await mkdtemp(path.join(os.tmpdir(), "strake-console-"));
    rig.dir = path.join(rig.folder, "run");
    rig.drives = path.join(rig.folder, "drives");
    await mkdir(rig.dir);
    await mkdir(rig.drives);
    await mkdir(screenshots, { recursive: true });
    for (let at = 0; at < files; at += 1) await rig.file(`d${at}`, bytes);
    await rig.daemon();
    return rig;
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

  get environment() {
    return { ...process.env, STRAKE_DIR: this.dir };
  }

  async daemon() {
    const log = await open(path.join(this.folder, "daemon.log"), "a");
    const options = ["daemon", "--no-devices", "--wait", "1", "--scan", this.drives];
    this.child = spawn(this.binary, options, {
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
  api(method, target, body) {
    return new Promise((resolve, reject) => {
      const text = body && JSON.stringify(body);
      const headers = text ? { "content-type": "application/json" } : {};
      const socketPath = path.join(this.dir, "api.sock");
      const request = ask({ socketPath, method, path: target, headers }, (answer) => {
        let got = "";
        answer.on("data", (part) => (got += part));
        answer.on("end", () => {
          if (answer.statusCode < 300) resolve(got === "" ? undefined : JSON.parse(got));
          else reject(new Error(`${method} ${target}: ${got}`));
        });
      });
      request.on("error", reject);
      request.end(text);
    });
  }

  /** The command line, which must succeed. */
  strake(...args) {
    const run = spawnSync(this.binary, args, { env: this.environment, encoding: "utf8" });
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
    const link = /http:\/\/127\.0\.0\.1:\d+\/\?token=\w+/;
    return until("the link of strake console", () => said.match(link)?.[0]);
  }

  async end() {
    await this.chromium?.close();
    for (const child of this.consoles ?? []) child.kill("SIGINT");
    await this.kill("SIGTERM");
    await rm(this.folder, { recursive: true, force: true });
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

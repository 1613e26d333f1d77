// What a terminal shows of the commands that are looked at: each in a real terminal (tmux), with
// its colours (aha), as a picture in target/console-screenshots.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { after, before, test } from "node:test";

import { blank, close, shot } from "./page.mjs";
import { Rig, until } from "./rig.mjs";

const lacks = ["tmux", "aha"].filter((name) => spawnSync(name, ["-V"]).error);
if (lacks.length > 0) test("terminals", { skip: `${lacks.join(", ")}: not installed` }, () => {});
else run();

function run() {
  let rig;
  let page;

  /** The program, in a terminal of its own. */
  function tmux(...args) {
    const options = ["-L", "strake-test", "-f", "/dev/null", ...args];
    const { status, stdout, stderr } = spawnSync("tmux", options, {
      env: { ...rig.environment, TERM: "xterm-256color" },
      encoding: "utf8",
    });
    assert.equal(status, 0, `tmux ${args.join(" ")}: ${stderr}`);
    return stdout;
  }

  before(async () => {
    rig = await Rig.start({ files: 5 });
    rig.strake("create", "data", "--level", "6", ...[0, 1, 2, 3].map((at) => rig.drive(at)));
    rig.strake("fail", "data", "1");
    page = await blank(await rig.browser());
  });

  after(async () => {
    spawnSync("tmux", ["-L", "strake-test", "kill-server"]);
    await rig?.end();
  });

  const COMMANDS = {
    status: ["status", /data +degraded/],
    show: ["show data", /SLOT +STATE/],
    iostat: ["iostat -v 1", /data[\s\S]*data/],
    top: ["top", /data/],
    doctor: ["doctor", /data/],
    events: ["events", /member_out/],
  };

  for (const [name, [command, shows]] of Object.entries(COMMANDS)) {
    test(`strake ${name}`, async () => {
      // The terminal stays when the command has ended.
      const line = `'${rig.binary}' ${command}; sleep 60`;
      tmux("new-session", "-d", "-s", name, "-x", "130", "-y", "44", line);
      await until(`${command} to show ${shows}`, () => {
        return shows.test(tmux("capture-pane", "-p", "-t", name));
      });
      // What is drawn once a second is drawn wholly.
      await page.waitForTimeout(1200);
      const screen = tmux("capture-pane", "-e", "-p", "-t", name);
      tmux("kill-session", "-t", name);
      const { stdout } = spawnSync("aha", ["--black"], { input: screen, encoding: "utf8" });
      await page.setContent(stdout);
      await shot(page, `terminal-${name}`);
    });
  }

  test("nothing was wrong with the pages", () => close(page));
}

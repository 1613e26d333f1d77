// The page in a real browser, against a real daemon with member files.
//
// One array lives through it: it is made by the wizard, loses a member, is rebuilt, gets another
// level, is looked at by two pages at once, and is destroyed. Every view is looked at by axe-core,
// light and dark. Screenshots stay in target/console-screenshots.

import assert from "node:assert/strict";
import { readFile, rm } from "node:fs/promises";
import path from "node:path";
import { after, before } from "node:test";

import {
  accessible,
  blank,
  button,
  close,
  dialog,
  en,
  go,
  openActions,
  shot,
  steps,
  strings,
} from "./page.mjs";
import { Rig, root, until } from "./rig.mjs";
import { types } from "../types.mjs";

let rig;
let page;
const step = steps(() => page);

async function open(options = {}) {
  const one = await blank(await rig.browser(), options);
  await one.goto(await rig.link());
  return one;
}

const array = () => rig.api("GET", "/v1/arrays/data");

before(async () => {
  rig = await Rig.start({ files: 8 });
  page = await open();
});

after(async () => {
  await rig?.end();
});

step("the strings of both languages fit, and every event has one", async () => {
  const de = await strings("de");
  assert.deepEqual(Object.keys(de), Object.keys(en));
  const places = (text) => (text.match(/\{\w+\}/g) ?? []).sort().join();
  for (const key of Object.keys(en)) assert.equal(places(de[key]), places(en[key]), key);
  const events = await readFile(path.join(root, "docs/reference/events.md"), "utf8");
  const names = [...events.matchAll(/^\* `(\w+)` \(/gm)].map(([, name]) => name);
  assert(names.length > 40, `events of the reference: ${names.length}`);
  for (const name of names) assert(`event.${name}` in en, `no text for event ${name}`);
});

step("the types are those of the daemon's document", async () => {
  const document = await rig.api("GET", "/openapi.json");
  const kept = await readFile(path.join(root, "console/src/api.d.ts"), "utf8");
  assert.equal(kept, types(document), "node types.mjs makes src/api.d.ts anew");
});

step("the wizard shows capacity and tolerance, then makes the array", async () => {
  await page.getByRole("heading", { name: en["overview.none"] }).waitFor();
  await accessible(page, "no arrays");
  await page.getByRole("link", { name: en["create.button"] }).first().click();
  await page.getByLabel(en["array.name"]).fill("data");
  for (const at of [0, 1, 2, 3]) {
    await page.getByLabel(`${en["create.member"]}: ${rig.drive(at)}`).check();
  }
  await accessible(page, "wizard, drives");
  await shot(page, "create-drives");
  await button(page, en.next).click();
  const row = page.getByRole("row", { name: /^Level 5 / });
  await row.getByText("176 MiB").waitFor();
  await row.getByText("1 lost drive").waitFor();
  await page.getByText(/level 50 needs at least 6 members/).waitFor();
  await accessible(page, "wizard, level");
  await shot(page, "create-level");
  await row.getByRole("radio").check();
  await button(page, en.next).click();
  await page.getByText(/a full stripe is 768 KiB of data/).waitFor();
  await accessible(page, "wizard, review");
  await shot(page, "create-review");
  assert.deepEqual(await rig.api("GET", "/v1/arrays"), [], "nothing is written before");
  await button(page, en["create.make"]).click();
  await page.getByRole("heading", { name: "data" }).waitFor();
  const made = await array();
  assert.equal(made.level, "5");
  assert.equal(made.members.length, 4);
});

step("a refusal is shown with what was found and what to do", async () => {
  await go(page, "#/create");
  await page.getByLabel(en["array.name"]).fill("data");
  await page.getByLabel(en["drives.path"]).fill(rig.drive(0));
  await page.keyboard.press("Enter");
  await button(page, en.next).click();
  await button(page, en.next).click();
  const refusal = page.locator(".failure");
  await refusal.getByText(/already/).first().waitFor();
  assert.equal(await button(page, en["create.make"]).isDisabled(), true);
  await accessible(page, "a refusal");
  await shot(page, "refused");
});

step("a member is lost, a drive takes its place, and the page sees the rebuild end", async () => {
  await go(page, "#/array/data");
  await page.getByRole("heading", { name: "data" }).waitFor();
  await button(page, `${en.actions}: Slot 1`).click();
  await page.getByRole("menuitem", { name: en["fail.open"] }).click();
  const out = dialog(page).getByRole("button", { name: en["fail.button"], exact: true });
  assert.equal(await out.isDisabled(), true, "the name is not typed yet");
  await accessible(page, "the dialog that takes a member out");
  await dialog(page).getByLabel("Type data to confirm").fill("data");
  const asked = page.waitForRequest((request) => request.url().endsWith("/fail"));
  await out.click();
  await page.getByText(en["notice.degraded"]).waitFor();
  // Neither is the array another of that name, nor the member another in that slot.
  const request = await asked;
  assert(request.url().includes(`v1/arrays/${(await array()).uuid}/`), request.url());
  assert.equal(request.postDataJSON().member, rig.drive(1));
  assert.equal((await array()).state, "degraded");
  await accessible(page, "degraded");
  await shot(page, "degraded");
  await button(page, `${en.actions}: Slot 1`).click();
  await page.getByRole("menuitem", { name: en["replace.open"] }).click();
  await dialog(page).getByLabel(rig.drive(4)).check();
  await dialog(page).getByText(/would rebuild slot 1 onto/).waitFor();
  await shot(page, "replace");
  await dialog(page).getByRole("button", { name: en["replace.button"], exact: true }).click();
  await page.getByText(en["notice.degraded"]).waitFor({ state: "detached" });
  const whole = await array();
  assert.equal(whole.state, "optimal");
  assert.equal(whole.members[1].device, rig.drive(4));
});

step("a dialog about a member that changes meanwhile closes, and says so", async () => {
  await button(page, `${en.actions}: Slot 2`).click();
  await page.getByRole("menuitem", { name: en["fail.open"] }).click();
  await dialog(page).waitFor();
  rig.strake("fail", "data", "2");
  await dialog(page).waitFor({ state: "detached" });
  await page.getByText(en["act.stale"]).waitFor();
  rig.strake("add", "data", rig.drive(2));
  await until("the member to be whole again", async () => (await array()).state === "optimal");
});

step("the alert stands on the overview and in the events", async () => {
  await go(page, "#/");
  const warnings = page.getByRole("grid", { name: en["overview.serious"] });
  await warnings.getByText(en["event.member_out"]).first().waitFor();
  await shot(page, "overview");
  await go(page, "#/events");
  await page.getByRole("grid", { name: en["nav.events"] }).getByText(en["event.member_in_sync"]).first().waitFor();
  await shot(page, "events");
});

step("a scrub is started, and the array gets another level", async () => {
  await go(page, "#/array/data");
  await button(page, en["scrub.open"]).click();
  await dialog(page).getByRole("button", { name: en["scrub.button"], exact: true }).click();
  await until("a scrub to end", async () => (await array()).last_scrub);
  await page.getByText(en["array.last.never"]).waitFor({ state: "detached" });
  await openActions(page, en["restripe.open"]);
  await dialog(page).getByLabel(en["array.level"], { exact: true }).fill("6");
  await dialog(page).getByLabel(rig.drive(5)).check();
  await dialog(page).getByText(/would become level 6 from 5/).waitFor();
  await accessible(page, "restripe");
  await shot(page, "restripe");
  await dialog(page).getByRole("button", { name: en["restripe.button"], exact: true }).click();
  await until("level 6", async () => {
    const now = await array();
    return now.level === "6" && now.state === "optimal" && now.jobs.length === 0;
  });
  await page.getByText("2 lost drives").waitFor();
});

step("settings are changed, and a wrong one is refused", async () => {
  await go(page, "#/array/data/settings");
  await page.getByLabel(en["setting.scrub_schedule"]).selectOption("weekly");
  await button(page, en["settings.save"]).click();
  await page.getByText(en["settings.saved"]).waitFor();
  const settings = await rig.api("GET", "/v1/arrays/data/settings");
  assert.equal(settings.scrub_schedule, "weekly");
  const priority = page.getByLabel(en["setting.rebuild_priority"]);
  const before = await priority.inputValue();
  await priority.fill("");
  const save = button(page, en["settings.save"]);
  assert.equal(await save.isDisabled(), true, "an empty number is not saved as 0");
  await priority.fill(before);
  await page.getByLabel(en["setting.scrub_at"]).fill("25:00");
  await button(page, en["settings.save"]).click();
  await page.locator(".failure").getByText(/25:00/).waitFor();
  await shot(page, "settings");
});

step("a volume is made, and is deleted after its name is typed", async () => {
  await go(page, "#/array/data/volumes");
  await button(page, en["volume.make"]).click();
  await dialog(page).getByLabel(en["array.name"]).fill("logs");
  await dialog(page).getByLabel(en["array.size"]).fill("32M");
  await dialog(page).getByRole("button", { name: en["volume.make"], exact: true }).click();
  const volumes = page.getByRole("grid", { name: en["array.volumes"] });
  await volumes.getByText("32 MiB").waitFor();
  await shot(page, "volumes");
  await button(page, `${en["volume.delete"]}: logs`).click();
  await dialog(page).getByLabel("Type logs to confirm").fill("logs");
  await dialog(page).getByRole("button", { name: en["volume.delete"], exact: true }).click();
  await volumes.waitFor({ state: "detached" });
});

step("a pool is made", async () => {
  await go(page, "#/pools");
  await button(page, en["pool.make"]).click();
  await dialog(page).getByLabel(en["array.name"]).fill("spares");
  await dialog(page).getByLabel(rig.drive(6)).check();
  await dialog(page).getByRole("button", { name: en["pool.make"], exact: true }).click();
  await page.getByRole("grid", { name: "Devices of spares" }).getByText(rig.drive(6)).waitFor();
  await shot(page, "pools");
});

const VIEWS = {
  overview: "#/",
  array: "#/array/data",
  settings: "#/array/data/settings",
  volumes: "#/array/data/volumes",
  "array-events": "#/array/data/events",
  create: "#/create",
  drives: "#/drives",
  pools: "#/pools",
  events: "#/events",
  alerts: "#/alerts",
};

for (const colorScheme of ["light", "dark"]) {
  step(`every view passes axe-core, ${colorScheme}`, async () => {
    const one = await open({ colorScheme });
    await one.getByRole("grid", { name: en["overview.arrays"] }).waitFor();
    const dark = await one.evaluate(() =>
      document.documentElement.classList.contains("pf-v6-theme-dark"),
    );
    assert.equal(dark, colorScheme === "dark");
    for (const [name, hash] of Object.entries(VIEWS)) {
      await go(one, hash);
      await one.getByRole("heading", { level: 1 }).waitFor();
      await one.locator(".pf-v6-c-skeleton").waitFor({ state: "detached" });
      await accessible(one, `${name}, ${colorScheme}`);
      await shot(one, `${name}-${colorScheme}`);
    }
    await close(one);
  });
}

step("German, on a phone", async () => {
  const de = await strings("de");
  const one = await open({ locale: "de-DE", viewport: { width: 390, height: 844 } });
  await one.getByRole("heading", { name: de["overview.capacity"] }).waitFor();
  assert.equal(await one.evaluate(() => document.documentElement.lang), "de");
  for (const [name, hash] of Object.entries(VIEWS)) {
    await go(one, hash);
    await one.getByRole("heading", { level: 1 }).waitFor();
    await accessible(one, `${name}, German, phone`);
    const wide = await one.evaluate(() => {
      const content = document.getElementById("content");
      return Math.max(document.documentElement.scrollWidth, content.scrollWidth) - innerWidth;
    });
    assert(wide <= 0, `${name} is ${wide} pixels wider than a phone`);
    await shot(one, `${name}-phone`);
  }
  await close(one);
});

step("it can be used by keyboard alone", async () => {
  const one = await open();
  await one.getByRole("grid", { name: en["overview.arrays"] }).waitFor();
  await one.keyboard.press("Tab");
  const first = await one.evaluate(() => document.activeElement.textContent);
  assert.equal(first, en["nav.skip"]);
  await one.getByRole("link", { name: "data", exact: true }).focus();
  await one.keyboard.press("Enter");
  await button(one, en.actions).focus();
  await one.keyboard.press("Enter");
  await one.keyboard.press("ArrowDown");
  await one.keyboard.press("Enter");
  await dialog(one).waitFor();
  await one.keyboard.press("Escape");
  await dialog(one).waitFor({ state: "detached" });
  await close(one);
});

step("two pages at once see the same, and a hidden page asks for no counts", async () => {
  const one = await open();
  let asked = 0;
  one.on("request", (request) => (asked += request.url().endsWith("v1/stats") ? 1 : 0));
  await go(page, "#/array/data");
  await go(one, "#/array/data");
  await openActions(page, en["stop.open"]);
  await dialog(page).getByRole("button", { name: en["stop.button"], exact: true }).click();
  await button(one, en["start.open"]).click();
  await dialog(one).getByRole("button", { name: en["start.button"], exact: true }).click();
  await button(page, en["scrub.open"]).waitFor();
  const from = asked;
  await one.waitForTimeout(4500);
  assert(asked - from >= 1 && asked - from <= 3, `${asked - from} requests for counts in 4.5 s`);
  const turn = (value) =>
    one.evaluate((to) => {
      Object.defineProperty(document, "visibilityState", { value: to, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, value);
  const following = async () => {
    const metrics = await rig.text("GET", "/metrics");
    return Number(/^strake_event_followers (\d+)$/m.exec(metrics)[1]);
  };
  assert.equal(await following(), 2);
  await turn("hidden");
  await until("the hidden page to follow no longer", async () => (await following()) === 1);
  const hidden = asked;
  await one.waitForTimeout(4500);
  assert.equal(asked - hidden, 0, "a hidden page asks for no counts");
  await turn("visible");
  await until("the page that is looked at to follow", async () => (await following()) === 2);
  await close(one);
});

step("the daemon goes and comes back: the page says so, and goes on", async () => {
  const lost = [await rig.file("g0", 64 << 20), await rig.file("g1", 64 << 20)];
  rig.strake("create", "gone", "--level", "1", "--export", "none", ...lost);
  await rig.kill();
  await page.getByText(en["link.lost"]).waitFor();
  assert.equal(await page.getByText(en["failure.gone"]).count(), 0, "the server is there");
  await shot(page, "daemon-gone");
  await Promise.all(lost.map((file) => rm(file)));
  await rig.daemon();
  await page.getByText(en["link.lost"]).waitFor({ state: "detached" });
});

step("an array of which no drive is found needs help, until it is forgotten", async () => {
  await go(page, "#/");
  const row = page.getByRole("row", { name: /^gone/ });
  await row.getByText(en["state.not_found"]).waitFor();
  await until("the array to serve again", async () => (await array()).state === "optimal");
  await page.getByText("1 array needs help").waitFor();
  await row.getByRole("link", { name: "gone" }).click();
  await page.getByText(en["notice.lost"]).waitFor();
  await accessible(page, "an array that is not found");
  await shot(page, "not-found");
  // What cannot be read may carry it: that the page says, and does not offer to forget it.
  await page.route("**/v1/arrays", async (route) => {
    const answer = await route.fetch();
    const unread = (one) => (one.not_found ? { ...one, may_be_on: ["/dev/nvme7n1"] } : one);
    await route.fulfill({ response: answer, json: (await answer.json()).map(unread) });
  });
  await page.reload();
  await page.getByText("/dev/nvme7n1").waitFor();
  assert.equal(await button(page, en.actions).count(), 0, "there is nothing to be done with it");
  await page.unroute("**/v1/arrays");
  await page.reload();
  await page.getByText(en["notice.lost.more"]).waitFor();
  await openActions(page, en["forget.open"]);
  await dialog(page).getByRole("button", { name: en["forget.button"], exact: true }).click();
  await page.getByText(en["overview.healthy"]).waitFor();
});

step("an array is destroyed only after its name is typed", async () => {
  await go(page, "#/array/data");
  await page.getByRole("heading", { name: "data" }).waitFor();
  await until("the array to serve again", async () => (await array()).state === "optimal");
  await openActions(page, en["stop.open"]);
  await dialog(page).getByRole("button", { name: en["stop.button"], exact: true }).click();
  await button(page, en["start.open"]).waitFor();
  await openActions(page, en["destroy.open"]);
  const destroy = dialog(page).getByRole("button", { name: en["destroy.button"], exact: true });
  assert.equal(await destroy.isDisabled(), true);
  await dialog(page).getByLabel("Type data to confirm").fill("dat");
  assert.equal(await destroy.isDisabled(), true);
  await shot(page, "destroy");
  await dialog(page).getByLabel("Type data to confirm").fill("data");
  await destroy.click();
  await page.getByRole("heading", { name: en["overview.none"] }).waitFor();
  assert.deepEqual(await rig.api("GET", "/v1/arrays"), []);
  await close(page);
});

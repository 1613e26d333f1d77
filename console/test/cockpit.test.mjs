// The page in a real Cockpit: users log in by PAM, get administrative access by sudo, and reach the
// daemon through Cockpit's bridge.
//
// One array lives through it, too: what the page does there that it does in `strake console` as
// well is not tried again, but each kind of request is (read, change, delete, follow).

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { accessible, blank, button, close, dialog, en, go, openActions, shot, steps } from "./page.mjs";
import { CockpitRig, until } from "./rig.mjs";

const why = CockpitRig.missing();
if (why) test("Cockpit", { skip: why }, () => {});
else run();

function run() {
  let rig;
  let keeper;
  const step = steps(() => keeper.page);
  const array = () => rig.api("GET", "/v1/arrays/data");

  /** Logs in, and opens the page from Cockpit's menu. */
  async function login(user) {
    const page = await blank(await rig.browser(), {}, "/strake/");
    await page.goto(rig.origin);
    await page.locator("#login-user-input").fill(user);
    await page.locator("#login-password-input").fill(`${user}-password`);
    await page.locator("#login-button").click();
    await page.getByRole("link", { name: "Strake arrays" }).click();
    const frame = await until("the frame of the page", () =>
      page.frames().find((one) => one.url().includes("/strake/cockpit.html")),
    );
    return { page, frame, user };
  }

  /** Turns on administrative access, by the password of the user. */
  async function administrate({ page, user }) {
    await page.getByRole("button", { name: "Limited access" }).first().click();
    await page.locator("#switch-to-admin-access-password").fill(`${user}-password`);
    await page.getByRole("button", { name: "Authenticate" }).click();
    await page.getByText("Administrative access", { exact: true }).first().waitFor();
  }

  before(async () => {
    rig = await CockpitRig.start({ files: 5 });
    keeper = await login("keeper");
  });

  after(async () => {
    await rig?.end();
  });

  step("without administrative access the page says what it needs, and shows nothing", async () => {
    await keeper.frame.getByText(en["failure.denied"]).waitFor();
    await keeper.frame.getByText(en["failure.denied.cure"]).waitFor();
    await accessible(keeper.frame, "limited access");
    await shot(keeper.page, "cockpit-limited");
  });

  step("with it, the page goes on by itself", async () => {
    await administrate(keeper);
    await keeper.frame.getByRole("heading", { name: en["overview.none"] }).waitFor();
    await keeper.frame.getByText(en["failure.denied"]).waitFor({ state: "detached" });
  });

  step("an array is made", async () => {
    const { frame, page } = keeper;
    await frame.getByRole("link", { name: en["create.button"] }).first().click();
    await frame.getByLabel(en["array.name"]).fill("data");
    for (const at of [0, 1, 2]) {
      await frame.getByLabel(`${en["create.member"]}: ${rig.drive(at)}`).check();
    }
    await button(frame, en.next).click();
    await frame.getByRole("row", { name: /^Level 5 / }).getByRole("radio").check();
    await button(frame, en.next).click();
    await button(frame, en["create.make"]).click();
    await frame.getByRole("heading", { name: "data" }).waitFor();
    assert.equal((await array()).level, "5");
    await accessible(frame, "an array in Cockpit");
    await shot(page, "cockpit-array");
  });

  step("what happens elsewhere is seen: nothing but events brings it", async () => {
    rig.strake("fail", "data", "1");
    await keeper.frame.getByText(en["notice.degraded"]).waitFor();
    rig.strake("replace", "data", "1", rig.drive(3));
    await keeper.frame.getByText(en["notice.degraded"]).waitFor({ state: "detached" });
  });

  step("a refusal of the daemon comes through the bridge", async () => {
    const { frame } = keeper;
    await go(frame, "#/array/data/settings");
    await frame.getByLabel(en["setting.scrub_at"]).fill("25:00");
    await button(frame, en["settings.save"]).click();
    await frame.locator(".failure").getByText(/25:00/).waitFor();
  });

  step("two users at once: the one behind gets a clear error, and nothing is lost", async () => {
    const second = await login("second");
    await administrate(second);
    await second.frame.getByRole("link", { name: "data", exact: true }).waitFor();
    await go(second.frame, "#/array/data");
    await go(keeper.frame, "#/array/data");
    await button(keeper.frame, en["scrub.open"]).click();
    await openActions(second.frame, en["stop.open"]);
    await dialog(second.frame).getByRole("button", { name: en["stop.button"], exact: true }).click();
    await button(second.frame, en["start.open"]).waitFor();
    await dialog(keeper.frame).getByRole("button", { name: en["scrub.button"], exact: true }).click();
    await keeper.frame.locator(".failure").first().waitFor();
    await shot(keeper.page, "cockpit-second");
    await keeper.frame.getByRole("button", { name: en.cancel, exact: true }).click();
    await button(keeper.frame, en["start.open"]).click();
    await dialog(keeper.frame).getByRole("button", { name: en["start.button"], exact: true }).click();
    await button(second.frame, en["scrub.open"]).waitFor();
    assert.equal((await array()).state, "optimal");
    await close(second.page);
  });

  step("a user without sudo is shown no array", async () => {
    const guest = await login("guest");
    await guest.frame.getByText(en["failure.denied"]).waitFor();
    assert.equal(await guest.frame.getByText("data", { exact: true }).count(), 0);
    await close(guest.page);
  });

  step("the daemon goes and comes back", async () => {
    await rig.kill();
    await keeper.frame.getByText(en["link.lost"]).waitFor();
    await rig.daemon();
    await keeper.frame.getByText(en["link.lost"]).waitFor({ state: "detached" });
    await until("the array to serve again", async () => (await array()).state === "optimal");
  });

  step("an array is destroyed: the body of the request arrives", async () => {
    const { frame, page } = keeper;
    await openActions(frame, en["stop.open"]);
    await dialog(frame).getByRole("button", { name: en["stop.button"], exact: true }).click();
    await button(frame, en["start.open"]).waitFor();
    await openActions(frame, en["destroy.open"]);
    await dialog(frame).getByLabel("Type data to confirm").fill("data");
    await dialog(frame).getByRole("button", { name: en["destroy.button"], exact: true }).click();
    await frame.getByRole("heading", { name: en["overview.none"] }).waitFor();
    assert.deepEqual(await rig.api("GET", "/v1/arrays"), []);
    await close(page);
  });
}

// What tests do with a page: a series of steps, what is found on it, what axe-core says of it.

import assert from "node:assert/strict";
import { mkdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { test } from "node:test";

import { root, screenshots } from "./rig.mjs";

const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

export const strings = async (language) =>
  JSON.parse(await readFile(path.join(root, `console/strings/${language}.json`), "utf8"));
export const en = await strings("en");

let failed = false;

/** A test that needs those before it; `seen` gives the page as it is when one fails. */
export function steps(seen) {
  return (name, act) =>
    test(name, async (context) => {
      if (failed) return context.skip("a test before it failed");
      try {
        await act();
      } catch (error) {
        failed = true;
        await shot(seen(), "failed").catch(() => {});
        console.log(seen()?.troubles ?? []);
        throw error;
      }
    });
}

/**
 * A page of a browser's own user; `troubles` is what the browser complains about in those frames
 * whose address has `ours` in it.
 */
export async function blank(browser, options = {}, ours = "") {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 1500 },
    locale: "en-GB",
    ...options,
  });
  const page = await context.newPage();
  page.troubles = [];
  page.on("pageerror", ({ message, stack }) => {
    if (stack.includes(ours)) page.troubles.push(message);
  });
  page.on("console", (message) => {
    const grave = message.type() === "error" || message.type() === "warning";
    const wanted = grave && message.location().url.includes(ours);
    // A refused request is logged by the browser as well.
    if (wanted && !message.text().startsWith("Failed to load resource")) {
      page.troubles.push(message.text());
    }
  });
  page.setDefaultTimeout(30_000);
  return page;
}

export async function close(page) {
  const { troubles } = page;
  await page.context().close();
  assert.deepEqual(troubles, []);
}

// These take a page, or the frame of one.
export const go = (one, hash) => one.evaluate((to) => void (location.hash = to), hash);
export const button = (one, name) => one.getByRole("button", { name, exact: true });
export const dialog = (one) => one.getByRole("dialog");

export async function shot(page, name) {
  await mkdir(screenshots, { recursive: true });
  return page.screenshot({ path: path.join(screenshots, `${name}.png`) });
}

export async function accessible(one, what) {
  if (!(await one.evaluate(() => "axe" in window))) {
    await one.evaluate(await readFile(axe, "utf8"));
  }
  // Colours fade in.
  await one.waitForTimeout(400);
  const { violations } = await one.evaluate(() => window.axe.run());
  const said = violations.map(
    ({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.html).join("\n  ")}`,
  );
  assert.deepEqual(said, [], what);
}

export async function openActions(one, item) {
  await button(one, en.actions).click();
  await one.getByRole("menuitem", { name: item, exact: true }).click();
}

// Flows on one server and one browser: each on a page of its own, and none may send anything elsewhere or fail on the way.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { client, mongoClient, openPage, startBrowser, startServer } from "./server.mjs";

/** A server with a virtual clock, a browser, a client and a MongoDB driver; `flow` runs a test on them. They are there when tests run. */
export function begin() {
  const world = { flow };
  before(async () => {
    world.server = await startServer("--clock", "virtual");
    world.browser = await startBrowser();
    world.call = client(world.server.base);
    world.mongo = await mongoClient(world.server.mongo).connect();
  });
  after(async () => { await world.browser?.close(); await world.mongo?.close(); await world.server?.stop(); });

  function flow(name, { hash, setUp, ...options }, steps) {
    test(name, async () => {
      await setUp?.();
      const page = await openPage(world.browser, world.server.base, { hash, ...options });
      try {
        await steps(page);
        assert.deepEqual(page.seen.strangers, [], "requests to others");
        assert.deepEqual(page.seen.errors, [], "errors on the page");
      } finally {
        await page.context().close();
      }
    });
  }
  return world;
}

export const text = (locator) => locator.innerText();
export const row = (page, id) => page.locator(".item", { hasText: id });
export const editor = (page) => page.locator(".pane textarea");

/** The numbers of /metrics: by name, or by name and container. */
export async function metrics(base) {
  const found = {};
  for (const line of (await (await fetch(`${base}/metrics`)).text()).split("\n")) {
    const [, name, labels, value] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    if (!name) continue;
    const [, db, container] = /database="([^"]*)",container="([^"]*)"/.exec(labels ?? "") ?? [];
    found[db ? `${name} ${db}/${container}` : labels ? `${name} ${labels}` : name] = Number(value);
  }
  return found;
}

// The portal for everybody: by keyboard alone, with labels and in an order that makes sense, readable in light and dark.

import assert from "node:assert/strict";
import { begin, editor, row } from "./flows.mjs";
import { faint, faults, makeContainer } from "./server.mjs";

const world = begin();
const { flow } = world;
const call = (...request) => world.call(...request);

flow("all is reached by keyboard", {
  hash: "/c/shop/keys/items", setUp: () => makeContainer(call, "keys", { items: [{ id: "one" }, { id: "two" }] }),
}, async (page) => {
  await row(page, "one").waitFor();
  const focused = () => page.evaluate(() => { const at = document.activeElement; return at.getAttribute("aria-label") ?? at.textContent.trim().slice(0, 40); });
  const order = [];
  for (let turn = 0; turn < 90 && !order.includes("Items of keys"); turn += 1) {
    await page.keyboard.press("Tab");
    order.push(await focused());
  }
  const places = ["Skip to content", "Sidereal, home", "Server", "Items", "New item", "Items of keys"].map((name) => order.indexOf(name));
  assert.ok(places.every((place, at) => place >= 0 && (at === 0 || place > places[at - 1])), order.join(" | "));
  await page.locator(".list").focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelector(".pane textarea")?.value.includes("two"));
  await page.getByRole("tab", { name: "Items" }).focus();
  await page.keyboard.press("ArrowRight");
  await page.getByRole("textbox", { name: "Query" }).waitFor();
});

flow("a container, an item, a change and its end, without a mouse", { hash: "/" }, async (page) => {
  await page.getByRole("heading", { name: "Data explorer" }).waitFor();
  const keyboard = page.keyboard;
  const focused = () => page.evaluate(() => { const at = document.activeElement; return at.getAttribute("aria-label") ?? at.labels?.[0]?.textContent ?? at.textContent.trim(); });
  const tabTo = async (name, most = 60) => {
    for (let turn = 0; turn < most; turn += 1) { if (name.test(await focused())) return; await keyboard.press("Tab"); }
    assert.fail(`${name} is not reached by Tab`);
  };
  await tabTo(/^New container/);
  await keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  assert.equal(await focused(), "Database", "a dialog begins at its first field");
  await keyboard.press("Control+A");
  await keyboard.type("hands");
  await tabTo(/^Container$/, 3);
  await keyboard.type("keyed");
  await tabTo(/^Time to live$/, 6);
  await keyboard.press("ArrowDown");
  await keyboard.press("ArrowDown");
  await tabTo(/^Seconds$/, 2);
  await keyboard.type("900");
  await keyboard.press("Enter");
  await page.getByRole("heading", { name: "keyed" }).waitFor();
  await page.locator(".foot", { hasText: "0 items" }).waitFor();
  await page.locator(".skip").focus();
  await keyboard.press("Enter");
  await tabTo(/^New item$/, 12);
  await keyboard.press("Enter");
  await page.waitForFunction(() => document.activeElement.matches(".pane textarea"));
  await keyboard.press("Control+A");
  await keyboard.type('{"id": "typed", "pk": "p"');
  await page.locator(".pane .problem", { hasText: "Expected" }).waitFor();
  await keyboard.type("}");
  await keyboard.press("Control+Enter");
  await row(page, "typed").waitFor();
  await page.waitForFunction(() => document.activeElement.matches(".pane textarea"), undefined, { timeout: 3000 });
  await page.locator(".expiry", { hasText: "default of 15 min" }).waitFor();
  for (let turn = 0; turn < 6 && await focused() !== "Delete"; turn += 1) await keyboard.press("Shift+Tab");
  await keyboard.press("Enter");
  await page.getByRole("dialog", { name: "Delete item" }).waitFor();
  await keyboard.press("Escape");
  assert.equal(await focused(), "Delete", "the focus is back where it was");
  await keyboard.press("Enter");
  await tabTo(/^Delete$/, 3);
  await keyboard.press("Enter");
  await page.locator(".foot", { hasText: "0 items" }).waitFor();
  await page.waitForFunction(() => document.activeElement.matches(".list"));
  await call("DELETE", "dbs/hands");
});

flow("a refusal is said in the dialog that caused it", { hash: "/", setUp: () => makeContainer(call, "taken") }, async (page) => {
  await page.getByRole("button", { name: "New container" }).first().click();
  const form = page.getByRole("dialog");
  await form.getByLabel("Database").fill("shop");
  await form.getByLabel("Container").fill("taken");
  await form.getByRole("button", { name: "Create" }).click();
  await form.getByRole("alert").filter({ hasText: "already exists" }).waitFor();
  await form.getByLabel("Container").fill("a/b");
  await form.getByRole("button", { name: "Create" }).click();
  await form.getByRole("alert").filter({ hasText: /\w/ }).waitFor();
  await form.getByRole("button", { name: "Cancel" }).click();
});

for (const colorScheme of ["light", "dark"]) {
  flow(`nothing stands in the way of anybody, ${colorScheme}`, {
    colorScheme, hash: "/",
    setUp: () => makeContainer(call, "seen", { ttl: 3600, items: [{ id: "a", n: 1 }, { id: "b", ttl: 50 }] }),
  }, async (page) => {
    const found = [];
    const look = async (where) => found.push(...[...await faults(page), ...await faint(page)].map((fault) => `${where}: ${fault}`));
    await page.getByRole("heading", { name: "Data explorer" }).waitFor();
    await page.getByRole("button", { name: "Parts of seen" }).click();
    await page.locator("#tree .part").first().waitFor();
    await look("home");
    for (const [tab, ready] of [["items", ".item"], ["query", ".editor"], ["settings", "form.card"], ["time", ".tile"], ["scripts", ".card"]]) {
      await page.goto(`${world.server.base}/_explorer/#/c/shop/seen/${tab}`);
      await page.locator(`.panel ${ready}`).first().waitFor();
      if (tab === "items") { await page.locator(".item").first().click(); await page.locator(".pane textarea").waitFor(); }
      if (tab === "query") { await page.getByRole("button", { name: "Run" }).click(); await page.locator(".summary", { hasText: "rows" }).waitFor(); }
      if (tab === "settings") { await page.getByLabel("Seconds until").fill("1"); await page.locator(".dry-run ul").waitFor(); }
      await look(tab);
    }
    await page.goto(`${world.server.base}/_explorer/#/ops`);
    await page.locator(".tile").first().waitFor();
    await look("ops");
    await page.goto(`${world.server.base}/_explorer/#/`);
    await page.getByRole("button", { name: "New container" }).first().click();
    await page.getByRole("dialog").waitFor();
    await look("dialog");
    await page.keyboard.press("Escape");
    await page.goto(`${world.server.base}/_explorer/#/c/shop/seen/items`);
    await row(page, "b").click();
    await editor(page).waitFor();
    await call("POST", "_admin/clock", { advance: 50 });
    await page.locator(".expiry.over").waitFor();
    await look("expired");
    assert.deepEqual(found, []);
  });
}

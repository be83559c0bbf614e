// MongoDB collections in the portal, and containers whose time counts from a property: what is there, when it expires, and the setting that decides.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { begin, editor, row, text } from "./flows.mjs";
import { makeContainer } from "./server.mjs";

const world = begin();
const { flow } = world;
const call = (...request) => world.call(...request);
const people = (name) => world.mongo.db("people").collection(name);

/** A collection with these documents. */
async function collection(name, documents) {
  const made = people(name);
  await made.drop().catch(() => {});
  if (documents.length) await made.insertMany(documents);
  return made;
}

flow("documents are listed with when they expire, opened, and gone when they are", {
  hash: "/",
  setUp: async () => {
    const users = await collection("users", [{ _id: "ada", n: 1 }, { _id: 7, ttl: 300, big: 2n ** 60n }, { born: new Date(0), name: "<img src=x onerror=window.pwned=1>" }]);
    await users.createIndex({ _ts: 1 }, { expireAfterSeconds: 3600 });
  },
}, async (page) => {
  await page.locator("#tree").getByRole("link", { name: /^users/ }).click();
  await page.getByText("MongoDB collection").waitFor();
  await row(page, "ada").waitFor();
  assert.match(await text(row(page, "ada").locator(".when")), /^in (1 h|59 min)/);
  assert.match(await text(page.locator(".item").nth(1).locator(".when")), /min.* ·own$/);
  await page.locator(".item").nth(2).click();
  await page.locator(".pane .code", { hasText: '"$date": "1970-01-01T00:00:00Z"' }).waitFor();
  assert.match(await text(page.locator(".pane h2")), /^[0-9a-f]{24}$/);
  await page.locator(".expiry", { hasText: "The container's default of 1 h" }).waitFor();
  assert.equal(await page.evaluate(() => window.pwned), undefined);

  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download" }).click()]);
  const lines = readFileSync(await download.path(), "utf8").trim().split("\n").map((line) => JSON.parse(line));
  assert.deepEqual(lines.map((line) => line._id?.$oid ? "object id" : line._id), ["ada", 7, "object id"]);
  assert.deepEqual(lines[1].big, { $numberLong: "1152921504606846976" });

  await page.locator(".item").nth(1).click();
  await page.locator(".expiry", { hasText: "Its own ttl of 5 min" }).waitFor();
  await call("POST", "_admin/clock", { advance: 300 });
  await page.locator(".expiry.over", { hasText: "Expired" }).waitFor();
  await page.waitForFunction(() => document.querySelectorAll(".item").length === 2);
  assert.equal(await people("users").countDocuments(), 2);
});

flow("ten thousand documents, a page at a time", {
  hash: "/c/people/many/documents",
  setUp: () => collection("many", Array.from({ length: 10000 }, (_, n) => ({ _id: n }))),
}, async (page) => {
  await row(page, "0").first().waitFor();
  await page.locator(".list").focus();
  for (let turn = 0; turn < 200 && !/^10,000 items/.test(await text(page.locator(".foot"))); turn += 1) {
    await page.keyboard.press("End");
    await page.waitForTimeout(20);
  }
  await page.keyboard.press("End");
  await row(page, "9999").waitFor();
  await page.keyboard.press("Enter");
  await page.locator(".pane .code", { hasText: '"_id": 9999' }).waitFor();
  assert.ok(await page.evaluate(() => document.activeElement.matches(".code.read")));
});

flow("a collection's time to live is set here, tried out first, and drivers see the index", {
  hash: "/c/people/lived/settings",
  setUp: () => collection("lived", [{ _id: 1 }, { _id: 2, ttl: 5000 }]),
}, async (page) => {
  const users = people("lived");
  const form = page.locator("form.card", { hasText: "Time to live" });
  await form.getByRole("radio", { name: /^On Items/ }).check();
  const secs = form.getByLabel("Seconds until items expire");
  assert.equal(await secs.inputValue(), "", "it starts blank");
  assert.ok(await form.getByRole("button", { name: "Save" }).isDisabled());
  await secs.fill("600");
  await form.locator(".dry-run", { hasText: /1 item \(.*\) in the hour after/ }).waitFor();
  await form.getByRole("button", { name: "Save" }).click();
  await page.locator(".chip", { hasText: "TTL 600 s" }).waitFor();
  const index = (await users.indexes()).find((one) => one.key._ts);
  assert.equal(index.expireAfterSeconds, 600);
  await users.createIndex({ name: 1 }, { unique: true, sparse: true });
  await page.reload();
  await page.getByRole("row", { name: /name_1.*unique/ }).waitFor();
  await form.getByRole("radio", { name: /^Off/ }).check();
  await form.locator(".dry-run .calm").waitFor();
  await form.getByRole("button", { name: "Save" }).click();
  await page.locator(".chip", { hasText: "TTL off" }).waitFor();
  assert.equal((await users.indexes()).some((one) => one.key._ts), false);

  await page.getByRole("tab", { name: "Time" }).click();
  await page.locator(".tile", { hasText: "Never" }).locator("strong", { hasText: "2" }).waitFor();
  await page.getByRole("tab", { name: "Scale & Settings" }).click();
  await page.getByRole("button", { name: "Delete collection" }).click();
  await page.getByRole("dialog").getByRole("textbox").fill("lived");
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("lived is deleted.").waitFor();
  assert.equal((await world.mongo.db("people").listCollections({ name: "lived" }).toArray()).length, 0);
});

flow("a TTL index on a date (R29): the rule, the date of each document, those without one", {
  hash: "/c/people/visits/documents",
  setUp: async () => {
    const { now } = (await call("GET", "_admin/clock")).body;
    const visits = await collection("visits", [{ _id: "dated", at: new Date((now + 100) * 1000) }, { _id: "undated" }]);
    await visits.createIndex({ at: 1 }, { expireAfterSeconds: 60 });
  },
}, async (page) => {
  assert.match(await text(row(page, "dated").first().locator(".when")), /^in (1[56]\d s|2 min.*) ·date$/);
  assert.equal(await text(row(page, "undated").locator(".when")), "never");
  await row(page, "undated").click();
  await page.locator(".expiry", { hasText: "Never expires. Items of this container expire by the time at /at" }).waitFor();
  await page.getByRole("tab", { name: "Scale & Settings" }).click();
  await page.getByText("Documents expire 60 s after the date at at.").waitFor();
  await page.getByRole("row", { name: /at_1.*expireAfterSeconds: 60$/ }).waitFor();
  await page.getByRole("tab", { name: "Time" }).click();
  await page.getByText("by the time at /at").first().waitFor();
  await page.locator(".tile", { hasText: "Never" }).locator("strong", { hasText: "1" }).waitFor();
});

flow("time that counts from a property (R30): each item's, the dry run, no default without seconds", {
  hash: "/c/shop/tokens/items",
  setUp: async () => {
    await makeContainer(call, "seed");
    await call("DELETE", "dbs/shop/colls/tokens");
    const definition = { id: "tokens", partitionKey: { paths: ["/pk"], kind: "Hash", version: 2 }, defaultTtl: 600, ttlPropertyPath: "/issued" };
    assert.equal((await call("POST", "dbs/shop/colls", definition)).status, 201);
    const { now } = (await call("GET", "_admin/clock")).body;
    for (const item of [{ id: "future", issued: now + 4000 }, { id: "fresh", issued: now }, { id: "plain" }, { id: "kept", issued: now, ttl: -1 }]) {
      assert.equal((await call("POST", "dbs/shop/colls/tokens/docs", { pk: "p", ...item }, { "x-ms-documentdb-partitionkey": '["p"]' })).status, 201);
    }
  },
}, async (page) => {
  await page.locator(".chip", { hasText: "TTL 600 s from /issued" }).waitFor();
  assert.match(await text(row(page, "fresh").locator(".when")), /^in (10|9) min.* ·date$/);
  assert.match(await text(row(page, "future").locator(".when")), /^in 1 h 16 min ·date$/);
  for (const never of ["plain", "kept"]) assert.equal(await text(row(page, never).locator(".when")), "never");
  await row(page, "fresh").click();
  await page.locator(".expiry", { hasText: "The container's 600 s, counted from the item's /issued" }).waitFor();
  assert.match(await editor(page).inputValue(), /"issued"/);

  await page.getByRole("tab", { name: "Scale & Settings" }).click();
  const form = page.locator("form.card", { hasText: "Time to live" });
  await form.getByText("Items expire so long after the time that they have at /issued").waitFor();
  assert.equal(await form.getByRole("radio").count(), 2, "off, or seconds");
  await call("POST", "_admin/clock", { advance: 100 });
  await form.getByLabel("Seconds until items expire").fill("60");
  await form.locator(".dry-run", { hasText: "1 item (" }).waitFor();
  const said = await text(form.locator(".dry-run"));
  assert.match(said, /1 item \(.*\) expire at once/);
  assert.match(said, /1 item \(.*\) in the day after/);
  await form.getByRole("button", { name: "Save" }).click();
  await page.getByRole("button", { name: "Save and let them expire" }).click();
  await page.locator(".chip", { hasText: "TTL 60 s from /issued" }).waitFor();
  assert.equal((await call("GET", "dbs/shop/colls/tokens/docs/fresh", undefined, { "x-ms-documentdb-partitionkey": '["p"]' })).status, 404);
  await page.getByRole("tab", { name: "Time" }).click();
  await page.locator(".tile", { hasText: "Never" }).locator("strong", { hasText: "2" }).waitFor();
});

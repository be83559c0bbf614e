// Time to live, by the rules of the contract. The server's clock is virtual: no test waits.

import { before, test } from "node:test";
import assert from "node:assert/strict";
import { admin, advance, database, failure, fresh, refusal } from "./server.mjs";

let db;
before(async () => {
  db = await database();
});

async function create(defaultTtl) {
  const { container, resource } = await db.containers.create({
    id: fresh("ttl"),
    partitionKey: { paths: ["/pk"] },
    ...(defaultTtl === undefined ? {} : { defaultTtl }),
  });
  return { container, resource };
}

const put = (container, id, more = {}) => container.items.upsert({ id, pk: "a", ...more });
const alive = async (container, id) => (await container.item(id, "a").read()).statusCode === 200;

async function setDefault(container, defaultTtl) {
  const { resource } = await container.read();
  if (defaultTtl === undefined) delete resource.defaultTtl;
  else resource.defaultTtl = defaultTtl;
  await container.replace(resource);
}

test("ttl: the virtual clock moves forward only", async () => {
  const { now } = await admin("GET", "/_admin/clock");
  const moved = await advance(1000);
  assert.ok(moved.now >= now + 1000);
  await assert.rejects(admin("POST", "/_admin/clock", { set: now }), /400/);
});

test("ttl: R01, _ts is the server's second", async () => {
  const { container } = await create();
  const { now } = await admin("GET", "/_admin/clock");
  const { resource } = await put(container, "1");
  assert.ok(resource._ts >= now && resource._ts <= now + 2);
});

test("ttl: R04, an illegal ttl is refused where TTL is on", async () => {
  const { container } = await create(-1);
  for (const ttl of [0, -10, null, 1.5, "5", 2147483648, true, {}]) {
    const error = await refusal(container.items.create({ id: "1", pk: "a", ttl }));
    assert.equal(error.code, 400, JSON.stringify(ttl));
    assert.match(error.message, /The input ttl .* is invalid/, JSON.stringify(ttl));
  }
  assert.equal(await alive(container, "1"), false);
  assert.equal((await put(container, "1", { ttl: 20.0 })).statusCode, 201);
});

test("ttl: R05, where TTL is off only an illegal number is refused", async () => {
  const { container } = await create();
  for (const ttl of ["5", null, true, 7]) assert.equal((await put(container, "1", { ttl })).resource.ttl, ttl);
  for (const ttl of [0, -10, 1.5]) assert.equal(await failure(put(container, "2", { ttl })), 400, String(ttl));
});

test("ttl: R07, the matrix", async () => {
  const cases = [
    // default, own ttl, seconds to live
    [undefined, undefined, Infinity], [undefined, -1, Infinity], [undefined, 5, Infinity],
    [-1, undefined, Infinity], [-1, -1, Infinity], [-1, 5, 5],
    [20, undefined, 20], [20, -1, Infinity], [20, 5, 5], [20, 60, 60],
  ];
  const made = [];
  await admin("POST", "/_admin/clock", { freeze: true });
  for (const [def, own, lives] of cases) {
    const { container } = await create(def);
    await put(container, "1", own === undefined ? {} : { ttl: own });
    made.push([container, lives, `default ${def}, own ${own}`]);
  }
  let age = 0;
  for (const step of [4, 1, 14, 1, 39, 1, 100_000]) {
    await advance(step);
    age += step;
    for (const [container, lives, text] of made) {
      assert.equal(await alive(container, "1"), age < lives, `${text} at ${age} s`);
    }
  }
  await admin("POST", "/_admin/clock", { freeze: false });
});

test("ttl: R08, an expired item is gone from every path", async () => {
  const { container } = await create(10);
  await put(container, "1");
  await put(container, "2", { ttl: -1 });
  await advance(10);
  assert.equal((await container.item("1", "a").read()).statusCode, 404);
  assert.equal(await failure(container.item("1", "a").replace({ id: "1", pk: "a" })), 404);
  assert.equal(await failure(container.item("1", "a").delete()), 404);
  const listed = await container.items.readAll().fetchAll();
  assert.deepEqual(listed.resources.map((item) => item.id), ["2"]);
  const found = await container.items.query("SELECT * FROM c", { partitionKey: "a" }).fetchAll();
  assert.deepEqual(found.resources.map((item) => item.id), ["2"]);
});

test("ttl: R09, its id is free at once", async () => {
  const { container } = await create(10);
  await put(container, "1");
  await put(container, "2");
  await advance(10);
  assert.equal((await container.items.create({ id: "1", pk: "a" })).statusCode, 201);
  assert.equal((await put(container, "2")).statusCode, 201);
});

test("ttl: R10, a write starts the time anew, a read does not", async () => {
  const { container } = await create(10);
  await put(container, "written");
  await put(container, "read");
  await advance(6);
  await put(container, "written");
  assert.ok(await alive(container, "read"));
  await advance(6);
  assert.ok(await alive(container, "written"));
  assert.ok(!(await alive(container, "read")));
});

test("ttl: R11, an own ttl can be changed, and -1 is never", async () => {
  const { container } = await create(10);
  await put(container, "1", { ttl: 2 });
  await put(container, "1", { ttl: -1 });
  await advance(1_000_000);
  assert.ok(await alive(container, "1"));
});

test("ttl: R13, R15, expired is final", async () => {
  const { container } = await create(-1);
  await put(container, "1");
  await advance(100);
  assert.ok(await alive(container, "1"));
  await setDefault(container, 50);
  assert.ok(!(await alive(container, "1")));
  await setDefault(container, 1000);
  assert.ok(!(await alive(container, "1")));
  await setDefault(container, undefined);
  assert.ok(!(await alive(container, "1")));
});

test("ttl: R15, a longer default counts for old items too", async () => {
  const { container } = await create(10);
  await put(container, "1");
  await advance(5);
  await setDefault(container, 100);
  await advance(50);
  assert.ok(await alive(container, "1"));
  await advance(50);
  assert.ok(!(await alive(container, "1")));
});

test("ttl: R16, without a default nothing expires", async () => {
  const { container } = await create(10);
  await put(container, "1", { ttl: 3 });
  await setDefault(container, undefined);
  await advance(1000);
  assert.ok(await alive(container, "1"));
});

test("ttl: R17, turned on again, an own ttl counts from the last write", async () => {
  const { container } = await create();
  await put(container, "short", { ttl: 10 });
  await put(container, "long", { ttl: 1000 });
  await advance(100);
  assert.ok(await alive(container, "short"));
  await setDefault(container, -1);
  assert.ok(!(await alive(container, "short")));
  assert.ok(await alive(container, "long"));
});

test("ttl: R19, R21, the purge removes what has expired and says how far it is", async () => {
  const { container, resource } = await create(10);
  for (let n = 0; n < 20; n++) await put(container, String(n));
  await advance(10);
  const { containers } = await admin("GET", "/_admin/ttl");
  const lag = containers.find((entry) => entry.container === resource.id);
  assert.equal(lag.itemsBehind, 0);
  assert.equal(lag.purged, 20);
});

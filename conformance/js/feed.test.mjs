// The change feed: every place to begin, every scope, all versions and deletes, and what change feed processors do.

import { before, test } from "node:test";
import assert from "node:assert/strict";
import { ChangeFeedMode, ChangeFeedPolicy, ChangeFeedRetentionTimeSpan, ChangeFeedStartFrom } from "@azure/cosmos";
import { admin, advance, connect, database, failure, fresh } from "./server.mjs";

let db;
before(async () => {
  db = await database();
});

async function make(options = {}) {
  const { container } = await db.containers.create({ id: fresh("feed"), partitionKey: { paths: ["/pk"] }, ...options });
  return container;
}

/** Reads until there is nothing new: what was seen, and where to go on. */
async function drain(container, options) {
  const feed = container.items.getChangeFeedIterator(options);
  const seen = [];
  for (;;) {
    const page = await feed.readNext();
    if (page.statusCode === 304 || page.result.length === 0) return { seen, token: page.continuationToken };
    seen.push(...page.result);
  }
}

const ids = (items) => items.map((item) => item.id);

test("feed: from the beginning, from now, from a time, from a continuation", async () => {
  const container = await make();
  await container.items.create({ id: "1", pk: "a" });
  await advance(10);
  const { resource: second } = await container.items.create({ id: "2", pk: "b" });
  const now = await drain(container, { changeFeedStartFrom: ChangeFeedStartFrom.Now() });
  assert.deepEqual(ids(now.seen), []);
  await container.items.create({ id: "3", pk: "a" });

  const from = async (start) => ids((await drain(container, { changeFeedStartFrom: start })).seen);
  assert.deepEqual(await from(ChangeFeedStartFrom.Beginning()), ["1", "2", "3"]);
  assert.deepEqual(await from(ChangeFeedStartFrom.Time(new Date(second._ts * 1000))), ["2", "3"]);
  assert.deepEqual(await from(ChangeFeedStartFrom.Continuation(now.token)), ["3"]);
});

test("feed: of a partition key, of a feed range; in pages", async () => {
  const container = await make();
  for (let n = 0; n < 10; n++) await container.items.create({ id: `${n}`, pk: n % 2 ? "odd" : "even" });
  const odd = await drain(container, { changeFeedStartFrom: ChangeFeedStartFrom.Beginning("odd"), maxItemCount: 2 });
  assert.deepEqual(ids(odd.seen), ["1", "3", "5", "7", "9"]);
  const ranges = await container.getFeedRanges();
  const seen = [];
  for (const range of ranges) {
    seen.push(...(await drain(container, { changeFeedStartFrom: ChangeFeedStartFrom.Beginning(range) })).seen);
  }
  assert.deepEqual(ids(seen).sort(), Array.from({ length: 10 }, (_, n) => `${n}`));
});

test("feed: by the older iterators", async () => {
  const container = await make();
  await container.items.create({ id: "1", pk: "a" });
  await container.items.create({ id: "2", pk: "a" });
  for (const feed of [
    container.items.changeFeed("a", { startFromBeginning: true }),
    container.items.readChangeFeed("a", { startFromBeginning: true }),
  ]) {
    assert.deepEqual(ids((await feed.fetchNext()).result), ["1", "2"]);
  }
  const pages = container.items.changeFeed("a", { startFromBeginning: true, maxItemCount: 1 }).getAsyncIterator();
  assert.deepEqual(ids((await pages.next()).value.result), ["1"]);
});

test("feed: a split loses and repeats nothing", async () => {
  const container = await make();
  const begun = await drain(container, { changeFeedStartFrom: ChangeFeedStartFrom.Now() });
  for (let n = 0; n < 20; n++) await container.items.create({ id: `${n}`, pk: `${n}` });
  await admin("POST", "/_admin/split", { database: db.id, container: container.id, partition: "0" });
  for (let n = 20; n < 30; n++) await container.items.create({ id: `${n}`, pk: `${n}` });
  const { seen } = await drain(container, { changeFeedStartFrom: ChangeFeedStartFrom.Continuation(begun.token) });
  assert.deepEqual(ids(seen).sort(), Array.from({ length: 30 }, (_, n) => `${n}`).sort());
});

// Clients that know only the partitions of the beginning read, write, query and follow the feed while partitions split again and again.
test("feed: splits under load are felt by nobody", async () => {
  const container = await make();
  const begun = await drain(container, { changeFeedStartFrom: ChangeFeedStartFrom.Now() });
  const written = [];
  let splitting = true;
  const write = async (writer) => {
    const own = connect({ connectionPolicy: { enableBackgroundEndpointRefreshing: false } }).database(db.id).container(container.id);
    for (let n = 0; splitting || n < 20; n++) {
      const item = { id: `${writer}-${n}`, pk: `${writer}-${n % 7}` };
      assert.equal((await own.items.create(item)).statusCode, 201);
      written.push(item.id);
      assert.equal((await own.item(item.id, item.pk).read()).resource.id, item.id);
      if (n % 5 === 0) {
        const mine = { query: "SELECT VALUE c.id FROM c WHERE STARTSWITH(c.id, @mine)", parameters: [{ name: "@mine", value: `${writer}-` }] };
        const { resources } = await own.items.query(mine, { maxItemCount: 3 }).fetchAll();
        assert.equal(new Set(resources).size, n + 1);
        assert.equal(resources.length, n + 1);
      }
    }
  };
  const split = async () => {
    for (let n = 0; n < 4; n++) {
      const { resources } = await container.readPartitionKeyRanges().fetchAll();
      await admin("POST", "/_admin/split", { database: db.id, container: container.id, partition: resources[n % resources.length].id });
    }
    splitting = false;
  };
  await Promise.all([...["a", "b", "c"].map(write), split()]);
  assert.equal((await connect().database(db.id).container(container.id).readPartitionKeyRanges().fetchAll()).resources.length, 5);
  const { seen } = await drain(container, { changeFeedStartFrom: ChangeFeedStartFrom.Continuation(begun.token) });
  assert.deepEqual(ids(seen).sort(), written.sort());
});

test("feed: R24, all versions and deletes, expiries among them", async () => {
  const changeFeedPolicy = new ChangeFeedPolicy(ChangeFeedRetentionTimeSpan.fromMinutes(10));
  const container = await make({ changeFeedPolicy, defaultTtl: -1 });
  const changeFeedMode = ChangeFeedMode.AllVersionsAndDeletes;
  const begun = await drain(container, { changeFeedMode, changeFeedStartFrom: ChangeFeedStartFrom.Now() });
  await container.items.create({ id: "1", pk: "a", n: 1 });
  await container.items.upsert({ id: "1", pk: "a", n: 2 });
  await container.item("1", "a").delete();
  await container.items.create({ id: "2", pk: "a", ttl: 5 });
  await advance(5);
  const changeFeedStartFrom = ChangeFeedStartFrom.Continuation(begun.token);
  const { seen } = await drain(container, { changeFeedMode, changeFeedStartFrom });
  assert.deepEqual(
    seen.map(({ current, metadata, previous }) => [metadata.operationType, current?.n, previous?.n, metadata.timeToLiveExpired]),
    [
      ["create", 1, undefined, undefined],
      ["replace", 2, 1, undefined],
      ["delete", undefined, 2, undefined],
      ["create", undefined, undefined, undefined],
      ["delete", undefined, undefined, true],
    ],
  );
  assert.deepEqual([seen[4].metadata.id, seen[4].metadata.partitionKey], ["2", { pk: "a" }]);
});

// What the processors of .NET and Java do with their lease container, request by request.
test("feed: leases are taken, renewed, lost and found again", async () => {
  const watched = await make();
  const leases = await make({ partitionKey: { paths: ["/id"] }, defaultTtl: -1 });
  const name = (range) => `host_app..${range.id}`;
  const { resources: ranges } = await watched.readPartitionKeyRanges().fetchAll();

  // Two hosts want to make the leases: one does, and the lock that guards this expires by itself.
  const lock = { id: "host_app.lock", ttl: 30 };
  await leases.items.create(lock);
  assert.equal(await failure(leases.items.create(lock)), 409);
  for (const range of ranges) {
    await leases.items.create({ id: name(range), Owner: null, ContinuationToken: null, FeedRange: range.id });
  }
  await advance(30);
  assert.equal((await leases.items.create(lock)).statusCode, 201);

  // Each lease has one owner: whoever replaces an older version is refused.
  const query = { query: "SELECT * FROM c WHERE STARTSWITH(c.id, @prefix)", parameters: [{ name: "@prefix", value: "host_app.." }] };
  const { resources: found } = await leases.items.query(query).fetchAll();
  assert.deepEqual(ids(found), ranges.map(name));
  const ifMatch = (item) => ({ accessCondition: { type: "IfMatch", condition: item._etag } });
  const [lease] = found;
  const take = (Owner) => leases.item(lease.id, lease.id).replace({ ...lease, Owner, ttl: 60 }, ifMatch(lease));
  const { resource: owned } = await take("one");
  assert.equal(await failure(take("two")), 412);

  // The owner works through the feed and keeps its place, which is also its sign of life.
  await watched.items.create({ id: "1", pk: "a" });
  const { seen, token } = await drain(watched, { changeFeedStartFrom: ChangeFeedStartFrom.Beginning() });
  assert.deepEqual(ids(seen), ["1"]);
  await advance(50);
  const { resource: renewed } = await leases
    .item(lease.id, lease.id)
    .replace({ ...owned, ContinuationToken: token }, ifMatch(owned));
  await advance(50);
  assert.equal((await leases.item(lease.id, lease.id).read()).resource._etag, renewed._etag);

  // It dies. The lease is gone in its second, and the next owner begins anew or goes on from what it knows.
  await advance(10);
  assert.equal((await leases.item(lease.id, lease.id).read()).statusCode, 404);
  await leases.items.create({ ...lease, Owner: "two", ContinuationToken: token, ttl: 60 });
  await watched.items.create({ id: "2", pk: "a" });
  const next = await drain(watched, { changeFeedStartFrom: ChangeFeedStartFrom.Continuation(token) });
  assert.deepEqual(ids(next.seen), ["2"]);
});

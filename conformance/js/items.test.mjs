// Items: create, read, replace, upsert, delete, list.

import { before, test } from "node:test";
import assert from "node:assert/strict";
import { database, failure, fresh, refusal } from "./server.mjs";

let db, container;
before(async () => {
  db = await database();
  ({ container } = await db.containers.create({ id: "items", partitionKey: { paths: ["/pk"], version: 2 } }));
});

test("items: create answers the item with its system properties", async () => {
  const body = { id: fresh("i"), pk: "a", text: "ø 漢字 🙂", number: 1.5, whole: 9007199254740991, list: [1, [2]], nothing: null };
  const { resource, statusCode, etag, requestCharge, activityId, headers } = await container.items.create(body);
  assert.equal(statusCode, 201);
  assert.deepEqual({ ...resource, ...body }, resource);
  for (const name of ["_rid", "_self", "_etag", "_ts", "_attachments"]) assert.ok(resource[name], name);
  assert.equal(etag, resource._etag);
  assert.ok(requestCharge > 0);
  assert.ok(activityId);
  assert.match(headers["x-ms-session-token"], /^\d+:/);
});

test("items: what a client sends for system properties is overwritten", async () => {
  const { resource } = await container.items.create({ id: fresh("i"), pk: "a", _ts: 1, _rid: "x", _etag: "y", _self: "z" });
  assert.ok(resource._ts > 1_500_000_000);
  assert.notEqual(resource._rid, "x");
  assert.notEqual(resource._etag, "y");
});

test("items: read, replace, upsert, delete", async () => {
  const id = fresh("i");
  await container.items.create({ id, pk: "a", n: 1 });
  const read = await container.item(id, "a").read();
  assert.equal(read.statusCode, 200);
  assert.equal(read.resource.n, 1);
  const replaced = await container.item(id, "a").replace({ id, pk: "a", n: 2 });
  assert.equal(replaced.statusCode, 200);
  assert.equal(replaced.resource._rid, read.resource._rid);
  assert.notEqual(replaced.resource._etag, read.resource._etag);
  const updated = await container.items.upsert({ id, pk: "a", n: 3 });
  assert.equal(updated.statusCode, 200);
  assert.equal(updated.resource.n, 3);
  assert.equal((await container.item(id, "a").delete()).statusCode, 204);
  assert.equal((await container.item(id, "a").read()).statusCode, 404);
  assert.equal((await container.items.upsert({ id, pk: "a", n: 4 })).statusCode, 201);
});

test("items: an id is taken once in a partition key", async () => {
  const id = fresh("i");
  await container.items.create({ id, pk: "a" });
  assert.equal(await failure(container.items.create({ id, pk: "a" })), 409);
  assert.equal((await container.items.create({ id, pk: "b" })).statusCode, 201);
});

test("items: what is not there cannot be replaced or deleted", async () => {
  const id = fresh("none");
  assert.equal(await failure(container.item(id, "a").replace({ id, pk: "a" })), 404);
  assert.equal(await failure(container.item(id, "a").delete()), 404);
});

test("items: If-Match guards replace, upsert and delete", async () => {
  const id = fresh("i");
  const { etag } = await container.items.create({ id, pk: "a" });
  const stale = { accessCondition: { type: "IfMatch", condition: '"not-this"' } };
  const right = { accessCondition: { type: "IfMatch", condition: etag } };
  assert.equal(await failure(container.item(id, "a").replace({ id, pk: "a" }, stale)), 412);
  assert.equal(await failure(container.items.upsert({ id, pk: "a" }, stale)), 412);
  assert.equal(await failure(container.item(id, "a").delete(stale)), 412);
  assert.equal((await container.item(id, "a").replace({ id, pk: "a" }, right)).statusCode, 200);
  assert.equal(await failure(container.item(id, "a").delete(right)), 412);
});

test("items: If-None-Match spares a body", async () => {
  const id = fresh("i");
  const { etag } = await container.items.create({ id, pk: "a" });
  const accessCondition = { type: "IfNoneMatch", condition: etag };
  const read = await container.item(id, "a").read({ accessCondition });
  assert.equal(read.statusCode, 304);
  await container.item(id, "a").replace({ id, pk: "a", n: 2 });
  assert.equal((await container.item(id, "a").read({ accessCondition })).statusCode, 200);
});

test("items: partition keys of every type are apart", async () => {
  const id = fresh("i");
  const keys = ["1", 1, 1.5, true, false, null, ""];
  for (const pk of keys) assert.equal((await container.items.create({ id, pk, mark: String(pk) })).statusCode, 201);
  assert.equal((await container.items.create({ id, mark: "none" })).statusCode, 201);
  for (const pk of keys) assert.equal((await container.item(id, pk).read()).resource.mark, String(pk), `${pk}`);
  assert.equal((await container.item(id, undefined).read()).resource.mark, "none");
});

test("items: a hierarchical partition key", async () => {
  const partitionKey = { paths: ["/a", "/b"], kind: "MultiHash", version: 2 };
  const { container } = await db.containers.create({ id: fresh("multi"), partitionKey });
  await container.items.create({ id: "1", a: "x", b: 5 });
  await container.items.create({ id: "1", a: "x", b: 6 });
  assert.equal((await container.item("1", ["x", 5]).read()).resource.b, 5);
  assert.equal((await container.item("1", ["x", 6]).read()).resource.b, 6);
  assert.equal((await container.item("1", ["x", 7]).read()).statusCode, 404);
});

test("items: a key that is not the item's is 400 with substatus 1001", async () => {
  const id = fresh("i");
  await container.items.create({ id, pk: "a" });
  const error = await refusal(container.item(id, "a").replace({ id, pk: "b" }));
  assert.equal(error.code, 400);
  assert.equal((await container.item(id, "a").read()).resource.pk, "a");
});

test("items: unusual ids", async () => {
  for (const id of ["with space", "ünïcödé", "100%", "a+b&c=d", "漢字", "quote'\"", "x".repeat(255)]) {
    const created = await container.items.create({ id, pk: "ids" });
    assert.equal(created.statusCode, 201, id);
    const read = await container.item(id, "ids").read();
    assert.equal(read.resource?.id, id);
    assert.equal((await container.item(id, "ids").delete()).statusCode, 204, id);
  }
});

test("items: over 2 MB is refused", async () => {
  const error = await refusal(container.items.create({ id: fresh("i"), pk: "big", text: "x".repeat(2 * 1024 * 1024 + 1) }));
  assert.equal(error.code, 413);
});

test("items: nearly 2 MB is kept", async () => {
  const id = fresh("i");
  const text = "x".repeat(2_000_000);
  await container.items.create({ id, pk: "big", text });
  assert.equal((await container.item(id, "big").read()).resource.text, text);
});

test("items: unique keys hold within a partition key", async () => {
  const uniqueKeyPolicy = { uniqueKeys: [{ paths: ["/email"] }] };
  const definition = { id: fresh("unique"), partitionKey: { paths: ["/pk"] }, uniqueKeyPolicy };
  const { container } = await db.containers.create(definition);
  await container.items.create({ id: "1", pk: "a", email: "x" });
  assert.equal(await failure(container.items.create({ id: "2", pk: "a", email: "x" })), 409);
  assert.equal((await container.items.create({ id: "2", pk: "b", email: "x" })).statusCode, 201);
  assert.equal(await failure(container.items.upsert({ id: "3", pk: "a", email: "x" })), 409);
  assert.equal((await container.items.upsert({ id: "1", pk: "a", email: "y" })).statusCode, 200);
  assert.equal((await container.items.create({ id: "2", pk: "a", email: "x" })).statusCode, 201);
});

test("items: lists go in pages, in the order of creation", async () => {
  const { container } = await db.containers.create({ id: fresh("pages"), partitionKey: { paths: ["/pk"] } });
  for (let n = 0; n < 25; n++) await container.items.create({ id: String(n), pk: String(n % 3) });
  const iterator = container.items.readAll({ maxItemCount: 10 });
  const pages = [];
  while (iterator.hasMoreResults()) {
    const { resources } = await iterator.fetchNext();
    if (resources?.length) pages.push(resources.map((item) => item.id));
  }
  assert.deepEqual(pages.map((page) => page.length), [10, 10, 5]);
  assert.deepEqual(pages.flat(), Array.from({ length: 25 }, (_, n) => String(n)));
});

test("items: the change feed shows the last version of each", async () => {
  const { container } = await db.containers.create({ id: fresh("feed"), partitionKey: { paths: ["/pk"] } });
  await container.items.create({ id: "1", pk: "a", n: 1 });
  await container.items.create({ id: "2", pk: "a", n: 1 });
  await container.items.upsert({ id: "1", pk: "a", n: 2 });
  const { ChangeFeedStartFrom } = await import("@azure/cosmos");
  const feed = container.items.getChangeFeedIterator({ changeFeedStartFrom: ChangeFeedStartFrom.Beginning() });
  const seen = [];
  for await (const page of feed.getAsyncIterator()) {
    if (page.statusCode === 304) break;
    seen.push(...page.result.map((item) => [item.id, item.n]));
  }
  assert.deepEqual(seen, [["2", 1], ["1", 2]]);
});

test("items: batch, all or nothing", async () => {
  const operation = (id) => ({ operationType: "Create", resourceBody: { id, pk: "batch" } });
  const [one, two] = [fresh("i"), fresh("i")];
  const done = await container.items.batch([operation(one), operation(two)], "batch");
  assert.deepEqual(done.result.map((result) => result.statusCode), [201, 201]);
  const undone = await container.items.batch([operation(fresh("i")), operation(one)], "batch");
  assert.deepEqual(undone.result.map((result) => result.statusCode), [424, 409]);
});

test("items: bulk, each for itself", async () => {
  const operation = (id) => ({ operationType: "Create", resourceBody: { id, pk: "bulk" }, partitionKey: "bulk" });
  const id = fresh("i");
  const results = await container.items.executeBulkOperations([operation(id), operation(fresh("i"))]);
  assert.deepEqual(results.map((result) => result.response?.statusCode), [201, 201]);
});

test("items: patch", async () => {
  const id = fresh("i");
  await container.items.create({ id, pk: "a", n: 1 });
  const { resource } = await container.item(id, "a").patch([{ op: "incr", path: "/n", value: 2 }]);
  assert.equal(resource.n, 3);
});

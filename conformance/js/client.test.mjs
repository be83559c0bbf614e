// What is left of the client: the account, and everything of a container and a query that has no file of its own.

import { before, test } from "node:test";
import assert from "node:assert/strict";
import { CosmosDbDiagnosticLevel, DiagnosticNodeInternal, DiagnosticNodeType, PartitionKeyBuilder } from "@azure/cosmos";
import { client, connect, database, endpoint, failure, fresh } from "./server.mjs";

let db;
before(async () => {
  db = await database();
});

async function make(options = {}) {
  const { container } = await db.containers.create({ id: fresh("client"), partitionKey: { paths: ["/pk"] }, ...options });
  return container;
}

test("client: the account and its endpoints", async () => {
  const one = connect();
  const { resource } = await one.getDatabaseAccount();
  assert.equal(resource.consistencyPolicy, "Session");
  const found = [await one.getReadEndpoint(), await one.getWriteEndpoint()];
  const lists = [await one.getReadEndpoints(), await one.getWriteEndpoints()];
  for (const url of [...found, ...lists.flat()]) assert.equal(new URL(url).port, new URL(endpoint).port);
  one.dispose();
});

test("client: an offer by its id, of a container and of a database", async () => {
  const { database: shared } = await client.databases.create({ id: fresh("shared"), throughput: 500 });
  const container = await make({ throughput: 400 });
  for (const [owner, throughput] of [[container, 400], [shared, 500]]) {
    const { resource } = await owner.readOffer();
    assert.equal(resource.content.offerThroughput, throughput);
    const offer = client.offer(resource.id);
    assert.equal((await offer.read()).resource._rid, resource._rid);
    const larger = { ...resource, content: { ...resource.content, offerThroughput: throughput + 100 } };
    assert.equal((await offer.replace(larger)).resource.content.offerThroughput, throughput + 100);
  }
  await shared.delete();
});

test("client: a container's key and ranges", async () => {
  const container = await make({ partitionKey: { paths: ["/a", "/b"], kind: "MultiHash", version: 2 } });
  assert.deepEqual((await container.getPartitionKeyDefinition()).resource.paths, ["/a", "/b"]);
  const node = new DiagnosticNodeInternal(CosmosDbDiagnosticLevel.info, DiagnosticNodeType.CLIENT_REQUEST_NODE, null);
  assert.deepEqual((await container.readPartitionKeyDefinition(node)).resource.paths, ["/a", "/b"]);
  const { resources } = await container.readPartitionKeyRanges().fetchAll();
  assert.deepEqual([resources[0].minInclusive, resources.at(-1).maxExclusive], ["", "FF"]);
  assert.equal((await container.getFeedRanges()).length, resources.length);
});

test("client: partition keys with null and without a value", async () => {
  const container = await make({ partitionKey: { paths: ["/a", "/b"], kind: "MultiHash", version: 2 } });
  await container.items.create({ id: "1", a: "x", b: null });
  await container.items.create({ id: "2", a: "x" });
  const key = () => new PartitionKeyBuilder().addValue("x");
  assert.equal((await container.item("1", key().addNullValue().build()).read()).resource.id, "1");
  assert.equal((await container.item("2", key().addNoneValue().build()).read()).resource.id, "2");
  assert.equal((await container.item("1", key().addNoneValue().build()).read()).statusCode, 404);
});

test("client: all items of a partition key are deleted at once", async () => {
  const container = await make();
  for (let n = 0; n < 20; n++) await container.items.create({ id: `${n}`, pk: n % 2 ? "gone" : "kept" });
  assert.equal((await container.deleteAllItemsForPartitionKey("gone")).statusCode, 200);
  const { resources } = await container.items.query("SELECT VALUE c.pk FROM c").fetchAll();
  assert.deepEqual(resources, Array(10).fill("kept"));
});

test("client: an iterator of a query, in every way it can be read", async () => {
  const container = await make();
  for (let n = 0; n < 5; n++) await container.items.create({ id: `${n}`, pk: "a", n });
  const query = () => container.items.query("SELECT VALUE c.n FROM c", { maxItemCount: 2 });
  assert.deepEqual((await query().fetchAll()).resources, [0, 1, 2, 3, 4]);
  const pages = [];
  for await (const page of query().getAsyncIterator()) pages.push(page.resources);
  assert.deepEqual(pages, [[0, 1], [2, 3], [4]]);
  const iterator = query();
  assert.deepEqual((await iterator.fetchNext()).resources, [0, 1]);
  assert.ok(iterator.hasMoreResults());
  iterator.reset();
  assert.deepEqual((await iterator.fetchNext()).resources, [0, 1]);
});

test("client: bulk, the older way", async () => {
  const container = await make();
  const results = await container.items.bulk([
    { operationType: "Create", resourceBody: { id: "1", pk: "a" }, partitionKey: "a" },
    { operationType: "Upsert", resourceBody: { id: "2", pk: "b" }, partitionKey: "b" },
    { operationType: "Read", id: "1", partitionKey: "a" },
    { operationType: "Patch", id: "2", partitionKey: "b", resourceBody: { operations: [{ op: "add", path: "/n", value: 1 }] } },
    { operationType: "Delete", id: "nobody", partitionKey: "a" },
  ], { continueOnError: true });
  assert.deepEqual(results.map(({ statusCode }) => statusCode), [201, 201, 200, 200, 404]);
});

test("client: conflicts are not there, one by one", async () => {
  const container = await make();
  // The SDK signs this request as one for a user, and so is refused by everybody.
  assert.equal(await failure(container.conflict("x", "a").read()), 401);
  assert.equal(await failure(container.conflict("x", "a").delete()), 404);
  assert.deepEqual((await container.conflicts.query("SELECT * FROM c").fetchAll()).resources, []);
});

test("client: triggers and functions are read, replaced, listed, queried, deleted", async () => {
  const { scripts } = await make();
  const body = "function () {}";
  const kinds = [
    [scripts.triggers, (id) => scripts.trigger(id), { triggerType: "Pre", triggerOperation: "All" }],
    [scripts.userDefinedFunctions, (id) => scripts.userDefinedFunction(id), {}],
  ];
  for (const [feed, one, more] of kinds) {
    await feed.create({ id: "s", body, ...more });
    assert.equal((await one("s").read()).resource.body, body);
    const { resource } = await one("s").replace({ id: "s", body: "function () { return 1; }", ...more });
    assert.equal(resource.body, "function () { return 1; }");
    assert.equal((await feed.readAll().fetchAll()).resources.length, 1);
    assert.equal((await feed.query("SELECT * FROM c WHERE c.id = 's'").fetchAll()).resources.length, 1);
    await one("s").delete();
    assert.equal(await failure(one("s").read()), 404);
  }
});

test("client: permissions are queried, and written whether they are there or not", async () => {
  const container = await make();
  const { user } = await db.users.create({ id: fresh("user") });
  const permission = { id: "p", permissionMode: "Read", resource: container.url };
  assert.equal((await user.permissions.upsert(permission)).statusCode, 201);
  assert.equal((await user.permissions.upsert({ ...permission, permissionMode: "All" })).statusCode, 200);
  const { resources } = await user.permissions.query("SELECT * FROM c WHERE c.permissionMode = 'All'").fetchAll();
  assert.deepEqual(resources.map(({ id }) => id), ["p"]);
});

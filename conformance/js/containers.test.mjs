// Containers and their definitions.

import { before, test } from "node:test";
import assert from "node:assert/strict";
import { client, connect, database, failure, fresh, refusal } from "./server.mjs";

let db;
before(async () => {
  db = await database();
});

const create = (definition = {}, options = {}) =>
  db.containers.create({ id: fresh("c"), partitionKey: { paths: ["/pk"], version: 2 }, ...definition }, options);

test("containers: what is left out is filled in", async () => {
  const { resource, statusCode } = await create();
  assert.equal(statusCode, 201);
  assert.deepEqual(resource.indexingPolicy, {
    indexingMode: "consistent",
    automatic: true,
    includedPaths: [{ path: "/*" }],
    excludedPaths: [{ path: '/"_etag"/?' }],
  });
  assert.deepEqual(resource.partitionKey, { paths: ["/pk"], kind: "Hash", version: 2 });
  assert.equal(resource.conflictResolutionPolicy.mode, "LastWriterWins");
  assert.equal(resource.defaultTtl, undefined);
  for (const name of ["_rid", "_self", "_etag", "_ts", "_docs", "_sprocs", "_triggers", "_udfs", "_conflicts"]) {
    assert.ok(resource[name], name);
  }
});

test("containers: read gives what create gave", async () => {
  const { resource, container } = await create({ defaultTtl: 5, uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/email"] }] } });
  const read = await container.read();
  assert.equal(read.statusCode, 200);
  assert.deepEqual(read.resource, resource);
});

test("containers: createIfNotExists finds what is there", async () => {
  const definition = { id: fresh("c"), partitionKey: { paths: ["/pk"] } };
  assert.equal((await db.containers.createIfNotExists(definition)).statusCode, 201);
  assert.equal((await db.containers.createIfNotExists(definition)).statusCode, 200);
});

test("containers: a name is taken once", async () => {
  const { resource } = await create();
  assert.equal(await failure(create({ id: resource.id })), 409);
});

test("containers: list and query by id", async () => {
  const { resource } = await create();
  const { resources } = await db.containers.readAll().fetchAll();
  assert.ok(resources.some((container) => container.id === resource.id));
  const query = { query: "SELECT * FROM root r WHERE r.id = @id", parameters: [{ name: "@id", value: resource.id }] };
  const found = await db.containers.query(query).fetchAll();
  assert.deepEqual(found.resources.map((container) => container._rid), [resource._rid]);
});

test("containers: the indexing policy can be replaced", async () => {
  const { resource, container } = await create();
  resource.indexingPolicy.excludedPaths = [{ path: "/secret/*" }, { path: '/"_etag"/?' }];
  const replaced = await container.replace(resource);
  assert.equal(replaced.statusCode, 200);
  assert.deepEqual(replaced.resource.indexingPolicy.excludedPaths, resource.indexingPolicy.excludedPaths);
  assert.equal(replaced.resource._rid, resource._rid);
  assert.notEqual(replaced.resource._etag, resource._etag);
});

test("containers: the partition key cannot be replaced", async () => {
  const { resource, container } = await create();
  assert.equal(await failure(container.replace({ ...resource, partitionKey: { paths: ["/other"], version: 2 } })), 400);
  assert.deepEqual((await container.read()).resource.partitionKey.paths, ["/pk"]);
});

test("containers: unique keys cannot be replaced", async () => {
  const { resource, container } = await create({ uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/a"] }] } });
  const other = { ...resource, uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/b"] }] } };
  assert.equal(await failure(container.replace(other)), 400);
});

test("containers: If-Match guards a replace", async () => {
  const { resource, container } = await create();
  const accessCondition = { type: "IfMatch", condition: resource._etag };
  assert.equal((await container.replace({ ...resource, defaultTtl: 9 }, { accessCondition })).statusCode, 200);
  assert.equal(await failure(container.replace(resource, { accessCondition })), 412);
});

test("containers: every legal default ttl is kept as given", async () => {
  for (const defaultTtl of [-1, 1, 2147483647]) {
    const { resource, container } = await create({ defaultTtl });
    assert.equal(resource.defaultTtl, defaultTtl);
    await container.delete();
  }
});

test("containers: R03, an illegal default ttl is refused and named", async () => {
  const { resource, container } = await create({ defaultTtl: 30 });
  for (const defaultTtl of [0, -2, -10, 1.5, "5", true, 2147483648]) {
    const created = await refusal(create({ defaultTtl }));
    assert.equal(created.code, 400, `create with ${defaultTtl}`);
    assert.ok(created.message.includes(String(defaultTtl)), created.message);
    assert.equal(await failure(container.replace({ ...resource, defaultTtl })), 400, `replace with ${defaultTtl}`);
  }
  assert.equal((await container.read()).resource.defaultTtl, 30);
});

test("containers: R06, a default ttl needs an index", async () => {
  const indexingPolicy = { indexingMode: "none", automatic: false };
  assert.equal(await failure(create({ defaultTtl: 30, indexingPolicy })), 400);
  const { resource, container } = await create({ defaultTtl: 30 });
  assert.equal(await failure(container.replace({ ...resource, indexingPolicy })), 400);
  await create({ indexingPolicy });
});

test("containers: R16, a replace without the default removes it", async () => {
  const { resource, container } = await create({ defaultTtl: 30 });
  delete resource.defaultTtl;
  const replaced = await container.replace(resource);
  assert.equal(replaced.resource.defaultTtl, undefined);
});

test("containers: a hierarchical partition key", async () => {
  const partitionKey = { paths: ["/a", "/b", "/c"], kind: "MultiHash", version: 2 };
  const { resource } = await create({ partitionKey });
  assert.deepEqual(resource.partitionKey, partitionKey);
});

test("containers: definitions that cannot be are refused", async () => {
  const bad = [
    { partitionKey: { paths: ["pk"] } },
    { partitionKey: { paths: ["/a", "/b", "/c", "/d"], kind: "MultiHash", version: 2 } },
    { indexingPolicy: { indexingMode: "sometimes" } },
    { uniqueKeyPolicy: { uniqueKeys: [{ paths: [] }] } },
  ];
  for (const definition of bad) assert.equal(await failure(create(definition)), 400, JSON.stringify(definition));
});

test("containers: partition key ranges cover the whole space", async () => {
  const { container } = await create();
  const { resources } = await container.readPartitionKeyRanges().fetchAll();
  assert.equal(resources[0].minInclusive, "");
  assert.equal(resources.at(-1).maxExclusive, "FF");
});

test("containers: delete takes the items with it", async () => {
  const { container, resource } = await create();
  await container.items.create({ id: "1", pk: "a" });
  assert.equal((await container.delete()).statusCode, 204);
  assert.equal(await failure(container.read()), 404);
  const again = await create({ id: resource.id });
  assert.notEqual(again.resource._rid, resource._rid);
  assert.equal((await again.container.item("1", "a").read()).statusCode, 404);
});

test("containers: an item of a container that is gone is 404 with substatus 1003", async () => {
  const { container } = await create();
  await container.items.create({ id: "1", pk: "a" });
  await connect().database(db.id).container(container.id).delete();
  const error = await refusal(container.items.create({ id: "2", pk: "a" }));
  assert.equal(error.code, 404);
  assert.equal(error.substatus, 1003);
});

test("containers: of a database that is not there is a 404", async () => {
  const definition = { id: "c", partitionKey: { paths: ["/pk"] } };
  assert.equal(await failure(client.database(fresh("none")).containers.create(definition)), 404);
});

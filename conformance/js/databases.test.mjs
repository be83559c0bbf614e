// Databases.

import { test } from "node:test";
import assert from "node:assert/strict";
import { client, failure, fresh, refusal } from "./server.mjs";

test("databases: create, read, delete", async () => {
  const id = fresh("db");
  const created = await client.databases.create({ id });
  assert.equal(created.statusCode, 201);
  assert.equal(created.resource.id, id);
  for (const name of ["_rid", "_self", "_etag", "_ts", "_colls", "_users"]) assert.ok(created.resource[name], name);
  const read = await client.database(id).read();
  assert.equal(read.statusCode, 200);
  assert.deepEqual(read.resource._rid, created.resource._rid);
  assert.equal((await client.database(id).delete()).statusCode, 204);
  assert.equal(await failure(client.database(id).read()), 404);
});

test("databases: createIfNotExists finds what is there", async () => {
  const id = fresh("db");
  assert.equal((await client.databases.createIfNotExists({ id })).statusCode, 201);
  const again = await client.databases.createIfNotExists({ id });
  assert.equal(again.statusCode, 200);
  assert.equal(again.resource.id, id);
  await client.database(id).delete();
});

test("databases: a name is taken once", async () => {
  const id = fresh("db");
  await client.databases.create({ id });
  const error = await refusal(client.databases.create({ id }));
  assert.equal(error.code, 409);
  assert.match(error.message, /already exists/);
  await client.database(id).delete();
});

test("databases: list and query by id", async () => {
  const ids = [fresh("db"), fresh("db")];
  for (const id of ids) await client.databases.create({ id });
  const { resources } = await client.databases.readAll().fetchAll();
  for (const id of ids) assert.ok(resources.some((database) => database.id === id));
  const query = { query: "SELECT * FROM root r WHERE r.id = @id", parameters: [{ name: "@id", value: ids[1] }] };
  const found = await client.databases.query(query).fetchAll();
  assert.deepEqual(found.resources.map((database) => database.id), [ids[1]]);
  for (const id of ids) await client.database(id).delete();
});

test("databases: a name used again is another database", async () => {
  const id = fresh("db");
  const first = await client.databases.create({ id });
  await first.database.containers.create({ id: "c", partitionKey: { paths: ["/pk"] } });
  await first.database.delete();
  const second = await client.databases.create({ id });
  assert.notEqual(second.resource._rid, first.resource._rid);
  assert.equal(await failure(second.database.container("c").read()), 404);
  await second.database.delete();
});

test("databases: deleting what is not there is a 404", async () => {
  assert.equal(await failure(client.database(fresh("none")).delete()), 404);
});

// The queries that work without the language: all items, and one by its id.

import { before, test } from "node:test";
import assert from "node:assert/strict";
import { database, refusal } from "./server.mjs";

let container;
before(async () => {
  const db = await database();
  ({ container } = await db.containers.create({ id: "query", partitionKey: { paths: ["/pk"] } }));
  for (let n = 0; n < 12; n++) await container.items.create({ id: String(n), pk: `k${n % 2}`, n });
});

test("query: SELECT * FROM c", async () => {
  const { resources } = await container.items.query("SELECT * FROM c").fetchAll();
  assert.equal(resources.length, 12);
});

test("query: SELECT * FROM c within a partition key", async () => {
  const { resources } = await container.items.query("SELECT * FROM c", { partitionKey: "k1" }).fetchAll();
  assert.deepEqual(resources.map((item) => item.n), [1, 3, 5, 7, 9, 11]);
});

test("query: by id, with a parameter", async () => {
  const query = { query: "SELECT * FROM c WHERE c.id = @id", parameters: [{ name: "@id", value: "7" }] };
  const { resources } = await container.items.query(query).fetchAll();
  assert.deepEqual(resources.map((item) => item.n), [7]);
});

test("query: pages", async () => {
  const iterator = container.items.query("SELECT * FROM c", { maxItemCount: 5, partitionKey: "k0" });
  const sizes = [];
  while (iterator.hasMoreResults()) sizes.push((await iterator.fetchNext()).resources.length);
  assert.deepEqual(sizes.filter((size) => size > 0), [5, 1]);
});

test("query: a text that is no query is a 400", async () => {
  const error = await refusal(container.items.query("SELEKT * FROM c", { partitionKey: "k0" }).fetchAll());
  assert.equal(error.code, 400);
});

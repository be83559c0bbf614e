// The queries that work without the language: all items, and one by its id.

import { before, test } from "node:test";
import assert from "node:assert/strict";
import { QueryMetrics } from "@azure/cosmos";
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

test("query: the plan that the server makes of it", async () => {
  const { result } = await container.getQueryPlan("SELECT TOP 3 VALUE c.n FROM c ORDER BY c.n DESC");
  assert.deepEqual([result.queryRanges[0].min, result.queryRanges.at(-1).max], ["", "FF"]);
  assert.equal(typeof result.queryInfo.rewrittenQuery, "string");
  const error = await refusal(container.getQueryPlan("SELEKT * FROM c"));
  assert.equal(error.code, 400);
});

test("query: what it took, in the words of the SDK", async () => {
  const options = { populateQueryMetrics: true, partitionKey: "k0" };
  const { headers } = await container.items.query("SELECT * FROM c WHERE c.n > 3", options).fetchNext();
  // The SDK has made it of the header's text, one for each partition.
  const [metrics] = Object.values(headers["x-ms-documentdb-query-metrics"]);
  assert.ok(metrics instanceof QueryMetrics);
  assert.equal(metrics.outputDocumentCount, 4);
  assert.ok(metrics.retrievedDocumentCount >= 4 && metrics.retrievedDocumentSize > 0);
  assert.ok(metrics.indexHitRatio > 0 && metrics.indexHitRatio <= 1);
  assert.ok(metrics.totalQueryExecutionTime.totalMilliseconds() >= 0);
  for (const times of [metrics.runtimeExecutionTimes, metrics.queryPreparationTimes]) {
    assert.match(times.add(times).toDelimitedString(), /TimeInMs=[0-9.]+/);
  }
  assert.equal(metrics.add([metrics]).outputDocumentCount, 8);
  const charge = metrics.clientSideMetrics.add(metrics.clientSideMetrics).requestCharge;
  assert.equal(charge, 2 * metrics.clientSideMetrics.requestCharge);
  assert.match(metrics.toDelimitedString(), /totalExecutionTimeInMs=/);
});

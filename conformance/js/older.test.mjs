// A client from before plan requests: it sends a query as it is, and where partitions must be merged it waits to be refused with the plan
// (400, substatus 1004), by which it asks each partition itself.

import { before, test } from "node:test";
import assert from "node:assert/strict";
import https from "node:https";
import { createRequire } from "node:module";
import { database, endpoint, key } from "./server.mjs";

// This SDK insists on TLS 1.0, which nobody speaks any more. All its requests go through here, so that
// they can be counted too; it keeps what it finds when it is loaded.
const sent = [];
const agent = new https.Agent({ rejectUnauthorized: false });
const request = https.request;
https.request = (options, ...rest) => {
  if (options.secureProtocol !== "TLSv1_client_method") return request(options, ...rest);
  sent.push(options.headers);
  return request({ ...options, secureProtocol: undefined, agent }, ...rest);
};

const { CosmosClient } = createRequire(import.meta.url)("cosmos-2");

let container;
before(async () => {
  const db = await database();
  await db.containers.create({ id: "older", partitionKey: { paths: ["/pk"] }, throughput: 20000 });
  const client = new CosmosClient({ endpoint, auth: { masterKey: key } });
  container = client.database(db.id).container("older");
  for (let n = 0; n < 20; n++) await container.items.create({ id: String(n), pk: `k${n}`, n, g: n % 3 });
});

// What each query gives, and whether the client merges it.
const queries = [
  ["SELECT VALUE c.n FROM c WHERE c.n >= 16 ORDER BY c.n DESC", [19, 18, 17, 16], true],
  ["SELECT TOP 2 VALUE c.n FROM c ORDER BY c.n", [0, 1], true],
  ["SELECT VALUE COUNT(1) FROM c", [20], true],
  ["SELECT VALUE SUM(c.n) FROM c", [190], true],
  ["SELECT VALUE AVG(c.n) FROM c", [9.5], true],
  ["SELECT VALUE MAX(c.n) FROM c", [19], false],
  ["SELECT VALUE c.id FROM c WHERE c.n = 7", ["7"], false],
  ["SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 2 LIMIT 3", [2, 3, 4], false],
  ["SELECT c.g, COUNT(1) AS n FROM c GROUP BY c.g", [{ g: 0, n: 7 }, { g: 1, n: 7 }, { g: 2, n: 6 }], false],
];

for (const [query, rows, merges] of queries) {
  test(`older: ${query}`, async () => {
    sent.length = 0;
    const options = { enableCrossPartitionQuery: true, maxItemCount: 5 };
    const { result } = await container.items.query(query, options).toArray();
    assert.deepEqual(result, rows);
    const asked = sent.filter((headers) => headers["x-ms-documentdb-partitionkeyrangeid"]).length;
    assert.equal(asked > 0, merges);
  });
}

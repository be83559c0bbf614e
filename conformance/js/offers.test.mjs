// Throughput.

import { before, test } from "node:test";
import assert from "node:assert/strict";
import { client, database, failure, fresh } from "./server.mjs";

let db;
before(async () => {
  db = await database();
});

const create = (more) => db.containers.create({ id: fresh("c"), partitionKey: { paths: ["/pk"] }, ...more });

test("offers: a container created with throughput has an offer", async () => {
  const { container, resource } = await create({ throughput: 700 });
  const offer = await container.readOffer();
  assert.equal(offer.resource.content.offerThroughput, 700);
  assert.equal(offer.resource.offerResourceId, resource._rid);
});

test("offers: the throughput can be replaced", async () => {
  const { container } = await create({ throughput: 400 });
  const { resource, offer } = await container.readOffer();
  resource.content.offerThroughput = 1000;
  const replaced = await offer.replace(resource);
  assert.equal(replaced.resource.content.offerThroughput, 1000);
  assert.equal((await container.readOffer()).resource.content.offerThroughput, 1000);
});

test("offers: autoscale", async () => {
  const { container } = await create({ maxThroughput: 4000 });
  const { resource } = await container.readOffer();
  assert.equal(resource.content.offerAutopilotSettings.maxThroughput, 4000);
});

test("offers: a database's throughput is shared", async () => {
  const { database } = await client.databases.create({ id: fresh("shared"), throughput: 500 });
  assert.equal((await database.readOffer()).resource.content.offerThroughput, 500);
  const { container } = await database.containers.create({ id: "c", partitionKey: { paths: ["/pk"] } });
  assert.equal((await container.readOffer()).resource, undefined);
  await database.delete();
});

test("offers: impossible throughput is refused", async () => {
  for (const throughput of [1, 399, 450]) assert.equal(await failure(create({ throughput })), 400, String(throughput));
});

test("offers: list and query", async () => {
  const { resource } = await create({ throughput: 600 });
  const all = await client.offers.readAll().fetchAll();
  assert.ok(all.resources.some((offer) => offer.offerResourceId === resource._rid));
  const query = { query: "SELECT * FROM root r WHERE r.resource = @link", parameters: [{ name: "@link", value: resource._self }] };
  const found = await client.offers.query(query).fetchAll();
  assert.deepEqual(found.resources.map((offer) => offer.content.offerThroughput), [600]);
});

// The account, and who may ask.

import { test } from "node:test";
import assert from "node:assert/strict";
import { CosmosClient } from "@azure/cosmos";
import { client, connect, endpoint, failure, key, port, raw } from "./server.mjs";

test("account: names its endpoint by the host that was asked", async () => {
  const { resource } = await client.getDatabaseAccount();
  assert.equal(resource.writableLocations.length, 1);
  assert.equal(resource.writableLocations[0].databaseAccountEndpoint, endpoint);
  assert.equal(resource.consistencyPolicy, "Session");
});

test("account: plain HTTP works on the same port", async () => {
  const plain = new CosmosClient({ endpoint: `http://localhost:${port}/`, key });
  const { resource } = await plain.getDatabaseAccount();
  assert.equal(resource.writableLocations[0].databaseAccountEndpoint, `http://localhost:${port}/`);
  plain.dispose();
});

test("account: a wrong key is refused", async () => {
  const stranger = connect({ key: Buffer.from("not the key of this account").toString("base64") });
  assert.equal(await failure(stranger.databases.readAll().fetchAll()), 401);
});

test("account: no signature is refused", async () => {
  const { status, text } = await raw("GET", "/dbs", { "x-ms-version": "2020-07-15" });
  assert.equal(status, 401);
  assert.match(JSON.parse(text).message, /authorization/i);
});

test("account: unknown routes and verbs have a clear answer", async () => {
  const headers = { "x-ms-version": "2020-07-15", authorization: "type%3Dmaster%26ver%3D1.0%26sig%3Dx" };
  for (const [method, path] of [["GET", "/nowhere"], ["POST", "/"], ["LOCK", "/dbs"]]) {
    const { status } = await raw(method, path, headers);
    assert.ok(status >= 400 && status < 500, `${method} ${path}: ${status}`);
  }
});

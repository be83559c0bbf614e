// Users, permissions, resource tokens, client encryption keys.

import { before, test } from "node:test";
import assert from "node:assert/strict";
import { connect, database, failure, fresh } from "./server.mjs";

let db, container;
before(async () => {
  db = await database();
  ({ container } = await db.containers.create({ id: fresh("c"), partitionKey: { paths: ["/pk"], version: 2 } }));
  await container.items.create({ id: "1", pk: "a" });
  await container.items.create({ id: "1", pk: "b" });
});

const user = async () => (await db.users.create({ id: fresh("u") })).user;
const link = () => `dbs/${db.id}/colls/${container.id}`;

/** The container as the holder of a permission sees it. */
async function holding(permission) {
  const { resource } = await (await user()).permissions.create({ id: fresh("p"), ...permission });
  const client = connect({ key: undefined, resourceTokens: { [permission.resource]: resource._token } });
  return client.database(db.id).container(container.id);
}

test("users: create, read, replace, upsert, list, query, delete", async () => {
  const id = fresh("u");
  const { statusCode } = await db.users.create({ id });
  assert.equal(statusCode, 201);
  assert.equal(await failure(db.users.create({ id })), 409);
  assert.equal((await db.users.upsert({ id })).statusCode, 200);
  const renamed = fresh("u");
  assert.equal((await db.user(id).replace({ id: renamed })).resource.id, renamed);
  assert.equal((await db.user(renamed).read()).resource.id, renamed);
  assert.ok((await db.users.readAll().fetchAll()).resources.some((found) => found.id === renamed));
  const query = { query: "SELECT * FROM u WHERE u.id = @id", parameters: [{ name: "@id", value: renamed }] };
  assert.equal((await db.users.query(query).fetchAll()).resources.length, 1);
  assert.equal((await db.user(renamed).delete()).statusCode, 204);
  assert.equal(await failure(db.user(renamed).read()), 404);
});

test("permissions: create, read, replace, list, delete; each answer has a token", async () => {
  const owner = await user();
  const definition = { id: "p", permissionMode: "read", resource: link() };
  const { resource } = await owner.permissions.create(definition);
  assert.match(resource._token, /^type=resource&ver=1/);
  assert.ok((await owner.permission("p").read()).resource._token);
  const { resource: replaced } = await owner.permission("p").replace({ ...definition, permissionMode: "all" });
  assert.equal(replaced.permissionMode, "all");
  assert.equal((await owner.permissions.readAll().fetchAll()).resources.length, 1);
  assert.equal(await failure(owner.permissions.create({ ...definition, id: "q" })), 409);
  assert.equal((await owner.permission("p").delete()).statusCode, 204);
  assert.equal(await failure(owner.permission("p").read()), 404);
});

test("tokens: Read reads, All writes", async () => {
  const reader = await holding({ permissionMode: "read", resource: link() });
  assert.equal((await reader.item("1", "a").read()).resource.id, "1");
  assert.equal(await failure(reader.items.create({ id: fresh("i"), pk: "a" })), 403);
  const writer = await holding({ permissionMode: "all", resource: link() });
  assert.equal((await writer.items.create({ id: fresh("i"), pk: "a" })).statusCode, 201);
  assert.equal(await failure(writer.delete()), 403);
});

test("tokens: one with a partition key reaches that key only", async () => {
  const held = await holding({ permissionMode: "all", resource: link(), resourcePartitionKey: ["a"] });
  assert.equal((await held.item("1", "a").read()).resource.pk, "a");
  assert.equal(await failure(held.item("1", "b").read()), 403);
  assert.equal(await failure(held.items.create({ id: fresh("i"), pk: "b" })), 403);
});

// Stored procedures, triggers, user-defined functions, conflicts.

import { before, test } from "node:test";
import assert from "node:assert/strict";
import { database, failure, fresh, refusal } from "./server.mjs";

let container, scripts;
before(async () => {
  const db = await database();
  ({ container } = await db.containers.create({ id: fresh("c"), partitionKey: { paths: ["/pk"], version: 2 } }));
  scripts = container.scripts;
});

test("procedures: create, read, replace, list, query, delete", async () => {
  const id = fresh("s");
  const { resource } = await scripts.storedProcedures.create({ id, body: "function () {}" });
  assert.equal(resource.body, "function () {}");
  assert.equal(await failure(scripts.storedProcedures.create({ id, body: "function () {}" })), 409);
  const { resource: replaced } = await scripts.storedProcedure(id).replace({ id, body: "function () { return; }" });
  assert.equal(replaced.body, "function () { return; }");
  assert.equal((await scripts.storedProcedure(id).read()).resource.id, id);
  assert.ok((await scripts.storedProcedures.readAll().fetchAll()).resources.some((found) => found.id === id));
  const query = { query: "SELECT * FROM s WHERE s.id = @id", parameters: [{ name: "@id", value: id }] };
  assert.equal((await scripts.storedProcedures.query(query).fetchAll()).resources.length, 1);
  assert.equal((await scripts.storedProcedure(id).delete()).statusCode, 204);
  assert.equal(await failure(scripts.storedProcedure(id).read()), 404);
});

test("procedures: arguments, response, log", async () => {
  const id = fresh("s");
  const body = function (name) {
    console.log("for %s", name);
    getContext().getResponse().setBody({ greeting: "Hello, " + name });
  };
  await scripts.storedProcedures.create({ id, body });
  const { resource, headers } = await scripts.storedProcedure(id).execute("a", ["Ada"], { enableScriptLogging: true });
  assert.deepEqual(resource, { greeting: "Hello, Ada" });
  assert.equal(headers["x-ms-documentdb-script-log-results"], "for%20Ada");
});

test("procedures: all or nothing", async () => {
  const id = fresh("s");
  const body = function (fail) {
    for (let i = 0; i < 1000; i++) __.createDocument(__.getSelfLink(), { id: "n" + i, pk: "many" });
    if (fail) throw new Error("on purpose");
  };
  await scripts.storedProcedures.create({ id, body });
  const count = async () =>
    (await container.items.query("SELECT VALUE COUNT(1) FROM c", { partitionKey: "many" }).fetchAll()).resources[0];
  const error = await refusal(scripts.storedProcedure(id).execute("many", [true]));
  assert.equal(error.code, 400);
  assert.match(error.message ?? error.body.message, /on purpose/);
  assert.equal(await count(), 0);
  await scripts.storedProcedure(id).execute("many", [false]);
  assert.equal(await count(), 1000);
});

test("triggers: before and after a write", async () => {
  const stamp = { id: fresh("t"), triggerType: "Pre", triggerOperation: "All" };
  await scripts.triggers.create({
    ...stamp,
    body: function () {
      const request = getContext().getRequest();
      request.setBody({ ...request.getBody(), stamped: true });
    },
  });
  const audit = { id: fresh("t"), triggerType: "Post", triggerOperation: "Create" };
  await scripts.triggers.create({
    ...audit,
    body: function () {
      const { id, pk } = getContext().getResponse().getBody();
      __.createDocument(__.getSelfLink(), { id: "audit-" + id, pk });
    },
  });
  const options = { preTriggerInclude: [stamp.id], postTriggerInclude: [audit.id] };
  const { resource } = await container.items.create({ id: "x", pk: "t" }, options);
  assert.equal(resource.stamped, true);
  assert.equal((await container.item("audit-x", "t").read()).statusCode, 200);
  assert.equal(await failure(container.item("x", "t").delete({ postTriggerInclude: [audit.id] })), 400);
  assert.equal((await scripts.trigger(stamp.id).read()).resource.triggerType, "Pre");
  assert.equal((await scripts.triggers.readAll().fetchAll()).resources.length, 2);
  assert.equal((await scripts.trigger(stamp.id).delete()).statusCode, 204);
});

test("functions: in a query", async () => {
  const id = fresh("f").replaceAll("-", "_");
  await scripts.userDefinedFunctions.create({ id, body: "function (x) { return x * 2; }" });
  await container.items.create({ id: "21", pk: "f", n: 21 });
  const { resources } = await container.items.query(`SELECT VALUE udf.${id}(c.n) FROM c`, { partitionKey: "f" }).fetchAll();
  assert.deepEqual(resources, [42]);
  const { resource } = await scripts.userDefinedFunction(id).replace({ id, body: "function (x) { return -x; }" });
  assert.match(resource.body, /-x/);
  assert.equal((await scripts.userDefinedFunctions.readAll().fetchAll()).resources.length, 1);
  assert.equal((await scripts.userDefinedFunction(id).delete()).statusCode, 204);
});

test("conflicts: there are none", async () => {
  assert.deepEqual((await container.conflicts.readAll().fetchAll()).resources, []);
});

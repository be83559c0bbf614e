// Session consistency.

import { before, test } from "node:test";
import assert from "node:assert/strict";
import { connect, database } from "./server.mjs";

let db;
before(async () => {
  db = await database();
  await db.containers.create({ id: "sessions", partitionKey: { paths: ["/pk"] } });
});

const lsn = (token) => Number(token.split("#")[1]);

test("sessions: a client reads what it has written", async () => {
  const container = connect({ consistencyLevel: "Session" }).database(db.id).container("sessions");
  for (let n = 0; n < 20; n++) {
    await container.items.upsert({ id: "1", pk: "a", n });
    assert.equal((await container.item("1", "a").read()).resource.n, n);
  }
});

test("sessions: each write moves the token forward", async () => {
  const container = db.container("sessions");
  const first = await container.items.upsert({ id: "2", pk: "a" });
  const second = await container.items.upsert({ id: "2", pk: "a" });
  assert.ok(lsn(second.headers["x-ms-session-token"]) > lsn(first.headers["x-ms-session-token"]));
});

test("sessions: one client's token serves another", async () => {
  const [writer, reader] = [connect({ consistencyLevel: "Session" }), connect({ consistencyLevel: "Session" })];
  const { headers } = await writer.database(db.id).container("sessions").items.upsert({ id: "3", pk: "a", n: 5 });
  const item = reader.database(db.id).container("sessions").item("3", "a");
  assert.equal((await item.read({ sessionToken: headers["x-ms-session-token"] })).resource.n, 5);
});

test("sessions: two clients that hand on their tokens each read what the other has written", async () => {
  const clients = [connect({ consistencyLevel: "Session" }), connect({ consistencyLevel: "Session" })];
  let sessionToken;
  for (let n = 0; n < 20; n++) {
    const [writer, reader] = n % 2 ? clients : clients.toReversed();
    const items = writer.database(db.id).container("sessions").items;
    sessionToken = (await items.upsert({ id: "4", pk: "a", n }, { sessionToken })).headers["x-ms-session-token"];
    const item = reader.database(db.id).container("sessions").item("4", "a");
    assert.equal((await item.read({ sessionToken })).resource.n, n);
  }
});

for (const consistencyLevel of ["Strong", "BoundedStaleness", "Session", "ConsistentPrefix", "Eventual"]) {
  test(`sessions: ${consistencyLevel} is granted, and shows another client's write at once`, async () => {
    const reader = connect({ consistencyLevel }).database(db.id).container("sessions");
    await db.container("sessions").items.upsert({ id: "5", pk: "a", level: consistencyLevel });
    assert.equal((await reader.item("5", "a").read()).resource.level, consistencyLevel);
    const { resources } = await reader.items.query("SELECT VALUE c.level FROM c WHERE c.id = '5'", { partitionKey: "a" }).fetchAll();
    assert.deepEqual(resources, [consistencyLevel]);
  });
}

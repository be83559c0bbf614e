// Session consistency.

import { before, test } from "node:test";
import assert from "node:assert/strict";
import { connect, database, failure } from "./server.mjs";

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

test("sessions: a weaker consistency is granted, a stronger one refused", async () => {
  await connect({ consistencyLevel: "Eventual" }).database(db.id).container("sessions").item("3", "a").read();
  const strong = connect({ consistencyLevel: "Strong" }).database(db.id).container("sessions");
  assert.equal(await failure(strong.items.query("SELECT * FROM c", { partitionKey: "a" }).fetchAll()), 400);
});

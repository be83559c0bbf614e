// MongoDB's Node driver: ordinary work, expiry, change streams, transactions.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Double, Int32, Long, MongoClient } from "mongodb";
import { advance, plain, uri } from "./server.mjs";

const client = new MongoClient(uri);
const database = client.db("node");
before(() => client.connect());
after(async () => {
  await database.dropDatabase();
  await client.close();
});

const ids = async (cursor) => (await cursor.toArray()).map((document) => document._id).sort();

test("both connection strings work, and a wrong key does not", async () => {
  const other = new MongoClient(plain);
  assert.deepEqual(await other.db("node").command({ ping: 1 }).then(({ ok }) => ok), 1);
  await other.close();
  const wrong = new MongoClient(plain.replace(/:[^:@]*@/, ":d3Jvbmc=@"));
  await assert.rejects(wrong.db("node").command({ ping: 1 }), /[Aa]uthentication/);
  await wrong.close();
});

for (const compressor of ["zlib", "none"]) {
  test(`documents are written, found, changed and removed (${compressor})`, async () => {
    const other = new MongoClient(uri, { compressors: [compressor] });
    const things = other.db("node").collection(`things-${compressor}`);
    await things.insertMany([1, 2, 3, 4, 5].map((n) => ({ _id: n, n, tags: ["a", n % 2 ? "odd" : "even"], filler: "x".repeat(5_000) })));
    assert.equal(await things.countDocuments({ tags: "odd" }), 3);
    assert.deepEqual(await ids(things.find({ n: { $gt: 1, $lt: 4 } }).batchSize(1)), [2, 3]);
    const updated = await things.updateMany({ n: { $lte: 2 } }, { $inc: { n: 10 }, $push: { tags: "new" } });
    assert.equal(updated.modifiedCount, 2);
    const changed = await things.findOneAndUpdate({ _id: 5 }, { $set: { "sub.field": true } }, { returnDocument: "after" });
    assert.equal(changed.sub.field, true);
    const upserted = await things.replaceOne({ _id: 9 }, { n: 9 }, { upsert: true });
    assert.equal(upserted.upsertedId, 9);
    const bulk = await things.bulkWrite(
      [{ insertOne: { document: { _id: 9 } } }, { deleteOne: { filter: { _id: 4 } } }, { updateOne: { filter: { _id: 3 }, update: { $set: { n: 0 } } } }],
      { ordered: false },
    ).catch((error) => error);
    assert.equal(bulk.code, 11000);
    assert.deepEqual(await ids(things.find()), [1, 2, 3, 5, 9]);
    const sums = await things.aggregate([{ $unwind: "$tags" }, { $group: { _id: "$tags", count: { $sum: 1 } } }, { $sort: { _id: 1 } }]).toArray();
    assert.deepEqual(sums.map(({ _id, count }) => [_id, count]), [["a", 4], ["even", 1], ["new", 2], ["odd", 3]]);
    assert.deepEqual((await things.distinct("n")).sort((a, b) => a - b), [0, 5, 9, 11, 12]);
    await other.close();
  });
}

test("indexes: unique, compound, and shown by explain", async () => {
  const people = database.collection("people");
  await people.createIndex({ email: 1 }, { unique: true });
  await people.createIndex({ city: 1, age: -1 });
  await people.insertMany([{ _id: 1, email: "a", city: "Pisa", age: 3 }, { _id: 2, email: "b", city: "Pisa", age: 5 }]);
  await assert.rejects(people.insertOne({ email: "a" }), { code: 11000 });
  assert.deepEqual((await people.indexes()).map(({ name }) => name), ["_id_", "email_1", "city_1_age_-1"]);
  const explained = await people.find({ city: "Pisa" }).explain();
  assert.match(JSON.stringify(explained), /city_1_age_-1/);
});

test("own ttl of every number type, exact to the second (R25, R27)", async () => {
  const docs = database.collection("ttl");
  const reply = await database.command({ createIndexes: "ttl", indexes: [{ key: { _ts: 1 }, name: "_ts_1", expireAfterSeconds: 10 }] });
  assert.equal(reply.ok, 1);
  await docs.insertMany([
    { _id: "default" },
    { _id: "double", ttl: new Double(20) },
    { _id: "int", ttl: new Int32(20) },
    { _id: "long", ttl: Long.fromNumber(20) },
    { _id: "fraction", ttl: 20.5 },
    { _id: "too long", ttl: Long.fromString("2147483649") },
    { _id: "never", ttl: new Int32(-1) },
  ]);
  await advance(9);
  assert.equal(await docs.countDocuments(), 7);
  await advance(1);
  assert.deepEqual(await ids(docs.find()), ["double", "int", "long", "never"]);
  await advance(10);
  assert.deepEqual(await ids(docs.find()), ["never"]);
});

test("a change stream shows inserts, updates, deletes and expiry, and resumes", async () => {
  const docs = database.collection("watched");
  await database.createCollection("watched");
  await docs.createIndex({ _ts: 1 }, { expireAfterSeconds: -1 });
  const stream = docs.watch([], { fullDocument: "updateLookup" });
  // The cursor is opened by the first look.
  assert.equal(await stream.tryNext(), null);
  await docs.insertOne({ _id: 1, ttl: 5 });
  await docs.insertOne({ _id: 2 });
  await docs.updateOne({ _id: 2 }, { $set: { a: 1 } });
  await docs.deleteOne({ _id: 2 });
  const first = await stream.next();
  assert.deepEqual([first.operationType, first.documentKey._id], ["insert", 1]);
  await stream.close();
  await advance(5);
  const resumed = docs.watch([], { resumeAfter: first._id });
  const rest = [];
  while (rest.length < 4) rest.push(await resumed.next());
  assert.deepEqual(
    rest.map(({ operationType, documentKey }) => [operationType, documentKey._id]),
    [["insert", 2], ["update", 2], ["delete", 2], ["delete", 1]],
  );
  await resumed.close();
});

test("a transaction is all or nothing", async () => {
  const accounts = database.collection("accounts");
  await accounts.insertMany([{ _id: "a", sum: 10 }, { _id: "b", sum: 0 }]);
  const move = (session, fails) => session.withTransaction(async () => {
    await accounts.updateOne({ _id: "a" }, { $inc: { sum: -1 } }, { session });
    if (fails) throw new Error("changed my mind");
    await accounts.updateOne({ _id: "b" }, { $inc: { sum: 1 } }, { session });
  });
  await client.withSession((session) => move(session, false));
  await assert.rejects(client.withSession((session) => move(session, true)), /changed my mind/);
  assert.deepEqual((await accounts.find().sort({ _id: 1 }).toArray()).map(({ sum }) => sum), [9, 1]);
});

// mongosh: the session of the documentation on time to live, as a user types it.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";
import { advance, uri } from "./server.mjs";

/** What the shell prints for a line. */
async function shell(line) {
  const command = ["node_modules/mongosh/bin/mongosh.js", uri.replace("/?", "/shell?"), "--quiet", "--norc", "--eval", line];
  const { stdout } = await promisify(execFile)(process.execPath, command, { env: { ...process.env, HOME: "/nonexistent" } });
  // The shell warns of numbers that are too long for JavaScript.
  return stdout.trim().split("\n").filter((printed) => !printed.startsWith("Warning: NumberLong")).join("\n");
}

test("the documentation's session: a TTL index, and documents with a ttl of their own", async () => {
  const made = await shell('printjson(db.coll.createIndex({_ts: 1}, {expireAfterSeconds: 10})); printjson(db.runCommand({listIndexes: "coll"}).cursor.firstBatch)');
  assert.match(made, /_ts_1/);
  assert.match(made, /expireAfterSeconds: 10/);
  const inserted = await shell(`
    db.coll.insertOne({_id: 1, location: "Paris", ttl: 20.0});
    db.coll.insertOne({_id: 2, location: "Paris", ttl: NumberInt(20)});
    db.coll.insertOne({_id: 3, location: "Paris", ttl: NumberLong(20)});
    db.coll.insertOne({_id: 4, location: "Paris", ttl: 20.5});
    db.coll.insertOne({_id: 5, location: "Paris", ttl: NumberLong(2147483649)});
    print(db.coll.countDocuments())`);
  assert.equal(inserted, "5");
  const ids = () => shell("print(JSON.stringify(db.coll.find().sort({_id: 1}).toArray().map((d) => d._id)))");
  await advance(10);
  // Those whose ttl is none follow the collection.
  assert.equal(await ids(), "[1,2,3]");
  await advance(10);
  assert.equal(await ids(), "[]");
});

test("show dbs, show collections, stats, explain", async () => {
  await shell('db.coll.insertOne({_id: 6}); db.getSiblingDB("admin").runCommand({ping: 1})');
  assert.match(await shell("show dbs"), /shell/);
  assert.match(await shell("show collections"), /coll/);
  assert.equal(await shell("print(db.coll.stats().count)"), "1");
  assert.match(await shell("printjson(db.coll.find({_id: 6}).explain().queryPlanner.winningPlan)"), /_id_|IDHACK/);
});

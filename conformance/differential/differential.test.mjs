// The same queries by two engines: the server, and the evaluator that an emulator of others uses, from the registry. A test fails where they
// differ; differences.txt says of each why.

import assert from "node:assert";
import { createHmac } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import { after, before, describe, test } from "node:test";
import { all, items, parameters } from "./queries.mjs";

const evaluate = createRequire(import.meta.url)("@zeit/cosmosdb-query").default;
const agent = new http.Agent({ keepAlive: true });
const compositeIndexes = [
  [{ path: "/pk", order: "ascending" }, { path: "/age", order: "descending" }],
  [{ path: "/pk", order: "descending" }, { path: "/age", order: "ascending" }],
];

after(async () => {
  await call("DELETE", "/dbs/differential", "dbs", "dbs/differential");
  agent.destroy();
});
before(async () => {
  await call("POST", "/dbs", "dbs", "", { id: "differential" });
  await container("items", items);
});

describe("queries", () => {
  for (const { name, query } of all) compare(name, query, "items", items, parameters);
});

// The cases of single functions are those of the query crate's own scripts, as far as the other engine knows the function.
const scripts = new URL("../../crates/query/testscripts/functions/", import.meta.url);
for (const file of readdirSync(scripts)) {
  const script = read(readFileSync(new URL(file, scripts), "utf8"));
  // Two clocks do not agree, nor does chance; and only the server's limit ends a search for a pattern that backtracks without end.
  const apart = /\b(GETCURRENT|NOW\(|AGO\(|RAND\()|a{30}/;
  const cases = script.cases.filter((each) => !apart.test(each.query) && known(each.query, script));
  if (cases.length === 0) continue;
  describe(file, () => {
    before(() => container(file, script.items));
    for (const { name, query } of cases) compare(name, query, file, script.items, script.parameters);
  });
}

/** The items, parameters and cases of a script. */
function read(text) {
  const script = { items: [], parameters: [], cases: [] };
  const seen = new Set();
  for (const line of text.split("\n")) {
    // The other engine's shapes lie on a sphere, always.
    if (line === "> clear" || line === "> plane") break;
    const [, tag, command] = /^(\[\w+\])?> (.*)$/.exec(line) ?? [];
    if (command === undefined) continue;
    if (command.startsWith("{")) script.items.push({ pk: "a", ...JSON.parse(command) });
    const parameter = /^(@\w+) = (.*)$/.exec(command);
    if (parameter) script.parameters.push({ name: parameter[1], value: JSON.parse(parameter[2]) });
    if (!tag || seen.has(command) || command.includes(" RANK ")) continue;
    seen.add(command);
    const query = command.startsWith("SELECT ") ? command : `SELECT VALUE ${command} FROM c`;
    script.cases.push({ name: command, query });
  }
  // One item is enough to see what a function does.
  script.items = script.items.length ? script.items.slice(0, 1) : [{ id: "1", pk: "a" }];
  return script;
}

/** Whether the other engine has all functions of a query. */
function known(query, { items, parameters }) {
  try {
    evaluate(query).exec(items, { parameters });
    return true;
  } catch (error) {
    return !/is not a recognized built-in function name|is not a function/.test(String(error.message));
  }
}

function compare(name, query, container, items, parameters) {
  test(name, async () => {
    const ours = await byServer(query, container, parameters);
    const theirs = byOther(query, items, parameters);
    assert.deepStrictEqual(ours, theirs);
  });
}

/** Rows, or that the query is refused. Numbers are told apart up to the last few bits, in which mathematical libraries differ. */
async function byServer(query, container, parameters) {
  const path = `/dbs/differential/colls/${container}/docs`;
  const headers = {
    "content-type": "application/query+json",
    "x-ms-documentdb-isquery": "True",
    "x-ms-documentdb-query-enablecrosspartition": "True",
  };
  const { status, body } = await call("POST", path, "docs", path.slice(1, -5), { query, parameters }, headers);
  return status === 200 ? body.Documents.map(plain) : "refused";
}

function byOther(query, items, parameters) {
  try {
    const copies = JSON.parse(JSON.stringify(items));
    const { result } = evaluate(query).exec(copies, { parameters, compositeIndexes });
    return result.filter((row) => row !== undefined).map((row) => plain(JSON.parse(JSON.stringify(row))));
  } catch {
    return "refused";
  }
}

/** A row without what a server adds to items, its members in one order. */
function plain(value) {
  if (typeof value === "number") return Number(value.toPrecision(13));
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== "object") return value;
  const members = Object.entries(value).filter(([name]) => !/^_(rid|self|etag|attachments|ts)$/.test(name));
  return Object.fromEntries(members.sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, each]) => [name, plain(each)]));
}

async function container(id, items) {
  const definition = { id, partitionKey: { paths: ["/pk"], kind: "Hash", version: 2 }, indexingPolicy: { compositeIndexes } };
  await call("POST", "/dbs/differential/colls", "colls", "dbs/differential", definition);
  for (const item of items) {
    const path = `/dbs/differential/colls/${id}/docs`;
    const { status, body } = await call("POST", path, "docs", path.slice(1, -5), item, {
      "x-ms-documentdb-partitionkey": JSON.stringify([item.pk]),
    });
    assert.equal(status, 201, JSON.stringify(body));
  }
}

/** A signed request. */
function call(method, path, type, link, body, headers = {}) {
  const date = new Date().toUTCString();
  const text = `${method.toLowerCase()}\n${type}\n${link}\n${date.toLowerCase()}\n\n`;
  const signature = createHmac("sha256", Buffer.from(process.env.ACCOUNT_KEY, "base64")).update(text).digest("base64");
  const authorization = encodeURIComponent(`type=master&ver=1.0&sig=${signature}`);
  const options = {
    agent,
    host: "localhost",
    port: process.env.ACCOUNT_PORT,
    method,
    path,
    headers: { "x-ms-date": date, "x-ms-version": "2020-07-15", authorization, "content-type": "application/json", ...headers },
  };
  return new Promise((resolve, reject) => {
    const request = http.request(options, (response) => {
      const chunks = [];
      response.on("data", (chunk) => chunks.push(chunk));
      response.on("end", () => {
        const text = Buffer.concat(chunks).toString();
        resolve({ status: response.statusCode, body: text ? JSON.parse(text) : null });
      });
    });
    request.on("error", reject);
    request.end(body && JSON.stringify(body));
  });
}

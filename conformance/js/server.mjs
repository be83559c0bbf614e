// The server under test: clients for it, and its clock.

import http from "node:http";
import https from "node:https";
import { randomUUID } from "node:crypto";
import { after } from "node:test";
import { CosmosClient } from "@azure/cosmos";
import { note } from "./operations.mjs";

if (process.env.CALLED) note(process.env.CALLED);

export const port = process.env.ACCOUNT_PORT;
export const key = process.env.ACCOUNT_KEY;
export const endpoint = `https://localhost:${port}/`;

// The certificate is the server's own; nothing here trusts it.
const agent = new https.Agent({ keepAlive: true, rejectUnauthorized: false });

const databases = [];
after(async () => {
  for (const database of databases) await database.delete().catch(() => {});
  client.dispose();
  agent.destroy();
});

/** A client, with other options if need be. */
export function connect(options = {}) {
  return new CosmosClient({
    endpoint,
    key,
    agent,
    // A failure is to be seen at once.
    connectionPolicy: { enableBackgroundEndpointRefreshing: false, retryOptions: { maxRetryAttemptCount: 0 } },
    ...options,
  });
}

export const client = connect();

/** A name that nobody else uses. */
export const fresh = (prefix) => `${prefix}-${randomUUID()}`;

/** A database for one file, deleted when its tests are over. */
export async function database() {
  const { database } = await client.databases.create({ id: fresh("conformance") });
  databases.push(database);
  return database;
}

/** The status with which a call fails; 0 if it does not. */
export async function failure(promise) {
  try {
    await promise;
    return 0;
  } catch (error) {
    if (typeof error.code !== "number") throw error;
    return error.code;
  }
}

/** The error of a call that must fail. */
export async function refusal(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("the call should have failed");
}

/** Moves the server's clock; answers when everything that has expired is gone. */
export async function advance(seconds) {
  return admin("POST", "/_admin/clock", { advance: seconds });
}

/** A call of the operator's interface. */
export async function admin(method, path, body) {
  const { status, text } = await raw(method, path, { authorization: `Bearer ${key}` }, body && JSON.stringify(body));
  if (status !== 200) throw new Error(`${method} ${path}: ${status} ${text}`);
  return JSON.parse(text);
}

/** A request as it is written, for what no SDK would send. */
export function raw(method, path, headers = {}, body = undefined) {
  return new Promise((resolve, reject) => {
    const request = http.request({ host: "localhost", port, method, path, headers }, (response) => {
      const chunks = [];
      response.on("data", (chunk) => chunks.push(chunk));
      response.on("end", () =>
        resolve({ status: response.statusCode, headers: response.headers, text: Buffer.concat(chunks).toString() }),
      );
    });
    request.on("error", reject);
    request.end(body);
  });
}

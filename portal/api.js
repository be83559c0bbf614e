// The REST API as any client uses it: every request is signed here, in the browser, with the account's key. The key is kept for the tab only.

// The emulator's key, which every tutorial has. Tried first, so that on one's own machine nothing is asked.
const WELL_KNOWN = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
const STORED = "sidereal-key";
const VERSION = "2020-07-15";

/** A refusal of the server, or (status 0) no answer at all. */
export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

let signer = null;
const listeners = { lost: () => {}, back: () => {}, refused: () => {} };
let connected = true;

/** Told when the connection is lost or back, or the key is refused. */
export function listen(to) { Object.assign(listeners, to); }

/** Uses a key for all requests from now on. */
export async function useKey(text) {
  if (!globalThis.crypto?.subtle) {
    throw new ApiError(0, "Insecure", "Browsers sign requests only on HTTPS pages and on localhost. Open this page by HTTPS.");
  }
  let bytes;
  try {
    bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  } catch {
    throw new ApiError(0, "BadKey", "That is not an account key: a key is base64 text.");
  }
  signer = await crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
}

/** The key of this tab, or the well-known one. Whether the server takes it. */
export async function signIn(typed) {
  const key = typed ?? sessionStorage.getItem(STORED) ?? WELL_KNOWN;
  await useKey(key);
  try {
    await request("GET", [], { quiet: true });
  } catch (error) {
    if (error.status === 401) return false;
    throw error;
  }
  if (key.trim() === WELL_KNOWN) sessionStorage.removeItem(STORED);
  else sessionStorage.setItem(STORED, key.trim());
  return true;
}

export function hasOwnKey() { return sessionStorage.getItem(STORED) !== null; }
export function forgetKey() { sessionStorage.removeItem(STORED); }

/** What is signed: verb, resource type, resource link, date. */
async function authorization(method, parts, date) {
  // Offers alone are addressed by their rid, which is signed in lower case without the rest.
  const count = parts.length;
  const kind = count === 0 ? "" : count % 2 ? parts[count - 1] : parts[count - 2];
  let link = parts.slice(0, count % 2 ? count - 1 : count).join("/");
  if (parts[0] === "offers") link = (parts[1] ?? "").toLowerCase();
  const payload = `${method.toLowerCase()}\n${kind.toLowerCase()}\n${link}\n${date.toLowerCase()}\n\n`;
  const mark = await crypto.subtle.sign("HMAC", signer, new TextEncoder().encode(payload));
  const text = btoa(String.fromCharCode(...new Uint8Array(mark)));
  return encodeURIComponent(`type=master&ver=1.0&sig=${text}`);
}

/**
 * Sends a request. `parts` are the names of the path, not encoded. Gives { status, headers, text }; a refusal is thrown as ApiError.
 */
export async function request(method, parts, { headers = {}, body, query, signal, quiet = false } = {}) {
  const date = new Date().toUTCString();
  const sent = { "x-ms-date": date, "x-ms-version": VERSION, authorization: await authorization(method, parts, date), ...headers };
  if (body !== undefined && !sent["content-type"]) sent["content-type"] = "application/json";
  const path = "/" + parts.map(encodeURIComponent).join("/") + (query ? `?${query}` : "");
  let answer, text;
  try {
    answer = await fetch(path, { method, headers: sent, body, signal, cache: "no-store", credentials: "omit", redirect: "error" });
    text = await answer.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (connected) { connected = false; listeners.lost(); }
    throw new ApiError(0, "Lost", "The server does not answer.");
  }
  if (!connected) { connected = true; listeners.back(); }
  if (answer.ok) return { status: answer.status, headers: answer.headers, text };
  const error = refusal(answer.status, text);
  if (answer.status === 401 && !quiet) listeners.refused(error);
  throw error;
}

function refusal(status, text) {
  let code = `HTTP ${status}`, message = text;
  try {
    const body = JSON.parse(text);
    code = body.code ?? code;
    // The wire wraps its texts: "Message: {"Errors":["…"]}\r\nActivityId: …".
    message = String(body.message ?? text).split("\r\nActivityId:")[0].replace(/^Message: /, "");
    const inner = message.startsWith("{") ? JSON.parse(message) : null;
    const errors = inner?.Errors ?? inner?.errors?.map((one) => one.message);
    if (errors) message = errors.join(" ");
  } catch { /* Not JSON: shown as it came. */ }
  return new ApiError(status, code, message || `The server answered ${status}.`);
}

/** The answer's body as a value. */
export async function json(method, parts, options) {
  const { text } = await request(method, parts, options);
  return text ? JSON.parse(text) : null;
}

/** All pages of a small feed. */
export async function all(parts, name) {
  const rows = [];
  let token;
  do {
    const headers = { "x-ms-max-item-count": "1000" };
    if (token) headers["x-ms-continuation"] = token;
    const answer = await request("GET", parts, { headers });
    rows.push(...JSON.parse(answer.text)[name]);
    token = answer.headers.get("x-ms-continuation");
  } while (token);
  return rows;
}

/** The kinds of scripts: where they are, what people call them, the array of their list. */
export const KINDS = [["sprocs", "Stored procedures", "StoredProcedures"], ["triggers", "Triggers", "Triggers"], ["udfs", "User-defined functions", "UserDefinedFunctions"]];

export const container = (db, coll) => ["dbs", db, "colls", coll];

/** The partition key header of an item: its values at the container's paths. */
export function keyOf(definition, item) {
  const value = (path) => {
    const names = path.match(/"(?:[^"\\]|\\.)*"|[^/]+/g) ?? [];
    let at = item;
    for (const name of names) {
      if (at === null || typeof at !== "object" || Array.isArray(at)) return {};
      const property = name.startsWith('"') ? JSON.parse(name) : name;
      at = Object.hasOwn(at, property) ? at[property] : undefined;
    }
    return at === undefined ? {} : at;
  };
  return ascii(JSON.stringify((definition.partitionKey?.paths ?? []).map(value)));
}

/** JSON for a header: everything beyond ASCII is escaped. */
export function ascii(text) {
  return text.replace(/[\u007f-\uffff]/g, (letter) => "\\u" + letter.charCodeAt(0).toString(16).padStart(4, "0"));
}

// The server's clock, as of its last answer about it.
const seen = { now: 0, mode: "system", frozen: false, at: 0 };

/** The second it is at the server, as far as is known. */
export function now() {
  if (!seen.now) return Math.floor(Date.now() / 1000);
  return seen.frozen ? seen.now : seen.now + Math.floor((performance.now() - seen.at) / 1000);
}

export function clockState() { return { ...seen, now: now() }; }

export function setClock(answer) {
  Object.assign(seen, answer, { at: performance.now() });
}

export async function readClock() {
  setClock(await json("GET", ["_admin", "clock"]));
  return clockState();
}

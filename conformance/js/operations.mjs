// The public classes and operations of the SDK, and which of them the suite has met: "everything is exercised" is itself a test.
//
// Run as a program it prints the names of all classes and operations; conformance/run compares them with what the tests have noted.

import { appendFileSync, readFileSync, readdirSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import * as sdk from "@azure/cosmos";

// Classes that never meet this server, each with the reason.
const MACHINERY = "exported, but of the SDK's own making and hidden from its documentation";
const BEFORE = "a failure before there is any answer";
const ASIDE = new Map([
  ["AzureKeyVaultEncryptionKeyResolver", "asks Azure's Key Vault"],
  ["ClientContext", MACHINERY],
  ["GlobalEndpointManager", MACHINERY],
  ["DiagnosticNodeInternal", MACHINERY],
  ["AbortError", BEFORE],
  ["RestError", BEFORE],
  ["TimeoutError", BEFORE],
  ["ConflictResponse", "one region has no conflicts: reading one is a 404"],
  ["SasTokenProperties", "of a kind of token that no service has been released with"],
]);

// A class whose methods are arithmetic: it is enough to meet it.
const ARITHMETIC = new Set(["TimeSpan"]);

const isClass = (value) => typeof value === "function" && /^class\b/.test(Function.prototype.toString.call(value));

/** The names of the exported classes. */
function classes() {
  return Object.keys(sdk).filter((name) => isClass(sdk[name]) && !ASIDE.has(name));
}

/** [class, method] of every public method: what the declarations of an exported class name. */
export function operations() {
  const found = [];
  const root = path.dirname(fileURLToPath(import.meta.resolve("@azure/cosmos")));
  const known = new Set(classes());
  for (const file of readdirSync(root, { recursive: true }).filter((file) => file.endsWith(".d.ts")).sort()) {
    const text = readFileSync(path.join(root, file), "utf8");
    for (const [, name, body] of text.matchAll(/export declare (?:abstract )?class (\w+)[^{]*\{(.*?)\n\}/gs)) {
      if (!known.has(name) || ARITHMETIC.has(name)) continue;
      const declared = new Set([...body.matchAll(/^ {4}(\w+)[<(]/gm)].map(([, method]) => method));
      for (const method of declared) {
        if (method !== "constructor" && !method.endsWith("Internal")) found.push([name, method]);
      }
    }
  }
  return found;
}

/** Notes each operation that is called from here on, and each class of what goes in and comes out, in a file, at the end of the process. */
export function note(file) {
  const met = new Set();
  const names = classes();
  const look = (value, depth) => {
    if (typeof value !== "object" || value === null) return value;
    for (const name of names) if (value instanceof sdk[name]) met.add(name);
    if (depth > 0) for (const inner of Object.values(value)) look(inner, depth - 1);
    return value;
  };
  for (const [name, method] of operations()) {
    const { prototype } = sdk[name];
    const original = prototype[method];
    prototype[method] = function (...args) {
      met.add(`${name}.${method}`);
      [this, ...args].forEach((value) => look(value, 2));
      const result = original.apply(this, args);
      // An iterator whose class is not exported.
      if (typeof result?.readNext === "function") {
        const { readNext } = result;
        result.readNext = async () => look(await readNext.call(result), 1);
      }
      if (!(result instanceof Promise)) return look(result, 1);
      return result.then((value) => look(value, 1), (error) => { throw look(error, 0); });
    };
  }
  // Classes with static ways in only.
  for (const name of ["ChangeFeedStartFrom", "ChangeFeedRetentionTimeSpan"]) {
    for (const method of Object.getOwnPropertyNames(sdk[name]).filter((method) => typeof sdk[name][method] === "function")) {
      const original = sdk[name][method];
      sdk[name][method] = (...args) => {
        met.add(name);
        return original.apply(sdk[name], args);
      };
    }
  }
  process.on("exit", () => appendFileSync(file, [...met].map((name) => `${name}\n`).join("")));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const name of classes()) console.log(name);
  for (const [name, method] of operations()) console.log(`${name}.${method}`);
}

// The public operations of the SDK, and which of them the suite has called: "every operation is exercised" is itself a test.
//
// Run as a program it prints the names of all operations; conformance/run compares them with what the tests have noted.

import { appendFileSync, readFileSync, readdirSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import * as sdk from "@azure/cosmos";

// Classes that ask no server, or are no API: what answers are made of, measurements, and the SDK's own machinery.
const ASIDE = new Set([
  "AzureKeyVaultEncryptionKeyResolver", "ClientContext", "ClientSideMetrics", "DatabaseAccount", "DiagnosticNodeInternal",
  "GlobalEndpointManager", "QueryMetrics", "QueryPreparationTimes", "RuntimeExecutionTimes", "TimeSpan",
]);

// Declared public, but only of use to the SDK itself: both want the record of times that its own code keeps.
const BROKEN = new Set(["Container.getQueryPlan", "Container.readPartitionKeyDefinition"]);

/** [class, method] of every public method: what the declarations of an exported class name. */
export function operations() {
  const found = [];
  const root = path.dirname(fileURLToPath(import.meta.resolve("@azure/cosmos")));
  for (const file of readdirSync(root, { recursive: true }).filter((file) => file.endsWith(".d.ts")).sort()) {
    const text = readFileSync(path.join(root, file), "utf8");
    for (const [, name, body] of text.matchAll(/export declare class (\w+)[^{]*\{(.*?)\n\}/gs)) {
      if (ASIDE.has(name) || typeof sdk[name] !== "function") continue;
      const declared = new Set([...body.matchAll(/^ {4}(\w+)[<(]/gm)].map(([, method]) => method));
      for (const method of declared) {
        if (method === "constructor" || method.endsWith("Internal") || BROKEN.has(`${name}.${method}`)) continue;
        found.push([name, method]);
      }
    }
  }
  return found;
}

/** Notes each operation that is called from here on in a file, at the end of the process. */
export function note(file) {
  const called = new Set();
  for (const [name, method] of operations()) {
    const { prototype } = sdk[name];
    const original = prototype[method];
    prototype[method] = function (...args) {
      called.add(`${name}.${method}`);
      return original.apply(this, args);
    };
  }
  process.on("exit", () => appendFileSync(file, [...called].map((name) => `${name}\n`).join("")));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const [name, method] of operations()) console.log(`${name}.${method}`);
}

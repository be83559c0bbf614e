// The server: health, what it holds and uses, the last hour in plots, slow queries. The same numbers as /metrics.

import { json } from "./api.js";
import { address } from "./app.js";
import { legend, lines } from "./plot.js";
import { bytes, count, duration, h, keep, moment, replace } from "./page.js";

/** Shows the server's page. */
export function show(main) {
  const tiles = h("div", { class: "tiles" });
  const plots = h("div", { class: "plots" });
  const tables = h("div", {});
  replace(main, h("section", { class: "pad" }, h("h1", {}, "Server"), tiles, h("h2", {}, "The last hour"), plots, tables));
  keep(tiles, 2000, async () => {
    const status = await json("GET", ["_admin", "status"]);
    const tile = (title, value, more) => h("div", { class: "tile" }, h("span", { class: "muted" }, title), h("strong", {}, value), h("small", { class: "muted" }, more ?? ""));
    replace(tiles,
      tile("Health", status.status, `up ${duration(status.uptimeSeconds)}`),
      tile("Version", status.version, `engine ${status.engine}`),
      tile("Disk", bytes(status.diskBytes), `${bytes(status.journalBytes)} journals`),
      tile("Memory", bytes(status.memoryBytes)),
      tile("Connections", count(status.connections)),
      tile("Requests", count(status.requests), `${count(status.throttled)} throttled, ${count(status.failed)} failed`),
      tile("Request units", count(Math.round(status.requestCharge))),
      tile("Group commit", status.syncs ? (status.commits / status.syncs).toFixed(1) : "–", "batches a sync"));
    replace(tables, containers(status), slow(status));
  });
  keep(plots, 10000, async () => {
    const past = await json("GET", ["_admin", "history"]);
    const plot = (title, series, options) => h("section", { class: "card" }, h("h3", {}, title), lines(title, past.at, series, options), series.length > 1 && legend(...series.map((one) => one.name)));
    replace(plots, !past.at.length ? h("p", { class: "muted" }, `The first numbers come after ${past.everySeconds} seconds.`) : [
      plot("Request units a second", [{ name: "RU/s", values: past.requestUnitsPerSecond }]),
      plot("Requests a second", [{ name: "all", values: past.requestsPerSecond }, { name: "throttled", values: past.throttledPerSecond }, { name: "failed", values: past.failedPerSecond }]),
      plot("Mean time of a request, ms", [{ name: "ms", values: past.millisecondsMean }]),
      plot("Purged a second", [{ name: "items/s", values: past.purgedPerSecond }]),
      plot("Purge behind, s", [{ name: "s", values: past.secondsBehind }]),
      plot("Memory", [{ name: "memory", values: past.memoryBytes }], { format: bytes, step: 2 }),
      plot("Disk", [{ name: "disk", values: past.diskBytes }], { format: bytes, step: 2 }),
      plot("Connections", [{ name: "open", values: past.connections }]),
    ]);
  });
}

function table(caption, head, rows, none) {
  return h("section", {}, h("h2", {}, caption), rows.length
    ? h("div", { class: "scroll" }, h("table", { class: "grid-table" }, h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows)))
    : h("p", { class: "muted" }, none));
}

function containers(status) {
  const rows = status.containers.map((one) => h("tr", {},
    h("td", {}, h("a", { href: "#" + address("c", one.database, one.container, "time") }, `${one.database} / ${one.container}`)),
    [count(one.items), bytes(one.bytes), count(Math.round(one.requestCharge)), count(one.throttled), count(one.purged), one.itemsBehind ? `${count(one.itemsBehind)}, ${duration(one.secondsBehind)}` : "–"].map((text) => h("td", { class: "number" }, text))));
  return table("Containers", ["Container", "Items", "Size", "RU used", "Throttled", "Purged", "Behind"], rows, "None yet.");
}

function slow(status) {
  const rows = status.slowQueries.map((one) => h("tr", {}, h("td", {}, moment(one.at)), h("td", {}, one.container), h("td", { class: "number" }, `${one.milliseconds.toFixed(0)} ms`), h("td", {}, h("code", {}, one.query))));
  return table("Slow queries", ["When", "Container", "Took", "Query"], rows, "No query has taken 100 ms or more.");
}

// Queries: an editor with a history, results as JSON or as a table, what they cost and how they were run.

import { container, request } from "./api.js";
import { address } from "./app.js";
import { Editor, coloured, parse, print } from "./code.js";
import { bytes, count, h, replace, save } from "./page.js";

const HISTORY = "sidereal-queries";
const HISTORY_MAX = 50;
const PAGE = "100";

/** Shows the query page of a container. */
export function show(panel, { db, name }) {
  const path = container(db, name);
  const state = { rows: [], token: null, charge: 0, pages: 0, millis: 0, size: 0, work: null, metrics: null, index: null, said: null, view: "json", text: "" };

  const run = h("button", { class: "primary", type: "button", onclick: () => start() }, "Run");
  const cancel = h("button", { type: "button", disabled: true, onclick: () => state.work?.abort() }, "Cancel");
  const past = h("select", { "aria-label": "Earlier queries", onchange: () => { if (past.value) editor.value = past.value; past.value = ""; } });
  const more = h("button", { type: "button", hidden: true, onclick: () => page() }, "Next page");
  const keepFile = h("button", { type: "button", disabled: true, onclick: () => save(`${name}-rows.json`, `[${state.rows.join(",\n")}]\n`) }, "Save as file");
  const summary = h("p", { class: "summary", role: "status" });
  const problem = h("p", { class: "problem", role: "alert" });
  const results = h("div", { class: "results", tabindex: "0", role: "region", "aria-label": "Results" });
  const details = h("div", { class: "metrics" });
  const view = h("div", { class: "choice", role: "group", "aria-label": "Show results as" },
    ["json", "table"].map((kind) => h("button", {
      type: "button", "aria-pressed": String(kind === state.view),
      onclick: (event) => {
        state.view = kind;
        for (const button of event.target.parentNode.children) button.setAttribute("aria-pressed", String(button === event.target));
        draw();
      },
    }, kind === "json" ? "JSON" : "Table")));
  const editor = new Editor({ label: "Query", language: "sql", value: "SELECT * FROM c", submit: () => start() });
  replace(panel,
    h("div", { class: "tools" }, run, cancel, past, h("span", { class: "grow" }), h("span", { class: "muted small" }, h("kbd", {}, "Ctrl"), " ", h("kbd", {}, "Enter"), " runs")),
    editor.element, problem,
    h("div", { class: "tools" }, summary, h("span", { class: "grow" }), view, keepFile),
    results, h("div", { class: "tools" }, more), details);
  remembered();
  if (document.activeElement === document.body) editor.area.focus();

  function remembered(text) {
    let list = [];
    try { list = JSON.parse(localStorage.getItem(HISTORY) ?? "[]"); } catch { /* Not ours: begun anew. */ }
    if (text) {
      list = [text, ...list.filter((other) => other !== text)].slice(0, HISTORY_MAX);
      localStorage.setItem(HISTORY, JSON.stringify(list));
    }
    replace(past, h("option", { value: "" }, "History"), list.map((query) => h("option", { value: query }, query.replace(/\s+/g, " ").slice(0, 90))));
  }

  async function start() {
    state.work?.abort();
    Object.assign(state, { rows: [], token: null, charge: 0, pages: 0, millis: 0, size: 0, metrics: null, index: null, said: null, text: editor.value });
    remembered(editor.value.trim());
    await page();
  }

  async function page() {
    const work = state.work = new AbortController();
    run.disabled = true;
    more.disabled = true;
    cancel.disabled = false;
    problem.textContent = "";
    const headers = {
      "content-type": "application/query+json", "x-ms-documentdb-isquery": "true", "x-ms-documentdb-query-enablecrosspartition": "true",
      "x-ms-max-item-count": PAGE, "x-ms-documentdb-populatequerymetrics": "true", "x-ms-cosmos-populateindexmetrics-v2": "true",
    };
    if (state.token) headers["x-ms-continuation"] = state.token;
    const begun = performance.now();
    try {
      const answer = await request("POST", [...path, "docs"], { headers, body: JSON.stringify({ query: state.text, parameters: [] }), signal: work.signal });
      // Read as text: every number stays as the server wrote it.
      const [, rows] = parse(answer.text).members.find(([name]) => name === '"Documents"');
      state.rows.push(...rows.members.map(([, row]) => print(row)));
      state.size += answer.text.length;
      state.token = answer.headers.get("x-ms-continuation");
      state.charge += Number(answer.headers.get("x-ms-request-charge") ?? 0);
      state.pages += 1;
      add(answer.headers.get("x-ms-documentdb-query-metrics"));
      state.index = answer.headers.get("x-ms-cosmos-index-utilization") ?? state.index;
      state.said = answer.headers.get("x-sidereal-explanation") ?? state.said;
    } catch (error) {
      problem.textContent = error.name === "AbortError" ? "Cancelled." : error.message;
    } finally {
      state.millis += performance.now() - begun;
      if (state.work === work) { run.disabled = false; cancel.disabled = true; more.disabled = false; }
    }
    draw();
  }

  function draw() {
    summary.textContent = state.pages ? `${count(state.rows.length)} row${state.rows.length === 1 ? "" : "s"}${state.token ? ", more to come" : ""} · ${state.charge.toFixed(2)} RU · ${Math.round(state.millis)} ms · ${bytes(state.size)}` : "";
    more.hidden = !state.token;
    keepFile.disabled = !state.rows.length;
    replace(results, !state.pages ? null : state.view === "json" ? asJson() : asTable());
    replace(details, metrics(), index());
  }

  function asJson() {
    return h("pre", { class: "code" }, coloured(state.rows.join("\n")));
  }

  function asTable() {
    const rows = state.rows.map((row) => JSON.parse(row));
    const names = [];
    for (const row of rows) {
      for (const name of row !== null && typeof row === "object" && !Array.isArray(row) ? Object.keys(row) : ["(value)"]) {
        if (!names.includes(name) && names.length < 40) names.push(name);
      }
    }
    const shown = names.filter((name) => !["_rid", "_self", "_attachments"].includes(name));
    const cell = (row, name) => {
      const object = row !== null && typeof row === "object" && !Array.isArray(row);
      // Own properties only: an item may lack "constructor", and every object has one.
      const value = object ? (Object.hasOwn(row, name) ? row[name] : undefined) : name === "(value)" ? row : undefined;
      if (value === undefined) return h("td", { class: "muted" }, "");
      const text = typeof value === "string" ? value : JSON.stringify(value);
      return h("td", { class: typeof value === "number" ? "number" : null, title: text.slice(0, 400) }, h("bdi", {}, text.length > 120 ? text.slice(0, 120) + "…" : text));
    };
    return h("table", { class: "grid-table" },
      h("thead", {}, h("tr", {}, shown.map((name) => h("th", { scope: "col", class: rows.some((row) => typeof row?.[name] === "number") ? "number" : null }, h("bdi", {}, name))))),
      h("tbody", {}, rows.map((row) => h("tr", {}, shown.map((name) => cell(row, name))))));
  }

  /** Adds the metrics of a page to those before. */
  function add(text) {
    const pairs = (text ?? "").split(";").map((pair) => pair.split("=")).filter(([name]) => name in METRICS);
    state.metrics ??= {};
    for (const [name, value] of pairs) state.metrics[name] = (state.metrics[name] ?? 0) + Number(value);
  }

  function metrics() {
    const known = Object.entries(state.metrics ?? {});
    if (!known.length) return null;
    const rows = known.map(([name, value]) => [METRICS[name][0], METRICS[name][1](value)]);
    const loaded = state.metrics.retrievedDocumentCount ?? 0;
    if (loaded) rows.push(["Of the items read, in the result", `${Math.min(100, Math.round(100 * state.metrics.outputDocumentCount / loaded))} %`]);
    return h("details", { open: true }, h("summary", {}, `Query metrics, ${state.pages === 1 ? "one page" : `${state.pages} pages`}`), h("dl", {}, rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
  }

  function index() {
    if (!state.index) return null;
    const { Utilized: used = {}, Potential: missing = {} } = JSON.parse(decodeURIComponent(state.index));
    const single = (list = []) => list.map((one) => one.IndexSpec);
    const composite = (list = []) => list.map((one) => `(${one.IndexSpecs.join(", ")})`);
    const paths = (kind) => [...single(kind.SingleIndexes), ...composite(kind.CompositeIndexes)];
    const list = (all) => all.map((path, at) => [at ? ", " : "", h("code", {}, path)]);
    const found = paths(used), advised = paths(missing);
    return h("details", { open: true, class: "index-use" }, h("summary", {}, "Index use and advice"),
      state.said && h("p", {}, state.said[0].toUpperCase() + state.said.slice(1) + "."),
      h("dl", {}, h("dt", {}, "Indexes used"), h("dd", {}, found.length ? list(found) : "none"),
        h("dt", {}, "Indexes that would help"), h("dd", {}, advised.length ? list(advised) : "none: nothing to improve")),
      advised.length > 0 && h("p", {}, "Add them to the indexing policy in ", h("a", { href: "#" + address("c", db, name, "settings") }, "Scale & Settings"), "."));
  }
}

const millis = (value) => `${value.toFixed(2)} ms`;

/** The metrics that are shown: their names for people and how they are written. */
const METRICS = {
  totalExecutionTimeInMs: ["Time in the server", millis],
  queryCompileTimeInMs: ["of it, understanding the query", millis],
  VMExecutionTimeInMs: ["of it, running it", millis],
  retrievedDocumentCount: ["Items read", count],
  retrievedDocumentSize: ["their size", bytes],
  outputDocumentCount: ["Rows in the result", count],
  outputDocumentSize: ["their size in the result", bytes],
};

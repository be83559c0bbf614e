// Scale & Settings: throughput, time to live with a dry run, the indexing policy, and what was fixed when the container was made.

import { all, container, json } from "./api.js";
import { Editor, parse, place } from "./code.js";
import { dropContainer } from "./tree.js";
import { attempt, bytes, confirm, count, duration, field, h, replace, toast } from "./page.js";

const TTL_MAX = 2147483647;

/** Shows the settings of a container. */
export function show(panel, { db, name, definition, reload }) {
  const path = container(db, name);
  const change = async (changes) => {
    // The definition as it is now, with the changes: a replace that leaves something out removes it.
    const { _rid, _self, _ts, _etag, _docs, _sprocs, _triggers, _udfs, _conflicts, ...current } = await json("GET", path);
    const next = { ...current, ...changes };
    for (const key of Object.keys(next)) if (next[key] === undefined) delete next[key];
    await json("PUT", path, { headers: { "if-match": _etag }, body: JSON.stringify(next) });
    toast("Saved.");
    reload();
  };
  const cards = definition.documents
    ? [definition.documents.ttlPath ? byDate(definition) : ttl(path, definition, change), throughput(definition), indexes(definition), remove(db, name, "collection", "documents")]
    : [ttl(path, definition, change), throughput(definition), indexing(definition, change), fixed(definition), remove(db, name, "container", "items")];
  replace(panel, h("div", { class: "settings" }, cards));
}

function remove(db, name, what, content) {
  const ask = async () => { if (await confirm(`Delete ${what}`, `All ${content} of ${name} will be gone.`, { typed: name })) await attempt(() => dropContainer(db, name)); };
  return h("section", { class: "card" }, h("h2", {}, `Delete ${what}`), h("p", {}, `The ${what} and all its ${content} will be gone.`),
    h("button", { class: "danger", type: "button", onclick: ask }, `Delete ${what}`));
}

/** Off, on without a default, on with n seconds; a dry run says what would expire. */
function ttl(path, definition, change) {
  const before = definition.defaultTtl ?? null;
  let mode = before === null ? "off" : before === -1 ? "on" : "n";
  const save = h("button", { class: "primary", type: "submit", disabled: true }, "Save");
  const undo = h("button", { type: "button", disabled: true, onclick: () => { choose(before === null ? "off" : before === -1 ? "on" : "n"); secs.value = before > 0 ? String(before) : ""; update(); } }, "Discard");
  const secs = h("input", { id: "ttl-seconds", type: "number", min: "1", max: String(TTL_MAX), step: "1", value: before > 0 ? String(before) : "", "aria-label": "Seconds until items expire", "aria-describedby": "ttl-problem", oninput: () => update() });
  const words = h("span", { class: "muted" });
  const problem = h("p", { class: "problem", id: "ttl-problem", role: "alert" });
  const outcome = h("div", { class: "dry-run", role: "status" });
  // Where time counts from a property of the items, they have no ttl of their own (R30), and so there must be a default.
  const from = definition.ttlPropertyPath && definition.ttlPropertyPath !== "/_ts" ? definition.ttlPropertyPath : null;
  const options = [["off", "Off", "Nothing expires, whatever ttl items have."],
    from ? null : ["on", "On (no default)", "Only items with a ttl of their own expire."],
    ["n", "On", from ? `Items expire so long after the time that they have at ${from}:` : "Items without a ttl of their own expire after"]].filter(Boolean);
  const radios = options.map(([key, label, hint]) => {
    const radio = h("input", { type: "radio", name: "ttl", id: `ttl-${key}`, value: key, checked: key === mode, onchange: () => { mode = key; update(); if (key === "n") secs.focus(); } });
    return h("div", { class: "option" }, radio, h("label", { for: `ttl-${key}` }, h("strong", {}, label), " ", h("span", { class: "muted" }, hint)),
      key === "n" && h("span", { class: "inline" }, secs, "second(s)", words));
  });
  function choose(key) { mode = key; document.getElementById(`ttl-${key}`).checked = true; }

  /** What is chosen: a default, null for off, or undefined while it is not legal. */
  function chosen() {
    if (mode === "off") return null;
    if (mode === "on") return -1;
    const number = Number(secs.value);
    return secs.value.trim() !== "" && Number.isInteger(number) && number >= 1 && number <= TTL_MAX ? number : undefined;
  }

  let asked = 0, timer;
  function update() {
    secs.disabled = mode !== "n";
    const value = chosen();
    words.textContent = mode === "n" && value ? ` = ${duration(value)}` : "";
    problem.textContent = mode === "n" && value === undefined && secs.value !== "" ? `A whole number from 1 to ${count(TTL_MAX)}.` : "";
    const changed = value !== before;
    undo.disabled = !changed;
    // Nothing is saved that has not been tried.
    save.disabled = true;
    clearTimeout(timer);
    replace(outcome);
    if (!changed || value === undefined) { asked += 1; return; }
    outcome.textContent = "Trying it out…";
    const mine = ++asked;
    const ask = async () => {
      const answer = await attempt(() => json("GET", ["_admin", "ttl", ...path], { query: `default=${value === null ? "off" : value}` }));
      if (mine !== asked || !answer) return;
      if (answer.uncounted) { outcome.textContent = `Counting… ${count(answer.uncounted)} items to go.`; timer = setTimeout(ask, 300); return; }
      save.disabled = false;
      outcome.dataset.atOnce = String(answer.dryRun.atOnce.items);
      replace(outcome, forecast(answer.dryRun, value, answer));
    };
    timer = setTimeout(ask, 250);
  }

  const form = h("form", {
    class: "card",
    onsubmit: async (event) => {
      event.preventDefault();
      const value = chosen();
      if (value === undefined) return;
      const gone = Number(outcome.dataset.atOnce ?? 0);
      if (gone > 0 && !await confirm("Items will expire", `${count(gone)} item${gone === 1 ? "" : "s"} will expire the moment you save, and nothing brings them back.`, { action: "Save and let them expire" })) return;
      await attempt(() => change({ defaultTtl: value === null ? undefined : value }));
    },
  }, h("h2", {}, "Time to live"), h("fieldset", {}, h("legend", { class: "sr" }, "Time to live"), radios), problem, outcome, h("div", { class: "actions left" }, save, undo));
  secs.disabled = mode !== "n";
  if (before > 0) words.textContent = ` = ${duration(before)}`;
  return form;
}

function forecast(run, value, answer) {
  const line = (name, due) => h("li", {}, h("strong", { class: "number" }, count(due.items)), ` item${due.items === 1 ? "" : "s"} (${bytes(due.bytes)}) ${name}`);
  return h("div", { class: run.atOnce.items ? "warning" : "calm" },
    h("p", {}, h("strong", {}, value === null ? "With time to live off" : value === -1 ? "With no default" : `With a default of ${duration(value)}`), answer.exact ? ":" : ", to within one in 15,000:"),
    h("ul", {}, line("expire at once", run.atOnce), line("in the hour after", run.hour), line("in the day after, that hour included", run.day), line("later", run.later)),
    run.atOnce.items > 0 && h("p", {}, "Expired is final: a longer default, or none, brings nothing back."),
    value === null && h("p", {}, "Items keep their own ttl, and it counts again when time to live is turned on."));
}

function throughput(definition) {
  const card = h("section", { class: "card" }, h("h2", {}, "Throughput"), h("p", { class: "muted" }, "…"));
  attempt(async () => {
    const offers = await all(["offers"], "Offers");
    const offer = offers.find((one) => one.offerResourceId === definition._rid);
    if (!offer) {
      replace(card, h("h2", {}, "Throughput"), h("p", { class: "muted" }, "The container has no throughput of its own: it shares its database's, or is not metered."));
      return;
    }
    const auto = offer.content.offerAutopilotSettings;
    const rate = h("input", { type: "number", step: auto ? "1000" : "100", min: auto ? "1000" : "400", max: "1000000", required: true, value: String(auto ? auto.maxThroughput : offer.content.offerThroughput) });
    const store = async () => {
      const content = auto ? { ...offer.content, offerAutopilotSettings: { ...auto, maxThroughput: Number(rate.value) } } : { ...offer.content, offerThroughput: Number(rate.value) };
      await json("PUT", ["offers", offer._rid], { body: JSON.stringify({ ...offer, content }) });
      toast("Saved.");
    };
    const migrate = async () => {
      const header = auto ? "x-ms-cosmos-migrate-offer-to-manual-throughput" : "x-ms-cosmos-migrate-offer-to-autopilot";
      await json("PUT", ["offers", offer._rid], { headers: { [header]: "true" }, body: JSON.stringify(offer) });
      card.replaceWith(throughput(definition));
    };
    replace(card, h("h2", {}, "Throughput"), h("form", { onsubmit: (event) => { event.preventDefault(); attempt(store); } },
      field(auto ? "Maximum (autoscale), RU/s" : "Request units per second", rate),
      h("div", { class: "actions left" }, h("button", { class: "primary", type: "submit" }, "Save"),
        h("button", { type: "button", onclick: () => attempt(migrate) }, auto ? "Change to manual" : "Change to autoscale"))));
  });
  return card;
}

function indexing(definition, change) {
  const text = JSON.stringify(definition.indexingPolicy ?? {}, null, 2);
  const problem = h("p", { class: "problem", role: "alert" });
  const save = h("button", { class: "primary", type: "button", disabled: true, onclick: () => attempt(() => change({ indexingPolicy: JSON.parse(editor.value) })) }, "Save");
  const editor = new Editor({
    label: "Indexing policy", value: text,
    changed: () => {
      problem.textContent = "";
      try { parse(editor.value); save.disabled = editor.value === text; } catch (error) { save.disabled = true; problem.textContent = `${error.message} (${place(editor.value, error.at ?? 0)}).`; }
    },
  });
  return h("section", { class: "card" }, h("h2", {}, "Indexing policy"), editor.element, problem, h("div", { class: "actions left" }, save));
}

/** A TTL index on a date of the documents (R29). */
function byDate(definition) {
  const { ttlPath, ttlSecs } = definition.documents;
  return h("section", { class: "card" }, h("h2", {}, "Time to live"),
    h("p", {}, h("strong", {}, "On."), ` Documents expire ${duration(ttlSecs)} after the date at `, h("code", {}, ttlPath), ". Those without a date never do."),
    h("p", { class: "muted" }, "It is an index, and drivers change it: ", h("code", {}, "collMod"), " sets other seconds, ", h("code", {}, "dropIndex"), " turns it off."));
}

function indexes(definition) {
  const all = [{ spec: { name: "_id_", key: { _id: 1 } } }, ...(definition.documents.indexes ?? [])];
  const plain = (value) => JSON.stringify(value).replace(/\{"\$number\w+":"(-?[\d.]+)"\}/g, "$1");
  const row = ({ spec }) => {
    const options = ["unique", "sparse", "partialFilterExpression", "expireAfterSeconds"].filter((name) => spec[name] !== undefined).map((name) => spec[name] === true ? name : `${name}: ${plain(spec[name])}`);
    return h("tr", {}, h("td", {}, spec.name), h("td", {}, h("code", {}, plain(spec.key))), h("td", {}, options.join(", ")));
  };
  return h("section", { class: "card" }, h("h2", {}, "Indexes"),
    h("div", { class: "scroll" }, h("table", { class: "grid-table" }, h("thead", {}, h("tr", {}, ["Name", "Key", "Options"].map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, all.map(row)))),
    h("p", { class: "muted" }, "Drivers make and drop them: ", h("code", {}, "createIndex"), ", ", h("code", {}, "dropIndex"), ". A TTL index on ", h("code", {}, "_ts"), " is the time to live of this page."));
}

function fixed(definition) {
  const key = definition.partitionKey ?? {};
  const unique = definition.uniqueKeyPolicy?.uniqueKeys ?? [];
  const conflict = definition.conflictResolutionPolicy ?? {};
  const row = (name, value) => [h("dt", {}, name), h("dd", {}, value)];
  return h("section", { class: "card" }, h("h2", {}, "Fixed at creation"), h("dl", {},
    row("Partition key", `${(key.paths ?? []).join(", ")} (${key.kind ?? "Hash"}, version ${key.version ?? 1})`),
    row("Unique keys", unique.length ? unique.map((one) => one.paths.join(" + ")).join("; ") : "none"),
    row("Conflicts", conflict.mode ? `${conflict.mode}${conflict.conflictResolutionPath ? `, by ${conflict.conflictResolutionPath}` : ""}` : "last writer wins"),
    row("Resource id", definition._rid)));
}

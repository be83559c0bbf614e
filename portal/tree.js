// The tree of databases, containers and what belongs to them, and the dialogs that make new ones.

import { KINDS, all, container, json } from "./api.js";
import { address, markTree } from "./app.js";
import { attempt, dialog, field, h, problemLine, replace, toast } from "./page.js";

const tree = document.getElementById("tree");

/** Reads and shows the tree. */
export async function showTree() {
  const databases = await all(["dbs"], "Databases");
  databases.sort((a, b) => a.id.localeCompare(b.id));
  const branches = await Promise.all(databases.map(async ({ id }) => {
    const containers = await all(["dbs", id, "colls"], "DocumentCollections");
    containers.sort((a, b) => a.id.localeCompare(b.id));
    return branch(id, containers);
  }));
  replace(tree,
    h("div", { class: "tree-head" },
      h("a", { href: "#/ops" }, "Server"),
      h("button", { class: "quiet", type: "button", onclick: () => newContainer(), title: "New container" }, "+ New")),
    branches.length ? h("ul", { class: "tree" }, branches) : h("p", { class: "muted pad" }, "No databases yet."));
}

function branch(db, containers) {
  const leaves = h("ul", {}, containers.map((one) => leaf(db, one)));
  const link = h("a", { href: "#" + address("db", db) }, db);
  return h("li", {}, h("div", { class: "branch" }, fold(leaves, `Containers of ${db}`, true), link), leaves);
}

/** A container; what belongs to it is read when it is unfolded. */
function leaf(db, { id, documents }) {
  const parts = h("ul", { class: "parts" });
  const part = (label, ...names) => h("li", {}, h("a", { class: "part", href: "#" + address("c", db, id, ...names) }, label));
  const fill = async () => {
    if (documents) { replace(parts, part("Documents", "documents"), part("Scale & Settings", "settings"), part("Time", "time")); markTree(); return; }
    const scripts = await Promise.all(KINDS.map(async ([kind, label, array]) => {
      const found = await all([...container(db, id), kind], array).catch(() => []);
      return found.length > 0 && h("li", {}, h("span", { class: "muted small" }, label), h("ul", {}, found.map((one) => part(one.id, "scripts", kind, one.id))));
    }));
    replace(parts, part("Items", "items"), part("Query", "query"), part("Scale & Settings", "settings"), part("Time", "time"), part("Scripts", "scripts"), scripts);
    markTree();
  };
  const link = h("a", { href: "#" + address("c", db, id, documents ? "documents" : "items") }, id, documents && h("span", { class: "kind" }, "MongoDB"));
  return h("li", {}, h("div", { class: "branch" }, fold(parts, `Parts of ${id}`, false, () => attempt(fill)), link), parts);
}

/** A button that folds and unfolds a list. */
function fold(list, label, open, opened = () => {}) {
  list.hidden = !open;
  const button = h("button", {
    type: "button", "aria-expanded": String(open), "aria-label": label,
    onclick: () => {
      list.hidden = !list.hidden;
      button.setAttribute("aria-expanded", String(!list.hidden));
      button.textContent = list.hidden ? "▸" : "▾";
      if (!list.hidden) opened();
    },
  }, open ? "▾" : "▸");
  return button;
}

/** Asks for a name and makes a database. */
export function newDatabase() {
  return dialog("New database", (body, close) => {
    const name = h("input", { required: true, maxlength: "255", autocomplete: "off" }), problem = problemLine();
    body.append(h("form", {
      onsubmit: (event) => {
        event.preventDefault();
        attempt(async () => {
          await json("POST", ["dbs"], { body: JSON.stringify({ id: name.value }) });
          close(true);
          toast(`${name.value} is there.`);
          await showTree();
          location.hash = address("db", name.value);
        }, problem);
      },
    }, field("Name", name), problem, actions(close, "Create")));
  });
}

/** Asks for all that a container needs and makes it, with its database if need be. */
export async function newContainer(inDatabase) {
  const databases = await attempt(() => all(["dbs"], "Databases"));
  if (!databases) return undefined;
  return dialog("New container", (body, close) => {
    const db = h("input", { required: true, value: inDatabase ?? databases[0]?.id ?? "", list: "known-databases", autocomplete: "off" });
    const name = h("input", { required: true, maxlength: "255", autocomplete: "off" });
    const key = h("input", { required: true, value: "/pk", autocomplete: "off", spellcheck: "false" });
    const rate = h("input", { type: "number", min: "400", max: "1000000", step: "100", placeholder: "400" });
    const unique = h("input", { autocomplete: "off", spellcheck: "false", placeholder: "/email" });
    const ttl = h("select", {}, h("option", { value: "off" }, "Off"), h("option", { value: "-1" }, "On (no default)"), h("option", { value: "n" }, "On, with a default"));
    const secs = h("input", { type: "number", min: "1", max: "2147483647", step: "1", disabled: true });
    ttl.addEventListener("change", () => { secs.disabled = ttl.value !== "n"; secs.required = ttl.value === "n"; });
    const make = async () => {
      const definition = { id: name.value, partitionKey: { paths: key.value.trim().split(/[\s,]+/), kind: "Hash", version: 2 } };
      if (definition.partitionKey.paths.length > 1) definition.partitionKey.kind = "MultiHash";
      if (ttl.value !== "off") definition.defaultTtl = ttl.value === "n" ? Number(secs.value) : -1;
      if (unique.value.trim()) definition.uniqueKeyPolicy = { uniqueKeys: [{ paths: unique.value.trim().split(/[\s,]+/) }] };
      const headers = rate.value ? { "x-ms-offer-throughput": rate.value } : {};
      if (!databases.some((one) => one.id === db.value)) await json("POST", ["dbs"], { body: JSON.stringify({ id: db.value }) });
      await json("POST", ["dbs", db.value, "colls"], { headers, body: JSON.stringify(definition) });
      close(true);
      toast(`${name.value} is there.`);
      await showTree();
      location.hash = address("c", db.value, name.value, "items");
    };
    const problem = problemLine();
    body.append(h("form", { onsubmit: (event) => { event.preventDefault(); attempt(make, problem); } },
      h("datalist", { id: "known-databases" }, databases.map((one) => h("option", { value: one.id }))),
      field("Database", db, "A new name makes a new database."),
      field("Container", name),
      field("Partition key", key, "A path; several with spaces between them make a hierarchical key."),
      field("Unique key", unique, "Paths whose values together are unique within a partition key. Optional."),
      field("Throughput (RU/s)", rate, "Empty: shared with the database if that has any, or 400."),
      h("div", { class: "row" }, field("Time to live", ttl), field("Seconds", secs)),
      problem, actions(close, "Create")));
  });
}

function actions(close, label) {
  return h("div", { class: "actions" }, h("button", { type: "button", onclick: () => close(false) }, "Cancel"), h("button", { class: "primary", type: "submit" }, label));
}

/** Removes a container and everything in it. */
export async function dropContainer(db, name) {
  await json("DELETE", container(db, name));
  toast(`${name} is deleted.`);
  location.hash = address("db", db);
  await showTree();
}

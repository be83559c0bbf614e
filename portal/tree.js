// The tree of databases and containers, and the dialogs that make new ones.

import { all, json, container } from "./api.js";
import { address } from "./app.js";
import { attempt, dialog, field, h, replace, toast } from "./page.js";

const tree = document.getElementById("tree");

/** Reads and shows the tree. */
export async function showTree() {
  const databases = await all(["dbs"], "Databases");
  databases.sort((a, b) => a.id.localeCompare(b.id));
  const branches = await Promise.all(databases.map(async ({ id }) => {
    const containers = await all(["dbs", id, "colls"], "DocumentCollections");
    containers.sort((a, b) => a.id.localeCompare(b.id));
    return branch(id, containers.map((one) => one.id));
  }));
  replace(tree,
    h("div", { class: "tree-head" },
      h("a", { href: "#/ops" }, "Server"),
      h("button", { class: "quiet", type: "button", onclick: () => newContainer(), title: "New container" }, "+ New")),
    branches.length ? h("ul", { class: "tree" }, branches) : h("p", { class: "muted pad" }, "No databases yet."));
}

function branch(db, containers) {
  const leaves = h("ul", {}, containers.map((name) => h("li", {}, h("a", { href: "#" + address("c", db, name, "items") }, name))));
  const fold = h("button", {
    type: "button", "aria-expanded": "true", "aria-label": `Containers of ${db}`,
    onclick: () => {
      leaves.hidden = !leaves.hidden;
      fold.setAttribute("aria-expanded", String(!leaves.hidden));
      fold.textContent = leaves.hidden ? "▸" : "▾";
    },
  }, "▾");
  return h("li", {}, h("div", { class: "branch" }, fold, h("a", { href: "#" + address("db", db) }, db)), leaves);
}

/** Asks for a name and makes a database. */
export function newDatabase() {
  return dialog("New database", (body, close) => {
    const name = h("input", { required: true, maxlength: "255", autocomplete: "off" });
    body.append(h("form", {
      onsubmit: (event) => {
        event.preventDefault();
        attempt(async () => {
          await json("POST", ["dbs"], { body: JSON.stringify({ id: name.value }) });
          close(true);
          toast(`${name.value} is there.`);
          await showTree();
          location.hash = address("db", name.value);
        });
      },
    }, field("Name", name), actions(close, "Create")));
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
    const rate = h("input", { type: "number", min: "400", max: "1000000", step: "100", placeholder: "none" });
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
    body.append(h("form", { onsubmit: (event) => { event.preventDefault(); attempt(make); } },
      h("datalist", { id: "known-databases" }, databases.map((one) => h("option", { value: one.id }))),
      field("Database", db, "A new name makes a new database."),
      field("Container", name),
      field("Partition key", key, "A path; several with spaces between them make a hierarchical key."),
      field("Unique key", unique, "Paths whose values together are unique within a partition key. Optional."),
      field("Throughput (RU/s)", rate, "Empty: as the database, or unmetered."),
      h("div", { class: "row" }, field("Time to live", ttl), field("Seconds", secs)),
      actions(close, "Create")));
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

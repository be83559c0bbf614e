// The documents of a MongoDB collection, in extended JSON, with when and why each expires. Drivers write them; here they are looked at.

import { container, json } from "./api.js";
import { coloured } from "./code.js";
import { documentLines, download } from "./lines.js";
import { Expiry, List } from "./list.js";
import { attempt, h, moment, replace, save, toast } from "./page.js";

/** Shows the documents of a collection. */
export function show(panel, { db, name }) {
  const path = container(db, name), explain = ["_admin", "explain", ...path, "docs"];
  const pane = h("section", { class: "pane", "aria-label": "Document" });
  const list = new List({
    db, name, label: `Documents of ${name}`, columns: ["_id", "document"],
    read: (document) => ({ id: JSON.stringify(document._id), first: short(document._id), second: preview(document) }),
    choose: (row, focus) => open(row, focus),
  });
  const all = async () => {
    const { stored } = await json("GET", ["_admin", "ttl", ...path]);
    await download({ name, path: explain, total: stored.items, lines: documentLines });
  };
  replace(panel,
    h("div", { class: "tools" },
      h("button", { type: "button", onclick: () => list.reload() }, "Refresh"),
      h("span", { class: "muted small" }, "Documents are written by MongoDB drivers; numbers, dates and ids are shown in extended JSON."),
      h("span", { class: "grow" }),
      h("button", { type: "button", onclick: () => attempt(all) }, "Download")),
    h("div", { class: "split" }, list.element, pane));
  replace(pane, h("p", { class: "muted pad" }, "Choose a document. ", h("kbd", {}, "↑"), " ", h("kbd", {}, "↓"), " and ", h("kbd", {}, "Enter"), " work in the list."));
  list.reload();

  let turn = 0;
  async function open(row, focus) {
    const mine = ++turn;
    const found = await attempt(() => json("GET", [...explain, row.id]));
    if (!found || mine !== turn) return;
    const text = JSON.stringify(found.item, null, 2);
    const code = h("pre", { class: "code read", tabindex: "0", role: "region", "aria-label": `Document ${row.first}` }, coloured(text));
    const expiry = new Expiry("document", found, () => toast(`${row.first} has expired.`));
    replace(pane,
      h("div", { class: "tools" }, h("h2", { class: "grow" }, h("bdi", {}, row.first)),
        h("button", { type: "button", onclick: () => save(`${name}-${row.first}.json`.replace(/[^\w.-]+/g, "_"), text) }, "Save as file")),
      expiry.element, code,
      h("p", { class: "muted small" }, `Last written ${moment(found._ts)}.`));
    if (focus) code.focus();
  }
}

/** An id in few letters: an object id by its digits, a string by itself. */
function short(id) {
  if (typeof id === "string") return id;
  return id?.$oid ?? JSON.stringify(id);
}

/** The first fields on a line. */
function preview(document) {
  const { _id, ...rest } = document;
  return JSON.stringify(rest).slice(1, 161).replace(/\}$/, "");
}

// A container's items: their list, an editor that says where text is no item, what to do when somebody else was faster, and JSON lines in and out.

import { container, json, keyOf, request } from "./api.js";
import { beforeLeaving } from "./app.js";
import { Editor, SYSTEM, parse, place, pretty, showDifference } from "./code.js";
import { download, itemLines, upload } from "./lines.js";
import { Expiry, List } from "./list.js";
import { attempt, confirm, dialog, h, moment, replace, toast } from "./page.js";

/** Shows the items of a container. */
export function show(panel, where) { new Items(panel, where).begin(); }

class Items {
  constructor(panel, where) {
    const { db, name, definition } = where;
    Object.assign(this, { panel, where, db, name, definition });
    this.path = container(db, name);
    this.open = null;
    this.editor = null;
    this.pane = h("section", { class: "pane", "aria-label": "Item" });
    this.list = new List({
      db, name, label: `Items of ${name}`, columns: ["id", (definition.partitionKey?.paths ?? []).join(" ")],
      read: (item) => { const key = keyOf(definition, item); return { id: item.id, key, first: item.id, second: key }; },
      choose: (row, focus) => this.choose(row, focus),
    });
  }

  begin() {
    const all = async () => {
      const { stored } = await json("GET", ["_admin", "ttl", ...this.path]);
      await download({ name: this.name, path: [...this.path, "docs"], total: stored.items, lines: itemLines });
    };
    replace(this.panel,
      h("div", { class: "tools" },
        h("button", { class: "primary", type: "button", onclick: () => this.fresh() }, "New item"),
        h("button", { type: "button", onclick: () => this.list.reload() }, "Refresh"),
        h("span", { class: "grow" }),
        h("button", { type: "button", onclick: () => upload(this.where, () => this.list.reload()) }, "Upload JSON lines…"),
        h("button", { type: "button", onclick: () => attempt(all) }, "Download")),
      h("div", { class: "split" }, this.list.element, this.pane));
    this.empty();
    this.list.reload();
    beforeLeaving(() => (this.isDirty() ? "The item has changes that are not saved. Leave anyway?" : null));
  }

  isDirty() { return Boolean(this.open && this.editor && this.panel.isConnected && this.editor.value !== this.saved); }

  empty() {
    this.open = null;
    this.editor = null;
    replace(this.pane, h("p", { class: "muted pad" }, "Choose an item, or make one. ", h("kbd", {}, "↑"), " ", h("kbd", {}, "↓"), " and ", h("kbd", {}, "Enter"), " work in the list."));
  }

  /** Whether what has been typed may be dropped. */
  async mayLeave() {
    return !this.isDirty() || await confirm("Changes are not saved", "Drop them and open another item?", { action: "Drop changes" });
  }

  async fresh() {
    if (!await this.mayLeave()) return;
    this.list.mark(() => false);
    this.edit(null);
    this.editor.area.focus();
  }

  async choose(row, focus) {
    if (!await this.mayLeave()) return false;
    await this.fetch(row.id, row.key);
    if (focus) this.editor?.area.focus();
    return true;
  }

  /** Reads an item and shows it; one that is gone is said to be. */
  async fetch(id, key) {
    const headers = { "x-ms-documentdb-partitionkey": key };
    const mine = this.fetching = {};
    await attempt(async () => {
      const [answer, why] = await Promise.all([
        request("GET", [...this.path, "docs", id], { headers }),
        json("GET", ["_admin", "explain", ...this.path, "docs", id], { headers }),
      ]);
      if (mine === this.fetching) this.edit({ id, key, text: answer.text, etag: answer.headers.get("etag"), why });
    });
  }

  /** Opens an item in the editor; nothing opens a new one. */
  edit(item) {
    const fresh = !item;
    this.open = item ?? { id: null, key: null, etag: null, why: null };
    this.saved = fresh ? this.template() : pretty(item.text, SYSTEM);
    this.problem = h("p", { class: "problem", role: "alert" });
    this.saveButton = h("button", { class: "primary", type: "button", onclick: () => this.store() }, fresh ? "Create" : "Save");
    const open = this.open;
    const expiry = new Expiry("item", open.why, () => { toast(`${open.id} has expired.`); this.gone(open); });
    this.editor = new Editor({ label: fresh ? "New item" : `Item ${open.id}`, value: this.saved, changed: () => this.check(), submit: () => this.store() });
    const system = fresh ? null : JSON.parse(item.text);
    // Who works in the pane goes on there.
    const within = this.pane.contains(document.activeElement);
    replace(this.pane,
      h("div", { class: "tools" },
        h("h2", { class: "grow" }, fresh ? "New item" : h("bdi", {}, open.id)),
        this.saveButton,
        h("button", { type: "button", onclick: () => { this.editor.value = pretty(this.editor.value); this.check(); } }, "Format"),
        !fresh && h("button", { type: "button", onclick: () => this.fetch(open.id, open.key) }, "Revert"),
        !fresh && h("button", { class: "danger", type: "button", onclick: () => this.remove() }, "Delete")),
      expiry.element, this.problem, this.editor.element,
      system && h("details", { class: "system" }, h("summary", {}, "System properties"),
        h("dl", {}, SYSTEM.filter((name) => name in system).flatMap((name) => [h("dt", {}, name), h("dd", {}, String(system[name]) + (name === "_ts" ? `  (${moment(system[name])})` : ""))]))));
    this.check();
    if (within) this.editor.area.focus();
  }

  /** From now on saving creates. */
  gone(item) {
    if (item !== this.open) return;
    item.expired = true;
    this.saveButton.textContent = "Create again";
  }

  template() {
    const item = { id: crypto.randomUUID?.() ?? String(Date.now()) };
    for (const path of this.definition.partitionKey?.paths ?? []) {
      const names = path.split("/").filter(Boolean);
      if (names.length === 1 && !(names[0] in item)) item[names[0]] = "";
    }
    return JSON.stringify(item, null, 2);
  }

  /** Whether the text is an item; says where it is not. */
  check() {
    this.problem.textContent = "";
    const text = this.editor.value;
    try {
      const node = parse(text);
      if (!node.object) throw Object.assign(new SyntaxError("An item is a JSON object"), { at: 0 });
      this.saveButton.disabled = false;
      return true;
    } catch (error) {
      this.problem.textContent = `${error.message} (${place(text, error.at ?? 0)}).`;
      this.saveButton.disabled = true;
      return false;
    }
  }

  async store(force = false) {
    if (!this.check()) return;
    const { id, key, etag, expired } = this.open;
    const text = this.editor.value;
    const item = JSON.parse(text);
    try {
      let answer;
      if (id === null || expired) {
        answer = await request("POST", [...this.path, "docs"], { headers: { "x-ms-documentdb-partitionkey": keyOf(this.definition, item) }, body: text });
      } else {
        const headers = { "x-ms-documentdb-partitionkey": key };
        if (!force) headers["if-match"] = etag;
        answer = await request("PUT", [...this.path, "docs", id], { headers, body: text });
      }
      toast(answer.status === 201 ? `${item.id} is created.` : `${item.id} is saved.`);
      await this.fetch(item.id, keyOf(this.definition, JSON.parse(answer.text)));
      await this.list.reload();
      this.list.mark((row) => row.id === item.id && row.key === this.open.key);
    } catch (error) {
      if (error.status === 412) await this.conflict(text);
      else if (error.status === 404 && id !== null && !expired) {
        this.problem.textContent = "The item is gone: it was deleted, or has expired. Saving again creates it anew.";
        this.gone(this.open);
      } else { this.problem.textContent = error.message; if (error.status === 0) toast(error.message, "error"); }
    }
  }

  /** Somebody else was faster: shows both, and lets one choose. */
  async conflict(mine) {
    const { id, key } = this.open;
    const answer = await attempt(() => request("GET", [...this.path, "docs", id], { headers: { "x-ms-documentdb-partitionkey": key } }));
    if (!answer) return;
    const theirs = pretty(answer.text, SYSTEM);
    const choice = await dialog("The item was changed meanwhile", (body) => {
      body.append(h("p", {}, "Somebody has saved it since you opened it. Lines with − are theirs, lines with + are yours."),
        showDifference(theirs, pretty(mine), ["theirs", "yours"]));
    }, {
      wide: true,
      buttons: (close) => [
        h("button", { type: "button", onclick: () => close("edit") }, "Keep editing"),
        h("button", { type: "button", onclick: () => close("theirs") }, "Take theirs"),
        h("button", { class: "danger", type: "button", onclick: () => close("mine") }, "Overwrite with mine"),
      ],
    });
    if (choice === "theirs") await this.fetch(id, key);
    else if (choice === "mine") await this.store(true);
  }

  async remove() {
    const { id, key } = this.open;
    if (!await confirm("Delete item", `${id} will be gone.`)) return;
    await attempt(async () => {
      await request("DELETE", [...this.path, "docs", id], { headers: { "x-ms-documentdb-partitionkey": key } });
      toast(`${id} is deleted.`);
      this.empty();
      this.list.mark(() => false);
      this.list.list.focus();
      await this.list.reload();
    });
  }
}

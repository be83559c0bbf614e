// A container's items: a list that draws only what is seen, an editor, when and why each item expires, and JSON lines in and out.

import { container, json, keyOf, now, request } from "./api.js";
import { beforeLeaving } from "./app.js";
import { Editor, SYSTEM, parse, place, pretty, showDifference } from "./code.js";
import { attempt, bytes, confirm, count, dialog, duration, h, keep, moment, replace, save, toast } from "./page.js";

const ROW = 34;
const PAGE = 200;

/** Shows the items of a container. */
export function show(panel, where) { new Items(panel, where).begin(); }

class Items {
  constructor(panel, { db, name, definition }) {
    Object.assign(this, { panel, db, name, definition });
    this.path = container(db, name);
    this.rows = [];
    this.token = null;
    this.more = true;
    this.loading = false;
    this.at = -1;
    this.open = null;
  }

  begin() {
    this.space = h("div", { class: "space" });
    this.list = h("div", {
      class: "list", role: "listbox", tabindex: "0", "aria-label": `Items of ${this.name}`, onscroll: () => this.draw(), onkeydown: (event) => this.key(event),
    }, this.space);
    this.foot = h("p", { class: "foot", role: "status" });
    this.pane = h("section", { class: "pane", "aria-label": "Item" });
    replace(this.panel,
      h("div", { class: "tools" },
        h("button", { class: "primary", type: "button", onclick: () => this.edit(null) }, "New item"),
        h("button", { type: "button", onclick: () => this.reload() }, "Refresh"),
        h("span", { class: "grow" }),
        h("button", { type: "button", onclick: () => this.upload() }, "Upload JSON lines…"),
        h("button", { type: "button", onclick: () => this.download() }, "Download")),
      h("div", { class: "split" },
        h("div", { class: "list-side" },
          h("div", { class: "list-head", "aria-hidden": "true" }, h("span", {}, "id"), h("span", {}, (this.definition.partitionKey?.paths ?? []).join(" ")), h("span", {}, "expires")),
          this.list, this.foot),
        this.pane));
    this.empty();
    new ResizeObserver(() => this.draw()).observe(this.list);
    this.reload();
    keep(this.list, 1000, async () => this.tick());
    beforeLeaving(() => (this.isDirty() ? "The item has changes that are not saved. Leave anyway?" : null));
  }

  isDirty() { return Boolean(this.open && this.editor && this.panel.isConnected && this.editor.value !== this.saved); }

  empty() {
    this.open = null;
    this.editor = null;
    replace(this.pane, h("p", { class: "muted pad" }, "Choose an item, or make one. ", h("kbd", {}, "↑"), " ", h("kbd", {}, "↓"), " and ", h("kbd", {}, "Enter"), " work in the list."));
  }

  async reload() {
    const mine = this.reading = {};
    this.token = null;
    this.more = true;
    const rows = this.rows;
    this.rows = [];
    this.loading = false;
    await this.load();
    if (mine === this.reading && !this.rows.length && rows.length) this.draw();
  }

  /** Reads the next page. The server says of each item when it expires and why. */
  async load() {
    if (this.loading || !this.more) return;
    this.loading = true;
    const mine = this.reading;
    this.foot.textContent = "Reading…";
    const headers = { "x-ms-max-item-count": String(PAGE) };
    if (this.token) headers["x-ms-continuation"] = this.token;
    const answer = await attempt(() => request("GET", ["_admin", "explain", ...this.path, "docs"], { headers }));
    if (mine !== this.reading) return;
    this.loading = false;
    if (!answer) { this.more = false; this.foot.textContent = "The list could not be read."; return; }
    const page = JSON.parse(answer.text);
    this.token = answer.headers.get("x-ms-continuation");
    this.more = Boolean(this.token);
    for (const row of page.items) {
      this.rows.push({ id: row.item.id, key: keyOf(this.definition, row.item), expiresAt: row.expiresAt, source: row.source });
    }
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.list.scrollTop / ROW) - 8);
    const last = Math.min(this.rows.length, first + Math.ceil(this.list.clientHeight / ROW) + 16);
    this.space.style.height = `${this.rows.length * ROW}px`;
    const rows = [];
    for (let index = first; index < last; index += 1) rows.push(this.row(index));
    replace(this.space, rows);
    if (this.at >= first && this.at < last) this.list.setAttribute("aria-activedescendant", `row-${this.at}`);
    else this.list.removeAttribute("aria-activedescendant");
    const said = `${count(this.rows.length)}${this.more ? " or more" : ""} item${this.rows.length === 1 && !this.more ? "" : "s"}`;
    if (this.foot.textContent !== said) this.foot.textContent = said;
    if (this.more && last > this.rows.length - 60) this.load();
  }

  row(index) {
    const row = this.rows[index];
    const [text, kind] = expiry(row);
    const element = h("div", {
      class: `item ${kind}`, role: "option", id: `row-${index}`, "aria-selected": String(index === this.at),
      "aria-posinset": String(index + 1), "aria-setsize": this.more ? "-1" : String(this.rows.length), onclick: () => this.choose(index),
    }, h("bdi", { class: "id", title: row.id }, row.id), h("bdi", { class: "key" }, row.key), h("span", { class: "when" }, text));
    element.style.top = `${index * ROW}px`;
    return element;
  }

  /** Every second: what has expired meanwhile leaves the list, as it has left the container. */
  tick() {
    const time = now();
    const gone = this.rows.some((row) => row.expiresAt !== null && row.expiresAt <= time);
    if (gone) {
      const chosen = this.rows[this.at];
      this.rows = this.rows.filter((row) => row.expiresAt === null || row.expiresAt > time);
      this.at = this.rows.indexOf(chosen);
      this.draw();
    } else {
      // Only the words change: a row that is replaced while it is clicked would not be clicked.
      for (const element of this.space.children) {
        const [text, kind] = expiry(this.rows[Number(element.id.slice(4))]);
        element.className = `item ${kind}`;
        if (element.lastChild.textContent !== text) element.lastChild.textContent = text;
      }
    }
    if (this.open) this.showExpiry();
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12, Home: -1e9, End: 1e9 }[event.key];
    if (step) {
      event.preventDefault();
      this.at = Math.max(0, Math.min(this.rows.length - 1, this.at + step));
      const top = this.at * ROW;
      if (top < this.list.scrollTop) this.list.scrollTop = top;
      else if (top + ROW > this.list.scrollTop + this.list.clientHeight) this.list.scrollTop = top + ROW - this.list.clientHeight;
      this.draw();
    } else if (event.key === "Enter" && this.at >= 0) {
      event.preventDefault();
      this.choose(this.at, true);
    }
  }

  async choose(index, focus = false) {
    if (this.isDirty() && !await confirm("Changes are not saved", "Drop them and open another item?", { action: "Drop changes" })) return;
    this.at = index;
    this.draw();
    const row = this.rows[index];
    await this.fetch(row.id, row.key);
    if (focus) this.editor?.area.focus();
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
    this.expiry = h("div", { class: "expiry" });
    this.editor = new Editor({ label: fresh ? "New item" : `Item ${this.open.id}`, value: this.saved, changed: () => this.check(), submit: () => this.store() });
    const system = fresh ? null : JSON.parse(item.text);
    replace(this.pane,
      h("div", { class: "tools" },
        h("h2", { class: "grow" }, fresh ? "New item" : h("bdi", {}, this.open.id)),
        this.saveButton,
        h("button", { type: "button", onclick: () => { this.editor.value = pretty(this.editor.value); this.check(); } }, "Format"),
        !fresh && h("button", { type: "button", onclick: () => this.fetch(this.open.id, this.open.key) }, "Revert"),
        !fresh && h("button", { class: "danger", type: "button", onclick: () => this.remove() }, "Delete")),
      this.expiry, this.problem, this.editor.element,
      system && h("details", { class: "system" }, h("summary", {}, "System properties"),
        h("dl", {}, SYSTEM.filter((name) => name in system).flatMap((name) => [h("dt", {}, name), h("dd", {}, String(system[name]) + (name === "_ts" ? `  (${moment(system[name])})` : ""))]))));
    this.showExpiry();
    this.check();
  }

  template() {
    const item = { id: crypto.randomUUID?.() ?? String(Date.now()) };
    for (const path of this.definition.partitionKey?.paths ?? []) {
      const names = path.split("/").filter(Boolean);
      if (names.length === 1 && !(names[0] in item)) item[names[0]] = "";
    }
    return JSON.stringify(item, null, 2);
  }

  showExpiry() {
    const { why } = this.open;
    if (!why) { replace(this.expiry, h("span", { class: "muted" }, "When it expires is decided when it is written.")); return; }
    const left = why.expiresAt === null ? null : why.expiresAt - now();
    if (left !== null && left <= 0) {
      if (!this.open.expired) {
        this.open.expired = true;
        this.saveButton.textContent = "Create again";
        this.expiry.className = "expiry over";
        toast(`${this.open.id} has expired.`);
        replace(this.expiry, h("strong", {}, "Expired"), " at ", h("time", {}, moment(why.expiresAt)), ". The item exists for nobody any more. What you see is this page's copy; Create again makes a new item of it.");
      }
      return;
    }
    this.expiry.className = "expiry";
    if (left === null) replace(this.expiry, h("strong", {}, "Never expires. "), h("span", { class: "muted" }, why.why));
    else {
      replace(this.expiry, h("strong", {}, `Expires in ${duration(left)}`), " at ", h("time", {}, moment(why.expiresAt)), ". ", h("span", { class: "muted" }, readable(why)));
    }
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
      await this.reload();
      this.at = this.rows.findIndex((row) => row.id === item.id && row.key === this.open.key);
      this.draw();
    } catch (error) {
      if (error.status === 412) await this.conflict(text);
      else if (error.status === 404 && id !== null && !expired) {
        this.problem.textContent = "The item is gone: it was deleted, or has expired. Saving again creates it anew.";
        this.open.expired = true;
        this.saveButton.textContent = "Create again";
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
      this.at = -1;
      await this.reload();
    });
  }

  upload() {
    const file = h("input", { type: "file", accept: ".json,.jsonl,.ndjson,.txt", "aria-label": "File of JSON lines" });
    file.addEventListener("change", () => file.files[0] && this.send(file.files[0]));
    file.click();
    this.chosen = file;
  }

  /** Writes each line of a file as an item. */
  async send(file) {
    const bar = h("progress", { max: "100", value: 0, "aria-label": "Upload" });
    const note = h("p", { role: "status" }, "…");
    const problems = h("ul", { class: "problems" });
    let stop = false, done = 0, failed = 0, read = 0, number = 0;
    const button = h("button", { type: "button", onclick: () => { stop = true; } }, "Stop");
    const closed = dialog(`Upload ${file.name}`, (body, close) => {
      body.append(h("p", {}, "Each line is an item; one with the same id and partition key is replaced."), bar, note, problems, h("div", { class: "actions" }, button));
      this.closeUpload = close;
    });
    const one = async (line, at) => {
      try {
        const key = keyOf(this.definition, JSON.parse(line));
        for (let wait = 0; ; wait += 1) {
          try {
            await request("POST", [...this.path, "docs"], { headers: { "x-ms-documentdb-is-upsert": "true", "x-ms-documentdb-partitionkey": key, "x-ms-cosmos-populate-content-response-on-write": "false" }, body: line });
            break;
          } catch (error) {
            if (error.status !== 429 || wait > 20) throw error;
            await new Promise((resolve) => setTimeout(resolve, 100 * (wait + 1)));
          }
        }
        done += 1;
      } catch (error) {
        failed += 1;
        if (failed <= 20) problems.append(h("li", {}, `Line ${at}: ${error.message}`));
        if (error.status === 0) stop = true;
      }
    };
    const tell = () => {
      bar.value = file.size ? (read / file.size) * 100 : 100;
      note.textContent = `${count(done)} written, ${count(failed)} refused, ${bytes(read)} of ${bytes(file.size)}`;
    };
    const timer = setInterval(tell, 200);
    const reader = file.stream().pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    while (!stop) {
      const { value, done: ended } = await reader.read();
      rest += value ?? (ended && rest ? "\n" : "");
      const lines = rest.split("\n");
      rest = lines.pop();
      // Eight at a time: enough to keep the server's group commit busy.
      const queue = lines.entries();
      const first = number;
      await Promise.all(Array.from({ length: 8 }, async () => {
        for (const [index, line] of queue) {
          if (stop) return;
          read += line.length + 1;
          if (line.trim()) await one(line.trim(), first + index + 1);
        }
      }));
      number += lines.length;
      if (ended) break;
    }
    clearInterval(timer);
    read = stop ? read : file.size;
    tell();
    button.textContent = "Close";
    button.onclick = null;
    button.addEventListener("click", () => this.closeUpload());
    if (!failed && !stop) { this.closeUpload(); toast(`${count(done)} items are written.`); }
    await closed;
    this.reload();
  }

  /** Reads all items and offers them as a file of JSON lines. */
  async download() {
    const note = h("p", { role: "status" }, "…");
    let stop = false;
    const work = new AbortController();
    let close;
    dialog(`Download ${this.name}`, (body, end) => {
      close = end;
      body.append(h("progress", { "aria-label": "Download" }), note, h("div", { class: "actions" }, h("button", { type: "button", onclick: () => { stop = true; work.abort(); end(); } }, "Stop")));
    });
    await attempt(async () => {
      const parts = [];
      let total = 0, token = null;
      do {
        const headers = { "x-ms-max-item-count": "1000" };
        if (token) headers["x-ms-continuation"] = token;
        const answer = await request("GET", [...this.path, "docs"], { headers, signal: work.signal });
        const root = parse(answer.text);
        const [, documents] = root.members.find(([name]) => name === '"Documents"');
        for (const [, item] of documents.members) { parts.push(line(item), "\n"); total += 1; }
        token = answer.headers.get("x-ms-continuation");
        note.textContent = `${count(total)} items read`;
      } while (token && !stop);
      if (!stop) { save(`${this.name}.jsonl`, new Blob(parts, { type: "application/x-ndjson" })); toast(`${count(total)} items are in the file.`); }
    });
    close();
  }
}

/** A node on one line, without what the server adds. */
function line(node, root = true) {
  if (node.raw !== undefined) return node.raw;
  const members = node.members.filter(([name]) => !root || !name || !SYSTEM.includes(JSON.parse(name)));
  const [open, close] = node.object ? "{}" : "[]";
  return open + members.map(([name, value]) => (name ? `${name}:` : "") + line(value, false)).join(",") + close;
}

function readable(why) {
  const from = `counted from its last write at ${moment(why._ts)}`;
  if (why.source === "own") return `Its own ttl of ${duration(why.effectiveTtl)}, ${from}.`;
  return `The container's default of ${duration(why.effectiveTtl)}, ${from}.`;
}

/** The short words in a row, and their tone. */
function expiry({ expiresAt, source }) {
  if (expiresAt === null) return ["never", "never"];
  const left = expiresAt - now();
  return [`in ${duration(left)}${source === "own" ? " ·own" : ""}`, left < 60 ? "soon" : ""];
}


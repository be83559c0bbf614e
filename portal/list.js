// A list of items that draws only what is seen: pages as they are scrolled to, each row with when its item expires. Whatever expires leaves it.

import { container, now, request } from "./api.js";
import { attempt, count, duration, h, keep, moment, replace } from "./page.js";

const ROW = 34;
const PAGE = 200;

/**
 * The items of a container. `columns` are the heads of the first two columns; `read(item)` gives a row's { id, key } and the words `first` and
 * `second` of its columns; `choose(row, focus)` is called when a row is chosen, and says whether it was.
 */
export class List {
  constructor({ db, name, label, columns, read, choose }) {
    Object.assign(this, { read, chosen: choose });
    this.path = ["_admin", "explain", ...container(db, name), "docs"];
    this.rows = [];
    this.token = null;
    this.more = true;
    this.loading = false;
    this.at = -1;
    this.space = h("div", { class: "space" });
    this.list = h("div", {
      class: "list", role: "listbox", tabindex: "0", "aria-label": label, onscroll: () => this.draw(), onkeydown: (event) => this.key(event),
    }, this.space);
    this.foot = h("p", { class: "foot", role: "status" });
    this.element = h("div", { class: "list-side" },
      h("div", { class: "list-head", "aria-hidden": "true" }, columns.map((text) => h("span", {}, text)), h("span", {}, "expires")), this.list, this.foot);
    new ResizeObserver(() => this.draw()).observe(this.list);
    keep(this.list, 1000, async () => this.tick());
  }

  /** Begins anew. */
  async reload() {
    this.reading = {};
    this.token = null;
    this.more = true;
    this.rows = [];
    this.loading = false;
    await this.load();
  }

  /** Reads the next page. The server says of each item when it expires and why. */
  async load() {
    if (this.loading || !this.more) return;
    this.loading = true;
    const mine = this.reading;
    this.foot.textContent = "Reading…";
    const headers = { "x-ms-max-item-count": String(PAGE) };
    if (this.token) headers["x-ms-continuation"] = this.token;
    const answer = await attempt(() => request("GET", this.path, { headers }));
    if (mine !== this.reading) return;
    this.loading = false;
    if (!answer) { this.more = false; this.foot.textContent = "The list could not be read."; return; }
    this.token = answer.headers.get("x-ms-continuation");
    this.more = Boolean(this.token);
    for (const { item, expiresAt, source } of JSON.parse(answer.text).items) this.rows.push({ ...this.read(item), expiresAt, source });
    this.draw();
  }

  /** Marks the first row that fits. */
  mark(fits) {
    this.at = this.rows.findIndex(fits);
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
    }, h("bdi", { class: "id", title: row.first }, row.first), h("bdi", { class: "key", title: row.second }, row.second), h("span", { class: "when" }, text));
    element.style.top = `${index * ROW}px`;
    return element;
  }

  /** Every second: what has expired meanwhile leaves the list, as it has left the container. */
  tick() {
    const time = now();
    if (this.rows.some((row) => row.expiresAt !== null && row.expiresAt <= time)) {
      const chosen = this.rows[this.at];
      this.rows = this.rows.filter((row) => row.expiresAt === null || row.expiresAt > time);
      this.at = this.rows.indexOf(chosen);
      this.draw();
      return;
    }
    // Only the words change: a row that is replaced while it is clicked would not be clicked.
    for (const element of this.space.children) {
      const row = this.rows[Number(element.id.slice(4))];
      if (!row) continue;
      const [text, kind] = expiry(row);
      element.className = `item ${kind}`;
      if (element.lastChild.textContent !== text) element.lastChild.textContent = text;
    }
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
    const before = this.at;
    this.at = index;
    this.draw();
    if (await this.chosen(this.rows[index], focus) === false) { this.at = before; this.draw(); }
  }
}

/** The short words in a row, and their tone. */
function expiry({ expiresAt, source }) {
  if (expiresAt === null) return ["never", "never"];
  const left = expiresAt - now();
  const from = { own: " ·own", date: " ·date" }[source] ?? "";
  return [`in ${duration(left)}${from}`, left < 60 ? "soon" : ""];
}

/** Beside an open item: when it expires and why, from the server's answer about it. `gone()` is called once, when it has expired. */
export class Expiry {
  constructor(what, why, gone = () => {}) {
    Object.assign(this, { what, why, gone, over: false });
    this.element = h("div", { class: "expiry" });
    this.tick();
    keep(this.element, 1000, async () => this.tick());
  }

  tick() {
    const { why, what } = this;
    if (!why) { replace(this.element, h("span", { class: "muted" }, "When it expires is decided when it is written.")); return; }
    const left = why.expiresAt === null ? null : why.expiresAt - now();
    if (left === null) { replace(this.element, h("strong", {}, "Never expires. "), h("span", { class: "muted" }, why.why)); return; }
    if (left > 0) {
      replace(this.element, h("strong", {}, `Expires in ${duration(left)}`), " at ", h("time", {}, moment(why.expiresAt)), ". ", h("span", { class: "muted" }, reason(why)));
      return;
    }
    if (this.over) return;
    this.over = true;
    this.element.className = "expiry over";
    replace(this.element, h("strong", {}, "Expired"), " at ", h("time", {}, moment(why.expiresAt)), `. The ${what} exists for nobody any more. What you see is this page's copy.`);
    this.gone();
  }
}

function reason(why) {
  const from = `counted from its last write at ${moment(why._ts)}`;
  if (why.source === "own") return `Its own ttl of ${duration(why.effectiveTtl)}, ${from}.`;
  if (why.source === "default") return `The container's default of ${duration(why.effectiveTtl)}, ${from}.`;
  return why.why;
}

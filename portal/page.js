// The page's own small words: elements, dialogs, messages, and how numbers and times are written.

/** An element: h("button", { class: "x", onclick }, "text", child). Text is always text, never markup. */
export function h(tag, properties = {}, ...children) {
  const space = SVG.has(tag) ? "http://www.w3.org/2000/svg" : null;
  const element = space ? document.createElementNS(space, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}
const SVG = new Set(["svg", "path", "rect", "line", "g", "polyline", "polygon", "circle", "text", "title"]);

export function replace(element, ...children) { element.replaceChildren(...children.flat(Infinity).filter(Boolean)); return element; }

/** A short message at the foot of the page, over whatever is open. */
export function toast(text, kind = "info") {
  const note = h("div", { class: `toast ${kind}` }, text), all = document.getElementById("toasts");
  // Shown again, they lie over a dialog that was opened meanwhile. Otherwise they stay shown: what is there already is read aloud when it changes.
  if (!all.matches(":popover-open") || document.querySelector("dialog[open]")) { all.hidePopover(); all.showPopover(); }
  all.append(note);
  setTimeout(() => note.remove(), kind === "error" ? 9000 : 4500);
}

/** Runs what may fail; a failure is told, in an element made for that if there is one. */
export async function attempt(work, problem) {
  if (problem) problem.textContent = "";
  try {
    return await work();
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    if (problem) problem.textContent = error.message;
    else toast(error.message, "error");
    return undefined;
  }
}

/** Where a form says what is wrong. */
export const problemLine = () => h("p", { class: "problem", role: "alert" });

/** A dialog; `fill(body, close)` builds it. Resolves with what close() is given. */
export function dialog(title, fill, { wide = false, buttons } = {}) {
  return new Promise((resolve) => {
    const body = h("div", { class: "dialog-body" });
    // One may lie over another.
    const id = `dialog-${++dialogs}`;
    const frame = h("dialog", { class: wide ? "wide" : null, "aria-labelledby": id }, h("h2", { id }, title), body);
    const close = (result) => { frame.close(); frame.remove(); resolve(result); };
    frame.addEventListener("cancel", (event) => { event.preventDefault(); close(undefined); });
    fill(body, close);
    if (buttons) body.append(h("div", { class: "actions" }, buttons(close)));
    document.body.append(frame);
    frame.showModal();
  });
}

let dialogs = 0;

/** Asks before something that cannot be undone; `typed` must be typed to go on. */
export function confirm(title, text, { action = "Delete", typed, danger = true } = {}) {
  return dialog(title, (body, close) => {
    const go = h("button", { class: danger ? "danger" : "primary", type: "submit", disabled: Boolean(typed) }, action);
    const field = typed && h("input", { id: "confirm-name", autocomplete: "off", spellcheck: "false",
      oninput: (event) => { go.disabled = event.target.value !== typed; } });
    body.append(h("form", { method: "dialog", onsubmit: (event) => { event.preventDefault(); close(true); } },
      h("p", {}, text),
      typed && h("label", { for: "confirm-name" }, "Type ", h("code", {}, typed), " to confirm"), field,
      h("div", { class: "actions" },
        h("button", { type: "button", onclick: () => close(false) }, "Cancel"), go)));
  });
}

/** A labelled field. */
export function field(label, input, hint) {
  const id = input.id || `f${++fields}`;
  input.id = id;
  if (hint) input.setAttribute("aria-describedby", `${id}-hint`);
  return h("div", { class: "field" }, h("label", { for: id }, label), input, hint && h("small", { id: `${id}-hint` }, hint));
}
let fields = 0;

export const count = (number) => Number(number).toLocaleString("en-US");

export function bytes(number) {
  if (number === null || number === undefined) return "–";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (number >= 1024 && unit < units.length - 1) { number /= 1024; unit += 1; }
  return `${unit && number < 100 ? number.toFixed(1) : Math.round(number)} ${units[unit]}`;
}

/** Seconds as people say them: 90 s, 5 min, 2 h 10 min, 3 d. */
export function duration(secs) {
  if (secs < 100) return `${Math.max(0, Math.round(secs))} s`;
  const parts = [[31536000, "y"], [86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const at = parts.findIndex(([size]) => secs >= size);
  const [size, name] = parts[at];
  const whole = Math.floor(secs / size), rest = secs - whole * size;
  const next = parts[at + 1];
  const more = next && whole < 10 ? Math.floor(rest / next[0]) : 0;
  return `${whole} ${name}${more ? ` ${more} ${next[1]}` : ""}`;
}

/** A moment, in the reader's own zone. */
export function moment(secs) {
  const date = new Date(secs * 1000);
  if (Number.isNaN(date.getTime())) return String(secs);
  const pad = (number) => String(number).padStart(2, "0");
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

/** Offers text or a Blob as a file. */
export function save(name, content, kind = "application/json") {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type: kind }));
  const link = h("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** Runs `work` now and every `millis` while `element` is on the page and the page is seen. */
export function keep(element, millis, work) {
  let running = false;
  const turn = async () => {
    if (running || document.hidden || !element.isConnected) return;
    running = true;
    try { await work(); } catch { /* The connection's state is shown elsewhere. */ } finally { running = false; }
  };
  const timer = setInterval(() => { if (element.isConnected) turn(); else clearInterval(timer); }, millis);
  queueMicrotask(turn);
}

/** Tabs as the platform's guides want them: arrow keys move, the active one is in the tab order. */
export function tabs(names, active, choose) {
  const bar = h("div", { class: "tabs", role: "tablist" });
  const buttons = names.map(([key, label]) => h("button", {
    role: "tab", id: `tab-${key}`, type: "button", "aria-selected": String(key === active),
    "aria-controls": "panel", tabindex: key === active ? "0" : "-1", onclick: () => choose(key),
  }, label));
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = buttons.indexOf(document.activeElement);
    const next = buttons[(at + step + buttons.length) % buttons.length];
    next.focus();
    next.click();
    event.preventDefault();
  });
  bar.append(...buttons);
  return bar;
}

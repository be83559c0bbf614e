// The page: signs in, shows the tree, and gives the main part to whoever the address names.
//
//   #/                      home            #/ops                       the server
//   #/db/{d}                a database      #/c/{d}/{c}/{tab}/…         a container: items, query, settings, time, scripts

import { ApiError, clockState, container, forgetKey, hasOwnKey, json, listen, readClock, signIn } from "./api.js";
import { attempt, bytes, confirm, count, dialog, field, h, keep, moment, replace, tabs, toast } from "./page.js";
import { newContainer, newDatabase, showTree } from "./tree.js";

const main = document.getElementById("main");

// A part of the page is loaded when it is first shown.
const PARTS = {
  items: () => import("./items.js"),
  documents: () => import("./documents.js"),
  query: () => import("./query.js"),
  settings: () => import("./settings.js"),
  time: () => import("./time.js"),
  scripts: () => import("./scripts.js"),
  ops: () => import("./ops.js"),
};

const COLLECTION_TABS = [["documents", "Documents"], ["settings", "Scale & Settings"], ["time", "Time"]];
const TABS = [["items", "Items"], ["query", "Query"], ["settings", "Scale & Settings"], ["time", "Time"], ["scripts", "Scripts"]];

let turn = 0;
let leaving = null;

/** A part of the page that has unsaved text may ask to stay: it returns a question. */
export function beforeLeaving(question) { leaving = question; }

async function route() {
  const mine = ++turn;
  const [kind, ...names] = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);
  document.title = [names[1] ?? names[0], "Sidereal"].filter(Boolean).join(" · ");
  const show = (element) => { if (mine === turn) replace(main, element); };
  try {
    if (kind === "ops") {
      const part = await PARTS.ops();
      if (mine === turn) part.show(main);
    } else if (kind === "db" && names[0]) {
      show(await database(names[0]));
    } else if (kind === "c" && names.length >= 2) {
      await coll(names, mine);
    } else {
      show(await home());
    }
  } catch (error) {
    if (mine !== turn) return;
    const gone = error.status === 404;
    show(h("section", { class: "pad empty" }, h("h1", {}, gone ? "Not here" : "That did not work"),
      h("p", {}, gone ? "There is no such database or container any more." : error.message),
      h("p", {}, h("button", { class: "primary", onclick: route }, "Try again"))));
  }
  markTree();
}

async function coll([db, name, wanted = "items", ...rest], mine) {
  const definition = await json("GET", container(db, name));
  if (mine !== turn) return;
  const known = definition.documents ? COLLECTION_TABS : TABS;
  const tab = known.some(([key]) => key === wanted) ? wanted : known[0][0];
  const panel = h("div", { id: "panel", class: "panel", role: "tabpanel", "aria-labelledby": `tab-${tab}` });
  const go = (key) => { location.hash = address("c", db, name, key); };
  const onTabs = document.activeElement?.role === "tab";
  replace(main,
    h("div", { class: "heading" }, h("a", { href: "#" + address("db", db), class: "parent" }, db), h("span", { class: "muted", "aria-hidden": "true" }, "/"), h("h1", {}, name),
      definition.documents ? h("span", { class: "chip" }, "MongoDB collection") : h("span", { class: "chip", title: "Partition key" }, (definition.partitionKey?.paths ?? []).join(" ")),
      ttlChip(definition)),
    tabs(known, tab, go), panel);
  if (onTabs) document.getElementById(`tab-${tab}`).focus();
  const part = await PARTS[tab]().catch(() => { throw new ApiError(0, "Lost", "The server does not answer."); });
  if (mine === turn) await part.show(panel, { db, name, definition, rest, reload: route });
}

export function address(...parts) { return "/" + parts.map(encodeURIComponent).join("/"); }

function ttlChip(definition) {
  const ttl = definition.defaultTtl;
  const from = definition.ttlPropertyPath && definition.ttlPropertyPath !== "/_ts" ? ` from ${definition.ttlPropertyPath}` : "";
  const text = ttl === undefined || ttl === null ? "TTL off" : ttl === -1 ? "TTL on, no default" : `TTL ${ttl} s${from}`;
  return h("span", { class: `chip ${text === "TTL off" ? "" : "on"}` }, text);
}

async function home() {
  const status = await json("GET", ["_admin", "status"]);
  const start = h("div", { class: "cards" },
    h("a", { class: "card link", href: "#/ops" }, h("h2", {}, "The server"), h("p", {}, `Sidereal ${status.version}, engine ${status.engine}. Health, plots, slow queries.`)),
    h("button", { class: "card link", type: "button", onclick: newDatabase }, h("h2", {}, "New database"), h("p", {}, "Databases hold containers, containers hold items.")),
    h("button", { class: "card link", type: "button", onclick: () => newContainer() }, h("h2", {}, "New container"), h("p", {}, "With its partition key, throughput and time to live.")));
  const rows = status.containers.map((one) => h("tr", {},
    h("td", {}, h("a", { href: "#" + address("c", one.database, one.container, "items") }, `${one.database} / ${one.container}`)),
    h("td", { class: "number" }, count(one.items)), h("td", { class: "number" }, bytes(one.bytes)),
    h("td", {}, h("a", { href: "#" + address("c", one.database, one.container, "time") }, "what expires when"))));
  return h("section", { class: "pad" }, h("h1", {}, "Data explorer"), start,
    rows.length > 0 && h("section", { class: "narrow" }, h("h2", {}, "Containers"), h("div", { class: "scroll" }, h("table", { class: "grid-table" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Container"), h("th", { scope: "col", class: "number" }, "Items"), h("th", { scope: "col", class: "number" }, "Size"), h("th", { scope: "col" }, "Time"))), h("tbody", {}, rows)))),
    h("p", { class: "muted" }, "Endpoint ", h("code", {}, location.origin + "/"), ". Connection strings of the official emulator work."));
}

async function database(name) {
  await json("GET", ["dbs", name]);
  const remove = async () => {
    if (!await confirm("Delete database", `All containers and items of ${name} will be gone.`, { typed: name })) return;
    await attempt(async () => {
      await json("DELETE", ["dbs", name]);
      toast(`${name} is deleted.`);
      location.hash = "/";
      await showTree();
    });
  };
  return h("section", { class: "pad" }, h("h1", {}, name),
    h("div", { class: "cards" }, h("button", { class: "card link", type: "button", onclick: () => newContainer(name) }, h("h2", {}, "New container"), h("p", {}, `In ${name}.`))),
    h("p", {}, h("button", { class: "danger", type: "button", onclick: remove }, "Delete database")));
}

/** Marks in the tree where one is. */
export function markTree() {
  const start = (hash, depth) => hash.split("/").slice(0, depth).join("/");
  for (const link of document.querySelectorAll("#tree a")) {
    const own = link.getAttribute("href");
    // What stands below a container is one page of it, the container all of them.
    const depth = link.classList.contains("part") ? 9 : 4;
    if (start(own, depth) === start(location.hash, depth)) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
}

/** Asks for the key until the server takes one. */
function askKey(message) {
  return dialog("Account key", (body, close) => {
    const key = h("input", { type: "password", autocomplete: "off", required: true, spellcheck: "false" });
    const note = h("p", { class: "problem", role: "alert" }, message ?? "");
    body.append(h("form", {
      onsubmit: async (event) => {
        event.preventDefault();
        note.textContent = "";
        try {
          if (await signIn(key.value)) close(true);
          else note.textContent = "The server does not know this key.";
        } catch (error) { note.textContent = error.message; }
      },
    },
    h("p", {}, "This server has a key of its own. It signs your requests in this browser, and is kept until the tab is closed."),
    field("Primary, secondary or read-only key", key), note,
    h("div", { class: "actions" }, h("button", { class: "primary", type: "submit" }, "Connect"))));
  });
}

function showClock() {
  const { now, mode, frozen } = clockState();
  const clock = document.getElementById("clock");
  replace(clock, mode === "virtual" && h("span", { class: "chip on" }, frozen ? "frozen" : "virtual"), h("time", {}, moment(now)));
}

let asking = null;
listen({
  lost() { document.body.classList.add("lost"); toast("The connection is lost. What you have typed is kept; it goes on when the server is back.", "error"); },
  back() { document.body.classList.remove("lost"); toast("The server is back."); },
  refused(error) { asking ??= askKey(error.message).then(() => { asking = null; begin(); }); },
});

async function begin() {
  document.getElementById("leave").hidden = !hasOwnKey();
  // Nothing is said about time before the server's clock is known.
  await Promise.all([attempt(showTree), attempt(readClock)]);
  showClock();
  await route();
}

// The hash is the address of a page, so the link that skips must not change it.
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
document.getElementById("leave").addEventListener("click", () => { forgetKey(); location.reload(); });
document.getElementById("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const current = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  document.documentElement.dataset.theme = current === "dark" ? "light" : "dark";
  localStorage.setItem("sidereal-theme", document.documentElement.dataset.theme);
});
const theme = localStorage.getItem("sidereal-theme");
if (theme) document.documentElement.dataset.theme = theme;

let here = location.hash;
addEventListener("hashchange", () => {
  if (location.hash === here) return;
  const question = leaving?.();
  if (question && !globalThis.confirm(question)) { history.replaceState(null, "", here || "#/"); return; }
  leaving = null;
  here = location.hash;
  route();
});
addEventListener("beforeunload", (event) => { if (leaving?.()) event.preventDefault(); });

async function start() {
  document.getElementById("toasts").showPopover();
  for (;;) {
    try {
      if (!await signIn()) await askKey();
      break;
    } catch (error) {
      if (error.code === "Insecure") { replace(main, h("p", { class: "pad problem" }, error.message)); return; }
      replace(main, h("p", { class: "pad problem" }, error.message));
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
  await begin();
  keep(main, 2000, async () => { await readClock(); showClock(); });
  setInterval(showClock, 500);
}
start();

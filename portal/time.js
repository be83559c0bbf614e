// Time in a container: what expires when, how far the purge is, and, where it is virtual, the clock itself.

import { clockState, container, json, setClock } from "./api.js";
import { bars, legend } from "./plot.js";
import { attempt, bytes, count, duration, field, h, keep, moment, replace, toast } from "./page.js";

const RANGES = { minutes: ["Next hour", 60, 60], hours: ["Next two days", 3600, 48], days: ["Next thirty days", 86400, 30] };

/** Shows the time page of a container. */
export function show(panel, { db, name }) {
  const path = ["_admin", "ttl", ...container(db, name)];
  let range = "minutes", latest = null;
  const chart = h("div", {}), names = h("div", {});
  const note = h("p", { class: "muted small", role: "status" });
  const numbers = h("div", { class: "tiles" });
  const purge = h("div", {});
  const choice = h("div", { class: "choice", role: "group", "aria-label": "Range" }, Object.entries(RANGES).map(([key, [label]]) => h("button", {
    type: "button", "aria-pressed": String(key === range),
    onclick: (event) => {
      range = key;
      for (const button of event.target.parentNode.children) button.setAttribute("aria-pressed", String(button === event.target));
      draw();
    },
  }, label)));
  const purgeNow = h("button", { type: "button", onclick: () => attempt(async () => { const answer = await json("POST", ["_admin", "purge"]); toast(`${count(answer.purged)} expired item${answer.purged === 1 ? "" : "s"} removed from storage.`); await read(); }) }, "Purge now");
  replace(panel, h("div", { class: "time" },
    numbers,
    h("section", { class: "card" }, h("div", { class: "tools" }, h("h2", { class: "grow" }, "What expires when"), choice), chart, names, note),
    h("div", { class: "halves" },
      h("section", { class: "card" }, h("div", { class: "tools" }, h("h2", { class: "grow" }, "Purge"), purgeNow), purge),
      clockCard(() => read()))));
  keep(panel, 2000, read);

  async function read() {
    latest = await json("GET", path);
    setClock({ ...clockState(), now: latest.now });
    draw();
    // The first count of a large container goes on behind the answer.
    if (latest.uncounted && panel.isConnected) setTimeout(() => attempt(read), 300);
  }

  function draw() {
    if (!latest) return;
    const [label, secs, steps] = RANGES[range];
    const found = new Map(latest[range].map((step) => [step.until, step]));
    const data = Array.from({ length: steps }, (_, index) => {
      const until = latest.now + secs * (index + 1), step = found.get(until);
      const values = [step?.byDefault ?? 0, step?.byOwnTtl ?? 0];
      const when = `${moment(until - secs)} to ${moment(until).slice(11)}`;
      return { values, label: `${when.replace(/:\d\d( |$)/g, "$1")}: ${count(values[0] + values[1])} items, ${bytes(step?.bytes ?? 0)} (${count(values[0])} by default, ${count(values[1])} by own ttl)` };
    });
    const every = { minutes: 10, hours: 6, days: 5 }[range], unit = { minutes: "min", hours: "h", days: "d" }[range];
    const marks = Object.fromEntries(data.map((_, index) => [index, index % every === 0 ? (index ? `+${index} ${unit}` : "now") : null]));
    const own = latest.ttlPropertyPath ? `by the time at ${latest.ttlPropertyPath}` : "by their own ttl";
    replace(chart, bars(`${label}: items that expire`, data, { marks, names: ["by the default", own] }));
    replace(names, legend("by the default", own));
    const tile = (title, value, more) => h("div", { class: "tile" }, h("span", { class: "muted" }, title), h("strong", {}, value), h("small", { class: "muted" }, more ?? ""));
    const ahead = latest[range].reduce((sum, step) => sum + step.items, 0);
    replace(numbers,
      tile("In storage", count(latest.stored.items), bytes(latest.stored.bytes)),
      tile(label, count(ahead), "will expire"),
      tile("Later", count(latest.later.items), "beyond thirty days"),
      tile("Never", latest.never ? count(latest.never.items) : "…", latest.never ? bytes(latest.never.bytes) : ""),
      tile("Awaiting purge", count(latest.expired.items), bytes(latest.expired.bytes)));
    note.textContent = latest.uncounted ? `Counting for the first time: ${count(latest.uncounted)} items to go. The earliest expiries come first.`
      : latest.exact ? "Exact, counted along the order of expiry." : "Items lie in so many different seconds that edges are shared out: off by less than one item in 15,000.";
    const { purge: state } = latest;
    replace(purge, h("dl", {},
      h("dt", {}, "Behind"), h("dd", {}, state.itemsBehind ? `${duration(state.secondsBehind)}, ${count(state.itemsBehind)} items` : "nothing"),
      h("dt", {}, "Purged"), h("dd", {}, `${count(state.purged)} items since the start`),
      h("dt", {}, "Used"), h("dd", {}, `${state.requestCharge.toFixed(1)} RU`),
      h("dt", {}, "May use now"), h("dd", {}, state.budget === null ? "as much as it needs" : `${state.budget.toFixed(0)} RU that clients left over`)),
    h("p", { class: "muted small" }, "Expired items are visible to nobody, whatever the purge has or has not done."));
  }
}

/** The clock, with controls where it is virtual. */
function clockCard(moved) {
  const body = h("div", {});
  const card = h("section", { class: "card" }, h("h2", {}, "Clock"), body);
  const order = (what, said) => attempt(async () => {
    const answer = await json("POST", ["_admin", "clock"], { body: JSON.stringify(what) });
    setClock({ now: answer.now, mode: answer.mode, frozen: answer.frozen });
    toast(`${said} ${answer.purged ? `${count(answer.purged)} item${answer.purged === 1 ? "" : "s"} expired and purged.` : ""}`.trim());
    await moved();
    fill();
  });
  function fill() {
    const { mode, frozen } = clockState();
    if (mode !== "virtual") {
      replace(body, h("p", {}, "The clock is the machine's."), h("p", { class: "muted" }, "With ", h("code", {}, "--clock virtual"), " it can be frozen and moved forward here, so that a ninety-day session expires in a moment."));
      return;
    }
    const amount = h("input", { type: "number", min: "1", step: "1", value: "60", id: "clock-amount" });
    const set = h("input", { type: "datetime-local", step: "1", id: "clock-set" });
    const jump = (secs, label) => h("button", { type: "button", onclick: () => order({ advance: secs }, `The clock went on by ${label}.`) }, `+ ${label}`);
    replace(body,
      h("p", {}, frozen ? "Frozen: it stands still until it is moved or runs again." : "Virtual: it runs with the machine's until it is frozen or moved. It never goes back."),
      h("div", { class: "actions left" },
        h("button", { type: "button", class: "primary", onclick: () => order({ freeze: !frozen }, frozen ? "The clock runs." : "The clock stands still.") }, frozen ? "Let it run" : "Freeze"),
        jump(60, "1 min"), jump(3600, "1 h"), jump(86400, "1 d")),
      h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); order({ advance: Number(amount.value) }, `The clock went on by ${amount.value} s.`); } },
        field("Advance by seconds", amount), h("button", { type: "submit" }, "Advance")),
      h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); if (set.value) order({ set: Math.floor(new Date(set.value).getTime() / 1000) }, "The clock is set."); } },
        field("Set forward to", set), h("button", { type: "submit" }, "Set")));
  }
  fill();
  json("GET", ["_admin", "clock"]).then((answer) => { setClock(answer); fill(); }, () => {});
  return card;
}

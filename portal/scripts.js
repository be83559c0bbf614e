// A container's stored procedures, triggers and user-defined functions.

import { KINDS, all, ascii, container, json, request } from "./api.js";
import { Editor, pretty } from "./code.js";
import { attempt, confirm, dialog, field, h, problemLine, replace, toast } from "./page.js";

/** Shows the scripts of a container. */
export function show(panel, { db, name, rest: [wantedKind, wantedId] = [] }) {
  const path = container(db, name);
  const body = h("div", { class: "settings" });
  replace(panel, body);
  read().then(openWanted);

  async function read() {
    const cards = await Promise.all(KINDS.map(async ([kind, label, array]) => {
      const found = await all([...path, kind], array).catch((error) => error);
      const list = Array.isArray(found) ? h("ul", { class: "plain" }, found.map((one) => h("li", {}, h("button", { class: "quiet link", type: "button", onclick: () => edit(kind, label, one) }, one.id)))) : h("p", { class: "muted" }, found.message);
      return h("section", { class: "card" },
        h("div", { class: "tools" }, h("h2", { class: "grow" }, label), h("button", { type: "button", onclick: () => edit(kind, label, null) }, "New")),
        Array.isArray(found) && !found.length ? h("p", { class: "muted" }, "None.") : list);
    }));
    replace(body, cards);
  }

  /** The address may name a script. */
  async function openWanted() {
    const kind = KINDS.find(([kind]) => kind === wantedKind);
    if (!kind || !wantedId) return;
    const script = await attempt(() => json("GET", [...path, wantedKind, wantedId]));
    if (script && panel.isConnected) await edit(kind[0], kind[1], script);
  }

  function edit(kind, label, script) {
    return dialog(script ? script.id : `New: ${label.toLowerCase()}`, (form, close) => {
      const problem = problemLine();
      const id = h("input", { value: script?.id ?? "", required: true, disabled: Boolean(script) });
      const when = h("select", {}, ["Pre", "Post"].map((one) => h("option", { value: one, selected: script?.triggerType === one }, one)));
      const what = h("select", {}, ["All", "Create", "Replace", "Delete", "Update"].map((one) => h("option", { value: one, selected: script?.triggerOperation === one }, one)));
      const editor = new Editor({ label: "Script", language: "script", value: script?.body ?? "function () {\n  \n}" });
      const store = async () => {
        const text = JSON.stringify({ id: id.value, body: editor.value, ...(kind === "triggers" ? { triggerType: when.value, triggerOperation: what.value } : {}) });
        if (script) await json("PUT", [...path, kind, script.id], { body: text });
        else await json("POST", [...path, kind], { body: text });
        close();
        toast(`${id.value} is saved.`);
        await read();
      };
      const remove = async () => {
        if (!await confirm("Delete script", `${script.id} will be gone.`)) return;
        await attempt(async () => { await request("DELETE", [...path, kind, script.id]); close(); await read(); });
      };
      const key = h("input", { placeholder: '["a"]', spellcheck: "false" }), values = h("input", { value: "[]", spellcheck: "false" });
      const result = h("pre", { class: "code", role: "status" });
      const array = (input, what) => {
        let value;
        try { value = JSON.parse(input.value); } catch { /* Told below. */ }
        if (!Array.isArray(value)) throw new Error(`${what} must be a JSON array, such as ["a", 1].`);
        return input.value;
      };
      const call = async () => {
        result.textContent = "";
        const headers = { "x-ms-documentdb-partitionkey": ascii(array(key, "Partition key")), "x-ms-documentdb-script-enable-logging": "true" };
        const answer = await request("POST", [...path, "sprocs", script.id], { headers, body: array(values, "Arguments") });
        const log = decodeURIComponent(answer.headers.get("x-ms-documentdb-script-log-results") ?? "");
        result.textContent = `${pretty(answer.text)}\n${answer.headers.get("x-ms-request-charge")} RU${log ? `\n\nconsole:\n${log}` : ""}`;
      };
      form.append(h("form", { onsubmit: (event) => { event.preventDefault(); attempt(store, problem); } },
        field("Name", id), kind === "triggers" && h("div", { class: "row" }, field("Runs", when), field("On", what)), editor.element,
        script && kind === "sprocs" && h("div", { class: "execute" },
          h("div", { class: "row" }, field("Partition key (JSON array)", key), field("Arguments (JSON array)", values), h("button", { type: "button", onclick: () => attempt(call, problem) }, "Execute")), result),
        problem,
        h("div", { class: "actions" }, script && h("button", { class: "danger", type: "button", onclick: remove }, "Delete"), h("span", { class: "grow" }),
          h("button", { type: "button", onclick: () => close() }, "Close"), h("button", { class: "primary", type: "submit" }, "Save"))));
    }, { wide: true });
  }
}

// A container's stored procedures, triggers and user-defined functions.

import { all, ascii, container, json, request } from "./api.js";
import { Editor } from "./code.js";
import { attempt, confirm, dialog, field, h, replace, toast } from "./page.js";

const KINDS = [["sprocs", "Stored procedures", "StoredProcedures"], ["triggers", "Triggers", "Triggers"], ["udfs", "User-defined functions", "UserDefinedFunctions"]];

/** Shows the scripts of a container. */
export function show(panel, { db, name }) {
  const path = container(db, name);
  const body = h("div", { class: "settings" });
  replace(panel, body);
  read();

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

  function edit(kind, label, script) {
    return dialog(script ? script.id : `New: ${label.toLowerCase()}`, (form, close) => {
      const id = h("input", { value: script?.id ?? "", required: true, disabled: Boolean(script) });
      const when = h("select", {}, ["Pre", "Post"].map((one) => h("option", { value: one, selected: script?.triggerType === one }, one)));
      const what = h("select", {}, ["All", "Create", "Replace", "Delete", "Update"].map((one) => h("option", { value: one, selected: script?.triggerOperation === one }, one)));
      const editor = new Editor({ label: "Script", language: "sql", value: script?.body ?? "function () {\n  \n}" });
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
      const call = () => attempt(async () => {
        const answer = await request("POST", [...path, "sprocs", script.id], { headers: { "x-ms-documentdb-partitionkey": ascii(key.value) }, body: values.value });
        result.textContent = `${answer.text}\n${answer.headers.get("x-ms-request-charge")} RU`;
      });
      form.append(h("form", { onsubmit: (event) => { event.preventDefault(); attempt(store); } },
        field("Name", id), kind === "triggers" && h("div", { class: "row" }, field("Runs", when), field("On", what)), editor.element,
        script && kind === "sprocs" && h("div", {}, h("div", { class: "row" }, field("Partition key (JSON array)", key), field("Arguments (JSON array)", values), h("button", { type: "button", onclick: call }, "Execute")), result),
        h("div", { class: "actions" }, script && h("button", { class: "danger", type: "button", onclick: remove }, "Delete"),
          h("button", { type: "button", onclick: () => close() }, "Close"), h("button", { class: "primary", type: "submit" }, "Save"))));
    }, { wide: true });
  }
}

// JSON lines in and out of a container, with how far they are.

import { container, keyOf, request } from "./api.js";
import { SYSTEM, parse } from "./code.js";
import { attempt, bytes, count, dialog, h, save, toast } from "./page.js";

/** Requests under way at a time: enough to keep the server's group commit busy. */
const LANES = 8;

/** Asks for a file and writes each of its lines as an item. */
export function upload(where, written) {
  const file = h("input", { type: "file", accept: ".json,.jsonl,.ndjson,.txt", "aria-label": "File of JSON lines" });
  file.addEventListener("change", async () => { if (file.files[0]) { await send(where, file.files[0]); written(); } });
  file.click();
}

async function send({ db, name, definition }, file) {
  const path = [...container(db, name), "docs"];
  const bar = h("progress", { max: "100", value: 0, "aria-label": "Upload" });
  const note = h("p", { role: "status" }, "…");
  const problems = h("ul", { class: "problems" });
  let stop = false, done = 0, failed = 0, read = 0, number = 0, close;
  const button = h("button", { type: "button", onclick: () => { if (stop) close(); stop = true; } }, "Stop");
  const closed = dialog(`Upload ${file.name}`, (body, end) => {
    close = end;
    body.append(h("p", {}, "Each line is an item; one with the same id and partition key is replaced."), bar, note, problems, h("div", { class: "actions" }, button));
  });
  // Escape stops it too.
  closed.then(() => { stop = true; });
  const one = async (line, at) => {
    try {
      const headers = { "x-ms-documentdb-is-upsert": "true", "x-ms-documentdb-partitionkey": keyOf(definition, JSON.parse(line)), "x-ms-cosmos-populate-content-response-on-write": "false" };
      for (let wait = 0; ; wait += 1) {
        try {
          await request("POST", path, { headers, body: line });
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
    const queue = lines.entries();
    const first = number;
    await Promise.all(Array.from({ length: LANES }, async () => {
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
  if (!failed && !stop) { close(); toast(`${count(done)} items are written.`); }
  stop = true;
  button.textContent = "Close";
  await closed;
}

/** Reads all items and offers them as a file of JSON lines; `lines(text)` gives those of a page, `total` how many there may be. */
export async function download({ name, path, total, lines }) {
  const bar = h("progress", { max: String(Math.max(1, total)), value: 0, "aria-label": "Download" });
  const note = h("p", { role: "status" }, "…");
  const work = new AbortController();
  let close;
  dialog(`Download ${name}`, (body, end) => {
    close = end;
    body.append(bar, note, h("div", { class: "actions" }, h("button", { type: "button", onclick: () => end() }, "Stop")));
  }).then(() => work.abort());
  await attempt(async () => {
    const parts = [];
    let done = 0, token = null;
    do {
      const headers = { "x-ms-max-item-count": "1000" };
      if (token) headers["x-ms-continuation"] = token;
      const answer = await request("GET", path, { headers, signal: work.signal });
      for (const line of lines(answer.text)) { parts.push(line, "\n"); done += 1; }
      token = answer.headers.get("x-ms-continuation");
      bar.value = done;
      note.textContent = `${count(done)} of ${count(Math.max(total, done))} items read`;
    } while (token && !work.signal.aborted);
    if (!work.signal.aborted) { save(`${name}.jsonl`, new Blob(parts, { type: "application/x-ndjson" })); toast(`${count(done)} items are in the file.`); }
  });
  close();
}

/** The items of a page of a list, each on a line, without what the server adds; every literal as it was written. */
export function itemLines(text) {
  const [, documents] = parse(text).members.find(([name]) => name === '"Documents"');
  return documents.members.map(([, item]) => line(item));
}

/** The documents of a page of explained ones. */
export function documentLines(text) {
  const [, items] = parse(text).members.find(([name]) => name === '"items"');
  return items.members.map(([, row]) => line(row.members.find(([name]) => name === '"item"')[1], false));
}

function line(node, root = true) {
  if (node.raw !== undefined) return node.raw;
  const members = node.members.filter(([name]) => !root || !name || !SYSTEM.includes(JSON.parse(name)));
  const [open, close] = node.object ? "{}" : "[]";
  return open + members.map(([name, value]) => (name ? `${name}:` : "") + line(value, false)).join(",") + close;
}

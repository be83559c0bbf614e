// Text that is code: a JSON reader that keeps every literal as it was written, highlighting, an editor, and a difference of lines.

import { h, replace } from "./page.js";

/** Beyond this many characters text is shown without colours. */
const COLOURED_MAX = 200000;

/** Reads JSON without interpreting numbers and strings, so that writing it again loses nothing. Throws a SyntaxError with `at`. */
export function parse(text) {
  let at = 0;
  const fail = (what) => { const error = new SyntaxError(what); error.at = at; throw error; };
  const space = () => { while (/[ \t\r\n]/.test(text[at] ?? "")) at += 1; };
  const literal = (pattern, what) => {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (!found) fail(what);
    at += found[0].length;
    return found[0];
  };
  const value = () => {
    space();
    const letter = text[at];
    if (letter === "{" || letter === "[") {
      const object = letter === "{", close = object ? "}" : "]", members = [];
      at += 1;
      space();
      while (text[at] !== close) {
        if (members.length) { if (text[at] !== ",") fail(`Expected , or ${close}`); at += 1; space(); }
        let name = null;
        if (object) {
          name = literal(STRING, "Expected a property name in quotes");
          space();
          if (text[at] !== ":") fail("Expected :");
          at += 1;
        }
        members.push([name, value()]);
        space();
        if (at >= text.length) fail(`Expected ${close}`);
      }
      at += 1;
      return { object, members };
    }
    if (letter === '"') return { raw: literal(STRING, "A string is not closed, or has a bad escape") };
    return { raw: literal(WORD, "Expected a value") };
  };
  const root = value();
  space();
  if (at < text.length) fail("Expected the end");
  return root;
}
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const WORD = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y;

/** Writes what parse() has read, indented. `without` leaves out members of the root. */
export function print(node, without = [], depth = 0) {
  if (node.raw !== undefined) return node.raw;
  const members = node.members.filter(([name]) => depth || !name || !without.includes(JSON.parse(name)));
  if (!members.length) return node.object ? "{}" : "[]";
  const pad = "  ".repeat(depth + 1);
  const lines = members.map(([name, value]) => pad + (name ? `${name}: ` : "") + print(value, without, depth + 1));
  const [open, close] = node.object ? "{}" : "[]";
  return `${open}\n${lines.join(",\n")}\n${"  ".repeat(depth)}${close}`;
}

export const SYSTEM = ["_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"];

/** JSON text, indented; as it is if it cannot be read. */
export function pretty(text, without = []) {
  try { return print(parse(text), without); } catch { return text; }
}

const JSON_TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d[\d.eE+-]*)|\b(true|false|null)\b/g;
const SQL_TOKEN = /('(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*")|(--[^\n]*)|(@\w+)|(\b\d[\d.eE+-]*\b)|\b(SELECT|DISTINCT|TOP|VALUE|FROM|IN|JOIN|WHERE|AND|OR|NOT|BETWEEN|LIKE|ESCAPE|EXISTS|ARRAY|GROUP|ORDER|BY|RANK|ASC|DESC|OFFSET|LIMIT|AS|UDF|null|true|false|undefined)\b|\b(\w+)(?=\s*\()/gi;

function json(text, out) {
  let last = 0;
  for (const found of text.matchAll(JSON_TOKEN)) {
    out.append(text.slice(last, found.index));
    const [all, string, colon, number] = found;
    const kind = string ? (colon ? "name" : "string") : number ? "number" : "word";
    out.append(h("span", { class: `t-${kind}` }, string ?? all), colon ?? "");
    last = found.index + all.length;
  }
  out.append(text.slice(last));
}

// The same groups as in SQL; there are no parameters.
const SCRIPT_TOKEN = /("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`)|(\/\/[^\n]*|\/\*[^]*?\*\/)|(@\w+)|(\b\d[\d.eE]*\b)|\b(async|await|break|case|catch|class|const|continue|default|delete|do|else|false|finally|for|function|if|in|instanceof|let|new|null|of|return|switch|this|throw|true|try|typeof|undefined|var|while)\b|\b(\w+)(?=\s*\()/g;

function tokens(pattern, text, out) {
  let last = 0;
  for (const found of text.matchAll(pattern)) {
    out.append(text.slice(last, found.index));
    const [all, string, comment, parameter, number, word] = found;
    const kind = string ? "string" : comment ? "comment" : parameter ? "name" : number ? "number" : word ? "word" : "function";
    out.append(h("span", { class: `t-${kind}` }, all));
    last = found.index + all.length;
  }
  out.append(text.slice(last));
}

/** Coloured text. */
export function coloured(text, language = "json") {
  const out = document.createDocumentFragment();
  if (text.length > COLOURED_MAX) out.append(text);
  else if (language === "json") json(text, out);
  else tokens(language === "sql" ? SQL_TOKEN : SCRIPT_TOKEN, text, out);
  return out;
}

/** An editor: a text area over its coloured copy. Has value, element, and calls changed(). */
export class Editor {
  constructor({ label, language = "json", value = "", changed = () => {}, submit, placeholder }) {
    this.language = language;
    this.changed = changed;
    this.copy = h("pre", { class: "copy", "aria-hidden": "true" });
    this.area = h("textarea", {
      "aria-label": label, spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off", placeholder,
      oninput: () => { this.paint(); this.changed(); },
      onscroll: () => { this.copy.scrollTop = this.area.scrollTop; this.copy.scrollLeft = this.area.scrollLeft; },
      onkeydown: (event) => {
        if (submit && event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); submit(); }
      },
    });
    this.element = h("div", { class: `editor ${language}` }, this.copy, this.area);
    this.value = value;
  }

  get value() { return this.area.value; }
  set value(text) { this.area.value = text; this.area.scrollTop = 0; this.paint(); }

  paint() {
    // A last empty line has height only if something follows it.
    replace(this.copy, coloured(this.area.value, this.language), "\n ");
    this.copy.scrollTop = this.area.scrollTop;
    this.copy.scrollLeft = this.area.scrollLeft;
  }

  /** Puts the cursor at a character, as after a mistake. */
  point(at) { this.area.focus(); this.area.setSelectionRange(at, at); }
}

/** Line and column of a character. */
export function place(text, at) {
  const before = text.slice(0, at).split("\n");
  return `line ${before.length}, column ${before.at(-1).length + 1}`;
}

/** Two texts side by side by lines: what is only on the left, only on the right, or on both. */
export function difference(left, right) {
  const [a, b] = [left.split("\n"), right.split("\n")];
  let head = 0, tail = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  const [x, y] = [a.slice(head, a.length - tail), b.slice(head, b.length - tail)];
  const lines = a.slice(0, head).map((text) => ["same", text]);
  if (x.length * y.length > 4e6) {
    lines.push(...x.map((text) => ["left", text]), ...y.map((text) => ["right", text]));
  } else {
    // The longest common part, from the end, then walked from the beginning.
    const table = Array.from({ length: x.length + 1 }, () => new Uint32Array(y.length + 1));
    for (let i = x.length - 1; i >= 0; i -= 1) {
      for (let j = y.length - 1; j >= 0; j -= 1) {
        table[i][j] = x[i] === y[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
      }
    }
    let i = 0, j = 0;
    while (i < x.length || j < y.length) {
      if (i < x.length && j < y.length && x[i] === y[j]) { lines.push(["same", x[i]]); i += 1; j += 1; }
      else if (j >= y.length || (i < x.length && table[i + 1][j] >= table[i][j + 1])) { lines.push(["left", x[i]]); i += 1; }
      else { lines.push(["right", y[j]]); j += 1; }
    }
  }
  lines.push(...a.slice(a.length - tail).map((text) => ["same", text]));
  return lines;
}

/** The difference as an element. */
export function showDifference(left, right, names) {
  const signs = { same: " ", left: "−", right: "+" };
  const said = { same: "", left: `${names[0]}: `, right: `${names[1]}: ` };
  const lines = difference(left, right).map(([kind, text]) =>
    h("div", { class: `d-${kind}` }, h("span", { class: "sign", "aria-hidden": "true" }, signs[kind]), h("span", { class: "sr" }, said[kind]), text || " "));
  return h("div", { class: "difference", tabindex: "0", role: "region", "aria-label": `Difference of ${names[0]} and ${names[1]}` }, lines);
}

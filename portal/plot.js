// Bars and lines in SVG. Each plot has a name, and its numbers stand in a table for those who do not see it.

import { h, count } from "./page.js";

const round = (number) => Math.round(number * 100) / 100;

/** The next round number. */
function ceiling(number) {
  if (number <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(number));
  return [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((times) => times * power).find((step) => step >= number);
}

const short = (number) => number >= 1e6 ? `${round(number / 1e6)}M` : number >= 1e3 ? `${round(number / 1e3)}k` : String(round(number));

/** Stacked bars. Each bar: { values: [low, high], label }. `marks`: { index: text } under the axis. */
export function bars(title, data, { marks = {}, height = 190, names = [] } = {}) {
  const width = 860, left = 44, bottom = 22, top = 10;
  const sum = (bar) => bar.values.reduce((a, b) => a + b, 0);
  const most = ceiling(Math.max(1, ...data.map(sum)));
  const space = (width - left) / data.length, inner = height - bottom - top;
  const y = (number) => top + inner - (number / most) * inner;
  const parts = grid(most, { left, width, y, height, bottom });
  data.forEach((bar, index) => {
    const x = left + index * space;
    let base = 0;
    const group = h("g", { class: "bar" }, h("title", {}, bar.label), h("rect", { class: "catch", x, y: top, width: space, height: inner }));
    bar.values.forEach((value, series) => {
      if (value > 0) {
        const size = Math.max(1.5, y(base) - y(base + value));
        group.append(h("rect", { class: `s${series}`, x: x + space * 0.14, width: space * 0.72, y: y(base) - size, height: size, rx: Math.min(2.5, space * 0.2) }));
      }
      base += value;
    });
    parts.push(group);
    if (marks[index]) parts.push(h("text", { x: x + 1, y: height - 6, class: "mark" }, marks[index]));
  });
  return figure(title, parts, { width, height },
    data.filter((bar) => sum(bar) > 0).map((bar) => [bar.label.split(":")[0], ...bar.values.map(count)]), ["When", ...names]);
}

/** Lines over time. Each series: { name, values }; null values break the line. */
export function lines(title, at, series, { height = 120, format = short, width = 380, step = 10 } = {}) {
  const left = 52, bottom = 20, top = 8;
  const all = series.flatMap((one) => one.values).filter((value) => value !== null);
  const most = step === 2 ? 2 ** Math.ceil(Math.log2(Math.max(...all, 1))) : ceiling(Math.max(...all, 0));
  const inner = height - bottom - top;
  const y = (number) => top + inner - (number / most) * inner;
  const x = (index) => left + (index / Math.max(1, at.length - 1)) * (width - left - 4);
  const parts = grid(most, { left, width, y, height, bottom, format });
  // The first series is drawn last: it lies on top.
  [...series.entries()].reverse().forEach(([number, one]) => {
    let run = [];
    const flush = () => {
      if (run.length > 1) {
        const points = run.map(([a, b]) => `${round(a)},${round(b)}`).join(" ");
        if (number === 0) parts.push(h("polygon", { class: `area s${number}`, points: `${round(run[0][0])},${y(0)} ${points} ${round(run.at(-1)[0])},${y(0)}` }));
        parts.push(h("polyline", { class: `line s${number}`, points }));
      } else if (run.length === 1) parts.push(h("circle", { class: `dot s${number}`, cx: run[0][0], cy: run[0][1], r: 1.6 }));
      run = [];
    };
    one.values.forEach((value, index) => { if (value === null) flush(); else run.push([x(index), y(value)]); });
    flush();
  });
  const time = (secs) => new Date(secs * 1000).toTimeString().slice(0, 5);
  if (at.length) {
    parts.push(h("text", { x: left, y: height - 5, class: "mark" }, time(at[0])), h("text", { x: width - 4, y: height - 5, class: "mark end" }, time(at.at(-1))));
  }
  const every = Math.max(1, Math.floor(at.length / 12));
  const rows = at.map((secs, index) => [time(secs), ...series.map((one) => one.values[index] === null ? "–" : format(one.values[index]))])
    .filter((_, index) => index % every === 0);
  return figure(title, parts, { width, height }, rows, ["When", ...series.map((one) => one.name)]);
}

function grid(most, { left, width, y, height, bottom, format = short }) {
  return [0, 0.5, 1].flatMap((part) => [
    h("line", { class: "grid", x1: left, x2: width, y1: y(most * part), y2: y(most * part) }),
    (part === 0 || most * part >= 1 || most < 1) && h("text", { class: "scale", x: left - 6, y: Math.min(y(most * part) + 3.5, height - bottom + 3) }, format(most * part)),
  ]).filter(Boolean);
}

function figure(title, parts, { width, height }, rows, head) {
  const body = rows.length ? rows : [["nothing", ...head.slice(1).map(() => "0")]];
  return h("figure", { class: "plot" },
    h("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title }, parts),
    h("table", { class: "sr" }, h("caption", {}, title), h("tr", {}, head.map((name) => h("th", { scope: "col" }, name))),
      body.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell))))));
}

/** What the colours mean. */
export function legend(...names) {
  return h("p", { class: "legend" }, names.map((name, index) => h("span", {}, h("i", { class: `s${index}`, "aria-hidden": "true" }), name)));
}

// A server of the tests' own, a browser, and a client that prepares data as an application would.

import { spawn } from "node:child_process";
import crypto from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { MongoClient } from "mongodb";
import { chromium } from "playwright-core";

export const WELL_KNOWN = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
const BINARY = process.env.SIDEREAL ?? new URL("../../target/release/sidereal", import.meta.url).pathname;
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Starts a server on a free port, with nothing kept. */
export async function startServer(...options) {
  const env = { ...process.env };
  for (const name of Object.keys(env)) if (name.startsWith("SIDEREAL_")) delete env[name];
  const child = spawn(BINARY, ["--in-memory", "--port", "0", ...options], { env, stdio: ["ignore", "pipe", "inherit"] });
  let text = "";
  const [port, mongo] = await new Promise((resolve, reject) => {
    child.on("exit", (code) => reject(new Error(`the server ended with ${code}: ${text}`)));
    child.stdout.on("data", (data) => {
      text += data;
      const found = /https:\/\/127\.0\.0\.1:(\d+)\/[^]*mongodb:\/\/127\.0\.0\.1:(\d+)\//.exec(text);
      if (found) resolve(found.slice(1).map(Number));
    });
  });
  const stop = () => new Promise((resolve) => { child.removeAllListeners("exit"); child.on("exit", resolve); child.kill("SIGTERM"); });
  return { base: `http://localhost:${port}`, mongo: `mongodb://127.0.0.1:${mongo}/`, stop };
}

/** A client with a key. */
export function client(base, key = WELL_KNOWN) {
  return async function call(method, path, body, headers = {}) {
    const parts = path.split("/").filter(Boolean).map(decodeURIComponent), date = new Date().toUTCString(), count = parts.length;
    const kind = count === 0 ? "" : count % 2 ? parts[count - 1] : parts[count - 2];
    const link = parts.slice(0, count % 2 ? count - 1 : count).join("/");
    const payload = `${method.toLowerCase()}\n${kind}\n${link}\n${date.toLowerCase()}\n\n`;
    const mark = crypto.createHmac("sha256", Buffer.from(key, "base64")).update(payload).digest("base64");
    const sent = { "x-ms-date": date, "x-ms-version": "2020-07-15", authorization: encodeURIComponent(`type=master&ver=1.0&sig=${mark}`), ...headers };
    const answer = await fetch(`${base}/${path}`, { method, headers: sent, body: body === undefined ? undefined : JSON.stringify(body) });
    const text = await answer.text();
    return { status: answer.status, headers: answer.headers, body: text ? JSON.parse(text) : null };
  };
}

/** Makes a container with the key /pk, and items in it. */
export async function makeContainer(call, name, { ttl, items = [] } = {}) {
  await call("POST", "dbs", { id: "shop" });
  await call("DELETE", `dbs/shop/colls/${name}`);
  const definition = { id: name, partitionKey: { paths: ["/pk"], kind: "Hash", version: 2 }, ...(ttl === undefined ? {} : { defaultTtl: ttl }) };
  const made = await call("POST", "dbs/shop/colls", definition);
  if (made.status !== 201) throw new Error(JSON.stringify(made.body));
  for (const item of items) {
    const answer = await call("POST", `dbs/shop/colls/${name}/docs`, { pk: "p", ...item }, { "x-ms-documentdb-partitionkey": '["p"]' });
    if (answer.status !== 201) throw new Error(JSON.stringify(answer.body));
  }
}

/** A MongoDB driver, as an application uses it. */
export function mongoClient(url, key = WELL_KNOWN) {
  return new MongoClient(url, { auth: { username: "any", password: key } });
}

export function startBrowser() {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
}

/** A page on which every request to another origin, every refused script and every error is remembered. */
export async function openPage(browser, base, { hash = "/", ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 820 }, acceptDownloads: true, ...options });
  const page = await context.newPage();
  const seen = { strangers: [], errors: [], bytes: 0 };
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (!["blob:", "data:"].includes(url.protocol) && url.origin !== base) seen.strangers.push(request.url());
  });
  page.on("pageerror", (error) => seen.errors.push(error.stack));
  page.on("console", (message) => { if (/Content Security Policy|Refused to/.test(message.text())) seen.errors.push(message.text()); });
  page.seen = seen;
  page.setDefaultTimeout(10000);
  // For those who work on the page: files from here instead of the binary's.
  if (process.env.PORTAL_FILES) {
    await page.route("**/_explorer/*", async (route) => {
      const answer = await route.fetch();
      const name = new URL(route.request().url()).pathname.split("/").pop() || "index.html";
      await route.fulfill({ response: answer, body: readFileSync(`${process.env.PORTAL_FILES}/${name}`) });
    });
  }
  await page.goto(`${base}/_explorer/#${hash}`);
  return page;
}

/** What axe finds wrong with the page. Evaluated by the debugger, because the page's own policy lets no script in. */
export async function faults(page) {
  await page.evaluate(AXE);
  const found = await page.evaluate(() => globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] }));
  return found.violations.map((one) => `${one.id}: ${one.help} at ${one.nodes.map((node) => node.target.join(" ")).slice(0, 3).join(", ")}`);
}

/** Text on the page that is too faint: its contrast with what lies behind it is below 4.5, or 3 for large letters. What is disabled need not be read. */
export function faint(page) {
  return page.evaluate(() => {
    const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
    const read = (colour) => { pen.clearRect(0, 0, 1, 1); pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data; return { rgb: [r, g, b], alpha: a / 255 }; };
    const over = (top, below) => below.map((value, at) => top.rgb[at] * top.alpha + value * (1 - top.alpha));
    const behind = (element) => {
      const layers = [];
      for (let at = element; at; at = at.parentElement) {
        const layer = read(getComputedStyle(at).backgroundColor);
        if (layer.alpha > 0) layers.push(layer);
        if (layer.alpha === 1) break;
      }
      return layers.reduceRight((below, layer) => over(layer, below), [255, 255, 255]);
    };
    const light = (rgb) => rgb.map((value) => value / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)).reduce((sum, value, at) => sum + value * [0.2126, 0.7152, 0.0722][at], 0);
    const found = [];
    let looked = 0;
    for (const element of document.querySelectorAll("body *")) {
      const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
      if (!own || !element.checkVisibility({ visibilityProperty: true, opacityProperty: true }) || element.closest(":disabled, .sr, title, noscript, option")) continue;
      const style = getComputedStyle(element), drawn = element instanceof SVGElement ? style.fill : style.color, colour = read(drawn);
      if (colour.alpha === 0) continue;
      const below = behind(element), [a, b] = [light(over(colour, below)), light(below)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
      const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
      looked += 1;
      if (ratio < (large ? 3 : 4.5)) found.push(`${element.tagName.toLowerCase()}.${element.getAttribute("class") ?? ""} "${element.textContent.trim().slice(0, 30)}" ${ratio.toFixed(2)}`);
    }
    if (looked < 10) found.push(`only ${looked} texts were looked at`);
    return found;
  });
}

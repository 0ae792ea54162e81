// @ts-check
// The metrics of a level: one large chart with a choice of curves, and a small one for each group.

import { Chart, xText } from "./chart.js";
import { byId, h, setAttr, setText, show } from "./dom.js";
import { groups, isEngine, legend, ordered, valueText } from "./keys.js";
import { metricPicture, xOf } from "./pictures.js";
import { COLOR_COUNT, swatch } from "./paint.js";

/** Of a small chart, in pixels; as in the style. */
const [LEAST_WIDTH, CARD_GAP] = [300, 16];
const FILTER_FROM = 14;
const SMALL_LIMIT = 24;

/** @param {string[]} keys the curves that a reader sees first */
function firstChoice(keys) {
  const losses = keys.filter((k) => /loss$/.test(k) && !k.includes("."));
  return losses.length ? losses : keys.filter((k) => !isEngine(k)).slice(0, 1);
}

export class MetricsPanel {
  /** @param {import("./app.js").Page} page */
  constructor(page) {
    this.page = page;
    this.chart = new Chart({ title: "Metrics", say: page.say, zoom: (r) => page.zoomTo(r), readout: (i) => this.readout(i) });
    byId("metrics-chart").append(this.chart.el);
    byId("metrics-tools").append(this.chart.tools);
    this.legendBox = byId("metrics-legend");
    /** @type {Map<string, any>} */ this.items = new Map();
    /** @type {Map<string, {chart: Chart, el: any, keys: string[], value: any, names: any}>} */ this.small = new Map();
    this.listed = "";
    /** @type {string[]} */ this.keys = [];
    /** @type {Map<string, number>} */ this.colors = new Map();
    byId("metrics-filter").addEventListener("input", () => this.filter());
    new ResizeObserver(() => this.arrange()).observe(byId("small-charts"));
  }

  reset() {
    this.listed = "";
    for (const item of this.small.values()) item.el.remove();
    this.small.clear();
  }

  /** @returns {string[]} */
  shown() {
    const { solo, chosen } = this.page.view;
    if (solo && this.keys.includes(solo)) return [solo];
    const picked = this.keys.filter((k) => chosen.get(k) ?? firstChoice(this.keys).includes(k));
    return picked.slice(0, COLOR_COUNT);
  }

  update() {
    const { level } = this.page;
    this.keys = ordered(level.keys());
    const listed = `${this.keys.join("\n")}\n${level.interior}\n${JSON.stringify(this.page.run.meta?.reductions)}`;
    if (listed !== this.listed) this.rebuild();
    this.listed = listed;
    const options = { interior: level.interior, colors: this.colors };
    this.chart.set(metricPicture(this.page.track, this.shown(), this.page, { ...options, log: this.page.view.log, smooth: this.page.view.smooth }));
    for (const [, item] of this.small) this.updateSmall(item);
    this.values(this.chart.cursorIndex);
    show(byId("metrics-empty"), level.known !== null && this.keys.length === 0);
  }

  rebuild() {
    this.colors = new Map(this.keys.map((k, i) => [k, i % COLOR_COUNT]));
    this.items.clear();
    const boxes = [];
    const plain = this.keys.filter((k) => !k.includes("."));
    if (plain.length) boxes.push(this.group("", plain));
    for (const [name, keys] of groups(this.keys.filter((k) => k.includes(".")))) boxes.push(this.group(name, keys));
    this.legendBox.replaceChildren(...boxes);
    show(byId("metrics-filter-box"), this.keys.length >= FILTER_FROM);
    this.rebuildSmall();
    this.filter();
  }

  /** @param {string} name @param {string[]} keys */
  group(name, keys) {
    return h("ul", { class: "legend", "aria-label": name ? `Curves of ${name}` : "Curves" }, name ? h("li", { class: "legend-group", "aria-hidden": "true" }, name) : null, keys.map((k) => this.item(k)));
  }

  /** @param {string} key */
  item(key) {
    const label = legend(key, this.page.level.interior, this.page.run.meta);
    const box = h("input", { type: "checkbox", "aria-label": `Draw ${label}`, onchange: () => this.choose(key, box.checked) });
    const name = h("button", { type: "button", class: "legend-name", "aria-pressed": "false", title: "Show this one alone on its true axis", onclick: () => this.solo(key) }, h("bdi", {}, label));
    const value = h("span", { class: "legend-value num" });
    const el = h("li", { class: `legend-item k${this.colors.get(key)}` }, h("label", { class: "swatch" }, box, swatch(this.colors.get(key) ?? 0)), name, value);
    this.items.set(key, { el, box, name, value });
    return el;
  }

  /** @param {string} key @param {boolean} drawn */
  choose(key, drawn) {
    this.page.view.chosen.set(key, drawn);
    this.page.view.solo = "";
    this.page.redraw();
  }

  /** @param {string} key */
  solo(key) {
    const { view } = this.page;
    view.solo = view.solo === key ? "" : key;
    this.page.say(view.solo ? `${key} alone` : "all chosen curves");
    this.page.redraw();
  }

  filter() {
    const text = byId("metrics-filter").value.toLowerCase();
    for (const [key, item] of this.items) show(item.el, key.toLowerCase().includes(text));
  }

  /** Each name with its value under the cursor, or its last. @param {number | null} index */
  values(index) {
    const shown = new Set(this.shown());
    for (const [key, item] of this.items) {
      const mean = this.page.track.columns.get(key)?.mean;
      const value = index === null ? this.latest(key) : mean?.[index];
      setText(item.value, valueText(key, value, this.page.run.meta));
      item.box.checked = shown.has(key);
      setAttr(item.name, "aria-pressed", String(this.page.view.solo === key));
      item.el.classList.toggle("off", !shown.has(key));
    }
    const x = index === null ? undefined : xOf(this.page.track, this.page)[index];
    setText(byId("metrics-readout"), x === undefined ? "" : xText(this.page.view.mode, x));
  }

  /** @param {string} key */
  latest(key) {
    const now = this.page.level.node?.metrics?.[key];
    return now === undefined ? this.page.level.track.latest(key) : now;
  }

  /** @param {number | null} index */
  readout(index) {
    this.values(index);
  }

  rebuildSmall() {
    const first = new Set(firstChoice(this.keys));
    // At the root the shares add up to the whole, always.
    const idle = this.page.level.path === "root" && this.page.level.interior ? "batch_share" : "";
    const wanted = [...groups(this.keys.filter((k) => !first.has(k) && k !== idle))].slice(0, SMALL_LIMIT);
    const names = new Set(wanted.map(([name]) => name));
    for (const [name, item] of this.small) {
      if (names.has(name)) continue;
      item.el.remove();
      this.small.delete(name);
    }
    for (const [name, keys] of wanted) this.smallCard(name, keys);
    show(byId("small-charts"), wanted.length > 0);
    this.arrange();
  }

  /** As many columns as fit and are needed, or one less where that leaves fewer places empty. */
  arrange() {
    const box = byId("small-charts");
    const count = this.small.size;
    const fit = Math.max(1, Math.floor((box.clientWidth + CARD_GAP) / (LEAST_WIDTH + CARD_GAP)));
    const empty = (/** @type {number} */ columns) => (columns - (count % columns)) % columns;
    const fewer = fit > 2 && count > fit && empty(fit - 1) < empty(fit);
    box.style.setProperty("--columns", String(fewer ? fit - 1 : Math.min(fit, Math.max(count, 2))));
  }

  /** @param {string} name @param {string[]} keys */
  smallCard(name, keys) {
    const { level, run } = this.page;
    const held = this.small.get(name);
    const title = keys.length === 1 ? legend(keys[0], level.interior, run.meta) : name;
    if (held) {
      held.keys = keys;
      setText(held.names, title);
      return;
    }
    const chart = new Chart({ title, say: this.page.say, zoom: (r) => this.page.zoomTo(r), small: true });
    const names = h("h3", { class: "legend-text" }, h("bdi", {}, title));
    const value = h("span", { class: "small-value num" });
    const el = h("section", { class: "card small-card", "aria-label": title }, h("header", {}, names, value, chart.tools), chart.el);
    byId("small-charts").append(el);
    this.small.set(name, { chart, el, keys, value, names });
  }

  /** @param {{chart: Chart, keys: string[], value: any}} item */
  updateSmall(item) {
    const keys = item.keys.slice(0, COLOR_COUNT);
    item.chart.set(metricPicture(this.page.track, keys, this.page, { interior: this.page.level.interior, colors: keys.length === 1 ? this.colors : undefined }));
    setText(item.value, keys.length === 1 ? valueText(keys[0], this.latest(keys[0]), this.page.run.meta) : `${item.keys.length} curves`);
  }
}

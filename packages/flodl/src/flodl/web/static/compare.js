// @ts-check
// One metric over all loaded children: a curve for each of a few, a bar for each of many.

import { Chart } from "./chart.js";
import { byId, h, setAttr, setText, show, SVG_NS } from "./dom.js";
import { family, legend, valueText } from "./keys.js";
import { COLOR_COUNT, swatch } from "./paint.js";
import { metricPicture, resourcePicture } from "./pictures.js";
import { linkTo, nameOf } from "./route.js";
import { columnValue } from "./source.js";

const [WIDTH, HEIGHT] = [88, 22];

export class Comparison {
  /** @param {import("./app.js").Page} page */
  constructor(page) {
    this.page = page;
    /** @type {Map<string, any>} */ this.bars = new Map();
    this.order = "";
    this.listed = "";
    this.chart = new Chart({ title: "Levels compared", say: page.say, zoom: (r) => page.zoomTo(r), points: 400 });
    byId("compare-lines").prepend(this.chart.el);
  }

  /** @param {any[]} records @param {string} metric */
  update(records, metric) {
    const few = this.page.level.childList();
    const asLines = few.length <= COLOR_COUNT && !this.page.level.wide;
    show(byId("compare-lines"), asLines);
    show(byId("compare"), !asLines);
    if (asLines) this.lines(few, metric);
    else this.columns(records, metric);
    this.summary(metric);
  }

  /** Curves share one x axis: the times of all children, each with gaps where it did not report. @param {any[]} few @param {string} metric */
  lines(few, metric) {
    const { page } = this;
    const pictures = few.map((rec) => {
      const track = page.childTrack(rec.path);
      return metric.startsWith("res.") ? resourcePicture(track, page, "GPU") : metricPicture(track, [metric], page, { interior: false });
    });
    const x = [...new Set(pictures.flatMap((p) => p.x))].sort((a, b) => a - b);
    const place = new Map(x.map((v, i) => [v, i]));
    const curves = pictures.flatMap((p, i) => p.curves.map((c) => {
      const values = new Array(x.length).fill(undefined);
      p.x.forEach((v, j) => (values[place.get(v) ?? 0] = c.values[j] ?? values[place.get(v) ?? 0]));
      return { ...c, lo: undefined, hi: undefined, values, key: few[i].path, label: nameOf(few[i].path), color: i, scale: family(metric, page.run.meta) };
    }));
    this.chart.set({ ...pictures[0], x, curves, flags: pictures.flatMap((p, i) => (p.flags ?? []).map((f) => ({ ...f, kind: `${nameOf(few[i].path)} ${f.kind}` }))) });
    this.names(few, metric);
  }

  /** @param {any[]} few @param {string} metric */
  names(few, metric) {
    const deep = few.some((r) => r.children !== undefined);
    const title = metric === "res.gpu_util" ? "gpu" : legend(metric, deep, this.page.run.meta);
    const listed = [title, ...few.map((r) => r.path)].join("\n");
    if (listed === this.listed) return;
    this.listed = listed;
    byId("compare-legend").replaceChildren(h("li", { class: "legend-group" }, title), ...few.map((r, i) => h("li", { class: `legend-item k${i}` }, swatch(i), nameOf(r.path))));
  }

  /** @param {any[]} records @param {string} metric */
  columns(records, metric) {
    const box = byId("compare");
    const values = records.map((r) => columnValue(r, metric));
    const held = values.filter((v) => typeof v === "number");
    const top = Math.max(...held.map(Math.abs), 0) || 1;
    const order = records.map((r) => r.path).join("\n");
    if (order !== this.order) {
      this.order = order;
      this.bars = new Map(records.map((r) => [r.path, this.bar(r.path)]));
      box.replaceChildren(...[...this.bars.values()].map((b) => b.el));
    }
    records.forEach((rec, i) => this.fill(this.bars.get(rec.path), rec, values[i], metric, top));
  }

  /** @param {string} path */
  bar(path) {
    const fill = h("i", {});
    const el = h("a", { class: "column", href: linkTo(path), tabindex: "-1" }, fill, h("span", {}, nameOf(path)));
    return { el, fill };
  }

  /** @param {any} bar @param {any} rec @param {any} value @param {string} metric @param {number} top */
  fill(bar, rec, value, metric, top) {
    const lost = this.page.isGone(rec);
    bar.fill.style.setProperty("--full", String(typeof value === "number" ? Math.abs(value) / top : 0));
    bar.el.classList.toggle("lost", lost);
    const text = `${nameOf(rec.path)}: ${valueText(metric, value, this.page.run.meta)}${lost ? ", lost" : ""}`;
    setAttr(bar.el, "title", text);
    setAttr(bar.el, "aria-label", text);
  }

  /** @param {string} metric */
  summary(metric) {
    const s = this.page.level.summary[metric];
    const text = (/** @type {number} */ v) => valueText(metric, v, this.page.run.meta);
    setText(byId("compare-summary"), s ? `min ${text(s.min)} (${nameOf(s.min_path)}) · median ${text(s.p50)} · max ${text(s.max)} (${nameOf(s.max_path)})` : "");
  }

  spark() {
    const el = document.createElementNS(SVG_NS, "svg");
    const line = document.createElementNS(SVG_NS, "polyline");
    for (const [k, v] of Object.entries({ viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "spark", "aria-hidden": "true" })) el.setAttribute(k, v);
    el.append(line);
    return { el, draw: (/** @type {any[]} */ values) => setAttr(line, "points", points(values)) };
  }
}

/** @param {any[]} values */
function points(values) {
  const held = values.filter((v) => typeof v === "number");
  if (held.length < 2) return "";
  const [lo, hi] = [Math.min(...held), Math.max(...held)];
  const span = hi - lo || 1;
  return values
    .map((v, i) => (typeof v === "number" ? `${((i / (values.length - 1)) * WIDTH).toFixed(1)},${(hi === lo ? HEIGHT / 2 : HEIGHT - 2 - ((v - lo) / span) * (HEIGHT - 4)).toFixed(1)}` : ""))
    .filter(Boolean)
    .join(" ");
}

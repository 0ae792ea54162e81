// @ts-check
// One chart: curves, cursor, keyboard, touch, table and picture. Knows nothing of runs or records.

import { h, icon, ICONS, saveBlob, setText, show } from "./dom.js";
import { clock, tick } from "./format.js";
import { color, curveColor, DASHES, drawBand, drawFlags, drawLimit, drawMarks } from "./paint.js";
import { condensed } from "./condense.js";
import { touchCursor } from "./touch.js";

/**
 * @typedef {object} Curve
 * @property {string} key
 * @property {string} label
 * @property {any[]} values numbers, null for not finite, undefined for not measured
 * @property {any[]} [raw] drawn faint below a smoothed curve
 * @property {any[]} [lo]
 * @property {any[]} [hi]
 * @property {number} color
 * @property {string} scale curves with one name share an axis
 * @property {(v: number | null | undefined) => string} text
 */
/**
 * @typedef {object} Picture
 * @property {number[]} x
 * @property {string} mode time, epoch or step
 * @property {Curve[]} curves
 * @property {boolean} [log]
 * @property {[number, number] | null} [zoom]
 * @property {number[]} [marks] where epochs begin
 * @property {number[]} [restarts]
 * @property {{x: number, kind: string, low: boolean}[]} [flags]
 * @property {{value: number, label: string} | null} [limit]
 * @property {[number | null, number | null]} [range]
 * @property {(v: number, step: number) => string} [axisText]
 * @property {number[]} [steps] distances that axis numbers may have
 */

const TABLE_ROWS = 200;
const WHOLE = [1, 2, 5].flatMap((n) => [0, 1, 2, 3, 4, 5, 6, 7, 8].map((e) => n * 10 ** e)).sort((a, b) => a - b);
const SECONDS = [0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];
let nextId = 0;

/** @param {string} mode @param {number} x */
export function xText(mode, x) {
  if (mode === "time") return clock(x);
  return mode === "epoch" ? `epoch ${Number.isInteger(x) ? x : x.toFixed(2)}` : `step ${Math.round(x)}`;
}

export class Chart {
  /** @param {{title: string, say: (text: string) => void, zoom?: (range: [number, number] | null) => void, readout?: (index: number | null) => void, small?: boolean, points?: number}} options */
  constructor(options) {
    this.options = options;
    this.id = `chart-${(nextId += 1)}`;
    this.plot = h("div", { class: "plot", tabindex: "0", role: "img", "aria-label": options.title, "aria-describedby": "chart-help", onkeydown: (/** @type {KeyboardEvent} */ e) => this.key(e) });
    this.note = h("p", { class: "axis-note", hidden: true });
    this.empty = h("p", { class: "empty", hidden: true }, "No values yet");
    this.tableBox = h("div", { class: "scroll chart-table", hidden: true, tabindex: "0" });
    this.el = h("div", { class: options.small ? "chart small" : "chart" }, this.plot, this.empty, this.note, this.tableBox);
    this.tableButton = h("button", { class: "icon-button", type: "button", "aria-pressed": "false", title: "Show as table", "aria-label": `Show ${options.title} as table`, onclick: () => this.toggleTable() }, icon(ICONS.table));
    this.imageButton = h("button", { class: "icon-button", type: "button", title: "Save as PNG", "aria-label": `Save ${options.title} as PNG`, onclick: () => this.savePng() }, icon(ICONS.image));
    this.tools = h("span", { class: "tools" }, this.tableButton, this.imageButton);
    /** @type {any} */ this.u = null;
    /** @type {Picture | null} as given */ this.full = null;
    /** @type {Picture | null} as drawn, where it has more points than pixels */ this.picture = null;
    this.shape = "";
    this.visible = true;
    /** @type {number | null} */ this.cursorIndex = null;
    new ResizeObserver(() => this.resize()).observe(this.plot);
    // a little ahead of the view, so that no empty frame scrolls in
    new IntersectionObserver((seen) => this.seen(seen[seen.length - 1].isIntersecting), { rootMargin: "400px" }).observe(this.el);
  }

  /** @param {boolean} isSeen */
  seen(isSeen) {
    this.visible = isSeen;
    if (isSeen && this.stale) this.draw();
  }

  /** @param {Picture} picture */
  set(picture) {
    this.full = picture;
    this.picture = condensed(picture, this.options.points ?? (this.options.small ? 160 : 1600));
    this.stale = true;
    show(this.empty, picture.x.length === 0 || picture.curves.length === 0);
    if (this.visible && !document.hidden) this.draw();
  }

  draw() {
    const p = this.picture;
    if (!p) return;
    this.stale = false;
    const filled = p.x.length > 0 && p.curves.length > 0;
    if (!filled) {
      this.drop();
      return;
    }
    const scales = [...new Set(p.curves.map((c) => c.scale))];
    show(this.note, scales.length > 1);
    if (scales.length > 1) setText(this.note, "Each unit on its own range; choose one name for its true axis");
    const shape = JSON.stringify([p.mode, p.log, p.limit?.label, p.range, p.curves.map((c) => [c.key, c.color, c.scale, Boolean(c.raw)]), document.documentElement.dataset.theme]);
    if (shape !== this.shape) this.build(scales);
    this.shape = shape;
    this.u.setData(this.data(), true);
    if (!this.tableBox.hidden) this.fillTable();
  }

  /** Values that a true log axis cannot show are left out of it and marked instead. @param {any[]} values */
  plottable(values) {
    return this.picture?.log ? values.map((v) => (typeof v === "number" && v <= 0 ? null : v)) : values;
  }

  data() {
    const p = /** @type {Picture} */ (this.picture);
    const rows = p.curves.flatMap((c) => [...(c.raw ? [this.plottable(c.raw)] : []), this.plottable(c.values)]);
    return [p.x, ...rows];
  }

  drop() {
    this.u?.destroy();
    this.u = null;
    this.shape = "";
  }

  /** @param {string[]} scales */
  build(scales) {
    this.drop();
    const p = /** @type {Picture} */ (this.picture);
    const Plot = /** @type {any} */ (globalThis).uPlot;
    const series = p.curves.flatMap((c) => {
      const base = { scale: c.scale, stroke: curveColor(c.color), spanGaps: false, points: { show: (/** @type {any} */ u, /** @type {number} */ i) => sparse(u, i), size: 5, fill: curveColor(c.color) } };
      const line = { ...base, label: c.label, width: this.options.small ? 1.6 : 2, dash: p.curves.length > 1 ? DASHES[c.color % DASHES.length] : [] };
      return c.raw ? [{ ...base, label: `${c.label} raw`, width: 1, alpha: 0.28, points: { show: false } }, line] : [line];
    });
    const options = {
      width: Math.max(this.plot.clientWidth, 80),
      height: Math.max(this.plot.clientHeight, 60),
      legend: { show: false },
      cursor: {
        sync: { key: "level", scales: ["x", null] },
        drag: { x: Boolean(this.options.zoom), y: false, setScale: false, uni: 10 },
        points: { size: 7 },
        focus: { prox: -1 },
      },
      series: [{}, ...series],
      scales: this.scales(scales),
      axes: this.axes(scales),
      hooks: { setSelect: [(/** @type {any} */ u) => this.selected(u)], setCursor: [(/** @type {any} */ u) => this.moved(u)], drawClear: [(/** @type {any} */ u) => this.under(u)], draw: [(/** @type {any} */ u) => this.over(u)] },
      padding: this.options.small ? [6, 6, 0, 0] : [10, 12, 0, 0],
    };
    this.u = new Plot(options, this.data(), this.plot);
    touchCursor(this.u, (range) => this.options.zoom?.(range));
    this.u.over.addEventListener("dblclick", () => this.options.zoom?.(null));
  }

  /** @param {string[]} names */
  scales(names) {
    /** @type {Record<string, any>} */
    const out = { x: { time: false, range: (/** @type {any} */ _u, /** @type {number} */ lo, /** @type {number} */ hi) => this.picture?.zoom ?? (lo === hi ? [lo - 0.5, hi + 0.5] : [lo, hi]) } };
    for (const name of names) {
      out[name] = this.picture?.log ? { distr: 3 } : { range: (/** @type {any} */ _u, /** @type {any} */ lo, /** @type {any} */ hi) => this.yRange(lo, hi, name) };
    }
    return out;
  }

  /** Room for the curves, for the bands around them and for the limit. @param {number | null} lo @param {number | null} hi @param {string} scale */
  yRange(lo, hi, scale) {
    const p = /** @type {Picture} */ (this.picture);
    const [fixedLo, fixedHi] = p.range ?? [null, null];
    if (lo === null || hi === null) return [fixedLo ?? 0, fixedHi ?? 1];
    let [bottom, top] = [lo, p.limit ? Math.max(hi, p.limit.value) : hi];
    const { min, max } = this.u?.scales.x ?? {};
    for (const c of p.curves) {
      if (c.scale !== scale || !c.lo || !c.hi) continue;
      for (let i = 0; i < p.x.length; i += 1) {
        if (p.x[i] < min || p.x[i] > max) continue;
        if (c.lo[i] < bottom) bottom = c.lo[i];
        if (c.hi[i] > top) top = c.hi[i];
      }
    }
    const span = top - bottom;
    const pad = span > Math.abs(top) * 1e-9 ? span * 0.06 : Math.abs(top) * 0.05 || 0.5;
    return [fixedLo ?? (bottom >= 0 && bottom - pad < 0 ? 0 : bottom - pad), fixedHi !== null ? Math.max(fixedHi, top) : top + pad];
  }

  /** @param {string[]} scales */
  axes(scales) {
    const p = /** @type {Picture} */ (this.picture);
    const font = `11px ${getComputedStyle(document.body).fontFamily}`;
    const look = { stroke: color("muted"), font, grid: { stroke: color("grid"), width: 1 }, ticks: { show: false } };
    const text = p.axisText ?? tick;
    const single = scales.length === 1;
    return [
      { ...look, grid: { show: false }, size: 26, space: 64, incrs: p.mode === "time" ? SECONDS : WHOLE, values: (/** @type {any} */ _u, /** @type {number[]} */ list) => list.map((v) => (p.mode === "time" ? clock(v) : p.mode === "step" && v >= 1e4 ? `${v / 1000}K` : String(v))) },
      { ...look, scale: scales[0], size: 54, gap: 6, space: this.options.small ? 26 : 40, ...(p.steps ? { incrs: p.steps } : {}), values: (/** @type {any} */ _u, /** @type {any[]} */ list, /** @type {number} */ _axis, /** @type {number} */ _space, /** @type {number} */ step) => list.map((v) => (v === null || !single ? "" : text(v, p.log ? 0 : step))) },
    ];
  }

  /** @param {any} u */
  under(u) {
    const p = /** @type {Picture} */ (this.picture);
    drawMarks(u, p.marks ?? [], color("grid"), []);
    drawMarks(u, p.restarts ?? [], color("warn"), [4, 3]);
    for (const c of p.curves) if (c.lo && c.hi && !p.log) drawBand(u, c.scale, p.x, c.lo, c.hi, curveColor(c.color));
  }

  /** @param {any} u */
  over(u) {
    const p = /** @type {Picture} */ (this.picture);
    if (p.limit) drawLimit(u, p.curves[0].scale, p.limit.value, p.limit.label);
    const low = p.log ? p.curves.flatMap((c) => c.values.flatMap((v, i) => (typeof v === "number" && v <= 0 ? [{ x: p.x[i], kind: "≤ 0", low: true }] : []))) : [];
    drawFlags(u, [...(p.flags ?? []), ...low]);
  }

  /** @param {any} u */
  selected(u) {
    if (u.select.width < 8) return;
    const range = /** @type {[number, number]} */ ([u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")]);
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.options.zoom?.(range);
  }

  /** @param {any} u */
  moved(u) {
    const index = u.cursor.idx ?? null;
    if (index === this.cursorIndex) return;
    this.cursorIndex = index;
    this.options.readout?.(index);
  }

  resize() {
    const { clientWidth, clientHeight } = this.plot;
    if (this.u && clientWidth > 0 && (this.u.width !== clientWidth || this.u.height !== clientHeight)) this.u.setSize({ width: clientWidth, height: clientHeight });
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const p = this.picture;
    if (!this.u || !p || p.x.length === 0) return;
    const last = p.x.length - 1;
    const at = this.cursorIndex ?? last;
    const by = event.shiftKey ? 10 : 1;
    /** @type {Record<string, number>} */
    const moves = { ArrowLeft: at - by, ArrowRight: at + by, Home: 0, End: last };
    if (event.key in moves) {
      event.preventDefault();
      const index = Math.min(Math.max(moves[event.key], 0), last);
      this.u.setCursor({ left: this.u.valToPos(p.x[index], "x"), top: this.u.over.clientHeight / 2 });
      this.options.say(this.spoken(index));
    } else if (event.key === "Escape") {
      this.u.setCursor({ left: -10, top: -10 });
      this.options.zoom?.(null);
    }
  }

  /** @param {number} index */
  spoken(index) {
    const p = /** @type {Picture} */ (this.picture);
    return `${xText(p.mode, p.x[index])}: ` + p.curves.map((c) => `${c.label} ${c.text(c.values[index])}`).join(", ");
  }

  toggleTable() {
    const open = this.tableBox.hidden;
    this.tableBox.hidden = !open;
    this.plot.classList.toggle("veiled", open);
    this.tableButton.setAttribute("aria-pressed", String(open));
    if (open) this.fillTable();
  }

  fillTable() {
    const p = this.full;
    if (!p) return;
    const from = Math.max(0, p.x.length - TABLE_ROWS);
    const rows = [];
    for (let i = p.x.length - 1; i >= from; i -= 1) rows.push(h("tr", {}, h("th", { scope: "row" }, xText(p.mode, p.x[i])), p.curves.map((c) => h("td", {}, c.text(c.values[i])))));
    this.tableBox.setAttribute("aria-label", `${this.options.title}, newest ${rows.length} of ${p.x.length} points`);
    this.tableBox.setAttribute("role", "region");
    this.tableBox.replaceChildren(h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, p.mode), p.curves.map((c) => h("th", { scope: "col" }, c.label)))), h("tbody", {}, rows)));
  }

  savePng() {
    if (!this.u) return;
    const source = this.u.ctx.canvas;
    const canvas = h("canvas", { width: source.width, height: source.height });
    const ctx = canvas.getContext("2d");
    ctx.fillStyle = color("panel");
    ctx.fillRect(0, 0, canvas.width, canvas.height);
    ctx.drawImage(source, 0, 0);
    canvas.toBlob((/** @type {Blob | null} */ blob) => blob && saveBlob(blob, `${this.options.title.replace(/[^\w.-]+/g, "-")}.png`));
  }
}

/** Points are drawn where a line would be too short to see. @param {any} u @param {number} i */
function sparse(u, i) {
  const values = u.data[i];
  let count = 0;
  for (const v of values) if (typeof v === "number" && (count += 1) > 24) return false;
  return true;
}

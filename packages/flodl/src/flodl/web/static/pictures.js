// @ts-check
// From a node's columns to what a chart draws: scaled, smoothed, labelled.

import { factor, family, legend, valueText } from "./keys.js";
import { smoothed } from "./track.js";

/** @typedef {import("./app.js").Page} Page */
/** @typedef {import("./track.js").Track} Track */

const BINARY = Array.from({ length: 50 }, (_, i) => 2 ** i);

/** @type {WeakMap<Track, {tag: string, x: number[]}>} */
const positions = new WeakMap();

/** @param {Track} track @param {Page} page @returns {number[]} */
export function xOf(track, page) {
  const tag = `${track.version} ${page.view.mode} ${page.run.started}`;
  const held = positions.get(track);
  if (held?.tag === tag) return held.x;
  if (track.base) return within(track.base, track, page);
  const perEpoch = track.windowKeys.size > 0 ? (page.run.meta?.run?.reports_per_epoch ?? 0) : 1;
  const x = track.x(page.view.mode, page.run.started || track.t[0], perEpoch);
  positions.set(track, { tag, x });
  return x;
}

/** Positions of a finer part, read off the whole: a cut epoch would be measured wrongly. @param {Track} base @param {Track} part @param {Page} page */
function within(base, part, page) {
  const x = xOf(base, page);
  return part.t.map((t) => {
    const i = indexAt(base.t, t);
    const [t0, t1] = [base.t[i - 1] ?? t, base.t[i] ?? t];
    return i === 0 || t1 === t0 ? (x[i] ?? 0) : x[i - 1] + (x[i] - x[i - 1]) * Math.min((t - t0) / (t1 - t0), 1);
  });
}

/** @param {any[]} values @param {number} by */
function scaled(values, by) {
  return by === 1 ? values : values.map((v) => (typeof v === "number" ? v * by : v));
}

/**
 * @param {Track} track @param {string[]} keys @param {Page} page
 * @param {{interior: boolean, colors?: Map<string, number>, log?: boolean, smooth?: number}} options
 * @returns {import("./chart.js").Picture}
 */
export function metricPicture(track, keys, page, options) {
  const meta = page.run.meta;
  const x = xOf(track, page);
  const curves = keys.map((key, i) => {
    const column = track.column(key);
    const by = factor(key, meta);
    const raw = scaled(column.mean, by);
    const smooth = options.smooth ?? 0;
    return {
      key,
      label: legend(key, options.interior, meta),
      values: smoothed(raw, smooth),
      raw: smooth ? raw : undefined,
      lo: smooth ? undefined : scaled(column.lo, by),
      hi: smooth ? undefined : scaled(column.hi, by),
      color: options.colors?.get(key) ?? i,
      scale: family(key, meta),
      text: (/** @type {any} */ v) => valueText(key, typeof v === "number" ? v / by : v, meta),
    };
  });
  const shown = new Set(keys);
  return {
    x,
    mode: page.view.mode,
    curves,
    log: options.log,
    zoom: page.view.zoom,
    marks: track.epochStarts().map((i) => x[i - 1]),
    restarts: track.restarts.map((t) => x[indexAt(track.t, t)]),
    flags: track.flags.filter((f) => shown.has(f.key)).map((f) => ({ x: x[indexAt(track.t, f.t)], kind: keys.length > 1 ? `${f.key} ${f.kind}` : f.kind, low: false })),
  };
}

/** The first index at or after a time. @param {number[]} times @param {number} t */
export function indexAt(times, t) {
  let [lo, hi] = [0, times.length - 1];
  while (lo < hi) {
    const middle = (lo + hi) >> 1;
    if (times[middle] < t) lo = middle + 1;
    else hi = middle;
  }
  return Math.max(lo, 0);
}

/**
 * Percent curves of what a node has measured of its machine; VRAM is judged against its limit.
 * @param {Track} track @param {Page} page @param {string} solo a name of RESOURCES, or empty
 * @returns {import("./chart.js").Picture}
 */
export function resourcePicture(track, page, solo) {
  const x = xOf(track, page);
  const base = { x, mode: page.view.mode, zoom: page.view.zoom, marks: track.epochStarts().map((i) => x[i - 1]) };
  const measured = RESOURCES.filter((r) => track.columns.has(r.needs));
  if (solo === "VRAM") {
    const total = track.latest("res.vram_total");
    const values = track.column("res.vram_alloc").mean;
    const text = (/** @type {any} */ v) => valueText("res.vram_alloc", v, page.run.meta);
    return { ...base, curves: [{ key: "VRAM", label: "VRAM", values, color: 2, scale: "bytes", text }], limit: total ? { value: total, label: `limit ${text(total)}` } : null, range: [0, null], axisText: (v) => text(v).replace(".0 ", " "), steps: BINARY };
  }
  const curves = measured.filter((r) => !solo || r.name === solo).map((r) => ({ key: r.name, label: r.name, values: r.values(track), color: r.color, scale: "%", text: percent }));
  const limited = curves.some((c) => c.key === "VRAM");
  return { ...base, curves, range: [0, limited ? 120 : 100], limit: limited ? { value: 100, label: "VRAM limit" } : null, axisText: (v) => (v > 100 ? "" : `${v}%`) };
}

/** @param {any} v */
function percent(v) {
  return typeof v === "number" ? `${v.toFixed(1)}%` : "—";
}

/** @param {Track} track @param {string} used @param {string} total */
function share(track, used, total) {
  const [a, b] = [track.column(used).mean, track.column(total).mean];
  let limit = 0;
  return a.map((v, i) => {
    limit = b[i] ?? limit;
    return typeof v === "number" && limit > 0 ? (100 * v) / limit : undefined;
  });
}

/** @type {{name: string, needs: string, color: number, values: (t: Track) => any[]}[]} */
export const RESOURCES = [
  { name: "GPU", needs: "res.gpu_util", color: 0, values: (t) => t.column("res.gpu_util").mean },
  { name: "GPU peak", needs: "res.gpu_util_max", color: 3, values: (t) => t.column("res.gpu_util_max").mean },
  { name: "VRAM", needs: "res.vram_alloc", color: 2, values: (t) => share(t, "res.vram_alloc", "res.vram_total") },
  { name: "CPU", needs: "res.cpu", color: 1, values: (t) => t.column("res.cpu").mean },
  { name: "RAM", needs: "res.ram_used", color: 4, values: (t) => share(t, "res.ram_used", "res.ram_total") },
];

// @ts-check
// What a metric key means to a reader: its legend, its unit, its family.

import { bytes, compact, metric, natural } from "./format.js";

/** Reductions that no run can change. @type {Record<string, string>} */
const FIXED = {
  loss: "mean",
  throughput: "sum",
  batch_share: "sum",
  data_starve: "max",
  compute_only_ms: "max",
};
const ENGINE = new Set(["throughput", "batch_share", "data_starve", "compute_only_ms", "anchor", "sync_ms", "cpu_avg_ms", "d_raw", "lambda_ema"]);

/**
 * `loss (mean)` where children are rolled up, the bare key where it was measured.
 * @param {string} key @param {boolean} interior @param {any} meta
 */
export function legend(key, interior, meta) {
  if (!interior) return key;
  const declared = meta?.reductions?.[key];
  const name = typeof declared === "string" ? declared : FIXED[key];
  return `${key} (${name ?? "mean"})`;
}

/** Throughput is recorded per millisecond and read per second. @param {string} key @param {any} meta */
export function factor(key, meta) {
  return meta?.units?.[key] === "samples/ms" || (key === "throughput" && !meta?.units?.[key]) ? 1000 : key === "batch_share" ? 100 : 1;
}

/** @param {string} key @param {any} meta */
export function unit(key, meta) {
  const declared = meta?.units?.[key];
  if (declared === "samples/ms" || (key === "throughput" && !declared)) return "samples/s";
  if (typeof declared === "string") return declared;
  if (key === "batch_share") return "%";
  if (key.startsWith("res.")) return /vram_(alloc|total)|ram_(used|total)/.test(key) ? "bytes" : key.endsWith("_w") ? "W" : key.endsWith("_c") ? "°C" : "%";
  return key.endsWith("_ms") || key === "data_starve" ? "ms" : "";
}

/**
 * A value with its unit, from the recorded number.
 * @param {string} key @param {number | null | undefined} value @param {any} meta
 */
export function valueText(key, value, meta) {
  if (value === undefined) return "—";
  if (value === null) return "not finite";
  const name = unit(key, meta);
  if (name === "bytes") return bytes(value);
  const scaled = value * factor(key, meta);
  if (name === "%") return `${scaled.toFixed(1)}%`;
  if (name === "samples/s" || name === "ms" || name === "W" || name === "°C") return `${compact(scaled)} ${name}`;
  if (Number.isInteger(scaled) && Math.abs(scaled) < 1e6 && scaled !== 0) return String(scaled);
  return name ? `${metric(scaled)} ${name}` : metric(scaled);
}

/** Curves of one family share an axis. @param {string} key @param {any} meta */
export function family(key, meta) {
  const last = key.slice(key.lastIndexOf(".") + 1);
  if (/loss$/.test(last)) return "loss";
  if (/^(acc|accuracy|f1|precision|recall|auc)$/.test(last.replace(/^(val|eval|test|train)_/, ""))) return "score";
  return unit(key, meta) || key;
}

/** @param {string} key */
export function isEngine(key) {
  return ENGINE.has(key);
}

/** Loss first, then the user's own, then what the engine reports. @param {Iterable<string>} keys */
export function ordered(keys) {
  const rank = (/** @type {string} */ k) => (k === "loss" ? 0 : /loss$/.test(k) && !k.includes(".") ? 1 : k === "throughput" ? 2 : ENGINE.has(k) ? 4 : 3);
  return [...keys].sort((a, b) => rank(a) - rank(b) || natural(a, b));
}

/** Chart groups of a level: dotted keys by prefix, each other key alone. @param {string[]} keys */
export function groups(keys) {
  /** @type {Map<string, string[]>} */
  const out = new Map();
  for (const key of keys) {
    const name = key.includes(".") ? key.slice(0, key.indexOf(".")) : key;
    const held = out.get(name);
    if (held) held.push(key);
    else out.set(name, [key]);
  }
  return out;
}

// @ts-check
// One node's history as columns: exact at its end, halved at its start, so memory stays bounded.

const CAP = 4096;
/** Only this share is halved when the cap is hit: the newest points stay exact. */
const OLD_SHARE = 0.75;

/** @typedef {{mean: any[], lo: any[], hi: any[]}} Column */
/** @typedef {{t: number, epoch: number, step: number, key: string, kind: string}} Flag */

export class Track {
  constructor() {
    /** @type {number[]} */ this.t = [];
    /** @type {number[]} */ this.epoch = [];
    /** @type {number[]} */ this.step = [];
    /** @type {Map<string, Column>} */ this.columns = new Map();
    /** @type {Flag[]} not-finite measurements */ this.flags = [];
    /** @type {number[]} times at which a resumed or repeated epoch began */ this.restarts = [];
    /** Keys with values inside an epoch: their epoch means are not drawn between them. */
    this.windowKeys = new Set();
    /** @type {Track | null} the whole run, where this is a finer part of it */ this.base = null;
    this.seeded = 0;
    this.version = 0;
  }

  get length() {
    return this.t.length;
  }

  /** @param {string} key @returns {Column} */
  column(key) {
    let held = this.columns.get(key);
    if (!held) {
      const empty = () => new Array(this.t.length).fill(undefined);
      held = { mean: empty(), lo: empty(), hi: empty() };
      this.columns.set(key, held);
    }
    return held;
  }

  /** Takes the whole run from an answer of `/series`. @param {any} series */
  seed(series) {
    const kept = this.rowsAfter(series.t.at(-1) ?? -Infinity);
    this.t = [...series.t];
    this.epoch = carried(series.epoch, this.t.length);
    this.step = carried(series.step, this.t.length);
    this.columns.clear();
    const absent = (/** @type {any[]} */ list) => list.map((v) => v ?? undefined);
    for (const [key, tiers] of Object.entries(/** @type {Record<string, any>} */ (series.keys)))
      this.columns.set(key, { mean: absent(tiers.mean), lo: absent(tiers.min), hi: absent(tiers.max) });
    this.seeded = this.t.length;
    this.version += 1;
    for (const row of kept) this.push(row.t, row.epoch, row.step, row.values);
  }

  /** @param {number} t */
  rowsAfter(t) {
    const rows = [];
    for (let i = this.t.length - 1; i >= 0 && this.t[i] > t; i -= 1) {
      const values = [...this.columns].flatMap(([k, c]) => (c.mean[i] === undefined ? [] : [[k, c.mean[i]]]));
      rows.unshift({ t: this.t[i], epoch: this.epoch[i], step: this.step[i], values });
    }
    return rows;
  }

  /** Adds one node record; records of one node come in order. @param {any} rec */
  add(rec) {
    if (!Number.isFinite(rec.step) && this.length === this.seeded && rec.ts <= (this.t.at(-1) ?? -Infinity)) return;
    this.dropSeededFrom(rec.ts, rec.step);
    const windowed = !rec.epoch_complete;
    const values = [];
    for (const [key, value] of Object.entries(rec.metrics ?? {})) {
      if (windowed) this.windowKeys.add(key);
      else if (this.windowKeys.has(key)) continue;
      values.push([key, value]);
    }
    for (const [name, value] of Object.entries(rec.res ?? {})) if (typeof value === "number") values.push([`res.${name}`, value]);
    for (const [key, kinds] of Object.entries(/** @type {Record<string, any>} */ (rec.nonfinite ?? {})))
      this.flags.push({ t: rec.ts, epoch: rec.epoch, step: rec.step, key, kind: Object.keys(kinds).join(", ") });
    if (this.flags.length > 500) this.flags.shift();
    if (rec.restart) this.restarts.push(rec.ts);
    if (values.length) this.push(rec.ts, rec.epoch ?? NaN, rec.step ?? NaN, values);
  }

  /** Exact rows replace the buckets that cover the same time. @param {number} ts @param {number} step */
  dropSeededFrom(ts, step) {
    if (this.seeded > 0 && this.t.length === this.seeded) {
      let keep = this.seeded;
      while (keep > 0 && (this.t[keep - 1] > ts || (this.t[keep - 1] === ts && this.step[keep - 1] >= step))) keep -= 1;
      for (const list of this.everyList()) list.length = keep;
    }
    this.seeded = 0;
  }

  *everyList() {
    yield this.t;
    yield this.epoch;
    yield this.step;
    for (const c of this.columns.values()) yield* [c.mean, c.lo, c.hi];
  }

  /** @param {number} t @param {number} epoch @param {number} step @param {any[]} values */
  push(t, epoch, step, values) {
    for (const [key] of values) this.column(key);
    this.t.push(Math.max(t, this.t.at(-1) ?? -Infinity));
    // A record without a position, such as a sync time, belongs where the run then was.
    this.epoch.push(Number.isFinite(epoch) ? epoch : (this.epoch.at(-1) ?? 0));
    this.step.push(Number.isFinite(step) ? step : (this.step.at(-1) ?? 0));
    for (const c of this.columns.values()) {
      c.mean.push(undefined);
      c.lo.push(undefined);
      c.hi.push(undefined);
    }
    const last = this.t.length - 1;
    for (const [key, value] of values) {
      const c = this.column(key);
      c.mean[last] = c.lo[last] = c.hi[last] = value;
    }
    this.version += 1;
    if (this.t.length > CAP) this.halve(Math.floor((CAP * OLD_SHARE) / 2) * 2);
  }

  /** Merges neighbors among the first `count` points; the extremes stay as a band. @param {number} count */
  halve(count) {
    for (const list of [this.t, this.epoch, this.step]) list.splice(0, count, ...odd(list, count));
    for (const c of this.columns.values()) {
      const mean = pairs(c.mean, count, (a, b) => (a + b) / 2);
      const lo = pairs(c.lo, count, Math.min);
      const hi = pairs(c.hi, count, Math.max);
      c.mean.splice(0, count, ...mean);
      c.lo.splice(0, count, ...lo);
      c.hi.splice(0, count, ...hi);
    }
    this.seeded = 0;
  }

  /**
   * The x values of a mode, never falling: seconds since `started`, epochs, or steps.
   * @param {string} mode @param {number} started @param {number} perEpoch windows expected in an epoch
   */
  x(mode, started, perEpoch) {
    if (mode === "time") return this.t.map((t) => (t - started) / 1000);
    if (mode === "step") return rising(this.step);
    return rising(epochPositions(this.epoch, perEpoch));
  }

  /** Indices at which a new epoch begins. */
  epochStarts() {
    const out = [];
    for (let i = 1; i < this.epoch.length; i += 1) if (this.epoch[i] !== this.epoch[i - 1]) out.push(i);
    return out;
  }

  /** The last measured value: a number, null for not finite, undefined for never. @param {string} key */
  latest(key) {
    const mean = this.columns.get(key)?.mean;
    for (let i = (mean?.length ?? 0) - 1; i >= 0; i -= 1) if (mean?.[i] !== undefined) return mean?.[i];
    return undefined;
  }
}

/** Positions without holes. @param {any[] | undefined} list @param {number} count @returns {number[]} */
function carried(list, count) {
  let last = 0;
  return Array.from({ length: count }, (_, i) => (last = list?.[i] ?? last));
}

/** @param {any[]} list @param {number} count */
function odd(list, count) {
  const out = [];
  for (let i = 1; i < count; i += 2) out.push(list[i]);
  return out;
}

/** @param {any[]} list @param {number} count @param {(a: number, b: number) => number} join */
function pairs(list, count, join) {
  const out = [];
  for (let i = 1; i < count; i += 2) {
    const [a, b] = [list[i - 1], list[i]];
    out.push(typeof a === "number" && typeof b === "number" ? join(a, b) : b ?? a);
  }
  return out;
}

/** The j-th of m points of epoch e lies at e + j/m; the open epoch is measured by `perEpoch`.
 * @param {number[]} epochs @param {number} perEpoch */
function epochPositions(epochs, perEpoch) {
  const out = new Array(epochs.length);
  for (let from = 0; from < epochs.length; ) {
    let to = from + 1;
    while (to < epochs.length && epochs[to] === epochs[from]) to += 1;
    const count = to === epochs.length ? Math.max(to - from, perEpoch || 1) : to - from;
    for (let i = from; i < to; i += 1) out[i] = epochs[from] + (i - from + 1) / count;
    from = to;
  }
  return out;
}

/** @param {number[]} list */
function rising(list) {
  let top = -Infinity;
  return list.map((v) => (top = Number.isFinite(v) ? Math.max(top, v) : Number.isFinite(top) ? top : 0));
}

/** Bias-corrected moving average: a constant stays that constant. @param {any[]} values @param {number} weight */
export function smoothed(values, weight) {
  if (!weight) return values;
  let average = 0;
  let norm = 0;
  return values.map((v) => {
    if (typeof v !== "number") return v;
    norm = weight * norm + (1 - weight);
    average += ((1 - weight) / norm) * (v - average);
    return average;
  });
}

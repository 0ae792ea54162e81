// @ts-check
// A timeline's data as typed columns with a min/max pyramid, so that any zoom draws in one pass.

const FANOUT = 4;
const IDLE_PERCENT = 5;
const IDLE_MS = 200;

/** Minima and maxima of ever larger blocks. */
export class Pyramid {
  /** @param {Float32Array} values NaN where nothing was measured */
  constructor(values) {
    this.levels = [{ lo: values, hi: values }];
    for (let top = this.levels[0]; top.lo.length > FANOUT; top = this.levels[this.levels.length - 1]) this.levels.push(folded(top));
  }

  /** Extremes over [from, to): exact to one block. @param {number} from @param {number} to @returns {[number, number]} */
  range(from, to) {
    let level = 0;
    let size = 1;
    while (level + 1 < this.levels.length && size * FANOUT * 2 <= to - from) {
      level += 1;
      size *= FANOUT;
    }
    const { lo, hi } = this.levels[level];
    let [low, high] = [Infinity, -Infinity];
    for (let i = Math.floor(from / size); i * size < to && i < lo.length; i += 1) {
      if (lo[i] < low) low = lo[i];
      if (hi[i] > high) high = hi[i];
    }
    return [low, high];
  }
}

/** @param {{lo: Float32Array, hi: Float32Array}} below */
function folded(below) {
  const count = Math.ceil(below.lo.length / FANOUT);
  const [lo, hi] = [new Float32Array(count), new Float32Array(count)];
  for (let i = 0; i < count; i += 1) {
    let [low, high] = [NaN, NaN];
    for (let j = i * FANOUT; j < Math.min((i + 1) * FANOUT, below.lo.length); j += 1) {
      if (!(below.lo[j] >= low)) low = Number.isNaN(below.lo[j]) ? low : below.lo[j];
      if (!(below.hi[j] <= high)) high = Number.isNaN(below.hi[j]) ? high : below.hi[j];
    }
    lo[i] = low;
    hi[i] = high;
  }
  return { lo, hi };
}

/** @typedef {{name: string, t: Float64Array, heat: Pyramid | null, heatValues: Float32Array | null, line: Pyramid | null, lineValues: Float32Array | null, unit: string, gaps: [number, number][]}} Lane */

/** @param {ArrayLike<any>} list */
function floats(list) {
  const out = new Float32Array(list.length);
  for (let i = 0; i < list.length; i += 1) out[i] = list[i] ?? NaN;
  return out;
}

/** Samples in rows become the column form that large files carry already. @param {any} data */
function columnsOf(data) {
  if (data.columns) return data.columns;
  const { samples = [] } = data;
  const devices = new Set();
  for (const s of samples) for (const g of s.gpus ?? []) devices.add(g.d);
  const pick = (/** @type {any} */ s, /** @type {any} */ d) => s.gpus?.find((/** @type {any} */ g) => g.d === d) ?? {};
  return {
    t: samples.map((/** @type {any} */ s) => s.t),
    cpu: samples.map((/** @type {any} */ s) => s.cpu),
    ram_used: samples.map((/** @type {any} */ s) => s.ram?.[0]),
    ram_total: samples.map((/** @type {any} */ s) => s.ram?.[1]),
    gpus: [...devices].sort((a, b) => a - b).map((d) => ({ d, u: samples.map((/** @type {any} */ s) => pick(s, d).u), va: samples.map((/** @type {any} */ s) => pick(s, d).va), vt: samples.map((/** @type {any} */ s) => pick(s, d).vt) })),
  };
}

/** @param {any} data @returns {any[]} one column set for each rank */
function rankColumns(data) {
  if (data.rank_columns) return data.rank_columns;
  /** @type {Map<string, any>} */
  const ranks = new Map();
  for (const s of data.rank_samples ?? []) {
    const id = `${s.host} rank${s.rank}`;
    let held = ranks.get(id);
    if (!held) ranks.set(id, (held = { name: id, host: s.host, t: [], cpu: [], u: [], va: [], vt: [] }));
    const gpu = s.gpus?.[0] ?? {};
    held.t.push(s.t);
    held.cpu.push(s.cpu);
    held.u.push(gpu.u);
    held.va.push(gpu.va);
    held.vt.push(gpu.vt);
  }
  return [...ranks.values()];
}

export class Recording {
  /** @param {any} data the timeline's JSON, in rows or columns */
  constructor(data) {
    this.host = data.host ?? "";
    const c = columnsOf(data);
    this.t = Float64Array.from(c.t);
    /** @type {any[]} in order of time */ this.events = [...(data.events ?? [])].sort((a, b) => a.t - b.t);
    /** @type {Lane[]} */ this.lanes = [];
    for (const g of c.gpus ?? []) this.lanes.push(lane(`GPU ${g.d}`, this.t, g.u, g.va, g.vt, "VRAM"));
    for (const r of rankColumns(data)) {
      const t = Float64Array.from(r.t);
      if (measured(r.u) || measured(r.va)) this.lanes.push(lane(r.name ?? `${r.host} rank${r.rank}`, t, r.u, r.va, r.vt, "VRAM"));
      // Of this host there are ten samples a second of its own.
      if (measured(r.cpu) && (r.host !== this.host || !measured(c.cpu))) this.lanes.push(lane(`${r.host} CPU`, t, r.cpu, null, null, ""));
    }
    if (measured(c.cpu)) this.lanes.push(lane("CPU", this.t, c.cpu, null, null, ""));
    if (measured(c.ram_used)) this.lanes.push(lane("RAM", this.t, null, c.ram_used, c.ram_total, "RAM"));
    const ends = [this.t.at(-1) ?? 0, this.events.at(-1)?.t ?? 0, ...this.lanes.map((l) => l.t.at(-1) ?? 0)];
    this.end = Math.max(...ends, 1);
  }

  /** Number of events of each kind. */
  kinds() {
    /** @type {Map<string, number>} */
    const out = new Map();
    for (const e of this.events) out.set(e.k, (out.get(e.k) ?? 0) + 1);
    return out;
  }

  /** @returns {[string, string][]} names and values of the summary table */
  summary() {
    const mean = (/** @type {string} */ kind) => {
      const list = this.events.filter((e) => e.k === kind && typeof e.ms === "number");
      return list.length ? `${list.length}, mean ${(list.reduce((s, e) => s + e.ms, 0) / list.length).toFixed(1)} ms` : "none";
    };
    const count = (/** @type {string} */ kind) => String(this.events.filter((e) => e.k === kind).length);
    /** @type {[string, string][]} */
    const out = [["length", `${(this.end / 1000).toFixed(1)} s`], ["samples", this.t.length.toLocaleString("en")], ["events", this.events.length.toLocaleString("en")], ["syncs", mean("sync_end")], ["CPU averages", mean("cpu_avg_end")], ["anchor changes", count("anchor")], ["throttles", count("throttle")]];
    for (const l of this.lanes) if (l.heatValues && !isCpu(l.name)) out.push([`${l.name} idle`, `${(100 * idleShare(l.heatValues)).toFixed(1)}%, ${l.gaps.length} gaps`]);
    return out;
  }
}

/** @param {string} name */
function isCpu(name) {
  return /(^| )CPU$/.test(name);
}

/** @param {any[] | undefined} list */
function measured(list) {
  return Boolean(list?.some((v) => v !== null && v !== undefined));
}

/** @param {string} name @param {Float64Array} t @param {any} util @param {any} used @param {any} total @param {string} unit @returns {Lane} */
function lane(name, t, util, used, total, unit) {
  const heatValues = util && measured(util) ? floats(util) : null;
  let lineValues = null;
  if (used && total && measured(used)) {
    lineValues = new Float32Array(used.length);
    for (let i = 0; i < used.length; i += 1) lineValues[i] = typeof used[i] === "number" && total[i] > 0 ? (100 * used[i]) / total[i] : NaN;
  }
  const gaps = heatValues && !isCpu(name) ? idleGaps(t, heatValues) : [];
  return { name, t, heat: heatValues && new Pyramid(heatValues), heatValues, line: lineValues && new Pyramid(lineValues), lineValues, unit, gaps };
}

/** Runs of idle samples, each from its first sample to the first busy one. @param {Float64Array} t @param {Float32Array} util @returns {[number, number][]} */
function idleGaps(t, util) {
  /** @type {[number, number][]} */
  const out = [];
  let from = -1;
  for (let i = 0; i <= util.length; i += 1) {
    const idle = i < util.length && util[i] < IDLE_PERCENT;
    if (idle && from < 0) from = i;
    if (!idle && from >= 0) {
      const end = i < util.length ? t[i] : t[i - 1];
      if (end - t[from] >= IDLE_MS) out.push([t[from], end]);
      from = -1;
    }
  }
  return out;
}

/** @param {Float32Array} util */
function idleShare(util) {
  let [idle, held] = [0, 0];
  for (const u of util) {
    if (Number.isNaN(u)) continue;
    held += 1;
    if (u < IDLE_PERCENT) idle += 1;
  }
  return held ? idle / held : 0;
}

/** The first index whose time is at or after `at`. @param {Float64Array} t @param {number} at */
export function lowerBound(t, at) {
  let [lo, hi] = [0, t.length];
  while (lo < hi) {
    const middle = (lo + hi) >> 1;
    if (t[middle] < at) lo = middle + 1;
    else hi = middle;
  }
  return lo;
}

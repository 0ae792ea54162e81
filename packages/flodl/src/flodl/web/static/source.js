// @ts-check
// Where answers come from: the server, or the data inside a saved page. Both speak the same words.

import { isWithin, nameOf, parentOf } from "./route.js";
import { natural } from "./format.js";

export class RequestError extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export class HttpSource {
  live = true;

  /** @param {string} path @param {Record<string, any>} [query] */
  async fetch(path, query = {}) {
    const fields = new URLSearchParams();
    for (const [k, v] of Object.entries(query)) if (v !== undefined && v !== null && v !== "") fields.set(k, String(v));
    const text = fields.toString();
    const answer = await fetch(text ? `${path}?${text}` : path, { credentials: "same-origin" });
    if (!answer.ok) throw new RequestError(answer.status, `${path} answered ${answer.status}`);
    return answer;
  }

  /** @param {string} path @param {Record<string, any>} [query] */
  async json(path, query) {
    return (await this.fetch(path, query)).json();
  }

  /** @param {string} path @param {any} [query] */
  node(path, query) {
    return this.json("/node", { path, ...query });
  }

  /** @param {string} path @param {any} [query] */
  series(path, query) {
    return this.json("/series", { path, points: 1200, ...query });
  }

  /** @param {string} path @param {any} query */
  history(path, query) {
    return this.json("/history", { path, ...query });
  }

  paths() {
    return this.json("/paths");
  }

  facts() {
    return this.json("/api/meta");
  }

  epochs() {
    return this.json("/api/history");
  }

  alerts() {
    return this.json("/api/alerts", { path: "root" });
  }

  /** The text of the model's picture, or null. */
  async graph() {
    return (await this.facts()).graph === false ? null : this.textOrNull("/graph.svg");
  }

  async heatmaps() {
    const list = await this.json("/api/heatmaps");
    return list.map((/** @type {any} */ m) => ({ model: m.model, svg: () => this.textOrNull(m.url) }));
  }

  /** @param {string} url */
  async textOrNull(url) {
    try {
      return await (await this.fetch(url)).text();
    } catch (error) {
      if (error instanceof RequestError && error.status === 404) return null;
      throw error;
    }
  }

  timelineHosts() {
    return this.json("/timeline/hosts");
  }

  /** @param {string} host */
  timeline(host) {
    return this.json("/timeline", { host });
  }

  health() {
    return this.json("/healthz");
  }

  snapshot() {
    return this.json("/snapshot");
  }
}

export class SavedSource {
  live = false;

  /** @param {any} data the archive payload */
  constructor(data) {
    this.data = data;
    /** @type {Map<string, string[]>} */
    this.childPaths = new Map();
    for (const path of Object.keys(data.nodes).sort(natural)) {
      const parent = parentOf(path);
      if (parent) this.childPaths.set(parent, [...(this.childPaths.get(parent) ?? []), path]);
    }
  }

  /** @param {string} path @param {{limit?: number, offset?: number, sort?: string, order?: string, filter?: string}} [query] */
  async node(path, query = {}) {
    const wanted = (query.filter ?? "").toLowerCase();
    const all = (this.childPaths.get(path) ?? []).map((p) => this.data.nodes[p].node).filter(Boolean);
    const kept = all.filter((rec) => nameOf(rec.path).toLowerCase().includes(wanted));
    sortRecords(kept, query.sort ?? "node", query.order ?? "asc");
    const from = query.offset ?? 0;
    return {
      path,
      known: path in this.data.nodes,
      node: this.data.nodes[path]?.node ?? null,
      children: kept.slice(from, from + (query.limit ?? kept.length)),
      total_children: kept.length,
      summary: summarize(kept),
    };
  }

  /** @param {string} path */
  async series(path) {
    return this.data.nodes[path]?.series ?? { path, t: [], keys: {}, stride_ms: 0 };
  }

  /** Own rows of a node and of its children, in order. @param {string} path */
  async history(path) {
    const paths = [path, ...(this.childPaths.get(path) ?? []).slice(0, 64)];
    return paths.flatMap((p) => this.data.nodes[p]?.rows ?? []).sort((a, b) => a.seq - b.seq);
  }

  async paths() {
    return Object.keys(this.data.nodes).sort(natural);
  }

  async facts() {
    return this.data.api_meta;
  }

  async epochs() {
    return this.data.epochs;
  }

  async alerts() {
    return this.data.alerts;
  }

  async graph() {
    return this.data.graph_svg ?? null;
  }

  async heatmaps() {
    return (this.data.heatmaps ?? []).map((/** @type {any} */ m) => ({ model: m.model, svg: async () => m.svg }));
  }

  async timelineHosts() {
    return this.data.timeline_hosts ?? { controller: null, hosts: [] };
  }

  /** @param {string} host */
  async timeline(host) {
    return this.data.timeline?.[host] ?? null;
  }

  async snapshot() {
    return this.data;
  }

  /** Every row at or below a path, for a download. @param {string} path */
  rowsBelow(path) {
    const below = Object.keys(this.data.nodes).filter((p) => isWithin(path, p));
    return below.flatMap((p) => this.data.nodes[p].rows ?? []).sort((a, b) => a.seq - b.seq);
  }
}

/** @param {any} rec @param {string} column @returns {any} */
export function columnValue(rec, column) {
  if (column === "work") return rec.work;
  if (column === "device") return rec.device;
  if (column.startsWith("res.")) return rec.res?.[column.slice(4)];
  return rec.metrics?.[column];
}

/** Absent and not-finite values stand last in both directions. @param {any[]} records @param {string} column @param {string} order */
export function sortRecords(records, column, order) {
  const sign = order === "desc" ? -1 : 1;
  records.sort((a, b) => {
    if (column === "node") return sign * natural(a.path, b.path);
    const [x, y] = [columnValue(a, column), columnValue(b, column)];
    const [ax, ay] = [typeof x === "number", typeof y === "number"];
    return ax && ay ? sign * (x - y) || natural(a.path, b.path) : Number(ay) - Number(ax) || natural(a.path, b.path);
  });
}

/** @param {any[]} records @returns {Record<string, any>} */
export function summarize(records) {
  /** @type {Record<string, any>} */
  const out = {};
  const keys = new Set(records.flatMap((r) => Object.keys(r.metrics ?? {})));
  for (const key of keys) {
    const held = records.filter((r) => typeof r.metrics?.[key] === "number").sort((a, b) => a.metrics[key] - b.metrics[key]);
    if (held.length === 0) continue;
    const [low, high] = [held[0], held[held.length - 1]];
    out[key] = { min: low.metrics[key], p50: middle(held.map((r) => r.metrics[key])), max: high.metrics[key], min_path: low.path, max_path: high.path };
  }
  return out;
}

/** The median of sorted values. @param {number[]} values */
function middle(values) {
  const half = values.length >> 1;
  return values.length % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// @ts-check
// What the page knows: the run, its alerts, and the one level that is looked at.

import { natural } from "./format.js";
import { isWithin, parentOf } from "./route.js";
import { Track } from "./track.js";

export const CHILD_LIMIT = 64;
const LOG_LIMIT = 500;
const SPARK = 40;
const ALERT_LIMIT = 200;

/** Newer fields over older ones, nested objects by key: gauges do not blink between epochs.
 * @param {any} older @param {any} newer */
export function overlay(older, newer) {
  if (!older) return newer;
  const merged = { ...older, ...newer };
  for (const field of ["metrics", "res"]) if (older[field] || newer[field]) merged[field] = { ...older[field], ...newer[field] };
  delete merged.epoch_complete;
  return merged;
}

/** Is a node's process gone? @param {any} rec */
export function isLost(rec) {
  return rec?.alive === false || rec?.alive === 0;
}

export class Alerts {
  constructor() {
    /** @type {Map<string, any>} one entry for each (class, path), the newest last */
    this.entries = new Map();
    this.version = 0;
  }

  /** Takes an event record; a replay changes nothing. @param {any} rec @returns {boolean} new to the reader? */
  add(rec) {
    const id = `${rec.class}\n${rec.path}`;
    const held = this.entries.get(id);
    if (held && (held.total ?? 0) >= (rec.total ?? 1) && held.seq >= rec.seq) return false;
    this.entries.delete(id);
    this.entries.set(id, rec);
    if (this.entries.size > ALERT_LIMIT) this.entries.delete(this.entries.keys().next().value ?? "");
    this.version += 1;
    return true;
  }

  /** Newest first. @param {string} scope */
  within(scope) {
    return [...this.entries.values()].filter((a) => isWithin(scope, a.path)).sort((a, b) => later(b, a));
  }

  /** Paths whose last word was that they are gone. */
  lostPaths() {
    const out = new Set();
    for (const a of this.entries.values()) if (a.class === "rank_lost") out.add(a.path);
    for (const a of this.entries.values()) {
      const loss = a.class === "rank_joined" ? this.entries.get(`rank_lost\n${a.path}`) : null;
      if (loss && later(a, loss) > 0) out.delete(a.path);
    }
    return out;
  }
}

/** Positive where the first alert is newer; those that were fetched have no number. @param {any} a @param {any} b */
function later(a, b) {
  return a.ts - b.ts || (a.seq ?? 0) - (b.seq ?? 0);
}

export class Level {
  /** @param {string} path */
  constructor(path) {
    this.path = path;
    /** @type {boolean | null} null until the first answer */ this.known = null;
    /** @type {any} */ this.node = null;
    this.track = new Track();
    /** @type {Map<string, any>} */ this.children = new Map();
    /** @type {Map<string, any[]>} */ this.sparks = new Map();
    /** @type {Map<string, Track>} opened GPUs */ this.childTracks = new Map();
    this.totalChildren = 0;
    /** @type {Record<string, any>} */ this.summary = {};
    /** @type {any[]} newest last */ this.log = [];
    this.logTotal = 0;
    this.lastSeq = -1;
    this.lastRecordAt = 0;
    this.version = 0;
    this.childVersion = 0;
  }

  get interior() {
    return this.totalChildren > 0 || (this.node?.children ?? 0) > 0;
  }

  get wide() {
    return this.totalChildren > CHILD_LIMIT;
  }

  /** Keys that the node has reported, metrics only. */
  keys() {
    const keys = new Set(Object.keys(this.node?.metrics ?? {}));
    for (const key of this.track.columns.keys()) if (!key.startsWith("res.")) keys.add(key);
    return keys;
  }

  /** Takes an answer of `/node`. @param {any} answer */
  setNode(answer) {
    this.known = answer.known;
    if (answer.node) this.node = this.node && this.node.seq > answer.node.seq ? overlay(answer.node, this.node) : answer.node;
    this.setChildren(answer);
    this.version += 1;
  }

  /** Takes only the children of an answer of `/node`. @param {any} answer */
  setChildren(answer) {
    this.totalChildren = answer.total_children;
    this.summary = answer.summary ?? {};
    for (const rec of answer.children) {
      const held = this.children.get(rec.path);
      this.children.set(rec.path, held && held.seq > rec.seq ? held : rec);
    }
    this.childVersion += 1;
  }

  /** Takes a node record of the stream; each `seq` once. @param {any} rec */
  addRecord(rec) {
    if (rec.path === this.path) this.addOwn(rec);
    else if (parentOf(rec.path) === this.path) this.addChild(rec);
    this.lastSeq = rec.seq;
    this.lastRecordAt = Math.max(this.lastRecordAt, rec.ts);
  }

  /** @param {any} rec */
  addOwn(rec) {
    this.known = true;
    this.node = this.node && this.node.seq > rec.seq ? overlay(rec, this.node) : overlay(this.node, rec);
    this.track.add(rec);
    this.log.push(rec);
    this.logTotal += 1;
    if (this.log.length > LOG_LIMIT) this.log.shift();
    this.version += 1;
  }

  /** @param {any} rec */
  addChild(rec) {
    const held = this.children.get(rec.path);
    if (!held && this.wide) return;
    this.children.set(rec.path, held && held.seq > rec.seq ? overlay(rec, held) : overlay(held, rec));
    if (!held) this.totalChildren = Math.max(this.totalChildren, this.children.size);
    const spark = this.sparks.get(rec.path) ?? [];
    if (rec.metrics && !rec.epoch_complete) spark.push(rec.metrics);
    else if (rec.metrics && this.track.windowKeys.size === 0) spark.push(rec.metrics);
    if (spark.length > SPARK) spark.shift();
    this.sparks.set(rec.path, spark);
    this.childTracks.get(rec.path)?.add(rec);
    this.childVersion += 1;
  }

  /** Loaded children in natural order. */
  childList() {
    return [...this.children.values()].sort((a, b) => natural(a.path, b.path));
  }
}

export class Run {
  constructor() {
    /** @type {any} record of kind meta */ this.meta = null;
    /** @type {any} answer of /api/meta */ this.facts = null;
    this.id = "";
    this.status = "waiting";
    /** @type {{epoch?: number, total?: number, eta?: number, elapsed?: number, at: number}} */
    this.clock = { at: 0 };
    /** @type {any[]} epoch feed */ this.epochs = [];
    this.alerts = new Alerts();
    /** @type {string} live, polling, lost, saved or ended */ this.link = "connecting";
  }

  get started() {
    return this.meta?.run?.started_ts ?? 0;
  }

  get totalEpochs() {
    return this.clock.total ?? this.meta?.run?.total_epochs ?? this.epochs.at(-1)?.total ?? 0;
  }
}

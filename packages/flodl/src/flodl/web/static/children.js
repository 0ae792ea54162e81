// @ts-check
// The level below: one metric compared over all children, and a table to sort, filter and enter.

import { byId, h, setAttr, setText, show } from "./dom.js";
import { bytesOf } from "./format.js";
import { factor, legend, ordered, valueText } from "./keys.js";
import { linkTo, nameOf } from "./route.js";
import { CHILD_LIMIT, isLost } from "./store.js";
import { sortRecords, summarize } from "./source.js";
import { Comparison } from "./compare.js";

const METRIC_COLUMNS = 6;
/** The stream feeds the first children; those a reader paged or sorted to are asked for. */
const PAGE_POLL_MS = 3000;
const SUMMARY_POLL_MS = 10000;

export class ChildrenPanel {
  /** @param {import("./app.js").Page} page */
  constructor(page) {
    this.page = page;
    this.sort = "node";
    this.order = "asc";
    this.offset = 0;
    this.metric = "";
    this.head = "";
    /** @type {Map<string, any>} */ this.rows = new Map();
    this.drawn = "";
    this.asked = 0;
    this.asWide = false;
    /** @type {number | undefined} */ this.matching = undefined;
    /** @type {string[]} */ this.columns = [];
    this.comparison = new Comparison(page);
    this.filterBox = byId("children-filter");
    this.filterBox.addEventListener("input", () => this.changed());
    byId("children-metric").addEventListener("change", (/** @type {any} */ e) => {
      this.metric = e.target.value;
      this.drawn = "";
      page.redraw();
    });
    byId("children-prev").addEventListener("click", () => this.turn(-CHILD_LIMIT));
    byId("children-next").addEventListener("click", () => this.turn(CHILD_LIMIT));
  }

  reset() {
    Object.assign(this, { offset: 0, head: "", drawn: "", asked: this.page.now(), asWide: false, matching: undefined });
    this.filterBox.value = "";
    this.rows.clear();
    byId("children-body").replaceChildren();
  }

  get filter() {
    return this.filterBox.value.trim().toLowerCase();
  }

  changed() {
    this.offset = 0;
    this.drawn = "";
    if (this.page.level.wide || this.asWide) this.ask();
    this.page.redraw();
  }

  /** @param {number} by */
  turn(by) {
    this.offset = Math.max(0, this.offset + by);
    this.ask();
  }

  /** Sorting, filtering and paging beyond the loaded children is the server's work. */
  ask() {
    const { page } = this;
    const { level } = page;
    this.asked = page.now();
    this.asWide = true;
    page.load(async () => {
      const answer = await page.source.node(level.path, { limit: CHILD_LIMIT, offset: this.offset, sort: this.sort, order: this.order, filter: this.filter });
      if (level !== page.level) return;
      level.children = new Map(answer.children.map((/** @type {any} */ rec) => [rec.path, rec]));
      level.summary = answer.summary ?? {};
      this.matching = answer.total_children;
      level.childVersion += 1;
      page.redraw();
    });
  }

  patience() {
    const first = this.offset === 0 && this.sort === "node" && this.order === "asc" && !this.filter;
    return first ? SUMMARY_POLL_MS : PAGE_POLL_MS;
  }

  update() {
    const { level, page } = { level: this.page.level, page: this.page };
    show(byId("children"), level.interior);
    if (!level.interior) return;
    if (level.wide && page.source.live && page.run.link !== "lost" && page.now() - this.asked > this.patience()) this.ask();
    const drawn = `${level.childVersion} ${this.metric} ${page.view.mode} ${page.view.zoom}`;
    if (this.drawn === drawn) return;
    this.drawn = drawn;
    // With all children loaded the spread is theirs of now; of a wide level the server knows it.
    if (!level.wide) level.summary = summarize(level.childList());
    const records = this.visible();
    const keys = this.keys(records);
    this.chooseMetric(keys);
    this.header(keys.slice(0, METRIC_COLUMNS));
    this.fill(records, keys.slice(0, METRIC_COLUMNS));
    this.counts(records.length);
    this.comparison.update(records, this.metric);
  }

  visible() {
    const records = [...this.page.level.children.values()].filter((r) => nameOf(r.path).toLowerCase().includes(this.filter));
    sortRecords(records, this.sort, this.order);
    return records;
  }

  /** @param {any[]} records */
  keys(records) {
    const keys = new Set();
    for (const r of records) for (const k of Object.keys(r.metrics ?? {})) keys.add(k);
    return ordered(keys);
  }

  /** @param {string[]} keys */
  chooseMetric(keys) {
    const select = byId("children-metric");
    const all = [...keys, ...(this.page.level.node?.res?.gpu_util === undefined ? [] : ["res.gpu_util"])];
    if (!all.includes(this.metric)) this.metric = all.includes("throughput") ? "throughput" : (all[0] ?? "");
    const listed = all.join("\n");
    if (select.dataset.listed !== listed) {
      select.replaceChildren(...all.map((k) => h("option", { value: k }, k === "res.gpu_util" ? "gpu" : k)));
      select.dataset.listed = listed;
    }
    select.value = this.metric;
  }

  /** @param {string[]} keys */
  header(keys) {
    const head = JSON.stringify([keys, this.sort, this.order]);
    if (head === this.head) return;
    if (this.columns.join("\n") !== keys.join("\n")) {
      this.rows.clear();
      byId("children-body").replaceChildren();
    }
    this.columns = keys;
    this.head = head;
    const column = (/** @type {string} */ id, /** @type {string} */ name, /** @type {string} */ kind) => {
      const state = this.sort === id ? (this.order === "asc" ? "ascending" : "descending") : "none";
      return h("th", { scope: "col", class: kind, "aria-sort": state }, h("button", { type: "button", onclick: () => this.sortBy(id) }, h("bdi", {}, name)));
    };
    byId("children-head").replaceChildren(
      column("node", "node", ""), column("device", "dev", "num c-dev"), column("work", "work", "num"),
      ...keys.map((k) => column(k, legend(k, this.anyInterior(), this.page.run.meta), "num")),
      column("res.gpu_util", "gpu", "num c-gpu"), column("res.vram_alloc", "vram", "num c-vram"), h("th", { scope: "col", class: "spark-head" }, "trend"),
    );
  }

  anyInterior() {
    for (const r of this.page.level.children.values()) if (r.children !== undefined) return true;
    return false;
  }

  /** @param {string} id */
  sortBy(id) {
    this.order = this.sort === id ? (this.order === "asc" ? "desc" : "asc") : id === "node" ? "asc" : "desc";
    this.sort = id;
    this.changed();
  }

  /** @param {any[]} records @param {string[]} keys */
  fill(records, keys) {
    const body = byId("children-body");
    const wanted = new Set(records.map((r) => r.path));
    for (const [path, row] of this.rows)
      if (!wanted.has(path)) {
        row.el.remove();
        this.rows.delete(path);
      }
    const none = (/** @type {(rec: any) => any} */ of) => records.every((rec) => of(rec) === undefined);
    const absent = [[none((r) => r.device), "dev"], [none((r) => r.res?.gpu_util), "gpu"], [none((r) => r.res?.vram_alloc), "vram"]];
    setAttr(body, "data-no", absent.filter(([is]) => is).map(([, name]) => name).join(" "));
    setAttr(byId("children-head"), "data-no", body.dataset.no);
    const ends = this.ends(records);
    records.forEach((rec, i) => {
      let row = this.rows.get(rec.path);
      if (!row) {
        row = this.row(rec, keys);
        this.rows.set(rec.path, row);
      }
      if (body.children[i] !== row.el) body.insertBefore(row.el, body.children[i] ?? null);
      this.fillRow(row, rec, keys, rec.path === ends.fastest ? "fastest" : rec.path === ends.slowest ? "slowest" : "");
    });
  }

  /** Over all children, loaded or not, where the server summed them up. @param {any[]} records */
  ends(records) {
    const speed = this.page.level.summary.throughput;
    const leaves = records.length > 1 && !this.anyInterior();
    if (!leaves || !speed || speed.max < 1.02 * speed.min) return { fastest: "", slowest: "" };
    return { fastest: speed.max_path, slowest: speed.min_path };
  }

  /** @param {any} rec @param {string[]} keys */
  row(rec, keys) {
    const cells = keys.map(() => h("td", { class: "num" }));
    const tag = h("span", { class: "tag" });
    const [dev, work, gpu, vram] = [" c-dev", "", " c-gpu", " c-vram"].map((kind) => h("td", { class: `num${kind}` }));
    const spark = this.comparison.spark();
    const el = h("tr", { "data-path": rec.path }, h("th", { scope: "row" }, h("a", { href: linkTo(rec.path) }, nameOf(rec.path)), " ", tag, h("span", { class: "sub" }, h("bdi", {}, rec.label ?? ""))), dev, work, cells, gpu, vram, h("td", { class: "spark-cell" }, spark.el));
    return { el, tag, dev, work, cells, gpu, vram, spark };
  }

  /** @param {any} row @param {any} rec @param {string[]} keys @param {string} end */
  fillRow(row, rec, keys, end) {
    const { page } = this;
    const lost = page.isGone(rec);
    const tag = lost ? "lost" : end || (typeof rec.alive === "number" && rec.children ? `${rec.alive}/${rec.children} alive` : "");
    setText(row.tag, tag);
    setAttr(row.el, "data-tag", lost ? "lost" : end);
    setText(row.dev, rec.device === undefined ? "—" : String(rec.device));
    setText(row.work, rec.work === undefined ? "—" : rec.work.toLocaleString("en"));
    keys.forEach((k, i) => setText(row.cells[i], valueText(k, rec.metrics?.[k], page.run.meta)));
    const { res = {} } = rec;
    setText(row.gpu, res.gpu_util === undefined ? "—" : `${res.gpu_util.toFixed(0)}%`);
    setText(row.vram, res.vram_alloc === undefined ? "—" : res.vram_total ? bytesOf(res.vram_alloc, res.vram_total) : "—");
    row.spark.draw((page.level.sparks.get(rec.path) ?? []).map((m) => scaledValue(m, this.metric, page.run.meta)));
  }

  /** @param {number} shown */
  counts(shown) {
    const { level } = this.page;
    const total = this.filter ? (this.matching ?? shown) : level.totalChildren;
    const paged = total > CHILD_LIMIT || this.offset > 0;
    const loaded = level.children.size;
    const declared = level.node?.children ?? 0;
    const missing = declared > level.totalChildren ? ` · ${declared - level.totalChildren} declared, not loaded yet` : "";
    const range = paged ? `${this.offset + 1}–${this.offset + shown} of ${total}` : `${shown} of ${level.wide ? total : loaded}`;
    setText(byId("children-count"), range + missing);
    show(byId("children-pager"), paged);
    byId("children-prev").disabled = this.offset === 0;
    byId("children-next").disabled = this.offset + CHILD_LIMIT >= total;
  }
}

/** @param {any} metrics @param {string} key @param {any} meta */
function scaledValue(metrics, key, meta) {
  const value = metrics?.[key];
  return typeof value === "number" ? value * factor(key, meta) : undefined;
}

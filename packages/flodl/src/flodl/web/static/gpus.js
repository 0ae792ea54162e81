// @ts-check
// Devices side by side: an overview with the fastest and slowest named, and four charts for each.

import { Chart } from "./chart.js";
import { byId, h, setAttr, setText, show } from "./dom.js";
import { bytes, bytesOf } from "./format.js";
import { valueText } from "./keys.js";
import { metricPicture, resourcePicture } from "./pictures.js";
import { linkTo, nameOf } from "./route.js";
import { isLost } from "./store.js";
import { fullness } from "./resources.js";
import { Track } from "./track.js";

const MAX_TABS = 16;
const WORTH_NAMING = 1.02;

/** @typedef {{id: string, name: string, label: string, util?: number, used?: number, total?: number, throughput?: number, share?: number, lost: boolean, path: string | null}} Device */

/** @param {any} rec @returns {Device} */
function ofRecord(rec) {
  const { metrics = {}, res = {} } = rec;
  return { id: rec.path, path: rec.path, name: nameOf(rec.path), label: rec.label ?? "", util: res.gpu_util, used: res.vram_alloc, total: res.vram_total, throughput: metrics.throughput, share: metrics.batch_share, lost: isLost(rec) };
}

/** @param {any} gpu an entry of the epoch feed @returns {Device} */
function ofFeed(gpu) {
  return { id: `gpu${gpu.dev}`, path: null, name: `gpu${gpu.dev}`, label: gpu.name ?? "", util: gpu.util, used: gpu.vram_alloc, total: gpu.vram_total, throughput: gpu.throughput, share: gpu.chunk, lost: false };
}

/** Ends of the throughput range, when they differ by enough to be worth a word. @param {Device[]} devices */
export function extremes(devices) {
  const held = devices.filter((d) => !d.lost && typeof d.throughput === "number").sort((a, b) => Number(b.throughput) - Number(a.throughput));
  if (held.length < 2 || Number(held[0].throughput) < WORTH_NAMING * Number(held[held.length - 1].throughput)) return { fastest: "", slowest: "" };
  return { fastest: held[0].id, slowest: held[held.length - 1].id };
}

export class GpusPanel {
  /** @param {import("./app.js").Page} page */
  constructor(page) {
    this.page = page;
    this.selected = "";
    this.listed = "";
    /** @type {Map<string, any>} */ this.rows = new Map();
    this.charts = ["VRAM", "Utilization", "Throughput", "Batch share"].map((title) => ({ title, chart: new Chart({ title, say: page.say, zoom: (r) => page.zoomTo(r), small: true }) }));
    this.cards = this.charts.map(({ title, chart }) => h("section", { class: "card small-card", "aria-label": title }, h("header", {}, h("h3", {}, title), chart.tools), chart.el));
    byId("gpu-charts").append(...this.cards);
  }

  reset() {
    this.selected = "";
    this.listed = "";
    this.rows.clear();
  }

  /** @returns {Device[]} */
  devices() {
    const { level, run } = this.page;
    const list = level.childList();
    if (list.length && list.every((rec) => rec.children === undefined) && !level.wide) return list.map(ofRecord);
    if (list.length === 0 && !level.interior && level.path === "root") return (run.epochs.at(-1)?.gpus ?? []).map(ofFeed);
    return [];
  }

  update() {
    const devices = this.devices();
    const worth = devices.length >= 2 && devices.length <= MAX_TABS;
    show(byId("gpus"), worth);
    if (!worth) return;
    const listed = devices.map((d) => d.id).join("\n");
    if (listed !== this.listed) this.rebuild(devices);
    this.listed = listed;
    // Ranks on the CPU have neither: two empty columns and two empty charts say nothing.
    const [noLoad, noMemory] = [devices.every((d) => d.util === undefined), devices.every((d) => d.used === undefined)];
    setAttr(byId("gpu-overview"), "data-no", `${noLoad ? "gpu " : ""}${noMemory ? "vram" : ""}`);
    show(this.cards[0], !noMemory);
    show(this.cards[1], !noLoad);
    const { fastest, slowest } = extremes(devices);
    for (const d of devices) this.fillRow(this.rows.get(d.id), d, d.id === fastest ? "fastest" : d.id === slowest ? "slowest" : "");
    const open = devices.find((d) => d.id === this.selected);
    show(byId("gpu-overview"), !open);
    show(byId("gpu-detail"), Boolean(open));
    if (open) this.detail(open);
  }

  /** @param {Device[]} devices */
  rebuild(devices) {
    if (!devices.some((d) => d.id === this.selected)) this.selected = "";
    const tab = (/** @type {string} */ id, /** @type {string} */ name) => h("button", { type: "button", role: "tab", id: `gpu-tab-${id}`, "aria-controls": "gpu-panel", "data-id": id, onclick: () => this.select(id), onkeydown: (/** @type {KeyboardEvent} */ e) => this.key(e) }, name);
    byId("gpu-tabs").replaceChildren(tab("", "Overview"), ...devices.map((d) => tab(d.id, d.name)));
    this.rows = new Map(devices.map((d) => [d.id, this.row(d)]));
    byId("gpu-rows").replaceChildren(...[...this.rows.values()].map((r) => r.el));
    this.mark();
  }

  /** @param {Device} d */
  row(d) {
    const cells = { tag: h("span", { class: "tag" }), util: h("td", { class: "num c-gpu" }), vram: h("td", { class: "num c-vram" }), speed: h("td", { class: "num" }), share: h("td", { class: "num" }) };
    const bar = h("span", { class: "bar-fill" });
    const name = d.path ? h("a", { href: linkTo(d.path) }, d.name) : d.name;
    const vramText = h("span", {});
    cells.vram.append(vramText, h("span", { class: "bar" }, bar));
    const el = h("tr", {}, h("th", { scope: "row" }, name, " ", cells.tag, h("span", { class: "sub" }, h("bdi", {}, d.label))), cells.util, cells.vram, cells.speed, cells.share);
    return { ...cells, el, bar, vramText };
  }

  /** @param {any} row @param {Device} d @param {string} tag */
  fillRow(row, d, tag) {
    const { meta } = this.page.run;
    setText(row.tag, d.lost ? "lost" : tag);
    setAttr(row.el, "data-tag", d.lost ? "lost" : tag);
    setText(row.util, d.util === undefined ? "—" : `${d.util.toFixed(0)}%`);
    const percent = d.used !== undefined && d.total ? (100 * d.used) / d.total : NaN;
    setText(row.vramText, d.used === undefined ? "—" : d.total ? bytesOf(d.used, d.total) : bytes(d.used));
    setAttr(row.vram, "data-state", Number.isFinite(percent) ? fullness(percent) : "none");
    row.bar.style.setProperty("--full", String(Number.isFinite(percent) ? Math.min(percent, 100) / 100 : 0));
    setText(row.speed, valueText("throughput", d.throughput, meta));
    setText(row.share, valueText("batch_share", d.share, meta));
  }

  /** @param {string} id */
  select(id) {
    this.selected = id;
    this.mark();
    this.page.redraw();
  }

  mark() {
    for (const tab of byId("gpu-tabs").children) {
      const on = tab.dataset.id === this.selected;
      setAttr(tab, "aria-selected", String(on));
      tab.tabIndex = on ? 0 : -1;
      if (on) setAttr(byId("gpu-panel"), "aria-labelledby", tab.id);
    }
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const tabs = [...byId("gpu-tabs").children];
    const at = tabs.indexOf(/** @type {any} */ (event.currentTarget));
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (by === 0) return;
    event.preventDefault();
    const next = tabs[(at + by + tabs.length) % tabs.length];
    next.focus();
    this.select(next.dataset.id);
  }

  /** @param {Device} d */
  detail(d) {
    const track = d.path ? this.page.childTrack(d.path) : this.feedTrack(d.id);
    const { page } = this;
    const link = byId("gpu-link");
    show(link, d.path !== null);
    if (d.path) setAttr(link, "href", linkTo(d.path));
    setText(byId("gpu-name"), d.label ? `${d.name} · ${d.label}` : d.name);
    this.charts[0].chart.set(resourcePicture(track, page, "VRAM"));
    this.charts[1].chart.set(resourcePicture(track, page, "GPU"));
    const options = { interior: false };
    this.charts[2].chart.set({ ...metricPicture(track, ["throughput"], page, options), range: [0, null] });
    this.charts[3].chart.set({ ...metricPicture(track, ["batch_share"], page, options), range: [0, null] });
  }

  /** A device that is no node of its own: its history is the epoch feed. @param {string} id */
  feedTrack(id) {
    const track = new Track();
    const { epochs } = this.page.run;
    let seconds = 0;
    for (const e of epochs) {
      seconds += e.duration ?? 0;
      const d = (e.gpus ?? []).map(ofFeed).find((/** @type {Device} */ g) => g.id === id);
      if (!d) continue;
      const values = [["throughput", d.throughput], ["batch_share", d.share], ["res.gpu_util", d.util], ["res.vram_alloc", d.used], ["res.vram_total", d.total]];
      track.push(this.page.run.started + seconds * 1000, e.epoch - 1, NaN, values.filter(([, v]) => v !== undefined));
    }
    return track;
  }
}

// @ts-check
// The machine under a level: gauges with last known values and their age, and their history.

import { Chart } from "./chart.js";
import { byId, h, setAttr, setText, show } from "./dom.js";
import { bytes, bytesOf } from "./format.js";
import { ageText, swatch } from "./paint.js";
import { RESOURCES, resourcePicture } from "./pictures.js";

const STALE_MS = 6000;

/** How full is it, in a word that does not need color. @param {number} percent */
export function fullness(percent) {
  if (percent > 100) return "spill";
  if (percent > 95) return "full";
  return percent > 80 ? "high" : "ok";
}

export class ResourcesPanel {
  /** @param {import("./app.js").Page} page */
  constructor(page) {
    this.page = page;
    this.chart = new Chart({ title: "Resources", say: page.say, zoom: (r) => page.zoomTo(r), points: 180 });
    byId("resources-chart").append(this.chart.el);
    byId("resources-tools").append(this.chart.tools);
    this.solo = "";
    /** @type {Map<string, any>} */ this.gauges = new Map();
    /** @type {Map<string, any>} */ this.names = new Map();
    for (const r of RESOURCES) {
      const name = h("button", { type: "button", class: "legend-name", "aria-pressed": "false", onclick: () => this.toggle(r.name) }, r.name);
      const el = h("li", { class: `legend-item k${r.color}`, hidden: true }, swatch(r.color), name);
      this.names.set(r.name, { el, name });
      byId("resources-legend").append(el);
    }
  }

  /** @param {string} name */
  toggle(name) {
    this.solo = this.solo === name ? "" : name;
    this.page.redraw();
  }

  reset() {
    this.solo = "";
    byId("gauges").replaceChildren();
    this.gauges.clear();
  }

  update() {
    const { track, level } = this.page;
    const any = RESOURCES.some((r) => track.columns.has(r.needs)) || Object.keys(level.node?.res ?? {}).length > 0;
    show(byId("resources"), any || level.known === null);
    if (!any) return;
    for (const r of RESOURCES) {
      const held = this.names.get(r.name);
      show(held.el, track.columns.has(r.needs));
      setAttr(held.name, "aria-pressed", String(this.solo === r.name));
      held.el.classList.toggle("off", this.solo !== "" && this.solo !== r.name);
    }
    this.chart.set(resourcePicture(track, this.page, this.solo));
    this.updateGauges(level.node?.res ?? {}, level.node?.ts ?? 0);
  }

  /** @param {any} res @param {number} ts */
  updateGauges(res, ts) {
    const count = res.gpus > 1 ? `${res.gpus} GPUs` : "GPU";
    if (typeof res.gpu_util === "number") this.gauge("gpu", count, res.gpu_util, `${res.gpu_util.toFixed(0)}%`, res.gpu_util_max === undefined ? "" : `peak ${res.gpu_util_max.toFixed(0)}%`, "", ts);
    if (typeof res.vram_alloc === "number" && res.vram_total > 0) {
      const spill = Math.max(0, res.vram_alloc - res.vram_total);
      const percent = (100 * res.vram_alloc) / res.vram_total;
      this.gauge("vram", "VRAM", percent, bytesOf(res.vram_alloc, res.vram_total), spill ? `+${bytes(spill)} spill` : `${percent.toFixed(0)}%`, fullness(percent), ts);
    }
    if (typeof res.cpu === "number") this.gauge("cpu", res.cpus ? `CPU, ${res.cpus} threads` : "CPU", res.cpu, `${res.cpu.toFixed(0)}%`, "", "", ts);
    if (typeof res.ram_used === "number" && res.ram_total > 0) this.gauge("ram", "RAM", (100 * res.ram_used) / res.ram_total, bytesOf(res.ram_used, res.ram_total), `${((100 * res.ram_used) / res.ram_total).toFixed(0)}%`, fullness((100 * res.ram_used) / res.ram_total), ts);
    if (typeof res.power_w === "number" && res.power_w > 0) this.gauge("power", "Power", NaN, res.power_w < 10000 ? `${res.power_w.toFixed(0)} W` : `${(res.power_w / 1000).toFixed(1)} kW`, typeof res.temp_c === "number" ? `${res.temp_c.toFixed(0)} °C` : "", "", ts);
  }

  /** @param {string} id @param {string} name @param {number} percent @param {string} value @param {string} extra @param {string} state @param {number} ts */
  gauge(id, name, percent, value, extra, state, ts) {
    let g = this.gauges.get(id);
    if (!g) {
      const bar = h("span", { class: "bar-fill" });
      g = { bar, label: h("span", { class: "gauge-name" }), value: h("span", { class: "gauge-value num" }), extra: h("span", { class: "gauge-extra num" }) };
      g.el = h("div", { class: "gauge" }, g.label, g.extra, g.value, Number.isFinite(percent) ? h("span", { class: "bar" }, bar) : null);
      this.gauges.set(id, g);
      byId("gauges").append(g.el);
    }
    const age = this.page.run.link === "live" && this.page.now() - ts > STALE_MS ? ageText(ts, this.page.now()) : "";
    setText(g.label, name);
    setText(g.value, value);
    setText(g.extra, [extra, state === "ok" || state === "" ? "" : state, age].filter(Boolean).join(" · "));
    if (Number.isFinite(percent)) g.bar.style.setProperty("--full", String(Math.min(percent, 100) / 100));
    setAttr(g.el, "data-state", state);
  }
}

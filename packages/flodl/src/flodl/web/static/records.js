// @ts-check
// The level's own rows, newest first. Only the rows in sight exist as elements.

import { byId, h, setText } from "./dom.js";
import { wallTime } from "./format.js";
import { ordered, legend, valueText } from "./keys.js";

const ROW = 32;
const SPARE = 6;

export class RecordsPanel {
  /** @param {import("./app.js").Page} page */
  constructor(page) {
    this.page = page;
    this.box = byId("records-scroll");
    this.box.addEventListener("scroll", () => this.draw(), { passive: true });
    this.columns = "";
  }

  reset() {
    this.columns = "";
    this.box.scrollTop = 0;
  }

  update() {
    const { level, run } = this.page;
    this.keys = ordered(level.keys());
    const columns = JSON.stringify([this.keys, level.interior, run.meta?.reductions]);
    if (columns !== this.columns) this.header();
    this.columns = columns;
    setText(byId("records-count"), `newest ${level.log.length} of ${level.logTotal}`);
    this.draw();
  }

  header() {
    const { level, run } = this.page;
    const names = ["time", "kind", "epoch", "step", "work", ...(this.keys ?? []).map((k) => legend(k, level.interior, run.meta)), "gpu"];
    byId("records-head").replaceChildren(...names.map((n, i) => h("th", { scope: "col", class: i > 1 ? "num" : "" }, h("bdi", {}, n))));
  }

  draw() {
    const { log } = this.page.level;
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - SPARE);
    const last = Math.min(log.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / ROW) + SPARE);
    const body = byId("records-body");
    const rows = [];
    if (first > 0) rows.push(spacer(first));
    for (let i = first; i < last; i += 1) rows.push(this.row(log[log.length - 1 - i]));
    if (last < log.length) rows.push(spacer(log.length - last));
    body.replaceChildren(...rows);
  }

  /** @param {any} rec */
  row(rec) {
    const { meta } = this.page.run;
    const kind = !rec.epoch_complete ? "window" : rec.work === undefined && rec.metrics ? "result" : "epoch";
    const gpu = rec.res?.gpu_util;
    const numbers = [rec.epoch === undefined ? "" : String(rec.epoch + 1), rec.step === undefined ? "" : rec.step.toLocaleString("en"), rec.work === undefined ? "" : rec.work.toLocaleString("en"), ...(this.keys ?? []).map((k) => (rec.metrics && k in rec.metrics ? valueText(k, rec.metrics[k], meta) : "")), gpu === undefined ? "" : `${gpu.toFixed(0)}%`];
    return h("tr", { class: kind, "data-seq": rec.seq }, h("td", { class: "num" }, wallTime(rec.ts)), h("td", {}, h("span", { class: "kind" }, rec.restart ? `${kind}, restart` : kind)), numbers.map((n) => h("td", { class: "num" }, n)));
  }
}

/** @param {number} count */
function spacer(count) {
  const row = h("tr", { class: "spacer", "aria-hidden": "true" });
  row.style.height = `${count * ROW}px`;
  return row;
}

// @ts-check
// The root's own cards: how the run was set up, and a picture of the model.

import { byId, h, saveBlob, setText, show } from "./dom.js";
import { RequestError } from "./source.js";
import { safeSvg } from "./svg.js";

const DEPTH = 4;

export class ModelPanel {
  /** @param {import("./app.js").Page} page */
  constructor(page) {
    this.page = page;
    this.drawn = "";
    /** @type {{name: string, svg: () => Promise<string | null>}[]} */ this.pictures = [];
    /** @type {string | null} */ this.text = null;
    byId("graph-save").addEventListener("click", () => this.text && saveBlob(new Blob([this.text], { type: "image/svg+xml" }), "model.svg"));
    byId("graph-choice").addEventListener("change", () => this.draw(Number(byId("graph-choice").value)));
  }

  reset() {}

  /** Fetches picture and heat maps again, for another run or another source. */
  async load() {
    const { source } = this.page;
    const [graph, maps] = await Promise.all([this.orNull(source.graph()), source.heatmaps()]);
    this.pictures = graph ? [{ name: "Structure", svg: async () => graph }] : [];
    for (const m of maps) this.pictures.push({ name: `Times on ${m.model}`, svg: m.svg });
    byId("graph-choice").replaceChildren(...this.pictures.map((p, i) => h("option", { value: i }, p.name)));
    show(byId("graph-choice-box"), this.pictures.length > 1);
    if (this.pictures.length) await this.draw(0);
    this.drawn = "";
    this.page.redraw();
  }

  /** A picture that cannot be had must not take the page down with it. @param {Promise<string | null>} answer */
  async orNull(answer) {
    try {
      return await answer;
    } catch (error) {
      if (error instanceof RequestError && error.status !== 401) return null;
      throw error;
    }
  }

  /** @param {number} index */
  async draw(index) {
    this.text = await this.orNull(this.pictures[index].svg());
    const picture = this.text ? safeSvg(this.text) : null;
    byId("graph-box").replaceChildren(picture ?? h("p", { class: "empty" }, "This picture could not be read."));
  }

  update() {
    const root = this.page.level.path === "root";
    show(byId("architecture"), root && this.pictures.length > 0);
    const data = this.page.run.facts?.metadata ?? {};
    show(byId("settings"), root && Object.keys(data).length > 0);
    const drawn = JSON.stringify(data);
    if (!root || drawn === this.drawn) return;
    this.drawn = drawn;
    byId("settings-list").replaceChildren(...entries(data, 0));
    const { total, trainable } = data.parameters ?? {};
    setText(byId("parameters"), typeof total === "number" ? `${total.toLocaleString("en")} parameters` + (typeof trainable === "number" && trainable !== total ? `, ${trainable.toLocaleString("en")} trainable` : "") : "");
  }
}

/** @param {any} data @param {number} depth @returns {any[]} */
function entries(data, depth) {
  return Object.entries(data).map(([key, value]) => {
    const nested = value !== null && typeof value === "object" && !Array.isArray(value) && depth < DEPTH;
    return h("div", { class: nested ? "setting nested" : "setting" }, h("dt", {}, h("bdi", {}, key)), h("dd", {}, nested ? h("dl", {}, entries(value, depth + 1)) : h("bdi", {}, plain(value))));
  });
}

/** @param {any} value */
function plain(value) {
  if (typeof value === "number") return Math.abs(value) >= 10000 ? value.toLocaleString("en") : String(value);
  if (Array.isArray(value) && value.every((v) => typeof v !== "object")) return value.join(", ");
  return typeof value === "string" ? value : JSON.stringify(value);
}

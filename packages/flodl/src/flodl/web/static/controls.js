// @ts-check
// Everything a reader can press: tabs, chart settings, keys, theme, help and downloads.

import { byId, saveBlob, setAttr, setText, show } from "./dom.js";
import { linkTo, nameOf, parentOf, TABS } from "./route.js";
import { pageFile } from "./save.js";
import { levelCsv } from "./table.js";

const THEME_WORDS = { auto: "auto", light: "light", dark: "dark" };

export class Controls {
  /** @param {import("./app.js").Page} page */
  constructor(page) {
    this.page = page;
    const { view } = page;
    for (const box of document.querySelectorAll("[name=x-mode]"))
      box.addEventListener("change", (/** @type {any} */ e) => {
        view.mode = e.target.value;
        page.zoomTo(null);
        page.redraw();
      });
    byId("log-axis").addEventListener("change", (/** @type {any} */ e) => this.set("log", e.target.checked));
    byId("smoothing").addEventListener("input", (/** @type {any} */ e) => this.set("smooth", Number(e.target.value)));
    byId("zoom-reset").addEventListener("click", () => page.zoomTo(null));
    byId("theme").addEventListener("click", () => this.theme());
    byId("help-button").addEventListener("click", () => byId("help").showModal());
    byId("help-close").addEventListener("click", () => byId("help").close());
    byId("skip").addEventListener("click", () => byId("main").focus());
    byId("save-page").addEventListener("click", () => this.savePage());
    byId("save-csv").addEventListener("click", (/** @type {Event} */ e) => this.saveRows(e, "csv"));
    byId("save-jsonl").addEventListener("click", (/** @type {Event} */ e) => this.saveRows(e, "jsonl"));
    byId("tabs").addEventListener("keydown", (/** @type {KeyboardEvent} */ e) => this.tabKey(e));
    for (const tab of TABS) byId(`tab-${tab}`).addEventListener("click", () => page.go(page.level.path, tab));
    addEventListener("keydown", (e) => this.key(e));
    document.addEventListener("click", (e) => {
      for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(/** @type {Node} */ (e.target))) menu.removeAttribute("open");
    });
    this.themeWord();
  }

  /** @param {"log" | "smooth"} name @param {any} value */
  set(name, value) {
    /** @type {any} */ (this.page.view)[name] = value;
    setText(byId("smoothing-value"), this.page.view.smooth ? this.page.view.smooth.toFixed(2) : "off");
    this.page.redraw();
  }

  update() {
    show(byId("zoom-reset"), this.page.view.zoom !== null);
    const { path } = this.page.level;
    setAttr(byId("save-csv"), "href", `/export.csv?path=${encodeURIComponent(path)}`);
    setAttr(byId("save-jsonl"), "href", `/export.jsonl?path=${encodeURIComponent(path)}`);
    show(byId("save-page"), document.documentElement.dataset.saved !== "true");
  }

  showTab() {
    const { page } = this;
    for (const tab of TABS) {
      const on = tab === page.tab;
      show(byId(`panel-${tab}`), on);
      setAttr(byId(`tab-${tab}`), "aria-selected", String(on));
      byId(`tab-${tab}`).tabIndex = on ? 0 : -1;
    }
  }

  /** @param {KeyboardEvent} event */
  tabKey(event) {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (by === 0) return;
    event.preventDefault();
    const tab = TABS[(TABS.indexOf(this.page.tab) + by + TABS.length) % TABS.length];
    this.page.go(this.page.level.path, tab);
    byId(`tab-${tab}`).focus();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open || byId("shell").hidden) return;
    if (event.key === "Escape") this.escape(target);
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName) && event.key !== "Escape") return;
    /** @type {Record<string, () => void>} */
    const actions = {
      "?": () => byId("help").showModal(),
      u: () => this.up(),
      j: () => this.step(1),
      k: () => this.step(-1),
      "/": () => this.search(),
      t: () => this.theme(),
      1: () => this.page.go(this.page.level.path, TABS[0]),
      2: () => this.page.go(this.page.level.path, TABS[1]),
      3: () => this.page.go(this.page.level.path, TABS[2]),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  /** @param {HTMLElement} target */
  escape(target) {
    for (const menu of document.querySelectorAll("details.menu[open]")) menu.removeAttribute("open");
    const filter = byId("children-filter");
    if (filter.value) {
      filter.value = "";
      filter.dispatchEvent(new Event("input"));
    } else if (this.page.view.solo) {
      this.page.view.solo = "";
      this.page.redraw();
    } else this.page.zoomTo(null);
    if (target === filter) target.blur();
  }

  up() {
    const parent = parentOf(this.page.level.path);
    if (parent) location.hash = linkTo(parent, this.page.tab);
  }

  /** @param {number} by */
  step(by) {
    const links = [...document.querySelectorAll("#children-body th a")];
    if (links.length === 0) return;
    const at = links.indexOf(/** @type {Element} */ (document.activeElement));
    const next = at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + by, 0), links.length - 1);
    /** @type {HTMLElement} */ (links[next]).focus();
  }

  search() {
    const filter = byId("children").hidden ? byId("metrics-filter") : byId("children-filter");
    filter.focus();
    filter.select();
  }

  theme() {
    dispatchEvent(new Event("flodl-theme-next"));
    this.themeWord();
    this.page.say(`${document.documentElement.dataset.choice} colors`);
  }

  themeWord() {
    const choice = /** @type {"auto" | "light" | "dark"} */ (document.documentElement.dataset.choice ?? "auto");
    setText(byId("theme-word"), THEME_WORDS[choice]);
    setAttr(byId("theme"), "aria-label", `Colors: ${THEME_WORDS[choice]}. Press for the next`);
  }

  savePage() {
    const { page } = this;
    page.load(async () => {
      const file = await pageFile(await page.source.snapshot());
      saveBlob(new Blob([file], { type: "text/html" }), "dashboard.html");
    });
  }

  /** A live page lets the server write the file; a saved page has the rows itself. @param {Event} event @param {"csv" | "jsonl"} kind */
  saveRows(event, kind) {
    const { source, level } = this.page;
    if (source.live) return;
    event.preventDefault();
    const rows = source.rowsBelow(level.path);
    const text = kind === "csv" ? levelCsv(rows) : rows.map((/** @type {any} */ r) => `${JSON.stringify(r)}\n`).join("");
    saveBlob(new Blob([text], { type: "text/plain" }), `${nameOf(level.path)}.${kind}`);
  }
}

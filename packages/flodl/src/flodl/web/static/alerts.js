// @ts-check
// Alerts of the whole run, from whatever level one looks: list, badges, title and spoken word.

import { byId, h, setAttr, setText, show } from "./dom.js";
import { wallTime } from "./format.js";
import { isWithin, linkTo } from "./route.js";

const SHOWN = 60;

export class AlertsPanel {
  /** @param {import("./app.js").Page} page */
  constructor(page) {
    this.page = page;
    this.drawn = "";
    this.seenSeq = -1;
    this.scoped = false;
    byId("alerts-scope").addEventListener("change", () => {
      this.scoped = byId("alerts-here").checked;
      page.redraw();
    });
    byId("alerts-button").addEventListener("click", () => {
      if (page.tab !== "overview") page.go(page.level.path, "overview");
      byId("alerts").scrollIntoView({ block: "center" });
      byId("alerts-title").focus();
    });
  }

  reset() {
    this.drawn = "";
  }

  /** Only what happened while the page was open is worth a word. @param {any} rec */
  announce(rec) {
    const region = byId(rec.sev === "critical" ? "assertive" : "polite");
    region.textContent = `${rec.sev}: ${words(rec.class)} at ${rec.path}. ${rec.detail ?? ""}`;
  }

  update() {
    const { alerts } = this.page.run;
    const all = alerts.within("root");
    const urgent = all.filter((a) => a.sev !== "info");
    const here = urgent.filter((a) => isWithin(this.page.level.path, a.path));
    const critical = urgent.some((a) => a.sev === "critical");
    this.badge(byId("alerts-badge"), urgent.length, critical);
    this.badge(byId("crumb-badge"), here.length, here.some((a) => a.sev === "critical"));
    setAttr(byId("alerts-button"), "aria-label", urgent.length === 1 ? "1 alert" : `${urgent.length} alerts`);
    const listed = this.scoped ? all.filter((a) => isWithin(this.page.level.path, a.path)) : all;
    const drawn = `${alerts.version} ${this.scoped} ${this.page.level.path}`;
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    show(byId("alerts-none"), listed.length === 0);
    setText(byId("alerts-count"), listed.length > SHOWN ? `newest ${SHOWN} of ${listed.length}` : "");
    byId("alerts-list").replaceChildren(...listed.slice(0, SHOWN).map((a) => this.entry(a)));
  }

  /** @param {any} badge @param {number} count @param {boolean} critical */
  badge(badge, count, critical) {
    show(badge, count > 0);
    setText(badge, String(count));
    setAttr(badge, "data-sev", critical ? "critical" : "warn");
  }

  /** @param {any} a */
  entry(a) {
    return h("li", { class: "alert", "data-sev": a.sev, "data-class": a.class },
      h("span", { class: "sev" }, a.sev),
      h("div", { class: "alert-text" },
        h("strong", {}, words(a.class)), " ", h("a", { href: linkTo(a.path) }, a.path),
        h("p", {}, h("bdi", {}, a.detail ?? ""))),
      h("span", { class: "alert-when num" }, wallTime(a.ts), (a.total ?? 1) > 1 ? h("span", { class: "times" }, ` ×${a.total}`) : null));
  }
}

/** @param {string} name */
function words(name) {
  return name.replaceAll("_", " ");
}

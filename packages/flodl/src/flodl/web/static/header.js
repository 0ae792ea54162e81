// @ts-check
// Where one is and how the run goes: status, progress, crumbs, chips, title and tab picture.

import { byId, h, setAttr, setText, show } from "./dom.js";
import { duration } from "./format.js";
import { isWithin, linkTo, nameOf } from "./route.js";

const CHIPS = 24;
/** @type {Record<string, string>} */
const WORDS = { waiting: "Waiting", running: "Training", done: "Done", failed: "Failed", aborted: "Aborted", lost: "Disconnected", saved: "Saved page" };
/** @type {Record<string, string>} */
const FAVICON = { running: "#2f81f7", done: "#2da44e", failed: "#cf222e", aborted: "#cf222e", lost: "#9a6700", waiting: "#6e7781" };

export class Header {
  /** @param {import("./app.js").Page} page */
  constructor(page) {
    this.page = page;
    this.drawnChips = "";
    this.drawnCrumbs = "";
    this.drawnIcon = "";
  }

  reset() {
    this.drawnChips = "";
  }

  get state() {
    const { run } = this.page;
    return run.link === "lost" && run.status === "running" ? "lost" : run.status;
  }

  update() {
    const { run } = this.page;
    const label = run.facts?.label ?? run.meta?.run?.label ?? "";
    setText(byId("run-label"), label || "training run");
    const hash = run.facts?.hash ?? run.meta?.run?.hash ?? "";
    setText(byId("run-hash"), hash ? `[${String(hash).slice(0, 8)}]` : "");
    setText(byId("status-text"), WORDS[this.state] ?? run.status);
    setAttr(byId("status"), "data-state", this.state);
    show(byId("banner"), run.link === "lost");
    show(byId("polling-note"), run.link === "polling");
    this.progress();
    this.crumbs();
    this.note();
    this.chips();
    this.title(label);
  }

  progress() {
    const { run, level } = this.page;
    const total = run.totalEpochs;
    const done = run.status === "done";
    const epoch = Math.max(run.epochs.at(-1)?.epoch ?? 0, Math.min((level.node?.epoch ?? -1) + 1, total || Infinity), run.clock.epoch ?? 0);
    setText(byId("epoch"), total ? `${Math.min(epoch, total)}` : String(epoch || "—"));
    setText(byId("epoch-total"), total ? `/ ${total}` : "");
    const share = total ? Math.min(this.share(epoch, total), 1) : 0;
    byId("progress-fill").style.setProperty("--full", String(share));
    setAttr(byId("progress"), "aria-valuenow", String(Math.round(share * 100)));
    setText(byId("percent"), total ? `${(share * 100).toFixed(0)}%` : "");
    const eta = run.clock.eta ?? run.epochs.at(-1)?.eta;
    setText(byId("eta"), done || run.status === "failed" || eta === undefined || eta === null ? "—" : duration(Math.floor(eta) || eta));
    const elapsed = this.elapsed();
    setText(byId("elapsed"), elapsed === null ? "—" : duration(Math.floor(elapsed)));
  }

  /** Done epochs, and the part of the open one that its reports tell of. @param {number} epoch @param {number} total */
  share(epoch, total) {
    const { run, level } = this.page;
    if (run.status === "done") return 1;
    const finished = run.epochs.at(-1)?.epoch ?? Math.max(0, epoch - 1);
    const each = run.meta?.run?.reports_per_epoch ?? 0;
    const open = each && level.path === "root" ? level.track.epoch.filter((e) => e === finished).length / each : 0;
    return (finished + Math.min(open, 1)) / total;
  }

  elapsed() {
    const { run } = this.page;
    if (run.clock.elapsed === undefined) return run.started && run.status !== "running" ? null : run.started ? (this.page.now() - run.started) / 1000 : null;
    const ticking = run.status === "running" && run.link !== "lost" && this.page.source.live;
    return run.clock.elapsed + (ticking ? (Date.now() - run.clock.at) / 1000 : 0);
  }

  crumbs() {
    const { path } = this.page.level;
    if (this.drawnCrumbs === path) return;
    this.drawnCrumbs = path;
    const segments = path.split("/");
    byId("crumbs").replaceChildren(...segments.map((name, i) => {
      const at = segments.slice(0, i + 1).join("/");
      const last = i === segments.length - 1;
      return h("li", {}, last ? h("span", { "aria-current": "page" }, name) : h("a", { href: linkTo(at) }, name));
    }));
  }

  note() {
    const { level, run } = this.page;
    const { node } = level;
    const parts = [];
    if (node?.label) parts.push(node.label);
    if (node?.device !== undefined) parts.push(`device ${node.device}`);
    if (typeof node?.alive === "number" && node.children) parts.push(`${node.alive}/${node.children} alive`);
    setText(byId("level-note"), parts.join(" · "));
    show(byId("level-lost"), Boolean(node) && this.page.isGone(node));
    const hardware = run.meta?.run?.hardware ?? run.facts?.hardware;
    const text = level.path === "root" ? (typeof hardware === "string" ? hardware : "") : this.hardware();
    setText(byId("hardware"), text);
  }

  /** Equal devices below a level are counted, not listed. */
  hardware() {
    const counts = new Map();
    for (const rec of this.page.level.children.values()) if (rec.label) counts.set(rec.label, (counts.get(rec.label) ?? 0) + 1);
    return [...counts].map(([name, n]) => (n > 1 ? `${n}x ${name}` : name)).join(" | ");
  }

  chips() {
    const { level, run } = this.page;
    const list = level.childList();
    const alerted = run.alerts.within(level.path).filter((a) => a.sev === "critical").map((a) => a.path);
    const drawn = JSON.stringify([level.path, level.totalChildren, list.slice(0, CHIPS).map((r) => [r.path, this.page.isGone(r), r.alive]), alerted]);
    if (drawn === this.drawnChips) return;
    this.drawnChips = drawn;
    show(byId("chips"), level.interior);
    const chips = list.slice(0, CHIPS).map((rec) => {
      const gone = this.page.isGone(rec);
      const alert = alerted.some((p) => isWithin(rec.path, p));
      return h("li", {}, h("a", { class: "chip", href: linkTo(rec.path), "data-lost": gone ? "true" : null, "data-alert": alert ? "true" : null }, h(gone ? "s" : "span", {}, nameOf(rec.path)), gone ? h("span", { class: "chip-word" }, "lost") : alert ? h("span", { class: "chip-word" }, "alert") : null));
    });
    const more = Math.max(level.totalChildren, list.length) - chips.length;
    if (more > 0) chips.push(h("li", {}, h("button", { type: "button", class: "chip more", onclick: () => byId("children").scrollIntoView() }, `+${more} more`)));
    byId("chips-list").replaceChildren(...chips);
  }

  /** @param {string} label */
  title(label) {
    const { run, level } = this.page;
    const urgent = run.alerts.within("root").filter((a) => a.sev !== "info").length;
    const where = level.path === "root" ? "" : `${nameOf(level.path)} · `;
    const progress = run.totalEpochs && run.status === "running" ? ` ${byId("epoch").textContent}/${run.totalEpochs}` : "";
    const text = `${urgent ? `(${urgent}) ` : ""}${WORDS[this.state] ?? run.status}${progress} · ${where}${label || "flodl"}`;
    if (document.title !== text) document.title = text;
    const wanted = `${this.state} ${urgent > 0}`;
    if (wanted === this.drawnIcon) return;
    this.drawnIcon = wanted;
    const dot = urgent ? "<circle cx='25' cy='7' r='7' fill='%23cf222e'/>" : "";
    const fill = (FAVICON[this.state] ?? "#6e7781").replace("#", "%23");
    byId("favicon").href = `data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'><rect width='32' height='32' rx='8' fill='${fill}'/><path d='M6 8c6 0 6 14 12 15h8' fill='none' stroke='white' stroke-width='4'/>${dot}</svg>`;
  }
}

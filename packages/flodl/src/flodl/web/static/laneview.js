// @ts-check
// Looking around in a timeline: wheel, drag, pinch and keys; a tooltip; a choice of event kinds.

import { h, setText, show } from "./dom.js";
import { drawLanes, firstEvent, GUTTER, heightFor, kindColor, timeAt, timeText, xAt } from "./lanes.js";
import { lowerBound } from "./recording.js";

const NEAR_PX = 5;
const LEAST_MS = 5;

export class LaneView {
  /** @param {(text: string) => void} say */
  constructor(say) {
    this.say = say;
    this.canvas = h("canvas", { class: "lanes", tabindex: "0", role: "img", "aria-label": "Timeline. Arrow keys move, plus and minus zoom, 0 shows the whole run" });
    this.tip = h("div", { class: "lane-tip", hidden: true });
    this.kindsBox = h("fieldset", { class: "kinds" });
    this.summaryBox = h("table", { class: "summary" });
    const button = (/** @type {string} */ text, /** @type {string} */ name, /** @type {() => void} */ act) => h("button", { type: "button", class: "button", "aria-label": name, onclick: act }, text);
    this.rangeText = h("span", { class: "num lane-range" });
    const tools = h("div", { class: "lane-tools" }, button("−", "Zoom out", () => this.zoom(2)), button("+", "Zoom in", () => this.zoom(0.5)), button("Whole run", "Show the whole run", () => this.look(0, this.end)), this.rangeText);
    this.el = h("div", { class: "lane-view" }, tools, h("div", { class: "lane-canvas" }, this.canvas, this.tip), this.kindsBox, h("div", { class: "scroll" }, this.summaryBox));
    /** @type {import("./recording.js").Recording | null} */ this.recording = null;
    this.end = 1;
    /** @type {import("./lanes.js").Frame} */
    this.frame = { from: 0, to: 1, width: 1, height: 1, kinds: new Set(), cursor: null };
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.el);
  }

  /** @param {import("./recording.js").Recording} recording */
  show(recording) {
    this.recording = recording;
    this.end = recording.end;
    const kinds = recording.kinds();
    this.frame = { ...this.frame, from: 0, to: this.end, kinds: new Set(kinds.keys()), cursor: null };
    this.kindsBox.replaceChildren(h("legend", {}, "Events"), ...[...kinds].map(([kind, count]) => this.kind(kind, count)));
    show(this.kindsBox, kinds.size > 0);
    this.summaryBox.replaceChildren(h("caption", {}, "Summary"), h("tbody", {}, recording.summary().map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "num" }, value)))));
    this.draw();
  }

  /** @param {string} kind @param {number} count */
  kind(kind, count) {
    const box = h("input", { type: "checkbox", checked: true, onchange: () => {
      if (box.checked) this.frame.kinds.add(kind);
      else this.frame.kinds.delete(kind);
      this.draw();
    } });
    const dot = h("i", { class: "dot" });
    dot.style.background = kindColor(kind);
    return h("label", { class: "check" }, box, dot, h("bdi", {}, kind.replaceAll("_", " ")), " ", h("span", { class: "num sub" }, String(count)));
  }

  draw() {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => {
      this.queued = false;
      this.paint();
    });
  }

  paint() {
    const { recording, frame } = this;
    const width = Math.floor(this.canvas.parentElement?.clientWidth ?? 0);
    if (!recording || width < GUTTER + 20) return;
    const height = heightFor(recording.lanes.length);
    const ratio = devicePixelRatio;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.height = `${height}px`;
    }
    Object.assign(frame, { width, height });
    const ctx = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    drawLanes(ctx, recording, frame);
    const span = frame.to - frame.from;
    setText(this.rangeText, `${timeText(frame.from, span / 10)} – ${timeText(frame.to, span / 10)}`);
  }

  /** Shows a range, kept inside the run. @param {number} from @param {number} to */
  look(from, to) {
    const span = Math.min(Math.max(to - from, LEAST_MS), this.end);
    const start = Math.min(Math.max(from, 0), this.end - span);
    Object.assign(this.frame, { from: start, to: start + span });
    this.draw();
  }

  /** @param {number} by @param {number} [at] the time that stays in place */
  zoom(by, at = (this.frame.from + this.frame.to) / 2) {
    const { from, to } = this.frame;
    this.look(at - (at - from) * by, at + (to - at) * by);
  }

  listen() {
    const { canvas } = this;
    /** @type {Map<number, number>} */ const held = new Map();
    const x = (/** @type {PointerEvent | WheelEvent} */ e) => e.clientX - canvas.getBoundingClientRect().left;
    canvas.addEventListener("wheel", (/** @type {WheelEvent} */ e) => {
      e.preventDefault();
      if (Math.abs(e.deltaX) > Math.abs(e.deltaY) || e.shiftKey) this.pan(e.deltaX || e.deltaY);
      else this.zoom(Math.exp(e.deltaY * 0.0018), timeAt(this.frame, x(e)));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (/** @type {PointerEvent} */ e) => {
      canvas.setPointerCapture(e.pointerId);
      held.set(e.pointerId, x(e));
    });
    canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ e) => {
      const before = held.get(e.pointerId);
      if (before === undefined) this.point(x(e));
      else {
        if (held.size === 1) this.pan(before - x(e));
        else this.pinch(held, e.pointerId, x(e));
        held.set(e.pointerId, x(e));
      }
    });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (/** @type {PointerEvent} */ e) => held.delete(e.pointerId));
    canvas.addEventListener("pointerleave", () => this.point(null));
    canvas.addEventListener("dblclick", (/** @type {PointerEvent} */ e) => this.zoom(0.25, timeAt(this.frame, x(e))));
    canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ e) => this.key(e));
  }

  /** @param {Map<number, number>} held @param {number} id @param {number} now */
  pinch(held, id, now) {
    const [other] = [...held].filter(([k]) => k !== id).map(([, v]) => v);
    const before = Math.max(Math.abs((held.get(id) ?? now) - other), 1);
    this.zoom(before / Math.max(Math.abs(now - other), 1), timeAt(this.frame, (now + other) / 2));
  }

  /** @param {number} px */
  pan(px) {
    const { from, to, width } = this.frame;
    const by = (px * (to - from)) / (width - GUTTER);
    this.look(from + by, to + by);
  }

  /** @param {KeyboardEvent} e */
  key(e) {
    const { from, to } = this.frame;
    const by = (to - from) * 0.1;
    /** @type {Record<string, () => void>} */
    const acts = { ArrowLeft: () => this.look(from - by, to - by), ArrowRight: () => this.look(from + by, to + by), "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.look(0, this.end), Home: () => this.look(0, to - from), End: () => this.look(this.end - (to - from), this.end) };
    if (!acts[e.key] || e.ctrlKey || e.metaKey) return;
    e.preventDefault();
    e.stopPropagation();
    acts[e.key]();
    this.say(`${timeText(this.frame.from, 1000)} to ${timeText(this.frame.to, 1000)}`);
  }

  /** @param {number | null} px */
  point(px) {
    const inside = px !== null && px >= GUTTER;
    this.frame.cursor = inside ? timeAt(this.frame, px) : null;
    show(this.tip, inside);
    if (inside) {
      this.tip.replaceChildren(...this.tipLines(px));
      const right = px > this.frame.width * 0.6;
      this.tip.style.left = right ? "auto" : `${px + 14}px`;
      this.tip.style.right = right ? `${this.frame.width - px + 14}px` : "auto";
    }
    this.draw();
  }

  /** The nearest sample of each lane, and the events under the pointer. @param {number} px */
  tipLines(px) {
    const t = timeAt(this.frame, px);
    const lines = [h("strong", { class: "num" }, timeText(t, 1))];
    for (const lane of this.recording?.lanes.slice(0, 12) ?? []) {
      const i = nearest(lane.t, t);
      const util = lane.heatValues?.[i];
      const full = lane.lineValues?.[i];
      const said = [util === undefined || Number.isNaN(util) ? "" : `${util.toFixed(0)}%`, full === undefined || Number.isNaN(full) ? "" : `${lane.unit} ${full.toFixed(0)}%`].filter(Boolean);
      lines.push(h("div", {}, h("span", {}, lane.name), " ", h("span", { class: "num" }, said.join(" · ") || "not measured")));
    }
    const events = this.recording?.events ?? [];
    const from = timeAt(this.frame, px - NEAR_PX);
    for (let i = firstEvent(events, from), n = 0; i < events.length && xAt(this.frame, events[i].t) <= px + NEAR_PX && n < 6; i += 1) {
      if (!this.frame.kinds.has(events[i].k)) continue;
      n += 1;
      lines.push(h("div", { class: "tip-event" }, h("bdi", {}, eventText(events[i]))));
    }
    return lines;
  }
}

/** @param {any} e */
function eventText(e) {
  const fields = Object.entries(e).filter(([k]) => k !== "t" && k !== "k").map(([k, v]) => `${k} ${typeof v === "object" ? JSON.stringify(v) : v}`);
  return [String(e.k).replaceAll("_", " "), ...fields].join(", ");
}

/** @param {Float64Array} t @param {number} at */
function nearest(t, at) {
  const i = lowerBound(t, at);
  return i > 0 && (i === t.length || at - t[i - 1] < t[i] - at) ? i - 1 : i;
}

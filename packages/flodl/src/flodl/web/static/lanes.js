// @ts-check
// Swim lanes on one canvas: each pixel column shows the extremes of the samples it covers.

import { color, curveColor } from "./paint.js";
import { lowerBound } from "./recording.js";

export const GUTTER = 116;
const AXIS = 26;
const EVENT_LANE = 30;
const GAP = 8;
const STEPS_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 15000, 30000, 60000, 120000, 300000, 600000, 1800000, 3600000, 7200000, 21600000];
const HEAT_LEVELS = 16;

/** @typedef {{from: number, to: number, width: number, height: number, kinds: Set<string>, cursor: number | null}} Frame */

/** Height of a picture of so many lanes. @param {number} count */
export function heightFor(count) {
  return AXIS + EVENT_LANE * 2 + GAP + count * (laneHeight(count) + GAP);
}

/** @param {number} count */
function laneHeight(count) {
  return count <= 6 ? 64 : count <= 16 ? 44 : 28;
}

/** @param {Frame} f @param {number} t */
export function xAt(f, t) {
  return GUTTER + ((t - f.from) / (f.to - f.from)) * (f.width - GUTTER);
}

/** @param {Frame} f @param {number} x */
export function timeAt(f, x) {
  return f.from + ((x - GUTTER) / (f.width - GUTTER)) * (f.to - f.from);
}

/** @param {CanvasRenderingContext2D} ctx @param {import("./recording.js").Recording} recording @param {Frame} f */
export function drawLanes(ctx, recording, f) {
  ctx.clearRect(0, 0, f.width, f.height);
  ctx.font = `11.5px ${getComputedStyle(document.body).fontFamily}`;
  ctx.textBaseline = "middle";
  drawAxis(ctx, f);
  drawEvents(ctx, recording.events, f);
  drawDivergence(ctx, recording.events, f);
  const height = laneHeight(recording.lanes.length);
  let top = AXIS + EVENT_LANE * 2 + GAP;
  for (const lane of recording.lanes) {
    drawLane(ctx, lane, f, top, height);
    top += height + GAP;
  }
  if (f.cursor !== null) stroke(ctx, xAt(f, f.cursor), 0, f.height, color("ink"), []);
}

/** @param {CanvasRenderingContext2D} ctx @param {number} x @param {number} y0 @param {number} y1 @param {string} style @param {number[]} dash */
function stroke(ctx, x, y0, y1, style, dash) {
  ctx.strokeStyle = style;
  ctx.lineWidth = 1;
  ctx.setLineDash(dash);
  ctx.beginPath();
  ctx.moveTo(Math.round(x) + 0.5, y0);
  ctx.lineTo(Math.round(x) + 0.5, y1);
  ctx.stroke();
  ctx.setLineDash([]);
}

/** @param {CanvasRenderingContext2D} ctx @param {Frame} f */
function drawAxis(ctx, f) {
  const wanted = ((f.to - f.from) * 90) / Math.max(f.width - GUTTER, 90);
  const step = STEPS_MS.find((s) => s >= wanted) ?? 43200000;
  ctx.textAlign = "center";
  for (let t = Math.ceil(f.from / step) * step; t <= f.to; t += step) {
    const x = xAt(f, t);
    if (x < GUTTER) continue;
    stroke(ctx, x, AXIS, f.height, color("grid"), []);
    ctx.fillStyle = color("muted");
    if (x < f.width - 20) ctx.fillText(timeText(t, step), x, AXIS / 2);
  }
}

/** @param {number} ms @param {number} step */
export function timeText(ms, step) {
  const digits = step >= 1000 ? 0 : step >= 100 ? 1 : step >= 10 ? 2 : 3;
  // Rounded before it is split: 59.96 s is the next minute, not a sixtieth second.
  const s = Number((ms / 1000).toFixed(digits));
  if (s < 60) return `${s.toFixed(digits)}s`;
  const rest = (s % 60).toFixed(digits).padStart(digits ? 3 + digits : 2, "0");
  return s < 3600 ? `${Math.floor(s / 60)}:${rest}` : `${Math.floor(s / 3600)}:${String(Math.floor((s % 3600) / 60)).padStart(2, "0")}:${rest}`;
}

/** Events share a color by what they speak of. @param {string} kind */
export function kindColor(kind) {
  if (/lost|div|diverg/.test(kind)) return color("bad");
  if (/epoch/.test(kind)) return curveColor(0);
  if (/sync|avg/.test(kind)) return curveColor(2);
  if (/anchor|nudge|throttle/.test(kind)) return curveColor(1);
  return curveColor(4);
}

/** Begins are solid, ends dashed; columns already drawn on are skipped. @param {CanvasRenderingContext2D} ctx @param {any[]} events @param {Frame} f */
function drawEvents(ctx, events, f) {
  label(ctx, "Events", AXIS, EVENT_LANE);
  /** @type {Map<string, number>} */
  const drawn = new Map();
  for (let i = firstEvent(events, f.from); i < events.length && events[i].t <= f.to; i += 1) {
    const e = events[i];
    if (!f.kinds.has(e.k) || e.k === "div") continue;
    const x = Math.round(xAt(f, e.t));
    if (drawn.get(e.k) === x) continue;
    drawn.set(e.k, x);
    const far = /epoch_start|anchor|rank_lost|checkpoint|custom/.test(e.k);
    stroke(ctx, x, AXIS + 4, far ? f.height : AXIS + EVENT_LANE - 4, kindColor(e.k), /_end$/.test(e.k) ? [3, 3] : []);
    ctx.fillStyle = kindColor(e.k);
    ctx.fillRect(x - 2, AXIS + 4, 5, 5);
  }
}

/** @param {any[]} events @param {number} t */
export function firstEvent(events, t) {
  let [lo, hi] = [0, events.length];
  while (lo < hi) {
    const middle = (lo + hi) >> 1;
    if (events[middle].t < t) lo = middle + 1;
    else hi = middle;
  }
  return lo;
}

/** Divergence as dots, the anchor as a stair. @param {CanvasRenderingContext2D} ctx @param {any[]} events @param {Frame} f */
function drawDivergence(ctx, events, f) {
  const top = AXIS + EVENT_LANE;
  label(ctx, "Divergence, anchor", top, EVENT_LANE);
  const dots = events.filter((e) => e.k === "div" && f.kinds.has("div") && typeof e.d === "number");
  const highest = dots.reduce((m, e) => Math.max(m, e.d), 1e-12);
  ctx.fillStyle = color("bad");
  for (const e of dots) if (e.t >= f.from && e.t <= f.to) ctx.fillRect(xAt(f, e.t) - 1.5, top + EVENT_LANE - 4 - (e.d / highest) * (EVENT_LANE - 8), 3, 3);
  ctx.fillStyle = curveColor(1);
  ctx.textAlign = "left";
  let end = -Infinity;
  for (const e of events) {
    if (e.k !== "anchor" || !f.kinds.has("anchor") || e.t < f.from || e.t > f.to) continue;
    const x = xAt(f, e.t) + 4;
    const text = `${e.from} → ${e.to}`;
    if (x < end) continue;
    ctx.fillText(text, x, top + EVENT_LANE / 2);
    end = x + ctx.measureText(text).width + 6;
  }
}

/** @param {CanvasRenderingContext2D} ctx @param {string} text @param {number} top @param {number} height */
function label(ctx, text, top, height) {
  ctx.fillStyle = color("muted");
  ctx.textAlign = "left";
  ctx.fillText(text, 0, top + height / 2, GUTTER - 10);
}

/** @param {CanvasRenderingContext2D} ctx @param {import("./recording.js").Lane} lane @param {Frame} f @param {number} top @param {number} height */
function drawLane(ctx, lane, f, top, height) {
  ctx.fillStyle = color("grid");
  ctx.globalAlpha = 0.5;
  ctx.fillRect(GUTTER, top, f.width - GUTTER, height);
  ctx.globalAlpha = 1;
  label(ctx, lane.name, top, height);
  ctx.save();
  ctx.beginPath();
  ctx.rect(GUTTER, top, f.width - GUTTER, height);
  ctx.clip();
  const edges = pixelEdges(lane.t, f);
  if (lane.heat) drawHeat(ctx, lane.heat, edges, top, height);
  drawGaps(ctx, lane.gaps, f, top, height);
  if (lane.line) drawLine(ctx, lane.line, edges, top, height);
  ctx.restore();
}

/** Where each pixel column's samples begin. A column without samples repeats the one before. @param {Float64Array} t @param {Frame} f */
function pixelEdges(t, f) {
  const columns = Math.max(1, Math.round(f.width - GUTTER));
  const edges = new Int32Array(columns + 1);
  for (let p = 0; p <= columns; p += 1) edges[p] = lowerBound(t, f.from + (p / columns) * (f.to - f.from));
  return edges;
}

/** @param {Int32Array} edges @param {number} p @returns {[number, number]} */
function covered(edges, p) {
  const from = edges[p];
  return edges[p + 1] > from ? [from, edges[p + 1]] : [Math.max(0, from - 1), from];
}

/** @param {CanvasRenderingContext2D} ctx @param {import("./recording.js").Pyramid} heat @param {Int32Array} edges @param {number} top @param {number} height */
function drawHeat(ctx, heat, edges, top, height) {
  ctx.fillStyle = curveColor(0);
  let [from, held] = [0, -1];
  for (let p = 0; p <= edges.length - 1; p += 1) {
    const [lo, hi] = p < edges.length - 1 ? heat.range(...covered(edges, p)) : [Infinity, 0];
    const level = hi >= lo ? Math.round(((lo + hi) / 200) * HEAT_LEVELS) : -1;
    if (level === held && p < edges.length - 1) continue;
    if (held > 0) {
      ctx.globalAlpha = 0.06 + (0.5 * held) / HEAT_LEVELS;
      ctx.fillRect(GUTTER + from, top, p - from, height);
    }
    [from, held] = [p, level];
  }
  ctx.globalAlpha = 1;
}

/** @param {CanvasRenderingContext2D} ctx @param {[number, number][]} gaps @param {Frame} f @param {number} top @param {number} height */
function drawGaps(ctx, gaps, f, top, height) {
  ctx.fillStyle = color("warn");
  let [lo, hi] = [0, gaps.length];
  while (lo < hi) {
    const middle = (lo + hi) >> 1;
    if (gaps[middle][1] < f.from) lo = middle + 1;
    else hi = middle;
  }
  let end = -Infinity;
  for (let i = lo; i < gaps.length && gaps[i][0] <= f.to; i += 1) {
    const x0 = Math.max(xAt(f, gaps[i][0]), end);
    const x1 = Math.max(xAt(f, gaps[i][1]), x0 + 1);
    ctx.globalAlpha = 0.45;
    if (x1 > end) ctx.fillRect(x0, top, x1 - x0, height);
    end = Math.max(end, x1);
  }
  ctx.globalAlpha = 1;
}

/** @param {CanvasRenderingContext2D} ctx @param {import("./recording.js").Pyramid} line @param {Int32Array} edges @param {number} top @param {number} height */
function drawLine(ctx, line, edges, top, height) {
  const y = (/** @type {number} */ v) => top + height - 2 - (Math.min(v, 100) / 100) * (height - 4);
  ctx.strokeStyle = color("ink");
  ctx.lineWidth = 1.25;
  ctx.beginPath();
  let pen = false;
  for (let p = 0; p < edges.length - 1; p += 1) {
    const [lo, hi] = line.range(...covered(edges, p));
    if (!(hi >= lo)) {
      pen = false;
      continue;
    }
    if (pen) ctx.lineTo(GUTTER + p, y(hi));
    else ctx.moveTo(GUTTER + p, y(hi));
    if (hi !== lo) ctx.lineTo(GUTTER + p, y(lo));
    pen = true;
  }
  ctx.stroke();
}

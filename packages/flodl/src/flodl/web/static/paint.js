// @ts-check
// What is drawn on a chart besides its curves, and the colors it is drawn with.

import { SVG_NS } from "./dom.js";
import { ago } from "./format.js";

/** Told apart without color by their dashes. @type {number[][]} */
export const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [12, 4], [4, 2], [1, 2], [9, 2, 2, 2, 2, 2]];
export const COLOR_COUNT = 8;

/** A curve's sample for a legend, with its dashes. @param {number} index */
export function swatch(index) {
  const svg = document.createElementNS(SVG_NS, "svg");
  const line = document.createElementNS(SVG_NS, "path");
  for (const [k, v] of Object.entries({ viewBox: "0 0 22 8", class: "swatch-line", "aria-hidden": "true" })) svg.setAttribute(k, v);
  line.setAttribute("d", "M0 4h22");
  line.setAttribute("stroke-dasharray", DASHES[index % DASHES.length].join(" "));
  svg.append(line);
  return svg;
}

/** @type {Record<string, string>} */
let palette = {};

/** Reads the colors of the current theme from the style sheet. */
export function readPalette() {
  const style = getComputedStyle(document.documentElement);
  palette = {};
  const names = ["ink", "muted", "line", "grid", "panel", "accent", "good", "warn", "bad"];
  for (let i = 0; i < COLOR_COUNT; i += 1) names.push(`c${i}`);
  for (const name of names) palette[name] = style.getPropertyValue(`--${name}`).trim();
}

/** @param {string} name */
export function color(name) {
  if (!palette.ink) readPalette();
  return palette[name] ?? palette.ink;
}

/** @param {number} index */
export function curveColor(index) {
  return color(`c${index % COLOR_COUNT}`);
}

/** A vertical line at each mark, thinned out when they crowd. @param {any} u @param {number[]} xs @param {string} stroke @param {number[]} dash */
export function drawMarks(u, xs, stroke, dash) {
  const { ctx, bbox } = u;
  const shown = xs.filter((x) => x >= u.scales.x.min && x <= u.scales.x.max);
  const every = Math.ceil(shown.length / Math.max(1, bbox.width / devicePixelRatio / 28));
  ctx.save();
  ctx.strokeStyle = stroke;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash(dash.map((d) => d * devicePixelRatio));
  ctx.beginPath();
  for (let i = 0; i < shown.length; i += every) {
    const x = Math.round(u.valToPos(shown[i], "x", true)) + 0.5;
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
  }
  ctx.stroke();
  ctx.restore();
}

/** The spread inside merged points. @param {any} u @param {string} scale @param {number[]} xs @param {any} lo @param {any} hi @param {string} fill */
export function drawBand(u, scale, xs, lo, hi, fill) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.fillStyle = fill;
  ctx.globalAlpha = 0.16;
  let back = [];
  ctx.beginPath();
  for (let i = 0; i <= xs.length; i += 1) {
    if (i < xs.length && typeof lo[i] === "number" && typeof hi[i] === "number") {
      const x = u.valToPos(xs[i], "x", true);
      if (back.length) ctx.lineTo(x, u.valToPos(hi[i], scale, true));
      else ctx.moveTo(x, u.valToPos(hi[i], scale, true));
      back.push([x, u.valToPos(lo[i], scale, true)]);
    } else if (back.length && (i === xs.length || lo[i] === null)) {
      for (const [x, y] of back.reverse()) ctx.lineTo(x, y);
      ctx.closePath();
      back = [];
    }
  }
  ctx.fill();
  ctx.restore();
}

/** Triangles with words where a value had no place on the axis. @param {any} u @param {{x: number, kind: string, low: boolean}[]} flags */
export function drawFlags(u, flags) {
  const { ctx, bbox } = u;
  const r = devicePixelRatio;
  const shown = flags.filter((f) => f.x >= u.scales.x.min && f.x <= u.scales.x.max);
  ctx.save();
  ctx.font = `600 ${10 * r}px ${getComputedStyle(document.body).fontFamily}`;
  ctx.textAlign = "center";
  let labelEnd = -Infinity;
  for (const flag of shown) {
    const x = u.valToPos(flag.x, "x", true);
    const y = flag.low ? bbox.top + bbox.height - 2 * r : bbox.top + 2 * r;
    const d = flag.low ? -1 : 1;
    ctx.fillStyle = flag.low ? color("muted") : color("bad");
    ctx.beginPath();
    ctx.moveTo(x - 5 * r, y);
    ctx.lineTo(x + 5 * r, y);
    ctx.lineTo(x, y + 8 * r * d);
    ctx.fill();
    const half = ctx.measureText(flag.kind).width / 2;
    const center = Math.min(Math.max(x, bbox.left + half + 2 * r), bbox.left + bbox.width - half - 2 * r);
    if (center - half < labelEnd + 4 * r) continue;
    ctx.fillText(flag.kind, center, flag.low ? y - 12 * r : y + 19 * r);
    labelEnd = center + half;
  }
  ctx.restore();
}

/** A limit that hardware sets. @param {any} u @param {string} scale @param {number} value @param {string} label */
export function drawLimit(u, scale, value, label) {
  const { ctx, bbox } = u;
  const r = devicePixelRatio;
  const y = Math.round(u.valToPos(value, scale, true)) + 0.5;
  if (y < bbox.top - 1 || y > bbox.top + bbox.height + 1) return;
  ctx.save();
  ctx.strokeStyle = color("bad");
  ctx.fillStyle = color("bad");
  ctx.lineWidth = 1.5 * r;
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.font = `600 ${10.5 * r}px ${getComputedStyle(document.body).fontFamily}`;
  ctx.textAlign = "right";
  const at = [bbox.left + bbox.width - 4 * r, y < bbox.top + 16 * r ? y + 13 * r : y - 4 * r];
  // curves run behind the words, not through them
  ctx.strokeStyle = color("panel");
  ctx.lineWidth = 4 * r;
  ctx.lineJoin = "round";
  ctx.strokeText(label, at[0], at[1]);
  ctx.fillText(label, at[0], at[1]);
  ctx.restore();
}

/** @param {number} ts @param {number} now */
export function ageText(ts, now) {
  return ts ? ago((now - ts) / 1000) : "";
}

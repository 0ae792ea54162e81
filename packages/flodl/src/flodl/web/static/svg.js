// @ts-check
// A picture from elsewhere, built anew from allowed elements and attributes only. Nothing of the
// source text reaches the page unless it is named here.

import { SVG_NS } from "./dom.js";

const ELEMENTS = new Set(["svg", "g", "title", "desc", "defs", "rect", "circle", "ellipse", "line", "polyline", "polygon", "path", "text", "tspan", "marker", "linearGradient", "stop", "clipPath"]);
const ATTRIBUTES = new Set(["viewBox", "width", "height", "x", "y", "x1", "y1", "x2", "y2", "dx", "dy", "cx", "cy", "r", "rx", "ry", "d", "points", "transform", "fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "stroke-opacity", "opacity", "font-family", "font-size", "font-weight", "font-style", "text-anchor", "dominant-baseline", "text-decoration", "id", "marker-end", "marker-start", "refX", "refY", "markerWidth", "markerHeight", "orient", "markerUnits", "gradientUnits", "offset", "stop-color", "stop-opacity", "clip-path", "preserveAspectRatio"]);
/** Only references inside the same picture. */
const LOCAL_URL = /^url\(#[\w.-]+\)$/;
const MAX_ELEMENTS = 50000;

/** @param {string} text @returns {SVGSVGElement | null} null when the text is no picture */
export function safeSvg(text) {
  // A strict page reports styles and handlers as soon as they are parsed: they get other names first.
  const tame = text.replace(/<!DOCTYPE[^>[]*(\[[^\]]*\])?[^>]*>/i, "").replace(/<(\/?)style\b/gi, "<$1dropped").replace(/<[^<]*>/g, (tag) => tag.replace(/(\s)(style|on\w+)(\s*=)/gi, "$1data-$2$3"));
  const parsed = new DOMParser().parseFromString(tame, "image/svg+xml");
  const root = parsed.documentElement;
  if (root.localName !== "svg" || parsed.querySelector("parsererror")) return null;
  const budget = { left: MAX_ELEMENTS };
  const out = /** @type {SVGSVGElement} */ (copy(root, budget));
  out.setAttribute("role", "img");
  out.setAttribute("aria-label", "Graph of the model");
  return out;
}

/** @param {Element} source @param {{left: number}} budget @returns {Element} */
function copy(source, budget) {
  const out = document.createElementNS(SVG_NS, source.localName);
  for (const { name, value } of source.attributes) if (allowed(name, value)) out.setAttribute(name, value);
  for (const [name, value] of styles(source)) if (allowed(name, value)) out.setAttribute(name, value);
  for (const child of source.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) out.append(child.nodeValue ?? "");
    else if (child instanceof Element && child.namespaceURI === SVG_NS && ELEMENTS.has(child.localName) && (budget.left -= 1) > 0) out.append(copy(child, budget));
    else if (child instanceof Element && child.localName === "a") for (const inner of child.children) if (ELEMENTS.has(inner.localName)) out.append(copy(inner, budget));
  }
  return out;
}

/** @param {string} name @param {string} value */
function allowed(name, value) {
  if (!ATTRIBUTES.has(name)) return false;
  return /url\(/i.test(value) ? LOCAL_URL.test(value.trim()) : !/javascript:|data:/i.test(value);
}

/** Declarations of a style attribute as attributes: a strict page forbids the attribute itself. @param {Element} el @returns {[string, string][]} */
function styles(el) {
  const text = el.getAttribute("data-style") ?? "";
  return text.split(";").flatMap((d) => {
    const cut = d.indexOf(":");
    return cut < 0 ? [] : [/** @type {[string, string]} */ ([d.slice(0, cut).trim(), d.slice(cut + 1).trim()])];
  });
}

// @ts-check
// Building elements. Every string becomes a text node or an attribute value, never markup.

export const SVG_NS = "http://www.w3.org/2000/svg";

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * An element with properties (`on*` functions listen, `class`, `data-*`, `aria-*` are attributes).
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function h(tag, props = {}, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") el.addEventListener(name.slice(2), value);
    else el.setAttribute(name, value === true ? "" : String(value));
  }
  el.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false).map((c) => (c instanceof Node ? c : String(c))));
  return el;
}

/** @param {string} id @returns {any} */
export function byId(id) {
  const el = document.getElementById(id);
  if (!el) throw new Error(`the page has no element #${id}`);
  return el;
}

/** Sets text only when it differs: unchanged nodes cost no layout. @param {Element} el @param {string} value */
export function setText(el, value) {
  if (el.textContent !== value) el.textContent = value;
}

/** @param {Element} el @param {string} name @param {string | null} value */
export function setAttr(el, name, value) {
  if (value === null) el.removeAttribute(name);
  else if (el.getAttribute(name) !== value) el.setAttribute(name, value);
}

/** @param {any} el @param {boolean} shown */
export function show(el, shown) {
  if (el.hidden === shown) el.hidden = !shown;
}

/** A picture from path data, 16 x 16, in the color of the text. @param {string} d */
export function icon(d) {
  const svg = document.createElementNS(SVG_NS, "svg");
  const path = document.createElementNS(SVG_NS, "path");
  for (const [k, v] of Object.entries({ viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true", class: "icon" }))
    svg.setAttribute(k, String(v));
  path.setAttribute("d", d);
  svg.append(path);
  return svg;
}

export const ICONS = {
  table: "M2 3h12v10H2zM2 6.5h12M6 6.5V13",
  image: "M8 2v8M4.5 7 8 10.5 11.5 7M2.5 13.5h11",
  close: "M4 4l8 8M12 4l-8 8",
};

/** Saves data under a name through a blob link. @param {Blob} blob @param {string} name */
export function saveBlob(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

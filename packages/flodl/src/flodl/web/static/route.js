// @ts-check
// The address: `#path=root/host-b/rank1&tab=records`.

export const TABS = ["overview", "records", "timeline"];
const SEGMENT = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

/** @param {string} path */
export function isPath(path) {
  const segments = path.split("/");
  return segments[0] === "root" && segments.length <= 8 && segments.slice(1).every((s) => SEGMENT.test(s));
}

/** @returns {{path: string, tab: string}} */
export function readRoute() {
  const fields = new URLSearchParams(location.hash.slice(1));
  const path = fields.get("path") ?? "root";
  const tab = fields.get("tab") ?? "overview";
  return { path: path === "" ? "root" : path, tab: TABS.includes(tab) ? tab : "overview" };
}

/** @param {string} path @param {string} [tab] */
export function linkTo(path, tab = "overview") {
  return `#path=${path}` + (tab === "overview" ? "" : `&tab=${tab}`);
}

/** @param {string} path */
export function parentOf(path) {
  const cut = path.lastIndexOf("/");
  return cut < 0 ? null : path.slice(0, cut);
}

/** @param {string} path */
export function nameOf(path) {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** Is `path` the scope or below it, by whole segments? @param {string} scope @param {string} path */
export function isWithin(scope, path) {
  return path === scope || path.startsWith(`${scope}/`);
}

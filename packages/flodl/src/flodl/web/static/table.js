// @ts-check
// Rows of a saved page as CSV: the union of all metric columns, empty where nothing was measured.

/** @param {any[]} rows */
export function levelCsv(rows) {
  const keys = [...new Set(rows.flatMap((r) => Object.keys(r.metrics ?? {})))];
  const resources = [...new Set(rows.flatMap((r) => Object.keys(r.res ?? {})))];
  const head = ["seq", "ts", "path", "epoch", "step", "epoch_complete", "work", ...keys, ...resources];
  const lines = rows.map((r) => [r.seq, r.ts, r.path, r.epoch, r.step, r.epoch_complete, r.work, ...keys.map((k) => finite(r.metrics?.[k])), ...resources.map((k) => r.res?.[k])]);
  return [head, ...lines].map((cells) => `${cells.map(quoted).join(",")}\n`).join("");
}

/** @param {any} value */
function finite(value) {
  return value === null ? "nan" : value;
}

/** @param {any} cell */
function quoted(cell) {
  const text = cell === undefined ? "" : String(cell);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

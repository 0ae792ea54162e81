// @ts-check
// Fewer points than pixels: each drawn point is the mean of those it stands for, its band their range.

/** @typedef {import("./chart.js").Picture} Picture */

/** @param {Picture} picture @param {number} most @returns {Picture} */
export function condensed(picture, most) {
  const { zoom } = picture;
  const count = picture.x.length;
  const first = zoom ? picture.x.findIndex((x) => x >= zoom[0]) : 0;
  const inSight = zoom ? picture.x.filter((x) => x >= zoom[0] && x <= zoom[1]).length : count;
  const size = Math.ceil(inSight / most);
  if (size <= 1 || first < 0) return picture;
  /** @type {number[]} */
  const ends = [];
  for (let i = size - 1; i < count; i += size) ends.push(i);
  if (ends.at(-1) !== count - 1) ends.push(count - 1);
  const curves = picture.curves.map((c) => {
    const mean = merged(c.values, ends, average);
    return { ...c, values: mean, raw: c.raw && merged(c.raw, ends, average), lo: merged(c.lo ?? c.values, ends, least), hi: merged(c.hi ?? c.values, ends, greatest) };
  });
  return { ...picture, x: ends.map((i) => picture.x[i]), curves };
}

/** @param {any[]} values @param {number[]} ends @param {(list: number[]) => number} join */
function merged(values, ends, join) {
  let from = 0;
  return ends.map((end) => {
    const block = values.slice(from, end + 1);
    from = end + 1;
    const held = block.filter((v) => typeof v === "number");
    if (held.length) return join(held);
    return block.includes(null) ? null : undefined;
  });
}

/** In this form the mean of equal values is that value, to the last bit. @param {number[]} list */
function average(list) {
  let mean = 0;
  list.forEach((v, i) => (mean += (v - mean) / (i + 1)));
  return mean;
}

/** @param {number[]} list */
function least(list) {
  return Math.min(...list);
}

/** @param {number[]} list */
function greatest(list) {
  return Math.max(...list);
}

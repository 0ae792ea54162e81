// @ts-check
// Text for numbers. Durations, bytes and metrics follow the console's formatters digit for digit.

/** @param {number} seconds */
export function duration(seconds) {
  if (!Number.isFinite(seconds) || seconds < 0) return "—";
  const ms = Math.round(seconds * 1000);
  if (ms < 1000) return `${ms}ms`;
  if (ms < 60000) {
    const tenths = Math.floor((ms % 1000) / 100);
    return tenths ? `${Math.floor(ms / 1000)}.${tenths}s` : `${Math.floor(ms / 1000)}s`;
  }
  const total = Math.floor(ms / 1000);
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  if (total < 3600) return `${Math.floor(total / 60)}m ${two(total % 60)}s`;
  return `${Math.floor(total / 3600)}h ${two(Math.floor((total % 3600) / 60))}m`;
}

/** A clock that does not change its width every second: `12:03`, `1:02:03`. @param {number} seconds */
export function clock(seconds) {
  if (!Number.isFinite(seconds)) return "—";
  const sign = seconds < 0 ? "-" : "";
  const s = Math.floor(Math.abs(seconds));
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  const hours = Math.floor(s / 3600);
  const rest = `${two(Math.floor((s % 3600) / 60))}:${two(s % 60)}`;
  return sign + (hours ? `${hours}:${rest}` : rest);
}

/** @param {number} count */
export function bytes(count) {
  let value = count;
  for (const unit of ["B", "KB", "MB"]) {
    if (Math.abs(value) < 1024) return `${value.toFixed(0)} ${unit}`;
    value /= 1024;
  }
  for (const unit of ["GB", "TB"]) {
    if (Math.abs(value) < 1024) return `${value.toFixed(1)} ${unit}`;
    value /= 1024;
  }
  return `${value.toFixed(1)} PB`;
}

/** Used and total in one unit, chosen by the total. @param {number} used @param {number} total */
export function bytesOf(used, total) {
  const [size, unit] = bytes(total).split(" ");
  const scale = total / Number(size) || 1;
  return `${(used / scale).toFixed(1)} / ${size} ${unit}`;
}

/** @param {number} value */
export function metric(value) {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (value === 0) return "0";
  if (Math.abs(value) < 0.001) return value.toExponential(2).replace("e+", "e");
  return Math.abs(value) < 100 ? value.toFixed(4) : value.toFixed(2);
}

/** A count as people read it: `934`, `1.93K`, `12.4M`. @param {number} value */
export function compact(value) {
  const size = Math.abs(value);
  if (size < 1000) return size < 10 ? value.toFixed(2) : size < 100 ? value.toFixed(1) : value.toFixed(0);
  for (const [limit, unit] of /** @type {[number, string][]} */ ([[1e6, "K"], [1e9, "M"], [1e12, "G"]]))
    if (size < limit) return `${(value / (limit / 1000)).toPrecision(3)}${unit}`;
  return value.toExponential(2);
}

/** Axis numbers: as many digits as neighbors need to differ. @param {number} value @param {number} step */
export function tick(value, step) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-3) return value.toExponential(1).replace(".0e", "e");
  const [unit, name] = /** @type {[number, string]} */ (size < 1e4 ? [1, ""] : size < 1e6 ? [1e3, "K"] : size < 1e9 ? [1e6, "M"] : [1e9, "G"]);
  const apart = step / unit;
  let digits = step > 0 ? 0 : 4;
  while (digits < 6 && Math.abs(Number(apart.toFixed(digits)) - apart) > apart * 1e-6) digits += 1;
  return `${Number((value / unit).toFixed(digits))}${name}`;
}

/** @param {number} ts Unix milliseconds */
export function wallTime(ts) {
  const date = new Date(ts);
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** @param {number} seconds */
export function ago(seconds) {
  if (seconds < 5) return "now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  return `${duration(Math.floor(seconds))} ago`;
}

const collator = new Intl.Collator("en", { numeric: true });

/** `rank2` before `rank10`. @param {string} a @param {string} b */
export function natural(a, b) {
  return collator.compare(a, b);
}

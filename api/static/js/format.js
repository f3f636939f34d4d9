/** Numbers, times, runs and ranges as a person reads them. */

const GROUPED = new Intl.NumberFormat("en-US");

/** 1234567 -> "1,234,567". @param {number} value */
export function count(value) {
  return GROUPED.format(value);
}

/** "1 node", "2 nodes". @param {number} value @param {string} noun @param {string} [plural] */
export function counted(value, noun, plural = `${noun}s`) {
  return `${count(value)} ${value === 1 ? noun : plural}`;
}

/** Short for an axis: 1200 -> "1.2k". @param {number} value */
export function short(value) {
  if (value >= 1e6) return `${trimmed(value / 1e6)}M`;
  if (value >= 1e3) return `${trimmed(value / 1e3)}k`;
  return String(value);
}

function trimmed(value) {
  return String(Math.round(value * 100) / 100);
}

/** A sentence of the service as one of the page. @param {string} text */
export function capital(text) {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}.`;
}

/** Half-open, as everywhere here. @param {number} start @param {number} end */
export function span(start, end) {
  return `[${count(start)}, ${count(end)})`;
}

/** Microseconds since 1970 -> "2026-11-29 18:03:11.482 UTC". @param {number|null|undefined} us */
export function time(us) {
  if (us === null || us === undefined) return "";
  return `${new Date(us / 1000).toISOString().replace("T", " ").replace("Z", "")} UTC`;
}

/** Only the time of day. @param {number|null|undefined} us */
export function clock(us) {
  return time(us).slice(11, 23);
}

/** One run: "5" or "5–8". @param {import("./types.js").Run} run */
export function run([first, length]) {
  return length === 1 ? String(first) : `${first}–${first + length - 1}`;
}

/** An origin as "r1, epoch 3". @param {import("./types.js").Origin|null} value */
export function origin(value) {
  if (value === null) return "none";
  return `${value.request ?? "a raw insert"}, epoch ${value.epoch}`;
}

/** A whole number as typed ("1 200" and "1,200" are 1200), or null. @param {string} text */
export function typedNumber(text) {
  const digits = text.replace(/[\s,_]/g, "");
  if (!/^\d{1,16}$/.test(digits)) return null;
  return Number(digits);
}

/** Round numbers for an axis: at least `least` apart. @param {number} least */
export function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  for (const factor of [1, 2, 5, 10]) {
    if (factor * power >= least) return factor * power;
  }
  return 10 * power;
}

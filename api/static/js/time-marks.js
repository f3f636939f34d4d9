/**
 * What is marked on the time bar: where it comes from, how each kind looks, and the way to the next one.
 * A mark may stand for many seqs; finding the very event asks again, closer, until it stands for one.
 */

import { get } from "./api.js";
import { journalPath } from "./state.js";
import { colour } from "./theme.js";

/** The service's most buckets; finding one event among 10^9 takes three questions. */
const MOST_BUCKETS = 1000;
const CLOSER_AT_MOST = 8;

/** Kinds in the order of their lanes, from the top. */
export const MARK_KINDS = [
  { key: "anomalies", name: "anomaly", many: "anomalies", colour: "mark-anomaly", glyph: diamond },
  { key: "rollbacks", name: "rollback", many: "rollbacks", colour: "mark-rollback", glyph: triangle },
  {
    key: "recoveries_under_lock",
    name: "recovery under lock",
    many: "recoveries under lock",
    colour: "mark-recovery",
    glyph: disc,
  },
  { key: "resets", name: "reset", many: "resets", colour: "mark-reset", glyph: square },
];

/** @returns {Promise<import("./types.js").Marks>} */
export function askMarks(first, last, buckets, signal) {
  return get(
    journalPath("/marks"),
    { first_seq: first, last_seq: last, buckets: Math.min(buckets, MOST_BUCKETS) },
    { signal },
  );
}

/** Whether anything of the chosen kind is in a mark; any kind where none is chosen. */
function has(mark, kind) {
  return kind ? mark[kind] > 0 : MARK_KINDS.some(({ key }) => mark[key] > 0) || mark.gaps > 0;
}

/**
 * The seq of the first (or, going back, the last) marked event in [first, last], or null.
 * @param {number} first @param {number} last @param {1|-1} direction @param {string} [kind]
 */
export async function findMark(first, last, direction, kind) {
  for (let tries = 0; tries < CLOSER_AT_MOST && first <= last; tries += 1) {
    const { marks } = await askMarks(first, last, MOST_BUCKETS);
    const found = marks.filter((mark) => has(mark, kind));
    const mark = direction > 0 ? found[0] : found.at(-1);
    if (!mark) return null;
    if (mark.first_seq === mark.last_seq || (mark.first_seq <= first && mark.last_seq >= last)) {
      return direction > 0 ? mark.first_seq : mark.last_seq;
    }
    first = Math.max(first, mark.first_seq);
    last = Math.min(last, mark.last_seq);
  }
  return first <= last ? first : null;
}

/** A mark in words, for a tooltip. */
export function markText(mark) {
  const parts = MARK_KINDS.filter(({ key }) => mark[key] > 0).map(
    ({ key, name, many }) => `${mark[key]} ${mark[key] === 1 ? name : many}`,
  );
  if (mark.gaps > 0)
    parts.push(`${mark.gaps} ${mark.gaps === 1 ? "gap: events" : "gaps: events"} were never stored`);
  return parts.join("\n");
}

/** Draw a glyph at its middle. @param {CanvasRenderingContext2D} pen */
export function paintGlyph(pen, kind, x, y) {
  pen.fillStyle = colour(kind.colour);
  pen.strokeStyle = colour(kind.colour);
  pen.lineWidth = 1.5;
  pen.beginPath();
  kind.glyph(pen, x, y);
}

function diamond(pen, x, y) {
  pen.moveTo(x, y - 5);
  pen.lineTo(x + 4.5, y);
  pen.lineTo(x, y + 5);
  pen.lineTo(x - 4.5, y);
  pen.fill();
}

function triangle(pen, x, y) {
  pen.moveTo(x - 4.5, y);
  pen.lineTo(x + 3, y - 4.5);
  pen.lineTo(x + 3, y + 4.5);
  pen.closePath();
  pen.stroke();
}

function disc(pen, x, y) {
  pen.arc(x, y, 4, 0, 7);
  pen.fill();
}

function square(pen, x, y) {
  pen.rect(x - 3.5, y - 3.5, 7, 7);
  pen.stroke();
}

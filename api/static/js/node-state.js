/**
 * How the state of a node looks: one fill and one letter a state, an outline for tombstones, a hatch for
 * mixed origins. Tree, legend, panel and pool maps draw from this table, so that a look means one thing
 * everywhere.
 */

import { make, sharp } from "./dom.js";
import { counted, span } from "./format.js";
import { colour } from "./theme.js";

/**
 * @typedef {"both"|"full"|"evictable"|"idle"} Hold
 * @type {Record<Hold, {letter: string, says: string}>}
 */
export const HOLDS = {
  both: { letter: "S", says: "Full- and SWA-locked" },
  full: { letter: "F", says: "Full-locked" },
  evictable: { letter: "E", says: "evictable" },
  idle: { letter: "", says: "not locked, not evictable yet" },
};

/** @param {import("./types.js").Brief} node @returns {Hold} */
export function holdOf(node) {
  if (node.swa_lock > 0) return "both";
  if (node.full_lock > 0) return "full";
  return node.evictable_full || node.evictable_swa ? "evictable" : "idle";
}

/** The letters on a node: hold, T for tombstone, M for mixed. @param {import("./types.js").Brief} node */
export function lettersOf(node) {
  return HOLDS[holdOf(node)].letter + (node.tombstone ? "T" : "") + (node.mixed ? "M" : "");
}

/** The same in words. @param {import("./types.js").Brief} node */
export function wordsOf(node) {
  const words = [HOLDS[holdOf(node)].says];
  if (holdOf(node) === "evictable" && !node.evictable_full) words[0] = "SWA evictable";
  if (node.tombstone) words.push("tombstone");
  if (node.mixed) words.push("mixed origins");
  return words;
}

/**
 * Fill one rectangle in the look of a state. Narrow ones get their colour alone.
 * @param {CanvasRenderingContext2D} pen
 * @param {{x: number, y: number, width: number, height: number}} at
 * @param {{hold: Hold, tombstone: boolean, mixed: boolean}} look
 */
export function paintState(pen, { x, y, width, height }, { hold, tombstone, mixed }) {
  pen.fillStyle = colour(`state-${hold}`);
  if (!tombstone) {
    pen.fillRect(x, y, width, height);
  } else {
    // Hollow: a band of the hold's colour on the left, the rest empty within a dashed outline.
    const band = Math.min(5, Math.max(1, Math.round(width * 0.35)));
    pen.fillStyle = colour("state-hollow");
    pen.fillRect(x, y, width, height);
    pen.fillStyle = colour(`state-${hold}`);
    pen.fillRect(x, y, band, height);
    if (width > 3 && height > 3) {
      pen.strokeStyle = colour("line-strong");
      pen.lineWidth = 1;
      pen.setLineDash([3, 2]);
      pen.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
      pen.setLineDash([]);
    }
  }
  if (mixed && width > 2)
    hatch(pen, { x, y, width, height }, hold === "both" && !tombstone ? "mixed-on-both" : "mixed");
}

/**
 * Diagonal lines over a rectangle. Lines keep their place on the screen, so that scrolling does not
 * shimmer.
 */
function hatch(pen, { x, y, width, height }, ink) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, width, height);
  pen.clip();
  pen.strokeStyle = colour(ink);
  pen.lineWidth = 1;
  pen.beginPath();
  for (let at = x - height; at < x + width; at += 7) {
    pen.moveTo(at, y + height);
    pen.lineTo(at + height, y);
  }
  pen.stroke();
  pen.restore();
}

/** The colour of letters on a state. @param {Hold} hold @param {boolean} tombstone */
export function inkOn(hold, tombstone) {
  return colour(tombstone ? "on-hollow" : `on-${hold}`);
}

/** One entry of a legend: a drawn sample and its words. Redrawn with the theme by its owner. */
export function legendKey(words, paint) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  const draw = () => {
    const pen = sharp(canvas, 22, 14);
    pen.clearRect(0, 0, 22, 14);
    paint(pen, { x: 0, y: 0, width: 22, height: 14 });
  };
  return { element: make("span", { class: "key" }, canvas, words), draw };
}

/** A letter in the middle of a sample or a page. */
export function letter(pen, text, { x, y, width, height }, ink) {
  pen.fillStyle = ink;
  pen.font = `600 ${Math.min(11, height - 3)}px system-ui, sans-serif`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.fillText(text, x + width / 2, y + height / 2 + 0.5);
}

/** What a node is, in a few lines. */
export function briefText(node) {
  return [
    `node ${node.id} · ${counted(node.end - node.start, "token")} ${span(node.start, node.end)}`,
    wordsOf(node).join(", "),
    `Full locks ${node.full_lock}, SWA locks ${node.swa_lock}`,
    node.nodes_below ? `${counted(node.nodes_below, "node")} below it` : "a leaf",
  ].join("\n");
}

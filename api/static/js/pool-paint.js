/** How a page looks, by who has it: colour and sign together. Shared by both maps and their legend. */

import { inkOn, letter, paintState } from "./node-state.js";
import { colour } from "./theme.js";

const SIGNS_FROM = 9;

/** @type {Record<string, {words: string, place: string, locked: boolean, tombstone: boolean}>} */
export const LOOKS = {
  locked: { words: "tree, locked (L)", place: "tree", locked: true, tombstone: false },
  lockedTombstone: { words: "tree, locked, no SWA", place: "tree", locked: true, tombstone: true },
  tree: { words: "tree, evictable", place: "tree", locked: false, tombstone: false },
  tombstone: { words: "tree, evictable, no SWA", place: "tree", locked: false, tombstone: true },
  request: { words: "a request's own (R)", place: "request", locked: false, tombstone: false },
  caller: { words: "a caller's (C)", place: "caller", locked: false, tombstone: false },
  deferred: { words: "free at commit (·)", place: "deferred", locked: false, tombstone: false },
  free: { words: "free", place: "free", locked: false, tombstone: false },
};

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {{x: number, y: number, width: number, height: number}} at
 * @param {{place: string, locked: boolean, tombstone: boolean}} owner
 */
export function paintPage(pen, at, owner) {
  const hasSigns = at.height >= SIGNS_FROM;
  if (owner.place === "tree") {
    const hold = owner.locked ? "both" : "evictable";
    paintState(pen, at, { hold, tombstone: owner.tombstone, mixed: false });
    if (hasSigns && owner.locked && !owner.tombstone) letter(pen, "L", at, inkOn("both", false));
  } else if (owner.place === "request" || owner.place === "caller") {
    pen.fillStyle = colour(`place-${owner.place}`);
    pen.fillRect(at.x, at.y, at.width, at.height);
    if (hasSigns) letter(pen, owner.place === "request" ? "R" : "C", at, colour(`on-${owner.place}`));
  } else {
    pen.fillStyle = colour("state-hollow");
    pen.fillRect(at.x, at.y, at.width, at.height);
    pen.strokeStyle = colour("line");
    pen.lineWidth = 1;
    if (at.width > 2) pen.strokeRect(at.x + 0.5, at.y + 0.5, at.width - 1, at.height - 1);
    if (owner.place === "deferred") {
      pen.fillStyle = colour("place-deferred");
      pen.fillRect(at.x + at.width / 2 - 1.5, at.y + at.height / 2 - 1.5, 3, 3);
    }
  }
}

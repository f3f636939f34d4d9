/**
 * Links inside the page: to a seq, a node, a request, a slot. Each chooses; what is chosen is told at the
 * side.
 */

import { make } from "./dom.js";
import { count } from "./format.js";
import { goBefore, goToEvent } from "./moment.js";
import { change } from "./state.js";

/** Runs shown before the rest is summed up. */
const RUNS_SHOWN = 24;

function link(text, title, choose) {
  return make("button", { type: "button", class: "link", title, on: { click: choose } }, text);
}

/** To the state that the event's transaction left. @param {number} seq @param {string} [text] */
export function seqLink(seq, text = `seq ${count(seq)}`) {
  return link(text, "Show the state after this event's transaction", () => goToEvent(seq));
}

/** To the state before it. @param {number} seq */
export function beforeLink(seq) {
  return link("before", "Show the state before this event's transaction", () => goBefore(seq));
}

/** @param {number} id @param {string} [text] */
export function nodeLink(id, text = `node ${id}`) {
  return link(text, `Select node ${id}`, () => change({ pick: { type: "node", id } }));
}

/** @param {string} id */
export function requestLink(id) {
  return link(id, `Select request ${id}`, () => change({ pick: { type: "request", id } }));
}

/** @param {"full"|"swa"} pool @param {number} slot @param {string} [text] */
export function slotLink(pool, slot, text = String(slot)) {
  return link(text, `What happened to ${pool} slot ${slot}`, () =>
    change({ pick: { type: "slot", pool, slot } }),
  );
}

/**
 * Numbers as runs, each a link to the slot it begins with.
 * @param {import("./types.js").Runs} runs
 * @param {"full"|"swa"} pool
 * @param {number} slotsEach  1 for slots, the page size for pages
 */
export function runLinks(runs, pool, slotsEach) {
  const parts = [];
  for (const [first, length] of runs.runs.slice(0, RUNS_SHOWN)) {
    const text = length === 1 ? String(first) : `${first}–${first + length - 1}`;
    parts.push(slotLink(pool, first * slotsEach, text), " ");
  }
  const told = runs.runs.slice(0, RUNS_SHOWN).reduce((sum, [, length]) => sum + length, 0);
  if (told < runs.total) parts.push(`and ${count(runs.total - told)} more`);
  return make("span", { class: "runs" }, ...(parts.length ? parts : ["none"]));
}

/** Runs as plain text, to compare one state with another. @param {import("./types.js").Runs|null} runs */
export function runText(runs) {
  return runs === null ? "none" : runs.runs.map(([first, length]) => `${first}+${length}`).join(" ");
}

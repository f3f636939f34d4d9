/** The one tooltip. It follows the pointer, stays inside the window and never takes a click. */

import { byId } from "./dom.js";

const OFFSET = 14;

/** @param {string} text  lines @param {{clientX: number, clientY: number}} at */
export function showTip(text, at) {
  const tip = byId("tooltip");
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const x = Math.min(at.clientX + OFFSET, innerWidth - box.width - 8);
  const below = at.clientY + OFFSET + box.height < innerHeight;
  tip.style.left = `${Math.max(8, x)}px`;
  tip.style.top = `${below ? at.clientY + OFFSET : at.clientY - OFFSET - box.height}px`;
}

export function hideTip() {
  byId("tooltip").hidden = true;
}

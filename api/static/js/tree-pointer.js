/** The tree by mouse: hover tells, a click selects, a drag moves, the wheel scrolls and zooms. */

import { byId } from "./dom.js";
import { briefText } from "./node-state.js";
import { change } from "./state.js";
import { hideTip, showTip } from "./tooltip.js";
import { data, hover, layout, pan, zoom } from "./tree-view.js";

const WHEEL_ZOOM = 1.15;
/** A hand is never quite still: a click that moved less is one. */
const STILL_PX = 4;

const canvas = byId("tree-canvas");
let dragged = 0;

function position(event) {
  const box = canvas.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

function nodeAt(event) {
  const { x, y } = position(event);
  return layout.hit(data.picture?.nodes ?? [], x, y);
}

function onMove(event) {
  if (event.buttons === 1 && event.pointerType !== "touch") {
    dragged += Math.abs(event.movementX) + Math.abs(event.movementY);
    if (dragged > STILL_PX) pan(-event.movementX, -event.movementY);
    hideTip();
    return;
  }
  const node = nodeAt(event);
  hover(node?.id ?? null);
  if (node) showTip(briefText(node), event);
  else hideTip();
}

function onClick(event) {
  const node = dragged > STILL_PX ? null : nodeAt(event);
  if (node) change({ pick: { type: "node", id: node.id } });
}

function onWheel(event) {
  if (event.ctrlKey || event.metaKey) {
    event.preventDefault();
    zoom(event.deltaY < 0 ? WHEEL_ZOOM : 1 / WHEEL_ZOOM, position(event).x);
  } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    event.preventDefault();
    pan(event.deltaX || event.deltaY, 0);
  }
}

export function startTreePointer() {
  canvas.addEventListener("pointerdown", () => {
    dragged = 0;
  });
  canvas.addEventListener("pointermove", onMove);
  canvas.addEventListener("pointerleave", () => {
    hover(null);
    hideTip();
  });
  canvas.addEventListener("click", onClick);
  canvas.addEventListener("wheel", onWheel, { passive: false });
}

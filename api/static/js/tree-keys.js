/**
 * The tree by keyboard: right goes to the first child, left to the parent, up and down to the siblings,
 * across to the neighbouring branch where there is none. What is selected is said in words for those who
 * do not see it.
 */

import { byId } from "./dom.js";
import { briefText } from "./node-state.js";
import { report } from "./notices.js";
import { change, look, whenChanged } from "./state.js";
import {
  changeRowHeight,
  data,
  fit,
  layout,
  reveal,
  whenPictureChanges,
  zoomIn,
  zoomOut,
} from "./tree-view.js";

function current() {
  return look.pick?.type === "node" ? data.byId.get(look.pick.id) : undefined;
}

function first() {
  const { first: row } = layout.visibleRows();
  return data.inRow(row, 0) ?? data.picture?.nodes[0];
}

/** The node that a key leads to, fetching the row it is in where that is not known. */
async function neighbour(node, key) {
  if (key === "ArrowLeft") return node.parent === null ? node : known(node.parent, node.row);
  if (key === "ArrowRight") return data.childOf(node) ?? node;
  const row = key === "ArrowDown" ? node.row + node.rows : node.row - 1;
  if (row < 0 || row >= layout.rowsTotal) return node;
  if (!data.inRow(row, Infinity)) await data.cover({ first: row, rows: 1 });
  const sibling = data.picture.nodes.find(
    (other) => other.parent === node.parent && row >= other.row && row < other.row + other.rows,
  );
  return sibling ?? data.inRow(row, node.start) ?? node;
}

async function known(id, row) {
  if (!data.byId.has(id)) await data.cover({ first: row, rows: 1 });
  return data.byId.get(id);
}

async function move(key) {
  try {
    const from = current();
    const to = from ? await neighbour(from, key) : first();
    if (!to) return;
    change({ pick: { type: "node", id: to.id } });
    await reveal(to);
  } catch (error) {
    report("Tree", error);
  }
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key.startsWith("Arrow")) move(event.key);
  else if (event.key === "Enter") enter();
  else if (event.key === "+" || event.key === "=") zoomIn();
  else if (event.key === "{") changeRowHeight(-1);
  else if (event.key === "}") changeRowHeight(1);
  else if (event.key === "-") zoomOut();
  else if (event.key === "0") fit();
  else return;
  event.preventDefault();
  event.stopPropagation();
}

/** Enter selects the first node where none is, and goes to what is told about the one that is. */
function enter() {
  if (!current()) move("Enter");
  else byId("side").focus();
}

function sayCurrent() {
  const node = current();
  const text = node ? briefText(node).replaceAll("\n", "; ") : "";
  if (byId("tree-said").textContent !== text) byId("tree-said").textContent = text;
}

export function startTreeKeys() {
  byId("tree-canvas").addEventListener("keydown", onKey);
  byId("skip-to-tree").addEventListener("click", (event) => {
    event.preventDefault();
    byId("tree-canvas").focus();
  });
  whenChanged(["pick"], sayCurrent);
  whenPictureChanges(sayCurrent);
}

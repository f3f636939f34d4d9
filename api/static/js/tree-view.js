/**
 * The tree on the screen: its canvas and its scrolling. What is drawn comes from tree-data.js, where
 * it lies from tree-layout.js; tree-bar.js, tree-pointer.js and tree-keys.js move it.
 */

import { get } from "./api.js";
import { byId, perFrame, sharp, whenQuiet } from "./dom.js";
import { capital, count, counted } from "./format.js";
import { report, settle } from "./notices.js";
import { journalPath, look, shownSeq, whenChanged } from "./state.js";
import { whenThemeChanges } from "./theme.js";
import { TreeData } from "./tree-data.js";
import { AXIS_HEIGHT, Layout, ROW_HEIGHTS } from "./tree-layout.js";
import { paintTree } from "./tree-paint.js";

const GUTTER = 76;
/** Where there are no names of namespaces there is still room for the frame of what is selected. */
const GUTTER_WITHOUT_NAMES = 6;
const SCROLL_SETTLES_MS = 60;
const ZOOM_STEP = 1.4;

export const layout = new Layout();
export const data = new TreeData();
const scroller = byId("tree-scroller");
const canvas = byId("tree-canvas");
let hovered = null;
let isFirst = true;
/** A node to bring into sight once there is a picture: before that nothing has a place. */
let wanted = null;

const redraw = perFrame(draw);
const coverSoon = whenQuiet(cover, SCROLL_SETTLES_MS);
/** @type {(() => void)[]} */
const watchers = [];

/** Be told when another picture is drawn. */
export function whenPictureChanges(tell) {
  watchers.push(tell);
}

async function cover() {
  if (shownSeq() === undefined) return;
  try {
    const changed = await data.cover(layout.visibleRows());
    settle("Tree");
    if (changed) await take();
  } catch (error) {
    report("Tree", error);
  }
  redraw();
}

/** A new answer is there: sizes follow it, and what was to be brought into sight is. */
async function take() {
  const picture = data.picture;
  layout.rowsTotal = picture.rows_total;
  layout.endMax = Math.max(1, picture.end_max);
  layout.gutter =
    picture.namespaces_total > 1 || picture.namespaces.some((name) => name !== "")
      ? GUTTER
      : GUTTER_WITHOUT_NAMES;
  if (isFirst && picture.rows_total > 0) {
    isFirst = false;
    layout.rowHeight = bestRowHeight(picture.rows_total);
  }
  layout.clamp();
  resize();
  for (const tell of watchers) tell();
  if (wanted !== null) {
    const id = wanted;
    wanted = null;
    await revealId(id);
  }
  // Fewer rows than before can leave the view past the end; a lower row height can leave it uncovered.
  coverSoon();
}

/**
 * Rows as high as they can be with all of them in sight; readable ones where that would make them too low.
 */
function bestRowHeight(rows) {
  const room = Math.floor((scroller.clientHeight - AXIS_HEIGHT - 12) / rows);
  return room >= ROW_HEIGHTS[2] ? Math.min(room, ROW_HEIGHTS.at(-1)) : ROW_HEIGHTS[4];
}

function resize() {
  layout.width = scroller.clientWidth;
  layout.height = scroller.clientHeight;
  canvas.style.height = `${layout.height}px`;
  byId("tree-space").style.height = `${layout.fullHeight}px`;
  layout.top = scroller.scrollTop;
  layout.clamp();
}

function draw() {
  const pen = sharp(canvas, layout.width, layout.height);
  canvas.setAttribute("aria-busy", String(data.busy));
  const picked = look.pick?.type === "node" ? look.pick.id : null;
  paintTree(pen, layout, data, { picked, hovered, path: pathOf(picked), stale: data.busy });
  const empty = byId("tree-empty");
  empty.hidden = (data.picture?.nodes.length ?? 0) > 0;
  empty.textContent = emptyText();
}

function emptyText() {
  if (look.journal === null) return "There is no journal in this store yet.";
  if (look.info?.last_seq === null)
    return "Nothing has been journaled yet; the page waits for the first event.";
  if (look.unknown !== null) return "This state cannot be known; the events below are told all the same.";
  if (data.picture === null) return "Reading the journal…";
  // A namespace that is not there is not the same as an empty tree.
  if (data.picture.sentence) return capital(data.picture.sentence);
  return "No node is in the tree at this seq.";
}

function pathOf(id) {
  const path = new Set();
  for (let node = data.byId.get(id); node && node.parent !== null; node = data.byId.get(node.parent))
    path.add(node.parent);
  return path;
}

/** Bring a known node into sight. */
export async function reveal(node) {
  const y = layout.y(node.row);
  const bottom = y + Math.min(node.rows * layout.rowHeight, layout.height / 2);
  if (y < 24 || bottom > layout.height) {
    scroller.scrollTop = Math.max(0, node.row * layout.rowHeight - layout.height / 3);
    layout.top = scroller.scrollTop;
    await cover();
  }
  layout.reveal(node);
  redraw();
}

/** Select a node, wherever it is, and bring it into sight. @param {number} id */
export async function revealId(id) {
  if (data.picture === null) {
    wanted = id;
    return;
  }
  const known = data.byId.get(id);
  // Rows of a filtered tree are not those that a node is told with.
  if (!known && (look.root !== null || look.namespace !== null)) return;
  try {
    const query = { at: shownSeq(), absent: "tell" };
    const node = known ?? (await get(journalPath(`/nodes/${id}`), query)).node;
    // A node that is not in the tree at this seq is told about at the side, where its history is.
    if (node) await reveal(node);
  } catch (error) {
    report("Tree", error);
  }
}

/** Where buttons and keys zoom: at what is selected, where it is in sight, else in the middle. */
function zoomPoint() {
  const picked = look.pick?.type === "node" ? data.byId.get(look.pick.id) : undefined;
  const x = picked ? layout.x((picked.start + picked.end) / 2) : -1;
  return x > layout.gutter && x < layout.width ? x : (layout.gutter + layout.width) / 2;
}

/** @param {number} factor @param {number} [x] */
export function zoom(factor, x = zoomPoint()) {
  layout.zoomAt(factor, x);
  redraw();
}

export function zoomIn() {
  zoom(ZOOM_STEP);
}

export function zoomOut() {
  zoom(1 / ZOOM_STEP);
}

export function fit() {
  layout.fit();
  redraw();
}

/** Higher or lower rows, keeping the row in the middle in the middle. @param {number} by */
export function changeRowHeight(by) {
  const others = ROW_HEIGHTS.filter((height) =>
    by > 0 ? height > layout.rowHeight : height < layout.rowHeight,
  );
  const next = others.at(by > 0 ? 0 : -1) ?? layout.rowHeight;
  const middle = (layout.top + layout.height / 2) / layout.rowHeight;
  layout.rowHeight = next;
  byId("tree-space").style.height = `${layout.fullHeight}px`;
  scroller.scrollTop = middle * next - layout.height / 2;
  layout.top = scroller.scrollTop;
  redraw();
  coverSoon();
}

/** Outline the node under the pointer. @param {number|null} id */
export function hover(id) {
  if (id === hovered) return;
  hovered = id;
  redraw();
}

/** Move the picture by so many pixels. @param {number} right @param {number} down */
export function pan(right, down) {
  layout.panBy(right);
  if (down) scroller.scrollTop += down;
  redraw();
}

export function startTreeView() {
  scroller.addEventListener("scroll", () => {
    layout.top = scroller.scrollTop;
    redraw();
    coverSoon();
  });
  new ResizeObserver(() => {
    resize();
    redraw();
    coverSoon();
  }).observe(scroller);
  whenThemeChanges(redraw);
  whenChanged(["journal"], () => {
    data.clear();
    isFirst = true;
    layout.fit();
    scroller.scrollTop = 0;
    redraw();
  });
  whenChanged(["shown", "unknown", "root", "namespace", "depth", "info"], (changed) => {
    if (changed.has("root") || changed.has("namespace")) {
      scroller.scrollTop = 0;
      layout.top = 0;
      layout.fit();
    }
    if (changed.size > 1 || !changed.has("info")) cover();
    redraw();
  });
  whenChanged(["pick", "shown"], (changed) => {
    redraw();
    if (look.pick?.type !== "node" || !look.shown) return;
    if (changed.has("pick") || data.picture === null) revealId(look.pick.id);
  });
  resize();
}

/** How much of the tree is drawn, for a person. */
export function shareText() {
  const picture = data.picture;
  if (!picture) return "";
  const rows = layout.visibleRows();
  const last = Math.min(rows.first + rows.rows, picture.rows_total);
  const nodes = `${count(picture.nodes.length)} of ${counted(picture.nodes_total, "node")}`;
  const cut = picture.truncated ? "; more nodes lie in these rows" : "";
  const first = Math.min(rows.first + 1, last);
  return `showing ${nodes} · rows ${count(first)}–${count(last)} of ${count(picture.rows_total)}${cut}`;
}

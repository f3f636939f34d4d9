/** Drawing the picture of the tree on its canvas: axis, namespaces, nodes, selection. Decides nothing. */

import { count, niceStep, short } from "./format.js";
import { holdOf, inkOn, lettersOf, paintState } from "./node-state.js";
import { colour } from "./theme.js";
import { AXIS_HEIGHT } from "./tree-layout.js";

const LEAST_TICK_PX = 80;
const LETTERS_FROM_HEIGHT = 11;
const LETTERS_FROM_WIDTH = 12;
const NAMES_FROM_WIDTH = 40;

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {import("./tree-layout.js").Layout} layout
 * @param {import("./tree-data.js").TreeData} data
 * @param {{picked: number|null, hovered: number|null, path: Set<number>, stale: boolean}} marks
 */
export function paintTree(pen, layout, data, marks) {
  pen.clearRect(0, 0, layout.width, layout.height);
  const nodes = data.picture?.nodes ?? [];
  pen.save();
  pen.beginPath();
  pen.rect(layout.gutter - 4, AXIS_HEIGHT, layout.width - layout.gutter + 4, layout.height - AXIS_HEIGHT);
  pen.clip();
  pen.globalAlpha = marks.stale ? 0.75 : 1;
  for (const node of nodes) paintNode(pen, layout, node, node.children > 0 && !data.parents.has(node.id));
  pen.globalAlpha = 1;
  for (const node of nodes) {
    if (marks.path.has(node.id)) outline(pen, layout, node, "text", 1);
    if (node.id === marks.hovered) outline(pen, layout, node, "text", 2);
  }
  const picked = marks.picked === null ? undefined : data.byId.get(marks.picked);
  if (picked) frame(pen, layout, picked);
  pen.restore();
  if (layout.gutter >= NAMES_FROM_WIDTH) paintNamespaces(pen, layout, nodes);
  paintAxis(pen, layout);
}

function paintNode(pen, layout, node, isCut) {
  const at = layout.rect(node);
  if (
    at.x > layout.width ||
    at.x + at.width < layout.gutter ||
    at.y > layout.height ||
    at.y + at.height < AXIS_HEIGHT
  ) {
    return;
  }
  // Only the part on the screen is drawn, so that a node of 100,000 rows costs no more than one of ten.
  const top = Math.max(at.y, AXIS_HEIGHT - 4);
  const left = Math.max(at.x, layout.gutter - 8);
  const seen = {
    x: left,
    y: top,
    width: Math.min(at.x + at.width, layout.width + 8) - left,
    height: Math.min(at.y + at.height, layout.height + 4) - top,
  };
  const hold = holdOf(node);
  paintState(pen, seen, { hold, tombstone: node.tombstone, mixed: node.mixed });
  if (layout.rowHeight >= LETTERS_FROM_HEIGHT && seen.width >= LETTERS_FROM_WIDTH)
    paintLabel(pen, layout, node, seen, hold);
  if (isCut) paintMore(pen, layout, at, seen);
}

function paintLabel(pen, layout, node, seen, hold) {
  const letters = lettersOf(node);
  const size = Math.min(12, layout.rowHeight - 4);
  pen.font = `600 ${size}px system-ui, sans-serif`;
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  const long = `${letters}${letters ? "  " : ""}${node.id}`;
  const inset = node.tombstone ? 9 : 5;
  const room = seen.width - inset - 3;
  const text = pen.measureText(long).width <= room ? long : letters;
  const width = pen.measureText(text).width;
  if (!text || width > room) return;
  const middle = Math.max(seen.y, AXIS_HEIGHT) + Math.min(seen.height, layout.rowHeight) / 2 + 0.5;
  if (node.mixed) {
    // Letters on a hatch need ground of their own.
    pen.fillStyle = colour(node.tombstone ? "state-hollow" : `state-${hold}`);
    pen.fillRect(seen.x + inset - 2, middle - size / 2 - 1, width + 4, size + 2);
  }
  pen.fillStyle = inkOn(hold, node.tombstone);
  pen.fillText(text, seen.x + inset, middle);
}

/** A notch at the right edge: there is more below than is drawn. */
function paintMore(pen, layout, at, seen) {
  const x = at.x + at.width;
  const y = Math.max(seen.y, AXIS_HEIGHT) + Math.min(seen.height, layout.rowHeight) / 2;
  const half = Math.min(5, layout.rowHeight / 2 - 1);
  if (half < 1) return;
  pen.fillStyle = colour("text");
  pen.beginPath();
  pen.moveTo(x + 2, y - half);
  pen.lineTo(x + 2 + half, y);
  pen.lineTo(x + 2, y + half);
  pen.fill();
}

function outline(pen, layout, node, name, width) {
  const at = layout.rect(node);
  const top = Math.max(at.y, AXIS_HEIGHT - 8);
  const bottom = Math.min(at.y + at.height, layout.height + 8);
  pen.strokeStyle = colour(name);
  pen.lineWidth = width;
  pen.strokeRect(
    at.x + width / 2,
    top + width / 2,
    Math.max(1, at.width - width),
    Math.max(1, bottom - top - width),
  );
}

/** Around the selected node, not on it: low rows would lose their letters. */
function frame(pen, layout, node) {
  const at = layout.rect(node);
  const top = Math.max(at.y, AXIS_HEIGHT);
  const bottom = Math.min(at.y + at.height, layout.height + 8);
  pen.lineWidth = 2;
  for (const { name, away } of [
    { name: "surface", away: 3 },
    { name: "focus", away: 1 },
  ]) {
    pen.strokeStyle = colour(name);
    pen.strokeRect(at.x - away, top - away, at.width + 2 * away, bottom - top + 2 * away);
  }
}

function paintAxis(pen, layout) {
  pen.fillStyle = colour("surface");
  pen.fillRect(0, 0, layout.width, AXIS_HEIGHT);
  pen.strokeStyle = colour("line");
  pen.fillStyle = colour("quiet");
  pen.lineWidth = 1;
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  const step = niceStep(LEAST_TICK_PX / layout.scale);
  const last = Math.min(layout.endMax, layout.tokenAt(layout.width));
  pen.beginPath();
  for (let token = Math.max(0, Math.ceil(layout.left / step) * step); token <= last; token += step) {
    const x = Math.round(layout.x(token)) + 0.5;
    pen.moveTo(x, AXIS_HEIGHT - 6);
    pen.lineTo(x, AXIS_HEIGHT);
    const text = token === 0 ? "token 0" : step >= 1000 ? short(token) : count(token);
    if (x + 5 + pen.measureText(text).width < layout.width) pen.fillText(text, x + 3, AXIS_HEIGHT / 2 - 1);
  }
  pen.moveTo(0, AXIS_HEIGHT - 0.5);
  pen.lineTo(layout.width, AXIS_HEIGHT - 0.5);
  pen.stroke();
}

/** Names of namespaces down the left side, each where its rows are. */
function paintNamespaces(pen, layout, nodes) {
  pen.fillStyle = colour("sunken");
  pen.fillRect(0, AXIS_HEIGHT, layout.gutter - 2, layout.height - AXIS_HEIGHT);
  pen.font = "11px system-ui, sans-serif";
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  for (const [name, { row, end }] of namespaceRows(nodes)) {
    const top = Math.max(layout.y(row), AXIS_HEIGHT);
    const bottom = Math.min(layout.y(end), layout.height);
    pen.strokeStyle = colour("line-strong");
    pen.beginPath();
    pen.moveTo(0, layout.y(row) - 0.5);
    pen.lineTo(layout.width, layout.y(row) - 0.5);
    if (layout.y(row) > AXIS_HEIGHT) pen.stroke();
    if (bottom - top < 11) continue;
    pen.save();
    pen.beginPath();
    pen.rect(0, top, layout.gutter - 6, bottom - top);
    pen.clip();
    pen.fillStyle = colour("quiet");
    pen.fillText(
      name === "" ? "(default)" : name,
      5,
      top + Math.min(bottom - top, Math.max(layout.rowHeight, 13)) / 2,
    );
    pen.restore();
  }
}

function namespaceRows(nodes) {
  const found = new Map();
  for (const node of nodes) {
    const rows = found.get(node.namespace);
    if (!rows) found.set(node.namespace, { row: node.row, end: node.row + node.rows });
    else {
      rows.row = Math.min(rows.row, node.row);
      rows.end = Math.max(rows.end, node.row + node.rows);
    }
  }
  return found;
}

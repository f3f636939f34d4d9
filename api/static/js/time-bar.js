/**
 * The bar over all seqs of the journal: where we are, what is marked where, click or drag to go. The wheel
 * looks closer at a part of it, a double click at all of it again.
 */

import { Latest } from "./api.js";
import { byId, perFrame, sharp, whenQuiet } from "./dom.js";
import { count, niceStep, short, time } from "./format.js";
import { report, settle } from "./notices.js";
import { goTo, goToEvent, step } from "./moment.js";
import { look, whenChanged } from "./state.js";
import { colour, whenThemeChanges } from "./theme.js";
import { MARK_KINDS, askMarks, findMark, markText, paintGlyph } from "./time-marks.js";
import { drawMarkCounts, startTimeLegend } from "./time-legend.js";
import { hideTip, showTip } from "./tooltip.js";

const LANE = 10;
const BASE = MARK_KINDS.length * LANE + 4;
/** Glyphs are about as wide as this; one bucket each keeps them apart. */
const BUCKET_PX = 9;
const PAGE_STEP = 20;
const NEAR_PX = 7;

const bar = byId("time-bar");
const canvas = byId("time-canvas");
const asking = new Latest();
/** The part that is looked at; null is all of it. @type {{first: number, last: number}|null} */
let part = null;
/** @type {import("./types.js").Marks|null} */
let marks = null;
let dragged = false;

const redraw = perFrame(draw);
const askSoon = whenQuiet(ask, 120);

function whole() {
  return { first: look.info?.first_seq ?? 0, last: look.info?.last_seq ?? 0 };
}

function range() {
  return part ?? whole();
}

function width() {
  return bar.clientWidth;
}

function x(seq) {
  const { first, last } = range();
  return 6 + ((seq - first) / Math.max(1, last - first)) * (width() - 12);
}

function seqAt(px) {
  const { first, last } = range();
  const seq = Math.round(first + ((px - 6) / Math.max(1, width() - 12)) * (last - first));
  return Math.min(Math.max(seq, first), last);
}

async function ask() {
  if (!look.info?.last_seq) {
    marks = null;
    redraw();
    return;
  }
  const { first, last } = range();
  try {
    marks = await asking.ask((signal) =>
      askMarks(first, last, Math.max(1, Math.floor(width() / BUCKET_PX)), signal),
    );
    settle("Marks");
  } catch (error) {
    report("Marks", error);
  }
  redraw();
}

function draw() {
  drawMarkCounts(marks);
  const pen = sharp(canvas, width(), bar.clientHeight);
  pen.clearRect(0, 0, width(), bar.clientHeight);
  drawAxis(pen);
  for (const mark of marks?.marks ?? []) {
    const from = x(mark.first_seq);
    const upto = x(mark.last_seq);
    if (mark.gaps > 0) drawGap(pen, from, upto);
    MARK_KINDS.forEach((kind, lane) => {
      if (mark[kind.key] > 0) paintGlyph(pen, kind, (from + upto) / 2, lane * LANE + LANE / 2 + 1);
    });
  }
  drawFlag(pen, look.markA, "A");
  drawFlag(pen, look.markB, "B");
  drawHere(pen);
}

function drawAxis(pen) {
  const { first, last } = range();
  pen.fillStyle = colour("sunken");
  pen.fillRect(6, BASE, width() - 12, 4);
  if (last <= first) return;
  pen.fillStyle = colour("quiet");
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "top";
  pen.textAlign = "center";
  const each = niceStep(((last - first) / Math.max(1, width())) * 90);
  for (let seq = Math.ceil(first / each) * each; seq <= last; seq += each) {
    const at = x(seq);
    pen.fillRect(at, BASE + 4, 1, 3);
    if (at > 20 && at < width() - 20) pen.fillText(each >= 1000 ? short(seq) : count(seq), at, BASE + 7);
  }
}

function drawGap(pen, from, upto) {
  pen.strokeStyle = colour("bad");
  pen.lineWidth = 1;
  for (let at = from; at <= Math.max(upto, from + 3); at += 4) {
    pen.beginPath();
    pen.moveTo(at, BASE);
    pen.lineTo(at + 4, BASE + 4);
    pen.stroke();
  }
}

function drawFlag(pen, seq, text) {
  if (seq === null) return;
  const at = x(seq);
  pen.fillStyle = colour("text");
  pen.fillRect(at - 0.5, 0, 1, BASE + 4);
  pen.font = "600 10px system-ui, sans-serif";
  pen.textAlign = "left";
  pen.textBaseline = "top";
  pen.fillText(text, at + 2, 0);
}

function drawHere(pen) {
  if (!look.shown) return;
  const at = x(look.shown.at.seq);
  pen.fillStyle = colour("accent");
  pen.fillRect(6, BASE, Math.max(0, at - 6), 4);
  pen.fillRect(at - 1, 0, 2, BASE + 6);
  pen.beginPath();
  pen.arc(at, BASE + 2, 6, 0, 7);
  pen.fill();
}

function markNear(px) {
  let best = null;
  for (const mark of marks?.marks ?? []) {
    const away = Math.abs((x(mark.first_seq) + x(mark.last_seq)) / 2 - px);
    if (away <= NEAR_PX && (best === null || away < best.away)) best = { mark, away };
  }
  return best?.mark ?? null;
}

function position(event) {
  const box = bar.getBoundingClientRect();
  return { px: event.clientX - box.left, py: event.clientY - box.top };
}

/** A click on a glyph goes to the event it stands for; anywhere else to that seq. */
async function onClick(event) {
  if (dragged || !look.info?.last_seq) return;
  const { px, py } = position(event);
  const mark = markNear(px);
  const lane = py < BASE ? MARK_KINDS[Math.floor(py / LANE)] : undefined;
  if (!mark || !lane) {
    goTo(seqAt(px));
    return;
  }
  try {
    const kind = mark[lane.key] > 0 ? lane.key : undefined;
    const seq = await findMark(mark.first_seq, mark.last_seq, 1, kind);
    goToEvent(seq ?? mark.first_seq);
  } catch (error) {
    report("Marks", error);
  }
}

function onMove(event) {
  const { px } = position(event);
  if (event.buttons === 1 && look.info?.last_seq) {
    dragged = dragged || Math.abs(event.movementX) > 0;
    if (dragged) goTo(seqAt(px));
  }
  const mark = markNear(px);
  showTip(
    mark
      ? `seq ${count(mark.first_seq)}–${count(mark.last_seq)}\n${markText(mark)}`
      : `seq ${count(seqAt(px))}`,
    event,
  );
}

function onWheel(event) {
  const all = whole();
  if (all.last <= all.first) return;
  event.preventDefault();
  const { first, last } = range();
  const at = seqAt(position(event).px);
  const factor = event.deltaY < 0 ? 0.7 : 1 / 0.7;
  const next = { first: Math.round(at - (at - first) * factor), last: Math.round(at + (last - at) * factor) };
  next.first = Math.max(next.first, all.first);
  next.last = Math.min(Math.max(next.last, next.first + 10), all.last);
  part = next.first <= all.first && next.last >= all.last ? null : next;
  redraw();
  askSoon();
}

function onKey(event) {
  const { first, last } = whole();
  const far = Math.max(1, Math.round((last - first) / PAGE_STEP));
  const here = look.shown?.at.seq ?? first;
  if (event.key === "ArrowLeft" || event.key === "ArrowDown") step(-1);
  else if (event.key === "ArrowRight" || event.key === "ArrowUp") step(1);
  else if (event.key === "PageUp") goTo(Math.min(here + far, last));
  else if (event.key === "PageDown") goTo(Math.max(here - far, first));
  else if (event.key === "Home") goTo(first);
  else if (event.key === "End") goTo(last);
  else return;
  event.preventDefault();
  event.stopPropagation();
}

function sayPosition() {
  const { first, last } = whole();
  bar.setAttribute("aria-valuemin", String(first));
  bar.setAttribute("aria-valuemax", String(last));
  bar.setAttribute("aria-valuenow", String(look.shown?.at.seq ?? first));
  const at = look.shown?.at;
  bar.setAttribute(
    "aria-valuetext",
    at ? `seq ${at.seq}, transaction ${at.transaction}, ${time(at.time_us)}` : "nothing yet",
  );
}

export function startTimeBar() {
  bar.addEventListener("pointerdown", (event) => {
    dragged = false;
    if (event.isPrimary && event.button === 0) bar.setPointerCapture(event.pointerId);
  });
  bar.addEventListener("pointermove", onMove);
  bar.addEventListener("pointerleave", hideTip);
  bar.addEventListener("click", onClick);
  bar.addEventListener("dblclick", () => {
    part = null;
    ask();
  });
  bar.addEventListener("wheel", onWheel, { passive: false });
  bar.addEventListener("keydown", onKey);
  new ResizeObserver(() => {
    redraw();
    askSoon();
  }).observe(bar);
  whenThemeChanges(redraw);
  startTimeLegend();
  whenChanged(["shown", "markA", "markB"], redraw);
  whenChanged(["shown", "info"], sayPosition);
  whenChanged(["info"], () => {
    redraw();
    if (part === null) askSoon();
  });
  whenChanged(["journal"], () => {
    part = null;
    marks = null;
  });
}

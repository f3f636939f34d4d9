/** Play, step, go to the next mark, follow live: the buttons before the time bar, and what the keys share. */

import { byId, make } from "./dom.js";
import { clock, count, time, typedNumber } from "./format.js";
import { goTo, goToEvent, isLive, remember, setLive, step } from "./moment.js";
import { report, say, settle } from "./notices.js";
import { look, whenChanged } from "./state.js";
import { findMark } from "./time-marks.js";

/** Transactions a second. */
const SPEEDS = [1, 2, 5, 20, 100, 500];
/** Pictures a second at most; to be faster, each tick takes several transactions at once. */
const TICKS = 6;

let playing = false;
let timer = 0;

const speed = make(
  "select",
  { id: "speed", title: "Transactions a second", "aria-label": "Speed" },
  ...SPEEDS.map((value) => make("option", { value, selected: value === 5 }, `${value}/s`)),
);

function button(id, text, title, act) {
  return make(
    "button",
    { type: "button", class: "icon", id, title, "aria-label": title, on: { click: act } },
    text,
  );
}

const play = button("play", "▶", "Play or pause (space)", togglePlay);
const live = make(
  "button",
  { type: "button", id: "live", title: "Follow the newest state (l)", on: { click: toggleLive } },
  "Live",
);

export function toggleLive() {
  stop();
  setLive(!isLive());
}

export function togglePlay() {
  if (playing) {
    stop();
    return;
  }
  if (isLive() && look.info?.first_seq) goTo(look.info.first_seq);
  playing = true;
  drawButtons();
  timer = setTimeout(tick, 0);
}

function stop() {
  playing = false;
  clearTimeout(timer);
  drawButtons();
}

/**
 * One tick waits for the state it asked for, so that a slow service plays slower instead of falling
 * behind.
 */
async function tick() {
  const began = performance.now();
  const wanted = Number(speed.value);
  const each = Math.ceil(wanted / TICKS);
  const moved = await step(each);
  if (!playing) return;
  if (!moved) {
    stop();
    return;
  }
  const pause = (1000 * each) / wanted;
  timer = setTimeout(tick, Math.max(0, pause - (performance.now() - began)));
}

/** @param {1|-1} by */
export function stepBy(by) {
  stop();
  if (isLive() && by < 0) setLive(false);
  return step(by);
}

/** @param {1|-1} direction */
export async function toMark(direction) {
  stop();
  if (!look.info?.last_seq || !look.shown) return;
  const here = look.event ?? look.shown.at.seq;
  const { asked } = look;
  const [first, last] = direction > 0 ? [here + 1, look.info.last_seq] : [look.info.first_seq, here - 1];
  try {
    const seq = first <= last ? await findMark(first, last, direction) : null;
    settle("Marks");
    // Who has gone elsewhere since does not want to be fetched back.
    if (look.asked !== asked) return;
    if (seq === null) say("Marks", direction > 0 ? "There is no later mark." : "There is no earlier mark.");
    else await goToEvent(seq);
  } catch (error) {
    report("Marks", error);
  }
}

/** @param {"first"|"last"} end */
export function toEnd(end) {
  stop();
  if (end === "last") setLive(true);
  else if (look.info?.first_seq) goTo(look.info.first_seq);
}

function drawButtons() {
  play.textContent = playing ? "❚❚" : "▶";
  play.setAttribute("aria-pressed", String(playing));
  live.setAttribute("aria-pressed", String(isLive()));
}

function drawMoment() {
  const at = look.shown?.at;
  byId("moment-text").textContent = at
    ? [
        `of ${count(look.info?.last_seq ?? at.seq)}`,
        `transaction ${count(at.transaction)}`,
        clock(at.time_us),
      ].join(" · ")
    : "";
  byId("moment-text").title = at ? time(at.time_us) : "";
  const input = byId("seq-input");
  if (document.activeElement !== input) input.value = at ? String(at.seq) : "";
}

function onSeqTyped(event) {
  event.preventDefault();
  const seq = typedNumber(byId("seq-input").value);
  const { first_seq: first, last_seq: last } = look.info ?? {};
  if (seq === null || !last || seq < first || seq > last) {
    say(
      "Seq",
      last ? `A seq is a whole number from ${count(first)} to ${count(last)}.` : "The journal is empty.",
    );
    return;
  }
  settle("Seq");
  stop();
  byId("seq-input").blur();
  goTo(seq);
}

export function startTransport() {
  byId("transport").replaceChildren(
    button("to-first", "|‹", "First transaction (Home)", () => toEnd("first")),
    button("mark-back", "◆‹", "Previous mark ([)", () => toMark(-1)),
    button("step-back", "‹", "Previous transaction (,)", () => stepBy(-1)),
    play,
    button("step-on", "›", "Next transaction (.)", () => stepBy(1)),
    button("mark-on", "›◆", "Next mark (])", () => toMark(1)),
    speed,
    live,
    button("mark-a", "A", "Remember this seq as A, for the difference (a)", () => remember("markA")),
    button("mark-b", "B", "Remember this seq as B (b)", () => remember("markB")),
  );
  byId("seq-form").addEventListener("submit", onSeqTyped);
  whenChanged(["asked"], drawButtons);
  whenChanged(["shown", "info"], drawMoment);
  whenChanged(["journal"], stop);
  drawButtons();
}

/**
 * The list of events, newest first. It stands at the moment shown: where it is live, new events come in at
 * the top; where a past seq is shown, the events up to it come first, and scrolling up leads to later
 * ones.
 */

import { Latest, get } from "./api.js";
import { make } from "./dom.js";
import { clock, count, time } from "./format.js";
import { eventFilters } from "./event-filters.js";
import { EventStream } from "./event-stream.js";
import { nudge } from "./journals.js";
import { nodeLink, requestLink, seqLink } from "./links.js";
import { LongList } from "./long-list.js";
import { isLive } from "./moment.js";
import { report, settle } from "./notices.js";
import { journalPath, look, whenChanged } from "./state.js";

const ABOUT = "Events";
const ASKED = 200;
/** A page that follows for a day must not hold a day of events. */
const MOST_KEPT = 5000;

const state = make("span", { class: "quiet small", id: "events-state" });
const filters = eventFilters(load);
const list = new LongList({ row, older: loadOlder, newer: loadNewer, label: "Events, newest first" });
const stream = new EventStream({ event: onEvent, head: onHead, lost: onLost });
const asking = new Latest();
let hasOlder = false;
let hasNewer = false;
let isLost = false;
/** Events that came in since the last frame. */
let incoming = [];

function row(event) {
  const classes = ["event-row"];
  if (event.transaction === look.shown?.at.transaction) classes.push("current");
  if (event.seq === look.event) classes.push("here");
  if (event.undone) classes.push("is-undone");
  const link = seqLink(event.seq, count(event.seq));
  link.dataset.key = String(event.seq);
  link.classList.add("seq");
  return make(
    "div",
    {
      class: classes.join(" "),
      role: "listitem",
      "data-seq": event.seq,
      title: `transaction ${event.transaction} (${event.op}) · ${time(event.time_us)}`,
    },
    link,
    make("span", { class: "quiet small" }, clock(event.time_us).slice(0, 8)),
    make("span", { class: "mono" }, event.data.kind),
    make(
      "span",
      { class: "said" },
      event.undone ? make("span", { class: "badge warn" }, "undone") : null,
      event.undone ? " " : null,
      event.sentence,
    ),
    make(
      "span",
      {},
      event.request !== null ? requestLink(event.request) : event.node !== null ? nodeLink(event.node) : null,
    ),
  );
}

function query(bounds) {
  return { ...filters.read(), limit: ASKED, ...bounds };
}

/** Load what belongs at the moment shown. */
async function load() {
  if (look.journal === null || (!look.shown && look.unknown === null)) return;
  const live = isLive();
  const upto = live ? null : (look.shown?.at.seq ?? look.asked);
  stream.close();
  try {
    const page = await asking.ask((signal) =>
      get(journalPath("/events"), query({ order: "desc", last_seq: upto }), { signal }),
    );
    settle(ABOUT);
    hasOlder = page.next !== null;
    hasNewer = !live;
    list.replace(page.items);
    if (live) follow(Math.max(look.shown?.at.seq ?? 0, page.items[0]?.seq ?? 0));
  } catch (error) {
    report(ABOUT, error);
  }
  drawState();
}

function follow(afterSeq) {
  const { kind, node, request } = filters.read();
  stream.open({ kind, node, request }, afterSeq);
}

async function loadOlder() {
  const oldest = list.items.at(-1);
  if (!hasOlder || asking.busy || !oldest) return;
  await extend(query({ order: "desc", last_seq: oldest.seq - 1 }), (page) => {
    hasOlder = page.next !== null;
    list.append(page.items);
  });
}

async function loadNewer() {
  const newest = list.items[0];
  if (!hasNewer || asking.busy || !newest) return;
  await extend(query({ order: "asc", first_seq: newest.seq + 1 }), (page) => {
    hasNewer = page.next !== null;
    if (page.items.length) list.prepend(page.items.reverse());
  });
}

async function extend(question, take) {
  try {
    take(await asking.ask((signal) => get(journalPath("/events"), question, { signal })));
    settle(ABOUT);
  } catch (error) {
    report(ABOUT, error);
  }
  drawState();
}

function onEvent(event) {
  nudge(event.seq);
  const { undone } = filters.read();
  if (undone !== null && String(event.undone) !== undone) return;
  incoming.push(event);
  if (incoming.length === 1) requestAnimationFrame(takeIncoming);
}

function takeIncoming() {
  const known = list.items[0]?.seq ?? 0;
  list.prepend(incoming.filter((event) => event.seq > known).reverse());
  incoming = [];
  if (list.items.length > MOST_KEPT) {
    list.items.length = MOST_KEPT;
    hasOlder = true;
  }
  drawState();
}

function onHead(seq) {
  nudge(seq);
}

function onLost(lost) {
  isLost = lost;
  drawState();
}

function drawState() {
  const following = isLive()
    ? isLost
      ? "the stream broke off; connecting again"
      : "following"
    : "at the seq shown; scroll up for later ones";
  state.textContent = `${count(list.items.length)}${hasOlder ? " newest" : ""} loaded · ${following}`;
}

/** Another moment: stay with the rows there are where they tell of it. */
function onMoment(changed) {
  if (changed.has("journal") || changed.has("asked")) {
    const live = isLive();
    if (!live) stream.close();
    const at = list.items.findIndex((event) => event.transaction === look.shown?.at.transaction);
    if (!changed.has("journal") && !live && at >= 0) {
      hasNewer = true;
      list.scrollTo(at);
    } else {
      load();
    }
  } else if (list.items.length === 0) {
    load();
  }
  list.draw();
}

/** @returns {import("./tabs.js").Tab} */
export function eventsTab() {
  filters.element.append(make("span", { class: "grow" }), state);
  const head = make(
    "div",
    { class: "event-row head", "aria-hidden": "true" },
    make("span", { class: "seq" }, "Seq"),
    make("span", {}, "Time"),
    make("span", {}, "Kind"),
    make("span", {}, "What happened"),
    make("span", {}, "About"),
  );
  // The moment is found after it is asked for, so both are waited for before the list is.
  let pending = new Set();
  whenChanged(["journal", "asked", "shown", "unknown"], (changed) => {
    pending = new Set([...pending, ...changed]);
    if (changed.has("journal")) list.replace([]);
    // Going live, or staying where live was, may show the very state that was shown: nothing more comes then.
    const settled = pending.has("asked") && (isLive() || look.asked === look.shown?.at.seq);
    if (!changed.has("shown") && !changed.has("unknown") && !settled) return;
    const all = pending;
    pending = new Set();
    onMoment(all);
  });
  return {
    id: "events",
    name: "Events",
    elements: [filters.element, head, list.element],
    class: "events-pane",
    shown: () => list.draw(),
    focus: () => filters.focus(),
  };
}

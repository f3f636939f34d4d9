/**
 * The panel at the side: it tells about what is picked, at the moment shown. Which panel that is depends
 * on the pick; each is a function from the pick to elements, in a module of its own.
 */

import { Latest, Problem } from "./api.js";
import { byId, make } from "./dom.js";
import { count } from "./format.js";
import { missing, nodeHistory, tellNode } from "./node-panel.js";
import { report, settle } from "./notices.js";
import { tellRequest } from "./request-panel.js";
import { tellSlot } from "./slot-panel.js";
import { change, look, shownSeq, whenChanged } from "./state.js";

/**
 * @type {Record<string, (pick: any, how: any) => Promise<{elements: Node[], values?: Map<string,
 * string>}>>}
 */
const PANELS = { node: tellNode, slot: tellSlot, request: tellRequest };
const NAMES = { node: "Node", slot: "Slot", request: "Request" };
const ABOUT = "Selection";

const latest = new Latest();
/** What the panel told last, so that the next state can mark what became different. */
let told = { name: "", seq: -1, values: new Map() };

function nameOf(pick) {
  return pick.type === "slot" ? `${pick.pool} slot ${pick.slot}` : `${pick.type} ${pick.id}`;
}

async function tell() {
  const side = byId("side");
  const pick = look.pick;
  if (pick === null || shownSeq() === undefined) {
    latest.withdraw();
    side.replaceChildren(hint());
    return;
  }
  const name = `${look.journal} ${nameOf(pick)}`;
  const before = told.name === name ? told : { name, seq: -1, values: new Map() };
  try {
    const panel = await latest.ask((signal) => PANELS[pick.type](pick, { signal, before, seq: shownSeq() }));
    settle(ABOUT);
    told = { name, seq: shownSeq(), values: panel.values ?? new Map() };
    replace(side, head(pick), panel.elements);
  } catch (error) {
    // What cannot be known at this seq is no failure of the page: that is told, and the history.
    if (error instanceof Problem && [404, 409, 410].includes(error.status)) {
      told = { ...before, seq: shownSeq() };
      const history = pick.type === "node" ? await historyOf(pick.id) : [];
      replace(side, head(pick), [missing(error.message), ...history]);
    } else {
      report(ABOUT, error);
    }
  }
}

async function historyOf(id) {
  try {
    return [make("h3", {}, "History"), ...(await nodeHistory(id, null))];
  } catch (error) {
    report("History", error);
    return [];
  }
}

/** Fill the panel anew without moving what a person reads: the scroll position and the open parts stay. */
function replace(side, heading, elements) {
  const scroll = side.scrollTop;
  const open = new Set([...side.querySelectorAll("details[open]")].map((part) => part.id));
  const hadFocus = side !== document.activeElement && side.contains(document.activeElement);
  const focused = hadFocus ? document.activeElement.id : "";
  side.replaceChildren(heading, ...elements);
  for (const part of side.querySelectorAll("details")) {
    if (open.has(part.id)) part.open = true;
  }
  // What had the focus may be gone with the state before: the panel keeps it, not the top of the page.
  if (hadFocus) ((focused && byId(focused)) || side).focus({ preventScroll: true });
  side.scrollTop = scroll;
}

function head(pick) {
  const title =
    pick.type === "slot"
      ? `${pick.pool === "full" ? "Full" : "SWA"} slot ${pick.slot}`
      : `${NAMES[pick.type]} ${pick.id}`;
  return make(
    "div",
    { class: "row-of" },
    make("h2", { id: "side-title", class: "grow" }, title),
    make("span", { class: "quiet small" }, `at seq ${count(shownSeq() ?? 0)}`),
    make(
      "button",
      {
        type: "button",
        class: "icon",
        "aria-label": "Select nothing",
        title: "Select nothing (Escape)",
        on: { click: () => change({ pick: null }) },
      },
      "×",
    ),
  );
}

function hint() {
  return make(
    "div",
    { class: "quiet" },
    make("h2", { id: "side-title" }, "Nothing is selected"),
    make(
      "p",
      {},
      "Choose a node in the tree, a page in a pool map, or a request. ",
      "What holds it, where its pages came from and what happened to it is told here.",
    ),
    make("p", {}, "Press g to go to one by its number or name, ? for the keyboard."),
  );
}

export function startSide() {
  whenChanged(["pick", "shown", "journal"], tell);
  tell();
}

/**
 * The keyboard of the whole page, and the overlay that lists it. Nothing here while one types into a
 * field.
 */

import { byId, make } from "./dom.js";
import { focusGoTo } from "./go-to.js";
import { remember } from "./moment.js";
import { change } from "./state.js";
import { focusTab, showTab } from "./tabs.js";
import { nextTheme } from "./theme.js";
import { stepBy, toEnd, toMark, toggleLive, togglePlay } from "./transport.js";

/** @type {[string, [string, string][]][]} */
const HELP = [
  [
    "Time",
    [
      ["Space", "play or pause"],
      [",", "previous transaction"],
      [".", "next transaction"],
      ["[", "previous mark"],
      ["]", "next mark"],
      ["Home", "first transaction"],
      ["End", "newest, followed live"],
      ["l", "follow live, or stay"],
      ["s", "type a seq"],
    ],
  ],
  [
    "Tree, when it has the focus",
    [
      ["→", "first child"],
      ["←", "parent"],
      ["↑ ↓", "siblings, then the next branch"],
      ["Enter", "go to what is told about the node"],
      ["+ −", "zoom the token scale"],
      ["0", "show the whole width"],
      ["{ }", "lower or higher rows"],
      ["Ctrl and wheel", "zoom at the pointer"],
      ["Shift and wheel", "move sideways, as dragging does"],
    ],
  ],
  [
    "Time bar, when it has the focus",
    [
      ["← →", "previous, next transaction"],
      ["PgUp PgDn", "a twentieth on or back"],
    ],
  ],
  [
    "Elsewhere",
    [
      ["g", "type a node, a slot or a request to go to"],
      ["t", "to the tree"],
      ["1 – 8", "Events, Pools, Requests, Leases, Eviction, Explain, Diff, Audit"],
      ["/", "to the filter of the list"],
      ["a  b", "mark this seq as A or B"],
      ["d", "difference between A and B"],
      ["Escape", "select nothing, close"],
      ["c", "change the theme"],
      ["?", "this help"],
    ],
  ],
];

const KEYS = {
  " ": togglePlay,
  ",": () => stepBy(-1),
  ".": () => stepBy(1),
  "[": () => toMark(-1),
  "]": () => toMark(1),
  Home: () => toEnd("first"),
  End: () => toEnd("last"),
  l: toggleLive,
  s: () => {
    byId("seq-input").focus();
    byId("seq-input").select();
  },
  g: focusGoTo,
  t: () => byId("tree-canvas").focus(),
  "/": focusTab,
  a: () => remember("markA"),
  b: () => remember("markB"),
  d: () => change({ tab: "diff" }),
  c: nextTheme,
  "?": openHelp,
  Escape: () => change({ pick: null }),
};

/** Whether the focus is where keys mean text or a choice. @param {HTMLElement} target */
function isTyping(target) {
  return target.matches("input:not([type=checkbox]), textarea, select, [contenteditable]");
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || byId("help").open) return;
  const target = /** @type {HTMLElement} */ (event.target);
  if (isTyping(target)) {
    if (event.key === "Escape") target.blur();
    return;
  }
  // Space and Enter belong to the button that has the focus.
  if (event.key === " " && target.matches("button, summary, input")) return;
  const act = KEYS[event.key] ?? (/^[1-8]$/.test(event.key) ? () => showTab(Number(event.key)) : undefined);
  if (!act) return;
  event.preventDefault();
  act();
}

function openHelp() {
  byId("help").showModal();
}

export function startKeys() {
  const close = make("button", { type: "button", on: { click: () => byId("help").close() } }, "Close");
  byId("help").append(
    make("h2", { id: "help-title" }, "Keyboard"),
    make(
      "div",
      { class: "help-columns" },
      ...HELP.map(([title, keys]) =>
        make(
          "section",
          {},
          make("h3", {}, title),
          make(
            "table",
            {},
            make(
              "tbody",
              {},
              ...keys.map(([key, says]) =>
                make("tr", {}, make("td", {}, make("kbd", {}, key)), make("td", {}, says)),
              ),
            ),
          ),
        ),
      ),
    ),
    close,
  );
  byId("help-open").addEventListener("click", openHelp);
  document.addEventListener("keydown", onKey);
}

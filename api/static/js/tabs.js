/** The lists below the tree, one at a time. A list that is not shown asks for nothing. */

import { byId, make } from "./dom.js";
import { change, look, whenChanged } from "./state.js";

/**
 * @typedef {object} Tab
 * @property {string} id
 * @property {string} name
 * @property {Node[]} elements
 * @property {string} [class]
 * @property {() => void} [shown]  called when it comes into sight
 * @property {() => void} [focus]  puts the focus where one would type
 */

/** @type {Tab[]} */
let tabs = [];

/** Whether a tab is the one shown. @param {string} id */
export function isTabShown(id) {
  return look.tab === id;
}

/** Show the tab at a place, counted from 1. @param {number} place */
export function showTab(place) {
  const tab = tabs[place - 1];
  if (tab) change({ tab: tab.id });
}

/** Put the focus into the shown tab's filter, where it has one. */
export function focusTab() {
  tabs.find((tab) => tab.id === look.tab)?.focus?.();
}

function draw() {
  for (const tab of tabs) {
    const isShown = tab.id === look.tab;
    const handle = byId(`tab-${tab.id}`);
    handle.setAttribute("aria-selected", String(isShown));
    handle.tabIndex = isShown ? 0 : -1;
    byId(`pane-${tab.id}`).hidden = !isShown;
    if (isShown) tab.shown?.();
  }
}

/** Arrow keys go from tab to tab, as tab lists do. */
function onKey(event) {
  const at = tabs.findIndex((tab) => tab.id === look.tab);
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!by) return;
  const next = tabs[(at + by + tabs.length) % tabs.length];
  change({ tab: next.id });
  byId(`tab-${next.id}`).focus();
  event.preventDefault();
  event.stopPropagation();
}

/** @param {Tab[]} all */
export function startTabs(all) {
  tabs = all;
  byId("tabs").replaceChildren(
    ...tabs.map((tab, at) =>
      make(
        "button",
        {
          type: "button",
          role: "tab",
          id: `tab-${tab.id}`,
          "aria-controls": `pane-${tab.id}`,
          title: `${tab.name} (${at + 1})`,
          on: { click: () => change({ tab: tab.id }) },
        },
        tab.name,
      ),
    ),
  );
  byId("panes").replaceChildren(
    ...tabs.map((tab) =>
      make(
        "div",
        {
          class: `pane ${tab.class ?? ""}`,
          role: "tabpanel",
          id: `pane-${tab.id}`,
          "aria-labelledby": `tab-${tab.id}`,
        },
        ...tab.elements,
      ),
    ),
  );
  byId("tabs").addEventListener("keydown", onKey);
  whenChanged(["tab"], draw);
  draw();
}

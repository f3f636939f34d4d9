/**
 * Light, dark, or as the system has it; and the colours of the style sheet as canvases need them.
 * Canvases are told when the colours change, because nothing else would redraw them.
 */

import { byId } from "./dom.js";

const STORED = "kvledger.theme";
const ORDER = ["auto", "light", "dark"];

/** @type {Map<string, string>} */
const colours = new Map();
/** @type {(() => void)[]} */
const watchers = [];
let probe = null;

/** What a custom property of the style sheet amounts to now. @param {string} name such as "state-both" */
export function colour(name) {
  let value = colours.get(name);
  if (value === undefined) {
    // A property may be light-dark(...): only a used value says which, so an element has to use it.
    probe ??= document.body.appendChild(Object.assign(document.createElement("span"), { hidden: true }));
    probe.style.color = `var(--${name})`;
    value = getComputedStyle(probe).color;
    colours.set(name, value);
  }
  return value;
}

/** @param {() => void} redraw */
export function whenThemeChanges(redraw) {
  watchers.push(redraw);
}

function changed() {
  colours.clear();
  for (const redraw of watchers) redraw();
}

function stored() {
  try {
    const value = localStorage.getItem(STORED);
    return ORDER.includes(value) ? value : "auto";
  } catch {
    return "auto"; // Storage can be forbidden; the system's theme is a good answer then.
  }
}

function apply(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme-toggle").textContent = `Theme: ${theme}`;
  changed();
}

/** The next of auto, light, dark. */
export function nextTheme() {
  const theme = ORDER[(ORDER.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % ORDER.length];
  try {
    localStorage.setItem(STORED, theme);
  } catch {
    // Then the choice lasts as long as the page.
  }
  apply(theme);
}

export function startTheme() {
  byId("theme-toggle").addEventListener("click", nextTheme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  apply(stored());
}

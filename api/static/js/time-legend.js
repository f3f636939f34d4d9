/** Below the time bar: what its marks mean, and how many of each there are in the part looked at. */

import { byId, make } from "./dom.js";
import { count } from "./format.js";
import { legendKey } from "./node-state.js";
import { whenThemeChanges } from "./theme.js";
import { MARK_KINDS, paintGlyph } from "./time-marks.js";

/** @type {Map<string, HTMLElement>} */
const counts = new Map();

/** @param {import("./types.js").Marks|null} marks */
export function drawMarkCounts(marks) {
  for (const { key, name } of MARK_KINDS) {
    const total = (marks?.marks ?? []).reduce((sum, mark) => sum + mark[key], 0);
    const text = marks === null ? name : `${name}: ${count(total)}`;
    const place = counts.get(key);
    if (place && place.textContent !== text) place.textContent = text;
  }
}

export function startTimeLegend() {
  const keys = MARK_KINDS.map((kind) => {
    counts.set(kind.key, make("span", {}, kind.name));
    return legendKey(counts.get(kind.key), (pen) => paintGlyph(pen, kind, 11, 7));
  });
  byId("time-legend").replaceChildren(
    ...keys.map((key) => key.element),
    make("span", {}, "click a mark to go to it; the wheel looks closer, a double click shows all"),
  );
  const draw = () => keys.forEach((key) => key.draw());
  whenThemeChanges(draw);
  draw();
}

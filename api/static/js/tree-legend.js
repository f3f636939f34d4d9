/** Below the tree: what its colours, letters and outlines mean. */

import { byId } from "./dom.js";
import { HOLDS, inkOn, legendKey, letter, paintState } from "./node-state.js";
import { whenThemeChanges } from "./theme.js";

function state(hold, tombstone = false, mixed = false) {
  return (pen, at) => {
    paintState(pen, at, { hold, tombstone, mixed });
    if (!tombstone && !mixed) letter(pen, HOLDS[hold].letter, at, inkOn(hold, false));
  };
}

export function startTreeLegend() {
  const keys = [
    legendKey("S: Full and SWA locked", state("both")),
    legendKey("F: Full locked", state("full")),
    legendKey("E: evictable", state("evictable")),
    legendKey("T: tombstone (no SWA)", state("evictable", true)),
    legendKey("tombstone under a Full lock", state("full", true)),
    legendKey("M: mixed origins", state("full", false, true)),
  ];
  byId("tree-legend").replaceChildren(...keys.map((key) => key.element));
  const draw = () => keys.forEach((key) => key.draw());
  whenThemeChanges(draw);
  draw();
}

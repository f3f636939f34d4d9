/** Both pools as maps, and what their colours and signs mean. */

import { make } from "./dom.js";
import { legendKey } from "./node-state.js";
import { PoolMap } from "./pool-map.js";
import { LOOKS, paintPage } from "./pool-paint.js";
import { whenThemeChanges } from "./theme.js";

/** @returns {import("./tabs.js").Tab} */
export function poolsTab() {
  const maps = [new PoolMap("full"), new PoolMap("swa")];
  const keys = Object.values(LOOKS).map((look) =>
    legendKey(look.words, (pen) => paintPage(pen, { x: 4, y: 0, width: 14, height: 14 }, look)),
  );
  const drawKeys = () => keys.forEach((key) => key.draw());
  whenThemeChanges(drawKeys);
  drawKeys();
  return {
    id: "pools",
    name: "Pools",
    elements: [
      make("div", { class: "pools" }, ...maps.map((map) => map.element)),
      make("div", { class: "pool-legend" }, ...keys.map((key) => key.element)),
    ],
    shown: () => maps.forEach((map) => map.refresh()),
  };
}

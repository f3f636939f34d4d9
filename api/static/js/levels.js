/** The header's two bars: how full each pool is, by what. */

import { byId, make } from "./dom.js";
import { count } from "./format.js";
import { look, whenChanged } from "./state.js";

const PARTS = ["protected", "held", "evictable", "free"];

function bar(level) {
  const words = PARTS.map((part) => `${part} ${count(level[part])}`).join(", ");
  const parts = PARTS.map((part) => {
    const element = make("span", { class: `level-${part}` });
    element.style.width = `${(100 * level[part]) / Math.max(1, level.total)}%`;
    return element;
  });
  const name = level.pool === "full" ? "Full" : "SWA";
  const used = Math.round((100 * (level.total - level.free)) / Math.max(1, level.total));
  return make(
    "span",
    { class: "level", title: `${name}: ${words}, of ${count(level.total)} tokens` },
    make("span", { class: "quiet" }, `${name} ${used}% used`),
    make("span", { class: "level-bar", role: "img", "aria-label": `${name} pool: ${words}` }, ...parts),
  );
}

export function startLevels() {
  whenChanged(["shown"], () => {
    byId("levels").replaceChildren(...(look.shown?.pools ?? []).map(bar));
  });
}

/**
 * The address of what is looked at: journal, seq, selection and filters stand in the URL's fragment, so
 * that a view can be sent to a colleague. No seq means the newest.
 */

import { whenQuiet } from "./dom.js";
import { change, look, whenChanged } from "./state.js";

const SETTLE_MS = 150;
const TABS = ["events", "pools", "requests", "leases", "eviction", "explain", "diff", "audit"];

/**
 * What a fragment says, as a part of the state; what it does not name reads as not chosen.
 * @param {string} [text]
 */
export function readHash(text = location.hash) {
  const said = new URLSearchParams(text.replace(/^#/, ""));
  const tab = said.get("tab");
  return {
    journal: whole(said.get("journal")),
    asked: whole(said.get("seq")),
    pick: pickIn(said),
    root: whole(said.get("root")),
    namespace: said.get("namespace"),
    depth: whole(said.get("depth")),
    markA: whole(said.get("a")),
    markB: whole(said.get("b")),
    tab: TABS.includes(tab) ? tab : "events",
  };
}

function whole(text) {
  return text !== null && /^\d{1,16}$/.test(text) ? Number(text) : null;
}

/** @param {URLSearchParams} said @returns {import("./types.js").Pick|null} */
function pickIn(said) {
  const node = whole(said.get("node"));
  if (node !== null) return { type: "node", id: node };
  const request = said.get("request");
  if (request !== null) return { type: "request", id: request };
  const [, pool, slot] = /^(full|swa):(\d{1,16})$/.exec(said.get("slot") ?? "") ?? [];
  if (!pool) return null;
  return { type: "slot", pool: pool === "full" ? "full" : "swa", slot: Number(slot) };
}

function writeHash() {
  const said = new URLSearchParams();
  const put = (name, value) => {
    if (value !== null && value !== undefined) said.set(name, String(value));
  };
  put("journal", look.journal);
  put("seq", look.asked);
  if (look.pick?.type === "node") put("node", look.pick.id);
  if (look.pick?.type === "request") put("request", look.pick.id);
  if (look.pick?.type === "slot") put("slot", `${look.pick.pool}:${look.pick.slot}`);
  put("root", look.root);
  put("namespace", look.namespace);
  put("depth", look.depth);
  put("a", look.markA);
  put("b", look.markB);
  if (look.tab !== "events") put("tab", look.tab);
  const text = `#${said}`;
  if (text !== location.hash) history.replaceState(null, "", text);
}

export function startHash() {
  whenChanged(
    ["journal", "asked", "pick", "root", "namespace", "depth", "markA", "markB", "tab"],
    whenQuiet(writeHash, SETTLE_MS),
  );
  // A fragment typed or pasted into an open page; our own writes do not come here, but one that was waiting may
  // have replaced the address since: what was asked for stands in the event.
  addEventListener("hashchange", (event) => {
    const said = readHash(new URL(event.newURL).hash);
    const journal = said.journal ?? look.journal;
    const other = journal !== look.journal;
    change({
      ...said,
      journal,
      ...(other ? { info: look.journals.find((one) => one.id === journal) ?? null, shown: null, unknown: null } : {}),
    });
  });
}

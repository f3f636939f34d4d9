/** What would be evicted next from either pool, were it to run short at the moment shown. */

import { Latest, get } from "./api.js";
import { make, table } from "./dom.js";
import { capital, count, span } from "./format.js";
import { nodeLink } from "./links.js";
import { report, settle } from "./notices.js";
import { journalPath, look, shownSeq, whenChanged } from "./state.js";

const ASKED = 100;
const ACTIONS = { delete_leaf: "leaf deleted", tombstone: "becomes a tombstone" };
const ABOUT = "Eviction";

/** @returns {import("./tabs.js").Tab} */
export function evictionTab() {
  const body = make("div", { class: "pane-body columns" });
  const latest = new Latest();
  let told = "";

  async function load() {
    const at = shownSeq();
    const key = `${look.journal} ${at}`;
    if (look.tab !== "eviction" || at === undefined || key === told) return;
    try {
      const answers = await latest.ask((signal) =>
        Promise.all(
          ["full", "swa"].map((pool) =>
            get(journalPath(`/eviction/${pool}`), { at, limit: ASKED }, { signal }),
          ),
        ),
      );
      settle(ABOUT);
      told = key;
      body.replaceChildren(...answers.map(side));
    } catch (error) {
      report(ABOUT, error);
    }
  }

  whenChanged(["shown", "journal"], load);
  return { id: "eviction", name: "Eviction", elements: [body], shown: load };
}

function side({ pool, candidates, evictable_tokens: evictable, sentence }) {
  const isSwa = pool === "swa";
  const columns = [
    ">#",
    "Node",
    ">Stamp",
    "Tokens",
    "What becomes of it",
    ">Full",
    ">SWA",
    ...(isSwa ? ["Windows"] : []),
  ];
  const rows = candidates.map((one, at) => [
    String(at + 1),
    nodeLink(one.node),
    count(one.stamp),
    span(one.start, one.end),
    ACTIONS[one.action],
    count(one.full_tokens),
    count(one.swa_tokens),
    ...(isSwa ? [one.outside_windows ? "outside" : "inside one"] : []),
  ]);
  return make(
    "section",
    {},
    make("h3", {}, `${isSwa ? "SWA" : "Full"}: ${count(evictable)} evictable tokens`),
    rows.length ? table(columns, rows) : make("p", { class: "quiet" }, capital(sentence)),
    candidates.length === ASKED ? make("p", { class: "quiet small" }, `the first ${ASKED}`) : null,
  );
}

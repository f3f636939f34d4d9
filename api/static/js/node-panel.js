/** All about one node: tokens, locks and who holds them, pages, where they came from, what happened to it. */

import { get } from "./api.js";
import { facts, make, table } from "./dom.js";
import { capital, clock, count, counted, origin, span, time } from "./format.js";
import { beforeLink, nodeLink, requestLink, runLinks, runText, seqLink } from "./links.js";
import { HOLDS, holdOf, wordsOf } from "./node-state.js";
import { pagedList } from "./paged.js";
import { change, journalPath, look } from "./state.js";

const LINKS_SHOWN = 16;
const HISTORY_PAGE = 30;

/**
 * @param {{id: number}} pick
 * @param {{signal: AbortSignal, before: {seq: number, values: Map<string, string>}, seq: number}} how
 */
export async function tellNode(pick, { signal, before, seq }) {
  const answer = await get(journalPath(`/nodes/${pick.id}`), { at: seq, absent: "tell" }, { signal });
  const history = await nodeHistory(pick.id, signal);
  if (answer.absent) {
    // What was told before stays the state to compare with, for when it is there again.
    const elements = [missing(answer.sentence), make("h3", {}, "History"), ...history];
    return { values: before.values, elements };
  }
  const values = valuesOf(answer);
  const mark = (key) => changedSince(before, values, key);
  return {
    values,
    elements: [
      badges(answer.node),
      actions(answer.node),
      basics(answer, mark),
      make("h3", {}, "Locks"),
      ...locks(answer, mark),
      make("h3", {}, "Pages and slots"),
      pages(answer, mark),
      make("h3", {}, "Where its pages came from"),
      origins(answer, mark),
      ...provenance(answer),
      make("h3", {}, "History"),
      ...history,
    ],
  };
}

/** That what is selected is not there at this seq. @param {string} sentence */
export function missing(sentence) {
  return make("p", { class: "quiet", id: "side-missing" }, capital(sentence));
}

/** What may differ from one state to the next, as text to compare. */
function valuesOf({ node, full_pages: full, swa_pages: swa, full_origin: ofFull, swa_origin: ofSwa, stamp }) {
  return new Map([
    ["tokens", span(node.start, node.end)],
    ["stamp", String(stamp)],
    ["fullLock", String(node.full_lock)],
    ["swaLock", String(node.swa_lock)],
    ["full", runText(full)],
    ["swa", runText(swa)],
    ["fullOrigin", origin(ofFull)],
    ["swaOrigin", origin(ofSwa)],
    ["children", String(node.children)],
  ]);
}

/** Attributes of a value that is another than in the state told before. */
function changedSince(before, values, key) {
  const old = before.values.get(key);
  if (old === undefined || old === values.get(key)) return {};
  return { class: "changed", title: `at seq ${before.seq}: ${old}` };
}

function badges(node) {
  const hold = holdOf(node);
  return make(
    "div",
    { class: "row-of", id: "node-state" },
    ...wordsOf(node).map((words, at) =>
      make(
        "span",
        { class: words === "mixed origins" ? "badge mixed" : "badge" },
        at === 0 && HOLDS[hold].letter ? make("strong", {}, HOLDS[hold].letter) : null,
        words,
      ),
    ),
  );
}

function actions(node) {
  const isRoot = look.root === node.id;
  return make(
    "div",
    { class: "row-of small" },
    make(
      "button",
      {
        type: "button",
        class: "link",
        id: "node-below",
        on: { click: () => change({ root: isRoot ? null : node.id }) },
      },
      isRoot ? "Show the whole tree" : "Show only the tree below it",
    ),
  );
}

function some(ids, total = ids.length) {
  if (ids.length === 0) return "none";
  const parts = ids.slice(0, LINKS_SHOWN).flatMap((id) => [nodeLink(id, String(id)), " "]);
  if (total > LINKS_SHOWN) parts.push(`and ${count(total - LINKS_SHOWN)} more`);
  return parts;
}

function basics({ node, path, child_ids: children, tokens, stamp }, mark) {
  const above = path.filter((id) => id !== node.id);
  return facts([
    [
      "Tokens",
      `${span(node.start, node.end)}, ${count(node.end - node.start)} of them`,
      { id: "node-tokens", ...mark("tokens") },
    ],
    ["Token ids", tokens.ids ? tokenIds(tokens) : null],
    ["Namespace", node.namespace === "" ? "(default)" : node.namespace],
    [
      "Path",
      above.length > LINKS_SHOWN ? ["… ", ...some(above.slice(-LINKS_SHOWN))] : some(above),
      { id: "node-path" },
    ],
    ["Children", some(children, node.children), mark("children")],
    ["Below it", counted(node.nodes_below, "node")],
    ["Recency", `stamp ${count(stamp)}`, mark("stamp")],
    ["Evictable", evictable(node)],
  ]);
}

/** Folded: they are many, and most who look at a node do not look at them. */
function tokenIds({ ids, count: all }) {
  const text = ids.join(" ") + (ids.length < all ? ` … ${count(all - ids.length)} more` : "");
  return make(
    "details",
    { id: "node-token-ids" },
    make("summary", {}, `${ids.slice(0, 4).join(" ")} …`),
    make("span", { class: "mono" }, text),
  );
}

function evictable(node) {
  if (node.evictable_full && node.evictable_swa) return "Full and SWA";
  if (node.evictable_full) return "Full";
  return node.evictable_swa ? "SWA" : "no";
}

function locks({ node, holders, holders_total: total }, mark) {
  const counts = facts([
    ["Full lock", String(node.full_lock), { id: "node-full-lock", ...mark("fullLock") }],
    ["SWA lock", String(node.swa_lock), { id: "node-swa-lock", ...mark("swaLock") }],
  ]);
  if (total === 0) return [counts];
  const rows = holders.map((holder) => [
    String(holder.lease),
    holder.request === null ? "a caller" : requestLink(holder.request),
    holder.swa_held
      ? `Full ${span(0, holder.length)}, SWA ${span(holder.swa_from, holder.length)}`
      : `Full ${span(0, holder.length)}`,
    holder.since_seq === null
      ? "before what is stored"
      : make(
          "span",
          { title: time(holder.since_us) },
          seqLink(holder.since_seq),
          ` ${clock(holder.since_us)}`,
        ),
  ]);
  const rest =
    total > holders.length
      ? [make("p", { class: "quiet small" }, `showing ${count(holders.length)} of ${count(total)} holders`)]
      : [];
  return [
    counts,
    make("div", { id: "node-holders" }, table(["Lease", "Held by", "Reach", "Since"], rows)),
    ...rest,
  ];
}

function pages(answer, mark) {
  const each = answer.full_pages.total ? Math.round(answer.full_slots.total / answer.full_pages.total) : 1;
  const tombstone = make("span", {}, "none: a tombstone");
  return facts([
    ["Full pages", runLinks(answer.full_pages, "full", each), { id: "node-full-pages", ...mark("full") }],
    [
      "SWA pages",
      answer.swa_pages ? runLinks(answer.swa_pages, "swa", each) : tombstone,
      { id: "node-swa-pages", ...mark("swa") },
    ],
    ["Full slots", runLinks(answer.full_slots, "full", 1), { id: "node-full-slots" }],
    ["SWA slots", answer.swa_slots ? runLinks(answer.swa_slots, "swa", 1) : null, { id: "node-swa-slots" }],
  ]);
}

function origins({ node, full_origin: full, swa_origin: swa }, mark) {
  const told = (one) =>
    one === null
      ? "none"
      : one.request === null
        ? origin(one)
        : [requestLink(one.request), `, epoch ${one.epoch}`];
  return facts([
    ["Full computed by", told(full), { id: "node-full-origin", ...mark("fullOrigin") }],
    ["SWA computed by", told(swa), { id: "node-swa-origin", ...mark("swaOrigin") }],
    ["Mixed", node.mixed ? "yes: Full and SWA are of different forwards" : null, { id: "node-mixed" }],
  ]);
}

function provenance({ provenance: events }) {
  return events.length === 0 ? [] : [make("ol", { id: "node-provenance" }, ...events.map(eventItem))];
}

/** One event as an item of a list at the side. @param {import("./types.js").EventOut} event */
export function eventItem(event) {
  return make(
    "li",
    {},
    seqLink(event.seq),
    " ",
    make("span", { class: "quiet small", title: time(event.time_us) }, clock(event.time_us)),
    " ",
    make("span", { class: event.undone && "undone" }, event.sentence),
    event.undone ? make("span", { class: "badge warn" }, "undone") : null,
    " ",
    beforeLink(event.seq),
  );
}

/** @param {number} id @param {AbortSignal|null} signal */
export async function nodeHistory(id, signal) {
  return pagedList({
    path: journalPath(`/nodes/${id}/history`),
    query: { limit: HISTORY_PAGE },
    item: eventItem,
    about: "History",
    signal,
    empty: "No event about it is in this store.",
  });
}

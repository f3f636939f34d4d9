/** One slot of a pool: who has it at this moment, and through whose hands it went. */

import { get } from "./api.js";
import { facts, make } from "./dom.js";
import { clock, count, time, typedNumber } from "./format.js";
import { nodeLink, requestLink, seqLink, slotLink } from "./links.js";
import { pagedList } from "./paged.js";
import { change, journalPath } from "./state.js";

const HISTORY_PAGE = 30;

/** @param {{pool: "full"|"swa", slot: number}} pick */
export async function tellSlot(pick, { signal, seq }) {
  const path = journalPath(`/slots/${pick.pool}/${pick.slot}`);
  const now = await get(path, { at: seq }, { signal });
  const history = await pagedList({
    path: `${path}/history`,
    query: { limit: HISTORY_PAGE },
    item: (tenure) => tenureItem(tenure, pick.pool),
    about: "History of the slot",
    signal,
    empty: "Nobody has had it yet.",
  });
  return {
    elements: [
      make("p", { id: "slot-sentence" }, now.sentence),
      facts([
        ["Page", `${count(now.page)}, offset ${now.offset}`],
        ["Where", now.place],
        ["Node", now.node === null ? null : nodeLink(now.node)],
        ["Request", now.request === null ? null : requestLink(now.request)],
        ["Token position", now.position === null ? null : count(now.position)],
        [
          "Beside it",
          now.beside === null || now.beside === 0
            ? null
            : [otherName(pick.pool), " ", slotLink(other(pick.pool), now.beside)],
        ],
        ["Locked by", now.locked_by.length ? `lease ${now.locked_by.join(", ")}` : null],
      ]),
      otherSlot(pick),
      make("h3", {}, "Whose it was"),
      ...history,
    ],
  };
}

function other(pool) {
  return pool === "full" ? "swa" : "full";
}

function otherName(pool) {
  return pool === "full" ? "SWA slot" : "Full slot";
}

function tenureItem(tenure, pool) {
  const who = [];
  if (tenure.node !== null) who.push(nodeLink(tenure.node));
  if (tenure.request !== null) who.push(tenure.node !== null ? ", of " : "", requestLink(tenure.request));
  if (who.length === 0) who.push(tenure.holder);
  const until =
    tenure.until === null
      ? ["still"]
      : [seqLink(tenure.until), " ", make("span", { class: "quiet small" }, clock(tenure.until_us))];
  return make(
    "li",
    { title: `${time(tenure.since_us)} – ${time(tenure.until_us)}` },
    ...who,
    ": from ",
    seqLink(tenure.since),
    " (",
    tenure.began,
    ") until ",
    ...until,
    tenure.ended ? ` (${tenure.ended}${tenure.cause ? `, ${tenure.cause}` : ""})` : null,
    tenure.beside ? ", beside " : null,
    tenure.beside ? slotLink(other(pool), tenure.beside, `${other(pool)} ${tenure.beside}`) : null,
  );
}

/** Go to another slot by its number. */
function otherSlot(pick) {
  const input = make("input", {
    id: "slot-input",
    inputmode: "numeric",
    size: 9,
    value: pick.slot,
    "aria-label": "Slot",
  });
  const form = make("form", { class: "inline" }, input, make("button", { type: "submit" }, "Go to slot"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const slot = typedNumber(input.value);
    input.setCustomValidity(slot === null ? "A slot is a whole number." : "");
    if (slot === null) input.reportValidity();
    else change({ pick: { type: "slot", pool: pick.pool, slot } });
  });
  return form;
}

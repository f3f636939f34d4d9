/** One open request: its row, its lock, what happened in its name. */

import { get } from "./api.js";
import { facts, make } from "./dom.js";
import { count, counted, span } from "./format.js";
import { nodeLink, runLinks, seqLink } from "./links.js";
import { eventItem, missing } from "./node-panel.js";
import { pagedList } from "./paged.js";
import { journalPath } from "./state.js";

const HISTORY_PAGE = 30;

/** @param {{id: string}} pick */
export async function tellRequest(pick, { signal, seq }) {
  const id = pick.id.split("/").map(encodeURIComponent).join("/");
  const now = await openAt(id, seq, signal);
  const history = await pagedList({
    path: journalPath("/request-history"),
    query: { request: pick.id, limit: HISTORY_PAGE },
    item: eventItem,
    about: "History of the request",
    signal,
    empty: "No event about it is in this store.",
  });
  return {
    elements: [
      ...(now
        ? [aboutOpen(now)]
        : [missing("It is not open at this seq.")]),
      make("h3", {}, "History"),
      ...history,
    ],
  };
}

/** The request as it stands, or null where it is not open at this seq; its history tells the rest. */
async function openAt(id, seq, signal) {
  const answer = await get(journalPath(`/requests/${id}`), { at: seq, absent: "tell" }, { signal });
  return answer.absent ? null : answer;
}

function aboutOpen({ request, row }) {
  const lease = request.lease;
  return facts([
    ["Namespace", request.namespace === "" ? "(default)" : request.namespace],
    ["Epoch", String(request.epoch)],
    [
      "Row",
      [
        `${counted(request.row_tokens, "token")}: ${counted(request.own_pages, "page")} of its own, `,
        `${count(request.shared_pages)} shared`,
      ],
    ],
    ["Row's Full slots", runLinks(row, "full", 1), { id: "request-row" }],
    ["Lock", lease === null ? "none: it waits" : leaseText(lease)],
  ]);
}

/** @returns {(Node|string)[]} */
export function leaseText(lease) {
  const since = lease.since_seq === null ? [] : [", since ", seqLink(lease.since_seq)];
  if (lease.node === null) return [`lease ${lease.lease}, an empty lock`, ...since];
  const swa = lease.swa_held
    ? `SWA of tokens ${span(lease.swa_from, lease.length)}`
    : "no SWA any more (given back early)";
  return [
    `lease ${lease.lease} locks Full of tokens ${span(0, lease.length)}, from the root to `,
    nodeLink(lease.node),
    `, and ${swa}`,
    ...since,
  ];
}

/** Open requests and the locks that are held, at the moment shown. */

import { make } from "./dom.js";
import { clock, count, span, time } from "./format.js";
import { nodeLink, requestLink, seqLink } from "./links.js";
import { leaseText } from "./request-panel.js";
import { listTab } from "./state-tab.js";

export function requestsTab() {
  return listTab({
    id: "requests",
    name: "Requests",
    path: "/requests",
    noun: "open requests",
    empty: "No request is open at this seq.",
    columns: ["Request", "Namespace", ">Epoch", ">Row, tokens", ">Own pages", ">Shared pages", "Lock"],
    cells: (request) => [
      requestLink(request.id),
      request.namespace === "" ? "(default)" : request.namespace,
      count(request.epoch),
      count(request.row_tokens),
      count(request.own_pages),
      count(request.shared_pages),
      request.lease === null ? "none: it waits" : leaseText(request.lease),
    ],
  });
}

export function leasesTab() {
  return listTab({
    id: "leases",
    name: "Leases",
    path: "/leases",
    noun: "leases",
    empty: "Nothing is locked at this seq.",
    columns: [">Lease", "Held by", "Node", "Full lock", "SWA lock", "Since"],
    cells: (lease) => [
      count(lease.lease),
      lease.request === null ? "a caller" : requestLink(lease.request),
      lease.node === null ? "none: an empty lock" : nodeLink(lease.node),
      span(0, lease.length),
      lease.swa_held ? span(lease.swa_from, lease.length) : "released",
      lease.since_seq === null
        ? "before what is stored"
        : [
            seqLink(lease.since_seq),
            make("span", { class: "quiet", title: time(lease.since_us) }, ` ${clock(lease.since_us)}`),
          ],
    ],
  });
}

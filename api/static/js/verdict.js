/** A verdict as a person reads it: the word, the findings with their evidence, what was checked. */

import { make, table } from "./dom.js";
import { count, counted } from "./format.js";
import { nodeLink, requestLink, seqLink } from "./links.js";

const SIGNS = { pass: "✓", fail: "✗", unverified: "?" };
const STATUS_SIGNS = { verified: "✓", failed: "✗", not_checked: "–", unverified: "?" };
const STATUS_LOOKS = { verified: "good", failed: "bad", not_checked: "", unverified: "warn" };

/** @returns {Node[]} */
export function tellVerdict(verdict) {
  const found = verdict.invariants.reduce((sum, report) => sum + report.findings, 0);
  return [
    make(
      "div",
      { class: "verdict" },
      make(
        "span",
        { class: `verdict-word ${verdict.verdict}`, id: "verdict-word" },
        `${SIGNS[verdict.verdict]} ${verdict.verdict}`,
      ),
      make("span", {}, summary(verdict, found)),
    ),
    make("p", { class: "quiet small" }, `Tail: ${verdict.tail}.`),
    ...verdict.notes.map((note) => make("p", { class: "quiet small note" }, `Note: ${note}.`)),
    ...(verdict.findings.length ? [findings(verdict.findings, found)] : []),
    ...(verdict.gaps.length ? [gaps(verdict.gaps)] : []),
    ...(verdict.locks_cut.length ? [cuts(verdict)] : []),
    make("div", { class: "columns" }, invariants(verdict.invariants), counts(verdict.counts)),
  ];
}

function summary({ counts: checked }, found) {
  const parts = [
    `${count(checked.events)} events`,
    counted(checked.locks_followed, "lock followed", "locks followed"),
    `${counted(checked.pages_followed, "page")} followed under locks, none replaced, freed or rewritten`,
    counted(checked.recoveries_under_lock, "recovery under lock", "recoveries under lock"),
  ];
  if (found) parts[2] = counted(checked.pages_followed, "page followed", "pages followed");
  return found ? `${counted(found, "finding")}; ${parts.join(", ")}` : parts.join(", ");
}

function findings(all, total) {
  const rows = all.map((one) => [
    one.invariant,
    one.seq === null ? "" : seqLink(one.seq),
    one.node === null ? "" : nodeLink(one.node),
    one.request === null ? one.holders.join(", ") : requestLink(one.request),
    one.pages.length
      ? one.pages.join(" ") +
        (one.pages_total > one.pages.length ? ` and ${count(one.pages_total - one.pages.length)} more` : "")
      : "",
    one.sentence,
  ]);
  const rest = total > all.length ? ` (${count(all.length)} of ${count(total)} shown)` : "";
  return make(
    "section",
    { id: "findings" },
    make("h3", {}, `Findings${rest}`),
    table(["Invariant", "Seq", "Node", "Held by", "Pages", "What is wrong"], rows),
  );
}

function gaps(all) {
  return make(
    "section",
    {},
    make("h3", {}, "Not verified"),
    make(
      "ul",
      {},
      ...all.map((gap) =>
        make(
          "li",
          {},
          `events ${gap.first_seq} to ${gap.last_seq ?? "the end"}: ${gap.reason}`,
          gap.resumed_seq === null ? "" : `, resumed at checkpoint ${gap.resumed_seq}`,
        ),
      ),
    ),
  );
}

function cuts({ locks_cut: all, counts: checked }) {
  return make(
    "section",
    {},
    make("h3", {}, `Locks cut by a reset: ${count(checked.locks_cut_by_reset)}`),
    make(
      "ul",
      {},
      ...all.map((cut) =>
        make(
          "li",
          {},
          seqLink(cut.seq),
          `: lease ${cut.lease} of ${cut.request ?? "a caller"}, ${count(cut.length)} tokens`,
        ),
      ),
    ),
  );
}

function invariants(all) {
  const rows = all.map((one) => [
    make(
      "span",
      { class: `badge ${STATUS_LOOKS[one.status]}` },
      `${STATUS_SIGNS[one.status]} ${one.status.replace("_", " ")}`,
      one.findings ? ` (${count(one.findings)})` : null,
    ),
    make("strong", {}, one.id),
    one.sentence,
  ]);
  return make("section", {}, make("h3", {}, "Invariants"), table(["Status", "Id", "What holds"], rows));
}

function counts(checked) {
  return make(
    "section",
    {},
    make("h3", {}, "What was checked"),
    make(
      "dl",
      { class: "counts" },
      ...Object.entries(checked).map(([name, value]) =>
        make("div", {}, make("dt", {}, name.replaceAll("_", " ")), make("dd", {}, count(value))),
      ),
    ),
  );
}

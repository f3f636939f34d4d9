/** What differs between two moments, A and B: nodes, requests, leases, levels of the pools. */

import { Latest, get } from "./api.js";
import { make, table } from "./dom.js";
import { count, typedNumber } from "./format.js";
import { nodeLink, requestLink } from "./links.js";
import { goTo } from "./moment.js";
import { report, say, settle } from "./notices.js";
import { change, journalPath, look, shownSeq, whenChanged } from "./state.js";

const ABOUT = "Difference";

/** @returns {import("./tabs.js").Tab} */
export function diffTab() {
  const from = seqInput("diff-from", "A");
  const to = seqInput("diff-to", "B");
  const answer = make("div", { id: "difference" });
  const latest = new Latest();
  /** What was compared last: the same is not asked for again by itself. */
  let compared = "";

  async function ask(event) {
    event?.preventDefault();
    const [a, b] = [typedNumber(from.value), typedNumber(to.value)];
    if (a === null || b === null) {
      say(ABOUT, "Mark A and B first, or type two seqs.");
      return;
    }
    change({ markA: a, markB: b });
    await compare(a, b);
  }

  async function compare(a, b) {
    compared = `${look.journal} ${a} ${b}`;
    try {
      const told = await latest.ask((signal) => get(journalPath("/diff"), { from: a, to: b }, { signal }));
      settle(ABOUT);
      answer.replaceChildren(...tell(told));
    } catch (error) {
      report(ABOUT, error);
    }
  }

  const here = (which) =>
    make(
      "button",
      { type: "button", on: { click: () => change({ [which]: shownSeq() ?? null }) } },
      "the seq shown",
    );
  const form = make(
    "form",
    { class: "row-of", on: { submit: ask } },
    make("label", { class: "field" }, make("span", { class: "field-name" }, "From A"), from),
    here("markA"),
    make("label", { class: "field" }, make("span", { class: "field-name" }, "to B"), to),
    here("markB"),
    make("button", { type: "submit", class: "primary", id: "diff-ask" }, "Compare"),
  );
  const fill = () => {
    from.value = look.markA ?? "";
    to.value = look.markB ?? "";
  };
  whenChanged(["markA", "markB"], fill);
  whenChanged(["journal"], () => answer.replaceChildren());
  whenChanged(["tab", "markA", "markB", "journal"], () => {
    const { journal, markA, markB } = look;
    if (look.tab !== "diff" || journal === null || markA === null || markB === null) return;
    if (compared !== `${journal} ${markA} ${markB}`) compare(markA, markB);
  });
  fill();
  return {
    id: "diff",
    name: "Diff",
    elements: [make("div", { class: "pane-body" }, form, answer)],
    focus: () => from.focus(),
  };
}

function seqInput(id, name) {
  return make("input", { id, size: 9, inputmode: "numeric", "aria-label": `Seq ${name}` });
}

function tell({ before, after, nodes, requests, leases, pools }) {
  const moment = (at, name) =>
    make(
      "button",
      { type: "button", class: "link", on: { click: () => goTo(at.seq) } },
      `${name}: seq ${count(at.seq)}`,
    );
  return [
    make("p", { class: "row-of" }, moment(before, "A"), "→", moment(after, "B")),
    make(
      "div",
      { class: "columns" },
      group("Nodes", nodes, (id) => nodeLink(Number(id))),
      group("Requests", requests, (id) => requestLink(id)),
      group("Leases", leases, (id) => `lease ${id}`),
      make(
        "section",
        {},
        make("h3", {}, "Pools, in pages"),
        pools.length
          ? table(
              ["Where", ">A", ">B"],
              pools.map((one) => [one.field, one.before, one.after]),
            )
          : make("p", { class: "quiet" }, "no difference"),
      ),
    ),
  ];
}

function group(
  name,
  { added, added_total: addedAll, removed, removed_total: removedAll, changed, changed_total: changedAll },
  link,
) {
  const some = (ids, all) => [
    ...ids.flatMap((id) => [link(id), " "]),
    ids.length < all ? `and ${count(all - ids.length)} more` : "",
  ];
  const section = make("section", {}, make("h3", {}, name));
  if (addedAll + removedAll + changedAll === 0)
    section.append(make("p", { class: "quiet" }, "no difference"));
  if (addedAll) section.append(make("p", {}, `${count(addedAll)} came: `, ...some(added, addedAll)));
  if (removedAll) section.append(make("p", {}, `${count(removedAll)} went: `, ...some(removed, removedAll)));
  if (changedAll) {
    const rows = changed.flatMap((one) =>
      one.changes.map((what, at) => [at === 0 ? link(one.id) : "", what.field, what.before, what.after]),
    );
    section.append(make("p", {}, `${count(changedAll)} changed`), table(["Which", "What", "A", "B"], rows));
    if (changed.length < changedAll)
      section.append(
        make("p", { class: "quiet small" }, `showing ${count(changed.length)} of ${count(changedAll)}`),
      );
  }
  return section;
}

/** Audits: start one, see how far it is, read its verdict. Findings lead to the seq and node they name. */

import { get, post } from "./api.js";
import { byId, make } from "./dom.js";
import { clock, count, time, typedNumber } from "./format.js";
import { report, say, settle } from "./notices.js";
import { change, journalPath, look, whenChanged } from "./state.js";
import { tellVerdict } from "./verdict.js";

const ABOUT = "Audit";
const POLL_MS = 400;
const RUNNING = new Set(["waiting", "running"]);

/** @returns {import("./tabs.js").Tab} */
export function auditTab() {
  const upto = make("input", { id: "audit-upto", size: 9, inputmode: "numeric", placeholder: "the end" });
  const chain = make("input", { id: "audit-chain", type: "checkbox", checked: true });
  const start = make("button", { type: "submit", class: "primary", id: "audit-start" }, "Run the audit");
  const progress = make("div", { class: "row-of", id: "audit-progress", "aria-live": "polite" });
  const verdict = make("div", { id: "audit-verdict", "aria-live": "polite" });
  const earlier = make("div", { id: "audit-earlier" });
  let watched = null;
  let timer = 0;

  async function run(event) {
    event.preventDefault();
    const seq = typedNumber(upto.value);
    if (upto.value.trim() !== "" && !seq) {
      say(ABOUT, "An audit goes up to a seq, a whole number from 1 on, or to the end.");
      return;
    }
    try {
      const audit = await post(journalPath("/audits"), { upto_seq: seq, chain: chain.checked });
      settle(ABOUT);
      watch(audit);
      listEarlier();
    } catch (error) {
      report(ABOUT, error);
    }
  }

  function watch(audit) {
    clearTimeout(timer);
    watched = audit.id;
    draw(audit);
    if (RUNNING.has(audit.state)) timer = setTimeout(again, POLL_MS, audit);
    else listEarlier();
  }

  async function again(audit) {
    const { id, journal } = audit;
    try {
      const now = await get(`journals/${journal}/audits/${encodeURIComponent(id)}`);
      settle(ABOUT);
      if (watched === id) watch(now);
    } catch (error) {
      report(ABOUT, error);
      // A service that is away for a moment has not lost the audit.
      if (watched === id && error.status === undefined) timer = setTimeout(again, POLL_MS * 5, audit);
    }
  }

  function draw(audit) {
    const running = RUNNING.has(audit.state);
    start.disabled = running;
    const total = audit.total_events;
    progress.replaceChildren(
      make("span", { class: "badge", id: "audit-state" }, audit.state),
      make("span", {}, `${count(audit.done_events)}${total === null ? "" : ` of ${count(total)}`} events`),
      ...(running
        ? [
            make("progress", {
              max: total ?? undefined,
              value: total === null ? undefined : audit.done_events,
              "aria-label": "How far the audit is",
            }),
            make("button", { type: "button", on: { click: () => cancel(audit) } }, "Cancel"),
          ]
        : []),
    );
    verdict.replaceChildren(
      ...(audit.problem ? [make("p", { class: "badge bad" }, `It could not run: ${audit.problem}`)] : []),
      ...(audit.verdict ? tellVerdict(audit.verdict) : []),
    );
  }

  async function cancel(audit) {
    try {
      watch(await post(`journals/${audit.journal}/audits/${encodeURIComponent(audit.id)}/cancel`));
    } catch (error) {
      report(ABOUT, error);
    }
  }

  async function listEarlier() {
    if (look.journal === null || look.tab !== "audit") return;
    try {
      const page = await get(journalPath("/audits"), { limit: 20 });
      settle(ABOUT);
      const items = page.items.filter((audit) => audit.id !== watched);
      earlier.replaceChildren(
        ...(items.length ? [make("h3", {}, "Other audits"), make("ul", {}, ...items.map(item))] : []),
      );
    } catch (error) {
      report(ABOUT, error);
    }
  }

  function item(audit) {
    const outcome = audit.verdict?.verdict ?? audit.state;
    return make(
      "li",
      {},
      make(
        "button",
        { type: "button", class: "link", title: time(audit.started_us), on: { click: () => watch(audit) } },
        clock(audit.started_us).slice(0, 8),
      ),
      ` ${outcome}, `,
      audit.upto_seq === null ? "to the end" : `up to seq ${count(audit.upto_seq)}`,
      audit.chain ? ", with the chain" : null,
    );
  }

  const form = make(
    "form",
    { class: "row-of", on: { submit: run } },
    make("label", { class: "field" }, make("span", { class: "field-name" }, "Up to seq"), upto),
    make("label", {}, chain, "re-read every stored byte for the chain"),
    start,
    progress,
  );
  byId("audit-open").addEventListener("click", () => {
    change({ tab: "audit" });
    // What is hidden takes no focus; the tab comes into sight when this turn is over.
    queueMicrotask(() => start.focus());
  });
  whenChanged(["journal"], () => {
    clearTimeout(timer);
    watched = null;
    start.disabled = false;
    for (const part of [progress, verdict, earlier]) part.replaceChildren();
  });
  return {
    id: "audit",
    name: "Audit",
    elements: [make("div", { class: "pane-body" }, form, verdict, earlier)],
    shown: listEarlier,
    focus: () => start.focus(),
  };
}

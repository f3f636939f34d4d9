/** Why a prefix does not match further: token ids in, how far each pool reaches and where it ends out. */

import { Latest, post } from "./api.js";
import { facts, make } from "./dom.js";
import { count } from "./format.js";
import { nodeLink } from "./links.js";
import { report, settle } from "./notices.js";
import { journalPath, look, shownSeq } from "./state.js";

const ABOUT = "Explain";
const TOKEN_MAX = 2 ** 31 - 1;
const PATH_SHOWN = 40;

/** Token ids as typed, or what is wrong with them. @param {string} text */
export function typedTokens(text) {
  const words = text.split(/[\s,;[\]]+/).filter(Boolean);
  if (words.length === 0)
    return { problem: "Give token ids: whole numbers, with spaces or commas between them." };
  const tokens = words.map(Number);
  const wrong = tokens.findIndex((token) => !Number.isInteger(token) || Math.abs(token) > TOKEN_MAX);
  return wrong >= 0 ? { problem: `"${words[wrong].slice(0, 20)}" is not a token id.` } : { tokens };
}

/** @returns {import("./tabs.js").Tab} */
export function explainTab() {
  const tokens = make("textarea", {
    id: "explain-tokens",
    rows: 4,
    spellcheck: "false",
    placeholder: "101 7 7 42 …",
  });
  const namespace = make("input", { id: "explain-namespace", placeholder: "(default)" });
  const problem = make("span", { class: "badge bad", hidden: true, role: "alert" });
  const answer = make("div", { id: "explanation", "aria-live": "polite" });
  const latest = new Latest();

  async function ask(event) {
    event.preventDefault();
    const typed = typedTokens(tokens.value);
    problem.hidden = typed.problem === undefined;
    problem.textContent = typed.problem ?? "";
    if (!typed.tokens || look.journal === null) return;
    try {
      const body = { tokens: typed.tokens, namespace: namespace.value, at: shownSeq() ?? null };
      const told = await latest.ask((signal) => post(journalPath("/explain"), body, { signal }));
      settle(ABOUT);
      answer.replaceChildren(...tell(told, typed.tokens.length));
    } catch (error) {
      report(ABOUT, error);
    }
  }

  const form = make(
    "form",
    { on: { submit: ask } },
    make("label", {}, make("span", { class: "field-name" }, "Token ids of the prompt"), tokens),
    make(
      "div",
      { class: "row-of" },
      make("label", { class: "field" }, make("span", { class: "field-name" }, "Namespace"), namespace),
      make("button", { type: "submit", class: "primary" }, "Why does it not match further?"),
      problem,
    ),
  );
  return {
    id: "explain",
    name: "Explain",
    elements: [make("div", { class: "pane-body columns" }, form, answer)],
    focus: () => tokens.focus(),
  };
}

function tell(told, asked) {
  const path = told.path.slice(0, PATH_SHOWN).flatMap((id) => [nodeLink(id, String(id)), " "]);
  if (told.path.length > PATH_SHOWN) path.push(`and ${count(told.path.length - PATH_SHOWN)} more`);
  return [
    make("p", { id: "explain-sentence" }, told.sentence),
    facts([
      ["At", `seq ${count(told.at.seq)}`],
      ["Tokens asked", count(asked)],
      ["Match", `${count(told.length)} tokens`],
      ["Full alone", `${count(told.full_length)} tokens`],
      [
        "Branch point",
        told.branch_length > told.length ? `${count(told.branch_length)} tokens` : "none beyond the match",
      ],
      [
        "First tombstone",
        told.first_tombstone === null ? "none on the path" : `begins at token ${count(told.first_tombstone)}`,
      ],
      [
        "Tombstone that decides",
        told.deciding_tombstone === null ? null : `begins at token ${count(told.deciding_tombstone)}`,
      ],
      ["Live SWA missing", told.live_missing ? `${count(told.live_missing)} tokens` : "none"],
      ["Match ends in", told.node === null ? null : nodeLink(told.node)],
      ["Path", path.length ? path : "no node"],
    ]),
  ];
}

/**
 * A tab whose list belongs to the moment shown: asked for when it is in sight and the moment is another one,
 * never otherwise. Long lists come in pages.
 */

import { Latest, get } from "./api.js";
import { make, table } from "./dom.js";
import { count } from "./format.js";
import { report, settle } from "./notices.js";
import { journalPath, look, shownSeq, whenChanged } from "./state.js";

const ASKED = 200;

/**
 * @template Item
 * @param {{id: string, name: string, path: string, columns: string[], cells: (item: Item) => any[],
 *   empty: string, noun: string}} what
 * @returns {import("./tabs.js").Tab}
 */
export function listTab({ id, name, path, columns, cells, empty, noun }) {
  const body = make("div", { class: "pane-body" });
  const latest = new Latest();
  let told = "";
  /** @type {Item[]} */
  let items = [];

  async function load(cursor = null) {
    const seq = shownSeq();
    if (look.tab !== id || seq === undefined) return;
    const key = `${look.journal} ${seq}`;
    if (cursor === null && key === told) return;
    try {
      const answer = await latest.ask((signal) =>
        get(journalPath(path), { at: seq, limit: ASKED, cursor }, { signal }),
      );
      settle(name);
      told = key;
      items = cursor === null ? answer.items : [...items, ...answer.items];
      draw(answer);
    } catch (error) {
      report(name, error);
    }
  }

  function draw(answer) {
    if (items.length === 0) {
      body.replaceChildren(make("p", { class: "quiet" }, empty));
      return;
    }
    const rest = answer.next
      ? make(
          "p",
          { class: "row-of" },
          make(
            "span",
            { class: "quiet" },
            `showing ${count(items.length)} of ${count(answer.total)} ${noun}`,
          ),
          make("button", { type: "button", on: { click: () => load(answer.next) } }, "More"),
        )
      : make("p", { class: "quiet small" }, `${count(answer.total)} ${noun}`);
    body.replaceChildren(table(columns, items.map(cells)), rest);
  }

  whenChanged(["shown", "journal"], () => load());
  return { id, name, elements: [body], shown: () => load() };
}

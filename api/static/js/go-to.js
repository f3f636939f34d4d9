/** Going to what has a number or a name: a node, a slot or a request, typed into the field at the top. */

import { byId } from "./dom.js";
import { typedNumber } from "./format.js";
import { change } from "./state.js";

const WANTED = "Type a node (14), a slot (full 12, swa 8) or the id of a request.";

/**
 * What a text names, or null for none. A number alone is a node, "full 12" or "swa:8" a slot, "slot 12" one of
 * the Full pool; all else is the id of a request, which may also be told as one: "request 14".
 * @param {string} text
 * @returns {import("./types.js").Pick|null}
 */
export function typedPick(text) {
  const typed = text.trim();
  const [, kind, rest] = /^(node|request|slot|full|swa)(?:\s*[:#]\s*|\s+)(.*)$/is.exec(typed) ?? ["", "", ""];
  switch (kind.toLowerCase()) {
    case "request":
      return { type: "request", id: rest };
    case "node":
      return numbered(rest, (id) => ({ type: "node", id }));
    case "full":
    case "swa":
      return slotOf(kind.toLowerCase(), rest);
    case "slot": {
      const [, pool, number] = /^(full|swa)\s*[:\s]\s*(.*)$/is.exec(rest) ?? ["", "full", rest];
      return slotOf(pool.toLowerCase(), number);
    }
  }
  return numbered(typed, (id) => ({ type: "node", id })) ?? (typed ? { type: "request", id: typed } : null);
}

/** @param {string} text @param {(value: number) => import("./types.js").Pick} made */
function numbered(text, made) {
  const value = typedNumber(text);
  return value === null ? null : made(value);
}

function slotOf(pool, text) {
  return numbered(text, (slot) => ({ type: "slot", pool: pool === "swa" ? "swa" : "full", slot }));
}

/** Put the focus where one types what to go to. */
export function focusGoTo() {
  byId("go-input").focus();
  byId("go-input").select();
}

export function startGoTo() {
  const input = byId("go-input");
  input.addEventListener("input", () => input.setCustomValidity(""));
  byId("go-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const pick = typedPick(input.value);
    input.setCustomValidity(pick === null ? WANTED : "");
    if (pick === null) {
      input.reportValidity();
      return;
    }
    change({ pick });
    byId("side").focus({ preventScroll: true });
  });
}

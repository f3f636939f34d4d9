/**
 * The filters of the event list: kinds, node, request, undone or not. Owns their form and what it amounts
 * to.
 */

import { make, whenQuiet } from "./dom.js";
import { typedNumber } from "./format.js";
import { KINDS } from "./kinds.js";

const TYPED_MS = 250;

/**
 * @typedef {{kind: string[], node: number|null, request: string|null, undone: string|null}} Filters
 */

/** @param {() => void} changed */
export function eventFilters(changed) {
  const changedSoon = whenQuiet(changed, TYPED_MS);
  const boxes = KINDS.map((kind) =>
    make("input", { type: "checkbox", value: kind, id: `kind-${kind}`, on: { change: changed } }),
  );
  const kinds = make(
    "details",
    { id: "kind-filter" },
    make("summary", {}, "All kinds"),
    make(
      "div",
      { class: "kinds" },
      ...boxes.map((box, at) => make("label", { class: "mono" }, box, KINDS[at])),
      make(
        "button",
        {
          type: "button",
          on: {
            click: () => {
              boxes.forEach((box) => {
                box.checked = false;
              });
              changed();
            },
          },
        },
        "All kinds",
      ),
    ),
  );
  const node = make("input", {
    id: "event-node",
    size: 7,
    inputmode: "numeric",
    placeholder: "any",
    on: { input: changedSoon },
  });
  const request = make("input", {
    id: "event-request",
    size: 12,
    placeholder: "any",
    on: { input: changedSoon },
  });
  const undone = make(
    "select",
    { id: "event-undone", on: { change: changed } },
    make("option", { value: "" }, "all events"),
    make("option", { value: "false" }, "not undone"),
    make("option", { value: "true" }, "only undone"),
  );

  // A menu: a click elsewhere or Escape closes it.
  document.addEventListener("pointerdown", (event) => {
    if (kinds.open && !kinds.contains(event.target)) kinds.open = false;
  });
  kinds.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    kinds.open = false;
    kinds.querySelector("summary").focus();
    event.stopPropagation();
  });

  function field(name, input) {
    return make("label", { class: "field" }, make("span", { class: "field-name" }, name), input);
  }

  return {
    element: make(
      "div",
      { class: "filters" },
      kinds,
      field("Node", node),
      field("Request", request),
      field("Shown", undone),
    ),
    /** @returns {Filters} */
    read() {
      const chosen = boxes.filter((box) => box.checked).map((box) => box.value);
      kinds.querySelector("summary").textContent =
        chosen.length === 0 ? "All kinds" : chosen.length === 1 ? chosen[0] : `${chosen.length} kinds`;
      return {
        kind: chosen,
        node: typedNumber(node.value),
        request: request.value.trim() || null,
        undone: undone.value || null,
      };
    },
    focus() {
      request.focus();
    },
  };
}

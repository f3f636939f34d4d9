/** Above the tree: filters, zoom, and how much of the tree is drawn. */

import { byId, make } from "./dom.js";
import { nodeLink } from "./links.js";
import { change, look, whenChanged } from "./state.js";
import { changeRowHeight, data, fit, shareText, whenPictureChanges, zoomIn, zoomOut } from "./tree-view.js";

/** Deeper trees are better cut by choosing a node to look below. */
const MOST_DEPTH = 10_000;

const namespaces = make("select", { id: "namespace-filter" });
const depth = make("input", {
  id: "depth-filter",
  type: "number",
  min: 1,
  max: MOST_DEPTH,
  placeholder: "all",
  "aria-label": "Levels shown",
});
const share = make("span", { class: "quiet small tree-count", id: "tree-share" });
const below = make("span", { class: "chip", hidden: true });

function iconButton(text, title, act) {
  return make(
    "button",
    { type: "button", class: "icon", title, "aria-label": title, on: { click: act } },
    text,
  );
}

function drawNamespaces() {
  const picture = data.picture;
  if (!picture) return;
  // While one is chosen the answer is of that one alone: the choice keeps those that were there before.
  const known =
    look.namespace === null ? picture.namespaces : [...namespaces.options].slice(1).map((one) => one.value);
  const names =
    known.includes(look.namespace) || look.namespace === null ? known : [look.namespace, ...known];
  const all =
    look.namespace === null && picture.namespaces_total > names.length
      ? `all (${names.length} of ${picture.namespaces_total} listed)`
      : "all";
  namespaces.replaceChildren(
    make("option", { value: "\u0000all" }, all),
    ...names.map((name) => make("option", { value: name }, name === "" ? "(default)" : name)),
  );
  namespaces.value = look.namespace ?? "\u0000all";
}

function drawBelow() {
  below.hidden = look.root === null;
  if (look.root === null) return;
  below.replaceChildren(
    make("span", {}, "below ", nodeLink(look.root)),
    make(
      "button",
      { type: "button", "aria-label": "Show the whole tree", on: { click: () => change({ root: null }) } },
      "×",
    ),
  );
}

function drawShare() {
  share.textContent = shareText();
}

export function startTreeBar() {
  namespaces.addEventListener("change", () =>
    change({ namespace: namespaces.value === "\u0000all" ? null : namespaces.value, root: null }),
  );
  depth.addEventListener("change", () => {
    const levels = Number.parseInt(depth.value, 10);
    change({ depth: levels >= 1 ? Math.min(levels, MOST_DEPTH) : null });
  });
  byId("tree-bar").replaceChildren(
    make("label", { class: "field" }, make("span", { class: "field-name" }, "Namespace"), namespaces),
    make("label", { class: "field" }, make("span", { class: "field-name" }, "Levels"), depth),
    below,
    make(
      "span",
      { class: "inline" },
      iconButton("−", "Zoom out (-)", zoomOut),
      iconButton("+", "Zoom in (+)", zoomIn),
      iconButton("Fit", "Show the whole width (0)", fit),
      iconButton("Lower rows", "Lower rows, more of the tree ({)", () => changeRowHeight(-1)),
      iconButton("Higher rows", "Higher rows, readable letters (})", () => changeRowHeight(1)),
    ),
    share,
  );
  whenPictureChanges(() => {
    drawNamespaces();
    drawShare();
  });
  byId("tree-scroller").addEventListener("scroll", drawShare);
  whenChanged(["root"], drawBelow);
  whenChanged(["depth"], () => {
    depth.value = look.depth ?? "";
  });
  drawBelow();
  depth.value = look.depth ?? "";
}

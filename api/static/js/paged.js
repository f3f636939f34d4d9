/** A list that comes in pages: the first at once, the others by a button. */

import { get } from "./api.js";
import { make } from "./dom.js";
import { count } from "./format.js";
import { report } from "./notices.js";

/**
 * @template Item
 * @param {{path: string, query: Record<string, unknown>, item: (item: Item) => Node, about: string,
 *   signal?: AbortSignal|null, empty?: string}} what
 * @returns {Promise<Node[]>} the list, then the button where there is more
 */
export async function pagedList({ path, query, item, about, signal = null, empty = "None." }) {
  const page = await get(path, query, { signal: signal ?? undefined });
  if (page.items.length === 0) return [make("p", { class: "quiet" }, empty), ...cutNote(page)];
  const list = make("ol", {}, ...page.items.map(item));
  const more = make("button", { type: "button", hidden: page.next === null }, "More");
  const ends = make("div", {}, ...cutNote(page));
  let next = page.next;
  more.addEventListener("click", async () => {
    more.disabled = true;
    try {
      const following = await get(path, { ...query, cursor: next });
      list.append(...following.items.map(item));
      next = following.next;
      more.hidden = next === null;
      ends.replaceChildren(...cutNote(following));
    } catch (error) {
      report(about, error);
    } finally {
      more.disabled = false;
    }
  });
  return [list, more, ends];
}

/** Where older events were pruned the list is not all there was, and says so. */
function cutNote(page) {
  if (page.not_here_before === null || page.not_here_before === undefined) return [];
  return [
    make(
      "p",
      { class: "quiet small" },
      `Events before seq ${count(page.not_here_before)} are no longer in this store.`,
    ),
  ];
}

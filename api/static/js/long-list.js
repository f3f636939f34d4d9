/**
 * A list of thousands of rows of one height, of which only those on the screen are elements. It asks for
 * more at either end, and holds still what a person reads when rows come in above.
 */

import { make, perFrame } from "./dom.js";

const ROW_PX = 24;
/** Rows beyond the edge, so that a turn of the wheel finds them there. */
const MARGIN_ROWS = 10;
/** So near the end more is asked for. */
const NEAR_ROWS = 20;

/** @template Item */
export class LongList {
  /**
   * @param {{row: (item: Item) => HTMLElement, older: () => void, newer: () => void, label: string}} how
   */
  constructor({ row, older, newer, label }) {
    /** @type {Item[]} */
    this.items = [];
    this.row = row;
    this.older = older;
    this.newer = newer;
    this.body = make("div", { class: "long-list-space", role: "list", "aria-label": label });
    this.element = make("div", { class: "long-list", tabindex: 0 }, this.body);
    this.draw = perFrame(() => this.drawNow());
    this.element.addEventListener("scroll", () => {
      this.draw();
      this.askForMore();
    });
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(this.draw).observe(this.element);
  }

  /** Other items altogether. @param {Item[]} items */
  replace(items) {
    this.items = items;
    this.element.scrollTop = 0;
    this.drawNow();
  }

  /** Rows at the end. @param {Item[]} items */
  append(items) {
    this.items.push(...items);
    this.draw();
  }

  /** Rows at the beginning: at the top one sees them come, below it nothing moves. @param {Item[]} items */
  prepend(items) {
    const wasAtTop = this.element.scrollTop < ROW_PX / 2;
    this.items.unshift(...items);
    this.drawNow();
    if (!wasAtTop) this.element.scrollTop += items.length * ROW_PX;
  }

  /** @param {number} index */
  scrollTo(index) {
    const top = index * ROW_PX;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop || top + ROW_PX > scrollTop + clientHeight) {
      this.element.scrollTop = Math.max(0, top - clientHeight / 3);
    }
    this.draw();
  }

  drawNow() {
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, Math.floor(scrollTop / ROW_PX) - MARGIN_ROWS);
    const last = Math.min(this.items.length, Math.ceil((scrollTop + clientHeight) / ROW_PX) + MARGIN_ROWS);
    this.body.style.height = `${this.items.length * ROW_PX}px`;
    const active = document.activeElement;
    const focused = this.body.contains(active) ? active.getAttribute("data-key") : null;
    const rows = [];
    for (let index = first; index < last; index += 1) {
      const row = this.row(this.items[index]);
      row.style.top = `${index * ROW_PX}px`;
      row.setAttribute("aria-setsize", "-1");
      row.setAttribute("aria-posinset", String(index + 1));
      rows.push(row);
    }
    this.body.replaceChildren(...rows);
    if (focused) this.body.querySelector(`[data-key="${focused}"]`)?.focus({ preventScroll: true });
  }

  askForMore() {
    const { scrollTop, clientHeight } = this.element;
    if (scrollTop + clientHeight > (this.items.length - NEAR_ROWS) * ROW_PX) this.older();
    if (scrollTop < NEAR_ROWS * ROW_PX) this.newer();
  }

  /** Up and down go from row to row: the first control of each row takes the focus. */
  onKey(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = document.activeElement?.closest("[role=listitem]");
    if (!by || !row) return;
    const next = by > 0 ? row.nextElementSibling : row.previousElementSibling;
    next?.querySelector("button")?.focus();
    event.preventDefault();
  }
}

/** One pool as a map: a square a page, in the order of page numbers, coloured by who has it. */

import { make, perFrame, sharp, whenQuiet } from "./dom.js";
import { count } from "./format.js";
import { report, settle } from "./notices.js";
import { PoolData } from "./pool-data.js";
import { paintPage } from "./pool-paint.js";
import { change, look, whenChanged } from "./state.js";
import { colour, whenThemeChanges } from "./theme.js";
import { hideTip, showTip } from "./tooltip.js";

/** Sides of a square; the largest at which all pages are in sight is taken, the smallest where none is. */
const SIDES = [6, 9, 12, 16, 20];
const SETTLES_MS = 60;
const RING_FROM_PX = 10;

export class PoolMap {
  /** @param {"full"|"swa"} pool */
  constructor(pool) {
    this.pool = pool;
    this.name = pool === "full" ? "Full" : "SWA";
    this.data = new PoolData(pool);
    this.side = SIDES[2];
    this.level = null;
    this.canvas = make("canvas", {
      id: `pool-${pool}`,
      tabindex: 0,
      role: "img",
      "aria-label": `${this.name} pool`,
    });
    this.space = make("div", { class: "pool-space" });
    this.scroller = make("div", { class: "pool-scroller" }, this.space, this.canvas);
    this.numbers = make("span", { class: "quiet small" });
    this.element = make(
      "div",
      { class: "pool" },
      make("div", { class: "pool-head" }, make("h3", {}, `${this.name} pool`), this.numbers),
      this.scroller,
    );
    this.redraw = perFrame(() => this.draw());
    this.coverSoon = whenQuiet(() => this.cover(), SETTLES_MS);
    this.listen();
  }

  listen() {
    this.scroller.addEventListener("scroll", () => {
      this.redraw();
      this.coverSoon();
    });
    this.canvas.addEventListener("pointermove", (event) => this.onMove(event));
    this.canvas.addEventListener("pointerleave", hideTip);
    this.canvas.addEventListener("click", (event) => {
      const page = this.pageAt(event);
      if (page !== null) this.pick(page);
    });
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => this.refresh()).observe(this.scroller);
    whenThemeChanges(this.redraw);
    whenChanged(["journal"], () => this.data.clear());
    whenChanged(["shown"], () => {
      this.data.withdraw();
      this.refresh();
    });
    whenChanged(["pick"], this.redraw);
  }

  get isHidden() {
    return this.scroller.clientWidth === 0;
  }

  get columns() {
    return Math.max(1, Math.floor(this.scroller.clientWidth / this.side));
  }

  refresh() {
    this.level = look.shown?.pools.find((level) => level.pool === this.pool) ?? null;
    if (this.isHidden || !this.level) return;
    const room = this.scroller.clientWidth * this.scroller.clientHeight;
    this.side = SIDES.filter((side) => side * side * this.level.pages * 1.1 <= room).at(-1) ?? SIDES[0];
    this.space.style.height = `${Math.ceil(this.level.pages / this.columns) * this.side}px`;
    this.numbers.textContent = this.levelText();
    this.redraw();
    this.cover();
  }

  levelText() {
    const level = this.level;
    const parts = ["free", "evictable", "protected", "held"].map((part) => `${part} ${count(level[part])}`);
    if (level.tombstoned) parts.push(`tombstoned ${count(level.tombstoned)}`);
    return `${count(level.pages)} pages of ${count(level.page_size)} · tokens: ${parts.join(", ")}`;
  }

  /** First and last page on the screen. */
  visible() {
    const firstRow = Math.floor(this.scroller.scrollTop / this.side);
    const rows = Math.ceil(this.scroller.clientHeight / this.side) + 1;
    const first = 1 + firstRow * this.columns;
    return { first, last: Math.min(this.level.pages, first + rows * this.columns - 1) };
  }

  async cover() {
    if (this.isHidden || !this.level) return;
    const { first, last } = this.visible();
    try {
      await this.data.cover(first, last, this.level.pages);
      settle(`${this.name} pool`);
    } catch (error) {
      report(`${this.name} pool`, error);
    }
    this.redraw();
  }

  square(page) {
    const index = page - 1;
    return {
      x: (index % this.columns) * this.side,
      y: Math.floor(index / this.columns) * this.side - this.scroller.scrollTop,
      width: this.side - 1,
      height: this.side - 1,
    };
  }

  draw() {
    if (this.isHidden) return;
    const { clientWidth: width, clientHeight: height } = this.scroller;
    this.canvas.style.height = `${height}px`;
    const pen = sharp(this.canvas, width, height);
    pen.clearRect(0, 0, width, height);
    if (!this.level) return;
    const { first, last } = this.visible();
    for (const run of this.data.runs(first, last)) {
      const end = Math.min(run.page + run.count - 1, last);
      const isPicked = this.isPicked(run);
      for (let page = Math.max(run.page, first); page <= end; page += 1) {
        const at = this.square(page);
        paintPage(pen, at, run);
        if (isPicked || this.pickedPage() === page) this.frame(pen, at);
      }
    }
  }

  frame(pen, at) {
    pen.strokeStyle = colour("focus");
    pen.lineWidth = 2;
    pen.strokeRect(at.x + 0.5, at.y + 0.5, at.width - 1, at.height - 1);
    if (at.width < RING_FROM_PX) return;
    // A ring of the ground keeps the frame apart from a page of nearly its colour.
    pen.strokeStyle = colour("surface");
    pen.lineWidth = 1;
    pen.strokeRect(at.x + 2, at.y + 2, at.width - 4, at.height - 4);
  }

  isPicked(run) {
    const pick = look.pick;
    return (
      (pick?.type === "node" && run.node === pick.id) || (pick?.type === "request" && run.request === pick.id)
    );
  }

  pickedPage() {
    const pick = look.pick;
    return pick?.type === "slot" && pick.pool === this.pool
      ? Math.floor(pick.slot / this.level.page_size)
      : null;
  }

  pageAt(event) {
    if (!this.level) return null;
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.side);
    const row = Math.floor((event.clientY - box.top + this.scroller.scrollTop) / this.side);
    const page = row * this.columns + column + 1;
    return column >= 0 && column < this.columns && page >= 1 && page <= this.level.pages ? page : null;
  }

  pick(page) {
    change({ pick: { type: "slot", pool: this.pool, slot: page * this.level.page_size } });
  }

  onMove(event) {
    const page = this.pageAt(event);
    const owner = page === null ? null : this.data.owner(page);
    if (page === null || !owner) {
      hideTip();
      return;
    }
    const who =
      owner.node !== null ? `node ${owner.node}` : owner.request !== null ? `request ${owner.request}` : "";
    const words = [owner.place, who, owner.locked ? "locked" : "", owner.tombstone ? "tombstone" : ""];
    showTip(`${this.name} page ${page}\n${words.filter(Boolean).join(", ")}`, event);
  }

  /** Arrow keys go from page to page; the first press begins at the page picked or the first one. */
  onKey(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns }[event.key];
    if (by === undefined || !this.level) return;
    event.preventDefault();
    const from = this.pickedPage();
    const page = from === null ? this.visible().first : Math.min(Math.max(from + by, 1), this.level.pages);
    this.pick(page);
    const at = this.square(page);
    if (at.y < 0 || at.y + at.height > this.scroller.clientHeight) {
      this.scroller.scrollTop += at.y - this.scroller.clientHeight / 2;
    }
  }
}

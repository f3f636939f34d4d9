/**
 * Who has the pages of one pool, for the pages on the screen. Asks in blocks of `BLOCK_PAGES`; where a
 * block has more runs than one answer holds, it goes on where the answer ended.
 */

import { get } from "./api.js";
import { journalPath, shownSeq } from "./state.js";

const BLOCK_PAGES = 4096;
const RUNS_ASKED = 5000;
const BLOCKS_KEPT = 40;

export class PoolData {
  /** @param {"full"|"swa"} pool */
  constructor(pool) {
    this.pool = pool;
    /** @type {Map<string, import("./types.js").OwnerRun[]>} */
    this.blocks = new Map();
    /** Blocks on their way. @type {Map<string, Promise<void>>} */
    this.coming = new Map();
    this.controller = new AbortController();
  }

  /** Forget what is on its way: another moment is shown. */
  withdraw() {
    this.controller.abort();
    this.coming.clear();
    this.controller = new AbortController();
  }

  clear() {
    this.withdraw();
    this.blocks.clear();
  }

  key(block) {
    return `${shownSeq()} ${block}`;
  }

  /** Fetch what is missing of pages [first, last]. */
  async cover(first, last, pagesTotal) {
    const wanted = [];
    for (let block = Math.floor(first / BLOCK_PAGES); block * BLOCK_PAGES <= last; block += 1) {
      if (!this.blocks.has(this.key(block))) wanted.push(this.once(block, pagesTotal));
    }
    await Promise.all(wanted);
  }

  /** The same block is asked for once, however many wait for it. */
  once(block, pagesTotal) {
    const key = this.key(block);
    let coming = this.coming.get(key);
    if (!coming) {
      coming = this.fetch(block, pagesTotal).finally(
        () => this.coming.get(key) === coming && this.coming.delete(key),
      );
      this.coming.set(key, coming);
    }
    return coming;
  }

  async fetch(block, pagesTotal) {
    const key = this.key(block);
    const at = shownSeq();
    const { signal } = this.controller;
    const end = Math.min((block + 1) * BLOCK_PAGES, pagesTotal + 1);
    const runs = [];
    // Page 0 is padding and belongs to nobody.
    let first = Math.max(1, block * BLOCK_PAGES);
    while (first < end) {
      const query = { at, first_page: first, pages: end - first, limit: RUNS_ASKED };
      const answer = await get(journalPath(`/pools/${this.pool}/map`), query, { signal });
      runs.push(...answer.runs);
      if (answer.pages <= 0) break;
      first += answer.pages;
    }
    this.blocks.set(key, runs);
    while (this.blocks.size > BLOCKS_KEPT) this.blocks.delete(this.blocks.keys().next().value);
  }

  /** Runs that touch pages [first, last], of the moment shown or, while that is asked for, of none. */
  *runs(first, last) {
    for (let block = Math.floor(first / BLOCK_PAGES); block * BLOCK_PAGES <= last; block += 1) {
      for (const run of this.blocks.get(this.key(block)) ?? []) {
        if (run.page <= last && run.page + run.count > first) yield run;
      }
    }
  }

  /** @param {number} page */
  owner(page) {
    for (const run of this.runs(page, page)) return run;
    return null;
  }
}

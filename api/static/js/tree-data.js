/**
 * The part of the tree that is on the screen. Asks for the visible rows and a margin, in steps of
 * `STEP_ROWS`, so that scrolling a little asks for nothing; keeps the last answers, each under the seq it
 * is true at.
 */

import { Latest, get } from "./api.js";
import { journalPath, look, shownSeq } from "./state.js";

/** Answers begin and end at multiples of this. */
const STEP_ROWS = 64;
/** The service's largest answer, in rows. */
const MOST_ROWS = 1000;
/** Nodes of one answer: some ten times of what fits a screen in readable rows. */
export const NODES_ASKED = 2000;
const ANSWERS_KEPT = 48;
/** The picture where the node that is the top of it is not there. */
const NOTHING = {
  first_row: 0,
  rows: 0,
  rows_total: 0,
  nodes_total: 0,
  tokens_total: 0,
  end_max: 0,
  truncated: false,
  namespaces: [],
  namespaces_total: 0,
  nodes: [],
};

export class TreeData {
  constructor() {
    /** @type {import("./types.js").Tree|null} */
    this.picture = null;
    /** @type {Map<number, import("./types.js").Brief>} */
    this.byId = new Map();
    /** Ids of the nodes whose children are in the picture. @type {Set<number|null>} */
    this.parents = new Set();
    /** @type {Map<string, import("./types.js").Tree>} */
    this.kept = new Map();
    this.latest = new Latest();
    this.key = "";
  }

  get busy() {
    return this.latest.busy;
  }

  /** Forget everything: another journal. */
  clear() {
    this.latest.withdraw();
    this.kept.clear();
    this.picture = null;
    this.byId.clear();
    this.parents.clear();
    this.key = "";
  }

  /**
   * Make the picture cover these rows of the moment shown.
   * @param {{first: number, rows: number}} visible
   * @returns {Promise<boolean>} whether the picture changed
   */
  async cover({ first, rows }) {
    const seq = shownSeq();
    if (seq === undefined) return false;
    const from = Math.max(0, Math.floor(first / STEP_ROWS) * STEP_ROWS);
    const upto = Math.ceil((first + rows) / STEP_ROWS) * STEP_ROWS;
    const query = {
      at: seq,
      namespace: look.namespace ?? undefined,
      root: look.root,
      depth: look.depth,
      first_row: from,
      rows: Math.min(upto - from, MOST_ROWS),
      limit: NODES_ASKED,
      absent: "tell",
    };
    const key = JSON.stringify([look.journal, query]);
    if (key === this.key) return false;
    this.key = key;
    try {
      const known = this.kept.get(key);
      if (known) this.latest.withdraw();
      const answer =
        known ?? (await this.latest.ask((signal) => get(journalPath("/tree"), query, { signal })));
      this.show(answer.absent ? { ...NOTHING, sentence: answer.sentence } : answer, key);
      return true;
    } catch (error) {
      // A question that failed may be asked again; one that a newer one replaced has set its own key.
      if (this.key === key) this.key = "";
      throw error;
    }
  }

  show(picture, key) {
    this.kept.delete(key);
    this.kept.set(key, picture);
    if (this.kept.size > ANSWERS_KEPT) this.kept.delete(this.kept.keys().next().value);
    this.picture = picture;
    this.byId = new Map(picture.nodes.map((node) => [node.id, node]));
    this.parents = new Set(picture.nodes.map((node) => node.parent));
  }

  /** The deepest known node in a row that begins at or before a token position. */
  inRow(row, token) {
    let best = null;
    for (const node of this.picture?.nodes ?? []) {
      if (row < node.row || row >= node.row + node.rows || node.start > token) continue;
      if (best === null || node.start >= best.start) best = node;
    }
    return best;
  }

  /** The first child of a node that is known. */
  childOf(node) {
    let first = null;
    for (const other of this.picture?.nodes ?? []) {
      if (other.parent === node.id && (first === null || other.row < first.row)) first = other;
    }
    return first;
  }
}

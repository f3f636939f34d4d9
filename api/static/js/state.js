/**
 * What the page is looking at: one small store. Views read it and hear of changes; they never keep a copy.
 *
 * `asked` is the seq that was asked for, null for the newest. `shown` is what the service made of it: the
 * moment (At) and the pools' levels that all views are drawn for.
 */

/**
 * @typedef {object} Looking
 * @property {import("./types.js").Journal[]} journals
 * @property {number|null} journal      id of the journal
 * @property {import("./types.js").Journal|null} info
 * @property {number|null} asked
 * @property {import("./types.js").Pools|null} shown
 * @property {string|null} unknown       why nothing can be shown of the moment that was asked for
 * @property {import("./types.js").Pick|null} pick
 * @property {number|null} event        seq of the event that was jumped to
 * @property {number|null} root         only the tree below this node
 * @property {string|null} namespace    only this namespace
 * @property {number|null} depth        only so many levels
 * @property {number|null} markA
 * @property {number|null} markB
 * @property {string} tab
 */

/** @type {Looking} */
const looking = {
  journals: [],
  journal: null,
  info: null,
  asked: null,
  shown: null,
  unknown: null,
  pick: null,
  event: null,
  root: null,
  namespace: null,
  depth: null,
  markA: null,
  markB: null,
  tab: "events",
};

/** @type {{keys: Set<string>, tell: (changed: Set<string>) => void}[]} */
const listeners = [];
/** @type {Set<string>} */
let changed = new Set();

/** The state, to read; `change` is the one way to write it. */
export const look = /** @type {Readonly<Looking>} */ (looking);

/**
 * Change some of it. Listeners are told once, after the current turn, however many changes it made.
 * @param {Partial<Looking>} patch
 */
export function change(patch) {
  for (const [key, value] of Object.entries(patch)) {
    if (Object.is(looking[key], value) || samePick(looking[key], value)) continue;
    looking[key] = value;
    if (changed.size === 0) queueMicrotask(tellAll);
    changed.add(key);
  }
}

/**
 * Be told when any of these keys changed.
 * @param {(keyof Looking)[]} keys
 * @param {(changed: Set<string>) => void} tell
 */
export function whenChanged(keys, tell) {
  listeners.push({ keys: new Set(keys), tell });
}

function tellAll() {
  const now = changed;
  changed = new Set();
  for (const listener of listeners) {
    for (const key of now) {
      if (listener.keys.has(key)) {
        listener.tell(now);
        break;
      }
    }
  }
}

/** Two picks of the same thing are the same, so that choosing what is chosen asks for nothing. */
function samePick(one, other) {
  if (!one?.type || one.type !== other?.type) return false;
  return one.id === other.id && one.pool === other.pool && one.slot === other.slot;
}

/** The path of an answer about the journal looked at. @param {string} [rest] */
export function journalPath(rest = "") {
  return `journals/${look.journal}${rest}`;
}

/** The seq that all views are drawn for, or undefined before the first answer. */
export function shownSeq() {
  return look.shown?.at.seq;
}

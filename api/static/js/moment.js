/**
 * Which moment is shown, and getting to another one. A state stands at the end of a transaction, so every way
 * here ends at one: stepping goes by transaction, and jumping to an event shows what its transaction left.
 *
 * One small question, /pools, finds the moment; every other view then asks for exactly that seq, so that all
 * of them tell of the same state, and of one that can be cached.
 */

import { Latest, Problem, get } from "./api.js";
import { report, say, settle } from "./notices.js";
import { change, journalPath, look, whenChanged } from "./state.js";

const ABOUT = "Moment";
const moment = new Latest();
const way = new Latest();
/** The search for the moment that was asked for last. */
let finding = Promise.resolve();

/**
 * Ask for a seq; null is the newest. Whatever step is still looked up is forgotten: its answer would come
 * after this wish and undo it.
 * @param {number|null} seq @param {number|null} [event]
 */
export function goTo(seq, event = null) {
  way.withdraw();
  change({ asked: seq, event });
}

/** Whether the newest state is followed. */
export function isLive() {
  return look.asked === null;
}

/** Follow the newest state, or stay at the one shown. @param {boolean} on */
export function setLive(on) {
  if (on) goTo(null);
  else if (look.shown) goTo(look.shown.at.seq);
}

/** Ask again for the newest state; does nothing while a past one is looked at. */
export async function refreshLive() {
  if (isLive() && !moment.busy) await find();
}

async function find() {
  if (look.journal === null) return;
  if (look.info?.last_seq === null && isLive()) {
    change({ shown: null });
    return;
  }
  try {
    const shown = await moment.ask((signal) => get(journalPath("/pools"), { at: look.asked }, { signal }));
    settle(ABOUT);
    if (shown.at.seq !== look.shown?.at.seq || isOther) change({ shown });
    change({ unknown: null });
    isOther = false;
  } catch (error) {
    report(ABOUT, error);
    // Where a state was shown it stays; where none can be, the views say so and the events are told all the same.
    if (error instanceof Problem && (look.shown === null || isOther))
      change({ shown: null, unknown: error.message });
  }
}

/** Another journal's state is another one even at the same seq. */
let isOther = false;

/** The seq at which a transaction has ended. @param {import("./types.js").Transaction} transaction */
export function endOf(transaction) {
  return transaction.first_seq + transaction.events - 1;
}

/**
 * @param {number} number
 * @param {AbortSignal} [signal]
 * @returns {Promise<import("./types.js").Transaction>}
 */
function transactionAt(number, signal) {
  return get(journalPath(`/transactions/${number}`), {}, { signal });
}

/**
 * Go `by` transactions on, or back where it is negative; stops at either end.
 * @param {number} by
 * @returns {Promise<boolean>} whether there was anywhere to go
 */
export async function step(by) {
  if (!look.shown) return false;
  const from = look.shown.at.transaction;
  const number = Math.min(Math.max(from + by, 1), look.info?.transactions ?? from);
  if (number === from || (by > 0 && isLive())) return false;
  try {
    const transaction = await way.ask((signal) => transactionAt(number, signal));
    settle(ABOUT);
    goTo(endOf(transaction));
    await arrival();
    return true;
  } catch (error) {
    report(ABOUT, error);
    return false;
  }
}

/** When the moment asked for is shown, or is known not to be to have. */
async function arrival() {
  // Listeners hear of a change when the turn that made it is over; only then the search has begun.
  await Promise.resolve();
  await finding;
}

/** Show what an event's transaction left, and remember the event. @param {number} seq */
export async function goToEvent(seq) {
  try {
    const transaction = await way.ask(async (signal) => {
      const event = await get(journalPath(`/events/${seq}`), {}, { signal });
      return transactionAt(event.transaction, signal);
    });
    settle(ABOUT);
    goTo(endOf(transaction), seq);
  } catch (error) {
    report(ABOUT, error);
  }
}

/** Show the state right before an event's transaction. @param {number} seq */
export async function goBefore(seq) {
  try {
    const event = await way.ask((signal) => get(journalPath(`/events/${seq}`), {}, { signal }));
    const transaction = await way.ask((signal) => transactionAt(event.transaction, signal));
    settle(ABOUT);
    if (transaction.first_seq > 1) goTo(transaction.first_seq - 1);
    else say(ABOUT, "Nothing is before the first transaction.");
  } catch (error) {
    report(ABOUT, error);
  }
}

/** Remember the seq shown as A or B, for the difference. @param {"markA"|"markB"} which */
export function remember(which) {
  if (look.shown) change({ [which]: look.shown.at.seq });
}

export function startMoment() {
  whenChanged(["journal", "asked"], (changed) => {
    if (changed.has("journal")) {
      isOther = true;
      way.withdraw();
    }
    finding = find();
  });
}

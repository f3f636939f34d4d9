/**
 * The calm bar: what went wrong, once each, until it is over or put away. A view calls `report` with what it
 * caught and `settle` when the same thing worked again.
 */

import { NoAnswer, Problem, isSuperseded, whenReachabilityChanges } from "./api.js";
import { make } from "./dom.js";

/** More than this many different problems at once tell a person nothing more. */
const NOTICES_SHOWN = 4;

/** @type {Map<string, {message: string, bad: boolean}>} */
const notices = new Map();

/**
 * Show what was caught. Superseded questions are nothing; a service that does not answer has one notice of
 * its own.
 * @param {string} about  what did not work, as the reader knows it: "the tree", "the audit"
 * @param {unknown} error
 */
export function report(about, error) {
  if (isSuperseded(error) || error instanceof NoAnswer) return;
  if (error instanceof Problem) {
    say(about, `${error.title}: ${error.message}`);
    return;
  }
  say(about, `The page made a mistake: ${error instanceof Error ? error.message : String(error)}`);
  // A fault of the page itself belongs in the console, too, where its stack can be read.
  console.error(error);
}

/** Say something that is not an error. @param {string} about @param {string} message */
export function say(about, message) {
  notices.set(about, { message, bad: false });
  draw();
}

/** It works again. @param {string} about */
export function settle(about) {
  if (notices.delete(about)) draw();
}

function draw() {
  const bar = document.getElementById("notices");
  const shown = [...notices].slice(-NOTICES_SHOWN);
  bar.replaceChildren(
    ...shown.map(([about, notice]) =>
      make(
        "p",
        { class: notice.bad ? "notice bad" : "notice" },
        make("strong", {}, about),
        make("span", { class: "grow" }, notice.message),
        make(
          "button",
          { type: "button", "aria-label": `Put away: ${about}`, on: { click: () => settle(about) } },
          "Dismiss",
        ),
      ),
    ),
  );
}

whenReachabilityChanges((reachable) => {
  if (reachable) {
    settle("Connection");
    return;
  }
  notices.set("Connection", {
    message: "The service does not answer. What you see is the last that was known; the page goes on asking.",
    bad: true,
  });
  draw();
});

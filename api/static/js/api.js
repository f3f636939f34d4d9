/**
 * Asking the service. Every refusal becomes an error that carries the problem document; a service that
 * does not answer becomes `NoAnswer`. Nothing is swallowed here: callers show what they catch
 * (notices.js).
 */

const BASE = new URL("v1/", document.baseURI);

/** The service refused, and said why (RFC 9457). */
export class Problem extends Error {
  /** @param {{title?: string, status?: number, detail?: string}} document @param {number} status */
  constructor(document, status) {
    super(document.detail || document.title || `status ${status}`);
    this.name = "Problem";
    this.title = document.title || "Refused";
    this.status = status;
  }
}

/** Nothing came back: the service is gone or the network is. */
export class NoAnswer extends Error {
  constructor() {
    super("The service does not answer.");
    this.name = "NoAnswer";
  }
}

/** Whether an error only says that a newer question replaced this one. */
export function isSuperseded(error) {
  return error?.name === "AbortError";
}

/** @type {((reachable: boolean) => void)[]} */
const watchers = [];
let reachable = true;

/** Be told when the service stops answering and when it answers again. */
export function whenReachabilityChanges(tell) {
  watchers.push(tell);
}

function setReachable(now) {
  if (now === reachable) return;
  reachable = now;
  for (const tell of watchers) tell(now);
}

/**
 * The address of an answer.
 * @param {string} path  below /v1/, without a leading slash
 * @param {Record<string, unknown>} [query]  null and undefined are left out, "" is a value; arrays are repeated
 */
export function address(path, query = {}) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined) url.searchParams.append(name, String(one));
    }
  }
  return url;
}

/**
 * @param {string} path @param {Record<string, unknown>} [query]
 * @param {{signal?: AbortSignal}} [how]
 */
export function get(path, query = {}, how = {}) {
  return ask(address(path, query), { signal: how.signal });
}

/** @param {string} path @param {unknown} [body] @param {{signal?: AbortSignal}} [how] */
export function post(path, body = undefined, how = {}) {
  const headers = body === undefined ? undefined : { "Content-Type": "application/json" };
  return ask(address(path), {
    method: "POST",
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: how.signal,
  });
}

/** @param {URL} url @param {RequestInit} init */
async function ask(url, init) {
  let answer;
  try {
    answer = await fetch(url, init);
  } catch (error) {
    if (isSuperseded(error)) throw error;
    setReachable(false);
    throw new NoAnswer();
  }
  setReachable(true);
  const text = await answer.text();
  const body = parsed(text);
  if (!answer.ok) throw new Problem(body ?? { title: answer.statusText }, answer.status);
  if (body === null)
    throw new Problem({ title: "Not JSON", detail: `${url.pathname} did not answer JSON` }, answer.status);
  return body;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null; // A proxy's error page, say; the status tells what there is to tell.
  }
}

/**
 * One question at a time: asking again withdraws the question before, so that late answers never overwrite
 * newer ones. The function given gets the signal to hand on.
 */
export class Latest {
  constructor() {
    this.controller = null;
  }

  /** @template T @param {(signal: AbortSignal) => Promise<T>} question @returns {Promise<T>} */
  async ask(question) {
    this.withdraw();
    const controller = new AbortController();
    this.controller = controller;
    try {
      const answer = await question(controller.signal);
      if (controller.signal.aborted) throw new DOMException("superseded", "AbortError");
      return answer;
    } finally {
      if (this.controller === controller) this.controller = null;
    }
  }

  withdraw() {
    this.controller?.abort();
    this.controller = null;
  }

  get busy() {
    return this.controller !== null;
  }
}

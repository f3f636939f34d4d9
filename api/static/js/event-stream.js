/**
 * Events as they are stored, by Server-Sent Events. The browser resumes a broken stream by itself from the
 * last seq it saw; a page that nobody looks at gives its stream back and catches up when it is looked at
 * again.
 */

import { address } from "./api.js";
import { journalPath } from "./state.js";

const AGAIN_MS = 3000;

export class EventStream {
  /**
   * @param {{event: (event: import("./types.js").EventOut) => void, head: (seq: number) => void,
   *   lost: (lost: boolean) => void}} how
   */
  constructor({ event, head, lost }) {
    this.event = event;
    this.head = head;
    this.lost = lost;
    /** @type {EventSource|null} */
    this.source = null;
    /** @type {Record<string, unknown>|null} */
    this.filters = null;
    this.lastSeq = 0;
    this.timer = 0;
    document.addEventListener("visibilitychange", () => this.reconsider());
  }

  /** Follow from after a seq on. @param {Record<string, unknown>} filters @param {number} afterSeq */
  open(filters, afterSeq) {
    this.filters = filters;
    this.lastSeq = afterSeq;
    this.path = journalPath("/events/stream");
    this.connect();
  }

  close() {
    this.filters = null;
    this.disconnect();
  }

  disconnect() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  reconsider() {
    if (document.visibilityState === "hidden") this.disconnect();
    else if (this.filters !== null && this.source === null) this.connect();
  }

  connect() {
    this.disconnect();
    if (document.visibilityState === "hidden") return;
    const source = new EventSource(address(this.path, { ...this.filters, after_seq: this.lastSeq }));
    this.source = source;
    source.addEventListener("open", () => this.lost(false));
    source.addEventListener("event", (message) => {
      const event = JSON.parse(message.data);
      // A resumed stream may begin again at the seq it was opened with.
      if (event.seq <= this.lastSeq) return;
      this.lastSeq = event.seq;
      this.event(event);
    });
    source.addEventListener("head", (message) => this.head(JSON.parse(message.data).last_seq));
    source.addEventListener("error", () => {
      this.lost(true);
      // While it is connecting the browser tries by itself; a refusal closes it for good.
      if (source.readyState === EventSource.CLOSED && this.source === source) {
        this.timer = setTimeout(() => this.connect(), AGAIN_MS);
      }
    });
  }
}

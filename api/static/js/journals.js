/**
 * Which journals there are, and how the one looked at grows. Asked again every two seconds: the answer is
 * small, and it tells of lag and trouble as well, which no event does.
 */

import { Latest, get } from "./api.js";
import { byId, make } from "./dom.js";
import { count } from "./format.js";
import { isLive, refreshLive } from "./moment.js";
import { report, say, settle } from "./notices.js";
import { change, journalPath, look, whenChanged } from "./state.js";

const POLL_MS = 2000;
/** While events stream in, the newest state is asked for at most this often. */
const NUDGE_MS = 400;
const JOURNALS_ASKED = 1000;
/** New journals are looked for once in so many polls. */
const POLLS_A_LIST = 15;

const asking = new Latest();
let nudged = false;

/** Something new was stored: look soon, but not for every event. @param {number} seq */
export function nudge(seq) {
  if (nudged || seq <= (look.info?.last_seq ?? 0)) return;
  nudged = true;
  setTimeout(async () => {
    nudged = false;
    await poll();
  }, NUDGE_MS);
}

async function poll() {
  if (look.journal === null || asking.busy) return;
  try {
    const info = await asking.ask((signal) => get(journalPath(), {}, { signal }));
    settle("Journal");
    change({ info });
    if (isLive() && info.last_seq !== null && info.last_seq !== look.shown?.at.seq) await refreshLive();
  } catch (error) {
    report("Journal", error);
  }
}

/** @param {number|null} wanted  the journal that the address names; the newest where it names none */
export async function loadJournals(wanted) {
  try {
    const page = await get("journals", { limit: JOURNALS_ASKED });
    if (page.next === null) settle("Journals");
    else say("Journals", `The first ${count(JOURNALS_ASKED)} are listed; the address can name any other.`);
    const journals = page.items;
    const journal = wanted ?? journals.at(-1)?.id ?? null;
    const known = journals.find((one) => one.id === journal) ?? null;
    change(journal === look.journal ? { journals } : { journals, journal, info: known });
  } catch (error) {
    report("Journals", error);
  }
}

function drawChoice() {
  byId("journal-select").replaceChildren(
    ...look.journals.map((journal) =>
      make(
        "option",
        { value: journal.id, selected: journal.id === look.journal },
        `${journal.id} · ${journal.name}`,
      ),
    ),
  );
}

function drawFollowing() {
  const info = look.info;
  const parts = [];
  if (!info) {
    byId("following").replaceChildren();
    return;
  }
  if (info.following.state === "loading") parts.push(`reading, at ${count(info.following.seq)}`);
  if (info.following.state === "failed") {
    parts.push(make("span", { class: "badge bad", title: info.following.problem }, "does not fold"));
  }
  if (info.live)
    parts.push(
      make("span", { class: "badge good", title: "Its recorder runs in the service's process" }, "live"),
    );
  if (info.queued_events) parts.push(`${count(info.queued_events)} queued`);
  if (info.degraded) parts.push(make("span", { class: "badge warn" }, "degraded"));
  if (info.dropped_events)
    parts.push(make("span", { class: "badge bad" }, `${count(info.dropped_events)} events dropped`));
  byId("following").replaceChildren(...parts.flatMap((part) => [part, " "]));
}

export function startJournals() {
  byId("journal-select").addEventListener("change", (event) => {
    const id = Number(event.target.value);
    change({
      journal: id,
      info: look.journals.find((journal) => journal.id === id) ?? null,
      asked: null,
      shown: null,
      unknown: null,
      pick: null,
      event: null,
      root: null,
      namespace: null,
      markA: null,
      markB: null,
    });
  });
  whenChanged(["journals", "journal"], drawChoice);
  whenChanged(["info"], drawFollowing);
  let polls = 0;
  setInterval(() => {
    if (document.visibilityState !== "visible") return;
    polls += 1;
    if (look.journals.length === 0 || polls % POLLS_A_LIST === 0) loadJournals(look.journal);
    if (look.journal !== null) poll();
  }, POLL_MS);
}

"""Journals for the page to look at: a small story told by the cache, a busy run, a tree of many nodes."""

from dataclasses import dataclass

import numpy as np

from kvledger.core import CacheConfig, HybridCache, Request
from kvledger.core.events import Origin, RecoveryMode
from kvledger.core.sinks import EventSink, TransactionRecord
from kvledger.journal import Journal
from tests.support.hand_written import edited
from tests.support.recorded_run import record_run, small_run
from tests.support.stories import recovery_under_lock

PAGE = 4
DOCUMENT = tuple(range(1, 33))
"""The prompt that all requests of the story share: eight pages."""

HOSTILE = '<img src="x" onerror="document.title=1">'
"""An id that would run, were it ever read as markup."""

LEAVES_A_TRANSACTION = 2_500

RECOVERED_SEQ = 13
"""Where the hand-written story has its recovery."""


def small_cache(sink: EventSink) -> HybridCache:
    """Pages of four tokens, a window of two pages."""
    config = CacheConfig(page_size=PAGE, sliding_window=8, full_tokens=256, swa_tokens=128)
    return HybridCache(config, sink=sink)


def serve_prompt(cache: HybridCache, name: str, tokens: tuple[int, ...]) -> Request:
    """Open a request, compute all of its prompt and publish it."""
    request = cache.open_request(name, np.array(tokens, np.int32))
    request.extend(len(tokens) - request.prefix_len)
    request.computed()
    request.commit()
    return request


@dataclass(frozen=True, slots=True)
class Recovery:
    """A journal with a recovery under a Full lock: node `node` keeps `full_pages`, SWA comes back to it.

    `before` and `after` are the last seqs of the transactions around it, `recovered` is the event's own.
    """

    journal: int
    node: int
    full_pages: str
    swa_pages: str
    before: int
    recovered: int
    after: int
    last: int


def record_recovery(store: Journal) -> Recovery:
    """An author computes a prompt and leaves; a reader runs on it, far past its window; its SWA is evicted;
    a writer with the same prompt computes it anew and brings the SWA back, under the reader's lock.
    """
    with store.record(name="story") as recorder:
        cache = small_cache(recorder)
        author = serve_prompt(cache, "author", DOCUMENT)
        author.slide()
        author.finish()
        reader = serve_prompt(cache, "reader", (*DOCUMENT, *range(501, 509)))
        reader.append(list(range(600, 616)))
        reader.extend(16)
        reader.computed()
        reader.slide()
        cache.evict(swa_tokens=64)
        head = cache.nodes()[0]
        full = _pages(head.full_slots)
        serve_prompt(cache, "writer", (*DOCUMENT, 701, 702, 703, 704))
        serve_prompt(cache, HOSTILE, (9, 9, 9, 9))
        head = cache.node(head.id)
        assert head.swa_slots is not None
        swa = _pages(head.swa_slots)
    found = _Found.of(store, recorder.journal_id)
    return Recovery(recorder.journal_id, head.id, full, swa, *found.around, found.last)


@dataclass(frozen=True, slots=True)
class _Found:
    around: tuple[int, int, int]
    last: int

    @classmethod
    def of(cls, store: Journal, journal: int) -> "_Found":
        reader = store.reader(journal)
        for transaction in reader.transactions():
            for stored in transaction.events:
                if stored.event.kind == "swa_recovered":
                    around = (transaction.first_seq - 1, int(stored.seq), int(transaction.last_seq))
                    return cls(around, int(reader.head().seq))
        raise AssertionError("nothing was recovered")


def _pages(slots: np.ndarray) -> str:
    """Slots that are one run of pages, as the page tells them."""
    pages = [int(slot) // PAGE for slot in slots[::PAGE]]
    assert pages == list(range(pages[0], pages[-1] + 1))
    return f"{pages[0]}–{pages[-1]}"  # noqa: RUF001


def record_busy(store: Journal) -> int:
    """A run of sixty requests in two namespaces, several open at its end; its journal's id."""
    return record_run(store, small_run(), name="busy").info.id


def record_many_nodes(store: Journal, *, nodes: int) -> int:
    """A tree of so many leaves below a hundred heads, four levels of the picture; its journal's id."""
    with store.record(name="many nodes", durability="background") as recorder:
        config = CacheConfig(page_size=1, sliding_window=1, full_tokens=4 * nodes, swa_tokens=4 * nodes)
        cache = HybridCache(config, sink=recorder)
        for first in range(0, nodes, LEAVES_A_TRANSACTION):
            with cache.transaction("fill"):
                for leaf in range(first, min(first + LEAVES_A_TRANSACTION, nodes)):
                    tokens = np.array([leaf % 100, leaf % 1000, leaf], np.int32)
                    kept = cache.match_prefix(tokens).full_length
                    slots = np.concatenate([cache.match_prefix(tokens).slots[:kept], cache.alloc(3 - kept)])
                    cache.insert(tokens, slots, protected_len=kept)
    return recorder.journal_id


def record_replaced_full(store: Journal) -> int:
    """A journal of a cache with the fault that this project exists for; its id.

    A recovery replaced the Full pages of a node although a reader held a lock on it.
    """
    told = edited(
        recovery_under_lock(),
        RECOVERED_SEQ,
        mode=RecoveryMode.ADOPT_INCOMING,
        full_origin=Origin(None, 3),
        swa_origin=Origin(None, 3),
    )
    told = edited(told, RECOVERED_SEQ + 1, adopted_full=((0, PAGE),), duplicates=0)
    with store.record(name="replaced full") as recorder:
        for one in told:
            events = [stored.event for stored in one.events]
            undone = bytearray(stored.undone for stored in one.events)
            recorder.append(
                TransactionRecord(one.op, one.request_id, events, undone, one.rolled_back, one.reason)
            )
    return recorder.journal_id

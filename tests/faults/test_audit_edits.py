"""One field of one event of a real journal is changed: the audit finds it, or it is told and not provable.

The journals are those of seeded walks over a cache. What passes is listed with the reason why nothing else
in a journal could contradict it; both tests hold to the list: nothing passes that is not in it, and
everything in it does pass somewhere.
"""

import functools
import random
from collections import defaultdict

import pytest

from kvledger.core.events import EVENTS
from kvledger.journal.audit import audit
from kvledger.journal.records import number_transactions
from kvledger.journal.replay import ReplayError, replay
from tests.property.test_cache_against_model import walk
from tests.support.edits import Journal, Place, fields_of, live_events, other_value, with_field
from tests.support.hand_written import checkpoint, with_transaction_after

WALKS = (0, 1, 3, 5, 7, 13, 17, 38)
"""Seeds of walks that together have every kind of event that a cache emits, under both policies."""

FINGERPRINTED = (2, 8, 9, 11)
"""Seeds of walks whose KV is fingerprinted; with recoveries under a lock, and both policies too."""

EDITS = 10
"""Edits of each field; all of them take a quarter of a minute."""

NEVER_EMITTED = {"mapping_set", "events_dropped", "kv_unread"}
"""Kinds that no cache of this version emits by itself, while its memory can be read."""

CALLERS_WORD = "what the caller asked for or called it; only what was done can be compared"
NOT_USED_AGAIN = "a name or number that nothing later in this journal uses"
CALLERS_ROW = "which page the allocator chose, and in which order a caller keeps pages, is in no event"
NO_OTHER_EVENT = "nothing published or freed tells one end from the other"

TOLD = {
    ("cache_opened", "config"): "settings that are no field of an event",
    ("call_ignored", "lease"): "another lease that the same reset cut",
    ("evicted", "asked_full"): CALLERS_WORD,
    ("evicted", "asked_swa"): CALLERS_WORD,
    ("kv_fingerprinted", "swa_sums"): "the only one of SWA that was freed while its node stayed locked",
    ("lock_acquired", "lease"): NOT_USED_AGAIN,
    ("node_created", "full_origin"): "another unused epoch of a raw insert that brought tombstones only",
    ("node_created", "full_pages"): CALLERS_ROW,
    ("node_created", "node"): NOT_USED_AGAIN,
    ("node_created", "stamp"): NOT_USED_AGAIN,
    ("node_created", "tokens"): "tokens stand nowhere else, unless a sibling begins like them",
    ("node_touched", "first_stamp"): NOT_USED_AGAIN,
    ("node_touched", "nodes"): "what an insert used that adopted nothing",
    ("pages_allocated", "full_pages"): CALLERS_ROW,
    ("pages_allocated", "swa_pages"): CALLERS_ROW,
    ("pages_freed", "cause"): "a caller may give SWA back itself, right before its insert",
    ("pages_freed", "full_pages"): "the same pages in another order, which have no peer",
    ("prefix_inserted", "namespace"): "a raw insert that adopted nothing",
    ("prefix_inserted", "swa_evicted_len"): "another length before the protected one, where nothing is taken",
    ("prefix_matched", "full_length"): "another length that some path of the tree has",
    ("request_closed", "reason"): NO_OTHER_EVENT,
    ("request_opened", "epoch"): "an epoch that nobody else has: they may have gaps",
    ("request_row_changed", "first_page"): "where no page of the row changed, it is no place",
    ("rolled_back", "cause"): "a caller's own rollback, or an error that the caller caught",
    ("rolled_back", "reason"): CALLERS_WORD,
    ("rolled_back", "request_id"): CALLERS_WORD,
    ("swa_recovered", "swa_origin"): "another unused epoch of a raw insert that only recovered this node",
    ("swa_lock_released", "lease"): "another lease of the same node and holder that does not end either",
}
"""Fields of which some edits pass, and why nothing in a journal contradicts them."""

STATE = [
    ("lock_acquired", "lease"),
    ("node_created", "tokens"),
    ("node_touched", "nodes"),
    ("pages_allocated", "full_pages"),
    ("pages_allocated", "swa_pages"),
    ("swa_lock_released", "lease"),
]
"""Fields of `TOLD` that are canonical state, so that a checkpoint that follows them tells."""


@functools.cache
def journals() -> list[Journal]:
    walks = [walk(seed) for seed in WALKS] + [walk(seed, fingerprints=True) for seed in FINGERPRINTED]
    return [number_transactions(one.sink.transactions) for one in walks]


@functools.cache
def places() -> dict[str, list[Place]]:
    found: defaultdict[str, list[Place]] = defaultdict(list)
    for kind, place in live_events(journals()):
        found[vars(kind)["kind"]].append(place)
    return found


def edits(kind: str, name: str, count: int = EDITS) -> list[tuple[Place, Journal, str]]:
    """Seeded edits of one field: where, the edited journal, and what was changed into what."""
    chance = random.Random(f"{kind}.{name}")
    made = []
    for _ in range(count):
        place = chance.choice(places()[kind])
        journal = journals()[place.journal]
        old = getattr(journal[place.transaction].events[place.event].event, name)
        new = other_value(old, name, chance, page=getattr(journal[0].events[0].event, "page_size"))  # noqa: B009
        seed = (*WALKS, *FINGERPRINTED)[place.journal]
        told = f"walk {seed}, {kind}.{name} of {place}: {old!r} became {new!r}"
        made.append((place, with_field(journal, place, name, new), told))
    return made


def passes(journal: Journal) -> bool:
    try:
        return audit(journal).passed
    except ReplayError:
        return False


FIELDS = [
    (kind, name) for kind, cls in EVENTS.items() if kind not in NEVER_EMITTED for name in fields_of(cls)
]


def test_the_walks_have_every_kind_of_event_and_pass() -> None:
    assert set(places()) == set(EVENTS) - NEVER_EMITTED
    assert all(audit(journal).passed for journal in journals())
    assert set(TOLD) <= set(FIELDS)


@pytest.mark.parametrize(("kind", "name"), [field for field in FIELDS if field not in TOLD])
def test_an_edit_of_one_field_of_one_event_is_found(kind: str, name: str) -> None:
    unseen = [told for _, journal, told in edits(kind, name) if passes(journal)]
    assert unseen == []


MOST_TRIES = 1_000
"""Edits of a field until one passes: some of what is told can be told otherwise in rare places only."""


@pytest.mark.parametrize(("kind", "name"), list(TOLD))
def test_what_is_listed_as_told_can_be_told_otherwise(kind: str, name: str) -> None:
    assert any(passes(journal) for _, journal, _ in edits(kind, name, MOST_TRIES)), "take it off the list"


@pytest.mark.parametrize(("kind", "name"), STATE)
def test_a_checkpoint_after_it_tells_what_a_journal_alone_cannot(kind: str, name: str) -> None:
    for place, journal, told in edits(kind, name):
        whole = journals()[place.journal][: place.transaction + 1]
        mark = checkpoint(replay(whole).state.digest())
        assert passes(with_transaction_after(whole, len(whole), "checkpoint", mark))
        edited = with_transaction_after(journal[: place.transaction + 1], len(whole), "checkpoint", mark)
        assert not passes(edited), told

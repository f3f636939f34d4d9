"""Makes the examples of events' payloads that the service's documentation shows, from a run that is recorded.

python -m tests.support.payload_examples > api/schemas/payload_examples.json
"""

import json
import sys
import tempfile
from pathlib import Path

from kvledger.api.told.events import Teller
from kvledger.api.told.hiding import Hiding
from kvledger.core import CacheConfig, HybridCache, KVLayout
from kvledger.core.events import EVENTS, Event, EventsDropped, MappingSet, SwaRecovered
from kvledger.journal import Journal
from tests.support.private_tokens import live_privately
from tests.support.recorded_run import record_run, small_run

TELLING = {
    "swa_recovered": lambda event: event.mode == "keep_locked_full",
    "pages_freed": lambda event: len(event.full_pages) > 0,
    "prefix_matched": lambda event: event.full_length > event.length,
    "prefix_inserted": lambda event: bool(event.adopted_full),
    "lock_acquired": lambda event: event.node is not None,
    "lock_released": lambda event: event.swa_was_held,
    "request_opened": lambda event: len(event.pages) > 0,
    "request_row_changed": lambda event: len(event.pages) > 0,
    "node_deleted": lambda event: event.swa_pages is not None,
}
"""Which of many events of a kind shows most."""


def recorded_events() -> list[Event]:
    """What three runs record: a loaded cache, a life with rollbacks and a reset, fingerprints and KV gone."""
    with tempfile.TemporaryDirectory() as folder, Journal.open(Path(folder) / "run.db") as store:
        loaded = record_run(store, small_run(), name="loaded")
        with store.record(name="life") as recorder:
            cache = live_privately(recorder)
            request = cache.open_request("late", [1, 2, 3, 4])
            cache.reset()
            request.abort()
        with store.record(name="fingerprints") as fingerprints:
            cache = HybridCache(FINGERPRINTED, sink=fingerprints)
            lock_fingerprinted(cache)
            lease = cache.acquire(range(12))
            cache.pool.close()
            cache.release(lease)
        readers = (loaded, store.reader(recorder.journal_id), store.reader(fingerprints.journal_id))
        return [one.event for reader in readers for one in reader.events()]


FINGERPRINTED = CacheConfig(
    page_size=4,
    sliding_window=8,
    full_tokens=64,
    swa_tokens=32,
    layout=KVLayout(full_layers=(0,), swa_layers=(1,), kv_heads=1, head_dim=2),
    fingerprints=True,
)


def lock_fingerprinted(cache: HybridCache) -> None:
    """A node of three pages is locked and unlocked."""
    tokens = list(range(12))
    cache.insert(tokens, cache.alloc(12))
    cache.release(cache.acquire(tokens))


def examples() -> dict[str, object]:
    """One payload of every kind, with namespaces as they are told for a journal that hides them."""
    found: dict[str, Event] = {}
    for event in recorded_events():
        if TELLING.get(event.kind, lambda event: True)(event):
            found.setdefault(event.kind, event)
    # A mapping changes by itself only under an engine that owns its memory, and events are dropped only when
    # a store is away for long: both are shaped after recorded ones.
    recovered = found["swa_recovered"]
    if isinstance(recovered, SwaRecovered):
        found["mapping_set"] = MappingSet(recovered.node_full, recovered.swa_pages)
    found["events_dropped"] = EventsDropped(1_201, 1_340)
    teller = Teller(Hiding(reveals=False), policy="full", page_size=4)
    return {kind: teller.payload(found[kind]).model_dump(mode="json") for kind in EVENTS}


def without_labels(told: dict[str, object]) -> str:
    """The examples as text; labels of namespaces differ from one process to the next and are made equal."""
    for payload in told.values():
        if isinstance(payload, dict) and payload.get("namespace"):
            payload["namespace"] = "ns-3f9c1be0a274"
    return json.dumps(told, indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(without_labels(examples()))

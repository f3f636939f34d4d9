"""The metrics of one journal: its counts and its levels as families of samples, by Prometheus' conventions.

Base units, `_total` on counters, one meaning a name. Label values are few: the journal's number, pools,
causes, kinds of events and operations of the cache.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from kvledger.api.apart import OwnProcess
from kvledger.api.library import OpenedJournal
from kvledger.api.metrics.tally import BUCKET_SECONDS, Latency, Tally
from kvledger.api.schemas.pools import PoolsOut

FOLLOWING_STATES = ("loading", "following", "ended", "failed")


class Families:
    """Families that are filled journal by journal and then told once each."""

    def __init__(self) -> None:
        self._families: dict[str, Any] = {}

    def told(self) -> Iterator[Metric]:
        """All of them, in the order in which they were first spoken of."""
        yield from self._families.values()

    def count(self, name: str, told: str, value: float, **labels: str) -> None:
        """One sample of a counter; `name` without its `_total`."""
        self._add(CounterMetricFamily, name, told, value, labels)

    def level(self, name: str, told: str, value: float, **labels: str) -> None:
        """One sample of a gauge."""
        self._add(GaugeMetricFamily, name, told, value, labels)

    def latency(self, name: str, told: str, latency: Latency, **labels: str) -> None:
        """One histogram."""
        edges = [*map(repr, BUCKET_SECONDS), "+Inf"]
        buckets = list(zip(edges, accumulate(latency.buckets), strict=True))
        family = self._family(HistogramMetricFamily, name, told, labels)
        family.add_metric(list(labels.values()), buckets, latency.seconds)

    def _add(self, kind: Any, name: str, told: str, value: float, labels: Mapping[str, str]) -> None:
        self._family(kind, name, told, labels).add_metric(list(labels.values()), value)

    def _family(self, kind: Any, name: str, told: str, labels: Mapping[str, str]) -> Any:
        if name not in self._families:
            self._families[name] = kind(name, told, labels=list(labels))
        return self._families[name]


def tell_counts(families: Families, journal: str, tally: Tally) -> None:
    """What happened in a journal, as far as it was followed."""
    with tally.lock:
        one = {"journal": journal}
        for kind, number in tally.events.items():
            families.count("kvledger_events", "Events stored, undone ones too.", number, **one, kind=kind)
        families.count("kvledger_undone_events", "Events that were rolled back.", tally.undone, **one)
        for (op, status), number in tally.transactions.items():
            told = "Transactions stored, by operation and how they ended."
            families.count("kvledger_transactions", told, number, **one, op=op, status=status)
        for op, latency in tally.latencies.items():
            told = "Time of an operation on the scheduler's thread."
            families.latency("kvledger_operation_duration_seconds", told, latency, **one, op=op)
        told = "Tokens that a request or a caller found in the cache and locked."
        families.count("kvledger_hit_tokens", told, tally.hit_tokens, **one)
        told = "Tokens that Full alone would have found: those beyond the hits were lost to missing SWA."
        families.count("kvledger_full_match_tokens", told, tally.full_match_tokens, **one)
        told = "Tokens of new pages, whose KV had to be computed, by who took them."
        _by(families, "kvledger_allocated_tokens", told, tally.allocated_tokens, "owner", one)
        told = "Nodes from which eviction took the pages of a pool."
        for (pool, cause), number in tally.evicted_nodes.items():
            families.count("kvledger_evictions", told, number, **one, pool=pool, cause=cause)
        told = "Tokens that eviction freed in a pool."
        for (pool, cause), number in tally.evicted_tokens.items():
            families.count("kvledger_evicted_tokens", told, number, **one, pool=pool, cause=cause)
        told = "Nodes that became tombstones."
        _by(families, "kvledger_tombstones", told, tally.tombstones, "cause", one)
        told = "Tombstones that came back to life; keep_locked_full: under a lock of a running request."
        _by(families, "kvledger_recoveries", told, tally.recoveries, "mode", one)
        _by(families, "kvledger_rollbacks", "Rollbacks.", tally.rollbacks, "cause", one)
        told = "What somebody should look at, by sort; /v1/journals/{journal}/anomalies has each."
        _by(families, "kvledger_anomalies", told, tally.anomalies, "sort", one)
        families.count("kvledger_resets", "Resets of the cache.", tally.resets, **one)
        told = "Events that the recorder gave up, as the journal tells."
        families.count("kvledger_journal_missing_events", told, tally.given_up_events, **one)


def tell_levels(families: Families, journal: str, pools: PoolsOut) -> None:
    """What is in the cache now."""
    one = {"journal": journal}
    for pool in pools.pools:
        told = "Tokens of a pool: capacity is free + evictable + protected + held."
        for state in ("free", "evictable", "protected", "held"):
            families.level(
                "kvledger_pool_tokens", told, getattr(pool, state), **one, pool=pool.pool, state=state
            )
        families.level(
            "kvledger_pool_capacity_tokens",
            "Tokens that a pool has room for.",
            pool.total,
            **one,
            pool=pool.pool,
        )
    families.level("kvledger_nodes", "Nodes of the tree.", pools.nodes, **one)
    families.level("kvledger_tombstone_nodes", "Nodes without SWA.", pools.tombstones, **one)
    families.level(
        "kvledger_mixed_nodes", "Nodes whose Full and SWA differ in origin.", pools.mixed_nodes, **one
    )
    families.level("kvledger_open_requests", "Requests that are open.", pools.requests, **one)
    families.level("kvledger_leases", "Locks that are held.", pools.leases, **one)


def tell_journal(families: Families, opened: OpenedJournal) -> None:
    """How far a journal is: in its recorder, on disk, and in the service. Raises as reading its head does."""
    one = {"journal": str(opened.id)}
    live, following = opened.live, opened.timeline.following
    durable = int(opened.reader.head().seq if live is None else live.durable_seq)
    last = durable if live is None else max(durable, live.last_seq)
    families.level("kvledger_journal_last_seq", "Seq of the last event that was accepted.", last, **one)
    families.level("kvledger_journal_durable_seq", "Seq of the last event on disk.", durable, **one)
    families.level(
        "kvledger_journal_lag_events", "Events accepted and not yet on disk.", last - durable, **one
    )
    if live is not None:
        told = "Events that wait for the recorder's writer."
        families.level("kvledger_journal_queue_events", told, live.queued_events, **one)
        told = "Whether the store fails right now and the recorder goes on without it."
        families.level("kvledger_journal_degraded", told, float(live.degraded), **one)
        told = "Events that the recorder gave up since it was started."
        families.count("kvledger_journal_dropped_events", told, live.dropped_events, **one)
        told = "Calls of the scheduler that had to wait for room in the recorder's queue."
        families.count("kvledger_journal_stalls", told, live.stalls, **one)
    told = "Full states that are stored beside the events."
    families.level("kvledger_journal_checkpoints", told, len(opened.reader.checkpoint_seqs()), **one)
    families.level("kvledger_projection_seq", "Seq that the service has followed to.", following.seq, **one)
    told = "Events on disk that the service has not followed yet."
    families.level("kvledger_projection_lag_events", told, max(0, durable - following.seq), **one)
    told = "What the service does with the journal: 1 for the state it is in."
    for state in FOLLOWING_STATES:
        families.level("kvledger_projection_state", told, float(following.state == state), **one, state=state)


def tell_process(families: Families, process: OwnProcess) -> None:
    """The process that an Inspector has for the past."""
    told = "Whether questions about the past have a process of their own, once somebody has looked."
    families.level("kvledger_own_process_up", told, float(process.phase == "up"))
    told = "How often that process was started."
    families.count("kvledger_own_process_starts", told, process.attempts.begun)
    told = "Questions that it has answered."
    families.count("kvledger_own_process_answers", told, process.answered)
    told = "Questions meant for it that were answered in the scheduler's process."
    families.count("kvledger_own_process_missed", told, process.missed)


def _by(
    families: Families, name: str, told: str, counts: Counter[str], label: str, one: Mapping[str, str]
) -> None:
    for value, number in counts.items():
        families.count(name, told, number, **one, **{label: value})

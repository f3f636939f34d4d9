"""A monitoring system scrapes the service: counts of what happened, levels of what is, nothing private."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from kvledger.api.metrics.tally import BUCKET_SECONDS, OTHER_OP, Latency, Tally
from kvledger.api.told.hiding import KNOWN_OPS
from kvledger.core import CacheConfig, HybridCache
from kvledger.core.errors import OutOfSlots
from kvledger.core.events import Evicted
from kvledger.core.sinks import MemorySink
from kvledger.journal import Journal, number_transactions
from tests.support.private_tokens import leaks_in, live_privately
from tests.support.service import client_over, followed, recorded

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("metrics"))


@pytest.fixture(scope="module")
def client(database: Path) -> Iterator[TestClient]:
    with client_over(database) as client:
        followed(client)
        yield client


def samples_of(client: TestClient) -> Samples:
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def by(samples: Samples, name: str, *labels: str, **fixed: str) -> dict[tuple[str, ...], float]:
    """The values of a metric by some of its labels, where others are as given."""
    found: Counter[tuple[str, ...]] = Counter()
    for (own, pairs), value in samples.items():
        told = dict(pairs)
        if own == name and all(told.get(label) == want for label, want in fixed.items()):
            found[tuple(told[label] for label in labels)] += value  # type: ignore[assignment]
    return dict(found)


def value(samples: Samples, name: str, **fixed: str) -> float:
    (found,) = by(samples, name, **fixed).values()
    return found


def test_events_are_counted_by_kind_and_transactions_by_operation(client: TestClient, database: Path) -> None:
    with Journal.open(database) as store:
        transactions = list(store.reader().transactions())
    samples = samples_of(client)
    kinds = Counter(one.event.kind for each in transactions for one in each.events)
    assert by(samples, "kvledger_events_total", "kind") == {(kind,): count for kind, count in kinds.items()}
    ops = Counter(each.op for each in transactions)
    assert by(samples, "kvledger_transactions_total", "op") == {(op,): count for op, count in ops.items()}


def test_what_eviction_freed_is_what_the_events_credit(client: TestClient, database: Path) -> None:
    with Journal.open(database) as store:
        evicted = [one.event for one in store.reader().events() if isinstance(one.event, Evicted)]
    freed = by(samples_of(client), "kvledger_evicted_tokens_total", "pool")
    assert freed == {
        ("full",): sum(event.counted_full for event in evicted),
        ("swa",): sum(event.counted_swa for event in evicted),
    }
    assert min(freed.values()) > 0


def test_the_pools_levels_sum_up_to_their_capacity(client: TestClient) -> None:
    samples = samples_of(client)
    told = client.get("/v1/journals/1/pools").json()
    for pool in told["pools"]:
        levels = by(samples, "kvledger_pool_tokens", "state", pool=pool["pool"])
        for state in ("free", "evictable", "protected", "held"):
            assert levels[state,] == pool[state]
        assert sum(levels.values()) == value(samples, "kvledger_pool_capacity_tokens", pool=pool["pool"])
    assert value(samples, "kvledger_nodes") == told["nodes"]
    assert value(samples, "kvledger_open_requests") == told["requests"]


def test_names_and_units_are_by_the_conventions_of_prometheus(client: TestClient) -> None:
    for accept in ("text/plain", "application/openmetrics-text; version=1.0.0"):
        assert (
            client.get("/metrics", headers={"Accept": accept})
            .headers["Content-Type"]
            .startswith(accept.partition(";")[0])
        )
    for family in text_string_to_metric_families(client.get("/metrics").text):
        assert re.fullmatch(r"kvledger_[a-z_]+", family.name)
        assert family.documentation.endswith(".")
        assert family.type in ("counter", "gauge", "histogram")
        assert not re.search(r"milli|micro|_ms\b|_us\b|_kb\b", family.name)
        for sample in family.samples:
            assert (family.type == "counter") == sample.name.endswith("_total")
            assert len(sample.labels) <= 4
            assert sample.value >= 0


def test_every_service_has_a_registry_of_its_own(database: Path) -> None:
    with client_over(database) as one, client_over(database) as other:
        followed(one), followed(other)
        assert samples_of(one) == samples_of(other)


def test_journals_are_told_apart_and_forgotten_when_they_are_let_go(tmp_path: Path) -> None:
    for _ in range(3):
        path = recorded(tmp_path, requests=5)
    with client_over(path, followed_journals=2) as client:
        for number in (1, 2, 3):
            client.get(f"/v1/journals/{number}")
        journals = by(samples_of(client), "kvledger_journal_last_seq", "journal")
        counted = by(samples_of(client), "kvledger_resets_total", "journal")
    assert journals.keys() == counted.keys() == {("2",), ("3",)}


def test_metrics_are_few_and_tell_nothing_private(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run.db") as store, store.record() as recorder:
        cache = live_privately(recorder)
        for number in range(300):
            with cache.transaction(f"tenant-aurora {1_511_001_234 + number}"):
                pass
    with client_over(tmp_path / "run.db") as client:
        followed(client)
        text = client.get("/metrics").text
        samples = samples_of(client)
    assert leaks_in(text.encode()) == set()
    ops = {op for (op,) in by(samples, "kvledger_transactions_total", "op")}
    assert ops <= KNOWN_OPS | {OTHER_OP}
    assert OTHER_OP in ops
    assert len(samples) < 600


def test_what_somebody_is_woken_for_is_there_before_it_happens(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run.db") as store, store.record() as recorder:
        HybridCache(CacheConfig(page_size=4, sliding_window=8, full_tokens=40, swa_tokens=40), sink=recorder)
    with client_over(tmp_path / "run.db") as client:
        followed(client)
        samples = samples_of(client)
    for name in ("anomalies", "rollbacks", "recoveries", "evictions", "tombstones", "resets"):
        assert set(by(samples, f"kvledger_{name}_total").values()) == {0}


def test_a_live_recorder_tells_how_far_behind_the_disk_is(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run.db") as store, store.record() as recorder:
        HybridCache(CacheConfig(page_size=4, sliding_window=8, full_tokens=40, swa_tokens=40), sink=recorder)
        recorder.flush()
        with client_over(tmp_path / "run.db", live=recorder) as client:
            followed(client)
            samples = samples_of(client)
    assert value(samples, "kvledger_journal_last_seq") == value(samples, "kvledger_journal_durable_seq") == 1
    assert value(samples, "kvledger_journal_lag_events") == 0
    for name in ("queue_events", "degraded", "dropped_events_total", "stalls_total"):
        assert value(samples, f"kvledger_journal_{name}") == 0


def hits_of(sink: MemorySink) -> Tally:
    tally = Tally()
    for stored in number_transactions(sink.transactions):
        tally.transaction(stored)
    return tally


def test_hits_are_what_requests_found_and_no_commit_of_their_own() -> None:
    sink = MemorySink()
    config = CacheConfig(page_size=4, sliding_window=8, full_tokens=160, swa_tokens=160)
    cache = HybridCache(config, sink=sink)
    found = 0
    for number in range(6):
        request = cache.open_request(f"r{number}", [7] * 20 + [number] * 9)
        found += request.prefix_len
        request.extend(29 - request.prefix_len)
        request.computed()
        request.commit(upto=12 + 4 * number if number < 3 else None)
        if number == 4:
            request.retract()
            request.refresh()
            found += request.prefix_len
        request.finish()
    lease = cache.acquire([7] * 20)
    found += lease.length
    cache.release(lease)
    tally = hits_of(sink)
    assert tally.hit_tokens == found > 0
    assert tally.full_match_tokens >= found


def test_what_was_undone_is_no_hit_and_no_allocation() -> None:
    sink = MemorySink()
    cache = HybridCache(CacheConfig(page_size=4, sliding_window=8, full_tokens=40, swa_tokens=40), sink=sink)
    cache.insert([1] * 8, cache.alloc(8))
    before = hits_of(sink)
    with cache.transaction("try") as transaction:
        cache.acquire([1] * 8)
        cache.alloc(8)
        transaction.rollback()
    with pytest.raises(OutOfSlots):
        cache.alloc(400)
    after = hits_of(sink)
    assert (after.hit_tokens, after.allocated_tokens) == (before.hit_tokens, before.allocated_tokens)
    assert after.undone > before.undone
    assert after.rollbacks["caller"] == before.rollbacks["caller"] + 1


def test_latencies_fall_into_the_bucket_that_holds_them() -> None:
    latency = Latency()
    for seconds in (0.0, 1e-5, 1.01e-5, 1.0, 5.0):
        latency.add(seconds)
    assert latency.buckets[:2] == [2, 1]
    assert latency.buckets[-2:] == [1, 1]
    assert sum(latency.buckets) == 5
    assert len(latency.buckets) == len(BUCKET_SECONDS) + 1
    assert latency.seconds == pytest.approx(6.0000201)


def test_the_dashboard_asks_for_metrics_and_labels_that_there_are(tmp_path: Path) -> None:
    dashboard = json.loads((resources.files("kvledger.tools") / "grafana" / "kvledger.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    asked += [variable["query"]["query"] for variable in dashboard["templating"]["list"][1:]]
    with Journal.open(tmp_path / "run.db") as store, store.record() as recorder:
        live_privately(recorder)
        recorder.flush()
        with client_over(tmp_path / "run.db", live=recorder) as client:
            followed(client)
            samples = samples_of(client)
    labels: dict[str, set[str]] = {}
    for name, pairs in samples:
        labels.setdefault(name, set()).update(label for label, _ in pairs)
    assert len(asked) > 25
    for expression in asked:
        for name in re.findall(r"kvledger_\w+", expression):
            assert name in labels, name
        for metric, selector in re.findall(r"(kvledger_\w+){([^}]*)}", expression):
            assert set(re.findall(r"(\w+)=", selector)) <= labels[metric], metric
        for grouping in re.findall(r"by \(([^)]*)\)", expression):
            (metric,) = re.findall(r"by \(" + re.escape(grouping) + r"\) \(\w*\(?(kvledger_\w+)", expression)
            assert set(grouping.split(", ")) <= labels[metric], expression

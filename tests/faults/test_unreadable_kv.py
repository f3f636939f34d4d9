"""A memory that cannot be read: locks are refused, what gives one back goes on, and the journal says so."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kvledger.core import CacheConfig, HybridCache, KVUnreadable, fingerprints, locking
from kvledger.core.device_pools import DevicePools
from kvledger.core.errors import InvalidArgument
from kvledger.core.events import Event, FingerprintReason, KvFingerprinted, KvUnread, WidePages
from kvledger.core.kv_checksum import KVChecksum
from kvledger.core.node import Node
from kvledger.core.pools import Fingerprints
from kvledger.core.sinks import MemorySink
from kvledger.core.transaction import Ledger
from kvledger.journal import Journal
from kvledger.journal.audit import Verdict, audit
from kvledger.journal.audit.verdict import CONTENT_UNREAD
from kvledger.journal.records import number_transactions
from kvledger.tools.cli import main
from tests.property.side_by_side import ONE_NUMBER, fill_with_noise
from tests.support.hand_written import broken

PAGE = 4
TOKENS = list(range(5 * PAGE))


class Failing(DevicePools):
    """Pools whose KV cannot be read while `fault` is set."""

    fault: BaseException | None = None

    def fingerprint(self, pages: Any, swa: WidePages | None = None) -> Fingerprints:
        if self.fault is not None:
            raise self.fault
        return super().fingerprint(pages, swa)


class Nonsense(Failing):
    """Pools that answer for one page too many instead."""

    def fingerprint(self, pages: Any, swa: WidePages | None = None) -> Fingerprints:
        if self.fault is not None:
            return np.zeros((len(pages) + 1, 2), np.uint64)
        return super().fingerprint(pages, swa)


def configuration(**more: Any) -> CacheConfig:
    return CacheConfig(
        page_size=PAGE,
        sliding_window=PAGE,
        full_tokens=32 * PAGE,
        swa_tokens=16 * PAGE,
        layout=ONE_NUMBER,
        fingerprints=True,
        **more,
    )


class Story:
    """A cache on failing memory, with five pages of KV in its tree and a list of what was journaled."""

    def __init__(self, memory: type[Failing] = Failing, **more: Any) -> None:
        config = configuration(**more)
        self.memory = memory(config)
        self.sink = MemorySink()
        self.cache = HybridCache(config, sink=self.sink, pool=self.memory)
        self.memory.bind(self.cache._state.pages, lambda: False)
        fill_with_noise(self.cache)
        self.cache.insert(TOKENS, self.cache.alloc(len(TOKENS)))

    def fail(self, fault: BaseException | None = None) -> None:
        self.memory.fault = RuntimeError("the device is gone") if fault is None else fault

    def mend(self) -> None:
        self.memory.fault = None

    def unread(self) -> list[tuple[int, str, list[int], str]]:
        """Node, reason, pages and error of each look that failed."""
        return [
            (int(event.node), str(event.reason), event.full_pages.tolist(), event.error)
            for event in self.events()
            if isinstance(event, KvUnread)
        ]

    def events(self) -> list[Event]:
        return [event for transaction in self.sink.transactions for event in transaction.events]

    def verdict(self) -> Verdict:
        self.cache.check()
        self.cache.checkpoint()
        return audit(number_transactions(self.sink.transactions))


def running(story: Story) -> Any:
    """A request that reads the tree's pages and has one of its own, computed."""
    request = story.cache.open_request("r1", [*TOKENS, *range(100, 100 + PAGE)])
    request.extend(PAGE)
    request.computed()
    return request


def reset(story: Story) -> None:
    running(story)
    story.cache.reset()


LET_GO: dict[str, Callable[[Story], None]] = {
    "release": lambda story: story.cache.release(story.cache.acquire(TOKENS)),
    "finish": lambda story: running(story).finish(),
    "abort": lambda story: running(story).abort(),
    "retract": lambda story: running(story).retract(),
    "reset": reset,
}


@pytest.mark.parametrize("memory", [Failing, Nonsense])
@pytest.mark.parametrize("way", LET_GO)
def test_whatever_gives_a_lock_back_goes_on_and_says_what_it_could_not_read(
    way: str, memory: type[Failing], monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(memory)
    # The lock is taken in the first half of each way, the memory fails from there on.
    taken = story.cache._state.fingerprint
    assert taken is not None

    def once(full: WidePages, swa: WidePages) -> Fingerprints:
        found = taken(full, swa)
        story.fail()
        return found

    story.cache._state.fingerprint = once
    LET_GO[way](story)
    assert all(node.full_lock == 0 for node in story.cache.nodes())
    told = story.unread()
    assert [(reason, pages) for _, reason, pages, _ in told] == [
        ("unlocked", [1, 2, 3, 4]),
        ("unlocked", [5]),
    ]
    assert {error for *_, error in told} == {"RuntimeError" if memory is Failing else "InvariantViolation"}
    verdict = story.verdict()
    assert (verdict.verdict, verdict.findings) == ("unverified", ())
    assert (verdict.counts.pages_content_unread, verdict.counts.pages_compared) == (5, 0)
    assert {one.status for one in verdict.invariants if one.id == "locked-content"} == {"unverified"}
    assert verdict.notes == (CONTENT_UNREAD,)
    assert f"note: {CONTENT_UNREAD}" in verdict.render()


@pytest.mark.parametrize(
    "fault",
    [RuntimeError("gone"), torch.OutOfMemoryError("no room"), MemoryError(), KVUnreadable("no"), KeyError(1)],
    ids=lambda fault: type(fault).__name__,
)
def test_a_lock_on_what_cannot_be_read_is_refused_and_may_be_tried_again(fault: Exception) -> None:
    story = Story()
    before = story.cache.digest()
    story.fail(fault)
    with pytest.raises(KVUnreadable):
        story.cache.acquire(TOKENS)
    with pytest.raises(KVUnreadable):
        story.cache.open_request("r1", [*TOKENS, 7])
    assert story.cache.digest() == before
    story.mend()
    story.cache.release(story.cache.acquire(TOKENS))
    assert story.verdict().passed
    assert story.unread() == []


def test_a_commit_that_cannot_look_at_its_new_lock_leaves_the_request_as_it_was() -> None:
    story = Story()
    request = running(story)
    before = story.cache.digest()
    story.fail()
    with pytest.raises(KVUnreadable):
        request.commit()
    assert story.cache.digest() == before
    request.finish()
    assert [reason for _, reason, _, _ in story.unread()] == ["unlocked", "unlocked"]
    assert story.verdict().verdict == "unverified"


def test_a_recovery_under_a_lock_goes_on_and_full_is_compared_when_the_memory_is_back() -> None:
    story = Story()
    lease = story.cache.acquire(TOKENS)
    story.cache.release_swa(lease)
    story.cache.evict(swa_tokens=5 * PAGE)
    story.fail()
    story.cache.insert(TOKENS, story.cache.alloc(len(TOKENS)))
    assert [(reason, pages) for _, reason, pages, _ in story.unread()] == [
        ("recovered", [1, 2, 3, 4]),
        ("recovered", [5]),
    ]
    story.mend()
    story.memory.k[0][1 * PAGE] += 1.0
    story.cache.release(lease)
    verdict = story.verdict()
    assert broken(verdict) == {"locked-content"}
    assert (verdict.findings[0].pages, verdict.counts.pages_content_unread) == ((1,), 5)


def test_what_ends_a_program_is_not_taken_for_a_fault_of_the_memory() -> None:
    story = Story()
    lease = story.cache.acquire(TOKENS)
    story.fail(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        story.cache.release(lease)
    story.mend()
    story.cache.release(lease)
    assert story.unread() == []
    assert story.verdict().passed


@pytest.mark.parametrize(
    "policy", [{"tokens": "full"}, {"tokens": "hash", "key": b"k" * 16}, {"tokens": "none"}]
)
def test_a_stored_journal_tells_it_under_every_token_policy_and_the_audit_exits_with_1(
    policy: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "run.db"
    with Journal.open(path) as journal, journal.record(name="run", **policy) as recorder:
        cache = HybridCache(configuration(), sink=recorder)
        cache.insert(TOKENS, cache.alloc(len(TOKENS)))
        lease = cache.acquire(TOKENS)

        def fail(*_: object, **__: object) -> None:
            raise torch.OutOfMemoryError("CUDA out of memory, and a prompt that says too much")

        with monkeypatch.context() as patched:
            patched.setattr(KVChecksum, "of", fail)
            cache.release(lease)
        cache.checkpoint()
        recorder.flush()
        stored = [one.event for one in journal.reader(recorder.journal_id).events()]
    told = [event for event in stored if isinstance(event, KvUnread)]
    assert {event.error for event in told} == {"OutOfMemoryError"}
    assert {event.reason for event in told} == {FingerprintReason.UNLOCKED}
    assert main(["audit", str(path)]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert CONTENT_UNREAD in shown
    assert main(["anomalies", str(path)]) == 0
    assert "could not be read: OutOfMemoryError" in " ".join(capsys.readouterr().out.split())


@pytest.mark.interpreted
def test_a_run_whose_device_fails_now_and_then_is_reported_as_unverified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told, looks = fingerprints.fingerprint, itertools.count()

    def fail(*_: object) -> None:
        raise KVUnreadable("no room")

    def now_and_then(ledger: Ledger, nodes: list[Node], reason: FingerprintReason) -> None:
        with monkeypatch.context() as patched:
            if reason is FingerprintReason.UNLOCKED and next(looks) % 3 == 0:
                patched.setattr(KVChecksum, "of", fail)
            told(ledger, nodes, reason)

    monkeypatch.setattr(locking, "fingerprint", now_and_then)
    arguments = ["run", "--fingerprints", "--requests", "12", "--db", str(tmp_path / "run.db")]
    assert main(arguments) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "audit: unverified" in shown
    assert "pages could not be read: what they held is unverified" in shown


def test_a_device_that_fails_is_a_typed_error_of_the_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    pools = DevicePools(configuration())

    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(np, "einsum", fail)
    with pytest.raises(KVUnreadable, match="of 2 pages could not be read: no room"):
        pools.fingerprint([1, 2], np.array([1, 2]))


def test_room_for_sums_is_taken_when_the_pools_are_made_or_they_are_not_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[object] = []

    def fail(self: KVChecksum, block: torch.Tensor, *, page_size: int) -> None:
        made.append(self)
        raise torch.OutOfMemoryError("no room for sums")

    monkeypatch.setattr(KVChecksum, "__init__", fail)
    with pytest.raises(InvalidArgument, match="no room for sums"):
        HybridCache(configuration())
    assert len(made) == 1
    HybridCache(configuration().model_copy(update={"fingerprints": False}))
    assert len(made) == 1


def test_a_look_that_failed_stands_beside_those_that_did_not() -> None:
    story = Story()
    lease = story.cache.acquire(TOKENS)
    story.fail()
    story.cache.release(lease)
    story.mend()
    story.cache.release(story.cache.acquire(TOKENS))
    looked = [event.reason for event in story.events() if isinstance(event, KvFingerprinted)]
    locked, _, unlocked = FingerprintReason
    assert looked == [locked, locked, locked, locked, unlocked, unlocked]
    verdict = story.verdict()
    assert (verdict.verdict, verdict.counts.pages_compared) == ("unverified", 5)

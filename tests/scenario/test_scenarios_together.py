"""Several operations of one caller's transaction, and what is left of one that was undone."""

import pytest

from kvledger.core.errors import JournalError
from kvledger.core.sinks import MemorySink, TransactionRecord
from tests.scenario.dsl import Story, tokens


def test_a_request_may_be_retracted_and_resumed_in_one_transaction() -> None:
    """What it published is evicted in between: the insert of a retract promises no later match."""
    s = Story(page=4, window=5, full=16, swa=16)
    request = s.START("r", "1..12, 13")
    with s.cache.transaction("swap"):
        request.retract()
        s.cache.evict(full_tokens=4)
        request.refresh()
    assert request.prefix_len < 12
    s.see()


def test_after_an_undone_operation_the_next_one_is_what_it_would_have_been() -> None:
    told: list[list[tuple[int, int, list[int]]]] = []
    for undone in (False, True):
        s = Story()
        s.INS("1..8")
        if undone:
            with s.cache.transaction("try") as t:
                slots = s.cache.alloc(12)
                s.cache.insert(tokens("1..12"), slots)
                s.cache.evict(full_tokens=2)
                s.cache.acquire(tokens("1..6"))
                t.rollback()
        s.INS("1..4, 90..93")
        s.LOCK("1..7")
        told.append(sorted((node.start, node.last_access, list(node.full_slots)) for node in s.cache.nodes()))
    assert told[0] == told[1]


def test_everything_in_one_transaction_is_one_entry_of_the_journal() -> None:
    s = Story()
    s.INS("1..8")
    before = len(s.sink.transactions)
    with s.cache.transaction("step", request_id="r1"):
        request = s.cache.open_request("r1", tokens("1..9"))
        request.extend(1)
        request.computed()
        request.commit()
        with s.cache.transaction("inner"):
            s.cache.evict(full_tokens=1)
        request.finish()
    s.see()
    assert len(s.sink.transactions) == before + 1
    assert (s.sink.transactions[-1].op, s.sink.transactions[-1].request_id) == ("step", "r1")
    assert not any(s.sink.transactions[-1].undone)


def test_an_undone_part_stays_in_the_journal_with_its_mark_and_its_reason() -> None:
    s = Story()
    with s.cache.transaction("step") as t:
        s.cache.alloc(2)
        here = t.savepoint()
        s.cache.alloc(4)
        t.rollback(here, reason="changed its mind")
        s.cache.alloc(1)
    s.see()
    record = s.sink.transactions[-1]
    kinds = [(event.kind, bool(mark)) for event, mark in zip(record.events, record.undone, strict=True)]
    assert kinds == [
        ("pages_allocated", False),
        ("pages_allocated", True),
        ("rolled_back", False),
        ("pages_allocated", False),
    ]
    assert getattr(record.events[2], "reason", None) == "changed its mind"
    assert not record.rolled_back
    s.HELD(3, 3)


def test_a_transaction_that_changes_nothing_leaves_no_entry() -> None:
    s = Story()
    before = len(s.sink.transactions)
    with s.cache.transaction("idle"):
        s.cache.match_prefix([1, 2])
    with s.cache.transaction("idle") as t:
        t.rollback()
    assert len(s.sink.transactions) == before


class FullDisk(MemorySink):
    """Refuses everything after the first transaction."""

    def append(self, transaction: TransactionRecord) -> None:
        if self.transactions:
            raise JournalError("the disk is full")
        super().append(transaction)


def test_a_sink_that_refuses_the_record_of_an_exception_does_not_stop_the_undoing() -> None:
    s = Story()
    sink = FullDisk()
    cache = type(s.cache)(s.cache.config, sink=sink)
    before = (cache.digest(), cache.sizes())

    def step() -> None:
        with cache.transaction("step"):
            cache.alloc(4)
            raise ValueError("the scheduler fell over")

    with pytest.raises((JournalError, ValueError)) as caught:
        step()
    told = [str(error) for error in (caught.value, caught.value.__context__) if error is not None]
    assert "the scheduler fell over" in told
    assert (cache.digest(), cache.sizes()) == before
    cache.check()

"""What the audit does with full states stored beside a journal: it reproduces them, and begins at them.

A source in memory, whose checkpoints and beginnings are a choice. Some three seconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest

from kvledger.core import HybridCache
from kvledger.core.errors import JournalFormatError
from kvledger.core.events import RequestOpened
from kvledger.core.ids import Seq, TxnId
from kvledger.core.sinks import MemorySink
from kvledger.journal.audit import audit
from kvledger.journal.audit.check import Context
from kvledger.journal.audit.findings import Findings
from kvledger.journal.audit.origins import Origins
from kvledger.journal.audit.siblings import Siblings
from kvledger.journal.fits import ReplayError
from kvledger.journal.records import StoredCheckpoint, StoredTransaction, number_transactions
from kvledger.journal.replay import replay
from kvledger.journal.snapshot import encode_state
from kvledger.journal.tokens import POLICY_SETTING
from tests.planted.evidence import Course
from tests.planted.life import life
from tests.support.hand_written import (
    Story,
    allocated,
    created,
    first_of,
    inserted,
    opened,
    pages,
    request_opened,
)

AT = (20, 60, 90)


def _mark(cache: HybridCache) -> None:
    cache.checkpoint()


@cache
def lived() -> list[StoredTransaction]:
    """A life of some hundred transactions."""
    sink = MemorySink()
    course = Course(life, page=4, window=6, full=240, swa=180)
    cache = HybridCache(course.config(), sink=sink)
    life(cache, lambda: _mark(cache), steps=60)
    return number_transactions(sink.transactions)


@cache
def taken(number: int) -> StoredCheckpoint:
    """The full state after the transaction of this number."""
    transaction = lived()[number - 1]
    state = replay(lived(), upto=transaction.last_seq).state
    return StoredCheckpoint(
        seq=transaction.last_seq,
        number=transaction.number,
        chain_hash=b"",
        digest=state.digest(),
        state=encode_state(state),
        hash=b"",
    )


@dataclass
class Kept:
    """A journal in memory, from transaction `first` on, with these checkpoints."""

    checkpoints: list[StoredCheckpoint]
    first: int = 1
    config: dict[str, Any] | None = None
    unreadable: bool = False
    asked: list[str] = field(default_factory=list)

    def transactions(
        self, first: TxnId | int | None = None, *, upto_seq: Seq | int | None = None
    ) -> Iterator[StoredTransaction]:
        begin = self.first if first is None else max(first, self.first)
        yield from lived()[begin - 1 :]

    def checkpoint_before(self, seq: Seq | int | None = None) -> StoredCheckpoint | None:
        found = [one for one in self.checkpoints if seq is None or one.seq <= seq]
        return found[-1] if found else None

    def checkpoint_after(self, seq: Seq | int) -> StoredCheckpoint | None:
        return next((one for one in self.checkpoints if one.seq >= seq), None)

    def checkpoint_places(self) -> Iterator[tuple[TxnId, str]]:
        if self.unreadable:
            raise JournalFormatError("the list of checkpoints cannot be read")
        yield from ((one.number, one.digest) for one in self.checkpoints)

    def recorded_config(self) -> dict[str, Any] | None:
        return self.config


def test_full_states_that_the_events_amount_to_are_reproduced_and_counted() -> None:
    verdict = audit(Kept([taken(number) for number in AT]))
    assert (verdict.verdict, verdict.findings) == ("pass", ())
    assert (verdict.counts.full_states, verdict.counts.full_states_reproduced) == (3, 3)
    assert (verdict.checkpoint_seq, verdict.gaps) == (None, ())


def test_a_full_state_with_another_digest_is_found_at_its_transaction() -> None:
    wrong = replace(taken(60), digest="0" * 64)
    verdict = audit(Kept([taken(20), wrong, taken(90)]))
    finding = first_of(verdict, "checkpoint")
    assert (finding.seq, finding.transaction) == (lived()[59].last_seq, 60)
    assert "has digest 0000000000000000..." in finding.sentence
    assert (verdict.counts.full_states, verdict.counts.full_states_reproduced) == (3, 2)


def test_a_full_state_that_is_another_although_its_digest_is_right_is_found() -> None:
    wrong = replace(taken(60), state=taken(20).state)
    verdict = audit(Kept([taken(20), wrong]))
    finding = first_of(verdict, "checkpoint")
    assert finding.transaction == 60
    assert "not the one that the events amount to" in finding.sentence


@pytest.mark.parametrize("change", [{"seq": Seq(1_000_000)}, {"number": TxnId(61)}])
def test_a_full_state_that_does_not_stand_where_it_says_is_found(change: dict[str, Any]) -> None:
    class Moved(Kept):
        def checkpoint_after(self, seq: Seq | int) -> StoredCheckpoint | None:
            found = super().checkpoint_after(seq)
            return None if found is None else replace(found, **change)

    finding = first_of(audit(Moved([taken(60)])), "checkpoint")
    assert (finding.transaction, "does not stand at its last seq" in finding.sentence) == (60, True)


def test_a_full_state_that_is_listed_and_not_there_is_found() -> None:
    class Gone(Kept):
        def checkpoint_after(self, seq: Seq | int) -> StoredCheckpoint | None:
            return None

    finding = first_of(audit(Gone([taken(60)])), "checkpoint")
    assert (finding.transaction, "does not stand at its last seq" in finding.sentence) == (60, True)


def test_a_list_of_full_states_that_cannot_be_read_is_a_finding_and_the_rest_is_read() -> None:
    verdict = audit(Kept([taken(60)], unreadable=True))
    assert verdict.verdict == "fail"
    assert "the list of checkpoints cannot be read" in first_of(verdict, "checkpoint").sentence
    assert verdict.counts.transactions == len(lived())


@pytest.mark.parametrize("number", AT)
def test_a_journal_whose_beginning_is_gone_is_read_from_the_state_before_it(number: int) -> None:
    verdict = audit(Kept([taken(number)], first=number + 1))
    assert (verdict.verdict, verdict.findings) == ("unverified", ())
    seq = taken(number).seq
    assert verdict.checkpoint_seq == seq
    assert [(gap.first_seq, gap.last_seq, gap.reason, gap.resumed_seq) for gap in verdict.gaps] == [
        (1, seq, "not here", seq)
    ]
    assert verdict.counts.transactions == len(lived()) - number


def test_where_the_state_before_the_beginning_is_missing_the_next_one_is_the_beginning() -> None:
    verdict = audit(Kept([taken(20), taken(60)], first=22))
    assert (verdict.verdict, verdict.findings, verdict.checkpoint_seq) == ("unverified", (), taken(60).seq)


@pytest.mark.parametrize("first", [2, 3, 50])
def test_where_the_beginning_is_gone_and_no_state_is_there_nothing_can_be_audited(first: int) -> None:
    with pytest.raises(ReplayError, match=f"it begins with transaction {first}, and there is no checkpoint"):
        audit(Kept([], first=first))


@pytest.mark.parametrize(("policy", "found"), [("full", [2]), ("none", [])])
def test_siblings_of_a_restored_state_are_compared_where_tokens_are_kept(
    policy: str, found: list[int]
) -> None:
    twins = [created(1, pages(1), pages(1)), created(2, pages(2), pages(2), first_token=0)]
    if policy == "none":
        twins = [replace(twin, tokens=b"") for twin in twins]
    story = Story(opened(config={POLICY_SETTING: policy})).then("alloc", allocated(pages(1, 2)))
    story.then("insert", *twins, inserted(4, full=[(0, 4)], swa=[(0, 4)]))
    state = replay(story.journal()).state
    assert state.token_policy == policy
    context = Context(state, Findings())
    Siblings(context).resume()
    assert [finding.node for finding in context.findings.kept(["well-formed"])] == found


@pytest.mark.parametrize("number", AT)
def test_an_epoch_that_a_restored_state_names_is_not_given_again(number: int) -> None:
    state = replay(lived(), upto=lived()[number - 1].last_seq).state
    named = {request.epoch for request in state.requests.values()}
    named |= {node.full_origin.epoch for node in state.nodes.values()}
    named |= {node.swa_origin.epoch for node in state.nodes.values() if node.swa_origin is not None}
    assert len(named) > 1
    for epoch in (*named, max(named) + 1):
        context = Context(state, Findings())
        origins = Origins(context)
        origins.resume()
        event = replace(request_opened("new", 1, pages()), epoch=epoch)
        origins.before[RequestOpened](event, None)
        assert bool(context.findings.kept(["well-formed"])) == (epoch in named)

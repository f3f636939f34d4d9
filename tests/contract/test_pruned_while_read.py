"""On every kind of store: a reader that pruning overtakes is told so, and nobody is accused of it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvledger.core.errors import JournalError
from kvledger.journal import Journal, JournalReader, batches, verify
from kvledger.journal.audit import audit
from kvledger.journal.database import writing_engine
from kvledger.journal.export import export_journal, prune_rows
from kvledger.journal.replay import replay
from tests.support.recorded_run import record_run, small_run
from tests.support.tampering import tamper

BATCH = 40
"""Transactions that a reader has in hand at a time."""

OVERTAKEN = "was pruned while it was read"

Prune = Callable[[int], None]


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_TRANSACTIONS", BATCH)
    monkeypatch.setattr(verify, "BATCH_TRANSACTIONS", BATCH)


@pytest.fixture
def journal(store: str) -> Iterator[Journal]:
    with Journal.open(store) as opened_journal:
        yield opened_journal


@pytest.fixture
def reader(journal: Journal) -> JournalReader:
    """A journal with a state at its very end, so that all of its rows can go."""
    reader = record_run(journal, small_run(), checkpoint_every=150)
    assert reader.checkpoint_seqs()[-1] == reader.head().seq
    return reader


@pytest.fixture
def prune(journal: Journal, reader: JournalReader, tmp_path: Path) -> Prune:
    """Exports everything and prunes up to the newest state at or before a seq."""

    def carry_out(seq: int) -> None:
        export_journal(reader, tmp_path / "archive")
        engine = writing_engine(journal.url)
        prune_rows(engine, reader, before_seq=seq + 1, exported=tmp_path / "archive")
        engine.dispose()

    return carry_out


def after_the_first_batch(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, place: int, act: Callable[[], None]
) -> None:
    """Have `act` carried out before `name` reads on after a transaction, which argument `place` names."""
    read = getattr(owner, name)

    def reading(*arguments: Any) -> Any:
        if arguments[place]:
            monkeypatch.setattr(owner, name, read)
            act()
        return read(*arguments)

    monkeypatch.setattr(owner, name, reading)


VERIFYING = (verify, "_read_batch", 2)
READING = (batches.TransactionBatches, "_batch", 1)


@pytest.mark.parametrize("state", [-2, -1], ids=["most", "all"])
def test_transactions_that_were_pruned_under_a_reader_are_missed_aloud(
    reader: JournalReader, prune: Prune, state: int
) -> None:
    transactions = reader.transactions()
    assert next(transactions).number == 1
    prune(reader.checkpoint_seqs()[state])
    with pytest.raises(JournalError, match=OVERTAKEN):
        list(transactions)


def test_a_reader_that_pruning_does_not_overtake_reads_on(reader: JournalReader, prune: Prune) -> None:
    transactions = reader.transactions()
    read = [int(next(transactions).number) for _ in range(4 * BATCH + 1)]
    prune(reader.checkpoint_seqs()[0])
    read += [int(one.number) for one in transactions]
    assert read == list(range(1, reader.head().number + 1))
    assert next(reader.transactions()).number > 1


@pytest.mark.parametrize("state", [-2, -1], ids=["most", "all"])
def test_a_verification_that_pruning_overtakes_finds_no_fault_of_the_journal(
    journal: Journal, reader: JournalReader, prune: Prune, state: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seq = reader.checkpoint_seqs()[state]
    after_the_first_batch(monkeypatch, *VERIFYING, lambda: prune(seq))
    with pytest.raises(JournalError, match=OVERTAKEN):
        next(journal.verify())
    assert list(journal.verify()) == []


@pytest.mark.parametrize("state", [-2, -1], ids=["most", "all"])
def test_an_audit_that_pruning_overtakes_gives_no_verdict(
    journal: Journal, reader: JournalReader, prune: Prune, state: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seq = reader.checkpoint_seqs()[state]
    after_the_first_batch(monkeypatch, *READING, lambda: prune(seq))
    with pytest.raises(JournalError, match=OVERTAKEN):
        audit(reader, chain=journal.verify())
    if seq < reader.head().seq:
        assert audit(reader, chain=journal.verify()).verdict == "unverified"


def test_a_replay_that_pruning_overtakes_gives_no_state(
    reader: JournalReader, prune: Prune, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = reader.checkpoint_seqs()[0], reader.checkpoint_seqs()[-1]
    after_the_first_batch(monkeypatch, *READING, lambda: prune(last))
    with pytest.raises(JournalError, match=OVERTAKEN):
        replay(reader.transactions(), first)


def test_rows_that_are_missing_in_the_middle_are_a_fault_whenever_they_went(
    store: str, journal: Journal, reader: JournalReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_out() -> None:
        tamper(store, "DELETE FROM transactions WHERE number BETWEEN 60 AND 100")

    after_the_first_batch(monkeypatch, *VERIFYING, cut_out)
    assert next(journal.verify()).sentence == "transactions 60 to 100 are missing"
    assert next(journal.verify()).sentence == "transactions 60 to 100 are missing"

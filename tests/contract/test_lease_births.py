"""Since when a lease is held is told alike by what was heard as it passed and by a look into the journal."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kvledger.api.projection import LeaseBirths, lease_births
from kvledger.core.events import LockAcquired
from kvledger.core.ids import LeaseId
from kvledger.journal import Journal, JournalReader
from kvledger.journal.lookups.holders import holders
from tests.support.places import keep_everywhere


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("births")
    keep_everywhere(path)
    return path


@pytest.fixture
def reader(folder: Path) -> Iterator[JournalReader]:
    with Journal.open(folder / "run.db") as journal:
        yield journal.reader()


def leases_of(reader: JournalReader) -> list[LeaseId]:
    """Every lease that was given."""
    events = (one.event for transaction in reader.transactions() for one in transaction.events)
    return [event.lease for event in events if isinstance(event, LockAcquired)]


def test_what_was_heard_is_what_a_look_into_the_journal_finds(
    reader: JournalReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = leases_of(reader)
    assert len(held) > 20
    last = int(reader.head().seq)
    found = holders(reader, held, upto_seq=last)
    heard = LeaseBirths(reader)
    for transaction in reader.transactions():
        heard.transaction(transaction)
    with monkeypatch.context() as without:
        without.setattr(lease_births, "holders", lambda *of, **how: pytest.fail("looked up again"))
        assert heard.of(held, upto_seq=last) == found


def test_what_an_undone_part_gave_was_never_held(reader: JournalReader) -> None:
    heard = LeaseBirths(reader)
    for transaction in reader.transactions():
        heard.transaction(
            replace(transaction, events=tuple(replace(one, undone=True) for one in transaction.events))
        )
    assert heard._known == {}


def test_only_so_many_are_remembered_and_the_others_are_looked_up(
    reader: JournalReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_births, "REMEMBERED", 5)
    held = leases_of(reader)
    last = int(reader.head().seq)
    heard = LeaseBirths(reader)
    for transaction in reader.transactions():
        heard.transaction(transaction)
    assert set(heard._known) == set(held[-5:])
    assert heard.of(held, upto_seq=last) == holders(reader, held, upto_seq=last)
    assert len(heard._known) == 5

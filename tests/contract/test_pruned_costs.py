"""Pruning costs what it removes, however much stays, and leaves no row behind that points to nothing.

Costs are counted by the databases themselves: steps of SQLite's machine, event rows that PostgreSQL reads.
Both grew with the square of what stays. About 9 s.
"""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from kvledger.core.errors import JournalError
from kvledger.journal import Journal, JournalReader
from kvledger.journal.database import backend_of, store_url, writing_engine
from kvledger.journal.export.prune import Pruned, remove_rows
from kvledger.journal.growth import MIN_MAX_BYTES
from kvledger.journal.replay import replay
from tests.support.recorded_run import record_run, small_run
from tests.support.stores import rows
from tests.support.tampering import tamper

SHORT, LONG = 100, 200
"""Requests of the two journals."""

STEPS_APART = 100
"""Instructions of SQLite's machine between two counts."""

ALLOWED_GROWTH = 1.3
"""How much more each row that goes may cost where twice as many stay."""

EVENT_ROWS_READ = (
    "SELECT seq_tup_read + idx_tup_fetch, pg_stat_force_next_flush() FROM pg_stat_xact_user_tables "
    "WHERE relname = 'events'"
)
"""By a session of PostgreSQL since it told of them last, which it is asked to do when this transaction ends.
Those that its foreign keys read are among them."""


class Counted:
    """Counts what the connections of every engine do: steps on SQLite, event rows read on PostgreSQL."""

    def __init__(self) -> None:
        self.done = 0

    def __enter__(self) -> "Counted":
        sa.event.listen(sa.Engine, "connect", self._connected)
        sa.event.listen(sa.Engine, "commit", self._committed)
        return self

    def __exit__(self, *_: object) -> None:
        sa.event.remove(sa.Engine, "connect", self._connected)
        sa.event.remove(sa.Engine, "commit", self._committed)

    def _connected(self, connection: Any, _record: Any) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.set_progress_handler(self._step, STEPS_APART)

    def _step(self) -> int:
        self.done += 1
        return 0

    def _committed(self, connection: sa.Connection) -> None:
        if connection.dialect.name == "postgresql":
            self.done += connection.exec_driver_sql(EVENT_ROWS_READ).scalar_one()


def prune_upto(journal: Journal, reader: JournalReader, seq: int) -> Pruned:
    """Remove what lies before the newest checkpoint up to `seq`, as a prune does after the files verified."""
    cut = reader.checkpoint_before(seq)
    assert cut is not None
    engine = writing_engine(journal.url)
    try:
        return remove_rows(engine, reader, cut=cut)
    finally:
        engine.dispose()


def test_a_row_that_goes_costs_the_same_however_many_stay(store: str) -> None:
    costs, events = [], []
    with Journal.open(store) as journal:
        for requests in (SHORT, LONG):
            reader = record_run(journal, small_run(requests), checkpoint_every=400)
            with Counted() as counted:
                events.append(prune_upto(journal, reader, reader.head().seq // 2).events)
            costs.append(counted.done)
    assert 0 < 2 * events[0] < events[1]
    assert 0 < costs[1] / events[1] < ALLOWED_GROWTH * costs[0] / events[0], (costs, events)


def test_a_recorder_that_prunes_many_times_has_work_in_proportion(tmp_path: Path) -> None:
    """To store, read out and remove rows is less than twice the work of storing them alone."""
    records, folder = small_run(600, 11), tmp_path / "out"
    costs: list[int] = []
    for how in ({}, {"max_bytes": MIN_MAX_BYTES, "export_to": folder}):
        with Journal.open(tmp_path / f"{len(costs)}.db") as journal, Counted() as counted:
            record_run(journal, records, flush_every=100, checkpoint_every=0, **how)
        costs.append(counted.done)
    assert len(list(folder.glob("*.parquet"))) >= 3
    assert 0 < costs[0] < costs[1] < 2 * costs[0], costs


def test_nothing_that_stays_points_to_what_went(store: str) -> None:
    with Journal.open(store) as journal:
        reader = record_run(journal, small_run(), checkpoint_every=200)
        digest = replay(reader).state.digest()
        assert prune_upto(journal, reader, 800).transactions > 0
        assert list(journal.verify()) == []
        assert replay(reader).state.digest() == digest
        orphans = (
            "SELECT count(*) FROM events LEFT JOIN transactions ON transactions.number = events.txn "
            "AND transactions.journal_id = events.journal_id WHERE transactions.number IS NULL"
        )
        assert rows(store, orphans) == [(0,)]
        if store.startswith("sqlite"):
            assert rows(store, "PRAGMA foreign_key_check") == []


@pytest.mark.parametrize("fails", [False, True])
def test_foreign_keys_are_off_for_the_pruning_connection_alone_and_on_again_after_it(
    tmp_path: Path, fails: bool
) -> None:
    url = store_url(tmp_path / "run.db")
    Journal.open(tmp_path / "run.db").close()
    engine = writing_engine(url)

    def checked(connection: sa.Connection) -> bool:
        driver: Any = connection.connection.driver_connection
        return bool(driver.execute("PRAGMA foreign_keys").fetchone()[0])

    with engine.connect() as pruning, engine.connect() as other:
        try:
            with backend_of(url).deleting_in_order(pruning):
                assert (checked(pruning), checked(other)) == (False, True)
                with pruning.begin():
                    assert not checked(pruning)
                    if fails:
                        raise ZeroDivisionError
        except ZeroDivisionError:
            assert fails
        assert (checked(pruning), checked(other)) == (True, True)
    engine.dispose()


@pytest.mark.parametrize("more", [1, 5, 10**9])
def test_a_checkpoint_that_names_a_later_transaction_than_its_own_takes_none_along(
    store: str, more: int
) -> None:
    """A foreign key refused that before pruning went without one."""
    with Journal.open(store) as journal:
        reader = record_run(journal, small_run(), checkpoint_every=200)
        first, second, *_ = reader.checkpoint_seqs()
        before = rows(store, "SELECT count(*), min(number) FROM transactions")
        tamper(store, f"UPDATE checkpoints SET number = number + {more} WHERE seq = {first}")
        with pytest.raises(JournalError, match=f"stands at seq {first}, where that one does not end"):
            prune_upto(journal, reader, second)
        assert rows(store, "SELECT count(*), min(number) FROM transactions") == before


def test_an_event_that_was_moved_into_a_transaction_that_goes_is_kept_and_named(store: str) -> None:
    with Journal.open(store) as journal:
        reader = record_run(journal, small_run(), checkpoint_every=200)
        moved = reader.head().seq - 10
        tamper(store, f"UPDATE events SET txn = 1 WHERE seq = {moved}")
        if store.startswith("sqlite"):
            assert prune_upto(journal, reader, 800).events > 0
        else:
            with pytest.raises(JournalError, match=r"cannot be pruned.*foreign key"):
                prune_upto(journal, reader, 800)
        assert [found.seq for found in journal.verify()] == [moved]
        assert rows(store, f"SELECT txn FROM events WHERE seq = {moved}") == [(1,)]

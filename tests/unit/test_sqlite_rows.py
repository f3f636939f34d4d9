"""The quick way into SQLite: every value arrives as what it is, NULL and what looks like it told apart."""

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import IntegrityError

from kvledger.journal.database import backend_of
from tests.support.stored_events import INT64, NAMES, seeded

COLUMNS = ("id", "number", "name", "data", "number_or_none", "name_or_none", "data_or_none")
ROWS = sa.Table(
    "rows",
    sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
    sa.Column("number_or_none", sa.Integer),
    sa.Column("name_or_none", sa.Text),
    sa.Column("data_or_none", sa.LargeBinary),
    sqlite_strict=True,
)


@pytest.fixture(name="engine", scope="module")
def an_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sa.Engine]:
    url = sa.URL.create("sqlite", database=str(tmp_path_factory.mktemp("rows") / "rows.db"))
    migrating = backend_of(url).migrating_engine(url, lock_timeout_s=1)
    ROWS.metadata.create_all(migrating)
    migrating.dispose()
    engine = backend_of(url).writing_engine(url, sync="NORMAL", lock_timeout_s=1)
    yield engine
    engine.dispose()


def stored(engine: sa.Engine, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """What is read back of `rows`, which are taken out again."""
    insert = backend_of(engine.url).row_inserter(engine.dialect, ROWS, COLUMNS)
    with engine.connect() as connection, connection.begin() as transaction:
        insert(connection, list(zip(*rows, strict=True)))
        found = [tuple(row) for row in connection.execute(sa.select(ROWS).order_by(ROWS.c.id))]
        transaction.rollback()
    return found


VALUES = (
    INT64,
    NAMES,
    st.binary(max_size=6),
    st.none() | INT64,
    st.none() | NAMES,
    st.none() | st.binary(max_size=6),
)


@seeded
@given(rows=st.lists(st.tuples(*VALUES), min_size=1, max_size=5))
def test_rows_come_back_as_they_went_in(engine: sa.Engine, rows: list[tuple[Any, ...]]) -> None:
    numbered = [(place, *row) for place, row in enumerate(rows)]
    found = stored(engine, numbered)
    assert found == numbered
    assert [list(map(type, row)) for row in found] == [list(map(type, row)) for row in numbered]


def test_nothing_that_a_column_can_hold_is_taken_for_null(engine: sa.Engine) -> None:
    looks_like_it = (1, 0, "", b"", 0, "0", b"0")
    empty = (2, 0, "0", b"0", -(2**63), "", b"")
    null = (3, 0, "", b"", None, None, None)
    assert stored(engine, [looks_like_it, empty, null]) == [looks_like_it, empty, null]


@pytest.mark.parametrize("place", [1, 2, 3])
def test_null_is_refused_where_the_column_has_none(engine: sa.Engine, place: int) -> None:
    row = [1, 2, "name", b"data", None, None, None]
    row[place] = None
    with pytest.raises((IntegrityError, TypeError)):
        stored(engine, [tuple(row)])


def test_a_row_that_the_database_refuses_is_said_as_sqlalchemy_does(engine: sa.Engine) -> None:
    row = (1, 2, "name", b"data", None, None, None)
    with pytest.raises(IntegrityError):
        stored(engine, [row, row])


def test_columns_of_unequal_length_are_refused(engine: sa.Engine) -> None:
    insert = backend_of(engine.url).row_inserter(engine.dialect, ROWS, COLUMNS[:4])
    with engine.connect() as connection, connection.begin() as transaction:
        with pytest.raises(ValueError, match="zip"):
            insert(connection, [[1, 2], [3], ["a", "b"], [b"", b""]])
        transaction.rollback()

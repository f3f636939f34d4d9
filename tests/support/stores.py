"""Stores of every kind for the contract suites, and a look into their tables past the journal's own code."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from kvledger.journal.database import store_url, writing_engine

STORES = ("sqlite", "postgresql")


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store, of each kind in turn: a file yet to be made, or a server's database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'run.db'}"
    else:
        yield request.getfixturevalue("postgresql_store")


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    """What a query finds, read by a connection of its own."""
    engine = writing_engine(store_url(url))
    try:
        with engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.text(query))]
    finally:
        engine.dispose()


def change(url: str, *statements: str) -> None:
    """Carry out statements in one transaction of another program."""
    engine = writing_engine(store_url(url))
    try:
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(sa.text(statement))
    finally:
        engine.dispose()

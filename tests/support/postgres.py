"""A real PostgreSQL server for the tests, and a fresh, migrated database of it for each test that asks.

One private server serves the whole run. Where none can be started the tests are skipped, which a run that
must not skip them forbids with KVLEDGER_REQUIRE_POSTGRES=1.
"""

import itertools
import os
from collections.abc import Iterator

import psycopg
import pytest

from kvledger.journal.database import store_url
from kvledger.journal.migration import migrate
from kvledger.tools.torture.postgresql_server import NoServer, PostgresqlServer, start_server

TEMPLATE = "kvledger_template"


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlServer]:
    """The server of this run; tests that stop it start it again."""
    try:
        running = start_server()
        server = running.__enter__()
    except NoServer as error:
        if os.environ.get("KVLEDGER_REQUIRE_POSTGRES") == "1":
            pytest.fail(f"PostgreSQL is required and not there: {error}", pytrace=False)
        pytest.skip("no PostgreSQL")
    try:
        execute(server, f"CREATE DATABASE {TEMPLATE}")
        migrate(store_url(server.url(TEMPLATE)))
        yield server
    finally:
        running.__exit__(None, None, None)


_numbers = itertools.count(1)


@pytest.fixture
def empty_database(postgresql_server: PostgresqlServer) -> Iterator[str]:
    """The URL of a database without tables."""
    yield from _database(postgresql_server, "template1")


@pytest.fixture
def postgresql_store(postgresql_server: PostgresqlServer) -> Iterator[str]:
    """The URL of a store without journals."""
    yield from _database(postgresql_server, TEMPLATE)


def _database(server: PostgresqlServer, template: str) -> Iterator[str]:
    name = f"test_{next(_numbers)}"
    execute(server, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
    yield server.url(name)
    execute(server, f"DROP DATABASE {name} WITH (FORCE)")


def execute(
    server: PostgresqlServer, statement: str, *, database: str = "postgres"
) -> list[tuple[object, ...]]:
    """Run one statement as an operator would, outside every transaction; the rows it returned."""
    where = server.url(database).replace("+psycopg", "")
    with psycopg.connect(where, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return [] if cursor.description is None else cursor.fetchall()

"""A store of any kind that holds the fixture journals of format 1, under the schema of their time."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from kvledger.journal.database import database_path, store_url, writing_engine
from kvledger.journal.migration import demigrate

FIXTURES = Path(__file__).parent.parent / "fixtures"
DATABASE = FIXTURES / "format-1.sqlite"
EXPECTED: list[dict[str, Any]] = json.loads((FIXTURES / "format-1.json").read_text())
"""What was found in each journal when it was made."""

OLD_SCHEMA = "0001"
TABLES = ("journals", "transactions", "events", "checkpoints")


def fill_with_format_1(store: str) -> None:
    """Make `store`, a file yet to be made or an empty database with tables, one of the old schema."""
    url = store_url(store)
    if url.get_backend_name() == "sqlite":
        shutil.copy(DATABASE, database_path(url))
        return
    demigrate(url, to=OLD_SCHEMA)
    engine = writing_engine(url)
    with closing(sqlite3.connect(DATABASE)) as file, engine.begin() as connection:
        for table in TABLES:
            columns = [name for (name,) in file.execute(f"SELECT name FROM pragma_table_info('{table}')")]
            target = sa.table(table, *map(sa.column, columns))
            rows = [dict(zip(columns, row, strict=True)) for row in file.execute(f"SELECT * FROM {table}")]
            connection.execute(sa.insert(target), rows)
        connection.execute(sa.text("SELECT setval('journals_id_seq', (SELECT max(id) FROM journals))"))
    engine.dispose()


def cells_of(store: str) -> dict[str, list[tuple[Any, ...]]]:
    """Every cell of the columns that the old schema has, table by table, in order."""
    engine = writing_engine(store_url(store))
    with closing(sqlite3.connect(DATABASE)) as file, engine.connect() as connection:
        found = {}
        for table in TABLES:
            columns = [name for (name,) in file.execute(f"SELECT name FROM pragma_table_info('{table}')")]
            order = {"journals": "id", "transactions": "journal_id, number"}.get(table, "journal_id, seq")
            query = sa.text(f"SELECT {', '.join(columns)} FROM {table} ORDER BY {order}")
            found[table] = [tuple(row) for row in connection.execute(query)]
    engine.dispose()
    return found

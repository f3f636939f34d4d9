"""Rows as the driver gives them: plain tuples, for readers that take very many.

SQLAlchemy's rows know their columns by name and cost half as much again as reading them from SQLite. What is
read here is read once, in order and in full, by a query whose columns the caller knows by place.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from kvledger.core.errors import JournalError

Cells = tuple[Any, ...]
"""One row, in the order of the query's columns."""


def plain_rows(connection: sa.Connection, query: Any, **values: Any) -> Sequence[Cells]:
    """All rows of `query`, whose parameters are `values`.

    Nothing is converted on the way, which both drivers do not need for numbers, text and bytes. Raises as
    `Connection.execute` does. Cost: O(rows).
    """
    result = connection.execute(query, values)
    cursor = result.cursor
    if cursor is None:
        raise JournalError("a query that should give rows gave none that could be fetched")
    try:
        rows: Sequence[Cells] = cursor.fetchall()
    except connection.dialect.loaded_dbapi.Error:
        # A cell that the driver cannot read: the careful way tells it in SQLAlchemy's classes of errors.
        return [tuple(row) for row in connection.execute(query, values)]
    finally:
        result.close()
    return rows

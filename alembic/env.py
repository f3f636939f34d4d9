"""Runs migrations on a connection handed in by the program, or on the URL that the command line names.

`Journal.open` passes its own connection in `config.attributes["connection"]`, inside the transaction it has
begun, so that two processes that open a new store at once migrate it one after the other.
"""

from alembic import context
from sqlalchemy import Connection, create_engine, pool

from kvledger.journal.models import SCHEMA_TABLE, Base, stands_on


def run(connection: Connection | None, *, url: str | None = None) -> None:
    """Bring the database to the revision that was asked for, or print the SQL when there is no connection."""
    context.configure(
        connection=connection,
        url=url,
        target_metadata=Base.metadata,
        version_table=SCHEMA_TABLE,
        literal_binds=connection is None,
        compare_type=True,
        include_object=None if connection is None else stands_on(connection.dialect.name),
    )
    with context.begin_transaction():
        context.run_migrations()


def asked_url() -> str:
    """The database named by `-x url=...`, else by alembic.ini."""
    given = context.get_x_argument(as_dictionary=True).get("url")
    return given or context.config.get_main_option("sqlalchemy.url") or "sqlite:///kvledger.db"


passed = context.config.attributes.get("connection")
if passed is not None:
    run(passed)
elif context.is_offline_mode():
    run(None, url=asked_url())
else:
    with create_engine(asked_url(), poolclass=pool.NullPool).connect() as opened:
        run(opened)
        opened.commit()

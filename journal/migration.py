"""The schema of a store: which revision it has, and how it gets to the newest one.

A file is made and migrated by whoever opens it. A server is shared, and its tables may belong to another role
than the one that records, so its operator migrates it with `kvledger db upgrade`.
"""

from collections.abc import Callable

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy.engine import URL

from kvledger.core.errors import JournalError, JournalFormatError, UnknownJournal
from kvledger.journal.backend import LOCK_TIMEOUT_SECONDS
from kvledger.journal.database import backend_of, database_errors, reading_engine, store_name
from kvledger.journal.models import SCHEMA_REVISION, SCHEMA_TABLE


def schema_revision(connection: sa.Connection) -> str | None:
    """The schema revision of a store, None where there is none yet."""
    if not sa.inspect(connection).has_table(SCHEMA_TABLE):
        return None
    revision: str | None = connection.execute(sa.text(f"SELECT version_num FROM {SCHEMA_TABLE}")).scalar()
    return revision


def stored_revision(url: URL, *, lock_timeout_s: float = LOCK_TIMEOUT_SECONDS) -> str | None:
    """The schema revision of the store behind `url`, None for a database that is no store.

    Raises UnknownJournal for a missing file, StoreUnavailable for a file that is no database or a server that
    does not answer.
    """
    backend_of(url).check_reachable(url, create=False)
    reader = reading_engine(url, lock_timeout_s=lock_timeout_s)
    try:
        what = f"{store_name(url)} cannot be opened as a database"
        with database_errors(what), reader.connect() as connection:
            return schema_revision(connection)
    finally:
        reader.dispose()


def prepare_store(url: URL, *, create: bool, lock_timeout_s: float = LOCK_TIMEOUT_SECONDS) -> None:
    """Make sure that a store with the tables of the newest schema stands behind `url`.

    With `create` a missing file is made. Raises UnknownJournal for a missing file or a database that is no
    store when `create` is False; JournalError for a file that is no database or cannot be opened, and for a
    server whose schema is missing or old; JournalFormatError for a store of a newer version.
    """
    backend = backend_of(url)
    found = None
    if backend.check_reachable(url, create=create):
        found = stored_revision(url, lock_timeout_s=lock_timeout_s)
        if is_current(url, found):
            return
        _refuse_unknown(url, found)
        if found is None and backend.makes_stores and not create:
            raise UnknownJournal(f"{store_name(url)} is a database without journals")
    if not backend.makes_stores:
        raise _to_be_upgraded(url, found)
    migrate(url, lock_timeout_s=lock_timeout_s)


def migrate(
    url: URL,
    *,
    to: str = "head",
    config: Config | None = None,
    lock_timeout_s: float = LOCK_TIMEOUT_SECONDS,
) -> None:
    """Bring the store behind `url` up to revision `to`, in one transaction; nothing where it is there.

    `config` names other migrations than those in the package. Raises StoreUnavailable when the database
    refuses, JournalFormatError for a store of a newer version.
    """
    _run(url, command.upgrade, to, config, lock_timeout_s)


def demigrate(
    url: URL, *, to: str, config: Config | None = None, lock_timeout_s: float = LOCK_TIMEOUT_SECONDS
) -> None:
    """Bring the store behind `url` down to revision `to`, in one transaction.

    Errors as `migrate`; JournalError too where rows of the store have no place in that revision. Nothing is
    changed then.
    """
    _run(url, command.downgrade, to, config, lock_timeout_s)


def migration_config() -> Config:
    """Alembic's configuration for the migrations shipped in the package."""
    config = Config()
    config.set_main_option("script_location", "kvledger:migrations")
    return config


def _run(
    url: URL, how: Callable[[Config, str], None], to: str, given: Config | None, lock_timeout_s: float
) -> None:
    config = migration_config() if given is None else given
    backend = backend_of(url)
    if backend.check_reachable(url, create=True):
        # Before anything is opened for writing: a store of a newer version stays as it is, byte for byte.
        _refuse_unknown(url, stored_revision(url, lock_timeout_s=lock_timeout_s), config=config)
    engine = backend.migrating_engine(url, lock_timeout_s=lock_timeout_s)
    name = store_name(url)
    try:
        with database_errors(f"the tables in {name} cannot be made"), engine.begin() as connection:
            backend.begin_migration(connection)
            config.attributes["connection"] = connection
            how(config, to)
            backend.check_migrated(connection)
    except CommandError as error:
        raise JournalFormatError(f"the tables in {name} cannot be brought to {to}: {error}") from error
    finally:
        engine.dispose()


def is_known(revision: str | None, *, config: Config | None = None) -> bool:
    """Whether these migrations, the package's for None, know a revision; that of no tables is known."""
    scripts = ScriptDirectory.from_config(migration_config() if config is None else config)
    return revision is None or revision in {script.revision for script in scripts.walk_revisions()}


def is_current(url: URL, revision: str | None) -> bool:
    """Whether the tables of a revision are the newest ones on the kind of database that `url` names."""
    return revision == SCHEMA_REVISION or revision in backend_of(url).as_the_newest


def _refuse_unknown(url: URL, found: str | None, *, config: Config | None = None) -> None:
    if not is_known(found, config=config):
        raise JournalFormatError(
            f"{store_name(url)} was written by a newer version: its schema is {found}, this version knows up "
            f"to {SCHEMA_REVISION}; open it with the version that wrote it, or a later one"
        )


def _to_be_upgraded(url: URL, found: str | None) -> JournalError:
    name = store_name(url)
    if found is None:
        return JournalError(f"{name} has no tables of kvledger yet: run `kvledger db upgrade {name}`")
    sentence = f"{name} has schema {found}, not {SCHEMA_REVISION}: run `kvledger db upgrade {name}`"
    return JournalError(sentence)

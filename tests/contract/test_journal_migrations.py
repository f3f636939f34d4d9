"""Migrations keep every row, up and down, on each kind of database; a server says when it needs them.

There is one released schema so far, so the next one is planted: it changes a table that others point to. On
SQLite that means to rebuild it, and a careless rebuild takes the rows of its children along.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext

from kvledger.core.errors import JournalError, JournalFormatError, StoreUnavailable, UnknownJournal
from kvledger.journal import Journal
from kvledger.journal.database import store_url, writing_engine
from kvledger.journal.migration import demigrate, migrate, migration_config, stored_revision
from kvledger.journal.models import SCHEMA_REVISION, SCHEMA_TABLE, Base
from tests.support.stored_events import short_story
from tests.support.stores import change, rows

NEXT_REVISION = f'''
import sqlalchemy as sa
from alembic import op

revision = "planted"
down_revision = "{SCHEMA_REVISION}"


def upgrade():
    with op.batch_alter_table("journals", recreate="auto") as table:
        table.add_column(sa.Column("rank", sa.Integer(), nullable=False, server_default="7"))
        table.alter_column("name", new_column_name="title")


def downgrade():
    with op.batch_alter_table("journals", recreate="auto") as table:
        table.drop_column("rank")
        table.alter_column("title", new_column_name="name")
'''
TABLES = ("journals", "transactions", "events", "checkpoints")


@pytest.fixture
def planted(tmp_path: Path) -> Config:
    """The shipped migrations and one more."""
    folder = tmp_path / "versions"
    folder.mkdir()
    (folder / "planted.py").write_text(NEXT_REVISION)
    config = migration_config()
    shipped = Path(__file__).parents[2] / "alembic" / "versions"
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", f"{shipped}\n{folder}")
    return config


@pytest.fixture
def populated(store: str) -> str:
    with Journal.open(store) as journal:
        for name in ("a", "b"):
            with journal.record(name=name) as recorder:
                for transaction in short_story():
                    recorder.append(transaction)
    return store


def counts(store: str) -> list[int]:
    return [rows(store, f"SELECT count(*) FROM {table}")[0][0] for table in TABLES]


def test_rows_and_their_children_survive_the_way_up_and_down(populated: str, planted: Config) -> None:
    before = counts(populated)
    assert before[1:3] == [12, 16]
    migrate(store_url(populated), config=planted)
    assert counts(populated) == before
    assert rows(populated, "SELECT title, rank FROM journals ORDER BY id") == [("a", 7), ("b", 7)]
    with pytest.raises(JournalFormatError, match="newer version"):
        Journal.open(populated)

    demigrate(store_url(populated), to=SCHEMA_REVISION, config=planted)
    assert counts(populated) == before
    with Journal.open(populated) as journal:
        for info in journal.list():
            assert list(journal.verify(info.id)) == []
            assert len(list(journal.reader(info.id).transactions())) == 6


def test_a_migration_that_fails_leaves_the_store_as_it_was(populated: str, planted: Config) -> None:
    before = counts(populated)
    # Without its parent a child row cannot be: what a careless migration would do in the end.
    broken = Path(planted.get_main_option("version_locations", "").split("\n")[1]) / "planted.py"
    text = broken.read_text().replace(
        "def downgrade", '    op.execute("DELETE FROM journals")\n\n\ndef downgrade'
    )
    broken.write_text(text)
    with pytest.raises(JournalError):
        migrate(store_url(populated), config=planted)
    assert counts(populated) == before
    assert stored_revision(store_url(populated)) == SCHEMA_REVISION


def test_a_populated_store_goes_down_to_nothing_and_up_again(populated: str) -> None:
    demigrate(store_url(populated), to="base")
    assert stored_revision(store_url(populated)) is None
    migrate(store_url(populated))
    assert counts(populated) == [0, 0, 0, 0]


def test_upgrading_a_store_that_is_up_to_date_changes_nothing(populated: str) -> None:
    before = counts(populated)
    migrate(store_url(populated))
    assert counts(populated) == before


def test_a_migrated_store_differs_in_nothing_from_the_models(populated: str) -> None:
    engine = writing_engine(store_url(populated))
    with engine.connect() as connection:
        options = {"version_table": SCHEMA_TABLE, "compare_type": True, "target_metadata": Base.metadata}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


@pytest.mark.parametrize("create", [True, False])
def test_a_server_without_tables_is_refused_with_the_command_that_makes_them(
    empty_database: str, create: bool
) -> None:
    with pytest.raises(JournalError, match="kvledger db upgrade postgresql"):
        Journal.open(empty_database, create=create)
    assert stored_revision(store_url(empty_database)) is None


@pytest.mark.parametrize(
    ("revision", "error", "sentence"),
    [("9999", JournalFormatError, "newer version"), (None, JournalError, "kvledger db upgrade")],
)
def test_a_server_of_another_schema_is_refused_and_stays_as_it_is(
    postgresql_store: str, revision: str | None, error: type[Exception], sentence: str
) -> None:
    if revision is None:
        change(postgresql_store, f"DELETE FROM {SCHEMA_TABLE}")
    else:
        change(postgresql_store, f"UPDATE {SCHEMA_TABLE} SET version_num = '{revision}'")
    with pytest.raises(error, match=sentence):
        Journal.open(postgresql_store)
    assert stored_revision(store_url(postgresql_store)) == revision


def test_a_server_that_is_not_there_is_unavailable_and_its_password_stays_secret() -> None:
    with pytest.raises(StoreUnavailable) as caught:
        Journal.open("postgresql://someone:secret@127.0.0.1:1/run", lock_timeout_s=1)
    assert "secret" not in str(caught.value)
    assert "127.0.0.1" in str(caught.value)


def test_a_missing_file_has_no_revision_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(UnknownJournal):
        stored_revision(store_url(tmp_path / "run.db"))
    assert list(tmp_path.iterdir()) == []


def test_two_programs_can_upgrade_one_store_at_once(empty_database: str) -> None:
    code = "import sys; from kvledger.tools.cli import main; sys.exit(main(['db', 'upgrade', sys.argv[1]]))"
    running = [subprocess.Popen([sys.executable, "-c", code, empty_database]) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    assert stored_revision(store_url(empty_database)) == SCHEMA_REVISION

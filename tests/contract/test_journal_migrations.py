"""Migrations keep every row, up and down, on each kind of database; a server says when it needs them.

Beside the schemas there are the next one is planted: it changes a table that others point to. On SQLite that
means to rebuild it, and a careless rebuild takes the rows of its children along.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import URL, inspect

from kvledger.core.errors import JournalError, JournalFormatError, StoreUnavailable, UnknownJournal
from kvledger.journal import Journal
from kvledger.journal.anchor import read_anchor
from kvledger.journal.audit import audit
from kvledger.journal.database import store_url, writing_engine
from kvledger.journal.migration import demigrate, migrate, migration_config, stored_revision
from kvledger.journal.models import SCHEMA_REVISION, SCHEMA_TABLE, Base, stands_on
from kvledger.journal.replay import replay
from kvledger.journal.verify import ChainTally
from tests.support.format_1 import EXPECTED, OLD_SCHEMA, cells_of, fill_with_format_1
from tests.support.stored_events import short_story
from tests.support.stores import change, rows
from tests.support.tampering import tamper

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


def test_a_populated_store_goes_down_to_nothing_and_up_again(store: str) -> None:
    fill_with_format_1(store)
    migrate(store_url(store))
    demigrate(store_url(store), to="base")
    assert stored_revision(store_url(store)) is None
    migrate(store_url(store))
    assert counts(store) == [0, 0, 0, 0]


def as_on_the_day_they_were_made(store: str) -> None:
    """Raise unless the journals of format 1 replay, verify and audit as they did when they were made."""
    with Journal.open(store) as journal:
        for expected in EXPECTED:
            number = expected["journal"]
            reader = journal.reader(number)
            assert replay(reader.transactions()).state.digest() == expected["digest"]
            anchor, _ = read_anchor(json.dumps(expected["anchor"]))
            tally = ChainTally()
            verdict = audit(reader, chain=journal.verify(number, anchor=anchor, tally=tally))
            assert (verdict.verdict, tally.anchored, tally.proved) == ("pass", True, True)
            assert expected["counts"].items() <= verdict.counts.model_dump().items()


def test_journals_of_format_1_go_up_and_down_and_up_and_are_what_they_were(store: str) -> None:
    fill_with_format_1(store)
    before = cells_of(store)
    assert stored_revision(store_url(store)) == OLD_SCHEMA
    migrate(store_url(store))
    assert stored_revision(store_url(store)) == SCHEMA_REVISION
    assert cells_of(store) == before
    as_on_the_day_they_were_made(store)

    demigrate(store_url(store), to=OLD_SCHEMA)
    assert stored_revision(store_url(store)) == OLD_SCHEMA
    assert cells_of(store) == before

    migrate(store_url(store))
    assert cells_of(store) == before
    as_on_the_day_they_were_made(store)


def test_what_is_recorded_beside_journals_of_format_1_is_of_format_2(store: str) -> None:
    fill_with_format_1(store)
    migrate(store_url(store))
    with Journal.open(store) as journal:
        with journal.record(name="new") as recorder:
            for transaction in short_story():
                recorder.append(transaction)
        assert [info.format_version for info in journal.list()] == [1, 1, 1, 2]
        assert list(journal.verify("new")) == []
    as_on_the_day_they_were_made(store)


def test_a_store_with_a_journal_of_format_2_does_not_go_down_and_stays_as_it_is(store: str) -> None:
    fill_with_format_1(store)
    migrate(store_url(store))
    with Journal.open(store) as journal, journal.record() as recorder:
        for transaction in short_story():
            recorder.append(transaction)
    before = cells_of(store)
    with pytest.raises(JournalError, match=r"journal 4 is of format 2: .* nothing was changed"):
        demigrate(store_url(store), to=OLD_SCHEMA)
    assert stored_revision(store_url(store)) == SCHEMA_REVISION
    assert cells_of(store) == before
    with Journal.open(store) as journal:
        assert list(journal.verify(4)) == []


@pytest.mark.parametrize("how", [migrate, lambda url: demigrate(url, to=OLD_SCHEMA)], ids=["up", "down"])
def test_a_store_of_a_newer_schema_is_not_migrated(store: str, how: Callable[[URL], None]) -> None:
    migrate(store_url(store))
    change(store, f"UPDATE {SCHEMA_TABLE} SET version_num = '9999'")
    with pytest.raises(JournalFormatError, match="newer version: its schema is 9999"):
        how(store_url(store))
    with pytest.raises(JournalFormatError, match="newer version: its schema is 9999"):
        Journal.open(store)
    assert stored_revision(store_url(store)) == "9999"


def test_an_old_file_is_brought_up_to_date_by_whoever_opens_it_to_read(tmp_path: Path) -> None:
    store = str(tmp_path / "run.db")
    fill_with_format_1(store)
    with Journal.open(store, create=False) as journal:
        assert len(journal.list()) == 3
    assert stored_revision(store_url(store)) == SCHEMA_REVISION


def test_a_server_of_the_old_schema_is_refused_with_the_command_that_upgrades_it(
    postgresql_store: str,
) -> None:
    fill_with_format_1(postgresql_store)
    with pytest.raises(JournalError, match="has schema 0001, not 0003: run `kvledger db upgrade"):
        Journal.open(postgresql_store)
    assert stored_revision(store_url(postgresql_store)) == OLD_SCHEMA


BEFORE_THE_INDEX, INDEX = "0002", "ix_events_journal_id_txn"


def indexes_of_events(store: str) -> set[str | None]:
    engine = writing_engine(store_url(store))
    try:
        return {index["name"] for index in inspect(engine).get_indexes("events")}
    finally:
        engine.dispose()


def test_the_index_that_servers_need_for_pruning_comes_and_goes_with_its_revision(populated: str) -> None:
    before, on_a_server = counts(populated), not populated.startswith("sqlite")
    made = indexes_of_events(populated)
    assert (INDEX in made) == on_a_server
    demigrate(store_url(populated), to=BEFORE_THE_INDEX)
    assert stored_revision(store_url(populated)) == BEFORE_THE_INDEX
    assert indexes_of_events(populated) == made - {INDEX}
    assert counts(populated) == before
    migrate(store_url(populated))
    assert stored_revision(store_url(populated)) == SCHEMA_REVISION
    assert indexes_of_events(populated) == made
    assert counts(populated) == before
    with Journal.open(populated) as journal:
        assert [list(journal.verify(info.id)) for info in journal.list()] == [[], []]


def test_a_file_whose_tables_are_the_newest_is_used_as_it_is_and_a_server_is_to_be_upgraded(
    populated: str,
) -> None:
    url = store_url(populated)
    demigrate(url, to=BEFORE_THE_INDEX)
    if not populated.startswith("sqlite"):
        with pytest.raises(JournalError, match="has schema 0002, not 0003: run `kvledger db upgrade"):
            Journal.open(populated)
        return
    before = Path(url.database or "").read_bytes()
    with Journal.open(populated) as journal:
        assert list(journal.verify()) == []
        assert Path(url.database or "").read_bytes() == before
        with journal.record(name="c") as recorder:
            recorder.append(short_story()[0])
        assert [info.name for info in journal.list()] == ["a", "b", "c"]
    assert stored_revision(url) == BEFORE_THE_INDEX


def test_upgrading_a_store_that_is_up_to_date_changes_nothing(populated: str) -> None:
    before = counts(populated)
    migrate(store_url(populated))
    assert counts(populated) == before


def test_a_migrated_store_differs_in_nothing_from_the_models(populated: str) -> None:
    engine = writing_engine(store_url(populated))
    with engine.connect() as connection:
        options = {
            "version_table": SCHEMA_TABLE,
            "compare_type": True,
            "target_metadata": Base.metadata,
            "include_object": stands_on(connection.dialect.name),
        }
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


@pytest.mark.parametrize(
    ("cells", "table"),
    [
        ("transactions SET duration_us = 0 WHERE number = 4", "transactions"),
        ("transactions SET checkpoint_seq = 1, checkpoint_hash = hash WHERE number = 4", "transactions"),
        ("checkpoints SET previous_seq = 1, previous_hash = hash", "checkpoints"),
    ],
)
def test_cells_of_format_2_in_a_journal_of_format_1_are_a_break(store: str, cells: str, table: str) -> None:
    fill_with_format_1(store)
    migrate(store_url(store))
    where = "AND" if "WHERE" in cells else "WHERE"
    newest = rows(store, "SELECT max(seq) FROM checkpoints WHERE journal_id = 1")[0][0]
    only = f" AND seq = {newest}" if table == "checkpoints" else ""
    tamper(store, f"UPDATE {cells} {where} journal_id = 1{only}")
    with Journal.open(store) as journal:
        (found,) = journal.verify(1)
        assert (found.table, found.invariant) == (table, "chain")
        assert list(journal.verify(2)) == []

"""The migrations make exactly what the models declare, in an empty store and around existing rows."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from hypothesis import given
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from kvledger.core.errors import JournalFormatError
from kvledger.core.events import EVENTS, FingerprintReason, KvFingerprinted, NodeCreated, Origin
from kvledger.core.ids import NodeId, RequestId, Seq
from kvledger.journal import Journal, StoredEvent
from kvledger.journal.database import store_url, writing_engine
from kvledger.journal.migration import migration_config
from kvledger.journal.models import SCHEMA_REVISION, SCHEMA_TABLE, Base, stands_on
from kvledger.journal.schema import EVENT_VIEW, EVENT_VIEWS, view_event, view_stored
from tests.support.stored_events import any_events, pages, seeded, short_story, sums


def fill(path: Path) -> None:
    with Journal.open(path) as journal, journal.record() as recorder:
        for transaction in short_story():
            recorder.append(transaction)


def table_sql(path: Path) -> set[str]:
    """What SQLite keeps as the definition of each table and index, blanks aside."""
    connection = sqlite3.connect(path)
    found = connection.execute(
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND tbl_name != ?", (SCHEMA_TABLE,)
    )
    definitions = {" ".join(sql.split()) for (sql,) in found}
    connection.close()
    return definitions


@pytest.mark.parametrize("populated", [False, True])
def test_a_migrated_store_differs_in_nothing_from_the_models(tmp_path: Path, populated: bool) -> None:
    path = tmp_path / "run.db"
    Journal.open(path).close()
    if populated:
        fill(path)
    engine = writing_engine(store_url(path))
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "version_table": SCHEMA_TABLE,
                "compare_type": True,
                "target_metadata": Base.metadata,
                "include_object": stands_on(connection.dialect.name),
            },
        )
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def test_a_migrated_store_has_the_keys_checks_and_partial_indexes_of_the_models(tmp_path: Path) -> None:
    Journal.open(tmp_path / "migrated.db").close()
    engine = sa.create_engine(store_url(tmp_path / "declared.db"))
    Base.metadata.create_all(engine)
    engine.dispose()
    assert table_sql(tmp_path / "migrated.db") == table_sql(tmp_path / "declared.db")


def test_the_models_name_the_newest_revision() -> None:
    assert ScriptDirectory.from_config(migration_config()).get_current_head() == SCHEMA_REVISION


def test_a_store_can_go_down_and_up_again(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    Journal.open(path).close()
    made = table_sql(path)
    engine = writing_engine(store_url(path))
    with engine.begin() as connection:
        config = migration_config()
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    engine.dispose()
    assert table_sql(path) == set()
    fill(path)
    assert table_sql(path) == made


def test_opening_a_store_again_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    fill(path)
    before = path.read_bytes()
    Journal.open(path).close()
    assert path.read_bytes() == before


def test_a_store_of_a_newer_version_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    fill(path)
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE {SCHEMA_TABLE} SET version_num = '9999'")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(JournalFormatError, match="newer version"):
        Journal.open(path)
    assert path.read_bytes() == before


def test_the_tables_can_be_declared_on_postgresql_too() -> None:
    dialect = postgresql.dialect()
    for table in Base.metadata.sorted_tables:
        assert "STRICT" not in str(CreateTable(table).compile(dialect=dialect))
        for index in table.indexes:
            assert str(CreateIndex(index).compile(dialect=dialect))


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO transactions SELECT journal_id, 70, op, request_id, status, reason, time_us, first_seq, "
        "event_count, previous_hash, hash, NULL, NULL, NULL FROM transactions WHERE number = 2",
        "UPDATE transactions SET checkpoint_seq = 3",
        "UPDATE transactions SET checkpoint_hash = x'00'",
        "UPDATE transactions SET number = 1 WHERE number = 2",
        "UPDATE events SET seq = 1 WHERE seq = 2",
        "UPDATE events SET undone = 2",
        "UPDATE transactions SET status = 'lost'",
        "UPDATE events SET payload = x'00'",
        "UPDATE events SET seq = 'three' WHERE seq = 3",
        "INSERT INTO journals SELECT id + 1, epoch, name, config, token_policy, 1, 0 FROM journals",
    ],
)
def test_what_must_not_be_is_refused_by_the_tables_themselves(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "run.db"
    fill(path)
    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute(statement)
    connection.close()


LEAF = NodeCreated(
    NodeId(7), None, "tenant", 0, b"\x05\x00\x00\x00\x06\x00\x00\x00", pages([4, 5, 9]), None, 1,
    Origin(RequestId("r1"), 2), None,
)  # fmt: skip


def shown(**how: Any) -> Any:
    return view_stored(StoredEvent(Seq(3), False, LEAF), **how)


def test_a_document_shows_pages_as_ranges_and_hides_tokens_and_namespace() -> None:
    document = shown()
    assert (document["seq"], document["undone"]) == (3, False)
    event = document["event"]
    assert (event["kind"], event["namespace"]) == ("node_created", None)
    assert event["tokens"] == {"count": 2, "values": None, "hash": None}
    assert event["full_pages"] == {"count": 3, "ranges": [[4, 6], [9, 10]], "values": None}
    assert event["full_origin"] == {"request_id": "r1", "epoch": 2}


def test_a_document_shows_tokens_namespace_and_values_when_asked() -> None:
    event = shown(reveal=True, arrays="values")["event"]
    assert event["namespace"] == "tenant"
    assert event["tokens"] == {"count": 2, "values": [5, 6], "hash": None}
    assert event["full_pages"] == {"count": 3, "ranges": None, "values": [4, 5, 9]}


@pytest.mark.parametrize(
    ("policy", "reveal", "shown"), [("full", False, False), ("full", True, True), ("hash", False, True)]
)
def test_a_document_hides_checksums_of_kv_where_they_could_confirm_a_guess(
    policy: Any, reveal: bool, shown: bool
) -> None:
    event = KvFingerprinted(NodeId(1), FingerprintReason.LOCKED, pages([4]), sums(2**63), None)
    document = view_event(event, reveal=reveal, policy=policy).model_dump(mode="json")
    assert document["full_sums"] == {"count": 1, "values": ["8000000000000000"] if shown else None}
    assert document["swa_sums"] is None


@seeded
@given(any_events())
def test_every_event_has_a_document_that_its_schema_accepts(event: Any) -> None:
    document = view_event(event, reveal=True)
    again = EVENT_VIEW.validate_json(document.model_dump_json())
    assert again == document


def test_the_documents_are_told_apart_by_kind() -> None:
    assert EVENT_VIEWS.keys() == EVENTS.keys()
    assert EVENT_VIEW.json_schema()["discriminator"]["propertyName"] == "kind"

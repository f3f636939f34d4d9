"""Whatever is done to stored rows behind the journal's back, verification names the first bad row."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvledger.journal import ChainBreak, ChainHead, Journal
from kvledger.journal.chain import CheckpointName, Owner, checkpoint_hash, genesis_hash, transaction_hash
from kvledger.journal.verify import BATCH_TRANSACTIONS
from tests.support.stored_events import allocated, record, short_story

Tamper = Callable[[sqlite3.Connection], object]


def tampered(folder: Path, tamper: Tamper, *, anchor: ChainHead | None = None) -> list[ChainBreak]:
    """Record the short story, let `tamper` at the file, and verify."""
    path = folder / "run.db"
    with Journal.open(path) as journal:
        with journal.record(name="rank0") as recorder:
            for transaction in short_story():
                recorder.begin_transaction()
                recorder.append(transaction)
        assert list(journal.verify(anchor=journal.reader().head())) == []
        other = sqlite3.connect(path)
        other.execute("PRAGMA ignore_check_constraints = ON")
        tamper(other)
        other.commit()
        other.close()
        return list(journal.verify(anchor=anchor))


def head_of(folder: Path) -> ChainHead:
    with Journal.open(folder / "run.db") as journal:
        return journal.reader().head()


def test_the_genesis_hash_is_that_of_docs_format() -> None:
    made = genesis_hash(format_version=1, created_us=2, epoch="e", name="ä", token_policy="full")
    assert made.hex() == "0" * 16 + "e53b311341b4c67153f329006922976fd4ab6d8cb7aecdc513060b5dddaccbfe"


NOTHING_LATER = (None, None, None)


@pytest.mark.parametrize(
    ("format_version", "later", "expected"),
    [
        (1, NOTHING_LATER, "9a08eb2143bd56e9bc9a11a8d554b7575919dc52d23fcc60292b8f3e1feef810"),
        (2, NOTHING_LATER, "c49ca6adce3cbd3eb9f35d442f341ebd43bf9a8d6bb44f08e957ca4241b95a4e"),
        (2, (0, None, None), "9835ce193bb8402d5fdc513ce3d2fc1ac9314d80b742b32d37553d43a8326736"),
        (2, (9, 4, bytes(range(32))), "c7599b54940af4deffc99b7124b6121458556b21c1a097bc7c80c423ad3cdaf0"),
    ],
)
def test_the_hash_of_a_transaction_is_that_of_docs_format(
    format_version: int, later: tuple[Any, Any, Any], expected: str
) -> None:
    events = [
        (1, 1, b"evicted", 1, None, None, 0, b"{}", b""),
        (2, 1, b"node_split", 1, 5, b"r1", 1, b"{}", b"\x01"),
    ]
    cells = (1, b"op", None, b"committed", b"", 7, 1, 2, *later)
    made = transaction_hash(bytes(40), cells, events, format_version=format_version)
    assert made.hex() == f"{1:016x}{expected}"


@pytest.mark.parametrize(
    ("format_version", "config", "previous", "expected"),
    [
        (1, None, None, "c33a6bc50c3f0e6f76211d4f650a337071b5eb55fa6cae2c6a324be98542f7bf"),
        (1, b"{}", None, "c33a6bc50c3f0e6f76211d4f650a337071b5eb55fa6cae2c6a324be98542f7bf"),
        (2, None, None, "f2b764b15e3f23690bbe4ec46f0b281f10849137c3c0c12eeaa3b96a191258c3"),
        (2, b"{}", None, "01eae4fcb4edbef395d884508996872b76faf8d8cbc108cb7f525894f89c3b6a"),
        (
            2,
            b"{}",
            CheckpointName(3, bytes(range(32))),
            "1187dbc16250aa1741b65b40e5c4074c7ae33f70c612424a2040640967147136",
        ),
    ],
)
def test_the_hash_of_a_checkpoint_is_that_of_docs_format(
    format_version: int, config: bytes | None, previous: CheckpointName | None, expected: str
) -> None:
    made = checkpoint_hash(
        Owner(format_version, "e", b"g", config),
        seq=9,
        number=4,
        chain_hash=bytes(40),
        digest=b"d",
        state=b"s",
        previous=previous,
    )
    assert made.hex() == expected


@pytest.mark.parametrize("later", [(0, None, None), (None, 4, bytes(32)), (None, None, b"")])
def test_cells_that_came_later_have_no_hash_in_format_1(later: tuple[Any, Any, Any]) -> None:
    with pytest.raises(TypeError):
        transaction_hash(
            bytes(40), (1, b"op", None, b"committed", b"", 7, 1, 0, *later), [], format_version=1
        )


# Row 2 of transactions holds seqs 2 and 3; seq 4 and 5 are undone, in transaction 4; seq 6 has a node.
CHANGED_CELLS = [
    ("journals", "epoch", "'0' || substr(epoch, 2) || 'x'", "1", 1),
    ("journals", "name", "'rank1'", "1", 1),
    ("journals", "config", "replace(config, '1', '2')", "1", None),
    ("journals", "config", "NULL", "1", None),
    ("journals", "token_policy", "'hash'", "1", 1),
    ("journals", "created_us", "created_us + 1", "1", 1),
    ("journals", "id", "id + 1", "1", None),
    ("transactions", "number", "70", "number = 2", 2),
    ("transactions", "op", "'extenD'", "number = 2", 2),
    ("transactions", "op", "op || x'ff'", "number = 2", 2),
    ("transactions", "request_id", "'r2'", "number = 2", 2),
    ("transactions", "request_id", "NULL", "number = 2", 2),
    ("transactions", "request_id", "''", "number = 3", 3),
    ("transactions", "status", "'committed'", "number = 4", 4),
    ("transactions", "reason", "'refuseD'", "number = 4", 4),
    ("transactions", "time_us", "time_us + 1", "number = 2", 2),
    ("transactions", "first_seq", "first_seq + 1", "number = 2", 2),
    ("transactions", "duration_us", "COALESCE(duration_us, 0) + 1", "number = 2", 2),
    ("transactions", "duration_us", "NULL", "number = 3", 3),
    ("transactions", "checkpoint_seq", "1", "number = 2", 2),
    ("transactions", "checkpoint_hash", "zeroblob(32)", "number = 2", 2),
    ("journals", "format_version", "1", "1", None),
    ("journals", "format_version", "1002", "1", 1),
    ("transactions", "event_count", "event_count - 1", "number = 2", 2),
    ("transactions", "event_count", "event_count + 1", "number = 2", 2),
    ("transactions", "event_count", "-1", "number = 2", 2),
    ("transactions", "previous_hash", "zeroblob(32)", "number = 2", 2),
    ("transactions", "hash", "zeroblob(32)", "number = 2", 2),
    ("transactions", "journal_id", "9", "number = 2", 2),
    ("events", "seq", "70", "seq = 3", 2),
    ("events", "txn", "1", "seq = 3", 2),
    ("events", "kind", "'pages_freed'", "seq = 3", 2),
    ("events", "version", "2", "seq = 3", 2),
    ("events", "version", "1 << 40", "seq = 3", 2),
    ("events", "node", "3", "seq = 3", 2),
    ("events", "node", "NULL", "seq = 6", 5),
    ("events", "request_id", "'r2'", "seq = 3", 2),
    ("events", "request_id", "NULL", "seq = 3", 2),
    ("events", "undone", "1", "seq = 3", 2),
    ("events", "undone", "2", "seq = 4", 4),
    ("events", "payload", "payload || ' '", "seq = 3", 2),
    ("events", "payload", "replace(payload, 'r1', 'r2')", "seq = 3", 2),
    ("events", "blob", "x'0800000007000000'", "seq = 3", 2),
    ("events", "blob", "x''", "seq = 3", 2),
    ("events", "journal_id", "9", "seq = 3", 2),
]


@pytest.mark.parametrize(("table", "column", "value", "where", "number"), CHANGED_CELLS)
def test_a_changed_cell_is_found_in_every_column_of_every_table(
    tmp_path: Path, table: str, column: str, value: str, where: str, number: int | None
) -> None:
    breaks = tampered(tmp_path, lambda db: db.execute(f"UPDATE {table} SET {column} = {value} WHERE {where}"))
    assert breaks[0].number == number
    assert breaks[0].sentence


def test_every_column_that_verification_covers_is_changed_by_some_case(tmp_path: Path) -> None:
    tampered(tmp_path, lambda db: None)
    db = sqlite3.connect(tmp_path / "run.db")
    covered = {(table, column) for table, column, *_ in CHANGED_CELLS}
    for table in ("journals", "transactions", "events"):
        for column in db.execute(f"SELECT name FROM pragma_table_info('{table}')").fetchall():
            assert (table, column[0]) in covered
    db.close()


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_a_removed_transaction_is_missing(tmp_path: Path, number: int) -> None:
    first, *rest = tampered(
        tmp_path, lambda db: db.execute(f"DELETE FROM transactions WHERE number = {number}")
    )
    assert (first.invariant, first.table, first.number) == ("sequence", "transactions", number)
    assert rest == []


def test_a_transaction_removed_with_its_events_is_missing(tmp_path: Path) -> None:
    def remove(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM transactions WHERE number = 2")
        db.execute("DELETE FROM events WHERE txn = 2")

    breaks = tampered(tmp_path, remove)
    assert [(one.invariant, one.number, one.seq) for one in breaks] == [("sequence", 2, 2)]


@pytest.mark.parametrize(("seq", "number"), [(1, 1), (3, 2), (4, 4), (8, 6)])
def test_a_removed_event_is_missing(tmp_path: Path, seq: int, number: int) -> None:
    (found,) = tampered(tmp_path, lambda db: db.execute(f"DELETE FROM events WHERE seq = {seq}"))
    assert (found.invariant, found.table, found.number, found.seq) == ("sequence", "events", number, seq)


def _swap(db: sqlite3.Connection, table: str, key: str, one: int, other: int) -> None:
    for old, new in ((one, -1), (other, one), (-1, other)):
        db.execute(f"UPDATE {table} SET {key} = {new} WHERE {key} = {old}")


def test_swapped_events_are_found(tmp_path: Path) -> None:
    (found,) = tampered(tmp_path, lambda db: _swap(db, "events", "seq", 2, 3))
    assert (found.invariant, found.table, found.number) == ("chain", "transactions", 2)


def test_swapped_transactions_are_found(tmp_path: Path) -> None:
    breaks = tampered(tmp_path, lambda db: _swap(db, "transactions", "number", 2, 5))
    assert breaks[0].number == 2


@pytest.mark.parametrize(("seq", "txn"), [(0, 1), (-5, 1), (9, 6), (70, 3)])
def test_an_inserted_event_is_found(tmp_path: Path, seq: int, txn: int) -> None:
    copy = (
        f"INSERT INTO events SELECT journal_id, {seq}, {txn}, kind, version, node, request_id, undone, "
        f"payload, blob FROM events WHERE seq = 1"
    )
    (found,) = tampered(tmp_path, lambda db: db.execute(copy))
    assert (found.invariant, found.table, found.seq) == ("sequence", "events", seq)


@pytest.mark.parametrize("number", [0, -3, 7, 9])
def test_an_inserted_transaction_is_found(tmp_path: Path, number: int) -> None:
    copy = (
        f"INSERT INTO transactions SELECT journal_id, {number}, op, request_id, status, reason, time_us, "
        f"first_seq, 0, x'0102', hash, NULL, NULL, NULL FROM transactions WHERE number = 3"
    )
    breaks = tampered(tmp_path, lambda db: db.execute(copy))
    assert breaks[0].number == (number if number < 9 else 7)
    assert breaks[0].table == "transactions"


@pytest.mark.parametrize("change", ["hash = zeroblob(32)", "previous_hash = zeroblob(32)", "op = 'other'"])
def test_a_changed_link_is_reported_once(tmp_path: Path, change: str) -> None:
    (found,) = tampered(tmp_path, lambda db: db.execute(f"UPDATE transactions SET {change} WHERE number = 3"))
    assert (found.invariant, found.table, found.number) == ("chain", "transactions", 3)


def test_a_changed_row_is_reported_once_and_what_follows_is_still_checked(tmp_path: Path) -> None:
    breaks = tampered(
        tmp_path, lambda db: db.execute("UPDATE events SET undone = 1 - undone WHERE seq IN (3, 6)")
    )
    assert [one.number for one in breaks] == [2, 5]


def test_rows_whose_journal_is_gone_are_found(tmp_path: Path) -> None:
    def orphan(db: sqlite3.Connection) -> None:
        db.execute("UPDATE events SET journal_id = 9 WHERE seq = 8")
        db.execute("DELETE FROM transactions WHERE number = 6")

    breaks = tampered(tmp_path, orphan)
    assert [(one.table, one.number) for one in breaks] == [("journals", None)]


def _cut(db: sqlite3.Connection) -> None:
    db.execute("DELETE FROM events WHERE txn = 6")
    db.execute("DELETE FROM transactions WHERE number = 6")


def test_a_cut_tail_shows_only_against_an_anchor(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert tampered(tmp_path / "a", _cut) == []
    tampered(tmp_path / "b", lambda db: None)
    anchor = head_of(tmp_path / "b")
    db = sqlite3.connect(tmp_path / "b" / "run.db")
    _cut(db)
    db.commit()
    db.close()
    with Journal.open(tmp_path / "b" / "run.db") as journal:
        (found,) = journal.verify(anchor=anchor)
    assert (found.invariant, found.number) == ("chain", 6)
    assert "cut" in found.sentence


def test_an_anchor_with_another_hash_or_of_another_journal_is_a_break(tmp_path: Path) -> None:
    tampered(tmp_path, lambda db: None)
    head = head_of(tmp_path)
    with Journal.open(tmp_path / "run.db") as journal:
        other_hash = ChainHead(head.epoch, head.number, head.seq, bytes(32))
        assert [one.number for one in journal.verify(anchor=other_hash)] == [6]
        other_epoch = ChainHead("another", head.number, head.seq, head.hash)
        assert [one.table for one in journal.verify(anchor=other_epoch)] == ["journals"]


def test_a_journal_longer_than_a_batch_verifies_and_its_last_row_too(tmp_path: Path) -> None:
    count = BATCH_TRANSACTIONS + 3
    with Journal.open(tmp_path / "run.db") as journal:
        with journal.record() as recorder:
            for number in range(1, count + 1):
                recorder.append(record(allocated("r", number)))
        assert list(journal.verify(anchor=journal.reader().head())) == []
        db = sqlite3.connect(tmp_path / "run.db")
        db.execute("UPDATE events SET blob = x'0900000009000000' WHERE seq = ?", (count,))
        db.commit()
        db.close()
        assert [one.number for one in journal.verify()] == [count]

"""On every kind of store: whatever is done to its rows is found, and the first bad row is named."""

import json
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from kvledger.core.errors import InvalidArgument
from kvledger.journal import ChainBreak, ChainHead, Journal
from kvledger.journal.anchor import is_signed_by, new_key, read_anchor, write_anchor
from kvledger.journal.chain import Anchor, CheckpointName
from kvledger.journal.database import store_url, writing_engine
from kvledger.journal.models import Base
from kvledger.journal.rows import RowWriter, Submission
from kvledger.journal.verify import ChainTally
from tests.support.stored_events import allocated, opened, record
from tests.support.tampering import record_small_life, tamper

TABLES = ("journals", "transactions", "events", "checkpoints")
ROW = {"journals": "id = 1", "transactions": "number = 4", "events": "seq = 9", "checkpoints": "seq = {seq}"}


def breaks_in(
    url: str, *, anchor: ChainHead | None = None, tally: ChainTally | None = None
) -> list[ChainBreak]:
    with Journal.open(url) as journal:
        return list(journal.verify(anchor=anchor, tally=tally))


def head_of(url: str) -> ChainHead:
    with Journal.open(url) as journal:
        return journal.reader().head()


def facts_of(url: str, seq: int) -> tuple[int, int]:
    """The number of the transaction that holds `seq`, and the seq of the first checkpoint."""
    with Journal.open(url) as journal:
        reader = journal.reader()
        number = next(t.number for t in reader.transactions() if t.first_seq <= seq <= t.last_seq)
        return int(number), int(reader.checkpoint_seqs()[0])


def drop_checks(url: str, table: str) -> None:
    """Let a server's table take half a pair of cells; on SQLite `tamper` sees to that."""
    if url.startswith("postgresql"):
        for check in ("transactions_checkpoint", "checkpoints_previous"):
            tamper(url, f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS ck_{check}")


def changed(column: Any) -> str:
    """Another value for a cell, that its column can hold."""
    if column.name == "status":
        return "CASE status WHEN 'committed' THEN 'rolled_back' ELSE 'committed' END"
    if column.name == "undone":
        return "1 - undone"
    if isinstance(column.type, sa.LargeBinary):
        return "{zeros}"
    if isinstance(column.type, sa.Text):
        return f"COALESCE({column.name}, '') || 'x'"
    return f"COALESCE({column.name}, 0) + 1000"


def test_an_untouched_journal_verifies_with_its_anchor(store: str) -> None:
    record_small_life(store)
    tally = ChainTally()
    assert breaks_in(store, anchor=head_of(store), tally=tally) == []
    assert tally.anchored
    assert tally.checkpoints >= 2
    assert (tally.events, tally.head) == (head_of(store).seq, head_of(store))


@pytest.mark.parametrize("table", TABLES)
def test_a_changed_cell_is_found_in_every_column_of_every_table(store: str, table: str) -> None:
    record_small_life(store)
    number, checkpoint = facts_of(store, 9)
    where = ROW[table].format(seq=checkpoint)
    tamper(store, f"CREATE TABLE kept AS SELECT * FROM {table}")
    drop_checks(store, table)
    for column in Base.metadata.tables[table].columns:
        name = column.name
        tamper(store, f"UPDATE {table} SET {name} = {changed(column)} WHERE {where}")
        found = breaks_in(store)[0]
        if table == "events":
            assert found.number == number, name
        elif table == "transactions":
            assert found.number == 4, name
        elif table == "checkpoints" and name != "journal_id":
            assert found.table == "checkpoints", name
            assert found.seq == (checkpoint if name != "seq" else checkpoint + 1000), name
        else:
            assert found.table == "journals", name
        tamper(store, f"DELETE FROM {table}", f"INSERT INTO {table} SELECT * FROM kept")
    assert breaks_in(store) == []


def test_an_event_that_contradicts_itself_is_named(store: str) -> None:
    record_small_life(store)
    number, _ = facts_of(store, 9)
    tamper(store, "UPDATE events SET payload = payload || ' ' WHERE seq = 9")
    (found,) = breaks_in(store)
    assert (found.invariant, found.table, found.number, found.seq) == ("chain", "events", number, 9)


@pytest.mark.parametrize(
    ("statements", "table", "number"),
    [
        (["DELETE FROM transactions WHERE number = 4"], "transactions", 4),
        (["DELETE FROM events WHERE seq = 9"], "events", None),
        (
            ["DELETE FROM events WHERE txn = 4", "DELETE FROM transactions WHERE number = 4"],
            "transactions",
            4,
        ),
    ],
    ids=["transaction", "event", "both"],
)
def test_a_removed_row_is_named(store: str, statements: list[str], table: str, number: int | None) -> None:
    record_small_life(store)
    expected = facts_of(store, 9)[0] if number is None else number
    tamper(store, *statements)
    found = breaks_in(store)[0]
    assert (found.invariant, found.table, found.number) == ("sequence", table, expected)


def test_swapped_rows_are_found(store: str) -> None:
    record_small_life(store)
    swaps = [
        f"UPDATE transactions SET number = {new} WHERE number = {old}"
        for old, new in ((4, -1), (5, 4), (-1, 5))
    ]
    tamper(store, *swaps)
    assert breaks_in(store)[0].number == 4


def test_an_inserted_row_is_found(store: str) -> None:
    record_small_life(store)
    end = head_of(store)
    tamper(
        store,
        f"INSERT INTO events SELECT journal_id, {end.seq + 1}, {end.number + 1}, kind, version, node, "
        f"request_id, undone, payload, blob FROM events WHERE seq = 9",
    )
    (found,) = breaks_in(store)
    assert (found.invariant, found.table, found.seq) == ("sequence", "events", end.seq + 1)
    tamper(
        store,
        f"INSERT INTO transactions SELECT journal_id, {end.number + 1}, op, request_id, status, reason, "
        f"time_us, {end.seq + 1}, 1, {{zeros}}, hash, NULL, NULL, NULL FROM transactions WHERE number = 4",
    )
    assert breaks_in(store)[0].number == end.number + 1


def test_a_checkpoint_of_another_place_is_found_although_its_own_hash_fits(store: str) -> None:
    record_small_life(store)
    tamper(
        store, "UPDATE transactions SET hash = {zeros} WHERE number = (SELECT min(number) FROM checkpoints)"
    )
    assert "checkpoints" in {found.table for found in breaks_in(store)}


def test_a_cut_tail_shows_only_against_an_anchor(store: str) -> None:
    record_small_life(store)
    anchor = head_of(store)
    tamper(
        store,
        f"DELETE FROM checkpoints WHERE number >= {anchor.number}",
        f"DELETE FROM events WHERE txn = {anchor.number}",
        f"DELETE FROM transactions WHERE number = {anchor.number}",
    )
    assert breaks_in(store) == []
    (found,) = breaks_in(store, anchor=anchor)
    assert (found.table, found.number) == ("transactions", anchor.number)
    assert "cut" in found.sentence


def test_a_replaced_journal_is_of_another_epoch(store: str) -> None:
    record_small_life(store)
    anchor = head_of(store)
    tamper(store, *[f"DELETE FROM {table}" for table in reversed(TABLES)])
    record_small_life(store)
    (found,) = breaks_in(store, anchor=anchor)
    assert (found.table, found.number) == ("journals", None)
    assert "replaced" in found.sentence


def test_a_journal_rewritten_under_the_same_epoch_has_another_hash_than_the_anchor(store: str) -> None:
    record_small_life(store)
    head = head_of(store)
    forged = ChainHead(head.epoch, 4, facts_of(store, 9)[0], bytes(40))
    assert [found.number for found in breaks_in(store, anchor=forged)] == [4]


KEPT = CheckpointName(40, bytes(range(32)))
WITH_ONE = Anchor("epoch", 7, 42, bytes(range(40)), KEPT)
WITH_NONE = replace(WITH_ONE, checkpoint=None)
OLD = replace(WITH_NONE, version=1)


@pytest.mark.parametrize("anchor", [WITH_ONE, WITH_NONE, OLD])
def test_an_anchor_says_what_it_was_made_of(anchor: Anchor) -> None:
    assert read_anchor(write_anchor(anchor)) == (anchor, None)


@pytest.mark.parametrize("anchor", [WITH_ONE, WITH_NONE, OLD])
def test_a_signature_is_only_of_its_anchor_and_key(anchor: Anchor) -> None:
    private, public = new_key()
    _, other = new_key()
    read, signature = read_anchor(write_anchor(anchor, private_key=private))
    assert is_signed_by(read, signature, public_key=public)
    assert not is_signed_by(read, signature, public_key=other)
    assert not is_signed_by(read, None, public_key=public)
    changes: list[dict[str, Any]] = [
        {"epoch": "epocH"},
        {"number": 8},
        {"seq": 41},
        {"hash": bytes(40)},
        {"version": 3 - anchor.version},
    ]
    if anchor.version == 2:
        changes += [
            {"checkpoint": CheckpointName(41, KEPT.hash)},
            {"checkpoint": CheckpointName(40, bytes(32))},
        ]
        changes.append({"checkpoint": None if anchor.checkpoint else KEPT})
    for change in changes:
        assert not is_signed_by(replace(anchor, **change), signature, public_key=public), change


@pytest.mark.parametrize(
    ("anchor", "signature"),
    [
        (
            OLD,
            "f52beeb5655aefde2d36b1913d6f7035b5f97713301e579a50a82075c2029646"
            "d0d3e2f8204b2682a9d7830a895d206b6f731645b784135dab5d330c8e367909",
        ),
        (
            WITH_NONE,
            "361d8dd0c9da59c714a8151aba3203b5dc0ed4fcb68528b04cafc051cf7863e6"
            "dff5a626bac61e434dbb8a78382dcdee2477897d86dfbefdaaade86194677406",
        ),
        (
            WITH_ONE,
            "997f4c880ab00a1156c3178748860f9cc7a7e307d04ad176d71197695f36b8f6"
            "d3bb43830e3b75eb0ae9aa3c38f970d79c21847b00cd673febb8d191d23ecf00",
        ),
    ],
)
def test_a_signed_anchor_is_that_of_docs_format(anchor: Anchor, signature: str) -> None:
    # The key of RFC 8032, 7.1, test 1, as PKCS 8.
    private = (
        b"-----BEGIN PRIVATE KEY-----\n"
        b"MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n"
        b"-----END PRIVATE KEY-----\n"
    )
    made = json.loads(write_anchor(anchor, private_key=private))
    assert made["signature"] == signature


GOOD = json.loads(write_anchor(WITH_ONE))
GOOD_OLD = json.loads(write_anchor(OLD))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "\x00",
        "x" * 5_000,
        json.dumps({**GOOD, "anchor": 1}),
        json.dumps({**GOOD, "anchor": 3}),
        json.dumps({**GOOD, "anchor": True}),
        json.dumps({**GOOD, "anchor": "2"}),
        json.dumps({**GOOD, "checkpoint_seq": None}),
        json.dumps({**GOOD, "checkpoint_hash": None}),
        json.dumps({**GOOD, "checkpoint_seq": -1}),
        json.dumps({**GOOD, "checkpoint_hash": "00"}),
        json.dumps({**GOOD_OLD, "anchor": 2}),
        json.dumps({**GOOD_OLD, "checkpoint_seq": None, "checkpoint_hash": None}),
        json.dumps({**GOOD, "epoch": 7}),
        json.dumps({**GOOD, "epoch": "half a pair: \ud800"}),
        json.dumps({**GOOD, "seq": -1}),
        json.dumps({**GOOD, "seq": True}),
        json.dumps({**GOOD, "number": 2**63}),
        json.dumps({**GOOD, "hash": "00"}),
        json.dumps({**GOOD, "hash": 7}),
        json.dumps({**GOOD, "more": 1}),
        json.dumps({**GOOD, "signature": "zz"}),
    ],
)
def test_what_is_no_anchor_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        read_anchor(text)


@pytest.mark.parametrize("key", [b"", b"no key", new_key()[1]])
def test_a_key_that_cannot_sign_is_refused(key: bytes) -> None:
    with pytest.raises(InvalidArgument):
        write_anchor(WITH_ONE, private_key=key)


@pytest.mark.parametrize("key", [b"", b"no key", new_key()[0]])
def test_a_key_that_cannot_check_is_refused(key: bytes) -> None:
    with pytest.raises(InvalidArgument):
        is_signed_by(WITH_ONE, bytes(64), public_key=key)


def prune(url: str) -> tuple[ChainHead, ChainHead]:
    """Remove all up to the second checkpoint; the heads of the first transaction and of that checkpoint."""
    with Journal.open(url) as journal:
        reader = journal.reader()
        early = next(reader.transactions())
        cut = reader.checkpoint_before(reader.checkpoint_seqs()[1])
        epoch = reader.info.epoch
    assert cut is not None
    tamper(
        url,
        f"DELETE FROM checkpoints WHERE seq < {cut.seq}",
        f"DELETE FROM events WHERE seq <= {cut.seq}",
        f"DELETE FROM transactions WHERE number <= {cut.number}",
    )
    return (
        ChainHead(epoch, early.number, early.last_seq, early.hash),
        ChainHead(epoch, cut.number, cut.seq, cut.chain_hash),
    )


def test_a_pruned_journal_is_walked_from_the_checkpoint_that_it_begins_behind(store: str) -> None:
    record_small_life(store)
    end = head_of(store)
    early, cut = prune(store)
    for anchor in (end, cut):
        tally = ChainTally()
        assert breaks_in(store, anchor=anchor, tally=tally) == []
        assert (tally.anchored, tally.first_number) == (True, cut.number + 1)
    tally = ChainTally()
    assert breaks_in(store, anchor=early, tally=tally) == []
    assert (tally.anchored, tally.proved) == (False, False)
    tamper(store, "UPDATE checkpoints SET chain_hash = {zeros}")
    assert breaks_in(store)[0].number is not None


def test_a_journal_whose_beginning_is_gone_without_a_checkpoint_was_not_pruned(store: str) -> None:
    record_small_life(store)
    prune(store)
    tamper(store, "DELETE FROM checkpoints")
    found = breaks_in(store)[0]
    assert (found.invariant, found.number) == ("sequence", 1)


def record_gap(url: str) -> None:
    """Three transactions, of which the middle one was given up: seqs 3 and 4, named by seq 5."""
    with Journal.open(url) as journal:
        with journal.record():
            pass
        info = journal.reader().info
    writer = RowWriter(writing_engine(store_url(url)), journal_id=info.id, genesis=info.genesis)
    one = [Submission(record(opened(), allocated("r1", 1)), 7)]
    two = [Submission(record(allocated("r1", 2), allocated("r1", 3)), 8)]
    writer.store(one)
    writer.give_up(two)
    writer.store_gap(9)
    writer.store([Submission(record(allocated("r1", 4)), 10)])
    writer.close()


def test_seqs_may_skip_only_what_an_event_says_was_dropped(store: str) -> None:
    record_gap(store)
    tally = ChainTally()
    assert breaks_in(store, tally=tally) == []
    assert (tally.events, tally.events_dropped) == (4, 2)
    tamper(
        store,
        "INSERT INTO events SELECT journal_id, 3, 1, kind, version, node, request_id, undone, payload, blob "
        "FROM events WHERE seq = 2",
    )
    (stray,) = breaks_in(store)
    assert (stray.table, stray.seq) == ("events", 3)
    tamper(store, "DELETE FROM events WHERE seq = 3", "DELETE FROM events WHERE seq = 5")
    assert breaks_in(store)[0].number == 2

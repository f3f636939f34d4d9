"""Whatever is done to a stored journal, its audit fails, or says what could not be verified."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from kvledger.core.errors import JournalFormatError
from kvledger.core.events import Origin
from kvledger.core.ids import RequestId
from kvledger.journal import Journal, JournalInfo, JournalReader
from kvledger.journal.audit import audit
from kvledger.journal.audit.verdict import NOT_HERE
from kvledger.journal.records import StoredCheckpoint, UnreadableRow
from kvledger.journal.restore import decode_state
from kvledger.journal.snapshot import encode_state
from kvledger.journal.verify import _strays
from kvledger.journal.walk import ChainWalk, Link
from kvledger.tools.cli import main
from tests.support.tampering import record_small_life, tamper

HUGE = 2**63 - 1
DEEP = "replace(hex(zeroblob(50000)), '00', '[')"
NO_TEXT = "CAST(x'ff' AS TEXT)"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tampered") / "run.db"
    record_small_life(str(path))
    return path


@pytest.fixture
def database(recorded: Path, tmp_path: Path) -> str:
    """A copy of a journal of a dozen transactions that a test may change."""
    path = tmp_path / "run.db"
    path.write_bytes(recorded.read_bytes())
    return str(path)


@pytest.fixture
def reader(database: str) -> Iterator[JournalReader]:
    with Journal.open(database) as journal:
        yield journal.reader()


IN_AN_EVENT = [
    *[f"payload = {value}" for value in ("'{'", "'{}'", "'[]'", "'null'", DEEP, NO_TEXT)],
    *[f"kind = {value}" for value in ("'nonsense'", "''", NO_TEXT)],
    *[f"version = {value}" for value in (0, -1, 99, HUGE)],
    *[f"blob = {value}" for value in ("zeroblob(3)", "zeroblob(1000001)")],
]
IN_A_TRANSACTION = [
    *[f"first_seq = {value}" for value in ("first_seq + 1", 0, -1, HUGE)],
    *[f"event_count = {value}" for value in ("event_count + 1", -1, 10**12, HUGE)],
    *[f"number = {value}" for value in (-1, 0, HUGE)],
    *[f"{column} = {NO_TEXT}" for column in ("op", "request_id", "status", "reason")],
]
ROWS = [
    "DELETE FROM events WHERE seq = 9",
    "DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)",
    "DELETE FROM events",
    "DELETE FROM transactions WHERE number = 1",
    "DELETE FROM transactions WHERE number = 4",
    "DELETE FROM journals",
    "UPDATE events SET seq = seq + 100000 WHERE seq > 9",
    f"UPDATE transactions SET number = {HUGE} WHERE number = (SELECT max(number) FROM transactions)",
    f"UPDATE checkpoints SET digest = {NO_TEXT}",
    *[f"UPDATE journals SET {cell}" for cell in (f"name = {NO_TEXT}", "config = '{'", f"config = {NO_TEXT}")],
]


@pytest.mark.parametrize(
    "statement",
    [
        *[f"UPDATE events SET {change} WHERE seq = 9" for change in IN_AN_EVENT],
        *[f"UPDATE transactions SET {change} WHERE number = 4" for change in IN_A_TRANSACTION],
        *ROWS,
    ],
)
def test_rows_that_cannot_be_read_any_more_are_a_violation(
    database: str, statement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as file:
        file.execute("PRAGMA ignore_check_constraints = ON")
        file.execute(statement)
    assert (main(["audit", database]), capsys.readouterr().out[:13]) == (1, "verdict: fail")
    assert (main(["audit", database, "--chain"]), capsys.readouterr().out[:11]) == (1, "chain: fail")


def test_the_transaction_whose_event_is_missing_is_named(database: str, reader: JournalReader) -> None:
    whole = list(reader.transactions())
    seq = whole[3].last_seq
    tamper(database, f"DELETE FROM events WHERE seq = {seq}")
    read = reader.transactions()
    assert [next(read).number for _ in range(3)] == [1, 2, 3]
    with pytest.raises(UnreadableRow, match="transaction 4 holds") as error:
        next(read)
    assert (error.value.number, error.value.seq) == (4, whole[3].first_seq)


@pytest.mark.parametrize(
    ("damage", "look_up"),
    [
        (f"UPDATE events SET payload = {NO_TEXT} WHERE seq = 9", JournalReader.find),
        (f"UPDATE events SET kind = {NO_TEXT} WHERE seq = 9", JournalReader.find),
        (f"UPDATE transactions SET op = {NO_TEXT} WHERE number = 4", JournalReader.find),
        (f"UPDATE transactions SET reason = {NO_TEXT} WHERE number = 4", JournalReader.find_transactions),
    ],
)
def test_a_look_up_calls_text_that_is_none_damage_and_not_a_store_that_is_away(
    database: str, reader: JournalReader, damage: str, look_up: Callable[[JournalReader], Iterator[object]]
) -> None:
    tamper(database, damage)
    with pytest.raises(JournalFormatError, match="cannot be read"):
        list(look_up(reader))


def test_what_is_read_before_a_damaged_row_is_checked_and_the_rest_is_unverified(
    database: str, reader: JournalReader
) -> None:
    tamper(database, f"UPDATE events SET payload = {NO_TEXT} WHERE seq = 9")
    with Journal.open(database) as journal:
        verdict = audit(reader, chain=journal.verify())
    assert verdict.verdict == "fail"
    (gap,) = verdict.gaps
    assert (gap.reason, gap.first_seq, gap.last_seq) == ("unreadable", verdict.counts.events + 1, None)
    assert 0 < verdict.counts.events < 9
    assert "rows cannot be read" in verdict.render()
    assert {report.status for report in verdict.invariants} <= {"failed", "unverified", "not_checked"}


def test_rows_of_a_newer_version_in_a_sound_chain_could_not_be_audited(
    database: str, reader: JournalReader
) -> None:
    tamper(database, "UPDATE events SET version = 99 WHERE seq = 9")
    with pytest.raises(JournalFormatError, match="seq 9"):
        audit(reader, chain=())


def test_a_beginning_that_was_cut_off_by_hand_is_unverified(
    database: str, reader: JournalReader, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = reader.checkpoint_before()
    assert kept is not None
    tamper(
        database,
        f"DELETE FROM events WHERE seq <= {kept.seq}",
        f"DELETE FROM transactions WHERE number <= {kept.number}",
    )
    verdict = audit(reader, chain=())
    (gap,) = verdict.gaps
    assert (verdict.verdict, gap.first_seq, gap.last_seq) == ("unverified", 1, kept.seq)
    assert main(["audit", database]) == 1
    assert NOT_HERE in capsys.readouterr().out


def forged(kept: StoredCheckpoint, info: JournalInfo) -> StoredCheckpoint:
    """The checkpoint with other origins, its digest and hash made to fit."""
    state = decode_state(kept.state)
    for node in state.nodes.values():
        node.full_origin = Origin(RequestId("somebody else"), 1)
    made = encode_state(state)
    digest = state.digest()
    lie = replace(kept, state=made, digest=digest)
    return replace(lie, hash=info.hash_of(lie) or b"")


def test_a_forged_full_state_is_not_what_the_events_amount_to(database: str, reader: JournalReader) -> None:
    kept = reader.checkpoint_before()
    assert kept is not None
    lie = forged(kept, reader.info)
    assert lie.digest == kept.digest
    with closing(sqlite3.connect(database, isolation_level=None)) as file:
        file.execute(
            "UPDATE checkpoints SET state = ?, hash = ? WHERE seq = ?", (lie.state, lie.hash, lie.seq)
        )
    verdict = audit(reader)
    assert [(one.invariant, one.seq) for one in verdict.findings] == [("checkpoint", kept.seq)]
    assert verdict.counts.full_states_reproduced == verdict.counts.full_states - 1


def test_a_thousand_gaps_are_searched_and_an_event_in_the_last_is_found(
    database: str, reader: JournalReader
) -> None:
    walk = ChainWalk(Link(0, 0, b""), format_version=2)
    walk.gaps = [(seq, seq) for seq in range(10**6, 10**6 + 4000, 2)]
    walk.next_seq = 10**7
    copy = "journal_id, {seq}, txn, kind, version, node, request_id, undone, payload, blob"
    with reader.engine.connect() as connection:
        assert list(_strays(connection, 1, walk)) == []
    tamper(
        database, f"INSERT INTO events SELECT {copy.format(seq=walk.gaps[-1][0])} FROM events WHERE seq = 9"
    )
    with reader.engine.connect() as connection:
        (found,) = _strays(connection, 1, walk)
    assert found.seq == walk.gaps[-1][0]


def test_a_count_that_was_changed_does_not_read_the_rest_of_the_journal(
    database: str, reader: JournalReader
) -> None:
    tamper(database, f"UPDATE transactions SET event_count = {10**12} WHERE number = 4")
    read: list[str] = []
    sa.event.listen(
        reader.engine, "before_cursor_execute", lambda *call: read.append(call[2]) if call else None
    )
    with pytest.raises(UnreadableRow, match="transaction 4 holds"):
        list(reader.transactions(4))
    assert not any("events.payload" in statement for statement in read)


def test_an_empty_journal_is_no_pass_and_it_is_said_that_there_are_others(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tamper(
        database,
        "INSERT INTO journals (id, epoch, name, config, token_policy, format_version, created_us) "
        "VALUES (9, 'e', 'n', NULL, 'full', 1, 5)",
    )
    for how in ([], ["--chain"]):
        assert main(["audit", database, *how]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert "the store holds 2 journals; this is 9" in told.err
        assert "there is nothing to" in told.err
    assert main(["audit", database, "--chain", "--journal", "1"]) == 0
    assert capsys.readouterr().err == ""

"""Stored fingerprints that are undecodable, cut short or of another length: a typed error says so."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvledger.core import HybridCache
from kvledger.core.errors import JournalFormatError
from kvledger.core.events import FingerprintReason, KvFingerprinted, KvUnread
from kvledger.core.ids import NodeId
from kvledger.core.sinks import MemorySink
from kvledger.journal import Journal
from kvledger.journal.audit import audit
from kvledger.journal.codec import decode, encode
from kvledger.journal.records import UnreadableRow, number_transactions
from kvledger.journal.replay import ReplayError, replay
from tests.support.hand_written import broken, edited, first_of
from tests.support.payload_examples import FINGERPRINTED, lock_fingerprinted
from tests.support.stored_events import pages, sums
from tests.support.tampering import tamper

LOOKED = KvFingerprinted(
    NodeId(7), FingerprintReason.LOCKED, pages([5, 6, 7]), sums(1, 2**64 - 1, 3), sums(4, 5, 6)
)
UNREAD = KvUnread(NodeId(7), FingerprintReason.UNLOCKED, pages([5, 6, 7]), "RuntimeError")


def stored(event: KvFingerprinted | KvUnread = LOOKED) -> tuple[dict[str, Any], bytes]:
    cells = encode(event)
    return json.loads(cells.payload), cells.blob


def read(payload: Any, blob: bytes, kind: str = "kv_fingerprinted") -> Any:
    return decode(kind, 1, json.dumps(payload), blob)


def test_what_is_sound_is_read_as_it_was() -> None:
    found = read(*stored())
    assert found.full_sums.tolist() == [1, 2**64 - 1, 3]
    assert found.swa_sums.tolist() == [4, 5, 6]
    assert not found.full_sums.flags.writeable


@pytest.mark.parametrize("field", ["full_sums", "swa_sums"])
@pytest.mark.parametrize(
    "entry",
    [-1, 2**26 + 1, 2**63, 10**30, True, 3.0, "3", [3], [3, 0], {}],
    ids=repr,
)
def test_a_number_of_sums_that_is_none_is_refused(field: str, entry: Any) -> None:
    payload, blob = stored()
    with pytest.raises(JournalFormatError, match="kv_fingerprinted event cannot be read"):
        read(payload | {field: entry}, blob)


@pytest.mark.parametrize(("full", "swa"), [(2, 3), (4, 3), (3, 2), (3, 4), (0, 0), (None, 3)])
def test_sums_that_are_not_as_many_as_the_payload_says_are_refused(full: Any, swa: Any) -> None:
    payload, blob = stored()
    with pytest.raises(JournalFormatError, match="kv_fingerprinted event cannot be read"):
        read(payload | {"full_sums": full, "swa_sums": swa}, blob)


def test_no_sums_of_swa_are_sums_of_a_tombstone_and_leave_no_bytes_over() -> None:
    payload, blob = stored()
    with pytest.raises(JournalFormatError, match="the blob has 56 bytes, its directory names 32"):
        read(payload | {"swa_sums": None}, blob)
    assert read(payload | {"swa_sums": None}, blob[:-24]).swa_sums is None


def test_a_blob_that_is_cut_short_anywhere_is_refused() -> None:
    payload, blob = stored()
    for size in range(len(blob)):
        with pytest.raises(JournalFormatError, match="ends at byte"):
            read(payload, blob[:size])
    with pytest.raises(JournalFormatError, match="the blob has 57 bytes"):
        read(payload, blob + b"\0")


@pytest.mark.parametrize("blob", [None, "text", 7])
def test_a_blob_that_is_no_bytes_is_refused(blob: Any) -> None:
    with pytest.raises(JournalFormatError, match="no bytes"):
        read(stored()[0], blob)


@pytest.mark.parametrize(
    ("event", "field", "value"),
    [
        (LOOKED, "reason", "released"),
        (LOOKED, "reason", None),
        (LOOKED, "node", None),
        (LOOKED, "node", "7"),
        (UNREAD, "reason", "released"),
        (UNREAD, "node", 1.0),
        (UNREAD, "error", None),
        (UNREAD, "error", 3),
    ],
)
def test_a_field_of_another_type_is_refused(event: Any, field: str, value: Any) -> None:
    payload, blob = stored(event)
    with pytest.raises(JournalFormatError, match=f"a {event.kind} event"):
        read(payload | {field: value}, blob, event.kind)
    del payload[field]
    with pytest.raises(JournalFormatError, match=f"is stored without {field}"):
        read(payload, blob, event.kind)


def test_a_version_that_is_not_known_is_refused() -> None:
    payload, blob = stored()
    with pytest.raises(JournalFormatError, match="newer than version 1"):
        decode("kv_fingerprinted", 2, json.dumps(payload), blob)


# In a journal.


@pytest.fixture(name="database")
def recorded(tmp_path: Path) -> Path:
    with Journal.open(tmp_path / "run.db") as journal, journal.record(name="run") as recorder:
        lock_fingerprinted(HybridCache(FINGERPRINTED, sink=recorder))
    return tmp_path / "run.db"


@pytest.mark.parametrize(
    "change",
    [
        "blob = substr(blob, 1, length(blob) - 1)",
        "blob = CAST(blob || x'00' AS BLOB)",
        "blob = x''",
        "payload = replace(payload, '\"full_sums\":', '\"full_sums\":1')",
        "payload = replace(payload, '\"full_sums\":', '\"full_sums\":-')",
        "payload = substr(payload, 2)",
        "payload = CAST(x'FF' AS TEXT)",
        "version = 99",
    ],
)
def test_a_row_that_cannot_be_read_is_named_and_is_a_finding(change: str, database: Path) -> None:
    with Journal.open(database) as journal:
        wanted = next(one.seq for one in journal.reader().events() if isinstance(one.event, KvFingerprinted))
    tamper(f"sqlite:///{database}", f"UPDATE events SET {change} WHERE seq = {wanted}")
    with Journal.open(database) as journal:
        with pytest.raises(JournalFormatError) as raised:
            list(journal.reader().transactions())
        if isinstance(raised.value, UnreadableRow):
            assert raised.value.seq == wanted
        with pytest.raises(JournalFormatError):
            replay(journal.reader())
        verdict = audit(journal.reader(), chain=journal.verify())
    assert (verdict.verdict, "chain" in broken(verdict)) == ("fail", True)


@pytest.mark.parametrize("field", ["full_sums", "swa_sums"])
@pytest.mark.parametrize("length", [0, 1, 4])
def test_sums_that_are_not_as_many_as_the_pages_fit_no_state(field: str, length: int) -> None:
    sink = MemorySink()
    lock_fingerprinted(HybridCache(FINGERPRINTED, sink=sink))
    journal = number_transactions(sink.transactions)
    seq = next(
        stored.seq
        for one in journal
        for stored in one.events
        if isinstance(stored.event, KvFingerprinted) and len(stored.event.full_pages) == 2
    )
    wrong = edited(journal, seq, **{field: np.zeros(length, np.uint64)})
    with pytest.raises(ReplayError, match="kv_fingerprinted"):
        replay(wrong)
    assert first_of(audit(wrong), "well-formed").seq == seq

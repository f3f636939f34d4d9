"""Bytes and texts from outside: what they were made of comes out again, or they are refused.

Checkpoints' states, anchors, exported JSON lines and the cells of events, each a sound one that was changed
at some places. Files of Parquet, events and traces have corpora of their own (tests/fuzz). Some five seconds.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvledger.core.errors import InvalidArgument, JournalFormatError, UnknownJournal
from kvledger.core.events import EVENTS
from kvledger.journal import Journal
from kvledger.journal.anchor import is_signed_by, new_key, read_anchor, write_anchor
from kvledger.journal.codec import decode, encode
from kvledger.journal.export import ExportedJournal, export_journal, is_exported, verify_exported
from kvledger.journal.export.jsonl import JsonLinesReader
from kvledger.journal.export.piece import Piece
from kvledger.journal.restore import decode_state
from kvledger.journal.snapshot import encode_state
from tests.fuzz.corpora import TELLING
from tests.property.outside_values import bounded
from tests.support.recorded_run import record_run, small_run
from tests.support.stored_events import events_of


class Made:
    """A journal's parts as bytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with Journal.open(folder / "run.db") as store:
            reader = record_run(store, small_run()[:12], name="run", flush_every=3, checkpoint_every=25)
            (self.file,) = self.export(reader)
            kept = reader.checkpoint_before()
            assert kept is not None
            self.state = kept.state
            self.anchor = reader.anchor()
        self.private, self.public = new_key()
        self.signed = write_anchor(self.anchor, private_key=self.private)
        self.lines = self.file.read_bytes()

    def export(self, reader: Any) -> list[Path]:
        export_journal(reader, self.folder / "out", form="jsonl")
        return [path for path in (self.folder / "out").iterdir() if path.suffix == ".jsonl"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("made"))


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[float, int, bytes]]:
    """Where something is cut out of a text of any length, how much, and what is put there."""
    pieces = st.sampled_from(TELLING) | st.binary(max_size=3)
    one = st.tuples(st.floats(0, 1), st.sampled_from([0, 1, 1, 2, 8]), pieces)
    return draw(st.lists(one, max_size=2))


def changed(data: bytes, edits: list[tuple[float, int, bytes]]) -> bytes:
    for place, cut, piece in edits:
        at = round(place * len(data))
        data = data[:at] + piece + data[at + cut :]
    return data


@bounded
@given(edits=changes())
def test_a_state_is_the_one_that_its_bytes_were_made_of(made: Made, edits: Any) -> None:
    data = changed(made.state, edits)
    try:
        state = decode_state(data)
    except JournalFormatError:
        assert data != made.state
        return
    assert encode_state(state) == data


@bounded
@given(edits=changes(), text=st.booleans())
def test_an_anchor_says_what_its_text_says_and_its_signature_holds_it(
    made: Made, edits: Any, text: bool
) -> None:
    data = changed(made.signed.encode(), edits)
    try:
        anchor, signature = read_anchor(data.decode() if text and data.isascii() else data)
    except InvalidArgument:
        assert data != made.signed.encode()
        return
    assert read_anchor(write_anchor(anchor)) == (anchor, None)
    assert is_signed_by(anchor, signature, public_key=made.public) == (
        anchor == made.anchor and signature == read_anchor(made.signed)[1]
    )


KEYS = st.binary(max_size=40) | st.sampled_from([b"-----BEGIN PUBLIC KEY-----\n", b"\xff", b""])


@bounded
@given(edits=changes(), other=KEYS, private=st.booleans())
def test_a_key_is_the_one_that_it_was_or_refused(made: Made, edits: Any, other: bytes, private: bool) -> None:
    key = changed(made.private if private else made.public, edits) if edits else other
    try:
        if private:
            write_anchor(made.anchor, private_key=key)
        else:
            is_signed_by(made.anchor, bytes(64), public_key=key)
    except InvalidArgument:
        assert key not in (made.private, made.public)


@bounded
@given(edits=changes())
def test_a_file_of_json_lines_is_what_was_exported_or_told_to_be_broken(made: Made, edits: Any) -> None:
    data = changed(made.lines, edits)
    path = made.folder / "changed.jsonl"
    path.write_bytes(data)
    try:
        piece = Piece(path, JsonLinesReader())
        breaks = list(piece.verify())
        cells = list(piece.cells())
        exported = ExportedJournal.open(path)
        assert len(breaks) <= len(list(verify_exported(exported)))
    except JournalFormatError as error:
        refusal = str(error)
    else:
        whole = Piece(made.file, JsonLinesReader())
        # Blanks between values and the like are the only changes that no hash knows.
        assert breaks or (cells, piece.end) == (list(whole.cells()), whole.end)
        _read_through(exported)
        return
    assert data != made.lines
    assert "changed.jsonl" in refusal


def _read_through(exported: ExportedJournal) -> None:
    """What reads a file that nobody verified."""
    try:
        for _ in exported.transactions():
            pass
        exported.checkpoint_before()
    except JournalFormatError:
        return


@bounded
@given(
    path=st.text(max_size=8)
    | st.sampled_from(["~nobody-here", "a\0b", "\ud800", "r" * 300, 4, None, b"x", ["x"], "out.jsonl"])
)
def test_a_path_that_holds_no_export_is_refused(made: Made, path: Any) -> None:
    where = str(made.folder / path) if isinstance(path, str) and path[:1] not in ("~", "/") else path
    if isinstance(where, str) and Path(where.replace("\0", "")) == made.folder:
        return
    for question in (ExportedJournal.open, is_exported):
        try:
            answer = question(where)
        except (InvalidArgument, UnknownJournal):
            continue
        assert answer is False or Path(where).exists() or Path(where).suffix in (".jsonl", ".parquet")


JUNK: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.floats()
    | st.sampled_from(["", "\ud800", "a\0b", "r" * 600]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)


@pytest.mark.parametrize("kind", sorted(EVENTS))
@bounded
@given(data=st.data())
def test_what_is_decoded_is_encoded_again_and_comes_back(kind: str, data: st.DataObject) -> None:
    stored = encode(data.draw(events_of(kind)))
    fields = json.loads(stored.payload)
    for name in data.draw(st.lists(st.sampled_from(sorted(fields)), max_size=2)):
        fields[name] = data.draw(JUNK)
    try:
        event = decode(kind, stored.version, json.dumps(fields), changed(stored.blob, data.draw(changes())))
    except JournalFormatError:
        return
    again = encode(event)
    assert encode(decode(*again[:2], *again[4:])) == again

"""Exported journals as JSON lines: the facts, one line for each transaction with its events, the end.

Text columns are JSON strings (the payload too: it is hashed as it is stored), bytes are base64. Every line is
JSON by itself, so that a journal can be read with anything.
"""

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from kvledger.core.errors import JournalError, JournalFormatError
from kvledger.journal.export.cells import SECOND_FORMAT_NAMES, EventCells, TransactionCells
from kvledger.journal.export.facts import (
    CheckpointFacts,
    PieceEnd,
    PieceFacts,
    no_name_twice,
    read_end,
    read_facts,
)

SUFFIX = ".jsonl"

MAX_LINE_BYTES = 2**30
"""Longest line that is read: a damaged file without line breaks must not be able to ask for all memory."""

TAIL_BYTES = 65_536
"""How much of a file's end is looked at first for its last line."""

_HEAD_TYPES: tuple[tuple[type, ...], ...] = (
    (int,), (str,), (str, type(None)), (str,), (str,), (int,), (int,), (int,),
)  # fmt: skip
_EVENT_TYPES: tuple[tuple[type, ...], ...] = (
    (int,), (int,), (str,), (int,), (int, type(None)), (str, type(None)), (int,), (str,), (str,),
)  # fmt: skip
_HEAD_NAMES = TransactionCells._fields[:8]
_SECOND_TYPES: tuple[tuple[type, ...], ...] = ((int, type(None)), (int, type(None)), (bytes, type(None)))


class JsonLinesWriter:
    """Writes one piece as JSON lines."""

    def __init__(self, path: Path, facts: PieceFacts) -> None:
        self._file = path.open("w", encoding="ascii", newline="\n")
        self._version = facts.kvledger_export
        self._put(facts.model_dump_json())

    def write(self, batch: Sequence[TransactionCells]) -> None:
        """A line for each transaction."""
        for cells in batch:
            line: dict[str, Any] = dict(zip(_HEAD_NAMES, cells, strict=False))
            if self._version > 1:
                line["duration_us"], line["checkpoint_seq"] = cells.duration_us, cells.checkpoint_seq
                named = cells.checkpoint_hash
                line["checkpoint_hash"] = None if named is None else _text(named)
            line["previous_hash"] = _text(cells.previous_hash)
            line["hash"] = _text(cells.hash)
            line["events"] = [[*event[:-1], _text(event.blob)] for event in cells.events]
            if cells.checkpoint is not None:
                line["checkpoint"] = CheckpointFacts.of(cells.checkpoint).model_dump(mode="json")
            self._put(json.dumps(line, separators=(",", ":")))

    def close(self, end: PieceEnd) -> None:
        """The last line."""
        self._put(end.model_dump_json())
        self._file.close()

    def abandon(self) -> None:
        """Close the file."""
        self._file.close()

    def _put(self, line: str) -> None:
        # What pydantic writes may hold any character; as escapes it is the same JSON.
        self._file.write(line if line.isascii() else json.dumps(json.loads(line)))
        self._file.write("\n")


class JsonLinesReader:
    """Reads what `JsonLinesWriter` wrote."""

    def facts(self, path: Path) -> tuple[PieceFacts, PieceEnd]:
        """The first and the last line."""
        with path.open("rb") as file:
            facts = read_facts(_line(file, path, 1), where=str(path))
            last = _last_line(file, path)
        return facts, read_end(last, where=f"the last line of {path}, which may have been cut,")

    def cells(self, path: Path, *, first: int) -> Iterator[TransactionCells]:
        """The lines between, from transaction `first` on."""
        with path.open("rb") as file:
            version = read_facts(_line(file, path, 1), where=str(path)).kvledger_export
            number = 2
            line = _line(file, path, number)
            while True:
                following = file.readline(MAX_LINE_BYTES)
                if not following:
                    return
                cells = _cells(line, f"line {number} of {path}", version)
                if cells.number >= first:
                    yield cells
                line, number = following, number + 1


def _line(file: IO[bytes], path: Path, number: int) -> bytes:
    line = file.readline(MAX_LINE_BYTES)
    if not line.endswith(b"\n"):
        raise JournalFormatError(f"line {number} of {path} was cut, or is no line of an exported journal")
    return line


def _last_line(file: IO[bytes], path: Path) -> bytes:
    size = file.seek(0, 2)
    reach = TAIL_BYTES
    while True:
        file.seek(max(0, size - reach))
        tail = file.read(reach)
        if not tail.endswith(b"\n"):
            raise JournalFormatError(f"{path} was cut: its last line has no end")
        begin = tail.rfind(b"\n", 0, -1)
        if begin >= 0 or reach >= size:
            return tail[begin + 1 :]
        reach *= 2


def _cells(line: bytes, where: str, version: int) -> TransactionCells:
    try:
        found = json.loads(line, object_pairs_hook=no_name_twice)
        checkpoint = found.pop("checkpoint", None)
        events = [_event(event) for event in found.pop("events")]
        hashes = [base64.b64decode(found.pop(name), validate=True) for name in ("previous_hash", "hash")]
        head = [found.pop(name) for name in _HEAD_NAMES]
        second = [found.pop(name) for name in SECOND_FORMAT_NAMES] if version > 1 else [None] * 3
        if second[-1] is not None:
            second[-1] = base64.b64decode(second[-1], validate=True)
        types_of = zip([*head, *second], [*_HEAD_TYPES, *_SECOND_TYPES], strict=True)
        if found or not all(type(cell) in types for cell, types in types_of):
            raise JournalFormatError(f"{where} holds {sorted(found) or head}: no transaction has that")
        kept = None if checkpoint is None else CheckpointFacts.model_validate(checkpoint).stored()
        return TransactionCells._make([*head, *second, *hashes, events, kept])
    except JournalError as error:
        raise JournalFormatError(f"{where}: {error}") from error
    except (ValueError, RecursionError, binascii.Error) as error:
        fault = "its checkpoint is none" if isinstance(error, ValidationError) else str(error)
        raise JournalFormatError(f"{where} is no JSON of a transaction: {fault}") from error
    except (TypeError, KeyError, AttributeError) as error:
        raise JournalFormatError(f"{where} is no transaction: {error!r}") from error


def _event(found: Any) -> EventCells:
    if type(found) is not list or len(found) != len(EventCells._fields):
        raise JournalFormatError(f"{found!r:.80} stands where an event's cells belong")
    if not all(type(cell) in types for cell, types in zip(found, _EVENT_TYPES, strict=True)):
        raise JournalFormatError(f"{found!r:.80} holds a cell of another type")
    return EventCells._make([*found[:-1], base64.b64decode(found[-1], validate=True)])


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()

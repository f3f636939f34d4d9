"""The reader of exported Parquet files under any file: a piece that is told as it stands, or a refusal.

An input that begins as Parquet does is the file itself. Any other is what a file is made of,
`facts\\nend\\nrows`, so that what is this project's own is reached without writing Parquet by chance: the two
texts in its metadata, and its rows as a JSON list of objects in which a character stands for a byte.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from kvledger.core.errors import JournalFormatError
from kvledger.journal.export import ExportedJournal, parquet
from kvledger.journal.export.cells import EventCells, TransactionCells
from kvledger.journal.export.facts import CheckpointFacts, JournalFacts, PieceEnd, PieceFacts
from kvledger.journal.export.parquet import END_KEY, FACTS_KEY, ParquetReader, ParquetWriter
from kvledger.journal.export.piece import Piece

MAGIC = b"PAR1"
FOLDER = tempfile.TemporaryDirectory(prefix="kvledger-fuzz-")

WORDS = {
    b'"%s":' % name.encode()
    for model in (PieceFacts, PieceEnd, JournalFacts, CheckpointFacts, TransactionCells, EventCells)
    for name in getattr(model, "model_fields", getattr(model, "_fields", ()))
}
"""What inputs are made of."""


def one(data: bytes) -> None:
    """A file whose chain is sound is written again from what was read, and reads the same."""
    path = Path(FOLDER.name, "read.parquet")
    if data.startswith(MAGIC):
        path.write_bytes(data)
    else:
        _write_parts(path, data)
    refusal = ""
    try:
        piece = Piece(path, ParquetReader())
        breaks = list(piece.verify())
        cells = list(piece.cells())
    except JournalFormatError as error:
        refusal = str(error)
    if refusal:
        assert str(path) in refusal, refusal
        return
    assert [one.number for one in piece.cells(2)] == [one.number for one in cells if one.number >= 2]
    _read_on(piece)
    for transaction in cells:
        _decode(transaction)
    if not breaks:
        _write_again(piece, cells)


def _read_on(piece: Piece) -> None:
    """What looks into a piece before anybody has verified it."""
    try:
        source = ExportedJournal([piece])
        kept = source.checkpoint_before()
        assert kept is None or kept.seq <= piece.end.last_seq or kept.seq < piece.facts.first_seq
        for _ in source.transactions():
            pass
    except JournalFormatError:
        return


def _decode(cells: TransactionCells) -> None:
    try:
        transaction = cells.decoded()
    except JournalFormatError:
        return
    assert [event.seq for event in transaction.events] == [event.seq for event in cells.events]


def _write_again(piece: Piece, cells: list[TransactionCells]) -> None:
    path = Path(FOLDER.name, "written.parquet")
    writer = ParquetWriter(path, piece.facts)
    if cells:
        writer.write(cells)
    writer.close(piece.end)
    again = Piece(path, ParquetReader())
    assert (again.facts, again.end, list(again.cells())) == (piece.facts, piece.end, cells)


def parts_of(piece: Piece) -> bytes:
    """The input that stands for what a piece is made of."""
    with pyarrow.parquet.ParquetFile(piece.path) as file:
        texts = file.metadata.metadata
        rows = file.read().to_pylist()
    told = json.dumps(rows, default=lambda data: data.decode("latin-1"), separators=(",", ":"))
    return b"\n".join([texts[FACTS_KEY.encode()], texts[END_KEY.encode()], told.encode()])


def _write_parts(path: Path, data: bytes) -> None:
    """Make the file of what stands for its parts; rows that fit no column are left out."""
    facts, end, rows = (data.split(b"\n", 2) + [b""] * 2)[:3]
    try:
        table = _table_of(json.loads(rows))
    except (
        ValueError,
        TypeError,
        ArithmeticError,
        LookupError,
        AttributeError,
        RecursionError,
        pa.ArrowException,
    ):
        table = parquet._schema(pa, 2).empty_table()
    table = table.replace_schema_metadata({FACTS_KEY: facts, END_KEY: end})
    try:
        pyarrow.parquet.write_table(table, path)
    except pa.ArrowException:  # a null where none may be
        pyarrow.parquet.write_table(table.slice(0, 0), path)


def _table_of(rows: Any) -> Any:
    schema = parquet._schema(pa, 2 if "duration_us" in rows[0] else 1)
    return pa.Table.from_pylist([_as_cells(row, schema) for row in rows], schema=schema)


def _as_cells(row: dict[str, Any], schema: Any) -> dict[str, Any]:
    return {name: _as_cell(row[name], schema.field(name).type) for name in schema.names}


def _as_cell(value: Any, kind: Any) -> Any:
    if isinstance(value, str) and pa.types.is_binary(kind):
        return value.encode("latin-1")
    if isinstance(value, list) and pa.types.is_list(kind):
        struct = kind.value_type
        return [{name: _as_cell(event[name], struct.field(name).type) for name in event} for event in value]
    return value

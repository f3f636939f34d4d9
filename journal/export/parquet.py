"""Exported journals as Parquet: one row for each transaction, its events as a list of structs in the row.

Facts and end are in the file's metadata, as the JSON texts `kvledger` and `kvledger_end`. pyarrow is an
extra of the package (`kvledger[parquet]`) and is imported only here, when a file is written or read.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kvledger.core.errors import JournalError, JournalFormatError
from kvledger.core.ids import Seq, TxnId
from kvledger.journal.export.cells import EventCells, TransactionCells
from kvledger.journal.export.facts import PieceEnd, PieceFacts, read_end, read_facts
from kvledger.journal.records import StoredCheckpoint

SUFFIX = ".parquet"
FACTS_KEY = "kvledger"
END_KEY = "kvledger_end"

READ_TRANSACTIONS = 1_024
"""Rows turned into objects at a time."""

COMPRESSION = "zstd"


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise JournalError("Parquet needs pyarrow: install kvledger[parquet]") from error
    return pyarrow, pyarrow.parquet


def _event_type(pa: Any) -> Any:
    return pa.struct(
        [
            pa.field("seq", pa.int64(), nullable=False),
            pa.field("txn", pa.int64(), nullable=False),
            pa.field("kind", pa.string(), nullable=False),
            pa.field("version", pa.int64(), nullable=False),
            pa.field("node", pa.int64()),
            pa.field("request_id", pa.string()),
            pa.field("undone", pa.int64(), nullable=False),
            pa.field("payload", pa.string(), nullable=False),
            pa.field("blob", pa.binary(), nullable=False),
        ]
    )


def _schema(pa: Any) -> Any:
    return pa.schema(
        [
            pa.field("number", pa.int64(), nullable=False),
            pa.field("op", pa.string(), nullable=False),
            pa.field("request_id", pa.string()),
            pa.field("status", pa.string(), nullable=False),
            pa.field("reason", pa.string(), nullable=False),
            pa.field("time_us", pa.int64(), nullable=False),
            pa.field("first_seq", pa.int64(), nullable=False),
            pa.field("event_count", pa.int64(), nullable=False),
            pa.field("previous_hash", pa.binary(), nullable=False),
            pa.field("hash", pa.binary(), nullable=False),
            pa.field(
                "events", pa.list_(pa.field("element", _event_type(pa), nullable=False)), nullable=False
            ),
            pa.field("checkpoint_digest", pa.string()),
            pa.field("checkpoint_state", pa.binary()),
            pa.field("checkpoint_hash", pa.binary()),
        ]
    )


class ParquetWriter:
    """Writes one piece as Parquet, a row group for each batch."""

    def __init__(self, path: Path, facts: PieceFacts) -> None:
        pa, parquet = _arrow()
        self._pa = pa
        self._schema = _schema(pa)
        schema = self._schema.with_metadata({FACTS_KEY: facts.model_dump_json()})
        self._writer = parquet.ParquetWriter(path, schema, compression=COMPRESSION)

    def write(self, batch: Sequence[TransactionCells]) -> None:
        """One row group."""
        pa, schema = self._pa, self._schema
        columns: list[Any] = [
            pa.array([cells[i] for cells in batch], schema.field(i).type) for i in range(10)
        ]
        columns.append(self._events(batch))
        kept = [cells.checkpoint for cells in batch]
        columns.append(pa.array([None if one is None else one.digest for one in kept], pa.string()))
        columns.append(pa.array([None if one is None else one.state for one in kept], pa.binary()))
        columns.append(pa.array([None if one is None else one.hash for one in kept], pa.binary()))
        self._writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=len(batch))

    def _events(self, batch: Sequence[TransactionCells]) -> Any:
        pa = self._pa
        kind = _event_type(pa)
        offsets = [0]
        for cells in batch:
            offsets.append(offsets[-1] + len(cells.events))
        columns = zip(*[event for cells in batch for event in cells.events], strict=True)
        arrays = [
            pa.array(column, kind.field(i).type)
            for i, column in enumerate(columns if offsets[-1] else [()] * kind.num_fields)
        ]
        structs = pa.StructArray.from_arrays(arrays, fields=list(kind))
        return pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), structs, type=self._schema.field("events").type
        )

    def close(self, end: PieceEnd) -> None:
        """The metadata at the end of the file."""
        self._writer.add_key_value_metadata({END_KEY: end.model_dump_json()})
        self._writer.close()

    def abandon(self) -> None:
        """Close the file."""
        self._writer.close()


class ParquetReader:
    """Reads what `ParquetWriter` wrote."""

    def facts(self, path: Path) -> tuple[PieceFacts, PieceEnd]:
        """The two texts in the metadata."""
        with _opened(path) as file:
            metadata = file.metadata.metadata or {}
            if not file.schema_arrow.equals(_schema(_arrow()[0])):
                raise JournalFormatError(f"{path} has other columns than an exported journal")
        try:
            facts, end = metadata[FACTS_KEY.encode()], metadata[END_KEY.encode()]
        except KeyError as error:
            raise JournalFormatError(f"{path} is no exported journal: it has no {error}") from error
        return read_facts(facts, where=str(path)), read_end(end, where=str(path))

    def cells(self, path: Path, *, first: int) -> Iterator[TransactionCells]:
        """The rows from transaction `first` on; row groups before it are not read."""
        pa, _ = _arrow()
        with _opened(path) as file:
            groups = [i for i in range(file.num_row_groups) if not _ends_before(file, i, first)]
            batches = file.iter_batches(batch_size=READ_TRANSACTIONS, row_groups=groups)
            while True:
                try:
                    batch = next(batches, None)
                    rows = [] if batch is None else _rows(batch)
                except (pa.ArrowException, OSError, ValueError, TypeError) as error:
                    raise _unreadable(path, error) from error
                if batch is None:
                    return
                yield from (cells for cells in rows if cells.number >= first)


def _opened(path: Path) -> Any:
    pa, parquet = _arrow()
    try:
        return parquet.ParquetFile(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> JournalFormatError:
    return JournalFormatError(f"{path} cannot be read as Parquet: {' '.join(str(error).split())}")


def _ends_before(file: Any, group: int, first: int) -> bool:
    statistics = file.metadata.row_group(group).column(0).statistics
    return statistics is not None and statistics.has_min_max and statistics.max < first


def _rows(batch: Any) -> list[TransactionCells]:
    columns = [batch.column(i).to_pylist() for i in range(10)]
    lists = batch.column(10)
    offsets = lists.offsets.to_pylist()
    base = offsets[0]
    fields = lists.flatten().flatten()
    events = [EventCells._make(row) for row in zip(*[field.to_pylist() for field in fields], strict=True)]
    digests, states, hashes = (batch.column(i).to_pylist() for i in (11, 12, 13))
    rows = []
    for i, head in enumerate(zip(*columns, strict=True)):
        kept = None
        if digests[i] is not None:
            kept = StoredCheckpoint(
                seq=Seq(head[6] + head[7] - 1),
                number=TxnId(head[0]),
                chain_hash=head[9],
                digest=digests[i],
                state=states[i] or b"",
                hash=hashes[i] or b"",
            )
        mine = events[offsets[i] - base : offsets[i + 1] - base]
        rows.append(TransactionCells._make([*head, mine, kept]))
    return rows

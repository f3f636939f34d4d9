"""Exported journals as Parquet: one row for each transaction, its events as a list of structs in the row.

Facts and end are in the file's metadata, as the JSON texts `kvledger` and `kvledger_end`. pyarrow is an
extra of the package (`kvledger[parquet]`) and is imported only here, when a file is written or read.

Which columns there are is told by the export version in the facts.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kvledger.core.errors import JournalError, JournalFormatError
from kvledger.core.ids import Seq, TxnId
from kvledger.journal.chain import CheckpointName
from kvledger.journal.export.cells import HEAD_NAMES, SECOND_FORMAT_NAMES, EventCells, TransactionCells
from kvledger.journal.export.facts import PieceEnd, PieceFacts, read_end, read_facts
from kvledger.journal.records import StoredCheckpoint

SUFFIX = ".parquet"
FACTS_KEY = "kvledger"
END_KEY = "kvledger_end"

READ_TRANSACTIONS = 1_024
"""Rows turned into objects at a time."""

COMPRESSION = "zstd"

STATISTICS_OF = "number"
"""The one column whose statistics are of use, to skip row groups: the chain does not cover statistics."""


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise JournalError(
            "Parquet needs pyarrow: pip install 'kvledger[parquet]' (JSON lines do not: --format jsonl)"
        ) from error
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


def _schema(pa: Any, version: int) -> Any:
    second = version > 1
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
            *(
                [
                    pa.field("duration_us", pa.int64()),
                    pa.field("checkpoint_seq", pa.int64()),
                    pa.field("checkpoint_hash", pa.binary()),
                ]
                if second
                else []
            ),
            pa.field("previous_hash", pa.binary(), nullable=False),
            pa.field("hash", pa.binary(), nullable=False),
            pa.field(
                "events", pa.list_(pa.field("element", _event_type(pa), nullable=False)), nullable=False
            ),
            *[pa.field(name, kind) for name, kind in _state_columns(pa, version).items()],
        ]
    )


def _head_names(version: int) -> tuple[str, ...]:
    """The columns of a transaction's own cells, in order: those of format 1 lack what came later."""
    return tuple(name for name in HEAD_NAMES if version > 1 or name not in SECOND_FORMAT_NAMES)


def _state_columns(pa: Any, version: int) -> dict[str, Any]:
    """The columns of the checkpoint that stands after a transaction; since format 2 `checkpoint_hash` is that
    of the one that the transaction names."""
    if version == 1:
        return {
            "checkpoint_digest": pa.string(),
            "checkpoint_state": pa.binary(),
            "checkpoint_hash": pa.binary(),
        }
    return {
        "state_digest": pa.string(),
        "state": pa.binary(),
        "state_hash": pa.binary(),
        "state_previous_seq": pa.int64(),
        "state_previous_hash": pa.binary(),
    }


class ParquetWriter:
    """Writes one piece as Parquet, a row group for each batch."""

    def __init__(self, path: Path, facts: PieceFacts) -> None:
        pa, parquet = _arrow()
        self._pa = pa
        self._version = facts.kvledger_export
        self._schema = _schema(pa, self._version)
        schema = self._schema.with_metadata({FACTS_KEY: facts.model_dump_json()})
        self._writer = parquet.ParquetWriter(
            path, schema, compression=COMPRESSION, write_statistics=[STATISTICS_OF]
        )

    def write(self, batch: Sequence[TransactionCells]) -> None:
        """One row group."""
        pa, schema = self._pa, self._schema
        columns: list[Any] = [
            pa.array([getattr(cells, name) for cells in batch], schema.field(name).type)
            for name in _head_names(self._version)
        ]
        columns.append(self._events(batch))
        states = _state_columns(pa, self._version)
        kept = [_state_cells(cells.checkpoint) for cells in batch]
        columns += [pa.array([one[i] for one in kept], kind) for i, kind in enumerate(states.values())]
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
            schema = file.schema_arrow
        try:
            facts_text, end = metadata[FACTS_KEY.encode()], metadata[END_KEY.encode()]
        except KeyError as error:
            raise JournalFormatError(f"{path} is no exported journal: it has no {error}") from error
        facts = read_facts(facts_text, where=str(path))
        if not schema.equals(_schema(_arrow()[0], facts.kvledger_export)):
            raise JournalFormatError(f"{path} has other columns than an exported journal")
        return facts, read_end(end, where=str(path))

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


def _state_cells(kept: StoredCheckpoint | None) -> tuple[Any, ...]:
    """What the state columns hold of a checkpoint, in their order."""
    if kept is None:
        return (None,) * 5
    previous_seq, previous_hash = kept.previous or (None, None)
    return (kept.digest, kept.state, kept.hash, previous_seq, previous_hash)


def _rows(batch: Any) -> list[TransactionCells]:
    pa, _ = _arrow()
    version = 2 if "duration_us" in batch.schema.names else 1
    columns = {name: batch.column(name).to_pylist() for name in _head_names(version)}
    none = [None] * batch.num_rows
    lists = batch.column("events")
    offsets = lists.offsets.to_pylist()
    base = offsets[0]
    fields = lists.flatten().flatten()
    events = [EventCells._make(row) for row in zip(*[field.to_pylist() for field in fields], strict=True)]
    kept_cells = [batch.column(name).to_pylist() for name in _state_columns(pa, version)]
    rows = []
    for i, head in enumerate(zip(*[columns.get(name, none) for name in HEAD_NAMES], strict=True)):
        digest, state, link, *previous = [column[i] for column in kept_cells]
        kept = None
        if digest is not None:
            kept = StoredCheckpoint(
                seq=Seq(head[6] + head[7] - 1),
                number=TxnId(head[0]),
                chain_hash=head[-1],
                digest=digest,
                state=state or b"",
                hash=link or b"",
                previous=CheckpointName(*previous) if previous and previous[0] is not None else None,
            )
        mine = events[offsets[i] - base : offsets[i + 1] - base]
        rows.append(TransactionCells._make([*head, mine, kept]))
    return rows

"""Reading exported files as one reads the database: a file, a folder of pieces, or a folder and the database.

The pieces of one journal must join: each begins where the one before it ends, with the hash it ends with. A
missing piece, one twice, or one of another journal in its place is refused before anything is read from
them. Where the database still holds the rows that follow, reading goes on there.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kvledger.core.errors import JournalFormatError, UnknownJournal
from kvledger.core.ids import Seq, TxnId
from kvledger.journal.arguments import check_path, check_place
from kvledger.journal.chain import ChainHead
from kvledger.journal.export.join import joined, rest_fault
from kvledger.journal.export.jsonl import SUFFIX as JSONL_SUFFIX
from kvledger.journal.export.jsonl import JsonLinesReader
from kvledger.journal.export.lookup import FileLookUp
from kvledger.journal.export.parquet import SUFFIX as PARQUET_SUFFIX
from kvledger.journal.export.parquet import ParquetReader
from kvledger.journal.export.piece import Piece, PieceReader
from kvledger.journal.export.sums import kept_sum
from kvledger.journal.export.verify import verify_exported
from kvledger.journal.info import JournalInfo
from kvledger.journal.lookups.questions import (
    DEFAULT_COUNT,
    Beginning,
    Count,
    EventFilter,
    FoundEvent,
    FoundTransaction,
    TransactionFilter,
)
from kvledger.journal.reader import JournalReader
from kvledger.journal.records import StoredCheckpoint, StoredTransaction
from kvledger.journal.walk import ChainBreak

READERS: dict[str, PieceReader] = {PARQUET_SUFFIX: ParquetReader(), JSONL_SUFFIX: JsonLinesReader()}


PIECE_NAME = re.compile(r"([0-9a-f]{12})-([0-9]{12})-([0-9]{12})\.")
"""Beginning of the epoch, first and last transaction: what an export calls its files."""


def is_exported(path: str | Path) -> bool:
    """Whether `path` names a folder, or a file of a form that exports have."""
    given = check_path(path, "an exported journal")
    return given.is_dir() or given.suffix in READERS


def pieces_in(path: Path, *, epoch: str | None = None, first: int = 1) -> list[Piece]:
    """The pieces at `path`, a file or a folder, of all journals or of one epoch, in no order that means
    anything.

    Of those with the names that exports give, the ones that end before the one at `first` are not opened.
    Raises UnknownJournal where there is nothing, JournalFormatError for a file that is no piece.
    """
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in READERS)
    elif path.is_file() and path.suffix in READERS:
        files = [path]
    else:
        raise UnknownJournal(f"there is no exported journal {path}")
    pieces = [Piece(file, READERS[file.suffix]) for file in files if _may_hold(file.name, epoch, first)]
    return [piece for piece in pieces if epoch is None or piece.facts.journal.epoch == epoch]


def _may_hold(name: str, epoch: str | None, first: int) -> bool:
    told = PIECE_NAME.match(name)
    if told is None:
        return True
    return (epoch is None or epoch.startswith(told[1])) and int(told[3]) >= first - 1


class ExportedJournal:
    """One journal from its pieces and, with `rest`, from the database that holds what follows them.

    `torn` says why the database does not go on where the files end. It is refused with JournalFormatError
    then, unless it `may_be_torn`: for who means to judge it.
    """

    def __init__(
        self, pieces: Sequence[Piece], *, rest: JournalReader | None = None, may_be_torn: bool = False
    ) -> None:
        if not pieces:
            raise UnknownJournal("there is no piece of this journal")
        self._pieces = joined(pieces)
        self._rest = rest
        self.torn: ChainBreak | None = None
        self._look_up = FileLookUp(self._pieces, rest)
        self.facts = self._pieces[0].facts
        self.info: JournalInfo = self.facts.journal.info()
        self.info.check_format()
        if rest is not None:
            if rest.info.epoch != self.info.epoch:
                raise JournalFormatError(
                    f"the database holds the journal of epoch {rest.info.epoch}, the files that of epoch "
                    f"{self.info.epoch}"
                )
            self.torn = rest_fault(self._pieces, rest)
        if self.torn is not None and not may_be_torn:
            raise JournalFormatError(self.torn.sentence)

    @classmethod
    def open(
        cls,
        path: str | Path,
        journal: int | None = None,
        *,
        rest: JournalReader | None = None,
        first: int = 1,
        may_be_torn: bool = False,
    ) -> "ExportedJournal":
        """The journal at `path`, a file or a folder: with `rest` the same as there, else by its number, or
        the newest.

        Raises UnknownJournal where there is none, JournalFormatError where pieces cannot be read or do not
        join.
        """
        given = check_path(path, "an exported journal")
        pieces = pieces_in(given, epoch=None if rest is None else rest.info.epoch, first=first)
        if journal is not None and rest is None:
            pieces = [piece for piece in pieces if piece.facts.journal.id == journal]
        if not pieces:
            what = "journal" if journal is None and rest is None else "piece of this journal"
            raise UnknownJournal(f"{given} holds no {what}")
        newest = max(pieces, key=lambda piece: (piece.facts.journal.created_us, piece.facts.journal.epoch))
        epoch = newest.facts.journal.epoch
        mine = [piece for piece in pieces if piece.facts.journal.epoch == epoch]
        return cls(mine, rest=rest, may_be_torn=may_be_torn)

    @property
    def pieces(self) -> Sequence[Piece]:
        """The files, in order."""
        return self._pieces

    @property
    def rest(self) -> JournalReader | None:
        """The database that holds what follows them."""
        return self._rest

    def notes(self) -> tuple[str, ...]:
        """What a reader of a verdict has to know of the files: which have no sum beside them."""
        return tuple(
            f"no SHA-256 stands beside {piece.path.name}: what is in it outside its cells is unverified"
            for piece in self._pieces
            if kept_sum(piece.path) is None
        )

    def verify(self) -> Iterator[ChainBreak]:
        """Each place where a piece is not what was exported; the database has a verification of its own."""
        alone = ExportedJournal(self._pieces)
        yield from verify_exported(alone)

    def head(self) -> ChainHead:
        """Where the last piece ends, or the database after it."""
        mine = self.exported_head
        rest = None if self._rest is None else self._rest.head()
        return mine if rest is None or rest.number < mine.number else rest

    @property
    def exported_head(self) -> ChainHead:
        """Where the last piece ends."""
        end = self._pieces[-1].end
        return ChainHead(self.info.epoch, end.last_number, end.last_seq, end.hash)

    def transactions(
        self, first: TxnId | int | None = None, *, upto_seq: Seq | int | None = None
    ) -> Iterator[StoredTransaction]:
        """The transactions from number `first` on, in order, as `JournalReader.transactions`."""
        begin = 1 if first is None else check_place(first, "the number of a transaction", least=1)
        upto_seq = None if upto_seq is None else check_place(upto_seq, "a seq", least=0)
        for piece in self._pieces:
            if piece.end.last_number < begin:
                continue
            for cells in piece.cells(begin):
                if upto_seq is not None and cells.last_seq > upto_seq:
                    return
                yield cells.decoded()
        if self._rest is not None:
            after = self.exported_head.number + 1
            yield from self._rest.transactions(max(begin, after), upto_seq=upto_seq)

    def checkpoint_before(self, seq: Seq | int | None = None) -> StoredCheckpoint | None:
        """The newest checkpoint at or before `seq` (None: of all)."""
        seq = None if seq is None else check_place(seq, "a seq")
        if self._rest is not None:
            found = self._rest.checkpoint_before(seq)
            if found is not None:
                return found
        for piece in reversed(self._pieces):
            places = [place for place in piece.end.checkpoints if seq is None or place[0] <= seq]
            if places:
                return self._checkpoint(piece, max(places)[1])
            base = piece.facts.base
            if base is not None and (seq is None or base.seq <= seq):
                return self._sound(base.stored())
        return None

    def checkpoint_after(self, seq: Seq | int) -> StoredCheckpoint | None:
        """The oldest checkpoint at or after `seq`."""
        seq = check_place(seq, "a seq")
        for piece in self._pieces:
            base = piece.facts.base
            if base is not None and base.seq >= seq:
                return self._sound(base.stored())
            places = [place for place in piece.end.checkpoints if place[0] >= seq]
            if places:
                return self._checkpoint(piece, min(places)[1])
        return None if self._rest is None else self._rest.checkpoint_after(seq)

    def checkpoint_places(self) -> Iterator[tuple[TxnId, str]]:
        """Number of the transaction and digest of every checkpoint, in order."""
        for piece in self._pieces:
            for _seq, number, digest in piece.end.checkpoints:
                yield TxnId(number), digest
        if self._rest is not None:
            end = self.exported_head.number
            yield from (place for place in self._rest.checkpoint_places() if place[0] > end)

    def recorded_config(self) -> dict[str, Any] | None:
        """The cache's configuration as the files have it from the journal's row."""
        return self.info.recorded_config()

    @property
    def indexed(self) -> bool:
        """A look-up here is a walk over files, whatever it finds."""
        return False

    def beginning(self) -> Beginning:
        """Where the files begin, or the database beside them, whichever is before the other."""
        return self._look_up.beginning()

    def find(
        self,
        wanted: EventFilter | None = None,
        *,
        limit: int | None = None,
        after_seq: int | None = None,
        before_seq: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[FoundEvent]:
        """The events that match; see `FileLookUp.find`."""
        return self._look_up.find(
            wanted or EventFilter(),
            limit=limit,
            after_seq=after_seq,
            before_seq=before_seq,
            newest_first=newest_first,
        )

    def count(self, wanted: EventFilter | None = None, *, upto: int = DEFAULT_COUNT) -> Count:
        """How many events match, exactly up to `upto`; see `FileLookUp.count`."""
        return self._look_up.count(wanted or EventFilter(), upto=upto)

    def find_transactions(
        self,
        wanted: TransactionFilter | None = None,
        *,
        limit: int | None = None,
        after: int | None = None,
        before: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[FoundTransaction]:
        """The rows of transactions that match, without their events; see `FileLookUp.find_transactions`."""
        return self._look_up.find_transactions(
            wanted or TransactionFilter(), limit=limit, after=after, before=before, newest_first=newest_first
        )

    def _checkpoint(self, piece: Piece, number: int) -> StoredCheckpoint:
        for cells in piece.cells(number):
            if cells.number == number and cells.checkpoint is not None:
                return self._sound(cells.checkpoint)
            break
        raise JournalFormatError(f"{piece.path.name} names a checkpoint at transaction {number} and has none")

    def _sound(self, found: StoredCheckpoint) -> StoredCheckpoint:
        self.info.check_checkpoint(found)
        return found

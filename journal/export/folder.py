"""Reading exported files as one reads the database: a file, a folder of pieces, or a folder and the database.

The pieces of one journal must join: each begins where the one before it ends, with the hash it ends with. A
missing piece, one twice, or one of another journal in its place is refused before anything is read from
them. Where the database still holds the rows that follow, reading goes on there.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from kvledger.core.errors import InvalidArgument, JournalFormatError, UnknownJournal
from kvledger.core.ids import Seq, TxnId
from kvledger.journal.chain import ChainHead
from kvledger.journal.export.jsonl import SUFFIX as JSONL_SUFFIX
from kvledger.journal.export.jsonl import JsonLinesReader
from kvledger.journal.export.parquet import SUFFIX as PARQUET_SUFFIX
from kvledger.journal.export.parquet import ParquetReader
from kvledger.journal.export.piece import Piece, PieceReader
from kvledger.journal.models import FORMAT_VERSION
from kvledger.journal.reader import JournalInfo, JournalReader, hash_of
from kvledger.journal.records import StoredCheckpoint, StoredTransaction
from kvledger.journal.walk import ChainBreak

READERS: dict[str, PieceReader] = {PARQUET_SUFFIX: ParquetReader(), JSONL_SUFFIX: JsonLinesReader()}


PIECE_NAME = re.compile(r"([0-9a-f]{12})-([0-9]{12})-([0-9]{12})\.")
"""Beginning of the epoch, first and last transaction: what an export calls its files."""


def is_exported(path: str | Path) -> bool:
    """Whether `path` names a folder, or a file of a form that exports have."""
    given = Path(path).expanduser()
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


def joined(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces of one journal in order. Raises JournalFormatError unless each joins the one before it."""
    ordered = sorted(pieces, key=lambda piece: (piece.facts.first_number, piece.end.last_number))
    for before, then in pairwise(ordered):
        first, last = then.facts.first_number, before.end.last_number
        if first <= last:
            raise JournalFormatError(
                f"{before.path.name} and {then.path.name} overlap: both hold transaction {first}"
                + _surplus(before, then)
            )
        if first > last + 1:
            raise JournalFormatError(
                f"transactions {last + 1} to {first - 1} are missing between {before.path.name} and "
                f"{then.path.name}"
            )
        if then.facts.previous_hash != before.end.hash or then.facts.journal != before.facts.journal:
            raise JournalFormatError(
                f"{then.path.name} does not go on from {before.path.name}: it belongs to another journal, or "
                "one of them was changed"
            )
    return ordered


def _surplus(before: Piece, then: Piece) -> str:
    """Which of two overlapping pieces may go because the other holds all of it, by its hashes."""
    for less, more in ((then, before), (before, then)):
        if _holds(more, less):
            return f"; all of {less.path.name} stands in {more.path.name} too: remove {less.path.name}"
    return ""


def _holds(more: Piece, less: Piece) -> bool:
    first, last = less.facts.first_number, less.end.last_number
    if not (
        more.facts.journal == less.facts.journal
        and more.facts.first_number <= first
        and last <= more.end.last_number
        and set(less.end.checkpoints) <= set(more.end.checkpoints)
    ):
        return False
    begin, end = next(more.cells(first), None), next(more.cells(last), None)
    if begin is None or end is None:
        return False
    return (begin.number, begin.previous_hash, end.number, end.hash) == (
        first,
        less.facts.previous_hash,
        last,
        less.end.hash,
    )


class ExportedJournal:
    """One journal from its pieces and, with `rest`, from the database that holds what follows them."""

    def __init__(self, pieces: Sequence[Piece], *, rest: JournalReader | None = None) -> None:
        if not pieces:
            raise UnknownJournal("there is no piece of this journal")
        self._pieces = joined(pieces)
        self._rest = rest
        self.facts = self._pieces[0].facts
        self.info: JournalInfo = self.facts.journal.info()
        if self.info.format_version != FORMAT_VERSION:
            raise JournalFormatError(
                f"the exported journal is of format version {self.info.format_version}, not {FORMAT_VERSION}"
            )
        if rest is not None:
            self._join(rest)

    @classmethod
    def open(
        cls,
        path: str | Path,
        journal: int | None = None,
        *,
        rest: JournalReader | None = None,
        first: int = 1,
    ) -> "ExportedJournal":
        """The journal at `path`, a file or a folder: with `rest` the same as there, else by its number, or
        the newest.

        Raises UnknownJournal where there is none, JournalFormatError where pieces cannot be read or do not
        join.
        """
        given = Path(path).expanduser()
        pieces = pieces_in(given, epoch=None if rest is None else rest.info.epoch, first=first)
        if journal is not None and rest is None:
            pieces = [piece for piece in pieces if piece.facts.journal.id == journal]
        if not pieces:
            what = "journal" if journal is None and rest is None else "piece of this journal"
            raise UnknownJournal(f"{given} holds no {what}")
        newest = max(pieces, key=lambda piece: (piece.facts.journal.created_us, piece.facts.journal.epoch))
        epoch = newest.facts.journal.epoch
        return cls([piece for piece in pieces if piece.facts.journal.epoch == epoch], rest=rest)

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
        begin = 1 if first is None else int(first)
        if begin < 1 or (upto_seq is not None and upto_seq < 0):
            raise InvalidArgument("transactions count from 1 and seqs from 0 on")
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

    def verify(self) -> Iterator[ChainBreak]:
        """Each place where a piece is not what was exported; the database has a verification of its own."""
        for piece in self._pieces:
            yield from piece.verify()
        base = self.facts.base
        if base is not None and (
            base.stored().hash != hash_of(base.stored(), epoch=self.info.epoch)
            or (base.number, base.chain_hash) != (self.facts.first_number - 1, self.facts.previous_hash)
        ):
            yield ChainBreak(
                "chain", "transactions", base.number, base.seq, "the checkpoint before the first was changed"
            )

    def _join(self, rest: JournalReader) -> None:
        """Raise JournalFormatError unless the database goes on where the pieces end."""
        if rest.info.epoch != self.info.epoch:
            raise JournalFormatError(
                f"the database holds the journal of epoch {rest.info.epoch}, the files that of epoch "
                f"{self.info.epoch}"
            )
        end = self.exported_head
        following = next(rest.transactions(end.number), None)
        if following is None:
            found = rest.head()
            if found.number < end.number:
                self._agree_at(found)
                return
            there = (found.number, found.hash)
        elif following.number == end.number:
            there = (following.number, following.hash)
        else:
            there = (following.number - 1, following.previous_hash)
        if there != (end.number, end.hash):
            raise JournalFormatError(
                f"the files end with transaction {end.number}; the database goes on from {there[0]}, or from "
                "another hash"
            )

    def _agree_at(self, found: ChainHead) -> None:
        """Raise JournalFormatError unless the files hold the database's last transaction as it is there."""
        for piece in self._pieces:
            if not piece.facts.first_number <= found.number <= piece.end.last_number:
                continue
            cells = next(piece.cells(found.number), None)
            if cells is None or (cells.number, cells.hash) != (found.number, found.hash):
                raise JournalFormatError(
                    f"the database ends with transaction {found.number}; in the files it has another hash"
                )

    def _checkpoint(self, piece: Piece, number: int) -> StoredCheckpoint:
        for cells in piece.cells(number):
            if cells.number == number and cells.checkpoint is not None:
                return self._sound(cells.checkpoint)
            break
        raise JournalFormatError(f"{piece.path.name} names a checkpoint at transaction {number} and has none")

    def _sound(self, found: StoredCheckpoint) -> StoredCheckpoint:
        if found.hash != hash_of(found, epoch=self.info.epoch):
            raise JournalFormatError(
                f"the checkpoint at seq {found.seq} was changed: its hash is not that of its row"
            )
        return found

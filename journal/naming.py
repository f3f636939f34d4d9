"""Which checkpoints a journal's rows name, and which stand there: what no checkpoint's own hash can show.

Whoever can write the table can make another state, with a hash that fits. From format 2 on a checkpoint is
named from outside its row: by the first transaction stored after it, by the checkpoint stored after it, and
by anchors. A row that stands is compared with every name for its seq, and a name for which no row stands is
missed, unless rows that far back were pruned. What no name reaches yet is the newest checkpoint alone.
"""

from collections.abc import Iterator

from kvledger.journal.chain import Anchor, ChainHead, CheckpointName
from kvledger.journal.walk import ChainBreak

DAMAGED = b""
"""Stands for the hash of a row that contradicts itself."""


class Namings:
    """The names and the checkpoints met so far, in one database, or in files and the database after them.

    Memory: a hash for each checkpoint and each name.
    """

    def __init__(self) -> None:
        self._names: dict[int, dict[bytes, str]] = {}
        self._standing: dict[int, tuple[int, bytes]] = {}
        self._namers: list[tuple[int, int]] = []

    @property
    def checkpoints(self) -> int:
        """How many checkpoints stand."""
        return len(self._standing)

    def named(self, name: CheckpointName, *, by: str, transaction: int | None = None) -> Iterator[ChainBreak]:
        """`by` names a checkpoint; `transaction` is its number where it is one. A break if another stands."""
        self._names.setdefault(name.seq, {}).setdefault(name.hash, by)
        if transaction is not None:
            self._namers.append((transaction, name.seq))
        standing = self._standing.get(name.seq)
        if standing is not None and standing[1] not in (name.hash, DAMAGED):
            yield _another(name.seq, standing[0], by)

    def stands(
        self, checkpoint: CheckpointName, *, number: int, previous: CheckpointName | None
    ) -> Iterator[ChainBreak]:
        """A sound row stands after transaction `number`; `previous` is the one that it names before it."""
        seq = checkpoint.seq
        other = self._standing.get(seq)
        if other is not None and other[1] not in (checkpoint.hash, DAMAGED):
            sentence = f"the checkpoint at seq {seq} is another one in the database than in the files"
            yield ChainBreak("chain", "checkpoints", number, seq, sentence)
        for named, by in self._names.get(seq, {}).items():
            if named != checkpoint.hash:
                yield _another(seq, number, by)
                break
        self._standing[seq] = (number, checkpoint.hash)
        if previous is not None:
            yield from self.named(previous, by=f"the checkpoint at seq {seq}")

    def damaged(self, seq: int) -> None:
        """A row stands at `seq` that contradicts itself: one break is enough for it."""
        self._standing[seq] = (0, DAMAGED)

    def missing(self, here: set[int], *, from_seq: int) -> Iterator[ChainBreak]:
        """Names at or after `from_seq`, where the rows kept begin, that have no row among the seqs `here`."""
        for seq in sorted(self._names.keys() - here):
            if seq >= from_seq:
                by = next(iter(self._names[seq].values()))
                sentence = f"the checkpoint at seq {seq}, which {by} names, is not there"
                yield ChainBreak("chain", "checkpoints", None, seq, sentence)

    def first_to_name(self, seq: int) -> int | None:
        """The first transaction that names the checkpoint at `seq`, or one that was stored after it."""
        return next((number for number, named in self._namers if named >= seq), None)


class StoredOrder:
    """Checkpoints in the order of their seqs, of one journal of format 2: none stands between two that follow
    one another."""

    def __init__(self) -> None:
        self._before: tuple[int, int] | None = None

    def next(self, seq: int, *, number: int, previous: CheckpointName | None) -> Iterator[ChainBreak]:
        """The next one. A break if it was not stored after the one that stands before it."""
        before, self._before = self._before, (seq, number)
        if before is not None and (previous is None or previous.seq < before[0]):
            follows = "is the first" if previous is None else f"follows the one at seq {previous.seq}"
            sentence = (
                f"the checkpoint at seq {before[0]} was inserted: the next one, at seq {seq}, {follows}"
            )
            yield ChainBreak("chain", "checkpoints", before[1], before[0], sentence)


def reaches_start(anchor: ChainHead | None, names: Namings, start_seq: int, format_version: int) -> bool:
    """Whether an anchor that was found covers the checkpoint at `start_seq`, where what is kept begins.

    It does where it names that checkpoint or, the checkpoints being chained from format 2 on, a later one,
    and where a transaction up to it does.
    """
    if anchor is None:
        return False
    kept = anchor.checkpoint if isinstance(anchor, Anchor) else None
    if kept is not None and (kept.seq == start_seq or (kept.seq > start_seq and format_version > 1)):
        return True
    namer = names.first_to_name(start_seq)
    return namer is not None and namer <= anchor.number


def _another(seq: int, number: int, by: str) -> ChainBreak:
    sentence = f"the checkpoint at seq {seq} is another one than {by} names"
    return ChainBreak("chain", "checkpoints", number, seq, sentence)

"""The hash chain over a journal: what is hashed, in which order, and what its end is called.

Each transaction's hash is SHA-256 over the hash before it and every stored byte of its row and of its event
rows; the first one starts from a genesis hash over the journal's own row. Only what is stored is hashed, as
it is stored (microseconds, not nanoseconds; the payload's bytes, not the values in it), so reading the rows
back is enough to check it. The layouts, one for each format version of a journal, are told in docs/format.md,
"The chain".

Checkpoints are chained too: each names the one before it, and the first transaction stored after one names
it, so that from format 2 on a state that was removed or replaced is missed.

A chain cannot show that its tail was cut: keep its head elsewhere, as an anchor, to be able to tell.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

GENESIS_MARK = b"KVLGJ\x00\x01\x00"
CHECKPOINT_MARKS = {1: b"KVLGC\x00\x01\x00", 2: b"KVLGC\x00\x02\x00"}
"""What the hash of a checkpoint begins with, by the format version of its journal."""
HASH_BYTES = 40
"""Of a link: the number of its transaction, then SHA-256. Links rise with the number, so that the unique key
on `previous_hash` grows at its end; over bare hashes every insert lands on another page, and writing becomes
slower with every transaction stored (docs/performance.md)."""

CHECKPOINT_HASH_BYTES = 32
"""Of the hash over a checkpoint: SHA-256."""

_NUMBER = struct.Struct(">q")
_I64 = struct.Struct("<q")
_TRANSACTION = struct.Struct("<qqqq")
_TRANSACTION_2 = struct.Struct("<qqqqqqii")
_EVENT = struct.Struct("<qqqiiiiiii")


TransactionCells = tuple[
    int, bytes, bytes | None, bytes, bytes, int, int, int, int | None, int | None, bytes | None
]
"""The hashed cells of a transaction row, text as the stored UTF-8 bytes: number, op, request_id, status,
reason, time_us, first_seq, event_count, duration_us, checkpoint_seq, checkpoint_hash."""

EventCells = tuple[int, int, bytes, int, int | None, bytes | None, int, bytes, bytes]
"""The hashed cells of an event row: seq, txn, kind, version, node, request_id, undone, payload, blob."""


class CheckpointName(NamedTuple):
    """What names a checkpoint from elsewhere: its seq, and the hash over its row."""

    seq: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class ChainHead:
    """Where a journal ends: its last transaction, last seq and last hash. Kept elsewhere, it is an anchor."""

    epoch: str
    number: int
    seq: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class Anchor(ChainHead):
    """A head that was kept elsewhere, and the newest checkpoint at that time.

    None: there was none, or the anchor is of `version` 1, which names no checkpoint.
    """

    checkpoint: CheckpointName | None = None
    version: int = 2


def genesis_hash(*, format_version: int, created_us: int, epoch: str, name: str, token_policy: str) -> bytes:
    """The hash that stands before the first transaction of a journal with these cells."""
    pieces = [GENESIS_MARK, _I64.pack(format_version), _I64.pack(created_us)]
    pieces += [_string(text.encode()) for text in (epoch, name, token_policy)]
    return _link(0, pieces)


def transaction_hash(
    previous: bytes, transaction: TransactionCells, events: Iterable[EventCells], *, format_version: int
) -> bytes:
    """The hash of a transaction whose predecessor's is `previous`, over its events in the order given.

    Raises struct.error or TypeError for cells that no journal of this format holds. Cost: O(bytes hashed).
    """
    pieces = _head_1(previous, transaction) if format_version == 1 else _head_2(previous, transaction)
    pack = _EVENT.pack
    for seq, txn, kind, version, node, request, undone, payload, blob in events:
        known, node = (0, 0) if node is None else (1, node)
        size, request = (-1, b"") if request is None else (len(request), request)
        lengths = (version, len(kind), size, len(payload), len(blob))
        pieces += (pack(seq, txn, node, known, undone, *lengths), kind, request, payload, blob)
    return _link(transaction[0], pieces)


PIECES = 5
"""Of each event in what is hashed: its numbers and lengths, kind, request, payload and blob."""


def event_pieces(
    events: tuple[
        Sequence[str],
        Sequence[int],
        Sequence[int | None],
        Sequence[str | None],
        Sequence[str],
        Sequence[bytes],
    ],
    *,
    seqs: Sequence[int],
    txns: Sequence[int],
    undone: Sequence[int],
) -> list[bytes]:
    """What is hashed of event rows, `PIECES` for each, in order; for `hash_pieces`.

    `events` has the columns kind, version, node, request, payload and blob. The layout is written twice for
    the writer's sake, which has columns of text where a reader has rows of bytes and passes here for every
    event. Cost: O(bytes), a third of a microsecond for each event.
    """
    kinds, versions, nodes, requests, payloads, blobs = events
    known = {text: text.encode() for text in {*kinds, *requests} if text is not None}
    kind_bytes = [known[kind] for kind in kinds]
    names = [b"" if name is None else known[name] for name in requests]
    texts = list(map(str.encode, payloads))
    pieces: list[bytes] = [b""] * (PIECES * len(kinds))
    pieces[0::PIECES] = map(
        _EVENT.pack,
        seqs,
        txns,
        [0 if node is None else node for node in nodes],
        [node is not None for node in nodes],
        undone,
        versions,
        map(len, kind_bytes),
        [-1 if request is None else len(name) for request, name in zip(requests, names, strict=True)],
        map(len, texts),
        map(len, blobs),
    )
    pieces[1::PIECES] = kind_bytes
    pieces[2::PIECES] = names
    pieces[3::PIECES] = texts
    pieces[4::PIECES] = blobs
    return pieces


def hash_pieces(previous: bytes, transaction: TransactionCells, pieces: list[bytes]) -> bytes:
    """The hash of a transaction of format 2 over its events as `event_pieces` gives them."""
    return _link(transaction[0], _head_2(previous, transaction) + pieces)


def _link(number: int, pieces: list[bytes]) -> bytes:
    return _NUMBER.pack(number) + sha256(b"".join(pieces)).digest()


def _head_1(previous: bytes, transaction: TransactionCells) -> list[bytes]:
    number, op, request_id, status, reason, time_us, first_seq, event_count, *later = transaction
    if later != [None, None, None]:
        raise TypeError("a transaction of format 1 has no duration and names no checkpoint")
    return [
        previous,
        _TRANSACTION.pack(number, time_us, first_seq, event_count),
        _string(op),
        _string(request_id),
        _string(status),
        _string(reason),
    ]


def _head_2(previous: bytes, transaction: TransactionCells) -> list[bytes]:
    (
        number, op, request_id, status, reason, time_us, first_seq, event_count, duration_us, seq, checkpoint
    ) = transaction  # fmt: skip
    return [
        previous,
        _TRANSACTION_2.pack(
            number,
            time_us,
            first_seq,
            event_count,
            0 if duration_us is None else duration_us,
            0 if seq is None else seq,
            duration_us is not None,
            seq is not None,
        ),
        _string(op),
        _string(request_id),
        _string(status),
        _string(reason),
        _string(checkpoint),
    ]


class Owner(NamedTuple):
    """What the hash of a checkpoint covers of its journal's row.

    From format 2 on that is all of it, in the genesis hash, and `config` as it is stored: once the first
    transaction was pruned nothing else does. In format 1 it is the epoch.
    """

    format_version: int
    epoch: str
    genesis: bytes
    config: bytes | None


def checkpoint_hash(
    owner: Owner,
    *,
    seq: int,
    number: int,
    chain_hash: bytes,
    digest: bytes,
    state: bytes,
    previous: CheckpointName | None,
) -> bytes:
    """The hash over a checkpoint's row in its journal: its place, the link it stands on, its digest, its
    state, and which checkpoint came before it.

    Raises TypeError for a previous checkpoint in format 1, whose checkpoints name none.
    """
    if owner.format_version == 1:
        if previous is not None:
            raise TypeError("a checkpoint of format 1 names none before it")
        pieces = [CHECKPOINT_MARKS[1], _string(owner.epoch.encode())]
    else:
        pieces = [CHECKPOINT_MARKS[2], _string(owner.genesis), _string(owner.config)]
    pieces += [_I64.pack(seq), _I64.pack(number)]
    pieces += [_string(cell) for cell in (chain_hash, digest, state)]
    if owner.format_version != 1:
        pieces.append(_I64.pack(0 if previous is None else previous.seq))
        pieces.append(_string(None if previous is None else previous.hash))
    return sha256(b"".join(pieces)).digest()


_NO_STRING = _I64.pack(-1)
_LENGTHS = [_I64.pack(length) for length in range(256)]
"""What short strings begin with: nearly all are."""


def _string(text: bytes | None) -> bytes:
    if text is None:
        return _NO_STRING
    length = len(text)
    return (_LENGTHS[length] if length < len(_LENGTHS) else _I64.pack(length)) + text

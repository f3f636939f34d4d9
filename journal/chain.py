"""The hash chain over a journal: what is hashed, in which order, and what its end is called.

Each transaction's hash is SHA-256 over the hash before it and every stored byte of its row and of its event
rows; the first one starts from a genesis hash over the journal's own row. Only what is stored is hashed, as
it is stored (microseconds, not nanoseconds; the payload's bytes, not the values in it), so reading the rows
back is enough to check it. The layout is told in docs/format.md, "The chain".

A chain cannot show that its tail was cut: keep its head elsewhere, as an anchor, to be able to tell.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

GENESIS_MARK = b"KVLGJ\x00\x01\x00"
CHECKPOINT_MARK = b"KVLGC\x00\x01\x00"
HASH_BYTES = 40
"""Of a link: the number of its transaction, then SHA-256. Links rise with the number, so that the unique key
on `previous_hash` grows at its end; over bare hashes every insert lands on another page, and writing becomes
slower with every transaction stored (docs/performance.md)."""

_NUMBER = struct.Struct(">q")
_I64 = struct.Struct("<q")
_TRANSACTION = struct.Struct("<qqqq")
_EVENT = struct.Struct("<qqqiiiiiii")


TransactionCells = tuple[int, bytes, bytes | None, bytes, bytes, int, int, int]
"""The hashed cells of a transaction row, text as the stored UTF-8 bytes: number, op, request_id, status,
reason, time_us, first_seq, event_count."""

EventCells = tuple[int, int, bytes, int, int | None, bytes | None, int, bytes, bytes]
"""The hashed cells of an event row: seq, txn, kind, version, node, request_id, undone, payload, blob."""


@dataclass(frozen=True, slots=True)
class ChainHead:
    """Where a journal ends: its last transaction, last seq and last hash. Kept elsewhere, it is an anchor."""

    epoch: str
    number: int
    seq: int
    hash: bytes


def genesis_hash(*, format_version: int, created_us: int, epoch: str, name: str, token_policy: str) -> bytes:
    """The hash that stands before the first transaction of a journal with these cells."""
    pieces = [GENESIS_MARK, _I64.pack(format_version), _I64.pack(created_us)]
    pieces += [_string(text.encode()) for text in (epoch, name, token_policy)]
    return _link(0, pieces)


def transaction_hash(previous: bytes, transaction: TransactionCells, events: Iterable[EventCells]) -> bytes:
    """The hash of a transaction whose predecessor's is `previous`, over its events in the order given.

    Raises struct.error or TypeError for cells that no journal holds. Cost: O(bytes hashed).
    """
    pieces = _head(previous, transaction)
    for seq, txn, kind, version, node, request, undone, payload, blob in events:
        pieces.append(
            _EVENT.pack(
                seq,
                txn,
                0 if node is None else node,
                node is not None,
                undone,
                version,
                len(kind),
                -1 if request is None else len(request),
                len(payload),
                len(blob),
            )
        )
        pieces += (kind, request or b"", payload, blob)
    return _link(transaction[0], pieces)


def hash_rows(
    previous: bytes, transaction: TransactionCells, rows: Iterable[tuple[Any, ...]]
) -> tuple[bytes, int]:
    """The same hash over event rows as they go to the database (kvledger.journal.linking.EVENT_CELLS).

    Returns it with the number of bytes in their payloads and blobs. The layout is written twice for the
    writer's sake, which has text where a reader has bytes and passes here for every event.
    """
    pieces = _head(previous, transaction)
    pack = _EVENT.pack
    size = 0
    for _journal, seq, txn, kind, version, node, request, undone, payload, blob in rows:
        text = payload.encode()
        name = b"" if request is None else request.encode()
        pieces += (
            pack(
                seq,
                txn,
                0 if node is None else node,
                node is not None,
                undone,
                version,
                len(kind),
                -1 if request is None else len(name),
                len(text),
                len(blob),
            ),
            kind.encode(),
            name,
            text,
            blob,
        )
        size += len(text) + len(blob)
    return _link(transaction[0], pieces), size


def _link(number: int, pieces: list[bytes]) -> bytes:
    return _NUMBER.pack(number) + sha256(b"".join(pieces)).digest()


def _head(previous: bytes, transaction: TransactionCells) -> list[bytes]:
    number, op, request_id, status, reason, time_us, first_seq, event_count = transaction
    return [
        previous,
        _TRANSACTION.pack(number, time_us, first_seq, event_count),
        _string(op),
        _string(request_id),
        _string(status),
        _string(reason),
    ]


def checkpoint_hash(
    *, epoch: str, seq: int, number: int, chain_hash: bytes, digest: bytes, state: bytes
) -> bytes:
    """The hash over a checkpoint's row: its place, the link it stands on, its digest and its state."""
    pieces = [CHECKPOINT_MARK, _string(epoch.encode()), _I64.pack(seq), _I64.pack(number)]
    pieces += [_string(cell) for cell in (chain_hash, digest, state)]
    return sha256(b"".join(pieces)).digest()


def _string(text: bytes | None) -> bytes:
    return _I64.pack(-1) if text is None else _I64.pack(len(text)) + text

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

GENESIS_MARK = b"KVLGJ\x00\x01\x00"
HASH_BYTES = 32

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
    return sha256(b"".join(pieces)).digest()


def transaction_hash(previous: bytes, transaction: TransactionCells, events: Iterable[EventCells]) -> bytes:
    """The hash of a transaction whose predecessor's is `previous`, over its events in the order given.

    Raises struct.error or TypeError for cells that no journal holds. Cost: O(bytes hashed).
    """
    number, op, request_id, status, reason, time_us, first_seq, event_count = transaction
    pieces = [
        previous,
        _TRANSACTION.pack(number, time_us, first_seq, event_count),
        _string(op),
        _string(request_id),
        _string(status),
        _string(reason),
    ]
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
    return sha256(b"".join(pieces)).digest()


def _string(text: bytes | None) -> bytes:
    return _I64.pack(-1) if text is None else _I64.pack(len(text)) + text

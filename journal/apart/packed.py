"""Transactions that wait to be handed over, as bytes.

Beside this file stands one in C of the same name (packed.c). Where the core is compiled (hatch_build.py),
Python finds that one instead: it makes the same bytes without an object for each value, and writes them into
the ring itself. A test holds both to the same bytes.

A batch becomes one frame (frames.py), a list of its transactions as `marshal` has it. Each is a list: seven
values of its own and the number of its events, then for each event the number of its class and the values of
its fields, each the way it goes (plans.py). One that holds anything but the exact types that belong there
goes as bytes, as `pickle` has it, which knows any.

A long array of pages that consists of few runs, of which each entry is one above the one before, goes as
those: a tuple of bytes, which hold the first entry and the length of each, 4 bytes either. Pages most often
lie so; checksums never do, and always go as their bytes.
"""

import marshal
import pickle
import struct
from time import perf_counter_ns, time_ns
from typing import Any, Final, NamedTuple

import numpy as np

from kvledger.core.sinks import TransactionRecord
from kvledger.journal.apart.plans import (
    BOOL,
    CHOICE,
    HEADER,
    INT,
    NUMBERS,
    OPTIONAL,
    ORIGIN,
    PAGE_ARRAY,
    SUM_ARRAY,
    TEXT,
    TOKENS,
    Packing,
    Piece,
)

FEW_TOKEN_BYTES: Final = 1_024
FEW_ARRAY_BYTES: Final = 8_192
"""Up to so many bytes are copied at once: keeping them by reference takes longer."""

MANY_ENTRIES: Final = 64
"""Pages of so many are looked through for runs: copying fewer takes no longer than that."""
MOST_ENTRIES: Final = 2**31 - 1
"""More are not: the length of a run is an int32."""
ENTRIES_A_RUN: Final = 4
"""How many a run must have on average: it is as wide as two, so half of the bytes are saved then."""

MARSHAL_VERSION: Final = 2
"""The last one that does not look for objects that come twice, which takes longer than writing them twice."""

MOST_BYTES: Final = 2**31 - 1
"""What `marshal` reads as the size of one object: more would be negative."""

_SIZE = struct.Struct("<I")


class _Odd(Exception):
    """A value is not of the exact type that belongs there."""


class _Waiting(NamedTuple):
    """One transaction. `accepted` counts events, its own and all before it."""

    pieces: list[Piece]
    accepted: int


class _State(NamedTuple):
    """All that changes, so that it changes at once. All but the first count what was handed over."""

    waiting: list[_Waiting]
    frames: int
    added: int
    accepted: int


class Batch:
    """Transactions that wait. What is long in them must not change before they were handed over.

    `packings` say what an event of each class consists of, `form` is that of the frame. All but `add_now`,
    `begin`, `let_go` and `shut` is for one thread at a time, and not for what `add` calls: to pickle a value
    may run code of the caller's. Compiled, that is refused with RuntimeError, or False.
    """

    def __init__(
        self, packings: dict[Any, Packing], form: int, record_class: type[TransactionRecord], /
    ) -> None:
        self._packings = packings
        self._form = form
        self._began_ns: int | None = None
        self._state = _State([], 0, 0, 0)
        self._gone: list[Any] = []

    @property
    def count(self) -> int:
        """Transactions that wait."""
        return len(self._state.waiting)

    @property
    def events(self) -> int:
        """Events that wait."""
        state = self._state
        return self._accepted(state) - state.accepted

    @property
    def added(self) -> int:
        """Transactions that were ever added and not taken back."""
        return self._state.added + len(self._state.waiting)

    @property
    def accepted(self) -> int:
        """Events of those."""
        return self._accepted(self._state)

    @property
    def frames(self) -> int:
        """How often everything that waited was handed over."""
        return self._state.frames

    def open(
        self, phase: memoryview, well: int, memory: memoryview, counters: memoryview, most: int, /
    ) -> None:
        """Have `add_now` accept while `phase`, a word of 8 bytes, reads `well` and no more than `most`
        transactions and events wait, and `write` copy into a ring of that memory (ring.py) while it does.

        Here neither does anything: interpreted, both can be interrupted anywhere.
        """

    def shut(self) -> None:
        """Have both do nothing any more."""

    def begin(self) -> None:
        """Note when a transaction begins: the next one that is added took from then on."""
        self._began_ns = perf_counter_ns()

    def times(self) -> tuple[int, int | None]:
        """What time it is and how long it is since `begin`, in microseconds; None if there was none."""
        began, self._began_ns = self._began_ns, None
        return time_ns() // 1000, None if began is None else (perf_counter_ns() - began) // 1000

    def add_now(self, record: TransactionRecord, /) -> bool:
        """Add a transaction that ends now, if that takes no lock; whether it did. All of it is added or
        nothing, and no signal is handled and no other thread runs in between."""
        return False

    def add(self, record: TransactionRecord, time_us: int, duration_us: int | None, /) -> bool:
        """Add a transaction of exact types, all of it or nothing; whether it consists of those."""
        made = _Made()
        try:
            self._put(made, record, time_us, duration_us)
        except Exception:
            # What is wrong is said where it is pickled.
            return False
        self._accept(made.pieces(), len(record.events))
        return True

    def add_pickled(self, pickled: bytes, events: int, /) -> None:
        """Add any other transaction. Raises OverflowError where it is larger than `MOST_BYTES`."""
        if events < 0:
            raise ValueError(f"found {events} events")
        if len(pickled) > MOST_BYTES:
            raise OverflowError("a transaction is too large")
        self._accept([marshal.dumps(pickled, MARSHAL_VERSION)], events)

    def take_back(self) -> bool:
        """Forget the transaction that was added last; whether it still waits."""
        if not self._state.waiting:
            return False
        self._gone.append(self._state.waiting.pop())
        return True

    def write(self) -> bool:
        """Copy everything that waits into the ring, where something does and there is room in one
        place; whether it did. All of it is handed over then, or nothing."""
        return False

    def take(self) -> list[Piece]:
        """Everything that waits, as the pieces of a frame: it waits no more."""
        state = self._state
        pieces: list[Piece] = [b"[" + _SIZE.pack(len(state.waiting))]
        pieces += [piece for each in state.waiting for piece in each.pieces]
        pieces.insert(0, HEADER.pack(sum(map(len, pieces)), self._form))
        added = state.added + len(state.waiting)
        self._gone.append(pieces)
        self._state = _State([], state.frames + 1, added, self._accepted(state))
        return pieces

    def let_go(self) -> None:
        """Give back the objects that were kept for what does not wait any more. What comes at an object's
        end, calls of weak references above all, runs here and in no other method: so hold no lock."""
        gone, self._gone = self._gone, []
        gone.clear()

    def _accept(self, pieces: list[Piece], events: int) -> None:
        state = self._state
        state.waiting.append(_Waiting(pieces, self._accepted(state) + events))

    @staticmethod
    def _accepted(state: _State) -> int:
        return state.waiting[-1].accepted if state.waiting else state.accepted

    def _put(self, made: "_Made", record: TransactionRecord, time_us: int, duration_us: int | None) -> None:
        undone: Any = record.undone
        rolled_back: Any = record.rolled_back
        events: Any = record.events
        if type(undone) is not bytearray or type(rolled_back) is not bool or type(events) is not list:
            raise _Odd
        request_id: Any = record.request_id
        values = made.values
        values += [
            _text(record.op),
            None if request_id is None else _text(request_id),
            _text(record.reason),
            bytes(undone),
            rolled_back,
            time_us,
            duration_us,
            len(events),
        ]
        for event in events:
            number, tell, ways, types = self._packings[type(event)]
            values.append(number)
            for value, way, type_ in zip(tell(event), ways, types, strict=True):
                if type(value) is _AS_THEY_ARE.get(way & ~OPTIONAL):
                    values.append(value)
                else:
                    _put_field(made, value, way, type_)


class _Made:
    """The list that a transaction becomes, as pieces."""

    def __init__(self) -> None:
        self._count = 0
        self._pieces: list[Piece] = []
        self.values: list[Any] = []
        """What comes next; to be added to."""

    def put_held(self, piece: Piece) -> None:
        """Put bytes that are long by reference."""
        if len(piece) > MOST_BYTES:
            raise _Odd
        self._count += 1
        self._pieces += [self._marshalled() + b"s" + _SIZE.pack(len(piece)), piece]

    def pieces(self) -> list[Piece]:
        last = self._marshalled()
        return [b"[" + _SIZE.pack(self._count), *self._pieces, last]

    def _marshalled(self) -> bytes:
        """The values since the last piece, without the header of their list."""
        made = marshal.dumps(self.values, MARSHAL_VERSION)[1 + _SIZE.size :]
        self._count += len(self.values)
        self.values.clear()
        return made


def _put_field(made: _Made, value: Any, form: int, type_: Any) -> None:
    way = form & ~OPTIONAL
    if value is None and form & OPTIONAL:
        made.values.append(None)
        if way == ORIGIN:
            made.values.append(None)
    elif way in (PAGE_ARRAY, SUM_ARRAY):
        _put_array(made, value, way, type_)
    elif type(value) is not _TYPES.get(way, type_):
        raise _Odd
    elif way == TOKENS and len(value) > FEW_TOKEN_BYTES:
        made.put_held(value)
    elif way == ORIGIN:
        request_id, epoch = value.request_id, value.epoch
        if (request_id is not None and type(request_id) is not str) or type(epoch) is not int:
            raise _Odd
        made.values += [request_id, epoch]
    elif way == CHOICE:
        made.values.append(str.__str__(value))
    elif way == NUMBERS:
        made.values.append(value if _are_numbers(value) else pickle.dumps(value))
    else:
        made.values.append(value if way in _TYPES else pickle.dumps(value))


_AS_THEY_ARE: Final[dict[int, Any]] = {INT: int, BOOL: bool, TEXT: str}
_TYPES: Final[dict[int, Any]] = _AS_THEY_ARE | {TOKENS: bytes, NUMBERS: tuple}


def _put_array(made: _Made, value: Any, way: int, dtype: Any) -> None:
    if type(value) is not np.ndarray or value.dtype is not dtype or value.ndim != 1:
        raise _Odd
    array = np.ascontiguousarray(value)
    runs = _runs(array) if way == PAGE_ARRAY and MANY_ENTRIES <= len(array) <= MOST_ENTRIES else None
    if runs is not None:
        made.values.append((runs,))
    elif array.nbytes <= FEW_ARRAY_BYTES:
        made.values.append(array.tobytes())
    else:
        made.put_held(array.data.cast("B"))


def _runs(array: Any) -> bytes | None:
    """The runs of pages, None where they are too many.

    Unsigned, the step from the last int32 to the first is one like any other and continues a run; where pages
    are stored it does not (journal/arrays.py).
    """
    entries = array.view(np.uint32)
    begins = np.flatnonzero(np.diff(entries) != 1) + 1
    runs = len(begins) + 1
    if runs * ENTRIES_A_RUN > len(entries) or runs * 8 > MOST_BYTES:
        return None
    ends = np.append(begins, len(entries))
    begins = np.insert(begins, 0, 0)
    return np.stack([entries[begins], (ends - begins).astype(np.uint32)], axis=1).tobytes()


def _text(value: Any) -> str:
    """A text as one of the exact type: a class of the caller's own need not be known at the other end."""
    if type(value) is str:
        return value
    if not isinstance(value, str):
        raise _Odd
    return str.__str__(value)


def _are_numbers(values: tuple[Any, ...]) -> bool:
    for value in values:
        if type(value) is int:
            continue
        if type(value) is not tuple:
            return False
        for number in value:
            if type(number) is not int:
                return False
    return True


def expanded(runs: bytes, /) -> bytes:
    """The entries of pages that were handed over as runs. Raises ValueError where they were not."""
    if type(runs) is not bytes or len(runs) % 8:
        raise ValueError("runs are bytes, 8 each")
    firsts, lengths = np.frombuffer(runs, np.int32).reshape(-1, 2).T
    if (lengths < 1).any():
        raise ValueError("a run has at least one entry, and memory an end")
    ends = np.cumsum(lengths, dtype=np.int64)
    # Where a run begins in the whole is taken off its first entry: one count goes on through all of them.
    starts = np.repeat(firsts - (ends - lengths), lengths)
    return (starts + np.arange(len(starts), dtype=np.int64)).astype(np.int32).tobytes()

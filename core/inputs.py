"""The border: what callers pass in becomes packed tokens, page numbers, or a typed refusal.

Past this module tokens are `bytes` of little-endian int32 (four bytes a token, compared with
`memcmp`) and slots are page numbers. Nothing here knows the state of the cache.
"""

from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from kvledger.core.errors import ForeignSlots, InvalidArgument, UnalignedLength
from kvledger.core.events import Pages
from kvledger.core.ids import NAME_CHARACTERS
from kvledger.core.row_passes import pages_of, slots_of

TOKEN_BYTES: Final = 4
TOKEN_DTYPE = np.dtype("<i4")
_INT64: Final = np.dtype(np.int64)

Slots = npt.NDArray[np.int64]
"""int64[n] slot numbers."""

Count = int | np.integer[Any]
"""An integer of Python or NumPy: what a caller may give as a count. `check_count` makes an `int` of it."""


def as_integers(values: Any, what: str) -> npt.NDArray[Any]:
    """One-dimensional integer array of a sequence, NumPy array or torch tensor on any device."""
    try:
        if hasattr(values, "detach"):
            values = values.detach().cpu().numpy()
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        # NotImplementedError, which torch raises for tensors without data, is a RuntimeError.
        raise InvalidArgument(f"{what} must be integers: {error}") from error
    if array.size == 0 and array.ndim == 1:
        return array.astype(np.int64)
    if array.ndim != 1:
        raise InvalidArgument(f"{what} must be one-dimensional, not of shape {array.shape}")
    if array.dtype.kind not in "iu":
        raise InvalidArgument(f"{what} must be integers, not {array.dtype}")
    return array


def pack_tokens(tokens: Any) -> bytes:
    """Token ids as little-endian int32 bytes.

    `tokens`: integers in int32's range, shape [n]; an int32 array costs one copy, an int64 array a
    range check more, a list its conversion. Raises InvalidArgument. O(n).
    """
    if type(tokens) is np.ndarray and tokens.dtype == TOKEN_DTYPE and tokens.ndim == 1:
        return tokens.tobytes()
    array = as_integers(tokens, "tokens")
    if array.dtype != TOKEN_DTYPE:
        packed = array.astype(TOKEN_DTYPE)
        if not np.array_equal(packed, array):
            bad = array[packed != array][0]
            raise InvalidArgument(f"token {bad} is outside int32")
        array = packed
    return array.tobytes()


def unpack_tokens(packed: bytes | bytearray) -> npt.NDArray[np.int32]:
    """The int32[n] array of packed tokens, read-only; later changes of a bytearray do not reach it."""
    return np.frombuffer(bytes(packed), dtype=TOKEN_DTYPE)


def key_part(packed: bytes | bytearray, first: int, end: int) -> bytes:
    """The bytes [first, end) of packed tokens, as a key of the tree."""
    if isinstance(packed, bytes):
        return packed[first:end]
    return bytes(packed[first:end])


def num_tokens(packed: bytes | bytearray) -> int:
    """How many tokens are packed."""
    return len(packed) // TOKEN_BYTES


def check_namespace(namespace: Any) -> str:
    """A namespace is a string: no other type can then be mistaken for one that prints alike."""
    if type(namespace) is str and namespace.isascii():
        return namespace
    if not isinstance(namespace, str):
        raise InvalidArgument(f"namespace must be a string, not {type(namespace).__name__}")
    return _utf8(namespace, "namespace")


def check_name(name: Any, what: str) -> str:
    """The name of a request or an operation: a non-empty string that a column of SQL text can hold."""
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"{what} must be a non-empty string, not {name!r}")
    if "\x00" in name:
        raise InvalidArgument(f"{what} {name!r} contains a NUL character")
    return _utf8(name, what)


def check_request_id(request_id: Any) -> str:
    """A request's name, short enough to be indexed."""
    name = check_name(request_id, "request id")
    if len(name) > NAME_CHARACTERS:
        raise InvalidArgument(f"request id has {len(name)} characters, more than {NAME_CHARACTERS}")
    return name


def _utf8(text: str, what: str) -> str:
    """Refuse what no journal could store: lone surrogates."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"{what} {text!r} cannot be written as UTF-8") from error
    # A subclass of str would be stored, and compared, by rules of its own.
    return str.__str__(text)


def check_count(value: Any, what: str) -> int:
    """A count is an integer that is not negative; booleans are refused."""
    if type(value) is int and value >= 0:
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise InvalidArgument(f"{what} must be an integer, not {value!r}")
    if value < 0:
        raise InvalidArgument(f"{what} must not be negative, not {value}")
    return int(value)


def as_slots(slots: Any) -> Slots:
    """Slots of any integer dtype as int64[n] on the host, contiguous and aligned."""
    if type(slots) is np.ndarray and slots.dtype is _INT64 and slots.ndim == 1:
        flags = slots.flags
        if flags.c_contiguous and flags.aligned:
            return slots
    array = as_integers(slots, "slots")
    if array.dtype == np.uint64 and array.size and int(array.max()) > 2**63 - 1:
        raise ForeignSlots(f"slot {int(array.max())} is in no pool")
    own: Slots = np.require(array, np.int64, ["C", "A"])
    return own


class PageArithmetic:
    """Slots to pages and back for one page size and pool size."""

    __slots__ = ("page_size", "slot_limit")

    def __init__(self, page_size: int, full_pages: int) -> None:
        self.page_size = page_size
        self.slot_limit = (
            full_pages + 1
        ) * page_size  # of the Full pool: slots of the SWA pool never come in

    def whole(self, tokens: int, what: str) -> int:
        """Pages in `tokens`, which must be a multiple of the page size."""
        pages, rest = divmod(tokens, self.page_size)
        if rest:
            raise UnalignedLength(f"{what} {tokens} is not a multiple of the page size {self.page_size}")
        return pages

    def ceil(self, tokens: int) -> int:
        """Pages that hold `tokens` tokens."""
        return -(-tokens // self.page_size)

    def to_slots(self, pages: Pages, tokens: int | None = None) -> Slots:
        """Slots of the pages in order, the first `tokens` of them: int64[n], a fresh array. O(n)."""
        slots = slots_of(pages, self.page_size)
        return slots if tokens is None or tokens == len(slots) else slots[:tokens]

    def to_pages(self, slots: Any) -> Pages:
        """Page numbers of slots that name whole pages, each as consecutive slots.

        Raises UnalignedLength for a part of a page, ForeignSlots for slots of no pool or of the
        padding page. A read-only copy, O(n).
        """
        array = as_slots(slots)
        page = self.page_size
        if len(array) % page:
            raise UnalignedLength(f"{len(array)} slots are not whole pages: the page size is {page}")
        pages = pages_of(array, page, self.slot_limit)
        if pages is None:
            self._refuse(array)
        return pages

    def _refuse(self, slots: Slots) -> NoReturn:
        """Raise what is wrong with slots that are not those of whole pages of the pool."""
        first, last = int(slots.min()), int(slots.max())
        if first < self.page_size or last >= self.slot_limit:
            raise ForeignSlots(
                f"slots must lie in [{self.page_size}, {self.slot_limit}): found {first} to {last}"
            )
        raise UnalignedLength(f"slots do not form whole pages of {self.page_size} consecutive slots")

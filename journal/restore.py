"""A checkpoint's bytes back to the state they were made of (snapshot.py), strictly.

Decoding refuses what encoding cannot have written: counts and lengths that disagree, a node under one that
does not stand above it, a page outside its pool, anything missing or left over. Whether stored bytes were
changed into other valid bytes is the business of the hash over the checkpoint's row.
"""

from collections.abc import Sequence
from struct import unpack_from
from typing import Any

import numpy as np

from kvledger.core.errors import JournalFormatError
from kvledger.core.events import CacheOpened, Origin, Pages
from kvledger.core.ids import LeaseId, NodeId, RequestId
from kvledger.journal.arrays import packed_size, unpack_array
from kvledger.journal.fits import ReplayError
from kvledger.journal.places import FREE
from kvledger.journal.snapshot import (
    ABSENT,
    LEASE_COLUMNS,
    LIVE,
    MAGIC,
    NODE_COLUMNS,
    REQUEST_COLUMNS,
    SWA_ORIGIN,
    beside_pages,
    implied_places,
)
from kvledger.journal.state import Lease, Node, Request, State
from kvledger.journal.structure import check_opened
from kvledger.journal.tokens import POLICY_SETTING


def decode_state(data: bytes) -> State:
    """The state that `encode_state` made `data` of.

    Raises JournalFormatError, in one sentence, for anything that it cannot have written. Cost: O(state).
    """
    try:
        return _decode(_Source(data))
    except JournalFormatError as error:
        raise JournalFormatError(f"a checkpoint's state cannot be read: {error}") from error


class _Source:
    """Reads the layout from the front; whatever is missing or strange is a JournalFormatError."""

    def __init__(self, data: bytes) -> None:
        if type(data) is not bytes or data[: len(MAGIC)] != MAGIC:
            raise JournalFormatError("it does not begin with the mark of this version")
        self.data = data
        self.at = len(MAGIC)

    def take(self, size: int) -> int:
        """The place of the next `size` bytes, which are there."""
        at = self.at
        if size < 0 or at + size > len(self.data):
            raise JournalFormatError(f"{size} bytes are missing at byte {at} of {len(self.data)}")
        self.at = at + size
        return at

    def count(self) -> int:
        found: int = unpack_from("<q", self.data, self.take(8))[0]
        if not 0 <= found <= len(self.data):
            raise JournalFormatError(f"{found} stands where a number of rows belongs")
        return found

    def column(self, rows: int | None = None) -> list[int]:
        found = self.count()
        if rows is not None and found != rows:
            raise JournalFormatError(f"a column has {found} rows, not {rows}")
        at = self.take(found * 8)
        values: list[int] = np.frombuffer(self.data, "<i8", count=found, offset=at).tolist()
        return values

    def table(self, columns: int) -> list[tuple[int, ...]]:
        first = self.column()
        return list(zip(first, *[self.column(len(first)) for _ in range(columns - 1)], strict=True))

    def string(self) -> bytes:
        size = self.count()
        at = self.take(size)
        return self.data[at : at + size]

    def text(self) -> str:
        try:
            return self.string().decode()
        except UnicodeDecodeError as error:
            raise JournalFormatError(f"a text is no UTF-8: {error}") from error


def _decode(source: _Source) -> State:
    sizes = source.column(6)
    page_size, window, full_pages, swa_pages, generation, next_request_code = sizes
    recovery, policy = source.text(), source.text()
    opened = CacheOpened(page_size, window, full_pages, swa_pages, recovery, {POLICY_SETTING: policy})
    try:
        check_opened(opened)
    except ReplayError as error:
        raise JournalFormatError(error.problem) from error
    state = State(opened)
    state.generation, state.next_request_code = generation, next_request_code
    texts = [source.text() for _ in range(source.count())]
    node_rows = source.table(NODE_COLUMNS)
    tokens = source.string()
    lease_rows = source.table(LEASE_COLUMNS)
    request_rows = source.table(REQUEST_COLUMNS)
    codes = source.column()
    arrays = _arrays(source)

    def text(place: int) -> str:
        if not 0 <= place < len(texts):
            raise JournalFormatError(f"text {place} of {len(texts)} is named")
        return texts[place]

    def text_or_none(place: int) -> RequestId | None:
        return None if place == ABSENT else RequestId(text(place))

    nodes = _nodes(state, node_rows, tokens, arrays, text, text_or_none)
    for lease_id, row, namespace, request, length, swa_from, generation, held in lease_rows:
        lease = LeaseId(lease_id)
        if lease in state.leases or not (row == ABSENT or 0 <= row < len(nodes)) or held not in (0, 1):
            raise JournalFormatError(f"lease {lease} is stored twice, on node row {row}, or with {held}")
        state.leases[lease] = Lease(
            id=lease,
            node=None if row == ABSENT else nodes[row],
            namespace=text(namespace),
            request_id=text_or_none(request),
            length=length,
            swa_from=swa_from,
            generation=generation,
            swa_held=bool(held),
        )
    for name, namespace, epoch, code, lease_id in request_rows:
        request_id = RequestId(text(name))
        if request_id in state.requests:
            raise JournalFormatError(f"request {request_id!r} is stored twice")
        opened_request = Request(
            request_id=request_id,
            namespace=text(namespace),
            epoch=epoch,
            code=code,
            lease=None if lease_id == ABSENT else LeaseId(lease_id),
        )
        pages = _pages_within(next(arrays), state.full_pages, "a row")
        opened_request.write_row(pages, first_page=0, row_pages=len(pages))
        state.requests[request_id] = opened_request
    _place(state, nodes, codes, arrays)
    if not arrays.done() or source.at != len(source.data):
        raise JournalFormatError("something follows its end")
    return state


def _nodes(
    state: State,
    rows: Sequence[Sequence[int]],
    tokens: bytes,
    arrays: "_Arrays",
    text: Any,
    text_or_none: Any,
) -> list[Node]:
    nodes: list[Node] = []
    taken = 0
    for row in rows:
        node_id, above, namespace, start, stamp, full_lock, swa_lock, flags, *origins, size = row
        if node_id in state.nodes or node_id < 0 or flags not in range(4) or size < 0:
            raise JournalFormatError(f"node {node_id} is stored twice, or with flags {flags}")
        if above != ABSENT and not 0 <= above < len(nodes):
            raise JournalFormatError(f"node {node_id} stands under row {above}, which is not above it")
        parent = None if above == ABSENT else nodes[above]
        full = _pages_within(next(arrays), state.full_pages, f"node {node_id}")
        swa = _pages_within(next(arrays), state.swa_pages, f"node {node_id}", 0) if flags & LIVE else None
        if not len(full) or (swa is not None and len(swa) != len(full)):
            raise JournalFormatError(f"node {node_id} has {len(full)} Full pages and not as many SWA pages")
        node = Node(
            id=NodeId(node_id),
            namespace=text(namespace),
            parent=parent,
            start=start,
            end=start + len(full) * state.page_size,
            tokens=tokens[taken : taken + size],
            full=full,
            swa=swa,
            stamp=stamp,
            full_origin=Origin(text_or_none(origins[0]), origins[1]),
            swa_origin=Origin(text_or_none(origins[2]), origins[3]) if flags & SWA_ORIGIN else None,
            full_lock=full_lock,
            swa_lock=swa_lock,
        )
        taken += size
        state.nodes[node.id] = node
        state.siblings(node)[node.id] = node
        nodes.append(node)
    if taken != len(tokens):
        raise JournalFormatError(f"{len(tokens)} bytes of tokens are stored, its nodes have {taken}")
    return nodes


def _place(state: State, nodes: Sequence[Node], codes: Sequence[int], arrays: "_Arrays") -> None:
    """Give every page its place: what the nodes imply, then what is stored beside it."""
    full_at, mapping, _ = implied_places(state, nodes)
    inside = slice(1, state.full_pages + 1)
    state.full_at[inside] = full_at[inside]
    for code in codes:
        state.full_at[_pages_within(next(arrays), state.full_pages, "a place")] = code
    mapped, values = next(arrays), next(arrays)
    _pages_within(mapped, state.full_pages, "the mapping")
    _pages_within(values, state.swa_pages, "the mapping", FREE)
    if len(mapped) != len(values):
        raise JournalFormatError("the mapping has more pages than peers, or fewer")
    state.mapping[:] = mapping
    state.mapping[mapped] = values
    inside = slice(1, state.swa_pages + 1)
    state.swa_at[inside] = beside_pages(state, state.mapping)[inside]
    strayed, places = next(arrays), next(arrays)
    _pages_within(strayed, state.swa_pages, "an SWA place")
    if len(strayed) != len(places):
        raise JournalFormatError("there are more SWA pages than places, or fewer")
    state.swa_at[strayed] = places


def _arrays(source: _Source) -> "_Arrays":
    elements = source.column()
    runs = source.column(len(elements))
    arrays: list[Pages] = []
    for entry in zip(elements, runs, strict=True):
        size = packed_size(list(entry))
        arrays.append(unpack_array(list(entry), source.data, source.take(size)))
    return _Arrays(arrays)


class _Arrays:
    """An iterator over arrays whose early end is a JournalFormatError, unless a default is asked for."""

    def __init__(self, arrays: Sequence[Pages]) -> None:
        self._left = list(reversed(arrays))

    def __next__(self) -> Pages:
        if not self._left:
            raise JournalFormatError("it has too few page arrays")
        return self._left.pop()

    def done(self) -> bool:
        return not self._left


def _pages_within(pages: Pages, last: int, what: str, first: int = 1) -> Pages:
    if len(pages) and not (int(pages.min()) >= first and int(pages.max()) <= last):
        raise JournalFormatError(f"{what} names a page outside {first}..{last}")
    return pages

"""A request: the handle a scheduler works with from the first token to the last.

The handle holds no state of its own. What is canonical (row, lease) changes by events; the rest
is progress: tokens, how many have slots, how many are computed, the frontier. Progress has no
event, but an open transaction remembers it and puts it back.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from kvledger.core.commit import commit, publish
from kvledger.core.errors import InvalidArgument, StaleLease
from kvledger.core.events import CallIgnored, Cause, RequestClosed, RequestOpened, RequestRowChanged
from kvledger.core.eviction import make_room
from kvledger.core.free_pages import EMPTY
from kvledger.core.held_pages import free_held, free_held_swa, take_pages
from kvledger.core.ids import RequestId
from kvledger.core.inputs import (
    Count,
    PageArithmetic,
    Slots,
    check_count,
    num_tokens,
    pack_tokens,
    unpack_tokens,
)
from kvledger.core.locking import match_and_lock, receipt, release, release_swa, reusable_bytes
from kvledger.core.matching import Walk, publish_length
from kvledger.core.results import Committed, Lease
from kvledger.core.state import LeaseState, RequestState
from kvledger.core.transaction import Ledger, Scope


class Request:
    """One request of a scheduler. Made by `HybridCache.open_request`, closed by finish or abort.

    Every method of a closed request, or of one born in an undone transaction, raises StaleLease, and so do
    `slots` and `lease`; after a reset `finish` and `abort` are journaled no-ops. Lengths and counts go
    on telling what they were last.
    """

    __slots__ = ("_arithmetic", "_ledger", "_state")

    def __init__(self, ledger: Ledger, arithmetic: PageArithmetic, state: RequestState) -> None:
        self._ledger = ledger
        self._arithmetic = arithmetic
        self._state = state

    # What it is.

    @property
    def id(self) -> RequestId:
        """The scheduler's name for it."""
        return self._state.id

    @property
    def namespace(self) -> str:
        """The namespace its tokens live in."""
        return self._state.namespace

    @property
    def tokens(self) -> npt.NDArray[np.int32]:
        """All its token ids, int32[n], a copy."""
        return unpack_tokens(self._state.tokens)

    @property
    def num_tokens(self) -> int:
        """How many token ids it has."""
        return num_tokens(self._state.tokens)

    @property
    def prefix_len(self) -> int:
        """Tokens that needed no prefill when it was opened or resumed."""
        return self._state.prefix_len

    @property
    def branch_len(self) -> int:
        """Branch point beyond `prefix_len`, or `prefix_len`: worth a `commit(upto=branch_len)`."""
        return self._state.branch_len

    @property
    def publish_len(self) -> int:
        """Where a first `commit` is worth most: the branch point, or where this row will likely be left.

        It equals `branch_len` with eviction "lru", and `prefix_len` where nothing is worth it.
        """
        return self._state.publish_len

    @property
    def protected_len(self) -> int:
        """Tokens of the row that lie on the locked path."""
        return self._state.protected

    @property
    def reserved(self) -> int:
        """Tokens that have slots."""
        return self._state.reserved

    @property
    def computed_len(self) -> int:
        """Tokens whose KV is there."""
        return self._state.computed

    @property
    def frontier(self) -> int:
        """Position before which its own SWA slots were given back."""
        return self._state.frontier

    @property
    def waiting(self) -> bool:
        """True between `retract` and `refresh`."""
        return self._state.lease is None

    @property
    def lease(self) -> Lease | None:
        """The lock it holds, None while it waits. It is the request's: `release` refuses it."""
        state = self._open(self._ledger.check_reader)
        lease = state.lease
        if lease is None:
            return None
        pages = state.row_slice(0, lease.length // self._arithmetic.page_size)
        return receipt(lease, pages, self._arithmetic)

    @property
    def slots(self) -> Slots:
        """Full slot of each token that has one: int64[reserved], a copy. O(reserved)."""
        state = self._open(self._ledger.check_reader)
        return self._arithmetic.to_slots(state.row[: state.row_pages], state.reserved)

    def slots_of(self, start: Count, end: Count) -> Slots:
        """Full slots of the tokens [start, end), all of which have some: int64[end - start]. O(n)."""
        state = self._open(self._ledger.check_reader)
        start, end = check_count(start, "start"), check_count(end, "end")
        if not start <= end <= state.reserved:
            raise InvalidArgument(f"[{start}, {end}) is not within the {state.reserved} tokens with slots")
        page = self._arithmetic.page_size
        first = start // page
        rows = self._arithmetic.to_slots(state.row[first : self._arithmetic.ceil(end)])
        return rows[start - first * page : end - first * page]

    # What it does.

    def extend(self, n: Count) -> None:
        """Reserve slots for the next `n` tokens, evicting as needed. O(pages taken + evicted).

        OutOfSlots where free and evictable pages do not suffice; nothing has changed then.
        """
        state = self._open()
        n = check_count(n, "extend")
        self._locked(state, "extend")
        pages = self._arithmetic.ceil(state.reserved + n) - state.row_pages
        if pages <= 0:
            self._note_progress()
            state.reserved += n
            return
        ledger = self._ledger
        with Scope(ledger, "extend", state.id):
            make_room(ledger, pages)
            self._note_progress()
            take_pages(ledger, pages, with_swa=True, owner=state.id, row_start=state.row_pages)
            state.reserved += n

    def computed(self, upto: Count | None = None) -> None:
        """The KV of the first `upto` tokens is in the pool; None: of all that have slots. Never shrinks."""
        state = self._open()
        limit = min(state.reserved, self.num_tokens)
        upto = limit if upto is None else check_count(upto, "computed upto")
        if upto > limit:
            raise InvalidArgument(
                f"computed({upto}) of request {state.id!r}: it has {self.num_tokens} tokens, "
                f"{state.reserved} of them with slots"
            )
        if upto > state.computed:
            self._note_progress()
            state.computed = upto

    def append(self, token_ids: Any) -> None:
        """Add generated tokens. O(tokens)."""
        state = self._open()
        packed = pack_tokens(token_ids)
        length = len(state.tokens)

        def cut() -> None:
            del state.tokens[length:]

        self._ledger.note(cut)
        state.tokens += packed

    def commit(self, upto: Count | None = None) -> Committed:
        """Publish computed tokens before `upto` (None: all) while the request goes on.

        The tree takes over what it lacks, the row moves to the tree's slots where it had them already,
        and the lock moves to the new end, in one transaction. Nothing to do at or below the
        protected length. InvalidArgument for tokens not computed, or for an end less than a window
        past a frontier beyond the protected length. O(pages published + nodes on the path).
        """
        state = self._open()
        upto = state.computed if upto is None else check_count(upto, "commit upto")
        if upto > state.computed:
            raise InvalidArgument(
                f"commit({upto}) of request {state.id!r}: only {state.computed} tokens are computed"
            )
        page = self._arithmetic.page_size
        end = upto // page * page
        protected = state.protected
        if end <= protected:
            return Committed(protected, [], 0)
        window = self._ledger.state.window
        frontier = state.frontier
        if frontier > 0 and protected <= frontier and end < frontier + window:
            raise InvalidArgument(
                f"commit({upto}) of request {state.id!r} ends less than a window of {window} past the "
                f"frontier {frontier}: nobody could reuse it"
            )
        lease = self._locked(state, "commit")
        with Scope(self._ledger, "commit", state.id):
            return commit(self._ledger, state, lease, end)

    def slide(self) -> int:
        """Give back own SWA slots behind the window, and the SWA lock once it lies there; tokens given back.

        The frontier moves to `max(0, page_floor(i) - page_ceil(max(W, P)))`, i = last computed index.
        O(pages given back + window).
        """
        state = self._open()
        page = self._arithmetic.page_size
        last = max(0, state.computed - 1)
        frontier = max(state.frontier, last // page * page - self._ledger.state.window_tokens)
        lease = state.lease
        if lease is None:
            return 0
        unlock = lease.swa_held and 0 < lease.length <= frontier
        given_back = max(0, frontier - max(state.protected, state.frontier))
        if not unlock and not given_back:
            if frontier > state.frontier:
                self._note_progress()
                state.frontier = frontier
            return 0
        start = frontier - given_back
        ledger = self._ledger
        with Scope(ledger, "slide", state.id):
            self._note_progress()
            state.frontier = frontier
            if unlock:
                release_swa(ledger, lease)
            if given_back:
                full = state.row_slice(start // page, frontier // page)
                free_held_swa(ledger, state.id, full, Cause.WINDOW)
        return given_back

    def refresh(self) -> None:
        """Match again, for a request that waits or owns no slots yet: row, node, length and lease change.

        InvalidArgument for a request that owns slots. O(tokens compared + nodes on the path).
        """
        state = self._open()
        old = state.lease
        if state.reserved > state.protected:
            raise InvalidArgument(f"request {state.id!r} owns slots: refresh() is for requests that wait")
        ledger = self._ledger
        with Scope(ledger, "refresh", state.id):
            self._note_progress()
            limit = reusable_bytes(ledger.state, state.tokens)
            found, pages, lease = match_and_lock(
                ledger, namespace=state.namespace, key=state.tokens, limit=limit, request_id=state.id
            )
            epoch = state.epoch
            if old is None:
                epoch = ledger.state.new_epoch()
            else:
                release(ledger, old)
            ledger.apply(RequestRowChanged(state.id, epoch, lease.id, 0, pages, len(pages)))
            ledger.state.counters.hit_tokens += found.length - (0 if old is None else old.length)
            start_progress(state, found, publish_length(ledger.state, found, self.num_tokens))

    def finish(self) -> None:
        """Publish all whole computed pages, give the rest back and close. O(own pages + path)."""
        self._close("finish", Cause.FINISH)

    def abort(self) -> None:
        """Give everything back and close; nothing is published. O(own pages + path)."""
        self._close("abort", Cause.ABORT)

    def retract(self) -> None:
        """Publish like finish, give everything back and wait for `refresh`. O(own pages + path)."""
        state = self._open()
        lease = self._locked(state, "retract")
        with Scope(self._ledger, "retract", state.id):
            self._note_progress()
            self._give_up(state, lease, Cause.RETRACT)
            self._ledger.apply(RequestRowChanged(state.id, state.epoch, None, 0, EMPTY, 0))
            state.reserved = state.computed = state.frontier = state.prefix_len = 0
            state.branch_len = state.publish_len = 0

    # How.

    def _open(self, check_thread: Callable[[], None] | None = None) -> RequestState:
        """The state of a request that is open, seen from the owning thread."""
        (check_thread or self._ledger.check_writer)()
        state = self._state
        if self._ledger.state.requests.get(state.id) is not state:
            raise StaleLease(f"request {state.id!r} is closed, or was opened in an undone transaction")
        return state

    @staticmethod
    def _locked(state: RequestState, call: str) -> LeaseState:
        """The lease of a request that does not wait."""
        if state.lease is None:
            raise InvalidArgument(f"request {state.id!r} waits: refresh() it before {call}()")
        return state.lease

    def _close(self, op: str, cause: Cause) -> None:
        state, ledger = self._state, self._ledger
        ledger.check_writer()
        if state.closed_by is Cause.RESET:
            with Scope(ledger, op, state.id):
                ledger.apply(CallIgnored(op, None, state.id, state.generation))
            return
        self._open()
        with Scope(ledger, op, state.id):
            if state.lease is not None:
                self._give_up(state, state.lease, cause)
            ledger.apply(RequestClosed(state.id, cause))

    def _give_up(self, state: RequestState, lease: LeaseState, cause: Cause) -> None:
        """Publish unless aborted, free what is left and unlock."""
        page = self._arithmetic.page_size
        first = lease.length // page
        if cause is not Cause.ABORT:
            publish(self._ledger, state, lease)
            first = max(first, state.computed // page)
        free_held(self._ledger, state.id, state.row_slice(first, state.row_pages), cause)
        release(self._ledger, lease)

    def _note_progress(self) -> None:
        """Let the open transaction put progress back if it is undone."""
        state = self._state
        before = (
            state.reserved,
            state.computed,
            state.frontier,
            state.prefix_len,
            state.branch_len,
            state.publish_len,
        )

        def put_back() -> None:
            (
                state.reserved,
                state.computed,
                state.frontier,
                state.prefix_len,
                state.branch_len,
                state.publish_len,
            ) = before

        self._ledger.note(put_back)


def open_request(
    ledger: Ledger, arithmetic: PageArithmetic, request_id: RequestId, tokens: bytes, namespace: str
) -> Request:
    """Match at most all tokens but the last, lock that, and open a request on it."""
    state = ledger.state
    if request_id in state.requests:
        raise InvalidArgument(f"request {request_id!r} is open already")
    if not tokens:
        raise InvalidArgument(f"request {request_id!r} has no tokens")
    with Scope(ledger, "open_request", request_id):
        found, pages, lease = match_and_lock(
            ledger,
            namespace=namespace,
            key=tokens,
            limit=reusable_bytes(state, tokens),
            request_id=request_id,
        )
        ledger.apply(RequestOpened(request_id, namespace, state.new_epoch(), lease.id, pages))
        request = state.requests[request_id]
        request.tokens = bytearray(tokens)
        start_progress(request, found, publish_length(state, found, num_tokens(tokens)))
        state.counters.hit_tokens += found.length
    return Request(ledger, arithmetic, request)


def start_progress(state: RequestState, found: Walk, publish_len: int) -> None:
    """A request's progress right after a match."""
    state.reserved = state.computed = state.prefix_len = found.length
    state.branch_len = found.reached
    state.publish_len = publish_len
    state.frontier = 0

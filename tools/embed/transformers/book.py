"""The scheduler's requests, as the cache knows them: admission, progress and goodbye, with the call of each.

    scheduler                            cache
    looks for a prefix of a prompt       match_prefix, can_fit, then open_request or refresh
    wants room for a batch's tokens      extend (before it open_request or refresh, in one transaction)
    ran the batch                        computed, commit, append, slide
    takes a request back to the queue    retract
    is done with a request               finish
    cancels or fails a request           abort

The scheduler decides in the thread of its loop, while others may ask how it goes: each call takes a lock,
and hands the cache over when it ends. A request that cannot be taken is a `RefusedRequest`; any other error,
also one of the cache's that names a wrong argument, is a fault of the embedding and kept in `failure`; after
one, goodbyes change the cache no more.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np

from kvledger.core import HybridCache
from kvledger.core.errors import InvalidArgument, OutOfSlots, TransactionError
from kvledger.core.inputs import Slots
from kvledger.core.requests import Request
from kvledger.tools.embed.transformers.prompts import (
    RefusedRequest,
    Tokens,
    check_runnable,
    packed_prompt,
)


@dataclass(slots=True)
class Entry:
    """One request: `finished` once its last token came, `requeued` from retraction to the next goodbye."""

    request: Request
    prompt: Tokens
    finished: bool = False
    requeued: bool = False


@dataclass(slots=True)
class BookCounts:
    """What happened to requests; tokens are counted when a request is admitted for the first time."""

    requests: int = 0
    finished: int = 0
    aborted: int = 0
    retractions: int = 0
    prompt_tokens: int = 0
    saved_tokens: int = 0
    resumed_saved_tokens: int = 0


class RequestBook:
    """Requests by the scheduler's ids. Any thread may call, one at a time for one request."""

    def __init__(self, cache: HybridCache, *, vocabulary: int) -> None:
        self.cache = cache
        self._vocabulary = vocabulary
        self.counts = BookCounts()
        self.failure: Exception | None = None
        self._page_size = cache.config.page_size
        self._entries: dict[str, Entry] = {}
        self._prefilling: dict[str, Entry] = {}  # those whose prompt is in the batch that is being made
        self._packed: dict[str, tuple[Sequence[int], Tokens]] = {}  # prompts that wait: asked for each batch
        self._may_start: str | None = None  # who was told 0 by `match` just now, and need not wait
        self._lock = threading.Lock()
        self._holder: int | None = None  # the thread that has the lock

    # Admission

    def vet(self, request_id: str, prompt: Sequence[int]) -> None:
        """Look at a request before it gets into the queue. RefusedRequest for one that could never run.

        That is an id that is in use or is no name, and a prompt that is empty, longer than the Full pool, or
        holds what is no token id of the model. One that comes back to the queue was looked at before.
        """
        with self._at_work():
            tokens = packed_prompt(request_id, prompt)
            if self._waiting(request_id, tokens) is None:
                check_runnable(
                    request_id, tokens, vocabulary=self._vocabulary, most=self.cache.config.full_tokens
                )

    def match(self, request_id: str, prompt: Sequence[int], *, chunk: int) -> int:
        """Lock the longest reusable prefix of a waiting request; how many tokens need no prefill.

        With 0 the request owns nothing yet. It is 0 too for one that has to wait: while there is no room for
        what comes next, the rest of the prompt or a `chunk` of it, because who cannot run must not hold a
        lock; and while the batch being made computes more of its prefix. RefusedRequest for an id that
        runs already, or tokens that are none.
        """
        with self._at_work():
            tokens = self._pack(request_id, prompt)
            entry = self._waiting(request_id, tokens)
            self._may_start = None
            found = self.cache.match_prefix(tokens[:-1]).length
            if self._should_wait(tokens, found):
                return 0
            if not found:
                self._may_start = request_id
                return 0
            if not self.cache.can_fit(tokens, min(len(tokens) - found, chunk)):
                return 0
            request = self._admit(request_id, tokens, entry)
            self._enter(request, tokens, entry)
            return request.prefix_len

    def reserve(self, request_id: str, prompt: Sequence[int], *, start: int, end: int) -> bool:
        """Slots for the tokens [start, end); False, and nothing has changed, where there is no room.

        A request that owns nothing is admitted with its `prompt`, if `match` was asked just before and found
        nothing for it: what it did not lock because the request has to wait is not computed again beside it.
        """
        with self._at_work():
            entry = self._entries.get(request_id)
            if entry is not None and not entry.request.waiting:
                try:
                    entry.request.extend(max(0, end - entry.request.reserved))
                except OutOfSlots:
                    return False
                self._note_prefill(entry, end)
                return True
            tokens = self._pack(request_id, prompt)
            if self._may_start != request_id or not self.cache.can_fit(tokens, end - start):
                return False
            self._may_start = None
            with self.cache.transaction("admit", request_id):
                request = self._admit(request_id, tokens, entry)
                request.extend(end - start)
            self._note_prefill(self._enter(request, tokens, entry), end)
            return True

    def pages_missing(self, request_id: str, *, end: int) -> int:
        """How many more pages a request needs in each pool before it has slots for its first `end` tokens."""
        with self._at_work():
            entry = self._entries.get(request_id)
            reserved = 0 if entry is None else entry.request.reserved
            return max(0, -(-end // self._page_size) - -(-reserved // self._page_size))

    def room(self) -> tuple[int, int]:
        """Pages (Full, SWA) that are free or may be evicted."""
        with self._at_work():
            sizes = self.cache.sizes()
        page = self._page_size
        return (
            (sizes.full.free + sizes.full.evictable) // page,
            (sizes.swa.free + sizes.swa.evictable) // page,
        )

    def slots(self, request_id: str, *, end: int, swa_from: int) -> tuple[Slots, Slots]:
        """Full slots of the tokens [0, end) of a request, and SWA slots of [swa_from, end), 0 for none."""
        with self._at_work():
            full = self._entries[request_id].request.slots_of(0, end)
            return full, self.cache.swa_slots(full[swa_from:])

    # Progress

    def ran(
        self, request_id: str, *, upto: int, prefilled: int, generated: Sequence[int], finished: bool
    ) -> None:
        """A batch computed the KV of the first `upto` tokens: `prefilled` ones and all `generated` since.

        Whole pages are published at once, so that requests which wait can share them. O(new tokens), and what
        publishing a page costs.
        """
        with self._at_work():
            entry = self._entries[request_id]
            request = entry.request
            self._prefilling.pop(request_id, None)
            before = request.computed_len // self._page_size
            request.computed(upto)
            if upto // self._page_size > before:
                request.commit()
            sampled = generated[request.num_tokens - prefilled :]
            if sampled:
                request.append(np.asarray(sampled, dtype=np.int32))
            entry.finished = finished
            if not finished:
                request.slide()

    def end_step(self, flush: Callable[[], None]) -> None:
        """A batch is over: what it did shall be on disk when `flush` returns."""
        with self._at_work():
            flush()

    # Goodbye

    def retract(self, request_id: str) -> None:
        """Back to the queue: publish what is computed, give back the rest. The next goodbye is void."""
        with self._at_work():
            entry = self._entries[request_id]
            self._prefilling.pop(request_id, None)
            entry.request.retract()
            entry.requeued = True
            self.counts.retractions += 1

    def leave(self, request_id: str) -> None:
        """Goodbye, once: publish and close, or give all back where the last token never came."""
        self._packed.pop(request_id, None)
        entry = self._entries.get(request_id)
        if entry is None:
            return
        if entry.requeued:
            entry.requeued = False
            return
        self._entries.pop(request_id, None)
        self._prefilling.pop(request_id, None)
        if self.failure is not None:
            return
        # The scheduler says goodbye to all when it fails, and must get to the end of it: an error that this
        # brings up stays in `failure`, where the end of the block finds it.
        with suppress(Exception), self._at_work():
            if entry.finished:
                entry.request.finish()
                self.counts.finished += 1
            else:
                entry.request.abort()
                self.counts.aborted += 1

    def leave_all(self) -> None:
        """Goodbye to every request, those in the queue included."""
        for request_id, entry in list(self._entries.items()):
            entry.requeued = False
            self.leave(request_id)
        self._packed.clear()

    def forget(self) -> None:
        """Drop all that is cached. InvalidArgument while a request runs or waits."""
        if self._entries:
            raise InvalidArgument(f"{len(self._entries)} requests still need what is cached")
        with self._at_work():
            self.cache.reset()

    def close(self) -> None:
        """Goodbye to all, and a digest for the audit to reproduce."""
        if self.failure is None:
            self.leave_all()
            with self._at_work():
                self.cache.checkpoint()

    @contextmanager
    def asking(self) -> Iterator[HybridCache]:
        """The cache, for questions from any thread. TransactionError in a thread that has it already."""
        me = threading.get_ident()
        if self._holder == me:
            raise TransactionError("this thread has the cache already: leave the block that gave it first")
        with self._lock:
            self._holder = me
            try:
                yield self.cache
            finally:
                self._holder = None
                self.cache.hand_over()

    # How

    def _pack(self, request_id: str, prompt: Sequence[int]) -> Tokens:
        """The prompt as an array, made once for each list that the scheduler comes with."""
        known = self._packed.get(request_id)
        if known is None or known[0] is not prompt:
            known = self._packed[request_id] = (prompt, packed_prompt(request_id, prompt))
        return known[1]

    def _waiting(self, request_id: str, tokens: Tokens) -> Entry | None:
        """The entry of a request that waits, None for one that was never admitted."""
        entry = self._entries.get(request_id)
        if entry is None:
            return None
        if not entry.request.waiting:
            raise RefusedRequest(f"request id {request_id!r} is in use: ids of requests that run must differ")
        if not np.array_equal(entry.request.tokens, tokens):
            # Somebody else's prompt under an id that is in the queue already.
            raise RefusedRequest(f"request id {request_id!r} waits with other tokens: ids must differ")
        return entry

    def _admit(self, request_id: str, tokens: Tokens, entry: Entry | None) -> Request:
        """Open a new request, or refresh one that was retracted."""
        if entry is None:
            return self.cache.open_request(request_id, tokens)
        entry.request.refresh()
        return entry.request

    def _enter(self, request: Request, tokens: Tokens, entry: Entry | None) -> Entry:
        """Write down an admission that the journal has taken."""
        self._packed.pop(request.id, None)
        if entry is not None:
            entry.prompt = tokens
            self.counts.resumed_saved_tokens += request.prefix_len
            return entry
        entry = self._entries[request.id] = Entry(request, tokens)
        self.counts.requests += 1
        self.counts.prompt_tokens += len(tokens)
        self.counts.saved_tokens += request.prefix_len
        return entry

    def _note_prefill(self, entry: Entry, end: int) -> None:
        if entry.request.computed_len < min(end, len(entry.prompt)):
            self._prefilling[entry.request.id] = entry

    def _should_wait(self, tokens: Tokens, found: int) -> bool:
        """Whether the batch being made computes a page or more of the prompt past the `found` tokens."""
        most = len(tokens) - 1
        for entry in self._prefilling.values():
            coming = min(most, entry.request.reserved, len(entry.prompt))
            shared = coming - coming % self._page_size
            if shared > found and entry.prompt[0] == tokens[0]:
                differ = np.flatnonzero(entry.prompt[:shared] != tokens[:shared])
                same = int(differ[0]) if len(differ) else shared
                if same - same % self._page_size > found:
                    return True
        return False

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Own the cache for a call. An error that is not a refused request's stays in `failure`."""
        with self.asking():
            if self.failure is not None:
                raise self.failure
            try:
                yield
            except RefusedRequest:
                raise
            except Exception as error:
                if self.failure is None:
                    self.failure = error
                raise

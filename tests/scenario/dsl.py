"""The words in which the worked cases are told: INS, MATCH, LOCK, ADVANCE, EVICT, START, SLIDE and the rest.

Token runs are written as in the cases: "1..8, 100..103" is eight tokens and then four, both ends
included. STATE takes the six figures `FE SE FP SP FA SA`: Full and SWA tokens evictable, protected and
free. After each word the cache is walked, the pools are added up, the journal is replayed to the same
digest and the audit passes, so a story needs to tell only what is its own.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kvledger.core import Advanced, Committed, Evicted, HybridCache, Inserted, Lease, Request
from tests.support.witness import Witness, open_cache

Slots = npt.NDArray[np.int64]


Prompt = str | Sequence[int] | npt.NDArray[np.int32]


def tokens(text: Prompt) -> npt.NDArray[np.int32]:
    """Expand "1..4, 100" into int32 tokens 1 2 3 4 100; a plain sequence is taken as it is."""
    if not isinstance(text, str):
        return np.asarray(text, dtype=np.int32)
    runs: list[int] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        first, _, last = part.partition("..")
        runs.extend(range(int(first), int(last or first) + 1))
    return np.asarray(runs, dtype=np.int32)


class Story:
    """One cache and the words to work it with; `last` is the allocation of the latest INS."""

    def __init__(
        self, *, page: int = 1, window: int = 4, full: int = 64, swa: int = 64, **policies: object
    ) -> None:
        self.cache, self.sink = open_cache(page=page, window=window, full=full, swa=swa, **policies)
        self.witness = Witness(self.cache, self.sink)
        self.last: Slots = np.empty(0, dtype=np.int64)
        self.see()

    def see(self) -> None:
        """Look at everything that has to hold after any word."""
        self.witness.look()
        self.witness.verdict()

    def ALLOC(self, count: int) -> Slots:
        slots = self.cache.alloc(count)
        self.see()
        return slots

    def INS(self, text: Prompt, *, dead: int = 0, own: int = 0, namespace: str = "") -> int:
        """Allocate and insert; the result is `prefix_len`."""
        return self.INSERT(text, dead=dead, own=own, namespace=namespace).prefix_len

    def INSERT(
        self,
        text: Prompt,
        slots: Slots | None = None,
        *,
        dead: int = 0,
        own: int = 0,
        namespace: str = "",
    ) -> Inserted:
        """INS with its whole result, or over slots that are already at hand."""
        row = tokens(text)
        if slots is None:
            kept = self.cache.match_prefix(row, namespace).slots[:own]
            slots = np.concatenate([kept, self.cache.alloc(len(row) - own)])
            if dead:
                self.cache.free_swa(slots[own:dead])
        self.last = slots
        result = self.cache.insert(row, slots, namespace, protected_len=own, swa_evicted_len=dead)
        self.see()
        return result

    def MATCH(self, text: Prompt, namespace: str = "") -> int:
        return self.cache.match_prefix(tokens(text), namespace).length

    def SLOTS(self, text: Prompt, namespace: str = "") -> list[int]:
        """The slots MATCH would reuse."""
        return list(self.cache.match_prefix(tokens(text), namespace).slots)

    def LOCK(self, text: Prompt, namespace: str = "") -> Lease:
        lease = self.cache.acquire(tokens(text), namespace)
        self.see()
        return lease

    def UNLOCK(self, lease: Lease) -> None:
        self.cache.release(lease)
        self.see()

    def RELSWA(self, lease: Lease) -> None:
        self.cache.release_swa(lease)
        self.see()

    def AFTER(
        self, lease: Lease, text: Prompt, slots: Slots | None = None, *, dead: int = 0, keep: bool = False
    ) -> Inserted:
        """Allocate and insert behind a lease, or over slots that are at hand."""
        row, slots = self.behind(lease, text, slots, dead=0 if keep else dead)
        result = self.cache.insert_after(lease, row, slots, swa_evicted_len=dead)
        self.see()
        return result

    def ADVANCE(
        self, lease: Lease, text: Prompt, slots: Slots | None = None, *, dead: int = 0, keep: bool = False
    ) -> Advanced:
        """The same, and the lock moves; with `keep` the SWA before `dead` is still there."""
        row, slots = self.behind(lease, text, slots, dead=0 if keep else dead)
        result = self.cache.advance(lease, row, slots, swa_evicted_len=dead)
        self.see()
        return result

    def behind(
        self, lease: Lease, text: Prompt, slots: Slots | None, *, dead: int
    ) -> tuple[npt.NDArray[np.int32], Slots]:
        """Tokens that continue a lease, with their slots, `last`; the SWA before `dead` is given back."""
        row = tokens(text)
        if slots is None:
            slots = self.cache.alloc(len(row))
            if dead > lease.length:
                self.cache.free_swa(slots[: dead - lease.length])
        self.last = slots
        return row, slots

    def EVICT(self, full: int, swa: int) -> tuple[int, int]:
        evicted: Evicted = self.cache.evict(full_tokens=full, swa_tokens=swa)
        self.see()
        return (evicted.full_tokens, evicted.swa_tokens)

    def OPEN(self, name: str, text: Prompt) -> Request:
        request = self.cache.open_request(name, tokens(text))
        self.see()
        return request

    def EXTEND(self, request: Request, count: int) -> None:
        request.extend(count)
        self.see()

    def START(self, name: str, text: Prompt) -> Request:
        """Open a request, reserve slots for what was not reused, and compute it all."""
        request = self.OPEN(name, text)
        self.EXTEND(request, len(tokens(text)) - request.prefix_len)
        request.computed()
        return request

    def UNF(self, request: Request, upto: int | None = None) -> Committed:
        committed = request.commit(upto)
        self.see()
        return committed

    def SLIDE(self, request: Request) -> int:
        given_back: int = request.slide()
        self.see()
        return given_back

    def REFRESH(self, request: Request) -> None:
        request.refresh()
        self.see()

    def FIN(self, request: Request) -> None:
        request.finish()
        self.see()

    def ABORT(self, request: Request) -> None:
        request.abort()
        self.see()

    def RETRACT(self, request: Request) -> None:
        request.retract()
        self.see()

    def STATE(self, figures: str) -> None:
        """Compare with as many of `FE SE FP SP FA SA` as are given."""
        wanted = [int(figure) for figure in figures.split()]
        assert self.figures()[: len(wanted)] == wanted

    def HELD(self, full: int, swa: int) -> None:
        sizes = self.cache.sizes()
        assert (sizes.full.held, sizes.swa.held) == (full, swa)

    def figures(self) -> list[int]:
        """The six figures of STATE as they are now."""
        sizes = self.cache.sizes()
        return [
            sizes.full.evictable,
            sizes.swa.evictable,
            sizes.full.protected,
            sizes.swa.protected,
            sizes.full.free,
            sizes.swa.free,
        ]

    def REST(self, figures: str) -> None:
        """STATE, and nothing is held by anybody."""
        self.STATE(figures)
        self.HELD(0, 0)


__all__ = ["HybridCache", "Slots", "Story", "tokens"]

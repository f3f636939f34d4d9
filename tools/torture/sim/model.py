"""A deliberately naive model of the cache: one dictionary entry per page of tokens, no tree, no counts.

The tree is a dictionary from (namespace, every token up to the end of a page) to the Full page that
stands there. What a lock protects, what is free, what may go: all of it is worked out anew from the leases
and the pages each time somebody asks. Nothing here is shared with the cache. Which pages an allocation hands
out and which nodes an eviction takes is told to the model, which checks that both were possible; whether
an eviction took the right ones is not its business (tests/reference/eviction.py).

Tokens are tuples of ints, pages are page numbers, lengths are tokens. What cannot be is a Finding.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from kvledger.tools.torture.sim.finding import Finding, require

Tokens = tuple[int, ...]
Key = tuple[str, Tokens]


@dataclass
class Lock:
    """A lease: Full to the root, SWA on [swa_from, length) while it is held."""

    namespace: str
    tokens: Tokens
    swa_from: int
    swa_held: bool = True

    @property
    def length(self) -> int:
        return len(self.tokens)


@dataclass
class Running:
    """A request: its row by page and how far it has come."""

    namespace: str
    tokens: list[int]
    row: list[int]
    lock: int | None
    protected: int
    reserved: int
    computed: int
    frontier: int = 0
    waiting: bool = False

    def copy(self) -> Self:
        """A request to come back to."""
        return replace(self, tokens=list(self.tokens), row=list(self.row))


@dataclass(frozen=True)
class Usable:
    """What a match says."""

    length: int
    full_length: int
    pages: tuple[int, ...]

    @property
    def branch_length(self) -> int:
        return max(self.length, self.full_length)


@dataclass
class Adopted:
    """What an insert says, in tokens."""

    prefix_len: int
    full: list[tuple[int, int]] = field(default_factory=list)
    swa: list[tuple[int, int]] = field(default_factory=list)


class Lacking(Exception):
    """An incoming page that must have an SWA peer has none."""


class TooClose(Exception):
    """What would be locked ends less than a window past SWA that was given back."""


def widen(ranges: list[tuple[int, int]], start: int, end: int) -> None:
    """Add a range behind the others, merged with the last one where they touch."""
    if ranges and ranges[-1][1] == start:
        start = ranges.pop()[0]
    ranges.append((start, end))


class NaiveCache:
    """The state, and each operation as the rules tell it."""

    def __init__(self, *, page: int, window: int, full_pages: int, swa_pages: int, remap: bool) -> None:
        self.page = page
        self.window = window
        self.pages = {"full": full_pages, "swa": swa_pages}
        self.remap = remap
        self.tree: dict[Key, int] = {}
        self.peer: dict[int, int] = {}
        self.held: dict[int, str | None] = {}
        self.deferred: dict[str, set[int]] = {"full": set(), "swa": set()}
        self.locks: dict[int, Lock] = {}
        self.requests: dict[str, Running] = {}
        self.next_lock = 0

    def copy(self) -> Self:
        """A state to come back to. Cost: O(pages + rows)."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.tree, other.peer, other.held = dict(self.tree), dict(self.peer), dict(self.held)
        other.deferred = {pool: set(pages) for pool, pages in self.deferred.items()}
        other.locks = {number: replace(lock) for number, lock in self.locks.items()}
        other.requests = {name: request.copy() for name, request in self.requests.items()}
        return other

    # Questions.

    def floor(self, tokens: int) -> int:
        return tokens // self.page * self.page

    def ceil(self, tokens: int) -> int:
        return -(-tokens // self.page) * self.page

    def keys(self, namespace: str, tokens: Sequence[int]) -> list[Key]:
        """The keys of the pages of `tokens` in order, whether they are in the tree or not."""
        row = tuple(tokens)
        return [(namespace, row[:end]) for end in range(self.page, len(row) + 1, self.page)]

    def match(self, namespace: str, tokens: Sequence[int], limit: int | None = None) -> Usable:
        """The longest prefix that ends on a page with enough live SWA before it."""
        pages: list[int] = []
        usable = run = 0
        met_tombstone = False
        for key in self.keys(namespace, tokens):
            if key not in self.tree:
                break
            pages.append(self.tree[key])
            if pages[-1] in self.peer:
                run += self.page
            else:
                met_tombstone, run = True, 0
            within = limit is None or len(key[1]) <= limit
            if within and (not met_tombstone or run >= self.window):
                usable = len(key[1])
        return Usable(usable, len(pages) * self.page, tuple(pages[: usable // self.page]))

    def full_lock(self, key: Key) -> int:
        """How many leases protect the Full page at a key."""
        namespace, tokens = key
        return sum(
            lock.namespace == namespace and lock.tokens[: len(tokens)] == tokens
            for lock in self.locks.values()
        )

    def swa_lock(self, key: Key) -> int:
        """How many leases protect the SWA page at a key."""
        namespace, tokens = key
        return sum(
            lock.swa_held
            and lock.namespace == namespace
            and lock.tokens[: len(tokens)] == tokens
            and len(tokens) > lock.swa_from
            for lock in self.locks.values()
        )

    def locked_keys(self, pool: str) -> set[Key]:
        """Every place that some lease protects in a pool."""
        return {
            key
            for lock in self.locks.values()
            if pool == "full" or lock.swa_held
            for key in self.keys(lock.namespace, lock.tokens)
            if pool == "full" or len(key[1]) > lock.swa_from
        }

    def lock_counts(self) -> tuple[Counter[Key], Counter[Key]]:
        """How many leases protect each place: in the Full pool, and in the SWA pool."""
        full, swa = Counter[Key](), Counter[Key]()
        for lock in self.locks.values():
            keys = self.keys(lock.namespace, lock.tokens)
            full.update(keys)
            swa.update(key for key in keys if lock.swa_held and len(key[1]) > lock.swa_from)
        return full, swa

    def sizes(self, pool: str) -> dict[str, int]:
        """Tokens of a pool by what may become of them."""
        total = self.pages[pool]
        locked = self.locked_keys(pool)
        if pool == "full":
            in_tree, held = len(self.tree), len(self.held)
            protected = len(self.tree.keys() & locked)
        else:
            live = {key for key, full in self.tree.items() if full in self.peer}
            in_tree, held = len(live), sum(full in self.peer for full in self.held)
            protected = len(live & locked)
        held += len(self.deferred[pool])
        counts = {
            "total": total,
            "free": total - in_tree - held,
            "evictable": in_tree - protected,
            "protected": protected,
            "held": held,
        }
        return {name: count * self.page for name, count in counts.items()}

    def fits(self, pages: int) -> bool:
        """Whether that many pages are free or may go, in both pools."""
        return all(
            sizes["free"] + sizes["evictable"] >= pages * self.page
            for sizes in (self.sizes("full"), self.sizes("swa"))
        )

    def fits_free(self, pages: int) -> bool:
        """Whether that many pages are free in both pools."""
        return self.lacking(pages) == (0, 0)

    def lacking(self, pages: int) -> tuple[int, int]:
        """Tokens (full, swa) that have to be evicted before so many pages are free."""
        wanted = pages * self.page
        return (
            max(0, wanted - self.sizes("full")["free"]),
            max(0, wanted - self.sizes("swa")["free"]),
        )

    def can_fit(self, namespace: str, tokens: Sequence[int], new_tokens: int) -> bool:
        """Admission, by trying it on a copy."""
        trial = self.copy()
        trial.lock(namespace, tokens, limit=max(0, len(tokens) - 1))
        return trial.fits(self.ceil(new_tokens) // self.page)

    # Pages.

    def take(self, full: Iterable[int], swa: Iterable[int], owner: str | None) -> None:
        """Pages that the cache says it handed out: they must have been free, and never padding."""
        taken, peers = list(full), list(swa)
        in_use = set(self.tree.values()) | set(self.held) | self.deferred["full"]
        in_use_swa = set(self.peer.values()) | self.deferred["swa"]
        named = [page for page in peers if page]
        for pool, pages, used in (("full", taken, in_use), ("swa", named, in_use_swa)):
            require(len(set(pages)) == len(pages), "allocation", pool, "pages handed out twice:", pages)
            require(not used.intersection(pages), "allocation", pool, "pages that somebody has:", pages)
            require(
                all(1 <= page <= self.pages[pool] for page in pages),
                "allocation",
                pool,
                "no such pages:",
                pages,
            )
        for page, peer in zip(taken, peers, strict=True):
            self.held[page] = owner
            if peer:
                self.peer[page] = peer

    def give_full(self, page: int) -> None:
        """A Full page that nobody holds any more waits for the outermost commit."""
        self.held.pop(page, None)
        self.deferred["full"].add(page)

    def give_swa(self, page: int) -> bool:
        """The peer of a Full page waits for the outermost commit; False where there was none."""
        peer = self.peer.pop(page, None)
        if peer is not None:
            self.deferred["swa"].add(peer)
        return peer is not None

    def give(self, page: int) -> None:
        self.give_swa(page)
        self.give_full(page)

    def settle(self) -> None:
        """The outermost transaction committed."""
        self.deferred = {"full": set(), "swa": set()}

    def evicted(self, deleted: Iterable[int], tombstoned: Iterable[int]) -> None:
        """Full pages whose tree position went, and those that lost their SWA: free at once."""
        gone, dead = set(deleted), set(tombstoned)
        full_locked, swa_locked = self.locked_keys("full"), self.locked_keys("swa")
        for key, page in self.tree.items():
            if (page in gone and key in full_locked) or (page in gone | dead and key in swa_locked):
                raise Finding("eviction", f"page {page} is locked, and eviction took it")
        self.tree = {key: page for key, page in self.tree.items() if page not in gone}
        for page in gone | dead:
            self.peer.pop(page, None)
        for namespace, tokens in self.tree:
            above = (namespace, tokens[: -self.page])
            if above[1] and above not in self.tree:
                raise Finding("eviction", f"what lies above page {self.tree[namespace, tokens]} is gone")

    # The tree.

    def insert(
        self, namespace: str, tokens: Sequence[int], pages: Sequence[int], *, protected: int, dead: int
    ) -> Adopted:
        """Take over what is new or heals a tombstone, give the rest back."""
        keys = self.keys(namespace, tokens)
        for key, page in zip(keys, pages, strict=True):
            if len(key[1]) > max(protected, dead) and page not in self.peer:
                raise Lacking(page)
        adopted = Adopted(prefix_len=self.match(namespace, tokens).full_length)
        for key, page in zip(keys, pages, strict=True):
            end = len(key[1])
            start = end - self.page
            if end <= protected:
                continue
            if key not in self.tree:
                self.tree[key] = page
                self.held.pop(page)
                widen(adopted.full, start, end)
                if start < dead:
                    self.give_swa(page)
                else:
                    widen(adopted.swa, start, end)
            elif self.tree[key] in self.peer or start < dead:
                self.give(page)
            elif not self.full_lock(key):
                self.give_full(self.tree[key])
                self.tree[key] = page
                self.held.pop(page)
                widen(adopted.full, start, end)
                widen(adopted.swa, start, end)
            elif self.remap:
                self.peer[self.tree[key]] = self.peer.pop(page)
                self.give_full(page)
                widen(adopted.swa, start, end)
            else:
                self.give(page)
        return adopted

    def lock(self, namespace: str, tokens: Sequence[int], limit: int | None = None) -> tuple[int, Usable]:
        """Match and lock: the lock's number and the match."""
        usable = self.match(namespace, tokens, limit)
        number = self.next_lock
        self.next_lock += 1
        self.locks[number] = Lock(
            namespace,
            tuple(tokens[: usable.length]),
            max(0, usable.length - self.ceil(self.window)),
        )
        return number, usable

    def insert_behind(
        self, number: int, tokens: Sequence[int], pages: Sequence[int], *, dead: int
    ) -> Adopted:
        """Insert what continues a lock: the whole, with the lock's own pages named as protected."""
        lock = self.locks[number]
        row = (*lock.tokens, *tokens)
        own = [self.tree[key] for key in self.keys(lock.namespace, lock.tokens)]
        return self.insert(lock.namespace, row, [*own, *pages], protected=lock.length, dead=dead)

    def advance(
        self, number: int, tokens: Sequence[int], pages: Sequence[int], *, dead: int
    ) -> tuple[int, int]:
        """Publish what a match then accepts and lock that instead: the lock's number, the tokens refused."""
        lock = self.locks[number]
        namespace, row = lock.namespace, (*lock.tokens, *tokens)
        trial = self.copy()
        trial.insert_behind(number, tokens, pages, dead=dead)
        given_back = dead if dead > lock.length else 0
        if not lock.swa_held:
            given_back = max(dead, lock.length)
        if tokens and given_back and len(row) < given_back + self.window:
            raise TooClose
        accepted = trial.match(namespace, row).length
        if accepted <= lock.length:
            require(not tokens or not self.remap, "insert-match", "nothing of an advance is accepted")
            return number, len(tokens)
        kept = accepted - lock.length
        self.insert_behind(number, tokens[:kept], pages[: kept // self.page], dead=dead)
        del self.locks[number]
        moved, usable = self.lock(namespace, row[:accepted])
        require(usable.length == accepted, "insert-match", "an advance accepts what it does not match")
        return moved, len(row) - accepted

    def forget(self) -> None:
        """Reset: no leases, no nodes, no requests; raw pages stay with their callers."""
        self.locks.clear()
        for page in list(self.tree.values()):
            self.peer.pop(page, None)
        self.tree.clear()
        for page in [page for page, owner in self.held.items() if owner is not None]:
            self.peer.pop(page, None)
            del self.held[page]
        self.requests.clear()

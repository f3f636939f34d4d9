"""Requests on top of the naive model: what each method does to row, locks and pages."""

from collections.abc import Sequence

from kvledger.tools.torture.sim.finding import require
from kvledger.tools.torture.sim.model import NaiveCache, Running, widen


class NaiveRequests(NaiveCache):
    """The naive cache with requests; `extend` is told which pages it got."""

    def own_pages(self, request: Running) -> list[int]:
        """Pages of the row that are the request's, not the tree's."""
        return request.row[request.protected // self.page :]

    def open(self, name: str, namespace: str, tokens: Sequence[int]) -> Running:
        number, usable = self.lock(namespace, tokens, limit=max(0, len(tokens) - 1))
        length = usable.length
        self.requests[name] = Running(
            namespace, list(tokens), list(usable.pages), number, length, length, length
        )
        return self.requests[name]

    def pages_for(self, request: Running, count: int) -> int:
        """New pages that `count` more tokens take."""
        return (self.ceil(request.reserved + count) - self.ceil(request.reserved)) // self.page

    def extend(self, name: str, count: int, pages: Sequence[int], peers: Sequence[int]) -> None:
        request = self.requests[name]
        self.take(pages, peers, name)
        request.row.extend(pages)
        request.reserved += count

    def commit_length(self, request: Running, upto: int | None) -> int:
        """Where the commit would end: whole pages of computed tokens."""
        return self.floor(request.computed if upto is None else upto)

    def too_close(self, request: Running, length: int) -> bool:
        """Whether a commit that ends here would have too little live SWA before it."""
        frontier = request.frontier
        return frontier > 0 and frontier >= request.protected and length < frontier + self.window

    def commit(self, name: str, upto: int | None) -> tuple[int, list[tuple[int, int]], int]:
        """Publish; (length, changed ranges of the row, refused)."""
        request = self.requests[name]
        length = self.commit_length(request, upto)
        if length <= request.protected:
            return request.protected, [], 0
        trial = self.copy()
        trial.publish(trial.requests[name], length)
        accepted = trial.match(request.namespace, request.tokens[:length]).length
        if accepted <= request.protected:
            require(not self.remap or accepted == length, "insert-match", "nothing of a commit is accepted")
            return request.protected, [], length - request.protected
        self.publish(request, accepted)
        if request.lock is not None:
            del self.locks[request.lock]
        request.lock, usable = self.lock(request.namespace, request.tokens[:accepted])
        require(usable.length == accepted, "insert-match", "a commit accepts what it does not match")
        changed: list[tuple[int, int]] = []
        for i, page in enumerate(usable.pages):
            if request.row[i] != page:
                request.row[i] = page
                widen(changed, i * self.page, (i + 1) * self.page)
        request.protected = accepted
        return accepted, changed, length - accepted

    def publish(self, request: Running, length: int) -> None:
        """Insert the first `length` tokens of a request, its own SWA dead before the frontier."""
        self.insert(
            request.namespace,
            request.tokens[:length],
            request.row[: length // self.page],
            protected=request.protected,
            dead=request.frontier,
        )

    def slide(self, name: str) -> int:
        request = self.requests[name]
        if not request.computed:
            return 0
        last = request.computed - 1
        behind = self.floor(last) - self.ceil(max(self.window, self.page))
        request.frontier = max(request.frontier, behind)
        given_back = 0
        for page in request.row[request.protected // self.page : request.frontier // self.page]:
            given_back += self.page if self.give_swa(page) else 0
        lock = self.locks[request.lock] if request.lock is not None else None
        if lock is not None and lock.length and request.frontier >= lock.length:
            lock.swa_held = False
        return given_back

    def refresh(self, name: str) -> None:
        request = self.requests[name]
        if request.lock is not None:
            del self.locks[request.lock]
        request.lock, usable = self.lock(
            request.namespace, request.tokens, limit=max(0, len(request.tokens) - 1)
        )
        request.row = list(usable.pages)
        request.protected = request.reserved = request.computed = usable.length
        request.frontier = 0
        request.waiting = False

    def leave(self, name: str, *, publish: bool, wait: bool = False) -> None:
        """finish, abort and retract: publish or not, give the rest back, close or wait."""
        request = self.requests[name]
        length = self.floor(request.computed)
        kept = request.protected
        if publish and length > request.protected:
            self.publish(request, length)
            kept = length
        for page in request.row[kept // self.page :]:
            self.give(page)
        if request.lock is not None:
            del self.locks[request.lock]
        if wait:
            request.row, request.lock, request.waiting = [], None, True
            request.protected = request.reserved = request.computed = request.frontier = 0
        else:
            del self.requests[name]

"""Steps on requests, and whole stories that make states worth trying come up often enough."""

from kvledger.core.errors import (
    InvalidArgument,
    OutOfSlots,
    StaleLease,
)
from tests.property.side_by_side import MOST_LEASES, MOST_REQUESTS, Pick
from tests.property.steps_leases import LeaseSteps


class RequestSteps(LeaseSteps):
    """Each step calls one method of a request, or tells a story of a few."""

    def open(self, pick: Pick) -> None:
        if len(self.model.requests) >= MOST_REQUESTS:
            return
        namespace, row = self.prompt(pick)
        count = 1 + pick(8 * self.page)
        fits = self.cache.can_fit(row, count, namespace)
        assert fits == self.model.can_fit(namespace, row, count)
        self.names += 1
        name = f"r{self.names}"
        handle = self.cache.open_request(name, row, namespace)
        wanted = self.model.open(name, namespace, row)
        self.requests[name] = handle
        assert handle.prefix_len == wanted.protected
        assert handle.branch_len >= handle.prefix_len
        assert self.model.fits(self.model.pages_for(wanted, count)) == fits

    def extend(self, pick: Pick) -> None:
        name = self.some_request(pick)
        if name is None:
            return
        request, handle = self.model.requests[name], self.requests[name]
        left = len(request.tokens) - request.reserved
        if not left:
            return
        count = left if pick(2) else 1 + pick(left)
        needed = self.model.pages_for(request, count)
        if not self.model.fits(needed):
            self.refused(OutOfSlots, lambda: handle.extend(count))
            return
        self.reserve(name, count, needed)

    def reserve(self, name: str, count: int, needed: int) -> None:
        """Extend where there is room, evicting what the rules say."""
        request, handle = self.model.requests[name], self.requests[name]
        views = list(self.cache.nodes())
        full, swa = self.model.lacking(needed)
        gone = self.victims(full, swa)
        had = len(request.row)
        handle.extend(count)
        self.lose(views, gone)
        new = self.slots(self.pages(handle.slots)[had:])
        self.model.extend(name, count, self.pages(new), self.peers(new))

    def computed(self, pick: Pick) -> None:
        name = self.some_request(pick)
        if name is None:
            return
        request = self.model.requests[name]
        more = request.reserved - request.computed
        upto = None if pick(3) else request.computed + pick(more + 1)
        self.requests[name].computed(upto)
        request.computed = request.reserved if upto is None else upto

    def commit(self, pick: Pick) -> None:
        name = self.some_request(pick)
        if name is None:
            return
        request, handle = self.model.requests[name], self.requests[name]
        upto = None if pick(3) else pick(request.computed + 1)
        length = self.model.commit_length(request, upto)
        if length > request.protected and self.model.too_close(request, length):
            self.refused(InvalidArgument, lambda: handle.commit(upto))
            return
        found = handle.commit(upto)
        changed, refused = [tuple(part) for part in found.row_changed], found.refused
        assert (found.length, changed, refused) == self.model.commit(name, upto)

    def append(self, pick: Pick) -> None:
        name = self.some_request(pick, waiting=pick(4) == 0)
        if name is None:
            return
        request = self.model.requests[name]
        if len(request.tokens) > 8 * self.page:
            return
        new = [pick(2)] * (1 + pick(self.page))
        self.requests[name].append(new)
        request.tokens.extend(new)
        self.probe(request.namespace, request.tokens)

    def slide(self, pick: Pick) -> None:
        name = self.some_request(pick)
        if name is not None:
            assert self.requests[name].slide() == self.model.slide(name)

    def refresh(self, pick: Pick) -> None:
        name = self.some_request(pick, waiting=pick(3) > 0)
        if name is None:
            return
        if self.model.own_pages(self.model.requests[name]):
            self.refused(InvalidArgument, self.requests[name].refresh)
            return
        self.requests[name].refresh()
        self.model.refresh(name)
        assert self.requests[name].prefix_len == self.model.requests[name].protected

    def finish(self, pick: Pick) -> None:
        name = self.some_request(pick, waiting=pick(6) == 0)
        if name is not None:
            self.requests[name].finish()
            self.closed(name, publish=True)

    def abort(self, pick: Pick) -> None:
        name = self.some_request(pick, waiting=pick(6) == 0)
        if name is not None:
            self.requests[name].abort()
            self.closed(name, publish=False)

    def closed(self, name: str, *, publish: bool) -> None:
        self.model.leave(name, publish=publish)
        handle = self.requests.pop(name)
        self.refused(StaleLease, handle.slide)

    def retract(self, pick: Pick) -> None:
        name = self.some_request(pick)
        if name is not None:
            self.requests[name].retract()
            self.model.leave(name, publish=True, wait=True)

    # Whole stories, so that states worth trying come up often enough.

    def serve(self, pick: Pick) -> None:
        """A request from its prompt to all its KV."""
        before = set(self.model.requests)
        self.open(pick)
        for name in set(self.model.requests) - before:
            request, handle = self.model.requests[name], self.requests[name]
            count = len(request.tokens) - request.reserved
            needed = self.model.pages_for(request, count)
            if self.model.fits(needed):
                self.reserve(name, count, needed)
                handle.computed()
                request.computed = request.reserved

    def lock_and_lose(self, pick: Pick) -> None:
        """A lock whose SWA half is given up at once, and SWA pressure."""
        before = set(self.leases)
        self.acquire(pick)
        for number in set(self.leases) - before:
            self.cache.release_swa(self.leases[number])
            self.model.locks[number].swa_held = False
            self.press(0, (1 + pick(12)) * self.page)

    def contend(self, pick: Pick) -> None:
        """Somebody publishes what a request has computed, locks it and loses SWA of it, before it commits."""
        name = self.some_request(pick)
        if name is None:
            return
        request = self.model.requests[name]
        row = request.tokens[: self.model.floor(request.computed)]
        pages = len(row) // self.page
        if not pages or not self.model.fits_free(pages):
            return
        slots = self.cache.alloc(len(row))
        self.model.take(self.pages(slots), self.peers(slots), None)
        self.cache.insert(row, slots, request.namespace)
        self.model.insert(request.namespace, row, self.pages(slots), protected=0, dead=0)
        for early, length in ((False, pick(pages + 1) * self.page), (True, len(row))):
            if len(self.leases) >= 2 * MOST_LEASES:
                return
            number, _ = self.model.lock(request.namespace, row, length)
            self.leases[number] = self.cache.acquire(row, request.namespace, max_length=length)
            if early:
                self.cache.release_swa(self.leases[number])
                self.model.locks[number].swa_held = False
        self.press(0, (1 + pick(12)) * self.page)

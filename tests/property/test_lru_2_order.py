"""Under "lru-2" what goes next follows from the tree and its marks alone, whatever was undone before.

Rows that are much longer than a window and its margin, and marks as learning sets them, at random: windows
are cut, margins change while windows are set aside, and each eviction is held against the rules.
"""

from collections.abc import Sequence

import pytest

from kvledger.core.events import Event, NodeDeleted, SwaTombstoned
from tests.reference.retention import Taken, learned, taken_by_lru2
from tests.support.pressed import Pressed
from tests.support.witness import Witness

WINDOW = 5
STEPS = 120
ROWS = 6


class Asked(Pressed):
    """A cache under random use, with somebody who asks all the time what would go next."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, window=WINDOW, longest=40, eviction="lru-2")
        self.margins: set[int] = set()
        self.cuts = 0

    def insert(self) -> None:
        row = self.row()
        self.rows = [*self.rows, row][-ROWS:]
        missing = [len(row) - pool.free for pool in (self.cache.sizes().full, self.cache.sizes().swa)]
        self.evict(max(0, missing[0]), max(0, missing[1]))
        self.cache.insert(row, self.cache.alloc(len(row)))

    def mark(self) -> None:
        """A mark changes, as `learning` changes it."""
        state = self.cache._state
        retention = state.retention
        assert retention is not None
        if not state.nodes:
            return
        node = self.dice.choice(list(state.nodes.values()))
        if self.dice.random() < 0.5:
            node.rank = self.dice.randrange(-1, 3)
            retention.offer(node)
        else:
            node.ends_row = not node.ends_row
            retention.reconsider(node)

    def evict(self, full: int, swa: int) -> None:
        """What goes is what the rules say, in their order."""
        if not full and not swa:
            return
        wanted = self.wanted(full, swa)
        self.cache.evict(full_tokens=full, swa_tokens=swa)
        assert went(self.sink.transactions[-1].events) == wanted.order
        self.cuts += wanted.cuts

    def some(self) -> None:
        self.evict(0, self.dice.randrange(40))

    def wanted(self, full: int, swa: int) -> Taken:
        return taken_by_lru2(self.cache, full_tokens=full, swa_tokens=swa, window=WINDOW, page=self.page)

    def ask(self) -> None:
        """Evict, publish and evict again, and undo it: what was set aside meanwhile must not show later."""
        before = learned(self.cache)
        swa = self.dice.randrange(1, 200)
        wanted = self.wanted(0, swa)
        with self.cache.transaction("asked") as transaction:
            self.cache.evict(swa_tokens=swa)
            row, sizes = self.row(), self.cache.sizes()
            if len(row) <= min(sizes.full.free, sizes.swa.free):
                self.cache.insert(row, self.cache.alloc(len(row)))
                self.cache.evict(swa_tokens=self.dice.randrange(30))
            transaction.rollback()
        assert went(self.sink.transactions[-1].events)[: len(wanted.order)] == wanted.order
        assert learned(self.cache) == before


def went(events: Sequence[Event]) -> list[tuple[str, int]]:
    """Kind and first Full page of each node that an eviction took."""
    return [
        (event.kind, int(event.full_pages[0]))
        for event in events
        if isinstance(event, NodeDeleted | SwaTombstoned)
    ]


@pytest.mark.parametrize("seed", range(24))
def test_what_goes_next_follows_from_the_tree_and_its_marks_alone(seed: int) -> None:
    pressed = Asked(seed)
    for number in range(STEPS):
        step = pressed.dice.choice(("insert", "insert", "lock", "unlock", "mark", "mark", "some", "ask"))
        try:
            getattr(pressed, step)()
        except BaseException as error:
            error.add_note(f"seed {seed}, step {number}: {step}")
            raise
        pressed.margins.add(learned(pressed.cache).margin)
    pressed.evict(0, 300)
    assert pressed.cuts > 3
    assert len(pressed.margins) > 1
    witness = Witness(pressed.cache, pressed.sink)
    witness.look()
    witness.verdict()

"""Under "lru" what goes next follows from the tree and its stamps alone, whatever was undone before.

The queues are lazy: what was set aside, offered twice or undone must not show. Rows that share heads and are
longer than a window, locked and unlocked, healed and split, and each eviction is held against the rules
worked out the slow way. Some three seconds.
"""

import pytest

from kvledger.core.events import NodeDeleted, SwaTombstoned
from tests.reference.eviction import Evictions, evictions
from tests.support.pressed import Pressed
from tests.support.witness import Witness

WINDOW = 5
STEPS = 100
ROWS = 6


class Asked(Pressed):
    """A cache under random use, with somebody who asks all the time what would go next."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, window=WINDOW, longest=25)
        self.taken = 0

    def insert(self) -> None:
        row = self.dice.choice(self.rows) if self.rows and self.dice.random() < 0.3 else self.row()
        self.rows = [*self.rows, row][-ROWS:]
        sizes = self.cache.sizes()
        if len(row) <= min(sizes.full.free, sizes.swa.free):
            self.cache.insert(row, self.cache.alloc(len(row)))

    def swa(self) -> None:
        self.evict(0, self.dice.randrange(20))

    def full(self) -> None:
        self.evict(self.dice.randrange(30), 0)

    def evict(self, full: int, swa: int) -> None:
        """What goes is what the rules say, in their order."""
        wanted = self.wanted(full, swa)
        told = len(self.sink.transactions)
        self.cache.evict(full_tokens=full, swa_tokens=swa)
        self.compare(wanted, told)

    def wanted(self, full: int, swa: int) -> Evictions:
        return evictions(self.cache.nodes(), full_tokens=full, swa_tokens=swa, window=WINDOW)[0]

    def compare(self, wanted: Evictions, told: int) -> None:
        """The first evictions since transaction `told` are those."""
        events = [event for one in self.sink.transactions[told:] for event in one.events]
        deleted = [event.node for event in events if isinstance(event, NodeDeleted)]
        tombstoned = [event.node for event in events if isinstance(event, SwaTombstoned)]
        assert deleted[: len(wanted.deleted)] == wanted.deleted
        assert tombstoned[: len(wanted.tombstoned)] == wanted.tombstoned
        self.taken += len(wanted.deleted) + len(wanted.tombstoned)

    def ask(self) -> None:
        """Evict, publish, lock, evict again, and undo it all: nothing of it must show later."""
        full, swa = self.dice.randrange(30), self.dice.randrange(30)
        wanted = self.wanted(full, swa)
        before, told = self.cache.digest(), len(self.sink.transactions)
        with self.cache.transaction("asked") as transaction:
            self.cache.evict(full_tokens=full, swa_tokens=swa)
            self.insert()
            self.cache.release(self.cache.acquire(self.row()))
            self.cache.evict(self.dice.randrange(30), self.dice.randrange(30))
            transaction.rollback()
        self.compare(wanted, told)
        assert self.cache.digest() == before


@pytest.mark.parametrize("seed", range(24))
def test_what_goes_next_follows_from_the_tree_and_its_stamps_alone(seed: int) -> None:
    pressed = Asked(seed)
    for number in range(STEPS):
        step = pressed.dice.choice(("insert", "insert", "insert", "lock", "unlock", "swa", "full", "ask"))
        try:
            getattr(pressed, step)()
        except BaseException as error:
            error.add_note(f"seed {seed}, step {number}: {step}")
            raise
    pressed.evict(800, 600)
    assert pressed.taken > 50
    witness = Witness(pressed.cache, pressed.sink)
    witness.look()
    witness.verdict()

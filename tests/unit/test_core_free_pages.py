"""The free set against a plain one: the lowest pages, whatever the order in which they came back."""

import random

import numpy as np
import pytest

from kvledger.core.free_pages import FreePages


@pytest.mark.parametrize("seed", range(40))
def test_it_hands_out_the_lowest_pages_however_they_came_back(seed: int) -> None:
    dice = random.Random(seed)
    total = dice.choice([1, 7, 60, 500])
    pages, free, out = FreePages(total), set(range(1, total + 1)), list[int]()
    for _ in range(200):
        if dice.random() < 0.5:
            wanted = dice.randint(0, len(free))
            got = pages.take(wanted)
            assert got.tolist() == sorted(free)[:wanted]
            assert got.dtype == np.int32
            free.difference_update(got.tolist())
            out += got.tolist()
        else:
            for _ in range(dice.randint(1, 4)):
                back = dice.sample(out, dice.randint(0, len(out)))
                out = [page for page in out if page not in set(back)]
                free.update(back)
                pages.give(np.array(back, dtype=np.int32))
        assert pages.count == len(free)


def test_pages_that_it_hands_out_are_arrays_of_their_own() -> None:
    pages = FreePages(8)
    back = pages.take(8)
    back.setflags(write=False)
    pages.give(back)
    for got in (pages.take(3), pages.take(5)):
        got[:] = 0  # its owner's from here on
    assert back.tolist() == list(range(1, 9))

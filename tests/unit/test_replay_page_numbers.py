"""A page that no pool has is refused wherever it stands; 0 is "no peer" beside a Full page, and no other."""

import pytest

from kvledger.core.events import PagesAllocated
from kvledger.journal.effects import EFFECTS
from kvledger.journal.fits import ReplayError
from kvledger.journal.replay import open_state
from kvledger.journal.structure import STRUCTURE
from tests.support.stored_events import opened, pages

POOL_PAGES = 64
"""Of either pool, as `opened` gives them."""


def allocate(full: list[int], swa: list[int]) -> None:
    state = open_state(opened())
    event = PagesAllocated(None, pages(full), pages(swa), None)
    EFFECTS[PagesAllocated](state, event, STRUCTURE[PagesAllocated](state, event))


@pytest.mark.parametrize("first", [1, POOL_PAGES])
@pytest.mark.parametrize("swa", [0, 1, POOL_PAGES])
def test_pages_of_the_pool_are_taken(first: int, swa: int) -> None:
    allocate([first, 7], [swa, 9])
    allocate([first], [swa])


@pytest.mark.parametrize("others", [[], [3], [3, 0]])
@pytest.mark.parametrize("page", [-(2**31), -POOL_PAGES - 3, -1, POOL_PAGES + 1, POOL_PAGES + 2, 2**31 - 1])
def test_a_page_outside_either_pool_is_refused(page: int, others: list[int]) -> None:
    for swa in ([page, *others], [*others, page]):
        with pytest.raises(ReplayError, match=f"SWA page outside .* is named: {page}$"):
            allocate([20, 21, 22][: len(swa)], swa)
    for full in ([page, *others[:1]], [*others[:1], page]):
        with pytest.raises(ReplayError, match=f"Full page outside .* is named: {page}$"):
            allocate(full, [0] * len(full))


def test_the_padding_page_is_no_full_page() -> None:
    with pytest.raises(ReplayError, match=r"is named: 0$"):
        allocate([5, 0], [5, 6])

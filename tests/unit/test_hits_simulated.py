"""Simulated orders of eviction: cases worked out by hand, in pools of a few units."""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import pytest

from kvledger.tools.bench.hits_bounds import unlimited
from kvledger.tools.bench.hits_pool import served
from kvledger.tools.bench.hits_rows import Row
from kvledger.tools.bench.hits_simulated import ORDERS, Lru2, S3Fifo, simulated

NOBODY: frozenset[int] = frozenset()


def row(*units: int, extra: int = 0) -> Row:
    return Row(prompt_tokens=0, units=np.array(units, dtype=np.int64), reusable=len(units), extra=extra)


def hits(name: str, rows: Sequence[Row], *, capacity: int, concurrency: int = 1) -> int:
    return served(rows, capacity=capacity, concurrency=concurrency, order=ORDERS[name](capacity))


def each(*units: int) -> list[Row]:
    """One request for each unit."""
    return [row(unit) for unit in units]


def victims(order: S3Fifo, count: int) -> list[int | None]:
    return [order.victim(NOBODY) for _ in range(count)]


def used(order: S3Fifo, *units: int) -> None:
    """One request for each unit."""
    for unit in units:
        order.use(0, [unit])


def in_main(order: S3Fifo, *units: int) -> None:
    """Bring fresh units into the main queue: evicted once, then back while they are named."""
    used(order, *units)
    assert victims(order, len(units)) == list(units)
    used(order, *units)


# LRU and LRU-2.


def test_lru_and_lru_2_part_where_the_last_use_and_the_one_before_do() -> None:
    # At the second 3, 1 was used last and next to last at 4 and 2, 2 at 5 and 1.
    rows = each(1, 2, 1, 3, 1, 2, 3, 1)
    assert (hits("lru", rows, capacity=2), hits("lru-2, long", rows, capacity=2)) == (2, 3)


def test_what_was_used_twice_outlives_a_scan_with_lru_2_alone() -> None:
    rows = each(1, 1, 10, 11, 12, 13, 1)
    assert (hits("lru", rows, capacity=2), hits("lru-2", rows, capacity=2)) == (1, 2)


def test_what_is_remembered_outlives_the_units() -> None:
    order = Lru2(8)
    for number, unit in enumerate([1, *range(100, 107), 1]):
        order.use(number, [unit])
    assert order.ranks[1] == (0, 8)
    for number, unit in enumerate([*range(200, 208), 1]):
        order.use(number + 9, [unit])
    assert order.ranks[1] == (-1, 17)


@pytest.mark.parametrize("name", ORDERS)
def test_the_deepest_unit_of_a_row_goes_first(name: str) -> None:
    # Of 1 2 3 one has to go for 9, and what is left of the row is found.
    assert hits(name, [row(1, 2, 3), row(9), row(1, 2, 3)], capacity=3) == 2


@pytest.mark.parametrize("seed", range(4))
def test_lru_is_what_a_plain_list_by_last_use_finds(seed: int) -> None:
    random = np.random.default_rng(seed)
    units = random.zipf(1.4, size=400).tolist()
    plain: OrderedDict[int, None] = OrderedDict()
    expected = 0
    for unit in units:
        expected += unit in plain
        plain.pop(unit, None)
        plain[unit] = None
        if len(plain) > 12:
            plain.popitem(last=False)
    assert hits("lru", each(*units), capacity=12) == expected


# S3-FIFO.


def test_a_unit_used_once_more_leaves_the_small_queue_and_one_used_twice_more_stays() -> None:
    assert hits("s3-fifo", each(1, 1, 10, 11, 12, 1), capacity=2) == 1
    assert hits("s3-fifo", each(1, 1, 1, 10, 11, 12, 1), capacity=2) == 3


def test_what_comes_back_while_it_is_named_outlives_what_is_new() -> None:
    # Pool of 3: one in the small queue, two names. 4 puts 1 out; it comes back into the main queue, and
    # 5, 6 and 7 push each other out of the small one.
    rows = each(1, 2, 3, 4, 1, 5, 6, 7, 1)
    assert (hits("s3-fifo", rows, capacity=3), hits("lru", rows, capacity=3)) == (1, 0)


def test_only_as_many_names_are_kept_as_the_main_queue_has_places() -> None:
    order = S3Fifo(10)
    used(order, *range(10))
    assert victims(order, 10) == list(range(10))
    used(order, 0, 1, 50)
    # The name of 0 was the tenth, so it is new again, as 50 is; 1 went into the main queue.
    assert victims(order, 3) == [0, 50, 1]


def test_a_long_history_is_of_eight_pools() -> None:
    # Pool of 1: as many others pass by before 1 comes back. LRU-2 remembers those that are there too, and of
    # S3-FIFO's names one more gets in before 1 is looked up.
    for others, known in ((7, True), (8, False)):
        long = ORDERS["lru-2, long"](1)
        assert isinstance(long, Lru2)
        served(each(1, *range(100, 100 + others), 1), capacity=1, concurrency=1, order=long)
        assert long.ranks == {1: (0 if known else -1, others + 1)}
        queues = ORDERS["s3-fifo, long"](1)
        assert isinstance(queues, S3Fifo)
        served(each(1, *range(100, 100 + others), 1), capacity=1, concurrency=1, order=queues)
        used(queues, 50)
        # One in the main queue stays behind 50 in the small one.
        assert victims(queues, 2) == ([50, 1] if known else [1, 50])


def test_the_main_queue_lets_asked_units_go_round_once_for_each_time() -> None:
    order = S3Fifo(10)
    in_main(order, 1, 2, 3)
    used(order, 1, 1)
    # 1 goes round to the end twice, past 2 and 3, then it is the only one left.
    assert victims(order, 4) == [2, 3, 1, None]
    in_main(order, 7, 8)
    used(order, 7, 7, 7, 8, 8)
    assert victims(order, 3) == [8, 7, None]
    # What leaves the main queue is not named: 2 is as new as 4.
    used(order, 2, 4)
    assert victims(order, 2) == [2, 4]


def test_no_more_than_three_uses_are_counted() -> None:
    order = S3Fifo(10)
    in_main(order, 1, 2)
    used(order, *[1] * 9, *[2] * 3)
    assert victims(order, 2) == [1, 2]


def test_a_unit_that_moves_to_the_main_queue_begins_to_count_anew() -> None:
    order = S3Fifo(10)
    used(order, 1, 1, 1, 1)
    in_main(order, 2)
    # 1 moved when 2 had to go, so it is before 2 and nobody asked for it since.
    assert victims(order, 2) == [1, 2]


def test_the_small_queue_gives_while_it_has_its_tenth_and_the_main_one_below_that() -> None:
    order = S3Fifo(30)
    in_main(order, 1, 2, 3)
    used(order, 11, 12)
    assert victims(order, 1) == [1]
    used(order, 13)
    assert victims(order, 2) == [11, 2]


def test_units_that_run_are_passed_over_and_are_the_oldest_when_they_end() -> None:
    order = S3Fifo(10)
    order.use(0, [1, 2, 3])
    assert order.victim({1, 2, 3}) is None
    assert order.victim({1, 2, 3}) is None
    order.use(1, [4])
    assert order.victim({1, 2, 3}) == 4
    order.use(2, [5])
    order.rest([(0, 1), (1, 2), (2, 3)])
    assert victims(order, 5) == [3, 2, 1, 5, None]


def test_uses_while_a_unit_runs_count() -> None:
    order = S3Fifo(10)
    order.use(0, [1])
    assert order.victim({1}) is None
    order.use(1, [1])
    order.use(2, [1])
    order.rest([(0, 1)])
    used(order, 2)
    assert victims(order, 2) == [2, 1]


# All of them.


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("seed", range(4))
def test_no_order_beats_the_cache_without_limits_and_each_reaches_it_with_room(name: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    heads = [tuple(range(100 * n, 100 * n + 5)) for n in range(6)]
    rows = [
        row(*heads[int(random.integers(6))][: int(random.integers(1, 6))], 1_000 + n, extra=n % 2)
        for n in range(80)
    ]
    most = unlimited(rows)
    some = hits(name, rows, capacity=14, concurrency=2)
    assert 0 < some < most == hits(name, rows, capacity=10_000, concurrency=2)


@pytest.mark.parametrize("name", ORDERS)
def test_a_pool_that_runs_full_ends_its_oldest_request(name: str) -> None:
    rows = [row(1, 2), row(3, 4), row(1, 2), row(5, 6, 7), row(3)]
    # Three may run in room for four; the third finds its units in use, the fourth ends all three.
    assert hits(name, rows, capacity=4, concurrency=3) == 2


def test_hits_are_told_in_tokens_of_whole_units() -> None:
    rows = [row(1, 2, 3), row(1, 2)]
    assert simulated(rows, "s3-fifo", page_size=16, full_tokens=640, concurrency=1) == 2 * 64

"""What "lru-2" keeps of the SWA pool: the margin it learns, the windows it keeps, where to publish first."""

import pytest

from kvledger.core import HybridCache
from kvledger.core.margin import HALVE_AFTER, MARGIN_TOKENS, Margin
from kvledger.core.node import Node
from kvledger.core.references import NEVER
from kvledger.core.retention import Retention
from tests.support.witness import open_cache

WINDOW = 4


def cache_of(*rows: list[int], margin: int | None = None, page: int = 1) -> HybridCache:
    """A cache of published rows, and a margin as if that had been learned, or the one that was."""
    cache, _ = open_cache(page=page, window=WINDOW, full=256, swa=256, eviction="lru-2")
    for row in rows:
        cache.insert(row, cache.alloc(len(row)))
    if margin is not None:
        retention_of(cache).margin.tokens = margin
    return cache


def retention_of(cache: HybridCache) -> Retention:
    retention = cache._state.retention
    assert retention is not None
    return retention


def ending_at(cache: HybridCache, end: int) -> Node:
    (node,) = [node for node in cache._state.nodes.values() if node.end == end]
    return node


# The margin.


def test_no_parting_no_margin() -> None:
    assert Margin(1_024, 64).tokens == 0


def test_the_margin_is_what_catches_most_partings_for_each_token_kept() -> None:
    margin = Margin(1_000, 100)
    for _ in range(3):
        margin.learn(100)
    assert margin.tokens == 100
    # Two in five are worth 400 tokens more on top of 1,100: 5 / 1,500 > 3 / 1,100. One in four is not.
    margin.learn(500)
    assert margin.tokens == 100
    margin.learn(500)
    assert margin.tokens == 500


def test_a_gap_is_rounded_up_to_pages() -> None:
    margin = Margin(1_024, 64)
    margin.learn(65)
    assert margin.tokens == 128


@pytest.mark.parametrize(
    ("window", "page", "limit"), [(128, 1, 512), (1_024, 64, 1_024), (100, 64, 512), (1_000, 1_024, 0)]
)
def test_the_margin_is_at_most_512_tokens_or_a_window(window: int, page: int, limit: int) -> None:
    assert MARGIN_TOKENS == 512
    margin = Margin(window, page)
    assert margin.limit == limit
    margin.learn(limit)
    assert margin.tokens == limit


def test_what_was_learned_fades() -> None:
    margin = Margin(100, 100)
    for _ in range(HALVE_AFTER):
        margin.learn(500)
    assert margin.tokens == 500
    learned = 0
    while margin.tokens:
        margin.learn(0)
        learned += 1
    assert learned < HALVE_AFTER


def test_learning_tells_when_the_margin_changed() -> None:
    margin = Margin(128, 1)
    assert margin.learn(7)
    assert not margin.learn(7)


# What is kept.


@pytest.mark.parametrize(
    ("margin", "kept"),
    [(0, 16), (3, 13), (40, 0)],
)
def test_kept_are_the_window_and_the_margin_before_the_end_of_a_row(margin: int, kept: int) -> None:
    cache = cache_of(list(range(20)), margin=margin)
    # The leaf is cut to one window: what lies above it is kept from the same place on.
    for end in (16, 20):
        node = ending_at(cache, end)
        assert retention_of(cache).kept_from(node) == kept


def test_before_a_branching_node_a_window_is_kept_and_no_margin() -> None:
    head = list(range(20))
    cache = cache_of([*head, *range(100, 120)], [*head, *range(200, 220)], margin=3)
    assert retention_of(cache).kept_from(ending_at(cache, 20)) == 16


def test_an_end_that_another_row_went_past_is_an_end_still() -> None:
    cache = cache_of(list(range(20)), [*range(40)], margin=3)
    assert ending_at(cache, 20).ends_row
    assert retention_of(cache).kept_from(ending_at(cache, 20)) == 13
    assert retention_of(cache).kept_from(ending_at(cache, 36)) == 33


def test_an_end_that_its_own_row_went_past_at_once_is_none() -> None:
    cache, _ = open_cache(full=256, swa=256, eviction="lru-2")
    request = cache.open_request("r", list(range(20)))
    request.extend(20)
    request.computed()
    request.commit()
    assert ending_at(cache, 20).ends_row
    request.append(list(range(20, 30)))
    request.extend(10)
    request.computed()
    request.finish()
    assert not ending_at(cache, 20).ends_row
    assert ending_at(cache, 30).ends_row


def test_kept_positions_are_page_ends() -> None:
    cache = cache_of(list(range(64)), margin=16, page=16)
    assert retention_of(cache).kept_from(ending_at(cache, 64)) == (64 - WINDOW - 16) // 16 * 16


# What is learned of rows that part.


def test_the_margin_is_learned_where_a_row_leaves_another_before_its_end() -> None:
    cache = cache_of(list(range(20)), [*range(17), *range(100, 120)])
    assert retention_of(cache).margin.tokens == 3


def test_a_row_that_leaves_far_before_the_end_teaches_no_margin() -> None:
    long = list(range(MARGIN_TOKENS + 50))
    cache, _ = open_cache(full=2_048, swa=2_048, eviction="lru-2")
    for row in (long, [*long[:20], 5_000]):
        cache.insert(row, cache.alloc(len(row)))
    assert retention_of(cache).margin.tokens == 0


def test_a_parting_where_paths_part_already_teaches_nothing() -> None:
    head = list(range(20))
    cache = cache_of([*head, 100], [*head, 200], [*head, 300])
    assert retention_of(cache).margin.tokens == 1
    retention_of(cache).margin = Margin(WINDOW, 1)
    cache.insert([*head, 400], cache.alloc(21))
    assert retention_of(cache).margin.tokens == 0


def test_nothing_is_learned_from_what_is_undone() -> None:
    cache = cache_of(list(range(20)))
    with cache.transaction("t") as transaction:
        row = [*range(17), 100, 101]
        cache.insert(row, cache.alloc(len(row)))
        transaction.rollback()
    assert retention_of(cache).margin.tokens == 0
    assert retention_of(cache).references.now == 20


def test_what_is_done_in_a_transaction_is_learned_at_its_end() -> None:
    cache = cache_of(list(range(20)))
    with cache.transaction("t"):
        row = [*range(17), 100, 101]
        cache.insert(row, cache.alloc(len(row)))
        assert retention_of(cache).margin.tokens == 0
    assert retention_of(cache).margin.tokens == 3


def test_a_row_that_is_evicted_in_its_own_transaction_teaches_nothing() -> None:
    cache = cache_of(list(range(20)))
    with cache.transaction("t"):
        row = [*range(17), 100, 101]
        cache.insert(row, cache.alloc(len(row)))
        cache.evict(full_tokens=256)
    assert retention_of(cache).margin.tokens == 0


def test_what_is_left_behind_near_its_end_loses_its_rank() -> None:
    cache, _ = open_cache(page=256, window=256, full=64 * 256, swa=64 * 256, eviction="lru-2")

    def ask(*blocks: int) -> None:
        row = [block for block in blocks for _ in range(256)]
        request = cache.open_request("r", [*row, 0])
        request.extend(request.num_tokens - request.reserved)
        request.computed()
        request.finish()

    for once in range(2):
        ask(1, 1, 2, 2)
        for other in range(10):
            ask(100 * once + other + 10)
    assert ending_at_token(cache, 1_024, 2).rank >= 0
    ask(1, 1, 2, 3)
    assert ending_at_token(cache, 1_024, 2).rank == NEVER
    assert ending_at_token(cache, 1_024, 3).rank >= 0, "the next turn takes its place"


def ending_at_token(cache: HybridCache, end: int, token: int) -> Node:
    """The node that ends there with that token."""
    nodes = cache._state.nodes.values()
    (found,) = [n for n in nodes if n.end == end and n.key[-4:] == token.to_bytes(4, "little")]
    return found


def test_a_head_that_is_cut_off_has_the_rank_of_the_node() -> None:
    cache = cache_of(list(range(20)))
    ending_at(cache, 16).rank = 5
    with cache.transaction("t"):
        cache.acquire(list(range(8)))
        assert [ending_at(cache, end).rank for end in (4, 8, 16)] == [5, 5, 5]


def refused_in_part(tokens: list[int]) -> tuple[HybridCache, int]:
    """Behind a lease of 1..8 a tombstone [12, 16) is locked: of `tokens` four are accepted; those refused."""
    cache, _ = open_cache(full=256, swa=256, eviction="lru-2", locked_recovery="skip")
    row = list(range(1, 17))
    cache.insert(row, cache.alloc(16))
    lease, whole = cache.acquire(row[:8]), cache.acquire(row)
    cache.acquire(row[:12])
    cache.release_swa(whole)
    cache.evict(swa_tokens=64)
    return cache, cache.advance(lease, tokens, cache.alloc(len(tokens))).refused


def test_of_what_is_refused_in_part_the_accepted_part_is_learned() -> None:
    cache, refused = refused_in_part(list(range(9, 17)))
    assert refused == 4
    assert ending_at(cache, 12).ends_row
    assert retention_of(cache).references.now == 16 + 4


def test_where_a_row_parts_past_what_is_accepted_nothing_is_learned() -> None:
    cache, refused = refused_in_part([*range(9, 15), 200])
    assert refused == 3
    assert retention_of(cache).margin._counts == Margin(WINDOW, 1)._counts
    cache.check()


def test_a_reset_forgets_all_of_it() -> None:
    cache = cache_of(list(range(20)), [*range(17), *range(100, 120)])
    cache.reset()
    retention = retention_of(cache)
    assert (retention.margin.tokens, retention.references.now, len(retention.references)) == (0, 0, 0)
    assert retention.last_end is None


# Where to publish first.


def test_with_lru_the_place_to_publish_first_is_the_branch_point() -> None:
    cache, _ = open_cache()
    cache.insert(list(range(20)), cache.alloc(20))
    cache.evict(swa_tokens=16)
    found = cache.match_prefix([*range(12), 100, 101])
    assert found.branch_length == 12
    assert found.publish_length == found.branch_length


def test_with_lru_2_it_is_the_likely_parting_where_nothing_parts() -> None:
    cache = cache_of(margin=3)
    assert cache.match_prefix(list(range(20))).publish_length == 17
    request = cache.open_request("r", list(range(20)))
    assert (request.branch_len, request.publish_len) == (0, 17)


def test_a_likely_parting_is_a_page_end() -> None:
    assert cache_of(margin=16, page=16).match_prefix(list(range(75))).publish_length == 48


def test_a_true_branch_point_goes_before_the_likely_parting() -> None:
    head = list(range(20))
    rows = [*head, *range(100, 120)], [*head, *range(200, 220)]
    cache = cache_of(*rows, margin=3)
    for row in rows:
        cache.release_swa(cache.acquire(row))
    cache.evict(swa_tokens=256)
    found = cache.match_prefix([*head, *range(300, 330)])
    assert (found.length, found.branch_length, found.publish_length) == (0, 20, 20)


def test_a_row_that_leaves_another_near_its_end_takes_its_place() -> None:
    cache = cache_of(list(range(20)), margin=3)
    cache.release_swa(cache.acquire(list(range(20))))
    cache.evict(swa_tokens=256)
    found = cache.match_prefix([*range(18), *range(100, 122)])
    assert (found.length, found.branch_length, found.publish_length) == (0, 18, 37)

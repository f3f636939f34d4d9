"""Snapshots stay within their bytes, stay spread, and give back the state that they were made of."""

from itertools import pairwise

from kvledger.api.projection.snapshots import Snapshots
from kvledger.journal.records import number_transactions
from kvledger.journal.replay import Fold
from tests.support.recorded_run import small_run


def filled(limit_bytes: int) -> tuple[Snapshots, dict[int, str]]:
    """Snapshots after each transaction of a small run, and the digests of all of them."""
    snapshots, fold = Snapshots(limit_bytes=limit_bytes), Fold()
    digests: dict[int, str] = {}
    for transaction in number_transactions(small_run(20)):
        fold.apply(transaction)
        digests[fold.seq] = fold.state.digest()
        snapshots.keep(fold)
    return snapshots, digests


def test_the_last_one_at_or_before_a_seq_is_given_back_as_it_was() -> None:
    snapshots, digests = filled(2**30)
    assert len(snapshots) == len(digests)
    for seq in range(min(digests), max(digests) + 5):
        found = snapshots.before(seq)
        assert found is not None
        assert found.seq == max(known for known in digests if known <= seq)
        fold = found.fold()
        assert (fold.seq, fold.state.digest()) == (found.seq, digests[found.seq])
    assert snapshots.before(min(digests) - 1) is None


def test_the_bytes_are_bounded_and_what_is_left_is_spread_over_the_whole() -> None:
    limit = 20_000
    snapshots, digests = filled(limit)
    assert snapshots.bytes <= limit
    assert 4 < len(snapshots) < len(digests)
    kept = sorted({found.seq for seq in digests if (found := snapshots.before(seq)) is not None})
    assert (kept[0], kept[-1]) == (min(digests), max(digests))
    widest = max(then - before for before, then in pairwise(kept))
    assert widest < 4 * (kept[-1] - kept[0]) / len(kept)


def test_one_that_is_larger_than_the_limit_is_kept_alone() -> None:
    snapshots, digests = filled(1)
    assert len(snapshots) == 1
    assert snapshots.before(max(digests)) is not None


def test_those_before_a_seq_can_be_let_go() -> None:
    snapshots, digests = filled(2**30)
    cut = sorted(digests)[20]
    snapshots.forget_before(cut)
    assert snapshots.before(cut - 1) is None
    assert len(snapshots) == len(digests) - 20
    empty = Snapshots()
    empty.forget_before(5)
    assert (len(empty), empty.bytes) == (0, 0)

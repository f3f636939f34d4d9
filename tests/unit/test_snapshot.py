"""A state that was stored and restored is the same state, and folds on the same way."""

from collections.abc import Callable

import pytest

from kvledger.core.errors import JournalError, JournalFormatError
from kvledger.journal.replay import Fold
from kvledger.journal.restore import decode_state
from kvledger.journal.snapshot import encode_state
from kvledger.journal.state import State
from tests.support.hand_written import Journal, pages
from tests.support.stories import HEALTHY, recovery_under_lock, two_namespaces


def folded(journal: Journal) -> Fold:
    fold = Fold()
    for transaction in journal:
        fold.apply(transaction)
    return fold


@pytest.mark.parametrize("story", HEALTHY.values(), ids=HEALTHY)
def test_a_state_restored_at_any_boundary_folds_on_to_the_same_bytes(story: Callable[[], Journal]) -> None:
    journal = story()
    whole = encode_state(folded(journal).state)
    for boundary in range(1, len(journal) + 1):
        fold = folded(journal[:boundary])
        stored = encode_state(fold.state)
        restored = decode_state(stored)
        assert restored.digest() == fold.state.digest()
        assert encode_state(restored) == stored
        resumed = Fold.resume(restored, seq=fold.seq, transaction=fold.transaction)
        for transaction in journal[boundary:]:
            resumed.apply(transaction)
        assert encode_state(resumed.state) == whole


def test_what_the_digest_leaves_out_is_kept() -> None:
    state = folded(recovery_under_lock()[:-1]).state
    restored = decode_state(encode_state(state))
    (node,), (again,) = state.nodes.values(), restored.nodes.values()
    assert again.is_mixed
    assert (again.id, again.stamp, again.full_origin, again.swa_origin) == (
        node.id,
        node.stamp,
        node.full_origin,
        node.swa_origin,
    )
    (request,) = restored.requests.values()
    assert (request.code, request.epoch, restored.next_request_code) == (-4, 2, -5)


def test_a_state_that_breaks_the_rules_is_kept_as_it_is() -> None:
    state = example()
    # A page of a node that was handed out again, and an SWA page that maps from elsewhere.
    state.full_at[1] = -3
    state.mapping[1] = 5
    state.swa_at[5] = 0
    restored = decode_state(encode_state(state))
    assert restored.digest() == state.digest()
    assert restored.full_at.tolist() == state.full_at.tolist()
    assert restored.swa_at.tolist() == state.swa_at.tolist()
    assert restored.mapping.tolist() == state.mapping.tolist()


def test_a_state_inside_a_transaction_is_refused() -> None:
    state = folded(two_namespaces()).state
    state.deferred_full.append(pages(1))
    with pytest.raises(JournalError, match="inside a transaction"):
        encode_state(state)


def test_a_state_whose_lock_is_on_a_deleted_node_is_refused() -> None:
    state = folded(two_namespaces()).state
    lease = state.leases[next(iter(state.leases))]
    assert lease.node is not None
    del state.siblings(lease.node)[lease.node.id]
    with pytest.raises(JournalError, match="was deleted"):
        encode_state(state)


def example() -> State:
    return folded(two_namespaces()).state


def test_every_truncation_and_every_surplus_byte_is_refused() -> None:
    stored = encode_state(example())
    for size in range(len(stored)):
        with pytest.raises(JournalFormatError):
            decode_state(stored[:size])
    with pytest.raises(JournalFormatError, match="follows its end"):
        decode_state(stored + b"\x00")


def test_a_changed_byte_is_refused_or_read_as_another_state() -> None:
    """Never any other error: what a byte can be changed into is decided here, not by luck."""
    stored = encode_state(example())
    refused = 0
    for place in range(len(stored)):
        for flip in (0x01, 0x80):
            changed = bytearray(stored)
            changed[place] ^= flip
            try:
                decode_state(bytes(changed))
            except JournalFormatError:
                refused += 1
    assert refused > len(stored) // 2

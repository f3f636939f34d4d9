"""Whatever is handed to a cache, a request or a transaction: what it means is done, or nothing is.

Every method that takes something is called with any arguments. What means something must do what its plain
spelling does to a cache in the same state, after which the cache is whole and its journal, folded by code of
its own, tells the same state. What means nothing is an InvalidArgument; and with any error, digest, sizes,
nodes, progress and journal are what they were. Some five seconds.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvledger.core import CacheError, HybridCache, Lease, Request, Transaction
from tests.property.outside_values import (
    NOTHING,
    Given,
    bounded,
    integers_given,
    number_spelled,
    numbers_given,
    spelled,
    text_spelled,
    texts_given,
)
from tests.support.odd_arguments import CALLS, REQUEST_CALLS, TRANSACTION_CALLS
from tests.support.witness import Witness, open_cache

PAGE = 4
TREE = list(range(16))


class Desk:
    """A cache with somebody holding something of every kind; every desk is in the same state."""

    def __init__(self) -> None:
        self.cache, self.sink = cache, _ = open_cache(page=PAGE, window=8)
        self.witness = Witness(self.cache, self.sink)
        self.tree = cache.alloc(16)
        cache.insert(TREE, self.tree)
        self.raw = cache.alloc(8)
        self.full_only = cache.alloc_full_only(4)
        self.request = cache.open_request("running", [*TREE[:8], *range(100, 106)])
        self.request.extend(6)
        self.request.computed()
        self.leases: dict[str, Any] = {"live": cache.acquire(TREE[:8]), "released": cache.acquire(TREE)}
        cache.release(self.leases["released"])
        self.leases["half"] = cache.acquire(TREE)
        cache.release_swa(self.leases["half"])
        self.leases["nothing"] = cache.acquire([9, 9, 9, 9])
        self.leases["a request's"] = self.request.lease
        with cache.transaction("undone") as undone:
            self.leases["undone"] = cache.acquire(TREE)
            undone.rollback()
        self.freed = cache.alloc(4)
        cache.free(self.freed)
        self.leases["None"] = None
        self.leases["a number"] = 1
        self.leases["another cache's"] = _foreign_lease()

    def all_there_is(self) -> tuple[Any, ...]:
        """What no refused call may change."""
        cache, request = self.cache, self.request
        return (
            cache.digest(),
            cache.sizes(),
            told(cache.nodes()),
            told(request),
            len(self.sink.transactions),
        )


def _foreign_lease() -> Lease:
    cache, _ = open_cache(page=PAGE, window=8)
    cache.insert(TREE, cache.alloc(16))
    return cache.acquire(TREE)


REQUEST_FACTS = (
    "id", "namespace", "tokens", "prefix_len", "branch_len", "publish_len", "reserved", "computed_len",
    "frontier", "waiting", "slots",
)  # fmt: skip


def told(answer: Any) -> Any:
    """An answer as plain values."""
    if isinstance(answer, Request):
        return {name: told(getattr(answer, name)) for name in REQUEST_FACTS}
    if dataclasses.is_dataclass(answer):
        names = [field.name for field in dataclasses.fields(answer) if not field.name.startswith("_")]
        return {name: told(getattr(answer, name)) for name in [*names, "slots"] if hasattr(answer, name)}
    if isinstance(answer, np.ndarray):
        assert answer.dtype in (np.int64, np.int32)
        return answer.tolist()
    if isinstance(answer, list | tuple):
        return [told(item) for item in answer]
    return answer if isinstance(answer, bool | int | str | None) else type(answer).__name__


LIKE = Desk()
PLACES: dict[str, Any] = {
    "tree": LIKE.tree, "raw": LIKE.raw, "full only": LIKE.full_only, "freed": LIKE.freed,
    "request": LIKE.request.slots[8:12], "padding": range(PAGE), "past": range(400, 400 + PAGE),
    "below": range(-PAGE, 0), "far": [2**40, 2**40 + 1, 2**40 + 2, 2**40 + 3],
}  # fmt: skip


@st.composite
def slots(draw: st.DrawFn) -> list[int]:
    """Slots of pages of any owner, or of none; sometimes not whole pages."""
    usual = draw(st.booleans())
    places = ["raw"] if usual else draw(st.lists(st.sampled_from(sorted(PLACES)), max_size=3))
    found = [int(slot) for place in places for slot in PLACES[place]]
    match draw(st.sampled_from(["whole", "whole", "whole", "cut", "backwards", "shifted", "twice", "half"])):
        case "cut":
            return found[:-1]
        case "backwards":
            return found[::-1]
        case "shifted":
            return found[1:]
        case "twice":
            return found + found
        case "half":
            return found[: len(found) // 2]
    return found


TOKENS = st.one_of(
    st.integers(0, 16).map(lambda length: TREE[:length]),
    st.sampled_from([[], [9] * 4, [9] * 8, [*TREE[:8], 9, 9, 9, 9], TREE[8:12], [*TREE[8:12], 5, 5, 5, 5]]),
    st.lists(st.sampled_from([0, 1, 9, -1, 2**31 - 1, -(2**31)]), max_size=9),
    st.lists(st.sampled_from([0, 2**31, -(2**31) - 1, 2**40, 2**63 - 1]), max_size=4),
)
COUNTS = st.integers(0, 20)


def _lease(name: str) -> Given:
    live = name in ("live", "half", "nothing")
    return Given(lambda: name, name if live else NOTHING, f"lease {name}")


LEASES = st.sampled_from([_lease(name) for name in (*LIKE.leases, "live", "live")])

WHOLE = number_spelled(st.sampled_from([0, 0, 4, 8]))
USUAL: dict[str, st.SearchStrategy[Given]] = {
    "tokens": spelled(TOKENS),
    "token_ids": spelled(TOKENS),
    "slots": spelled(slots()),
    "namespace": text_spelled(st.sampled_from(["", "", "", "other"])),
    "request_id": text_spelled(st.sampled_from(["new", "running"])),
    "op": text_spelled(st.just("step")),
    "lease": st.sampled_from([_lease("live"), _lease("live"), _lease("half"), _lease("nothing")]),
    "num_tokens": WHOLE,
    "protected_len": WHOLE,
    "swa_evicted_len": WHOLE,
}
"""What a caller means to give for a parameter of that name; for any other a small number."""

KINDS: dict[str, st.SearchStrategy[Given]] = {
    "tokens": integers_given(TOKENS),
    "token_ids": integers_given(TOKENS),
    "slots": integers_given(slots()),
    "namespace": texts_given("", "", "", "other"),
    "request_id": texts_given("new", "running"),
    "op": texts_given("step", "running"),
    "reason": texts_given("", "why"),
    "lease": LEASES,
}
"""What may be given for it instead; for any other some number."""

OPTIONAL = {
    ("nodes", "namespace"): texts_given("", "other", optional=True),
    ("transaction", "request_id"): texts_given("running", optional=True),
    ("acquire", "max_length"): numbers_given(COUNTS, optional=True),
    ("computed", "upto"): numbers_given(COUNTS, optional=True),
    ("commit", "upto"): numbers_given(COUNTS, optional=True),
    ("rollback", "to"): st.just(Given(lambda: None, None, "None")),
}

FEW = number_spelled(COUNTS)
NUMBERS = numbers_given(COUNTS)


def parameters_of(owner: type, method: str) -> list[str]:
    """The names of what a method takes."""
    return list(inspect.signature(getattr(owner, method)).parameters)[1:]


@st.composite
def arguments_of(draw: st.DrawFn, owner: type, method: str) -> list[Given]:
    """Any arguments of a method, few of them odd; tokens are often as many as slots, as they must be."""
    names = parameters_of(owner, method)
    odd = draw(st.lists(st.sampled_from(names), min_size=len(names) == 1, max_size=2))
    drawn = {
        name: draw(
            OPTIONAL.get((method, name), KINDS.get(name, NUMBERS)) if name in odd else USUAL.get(name, FEW)
        )
        for name in names
    }
    row = drawn["slots"].means if "slots" in drawn and "tokens" in drawn else NOTHING
    if isinstance(row, list) and draw(st.integers(0, 3)):
        head = draw(st.sampled_from([TREE, [9] * 16, [*TREE[:4], *[9] * 12], TREE[8:]]))
        drawn["tokens"] = draw(spelled(st.just((head * 2)[: len(row)])))
    return list(drawn.values())


def outcome(desk: Desk, call: Callable[..., Any], arguments: dict[str, Any]) -> tuple[str, Any]:
    """What a call did, after it was seen that an error changed nothing and that anything else is whole."""
    if "lease" in arguments:
        arguments["lease"] = desk.leases[arguments["lease"]]
    before = desk.all_there_is()
    try:
        answer = call(**arguments)
    except CacheError as error:
        assert desk.all_there_is() == before
        return type(error).__name__, None
    desk.witness.look()
    return "answer", told(answer)


def both(method: str, names: list[str], arguments: list[Given], of: Callable[[Desk], Any]) -> None:
    """The call does with what was given what it does with what that means."""
    desk = Desk()
    given_ones = {name: one.make() for name, one in zip(names, arguments, strict=True)}
    first = outcome(desk, getattr(of(desk), method), given_ones)
    if any(one.means is NOTHING for one in arguments):
        assert first[0] != "answer", f"{arguments} is taken for something"
        return
    plain = Desk()
    plain_ones = {name: one.means for name, one in zip(names, arguments, strict=True)}
    assert first == outcome(plain, getattr(of(plain), method), plain_ones)
    assert desk.all_there_is() == plain.all_there_is()


@pytest.mark.parametrize("method", CALLS)
@bounded
@given(data=st.data())
def test_a_cache_does_what_arguments_mean_or_nothing(method: str, data: st.DataObject) -> None:
    arguments = data.draw(arguments_of(HybridCache, method))
    both(method, parameters_of(HybridCache, method), arguments, lambda desk: desk.cache)


@pytest.mark.parametrize("method", REQUEST_CALLS)
@bounded
@given(data=st.data())
def test_a_request_does_what_arguments_mean_or_nothing(method: str, data: st.DataObject) -> None:
    arguments = data.draw(arguments_of(Request, method))
    both(method, parameters_of(Request, method), arguments, lambda desk: desk.request)


def test_every_method_that_takes_something_is_called_here() -> None:
    for owner, calls in ((HybridCache, CALLS), (Request, REQUEST_CALLS), (Transaction, TRANSACTION_CALLS)):
        takes = {
            name
            for name, method in inspect.getmembers(owner, callable)
            if not name.startswith("_") and parameters_of(owner, name)
        }
        assert takes == set(calls)


SAVEPOINTS = ("start", "later", "rolled back past", "another transaction's")


@bounded
@given(
    to=st.sampled_from([*SAVEPOINTS, None, 0, "start of all"]),
    reason=texts_given("", "why"),
)
def test_a_rollback_goes_where_its_savepoint_was_made_or_nowhere(to: Any, reason: Given) -> None:
    desk = Desk()
    savepoints: dict[Any, Any] = {None: None}
    with desk.cache.transaction("first") as first:
        savepoints["another transaction's"] = first.savepoint()
    outside = desk.cache.digest()
    with desk.cache.transaction("second") as t:
        savepoints["start"] = t.savepoint()
        desk.cache.free(desk.raw[:4])
        digests = {None: outside, "start": outside, "later": desk.cache.digest()}
        savepoints["later"] = t.savepoint()
        desk.cache.alloc(4)
        past = t.savepoint()
        t.rollback(savepoints["later"])
        savepoints["rolled back past"] = past
        desk.cache.release(desk.leases["live"])
        before = desk.cache.digest()
        given_reason = reason.make()
        try:
            t.rollback(savepoints.get(to, to), given_reason)
        except CacheError:
            assert desk.cache.digest() == before
            assert to not in digests or type(given_reason) is not str
        else:
            assert type(given_reason) is str
            assert desk.cache.digest() == digests[to]
    desk.witness.look()

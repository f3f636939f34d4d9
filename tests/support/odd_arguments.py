"""What a cache answers to arguments of every kind, as lines of text: the same from whichever core runs.

`python -m tests.support.odd_arguments` prints them, so that a process with one core can be compared with
a process that has the other.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from kvledger.core import COMPILED, CacheConfig, HybridCache, MemorySink
from kvledger.core.errors import CacheError

PAGE = 4


class Name(str):
    """A string that is not just a string."""


class Number(int):
    """Nor is this just an integer."""


class Thing:
    """Nothing a cache knows; told in the same words by every process."""

    def __repr__(self) -> str:
        return f"a {type(self).__name__}"


class Liar(Thing):
    """Claims to be an integer, and fails where one asks for it."""

    def __index__(self) -> int:
        raise RuntimeError("no number after all")


ODD: dict[str, Any] = {
    "None": None,
    "True": True,
    "np.True_": np.True_,
    "0": 0,
    "4": 4,
    "-4": -4,
    "3": 3,
    "2**31": 2**31,
    "2**70": 2**70,
    "np.int64(4)": np.int64(4),
    "np.uint8(4)": np.uint8(4),
    "Number(4)": Number(4),
    "4.0": 4.0,
    "np.float64(4)": np.float64(4),
    "'4'": "4",
    "''": "",
    "'NUL'": "a\x00b",
    "surrogate": "\ud800",
    "Name('r')": Name("r"),
    "long name": "r" * 513,
    "b'1234'": b"1234",
    "bytearray": bytearray(b"1234"),
    "[]": [],
    "[1, 2, 3, 4]": [1, 2, 3, 4],
    "[1, '2']": [1, "2"],
    "[1, None]": [1, None],
    "[True, False, True, False]": [True, False, True, False],
    "[[1, 2], [3, 4]]": [[1, 2], [3, 4]],
    "[2**31]": [2**31],
    "[2**70]": [2**70],
    "(1, 2, 3, 4)": (1, 2, 3, 4),
    "range(4)": range(4),
    "range(8)": range(8),
    "{1, 2}": {1, 2},
    "{1: 2}": {1: 2},
    "int32": np.arange(4, dtype=np.int32),
    "int64": np.arange(4),
    "uint64": np.array([2**64 - 1], dtype=np.uint64),
    "float array": np.arange(4.0),
    "bool array": np.ones(4, dtype=bool),
    "object array": np.array([1, "2"], dtype=object),
    "two dimensions": np.ones((2, 4), dtype=np.int64),
    "no dimension": np.array(4),
    "every other": np.arange(8)[::2],
    "tensor": torch.arange(4),
    "float tensor": torch.ones(4),
    "meta tensor": torch.ones(4, dtype=torch.int64, device="meta"),
    "Thing()": Thing(),
    "a class": int,
    "Liar()": Liar(),
}
"""Values by the name they are told under."""

CALLS: dict[str, list[Any]] = {
    "open_request": ["r", range(9), ""],
    "match_prefix": [range(9), ""],
    "explain": [range(9), ""],
    "can_fit": [range(9), 4, ""],
    "swa_slots": [np.arange(4, 8)],
    "node": [1],
    "nodes": [""],
    "acquire": [range(9), "", 4],
    "release": [None],
    "release_swa": [None],
    "alloc": [4],
    "alloc_full_only": [4],
    "insert": [range(4), np.arange(4, 8), "", 0, 0],
    "insert_after": [None, range(4), np.arange(4, 8), 0],
    "advance": [None, range(4), np.arange(4, 8), 0],
    "evict": [4, 4],
    "free": [np.arange(4, 8)],
    "free_swa": [np.arange(4, 8)],
    "transaction": ["op", "r"],
}
"""A call of each method of a cache that takes something, with arguments that mean something."""

REQUEST_CALLS: dict[str, list[Any]] = {
    "extend": [4],
    "computed": [4],
    "append": [[1]],
    "commit": [4],
    "slots_of": [0, 4],
}
"""The same of a request."""

TRANSACTION_CALLS: dict[str, list[Any]] = {"rollback": [None, "reason"]}
"""And of a transaction."""


def made() -> HybridCache:
    """A cache with something in it."""
    cache = HybridCache(
        CacheConfig(page_size=PAGE, sliding_window=PAGE, full_tokens=64, swa_tokens=32), sink=MemorySink()
    )
    cache.insert(range(100, 108), cache.alloc(8))
    return cache


def told(call: Callable[..., object], *arguments: Any) -> str:
    """What a call returned, or the error it raised."""
    try:
        answer = call(*arguments)
    except CacheError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:
        return f"!{type(error).__name__}: {error}"
    kind = type(answer).__name__
    return f"{kind} {answer!r}" if isinstance(answer, bool | int | list | np.ndarray) else kind


def each_odd(calls: dict[str, list[Any]]) -> Iterator[tuple[str, str, list[Any]]]:
    """Method, what is odd about its arguments, and the arguments: one of them odd at a time."""
    for method, arguments in calls.items():
        for place in range(len(arguments)):
            for name, value in ODD.items():
                odd = [*arguments[:place], value, *arguments[place + 1 :]]
                yield method, f"argument {place} is {name}", odd


def lines() -> Iterator[str]:
    """Every answer in ASCII, with the digest of the cache behind it."""
    for line in _answers():
        yield line.encode("unicode_escape").decode("ascii")


def _answers() -> Iterator[str]:
    for method, odd, arguments in each_odd(CALLS):
        cache = made()
        if method in ("insert_after", "advance") and not odd.startswith("argument 0"):
            arguments[0] = cache.acquire(range(100, 108))
        answer = told(getattr(cache, method), *arguments)
        yield f"cache.{method}, {odd}: {answer} [{cache.digest()[:8]}]"
    for method, odd, arguments in each_odd(REQUEST_CALLS):
        cache = made()
        request = cache.open_request("r", range(9))
        request.extend(9)
        request.computed(5)
        answer = told(getattr(request, method), *arguments)
        yield f"request.{method}, {odd}: {answer} [{cache.digest()[:8]}]"
    for method, odd, arguments in each_odd(TRANSACTION_CALLS):
        cache = made()
        with cache.transaction("op") as t:
            cache.alloc(4)
            answer = told(getattr(t, method), *arguments)
        yield f"transaction.{method}, {odd}: {answer} [{cache.digest()[:8]}]"


def methods_without_a_call() -> list[str]:
    """Public methods that take something, of which nothing is told here."""
    return [
        name
        for name, method in inspect.getmembers(HybridCache, inspect.isfunction)
        if not name.startswith("_") and len(inspect.signature(method).parameters) > 1 and name not in CALLS
    ]


if __name__ == "__main__":
    print("compiled" if COMPILED else "interpreted")
    for line in lines():
        print(line)

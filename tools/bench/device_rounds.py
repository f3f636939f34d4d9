"""The workload of `kvledger bench device`: what a scheduler does with a cache, one call a step.

In each round a request is opened on the prefix that an earlier one left, takes the slots of it to the device,
and publishes. Every fourth round has two of one prompt, so that what the second computed is duplicate; then
somebody holds the Full of a row when its SWA is evicted, and it is computed anew: a recovery under lock.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np

from kvledger.core import HybridCache
from kvledger.core.requests import Request
from kvledger.tools.workload.spec import Tokens

TO_DEVICE = "slots to device"
"""The step that moves an acquired prefix; every other step is a call of the cache."""

HEADS = 3
HEAD_TOKENS = 256
TAIL_TOKENS = (16, 160)
OUTPUT_TOKENS = 40
VOCABULARY = 128_000
PRESSED_EVERY = 4
"""Rounds, of which the last has duplicates and a recovery."""

Result = TypeVar("Result")


class Step(Protocol):
    """Makes one step, which it knows by name, and returns its result."""

    def __call__(self, step: str, call: Callable[[], Result], /) -> Result:
        """The result of the call."""


def serve_rounds(
    cache: HybridCache, step: Step, *, rounds: int, seed: int, heard: Callable[[int], None]
) -> None:
    """Serve `rounds` of requests, every call through `step`; `heard` is told how many are done.

    Equal seeds make equal calls. The pools must hold a few rows of some 450 tokens each.
    """
    random = np.random.Generator(np.random.PCG64(seed))
    heads = [_tokens(random, HEAD_TOKENS) for _ in range(HEADS)]
    for number in range(rounds):
        head = heads[int(random.integers(HEADS))]
        row = np.concatenate((head, _tokens(random, int(random.integers(*TAIL_TOKENS)))))
        pressed = number % PRESSED_EVERY == PRESSED_EVERY - 1
        names = [f"r{number}", f"r{number} again"] if pressed else [f"r{number}"]
        _serve(cache, step, names, row, _tokens(random, OUTPUT_TOKENS))
        if pressed:
            _recovery(cache, step, row)
        heard(number + 1)


def _serve(cache: HybridCache, step: Step, names: list[str], prompt: Tokens, output: Tokens) -> None:
    """Requests of one prompt, all open before the first of them publishes."""
    requests = [_opened(cache, step, name, prompt, len(output)) for name in names]
    for request in requests:
        if request.prefix_len < HEAD_TOKENS:
            # Where rows part a window has to be live, so the head is published before it is slid past.
            request.computed(HEAD_TOKENS)
            step("commit", request.commit)
        request.computed(len(prompt))
        step("slide", request.slide)
        step("commit", request.commit)
    for request in requests:
        request.append(output)
        request.computed()
        step("slide", request.slide)
        step("finish", request.finish)


def _opened(cache: HybridCache, step: Step, name: str, prompt: Tokens, output_tokens: int) -> Request:
    request = step("open", lambda: cache.open_request(name, prompt))
    if request.prefix_len:
        prefix = request.slots[: request.prefix_len]
        step(TO_DEVICE, lambda: cache.pool.to_device(prefix))
    step("extend", lambda: request.extend(len(prompt) + output_tokens - request.reserved))
    return request


def _recovery(cache: HybridCache, step: Step, row: Tokens) -> None:
    lease = step("acquire", lambda: cache.acquire(row))
    step(TO_DEVICE, lambda: cache.pool.to_device(lease.slots))
    step("release SWA", lambda: cache.release_swa(lease))
    step("evict", lambda: cache.evict(full_tokens=lease.length, swa_tokens=cache.config.swa_tokens))

    def recover() -> None:
        with cache.transaction("recover"):
            cache.insert(row[: lease.length], cache.alloc(lease.length))

    step("recover", recover)
    step("release", lambda: cache.release(lease))


def _tokens(random: np.random.Generator, count: int) -> Tokens:
    return random.integers(0, VOCABULARY, size=count, dtype=np.int32)

"""A small life of a cache whose tokens and namespaces can be told from all other bytes when they leak."""

import re

import numpy as np

from kvledger.core import CacheConfig, HybridCache, InvalidArgument
from kvledger.core.sinks import EventSink

FIRST_TOKEN = 1_511_001_234
"""0x5A0FF892 and up: no page, seq or length of these tests, in any byte order or in decimal, is near it."""

TOKENS = 4_000
NAMESPACES = ("tenant-aurora", "tenant-borealis")
PAGE = 4


class LeakyError(Exception):
    """What a scheduler's own code may raise: its message quotes tokens."""


def private_tokens(first: int, count: int) -> np.ndarray:
    """`count` tokens of the private range, from its `first` one on; steps of 7 keep neighbours apart."""
    return np.arange(FIRST_TOKEN + 7 * first, FIRST_TOKEN + 7 * (first + count), 7, dtype=np.int32)


def live_privately(sink: EventSink | None) -> HybridCache:
    """Requests that share heads and part, with splits, evictions, recoveries, rollbacks and checkpoints."""
    config = CacheConfig(page_size=PAGE, sliding_window=8, full_tokens=400, swa_tokens=200)
    cache = HybridCache(config, sink=sink)
    for round_ in range(12):
        namespace = NAMESPACES[round_ % 2]
        prompt = np.concatenate([private_tokens(0, 40), private_tokens(100 * (round_ // 2 % 3) + 50, 37)])
        request = cache.open_request(f"r{round_}", prompt, namespace=namespace)
        request.extend(len(prompt) - request.prefix_len)
        request.computed()
        request.commit()
        request.append(private_tokens(2_000 + 10 * round_, 6))
        request.extend(6)
        request.computed()
        request.slide()
        if round_ % 3 == 0:
            request.retract()
            request.refresh()
        request.finish()
        if round_ == 5:
            fail_leakily(cache)
        if round_ % 4 == 3:
            cache.evict(swa_tokens=120)
            cache.checkpoint()
    cache.reset()
    cache.checkpoint()
    lease = cache.acquire(private_tokens(0, 40), namespace=NAMESPACES[0])
    cache.release(lease)
    last = cache.open_request("last", private_tokens(3_000, 45), namespace=NAMESPACES[1])
    last.extend(45)
    last.computed()
    last.commit(upto=24)
    cache.checkpoint()
    return cache


def fail_leakily(cache: HybridCache) -> None:
    """Transactions that end in rollbacks whose reasons quote tokens and a namespace."""
    tokens = private_tokens(3_900, 8)
    cache.evict(full_tokens=32, swa_tokens=32)
    try:
        with cache.transaction("leak"):
            cache.insert(tokens, cache.alloc(8), namespace=NAMESPACES[0])
            raise LeakyError(f"cannot go on with tokens {tokens.tolist()} of {NAMESPACES[0]}")
    except LeakyError:
        pass
    try:
        with cache.transaction("leak"):
            slots = cache.alloc(8)
            cache.insert([*map(int, tokens[:7]), 2**31], slots)
    except InvalidArgument:
        pass
    with cache.transaction("leak") as transaction:
        savepoint = transaction.savepoint()
        cache.insert(tokens, cache.alloc(8), namespace=NAMESPACES[0])
        transaction.rollback(to=savepoint, reason=f"token {int(tokens[0])} of {NAMESPACES[0]} is not wanted")


def leaks_in(data: bytes) -> set[str]:
    """What of the private tokens and namespaces stands in `data`: in either byte order, or as text."""
    ids = private_tokens(0, TOKENS)
    texts = {str(token).encode() for token in ids.tolist()}
    found = {text.decode() for text in re.findall(rb"(?=(\d{10}))", data) if text in texts}
    for order, neighbours in (("<i4", 2), (">i4", 2), ("<i8", 1), (">i8", 1)):
        for offset in range(int(order[2])):
            count = (len(data) - offset) // int(order[2])
            words = np.frombuffer(data, order, count=count, offset=offset)
            hits = np.isin(words, ids)
            if neighbours == 2:
                # Two of them side by side: four bytes alone may be a hash's by chance.
                hits = hits[:-1] & hits[1:]
            found |= {f"{token} as {order}" for token in words[: len(hits)][hits].tolist()}
    return found | {name for name in NAMESPACES if name.encode() in data}

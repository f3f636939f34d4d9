"""What a small cache did under a seeded load, as the transactions a sink was given: made once, used often.

Prompts share heads, pools are small, so that pages are evicted, tombstones recover and requests overlap.
The live state stays about the same size however long the run is.
"""

import random
import time
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from kvledger.core import CacheConfig, HybridCache
from kvledger.core.errors import OutOfSlots
from kvledger.core.sinks import MemorySink, TransactionRecord
from kvledger.journal import Journal, JournalReader

PAGE = 4
HEADS = 4
HEAD_TOKENS = 24


@lru_cache(maxsize=4)
def small_run(requests: int = 60, seed: int = 7) -> tuple[TransactionRecord, ...]:
    """The transactions of a run of so many requests, at most four of them open at once."""
    dice = random.Random(seed)
    sink = MemorySink()
    cache = HybridCache(
        CacheConfig(page_size=PAGE, sliding_window=8, full_tokens=320, swa_tokens=160), sink=sink
    )
    running = []
    for number in range(requests):
        head = dice.randrange(HEADS)
        prompt = [head] * HEAD_TOKENS + [dice.randrange(50) for _ in range(dice.randrange(1, 20))]
        request = cache.open_request(f"r{number}", np.array(prompt, np.int32), namespace=f"n{head % 2}")
        try:
            request.extend(len(prompt) - request.prefix_len)
        except OutOfSlots:
            request.abort()
            continue
        request.computed()
        request.commit()
        running.append(request)
        for other in running:
            try:
                other.append([dice.randrange(50)])
                other.extend(1)
            except OutOfSlots:
                continue
            other.computed()
            other.slide()
        if len(running) > 3:
            running.pop(dice.randrange(len(running))).finish()
    return tuple(sink.transactions)


def record_run(
    journal: Journal,
    records: Sequence[TransactionRecord],
    *,
    flush_every: int = 20,
    kept_up: object = False,
    **how: object,
) -> JournalReader:
    """Record them into a new journal, in batches that end where the flushes are.

    `kept_up`: after each flush wait for the checkpoints that are due, so that the next batch names them.
    """
    with journal.record(**how) as recorder:  # type: ignore[arg-type]
        for count, record in enumerate(records, start=1):
            recorder.append(record)
            if count % flush_every == 0:
                recorder.flush()
                while kept_up and recorder.keeper is not None and recorder.keeper.worth_working:
                    time.sleep(0.001)
    return journal.reader(recorder.journal_id)

"""The workload of `kvledger run` without a trace: many clients in several namespaces under heavy pressure."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, islice

import numpy as np

from kvledger.core.errors import InvalidArgument
from kvledger.tools.workload.sessions import Draft, chat, editor, helpdesk, reader
from kvledger.tools.workload.spec import LazyWorkload, Tokens, Workload, WorkRequest, check_requests
from kvledger.tools.workload.texts import TextSource

NAMESPACES = ("", "tenant-a", "tenant-b")
"""Who asks; the first holds most of the traffic."""

NAMESPACE_WEIGHTS = [0.6, 0.25, 0.15]

SESSIONS = (chat, helpdesk, reader, editor)
SESSION_WEIGHTS = [0.28, 0.32, 0.32, 0.08]

SYSTEM_PROMPT_TOKENS = (300, 90, 700)
"""Lengths of the system prompts of a namespace: within a window or two, and well past it."""

ABORT_PROBABILITY = 0.08
MEAN_SESSION_GAP_MS = 160.0


def builtin_workload(requests: int, *, seed: int = 0) -> Workload:
    """The first `requests` requests of the endless workload named by `seed`, in order of arrival.

    They are made as they are asked for, so a long run holds the sessions that go on at the same time and no
    more. Two calls with equal arguments give equal requests, and a shorter workload is the head of a longer
    one. Raises `InvalidArgument` for fewer than one request, more than `MAX_REQUESTS` or a negative seed.
    """
    check_requests(requests)
    if seed < 0:
        raise InvalidArgument(f"a seed is not negative: {seed}")
    return LazyWorkload(requests, lambda: islice(_endless(seed), requests))


def _endless(seed: int) -> Iterator[WorkRequest]:
    source = TextSource(seed)
    # All namespaces have the same system prompts: equal tokens that must never meet.
    systems = [source.text(length) for length in SYSTEM_PROMPT_TOKENS]
    coming: list[_Coming] = []
    drawn = 0
    start_ms = 0
    for number in count(1):
        # A session that starts later brings nothing earlier.
        while not coming or start_ms <= coming[0].arrival_ms:
            namespace = NAMESPACES[source.choose(NAMESPACE_WEIGHTS)]
            session = SESSIONS[source.choose(SESSION_WEIGHTS)]
            system = systems[source.between(0, len(systems) - 1)]
            for draft in session(source, system):
                heappush(coming, _Coming(start_ms + draft.offset_ms, drawn, namespace, draft))
                drawn += 1
            start_ms += source.gap_ms(MEAN_SESSION_GAP_MS)
        next_one = heappop(coming)
        draft = next_one.draft
        yield WorkRequest(
            request_id=f"r{number:05d}",
            arrival_ms=next_one.arrival_ms,
            prompt=_sealed(draft.prompt),
            output=_sealed(draft.output),
            namespace=next_one.namespace,
            abort_at=_abort_point(source, draft),
        )


@dataclass(frozen=True, order=True, slots=True)
class _Coming:
    """A draft with its place in time; those of one moment come in the order they were drawn."""

    arrival_ms: int
    number: int
    namespace: str = field(compare=False)
    draft: Draft = field(compare=False)


def _abort_point(source: TextSource, draft: Draft) -> int | None:
    """A client that leaves does so anywhere between its admission and its last token."""
    if not source.chance(ABORT_PROBABILITY):
        return None
    if source.chance(0.2):
        return 0
    return source.between(1, len(draft.prompt) + len(draft.output) - 1)


def _sealed(tokens: Tokens) -> Tokens:
    """Read-only, as several requests may share what they were cut from."""
    tokens = np.ascontiguousarray(tokens)
    tokens.flags.writeable = False
    return tokens

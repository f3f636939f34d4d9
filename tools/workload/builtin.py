"""The workload of `kvledger run` without a trace: many clients in several namespaces under heavy pressure."""

import numpy as np

from kvledger.core.errors import InvalidArgument
from kvledger.tools.workload.sessions import Draft, chat, helpdesk, reader
from kvledger.tools.workload.spec import Tokens, WorkRequest
from kvledger.tools.workload.texts import TextSource

NAMESPACES = ("", "tenant-a", "tenant-b")
"""Who asks; the first holds most of the traffic."""

NAMESPACE_WEIGHTS = [0.6, 0.25, 0.15]

SESSIONS = (chat, helpdesk, reader)
SESSION_WEIGHTS = [0.3, 0.35, 0.35]

SYSTEM_PROMPT_TOKENS = (300, 90, 700)
"""Lengths of the system prompts of a namespace: within a window or two, and well past it."""

ABORT_PROBABILITY = 0.08
MEAN_SESSION_GAP_MS = 220.0


def builtin_workload(requests: int, *, seed: int = 0) -> list[WorkRequest]:
    """The first `requests` requests of the workload named by `seed`, in order of arrival.

    Two calls with equal arguments return equal requests. Raises `InvalidArgument` for fewer than one
    request or a negative seed. Cost: O(tokens).
    """
    if requests < 1:
        raise InvalidArgument(f"a workload needs at least one request, {requests} asked")
    if seed < 0:
        raise InvalidArgument(f"a seed is not negative: {seed}")
    source = TextSource(seed)
    # All namespaces have the same system prompts: equal tokens that must never meet.
    systems = [source.text(length) for length in SYSTEM_PROMPT_TOKENS]
    drafts: list[tuple[int, int, str, Draft]] = []
    start_ms = 0
    # Sessions overlap, so more are drawn than needed and the earliest arrivals kept.
    while len(drafts) < 2 * requests:
        namespace = NAMESPACES[source.choose(NAMESPACE_WEIGHTS)]
        session = SESSIONS[source.choose(SESSION_WEIGHTS)]
        system = systems[source.between(0, len(systems) - 1)]
        for draft in session(source, system):
            drafts.append((start_ms + draft.offset_ms, len(drafts), namespace, draft))
        start_ms += source.gap_ms(MEAN_SESSION_GAP_MS)
    drafts.sort(key=lambda entry: entry[:2])
    return [
        WorkRequest(
            request_id=f"r{number:05d}",
            arrival_ms=arrival_ms,
            prompt=_sealed(draft.prompt),
            output=_sealed(draft.output),
            namespace=namespace,
            abort_at=_abort_point(source, draft),
        )
        for number, (arrival_ms, _, namespace, draft) in enumerate(drafts[:requests], start=1)
    ]


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
